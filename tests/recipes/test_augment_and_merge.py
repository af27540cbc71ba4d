# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Pairs that nobody has labelled, and the mean of weights."""

import subprocess
import sys
from pathlib import Path

import augment
import numpy as np
import pandas as pd
import torch
from transformers import AutoModelForSequenceClassification

from hf_dse import DseForSequenceClassification, DseModel, export


RECIPES = Path(__file__).parents[2] / "recipes"


def test_pairs_of_each_kind(save_bert, tmp_path, monkeypatch):
    words = "cat dog sat ran mat house old new".split()
    rows = {"sentence1": [f"the {word} is here" for word in words], "sentence2": [f"a {word}." for word in words]}
    pd.DataFrame(rows).to_parquet(tmp_path / "texts.parquet")
    pd.DataFrame({"sentence1": ["The CAT is here!"], "sentence2": ["a cat"]}).to_csv(tmp_path / "known.csv")
    labelled = {"sentence1": ["A mat!", "is"], "sentence2": ["the mat is here", "was"], "label": [4.5, 0]}
    labelled = pd.DataFrame(labelled)
    labelled.to_csv(tmp_path / "labelled.csv")
    (tmp_path / "barred.txt").write_text("a dog\n")
    command = f"augment.py make {tmp_path}/texts.parquet --encoder {save_bert(tmp_path / 'bert')} --num_similar 2"
    command += f" --pool 3 --exclude {tmp_path}/known.csv --exclude_texts {tmp_path}/barred.txt"
    command += f" --labelled {tmp_path}/labelled.csv --output"
    for name in ("once", "again"):
        monkeypatch.setattr(sys, "argv", [*command.split(), str(tmp_path / f"{name}.parquet")])
        augment.main()
    made = pd.read_parquet(tmp_path / "once.parquet")
    pd.testing.assert_frame_equal(made, pd.read_parquet(tmp_path / "again.parquet"))
    assert set(made["kind"]) == {"labelled", "row", "similar", "random"}
    pd.testing.assert_frame_equal(made[:2].drop(columns="kind"), labelled)
    assert made["label"][2:].isna().all()
    keys = [augment.pair_key(*row) for row in zip(made["sentence1"], made["sentence2"], strict=True)]
    assert len(set(keys)) == len(keys) and augment.pair_key("the cat is here", "a cat") not in keys
    assert not any("a dog" in key for key in keys)
    # Similar texts are of other rows.
    similar = made[made["kind"] == "similar"]
    assert not any(
        set(first.split()) & set(second.strip(".").split()) & set(words)
        for first, second in zip(similar["sentence1"], similar["sentence2"], strict=True)
    )


def test_scored_pairs_are_drawn_evenly():
    scores = np.array([0.1] * 50 + [2.5] * 3 + [4.9] * 20)
    scored = pd.DataFrame({"teacher_logits": [[score] for score in scores]})
    drawn = augment.balance(scored, 20, num_bins=5)
    counts = drawn["teacher_logits"].str[0].value_counts()
    # What a part lacks, the others give.
    assert len(drawn) == 20 and counts[2.5] == 3 and abs(counts[0.1] - counts[4.9]) <= 1
    assert len(augment.balance(scored, 100)) == 73
    # Labelled pairs stay, before the others.
    labels = pd.DataFrame({"teacher_logits": [[0.1], [0.1]], "label": [0.0, 0.5]})
    both = augment.balance(pd.concat([scored, labels]), 20, num_bins=5)
    assert both["label"][:2].tolist() == [0.0, 0.5] and both["label"][2:].isna().all()
    assert both["teacher_logits"][2:].tolist() == drawn["teacher_logits"].tolist()


def test_the_mean_of_weights(make_model, bert_tokenizer, tmp_path):
    models = {"pairs": make_model(DseForSequenceClassification), "encoder": make_model(DseModel)}
    with torch.no_grad():
        for parameter in models["encoder"].parameters():
            parameter.add_(1.0)
    for name, model in models.items():
        export(model, tmp_path / name, bert_tokenizer)
    command = [sys.executable, str(RECIPES / "merge.py"), str(tmp_path / "pairs"), str(tmp_path / "encoder")]
    options = ["--weights", "3", "1", "--output_dir", str(tmp_path / "merged")]
    subprocess.run([*command, *options], check=True, capture_output=True)
    merged = AutoModelForSequenceClassification.from_pretrained(tmp_path / "merged")
    states = {name: {key.removeprefix("dse."): part for key, part in model.named_parameters()}
              for name, model in models.items()}  # fmt: skip
    for name, parameter in merged.named_parameters():
        name = name.removeprefix("dse.")
        expected = states["pairs"][name]
        # The head is that of the model that has one.
        if name in states["encoder"]:
            expected = 0.75 * expected + 0.25 * states["encoder"][name]
        torch.testing.assert_close(parameter, expected)
