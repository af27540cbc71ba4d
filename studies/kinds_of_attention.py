# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
What each kind of attention costs an encoder that is not trained, by k and by the length of texts.

    python studies/kinds_of_attention.py DATA MODEL RESULTS.jsonl [--ks 64 128 256] [--lengths 512 2048] [--bf16]

MODEL is an encoder, which is converted: `--kinds` are types of layers, for the layers that attend to all tokens in the
source; layers with a window keep it. Or it is a DSE model, which is measured as it is (`own`), or with `--kinds` too.
DATA has folders of the sets with parquet files. Long documents are cut after each of `--lengths`, other texts after
512 tokens.

The numbers are Spearman correlations (STS-B) and nDCG@10, recall and MRR (the others), in RESULTS.jsonl one line per
measurement. What it has already is not measured again. At the end there is a table, x 100.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from generality import Collection, Pairs, as_rankings, keep_documents, read_collection, read_pairs
from prepare_long import SETS, read_long
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer

from hf_dse import DseModel, Index, convert_encoder, to_sentence_transformer
from hf_dse.common.display import markdown
from hf_dse.common.loading import choose_device, load_config, load_tokenizer
from hf_dse.convert.student import exact_kinds, load_dse_model, with_own_attention
from hf_dse.measure.metrics import measure_run, relevance


sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from attention_error import change  # noqa: E402
from encoders import KINDS  # noqa: E402
from timing import set_threads  # noqa: E402


SHORT_SETS = ("stsb-dev", "stsb-test", "scifact")
LONG_SETS = ("longwiki", "qmsum", "fairytaleqa")
SHORT_LENGTH = 512


def read(data: Path, name: str, max_documents: int | None) -> Pairs | Collection:
    """Pairs, or a collection of so many documents."""
    if name.startswith("stsb"):
        return read_pairs(data / "stsb" / f"{'validation' if name == 'stsb-dev' else 'test'}.parquet", "label")
    if name == "scifact":
        collection = read_collection(data / name, "_test")
    else:
        collection = read_long(name, data, "test" if name in ("qmsum", "fairytaleqa") else "validation")
    return keep_documents(collection, max_documents)


def evaluate(encoder: SentenceTransformer, part: Any, batch_size: int) -> dict[str, float]:
    """The metrics of a model on a set."""
    if isinstance(part[0], list):
        first, second = (encoder.encode(texts, batch_size=batch_size, normalize_embeddings=True) for texts in part[:2])
        return {"spearman": float(spearmanr((first * second).sum(axis=1), part[2]).statistic)}
    rankings = as_rankings(*part)
    run = Index.of(encoder, rankings, batch_size=batch_size).run(rankings, 10)
    return measure_run(run, relevance(rankings))


def variants(args: argparse.Namespace, kinds: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The kinds of attention, each with its k and its window if it has one."""
    for kind in kinds:
        ks = args.ks if "linear" in kind else [None]
        windows = args.windows if "sliding" in kind else [None]
        yield from ({"kind": kind, "k": k, "window": window} for k, window in product(ks, windows))


def with_attention(model: DseModel, kind: str, k: int | None, window: int | None) -> DseModel:
    """The model with a kind of attention in the layers that attend to all tokens in its source."""
    if kind == "own":
        return model
    kinds = [kind if source == "full_attention" else source for source in exact_kinds(model.config.encoder)]
    return change(model, layer_types=kinds, linformer_length=k or 128, sliding_window=window)


def table(rows: Sequence[dict[str, Any]], metric: str) -> str:
    """A row for each kind of attention and length, and a column for each set, x 100."""
    sets = list(dict.fromkeys(row["set"] for row in rows))
    cells: dict[tuple, dict[str, str]] = {}
    for row in rows:
        numbers = (str(row[key] or "-") for key in ("k", "window", "max_length"))
        name = (Path(row["model"]).name, row["kind"], row["projection"] if row["k"] else "-", *numbers)
        cells.setdefault(name, {})[row["set"]] = f"{100 * row.get('spearman', row.get(metric, np.nan)):.2f}"
    lines = [[*name, *(values.get(part, "") for part in sets)] for name, values in cells.items()]
    return markdown(["model", "attention", "projection", "k", "window", "tokens", *sets], lines, num_left=3)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("model")
    parser.add_argument("results", type=Path)
    parser.add_argument(
        "--kinds", nargs="+", choices=["own", *KINDS.values()], help="default: all that the model takes"
    )
    parser.add_argument("--ks", type=int, nargs="+", default=[128], help="projected lengths")
    parser.add_argument(
        "--windows", type=int, nargs="+", default=[64], help="tokens to either side, of all layers with one"
    )
    parser.add_argument("--linformer_projection", help="default: that of a conversion")
    parser.add_argument("--sets", nargs="+", choices=[*SHORT_SETS, *SETS], default=[*SHORT_SETS, *LONG_SETS])
    parser.add_argument("--lengths", type=int, nargs="+", default=[512], help="tokens of a long document")
    parser.add_argument("--max_documents", type=int, help="of each corpus")
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--bf16", action="store_true", help="weights and states in bfloat16")
    parser.add_argument("--metric", default="ndcg@10", help="of search, in the table")
    parser.add_argument("--threads", type=int)
    args = parser.parse_args(argv)
    set_threads(args.threads)
    config: Any = load_config(args.model)
    tokenizer = load_tokenizer(args.model)
    if config.model_type == "dse":
        source, kinds = load_dse_model(args.model).base_model, ["own"]
    else:
        options = {"linformer_projection": args.linformer_projection} if args.linformer_projection else {}
        converted = convert_encoder(args.model, max_position_embeddings=max(SHORT_LENGTH, *args.lengths), **options)
        source = with_own_attention(converted)
        kinds = ["full_attention", "linear_attention"] if config.model_type == "mpnet" else list(KINDS.values())
    source.to(choose_device(), torch.bfloat16 if args.bf16 else torch.float32)
    rows = [json.loads(line) for line in args.results.read_text().splitlines()] if args.results.exists() else []
    args.results.parent.mkdir(parents=True, exist_ok=True)
    fixed = {"model": args.model, "projection": source.config.linformer_projection, "bf16": args.bf16}
    for variant in variants(args, args.kinds or kinds):
        model = with_attention(source, **variant)
        for name, length in product(args.sets, args.lengths):
            length = min(SHORT_LENGTH, model.config.max_position_embeddings) if name in SHORT_SETS else length
            row = {**fixed, **variant, "set": name, "max_length": length}
            row["max_documents"] = None if name.startswith("stsb") else args.max_documents
            if any(row.items() <= known.items() for known in rows):
                continue
            start, part = time.perf_counter(), read(args.data, name, args.max_documents)
            encoder = to_sentence_transformer(model, tokenizer, max_length=row["max_length"])
            encoder.similarity_fn_name = "cosine"
            row |= evaluate(encoder, part, args.batch_size)
            row |= {"seconds": time.perf_counter() - start, "threads": torch.get_num_threads()}
            rows.append(row)
            with args.results.open("a") as file:
                file.write(json.dumps(row) + "\n")
    print(table(rows, args.metric))


if __name__ == "__main__":
    main()
