# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
A reranker of labelled questions of five kinds: of SQuAD and QNLI and the sentences that answer them, of FairytaleQA
and the sections that do, claims of SciFact and questions of PubMedQA and their abstracts. None is of a split that
students are measured on. An hour on 2 CPU cores with AVX-512 bf16.

    python recipes/reranker/train.py --data DATA --encoder ENCODER --model_name_or_path MPNET --output_dir OUT \\
        --bf16 true --use_cpu true

ENCODER finds the negatives together with BM25, MPNET is what the reranker starts from. OUT gets `train.json`, the
questions with a relevant text and others, and the reranker. `--resume_from_checkpoint true` goes on with a training.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from datasets import Dataset, DatasetDict
from sentence_transformers import CrossEncoder, CrossEncoderTrainer, CrossEncoderTrainingArguments
from sentence_transformers.cross_encoder.losses import ListNetLoss
from transformers import HfArgumentParser, set_seed

from hf_dse import Index, to_sentence_transformer


sys.path.insert(0, str(Path(__file__).parents[2] / "studies"))
from generality import is_held_out  # noqa: E402


# Texts with their documents, and questions with the rows of texts that answer them.
Collection = tuple[list[str], list[str], list[tuple[str, list[int]]]]
# Questions that are learned, and their negatives: fewer where texts are long.
SIZES = {"squad": (1600, 3), "qnli": (800, 3), "fairytaleqa": (500, 2), "scifact": (400, 2), "pubmedqa": (150, 2)}
# Negatives are drawn from the first ranks.
RANGE = 30


@dataclass
class RerankerArguments:
    """What to learn from, and what to begin with."""

    data: Path
    encoder: str
    model_name_or_path: str
    max_length: int = 256


def read_sets(data: Path) -> Iterator[tuple[str, Collection]]:
    """The sets by name. A document has one text, or is a fairy tale with its sections."""
    pairs = pd.read_parquet(data / "squad_sent" / "train.parquet").drop_duplicates(["question", "sentence"])
    # The questions of studies/label_budget.py, in its order: the first are for the teacher.
    is_test = pairs["sentence"].map(is_held_out)
    learned = pairs[~is_test & ~pairs["question"].isin(pairs["question"][is_test])]
    yield "squad", answered(pairs["sentence"], learned["question"], learned["sentence"])
    pairs = pd.read_parquet(data / "qnli" / "validation.parquet")
    yield "qnli", answered(pairs["sentence"], *pairs.loc[pairs["label"] == 0, ["question", "sentence"]].to_numpy().T)
    tales = pd.read_parquet(data / "fairytaleqa" / "docs.parquet").query("split == 'train'")
    sections = tales.assign(section=tales["text"].str.split("\n\n")).explode("section", ignore_index=True)
    first = sections.drop_duplicates("doc_id")["doc_id"].reset_index().set_index("doc_id")["index"]
    asked = pd.read_parquet(data / "fairytaleqa" / "queries.parquet").query("split == 'train'")
    found = [
        (row.question, [int(first[row.doc_id]) + int(number) - 1 for number in row.section.split(",")])
        for row in asked.drop_duplicates("question", keep=False).itertuples()
    ]
    yield "fairytaleqa", (sections["section"].tolist(), sections["doc_id"].tolist(), found)
    corpus = pd.read_parquet(data / "scifact" / "corpus.parquet")
    texts, row_of = (corpus["title"] + " " + corpus["text"]).tolist(), {x: n for n, x in enumerate(corpus["doc_id"])}
    relevant = pd.read_parquet(data / "scifact" / "qrels_train.parquet").groupby("query_id")["doc_id"].agg(list)
    claims = pd.read_parquet(data / "scifact" / "queries_train.parquet")
    found = [(row.query, [row_of[x] for x in relevant[row.query_id]]) for row in claims.itertuples()]
    yield "scifact", (texts, list(map(str, range(len(texts)))), found)
    pairs = pd.read_parquet(data / "pubmedqa" / "pairs.parquet")
    learned = pairs[pairs["split"] == "train"]
    yield "pubmedqa", answered(pairs["abstract"], learned["question"], learned["abstract"])


def answered(texts: pd.Series, questions: pd.Series, answers: pd.Series) -> Collection:
    unique = list(dict.fromkeys(texts))
    row_of = {text: row for row, text in enumerate(unique)}
    found: dict[str, list[int]] = {}
    for question, answer in zip(questions, answers, strict=True):
        found.setdefault(question, []).append(row_of[answer])
    return unique, list(map(str, range(len(unique)))), list(found.items())


def draw(name: str, collection: Collection, encoder: str, generator: np.random.Generator) -> list[dict]:
    """Questions of a set, each with one relevant text and others of other documents that the search finds."""
    texts, documents, questions = collection
    number, num_negatives = SIZES[name]
    # The first of SQuAD, because the students learn the others.
    order = range(len(questions)) if name == "squad" else generator.permutation(len(questions))
    chosen = [questions[row] for row in order[:number]]
    # The first tokens are enough to find negatives.
    model = to_sentence_transformer(encoder, max_length=128)
    hits = Index(model, texts).search([question for question, _ in chosen], top_k=3 * RANGE, bm25_weight=0.3)
    rows = []
    for (question, relevant), found in zip(chosen, hits, strict=True):
        own = {documents[row] for row in relevant}
        others = [hit["row"] for hit in found if documents[hit["row"]] not in own][:RANGE]
        negatives = generator.choice(others, num_negatives, replace=False)
        read = [texts[row] for row in (relevant[0], *negatives)]
        # The softmax of the labels is 1 for the relevant text.
        rows.append({"query": question, "documents": read, "labels": [100.0] + [0.0] * num_negatives})
    return rows


def main() -> None:
    parser = HfArgumentParser([RerankerArguments, CrossEncoderTrainingArguments])
    parser.set_defaults(learning_rate=3e-5, warmup_steps=0.1, per_device_train_batch_size=8, num_train_epochs=1)
    # A batch is of one set, so that its texts are about equally long.
    parser.set_defaults(
        multi_dataset_batch_sampler="proportional", save_steps=50, save_total_limit=1, logging_steps=10
    )
    args, training_args = parser.parse_args_into_dataclasses()
    set_seed(training_args.seed)
    file = Path(training_args.output_dir) / "train.json"
    if not file.exists():
        generator = np.random.default_rng(training_args.seed)
        drawn = {name: draw(name, found, args.encoder, generator) for name, found in read_sets(args.data)}
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(drawn))
    train = DatasetDict({name: Dataset.from_list(rows) for name, rows in json.loads(file.read_text()).items()})
    model = CrossEncoder(args.model_name_or_path, num_labels=1, max_length=args.max_length)
    # Scores are raw logits, from which students learn.
    model.activation_fn = torch.nn.Identity()
    trainer = CrossEncoderTrainer(model=model, args=training_args, train_dataset=train, loss=ListNetLoss(model))
    # The option is a text, `true` or a folder.
    resume = training_args.resume_from_checkpoint
    trainer.train(resume_from_checkpoint=resume in ("true", "True") or resume)
    model.save_pretrained(training_args.output_dir)


if __name__ == "__main__":
    main()
