# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Every command that writes is killed, and given again: it ends with the bytes of an undisturbed run."""

import random
import shutil

import pytest
from harness import COMMANDS, KILLS, model_folder, run, slow

from hf_dse.common.files import LOCK_FILE
from hf_dse.training.base import complete_checkpoints


# Kills of each command in the long part, and of some in the quick one.
QUICK = {"score": 1, "mine": 1, "encode parquet": 1, "distill": 2, "whiten": 1}
KILLS_OF = [*QUICK.items(), *(slow(name, 5) for name in COMMANDS)]


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
        if choose.choice(["change", "change", "size"]) == "change":
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
        folders = [path for path in output.parent.rglob(".*.partial") if path.is_dir()]
        # The folder of vectors keeps its lock, for which other processes may wait.
        locks = [path for path in output.parent.rglob(LOCK_FILE) if not (path.parent / "vectors.sqlite").exists()]
        assert folders == locks == []

    return make


@pytest.mark.parametrize(("name", "number"), KILLS_OF)
def test_a_killed_command_ends_as_if_undisturbed(name, number, attack):
    for seed in range(number):
        attack(name, seed)


def test_an_old_folder_is_never_lost(commands, undisturbed, assets, tmp_path):
    """Killed at the last changes of files, among which the folders change their names."""
    command, straight = commands["export"], undisturbed("export")
    for kill_at in range(straight.changes - 2, straight.changes + 5):
        output, log = tmp_path / str(kill_at) / "out", tmp_path / "log"
        shutil.copytree(assets / "old", output)
        run(command.line(output), log, folder=output.parent, kill_at=kill_at)
        # Between two steps the old folder is in a hidden one, from which the next call takes it back.
        found = output if output.exists() else output.parent / ".out.partial" / "old"
        assert model_folder(found) in (model_folder(assets / "old"), straight.content)
        assert run(command.line(output), log) == 0 and model_folder(output) == straight.content


def test_a_checkpoint_that_is_written_again_is_none_until_then(commands, undisturbed, tmp_path):
    command, output, log = commands["distill"], tmp_path / "out", tmp_path / "log"
    line = [*command.line(output), "--save_total_limit", "100"]
    assert run(line, log) == 0
    for path in output.iterdir():
        if path.name not in ("checkpoint-3", "checkpoint-6"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    limit = (output / "checkpoint-6" / "optimizer.pt").stat().st_size - 1
    assert run([*line, "--resume_from_checkpoint", str(output / "checkpoint-3")], log, file_size=limit) in KILLS
    assert [path.name for path in complete_checkpoints(output)] == ["checkpoint-3"]
    assert run([*line, "--resume_from_checkpoint", "last"], log) == 0, log.read_text()
    assert command.read(command.place(output)) == undisturbed("distill").content


def test_half_deleted_checkpoints_are_none(commands, undisturbed, tmp_path):
    command, straight = commands["distill"], undisturbed("distill")
    whole = {path.name: model_folder(path).keys() for path in complete_checkpoints(straight.output)}
    for kill_at in range(4, 44, 16):
        output = tmp_path / str(kill_at) / "out"
        shutil.copytree(straight.output, output)
        line = [*command.line(output), "--overwrite_output_dir", "true"]
        assert run(line, tmp_path / "log", folder=output.parent, kill_at=kill_at) in KILLS
        assert all(model_folder(path).keys() == whole[path.name] for path in complete_checkpoints(output))


@pytest.mark.slow
def test_stages_of_an_earlier_recipe_are_not_taken_for_those_of_a_killed_one(commands, undisturbed, tmp_path):
    command, straight = commands["distill recipe"], undisturbed("distill recipe")
    output, log = tmp_path / "out", tmp_path / "log"
    assert run([*command.line(output), "--learning_rate", "1e-2"], log) == 0
    assert model_folder(command.place(output)) != straight.content
    # Refused at once, not after the first stage.
    shutil.move(output / "1-general", tmp_path)
    assert run(command.line(output), log) == 2
    assert f"The output folder {output}/2-pairs is not empty" in log.read_text()
    shutil.move(tmp_path / "1-general", output)
    line = [*command.line(output), "--overwrite_output_dir", "true"]
    assert run(line, log, folder=output.parent, kill_at=straight.changes // 4) in KILLS
    assert run([*command.line(output), "--resume_from_checkpoint", "last"], log) == 0, log.read_text()
    assert model_folder(command.place(output)) == straight.content
