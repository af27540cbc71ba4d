# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Training of chunks that are read with their document: against inference and slow code, and on a task for it."""

import json
import math
import re
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer

from hf_dse import (
    RankingTrainer,
    RankingTrainingArguments,
    embed_rankings,
    encode_chunks,
    encode_query,
    evaluate_retrieval,
    load_rankings,
    make_rankings,
    mine_candidates,
    read_rankings,
)
from hf_dse.data.chunk_batches import ChunkCollator, find_evidence
from hf_dse.data.pairs import DataArguments
from hf_dse.data.ranking_batches import RankingRows
from hf_dse.data.rankings import write_rankings
from hf_dse.training.chunk_vectors import embed_chunks
from hf_dse_cli import main


NAMES = "a b c d e f g h".split()
FACTS = "cat dog mat house old new sat ran".split()
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
TINY_RUN = {
    "max_length": 64,
    "per_device_train_batch_size": 8,
    "num_candidates": 4,
    "logging_steps": 1,
    "report_to": "none",
    "use_cpu": True,
    "disable_tqdm": True,
    "save_strategy": "no",
    "eval_strategy": "no",
    "load_best_model_at_end": False,
}


def make_stories(seed, num_documents=48, has_evidence=True):
    """Only the first sentence names the subject, and each of the others has a fact. Queries name both."""
    generator = np.random.default_rng(seed)
    columns = {"query": [], "documents": [], "labels": [], "evidence": []}
    corpus = []
    for row in range(num_documents):
        name = NAMES[row % len(NAMES)]
        facts = generator.choice(FACTS, 3, replace=False)
        corpus.append(f"the {name} is in the. " + " ".join(f"of {fact} and {fact}." for fact in facts))
        for fact in facts:
            columns["query"].append(f"{name} {fact}")
            columns["documents"].append([row])
            columns["labels"].append([1.0])
            columns["evidence"].append([f"of {fact} and {fact}."])
    if not has_evidence:
        del columns["evidence"]
    return make_rankings(columns, {"text": corpus})


@pytest.fixture(scope="module")
def stories():
    return make_stories(0)


@pytest.fixture
def make_trainer(tmp_path, bert_tokenizer):
    def make(student, train, evaluate=None, **fields):
        args = RankingTrainingArguments(str(tmp_path / "run"), **{**TINY_RUN, "chunk_size": 8, **fields})
        return RankingTrainer(student, args, train, evaluate, bert_tokenizer)

    return make


def with_anchors(rankings, student, tokenizer, **options):
    return embed_rankings(student.dse, rankings, processing_class=tokenizer, show_progress=False, **options)


# Vectors

DOCUMENTS = [
    "the cat sat on the mat. the old cat ran. a dog in the house is new. the dog and a cat of the house.",
    "a mat.",
    "the old dog ran on. a new mat is in. the cat is on a mat. of the house, the old and the new. the dog sat.",
]


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"pooling_mode": "max"},
        {"pooling_layers": 2, "projection_dim": 5},
        {"normalize_embeddings": True, "prompts": {"document": "of: "}},
        {"layer_types": ["chunked_attention", "linear_attention"], "attention_chunk_size": 7},
    ],
)
def test_chunks_in_training_are_those_of_inference(make_model, bert_tokenizer, fields, side, monkeypatch):
    monkeypatch.setattr(bert_tokenizer, "padding_side", side)
    model = make_model(**fields)
    rankings = make_rankings({"query": ["a cat", "a dog"], "documents": [[0, 1], [2, 0]]}, {"text": DOCUMENTS})
    rows = RankingRows(rankings, 2, seed=0)
    # The longest document is read in three windows, with chunks that are in two of them.
    for max_length in (64, 16):
        batch = ChunkCollator(bert_tokenizer, 6, max_length, prompts=model.config.prompts)([rows[0], rows[1]])
        texts = [rows.corpus["text"][number] for number in batch["document_ids"].tolist()]
        expected, chunks = encode_chunks(
            model, bert_tokenizer, texts, chunk_size=6, contextual=True, max_length=max_length, show_progress=False
        )
        assert (len(batch["document_input_ids"]) > 3) == (max_length == 16)
        sizes = [len(parts) for parts in chunks]
        assert batch["chunk_documents"].tolist() == np.repeat(range(3), sizes).tolist()
        # How many windows are read together, and how long they are padded, makes no difference.
        for batch_size, is_cached in ((1, False), (8, False), (2, True)):
            found = embed_chunks(model, batch, batch_size, is_cached)
            np.testing.assert_allclose(found.detach().numpy(), expected, atol=1e-5)


