# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse encode` and `hf-dse score` with `--engine ray`: shard by shard, and on a cluster of two workers."""

import random
import secrets
import signal
import subprocess
import sys
import time
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from datasets import Dataset, load_dataset
from transformers import AutoModel, BertConfig, BertForSequenceClassification

from hf_dse import DseModel, encode, score_pairs
from hf_dse.inference.index import EncodeArguments, TextEncoder
from hf_dse.inference.loading import ModelArguments
from hf_dse.inference.ray_engine import ShardWorker
from hf_dse.teacher.score_files import PairScorer, ScoreArguments
from hf_dse_cli import main


WORDS = "the a cat dog sat ran on mat house is old new in and of".split()


def make_texts(count, seed):
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(1, 20))) for _ in range(count)]


def write_shards(folder, counts):
    """Writes shards of texts with consecutive ids, in row groups of 50, like larger files."""
    folder.mkdir(parents=True, exist_ok=True)
    start = 0
    for number, count in enumerate(counts):
        ids = pa.array(range(start, start + count), pa.int32())
        table = pa.table({"id": ids, "text": pa.array(make_texts(count, seed=number), pa.string())})
        pq.write_table(table, folder / f"part-{number}.parquet", row_group_size=50)
        start += count


def vectors_of(path):
    return np.array(pq.read_table(path)["embedding"].to_pylist(), dtype=np.float32)


@pytest.fixture(scope="module")
def student(tmp_path_factory, tiny_config, bert_tokenizer):
    folder = tmp_path_factory.mktemp("student")
    torch.manual_seed(0)
    DseModel(tiny_config(bert_tokenizer, initializer_range=0.5)).save_pretrained(folder)
    bert_tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def teachers(tmp_path_factory, bert_tokenizer):
    folders = []
    for seed in (0, 1):
        folders.append(tmp_path_factory.mktemp("teacher"))
        torch.manual_seed(seed)
        config = BertConfig(
            vocab_size=len(bert_tokenizer),
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=64,
            initializer_range=0.5,
            num_labels=1,
        )
        BertForSequenceClassification(config).save_pretrained(folders[-1])
        bert_tokenizer.save_pretrained(folders[-1])
    return folders


def expected_vectors(student, tokenizer, texts, **options):
    model = AutoModel.from_pretrained(student)
    return encode(model, tokenizer, texts, show_progress=False, **options)


def encode_command(student, source, output, *options):
    return ["encode", "--engine", "ray", "--model_name_or_path", str(student), "--input", str(source),
            "--output", str(output), *map(str, options)]  # fmt: skip


def score_command(teachers, source, output, *options):
    return ["score", "--engine", "ray", "--model_name_or_path", *map(str, teachers), "--dataset_name", str(source),
            "--output_file", str(output), "--max_length", "64", *map(str, options)]  # fmt: skip


# One worker, in this process


def make_worker(student, batch_size=32, max_length=None, **options):
    model_args = ModelArguments(str(student), batch_size=batch_size, max_length=max_length)
    load = partial(TextEncoder, model_args, EncodeArguments("in", "out", **options))
    return ShardWorker(load, "cpu", {**load("cpu").settings, "columns": ["text"]})


def work(worker, shard, output):
    return worker({"shard": str(shard), "output": str(output)})["error"]


def test_a_worker_writes_the_vectors_of_a_shard(student, bert_tokenizer, tmp_path):
    # A worker with batches of 2 reads 512 rows at a time, and a row group has 50.
    write_shards(tmp_path / "in", [600, 0])
    options = {"batch_size": 2, "normalize": True, "max_length": 16}
    worker = make_worker(student, **options)
    for number in (0, 1):
        assert work(worker, tmp_path / f"in/part-{number}.parquet", tmp_path / f"out/part-{number}.parquet") == ""
    table, source = (pq.read_table(tmp_path / folder / "part-0.parquet") for folder in ("out", "in"))
    assert table.drop_columns("embedding").equals(source)
    assert table.schema.field("embedding").type == pa.list_(pa.field("element", pa.float32()), 16)
    expected = expected_vectors(student, bert_tokenizer, source["text"].to_pylist(), **options)
    np.testing.assert_array_equal(vectors_of(tmp_path / "out/part-0.parquet"), expected)
    assert np.ptp(expected, axis=0).max() > 0.1
    empty = pq.read_table(tmp_path / "out/part-1.parquet")
    assert empty.num_rows == 0 and empty.schema.equals(table.schema)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["part-0.parquet", "part-1.parquet"]


