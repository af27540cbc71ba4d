# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Studies: the grid, running and resuming it with real trainings, and what is reported."""

import json
import math
import os
import runpy
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import numpy as np
import pandas as pd
import psutil
import pytest
import torch
import yaml
from datasets import Dataset
from transformers import BertConfig, BertModel

from hf_dse import DseModel, encode, export_model
from hf_dse.studies.probe import probe_layers
from hf_dse.studies.report import compare, correlate, plot, summarize, summary_table
from hf_dse.studies.runs import (
    Run,
    append_row,
    convergence,
    finished_runs,
    load_study,
    read_results,
    run_study,
    spread,
)
from hf_dse_cli import main


STUDIES = Path(__file__).parents[1] / "studies"


@pytest.fixture
def write(tmp_path):
    def make(content, name="grid.yaml"):
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False))
        return path

    return make


@pytest.fixture
def tiny_study(tmp_path, write, save_bert, monkeypatch):
    """Two attentions and two seeds of a tiny encoder."""
    save_bert(tmp_path / "encoder", num_hidden_layers=1)
    monkeypatch.setenv("TINY", str(tmp_path))

    def make(seeds=(1, 2), **options):
        defaults = {
            "model_name_or_path": "${TINY}/encoder",
            "dataset_name": "embedded",
            "max_train_samples": 16,
            "max_eval_samples": 16,
            "max_length": 64,
            "max_steps": 2,
            "distillation_alpha": 1.0,
            "eval_strategy": "no",
            "save_strategy": "no",
            "report_to": "none",
            "use_cpu": True,
        }
        attention = {"linear": {"linformer_length": 4}, "softmax": {"layer_types": "full_attention"}}
        return write({"options": {**defaults, **options}, "factors": {"attention": attention, "seed": list(seeds)}})

    return make


# The grid


def test_every_combination_is_a_run(write):
    study = load_study(
        write(
            {
                "options": {"learning_rate": 1e-4, "seed": 0},
                "factors": {
                    "attention": {"linear": {"linformer_length": 8, "learning_rate": 1e-3}, "softmax": None},
                    "num_hidden_layers": [6, 3],
                    "seed": [1],
                },
            }
        )
    )
    runs = study.runs()
    assert [tuple(run.labels.values()) for run in runs] == [
        ("linear", 6, 1),
        ("linear", 3, 1),
        ("softmax", 6, 1),
        ("softmax", 3, 1),
    ]
    assert runs[0].options == {"learning_rate": 1e-3, "seed": 1, "linformer_length": 8, "num_hidden_layers": 6}
    assert runs[3].options == {"learning_rate": 1e-4, "seed": 1, "num_hidden_layers": 3}
    assert len({run.key for run in runs}) == len({run.folder for run in runs}) == 4


def test_runs_that_share_a_stage_do_not_begin_together(write):
    general = {"stage": "general", "seed": 1}
    study = load_study(
        write(
            {
                "options": {"stage_cache_dir": "stages"},
                "factors": {
                    "num_hidden_layers": [6, 3],
                    "training": {"pairs": {"stages": [{}]}, "both": {"stages": [general, {}]}},
                    "seed": [42, 43],
                },
            }
        )
    )
    order = [tuple(run.labels.values()) for run in spread(study.runs())]
    assert order[-2:] == [(6, "both", 43), (3, "both", 43)]
    assert order[:-2] == [tuple(run.labels.values()) for run in study.runs()[:3]] + [
        (3, "pairs", 42),
        (3, "pairs", 43),
        (3, "both", 42),
    ]
    assert spread([*study.runs(), *study.runs()]) == spread(study.runs())


