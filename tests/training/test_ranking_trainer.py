# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""RankingTrainer on tiny students: what a step sees and computes, resumes and refuses, and that students learn."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from datasets import Dataset
from torch import nn
from trainings import (
    NO_DROPOUT,
    PLAIN_SGD,
    TINY_RUN,
    assert_accumulation_changes_nothing,
    assert_resumes,
    weights,
)
from transformers import DataCollatorWithPadding

from hf_dse import (
    PairDistillationLoss,
    RankingLoss,
    RankingTrainer,
    RankingTrainingArguments,
    evaluate,
    make_rankings,
    to_sentence_transformer,
)
from hf_dse.common.settings import TextSettings, set_settings, settings_of
from hf_dse.data.collators import RankingCollator, RankingRows
from hf_dse.data.rankings import read_rankings
from hf_dse.training.losses import LOGIT_SPREAD
from hf_dse.training.ranking_trainer import PairHead, as_rankings, freeze
from hf_dse.training.steps import forward_in_parts, forward_texts


WORDS = "cat dog sat ran mat house old new".split()


def make_lists(num_queries, seed, has_scores=True):
    """Queries of two words; documents of three. The more words two share, the higher the score; two are relevant."""
    generator = np.random.default_rng(seed)
    corpus = [" ".join([*generator.choice(WORDS, 3, replace=False), *["of"] * (row % 4)]) for row in range(48)]
    columns = {"query": [], "documents": [], "labels": [], "teacher_logits": []}
    for _ in range(num_queries):
        words = generator.choice(WORDS, 2, replace=False)
        shared = np.array([len(set(words) & set(text.split())) for text in corpus])
        best = generator.permutation(np.flatnonzero(shared == 2))[:2]
        rest = generator.permutation(np.flatnonzero(shared < 2))[:5]
        columns["query"].append("the " + " ".join(words))
        columns["documents"].append([int(row) for row in [*best, *rest]])
        columns["labels"].append([1.0] * len(best) + [0.0] * len(rest))
        columns["teacher_logits"].append([float(4 * shared[row] - 3 + row % 2) for row in [*best, *rest]])
    if not has_scores:
        del columns["teacher_logits"]
    return make_rankings(columns, {"text": corpus})


@pytest.fixture(scope="module")
def rankings():
    return make_lists(24, seed=1)


def make_pairs():
    generator = np.random.default_rng(1)
    sentences = [" ".join(generator.choice(WORDS, 2, replace=False)) for _ in range(32)]
    shared = [len(set(a.split()) & set(b.split())) for a, b in zip(sentences[:16], sentences[16:], strict=True)]
    columns = {"sentence1": sentences[:16], "sentence2": sentences[16:]}
    return Dataset.from_dict({**columns, "label": [2.5 * number for number in shared]})


@pytest.fixture(scope="module")
def pairs():
    return make_pairs()


@pytest.fixture
def make_trainer(tmp_path, bert_tokenizer):
    def make(student, train=None, evaluate=None, pairs=None, **fields):
        options = {"output_dir": str(tmp_path / "run"), **TINY_RUN, "num_candidates": 4, **fields}
        args = RankingTrainingArguments(**options)
        return RankingTrainer(student, args, train, evaluate, bert_tokenizer, pairs)

    return make


# Gradients


@pytest.mark.parametrize(("mini_batch_size", "is_cached"), [(3, False), (1, True), (3, True)])
def test_cached_gradients_are_the_plain_ones(mini_batch_size, is_cached, make_student, bert_tokenizer):
    """The same mini-batches with all their activations kept have the same gradients."""
    texts = ["the cat"] * 3 + [f"a dog {'old ' * (number % 5)}" for number in range(8)]
    collate = DataCollatorWithPadding(bert_tokenizer)
    batch = collate([dict(bert_tokenizer(text)) for text in texts])
    ids, mask = batch["input_ids"], batch["attention_mask"]
    student = make_student(hidden_dropout_prob=0.2).train()

    def gradients(vectors):
        student.zero_grad()
        similarity = nn.functional.normalize(vectors, dim=-1) @ nn.functional.normalize(vectors, dim=-1).mT
        (student.similarity.scale * similarity).logsumexp(dim=1).square().sum().backward()
        return {name: value.grad.clone() for name, value in student.named_parameters() if value.grad is not None}

    torch.manual_seed(1)
    found = gradients(forward_in_parts(student, ids, mask, mini_batch_size, is_cached))
    torch.manual_seed(1)
    order = mask.sum(dim=1).argsort(stable=True)
    parts = [forward_texts(student, ids[rows][:, : mask[rows].sum(1).max()], mask[rows][:, : mask[rows].sum(1).max()])
             for rows in order.split(mini_batch_size)]  # fmt: skip
    expected = gradients(torch.cat(parts)[order.argsort()])
    assert found.keys() == expected.keys() and len(found) > 20
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-6, atol=1e-6 * float(value.abs().max()), msg=name)


