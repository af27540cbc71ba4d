# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Time and memory of large inputs: random words, and a model of one small layer, so that what is measured is all but
the model.

    python studies/load.py encode --size 1000000        # short texts in a table, to an index
    python studies/load.py folder --size 50000          # files in a folder, to an index
    python studies/load.py search --size 5000000        # vectors of an index, 100 queries
    python studies/load.py cache --size 5000000         # pairs in a cache of scores
    python studies/load.py pairs --size 1000000         # pairs of sentences: reading, and one step of training
    python studies/load.py mine --size 100000           # queries, and as many documents
    python studies/load.py mine-words --size 100000     # the same with BM25 too

Files are written to `--folder`, by default a temporary one.
"""

import argparse
import itertools
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from torch.nn.modules.module import register_module_forward_hook
from transformers import PreTrainedTokenizerFast

from hf_dse import (
    DataArguments,
    DseConfig,
    DseModel,
    DseTrainer,
    DseTrainingArguments,
    load_pairs,
    make_pair_model,
    make_rankings,
    mine_candidates,
)
from hf_dse.inference.index import write_index
from hf_dse.teacher.cache import open_cache
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


@contextmanager
def rates() -> Iterator[None]:
    """Says how many texts a second the model reads in each tenth, by the clock and by the time of the processor."""
    steps = []

    def note(module: torch.nn.Module, args: object, outputs: object) -> None:
        if isinstance(module, DseModel):
            steps.append((len(outputs.pooler_output), time.perf_counter(), time.process_time()))  # type: ignore

    hook = register_module_forward_hook(note)
    yield
    hook.remove()
    rows, clock, processor = np.array(steps).T
    ends = np.linspace(0, len(steps) - 1, 11).astype(int)
    for name, seconds in (("the clock", clock), ("processor time", processor)):
        found = [rows[a + 1 : b + 1].sum() / (seconds[b] - seconds[a]) for a, b in itertools.pairwise(ends)]
        print(f"texts a second of {name}, by tenths:", *(f"{rate:,.0f}" for rate in found), flush=True)


def make_texts(number: int, num_words: int, seed: int = 0) -> list[str]:
    rows = np.random.default_rng(seed).integers(0, len(WORDS), (number, num_words))
    return [" ".join(WORDS[word] for word in row) for row in rows]


def make_tokenizer() -> PreTrainedTokenizerFast:
    vocab = {word: number for number, word in enumerate(["[PAD]", "[UNK]", *WORDS])}
    backend = Tokenizer(WordLevel(vocab, unk_token="[UNK]"))
    backend.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]", model_max_length=128
    )


def make_model(folder: Path) -> str:
    """A model that computes little."""
    torch.manual_seed(0)
    config = DseConfig(
        vocab_size=len(WORDS) + 2,
        hidden_size=16,
        projection_dim=EMBEDDING_SIZE,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=16,
        max_position_embeddings=128,
    )
    make_pair_model(DseModel(config)).save_pretrained(folder / "model")
    make_tokenizer().save_pretrained(folder / "model")
    return str(folder / "model")


def encode(folder: Path, size: int) -> None:
    model = make_model(folder)
    # Tables are read whole; so the texts of this script must not count.
    with pyarrow.parquet.ParquetWriter(folder / "texts.parquet", pyarrow.schema({"text": pyarrow.string()})) as writer:
        for start in range(0, size, 100_000):
            writer.write_table(pyarrow.table({"text": make_texts(min(100_000, size - start), 12, start)}))
    with measured(f"{size:,} texts encoded"), rates():
        encode_command(model, folder / "texts.parquet", folder / "index.parquet")


def encode_command(model: str, source: Path, output: Path) -> None:
    argv = ["--model_name_or_path", model, "--input", str(source), "--output", str(output), "--batch_size", "256"]
    assert command(["encode", *argv]) in (0, None)


def folder_of_files(folder: Path, size: int) -> None:
    model = make_model(folder)
    (folder / "texts").mkdir()
    for number, text in enumerate(make_texts(size, 100)):
        (folder / "texts" / f"{number}.txt").write_text(text)
    with measured(f"{size:,} files encoded"), rates():
        encode_command(model, folder / "texts", folder / "index.parquet")


def search(folder: Path, size: int) -> None:
    from hf_dse.inference.index import read_corpus
    from hf_dse.inference.search import rank

    settings = {"model": "random", "normalize": False, "columns": ["text"]}
    generator = np.random.default_rng(0)
    (folder / "index").mkdir()
    for start in range(0, size, 500_000):
        number = min(500_000, size - start)
        vectors = generator.standard_normal((number, EMBEDDING_SIZE), dtype=np.float32)
        columns = {"text": [f"text {row}" for row in range(start, start + number)]}
        with (folder / "index" / f"{start:08}.parquet").open("wb") as file:
            write_index(file, columns, vectors, settings)
    print(f"the vectors have {size * EMBEDDING_SIZE * 4 / 2**30:.2f} GB")
    with measured(f"index of {size:,} vectors read"):
        _, corpus, _ = read_corpus(str(folder / "index"), "text")
    assert corpus is not None
    queries = generator.standard_normal((100, EMBEDDING_SIZE), dtype=np.float32)
    with measured("1 query"):
        rank(queries[:1], corpus, show_progress=False)
    with measured("100 queries"):
        rank(queries, corpus, show_progress=False)


def cache(folder: Path, size: int) -> None:
    teacher = "random numbers"
    with measured(f"{size:,} scores written"), open_cache(folder, teacher, 1) as scores:
        for start in range(0, size, 10_000):
            scores.write({(f"text {row}", f"other {row}"): [row / size] for row in range(start, start + 10_000)}, 128)
    print(f"the file has {(folder / f'{teacher}.sqlite').stat().st_size / 2**30:.2f} GB")
    with measured("opened"), open_cache(folder, teacher, 1):
        pass
    with open_cache(folder, teacher, 1) as scores, measured("10,000 pairs looked up"):
        rows = np.random.default_rng(0).integers(0, size, 10_000)
        found = scores.read([(f"text {row}", f"other {row}") for row in rows], 128)
    assert len(found) == len(set(rows.tolist()))


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
        trainer = DseTrainer(model=make_model(folder), args=args, train_dataset=train)
        trainer.train()


def mine(folder: Path, size: int, bm25: bool = False) -> None:
    generator = np.random.default_rng(0)
    queries = {
        "query": make_texts(size, 5, seed=1),
        "documents": generator.integers(0, size, (size, 1)).tolist(),
        "labels": [[1.0]] * size,
    }
    rankings = make_rankings(queries, {"text": make_texts(size, 20)})
    model = DseModel.from_pretrained(make_model(folder))
    print(f"the embeddings have {2 * size * EMBEDDING_SIZE * 4 / 2**30:.2f} GB")
    with measured(f"negatives of {size:,} queries mined"):
        mine_candidates(rankings, model, make_tokenizer(), relative_margin=0.0, batch_size=256, bm25=bm25)


LOADS: dict[str, Callable[[Path, int], None]] = {
    "encode": encode,
    "folder": folder_of_files,
    "search": search,
    "cache": cache,
    "pairs": pairs,
    "mine": mine,
    "mine-words": partial(mine, bm25=True),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=list(LOADS))
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--folder", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        LOADS[args.what](Path(folder), args.size)


if __name__ == "__main__":
    main()
