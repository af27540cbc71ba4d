# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
The attention of a layer, slowly: one text, one head, one token at a time.

It is written from the definition, not from `attention_dse.py`, and serves the tests as an independent oracle. There is
no batch, no padding and no mask here: a text is the list of its real tokens, and a projected text is the list of its
slots. Vectors are float64 tensors, so that autograd gives the oracle's gradients as well.

Names follow the Linformer paper (Wang et al., 2020): the n tokens of a text are projected to k slots by E (for keys)
and F (for values). The rest of the encoder is code of transformers and has no oracle. Pooling and the comparison
of two embeddings, which come after it, are at the end.
"""

import math
from fractions import Fraction

import torch

from hf_dse.modeling.modeling_dse import find_attentions


def assert_close(actual, expected, atol=1e-10):
    torch.testing.assert_close(actual, expected, atol=atol, rtol=0)


# Which token goes to which slot


def equal_segments(ranks, k):
    """Split `ranks` into `k` consecutive segments: the j-th of them goes to segment floor(j k / len(ranks))."""
    segments = [[] for _ in range(k)]
    for j, rank in enumerate(ranks):
        segments[j * k // len(ranks)].append(rank)
    return segments


def evenly_spaced(ranks, k, offset):
    """Choose `k` of `ranks`, the i-th one at floor((i + offset) len(ranks) / k), with 0 < offset < 1."""
    return [ranks[math.floor((i + offset) * Fraction(len(ranks), k))] for i in range(k)]


def slot_tokens(length, k):
    """The ranks of the tokens of each slot."""
    if length <= k:
        return [[rank] for rank in range(length)]
    return [[0]] + equal_segments(range(1, length - 1), k - 2) + [[length - 1]]


def selected_tokens(length, k, layer, num_layers):
    """For each slot the rank of the one token selected."""
    if length <= k:
        return list(range(length))
    offset = Fraction(2 * layer + 1, 2 * num_layers)
    return [0, *evenly_spaced(range(1, length - 1), k - 2, offset), length - 1]


# The projection of a text


def project(xs, layer, weight=None):
    """
    Project the vectors `xs` of a text, as `layer` (a `LayerAttention`) says. `weight` is what was learned for it: E or
    F, `(k, max_position_embeddings)`.
    """
    if layer.start == "strided":
        selected = selected_tokens(len(xs), layer.num_slots, layer.layer_idx, layer.num_layers)
        slots = [xs[rank] for rank in selected]
    else:
        slots = [xs[ranks].mean(dim=0) for ranks in slot_tokens(len(xs), layer.num_slots)]
    if weight is not None:
        slots = [slot + weight[i, : len(xs)] @ xs for i, slot in enumerate(slots)]
    return torch.stack(slots)


# The attention


def is_near(i, j, length, layer):
    """Whether token i of a text attends to token j itself."""
    return {
        "full_attention": True,
        "linear_attention": False,
        "sliding_attention": abs(i - j) <= layer.window,
        # A text of up to k tokens is in its slots already.
        "sliding_linear_attention": abs(i - j) <= layer.window and length > layer.num_slots,
        "chunked_attention": i // layer.window == j // layer.window or j in (0, length - 1),
    }[layer.layer_type]


def attend_in_layer(queries, keys, values, layer, scaling, e=None, f=None):
    """The context of each token of a text, (n, d), from its queries, keys and values in one head."""
    n, contexts = len(queries), []
    key_slots, value_slots = keys[:0], values[:0]
    if "linear" in layer.layer_type:
        key_slots, value_slots = project(keys, layer, e), project(values, layer, f)
    for i, query in enumerate(queries):
        near = [j for j in range(n) if is_near(i, j, n, layer)]
        seen_keys, seen_values = torch.cat([key_slots, keys[near]]), torch.cat([value_slots, values[near]])
        weights = (seen_keys @ query * scaling).softmax(dim=0)
        contexts.append(weights @ seen_values)
    return torch.stack(contexts)


def attend_in_module(module, layer, inputs):
    """The contexts of all texts and heads of an attention module, [(n, H, d)], from its recorded `LayerInputs`."""
    query, key, value, lengths = inputs
    batch_size, num_heads, num_tokens, head_dim = query.shape
    lengths = [num_tokens] * batch_size if lengths is None else lengths[:, 0].tolist()
    linformer = getattr(module, "linformer", None)
    scaling, contexts = getattr(module, "scaling", head_dim**-0.5), []
    for text, n in enumerate(lengths):
        of_heads = []
        for head in range(num_heads):
            # Several heads of queries may share one of keys.
            key_head = head * key.shape[1] // num_heads
            e = f = None
            if linformer is not None:
                group = key_head if len(linformer.key) > 1 else 0
                e = linformer.key[group]
                f = e if linformer.value is None else linformer.value[group]
            states = query[text, head, :n], key[text, key_head, :n], value[text, key_head, :n]
            of_heads.append(attend_in_layer(*states, layer, scaling, e, f))
        contexts.append(torch.stack(of_heads, dim=1))
    return contexts


def record(student, batch):
    """Runs a `DseModel`; returns its states, and its attentions: module, layer, inputs, context, leaves."""
    attentions = find_attentions(student.encoder)
    for module in attentions:
        module.linformer_record = []
    states = student(**batch).last_hidden_state
    recorded = []
    for module in attentions:
        learned = [*module.linformer.parameters()] if hasattr(module, "linformer") else []
        for number, (inputs, context) in enumerate(module.linformer_record):
            # A module that serves several layers is in all of them in turn.
            layer = (
                module.linformer_layer if len(attentions) > 1 else module.linformer_layer._replace(layer_idx=number)
            )
            recorded.append((module, layer, inputs, context, [*inputs[:3], *learned]))
        del module.linformer_record
    return states, recorded


def compare_layer(module, layer, inputs, context, leaves):
    """Compares the context [B, N, H, d] of an attention module, and its gradients for `leaves`, with the oracle's."""
    expected = attend_in_module(module, layer, inputs)
    found = torch.cat([context[text, : len(part)] for text, part in enumerate(expected)])
    expected = torch.cat(expected)
    assert_close(found, expected)
    direction = torch.randn(found.shape, dtype=found.dtype, generator=torch.Generator().manual_seed(0))
    gradients = [
        torch.autograd.grad((states * direction).sum(), leaves, retain_graph=True, materialize_grads=True)
        for states in (found, expected)
    ]
    for of_module, of_oracle in zip(*gradients, strict=True):
        assert_close(of_module, of_oracle)


