# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""studies/mteb_tasks.py: mteb measures local sets as studies/generality.py does, and runs a benchmark."""

import importlib
import json

import numpy as np
import pandas as pd
import pytest

from hf_dse import DseModel, export


pytest.importorskip("mteb")
import mteb_tasks as study  # noqa: E402


pytestmark = pytest.mark.slow
WORDS = "the a cat dog sat ran on mat house is old new in and of".split()
SIMILARITY = ["STS-B test", "SICK validation"]
SEARCH = [f"{name} nDCG@10" for name in ("SciFact", "Cranfield", "NPL", "CACM", "SQuAD")]


@pytest.fixture
def data(tmp_path):
    """Sets of random words."""
    rng = np.random.default_rng(0)

    def texts(number, longest=12):
        return [" ".join(rng.choice(WORDS, rng.integers(3, longest))) for _ in range(number)]

    tables = {}
    for file, label in (("stsb/test", "label"), ("sick/validation", "relatedness")):
        tables[file] = {"sentence1": texts(20), "sentence2": texts(20), label: rng.uniform(1, 5, 20)}
    for name, split in (("scifact", "_test"), ("cranfield", ""), ("npl", ""), ("cacm", "")):
        titles = [""] * 30 if name == "npl" else texts(30, 5)
        # The ids are numbers, and the last query is not judged.
        tables[f"{name}/corpus"] = {"doc_id": range(30), "title": titles, "text": texts(30)}
        tables[f"{name}/queries{split}"] = {"query_id": range(7), "query": texts(7)}
        judged = {"query_id": [*range(6), *range(6)], "doc_id": rng.permutation(30)[:12], "relevance": 1}
        tables[f"{name}/qrels{split}"] = judged
    tables["squad_sent/train"] = {"sentence": [text for text in texts(15) for _ in range(2)], "question": texts(30)}
    for name, columns in tables.items():
        path = tmp_path / "data" / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pd.DataFrame(columns).to_parquet(path)
    return tmp_path / "data"


@pytest.fixture
def models(make_model, bert_tokenizer, tmp_path):
    """Folders of two students of one name."""
    folders = [tmp_path / name / "model" for name in ("first", "second")]
    for folder, fields in zip(folders, ({}, {"prompts": {"query": "the ", "document": "a: "}}), strict=True):
        export(make_model(DseModel, **fields), folder, bert_tokenizer)
    return list(map(str, folders))


def rows(printed):
    return [line.strip("| ").split(" | ") for line in printed.splitlines() if line.startswith("|")]


def test_local_sets(data, models, tmp_path, capsys):
    output, results = tmp_path / "scores.json", tmp_path / "results"
    argv = [*models, "--data", str(data), "--results", str(results), "--output", str(output)]
    study.main(argv)
    scores = json.loads(output.read_text())
    assert list(scores) == models and all(list(of) == [*SIMILARITY, *SEARCH] for of in scores.values())
    printed = rows(capsys.readouterr().out)
    assert printed[0] == ["task", "type", "model", "model"]
    first = scores[models[0]]
    assert printed[2] == ["STS-B test", "STS", *(f"{100 * scores[name]['STS-B test']:.2f}" for name in models)]
    similarity, search = (np.mean([first[name] for name in names]) for names in (SIMILARITY, SEARCH))
    means = [np.mean(list(first.values())), (similarity + search) / 2]
    assert [row[2] for row in printed[-2:]] == [f"{100 * mean:.2f}" for mean in means]

    # The other script, by sentence-transformers.
    importlib.import_module("generality").main([str(data), models[0], "--output", str(output)])
    assert json.loads(output.read_text())[models[0]] == pytest.approx(first, abs=1e-5)
    assert rows(capsys.readouterr().out)[0] == ["model", *SIMILARITY, *SEARCH]
    # Results of a model are kept apart from those of another with its name, and not made again.
    files = list(results.rglob("STS-B test.json"))
    assert len(files) == 2
    for file in files:
        kept = json.loads(file.read_text())
        kept["scores"]["test"][0]["main_score"] = 0.125
        file.write_text(json.dumps(kept))
    study.main(argv)
    assert rows(capsys.readouterr().out)[2] == ["STS-B test", "STS", "12.50", "12.50"]
