# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Exported folders are complete and written atomically, and their model card has only measured numbers."""

import ast
import importlib.metadata
import json
import math
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from huggingface_hub import EvalResult, ModelCard
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer, BertConfig, BertModel

from hf_dse import (
    BiEncoder,
    DseForSequenceClassification,
    DseModel,
    ModelArguments,
    export_graph,
    export_model,
    load_model,
)
from hf_dse.common.provenance import Source, describe_command, describe_source
from hf_dse.pipeline.ranking_stage import RECIPE_FIELDS
from hf_dse.publish.card import make_model_card, rename_card
from hf_dse.student.checkpoint import TRANSFORMERS_NEEDED, load_dse_model, stored_dtype
from hf_dse_cli import main


FILES = {
    "1_Pooling/config.json",
    "README.md",
    "config.json",
    "config_sentence_transformers.json",
    "configuration_dse.py",
    "layout_dse.py",
    "model.safetensors",
    "modeling_dse.py",
    "modules.json",
    "pairs_dse.py",
    "tokenizer.json",
    "tokenizer_config.json",
}
TEXTS = ["a cat sat on the mat", "dog", "the old house is in the new house and the cat ran of a mat"]
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

SEARCH_METRICS = ("ndcg@10", "mrr@10", "map", "recall@1", "recall@10", "recall@100")
SEARCH_FACTS = {
    "metrics": {
        "test": {
            "num_queries": 300,
            **dict(zip(SEARCH_METRICS, (0.638, 0.601, 0.597, 0.502, 0.783, 0.925), strict=True)),
        }
    },
    "datasets": ["BeIR/scifact"],
}


OTHER_RESULTS = [
    EvalResult(
        task_type="information-retrieval",
        dataset_type="mteb/scifact",
        dataset_name="SciFact",
        dataset_split="test",
        metric_type="cosine_ndcg@10",
        metric_name="nDCG@10",
        metric_value=0.7243,
    ),
    EvalResult("information-retrieval", "custom", "my | own", "recall@10", 1),
    EvalResult("information-retrieval", "custom", "other", "recall@10", 0.5),
]


