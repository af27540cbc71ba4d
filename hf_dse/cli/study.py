# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse study` and `hf-dse study report`."""

from dataclasses import dataclass, field
from pathlib import Path

from hf_dse.cli import parse_args
from hf_dse.studies.report import compare, comparison_table, plot, summarize, summary_table
from hf_dse.studies.runs import Study, finished_runs, load_study, read_results, run_study, select_results


@dataclass
class RunArguments:
    """Which study to run, and how."""

    study_file: str = field(metadata={"help": "YAML file with `options` and `factors`."})
    results_file: str | None = field(
        default=None, metadata={"help": "Parquet file of the results. Default: beside the study, of the same name."}
    )
    output_dir: str | None = field(
        default=None, metadata={"help": "Folder of the trainings and their logs. Default: outputs/NAME."}
    )
    jobs: int = field(default=1, metadata={"help": "Runs at a time."})
    threads: int | None = field(default=None, metadata={"help": "CPU threads of a run. Default: an equal share."})
    flags: str = field(
        default="",
        metadata={"help": "More flags of `hf-dse distill` for every run on this machine: --flags='--bf16 true'."},
    )
    dry_run: bool = field(default=False, metadata={"help": "Only list the runs, and which of them are finished."})


@dataclass
class ReportArguments:
    """What to report of a study."""

    study_file: str = field(metadata={"help": "YAML file of the study."})
    results_file: str | None = field(default=None, metadata={"help": "Parquet file of the results, as for running."})
    metrics: list[str] = field(
        default_factory=lambda: ["validation.pearson", "test.pearson"], metadata={"help": "Columns of the table."}
    )
    baseline: list[str] = field(
        default_factory=list,
        metadata={"help": "FACTOR=LABEL: compare the other labels with this one, in the last of the metrics."},
    )
    select: list[str] = field(default_factory=list, metadata={"help": "FACTOR=LABEL: only runs of this label."})
    plot: str | None = field(default=None, metadata={"help": "Image file of a plot of the last of the metrics."})
    x: str | None = field(default=None, metadata={"help": "Factor on the x axis of the plot."})
    lines: str | None = field(default=None, metadata={"help": "Factor with a line for each label."})


def study(argv: list[str]) -> None:
    """Runs what is missing of a study, or reports on it."""
    if argv[:1] == ["report"]:
        report(argv[1:])
        return
    (args,) = parse_args(
        _name_file(argv),
        RunArguments,
        prog="hf-dse study",
        description="Run a grid of trainings: `hf-dse study FILE`; `hf-dse study report FILE` reports on it.",
    )
    content = load_study(args.study_file)
    results_file = _results_file(args.study_file, args.results_file)
    if args.dry_run:
        finished = finished_runs(results_file)
        for run in content.runs():
            print(f"{'finished' if run.key in finished else 'missing':8}  {run.title}")
        return
    output_dir = args.output_dir or Path("outputs") / Path(args.study_file).stem
    results = run_study(content, results_file, output_dir, jobs=args.jobs, threads=args.threads, flags=args.flags)
    print(f"{len(results)} runs stand in {results_file}")


def report(argv: list[str]) -> None:
    """Prints tables of a study in Markdown, and draws a plot."""
    (args,) = parse_args(
        _name_file(argv), ReportArguments, prog="hf-dse study report", description="Report on a study in Markdown."
    )
    content = load_study(args.study_file)
    results = select_results(content, read_results(_results_file(args.study_file, args.results_file)))
    for choice in args.select:
        factor, label = _choice(choice, content)
        results = results[results[factor].map(str) == label]
    if results.empty:
        raise ValueError(f"There is no finished run to report on: run `hf-dse study {args.study_file}` first.")
    factors = list(content.factors)
    summary = summarize(results, factors, args.metrics)
    print(summary_table(summary, args.metrics))
    num_runs = len(content.runs())
    if len(results) < num_runs and not args.select:
        print(f"\n{num_runs - len(results)} of {num_runs} runs are not finished.")
    for choice in args.baseline:
        factor, label = _choice(choice, content)
        comparison = compare(results, factors, args.metrics[-1], factor, label)
        print(f"\nCompared with {factor} {label}, runs paired by all other factors:\n")
        print(comparison_table(comparison, args.metrics[-1]))
    if args.plot is not None:
        if args.x is None:
            raise ValueError("A plot needs `--x`, the factor on its x axis.")
        print(f"\nPlot written to {plot(summary, args.metrics[-1], args.x, args.plot, lines=args.lines)}")


def _name_file(argv: list[str]) -> list[str]:
    """Lets the file be given by its place: `hf-dse study FILE`."""
    return ["--study_file", *argv] if argv and not argv[0].startswith("-") else argv


def _results_file(study_file: str, results_file: str | None) -> Path:
    return Path(results_file) if results_file is not None else Path(study_file).with_suffix(".parquet")


def _choice(text: str, study: Study) -> tuple[str, str]:
    factor, separator, label = text.partition("=")
    if not separator or factor not in study.factors:
        raise ValueError(f"{text!r} is no FACTOR=LABEL; the factors are {', '.join(study.factors)}.")
    return factor, label
