# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The ranking stage from files to a model folder, by command, recipe and call, in one process and in two."""

import json
import re
import shutil

import numpy as np
import pytest
import torch
import yaml
from flags import LAUNCHERS, launch
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer, BertForSequenceClassification

from hf_dse import distill, embed_rankings, encode_document, encode_query, evaluate_retrieval, load_rankings
from hf_dse.data.pairs import DataArguments
from hf_dse.data.ranking_batches import keep_documents
from hf_dse.teacher.load import load_teacher
from hf_dse_cli import main


pytest.importorskip("bm25s")

WORDS = "cat dog sat ran mat house old new".split()
SHORT_RUN = {
    "max_length": 24,
    "num_train_epochs": 1,
    "learning_rate": 1e-3,
    "per_device_train_batch_size": 4,
    "num_candidates": 4,
    "num_negatives": 6,
    "linformer_length": 8,
    "use_cpu": True,
    "disable_tqdm": True,
    "report_to": "none",
}


def write_beir(folder):
    """A corpus of three words a text, and queries of two of the words of the document that is relevant."""
    folder.mkdir()
    generator = np.random.default_rng(0)
    texts = [" ".join(generator.choice(WORDS, 3, replace=False)) + " ." * row for row in range(30)]
    corpus = [{"_id": f"d{row}", "title": "", "text": text} for row, text in enumerate(texts)]
    queries = [{"_id": f"q{row}", "text": " ".join(text.split()[:2])} for row, text in enumerate(texts[:24])]
    for name, rows in (("corpus", corpus), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "qrels").mkdir()
    for split, rows in (("train", range(12)), ("validation", range(12, 18)), ("test", range(18, 24))):
        lines = ["query-id\tcorpus-id\tscore", *(f"q{row}\td{row}\t1" for row in rows)]
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def assets(tmp_path_factory, save_bert):
    folder = tmp_path_factory.mktemp("assets")
    save_bert(folder / "encoder")
    save_bert(folder / "teacher", BertForSequenceClassification, num_labels=1)
    write_beir(folder / "data")
    pairs = [{"sentence1": "a cat sat", "sentence2": "a dog sat", "label": row / 2} for row in range(8)]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in pairs))
    return folder


def run(assets, output, *options, **changed):
    """`hf-dse distill --stage ranking` on the files, without a teacher unless it is named."""
    options = list(options)
    for name, value in {**SHORT_RUN, **changed}.items():
        options += [f"--{name}", str(value)]
    source = ["--model_name_or_path", str(assets / "encoder"), "--dataset_name", str(assets / "data")]
    return main(["distill", "--stage", "ranking", *source, "--output_dir", str(output), *options])


def results_of(folder):
    return json.loads((folder / "results.json").read_text())


def weights(folder):
    return load_file(folder / "model" / "model.safetensors")


def same(first, second):
    first, second = weights(first), weights(second)
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def error_of(capsys, *argv, **options):
    assert run(*argv, **options) == 2
    return capsys.readouterr().err


def test_a_teacher_that_is_worse_than_chance_is_named(assets, tmp_path, capsys):
    """Of a random reranker and the one with the other sign, one ranks relevant documents below random ones."""
    told = []
    for sign in (1, -1):
        model, tokenizer = load_teacher(str(assets / "teacher"))
        with torch.no_grad():
            model.classifier.weight.mul_(sign)
        model.save_pretrained(tmp_path / f"teacher{sign}")
        tokenizer.save_pretrained(tmp_path / f"teacher{sign}")
        teacher = str(tmp_path / f"teacher{sign}")
        assert run(assets, tmp_path / f"out{sign}", "--teacher_name_or_path", teacher, max_steps=1) == 0
        message = (
            f"{teacher}: over 12 queries, a relevant document scores higher than a random one of the corpus in only"
        )
        told.append(message in capsys.readouterr().err)
    assert sorted(told) == [False, True]


