# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""DseTrainer on tiny students and embedded pairs: what it computes, resumes, refuses, and that students learn."""

import math
import re

import numpy as np
import pytest
import torch
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer, TrainingArguments

from hf_dse import (
    DataArguments,
    DseForSequenceClassification,
    DseModel,
    DseTrainer,
    DseTrainingArguments,
    PairCollator,
    compute_metrics_for,
    convert_encoder,
    encode,
    load_pairs,
    make_pair_model,
)
from hf_dse.training.losses import similarity_loss
from hf_dse.training.pair_trainer import infer_labels


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
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
# Clipped gradients would hide a wrong scale of the loss.
PLAIN_SGD = {
    "optim": "sgd",
    "learning_rate": 0.02,
    "lr_scheduler_type": "constant",
    "warmup_steps": 0,
    "max_grad_norm": 0.0,
    "max_steps": 2,
    "train_sampling_strategy": "sequential",
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


def same(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def logged(trainer, name):
    return [entry[name] for entry in trainer.state.log_history if name in entry]


def logits_of(student, tokenizer, part):
    collator = PairCollator(tokenizer, MAX_LENGTH)
    batch = collator([{"sentence1": row["sentence1"], "sentence2": row["sentence2"]} for row in part])
    with torch.no_grad():
        return student.eval()(**batch).logits


# What a step computes


@pytest.mark.parametrize("problem", PROBLEMS)
def test_accumulated_gradients_are_those_of_one_batch(problem, make_student, make_trainer, problem_pairs):
    results = []
    for size in (16, 4, 2):
        student = make_student(**PROBLEMS[problem][0], **NO_DROPOUT)
        start = weights(student)
        batches = {"per_device_train_batch_size": size, "gradient_accumulation_steps": 16 // size}
        trainer = make_trainer(student, problem_pairs(problem), **PLAIN_SGD, **batches)
        trainer.train()
        results.append((weights(student), logged(trainer, "loss"), logged(trainer, "grad_norm")))
    expected = results[0]
    assert max((expected[0][name] - start[name]).abs().max() for name in start if "similarity" not in name) > 2e-3
    for found in results[1:]:
        for name in start:
            torch.testing.assert_close(found[0][name], expected[0][name], rtol=1e-4, atol=1e-5, msg=name)
        for values, wanted in zip(found[1:], expected[1:], strict=True):
            assert len(values) == 2 and values == pytest.approx(wanted, rel=1e-3)


@pytest.mark.parametrize(("alpha", "unused"), [(0.0, "teacher_logits"), (1.0, "label")])
def test_what_has_no_weight_changes_nothing(alpha, unused, make_student, make_trainer, pairs):
    results = []
    for train in (pairs["train"], pairs["train"].remove_columns(unused)):
        student = make_student()
        make_trainer(student, train, distillation_alpha=alpha, max_steps=2, learning_rate=1e-3).train()
        results.append(weights(student))
    assert same(*results)


def test_pairs_without_labels_learn_from_the_teacher(make_student, make_trainer, pairs, bert_tokenizer):
    """The loss of a mixed batch is the mean of what each of its pairs gives alone."""
    mixed = pairs["train"].select(range(16))
    mixed = with_column(mixed, "label", [*mixed["label"][:8], *[None] * 8])
    student = make_student(**NO_DROPOUT)
    student.similarity.calibrate(2.0, 1.0)
    losses = []
    for row, logit in zip(mixed, logits_of(student, bert_tokenizer, mixed)[:, 0].tolist(), strict=True):
        score = (logit - row["teacher_logits"][0]) ** 2
        losses.append(score if row["label"] is None else 0.7 * (logit - row["label"]) ** 2 + 0.3 * score)
    fields = {**PLAIN_SGD, "max_steps": 1, "per_device_train_batch_size": 16, "distillation_alpha": 0.3}
    assert make_trainer(student, mixed, **fields).train().training_loss == pytest.approx(np.mean(losses), rel=1e-4)


def test_similarities_of_a_bi_encoder_are_kept(make_student, make_trainer, bert_tokenizer, pairs):
    """From the same start, towards the same scores: with the loss, other sentences stay where the encoder has them."""

    def embed(model):
        vectors = [encode(model, bert_tokenizer, pairs["train"][name][:], show_progress=False)
                   for name in ("sentence1", "sentence2")]  # fmt: skip
        return torch.from_numpy(np.stack(vectors, axis=1))

    # Rows of single tokens, by which such tiny models tell texts apart.
    target = embed(make_student(seed=1, linformer_init="strided").dse)
    train = pairs["train"].add_column("embeddings", target.tolist())
    drift = {}
    for weight in (0.0, 50.0):
        student = make_student(linformer_init="strided", **NO_DROPOUT)
        make_trainer(student, train, similarity_weight=weight, learning_rate=5e-3, num_train_epochs=5).train()
        drift[weight] = similarity_loss(embed(student), target).item()
    assert drift[50.0] < 0.5 * drift[0.0]


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
    # Predictions are logits alone, in the order of the rows; labels are not needed.
    predicted = trainer.predict(pairs["test"].remove_columns("label")).predictions
    np.testing.assert_allclose(predicted, logits_of(student, bert_tokenizer, pairs["test"]).numpy(), atol=1e-5)


def correlation(student, tokenizer, part):
    return np.corrcoef(logits_of(student, tokenizer, part)[:, 0], np.ravel(part["teacher_logits"]))[0, 1]


def test_a_student_learns_from_its_teacher(make_student, make_trainer, pairs, bert_tokenizer):
    student = make_student(linformer_sharing="headwise", linformer_init="strided", **NO_DROPOUT)
    train = pairs["train"].remove_columns("label")
    before, start = correlation(student, bert_tokenizer, train), weights(student)
    fields = {"learning_rate": 5e-3, "num_train_epochs": 15, "weight_decay": 0.0}
    make_trainer(student, train, distillation_alpha=1.0, **fields).train()
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
    make_trainer(student, train, learning_rate=5e-3, num_train_epochs=15, distillation_alpha=0.0).train()
    logits = logits_of(student, bert_tokenizer, train)
    predictions = (logits[:, 0] > 0).long() if problem == "binary" else logits.argmax(dim=1)
    assert (predictions == torch.tensor(train["label"])).float().mean() > 0.9


def test_bf16(make_student, make_trainer, dtypes_of, pairs):
    student = make_student()
    found = dtypes_of(student)
    assert math.isfinite(make_trainer(student, pairs["train"], bf16=True, max_steps=2).train().training_loss)
    assert torch.bfloat16 in found
    assert all(value.dtype == torch.float32 and value.isfinite().all() for value in student.state_dict().values())


# The head


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
    # A trained head is left alone.
    fitted = weights(student)
    trainer.calibrate_similarity()
    assert same(weights(student), fitted)


def test_a_head_of_a_ranking_stage_without_a_teacher_is_calibrated(make_student, make_trainer, pairs, monkeypatch):
    """It has a scale and no bias, and its logits are no labels. The head is fitted to a sample only."""
    monkeypatch.setattr("hf_dse.training.base.CALIBRATION_PAIRS", 20)
    students = [make_student(), make_student()]
    students[1].similarity.calibrate(20.0, 0.0)
    seen = []
    for student in students:
        hook = lambda module, args, inputs: seen.append(len(inputs["input_ids"]))  # noqa: E731
        student.register_forward_pre_hook(hook, with_kwargs=True)
        make_trainer(student, pairs["train"], per_device_eval_batch_size=8).calibrate_similarity()
    assert seen == [8, 8, 4] * 2
    for name, value in students[0].similarity.state_dict().items():
        torch.testing.assert_close(students[1].similarity.state_dict()[name], value, rtol=1e-4, atol=1e-5, msg=name)


def test_a_frozen_head_is_refused_and_an_adapter_saves_what_is_fitted(make_student, make_trainer, pairs, tmp_path):
    peft = pytest.importorskip("peft")
    for saved in (None, ["similarity"]):
        config = peft.LoraConfig(task_type="SEQ_CLS", target_modules=["query"], modules_to_save=saved or ["pooler"])
        student = peft.get_peft_model(make_student(), config)
        trainer = make_trainer(student, pairs["train"], max_steps=1)
        if saved is None:
            with pytest.raises(ValueError, match="similarity head of the student is frozen.*`modules_to_save="):
                trainer.train()
    trainer.train()
    trainer.save_model(str(tmp_path / "adapter"))
    stored = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    scale = next(value for name, value in stored.items() if name.endswith("similarity.scale"))
    assert torch.equal(scale, student.similarity.scale) and scale.item() != 1.0
    # The head has its own learning rate in an adapter too.
    assert len({group["initial_lr"] for group in trainer.optimizer.param_groups}) == 2


@pytest.mark.parametrize("similarity", ["cosine", "dot", "mlp"])
@pytest.mark.parametrize("head_rate", [None, 2e-3])
def test_new_parameters_have_learning_rates_of_their_own(similarity, head_rate, make_student, make_trainer, pairs):
    student = make_student(similarity=similarity, projection_dim=8, linformer_sharing="headwise")
    if similarity != "mlp":
        student.similarity.calibrate(5.0, 1.0)
    fields = {"learning_rate": 1e-4, "head_learning_rate": head_rate, "max_steps": 2}
    trainer = make_trainer(student, pairs["train"], **fields)
    optimizer = trainer.create_optimizer()
    groups = {id(weight): group for group in optimizer.param_groups for weight in group["params"]}
    decaying = trainer.get_decay_parameter_names(student)
    assert len(groups) == len(list(student.parameters()))
    for name, weight in student.named_parameters():
        is_new = re.search(NEW_PARAMETERS, name) is not None
        expected = head_rate if is_new and head_rate is not None else 1e-4
        if similarity != "mlp" and name in ("similarity.scale", "similarity.bias"):
            expected = 2e-3 * 5.0
        assert groups[id(weight)]["lr"] == pytest.approx(expected), name
        assert groups[id(weight)]["weight_decay"] == (0.01 if name in decaying else 0.0), name
    # Asked again it is the same optimizer with the same groups.
    num_groups = len(optimizer.param_groups)
    assert trainer.create_optimizer() is optimizer
    assert len(optimizer.param_groups) == num_groups


# Start, end and resume


@pytest.mark.parametrize("head_rate", [None, 2e-3])
def test_a_resumed_run_ends_where_a_straight_run_does(head_rate, tmp_path, make_student, make_trainer, pairs):
    # Dropout, a schedule, batches by length and checkpoints amid the epochs: all that has to be restored.
    fields = {"num_train_epochs": 2, "learning_rate": 1e-3, "head_learning_rate": head_rate}
    fields |= {"save_strategy": "steps", "save_steps": 2, "save_total_limit": None}
    straight = make_trainer(make_student(), pairs["train"], **fields)
    assert straight.train().global_step == 8
    expected, first = weights(straight.model), straight.optimizer.state_dict()
    assert len({group["initial_lr"] for group in first["param_groups"]}) == (2 if head_rate is None else 3)
    for step in (2, 6):
        # A new process would not start from the same random numbers or weights.
        resumed = make_trainer(make_student(seed=1), pairs["train"], **fields)
        torch.manual_seed(7)
        resumed.train(resume_from_checkpoint=str(tmp_path / "run" / f"checkpoint-{step}"))
        second = resumed.optimizer.state_dict()
        assert same(weights(resumed.model), expected)
        assert resumed.lr_scheduler.state_dict() == straight.lr_scheduler.state_dict()
        assert first["param_groups"] == second["param_groups"]
        assert all(same(state, second["state"][index]) for index, state in first["state"].items())
        assert logged(resumed, "loss") == logged(straight, "loss") and len(logged(straight, "loss")) == 8


def test_a_checkpoint_is_a_whole_model_folder(tmp_path, make_student, make_trainer, pairs, bert_tokenizer):
    student = make_student(prompts={"query": "old "}, query_length=16)
    make_trainer(student, pairs["train"], max_steps=1, save_strategy="steps", save_steps=1).train()
    checkpoint = tmp_path / "run" / "checkpoint-1"
    names = {path.name for path in checkpoint.iterdir()}
    assert {"modeling_dse.py", "model.safetensors", "tokenizer.json", "modules.json"} <= names
    assert "training_args.bin" not in names
    loaded = AutoModelForSequenceClassification.from_pretrained(checkpoint)
    expected = logits_of(student, bert_tokenizer, pairs["test"])
    assert torch.equal(logits_of(loaded, bert_tokenizer, pairs["test"]), expected)
    # sentence-transformers gives the same vectors, with the same prompt.
    sentence_transformers = pytest.importorskip("sentence_transformers")
    model = sentence_transformers.SentenceTransformer(str(checkpoint), device="cpu", trust_remote_code=True)
    options = {"prompt_name": "query", "show_progress": False}
    vectors = encode(student, AutoTokenizer.from_pretrained(checkpoint), pairs["test"]["sentence1"][:], **options)
    found = model.encode_query(pairs["test"]["sentence1"][:], show_progress_bar=False)
    np.testing.assert_allclose(found, vectors, atol=1e-5)


def test_the_best_epoch_is_kept_and_the_first_of_several_sets_tells_it(make_student, pairs, bert_tokenizer, tmp_path):
    options = {"max_length": MAX_LENGTH, "num_train_epochs": 2, "use_cpu": True}
    parts = {"near": pairs["validation"], "far": pairs["test"]}
    for metric, name in ((None, "eval_near_loss"), ("far_spearman", "eval_far_spearman")):
        args = DseTrainingArguments(str(tmp_path / name), metric_for_best_model=metric, **options)
        metrics = compute_metrics_for("stsb")
        trainer = DseTrainer(make_student(), args, pairs["train"], parts, bert_tokenizer, compute_metrics=metrics)
        trainer.train()
        best = (min if metric is None else max)(logged(trainer, name))
        assert len(logged(trainer, name)) == 2 and trainer.state.best_metric == best
        assert trainer.evaluate()[name] == pytest.approx(best)
    # Arguments belong to the caller, whose next trainer may have other data.
    assert args.eval_strategy is None and trainer.args.eval_strategy == "epoch"
    # Without labels the last model is kept.
    args = DseTrainingArguments(str(tmp_path / "bare"), **options)
    trainer = DseTrainer(make_student(), args, pairs["train"], pairs["validation"].remove_columns("label"),
                         bert_tokenizer)  # fmt: skip
    trainer.train()
    assert trainer.state.best_model_checkpoint is None and (tmp_path / "bare" / "checkpoint-4").is_dir()


def test_an_undefined_metric_is_announced_and_ends_no_training(
    make_student, pairs, bert_tokenizer, tmp_path, warnings
):
    equal = with_column(pairs["validation"], "label", [3.0] * 16)
    args = DseTrainingArguments(str(tmp_path), max_length=MAX_LENGTH, num_train_epochs=2, use_cpu=True,
                                metric_for_best_model="pearson")  # fmt: skip
    metrics = compute_metrics_for("stsb")
    for part in (equal, pairs["validation"].select([0])):
        warnings.clear()
        trainer = DseTrainer(make_student(), args, pairs["train"], part, bert_tokenizer, compute_metrics=metrics)
        assert len(warnings) == 1 and "The evaluation pairs all have the label" in warnings[0]
        assert trainer.train().global_step == 4
        assert len(logged(trainer, "eval_loss")) == 2
        assert not any(math.isfinite(value) for value in logged(trainer, "eval_pearson"))
    # Constant predictions have no correlation either.
    student = make_student()
    with torch.no_grad():
        student.dse.encoder.layer[-1].output.LayerNorm.weight.zero_()
    args = DseTrainingArguments(str(tmp_path), max_length=MAX_LENGTH, max_steps=1, learning_rate=0.0, use_cpu=True)
    trainer = DseTrainer(student, args, pairs["train"], pairs["validation"], bert_tokenizer, compute_metrics=metrics)
    assert trainer.train().global_step == 1


def test_batches_of_similar_length_depend_on_seed_and_epoch(make_student, make_trainer, pairs, bert_tokenizer):
    # A column of this name is replaced.
    train = pairs["train"].add_column("length", ["long"] * 32)
    trainer = make_trainer(make_student(), train, per_device_train_batch_size=4)
    part = trainer.train_dataset
    for first, second, length in zip(part["sentence1"], part["sentence2"], part["length"], strict=True):
        sizes = [len(ids) for ids in bert_tokenizer([first, second])["input_ids"]]
        assert length == min(max(sizes), MAX_LENGTH)

    def order(epoch, **fields):
        sampler = make_trainer(make_student(), train, **fields).get_train_dataloader().batch_sampler.sampler
        torch.rand(epoch + 1)
        sampler.set_epoch(epoch)
        return list(sampler)

    assert sorted(order(0)) == list(range(32))
    assert order(0) == order(0) != order(1)
    assert order(0) != order(0, seed=1)
    assert order(0, data_seed=42) == order(0, data_seed=42, seed=1)


# What is accepted as model, tokenizer and data, and what is refused

TEXTS = ["the cat sat on the mat", "a dog ran", "the old house", "a new mat", "in the house", "cat and dog"]


def make_pairs(**columns):
    return Dataset.from_dict({"sentence1": TEXTS, "sentence2": TEXTS[::-1], **columns})


@pytest.fixture
def scored():
    return make_pairs(label=[0.0, 1.0, 2.0, 3.0, 4.0, 5.0], teacher_logits=[[float(row)] for row in range(6)])


@pytest.fixture
def encoder(tmp_path, save_bert):
    return save_bert(tmp_path / "encoder")


@pytest.fixture
def args(tmp_path):
    return DseTrainingArguments(str(tmp_path / "run"), **{**TINY_RUN, "max_steps": 2})


def test_models_and_tokenizers_by_name(encoder, args, scored, make_model, bert_tokenizer, tmp_path):
    # A path is a name too.
    trainer = DseTrainer(encoder, args, train_dataset=scored)
    assert isinstance(trainer.model, DseForSequenceClassification)
    assert (trainer.model.config.num_labels, trainer.model.config.problem_type) == (1, "regression")
    # What is saved reads as much of a text as the training.
    assert trainer.processing_class.model_max_length == args.max_length == 32
    assert trainer.train().global_step == 2
    for kind, has_head in ((DseForSequenceClassification, True), (DseModel, False)):
        folder = tmp_path / kind.__name__
        model = make_model(kind)
        model.save_pretrained(folder)
        bert_tokenizer.save_pretrained(folder)
        loaded = DseTrainer(str(folder), args, train_dataset=scored).model
        words = "embeddings.word_embeddings.weight"
        assert torch.equal(loaded.dse.state_dict()[words], model.base_model.state_dict()[words])
        if has_head:
            assert torch.equal(loaded.similarity.scale, model.similarity.scale)
            # A head says itself which labels it has.
            assert DseTrainer(str(folder), args).model.config.num_labels == 1
        else:
            with pytest.raises(ValueError, match="has no head for pairs.*pass the training pairs"):
                DseTrainer(str(folder), args)
    student = make_pair_model(convert_encoder(str(encoder)), num_labels=1, problem_type="regression")
    assert DseTrainer(student, args, scored, processing_class=encoder).model is student
    with pytest.raises(TypeError, match="`model` is a `DseModel`.*`hf_dse.make_pair_model"):
        DseTrainer(student.dse, args, scored, processing_class=encoder)
    with pytest.raises(ValueError, match="`DseTrainer` needs `processing_class`"):
        DseTrainer(student, args, scored)
    collator = PairCollator(bert_tokenizer, MAX_LENGTH)
    args.train_sampling_strategy = "random"
    assert DseTrainer(student, args, scored, data_collator=collator).train().global_step == 2
    with pytest.raises(ValueError, match="`max_length` must be between 1 and 64"):
        DseTrainer(encoder, DseTrainingArguments(str(tmp_path), **{**TINY_RUN, "max_length": 100}), scored)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"label": [0.5] * 6}, (1, "regression")),
        ({"label": [0, 1, 0, 1, 0, 1]}, (2, "single_label_classification")),
        ({"label": [0, 1, 2, 1, 0, None]}, (3, "single_label_classification")),
        ({"label": [None] * 6, "teacher_logits": [[0.5]] * 6}, (1, "regression")),
        ({"teacher_logits": [None, *[[0.5, 1.0, 2.0]] * 5]}, (3, "single_label_classification")),
    ],
)
def test_labels_follow_from_the_data(columns, expected):
    assert infer_labels(make_pairs(**columns)) == expected
    features = {"sentence1": Value("string"), "sentence2": Value("string"), "label": ClassLabel(names=["a", "b", "c"])}
    assert infer_labels(make_pairs(label=[0, 1] * 3).cast(Features(features)))[0] == 3