def test_accumulated_gradients_are_those_of_one_batch(make_student, make_trainer, rankings, pairs):
    """Without the labels, because a smaller batch has fewer negatives."""

    def make(batches):
        own = {"train_sampling_strategy": "random", "contrastive_weight": 0.0}
        student = make_student(**NO_DROPOUT)
        return make_trainer(student, rankings, pairs=pairs, **{**PLAIN_SGD, **own, **batches})

    assert_accumulation_changes_nothing(make)


@pytest.mark.parametrize("bf16", [True, False])
def test_all_texts_are_read_in_the_precision_of_the_training(bf16, make_student, make_trainer, dtypes_of, rankings):
    student = make_student()
    found = dtypes_of(student)
    make_trainer(student, rankings, max_steps=1, bf16=bf16).train()
    assert found == {torch.bfloat16 if bf16 else torch.float32}


def test_cached_gradients_keep_one_mini_batch(make_student, bert_tokenizer):
    """In the forward pass what the backward pass needs is kept of the last mini-batch only."""
    texts = [f"the cat is {'old ' * (number % 2)}" for number in range(24)]
    batch = DataCollatorWithPadding(bert_tokenizer)([dict(bert_tokenizer(text)) for text in texts])
    kept = []
    for size in (None, 2):
        student = make_student().train()
        total = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda part, t=total: t.append(part.numel()) or part, lambda x: x
        ):
            inputs = (batch["input_ids"], batch["attention_mask"])
            if size is None:
                forward_texts(student, *inputs)
            else:
                forward_in_parts(student, *inputs, size, is_cached=True)
        kept.append(sum(total))
    assert 0.5 * kept[0] * 2 / 24 < kept[1] < 2 * kept[0] * 2 / 24


def test_the_loss_of_a_step(make_student, make_trainer, rankings, bert_tokenizer):
    """By hand: the embeddings of the texts, the cosines, the scale and the temperature."""
    student = make_student(**NO_DROPOUT)
    fields = {"max_steps": 1, "contrastive_weight": 0.5, "kl_weight": 2.0}
    trainer = make_trainer(student, rankings, **{**PLAIN_SGD, "learning_rate": 0.0}, **fields)
    loss = trainer.train().training_loss
    rows = RankingRows(rankings, 4, seed=42)
    batch = RankingCollator(bert_tokenizer, 32)([rows[row] for row in range(8)])
    texts = rows.corpus["text"][:]
    needed = [texts[number] for number in batch["document_ids"].tolist()]
    encoder = to_sentence_transformer(student, bert_tokenizer)
    queries, documents = (
        encoder.encode(part, normalize_embeddings=True, show_progress_bar=False)
        for part in (rankings.queries["query"][:8], needed)
    )
    logits = student.similarity.scale.item() * torch.from_numpy(queries @ documents.T)
    spread = np.mean([np.std(values) for values in rankings.queries["teacher_logits"][:]])
    expected = RankingLoss(0.5, 2.0, temperature=spread / LOGIT_SPREAD)(
        logits, *(batch[name] for name in ("documents", "labels", "teacher_logits", "document_ids", "positives"))
    )
    assert loss == pytest.approx(expected.item(), rel=1e-3)


# Start, end and resume


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_the_head_starts_on_the_scale_of_the_teacher(similarity, make_student, make_trainer, rankings, bert_tokenizer):
    student = make_student(similarity=similarity)
    trainer = make_trainer(student, rankings, num_candidates=7)
    trainer.fit_head(fit_scale=True)
    encoder = to_sentence_transformer(student, bert_tokenizer)
    vectors = [encoder.encode(texts) for texts in (rankings.queries["query"][:], rankings.corpus["text"][:])]
    head = student.similarity.eval()
    spreads, means = [], []
    for row, documents in enumerate(rankings.queries["documents"][:]):
        query = torch.from_numpy(vectors[0][[row] * len(documents)])
        with torch.no_grad():
            logits = head(query, torch.from_numpy(vectors[1][documents]))[:, 0].numpy()
        spreads.append(logits.std())
        means += logits.tolist()
    teacher = rankings.queries["teacher_logits"][:]
    assert np.mean(spreads) == pytest.approx(np.mean([np.std(values) for values in teacher]), rel=1e-3)
    assert np.mean(means) == pytest.approx(np.mean(np.concatenate(teacher)), abs=1e-2)
    assert trainer.ranking_loss.temperature == pytest.approx(
        np.mean([np.std(values) for values in teacher]) / LOGIT_SPREAD
    )


