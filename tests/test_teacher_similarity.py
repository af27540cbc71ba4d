# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Scores of candidates without a reranker, by a bi-encoder and BM25: against slow code, and in `hf-dse score`."""

import json
import math
import re
import subprocess
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_mining import bm25_scores as bm25_by_hand

from hf_dse import BiEncoder, check_scores, make_rankings, score_candidates_by_similarity
from hf_dse.data.pairs import DataArguments
from hf_dse.data.ranking_files import load_rankings
from hf_dse.inference.ray_engine import ShardWorker
from hf_dse.modeling import DseModel
from hf_dse.teacher.score_files import RankingScorer, ScoreArguments
from hf_dse_cli import main


sentence_transformers = pytest.importorskip("sentence_transformers")
modules = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
pytest.importorskip("bm25s")

RECIPE = Path(__file__).parents[1] / "recipes" / "flagship" / "run.sh"
# The last two are no candidates, and the last query shares no word with the corpus.
TEXTS = ["red cat moon", "wall wall dog", "moon", "cat", "sun red wall", "dog moon sun", "red red red cat", "wall"]
QUERIES = ["red cat", "moon wall", "tree"]
CANDIDATES = [[0, 3, 4], [2, 5], [1, 0, 4]]
PROMPTS = {"query": "find the: ", "document": "a house "}


@pytest.fixture
def save_encoder(save_bert, tmp_path):
    """A model of sentence-transformers; with `dense` one that only sentence-transformers reads."""

    def save(name="encoder", dense=False, **settings):
        model = sentence_transformers.SentenceTransformer(str(save_bert(tmp_path / f"{name}-inner")), device="cpu")
        if dense:
            model.append(modules.Dense(16, 8))
        model.prompts.update(settings.pop("prompts", PROMPTS))
        for setting, value in settings.items():
            setattr(model, setting, value)
        model.save(str(tmp_path / name))
        return str(tmp_path / name)

    return save


@pytest.fixture
def rankings():
    return make_rankings({"query": QUERIES, "documents": CANDIDATES}, {"text": TEXTS})


def by_hand(folder, weight):
    """One candidate after the other."""
    model = sentence_transformers.SentenceTransformer(folder, device="cpu")
    scores = []
    for query, documents in zip(QUERIES, CANDIDATES, strict=True):
        (first,), words = model.encode_query([query]), bm25_by_hand(query, TEXTS)
        scores.append([])
        for row in documents:
            (second,) = model.encode_document([TEXTS[row]])
            cosine = first @ second / np.linalg.norm(first) / np.linalg.norm(second)
            scores[-1].append(cosine + (weight * words[row] / max(words) if max(words) else 0.0))
    return scores


def cosine_by_hand(encoder, query, document):
    (first,), (second,) = (encoder.encode([text], prompt_name=name) for text, name in
                           ((query, "query"), (document, "document")))  # fmt: skip
    return first @ second


def assert_close(found, expected):
    assert [len(row) for row in found] == [len(row) for row in expected]
    np.testing.assert_allclose(np.concatenate(found), np.concatenate(expected), rtol=0, atol=1e-5)


def score(encoder, rankings, **options):
    scored = score_candidates_by_similarity(encoder, rankings, show_progress=False, **options)
    return scored.queries["teacher_logits"][:]


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("weight", [0.0, 0.3, 2.0])
def test_scores_are_those_of_one_candidate_at_a_time(save_encoder, rankings, dense, weight):
    folder = save_encoder(dense=dense)
    encoder = BiEncoder(folder, device="cpu")
    scored = score_candidates_by_similarity(encoder, rankings, bm25_weight=weight, show_progress=False)
    assert_close(scored.queries["teacher_logits"][:], by_hand(folder, weight))
    assert scored.corpus is rankings.corpus
    # Earlier scores are replaced.
    again = score(encoder, scored)
    assert_close(again, by_hand(folder, 0.0))
    # Without a word of the corpus, the cosine alone.
    assert_close([scored.queries["teacher_logits"][2]], [again[2]])


def test_prompts(save_encoder, rankings, tiny_config, bert_tokenizer, tmp_path):
    """Those of queries and documents, in a checkpoint of a Trainer too; the default prompt is that of other texts."""
    folder = save_encoder(default_prompt_name="query")
    encoder = BiEncoder(folder, device="cpu")
    assert_close(score(encoder, rankings), by_hand(folder, 0.0))
    with_prompt = encoder.encode([PROMPTS["query"] + QUERIES[0]], prompt_name="other")
    assert np.array_equal(encoder.encode(QUERIES[:1]), with_prompt)
    config = tiny_config(bert_tokenizer, prompts=PROMPTS, initializer_range=0.2)
    DseModel(config).save_pretrained(tmp_path / "student")
    bert_tokenizer.save_pretrained(tmp_path / "student")
    student = BiEncoder(str(tmp_path / "student"), device="cpu")
    texts = [PROMPTS["document"] + TEXTS[row] for row in range(6)]
    plain, prompted = student.encode(texts), student.encode(TEXTS[:6], prompt_name="document")
    assert np.array_equal(plain, prompted) and not np.allclose(student.encode(TEXTS[:6]), plain, atol=1e-3)


