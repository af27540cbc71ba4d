# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The example app in a real browser: with the keyboard, on a phone, and with invalid input."""

import copy
import html
import importlib
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from playwright.sync_api import expect, sync_playwright
from transformers import BertConfig, BertForSequenceClassification

from hf_dse import DseForSequenceClassification, encode, export_model


APP = Path(__file__).parents[1] / "examples" / "app.py"
CORPUS = ["the cat sat on the mat", "a dog ran", "the old <b>house</b> is new", "the dog and the cat"]
# 14 tokens with [CLS] and [SEP], for 8 rows.
LONG_TEXT = "the cat a dog old new the cat a dog old new"
MEAN_ROWS = [0, *[row for row in range(1, 7) for _ in range(2)], 7]
QUERY, OTHERS, OWN = "Text or query", "Compared with these texts, one per line, 20 at most", "In your own texts"
PHONE = {"width": 375, "height": 812}
# The least contrast, by WCAG, of the tokens in the tab that is open with the band behind them.
CONTRAST = """
() => {
    const light = color => {
        const parts = color.match(/[0-9.]+/g).slice(0, 3).map(part => part / 255)
        const [r, g, b] = parts.map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b
    }
    return Math.min(...[...document.querySelectorAll(".tokens > span")].map(band => {
        const style = getComputedStyle(band)
        const [low, high] = [light(style.color), light(style.backgroundColor)].sort((a, b) => a - b)
        return (high + 0.05) / (low + 0.05)
    }))
}
"""

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
    expect(page.get_by_label(QUERY)).to_be_visible(timeout=120_000)
    return page


def enter(page, label, text):
    page.get_by_label(label, exact=True).fill(text)
    page.get_by_label(label, exact=True).press("Enter")


def open_tab(page, name):
    page.get_by_role("tab", name=name).click()


def shown(page):
    """The result of the open tab."""
    return page.locator(".dse:visible")


def cells(page, row):
    """The cells of a row of the table of scores."""
    return shown(page).get_by_role("table").first.get_by_role("row").nth(row).locator("td, th").all_inner_texts()


def test_compare_texts_with_the_keyboard(opened):
    """Tab to the fields, type, submit."""
    for _ in range(12):
        opened.keyboard.press("Tab")
        if opened.get_by_label(QUERY).evaluate("field => field === document.activeElement"):
            break
    assert opened.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    for text in ("the cat sat", "a dog ran"):
        opened.keyboard.press("ControlOrMeta+a")
        opened.keyboard.type(text)
        assert opened.evaluate("document.activeElement.value") == text
        opened.keyboard.press("Tab")
    # After the fields the button has the focus. Back in the field, a second text, and Shift+Enter.
    assert opened.evaluate("document.activeElement.innerText") == "Compare"
    opened.keyboard.press("Shift+Tab")
    opened.keyboard.press("End")
    opened.keyboard.press("Enter")
    opened.keyboard.type("the cat sat")
    opened.keyboard.press("Shift+Enter")
    # An untrained head has a scale of 1, and the query and the second text are equal.
    expect(shown(opened)).to_contain_text("1.000", timeout=30_000)
    assert cells(opened, 0) == ["Text", "Student: score of its head", "Teacher: logit"]
    assert [cells(opened, row)[0] for row in (1, 2)] == ["a dog ran", "the cat sat"]
    assert cells(opened, 2)[1] == "1.000" and float(cells(opened, 1)[1]) < 1
    assert cells(opened, 1)[2] != cells(opened, 2)[2]
    times = shown(opened).locator(".bar .value").all_inner_texts()
    assert len(times) == 3 and all(re.fullmatch(r"[\d.]+ m?s", time) for time in times)
    # The times for N texts grow with N for the cross-encoder.
    rows = shown(opened).get_by_role("table").last.get_by_role("row")
    assert [row.split("\t")[0] for row in rows.all_inner_texts()] == ["N", "10", "1,000", "100,000"]


