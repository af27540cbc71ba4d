# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""DseTrainer on tiny students and embedded pairs: what it computes, resumes, refuses, and that students learn."""

import math
import re

import numpy as np
import pytest
import torch
from datasets import ClassLabel, Dataset
from safetensors.torch import load_file
from trainings import (
    NO_DROPOUT,
    PLAIN_SGD,
    TINY_RUN,
    assert_accumulation_changes_nothing,
    assert_resumes,
    logged,
    weights,
)
from transformers import AutoConfig, AutoModelForSequenceClassification

from hf_dse import (
    DataArguments,
    DseTrainer,
    DseTrainingArguments,
    PairCollator,
    compute_metrics_for,
    load_pairs,
)


LEARNED = {"linformer_projection": "learned", "linformer_sharing": "headwise"}
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


def with_column(part, name, values):
    part = part.remove_columns(name) if name in part.column_names else part
    return part.add_column(name, values)


def add_scores(part, num_logits=1):
    """A teacher whose score is how many words two sentences share, from 0 to 5."""
    scores = [5 * share_of_words(row) for row in part]
    return with_column(part, "teacher_logits", [[score * (i + 1) - i for i in range(num_logits)] for score in scores])


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
        train = with_column(pairs["train"], "label", [to_label(label) for label in pairs["train"]["label"]])
        return add_scores(train, num_logits or fields["num_labels"])

    return make


@pytest.fixture
def make_trainer(tmp_path, bert_tokenizer):
    def make(student, train=None, evaluate=None, compute_metrics=None, **fields):
        args = DseTrainingArguments(**{"output_dir": str(tmp_path / "run"), **TINY_RUN, **fields})
        return DseTrainer(student, args, train, evaluate, bert_tokenizer, compute_metrics=compute_metrics)

    return make


def logits_of(student, tokenizer, part):
    collator = PairCollator(tokenizer, 32)
    batch = collator([{"sentence1": row["sentence1"], "sentence2": row["sentence2"]} for row in part])
    with torch.no_grad():
        return student.eval()(**batch).logits


# The computation of a step


@pytest.mark.parametrize("problem", PROBLEMS)
def test_accumulated_gradients_are_those_of_one_batch(problem, make_student, make_trainer, problem_pairs):
    def make(batches):
        student = make_student(**PROBLEMS[problem][0], **NO_DROPOUT)
        return make_trainer(student, problem_pairs(problem), **PLAIN_SGD, **batches)

    assert_accumulation_changes_nothing(make)


def test_a_step_pads_the_shorter_half_of_the_sentences_alone(make_student, make_trainer, bert_tokenizer):
    """A long sentence beside a short one: fewer tokens are read, and the gradient is that of all padded alike."""
    rows = [{"sentence1": "A cat", "sentence2": "A cat sat on the mat and slept", "teacher_logits": [1.0]}] * 2
    rows += [{"sentence1": "It rains on the town today", "sentence2": "Rain", "teacher_logits": [2.0]}]
    trainer = make_trainer(make_student(**NO_DROPOUT), Dataset.from_list(rows), distillation_alpha=1.0)
    student = trainer.model.train()
    batch = PairCollator(bert_tokenizer, 32)(rows)
    read = []
    hook = student.dse.encoder.register_forward_pre_hook(
        lambda _, args, given: read.append(given["input_ids"].shape[-1]), with_kwargs=True
    )

    def gradients(loss):
        student.zero_grad()
        loss.backward()
        return {name: part.grad.clone() for name, part in student.named_parameters() if part.grad is not None}

    found = gradients(trainer.compute_loss(student, dict(batch)))
    hook.remove()
    targets = batch.pop("teacher_logits")
    expected = gradients(trainer.pair_loss(student(**batch).logits, None, targets))
    shorter, longer = read
    assert shorter < longer == batch["input_ids"].shape[-1]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def test_evaluation_is_about_labels(make_student, make_trainer, pairs, bert_tokenizer):
    student = make_student(num_hidden_layers=1)
    options = {"distillation_alpha": 1.0, "compute_metrics": compute_metrics_for("regression", 1)}
    trainer = make_trainer(student, evaluate=pairs["validation"], **options)
    metrics = trainer.evaluate()
    logits = logits_of(student, bert_tokenizer, pairs["validation"])[:, 0]
    labels = torch.tensor(pairs["validation"]["label"])
    assert metrics["eval_loss"] == pytest.approx((logits - labels).square().mean().item(), rel=1e-4)
    assert metrics["eval_pearson"] == pytest.approx(np.corrcoef(logits, labels)[0, 1], abs=1e-5)
    # Predictions are logits alone, in the order of the rows; labels are not needed.
    predicted = trainer.predict(pairs["test"].remove_columns("label")).predictions
    np.testing.assert_allclose(predicted, logits_of(student, bert_tokenizer, pairs["test"]).numpy(), atol=1e-5)


