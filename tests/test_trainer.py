# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""DseTrainer on tiny students and embedded pairs: what it computes, resumes, refuses, and that students learn."""

import importlib.util
import math
import pickle
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForSequenceClassification, DataCollatorWithPadding, Trainer, TrainingArguments

from hf_dse import (
    DataArguments,
    DseTrainer,
    DseTrainingArguments,
    PairCollator,
    load_pairs,
)
from hf_dse.cli.parsing import parse_args
from hf_dse.data.pairs import mix_pairs
from hf_dse.inference.encoding import encode
from hf_dse.metrics import compute_metrics_for
from hf_dse.teacher.score import embed_pairs
from hf_dse.training.inputs import SHARDING
from hf_dse.training.losses import similarity_loss


MAX_LENGTH = 32
TINY_RUN = {
    "max_length": MAX_LENGTH,
    "per_device_train_batch_size": 8,
    "eval_strategy": "no",
    "save_strategy": "no",
    "load_best_model_at_end": False,
    "logging_steps": 1,
    "report_to": "none",
    "use_cpu": True,
    "disable_tqdm": True,
}
NEW_PARAMETERS = r"^similarity\.|linformer\.|^dse\.projection\."
# Problems by name: fields of the student's config, and what stands in for the label 0 to 5 of the embedded pairs.
PROBLEMS = {
    "regression": ({"num_labels": 1, "problem_type": "regression"}, float),
    "binary": ({"num_labels": 1, "problem_type": "multi_label_classification"}, lambda label: int(label > 2.5)),
    "three": ({"num_labels": 3, "problem_type": "single_label_classification"}, lambda label: int(label / 2)),
}


def share_of_words(row):
    first, second = (set(re.findall(r"\w+", row[name].lower())) for name in ("sentence1", "sentence2"))
    return len(first & second) / len(first | second)


def add_scores(part, num_logits=1):
    """A teacher whose score is how many words two sentences share, from 0 to 5."""
    part = part.remove_columns([name for name in ("teacher_logits",) if name in part.column_names])
    scores = [5 * share_of_words(row) for row in part]
    return part.add_column("teacher_logits", [[score * (i + 1) - i for i in range(num_logits)] for score in scores])


@pytest.fixture(scope="module")
def pairs():
    """The shortest embedded pairs: the tiny tokenizer spells their words letter by letter."""
    parts = {}
    for split, part in load_pairs(DataArguments(dataset_name="embedded")).items():
        sizes = [max(len(row["sentence1"]), len(row["sentence2"])) for row in part]
        shortest = np.argsort(sizes, kind="stable")[: 32 if split == "train" else 16]
        parts[split] = add_scores(part.select(np.sort(shortest)))
    return parts


@pytest.fixture(scope="module")
def problem_pairs(pairs):
    def make(problem, num_logits=None):
        fields, to_label = PROBLEMS[problem]
        train = pairs["train"]
        train = train.remove_columns("label").add_column("label", [to_label(label) for label in train["label"]])
        return add_scores(train, num_logits or fields["num_labels"])

    return make


@pytest.fixture
def make_trainer(tmp_path, bert_tokenizer):
    def make(student, train=None, evaluate=None, **fields):
        options = {name: fields.pop(name) for name in ("data_collator", "compute_metrics") if name in fields}
        return DseTrainer(
            model=student,
            args=DseTrainingArguments(**{"output_dir": str(tmp_path / "run"), **TINY_RUN, **fields}),
            train_dataset=train,
            eval_dataset=evaluate,
            processing_class=bert_tokenizer,
            **options,
        )

    return make


def weights(model):
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def logits_of(student, tokenizer, part):
    collator = PairCollator(tokenizer, MAX_LENGTH)
    batch = collator([{"sentence1": row["sentence1"], "sentence2": row["sentence2"]} for row in part])
    with torch.no_grad():
        return student.eval()(**batch).logits


NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
# Clipped gradients would hide a wrong scale of the loss.
PLAIN_SGD = {
    "optim": "sgd",
    "learning_rate": 0.02,
    "lr_scheduler_type": "constant",
    "warmup_steps": 0,
    "max_grad_norm": 0.0,
    "max_steps": 3,
    "train_sampling_strategy": "sequential",
}
EIGHT_AT_ONCE = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1}
ONE_BY_ONE = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 8}


@pytest.mark.parametrize("dropout, length, warns", [(0.1, 600, True), (0.1, 512, False), (0.0, 600, False)])
def test_dropout_of_attention_over_long_texts(make_student, make_trainer, pairs, caplog, dropout, length, warns):
    student = make_student(attention_probs_dropout_prob=dropout, max_position_embeddings=600)
    make_trainer(student, add_scores(pairs["train"]), max_length=length, max_steps=1).train()
    assert ("torch's fast attention runs without dropout only" in caplog.text) == warns


def check_same_steps(start, first, second):
    assert max((first[name] - start[name]).abs().max() for name in start) > 5e-3
    for name in start:
        assert torch.allclose(first[name], second[name], rtol=0, atol=1e-6), name


