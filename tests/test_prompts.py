# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Prompts of queries and documents: in every folder, and used as sentence-transformers uses them."""

import json
from importlib.util import find_spec

import numpy as np
import pytest
from huggingface_hub.errors import StrictDataclassError
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer
from tokenizers.normalizers import BertNormalizer
from transformers import AutoModel, AutoTokenizer, BertModel, PreTrainedTokenizerFast

from hf_dse import (
    BiEncoder,
    DseConfig,
    ModelArguments,
    convert_encoder,
    encode,
    encode_chunks,
    encode_document,
    encode_query,
    export_graph,
    export_model,
    load_model,
)
from hf_dse.common.provenance import fingerprint
from hf_dse.inference.index import read_corpus
from hf_dse.inference.loading import load_tokenizer
from hf_dse.inference.search import rank, similarity_of
from hf_dse.mining.embeddings import encode_blocks
from hf_dse.modeling import DseModel
from hf_dse.student.checkpoint import load_dse_model, load_student
from hf_dse.student.convert import ConvertArguments
from hf_dse_cli import main


TEXTS = ["the cat sat", "a dog ran on the old mat", "new", "is the house in the new house?"]
PROMPTS = {"query": "of: ", "document": "in the house "}


def settings(folder):
    return json.loads((folder / "config_sentence_transformers.json").read_text())


def check_equal(folder, prompts):
    """What sentence-transformers and hf_dse make of a folder is the same, with these prompts."""
    theirs = SentenceTransformer(str(folder), device="cpu")
    model, tokenizer = load_model(ModelArguments(str(folder), device="cpu"))
    for name, embed, expected in (
        ("query", encode_query, theirs.encode_query(TEXTS)),
        ("document", encode_document, theirs.encode_document(TEXTS)),
    ):
        ours = embed(model, tokenizer, TEXTS, show_progress=False)
        np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-5)
        texts = [prompts.get(name, "") + text for text in TEXTS]
        np.testing.assert_allclose(ours, encode(model, tokenizer, texts, show_progress=False), rtol=0, atol=1e-6)
    plain = encode(model, tokenizer, TEXTS, show_progress=False)
    np.testing.assert_allclose(plain, theirs.encode(TEXTS), rtol=0, atol=1e-5)
    return model, tokenizer


@pytest.fixture(scope="module")
def make_source(save_bert, tmp_path_factory):
    """Saves a BERT as a sentence-transformers model."""

    def make(prompts, pooling="mean", **options):
        folder = tmp_path_factory.mktemp("source")
        bert = Transformer(str(save_bert(folder / "bert", BertModel)))
        modules = [bert, Pooling(16, pooling_mode=pooling), Normalize()]
        SentenceTransformer(modules=modules, prompts=prompts, device="cpu", **options).save(str(folder / "model"))
        return folder / "model"

    return make


@pytest.mark.parametrize("prompts", [PROMPTS, {"query": "of: "}, {"document": "a "}])
def test_every_folder_has_the_prompts(make_model, bert_tokenizer, tmp_path, prompts):
    model = make_model(DseModel, prompts=prompts)
    model.save_pretrained(tmp_path / "saved")
    bert_tokenizer.save_pretrained(tmp_path / "saved")
    export_model(model, bert_tokenizer, tmp_path / "exported")
    for name in ("saved", "exported"):
        loaded, _ = check_equal(tmp_path / name, prompts)
        assert loaded.config.prompts == prompts
        assert settings(tmp_path / name)["prompts"] == {"query": "", "document": "", **prompts}
        assert AutoModel.from_pretrained(tmp_path / name).config.prompts == prompts
    card = (tmp_path / "exported" / "README.md").read_text()
    assert "texts need the model's prompts" in card and "model.encode_query(" in card
    for name, text in prompts.items():
        assert f'| Prompt "{name}" | `"{text}"` before each text |' in card


@pytest.mark.skipif(find_spec("onnxscript") is None, reason="needs the extra onnx")
@pytest.mark.slow
def test_the_folder_of_a_graph_has_the_prompts(make_model, bert_tokenizer, tmp_path):
    model = make_model(DseModel, prompts=PROMPTS, query_length=4)
    folder = export_graph(model, bert_tokenizer, tmp_path / "graph", max_length=8)
    assert settings(folder)["prompts"] == PROMPTS
    assert lengths(folder) == {"max_seq_length": 8, "do_lower_case": False, "query_length": 4}


