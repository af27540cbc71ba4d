# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Pushing model folders to a Hub in one commit, and loading them from there without hf_dse."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from hub import CUT, GATEWAY, LOST, READER, USER, WRITER, Hub
from huggingface_hub import HfApi, constants
from huggingface_hub.errors import HfHubHTTPError

from hf_dse import DseForSequenceClassification, export_model, push_model
from hf_dse.common.files import LOCK_FILE
from hf_dse.student.checkpoint import CODE_FILES
from hf_dse_cli import main


# huggingface_hub's own way to send files.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

REPO = "user/tiny"
TEXTS = ["a cat sat on the mat", "dog", "the old house is in the new house and the cat ran of a mat"]


BOTH_WAYS = pytest.mark.parametrize("hub", ["LFS", "Xet"], indirect=True)


@pytest.fixture
def no_waiting(monkeypatch):
    """Skips the pauses between retries of huggingface_hub, half a minute in total."""
    monkeypatch.setattr("time.sleep", lambda seconds: None)


@pytest.fixture
def folder(tmp_path, make_model, bert_tokenizer):
    return export_model(make_model(projection_dim=6), bert_tokenizer, tmp_path / "tiny", model_id=REPO)


@pytest.fixture
def distill(tmp_path, make_model, bert_tokenizer):
    """Runs `hf-dse distill` of a tiny student for one epoch, with additional options of a test."""
    for name in ("train", "validation"):
        pairs = {"sentence1": TEXTS * 2, "sentence2": ["a cat"] * 6, "label": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]}
        Dataset.from_dict(pairs).to_json(tmp_path / f"{name}.jsonl")
    folder = export_model(make_model(num_labels=1), bert_tokenizer, tmp_path / "start")
    command = f"distill --model_name_or_path {folder} --train_file {tmp_path}/train.jsonl --validation_file {tmp_path}"
    command += f"/validation.jsonl --output_dir {tmp_path}/run --num_labels 1 --distillation_alpha 0 --use_cpu "
    command += "--max_length 32 --num_train_epochs 1 --report_to none"
    return lambda *options: main([*command.split(), *options])


