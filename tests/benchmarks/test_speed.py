# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Speed by length: the work that is timed, and its summary."""

import json
from types import SimpleNamespace

import pytest
import speed
import torch
from encoders import MODELS
from speed import Job, fit_exponents, summarize
from timing import interleave
from torch.utils.flop_counter import FlopCounterMode


TINY = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": 50}


def test_every_round_times_each_task_once_and_repeats_short_ones(monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr("timing.time", SimpleNamespace(perf_counter=lambda: float(next(clock))))
    seen = []
    tasks = {name: lambda name=name: seen.append(name) for name in "abc"}
    assert [len(values) for values in interleave(tasks, rounds=3).values()] == [3, 3, 3] and seen == list("abc" * 3)
    # The clock ticks once at the start and once after every call.
    assert interleave({"d": tasks["a"]}, rounds=2, min_seconds=4.0) == {"d": [1.0, 1.0]} and len(seen) == 9 + 8


@pytest.mark.parametrize("name", MODELS)
def test_every_model_runs(name):
    for length, train in ((64, True), (128, False)):
        states = Job(length, batch_size=2, k=8, train=train, sizes=TINY).make_task(name)()
        assert states.shape == (2, length, 768 if name == "bert-base" else 16)
        assert states.isfinite().all() and states.requires_grad == train


def test_training_computes_all_gradients():
    model = Job(32, batch_size=2, k=8, train=True, sizes=TINY).build("dse-learned")
    counts = []
    for train in (False, True):
        with FlopCounterMode(display=False) as counter:
            states = speed.token_states(model, torch.ones(2, 32, dtype=torch.long))
            if train:
                states.sum().backward()
        counts.append(counter.get_total_flops())
    assert counts[1] == pytest.approx(3 * counts[0])


def test_medians_and_ratios():
    seconds = {"base": [1.0, 4.0, 2.0], "fast": [0.5, 0.5, 0.5]}
    base, fast = summarize(seconds, 100, 8, "base")
    assert (base["ms"], base["ms_min"], base["ms_max"]) == (2000.0, 1000.0, 4000.0)
    assert base["speedup"] == 1.0 and base["tokens_per_second"] == 400.0
    # Round by round 2, 8 and 4 times as fast
    assert fast["speedup"] == 4.0
    assert summarize({"fast": [1.0]}, 100, 8, "base")[0]["speedup"] is None


def test_exponents_are_those_of_a_text():
    rows = []
    for length in (256, 1024, 2048, 4096):
        size = 8192 // length
        timings = {"softmax": [size * 1e-9 * length**2], "linear": [size * 1e-6 * length + (length < 1024)]}
        rows += summarize(timings, length, size, "softmax")
    rows += [{"model": "softmax", "length": 8192, "skipped": "slow"}, *summarize({"once": [1.0]}, 2048, 4, "softmax")]
    assert fit_exponents(rows) == pytest.approx({"softmax": 2.0, "linear": 1.0})


def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(speed, "run_speed", lambda args: run(args, TINY))
    monkeypatch.setattr(speed, "choose_device", lambda name: torch.device("cpu"))
    argv = ["--models", "nystromformer", "dse-mean", "bert-sdpa", "--linformer_length", "8", "--rounds", "1"]
    argv += ["--min_seconds", "0", "--batch_size", "1", "--output", str(tmp_path / "out" / "results.json")]
    speed.main([*argv, "--lengths", "1025", "2048"])
    out = capsys.readouterr().out
    assert "| 2048 | bert-sdpa |" in out and "x bert-sdpa" in out and "length to the power of" in out
    # A model that fails, or is too slow, ends no comparison.
    assert "nystromformer at 1025 tokens: fails: Nystromformer needs a multiple of its 64 landmarks" in out
    report = json.loads((tmp_path / "out" / "results.json").read_text())
    rows = {(row["model"], row["length"]): row for row in report["rows"]}
    assert rows["dse-mean", 2048]["speedup"] > 0 and set(report["exponents"]) == {"dse-mean", "bert-sdpa"}
    speed.main([*argv, "--lengths", "64", "128", "--max_seconds", "0"])
    assert "dse-mean at 128 tokens: left out, a batch took" in capsys.readouterr().out


run = speed.run_speed