def test_nothing_changes_without_prompts(make_model, bert_tokenizer, tmp_path):
    for name, prompts in (("none", None), ("empty", {"query": "", "document": ""})):
        model = make_model(DseModel, prompts=prompts)
        assert model.config.prompts is None
        model.save_pretrained(tmp_path / name)
        bert_tokenizer.save_pretrained(tmp_path / name)
        assert settings(tmp_path / name)["prompts"] == {"query": "", "document": ""}
        assert "prompts" not in json.loads((tmp_path / name / "config.json").read_text())
    model, tokenizer = check_equal(tmp_path / "none", {})
    before = fingerprint(model, tokenizer)
    model.config.prompts = PROMPTS
    assert fingerprint(model, tokenizer) == before


def test_a_saved_model_replaces_the_prompts(make_model, bert_tokenizer, tmp_path):
    make_model(DseModel, prompts={"query": "of: "}).save_pretrained(tmp_path)
    model = AutoModel.from_pretrained(tmp_path)
    model.config.prompts = PROMPTS
    model.save_pretrained(tmp_path)
    bert_tokenizer.save_pretrained(tmp_path)
    check_equal(tmp_path, PROMPTS)
    make_model(DseModel).save_pretrained(tmp_path)
    check_equal(tmp_path, {})


def test_a_saved_model_replaces_the_prompts_that_sentence_transformers_saved(make_model, bert_tokenizer, tmp_path):
    export_model(make_model(prompts={"query": "the "}), bert_tokenizer, tmp_path / "model")
    folder = tmp_path / "theirs"
    SentenceTransformer(str(tmp_path / "model"), device="cpu").save(str(folder))
    # Without a change theirs stay, those of another version among them.
    before = settings(folder)
    model = AutoModel.from_pretrained(folder)
    model.save_pretrained(folder)
    assert settings(folder) == before and "__version__" in before
    for prompts in (PROMPTS, {}):
        model.config.prompts = prompts or None
        model.save_pretrained(folder)
        check_equal(folder, prompts)
    # Those that sentence-transformers changes and saves there count.
    SentenceTransformer(str(folder), prompts=PROMPTS, device="cpu").save(str(folder))
    check_equal(folder, PROMPTS)


@pytest.mark.parametrize("before", [None, PROMPTS])
def test_prompts_that_sentence_transformers_saves_over_another_model(make_model, bert_tokenizer, tmp_path, before):
    export_model(make_model(prompts={"query": "the "}), bert_tokenizer, tmp_path / "model")
    theirs = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    theirs.prompts, theirs.default_prompt_name = {**PROMPTS, "pairs": "and "}, "pairs"
    expected = theirs.encode(TEXTS)
    export_model(make_model(prompts=before), bert_tokenizer, tmp_path / "over")
    # Over a model of ours, then over one of theirs.
    for _ in range(2):
        theirs.save(str(tmp_path / "over"))
        loaded = SentenceTransformer(str(tmp_path / "over"), device="cpu")
        assert (loaded.prompts, loaded.default_prompt_name) == (theirs.prompts, "pairs")
        np.testing.assert_allclose(loaded.encode(TEXTS), expected, rtol=0, atol=1e-6)
    make_model(prompts=before).save_pretrained(tmp_path / "over")
    assert settings(tmp_path / "over")["prompts"] == {"query": "", "document": "", **(before or {})}


@pytest.mark.parametrize("prompts", [{"query": 3}, ["query"], "query"])
def test_prompts_are_texts_by_name(prompts):
    with pytest.raises(StrictDataclassError, match="prompts"):
        DseConfig(prompts=prompts)


def test_prompt_names(make_model, bert_tokenizer):
    model = make_model(DseModel, prompts={"question": "is "})
    named = encode(model, bert_tokenizer, TEXTS, prompt_name="question", show_progress=False)
    texts = [f"is {text}" for text in TEXTS]
    np.testing.assert_array_equal(named, encode(model, bert_tokenizer, texts, show_progress=False))
    with pytest.raises(ValueError, match="prompt_name='answer': .* only query, document, question"):
        encode(model, bert_tokenizer, TEXTS, prompt_name="answer")
    with pytest.raises(TypeError, match="list of strings"):
        encode(model, bert_tokenizer, "a cat", prompt_name="question")


