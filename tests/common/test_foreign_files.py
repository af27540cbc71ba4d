# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Model folders that somebody else wrote run no code without `trust_remote_code`."""

import json
import re
import shutil
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import BertForSequenceClassification

from hf_dse.retrieval.bm25 import Bm25Index
from hf_dse_cli import main


class Bomb:
    """Its pickle makes a file when it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.fixture
def trap(tmp_path):
    """A file that exists once foreign code has run."""
    yield tmp_path / "code has run"
    assert not (tmp_path / "code has run").exists()


COMMANDS = [
    "convert --model {model} --output_dir {out}",
    "encode --model {model} --input {texts} --output {out}.npy",
    "score --model {model} --dataset embedded --num_labels 1 --output_file {out}.jsonl",
    "distill --model {model} --dataset embedded --output_dir {out}",
]


@pytest.fixture
def run(tmp_path, capsys):
    """Runs a command with a model, which has to fail, and returns the error."""
    (tmp_path / "texts.txt").write_text("the cat\na dog\n")

    def run(command, model):
        command = command.format(model=model, out=tmp_path / "out", texts=tmp_path / "texts.txt")
        assert main(command.split()) == 2
        return capsys.readouterr().err

    return run


@pytest.fixture
def save_model(save_bert, tmp_path):
    """Saves the kind of model that a command takes."""

    def save(command):
        if command.startswith("score"):
            return save_bert(tmp_path / "model", BertForSequenceClassification, num_labels=1)
        return save_bert(tmp_path / "model")

    return save


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.split(" --")[0])
def test_weights_are_safetensors_only(run, save_model, trap, command):
    folder = save_model(command)
    weights = {**load_file(folder / "model.safetensors"), "bomb": Bomb(trap)}
    torch.save(weights, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    assert "model.safetensors" in run(command, folder)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.split(" --")[0])
def test_code_of_a_model_needs_trust(run, save_model, trap, command):
    folder = save_model(command)
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "theirs", "auto_map": {"AutoConfig": "theirs.Config", "AutoModel": "theirs.Model"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "theirs.py").write_text(f"open({str(trap)!r}, 'w')\n")
    assert re.search("trust_(remote_)?code", run(command, folder))


@pytest.mark.parametrize("command", COMMANDS[1:-1], ids=lambda command: command.split(" --")[0])
def test_code_of_a_module_needs_trust(run, save_model, trap, command, monkeypatch):
    """A folder of sentence-transformers names the classes of its modules."""
    folder = save_model(command)
    monkeypatch.syspath_prepend(folder)
    (folder / "theirs.py").write_text(f"open({str(trap)!r}, 'w')\n")
    kind = "CrossEncoder" if command.startswith("score") else "SentenceTransformer"
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"model_type": kind, "prompts": {}}))
    (folder / "modules.json").write_text(json.dumps([{"idx": 0, "name": "0", "path": "", "type": "theirs.Module"}]))
    assert "theirs.Module" in run(command, folder)


@pytest.fixture(scope="module")
def trained(save_bert, tmp_path_factory):
    """A command that trains for two steps, and a folder with its checkpoints."""
    folder = tmp_path_factory.mktemp("trained")
    command = f"distill --model {save_bert(folder / 'encoder')} --dataset embedded --max_length 16"
    command += " --max_train_samples 8 --distillation_alpha 0 --per_device_train_batch_size 4 --max_steps 2"
    command += " --save_strategy steps --save_steps 1 --save_total_limit 3 --eval_strategy no --report_to none"
    command += " --max_eval_samples 8 --use_cpu --disable_tqdm true --output_dir"
    assert main([*command.split(), str(folder / "run")]) == 0
    return command.split(), folder / "run"


@pytest.mark.parametrize("file", ["optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin"])
def test_a_poisoned_checkpoint_runs_no_code(trained, tmp_path, trap, file, capsys):
    command, folder = trained
    shutil.copytree(folder, tmp_path / "run")
    checkpoint = tmp_path / "run" / "checkpoint-1"
    # Our checkpoints have no pickle of their arguments, and one from outside is not read.
    assert (checkpoint / file).exists() == (file != "training_args.bin")
    torch.save({"bomb": Bomb(trap)}, checkpoint / file)
    code = main([*command, str(tmp_path / "run"), "--resume_from_checkpoint", str(checkpoint)])
    error = capsys.readouterr().err
    if file == "training_args.bin":
        assert code == 0
    else:
        # torch advises to read the pickle with its code.
        assert code == 2 and f"{checkpoint} cannot be resumed from" in error and "weights_only" not in error


def test_kept_words_have_no_objects(tmp_path, trap, warnings):
    """An array of objects is a pickle, here with the right checksum."""
    pytest.importorskip("bm25s")
    folder = tmp_path / Bm25Index(["a cat", "a dog"], tmp_path).name
    sums = json.loads((folder / "checksums.json").read_text())
    for file in folder.glob("*.npy"):
        np.save(file, np.array([Bomb(trap)], dtype=object))
        sums[file.name] = zlib.crc32(file.read_bytes())
    (folder / "checksums.json").write_text(json.dumps(sums))
    assert Bm25Index(["a cat", "a dog"], tmp_path).words(["cat"])
    assert warnings == [f"{folder}: the kept words are damaged, and are made anew."]
