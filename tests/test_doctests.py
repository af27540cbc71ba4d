# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
The examples in docstrings run and print what they show.

Each runs in a folder of its own, which holds what the examples name: `teacher`, a small cross-encoder with random
weights, and a few texts in `articles.txt`, `sentences.txt` and `captions.csv`. Names are not predefined: an example
imports what it uses. all-MiniLM-L6-v2 comes from the cache of the Hub (see `hub_cache` in conftest.py).
"""

import ast
import doctest
from pathlib import Path

import pytest
from transformers import BertForSequenceClassification


ROOT = Path(__file__).parents[1]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

# More than 5 seconds.
SLOW = {"hf_dse.stages.distill.distill", "hf_dse.convert.whiten.whiten_encoder"}


def find_examples() -> dict[str, doctest.DocTest]:
    """Doctests of docstrings by name, read from the source: transformers adds text to docstrings of its classes."""
    found = {}
    for path in sorted([*(ROOT / "hf_dse").rglob("*.py"), *(ROOT / "modeling").glob("*.py")]):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                name = f"{module}.{node.name}" if isinstance(node, ast.ClassDef | ast.FunctionDef) else module
                line = node.body[0].lineno - 1 if node.body else 0
                # A fence would count as output.
                text = (ast.get_docstring(node) or "").replace("```", "   ")
                test = doctest.DocTestParser().get_doctest(text, {}, name, str(path), line)
                if test.examples:
                    found[name] = test
    return found


EXAMPLES = find_examples()


@pytest.fixture(scope="session")
def materials(tmp_path_factory, save_bert) -> Path:
    """The files that examples name."""
    folder = tmp_path_factory.mktemp("materials")
    save_bert(folder / "teacher", BertForSequenceClassification, num_labels=1, max_position_embeddings=512)
    sentences = [f"The {animal} sleeps in the {place}." for animal in ("cat", "dog") for place in ("house", "barn")]
    (folder / "sentences.txt").write_text("\n".join(sentences))
    (folder / "articles.txt").write_text("\n".join(f"{number}. {' '.join(sentences * 4)}" for number in range(4)))
    rows = [f"{sentence},{other}" for sentence, other in zip(sentences, reversed(sentences), strict=True)]
    (folder / "captions.csv").write_text("\n".join(["first,second", *rows]))
    return folder


def test_there_are_examples():
    assert len(EXAMPLES) > 20 and not SLOW - set(EXAMPLES)


def marks(name: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.slow] if name in SLOW else []


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(name)) for name in EXAMPLES])
def test_example(name, hub_cache, materials, tmp_path, monkeypatch):
    for path in materials.iterdir():
        (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    output: list[str] = []
    # A copy: a run empties the namespace of its test, and fills the one that is given.
    test = EXAMPLES[name]
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    runner.run(doctest.DocTest(test.examples, {}, test.name, test.filename, test.lineno, None), out=output.append)
    assert not runner.failures, "".join(output)
