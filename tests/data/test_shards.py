# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""A new column for parquet shards: one shard in this process, and a cluster of two workers."""

import secrets
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hf_dse.data.shards import ShardWorker, run_on_shards


class Lengths:
    """A model that counts characters."""

    def __init__(self, device):
        self.device = device

    def __call__(self, batch):
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


def run(source, output, **settings):
    options = {"num_workers": 1, "num_gpus": 0}
    return run_on_shards(Lengths, str(source), str(output), ["text"], "length", settings=settings, **options)


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


def test_the_error_names_the_shard_and_no_file_is_written(tmp_path):
    shard = tmp_path / "in.parquet"
    pq.write_table(pa.table({"text": ["a"] * 1058 + [None]}), shard)
    assert work(shard, tmp_path / "out/in.parquet") == f"{shard}: text 34 of 35 is None"
    assert list((tmp_path / "out").iterdir()) == []


@pytest.fixture(scope="module")
def cluster():
    """A local cluster of two cores."""
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
    write_shards(tmp_path / "more", [3])
    for place, message in (
        (tmp_path / "nothing", "nothing has to be parquet files with different names"),
        (tmp_path / "*/part-0.parquet", "has to be parquet files with different names"),
        (tmp_path / "done.parquet", "has the columns text, length, and needs text, and no 'length'"),
    ):
        with pytest.raises(ValueError, match=message):
            run(place, tmp_path / "out")
    with pytest.raises(ValueError, match="has other data or settings: delete it, or choose another folder"):
        run(source, source)


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
    # A bad row stops only its shard.
    bad = pa.table({"id": pa.array([1], pa.int32()), "text": pa.array([None], pa.string())})
    pq.write_table(bad, tmp_path / "in/part-2.parquet")
    pq.write_table(bad.slice(1), tmp_path / "in/part-3.parquet")
    with pytest.raises(ValueError, match="1 of 2 shards failed: .*part-2.parquet: text 0 of 1 is None"):
        run(tmp_path / "in", tmp_path / "out", model="a")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [f"part-{n}.parquet" for n in (0, 1, 3)]
    # The same rows in another order.
    table = pq.read_table(tmp_path / "in/part-1.parquet")
    pq.write_table(table.take([1, 0]), tmp_path / "in/part-1.parquet")
    with pytest.raises(ValueError, match="part-1.parquet has other data or settings"):
        run(tmp_path / "in", tmp_path / "out", model="a")
