# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The table of `assess`, its advice for good and bad rerankers, and the command that it names."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from sentence_transformers import CrossEncoder

from hf_dse import (
    DataArguments,
    assess,
    evaluate,
    load_rankings,
    make_rankings,
    mine,
    to_sentence_transformer,
)
from hf_dse.cli import measure as cli
from hf_dse.cli.output import show_log
from hf_dse.cli.parsing import LoadArguments
from hf_dse.cli.search import SearchArguments
from hf_dse.measure.assess import Assessment
from hf_dse.measure.compare import Search
from hf_dse.retrieval.sentence_transformer import load_sentence_transformer
from hf_dse.teacher.options import WindowOptions
from hf_dse_cli import main


pytest.importorskip("bm25s")
pytest.importorskip("pytrec_eval")

QUIET = {"show_progress": False}
NAMES = "anna bert cleo dora emil fritz greta hans ida jan karl lena mia nils olga paul".split()


@pytest.fixture
def encoder(assets):
    return load_sentence_transformer(str(assets / "encoder"), device="cpu")


@pytest.fixture
def rankings():
    """Queries whose words are in all documents of a group, of which a number alone tells the relevant one."""
    texts = [f"{name} sat on mat {number} in the old house" for name in NAMES for number in range(8)]
    rows = [8 * group + group % 8 for group in range(len(NAMES))]
    columns = {"query": [f"{name} sat on mat" for name in NAMES], "documents": [[row] for row in rows]}
    return make_rankings({**columns, "labels": [[1]] * len(NAMES)}, {"text": texts})


class Oracle:
    """Scores of a reranker that knows the relevant documents, or their opposite."""

    def __init__(self, rankings, sign):
        texts, rows = rankings.corpus["text"][:], rankings.positives()
        self.known = {query: texts[row] for query, (row,) in zip(rankings.queries["query"], rows, strict=True)}
        self.sign = sign

    def predict(self, pairs, **options):
        return torch.tensor([[float(self.sign * (self.known.get(query) == text))] for query, text in pairs])


@pytest.fixture
def make_reranker(assets, rankings, monkeypatch):
    def make(sign):
        reranker = CrossEncoder(str(assets / "teacher"), device="cpu")
        monkeypatch.setattr(reranker, "predict", Oracle(rankings, sign).predict)
        return reranker

    return make


def test_a_good_reranker_is_a_ceiling_and_a_bad_one_is_not(encoder, rankings, make_reranker):
    found = assess(encoder, rankings, reranker=make_reranker(1), rerank_top=(5, 50), **QUIET)
    assert list(found.searches) == [
        *("model 1 (cosine)", "BM25", "model 1 (cosine) with BM25"),
        *(f"reranker (reranks the top {top} of both{end}" for top in (5, 50) for end in (")", ", blended)")),
    ]
    assert found.ceiling == "reranker (reranks the top 50 of both, blended)" and found.found[found.best].model in (
        "model 1",
        None,
    )
    # The best of all that needs no training, on the same queries.
    values = {name: row["ndcg@10"] for name, row in found.searches.items()}
    assert found.best == max(list(values)[:3], key=values.get) and values[found.ceiling] > 0.9
    gain, low, high = found.gain
    assert gain == pytest.approx(values[found.ceiling] - values[found.best]) and 0 < low <= gain <= high
    assert found.pays and str(found).startswith("Distil: the reranker is better (+")
    found = assess(encoder, rankings, reranker=make_reranker(-1), **QUIET)
    assert not found.pays and found.gain[0] < 0
    assert str(found).startswith("There is nothing to distil from this reranker: it is not clearly better (-")


