# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Linear attention for any encoder: against the slow reference, and in tiny random models of the real classes."""

from types import SimpleNamespace

import pytest
import reference
import torch
import transformers
from transformers import AutoModel, LlamaConfig

from hf_dse.modeling import attention_dse
from hf_dse.modeling.attention_dse import LayerAttention, linformer_attention_forward, linformer_mask


SIZES = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "max_position_embeddings": 128,
}
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}
OFFSET = {"max_position_embeddings": 130}
# Every encoder that was tried and dispatches its attention.
ENCODERS = {
    "Albert": {"embedding_size": 16},
    "Bert": {},
    "Camembert": OFFSET,
    "Data2VecText": OFFSET,
    "DistilBert": {"dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 37},
    "Electra": {"embedding_size": 32},
    "EmbeddingGemma2Text": {"num_key_value_heads": 2, "head_dim": 8, "sliding_window": 8, **SPECIAL},
    "Ernie": {},
    "Esm": {"position_embedding_type": "rotary", "pad_token_id": 0, "mask_token_id": 4},
    "EuroBert": {"num_key_value_heads": 2, "mask_token_id": 4, **SPECIAL},
    "Gte": {},
    "JinaEmbeddingsV3": {},
    "ModernBert": {"local_attention": 16, "global_attn_every_n_layers": 2, **SPECIAL},
    "NomicBert": {},
    "Roberta": OFFSET,
    "RobertaPreLayerNorm": OFFSET,
    "Ultrabert": {"sliding_window": 8},
    "XLMRoberta": OFFSET,
    "XLMRobertaXL": OFFSET,
}
LOCAL = ("EmbeddingGemma2Text", "ModernBert", "Ultrabert")


@pytest.fixture(scope="module", params=ENCODERS)
def encoder(request):
    """A tiny random model in float64, and token ids of two texts of 40 and 25 tokens with their mask."""
    if not hasattr(transformers, f"{request.param}Config"):
        pytest.skip("this version of transformers does not have it")
    config = getattr(transformers, f"{request.param}Config")(**SIZES | ENCODERS[request.param])
    torch.manual_seed(0)
    model = AutoModel.from_config(config, dtype=torch.float64).eval()
    model.name = request.param
    return model


@pytest.fixture
def texts():
    input_ids = torch.randint(5, 99, (2, 40), generator=torch.Generator().manual_seed(0))
    attention_mask = torch.ones_like(input_ids)
    attention_mask[1, 25:] = 0
    return {"input_ids": input_ids, "attention_mask": attention_mask}


@torch.no_grad()
def run(model, implementation, inputs, linformer_length=128):
    model.set_attn_implementation(implementation)
    model.config.linformer_length = linformer_length
    return model(**inputs).last_hidden_state


def test_texts_of_up_to_k_tokens_are_exact(encoder, texts):
    expected, states = run(encoder, "sdpa", texts), run(encoder, "linformer", texts)
    is_token = texts["attention_mask"].bool()
    # Some of them compute norms in float32.
    torch.testing.assert_close(states[is_token], expected[is_token], atol=2e-6, rtol=0)


def test_padding_and_the_other_texts_change_nothing(encoder, texts):
    batch = run(encoder, "linformer", texts, linformer_length=8)
    longer = {name: torch.nn.functional.pad(values, (0, 7)) for name, values in texts.items()}
    alone = {name: values[1:, :25] for name, values in texts.items()}
    torch.testing.assert_close(batch[1, :25], run(encoder, "linformer", alone, 8)[0], atol=1e-10, rtol=0)
    torch.testing.assert_close(batch[1, :25], run(encoder, "linformer", longer, 8)[1, :25], atol=1e-10, rtol=0)
    assert (batch[0] - run(encoder, "sdpa", texts)[0]).abs().max() > 1e-3


def test_every_layer_attends_to_slots_or_its_window(encoder, texts):
    encoder.set_attn_implementation("linformer")
    encoder.config.linformer_length = 8
    with torch.no_grad():
        attentions = encoder(**texts, output_attentions=True).attentions
    window = 8 + attention_dse.BLOCK_SIZE + 8
    num_keys = {weights.shape[-1] for weights in attentions}
    assert num_keys == ({8, window} if encoder.name in LOCAL else {8})
    for weights in attentions:
        torch.testing.assert_close(weights[0].sum(dim=-1), torch.ones(4, 40, dtype=torch.float64))


@pytest.mark.parametrize("encoder", LOCAL, indirect=True)
def test_windows_are_those_of_the_source(encoder, monkeypatch):
    monkeypatch.setattr(attention_dse, "BLOCK_SIZE", 16)
    input_ids = torch.randint(5, 99, (2, 100))
    attention_mask = torch.ones_like(input_ids)
    attention_mask[1, 61:] = 0
    inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
    expected, states = run(encoder, "sdpa", inputs), run(encoder, "linformer", inputs)
    is_token = attention_mask.bool()
    torch.testing.assert_close(states[is_token], expected[is_token], atol=2e-6, rtol=0)


@pytest.mark.parametrize("encoder", ["Bert", "EuroBert", "ModernBert"], indirect=True)
def test_one_graph_serves_all_lengths(encoder, texts):
    compiled = torch.compile(encoder, backend="eager", fullgraph=True, dynamic=True)
    for length in (40, 33, 12):
        inputs = {name: values[:, :length] for name, values in texts.items()}
        expected = run(encoder, "linformer", inputs, 8)
        with torch.no_grad():
            states = compiled(**inputs).last_hidden_state
        torch.testing.assert_close(states[0], expected[0], atol=1e-10, rtol=0)


@pytest.mark.parametrize("encoder", ["Bert", "EuroBert", "ModernBert"], indirect=True)
def test_gradients_and_half_precision(encoder, texts):
    encoder.set_attn_implementation("linformer")
    encoder.config.linformer_length = 8
    model = encoder.float().train()
    with torch.autocast("cpu", torch.bfloat16):
        states = model(**texts).last_hidden_state
    states.float().square().sum().backward()
    assert all(weights.grad.isfinite().all() for weights in model.parameters() if weights.grad is not None)
    model.double().eval()


CASES = [
    (layer_type, start)
    for layer_type in attention_dse.LAYER_TYPES
    for start in (attention_dse.STARTS if "linear" in layer_type else ["strided"])
]


@pytest.mark.parametrize("has_weights", [False, True], ids=["kernel", "eager"])
@pytest.mark.parametrize(("layer_type", "start"), CASES)
def test_equals_the_slow_reference_with_gradients(layer_type, start, has_weights, monkeypatch):
    monkeypatch.setattr(attention_dse, "BLOCK_SIZE", 16)
    generator = torch.Generator().manual_seed(0)
    lengths, num_tokens, k, window = [50, 31, 10], 50, 12, 6
    states = [
        torch.randn(3, heads, num_tokens, 8, dtype=torch.float64, generator=generator).requires_grad_()
        for heads in (4, 2, 2)
    ]
    module = SimpleNamespace(
        linformer_layer=LayerAttention(layer_type, k, start, window, layer_idx=1, num_layers=3),
        num_key_value_groups=2,
        training=False,
        config=SimpleNamespace(output_attentions=has_weights),
    )
    mask = linformer_mask(3, num_tokens, num_tokens, torch.arange(num_tokens) < torch.tensor(lengths)[:, None])
    context, weights = linformer_attention_forward(module, *states, mask)
    assert (weights is not None) == has_weights
    found, expected = [], []
    for text, length in enumerate(lengths):
        for head in range(4):
            query, key, value = (part[text, head // (4 // part.shape[1]), :length] for part in states)
            expected.append(reference.attend_in_layer(query, key, value, layer_type, start, k, window, 1, 3))
            found.append(context[text, :length, head])
    found, expected = torch.cat(found), torch.cat(expected)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
    towards = torch.randn(found.shape, dtype=torch.float64, generator=generator)
    gradients = [
        torch.autograd.grad((result * towards).sum(), states, retain_graph=True) for result in (found, expected)
    ]
    for of_function, of_reference in zip(*gradients, strict=True):
        torch.testing.assert_close(of_function, of_reference, atol=1e-11, rtol=0)


def test_what_cannot_be_linear_is_refused(encoder, texts):
    encoder.set_attn_implementation("linformer")
    with pytest.raises(ValueError, match="padding on the right"):
        encoder(texts["input_ids"], attention_mask=texts["attention_mask"].flip(1))
    if encoder.name == "Bert":
        encoder.config.linformer_length = 2
        with pytest.raises(ValueError, match="at least 3, .* got 2"):
            encoder(**texts)
        with pytest.raises(ValueError, match="n x n masks have no meaning"):
            encoder(texts["input_ids"], attention_mask=torch.ones(2, 1, 40, 40, dtype=torch.bool))


def test_causal_models_are_refused():
    model = AutoModel.from_config(LlamaConfig(**SIZES, **SPECIAL), attn_implementation="linformer")
    with pytest.raises(ValueError, match="for encoders, and LlamaAttention is causal"):
        model(torch.tensor([[5, 6, 7]]))