def test_without_a_teacher_the_scale_is_20(make_student, make_trainer, rankings):
    for train, fields in ((make_lists(24, seed=0, has_scores=False), {}), (rankings, {"kl_weight": 0.0})):
        student = make_student()
        trainer = make_trainer(student, train, **fields)
        trainer.fit_head(fit_scale=True)
        assert student.similarity.scale.item() == 20.0 and student.similarity.bias.item() == 0.0
        assert trainer.ranking_loss.temperature == 1.0 and trainer.ranking_loss.kl_weight == 0.0


def test_the_scale_learns_relative_to_its_size(make_student, make_trainer, rankings):
    student = make_student()
    trainer = make_trainer(student, rankings, max_steps=1, warmup_steps=0, scale_learning_rate=0.01)
    trainer.fit_head(fit_scale=True)
    start = student.similarity.scale.item()
    assert start > 5.0
    trainer.train()
    # The first step of Adam is the learning rate.
    assert abs(student.similarity.scale.item() / start - 1) == pytest.approx(0.01, rel=0.05)


@pytest.mark.parametrize(("strategy", "size"), [("random", None), ("group_by_length", 3)])
def test_a_resumed_run_ends_where_a_straight_run_does(
    strategy, size, tmp_path, make_student, make_trainer, rankings, pairs
):
    fields = {"num_train_epochs": 2, "learning_rate": 1e-3, "save_strategy": "steps", "save_steps": 3}
    fields |= {"save_total_limit": None, "train_sampling_strategy": strategy, "cached_gradients": size}
    make = lambda seed: make_trainer(make_student(seed=seed), rankings, pairs=pairs, **fields)  # noqa: E731
    straight, resumed = assert_resumes(make, tmp_path / "run", (3, 9))
    assert straight.state.global_step == 10
    assert vars(resumed.pair_head) == vars(straight.pair_head) != vars(PairHead())


# Pairs


def test_pairs_are_mixed_by_rows(make_student, make_trainer, rankings, pairs, bert_tokenizer):
    """The loss of a batch is the mean over its queries and pairs."""
    student = make_student(**NO_DROPOUT)
    fields = {**PLAIN_SGD, "learning_rate": 0.0, "max_steps": 1, "per_device_train_batch_size": 40}
    alone = make_trainer(student, rankings, **fields).train().training_loss
    trainer = make_trainer(student, rankings, pairs=pairs, **fields)
    mixed = trainer.train().training_loss
    encoder = to_sentence_transformer(student, bert_tokenizer)
    first, second = (encoder.encode(pairs[name][:], normalize_embeddings=True) for name in ("sentence1", "sentence2"))
    cosines, labels = (first * second).sum(axis=1), np.array(pairs["label"])
    slope, intercept = np.polyfit(cosines, labels, 1)
    head = trainer.pair_head
    if slope >= 0.25 * labels.std() / cosines.std():
        assert (head.scale, head.bias) == pytest.approx((slope, intercept), rel=1e-2)
    logits = torch.from_numpy(head.scale * cosines + head.bias)[:, None]
    expected = PairDistillationLoss(0.0)(logits, torch.from_numpy(labels)).item()
    assert mixed == pytest.approx(24 / 40 * alone + 16 / 40 * expected, rel=1e-3)
    # Without labels they learn from their scores.
    scored = pairs.remove_columns("label").add_column("teacher_logits", [[label] for label in pairs["label"]])
    assert make_trainer(student, rankings, pairs=scored).pair_loss.alpha == 1.0


# Learning and evaluation


