# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Every option of every stage is followed, refused, or carried out by transformers alone: docs/options.md."""

import ast
import copy
import hashlib
import importlib.util
import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from hub import WRITER
from tiny_data import make_rows

from hf_dse import (
    DataArguments,
    DseTrainer,
    DseTrainingArguments,
    GeneralTrainer,
    GeneralTrainingArguments,
    RankingTrainer,
    RankingTrainingArguments,
    convert_encoder,
    distill,
    load_rankings,
    make_pair_model,
    make_rankings,
    with_own_attention,
)
from hf_dse.convert.options import ConvertOptions
from hf_dse.convert.student import load_or_convert
from hf_dse.data.rankings import read_rankings
from hf_dse.stages.options import STAGES
from hf_dse.training.base import CHANGEABLE, PLANNED


ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("make_options", ROOT / "docs" / "make_options.py")
make_options = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make_options)

SGD = {"optim": "sgd", "learning_rate": 0.1}
BY_STEPS = {"eval_strategy": "steps"}
SAVES = {"save_strategy": "steps", "save_steps": 1}
# A value of each option that is followed, and what it needs beside it.
TRAINED = {
    "num_train_epochs": (2, {}),
    "max_steps": (1, {}),
    "learning_rate": (2e-3, {}),
    "per_device_train_batch_size": (5, {}),
    "gradient_accumulation_steps": (2, {}),
    "max_length": (4, {}),
    "bf16": (True, {}),
    "seed": (1, {}),
    "data_seed": (1, {"train_sampling_strategy": "random"}),
    "warmup_steps": (3, {}),
    "weight_decay": (0.5, {}),
    "lr_scheduler_type": ("constant", {}),
    "lr_scheduler_kwargs": ({"num_cycles": 3}, {"lr_scheduler_type": "cosine"}),
    "optim": ("sgd", {}),
    "optim_args": ("momentum=0.9", SGD),
    "adam_beta1": (0.5, {}),
    "adam_beta2": (0.5, {}),
    "adam_epsilon": (0.1, {}),
    "max_grad_norm": (1e-3, SGD),
    "neftune_noise_alpha": (5.0, {}),
    "dataloader_drop_last": (True, {}),
    "train_sampling_strategy": ("sequential", {}),
    "logging_steps": (2, {}),
    "eval_strategy": ("epoch", {}),
    "eval_steps": (2, BY_STEPS),
    "eval_delay": (2, BY_STEPS),
    "eval_on_start": (True, {}),
    "prediction_loss_only": (True, {"eval_strategy": "epoch"}),
    "save_strategy": ("epoch", {}),
    "save_total_limit": (2, SAVES),
    "distillation_alpha": (0.9, {}),
    "head_learning_rate": (0.1, {}),
    "scale_learning_rate": (0.5, {}),
    "query_max_length": (4, {}),
    "num_candidates": (2, {}),
    "contrastive_weight": (0.5, {}),
    "kl_weight": (0.2, {}),
    "freeze_layers": (1, {}),
    "hidden_weight": (0.2, {}),
    "sentence_weight": (0.2, {}),
}
SHORT = {"linformer_length": [4]}
WINDOWED = {"layer_types": ["sliding_attention"]}
CONVERTED = {
    "linformer_length": ([4], {}),
    "linformer_projection": ("strided", SHORT),
    "linformer_init": ("strided", SHORT),
    "linformer_sharing": ("headwise", SHORT),
    "layer_types": (["sliding_attention"], {"sliding_window": 4}),
    "sliding_window": (4, WINDOWED),
    "attention_chunk_size": (8, {"layer_types": ["chunked_attention"]}),
    "num_hidden_layers": (1, {}),
    "max_position_embeddings": (128, {}),
    "pooling_mode": ("cls", {}),
    "projection_dim": (4, {}),
    "normalize_embeddings": (True, {}),
    "similarity": ("dot", {}),
    "similarity_hidden_size": (8, {"similarity": "mlp"}),
    "hidden_dropout_prob": (0.3, {}),
    "attention_probs_dropout_prob": (0.3, {}),
}
# A value of each option that is refused.
WRONG = {
    "fsdp": "full_shard",
    "fsdp_config": {"min_num_params": 1},
    "deepspeed": "zero.json",
    "parallelism_config": "tensor",
    "label_smoothing_factor": 0.1,
    "average_tokens_across_devices": False,
    "use_cache": True,
    "remove_unused_columns": True,
    "label_names": ["label"],
    "length_column_name": "size",
    "hub_strategy": "every_save",
    "hub_always_push": True,
    "use_liger_kernel": True,
    "liger_kernel_config": {"rope": True},
    "bf16_full_eval": True,
    "fp16_full_eval": True,
    "batch_eval_metrics": True,
    "eval_do_concat_batches": False,
    "include_for_metrics": ["loss"],
    "eval_use_gather_object": True,
    "eval_accumulation_steps": 2,
    "prediction_loss_only": True,
    "chunk_size": 8,
    "corpus_file": "corpus",
    "relevance_threshold": 2,
    "task_name": "stsb",
    "num_labels": 1,
    "symmetric": True,
    "label_column": "gold",
    "sentence1_column": "first",
    "sentence2_column": "second",
}
ALL = [(stage, name) for stage in STAGES for name in make_options.options_of(stage)]
KINDS = {(stage, name): make_options.what_of(stage, name) for stage, name in ALL}


