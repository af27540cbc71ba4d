# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Evaluation on sentence pairs: by the head and by the cosine."""

import numpy as np
import pytest
import torch
from datasets import Dataset
from sklearn.metrics import average_precision_score
from transformers import BertModel, Trainer, TrainingArguments

from hf_dse import compute_metrics_for, encode, evaluate_pairs
from hf_dse.data.collators import PairCollator
from hf_dse.data.tasks import PairTask
from hf_dse.modeling import DseModel


PAIRS = {
    "sentence1": ["the cat sat", "a dog ran", "old house", "the cat sat", "is old", "new dog"],
    "sentence2": ["a cat sat on the mat", "the cat sat", "new house", "old mat", "the dog sat", "a dog ran"],
}
SCORES = [4.5, 1.0, 3.0, 0.5, 2.0, 2.5]
QUIET = {"show_progress": False}


@pytest.fixture(scope="module")
def pairs():
    return Dataset.from_dict({**PAIRS, "label": SCORES})


def logits_of(model, tokenizer):
    with torch.no_grad():
        return model(**tokenizer(*PAIRS.values(), padding=True, return_tensors="pt")).logits


def with_labels(labels):
    return Dataset.from_dict({**PAIRS, "label": labels})


@pytest.mark.parametrize("similarity", ["cosine", "dot", "mlp"])
def test_a_student_is_scored_by_its_head_and_its_cosine(similarity, make_model, bert_tokenizer, pairs, tmp_path):
    model = make_model(similarity=similarity)
    seen = []
    count = model.dse.register_forward_hook(lambda module, args, output: seen.append(len(output.pooler_output)))
    metrics = evaluate_pairs(model, bert_tokenizer, pairs, "stsb", **QUIET)
    count.remove()
    assert sum(seen) == len({*PAIRS["sentence1"], *PAIRS["sentence2"]}) == 9
    logits = logits_of(model, bert_tokenizer)[:, 0].double().numpy()
    assert metrics["pearson"] == pytest.approx(np.corrcoef(logits, SCORES)[0, 1], abs=1e-5)
    u, v = (encode(model, bert_tokenizer, PAIRS[name], normalize=True, **QUIET) for name in PAIRS)
    assert metrics["cosine_pearson"] == pytest.approx(np.corrcoef((u * v).sum(axis=1), SCORES)[0, 1], abs=1e-5)
    assert set(metrics) == {"pearson", "spearman", "cosine_pearson", "cosine_spearman"}
    options = {"remove_unused_columns": False, "report_to": "none", "use_cpu": True, "per_device_eval_batch_size": 4}
    trainer = Trainer(
        model,
        TrainingArguments(str(tmp_path), **options),
        data_collator=PairCollator(bert_tokenizer, 32),
        eval_dataset=pairs,
        compute_metrics=compute_metrics_for("stsb"),
    )
    found = trainer.evaluate()
    assert found["eval_pearson"] == pytest.approx(metrics["pearson"], abs=1e-6)
    assert found["eval_spearman"] == pytest.approx(metrics["spearman"], abs=1e-6)


def test_encoders_have_the_cosine(make_model, bert_tokenizer, pairs, encoder, save_bert, tmp_path):
    metrics = evaluate_pairs(make_model(DseModel), bert_tokenizer, pairs, "stsb", **QUIET)
    assert set(metrics) == {"cosine_pearson", "cosine_spearman"}
    bare = BertModel.from_pretrained(save_bert(tmp_path))
    expected = evaluate_pairs(bare, bert_tokenizer, pairs, "stsb", **QUIET)
    assert evaluate_pairs(encoder, None, pairs, "stsb", **QUIET) == pytest.approx(expected, abs=1e-5)


def test_binary_cosine_is_average_precision(make_model, bert_tokenizer):
    # Two equal pairs with different labels: ties must not depend on the order of the rows.
    rows, labels = {name: texts + texts[:1] for name, texts in PAIRS.items()}, [1, 0, 1, 0, 0, 1, 0]
    dataset, model = Dataset.from_dict({**rows, "label": labels}), make_model(DseModel)
    task = PairTask("pairs", num_labels=2, symmetric=True)
    u, v = (encode(model, bert_tokenizer, rows[name], normalize=True, **QUIET) for name in rows)
    expected = average_precision_score(labels, (u * v).sum(axis=1).round(6))
    assert evaluate_pairs(model, bert_tokenizer, dataset, task, **QUIET) == {"cosine_ap": pytest.approx(expected)}
    with pytest.raises(ValueError, match="average precision is undefined"):
        evaluate_pairs(model, bert_tokenizer, with_labels([0] * 6), task, **QUIET)


def test_asymmetric_tasks_need_a_head(make_model, bert_tokenizer):
    model = make_model(num_labels=2, similarity="mlp")
    with torch.no_grad():
        # A model with random weights may predict a single class.
        difference = logits_of(model, bert_tokenizer).diff(dim=1)
        model.similarity.out_proj.bias[1] -= difference.median() - 1e-3
    predictions = logits_of(model, bert_tokenizer).argmax(dim=1).tolist()
    dataset = with_labels([*predictions[:-1], 1 - predictions[-1]])
    metrics = evaluate_pairs(model, bert_tokenizer, dataset, "qnli", **QUIET)
    assert set(metrics) == {"accuracy", "f1"} and metrics["accuracy"] == pytest.approx(5 / 6)
    with pytest.raises(ValueError, match="cannot score task 'qnli'"):
        evaluate_pairs(make_model(DseModel), bert_tokenizer, dataset, "qnli", **QUIET)


def test_errors(make_model, bert_tokenizer, pairs):
    collapsed = make_model()
    torch.nn.init.zeros_(collapsed.similarity.scale)
    for model, dataset, task, match in (
        (collapsed, pairs, "stsb", "Constant predictions.*collapsed model"),
        (make_model(num_labels=3), pairs, "stsb", "3 logits per pair.*regression.*needs 1"),
        (make_model(), pairs.remove_columns("label"), "stsb", "no column 'label', only sentence1, sentence2"),
        (make_model(), pairs, "cola", "Unknown task 'cola': pass one of stsb"),
    ):
        with pytest.raises(ValueError, match=match):
            evaluate_pairs(model, bert_tokenizer, dataset, task, **QUIET)
