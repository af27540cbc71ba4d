# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Puts transformers' common model tests on the path, and compares what they skip for us with what they skip for BERT."""

import os
import sys
from pathlib import Path

import pytest


os.environ["HF_HUB_OFFLINE"] = "1"
sys.path.insert(0, str(Path(__file__).parent))

from fetch_suite import fetch_suite  # noqa: E402


sys.path.insert(0, str(fetch_suite()))

BASELINE = "TestBert"
outcomes: dict[str, dict[str, set[str]]] = {}


def pytest_runtest_logreport(report):
    if report.skipped or (report.when == "call" and report.passed):
        _, test_class, test = report.nodeid.split("::")
        # A skipped subtest leaves a test that ran in part.
        kind = "skipped in part" if hasattr(report, "context") and report.skipped else report.outcome
        if kind != "passed" or not hasattr(report, "context"):
            outcomes.setdefault(test_class, {}).setdefault(kind, set()).add(test)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session):
    """Fails the run if a test is skipped for one of our classes that is not skipped for BERT."""
    if BASELINE not in outcomes:
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    whole = outcomes[BASELINE].get("skipped", set())
    part = whole | outcomes[BASELINE].get("skipped in part", set())
    for test_class, kinds in sorted(outcomes.items()):
        skipped, in_part = kinds.get("skipped", set()), kinds.get("skipped in part", set()) - kinds.get("skipped", set())
        more = sorted((skipped - whole) | (in_part - part))
        line = f"{test_class}: {len(kinds.get('passed', set()))} passed, {len(skipped)} skipped, {len(in_part)} in part"
        reporter.write_line("\n" + line + (f"; not skipped for BERT: {', '.join(more)}" if more else ""), red=bool(more))
        if more:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