def test_models_of_sentence_transformers_are_errors(make_model, bert_tokenizer, tmp_path):
    export_model(make_model(DseModel), bert_tokenizer, tmp_path)
    theirs = SentenceTransformer(str(tmp_path), device="cpu")
    for embed in (encode, encode_query, encode_chunks):
        with pytest.raises(TypeError, match="got SentenceTransformer: .* `load_model` returns, or call its own"):
            embed(theirs, bert_tokenizer, TEXTS)
    with pytest.raises(TypeError, match="got str: pass what `load_model` returns.$"):
        encode(str(tmp_path), bert_tokenizer, TEXTS)


# Sources


def test_a_student_has_the_prompts_of_its_source(make_source, tmp_path):
    source = make_source({**PROMPTS, "pairs": "and "}, default_prompt_name="query")
    model, _ = load_model(ModelArguments(str(source), device="cpu"))
    assert model.config.prompts == {**PROMPTS, "pairs": "and "}
    student, tokenizer = convert_encoder(str(source)), AutoTokenizer.from_pretrained(source)
    assert student.config.prompts == {**PROMPTS, "pairs": "and "}
    export_model(student, tokenizer, tmp_path / "student")
    check_equal(tmp_path / "student", PROMPTS)
    theirs = SentenceTransformer(str(source), device="cpu")
    ours = encode_query(student, tokenizer, TEXTS, show_progress=False)
    np.testing.assert_allclose(ours, theirs.encode_query(TEXTS), rtol=0, atol=1e-5)
    named = encode(student, tokenizer, TEXTS, prompt_name="pairs", show_progress=False)
    np.testing.assert_allclose(named, theirs.encode(TEXTS, prompt_name="pairs"), rtol=0, atol=1e-5)
    assert convert_encoder(str(source), prompts={}).config.prompts is None


def test_a_prompt_for_passages_is_that_for_documents(make_source):
    source = make_source({"query": "of: "})
    file = source / "config_sentence_transformers.json"
    file.write_text(json.dumps({**settings(source), "prompts": {"query": "of: ", "passage": "in "}}))
    assert convert_encoder(str(source)).config.prompts == {"query": "of: ", "passage": "in ", "document": "in "}
    # As in sentence-transformers, a prompt for documents comes first, also an empty one.
    file.write_text(json.dumps({**settings(source), "prompts": {"document": "", "passage": "in "}}))
    assert convert_encoder(str(source)).config.prompts == {"passage": "in "}


@pytest.mark.parametrize("pooling", ["mean", "cls", "max", "lasttoken"])
def test_other_encoders_pool_as_in_sentence_transformers(make_source, pooling, warnings):
    source = make_source({"query": "of: "}, pooling, similarity_fn_name="dot")
    theirs = SentenceTransformer(str(source), device="cpu")
    model, tokenizer = load_model(ModelArguments(str(source), device="cpu"))
    assert similarity_of(model) == "dot" and not warnings
    for side in ("right", "left"):
        tokenizer.padding_side = side
        ours = encode_query(model, tokenizer, TEXTS, normalize=True, show_progress=False)
        if side == "right":
            np.testing.assert_allclose(ours, theirs.encode_query(TEXTS), rtol=0, atol=1e-5)
            continue
        # Of BERT, padding on the left changes positions, so alone there is none.
        alone = [encode_query(model, tokenizer, [text], normalize=True, show_progress=False) for text in TEXTS]
        single = [theirs.encode_query([text]) for text in TEXTS]
        np.testing.assert_allclose(np.concatenate(alone), np.concatenate(single), rtol=0, atol=1e-5)


