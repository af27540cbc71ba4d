# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Conversion: checkpoints of any encoder become DSE encoders that compute the same on inputs of up to k tokens, or are
refused with a reason.
"""

import copy
import inspect
from dataclasses import fields
from functools import partial
from typing import NamedTuple, get_args

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from torch import nn
from transformers import (
    AttentionInterface,
    AutoConfig,
    AutoModel,
    BertForMaskedLM,
    HfArgumentParser,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from hf_dse import DseConfig, DseModel, convert_encoder
from hf_dse.convert.convert import convert_with_options, make_pair_model
from hf_dse.convert.options import ConvertOptions
from hf_dse.modeling.configuration_dse import LAYER_TYPES


NUM_LAYERS = 4
LIMIT = 24  # longest input in tokens

# Fields of the tiny sources; what a conversion could forget to carry over has another value than by default.
KINDS = {
    "bert": {"type_vocab_size": 3, "hidden_act": "gelu_new", "layer_norm_eps": 1e-3},
    "roberta": {"type_vocab_size": 1},
    "distilbert": {"activation": "relu", "dropout": 0.2, "attention_dropout": 0.3},
    # Full and local attention in turn, rotary positions; the first layer has a norm less.
    "modernbert": {
        "global_attn_every_n_layers": 2,
        "local_attention": 8,
        "mlp_dropout": 0.2,
        "attention_dropout": 0.3,
    },
    # Two queries have a key in common.
    "eurobert": {"num_key_value_heads": 2, "attention_dropout": 0.3},
    "mpnet": {},
    # One module serves all layers.
    "albert": {"embedding_size": 12},
}
TOKENIZERS = {"bert": "bert", "albert": "bert", "roberta": "roberta", "mpnet": "roberta"}
ROTARY = ("modernbert", "eurobert")
# Two rows of their tables are no positions.
LATER = ("roberta", "mpnet")

TEXTS = ["the old cat sat on", "dog", "a cat ran in the house", "new house"]
PAIRS = [(TEXTS[0], TEXTS[1]), (TEXTS[3], TEXTS[2]), ("the the", "the the")]


class Source(NamedTuple):
    """A tiny checkpoint: where it is saved, and what is saved there."""

    path: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase

    def batch(self, texts=TEXTS, side="right"):
        # Only ids and mask: a sentence embedding has no use for token types.
        # A copy, because a tokenizer saves the padding of its last call, and other tests have it, too.
        tokenizer = copy.deepcopy(self.tokenizer)
        batch = tokenizer(texts, padding=True, padding_side=side, return_tensors="pt")
        return {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}


def make_config(kind, **changed):
    sizes = {"hidden_size": 16, "num_hidden_layers": NUM_LAYERS, "num_attention_heads": 4, "intermediate_size": 20}
    dropout = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3}
    common = {"vocab_size": 300, "initializer_range": 0.03, "max_position_embeddings": LIMIT, "pad_token_id": 0}
    later = {"max_position_embeddings": LIMIT + 2, "pad_token_id": 1} if kind in LATER else {}
    return AutoConfig.for_model(kind, **{**sizes, **dropout, **common, **later, **KINDS.get(kind, {}), **changed})


def shake(model):
    """Moves every parameter away from its start, biases and norms too, so that none can be swapped unnoticed."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.25)
    return model.eval()


@pytest.fixture(scope="module")
def save_source(tokenizers):
    def save(path, kind, model=None, **changed):
        model = model or shake(AutoModel.from_config(make_config(kind, **changed)))
        tokenizer = tokenizers[TOKENIZERS.get(kind, "distilbert")]
        model.save_pretrained(path)
        tokenizer.save_pretrained(path)
        return Source(str(path), model, tokenizer)

    return save


@pytest.fixture(scope="module")
def sources(save_source, tmp_path_factory):
    return {kind: save_source(tmp_path_factory.mktemp(kind), kind) for kind in KINDS}


@pytest.fixture
def bert(sources):
    return sources["bert"]


