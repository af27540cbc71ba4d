# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The index of a corpus: searches in it, what is embedded and kept, and what is refused."""

import copy
import json
import math
import random
import shutil
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import combinations

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from transformers import BertForSequenceClassification, BertModel

import hf_dse.retrieval.index
from hf_dse import (
    DseModel,
    Index,
    load_reranker,
    make_rankings,
    mine,
    score,
    search,
    split_text,
    to_sentence_transformer,
)
from hf_dse.data.passages import with_titles
from hf_dse.measure.metrics import measure_run, relevance
from hf_dse.retrieval.blend import blend
from hf_dse.retrieval.bm25 import Words


TEXTS = ["the cat sat", "a dog ran", "the old house", "a new mat", "the cat ran on a mat"]
QUERIES = ["an old cat", "the house"]
LONG = [
    "# a cat\n\nthe cat sat on the mat. the old cat ran. a new dog sat.",
    "the house is old. a dog ran in it.",
    "new",
]
QUIET = {"show_progress": False}


def make_index(encoder, texts=TEXTS, **options):
    return Index(encoder, texts, **{**QUIET, **options})


@pytest.fixture
def embedded(monkeypatch):
    """The documents that are embedded from now on."""
    texts = []
    embed = hf_dse.retrieval.index.embed

    def spy(model, given, kind, **options):
        texts.extend(given if kind == "document" else [])
        return embed(model, given, kind, **options)

    monkeypatch.setattr(hf_dse.retrieval.index, "embed", spy)
    return texts


def all_read(index):
    """What the model reads of each passage."""
    return list(map(index.read, range(len(index.passages))))


def rows_of(hits):
    return [hit["row"] for hit in hits]


def assert_same(found, expected):
    """Rows and texts of hits, and their scores but for rounding, because vectors depend on their batch in the end."""
    for hits, others in zip(found, expected, strict=True):
        assert [(hit["row"], hit["text"]) for hit in hits] == [(hit["row"], hit["text"]) for hit in others]
        assert [hit["score"] for hit in hits] == pytest.approx([hit["score"] for hit in others], abs=1e-5)


# Searches


def test_vectors_and_groups_that_do_not_fit_are_refused(encoder):
    vectors = encoder.encode(TEXTS)
    for options, message in (
        ({"vectors": vectors[:-1]}, "`vectors` has 4 entries for 5 texts"),
        ({"vectors": vectors[:, :-1]}, "have the size 16, and those of the texts 15"),
        ({"vectors": vectors[:, 0]}, r"`vectors` has the shape \(5,\), not \(num_texts, embedding_size\)"),
        ({"vectors": vectors * np.nan}, "5 of 5 vectors are NaN or infinite"),
        ({"groups": ["a", "b"]}, "`groups` has 2 entries for 5 texts"),
        ({"ids": ["a", "b"]}, "`ids` has 2 entries for 5 texts"),
        ({"top_k": -1}, "top_k=-1: it has to be at least 1"),
        ({"top_k": 0}, "top_k=0: it has to be at least 1"),
        ({"rerank_top": 0}, "rerank_top=0: it has to be at least 1"),
        ({"rerank_weight": 1.5, "reranker": print}, "rerank_weight=1.5: it has to be between 0 and 1"),
        ({"rerank_weight": 0.5}, "rerank_weight=0.5: there is no reranker. Pass one"),
        ({"rerank_top": 5}, "rerank_top=5: there is no reranker. Pass one"),
        ({"chunk_size": -1}, "chunk_size=-1: it has to be at least 0"),
        ({"chunk_size": 8, "vectors": vectors}, "chunk_size=8, and `vectors` are those of whole texts: leave one out"),
        ({"bm25_weight": float("nan")}, "bm25_weight=nan: it has to be a finite number of at least 0"),
        ({"bm25_weight": -0.1}, "bm25_weight=-0.1: it has to be a finite number of at least 0"),
    ):
        with pytest.raises(ValueError, match=message):
            search(encoder, QUERIES, TEXTS, **options, **QUIET)
    with pytest.raises(TypeError, match="'cosine'"):
        search(encoder, QUERIES, TEXTS, cosine=True)


def test_the_vectors_of_the_caller_count(encoder, embedded):
    """They stay as they are, and blank texts have theirs too."""
    texts = [TEXTS[0], " ", *TEXTS[1:]]
    vectors = 3 * encoder.encode_document(texts)
    before = vectors.copy()
    for given in (vectors, torch.from_numpy(vectors), vectors.tolist()):
        found = search(encoder, QUERIES, texts, vectors=given, **QUIET)
        assert_same(found, search(encoder, QUERIES, texts, vectors=None, **QUIET))
    np.testing.assert_array_equal(vectors, before)
    assert len(embedded) == 3 * len(TEXTS)


def test_with_bm25_and_groups(encoder):
    groups = ["a", "a", "b", "b", "b"]
    found = search(encoder, QUERIES, TEXTS, groups=groups, bm25_weight=0.5, **QUIET)
    vectors = [encoder.encode(texts, normalize_embeddings=True) for texts in (QUERIES, TEXTS)]
    scores = vectors[0] @ vectors[1].T + Words(TEXTS, groups).scores(QUERIES, 0.5)(slice(0, 2))
    for hits, values in zip(found, scores, strict=True):
        best = sorted([int(values[:2].argmax()), 2 + int(values[2:].argmax())], key=lambda row: -values[row])
        assert rows_of(hits) == best
        assert [hit["score"] for hit in hits] == pytest.approx(values[best].tolist(), abs=1e-5)
    assert search(encoder, QUERIES, TEXTS, groups=torch.tensor([0, 0, 1, 1, 1]), bm25_weight=0.5, **QUIET) == found


def test_groups_need_not_be_next_to_each_other(encoder):
    for top_k in (1, 2, 9):
        hits = search(encoder, QUERIES[:1], TEXTS, groups=["a", "b", "a", "b", "a"], top_k=top_k, **QUIET)[0]
        order = rows_of(search(encoder, QUERIES[:1], TEXTS, **QUIET)[0])
        best = [next(row for row in order if row % 2 == parity) for parity in (0, 1)]
        assert rows_of(hits) == sorted(best, key=order.index)[:top_k]