def test_what_a_student_has_of_the_ceiling():
    """By the best search of each model."""
    values = {"source": (0.5, 0.6), "student": (0.7, 0.75), "weak": (0.3, 0.2)}
    found = {f"{name}{row}": Search({}, name) for name, row in product(values, range(2))}
    found |= {"BM25": Search({}), "reranked": Search({}, "source", rerank_top=20)}
    scores = {f"{name}{row}": values[name][row] for name, row in product(values, range(2))}
    rows = {name: {"ndcg@10": score} for name, score in (scores | {"BM25": 0.95, "reranked": 0.9}).items()}
    assessment = Assessment(rows, found, "source1", ceiling="reranked")
    assert assessment.shares_of_ceiling() == pytest.approx({"student": 0.5, "weak": -1.0})
    assert replace(assessment, ceiling=None).shares_of_ceiling() == {}
    # A name is never called the best without that which is higher.
    assert str(assessment) == (
        "The best without a reranker is source1, nDCG@10 60.0 (BM25 has 95.0, which may be chance)."
    )
    assert str(replace(assessment, best="BM25")) == "The best without a reranker is BM25, nDCG@10 95.0."


def test_a_reranker_reads_as_many_documents_as_it_is_told(encoder, rankings, make_reranker):
    """Also more than the 100 that the measures need."""
    reranker, read = make_reranker(1), {}
    predict = reranker.predict

    def count(pairs, **options):
        for query, text in pairs:
            read.setdefault(query, set()).add(text)
        return predict(pairs, **options)

    reranker.predict = count
    assess(encoder, rankings, reranker=reranker, rerank_top=(5, 120), max_queries=2, **QUIET)
    assert [len(texts) for query, texts in read.items() if query.endswith("sat on mat")] == [120, 120]


def test_all_models_read_as_many_tokens(encoder, assets, rankings, save_bert, tmp_path):
    short = to_sentence_transformer(save_bert(tmp_path / "short"), device="cpu", max_length=16)
    found = assess(encoder, rankings, compare_with=[short], **QUIET)
    assert [row["tokens"] for row in found.searches.values()] == [16, None, 16, 16, 16]
    assert found.gain is None and not found.pays and str(found).startswith("The best without a reranker is ")
    # The same values as at this length.
    cut = to_sentence_transformer(assets / "encoder", device="cpu", max_length=16)
    again = evaluate(cut, rankings, **QUIET)
    assert found.searches["model 1 (cosine)"]["ndcg@10"] == again["ndcg@10"]
    found = assess(encoder, rankings, max_length=8, **QUIET)
    assert [row["tokens"] for row in found.searches.values()] == [8, None, 8]
    # The models of the caller are as before.
    assert (encoder.max_seq_length, short.max_seq_length) == (64, 16)
    with pytest.raises(ValueError, match="max_queries=0: it has to be at least 1"):
        assess(encoder, rankings, max_queries=0, **QUIET)
    for option in ({"windows": "best"}, {"reranker_max_length": 9}, {"rerank_top": (5,)}, {"rerank_weight": 0.5}):
        with pytest.raises(ValueError, match="there is no reranker. Pass one"):
            assess(encoder, rankings, **option, **QUIET)
    for option in ({"rerank_top": (5,)}, {"rerank_weight": 0.5}):
        with pytest.raises(ValueError, match="there is no reranker"):
            cli.AssessArguments("encoder", **option)
        with pytest.raises(ValueError, match="there is no reranker"):
            SearchArguments("encoder", "corpus", ["a"], **option)
    for option in ({"windows": "best"}, {"teacher_max_length": 9}):
        with pytest.raises(ValueError, match="there is no reranker"):
            cli.assess(cli.AssessArguments("encoder"), None, WindowOptions(**option), None)
    with pytest.raises(ValueError, match="rerank_top=0: it has to be at least 1"):
        cli.AssessArguments("encoder", rerank="reranker", rerank_top=[5, 0])


def test_queries_are_as_long_as_in_a_search(encoder, rankings):
    """A model may read fewer tokens of a query, and is measured so."""
    short = to_sentence_transformer(encoder)
    short[0].query_length = 4
    measured = [
        next(iter(assess(short, rankings, **one, **QUIET).searches.values())) for one in ({}, {"max_length": 64})
    ]
    expected = [evaluate(short, rankings, **one, **QUIET) for one in ({}, {"max_length": 64})]
    assert [row["ndcg@10"] for row in measured] == [row["ndcg@10"] for row in expected]
    assert expected[0]["ndcg@10"] != expected[1]["ndcg@10"]


