# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The benchmarks are scripts, not part of the package."""

import sys
from pathlib import Path


sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