def test_a_student_learns_from_its_teacher(make_student, make_trainer, pairs, bert_tokenizer):
    student = make_student(**LEARNED, linformer_init="strided", **NO_DROPOUT)
    train, start = pairs["train"].remove_columns("label"), weights(student)
    fields = {"learning_rate": 5e-3, "num_train_epochs": 15, "weight_decay": 0.0, "distillation_alpha": 1.0}
    make_trainer(student, train, **fields).train()
    logits = logits_of(student, bert_tokenizer, train)[:, 0]
    assert np.corrcoef(logits, np.ravel(train["teacher_logits"]))[0, 1] > 0.9
    # E and F of every layer had their part in it.
    moved = [(student.state_dict()[name] - start[name]).abs().max() for name in start if "linformer." in name]
    assert len(moved) == 4 and min(moved) > 1e-3


# The head


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_the_head_starts_from_least_squares(alpha, similarity, make_student, make_trainer, pairs, bert_tokenizer):
    train = pairs["train"]
    values = logits_of(make_student(similarity=similarity), bert_tokenizer, train)[:, 0].double().numpy()
    targets = np.array(train["label"]) if alpha == 0.0 else np.ravel(train["teacher_logits"])
    slope, intercept = np.polyfit(values, targets, 1)
    least = 0.25 * targets.std() / values.std()
    if slope < least:  # random weights know little of the targets
        slope, intercept = least, targets.mean() - least * values.mean()
    # A ranking stage without a teacher leaves a scale, whose logits are not labels.
    for start in (1.0, 20.0):
        student = make_student(similarity=similarity)
        student.similarity.calibrate(start, 0.0)
        trainer = make_trainer(student, train, distillation_alpha=alpha)
        student.train()
        trainer.calibrate_similarity()
        assert student.training
        assert student.similarity.scale.item() == pytest.approx(slope, rel=1e-2)
        assert student.similarity.bias.item() == pytest.approx(intercept, rel=1e-2)
    # A trained head is left alone.
    student.similarity.calibrate(2.0, 1.0)
    trainer.calibrate_similarity()
    assert (student.similarity.scale.item(), student.similarity.bias.item()) == (2.0, 1.0)


def test_a_frozen_head_is_refused_and_an_adapter_saves_what_is_fitted(make_student, make_trainer, pairs, tmp_path):
    peft = pytest.importorskip("peft")
    for saved in (None, ["similarity"]):
        config = peft.LoraConfig(task_type="SEQ_CLS", target_modules=["query"], modules_to_save=saved or ["pooler"])
        student = peft.get_peft_model(make_student(), config)
        trainer = make_trainer(student, pairs["train"], max_steps=1)
        if saved is None:
            # An adapter without it is saved without what is fitted, also where the head learns.
            for learns in (False, True):
                student.similarity.requires_grad_(learns)
                with pytest.raises(ValueError, match="similarity head of the student is frozen.*`modules_to_save="):
                    trainer.train()
    trainer.train()
    trainer.save_model(str(tmp_path / "adapter"))
    stored = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    scale = next(value for name, value in stored.items() if name.endswith("similarity.scale"))
    assert torch.equal(scale, student.similarity.scale) and scale.item() != 1.0
    # The head has its own learning rate in an adapter too.
    assert len({group["initial_lr"] for group in trainer.optimizer.param_groups}) == 2