def test_cached_gradients_are_the_plain_ones(make_student, make_trainer, bert_tokenizer, stories):
    gradients = []
    for size in (None, 1):
        student = make_student(linformer_length=32, **NO_DROPOUT).train()
        trainer = make_trainer(student, stories, cached_gradients=size)
        batch = trainer.data_collator([trainer.train_dataset[row] for row in range(6)])
        trainer.compute_loss(student, batch).backward()
        gradients.append({name: value.grad for name, value in student.named_parameters() if value.grad is not None})
    assert gradients[0].keys() == gradients[1].keys() and len(gradients[0]) > 20
    for name, value in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], value, rtol=1e-4, atol=1e-5, msg=name)


# The loss


def slow_loss(trainer, features, queries, chunks, anchors=None):
    """Query by query. `chunks` has the unit vectors of each document text, `anchors` those of queries and chunks."""
    scale = trainer.model.similarity.scale.item()
    texts = dict.fromkeys(text for entry in features for text in entry["documents"])
    names = {text: set() for text in texts}
    for entry in features:
        for text, number in zip(entry["documents"], entry["document_ids"].tolist(), strict=True):
            names[text].add(number)
    contrasts, passages = [], []
    for entry, query in zip(features, queries, strict=True):
        scores = {text: scale * max(vector @ query for _, vector in chunks[text]) for text in texts}
        others = [text for text in texts if not names[text] & set(entry["positives"])]
        for text, label in zip(entry["documents"], entry["labels"], strict=True):
            if label > 0:
                exps = [math.exp(scores[other]) for other in (text, *others)]
                contrasts.append(-math.log(exps[0] / sum(exps)))
        own = [text for text, label in zip(entry["documents"], entry["labels"], strict=True) if label > 0]
        parts = [(text, number) for text in own for number in range(len(chunks[text]))]
        wanted = [
            (t, n) for t, n in parts if set(chunks[t][n][0].split(".")) & {e.strip(".") for e in entry["evidence"]}
        ]
        if not wanted and anchors is not None:
            wanted = [max(parts, key=lambda part: anchors[1][part] @ anchors[0][entry["query"]])]
        exps = {part: math.exp(scale * chunks[part[0]][part[1]][1] @ query) for part in parts}
        if wanted and len(wanted) < len(parts):
            passages.append(-math.log(sum(exps[part] for part in wanted) / sum(exps.values())))
    loss = np.mean(contrasts) + trainer.passage_weight * np.mean(passages or [0])
    if anchors is not None and trainer.args.anchor_weight:
        distances = [
            1 - vector @ anchors[1][text, number] for text in texts for number, (_, vector) in enumerate(chunks[text])
        ]
        loss += trainer.args.anchor_weight * np.mean(distances)
    return loss


@pytest.mark.parametrize("kind", ["evidence", "anchors", "both"])
def test_the_loss_of_a_step(kind, make_student, make_trainer, bert_tokenizer):
    student = make_student(linformer_length=32, **NO_DROPOUT).eval()
    # Some queries have no evidence.
    columns = make_stories(0).queries.to_dict()
    columns["evidence"] = [texts if row % 3 else [] for row, texts in enumerate(columns["evidence"])]
    corpus = make_stories(0).corpus
    if kind == "anchors":
        del columns["evidence"]
    train = make_rankings(columns, corpus)
    fields = {"passage_weight": 0.7}
    if kind != "evidence":
        other = make_student(seed=3)
        train = with_anchors(train, other, bert_tokenizer, chunk_size=8)
        fields["anchor_weight"] = 0.5
    trainer = make_trainer(student, train, **fields)
    features = [trainer.train_dataset[row] for row in (0, 1, 2, 3, 5, 70)]
    loss = trainer.compute_loss(student, trainer.data_collator(features)).item()

    options = {"normalize": True, "show_progress": False}
    texts = list(dict.fromkeys(text for entry in features for text in entry["documents"]))
    vectors, parts = encode_chunks(student, bert_tokenizer, texts, chunk_size=8, contextual=True, **options)
    vectors = iter(vectors)
    chunks = {text: [(part.strip(), next(vectors)) for part in of] for text, of in zip(texts, parts, strict=True)}
    queries = encode_query(student, bert_tokenizer, [entry["query"] for entry in features], **options)
    anchors = None
    if kind != "evidence":
        plain = iter(encode_chunks(other, bert_tokenizer, texts, chunk_size=8, **options)[0])
        names = [entry["query"] for entry in features]
        asked = dict(zip(names, encode_query(other, bert_tokenizer, names, **options), strict=True))
        anchors = asked, {(text, number): next(plain) for text in texts for number in range(len(chunks[text]))}
    for entry in features:
        entry.setdefault("evidence", [])
    assert loss == pytest.approx(slow_loss(trainer, features, queries, chunks, anchors), rel=1e-4)


