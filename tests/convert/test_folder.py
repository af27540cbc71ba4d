# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""A student has the prompts, lengths, pooling and similarity of its source, and every folder says them."""

import json

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer
from transformers import AutoModel, AutoTokenizer, BertModel

from hf_dse import DseModel, convert_encoder, export
from hf_dse.common.loading import LENGTHS
from hf_dse.convert.folder import SETTINGS, read_settings, write_settings
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
    assert (student.config.prompts or {}) == options.get("prompts", {})
    export(student, tmp_path / "student", bert_tokenizer)
    assert_equals_source(source, tmp_path / "student")
    # Other choices have precedence.
    chosen = convert_encoder(str(source), prompts={}, pooling_mode="mean", normalize_embeddings=False).config
    assert (chosen.prompts, chosen.pooling_mode, chosen.normalize_embeddings) == (None, "mean", False)
    short = convert_encoder(str(source), max_position_embeddings=5).config
    assert short.document_length == (5 if "bert" in options else None)


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
    assert convert_encoder(str(source)).config.prompts == {"query": "of: ", "passage": "in ", "document": "in "}
    # As in sentence-transformers, a prompt for documents comes first, also an empty one.
    change(source, SETTINGS, prompts={"document": "", "passage": "in "})
    assert convert_encoder(str(source)).config.prompts == {"passage": "in "}


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
    fields = {"prompts": PROMPTS, "query_length": 4, "similarity": "dot"}
    model = make_model(DseModel, **fields)
    model.save_pretrained(tmp_path)
    bert_tokenizer.save_pretrained(tmp_path)
    write_settings(model, tmp_path)
    assert read(tmp_path, SETTINGS)["prompts"] == PROMPTS and read(tmp_path, LENGTHS) == {"query_length": 4}
    stored = {"pooling_mode": "mean", "normalize_embeddings": False, "document_length": None}
    assert read_settings(str(tmp_path)) == {**fields, **stored}
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
    """Its settings are the file that all read, also where the config of the model has others."""
    export(make_model(prompts={"query": "the "}), tmp_path / "model", bert_tokenizer)
    folder = str(tmp_path / "other")
    SentenceTransformer(str(tmp_path / "model"), prompts=PROMPTS, device="cpu").save(folder)
    assert AutoModel.from_pretrained(folder).config.prompts == {"query": "the "}
    assert load_dse_model(folder).config.prompts == PROMPTS
    assert load_or_convert(folder, ConvertOptions()).config.prompts == PROMPTS
    student = load_student(folder, ConvertOptions(document_prompt=""), 1, "regression")
    assert student.config.prompts == {"query": "of: "}


def test_a_model_saved_over_another_pools_as_itself(make_model, bert_tokenizer, tmp_path):
    export(make_model(normalize_embeddings=True, pooling_mode="cls"), tmp_path / "model", bert_tokenizer)
    model = make_model(DseModel)
    model.save_pretrained(tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    ours = [model(**tokenizer(text, return_tensors="pt")).pooler_output[0].detach().numpy() for text in TEXTS]
    theirs = SentenceTransformer(str(tmp_path / "model"), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(theirs, ours, rtol=0, atol=1e-5)
