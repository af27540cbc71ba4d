# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
The STS-B table of the README: students of one encoder, by attention, projection, k, alpha and seed.

    python benchmarks/stsb.py --data_dir STSB            # run what is missing, then print the table
    python benchmarks/stsb.py --data_dir STSB --rows softmax --seeds 42
    python benchmarks/stsb.py                            # print the table only

STSB is a folder with train, validation and test.parquet (columns sentence1, sentence2, label). Every run is one
`hf-dse distill` in a process of its own. Its result is appended to `stsb_results.jsonl` beside this file, and a run
found there is never repeated, so the command can be stopped and given again. A CPU with AVX-512 bf16 or AMX trains
about twice as fast with --flags "--bf16 true --use_cpu true"; on one without it bf16 is far slower than float32.

The teacher's scores of the training pairs lie in `stsb_teacher_scores.parquet`, by a hash of the sentences, from

    hf-dse score --model_name_or_path TEACHER --task_name stsb --dataset_name STSB --split train \
        --symmetric true --output_file scored.parquet
    python benchmarks/stsb.py --keep_scores scored.parquet
"""

import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from statistics import mean, stdev

import pandas as pd

from hf_dse.demo import default_encoder


RESULTS = Path(__file__).with_name("stsb_results.jsonl")
SCORES = Path(__file__).with_name("stsb_teacher_scores.parquet")
RECIPE = (
    "--task_name stsb --num_train_epochs 2 --learning_rate 5e-5 --scale_learning_rate 5e-5 "
    "--per_device_train_batch_size 32 "
    "--eval_strategy no --save_strategy no --load_best_model_at_end false --report_to none"
)
# row of the table -> flags of `hf-dse distill`; rows that come first answer the most
ROWS = {}
for alpha in ("1.0", "0.0", "0.5"):
    for name, flags in {
        "learned, k = 32": "--linformer_projection learned --linformer_length 32",
        "softmax": "--layer_types full_attention",
        "mean, k = 32": "--linformer_projection mean --linformer_length 32",
        "learned, k = 64": "--linformer_projection learned --linformer_length 64",
        "mean, k = 64": "--linformer_projection mean --linformer_length 64",
    }.items():
        ROWS[f"{name}, alpha {alpha}"] = f"{flags} --distillation_alpha {alpha}"
ROWS |= {
    "floor: random E and F, k = 32, alpha 1.0": (
        "--linformer_projection learned --linformer_init random --linformer_sharing headwise --linformer_length 32 "
        "--distillation_alpha 1.0"
    ),
    "floor: random weights, k = 32, alpha 1.0": (
        "--linformer_projection learned --linformer_length 32 --random_init --distillation_alpha 1.0"
    ),
}


def pair_keys(pairs: pd.DataFrame) -> list[str]:
    """A hash for each pair, so that scores can be kept without the texts."""
    texts = zip(pairs["sentence1"], pairs["sentence2"], strict=True)
    return [hashlib.sha256("\0".join(text).encode()).hexdigest()[:16] for text in texts]


def keep_scores(scored_file: str) -> None:
    pairs = pd.read_parquet(scored_file)
    scores = pd.DataFrame({"key": pair_keys(pairs), "teacher_logits": pairs["teacher_logits"]})
    scores.drop_duplicates("key").to_parquet(SCORES, index=False, compression="zstd")


def write_scored_train(data_dir: Path, file: Path) -> None:
    scores = pd.read_parquet(SCORES).set_index("key")["teacher_logits"]
    pairs = pd.read_parquet(data_dir / "train.parquet")[["sentence1", "sentence2", "label"]]
    pairs["teacher_logits"] = scores.loc[pair_keys(pairs)].tolist()
    file.parent.mkdir(parents=True, exist_ok=True)
    pairs.to_parquet(file)


def finished() -> list[dict]:
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


def run(args: argparse.Namespace, train_file: Path, row: str, seed: int) -> None:
    name = "".join(letter if letter.isalnum() or letter == "." else "-" for letter in row)
    folder = Path(args.output_dir) / f"{name}-seed{seed}"
    data = Path(args.data_dir)
    command = [
        *(sys.executable, "-m", "hf_dse_cli", "distill", "--model_name_or_path", args.encoder or default_encoder()),
        *("--train_file", train_file, "--validation_file", data / "validation.parquet"),
        *("--test_file", data / "test.parquet", "--output_dir", folder, "--overwrite_output_dir", "true"),
        *("--seed", seed, *RECIPE.split(), *ROWS[row].split(), *args.flags.split()),
    ]
    environment = os.environ | {"OMP_NUM_THREADS": str(args.threads), "TOKENIZERS_PARALLELISM": "false"}
    print(f"start  {row}, seed {seed}", flush=True)
    with (folder.parent / f"{folder.name}.log").open("w") as log:
        code = subprocess.run(list(map(str, command)), stdout=log, stderr=log, env=environment).returncode
    if code != 0:
        print(f"FAILED {row}, seed {seed}: see {log.name}", flush=True)
        return
    results = json.loads((folder / "results.json").read_text())
    line = {
        "row": row,
        "seed": seed,
        "flags": f"{RECIPE} {ROWS[row]} {args.flags}".strip(),
        "metrics": results["metrics"],
        "train_seconds": results["training"]["train_runtime"],
        "threads": args.threads,
        "machine": platform.machine(),
        **{package: version(package) for package in ("torch", "transformers")},
    }
    with RESULTS.open("a") as file:
        file.write(json.dumps(line) + "\n")
    print(f"finish {row}, seed {seed}: test Pearson {100 * line['metrics']['test']['pearson']:.2f}", flush=True)


def report() -> None:
    columns = [(split, name) for split in ("validation", "test") for name in ("pearson", "spearman")]
    print("| student | seeds | " + " | ".join(f"{split} {name.capitalize()}" for split, name in columns) + " |")
    print("| --- | --- | " + " | ".join("--:" for _ in columns) + " |")
    for row in ROWS:
        runs = [line["metrics"] for line in finished() if line["row"] == row]
        if not runs:
            continue
        cells = []
        for split, name in columns:
            values = [100 * metrics[split][name] for metrics in runs]
            cells.append(f"{mean(values):.2f}" + (f" ± {stdev(values):.2f}" if len(values) > 1 else ""))
        print(f"| {row} | {len(runs)} | " + " | ".join(cells) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_dir", help="folder with STS-B; without it the table is printed only")
    parser.add_argument("--encoder", help="encoder to convert (default: all-MiniLM-L6-v2 from pip)")
    parser.add_argument("--output_dir", default="outputs/stsb", help="where models and logs go")
    parser.add_argument("--seeds", type=int, nargs="+", default=[42, 43, 44])
    parser.add_argument("--rows", nargs="+", default=[""], help="run only rows that contain one of these words")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    parser.add_argument("--threads", type=int, default=1, help="threads of a run")
    parser.add_argument("--flags", default="", help="more flags for every run, such as '--bf16 true --use_cpu true'")
    parser.add_argument("--keep_scores", metavar="FILE", help="keep the teacher scores of this scored train split")
    args = parser.parse_args()
    if args.keep_scores is not None:
        keep_scores(args.keep_scores)
    elif args.data_dir is not None:
        train_file = Path(args.output_dir) / "train.parquet"
        write_scored_train(Path(args.data_dir), train_file)
        done = {(line["row"], line["seed"]) for line in finished()}
        todo = [(row, seed) for seed in args.seeds for row in ROWS if any(word in row for word in args.rows)]
        with ThreadPoolExecutor(args.jobs) as pool:
            list(pool.map(lambda job: run(args, train_file, *job), [job for job in todo if job not in done]))
    report()


if __name__ == "__main__":
    main()
