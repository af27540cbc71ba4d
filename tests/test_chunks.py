# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Many vectors a document: against slow code, and in the commands that write and read them."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from flags import to_flags
from transformers import BertModel

from hf_dse import (
    add_context,
    encode,
    encode_chunks,
    encode_query,
    evaluate_retrieval,
    make_rankings,
    rank_groups,
    split_text,
)
from hf_dse.inference.index import read_corpus
from hf_dse.mining.bm25 import bm25_scores
from hf_dse.modeling import DseModel
from hf_dse_cli import main


DOCUMENTS = [
    "the cat sat on the mat. the old cat ran. a dog in the house is new. the dog and a cat of the house.",
    "a mat.",
    "",
    " \n",
    "the old dog ran on. a new mat is in. the cat is on a mat. of the house, the old and the new. the dog sat.",
]
# Left to right: words in pieces, a chunk without tokens, one of white space, and one without.
PARTS = [["the cat sat", "on xylo. ", "\u200b", "a dog"], ["of mat"], [], ["\n", "a cat", "ran", " "]]


def states_of(model, tokenizer, text):
    """Token states of one pass, and where the tokens are in the text."""
    encoded = tokenizer(text, return_offsets_mapping=True, return_tensors="pt")
    offsets = encoded.pop("offset_mapping")[0].tolist()
    with torch.inference_mode():
        return model(**encoded).last_hidden_state[0].numpy(), offsets


def pool_slowly(model, tokenizer, chunks, pooling="mean"):
    """Token by token: each counts to the chunk with its last character, special tokens to the first and the last."""
    states, offsets = states_of(model, tokenizer, "".join(chunks))
    members = [[] for _ in chunks]
    of_character = [number for number, chunk in enumerate(chunks) for _ in chunk]
    for token, (_, end) in enumerate(offsets):
        number = 0 if token == 0 else len(chunks) - 1 if token == len(offsets) - 1 else of_character[end - 1]
        members[number].append(states[token])
    pool = {"mean": np.mean, "max": np.max}[pooling]
    return np.stack([pool(np.stack(tokens), axis=0) for tokens in members])


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"pooling_mode": "max"},
        {"pooling_layers": 2, "projection_dim": 5},
        {"normalize_embeddings": True},
        {"layer_types": ["chunked_attention", "linear_attention"], "attention_chunk_size": 7},
    ],
)
@pytest.mark.parametrize("side", ["right", "left"])
def test_contextual_chunks_are_token_states_of_one_pass(make_model, bert_tokenizer, fields, side, monkeypatch):
    monkeypatch.setattr(bert_tokenizer, "padding_side", side)
    model = make_model(DseModel, **fields)
    vectors, chunks = encode_chunks(
        model, bert_tokenizer, DOCUMENTS, chunk_size=12, contextual=True, show_progress=False
    )
    assert [len(parts) for parts in chunks] == [3, 1, 0, 0, 4]
    assert ["".join(parts) for parts in chunks] == [text if text.strip() else "" for text in DOCUMENTS]
    pooled = [pool_slowly(model, bert_tokenizer, parts, model.config.pooling_mode) for parts in chunks if parts]
    expected = np.concatenate(pooled)
    if model.config.normalize_embeddings:
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    # A document of one chunk has its embedding.
    np.testing.assert_allclose(
        vectors[3], encode(model, bert_tokenizer, ["a mat."], show_progress=False)[0], atol=1e-5
    )


def test_contextual_chunks_of_other_encoders(save_bert, bert_tokenizer, tmp_path):
    model = BertModel.from_pretrained(save_bert(tmp_path)).eval()
    vectors, chunks = encode_chunks(
        model, bert_tokenizer, DOCUMENTS[:1], chunk_size=12, contextual=True, normalize=True, show_progress=False
    )
    expected = pool_slowly(model, bert_tokenizer, chunks[0])
    np.testing.assert_allclose(vectors, expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=1e-5)