def test_every_example_can_be_clicked(opened):
    for tab, label, examples in (
        ("Compare", QUERY, ("A question, five answers", "Same words, another meaning", "A paraphrase")),
        ("Search", "Search for", ("In texts of your own", "What stars are made of", "How can I sleep better?")),
        ("Long text", "Text", ("A short text", "A long text", "A page")),
    ):
        open_tab(opened, tab)
        # A page starts with a result, and each tab with what it is for.
        expect(shown(opened)).to_contain_text("ms")
        for name in examples:
            before = shown(opened).inner_html()
            opened.get_by_role("button", name=name, exact=True).click()
            expect(opened.get_by_label(label, exact=True)).not_to_have_value("")
            opened.wait_for_function(
                "before => [...document.querySelectorAll('.dse')].every(found => found.innerHTML !== before)",
                arg=before,
                timeout=30_000,
            )
    open_tab(opened, "Compare")
    expect(opened.get_by_label(QUERY, exact=True)).to_have_value("A plane is taking off.")
    expect(shown(opened)).to_contain_text("An aircraft leaves the runway.")


def test_empty_and_long_texts(opened):
    enter(opened, QUERY, " ")
    expect(shown(opened)).to_contain_text("Enter a text, and at least one other", timeout=30_000)
    enter(opened, QUERY, "cat " * 100)
    # 100 words, [CLS] and [SEP].
    expect(shown(opened)).to_contain_text("A text of 102 tokens was truncated to 64.", timeout=30_000)
    expect(shown(opened)).to_contain_text("tokens of a pair: longer ones were truncated.")
    opened.get_by_label(OTHERS).fill("cat\n" * 21)
    opened.get_by_role("button", name="Compare", exact=True).click()
    expect(opened.get_by_text("These are 21 lines, and this page takes 20.")).to_be_visible(timeout=30_000)
    open_tab(opened, "Search")
    enter(opened, "Search for", "")
    expect(shown(opened)).to_contain_text("Enter something to search for.", timeout=30_000)
    open_tab(opened, "Long text")
    enter(opened, "Text", "")
    expect(shown(opened)).to_contain_text("Enter a text.", timeout=30_000)


def ranked(page, number):
    """The places, texts and scores of one of the two rankings."""
    return [
        item.locator("> span").all_inner_texts()
        for item in shown(page).locator("section").nth(number).locator("li").all()
    ]


def test_search_finds_the_text_itself(opened):
    open_tab(opened, "Search")
    enter(opened, "Search for", CORPUS[2])
    expect(shown(opened).locator("li").first).to_contain_text("1.000", timeout=30_000)
    expect(shown(opened)).to_contain_text("The student searched 4 texts in")
    student, teacher = ranked(opened, 0), ranked(opened, 1)
    # Texts are escaped, not interpreted as HTML.
    assert student[0] == ["1", CORPUS[2], "1.000"]
    assert {text for _, text, _ in student} == {text for _, text, _ in teacher} == set(CORPUS)
    # The teacher's scores are in order, and each text says how far it moved.
    scores = [float(re.match(r"-?[\d.]+", score)[0]) for _, _, score in teacher]
    assert scores == sorted(scores, reverse=True) and scores[0] > scores[-1]
    places = {text: int(place) for place, text, _ in student}
    for place, text, score in teacher:
        moved = places[text] - int(place)
        assert score.endswith("=" if moved == 0 else f"▲{moved}" if moved > 0 else f"▼{-moved}")


def test_search_in_texts_of_the_user(opened):
    open_tab(opened, "Search")
    hostile = "<img src=x onerror=alert(1)> ${1+1} {{value}} the dog"
    opened.get_by_label(OWN).fill(f"the cat\n\n{hostile}\n")
    enter(opened, "Search for", "the dog")
    expect(shown(opened)).to_contain_text("searched 2 texts in", timeout=30_000)
    expect(shown(opened)).to_contain_text("once for all queries")
    assert {text for _, text, _ in ranked(opened, 0)} == {"the cat", hostile}
    assert shown(opened).locator("img").count() == 0


def bands(page):
    """The number and the text of each band, and the tokens in it that stand for their row."""
    found = [
        [band.inner_text(), band.locator(".kept").all_inner_texts()]
        for band in shown(page).locator(".tokens > span").all()
    ]
    return [(*re.fullmatch(r"(\d+)(.*)", text.strip()).groups(), kept) for text, kept in found]


