# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
hf-dse with its default options against what a user would write with sentence-transformers, bm25s, faiss, ONNX Runtime
and OpenVINO, with the same weights and texts, side by side in one process.

    python benchmarks/race.py DATA ENCODER [--model checkpoints/dse-minilm-l6] [--parts encode score train search]

- encode: texts a second by a student.
- score: pairs a second by a cross-encoder of ENCODER's size, whose head is random.
- train: rows a second, with the same loss, batch size and precision; the student has softmax attention.
- search: queries a second in 100,000 random vectors, or in as many texts of 20 random words.

All contestants take turns in each round; the medians of `--rounds` count. In brackets the ratio of hf-dse to each.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
import torch
from cpu_race import LIMIT, LONGEST, read_texts
from datasets import Dataset
from index import make_texts
from sentence_transformers import CrossEncoder, SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers import SentenceTransformerTrainingArguments as TheirArguments
from sentence_transformers.sentence_transformer import losses
from timing import interleave, make_parser, set_threads
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from hf_dse import (
    DseTrainer,
    DseTrainingArguments,
    RankingTrainer,
    RankingTrainingArguments,
    convert_encoder,
    export,
    load_rankings,
    load_reranker,
    make_pair_model,
    make_rankings,
    split_text,
    to_sentence_transformer,
)
from hf_dse.common.display import markdown
from hf_dse.common.provenance import describe_machine
from hf_dse.retrieval.bm25 import Words
from hf_dse.retrieval.rerankers import rerank
from hf_dse.retrieval.search import nearest
from hf_dse.retrieval.sentence_transformer import embed


OURS, THEIRS, THEIRS_BFLOAT16 = "hf-dse", "sentence-transformers", "sentence-transformers, bfloat16"
OURS_FLOAT32 = "hf-dse, float32"
BACKEND, BACKENDS = ", --backend ", ("onnx", "openvino")
# How many texts of each kind.
KINDS = {"sentences": 300, "abstracts": 40, "passages": 100, "2,000": 6, "8,000": 2}
TOKENS_OF_PASSAGE = 128
NUM_PAIRS = {"sentences": 200, "abstracts": 24}
NUM_STEPS, BATCH_SIZES = 6, {"pairs": 32, "rankings": 16}
NUM_TEXTS, WORDS_OF_TEXT, TOP_K = 100_000, 20, 10

Tasks = Mapping[str, Callable[[], Any]]


def encode(args: argparse.Namespace, kind: str) -> tuple[int, Tasks]:
    """The number of texts, and how each contestant embeds them."""
    tokenizer = AutoTokenizer.from_pretrained(args.encoder)
    tokenizer.model_max_length = LONGEST
    if kind == "passages":
        bodies = pd.read_parquet(args.data / "longwiki" / "docs.parquet")["body"][: KINDS[kind]]
        texts = [split_text(body, tokenizer, TOKENS_OF_PASSAGE)[0] for body in bodies]
    else:
        texts = read_texts(args.data, kind, tokenizer)[: KINDS[kind]]
    longest = LONGEST if kind in ("2,000", "8,000") else LIMIT
    tasks: dict[str, Callable[[], Any]] = {}
    for name, dtype in ((OURS, "auto"), (OURS_FLOAT32, "float32")):
        model = to_sentence_transformer(args.model, dtype=dtype, max_length=longest)
        tasks[name] = partial(embed, model, texts, warn=False, show_progress=False)
    for name, dtype in ((THEIRS, "float32"), (THEIRS_BFLOAT16, "bfloat16")):
        loaded = SentenceTransformer(args.model, trust_remote_code=True, model_kwargs={"dtype": dtype}, device="cpu")
        loaded.max_seq_length = longest
        tasks[name] = partial(loaded.encode, texts, show_progress_bar=False)
    for backend in BACKENDS:
        model = to_sentence_transformer(args.model, dtype="auto", max_length=longest, backend=backend)
        tasks[OURS + BACKEND + backend] = partial(embed, model, texts, warn=False, show_progress=False)
    return len(texts), tasks