def test_from_a_reranker_to_a_folder(assets, tmp_path, capsys):
    teacher = str(assets / "teacher")
    options = ["--teacher_name_or_path", teacher, "--bi_encoder_name_or_path", str(assets / "encoder")]
    run(assets, tmp_path / "out", *options, similarity_weight=1, score_cache_dir=tmp_path / "cache")
    out = capsys.readouterr().out
    assert "ndcg@10" in out and "validation" in out and "test" in out and "Saved to" in out
    results = results_of(tmp_path / "out")
    assert results["recipe"]["num_negatives"] == 6
    # The best of the evaluations is kept, and what was measured is true of the folder.
    folder = tmp_path / "out" / "model"
    model, tokenizer = AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    test = load_rankings(DataArguments(dataset_name=str(assets / "data")), ["test"])["test"]
    measured = evaluate_retrieval(model, tokenizer, test, show_progress=False)
    assert measured == pytest.approx(results["metrics"]["test"])
    card = (folder / "README.md").read_text()
    assert "nDCG@10" in card and "teacher" in card
    assert list((tmp_path / "cache").iterdir())


def test_without_a_teacher_only_labels_count(assets, tmp_path):
    run(assets, tmp_path / "out")
    assert set(results_of(tmp_path / "out")["metrics"]) == {"validation", "test"}
    run(assets, tmp_path / "again")
    assert same(tmp_path / "out", tmp_path / "again")
    # Mined negatives make a difference.
    run(assets, tmp_path / "random", num_negatives=0)
    assert not same(tmp_path / "out", tmp_path / "random")


def test_a_short_projection_is_named(assets, tmp_path, capsys):
    run(assets, tmp_path / "short", max_steps=1)
    err = capsys.readouterr().err
    assert "documents have more than k = 8 tokens" in err and "--linformer_length 24" in err
    # A model that is linear already has learned to live with its k.
    run(assets, tmp_path / "long", linformer_length=24, max_steps=1)
    run(assets, tmp_path / "again", model_name_or_path=tmp_path / "short" / "model", max_steps=1)
    assert "more than k" not in capsys.readouterr().err


def test_the_call_equals_the_command(assets, tmp_path):
    teacher = str(assets / "teacher")
    run(assets, tmp_path / "command", "--teacher_name_or_path", teacher)
    by_name = distill(assets / "encoder", teacher, assets / "data", tmp_path / "call", stage="ranking", **SHORT_RUN)
    model, tokenizer = load_teacher(teacher)
    loaded = distill(
        assets / "encoder",
        model,
        load_rankings(DataArguments(dataset_name=str(assets / "data"))),
        tmp_path / "loaded",
        teacher_processing_class=tokenizer,
        **SHORT_RUN,
    )
    assert same(tmp_path / "command", tmp_path / "call") and same(tmp_path / "command", tmp_path / "loaded")
    assert by_name.metrics == loaded.metrics == results_of(tmp_path / "command")["metrics"]


def test_candidates_with_scores_are_taken_as_they_are(assets, tmp_path, capsys):
    data = DataArguments(dataset_name=str(assets / "data"))
    mined, scored = tmp_path / "mined.jsonl", tmp_path / "scored.jsonl"
    options = ["--dataset_name", str(assets / "data"), "--num_candidates", "3", "--output_file", str(mined)]
    main(["mine", "--bm25", "true", *options])
    options = ["--model_name_or_path", str(assets / "teacher"), "--train_file", str(mined)]
    main(["score", *options, "--output_file", str(scored)])
    run(assets, tmp_path / "files", "--train_file", str(scored))
    run(assets, tmp_path / "teacher", "--train_file", str(mined), "--teacher_name_or_path", str(assets / "teacher"))
    run(assets, tmp_path / "labels", "--train_file", str(mined))
    assert same(tmp_path / "files", tmp_path / "teacher") and not same(tmp_path / "files", tmp_path / "labels")
    # A teacher beside scores is said not to be asked.
    capsys.readouterr()
    options = ["--train_file", str(scored), "--teacher_name_or_path", "no/such-teacher"]
    run(assets, tmp_path / "both", *options)
    assert re.search(r"no/such-teacher is not asked: (\d+) of \1 candidates have scores", capsys.readouterr().err)
    assert same(tmp_path / "files", tmp_path / "both")
    # The corpus of the file is that of the mined documents, and of the evaluation all of the folder.
    assert len(load_rankings(data, ["test"])["test"].corpus) == 30


