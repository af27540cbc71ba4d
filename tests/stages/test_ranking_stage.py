# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The ranking stage from files to a model folder, in one process and in two."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from transformers import AutoTokenizer, BertForSequenceClassification

from hf_dse import DataArguments, evaluate, load_rankings, mine, score
from hf_dse.data.rankings import write_rankings


pytest.importorskip("bm25s")


@pytest.fixture
def rank(run):
    """Runs the stage without a teacher unless it is named."""
    return lambda name, **options: run(name, "ranking", **{"teacher_name_or_path": None, **options})


def test_from_a_reranker_to_a_folder(assets, tmp_path, rank, results, capsys):
    assert rank("out", teacher_name_or_path=assets / "teacher", cache_dir=tmp_path / "cache") == 0
    printed, told = capsys.readouterr()
    # Beside the student what needs no training.
    for row in ("student (cosine)", "BM25", "student (cosine) with BM25", f"{assets / 'encoder'} (cosine) with BM25"):
        assert sum(line.startswith(f"{row}  ") for line in told.splitlines()) == 2
    assert "ndcg@10" in printed and "validation" in printed and "test" in printed and "Saved to" in printed
    # What was measured is true of the folder.
    folder = tmp_path / "out" / "model"
    test = load_rankings(DataArguments(dataset_name=str(assets / "queries")), ["test"])["test"]
    measured = evaluate(SentenceTransformer(str(folder), device="cpu"), test, show_progress=False)
    assert measured == pytest.approx(results("out")["metrics"]["test"])
    card = (folder / "README.md").read_text()
    assert "ndcg@10" in card and "teacher" in card
    # Source and student, each alone and with BM25, whose weight few queries do not tell.
    rows = [
        line.split(" | ")
        for line in card.splitlines()
        if line.startswith(("| student (", f"| {assets / 'encoder'} ("))
    ]
    assert [row[0].partition(" (cosine)")[2] for row in rows] == ["", " with BM25"] * 2
    assert all(row[-1].endswith(", 0.3 |") == ("with BM25" in row[0]) for row in rows)
    assert "bm25_weight" not in json.loads((folder / "config_sentence_transformers.json").read_text())
    assert list((tmp_path / "cache").iterdir())


def test_a_teacher_that_is_worse_than_chance_is_named(assets, tmp_path, rank, capsys):
    """A random reranker, or else the one with the other sign, ranks relevant documents below random ones."""
    told = []
    for sign in (1, -1):
        teacher = tmp_path / f"teacher{sign}"
        model = BertForSequenceClassification.from_pretrained(assets / "teacher")
        with torch.no_grad():
            model.classifier.weight.mul_(sign)
        model.save_pretrained(teacher)
        AutoTokenizer.from_pretrained(assets / "teacher").save_pretrained(teacher)
        assert rank(f"out{sign}", teacher_name_or_path=teacher, max_steps=1) == 0
        message = f"{teacher}: over 12 queries, a relevant document scores higher than another candidate in"
        told.append(f"{message} only" in capsys.readouterr().err)
    assert sorted(told) == [False, True]


def test_without_a_teacher_only_labels_count(rank, results, same, capsys):
    rank("out")
    assert set(results("out")["metrics"]) == {"validation", "test"}
    rank("again")
    assert same("out", "again")
    # Mined negatives make a difference.
    rank("random", train_file=None)
    assert "only documents of other queries are its negatives: `hf-dse mine`" in capsys.readouterr().err
    assert not same("out", "random")


def test_candidates_with_scores_are_taken_as_they_are(assets, tmp_path, rank, same, capsys):
    mined = load_rankings(DataArguments(train_file=str(assets / "mined.jsonl")), ["train"])["train"]
    write_rankings(score(str(assets / "teacher"), mined, show_progress=False), tmp_path / "scored.jsonl")
    rank("files", train_file=tmp_path / "scored.jsonl")
    rank("teacher", teacher_name_or_path=assets / "teacher")
    rank("labels")
    assert same("files", "teacher") and not same("files", "labels")
    # A teacher beside scores is said not to be asked.
    rank("both", train_file=tmp_path / "scored.jsonl", teacher_name_or_path="no/such-teacher")
    assert "no/such-teacher is not asked" in capsys.readouterr().err
    assert same("files", "both")


