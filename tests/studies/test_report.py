# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The report of a study: means with their spread, and differences with intervals."""

import re

import numpy as np
import pandas as pd
import pytest

from hf_dse.studies.report import comparison_table, summarize, summary_table


FACTORS = ["attention", "depth", "seed"]


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


def test_what_the_noise_does_not_separate_is_not_ranked(results):
    # A run without its partner has no difference.
    table = comparison_table(results.drop(index=0), FACTORS, "test.pearson", "attention", "softmax")
    linear, none = table.splitlines()[2:]
    assert re.fullmatch(r"\| linear \| 11 \| .* \| -\d\.\d\d to \+\d\.\d\d \| not separated \|", linear)
    assert re.fullmatch(r"\| none \| 11 \| -20\.00 \| .* \| lower \|", none)
    (depth,) = comparison_table(results, FACTORS, "test.pearson", "depth", "2").splitlines()[2:]
    assert depth.startswith("| 4 | 18 | +") and depth.endswith("| higher |")
    few = comparison_table(results[results["seed"] == 0], FACTORS, "test.pearson", "attention", "softmax")
    assert few.count("too few pairs") == 2
    single = results[(results["seed"] == 0) & (results["depth"] == 2)]
    one = comparison_table(single, FACTORS, "test.pearson", "attention", "softmax")
    assert one.count("| 1 |") == one.count("| none | too few pairs |") == 2


def test_errors_name_what_there_is(results):
    with pytest.raises(ValueError, match="have no 'test.f1'; they have attention, depth, seed, test.pearson"):
        summarize(results, FACTORS, ["test.f1"])
    with pytest.raises(ValueError, match="no finished runs for 'x', only for softmax, linear, none"):
        comparison_table(results, FACTORS, "test.pearson", "attention", "x")