def test_the_page_is_up_to_date():
    assert make_options.PAGE.read_text(encoding="utf-8") == make_options.make_options(), (
        "run `python docs/make_options.py`"
    )


def test_every_option_has_one_place():
    """A new option, also of a new transformers, needs a value that shows it, a refusal, or a reason."""
    shown = {**make_options.SHOWN, **TRAINED, **CONVERTED}
    for (stage, name), kind in KINDS.items():
        assert (name in shown) or kind != "followed", f"{name} of the stage {stage} has no place"
        assert name in WRONG or kind != "refused", f"{name} of the stage {stage} has no value that is refused"
    # None stands for an option that is gone, and none has two places.
    names = {name for _, name in ALL}
    owned = [name for group in make_options.OWNED.values() for name in group.split()]
    assert {*shown, *WRONG, *owned} <= names
    assert len(owned) + len(make_options.SHOWN) + len(TRAINED) + len(CONVERTED) == len({*owned, *shown})
    # What is learned is compared when a training goes on.
    unplanned = {name for name in TRAINED if name.startswith(("eval_", "save_", "logging_", "prediction_"))}
    extra = {"world_size", "fp16", "optim_target_modules"}
    assert {*TRAINED} - unplanned == {*PLANNED} - extra and {*CHANGEABLE} <= {*PLANNED, "teacher_logits"}


def test_tests_that_show_an_option_name_it():
    for name, test in make_options.SHOWN.items():
        file, function = test.split("::")
        source = (ROOT / "tests" / file).read_text(encoding="utf-8")
        found = [part for part in ast.parse(source).body if getattr(part, "name", None) == function]
        assert found, test
        word = {"model_name_or_path": "model", "stage": "stage", "output_dir": "out"}.get(name, name)
        assert word in ast.unparse(found[0]), f"{test} does not name {name}"


@pytest.mark.parametrize(("stage", "name"), [case for case, kind in KINDS.items() if kind == "refused"])
def test_what_is_not_followed_is_refused_before_anything_loads(stage, name, tmp_path):
    data = {"train_file": "nowhere"} if stage == "general" else {"dataset_name": "nowhere"}
    options = {"output_dir": tmp_path, "use_cpu": True, "report_to": "none", **data, name: WRONG[name]}
    with pytest.raises(ValueError, match=f"^{name}=.*[lL]eave"):
        distill("no/such-encoder", stage=stage, **options)


@pytest.fixture(scope="module")
def make_trainer(save_bert, bert_tokenizer, tmp_path_factory):
    """Trainers of the stages on ten rows."""
    source = str(save_bert(tmp_path_factory.mktemp("source")))
    converted = convert_encoder(source, linformer_length=8, hidden_dropout_prob=0.1)
    teacher = with_own_attention(converted)
    rows = make_rows(10, 0)
    scores = [[2 * row["label"] - 1] for row in rows]
    pairs = Dataset.from_list(rows).add_column("teacher_logits", scores)
    texts = Dataset.from_dict(
        {"text": [row["sentence1"] + " is old and new" * (len(row["sentence2"]) % 3) for row in rows]}
    )
    corpus = [row["sentence2"] for row in rows]
    drawn = [np.random.default_rng(row).permutation(10)[:4].tolist() for row in range(10)]
    lists = {"query": [row["sentence1"] for row in rows], "documents": drawn, "labels": [[1, 0, 0, 0]] * 10}
    lists["teacher_logits"] = [[3.0 + row, 1.0, 0.5 * row, -1.0] for row in range(10)]
    rankings = make_rankings(lists, {"text": corpus})

    def make(stage, folder, **fields):
        base = {"max_length": 32, "per_device_train_batch_size": 4, "num_train_epochs": 1, "logging_steps": 1}
        base |= {"learning_rate": 1e-3, "eval_strategy": "no", "save_strategy": "no", "load_best_model_at_end": False}
        base |= {"report_to": "none", "use_cpu": True, "disable_tqdm": True, "output_dir": str(folder)}
        fields, encoder = {**base, **fields}, copy.deepcopy(converted)
        common = {"processing_class": bert_tokenizer}
        if stage == "general":
            args = GeneralTrainingArguments(**fields)
            return GeneralTrainer(encoder, args, texts, texts, teacher=copy.deepcopy(teacher), **common)
        torch.manual_seed(0)
        model = make_pair_model(encoder, num_labels=1)
        if stage == "ranking":
            return RankingTrainer(model, RankingTrainingArguments(**fields), rankings, rankings, **common)
        args = DseTrainingArguments(**fields)
        return DseTrainer(model, args, pairs, pairs, compute_metrics=lambda prediction: {"size": 1.0}, **common)

    return make


