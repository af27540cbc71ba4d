# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Guarantees for every encoder inside a `DseModel`, in tiny random models of the real classes."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import pytest
import torch
import transformers
from harness import slow
from reference import assert_close, compare_layer, compare_texts, record
from torch._dynamo.utils import counters
from transformers import AutoModel, LlamaConfig
from transformers.models.esmc.configuration_esmc import EsmcConfig

from hf_dse import DseConfig, DseModel
from hf_dse.modeling import attention_dse
from hf_dse.modeling.attention_dse import LAYER_TYPES, STARTS, LayerInputs
from hf_dse.modeling.modeling_dse import find_attentions


SIZES = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "max_position_embeddings": 128,
    "initializer_range": 0.1,
}
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}
# These count positions from 2.
OFFSET = {"max_position_embeddings": 130}
ENCODERS = {
    "Albert": {"embedding_size": 16},
    "Bert": {},
    "Camembert": OFFSET,
    "Data2VecText": OFFSET,
    "DistilBert": {"dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 37},
    "Electra": {"embedding_size": 32},
    "EmbeddingGemma2Text": {
        "num_key_value_heads": 2,
        "head_dim": 8,
        "embedding_dim": 24,
        "sliding_window": 6,
        **SPECIAL,
    },
    "Ernie": {},
    "Esm": {"position_embedding_type": "rotary", "pad_token_id": 0, "mask_token_id": 4},
    "EuroBert": {"num_key_value_heads": 2, "mask_token_id": 4, **SPECIAL},
    "Gte": {},
    "JinaEmbeddingsV3": {},
    "ModernBert": {"local_attention": 12, "global_attn_every_n_layers": 2, **SPECIAL},
    "MPNet": OFFSET,
    "NomicBert": {},
    "Roberta": OFFSET,
    "RobertaPreLayerNorm": OFFSET,
    "Ultrabert": {"sliding_window": 6},
    "XLMRoberta": OFFSET,
    "XLMRobertaXL": OFFSET,
}
LOCAL = ["EmbeddingGemma2Text", "ModernBert", "Ultrabert"]
# Compiled without the marker `slow`.
QUICK = ["Bert", "ModernBert"]

# One string a row, "1" for a real token and "." for padding. Some rows have more tokens than there are slots.
ROWS = ["1111111111111111", "11111111111.....", "...........11111", "11.1.111..11.11."]
K = 6


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch):
    monkeypatch.setattr(attention_dse, "BLOCK_SIZE", 8)


def make_encoder(name, **fields):
    """An encoder of transformers."""
    if not hasattr(transformers, f"{name}Config"):
        pytest.skip("this version of transformers does not have it")
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**SIZES | ENCODERS[name] | fields)
    return AutoModel.from_config(config).double().eval()


def make_student(encoder, **fields):
    """A `DseModel` with the weights of an encoder."""
    student = DseModel(DseConfig(encoder=encoder.config, **{"linformer_length": K, **fields})).double().eval()
    missing, unexpected = student.encoder.load_state_dict(encoder.state_dict(), strict=False)
    assert all("linformer" in name for name in missing) and all("pooler" in name for name in unexpected)
    with torch.no_grad():
        for name in missing:
            student.encoder.get_parameter(name).normal_(std=0.3)
    return student


def make_batch(rows=ROWS):
    """Random tokens at the padding too: whatever stands there must not matter."""
    mask = torch.tensor([[int(char == "1") for char in row] for row in rows])
    input_ids = torch.randint(5, 99, mask.shape, generator=torch.Generator().manual_seed(0))
    return {"input_ids": input_ids, "attention_mask": mask}


def record_mpnet(student, batch):
    """`record` for MPNet, whose layers call no attention function."""
    attentions, seen, hooks = find_attentions(student.encoder), [], []
    for module in attentions:
        for part in (module.q, module.k, module.v):
            hooks.append(part.register_forward_hook(lambda module, args, output: seen.append(output)))
        hooks.append(module.o.register_forward_pre_hook(lambda module, args: seen.append(args[0])))
    states = student(**batch).last_hidden_state
    for hook in hooks:
        hook.remove()
    encoder, recorded = student.encoder.encoder, []
    lengths = batch["attention_mask"].sum(dim=1, keepdim=True)
    for i, module in enumerate(attentions):
        query, key, value, context = (part.unflatten(-1, (4, 8)).transpose(1, 2) for part in seen[4 * i : 4 * i + 4])
        # Token i gets the bias of its distance to token j by features of their own: [q, 1 at i] * [k, bias of (i, j)].
        bias = type(encoder).compute_position_bias(encoder, query[:, 0]).transpose(2, 3)
        ones = torch.eye(query.shape[2], dtype=query.dtype).expand(len(query), 4, -1, -1)
        keys = torch.cat([key, bias.expand_as(ones) * 8**0.5], dim=-1)
        module.scaling = 8**-0.5
        inputs = LayerInputs(torch.cat([query, ones], dim=-1), keys, value, lengths)
        leaves = [*seen[4 * i : 4 * i + 3], encoder.relative_attention_bias.weight]
        recorded.append((module, module.linformer_layer, inputs, context.transpose(1, 2), leaves))
    return states, recorded


