# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Transformers' common tests of configurations and models, for all our classes and for BERT: what they skip for BERT on
this machine is all that they may skip for us.
"""

import unittest

import torch
from transformers import BertConfig, BertForSequenceClassification, BertModel, EuroBertConfig, ModernBertConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES, MODEL_MAPPING_NAMES
from transformers_tests.test_configuration_common import ConfigTester
from transformers_tests.test_modeling_common import ModelTesterMixin, ids_tensor, random_attention_mask

from hf_dse import DseConfig, DseForSequenceClassification, DseModel


# These tables say the purpose of a class: with them the suite makes labels and tests the losses of our head, too.
MODEL_MAPPING_NAMES["dse"] = DseModel.__name__
MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES["dse"] = DseForSequenceClassification.__name__

CLS, SEP = 97, 98
SIZES = {"vocab_size": 99, "intermediate_size": 37, "max_position_embeddings": 64}
SPECIAL = {"pad_token_id": 0, "bos_token_id": CLS, "eos_token_id": SEP, "cls_token_id": CLS, "sep_token_id": SEP}


class ModelTester:
    batch_size, seq_length, num_hidden_layers, hidden_size, num_attention_heads = 13, 7, 2, 32, 4
    is_training = True
    encoder_class, encoder_fields = BertConfig, {}

    def __init__(self, parent, **fields):
        self.parent = parent
        self.fields = fields

    def get_config(self):
        return self.encoder_class(
            hidden_size=self.hidden_size,
            num_hidden_layers=self.num_hidden_layers,
            num_attention_heads=self.num_attention_heads,
            **SIZES,
            **self.encoder_fields,
        )

    def prepare_config_and_inputs_for_common(self):
        shape = (self.batch_size, self.seq_length)
        inputs = {"input_ids": ids_tensor(shape, CLS), "attention_mask": random_attention_mask(shape)}
        return self.get_config(), inputs


class DseModelTester(ModelTester):
    key_length = 5  # the projected length k: below seq_length, so that the linear path runs

    def get_config(self):
        return DseConfig(
            encoder=super().get_config(), linformer_length=self.key_length, sep_token_id=SEP, **self.fields
        )


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


ALWAYS_LINEAR = "the encoder inside always has linear attention"


class DseTesterMixin(ModelTesterMixin):
    _is_composite = True
    make_tester, fields = DseModelTester, {}
    # Tests that our classes skip beyond BERT, and why.
    stated_reasons = {
        "test_attn_implementation_composite_models": ALWAYS_LINEAR,
        "test_can_set_attention_dynamically": ALWAYS_LINEAR,
        "test_can_set_attention_dynamically_composite_model": ALWAYS_LINEAR,
        "test_sdpa_can_dispatch_non_composite_models": "a DSE model is a composite",
    }
    # ModernBERT initializes weights by their parents, which transformers leaves out for classes that are not its own.
    of_modernbert = {"test_can_init_all_missing_weights": "modules without weights of their own initialize nothing"}

    def setUp(self):
        if reason := self.stated_reasons.get(self._testMethodName):
            self.skipTest(f"Stated: {reason}")
        self.model_tester = self.make_tester(self, **self.fields)

    def _set_subconfig_attributes(self, config, attribute_name, value):
        # Configurations take this with eager attention only, and the one of the composite is handed on.
        if attribute_name != "output_attentions":
            super()._set_subconfig_attributes(config, attribute_name, value)


class TestDseModel(DseTesterMixin, unittest.TestCase):
    all_model_classes = (DseModel,)

    def test_config(self):
        ConfigTester(self, config_class=DseConfig, has_text_modality=False, projection_dim=36).run_common_tests()

    def _prepare_config_and_inputs_for_retain_grad_hidden_states_attentions(self):
        # Where padding stands before tokens, recorded states are copies in the order of the input, beside the graph.
        config, inputs = self.model_tester.prepare_config_and_inputs_for_common()
        inputs["attention_mask"] = inputs["attention_mask"].sort(dim=1, descending=True).values
        return config, inputs


class TestDseForSequenceClassification(DseTesterMixin, unittest.TestCase):
    all_model_classes = (DseForSequenceClassification,)
    make_tester = DsePairTester
    additional_model_inputs = ["token_type_ids"]

    def test_can_load_ignoring_mismatched_shapes(self):
        # The suite looks for a linear layer with one row per label, and only this head has one.
        self.model_tester = DsePairTester(self, similarity="mlp")
        super().test_can_load_ignoring_mismatched_shapes()


class TestDseModelOfEuroBert(TestDseModel):
    """Key heads that are shared, a layer of each kind, kernels for each, and an embedding of another size."""

    class make_tester(DseModelTester):
        encoder_class, encoder_fields = EuroBertConfig, {"num_key_value_heads": 2, "mask_token_id": 4, **SPECIAL}

    fields = {
        "layer_types": ["linear_attention", "full_attention"],
        "linformer_projection": "mean",
        "linformer_sharing": "none",
        "projection_dim": 24,
    }


class TestDseModelOfModernBert(TestDseModel):
    """A linear layer, and one of windows."""

    class make_tester(DseModelTester):
        encoder_class, encoder_fields = ModernBertConfig, {"local_attention": 4, **SPECIAL}

    stated_reasons = DseTesterMixin.stated_reasons | DseTesterMixin.of_modernbert


class TestDseForSequenceClassificationOfModernBert(TestDseForSequenceClassification):
    """One projection for all layers, and the head of DSE."""

    class make_tester(DsePairTester):
        encoder_class, encoder_fields = ModernBertConfig, {"global_attn_every_n_layers": 1, **SPECIAL}

    fields = {
        "linformer_projection": "learned",
        "linformer_sharing": "layerwise",
        "pooling_mode": "cls",
        "similarity": "mlp",
    }
    stated_reasons = DseTesterMixin.stated_reasons | DseTesterMixin.of_modernbert


del ModelTesterMixin, DseTesterMixin
