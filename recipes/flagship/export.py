# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Evaluates a student of recipes/flagship/run.sh, by default the last, and exports it with a model card.

    python recipes/flagship/export.py DATA OUT CHECKPOINT [STUDENT]
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from huggingface_hub import EvalResult, ModelCard
from transformers import AutoConfig, AutoTokenizer

from hf_dse import (
    DataArguments,
    DseForSequenceClassification,
    evaluate,
    export,
    load_pairs,
    to_sentence_transformer,
)
from hf_dse.common.provenance import describe_machine
from hf_dse.convert.convert import set_dropout


VERSION = 4
# Tokens of a text that everything reads that loads the checkpoint.
MAX_LENGTH = 16_384
COMMANDS = (
    "recipes/flagship/run.sh DATA",
    "# The same sets in mteb, and its English benchmark, which is downloaded.",
    "python studies/mteb_tasks.py checkpoints/dse-minilm-l6 --data DATA",
    'python studies/mteb_tasks.py checkpoints/dse-minilm-l6 --benchmark "MTEB(eng, v2)" --results mteb',
)


# The largest parts of the training data on the Hub; STS-B was also measured on.
DATASETS = [
    "stsb",
    "mteb/scifact",
    "rajpurkar/squad",
    "WorkInTheDark/FairytaleQA",
    "qiaojin/PubMedQA",
    "stanfordnlp/snli",
]
# Sets of studies/generality.py besides STS-B: the data on the Hub, if they are the same there, and the split.
SETS = {
    "SICK validation": ("custom", "validation"),
    "SciFact nDCG@10": ("mteb/scifact", "test"),
    "Cranfield nDCG@10": ("custom", None),
    "NPL nDCG@10": ("custom", None),
    "CACM nDCG@10": ("custom", None),
    "SQuAD nDCG@10": ("custom", "questions about one sentence of four"),
}


def result_of(name: str, value: float) -> EvalResult:
    is_search = name.endswith("nDCG@10")
    return EvalResult(
        task_type="information-retrieval" if is_search else "sentence-similarity",
        dataset_type=SETS[name][0],
        dataset_name=name.split()[0],
        # The Hub tells data apart by type and configuration, not by name.
        dataset_config=name.split()[0] if SETS[name][0] == "custom" else None,
        dataset_split=SETS[name][1],
        metric_type="cosine_ndcg@10" if is_search else "cosine_spearman",
        metric_name="nDCG@10" if is_search else "Spearman of the cosine",
        metric_value=value,
    )


def add_results(path: Path, results: list[EvalResult]) -> None:
    """Adds results on other data to a card."""
    card = ModelCard.load(path)
    table = "On other data, times 100:\n\n| Data | Split | Metric | Value |\n|---|---|---|--:|\n"
    for result in results:
        name, kind = result.dataset_name, result.dataset_type
        data = name if kind == "custom" else f"[{name}](https://huggingface.co/datasets/{kind})"
        value = f"{100 * result.metric_value:.2f}"
        table += f"| {data} | {result.dataset_split or '-'} | {result.metric_name} | {value} |\n"
    link = "[How these numbers were measured]"
    card.text = card.text.replace(link, f"{table}\n{link}")
    card.data.eval_results += results
    card.save(path)


def fit_head(model: DseForSequenceClassification, tokenizer, pairs) -> None:
    """Fits scale and bias to the labels of pairs, because the scores of rankings have no known scale."""
    encoder = to_sentence_transformer(model, tokenizer)
    texts = (pairs[name][:] for name in ("sentence1", "sentence2"))
    first, second = (encoder.encode(part, normalize_embeddings=True, show_progress_bar=True) for part in texts)
    scale, bias = np.polyfit((first * second).sum(axis=1), pairs["label"][:], 1)
    model.similarity.calibrate(scale, bias)


