# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`DseModel` against the loop-level reference, its independence of padding, and its refusals."""

import math
import re
from itertools import product

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import encode_sentence
from safetensors.torch import load_file, save_file
from torch.utils._python_dispatch import TorchDispatchMode

from hf_dse.modeling import DseConfig, DseModel
from hf_dse.modeling.layout_dse import lay_out


PROJECTIONS = ["learned", "mean", "max", "conv", "strided"]
SHARINGS = ["none", "headwise", "key_value", "layerwise"]
INITS = ["strided", "mean", "random"]
IMPLEMENTATIONS = ["eager", "sdpa"]
K = 5

# One string a row, "1" for a real token and "." for padding; five slots, so rows of 6 and more tokens are compressed.
MASKS = {
    "none": ["11111111", "11111111"],
    "right": ["1111111111.", "1111111....", "111........"],
    "left": ["..111111111", "....1111111", ".........11"],
    "interior": ["11..1111.11", ".1.11..1111", "1....1....1"],
    "batch of one": ["..1111111.."],
    "shorter than k": ["111.......", ".......111", "..1..1..11"],
    "exactly k": ["11111.....", ".....11111", "1.1.1.1.1."],
    "longer than k": ["111111......", "111111111111", "...1111111.."],
    "one token": ["1......", "......1", "...1..."],
    "batch shorter than k": ["111", "11.", "..1"],
    "all": [
        "111111111111",
        "1111111.....",
        ".....1111111",
        "11.1111.1.11",
        ".1..........",
        "11111.......",
        "..........11",
    ],
}


def tiny_config(**overrides):
    fields = {
        "vocab_size": 29,
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 12,
        "max_position_embeddings": 12,
        "linformer_length": K,
        "cls_token_id": 1,
        "sep_token_id": 2,
    }
    return DseConfig(**{**fields, **overrides})


def make_model(config, dtype=torch.float64, implementation="sdpa", perturb=True, seed=0):
    torch.manual_seed(seed)
    model = DseModel._from_config(config, attn_implementation=implementation)
    if perturb:
        # Far from initialization, so that E and F, biases and norms all matter.
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.3)
    return model.to(dtype).eval()


