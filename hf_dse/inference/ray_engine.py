# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Adding a column to the shards of a parquet dataset with Ray workers."""

import atexit
import glob
import json
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import pyarrow
import pyarrow.parquet

from hf_dse.common.files import digest_of, locked, to_path, write_atomically
from hf_dse.common.options import refuse_options
from hf_dse.data.tables import read_schema
from hf_dse.inference.arguments import EngineArguments


logger = logging.getLogger(__name__)

# Key of the settings in the metadata of the written files.
SETTINGS_KEY = b"hf_dse"


class ShardModel(Protocol):
    """Computes the new column: a loaded model with its settings."""

    column: str
    type: pyarrow.DataType
    # Rows that a worker processes at a time, and rows per row group of the output.
    num_rows: int
    settings: dict[str, Any]

    def __call__(self, columns: list[list]) -> pyarrow.Array: ...


def run_on_shards(
    load: Callable[[str], ShardModel],
    source: str,
    output_dir: str,
    text_columns: list[str],
    args: EngineArguments,
) -> list[Path]:
    """
    Adds a column to every shard of a dataset. Shards are read and written in parts, so they do not have to fit into
    memory. Rows keep their order, each output file is written atomically, and finished shards are skipped.

    Args:
        load (`Callable[[str], ShardModel]`):
            Loads the model on a device: once on the CPU in this process, and once in each worker. It has to be
            picklable.
        source (`str`):
            A parquet file, a folder of them, or a glob.
        output_dir (`str`):
            Folder for the new files, which have the names of the shards.
        text_columns (`list[str]`):
            The columns that the model reads.
        args ([`EngineArguments`]):
            Number and resources of the workers.

    Returns:
        `list[Path]`: the new files.

    Raises:
        `ImportError`: if Ray is not installed.
        `FileNotFoundError`: if there are no shards.
        `ValueError`: if a column is missing, a shard cannot be read, an existing output file was written from other
        data or with another model or settings, or the model fails on a row. Other shards are still processed then.
    """
    if find_spec("ray") is None:
        raise ImportError("`--engine ray` needs Ray, which is not installed: `pip install hf-dse[ray]`.")
    folder = to_path(output_dir).absolute()
    outputs = _outputs(find_shards(source), folder)
    with locked(folder):
        model = load("cpu")
        for shard in outputs:
            _check_columns(shard, text_columns, model.column)
        settings = {**model.settings, "columns": text_columns}
        todo = [shard for shard in outputs if not _is_done(shard, outputs[shard], settings, model.column)]
        del model
        if len(todo) < len(outputs):
            logger.info(f"{len(outputs) - len(todo)} of {len(outputs)} shards are already finished")
        for output in map(outputs.__getitem__, todo):
            # Remove partial files of killed workers.
            for partial in folder.glob(f".{glob.escape(output.name)}.*.partial"):
                partial.unlink()
        pairs = [(shard, outputs[shard]) for shard in todo]
        failures = []
        if todo:
            with _cluster():
                failures = [row["error"] for row in _run(load, pairs, settings, args) if row["error"]]
    if failures:
        raise ValueError(
            f"{len(failures)} of {len(todo)} shards failed, the others are finished. The first failures: "
            f"{'; '.join(failures[:3])}"
        )
    return list(outputs.values())


def count_rows(files: list[Path]) -> int:
    return sum(pyarrow.parquet.read_metadata(file).num_rows for file in files)


def read_settings(file: Path, schema: pyarrow.Schema) -> dict[str, Any]:
    """The settings that a parquet file was written with, by which its new column is known; none in other files."""
    try:
        settings = json.loads((schema.metadata or {}).get(SETTINGS_KEY, "{}"))
    except ValueError as error:
        raise ValueError(f"{file}: its settings of hf-dse are damaged: {error}") from error
    return settings if isinstance(settings, dict) else {}


def local_or_hub(name: str) -> str:
    """Returns the absolute path of a local model, which any process finds; Hub ids are unchanged."""
    return str(Path(name).absolute()) if Path(name).exists() else name


def refuse_with_ray(args: Any, *names: str) -> None:
    """Raises a `ValueError` if an option that the Ray engine does not support is set."""
    advice = "leave it out. Pass a file, a folder or a glob as input, and set devices with `--num_gpus`."
    refuse_options(args, "is not supported with `--engine ray`", *names, advice=advice)