def main() -> None:
    data, out, checkpoint = map(Path, sys.argv[1:4])
    student = out / (sys.argv[4] if len(sys.argv) > 4 else "whitened")
    # Trained without dropout; who trains it further may want it, but for attention, where it is slow on a CPU.
    config = AutoConfig.from_pretrained(student)
    set_dropout(config.encoder, 0.1)
    model = DseForSequenceClassification.from_pretrained(student, config=config)
    tokenizer = AutoTokenizer.from_pretrained(student)
    splits = load_pairs(DataArguments(task_name="stsb", dataset_name=str(data / "stsb")))
    # Evaluate the stored weights: rounded to bfloat16, used in float32.
    model.to(torch.bfloat16).float()
    fit_head(model, tokenizer, splits.pop("train"))
    model.to(torch.bfloat16).float()

    metrics = {}
    for split, pairs in splits.items():
        metrics[split] = evaluate(model, pairs, tokenizer, task_name="stsb", max_length=MAX_LENGTH)
    embedded = load_pairs(DataArguments(dataset_name="embedded"))["test"]
    scores = evaluate(model, embedded, tokenizer, task_name="stsb", max_length=MAX_LENGTH)
    recipe = {
        "Version": VERSION,
        "Weights": "bfloat16; begun from the mean of two students, 0.85 of the mean of the middle and the end of the "
        "training, 0.15 of a student of SciFact's training claims alone",
        "Whitening": "to 384 dimensions, power 0.2, by 8,000 of the training's queries, documents and sentences",
        "Texts in training": "up to 128 tokens of pairs, 256 of queries and documents, 512 of SciFact's abstracts",
        "Labelled pairs": "STS-B train, and pairs of STS 2012 to 2016 without a sentence of STS-B validation or test",
        "Unlabelled pairs": "20,000, scored by the teacher: texts of STS, Multi30k, SNLI and MRPC",
        "Queries": "14,000 with mined negatives: SciFact's training claims, questions of SQuAD, QNLI, FairytaleQA and "
        "PubMedQA, titles of RFCs; 5,300 without labels: sentences of Wikipedia and SciFact's abstracts, titles",
        "Teacher of the queries": "the cosine of all-MiniLM-L6-v2 and BM25 together",
        "Licences of the texts": "CC BY, CC BY-SA, ODC-By, Apache-2.0, MIT and the IETF's, and in part for research "
        "only (MRPC, captions of Flickr30k)",
        "Machine": describe_machine(),
        "Embedded pairs of hf-dse, test, Pearson": round(100 * scores["pearson"], 2),
        "Embedded pairs of hf-dse, test, Spearman": round(100 * scores["spearman"], 2),
    }
    others = []
    generality = out / "generality.json"
    if generality.is_file():
        source, measured = json.loads(generality.read_text()).values()
        others = [result_of(name, measured[name]) for name in SETS]
        values = ", ".join(f"{name} {100 * source[name]:.2f}" for name in ["STS-B test", *SETS])
        recipe["all-MiniLM-L6-v2 on the same data"] = f"{values} (Spearman of the cosine, nDCG@10)"
    recipe["command"] = "\n".join(COMMANDS)

    export(
        model,
        checkpoint,
        tokenizer,
        metrics=metrics,
        base_model="sentence-transformers/all-MiniLM-L6-v2",
        teacher="all-mpnet-base-v2, fine-tuned on STS-B and STS 2012 to 2016",
        datasets=DATASETS,
        recipe=recipe,
        max_length=MAX_LENGTH,
        license="apache-2.0",
        # From a clone of the repository.
        model_id="checkpoints/dse-minilm-l6",
        # Loaded in float32, because bfloat16 is slow on many CPUs.
        dtype=torch.bfloat16,
        overwrite_output_dir=True,
    )
    if others:
        add_results(checkpoint / "README.md", others)
    print(f"{checkpoint}: {sum(path.stat().st_size for path in checkpoint.iterdir()) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
