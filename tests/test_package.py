# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The package as a whole: effect and cost of `import hf_dse`, and the content of the wheel."""

import ast
import importlib.metadata
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import hf_dse


ROOT = Path(__file__).parent.parent

# Imports of any package that registers a model with the Auto classes
TRANSFORMERS = """
import transformers.modeling_layers
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, PreTrainedModel
"""


def run_python(code):
    """Runs a program and returns what it prints."""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout + result.stderr


# The code that is saved with checkpoints has its own path.
ALLOWED_MODULES = {"hf_dse", *(f"hf_dse.modeling{part}" for part in ("", ".attention_dse", ".modeling_dse"))}
SOURCES = [*(ROOT / "hf_dse").rglob("*.py"), *(ROOT / "modeling").glob("*.py")]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def imports_in(code):
    """Yields (module, name) of each import from hf_dse."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "hf_dse":
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names if alias.name.split(".")[0] == "hf_dse")


def example_in(text):
    return "\n".join(re.findall(r"^ *(?:>>>|\.\.\.) ?(.*)$", text, re.MULTILINE))


def docstrings():
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
                yield f"{path.name}:{getattr(node, 'name', '')}", ast.get_docstring(node)


def test_examples_import_public_names_only():
    codes = {path.name: path.read_text(encoding="utf-8") for path in EXAMPLES}
    codes |= {name: example_in(text) for name, text in docstrings() if ">>>" in text}
    for source, code in codes.items():
        for module, name in imports_in(code):
            assert module in ALLOWED_MODULES, f"{source} imports from {module}"
            assert module != "hf_dse" or name is None or name in hf_dse.__all__, f"{source} imports {name}"


def test_version_equals_that_of_the_distribution():
    assert hf_dse.__version__ == importlib.metadata.version("hf-dse")


def test_the_oldest_versions_are_those_of_constraints_oldest():
    project = pytest.importorskip("tomllib").loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    needed = map(Requirement, [*project["dependencies"], *extras["train"]])
    floors = {need.name: Version(part.version) for need in needed for part in need.specifier if part.operator == ">="}
    # A variable of the Makefile
    del floors["torch"]
    lines = (ROOT / "constraints-oldest.txt").read_text().splitlines()
    pins = {name: Version(version) for name, version in (line.split("==") for line in lines if line[0] != "#")}
    assert floors == {name: pins[name] for name in floors}


def test_import_is_silent_and_light():
    code = f"""
import socket, sys
{TRANSFORMERS}
before = set(sys.modules)
def refuse(*args):
    raise RuntimeError("import hf_dse opens a connection")
socket.socket.connect = socket.getaddrinfo = refuse
import hf_dse, hf_dse.modeling
heavy = {{"accelerate", "datasets", "evaluate", "pandas", "ray", "sklearn"}}
print(heavy & (set(sys.modules) - before))
"""
    assert run_python(code) == "set()\n"


@pytest.mark.slow
def test_wheel(tmp_path):
    source = tmp_path / "source"
    for name in ("hf_dse", "modeling"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "hf_dse_cli.py"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "--quiet"]
    subprocess.run(
        [*pip, "wheel", "--no-deps", "--no-build-isolation", f"--wheel-dir={tmp_path}", str(source)], check=True
    )
    (wheel,) = tmp_path.glob("*.whl")
    # An environment with the dependencies of this one, but not its editable install.
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    programs = tmp_path / "venv" / "bin"
    subprocess.run([*pip, f"--python={programs / 'python'}", "install", "--no-deps", str(wheel)], check=True)
    environment = {"PATH": str(programs), "PYTHONPATH": sysconfig.get_path("purelib"), "HF_HUB_OFFLINE": "1"}

    code = """
import pathlib
import hf_dse, hf_dse.cli, hf_dse.modeling.modeling_dse
folder = pathlib.Path(hf_dse.__file__).parent
print(*sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.suffix != ".pyc" and path.is_file()))
"""
    options = {"capture_output": True, "text": True, "check": True, "env": environment, "cwd": tmp_path}
    installed = subprocess.run([str(programs / "python"), "-c", code], **options).stdout.split()
    expected = [path.relative_to(ROOT / "hf_dse") for path in (ROOT / "hf_dse").rglob("*") if path.is_file()]
    expected += [Path("modeling") / path.name for path in (ROOT / "modeling").glob("*.py")]
    assert installed == sorted(str(path) for path in expected if path.suffix != ".pyc")
    assert subprocess.run(["hf-dse", "--version"], **options).stdout.startswith("hf-dse ")


def test_hashes_are_those_of_the_tested_versions():
    """`make lock` has to run again when constraints.txt changes."""
    locked, pins = (
        dict(re.findall(r"^([a-z0-9-]+)==([^ ;\n]+)", (ROOT / name).read_text(), flags=re.MULTILINE))
        for name in ("requirements-hashes.txt", "constraints.txt")
    )
    assert "transformers" in locked and "torch" not in locked
    assert locked | {name: version for name, version in pins.items() if name in locked} == locked
