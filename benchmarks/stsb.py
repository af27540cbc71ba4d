# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
The STS-B table of the README: students of one encoder, by attention, projection, k, alpha and seed.

    hf-dse score --model_name_or_path TEACHER --task_name stsb --dataset_name STSB --split train --symmetric \
        --output_file outputs/stsb/train.parquet
    python benchmarks/stsb.py --data_dir STSB --scored_train outputs/stsb/train.parquet

Every run is one `hf-dse distill` in a process of its own, about 13 minutes on one CPU core. A run that is finished is
never repeated, so the command can be stopped and given again; `--report` only prints the table.
"""

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean, stdev

from hf_dse.demo import default_encoder


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
RECIPE = (
    "--task_name stsb --num_train_epochs 3 --learning_rate 5e-5 --per_device_train_batch_size 16 "
    "--eval_strategy no --save_strategy no --load_best_model_at_end false --report_to none"
)


def folder_of(args: argparse.Namespace, row: str, seed: int) -> Path:
    name = "".join(letter if letter.isalnum() or letter == "." else "-" for letter in row)
    return Path(args.output_dir) / f"{name}-seed{seed}"


def run(args: argparse.Namespace, row: str, seed: int) -> None:
    folder = folder_of(args, row, seed)
    if (folder / "results.json").exists():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    data = Path(args.data_dir)
    command = [
        *(sys.executable, "-m", "hf_dse_cli", "distill", "--model_name_or_path", args.encoder or default_encoder()),
        *("--train_file", args.scored_train, "--validation_file", data / "validation.parquet"),
        *("--test_file", data / "test.parquet", "--output_dir", folder, "--overwrite_output_dir", "true"),
        *("--seed", seed, *RECIPE.split(), *ROWS[row].split()),
    ]
    environment = os.environ | {"OMP_NUM_THREADS": str(args.threads), "TOKENIZERS_PARALLELISM": "false"}
    print(f"start  {row}, seed {seed}", flush=True)
    with (folder.parent / f"{folder.name}.log").open("w") as log:
        code = subprocess.run(list(map(str, command)), stdout=log, stderr=log, env=environment).returncode
    print(f"{'finish' if code == 0 else 'FAILED'} {row}, seed {seed}", flush=True)


def report(args: argparse.Namespace) -> None:
    columns = [(split, name) for split in ("validation", "test") for name in ("pearson", "spearman")]
    print("| student | seeds | " + " | ".join(f"{split} {name.capitalize()}" for split, name in columns) + " |")
    print("| --- | --- | " + " | ".join("--:" for _ in columns) + " |")
    for row in ROWS:
        files = [folder_of(args, row, seed) / "results.json" for seed in args.seeds]
        runs = [json.loads(file.read_text())["metrics"] for file in files if file.exists()]
        if not runs:
            continue
        cells = []
        for split, name in columns:
            values = [100 * metrics[split][name] for metrics in runs]
            cells.append(f"{mean(values):.2f}" + (f" ± {stdev(values):.2f}" if len(values) > 1 else ""))
        print(f"| {row} | {len(runs)} | " + " | ".join(cells) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_dir", help="folder with STS-B as train, validation and test.parquet")
    parser.add_argument("--scored_train", help="the train split with a column teacher_logits, from `hf-dse score`")
    parser.add_argument("--encoder", help="encoder to convert (default: all-MiniLM-L6-v2 from pip)")
    parser.add_argument("--output_dir", default="outputs/stsb", help="where the runs go")
    parser.add_argument("--seeds", type=int, nargs="+", default=[42, 43, 44])
    parser.add_argument("--rows", nargs="+", default=[""], help="run only rows that contain one of these words")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    parser.add_argument("--threads", type=int, default=1, help="threads of a run")
    parser.add_argument("--report", action="store_true", help="only print the table")
    args = parser.parse_args()
    if not args.report:
        if args.data_dir is None or args.scored_train is None:
            parser.error("--data_dir and --scored_train are needed to run")
        with ThreadPoolExecutor(args.jobs) as pool:
            for seed in args.seeds:
                for row in ROWS:
                    if any(word in row for word in args.rows):
                        pool.submit(run, args, row, seed)
    report(args)


if __name__ == "__main__":
    main()
