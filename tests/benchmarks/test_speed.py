# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Speed by length: the work that is timed, and its summary."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import speed
import torch
from encoders import KINDS, SHAPES, VARIANTS, build
from speed import Job, fit_exponents, summarize
from timing import interleave
from transformers import FNetConfig, ModernBertConfig


TINY = {"hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 50}
SPECIAL = dict.fromkeys(["pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"], 0)


@pytest.fixture
def folder(tmp_path):
    """The configuration of a tiny encoder, which has no weights."""
    ModernBertConfig(**TINY, **SPECIAL, local_attention=32).save_pretrained(tmp_path)
    return str(tmp_path)


def test_every_round_times_each_task_once_and_repeats_short_ones(monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr("timing.time", SimpleNamespace(perf_counter=lambda: float(next(clock))))
    seen = []
    tasks = {name: lambda name=name: seen.append(name) for name in "abc"}
    assert [len(values) for values in interleave(tasks, rounds=3).values()] == [3, 3, 3] and seen == list("abc" * 3)
    # The clock ticks once at the start and once after every call.
    assert interleave({"d": tasks["a"]}, rounds=2, min_seconds=4.0) == {"d": [1.0, 1.0]} and len(seen) == 9 + 8


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name != "flex"])
def test_every_variant_runs(folder, variant):
    for length, train in ((20, True), (100, False)):
        states = Job(length, batch_size=2, k=8, train=train).make_task((folder, variant))()
        assert states.shape == (2, length, 16) and states.isfinite().all() and states.requires_grad == train
    if variant in KINDS:
        kinds = build(folder, variant, 20).config.layer_types
        assert kinds == [KINDS[variant], "sliding_attention", "sliding_attention", KINDS[variant]]


def test_medians_and_ratios():
    seconds = {("a", "base"): [1.0, 4.0, 2.0], ("a", "fast"): [0.5, 0.5, 0.5], ("b", "base"): [2.0, 2.0, 2.0]}
    base, fast, other = summarize(seconds, 100, 8)
    assert (base["ms"], base["ms_min"], base["ms_max"]) == (2000.0, 1000.0, 4000.0)
    assert base["speedup"] == 1.0 and base["tokens_per_second"] == 400.0
    # Round by round 2, 8 and 4 times as fast
    assert fast["speedup"] == 4.0
    # A model with one variant is compared with the first of all, others with their own first.
    assert other["speedup"] == 1.0
    seconds = {**seconds, ("b", "fast"): [1.0, 1.0, 1.0]}
    assert [row["speedup"] for row in summarize(seconds, 100, 8)] == [1.0, 4.0, 1.0, 2.0]


def test_exponents_are_those_of_a_text():
    rows = []
    for length in (256, 1024, 2048, 4096):
        size = 8192 // length
        timings = {
            ("m", "softmax"): [size * 1e-9 * length**2],
            ("m", "linear"): [size * 1e-6 * length + (length < 1024)],
        }
        rows += summarize(timings, length, size)
    rows += [{"model": "m", "variant": "softmax", "length": 8192, "skipped": "slow"}]
    rows += summarize({("m", "once"): [1.0]}, 2048, 4)
    assert fit_exponents(rows) == pytest.approx({("m", "softmax"): 2.0, ("m", "linear"): 1.0})


def test_the_command(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(speed, "choose_device", lambda name: torch.device("cpu"))
    monkeypatch.setitem(SHAPES, "fnet", FNetConfig(**TINY))
    argv = ["--models", folder, "fnet", "--variants", "sdpa", "mean", "--linformer_length", "8"]
    argv += ["--rounds", "1", "--min_seconds", "0", "--batch_size", "1", "--bf16"]
    speed.main([*argv, "--lengths", "1024", "2048", "--output", str(tmp_path / "out" / "results.json")])
    out = capsys.readouterr().out
    assert f"| 2048 | {Path(folder).name} | mean |" in out and "length to the power of" in out
    assert "threads, bfloat16, k = 8, 1 rounds\n" in out
    # A model that fails, or is too slow, ends no comparison.
    assert "fnet mean at 1024 tokens: fails: fnet has its own attention only" in out
    rows = json.loads((tmp_path / "out" / "results.json").read_text())["rows"]
    assert {
        (row["variant"], row["length"]) for row in rows if row.get("speedup", 0) > 0 and row["model"] != "fnet"
    } == {(variant, length) for variant in ("sdpa", "mean") for length in (1024, 2048)}
    speed.main([*argv, "--lengths", "64", "128", "--max_seconds", "0"])
    assert f"{Path(folder).name} mean at 128 tokens: left out, a batch took" in capsys.readouterr().out
