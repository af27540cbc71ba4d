# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The results of the example app: scores, rankings, chunks, and the rows of a text."""

import html
import re

import numpy as np
import pytest
from sentence_transformers import CrossEncoder, SentenceTransformer
from transformers import BertForSequenceClassification

from hf_dse import DseModel, export, load_reranker
from hf_dse.modeling.modeling_dse import find_attentions


pytest.importorskip("gradio")
import app  # noqa: E402
import app_pictures  # noqa: E402


CORPUS = ["the cat sat on the mat", "a dog ran", "the old <b>house</b> is new", "the dog and the cat"]
# 14 tokens with [CLS] and [SEP], for 8 rows.
LONG_TEXT = "the cat a dog old new the cat a dog old new"
MEAN_ROWS = [0, *[row for row in range(1, 7) for _ in range(2)], 7]


@pytest.fixture
def make_demo(make_model, bert_tokenizer, tmp_path):
    def make(teacher=None, texts=CORPUS, files=None, **fields):
        folder = export(
            make_model(DseModel, **fields), tmp_path / "student", bert_tokenizer, overwrite_output_dir=True
        )
        return app.Demo(SentenceTransformer(str(folder), device="cpu"), teacher, texts, files)

    return make


@pytest.fixture
def teacher(save_bert, tmp_path):
    return str(save_bert(tmp_path / "teacher", BertForSequenceClassification, num_labels=1))


def test_scores_are_those_of_student_and_teacher(make_demo, teacher):
    demo = make_demo(load_reranker(teacher, device="cpu"))
    shown = "".join(demo.compare("the cat sat", "a dog ran\nthe cat sat"))
    vectors = demo.model.encode(["the cat sat", "a dog ran"], normalize_embeddings=True)
    logits = CrossEncoder(teacher).predict([("the cat sat", "a dog ran")], activation_fn=lambda logits: logits)
    row = f"<td>a dog ran</td><td class='number'>{vectors[0] @ vectors[1]:.3f}</td>"
    assert f"{row}<td class='number'>{float(logits[0]):.3f}</td>" in shown and ">1.000</td>" in shown
    assert shown.count("class='bar'") == 3 and "Teacher: for each query" in shown


def test_a_search_ranks_the_corpus_and_the_teacher_orders_it(make_demo, teacher):
    demo = make_demo(load_reranker(teacher, device="cpu"))
    shown = "".join(demo.search(CORPUS[2], ""))
    assert "The student searched 4 texts in" in shown
    student, ordered = ([*re.findall(r"<div>(.*?)</div><span class='number'>(-?[\d.]+)", part)] for part in
                        shown.split("<section>")[1:])  # fmt: skip
    # Texts are escaped, not interpreted as HTML.
    assert student[0] == (html.escape(CORPUS[2]), "1.000")
    assert {text for text, _ in student} == {text for text, _ in ordered} == set(map(html.escape, CORPUS))
    scores = [float(score) for _, score in ordered]
    assert scores == sorted(scores, reverse=True) and scores[0] > scores[-1]
    # Each text says how far it moved.
    moves = re.findall(r"(▲|▼|=)(\d*)</span></span></li>", shown.split("<section>")[2])
    places = [[text for text, _ in student].index(text) for text, _ in ordered]
    expected = [("=", "") if a == b else ("▲" if a > b else "▼", str(abs(a - b))) for b, a in enumerate(places)]
    assert moves == expected


def test_the_best_chunk_of_a_long_text_counts(make_demo, monkeypatch):
    monkeypatch.setattr(app, "CHUNK_SIZE", 16)
    long = "the old house is new. " * 40 + "a dog sat on the mat."
    demo = make_demo(texts=[*CORPUS, long])
    found = "".join(demo.search("a dog sat on the mat.", ""))
    assert re.search(r"searched 5 texts, cut into \d\d chunks, in", found) and "truncated" not in found
    # Its last chunk is found, once for the whole text.
    assert found.count("<li") == 5 and "a dog sat on the mat." in found and "the old house is new. " * 4 not in found
    of_user = "".join(demo.search("a dog sat on the mat.", long))
    assert "searched 1 texts, cut into" in of_user and of_user.count("<li") == 1


