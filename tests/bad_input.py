# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""What the tests of bad input share: running a command, and mutating files. A wrong outcome fails the test."""

import io
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from random import Random

from hf_dse_cli import main


# Longer than any of these commands takes.
SECONDS = 20

# The sizes of a config, for models that are made in no time
TINY = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "max_position_embeddings": 16,
    "linformer_length": 4,
}

# Errors of the library for bad input; the command line makes one line of them.
REFUSED = (ValueError, OSError, ImportError)


class Hang(BaseException):
    """Nothing but a test catches it."""


@contextmanager
def no_hang(seconds: int = SECONDS) -> Iterator[None]:
    def stop(*_):
        raise Hang(f"it did not end within {seconds} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def run(*argv: object) -> str:
    """
    Runs a command in this process and returns its error, or `""` after a success. Errors of other kinds than those of
    the user are raised.
    """
    output, errors = io.StringIO(), io.StringIO()
    with no_hang(), redirect_stdout(output), redirect_stderr(errors):
        code = main([str(word) for word in argv])
    assert code in (0, 2), f"exit code {code}: {errors.getvalue()[-500:]}"
    if code == 0:
        return ""
    # Progress bars go back to the start of their line, or to the line before.
    text = re.sub(r"\r|\x1b\[A", "\n", errors.getvalue())
    found = re.search(rf"hf-dse {argv[0]}: error: (.*)", text)
    assert found and found[1].strip() and "Traceback" not in text, text[-2000:]
    rest = re.sub(r"^.*\d+%\|.*$", "", text[found.end() :], flags=re.MULTILINE)
    assert not rest.strip(), rest
    return found[1]


def refuse(pattern: str, *argv: object) -> None:
    """Runs a command that has to fail with an error that matches `pattern`."""
    error = run(*argv)
    assert re.search(pattern, error), error or "no error"


def attempt(function: Callable, *args: object, **options: object) -> object:
    """The result of a function, or `None` if it refuses its input with an error that says something."""
    with no_hang():
        try:
            return function(*args, **options)
        except REFUSED as error:
            assert str(error).strip()
            return None


def copy_of(folder: Path, target: Path, **files: bytes | str) -> Path:
    """A copy of a model folder with other content in some files, whose names have `_` in the place of `.`."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folder, target)
    for name, content in files.items():
        path = target / re.sub(r"_(?=[a-z]+$)", ".", name)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return target


def mutate(content: bytes, random: Random) -> bytes:
    """The content of a file with one to three damages."""
    damaged = bytearray(content)
    for _ in range(random.randint(1, 3)):
        start = random.randrange(len(damaged) + 1)
        end = min(len(damaged), start + random.choice([1, 2, 8, 64]))
        kind = random.randrange(6)
        if kind == 0:
            damaged[start:end] = b""
        elif kind == 1:
            damaged[start:end] = random.randbytes(end - start)
        elif kind == 2:
            damaged[start:start] = bytes(damaged[start:end]) * random.choice([1, 3])
        elif kind == 3:
            damaged[start:start] = random.choice(
                [
                    b"\0",
                    b"\r\n",
                    b'"',
                    b"[",
                    b"}",
                    b"\xff\xfe",
                    b"\xef\xbb\xbf",
                    b"\\ud800",
                    b",",
                    b"null",
                    b"-1",
                    b"1e999",
                ]
            )
        elif kind == 4:
            del damaged[start:]
        elif damaged:
            place = random.randrange(len(damaged))
            damaged[place] ^= 1 << random.randrange(8)
    return bytes(damaged)


def remove(path: Path) -> None:
    with suppress(FileNotFoundError):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
