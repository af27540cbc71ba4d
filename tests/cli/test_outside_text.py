# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Names and texts from outside are shown as text: in the terminal and in model cards."""

import ast
import json
import logging
import re

import pytest
from huggingface_hub import ModelCard, metadata_load

from hf_dse import export
from hf_dse.cli.output import show_log
from hf_dse.common.display import one_line
from hf_dse.common.settings import TextSettings, set_settings
from hf_dse_cli import main


# Clears the screen, sets the title of the window, makes a link, erases the line, and turns the text round.
ESCAPES = "\x1b[2J\x1b]0;title\x07\x1b]8;;http://evil\x1b\\x\x9b2K\x08\x7f\u202etxt\u2066"
# Leaves a list, a table, a code block, a front matter and a string of Python.
MARKUP = (
    'x](http://evil) <script>alert(1)</script> **b** `c` | d\n---\n```\n# Title\n"); import os\\\nbase_model: evil/x'
)


def assert_harmless(text):
    """A terminal shows all of a text, and obeys nothing but line breaks."""
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text.replace("\r", "")), repr(text)


@pytest.mark.parametrize("ending", ["jsonl", "folder"])
def test_search_shows_texts(tmp_path, make_model, bert_tokenizer, ending, capsys):
    # A passage has room for all of a text.
    model = make_model(max_position_embeddings=200)
    folder = export(model, tmp_path / "model", bert_tokenizer, max_length=200)
    corpus = tmp_path / f"corpus.{ending}"
    if ending == "folder":
        corpus.mkdir()
        (corpus / "\x1b[2J.txt").write_text(f"the cat {ESCAPES}")
    else:
        corpus.write_text(json.dumps({"id": f"1{ESCAPES}", "text": f"the cat {ESCAPES}\n\n{MARKUP}"}))
    capsys.readouterr()
    command = ["search", "--model", str(folder), "--corpus", str(corpus), "--query", f"cat {ESCAPES}"]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert_harmless(out)
    assert "the cat \ufffd[2J" in out and "query: cat \ufffd[2J" in out


def test_messages_show_names(tmp_path, make_model, bert_tokenizer, capsys):
    with show_log():
        logging.getLogger("hf_dse.test").info(f"note {ESCAPES}\nits second line")
    err = capsys.readouterr().err
    assert err.startswith("note \ufffd[2J") and "\nits second line\n" in err
    assert_harmless(err)
    folder = export(make_model(), tmp_path / "model", bert_tokenizer)
    # Names of columns come from the file.
    (tmp_path / "corpus.jsonl").write_text(json.dumps({ESCAPES: "a"}))
    model = ["--model", str(folder)]
    assert main(["search", *model, "--corpus", str(tmp_path / "corpus.jsonl"), "--query", "x"]) == 2
    assert_harmless("".join(capsys.readouterr()))


def text_of(markdown):
    """A card without code and without characters that are escaped."""
    body = re.sub(r"^```\w+\n.*?^```$", "", markdown, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "", re.sub(r"\\[\\`*\[\]<>|&]", "", body))


def test_a_card_shows_names(tmp_path, make_model, bert_tokenizer):
    labels = {0: MARKUP, 1: "plain"}
    model = make_model(id2label=labels, num_labels=2)
    set_settings(model, TextSettings({"query": MARKUP, f"q{MARKUP}": "x`|"}))
    metrics = {MARKUP: {"accuracy": 0.5, f"m{MARKUP}": 0.25}}
    theirs = tmp_path / MARKUP.replace("/", "-")
    theirs.mkdir()
    export(
        model,
        tmp_path / "model",
        bert_tokenizer,
        metrics=metrics,
        model_id=MARKUP,
        base_model=str(theirs),
        teacher=str(theirs),
        datasets=[str(theirs), MARKUP],
        recipe={f"r{MARKUP}": MARKUP, "command": one_line(MARKUP)},
        overwrite_output_dir=True,
    )
    path = tmp_path / "model" / "README.md"
    data = metadata_load(path)
    assert data.get("base_model") is None and data["model-index"][0]["name"] == MARKUP.split("/")[-1]
    assert data["library_name"] == "sentence-transformers" and "datasets" not in data
    card = ModelCard.load(path).text
    text = text_of(card)
    for bad in ("<script", "](http://evil", "**b", "\n---\n", "\n# Title", "\nbase_model"):
        assert bad not in text, bad
    # Only our own headings and blocks.
    assert sum(line.startswith("# ") for line in text.splitlines()) == 1
    assert card.count("\n```") % 2 == 0
    # Code calls with one string.
    for code in re.findall(r"^```python\n(.*?)^```$", card, flags=re.DOTALL | re.MULTILINE):
        calls = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call) and node.args]
        assert {call.args[0].value for call in calls if isinstance(call.args[0], ast.Constant)} <= {MARKUP}
    prompts = re.findall(r"^\| Prompt .*$", text, flags=re.MULTILINE)
    assert len(prompts) == 2 and all(row.count("|") == 3 for row in prompts)