def files(folder):
    paths = [path for path in Path(folder).rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def front_matter(card):
    return card.data.to_dict()


@pytest.mark.parametrize("model_class", [DseModel, DseForSequenceClassification])
def test_folder_is_complete_and_loads(tmp_path, make_model, bert_tokenizer, model_class):
    model = make_model(model_class, projection_dim=6)
    folder = export_model(model, bert_tokenizer, tmp_path / "deep" / "model")
    assert folder == tmp_path / "deep" / "model"
    assert set(files(folder)) == FILES
    assert os.listdir(folder.parent) == ["model"]
    config = json.loads((folder / "config.json").read_text())
    # Servers take the other architecture for a classifier.
    assert config["architectures"] == ["DseModel"]
    assert set(config["auto_map"]) == {"AutoConfig", "AutoModel", "AutoModelForSequenceClassification"}

    tokenizer = AutoTokenizer.from_pretrained(folder)
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    loaded = AutoModel.from_pretrained(folder)
    expected = model.base_model(**batch).pooler_output
    torch.testing.assert_close(loaded(**batch).pooler_output, expected, rtol=0, atol=0)
    if model_class is DseForSequenceClassification:
        batch = tokenizer(TEXTS, TEXTS[::-1], padding=True, return_tensors="pt")
        loaded = AutoModelForSequenceClassification.from_pretrained(folder)
        torch.testing.assert_close(loaded(**batch).logits, model(**batch).logits, rtol=0, atol=0)


@pytest.mark.parametrize("similarity", ["cosine", "mlp"])
def test_encoder_of_a_pair_model_loads_without_warnings(tmp_path, make_model, bert_tokenizer, similarity):
    folder = export_model(make_model(similarity=similarity), bert_tokenizer, tmp_path / "model")
    _, info = AutoModel.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info


def test_a_loaded_export_can_be_exported_over_itself(tmp_path, make_model, bert_tokenizer):
    folder = export_model(make_model(), bert_tokenizer, tmp_path / "model")
    before = files(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    export_model(model, AutoTokenizer.from_pretrained(folder), folder, overwrite=True)
    assert files(folder) == before


def test_one_length_is_stored(tmp_path, make_model, bert_tokenizer, warnings):
    def stored(name, max_length=None, **fields):
        folder = export_model(make_model(**fields), bert_tokenizer, tmp_path / name, max_length=max_length)
        length = AutoTokenizer.from_pretrained(folder).model_max_length
        assert f"| Longest text | {length:,} tokens " in (folder / "README.md").read_text()
        return length

    assert bert_tokenizer.model_max_length == 64
    assert stored("the model's", max_position_embeddings=24) == 24
    assert stored("the tokenizer's", max_position_embeddings=100) == 64
    assert stored("chosen", max_length=10) == 10
    assert stored("longer", max_length=100, max_position_embeddings=100) == 100
    assert not warnings
    tiled = {"max_position_embeddings": 100, "position_extension": "tile", "original_max_position_embeddings": 64}
    assert stored("of the source", **tiled) == 64
    assert "The tokenizer reads 64 tokens of a text" in warnings[0] and "takes 100: pass `max_length`" in warnings[0]
    assert stored("extended", max_length=100, **tiled) == 100
    assert bert_tokenizer.model_max_length == 64
    for length in (0, 101):
        with pytest.raises(ValueError, match=f"`max_length` must be between 1 and 100, .* got {length}"):
            stored("wrong", max_length=length, **tiled)


def test_leftovers_of_a_tokenizer_are_not_saved(tmp_path, make_model, bert_tokenizer):
    bert_tokenizer(TEXTS, truncation=True, max_length=5, padding="max_length")
    bert_tokenizer.save_pretrained(tmp_path / "used")
    used = AutoTokenizer.from_pretrained(tmp_path / "used")
    assert used.init_kwargs["max_length"] == used.backend_tokenizer.truncation["max_length"] == 5
    folder = export_model(make_model(), used, tmp_path / "model")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    assert settings["model_max_length"] == 64 and "max_length" not in settings
    rules = json.loads((folder / "tokenizer.json").read_text())
    assert rules["truncation"] is None and rules["padding"] is None


def test_existing_folders_are_not_replaced(tmp_path, make_model, bert_tokenizer):
    model = make_model()
    folder = tmp_path / "taken"
    folder.mkdir()
    # An empty folder is fine.
    export_model(model, bert_tokenizer, folder)
    before = files(folder)
    with pytest.raises(FileExistsError, match=r"taken is not empty: name another folder, or pass `overwrite=True`"):
        export_model(model, bert_tokenizer, folder)
    assert files(folder) == before

    home = tmp_path / "home"
    home.mkdir()
    (home / "diary.txt").write_text("precious")
    with pytest.raises(FileExistsError, match=r"home is not a plain model folder \(it has no config.json"):
        export_model(model, bert_tokenizer, home, overwrite=True)
    (folder / ".git").mkdir()
    with pytest.raises(FileExistsError, match="or is a git repository"):
        export_model(model, bert_tokenizer, folder, overwrite=True)
    with pytest.raises(FileExistsError, match=r"diary.txt is a file: name a folder"):
        export_model(model, bert_tokenizer, home / "diary.txt", overwrite=True)
    assert (home / "diary.txt").read_text() == "precious"


def test_the_current_folder_and_what_is_above_it_are_not_replaced(tmp_path, make_model, bert_tokenizer, monkeypatch):
    folder = export_model(make_model(), bert_tokenizer, tmp_path / "model")
    (folder / "inside").mkdir()
    before = files(folder)
    for place, target in (("model", "."), ("model/inside", ".."), ("model/inside", str(folder))):
        monkeypatch.chdir(tmp_path / place)
        with pytest.raises(FileExistsError, match="is the folder that you are in, or above it: name a folder in it"):
            export_model(make_model(), bert_tokenizer, target, overwrite=True)
    assert files(folder) == before
    monkeypatch.setattr(Path, "is_mount", lambda path: path.name == "mounted")
    (tmp_path / "mounted").mkdir()
    with pytest.raises(FileExistsError, match="mounted is a mount point, which cannot be replaced"):
        export_model(make_model(), bert_tokenizer, tmp_path / "mounted")


def test_overwriting_removes_all_files_of_the_old_model(tmp_path, make_model, bert_tokenizer):
    folder = export_model(make_model(), bert_tokenizer, tmp_path / "model")
    (folder / "optimizer.pt").write_bytes(b"stale")
    export_model(make_model(DseModel), bert_tokenizer, folder, overwrite=True)
    assert set(files(folder)) == FILES
    assert os.listdir(tmp_path) == ["model"]


@pytest.mark.parametrize("step", ["tokenizer", "card", "move"])
def test_nothing_changes_after_an_error(tmp_path, make_model, bert_tokenizer, monkeypatch, step):
    def fail(*args, **kwargs):
        raise OSError("No space left on device")

    rename = Path.rename
    target = {
        "tokenizer": (type(bert_tokenizer), "save_pretrained", fail),
        "card": (ModelCard, "save", fail),
        "move": (Path, "rename", lambda self, to: fail() if self.name == "new" else rename(self, to)),
    }[step]
    folder = export_model(make_model(), bert_tokenizer, tmp_path / "model")
    before = files(folder)
    monkeypatch.setattr(*target)
    # As on systems that cannot swap two folders.
    monkeypatch.setattr("hf_dse.common.files._swap", lambda first, second: False)
    for path in (folder, tmp_path / "other"):
        with pytest.raises(OSError, match="No space left"):
            export_model(make_model(DseModel), bert_tokenizer, path, overwrite=True)
    assert os.listdir(tmp_path) == ["model"]
    assert files(folder) == before


def test_the_card_of_a_search_without_metrics(tmp_path, make_model, bert_tokenizer):
    """Its recipe has a weight that only a training of rankings has."""
    for name, recipe, what in (
        ("search", {"contrastive_weight": 0.0}, "queries and documents."),
        ("pairs", {}, "sentence pairs"),
    ):
        folder = export_model(make_model(), bert_tokenizer, tmp_path / name, teacher="a/b", recipe=recipe)
        text = " ".join((folder / "README.md").read_text().split())
        assert f"from the scores of the cross-encoder [a/b](https://huggingface.co/a/b) on {what}" in text


def test_card_contains_the_given_information(tmp_path, make_model, bert_tokenizer):
    teacher = tmp_path / "runs" / "my-teacher"
    teacher.mkdir(parents=True)
    folder = export_model(make_model(), bert_tokenizer, tmp_path / "student", teacher=str(teacher), **FACTS)
    card = ModelCard.load(folder / "README.md")
    metadata = front_matter(card)
    assert metadata["base_model"] == FACTS["base_model"]
    assert metadata["datasets"] == ["nyu-mll/glue"]
    assert metadata["license"] == "apache-2.0"
    assert metadata["library_name"] == "sentence-transformers"
    assert metadata["pipeline_tag"] == "sentence-similarity"
    assert {"linformer", "knowledge-distillation", "hf-dse"} <= set(metadata["tags"])

    assert card.data.model_name == "student"
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
    assert {result.task_type for result in card.data.eval_results} == {"sentence-similarity"}

    text = card.text
    assert "| test | 1379 | 85.94 | 84.49 |" in text
    assert "cross-encoder my-teacher" in text
    assert "[sentence-transformers/all-MiniLM-L6-v2](https://huggingface.co/sentence-transformers/" in text
    assert "(https://huggingface.co/datasets/nyu-mll/glue)" in text
    assert "| machine | 2 cores \\| CPU |" in text
    assert "```bash\nhf-dse distill --seed 1\n```" in text
    assert ("hf-dse evaluate --model_name_or_path student --task_name stsb --split validation test\n") in text
    assert "the weights are under `apache-2.0`" in text
    assert str(tmp_path) not in card.content


@pytest.mark.parametrize(("similarity", "name"), [("cosine", "cosine"), ("dot", "dot product")])
def test_card_of_a_search(make_model, similarity, name):
    model = make_model(DseModel, similarity=similarity)
    card = make_model_card(model, model_id="student", teacher="a/reranker", **SEARCH_FACTS)
    results = {result.metric_type: result for result in ModelCard(card.content).data.eval_results}
    metrics = SEARCH_FACTS["metrics"]["test"]
    assert {kind: result.metric_value for kind, result in results.items()} == {
        f"{similarity}_{'map@100' if key == 'map' else key}": value
        for key, value in metrics.items()
        if key != "num_queries"
    }
    assert {(result.task_type, result.dataset_type) for result in results.values()} == {
        ("information-retrieval", "BeIR/scifact")
    }
    assert "| Split | Queries | nDCG@10 | MRR@10 | MAP | Recall@1 | Recall@10 | Recall@100 |" in card.text
    assert "| test | 300 | 63.80 | 60.10 | 59.70 | 50.20 | 78.30 | 92.50 |" in card.text
    assert f"Each query ranked all documents of the corpus by the {name} of the embeddings." in card.text
    assert "on queries and documents." in card.text
    assert "search or fairness" not in card.text


def test_card_of_a_search_by_chunks(tmp_path, make_model, bert_tokenizer, capsys):
    assert "chunk_size" in RECIPE_FIELDS
    for similarity in ("cosine", "dot"):
        model = make_model(DseModel, similarity=similarity)
        facts = {**SEARCH_FACTS, "max_length": 48, "recipe": {"chunk_size": 32}}
        facts["model_id"] = str(tmp_path / similarity)
        folder = export_model(model, bert_tokenizer, tmp_path / similarity, **facts)
        text = (folder / "README.md").read_text()
        name = "dot product" if similarity == "dot" else "cosine"
        assert (
            f"documents of the corpus by the {name} of its embedding and that of the best of their contextual chunks "
            "of up to 32 tokens. The measures"
        ) in text
        assert "Documents were read whole, in windows of 48 tokens; queries were truncated to 48. The table" in text
        assert "- Documents read whole, in windows of 48 tokens; other texts truncated to 48 tokens" in text
        assert "Texts were truncated" not in text and "were not part of training" not in text
        (example,) = re.findall(r"```python\n(from hf_dse .*?)```", text, flags=re.DOTALL)
        exec(example, {})
        found = ast.literal_eval(capsys.readouterr().out.splitlines()[-1])
        assert sorted(position for _, position in found[0]) == [0, 1]
    card = make_model_card(model, model_id="student", **FACTS)
    assert "Texts were truncated to 32 tokens. The table" in card.text and "chunk" not in card.text


def test_card_with_results_on_other_data(make_model):
    card = make_model_card(make_model(), model_id="student", eval_results=OTHER_RESULTS, **FACTS)
    results = ModelCard(card.content).data.eval_results
    assert {result.dataset_type for result in results} == {"nyu-mll/glue", "mteb/scifact", "custom"}
    others = {(result.dataset_name, result.metric_value) for result in results[-3:]}
    assert others == {("SciFact", 0.7243), ("my | own", 1), ("other", 0.5)}
    assert "On other data, times 100:" in card.text and "| test | 1379 | 85.94 | 84.49 |" in card.text
    assert "| [SciFact](https://huggingface.co/datasets/mteb/scifact) | test | nDCG@10 | 72.43 |" in card.text
    assert "| my \\| own | - | recall@10 | 100.00 |" in card.text
    wrong = replace(OTHER_RESULTS[0], metric_value=math.nan)
    with pytest.raises(ValueError, match="`eval_results` has nan for 'SciFact', but needs finite numbers"):
        make_model_card(make_model(), model_id="student", eval_results=[wrong])


def test_a_card_is_kept_under_another_name(make_model):
    """It is the card that would have been made with the name."""
    for facts in ({}, FACTS, {**SEARCH_FACTS, "eval_results": OTHER_RESULTS}):
        cards = {
            name: make_model_card(make_model(), model_id=name, **facts).content
            for name in ("student", "runs/my_model", "user/1", "user/stu-dent", "my \\model: a")
        }
        for old in list(cards)[:-1]:
            for new in cards:
                assert rename_card(cards[old], new) == cards[new]
    foreign = '# student\n\n```python\nSentenceTransformer("student")\n```\n'
    assert rename_card(foreign, "other") == foreign


@pytest.mark.parametrize("kinds", [[torch.float32], [torch.bfloat16], [torch.float16], [torch.float32, torch.float16]])
def test_the_stored_type(kinds, tmp_path):
    save_file({f"{kind}": torch.zeros(2, dtype=kind) for kind in kinds}, tmp_path / "model.safetensors")
    assert stored_dtype(str(tmp_path)) == (kinds[0] if len(kinds) == 1 else None)


def test_export_keeps_the_card_and_the_type_of_the_weights(tmp_path, make_model, bert_tokenizer, warnings):
    """Weights stored in bfloat16 that are loaded in float32, as those of checkpoints/dse-minilm-l6."""
    model = make_model().to(torch.bfloat16).float()
    options = {"model_id": "old/name", "dtype": torch.bfloat16, **FACTS}
    source = export_model(model, bert_tokenizer, tmp_path / "source", **options)
    assert AutoModelForSequenceClassification.from_pretrained(source).dtype == torch.float32
    command = ["export", "--model_name_or_path", str(source), "--output_dir"]
    assert main([*command, str(tmp_path / "same"), "--model_id", "old/name"]) == 0
    assert files(tmp_path / "same") == files(source)
    assert {tensor.dtype for tensor in load_file(source / "model.safetensors").values()} == {torch.bfloat16}

    assert main([*command, str(tmp_path / "new"), "--model_id", "user/new"]) == 0
    card = ModelCard.load(tmp_path / "new" / "README.md")
    old = front_matter(ModelCard.load(source / "README.md"))
    assert front_matter(card) == {**old, "model-index": [{**old["model-index"][0], "name": "new"}]}
    assert "old/name" not in card.content and 'SentenceTransformer("user/new"' in card.content
    assert "| test | 1379 | 85.94 | 84.49 |" in card.content
    assert not warnings
    assert main([*command, str(tmp_path / "longer"), "--max_length", "64"]) == 0
    assert "README.md is kept and describes a model that reads 32 tokens of a text, but that in" in warnings.pop()

    (source / "README.md").write_text("# My own card\n")
    assert main([*command, str(tmp_path / "own"), "--model_id", "user/own"]) == 0
    assert (tmp_path / "own" / "README.md").read_text() == "# My own card\n"
    assert "README.md is kept as it was and does not mention user/own: edit it in" in warnings.pop()
    (source / "README.md").unlink()
    assert main([*command, str(tmp_path / "none"), "--model_id", "user/none"]) == 0
    assert 'SentenceTransformer("user/none"' in (tmp_path / "none" / "README.md").read_text()
    with pytest.raises(ValueError, match="`base_model` is for a new model card, and `card` is a finished one"):
        export_model(model, bert_tokenizer, tmp_path / "both", card="# Card\n", base_model="a/b")
    assert not warnings


def test_card_omits_missing_information(make_model):
    card = make_model_card(make_model(DseModel), model_id="someone/student")
    assert set(front_matter(card)) == {"model_name", "library_name", "pipeline_tag", "tags"}
    assert "knowledge-distillation" not in card.data.tags
    for word in ("## Results", "## Training", "How these numbers", "weights are under", "ForSequenceClassification"):
        assert word not in card.content
    assert 'SentenceTransformer("someone/student", trust_remote_code=True)' in card.text
    assert card.text.lstrip().startswith("# student\n")


def test_no_file_contains_local_paths(tmp_path, make_model, bert_tokenizer):
    first = export_model(make_model(), bert_tokenizer, tmp_path / "first")
    model, tokenizer = AutoModelForSequenceClassification.from_pretrained(first), AutoTokenizer.from_pretrained(first)
    places = {"base_model": str(first), "teacher": "/elsewhere/teacher", "datasets": ["~/secret/pairs", None]}
    second = export_model(model, tokenizer, tmp_path / "second", **places)
    for name, content in files(second).items():
        for place in (str(tmp_path), "elsewhere", "secret"):
            assert place.encode() not in content, name
    metadata = front_matter(ModelCard.load(second / "README.md"))
    assert "base_model" not in metadata and "datasets" not in metadata


def test_card_names_local_models(tmp_path, make_model, bert_tokenizer):
    """The folder of a run is named after the run, and leads to the model on the Hub that it was made from."""
    link = "[sentence-transformers/all-MiniLM-L6-v2](https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2)"
    first = export_model(make_model(), bert_tokenizer, tmp_path / "first" / "model", base_model=FACTS["base_model"])
    card = make_model_card(make_model(), model_id="second", base_model=str(first), teacher=str(tmp_path / "teacher"))
    assert f"It was converted from first/model, made from {link}. It was distilled from" in card.text
    assert f"- Base model: first/model, made from {link}\n- Teacher: teacher\n" in card.text
    assert front_matter(card)["base_model"] == FACTS["base_model"]
    assert str(tmp_path) not in card.content


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("{}/run/model", "run/model"),
        ("{}/run/checkpoint-500", "run/checkpoint-500"),
        ("{}/run/other/../model/", "run/model"),
        ("{}/alice/minilm", "minilm"),
        ("/model", "model"),
        ("~/model", "model"),
        ("{}/hub/models--owner--my-name/snapshots/0123abc", "[owner/my-name](https://huggingface.co/owner/my-name)"),
        ("{}/hub/models--bert/snapshots/0123abc", "bert"),
    ],
)
def test_names_of_local_models(path, name, tmp_path):
    assert str(describe_source(path.format(tmp_path))) == name


