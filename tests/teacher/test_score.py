# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Scores of sentence pairs, and what of them is kept on disk."""

import sqlite3
from contextlib import closing

import numpy as np
import pytest
import torch
from datasets import ClassLabel, Dataset, Value
from sentence_transformers import CrossEncoder, SentenceTransformer
from transformers import BertForSequenceClassification

import hf_dse
from hf_dse import load_reranker
from hf_dse.retrieval import rerankers as scoring
from hf_dse.retrieval.blend import blend
from hf_dse.teacher import score as teaching
from hf_dse.teacher.bi_encoders import is_bi_encoder


FIRST = ["word1 word2", "word3", "word4 word5", "word1 word2", "word6", "word7 word8 word9 word10 word11 word12"]
SECOND = ["word2 word1 word3", "word1 word2", "word5 word9", "word3", "word6 word7", "word3"]


@pytest.fixture
def pairs():
    return Dataset.from_dict({"sentence1": FIRST, "sentence2": SECOND, "label": [1.0, 0.0, 1.0, 0.0, 0.0, 1.0]})


@pytest.fixture
def reranker(save_teacher):
    return load_reranker(save_teacher(), device="cpu")


def score(teacher, pairs, **options):
    return hf_dse.score(teacher, pairs, show_progress=False, **options)["teacher_logits"][:]


def assert_close(found, expected, tolerance=1e-5):
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("num_labels", [1, 3])
def test_scores_are_the_logits_of_the_teacher(pairs, save_teacher, raw, num_labels):
    folder = save_teacher(num_labels=num_labels)
    scored = hf_dse.score(folder, pairs, batch_size=4, show_progress=False)
    assert scored.column_names == ["sentence1", "sentence2", "label", "teacher_logits"]
    expected = raw(folder, list(zip(FIRST, SECOND, strict=True)))
    assert_close(scored["teacher_logits"][:], np.reshape(expected, (6, -1)))
    assert np.std(expected, axis=0).min() > 1e-3
    # Earlier scores are replaced.
    other = save_teacher("other", num_labels=num_labels, seed=1)
    assert score(other, scored) == score(other, pairs) != scored["teacher_logits"][:]
    # A `CrossEncoder` that is saved with a sigmoid is scored without.
    squashed = CrossEncoder(folder, device="cpu", activation_fn=torch.nn.Sigmoid())
    assert_close(score(squashed, pairs), scored["teacher_logits"][:])


def test_what_is_not_a_text_is_named(reranker):
    for text in (None, 3):
        pairs = Dataset.from_dict({"sentence1": ["word1"], "sentence2": [text]})
        with pytest.raises(ValueError, match=f"row 0: sentence2 is {text}, not a text"):
            score(reranker, pairs)


def test_a_symmetric_score_is_the_mean_of_both_orders(pairs, save_teacher, raw):
    folder = save_teacher(num_labels=2)
    there, back = (
        np.array(raw(folder, list(zip(*texts, strict=True)))) for texts in ((FIRST, SECOND), (SECOND, FIRST))
    )
    found = score(folder, pairs, symmetric=True)
    assert_close(found, (there + back) / 2)
    assert abs(there - back).max() > 1e-3
    # Both orders of one pair.
    assert found[1] == found[3]


def test_long_pairs_are_truncated_and_counted(reranker, warnings):
    long = Dataset.from_dict({"sentence1": ["word1 word2 " * 30, "word1"], "sentence2": ["word3 word4", "word5"]})
    found = score(reranker, long)
    assert len(warnings) == 1 and "1 of 2 pairs are longer than 32 tokens and were truncated" in warnings[0]
    cut = Dataset.from_dict({"sentence1": ["word1 word2 " * 13 + "word1"], "sentence2": ["word3 word4"]})
    assert_close(found[0], score(reranker, cut)[0])
    assert reranker.max_seq_length == 32 and score(reranker, long, max_length=16) != found
    # The limit of a call does not stay.
    assert reranker.max_seq_length == 32


def test_unknown_texts_are_counted(reranker, warnings):
    pairs = Dataset.from_dict({"sentence1": ["word1", "今天北京下雨了"], "sentence2": ["word2", "word3"]})
    score(reranker, pairs)
    assert "1 of 4 texts are mostly unknown to the vocabulary" in warnings[-1]


