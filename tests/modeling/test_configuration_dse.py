# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Configurations: impossible values are refused, whatever is accepted makes a model, and files keep all fields."""

import json

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_dse import DseConfig, DseModel


TINY = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "max_position_embeddings": 16,
    "linformer_length": 4,
}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_attention_heads": 0}, "`num_attention_heads` must be at least 1, got 0"),
        ({"num_attention_heads": 3}, r"`hidden_size` \(16\) must be a multiple of `num_attention_heads` \(3\)"),
        ({"hidden_size": 16.0}, "'hidden_size' expected int, got float"),
        ({"linformer_length": [5, 2]}, "`linformer_length` must be at least 3"),
        ({"linformer_length": [5]}, "`linformer_length` lists 1 projected lengths for 2 layers"),
        ({"linformer_length": [4, 5], "linformer_sharing": "layerwise"}, "has one projection for all layers"),
        ({"linformer_projection": "fourier"}, "linformer_projection"),
        ({"layer_types": ["linear_attention"]}, "layer_types"),
        ({"layer_types": ["linear_attention", "sliding_attention"]}, "`layer_types` has .'sliding_attention'"),
        ({"pooling_layers": 4}, "`pooling_layers` must be between 1 and `num_hidden_layers`"),
        ({"num_pair_separators": 3}, "`num_pair_separators` must be 1 or 2, got 3"),
        ({"document_length": 17}, "`document_length` must be from 1 to `max_position_embeddings` .16., got 17"),
        ({"prompts": {"query": 3}}, "prompts"),
        ({"position_extension": "tile"}, "go together, got None and 'tile'"),
    ],
    ids=str,
)
def test_impossible_values(fields, message):
    with pytest.raises((ValueError, StrictDataclassError), match=message):
        DseConfig(**{**TINY, **fields})


NUMBERS = st.sampled_from([-1, 0, 1, 2, 3, 4, 6, 8, 16, 64, 1.5, -0.5, 0.1, float("nan"), float("inf")])
WORDS = st.sampled_from(["", "x", "gelu", "mean", "max", "cls", "strided", "learned", "conv", "cosine", "mlp", "tile"])
KINDS = st.sampled_from(["full_attention", "linear_attention", "chunked_attention", "x"])
ANY = st.one_of(
    NUMBERS,
    WORDS,
    st.none(),
    st.booleans(),
    st.lists(NUMBERS, max_size=3),
    st.lists(KINDS, max_size=3),
    st.dictionaries(WORDS, NUMBERS | WORDS, max_size=2),
)
# The other fields are those of BERT, and go to torch as they are.
OURS = sorted(set(DseConfig.__annotations__) - set(TINY) | {"linformer_length", "num_hidden_layers"})
OTHERS = {"hidden_act", "initializer_range", "layer_norm_eps", "type_vocab_size", "pad_token_id"}
OTHERS |= {"hidden_dropout_prob", "attention_probs_dropout_prob"}


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(st.dictionaries(st.sampled_from([name for name in OURS if name not in OTHERS]), ANY, min_size=1, max_size=3))
def test_an_accepted_config_makes_a_model_with_finite_embeddings(changes):
    try:
        config = DseConfig(**{**TINY, **changes})
    except (ValueError, TypeError, StrictDataclassError):
        return
    with torch.no_grad():
        outputs = DseModel(config).eval()(torch.arange(12)[None])
    assert outputs.pooler_output.isfinite().all()
    assert outputs.pooler_output.shape == (1, config.embedding_size)


def test_a_configuration_writes_itself_and_its_code(tmp_path):
    fields = {
        "linformer_length": [4, 6],
        "layer_types": ["full_attention", "linear_attention"],
        "projection_dim": 3,
        "prompts": {"query": "of: ", "document": ""},
        "query_length": 4,
        "problem_type": "multi_label_classification",
    }
    config = DseConfig(**{**TINY, **fields})
    # An empty prompt is none.
    assert config.prompts == {"query": "of: "}
    config.save_pretrained(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "configuration_dse.py"}
    stored = json.loads((tmp_path / "config.json").read_text())
    assert stored["model_type"] == "dse" and stored["architectures"] == ["DseModel"]
    assert stored["sentence_transformers"] == {"activation_fn": "torch.nn.Sigmoid"}
    loaded = DseConfig.from_pretrained(tmp_path)
    assert loaded.to_dict() == config.to_dict()
    assert {name: getattr(loaded, name) for name in fields} == {**fields, "prompts": {"query": "of: "}}