@pytest.mark.parametrize(("similarity", "head_rate"), [("cosine", None), ("dot", 2e-3), ("mlp", 2e-3)])
def test_new_parameters_have_learning_rates_of_their_own(similarity, head_rate, make_student, make_trainer, pairs):
    student = make_student(similarity=similarity, projection_dim=8, **LEARNED)
    if similarity != "mlp":
        student.similarity.calibrate(5.0, 1.0)
    fields = {"learning_rate": 1e-4, "head_learning_rate": head_rate, "max_steps": 2}
    trainer = make_trainer(student, pairs["train"], **fields)
    groups = {id(weight): group for group in trainer.create_optimizer().param_groups for weight in group["params"]}
    assert len(groups) == len(list(student.parameters()))
    for name, weight in student.named_parameters():
        is_new = re.search(NEW_PARAMETERS, name) is not None
        expected = head_rate if is_new and head_rate is not None else 1e-4
        if similarity != "mlp" and name in ("similarity.scale", "similarity.bias"):
            expected = 2e-3 * 5.0
        assert groups[id(weight)]["lr"] == pytest.approx(expected), name


# Start, end and resume


def test_a_resumed_run_ends_where_a_straight_run_does(tmp_path, make_student, make_trainer, pairs):
    # Dropout, a schedule, batches by length and checkpoints amid the epochs: all that has to be restored.
    fields = {"num_train_epochs": 2, "learning_rate": 1e-3, "head_learning_rate": 2e-3}
    fields |= {"save_strategy": "steps", "save_steps": 2, "save_total_limit": None}
    make = lambda seed: make_trainer(make_student(seed=seed, **LEARNED), pairs["train"], **fields)  # noqa: E731
    straight, _ = assert_resumes(make, tmp_path / "run", (2, 6))
    assert straight.state.global_step == 8
    assert len({group["initial_lr"] for group in straight.optimizer.state_dict()["param_groups"]}) == 3


def test_a_checkpoint_is_a_whole_model_folder(tmp_path, make_student, make_trainer, pairs, bert_tokenizer):
    student = make_student()
    make_trainer(student, pairs["train"], max_steps=1, save_strategy="steps", save_steps=1).train()
    checkpoint = tmp_path / "run" / "checkpoint-1"
    names = {path.name for path in checkpoint.iterdir()}
    assert {"modeling_dse.py", "model.safetensors", "tokenizer.json", "modules.json"} <= names
    assert "training_args.bin" not in names
    loaded = AutoModelForSequenceClassification.from_pretrained(checkpoint)
    expected = logits_of(student, bert_tokenizer, pairs["test"])
    assert torch.equal(logits_of(loaded, bert_tokenizer, pairs["test"]), expected)


def test_the_best_epoch_is_kept_and_the_first_of_several_sets_tells_it(make_student, pairs, bert_tokenizer, tmp_path):
    options = {"max_length": 32, "num_train_epochs": 2, "use_cpu": True}
    parts = {"near": pairs["validation"], "far": pairs["test"]}
    args = DseTrainingArguments(str(tmp_path / "best"), **options)
    trainer = DseTrainer(make_student(), args, pairs["train"], parts, bert_tokenizer)
    trainer.train()
    losses = logged(trainer, "eval_near_loss")
    assert len(losses) == 2 and trainer.state.best_metric == min(losses)
    assert trainer.evaluate()["eval_near_loss"] == pytest.approx(min(losses))
    # Arguments belong to the caller, whose next trainer may have other data.
    assert args.eval_strategy is None and trainer.args.eval_strategy == "epoch"
    # Without labels the last model is kept.
    args = DseTrainingArguments(str(tmp_path / "bare"), **options)
    trainer = DseTrainer(make_student(), args, pairs["train"], pairs["validation"].remove_columns("label"),
                         bert_tokenizer)  # fmt: skip
    trainer.train()
    assert trainer.state.best_model_checkpoint is None and (tmp_path / "bare" / "checkpoint-4").is_dir()


