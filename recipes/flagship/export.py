# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Merges the students of recipes/flagship/run.sh, evaluates the result and exports it with a model card.

    python recipes/flagship/export.py DATA OUT CHECKPOINT
"""

import json
import sys
from pathlib import Path

import torch
from transformers import AutoTokenizer

from hf_dse import DataArguments, DseForSequenceClassification, evaluate_model, export_model, load_pairs, merge_models
from hf_dse.common.provenance import describe_machine
from hf_dse.data.tasks import EMBEDDED


STUDENTS = [f"student-{seed}" for seed in (42, 43, 44)]
MAX_LENGTH = 256


def main() -> None:
    data, out, checkpoint = map(Path, sys.argv[1:4])
    folders = [out / name / "model" for name in STUDENTS]
    model = merge_models([DseForSequenceClassification.from_pretrained(folder) for folder in folders])
    # Evaluate the stored weights: rounded to bfloat16, used in float32.
    model.to(torch.bfloat16).float()
    tokenizer = AutoTokenizer.from_pretrained(folders[0])

    metrics = {}
    for split, pairs in load_pairs(DataArguments(task_name="stsb", dataset_name=str(data / "stsb"))).items():
        if split != "train":
            metrics[split] = evaluate_model(model, tokenizer, pairs, task="stsb", max_length=MAX_LENGTH)
    embedded = load_pairs(DataArguments(dataset_name=EMBEDDED))["test"]
    scores = evaluate_model(model, tokenizer, embedded, task="stsb", max_length=MAX_LENGTH)
    recipe = {
        "Weights": f"mean of {len(STUDENTS)} students, bfloat16",
        "Labelled pairs": "STS-B train, and pairs of STS 2012 to 2016 without a sentence of STS-B validation or test",
        "Similarities kept": "those of all-MiniLM-L6-v2 between the sentences of different pairs",
        "Unlabelled pairs": "20,000, scored by the teacher: texts of STS, Multi30k, SNLI and MRPC",
        "Licences of the texts": "CC BY-SA, and in part for research only (MRPC, captions of Flickr30k)",
        "Machine": describe_machine(),
        "Embedded pairs of hf-dse, test, Pearson": round(100 * scores["pearson"], 2),
        "Embedded pairs of hf-dse, test, Spearman": round(100 * scores["spearman"], 2),
    }
    generality = out / "generality.json"
    if generality.is_file():
        source, student = json.loads(generality.read_text()).values()
        for name in ("SICK validation", "SciFact nDCG@10"):
            recipe[f"{name} (all-MiniLM-L6-v2)"] = f"{100 * student[name]:.2f} ({100 * source[name]:.2f})"
    recipe["command"] = "recipes/flagship/run.sh DATA"

    # Stored in bfloat16 but loaded in float32, because bfloat16 is slow on many CPUs.
    model.to(torch.bfloat16)
    export_model(
        model,
        tokenizer,
        checkpoint,
        metrics=metrics,
        base_model="sentence-transformers/all-MiniLM-L6-v2",
        teacher="all-mpnet-base-v2, fine-tuned on STS-B and STS 2012 to 2016",
        datasets=["stsb"],
        recipe=recipe,
        max_length=MAX_LENGTH,
        license="apache-2.0",
        overwrite=True,
    )
    config = checkpoint / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"dtype": "float32"}, indent=2) + "\n")
    print(f"{checkpoint}: {sum(path.stat().st_size for path in checkpoint.iterdir()) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