def claims_of(data: Path) -> tuple[list[str], list[str]]:
    """Claims of SciFact, and for each an abstract that is relevant."""
    rankings = load_rankings(data / "scifact", ["train"])["train"]
    rows = [positives[0] for positives in rankings.positives()]
    return rankings.queries["query"][:], rankings.corpus.select(rows)["text"][:]


def score(args: argparse.Namespace, kind: str) -> tuple[int, Tasks]:
    """The number of pairs, and how each contestant scores them."""
    number = NUM_PAIRS[kind]
    if kind == "sentences":
        pairs = pd.read_parquet(args.data / "stsb" / "test.parquet")[:number]
        first, second = pairs["sentence1"].tolist(), pairs["sentence2"].tolist()
    else:
        first, second = (texts[:number] for texts in claims_of(args.data))
    folder = args.folder / "cross-encoder"
    if not folder.exists():
        torch.manual_seed(0)
        AutoModelForSequenceClassification.from_pretrained(args.encoder, num_labels=1).save_pretrained(folder)
        AutoTokenizer.from_pretrained(args.encoder, model_max_length=LIMIT).save_pretrained(folder)
    texts, tasks = [[text] for text in second], {}
    kinds = {OURS: {}, OURS_FLOAT32: {"dtype": "float32"}} | {OURS + BACKEND + of: {"backend": of} for of in BACKENDS}
    for name, options in kinds.items():
        model = load_reranker(folder, **options)
        tasks[name] = partial(rerank, model, first, texts, windows="first", show_progress=False)
    for name, dtype in ((THEIRS, "float32"), (THEIRS_BFLOAT16, "bfloat16")):
        loaded = CrossEncoder(str(folder), device="cpu", model_kwargs={"dtype": dtype})
        tasks[name] = partial(loaded.predict, list(zip(first, second, strict=True)), show_progress_bar=False)
    return number, tasks


def train(args: argparse.Namespace, kind: str) -> tuple[int, Tasks]:
    """The number of rows, and how each contestant learns from them."""
    number, tasks = NUM_STEPS * BATCH_SIZES[kind], {}
    folder = Path(tempfile.mkdtemp())
    shared = {"output_dir": str(folder / "training"), "num_train_epochs": 1}
    shared["per_device_train_batch_size"] = BATCH_SIZES[kind]
    shared |= {"save_strategy": "no", "report_to": "none", "use_cpu": True, "disable_tqdm": True, "seed": 42}
    student = convert_encoder(args.encoder, layer_types="full_attention")
    tokenizer = AutoTokenizer.from_pretrained(args.encoder)
    saved = str(export(student, folder / "student", tokenizer, max_length=128))
    if kind == "pairs":
        rows = Dataset.from_parquet(str(args.data / "stsb" / "train.parquet")).select(range(number))
        columns = {side: rows[side][:] for side in ("sentence1", "sentence2")}
        labels = np.array(rows["label"][:])
        ours: Any = Dataset.from_dict({**columns, "label": labels})
        theirs = Dataset.from_dict({**columns, "score": labels / labels.max()})
        trainer, loss = DseTrainer, losses.CosineSimilarityLoss
        arguments = partial(DseTrainingArguments, max_length=128, distillation_alpha=0.0)
    else:
        queries, documents = (texts[:number] for texts in claims_of(args.data))
        places = {text: row for row, text in enumerate(dict.fromkeys(documents))}
        lists = {"documents": [[places[text]] for text in documents], "labels": [[1]] * len(queries)}
        ours = make_rankings({"query": queries, **lists}, {"text": list(places)})
        theirs = Dataset.from_dict({"anchor": queries, "positive": documents})
        trainer, loss = RankingTrainer, losses.MultipleNegativesRankingLoss
        arguments = partial(RankingTrainingArguments, max_length=128, num_candidates=2)
    for name, bf16 in (("", False), (", bfloat16", True)):
        model = make_pair_model(student, num_labels=1, problem_type="regression")
        tasks[OURS + name] = trainer(model, arguments(**shared, bf16=bf16), ours, None, tokenizer).train
        other = SentenceTransformer(saved, trust_remote_code=True, device="cpu")
        options = TheirArguments(**shared, bf16=bf16)
        tasks[THEIRS + name] = SentenceTransformerTrainer(
            model=other, args=options, train_dataset=theirs, loss=loss(other)
        ).train
    return number, tasks