def make_batch(rows, config, seed=0):
    """Random tokens and token types, at the padding too: whatever stands there must not matter."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.tensor([[int(char == "1") for char in row] for row in rows])
    # Without the padding token, whose embedding gets no gradient.
    input_ids = torch.randint(1, config.vocab_size, mask.shape, generator=generator)
    token_type_ids = torch.randint(0, config.type_vocab_size, mask.shape, generator=generator)
    return {"input_ids": input_ids, "attention_mask": mask, "token_type_ids": token_type_ids}


def run_reference(config, state, batch):
    """Returns, for each row, what `encode_sentence` says of its real tokens."""
    outputs = []
    for ids, mask, types in zip(
        batch["input_ids"], batch["attention_mask"].bool(), batch["token_type_ids"], strict=True
    ):
        outputs.append(encode_sentence(config, state, ids[mask].tolist(), types[mask].tolist()))
    return outputs


def state_of(model):
    return {name: parameter.detach().clone().requires_grad_() for name, parameter in model.named_parameters()}


def assert_equals_reference(config, batch, seed=0):
    model = make_model(config, seed=seed)
    with torch.no_grad():
        expected = run_reference(config, state_of(model), batch)
    for implementation in IMPLEMENTATIONS:
        model.set_attn_implementation(implementation)
        with torch.no_grad():
            outputs = model(**batch)
        assert outputs.last_hidden_state.isfinite().all()
        for row, (_, _, vectors, embedding) in enumerate(expected):
            real = batch["attention_mask"][row].bool()
            close = {"rtol": 0, "atol": 1e-10}
            torch.testing.assert_close(outputs.last_hidden_state[row, real], torch.stack(vectors), **close)
            torch.testing.assert_close(outputs.pooler_output[row], embedding, **close)


# Against the reference


@pytest.mark.parametrize("pattern", MASKS)
@pytest.mark.parametrize("sharing", SHARINGS)
@pytest.mark.parametrize("projection", PROJECTIONS)
def test_equals_reference(projection, sharing, pattern):
    config = tiny_config(linformer_projection=projection, linformer_sharing=sharing)
    assert_equals_reference(config, make_batch(MASKS[pattern], config))


@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("sharing", SHARINGS)
@pytest.mark.parametrize("projection", ["learned", "conv"])
def test_equals_reference_for_every_init(projection, sharing, init):
    config = tiny_config(linformer_projection=projection, linformer_sharing=sharing, linformer_init=init)
    assert_equals_reference(config, make_batch(MASKS["all"], config))
    assert_equals_reference(config, make_batch(MASKS["batch shorter than k"], config))


@pytest.mark.parametrize("pattern", MASKS)
@pytest.mark.parametrize("chunk_size", [1, 3, 4, 12, 512])
def test_chunks_equal_reference(chunk_size, pattern):
    layer_types = ["chunked_attention", "linear_attention"]
    config = tiny_config(layer_types=layer_types, attention_chunk_size=chunk_size)
    assert_equals_reference(config, make_batch(MASKS[pattern], config))


FUNNELS = [
    {"funnel_layers": 1, "num_hidden_layers": 2},
    {"funnel_layers": 2, "num_hidden_layers": 3},
    {"funnel_layers": 1, "num_hidden_layers": 2, "layer_types": ["full_attention", "linear_attention"]},
    {
        "funnel_layers": 2,
        "num_hidden_layers": 4,
        "layer_types": ["chunked_attention"] * 2 + ["linear_attention"] * 2,
        "attention_chunk_size": 4,
        "linformer_length": [3, 3, K, K],
        "pooling_layers": 3,
        "projection_dim": 5,
    },
]
FREE = ["mean", "max", "strided"]


@pytest.mark.parametrize("pattern", MASKS)
@pytest.mark.parametrize("fields", FUNNELS)
@pytest.mark.parametrize("projection", FREE)
def test_funnel_equals_reference(projection, fields, pattern):
    config = tiny_config(linformer_projection=projection, **fields)
    assert_equals_reference(config, make_batch(MASKS[pattern], config))


@pytest.mark.parametrize("projection", FREE)
def test_a_funnel_projects_all_states(projection):
    """Above k tokens its upper layers have k rows, a token the state of its row; up to k tokens nothing changes."""
    plain = make_model(tiny_config(linformer_projection=projection))
    funnel = make_model(tiny_config(linformer_projection=projection, funnel_layers=1))
    funnel.load_state_dict(plain.state_dict())
    rows_of_layers = []
    for layer in funnel.encoder.layer:
        layer.register_forward_hook(lambda module, inputs, output: rows_of_layers.append(output.shape[1]))
    for length, num_rows in [(K, K), (12, K)]:
        batch = make_batch(["1" * length, "." + "1" * (length - 1)], plain.config)
        actual, expected = funnel(**batch), plain(**batch)
        assert rows_of_layers[-2:] == [length, num_rows]
        assert actual.last_hidden_state.shape == expected.last_hidden_state.shape
        distance = (actual.pooler_output - expected.pooler_output).abs().max()
        assert distance <= 1e-12 if length <= K else distance > 1e-3
        assert len(actual.last_hidden_state[0].unique(dim=0)) == num_rows


def test_a_selected_token_keeps_its_state():
    config = tiny_config(linformer_projection="strided", max_position_embeddings=300, funnel_layers=1)
    for length in range(K + 1, 60):
        for k in range(3, min(length, 30)):
            config.linformer_length = k
            layout = lay_out(config, torch.zeros(1, length, 1), None)[1]
            rows = layout.rows[0]
            assert rows[layout.slots.selected[1, 0]].tolist() == list(range(k))
            assert (rows.diff() >= 0).all()


@st.composite
def configs(draw):
    num_layers = draw(st.integers(1, 3))
    sharing = draw(st.sampled_from(SHARINGS))
    length = st.integers(3, 14)
    if sharing != "layerwise":
        length = length | st.lists(length, min_size=num_layers, max_size=num_layers)
    layer_type = st.sampled_from(["linear_attention", "linear_attention", "chunked_attention", "full_attention"])
    layer_types = draw(st.none() | st.lists(layer_type, min_size=num_layers, max_size=num_layers))
    length, projection = draw(length), draw(st.sampled_from(PROJECTIONS))
    # The layers of a funnel are linear and have one k.
    is_last_linear = layer_types is None or layer_types[-1] == "linear_attention"
    has_funnel = num_layers > 1 and is_last_linear and projection in FREE and draw(st.booleans())
    return tiny_config(
        num_hidden_layers=num_layers,
        layer_types=layer_types,
        linformer_length=length,
        funnel_layers=int(has_funnel),
        attention_chunk_size=draw(st.integers(1, 12)),
        linformer_projection=projection,
        linformer_sharing=sharing,
        linformer_init=draw(st.sampled_from(INITS)),
        pooling_mode=draw(st.sampled_from(["mean", "cls", "max"])),
        pooling_layers=draw(st.integers(1, num_layers)),
        projection_dim=draw(st.sampled_from([None, 8, 5])),
        normalize_embeddings=draw(st.booleans()),
        num_attention_heads=draw(st.sampled_from([1, 2, 4])),
    )


@st.composite
def masks(draw):
    row = st.lists(st.sampled_from("1111."), min_size=(length := draw(st.integers(1, 12))), max_size=length)
    return draw(st.lists(row.filter(lambda chars: "1" in chars), min_size=1, max_size=3))


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(config=configs(), rows=masks(), seed=st.integers(0, 1000))
def test_equals_reference_for_any_config_and_mask(config, rows, seed):
    assert_equals_reference(config, make_batch(rows, config, seed=seed), seed=seed)


def assert_gradients_equal(config, rows, implementation):
    model = make_model(config, implementation=implementation)
    batch = make_batch(rows, config)
    state = state_of(model)
    generator = torch.Generator().manual_seed(1)

    outputs = model(**batch)
    loss = reference_loss = 0
    for row, (_, _, vectors, embedding) in enumerate(run_reference(config, state, batch)):
        real = batch["attention_mask"][row].bool()
        for actual, expected in [
            (outputs.last_hidden_state[row, real], torch.stack(vectors)),
            (outputs.pooler_output[row], embedding),
        ]:
            direction = torch.randn(actual.shape, generator=generator, dtype=actual.dtype)
            loss = loss + (direction * actual).sum()
            reference_loss = reference_loss + (direction * expected).sum()
    loss.backward()
    reference_loss.backward()

    for name, parameter in model.named_parameters():
        expected = torch.zeros_like(parameter) if state[name].grad is None else state[name].grad
        actual = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        # Some gradients vanish (a key bias shifts all logits alike): those are compared to an absolute zero.
        bound = 1e-9 * max(expected.abs().max().item(), 1e-2)
        assert (actual - expected).abs().max().item() <= bound, name


@pytest.mark.parametrize("sharing", SHARINGS)
@pytest.mark.parametrize("projection", PROJECTIONS)
def test_gradients_equal_reference(projection, sharing):
    config = tiny_config(linformer_projection=projection, linformer_sharing=sharing)
    for implementation in IMPLEMENTATIONS:
        assert_gradients_equal(config, ["11111111111", "..11.11111.", "111........"], implementation)


def test_gradients_of_chunks_equal_reference():
    config = tiny_config(layer_types=["chunked_attention", "linear_attention"], attention_chunk_size=4)
    for implementation in IMPLEMENTATIONS:
        assert_gradients_equal(config, ["11111111111", "..11.11111.", "111........"], implementation)


@pytest.mark.parametrize("fields", FUNNELS)
@pytest.mark.parametrize("projection", FREE)
def test_gradients_of_a_funnel_equal_reference(projection, fields):
    config = tiny_config(linformer_projection=projection, **fields)
    assert_gradients_equal(config, ["11111111111", "..11.11111.", "111........"], "sdpa")


@pytest.mark.parametrize("init", ["mean", "random"])
@pytest.mark.parametrize("projection", ["learned", "conv"])
def test_gradients_equal_reference_for_every_init(projection, init):
    config = tiny_config(
        linformer_projection=projection,
        linformer_init=init,
        linformer_length=[3, 6, 5],
        num_hidden_layers=3,
        layer_types=["linear_attention", "linear_attention", "full_attention"],
        pooling_mode="max",
        pooling_layers=2,
        projection_dim=6,
    )
    assert_gradients_equal(config, ["11111111111", "..11.11111.", "111........"], "sdpa")


@pytest.mark.parametrize("projection_dim", [None, 5, 16])
@pytest.mark.parametrize("pooling_layers", [1, 2])
@pytest.mark.parametrize(
    ("pooling_mode", "normalize"), [("mean", True), ("mean", False), ("cls", True), ("max", True)]
)
def test_pooling(pooling_mode, normalize, pooling_layers, projection_dim):
    config = tiny_config(
        pooling_mode=pooling_mode,
        pooling_layers=pooling_layers,
        projection_dim=projection_dim,
        normalize_embeddings=normalize,
    )
    assert_equals_reference(config, make_batch(MASKS["interior"], config))
    pooled_size = pooling_layers * config.hidden_size
    model = make_model(config)
    names = {name for name, _ in model.named_parameters() if name.startswith("projection")}
    needed = projection_dim is not None and projection_dim != pooled_size
    assert names == ({"projection.weight", "projection.bias"} if needed else set())
    assert model(**make_batch(["111"], config)).pooler_output.shape == (1, projection_dim or pooled_size)


@pytest.mark.parametrize("projection", PROJECTIONS)
def test_length_of_each_layer(projection):
    config = tiny_config(num_hidden_layers=3, linformer_length=[3, 7, 4], linformer_projection=projection)
    assert_equals_reference(config, make_batch(MASKS["all"], config))


@pytest.mark.parametrize("sharing", SHARINGS)
def test_mixed_layer_types(sharing):
    layer_types = ["linear_attention", "full_attention", "linear_attention"]
    config = tiny_config(
        num_hidden_layers=3, layer_types=layer_types, linformer_projection="learned", linformer_sharing=sharing
    )
    names = [name for name, _ in make_model(config).named_parameters() if "linformer" in name]
    assert not any("layer.1." in name for name in names)
    assert_equals_reference(config, make_batch(MASKS["all"], config))


@pytest.mark.parametrize("projection", ["learned", "conv"])
def test_learned_parameters(projection):
    own = [f"encoder.layer.{layer}.attention.self.linformer.{role}" for layer in range(2) for role in ("key", "value")]
    expected = {"none": own, "headwise": own, "key_value": own[::2], "layerwise": ["encoder.linformer.key"]}
    for sharing, names in expected.items():
        config = tiny_config(linformer_projection=projection, linformer_sharing=sharing)
        parameters = {name: p for name, p in make_model(config).named_parameters() if "linformer" in name}
        assert sorted(parameters) == sorted(names)
        groups = config.num_attention_heads if sharing == "none" else 1
        width = math.ceil((config.max_position_embeddings - 2) / (K - 2))
        shape = (groups, K, config.max_position_embeddings) if projection == "learned" else (groups, width)
        assert {tuple(p.shape) for p in parameters.values()} == {shape}


@pytest.mark.parametrize("projection", ["mean", "max", "strided"])
@pytest.mark.parametrize("sharing", SHARINGS)
def test_parameter_free_projections(projection, sharing):
    model = make_model(tiny_config(linformer_projection=projection, linformer_sharing=sharing))
    assert not [name for name in model.state_dict() if "linformer" in name]


def test_inputs_embeds():
    config = tiny_config()
    model = make_model(config)
    batch = make_batch(MASKS["all"], config)
    expected = model(**batch)
    embeds = model.get_input_embeddings()(batch.pop("input_ids"))
    torch.testing.assert_close(model(inputs_embeds=embeds, **batch).pooler_output, expected.pooler_output)


def test_no_mask_means_no_padding():
    config = tiny_config()
    model = make_model(config)
    batch = make_batch(["1111111111"], config)
    expected = model(**batch).pooler_output
    del batch["attention_mask"]
    torch.testing.assert_close(model(**batch).pooler_output, expected, rtol=0, atol=1e-12)


def test_boolean_and_float_masks():
    config = tiny_config()
    model = make_model(config)
    batch = make_batch(MASKS["all"], config)
    expected = model(**batch).pooler_output
    for dtype in (torch.bool, torch.float32):
        batch["attention_mask"] = batch["attention_mask"].to(dtype)
        torch.testing.assert_close(model(**batch).pooler_output, expected, rtol=0, atol=0)


# Padding does not matter


def padded(texts, length, side):
    input_ids = torch.zeros(len(texts), length, dtype=torch.long)
    mask = torch.zeros(len(texts), length, dtype=torch.long)
    for row, text in enumerate(texts):
        place = slice(0, len(text)) if side == "right" else slice(length - len(text), length)
        input_ids[row, place] = text
        mask[row, place] = 1
    return input_ids, mask


def assert_padding_does_not_matter(config, implementation):
    generator = torch.Generator().manual_seed(0)
    texts = [torch.randint(1, config.vocab_size, (n,), generator=generator) for n in (1, 2, 7, 8, 9, 13, 30, 61)]
    for dtype, tolerance in [(torch.float32, 1e-5), (torch.float64, 1e-10)]:
        model = make_model(config, dtype=dtype, implementation=implementation)
        alone = [model(input_ids=text[None]) for text in texts]
        # Everything at once, only short texts, and batches of one: below, above and far above k = 8 tokens
        layouts = [range(len(texts)), range(3), [1], [4], [6]]
        for rows in layouts:
            batch = [texts[row] for row in rows]
            longest = max(len(text) for text in batch)
            for length, side in product((longest, 64, config.max_position_embeddings), ("right", "left")):
                input_ids, mask = padded(batch, length, side)
                outputs = model(input_ids=input_ids, attention_mask=mask)
                for i, row in enumerate(rows):
                    case = f"{dtype}, {len(texts[row])} tokens in a batch of {len(batch)} x {length}, {side}"
                    embedding, hidden = outputs.pooler_output[i], outputs.last_hidden_state[i, mask[i].bool()]
                    assert (embedding - alone[row].pooler_output[0]).abs().max() <= tolerance, case
                    assert (hidden - alone[row].last_hidden_state[0]).abs().max() <= tolerance, case


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("sharing", SHARINGS)
@pytest.mark.parametrize("projection", PROJECTIONS)
def test_padding_invariance(projection, sharing, implementation):
    """Alone, with longer texts, padded to 64 or to the maximum, left or right, batch size one: the same embedding."""
    config = tiny_config(
        max_position_embeddings=80, linformer_length=8, linformer_projection=projection, linformer_sharing=sharing
    )
    assert_padding_does_not_matter(config, implementation)


@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("projection", ["learned", "conv"])
def test_padding_invariance_of_every_init(projection, init):
    config = tiny_config(
        max_position_embeddings=80,
        linformer_length=[8, 5],
        linformer_projection=projection,
        linformer_init=init,
        linformer_sharing="none",
        pooling_mode="max",
        pooling_layers=2,
        projection_dim=7,
    )
    assert_padding_does_not_matter(config, "sdpa")


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("projection", FREE)
def test_padding_invariance_of_a_funnel(projection, implementation):
    config = tiny_config(
        max_position_embeddings=80,
        num_hidden_layers=3,
        layer_types=["chunked_attention", "linear_attention", "linear_attention"],
        attention_chunk_size=6,
        linformer_length=8,
        linformer_projection=projection,
        funnel_layers=2,
    )
    assert_padding_does_not_matter(config, implementation)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("projection", PROJECTIONS)
def test_row_without_tokens_stays_finite_and_alone(projection, implementation):
    config = tiny_config(linformer_projection=projection)
    model = make_model(config, implementation=implementation)
    batch = make_batch(["11111111..", "..........", ".111......"], config)
    outputs = model(**batch)
    assert outputs.last_hidden_state.isfinite().all() and outputs.pooler_output.isfinite().all()
    others = {name: tensor[[0, 2]] for name, tensor in batch.items()}
    torch.testing.assert_close(outputs.pooler_output[[0, 2]], model(**others).pooler_output, rtol=0, atol=1e-12)
    (outputs.pooler_output**2).sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


# Up to k tokens it is softmax attention


@pytest.mark.parametrize("init", ["strided", "mean"])
@pytest.mark.parametrize("sharing", SHARINGS)
@pytest.mark.parametrize("projection", PROJECTIONS)
def test_short_inputs_equal_softmax_attention(projection, sharing, init):
    config = tiny_config(linformer_projection=projection, linformer_sharing=sharing, linformer_init=init)
    model = make_model(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "linformer" in name:
                parameter.zero_()
    softmax = make_model(tiny_config(layer_types=["full_attention"] * 2))
    weights = {name: tensor for name, tensor in model.state_dict().items() if "linformer" not in name}
    softmax.load_state_dict(weights, strict=True)

    batch = make_batch(["11111.....", ".......111", "1.1.1.1.1.", "..1......."], config)
    for implementation in IMPLEMENTATIONS:
        model.set_attn_implementation(implementation)
        softmax.set_attn_implementation(implementation)
        actual, expected = model(**batch), softmax(**batch)
        real = batch["attention_mask"].bool()
        torch.testing.assert_close(actual.pooler_output, expected.pooler_output, rtol=0, atol=1e-12)
        torch.testing.assert_close(
            actual.last_hidden_state[real], expected.last_hidden_state[real], rtol=0, atol=1e-12
        )
    long = make_batch(["1111111111"], config)
    assert (model(**long).pooler_output - softmax(**long).pooler_output).abs().max() > 1e-3


def test_learned_parameters_start_at_zero_or_random():
    for projection in ("learned", "conv"):
        for init in INITS:
            config = tiny_config(
                linformer_projection=projection,
                linformer_init=init,
                linformer_sharing="headwise",
                max_position_embeddings=2000,
                linformer_length=8,
            )
            model = make_model(config, dtype=torch.float32, perturb=False)
            parameters = [p for name, p in model.named_parameters() if "linformer" in name]
            assert len(parameters) == 4
            for parameter in parameters:
                if init == "random":
                    variance = 1 / (config.linformer_length if projection == "learned" else parameter.shape[-1])
                    assert parameter.var().item() == pytest.approx(variance, rel=0.2)
                else:
                    assert not parameter.any()


@pytest.mark.parametrize("sharing", SHARINGS)
@pytest.mark.parametrize("projection", ["learned", "conv"])
def test_gradient_reaches_the_learned_projection_from_its_start(projection, sharing):
    config = tiny_config(linformer_projection=projection, linformer_sharing=sharing)
    model = make_model(config, perturb=False).train()
    (model(**make_batch(["111111111111"], config)).pooler_output ** 2)[:, :4].sum().backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if "linformer" in name}
    assert gradients
    for name, gradient in gradients.items():
        assert gradient is not None and gradient.abs().max() > 0, name


# Recorded hidden states and attentions


@pytest.mark.parametrize("projection", PROJECTIONS)
@pytest.mark.parametrize("length", [3, 5, 12])
def test_recorded_states(projection, length):
    config = tiny_config(
        num_hidden_layers=3,
        layer_types=["linear_attention", "full_attention", "linear_attention"],
        linformer_projection=projection,
    )
    model = make_model(config, implementation="eager")
    rows = ["1" * length, "1" * (length - 1) + ".", "." * (length - 2) + "11"]
    batch = make_batch(rows, config)
    outputs = model(**batch, output_attentions=True, output_hidden_states=True)

    assert [tuple(states.shape) for states in outputs.hidden_states] == [(3, length, 8)] * 4
    torch.testing.assert_close(outputs.hidden_states[-1], outputs.last_hidden_state, rtol=0, atol=0)
    num_slots = min(length, K)
    assert [tuple(weights.shape) for weights in outputs.attentions] == [
        (3, 2, length, num_slots),
        (3, 2, length, length),
        (3, 2, length, num_slots),
    ]
    for row, (hidden_states, attentions, _, _) in enumerate(run_reference(config, state_of(model), batch)):
        real = batch["attention_mask"][row].bool()
        for layer in range(4):
            expected = torch.stack(hidden_states[layer])
            torch.testing.assert_close(outputs.hidden_states[layer][row, real], expected, rtol=0, atol=1e-10)
        for layer in range(3):
            weights = outputs.attentions[layer][row][:, real]
            expected = torch.stack([torch.stack(of_head) for of_head in attentions[layer]])
            # Closed slots and padding get exactly nothing.
            open_slots = weights.sum(dim=(0, 1)) > 0
            if config.layer_types[layer] == "full_attention":
                assert open_slots.equal(real)
            torch.testing.assert_close(weights[:, :, open_slots], expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("mask", ["11111111", "11111...", "...11111", "1.11.111"])
def test_gradients_reach_the_input_through_recorded_states(mask):
    """Layerwise losses are on recorded states, whatever the padding."""
    config = tiny_config()
    model = make_model(config)
    batch = make_batch([mask, "11111111"], config)
    embeds = model.get_input_embeddings()(batch.pop("input_ids")).detach().requires_grad_()
    states = model(inputs_embeds=embeds, **batch, output_hidden_states=[1]).hidden_states
    # transformers below 5.23 counts from the first layer, later versions from its input.
    (state,) = [entry for entry in states if entry is not None]
    real = batch["attention_mask"].bool()
    (state * real[..., None]).sum().backward()
    assert (embeds.grad.abs().sum(dim=-1) > 0).equal(real)


def count_operations(config, mask):
    """How many operations, without views, a forward pass has."""

    class Counter(TorchDispatchMode):
        number = 0

        def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
            self.number += not operation.is_view
            return operation(*args, **(kwargs or {}))

    model = make_model(config)
    with torch.no_grad(), Counter() as counter:
        model(**make_batch(mask, config))
    return counter.number


@pytest.mark.parametrize("mask", [["1111111111"], ["1111111111", "11111....."], ["1111111111", ".1.1111111"]])
@pytest.mark.parametrize("projection", PROJECTIONS)
def test_layouts_are_computed_once_a_forward(projection, mask):
    """A linear layer adds few operations to those of a softmax layer: nothing is laid out in it."""
    added = {}
    for kind in ("linear_attention", "full_attention"):
        configs = [
            tiny_config(num_hidden_layers=n, layer_types=[kind] * n, linformer_projection=projection) for n in (1, 4)
        ]
        fewer, more = (count_operations(config, mask) for config in configs)
        added[kind] = (more - fewer) / 3
    assert added["linear_attention"] <= added["full_attention"] + {"learned": 10, "conv": 13}.get(projection, 5)


def test_recorded_attentions_of_chunks():
    config = tiny_config(layer_types=["chunked_attention"] * 2, attention_chunk_size=4)
    model = make_model(config, implementation="eager")
    batch = make_batch(["1111111111", "111111....", "...1.11111"], config)
    attentions = model(**batch, output_attentions=True).attentions
    assert [tuple(weights.shape) for weights in attentions] == [(3, 2, 10, 6)] * 2
    for row, (_, expected, _, _) in enumerate(run_reference(config, state_of(model), batch)):
        real = batch["attention_mask"][row].bool()
        for layer, head in product(range(2), range(2)):
            for actual, own in zip(attentions[layer][row, head, real], expected[layer][head], strict=True):
                # An end of the text that is in the chunk is no key of its own, and the last chunk is shorter.
                torch.testing.assert_close(actual[actual > 0], own, rtol=0, atol=1e-10)


@pytest.mark.parametrize("projection", FREE)
def test_recorded_states_of_a_funnel(projection):
    """Every token has the state and the attention weights of its row, in the order of the input."""
    config = tiny_config(num_hidden_layers=3, linformer_projection=projection, funnel_layers=2)
    model = make_model(config, implementation="eager")
    batch = make_batch(["1111111111", "111111....", "...1.11111", "1.1......."], config)
    outputs = model(**batch, output_attentions=True, output_hidden_states=True)
    assert [tuple(weights.shape) for weights in outputs.attentions] == [(4, 2, 10, K)] * 3
    for row, (hidden_states, attentions, _, _) in enumerate(run_reference(config, state_of(model), batch)):
        real = batch["attention_mask"][row].bool()
        for states, expected in zip(outputs.hidden_states, hidden_states, strict=True):
            torch.testing.assert_close(states[row, real], torch.stack(expected), rtol=0, atol=1e-10)
        for weights, of_heads in zip(outputs.attentions, attentions, strict=True):
            expected = torch.stack([torch.stack(of_head) for of_head in of_heads])
            torch.testing.assert_close(weights[row][:, real, : expected.shape[2]], expected, rtol=0, atol=1e-10)


def test_gradient_checkpointing_of_a_funnel():
    config = tiny_config(num_hidden_layers=3, linformer_projection="strided", funnel_layers=2)
    gradients = []
    for is_checkpointing in (False, True):
        model = make_model(config).train()
        if is_checkpointing:
            model.gradient_checkpointing_enable()
        torch.manual_seed(0)
        model(**make_batch(MASKS["all"], config)).pooler_output.square().sum().backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    torch.testing.assert_close(gradients[0], gradients[1], rtol=0, atol=1e-12)


# Refusals


@pytest.mark.parametrize("projection", PROJECTIONS)
def test_too_long_input(projection):
    model = make_model(tiny_config(linformer_projection=projection))
    with pytest.raises(ValueError, match="13 tokens.* 12 .*max_position_embeddings"):
        model(input_ids=torch.ones(1, 13, dtype=torch.long))


def test_mask_that_is_not_two_dimensional():
    model = make_model(tiny_config())
    with pytest.raises(ValueError, match="attention_mask"):
        model(input_ids=torch.ones(2, 6, dtype=torch.long), attention_mask=torch.ones(2, 1, 6, 6))


def test_mask_of_another_length():
    model = make_model(tiny_config())
    with pytest.raises(ValueError, match="attention_mask"):
        model(input_ids=torch.ones(2, 6, dtype=torch.long), attention_mask=torch.ones(2, 7))


def test_exactly_one_input():
    model = make_model(tiny_config())
    both = {"input_ids": torch.ones(1, 3, dtype=torch.long), "inputs_embeds": torch.ones(1, 3, 8)}
    for inputs in ({}, both):
        with pytest.raises(ValueError, match="input_ids.*inputs_embeds"):
            model(**inputs)


@pytest.mark.parametrize(
    ("overrides", "field"),
    [
        ({"linformer_length": 2}, "linformer_length"),
        ({"linformer_length": [5, 2]}, "linformer_length"),
        ({"linformer_length": 0}, "linformer_length"),
        ({"linformer_keep_ends": False}, "linformer_keep_ends"),
        ({"linformer_length": [5]}, "linformer_length"),
        ({"linformer_length": [5, 5, 5]}, "linformer_length"),
        ({"linformer_length": [4, 5], "linformer_sharing": "layerwise"}, "linformer_length"),
        ({"linformer_length": "5"}, "linformer_length"),
        ({"layer_types": ["linear_attention"]}, "layer_types"),
        ({"layer_types": ["linear_attention", "sliding_attention"]}, "layer_types"),
        ({"linformer_projection": "fourier"}, "linformer_projection"),
        ({"linformer_sharing": "some"}, "linformer_sharing"),
        ({"linformer_init": "zeros"}, "linformer_init"),
        ({"num_attention_heads": 3}, "num_attention_heads"),
        ({"pooling_mode": "median"}, "pooling_mode"),
        ({"attention_chunk_size": 0}, "attention_chunk_size"),
        ({"funnel_layers": -1}, "`funnel_layers` must be from 0 to 1, .* got -1"),
        ({"funnel_layers": 2}, "`funnel_layers` must be from 0 to 1, .* got 2"),
        ({"funnel_layers": "1"}, "funnel_layers"),
        ({"funnel_layers": 1}, '`funnel_layers=1` needs a projection without weights: .* instead of "learned"'),
        ({"funnel_layers": 1, "linformer_projection": "conv"}, "needs a projection without weights"),
        (
            {"funnel_layers": 1, "linformer_projection": "mean", "layer_types": ["full_attention"] * 2},
            "The last 1 layers .* must be of the type",
        ),
        (
            {
                "funnel_layers": 2,
                "num_hidden_layers": 3,
                "linformer_projection": "mean",
                "linformer_length": [4, 5, 6],
            },
            r"The last 2 layers .* got .* and \[5, 6\]",
        ),
        ({"pooling_layers": 0}, "pooling_layers"),
        ({"pooling_layers": 4}, "pooling_layers"),
        ({"projection_dim": 0}, "projection_dim"),
        ({"similarity": "euclidean"}, "similarity"),
        ({"num_pair_separators": 3}, "num_pair_separators"),
    ],
)
def test_bad_config_values(overrides, field):
    with pytest.raises((StrictDataclassError, ValueError), match=field):
        tiny_config(**overrides)


def test_traces_are_refused():
    model = make_model(tiny_config(linformer_projection="strided"))
    with pytest.raises(ValueError, match="`torch.jit.trace` keeps one length: use `torch.export`"):
        torch.jit.trace(model, torch.ones(1, 3, dtype=torch.long), strict=False)


# On disk


@pytest.mark.parametrize(
    ("overrides", "field"),
    [
        ({"num_hidden_layers": 1}, r"`num_hidden_layers` \(1\) must be equal to the number of `layer_types` \(2\)"),
        ({"funnel_layers": 1}, "`funnel_layers=1` needs a projection without weights"),
        ({"linformer_length": 2}, "`linformer_length` must be at least 3"),
        ({"linformer_length": [5]}, "`linformer_length` lists 1 projected lengths for 2 layers"),
        ({"pooling_layers": 3}, "`pooling_layers` must be between 1"),
        ({"attention_chunk_size": 0}, "`attention_chunk_size` must be at least 1"),
        ({"position_extension": "tile"}, "`original_max_position_embeddings`"),
    ],
)
def test_fields_that_are_changed_at_loading_are_checked(tmp_path, overrides, field):
    make_model(tiny_config(), dtype=torch.float32).save_pretrained(tmp_path)
    with pytest.raises(StrictDataclassError, match=field):
        DseModel.from_pretrained(tmp_path, **overrides)


@pytest.mark.parametrize("sharing", ["none", "headwise", "key_value"])
@pytest.mark.parametrize("projection", ["learned", "conv"])
def test_layers_may_be_on_disk(tmp_path, projection, sharing):
    config = tiny_config(linformer_projection=projection, linformer_sharing=sharing)
    model = make_model(config, dtype=torch.float32)
    model.save_pretrained(tmp_path / "model")
    places = {"embeddings": "cpu", "encoder": "disk"}
    loaded = DseModel.from_pretrained(tmp_path / "model", device_map=places, offload_folder=tmp_path / "offloaded")
    batch = make_batch(MASKS["all"], config)
    with torch.no_grad():
        torch.testing.assert_close(loaded(**batch).pooler_output, model(**batch).pooler_output, rtol=0, atol=0)


@pytest.mark.parametrize("sharing", SHARINGS)
@pytest.mark.parametrize("projection", PROJECTIONS)
def test_save_and_load(tmp_path, projection, sharing):
    config = tiny_config(
        linformer_projection=projection,
        linformer_sharing=sharing,
        projection_dim=5,
        linformer_length=K,
        pooling_layers=2,
    )
    model = make_model(config, dtype=torch.float32)
    model.save_pretrained(tmp_path)
    loaded, info = DseModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    assert loaded.config.to_diff_dict() == model.config.to_diff_dict()
    assert loaded.state_dict().keys() == model.state_dict().keys()
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(loaded.state_dict()[name], tensor, rtol=0, atol=0)
    batch = make_batch(MASKS["all"], config)
    torch.testing.assert_close(loaded(**batch).pooler_output, model(**batch).pooler_output, rtol=0, atol=0)


@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("projection", ["learned", "conv"])
def test_load_initializes_what_the_checkpoint_lacks(tmp_path, projection, init):
    """Loading builds the model without memory; E and F that no file fills must still come out as a new model's."""
    config = tiny_config(
        linformer_projection=projection, linformer_init=init, max_position_embeddings=2000, linformer_length=8
    )
    make_model(config, dtype=torch.float32).save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    rest = {name: tensor for name, tensor in weights.items() if "linformer" not in name}
    save_file(rest, tmp_path / "model.safetensors", metadata={"format": "pt"})

    loaded, info = DseModel.from_pretrained(tmp_path, output_loading_info=True)
    assert sorted(info["missing_keys"]) == sorted(weights.keys() - rest.keys())
    for name in weights.keys() - rest.keys():
        parameter = loaded.state_dict()[name]
        if init == "random":
            variance = 1 / (config.linformer_length if projection == "learned" else parameter.shape[-1])
            assert parameter.var().item() == pytest.approx(variance, rel=0.2)
        else:
            assert not parameter.any()


