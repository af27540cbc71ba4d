# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse study` and `hf-dse study report`."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hf_dse.cli.distill import parse_stages
from hf_dse.cli.parsing import read_options
from hf_dse.common.options import HfArg


@dataclass(kw_only=True)
class StudyArguments:
    """Which study, and its results."""

    study_file: str = HfArg(help="YAML file with `options` and `factors`.")
    results_file: str | None = HfArg(
        default=None, help="Parquet file of the results. Default: results.parquet next to the study."
    )

    @property
    def results(self) -> Path:
        return Path(self.results_file or Path(self.study_file).with_name("results.parquet"))


@dataclass(kw_only=True)
class RunArguments(StudyArguments):
    """Which study to run, and how."""

    output_dir: str | None = HfArg(default=None, help="Folder of the trainings. Default: outputs/NAME.")
    jobs: int = HfArg(default=1, help="Number of parallel runs, which share the CPU cores.")
    flags: str = HfArg(default="", help="More options of `hf-dse distill` here: --flags='--bf16'.")


@dataclass(kw_only=True)
class ReportArguments(StudyArguments):
    """Tables of a study."""

    metrics: list[str] = HfArg(
        default_factory=lambda: ["validation.pearson", "test.pearson"], help="Columns of the table."
    )
    baseline: list[str] = HfArg(
        default_factory=list, help="FACTOR=LABEL: compare other labels with this, by the last metric."
    )
    select: list[str] = HfArg(default_factory=list, help="FACTOR=LABEL: only runs with this label.")


def parse(argv: list[str]) -> Callable[[], None]:
    """Accepts the study file as a positional argument: `hf-dse study FILE`."""
    function, argv = (study_report, argv[1:]) if argv[:1] == ["report"] else (study, argv)
    return read_options(function, ["--study_file", *argv] if argv and not argv[0].startswith("-") else argv)


def study(args: RunArguments) -> None:
    """
    Run a grid of trainings: `hf-dse study FILE`; `hf-dse study report FILE` reports on it.

    hf-dse study studies/smoke.yaml
    """
    from hf_dse.studies.runs import expand, finished_runs, load_study, run_study

    runs = load_study(args.study_file)
    output_dir = args.output_dir or Path("outputs") / Path(args.study_file).stem
    finished = finished_runs(args.results)
    common = ["--output_dir", str(output_dir), *shlex.split(args.flags)]
    # Fail early: check the options of all runs before the first one starts.
    for run in runs:
        if run.key in finished:
            continue
        try:
            parse_stages(common, expand(run.options))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{args.study_file}: {run.title}: {error}") from error
    results = run_study(runs, args.results, output_dir, jobs=args.jobs, flags=args.flags)
    print(f"{len(results)} runs are in {args.results}")


def study_report(args: ReportArguments) -> None:
    """
    Report on a study: tables in Markdown.

    hf-dse study report studies/smoke.yaml
    """
    from hf_dse.studies import report
    from hf_dse.studies.runs import load_study, read_results, select_results

    runs = load_study(args.study_file)
    factors, metric = list(runs[0].labels), args.metrics[-1]
    results = select_results(runs, read_results(args.results))
    for choice in args.select:
        factor, label = _choice(choice, factors)
        results = results[results[factor].map(str) == label]
    if results.empty:
        raise ValueError(f"There is no finished run to report on: run `hf-dse study {args.study_file}` first.")
    print(report.summary_table(results, factors, args.metrics))
    if len(results) < len(runs) and not args.select:
        print(f"\n{len(runs) - len(results)} of {len(runs)} runs are not finished.")
    for choice in args.baseline:
        factor, label = _choice(choice, factors)
        print(f"\nCompared with {factor} {label}, runs paired by all other factors:\n")
        print(report.comparison_table(results, factors, metric, factor, label))


def _choice(text: str, factors: list[str]) -> tuple[str, str]:
    factor, separator, label = text.partition("=")
    if not separator or factor not in factors:
        raise ValueError(f"{text!r} has to be FACTOR=LABEL; the factors are {', '.join(factors)}.")
    return factor, label