def test_hits_have_ids_and_places(encoder):
    ids = ["v", "w", "x", "y", "z"]
    for hits in make_index(encoder, ids=ids).search(QUERIES, 3):
        assert [list(hit) for hit in hits] == [["score", "row", "id", "text", "start"]] * 3
        assert all((hit["id"], hit["text"], hit["start"]) == (ids[hit["row"]], TEXTS[hit["row"]], 0) for hit in hits)
        json.dumps(hits)


def test_a_reranker_orders_what_is_found(encoder, save_bert, bert_tokenizer, tmp_path):
    folder = save_bert(tmp_path, BertForSequenceClassification, num_labels=1, initializer_range=0.5)
    reranker = CrossEncoder(str(folder), device="cpu")
    first = search(encoder, QUERIES, TEXTS, top_k=4, **QUIET)
    again = search(encoder, QUERIES, TEXTS, top_k=2, reranker=reranker, rerank_top=4, rerank_weight=1, **QUIET)
    model = BertForSequenceClassification.from_pretrained(folder).eval()
    for query, found, hits in zip(QUERIES, first, again, strict=True):
        # Raw logits, not those of a sigmoid.
        logits = {
            hit["row"]: model(**bert_tokenizer(query, hit["text"], return_tensors="pt")).logits.item() for hit in found
        }
        assert rows_of(hits) == sorted(logits, key=logits.get, reverse=True)[:2]
        assert [hit["rerank"] for hit in hits] == pytest.approx([logits[hit["row"]] for hit in hits], abs=1e-4)
        assert all(hit["score"] in [before["score"] for before in found] for hit in hits)
        assert [hit["blend"] for hit in hits] == [hit["rerank"] for hit in hits]
    options = {"top_k": 4, "reranker": folder, "rerank_top": 4, **QUIET}
    assert [hits[:2] for hits in search(encoder, QUERIES, TEXTS, rerank_weight=1, **options)] == again
    assert list(map(rows_of, search(encoder, QUERIES, TEXTS, rerank_weight=0, **options))) == list(map(rows_of, first))
    # Each score by its mean spread.
    mixed = search(encoder, QUERIES, TEXTS, rerank_weight=0.25, **options)
    parts = [[[hit[name] for hit in hits] for hits in mixed] for name in ("rerank", "score")]
    expected = blend(parts, [0.25, 0.75])
    for hits, values in zip(mixed, expected, strict=True):
        assert [hit["blend"] for hit in hits] == pytest.approx(values) == sorted(values, reverse=True)


def test_a_query_without_scores_keeps_its_order(encoder):
    """A reranker gives NaN for a query that leaves no room for a text."""
    first = search(encoder, QUERIES, TEXTS, **QUIET)

    def score(queries, texts):
        return [[float("nan")] * len(texts[0]), [float(len(text)) for text in texts[1]]]

    found = search(encoder, QUERIES, TEXTS, reranker=score, rerank_weight=1, **QUIET)
    assert rows_of(found[0]) == rows_of(first[0])
    found = search(encoder, QUERIES, TEXTS, reranker=score, **QUIET)
    assert rows_of(found[0]) == rows_of(first[0])
    found = search(encoder, QUERIES, TEXTS, reranker=score, rerank_weight=1, **QUIET)
    assert rows_of(found[0]) == rows_of(first[0])
    assert [hit["text"] for hit in found[1]] == sorted((hit["text"] for hit in first[1]), key=len, reverse=True)


def test_rerankers_are_read_as_teachers_are(encoder, save_bert, bert_tokenizer, tmp_path):
    """Whatever their tokenizer does: the scores are those of a pair alone."""
    folder = save_bert(tmp_path / "good", BertForSequenceClassification, num_labels=1, initializer_range=0.5)
    options = {"top_k": 4, "rerank_top": 4, **QUIET}
    expected = search(encoder, QUERIES, TEXTS, reranker=CrossEncoder(str(folder), device="cpu"), **options)
    odd = CrossEncoder(str(folder), device="cpu")
    odd.tokenizer.padding_side, odd.tokenizer.model_input_names = "left", ["input_ids", "token_type_ids"]
    for hits, same in zip(search(encoder, QUERIES, TEXTS, reranker=odd, **options), expected, strict=True):
        assert rows_of(hits) == rows_of(same)
        assert [hit["rerank"] for hit in hits] == pytest.approx([hit["rerank"] for hit in same], abs=1e-5)
    folder = save_bert(
        tmp_path / "types", BertForSequenceClassification, num_labels=1, type_vocab_size=1, initializer_range=0.5
    )
    search(encoder, QUERIES, TEXTS, reranker=CrossEncoder(str(folder), device="cpu"), **options)
    folder = save_bert(tmp_path / "three", BertForSequenceClassification, num_labels=3)
    with pytest.raises(ValueError, match="3 logits, and needs 1, or 2 for irrelevant and relevant"):
        search(encoder, QUERIES, TEXTS, reranker=CrossEncoder(str(folder), device="cpu"), **options)


def test_a_reranker_without_its_head_is_refused_before_texts_are_embedded(encoder, save_bert, tmp_path, embedded):
    with pytest.raises(ValueError, match="is not a trained cross-encoder"):
        search(encoder, QUERIES, TEXTS, reranker=save_bert(tmp_path / "bare"), **QUIET)
    with pytest.raises(TypeError, match="The reranker is a SentenceTransformer, and has to be a `CrossEncoder`"):
        search(encoder, QUERIES, TEXTS, reranker=encoder, **QUIET)
    assert embedded == []