def test_passages_are_found_in_chunks():
    chunks = ["The king sat. ", "He ate\na pear ", "and slept. ", "The end."]
    assert find_evidence(["He ate a  pear and slept."], chunks) == [1, 2]
    assert find_evidence(["The king sat.", "The end."], chunks) == [0, 3]
    assert find_evidence(["The queen sat.", "a pear (and"], chunks) == []


@pytest.mark.parametrize("bf16", [True, False])
def test_documents_are_read_in_the_precision_of_the_training(bf16, make_student, make_trainer, dtypes_of, stories):
    student = make_student()
    found = dtypes_of(student)
    make_trainer(student, stories, max_steps=1, bf16=bf16).train()
    assert found == {torch.bfloat16 if bf16 else torch.float32}


def test_context_is_learned(make_student, make_trainer, bert_tokenizer, stories):
    fields = {"hidden_size": 32, "intermediate_size": 64, "linformer_length": 32, "linformer_projection": "strided"}
    student = make_student(**fields, **NO_DROPOUT)
    held_out = make_stories(1, 8)

    def found(contextual):
        options = {"chunks": True, "chunk_size": 8, "contextual": contextual, "show_progress": False}
        return evaluate_retrieval(student, bert_tokenizer, held_out, **options)["recall@1"]

    options = {"learning_rate": 3e-3, "max_steps": 40, "per_device_train_batch_size": 32}
    trainer = make_trainer(student, stories, **options)
    trainer.train()
    # Stories share facts, which nothing but the name in their first sentence tells apart.
    assert found(contextual=True) > 0.8 > 0.6 > found(contextual=False)


# Data


def test_rows_may_have_evidence(tmp_path):
    rows = {"query": ["who", "who", "where", "when"], "positive": ["a cat sat", "a dog sat", "in a house", "now"]}
    rankings = read_rankings({**rows, "evidence": ["a cat", ["a dog", "sat"], None, ""]})
    assert rankings.queries["evidence"][:] == [["a cat", "a dog", "sat"], [], []]
    for ending in ("jsonl", "parquet"):
        write_rankings(rankings, tmp_path / f"rows.{ending}")
        again = load_rankings(DataArguments(train_file=str(tmp_path / f"rows.{ending}")))["train"]
        assert again.queries["evidence"][:] == rankings.queries["evidence"][:]
    mined = mine_candidates(rankings, bm25=True, num_candidates=1, relative_margin=None, show_progress=False)
    assert mined.queries["evidence"][:] == rankings.queries["evidence"][:]
    for wrong, message in ((5, "evidence is 5, not a list"), ([3], "evidence 0 is 3, not a text")):
        with pytest.raises(ValueError, match=message):
            read_rankings({**rows, "evidence": [wrong, None, None, None]})


def test_queries_of_a_document_come_together(make_student, make_trainer, stories):
    trainer = make_trainer(make_student(), stories, queries_per_document=3)
    sampler = trainer._get_train_sampler()
    documents = [rows[0] for rows in stories.queries["documents"][:]]
    orders = []
    for epoch in (0, 1):
        sampler.set_epoch(epoch)
        orders.append([index - epoch * len(documents) for index in sampler])
        assert sorted(orders[-1]) == list(range(len(documents)))
    assert orders[0] != orders[1]
    # Queries with the same text are one, so that a few documents have fewer than three.
    whole = [{documents[row] for row in orders[0][start : start + 3]} for start in range(0, len(documents), 3)]
    sizes = np.unique(documents, return_counts=True)[1]
    assert all(len(group) == 1 for group in whole[: (sizes >= 3).sum()])