def test_several_teachers_are_one(assets, tmp_path, rank, same, save_encoder, error_of):
    """A reranker, and an encoder with BM25: as the scores of both that `score` writes."""
    names = [str(assets / "teacher"), str(save_encoder())]
    data = DataArguments(train_file=str(assets / "mined.jsonl"), corpus_file=str(assets / "queries"))
    mined, how = load_rankings(data, ["train"])["train"], {"bm25_weight": 0.5, "show_progress": False, "device": "cpu"}
    write_rankings(score(names, mined, weights=[1, 2], **how), tmp_path / "scored.jsonl")
    rank("files", train_file=tmp_path / "scored.jsonl")
    options = {"teacher_name_or_path": names, "teacher_bm25_weight": 0.5}
    rank("both", **options, teacher_weights=[1, 2])
    assert same("files", "both")
    for name, changed in (("even", {}), ("words", {"teacher_weights": [1, 2], "teacher_bm25_weight": 0.1})):
        rank(name, **{**options, **changed})
        assert not same("files", name)
    assert rank("out", **options, teacher_weights=[1]) == 2
    assert "weights=[1.0] for 2 scores: pass a finite weight" in error_of()
    assert rank("out", teacher_name_or_path=names[0], teacher_bm25_weight=0.5) == 2
    assert "teacher_bm25_weight=0.5 is for an encoder, and there is none among the teachers" in error_of()


