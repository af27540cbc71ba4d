# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""A student has the prompts, lengths, pooling and similarity of its source, and every folder says them."""

import copy
import json

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer
from transformers import AutoModel, AutoTokenizer, BertModel

from hf_dse import DseModel, convert_encoder, export, make_pair_model, to_sentence_transformer, with_own_attention
from hf_dse.common.loading import LENGTHS
from hf_dse.common.settings import (
    SETTINGS,
    TextSettings,
    read_embedding,
    read_settings,
    set_settings,
    settings_of,
    write_settings,
)
from hf_dse.convert.options import ConvertOptions
from hf_dse.convert.student import load_dse_model, load_or_convert, load_student


TEXTS = ["the cat sat", "a dog ran on the old mat", "new", "is the house in the new house?"]
PROMPTS = {"query": "of: ", "document": "in the house "}


def read(folder, name):
    return json.loads((folder / name).read_text())


def change(folder, name, **fields):
    (folder / name).write_text(json.dumps({**(read(folder, name) if (folder / name).exists() else {}), **fields}))


@pytest.fixture(scope="module")
def make_source(save_bert, tmp_path_factory):
    """Saves a BERT as a sentence-transformers model."""

    def make(*modules, prompts=None, bert=None, **options):
        folder = tmp_path_factory.mktemp("source")
        modules = [Transformer(str(save_bert(folder / "bert", BertModel)), **(bert or {})), *modules]
        SentenceTransformer(modules=modules, prompts=prompts or {}, device="cpu", **options).save(
            str(folder / "model")
        )
        return folder / "model"

    return make


def assert_equals_source(source, folder):
    ours, theirs = (SentenceTransformer(str(place), device="cpu") for place in (folder, source))
    for name in ("encode", "encode_query", "encode_document"):
        vectors = [getattr(model, name)(TEXTS) for model in (ours, theirs)]
        np.testing.assert_allclose(*vectors, rtol=0, atol=1e-5)
    assert ours.similarity_fn_name == theirs.similarity_fn_name


@pytest.mark.parametrize(
    ("modules", "options"),
    [
        ([Pooling(16, pooling_mode="mean")], {"prompts": {**PROMPTS, "pairs": "and "}}),
        ([Pooling(16, pooling_mode="cls"), Normalize()], {"prompts": {"query": "of: "}}),
        ([Pooling(16)], {"similarity_fn_name": "dot"}),
        ([Pooling(16), Normalize()], {"bert": {"query_length": 4, "document_length": 6}}),
    ],
    ids=["prompts", "cls, normalized", "dot", "lengths"],
)
def test_a_student_embeds_as_its_source(make_source, bert_tokenizer, tmp_path, warnings, modules, options):
    source = make_source(*modules, **options)
    student = convert_encoder(str(source))
    assert warnings == []
    assert settings_of(student) == TextSettings(options.get("prompts", {}), options.get("bert", {}))
    export(student, tmp_path / "student", bert_tokenizer)
    assert_equals_source(source, tmp_path / "student")
    # Other choices have precedence.
    chosen = convert_encoder(str(source), pooling_mode="mean", normalize_embeddings=False).config
    assert (chosen.pooling_mode, chosen.normalize_embeddings) == ("mean", False)
    given = ConvertOptions(query_prompt="", document_prompt="in ")
    prompts = {**options.get("prompts", {}), "document": "in "}
    prompts.pop("query", None)
    assert settings_of(load_or_convert(str(source), given)).prompts == prompts
    short = settings_of(convert_encoder(str(source), max_position_embeddings=5))
    assert short.lengths == ({"query_length": 4, "document_length": 5} if "bert" in options else {})


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        # The form of sentence-transformers 5.4 and later.
        ({"embedding_dimension": 16, "pooling_mode": "cls"}, "cls"),
        ({"pooling_mode": "max"}, None),
        ({}, "mean"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, None),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_lasttoken": True}, None),
        ({"pooling_mode": "weightedmean"}, None),
    ],
)
def test_poolings(save_bert, tmp_path, pooling, expected):
    save_bert(tmp_path)
    (tmp_path / "1_Pooling").mkdir()
    change(tmp_path, "1_Pooling/config.json", **pooling)
    if expected is None:
        with pytest.raises(ValueError, match="is not mean or cls alone: choose one with `pooling_mode`"):
            convert_encoder(str(tmp_path))
        assert convert_encoder(str(tmp_path), pooling_mode="cls").config.pooling_mode == "cls"
    else:
        assert convert_encoder(str(tmp_path)).config.pooling_mode == expected


def test_a_prompt_for_passages_is_the_one_for_documents(make_source):
    source = make_source(Pooling(16))
    change(source, SETTINGS, prompts={"query": "of: ", "passage": "in "})
    expected = {"query": "of: ", "passage": "in ", "document": "in "}
    assert settings_of(convert_encoder(str(source))).prompts == expected
    # sentence-transformers adds an empty one for documents.
    change(source, SETTINGS, prompts={"document": "", "passage": "in "})
    assert settings_of(convert_encoder(str(source))).prompts == {"passage": "in ", "document": "in "}
    change(source, SETTINGS, bm25_weight=0.2)
    assert settings_of(convert_encoder(str(source))).bm25_weight == 0.2
    change(source, SETTINGS, bm25_weight="0.2")
    with pytest.raises(ValueError, match="bm25_weight is '0.2', not a finite number of at least 0"):
        convert_encoder(str(source))