@pytest.mark.parametrize("problem", PROBLEMS)
def test_accumulated_gradients_are_those_of_one_batch(problem, make_student, make_trainer, problem_pairs):
    results = []
    for batches in (EIGHT_AT_ONCE, ONE_BY_ONE):
        student = make_student(**PROBLEMS[problem][0], **NO_DROPOUT)
        start = weights(student)
        # Not fitted first: the scale of an untrained tiny student would be a matter of float precision.
        trainer = make_trainer(
            student, problem_pairs(problem), **PLAIN_SGD, **batches, calibrate_similarity=False, distillation_alpha=0.5
        )
        trainer.train()
        results.append((weights(student), [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]))
    (first, first_losses), (second, second_losses) = results
    check_same_steps(start, first, second)
    assert len(first_losses) == 3
    assert first_losses == pytest.approx(second_losses, abs=1e-4)


def test_accumulated_gradients_of_the_stock_trainer(tmp_path, make_student, bert_tokenizer, pairs):
    encoded = [
        {
            **bert_tokenizer(row["sentence1"], row["sentence2"], truncation=True, max_length=MAX_LENGTH),
            "label": row["label"],
        }
        for row in pairs["train"]
    ]
    results = []
    for batches in (EIGHT_AT_ONCE, ONE_BY_ONE):
        student = make_student(**NO_DROPOUT)
        # A new head is fitted to each batch of a step in turn, so its first gradients depend on them.
        student.similarity.is_open = False
        start = weights(student)
        tiny_run = {name: value for name, value in TINY_RUN.items() if name != "max_length"}
        Trainer(
            model=student,
            args=TrainingArguments(str(tmp_path), **{**tiny_run, **PLAIN_SGD, **batches}),
            train_dataset=Dataset.from_list(encoded),
            data_collator=DataCollatorWithPadding(bert_tokenizer),
        ).train()
        results.append(weights(student))
    check_same_steps(start, *results)


@pytest.mark.parametrize(("head_learning_rate", "steps"), [(None, (2, 4, 6)), (2e-3, (6,))])
def test_a_resumed_run_ends_where_a_straight_run_does(
    head_learning_rate, steps, tmp_path, make_student, make_trainer, pairs
):
    # Dropout, a schedule, batches by length and checkpoints amid the epochs: all that has to be restored.
    fields = {
        "num_train_epochs": 2,
        "learning_rate": 1e-3,
        "head_learning_rate": head_learning_rate,
        "save_strategy": "steps",
        "save_steps": 2,
        "save_total_limit": None,
    }
    straight = make_trainer(make_student(), pairs["train"], **fields)
    assert straight.train().global_step == 8
    expected, first = weights(straight.model), straight.optimizer.state_dict()
    assert len({group["initial_lr"] for group in first["param_groups"]}) == (2 if head_learning_rate is None else 3)
    assert len(first["param_groups"]) == (4 if head_learning_rate is None else 5)
    for step in steps:
        # A new process would not start from the same random numbers or weights.
        resumed = make_trainer(make_student(seed=1), pairs["train"], **fields)
        torch.manual_seed(7)
        resumed.train(resume_from_checkpoint=str(tmp_path / "run" / f"checkpoint-{step}"))
        actual, second = weights(resumed.model), resumed.optimizer.state_dict()
        assert all(torch.equal(actual[name], expected[name]) for name in expected)
        assert resumed.lr_scheduler.state_dict() == straight.lr_scheduler.state_dict()
        assert first["param_groups"] == second["param_groups"]
        for index, state in first["state"].items():
            assert all(torch.equal(state[name], second["state"][index][name]) for name in state)
        losses = [[entry["loss"] for entry in run.state.log_history if "loss" in entry] for run in (straight, resumed)]
        assert len(losses[0]) == 8
        assert losses[0] == losses[1]


def test_a_checkpoint_carries_its_code(tmp_path, make_student, make_trainer, pairs, bert_tokenizer):
    student = make_student()
    make_trainer(student, pairs["train"], max_steps=1, save_strategy="steps", save_steps=1).train()
    checkpoint = tmp_path / "run" / "checkpoint-1"
    names = {path.name for path in checkpoint.iterdir()}
    assert {"configuration_dse.py", "modeling_dse.py", "model.safetensors", "tokenizer.json"} <= names
    loaded = AutoModelForSequenceClassification.from_pretrained(checkpoint)
    assert loaded.config.auto_map["AutoModelForSequenceClassification"] == "modeling_dse.DseForSequenceClassification"
    expected = logits_of(student, bert_tokenizer, pairs["test"])
    assert torch.equal(logits_of(loaded, bert_tokenizer, pairs["test"]), expected)


def test_alpha_1_learns_without_labels(make_student, make_trainer, pairs):
    unlabelled = pairs["train"].remove_columns("label")
    student = make_student()
    start = weights(student)
    assert math.isfinite(make_trainer(student, unlabelled, distillation_alpha=1.0, max_steps=2).train().training_loss)
    assert not torch.equal(student.similarity.scale, start["similarity.scale"])


def test_alpha_0_learns_without_a_teacher(make_student, make_trainer, pairs):
    unscored = pairs["train"].remove_columns("teacher_logits")
    student = make_student()
    start = weights(student)
    assert math.isfinite(make_trainer(student, unscored, distillation_alpha=0.0, max_steps=2).train().training_loss)
    assert not torch.equal(student.similarity.scale, start["similarity.scale"])


def test_what_has_no_weight_changes_nothing(make_student, make_trainer, pairs):
    for alpha, unused in ((0.0, "teacher_logits"), (1.0, "label")):
        results = []
        for train in (pairs["train"], pairs["train"].remove_columns(unused)):
            student = make_student()
            make_trainer(student, train, distillation_alpha=alpha, max_steps=2, learning_rate=1e-3).train()
            results.append(weights(student))
        assert all(torch.equal(results[0][name], results[1][name]) for name in results[0])


