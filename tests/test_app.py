# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The example app in a real browser: with the keyboard, on a phone, and with invalid input."""

import copy
import importlib.util
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from playwright.sync_api import expect, sync_playwright
from transformers import BertConfig, BertForSequenceClassification

from hf_dse import DseForSequenceClassification, export_model


APP = Path(__file__).parents[1] / "examples" / "app.py"
CORPUS = ["the cat sat on the mat", "a dog ran", "the old <b>house</b> is new", "the dog and the cat"]
# 14 tokens with [CLS] and [SEP], for 8 rows.
LONG_TEXT = "the cat a dog old new the cat a dog old new"
MEAN_ROWS = ["1", *"223344556677", "8"]
PHONE = {"width": 375, "height": 812}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def page():
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        pytest.skip("there is no Chromium in PATH")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser.new_page()
        browser.close()


@pytest.fixture(scope="module")
def app(tmp_path_factory, tiny_config, bert_tokenizer):
    """Starts the app with a tiny student of 2 layers and k = 8, a tiny teacher and a small corpus."""
    folder = tmp_path_factory.mktemp("app")
    torch.manual_seed(0)
    config = tiny_config(bert_tokenizer, num_labels=1, linformer_projection="strided")
    export_model(DseForSequenceClassification(config), bert_tokenizer, folder / "student")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    sizes["initializer_range"] = 0.5
    teacher = BertForSequenceClassification(BertConfig(vocab_size=len(bert_tokenizer), num_labels=1, **sizes))
    teacher.save_pretrained(folder / "teacher")
    bert_tokenizer.save_pretrained(folder / "teacher")
    (folder / "corpus.txt").write_text("\n".join(CORPUS))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, str(APP), "--port", str(port), "--model_name_or_path", str(folder / "student")]
    command += ["--teacher_name_or_path", str(folder / "teacher"), "--corpus", str(folder / "corpus.txt")]
    with open(folder / "log", "w+") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
        try:
            for _ in range(1200):
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                assert process.poll() is None, Path(log.name).read_text()
                time.sleep(0.1)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()


@pytest.fixture
def opened(page, app):
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto(app)
    expect(page.get_by_label("First text")).to_be_visible(timeout=120_000)
    return page


def enter(page, label, text):
    page.get_by_label(label, exact=True).fill(text)
    page.get_by_label(label, exact=True).press("Enter")


def open_tab(page, name):
    page.get_by_role("tab", name=name).click()


def test_compare_texts_with_the_keyboard(opened):
    """Tab to the fields, type, Enter."""
    for _ in range(10):
        opened.keyboard.press("Tab")
        if opened.get_by_label("First text").evaluate("field => field === document.activeElement"):
            break
    for text in ("the cat sat", "the cat sat"):
        opened.keyboard.press("ControlOrMeta+a")
        opened.keyboard.type(text)
        last = opened.evaluate("document.activeElement.value")
        opened.keyboard.press("Tab")
        assert last == text
    opened.keyboard.press("Shift+Tab")
    opened.keyboard.press("Enter")
    # An untrained head has a scale of 1, and the texts are equal.
    result = opened.get_by_role("listitem")
    expect(result.first).to_contain_text("this model: score of the cosine head 1.000", timeout=30_000)
    expect(result.last).to_contain_text("cross-encoder: logit")
    assert all(line.endswith(" ms") for line in result.all_inner_texts())


def test_empty_and_long_texts(opened):
    enter(opened, "First text", " ")
    expect(opened.get_by_text("Enter two texts to compare.")).to_be_visible(timeout=30_000)
    enter(opened, "First text", "cat " * 100)
    # 100 words, [CLS] and [SEP].
    expect(opened.get_by_text("A text of 102 tokens was truncated to 64.")).to_be_visible(timeout=30_000)
    expect(opened.get_by_role("listitem").last).to_contain_text("tokens truncated to 64), ")
    open_tab(opened, "Search")
    enter(opened, "Search for", "")
    expect(opened.get_by_text("Enter something to search for.")).to_be_visible(timeout=30_000)
    open_tab(opened, "Rows")
    enter(opened, "Text", "")
    expect(opened.get_by_text("Enter a text.")).to_be_visible(timeout=30_000)


