# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Time and memory of large inputs: random words, and a model of one small layer, so that all but the model is measured.

    python benchmarks/load.py encode --size 1000000        # short texts in a table, to their vectors
    python benchmarks/load.py folder --size 50000          # files in a folder, to its index
    python benchmarks/load.py search --size 5000000        # vectors, 100 queries
    python benchmarks/load.py cache --size 5000000         # pairs in a cache of scores
    python benchmarks/load.py pairs --size 1000000         # pairs of sentences: reading, and one step of training
    python benchmarks/load.py mine --size 100000           # negatives of as many queries as documents, also with BM25

Files are written to `--folder`, by default a temporary one.
"""

import argparse
import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import BertConfig, PreTrainedTokenizerFast

from hf_dse import (
    DataArguments,
    DseConfig,
    DseModel,
    DseTrainer,
    DseTrainingArguments,
    load_pairs,
    make_pair_model,
    make_rankings,
    mine,
)
from hf_dse.common.cache import key_of, open_cache
from hf_dse.retrieval.search import nearest
from hf_dse.retrieval.sentence_transformer import load_sentence_transformer
from hf_dse_cli import main as command


WORDS = [f"word{number}" for number in range(20_000)]
EMBEDDING_SIZE = 384


def peak() -> float:
    """Largest memory of this process so far in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


@contextmanager
def measured(what: str) -> Iterator[None]:
    before, start, processor = peak(), time.perf_counter(), time.process_time()
    yield
    seconds, processor = time.perf_counter() - start, time.process_time() - processor
    print(f"{what}: {seconds:,.1f} s, {processor:,.1f} s of processor time, ", end="")
    print(f"peak memory {peak():.2f} GB, {before:.2f} GB before", flush=True)


def make_texts(number: int, num_words: int, seed: int = 0) -> list[str]:
    rows = np.random.default_rng(seed).integers(0, len(WORDS), (number, num_words))
    return [" ".join(WORDS[word] for word in row) for row in rows]


def make_model(folder: Path) -> str:
    """A model that computes little."""
    torch.manual_seed(0)
    encoder = BertConfig(
        vocab_size=len(WORDS) + 2,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=16,
        max_position_embeddings=128,
    )
    make_pair_model(DseModel(DseConfig(encoder=encoder, projection_dim=EMBEDDING_SIZE))).save_pretrained(
        folder / "model"
    )
    backend = Tokenizer(
        WordLevel({word: number for number, word in enumerate(["[PAD]", "[UNK]", *WORDS])}, unk_token="[UNK]")
    )
    backend.pre_tokenizer = Whitespace()
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=128, **special)
    tokenizer.save_pretrained(folder / "model")
    return str(folder / "model")


def run(*argv: object) -> None:
    code = command([str(word) for word in argv])
    if code:
        raise SystemExit(code)


def encode(folder: Path, size: int) -> None:
    model = make_model(folder)
    # Tables are read whole; so the texts of this script must not count.
    with pyarrow.parquet.ParquetWriter(folder / "texts.parquet", pyarrow.schema({"text": pyarrow.string()})) as writer:
        for start in range(0, size, 100_000):
            writer.write_table(pyarrow.table({"text": make_texts(min(100_000, size - start), 12, start)}))
    options = ("--model_name_or_path", model, "--batch_size", 256)
    with measured(f"{size:,} texts encoded"):
        run("encode", *options, "--input", folder / "texts.parquet", "--output", folder / "vectors.parquet")


def folder_of_files(folder: Path, size: int) -> None:
    model = make_model(folder)
    (folder / "texts").mkdir()
    for number, text in enumerate(make_texts(size, 100)):
        (folder / "texts" / f"{number}.txt").write_text(text)
    options = ("--model_name_or_path", model, "--corpus", folder / "texts", "--index_dir", folder / "index")
    for what in ("indexed", "searched again"):
        with measured(f"{size:,} files {what}"):
            run("search", *options, "--query", "word1 word2")


def search(folder: Path, size: int) -> None:
    generator = np.random.default_rng(0)
    corpus = generator.standard_normal((size, EMBEDDING_SIZE), dtype=np.float32)
    queries = generator.standard_normal((100, EMBEDDING_SIZE), dtype=np.float32)
    print(f"the vectors have {corpus.nbytes / 2**30:.2f} GB")
    with measured("1 query"):
        nearest(queries[:1], corpus, 10)
    with measured("100 queries"):
        nearest(queries, corpus, 10)


def cache(folder: Path, size: int) -> None:
    path = folder / "scores.sqlite"
    with measured(f"{size:,} scores written"), open_cache(path) as scores:
        for start in range(0, size, 10_000):
            rows = range(start, min(start + 10_000, size))
            values = {key_of([f"text {row}", f"other {row}"]): np.float64(row / size).tobytes() for row in rows}
            scores.write(values)
    print(f"the file has {sum(file.stat().st_size for file in folder.iterdir()) / 2**30:.2f} GB")
    with open_cache(path) as scores, measured("10,000 pairs looked up"):
        rows = np.random.default_rng(0).integers(0, size, 10_000).tolist()
        keys = [key_of([f"text {row}", f"other {row}"]) for row in rows]
        found = dict(scores.read(keys))
    print(f"{sum(key in found for key in keys):,} of {len(keys):,} pairs found")


def pairs(folder: Path, size: int) -> None:
    columns = {"sentence1": make_texts(size, 12), "sentence2": make_texts(size, 12, seed=1)}
    labels = np.random.default_rng(0).random(size)
    pyarrow.parquet.write_table(pyarrow.table({**columns, "label": labels}), folder / "train.parquet")
    del columns
    with measured(f"{size:,} pairs read and checked"):
        train = load_pairs(DataArguments(train_file=str(folder / "train.parquet"), num_labels=1))["train"]
    args = DseTrainingArguments(
        str(folder / "out"), max_steps=1, distillation_alpha=0, save_strategy="no", report_to="none", use_cpu=True
    )
    with measured("first step"):
        name = make_model(folder)
        model = make_pair_model(DseModel.from_pretrained(name), num_labels=1)
        trainer = DseTrainer(model=model, args=args, train_dataset=train, processing_class=name)
        trainer.train()


def mining(folder: Path, size: int) -> None:
    generator = np.random.default_rng(0)
    queries = {
        "query": make_texts(size, 5, seed=1),
        "documents": generator.integers(0, size, (size, 1)).tolist(),
        "labels": [[1.0]] * size,
    }
    rankings = make_rankings(queries, {"text": make_texts(size, 20)})
    encoder = load_sentence_transformer(make_model(folder))
    print(f"the embeddings have {2 * size * EMBEDDING_SIZE * 4 / 2**30:.2f} GB")
    for bm25 in (False, True):
        with measured(f"negatives of {size:,} queries mined{' with BM25' * bm25}"):
            mine(rankings, encoder, relative_margin=0.0, batch_size=256, bm25=bm25)


LOADS: dict[str, Callable[[Path, int], None]] = {
    "encode": encode,
    "folder": folder_of_files,
    "search": search,
    "cache": cache,
    "pairs": pairs,
    "mine": mining,
}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=list(LOADS))
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--folder", type=Path)
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        LOADS[args.what](Path(folder), args.size)


if __name__ == "__main__":
    main()