def test_queries_without_labels_learn_from_the_teacher(assets, tmp_path, capsys):
    # A log of queries and a folder of texts: candidates are mined, and the teacher alone says what is relevant.
    (tmp_path / "docs").mkdir()
    lines = (assets / "data" / "corpus.jsonl").read_text().splitlines()
    for row in map(json.loads, lines):
        (tmp_path / "docs" / f"{row['_id']}.txt").write_text(row["text"])
    queries = (assets / "data" / "queries.jsonl").read_text().splitlines()
    rows = [{"query": json.loads(line)["text"]} for line in queries]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {name: str(value) for name, value in SHORT_RUN.items()}
    argv = ["distill", "--stage", "ranking", "--model_name_or_path", str(assets / "encoder")]
    argv += ["--train_file", str(tmp_path / "log.jsonl"), "--corpus_file", str(tmp_path / "docs")]
    argv += [text for name, value in options.items() for text in (f"--{name}", value)]
    assert main([*argv, "--output_dir", str(tmp_path / "none")]) == 2
    # Two texts are one query.
    assert "18 of 18 queries have no relevant document" in capsys.readouterr().err
    main([*argv, "--output_dir", str(tmp_path / "out"), "--teacher_name_or_path", str(assets / "teacher")])
    assert (tmp_path / "out" / "model" / "model.safetensors").is_file()


def test_pairs_are_mixed_in(assets, tmp_path):
    run(assets, tmp_path / "out", "--pairs_file", str(assets / "pairs.jsonl"))
    run(assets, tmp_path / "without")
    training, without = (results_of(tmp_path / name)["training"] for name in ("out", "without"))
    # 12 queries and 8 pairs, 4 a step.
    assert training["train_loss"] != without["train_loss"]
    states = [json.loads(next((tmp_path / name).glob("checkpoint-*/trainer_state.json")).read_text()) for name in
              ("out", "without")]  # fmt: skip
    assert [state["global_step"] for state in states] == [5, 3]
    # A call takes paths.
    folders = {"model": assets / "encoder", "dataset": assets / "data", "output_dir": tmp_path / "call"}
    distill(**folders, stage="ranking", pairs_file=assets / "pairs.jsonl", **SHORT_RUN)
    assert same(tmp_path / "out", tmp_path / "call")


def test_stages_of_a_recipe(assets, tmp_path, capsys):
    stages = [
        {"stage": "pairs", "train_file": str(assets / "pairs.jsonl"), "num_labels": 1, "distillation_alpha": 0},
        {"stage": "ranking", "dataset_name": str(assets / "data"), "num_negatives": 4},
    ]
    shared = {
        name: SHORT_RUN[name] for name in ("max_length", "num_train_epochs", "use_cpu", "disable_tqdm", "report_to")
    }
    recipe = {"model_name_or_path": str(assets / "encoder"), "output_dir": str(tmp_path / "out"), "stages": stages}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump({**recipe, **shared}))
    main(["distill", "--config", str(tmp_path / "recipe.yaml")])
    last = tmp_path / "out" / "2-ranking"
    assert results_of(last)["recipe"]["model_name_or_path"] == str(tmp_path / "out" / "1-pairs" / "model")
    assert f"Saved to {last / 'model'}" in capsys.readouterr().out


def test_a_stopped_stage_resumes(assets, tmp_path):
    teacher = ["--teacher_name_or_path", str(assets / "teacher")]
    run(assets, tmp_path / "whole", *teacher, num_train_epochs=2, save_total_limit=2)
    run(assets, tmp_path / "part", *teacher, num_train_epochs=2, save_total_limit=2)
    # As if it had been killed after the first epoch.
    for path in [tmp_path / "part" / "checkpoint-6", tmp_path / "part" / "model"]:
        for file in sorted(path.rglob("*"), reverse=True):
            file.rmdir() if file.is_dir() else file.unlink()
        path.rmdir()
    run(assets, tmp_path / "part", *teacher, num_train_epochs=2, save_total_limit=2, resume_from_checkpoint="last")
    assert same(tmp_path / "whole", tmp_path / "part")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"similarity_weight": 1}, "need each other"),
        ({"kl_weight": 1}, "learn from a teacher: name it with `--teacher_name_or_path`"),
        ({"max_length": 512}, "512"),
        ({"num_negatives": -1}, "has to be at least 0"),
    ],
)
def test_errors(options, message, assets, tmp_path, capsys):
    assert message in error_of(capsys, assets, tmp_path / "out", **options)
    assert not (tmp_path / "out" / "model").exists()


