# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Measures the memory and the time of mining in a large corpus: random texts, and their words' random vectors.

    python studies/mine_memory.py --num_queries 100000 --num_documents 100000 [--bm25]
"""

import argparse
import resource
import time

import numpy as np
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from hf_dse import make_rankings, mine_candidates


NUM_WORDS = 20_000
HIDDEN_SIZE = 64


def peak() -> float:
    """Largest memory of this process so far in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--num_queries", type=int, default=100_000)
    parser.add_argument("--num_documents", type=int, default=100_000)
    parser.add_argument("--words", type=int, default=20, help="words of a document")
    parser.add_argument("--bm25", action="store_true", help="search by words too")
    args = parser.parse_args()

    rng = np.random.default_rng(0)
    words = [f"word{number}" for number in range(NUM_WORDS)]
    vocab = {word: number for number, word in enumerate(["[PAD]", "[UNK]", *words])}
    backend = Tokenizer(WordLevel(vocab, unk_token="[UNK]"))
    backend.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]")
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocab),
        hidden_size=HIDDEN_SIZE,
        num_hidden_layers=0,
        num_attention_heads=1,
        max_position_embeddings=args.words,
    )
    model = BertModel(config).eval()

    def texts(number: int, size: int) -> list[str]:
        return [" ".join(words[word] for word in row) for row in rng.integers(0, NUM_WORDS, (number, size))]

    queries = {
        "query": texts(args.num_queries, 5),
        "documents": rng.integers(0, args.num_documents, (args.num_queries, 1)).tolist(),
        "labels": [[1.0]] * args.num_queries,
    }
    rankings = make_rankings(queries, {"text": texts(args.num_documents, args.words)})
    del queries
    before, start = peak(), time.perf_counter()
    mined = mine_candidates(
        rankings, model, tokenizer, bm25=args.bm25, relative_margin=0.0, max_length=args.words, batch_size=256
    )
    seconds = time.perf_counter() - start
    embeddings = (args.num_queries + args.num_documents) * HIDDEN_SIZE * 4 / 2**30
    print(
        f"{len(mined):,} queries, {len(rankings.corpus):,} documents: {seconds:,.0f} s, peak memory {peak():.2f} GB, "
        f"{before:.2f} GB before, {embeddings:.2f} GB of embeddings"
    )


if __name__ == "__main__":
    main()