def test_each_document_is_embedded_once(save_encoder, rankings, tmp_path):
    encoder, embedded = BiEncoder(save_encoder(), device="cpu"), []
    inner = encoder._encode
    encoder._encode = lambda texts, **options: embedded.extend(texts) or inner(texts, **options)
    first = score(encoder, rankings, bm25_weight=0.3, cache_dir=tmp_path / "cache")
    documents = [PROMPTS["document"] + text for text in TEXTS[:6]]
    assert embedded == [PROMPTS["query"] + query for query in QUERIES] + documents
    # Another weight needs no other vectors.
    embedded.clear()
    assert_close(score(encoder, rankings, bm25_weight=0.3, cache_dir=tmp_path / "cache"), first)
    assert score(encoder, rankings, cache_dir=tmp_path / "cache") != first
    assert embedded == []


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (-0.1, "weight=-0.1: it has to be a finite number of at least 0"),
        (math.nan, "weight=nan: it has to be a finite number"),
        (1e39, "bm25_weight=1e[+]39: the scores are infinite, take a smaller weight"),
    ],
)
def test_weights_that_are_none(save_encoder, rankings, weight, message):
    with pytest.raises(ValueError, match=message):
        score(BiEncoder(save_encoder(), device="cpu"), rankings, bm25_weight=weight)


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("weight", [0.0, 0.3])
def test_the_best_window_of_a_document_counts(save_encoder, rankings, dense, weight):
    """The score of a document is the best of its parts, each scored as a document; BM25 is that of all of it."""
    encoder = BiEncoder(save_encoder(dense=dense), max_length=8, device="cpu")
    parts = [encoder.split(text, "document") for text in TEXTS]
    assert ["".join(row) for row in parts] == TEXTS and max(map(len, parts)) > 1
    for text in (part for row in parts for part in row):
        assert len(encoder.processing_class(PROMPTS["document"] + text)["input_ids"]) <= 8
    expected = [
        [max(cosine_by_hand(encoder, query, part) for part in parts[row]) for row in documents]
        for query, documents in zip(QUERIES, CANDIDATES, strict=True)
    ]
    if weight:
        first, with_words = score(encoder, rankings), score(encoder, rankings, bm25_weight=weight)
        expected = [list(np.add(row, np.subtract(after, before)))
                    for row, before, after in zip(expected, first, with_words, strict=True)]  # fmt: skip
    assert_close(score(encoder, rankings, bm25_weight=weight, windows="best"), expected)
    assert not np.allclose(np.concatenate(expected), np.concatenate(score(encoder, rankings, bm25_weight=weight)))


def test_the_best_window_of_short_and_of_blank_documents(save_encoder, rankings):
    """What is read whole has the same score by its windows, and a blank text has one."""
    encoder = BiEncoder(save_encoder(), device="cpu")
    assert_close(score(encoder, rankings, windows="best"), score(encoder, rankings))
    assert encoder.split(" ") == [" "]
    with pytest.raises(ValueError, match="max_length=4 leaves no room for a text after the prompt 'a house '"):
        score(BiEncoder(save_encoder(), max_length=4, device="cpu"), rankings, windows="best")
    with pytest.raises(ValueError, match="windows='last': it has to be 'first' or 'best'"):
        score(encoder, rankings, windows="last")


def test_queries_without_candidates(save_encoder):
    rankings = make_rankings({"query": QUERIES, "documents": [[], [], []]}, {"text": TEXTS})
    with pytest.raises(ValueError, match="The queries have no candidates to score: mine them with"):
        score(BiEncoder(save_encoder(), device="cpu"), rankings)


def test_cosines_may_lie_between_0_and_1(warnings):
    columns = {"query": ["a"], "documents": [[0, 1]], "teacher_logits": [[0.9, 0.7]]}
    rankings = make_rankings(columns, {"text": ["x", "y"]})
    check_scores(rankings, are_raw=True)
    assert warnings == []
    check_scores(rankings)
    assert "as after a sigmoid" in warnings[0] and "Cosines are fine." in warnings[0]


# The command


@pytest.fixture
def files(tmp_path):
    """A corpus and lists of its ids, pairs of sentences, and the first words of a command."""

    def write(name, rows):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(tmp_path / name)

    corpus = write("corpus.jsonl", [{"_id": f"d{row}", "text": text} for row, text in enumerate(TEXTS)])
    lists = [
        {"query_id": f"q{row}", "query": query, "document_ids": [f"d{document}" for document in documents]}
        for row, (query, documents) in enumerate(zip(QUERIES, CANDIDATES, strict=True))
    ]
    return {
        "rankings": ["--corpus_file", corpus, "--train_file", write("mined.jsonl", lists)],
        "pairs": ["--train_file", write("pairs.jsonl", [{"sentence1": "cat", "sentence2": "dog", "label": 1}] * 2),
                  "--num_labels", "1"],
    }  # fmt: skip


