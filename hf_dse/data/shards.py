# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""A new column for each parquet shard of a data set, computed by the workers of a Ray cluster."""

import glob
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow
import pyarrow.parquet

from hf_dse.common.files import digest_of, locked, to_path, write_atomically


ROWS_PER_BATCH = 1024

# Takes columns as lists, and returns the new column.
Worker = Callable[[dict[str, list]], pyarrow.Array]


def run_on_shards(
    make_worker: Callable[[str], Worker],
    source: str,
    output_dir: str,
    columns: list[str],
    column: str,
    *,
    settings: dict[str, Any],
    num_workers: int | None = None,
    num_gpus: float | None = None,
) -> int:
    """
    Adds a column to every parquet file of a folder or a glob, skips the finished ones, and returns the number of rows.

    `make_worker` loads a model on `"cpu"` or `"cuda"`. The result reads `columns`, also of no rows, and returns
    `column`; its `ValueError` ends only its shard. `settings`, all that the column depends on, stay in the files.
    """
    try:
        import ray.data
    except ImportError as error:
        raise ImportError("`--engine ray` needs Ray: `pip install hf-dse[ray]`.") from error
    path, folder = to_path(source).absolute(), to_path(output_dir).absolute()
    shards = sorted(map(Path, glob.glob(str(path / "*.parquet" if path.is_dir() else path))))
    if not shards or len({shard.name for shard in shards}) < len(shards):
        raise ValueError(f"{source} has to be parquet files with different names: a file, a folder or a glob.")
    with locked(folder):
        tasks = []
        for shard in shards:
            names = pyarrow.parquet.read_schema(shard).names
            if column in names or not set(columns) <= set(names):
                wanted = f"{', '.join(columns)}, and no {column!r}"
                raise ValueError(f"{shard} has the columns {', '.join(names)}, and needs {wanted}.")
            made_with = json.dumps({**settings, "input": digest_of(shard)}, sort_keys=True)
            output = folder / shard.name
            if not output.exists():
                tasks.append({"shard": str(shard), "output": str(output), "settings": made_with})
            elif (pyarrow.parquet.read_schema(output).metadata or {}).get(b"hf_dse") != made_with.encode():
                raise ValueError(f"{output} has other data or settings: delete it, or choose another folder.")
        if tasks:
            # A cluster that is started here sends no usage statistics.
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            ray.init(ignore_reinit_error=True)
            if num_gpus is None:
                num_gpus = float("GPU" in ray.cluster_resources())
            results = ray.data.from_items(tasks, override_num_blocks=len(tasks)).map_batches(
                ShardWorker,
                fn_constructor_args=(make_worker, "cuda" if num_gpus else "cpu", columns, column),
                batch_size=1,
                num_gpus=num_gpus or None,
                concurrency=num_workers or (1, len(tasks)),
            )
            errors = [row["error"] for row in results.iter_rows() if row["error"]]
            if errors:
                raise ValueError(f"{len(errors)} of {len(tasks)} shards failed: {'; '.join(errors[:3])}")
    return sum(pyarrow.parquet.read_metadata(folder / shard.name).num_rows for shard in shards)


class ShardWorker:
    """A Ray actor: loads the model once, and writes one shard after the other."""

    def __init__(self, make_worker: Callable[[str], Worker], device: str, columns: list[str], column: str):
        self.worker, self.columns, self.column = make_worker(device), columns, column

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[str]]:
        shard, output, settings = (batch[name][0] for name in ("shard", "output", "settings"))
        error = ""
        try:
            write_atomically(Path(output), partial(self._write, shard, settings))
        except ValueError as problem:
            error = f"{shard}: {problem}"
        return {"error": [error]}

    def _write(self, shard: str, settings: str, file: BinaryIO) -> None:
        with pyarrow.parquet.ParquetFile(shard) as source:
            field = pyarrow.field(self.column, self.worker({name: [] for name in self.columns}).type)
            schema = source.schema_arrow.append(field).with_metadata({"hf_dse": settings})
            with pyarrow.parquet.ParquetWriter(file, schema) as writer:
                for rows in source.iter_batches(ROWS_PER_BATCH):
                    values = self.worker({name: rows[name].to_pylist() for name in self.columns})
                    writer.write_batch(pyarrow.record_batch([*rows.columns, values], schema=schema))