def test_pairs_without_labels_learn_from_the_teacher(make_student, make_trainer, pairs, bert_tokenizer):
    """The loss of a mixed batch is the weighted mean of what each of its pairs gives alone."""
    unlabelled = pairs["validation"].select(range(8))
    mixed = mix_pairs(pairs["train"].select(range(8)), unlabelled, 0.5, 2.0)
    assert mixed["label"][8:] == [None] * 8 and mixed["weight"][:] == [0.5] * 8 + [2.0] * 8

    student = make_student(**NO_DROPOUT)
    with torch.no_grad():
        logits = logits_of(student, bert_tokenizer, mixed)[:, 0].tolist()
    losses = []
    for row, logit in zip(mixed, logits, strict=True):
        score = (logit - row["teacher_logits"][0]) ** 2
        is_labelled = row["label"] is not None
        losses.append(row["weight"] * (0.7 * (logit - row["label"]) ** 2 + 0.3 * score if is_labelled else score))
    fields = {**PLAIN_SGD, "max_steps": 1, "per_device_train_batch_size": 16, "calibrate_similarity": False}
    trainer = make_trainer(student, mixed, distillation_alpha=0.3, **fields)
    assert trainer.train().training_loss == pytest.approx(np.mean(losses), rel=1e-4)


def test_mixed_pairs_calibrate_the_head(make_student, make_trainer, pairs):
    mixed = mix_pairs(pairs["train"].remove_columns("teacher_logits"), pairs["validation"])
    trainer = make_trainer(make_student(), mixed, distillation_alpha=0.0)
    trainer.calibrate_similarity()
    assert torch.isfinite(trainer.model.similarity.scale).all() and trainer.model.similarity.bias.item() != 0.0


def test_a_ranking_loss_is_added(make_student, make_trainer, pairs):
    losses = []
    for weight in (0.0, 0.5):
        fields = {**PLAIN_SGD, "max_steps": 1, "ranking_weight": weight}
        losses.append(make_trainer(make_student(**NO_DROPOUT), pairs["train"], **fields).train().training_loss)
    assert losses[1] > losses[0] + 0.1


def test_similarities_of_a_bi_encoder_are_kept(make_student, make_trainer, bert_tokenizer, pairs):
    """From the same start, towards the same scores: with the loss, other sentences stay where the encoder has them."""
    # Rows of single tokens, by which such tiny models tell texts apart.
    encoder = make_student(seed=1, linformer_init="strided").dse
    train = embed_pairs(encoder, pairs["train"], processing_class=bert_tokenizer, show_progress=False)
    target = torch.tensor(train["embeddings"][:])
    assert target.shape == (len(train), 2, encoder.config.projection_dim)
    vectors = encode(encoder, bert_tokenizer, train["sentence2"][:], show_progress=False)
    torch.testing.assert_close(target[:, 1], torch.from_numpy(vectors), rtol=0, atol=1e-5)
    drift = {}
    for weight in (0.0, 50.0):
        student = make_student(linformer_init="strided", **NO_DROPOUT)
        trainer = make_trainer(student, train, similarity_weight=weight, learning_rate=5e-3, num_train_epochs=5)
        trainer.train()
        embedded = embed_pairs(student.dse, train, processing_class=bert_tokenizer, show_progress=False)
        drift[weight] = similarity_loss(torch.tensor(embedded["embeddings"][:]), target).item()
    assert drift[50.0] < 0.5 * drift[0.0]
    with pytest.raises(ValueError, match="no column 'embeddings'.*`--bi_encoder_name_or_path`"):
        make_trainer(make_student(), pairs["train"], similarity_weight=1.0)


@pytest.mark.parametrize(
    ("missing", "alpha", "message"),
    [
        ("label", 0.5, "no column 'label', only sentence1, sentence2, teacher_logits.*`distillation_alpha=1`"),
        ("label", 0.0, "no column 'label'"),
        ("teacher_logits", 0.5, "no column 'teacher_logits', only .*`hf-dse score`.*`distillation_alpha=0`"),
        ("teacher_logits", 1.0, "no column 'teacher_logits'"),
    ],
)
def test_missing_targets_are_named(missing, alpha, message, make_student, make_trainer, pairs):
    with pytest.raises(ValueError, match=message):
        make_trainer(make_student(), pairs["train"].remove_columns(missing), distillation_alpha=alpha)


def test_a_teacher_with_other_labels_is_refused(make_student, make_trainer, problem_pairs):
    with pytest.raises(ValueError, match="teacher has 3 logits per pair and the student 1"):
        make_trainer(make_student(), problem_pairs("regression", num_logits=3))
    with pytest.raises(ValueError, match="teacher has 1 logits per pair and the student 3"):
        make_trainer(make_student(**PROBLEMS["three"][0]), problem_pairs("three", num_logits=1))
    # Not asked, the teacher may have any labels.
    trainer = make_trainer(make_student(), problem_pairs("regression", num_logits=3), distillation_alpha=0.0)
    trainer.args.max_steps = 1
    assert math.isfinite(trainer.train().training_loss)