def test_a_run_is_known_by_its_options_alone(write):
    first = load_study(write({"options": {"a": 1, "b": 2}, "factors": {"seed": [1]}}, "a.yaml")).runs()[0]
    second = load_study(
        write({"options": {"b": 2}, "factors": {"what": {"x": {"a": 1, "seed": 1}}}}, "b.yaml")
    ).runs()[0]
    third = load_study(write({"options": {"b": 2, "a": 1}, "factors": {"seed": [2]}}, "c.yaml")).runs()[0]
    assert first.key == second.key != third.key


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a: [", "is not valid YAML"),
        ("options: {}", "has the keys `options` and `factors`, and at least one factor"),
        ("factors: {seed: [1]}\nfactor: {}", "has the keys `options` and `factors`"),
        ("factors: {seed: []}", "the factor 'seed' has to be a list of values"),
        ("factors: {seed: 1}", "the factor 'seed' has to be a list of values, or labels"),
        ("factors: {x: {a: 1}}", "the factor 'x' has to be"),
        ("factors: {run: [1]}", "no factor may have the name 'run'"),
        ("factors: {n: [1]}", "no factor may have the name 'n'"),
        ("factors: {test.pearson: [1]}", "no factor may have the name 'test.pearson'"),
    ],
)
def test_what_is_no_study(write, content, message):
    with pytest.raises(ValueError, match=message):
        load_study(write(content))


# Running


def test_a_study_runs_once_and_reports(tiny_study, tmp_path, monkeypatch, capsys):
    # A number may be a variable, too.
    monkeypatch.setenv("STEPS", "2")
    file = str(tiny_study(eval_strategy="steps", eval_steps=1, max_steps="${STEPS}"))
    where = ["--output_dir", str(tmp_path / "runs")]
    assert main(["study", file, "--dry_run"]) == 0
    assert capsys.readouterr().out.count("missing") == 4
    assert main(["study", file, *where, "--jobs", "2", "--threads", "1", "--flags=--bf16"]) == 0
    results = read_results(tmp_path / "results.parquet")
    assert sorted(zip(results["attention"], results["seed"], strict=True)) == [
        ("linear", 1),
        ("linear", 2),
        ("softmax", 1),
        ("softmax", 2),
    ]
    assert results["test.pearson"].between(-1, 1).all() and results["test.pearson"].nunique() > 1
    assert (results["wall_seconds"] > 0).all() and (results["peak_memory_mb"] > 50).all()
    options = json.loads(results["options"][0])
    assert set(results["flags"]) == {"--bf16"}
    assert "bf16" not in options
    # A variable stays one: the row is the same on every machine.
    assert options["model_name_or_path"] == "${TINY}/encoder"
    assert json.loads(results["versions"][0])["torch"] == torch.__version__

    # There is such a step in exactly the runs that end above 0; random weights may end below.
    ends_above_0 = results["validation.pearson"] > 0
    assert (results["seconds_per_step"] > 0).all() and ends_above_0.any()
    assert (results["steps_to_95"].between(1, 2) == ends_above_0).all()
    assert results["steps_to_95"].isna().eq(~ends_above_0).all()

    # Nothing is run again, not even under other labels; a new seed alone is.
    capsys.readouterr()
    assert main(["study", file, *where]) == 0
    assert "4 runs are in" in capsys.readouterr().out
    assert list(read_results(tmp_path / "results.parquet")["finished"]) == list(results["finished"])

    report = ["study", "report", file, "--metrics", "test.pearson", "--baseline", "attention=softmax"]
    assert main([*report, "--plot", str(tmp_path / "plot.png"), "--x", "attention"]) == 0
    out = capsys.readouterr().out
    assert "| attention | n | test.pearson |" in out and "too few pairs" in out
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_a_failed_run_does_not_stop_the_others(tiny_study, tmp_path, capsys):
    file = tiny_study(seeds=[1])
    content = yaml.safe_load(file.read_text())
    content["factors"]["attention"]["wrong"] = {"linformer_length": 0}
    file.write_text(yaml.safe_dump(content, sort_keys=False))
    assert main(["study", str(file), "--output_dir", str(tmp_path / "runs"), "--jobs", "3", "--threads", "1"]) == 2
    error = capsys.readouterr().err
    assert "1 of 3 runs failed" in error and "attention wrong, seed 1: exit code 2" in error
    assert "`linformer_length` must be at least 3" in error
    assert sorted(read_results(tmp_path / "results.parquet")["attention"]) == ["linear", "softmax"]