def time_steps(tasks: Tasks, rounds: int) -> dict[str, list[float]]:
    """The seconds of the steps of trainings, in turn, without what is done once before them."""
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(rounds):
        for name, task in tasks.items():
            # A Trainer prints its log.
            with redirect_stdout(sys.stderr):
                seconds[name].append(task().metrics["train_runtime"])
    return seconds


def search(args: argparse.Namespace, kind: str) -> tuple[int, Tasks]:
    """The number of queries, and how each contestant finds the best texts."""
    import bm25s
    import faiss
    from Stemmer import Stemmer

    rng = np.random.default_rng(0)
    if kind.startswith("vectors"):
        number = 1 if kind.endswith("one") else 100
        vectors = rng.standard_normal((NUM_TEXTS, 384), np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        queries, index = vectors[:number] + 0.01, faiss.IndexFlatIP(384)
        faiss.omp_set_num_threads(args.threads)
        index.add(vectors)
        return number, {
            OURS: partial(nearest, queries, vectors, TOP_K),
            "numpy": lambda: np.argpartition(queries @ vectors.T, -TOP_K, axis=1)[:, -TOP_K:],
            "faiss, flat": partial(index.search, queries, TOP_K),
        }
    words = [f"word{chr(97 + n % 26)}{chr(97 + n // 26 % 26)}{n}" for n in range(20_000)]
    texts = make_texts(words, NUM_TEXTS, WORDS_OF_TEXT, seed=0)
    queries = [" ".join(text.split()[:6]) for text in texts[:100]]
    ours, stemmer, theirs = Words(texts), Stemmer("english"), bm25s.BM25()
    theirs.index(bm25s.tokenize(texts, stopwords="en", stemmer=stemmer, show_progress=False), show_progress=False)

    def find() -> None:
        scores = ours.scores(queries)
        for row in range(len(queries)):
            np.argpartition(scores(slice(row, row + 1))[0], -TOP_K)

    def find_theirs() -> None:
        tokens = bm25s.tokenize(queries, stopwords="en", stemmer=stemmer, show_progress=False)
        theirs.retrieve(tokens, k=TOP_K, show_progress=False)

    return len(queries), {OURS: find, "bm25s": find_theirs}


PARTS: dict[str, tuple[Callable[[argparse.Namespace, str], tuple[int, Tasks]], tuple[str, ...]]] = {
    "encode": (encode, tuple(KINDS)),
    "score": (score, tuple(NUM_PAIRS)),
    "train": (train, ("pairs", "rankings")),
    "search": (search, ("vectors, one", "vectors", "words")),
}


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("encoder", help="A folder or Hub id.")
    parser.add_argument("--model", default=str(Path(__file__).parents[1] / "checkpoints" / "dse-minilm-l6"))
    parser.add_argument("--folder", type=Path, default=Path("race"), help="For the cross-encoder.")
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    set_threads(args.threads)
    args.threads = torch.get_num_threads()
    print(f"{describe_machine()}, {args.threads} threads, medians of {args.rounds} rounds\n")
    for part in args.parts:
        make, kinds = PARTS[part]
        speeds: dict[str, dict[str, float]] = {}
        for kind in kinds:
            number, tasks = make(args, kind)
            for task in tasks.values():
                task()
            for name, seconds in (time_steps if part == "train" else interleave)(tasks, args.rounds).items():
                speeds.setdefault(name, {})[kind] = number / median(seconds)
        rows = []
        for name, found in speeds.items():
            ours = speeds[OURS + (", bfloat16" if part == "train" and name.endswith("bfloat16") else "")]
            cells = [f"{found[kind]:,.1f} ({ours[kind] / found[kind]:.2f})" if kind in found else "" for kind in kinds]
            rows.append([name, *cells])
        print(markdown([part, *kinds], rows, 1), flush=True)
        print()


if __name__ == "__main__":
    main()