def test_search_finds_the_text_itself(opened):
    open_tab(opened, "Search")
    enter(opened, "Search for", CORPUS[2])
    expect(opened.get_by_text("4 texts searched in")).to_be_visible(timeout=30_000)
    found = opened.get_by_role("row")
    expect(found).to_have_count(1 + len(CORPUS))
    names, *rows = [
        row.get_by_role("cell").or_(row.get_by_role("columnheader")).all_inner_texts() for row in found.all()
    ]
    assert names == ["cosine", "teacher", "text"]
    # Texts are escaped, not interpreted as HTML.
    assert rows[0][0] == "1.000" and rows[0][2] == CORPUS[2]
    assert {row[2] for row in rows} == set(CORPUS)
    # What the teacher says of each text, as a score beside that of the model.
    assert len({float(row[1]) for row in rows}) > 1
    expect(opened.get_by_text("The teacher took")).to_be_visible()


def test_rows_of_a_long_text(opened):
    open_tab(opened, "Rows")
    enter(opened, "Text", "a cat sat")
    expect(opened.get_by_text("5 tokens, 8 rows: each token has a row of its own")).to_be_visible(timeout=30_000)
    # The first and last tokens have rows 1 and 8. Each row between has one of 2 tokens, the other one in layer 2.
    enter(opened, "Text", LONG_TEXT)
    expect(opened.get_by_text("14 tokens, 8 rows (strided)")).to_be_visible(timeout=30_000)
    rows = opened.locator("[data-testid='highlighted-text']")
    shown = "[CLS] 1 the 2 cat a 3 dog old 4 new the 5 cat a 6 dog old 7 new [SEP] 8"
    expect(rows).to_contain_text(shown, use_inner_text=True)
    opened.get_by_label("number input for Layer").fill("2")
    enter(opened, "Text", LONG_TEXT)
    shown = "[CLS] 1 the cat 2 a dog 3 old new 4 the cat 5 a dog 6 old new 7 [SEP] 8"
    expect(rows).to_contain_text(shown, use_inner_text=True, timeout=30_000)


def load_app():
    spec = importlib.util.spec_from_file_location("app", APP)
    app = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(app)
    return app


def test_the_stored_length_is_read(make_model, bert_tokenizer):
    tokenizer = copy.deepcopy(bert_tokenizer)
    tokenizer.model_max_length = 10
    message, tokens = load_app().Demo(make_model(), tokenizer, None, CORPUS).show_rows(LONG_TEXT, 1)
    assert len(tokens) == 10 and message.endswith("**A text of 14 tokens was truncated to 10.**")


@pytest.mark.parametrize(
    "fields, note, rows",
    [
        ({"linformer_projection": "mean"}, "a row holds the mean of the tokens before its number.", MEAN_ROWS),
        ({"linformer_projection": "max"}, "a row holds the max of the tokens before its number.", MEAN_ROWS),
        ({"linformer_init": "mean"}, "This is the initialization of E and F, before training.", MEAN_ROWS),
        ({"linformer_init": "random"}, "each of its 8 rows mixes all tokens.", [None] * 14),
        ({"layer_types": ["full_attention"] * 2}, "each token has a row of its own.", [None] * 14),
        ({"layer_types": ["chunked_attention"] * 2}, "each token has a row in its own chunk.", [None] * 14),
    ],
    ids=["mean", "max", "learned", "random", "softmax", "chunked"],
)
def test_rows_of_other_projections(make_model, bert_tokenizer, fields, note, rows):
    demo = load_app().Demo(make_model(**fields), bert_tokenizer, None, CORPUS)
    message, tokens = demo.show_rows(LONG_TEXT, 1)
    assert message.endswith(note)
    assert [row for _, row in tokens] == rows
    assert [token for token, _ in tokens] == ["[CLS]", *LONG_TEXT.split(), "[SEP]"]


def test_fits_on_a_phone(opened):
    opened.set_viewport_size(PHONE)
    for name, label in (("Compare", "Second text"), ("Search", "Search for"), ("Rows", "Text")):
        open_tab(opened, name)
        enter(opened, label, "the cat and a dog and the new house " * 3)
        expect(opened.get_by_text(" ms").or_(opened.get_by_text("8 rows")).last).to_be_visible(timeout=30_000)
        assert opened.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_no_requests_to_other_servers(page, app):
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto(app)
    expect(page.get_by_label("First text")).to_be_visible(timeout=120_000)
    assert requests
    assert [url for url in requests if not url.startswith((app, "data:", "blob:"))] == []