def outcome_of(trainer):
    """What a training leaves: weights, log and checkpoints."""
    trainer.train()
    digest = hashlib.sha256()
    for value in trainer.model.state_dict().values():
        digest.update(value.numpy().tobytes())
    passing = ("runtime", "per_second", "flos", "timing")
    log = [
        {key: value for key, value in row.items() if not key.endswith(passing)} for row in trainer.state.log_history
    ]
    return digest.hexdigest(), log, sorted(path.name for path in Path(trainer.args.output_dir).glob("checkpoint-*"))


@pytest.fixture(scope="module")
def outcomes(make_trainer, tmp_path_factory):
    """What a training of a stage leaves, by its options."""
    known = {}

    def find(stage, **fields):
        key = str((stage, fields))
        if key not in known:
            known[key] = outcome_of(make_trainer(stage, tmp_path_factory.mktemp("run"), **fields))
        return known[key]

    return find


@pytest.mark.parametrize(
    ("stage", "name"),
    [(stage, name) for (stage, name), kind in KINDS.items() if name in TRAINED and kind == "followed"],
)
def test_what_is_followed_changes_the_training(stage, name, outcomes):
    value, others = TRAINED[name]
    assert outcomes(stage, **others, **{name: value}) != outcomes(stage, **others)


@pytest.mark.parametrize("stage", STAGES)
def test_the_same_options_give_the_same_training(stage, outcomes, make_trainer, tmp_path):
    """What the comparison rests on."""
    assert outcome_of(make_trainer(stage, tmp_path)) == outcomes(stage)


@pytest.mark.parametrize("name", CONVERTED)
def test_what_is_followed_changes_the_student(name, save_bert, bert_tokenizer, tmp_path):
    """What it computes of long texts, or the shapes of its weights."""
    value, others = CONVERTED[name]
    source = str(save_bert(tmp_path))
    batch = bert_tokenizer(
        ["the cat sat on a mat " * 4] * 2, ["a dog ran " * 5] * 2, padding=True, return_tensors="pt"
    )

    def convert(**fields):
        torch.manual_seed(0)
        model = make_pair_model(load_or_convert(source, ConvertOptions(**fields)), num_labels=1).train()
        with torch.no_grad():
            output = model(**batch)
        shapes = {key: tuple(tensor.shape) for key, tensor in model.state_dict().items()}
        return shapes, output.logits.tolist(), output.embeddings.tolist()

    assert convert(**others) == convert(**others) != convert(**others, **{name: value})


def test_a_model_that_is_converted_takes_no_other_options(save_bert, tmp_path):
    convert_encoder(str(save_bert(tmp_path / "source")), linformer_length=8).save_pretrained(tmp_path / "student")
    student = str(tmp_path / "student")
    load_or_convert(student, ConvertOptions(linformer_length=[8], hidden_dropout_prob=0.3))
    with pytest.raises(ValueError, match=r"linformer_length=\[4\]: .*student is a DSE model already, with 8: leave"):
        load_or_convert(student, ConvertOptions(linformer_length=[4]))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"attention_chunk_size": 8}, "attention_chunk_size=8 needs `layer_types` of chunked_attention"),
        ({"similarity_hidden_size": 8}, "similarity_hidden_size=8 needs `similarity` mlp"),
        ({"sliding_window": 4, "layer_types": ["full_attention"]}, "sliding_window=4 needs `layer_types` with a win"),
    ],
)
def test_an_option_needs_what_it_is_about(fields, message):
    with pytest.raises(ValueError, match=message):
        ConvertOptions(**fields)


