# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Pushing model folders to a local Hub in one commit, and loading them from there without hf_dse."""

import json
import os
import subprocess
import sys

import pytest
import torch
from hub import CUT, LOST, READER, USER, WRITER, Hub
from huggingface_hub import HfApi

from hf_dse import export_model, push_model
from hf_dse.convert.student import CODE_FILES
from hf_dse_cli import main


# huggingface_hub's own way to send files.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

REPO = "user/tiny"
TEXTS = ["a cat sat on the mat", "dog", "the old house is in the new house and the cat ran of a mat"]


@pytest.fixture
def no_waiting(monkeypatch):
    """Skips the pauses between retries of huggingface_hub, half a minute in total."""
    monkeypatch.setattr("time.sleep", lambda seconds: None)


@pytest.fixture
def folder(tmp_path, make_model, bert_tokenizer):
    return export_model(make_model(projection_dim=6), bert_tokenizer, tmp_path / "tiny", model_id=REPO)


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
    assert HfApi(endpoint=hub.url, token=WRITER).whoami()["name"] == USER


def test_pushing_again_commits_only_changes(hub, folder):
    first = push_model(folder, REPO)
    assert push_model(folder, REPO).oid == first.oid
    hub.repos[REPO].branches["main"][-1].files["notes.md"] = b"written on the Hub"
    (folder / "modules.json").write_text((folder / "modules.json").read_text() + "\n")
    second = push_model(folder, REPO, commit_message="A blank line")
    assert second.oid != first.oid
    assert [entry.message for entry in hub.repos[REPO].branches["main"]][1:] == ["Upload model", "A blank line"]
    assert published(hub) == {**files(folder), "notes.md": b"written on the Hub"}


def test_lengths_of_the_model_before_go_with_it(hub, tmp_path, make_model, bert_tokenizer):
    """Or sentence-transformers would cut the texts of a model that has no such limits."""
    for length in (6, None):
        model = make_model(query_length=length)
        folder = export_model(model, bert_tokenizer, tmp_path / str(length), model_id=REPO)
        push_model(folder, REPO)
        assert published(hub) == files(folder)
        assert ("sentence_bert_config.json" in files(folder)) == (length is not None)


def test_private_repositories(hub, folder):
    push_model(folder, REPO, private=True)
    assert hub.repos[REPO].private
    push_model(folder, REPO, private=True)
    HfApi(endpoint=hub.url, token=WRITER).create_repo("user/public")
    with pytest.raises(ValueError, match="user/public was not pushed: it already exists and is public, which `priv"):
        push_model(folder, "user/public", private=True)
    assert set(hub.repos["user/public"].branches["main"][-1].files) == {".gitattributes"}


def test_a_missing_branch_is_created(hub, folder):
    push_model(folder, REPO, revision="v2/draft")
    assert published(hub) == {}
    assert published(hub, "v2/draft") == files(folder)


def test_pull_requests_need_no_write_access(hub, folder):
    HfApi(endpoint=hub.url, token=WRITER).create_repo(REPO)
    commit = push_model(folder, REPO, create_pr=True, token=READER)
    assert commit.pr_url == f"{hub.url}/{REPO}/discussions/1"
    assert published(hub) == {}
    assert published(hub, "refs/pr/1") == files(folder)


def test_dry_run_sends_nothing(hub, folder, monkeypatch, capsys, warnings):
    monkeypatch.delenv("HF_TOKEN")
    sizes = {name: len(content) for name, content in files(folder).items()}
    assert push_model(folder, REPO, dry_run=True) == sizes
    assert main(["push", "--model_name_or_path", str(folder), "--repo_id", REPO, "--dry_run"]) == 0
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


def remove(name):
    return lambda folder: (folder / name).unlink()


def add(name):
    def change(folder):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"state")

    return change


def configure(**values):
    def change(folder):
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **values}))

    return change


def cut_weights(folder):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        *(
            (
                remove(name),
                FileNotFoundError,
                rf"tiny is incomplete, missing {name}: write the folder with `hf-dse exp",
            )
            for name in ("config.json", "model.safetensors", CODE_FILES[0], "README.md", "tokenizer_config.json")
        ),
        (add("optimizer.pt"), ValueError, r"has training state \(optimizer.pt\), which is not published: write"),
        (add("checkpoint-7/scheduler.pt"), ValueError, r"has training state \(checkpoint-7/scheduler.pt\)"),
        (configure(model_type="bert"), ValueError, "does not hold a DSE model with its code"),
        (configure(auto_map={}), ValueError, r"does not hold a DSE model with its code \(`auto_map`"),
        (lambda folder: (folder / "config.json").write_text("{"), ValueError, "config.json is not valid JSON"),
        (cut_weights, ValueError, "model.safetensors is damaged .*: write the folder with"),
    ],
)
def test_incomplete_or_invalid_folders_are_errors(hub, folder, change, error, message):
    change(folder)
    with pytest.raises(error, match=message):
        push_model(folder, REPO)
    assert not hub.requests


@pytest.mark.parametrize("repo_id", ["a/b/c", "user/my model", "user/a--b", "https://huggingface.co/a/b"])
def test_invalid_repository_names_are_errors(hub, folder, repo_id):
    with pytest.raises(ValueError, match=f"{repo_id!r} is not a valid repository name, such as `user/my-model`"):
        push_model(folder, repo_id)
    assert not hub.requests