def test_an_encoded_shard_of_datasets_loads_in_datasets(student, tmp_path):
    (tmp_path / "in").mkdir()
    Dataset.from_dict({"text": make_texts(3, seed=0)}).to_parquet(tmp_path / "in/a.parquet")
    assert work(make_worker(student), tmp_path / "in/a.parquet", tmp_path / "out/a.parquet") == ""
    loaded = load_dataset("parquet", data_files=str(tmp_path / "out/a.parquet"), cache_dir=str(tmp_path / "cache"))
    assert loaded["train"].column_names == ["text", "embedding"]
    assert np.array(loaded["train"]["embedding"][:]).shape == (3, 16)


def test_the_error_names_a_bad_row_and_no_file_is_written(student, tmp_path):
    shard = tmp_path / "in.parquet"
    pq.write_table(pa.table({"text": ["a cat"] * 258 + [None]}), shard)
    error = work(make_worker(student, batch_size=1), shard, tmp_path / "out/in.parquet")
    assert error.startswith(f"{shard}: in the 3 rows from row 256: texts[2] is None, not a string")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_worker_with_another_model_is_an_error(student, tmp_path, make_model, bert_tokenizer):
    make_model(DseModel).save_pretrained(tmp_path)
    bert_tokenizer.save_pretrained(tmp_path)
    settings = make_worker(student).settings
    load = partial(TextEncoder, ModelArguments(str(tmp_path)), EncodeArguments("in", "out"))
    with pytest.raises(ValueError, match="A worker loaded a different model than the main process: model is '"):
        ShardWorker(load, "cpu", settings)


@pytest.mark.parametrize("bi_encoder", [False, True])
def test_a_worker_returns_the_scores_of_the_local_engine(teachers, student, tmp_path, bi_encoder, capsys):
    """Compares the command with the local engine to a worker, with the same pairs and options."""
    first, second = make_texts(40, seed=1), make_texts(40, seed=2)
    Dataset.from_dict({"sentence1": first, "sentence2": second}).to_parquet(tmp_path / "train.parquet")
    names = [str(student)] if bi_encoder else list(map(str, teachers))
    options = ["--bi_encoder", "--similarity_scale", "4", "--similarity_bias", "-1"] if bi_encoder else []
    command = ["score", "--model_name_or_path", *names, "--dataset_name", str(tmp_path), "--task_name", "stsb",
               "--max_length", "64", "--device", "cpu", "--output_file",
               str(tmp_path / "plain.parquet")]  # fmt: skip
    assert main([*command, *options]) == 0
    scale = {"similarity_scale": 4, "similarity_bias": -1} if bi_encoder else {}
    args = ScoreArguments(names, "", bi_encoder=bi_encoder, **scale)
    load = partial(PairScorer, args, 64, True)
    worker = ShardWorker(load, "cpu", {**load("cpu").settings, "columns": ["sentence1", "sentence2"]})
    assert work(worker, tmp_path / "train.parquet", tmp_path / "out/train.parquet") == ""
    plain, sharded = (pq.read_table(tmp_path / name) for name in ("plain.parquet", "out/train.parquet"))
    assert plain["sentence1"].to_pylist() == sharded["sentence1"].to_pylist() == first
    scores = [np.array(table["teacher_logits"].to_pylist()) for table in (plain, sharded)]
    np.testing.assert_allclose(*scores, rtol=0, atol=1e-6)
    assert np.ptp(scores[0]) > 0.1


def test_empty_sentences_are_not_scored(teachers, tmp_path):
    pq.write_table(pa.table({"a": ["cat", "cat"], "b": ["dog", " "]}), tmp_path / "in.parquet")
    load = partial(PairScorer, ScoreArguments([str(teachers[0])], ""), 64, True)
    worker = ShardWorker(load, "cpu", {**load("cpu").settings, "columns": ["a", "b"]})
    error = work(worker, tmp_path / "in.parquet", tmp_path / "out.parquet")
    assert "in the 2 rows from row 0: pair 1 is ('cat', ' '), but both have to be non-empty texts" in error


# The commands, before they start Ray


@pytest.fixture
def done(student, tmp_path):
    """Two encoded shards."""
    write_shards(tmp_path / "in", [3, 2])
    worker = make_worker(student)
    for name in ("part-0.parquet", "part-1.parquet"):
        assert work(worker, tmp_path / "in" / name, tmp_path / "out" / name) == ""
    return tmp_path / "in", tmp_path / "out"