def test_other_encoders_read_as_much_as_in_sentence_transformers(make_source, tmp_path):
    source = make_source({})
    file = source / "sentence_bert_config.json"
    file.write_text(json.dumps({**lengths(source), "max_seq_length": 5}))
    expected = SentenceTransformer(str(source), device="cpu").encode(TEXTS)
    model, tokenizer = load_model(ModelArguments(str(source), device="cpu"))
    teacher = BiEncoder(str(source), device="cpu")
    for ours in (encode(model, tokenizer, TEXTS, show_progress=False), teacher.encode(TEXTS, show_progress=False)):
        np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-5)
    # It takes more, for those who ask.
    whole = encode(model, tokenizer, TEXTS, max_length=16, show_progress=False)
    asked = BiEncoder(str(source), max_length=16, device="cpu").encode(TEXTS, show_progress=False)
    np.testing.assert_allclose(whole, asked, rtol=0, atol=1e-5)
    assert abs(whole - expected).max() > 1e-3
    file.write_text(json.dumps({**lengths(source), "max_seq_length": "all"}))
    with pytest.raises(ValueError, match="`max_seq_length` in sentence_bert_config.json is 'all'"):
        load_model(ModelArguments(str(source), device="cpu"))


@pytest.mark.parametrize("name", ["roberta", "xlm-roberta"])
def test_the_file_of_lengths_of_older_versions(make_source, tmp_path, name):
    source = make_source({})
    (source / "sentence_bert_config.json").unlink()
    (source / f"sentence_{name}_config.json").write_text('{"max_seq_length": 5, "query_length": 4}')
    # The first one that there is counts.
    (source / "sentence_xlnet_config.json").write_text('{"max_seq_length": 3}')
    theirs = SentenceTransformer(str(source), device="cpu")
    model, tokenizer = load_model(ModelArguments(str(source), device="cpu"))
    assert theirs.max_seq_length == tokenizer.model_max_length == 5 and model.config.query_length == 4
    ours = encode(model, tokenizer, TEXTS, show_progress=False)
    np.testing.assert_allclose(ours, theirs.encode(TEXTS), rtol=0, atol=1e-5)
    argv = ["convert", "--model_name_or_path", str(source), "--output_dir", str(tmp_path / "student")]
    assert main(argv) == 0 and AutoTokenizer.from_pretrained(tmp_path / "student").model_max_length == 5
    (source / f"sentence_{name}_config.json").write_text('{"max_seq_length": "all"}')
    with pytest.raises(ValueError, match=f"`max_seq_length` in sentence_{name}_config.json is 'all'"):
        load_model(ModelArguments(str(source), device="cpu"))


