# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of the trainers: short runs, what they leave, and what holds for every trainer."""

import pytest
import torch


NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
TINY_RUN = {
    "max_length": 32,
    "per_device_train_batch_size": 8,
    "eval_strategy": "no",
    "save_strategy": "no",
    "load_best_model_at_end": False,
    "logging_steps": 1,
    "report_to": "none",
    "use_cpu": True,
    "disable_tqdm": True,
}
# Clipped gradients would hide a wrong scale of the loss.
PLAIN_SGD = {
    "optim": "sgd",
    "learning_rate": 0.02,
    "lr_scheduler_type": "constant",
    "warmup_steps": 0,
    "max_grad_norm": 0.0,
    "train_sampling_strategy": "sequential",
}


def weights(model):
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def same(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def logged(trainer, name):
    return [entry[name] for entry in trainer.state.log_history if name in entry]


def assert_accumulation_changes_nothing(make):
    """Two steps of 16 rows: `make` gets the options of the batches, and makes a trainer without dropout."""
    results = []
    for size in (16, 4, 2):
        trainer = make(
            {"per_device_train_batch_size": size, "gradient_accumulation_steps": 16 // size, "max_steps": 2}
        )
        start = weights(trainer.model)
        trainer.train()
        results.append((weights(trainer.model), [logged(trainer, name) for name in ("loss", "grad_norm")]))
    expected, values = results[0]
    assert max((expected[name] - start[name]).abs().max() for name in start if "similarity" not in name) > 2e-3
    for found, others in results[1:]:
        for name in start:
            torch.testing.assert_close(found[name], expected[name], rtol=1e-4, atol=2e-5, msg=name)
        for mine, wanted in zip(others, values, strict=True):
            assert len(mine) == 2 and mine == pytest.approx(wanted, rel=1e-3)


def assert_resumes(make, folder, steps, names=("loss",)):
    """A run with another start that goes on from a checkpoint ends where the straight run of `make(seed)` does."""
    straight = make(0)
    straight.train()
    expected, first = weights(straight.model), straight.optimizer.state_dict()
    for step in steps:
        # A new process would not start from the same random numbers or weights.
        resumed = make(1)
        torch.manual_seed(7)
        resumed.train(resume_from_checkpoint=str(folder / f"checkpoint-{step}"))
        assert same(weights(resumed.model), expected)
        second = resumed.optimizer.state_dict()
        assert resumed.lr_scheduler.state_dict() == straight.lr_scheduler.state_dict()
        assert first["param_groups"] == second["param_groups"]
        assert all(same(state, second["state"][index]) for index, state in first["state"].items())
        for name in names:
            assert logged(resumed, name) == logged(straight, name) != []
    return straight, resumed
