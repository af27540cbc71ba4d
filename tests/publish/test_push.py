# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Pushing model folders to a local Hub."""

import pytest
from hub import WRITER
from huggingface_hub import HfApi

from hf_dse import export, push_model
from hf_dse.common.settings import TextSettings, set_settings
from hf_dse_cli import main


# huggingface_hub's own way to send files.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

REPO = "user/tiny"


@pytest.fixture
def folder(tmp_path, make_model, bert_tokenizer):
    return export(make_model(projection_dim=6), tmp_path / "tiny", bert_tokenizer, model_id=REPO)


def files(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def published(hub, revision="main"):
    """Returns the files of the repository, except the initial ones."""
    content = dict(hub.repos[REPO].branches[revision][-1].files)
    del content[".gitattributes"]
    return content


def test_all_files_but_hidden_ones_are_uploaded(hub, folder):
    expected = files(folder)
    for name in (".env", "1_Pooling/.env", "__pycache__/modeling_dse.cpython-311.pyc"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("secret")
    commit = push_model(folder, REPO)
    assert published(hub) == expected
    branch = hub.repos[REPO].branches["main"]
    assert [entry.message for entry in branch] == ["initial commit", "Upload model"]
    assert commit == commit.commit_url == f"{hub.url}/{REPO}/commit/{branch[-1].oid}"
    assert not hub.repos[REPO].private


def test_lengths_of_the_model_before_go_with_it(hub, tmp_path, make_model, bert_tokenizer):
    """Or sentence-transformers would cut the texts of a model that has no such limits."""
    for lengths in ({"query_length": 6}, {}):
        model = make_model()
        set_settings(model, TextSettings(lengths=lengths))
        folder = export(model, tmp_path / str(len(lengths)), bert_tokenizer, model_id=REPO)
        push_model(folder, REPO)
        assert published(hub) == files(folder)
        assert ("sentence_bert_config.json" in files(folder)) == bool(lengths)


def test_private_repositories(hub, folder):
    push_model(folder, REPO, private=True)
    assert hub.repos[REPO].private
    push_model(folder, REPO, private=True)
    HfApi(endpoint=hub.url, token=WRITER).create_repo("user/public")
    with pytest.raises(ValueError, match="user/public exists and is public"):
        push_model(folder, "user/public", private=True)
    assert set(hub.repos["user/public"].branches["main"][-1].files) == {".gitattributes"}


def test_a_missing_branch_is_created(hub, folder, capsys):
    assert main(["push", "--model", str(folder), "--repo_id", REPO, "--revision", "v2/draft"]) == 0
    commit = hub.repos[REPO].branches["v2/draft"][-1].oid
    assert capsys.readouterr().out == f"Pushed to {hub.url}/{REPO}/commit/{commit}\n"
    assert published(hub) == {}
    assert published(hub, "v2/draft") == files(folder)


def test_incomplete_or_invalid_folders_are_errors(hub, folder):
    (folder / "optimizer.pt").write_bytes(b"state")
    with pytest.raises(ValueError, match=r"has training state \(optimizer.pt\), which is not published: write"):
        push_model(folder, REPO)
    (folder / "optimizer.pt").unlink()
    (folder / "README.md").unlink()
    with pytest.raises(FileNotFoundError, match="tiny is incomplete, missing README.md: write the folder"):
        push_model(folder, REPO)
    assert not hub.requests


def test_without_a_token(hub, folder, monkeypatch, capsys):
    monkeypatch.delenv("HF_TOKEN")
    command = ["push", "--model", str(folder), "--repo_id", REPO]
    for token in ([], ["--token", "hf_wrong"]):
        assert main([*command, *token]) == 2
        error = capsys.readouterr().err
        assert error.startswith("hf-dse push: error: ") and "401" in error
        assert error.count("\n") == 1 and "hf_wrong" not in error


def test_a_training_publishes_no_notes(hub, tmp_path, save_bert):
    """Checkpoints and the model that `--push_to_hub` publishes have neither paths, nor the state of the training."""
    command = f"distill --model {save_bert(tmp_path / 'encoder')} --dataset embedded --max_length 16 --use_cpu"
    command += " --max_train_samples 4 --max_eval_samples 4 --distillation_alpha 0 --max_steps 1 --save_steps 1"
    command += f" --save_strategy steps --eval_strategy no --report_to none --output_dir {tmp_path / 'run'}"
    assert main([*command.split(), "--push_to_hub", "true", "--hub_model_id", REPO]) == 0
    assert {"results.json", "model", "checkpoint-1"} <= {path.name for path in (tmp_path / "run").iterdir()}
    commits = [entry for entry in hub.repos[REPO].branches["main"] if entry.message != "initial commit"]
    assert commits and published(hub) == files(tmp_path / "run" / "model")
    for entry in commits:
        names = {name for name in entry.files if name.endswith((".bin", ".pt", ".pth")) or "trainer_state" in name}
        assert names == set() and not any("results.json" in name for name in entry.files)
