# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Model cards have only facts that were given, are valid Markdown, and their examples run."""

import os
import re
import subprocess
import sys

import pytest
from huggingface_hub import ModelCard

from hf_dse import DseForSequenceClassification, DseModel, export
from hf_dse.common.settings import TextSettings, set_settings
from hf_dse.publish.card import make_model_card


FACTS = {
    "metrics": {
        "validation": {"num_pairs": 1500, "pearson": 0.88125, "cosine_spearman": 0.87},
        "test": {"num_pairs": 1379, "pearson": 0.8594, "cosine_spearman": 0.8449},
    },
    "base_model": "sentence-transformers/all-MiniLM-L6-v2",
    "datasets": ["stsb"],
    "recipe": {"learning rate": 2e-5, "epochs": 3, "machine": "2 cores | CPU", "command": "hf-dse distill --seed 1"},
    "max_length": 32,
    "license": "apache-2.0",
}
SEARCH_METRICS = {"ndcg@10": 0.638, "mrr@10": 0.601, "map": 0.597, "recall@1": 0.502, "recall@100": 0.925}
SEARCH_FACTS = {"metrics": {"test": {"num_queries": 300, **SEARCH_METRICS}}, "datasets": ["BeIR/scifact"]}


def test_card_has_the_given_facts(tmp_path, make_model):
    teacher = tmp_path / "runs" / "my-teacher"
    teacher.mkdir(parents=True)
    card = ModelCard(make_model_card(make_model(), model_id="user/student", teacher=str(teacher), **FACTS).content)
    assert card.data.base_model == FACTS["base_model"]
    assert card.data.datasets == ["nyu-mll/glue"]
    assert card.data.license == "apache-2.0"
    assert {"linformer", "knowledge-distillation", "hf-dse"} <= set(card.data.tags)
    results = {
        (result.dataset_type, result.dataset_config, result.dataset_split, result.metric_type): result.metric_value
        for result in card.data.eval_results
    }
    assert results == {
        ("nyu-mll/glue", "stsb", split, name): value
        for split, values in FACTS["metrics"].items()
        for name, value in values.items()
        if name != "num_pairs"
    }
    for text in (
        "| test | 1379 | 85.94 | 84.49 |",
        "scores of my-teacher on sentence pairs",
        "[sentence-transformers/all-MiniLM-L6-v2](https://huggingface.co/sentence-transformers/",
        "| machine | 2 cores \\| CPU |",
        "```bash\nhf-dse distill --seed 1\n```",
        "hf-dse evaluate --model user/student --task_name stsb --split validation test\n",
        "the weights are under `apache-2.0`",
    ):
        assert text in card.text
    assert str(tmp_path) not in card.content


def test_card_leaves_out_unknown_facts(make_model):
    card = make_model_card(make_model(DseModel), model_id="someone/student")
    assert set(card.data.to_dict()) == {"model_name", "library_name", "pipeline_tag", "tags"}
    assert "knowledge-distillation" not in card.data.tags
    for word in ("## Results", "## Training", "How these numbers", "weights are under", "ForSequenceClassification"):
        assert word not in card.content
    assert 'SentenceTransformer("someone/student", trust_remote_code=True)' in card.text


def test_card_of_a_search(make_model):
    model = make_model(DseModel, similarity="dot")
    facts = {**SEARCH_FACTS, "teacher": "a/reranker"}
    card = ModelCard(make_model_card(model, model_id="student", **facts).content)
    results = {result.metric_type: result for result in card.data.eval_results}
    assert {kind: result.metric_value for kind, result in results.items()} == SEARCH_METRICS
    assert {(result.task_type, result.dataset_type) for result in results.values()} == {
        ("information-retrieval", "BeIR/scifact")
    }
    assert "| Split | num_queries | ndcg@10 | mrr@10 | map | recall@1 | recall@100 |" in card.text
    assert "| test | 300 | 63.80 | 60.10 | 59.70 | 50.20 | 92.50 |" in card.text
    assert "Each query ranked all documents of the corpus by the dot product of the embeddings." in card.text
    assert "on queries and documents." in card.text