def test_rows_of_a_long_text(opened):
    open_tab(opened, "Long text")
    enter(opened, "Text", "a cat sat")
    expect(shown(opened)).to_contain_text("5 tokens, 8 rows: each token has a row of its own", timeout=30_000)
    expect(shown(opened)).to_contain_text("cosine of 1.000")
    # The first and last tokens have a row each. The rows between have 2 tokens; one counts, in layer 2 the other.
    enter(opened, "Text", LONG_TEXT)
    expect(shown(opened)).to_contain_text("14 tokens, 8 rows", timeout=30_000)
    assert [band[0] for band in bands(opened)] == [*"12345678"]
    words = LONG_TEXT.split()
    pairs = [words[place : place + 2] for place in range(0, 12, 2)]
    assert [band[1].split() for band in bands(opened)] == [["[CLS]"], *pairs, ["[SEP]"]]
    assert [band[2] for band in bands(opened)] == [["[CLS]"], *[pair[:1] for pair in pairs], ["[SEP]"]]
    assert shown(opened).locator(".tokens > span").nth(1).get_attribute("title") == "row 2: 2 tokens"
    opened.get_by_label("number input for Layer").fill("2")
    enter(opened, "Text", LONG_TEXT)
    expect(shown(opened).locator(".kept").nth(2)).to_have_text("cat", timeout=30_000)
    assert [band[2] for band in bands(opened)] == [["[CLS]"], *[pair[1:] for pair in pairs], ["[SEP]"]]
    # A smaller k, from the button.
    opened.get_by_label("number input for k").fill("4")
    opened.get_by_role("button", name="Show").click()
    expect(shown(opened)).to_contain_text("14 tokens, 4 rows", timeout=30_000)
    assert [len(band[1].split()) for band in bands(opened)] == [1, 6, 6, 1]
    assert shown(opened).locator(".bar .value").all_inner_texts()[:2] == ["56", "196"]


@pytest.fixture
def load_app(monkeypatch):
    monkeypatch.syspath_prepend(APP.parent)
    return importlib.import_module("app"), importlib.import_module("app_pictures")


def test_the_stored_length_is_read(load_app, make_model, bert_tokenizer):
    tokenizer = copy.deepcopy(bert_tokenizer)
    tokenizer.model_max_length = 10
    result = "".join(load_app[0].Demo(make_model(), tokenizer, None, CORPUS).long_text(LONG_TEXT, 1))
    assert "10 tokens, 8 rows" in result and "A text of 14 tokens was truncated to 10." in result


def test_without_a_teacher_the_page_says_how_to_add_one(load_app, make_student, bert_tokenizer):
    demo = load_app[0].Demo(make_student(), bert_tokenizer, None, CORPUS)
    compared, found = "".join(demo.compare("the cat", "a dog\nthe cat")), "".join(demo.search("the cat", ""))
    for result in (compared, found):
        assert "--teacher_name_or_path" in result and "Cross-encoder of the same size" in result
        # Its scores are noise, and not shown.
        assert "Teacher:" not in result and "▲" not in result


def test_the_best_chunk_of_a_long_text_counts(load_app, make_student, bert_tokenizer):
    long = "the old house is new. " * 40 + "a dog sat on the mat."
    demo = load_app[0].Demo(make_student(), bert_tokenizer, None, [*CORPUS, long], chunk_size=16)
    found = "".join(demo.search("a dog sat on the mat.", ""))
    assert re.search(r"searched 5 texts, cut into \d\d chunks, in", found) and "truncated" not in found
    # Its last chunk is found, once for the whole text, and nothing of it is cut; so is that of a user's text.
    assert found.count("<li") == 5 and "a dog sat on the mat." in found and "the old house is new. " * 4 not in found
    of_user = "".join(demo.search("a dog sat on the mat.", long))
    assert "searched 1 texts, cut into" in of_user and of_user.count("<li") == 1
    alone = encode(demo.model, bert_tokenizer, ["a dog sat on the mat."], normalize=True)
    best = demo.embed([long])
    assert max(best[0] @ alone[0] / np.linalg.norm(best[0], axis=1)) == pytest.approx(
        float(re.search(r"<li.*?(-?\d\.\d{3})", of_user)[1]), abs=2e-3
    )


