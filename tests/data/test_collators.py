# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Batches of texts, pairs and rankings. The tests of the trainers have more."""

import math

import pytest
import torch
from datasets import Dataset
from transformers import ByT5Tokenizer, PreTrainedTokenizerFast

from hf_dse.data.collators import PairCollator, RankingCollator, RankingRows, TextCollator
from hf_dse.data.rankings import make_rankings


FEATURES = [
    {"sentence1": "the cat sat", "sentence2": "a dog", "label": 1.5, "teacher_logits": [0.5, 2.0]},
    {"sentence1": "a", "sentence2": "the dog ran on the mat", "label": 4.0, "teacher_logits": [1.0, 0.0]},
]


def test_pairs_are_tokenized_sentence_by_sentence(bert_tokenizer):
    batch = PairCollator(bert_tokenizer, max_length=16)(FEATURES)
    assert batch.keys() == {"input_ids", "attention_mask", "labels", "teacher_logits"}
    assert batch["input_ids"].shape == batch["attention_mask"].shape == (2, 2, 8)
    for row, feature in enumerate(FEATURES):
        for place, name in enumerate(("sentence1", "sentence2")):
            real = batch["input_ids"][row, place][batch["attention_mask"][row, place].bool()]
            assert real.tolist() == bert_tokenizer(feature[name])["input_ids"]
    assert torch.equal(batch["labels"], torch.tensor([1.5, 4.0]))
    assert torch.equal(batch["teacher_logits"], torch.tensor([[0.5, 2.0], [1.0, 0.0]]))


def test_classes_unknown_targets_and_vectors(bert_tokenizer):
    collator = PairCollator(bert_tokenizer, max_length=16)
    pair = {"sentence1": "a", "sentence2": "cat"}
    assert collator([pair]).keys() == {"input_ids", "attention_mask"}
    assert torch.equal(collator([{**pair, "label": 2}])["labels"], torch.tensor([2]))
    rows = [{**pair, "label": 1, "teacher_logits": None}]
    rows += [{**pair, "label": None, "teacher_logits": [2.0, 3.0]}]
    assert collator([{**rows[0], "teacher_logits": [None, 1.0]}, rows[1]])["teacher_logits"][0].isnan().all()
    batch = collator(rows)
    assert batch["labels"][0] == 1.0 and batch["labels"][1].isnan()
    assert batch["teacher_logits"][0].isnan().all() and batch["teacher_logits"][1].tolist() == [2.0, 3.0]


def test_cut_sentences_are_counted_and_warned_about_once(bert_tokenizer, warnings):
    collator = PairCollator(bert_tokenizer, max_length=5)
    batch = collator(FEATURES)
    assert batch["input_ids"].shape == (2, 2, 5)
    # "the cat sat" fills the limit but is whole; only the longest sentence is cut, and keeps its [SEP].
    assert collator.n_truncated == 1
    assert batch["input_ids"][1, 1, -1] == bert_tokenizer.sep_token_id
    collator(FEATURES[1:] * 2)
    assert collator.n_truncated == 3
    assert len(warnings) == 1 and "1 of 4 sentences" in warnings[0] and "raise `max_length`" in warnings[0]


def test_a_tokenizer_that_returns_no_mask(bert_tokenizer):
    """Padding would be read as text."""
    plain = PreTrainedTokenizerFast(tokenizer_object=bert_tokenizer.backend_tokenizer, pad_token="[PAD]")
    plain.model_input_names = ["input_ids"]
    batch = TextCollator(plain, 8)([{"text": "a cat"}, {"text": "a"}])
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]


def test_cut_texts_are_counted(bert_tokenizer):
    """Also by tokenizers in Python, which do not say what they have cut."""
    for tokenizer, sizes in ((bert_tokenizer, [3, 4, 4, 4]), (ByT5Tokenizer(), [2, 4, 4, 4])):
        collator = TextCollator(tokenizer, 4)
        batch = collator([{"text": text} for text in ("a", "a b", "abcdef", "a b c d")])
        assert batch["attention_mask"].sum(dim=1).tolist() == sizes
        assert collator.n_truncated == 2