@pytest.mark.parametrize("label", [3, -1, 0.5])
def test_labels_that_are_no_classes_are_refused(label, make_student, make_trainer, problem_pairs):
    pairs = problem_pairs("three")
    labels = [*pairs["label"][:-1], label]
    pairs = pairs.remove_columns("label").add_column("label", [float(value) for value in labels])
    message = f"training pair {len(labels) - 1} is {float(label)}, and the student has the classes 0 to 2"
    with pytest.raises(ValueError, match=message):
        make_trainer(make_student(**PROBLEMS["three"][0]), pairs, distillation_alpha=0.0)


def test_a_tokenizer_or_a_collator_is_needed(tmp_path, make_student, bert_tokenizer, pairs):
    arguments = DseTrainingArguments(str(tmp_path), **TINY_RUN, max_steps=1, train_sampling_strategy="random")
    with pytest.raises(ValueError, match="`DseTrainer` needs `processing_class`"):
        DseTrainer(make_student(), arguments, pairs["train"])
    collator = PairCollator(bert_tokenizer, MAX_LENGTH)
    assert DseTrainer(make_student(), arguments, pairs["train"], data_collator=collator).train().global_step == 1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"distillation_alpha": 1.5}, "`distillation_alpha` must be between 0 .* got 1.5"),
        ({"head_learning_rate": -1e-3}, "`head_learning_rate` must not be negative, got -0.001"),
        ({"scale_learning_rate": -1.0}, "`scale_learning_rate` must not be negative, got -1.0"),
        ({"remove_unused_columns": True}, "`remove_unused_columns` must be false"),
        ({"label_smoothing_factor": 0.1}, "`label_smoothing_factor` is 0.1, and these losses smooth no labels"),
        ({"label_names": ["score"]}, r"`label_names` is \['score'\], and these trainers have 'labels'"),
        ({"use_liger_kernel": True}, "`use_liger_kernel` is true, and Liger has no kernels for students"),
        ({"dataloader_persistent_workers": True}, "and there are none: pass `dataloader_num_workers` too"),
        ({"dataloader_num_workers": -1}, "dataloader_num_workers=-1: it has to be at least 0"),
        ({"accelerator_config": {"dispatch_batches": True}}, "cuts a batch at its number of rows"),
        # What the optimizer does not take.
        ({"optim": "sgd", "optim_args": "momentum"}, "`optim='sgd'` and `optim_args='momentum'` cannot be made"),
        ({"optim": "sgd", "optim_args": "momentum=-1"}, "cannot be made: Invalid momentum value: -1.0"),
        ({"adam_beta1": 1.5}, "cannot be made: Invalid beta parameter at index 0: 1.5"),
        # What divides a model among devices.
        ({"fsdp": "full_shard"}, "`fsdp` is set, and these trainers do not divide a model.*with torchrun"),
        ({"deepspeed": "zero.json"}, "`deepspeed` is set, and these trainers do not divide a model"),
    ],
)
def test_arguments_out_of_range_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        DseTrainingArguments("unused", **TINY_RUN, **fields)


def test_parallel_tensors_are_refused():
    # Not in the oldest versions of accelerate.
    parallelism = pytest.importorskip("accelerate.parallelism_config")
    with pytest.raises(ValueError, match="`parallelism_config` is set, and these trainers do not divide a model"):
        DseTrainingArguments("unused", **TINY_RUN, parallelism_config=parallelism.ParallelismConfig(tp_size=2))


@pytest.mark.parametrize("variable", SHARDING.values())
def test_a_launcher_that_divides_the_model_is_refused(variable, monkeypatch):
    DseTrainingArguments("unused", **TINY_RUN, fsdp=False)
    monkeypatch.setenv(variable, "true")
    with pytest.raises(ValueError, match=f"{variable}, as by `accelerate launch`, is set.*with torchrun"):
        DseTrainingArguments("unused", **TINY_RUN)


@pytest.mark.parametrize(("name", "package"), [("lomo", "lomo_optim"), ("galore_adamw", "galore_torch")])
def test_an_optimizer_whose_package_is_missing_is_refused(name, package):
    if importlib.util.find_spec(package):
        pytest.skip(f"{package} is installed")
    with pytest.raises(ImportError, match=f"need to install `{package}`"):
        DseTrainingArguments("unused", **TINY_RUN, optim=name, optim_target_modules="query")


# What is set, and eval_strategy, save_strategy and load_best_model_at_end with and without an `eval_dataset`
STRATEGIES = [
    ({}, ("epoch", "epoch", True), ("no", "steps", False)),
    ({"eval_strategy": "no"}, ("no", "steps", False), ("no", "steps", False)),
    ({"save_strategy": "no"}, ("epoch", "no", False), ("no", "no", False)),
    ({"save_strategy": "epoch"}, ("epoch", "epoch", True), ("no", "epoch", False)),
    ({"load_best_model_at_end": False}, ("epoch", "epoch", False), ("no", "steps", False)),
    ({"eval_strategy": "steps", "eval_steps": 100}, ("steps", "steps", True), None),
    # The default of `save_steps` is 500.
    ({"eval_strategy": "steps", "eval_steps": 300}, ("steps", "steps", False), None),
    ({"eval_strategy": "steps", "save_strategy": "epoch"}, ("steps", "epoch", False), None),
    ({"eval_strategy": "epoch", "save_strategy": "best"}, ("epoch", "best", True), None),
    ({"load_best_model_at_end": True, "save_strategy": "steps"}, ("steps", "steps", True), ValueError),
]


