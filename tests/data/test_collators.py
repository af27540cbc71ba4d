# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Batches of pairs and of texts."""

import torch

from hf_dse.data.collators import PairCollator


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
