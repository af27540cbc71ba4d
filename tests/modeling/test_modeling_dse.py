# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`DseModel` with a BERT inside: masks, pooling, positions, recorded states, and checkpoints."""

from itertools import product

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reference import assert_close, compare_layer, compare_texts, record
from safetensors.torch import load_file, save_file

from hf_dse.modeling import DseModel


PROJECTIONS = ["learned", "mean", "strided"]
SHARINGS = ["none", "headwise", "key_value", "layerwise"]
INITS = ["strided", "mean"]
K = 5

# One string a row, "1" for a real token and "." for padding; five slots, so rows of 6 and more tokens are compressed.
ROWS = ["111111111111", "1111111.....", ".....1111111", "11.1111.1.11", ".1..........", "..........11"]


@pytest.fixture
def make(make_model):
    """Makes a model in float64, for texts of up to 12 tokens."""

    def make(**fields):
        return make_model(DseModel, **{"linformer_length": K, "max_position_embeddings": 12, **fields}).double()

    return make


def make_batch(rows, seed=0):
    """Random tokens and token types, at the padding too: whatever stands there must not matter."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.tensor([[int(char == "1") for char in row] for row in rows])
    # Without the tokens that stand for padding: their embeddings get no gradient, and in RoBERTa no position.
    input_ids = torch.randint(2, 29, mask.shape, generator=generator)
    token_type_ids = torch.randint(0, 2, mask.shape, generator=generator)
    return {"input_ids": input_ids, "attention_mask": mask, "token_type_ids": token_type_ids}


@st.composite
def choices(draw):
    num_layers = draw(st.integers(1, 3))
    sharing = draw(st.sampled_from(SHARINGS))
    length = st.integers(3, 14)
    if sharing != "layerwise":
        length = length | st.lists(length, min_size=num_layers, max_size=num_layers)
    kinds = st.sampled_from(["linear", "linear", "chunked", "full", "sliding", "sliding_linear"])
    kinds = draw(st.lists(kinds, min_size=num_layers, max_size=num_layers))
    return {
        "num_hidden_layers": num_layers,
        "layer_types": [f"{kind}_attention" for kind in kinds],
        "linformer_length": draw(length),
        "attention_chunk_size": draw(st.integers(1, 12)),
        "sliding_window": draw(st.integers(1, 12)),
        "linformer_projection": draw(st.sampled_from(PROJECTIONS)),
        "linformer_sharing": sharing,
        "linformer_init": draw(st.sampled_from(INITS)),
        "pooling_mode": draw(st.sampled_from(["mean", "cls"])),
        "projection_dim": draw(st.sampled_from([None, 8, 5])),
        "normalize_embeddings": draw(st.booleans()),
        "num_attention_heads": draw(st.sampled_from([1, 2, 4])),
    }


@st.composite
def masks(draw):
    length = draw(st.integers(1, 12))
    tokens = st.integers(1, length).map(lambda number: "1" * number)
    right, left = tokens.map(lambda row: row.ljust(length, ".")), tokens.map(lambda row: row.rjust(length, "."))
    scattered = st.lists(st.sampled_from("1111."), min_size=length, max_size=length).filter(lambda row: "1" in row)
    return draw(st.lists(right | left | scattered, min_size=1, max_size=3))


# A model is a function of its fields, so it does not matter that the fixture is not made again.
@settings(
    max_examples=50,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(fields=choices(), rows=masks(), seed=st.integers(0, 1000))
def test_any_choice_and_mask(make, fields, rows, seed):
    model, batch = make(**fields), make_batch(rows, seed)
    compare_texts(model, batch)
    for attention in record(model, batch)[1]:
        compare_layer(*attention)


# Parameters


@pytest.mark.parametrize("projection", PROJECTIONS)
def test_learned_parameters(make, projection):
    stem = "encoder.encoder.layer.{}.attention.self.linformer.{}"
    own = [stem.format(layer, role) for layer in (0, 2) for role in ("key", "value")]
    expected = {"none": own, "headwise": own, "key_value": own[::2], "layerwise": own[:1]}
    kinds = ["linear_attention", "full_attention", "linear_attention"]
    for sharing, names in expected.items():
        chosen = {"linformer_projection": projection, "linformer_sharing": sharing}
        model = make(**chosen, num_hidden_layers=3, layer_types=kinds)
        parameters = {name: p for name, p in model.named_parameters() if "linformer" in name}
        assert sorted(parameters) == (sorted(names) if projection == "learned" else [])
        groups = model.config.num_attention_heads if sharing == "none" else 1
        assert all(tuple(parameter.shape) == (groups, K, 12) for parameter in parameters.values())


def test_new_parameters(tiny_config, bert_tokenizer, tmp_path):
    """E and F are 0, in a new model and where a checkpoint lacks them: it is built without memory."""
    sizes = {"max_position_embeddings": 2000, "linformer_length": 8}
    model = DseModel(tiny_config(bert_tokenizer, linformer_projection="learned", **sizes))
    model.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    rest = {name: tensor for name, tensor in weights.items() if "linformer" not in name}
    save_file(rest, tmp_path / "model.safetensors", metadata={"format": "pt"})
    loaded, info = DseModel.from_pretrained(tmp_path, output_loading_info=True)
    new = weights.keys() - rest.keys()
    assert new and sorted(info["missing_keys"]) == sorted(new)
    for name, state in product(new, (model.state_dict(), loaded.state_dict())):
        assert not state[name].any()
    # The gradient reaches them from there.
    model(**make_batch(["1" * 12])).pooler_output[:, :4].square().sum().backward()
    for name in new:
        assert model.get_parameter(name).grad.abs().max() > 0


# Inputs and outputs


def test_embeddings_and_masks_of_other_kinds(make):
    model, batch = make(), make_batch(ROWS)
    expected = model(**batch).pooler_output
    for dtype in (torch.bool, torch.float32, torch.float16, torch.uint8):
        cast = {**batch, "attention_mask": batch["attention_mask"].to(dtype)}
        assert model(**cast).pooler_output.equal(expected)
    assert model(**batch, return_dict=False)[1].equal(expected)
    embeds = model.get_input_embeddings()(batch.pop("input_ids"))
    assert model(inputs_embeds=embeds, **batch).pooler_output.equal(expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(make, dtype):
    model, batch = make(normalize_embeddings=True), make_batch(ROWS)
    expected = model(**batch).pooler_output
    outputs = model.to(dtype)(**batch)
    assert outputs.last_hidden_state.dtype == outputs.pooler_output.dtype == dtype
    assert (outputs.pooler_output - expected).abs().max() < 0.1
    # A sum of so many tokens is larger than the largest float16.
    states, lengths = torch.full((1, 3000, 4), 60.0, dtype=dtype), torch.tensor([[2999]])
    assert (model.pool(states, lengths) == 60).all()


@pytest.mark.parametrize("pooling_mode", ["mean", "cls"])
@pytest.mark.parametrize("projection", PROJECTIONS)
def test_row_without_tokens_stays_finite_and_alone(make, projection, pooling_mode):
    model = make(linformer_projection=projection, pooling_mode=pooling_mode)
    batch = make_batch(["11111111..", "..........", ".111......"])
    outputs = model(**batch)
    assert outputs.last_hidden_state.isfinite().all() and outputs.pooler_output.isfinite().all()
    others = {name: tensor[[0, 2]] for name, tensor in batch.items()}
    assert_close(outputs.pooler_output[[0, 2]], model(**others).pooler_output)
    outputs.pooler_output.square().sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


@torch.no_grad()
def test_attention_weights_are_in_the_order_of_the_input(make):
    kinds = [f"{kind}_attention" for kind in ("linear", "full", "chunked", "sliding", "sliding_linear")]
    model = make(num_hidden_layers=5, layer_types=kinds, attention_chunk_size=4, sliding_window=2)
    batch = make_batch(["111111111111", "...11111111.", "11.1..1.1111", ".........111"])
    attentions = model(**batch, output_attentions=True).attentions
    for row, mask in enumerate(batch["attention_mask"].bool()):
        tokens = {name: values[row, mask][None] for name, values in batch.items() if name != "attention_mask"}
        alone = model(**tokens, output_attentions=True).attentions
        for kind, weights, expected in zip(kinds, attentions, alone, strict=True):
            weights, num_keys = weights[row][:, mask], expected.shape[-1]
            assert_close(weights.sum(dim=-1), torch.ones_like(weights[..., 0]))
            if kind == "full_attention":
                assert_close(weights[..., mask], expected[0])
            elif kind == "linear_attention":
                # Closed slots get exactly nothing.
                assert weights.shape[-1] == K and not weights[..., num_keys:].any()
                assert_close(weights[..., :num_keys], expected[0])


@pytest.mark.parametrize("mask", ["11111111", "11111...", "...11111", "1.11.111"])
def test_gradients_reach_the_input_through_recorded_states(make, mask):
    """Layerwise losses are on recorded states, whatever the padding."""
    model, batch = make(), make_batch([mask, "11111111"])
    embeds = model.get_input_embeddings()(batch.pop("input_ids")).detach().requires_grad_()
    states = model(inputs_embeds=embeds, **batch, output_hidden_states=[1]).hidden_states
    # transformers below 5.23 counts from the first layer, later versions from its input.
    (state,) = [entry for entry in states if entry is not None]
    real = batch["attention_mask"].bool()
    (state * real[..., None]).sum().backward()
    assert (embeds.grad.abs().sum(dim=-1) > 0).equal(real)


# On disk


def test_pushing_needs_a_call_of_its_own(make, tmp_path):
    with pytest.raises(ValueError, match=r"would leave files out: use `model.push_to_hub\(repo_id\)`"):
        make().save_pretrained(tmp_path, push_to_hub=True)
