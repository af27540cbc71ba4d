# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Conversion: BERT, RoBERTa, XLM-R and DistilBERT checkpoints become DSE encoders that compute the same on inputs of up
to k tokens, or are refused with a reason.
"""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModel,
    BertConfig,
    BertForMaskedLM,
    BertModel,
    DistilBertConfig,
    DistilBertModel,
    GPT2Config,
    HfArgumentParser,
    MPNetConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    RobertaConfig,
    RobertaModel,
    XLMRobertaConfig,
    XLMRobertaModel,
)

from hf_dse import DseConfig, DseModel, convert_encoder
from hf_dse.convert.convert import ConvertArguments, make_pair_model


TOLERANCE = 1e-5
KINDS = ["bert", "roberta", "xlm-roberta", "distilbert"]
PROJECTIONS = ["learned", "conv", "mean", "max", "strided"]
SHARINGS = ["none", "headwise", "key_value", "layerwise"]
NUM_LAYERS = 4
LIMIT = 24  # longest input in tokens

TEXTS = ["the old cat sat on", "dog", "a cat ran in the house", "new house"]
PAIRS = [(TEXTS[0], TEXTS[1]), (TEXTS[3], TEXTS[2]), ("the the", "the the")]


@dataclass
class Source:
    """A tiny checkpoint: where it is saved, and what is saved there."""

    path: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase

    def batch(self, texts=TEXTS, side="right"):
        # Only ids and mask: a sentence embedding has no use for token types.
        batch = self.tokenizer(texts, padding=True, padding_side=side, return_tensors="pt")
        return {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}


def make_config(kind, **overrides):
    """The fields that have a default which a conversion could forget to carry over have another value here."""
    shared = {"vocab_size": 300, "initializer_range": 0.03}
    if kind == "distilbert":
        sizes = {"dim": 16, "n_layers": NUM_LAYERS, "n_heads": 4, "hidden_dim": 20, "max_position_embeddings": LIMIT}
        others = {"activation": "relu", "dropout": 0.2, "attention_dropout": 0.3}
        return DistilBertConfig(**{**shared, **sizes, **others, **overrides})
    sizes = {"hidden_size": 16, "num_hidden_layers": NUM_LAYERS, "num_attention_heads": 4, "intermediate_size": 20}
    others = {"hidden_act": "gelu_new", "hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3}
    fields = {**shared, **sizes, **others, "layer_norm_eps": 1e-3}
    if kind == "bert":
        return BertConfig(**{**fields, "type_vocab_size": 3, "max_position_embeddings": LIMIT, **overrides})
    fields.update(type_vocab_size=1, pad_token_id=1, bos_token_id=0, eos_token_id=2, max_position_embeddings=LIMIT + 2)
    return (RobertaConfig if kind == "roberta" else XLMRobertaConfig)(**{**fields, **overrides})


MODELS = {"bert": BertModel, "roberta": RobertaModel, "xlm-roberta": XLMRobertaModel, "distilbert": DistilBertModel}


def shake(model):
    """Moves every parameter away from its start, biases and norms too, so that none can be swapped unnoticed."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.25)
    return model.eval()


@pytest.fixture(scope="module")
def save_source(tokenizers):
    def save(path, kind, model=None, **config_overrides):
        model = model or shake(MODELS[kind](make_config(kind, **config_overrides)))
        tokenizer = tokenizers[kind.removeprefix("xlm-")]
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
    overrides = {"linformer_length": LIMIT, **overrides}
    return convert_encoder(getattr(source, "path", source), **overrides)


@torch.no_grad()
def difference(first, second, mask):
    """Largest absolute difference of the states of real tokens."""
    return (first - second)[mask.bool()].abs().max().item()


@torch.no_grad()
def states(model, batch, **kwargs):
    return model(**batch, **kwargs).last_hidden_state


def mean_pool(hidden_states, mask):
    return torch.stack([row[keep.bool()].mean(dim=0) for row, keep in zip(hidden_states, mask, strict=True)])