def files(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def published(hub, revision="main"):
    """Returns the files of the repository, except the initial ones."""
    content = dict(hub.repos[REPO].branches[revision][-1].files)
    del content[".gitattributes"]
    return content


def times(hub, request):
    return sum(line.startswith(request) for line in hub.requests)


@BOTH_WAYS
def test_all_files_are_uploaded_in_one_commit(hub, folder):
    commit = push_model(folder, REPO)
    assert published(hub) == files(folder)
    assert (times(hub, "PUT /lfs/"), times(hub, f"GET /api/models/{REPO}/xet-write-token/main")) in [(1, 0), (0, 1)]
    assert (times(hub, "PUT /lfs/") == 1) == constants.HF_HUB_DISABLE_XET
    assert [entry.message for entry in hub.repos[REPO].branches["main"]] == ["initial commit", "Upload model"]
    assert commit == commit.commit_url == f"{hub.url}/{REPO}/commit/{hub.repos[REPO].branches['main'][-1].oid}"
    # Only the weights are a large file, as requested by the Hub.
    assert list(hub.blobs.values()) == [(folder / "model.safetensors").read_bytes()]
    assert not hub.repos[REPO].private
    assert HfApi(endpoint=hub.url, token=WRITER).whoami()["name"] == USER


@BOTH_WAYS
def test_one_commit_whatever_the_number_of_files(hub, folder):
    """`upload_folder` makes several commits if hf_xet is installed."""
    (folder / "figures").mkdir()
    for number in range(300):
        (folder / "figures" / f"{number}.svg").write_text(f"<svg>{number}</svg>")
    push_model(folder, REPO)
    assert len(hub.repos[REPO].branches["main"]) == 2
    assert published(hub) == files(folder)


def test_hidden_and_compiled_files_are_not_uploaded(hub, folder):
    expected = files(folder)
    for name in (".env", ".git/config", ".ipynb_checkpoints/README.md", "__pycache__/modeling_dse.cpython-311.pyc"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("secret")
    (folder / "onnx").mkdir()
    (folder / "onnx" / "model.onnx").write_bytes(b"graph")
    push_model(folder, REPO)
    assert published(hub) == {**expected, "onnx/model.onnx": b"graph"}


@BOTH_WAYS
def test_pushing_again_commits_only_changes(hub, folder):
    first = push_model(folder, REPO)
    assert push_model(folder, REPO).oid == first.oid
    branch = hub.repos[REPO].branches["main"]
    branch[-1].files["notes.md"] = b"written on the Hub"
    (folder / "modules.json").write_text((folder / "modules.json").read_text() + "\n")
    second = push_model(folder, REPO, commit_message="A blank line")
    assert second.oid != first.oid
    assert [entry.message for entry in hub.repos[REPO].branches["main"]][1:] == ["Upload model", "A blank line"]
    assert published(hub) == {**files(folder), "notes.md": b"written on the Hub"}
    # The weights have not changed.
    assert times(hub, "PUT /lfs/") + len(list(Path(hub.xet.name).rglob("xorbs/default.*[0-9a-f]"))) == 1


def test_lengths_of_the_model_before_go_with_it(hub, tmp_path, make_model, bert_tokenizer):
    """Or sentence-transformers would cut the texts of a model that has no such limits."""
    folders = {}
    for length in (6, None):
        model = make_model(query_length=length)
        folders[length] = export_model(model, bert_tokenizer, tmp_path / str(length), model_id=REPO)
        push_model(folders[length], REPO)
        assert published(hub) == files(folders[length])
    assert ["sentence_bert_config.json" in files(folder) for folder in folders.values()] == [True, False]


def test_private_repositories(hub, folder):
    push_model(folder, REPO, private=True)
    assert hub.repos[REPO].private
    push_model(folder, REPO, private=True)


def test_private_does_not_push_to_a_public_repository(hub, folder):
    HfApi(endpoint=hub.url, token=WRITER).create_repo(REPO)
    with pytest.raises(ValueError, match="user/tiny was not pushed: it already exists and is public, which `private`"):
        push_model(folder, REPO, private=True)
    assert published(hub) == {} and not hub.blobs


@BOTH_WAYS
def test_a_missing_branch_is_created(hub, folder):
    push_model(folder, REPO, revision="v2/draft")
    assert published(hub) == {}
    assert published(hub, "v2/draft") == files(folder)
    (folder / "LICENSE").write_text("Apache-2.0")
    push_model(folder, REPO, revision="v2/draft")
    assert published(hub, "v2/draft") == files(folder)


@BOTH_WAYS
def test_pull_requests_need_no_write_access(hub, folder):
    HfApi(endpoint=hub.url, token=WRITER).create_repo(REPO)
    commit = push_model(folder, REPO, create_pr=True, token=READER)
    assert commit.pr_url == f"{hub.url}/{REPO}/discussions/1"
    assert published(hub) == {}
    assert published(hub, "refs/pr/1") == files(folder)
    (folder / "LICENSE").write_text("Apache-2.0")
    push_model(folder, REPO, revision="refs/pr/1")
    assert published(hub, "refs/pr/1") == files(folder)


def test_a_name_without_an_owner_belongs_to_the_user(hub, folder):
    assert push_model(folder, "tiny").repo_url.repo_id == REPO
    assert published(hub) == files(folder)


def test_dry_run_sends_nothing(hub, folder, monkeypatch, capsys):
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
    assert not hub.requests


def test_warns_if_the_card_has_another_name(folder, caplog, monkeypatch):
    monkeypatch.setattr("hf_dse.publish.push.logger.parent.propagate", True)
    push_model(folder, REPO, dry_run=True)
    assert not caplog.messages
    push_model(folder, "user/other", dry_run=True)
    assert "README.md does not mention user/other, so its examples load the model under another name" in caplog.text


def remove(*names):
    def change(folder):
        for name in names:
            (folder / name).unlink()

    return change


def add(*names):
    def change(folder):
        for name in names:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(b"state")

    return change


def configure(**values):
    def change(folder):
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **values}))

    return change


def add_text(name, text):
    return lambda folder: (folder / name).write_text(text)


