# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
The `hf-dse` command. It is outside the package because importing `hf_dse` imports torch, and `hf-dse --help` must be
fast: nothing heavy is imported before a command runs.
"""

import argparse
import ctypes
import difflib
import gc
import importlib
import importlib.metadata
import logging
import os
import re
import signal
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager


# command -> (one line of help, module, function taking the rest of the command line)
COMMANDS = {
    "distill": ("train a student on a cross-encoder's scores, and on labels", "hf_dse.cli.distill", "distill"),
    "search": ("find the best texts of files for a query", "hf_dse.cli.search", "search"),
    "convert": ("give a pretrained encoder linear attention, without training", "hf_dse.cli.convert", "convert"),
    "demo": ("all steps in minutes", "hf_dse.cli.demo", "demo"),
    "score": ("a teacher's scores", "hf_dse.cli.score", "score"),
    "mine": ("hard negatives", "hf_dse.cli.mine", "mine"),
    "augment": ("more pairs", "hf_dse.cli.augment", "augment"),
    "teacher": ("train a cross-encoder", "hf_dse.cli.teacher", "teacher"),
    "whiten": ("smaller embeddings", "hf_dse.cli.whiten", "whiten"),
    "merge": ("average weights", "hf_dse.cli.merge", "merge"),
    "evaluate": ("correlation on pairs, nDCG@10 on a BEIR folder", "hf_dse.cli.evaluate", "evaluate"),
    "bench": ("speed", "hf_dse.cli.bench", "bench"),
    "study": ("grids of trainings", "hf_dse.cli.study", "study"),
    "encode": ("embeddings of texts", "hf_dse.cli.encode", "encode"),
    "export": ("model folder, ONNX, OpenVINO", "hf_dse.cli.export", "export"),
    "push": ("to the Hub", "hf_dse.cli.push", "push"),
    "doctor": ("installation and machine", "hf_dse.cli.doctor", "doctor"),
}

# What the help shows first, and how it groups the others.
JOBS = ("distill", "search", "convert")
GROUPS = {
    "start": ("demo", "doctor"),
    "data": ("score", "mine", "augment"),
    "models": ("teacher", "whiten", "merge"),
    "measure": ("evaluate", "bench", "study"),
    "use": ("encode", "export", "push"),
}

# What people try -> what it is called here.
MEANT = {
    "rerank": "search --rerank",
    "train": "distill",
    "finetune": "teacher",
    "index": "search",
    "query": "search",
    "embed": "encode",
    "predict": "score",
    "ndcg": "evaluate",
    "test": "evaluate",
    "benchmark": "bench",
    "quantize": "export",
    "onnx": "export",
    "upload": "push",
    "help": "--help",
}

CHECKPOINT = "add `--resume_from_checkpoint last` to go on from its last checkpoint"
CACHE = "what is finished is kept, and the same command goes on from there"
# What to do after an interruption; the other commands start again.
GO_ON = {
    "distill": CHECKPOINT,
    "teacher": CHECKPOINT,
    **dict.fromkeys(("score", "mine", "augment", "study", "search"), CACHE),
}

TRACEBACK_VARIABLE = "HF_DSE_TRACEBACK"
# Set to the id of a process that starts this one, and that this one ends with.
PARENT_VARIABLE = "HF_DSE_PARENT"
QUIET, VERBOSE = "--quiet", "--verbose"


def main(argv: Sequence[str] | None = None) -> int:
    """
    Runs one `hf-dse` command.

    Args:
        argv (`Sequence[str]`, *optional*, defaults to `sys.argv[1:]`):
            The command line, without the program's name.

    Returns:
        `int`: The exit code: 0, 2 after a user error, 130 after an interruption.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    words = [word for word in argv if word not in (QUIET, VERBOSE)]
    try:
        end_with_parent()
        with output(words, QUIET in argv, VERBOSE in argv):
            return run(words)
    except KeyboardInterrupt:
        pass
    command = words[0] if words else ""
    _say(f"\nhf-dse {command}: interrupted; {GO_ON.get(command, 'give the same command to start again')}")
    return 130


def end_with_parent() -> None:
    """
    A training of a study ends with the study, and one of several processes with its launcher (torchrun, accelerate),
    even if that is killed. On Linux only: elsewhere it trains to its end, and its folder stays locked until then.
    """
    parent = os.environ.pop(PARENT_VARIABLE, None)
    if sys.platform != "linux" or (parent is None and "LOCAL_RANK" not in os.environ):
        return
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
    if parent is not None and os.getppid() != int(parent):
        sys.exit("hf-dse: the process that started this one has ended")