def test_texts_without_tokens_are_named(bert_tokenizer):
    plain = PreTrainedTokenizerFast(tokenizer_object=bert_tokenizer.backend_tokenizer, pad_token="[PAD]")
    plain.backend_tokenizer.post_processor = None
    with pytest.raises(ValueError, match="The text '' has no tokens, so it has no embedding: remove it"):
        TextCollator(plain, 8)([{"text": "a"}, {"text": ""}])


@pytest.fixture
def rankings():
    queries = {
        "query": ["a cat", "A  cat", "the dog"],
        "documents": [[0, 1, 2], [3, 4], [4, 0]],
        "labels": [[1, 0, None], [1, 0], [0, 0]],
        "teacher_logits": [[3.0, 1.0, None], [2.0, 0.0], [1.0, 0.5]],
    }
    return make_rankings(queries, {"text": ["the cat", "a mat", "The Cat ", "cats", "a dog ran on", "unused"]})


def test_items_of_rankings(rankings, bert_tokenizer):
    """An index is row and epoch; texts with equal tokens have one number, and such queries share their positives."""
    rows = RankingRows(rankings, 2, 0, processing_class=bert_tokenizer)
    assert len(rows) == 3
    items = [rows[epoch * 3] for epoch in range(20)]
    # Of "the cat" and "The Cat " that with a label.
    assert all(sorted(item["documents"]) == ["a mat", "the cat"] for item in items)
    assert all(item["documents"][0] == "the cat" and item["labels"].tolist() == [1, 0] for item in items)
    assert rows[0]["positives"] == rows[1]["positives"] == [0, 3] and rows[2]["positives"] == []
    rows = RankingRows(rankings, 2, 0)
    items = [rows[epoch * 3] for epoch in range(20)]
    # A candidate with the teacher's score comes before one without.
    assert {item["documents"][1] for item in items} == {"a mat"}
    again = [RankingRows(rankings, 2, 0)[epoch * 3]["documents"] for epoch in range(20)]
    assert again == [item["documents"] for item in items]
    assert sorted(RankingRows(rankings, 9, 0)[0]["document_ids"]) == [0, 1, 2]


def test_case_is_a_difference_where_tokens_differ(bert_tokenizer, roberta_tokenizer, warnings):
    queries = {"query": ["price of Co", "price of CO"], "documents": [[0, 1], [2]], "labels": [[1, 0], [1]]}
    corpus = {"text": ["5 MW", "5 mW", "5\n\nMW"]}
    rows = RankingRows(make_rankings(queries, corpus), 9, 0, processing_class=roberta_tokenizer)
    assert rows.text_ids.tolist() == [0, 1, 2] and rows.positives == [[0], [2]] and not warnings
    rows = RankingRows(make_rankings(queries, corpus), 9, 0, processing_class=bert_tokenizer)
    assert rows.text_ids.tolist() == [0, 0, 0] and rows.positives == [[0], [0]]
    assert rows[0]["documents"] == ["5 MW"] and rows[0]["labels"].tolist() == [1]
    assert (
        "1 candidates have the tokens of another one of their query, and another label, such as '5 mW'" in warnings[0]
    )


