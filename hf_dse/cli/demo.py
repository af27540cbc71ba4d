# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse demo`."""

from hf_dse.pipeline.arguments import DemoArguments


def demo(args: DemoArguments) -> None:
    """
    Run all steps on a small embedded dataset: convert, distil, compare, and time.

    hf-dse demo --output_dir outputs/demo
    """
    from hf_dse.demo import run_demo

    run_demo(args)
