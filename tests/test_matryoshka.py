# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Training of vectors that can be cut: the losses of both trainers, their options, and that cut vectors learn."""

import json

import numpy as np
import pytest
import torch
from datasets import Dataset
from flags import to_flags

from hf_dse import (
    DseTrainer,
    DseTrainingArguments,
    RankingTrainer,
    RankingTrainingArguments,
    encode,
    make_rankings,
    matryoshka_loss,
    similarity_loss,
)
from hf_dse.evaluation.pairs import cosines
from hf_dse.training.losses import cosine_loss
from hf_dse.training.ranking_losses import are_of_different_queries
from hf_dse_cli import main


WORDS = "cat dog sat ran mat house old new".split()
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


def make_pairs(number=32, size=None):
    """Sentences of two words; the label is how many they share."""
    generator = np.random.default_rng(0)
    sentences = [" ".join(generator.choice(WORDS, 2, replace=False)) for _ in range(2 * number)]
    first, second = sentences[:number], sentences[number:]
    labels = [2.5 * len({*one.split()} & {*other.split()}) for one, other in zip(first, second, strict=True)]
    columns = {"sentence1": first, "sentence2": second, "label": labels, "teacher_logits": [[x] for x in labels]}
    if size is not None:
        columns["embeddings"] = generator.normal(size=(number, 2, size)).tolist()
    return Dataset.from_dict(columns)


def make_lists(number=16, size=None):
    generator = np.random.default_rng(0)
    corpus = [" ".join(generator.choice(WORDS, 3, replace=False)) for _ in range(24)]
    queries = [" ".join(generator.choice(WORDS, 2, replace=False)) for _ in range(number)]
    documents = [generator.choice(24, 5, replace=False).tolist() for _ in range(number)]
    shared = [
        [len({*query.split()} & {*corpus[row].split()}) for row in rows]
        for query, rows in zip(queries, documents, strict=True)
    ]
    columns = {"query": queries, "documents": documents, "labels": [[1.0, *[0.0] * 4]] * number}
    columns["teacher_logits"] = [[float(3 * value) for value in values] for values in shared]
    rankings = make_rankings(columns, {"text": corpus})
    if size is not None:
        for part in ("queries", "corpus"):
            table = getattr(rankings, part)
            values = generator.normal(size=(len(table), size)).tolist()
            object.__setattr__(rankings, part, table.add_column("embeddings", values))
    return rankings


@pytest.fixture
def make_trainer(tmp_path, bert_tokenizer):
    def make(kind, student, train, **fields):
        arguments = DseTrainingArguments if kind is DseTrainer else RankingTrainingArguments
        args = arguments(**{"output_dir": str(tmp_path / "run"), **TINY_RUN, **fields})
        return kind(student, args, train, processing_class=bert_tokenizer)

    return make


def first_batch(trainer):
    return trainer._prepare_inputs(next(iter(trainer.get_train_dataloader())))


# The loss


