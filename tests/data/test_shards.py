# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""A new column for parquet shards: one shard in this process, and a cluster of two workers."""

import secrets
import signal
import subprocess
import sys
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import load_dataset

from hf_dse.data.shards import ShardWorker, run_on_shards


class Lengths:
    """A model that counts characters, and takes its time."""

    def __init__(self, device, seconds=0.0):
        self.device, self.seconds = device, seconds

    def __call__(self, batch):
        time.sleep(self.seconds * len(batch["text"]))
        if None in batch["text"]:
            raise ValueError(f"text {batch['text'].index(None)} of {len(batch['text'])} is None")
        return pa.array([[len(text)] for text in batch["text"]], pa.list_(pa.int32()))


def write_shards(folder, counts):
    """Writes shards of texts with consecutive ids, in row groups of 50, like larger files."""
    folder.mkdir(parents=True, exist_ok=True)
    start = 0
    for number, count in enumerate(counts):
        ids = range(start, start + count)
        columns = {"id": pa.array(ids, pa.int32()), "text": pa.array(["x" * (row % 7) for row in ids], pa.string())}
        pq.write_table(pa.table(columns), folder / f"part-{number}.parquet", row_group_size=50)
        start += count


def run(source, output, make_worker=Lengths, **settings):
    options = {"num_workers": 1, "num_gpus": 0}
    return run_on_shards(make_worker, str(source), str(output), ["text"], "length", settings=settings, **options)


def work(shard, output):
    worker = ShardWorker(Lengths, "cpu", ["text"], "length")
    (error,) = worker({"shard": [str(shard)], "output": [str(output)], "settings": ["{}"]})["error"]
    return error


def test_a_worker_adds_a_column_to_a_shard(tmp_path):
    write_shards(tmp_path / "in", [1330, 0])
    for number in (0, 1):
        assert work(tmp_path / f"in/part-{number}.parquet", tmp_path / f"out/part-{number}.parquet") == ""
    table, source = (pq.read_table(tmp_path / folder / "part-0.parquet") for folder in ("out", "in"))
    assert table.drop_columns("length").equals(source)
    assert table["length"].to_pylist() == [[row % 7] for row in range(1330)]
    empty = pq.read_table(tmp_path / "out/part-1.parquet")
    assert empty.num_rows == 0 and empty.schema.equals(table.schema)
    loaded = load_dataset("parquet", data_files=str(tmp_path / "out/*.parquet"), cache_dir=str(tmp_path / "cache"))
    assert loaded["train"].column_names == ["id", "text", "length"]


def test_the_error_names_the_shard_and_no_file_is_written(tmp_path):
    shard = tmp_path / "in.parquet"
    pq.write_table(pa.table({"text": ["a"] * 1058 + [None]}), shard)
    assert work(shard, tmp_path / "out/in.parquet") == f"{shard}: text 34 of 35 is None"
    assert list((tmp_path / "out").iterdir()) == []


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


def test_without_ray(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match="`--engine ray` needs Ray: `pip install hf-dse"):
        run(tmp_path, tmp_path / "out")


def test_invalid_input(tmp_path):
    pytest.importorskip("ray")
    source = tmp_path / "in"
    write_shards(source, [3])
    pq.write_table(pa.table({"text": ["a"], "length": [1]}), tmp_path / "done.parquet")
    pq.write_table(pa.table({"title": ["a"]}), tmp_path / "other.parquet")
    write_shards(tmp_path / "more", [3])
    for place, message in (
        (tmp_path / "nothing", "nothing has to be parquet files with different names"),
        (tmp_path / "*/part-0.parquet", "has to be parquet files with different names"),
        (tmp_path / "done.parquet", "has the columns text, length, and needs text, and no 'length'"),
        (tmp_path / "other.parquet", "has the columns title, and needs text"),
    ):
        with pytest.raises(ValueError, match=message):
            run(place, tmp_path / "out")
    # The output of another program, and the input.
    (tmp_path / "foreign").mkdir()
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "foreign/part-0.parquet")
    for folder in (tmp_path / "foreign", source):
        with pytest.raises(ValueError, match="has other data or settings: delete it, or choose another folder"):
            run(source, folder)


@pytest.mark.slow
def test_finished_shards_are_skipped_and_other_settings_refused(cluster, tmp_path):
    write_shards(tmp_path / "in", [3, 2])
    assert run(tmp_path / "in", tmp_path / "out", model="a") == 5
    times = [path.stat().st_mtime_ns for path in sorted((tmp_path / "out").iterdir())]
    assert run(tmp_path / "in", tmp_path / "out", model="a") == 5
    assert run(tmp_path / "in/*.parquet", tmp_path / "out", model="a") == 5
    assert [path.stat().st_mtime_ns for path in sorted((tmp_path / "out").iterdir())] == times
    with pytest.raises(ValueError, match="part-0.parquet has other data or settings"):
        run(tmp_path / "in", tmp_path / "out", model="b")
    # The same rows in another order.
    table = pq.read_table(tmp_path / "in/part-1.parquet")
    pq.write_table(table.take([1, 0]), tmp_path / "in/part-1.parquet")
    with pytest.raises(ValueError, match="part-1.parquet has other data or settings"):
        run(tmp_path / "in", tmp_path / "out", model="a")


KILLED_RUN = """
import functools, sys
import ray.cloudpickle
sys.path.insert(0, {tests!r})
import test_shards
# Workers cannot import it.
ray.cloudpickle.register_pickle_by_value(test_shards)
test_shards.run(sys.argv[1], sys.argv[2], functools.partial(test_shards.Lengths, seconds=0.01))
"""


@pytest.mark.slow
def test_a_killed_run_goes_on_with_the_missing_shards(cluster, tmp_path, request):
    source, output = tmp_path / "in", tmp_path / "out"
    write_shards(source, [40, 500, 500, 0, 60, 20])
    program = KILLED_RUN.format(tests=str(request.path.parent))
    process = subprocess.Popen([sys.executable, "-c", program, str(source), str(output)])
    try:
        deadline = time.monotonic() + 300
        while not (output / "part-0.parquet").is_file():
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    finished = {path: path.stat().st_mtime_ns for path in output.glob("*.parquet")}
    assert 1 <= len(finished) < 6
    # A bad row stops only its shard.
    pq.write_table(pa.table({"id": pa.array([1], pa.int32()), "text": pa.array([None], pa.string())}),
                   source / "part-5.parquet")  # fmt: skip
    with pytest.raises(ValueError, match="1 of . shards failed: .*part-5.parquet: text 0 of 1 is None"):
        run(source, output)
    assert all(path.stat().st_mtime_ns == changed for path, changed in finished.items())
    tables = [pq.read_table(output / f"part-{number}.parquet") for number in range(5)]
    assert pa.concat_tables(tables)["id"].to_pylist() == list(range(1100))
    assert pa.concat_tables(tables)["length"].to_pylist() == [[row % 7] for row in range(1100)]
