# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Smaller vectors: cut ones, codes of 8 bits and of 1 bit, in encoding, indexes, search and evaluation."""

import json
import re
from functools import partial

import numpy as np
import pyarrow.parquet
import pytest
from datasets import Dataset
from flags import to_flags
from scipy.stats import spearmanr

from hf_dse import (
    DseModel,
    QuantizedEmbeddings,
    encode,
    evaluate_model,
    evaluate_retrieval,
    make_rankings,
    quantize,
    rank,
)
from hf_dse.evaluation.pairs import cosines
from hf_dse.evaluation.retrieval import measure_run, search_corpus
from hf_dse.inference.arguments import EncodeArguments, ModelArguments, SizeArguments
from hf_dse.inference.index import TextEncoder
from hf_dse_cli import main


util = pytest.importorskip("sentence_transformers.util")

CODES = ["int8", "uint8", "binary", "ubinary"]
TEXTS = [
    f"{article} {age} {animal} {verb} on {place}"
    for article in ("the", "a")
    for age in ("old", "new")
    for animal in ("cat", "dog")
    for verb in ("sat", "ran")
    for place in ("mat", "house")
]
QUERIES = ["a cat sat", "the dog ran in the house", "old"]


def vectors(number, size=12, seed=0):
    values = np.random.default_rng(seed).normal(size=(number, size)).astype(np.float32)
    return values / np.linalg.norm(values, axis=1, keepdims=True)


def unit(values):
    return values / np.linalg.norm(values, axis=1, keepdims=True)


@pytest.fixture
def folder(tmp_path, make_model, bert_tokenizer):
    make_model(DseModel).save_pretrained(tmp_path / "model")
    bert_tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


class TestQuantize:
    @pytest.mark.parametrize("precision", CODES)
    @pytest.mark.parametrize("size", [8, 12])
    def test_codes_are_those_of_sentence_transformers(self, precision, size):
        values = vectors(120, size)
        codes = quantize(values, precision)
        np.testing.assert_array_equal(codes.codes, util.quantize_embeddings(values, precision))
        assert codes.shape == (120, size) and len(codes) == 120 and codes.size == size

    @pytest.mark.parametrize("precision", ["int8", "uint8"])
    def test_codes_of_8_bits_are_within_half_a_step(self, precision):
        values = vectors(50)
        codes = quantize(values, precision)
        step = (values.max(axis=0) - values.min(axis=0)) / 255
        assert codes[:].dtype == np.float32
        assert (np.abs(codes[:] - values) <= 0.501 * step).all()
        # Rows in any order, and with the ranges of other vectors.
        np.testing.assert_array_equal(codes[[3, 1]], codes[:][[3, 1]])
        others = quantize(vectors(9, seed=1), precision, ranges=codes.ranges)
        np.testing.assert_array_equal(others.ranges, codes.ranges)
        inside = ((vectors(9, seed=1) >= codes.ranges[0]) & (vectors(9, seed=1) <= codes.ranges[1])).mean()
        assert 0.9 < inside < 1
        assert (others[:] >= codes.ranges[0]).all() and (others[:] <= codes.ranges[1] + step).all()

    @pytest.mark.parametrize("precision", ["binary", "ubinary"])
    def test_bits_are_signs(self, precision):
        values = vectors(50)
        np.testing.assert_array_equal(quantize(values, precision)[:], np.where(values > 0, 1.0, -1.0))
        np.testing.assert_array_equal(np.asarray(quantize(values, precision)), np.where(values > 0, 1.0, -1.0))

    @pytest.mark.parametrize("precision", CODES)
    def test_one_vector_and_none(self, precision):
        one = vectors(1)
        if precision.endswith("int8"):
            np.testing.assert_allclose(quantize(one, precision)[:], one, rtol=0, atol=1e-7)
        assert quantize(one[:0], precision)[:].shape == (0, 12)

    def test_float32_is_unchanged(self):
        assert quantize(vectors(3), "float32") is not None
        np.testing.assert_array_equal(quantize(vectors(3), "float32"), vectors(3))

    def test_errors(self):
        wrong = vectors(3)
        wrong[1, 0] = np.nan
        with pytest.raises(ValueError, match="precision='int4': it has to be one of float32, int8, uint8, binary"):
            quantize(vectors(3), "int4")
        with pytest.raises(ValueError, match=r"vectors of shape \(3, 12\) cannot be quantized: .* be finite"):
            quantize(wrong, "int8")
        low, high = [0.0] * 12, [1.0] * 12
        for ranges in ([high, low], [low[:3], high[:3]], [low, [np.inf] * 12], "x", [[0], [0, 1]]):
            with pytest.raises(ValueError, match="int8 codes need ranges, the least and the greatest of each of the"):
                quantize(vectors(3), "int8", ranges=ranges)
        with pytest.raises(ValueError, match=r"Codes of int8 and shape \(3, 12\) are none of 12 numbers .* uint8"):
            QuantizedEmbeddings(quantize(vectors(3), "int8").codes, "uint8", 12, np.zeros((2, 12)))