# As the encoder of transformers


@torch.no_grad()
@pytest.mark.parametrize("name", ENCODERS)
def test_texts_of_up_to_k_tokens_are_those_of_the_source(name):
    encoder, batch = make_encoder(name), make_batch()
    student, shorter = make_student(encoder, linformer_length=16), make_student(encoder)
    states, approximate = student(**batch).last_hidden_state, shorter(**batch).last_hidden_state
    for row, mask in enumerate(batch["attention_mask"].bool()):
        # The source may take padding at the end only.
        expected = encoder(batch["input_ids"][row : row + 1, mask]).last_hidden_state[0]
        # Some of them compute norms in float32.
        assert_close(states[row, mask], expected, atol=2e-6)
        assert (mask.sum() <= K) == torch.allclose(approximate[row, mask], expected, atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("name", LOCAL)
def test_windows_are_those_of_the_source(name):
    encoder, batch = make_encoder(name), make_batch(["1" * 60, "1" * 37 + "." * 23])
    student = make_student(encoder, linformer_length=60)
    assert "sliding_attention" in student.config.layer_types
    is_token = batch["attention_mask"].bool()
    expected, states = encoder(**batch).last_hidden_state, student(**batch).last_hidden_state
    assert_close(states[is_token], expected[is_token], atol=2e-6)
    compare_texts(student, make_batch(["1" * 60, "." * 23 + "1" * 37]))


# As the slow reference

PROJECTIONS = [
    *({"linformer_projection": projection} for projection in ("strided", "mean")),
    *(
        {"linformer_projection": "learned", "linformer_init": start, "linformer_sharing": sharing}
        for start, sharing in product(("strided", "mean"), ("none", "headwise", "key_value", "layerwise"))
    ),
]
LEARNED = {"linformer_projection": "learned", "linformer_sharing": "none"}


def choices(name):
    """The default, and one choice with what else the encoder allows; of an encoder that shares key heads, all."""
    yield {}
    if name == "MPNet":
        yield {"layer_types": ["linear_attention", "full_attention", "linear_attention"]}
    elif name == "Albert":
        yield LEARNED | {"layer_types": ["sliding_linear_attention"] * 3}
    else:
        yield LEARNED | {"layer_types": ["sliding_linear_attention", "chunked_attention", "linear_attention"]}
    if name == "EuroBert":
        kinds = ["linear_attention", "sliding_linear_attention", "linear_attention"]
        yield from (fields | {"layer_types": kinds} for fields in PROJECTIONS)


def describe(value):
    return value if isinstance(value, str) else " ".join(part for part in value.values() if isinstance(part, str))


@pytest.mark.parametrize(
    ("name", "fields"), [(name, fields) for name in ENCODERS for fields in choices(name)], ids=describe
)
def test_layers_equal_the_slow_reference_with_gradients(name, fields):
    fields = {"sliding_window": 3, "attention_chunk_size": 5, **fields}
    student, batch = make_student(make_encoder(name), **fields), make_batch()
    states, recorded = (record_mpnet if name == "MPNet" else record)(student, batch)
    assert len(recorded) == 3
    for attention in recorded:
        compare_layer(*attention)
    # BERT has a faster way, which is not recorded.
    assert_close(student(**batch).last_hidden_state, states)
    compare_texts(student, batch)


# As a model of transformers


@torch.no_grad()
@pytest.mark.parametrize("name", ENCODERS)
def test_saved_and_reloaded(name, tmp_path):
    student, batch = make_student(make_encoder(name)).float(), make_batch()
    expected = student(**batch).pooler_output
    student.save_pretrained(tmp_path)
    for options in ({}, {"attn_implementation": "sdpa"}, {"attn_implementation": "eager"}):
        loaded, info = AutoModel.from_pretrained(tmp_path, output_loading_info=True, **options)
        assert type(loaded) is DseModel and not any(info.values())
        assert expected.shape[1] == loaded.config.embedding_size
        assert loaded(**batch).pooler_output.equal(expected)


@torch.no_grad()
@pytest.mark.parametrize("name", ENCODERS)
def test_weights_of_slots_sum_to_1(name):
    student, batch = make_student(make_encoder(name)), make_batch()
    outputs = student(**batch, output_attentions=True, output_hidden_states=True)
    assert len(outputs.hidden_states) == 4 and len(outputs.attentions) == 3
    assert_close(outputs.pooler_output, student(**batch).pooler_output)
    for weights, kind in zip(outputs.attentions, student.config.layer_types, strict=True):
        assert weights.shape[:3] == (4, 4, 16)
        assert weights.shape[3] == (K if kind == "linear_attention" else 6 + 8 + 6)
        sums = weights.sum(dim=-1).transpose(1, 2)[batch["attention_mask"].bool()]
        torch.testing.assert_close(sums, torch.ones_like(sums))


@pytest.mark.parametrize("name", ENCODERS)
def test_gradient_checkpointing_and_half_precision(name):
    encoder, batch = make_encoder(name), make_batch()
    student = make_student(encoder).float().train()
    gradients = []
    for is_checkpointed in (False, True):
        if is_checkpointed and encoder.supports_gradient_checkpointing:
            student.activation_checkpointing_enable()
            assert student.is_activation_checkpointing
        torch.manual_seed(0)
        student(**batch).pooler_output.square().sum().backward()
        gradients.append([weights.grad.clone() for weights in student.parameters() if weights.grad is not None])
        student.zero_grad()
    for before, after in zip(*gradients, strict=True):
        torch.testing.assert_close(after, before)
    with torch.autocast("cpu", torch.bfloat16):
        embeddings = student(**batch).pooler_output
    embeddings.float().square().sum().backward()
    assert all(weights.grad.isfinite().all() for weights in student.parameters() if weights.grad is not None)
    assert all(weights.grad is not None for weights in find_attentions(student.encoder)[0].parameters())


@torch.no_grad()
@pytest.mark.parametrize("name", [name if name in QUICK else slow(name) for name in ENCODERS])
def test_one_graph_serves_all_lengths(name):
    torch._dynamo.reset()
    counters.clear()
    student = make_student(make_encoder(name, num_hidden_layers=2))
    compiled = torch.compile(student, backend="eager", fullgraph=True, dynamic=True)
    for length in (15, 13, 9):
        batch = make_batch([row[-length:] for row in ROWS[1:]])
        expected = student(**batch).pooler_output
        assert_close(compiled(**batch).pooler_output, expected)
    assert counters["stats"]["unique_graphs"] == 1


@torch.no_grad()
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="the compiler needs g++")
@pytest.mark.parametrize("kind", LAYER_TYPES)
def test_the_compiler_serves_all_lengths(kind):
    torch.compiler.reset()
    fields = {"attention_chunk_size": 8} if kind == "chunked_attention" else {}
    fields |= {"sliding_window": 8} if kind.startswith("sliding") else {}
    student = make_student(make_encoder("Bert", num_hidden_layers=1), layer_types=[kind], **fields)
    compiled = torch.compile(student, dynamic=True)
    # Without padding, where slots are a function of the length alone, and with it, where the message of the check is a
    # string in C++.
    for rows in (ROWS[:1], [ROWS[0][2:]], ROWS[:2]):
        batch = make_batch(rows)
        assert_close(compiled(**batch).pooler_output, student(**batch).pooler_output)