def test_some_of_the_judged_queries_are_drawn(encoder, assets):
    rankings = load_rankings(str(assets / "queries"), ["test"])["test"]
    found = assess(encoder, rankings, max_queries=4, **QUIET)
    assert {row["num_queries"] for row in found.searches.values()} == {4}
    again = assess(encoder, rankings, max_queries=4, **QUIET)
    assert [row["ndcg@10"] for row in again.searches.values()] == [row["ndcg@10"] for row in found.searches.values()]


def test_data_and_models_by_name(assets, encoder):
    splits, folder = load_rankings(str(assets / "queries")), assets / "queries"
    for split in (None, "validation"):
        expected = assess(encoder, splits[split or "test"], **QUIET).searches
        found = assess(assets / "encoder", folder, split=split, device="cpu", **QUIET).searches
        assert [row["ndcg@10"] for row in found.values()] == [row["ndcg@10"] for row in expected.values()]


def told(capsys, *options):
    code = main(["assess", *map(str, options)])
    captured = capsys.readouterr()
    return code, captured.out, " ".join(captured.err.split())


def test_the_command(assets, capsys):
    model = ("--model", assets / "encoder", "--device", "cpu")
    data = ("--dataset", assets / "queries")
    code, out, err = told(capsys, *model, *data, "--rerank", assets / "teacher")
    assert code == 0 and "test: 6 queries rank 30 documents" in out and "The judged queries are too few to tell" in out
    single = told(capsys, *model, *data, "--rerank", assets / "teacher", "--max_queries", 1)[1]
    assert " points, 1 query, which has no interval): judge 50, or more" in single and " none " in single
    # The random reranker does not pay, so the command is a search.
    assert "Next: `hf-dse search" in err and "--corpus" in err
    _, table = out.split("search ", 1)
    assert len(table.partition("\ndifference: ")[0].splitlines()) == 1 + 7
    found = assess(assets / "encoder", assets / "queries", reranker=assets / "teacher", device="cpu", **QUIET)
    assert found.gain[1] <= 0
    code, out, err = told(capsys, *model, *data, "--split", "nothing")
    assert code == 2 and "There is no split 'nothing', only train, validation, test." in err


def test_one_model_or_number_in_the_place_of_several(encoder, assets, rankings, make_reranker):
    options = {"reranker": make_reranker(1), "max_queries": 5, **QUIET}
    for other in (encoder, assets / "encoder", str(assets / "encoder")):
        found, same = (
            assess(encoder, rankings, compare_with=of, rerank_top=top, **options)
            for of, top in ((other, 5), ([other], [5]))
        )
        assert list(found.searches) == list(same.searches) and len(found.searches) == 7


