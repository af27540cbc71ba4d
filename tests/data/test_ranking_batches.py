# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Items and batches of rankings. The tests of the trainer have more."""

import math

import pytest
from datasets import Dataset

from hf_dse.data.ranking_batches import RankingCollator, RankingRows, keep_documents
from hf_dse.data.rankings import make_rankings


@pytest.fixture
def rankings():
    queries = {
        "query": ["a cat", "A  cat", "the dog"],
        "documents": [[0, 1, 2], [3, 4], [4, 0]],
        "labels": [[1, 0, None], [1, 0], [0, 0]],
        "teacher_logits": [[3.0, 1.0, None], [2.0, 0.0], [1.0, 0.5]],
    }
    return make_rankings(queries, {"text": ["the cat", "a mat", "The Cat ", "cats", "a dog ran on", "unused"]})


def test_items_of_rankings(rankings):
    """An index is row and epoch; equal texts have one number, and equal queries share their positives."""
    rows = RankingRows(rankings, num_candidates=2, seed=0)
    assert len(rows) == 3
    items = [rows[epoch * 3] for epoch in range(20)]
    assert all(item["documents"][0] == "the cat" and len(item["documents"]) == 2 for item in items)
    # A candidate with the teacher's score comes before one without.
    assert {item["documents"][1] for item in items} == {"a mat"}
    assert {RankingRows(rankings, 3, 0)[epoch * 3]["documents"][2] for epoch in range(20)} == {"The Cat "}
    for first, second in zip(items, [RankingRows(rankings, 2, 0)[epoch * 3] for epoch in range(20)], strict=True):
        assert first["documents"] == second["documents"]
    assert rows[0]["positives"] == rows[1]["positives"] == [0, 3] and rows[2]["positives"] == []
    whole = RankingRows(rankings, 9, 0)[0]
    order = [whole["documents"].index(text) for text in ("the cat", "a mat", "The Cat ")]
    assert whole["document_ids"][order].tolist() == [0, 1, 0]
    assert whole["labels"][order[:2]].tolist() == [1, 0] and math.isnan(whole["labels"][order[2]])


def test_a_batch_of_rankings(rankings, bert_tokenizer, warnings):
    pairs = Dataset.from_dict({"sentence1": ["a"], "sentence2": ["b"], "label": [1.0]})
    rows = RankingRows(rankings, 3, 0, pairs)
    prompts = {"query": "of ", "document": "in "}
    collator = RankingCollator(bert_tokenizer, max_length=6, query_max_length=5, prompts=prompts)
    batch = collator([rows[0], rows[1], rows[2], rows[3]])
    texts = [bert_tokenizer.decode(ids, skip_special_tokens=True) for ids in batch["document_input_ids"]]
    # Each text once, with its prompt, and at most 6 tokens.
    assert sorted(texts) == ["in a dog ran", "in a mat", "in cats", "in the cat"]
    assert bert_tokenizer.decode(batch["query_input_ids"][0], skip_special_tokens=True) == "of a cat"
    assert collator.n_truncated == 1 and "1 of 4 document texts" in warnings[0] and "raise `max_length`" in warnings[0]
    for number in range(3):
        places = batch["documents"][number]
        known = [texts[place].removeprefix("in ") for place in places if place >= 0]
        expected = [text.lower().strip().replace(" on", "") for text in rows[number]["documents"]]
        assert known == expected
    assert batch["positives"].tolist() == [[0, 3], [0, 3], [-1, -1]]
    assert batch["labels"].shape == batch["teacher_logits"].shape == (3, 3)
    assert batch["labels"][1, 2].isnan() and batch["pair_input_ids"].shape == (1, 2, 3)
    assert collator([rows[3]]).keys() == {"pair_input_ids", "pair_attention_mask", "pair_labels"}


def test_a_smaller_corpus_keeps_the_candidates(rankings):
    smaller = keep_documents(rankings)
    assert len(smaller.corpus) == 5 and len(keep_documents(rankings, [5]).corpus) == 6
    part = keep_documents(rankings.select([2]))
    assert part.queries["documents"][0] == [1, 0] and part.corpus["text"][:] == ["the cat", "a dog ran on"]


def test_other_passages_of_a_relevant_document_are_no_negatives():
    """Of equal queries together; texts that two documents have are those of the first."""
    corpus = {"text": ["a cat", "a mat", "a dog", "A  MAT", "cats"], "passage_of": ["x", "x", "y", "y", "z"]}
    queries = {"query": ["q", "Q", "other"], "documents": [[0, 2], [2], [4, 1, 3]], "labels": [[1, 0], [1], [0, 0, 0]]}
    rows = RankingRows(make_rankings(queries, corpus), num_candidates=2, seed=0)
    assert [rows[row]["positives"] for row in range(3)] == [[0, 1, 2], [0, 1, 2], []]