class ShardWorker:
    """
    Runs in a Ray actor: loads the model once, then processes one shard after the other.

    Args:
        load (`Callable[[str], ShardModel]`):
            Loads the model on a device.
        device (`str`):
            The device.
        settings (`dict[str, Any]`):
            The settings that determine the new column.

    Raises:
        `ValueError`: if the worker finds a different model under the same name.
    """

    def __init__(self, load: Callable[[str], ShardModel], device: str, settings: dict[str, Any]):
        self.model, self.settings = load(device), settings
        different = _differences({**settings, **self.model.settings}, settings)
        if different:
            raise ValueError(f"A worker loaded a different model than the main process: {different}.")

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Writes the output of one shard. Errors in the data are returned, so that the other shards continue."""
        shard = Path(row["shard"])
        try:
            write_atomically(Path(row["output"]), lambda file: self._write(shard, file))
        except (ValueError, OSError) as error:
            return {"error": f"{shard}: {error}"}
        return {"error": ""}

    def _write(self, shard: Path, file: BinaryIO) -> None:
        with pyarrow.parquet.ParquetFile(shard) as source:
            settings = json.dumps(_settings_of(shard, self.settings))
            schema = source.schema_arrow.append(pyarrow.field(self.model.column, self.model.type))
            start = 0
            with pyarrow.parquet.ParquetWriter(file, schema.with_metadata({SETTINGS_KEY: settings})) as writer:
                for batch in source.iter_batches(self.model.num_rows):
                    texts = [batch[name].to_pylist() for name in self.settings["columns"]]
                    try:
                        values = self.model(texts)
                    except ValueError as error:
                        raise ValueError(f"in the {len(batch)} rows from row {start}: {error}") from error
                    writer.write_batch(pyarrow.record_batch([*batch.columns, values], schema=writer.schema))
                    start += len(batch)


@contextmanager
def _cluster() -> Iterator[None]:
    """The cluster that is connected, or one that is started here, of which an interrupt leaves no process behind."""
    import psutil

    this = psutil.Process()
    others = this.children(recursive=True)
    started: list[psutil.Process] = []

    def end() -> None:
        for process in started:
            with suppress(psutil.NoSuchProcess):
                process.kill()

    # Ray's agents search the ended cluster for a minute. What is registered first is called last: after Ray's own end.
    atexit.register(end)
    import ray

    if ray.is_initialized():
        yield
        return
    # A cluster that is started here sends no usage statistics.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        with _interrupts_later():
            ray.init(logging_level=logging.WARNING)
        yield
    except KeyboardInterrupt:
        started += [process for process in this.children(recursive=True) if process not in others]
        raise


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Ctrl-C waits for the end of the block: a half-started Ray crashes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    interrupts = []
    handler = signal.signal(signal.SIGINT, lambda *signals: interrupts.append(signals))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if interrupts:
        raise KeyboardInterrupt


def _run(
    load: Callable[[str], ShardModel], todo: list[tuple[Path, Path]], settings: dict[str, Any], args: EngineArguments
) -> Iterator[dict[str, str]]:
    import ray

    resources = ray.cluster_resources()
    num_gpus = args.num_gpus
    if num_gpus is None:
        num_gpus = 1.0 if resources.get("GPU") else 0.0
    most = resources.get("GPU", 0.0) / num_gpus if num_gpus else resources.get("CPU", 1.0)
    # Each shard is processed by a single worker.
    num_workers = min(args.num_workers or max(int(most), 1), len(todo))
    rows = [{"shard": str(shard), "output": str(output)} for shard, output in todo]
    # One block per shard: an idle worker takes the next one.
    dataset = ray.data.from_items(rows, override_num_blocks=len(rows)).map(
        ShardWorker,  # type: ignore[arg-type]
        fn_constructor_args=(load, "cuda" if num_gpus else "cpu", settings),
        compute=ray.data.ActorPoolStrategy(size=num_workers, max_tasks_in_flight_per_actor=1),
        **({"num_gpus": num_gpus} if num_gpus else {"num_cpus": 1}),
    )
    yield from dataset.iter_rows()


def find_shards(source: str) -> list[Path]:
    """The parquet files of a dataset: a file, those of a folder, or those that match a glob."""
    path = to_path(source).absolute()
    if path.is_dir():
        found = sorted(path.glob("*.parquet"))
    else:
        found = [path] if path.is_file() else sorted(map(Path, glob.glob(str(path), recursive=True)))
    if not found:
        raise FileNotFoundError(f"{source}: there are no parquet files; pass a file, a folder or a glob of them.")
    wrong = [shard for shard in found if shard.suffix != ".parquet" or not shard.is_file()]
    if wrong:
        raise ValueError(f"{wrong[0]} is not a parquet file: `--engine ray` reads only parquet files.")
    return found


def _outputs(shards: list[Path], output_dir: Path) -> dict[Path, Path]:
    if output_dir.exists() and not output_dir.is_dir():
        raise ValueError(f"{output_dir} is a file: with `--engine ray` the output is a folder.")
    outputs = {shard: output_dir / shard.name for shard in shards}
    for shard, output in outputs.items():
        if shard.resolve() == output.resolve():
            raise ValueError(f"{output_dir} holds the input {shard.name}: choose another folder for the output.")
    if len(set(outputs.values())) < len(shards):
        raise ValueError("Shards in different folders have the same name: process each folder separately.")
    return outputs


def _check_columns(shard: Path, text_columns: list[str], column: str) -> None:
    names = read_schema(shard).names
    for name in text_columns:
        if name not in names:
            raise ValueError(f"{shard}: there is no column {name!r}; the columns are {', '.join(names)}.")
    if column in names:
        raise ValueError(f"{shard} already has a column {column!r}: rename or drop it.")


def _settings_of(shard: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that determine the content of one output file, and which file it was made of."""
    return {**settings, "input": digest_of(shard)}


def _is_done(shard: Path, output: Path, settings: dict[str, Any], column: str) -> bool:
    if not output.exists():
        return False
    schema = read_schema(output)
    found = read_settings(output, schema)
    if not found:
        raise ValueError(f"{output} was not written by hf-dse: choose another output folder.")
    different = _differences(found, _settings_of(shard, settings))
    if different:
        raise ValueError(f"{output} has other data or settings: {different}. Delete it, or choose another folder.")
    if column not in schema.names or count_rows([output]) != count_rows([shard]):
        raise ValueError(f"{output} does not have {column!r} for each row of {shard.name}: delete it.")
    return True


def _differences(found: dict[str, Any], wanted: dict[str, Any]) -> str:
    names = [name for name in {**wanted, **found} if found.get(name) != wanted.get(name)]
    return ", ".join(f"{name} is {found.get(name)!r} and should be {wanted.get(name)!r}" for name in names)
