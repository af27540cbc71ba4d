# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse study`, `hf-dse study report` and `hf-dse study probe`."""

import json
import shlex
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hf_dse.cli.distill import parse_stages
from hf_dse.cli.parsing import parse_args
from hf_dse.common.files import output_path, write_atomically
from hf_dse.common.options import did_you_mean
from hf_dse.data.arguments import DataArguments
from hf_dse.inference.arguments import ModelArguments


if TYPE_CHECKING:
    from hf_dse.studies.runs import Study


@dataclass
class RunArguments:
    """Which study to run, and how."""

    study_file: str = field(metadata={"help": "YAML file with `options` and `factors`."})
    results_file: str | None = field(
        default=None,
        metadata={
            "help": "Parquet file of the results. Default: results.parquet next to the study. Studies with the same "
            "file share common runs."
        },
    )
    output_dir: str | None = field(
        default=None, metadata={"help": "Folder of the training runs and their logs. Default: outputs/NAME."}
    )
    jobs: int = field(default=1, metadata={"help": "Number of parallel runs."})
    threads: int | None = field(default=None, metadata={"help": "CPU threads per run. Default: an equal share."})
    flags: str = field(
        default="",
        metadata={"help": "More options of `hf-dse distill` for every run on this machine: --flags='--bf16'."},
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
        metadata={"help": "FACTOR=LABEL: compare the other labels with this one, by the last metric."},
    )
    select: list[str] = field(default_factory=list, metadata={"help": "FACTOR=LABEL: only runs with this label."})
    correlate: list[str] = field(
        default_factory=list,
        metadata={"help": "FACTOR: its rank and Pearson correlations with the last metric, over all runs."},
    )
    plot: str | None = field(default=None, metadata={"help": "Image file for a plot of the last metric."})
    x: str | None = field(default=None, metadata={"help": "Factor on the x axis of the plot."})
    lines: str | None = field(default=None, metadata={"help": "Factor with one line per label."})


@dataclass
class ProbeArguments:
    """Which encoders to probe."""

    models: list[str] = field(metadata={"help": "Hub ids or folders of encoders."})
    split: str = field(default="validation", metadata={"help": "Split of the pairs."})
    max_length: int | None = field(
        default=None,
        metadata={"help": "Maximum number of tokens per sentence. Default: the `model_max_length` of the tokenizer."},
    )
    batch_size: int = field(default=32, metadata={"help": "Sentences per batch."})
    trust_remote_code: bool = field(default=False, metadata={"help": "Run the code that comes with the models."})
    output_file: str | None = field(default=None, metadata={"help": "JSON file for the results, as fractions of 1."})


def study(argv: list[str]) -> None:
    """Runs the missing runs of a study, or reports on it."""
    if argv[:1] in (["report"], ["probe"]):
        {"report": report, "probe": probe}[argv[0]](argv[1:])
        return
    (args,) = parse_args(
        _name_file(argv),
        RunArguments,
        prog="hf-dse study",
        description="Run a grid of trainings: `hf-dse study FILE`; `hf-dse study report FILE` reports on it. "
        "`hf-dse study probe` measures the similarity of pairs after each layer of encoders.",
    )
    from hf_dse.studies.runs import expand, finished_runs, load_study, run_study

    hint = did_you_mean(args.study_file, ("report", "probe"))
    if hint and not Path(args.study_file).exists():
        raise FileNotFoundError(f"{args.study_file}: there is no such study{hint}.")
    content = load_study(args.study_file)
    results_file = _results_file(args.study_file, args.results_file)
    output_dir = args.output_dir or Path("outputs") / Path(args.study_file).stem
    finished = finished_runs(results_file)
    common = ["--output_dir", str(output_dir), *shlex.split(args.flags)]
    # Fail early: check the options of all runs before the first one starts.
    for run in content.runs():
        if run.key in finished:
            continue
        try:
            parse_stages(common, expand(run.options, strict=not args.dry_run))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{args.study_file}: {run.title}: {error}") from error
    if args.dry_run:
        for run in {run.key: run for run in content.runs()}.values():
            print(f"{'finished' if run.key in finished else 'missing':8}  {run.title}")
        return
    # Stopping a study stops its training runs too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    results = run_study(content, results_file, output_dir, jobs=args.jobs, threads=args.threads, flags=args.flags)
    print(f"{len(results)} runs are in {results_file}")


def report(argv: list[str]) -> None:
    """Prints tables of a study in Markdown, and draws a plot."""
    (args,) = parse_args(
        _name_file(argv), ReportArguments, prog="hf-dse study report", description="Report on a study in Markdown."
    )
    from hf_dse.studies.report import (
        compare,
        comparison_table,
        correlate,
        correlation_text,
        plot,
        summarize,
        summary_table,
    )
    from hf_dse.studies.runs import load_study, read_results, select_results

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
    for factor in args.correlate:
        print(f"\n{correlation_text(correlate(results, args.metrics[-1], factor), args.metrics[-1], factor)}")
    if args.plot is not None:
        if args.x is None:
            raise ValueError("A plot needs `--x`, the factor on its x axis.")
        print(f"\nPlot written to {plot(summary, args.metrics[-1], args.x, args.plot, lines=args.lines)}")


def probe(argv: list[str]) -> None:
    """Prints a Markdown table: correlation of the cosine with the labels of pairs, after each layer of encoders."""
    args, data_args = parse_args(
        argv,
        ProbeArguments,
        DataArguments,
        prog="hf-dse study probe",
        description="Correlate the cosine of pairs with their labels, after every layer of encoders.",
    )
    from hf_dse.data.pairs import load_pairs
    from hf_dse.inference.loading import load_model
    from hf_dse.studies.probe import probe_layers, probe_table

    output = None if args.output_file is None else output_path(args.output_file, (".json",))
    pairs = load_pairs(data_args, [args.split])[args.split]
    results = {}
    for name in args.models:
        model, tokenizer = load_model(ModelArguments(name, trust_remote_code=args.trust_remote_code))
        title = Path(name).name
        results[name if title in results else title] = probe_layers(
            model, tokenizer, pairs, batch_size=args.batch_size, max_length=args.max_length
        )
    print(probe_table(results))
    if output is not None:
        write_atomically(output, lambda file: file.write((json.dumps(results, indent=2) + "\n").encode()))
        print(f"Written to {output}")


def _name_file(argv: list[str]) -> list[str]:
    """Accepts the study file as a positional argument: `hf-dse study FILE`."""
    return ["--study_file", *argv] if argv and not argv[0].startswith("-") else argv


def _results_file(study_file: str, results_file: str | None) -> Path:
    return Path(results_file) if results_file is not None else Path(study_file).with_name("results.parquet")


def _choice(text: str, study: "Study") -> tuple[str, str]:
    factor, separator, label = text.partition("=")
    if not separator or factor not in study.factors:
        raise ValueError(f"{text!r} is no FACTOR=LABEL; the factors are {', '.join(study.factors)}.")
    return factor, label
