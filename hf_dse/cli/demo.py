# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse demo`."""

from hf_dse.cli.parsing import parse_args


def demo(argv: list[str]) -> None:
    """`hf-dse demo`."""
    from hf_dse.demo import DemoArguments, run_demo

    (args,) = parse_args(
        argv, DemoArguments, prog="hf-dse demo", description="Run all steps on a small embedded dataset."
    )
    run_demo(args)
