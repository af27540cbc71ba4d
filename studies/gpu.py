# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Measurements and trainings for a GPU, in pieces of less than ten minutes each.

    python studies/gpu.py [--data DATA] [--output_dir OUT] [--limit SECONDS] [--pieces NAME ...] [--small]

A piece is one command. When it is finished, OUT/NAME.md has the device, the command and its table, and the piece is
skipped from then on. A piece that takes longer than the limit is killed. The next call goes on: a training from its
last checkpoint, another piece from its start. `--pieces` runs some of them, in the order of the script; a later one
may need files of an earlier one. `--small` tries the script, also on a CPU.

DATA has the folders fairytaleqa, squality and qmsum with parquet files; without it no long student is trained. Ten
million vectors need about 35 GB of memory, and 20 GB of the GPU's.

The kernel of `sdpa` is torch's choice: its flash kernel, and cuDNN's, take bfloat16 without a mask.
benchmarks/speed.py has no padding and passes no mask, and transformers then makes none. The first line of a table has
torch's choice.
"""

import argparse
import os
import shlex
import subprocess
import sys
from pathlib import Path

import torch
import transformers

from hf_dse.common.provenance import describe_machine
from hf_dse.demo import default_encoder
from hf_dse.training.base import complete_checkpoints


ROOT = Path(__file__).parents[1]
LENGTHS = "512 1024 2048 4096 8192 16384 32768 65536"
# Table 3 of the paper, by k: times as fast / as little memory as plain softmax attention, at the last of the lengths.
PAPER = {
    "speed-128": "1.5/1.7 1.7/3.0 2.6/6.1 3.4/14 5.5/28 8.6/56 13/56 20/60",
    "speed-256": "1.3/1.5 1.6/2.9 2.4/5.6 3.2/13 5.0/26 7.8/48 12/48 18/52",
    "speed-512": "1.3/1.8 2.1/3.6 2.8/8.3 4.4/17 7.0/32 11/36 16/40",
    "speed-1024": "1.3/2.0 2.2/4.3 3.5/8.5 5.6/16 8.8/18 14/20",
    "speed-2048": "1.3/2.3 2.1/4.5 3.3/8 5.0/16 7.9/18",
}
BENCHMARKS = "python ROOT/benchmarks"
SPEED = f"{BENCHMARKS}/speed.py --bf16 --batch_tokens 65536 --min_seconds 0.1 --lengths {LENGTHS} --models"
RANK = f"{BENCHMARKS}/ranking_cost.py ROOT/checkpoints/dse-minilm-l6 OUT/cross-encoder --dtype bfloat16 --rounds 2 \
--candidates"
LONG = f"{BENCHMARKS}/long_documents.py ENCODER --dtype bfloat16 --max_length 512"
NEEDLES = f"{LONG} --needles passkey needle --long_length 32768 --lengths"
STUDENT = "hf-dse distill --stage ranking --model ROOT/checkpoints/dse-minilm-l6 --bf16 true \
--train_file OUT/questions/grouped.jsonl --corpus OUT/questions/corpus.jsonl --max_length 2048 \
--query_max_length 256 --num_candidates 2 --train_sampling_strategy sequential --freeze_layers 4 \
--per_device_train_batch_size 96 \
--attention_probs_dropout_prob 0 --hidden_dropout_prob 0 --learning_rate 5e-5 --warmup_steps 0.1 --max_steps 400 \
--eval_strategy no --load_best_model_at_end false --save_strategy steps --save_steps 50 --save_total_limit 1"
STUDENTS = "--students ROOT/checkpoints/dse-minilm-l6 OUT/student/model"
PIECES = {
    **{
        name: f"{SPEED} minilm --variants sdpa linear learned eager --linformer_length {name.removeprefix('speed-')}"
        for name in PAPER
    },
    "speed-layers": f"{SPEED} minilm --variants sdpa linear chunks sliding sliding_linear",
    "speed-modernbert": f"{SPEED} granite-small modernbert-base --variants sdpa flex blocks linear sliding_linear",
    "speed-training": f"{SPEED} minilm granite-small --variants sdpa blocks linear chunks --train",
    "rank": f"{RANK} 100 1000 10000 100000 1000000",
    "rank-ten-million": f"{RANK} 10000000",
    "needles": f"{NEEDLES} 256 512 1024 2048 4096 8192 16384",
    "needles-32768": f"{NEEDLES} 32768",
    # From here on with DATA
    "questions": "python ROOT/recipes/long/questions.py DATA OUT/questions",
    "student": STUDENT,
    "long-fairytaleqa": f"{LONG} --dataset_name OUT/questions/fairytaleqa {STUDENTS}",
    "long-squality": f"{LONG} --dataset_name OUT/questions/squality --split validation {STUDENTS}",
    "long-qmsum": f"{LONG} --dataset_name OUT/questions/qmsum {STUDENTS}",
}
# Options of the small form, which replace those above.
SMALL = {
    "speed.py": "--models minilm --lengths 64 128 --linformer_length 16 --batch_tokens 128 --rounds 1 --min_seconds 0",
    "ranking_cost.py": "--candidates 100 --rounds 1 --max_pairs 16",
    "long_documents.py": "--lengths 64 --long_length 1024 --ways first linear bm25 --rounds 1 --timed_documents 1",
    "distill": "--max_steps 2 --save_steps 1 --max_length 256 --per_device_train_batch_size 2",
}


def make_words(name: str, places: dict[str, str], small: bool) -> list[str]:
    """The command line of a piece, with the paths of OUT, DATA, ENCODER and ROOT."""
    words = PIECES[name].split()
    if words[1] == "distill":
        words += ["--output_dir", f"OUT/{name}", "--use_cpu", str(not torch.cuda.is_available())]
    if small:
        words += SMALL.get(Path(words[1]).name, "").split()
    if words[1] == "distill":
        is_begun = complete_checkpoints(Path(places["OUT"], name))
        words += ["--resume_from_checkpoint", "last"] if is_begun else ["--overwrite_output_dir", "true"]
    for place, path in places.items():
        words = [path + word.removeprefix(place) if word.split("/")[0] == place else word for word in words]
    return words


def run_piece(name: str, words: list[str], places: dict[str, str], header: str, limit: float) -> str:
    """Runs a command, on one GPU where there are several, and writes its table; returns what became of it."""
    part = Path(places["OUT"], f"{name}.part")
    program = [sys.executable, *(["-m", "hf_dse_cli"] if words[0] == "hf-dse" else []), *words[1:]]
    one_gpu = {"CUDA_VISIBLE_DEVICES": "0", **os.environ}
    try:
        with part.open("w") as file:
            subprocess.run(program, stdout=file, timeout=limit, env=one_gpu, check=True)
    except subprocess.TimeoutExpired:
        return f"killed after {limit:g} seconds"
    except subprocess.CalledProcessError as error:
        return f"failed with exit status {error.returncode}"
    paper = f"\nThe paper, against eager, up to 65,536 tokens, time / memory: {PAPER[name]}\n" if name in PAPER else ""
    text = f"{header}\n\n```bash\n{shlex.join(words)}\n```\n\n{part.read_text()}{paper}"
    for place, path in places.items():
        text = text.replace(path, place)
    part.write_text(text)
    part.replace(part.with_suffix(".md"))
    return "finished"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--output_dir", type=Path, default=Path("outputs/gpu"))
    parser.add_argument("--limit", type=float, default=600, help="seconds a piece may take")
    parser.add_argument("--pieces", nargs="+", choices=list(PIECES), metavar="NAME", help="only these pieces")
    parser.add_argument("--small", action="store_true", help="tiny sizes, on a GPU or a CPU")
    args = parser.parse_args()
    if not torch.cuda.is_available() and not args.small:
        sys.exit("This needs a GPU with CUDA, and there is none: `--small` tries the script without one.")
    qkv = 3 * [torch.zeros(1, 12, 64, 32, dtype=torch.bfloat16, device="cuda" if torch.cuda.is_available() else "cpu")]
    header = f"Device: {describe_machine()}; torch {torch.__version__}, transformers {transformers.__version__}, "
    header += f"bfloat16; sdpa takes {torch.nn.attention.SDPBackend(torch._fused_sdp_choice(*qkv)).name}"
    out, encoder, data = args.output_dir.resolve(), default_encoder(), args.data and args.data.resolve()
    # In tables the names stand for the paths, the longest first.
    places = {"OUT": str(out), **({"DATA": str(data)} if data else {}), "ENCODER": encoder, "ROOT": str(ROOT)}
    # 12 layers of 768 with random weights, on which the time does not depend.
    tokenizer = transformers.AutoTokenizer.from_pretrained(encoder)
    config = transformers.BertConfig(vocab_size=len(tokenizer), num_labels=1)
    transformers.BertForSequenceClassification(config).save_pretrained(out / "cross-encoder")
    tokenizer.save_pretrained(out / "cross-encoder")
    ended = {}
    for name in list(PIECES)[: None if data else list(PIECES).index("questions")]:
        if name in (args.pieces or PIECES) and not (out / f"{name}.md").is_file():
            ended[name] = run_piece(name, make_words(name, places, args.small), places, header, args.limit)
            print(f"{name}: {ended[name]}", flush=True)
    sys.exit("Not all is finished. The next call goes on." if set(ended.values()) - {"finished"} else 0)


if __name__ == "__main__":
    main()