def test_blank_texts_and_queries(encoder, warnings):
    (hits,) = search(encoder, QUERIES[:1], ["", TEXTS[0], "\u200b", TEXTS[1]], bm25_weight=0.3, **QUIET)
    assert sorted((hit["row"], hit["text"]) for hit in hits) == [(1, TEXTS[0]), (3, TEXTS[1])]
    assert warnings == ["2 of 4 texts are blank and are left out."]
    with pytest.raises(ValueError, match="row 0: the query is ' ', not a text"):
        search(encoder, [" "], TEXTS)
    with pytest.raises(ValueError, match="The texts, row 1: the text is nan, not a string"):
        search(encoder, QUERIES, ["a", float("nan")])
    with pytest.raises(TypeError, match="`texts` has to be a list of strings, got str"):
        search(encoder, "one query", TEXTS)
    for texts in ([], [" "]):
        for size in (0, 8):
            with pytest.raises(ValueError, match="There are no texts to search in"):
                search(encoder, QUERIES, texts, chunk_size=size, **QUIET)
    assert search(encoder, [], TEXTS, bm25_weight=0.3, **QUIET) == []


def test_blank_texts_are_not_counted_as_embedded(encoder, infos):
    make_index(encoder, ["a cat", "", " "]).vectors  # noqa: B018
    assert infos[-1] == "1 of 1 texts are new or changed, and were embedded"


def test_other_similarities(encoder, monkeypatch):
    monkeypatch.setattr(encoder, "similarity_fn_name", "dot")
    (hits, _) = search(encoder, QUERIES, TEXTS, **QUIET)
    assert hits[0]["score"] == pytest.approx((encoder.encode(TEXTS) @ encoder.encode(QUERIES[0])).max(), rel=1e-5)
    with pytest.raises(ValueError, match="BM25 is added to the cosine, and this model is made for dot products"):
        search(encoder, QUERIES, TEXTS, bm25_weight=0.3)
    monkeypatch.setattr(encoder, "similarity_fn_name", "euclidean")
    with pytest.raises(ValueError, match="compares embeddings by 'euclidean'"):
        search(encoder, QUERIES, TEXTS)


def test_a_model_with_its_tokenizer(make_model, bert_tokenizer):
    model = make_model(DseModel)
    options = {"processing_class": bert_tokenizer, "max_length": 8}
    index = make_index(model, ["the cat " * 9, "a dog"], **options)
    encoder = to_sentence_transformer(model, bert_tokenizer, max_length=8)
    expected = encoder.encode_document(index.texts, normalize_embeddings=True)
    np.testing.assert_allclose(index.vectors, expected, atol=1e-5)
    assert_same(index.search(["cat"]), search(encoder, ["cat"], index.texts, **QUIET))
    with pytest.raises(TypeError, match="A loaded `model` needs its tokenizer"):
        make_index(model)


def test_equal_scores_keep_the_order_of_the_texts(encoder):
    """Also those at the last place; texts of one batch or of several have one vector."""
    for number, top_k, options in ((50, 5, {}), (1000, 10, {}), (50, 5, {"bm25_weight": 0.3})):
        (hits,) = search(encoder, ["cat"], ["a cat"] * number, top_k=top_k, batch_size=7, **options, **QUIET)
        assert rows_of(hits) == list(range(top_k)) and len({hit["score"] for hit in hits}) == 1
    groups = list(range(50)) * 2
    (hits,) = search(encoder, ["cat"], ["a cat"] * 100, groups=groups, top_k=5, **QUIET)
    assert rows_of(hits) == list(range(5))


# Passages


def test_a_text_is_found_by_its_best_passage(encoder):
    """Models read each passage but the first after the title of its text; hits show the passage alone."""
    index = make_index(encoder, LONG, chunk_size=12)
    parts = [split_text(text, encoder.tokenizer, 12) for text in LONG]
    read = [with_titles(text, passages, 12) for text, passages in zip(LONG, parts, strict=True)]
    assert index.passages == sum(parts, []) and all_read(index) == sum(read, [])
    assert read[0][1] == f"a cat\n{parts[0][1]}" and read[2] == ["new"]
    queries = encoder.encode_query(QUERIES, normalize_embeddings=True)
    for query, hits in zip(queries, index.search(QUERIES), strict=True):
        values = [encoder.encode_document(texts, normalize_embeddings=True) @ query for texts in read]
        order = sorted(range(3), key=lambda row: -values[row].max())
        assert rows_of(hits) == order
        for hit in hits:
            passages, best = parts[hit["row"]], int(values[hit["row"]].argmax())
            assert (hit["text"], hit["start"]) == (passages[best], len("".join(passages[:best])))
            assert hit["score"] == pytest.approx(values[hit["row"]].max(), abs=1e-5)
            assert LONG[hit["row"]][hit["start"] :].startswith(hit["text"])


def test_a_reranker_reads_what_the_model_reads(encoder):
    index, seen = make_index(encoder, LONG, chunk_size=12), []

    def score(queries, texts):
        seen.extend(texts)
        return [[float(len(text)) for text in found] for found in texts]

    # The first query is the second passage of the first text.
    queries = [index.read(1), QUERIES[1]]
    assert queries[0] == f"a cat\n{index.passages[1]}"
    found = index.search(queries, reranker=score, rerank_weight=1)
    for read, places, hits in zip(seen, index.find(queries, 3)[1], found, strict=True):
        assert read == list(map(index.read, places))
        assert sorted(map(len, read), reverse=True) == [hit["rerank"] for hit in hits]
    assert seen[0][0] == queries[0] and index.passages[1] in [hit["text"] for hit in found[0]]


def test_bm25_of_passages_counts_their_texts_too(encoder):
    index = make_index(encoder, LONG, chunk_size=12)
    found = index.search(QUERIES, bm25_weight=0.6)
    groups = [row for row, text in enumerate(LONG) for _ in split_text(text, encoder.tokenizer, 12)]
    added = Words(index.passages, groups).scores(QUERIES, 0.6)(slice(0, 2))
    values = index.encode_queries(QUERIES) @ index.vectors.T + added
    for hits, row in zip(found, values, strict=True):
        best = {text: max(value for value, of in zip(row, groups, strict=True) if of == text) for text in range(3)}
        assert rows_of(hits) == sorted(best, key=best.get, reverse=True)
        assert [hit["score"] for hit in hits] == pytest.approx([best[hit["row"]] for hit in hits], abs=1e-5)