def test_the_evaluation_is_that_of_the_saved_model(
    make_student, make_trainer, rankings, tmp_path, monkeypatch, warnings
):
    """With prompts, and with queries that are read as in the training."""
    sentence_transformers = pytest.importorskip("sentence_transformers")
    found = []
    for number, prompts in enumerate(({}, {"query": "old ", "document": "new "})):
        student = make_student()
        set_settings(student, TextSettings(prompts))
        trainer = make_trainer(student, evaluate=rankings, query_max_length=8 if number else None)
        trainer.save_model(tmp_path / str(number))
        model = sentence_transformers.SentenceTransformer(
            str(tmp_path / str(number)), device="cpu", trust_remote_code=True
        )
        expected = evaluate(model, rankings, show_progress=False)
        found.append(trainer.evaluate())
        assert found[number]["eval_map"] == pytest.approx(expected["map"], abs=1e-6)
    assert found[0]["eval_map"] != found[1]["eval_map"]
    batch = trainer.data_collator([RankingRows(rankings, 4, seed=0)[0]])
    assert trainer.tokenizer.decode(batch["query_input_ids"][0]).startswith("[CLS] old the")
    assert trainer.tokenizer.decode(batch["document_input_ids"][0]).startswith("[CLS] new")
    assert (settings_of(trainer.model).lengths["query_length"], trainer.processing_class.model_max_length) == (8, 32)
    # Candidates stay in a corpus that is too small for them.
    few = rankings.select([0, 1])
    monkeypatch.setattr("hf_dse.training.ranking_trainer.EVAL_CORPUS", 1)
    candidates = {row for rows in few.queries["documents"][:] for row in rows}
    trainer = make_trainer(make_student(), evaluate=few)
    assert len(trainer.eval_dataset.corpus) == len(candidates)
    assert f"rank {len(candidates)} of the {len(rankings.corpus)} texts of the corpus" in warnings[-1]
    # Those that are passed are ranked whole.
    assert trainer.evaluate(few) == make_trainer(trainer.model).evaluate(few) != trainer.evaluate()


def test_a_threshold_reaches_rankings_and_rows():
    rows = {"query": ["a"], "documents": [["x", "y"]], "labels": [[1, 2]]}
    for data in (Dataset.from_dict(rows), read_rankings(rows)):
        assert as_rankings(data, "The rows").positives() == [[0, 1]]
        assert as_rankings(data, "The rows", 2.0).positives() == [[1]]


def test_the_unit_of_the_training_is_kept(make_student, make_trainer, rankings, tmp_path):
    """A search in files splits them as the training did."""
    student = make_student()
    groups = [f"file {row // 2}" for row in range(len(rankings.corpus))]
    passages = replace(rankings, corpus=rankings.corpus.add_column("passage_of", groups))
    for size in (24, None):
        trainer = make_trainer(student, replace(passages, chunk_size=size))
        trainer.save_model(tmp_path / "model")
        # Data that do not say it leave what the student knows.
        assert json.loads((tmp_path / "model" / "config_sentence_transformers.json").read_text())["chunk_size"] == 24


def test_the_best_passage_counts_in_an_evaluation(make_student, make_trainer, rankings):
    trainer = make_trainer(make_student(), evaluate=replace(rankings, chunk_size=2))
    found = trainer.evaluate()
    model = to_sentence_transformer(trainer.model, trainer.tokenizer)
    expected = evaluate(model, rankings, chunk_size=2, show_progress=False)
    assert found["eval_map"] == pytest.approx(expected["map"], abs=1e-6)
    assert found["eval_map"] != pytest.approx(evaluate(model, rankings, show_progress=False)["map"], abs=1e-6)


def test_frozen_layers_do_not_change(make_student, make_trainer, rankings):
    student = make_student(linformer_projection="learned", linformer_sharing="layerwise")
    start = weights(student)
    make_trainer(student, rankings, max_steps=2, freeze_layers=1, learning_rate=1e-3).train()
    moved = {name for name, value in weights(student).items() if not torch.equal(value, start[name])}
    assert any("layer.1." in name for name in moved)
    assert not any(part in name for name in moved for part in ("embeddings.", "layer.0.", "linformer."))


@pytest.mark.parametrize(
    ("model_type", "frozen"),
    [
        ("distilbert", ("embeddings.", "transformer.layer.0.")),
        ("modernbert", ("embeddings.", "layers.0.")),
        ("eurobert", ("embed_tokens.", "layers.0.")),
        ("electra", ("embeddings.", "embeddings_project.", "encoder.layer.0.")),
        ("mpnet", ("embeddings.", "encoder.layer.0.")),
        ("albert", None),
    ],
)
def test_embeddings_and_lowest_layers_of_any_encoder(model_type, frozen, make_student):
    student = make_student(model_type=model_type, embedding_size=8, num_key_value_heads=2)
    if frozen is None:
        with pytest.raises(ValueError, match="the 2 layers of an encoder of the type 'albert' share their weights"):
            freeze(student, 1)
        return
    freeze(student, 1)
    is_frozen = {name: not weight.requires_grad for name, weight in student.dse.encoder.named_parameters()}
    assert is_frozen == {name: name.startswith(frozen) for name in is_frozen}
    with pytest.raises(ValueError, match="freeze_layers=2 leaves none of the 2 layers to train"):
        freeze(student, 2)