@pytest.mark.parametrize("does_itself", [False, True])
def test_texts_become_lowercase_as_in_sentence_transformers(make_source, tmp_path, does_itself):
    source = make_source({})
    tokenizer = AutoTokenizer.from_pretrained(source)
    normalizer = BertNormalizer(lowercase=does_itself, strip_accents=False)
    plain = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.backend_tokenizer, **{**tokenizer.init_kwargs, "model_max_length": 32}
    )
    plain.backend_tokenizer.normalizer = normalizer
    plain.save_pretrained(source)
    texts = [text.title() for text in TEXTS]
    before = load_tokenizer(str(source))(texts)["input_ids"]
    file = source / "sentence_bert_config.json"
    file.write_text(json.dumps({**lengths(source), "do_lower_case": True}))
    expected = SentenceTransformer(str(source), device="cpu").encode(texts)
    model, tokenizer = load_model(ModelArguments(str(source), device="cpu"))
    assert (tokenizer(texts)["input_ids"] == before) == does_itself
    argv = ["convert", "--model_name_or_path", str(source), "--output_dir", str(tmp_path / "student")]
    assert main(argv) == 0
    student = AutoModel.from_pretrained(tmp_path / "student"), AutoTokenizer.from_pretrained(tmp_path / "student")
    for encoder in ((model, tokenizer), student):
        vectors = encode(*encoder, texts, show_progress=False)
        np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)
    again = SentenceTransformer(str(tmp_path / "student"), device="cpu").encode(texts)
    np.testing.assert_allclose(again, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("is_unit", [True, False])
def test_other_encoders_have_vectors_of_the_same_length(save_bert, tmp_path, is_unit):
    """Whose dot product ranks as in sentence-transformers."""
    bert = Transformer(str(save_bert(tmp_path / "bert", BertModel)))
    modules = [bert, Pooling(16, pooling_mode="mean"), *[Normalize()] * is_unit]
    theirs = SentenceTransformer(modules=modules, similarity_fn_name="dot", device="cpu")
    theirs.save(str(tmp_path / "model"))
    model, tokenizer = load_model(ModelArguments(str(tmp_path / "model"), device="cpu"))
    ours = encode(model, tokenizer, TEXTS, show_progress=False)
    np.testing.assert_allclose(ours, theirs.encode(TEXTS), rtol=0, atol=1e-5)
    assert np.allclose(np.linalg.norm(ours, axis=1), 1) == is_unit


def test_a_default_prompt_is_named(make_source, warnings):
    source = make_source({"query": "of: "}, default_prompt_name="query")
    load_model(ModelArguments(str(source), device="cpu"))
    convert_encoder(str(source))
    assert len(warnings) == 2 and all("has the default prompt 'query'" in warning for warning in warnings)


def test_what_is_not_applied_is_named(make_source, warnings):
    source = make_source({}, "weightedmean")
    load_model(ModelArguments(str(source), device="cpu"))
    assert "with the pooling" in warnings[0] and "its embeddings differ" in warnings[0]


def test_prompts_that_sentence_transformers_saved_are_kept(make_model, bert_tokenizer, tmp_path):
    """Its settings are the file that all read, also where the config of the model has other prompts."""
    export_model(make_model(prompts={"query": "the "}), bert_tokenizer, tmp_path / "model")
    SentenceTransformer(str(tmp_path / "model"), prompts=PROMPTS, device="cpu").save(str(tmp_path / "other"))
    model, _ = check_equal(tmp_path / "other", PROMPTS)
    assert model.config.prompts == load_dse_model(str(tmp_path / "other")).config.prompts == PROMPTS
    student = load_student(str(tmp_path / "other"), ConvertArguments(), 1, "regression")
    assert student.config.prompts == PROMPTS


# Lengths of queries and documents


LENGTHS = {"query_length": 4, "document_length": 6}


def lengths(folder):
    file = folder / "sentence_bert_config.json"
    return json.loads(file.read_text()) if file.exists() else {}


@pytest.mark.parametrize("fields", [LENGTHS, {"query_length": 4}, {"document_length": 5}])
def test_every_folder_has_the_lengths(make_model, bert_tokenizer, tmp_path, fields):
    model = make_model(DseModel, prompts=PROMPTS, **fields)
    model.save_pretrained(tmp_path / "saved")
    bert_tokenizer.save_pretrained(tmp_path / "saved")
    export_model(model, bert_tokenizer, tmp_path / "exported")
    SentenceTransformer(str(tmp_path / "saved"), device="cpu").save(str(tmp_path / "again"))
    for name in ("saved", "exported", "again"):
        theirs = SentenceTransformer(str(tmp_path / name), device="cpu")
        loaded, tokenizer = load_model(ModelArguments(str(tmp_path / name), device="cpu"))
        assert lengths(tmp_path / name).items() >= fields.items()
        for kind, embed, expected in (
            ("query", encode_query, theirs.encode_query(TEXTS)),
            ("document", encode_document, theirs.encode_document(TEXTS)),
        ):
            ours = embed(loaded, tokenizer, TEXTS, show_progress=False)
            np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-5)
            limit = fields.get(f"{kind}_length", tokenizer.model_max_length)
            cut = embed(loaded, tokenizer, TEXTS, max_length=limit, show_progress=False)
            np.testing.assert_array_equal(ours, cut)
            whole = embed(loaded, tokenizer, TEXTS, max_length=16, show_progress=False)
            assert (abs(whole - ours).max() > 1e-3) == (limit < 16)
        # Other texts are not queries, and not documents.
        plain = encode(loaded, tokenizer, TEXTS, show_progress=False)
        np.testing.assert_allclose(plain, theirs.encode(TEXTS), rtol=0, atol=1e-5)
        np.testing.assert_array_equal(plain, encode(loaded, tokenizer, TEXTS, max_length=16, show_progress=False))
    card = (tmp_path / "exported" / "README.md").read_text()
    assert ("| Longest query | 4 tokens" in card) == ("query_length" in fields)
    assert '"sentence-transformers>=6.0"' in card


