# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
`hf-dse search` against a plain script of sentence-transformers, bm25s and numpy (below, `Plain`), with the same model,
texts and passages: the first index, the second start, an update of 1 % of the texts, and a query in a running process
with and without BM25. Each step is a process of its own, of which CPU seconds and peak memory are printed: medians of
rounds in which the two take turns.

    python benchmarks/index.py --passages 100000 --encoder tiny       # lines of 20 words
    python benchmarks/index.py --documents 10000 --encoder tiny       # files of 1,000 words, in passages of 128 tokens
    python benchmarks/index.py --passages 100000 --encoder ENCODER    # a folder or Hub id with its own tokenizer

Texts are random words, each a token of the encoder.
"""

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np


WORDS_OF_PASSAGE, WORDS_OF_DOCUMENT, TOKENS = 20, 1000, 128
WEIGHT = 0.3
QUERIES = 50


class Plain:
    """What a user would write: vectors in a .npy file, words in a folder, and hashes that tell what has changed."""

    def __init__(self, encoder: str, corpus: Path, folder: Path):
        import bm25s
        from sentence_transformers import SentenceTransformer
        from Stemmer import Stemmer

        self.bm25s, self.stemmer = bm25s, Stemmer("english")
        self.model = SentenceTransformer(encoder, device="cpu")
        files = sorted(corpus.rglob("*.txt")) if corpus.is_dir() else [corpus]
        texts = [file.read_text() for file in files] if corpus.is_dir() else corpus.read_text().splitlines()
        parts = [self.split(text) if corpus.is_dir() else [text] for text in texts]
        self.passages = [passage for part in parts for passage in part]
        self.groups = np.repeat(np.arange(len(texts)), [len(part) for part in parts])
        self.folder = folder
        folder.mkdir(exist_ok=True)
        keys = [hashlib.sha256(passage.encode()).hexdigest() for passage in self.passages]
        rows: dict[str, int] = {}
        if (folder / "keys.json").exists():
            rows = {key: row for row, key in enumerate(json.loads((folder / "keys.json").read_text()))}
            old = np.load(folder / "vectors.npy")
        if list(rows) == keys:
            self.vectors = old
            self.words = bm25s.BM25.load(folder / "words")
            return
        new = [row for row, key in enumerate(keys) if key not in rows]
        found = self.model.encode(
            [self.passages[row] for row in new], normalize_embeddings=True, show_progress_bar=False
        )
        self.vectors = np.empty((len(keys), found.shape[1]), np.float32)
        self.vectors[new] = found
        kept = [row for row, key in enumerate(keys) if key in rows]
        if kept:
            self.vectors[kept] = old[[rows[keys[row]] for row in kept]]
        self.words = bm25s.BM25()
        self.words.index(self.tokenize(self.passages), show_progress=False)
        np.save(folder / "vectors.npy", self.vectors)
        self.words.save(folder / "words", show_progress=False)
        (folder / "keys.json").write_text(json.dumps(keys))

    @staticmethod
    def split(text: str) -> list[str]:
        words = text.split()
        return [" ".join(words[start : start + TOKENS]) for start in range(0, len(words), TOKENS)]

    def tokenize(self, texts, **options):
        return self.bm25s.tokenize(texts, stopwords="en", stemmer=self.stemmer, show_progress=False, **options)

    def search(self, query: str, weight: float, top_k: int = 10) -> list[int]:
        scores = self.vectors @ self.model.encode_query(query, normalize_embeddings=True, show_progress_bar=False)
        if weight:
            (words,) = self.tokenize([query], return_ids=False)
            added = self.words.get_scores(words)
            scores = scores + weight * added / (added.max() or 1)
        found: dict[int, int] = {}
        for row in np.argsort(-scores)[: 50 * top_k]:
            found.setdefault(int(self.groups[row]), int(row))
        return list(found.values())[:top_k]


def read(corpus: Path) -> list[str]:
    """The texts of a folder or of the lines of a file."""
    if corpus.is_dir():
        return [file.read_text() for file in sorted(corpus.rglob("*.txt"))]
    return corpus.read_text().splitlines()


def work(kind: str, encoder: str, corpus: Path, folder: Path, query: str) -> None:
    """One step in a process of its own: opens the index, and times queries if asked."""
    if kind == "plain":
        index = Plain(encoder, corpus, folder)

        def search(text: str, weight: float) -> object:
            return index.search(text, weight)

    else:
        from hf_dse import Index

        size = TOKENS if corpus.is_dir() else 0
        found = Index(encoder, read(corpus), chunk_size=size, cache_dir=folder, show_progress=False)

        def search(text: str, weight: float) -> object:
            return found.search([text], bm25_weight=weight)

        index = found
    search(query, WEIGHT)
    embed = index.model.encode_query
    milliseconds = {}
    for name, call in (
        ("embedding", lambda: embed(query, show_progress_bar=False)),
        ("query", lambda: search(query, 0.0)),
        ("with BM25", lambda: search(query, WEIGHT)),
    ):
        start = time.perf_counter()
        for _ in range(QUERIES):
            call()
        milliseconds[name] = 1000 * (time.perf_counter() - start) / QUERIES
    print(json.dumps(milliseconds))


def measure(command: list[str]) -> dict[str, float]:
    """CPU seconds, peak memory in GB, and the milliseconds that a command prints in its last line."""
    script = (
        "import json, resource, subprocess, sys\n"
        "done = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)\n"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "last = (done.stdout.strip().splitlines() or ['{}'])[-1] if done.returncode == 0 else done.stderr\n"
        "print(json.dumps([used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20, done.returncode, last]))\n"
    )
    found = subprocess.run([sys.executable, "-c", script, *command], stdout=subprocess.PIPE, text=True, check=True)
    seconds, memory, code, last = json.loads(found.stdout)
    if code:
        raise RuntimeError(f"{' '.join(command)} ended with {code}: {last}")
    return {"cpu": seconds, "gb": memory} | (json.loads(last) if last.startswith("{") else {})


def make_texts(words: list[str], number: int, size: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(row) for row in rng.choice(words, (number, size))]


def make_encoder(folder: Path) -> str:
    """A BERT of one layer with one token for each of its words."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    words = ["[PAD]", "[UNK]", *(f"word{chr(97 + n % 26)}{chr(97 + n // 26 % 26)}{n}" for n in range(20_000))]
    backend = Tokenizer(WordLevel({word: row for row, word in enumerate(words)}, "[UNK]"))
    backend.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]", model_max_length=256
    )
    torch.manual_seed(0)
    sizes = {"hidden_size": 384, "num_hidden_layers": 1, "num_attention_heads": 6, "intermediate_size": 16}
    BertModel(BertConfig(vocab_size=len(words), **sizes)).save_pretrained(folder / "source")
    tokenizer.save_pretrained(folder / "source")
    modules = [Transformer(str(folder / "source"), max_seq_length=256), Pooling(384)]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder / "encoder"))
    return str(folder / "encoder")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, help="Lines of 20 words in one file.")
    parser.add_argument("--documents", type=int, help="Files of 1,000 words.")
    parser.add_argument("--encoder", default="tiny", help="tiny, or a folder or Hub id.")
    parser.add_argument("--kinds", nargs="+", default=["ours", "plain"], choices=["ours", "plain"])
    parser.add_argument("--rounds", type=int, default=3, help="Times that each step but the first index is run.")
    parser.add_argument("--work", nargs=5, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        kind, encoder, corpus, folder, query = args.work
        work(kind, encoder, Path(corpus), Path(folder), query)
        return
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        encoder = make_encoder(root) if args.encoder == "tiny" else args.encoder
        from transformers import AutoTokenizer

        vocabulary = AutoTokenizer.from_pretrained(encoder).get_vocab()
        words = sorted(word for word in vocabulary if len(word) > 3 and word.isalnum() and word.isascii())
        number, size = (args.passages, WORDS_OF_PASSAGE) if args.passages else (args.documents, WORDS_OF_DOCUMENT)
        texts, changed = make_texts(words, number, size, 0), make_texts(words, number // 100, size, 1)
        corpus = root / ("texts.txt" if args.passages else "texts")

        def write(rows: list[str]) -> None:
            if args.passages:
                corpus.write_text("\n".join(rows) + "\n")
                return
            corpus.mkdir(exist_ok=True)
            for row, text in enumerate(rows):
                (corpus / f"{row:06d}.txt").write_text(text)

        query = " ".join(texts[0].split()[:8])
        print(f"{number:,} texts of {size} words, encoder {args.encoder}; CPU s and GB of a process, ms of a query")
        search = [sys.executable, "-m", "hf_dse_cli", "search", "--model", encoder, "--corpus", str(corpus)]
        search += ["--index_dir", str(root / "ours"), "--query", query]
        found: dict[tuple[str, str], list[dict[str, float]]] = {}

        def run(kind: str, step: str, command: list[str] | None = None, folder: str = "") -> None:
            script = [sys.executable, __file__, "--work", kind, encoder, str(corpus), str(root / (folder or kind))]
            script.append(query)
            found.setdefault((kind, step), []).append(measure(command or script))

        write(texts)
        for kind in args.kinds:
            run(kind, "first index")
        for _ in range(args.rounds):
            write(texts)
            for kind in args.kinds:
                run(kind, "second start")
            if "ours" in args.kinds:
                run("ours", "hf-dse search", search)
                run("ours", "hf-dse search, BM25", [*search, "--bm25_weight", str(WEIGHT)])
            write([*changed, *texts[len(changed) :]])
            for kind in args.kinds:
                # An update of the same index in each round.
                shutil.copytree(root / kind, root / "updated")
                run(kind, "1 % changed", folder="updated")
                shutil.rmtree(root / "updated")
        for (kind, step), rounds in found.items():
            seconds, memory, *times = (f"{median(row[name] for row in rounds):.2f}" for name in rounds[0])
            times = "  ".join(f"{name} {value} ms" for name, value in zip([*rounds[0]][2:], times, strict=True))
            print(f"{kind:<6}{step:<22}{seconds:>8} s {memory:>6} GB  {times}", flush=True)
        for kind in args.kinds:
            on_disk = sum(file.stat().st_size for file in (root / kind).rglob("*") if file.is_file())
            print(f"{kind:<6}{'on disk':<22}{'':>10} {on_disk / 2**30:>6.2f} GB", flush=True)


if __name__ == "__main__":
    main()