def test_several_teachers_are_one(pairs, save_teacher, save_encoder):
    """Logits of pairs are averaged, scores of candidates are put on one scale; files tell what a named teacher is."""
    names = [save_teacher(), save_teacher("other", seed=1)]
    first, second = (score(name, pairs) for name in names)
    assert_close(score(names, pairs), (np.array(first) + second) / 2)
    assert_close(score(names, pairs, weights=[3, 1]), (3 * np.array(first) + second) / 4)
    encoder = str(save_encoder())
    assert is_bi_encoder(encoder) and not any(map(is_bi_encoder, names))
    columns = {"query": FIRST[:2], "documents": [[0, 1, 2], [3, 4]]}
    rankings = hf_dse.make_rankings(columns, {"text": SECOND})
    parts = [hf_dse.score(name, rankings, show_progress=False) for name in (names[0], encoder)]
    parts = [part.queries["teacher_logits"][:] for part in parts]
    both = hf_dse.score([names[0], encoder], rankings, weights=[1, 2], show_progress=False)
    for row, expected in zip(both.queries["teacher_logits"], blend(parts, [1, 2]), strict=True):
        assert row == pytest.approx(expected, rel=1e-5)
    with pytest.raises(ValueError, match="weights=.1. for 2 scores"):
        hf_dse.score(names, rankings, weights=[1])
    with pytest.raises(ValueError, match="bm25_weight=0.3 is an option of bi-encoders, and there is none among"):
        hf_dse.score(names, rankings, bm25_weight=0.3)


def test_the_cosine_of_a_bi_encoder(pairs, save_bert, tmp_path):
    encoder = SentenceTransformer(str(save_bert(tmp_path / "encoder")), device="cpu")
    first, second = (encoder.encode(texts) for texts in (FIRST, SECOND))
    cosines = [a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in zip(first, second, strict=True)]
    assert_close(score(encoder, pairs), np.reshape(cosines, (6, 1)))


def test_the_error_for_a_score_that_is_not_finite_names_the_pair(pairs, reranker):
    row = reranker.tokenizer.convert_tokens_to_ids("word5")
    with torch.no_grad():
        reranker.transformers_model.bert.embeddings.word_embeddings.weight[row] = float("inf")
    with pytest.raises(ValueError, match=r"score of the pair \('word4 word5', 'word5 word9'\) is NaN or infinite"):
        score(reranker, pairs)


# The cache


def test_kept_scores_are_not_computed_again(tmp_path, pairs, reranker, count_pairs):
    first = score(reranker, Dataset.from_list([*pairs, *pairs]), cache_dir=tmp_path)
    # Distinct pairs are scored once.
    assert sum(count_pairs) == 6
    count_pairs.clear()
    # Kept by text: another order of the rows and other columns make no difference.
    some = pairs.select([3, 0, 5]).remove_columns("label")
    assert score(reranker, some, cache_dir=tmp_path) == [first[3], first[0], first[5]]
    assert count_pairs == []
    more = Dataset.from_list([*pairs, {"sentence1": "word30", "sentence2": "word31", "label": 0.0}])
    score(reranker, more, cache_dir=tmp_path)
    assert count_pairs == [1]
    # The other orders of six pairs, of which two are each other's; then another limit.
    score(reranker, pairs, cache_dir=tmp_path, symmetric=True)
    assert sum(count_pairs) == 5
    score(reranker, pairs, cache_dir=tmp_path, max_length=16)
    assert sum(count_pairs) == 11


def test_a_file_that_is_no_cache_is_named(tmp_path, pairs, reranker):
    score(reranker, pairs, cache_dir=tmp_path / "cache")
    file = next((tmp_path / "cache").iterdir())
    file.write_bytes(b"no database" * 100)
    with pytest.raises(OSError, match=f"The cache .*{file.name} cannot be used .*: delete this file if it is damaged"):
        score(reranker, pairs, cache_dir=file.parent)
    file.unlink()
    assert len(score(reranker, pairs, cache_dir=file.parent)) == 6


def test_damaged_scores_are_made_anew(tmp_path, pairs, reranker, warnings, count_pairs):
    expected = score(reranker, pairs, cache_dir=tmp_path)
    file = tmp_path / "scores.sqlite"
    damages = (bytes(16), b"", b"\0\0\0\0", b"\xff" * 12)
    with closing(sqlite3.connect(file)) as connection, connection:
        keys = [key for (key,) in connection.execute("SELECT key FROM entries ORDER BY key")]
        for key, value in zip(keys, damages, strict=False):
            connection.execute("UPDATE entries SET value = ? WHERE key = ?", (value, key))
    count_pairs.clear()
    np.testing.assert_allclose(score(reranker, pairs, cache_dir=tmp_path), expected, atol=1e-5)
    assert sum(count_pairs) == 4
    assert warnings == [f"{file}: 4 entries are damaged, and are made anew."]
    count_pairs.clear()
    np.testing.assert_allclose(score(reranker, pairs, cache_dir=tmp_path), expected, atol=1e-5)
    assert count_pairs == [] and len(warnings) == 1