@pytest.mark.parametrize("weights", [None, [1.0, 0.5, 2.0]])
@pytest.mark.parametrize("normalizes", [False, True])
def test_the_loss_is_the_sum_over_cut_vectors(weights, normalizes, make_student):
    model = make_student(normalize_embeddings=normalizes)
    vectors, teacher = torch.randn(5, 2, 16), torch.randn(5, 2, 9)
    found = matryoshka_loss(
        lambda part: similarity_loss(part, teacher) + part.square().sum(), [vectors], model, [16, 8, 4], weights
    )
    expected = 0.0
    for size, weight in zip([16, 8, 4], weights or [1.0] * 3, strict=True):
        part = vectors[..., :size]
        part = torch.nn.functional.normalize(part, dim=-1) if normalizes else part
        expected += weight * (similarity_loss(part, teacher) + part.square().sum())
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_the_loss_of_pairs(similarity, make_student, make_trainer):
    fields = {"matryoshka_dims": [16, 8, 4], "matryoshka_weights": [1.0, 0.5, 2.0], "similarity_weight": 3.0}
    student = make_student(similarity=similarity, **NO_DROPOUT)
    trainer = make_trainer(DseTrainer, student, make_pairs(size=6), **fields)
    batch = first_batch(trainer)
    found = trainer.compute_loss(student.train(), dict(batch))
    embeddings = student(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).embeddings
    expected = 0.0
    for size, weight in ((16, 1.0), (8, 0.5), (4, 2.0)):
        first, second = embeddings[:, 0, :size], embeddings[:, 1, :size]
        likeness = (first * second).sum(dim=1)
        if similarity == "cosine":
            likeness = likeness / (first.norm(dim=1) * second.norm(dim=1))
        logits = likeness * student.similarity.scale + student.similarity.bias
        squares = (logits - batch["labels"]).square() / 2 + (logits - batch["teacher_logits"][:, 0]).square() / 2
        expected += weight * (squares.mean() + 3.0 * similarity_loss(embeddings[..., :size], batch["embeddings"]))
    torch.testing.assert_close(found, expected)
    # The whole size alone is the loss without sizes.
    trainer.args.matryoshka_dims, trainer.args.matryoshka_weights = [16], None
    whole = trainer.compute_loss(student, dict(batch))
    trainer.args.matryoshka_dims = None
    torch.testing.assert_close(whole, trainer.compute_loss(student, dict(batch)))


@pytest.mark.parametrize("cached_gradients", [None, 4])
def test_the_loss_of_rankings(cached_gradients, make_student, make_trainer):
    fields = {"matryoshka_dims": [16, 4], "matryoshka_weights": [1.0, 2.0], "similarity_weight": 3.0}
    student = make_student(**NO_DROPOUT)
    train = make_lists(size=6)
    trainer = make_trainer(
        RankingTrainer, student, train, num_candidates=4, cached_gradients=cached_gradients, **fields
    )
    batch = first_batch(trainer)
    found = trainer.compute_loss(student.train(), dict(batch))
    vectors = trainer._embed(student, batch)
    expected = 0.0
    for size, weight in ((16, 1.0), (4, 2.0)):
        queries, documents = (vectors[kind][:, :size] for kind in ("query", "document"))
        units = [torch.nn.functional.normalize(part, dim=1) for part in (queries, documents)]
        logits = student.similarity.scale * units[0] @ units[1].T
        names = ("documents", "labels", "teacher_logits", "document_ids", "positives")
        loss = trainer.ranking_loss(logits, *(batch[name] for name in names))
        source = torch.cat([batch["query_embeddings"], batch["document_embeddings"]])
        others = are_of_different_queries(batch["documents"], len(documents))
        expected += weight * (loss + 3.0 * cosine_loss(torch.cat([queries, documents]), source, others))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    found.backward()
    assert all(torch.isfinite(value.grad).all() for value in student.parameters() if value.grad is not None)


# Learning


def cut_quality(student, tokenizer, pairs, size):
    first, second = (
        encode(student, tokenizer, pairs[name][:], truncate_dim=size, show_progress=False)
        for name in ("sentence1", "sentence2")
    )
    return np.corrcoef(cosines(first, second), pairs["label"][:])[0, 1]


def test_cut_vectors_learn(make_student, make_trainer, bert_tokenizer):
    pairs, found = make_pairs(48), {}
    for dims in (None, [16, 4]):
        student = make_student(**NO_DROPOUT)
        fields = {"learning_rate": 5e-3, "num_train_epochs": 8, "matryoshka_dims": dims}
        make_trainer(DseTrainer, student, pairs, **fields).train()
        found[dims is not None] = [cut_quality(student, bert_tokenizer, pairs, size) for size in (4, 16)]
    assert found[True][0] > found[False][0] + 0.05
    assert found[True][1] > 0.8


@pytest.mark.parametrize("kind", [DseTrainer, RankingTrainer])
def test_a_resumed_training_is_the_same(kind, make_student, make_trainer, tmp_path):
    train = make_pairs() if kind is DseTrainer else make_lists()
    fields = {"matryoshka_dims": [16, 8], "matryoshka_weights": [1.0, 0.5], "max_steps": 4, "num_train_epochs": 2}
    fields |= {"save_strategy": "steps", "save_steps": 2, "save_total_limit": None}
    whole = make_student()
    make_trainer(kind, whole, train, **fields).train()
    again = make_student()
    trainer = make_trainer(kind, again, train, **fields)
    trainer.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-2"))
    for name, value in whole.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], value, msg=name)