def test_the_command_averages_bi_encoders(save_encoder, files, tmp_path, capsys, warnings):
    folders = [save_encoder(), save_encoder("other", dense=True, prompts={})]
    output = tmp_path / "scored.jsonl"
    command = ["score", "--bi_encoder", "--model_name_or_path", *folders, *files["rankings"], "--device", "cpu"]
    for options, weight, how in (
        (["--bm25_weight", "0.3"], 0.3, "cosine + BM25"),
        (["--windows", "best"], 0.0, "cosine, windows: best"),
        ([], 0.0, "cosine"),
    ):
        assert main([*command, *options, "--output_file", str(output)]) == 0
        assert f"3 queries with scored candidates ({how}) written to {output}" in capsys.readouterr().out
        found = load_rankings(DataArguments(train_file=str(output)))["train"].queries
        assert found["query"][:] == QUERIES
        means = [np.mean(rows, axis=0) for rows in zip(*(by_hand(name, weight) for name in folders), strict=True)]
        assert_close(found["teacher_logits"][:], means)
    assert warnings == []
    # Queries and documents of two bi-encoders.
    assert len(list((tmp_path / ".hf-dse-scores").glob("*.npy"))) == 4


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ("rankings", ["--bm25_weight", "0.3"], "bm25_weight=0.3: BM25 is added to the cosine of a bi-encoder: pass"),
        ("rankings", ["--bi_encoder", "--bm25_weight", "-1"], "bm25_weight=-1.0: it has to be at least 0"),
        ("rankings", ["--bi_encoder", "--bm25_weight", "nan"], "bm25_weight=nan: it has to be a finite number"),
        ("rankings", ["--bi_encoder", "--similarity_scale", "4"], "`--similarity_scale` is an option of pairs of"),
        ("rankings", ["--bi_encoder", "--max_length", "0"], "max_length=0 leaves no room for a text: pass at least 3"),
        ("pairs", ["--similarity_bias", "4"], "`--similarity_bias` is an option of `--bi_encoder`: leave it out."),
        ("pairs", ["--bi_encoder", "--windows", "best"], "`--windows` is an option of rankings, and the data"),
        ("pairs", ["--bi_encoder", "--bm25_weight", "0.3"], "`--bm25_weight` is an option of rankings, and the data"),
    ],
)
def test_errors_of_the_command(save_encoder, files, tmp_path, capsys, data, options, message):
    output = tmp_path / "scored.jsonl"
    command = ["score", "--model_name_or_path", save_encoder(), *files[data], "--output_file", str(output)]
    assert main([*command, "--device", "cpu", *options]) == 2
    assert message in capsys.readouterr().err
    assert not output.exists()


def test_shards_have_cosines_and_no_bm25(save_encoder, rankings, tmp_path, capsys):
    folder = save_encoder()
    columns = {"query": QUERIES, "documents": [[TEXTS[row] for row in rows] for rows in CANDIDATES]}
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table(columns), tmp_path / "in/part.parquet")
    load = partial(RankingScorer, ScoreArguments([folder], "", bi_encoder=True))
    worker = ShardWorker(load, "cpu", {**load("cpu").settings, "columns": ["query", "documents"]})
    shard = {"shard": str(tmp_path / "in/part.parquet"), "output": str(tmp_path / "part.parquet")}
    assert worker(shard)["error"] == ""
    assert_close(pq.read_table(tmp_path / "part.parquet")["teacher_logits"].to_pylist(), by_hand(folder, 0.0))
    command = ["score", "--engine", "ray", "--bi_encoder", "--model_name_or_path", folder, "--bm25_weight", "0.3"]
    assert main([*command, "--dataset_name", str(tmp_path / "in"), "--output_file", str(tmp_path / "out")]) == 2
    assert "`--bm25_weight` needs the whole corpus, and with `--engine ray` a worker knows" in capsys.readouterr().err


def test_the_order_of_the_lists_of_the_flagship(tmp_path):
    """Claims of SciFact, queries without labels, the other queries: the first ones are learned."""
    (group,) = re.findall(r"^\{\n    head .*?^\} >.*?$", RECIPE.read_text(), flags=re.MULTILINE | re.DOTALL)
    (tmp_path / "mined-scored.jsonl").write_text("".join(f"m{row}\n" for row in range(812)))
    (tmp_path / "unlabelled-mined-scored.jsonl").write_text("x0\nx1\n")
    subprocess.run(["bash", "-euc", group], env={"out": str(tmp_path), "PATH": "/usr/bin:/bin"}, check=True)
    found = (tmp_path / "fused.jsonl").read_text().split()
    assert found == [f"m{row}" for row in range(809)] + ["x0", "x1", "m809", "m810", "m811"]