def test_byte_level_tokenizers(tiny_config, roberta_tokenizer):
    torch.manual_seed(0)
    model = DseModel(tiny_config(roberta_tokenizer, initializer_range=0.2)).eval()
    text = "é日本。 a cat. 👩‍🔬 ran."
    vectors, chunks = encode_chunks(
        model, roberta_tokenizer, [text], chunk_size=12, contextual=True, show_progress=False
    )
    assert "".join(chunks[0]) == text and len(chunks[0]) > 2
    np.testing.assert_allclose(vectors, pool_slowly(model, roberta_tokenizer, chunks[0]), atol=1e-5)


@pytest.mark.parametrize("prompt", ["", "the: "])
def test_plain_chunks_are_encoded_alone(make_model, bert_tokenizer, prompt):
    model = make_model(DseModel, prompts={"document": prompt} if prompt else None)
    options = {"normalize": True, "show_progress": False}
    vectors, chunks = encode_chunks(model, bert_tokenizer, DOCUMENTS, chunk_size=np.int64(12), **options)
    assert chunks == [split_text(text, bert_tokenizer, 12) if text.strip() else [] for text in DOCUMENTS]
    texts = [prompt + chunk for parts in chunks for chunk in parts]
    np.testing.assert_allclose(vectors, encode(model, bert_tokenizer, texts, **options), atol=1e-6)


@pytest.mark.parametrize("contextual", [False, True])
def test_smaller_vectors(make_model, bert_tokenizer, contextual):
    model = make_model(DseModel)
    options = {"chunk_size": 12, "contextual": contextual, "show_progress": False}
    vectors, _ = encode_chunks(model, bert_tokenizer, DOCUMENTS, **options)
    cut, _ = encode_chunks(model, bert_tokenizer, DOCUMENTS, truncate_dim=5, normalize=True, **options)
    expected = vectors[:, :5] / np.linalg.norm(vectors[:, :5], axis=1, keepdims=True)
    np.testing.assert_allclose(cut, expected, atol=1e-6)
    bits, _ = encode_chunks(model, bert_tokenizer, DOCUMENTS, precision="ubinary", **options)
    assert (bits.codes == np.packbits(vectors > 0, axis=1)).all()


@pytest.mark.parametrize("contextual", [False, True])
def test_chunks_that_are_given(make_model, bert_tokenizer, contextual, warnings):
    model = make_model(DseModel)
    vectors, chunks = encode_chunks(model, bert_tokenizer, PARTS, contextual=contextual, show_progress=False)
    assert chunks == PARTS and vectors.shape == (9, 16)
    assert "2 of 9 texts are blank" in warnings[0]
    if not contextual:
        flat = [chunk for parts in PARTS for chunk in parts]
        np.testing.assert_allclose(vectors, encode(model, bert_tokenizer, flat, show_progress=False), atol=1e-6)
        return
    # Words do not grow together. What has no token has the one after it.
    states, _ = states_of(model, bert_tokenizer, "the cat sat on xylo. a dog")
    spans = [(0, 4), (4, 10), (10, 11), (10, 13)]
    np.testing.assert_allclose(vectors[:4], [states[first:last].mean(axis=0) for first, last in spans], atol=1e-5)
    assert np.isfinite(vectors).all()


