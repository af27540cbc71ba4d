# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse distill`, one stage or the stages of a recipe, and `hf-dse study`, a grid of trainings."""

import argparse
import inspect
import logging
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hf_dse.cli.output import say_next
from hf_dse.cli.parsing import parse_options, read_config, read_options
from hf_dse.common.options import HfArg
from hf_dse.retrieval.options import BM25_WEIGHT
from hf_dse.stages.options import STAGES


logger = logging.getLogger(__name__)


def parse_distill(argv: list[str]) -> Callable[[], None]:
    """Reads the options of all stages before the first one runs, so that errors are raised early."""
    config, argv = read_config(argv)
    return partial(distill, parse_stages(argv, config), "stages" in config)


def distill(stages: list[tuple[Any, ...]], is_recipe: bool) -> None:
    """
    Train a student on labels and teacher scores, of pairs or of queries with candidates, or on text and the layers of
    its source. Most options of transformers.TrainingArguments work too: `hf-dse distill --help all` lists them.

    hf-dse distill --model sentence-transformers/all-MiniLM-L6-v2 --teacher teacher \\
        --task_name stsb --output_dir student
    """
    from accelerate import PartialState

    from hf_dse.common.display import CAPTION, format_table
    from hf_dse.common.settings import settings_of
    from hf_dse.stages.distill import run_stage, run_stages

    result = run_stages(stages) if is_recipe else run_stage(*stages[0])
    *_, training_args = stages[-1]
    if result is not None and training_args.process_index == 0:
        if result.metrics:
            print(format_table(result.metrics))
            logger.info(CAPTION)
        print(f"Saved to {result.path}")
        model, corpus = f"--model {shlex.quote(str(result.path))}", getattr(stages[-1][2], "corpus_file", None)
        # A weight that was fitted is in the folder.
        weight = f" --bm25_weight {BM25_WEIGHT}" if settings_of(result.model).bm25_weight is None else ""
        search = f"{model} --corpus {shlex.quote(corpus or 'FOLDER')}{weight} --query '...'"
        say_next(search=search, export=f"{model} --format onnx")
    # A process that exits within the group of a distributed run may abort.
    PartialState().wait_for_everyone()
    PartialState().destroy_process_group()


def parse_stages(argv: list[str], config: dict[str, Any]) -> list[tuple[Any, ...]]:
    """The options of each stage of a recipe, or of the one stage where there are no `stages`."""
    if "stages" not in config:
        return [_parse_stage(argv, config)]
    shared = {name: value for name, value in config.items() if name != "stages"}
    stages = config["stages"]
    if not isinstance(stages, list) or not stages or not all(isinstance(stage, dict) for stage in stages):
        raise ValueError("--config: `stages` has to be a list of stages, each with its own `name: value` lines.")
    return [_parse_stage(argv, {**shared, **stage}) for stage in stages]


def _parse_stage(argv: list[str], config: dict[str, Any]) -> tuple[Any, ...]:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--stage", default=config.get("stage", "pairs"))
    stage = parser.parse_known_args(argv)[0].stage
    # For an unknown stage, the parser of the pairs stage lists the allowed ones.
    kinds = STAGES.get(str(stage), STAGES["pairs"])
    return parse_options(argv, *kinds, prog="hf-dse distill", help=inspect.getdoc(distill) or "", config=config)


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


def parse_study(argv: list[str]) -> Callable[[], None]:
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
    summary = report.summarize(results, factors, args.metrics)
    print(report.summary_table(summary, args.metrics))
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
