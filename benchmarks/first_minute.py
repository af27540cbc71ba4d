# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
What a new user sees: from a folder of texts, judged queries and a reranker of one's own to a student that is served,
in four commands, each of which names the next one. About 20 minutes on 2 CPU cores.

    python benchmarks/first_minute.py --folder outputs/first_minute

The texts are the pages of docs/ and documentation of Python functions, 300 in all. The queries are the first sentences
of 50 of them, taken out of these. The reranker is a small `CrossEncoder` that learns in two minutes from other
sentences of the texts (examples/13_train_a_teacher.py): too little to be better than the search, which the first
command has to say.
"""

import argparse
import importlib
import inspect
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from hf_dse import default_encoder, load_corpus, make_queries


ROOT = Path(__file__).parents[1]
MODULES = """
argparse ast asyncio base64 builtins calendar collections configparser contextlib csv ctypes datetime decimal
difflib email functools gettext gzip hashlib heapq html http.client inspect io ipaddress itertools json locale
logging math mimetypes multiprocessing operator os pathlib pickle platform random re shelve shlex shutil
signal socket sqlite3 statistics string struct subprocess tarfile tempfile textwrap threading time traceback
types unittest urllib.parse uuid warnings zipfile zlib
"""


def run(*words: object) -> str:
    """Runs a command of hf-dse, shows it, its time and its end, and returns what it printed."""
    print(f"\n$ hf-dse {' '.join(map(shlex.quote, map(str, words)))}", flush=True)
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "hf_dse_cli", *map(str, words)], capture_output=True, text=True)
    lines = [line for line in (done.stdout + done.stderr).splitlines() if not re.search(r"\d%\|", line)]
    print("\n".join(lines[-24:]), f"\n[{time.perf_counter() - start:.0f} s]", flush=True)
    if done.returncode:
        sys.exit(f"`hf-dse {words[0]}` failed")
    if words[0] in ("assess", "mine", "distill") and "Next: `hf-dse" not in done.stderr:
        sys.exit(f"`hf-dse {words[0]}` does not say what to do next")
    return done.stdout


def write_texts(folder: Path, num_texts: int) -> None:
    """Pages of this project and a draw of the documentation of Python functions, one file each."""
    folder.mkdir(parents=True)
    for page in sorted((ROOT / "docs").rglob("*.md")):
        shutil.copy(page, folder / page.name)
    found: dict[str, str] = {}
    for name in MODULES.split():
        for thing, value in inspect.getmembers(importlib.import_module(name), callable):
            text = inspect.getdoc(value) or ""
            if len(text) > 300 and "._" not in f"{name}.{thing}":
                found.setdefault(text, f"{name}.{thing}.txt")
    texts = sorted(found, key=found.__getitem__)
    rows = np.random.default_rng(0).permutation(len(texts))[: num_texts - len(list(folder.iterdir()))]
    for row in rows:
        (folder / found[texts[row]]).write_text(texts[row] + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="A new folder for all files.")
    parser.add_argument("--num_texts", type=int, default=300)
    parser.add_argument("--num_queries", type=int, default=50)
    parser.add_argument("--num_train_epochs", type=float, default=3, help="Passes of the student over its queries.")
    parser.add_argument("--bf16", default="false", help="true: train in bfloat16 on the CPU.")
    args = parser.parse_args()
    docs, queries = args.folder / "docs", args.folder / "queries.csv"
    write_texts(docs, args.num_texts)

    # What a user has: queries with the file that answers them, and a reranker.
    made = make_queries(load_corpus(str(docs)), "first_sentences", num_queries=args.num_queries, seed=0)
    files = made.corpus["doc_id"][:]
    lines = ["query,file"]
    for query, (row,) in zip(made.queries["query"], made.positives(), strict=True):
        (docs / files[row]).write_text(made.corpus["text"][row], encoding="utf-8")
        quoted = " ".join(query.split()).replace('"', '""')
        lines.append(f'"{quoted}",{files[row]}')
    queries.write_text("\n".join(lines) + "\n", encoding="utf-8")
    first, model = args.folder / "first.parquet", default_encoder()
    run("mine", "--model", model, "--bm25", "--corpus", docs, "--queries_from", "headings", "--output_file", first)
    script = [ROOT / "examples" / "13_train_a_teacher.py", "--train_file", first, "--num_negatives", 2]
    reranker = args.folder / "reranker"
    script += ["--num_train_epochs", 2, "--max_length", 96, "--learning_rate", 1e-4, "--output_dir", reranker]
    script += ["--per_device_train_batch_size", 4, "--bf16", args.bf16, "--use_cpu", args.bf16]
    subprocess.run([sys.executable, *map(str, script)], check=True, capture_output=True)

    # The four commands.
    data = ["--corpus", docs, "--test_file", queries]
    run("assess", "--model", model, *data, "--rerank", reranker, "--max_length", 128, "--rerank_top", 20)
    mined = args.folder / "mined.parquet"
    made_of = ["--queries_from", "headings", "--bm25"]
    run("mine", "--model", model, "--corpus", docs, *made_of, "--output_file", mined)
    student = args.folder / "student"
    training = ["--num_train_epochs", args.num_train_epochs, "--learning_rate", 5e-5, "--output_dir", student]
    training += ["--teacher", reranker]
    training += ["--bf16", args.bf16, "--use_cpu", args.bf16]
    run("distill", "--stage", "ranking", "--model", model, "--train_file", mined, *data, *training)
    question = ["--query", "How do I serve a student?", "--top_k", 3]
    run("search", "--model", student, "--corpus", docs, "--bm25_weight", 0.3, *question)


if __name__ == "__main__":
    main()