class TestMacroChunks:
    def test_tokens_count_where_they_have_more_context(self, make_model, bert_tokenizer):
        """40 tokens, of which the model reads 22 and two special ones at once, 5 of them again."""
        model = make_model(DseModel, prompts={"document": "a "})
        words = "the cat dog sat ran on mat house is old".split() * 4
        vectors, chunks = encode_chunks(
            model, bert_tokenizer, [" ".join(words)], chunk_size=5, max_length=25, contextual=True, show_progress=False
        )
        assert [chunk.split() for chunk in chunks[0]] == [words[start : start + 5] for start in range(0, 40, 5)]
        parts = []
        for start in (0, 9, 18):
            states, _ = states_of(model, bert_tokenizer, "a " + " ".join(words[start : start + 22]))
            parts.append(states)
        # Of a part, the first two are [CLS] and the prompt.
        rows = [parts[0][2 + token] if token < 15 else parts[1][2 + token - 9] for token in range(24)]
        rows += [parts[2][2 + token - 18] for token in range(24, 40)]
        expected = [np.mean(rows[start : start + 5], axis=0) for start in range(0, 40, 5)]
        expected[0] = np.mean([*parts[0][:2], *rows[:5]], axis=0)
        expected[-1] = np.mean([*rows[35:], parts[2][-1]], axis=0)
        np.testing.assert_allclose(vectors, expected, atol=1e-5)

    @pytest.mark.parametrize("max_length", [6, 9, 16, 33])
    @pytest.mark.parametrize("pooling_mode", ["mean", "max"])
    def test_nothing_is_cut(self, make_model, bert_tokenizer, max_length, pooling_mode, warnings):
        """Without attention a state depends on its token alone, so the size of the parts makes no difference."""
        model = make_model(DseModel, pooling_mode=pooling_mode)
        with torch.no_grad():
            for layer in model.encoder.layer:
                layer.attention.output.dense.weight.zero_()
                layer.attention.output.dense.bias.zero_()
            model.embeddings.position_embeddings.weight.zero_()
        documents = [DOCUMENTS[0], DOCUMENTS[1], DOCUMENTS[4] * 20, PARTS[0], ["the cat sat " * 50, "a dog"]]
        expected = [np.concatenate([*pieces(model, bert_tokenizer, document, pooling_mode)]) for document in documents]
        vectors, _ = encode_chunks(
            model,
            bert_tokenizer,
            documents,
            chunk_size=4,
            max_length=max_length,
            batch_size=2,
            contextual=True,
            show_progress=False,
        )
        np.testing.assert_allclose(vectors, np.concatenate(expected), atol=1e-4)
        assert not warnings

    def test_batches_and_neighbours_make_no_difference(self, make_model, bert_tokenizer):
        model = make_model(DseModel)
        options = {"chunk_size": 7, "max_length": 20, "contextual": True, "show_progress": False}
        vectors, _ = encode_chunks(model, bert_tokenizer, DOCUMENTS, batch_size=1, **options)
        again, _ = encode_chunks(model, bert_tokenizer, DOCUMENTS[::-1], batch_size=9, **options)
        alone = [encode_chunks(model, bert_tokenizer, [text], **options)[0] for text in DOCUMENTS]
        np.testing.assert_allclose(vectors, np.concatenate(alone), atol=1e-5)
        reverse = np.concatenate(alone[::-1])
        np.testing.assert_allclose(again, reverse, atol=1e-5)


def pieces(model, tokenizer, document, pooling):
    """Vectors of chunks by the embeddings of their tokens."""
    chunks = split_text(document, tokenizer, 4) if isinstance(document, str) else document
    ids = [tokenizer(chunk, add_special_tokens=False)["input_ids"] for chunk in chunks]
    ids[0] = [tokenizer.cls_token_id, *ids[0]]
    ids[-1] = [*ids[-1], tokenizer.sep_token_id]
    for number, part in enumerate(ids):
        tokens = part or ids[number + 1][:1]
        with torch.inference_mode():
            states = np.stack([model(torch.tensor([[token]])).last_hidden_state[0, 0].numpy() for token in tokens])
        yield (states.max(axis=0) if pooling == "max" else states.mean(axis=0))[None]


def test_documents_without_text_have_no_chunks(make_model, bert_tokenizer, infos):
    for contextual in (False, True):
        options = {"chunk_size": 8, "contextual": contextual, "show_progress": False}
        for documents in ([], ["", " "], [[], ""]):
            vectors, chunks = encode_chunks(make_model(DseModel), bert_tokenizer, documents, **options)
            assert vectors.shape == (0, 16) and chunks == [[] for _ in documents]
    infos.clear()
    _, chunks = encode_chunks(make_model(DseModel), bert_tokenizer, ["a cat", " ", "", ["a"]], show_progress=False)
    assert chunks == [["a cat"], [], [], ["a"]]
    assert infos == ["2 of 4 documents have no text, the first is documents[1]"]