class TestRank:
    @pytest.mark.parametrize("precision", CODES)
    @pytest.mark.parametrize("similarity", ["cosine", "dot"])
    def test_the_corpus_is_compared_as_it_is(self, precision, similarity, monkeypatch):
        monkeypatch.setattr("hf_dse.inference.search.BLOCK_TEXTS", 7)
        queries, corpus = vectors(4, seed=1), quantize(vectors(40), precision)
        found = rank(queries, corpus, top_k=5, similarity=similarity, show_progress=False)
        expected = rank(queries, corpus[:], top_k=5, similarity=similarity, show_progress=False)
        np.testing.assert_array_equal(found[1], expected[1])
        np.testing.assert_allclose(found[0], expected[0], rtol=1e-6)

    @pytest.mark.parametrize("similarity", ["cosine", "dot", "mlp"])
    def test_heads(self, similarity, make_model):
        model = make_model(similarity=similarity)
        size = model.config.projection_dim
        queries, corpus = vectors(4, size, seed=1), quantize(vectors(40, size), "int8")
        found = rank(queries, corpus, top_k=5, head=model, show_progress=False)
        expected = rank(queries, corpus[:], top_k=5, head=model, show_progress=False)
        np.testing.assert_array_equal(found[1], expected[1])

    def test_8_bits_find_nearly_the_same(self):
        queries, corpus = vectors(30, 64, seed=1), vectors(500, 64)
        exact, coded = (rank(queries, texts, show_progress=False)[1] for texts in (corpus, quantize(corpus, "int8")))
        assert np.mean([len({*one} & {*other}) / 10 for one, other in zip(exact, coded, strict=True)]) > 0.95

    def test_other_sizes(self):
        with pytest.raises(ValueError, match="query_embeddings have size 8 and corpus_embeddings 12"):
            rank(vectors(2, 8), quantize(vectors(3), "int8"), show_progress=False)


class TestEncode:
    @pytest.mark.parametrize("normalizes", [False, True])
    @pytest.mark.parametrize("normalize", [False, True])
    def test_cut_vectors(self, normalize, normalizes, make_model, bert_tokenizer):
        model = make_model(DseModel, normalize_embeddings=normalizes)
        whole = encode(model, bert_tokenizer, TEXTS, show_progress=False)
        cut = encode(model, bert_tokenizer, TEXTS, truncate_dim=6, normalize=normalize, show_progress=False)
        expected = unit(whole[:, :6]) if normalize or normalizes else whole[:, :6]
        np.testing.assert_allclose(cut, expected, rtol=0, atol=1e-6)

    def test_codes(self, make_model, bert_tokenizer):
        model = make_model(DseModel)
        options = {"truncate_dim": 6, "normalize": True, "show_progress": False}
        whole = encode(model, bert_tokenizer, TEXTS, **options)
        codes = encode(model, bert_tokenizer, TEXTS, precision="uint8", **options)
        assert isinstance(codes, QuantizedEmbeddings) and codes.shape == (len(TEXTS), 6)
        np.testing.assert_array_equal(codes.codes, quantize(whole, "uint8").codes)

    @pytest.mark.parametrize("truncate_dim", [0, -1, 1000, "8", 2.5, True])
    def test_wrong_sizes(self, truncate_dim, make_model, bert_tokenizer):
        with pytest.raises(ValueError, match=r"truncate_dim=.*: it has to be a whole number from 1 to \d+, the size"):
            encode(make_model(), bert_tokenizer, TEXTS, truncate_dim=truncate_dim, show_progress=False)

    def test_wrong_precisions(self, make_model, bert_tokenizer):
        with pytest.raises(ValueError, match="precision='half': it has to be one of float32, int8"):
            encode(make_model(), bert_tokenizer, TEXTS, precision="half", show_progress=False)