def test_a_saved_model_replaces_the_lengths(make_model, tmp_path):
    make_model(DseModel, **LENGTHS).save_pretrained(tmp_path)
    assert lengths(tmp_path) == LENGTHS
    make_model(DseModel).save_pretrained(tmp_path)
    assert lengths(tmp_path) == {}
    assert not any(name in json.loads((tmp_path / "config.json").read_text()) for name in LENGTHS)


@pytest.mark.parametrize("length", [0, -1, 10**6, "4"])
def test_lengths_are_numbers_of_tokens(length):
    with pytest.raises(StrictDataclassError, match="query_length"):
        DseConfig(query_length=length)


def test_a_student_has_the_lengths_of_its_source(make_source, tmp_path):
    source = make_source(PROMPTS)
    file = source / "sentence_bert_config.json"
    file.write_text(json.dumps({**lengths(source), **LENGTHS}))
    theirs = SentenceTransformer(str(source), device="cpu")
    expected = theirs.encode_query(TEXTS), theirs.encode_document(TEXTS)
    student, tokenizer = convert_encoder(str(source)), AutoTokenizer.from_pretrained(source)
    assert (student.config.query_length, student.config.document_length) == (4, 6)
    model, _ = load_model(ModelArguments(str(source), device="cpu"))
    for encoder in (student, model):
        for embed, vectors in zip((encode_query, encode_document), expected, strict=True):
            ours = embed(encoder, tokenizer, TEXTS, normalize=True, show_progress=False)
            np.testing.assert_allclose(ours, vectors, rtol=0, atol=1e-5)
    teacher = BiEncoder(str(source), device="cpu")
    for kind, vectors in zip(("query", "document"), expected, strict=True):
        ours = teacher.encode(TEXTS, tmp_path, prompt_name=kind, show_progress=False)
        np.testing.assert_allclose(ours, vectors, rtol=0, atol=1e-5)
        # Neither is taken for the other from the cache.
        again = teacher.encode(TEXTS, tmp_path, prompt_name=kind, show_progress=False)
        np.testing.assert_array_equal(ours, again)
    dense = tmp_path / "dense"
    bert = Transformer(str(source), query_length=3)
    SentenceTransformer(modules=[bert, Pooling(16), Dense(16, 8)], device="cpu").save(str(dense))
    expected = SentenceTransformer(str(dense), device="cpu").encode_query(TEXTS, normalize_embeddings=True)
    ours = BiEncoder(str(dense), device="cpu").encode(TEXTS, prompt_name="query", show_progress=False)
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-5)
    assert convert_encoder(str(source), max_position_embeddings=5).config.document_length == 5
    file.write_text(json.dumps({**lengths(source), "query_length": "many"}))
    with pytest.raises(ValueError, match="`query_length` in sentence_bert_config.json is 'many'"):
        load_model(ModelArguments(str(source), device="cpu"))


def test_lengths_count_for_caches_and_chunks(make_model, bert_tokenizer, tmp_path):
    model = make_model(DseModel)
    before = fingerprint(model, bert_tokenizer)
    whole = encode_blocks(model, bert_tokenizer, TEXTS, "query", tmp_path, show_progress=False)
    _, chunks = encode_chunks(model, bert_tokenizer, TEXTS, show_progress=False)
    model.config.query_length, model.config.document_length = 4, 6
    assert fingerprint(model, bert_tokenizer) != before
    cut = encode_blocks(model, bert_tokenizer, TEXTS, "query", tmp_path, show_progress=False)
    expected = encode_query(model, bert_tokenizer, TEXTS, normalize=True, show_progress=False)
    np.testing.assert_array_equal(cut, expected)
    assert abs(cut - whole).max() > 1e-3
    _, short = encode_chunks(model, bert_tokenizer, TEXTS, show_progress=False)
    assert [len(parts) for parts in short] > [len(parts) for parts in chunks]


# Commands


