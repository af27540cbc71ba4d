# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Runs `hf-dse` commands in processes of their own that are killed at chosen moments. A process is forked from a server
that has imported hf_dse already, and so starts in milliseconds.
"""

import multiprocessing
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

import pytest


CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        *(f"hf_dse.cli.{name}" for name in ("distill", "encode", "folders", "score")),
        "hf_dse.stages.distill",
        "hf_dse.studies.runs",
        "sentence_transformers",
        "sklearn",
        "torch._dynamo",
        "transformers.models.bert.modeling_bert",
        "transformers.models.bert.tokenization_bert",
    ]
)

# The names of the commands of faults/conftest.py.
COMMANDS = (
    "score",
    "score rankings",
    "mine",
    "encode npy",
    "encode parquet",
    "distill",
    "distill accumulated",
    "distill ranking",
    "distill recipe",
    "convert",
    "export",
    "whiten",
)

# Audit events of changes to files, with the number of their arguments that name one.
CHANGES = {"os.mkdir": 1, "os.remove": 1, "os.rename": 2, "os.rmdir": 1}
KILLS = (-signal.SIGKILL, -signal.SIGXFSZ)


def slow(*values: Any) -> Any:
    return pytest.param(*values, marks=pytest.mark.slow)


def slow_but(*quick: str) -> list[Any]:
    """The names of all commands, of which only some are tested in the quick part."""
    return [name if name in quick else slow(name) for name in COMMANDS]


def run(argv: list[str], log: Path, **options: Any) -> int:
    """
    Runs a command to its end, natural or not, and returns the exit code. `log` gets what it prints. In `folder`, it
    gets the signal `by` just before its change number `kill_at` of the files there (new files, renames, deletions;
    their number is in `log` with the ending .changes). It is killed while it writes a file that grows beyond
    `file_size` bytes; with `most_bytes` such a file is an error instead, as on a full disk.
    """
    process = CONTEXT.Process(target=_run, args=(argv, log), kwargs=options)
    process.start()
    process.join(300)
    return process.exitcode


def model_folder(folder: Path) -> dict[str, bytes]:
    """The files of a model folder, without the card, which names the folder and the command."""
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if name != "README.md"}


def _run(
    argv: list[str],
    log: Path,
    folder: Path | None = None,
    kill_at: int | None = None,
    by: int = signal.SIGKILL,
    file_size: int | None = None,
    most_bytes: int | None = None,
) -> None:
    # As in a terminal: the server of forks ignores Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["hf-dse", *argv]
    # A file would count for `file_size`.
    output = os.open(os.devnull if file_size else log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    if folder is not None:
        counter = Counter(str(folder), kill_at, by)
        sys.addaudithook(counter)
    if file_size is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    if file_size or most_bytes:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_size or most_bytes, resource.RLIM_INFINITY))
    from hf_dse_cli import main

    code = main(argv)
    if folder is not None:
        Path(f"{log}.changes").write_text(str(counter.count))
    sys.stdout.flush()
    sys.exit(code)


class Counter:
    """An audit hook that counts changes of files in a folder, and sends this process a signal before one of them."""

    def __init__(self, folder: str, kill_at: int | None, by: int):
        self.folder, self.kill_at, self.by, self.count = folder, kill_at, by, 0

    def __call__(self, event: str, args: tuple) -> None:
        if event == "open":
            path, _, flags = args
            paths = [path] if flags & (os.O_WRONLY | os.O_RDWR) else []
        elif event in ("os.remove", "os.rmdir") and args[1] != -1:
            # By the name in an open folder, as `shutil.rmtree` does.
            paths = [self.folder]
        else:
            paths = args[: CHANGES.get(event, 0)]
        if any(isinstance(path, str | os.PathLike) and os.fspath(path).startswith(self.folder) for path in paths):
            self.count += 1
            if self.count == self.kill_at:
                os.kill(os.getpid(), self.by)
