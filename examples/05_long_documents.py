"""
Find long documents: one linear pass over the whole document, compared with its first 512 tokens. Nothing is trained.
Less than a minute on 2 CPU cores.

    python examples/05_long_documents.py
    python examples/05_long_documents.py documents.parquet queries.parquet

The files have the columns doc_id, text and doc_id, query. Without files, the embedded sentences on one topic form a
document, and paraphrases of sentences after token 512 are the queries. This prints

    52 documents, 66 queries
    softmax, first 512 tokens  finds 51.5 % of the documents
    linear, one pass           finds 62.1 % of the documents
"""

import sys
from importlib.resources import files

import pandas as pd
from transformers import AutoTokenizer

from hf_dse import Index, convert_encoder, default_encoder


tokenizer = AutoTokenizer.from_pretrained(default_encoder())
if len(sys.argv) > 2:
    documents, queries = pd.read_parquet(sys.argv[1]), pd.read_parquet(sys.argv[2])
else:
    splits = (str(files("hf_dse") / f"data/embedded/{split}.jsonl") for split in ("train", "validation", "test"))
    pairs = pd.concat([pd.read_json(split, lines=True) for split in splits]).rename(columns={"topic": "doc_id"})
    documents = pairs.groupby("doc_id")["sentence1"].agg(" ".join).rename("text").reset_index()
    tokens = pairs["sentence1"].map(lambda text: len(tokenizer(text, add_special_tokens=False)["input_ids"]))
    start = tokens.groupby(pairs["doc_id"]).cumsum() - tokens
    queries = pairs[(start > 512) & (pairs["label"] >= 4)].rename(columns={"sentence2": "query"})
print(f"{len(documents)} documents, {len(queries)} queries")

softmax = {"layer_types": "full_attention"}
# Projections without weights have no maximum length; positions beyond the 512 of the source are extended.
linear = {"linformer_length": 256, "linformer_projection": "strided", "max_position_embeddings": 4096}
for name, options, max_length in (("softmax, first 512 tokens", softmax, 512), ("linear, one pass", linear, 4096)):
    model = convert_encoder(default_encoder(), **options)
    # The tokenizer stores the 512 tokens of the source.
    tokenizer.model_max_length = max_length
    index = Index(model, documents["text"], ids=documents["doc_id"], processing_class=tokenizer, batch_size=4)
    hits = [hits[0]["id"] for hits in index.search(queries["query"], 1)]
    print(f"{name:<26} finds {100 * (queries['doc_id'] == hits).mean():.1f} % of the documents")