def test_a_student_for_dot_products_is_searched_by_them(load_app, make_student, bert_tokenizer):
    model = make_student(similarity="dot", normalize_embeddings=False)
    found = "".join(load_app[0].Demo(model, bert_tokenizer, None, CORPUS).search("the cat", ""))
    vectors = encode(model, bert_tokenizer, ["the cat", *CORPUS], show_progress=False)
    order = np.argsort(-(vectors[1:] @ vectors[0]))[:10]
    assert "Student: dot product" in found
    places = [found.index(f"<span>{html.escape(CORPUS[row])}</span>") for row in order]
    assert places == sorted(places)
    assert f"{vectors[1:][order[0]] @ vectors[0]:.3f}" in found


def test_times_are_those_of_warm_calls(load_app):
    """The first call of a model is slow, and not what it costs."""
    spent = iter([0.2, *[0.001] * 5])
    (result, _), (first, second) = load_app[0].measure(lambda: time.sleep(next(spent)), lambda: None)
    assert result is None and first < 0.1 and second < 0.1


@pytest.mark.parametrize(
    "fields, note, rows",
    [
        ({"linformer_projection": "mean"}, "A row holds the mean of its tokens.", MEAN_ROWS),
        ({"linformer_projection": "max"}, "A row holds the max of its tokens.", MEAN_ROWS),
        ({"linformer_init": "mean"}, "training moves them from there.", MEAN_ROWS),
        ({"linformer_init": "random"}, "each of its 8 rows mixes all tokens.", [0] * 14),
        ({"layer_types": ["full_attention"] * 2}, "each token has a row of its own.", list(range(14))),
        (
            {"layer_types": ["chunked_attention"] * 2, "attention_chunk_size": 8},
            "a token is compared with those of its own chunk.",
            [0] * 8 + [1] * 6,
        ),
    ],
    ids=["mean", "max", "learned", "random", "softmax", "chunked"],
)
def test_rows_of_other_projections(load_app, make_model, bert_tokenizer, fields, note, rows):
    app, pictures = load_app
    model = make_model(**fields)
    found = pictures.rows_of(model.config, 1, 14)
    assert found.note.endswith(note) and list(found.of_tokens) == rows
    demo = app.Demo(model, bert_tokenizer, None, CORPUS)
    assert note in "".join(demo.long_text(LONG_TEXT, 1))
    # A trained E and F have their k.
    assert demo.free_k == (fields.get("linformer_projection") in ("mean", "max"))


def test_a_kept_token_is_in_its_own_row(load_app, make_model):
    """Also where a row begins between two tokens."""
    config = make_model(linformer_projection="strided", linformer_length=11).config
    for layer in (1, 2):
        for num_tokens in range(12, 60):
            rows = load_app[1].rows_of(config, layer, num_tokens)
            assert sorted(rows.of_tokens) == rows.of_tokens
            assert [rows.of_tokens[token] for token in sorted(rows.kept)] == list(range(11))


def test_pieces_are_the_text(load_app, bert_tokenizer):
    text = " The CAT,  sat\non 'the' mat"
    first, *pieces, last = load_app[1].split_text(bert_tokenizer, text, 64)
    assert (first, last) == ("[CLS]", "[SEP]") and "".join(pieces) == text


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_fits_on_a_phone(opened, scheme):
    opened.emulate_media(color_scheme=scheme)
    opened.set_viewport_size(PHONE)
    long_word = "x" * 300
    for name, label in (("Compare", QUERY), ("Search", "Search for"), ("Long text", "Text")):
        open_tab(opened, name)
        if name == "Compare":
            opened.get_by_label(OTHERS).fill(f"the cat\n{long_word}")
        enter(opened, label, "the cat and a dog and the new house " * 3 + long_word)
        expect(shown(opened)).to_contain_text("8 rows" if name == "Long text" else "Time", timeout=30_000)
        assert opened.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert opened.evaluate(CONTRAST) >= 4.5


def test_no_requests_to_other_servers(page, app):
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto(app)
    expect(page.get_by_label(QUERY)).to_be_visible(timeout=120_000)
    assert requests
    assert [url for url in requests if not url.startswith((app, "data:", "blob:"))] == []