def full_length_ids(length=LIMIT, rows=2):
    # Ids from 5 on: the ones before are special tokens.
    return torch.randint(5, 40, (rows, length), generator=torch.Generator().manual_seed(0))


def positions_of(model):
    return model.embeddings.position_embeddings.weight.detach()


# Same outputs as the source


@pytest.mark.parametrize("projection", PROJECTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_equals_its_source_up_to_k_tokens(sources, kind, projection):
    source = sources[kind]
    right, left = source.batch(side="right"), source.batch(side="left")
    mask, left_mask = right["attention_mask"], left["attention_mask"]
    longest = mask.shape[1]
    assert mask.sum(dim=1).min() < longest
    expected = states(source.model, right)
    embeddings = mean_pool(expected, mask)
    # RoBERTa counts the positions of real tokens, the others must be told them.
    told = {} if "roberta" in kind else {"position_ids": (left_mask.cumsum(dim=1) - 1).clamp(min=0)}
    left_expected = states(source.model, left, **told)
    for sharing in SHARINGS:
        chosen = {"linformer_projection": projection, "linformer_sharing": sharing}
        model = convert(source, linformer_length=longest, max_position_embeddings=longest, **chosen)
        assert model.dtype == torch.float32 and not model.training
        with torch.no_grad():
            outputs, left_outputs = model(**right), model(**left)
        assert difference(outputs.last_hidden_state, expected, mask) <= TOLERANCE
        assert difference(left_outputs.last_hidden_state, left_expected, left_mask) <= TOLERANCE
        assert (outputs.pooler_output - embeddings).abs().max() <= TOLERANCE
        assert (left_outputs.pooler_output - embeddings).abs().max() <= TOLERANCE


@pytest.mark.parametrize("kind", KINDS)
def test_what_outputs_do_not_show_is_carried_over(sources, kind):
    config = convert(sources[kind]).config
    carried = {
        "hidden_dropout_prob": 0.2,
        # The source has 0.3.
        "attention_probs_dropout_prob": 0.0,
        "initializer_range": 0.03,
        "pad_token_id": 1 if "roberta" in kind else 0,
        "position_extension": None,
        "projection_dim": None,
    }
    assert {name: getattr(config, name) for name in carried} == carried


def test_encoder_of_a_model_with_a_head(save_source, tmp_path, infos):
    source = save_source(tmp_path, "bert", model=shake(BertForMaskedLM(make_config("bert"))))
    model = convert(source)
    batch = source.batch()
    assert difference(states(model, batch), states(source.model.bert, batch), batch["attention_mask"]) <= TOLERANCE
    # A checkpoint for masked language modeling has no pooler that could be dropped.
    assert "dropped: nothing" in infos[-1]


# Layers


@pytest.mark.parametrize("kind", ["bert", "distilbert"])
@pytest.mark.parametrize(
    ("choice", "kept"),
    [
        ({"num_hidden_layers": 2}, [1, 3]),
        ({"num_hidden_layers": 3}, [0, 1, 3]),
        ({"keep_layers": [2, 0, 0]}, [2, 0, 0]),
    ],
)
def test_fewer_layers_equal_the_source_cut_to_them(sources, kind, choice, kept):
    source = sources[kind]
    model = convert(source, **choice)
    assert model.config.num_hidden_layers == len(model.encoder.layer) == len(kept)
    assert model.config.layer_types == ["linear_attention"] * len(kept)
    cut = AutoModel.from_pretrained(source.path)
    encoder = cut.transformer if kind == "distilbert" else cut.encoder
    encoder.layer = torch.nn.ModuleList([encoder.layer[idx] for idx in kept])
    batch = source.batch()
    assert difference(states(model, batch), states(cut, batch), batch["attention_mask"]) <= TOLERANCE


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"keep_layers": [0, 4]}, r"`keep_layers` must name layers of .* between 0 and 3, got \[0, 4\]"),
        ({"keep_layers": [0, 1], "num_hidden_layers": 3}, "lists 2 layers, but `num_hidden_layers` is 3"),
        ({"num_hidden_layers": 5}, "`num_hidden_layers` must be between 1 and 4, .* got 5"),
        ({"hidden_size": 32}, r"\['hidden_size'\] cannot be chosen: the weights of the source"),
        ({"linformer_lenght": 3}, r"has no fields \['linformer_lenght'\].*'linformer_length'"),
    ],
)
def test_choices_that_do_not_fit(bert, choice, message):
    with pytest.raises(ValueError, match=message):
        convert(bert, **choice)