def test_two_classes_have_one_logit(encoder, args):
    args.distillation_alpha = 0.0
    trainer = DseTrainer(encoder, args, train_dataset=make_pairs(label=[0, 1, 0, 1, 1, 0]))
    config = trainer.model.config
    assert (config.num_labels, config.problem_type) == (1, "multi_label_classification")
    assert trainer.train().global_step == 2


@pytest.mark.parametrize("kind", ["torch", "numpy", "pandas"])
def test_the_format_of_a_dataset_does_not_matter(kind, encoder, args, scored):
    results = []
    for rows in (scored, scored.with_format(kind)):
        trainer = DseTrainer(encoder, args, rows, {"near": rows})
        torch.manual_seed(0)
        loss = trainer.train().training_loss
        results.append([loss, trainer.evaluate()["eval_near_loss"], trainer.evaluate(rows)["eval_loss"]])
        results[-1] += trainer.predict(rows).predictions.ravel().tolist()
    assert results[0] == results[1]


@pytest.mark.parametrize("labels", [[1, 2] * 3, [0, 5] * 3, [0.0, 1.5] * 3, [-1, 1] * 3])
def test_labels_outside_of_two_classes_are_refused(labels, encoder, args):
    """With one logit they would train with a negative cross-entropy; in training and in evaluation alike."""
    args.distillation_alpha = 0.0
    right, wrong = make_pairs(label=[0, 1] * 3), make_pairs(label=labels)
    student = DseTrainer(encoder, args, right).model
    for parts, where in (((wrong, None), "training pairs"), ((right, wrong), "evaluation pairs")):
        row = next(row for row, label in enumerate(labels) if not 0 <= label <= 1)
        message = f"Row {row} of the {where} has the label {labels[row]}, and the student has labels from 0 to 1"
        with pytest.raises(ValueError, match=message):
            DseTrainer(student, args, *parts, processing_class=encoder)
    with pytest.raises(ValueError, match="Row . of the far evaluation pairs has the label"):
        DseTrainer(student, args, right, {"near": right, "far": wrong}, processing_class=encoder)


