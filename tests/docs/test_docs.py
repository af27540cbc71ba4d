# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The documentation is up to date with the code, and its links lead somewhere."""

import contextlib
import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hf_dse
from hf_dse_cli import main


ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "hf_dse").rglob("README.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
REFERENCE = ROOT / "docs" / "reference.md"
# Old measurements, whose commands have gone in part
NOTEBOOK = ROOT / "studies" / "notebook.md"


def test_reference_is_up_to_date():
    # In a process of its own: parsers of the command line change the types of the dataclasses' fields.
    code = "import make_reference; print(make_reference.make_reference(), end='')"
    made = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT / "docs", check=True, capture_output=True, text=True, encoding="utf-8"
    ).stdout
    assert REFERENCE.read_text(encoding="utf-8") == made, "run `python docs/make_reference.py`"


def test_every_public_name_is_in_a_guide_or_an_example():
    shown = [ROOT / "README.md", *(ROOT / "docs" / "guides").glob("*.md"), *(ROOT / "examples").rglob("*.py")]
    words = set(re.findall(r"\w+", "".join(path.read_text(encoding="utf-8") for path in shown)))
    assert set(hf_dse.__all__) <= words, set(hf_dse.__all__) - words
    assert len(hf_dse.__all__) <= 40


def test_links_lead_to_files_and_headings():
    for page in [*PAGES, NOTEBOOK]:
        for link in LINK.findall(page.read_text(encoding="utf-8")):
            name, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:", link):
                continue
            target = page.parent / name if name else page
            assert target.exists(), f"{page.name}: {link}"
            if anchor and target.suffix == ".md":
                headings = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE)
                anchors = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
                assert anchor in anchors, f"{page.name}: {link}"


def test_the_page_on_compatibility_names_tests():
    page = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
    named = re.findall(r"`(\w+/test_\w+\.py)(?:::(\w+))?`", page)
    assert len(named) > 20
    for file, name in named:
        assert f"def {name or 'test_'}" in (ROOT / "tests" / file).read_text(encoding="utf-8"), f"{file}: {name}"


# Python in the pages. A block of Python is complete in itself; what it prints is the block after it, if that has no
# language. A block that starts with `>>> ` goes on from the Python before it, to an output or an error.

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


def find_snippets():
    """Pages with their Python: a list of (code, what it prints, or None) to be run one after the other."""
    for page in PAGES:
        # The examples of the reference are tested in test_doctests.py, those of model cards in test_card.py.
        if page in (REFERENCE, ROOT / "model_card.md"):
            continue
        groups, end, has_output = [], 0, False
        text = page.read_text(encoding="utf-8")
        for block in BLOCK.finditer(text):
            language, code = block.groups()
            if language == "python":
                groups.append([(code, None)])
                has_output = True
            elif language == "" and code.startswith(">>> "):
                statements, output = re.fullmatch(r"((?:>>> [^\n]*\n)+)(.*)", code, re.DOTALL).groups()
                (groups or [[]])[-1].append((re.sub("^>>> ", "", statements, flags=re.MULTILINE), output))
                has_output = False
            else:
                if language == "" and has_output and not text[end : block.start()].strip():
                    groups[-1][-1] = (groups[-1][-1][0], code)
                has_output = False
            end = block.end()
        for number, group in enumerate(groups, start=1):
            is_slow = any(re.search(r"distill\(|\.train\(|export\(.*format=", code) for code, _ in group)
            name = f"{page.relative_to(ROOT)}-{number}"
            yield pytest.param(group, id=name, marks=[pytest.mark.slow] if is_slow else [])


def agree(printed, shown):
    """Whether an output ends with what a page shows; numbers may differ a little between machines.

    Pages leave out the dictionaries that the Trainer prints.
    """
    printed = "".join(line for line in printed.splitlines(keepends=True) if not line.startswith("{'"))
    shown_words = NUMBER.sub("0", shown).split()
    printed_words = NUMBER.sub("0", printed).split()[-len(shown_words) :]
    numbers = [float(number) for number in NUMBER.findall(shown)]
    own = [float(number) for number in NUMBER.findall(printed)][-len(numbers) :]
    return shown_words == printed_words and own == pytest.approx(numbers, rel=0.01, abs=1e-3)


@pytest.fixture(scope="module")
def converted(tmp_path_factory, hub_cache):
    """The model folder that the guides work with, by the command in guides/convert.md."""
    folder, name = tmp_path_factory.mktemp("docs") / "converted", "sentence-transformers/all-MiniLM-L6-v2"
    assert not main(["convert", "--model", name, "--linformer_length", "64", "--output_dir", str(folder)])
    return folder


@pytest.fixture(scope="module")
def index(tmp_path_factory, converted):
    """The output of the command in docs/guides/vector_stores.md."""
    page = (ROOT / "docs" / "guides" / "vector_stores.md").read_text(encoding="utf-8")
    (texts,) = re.findall("<<END\n(.*?\n)END\n", page, re.DOTALL)
    folder = tmp_path_factory.mktemp("index")
    (folder / "texts.txt").write_text(texts, encoding="utf-8")
    options = ["--input", str(folder / "texts.txt"), "--output", str(folder / "index.parquet"), "--normalize"]
    assert main(["encode", "--model", str(converted), *options]) == 0
    return folder / "index.parquet"


@pytest.mark.parametrize("snippets", list(find_snippets()))
def test_python_prints_what_the_page_shows(snippets, converted, index, tmp_path, monkeypatch):
    (tmp_path / "converted").symlink_to(converted)
    (tmp_path / "index.parquet").symlink_to(index)
    for name in ("onnxruntime", "openvino"):
        if any(f"import {name}\n" in code for code, _ in snippets):
            pytest.importorskip(name)
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    for code, shown in snippets:
        output = io.StringIO()
        try:
            with contextlib.redirect_stdout(output):
                exec(compile(code, "<page>", "exec"), namespace)
        except Exception as error:
            if shown is None or type(error).__name__ not in shown:
                raise
            output.write(f"{type(error).__name__}: {error}")
        assert shown is None or agree(output.getvalue(), shown), output.getvalue()