@torch.no_grad()
@pytest.mark.parametrize("kind", LAYER_TYPES)
def test_a_text_that_is_not_finite_leaves_the_others_as_they_are(kind):
    fields = {"attention_chunk_size": 8} if kind == "chunked_attention" else {}
    fields |= {"sliding_window": 4} if kind.startswith("sliding") else {}
    student = make_student(make_encoder("Bert", num_hidden_layers=1), layer_types=[kind], **fields)
    states = torch.randn(3, 16, 32, dtype=torch.double, generator=torch.Generator().manual_seed(0))
    expected = student(inputs_embeds=states).last_hidden_state
    states[1] = torch.nan
    found = student(inputs_embeds=states).last_hidden_state
    assert found[1].isnan().all()
    assert_close(found[::2], expected[::2])


# Alone, by `attn_implementation="linformer"`

T5_SIZES = {"vocab_size": 99, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}


@torch.no_grad()
@pytest.mark.parametrize("name", [name for name in ENCODERS if name != "MPNet"])
def test_a_bare_encoder_attends_like_a_student(name, tmp_path):
    make_encoder(name).float().save_pretrained(tmp_path)
    bare = AutoModel.from_pretrained(tmp_path, attn_implementation="linformer").double()
    bare.config.linformer_length = K
    student, batch = make_student(bare), make_batch(ROWS[:2])
    is_token = batch["attention_mask"].bool()
    states, expected = bare(**batch).last_hidden_state, student(**batch).last_hidden_state
    assert_close(states[is_token], expected[is_token])
    with pytest.raises(ValueError, match="padding on the right"):
        bare(**make_batch(ROWS))


