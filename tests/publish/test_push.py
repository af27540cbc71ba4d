# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Pushing model folders to a local Hub in one commit."""

import pytest
from hub import CUT, WRITER
from huggingface_hub import HfApi

from hf_dse import export, push_model
from hf_dse.convert.student import CODE_FILES
from hf_dse_cli import main


# huggingface_hub's own way to send files.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

REPO = "user/tiny"


@pytest.fixture
def no_waiting(monkeypatch):
    """Skips the pauses between retries of huggingface_hub, half a minute in total."""
    monkeypatch.setattr("time.sleep", lambda seconds: None)


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


def test_all_files_are_uploaded_in_one_commit(hub, folder):
    expected = files(folder)
    for name in (".env", ".git/config", "__pycache__/modeling_dse.cpython-311.pyc"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("secret")
    for number in range(60):
        (folder / f"{number}.svg").write_text(f"<svg>{number}</svg>")
        expected[f"{number}.svg"] = f"<svg>{number}</svg>".encode()
    commit = push_model(folder, REPO)
    assert published(hub) == expected
    branch = hub.repos[REPO].branches["main"]
    assert [entry.message for entry in branch] == ["initial commit", "Upload model"]
    assert commit == commit.commit_url == f"{hub.url}/{REPO}/commit/{branch[-1].oid}"
    assert not hub.repos[REPO].private


def test_pushing_again_commits_only_changes(hub, folder):
    first = push_model(folder, REPO)
    assert push_model(folder, REPO).oid == first.oid
    hub.repos[REPO].branches["main"][-1].files["notes.md"] = b"written on the Hub"
    (folder / "modules.json").write_text((folder / "modules.json").read_text() + "\n")
    push_model(folder, REPO, commit_message="A blank line")
    assert [entry.message for entry in hub.repos[REPO].branches["main"]][1:] == ["Upload model", "A blank line"]
    assert published(hub) == {**files(folder), "notes.md": b"written on the Hub"}


def test_lengths_of_the_model_before_go_with_it(hub, tmp_path, make_model, bert_tokenizer):
    """Or sentence-transformers would cut the texts of a model that has no such limits."""
    for length in (6, None):
        model = make_model(query_length=length)
        folder = export(model, tmp_path / str(length), bert_tokenizer, model_id=REPO)
        push_model(folder, REPO)
        assert published(hub) == files(folder)
        assert ("sentence_bert_config.json" in files(folder)) == (length is not None)


def test_private_repositories(hub, folder):
    push_model(folder, REPO, private=True)
    assert hub.repos[REPO].private
    push_model(folder, REPO, private=True)
    HfApi(endpoint=hub.url, token=WRITER).create_repo("user/public")
    with pytest.raises(OSError, match="Pushing user/public failed: it exists and is public"):
        push_model(folder, "user/public", private=True)
    assert set(hub.repos["user/public"].branches["main"][-1].files) == {".gitattributes"}


def test_a_missing_branch_is_created(hub, folder):
    push_model(folder, REPO, revision="v2/draft")
    assert published(hub) == {}
    assert published(hub, "v2/draft") == files(folder)


def test_dry_run_sends_nothing(hub, folder, monkeypatch, capsys, warnings):
    monkeypatch.delenv("HF_TOKEN")
    sizes = {name: len(content) for name, content in files(folder).items()}
    assert push_model(folder, REPO, dry_run=True) == sizes
    assert main(["push", "--model", str(folder), "--repo_id", REPO, "--dry_run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {name: int(size.replace(",", "")) for size, name in map(str.split, lines[:-1])} == sizes
    assert lines[-1].split(maxsplit=1) == [
        f"{sum(sizes.values()):,}",
        f"bytes in {len(sizes)} files would be pushed to {REPO}",
    ]
    assert not warnings
    push_model(folder, "user/other", dry_run=True)
    assert "README.md does not mention user/other: its examples load the model under another name" in warnings[0]
    assert not hub.requests


def test_incomplete_or_invalid_folders_are_errors(hub, folder):
    (folder / "optimizer.pt").write_bytes(b"state")
    with pytest.raises(ValueError, match=r"has training state \(optimizer.pt\), which is not published: write"):
        push_model(folder, REPO)
    (folder / "optimizer.pt").unlink()
    (folder / CODE_FILES[0]).unlink()
    with pytest.raises(FileNotFoundError, match=f"tiny is incomplete, missing {CODE_FILES[0]}: write the folder"):
        push_model(folder, REPO)
    assert not hub.requests


@pytest.mark.parametrize("kind", [500, CUT])
@pytest.mark.parametrize("request_", ["POST /api/repos/create", "POST /api/models/.*/commit/"])
def test_faults_publish_nothing(hub, folder, no_waiting, request_, kind):
    hub.fail(request_, kind)
    with pytest.raises(OSError, match="Pushing user/tiny failed: .*The Hub has all files of a push or none."):
        push_model(folder, REPO)
    assert REPO not in hub.repos or published(hub) == {}
    hub.faults.clear()
    push_model(folder, REPO)
    assert published(hub) == files(folder)


def test_without_a_token(hub, folder, monkeypatch, capsys):
    monkeypatch.delenv("HF_TOKEN")
    command = ["push", "--model", str(folder), "--repo_id", REPO]
    for token in ([], ["--token", "hf_wrong"]):
        assert main([*command, *token]) == 2
        error = capsys.readouterr().err
        assert error.startswith("hf-dse push: error: Pushing user/tiny failed: ") and "401" in error
        assert error.count("\n") == 1 and "hf_wrong" not in error
