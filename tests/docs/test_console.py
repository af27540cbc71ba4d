# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Commands in the pages print what the page shows below them. Those that cannot run here are listed with reasons."""

import math
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import DebertaV2Config, DebertaV2Model

from hf_dse_cli import main


ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")

# More than 5 seconds
SLOW = {
    "hf-dse search --model checkpoints/dse-minilm-l6": "embeds all pages",
    "hf-dse evaluate --model converted --dataset embedded": "embeds 398 texts",
    'pip install "hf-dse[onnx]"': "exports a graph",
}
# By the beginning of a block
NOT_RUN = {
    "python examples/05_long_documents.py": "tests/examples runs it",
    "hf-dse distill --model sentence-transformers/all-MiniLM-L6-v2 --task_name stsb": "trains for minutes",
    "hf-dse distill --stage ranking": "trains for minutes, from a reranker",
    "hf-dse search --model sentence-transformers/all-MiniLM-L6-v2 --corpus python-docs": "needs one version of Python",
    "hf-dse search --model student/model --corpus python-docs": "needs a student that was trained for minutes",
    "hf-dse mine --corpus python-docs": "needs one version of Python",
    "hf-dse evaluate --model student/model --dataset judged": "needs SQuAD",
    "curl ": "needs the server of tests/examples/test_examples.py::test_serve",
}


def beginning(commands, entries):
    return next((start for start in entries if " ".join(commands.split()).startswith(start)), None)


def find_blocks():
    """Commands with the output that a page shows: in the block after them, or in their own, with `$ ` before each."""
    for page in PAGES:
        text, before, end = page.read_text(encoding="utf-8"), None, 0
        for block in BLOCK.finditer(text):
            language, content = block.groups()
            found = None
            if not language and content.startswith("$ "):
                command, shown = re.fullmatch(r"\$ ((?:.*\\\n)*.*\n)((?:.*\n)*)", content).groups()
                found = command, shown
            elif not language and before is not None and not text[end : block.start()].strip():
                found = before, content
            before, end = content if language == "bash" else None, block.end()
            if found is not None:
                commands = found[0].replace("\\\n", " ")
                yield f"{page.relative_to(ROOT)}: {' '.join(commands.split())}"[:110], commands, found[1]


BLOCKS = list(find_blocks())


def runnable():
    for name, commands, shown in BLOCKS:
        if not beginning(commands, NOT_RUN):
            marks = [pytest.mark.slow] if beginning(commands, SLOW) else []
            yield pytest.param(commands, shown, id=name, marks=marks)


def test_what_is_not_run_is_there():
    for start in [*SLOW, *NOT_RUN]:
        assert any(beginning(commands, [start]) for _, commands, _ in BLOCKS), start
    assert len(list(runnable())) >= 12


def is_same(word, shown):
    """Numbers may differ a little between machines."""
    if NUMBER.sub("0", word) != NUMBER.sub("0", shown):
        return False
    pairs = zip(NUMBER.findall(word), NUMBER.findall(shown), strict=True)
    return all(math.isclose(float(one), float(other), rel_tol=0.01, abs_tol=1e-3) for one, other in pairs)


def first_missing(printed, shown):
    """The first word of a page that is not printed after the words before it; `...` stands for what is left out."""
    words = iter(printed.split())
    return next((word for word in shown.split() if word != "..." and not any(is_same(w, word) for w in words)), None)


def test_what_differs_is_found():
    assert first_missing("note\nSaved 12.001 words to out\n", "Saved 12 words to\nout") is None
    assert first_missing("Saved 12 words", "Saved 13 words") == "13"
    assert first_missing("words Saved", "Saved words") == "words"


@pytest.fixture(scope="module")
def folder(tmp_path_factory, hub_cache, save_bert):
    """A folder with what the pages name: `converted`, `student/model`, `pairs`, a training, and a long text."""
    folder = tmp_path_factory.mktemp("console")
    command = "convert --model sentence-transformers/all-MiniLM-L6-v2 --linformer_length 64 --output_dir"
    assert main([*command.split(), str(folder / "converted")]) == 0
    (folder / "student").mkdir()
    (folder / "student" / "model").symlink_to(folder / "converted")
    (folder / "long.txt").write_text("One long text. " * 100 + "\nA short one.\n")
    (folder / "pairs").mkdir()
    rows = [f"the cat {number},a dog {number},{number % 6}" for number in range(8)]
    for split in ("train", "validation", "test"):
        (folder / "pairs" / f"{split}.csv").write_text("\n".join(["sentence1,sentence2,label", *rows]))
    command = (
        f"distill --model {save_bert(folder / 'encoder')} --dataset {folder / 'pairs'} --task_name stsb --max_steps 2"
    )
    command += (
        f" --distillation_alpha 0 --max_length 16 --use_cpu --report_to none --output_dir {folder / 'fine_tuned'}"
    )
    assert main(command.split()) == 0
    repo = Path(os.environ["HF_HOME"]) / "hub" / "models--microsoft--deberta-v3-base"
    sizes = {
        "vocab_size": 99,
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
    }
    DebertaV2Model(DebertaV2Config(**sizes)).save_pretrained(repo / "snapshots" / ("0" * 40))
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("0" * 40)
    for name in ("docs", "checkpoints", "examples"):
        (folder / name).symlink_to(ROOT / name)
    return folder


@pytest.mark.parametrize(("commands", "shown"), list(runnable()))
def test_commands_print_what_the_page_shows(commands, shown, folder, tmp_path, monkeypatch, capsys):
    for path in folder.iterdir():
        if f"--output_dir {path.name}" not in commands or path.name == "fine_tuned":
            (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    printed = ""
    for line in commands.splitlines():
        capsys.readouterr()
        if line.startswith("hf-dse "):
            code = main(shlex.split(line, comments=True)[1:])
            output = capsys.readouterr()
            printed += f"{output.err}\n{output.out}\n"
            assert code == (2 if ": error: " in shown else 0), printed
        elif not line.startswith("pip "):
            subprocess.run(["bash", "-c", line], check=True)
    assert first_missing(printed, shown) is None, f"{first_missing(printed, shown)!r} is not in\n{printed}"