def test_save_and_load_a_funnel(tmp_path):
    """Any strided, mean or max model may be read with a funnel or without: there are no weights in it."""
    config = tiny_config(linformer_projection="strided", funnel_layers=1)
    model = make_model(config, dtype=torch.float32)
    model.save_pretrained(tmp_path)
    batch = make_batch(MASKS["all"], config)
    loaded = DseModel.from_pretrained(tmp_path)
    assert loaded.config.funnel_layers == 1
    torch.testing.assert_close(loaded(**batch).pooler_output, model(**batch).pooler_output, rtol=0, atol=0)
    plain = DseModel.from_pretrained(tmp_path, funnel_layers=0)
    assert_equals_reference(plain.config, batch)
    assert not plain(**batch).pooler_output.equal(model(**batch).pooler_output)


def test_config_of_an_older_checkpoint():
    config = tiny_config(linformer_keep_ends=True)
    assert "linformer_keep_ends" not in config.to_dict()
    assert config.to_dict() == tiny_config().to_dict()


def test_config_round_trip(tmp_path):
    config = tiny_config(linformer_length=[4, 6], layer_types=["full_attention", "linear_attention"], projection_dim=3)
    config.save_pretrained(tmp_path)
    loaded = DseConfig.from_pretrained(tmp_path)
    assert loaded.linformer_length == [4, 6]
    assert loaded.layer_types == ["full_attention", "linear_attention"]
    assert loaded.to_dict() == config.to_dict()
    assert re.search(r'"model_type": "dse"', (tmp_path / "config.json").read_text())