class TestIndex:
    @pytest.mark.parametrize("precision", ["float32", *CODES])
    @pytest.mark.parametrize("truncate_dim", [None, 6])
    def test_encode_and_search(self, precision, truncate_dim, folder, tmp_path, make_model, bert_tokenizer):
        (tmp_path / "corpus.txt").write_text("\n".join(TEXTS))
        model = {"model_name_or_path": folder, "device": "cpu"}
        made = {"input": tmp_path / "corpus.txt", "output": tmp_path / "index.parquet", "precision": precision}
        assert main(["encode", *to_flags(model | made | {"truncate_dim": truncate_dim})]) == 0
        asked = {"corpus": tmp_path / "index.parquet", "query": QUERIES, "output_file": tmp_path / "found.jsonl"}
        assert main(["search", *to_flags(model | asked | {"top_k": 5})]) == 0
        options = {"truncate_dim": truncate_dim, "show_progress": False}
        student = make_model(DseModel)
        corpus = encode(student, bert_tokenizer, TEXTS, precision=precision, **options)
        scores, positions = rank(
            encode(student, bert_tokenizer, QUERIES, **options), corpus, top_k=5, show_progress=False
        )
        found = [json.loads(line)["results"] for line in (tmp_path / "found.jsonl").read_text().splitlines()]
        assert [[hit["position"] for hit in hits] for hits in found] == positions.tolist()
        assert [[hit["cosine"] for hit in hits] for hits in found] == pytest.approx(scores, abs=1e-5)
        stored = pyarrow.parquet.read_schema(tmp_path / "index.parquet").field("embedding").type
        kinds = {"float32": "float", "int8": "int8", "binary": "int8", "uint8": "uint8", "ubinary": "uint8"}
        assert str(stored.value_type) == kinds[precision]
        settings = json.loads(pyarrow.parquet.read_schema(tmp_path / "index.parquet").metadata[b"hf_dse"])
        assert ("ranges" in settings) == precision.endswith("int8")
        assert ("truncate_dim" in settings, "precision" in settings) == (truncate_dim == 6, precision != "float32")

    def test_vectors_of_npy(self, folder, tmp_path, make_model, bert_tokenizer):
        (tmp_path / "corpus.txt").write_text("\n".join(TEXTS))
        options = {"model_name_or_path": folder, "input": tmp_path / "corpus.txt", "output": tmp_path / "v.npy"}
        assert main(["encode", *to_flags(options | {"precision": "ubinary", "truncate_dim": 6})]) == 0
        whole = encode(make_model(DseModel), bert_tokenizer, TEXTS, show_progress=False)
        np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), np.packbits(whole[:, :6] > 0, axis=1))

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"truncate_dim": 0}, "truncate_dim=0: it has to be at least 1"),
            ({"truncate_dim": 5000}, "truncate_dim=5000: it has to be a whole number from 1 to"),
            ({"truncate_dim": "x"}, "argument --truncate_dim: invalid int value: 'x'"),
            ({"precision": "int4"}, "invalid choice: 'int4'"),
            ({"precision": "int8", "output": "v.npy"}, "v.npy has no place for the ranges of int8 codes: write .par"),
            ({"precision": "uint8", "engine": "ray"}, "needs the ranges of all vectors, and `--engine ray` sees one"),
        ],
    )
    def test_errors_of_encode(self, options, message, folder, tmp_path, capsys, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "corpus.txt").write_text("\n".join(TEXTS))
        defaults = {"model_name_or_path": folder, "input": "corpus.txt", "output": "index.parquet"}
        try:
            code = main(["encode", *to_flags(defaults | options)])
        except SystemExit as error:
            code = error.code
        assert code == 2 and message in capsys.readouterr().err
        assert not (tmp_path / "index.parquet").exists()

    def test_a_head_needs_whole_vectors(self, tmp_path, make_model, bert_tokenizer, capsys):
        make_model(similarity="mlp").save_pretrained(tmp_path / "model")
        bert_tokenizer.save_pretrained(tmp_path / "model")
        (tmp_path / "corpus.txt").write_text("\n".join(TEXTS))
        model = {"model_name_or_path": tmp_path / "model", "device": "cpu"}
        made = {"input": tmp_path / "corpus.txt", "output": tmp_path / "index.parquet"}
        asked = {"corpus": tmp_path / "index.parquet", "query": "a", "score": "head"}
        assert main(["encode", *to_flags(model | made | {"truncate_dim": 6})]) == 0
        assert main(["search", *to_flags(model | asked)]) == 2
        assert "the first 6 numbers of each vector, but the head needs all" in capsys.readouterr().err
        assert main(["encode", *to_flags(model | made | {"precision": "int8"})]) == 0
        assert main(["search", *to_flags(model | asked)]) == 0

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"precision": "int4"}, "precision='int4': it has to be one of"),
            ({"precision": "uint8"}, "'embedding' is fixed_size_list<.*>.*, not vectors of uint8: encode it again"),
            ({"size": 99}, "is damaged: Codes of int8"),
            ({"size": "x"}, "is damaged: "),
            ({"ranges": None}, "is damaged: int8 codes need ranges"),
            ({"ranges": [[1.0], [2.0, 3.0]]}, "is damaged: int8 codes need ranges"),
            ({"truncate_dim": 5}, "query_embeddings have size 5 and corpus_embeddings"),
            ({"truncate_dim": "x"}, "truncate_dim='x': it has to be a whole number"),
        ],
    )
    def test_damaged_indexes(self, changes, message, folder, tmp_path, capsys):
        (tmp_path / "corpus.txt").write_text("\n".join(TEXTS))
        model, index = {"model_name_or_path": folder, "device": "cpu"}, tmp_path / "index.parquet"
        made = {"input": tmp_path / "corpus.txt", "output": index, "precision": "int8"}
        assert main(["encode", *to_flags(model | made)]) == 0
        table = pyarrow.parquet.read_table(index)
        settings = json.loads(table.schema.metadata[b"hf_dse"]) | changes
        pyarrow.parquet.write_table(table.replace_schema_metadata({b"hf_dse": json.dumps(settings)}), index)
        assert main(["search", *to_flags(model | {"corpus": index, "query": "a cat"})]) == 2
        error = capsys.readouterr().err
        assert re.search(message, error) and "Traceback" not in error

    @pytest.mark.parametrize("precision", ["float32", "binary"])
    def test_workers_write_the_same(self, precision, folder, tmp_path, make_model, bert_tokenizer):
        load = partial(TextEncoder, ModelArguments(str(folder)), EncodeArguments("", ""))
        worker = load("cpu", size_args=SizeArguments(truncate_dim=6, precision=precision))
        options = {"truncate_dim": 6, "precision": precision, "prompt_name": "document", "show_progress": False}
        expected = encode(make_model(DseModel), bert_tokenizer, TEXTS, **options)
        expected = expected if precision == "float32" else expected.codes
        np.testing.assert_array_equal(np.array(worker([TEXTS]).to_pylist(), dtype=expected.dtype), expected)
        assert worker.type == worker([TEXTS]).type and worker.settings["truncate_dim"] == 6