def test_files_are_found_with_line_and_best_sentence(make_demo):
    text = "The old house is new.\n\nA dog ran on the mat. The cat sat.\n"
    demo = make_demo(texts=[text, *CORPUS], files=["notes/a.md", "b.txt", "c.txt", "d.txt", "e.txt"])
    found = "".join(demo.search("the cat sat.", ""))
    folded = f"<details><summary>The passage</summary>{text.strip()}</details>"
    assert f"<span class='place'>notes/a.md:3</span>The cat sat.{folded}" in found
    # One sentence has nothing to fold, and texts of the user have no file.
    assert f"<span class='place'>b.txt:1</span>{CORPUS[0]}</div>" in found
    assert "place" not in "".join(demo.search("the cat", "a dog ran"))


def test_example_queries_are_sentences_of_the_corpus(make_demo):
    long = "# The cat\n\n- a list of words\n\nThe old house is new and red. A dog sat on the mat.\n"
    assert app.example_queries([long]) == ["The old house is new and red."]
    assert sorted(app.example_queries(CORPUS, 9)) == sorted(CORPUS) and app.example_queries(["a" * 81]) == []
    blocks = make_demo().page().config["components"]
    buttons = [block["props"]["value"] for block in blocks if block["type"] == "button"]
    assert set(buttons) & set(CORPUS) == set(app.example_queries(CORPUS))


def test_a_tab_says_which_attention_is_faster(make_demo):
    assert "2,000 tokens this model is 3.0 times as fast" in app.compare_times(2000, 0.1, 0.3)
    assert "20 tokens softmax attention is 2.0 times as fast: linear" in app.compare_times(20, 0.2, 0.1)
    assert "20 tokens softmax attention is as fast: linear" in app.compare_times(20, 0.1, 0.1)
    assert "For these 14 tokens " in "".join(make_demo().long_text(LONG_TEXT, 1))


def test_a_student_for_dot_products_is_searched_by_them(make_demo):
    demo = make_demo(similarity="dot", normalize_embeddings=False)
    found = "".join(demo.search("the cat", ""))
    vectors = demo.model.encode(["the cat", *CORPUS])
    products = vectors[1:] @ vectors[0]
    order = np.argsort(-products)
    places = [found.index(f"<div>{html.escape(CORPUS[row])}</div>") for row in order]
    assert places == sorted(places) and "Student: dot product" in found
    assert f"{products[order[0]]:.3f}" in found


def test_the_stored_length_is_read(make_demo):
    demo = make_demo(linformer_projection="strided")
    demo.max_length = demo.model.max_seq_length = 10
    shown = "".join(demo.long_text(LONG_TEXT, 1))
    assert "10 tokens, 8 rows" in shown and "A text of 14 tokens was truncated to 10." in shown
    shown = "".join(demo.long_text("a cat sat", 1))
    assert "5 tokens, 8 rows: each token has a row of its own" in shown and "cosine of 1.000" in shown


@pytest.mark.parametrize(
    "fields, note, rows",
    [
        ({"linformer_projection": "mean"}, "A row holds the mean of its tokens.", MEAN_ROWS),
        ({"layer_types": ["full_attention"] * 2}, "each token has a row of its own.", list(range(14))),
        (
            {"layer_types": ["chunked_attention"] * 2, "attention_chunk_size": 8},
            "a token is compared with those of its own chunk.",
            [0] * 8 + [1] * 6,
        ),
        (
            {"layer_types": ["sliding_attention"] * 2, "sliding_window": 3},
            "a token is compared with the 3 before and the 3 after it.",
            list(range(14)),
        ),
        (
            {"layer_types": ["sliding_linear_attention"] * 2, "sliding_window": 3, "linformer_projection": "mean"},
            "a token is compared with the 3 tokens before and the 3 after it.",
            MEAN_ROWS,
        ),
    ],
    ids=["mean", "softmax", "chunked", "sliding", "sliding_linear"],
)
def test_rows_of_projections(make_demo, fields, note, rows):
    demo = make_demo(**fields)
    found = app_pictures.rows_of(find_attentions(demo.encoder.encoder)[0].linformer_layer, 14)
    assert found.note.endswith(note) and list(found.of_tokens) == rows
    assert note in "".join(demo.long_text(LONG_TEXT, 1))


def test_pieces_are_the_text(bert_tokenizer):
    text = " The CAT,  sat\non 'the' mat"
    first, *pieces, last = app_pictures.tokens_of(bert_tokenizer, text, 64)
    assert (first, last) == ("[CLS]", "[SEP]") and "".join(pieces) == text