@pytest.mark.parametrize(
    ("fields", "settings"),
    [
        ({}, {}),
        ({"similarity": "dot", "problem_type": "multi_label_classification"}, {}),
        ({"layer_types": ["full_attention"] * 2}, {"prompts": {"query": "find | this: "}}),
        ({"layer_types": ["chunked_attention", "sliding_linear_attention"], "attention_chunk_size": 4}, {}),
        (
            {"linformer_length": [4, 8], "linformer_projection": "mean"},
            {"lengths": {"query_length": 8}, "chunk_size": 128},
        ),
    ],
)
@pytest.mark.parametrize("facts", [{}, FACTS, SEARCH_FACTS])
def test_cards_of_all_kinds_are_valid_markdown(make_model, fields, settings, facts):
    for model_class in (DseModel, DseForSequenceClassification):
        model = make_model(model_class, **fields)
        set_settings(model, TextSettings(**settings))
        card = make_model_card(model, model_id="student", **facts)
        # The settings are told.
        assert ("find \\u007c this: " in card.text) == ("prompts" in settings)
        # Outside of code: no empty cells, sections or items, no double spaces.
        prose = "```".join(card.text.split("```")[::2])
        assert not re.search(r"None|Undefined|\{\{|\{%|[^\n ]  +|\n\n\n|- \n| \n", prose), prose
        assert not re.search(r"^## .*\n+(?=## |\Z)", card.text, flags=re.MULTILINE)
        # Every table is one block: a header, a delimiter row, and rows with the same number of cells.
        for block in re.findall(r"(?:^\|.*\n)+", card.text, flags=re.MULTILINE):
            rows = block.replace("\\|", "").splitlines()
            assert len({row.count("|") for row in rows}) == 1, block
            assert len(rows) > 2 and set(rows[1]) <= set("|-: "), block


def test_card_describes_the_attention(make_model):
    def describe(*kinds, **fields):
        model = make_model(DseModel, layer_types=list(kinds), **fields)
        return make_model_card(model, model_id="x").content

    mixed = describe("full_attention", "linear_attention", linformer_length=[3, 8])
    assert "The attention of 1 of its 2 layers is linear, as in [Linformer]" in mixed and "\n- linformer\n" in mixed
    for row in ("| Encoder | bert |", "2: 1 `full_attention`, 1 `linear_attention` |", "| Projected length k | 8 |"):
        assert row in mixed
    softmax = describe("full_attention", "full_attention")
    assert "informer" not in softmax and "Attention is exact" not in softmax and "linear" not in softmax
    chunked = describe("chunked_attention", "linear_attention", attention_chunk_size=4)
    assert "Attention is exact for texts of up to 4 tokens" in chunked and "| Chunk | 4 tokens |" in chunked
    sliding = describe("sliding_attention", "sliding_attention", sliding_window=5)
    assert "Its attention is linear: its cost" in sliding and "informer" not in sliding
    assert "Attention is exact" not in sliding and "| Window | 5 tokens before and after a token |" in sliding


@pytest.mark.slow
def test_examples_of_the_card_run(tmp_path, make_model, bert_tokenizer):
    """In a separate process without hf_dse, as readers of the card run them."""
    folder = export(make_model(), tmp_path / "student", bert_tokenizer, **FACTS)
    examples = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), flags=re.DOTALL)
    assert len(examples) == 4
    block = "import sys\nsys.modules['hf_dse'] = None\n"
    environment = os.environ | {"HF_MODULES_CACHE": str(tmp_path / "modules")}
    command = [sys.executable, "-c", block + "\n".join(examples)]
    process = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert process.returncode == 0, process.stderr
    assert process.stdout.count("tensor(") == 4
    for word in ("UNEXPECTED", "MISSING", "Warning"):
        assert word not in process.stderr
