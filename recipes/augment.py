# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Pairs that nobody has labelled, for a teacher to score (Augmented SBERT, https://arxiv.org/abs/2010.08240).

    python recipes/augment.py make FILE... --output pairs.parquet [--encoder ENCODER] [--labelled FILE...]
    hf-dse score --model TEACHER --train_file pairs.parquet --num_labels 1 --output_file scored.parquet
    python recipes/augment.py balance scored.parquet --num_pairs 20000 --output balanced.parquet

FILE is .txt, one text per line, or .csv, .jsonl or .parquet, as FILE or FILE:column,column; the columns are by default
sentence1 and sentence2, otherwise text. A row has texts that belong together. `make` pairs the texts of a row, each
text with similar ones of other rows, and each with random ones of the file. Texts that differ only in case,
punctuation and spaces are the same text; each pair occurs once. Pairs of `--labelled` come first, with their `label`,
which the others lack. `balance` draws scored pairs without a label evenly over the range of the scores, because most
pairs of a corpus are unrelated, and keeps all labelled ones. A student trains on the file that it writes.
"""

import argparse
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd


Pair = tuple[str, str]
BLOCK = 1000
READERS = {
    ".csv": pd.read_csv,
    ".jsonl": lambda path: pd.read_json(path, lines=True),
    ".parquet": pd.read_parquet,
    ".txt": lambda path: pd.DataFrame({"text": path.read_text(encoding="utf-8").split("\n")}),
}


def normalize_text(text: str) -> str:
    """A text in lower case, with a space for each run of characters that are not letters or digits."""
    return re.sub(r"[\W_]+", " ", text.lower()).strip() or text.lower().strip()


def pair_key(first: str, second: str) -> Pair:
    """The key of a pair, which does not depend on order, case and punctuation."""
    first, second = sorted((normalize_text(first), normalize_text(second)))
    return first, second


def read_rows(file: str) -> list[list[str]]:
    """The texts of each row of a file, without empty cells and rows."""
    name, _, columns = file.partition(":")
    table = READERS[Path(name).suffix](Path(name))
    both = ["sentence1", "sentence2"]
    names = columns.split(",") if columns else both if set(both) <= set(table.columns) else ["text"]
    rows = ([text for text in row if isinstance(text, str) and text.strip()] for row in table[names].to_numpy())
    return [row for row in rows if row]


def row_pairs(rows: list[list[str]], number: int, rng: np.random.Generator) -> Iterator[Pair]:
    """Up to `number` random pairs of the texts of each row."""
    for row in rows:
        pairs = list(itertools.combinations(row, 2))
        if len(pairs) > number:
            pairs = [pairs[place] for place in rng.choice(len(pairs), number, replace=False)]
        yield from pairs


def similar_pairs(
    rows: list[list[str]], texts: list[str], encoder: str, number: int, pool: int, rng: np.random.Generator
) -> Iterator[Pair]:
    """Each text with `number` of the `pool` texts of other rows that are nearest by cosine."""
    import torch
    from sentence_transformers import SentenceTransformer

    place = {normalize_text(text): row for row, text in enumerate(texts)}
    own: list[set[int]] = [set() for _ in texts]
    for row in rows:
        group = {place[normalize_text(text)] for text in row}
        for text in group:
            own[text] |= group
    model = SentenceTransformer(encoder, trust_remote_code=True)
    vectors = model.encode(texts, batch_size=64, normalize_embeddings=True, convert_to_tensor=True)
    # `semantic_search` orders equal texts in another way, and the kept scores of the flagship are for these pairs.
    for start in range(0, len(texts), BLOCK):
        scores = vectors[start : start + BLOCK] @ vectors.T
        for row, text in enumerate(range(start, start + len(scores))):
            scores[row, list(own[text])] = -torch.inf
        values, nearest = scores.topk(min(pool, len(texts)))
        draws = rng.random(values.shape)
        for row, draw in enumerate(draws):
            near = nearest[row, values[row].isfinite()].tolist()
            for drawn in np.argsort(draw[: len(near)])[:number]:
                yield texts[start + row], texts[near[drawn]]


def random_pairs(texts: list[str], number: int, rng: np.random.Generator) -> Iterator[Pair]:
    """Each text with `number` random other texts."""
    # A step of 1 to n - 1, modulo n, leads to any other text.
    steps = rng.integers(1, len(texts), size=(len(texts), number)) if len(texts) > 1 else []
    for text, others in enumerate(steps):
        for step in others:
            yield texts[text], texts[(text + step) % len(texts)]


def make(args: argparse.Namespace) -> pd.DataFrame:
    """Pairs with the column `kind`: row, similar or random; before them the labelled ones, if there are any."""
    labelled = [READERS[Path(file).suffix](Path(file))[["sentence1", "sentence2", "label"]] for file in args.labelled]
    excluded = {pair_key(*row) for file in args.exclude for row in read_rows(file) if len(row) == 2}
    barred = {normalize_text(text) for file in args.exclude_texts for row in read_rows(file) for text in row}
    made: list[tuple[str, str, str]] = []
    seen = {pair_key(*row) for part in labelled for row in zip(part["sentence1"], part["sentence2"], strict=True)}
    for file in args.files:
        # The pairs of a file do not depend on other files, so kept scores stay valid if a file is added.
        rng = np.random.default_rng(args.seed)
        rows = [[text for text in row if normalize_text(text) not in barred] for row in read_rows(file)]
        rows = [row for row in rows if row]
        if args.max_rows is not None and len(rows) > args.max_rows:
            rows = [rows[number] for number in np.sort(rng.choice(len(rows), args.max_rows, replace=False))]
        texts = list({normalize_text(text): text for row in rows for text in row}.values())
        kinds = {"row": row_pairs(rows, args.row_pairs, rng)}
        if args.encoder is not None:
            kinds["similar"] = similar_pairs(rows, texts, args.encoder, args.num_similar, args.pool, rng)
        kinds["random"] = random_pairs(texts, args.num_random, rng)
        for kind, pairs in kinds.items():
            for pair in pairs:
                key = pair_key(*pair)
                if key[0] != key[1] and key not in seen and key not in excluded:
                    made.append((*pair, kind))
                seen.add(key)
    parts = [part.assign(kind="labelled") for part in labelled]
    return pd.concat([*parts, pd.DataFrame(made, columns=["sentence1", "sentence2", "kind"])], ignore_index=True)


def balance(scored: pd.DataFrame, num_pairs: int, num_bins: int = 10, seed: int = 42) -> pd.DataFrame:
    """
    Draws pairs evenly over the range of the teacher's scores: as many from each of `num_bins` equal parts, and more
    from the others where a part has too few; for a teacher with several logits, from each class. Labelled pairs are
    kept, and are not counted.
    """
    if "label" in scored:
        is_known = scored["label"].notna()
        drawn = balance(scored[~is_known].drop(columns="label"), num_pairs, num_bins, seed)
        return pd.concat([scored[is_known], drawn], ignore_index=True)
    if len(scored) <= num_pairs:
        return scored
    bins = np.zeros(len(scored), dtype=int)
    if "teacher_logits" in scored:
        logits = np.stack(scored["teacher_logits"])  # [N, C]
        edges = np.linspace(logits.min(), logits.max(), num_bins + 1)
        bins = logits.argmax(axis=1) if logits.shape[1] > 1 else np.digitize(logits[:, 0], edges[1:-1])
    supplies = np.bincount(bins)
    quotas = np.zeros_like(supplies)
    for rank, number in enumerate(np.argsort(supplies, kind="stable")):
        # The smallest part first, so that the others can fill its gap.
        quotas[number] = min(supplies[number], (num_pairs - quotas.sum()) // (len(supplies) - rank))
    rng = np.random.default_rng(seed)
    drawn = [rng.choice(np.flatnonzero(bins == number), quota, replace=False) for number, quota in enumerate(quotas)]
    return scored.iloc[np.sort(np.concatenate(drawn))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    maker = commands.add_parser("make")
    maker.add_argument("files", nargs="+")
    maker.add_argument("--encoder", help="model that finds similar texts; default: no such pairs")
    maker.add_argument("--row_pairs", type=int, default=1, help="pairs of a row, at most")
    maker.add_argument("--num_similar", type=int, default=2, help="similar texts for each text")
    maker.add_argument("--pool", type=int, default=10, help="nearest texts from which the similar ones are drawn")
    maker.add_argument("--num_random", type=int, default=1, help="random texts for each text")
    maker.add_argument("--max_rows", type=int, help="rows of each file, at most, drawn at random")
    maker.add_argument("--num_pairs", type=int, help="pairs to keep, drawn at random")
    maker.add_argument("--labelled", nargs="+", default=[], help="files of labelled pairs, which come first")
    maker.add_argument("--exclude", nargs="+", default=[], help="files of pairs to leave out")
    maker.add_argument("--exclude_texts", nargs="+", default=[], help="files of texts to leave out of all pairs")
    maker.set_defaults(run=make)
    balancer = commands.add_parser("balance")
    balancer.add_argument("scored", type=Path, help="parquet file of `hf-dse score`")
    balancer.add_argument("--num_pairs", type=int, required=True)
    balancer.set_defaults(run=lambda args: pd.read_parquet(args.scored))
    for command in (maker, balancer):
        command.add_argument("--output", type=Path, required=True, help="parquet file")
        command.add_argument("--seed", type=int, default=42)
    args = parser.parse_args()
    pairs = args.run(args)
    if args.num_pairs is not None:
        pairs = balance(pairs, args.num_pairs, seed=args.seed)
    pairs.to_parquet(args.output, index=False)
    print(f"{len(pairs):,} pairs written to {args.output}")


if __name__ == "__main__":
    main()
