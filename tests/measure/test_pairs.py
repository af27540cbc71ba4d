# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Evaluation on sentence pairs, by the head and by the cosine."""

import pytest
import torch
from datasets import Dataset
from sklearn.metrics import average_precision_score

from hf_dse import to_sentence_transformer
from hf_dse.data.options import PairTask
from hf_dse.measure.pairs import evaluate_pairs
from hf_dse.modeling import DseModel


QUIET = {"show_progress": False}
PAIRS = {
    "sentence1": ["the cat sat", "a dog ran", "old house", "the cat sat", "is old", "new dog"],
    "sentence2": ["a cat sat on the mat", "the cat sat", "new house", "old mat", "the dog sat", "a dog ran"],
}


def logits_of(model, tokenizer):
    with torch.no_grad():
        return model(**tokenizer(*PAIRS.values(), padding=True, return_tensors="pt")).logits


def test_binary_cosine_is_average_precision(make_model, bert_tokenizer, warnings):
    # Two equal pairs with different labels: ties must not depend on the order of the rows.
    rows, labels = {name: texts + texts[:1] for name, texts in PAIRS.items()}, [1, 0, 1, 0, 0, 1, 0]
    dataset, model = Dataset.from_dict({**rows, "label": labels}), make_model(DseModel)
    task = PairTask("pairs", num_labels=2, symmetric=True)
    encoder = to_sentence_transformer(model, bert_tokenizer)
    u, v = (encoder.encode(rows[name], normalize_embeddings=True, show_progress_bar=False) for name in rows)
    expected = average_precision_score(labels, (u * v).sum(axis=1).round(6))
    assert evaluate_pairs(model, bert_tokenizer, dataset, task, **QUIET) == {"cosine_ap": pytest.approx(expected)}
    negative = Dataset.from_dict({**PAIRS, "label": [0] * 6})
    with pytest.raises(ValueError, match="average precision is undefined"):
        evaluate_pairs(model, bert_tokenizer, negative, task, **QUIET)
    # The metrics of a head are kept.
    model = make_model(num_labels=2, problem_type="single_label_classification", similarity="mlp")
    right = (logits_of(model, bert_tokenizer).argmax(dim=1) == 0).float().mean().item()
    metrics = evaluate_pairs(model, bert_tokenizer, negative, task, **QUIET)
    assert metrics["accuracy"] == pytest.approx(right) and "cosine_ap" not in metrics
    assert any(text.startswith("There are no metrics of the cosine: The average") for text in warnings)


def test_asymmetric_tasks_need_a_head(make_model, bert_tokenizer):
    model = make_model(num_labels=2, similarity="mlp")
    with torch.no_grad():
        # A model with random weights may predict a single class.
        difference = logits_of(model, bert_tokenizer).diff(dim=1)
        model.similarity.out_proj.bias[1] -= difference.median() - 1e-3
    predictions = logits_of(model, bert_tokenizer).argmax(dim=1).tolist()
    dataset = Dataset.from_dict({**PAIRS, "label": [*predictions[:-1], 1 - predictions[-1]]})
    metrics = evaluate_pairs(model, bert_tokenizer, dataset, "qnli", **QUIET)
    assert set(metrics) == {"accuracy", "f1"} and metrics["accuracy"] == pytest.approx(5 / 6)
    with pytest.raises(ValueError, match="cannot score task 'qnli'"):
        evaluate_pairs(make_model(DseModel), bert_tokenizer, dataset, "qnli", **QUIET)


def test_the_student_is_left_as_it_was(make_model, bert_tokenizer):
    """In the middle of a training, with a layer that is not trained."""
    model = make_model(similarity="mlp").train()
    model.dse.encoder.embeddings.eval()
    before = {name: module.training for name, module in model.named_modules()}
    dataset, length = Dataset.from_dict({**PAIRS, "label": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]}), 4
    found = evaluate_pairs(model, bert_tokenizer, dataset, "stsb", max_length=length, **QUIET)
    assert {name: module.training for name, module in model.named_modules()} == before
    assert bert_tokenizer.model_max_length == 64
    assert evaluate_pairs(model.eval(), bert_tokenizer, dataset, "stsb", max_length=length, **QUIET) == found
