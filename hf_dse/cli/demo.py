# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse demo`."""

from hf_dse.cli.parsing import parse_args
from hf_dse.pipeline.arguments import DemoArguments


def demo(argv: list[str]) -> None:
    """`hf-dse demo`."""
    (args,) = parse_args(
        argv, DemoArguments, prog="hf-dse demo", description="Run all steps on a small embedded dataset."
    )
    from hf_dse.demo import run_demo

    run_demo(args)