# Positions


@pytest.mark.parametrize("kind", KINDS)
def test_full_length_input_equals_the_source_and_one_token_more_is_refused(sources, kind):
    source = sources[kind]
    model = convert(source)
    # RoBERTa's table has two rows that no token uses.
    assert source.model.config.max_position_embeddings == LIMIT + (2 if "roberta" in kind else 0)
    assert model.config.max_position_embeddings == LIMIT == len(positions_of(model))
    ids = full_length_ids()
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    assert difference(states(model, batch), states(source.model, batch), batch["attention_mask"]) <= TOLERANCE
    with pytest.raises(ValueError, match=f"{LIMIT + 1} tokens, but this model takes at most {LIMIT}"):
        model(input_ids=full_length_ids(LIMIT + 1))


def test_the_position_offset_is_that_of_the_padding_id(save_source, tmp_path):
    source = save_source(tmp_path, "roberta", pad_token_id=4)
    model = convert(source)
    assert model.config.max_position_embeddings == LIMIT + 2 - 5
    ids = full_length_ids(LIMIT + 2 - 5)
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    assert difference(states(model, batch), states(source.model, batch), batch["attention_mask"]) <= TOLERANCE


@pytest.mark.parametrize("kind", KINDS)
def test_tiled_positions_keep_short_inputs_exact(sources, kind):
    source, length = sources[kind], 2 * LIMIT + 7
    model = convert(source, max_position_embeddings=length, position_extension="tile", linformer_length=LIMIT)
    assert (model.config.max_position_embeddings, model.config.position_extension) == (length, "tile")
    batch = source.batch()
    assert difference(states(model, batch), states(source.model, batch), batch["attention_mask"]) <= TOLERANCE
    assert positions_of(model).equal(positions_of(convert(source)))
    ids = full_length_ids(length)
    assert states(model, {"input_ids": ids}).isfinite().all()


def stretched_positions(source, length, **options):
    """The model with a table of `length` positions, interpolated between those of its source."""
    model = convert(source, **options)
    table = positions_of(model).numpy()
    places = np.linspace(0, LIMIT - 1, length)
    stretched = np.stack([np.interp(places, np.arange(LIMIT), column) for column in table.T], axis=1)
    longer = DseModel(DseConfig(**{**model.config.to_dict(), "max_position_embeddings": length})).eval()
    state = model.state_dict()
    state["embeddings.position_embeddings.weight"] = torch.from_numpy(stretched).float()
    longer.load_state_dict(state)
    return longer