@pytest.mark.parametrize(("chosen", "with_data", "without_data"), STRATEGIES)
def test_evaluation_and_saving_follow_the_data(chosen, with_data, without_data, make_student, pairs, bert_tokenizer):
    """Twice with the same arguments: what a trainer filled in is not taken for a choice of the user."""
    args = DseTrainingArguments("unused", max_length=MAX_LENGTH, use_cpu=True, report_to="none", **chosen)
    for evaluate, expected in (
        (pairs["validation"], with_data),
        (None, without_data),
        (pairs["validation"], with_data),
    ):
        parts = {"train_dataset": pairs["train"], "eval_dataset": evaluate, "processing_class": bert_tokenizer}
        if evaluate is None and not isinstance(expected, tuple):
            # What was chosen is never changed.
            with pytest.raises(ValueError, match="pass an `eval_dataset`|there is no `eval_dataset`"):
                DseTrainer(make_student(), args, **parts)
            continue
        trained = DseTrainer(make_student(), args, **parts).args
        assert (trained.eval_strategy, trained.save_strategy, trained.load_best_model_at_end) == expected
        assert trained.metric_for_best_model == ("loss" if expected[2] else None)


def test_the_best_epoch_is_kept_by_default(make_student, pairs, bert_tokenizer, tmp_path):
    args = DseTrainingArguments(
        str(tmp_path), max_length=MAX_LENGTH, num_train_epochs=2, metric_for_best_model="spearman", use_cpu=True
    )
    trainer = DseTrainer(
        make_student(),
        args,
        pairs["train"],
        pairs["validation"],
        bert_tokenizer,
        compute_metrics=compute_metrics_for("stsb"),
    )
    trainer.train()
    scores = [entry["eval_spearman"] for entry in trainer.state.log_history if "eval_spearman" in entry]
    assert len(scores) == 2 and trainer.state.best_metric == max(scores)
    assert trainer.evaluate()["eval_spearman"] == pytest.approx(max(scores))


def test_saved_arguments_stay_open():
    """Copies of arguments decide anew; `--load_best_model_at_end` needs no value on the command line."""
    args = DseTrainingArguments("unused", use_cpu=True)
    assert replace(args, learning_rate=1e-3).eval_strategy is None and args.to_dict()["save_strategy"] is None
    assert pickle.loads(pickle.dumps(args)).load_best_model_at_end is None
    (parsed,) = parse_args(["--output_dir", "unused", "--load_best_model_at_end"], DseTrainingArguments)
    assert parsed.load_best_model_at_end is True and parsed.eval_strategy is None
    with pytest.raises(ValueError, match="requires the save and eval strategy to match"):
        DseTrainingArguments("unused", use_cpu=True, load_best_model_at_end=True, save_strategy="no")


@pytest.mark.parametrize("similarity", ["cosine", "dot", "mlp"])
@pytest.mark.parametrize("head_rate", [None, 2e-3])
def test_new_parameters_have_learning_rates_of_their_own(similarity, head_rate, make_student, make_trainer, pairs):
    student = make_student(similarity=similarity, projection_dim=8, linformer_sharing="headwise")
    fields = {"learning_rate": 1e-4, "head_learning_rate": head_rate, "scale_learning_rate": 1e-2, "max_steps": 2}
    trainer = make_trainer(student, pairs["train"], **fields)
    optimizer = trainer.create_optimizer()
    groups = {id(weight): group for group in optimizer.param_groups for weight in group["params"]}
    decaying = trainer.get_decay_parameter_names(student)
    assert len(groups) == len(list(student.parameters()))
    for name, weight in student.named_parameters():
        is_new = re.search(NEW_PARAMETERS, name) is not None
        expected = head_rate if is_new and head_rate is not None else 1e-4
        # Only a cosine is bounded, so that its scale has to move.
        if similarity == "cosine" and name in ("similarity.scale", "similarity.bias"):
            expected = 1e-2
        assert groups[id(weight)]["lr"] == expected, name
        assert groups[id(weight)]["weight_decay"] == (0.01 if name in decaying else 0.0), name
    # Asked again it is the same optimizer with the same groups.
    num_groups = len(optimizer.param_groups)
    assert trainer.create_optimizer() is optimizer
    assert len(optimizer.param_groups) == num_groups
    trainer.train()
    rates = {1e-4, head_rate or 1e-4} | ({1e-2} if similarity == "cosine" else set())
    assert {group["initial_lr"] for group in trainer.optimizer.param_groups} == rates


def test_a_head_learning_rate_of_zero_freezes_what_is_new(make_student, make_trainer, pairs):
    student = make_student()
    start = weights(student)
    fields = {"learning_rate": 1e-3, "head_learning_rate": 0.0, "calibrate_similarity": False, "max_steps": 2}
    fields["scale_learning_rate"] = 0.0
    make_trainer(student, pairs["train"], **fields).train()
    for name, value in student.state_dict().items():
        if re.search(NEW_PARAMETERS, name):
            assert torch.equal(value, start[name]), name
    assert not torch.equal(
        student.dse.encoder.layer[0].output.dense.weight, start["dse.encoder.layer.0.output.dense.weight"]
    )