def test_lost_settings_are_named(make_source, warnings):
    source = make_source(Pooling(16), Dense(16, 8), prompts={"query": "of: "}, default_prompt_name="query")
    change(source, "1_Pooling/config.json", include_prompt=False)
    change(source, SETTINGS, similarity_fn_name="euclidean", truncate_dim=4)
    convert_encoder(str(source))
    (warning,) = warnings
    for part in (
        "with Dense, the default prompt 'query', the similarity 'euclidean', vectors that are cut to 4 dimensions",
        "a pooling that leaves out",
        "the student embeds texts otherwise",
    ):
        assert part in warning


# Folders of students


def test_written_settings(make_model, bert_tokenizer, tmp_path):
    model, settings = make_model(DseModel, similarity="dot"), TextSettings(PROMPTS, {"query_length": 4}, chunk_size=64)
    set_settings(model, settings)
    model.save_pretrained(tmp_path)
    bert_tokenizer.save_pretrained(tmp_path)
    write_settings(model, tmp_path)
    assert read(tmp_path, SETTINGS)["prompts"] == PROMPTS and read(tmp_path, LENGTHS) == {"query_length": 4}
    assert read_settings(str(tmp_path)) == settings
    stored = {"pooling_mode": "mean", "normalize_embeddings": False, "similarity": "dot"}
    assert read_embedding(str(tmp_path)) == stored
    theirs = SentenceTransformer(str(tmp_path), device="cpu")
    queries = theirs.encode_query(TEXTS)
    texts = [
        bert_tokenizer(PROMPTS["query"] + text, truncation=True, max_length=4, return_tensors="pt") for text in TEXTS
    ]
    ours = np.concatenate([model(**text).pooler_output.detach().numpy() for text in texts])
    np.testing.assert_allclose(queries, ours, rtol=0, atol=1e-5)
    # A folder of our trainers may be written again, by a model without lengths.
    write_settings(make_model(DseModel), tmp_path)
    assert read(tmp_path, SETTINGS)["prompts"] == {"query": "", "document": ""} and not (tmp_path / LENGTHS).exists()


def test_settings_that_sentence_transformers_saved_count(make_model, bert_tokenizer, tmp_path):
    """The file that all read."""
    model = make_model()
    set_settings(model, TextSettings({"query": "the "}, chunk_size=64))
    export(model, tmp_path / "model", bert_tokenizer)
    folder = str(tmp_path / "other")
    SentenceTransformer(str(tmp_path / "model"), prompts=PROMPTS, device="cpu").save(folder)
    assert settings_of(load_dse_model(str(tmp_path / "model"))) == TextSettings({"query": "the "}, chunk_size=64)
    assert settings_of(AutoModel.from_pretrained(folder)).prompts == PROMPTS
    assert settings_of(load_dse_model(folder)).prompts == PROMPTS
    assert settings_of(load_or_convert(folder, ConvertOptions())).prompts == PROMPTS
    student = load_student(folder, ConvertOptions(document_prompt=""), 1, "regression")
    assert settings_of(student).prompts == {"query": "of: "}


def test_settings_of_models_in_memory(make_source, save_bert, make_model, tmp_path):
    """Those of the source, or those that were set, with and without a head."""
    source = make_source(Pooling(16), prompts=PROMPTS)
    assert settings_of(BertModel.from_pretrained(source)) == TextSettings(PROMPTS)
    assert settings_of(BertModel.from_pretrained(save_bert(tmp_path / "bert"))) == TextSettings()
    model, settings = make_model(), TextSettings({"query": "the "}, {"document_length": 8})
    assert settings_of(model) == TextSettings() and settings_of(model).lengths == {}
    set_settings(model, settings)
    assert settings_of(model) == settings_of(model.dse) == settings and settings.lengths == {"document_length": 8}
    student = convert_encoder(str(source))
    for copied in (make_pair_model(student), with_own_attention(student), copy.deepcopy(student)):
        assert settings_of(copied).prompts == PROMPTS
    assert not {"prompts", "query_length", "document_length", "text_settings"} & student.config.to_dict().keys()


def test_a_model_saved_over_another_pools_as_itself(make_model, bert_tokenizer, tmp_path):
    export(make_model(normalize_embeddings=True, pooling_mode="cls"), tmp_path / "model", bert_tokenizer)
    model = make_model(DseModel)
    model.save_pretrained(tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    ours = [model(**tokenizer(text, return_tensors="pt")).pooler_output[0].detach().numpy() for text in TEXTS]
    theirs = SentenceTransformer(str(tmp_path / "model"), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(theirs, ours, rtol=0, atol=1e-5)


def test_a_loaded_encoder_that_embeds_otherwise_than_its_checkpoint_is_said(make_source, warnings):
    same, other = make_source(Pooling(16)), make_source(Pooling(16, pooling_mode="cls"), similarity_fn_name="dot")
    change(other, LENGTHS, max_seq_length=4, do_lower_case=True)
    for source in (same, other):
        assert not warnings
        to_sentence_transformer(AutoModel.from_pretrained(source), AutoTokenizer.from_pretrained(source))
    found = "embeds with cls pooling, dot products, at most 4 tokens of a text, not 64, and a loaded encoder as"
    assert found in warnings[0]