def test_what_cannot_be_linear_is_refused(warnings):
    bare = make_encoder("Bert")
    bare.set_attn_implementation("linformer")
    input_ids = make_batch()["input_ids"]
    with pytest.raises(ValueError, match="n x n masks have no meaning"):
        bare(input_ids, attention_mask=torch.ones(4, 1, 16, 16, dtype=torch.bool))
    bare.config.linformer_length = 2
    with pytest.raises(ValueError, match="at least 3, .* got 2"):
        bare(input_ids)
    bare.config.linformer_length = K
    for dropped in ({"softcap": 50.0}, {"position_bias": torch.zeros(1)}, {"cu_seq_lens_q": torch.zeros(2)}):
        with pytest.raises(ValueError, match=f"cannot honour `{[*dropped][0]}` of BertSelfAttention"):
            bare(input_ids, **dropped)
    bare(input_ids, softcap=None, num_items_in_batch=torch.tensor(4), output_attentions=True)
    student = make_student(bare)
    student.set_attn_implementation("sdpa")
    assert any("attn_implementation='sdpa' changes nothing" in warning for warning in warnings)
    causal = AutoModel.from_config(LlamaConfig(**SIZES, **SPECIAL), attn_implementation="linformer")
    with pytest.raises(ValueError, match="for encoders, and LlamaAttention is causal"):
        causal(input_ids)


@pytest.mark.parametrize("name", ["T5", "MT5", "UMT5"])
def test_biases_by_distance_are_refused(name):
    config = getattr(transformers, f"{name}Config")(**T5_SIZES)
    bare = getattr(transformers, f"{name}EncoderModel")._from_config(config, attn_implementation="linformer")
    with pytest.raises(ValueError, match=f"`position_bias` of {name}Attention: load the model with"):
        bare(**make_batch(ROWS[:2]))


def test_soft_caps_and_chains_are_refused():
    side = SIZES | {"num_key_value_heads": 2, "head_dim": 16, "attn_logit_softcapping": 50.0}
    config = transformers.T5GemmaConfig(encoder=side, decoder=dict(side), is_encoder_decoder=False)
    capped = transformers.T5GemmaEncoderModel._from_config(config, attn_implementation="linformer")
    with pytest.raises(ValueError, match="`softcap` of T5GemmaSelfAttention"):
        capped(**make_batch(ROWS[:2]))
    chains = AutoModel.from_config(EsmcConfig(**SIZES, pad_token_id=1), attn_implementation="linformer").eval()
    input_ids = torch.arange(5, 15)[None]
    with pytest.raises(ValueError, match="mask function, such as that of packed texts or of the chains"):
        chains(input_ids=input_ids, sequence_id=torch.arange(10)[None] // 5)
    exact = AutoModel.from_config(chains.config, attn_implementation="eager").eval()
    exact.load_state_dict(chains.state_dict())
    one_chain = (model(input_ids=input_ids).last_hidden_state for model in (chains, exact))
    torch.testing.assert_close(*one_chain, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", [name for name in ENCODERS if name != "MPNet"])
def test_each_layer_of_a_bare_encoder_chooses_tokens_of_its_own(name, monkeypatch):
    bare, chosen = make_encoder(name), []
    bare.set_attn_implementation("linformer")
    bare.config.linformer_length = K
    choose, fill = STARTS["strided"]
    monkeypatch.setitem(STARTS, "strided", (lambda *args: chosen.append(choose(*args)) or chosen[-1], fill))
    input_ids = torch.randint(5, 25, (1, 40))
    with ThreadPoolExecutor(2) as threads:
        passes = [threads.submit(lambda: bare(input_ids=input_ids)) for _ in range(3)]
        [one_pass.result() for one_pass in passes]
    places = {tuple(slots.tokens[0].tolist()) for slots in chosen}
    # Windows choose none.
    linear = [kind for kind in getattr(bare.config, "layer_types", None) or ["full_attention"] * 3 if "full" in kind]
    assert len(places) == len(linear)


@pytest.mark.parametrize("mode", ["compile", "export"])
def test_padding_on_the_left_is_refused_in_a_graph(mode):
    torch._dynamo.reset()
    bare = make_encoder("Bert").float()
    bare.set_attn_implementation("linformer")
    bare.config.linformer_length = K
    right = make_batch(ROWS[:2])
    batch = {name: values.long() for name, values in right.items()}
    if mode == "compile":
        graph = torch.compile(bare, backend="eager", fullgraph=True)
    else:
        graph = torch.export.export(bare, (), batch).module()
    with torch.no_grad():
        states, expected = graph(**batch).last_hidden_state, bare(**batch).last_hidden_state
        torch.testing.assert_close(states, expected)
        left = batch | {"attention_mask": batch["attention_mask"].flip(1)}
        with pytest.raises(RuntimeError, match="padding on the right"):
            graph(**left)