@pytest.mark.parametrize("label", [3, -1, 0.5])
def test_labels_that_are_no_classes_are_refused(label, make_student, make_trainer, problem_pairs):
    pairs = problem_pairs("three")
    wrong = with_column(pairs, "label", [float(value) for value in [*pairs["label"][:-1], label]])
    message = f"Row 31 of the .* pairs has the label {float(label)}, and the student has labels from 0 to 2"
    for parts in ((wrong, None), (pairs, wrong)):
        with pytest.raises(ValueError, match=message):
            make_trainer(make_student(**PROBLEMS["three"][0]), *parts, distillation_alpha=0.0)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("sentence1", [*TEXTS[:5], None], "Row 5: the column 'sentence1' holds None, and it has to be a text"),
        ("sentence2", [1, 2, 3, 4, 5, 6], "Row 0: the column 'sentence2' holds 1, and it has to be a text"),
        ("label", ["true", "false"] * 3, "holds 'true', and a label is a number.*`dataset.class_encode_column"),
        ("label", None, "no column 'label', only sentence1, sentence2, teacher_logits.*`distillation_alpha=1`"),
        ("teacher_logits", [0.5] * 6, "'teacher_logits' holds 0.5, and each pair needs a list.*`score_pairs`"),
        ("teacher_logits", None, "no column 'teacher_logits', only .*`hf-dse score`.*`distillation_alpha=0`"),
        ("teacher_logits", [None, *[[1.0]] * 5], "Row 0 of the training pairs has no `teacher_logits`: score it"),
        ("teacher_logits", [[1.0, 2.0, 3.0]] * 6, "teacher has 3 logits per pair and the student 1"),
    ],
)
def test_rows_that_cannot_be_learned_from_are_named(name, values, message, make_student, make_trainer, scored):
    train = scored.remove_columns(name) if values is None else with_column(scored, name, values)
    with pytest.raises(ValueError, match=message):
        make_trainer(make_student(), train)
    if name != "teacher_logits" and values is not None:
        with pytest.raises(ValueError, match=message):
            make_trainer(make_student(), scored, train)


