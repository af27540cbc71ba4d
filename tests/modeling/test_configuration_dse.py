# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Configurations: impossible values are refused, whatever is accepted makes a model, and files keep all fields."""

import json

import pytest
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig, ModernBertConfig

from hf_dse import DseConfig, DseModel


SIZES = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "max_position_embeddings": 16,
}
TINY = {"encoder": {"model_type": "bert", **SIZES}, "linformer_length": 4}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"encoder": {"model_type": "t5"}}, "`encoder` is .* of the type 't5', which has no max_position_embeddings"),
        ({"projection_dim": 0}, "(?s)'projection_dim':.*must be a positive integer, got 0"),
        ({"linformer_length": [5, 2]}, "`linformer_length` must be at least 3"),
        ({"linformer_length": [5]}, "`linformer_length` lists 1 projected lengths for 2 layers"),
        ({"linformer_length": [4, 5], "linformer_sharing": "layerwise"}, "has one projection for all layers"),
        ({"layer_types": ["linear_attention"]}, "must name one of .* for each of the 2 layers"),
        ({"layer_types": ["linear_attention", "causal_attention"]}, "must name one of full_attention, .*causal"),
        ({"num_pair_separators": 3}, "(?s)'num_pair_separators'.*3"),
        ({"num_labels": 0}, "`num_labels` must be at least 1, got 0"),
        ({"encoder": {"model_type": "mpnet", **SIZES}, "linformer_projection": "mean"}, "MPNet .*got 'mean'"),
    ],
    ids=str,
)
def test_impossible_values(fields, message):
    with pytest.raises((ValueError, StrictDataclassError), match=message):
        DseConfig(**{**TINY, **fields})


def test_encoders_that_do_not_fit():
    with pytest.raises(ValueError, match="transformers cannot exchange the attention of the encoder 'deberta-v2'"):
        DseModel(DseConfig(encoder={"model_type": "deberta-v2", **SIZES}))


def test_defaults_are_those_of_the_encoder():
    encoder = ModernBertConfig(num_hidden_layers=4, max_position_embeddings=77, local_attention=12)
    config = DseConfig(encoder=encoder)
    assert [kind.removesuffix("_attention") for kind in config.layer_types] == ["linear", *["sliding"] * 2, "linear"]
    assert config.max_position_embeddings == 77
    # A student sets the attention of its encoder, not that of other models with the same configuration.
    assert config.encoder is not encoder and config.encoder.to_dict() == encoder.to_dict()
    assert config.vocab_size == encoder.vocab_size and config.embedding_size == encoder.hidden_size
    # Two rows of its table stand for no token.
    model = DseModel(DseConfig(encoder={"model_type": "roberta", **SIZES}))
    assert model.config.max_position_embeddings == 16 - 2


def test_a_configuration_writes_itself_and_its_code(tmp_path):
    fields = {
        "linformer_length": [4, 6],
        "layer_types": ["full_attention", "linear_attention"],
        "projection_dim": 3,
        "problem_type": "multi_label_classification",
    }
    config = DseConfig(**{**TINY, **fields})
    config.save_pretrained(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "configuration_dse.py"}
    stored = json.loads((tmp_path / "config.json").read_text())
    assert stored["model_type"] == "dse" and stored["architectures"] == ["DseModel"]
    assert stored["encoder"]["model_type"] == "bert" and stored["encoder"]["vocab_size"] == 50
    assert stored["sentence_transformers"] == {"activation_fn": "torch.nn.Sigmoid"}
    loaded = AutoConfig.from_pretrained(tmp_path)
    assert {name: getattr(loaded, name) for name in fields} == fields
    # How texts are read stands in the files of sentence-transformers.
    assert not {"prompts", "query_length", "document_length"} & stored.keys()
    loaded.save_pretrained(tmp_path / "again")
    assert json.loads((tmp_path / "again" / "config.json").read_text()) == stored
