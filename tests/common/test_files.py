# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Files and folders that are written whole or not at all, by one process at a time."""

import errno
import multiprocessing
import time
from pathlib import Path

import pytest

from hf_dse.common.files import (
    LOCK_FILE,
    check_target,
    folder_in_one_step,
    locked,
    output_path,
    read_yaml,
    to_path,
    write_atomically,
    writing,
)


FORK = multiprocessing.get_context("fork")


# Locks


def hold(folder, held):
    with locked(folder):
        held.set()
        time.sleep(600)


def test_a_lock_keeps_others_out_until_its_process_ends(tmp_path):
    folder = tmp_path / "run"
    process = FORK.Process(target=hold, args=(folder, held := FORK.Event()))
    process.start()
    assert held.wait(30)
    with pytest.raises(
        BlockingIOError, match="run is in use by another process: wait until that ends, or name another"
    ):
        with locked(folder):
            pass
    process.kill()
    process.join(30)
    # Also after a kill, which left the file of the lock.
    assert (folder / LOCK_FILE).exists()
    with locked(folder):
        pass
    assert list(folder.iterdir()) == []


# Files


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "new" / "file"
    write_atomically(path, lambda file: file.write(b"old"))

    def fail(file):
        file.write(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, fail)
    assert path.read_bytes() == b"old" and [file.name for file in path.parent.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("error", "is_named"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (RuntimeError("[enforce fail at inline_container.cc:659] unexpected pos"), True),
        (FileNotFoundError(errno.ENOENT, "No such file", "other"), False),
    ],
)
def test_errors_of_a_full_disk_name_the_output(error, is_named):
    kind = OSError if is_named else type(error)
    message = "^out could not be written .*make room on its disk" if is_named else str(error).replace("[", r"\[")
    with pytest.raises(kind, match=message), writing(Path("out")):
        raise error


def test_names_of_outputs(tmp_path):
    assert output_path(str(tmp_path / "a.npy"), (".npy",)) == tmp_path / "a.npy"
    assert to_path("~/x") == Path.home() / "x"
    with pytest.raises(ValueError, match=r"a.txt: unsupported ending '.txt'; the output is .npy or .parquet"):
        output_path("a.txt", (".npy", ".parquet"))


# Folders


def write_model(target, content, overwrite=False):
    with folder_in_one_step(target, overwrite) as new:
        (new / "config.json").write_text(content)


def test_a_folder_in_one_step(tmp_path):
    target = tmp_path / "model"
    write_model(target, "first")
    with pytest.raises(
        FileExistsError, match="model is not empty: name another folder, or pass `overwrite_output_dir=True`"
    ):
        write_model(target, "second")
    with pytest.raises(RuntimeError), folder_in_one_step(target, True) as new:
        (new / "config.json").write_text("half")
        raise RuntimeError
    assert (target / "config.json").read_text() == "first"
    write_model(target, "second", overwrite=True)
    assert (target / "config.json").read_text() == "second"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_folder_that_a_kill_left_hidden_is_taken_back(tmp_path):
    """`faults/test_kills.py` kills at every change of files."""
    target, partial = tmp_path / "model", tmp_path / ".model.partial"
    write_model(target, "old")
    partial.mkdir()
    target.rename(partial / "old")
    with pytest.raises(FileExistsError, match="is not empty"), folder_in_one_step(target, False):
        pass
    assert (target / "config.json").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_folder_that_another_process_wrote_meanwhile_stays(tmp_path):
    target = tmp_path / "model"
    with pytest.raises(FileExistsError, match="model is not empty: name another folder"):
        with folder_in_one_step(target, overwrite=False) as new:
            (new / "config.json").write_text("second")
            target.mkdir()
            (target / "config.json").write_text("first")
    assert (target / "config.json").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_two_processes_write_one_folder(tmp_path):
    target = tmp_path / "model"
    with folder_in_one_step(target, False), pytest.raises(BlockingIOError, match="model is in use by another process"):
        write_model(target, "second")


def test_folders_that_are_not_replaced(tmp_path):
    check_target(tmp_path / "new", overwrite=False)
    (tmp_path / "empty").mkdir()
    check_target(tmp_path / "empty", overwrite=False)
    home = tmp_path / "home"
    (home / ".git").mkdir(parents=True)
    for _ in range(2):
        with pytest.raises(FileExistsError, match="home is not a plain model folder"):
            check_target(home, overwrite=True)
        (home / "config.json").touch()


# YAML


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("seed: 1\nseed: 2", "'seed' is there twice"),
        ("seed: !!python/object/apply:os.system [x]", "could not determine a constructor"),
        (b"seed: \xff", "can't decode byte"),
    ],
)
def test_bad_yaml_is_named(tmp_path, content, message):
    path = tmp_path / "recipe.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=f"(?s)recipe.yaml is not valid YAML: .*{message}"):
        read_yaml(path)


@pytest.mark.parametrize("number", ["010", "-07", "1:30"])
def test_numbers_of_other_bases_are_refused(number, tmp_path):
    """YAML 1.1 reads these as 8, -7 and 90."""
    (tmp_path / "a.yaml").write_text(f"seed: {number}")
    with pytest.raises(ValueError, match=f"{number} would be read in base 8 or 60: write a number without 0 before"):
        read_yaml(tmp_path / "a.yaml")
    (tmp_path / "a.yaml").write_text("seed: 10\nrate: 1.5\nzero: 0\nhex: 0x10")
    assert read_yaml(tmp_path / "a.yaml") == {"seed": 10, "rate": 1.5, "zero": 0, "hex": 16}
