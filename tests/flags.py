# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Command lines of tests, and programs that start them in two processes."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


BIN = Path(sys.executable).parent
# `accelerate launch --cpu` always starts a single process; processes started by --multi_gpu run on CPUs as well.
LAUNCHERS = {
    "accelerate": ["accelerate", "launch", "--multi_gpu", "--num_machines", "1", "--mixed_precision", "no",
                   "--dynamo_backend", "no", "--num_cpu_threads_per_process", "1", "--num_processes", "2"],
    "torchrun": ["torchrun", "--nproc_per_node", "2"],
}  # fmt: skip


def launch(launcher: str, *command: Any) -> subprocess.CompletedProcess[str]:
    """Runs a command of hf-dse in two processes."""
    program, *options = LAUNCHERS[launcher]
    # torchrun and `accelerate launch` expect the path of a Python program, such as the installed command.
    line = [BIN / program, *options, BIN / "hf-dse", *command]
    result = subprocess.run(list(map(str, line)), capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr[-3000:]
    return result


def to_flags(options: Mapping[str, Any]) -> list[str]:
    """The words of a command line that set options. Those that are `None` are left out, lists have several values."""
    words = []
    for name, value in options.items():
        if value is not None:
            words += [f"--{name}", *map(str, value if isinstance(value, list) else [value])]
    return words