def test_a_batch_of_rankings(rankings, bert_tokenizer, warnings):
    pairs = Dataset.from_dict({"sentence1": ["a"], "sentence2": ["b"], "label": [1.0]})
    rows = RankingRows(rankings, 3, 0, pairs)
    prompts = {"query": "of ", "document": "in "}
    collator = RankingCollator(bert_tokenizer, max_length=6, query_max_length=5, prompts=prompts)
    batch = collator([rows[0], rows[1], rows[2], rows[3]])
    texts = [bert_tokenizer.decode(ids, skip_special_tokens=True) for ids in batch["document_input_ids"]]
    # Each text once, with its prompt, and at most 6 tokens.
    assert sorted(texts) == ["in a dog ran", "in a mat", "in cats", "in the cat", "in the cat"]
    assert bert_tokenizer.decode(batch["query_input_ids"][0], skip_special_tokens=True) == "of a cat"
    assert collator.n_truncated == 1 and "1 of 5 document texts" in warnings[0] and "raise `max_length`" in warnings[0]
    for number in range(3):
        places = batch["documents"][number]
        known = [texts[place].removeprefix("in ") for place in places if place >= 0]
        expected = [text.lower().strip().replace(" on", "") for text in rows[number]["documents"]]
        assert known == expected
    assert batch["positives"].tolist() == [[0], [3], [-1]]
    assert batch["labels"].shape == batch["teacher_logits"].shape == (3, 3)
    assert batch["labels"][1, 2].isnan() and batch["pair_input_ids"].shape == (1, 2, 3)
    assert collator([rows[3]]).keys() == {"pair_input_ids", "pair_attention_mask", "pair_labels"}


@pytest.mark.parametrize(
    ("labels", "threshold", "first", "second"),
    [
        # The best grade alone is a positive; a lower one is no negative either.
        ([5, 2, 1], None, {0: 1}, {1: math.nan, 2: math.nan}),
        ([0.93, 0.08, 0.02], None, {0: 1}, {1: math.nan, 2: math.nan}),
        ([2, 5, 5], None, {1: 1, 2: 1}, {1: 1, 2: 1, 0: math.nan}),
        ([1, None, 3], 2, {2: 1}, {0: 0, 1: math.nan}),
        ([1, 1, 0], None, {0: 1, 1: 1}, {2: 0}),
        ([1, 1, 0], 2, {0: 0, 1: 0, 2: 0}, {0: 0, 1: 0, 2: 0}),
    ],
)
def test_positives_have_the_best_grade(labels, threshold, first, second):
    """A low grade may mean bad: of 5, 2 and 1 the last was the positive of every third epoch."""
    columns = {"query": ["q"], "documents": [[0, 1, 2]], "labels": [labels]}
    rankings = make_rankings(columns, {"text": list("abc")}, relevance_threshold=threshold)
    rows, drawn = RankingRows(rankings, num_candidates=2, seed=0), ({}, {})
    for epoch in range(60):
        item = rows[epoch]
        for place, (text, label) in enumerate(zip(item["documents"], item["labels"].tolist(), strict=True)):
            drawn[place]["abc".index(text)] = label
    # Relevant ones come after others, the best first.
    assert repr(dict(sorted(drawn[0].items()))) == repr({row: float(label) for row, label in sorted(first.items())})
    found = {row: float(label) for row, label in sorted(second.items())}
    if labels == [2, 5, 5]:
        del found[0]
    assert repr(dict(sorted(drawn[1].items()))) == repr(found)
    assert rows[0]["positives"] == rankings.positives()[0]


def test_a_smaller_corpus_keeps_the_candidates(rankings):
    smaller = rankings.keep_documents()
    assert len(smaller.corpus) == 5 and len(rankings.keep_documents([5]).corpus) == 6
    part = rankings.select([2]).keep_documents()
    assert part.queries["documents"][0] == [1, 0] and part.corpus["text"][:] == ["the cat", "a dog ran on"]


def test_other_passages_of_a_relevant_document_are_no_negatives(bert_tokenizer):
    """Of equal queries together; texts that two documents have are those of the first."""
    corpus = {"text": ["a cat", "a mat", "a dog", "A  MAT", "cats"], "passage_of": ["x", "x", "y", "y", "z"]}
    queries = {"query": ["q", "Q", "other"], "documents": [[0, 2], [2], [4, 1, 3]], "labels": [[1, 0], [1], [0, 0, 0]]}
    rows = RankingRows(make_rankings(queries, corpus), 2, 0, processing_class=bert_tokenizer)
    assert [rows[row]["positives"] for row in range(3)] == [[0, 1, 2], [0, 1, 2], []]