class TestEvaluation:
    @pytest.fixture
    def pairs(self):
        labels = np.random.default_rng(0).uniform(0, 5, len(TEXTS) - 1)
        return Dataset.from_dict({"sentence1": TEXTS[1:], "sentence2": TEXTS[:-1], "label": labels})

    @pytest.fixture
    def rankings(self):
        queries = {"query": QUERIES, "documents": [[0], [7], [4]], "labels": [[1]] * 3}
        return make_rankings(queries, {"text": TEXTS})

    @pytest.mark.parametrize("precision", ["float32", "int8", "binary"])
    def test_pairs(self, precision, pairs, make_model, bert_tokenizer):
        model = make_model(DseModel, initializer_range=1.0)
        options = {"truncate_dim": 6, "precision": precision, "show_progress": False}
        metrics = evaluate_model(model, bert_tokenizer, pairs, task="stsb", **options)
        codes = encode(model, bert_tokenizer, TEXTS[1:] + TEXTS[:1], normalize=True, **options)
        order = [*range(len(TEXTS) - 1)]
        similar = cosines(codes[order], codes[[len(TEXTS) - 1, *order[:-1]]])
        assert metrics["cosine_spearman"] == pytest.approx(spearmanr(similar, pairs["label"]).statistic, abs=2e-2)

    def test_heads_of_pairs(self, pairs, make_model, bert_tokenizer):
        options = {"task": "stsb", "show_progress": False}
        with pytest.raises(ValueError, match=r"truncate_dim=6: the mlp head of the model needs all \d+ numbers"):
            evaluate_model(make_model(similarity="mlp"), bert_tokenizer, pairs, truncate_dim=6, **options)
        metrics = evaluate_model(make_model(similarity="cosine"), bert_tokenizer, pairs, truncate_dim=6, **options)
        assert abs(metrics["spearman"]) == pytest.approx(abs(metrics["cosine_spearman"]), abs=1e-6)
        coded = evaluate_model(make_model(similarity="mlp"), bert_tokenizer, pairs, precision="int8", **options)
        assert "pearson" in coded

    def test_search(self, rankings, make_model, bert_tokenizer):
        pytest.importorskip("pytrec_eval")
        model = make_model(DseModel)
        options = {"truncate_dim": 6, "show_progress": False}
        splits = {"test": rankings}
        run = search_corpus(model, bert_tokenizer, splits, 10, precision="int8", **options)["test"]
        corpus = encode(model, bert_tokenizer, TEXTS, precision="int8", normalize=True, **options)
        scores, _ = rank(encode(model, bert_tokenizer, QUERIES, **options), corpus, show_progress=False)
        for found, expected in zip(run.values(), scores, strict=True):
            assert sorted(found.values(), reverse=True) == pytest.approx(expected, abs=1e-6)
        run = search_corpus(model, bert_tokenizer, splits, 100, precision="int8", **options)["test"]
        metrics = evaluate_retrieval(model, bert_tokenizer, rankings, precision="int8", **options)
        assert metrics == measure_run(run, rankings)

    def test_the_command(self, folder, tmp_path, capsys, save_bert):
        pytest.importorskip("pytrec_eval")
        data = tmp_path / "beir"
        (data / "qrels").mkdir(parents=True)
        for name, texts in (("corpus", TEXTS), ("queries", QUERIES)):
            rows = [json.dumps({"_id": f"{name}{row}", "text": text}) + "\n" for row, text in enumerate(texts)]
            (data / f"{name}.jsonl").write_text("".join(rows))
        judged = ["query-id\tcorpus-id\tscore", *(f"queries{row}\tcorpus{row}\t1" for row in range(3))]
        (data / "qrels/test.tsv").write_text("\n".join(judged) + "\n")
        other = save_bert(tmp_path / "other")
        options = {"model_name_or_path": folder, "dataset_name": data, "output_file": tmp_path / "o.json"}
        smaller = {"truncate_dim": 6, "precision": "int8", "compare_with": other}
        assert main(["evaluate", *to_flags(options | smaller)]) == 0
        report = json.loads((tmp_path / "o.json").read_text())
        assert (report["truncate_dim"], report["precision"]) == (6, "int8")
        names = [f"{name} (cosine, 6 numbers, int8)" for name in (folder, other)]
        assert list(report["comparison"]["test"]) == names
        assert names[0] in capsys.readouterr().out
        assert main(["evaluate", *to_flags(options | {"truncate_dim": 5000})]) == 2
        assert "truncate_dim=5000: it has to be a whole number from 1 to" in capsys.readouterr().err

    def test_a_cross_encoder_has_no_vectors(self, save_bert, tmp_path, bert_tokenizer, pairs):
        from transformers import BertForSequenceClassification

        teacher = BertForSequenceClassification.from_pretrained(
            save_bert(tmp_path / "teacher", BertForSequenceClassification, num_labels=1)
        )
        for options in ({"truncate_dim": 6}, {"precision": "int8"}):
            with pytest.raises(ValueError, match="scores pairs of texts and has no vectors that could be smaller"):
                evaluate_model(teacher, bert_tokenizer, pairs, task="stsb", show_progress=False, **options)
