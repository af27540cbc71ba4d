# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The example app: its numbers, and what SECURITY.md promises of it, over HTTP."""

import html
import json
import re

import pytest
from sentence_transformers import CrossEncoder, SentenceTransformer
from transformers import BertForSequenceClassification

from hf_dse import DseForSequenceClassification, export, load_reranker
from hf_dse.modeling.modeling_dse import find_attentions


app = pytest.importorskip("app", exc_type=ImportError)
import app_pictures  # noqa: E402


CORPUS = [
    "the cat sat on the mat",
    "a dog ran",
    "the old <b>house</b> is new",
    "The old house.\n\nA dog ran. The cat.",
]
SECRET = "wombat"


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_config, bert_tokenizer, save_bert):
    folder = tmp_path_factory.mktemp("app")
    config = tiny_config(bert_tokenizer, linformer_projection="mean", initializer_range=0.2)
    export(DseForSequenceClassification(config), folder / "student", bert_tokenizer)
    save_bert(folder / "teacher", BertForSequenceClassification, num_labels=1)
    return folder


@pytest.fixture(scope="module")
def demo(folder):
    model = SentenceTransformer(str(folder / "student"), device="cpu")
    teacher = load_reranker(str(folder / "teacher"), device="cpu")
    return app.Demo(model, teacher, CORPUS, ["a.txt", "b.txt", "c.txt", "notes/d.md"])


@pytest.fixture(scope="module")
def client(demo, folder):
    httpx = pytest.importorskip("httpx")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADIO_TEMP_DIR", str(folder / "temporary"))
        patch.setattr("tempfile.tempdir", str(folder))
        _, url, _ = demo.launch(prevent_thread_lock=True, quiet=True)
        with httpx.Client(base_url=url, timeout=60) as client:
            yield client
        app.gr.close_all(verbose=False)


def ask(client, tab, *data):
    """Joins the queue as a page does, waits for the result, and returns the answer of the queue."""
    names = {entry["api_name"]: entry["id"] for entry in client.get("/config").json()["dependencies"]}
    question = {"data": data, "fn_index": names[tab], "session_hash": "user"}
    headers = {"content-type": "application/json"}
    joined = client.post("/gradio_api/queue/join", content=json.dumps(question), headers=headers)
    if joined.status_code != 200:
        return {"status": joined.status_code}
    with client.stream("GET", "/gradio_api/queue/data", params={"session_hash": "user"}) as events:
        lines = (json.loads(line.removeprefix("data:")) for line in events.iter_lines() if line.startswith("data:"))
        return next(event for event in lines if event["msg"] == "process_completed")


def test_scores_are_those_of_student_and_teacher(demo, folder):
    shown = "".join(demo.compare("the cat sat", "a dog ran\nthe cat sat"))
    vectors = demo.model.encode(["the cat sat", "a dog ran"], normalize_embeddings=True)
    teacher = CrossEncoder(str(folder / "teacher"))
    (logit,) = teacher.predict([("the cat sat", "a dog ran")], activation_fn=lambda logits: logits)
    row = f"<td>a dog ran</td><td class='number'>{vectors[0] @ vectors[1]:.3f}</td>"
    assert f"{row}<td class='number'>{float(logit):.3f}</td>" in shown and ">1.000</td>" in shown


def test_a_search_ranks_the_corpus_and_the_teacher_orders_it(demo):
    shown = "".join(demo.search(CORPUS[2], ""))
    assert "The student searched 4 files" in shown
    parts = shown.split("<section>")[1:]
    student, ordered = (re.findall(r"</div><span class='number'>(-?[\d.]+)", part) for part in parts)
    assert student[0] == "1.000" and len(student) == len(ordered) == 4
    assert sorted(ordered, key=float, reverse=True) == ordered
    # Texts are escaped, not interpreted as HTML, and each has its file and line.
    assert f"<span class='place'>c.txt:1</span>{html.escape(CORPUS[2])}" in shown
    assert "<span class='place'>notes/d.md:3</span>The cat.<details>" in "".join(demo.search("The cat.", ""))


def test_what_was_read_is_said(demo):
    assert demo.describe().endswith(f"Searched: {demo.index.unit}.")


def test_the_tokens_of_a_row(demo):
    text = "the cat a dog old new the cat a dog old new"
    found = app_pictures.rows_of(find_attentions(demo.encoder.encoder)[0].linformer_layer, 14)
    assert list(found.of_tokens) == [0, *[row for row in range(1, 7) for _ in range(2)], 7]
    shown = "".join(demo.long_text(text, 1))
    assert "A row holds the mean of its tokens." in shown and "For these 14 tokens " in shown


def test_over_http_nothing_is_read_kept_or_too_long(client, folder, capfd):
    assert "1.000</td>" in ask(client, "compare", SECRET, SECRET)["output"]["data"][0]
    assert "searched 4 files" in ask(client, "search", SECRET, "")["output"]["data"][0]
    refused = ask(client, "compare", "a " * 15_000, "b")
    assert refused["output"]["error"] == "A text can have 20,000 characters."
    assert ask(client, "search", "a" * 5_000_000, "")["status"] == 413
    # An error, which would be logged with the text.
    refused = ask(client, "long_text", f"{SECRET} \ud800", 1)
    assert "surrogates not allowed" in refused["output"]["error"]
    for path in ("file=/etc/passwd", "proxy=http://127.0.0.1:1/", "deep_link"):
        answer = client.get(f"/gradio_api/{path}", params={"session_hash": "user"})
        assert answer.status_code in (403, 404) and "root:" not in answer.text
    assert client.post("/gradio_api/upload", files={"files": ("x.txt", SECRET.encode())}).status_code == 403
    config = client.get("/config").json()
    assert config["run_history"] is False and config["analytics_enabled"] is False
    assert not [file for file in folder.rglob("*") if file.is_file() and SECRET.encode() in file.read_bytes()]
    assert SECRET not in "".join(capfd.readouterr())
