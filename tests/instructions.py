# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""What the CPU may compute with: the tests compute in float32 on all machines, see conftest.py."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


LIMIT = "ONEDNN_MAX_CPU_ISA"


@contextmanager
def all_instructions() -> Iterator[None]:
    """Lets oneDNN use what the CPU has, for OpenVINO, which asks at its first model."""
    limit = os.environ.pop(LIMIT, None)
    try:
        yield
    finally:
        if limit is not None:
            os.environ[LIMIT] = limit