@pytest.mark.parametrize("kind", KINDS)
def test_dynamic_positions(sources, kind):
    source, length = sources[kind], 2 * LIMIT + 7
    options = {"linformer_projection": "strided", "linformer_length": 8}
    model = convert(source, max_position_embeddings=1000, position_extension="dynamic", **options)
    assert model.config.original_max_position_embeddings == LIMIT
    assert positions_of(model).equal(positions_of(convert(source)))
    # Up to the table's length nothing changes, whatever stands beside it in the batch.
    short, long = full_length_ids(LIMIT)[:1], full_length_ids(length)[:1]
    assert states(model, {"input_ids": short}).equal(states(convert(source, **options), {"input_ids": short}))
    pad = source.model.config.pad_token_id
    for left in (False, True):
        blank = torch.full((1, length - LIMIT), pad)
        ids = torch.cat([torch.cat([blank, short] if left else [short, blank], dim=1), long])
        mask = torch.ones_like(ids)
        mask[0, slice(0, length - LIMIT) if left else slice(LIMIT, None)] = 0
        both = states(model, {"input_ids": ids, "attention_mask": mask})
        own = both[:1][mask[:1] == 1][None]
        assert difference(own, states(model, {"input_ids": short}), torch.ones_like(short)) <= TOLERANCE
        # A longer text spans the table, as in a table that was stretched to its length.
        stretched = stretched_positions(source, length, **options)
        alone = {"input_ids": long, "attention_mask": mask[1:]}
        assert difference(both[1:], states(stretched, alone), mask[1:]) <= TOLERANCE


# Tokenizer


@pytest.mark.parametrize("kind", KINDS)
def test_pair_format(sources, kind):
    source = sources[kind]
    model = convert(source)
    assert model.config.num_pair_separators == (2 if "roberta" in kind else 1)
    assert model.config.sep_token_id == source.tokenizer.sep_token_id
    # With it, pairs as the tokenizer writes them are split into the two sentences.
    pair_model = make_pair_model(model, num_labels=1)
    first, second = zip(*PAIRS, strict=True)
    with torch.no_grad():
        logits = pair_model(**source.tokenizer(first, second, padding=True, return_tensors="pt")).logits
        u, v = (model(**source.batch(list(texts))).pooler_output for texts in (first, second))
    assert (logits[:, 0] - torch.cosine_similarity(u, v)).abs().max() <= TOLERANCE


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_a_source_without_tokenizer(sources, kind, tmp_path, warnings):
    sources[kind].model.save_pretrained(tmp_path)
    # Not the id that a made-up tokenizer would have.
    assert convert(tmp_path).config.sep_token_id is None
    assert "has no tokenizer: pairs can be split by token types only" in warnings[0]
    chosen = convert(tmp_path, sep_token_id=3, num_pair_separators=2).config
    assert (chosen.sep_token_id, chosen.num_pair_separators) == (3, 2)


# Refusals


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (MPNetConfig(), "type 'mpnet' and cannot be converted: its relative position bias"),
        (GPT2Config(), "type 'gpt2', which cannot be converted exactly. Convert one of: bert, roberta, xlm-roberta, "),
        (BertConfig(is_decoder=True), r"is a decoder \(`is_decoder=True`\): its causal attention cannot"),
        (BertConfig(position_embedding_type="relative_key"), "position_embedding_type='relative_key'.*absolute"),
        (DseConfig(), "is already a DSE model: load it with `AutoModel.from_pretrained`"),
    ],
    ids=lambda value: getattr(value, "model_type", ""),
)
def test_sources_that_are_refused(tmp_path, config, reason):
    config.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=reason):
        convert(tmp_path)


def test_an_incomplete_checkpoint_is_refused(save_source, tmp_path):
    source = save_source(tmp_path, "bert")
    weights = load_file(tmp_path / "model.safetensors")
    kept = {name: value for name, value in weights.items() if ".layer.2.attention" not in name}
    save_file(kept, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"lacks 10 weights of its architecture, such as `encoder\.layer\.2\.attent"):
        convert(source)


# Report


def test_report(bert, infos, capsys):
    layer_types = ["linear_attention", "full_attention"]
    chosen = {"linformer_length": 8, "max_position_embeddings": 50, "projection_dim": 5, "pooling_mode": "cls"}
    convert(bert, num_hidden_layers=2, layer_types=layer_types, **chosen)
    assert infos[-1].splitlines() == [
        f"Converted {bert.path}: learned projection to k = 8, 1 of 2 layers linear, cls pooling",
        "  kept:    embeddings, 24 positions, extended to 50 (dynamic), layers [1, 3] of 4",
        "  dropped: pooler, layers [0, 2]",
        "  new:     encoder.layer.*.attention.self.linformer.key, projection.bias, projection.weight",
    ]
    assert capsys.readouterr().out == ""