@pytest.mark.parametrize("content", [b"", b"# No metadata", b"---\nbase_model: [\n---\n", b"---\n- 1\n---\n", b"\xff"])
def test_a_source_may_have_any_readme(content, tmp_path):
    (tmp_path / "README.md").write_bytes(content)
    assert describe_source(str(tmp_path)) == Source(tmp_path.name, is_local=True)
    for base in ("[a/b, c/d]", "/home/alice/model", "1"):
        (tmp_path / "README.md").write_text(f"---\nbase_model: {base}\n---\n")
        assert describe_source(str(tmp_path)).hub_id is None


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"similarity": "mlp", "num_labels": 3},
        {"similarity": "dot", "problem_type": "multi_label_classification", "pooling_layers": 2},
        {"layer_types": ["full_attention"] * 2},
        {"layer_types": ["full_attention", "linear_attention"], "linformer_length": [3, 8]},
        {"layer_types": ["chunked_attention", "linear_attention"], "attention_chunk_size": 4},
        {"linformer_length": [4, 8], "linformer_projection": "mean"},
        {"linformer_projection": "strided", "funnel_layers": 1},
        {"linformer_projection": "learned", "linformer_init": "random"},
    ],
)
@pytest.mark.parametrize(
    "facts",
    [
        {},
        FACTS,
        {"metrics": {"test": {"accuracy": 0.5}}},
        SEARCH_FACTS,
        {**SEARCH_FACTS, "recipe": {"chunk_size": 32}},
        {"eval_results": OTHER_RESULTS},
        {**FACTS, "eval_results": OTHER_RESULTS},
    ],
)
def test_cards_of_all_kinds_are_clean(make_model, fields, facts):
    for model_class in (DseModel, DseForSequenceClassification):
        card = make_model_card(make_model(model_class, **fields), model_id="student", **facts)
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
    mixed = make_model(DseModel, layer_types=["full_attention", "linear_attention"], linformer_length=[3, 8])
    text = make_model_card(mixed, model_id="x").text
    assert "The attention of 1 of its 2 layers" in text
    assert "| Projected length k | 8 |" in text
    softmax = make_model_card(make_model(DseModel, layer_types=["full_attention"] * 2), model_id="x")
    assert "informer" not in softmax.content
    chunked = make_model(DseModel, layer_types=["chunked_attention", "linear_attention"], attention_chunk_size=4)
    text = make_model_card(chunked, model_id="x").text
    assert "| Chunked attention | 1 layers, chunks of 4 tokens |" in text
    assert "Attention is exact for texts of up to 4 tokens" in text
    funnel = make_model(DseModel, linformer_projection="mean", funnel_layers=1)
    text = make_model_card(funnel, model_id="x").text
    assert "| Funnel | the last 1 layers have k rows instead of all tokens |" in text
    random = make_model_card(make_model(DseModel, linformer_init="random"), model_id="x")
    assert "Attention is exact" not in random.text


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ({"test": {"pearson": float("nan")}}, r"`metrics\['test'\]\['pearson'\]` is nan, but must be a finite number"),
        ({"test": {"pearson": "0.9"}}, "is '0.9', but must be a finite number"),
        ({"pearson": 0.9}, r'must map splits to metrics, such as \{"test": \{"pearson": 0.86\}\}'),
        ({"test": {"pearson": 0.9}, "dev": {"f1": 0.9}}, "must have the same metrics for all splits"),
    ],
)
def test_invalid_metrics_are_errors(tmp_path, make_model, bert_tokenizer, metrics, message):
    with pytest.raises(ValueError, match=message):
        export_model(make_model(), bert_tokenizer, tmp_path / "model", metrics=metrics)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("length", [0, 65])