# What is refused


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"chunk_size": 0}, "chunk_size=0: it has to be at least 1"),
        ({"queries_per_document": 0}, "queries_per_document=0"),
        ({"queries_per_document": 2, "train_sampling_strategy": "sequential"}, "it has to be 'random'"),
        ({"freeze_layers": -1}, "freeze_layers=-1"),
        ({"anchor_weight": -1.0}, "`anchor_weight` must be a finite number"),
        ({"chunk_size": None, "anchor_weight": 1.0}, "anchor_weight=1.0 is that of chunks"),
        ({"chunk_size": None, "passage_weight": 1.0}, "passage_weight=1.0 is that of chunks"),
        ({"similarity_weight": 1.0}, "take `anchor_weight` instead"),
    ],
)
def test_wrong_arguments(fields, message, tmp_path):
    with pytest.raises(ValueError, match=re.escape(message)):
        RankingTrainingArguments(str(tmp_path), **{**TINY_RUN, "chunk_size": 8, **fields})


def test_several_processes_are_refused(make_student, make_trainer, stories, monkeypatch):
    monkeypatch.setattr(RankingTrainingArguments, "world_size", property(lambda self: 2))
    with pytest.raises(ValueError, match="Chunks .* are trained in one process"):
        make_trainer(make_student(), stories)


def test_frozen_layers(make_student, make_trainer, stories):
    def frozen(num_layers, **fields):
        model = make_trainer(make_student(**fields), stories, freeze_layers=num_layers).model
        return {name for name, parameter in model.named_parameters() if not parameter.requires_grad}

    assert all(name.startswith("dse.embeddings.") for name in frozen(0))
    names = frozen(1)
    assert names == frozen(0) | {name for name in names if name.startswith("dse.encoder.layer.0.")}
    # An E of all layers is one of the frozen layer too, if it has linear attention.
    shared = {"linformer_projection": "learned", "linformer_sharing": "layerwise"}
    assert "dse.encoder.linformer.key" in frozen(1, **shared)
    assert "dse.encoder.linformer.key" not in frozen(0, **shared)
    layer_types = ["chunked_attention", "linear_attention"]
    assert "dse.encoder.linformer.key" not in frozen(1, **shared, layer_types=layer_types)


def test_wrong_data_and_students(make_student, make_trainer, bert_tokenizer, stories):
    def refuse(message, train=stories, student=None, **fields):
        with pytest.raises(ValueError, match=re.escape(message)):
            make_trainer(student or make_student(), train, **fields)

    refuse("the model reads 64 tokens, which leaves 62 for a passage", chunk_size=63)
    refuse("freeze_layers=2 leaves none of the 2 layers to train", freeze_layers=2)
    refuse("its 'cls' token", student=make_student(pooling_mode="cls"))
    refuse("`anchor_weight` needs the vectors of plain chunks", anchor_weight=1.0)
    plain = make_stories(0, has_evidence=False)
    refuse("`passage_weight` needs the column `evidence`", plain, passage_weight=1.0)
    refuse("which have 16", with_anchors(stories, make_student(), bert_tokenizer, chunk_size=8), anchor_weight=1.0,
           student=make_student(projection_dim=5))  # fmt: skip
    other = with_anchors(stories, make_student(), bert_tokenizer, chunk_size=12)
    refuse("embed the rankings with this chunk size", other, anchor_weight=1.0)
    queries = {"query": ["a", "b"], "documents": [[0], [1]], "labels": [[1], [1]]}
    refuse("1 of 2 documents are empty, so they have no chunks, the first is '1'",
           make_rankings(queries, {"text": ["a cat", " "]}))  # fmt: skip


# The command


@pytest.fixture(scope="module")
def assets(tmp_path_factory, save_bert):
    folder = tmp_path_factory.mktemp("chunks")
    save_bert(folder / "encoder")
    (folder / "data").mkdir()
    stories = make_stories(0, 12)
    corpus = [{"_id": f"d{row}", "text": text} for row, text in enumerate(stories.corpus["text"][:])]
    rows = [
        {
            "query": row["query"],
            "document_ids": [f"d{row['documents'][0]}"],
            "labels": [1],
            "evidence": row["evidence"],
        }
        for row in stories.queries
    ]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in corpus))
    for split, part in (("train", rows[:24]), ("validation", rows[24:30]), ("test", rows[30:])):
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    return folder