@pytest.mark.parametrize("kind", [500, CUT])
@pytest.mark.parametrize(
    "request_",
    ["POST /api/repos/create", "POST /api/models/.*/preupload/", "PUT /lfs/", "POST /api/models/.*/commit/"],
)
def test_faults_publish_nothing_and_are_one_line(hub, folder, no_waiting, request_, kind):
    hub.fail(request_, kind)
    with pytest.raises(OSError) as caught:
        push_model(folder, REPO)
    message = str(caught.value)
    assert "\n" not in message and message.startswith("Pushing user/tiny failed: ")
    assert "The Hub has all files of a push or none." in message and "push again later" in message
    assert caught.value.__cause__ is not None
    assert REPO not in hub.repos or published(hub) == {}
    hub.faults.clear()
    push_model(folder, REPO)
    assert published(hub) == files(folder)


def test_a_commit_whose_answer_was_lost_is_not_repeated(hub, folder):
    hub.fail("POST /api/models/.*/commit/", LOST, times=1)
    with pytest.raises(OSError, match="The Hub has all files of a push or none"):
        push_model(folder, REPO)
    push_model(folder, REPO)
    assert len(hub.repos[REPO].branches["main"]) == 2
    assert published(hub) == files(folder)


@pytest.mark.parametrize(
    ("status", "error", "advice"),
    [
        (401, PermissionError, "Log in with `hf auth login`"),
        (403, PermissionError, "pass a `token` with write access"),
        (409, OSError, "push again later"),
    ],
)
def test_refusals_say_what_to_do(hub, folder, no_waiting, status, error, advice):
    hub.fail("POST /api/models/.*/commit/", status)
    with pytest.raises(error, match=f"HTTP {status} of .*injected fault.* {advice}"):
        push_model(folder, REPO)


def test_without_a_token(hub, folder, monkeypatch, capsys):
    monkeypatch.delenv("HF_TOKEN")
    command = ["push", "--model_name_or_path", str(folder), "--repo_id", REPO]
    assert main(command) == 2
    assert "user/tiny was not pushed: there is no token. Log in with `hf auth login`" in capsys.readouterr().err
    assert not hub.requests
    assert main([*command, "--token", "hf_wrong"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("hf-dse push: error: Pushing user/tiny failed: HTTP 401")
    assert error.count("\n") == 1 and "hf_wrong" not in error


LOADER = """
import json, sys

class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("hf_dse", "modeling"):
            raise ModuleNotFoundError(f"{name} is not installed here", name=name)

sys.meta_path.insert(0, NotInstalled())
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer

repo, texts = json.loads(sys.argv[1])
tokenizer = AutoTokenizer.from_pretrained(repo, trust_remote_code=True)
model = AutoModel.from_pretrained(repo, trust_remote_code=True)
with torch.inference_mode():
    pooled = model(**tokenizer(texts, padding=True, return_tensors="pt")).pooler_output
sentences = SentenceTransformer(repo, trust_remote_code=True, device="cpu").encode(texts)
print(json.dumps([pooled.tolist(), sentences.tolist()]))
"""


@pytest.mark.slow
def test_a_pushed_model_loads_in_other_programs(tmp_path, make_model, bert_tokenizer):
    """Separate processes with their own home folder: the command, and a user's program without hf_dse."""
    model = make_model(projection_dim=6)
    folder = export_model(model, bert_tokenizer, tmp_path / "tiny", model_id=REPO)

    def run(home, *command, **environment):
        settings = {
            "HF_HOME": str(tmp_path / home),
            "HF_HUB_OFFLINE": "0",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_UPDATE_CHECK": "1",
            "HF_HUB_DISABLE_XET": "1",
            # Other machines are unreachable.
            **{f"{scheme}_proxy": "http://127.0.0.1:9" for scheme in ("http", "https")},
            "no_proxy": "127.0.0.1",
        }
        process = subprocess.run(
            command, env={**os.environ, **settings, **environment}, cwd=tmp_path, capture_output=True, text=True
        )
        assert process.returncode == 0, process.stderr
        return process.stdout

    with Hub() as hub:
        program = [sys.executable, "-m", "hf_dse_cli", "push", "--model_name_or_path", "tiny", "--repo_id", REPO]
        printed = run("writer", *program, HF_ENDPOINT=hub.url, HF_TOKEN=WRITER)
        assert printed == f"Pushed to {hub.url}/{REPO}/commit/{hub.repos[REPO].branches['main'][-1].oid}\n"
        assert published(hub) == files(folder)
        arguments = json.dumps([REPO, TEXTS])
        printed = run("reader", sys.executable, "-I", "-c", LOADER, arguments, HF_ENDPOINT=hub.url, HF_TOKEN="")
        pooled, sentences = (torch.tensor(rows) for rows in json.loads(printed.splitlines()[-1]))
        with torch.inference_mode():
            batch = bert_tokenizer(TEXTS, padding=True, return_tensors="pt")
            expected = model.base_model(**batch).pooler_output
        torch.testing.assert_close(pooled, expected, rtol=0, atol=1e-6)
        torch.testing.assert_close(sentences, expected, rtol=0, atol=1e-6)