def test_max_length_out_of_range_is_an_error(tmp_path, make_model, bert_tokenizer, length):
    with pytest.raises(ValueError, match=f"`max_length` must be between 1 and 64, .* got {length}"):
        export_model(make_model(), bert_tokenizer, tmp_path / "model", max_length=length)


def test_other_models_are_errors(tmp_path, bert_tokenizer):
    config = BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)
    with pytest.raises(TypeError, match="Only DSE models can be exported, got BertModel: convert it with"):
        export_model(BertModel(config), bert_tokenizer, tmp_path / "model")


def test_adapters_are_merged_first(tmp_path, make_model, bert_tokenizer):
    peft = pytest.importorskip("peft")
    folder = export_model(make_model(), bert_tokenizer, tmp_path / "model")
    before = {file.name: file.stat().st_mtime_ns for file in folder.iterdir()}
    config = peft.LoraConfig(target_modules=["query", "value"], r=2)
    inside = make_model()
    inside.add_adapter(config)
    around = peft.get_peft_model(make_model(), config)
    for model in (inside, around):
        for export in (export_model, export_graph):
            with pytest.raises(TypeError, match="has an adapter of PEFT.* merge it first"):
                export(model, bert_tokenizer, folder, overwrite=True)
    assert {file.name: file.stat().st_mtime_ns for file in folder.iterdir()} == before
    around.peft_config["default"].base_model_name_or_path = "user/base"
    around.save_pretrained(tmp_path / "adapter", save_embedding_layers=False)
    for load in (lambda name: load_model(ModelArguments(name, device="cpu")), load_dse_model, BiEncoder):
        with pytest.raises(ValueError, match="adapter is an adapter of PEFT for user/base, .* `merge_and_unload`"):
            load(str(tmp_path / "adapter"))
    export_model(around.merge_and_unload(), bert_tokenizer, folder, overwrite=True)
    assert (folder / "model.safetensors").is_file()