def test_batches_of_similar_length_depend_on_seed_and_epoch(make_student, make_trainer, pairs, bert_tokenizer):
    # A column of this name is replaced.
    train = pairs["train"].add_column("length", ["long"] * 32)
    trainer = make_trainer(make_student(), train, per_device_train_batch_size=4)
    part = trainer.train_dataset
    for first, second, length in zip(part["sentence1"], part["sentence2"], part["length"], strict=True):
        sizes = [len(ids) for ids in bert_tokenizer([first, second])["input_ids"]]
        assert length == min(max(sizes), 32)

    def order(epoch, **fields):
        trainer = make_trainer(make_student(), train, **fields)
        torch.rand(epoch + 1)
        trainer.state.epoch = epoch
        return list(trainer.get_train_dataloader().batch_sampler.sampler)

    assert sorted(order(0)) == list(range(32))
    assert order(0) == order(0) != order(1)
    assert order(0) != order(0, seed=1)
    assert order(0, data_seed=42) == order(0, data_seed=42, seed=1)


# Models, tokenizers and data that are accepted, and others that are refused

TEXTS = ["the cat sat on the mat", "a dog ran", "the old house", "a new mat", "in the house", "cat and dog"]


def make_pairs(**columns):
    return Dataset.from_dict({"sentence1": TEXTS, "sentence2": TEXTS[::-1], **columns})


@pytest.fixture
def scored():
    return make_pairs(label=[0.0, 1.0, 2.0, 3.0, 4.0, 5.0], teacher_logits=[[float(row)] for row in range(6)])


@pytest.fixture
def args(tmp_path):
    return DseTrainingArguments(str(tmp_path / "run"), **{**TINY_RUN, "max_steps": 2})


def test_a_student_and_its_tokenizer_are_given(make_student, args, scored, bert_tokenizer):
    trainer = DseTrainer(make_student(), args, train_dataset=scored, processing_class=bert_tokenizer)
    # A saved model reads as much of a text as the training.
    assert trainer.processing_class.model_max_length == args.max_length == 32
    for given in ({"model": make_student()}, {"model": "a name", "processing_class": bert_tokenizer}):
        with pytest.raises(TypeError, match="needs a loaded student, .* and its tokenizer as `processing_class`"):
            DseTrainer(**given, args=args, train_dataset=scored)


def test_the_format_of_a_dataset_does_not_matter(make_student, args, scored, bert_tokenizer):
    results = []
    for rows in (scored, scored.with_format("torch")):
        trainer = DseTrainer(make_student(), args, rows, {"near": rows}, bert_tokenizer)
        torch.manual_seed(0)
        loss = trainer.train().training_loss
        results.append([loss, trainer.evaluate()["eval_near_loss"], trainer.evaluate(rows)["eval_loss"]])
        results[-1] += trainer.predict(rows).predictions.ravel().tolist()
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("problem", "columns", "row"),
    [
        ("regression", {"label": [0.0, math.inf] * 3}, 1),
        ("regression", {"label": [None, math.nan] * 3, "teacher_logits": [[1.0]] * 5 + [None]}, 5),
        ("regression", {"label": [1.0] * 6, "teacher_logits": [[1.0]] * 4 + [[math.inf]] * 2}, 4),
        # With one logit they would train with a negative cross-entropy.
        ("binary", {"label": [0, 1, 2] * 2}, 2),
        ("binary", {"label": [0.0, 1.5] * 3}, 1),
        ("three", {"label": [0, 1, 2, 3, 0, 1]}, 3),
        ("three", {"label": [0.0, 1.0, 1.5] * 2}, 2),
        ("three", {"label": [0, -1] * 3}, 1),
    ],
)
def test_a_pair_without_a_right_target_is_named(problem, columns, row, make_student, make_trainer):
    student, wrong = make_student(**PROBLEMS[problem][0]), make_pairs(**columns)
    with pytest.raises(
        ValueError, match=f"Row {row} of the training pairs has the label .*A label of this student is"
    ):
        make_trainer(student, wrong)
    with pytest.raises(ValueError, match="Row [0-5] of the evaluation pairs has the label"):
        make_trainer(student, evaluate=wrong)