def convert(source, **overrides):
    return convert_encoder(getattr(source, "path", source), **{"linformer_length": LIMIT, **overrides})


@torch.no_grad()
def states(model, ids, mask=None):
    """The states of the real tokens."""
    mask = torch.ones_like(ids) if mask is None else mask
    return model(input_ids=ids, attention_mask=mask).last_hidden_state[mask.bool()]


assert_close = partial(torch.testing.assert_close, rtol=0, atol=2e-5)


def make_ids(length=LIMIT, rows=2):
    # Ids from 5 on: the ones before are special tokens.
    return torch.randint(5, 40, (rows, length), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("projection", ["learned", "mean", "strided"])
@pytest.mark.parametrize("kind", KINDS)
def test_equals_its_source_up_to_k_tokens(sources, kind, projection):
    source = sources[kind]
    if kind == "mpnet" and projection != "strided":
        with pytest.raises(StrictDataclassError, match='MPNet .* takes `linformer_projection="strided"`'):
            convert(source, linformer_projection=projection)
        return
    right, left = source.batch(side="right"), source.batch(side="left")
    lengths = right["attention_mask"].sum(dim=1).tolist()
    expected = states(source.model, *right.values())
    embeddings = torch.stack([part.mean(dim=0) for part in expected.split(lengths)])
    assert min(lengths) < max(lengths)
    for sharing in ["none", "headwise", "key_value", "layerwise"] if projection == "learned" else ["none"]:
        chosen = {"linformer_projection": projection, "linformer_sharing": sharing}
        model = convert(source, linformer_length=max(lengths), max_position_embeddings=max(lengths), **chosen)
        assert model.dtype == torch.float32 and not model.training
        for batch in (right, left):
            assert_close(states(model, *batch.values()), expected)
            assert_close(model(**batch).pooler_output, embeddings)


@pytest.mark.parametrize("kind", KINDS)
def test_the_configuration_of_the_source_is_kept(sources, kind):
    model = convert(sources[kind])
    ours, theirs = model.config.encoder.to_dict(), sources[kind].model.config.to_dict()
    of_heads = ("classifier_", "seq_classif_", "qa_")
    names = [name for name in theirs if "dropout" in name and not name.startswith(of_heads) and theirs[name]]
    assert [theirs[name] for name in names] == [0.3 if "attention" in name else 0.2 for name in names] != []
    # No attention dropout, which has no fast kernel on a CPU.
    theirs |= {name: 0.0 for name in names if "attention" in name}
    for name in ("architectures", "dtype", "_name_or_path"):
        ours.pop(name), theirs.pop(name)
    assert ours == theirs
    changed = convert(sources[kind], hidden_dropout_prob=0.4, attention_probs_dropout_prob=0.1).config.encoder
    assert [getattr(changed, name) for name in names] == [0.1 if "attention" in name else 0.4 for name in names]
    kinds = ["linear_attention", "sliding_attention" if kind == "modernbert" else "linear_attention"]
    assert model.config.layer_types == kinds * (NUM_LAYERS // 2)
    assert model.config.linformer_projection == ("strided" if kind in (*ROTARY, "mpnet") else "learned")


def test_a_model_with_a_head_that_is_stored_in_bfloat16(save_source, tmp_path):
    head = shake(BertForMaskedLM(make_config("bert"))).bfloat16()
    source = save_source(tmp_path, "bert", model=head)
    model = convert(source)
    assert model.dtype == torch.float32
    assert_close(states(model, make_ids()), states(head.bert.float(), make_ids()))


@pytest.mark.parametrize(
    ("kind", "choice", "kept"),
    [
        ("bert", {"num_hidden_layers": 2}, [1, 3]),
        ("bert", {"num_hidden_layers": 3}, [0, 1, 3]),
        ("mpnet", {"num_hidden_layers": 2}, [1, 3]),
        ("eurobert", {"num_hidden_layers": 2}, [1, 3]),
        # Only its first layer can be the first.
        ("modernbert", {"num_hidden_layers": 2}, [0, 2]),
        ("albert", {"num_hidden_layers": 2}, [1, 3]),
    ],
)
def test_fewer_layers_equal_the_source_cut_to_them(sources, kind, choice, kept):
    source = sources[kind]
    model = convert(source, **choice)
    assert model.config.num_hidden_layers == len(model.config.layer_types) == len(kept)
    cut = AutoModel.from_pretrained(source.path)
    cut.config.num_hidden_layers = len(kept)
    if kind == "modernbert":
        cut.config.layer_types = [cut.config.layer_types[layer] for layer in kept]
    if kind != "albert":
        name, layers = next((name, part) for name, part in cut.named_modules() if isinstance(part, nn.ModuleList))
        cut.set_submodule(name, nn.ModuleList([layers[layer] for layer in kept]))
    assert_close(states(model, make_ids()), states(cut, make_ids()))


@pytest.mark.parametrize(
    ("kind", "choice", "message"),
    [
        ("bert", {"num_hidden_layers": 5}, "`num_hidden_layers` must be between 1 and 4, .* got 5"),
        ("bert", {"num_hidden_layers": 0}, "`num_hidden_layers` must be between 1 and 4, .* got 0"),
        ("bert", {"hidden_size": 32}, r"has no fields \['hidden_size'\] that can be chosen. .*'linformer_length'"),
        ("bert", {"encoder": None}, r"has no fields \['encoder'\] that can be chosen"),
    ],
)
def test_choices_that_do_not_fit(sources, kind, choice, message):
    with pytest.raises(ValueError, match=message):
        convert(sources[kind], **choice)


def with_longer_table(source, length):
    """The source itself with positions for a text of this length: those of its table, repeated."""
    state = source.model.state_dict()
    (name,) = (name for name in state if name.endswith("position_embeddings.weight"))
    first = len(state[name]) - LIMIT
    table = state[name][first:]
    state[name] = torch.cat([state[name][:first], table[torch.arange(length) % LIMIT]])
    config = source.model.config.to_dict() | {"max_position_embeddings": first + length}
    longer = AutoModel.from_config(AutoConfig.for_model(**config)).eval()
    longer.load_state_dict(state)
    return longer


@pytest.mark.parametrize("kind", KINDS)
def test_positions(sources, kind):
    source, length = sources[kind], 2 * LIMIT + 7
    limited = convert(source)
    assert limited.config.max_position_embeddings == LIMIT
    with pytest.raises(ValueError, match=f"{LIMIT + 1} tokens, but this model takes at most {LIMIT}"):
        limited(input_ids=make_ids(LIMIT + 1))
    lengths = {"linformer_length": length, "max_position_embeddings": length}
    model = convert(source, **lengths)
    is_rotary = kind in ROTARY
    assert model.config.max_position_embeddings == length
    # Rotary positions just go on.
    longer = source.model if is_rotary else with_longer_table(source, length)
    short, long = make_ids(LIMIT)[:1], make_ids(length)[:1]
    # Whatever stands beside it in a batch, a text of the length of the table is read as by the source.
    expected = torch.cat([states(source.model, short), states(longer, long)])
    blank = torch.full((1, length - LIMIT), source.tokenizer.pad_token_id)
    for row in ([short, blank], [blank, short]):
        mask = torch.cat([torch.full_like(part, part is short) for part in row], dim=1)
        ids, mask = torch.cat([torch.cat(row, dim=1), long]), torch.cat([mask, torch.ones_like(long)])
        assert_close(states(model, ids, mask), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_pair_format(sources, kind):
    source, model = sources[kind], convert(sources[kind])
    assert model.config.num_pair_separators == (2 if kind in LATER else 1)
    assert model.config.sep_token_id == source.tokenizer.sep_token_id
    # With it, pairs as the tokenizer writes them are split into the two sentences.
    pair_model = make_pair_model(model, num_labels=1)
    first, second = zip(*PAIRS, strict=True)
    with torch.no_grad():
        logits = pair_model(**source.tokenizer(first, second, padding=True, return_tensors="pt")).logits
        u, v = (model(**source.batch(list(texts))).pooler_output for texts in (first, second))
    assert_close(logits[:, 0], torch.cosine_similarity(u, v))


def test_a_source_without_tokenizer(bert, tmp_path, warnings):
    bert.model.save_pretrained(tmp_path)
    # Not the id that a made-up tokenizer would have.
    assert convert(tmp_path).config.sep_token_id is None
    assert "has no tokenizer: pairs can be split by token types only" in warnings[0]
    chosen = convert(tmp_path, sep_token_id=3, num_pair_separators=2).config
    assert (chosen.sep_token_id, chosen.num_pair_separators) == (3, 2)


GEMMA = {"hidden_size_per_layer_input": 8, "embedding_dim": 16, "head_dim": 4}
ESM = {"mask_token_id": 3, "position_embedding_type": "rotary"}
MOBILE = {"embedding_size": 16, "true_hidden_size": 16, "intra_bottleneck_size": 16}
RELATIVE = {"position_embedding_type": "relative_key"}


# Kinds with fields of their own, what is chosen, and why this is refused.
@pytest.mark.parametrize(
    ("kind", "own", "choice", "reason"),
    [
        ("deberta-v2", {}, {}, "type 'deberta-v2' and cannot be converted: transformers cannot exchange its"),
        ("llama", {}, {}, "type 'llama' and cannot be converted: its attention is causal. Convert an encoder whose"),
        ("gpt2", {}, {}, "type 'gpt2' and cannot be converted: its attention is causal"),
        # It does not say so.
        ("clip_text_model", {}, {"num_hidden_layers": 2}, "CLIPAttention is causal"),
        ("t5", {"num_layers": 2, "d_kv": 4}, {}, "has a decoder, whose causal attention cannot be converted"),
        ("bert", {"is_decoder": True}, {}, "has a decoder, whose causal attention cannot be converted"),
        ("bert", RELATIVE, {}, "`position_embedding_type='relative_key'`: relative positions are part of n x n"),
        ("mobilebert", MOBILE, {}, "depends on the padding behind it .as that of MobileBERT"),
        ("layoutlm", {}, {}, "needs the boolean mask of the real tokens"),
        # Other parts of them depend on the layers.
        ("esm", ESM, {"num_hidden_layers": 2}, r"cannot be cut to the layers \[1, 3\]: size mismatch"),
        ("embedding_gemma2_text", GEMMA, {"num_hidden_layers": 2}, r"cannot be cut to the layers \[1, 3\]: size"),
        ("albert", {"num_hidden_groups": 2}, {"num_hidden_layers": 2}, "groups of layers that share their weights"),
    ],
)
def test_sources_that_are_refused(save_source, tmp_path, kind, own, choice, reason):
    source = save_source(tmp_path, kind, **own)
    with pytest.raises(ValueError, match=reason):
        convert(source, **choice)
    if choice and kind != "clip_text_model":
        assert_close(states(convert(source), make_ids()), states(source.model, make_ids()))


def test_what_is_no_encoder_is_refused(make_model, tmp_path):
    AutoConfig.for_model("clip").save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="is of the type 'clip', which is not one text encoder"):
        convert(tmp_path)
    make_model(DseModel).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="is already a DSE model: load it with `AutoModel.from_pretrained`"):
        convert(tmp_path)


def test_an_encoder_that_attends_otherwise_is_refused(bert, monkeypatch):
    def attend(*args, **kwargs):
        context, weights = right(*args, **kwargs)
        return 2 * context, weights

    right = AttentionInterface()["linformer"]
    monkeypatch.setitem(AttentionInterface._global_mapping, "linformer", attend)
    with pytest.raises(ValueError, match="cannot be converted exactly: on a text of 24 tokens .* differ by"):
        convert(bert)
    forward = "transformers.models.bert.modeling_bert.BertSelfAttention.forward"
    monkeypatch.setattr(
        forward, lambda module, states, *args, **kwargs: (states + states.mean(dim=1, keepdim=True), None)
    )
    with pytest.raises(ValueError, match="4 of its layers do not call the attention function"):
        convert(bert)


def test_report(bert, infos, capsys):
    layer_types = ["linear_attention", "full_attention"]
    chosen = {"linformer_length": 8, "max_position_embeddings": 50, "projection_dim": 5, "pooling_mode": "cls"}
    convert(bert, num_hidden_layers=2, layer_types=layer_types, **chosen)
    assert infos[-1].splitlines() == [
        f"Converted {bert.path}: linear_attention in 1 of 2 layers, full_attention in 1 of 2 layers, "
        "learned projection to k = 8, cls pooling",
        "  kept: layers [1, 3] of 4, 50 positions (the source has 24)",
    ]
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("similarity", "num_labels"), [("cosine", 1), ("dot", 3), ("mlp", 3)])
def test_make_pair_model(bert, similarity, num_labels):
    encoder = convert(bert, projection_dim=6)
    before = encoder.config.to_dict()
    model = make_pair_model(encoder, similarity=similarity, num_labels=num_labels, similarity_hidden_size=7)
    assert (model.config.similarity, model.config.num_labels, model.training) == (similarity, num_labels, False)
    assert len(model.config.id2label) == num_labels and encoder.config.to_dict() == before
    for name, value in encoder.state_dict().items():
        # A copy: training the pair model leaves the encoder alone.
        weight = model.dse.state_dict()[name]
        assert weight.equal(value) and weight.data_ptr() != value.data_ptr()
    if similarity == "mlp":
        assert model.similarity.dense.weight.shape == (7, 4 * 6)
    with pytest.raises(ValueError, match=r"has no fields \['num_label'\].*'num_labels'"):
        make_pair_model(encoder, num_label=3)