def test_what_a_fixed_projection_does_not_use_is_said(save_bert, tmp_path, warnings):
    """No error: a grid of a study crosses them."""
    fields = {"linformer_init": "strided", "linformer_sharing": "headwise"}
    load_or_convert(str(save_bert(tmp_path)), ConvertOptions(linformer_projection="mean", **fields))
    assert warnings == [
        "linformer_init=strided is not used: the projection is mean, not learned.",
        "linformer_sharing=headwise is not used: the projection is mean, not learned.",
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("teacher_dtype", "float16"),
        ("teacher_max_length", 8),
        ("windows", "best"),
        ("cache_dir", "kept"),
        ("teacher_weights", [1.0]),
        ("teacher_bm25_weight", 0.1),
    ],
)
def test_without_a_teacher_its_options_are_refused(name, value):
    with pytest.raises(ValueError, match=f"^{name}=.* is for the teacher's scores, and there is no teacher"):
        distill("no/such-encoder", dataset="nowhere", stage="ranking", use_cpu=True, **{name: value})


def test_how_a_teacher_is_asked(options_of, weights, call):
    """`teacher_dtype`, `teacher_max_length` and `windows` change the scores, and with them the student."""
    long = "the old cat sat on the mat . " * 6
    rows = [
        {"query": f"cat {n}", "documents": [long + "cat", f"dog {n}", "mat"], "labels": [1, 0, 0]} for n in range(4)
    ]
    rankings = read_rankings(Dataset.from_list(rows))
    options = {
        "dataset": {"train": rankings},
        "stage": None,
        "train_file": None,
        "max_length": 64,
        "max_steps": 1,
        "warmup_steps": 0,
    }
    runs = {"teacher_dtype": "bfloat16", "teacher_max_length": 16, "windows": "best"}
    call("plain", "ranking", **options)
    for name, value in runs.items():
        call(name, "ranking", **options, **{name: value}, **({"teacher_max_length": 16} if name == "windows" else {}))
    found = [weights(name) for name in ("plain", *runs)]
    assert all(not same_weights(first, second) for first, second in combinations(found, 2))


def same_weights(first, second):
    return all(torch.equal(first[name], second[name]) for name in first)


def test_a_finished_model_is_pushed(call, hub, tmp_path):
    """By `push_to_hub`, with `hub_model_id`, `hub_private_repo`, `hub_revision` and `hub_token`."""
    names = {"hub_model_id": "user/student", "hub_revision": "draft", "hub_token": WRITER}
    call("out", push_to_hub=True, hub_private_repo=True, max_steps=1, **names)
    repo = hub.repos["user/student"]
    assert repo.private and {"model.safetensors", "README.md"} <= {*repo.branches["draft"][-1].files}


def test_which_rows_are_read(call, assets, tmp_path, results, weights):
    """`max_train_samples`, `max_eval_samples`, `validation_file` and `text_column`, from files and loaded."""
    texts = [row["sentence1"] for row in make_rows(12, 3)]
    Dataset.from_dict({"text": texts, "body": texts[::-1]}).to_parquet(tmp_path / "texts.parquet")
    file = {"train_file": str(tmp_path / "texts.parquet"), "validation_file": str(tmp_path / "texts.parquet")}
    general = {"teacher": None, "dataset": None, "max_train_samples": 4, "max_eval_samples": 8, "warmup_steps": 0}
    call("files", "general", **general, **file)
    call("other", "general", **general, **file, text_column="body")
    loaded = {"train": Dataset.from_dict({"text": texts}), "validation": Dataset.from_dict({"text": texts})}
    call("loaded", "general", **{**general, "dataset": loaded}, train_file=None)
    call("all", "general", **{**general, "max_train_samples": None}, **file)
    files, other, again, whole = map(weights, ("files", "other", "loaded", "all"))
    assert same_weights(files, again) and not same_weights(files, other) and not same_weights(files, whole)
    losses = [json.loads((tmp_path / name / "trainer_state.json").read_text()) for name in ("files", "loaded")]
    assert losses[0]["best_metric"] == losses[1]["best_metric"] > 0
    with pytest.raises(ValueError, match="^validation_file=.* says what to read, and the data are loaded: leave it"):
        call("never", "general", **{**general, "dataset": loaded}, **{**file, "train_file": None})
    rankings = load_rankings(DataArguments(dataset_name=str(assets / "queries")))
    call(
        "rankings", "ranking", teacher=None, dataset=rankings, train_file=None, max_eval_samples=2, max_train_samples=4
    )
    assert results("rankings")["metrics"]["test"]["num_queries"] == 2
    # The card says that its numbers are of a part.
    card = (tmp_path / "rankings" / "model" / "README.md").read_text()
    assert "| max_train_samples | 4 |" in card.replace("\\_", "_") and "| max_eval_samples | 2 |" in card.replace(
        "\\_", "_"
    )