# After the encoder


@torch.no_grad()
def compare_texts(model, batch):
    """
    Compares each text of a batch with the same text alone, without padding and mask, in the states of all layers; and
    what a `DseModel` makes of these with the oracle.
    """
    outputs = model(**batch, output_hidden_states=True)
    for row, mask in enumerate(batch["attention_mask"].bool()):
        tokens = {name: values[row, mask][None] for name, values in batch.items() if name != "attention_mask"}
        alone = model(**tokens, output_hidden_states=True)
        for states, expected in zip(outputs.hidden_states, alone.hidden_states, strict=True):
            assert_close(states[row, mask], expected[0])
        vectors, embedding = embed([states[0] for states in alone.hidden_states], model.config, model.state_dict())
        assert_close(outputs.last_hidden_state[row, mask], vectors)
        assert_close(outputs.pooler_output[row], embedding)


def linear(xs, state, name):
    return [state[f"{name}.weight"] @ x + state[f"{name}.bias"] for x in xs]


def embed(hidden_states, config, state):
    """The vectors of a text's tokens that are pooled, and its embedding, from the hidden states of all layers."""
    xs = list(hidden_states[-1]) if config.projection_dim is None else linear(hidden_states[-1], state, "projection")
    pooled = xs[0]
    if config.pooling_mode == "mean":
        pooled = sum(xs) / len(xs)
    return torch.stack(xs), pooled / torch.sqrt(pooled @ pooled) if config.normalize_embeddings else pooled


def pair_logits(config, state, u, v):
    """The logits of a pair of sentence embeddings, from the state dict of a `DseForSequenceClassification`."""
    if config.similarity == "mlp":
        if config.normalize_embeddings:
            # The mean square of the numbers of a vector is 1.
            u, v = u * len(u) ** 0.5, v * len(v) ** 0.5
        features = torch.cat([u, v, u * v, (u - v).abs()])
        return linear([torch.relu(linear([features], state, "similarity.dense")[0])], state, "similarity.out_proj")[0]
    similarity = u @ v
    if config.similarity == "cosine":
        similarity = similarity / (torch.sqrt(u @ u) * torch.sqrt(v @ v))
    slope, intercept = state["similarity.start"]
    return state["similarity.scale"] * slope * similarity + intercept + state["similarity.bias"]