def test_a_wrong_option_is_found_before_the_first_run(tiny_study, tmp_path, capsys):
    file = tiny_study(seeds=[1])
    content = yaml.safe_load(file.read_text())
    content["factors"]["attention"]["wrong"] = {"linformer_lenght": 8}
    file.write_text(yaml.safe_dump(content, sort_keys=False))
    assert main(["study", str(file), "--output_dir", str(tmp_path / "runs")]) == 2
    error = capsys.readouterr().err
    assert "attention wrong, seed 1: " in error and "did you mean 'linformer_length'?" in error
    assert main(["study", str(tiny_study()), "--flags=--bf61 true"]) == 2
    assert "did you mean '--bf16'?" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists() and not (tmp_path / "results.parquet").exists()


@pytest.mark.parametrize("path", sorted(STUDIES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_studies_of_this_project(path, capsys):
    assert main(["study", str(path), "--dry_run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len({run.key for run in load_study(path).runs()})


def test_a_study_says_what_it_lacks(write, tiny_study, monkeypatch, capsys):
    file = tiny_study()
    with pytest.raises(ValueError, match="`jobs` and `threads` have to be at least 1, got 0"):
        run_study(load_study(file), "x.parquet", "x", jobs=0)
    assert main(["study", "report", str(file)]) == 2
    assert "There is no finished run to report on" in capsys.readouterr().err
    monkeypatch.delenv("TINY")
    assert main(["study", str(file)]) == 2
    assert "needs the environment variable TINY" in capsys.readouterr().err
    assert main(["study", "nowhere.yaml"]) == 2
    assert "nowhere.yaml: there is no such study" in capsys.readouterr().err


@pytest.mark.slow
def test_a_killed_study_goes_on_without_repeating_a_run(tiny_study, tmp_path):
    file, results = tiny_study(seeds=(1, 2, 3)), tmp_path / "results.parquet"
    command = [sys.executable, "-m", "hf_dse_cli", "study", str(file), "--output_dir", str(tmp_path / "runs")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        deadline = time.monotonic() + 240
        while len(read_results(results)) < 2:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        # As when the machine goes down: the study and the training that it runs.
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    before = read_results(results)
    assert 2 <= len(before) < 6
    subprocess.run([*command, "--jobs", "2"], check=True, capture_output=True)
    after = read_results(results)
    assert len(after) == 6 and after["run"].nunique() == 6
    assert list(after["finished"][: len(before)]) == list(before["finished"])


@pytest.mark.slow
def test_a_study_that_is_terminated_leaves_no_training(tiny_study, tmp_path):
    file = tiny_study(max_steps=100_000)
    command = [sys.executable, "-m", "hf_dse_cli", "study", str(file), "--output_dir", str(tmp_path / "runs")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    study, deadline = psutil.Process(process.pid), time.monotonic() + 120
    while not (trainings := study.children()):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    process.terminate()
    assert process.wait(60) == 128 + signal.SIGTERM
    assert not any(training.is_running() for training in trainings)


def test_ctrl_c_while_a_training_is_handed_out(tiny_study, tmp_path, monkeypatch):
    begun = Event()

    class Interrupted(ThreadPoolExecutor):
        def submit(self, *args):
            super().submit(*args)
            assert begun.wait(60)
            raise KeyboardInterrupt

    def sleep(run, folder, slot, threads, flags, processes):
        process = subprocess.Popen(["sleep", "1000"])
        processes.add(process)
        begun.set()
        assert process.wait() == -signal.SIGTERM

    monkeypatch.setattr("hf_dse.studies.runs.ThreadPoolExecutor", Interrupted)
    monkeypatch.setattr("hf_dse.studies.runs.train", sleep)
    with pytest.raises(KeyboardInterrupt):
        run_study(load_study(tiny_study()), tmp_path / "results.parquet", tmp_path / "runs")


# Results


def test_labels_may_be_numbers_and_words(tmp_path):
    """As of a k that is 4, 8, or softmax; a study has its own labels again."""
    file = tmp_path / "results.parquet"
    for number, label in enumerate((4, "softmax", 8)):
        append_row(file, {"k": label, "run": str(number), "test.pearson": number / 10})
    assert read_results(file)["k"].tolist() == ["4", "softmax", "8"]
    assert read_results(file)["test.pearson"].tolist() == [0.0, 0.1, 0.2]


def test_writers_of_one_file_do_not_lose_rows(tmp_path):
    program = (
        "import sys; from pathlib import Path; from hf_dse.studies.runs import append_row\n"
        "for i in range(5): append_row(Path(sys.argv[1]), {'run': f'{sys.argv[2]}-{i}'})"
    )
    file = tmp_path / "rows.parquet"
    writers = [subprocess.Popen([sys.executable, "-c", program, str(file), name]) for name in "ab"]
    assert [writer.wait() for writer in writers] == [0, 0]
    assert sorted(read_results(file)["run"]) == sorted(f"{name}-{i}" for name in "ab" for i in range(5))
    # Later rows may have other columns.
    append_row(file, {"run": "c", "test.f1": 0.5})
    assert read_results(file)["test.f1"].notna().sum() == 1


@pytest.fixture
def results():
    rng = np.random.default_rng(0)
    rows = []
    for attention, shift in (("softmax", 0.0), ("linear", -0.002), ("none", -0.2)):
        for depth in (2, 4):
            for seed in range(6):
                noise = rng.normal(0, 0.02) if attention == "linear" else 0.001 * seed
                score = 0.8 + 0.01 * depth + shift + noise
                rows.append({"attention": attention, "depth": depth, "seed": seed, "test.pearson": score})
    return pd.DataFrame(rows)


FACTORS = ["attention", "depth", "seed"]


def test_means_and_spreads(results):
    summary = summarize(results, FACTORS, ["test.pearson"])
    assert list(summary["attention"]) == ["softmax", "softmax", "linear", "linear", "none", "none"]
    chosen = results[(results["attention"] == "linear") & (results["depth"] == 4)]["test.pearson"]
    row = summary[(summary["attention"] == "linear") & (summary["depth"] == 4)].iloc[0]
    assert row["n"] == 6
    assert row["test.pearson"] == pytest.approx(sum(chosen) / 6)
    assert row["test.pearson std"] == pytest.approx(np.sqrt(sum((chosen - chosen.mean()) ** 2) / 5))
    table = summary_table(summary, ["test.pearson"])
    assert f"| linear | 4 | 6 | {100 * chosen.mean():.2f} ± {100 * chosen.std():.2f} |" in table
    single = summary_table(summarize(results[:1], FACTORS, ["test.pearson"]), ["test.pearson"])
    assert single.endswith("| softmax | 2 | 1 | 82.00 |")
    with pytest.raises(ValueError, match="have no 'test.f1'; they have attention, depth, seed, test.pearson"):
        summarize(results, FACTORS, ["test.f1"])


def test_what_the_noise_does_not_separate_is_not_ranked(results):
    # A run without its partner has no difference.
    comparison = compare(results.drop(index=0), FACTORS, "test.pearson", "attention", "softmax")
    linear, none = comparison.to_dict("records")
    assert (linear["attention"], linear["pairs"], linear["verdict"]) == ("linear", 11, "not separated")
    assert linear["low"] < 0 < linear["high"]
    assert none["verdict"] == "lower" and none["difference"] == pytest.approx(-0.2)
    (depth,) = compare(results, FACTORS, "test.pearson", "depth", "2").to_dict("records")
    assert depth["depth"] == 4 and depth["verdict"] == "higher"
    few = compare(results[results["seed"] == 0], FACTORS, "test.pearson", "attention", "softmax")
    assert set(few["verdict"]) == {"too few pairs"}


def test_the_interval_is_the_bootstrap(results):
    comparison = compare(results, FACTORS, "test.pearson", "attention", "softmax")
    wide = results.pivot(index=["depth", "seed"], columns="attention", values="test.pearson")
    differences = (wide["linear"] - wide["softmax"]).to_numpy()
    rng = np.random.default_rng(7)
    means = [rng.choice(differences, len(differences)).mean() for _ in range(5000)]
    assert comparison["low"][0] == pytest.approx(np.quantile(means, 0.025), abs=1e-3)
    assert comparison["high"][0] == pytest.approx(np.quantile(means, 0.975), abs=1e-3)


def test_correlations_with_their_intervals(results):
    linear = results[results["attention"] != "none"]
    found = correlate(linear, "test.pearson", "depth")
    for name, (value, low, high) in found.items():
        assert value == pytest.approx(linear["depth"].corr(linear["test.pearson"], method=name))
        assert -1 <= low < value < high <= 1
    with pytest.raises(ValueError, match="at least two numbers as labels; attention has softmax, linear, none"):
        correlate(results, "test.pearson", "attention")


def test_convergence_is_the_first_step_near_the_last_value():
    log = [{"step": 10, "loss": 1.0}]
    log += [
        {"step": step, "eval_pearson": value, "eval_runtime": 2.0}
        for step, value in ((10, 0.5), (20, 0.77), (30, 0.7), (40, 0.8))
    ]
    state = {"log_history": log, "global_step": 40}
    assert convergence(state, {"train_runtime": 28.0}) == {"seconds_per_step": 0.5, "steps_to_95": 20}
    # A student that ends without any correlation has not converged.
    log[-1]["eval_pearson"] = -0.1
    assert convergence(state, {"train_runtime": 28.0}) == {"seconds_per_step": 0.5}
    state["log_history"] = log[:2]
    assert convergence(state, {"train_runtime": 22.0}) == {"seconds_per_step": 0.5}


def test_comparisons_and_plots_say_what_is_wrong(results, tmp_path):
    with pytest.raises(ValueError, match="no factor 'k'; the factors are attention, depth, seed"):
        compare(results, FACTORS, "test.pearson", "k", 1)
    with pytest.raises(ValueError, match="no finished runs for 'x', only for softmax, linear, none"):
        compare(results, FACTORS, "test.pearson", "attention", "x")
    summary = summarize(results, FACTORS, ["test.pearson"])
    with pytest.raises(ValueError, match="Several rows have the same depth"):
        plot(summary, "test.pearson", "depth", tmp_path / "x.png")
    assert plot(summary, "test.pearson", "depth", tmp_path / "a" / "x.svg", lines="attention").is_file()
    mixed = summarize(results, FACTORS, ["test.pearson"]).replace({"depth": {4: "none"}}).astype({"depth": object})
    assert plot(mixed, "test.pearson", "depth", tmp_path / "mixed.png", lines="attention").is_file()


# The probe


def layer_by_layer(model, tokenizer, pairs):
    """Pearson after each layer, one text at a time."""
    cosines = []
    for first, second in zip(pairs["sentence1"], pairs["sentence2"], strict=True):
        pooled = []
        for text in (first, second):
            with torch.inference_mode():
                states = model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True).hidden_states
            pooled.append(torch.stack([state[0].mean(dim=0) for state in states]))
        cosines.append(torch.cosine_similarity(*pooled, dim=-1).numpy())
    return [np.corrcoef(layer, pairs["label"][:])[0, 1] for layer in np.array(cosines).T]


@pytest.mark.parametrize("kind", ["bert", "dse", "dse with a head"])
def test_similarity_after_every_layer(kind, bert_tokenizer, make_model):
    torch.manual_seed(0)
    size = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    model = {
        "bert": lambda: BertModel(BertConfig(vocab_size=len(bert_tokenizer), initializer_range=0.5, **size)).eval(),
        "dse": lambda: make_model(DseModel, projection_dim=6),
        "dse with a head": make_model,
    }[kind]()
    pairs = Dataset.from_dict(
        {
            "sentence1": ["a cat sat", "the dog ran on the mat in the old house", "new", "a cat sat"],
            "sentence2": ["a cat", "dog", "the house is new and old and new and old and new", "in"],
            "label": [5.0, 2.0, 1.0, 3.0],
        }
    )
    results = probe_layers(model, bert_tokenizer, pairs, batch_size=3, show_progress=False)
    assert list(results) == ["0", "1", "2", "embedding"]
    expected = layer_by_layer(model.base_model, bert_tokenizer, pairs)
    assert [results[name]["pearson"] for name in "012"] == pytest.approx(expected, abs=1e-5)
    vectors = [
        encode(model, bert_tokenizer, pairs[name][:], show_progress=False) for name in ("sentence1", "sentence2")
    ]
    cosine = torch.cosine_similarity(*map(torch.from_numpy, vectors)).numpy()
    assert results["embedding"]["pearson"] == pytest.approx(np.corrcoef(cosine, pairs["label"][:])[0, 1], abs=1e-5)


def test_probing_several_models(tmp_path, bert_tokenizer, make_model, capsys):
    for name, layers in (("long", 3), ("short", 1)):
        export_model(make_model(DseModel, num_hidden_layers=layers), bert_tokenizer, tmp_path / name)
    pairs = {"sentence1": ["a cat", "dog", "new"], "sentence2": ["cat", "the mat", "is old"], "label": [3, 1, 2]}
    Dataset.from_dict(pairs).to_parquet(tmp_path / "pairs.parquet")
    options = ["--validation_file", str(tmp_path / "pairs.parquet"), "--num_labels", "1", "--max_length", "32"]
    models = ["--models", str(tmp_path / "long"), str(tmp_path / "short")]
    assert main(["study", "probe", *models, *options, "--output_file", str(tmp_path / "probe.json")]) == 0
    header, _, *rows = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()[:-1]]
    assert header == ["after layer", "long: Pearson", "long: Spearman", "short: Pearson", "short: Spearman"]
    assert [row[0] for row in rows] == ["0", "1", "2", "3", "embedding"]
    # There is no second layer in the short one.
    assert len(rows[1]) == 5 and float(rows[1][4]) and len([cell for cell in rows[2] if cell.strip()]) == 3
    written = json.loads((tmp_path / "probe.json").read_text())
    assert float(rows[-1][4]) == pytest.approx(100 * written["short"]["embedding"]["spearman"], abs=0.01)


def test_runs_made_under_earlier_names_of_options_are_found():
    old, new = Run({}, {"max_seq_length": 64, "seed": 42}), Run({}, {"max_length": 64, "seed": 42})
    assert old.key == new.key != Run({}, {"max_length": 65, "seed": 42}).key
    stages = [{"stages": [{name: 64}]} for name in ("max_seq_length", "max_length")]
    assert Run({}, stages[0]).key == Run({}, stages[1]).key
    finished = finished_runs(STUDIES / "results.parquet")
    for name, number in {"length_concatenated": 52, "length_hidden": 29, "five_tasks": 16, "depth": 30}.items():
        runs = load_study(STUDIES / f"{name}.yaml").runs()
        assert sum(run.key in finished for run in runs) == number


@pytest.mark.parametrize("length", [5, 64, 65, 200])
@pytest.mark.parametrize("kind", ["kernel", "decay"])
def test_other_linear_attention_is_a_weighted_mean(kind, length):
    """Weights of all pairs of tokens, one by one, against sums over blocks."""
    study = runpy.run_path(str(STUDIES / "linear_attentions.py"))
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 2, 4, length, 8, dtype=torch.float64)
    mask = torch.zeros(2, 1, 1, length, dtype=torch.float64)
    mask[1, ..., -2:] = torch.finfo(torch.float64).min
    module = SimpleNamespace(layer_idx=1, config=SimpleNamespace(num_hidden_layers=4))
    outputs, _ = study[f"{kind}_attention"](module, query, key, value, mask)

    places = torch.arange(length)
    weights = (torch.nn.functional.elu(query) + 1) @ (torch.nn.functional.elu(key) + 1).transpose(2, 3)
    weights = weights * (mask == 0)
    if kind == "decay":
        # Heads forget at rates of 1/4, 1/16, 1/64 and 1/256 in the lowest layer, three quarters of that in the second.
        rates = torch.tensor([0.75 * math.pow(4, -head) for head in (1, 2, 3, 4)])[:, None, None]
        weights = weights * torch.exp(-rates * (places[:, None] - places).abs())
    expected = weights / weights.sum(dim=-1, keepdim=True) @ value
    torch.testing.assert_close(outputs.transpose(1, 2), expected, rtol=0, atol=1e-6)
