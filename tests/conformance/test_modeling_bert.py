# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The baseline: what the common tests skip for BERT on this machine is all that they may skip for us."""

import unittest

from transformers import BertConfig, BertForSequenceClassification, BertModel
from transformers_tests.test_configuration_common import ConfigTester
from transformers_tests.test_modeling_common import ModelTesterMixin, ids_tensor, random_attention_mask


class BertTester:
    batch_size, seq_length, num_hidden_layers, hidden_size, num_attention_heads = 13, 7, 2, 32, 4
    is_training = True

    def __init__(self, parent):
        self.parent = parent

    def get_config(self):
        return BertConfig(
            vocab_size=99,
            hidden_size=self.hidden_size,
            num_hidden_layers=self.num_hidden_layers,
            num_attention_heads=self.num_attention_heads,
            intermediate_size=37,
            max_position_embeddings=64,
            type_vocab_size=16,
        )

    def prepare_config_and_inputs_for_common(self):
        shape = (self.batch_size, self.seq_length)
        inputs = {
            "input_ids": ids_tensor(shape, 99),
            "token_type_ids": ids_tensor(shape, 16),
            "attention_mask": random_attention_mask(shape),
        }
        return self.get_config(), inputs


class TestBert(ModelTesterMixin, unittest.TestCase):
    all_model_classes = (BertModel, BertForSequenceClassification)

    def setUp(self):
        self.model_tester = BertTester(self)

    def test_config(self):
        ConfigTester(self, config_class=BertConfig, hidden_size=37).run_common_tests()


del ModelTesterMixin
