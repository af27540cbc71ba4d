# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""A model folder gives the same embeddings, whoever wrote it and whatever reads it."""

from pathlib import Path

import pytest
from writers_and_readers import READERS, WRITERS, measure


TABLE = Path(__file__).parents[2] / "docs" / "compatibility.md"


@pytest.mark.slow
@pytest.mark.parametrize("writer", WRITERS)
def test_every_reader_gives_the_embeddings_of_the_writer(writer):
    differences = {name: difference for name, difference in measure(writer).items() if difference is not None}
    assert differences and max(differences.values()) <= 1e-4, differences


def test_the_table_in_the_docs_has_every_writer_and_reader():
    table = TABLE.read_text()
    assert f"| written by | {' | '.join(READERS)} |" in table
    for writer in WRITERS:
        assert f"| {writer} |" in table