def test_the_weight_of_bm25_is_fitted_and_kept(assets, tmp_path, rank, capsys):
    """On the judged queries of validation, of which there are enough, and used by a search of the folder."""
    folder = shutil.copytree(assets / "queries", tmp_path / "data")
    texts = [json.loads(line)["text"] for line in (folder / "corpus.jsonl").read_text().splitlines()]
    with (folder / "queries.jsonl").open("a") as queries, (folder / "qrels" / "validation.tsv").open("a") as judged:
        ids = [json.loads(line)["_id"] for line in (folder / "corpus.jsonl").read_text().splitlines()]
        for name, text in zip(ids, texts, strict=True):
            queries.write(json.dumps({"_id": f"of {name}", "text": text[: len(text) // 2]}) + "\n")
            judged.write(f"of {name}\t{name}\t1\n")
    assert rank("out", dataset_name=folder, max_steps=1, learning_rate=1e-6) == 0
    err = capsys.readouterr().err
    assert "kept with the student" in err and "--bm25_weight" not in err.partition("Next: ")[2]
    settings = json.loads((tmp_path / "out" / "model" / "config_sentence_transformers.json").read_text())
    weight = settings["bm25_weight"]
    assert 0 <= weight <= 1 and f"plus {weight} times BM25" in (tmp_path / "out" / "model" / "README.md").read_text()
    # Also where nothing is tested.
    (folder / "qrels" / "test.tsv").unlink()
    assert rank("alone", dataset_name=folder, max_steps=1, learning_rate=1e-6) == 0
    settings = json.loads((tmp_path / "alone" / "model" / "config_sentence_transformers.json").read_text())
    assert settings["bm25_weight"] == weight


def test_queries_without_candidates_have_nothing_to_learn(assets, tmp_path, rank, error_of):
    """A log of queries, for which candidates have to be mined."""
    queries = (assets / "queries" / "queries.jsonl").read_text().splitlines()
    log = [json.dumps({"query": json.loads(line)["text"]}) + "\n" for line in queries]
    (tmp_path / "log.jsonl").write_text("".join(log))
    options = {"train_file": tmp_path / "log.jsonl", "corpus_file": assets / "queries"}
    assert rank("none", **options) == 2
    # Two texts are one query.
    assert "18 of 18 queries have no relevant document" in error_of()
    assert rank("out", teacher_name_or_path=assets / "teacher", **options) == 2
    assert "No training query has a candidate besides its positives" in error_of()
    # All grades are 1.
    assert rank("high", relevance_threshold=2) == 2
    assert "has a relevant document (a label of 2 or more): nothing can be measured" in error_of()


def test_pairs_are_mixed_in(tmp_path, rank):
    pairs = [{"sentence1": "a cat sat", "sentence2": "a dog sat", "label": row / 2} for row in range(8)]
    Dataset.from_list(pairs).to_parquet(tmp_path / "pairs.parquet")
    rank("mixed", pairs_file=tmp_path / "pairs.parquet")
    (state,) = (tmp_path / "mixed").glob("checkpoint-*/trainer_state.json")
    # 12 queries and 8 pairs, 4 a step.
    assert json.loads(state.read_text())["global_step"] == 5


@pytest.fixture
def files(tmp_path):
    """Files in which the words of a query stand in one passage of the relevant file, after others."""
    folder = tmp_path / "files"
    folder.mkdir()
    names = [f"{first} {second}" for first in ("old", "new", "the", "a") for second in ("cat", "dog", "mat", "house")]
    rows = [f"{name} ran,{row}.md" for row, name in enumerate(names)]
    for row, name in enumerate(names):
        text = f"# It is {row}\n\n" + "It sat in and of. " * 8 + f"\n\n{name.capitalize()} ran." + " It is in." * 4
        (folder / f"{row}.md").write_text(text)
    for split, part in (("train", rows[:10]), ("test", rows[10:])):
        (tmp_path / f"{split}.csv").write_text("query,file\n" + "\n".join(part) + "\n")
    return folder


def test_the_passages_of_files_are_learned_and_searched(assets, files, tmp_path, rank, results, capsys):
    data = {"dataset_name": None, "corpus_file": files, "test_file": tmp_path / "test.csv", "chunk_size": 16}
    judged = DataArguments(train_file=str(tmp_path / "train.csv"), corpus_file=str(files), chunk_size=16)
    mined = mine(judged, assets / "encoder", bm25=True, num_negatives=4, device="cpu", show_progress=False)
    assert mined.has_passages and mined.chunk_size == 16
    write_rankings(mined, tmp_path / "mined.jsonl")
    options = {**data, "train_file": tmp_path / "mined.jsonl"}
    assert rank("out", teacher_name_or_path=assets / "teacher", **options) == 0
    told = capsys.readouterr().err
    names = ("student (cosine, passages of 16)", "BM25 (passages of 16)", "student (cosine, passages of 16) with BM25")
    assert all(sum(line.startswith(f"{name}  ") for line in told.splitlines()) == 1 for name in names)
    # The folder knows the unit that it learned.
    folder = tmp_path / "out" / "model"
    assert json.loads((folder / "config_sentence_transformers.json").read_text())["chunk_size"] == 16
    assert results("out")["recipe"]["chunk_size"] == 16
    # Of a judged file the best passage counts.
    model, given = (
        SentenceTransformer(str(folder), device="cpu"),
        DataArguments(**{name: str(data[name]) for name in ("corpus_file", "test_file")}),
    )
    measured, whole = (evaluate(model, given, chunk_size=size, show_progress=False) for size in (16, 0))
    assert measured == pytest.approx(results("out")["metrics"]["test"]) and measured["num_queries"] == 6
    assert measured["map"] != pytest.approx(whole["map"])


def test_errors_are_named_before_the_training(assets, tmp_path, rank, error_of):
    assert rank("out", kl_weight=1) == 2
    assert "name a teacher with `--teacher`" in error_of()
    assert rank("out", metric_for_best_model="eval_ndcg@5") == 2
    assert "metric_for_best_model='eval_ndcg@5': an evaluation has ndcg@10, mrr@10" in error_of()
    data = shutil.copytree(assets / "queries", tmp_path / "data")
    file = data / "qrels" / "test.tsv"
    file.write_text(file.read_text().replace("\t1\n", "\t0\n"))
    assert rank("out", dataset_name=data) == 2
    error = error_of()
    assert "Split 'test': None of the 6 queries has a relevant document" in error and "leave the split out" in error
    assert not list((tmp_path / "out").glob("checkpoint-*"))


ACCELERATE = "launch --multi_gpu --num_machines 1 --mixed_precision no --dynamo_backend no --num_processes 2"


@pytest.mark.slow
@pytest.mark.parametrize("launcher", [f"accelerate {ACCELERATE}", "torchrun --nproc_per_node 2"])
def test_two_processes_make_one_folder(assets, tmp_path, command, rank, weights, launcher):
    # Each process draws its own dropout, and Adam makes much of gradients that are 0 but for rounding.
    exact = {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0, "optim": "sgd", "learning_rate": 0.1}
    programs, (program, *words) = Path(sys.executable).parent, launcher.split()
    line = [programs / program, *words, programs / "hf-dse"]
    line += command("two", "ranking", **exact, per_device_train_batch_size=2)
    done = subprocess.run(line, capture_output=True, text=True, timeout=300)
    assert done.stdout.count("Saved to") == 1, done.stderr[-3000:]
    rank("one", teacher_name_or_path=assets / "teacher", **exact)
    first, second = weights("one"), weights("two")
    for name in first:
        torch.testing.assert_close(first[name], second[name], rtol=1e-3, atol=1e-5)
    start = load_file(assets / "encoder" / "model.safetensors")["embeddings.word_embeddings.weight"]
    assert (first["dse.encoder.embeddings.word_embeddings.weight"] - start).abs().max() > 1e-3


def test_labels_without_a_grade_can_be_learned(assets, tmp_path, rank):
    rows = [{"query": f"the cat {word}", "documents": [word, "a dog"], "labels": [0.5, 0]} for word in ("sat", "ran")]
    Dataset.from_list(rows).to_json(tmp_path / "rows.jsonl")
    options = {"dataset_name": None, "train_file": tmp_path / "rows.jsonl", "max_steps": 1, "num_candidates": 2}
    assert rank("out", teacher_name_or_path=assets / "teacher", **options) == 0
