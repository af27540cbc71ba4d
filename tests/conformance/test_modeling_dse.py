# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Transformers' common tests of configurations and models, for all our classes and for BERT: what they skip for BERT on
this machine is all that they may skip for us.
"""

import unittest

import torch
from transformers import BertConfig, BertForSequenceClassification, BertModel
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES, MODEL_MAPPING_NAMES
from transformers_tests.test_configuration_common import ConfigTester
from transformers_tests.test_modeling_common import ModelTesterMixin, ids_tensor, random_attention_mask

from hf_dse import DseConfig, DseForSequenceClassification, DseModel


# These tables say the purpose of a class: with them the suite makes labels and tests the losses of our head, too.
MODEL_MAPPING_NAMES["dse"] = DseModel.__name__
MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES["dse"] = DseForSequenceClassification.__name__

CLS, SEP = 97, 98
SIZES = {"vocab_size": 99, "intermediate_size": 37, "max_position_embeddings": 64}


class ModelTester:
    batch_size, seq_length, num_hidden_layers, hidden_size, num_attention_heads = 13, 7, 2, 32, 4
    config_class = BertConfig
    is_training = True

    def __init__(self, parent, **fields):
        self.parent = parent
        self.fields = fields

    def get_config(self):
        return self.config_class(
            hidden_size=self.hidden_size,
            num_hidden_layers=self.num_hidden_layers,
            num_attention_heads=self.num_attention_heads,
            **SIZES,
            **self.fields,
        )

    def prepare_config_and_inputs_for_common(self):
        shape = (self.batch_size, self.seq_length)
        inputs = {
            "input_ids": ids_tensor(shape, CLS),
            "token_type_ids": ids_tensor(shape, 2),
            "attention_mask": random_attention_mask(shape),
        }
        return self.get_config(), inputs


class DseModelTester(ModelTester):
    key_length = 5  # the projected length k: below seq_length, so that the linear path runs
    config_class = DseConfig

    def __init__(self, parent, **fields):
        super().__init__(parent, linformer_length=self.key_length, cls_token_id=CLS, sep_token_id=SEP, **fields)


class DsePairTester(DseModelTester):
    """
    Pairs `[CLS] a [SEP] b [SEP]`. The model splits them into 2 * batch_size sentences, whose hidden states and
    attentions it returns; `encoder_seq_length` is their length.
    """

    seq_length, encoder_seq_length = 12, 7

    def prepare_config_and_inputs_for_common(self):
        input_ids = ids_tensor((self.batch_size, self.seq_length), CLS)
        input_ids[:, 0] = CLS
        input_ids[:, [6, 11]] = SEP
        token_type_ids = torch.zeros_like(input_ids)
        token_type_ids[:, 7:] = 1
        inputs = {
            "input_ids": input_ids,
            "token_type_ids": token_type_ids,
            "attention_mask": torch.ones_like(input_ids),
        }
        return self.get_config(), inputs


class TestBert(ModelTesterMixin, unittest.TestCase):
    all_model_classes = (BertModel, BertForSequenceClassification)

    def setUp(self):
        self.model_tester = ModelTester(self)

    def test_config(self):
        ConfigTester(self, config_class=BertConfig, hidden_size=37).run_common_tests()


class TestDseModel(ModelTesterMixin, unittest.TestCase):
    all_model_classes = (DseModel,)

    def setUp(self):
        self.model_tester = DseModelTester(self)

    def test_config(self):
        ConfigTester(self, config_class=DseConfig, hidden_size=36).run_common_tests()

    def _prepare_config_and_inputs_for_retain_grad_hidden_states_attentions(self):
        # Where padding stands before tokens, recorded states are copies in the order of the input, beside the graph.
        config, inputs = self.model_tester.prepare_config_and_inputs_for_common()
        inputs["attention_mask"] = inputs["attention_mask"].sort(dim=1, descending=True).values
        return config, inputs


class TestDseForSequenceClassification(ModelTesterMixin, unittest.TestCase):
    all_model_classes = (DseForSequenceClassification,)
    additional_model_inputs = ["token_type_ids"]

    def setUp(self):
        self.model_tester = DsePairTester(self)

    def test_can_load_ignoring_mismatched_shapes(self):
        # The suite looks for a linear layer with one row per label, and only this head has one.
        self.model_tester = DsePairTester(self, similarity="mlp")
        super().test_can_load_ignoring_mismatched_shapes()


class TestDseModelOtherChoices(TestDseModel):
    """A layer of each kind, a projection per head with kernels, and an embedding of another size."""

    def setUp(self):
        self.model_tester = DseModelTester(
            self,
            layer_types=["linear_attention", "full_attention"],
            linformer_projection="conv",
            linformer_init="mean",
            linformer_sharing="none",
            pooling_mode="max",
            pooling_layers=2,
            projection_dim=24,
        )


class TestDseForSequenceClassificationOtherChoices(TestDseForSequenceClassification):
    """One projection for all layers, and the head of DSE."""

    def setUp(self):
        self.model_tester = DsePairTester(self, linformer_sharing="layerwise", pooling_mode="cls", similarity="mlp")


del ModelTesterMixin
