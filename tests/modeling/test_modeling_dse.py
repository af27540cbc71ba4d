# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`DseModel` against the loop-level reference, its independence of padding, and its checkpoints."""

import math
from itertools import product

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import encode_sentence
from safetensors.torch import load_file, save_file

from hf_dse.modeling import DseConfig, DseModel


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
    "exactly k": ["11111.....", ".....11111", "1.1.1.1.1."],
    "one token": ["1......", "......1", "...1..."],
    "batch shorter than k": ["111", "11.", "..1"],
    "all": ["111111111111", "1111111.....", ".....1111111", "11.1111.1.11", ".1..........", "..........11"],
}
SOME = ["11111111111", "..11.11111.", "111........"]

# Every projection in all ways of sharing, and each kind of attention with choices that are not the default.
CHOICES = {
    f"{projection} {sharing}": {"linformer_projection": projection, "linformer_sharing": sharing}
    for projection, sharing in product(PROJECTIONS, SHARINGS)
} | {
    "chunks": {"layer_types": ["chunked_attention", "linear_attention"], "attention_chunk_size": 4},
    "all layer types": {
        "num_hidden_layers": 3,
        "layer_types": ["chunked_attention", "full_attention", "linear_attention"],
        "attention_chunk_size": 3,
        "linformer_projection": "strided",
        "pooling_mode": "cls",
        "projection_dim": 8,
    },
    "lengths": {
        "num_hidden_layers": 3,
        "linformer_length": [3, 7, 4],
        "linformer_init": "random",
        "pooling_mode": "max",
        "pooling_layers": 2,
        "projection_dim": 6,
        "normalize_embeddings": True,
    },
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
    """The outputs of `encode_sentence` for the real tokens of each row."""
    rows = zip(batch["input_ids"], batch["attention_mask"].bool(), batch["token_type_ids"], strict=True)
    return [encode_sentence(config, state, ids[mask].tolist(), types[mask].tolist()) for ids, mask, types in rows]


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


@pytest.mark.parametrize("fields", CHOICES.values(), ids=CHOICES)
def test_equals_reference(fields):
    config = tiny_config(**fields)
    for rows in MASKS.values():
        assert_equals_reference(config, make_batch(rows, config))


@st.composite
def configs(draw):
    num_layers = draw(st.integers(1, 3))
    sharing = draw(st.sampled_from(SHARINGS))
    length = st.integers(3, 14)
    if sharing != "layerwise":
        length = length | st.lists(length, min_size=num_layers, max_size=num_layers)
    layer_type = st.sampled_from(["linear_attention", "linear_attention", "chunked_attention", "full_attention"])
    return tiny_config(
        num_hidden_layers=num_layers,
        layer_types=draw(st.none() | st.lists(layer_type, min_size=num_layers, max_size=num_layers)),
        linformer_length=draw(length),
        attention_chunk_size=draw(st.integers(1, 12)),
        linformer_projection=draw(st.sampled_from(PROJECTIONS)),
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


@settings(max_examples=50, deadline=None, derandomize=True, database=None)
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


@pytest.mark.parametrize("fields", CHOICES.values(), ids=CHOICES)
def test_gradients_equal_reference(fields):
    for implementation in IMPLEMENTATIONS:
        assert_gradients_equal(tiny_config(**fields), SOME, implementation)


# Parameters


@pytest.mark.parametrize("projection", PROJECTIONS)
def test_learned_parameters(projection):
    own = [f"encoder.layer.{layer}.attention.self.linformer.{role}" for layer in (0, 2) for role in ("key", "value")]
    expected = {"none": own, "headwise": own, "key_value": own[::2], "layerwise": ["encoder.linformer.key"]}
    kinds = ["linear_attention", "full_attention", "linear_attention"]
    for sharing, names in expected.items():
        chosen = {"linformer_projection": projection, "linformer_sharing": sharing}
        config = tiny_config(**chosen, num_hidden_layers=3, layer_types=kinds)
        parameters = {name: p for name, p in make_model(config).named_parameters() if "linformer" in name}
        assert sorted(parameters) == (sorted(names) if projection in ("learned", "conv") else [])
        groups = config.num_attention_heads if sharing == "none" else 1
        width = math.ceil((config.max_position_embeddings - 2) / (K - 2))
        shape = (groups, K, config.max_position_embeddings) if projection == "learned" else (groups, width)
        assert all(tuple(parameter.shape) == shape for parameter in parameters.values())


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


# Inputs


def test_embeddings_and_masks_of_other_kinds():
    config = tiny_config()
    model = make_model(config)
    batch = make_batch(MASKS["all"], config)
    expected = model(**batch).pooler_output
    for dtype in (torch.bool, torch.float32, torch.float16, torch.uint8):
        cast = {**batch, "attention_mask": batch["attention_mask"].to(dtype)}
        torch.testing.assert_close(model(**cast).pooler_output, expected, rtol=0, atol=0)
    embeds = model.get_input_embeddings()(batch.pop("input_ids"))
    torch.testing.assert_close(model(inputs_embeds=embeds, **batch).pooler_output, expected, rtol=0, atol=0)

    whole = make_batch(["1111111111"], config)
    expected = model(**whole).pooler_output
    del whole["attention_mask"]
    torch.testing.assert_close(model(**whole).pooler_output, expected, rtol=0, atol=1e-12)


# Padding does not matter


def padded(texts, length, side):
    # Token 0 stands for padding only.
    blanks = [torch.zeros(length - len(text), dtype=torch.long) for text in texts]
    parts = zip(texts, blanks, strict=True) if side == "right" else zip(blanks, texts, strict=True)
    input_ids = torch.stack([torch.cat(pair) for pair in parts])
    return input_ids, (input_ids > 0).long()


def assert_padding_does_not_matter(config, implementation):
    """Alone, with longer texts, padded to 64 or to the maximum, left or right, batch size one: the same embedding."""
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
@pytest.mark.parametrize("fields", CHOICES.values(), ids=CHOICES)
def test_padding_invariance(fields, implementation):
    sizes = {"max_position_embeddings": 80, "linformer_length": 8}
    with torch.no_grad():
        assert_padding_does_not_matter(tiny_config(**{**sizes, **fields}), implementation)


@pytest.mark.parametrize("pooling_mode", ["mean", "max", "cls"])
@pytest.mark.parametrize("projection", PROJECTIONS)
def test_row_without_tokens_stays_finite_and_alone(projection, pooling_mode):
    config = tiny_config(linformer_projection=projection, pooling_mode=pooling_mode)
    for implementation in IMPLEMENTATIONS:
        model = make_model(config, implementation=implementation)
        batch = make_batch(["11111111..", "..........", ".111......"], config)
        outputs = model(**batch)
        assert outputs.last_hidden_state.isfinite().all() and outputs.pooler_output.isfinite().all()
        others = {name: tensor[[0, 2]] for name, tensor in batch.items()}
        torch.testing.assert_close(outputs.pooler_output[[0, 2]], model(**others).pooler_output, rtol=0, atol=1e-12)
        (outputs.pooler_output**2).sum().backward()
        assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


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
    num_keys = [min(length, K), length, min(length, K)]
    assert [tuple(weights.shape) for weights in outputs.attentions] == [(3, 2, length, keys) for keys in num_keys]
    for row, (hidden_states, attentions, _, _) in enumerate(run_reference(config, state_of(model), batch)):
        real = batch["attention_mask"][row].bool()
        for states, expected in zip(outputs.hidden_states, hidden_states, strict=True):
            torch.testing.assert_close(states[row, real], torch.stack(expected), rtol=0, atol=1e-10)
        for layer, of_heads in enumerate(attentions):
            weights = outputs.attentions[layer][row][:, real]
            expected = torch.stack([torch.stack(of_head) for of_head in of_heads])
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


# On disk


def test_fields_that_are_changed_at_loading_are_checked(tmp_path):
    make_model(tiny_config(), dtype=torch.float32).save_pretrained(tmp_path)
    with pytest.raises(StrictDataclassError, match=r"`num_hidden_layers` \(1\) must be equal to the number of"):
        DseModel.from_pretrained(tmp_path, num_hidden_layers=1)


@pytest.mark.parametrize("fields", CHOICES.values(), ids=CHOICES)
def test_save_and_load(tmp_path, fields):
    model = make_model(tiny_config(**fields), dtype=torch.float32)
    model.save_pretrained(tmp_path)
    loaded, info = DseModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    assert loaded.config.to_diff_dict() == model.config.to_diff_dict()
    assert loaded.state_dict().keys() == model.state_dict().keys()
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(loaded.state_dict()[name], tensor, rtol=0, atol=0)


@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("projection", ["learned", "conv"])
def test_new_parameters(tmp_path, projection, init):
    """E and F are zero or random, in a new model and where a checkpoint lacks them: it is built without memory."""
    sizes = {"max_position_embeddings": 2000, "linformer_length": 8}
    config = tiny_config(linformer_projection=projection, linformer_init=init, **sizes)
    model = make_model(config, dtype=torch.float32, perturb=False)
    model.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    rest = {name: tensor for name, tensor in weights.items() if "linformer" not in name}
    save_file(rest, tmp_path / "model.safetensors", metadata={"format": "pt"})
    loaded, info = DseModel.from_pretrained(tmp_path, output_loading_info=True)
    new = weights.keys() - rest.keys()
    assert new and sorted(info["missing_keys"]) == sorted(new)
    for name, state in product(new, (model.state_dict(), loaded.state_dict())):
        if init == "random":
            variance = 1 / (config.linformer_length if projection == "learned" else state[name].shape[-1])
            assert state[name].var().item() == pytest.approx(variance, rel=0.3)
        else:
            assert not state[name].any()


def test_pushing_needs_a_call_of_its_own(tmp_path):
    with pytest.raises(ValueError, match=r"would leave files out: use `model.push_to_hub\(repo_id\)`"):
        make_model(tiny_config()).save_pretrained(tmp_path, push_to_hub=True)