def test_what_cannot_be_learned_from_is_named(make_student, make_trainer, scored):
    with pytest.raises(ValueError, match="labels of the pairs are texts, and have to be numbers: `dataset.class_enc"):
        make_trainer(make_student(), with_column(scored, "label", ["true", "false"] * 3))
    with pytest.raises(ValueError, match=r"needs the teacher's scores: add the column 'teacher_logits' \(`hf-dse"):
        make_trainer(make_student(), scored.remove_columns("teacher_logits")).train()
    with pytest.raises(ValueError, match="needs labels: add the column 'label', or pass 1"):
        make_trainer(make_student(), scored.remove_columns("label")).train()
    for rows in (scored.to_list(), scored.to_iterable_dataset()):
        with pytest.raises(TypeError, match=f"of the type {type(rows).__name__}, and have to be a `datasets.Dataset`"):
            make_trainer(make_student(), rows)


def test_scores_of_another_scale_are_put_on_that_of_the_labels(make_student, make_trainer, scored, warnings):
    raw = with_column(scored, "teacher_logits", [[1.6 * label - 4] for label in scored["label"]])
    assert make_trainer(make_student(), scored).train_dataset["teacher_logits"][:] == scored["teacher_logits"][:]
    assert make_trainer(make_student(), raw, distillation_alpha=1.0).train_dataset["teacher_logits"][0] == [-4.0]
    assert not warnings
    # Pairs without a label too, which learn from the scores alone.
    part = with_column(raw, "label", [0.0, 1.0, 2.0, 3.0, None, None])
    for rows, alpha in ((raw, 0.5), (part, 0.0)):
        found = make_trainer(make_student(), rows, distillation_alpha=alpha).train_dataset["teacher_logits"][:]
        np.testing.assert_allclose(found, scored["teacher_logits"][:], atol=1e-9)
    assert len(warnings) == 2 and "labels from 0 to 5, teacher's scores from -4 to 4; label = 0.625 x" in warnings[0]
    with pytest.raises(ValueError, match="All scores are equal, so there is nothing to learn from them"):
        make_trainer(make_student(), with_column(scored, "teacher_logits", [[-4.0]] * 6))


@pytest.mark.parametrize(("problem", "expected"), [("three", ["no", "maybe", "yes"]), ("binary", ["yes"])])
def test_the_student_has_the_names_of_the_classes(problem, expected, make_student, make_trainer, scored, tmp_path):
    names = ["no", "yes"] if problem == "binary" else expected
    pairs = with_column(scored, "label", [0, 1] * 3).remove_columns("teacher_logits")
    student = make_student(**PROBLEMS[problem][0])
    make_trainer(student, pairs.cast_column("label", ClassLabel(names=names)), distillation_alpha=0.0)
    student.save_pretrained(tmp_path / "student")
    config = AutoConfig.from_pretrained(tmp_path / "student")
    assert list(config.id2label.values()) == expected and config.num_labels == len(expected)
    # A trained student keeps its order.
    with pytest.raises(
        ValueError, match="one logit of the model is that of" if problem == "binary" else "The student's"
    ):
        make_trainer(student, pairs.cast_column("label", ClassLabel(names=names[::-1])), distillation_alpha=0.0)


def test_an_undefined_metric_is_announced_and_ends_no_training(
    make_student, pairs, bert_tokenizer, tmp_path, warnings
):
    equal = with_column(pairs["validation"], "label", [3.0] * 16)
    args = DseTrainingArguments(str(tmp_path), max_length=32, num_train_epochs=2, use_cpu=True,
                                metric_for_best_model="pearson")  # fmt: skip
    metrics = compute_metrics_for("regression", 1)
    for part in (equal, pairs["validation"].select([0])):
        warnings.clear()
        trainer = DseTrainer(make_student(), args, pairs["train"], part, bert_tokenizer, compute_metrics=metrics)
        assert trainer.train().global_step == 4
        assert any("no metrics but its loss: Constant" in message for message in warnings)
        assert len(logged(trainer, "eval_loss")) == 2
        assert not any(math.isfinite(value) for value in logged(trainer, "eval_pearson"))