def test_passages_of_groups(encoder):
    """Texts that are passages of documents may be split again; of each document one passage is found."""
    index = make_index(encoder, LONG, groups=["a", "a", "b"], chunk_size=12)
    assert index.unit == f"2 documents, {len(index.passages)} passages of at most 12 tokens"
    assert all(len({row // 2 for row in rows_of(hits)}) == len(hits) == 2 for hits in index.search(QUERIES))


def test_the_unit(encoder):
    assert make_index(encoder).unit == "5 documents" and len(make_index(encoder)) == 5
    assert make_index(encoder, groups=list("aabbb")).unit == "2 documents, 5 passages"
    index = make_index(encoder, ["a cat sat. " * 1200, "a dog"], chunk_size=4)
    assert (
        index.unit == f"2 documents, {len(index.passages):,} passages of at most 4 tokens" and "," in index.unit[12:]
    )
    assert repr(index) == f"Index({index.unit})"


def test_passages_with_a_prompt_fit_into_the_model(save_encoder):
    prompt = "in the house of "
    encoder = SentenceTransformer(str(save_encoder({"document": prompt})), device="cpu")
    encoder.max_seq_length = 20
    index = make_index(encoder, LONG, chunk_size=60)
    sizes = [len(encoder.tokenizer(prompt + text)["input_ids"]) for text in all_read(index)]
    assert max(sizes) <= 20 and len(sizes) > 3
    encoder.max_seq_length = 6
    with pytest.raises(ValueError, match="There is no room for passages: the model reads 6 tokens"):
        make_index(encoder, LONG, chunk_size=60)


def test_the_line_break_after_a_title_counts(make_model, roberta_tokenizer, warnings):
    """It is a token of a byte-level tokenizer."""
    model = make_model(DseModel, tokenizer=roberta_tokenizer)
    texts = [*LONG, "a cat\n\n" + "x" * 90]
    index = make_index(model, texts, chunk_size=30, processing_class=roberta_tokenizer, max_length=20)
    assert max(len(roberta_tokenizer(text)["input_ids"]) for text in all_read(index)) <= 20
    assert len(index.vectors) > 5 and warnings == []


def test_a_long_title_is_no_error(encoder):
    """A title that leaves no room for a passage is not read before one."""
    model = copy.deepcopy(encoder)
    model.max_seq_length = 16
    # A token for each letter.
    text = "abcdefghijklmnopq\n\n" + "the cat sat on a mat. " * 9
    index = make_index(model, [text], chunk_size=20)
    assert "".join(index.passages) == text
    assert all(len(model.tokenizer(read)["input_ids"]) <= 16 for read in all_read(index))


def test_scores_of_rows(encoder):
    """Those of a search, also of texts that it did not find."""
    index = make_index(encoder, [*LONG, " "], chunk_size=12)
    found = index.search(QUERIES)
    lists = [[3, *rows_of(hits)] for hits in found]
    for hits, (blank, *values) in zip(found, index.scores(QUERIES, lists), strict=True):
        assert blank == 0.0 and values == pytest.approx([hit["score"] for hit in hits], abs=1e-5)


# Rankings


def test_a_run_of_rankings(encoder):
    columns = {"query_id": ["q", "c"], "query": [QUERIES[0], TEXTS[2]], "documents": [[0], [1]], "labels": [[1], [1]]}
    rankings = make_rankings(columns, {"doc_id": list("abcde"), "text": TEXTS})
    index = Index.of(encoder, rankings, **QUIET)
    found = index.search(rankings.queries["query"][:])
    expected = [{hit["id"]: pytest.approx(hit["score"], abs=1e-5) for hit in hits} for hits in found]
    # The document that is the second query itself is left out.
    del expected[1]["c"]
    run = index.run(rankings)
    assert list(run) == ["q", "c"] and list(run.values()) == expected
    assert [list(row) for row in run.values()] == [list(row) for row in expected]
    assert [len(row) for row in index.run(rankings, depth=2).values()] == [2, 2]
    # Not where it is relevant, or another text.
    relevant = make_rankings({**columns, "documents": [[0], [2]]}, rankings.corpus)
    assert "c" in index.run(relevant)["c"]
    other = make_rankings({**columns, "query": QUERIES}, rankings.corpus)
    assert "c" in index.run(other)["c"]
    # Only for its own corpus, and with the options of a search.
    moved = make_rankings(columns, {"doc_id": list("abcde"), "text": TEXTS[::-1]})
    with pytest.raises(ValueError, match="which are others or in another order: pass its own"):
        index.run(moved)
    for weight in (-1.0, math.nan):
        with pytest.raises(ValueError, match="it has to be a finite number of at least 0"):
            index.run(rankings, bm25_weight=weight)
    with pytest.raises(ValueError, match="depth=-1: it has to be at least 0"):
        index.run(rankings, depth=-1)


def test_a_document_that_shares_no_word_is_not_found_by_words(encoder, warnings):
    texts = ["The blue whale is the largest animal.", "Planes fly by lift.", "Rain falls in spring."]
    texts += ["A model reads pairs.", "Whales sing to find each other."]
    queries = ["고래는 왜 노래하나요", "it is not", "lift", "whales"]
    for relevant in (4, 0):
        columns = {"query": queries, "documents": [[relevant]] * 4, "labels": [[1]] * 4}
        rankings = make_rankings(columns, {"doc_id": list("abcde"), "text": texts})
        index = Index.of(encoder, rankings, **QUIET)
        run = index.run(rankings, by_words=True)
        assert [sorted(row) for row in run.values()] == [[], [], ["b"], ["a", "e"]]
        measures = measure_run(run, relevance(rankings.select(range(3))))
        assert set(measures.values()) == {0.0}
        # With the cosine all are found.
        assert [len(row) for row in index.run(rankings, bm25_weight=0.3).values()] == [5] * 4
    assert "2 of 4 queries share no word" not in str(warnings)


def test_measures_do_not_depend_on_the_names_of_equal_documents(encoder):
    values = []
    for ids in ("abc", "zbc"):
        rankings = make_rankings(
            {"query_id": ["q"], "query": ["cat"], "documents": [[0]], "labels": [[1]]},
            {"doc_id": list(ids), "text": ["a cat"] * 3},
        )
        index = Index.of(encoder, rankings, **QUIET)
        runs = [index.run(rankings), index.run(rankings, bm25_weight=0.3), index.run(rankings, by_words=True)]
        values.append([measure_run(run, relevance(rankings)) for run in runs])
        assert [list(run["q"])[0] for run in runs] == [ids[0]] * 3
    assert values[0] == values[1]
    assert all(row["ndcg@10"] == 1.0 for row in values[0])


def test_rankings_in_their_unit(encoder):
    columns = {"query": QUERIES, "documents": [[0], [1]], "labels": [[1], [1]]}
    rankings = make_rankings(columns, {"doc_id": list("abc"), "text": LONG})
    assert Index.of(encoder, rankings, **QUIET).unit == "3 documents"
    split = Index.of(encoder, rankings, 12, **QUIET)
    assert split.chunk_size == 12 and [set(row) for row in split.run(rankings).values()] == [set("abc")] * 2
    # A corpus of passages has its documents as groups, and judgements are about these.
    corpus = {"doc_id": ["a#1", "a#2", "b#1"], "text": LONG, "passage_of": ["a", "a", "b"]}
    passages = make_rankings(columns, corpus)
    index = Index.of(encoder, passages, **QUIET)
    assert index.unit == "2 documents, 3 passages"
    assert [set(row) for row in index.run(passages).values()] == [{"a", "b"}] * 2


def test_words_alone_need_no_model():
    rankings = make_rankings({"query": ["old cat"], "documents": [[0]]}, {"doc_id": list("abcde"), "text": TEXTS})
    index = Index.of(None, rankings, **QUIET)
    assert index.run(rankings, by_words=True)["q0"].keys() == {"a", "c", "e"} and index.unit == "5 documents"
    with pytest.raises(ValueError, match="`chunk_size` and `vectors` need a model"):
        Index(None, TEXTS, chunk_size=8)
    for weight in (0.0, 0.3):
        with pytest.raises(ValueError, match="This needs a model, and the index has none"):
            index.search(QUERIES, bm25_weight=weight)


def test_a_refused_update_leaves_the_index_as_it_was(encoder):
    index = make_index(encoder, ids=list("abcde"))
    expected = index.search(QUERIES)
    with pytest.raises(ValueError, match="`ids` has 1 entries for 2 texts"):
        index.update(["a dog", "new"], ids=["x"])
    # Queries may come from a generator, too.
    assert index.search(query for query in QUERIES) == expected


def test_an_interrupted_update_leaves_the_index_as_it_was(encoder, tmp_path, monkeypatch):
    """Nothing of it is kept on disk either: the texts would get the vectors of others."""
    options = {"chunk_size": 8, "cache_dir": tmp_path}
    index = make_index(encoder, LONG, **options)
    expected = index.search(QUERIES)
    others = [text[::-1] for text in LONG]

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(hf_dse.retrieval.index, "split_texts", interrupt)
        with pytest.raises(KeyboardInterrupt):
            index.update(others)
    assert index.search(QUERIES) == expected and index.texts == LONG
    assert make_index(encoder, others, **options).search(QUERIES) == make_index(encoder, others, chunk_size=8).search(
        QUERIES
    )


def test_an_index_does_not_outlive_its_weights(encoder, tmp_path):
    """Its vectors would be compared with those of another model, and kept as those of the new one."""
    model = copy.deepcopy(encoder)
    index = make_index(model)
    index.search(QUERIES)
    with torch.no_grad():
        next(model.parameters()).add_(1.0)
    for call in (lambda: index.search(QUERIES), lambda: index.vectors, lambda: index.save(tmp_path / "x")):
        with pytest.raises(ValueError, match="The model has learned since this index was made: make another one"):
            call()
    assert not (tmp_path / "x").exists()
    make_index(model).search(QUERIES)


# What is kept


@pytest.mark.parametrize("chunk_size", [0, 12])
@pytest.mark.parametrize("is_kept", [False, True])
def test_an_update_embeds_only_what_is_new(encoder, embedded, tmp_path, chunk_size, is_kept):
    options = {"chunk_size": chunk_size, "cache_dir": tmp_path / "index" if is_kept else None}
    index = make_index(encoder, LONG, **options)
    first = index.search(QUERIES, bm25_weight=0.3)
    embedded.clear()
    assert index.search(QUERIES, bm25_weight=0.3) == first and embedded == []
    # A new text, one that moved, a copy, and one less.
    texts = ["a mat", LONG[1], LONG[1], LONG[0], ""]
    index.update(texts, ids=list("abcde"))
    found = index.search(QUERIES, bm25_weight=0.3)
    assert embedded == ["a mat"]
    fresh = make_index(encoder, texts, ids=list("abcde"), chunk_size=chunk_size)
    assert_same(found, fresh.search(QUERIES, bm25_weight=0.3))
    assert [hit["id"] for hit in found[0]] == ["abcde"[row] for row in rows_of(found[0])]
    np.testing.assert_allclose(index.vectors, fresh.vectors, atol=1e-5)
    index.update(LONG, groups=["x", "x", "y"])
    assert all(len(hits) == 2 for hits in index.search(QUERIES))


def test_updates_in_a_row_keep_what_there_is(encoder, embedded):
    index = make_index(encoder)
    assert len(index.vectors) == 5
    embedded.clear()
    index.update(TEXTS[:2])
    index.update([*TEXTS[:2], "a new dog"])
    assert len(index.vectors) == 3 and embedded == ["a new dog"]


def test_equal_texts_are_embedded_once(encoder, embedded):
    index = make_index(encoder, [*TEXTS, *TEXTS])
    assert len(index.vectors) == 10 and sorted(embedded) == sorted(TEXTS)
    np.testing.assert_array_equal(index.vectors[:5], index.vectors[5:])


@pytest.mark.parametrize("chunk_size", [0, 12])
def test_a_saved_index(encoder, embedded, tmp_path, chunk_size):
    texts = [*LONG, ""]
    index = make_index(encoder, texts, ids=list("abcd"), groups=["x", "x", None, None], chunk_size=chunk_size)
    found = index.search(QUERIES, bm25_weight=0.3)
    index.save(tmp_path / "new" / "index")
    embedded.clear()
    # Elsewhere too.
    shutil.move(tmp_path / "new" / "index", tmp_path / "moved")
    loaded = Index.load(tmp_path / "moved", encoder, **QUIET)
    assert_same(loaded.search(QUERIES, bm25_weight=0.3), found)
    assert embedded == [] and loaded.search(QUERIES)[0][0]["id"] in "abc"
    assert (loaded.texts, loaded.ids, loaded.unit) == (index.texts, index.ids, index.unit)
    # What was saved goes on.
    loaded.update([*LONG, "a new mat"])
    loaded.search(QUERIES)
    assert embedded == ["a new mat"]


def test_an_index_without_vectors_is_saved_with_them(encoder, embedded, tmp_path):
    make_index(encoder).save(tmp_path)
    embedded.clear()
    assert_same(Index.load(tmp_path, encoder, **QUIET).search(QUERIES), make_index(encoder).search(QUERIES))
    assert len(embedded) == len(TEXTS)


def test_another_model_is_an_error(encoder, save_encoder, tmp_path):
    make_index(encoder).save(tmp_path / "index")
    other = SentenceTransformer(str(save_encoder(hidden_act="relu")), device="cpu")
    with pytest.raises(ValueError, match="index was made by another model, or with another prompt, length"):
        Index.load(tmp_path / "index", other)
    with pytest.raises(FileNotFoundError, match="nothing holds no index: write one with `Index.save`"):
        Index.load(tmp_path / "nothing", encoder)


def test_other_lengths_make_other_vectors(encoder, tmp_path, embedded):
    index = make_index(encoder, ["the cat " * 9, "a dog"], cache_dir=tmp_path)
    assert len(index.vectors) == 2
    embedded.clear()
    short = make_index(encoder, index.texts, cache_dir=tmp_path, max_length=8)
    assert np.abs(short.vectors[0] - index.vectors[0]).max() > 1e-3 and len(embedded) == 2


def entries_of(folder):
    with closing(sqlite3.connect(folder / "vectors.sqlite")) as connection:
        return connection.execute("SELECT key, value FROM entries ORDER BY key").fetchall()


def start_of_vectors(value):
    return 8 + 8 * int(np.frombuffer(value, "<i8", 1)[0])


@pytest.mark.parametrize(
    "damage",
    [
        lambda value, first: value[:first] + b"\xff" * 8 + value[first + 8 :],
        lambda value, first: value[:-4],
        lambda value, first: value[:-3],
        lambda value, first: value[: first + (len(value) - first) // 2],
        lambda value, first: b"",
        lambda value, first: np.array([0], "<i8").tobytes() + value[8:],
    ],
    ids=["NaN", "4 bytes short", "3 bytes short", "half", "empty", "number of passages"],
)
def test_damaged_vectors_are_made_anew(encoder, embedded, tmp_path, warnings, damage):
    """With a warning that names their file."""
    expected = make_index(encoder, cache_dir=tmp_path).search(QUERIES)
    whole = entries_of(tmp_path)
    key, value = whole[0]
    with closing(sqlite3.connect(tmp_path / "vectors.sqlite")) as connection, connection:
        connection.execute("UPDATE entries SET value = ? WHERE key = ?", (damage(value, start_of_vectors(value)), key))
    embedded.clear()
    assert_same(make_index(encoder, cache_dir=tmp_path).search(QUERIES), expected)
    assert len(embedded) == 1
    assert warnings == [f"{tmp_path / 'vectors.sqlite'}: 1 entries are damaged, and are made anew."]
    assert [key for key, _ in entries_of(tmp_path)] == [key for key, _ in whole]
    # Once.
    embedded.clear()
    assert_same(make_index(encoder, cache_dir=tmp_path).search(QUERIES), expected)
    assert embedded == [] and len(warnings) == 1


def test_a_file_that_is_no_database_is_named(encoder, tmp_path):
    (tmp_path / "vectors.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(OSError, match="The cache .*vectors.sqlite cannot be used .*: delete this file if it is damag"):
        make_index(encoder, cache_dir=tmp_path).search(QUERIES)


def test_several_indexes_with_one_folder(encoder, tmp_path, embedded):
    """Each finds its own; what another one drops is made anew."""
    expected = make_index(encoder).search(QUERIES)
    first = make_index(encoder, cache_dir=tmp_path)
    first.search(QUERIES)
    second = make_index(encoder, cache_dir=tmp_path)
    other = make_index(encoder, ["a dog", "new"], cache_dir=tmp_path)
    assert len(other.vectors) == 2 and len(entries_of(tmp_path)) == 7
    embedded.clear()
    assert_same(make_index(encoder, cache_dir=tmp_path).search(QUERIES), expected)
    assert embedded == []
    other.prune()
    assert len(entries_of(tmp_path)) == 2
    for index in (first, second):
        assert_same(index.search(QUERIES), expected)


def test_words_are_kept(encoder, tmp_path, monkeypatch, warnings):
    index = make_index(encoder, LONG, chunk_size=12, cache_dir=tmp_path)
    expected = index.search(QUERIES, bm25_weight=0.3)
    folders = sorted(tmp_path.glob("words-*"))
    # Those of passages, and of documents.
    assert len(folders) == 2

    def stop(*args, **options):
        raise RuntimeError("words are counted again")

    import bm25s

    with monkeypatch.context() as patch:
        patch.setattr(bm25s.BM25, "index", stop)
        same = make_index(encoder, LONG, chunk_size=12, cache_dir=tmp_path)
        assert same.search(QUERIES, bm25_weight=0.3) == expected
    assert warnings == []
    # Damaged ones are made anew, with a warning that names them.
    for file in folders[0].glob("*.npy"):
        file.write_bytes(file.read_bytes()[:-4] + b"\xff" * 4)
    again = make_index(encoder, LONG, chunk_size=12, cache_dir=tmp_path)
    assert again.search(QUERIES, bm25_weight=0.3) == expected
    assert warnings == [f"{folders[0]}: the kept words are damaged, and are made anew."]
    assert make_index(encoder, LONG, chunk_size=12, cache_dir=tmp_path).search(QUERIES, bm25_weight=0.3) == expected
    assert len(warnings) == 1
    # A missing file is as damaged.
    next(folders[1].glob("*.npy")).unlink()
    again = make_index(encoder, LONG, chunk_size=12, cache_dir=tmp_path)
    assert again.search(QUERIES, bm25_weight=0.3) == expected
    # Those of other texts are deleted when they are no longer wanted.
    again.update(TEXTS)
    assert again.search(QUERIES, bm25_weight=0.3) and set(folders) < set(tmp_path.glob("words-*"))
    again.prune()
    assert not set(folders) & set(tmp_path.glob("words-*"))
    assert len(entries_of(tmp_path)) == len(TEXTS)


def test_an_index_that_another_process_makes_is_waited_for(encoder, tmp_path, embedded, infos):
    """The second embeds nothing of what the first has embedded."""
    first = make_index(encoder, cache_dir=tmp_path)
    second = make_index(encoder, cache_dir=tmp_path)
    inside, embed = [], hf_dse.retrieval.index.embed

    with ThreadPoolExecutor(1) as pool, pytest.MonkeyPatch.context() as patch:

        def slow(model, texts, kind, **options):
            # The second starts while the first holds the lock.
            if not inside:
                inside.append(pool.submit(lambda: second.vectors))
                end = time.monotonic() + 30
                while not any("Another process makes" in message for message in infos) and time.monotonic() < end:
                    time.sleep(0.01)
            return embed(model, texts, kind, **options)

        patch.setattr(hf_dse.retrieval.index, "embed", slow)
        expected = first.vectors
        np.testing.assert_array_equal(inside[0].result(60), expected)
    assert sorted(embedded) == sorted(TEXTS)
    assert any(message == f"Another process makes {tmp_path}: waiting for it." for message in infos)


# The caller's model, and threads


class LastPosition(torch.nn.Module):
    """Padding on the left is what the caller wants."""

    def forward(self, features, **options):
        return features | {"sentence_embedding": features["token_embeddings"][:, -1]}


def test_the_models_of_the_caller_stay_as_they_are(save_bert, encoder, tmp_path):
    model = SentenceTransformer(modules=[encoder[0], LastPosition()], device="cpu")
    model = copy.deepcopy(model)
    model.tokenizer.padding_side = "left"
    model.tokenizer.model_input_names = ["input_ids"]
    rankings = make_rankings({"query": ["cat"], "documents": [[0]], "labels": [[1]]}, {"text": TEXTS})
    for call in (
        lambda: search(model, ["cat"], TEXTS, max_length=8, **QUIET),
        lambda: mine(rankings, model, **QUIET),
        lambda: score(model, rankings, **QUIET),
    ):
        before = model.encode(TEXTS, show_progress_bar=False)
        call()
        np.testing.assert_array_equal(model.encode(TEXTS, show_progress_bar=False), before)
        tokenizer = model.tokenizer
        assert (tokenizer.padding_side, tokenizer.model_input_names) == ("left", ["input_ids"])
        assert model.max_seq_length == encoder.max_seq_length
    options = {"num_labels": 1, "type_vocab_size": 1}
    reranker = CrossEncoder(str(save_bert(tmp_path, BertForSequenceClassification, **options)), device="cpu")
    reranker.tokenizer.padding_side, reranker.max_seq_length = "left", 40
    names = list(reranker.tokenizer.model_input_names)
    load_reranker(reranker, max_length=32)
    search(encoder, ["cat"], TEXTS, reranker=reranker, **QUIET)
    assert (reranker.tokenizer.padding_side, reranker.max_seq_length) == ("left", 40)
    assert reranker.tokenizer.model_input_names == names


def test_several_threads_find_what_one_finds(save_bert, bert_tokenizer, tmp_path):
    """One model in all threads: vectors of two lengths, searches, and the model itself beside them."""
    folder = save_bert(tmp_path / "bert")
    model = SentenceTransformer(str(folder), device="cpu")
    bert = BertModel.from_pretrained(folder).eval()
    draw = random.Random(0)
    texts = [" ".join(draw.choice(["cat", "dog", "räder", "house", "old"]) for _ in range(40)) for _ in range(24)]
    queries = [" ".join(draw.choice(["cat", "dog", "räder"]) for _ in range(4)) for _ in range(4)]
    index = make_index(model, texts, chunk_size=16)

    def vectors(length):
        encoder = to_sentence_transformer(bert, bert_tokenizer, max_length=length)
        return encoder.encode(texts, show_progress_bar=False)

    def scores_in(found):
        return np.array([hit["score"] for hit in sorted(found[0], key=lambda hit: hit["row"])])

    calls = [(vectors, 8), (vectors, 64)]
    calls += [(lambda query: scores_in(search(model, [query], texts, top_k=24, **QUIET)), query) for query in queries]
    calls += [(lambda query: scores_in(index.search([query], 24, bm25_weight=0.3)), query) for query in queries]
    calls += [(lambda _: model.encode(texts, show_progress_bar=False), 0)]
    with ThreadPoolExecutor(8) as pool:
        # The index itself is made by several threads at once.
        found = list(pool.map(lambda call: call[0](call[1]), calls * 4))
    expected = [function(argument) for function, argument in calls]
    for value, right in zip(found, expected * 4, strict=True):
        np.testing.assert_allclose(value, right, rtol=0, atol=1e-5)


def test_what_a_reranker_does_not_score_comes_last(encoder):
    scores = [0.1, math.nan, 0.9, 0.5, math.nan]
    index = make_index(encoder)
    hits = index.search(["cat"], 5, reranker=lambda queries, texts: [scores], rerank_weight=1)[0]
    assert [hit["rerank"] for hit in hits[:3]] == [0.9, 0.5, 0.1] and all(
        math.isnan(hit["rerank"]) for hit in hits[3:]
    )


@pytest.mark.parametrize(
    "form",
    [
        np.array,
        tuple,
        lambda rows: torch.tensor(rows, requires_grad=True),
        lambda rows: [torch.tensor(row, dtype=torch.bfloat16) for row in rows],
        lambda rows: [[torch.tensor(value) for value in row] for row in rows],
        lambda rows: (map(str, row) for row in rows),
    ],
    ids=["array", "tuple", "tensor", "rows", "numbers", "generator"],
)
def test_the_numbers_of_a_reranker_may_have_any_form(encoder, form):
    """A tensor had no spread, so the order stayed that of the search."""
    values = {text: -float(len(text)) for text in TEXTS}

    def of_lists(_, texts):
        return [[values[text] for text in row] for row in texts]

    index = make_index(encoder)
    expected = index.search(QUERIES, reranker=of_lists)
    assert_same(index.search(QUERIES, reranker=lambda *given: form(of_lists(*given))), expected)
    assert [hit["row"] for hit in expected[0]] != [hit["row"] for hit in index.search(QUERIES)[0]]


@pytest.mark.parametrize("nothing", [None, math.nan, -math.inf])
def test_other_texts_keep_their_order_beside_one_without_a_score(encoder, nothing):
    values = [5.0, 1.0, nothing, 3.0, 4.0]
    hits = make_index(encoder).search(["cat"], reranker=lambda *_: [values], rerank_weight=1)[0]
    assert [hit["rerank"] for hit in hits[:4]] == [5.0, 4.0, 3.0, 1.0] and math.isnan(hits[4]["blend"])
    blended = make_index(encoder).search(["cat"], reranker=lambda *_: [values])[0]
    assert math.isnan(blended[4]["blend"]) and not any(math.isnan(hit["blend"]) for hit in blended[:4])


def test_numbers_that_do_not_fit_the_passages_are_refused(encoder):
    index = make_index(encoder)
    for values, error, message in (
        ([[1.0]] * 2, ValueError, r"returned \[1, 1\] numbers for \[5, 5\] passages"),
        ([[1.0] * 5], ValueError, r"returned \[5\] numbers for \[5, 5\] passages"),
        ([[1.0] * 4 + [math.inf]] * 2, ValueError, "returned an infinite score"),
        (np.ones((2, 5, 1)), TypeError, "has to return lists of numbers, one list for each query"),
        ([["a"] * 5] * 2, TypeError, "could not convert string to float"),
        (1.0, TypeError, "one list for each query"),
    ):
        with pytest.raises(error, match=message):
            index.search(QUERIES, reranker=lambda *_, values=values: values)


def test_names_of_texts(encoder, tmp_path):
    """Any list, and what cannot be saved says why."""
    for values in (range(5), np.arange(5), torch.arange(5), (number for number in range(5))):
        index = make_index(encoder, ids=values)
        index.save(tmp_path)
        assert Index.load(tmp_path, encoder, **QUIET).ids == [*range(5)] == index.ids
    for values, kinds in (([1, 2.5, 3, 4, 5], "float, int"), ([1, "b", None, 2, 3], "NoneType, int, str")):
        with pytest.raises(TypeError, match=f"The ids are of the types {kinds}: to be saved"):
            make_index(encoder, ids=values).save(tmp_path)
    for name in ("ids", "groups"):
        with pytest.raises(TypeError, match=f"`{name}` is one text"):
            make_index(encoder, **{name: "abcde"})
    assert len(make_index(encoder, groups=(number // 2 for number in range(5))).search(["cat"])[0]) == 3


def test_half_of_a_character_is_refused(encoder):
    """No tokenizer reads what `errors="surrogateescape"` leaves."""
    for texts, queries in ((["a", "caf\udce9"], ["a"]), (["a"], ["a", "caf\udce9"])):
        with pytest.raises(ValueError, match="row 1: the text is .* with half of a character: decode it with"):
            make_index(encoder, texts).search(queries)


def test_texts_without_a_group_are_said(encoder, warnings):
    make_index(encoder, groups=["a", None, None, "b", math.nan])
    assert "3 of 5 texts have no group, so they are one document" in warnings[-1]


def test_vectors_of_the_other_side_of_long_texts_are_not_kept(encoder, tmp_path):
    model, texts = copy.deepcopy(encoder), ["cat " * 100 + "dog " * 100]
    sides = []
    for side in ("right", "left"):
        model.tokenizer.truncation_side = side
        sides.append(make_index(model, texts, cache_dir=tmp_path).vectors)
    assert np.abs(sides[0] - sides[1]).max() > 1e-3


def test_vectors_of_another_adapter_are_not_kept(encoder, tmp_path):
    peft = pytest.importorskip("peft")
    model, found = copy.deepcopy(encoder), []
    for name in "AB":
        options = {"target_modules": ["query", "value"], "lora_alpha": 64, "init_lora_weights": False}
        model.transformers_model.add_adapter(peft.LoraConfig(r=4, **options), name)
    for name in "AB":
        model.transformers_model.set_adapter(name)
        found.append(make_index(model, cache_dir=tmp_path).vectors)
        np.testing.assert_array_equal(found[-1], make_index(model).vectors)
    model.transformers_model.disable_adapters()
    found.append(make_index(model, cache_dir=tmp_path).vectors)
    assert all(np.abs(first - second).max() > 1e-3 for first, second in combinations(found, 2))