def cut_weights(folder):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        *(
            (remove(name), FileNotFoundError, rf"tiny is incomplete, missing {name}: write it with `hf-dse export`")
            for name in ("config.json", "model.safetensors", *CODE_FILES, "README.md")
            + ("modules.json", "tokenizer.json", "tokenizer_config.json", "1_Pooling/config.json")
        ),
        (remove("modeling_dse.py", "README.md"), FileNotFoundError, "missing modeling_dse.py, README.md"),
        (
            add("optimizer.pt", "rng_state_0.pth", "trainer_state.json"),
            ValueError,
            r"has training state \(optimizer.pt, rng_state_0.pth, trainer_state.json\), which cannot be "
            r"published: write a model folder from the checkpoint with `hf-dse export` first",
        ),
        (add("checkpoint-7/scheduler.pt"), ValueError, r"has training state \(checkpoint-7/scheduler.pt\)"),
        (configure(model_type="bert"), ValueError, "of type 'bert', but only DSE models can be pushed"),
        (configure(auto_map=None), ValueError, r"does not name the code of the model \(`auto_map`\)"),
        *(
            (add_text(name, text), ValueError, message)
            for name, text, message in (
                ("config.json", "{", "config.json is not valid JSON"),
                ("tokenizer_config.json", "[1]", "tokenizer_config.json has to hold an object, and it holds a list"),
                ("modules.json", "{}", "modules.json has to hold a list, and it holds a dict"),
                ("1_Pooling/config.json", "", "1_Pooling/config.json is not valid JSON"),
            )
        ),
        (lambda folder: (folder / "README.md").write_bytes(b"\xff"), ValueError, "README.md"),
        (cut_weights, ValueError, "model.safetensors is damaged .*: write the folder again"),
    ],
)
def test_incomplete_or_invalid_folders_are_errors(hub, folder, change, error, message):
    change(folder)
    with pytest.raises(error, match=message):
        push_model(folder, REPO)
    assert not hub.requests


def test_a_path_that_is_not_a_folder_is_an_error(hub, tmp_path):
    for name in ("missing", "file"):
        (tmp_path / "file").touch()
        with pytest.raises(FileNotFoundError, match=f"{name} is not a folder: write one with `hf-dse export`"):
            push_model(tmp_path / name, REPO)
    assert not hub.requests


@pytest.mark.parametrize(
    "repo_id", ["a/b/c", "user/", "user/my model", "user/a--b", "-x", "https://huggingface.co/a/b"]
)
def test_invalid_repository_names_are_errors(hub, folder, repo_id):
    with pytest.raises(ValueError, match=f"{repo_id!r} is not a valid repository name: use a name such as"):
        push_model(folder, repo_id)
    assert not hub.requests


@pytest.mark.parametrize("kind", [500, 503, CUT, LOST])
@pytest.mark.parametrize(
    "request_", ["POST /api/models/.*/preupload/", "POST .*/objects/batch", "PUT /lfs/", "POST /lfs/verify"]
)
def test_temporary_faults_are_retried(hub, folder, no_waiting, request_, kind):
    hub.fail(request_, kind, times=2)
    push_model(folder, REPO)
    assert published(hub) == files(folder)
    assert len(hub.repos[REPO].branches["main"]) == 2


@pytest.mark.parametrize("hub", ["Xet"], indirect=True)
@pytest.mark.parametrize("kind", [500, GATEWAY, CUT, LOST, 403])
def test_faults_of_xet(hub, folder, kind):
    hub.fail("GET .*/xet-write-token/", kind)
    with pytest.raises(
        OSError, match=r"^Pushing user/tiny failed: .*/xet-write-token/main.* No file was published"
    ) as e:
        push_model(folder, REPO)
    assert "\n" not in str(e.value) and published(hub) == {}
    hub.faults.clear()
    if kind != 403:
        hub.fail("GET .*/xet-write-token/", kind, times=2)
    push_model(folder, REPO)
    assert published(hub) == files(folder) and len(hub.repos[REPO].branches["main"]) == 2


@pytest.mark.parametrize("kind", [500, GATEWAY, CUT])
@pytest.mark.parametrize(
    "request_",
    [
        "POST /api/repos/create",
        "POST /api/validate-yaml",
        "POST /api/models/.*/preupload/",
        "POST .*/objects/batch",
        "PUT /lfs/",
        "POST /lfs/verify",
        "POST /api/models/.*/commit/",
    ],
)
def test_permanent_faults_publish_nothing(hub, folder, no_waiting, request_, kind):
    hub.fail(request_, kind)
    with pytest.raises(OSError) as caught:
        push_model(folder, REPO)
    message = str(caught.value)
    assert "\n" not in message and message.startswith("Pushing user/tiny failed: ")
    assert caught.value.__cause__ is not None
    # The answer to the metadata of the card is read before its status.
    is_page = kind == GATEWAY and "yaml" in request_
    if kind == CUT:
        assert f"the connection to {hub.url} failed (" in message and "Check the network and its proxies" in message
    elif is_page:
        assert f"the response of {hub.url} is not that of a Hub" in message and "Push again later; " in message
    else:
        reason = "injected fault" if kind == 500 else "Server error '502 Bad Gateway' for url"
        assert f"the Hub has a server error (HTTP {kind}: {reason}" in message and message.endswith(
            "Push again later."
        )
    # Without an answer to the commit, the outcome is unknown.
    is_certain = "commit" not in request_ and not is_page
    assert ("No file was published." in message) == is_certain
    assert (f"not known whether the commit was made; see {hub.url}/{REPO}. It has all" in message) != is_certain
    assert REPO not in hub.repos or published(hub) == {}

    hub.faults.clear()
    push_model(folder, REPO)
    assert published(hub) == files(folder)


