# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The subpackages of hf_dse: which may import which, and the maximum length of a file."""

import ast
from pathlib import Path

import pytest


ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "hf_dse").rglob("*.py"))
MAX_LINES = 450
# A subpackage imports only from lines below its own, and not from others on the same line.
LAYERS = [
    {"cli"},
    {"demo"},
    {"bench", "studies"},
    {"pipeline"},
    {"evaluation", "publish"},
    {"teacher"},
    {"training"},
    {"student", "mining"},
    {"inference"},
    {"metrics"},
    {"data"},
    {"common"},
    {"modeling"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def name_of(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports_of(path):
    """Yields the modules of hf_dse that a file imports, including imports inside functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)} has a relative import"
            if node.module.split(".")[0] == "hf_dse":
                for alias in node.names:
                    inner = ROOT.joinpath(*node.module.split("."), f"{alias.name}.py")
                    yield f"{node.module}.{alias.name}" if inner.is_file() else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "hf_dse")


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_files_are_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MAX_LINES


def test_libraries_log_and_do_not_print():
    """Only the commands, and the demo, print."""
    printing = []
    for path in FILES:
        if name_of(path).split(".")[1:2] not in (["cli"], ["demo"]):
            calls = [
                node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)
            ]
            printing += [name_of(path) for call in calls if getattr(call.func, "id", "") == "print"]
    assert printing == []


@pytest.mark.parametrize("path", [path for path in FILES if path.name != "__init__.py"], ids=name_of)
def test_imports_follow_the_layers(path):
    package = name_of(path).split(".")[1]
    for module in imports_of(path):
        # The version is the only name imported from the package itself.
        if module != "hf_dse":
            other = module.split(".")[1]
            assert other == package or LEVEL[other] > LEVEL[package], f"{package} imports {module}"


def test_no_circular_imports():
    graph = {name_of(path): set(imports_of(path)) for path in FILES if path.name != "__init__.py"}
    done, open_ = set(), []

    def visit(module):
        assert module not in open_, f"circular import: {' -> '.join([*open_[open_.index(module) :], module])}"
        if module in done or module not in graph:
            return
        open_.append(module)
        for other in sorted(graph[module]):
            visit(other)
        done.add(open_.pop())

    for module in graph:
        visit(module)