def run(argv: list[str]) -> int:
    """Runs one command, without `--quiet`, and returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="hf-dse",
        usage="hf-dse [--help] [--version] [--quiet | --verbose] COMMAND [OPTIONS]",
        description=f"Distil a cross-encoder into a sentence-embedding model with linear attention.\n\n{_listing()}",
        epilog="`hf-dse COMMAND --help` lists the options of a command, with an example.\n"
        f"{QUIET} hides progress, warnings and notes; {VERBOSE} shows more of them.\n"
        f"{TRACEBACK_VARIABLE}=1 shows where an error comes from.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
    )
    # They are in the first line.
    parser.add_argument("--help", "-h", action="help", help=argparse.SUPPRESS)
    parser.add_argument(
        "--version", action="version", version=f"hf-dse {importlib.metadata.version('hf-dse')}", help=argparse.SUPPRESS
    )
    parser.add_argument("command", nargs="?", help=argparse.SUPPRESS)
    # This parser reads the words up to the command only, because `--help` after it belongs to the command.
    command = parser.parse_args(argv[:1]).command
    if command is None:
        parser.print_help()
        return 0
    if command not in COMMANDS:
        similar = difflib.get_close_matches(command, [*COMMANDS, *MEANT], n=1)
        meant = [MEANT.get(name, name) for name in similar]
        hint = f" (did you mean `hf-dse {meant[0]}`?)" if meant else ""
        print(f"hf-dse: error: unknown command {command!r}{hint}; `hf-dse --help` lists the commands", file=sys.stderr)
        return 2

    _, module, function = COMMANDS[command]
    try:
        getattr(importlib.import_module(module), function)(argv[1:])
        return 0
    except Exception as error:
        if os.environ.get(TRACEBACK_VARIABLE) == "1" or not _is_user_error(error):
            raise
        message = _describe(error)
    _say(_harmless(f"hf-dse {command}: error: {message}"))
    return 2


def _listing() -> str:
    """The commands, on one screen: the main jobs, and the others in groups."""
    grouped = {name for names in GROUPS.values() for name in names}
    more = tuple(name for name in COMMANDS if name not in grouped and name not in JOBS)
    lines = [f"  {name:<9}{COMMANDS[name][0]}" for name in JOBS]
    lines.append("")
    for heading, names in {**GROUPS, "more": more}.items():
        words = ", ".join(f"{name} ({COMMANDS[name][0]})" for name in names if name in COMMANDS)
        if words:
            lines += textwrap.wrap(words, 79, initial_indent=f"  {heading:<9}", subsequent_indent=" " * 11)
    return "\n".join(lines)


def _say(message: str) -> None:
    """Prints the last line of a command that did not end well."""
    # Progress bars that were left are drawn once more when they are deleted: let it be now.
    gc.collect()
    print(message, file=sys.stderr)


class HarmlessFormatter(logging.Formatter):
    """Shows names and texts from outside without what a terminal would obey."""

    def format(self, record: logging.LogRecord) -> str:
        return _harmless(super().format(record))


class LogHandler(logging.Handler):
    """Writes to stderr, between the progress bars. Of warnings that differ in numbers only, the first is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        from tqdm import tqdm

        text = self.format(record)
        kind = re.sub(r"\d+", "0", text)
        if record.levelno != logging.WARNING or kind not in self.seen:
            self.seen.add(kind)
            (tqdm.write if sys.stderr.isatty() else print)(text, file=sys.stderr)


@contextmanager
def show_log(level: int = logging.INFO) -> Iterator[None]:
    """Shows what hf_dse logs, on stderr: results alone are on stdout."""
    # One of several processes is enough.
    if os.environ.get("RANK", "0") != "0":
        level = max(level, logging.WARNING)
    handler = LogHandler()
    handler.setFormatter(HarmlessFormatter())
    logger = logging.getLogger("hf_dse")
    before = logger.level
    logger.setLevel(level)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)


@contextmanager
def output(words: Sequence[str], quiet: bool, verbose: bool) -> Iterator[None]:
    """Shows what a command says, without what its libraries say to developers unless `verbose`."""
    with ExitStack() as stack:
        if (quiet or not verbose) and words[:1] and words[0] in COMMANDS:
            if "hf_dse" not in sys.modules:
                # Help, and errors in options, need no torch.
                os.environ["HF_DSE_REGISTER_LATER"] = "1"
            from hf_dse.cli import parsing

            def hide_libraries() -> None:
                from hf_dse.cli.output import own_output

                stack.enter_context(own_output(quiet))

            parsing.after_parsing[:] = [hide_libraries]
        stack.enter_context(show_log(logging.ERROR if quiet else logging.DEBUG if verbose else logging.INFO))
        yield


def _is_user_error(error: Exception) -> bool:
    """Whether an error is a user error (bad values, files, names, missing packages), not a bug."""
    from huggingface_hub.errors import StrictDataclassError

    kinds = (ValueError, OSError, ImportError, MemoryError, StrictDataclassError)
    return isinstance(error, kinds) or _is_out_of_memory(error)


def _is_out_of_memory(error: Exception) -> bool:
    # On a CPU, torch has no class for it.
    return type(error).__name__ == "OutOfMemoryError" or "can't allocate memory" in str(error)


def _harmless(text: str) -> str:
    from hf_dse.common.display import harmless

    return harmless(text)


def _describe(error: Exception) -> str:
    from huggingface_hub.errors import HFValidationError

    # A path is no valid repository id.
    hint = " There is no such folder either." if isinstance(error.__cause__ or error, HFValidationError) else ""
    if isinstance(error, MemoryError) or _is_out_of_memory(error):
        hint = " This is more than the memory has: use smaller batches, shorter texts or a smaller model."
    # Some errors of libraries have several lines.
    return " ".join(f"{error}{hint}".split())


if __name__ == "__main__":
    sys.exit(main())