def test_random_init_keeps_only_the_shape(bert, warnings):
    model = convert(bert, random_init=True, num_hidden_layers=3, max_position_embeddings=30)
    assert "a floor for comparisons only" in warnings[0] and not model.training
    assert (model.config.num_hidden_layers, model.config.max_position_embeddings) == (3, 30)
    words = model.embeddings.word_embeddings.weight
    assert words.shape == bert.model.embeddings.word_embeddings.weight.shape
    # The spread of a new model.
    assert words[1:].std().item() == pytest.approx(0.03, rel=0.1)


# Pair models


@pytest.mark.parametrize("num_labels", [1, 3])
@pytest.mark.parametrize("similarity", ["cosine", "dot", "mlp"])
def test_make_pair_model(bert, similarity, num_labels):
    encoder = convert(bert, linformer_length=4, projection_dim=6)
    before = encoder.config.to_dict()
    encoder.set_attn_implementation("eager")
    model = make_pair_model(encoder, similarity=similarity, num_labels=num_labels, similarity_hidden_size=7)
    assert not model.training and model.config._attn_implementation == "eager"
    assert (model.config.similarity, model.config.num_labels) == (similarity, num_labels)
    assert len(model.config.id2label) == num_labels and encoder.config.to_dict() == before
    for name, value in encoder.state_dict().items():
        # A copy: training the pair model leaves the encoder alone.
        weight = model.dse.state_dict()[name]
        assert weight.equal(value) and weight.data_ptr() != value.data_ptr()
    if similarity == "mlp":
        assert model.similarity.dense.weight.shape == (7, 4 * 6)
        return
    # A new head: the similarity itself, or logits that rise and fall with it.
    assert model.similarity.start[0].tolist() == ([1.0] if num_labels == 1 else [-1.0, 0.0, 1.0])
    first, second = zip(*PAIRS, strict=True)
    with torch.no_grad():
        logits = model(**bert.tokenizer(first, second, padding=True, return_tensors="pt")).logits
        u, v = (encoder(**bert.batch(list(texts))).pooler_output for texts in (first, second))
    expected = torch.cosine_similarity(u, v) if similarity == "cosine" else (u * v).sum(dim=1)
    assert (logits - expected[:, None] * model.similarity.start[0]).abs().max() <= TOLERANCE
    with pytest.raises(ValueError, match=r"has no fields \['num_label'\].*'num_labels'"):
        make_pair_model(encoder, num_label=3)


# Arguments


def parse(*argv):
    (arguments,) = HfArgumentParser(ConvertArguments).parse_args_into_dataclasses(list(argv))
    return arguments


def test_default_arguments_are_the_defaults_of_the_config(bert):
    converted, default = parse().convert(bert.path).config, DseConfig()
    names = [name for name in vars(ConvertArguments()) if name.startswith(("linformer", "similarity"))]
    names += ["pooling_layers", "pooling_mode"]
    assert len(names) == 8
    assert {name: getattr(converted, name) for name in names} == {name: getattr(default, name) for name in names}


def test_arguments_with_a_value_per_layer(bert):
    arguments = parse(
        *"--linformer_length 8 6 --layer_types linear_attention full_attention --keep_layers 0 3".split(),
        *"--linformer_projection conv --normalize_embeddings true".split(),
    )
    config = arguments.convert(bert.path).config
    assert (config.linformer_length, config.layer_types) == ([8, 6], ["linear_attention", "full_attention"])
    assert (config.linformer_projection, config.normalize_embeddings) == ("conv", True)
    same = parse("--linformer_length", "6", "--layer_types", "full_attention").convert(bert.path).config
    assert (same.linformer_length, same.layer_types) == (6, ["full_attention"] * NUM_LAYERS)
