# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Files that leave the machine: no paths, names or tokens of it, no files from elsewhere, and no code but our own."""

import json
import sys
from pathlib import Path

import pytest
from hub import WRITER
from huggingface_hub import metadata_load
from transformers import BertForSequenceClassification

from hf_dse import DseModel, convert_encoder, export
from hf_dse_cli import main


PAIRS = [{"sentence1": "the cat", "sentence2": f"a dog {number}", "label": number} for number in range(4)]


@pytest.fixture
def home(tmp_path):
    """A folder whose path must not be in anything that is published."""
    folder = tmp_path / "home" / "alice" / "secret-project"
    folder.mkdir(parents=True)
    return folder


def assert_anonymous(folder, *allowed):
    """No file of a folder has a path of this machine or a token."""
    for path in sorted(folder.rglob("*") if folder.is_dir() else [folder]):
        if path.is_file() and path.name not in allowed:
            content = path.read_bytes()
            for word in ("alice", str(Path(__file__).parents[2]), sys.prefix, WRITER):
                assert word.encode() not in content, f"{path.name} has {word}"


def test_a_distilled_model_is_anonymous(home, save_bert, monkeypatch, capsys):
    source = save_bert(home / "my-encoder")
    teacher = save_bert(home / "my-teacher", BertForSequenceClassification, num_labels=1)
    for split in ("train", "validation"):
        (home / "pairs").mkdir(exist_ok=True)
        (home / "pairs" / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in PAIRS))
    command = ["distill", "--model", str(source), "--teacher", str(teacher), "--num_labels"]
    command += ["1", "--dataset", str(home / "pairs"), f"--output_dir={home / 'run'}", "--max_length", "16"]
    command += ["--use_cpu", "--report_to", "none", "--max_steps", "1", "--hub_token", WRITER, f"--hub_token={WRITER}"]
    monkeypatch.setattr(sys, "argv", ["hf-dse", *command])
    assert main(command) == 0
    assert_anonymous(home / "run" / "model")
    card = home / "run" / "model" / "README.md"
    # The Hub would look up what a card calls its base.
    assert metadata_load(card).get("base_model") is None
    text = card.read_text()
    assert "It was converted from my-encoder." in text and "my-teacher" in text
    # The checkpoints too, but for the state of the Trainer, which names the best of them.
    assert_anonymous(home / "run" / "checkpoint-1", "trainer_state.json")


def test_vectors_and_scores_are_anonymous(home, make_model, bert_tokenizer, save_bert):
    export(make_model(), home / "my-model", bert_tokenizer)
    (home / "texts.txt").write_text("the cat\na dog\n")
    command = ["encode", "--model", str(home / "my-model"), "--input", str(home / "texts.txt")]
    assert main([*command, "--output", str(home / "out" / "vectors.parquet")]) == 0
    teacher = save_bert(home / "my-teacher", BertForSequenceClassification, num_labels=1)
    (home / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in PAIRS))
    command = ["score", "--model", str(teacher), "--train_file", str(home / "train.jsonl")]
    command += ["--num_labels", "1", "--max_length", "32", "--output_file", str(home / "out" / "scored.parquet")]
    assert main(command) == 0
    assert_anonymous(home / "out")


@pytest.mark.slow
def test_a_graph_is_anonymous(home, make_model, bert_tokenizer):
    """PyTorch notes for each operation which line of which file it is from."""
    pytest.importorskip("onnx")
    assert_anonymous(export(make_model(), home / "graph", bert_tokenizer, format="onnx", int8=True))


def test_code_of_others_is_not_passed_on(tmp_path, make_model, bert_tokenizer):
    """Who loads our model with `trust_remote_code` would run what its configs name."""
    folder = export(make_model(), tmp_path / "theirs", bert_tokenizer)
    theirs = {"AutoTokenizer": ["evil/repo--code.Tokenizer", None], "AutoModel": "evil/repo--code.Model"}
    for name in ("config.json", "tokenizer_config.json"):
        config = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**config, "auto_map": {**config.get("auto_map", {}), **theirs}}))
    assert main(["export", "--model", str(folder), "--output_dir", str(tmp_path / "ours")]) == 0
    for path in (tmp_path / "ours").glob("*.json"):
        assert "evil" not in path.read_text()


def test_a_revision_pins_a_model(hub, tmp_path, save_bert):
    """The first commit of a repository, while its branch has another model; cards keep it."""
    from huggingface_hub import HfApi

    api = HfApi(endpoint=hub.url, token=WRITER)
    api.create_repo("user/encoder")
    commits = []
    for name, fields in (("first", {}), ("second", {"hidden_act": "relu"})):
        folder = save_bert(tmp_path / name, **fields)
        commits.append(api.upload_folder(repo_id="user/encoder", folder_path=folder).oid)
    name = f"user/encoder@{commits[0]}"
    model = convert_encoder(name)
    assert (
        model.config.encoder.hidden_act == "gelu"
        and convert_encoder("user/encoder").config.encoder.hidden_act == "relu"
    )
    assert main(["convert", "--model", name, "--output_dir", str(tmp_path / "student")]) == 0
    assert DseModel.from_pretrained(tmp_path / "student").config.encoder.hidden_act == "gelu"
    card = tmp_path / "student" / "README.md"
    assert metadata_load(card)["base_model"] == "user/encoder"
    link = f"[{name}](https://huggingface.co/user/encoder/tree/{commits[0]})"
    assert f"It was converted from {link}." in card.read_text()
    (tmp_path / "texts.txt").write_text("the cat\n")
    encode = ["encode", "--input", str(tmp_path / "texts.txt"), "--output", str(tmp_path / "index.parquet")]
    assert main([*encode, "--model", name]) == 0
    assert main([*encode, "--model", "user/encoder@missing"]) == 2