@pytest.mark.parametrize(
    ("documents", "options", "error", "message"),
    [
        ("a cat", {}, TypeError, "`documents` has to be a list of texts, or of lists of chunks, got str"),
        ({"text": ["a"]}, {}, TypeError, "got dict: pass one of its columns"),
        (pd.DataFrame({"text": ["a"]}), {}, TypeError, "got DataFrame: pass one of its columns"),
        (3, {}, TypeError, "got int: pass \\[text\\]"),
        (["a", None], {}, TypeError, "documents\\[1\\] is None: it has to be a text, or a list of its chunks"),
        ([["a", 2]], {}, ValueError, "texts\\[1\\] is 2, not a string"),
        ([["a", 2]], {"contextual": True}, ValueError, "texts\\[1\\] is 2, not a string"),
        (["a"], {"chunk_size": 63}, ValueError, "chunk_size=63: the model reads 64 tokens, which leaves 62"),
        (["a"], {"chunk_size": 0}, ValueError, "chunk_size=0: it has to be at least 1"),
        ([["a"]], {"chunk_size": -1}, ValueError, "chunk_size=-1: it has to be at least 1, a whole number"),
        (["a"], {"chunk_size": "8"}, ValueError, "chunk_size='8': it has to be at least 1, a whole number"),
        (["a"], {"chunk_size": 9, "max_length": 10}, ValueError, "the model reads 10 tokens, which leaves 8"),
        (["a"], {"contextual": True, "batch_size": 0}, ValueError, "batch_size has to be at least 1"),
        (["a"], {"contextual": True, "truncate_dim": 17}, ValueError, "truncate_dim=17: it has to be a whole number"),
        (["a"], {"contextual": True, "precision": "int4"}, ValueError, "precision='int4': it has to be one of"),
        (["a"], {"prompt_name": "title"}, ValueError, "the model has no such prompt"),
    ],
)
def test_errors(make_model, bert_tokenizer, documents, options, error, message):
    with pytest.raises(error, match=message):
        encode_chunks(make_model(DseModel), bert_tokenizer, documents, show_progress=False, **options)


def test_a_prompt_that_leaves_no_room(make_model, bert_tokenizer):
    model = make_model(DseModel, prompts={"document": "the old house of"})
    chunks = encode_chunks(model, bert_tokenizer, ["a cat"], max_length=7, show_progress=False)[1]
    assert chunks == [["a ", "cat"]]
    with pytest.raises(ValueError, match="max_length=6: the model's prompt and special tokens are 6 tokens, which"):
        encode_chunks(model, bert_tokenizer, ["a cat"], max_length=6, show_progress=False)


def test_errors_of_models(make_model, bert_tokenizer):
    model = make_model(DseModel, pooling_mode="cls")
    with pytest.raises(ValueError, match="its 'cls' token, so chunks cannot be pooled from one pass: encode plain"):
        encode_chunks(model, bert_tokenizer, ["a"], contextual=True, show_progress=False)
    model = make_model(DseModel)
    with torch.no_grad():
        model.embeddings.word_embeddings.weight[bert_tokenizer.convert_tokens_to_ids("cat")] = torch.nan
    with pytest.raises(ValueError, match="embeddings are NaN or infinite"):
        encode_chunks(model, bert_tokenizer, ["a", "a cat"], contextual=True, show_progress=False)


def test_context_is_the_direction_of_the_document():
    vectors = np.random.default_rng(0).normal(size=(7, 4))
    groups = ["b", "a", "b", "c", "a", "b", "b"]
    units = [vector / np.linalg.norm(vector) for vector in vectors]
    means = {
        name: np.mean([unit for unit, group in zip(units, groups, strict=True) if group == name], axis=0)
        for name in set(groups)
    }
    center = np.mean(list(means.values()), axis=0)
    for weight in (0.0, 0.2, 3.0):
        for found, unit, group in zip(add_context(vectors, groups, weight), units, groups, strict=True):
            direction = means[group] - center
            expected = unit + weight * direction / np.linalg.norm(direction)
            np.testing.assert_allclose(found, expected / np.linalg.norm(expected), atol=1e-6)
    # One document has no direction of its own.
    np.testing.assert_allclose(add_context(vectors, ["a"] * 7), units, atol=1e-6)
    assert add_context(np.zeros((0, 4)), []).shape == (0, 4)


