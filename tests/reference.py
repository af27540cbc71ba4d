# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
A slow, plain Linformer encoder: one sentence, one token, one head at a time.

It is written from the definition, not from `modeling_dse.py`, and serves the tests as an independent oracle. There
is no batch, no padding and no mask here: a sentence is the list of its real tokens, and a projected sequence is the
list of its open slots. Vectors are float64 tensors, so that autograd gives the oracle's gradients as well.

Names follow the Linformer paper (Wang et al., 2020): the sequence of n tokens is projected to k slots by E (for keys)
and F (for values). A learned E or F is stored as `linformer.key` or `linformer.value` of shape
`(groups, k, max_position_embeddings)`, a convolution kernel as `(groups, width)`.
"""

import math
from fractions import Fraction

import torch


LEARNED_KINDS = ("learned", "conv")
ACTIVATIONS = {"gelu": torch.nn.functional.gelu, "relu": torch.relu}


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
    """For each slot the rank of the one token selected, and the number of tokens that it stands for."""
    if length <= k:
        return [(rank, 1) for rank in range(length)]
    offset = Fraction(2 * layer + 1, 2 * num_layers)
    inner = evenly_spaced(range(1, length - 1), k - 2, offset)
    return [(0, 1)] + [(rank, (length - 2) / (k - 2)) for rank in inner] + [(length - 1, 1)]


# The sequence projection


def project(xs, kind, k, layer, num_layers):
    """Project the vectors `xs` without parameters. Returns the open slots and how many tokens each stands for."""
    if kind == "strided":
        selected = selected_tokens(len(xs), k, layer, num_layers)
        return [xs[rank] for rank, _ in selected], [count for _, count in selected]
    tokens_of = slot_tokens(len(xs), k)
    slots = []
    for ranks in tokens_of:
        slot = xs[ranks[0]]
        for rank in ranks[1:]:
            slot = slot + xs[rank] if kind == "mean" else torch.maximum(slot, xs[rank])
        slots.append(slot / len(ranks) if kind == "mean" else slot)
    return slots, [len(ranks) for ranks in tokens_of]


def project_learned(xs, config, k, layer, parameter, group):
    """Project `xs` with one group of a learned E (or F) or of a convolution kernel, added to the base projection."""
    tokens_of = slot_tokens(len(xs), k)
    if config.linformer_init == "random":
        num_open = k if config.linformer_projection == "learned" else len(tokens_of)
        slots, counts = [torch.zeros_like(xs[0]) for _ in range(num_open)], [1] * num_open
    else:
        slots, counts = project(xs, config.linformer_init, k, layer, config.num_hidden_layers)

    for i in range(len(slots)):
        if config.linformer_projection == "learned":
            for rank in range(len(xs)):
                slots[i] = slots[i] + parameter[group, i, rank] * xs[rank]
        else:
            for t, rank in enumerate(tokens_of[i]):
                slots[i] = slots[i] + parameter[group, t] * xs[rank]
    return slots, counts


# The encoder


def linear(xs, state, name):
    return [state[f"{name}.weight"] @ x + state[f"{name}.bias"] for x in xs]


def layer_norm(x, state, name, eps):
    centered = x - x.mean()
    return centered / torch.sqrt((centered**2).mean() + eps) * state[f"{name}.weight"] + state[f"{name}.bias"]


def head_slice(x, head, config):
    size = config.hidden_size // config.num_attention_heads
    return x[head * size : (head + 1) * size]


def projected_length(config, layer):
    return config.linformer_length if isinstance(config.linformer_length, int) else config.linformer_length[layer]


def keys_and_values(xs, config, state, layer):
    """For each head: its keys, its values, and the number of tokens that each of them stands for."""
    name = f"encoder.layer.{layer}.attention.self"
    heads = range(config.num_attention_heads)
    k = projected_length(config, layer)
    kind, sharing = config.linformer_projection, config.linformer_sharing

    if config.layer_types[layer] in ("full_attention", "chunked_attention"):
        slots, counts = {"key": xs, "value": xs}, [1] * len(xs)
    elif kind not in LEARNED_KINDS:
        x_projected, counts = project(xs, kind, k, layer, config.num_hidden_layers)
        slots = {"key": x_projected, "value": x_projected}
    else:
        owner = "encoder" if sharing == "layerwise" else name
        parameters = {"key": state[f"{owner}.linformer.key"]}
        shared = sharing in ("key_value", "layerwise")
        parameters["value"] = parameters["key"] if shared else state[f"{owner}.linformer.value"]
        if sharing == "none":
            # An E of its own for each head: the features are mapped first, over all tokens.
            result = []
            for head in heads:
                head_slots = {}
                for role, parameter in parameters.items():
                    mapped = [head_slice(x, head, config) for x in linear(xs, state, f"{name}.{role}")]
                    head_slots[role], counts = project_learned(mapped, config, k, layer, parameter, head)
                result.append((head_slots["key"], head_slots["value"], counts))
            return result
        slots = {}
        for role, parameter in parameters.items():
            slots[role], counts = project_learned(xs, config, k, layer, parameter, 0)

    keys = linear(slots["key"], state, f"{name}.key")
    values = linear(slots["value"], state, f"{name}.value")
    return [
        ([head_slice(k, head, config) for k in keys], [head_slice(v, head, config) for v in values], counts)
        for head in heads
    ]


def attend(query, keys, values, counts):
    """Softmax attention of one query. A slot that stands for c tokens weighs as much as c equal tokens."""
    logits = [query @ key / math.sqrt(len(query)) + math.log(count) for key, count in zip(keys, counts, strict=True)]
    largest = max(logit.item() for logit in logits)
    weights = [torch.exp(logit - largest) for logit in logits]
    total = sum(weights)
    return sum(weight / total * value for weight, value in zip(weights, values, strict=True)), torch.stack(
        weights
    ) / total


def encoder_layer(xs, config, state, layer, ends=()):
    """
    Returns the layer's outputs, and its attention weights `[head][token]`, each a vector over the open slots. Of a
    chunk these are first the ends of the text that are not in it, then its own tokens.
    """
    size = config.attention_chunk_size
    if config.layer_types[layer] == "chunked_attention" and len(xs) > size:
        starts, parts = range(0, len(xs), size), []
        for start in starts:
            chunk = xs[start : start + size]
            apart = [xs[0]] * (start > 0) + [xs[-1]] * (start < starts[-1])
            parts.append(encoder_layer(chunk, config, state, layer, ends=apart))
        heads = range(config.num_attention_heads)
        weights = [[token for _, of_heads in parts for token in of_heads[head]] for head in heads]
        return [x for outputs, _ in parts for x in outputs], weights
    name, eps = f"encoder.layer.{layer}", config.layer_norm_eps
    per_head = keys_and_values([*ends, *xs], config, state, layer)
    queries = linear(xs, state, f"{name}.attention.self.query")
    contexts, weights = [], [[] for _ in per_head]
    for query in queries:
        context = []
        for head, (keys, values, counts) in enumerate(per_head):
            head_context, head_weights = attend(head_slice(query, head, config), keys, values, counts)
            context.append(head_context)
            weights[head].append(head_weights)
        contexts.append(torch.cat(context))

    outputs = []
    for x, attended in zip(xs, linear(contexts, state, f"{name}.attention.output.dense"), strict=True):
        attended = layer_norm(attended + x, state, f"{name}.attention.output.LayerNorm", eps)
        inner = ACTIVATIONS[config.hidden_act](linear([attended], state, f"{name}.intermediate.dense")[0])
        output = linear([inner], state, f"{name}.output.dense")[0]
        outputs.append(layer_norm(output + attended, state, f"{name}.output.LayerNorm", eps))
    return outputs, weights


def embed_tokens(config, state, token_ids, type_ids):
    xs = []
    for rank, (token_id, type_id) in enumerate(zip(token_ids, type_ids, strict=True)):
        x = state["embeddings.word_embeddings.weight"][token_id] + state["embeddings.position_embeddings.weight"][rank]
        if config.type_vocab_size > 0:
            x = x + state["embeddings.token_type_embeddings.weight"][type_id]
        xs.append(layer_norm(x, state, "embeddings.LayerNorm", config.layer_norm_eps))
    return xs


def token_vectors(hidden_states, config, state):
    """The vectors of the tokens that are pooled, from the hidden states of all layers."""
    # The hidden states of the last layers, one after the other.
    xs = [torch.cat(of_token) for of_token in zip(*hidden_states[-config.pooling_layers :], strict=True)]
    return xs if config.projection_dim is None else linear(xs, state, "projection")


def pool(xs, config):
    """The sentence embedding from the vectors of the tokens."""
    pooled = xs[0]
    if config.pooling_mode == "mean":
        pooled = sum(xs) / len(xs)
    elif config.pooling_mode == "max":
        for x in xs[1:]:
            pooled = torch.maximum(pooled, x)
    return pooled / torch.sqrt(pooled @ pooled) if config.normalize_embeddings else pooled


def encode_sentence(config, state, token_ids, type_ids=None):
    """
    Encode one sentence.

    Args:
        config (`DseConfig`):
            Read for its fields only.
        state (`dict[str, torch.Tensor]`):
            The state dict of a `DseModel`, in float64.
        token_ids (`list[int]`):
            The real tokens of the sentence.
        type_ids (`list[int]`, *optional*):
            Their token types; all zero by default.

    Returns:
        `tuple`: the hidden states (for the embeddings and for each layer the list of the tokens' vectors), the
        attention weights (`[layer][head][token]`, each a vector over the open slots), the vectors of the tokens that
        are pooled, and the sentence embedding.
    """
    hidden_states = [embed_tokens(config, state, token_ids, type_ids or [0] * len(token_ids))]
    attentions = []
    for layer in range(config.num_hidden_layers):
        xs, weights = encoder_layer(hidden_states[-1], config, state, layer)
        hidden_states.append(xs)
        attentions.append(weights)
    xs = token_vectors(hidden_states, config, state)
    return hidden_states, attentions, xs, pool(xs, config)


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


# One head of one layer, for any encoder


def slots_of(keys, values, start, k, layer, num_layers):
    """The keys and values of the slots of a text, and the number of tokens that each stands for."""
    n = len(keys)
    if n <= k:
        return keys, values, [1] * n
    if start == "strided":
        ranks, sizes = zip(*selected_tokens(n, k, layer, num_layers), strict=True)
        return keys[list(ranks)], values[list(ranks)], sizes
    pool = {"mean": lambda part: part.mean(dim=0), "max": lambda part: part.amax(dim=0)}[start]
    segments = slot_tokens(n, k)
    pooled = (torch.stack([pool(states[segment]) for segment in segments]) for states in (keys, values))
    return *pooled, [len(segment) for segment in segments]


def attend_in_layer(queries, keys, values, layer_type, start, k, window, layer, num_layers):
    """The context of each token of a text, (n, d), from its queries, keys and values."""
    n, contexts = len(queries), []
    slots = slots_of(keys, values, start, k, layer, num_layers)
    for i, query in enumerate(queries):
        near = {
            "full_attention": lambda j, i=i: True,
            "linear_attention": lambda j, i=i: False,
            "sliding_attention": lambda j, i=i: abs(i - j) <= window,
            "sliding_linear_attention": lambda j, i=i: abs(i - j) <= window and n > k,
            "chunked_attention": lambda j, i=i: i // window == j // window or j in (0, n - 1),
        }[layer_type]
        ranks = [j for j in range(n) if near(j)]
        seen_keys, seen_values, sizes = keys[ranks], values[ranks], [1] * len(ranks)
        if "linear" in layer_type:
            seen_keys, seen_values = torch.cat([slots[0], seen_keys]), torch.cat([slots[1], seen_values])
            sizes = [*slots[2], *sizes]
        logits = seen_keys @ query / math.sqrt(len(query)) + torch.tensor(sizes, dtype=query.dtype).log()
        contexts.append(logits.softmax(dim=0) @ seen_values)
    return torch.stack(contexts)