@BOTH_WAYS
def test_a_commit_whose_answer_was_lost_is_not_repeated(hub, folder):
    hub.fail("POST /api/models/.*/commit/", LOST, times=1)
    with pytest.raises(OSError, match="It is not known whether the commit was made; see .*It has all files or none"):
        push_model(folder, REPO)
    assert published(hub) == files(folder)
    push_model(folder, REPO)
    assert len(hub.repos[REPO].branches["main"]) == 2


@pytest.mark.parametrize(
    ("token", "repo_id", "message"),
    [
        (
            "hf_wrong",
            REPO,
            r"failed: the Hub does not accept the token \(HTTP 401: Invalid credentials in Authorization header\). No "
            r"file was published. Log in with `hf auth login` or pass a valid `token`",
        ),
        (
            READER,
            REPO,
            r"failed: the token has no write access to it \(HTTP 403: .* No file .* Use a token with write access",
        ),
        (
            WRITER,
            "other/tiny",
            r"the token has no write access to it \(HTTP 403: You do not have the rights to create a model",
        ),
    ],
)
@pytest.mark.parametrize("is_there", [False, True])
def test_rejected_tokens(hub, folder, token, repo_id, message, is_there):
    if is_there and repo_id == REPO:
        HfApi(endpoint=hub.url, token=WRITER).create_repo(REPO)
    with pytest.raises(PermissionError, match=message) as caught:
        push_model(folder, repo_id, token=token)
    # The error of huggingface_hub is the cause.
    assert isinstance(caught.value.__cause__, HfHubHTTPError)
    assert not hub.blobs and all(len(repo.branches["main"]) == 1 for repo in hub.repos.values())


def test_needs_a_token(hub, folder, monkeypatch):
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(PermissionError, match="user/tiny was not pushed: there is no token. Log in with `hf"):
        push_model(folder, REPO)
    assert not hub.requests


def test_other_rejections(hub, folder):
    with pytest.raises(OSError, match=r"no such repository or revision, or hides it .*: Invalid rev id: refs/pr/9"):
        push_model(folder, REPO, revision="refs/pr/9")
    hub.fail("POST .*/commit/", 412, times=1)
    with pytest.raises(OSError, match=r"another commit was pushed meanwhile \(HTTP 412: .* No file .* Push again.$"):
        push_model(folder, REPO)
    hub.fail("POST .*/commit/", 413, times=1)
    with pytest.raises(OSError, match=r"the Hub rejected it \(HTTP 413: injected fault\). No file was published"):
        push_model(folder, REPO)
    (folder / "README.md").write_text(f"---\ntags: [\n---\n{REPO}\n")
    with pytest.raises(OSError, match=r"Invalid metadata in README.md. - .*line.* No file was published.$"):
        push_model(folder, REPO)
    assert published(hub) == {}


def test_an_unreachable_hub(hub, folder, monkeypatch):
    with Hub() as other:
        pass
    monkeypatch.setattr(constants, "ENDPOINT", other.url)
    with pytest.raises(OSError, match=rf"connection to {other.url} failed \(.*refused\). No file .* Check"):
        push_model(folder, REPO)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(OSError, match="offline mode is enabled.* unset the `HF_HUB_OFFLINE` .* No file was published"):
        push_model(folder, REPO)