def test_context_finds_the_document_of_two_like_chunks():
    # Both documents have the same first chunk; what else is in them tells whose it is.
    chunks, documents = np.array([[1.0, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1]]), [0, 0, 1, 1]
    options = {"top_k": 2, "show_progress": False}
    (plain,) = rank_groups(np.array([[0.9, 0.1, 0.3]]), chunks, documents, **options)
    (found,) = rank_groups(np.array([[0.9, 0.1, 0.3]]), add_context(chunks, documents), documents, **options)
    assert [documents[position] for _, position in plain] == [0, 1]
    assert [documents[position] for _, position in found] == [1, 0]


@pytest.mark.parametrize(
    ("vectors", "groups", "weight", "message"),
    [
        (np.ones((2, 3)), [0], 0.2, "shape \\(2, 3\\) and 1 groups: pass a row and a group for each chunk"),
        (np.ones(3), [0, 0, 0], 0.2, "shape \\(3,\\) and 3 groups"),
        (np.ones((1, 3)), [0], -1, "weight=-1: it has to be a finite number of at least 0"),
        (np.ones((1, 3)), [0], np.nan, "weight=nan"),
        (np.full((1, 3), np.inf), [0], 0.2, "1 of 1 embeddings are NaN or infinite"),
    ],
)
def test_errors_of_context(vectors, groups, weight, message):
    with pytest.raises(ValueError, match=message):
        add_context(vectors, groups, weight)


