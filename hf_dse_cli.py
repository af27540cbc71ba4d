# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
The `hf-dse` command. It is outside the package because importing `hf_dse` imports torch, and `hf-dse --help` must be
fast: nothing heavy is imported before the options of a command are read.
"""

import difflib
import importlib
import importlib.metadata
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any


# command -> the module of hf_dse.cli with its function, and one line of help.
COMMANDS = {
    "assess": ("measure", "tell what there is to gain: search, BM25, both, and a reranker"),
    "demo": ("bench", "convert, distil and compare on a small embedded dataset"),
    "convert": ("folders", "give a pretrained encoder linear attention, without training"),
    "distill": ("training", "train a student on a cross-encoder's scores, and on labels"),
    "search": ("search", "find the best texts of files for a query"),
    "score": ("score", "add a teacher's scores to sentence pairs or candidates"),
    "mine": ("score", "find hard negatives for queries"),
    "whiten": ("folders", "whiten or shorten a student's embeddings, without training"),
    "evaluate": ("measure", "measure a model on sentence pairs, or its search in a corpus"),
    "bench": ("bench", "compare the speed of linear and softmax attention"),
    "study": ("training", "run a grid of trainings; `study report` reports on it"),
    "encode": ("search", "write the embeddings of texts"),
    "export": ("folders", "write a complete model folder, or an ONNX graph"),
    "push": ("folders", "publish a model folder on the Hub"),
}

HELP = f"""usage: hf-dse [--help] [--version] [--quiet | --verbose] COMMAND [OPTIONS]

Distil a cross-encoder into a sentence-embedding model with linear attention.

{"".join(f"  {name:<10}{text}{chr(10)}" for name, (_, text) in COMMANDS.items())}
`hf-dse COMMAND --help` lists the options of a command, with an example.
--quiet hides progress, warnings and notes; --verbose adds libraries' notes.
HF_DSE_TRACEBACK=1 shows where an error comes from."""

CHECKPOINT = "add `--resume_from_checkpoint last` to go on from its last checkpoint"
CACHE = "finished work is kept, and the same command goes on from there"
# What to do after an interruption. The other commands start again.
GO_ON = {"distill": CHECKPOINT, **dict.fromkeys(("score", "mine", "study", "search"), CACHE)}

# Libraries read these settings of their progress bars and messages when they are imported; a user's own values stay.
ENVIRONMENT = {
    "DATASETS_VERBOSITY": "error",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "TQDM_DELAY": "1",
    "TQDM_DYNAMIC_NCOLS": "1",
}
IN_A_FILE = {"TQDM_MININTERVAL": "60", "TQDM_MAXINTERVAL": "60"}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command, and returns the exit code: 0, 2 after an error of the user, 130 after an interruption."""
    argv = list(sys.argv[1:] if argv is None else argv)
    command, *rest = [word for word in argv if word not in ("--quiet", "--verbose")] or ["--help"]
    if command in ("--help", "-h"):
        print(HELP)
        return 0
    if command == "--version":
        print(f"hf-dse {importlib.metadata.version('hf-dse')}")
        return 0
    if command not in COMMANDS:
        close = difflib.get_close_matches(command, COMMANDS, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        print(f"hf-dse: error: unknown command {command!r}{hint}; `hf-dse --help` lists the commands", file=sys.stderr)
        return 2
    try:
        run(command, rest, is_quiet="--quiet" in argv, is_verbose="--verbose" in argv)
        return 0
    except BrokenPipeError:
        # The reader of the output, such as `head`, has enough. Python would complain when it closes the output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        advice = GO_ON.get(command, "give the same command to start again")
        print(f"\nhf-dse {command}: interrupted; {advice}", file=sys.stderr)
        return 130
    except Exception as error:
        from huggingface_hub.errors import StrictDataclassError

        is_user_error = isinstance(error, ValueError | OSError | ImportError | StrictDataclassError)
        if os.environ.get("HF_DSE_TRACEBACK") == "1" or not is_user_error:
            raise
        from hf_dse.common.display import one_line

        # Some errors of libraries have several lines.
        print(one_line(f"hf-dse {command}: error: {error}"), file=sys.stderr)
        return 2


def run(command: str, argv: list[str], is_quiet: bool = False, is_verbose: bool = False) -> None:
    """Reads the options of a command, then runs it."""
    for name, value in (ENVIRONMENT if sys.stderr.isatty() else ENVIRONMENT | IN_A_FILE).items():
        os.environ.setdefault(name, value)
    # Registration imports torch, and waits until options are read: see hf_dse/__init__.py.
    os.environ["HF_DSE_REGISTER"] = "later"
    import hf_dse
    from hf_dse.cli.output import hide_libraries, show_log

    del os.environ["HF_DSE_REGISTER"]
    with show_log("ERROR" if is_quiet else "DEBUG" if is_verbose else "INFO"):
        start = read(command, argv)
        hf_dse.register()
        with nullcontext() if is_verbose else hide_libraries(is_quiet):
            start()


def read(command: str, argv: list[str]) -> Callable[[], None]:
    """Reads the options of a command, and returns what is to be called then."""
    from hf_dse.cli.parsing import read_options

    module: Any = importlib.import_module(f"hf_dse.cli.{COMMANDS[command][0]}")
    # Most commands have the options of one function. Others choose the function or the options by the first words.
    parse = getattr(module, f"parse_{command}", None)
    return parse(argv) if parse else read_options(getattr(module, command), argv)


if __name__ == "__main__":
    sys.exit(main())
