# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Counts what the tests of this folder try, and writes the table of docs/reliability.md (`make faults`)."""

import os
import platform
import re
import time
from collections import Counter
from importlib.metadata import version
from pathlib import Path

import pytest


STARTED = time.time()

# What this test has tried so far: `""`, or the command that was killed.
TRIED: Counter[str] = Counter()
# What all tests have tried and survived, by row of the table, in the process that has the reports of the others.
FOUND: dict[str, Counter[str]] = {"tried": Counter(), "survived": Counter()}

BAD_INPUT = {
    "test_configs.py": "configs and model folders with odd values, or damaged",
    "test_tensors.py": "tensors of wrong kinds, masks with holes",
    "test_files.py": "files of texts, pairs and rankings: odd, damaged, of wrong types",
    "test_recipes.py": "recipes and studies: odd, damaged, of wrong types",
    "test_flags.py": "options with wrong values",
}
OTHERS = {
    "test_interrupts.py": "Ctrl-C",
    "test_disks.py": "full disks, folders that cannot be written, no home, a cache on another disk",
    "test_two_at_once.py": "two processes at once, children of killed ones",
    "test_foreign_files.py": "files that somebody else wrote: code, checkpoints, caches, indexes",
    "test_outside_text.py": "names and texts from outside, shown in terminal and cards",
    "test_what_is_published.py": "what is published: paths, tokens, links, code of others",
    "test_many_users_of_the_app.py": "the app: 50 users, long texts, files",
}
FEWEST = {"kills": 100, "cases of bad input": 5000}
MARKERS = re.compile("(?<=<!-- make faults: begin -->\n).*(?=<!-- make faults: end -->)", re.DOTALL)
VERSIONS = ("torch", "transformers", "safetensors", "pyarrow", "filelock")


def tried(what: str = "") -> None:
    """Counts one case of the test that is running; without any a test is one case."""
    TRIED[what] += 1


def pytest_addoption(parser):
    parser.addoption("--table", type=Path, help="write what was tried into this file")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    TRIED.clear()
    try:
        return (yield)
    finally:
        item.user_properties.append(("tried", dict(TRIED) or {"": 1}))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    report = yield
    # Test processes send what was logged as UTF-8, which has no halves of characters.
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
    return report


def pytest_runtest_logreport(report):
    counts = dict(report.user_properties).get("tried")
    if report.when != "call" or report.skipped or counts is None:
        return
    file = Path(report.nodeid.partition("::")[0]).name
    for what, number in counts.items():
        row = f"kills of `{what}`" if what else BAD_INPUT.get(file) or OTHERS.get(file) or file
        FOUND["tried"][row] += number
        FOUND["survived"][row] += number
    # A test ends with its first case that fails.
    FOUND["survived"][row] -= report.failed


def pytest_sessionfinish(session, exitstatus):
    path = session.config.getoption("--table")
    if path is None or hasattr(session.config, "workerinput"):
        return
    kills = sorted(row for row in FOUND["tried"] if row.startswith("kills of "))
    rows = [*kills, *BAD_INPUT.values(), *OTHERS.values()]
    totals = {
        "kills": sum(FOUND["tried"][row] for row in kills),
        "cases of bad input": sum(FOUND["tried"][row] for row in BAD_INPUT.values()),
    }
    minutes = round((time.time() - STARTED) / 60)
    found = ", ".join(f"{name} {version(name)}" for name in VERSIONS)
    lines = [
        f"`make faults` on {time.strftime('%-d %B %Y')}, in {minutes} minutes on {os.cpu_count()} cores, "
        f"{platform.system()},",
        f"Python {platform.python_version()}, {found}:",
        f"{', '.join(f'{number:,} {name}' for name, number in totals.items())}.",
        "",
        "| what | tried | survived |",
        "| --- | --: | --: |",
    ]
    for row in rows:
        number, survived = FOUND["tried"][row], FOUND["survived"][row]
        if number:
            lines.append(f"| {row} | {number:,} | {'all' if survived == number else f'{survived:,}'} |")
    text = path.read_text(encoding="utf-8")
    path.write_text(MARKERS.sub("\n".join([*lines, ""]), text), encoding="utf-8")
    for name, number in totals.items():
        if number < FEWEST[name]:
            writer = session.config.get_terminal_writer()
            writer.line(f"\nonly {number} {name} were tried, not {FEWEST[name]}", red=True)
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