def parse(*argv):
    (arguments,) = HfArgumentParser(ConvertOptions).parse_args_into_dataclasses(list(argv))
    return arguments


def words(kind):
    """The words that a type allows."""
    found = [choice for part in (kind, *get_args(kind)) for choice in get_args(part)]
    return [choice for choice in found if isinstance(choice, str)]


def test_options_are_the_arguments_and_fields_that_can_be_chosen():
    options = {option.name: option for option in fields(ConvertOptions)}
    parameters = inspect.signature(convert_encoder).parameters
    own = {"name_or_path", "config_overrides"}
    # The source's tokenizer and files say these.
    read = {"encoder", "sep_token_id", "num_pair_separators"}
    known = {field.name: field for field in fields(DseConfig) if field.name in DseConfig.__annotations__}
    assert {*options} - {"query_prompt", "document_prompt"} == {*parameters} - own | {*known} - read
    for name in options.keys() & known.keys():
        choices = LAYER_TYPES if name == "layer_types" else words(known[name].type)
        assert sorted(options[name].metadata.get("choices", words(options[name].type))) == sorted(choices), name


def test_arguments(bert):
    assert convert_with_options(bert.path, parse()).config.to_dict() == convert_encoder(bert.path).config.to_dict()
    # A value per layer.
    arguments = parse(
        *"--linformer_length 8 6 --layer_types linear_attention full_attention --num_hidden_layers 2".split(),
        *"--linformer_projection mean --normalize_embeddings true".split(),
    )
    config = convert_with_options(bert.path, arguments).config
    assert (config.linformer_length, config.layer_types) == ([8, 6], ["linear_attention", "full_attention"])
    assert (config.linformer_projection, config.normalize_embeddings) == ("mean", True)
    same = convert_with_options(bert.path, parse(*"--linformer_length 6 --layer_types full_attention".split())).config
    assert (same.linformer_length, same.layer_types) == (6, ["full_attention"] * NUM_LAYERS)
