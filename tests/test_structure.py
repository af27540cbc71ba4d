# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The rooms of hf_dse: which may import which. CONTRIBUTING.md shows them."""

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest


ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "hf_dse").rglob("*.py"))
# A room imports only from those before it.
ROOMS = "modeling common data retrieval convert measure teacher training publish stages studies demo cli".split()


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports_of(path: Path) -> Iterator[str]:
    """The modules of hf_dse that a file imports, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)} has a relative import"
            if node.module.split(".")[0] == "hf_dse":
                for alias in node.names:
                    inner = ROOT.joinpath(*node.module.split("."), f"{alias.name}.py")
                    yield f"{node.module}.{alias.name}" if inner.is_file() else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "hf_dse")


@pytest.mark.parametrize("path", [path for path in FILES if path.name != "__init__.py"], ids=name_of)
def test_imports_follow_the_rooms(path: Path) -> None:
    room = name_of(path).split(".")[1]
    for module in imports_of(path):
        # The version is the only name that is imported from the package itself.
        if module != "hf_dse":
            other = module.split(".")[1]
            assert ROOMS.index(other) < ROOMS.index(room) or other == room, f"{room} imports {module}"


def test_no_circular_imports() -> None:
    graph = {name_of(path): set(imports_of(path)) for path in FILES if path.name != "__init__.py"}
    # It raises an error that names a circle.
    TopologicalSorter(graph).prepare()


def test_contributing_shows_the_rooms() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    shown = re.findall(r"^(\w+)(?:/|\.py) ", re.search(r"```text\n(.*?)```", text, re.DOTALL)[1], re.MULTILINE)
    assert shown == ROOMS