@pytest.fixture
def folder(make_model, bert_tokenizer, tmp_path):
    """A model, and documents with ids and without text among them."""
    make_model(DseModel).save_pretrained(tmp_path / "model")
    bert_tokenizer.save_pretrained(tmp_path / "model")
    rows = [{"id": f"d{number}", "text": text} for number, text in enumerate(DOCUMENTS)]
    (tmp_path / "docs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "docs.txt").write_text("".join(f"{text}\n" for text in DOCUMENTS if text.strip()))
    return tmp_path


def run(command, folder, **options):
    return main([command, *to_flags({"model_name_or_path": folder / "model", "device": "cpu", **options})])


@pytest.mark.parametrize("contextual", [False, True])
@pytest.mark.parametrize("source", ["docs.jsonl", "docs.txt"])
def test_the_index_and_the_search(folder, source, contextual, make_model, bert_tokenizer, capsys):
    index = folder / "index.parquet"
    options = {"chunks": True, "chunk_size": 12, "contextual": contextual}
    assert run("encode", folder, input=folder / source, output=index, **options) == 0
    model, texts = (
        make_model(DseModel),
        DOCUMENTS if source.endswith("jsonl") else [DOCUMENTS[row] for row in (0, 1, 4)],
    )
    vectors, chunks = encode_chunks(
        model, bert_tokenizer, texts, chunk_size=12, contextual=contextual, show_progress=False
    )
    columns, stored, settings = read_corpus(str(index), "text")
    np.testing.assert_allclose(stored, vectors, atol=1e-6)
    assert columns["document"] == [row for row, parts in enumerate(chunks) for _ in parts]
    assert columns["text"] == [chunk for parts in chunks for chunk in parts]
    assert {name: settings[name] for name in options} == options

    capsys.readouterr()
    query = "the new house"
    assert run("search", folder, corpus=index, query=query, format="json") == 0
    (result,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (expected,) = rank_groups(
        encode_query(model, bert_tokenizer, [query], show_progress=False),
        vectors,
        columns["document"],
        show_progress=False,
    )
    hits = result["results"]
    assert [hit["cosine"] for hit in hits] == pytest.approx([score for score, _ in expected], abs=1e-5)
    assert [hit["text"] for hit in hits] == [columns["text"][position] for _, position in expected]
    assert len(hits) == 3 and "position" not in hits[0]
    assert run("search", folder, corpus=index, query=query) == 0
    place = "id" if source.endswith("jsonl") else "document"
    assert capsys.readouterr().out.splitlines()[1].split() == ["rank", "cosine", place, "text"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chunk_size": 12}, "`--chunk_size` and `--contextual` are options of chunks: add `--chunks`"),
        ({"contextual": True}, "add `--chunks`"),
        ({"chunks": True, "chunk_size": 0}, "chunk_size=0: it has to be at least 1"),
        ({"chunks": True, "output": "o.npy"}, "does not tell which document a vector is of: write .parquet"),
        ({"chunks": True, "input": "columns.jsonl"}, "already has a column 'document': rename it"),
        ({"chunks": True, "engine": "ray", "device": None}, "`--chunks` is not supported with `--engine ray`"),
    ],
)
def test_errors_of_encode(folder, options, message, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "columns.jsonl").write_text('{"text": "a cat", "document": 3}\n')
    assert run("encode", folder, **{"input": "docs.txt", "output": "o.parquet", **options}) == 2
    assert message in capsys.readouterr().err


def test_an_index_that_lost_its_documents(folder, capsys):
    index, parts = folder / "index.parquet", folder / "parts"
    assert run("encode", folder, input=folder / "docs.txt", output=index, chunks=True) == 0
    parts.mkdir()
    for name in ("a.parquet", "b.parquet"):
        (parts / name).write_bytes(index.read_bytes())
    assert run("search", folder, corpus=parts, query="a") == 2
    assert "has chunks, but not the rows of their documents in one file" in capsys.readouterr().err
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(index)
    pyarrow.parquet.write_table(table.drop_columns("document"), index)
    assert run("search", folder, corpus=index, query="a") == 2
    assert "has chunks, but not the rows of their documents in one file" in capsys.readouterr().err


@pytest.mark.parametrize("contextual", [False, True])
def test_evaluation(make_model, bert_tokenizer, contextual, folder, capsys):
    pytest.importorskip("pytrec_eval")
    pytest.importorskip("bm25s")
    model = make_model(DseModel)
    queries = ["the old cat ran.", "a mat", "the dog sat."]
    relevant = [[0], [1], [4]]
    corpus = {"doc_id": [f"d{row}" for row in range(5)], "text": DOCUMENTS}
    rankings = make_rankings({"query": queries, "documents": relevant, "labels": [[1]] * 3}, corpus)
    options = {"chunks": True, "chunk_size": 12, "contextual": contextual}
    metrics = evaluate_retrieval(model, bert_tokenizer, rankings, show_progress=False, **options)
    sizes = {"chunk_size": 12, "contextual": contextual, "normalize": True, "show_progress": False}
    vectors, chunks = encode_chunks(model, bert_tokenizer, DOCUMENTS, **sizes)
    similar = encode_query(model, bert_tokenizer, queries, normalize=True, show_progress=False) @ vectors.T
    rows = np.array([row for row, parts in enumerate(chunks) for _ in parts])
    best = np.stack([similar[:, rows == row].max(axis=1) if row in rows else np.full(3, -9.0) for row in range(5)])
    assert metrics["recall@1"] == np.mean(best.argmax(axis=0) == [0, 1, 4])

    (folder / "qrels").mkdir()
    (folder / "qrels" / "test.tsv").write_text(
        "query-id\tcorpus-id\tscore\n" + "".join(f"q{row}\td{doc}\t1\n" for row, (doc,) in enumerate(relevant))
    )
    for name, texts in (("corpus", DOCUMENTS), ("queries", queries)):
        lines = [
            json.dumps({"_id": f"{name[0] if name == 'queries' else 'd'}{row}", "text": text})
            for row, text in enumerate(texts)
        ]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    report = folder / "report.json"
    assert run("evaluate", folder, dataset_name=folder, output_file=report, bm25=True, **options) == 0
    stored = json.loads(report.read_text())
    assert {name: stored[name] for name in options} == options
    assert stored["results"]["test"] == pytest.approx(metrics, abs=1e-6)
    kind = "best of contextual chunks" if contextual else "best of chunks"
    printed = capsys.readouterr().out
    assert f"(cosine, {kind})" in printed
    assert "is added to the cosine; of a chunk the mean of its own and its document's\n" in printed
    # A chunk has its own words and those of its document.
    (both,) = (row for name, row in stored["comparison"]["test"].items() if name.endswith(f"{kind}) with BM25"))
    texts = [chunk for parts in chunks for chunk in parts]
    found = similar + bm25_scores(queries, texts, groups=rows.tolist())(slice(0, 3))
    assert both["recall@1"] == np.mean(rows[found.argmax(axis=1)] == [0, 1, 4])