def test_finished_shards_need_no_cluster(student, done, capsys):
    times = [path.stat().st_mtime_ns for path in sorted(done[1].iterdir())]
    assert main(encode_command(student, *done)) == 0
    out, err = capsys.readouterr()
    assert "2 of 2 shards are already finished" in err and out.startswith("5 vectors written to")
    assert [path.stat().st_mtime_ns for path in sorted(done[1].iterdir())] == times


def test_outputs_of_other_models_and_settings_are_errors(student, done, make_model, bert_tokenizer, tmp_path, capsys):
    make_model(DseModel).save_pretrained(tmp_path / "other")
    bert_tokenizer.save_pretrained(tmp_path / "other")
    before = [path.read_bytes() for path in sorted(done[1].iterdir())]
    for model, options, message in (
        (tmp_path / "other", (), "has other data or settings: model is '"),
        (student, ("--normalize",), "has other data or settings: normalize is False and should be True. Delete it"),
        (student, ("--max_length", 16), "max_length is None and should be 16"),
        (student, ("--text_column", "other"), "there is no column 'other'; the columns are id, text"),
    ):
        assert main(encode_command(model, *done, *options)) == 2
        assert message in capsys.readouterr().err
    # The same texts in another order.
    shard = sorted(done[0].iterdir())[0]
    table = pq.read_table(shard)
    texts = table["text"].to_pylist()[::-1]
    pq.write_table(table.set_column(table.column_names.index("text"), "text", [texts]), shard)
    assert main(encode_command(student, *done)) == 2
    assert "has other data or settings: input is '" in capsys.readouterr().err
    assert [path.read_bytes() for path in sorted(done[1].iterdir())] == before


def test_invalid_input(student, tmp_path, capsys):
    source, output = tmp_path / "in", tmp_path / "out"
    write_shards(source, [3])
    (tmp_path / "text.txt").write_text("cat")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad/bad.parquet").write_text("cat")
    (tmp_path / "foreign").mkdir()
    pq.write_table(pa.table({"text": ["cat"], "embedding": [[1.0]]}), tmp_path / "foreign/part-0.parquet")
    (tmp_path / "beir").mkdir()
    for name in ("corpus", "queries"):
        pq.write_table(pa.table({"_id": [name], "title": ["mat"], "text": ["cat"]}), tmp_path / f"beir/{name}.parquet")
    for place, target, options, message in (
        (tmp_path / "nothing", output, (), "there are no parquet files"),
        (tmp_path / "*/part-*.parquet", output, (), "Shards in different folders have the same name"),
        (tmp_path / "text.txt", output, (), "text.txt is not a parquet file"),
        (tmp_path / "bad", output, (), "not a readable parquet file"),
        (tmp_path / "beir", output, (), "beir is a folder in the layout of BEIR, whose queries are no documents"),
        (tmp_path / "foreign", output, (), "already has a column 'embedding'"),
        (source, tmp_path / "foreign", (), "was not written by hf-dse"),
        (source, source, (), "holds the input part-0.parquet"),
        (source, tmp_path / "text.txt", (), "is a file: with `--engine ray` the output is a folder"),
        (source, output, ("--device", "cpu"), "`--device` is not supported with `--engine ray`"),
        (source, output, ("--num_workers", 0), "num_workers=0: it has to be at least 1"),
        (source, output, ("--num_gpus", -1), "num_gpus=-1.0: it must not be negative"),
        (source, output, ("--engine", "local", "--num_workers", 2), "pass `--engine ray`, or leave them out"),
        (source, output, ("--max_length", 100), "max_length=100 is above the 64 tokens"),
    ):
        assert main(encode_command(student, place, target, *options)) == 2
        assert message in capsys.readouterr().err
    assert not output.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--split", "test"], "`--split` is not supported with `--engine ray`"),
        (["--drop_empty_sentences"], "`--drop_empty_sentences` is not supported"),
        (["--sentence1_column", "text"], "there is no column 'sentence2'; the columns are id, text"),
        (["--max_length", "65"], "max_length=65 is above the 64 tokens"),
    ],
)
def test_invalid_input_of_score(teachers, tmp_path, capsys, options, message):
    write_shards(tmp_path / "in", [3])
    assert main(score_command(teachers, tmp_path / "in", tmp_path / "out", *options)) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_score_needs_shards(teachers, tmp_path, capsys):
    command = score_command(teachers, "", tmp_path / "out")
    command = [word for word in command if word not in ("--dataset_name", "")]
    assert main(command) == 2
    assert "pass one, a folder or a glob as `--dataset_name`" in capsys.readouterr().err


