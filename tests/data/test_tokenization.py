# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Tokens, limits, and batches of similar length."""

import pytest
from transformers import (
    BertForSequenceClassification,
    RobertaConfig,
    RobertaModel,
)

from hf_dse import DseConfig, DseModel
from hf_dse.data.tokenization import (
    check_max_length,
    check_vocabulary,
    length_batches,
    max_tokens,
    warn_of_texts,
)


def test_batches_hold_each_text_once():
    sizes = [3, 700, 5, 90, 4, 2000, 3, 80]
    batches = list(length_batches(sizes, 4))
    assert sorted(row for batch in batches for row in batch) == list(range(8))
    assert batches[0] == [5]
    for batch in batches:
        assert len(batch) <= 4 and max(sizes[row] for row in batch) * len(batch) <= max(4 * 512, sizes[batch[0]])


def test_limits(save_bert, bert_tokenizer, tmp_path):
    model = BertForSequenceClassification.from_pretrained(save_bert(tmp_path, BertForSequenceClassification))
    assert max_tokens(model, bert_tokenizer) == check_max_length(None, model, bert_tokenizer) == 64
    assert check_max_length(3, model, bert_tokenizer) == 3
    for limit, is_pair, message in (
        (65, False, "max_length=65 is above the 64 tokens this model takes: pass at most 64"),
        (2, False, "max_length=2 leaves no room for a text: pass at least 3"),
        (4, True, "max_length=4 leaves no room for two sentences: pass at least 5"),
    ):
        with pytest.raises(ValueError, match=message):
            check_max_length(limit, model, bert_tokenizer, is_pair)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    roberta = RobertaModel(RobertaConfig(vocab_size=9, max_position_embeddings=34, pad_token_id=1, **sizes))
    # Positions start after the padding index.
    assert max_tokens(roberta, bert_tokenizer) == 32
    assert max_tokens(DseModel(DseConfig(encoder=roberta.config)), bert_tokenizer) == 32
    longer = DseModel(DseConfig(encoder=roberta.config, max_position_embeddings=100))
    assert max_tokens(longer, bert_tokenizer) == 100
    with pytest.raises(ValueError, match=f"has {len(bert_tokenizer)} tokens, but RobertaModel has embeddings for 9"):
        check_vocabulary(roberta, bert_tokenizer)


def test_words_that_are_too_long_for_the_vocabulary_are_said(bert_tokenizer, warnings):
    """WordPiece makes one unknown token of more than 100 letters, also in ASCII, such as of DNA."""
    warn_of_texts(bert_tokenizer, ["a cat", "GATTACA" * 20])
    assert "1 of 2 texts are mostly unknown to the vocabulary" in warnings[-1]