def test_the_next_command_follows_from_what_was_found(capsys):
    args, data = cli.AssessArguments("encoder", rerank="a reranker"), DataArguments(dataset_name="data")
    rows = {
        name: {"ndcg@10": 0.5, "num_queries": 50}
        for name in ("encoder (cosine)", "BM25", "encoder (cosine) with BM25")
    }
    both = "encoder (cosine) with BM25"
    searches = {"encoder (cosine)": Search({}, "encoder"), "BM25": Search({})}
    mixed = {**searches, both: Search({}, "encoder", bm25_weight=0.3)}
    mixed["it"] = replace(mixed[both], rerank_top=20, rerank_weight=0.9)
    units = {**mixed, "of passages": Search({}, "encoder", chunk_size=128)}
    cheap, words = Assessment(rows, mixed, both), Assessment(rows, mixed, "BM25")
    good, bad = (replace(cheap, ceiling="it", gain=(0.2, low, 0.3)) for low in (0.1, -0.1))
    passages = replace(good, found=units | {both: replace(units[both], chunk_size=128)})
    alone = replace(good, found={**mixed, "it": replace(mixed["it"], rerank_weight=1.0)})
    both_teach = "--teacher 'a reranker' encoder --teacher_weights 0.9 0.1 --teacher_bm25_weight 0.3"
    for found, num_train, expected in (
        (
            good,
            0,
            "hf-dse mine --bm25 true --output_file mined.parquet --model encoder --corpus data --queries_from head",
        ),
        (good, 0, f"--train_file mined.parquet --output_dir student --model encoder {both_teach}`"),
        (alone, 0, "--train_file mined.parquet --output_dir student --model encoder --teacher 'a reranker'`"),
        (good, 500, "hf-dse mine --bm25 true --output_file mined.parquet --model encoder --dataset data`"),
        (good, 500, f"--output_dir student --model encoder {both_teach} --dataset data`"),
        # Labels can teach what a bad reranker cannot.
        (bad, 500, "--output_dir student --model encoder --dataset data`"),
        (bad, 10, "hf-dse search --bm25_weight 0.3 --query '...' --model encoder --corpus data`"),
        # By luck.
        (replace(good, searches={name: {**row, "num_queries": 9} for name, row in rows.items()}), 0, "hf-dse search"),
        (words, 0, "hf-dse search --bm25_weight 10 "),
        # A search by dot products takes no BM25.
        (replace(words, found=searches), 0, "hf-dse search --bm25_weight 0 --query '...' --model"),
        # Another weight may be kept in the folder of the model.
        (replace(cheap, best="encoder (cosine)"), 0, "hf-dse search --bm25_weight 0 --query '...' --model encoder --"),
        # The unit that was better, where there are two.
        (passages, 0, "--corpus data --queries_from headings --chunk_size 128`"),
        (passages, 0, f"--model encoder {both_teach}`"),
        (passages, 500, "--dataset data --chunk_size 128`, `hf-dse distill"),
        (passages, 500, f"{both_teach} --dataset data --chunk_size 128`"),
        (replace(cheap, found=units), 0, "--query '...' --model encoder --corpus data --chunk_size 0`"),
    ):
        with show_log():
            cli._say_next(args, LoadArguments(), WindowOptions(), data, found, num_train)
        assert expected in capsys.readouterr().err
    # What changes the result is passed on.
    data = replace(data, chunk_size=0, relevance_threshold=2.0)
    how = (LoadArguments(max_length=64, dtype="float32"), WindowOptions(windows="best", teacher_max_length=99), data)
    read = "--dataset data --chunk_size 0"
    for found, num_train, expected in (
        (cheap, 0, "--corpus data --chunk_size 0 --dtype float32 --max_length 64`"),
        (good, 500, f"--relevance_threshold 2.0 {read} --dtype float32 --max_length 64`, `hf-dse distill"),
        (good, 500, f"{both_teach} --teacher_max_length 99 --windows best --relevance_threshold 2.0 {read} --max_le"),
        (bad, 500, f"--model encoder --relevance_threshold 2.0 {read} --max_length 64`"),
    ):
        with show_log():
            cli._say_next(args, *how, found, num_train)
        assert expected in capsys.readouterr().err


def test_without_queries_others_are_made(assets, tmp_path, capsys):
    folder = tmp_path / "docs"
    folder.mkdir()
    for number, name in enumerate(NAMES):
        text = f"The cat of {name} sat on mat {number}. It ran into the old house of {name}. The dog is new."
        (folder / f"{name}.md").write_text(text)
    model = ("--model", assets / "encoder", "--device", "cpu")
    code, out, err = told(capsys, *model, "--corpus", folder, "--max_queries", 10)
    assert (
        code == 0
        and "made queries: 10 queries rank 16 documents, " in out
        and "16 passages of at most 62 tokens" in out
    )
    assert all(f"(cosine, {unit})" in out and f"BM25 ({unit})" in out for unit in ("whole texts", "passages of 128"))
    assert "There are no queries, so headings and sentences of the documents stand in for them" in err
    assert f"--corpus {folder} --chunk_size " in err
    code, _, err = told(capsys, *model, "--corpus", folder, "--split", "train")
    assert code == 2 and "split=train: there are no queries, so leave it out" in err
    (tmp_path / "queries.csv").write_text("query,file\nwhere is the cat of anna,anna.md\nmat of paul,paul.md\n")
    queries = ("--corpus", folder, "--test_file", tmp_path / "queries.csv")
    code, out, err = told(capsys, *model, *queries)
    assert code == 0 and "test: 2 queries rank 16 documents, " in out and "stand in" not in err
    # Whole texts alone.
    code, out, err = told(capsys, *model, *queries, "--chunk_size", 0)
    assert "rank 16 documents;" in out and "whole texts" not in out and "passages" not in out
    assert f"--corpus {folder} --chunk_size 0 --device cpu`" in err