@pytest.mark.parametrize(
    ("score", "message"),
    [("0", "None of the 6 queries has a relevant document"), ("0.5", "measures of rankings need whole grades")],
)
def test_what_cannot_be_measured_is_named_before_the_training(score, message, assets, tmp_path, capsys):
    data = shutil.copytree(assets / "data", tmp_path / "data")
    file = data / "qrels" / "test.tsv"
    file.write_text(file.read_text().replace("\t1\n", f"\t{score}\n"))
    error = error_of(capsys, assets, tmp_path / "out", dataset_name=data)
    assert "Split 'test': " in error and message in error and "leave the split out" in error
    assert not list((tmp_path / "out").glob("checkpoint-*"))


def test_each_stage_names_the_other_for_its_data(assets, tmp_path, capsys):
    source = ["--model_name_or_path", str(assets / "encoder"), "--output_dir", str(tmp_path / "out")]
    assert main(["distill", *source, "--dataset_name", str(assets / "data"), "--use_cpu", "true"]) == 2
    assert "--stage ranking" in capsys.readouterr().err


def test_embed_rankings(assets):
    tokenizer, encoder = (
        AutoTokenizer.from_pretrained(assets / "encoder"),
        AutoModel.from_pretrained(assets / "encoder"),
    )
    encoder.config.prompts = {"query": "old ", "document": "new "}
    rankings = load_rankings(DataArguments(dataset_name=str(assets / "data")), ["test"])["test"]
    embedded = embed_rankings(encoder.eval(), rankings, processing_class=tokenizer, show_progress=False)
    kept = keep_documents(rankings)
    assert embedded.corpus["doc_id"][:] == kept.corpus["doc_id"][:] and len(embedded.corpus) == 6
    for part, texts, function in (
        (embedded.queries, kept.queries["query"], encode_query),
        (embedded.corpus, kept.corpus["text"], encode_document),
    ):
        expected = function(encoder, tokenizer, texts[:], show_progress=False)
        np.testing.assert_allclose(np.array(part["embeddings"][:]), expected, rtol=1e-6)
    # Embeddings that are there are replaced.
    again = embed_rankings(encoder, embedded, processing_class=tokenizer, show_progress=False)
    assert again.queries.column_names == embedded.queries.column_names


@pytest.mark.slow
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_two_processes_make_one_folder(assets, tmp_path, launcher):
    # Processes draw their dropout each for itself, and Adam makes much of gradients that are 0 but for rounding.
    exact = {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0, "optim": "sgd", "learning_rate": 0.1}
    options = []
    for name, value in {**SHORT_RUN, **exact, "per_device_train_batch_size": 2}.items():
        options += [f"--{name}", str(value)]
    done = launch(
        launcher, "distill", "--stage", "ranking", "--model_name_or_path", assets / "encoder",
        "--dataset_name", assets / "data", "--teacher_name_or_path", assets / "teacher",
        "--output_dir", tmp_path / "two", *options,
    )  # fmt: skip
    assert done.stdout.count("Saved to") == 1
    run(assets, tmp_path / "one", "--teacher_name_or_path", str(assets / "teacher"), **exact)
    first, second = weights(tmp_path / "one"), weights(tmp_path / "two")
    for name in first:
        torch.testing.assert_close(first[name], second[name], rtol=1e-3, atol=1e-5)
    start = load_file(assets / "encoder" / "model.safetensors")["embeddings.word_embeddings.weight"]
    assert (first["dse.embeddings.word_embeddings.weight"] - start).abs().max() > 1e-3
    assert not list((tmp_path / "two").glob(".train-data*"))