def run(assets, output, *flags, **changed):
    options = {
        "max_length": 32, "chunk_size": 8, "num_negatives": 0, "queries_per_document": 2, "freeze_layers": 1,
        "per_device_train_batch_size": 4, "num_train_epochs": 2, "learning_rate": 1e-3, "linformer_length": 16,
        "linformer_projection": "strided", "attention_probs_dropout_prob": 0, "save_total_limit": 2, "use_cpu": True,
        "disable_tqdm": True, "report_to": "none", **changed,
    }  # fmt: skip
    argv = ["distill", "--stage", "ranking", "--model_name_or_path", str(assets / "encoder")]
    argv += ["--output_dir", str(output), "--corpus_file", str(assets / "corpus.jsonl"), *flags]
    for split in ("train", "validation", "test"):
        argv += [f"--{split}_file", str(assets / f"{split}.jsonl")]
    return main([*argv, *(text for name, value in options.items() for text in (f"--{name}", str(value)))])


def weights(folder):
    return load_file(folder / "model" / "model.safetensors")


def test_from_the_command_to_a_folder(assets, tmp_path, capsys, warnings):
    anchors = ["--bi_encoder_name_or_path", str(assets / "encoder")]
    run(assets, tmp_path / "out", *anchors, anchor_weight=1)
    out = capsys.readouterr().out
    assert "ndcg@10" in out and "Saved to" in out and not warnings
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["recipe"]["chunk_size"] == 8 and results["recipe"]["anchor_weight"] == 1
    # What was measured is true of the folder, with the best of the chunks.
    folder = tmp_path / "out" / "model"
    model, tokenizer = AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    source = DataArguments(test_file=str(assets / "test.jsonl"), corpus_file=str(assets / "corpus.jsonl"))
    options = {"chunks": True, "chunk_size": 8, "contextual": True, "show_progress": False}
    measured = evaluate_retrieval(model, tokenizer, load_rankings(source, ["test"])["test"], **options)
    assert measured == pytest.approx(results["metrics"]["test"])
    # The evaluations during the training are of the same kind.
    state = json.loads(max(tmp_path.glob("out/checkpoint-*/trainer_state.json")).read_text())
    measured = evaluate_retrieval(model, tokenizer, load_rankings(DataArguments(
        validation_file=str(assets / "validation.jsonl"), corpus_file=str(assets / "corpus.jsonl")))["validation"],
        **options)  # fmt: skip
    assert state["best_metric"] == pytest.approx(measured["ndcg@10"])
    # Frozen layers are those of the encoder.
    start, end = load_file(assets / "encoder" / "model.safetensors"), weights(tmp_path / "out")
    for name, value in start.items():
        if "pooler" not in name:
            is_frozen = name.startswith(("embeddings.", "encoder.layer.0."))
            assert torch.equal(value, end[f"dse.{name}"]) == is_frozen, name


def test_a_stopped_training_resumes(assets, tmp_path):
    run(assets, tmp_path / "whole")
    run(assets, tmp_path / "part")
    # As if it had been killed after the first epoch.
    shutil.rmtree(tmp_path / "part" / "checkpoint-12")
    shutil.rmtree(tmp_path / "part" / "model")
    run(assets, tmp_path / "part", resume_from_checkpoint="last")
    first, second = weights(tmp_path / "whole"), weights(tmp_path / "part")
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_help_and_errors_of_the_command(assets, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["distill", "--stage", "ranking", "--help"])
    shown = capsys.readouterr().out
    for name in ("chunk_size", "passage_weight", "anchor_weight", "queries_per_document", "freeze_layers"):
        assert f"--{name}" in shown
    assert run(assets, tmp_path / "out", anchor_weight=1) == 2
    assert "name the bi-encoder whose chunks are the anchors" in capsys.readouterr().err
    assert run(assets, tmp_path / "out", chunk_size=31) == 2
    assert "leaves 30 for a passage" in capsys.readouterr().err