def test_without_ray(student, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    write_shards(tmp_path / "in", [3])
    assert main(encode_command(student, tmp_path / "in", tmp_path / "out")) == 2
    assert "`--engine ray` needs Ray, which is not installed: `pip install hf-dse[ray]`" in capsys.readouterr().err


# A cluster


@pytest.fixture(scope="module")
def cluster():
    """A local cluster of two cores; programs started by tests use it too."""
    ray = pytest.importorskip("ray")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        # Otherwise Ray creates one in the home folder.
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
        options = {"include_dashboard": False, "object_store_memory": 100 * 2**20, "_node_ip_address": "127.0.0.1"}
        for attempts_left in (2, 1, 0):
            try:
                ray.init(num_cpus=2, **options)
                break
            except Exception:
                # Ray gives its processes 30 seconds, too few on a busy machine.
                ray.shutdown()
                if not attempts_left:
                    raise
        patch.setenv("RAY_ADDRESS", ray.get_runtime_context().gcs_address)
        yield
        ray.shutdown()


@pytest.mark.slow
def test_a_killed_run_continues_with_the_missing_shards(cluster, student, bert_tokenizer, tmp_path, capsys):
    source, output = tmp_path / "in", tmp_path / "out"
    write_shards(source, [40, 3000, 3000, 0, 500, 20])
    program = [sys.executable, "-c", "import sys; from hf_dse_cli import main; sys.exit(main())"]
    command = [*program, *encode_command(student, source, output, "--num_workers", 1)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 500
        while not (output / "part-0.parquet").is_file():
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    finished = {path: path.stat().st_mtime_ns for path in output.glob("*.parquet")}
    assert 1 <= len(finished) < 6
    (output / ".part-5.parquet.1.partial").write_bytes(b"what the killed worker had")

    # A bad row in an unfinished shard stops only that shard.
    pq.write_table(pa.table({"id": pa.array([1], pa.int32()), "text": pa.array([None], pa.string())}),
                   source / "part-5.parquet")  # fmt: skip
    assert main(encode_command(student, source, output)) == 2
    error = capsys.readouterr().err
    assert "shards failed, the others are finished. The first failures" in error
    assert f"{source / 'part-5.parquet'}: in the 1 rows from row 0: texts[0] is None, not a string" in error
    assert sorted(path.name for path in output.iterdir()) == [f"part-{number}.parquet" for number in range(5)]
    assert all(path.stat().st_mtime_ns == changed for path, changed in finished.items())
    tables = [pq.read_table(path) for path in sorted(output.iterdir())]
    assert pa.concat_tables(tables)["id"].to_pylist() == list(range(6540))
    for path, table in zip(sorted(output.iterdir()), tables, strict=True):
        texts = table["text"].to_pylist()
        assert texts == pq.read_table(source / path.name)["text"].to_pylist()
        expected = expected_vectors(student, bert_tokenizer, texts)
        np.testing.assert_allclose(vectors_of(path).reshape(-1, 16), expected, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_scores_of_two_workers(cluster, teachers, tmp_path, capsys):
    source, output = tmp_path / "pairs", tmp_path / "scored"
    source.mkdir()
    for number in range(4):
        first, second = make_texts(30, seed=10 + number), make_texts(30, seed=20 + number)
        table = pa.table({"question1": first, "question2": second, "key": [f"{number}-{row}" for row in range(30)]})
        pq.write_table(table, source / f"train-{number}.parquet")
    options = ["--num_labels", 1, "--symmetric", "true", "--sentence1_column", "question1",
               "--sentence2_column", "question2"]  # fmt: skip
    assert main(score_command(teachers, source / "train-*.parquet", output, *options)) == 0
    assert f"120 scored pairs written to {output}" in capsys.readouterr().out
    for path in sorted(source.iterdir()):
        table, scored = pq.read_table(path), pq.read_table(output / path.name)
        assert scored.drop_columns("teacher_logits").equals(table)
        pairs = Dataset.from_dict(
            {"sentence1": table["question1"].to_pylist(), "sentence2": table["question2"].to_pylist()}
        )
        expected = [
            score_pairs(str(name), pairs, symmetric=True, device="cpu", show_progress=False)["teacher_logits"][:]
            for name in teachers
        ]
        found = np.array(scored["teacher_logits"].to_pylist())
        np.testing.assert_allclose(found, np.mean(expected, axis=0), rtol=0, atol=1e-6)