def test_command(hub, folder, capsys):
    command = ["push", "--model_name_or_path", str(folder), "--repo_id", REPO]
    assert main([*command, "--private", "--commit_message", "First", "--token", WRITER]) == 0
    assert capsys.readouterr().out == f"Pushed to {hub.url}/{REPO}/commit/{hub.repos[REPO].branches['main'][-1].oid}\n"
    assert hub.repos[REPO].private and hub.repos[REPO].branches["main"][-1].message == "First"
    (folder / "LICENSE").write_text("Apache-2.0")
    assert main([*command, "--create_pr"]) == 0
    assert capsys.readouterr().out == f"Pushed to {hub.url}/{REPO}/discussions/1\n"
    assert main([*command, "--revision", "next"]) == 0
    assert published(hub, "next") == files(folder)

    capsys.readouterr()
    assert main([*command, "--token", "hf_wrong"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("hf-dse push: error: Pushing user/tiny failed: the Hub does not accept the token")
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


MTEB = """
import json, sys
import hf_dse, mteb

repo, texts = json.loads(sys.argv[1])
model = mteb.get_model(repo, trust_remote_code=True, device="cpu")
print(json.dumps([model.mteb_model_meta.name, model.model.encode(texts).tolist()]))
"""


@BOTH_WAYS
def test_training_pushes_checkpoints_and_then_the_model(hub, distill, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("of an earlier run")
    options = ["--push_to_hub", "true", "--hub_model_id", REPO, "--hub_token", WRITER, "--overwrite_output_dir"]
    assert distill(*options) == 0
    _, checkpoint, model = hub.repos[REPO].branches["main"]
    assert checkpoint.message == "Training in progress, epoch 1" and LOCK_FILE not in checkpoint.files
    for name, content in checkpoint.files.items():
        (tmp_path / "checkpoint" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "checkpoint" / name).write_bytes(content)
    loaded, info = DseForSequenceClassification.from_pretrained(tmp_path / "checkpoint", output_loading_info=True)
    assert not any(info.values()) and {"modeling_dse.py", "configuration_dse.py"} <= set(checkpoint.files)
    for name, content in files(tmp_path / "run" / "model").items():
        assert model.files[name] == content
    assert f'"{REPO}"' in model.files["README.md"].decode() and "pearson" in model.files["README.md"].decode()
    # Nothing else that is in the folder, no pickle and no token.
    assert set(checkpoint.files) | {"README.md"} == {*files(tmp_path / "run" / "model"), ".gitattributes"}
    for content in (*files(tmp_path / "run").values(), *model.files.values()):
        assert WRITER.encode() not in content


def test_checkpoints_that_are_pushed_to_resume_have_no_pickle_of_the_arguments(hub, distill):
    assert distill("--push_to_hub", "true", "--hub_model_id", REPO, "--hub_strategy", "checkpoint") == 0
    names = {Path(name).name for name in published(hub) if name.startswith("last-checkpoint/")}
    assert {"optimizer.pt", "trainer_state.json", "model.safetensors", "modeling_dse.py"} <= names
    assert "training_args.bin" not in names


@pytest.mark.slow
def test_a_pushed_model_loads_in_other_programs(tmp_path, make_model, bert_tokenizer):
    """Separate processes with their own home folder: the command, a user's program, mteb, `hf download`."""
    model = make_model(projection_dim=6)
    folder = export_model(model, bert_tokenizer, tmp_path / "tiny", model_id=REPO)
    programs = Path(sys.executable).parent

    def run(home, *command, **environment):
        settings = {
            "HF_HOME": str(tmp_path / home),
            "HF_HUB_OFFLINE": "0",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_UPDATE_CHECK": "1",
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
        hub.fail("POST /api/models/.*/preupload/", 500, times=1)
        hub.fail("PUT /lfs/|GET .*/xet-write-token/", CUT, times=1)
        options = ["--model_name_or_path", "tiny", "--repo_id", REPO]
        printed = run("writer", programs / "hf-dse", "push", *options, HF_ENDPOINT=hub.url, HF_TOKEN=WRITER)
        assert printed == f"Pushed to {hub.url}/{REPO}/commit/{hub.repos[REPO].branches['main'][-1].oid}\n"
        assert published(hub) == files(folder)

        printed = run(
            "reader", sys.executable, "-I", "-c", LOADER, json.dumps([REPO, TEXTS]), HF_ENDPOINT=hub.url, HF_TOKEN=""
        )
        pooled, sentences = (torch.tensor(rows) for rows in json.loads(printed.splitlines()[-1]))
        with torch.inference_mode():
            batch = bert_tokenizer(TEXTS, padding=True, return_tensors="pt")
            expected = model.base_model(**batch).pooler_output
        torch.testing.assert_close(pooled, expected, rtol=0, atol=1e-6)
        torch.testing.assert_close(sentences, expected, rtol=0, atol=1e-6)

        printed = run("mteb", sys.executable, "-c", MTEB, json.dumps([REPO, TEXTS]), HF_ENDPOINT=hub.url, HF_TOKEN="")
        name, sentences = json.loads(printed.splitlines()[-1])
        assert name == REPO
        torch.testing.assert_close(torch.tensor(sentences), expected, rtol=0, atol=1e-6)

        run("other", programs / "hf", "download", REPO, "--local-dir", "copy", HF_ENDPOINT=hub.url, HF_TOKEN="")
        copy = {name: content for name, content in files(tmp_path / "copy").items() if not name.startswith(".")}
        assert copy == files(folder)