# Options


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"matryoshka_dims": [8, 0]}, r"matryoshka_dims=\[8, 0\]: they have to be different sizes of at least 1"),
        ({"matryoshka_dims": []}, r"matryoshka_dims=\[\]: they have to be different sizes"),
        ({"matryoshka_dims": [8, 8]}, r"matryoshka_dims=\[8, 8\]: they have to be different sizes"),
        ({"matryoshka_weights": [1.0]}, r"matryoshka_weights=\[1.0\] are those of `matryoshka_dims`: name"),
        ({"matryoshka_dims": [8], "matryoshka_weights": [1.0, 2.0]}, "there are 1 sizes, which need a weight each"),
        ({"matryoshka_dims": [8], "matryoshka_weights": [-1.0]}, "matryoshka_8"),
        ({"matryoshka_dims": [8], "matryoshka_weights": [0.0]}, "weight"),
    ],
)
@pytest.mark.parametrize("kind", [DseTrainingArguments, RankingTrainingArguments])
def test_wrong_options(kind, fields, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        kind(str(tmp_path), use_cpu=True, **fields)


def test_students_without_such_vectors(make_student, make_trainer):
    with pytest.raises(ValueError, match="the mlp head of the student compares all numbers of a vector"):
        make_trainer(DseTrainer, make_student(similarity="mlp"), make_pairs(), matryoshka_dims=[16, 8])
    for kind, train in ((DseTrainer, make_pairs()), (RankingTrainer, make_lists())):
        with pytest.raises(ValueError, match="the vectors of the student have 16 numbers, so no size can be larger"):
            make_trainer(kind, make_student(), train, matryoshka_dims=[64, 8])


def test_the_general_stage_has_no_such_loss(capsys, tmp_path):
    wanted = "`--matryoshka_dims` is for the stages whose loss compares sentence vectors, pairs and ranking, and this"
    options = {"stage": "general", "model_name_or_path": "x", "train_file": "x.txt", "output_dir": tmp_path / "run"}
    assert main(["distill", *to_flags(options | {"matryoshka_dims": [8, 4]})]) == 2
    assert wanted in capsys.readouterr().err
    (tmp_path / "recipe.yaml").write_text("matryoshka_dims: [8, 4]\nstages:\n- stage: general\n- stage: pairs\n")
    assert main(["distill", "--config", str(tmp_path / "recipe.yaml")]) == 2
    assert wanted in capsys.readouterr().err


def test_the_command_and_the_card(make_student, bert_tokenizer, tmp_path):
    make_student().dse.save_pretrained(tmp_path / "student")
    bert_tokenizer.save_pretrained(tmp_path / "student")
    make_pairs().to_json(tmp_path / "train.jsonl")
    options = {
        "model_name_or_path": tmp_path / "student",
        "train_file": tmp_path / "train.jsonl",
        "num_labels": 1,
        "max_length": 32,
        "max_steps": 2,
        "use_cpu": "true",
        "report_to": "none",
        "output_dir": tmp_path / "out",
        "distillation_alpha": 0,
    }
    recipe = {"matryoshka_dims": [16, 8, 4], "matryoshka_weights": [1, 1, 0.5]}
    assert main(["distill", *to_flags(options | recipe)]) == 0
    written = json.loads((tmp_path / "out" / "results.json").read_text())["recipe"]
    assert (written["matryoshka_dims"], written["matryoshka_weights"]) == ([16, 8, 4], [1.0, 1.0, 0.5])
    card = (tmp_path / "out" / "model" / "README.md").read_text()
    assert "matryoshka_dims | [16, 8, 4] |" in card.replace("\\", "")
    assert main(["distill", *to_flags(options | {"overwrite_output_dir": "true"})]) == 0
    assert "matryoshka" not in (tmp_path / "out" / "model" / "README.md").read_text()
