# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Full disks, folders that cannot be made, no home: one line, or correct work."""

import os
import shutil
import subprocess
import sys

import pytest
from harness import run, slow, slow_but


def error_of(log):
    """The one line of a user error."""
    lines = log.read_text().splitlines()
    assert "Traceback" not in log.read_text(), log.read_text()
    assert lines and ": error: " in lines[-1], log.read_text()
    return lines[-1]


@pytest.mark.parametrize("name", slow_but("score", "encode npy", "distill", "export"))
@pytest.mark.parametrize("share", [0.7, slow(0.2)])
def test_no_room(name, share, commands, undisturbed, assets, tmp_path):
    command, straight = commands[name], undisturbed(name)
    output, log = tmp_path / "files" / command.output, tmp_path / "log"
    line, place = command.line(output), command.place(output)
    place.parent.mkdir(parents=True)
    if place.suffix:
        place.write_bytes(b"old")
    else:
        shutil.copytree(assets / "old", place)
    old = command.read(place)
    if "--output_dir" in line:
        line += ["--overwrite_output_dir", "true"]
    code = run(["--quiet", *line], log, most_bytes=max(int(share * straight.size), 500))
    if code == 0:
        assert command.read(place) == straight.content
        return
    assert code == 2 and str(output.parent) in error_of(log)
    assert command.read(place) == old
    assert run([*command.line(output), *command.again(output)], log) == 0, log.read_text()
    assert command.read(place) == straight.content


@pytest.mark.slow
def test_no_room_for_the_index_of_a_folder(assets, tmp_path):
    (tmp_path / "texts").mkdir()
    for number in range(200):
        (tmp_path / "texts" / f"{number}.md").write_text(f"The cat {number} sat.\n\nThe dog {number} ran.\n")
    words = f"search --model {assets}/student --corpus {tmp_path}/texts --query cat --output_file "
    words += f"{tmp_path}/found.jsonl --index_dir {tmp_path}/index"
    (tmp_path / "found.jsonl").write_bytes(b"old")
    index, log = tmp_path / "index", tmp_path / "log"
    assert run(["--quiet", *words.split()], log, most_bytes=24_000) == 2, log.read_text()
    assert str(index) in error_of(log) and (tmp_path / "found.jsonl").read_bytes() == b"old"
    assert run(words.split(), log) == 0, log.read_text()
    found = (tmp_path / "found.jsonl").read_bytes()
    shutil.rmtree(index)
    assert run(words.split(), log) == 0 and (tmp_path / "found.jsonl").read_bytes() == found


@pytest.mark.parametrize("name", ["score", "distill", *map(slow, ["mine", "encode npy", "export"])])
def test_a_file_in_the_place_of_a_folder(name, commands, tmp_path):
    command, log = commands[name], tmp_path / "log"
    (tmp_path / "file").write_text("mine")
    output = tmp_path / "file" / command.output
    assert run(["--quiet", *command.line(output)], log) == 2, log.read_text()
    assert str(tmp_path / "file") in error_of(log)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["encode npy", "distill"])
def test_no_home(name, commands, undisturbed, tmp_path):
    """Neither the data nor the libraries need a folder to write beside that of the output."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HF_HOME", "XDG_"))}
    command, output = commands[name], tmp_path / "files" / commands[name].output
    result = subprocess.run(
        [sys.executable, "-m", "hf_dse_cli", *command.line(output)],
        env=environment | {"HOME": "/dev/null"},
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert result.returncode == 0, result.stderr
    assert command.read(command.place(output)) == undisturbed(name).content
    assert [path.name for path in tmp_path.iterdir()] == ["files"]