def test_options_of_a_conversion(make_source, tmp_path, make_model, bert_tokenizer, warnings):
    source = make_source(PROMPTS)
    argv = ["convert", "--model_name_or_path", str(source)]
    assert main([*argv, "--output_dir", str(tmp_path / "kept")]) == 0
    check_equal(tmp_path / "kept", PROMPTS)
    options = ["--query_prompt", "is ", "--document_prompt", ""]
    assert main([*argv, *options, "--output_dir", str(tmp_path / "new")]) == 0
    check_equal(tmp_path / "new", {"query": "is "})
    assert main([*argv, "--query_prompt", "", "--document_prompt", "", "--output_dir", str(tmp_path / "none")]) == 0
    assert load_dse_model(str(tmp_path / "none")).config.prompts is None
    # A student that exists takes them too, and no other option of a conversion.
    for model in (str(tmp_path / "new"), make_model(DseModel, prompts={"query": "is "})):
        student = load_student(model, ConvertArguments(document_prompt="a "), 1, "regression")
        assert student.config.prompts == {"query": "is ", "document": "a "}
    assert not any("are not used" in message for message in warnings)


def test_an_index_and_a_search_with_prompts(make_model, bert_tokenizer, tmp_path, capsys):
    model = make_model(DseModel, prompts=PROMPTS)
    export_model(model, bert_tokenizer, tmp_path / "model")
    (tmp_path / "corpus.txt").write_text("\n".join(TEXTS) + "\n")
    name = ["--model_name_or_path", str(tmp_path / "model"), "--device", "cpu"]
    index, output = str(tmp_path / "index.parquet"), tmp_path / "found.jsonl"
    encoding = ["encode", *name, "--input", str(tmp_path / "corpus.txt"), "--output", index]
    searching = ["search", *name, "--query", "old mat", "--top_k", "4", "--output_file", str(output)]
    assert main(encoding) == 0
    _, vectors, stored = read_corpus(index, "text")
    documents = encode_document(model, bert_tokenizer, TEXTS, show_progress=False)
    np.testing.assert_allclose(vectors, documents, rtol=0, atol=1e-6)
    assert stored["prompt"] == PROMPTS["document"]
    query = encode_query(model, bert_tokenizer, ["old mat"], show_progress=False)
    scores, _ = rank(query, documents, top_k=4, show_progress=False)
    for corpus in (index, str(tmp_path / "corpus.txt")):
        assert main([*searching, "--corpus", corpus]) == 0
        found = json.loads(output.read_text())["results"]
        assert [hit["cosine"] for hit in found] == pytest.approx(scores[0].tolist(), abs=1e-5)
    # An index of texts with another prompt does not match.
    assert main([*encoding, "--prompt_name", "query"]) == 0
    capsys.readouterr()
    assert main([*searching, "--corpus", index]) == 2
    assert (
        "was encoded with the prompt 'of: ', and that of the model for documents is 'in the" in capsys.readouterr().err
    )
    assert main([*encoding, "--prompt_name", "answer"]) == 2
    assert "prompt_name='answer'" in capsys.readouterr().err


def test_a_search_by_the_dot_product(make_model, bert_tokenizer, tmp_path, capsys):
    model = make_model(DseModel, similarity="dot")
    export_model(model, bert_tokenizer, tmp_path / "model")
    (tmp_path / "corpus.txt").write_text("\n".join(TEXTS) + "\n")
    name = ["--model_name_or_path", str(tmp_path / "model"), "--device", "cpu"]
    output, index = tmp_path / "found.jsonl", str(tmp_path / "index.parquet")
    searching = ["search", *name, "--query", "old mat", "--top_k", "4", "--output_file", str(output)]
    query, documents = (encode(model, bert_tokenizer, texts, show_progress=False) for texts in (["old mat"], TEXTS))
    expected = {"dot": query @ documents.T, "cosine": rank(query, documents, top_k=4, show_progress=False)[0]}
    for options, score in (([], "dot"), (["--score", "cosine"], "cosine")):
        assert main([*searching, *options, "--corpus", str(tmp_path / "corpus.txt")]) == 0
        found = [hit[score] for hit in json.loads(output.read_text())["results"]]
        assert found == pytest.approx(sorted(expected[score][0].tolist(), reverse=True), abs=1e-4)
    assert main(["encode", *name, "--input", str(tmp_path / "corpus.txt"), "--output", index, "--normalize"]) == 0
    capsys.readouterr()
    assert main([*searching, "--corpus", index]) == 2
    assert "normalized vectors, but the dot product needs the original ones" in capsys.readouterr().err
    with pytest.raises(ValueError, match="similarity='l2'"):
        rank(query, documents, similarity="l2")
