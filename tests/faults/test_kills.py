# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Every command that writes is killed, and given again: it ends with the bytes of an undisturbed run."""

import random
import shutil

import pytest
from harness import KILLS, kill_after, run, start


# Kills of each command in the long part, and of those that are quick.
MANY = 8
QUICK = {"score": 2, "mine": 2, "encode parquet": 2, "distill": 3, "distill accumulated": 1, "merge": 2}
SLOW = [
    "score rankings",
    "augment",
    "encode npy",
    "distill ranking",
    "distill recipe",
    "teacher",
    "teacher without checkpoints",
    "teacher of rankings",
    "convert",
    "export",
    "export onnx",
    "whiten",
]


@pytest.fixture
def attack(commands, undisturbed, assets, tmp_path):
    """Kills a command at a moment that the seed gives, looks at what is there, and gives it again."""

    def make(name, seed):
        command, straight = commands[name], undisturbed(name)
        output, log = tmp_path / str(seed) / command.output, tmp_path / f"{seed}.log"
        output.parent.mkdir()
        line, place, old = command.line(output), command.place(output), None
        choose = random.Random(f"{name} {seed}")
        if choose.random() < 0.5:
            # Over an earlier result.
            place.parent.mkdir(parents=True, exist_ok=True)
            if place.suffix:
                place.write_bytes(b"old")
            else:
                shutil.copytree(assets / "old", place)
            if "--output_dir" in line:
                line += ["--overwrite_output_dir", "true"]
            old = command.read(place)
        how = choose.choice(["change", "change", "size", "time"])
        if how == "time":
            code = kill_after(start(line, log), choose.random() * straight.seconds)
        elif how == "change":
            code = run(line, log, folder=output.parent, kill_at=choose.randint(1, straight.changes))
        else:
            code = run(line, log, file_size=choose.randint(1, straight.size - 1))
        assert code == 0 or code in KILLS, log.read_text()

        # Nothing that is half written, and an earlier result until there is a new one.
        if old is not None or place.exists():
            assert command.read(place) in (straight.content, old)
        kept = {path: path.stat().st_mtime_ns for path in command.kept(output)}
        again = command.again(output)
        assert run(command.line(output) + again, log) == 0, log.read_text()
        assert command.read(place) == straight.content
        if "--overwrite_output_dir" not in again:
            assert all(path.stat().st_mtime_ns == changed for path, changed in kept.items() if path.exists())
        # What the killed process left in folders is gone.
        assert [path for path in output.parent.rglob(".*") if path.name == ".lock" or path.name.endswith(".partial")
                and path.is_dir()] == []  # fmt: skip
        return how, code

    return make


@pytest.mark.parametrize("name", QUICK)
def test_a_killed_command_ends_as_if_undisturbed(name, attack):
    for seed in range(QUICK[name]):
        attack(name, seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*QUICK, *SLOW])
def test_many_kills(name, attack):
    kills = [attack(name, 100 + number) for number in range(2 if "onnx" in name else MANY)]
    print(name, kills)
    assert any(code != 0 for _, code in kills)