def test_an_interrupted_run_goes_on_with_equal_bytes(tmp_path, pairs, save_teacher, monkeypatch, count_pairs):
    folder, raw_logits = save_teacher(), scoring.raw_logits

    def stop(*options):
        if len(count_pairs) == 2:
            raise KeyboardInterrupt
        return raw_logits(*options)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(scoring, "raw_logits", stop)
        score(folder, pairs, cache_dir=tmp_path / "cache", batch_size=2)
    count_pairs.clear()
    scores = score(folder, pairs, cache_dir=tmp_path / "cache", batch_size=2)
    assert sum(count_pairs) == 2
    assert scores == score(folder, pairs, cache_dir=tmp_path / "whole", batch_size=2)
    rows = []
    for name in ("cache", "whole"):
        with sqlite3.connect(next((tmp_path / name).iterdir())) as connection:
            rows.append(connection.execute("SELECT * FROM entries ORDER BY key").fetchall())
    assert rows[0] == rows[1] and len(rows[0]) == 6


# Classes


@pytest.fixture
def save_classifier(save_teacher):
    """Saves a teacher with these logits for each pair, and names of the classes."""

    def save(logits, names):
        folder = save_teacher(num_labels=len(logits))
        model = BertForSequenceClassification.from_pretrained(folder)
        with torch.no_grad():
            model.classifier.weight.zero_()
            model.classifier.bias.copy_(torch.tensor(logits))
        model.config.id2label = dict(enumerate(names))
        model.config.label2id = {name: number for number, name in enumerate(names)}
        model.save_pretrained(folder)
        return folder

    return save


def with_classes(pairs, *names):
    return pairs.cast_column("label", Value("int64")).cast_column("label", ClassLabel(names=list(names)))


def test_logits_are_in_the_order_of_the_named_classes(pairs, save_classifier, warnings):
    folder = save_classifier([5.0, 0.0, -5.0], ["contradiction", "ENTAILMENT", "neutral"])
    assert score(folder, pairs, task_name="mnli")[0] == [0, -5, 5]
    assert score(folder, pairs.remove_columns("label"), task_name="mnli")[0] == [0, -5, 5]
    assert score(folder, with_classes(pairs, "neutral", "contradiction", "entailment"))[0] == [-5, 5, 0]
    folder = save_classifier([3.0, -3.0], ["equivalent", "not_equivalent"])
    assert score(folder, pairs, task_name="mrpc")[0] == [-3, 3]
    assert not any("order" in message for message in warnings)


def test_names_of_classes_that_do_not_match_are_said(pairs, save_classifier, warnings):
    folder = save_classifier([5.0, 0.0], ["LABEL_0", "LABEL_1"])
    named = with_classes(pairs, "different", "same")
    assert score(folder, named)[0] == [5, 0]
    assert len(warnings) == 1 and "are LABEL_0, LABEL_1, and those of the data different, same: they" in warnings[0]
    scored = hf_dse.score(save_classifier([5.0, 0.0], ["no", "yes"]), pairs, show_progress=False)
    assert scored.features["label"].names == ["no", "yes"] and scored["label"][:] == pairs["label"][:]
    assert warnings[1:] == ["The classes of the data have no names: they are taken to be no, yes, in this order."]


def test_a_teacher_that_contradicts_the_labels_is_refused(save_teacher, raw, count_pairs, monkeypatch):
    """Of a part of the pairs, before the others are scored."""
    monkeypatch.setattr(teaching, "CHECKED_PAIRS", 60)
    folder = save_teacher(num_labels=2)
    texts = [(f"word{row % 40}", f"word{row * 7 % 39} word{row % 3}") for row in range(200)]
    logits = np.array(raw(folder, texts))
    pairs = Dataset.from_dict(dict(zip(("sentence1", "sentence2"), map(list, zip(*texts, strict=True)), strict=True)))
    best = (logits - logits.mean(axis=0)).argmax(axis=1)
    assert 60 < best.sum() < 140
    assert np.shape(score(folder, pairs.add_column("label", best.tolist()))) == (200, 2)
    count_pairs.clear()
    with pytest.raises(ValueError, match="classes seem to have another order than the labels: over 60 pairs"):
        score(folder, pairs.add_column("label", (1 - best).tolist()))
    assert sum(count_pairs) == 60
    single = save_teacher("single", num_labels=1)
    labels = -np.array(raw(single, texts)).ravel()
    with pytest.raises(ValueError, match="The teacher's scores fall where the labels rise .*correlation -1.00"):
        score(single, pairs.add_column("label", labels.tolist()))
    assert sum(count_pairs) == 120
