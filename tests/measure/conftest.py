# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""A tiny encoder and a reranker, with pairs and queries for them."""

import pytest
from tiny_data import write_assets


@pytest.fixture(scope="session")
def assets(tmp_path_factory, save_bert):
    return write_assets(tmp_path_factory.mktemp("assets"), save_bert)