def expected_targets(problem, alpha, train, num_labels):
    """What the head is fitted to: logits of the teacher, and gold classes as logits of -2 and 2."""
    labels = np.asarray(train["label"])
    if problem == "regression":
        gold = labels[:, None]
    elif problem == "binary":
        gold = np.where(labels == 1, 2.0, -2.0)[:, None]
    else:
        gold = np.where(np.arange(num_labels) == labels[:, None], 2.0, -2.0)
    teacher = np.asarray(train["teacher_logits"])
    if teacher.shape[1] == 2:
        teacher = teacher[:, 1:] - teacher[:, :1]
    return (1 - alpha) * gold + alpha * teacher


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize(
    ("problem", "num_logits", "alpha"),
    [("regression", 1, 0.0), ("regression", 1, 1.0), ("binary", 2, 0.5), ("three", 3, 0.5)],
)
def test_the_head_starts_from_least_squares(
    problem, num_logits, alpha, similarity, make_student, make_trainer, problem_pairs, bert_tokenizer
):
    train = problem_pairs(problem, num_logits)
    student = make_student(**PROBLEMS[problem][0], similarity=similarity)
    trainer = make_trainer(student, train, distillation_alpha=alpha)
    values = logits_of(student, bert_tokenizer, train)[:, -1].double().numpy()
    student.train()
    trainer.calibrate_similarity()
    assert student.training
    targets = expected_targets(problem, alpha, train, student.config.num_labels)
    for label in range(student.config.num_labels):
        slope, intercept = np.polyfit(values, targets[:, label], 1)
        least = 0.25 * targets[:, label].std() / values.std()
        if student.config.num_labels == 1 and slope < least:  # random weights know little of the targets
            slope, intercept = least, targets[:, label].mean() - least * values.mean()
        assert student.similarity.scale[label].item() == pytest.approx(slope, rel=1e-2)
        assert student.similarity.bias[label].item() == pytest.approx(intercept, rel=1e-2)
    # It lowers the error of a head that knows nothing of the targets, and is stable when done again.
    fitted = weights(student)
    trainer.calibrate_similarity()
    assert all(torch.equal(fitted[name], value) for name, value in student.state_dict().items())


@pytest.mark.parametrize("sign", [1.0, 0.0, -1.0])
def test_similarities_that_say_nothing_get_a_scale_above_0(make_student, make_trainer, pairs, bert_tokenizer, sign):
    student = make_student()
    train = pairs["train"]
    values = logits_of(student, bert_tokenizer, train)[:, -1].double().numpy()
    noise = np.random.default_rng(0).normal(size=len(train))
    labels = sign * (values - values.mean()) / values.std() + noise * (sign == 0.0)
    train = train.remove_columns("label").add_column("label", labels.tolist())
    make_trainer(student, train, distillation_alpha=0.0).calibrate_similarity()
    scale, bias = student.similarity.scale.item(), student.similarity.bias.item()
    expected = max(np.polyfit(values, labels, 1)[0], 0.25 * labels.std() / values.std())
    assert scale == pytest.approx(expected, rel=1e-2)
    assert scale * values.mean() + bias == pytest.approx(labels.mean(), abs=1e-2)


def test_training_calibrates_first_unless_told_not_to(make_student, make_trainer, pairs):
    for calibrate in (True, False):
        student = make_student()
        fields = {"calibrate_similarity": calibrate, "learning_rate": 0.0, "scale_learning_rate": 0.0, "max_steps": 1}
        make_trainer(student, pairs["train"], **fields).train()
        untouched = bool(student.similarity.scale == 1.0) and bool(student.similarity.bias == 0.0)
        assert untouched is not calibrate


def test_a_trained_head_and_an_mlp_head_are_left_alone(make_student, make_trainer, pairs):
    trained = make_student()
    with torch.no_grad():
        trained.similarity.scale.fill_(4.0)
        trained.similarity.bias.fill_(0.5)
    for student in (trained, make_student(similarity="mlp")):
        start = weights(student)
        make_trainer(student, pairs["train"]).calibrate_similarity()
        assert all(torch.equal(start[name], value) for name, value in student.state_dict().items())


def test_a_head_of_a_ranking_stage_without_a_teacher_is_calibrated(make_student, make_trainer, pairs):
    """It has a scale and no bias, and its logits are no labels."""
    students = [make_student(), make_student()]
    students[1].load_state_dict(students[0].state_dict())
    with torch.no_grad():
        students[1].similarity.scale.fill_(20.0)
    for student in students:
        make_trainer(student, pairs["train"]).calibrate_similarity()
    for name, value in students[0].similarity.state_dict().items():
        assert torch.allclose(students[1].similarity.state_dict()[name], value, rtol=1e-4, atol=1e-5), name


def test_evaluation_pairs_without_a_label_are_named(make_student, make_trainer, pairs):
    labels = pairs["validation"]["label"][:]
    some = pairs["validation"].remove_columns("label").add_column("label", [*labels[:3], None, *labels[4:]])
    with pytest.raises(ValueError, match="Evaluation pair 3 has no label, and the evaluation compares with labels"):
        make_trainer(make_student(), pairs["train"], some)


def test_calibration_looks_at_a_sample_only(make_student, make_trainer, pairs, monkeypatch):
    monkeypatch.setattr("hf_dse.training.pair_trainer.CALIBRATION_PAIRS", 20)
    student = make_student()
    seen = []
    student.register_forward_pre_hook(
        lambda module, args, inputs: seen.append(len(inputs["input_ids"])), with_kwargs=True
    )
    make_trainer(student, pairs["train"], per_device_eval_batch_size=8).calibrate_similarity()
    assert seen == [8, 8, 4]