def test_other_data_and_arguments_are_refused(encoder, args, scored, tmp_path, make_student, make_trainer):
    stream = scored.to_iterable_dataset()
    for place in ("train_dataset", "eval_dataset"):
        message = f"`{place}` is a `IterableDataset`, and `DseTrainer` needs a `datasets.Dataset`.*without `streaming"
        with pytest.raises(TypeError, match=message):
            DseTrainer(encoder, args, **{place: stream})
    with pytest.raises(TypeError, match="`train_dataset` is a `DatasetDict`.*pass one of its splits"):
        DseTrainer(encoder, args, DatasetDict(train=scored))
    with pytest.raises(TypeError, match="`args` is a `TrainingArguments`, and `DseTrainer` needs `DseTrainingArgum"):
        DseTrainer(encoder, TrainingArguments(str(tmp_path), use_cpu=True), scored)
    for name in ("compute_loss_func", "model_init"):
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
            DseTrainer(encoder, args, scored, **{name: len})
    with pytest.raises(ValueError, match="no column 'embeddings'.*`--bi_encoder_name_or_path`"):
        make_trainer(make_student(), scored, similarity_weight=1.0)
    unknown = with_column(scored, "label", [0.0, 1.0, 2.0, None, 4.0, 5.0])
    with pytest.raises(ValueError, match="Row 3 of the evaluation pairs has no label, and the evaluation compares"):
        make_trainer(make_student(), scored, unknown)


def test_damaged_weights_are_no_start(make_student, make_trainer, pairs):
    student = make_student()
    with torch.no_grad():
        student.dse.encoder.layer[0].output.dense.weight.fill_(torch.nan)
    with pytest.raises(ValueError, match="similarities of the untrained student are not finite.*weights are damaged"):
        make_trainer(student, pairs["train"]).train()
