# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Near exactly, far through slots: windows beside slots in every layer of an encoder that is not trained, against its
chunks, on long documents.

    python studies/near_and_far.py DATA ENCODER RESULTS.jsonl [--windows 64 128] [--ks 128] [--slots strided mean]

The ways to read a document: plain chunks of 128 and 512 tokens, each alone (`chunks`); windows of `--windows` tokens
to either side (`near`), k slots (`far`), or windows beside k slots (`both`); the lower layers in chunks of 512 and
the upper two with k slots (`mixed`). Slots are evenly spaced tokens (`strided`) or means (`mean`), each of which
counts once, or as often as the tokens that it stands for (`strided_weighted`, `mean_weighted`); or chosen tokens,
those whose values are longest (`norm`) or that get most attention in the window (`attention`). The first and the last
token always have a slot.

Each way gives one vector of the document, the mean over its tokens or chunks, and one vector for each chunk of 128
tokens of the same pass, of which the best counts; all of them also whitened, by pieces of 350 words of the training
articles of longwiki.

With `--train_queries` each way first learns from so many questions of the training tales of FairytaleQA, with in-batch
negatives and `--train_length` tokens of a tale, `chunks` with 512.

RESULTS.jsonl has one line per way and set with nDCG@10 and recall@1 of each query; what it has
is not measured again. The table has means, and the differences to the mean of plain chunks of 512 tokens.
"""

import argparse
import json
import sys
import time
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from generality import as_rankings, keep_documents
from prepare_long import SETS, group_order, read_long

from hf_dse import (
    Rankings,
    RankingTrainer,
    RankingTrainingArguments,
    convert_encoder,
    make_pair_model,
    to_sentence_transformer,
)
from hf_dse.common.display import markdown
from hf_dse.common.loading import load_config, load_tokenizer
from hf_dse.convert.student import exact_kinds, with_own_attention
from hf_dse.convert.whiten import whitening
from hf_dse.measure.metrics import bootstrap_interval, measure_run, relevance
from hf_dse.modeling import attention_dse
from hf_dse.modeling.attention_dse import (
    LayerAttention,
    LayerInputs,
    Slots,
    attend_eagerly,
    attend_in_blocks,
    stride_slots,
)
from hf_dse.modeling.modeling_dse import find_attentions
from hf_dse.retrieval.search import nearest


sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from attention_error import change  # noqa: E402
from needles import NEEDLES, make_needles  # noqa: E402
from ranking_cost import read_sentences  # noqa: E402
from timing import set_threads  # noqa: E402


CHUNK, LIMIT, BASELINE = 128, 512, "chunks of 512, mean"
PIECES, DIMENSIONS = 1000, 320
OWN = ("strided_weighted", "mean_weighted", "norm", "attention")


def choose_slots(layer: LayerAttention, num_slots: int, inputs: LayerInputs) -> Slots:
    """The tokens of most weight, for one text without padding; the first and the last one always."""
    if layer.start == "norm":
        weights = inputs.value.float().norm(dim=-1).sum(dim=1)[0]
    else:
        weights = attention_in_window(layer, inputs)
    weights[[0, -1]] = torch.inf
    tokens = weights.topk(num_slots).indices.sort().values[None]
    return Slots(tokens, torch.zeros_like(tokens, dtype=inputs.key.dtype))


def weigh_slots(layer: LayerAttention, num_slots: int, inputs: LayerInputs) -> Slots:
    """Slots whose logits have the logarithm of the tokens that they stand for, for one text without padding."""
    make = attention_dse.STARTS[layer.start.removesuffix("_weighted")][0]
    slots, share = make(layer, num_slots, inputs), (inputs.num_tokens - 2) / (layer.num_slots - 2)
    places = torch.arange(num_slots)
    is_inner = (places > 0) & (places < num_slots - 1) & (share > 1)
    return slots._replace(bias=slots.bias + is_inner * np.log(max(share, 1)))


def attention_in_window(layer: LayerAttention, inputs: LayerInputs) -> torch.Tensor:
    """The attention that each token gets from the tokens around it, over all heads, `(num_tokens,)`."""
    size, window, num_tokens = layer.window, layer.window, inputs.num_tokens

    def attend(query: Any, key: Any, value: Any, bias: Any) -> Any:
        return attend_eagerly(torch.nn.Module().eval(), query, key, value, bias)

    weights: Any = attend_in_blocks(inputs, size, window, None, attend)[1]  # [1, H, N, w + C + w]
    by_place = weights[0].float().sum(dim=0)
    tokens = torch.arange(num_tokens)[:, None] // size * size + torch.arange(-window, size + window)
    is_token = (tokens >= 0) & (tokens < num_tokens)
    return torch.zeros(num_tokens).index_add(0, tokens[is_token], by_place[is_token])


def make_own_slots() -> None:
    """Adds what the model lacks to its ways of filling slots."""
    starts = attention_dse.STARTS
    for name in OWN:
        kind = name.removesuffix("_weighted")
        starts[name] = (weigh_slots, starts[kind][1]) if kind in starts else (choose_slots, starts["strided"][1])


def see_windows(model: Any, window: int, num_slots: int | None) -> None:
    """
    Gives the layers of MPNet, whose class has slots alone, windows, and beside them k evenly spaced slots: for one
    text without padding, block by block, with its bias by the distance of two tokens.
    """
    encoder = model.encoder.encoder

    def attend(module: Any, hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> tuple[torch.Tensor]:
        query, key, value = (
            part(hidden_states).unflatten(-1, (module.num_attention_heads, -1)).transpose(1, 2)
            for part in (module.q, module.k, module.v)
        )
        num_tokens = query.shape[2]
        tokens = torch.arange(num_tokens)
        inputs, layer = LayerInputs(query, key, value, None), module.linformer_layer
        is_short = num_slots is not None and num_tokens <= num_slots
        slots = tokens[:0] if num_slots is None or is_short else stride_slots(layer, num_slots, inputs).tokens[0]
        reach = num_tokens if is_short else window
        parts = []
        for places in tokens.split(window):
            near = tokens[max(0, int(places[0]) - reach) : int(places[-1]) + reach + 1]
            keys = torch.cat([slots, near])
            distance = keys - places[:, None]
            bias = encoder.relative_attention_bias(encoder.relative_position_bucket(distance)).movedim(-1, 0)
            is_far = distance.abs() > reach
            is_far[:, : len(slots)] = False
            bias = bias.masked_fill(is_far, torch.finfo(bias.dtype).min)[None]
            states = query[:, :, places], key[:, :, keys], value[:, :, keys]
            parts.append(torch.nn.functional.scaled_dot_product_attention(*states, attn_mask=bias))
        return (module.o(torch.cat(parts, dim=2).transpose(1, 2).flatten(2)),)

    for module in find_attentions(model.encoder):
        module.linformer_layer = module.linformer_layer._replace(num_slots=num_slots or 128)
        module.forward = partial(attend, module)


def read_set(data: Path, name: str, split: str | None, max_documents: int | None) -> Rankings:
    """A set of long documents, or needles in documents of so many tokens (`needle-8192`)."""
    if name.startswith(NEEDLES):
        task, length = name.split("-")
        return make_needles(task, int(length), read_sentences())
    has_test = name in ("qmsum", "fairytaleqa")
    collection = read_long(name, data, (split or "test") if has_test else "validation")
    return as_rankings(*keep_documents(collection, max_documents))


def build(args: argparse.Namespace, way: dict[str, Any]) -> Any:
    """The converted encoder that reads documents in a way."""
    kind, k, slots = way["kind"], way["k"] or 128, way["slots"] or "strided"
    if kind == "chunks":
        encoder = convert_encoder(args.encoder, layer_types="full_attention")
        return (train(args, encoder, LIMIT) if args.train_queries else encoder).to(torch.bfloat16).eval()
    if load_config(args.encoder).model_type == "mpnet":
        encoder = convert_encoder(args.encoder, layer_types="full_attention", max_position_embeddings=args.max_length)
        see_windows(encoder, way["window"], way["k"])
        return encoder.to(torch.bfloat16).eval()
    options = {"linformer_projection": "mean" if slots.startswith("mean") else "strided", "linformer_length": k}
    encoder = convert_encoder(args.encoder, max_position_embeddings=args.max_length, **options)
    num_layers = encoder.config.num_hidden_layers
    kinds: Any = {"near": "sliding_attention", "far": "linear_attention", "both": "sliding_linear_attention"}
    layer_types = [kinds.get(kind)] * num_layers
    if kind == "mixed":
        layer_types = ["chunked_attention"] * (num_layers - 2) + ["linear_attention"] * 2
    window = {"sliding_window": way["window"]} if way["window"] else {}
    model = change(encoder, layer_types=layer_types, attention_chunk_size=LIMIT, **window)
    if slots in OWN:
        for module in find_attentions(model.encoder):
            module.linformer_layer = module.linformer_layer._replace(start=slots)
    if args.train_queries:
        model = train(args, model, args.train_length)
    return model.to(torch.bfloat16).eval()


def train(args: argparse.Namespace, encoder: Any, max_length: int) -> Any:
    """The encoder after an epoch of questions for whole documents, eight questions of each document in a batch."""
    queries, corpus, relevant = read_long("fairytaleqa", args.data, "train")
    corpus = {doc_id: corpus[doc_id] for doc_id in set().union(*relevant.values())}
    rankings = as_rankings(queries, dict(sorted(corpus.items())), relevant)
    chosen = np.random.default_rng(42).permutation(len(rankings))[: args.train_queries]
    # Eight questions of a tale one after the other, so that a batch reads it once.
    tales = pd.Series([rows[0] for rows in rankings.queries["documents"][:]])[chosen]
    order = tales.index[group_order(tales)]
    training = RankingTrainingArguments(
        "unused",
        num_train_epochs=1,
        per_device_train_batch_size=64,
        train_sampling_strategy="sequential",
        cached_gradients=8,
        learning_rate=5e-5,
        warmup_steps=0.1,
        max_length=max_length,
        bf16=True,
        use_cpu=True,
        save_strategy="no",
        report_to="none",
    )
    trainer = RankingTrainer(
        make_pair_model(encoder),
        training,
        rankings.select(order),
        None,
        load_tokenizer(args.encoder),
    )
    trainer.train()
    return trainer.model.dse


def embed(model: Any, tokenizer: Any, texts: list[str], max_length: int) -> np.ndarray:
    """The embeddings of texts, of length 1."""
    encoder = to_sentence_transformer(model, tokenizer, max_length=max_length)
    return encoder.encode(texts, normalize_embeddings=True, show_progress_bar=False)


@torch.inference_mode()
def read_in_one_pass(model: Any, tokenizer: Any, texts: list[str], max_length: int) -> Any:
    """The mean over the tokens of each document, the means of its parts of 128 tokens, and the document of each."""
    wholes, parts, rows = [], [], []
    for row, text in enumerate(texts):
        batch = tokenizer(text, truncation=True, max_length=max_length, return_tensors="pt", verbose=False)
        batch.pop("token_type_ids", None)
        states = model(**batch).last_hidden_state[0].float()
        wholes.append(states.mean(dim=0))
        for part in states.split(CHUNK):
            parts.append(part.mean(dim=0))
            rows.append(row)
    return torch.stack(wholes).numpy(), torch.stack(parts).numpy(), np.array(rows)


def read_chunks(model: Any, tokenizer: Any, texts: list[str], size: int, max_length: int) -> Any:
    """The mean over the chunks of each document, the vectors of its chunks, and the document of each."""
    pieces, rows = [], []
    for row, text in enumerate(texts):
        spans = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)["offset_mapping"]
        spans = spans[: max_length - 2]
        for first in range(0, len(spans), size - 2):
            part = spans[first : first + size - 2]
            pieces.append(text[part[0][0] : part[-1][1]])
            rows.append(row)
    vectors = embed(model, tokenizer, pieces, size)
    starts = np.unique(rows, return_index=True)[1]
    return np.add.reduceat(vectors, starts) / np.diff([*starts, len(rows)])[:, None], vectors, np.array(rows)


def fit_whitening(model: Any, tokenizer: Any, data: Path) -> np.ndarray:
    """The matrix of `whiten_encoder`."""
    articles = pd.read_parquet(data / "longwiki" / "docs.parquet")
    words = [body.split() for body in articles[articles["split"] == "train"]["body"][:250]]
    pieces = [" ".join(of[at : at + 350]) for of in words for at in range(0, len(of), 350)][:PIECES]
    vectors = embed(model, tokenizer, pieces, LIMIT)
    return whitening(torch.from_numpy(vectors), DIMENSIONS).T.numpy()


def search(rankings: Rankings, queries: np.ndarray, vectors: np.ndarray, rows: np.ndarray) -> dict[str, list[float]]:
    """nDCG@10 and recall@1 of each query, in percent."""
    queries, vectors = (part / np.linalg.norm(part, axis=1, keepdims=True) for part in (queries, vectors))
    ids = np.array(rankings.corpus["doc_id"][:])
    # The ids of queries are not those of documents.
    found = zip(rankings.queries["query_id"], *nearest(queries, vectors, 10, groups=rows), strict=True)
    run = {query_id: dict(zip(ids[rows[places]], scores, strict=True)) for query_id, scores, places in found}
    values = measure_run(run, relevance(rankings), per_query=True)
    return {name: [round(100 * of[name], 3) for of in values.values()] for name in ("ndcg@10", "recall@1")}


def name_of(row: dict[str, Any]) -> str:
    parts = (row["kind"], row["slots"], row["k"] and f"k {row['k']}", row["window"] and f"window {row['window']}")
    return ", ".join([part for part in parts if part] + [row["read"]])


def table(rows: list[dict[str, Any]], metric: str) -> str:
    sets = list(dict.fromkeys(row["set"] for row in rows))
    values = {(name_of(row), row["set"]): np.array(row[metric]) for row in rows}
    lines = []
    for name in dict.fromkeys(map(name_of, rows)):
        line = [name]
        for part in sets:
            own, base = values.get((name, part)), values.get((BASELINE, part))
            if own is None:
                line.append("")
            elif base is None or own is base:
                line.append(f"{own.mean():.1f}")
            else:
                low, high = bootstrap_interval(own - base)
                line.append(f"{own.mean():.1f} ({low:+.1f} to {high:+.1f})")
        lines.append(line)
    return markdown(["a document is read by", *sets], lines, num_left=1)


def ways(args: argparse.Namespace) -> Any:
    """Each kind with the options that it has."""
    for kind in args.kinds:
        has_slots, has_window = kind in ("far", "both", "mixed"), kind in ("near", "both")
        options = product(
            args.slots if has_slots else [None],
            args.ks if has_slots else [None],
            args.windows if has_window else [None],
        )
        for slots, k, window in options:
            yield {"kind": kind, "slots": slots, "k": k, "window": window}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("encoder", help="Folder or Hub id.")
    parser.add_argument("results", type=Path)
    parser.add_argument("--kinds", nargs="+", default=["chunks", "near", "both", "mixed"])
    parser.add_argument("--slots", nargs="+", default=["strided"], choices=["strided", "mean", *OWN])
    parser.add_argument("--ks", type=int, nargs="+", default=[128])
    parser.add_argument("--windows", type=int, nargs="+", default=[128])
    parser.add_argument("--sets", nargs="+", default=list(SETS), help="also needle-8192, passkey-4096")
    parser.add_argument("--split", help="default: test, where there is one")
    parser.add_argument("--max_documents", type=int, help="of each corpus, the relevant ones first")
    parser.add_argument("--max_length", type=int, default=16384)
    parser.add_argument("--train_queries", type=int, help="train each way on so many questions first")
    parser.add_argument("--train_length", type=int, default=2048, help="tokens of a document in training")
    parser.add_argument("--metric", default="recall@1", choices=["recall@1", "ndcg@10"])
    parser.add_argument("--threads", type=int)
    args = parser.parse_args()
    if load_config(args.encoder).model_type == "mpnet" and (
        args.train_queries or set(args.slots) > {"strided"} or set(args.kinds) - {"chunks", "near", "both"}
    ):
        parser.error("MPNet is not trained here, and has windows and strided slots: --kinds chunks near both")
    if args.train_queries and set(args.slots) & set(OWN):
        parser.error(f"--train_queries trains the slots of the model, not {', '.join(OWN)}")
    set_threads(args.threads)
    make_own_slots()
    tokenizer = load_tokenizer(args.encoder)
    source = with_own_attention(convert_encoder(args.encoder)).to(torch.bfloat16).eval()
    assert set(exact_kinds(source.config.encoder)) == {"full_attention"}
    matrix_of_whitening: Any = None
    rows = [json.loads(line) for line in args.results.read_text().splitlines()] if args.results.exists() else []
    fixed = {"max_length": args.max_length, "max_documents": args.max_documents, "split": args.split}
    fixed["train_queries"] = args.train_queries
    for way in ways(args):
        model: Any = None
        for name in args.sets:
            wanted = {**fixed, **way, "set": name}
            if any(all(known.get(key) == value for key, value in wanted.items()) for known in rows):
                continue
            model = model or build(args, way)
            if matrix_of_whitening is None:
                matrix_of_whitening = fit_whitening(source, tokenizer, args.data)
            rankings, start = read_set(args.data, name, args.split, args.max_documents), time.perf_counter()
            texts = rankings.corpus["text"][:]
            queries = rankings.queries["query"][:]
            # The ways differ in how they read documents.
            asker = model if args.train_queries else source
            asked = embed(asker, tokenizer, queries, LIMIT)
            if way["kind"] == "chunks":
                found = {
                    f"chunks of {size}": read_chunks(model, tokenizer, texts, size, args.max_length)
                    for size in (CHUNK, LIMIT)
                }
            else:
                found = {"": read_in_one_pass(model, tokenizer, texts, args.max_length)}
            seconds = round(time.perf_counter() - start, 1)
            for kind, (whole, parts, of_document) in found.items():
                one = np.arange(len(texts))
                for how, matrix in (("", np.eye(len(whole.T))), (", whitened", matrix_of_whitening)):
                    for label, vectors, documents in (("mean", whole, one), ("best", parts, of_document)):
                        row = {**wanted, "kind": kind or way["kind"], "read": label + how, "seconds": seconds}
                        row |= search(rankings, asked @ matrix, vectors @ matrix, documents)
                        rows.append(row)
                        with args.results.open("a") as file:
                            file.write(json.dumps(row) + "\n")
                        means = (round(float(np.mean(row[metric])), 1) for metric in ("recall@1", "ndcg@10"))
                        print(name, name_of(row), *means, seconds, flush=True)
    rows = [row for row in rows if all(row.get(key) == value for key, value in fixed.items())]
    print(table(rows, args.metric))


if __name__ == "__main__":
    main()