@pytest.fixture
def files(tmp_path):
    """Files that all have the words of a query, of which the relevant one has them in one passage."""
    folder = tmp_path / "files"
    folder.mkdir()
    filler = "The cat sat on the mat in the old house. " * 3
    rows = ["query,file"]
    for name in NAMES:
        (folder / f"{name}-a.md").write_text(f"{name} is new. {filler}It is purple. {filler}The dog is in.")
        (folder / f"{name}-b.md").write_text(f"The cat is new. {filler}{name} is purple. {filler}A dog is in.")
        rows.append(f"purple {name},{name}-b.md")
    (tmp_path / "queries.csv").write_text("\n".join(rows))
    return DataArguments(corpus_file=str(folder), test_file=str(tmp_path / "queries.csv"))


def test_the_files_of_a_folder_are_searched_in_both_units(assets, encoder, files, make_reranker, capsys):
    reranker, read = make_reranker(1), []

    def predict(pairs, **options):
        read.extend(pairs)
        return torch.tensor([[float("is purple" in text and query[7:] in text)] for query, text in pairs])

    reranker.predict = predict
    options = {"reranker": reranker, "rerank_top": (8,), "bm25_weight": 10, **QUIET}
    found = assess(encoder, files, chunk_size=24, **options)
    unit = "passages of 24"
    assert list(found.searches) == [
        *("model 1 (cosine, whole texts)", "BM25 (whole texts)", "model 1 (cosine, whole texts) with BM25"),
        *(f"model 1 (cosine, {unit})", f"BM25 ({unit})", f"model 1 (cosine, {unit}) with BM25"),
        *("reranker (reranks the top 8 of both)", "reranker (reranks the top 8 of both, blended)"),
    ]
    assert found.best in (f"BM25 ({unit})", f"model 1 (cosine, {unit}) with BM25")
    assert found.found[found.best].chunk_size == 24
    assert found.unit.startswith("32 documents, ") and found.unit.endswith(" passages of at most 24 tokens")
    # What the reranker orders are the best passages.
    texts = {text for query, text in read if query.startswith("purple")}
    assert texts and max(len(encoder.tokenizer(text)["input_ids"]) for text in texts) <= 24 + 2
    assert found.searches[found.ceiling]["ndcg@10"] > 0.99
    # By default passages of 128 tokens for files.
    assert {search.chunk_size for search in assess(encoder, files, **QUIET).found.values()} == {0, 128}
    alone = assess(encoder, files, chunk_size=0, **QUIET)
    assert list(alone.searches) == ["model 1 (cosine)", "BM25", "model 1 (cosine) with BM25"]
    assert alone.unit == "32 documents"
    # The command names the better unit.
    command = ("--model", assets / "encoder", "--device", "cpu", "--corpus", files.corpus_file)
    command += ("--test_file", files.test_file, "--bm25_weight", 10, "--chunk_size", 24)
    code, out, err = told(capsys, *command)
    assert code == 0 and f"{assets / 'encoder'} (cosine, {unit})" in out
    assert f"--corpus {files.corpus_file} --chunk_size 24 --device cpu`" in err


def test_passages_that_were_mined_have_one_unit(encoder, rankings):
    """They are no whole texts, and are not embedded twice."""
    mined = mine(replace(rankings, chunk_size=8), encoder, bm25=True, num_negatives=2, **QUIET)
    found = assess(encoder, mined, **QUIET)
    assert not any("whole texts" in name for name in found.searches) and len(found.searches) == 3
