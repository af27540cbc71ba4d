# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The rooms of hf_dse: which folder may import which, and how long a file may be."""

import ast
from pathlib import Path

import pytest


ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "hf_dse").rglob("*.py"))
MAX_LINES = 450
# A room imports from the lines below its own only, and the rooms of one line not from each other.
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
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}


def name_of(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports_of(path):
    """The modules of hf_dse that a file imports, also those that it imports inside of functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)} imports by a relative name"
            if node.module.split(".")[0] == "hf_dse":
                for alias in node.names:
                    inner = ROOT.joinpath(*node.module.split("."), f"{alias.name}.py")
                    yield f"{node.module}.{alias.name}" if inner.is_file() else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "hf_dse")


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_no_file_is_long(path):
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
def test_imports_run_one_way(path):
    room = name_of(path).split(".")[1]
    for module in imports_of(path):
        # The version is the only name that rooms take from the package itself.
        if module != "hf_dse":
            other = module.split(".")[1]
            assert other == room or LEVEL[other] > LEVEL[room], f"{room} imports {module}"


def test_no_circle_within_a_room():
    graph = {name_of(path): set(imports_of(path)) for path in FILES if path.name != "__init__.py"}
    done, open_ = set(), []

    def visit(module):
        assert module not in open_, f"circle: {' -> '.join([*open_[open_.index(module) :], module])}"
        if module in done or module not in graph:
            return
        open_.append(module)
        for other in sorted(graph[module]):
            visit(other)
        done.add(open_.pop())

    for module in graph:
        visit(module)