@pytest.mark.parametrize(
    ("has_scores", "similarity", "fields"),
    [
        (False, "cosine", {}),
        (True, "dot", {"contrastive_weight": 0.0}),
    ],
    ids=["labels", "teacher"],
)
def test_students_learn_to_rank(has_scores, similarity, fields, make_student, make_trainer):
    train, test = make_lists(48, 0, has_scores), make_lists(24, 7)
    student = make_student(similarity=similarity, **NO_DROPOUT)
    fields = {"learning_rate": 3e-3, "num_train_epochs": 10, "eval_strategy": "epoch", "save_strategy": "epoch",
              "load_best_model_at_end": None, **fields}  # fmt: skip
    trainer = make_trainer(student, train, test, **fields)
    before = trainer.evaluate()["eval_ndcg@10"]
    trainer.train()
    after = trainer.evaluate()["eval_ndcg@10"]
    assert before < 0.4 and after > before + 0.2
    assert trainer.state.best_metric == pytest.approx(after)


# Refused input


def test_the_head_is_fitted_to_queries_with_scores(make_student, make_trainer, rankings, monkeypatch):
    """Also where a sample of all queries would have none."""
    monkeypatch.setattr("hf_dse.training.ranking_trainer.START_QUERIES", 2)
    columns = {name: rankings.queries[name][:] for name in ("query", "documents", "labels", "teacher_logits")}
    columns["teacher_logits"][1:] = [[None] * len(row) for row in columns["documents"][1:]]
    student = make_student()
    trainer = make_trainer(student, make_rankings(columns, rankings.corpus), max_steps=2)
    trainer.fit_head(fit_scale=True)
    assert math.isfinite(student.similarity.scale.item()) and student.similarity.scale.item() > 0
    assert math.isfinite(trainer.train().training_loss)


def test_what_cannot_be_learned_is_named(make_student, make_trainer, rankings):
    columns = {name: rankings.queries[name][:] for name in ("query", "documents", "labels")}
    unscored = make_rankings(columns, rankings.corpus)
    with pytest.raises(ValueError, match="no query has two candidates with teacher scores.*`score`"):
        make_trainer(make_student(), unscored, kl_weight=1.0)
    labels = [columns["labels"][0], *([0] * len(row) for row in columns["labels"][1:])]
    unlabelled = make_rankings(columns | {"labels": labels}, rankings.corpus)
    problem = f"{len(labels) - 1} of {len(labels)} queries have no relevant document .* first is 'q1'"
    with pytest.raises(ValueError, match=problem):
        make_trainer(make_student(), unlabelled)
    # Only the two relevant documents have scores, and the second candidate is one that is not relevant.
    scores = [[float(row) if label else None for row, label in enumerate(labels)] for labels in columns["labels"]]
    sparse = make_rankings(columns | {"teacher_logits": scores}, rankings.corpus)
    trainer = make_trainer(make_student(), sparse, kl_weight=1.0, num_candidates=2)
    with pytest.raises(ValueError, match="num_candidates=2: no drawn query has two candidates with a teacher's score"):
        trainer.train()
    # All that is read of both candidates is the same, so that no scale makes their scores.
    texts = {"text": [f"the cat sat on the mat and the dog {end}" for end in ("ran", "sat")]}
    alike = {"query": ["a cat"], "documents": [[0, 1]], "labels": [[1, 0]], "teacher_logits": [[6.0, -6.0]]}
    trainer = make_trainer(make_student(), make_rankings(alike, texts), kl_weight=1.0, max_length=6)
    with pytest.raises(ValueError, match="with a teacher's score that differ in the 6 tokens that are read"):
        trainer.train()
    with pytest.raises(TypeError, match="The evaluation rows have to be `Rankings` or a `datasets.Dataset`, got dict"):
        make_trainer(make_student(), rankings, {"query": ["a"]})
    with pytest.raises(ValueError, match="Row 1 of the pairs has the label inf"):
        pairs = Dataset.from_dict({"sentence1": ["a", "b"], "sentence2": ["c", "d"], "label": [1.0, math.inf]})
        make_trainer(make_student(), rankings, pairs=pairs)
    with pytest.raises(ValueError, match='`similarity="cosine"`'):
        make_trainer(make_student(similarity="mlp"), rankings)
