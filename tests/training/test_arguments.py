# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Training arguments: what follows the data, and what is refused before a silent wrong value."""

import pickle
from dataclasses import replace

import pytest

from hf_dse.training.arguments import DseTrainingArguments, RankingTrainingArguments


def make(kind=DseTrainingArguments, **fields):
    return kind("unused", use_cpu=True, report_to="none", **fields)


# What is set, and eval_strategy, save_strategy and load_best_model_at_end with and without an `eval_dataset`
@pytest.mark.parametrize(
    ("chosen", "with_data", "without_data"),
    [
        ({}, ("epoch", "epoch", True), ("no", "steps", False)),
        ({"eval_strategy": "no"}, ("no", "steps", False), ("no", "steps", False)),
        ({"save_strategy": "no"}, ("epoch", "no", False), ("no", "no", False)),
        ({"load_best_model_at_end": False}, ("epoch", "epoch", False), ("no", "steps", False)),
        ({"eval_strategy": "steps", "eval_steps": 300}, ("steps", "steps", False), None),
        ({"eval_strategy": "epoch", "save_strategy": "best"}, ("epoch", "best", True), None),
    ],
)
def test_evaluation_and_saving_follow_the_data(chosen, with_data, without_data):
    for has_data, expected in ((True, with_data), (False, without_data)):
        if expected is not None:
            args = make(**chosen)
            args.follow_data(has_data)
            assert (args.eval_strategy, args.save_strategy, args.load_best_model_at_end) == expected
            assert args.metric_for_best_model == ("loss" if expected[2] else None)
            assert args.greater_is_better is (False if expected[2] else None)
    # Until there are data they are open, also in copies.
    args = make(**chosen)
    copies = [replace(args, learning_rate=1e-3), pickle.loads(pickle.dumps(args))]
    for name in ("eval_strategy", "save_strategy", "load_best_model_at_end"):
        assert [getattr(copy, name) for copy in copies] == [chosen.get(name)] * 2


def test_the_best_model_needs_a_loss_or_a_metric():
    args = make()
    args.follow_data(True, loss=None)
    assert args.load_best_model_at_end is False
    with pytest.raises(ValueError, match="there is no `eval_dataset` to compare models on"):
        make(load_best_model_at_end=True).follow_data(False)
    ranking = make(RankingTrainingArguments)
    ranking.follow_data(True)
    assert (ranking.metric_for_best_model, ranking.greater_is_better) == ("ndcg@10", True)
    # The check of transformers sees what will be filled in.
    with pytest.raises(ValueError, match="requires the save and eval strategy to match"):
        make(load_best_model_at_end=True, save_strategy="no")


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (DseTrainingArguments, {"distillation_alpha": 1.5}, "`distillation_alpha` must be between 0 .* got 1.5"),
        (RankingTrainingArguments, {"accelerator_config": {"dispatch_batches": True}}, "cuts a batch at its queries"),
        (RankingTrainingArguments, {"contrastive_weight": 0.0, "kl_weight": 0.0}, "All loss weights are 0"),
        (DseTrainingArguments, {"num_train_epochs": 0}, "num_train_epochs=0 and max_steps=-1 train nothing: set one"),
        (DseTrainingArguments, {"max_steps": 0}, "num_train_epochs=3.0 and max_steps=0 train nothing: set one"),
        (DseTrainingArguments, {"gradient_accumulation_steps": 0}, "gradient_accumulation_steps=0: it has to be at"),
        (RankingTrainingArguments, {"kl_weight": -1.0}, "kl_weight=-1.0: it has to be at least 0"),
        (
            RankingTrainingArguments,
            {"train_sampling_strategy": "batch_rebalance"},
            "'batch_rebalance': for rankings it has to be 'random' or 'sequential'",
        ),
    ],
)
def test_what_would_be_silently_wrong_is_refused(kind, fields, message, monkeypatch):
    with pytest.raises(ValueError, match=message):
        make(kind, **fields)
    # On CPUs accelerate would ignore its launcher's setting.
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with pytest.raises(ValueError, match="fsdp is set by `accelerate launch`: these trainers do not divide a model"):
        make()


def test_the_precision_is_that_of_accelerate(monkeypatch):
    name = "ACCELERATE_MIXED_PRECISION"
    monkeypatch.setenv(name, "bf16")
    args = make()
    assert args.bf16 and args.mixed_precision == "bf16"
    monkeypatch.setenv(name, "fp8")
    with pytest.raises(ValueError, match="ACCELERATE_MIXED_PRECISION=fp8: these trainers compute in bf16, fp16 or"):
        make()
    monkeypatch.setenv(name, "fp16")
    with pytest.raises(ValueError, match="fp16 is set, by an argument or by accelerate, and needs a GPU: use `bf16`"):
        make()
    monkeypatch.delenv(name)
    assert not make().bf16
    with pytest.raises(ValueError, match="fp16 is set"):
        make(fp16=True)
