# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The example app over HTTP: many users at once, texts that are too long, uploads, and paths of files."""

import json
import re
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from transformers import BertForSequenceClassification

from hf_dse import DseForSequenceClassification, export


pytest.importorskip("gradio")
pytestmark = pytest.mark.slow

APP = Path(__file__).parents[2] / "examples" / "app.py"
COMPARE, SEARCH, LONG_TEXT = "compare", "search", "long_text"
SECRET = "wombat"


@pytest.fixture(scope="module")
def app(tmp_path_factory, tiny_config, bert_tokenizer, save_bert, serve):
    folder = tmp_path_factory.mktemp("app")
    export(DseForSequenceClassification(tiny_config(bert_tokenizer)), folder / "student", bert_tokenizer)
    save_bert(folder / "teacher", BertForSequenceClassification, num_labels=1)
    (folder / "corpus.txt").write_text("the cat sat on the mat\na dog ran\n<script>alert(1)</script>")
    words = [APP, "--model", folder / "student", "--teacher", folder / "teacher", "--corpus", folder / "corpus.txt"]
    environment = {"GRADIO_TEMP_DIR": str(folder / "temporary"), "TMPDIR": str(folder)}
    with serve(words, folder, "/config", environment) as client:
        client.folder = folder
        yield client


def ask(client, tab, *data, user="user"):
    """Joins the queue as a page does, waits for the result, and returns the answer of the queue."""
    names = {entry["api_name"]: entry["id"] for entry in client.get("/config").json()["dependencies"]}
    question = {"data": data, "fn_index": names[tab], "session_hash": user, "event_data": None}
    joined = client.post(
        "/gradio_api/queue/join", content=json.dumps(question), headers={"content-type": "application/json"}
    )
    if joined.status_code != 200:
        return {"status": joined.status_code, "success": False}
    with client.stream("GET", "/gradio_api/queue/data", params={"session_hash": user}) as events:
        for line in events.iter_lines():
            event = json.loads(line.removeprefix("data:") or "{}") if line.startswith("data:") else {}
            if event.get("msg") == "process_completed":
                return event
    raise AssertionError("the stream ended without a result")


def test_fifty_users_at_once(app):
    def use(number):
        text, user = f"the cat and {number} dogs", f"user-{number}"
        compared = ask(app, COMPARE, text, text, user=user)
        found = ask(app, SEARCH, f"{SECRET} {number}", "", user=user)
        rows = ask(app, LONG_TEXT, text, 1, user=user)
        return [event["success"] and event["output"]["data"] for event in (compared, found, rows)]

    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(use, range(50)))
    for number, (compared, found, rows) in enumerate(answers):
        assert "1.000</td>" in compared[0] and "Teacher: score" in compared[0]
        assert "searched 3 texts" in found[0] and "&lt;script&gt;" in found[0] and "<script" not in found[0]
        # Each user has the answer to the own question.
        assert f"the cat and {number} dogs" in re.sub(r"<sup>\d+</sup>|<[^>]*>", "", rows[0])


def test_long_texts_and_other_types_are_refused_at_once(app):
    started = time.monotonic()
    refused = ask(app, COMPARE, "a " * 15_000, "b")
    assert refused["success"] is False and refused["output"]["error"] == "A text can have 20,000 characters."
    assert ask(app, SEARCH, "a" * 5_000_000, "")["status"] == 413
    assert ask(app, COMPARE, 5, None)["success"] is False
    assert ask(app, LONG_TEXT, "the cat", 10**9)["success"] is False
    refused = ask(app, SEARCH, "a" * 5_001, "b\nc")
    assert refused["output"]["error"] == "A query for several texts can have 5,000 characters."
    assert ask(app, SEARCH, "a", "b\n" * 201)["output"]["error"] == "These are 201 lines, and this page takes 200."
    assert time.monotonic() - started < 20
    assert ask(app, COMPARE, "the cat", "the cat")["success"]
    # A query longer than the student reads is truncated.
    assert "was truncated to 64." in ask(app, SEARCH, "cat " * 100, "")["output"]["data"][0]


@pytest.mark.parametrize("path", ["file=/etc/passwd", "file=../corpus.txt", "proxy=http://127.0.0.1:1/", "deep_link"])
def test_no_file_is_read(app, path):
    answer = app.get(f"/gradio_api/{path}", params={"session_hash": "user"})
    assert answer.status_code in (403, 404) and "root:" not in answer.text and "the cat" not in answer.text


@pytest.mark.parametrize("path", ["upload", "component_server"])
def test_no_file_is_taken(app, path):
    before = {file for file in app.folder.rglob("*") if file.is_file()}
    assert app.post(f"/gradio_api/{path}", files={"files": ("x.txt", b"a" * 1000)}).status_code == 403
    assert {file for file in app.folder.rglob("*") if file.is_file()} == before


def test_texts_of_users_are_not_kept(app):
    ask(app, COMPARE, SECRET, f"{SECRET} again")
    # An error, which would be logged with the text.
    for tab, others in ((COMPARE, ["a"]), (SEARCH, [SECRET]), (LONG_TEXT, [1])):
        refused = ask(app, tab, f"{SECRET} \ud800", *others)
        assert refused["success"] is False and "surrogates not allowed" in refused["output"]["error"]
    config = app.get("/config").json()
    assert config["run_history"] is False and config["analytics_enabled"] is False
    for file in app.folder.rglob("*"):
        assert not file.is_file() or SECRET.encode() not in file.read_bytes(), file.name
    assert not list(Path(tempfile.gettempdir(), "gradio").glob(f"*{SECRET}*"))
