# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Puts transformers' common model tests on the path. They may skip for our classes only what they skip for BERT, and what
`test_modeling_dse.py` skips with a stated reason.
"""

import os
import sys
from collections import defaultdict
from pathlib import Path

import pytest


os.environ["HF_HUB_OFFLINE"] = "1"
sys.path.insert(0, str(Path(__file__).parent))

from fetch_suite import fetch_suite  # noqa: E402


sys.path.insert(0, str(fetch_suite()))

BASELINE = "TestBert"

# test class -> test -> "passed", "in part" (some of its subtests were skipped) or "skipped"
outcomes: dict[str, dict[str, str]] = defaultdict(dict)


def pytest_runtest_logreport(report):
    _, test_class, test = report.nodeid.split("::")
    is_subtest = hasattr(report, "context")
    if report.skipped and "Stated: " not in str(report.longrepr):
        outcomes[test_class][test] = "in part" if is_subtest else "skipped"
    elif report.passed and report.when == "call" and not is_subtest:
        outcomes[test_class].setdefault(test, "passed")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session):
    """Fails the run if a test is skipped for one of our classes more than for BERT."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    # Workers of a parallel run have no reporter, and hold only a part of the outcomes.
    if reporter is None or BASELINE not in outcomes:
        return
    order = ["passed", "in part", "skipped"]
    for test_class, tests in sorted(outcomes.items()):
        counts = ", ".join(f"{list(tests.values()).count(kind)} {kind}" for kind in order)
        reporter.write_line(f"\n{test_class}: {counts.replace('in part', 'passed in part')}")
        for test, kind in sorted(tests.items()):
            of_bert = outcomes[BASELINE].get(test, "passed")
            if order.index(kind) > order.index(of_bert):
                reporter.write_line(f"  {test}: {kind}, but {of_bert} for BERT", red=True)
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