def test_damaged_weights_are_no_start(make_student, make_trainer, pairs):
    student = make_student()
    with torch.no_grad():
        student.dse.encoder.layer[0].output.dense.weight.fill_(torch.nan)
    with pytest.raises(ValueError, match="similarities of the untrained student are not finite.*weights are damaged"):
        make_trainer(student, pairs["train"]).train()


DIVERGING = {"learning_rate": 1e30, "max_grad_norm": 0.0, "warmup_steps": 0, "max_steps": 4}


@pytest.mark.parametrize("logging_steps", [1, 50])
def test_a_nan_or_infinite_loss_stops_the_training(logging_steps, make_student, make_trainer, pairs):
    # Also where the training ends before the first line of the log.
    trainer = make_trainer(make_student(), pairs["train"], **DIVERGING, logging_steps=logging_steps)
    with pytest.raises(ValueError, match=r"The training diverged: (train_)?loss is .*Lower `learning_rate`"):
        trainer.train()


def collapse(student):
    """All sentences get the same embedding."""
    with torch.no_grad():
        student.dse.encoder.layer[-1].output.LayerNorm.weight.zero_()
        student.dse.encoder.layer[-1].output.LayerNorm.bias.fill_(1.0)
    return student


def test_constant_predictions_are_an_error(make_student, make_trainer, pairs):
    metrics = compute_metrics_for("regression", 1)
    fields = {"eval_strategy": "epoch", "num_train_epochs": 1, "learning_rate": 0.0, "compute_metrics": metrics}
    trainer = make_trainer(collapse(make_student()), pairs["train"], pairs["validation"], **fields)
    with pytest.raises(ValueError, match="(?i)constant predictions"):
        trainer.train()


def test_evaluation_is_about_labels(make_student, make_trainer, pairs, bert_tokenizer):
    student = make_student(num_hidden_layers=1)
    trainer = make_trainer(
        student, evaluate=pairs["validation"], distillation_alpha=1.0, compute_metrics=compute_metrics_for("stsb")
    )
    metrics = trainer.evaluate()
    logits = logits_of(student, bert_tokenizer, pairs["validation"])[:, 0]
    labels = torch.tensor(pairs["validation"]["label"])
    assert metrics["eval_loss"] == pytest.approx((logits - labels).square().mean().item(), rel=1e-4)
    assert metrics["eval_pearson"] == pytest.approx(np.corrcoef(logits, labels)[0, 1], abs=1e-5)


def test_predictions_are_logits_alone(make_student, make_trainer, pairs, bert_tokenizer, tmp_path):
    """The embeddings of an evaluation set would fill the memory."""
    student = make_student()
    predictions = make_trainer(student).predict(pairs["validation"]).predictions
    assert predictions.shape == (len(pairs["validation"]), 1)
    stock = Trainer(
        student,
        TrainingArguments(str(tmp_path), report_to="none", use_cpu=True, disable_tqdm=True),
        data_collator=PairCollator(bert_tokenizer, MAX_LENGTH),
    )
    stock.args.remove_unused_columns = False
    rows = pairs["validation"].select_columns(["sentence1", "sentence2", "label"])
    np.testing.assert_allclose(stock.predict(rows).predictions, predictions, atol=1e-5)


def test_several_evaluation_sets(make_student, make_trainer, pairs):
    parts = {"near": pairs["validation"], "far": pairs["test"].remove_columns("teacher_logits")}
    trainer = make_trainer(
        make_student(),
        pairs["train"],
        parts,
        compute_metrics=compute_metrics_for("stsb"),
        max_steps=2,
        eval_strategy="steps",
        save_strategy="steps",
        eval_steps=1,
        save_steps=1,
        load_best_model_at_end=True,
        metric_for_best_model="far_pearson",
        greater_is_better=True,
    )
    trainer.train()
    # The caller's datasets stay as they are.
    assert "length" not in parts["near"].column_names
    scores = [entry["eval_far_pearson"] for entry in trainer.state.log_history if "eval_far_pearson" in entry]
    assert len(scores) == 2
    assert trainer.state.best_metric == max(scores)
    assert "eval_near_spearman" in trainer.evaluate()


def test_of_several_evaluation_sets_the_first_tells_the_best(make_student, pairs, bert_tokenizer, tmp_path):
    args = DseTrainingArguments(str(tmp_path), max_length=MAX_LENGTH, num_train_epochs=2, use_cpu=True)
    parts = {"near": pairs["validation"], "far": pairs["test"]}
    trainer = DseTrainer(make_student(), args, pairs["train"], parts, bert_tokenizer)
    trainer.train()
    losses = [entry["eval_near_loss"] for entry in trainer.state.log_history if "eval_near_loss" in entry]
    assert len(losses) == 2 and trainer.state.best_metric == min(losses)


def test_without_labels_the_last_model_is_kept(make_student, pairs, bert_tokenizer, tmp_path):
    options = {"max_length": MAX_LENGTH, "num_train_epochs": 1, "use_cpu": True}
    bare = pairs["validation"].remove_columns("label")
    for part in (bare, {"bare": bare}):
        args = DseTrainingArguments(str(tmp_path), **options)
        trainer = DseTrainer(make_student(), args, pairs["train"], part, bert_tokenizer)
        trainer.train()
        assert trainer.state.best_model_checkpoint is None and (tmp_path / "checkpoint-2").is_dir()
    args = DseTrainingArguments(str(tmp_path), load_best_model_at_end=True, **options)
    with pytest.raises(ValueError, match="has no labels, so an evaluation has no loss to compare models by"):
        DseTrainer(make_student(), args, pairs["train"], bare, bert_tokenizer)