class OtherModel(DseModel):
    pass


def test_subclasses_are_errors(tmp_path, make_model, bert_tokenizer):
    """The folder would have the code of the subclass, but not the modules that it imports."""
    with pytest.raises(TypeError, match="OtherModel of test_export was saved without .*modeling_dse.py"):
        export_model(make_model(OtherModel), bert_tokenizer, tmp_path / "model")
    assert not os.listdir(tmp_path)


def test_says_which_transformers_the_package_needs():
    lines = [line for line in importlib.metadata.requires("hf-dse") if "extra ==" not in line]
    (needed,) = (line for line in lines if re.match(r"transformers[<>=]", line))
    assert TRANSFORMERS_NEEDED in needed.removeprefix("transformers").split(",")


@pytest.mark.slow
def test_examples_of_the_card_run(tmp_path, make_model, bert_tokenizer):
    """In a separate process without hf_dse, as readers of the card run them."""
    folder = export_model(make_model(), bert_tokenizer, tmp_path / "student", **FACTS)
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


def test_a_command_is_published_without_local_paths(tmp_path, monkeypatch):
    file = tmp_path / "my pairs.csv"
    file.touch()
    command = ["distill", "--train_file", str(file), f"--test_file={file}", "--model_name_or_path", "org/model"]
    command += ["--teacher_name_or_path", str(tmp_path / "teacher" / "model")]
    expected = "hf-dse distill --train_file 'my pairs.csv' '--test_file=my pairs.csv' --model_name_or_path org/model"
    expected += " --teacher_name_or_path teacher/model"
    for program in ("/usr/bin/hf-dse", "/lib/hf_dse_cli.py"):
        monkeypatch.setattr(sys, "argv", [program, *command])
        assert describe_command() == expected
    monkeypatch.setattr(sys, "argv", ["train.py", *command])
    assert describe_command() is None