def test_predictions_need_no_labels(make_student, make_trainer, pairs, bert_tokenizer):
    student = make_student()
    trainer = make_trainer(student)
    expected = logits_of(student, bert_tokenizer, pairs["test"]).numpy()
    for absent in (["label"], ["label", "teacher_logits"], ["teacher_logits"]):
        predicted = trainer.predict(pairs["test"].remove_columns(absent)).predictions
        assert np.allclose(predicted, expected, atol=1e-5)


def test_batches_are_of_similar_length(make_student, make_trainer, pairs, bert_tokenizer):
    trainer = make_trainer(make_student(), pairs["train"], per_device_train_batch_size=4)
    part = trainer.train_dataset
    for first, second, length in zip(part["sentence1"], part["sentence2"], part["length"], strict=True):
        sizes = [len(ids) for ids in bert_tokenizer([first, second])["input_ids"]]
        assert length == min(max(sizes), MAX_LENGTH)
    assert "length" not in pairs["train"].column_names
    own = pairs["train"].add_column("length", list(range(32)))
    assert make_trainer(make_student(), own).train_dataset["length"][:] == list(range(32))

    def spread(trainer):
        batches = [batch["attention_mask"].sum(dim=-1).amax(dim=-1) for batch in trainer.get_train_dataloader()]
        return np.mean([(batch.max() - batch.min()).item() for batch in batches])

    random = make_trainer(
        make_student(), pairs["train"], per_device_train_batch_size=4, train_sampling_strategy="random"
    )
    assert spread(trainer) < 0.8 * spread(random)


def test_the_order_of_pairs_depends_on_seed_and_epoch_alone(make_student, make_trainer, pairs):
    def order(epoch, **fields):
        sampler = make_trainer(make_student(), pairs["train"], **fields).get_train_dataloader().batch_sampler.sampler
        torch.rand(epoch + 1)
        # Sorting reads each length by itself, which a column of a data set is too slow for.
        assert isinstance(sampler.lengths, list)
        sampler.set_epoch(epoch)
        return list(sampler)

    assert sorted(order(0)) == list(range(32))
    assert order(0) == order(0)
    assert order(0) != order(1)
    assert order(0) != order(0, seed=1)
    assert order(1) != order(0, seed=43)
    assert order(0, data_seed=42) == order(0, data_seed=42, seed=1)


def correlation(student, tokenizer, part):
    return np.corrcoef(logits_of(student, tokenizer, part)[:, 0], np.ravel(part["teacher_logits"]))[0, 1]


def test_a_student_learns_from_its_teacher(make_student, make_trainer, pairs, bert_tokenizer):
    student = make_student(linformer_sharing="headwise", linformer_init="strided", **NO_DROPOUT)
    train = pairs["train"].remove_columns("label")
    before = correlation(student, bert_tokenizer, train)
    start = weights(student)
    fields = {"learning_rate": 5e-3, "num_train_epochs": 15, "weight_decay": 0.0}
    trainer = make_trainer(student, train, distillation_alpha=1.0, **fields)
    trainer.train()
    assert before < 0.6
    assert correlation(student, bert_tokenizer, train) > 0.9
    # E and F of every layer had their part in it.
    learned = [name for name in start if "linformer." in name]
    assert len(learned) == 4
    for name in learned:
        assert (student.state_dict()[name] - start[name]).abs().max() > 1e-3, name


@pytest.mark.parametrize("problem", ["binary", "three"])
def test_a_student_learns_classes(problem, make_student, make_trainer, problem_pairs, bert_tokenizer):
    student = make_student(**PROBLEMS[problem][0], similarity="mlp", similarity_hidden_size=32, **NO_DROPOUT)
    train = problem_pairs(problem)
    fields = {"learning_rate": 5e-3, "num_train_epochs": 15, "distillation_alpha": 0.0}
    make_trainer(student, train, **fields).train()
    logits = logits_of(student, bert_tokenizer, train)
    predictions = (logits[:, 0] > 0).long() if problem == "binary" else logits.argmax(dim=1)
    assert (predictions == torch.tensor(train["label"])).float().mean() > 0.9


def test_bf16(make_student, make_trainer, pairs):
    student = make_student()
    start = weights(student)
    trainer = make_trainer(student, pairs["train"], bf16=True, max_steps=2, learning_rate=1e-3)
    dtypes = []
    student.dse.encoder.layer[0].output.dense.register_forward_hook(lambda *call: dtypes.append(call[2].dtype))
    assert math.isfinite(trainer.train().training_loss)
    assert torch.bfloat16 in dtypes
    assert all(value.dtype == torch.float32 and value.isfinite().all() for value in student.state_dict().values())
    assert not torch.equal(student.similarity.bias, start["similarity.bias"])


def test_the_saved_model_is_complete(tmp_path, make_student, make_trainer, pairs):
    trainer = make_trainer(make_student(), pairs["train"])
    trainer.save_model(str(tmp_path / "saved"))
    names = {path.name for path in (tmp_path / "saved").iterdir()}
    assert {"config.json", "model.safetensors", "modeling_dse.py", "tokenizer.json"} <= names
