"""
Distil a reranker into an embedding model that searches your documents, without any labelled query: first sentences of
documents stand in for queries, and the model learns how the reranker scores documents for them.

    python examples/10_distil_a_reranker.py DOCUMENTS RERANKER outputs/search "How do planes fly?"

DOCUMENTS is a folder of .txt or .md files or a .txt file with one document per line, RERANKER a cross-encoder of
transformers or sentence-transformers: a folder or a Hub id.
"""

import sys

from hf_dse import (
    DataArguments,
    default_encoder,
    distill,
    encode_document,
    encode_query,
    load_corpus,
    make_queries,
    rank,
)


documents, reranker, output_dir, question = sys.argv[1:5]
corpus = load_corpus(DataArguments(corpus_file=documents))
rankings = make_queries(corpus, "first_sentences", seed=42)
# One query in five is not for training, but measures how well the model finds the document that it is from.
held_out = range(0, len(rankings), 5)
training = [row for row in range(len(rankings)) if row % 5]

# Mines documents that look like answers, scores them with the reranker, converts an encoder to linear attention,
# trains it, evaluates it and writes a folder for transformers and sentence-transformers.
result = distill(
    default_encoder(),
    reranker,
    {"train": rankings.select(training), "test": rankings.select(held_out)},
    output_dir,
    num_negatives=7,
    linformer_length=256,
    max_length=256,
    num_train_epochs=1,
    overwrite_output_dir=True,
    report_to="none",
)
print({name: round(value, 3) for name, value in result.metrics["test"].items()})

# The documents as they are, first sentences included.
vectors = encode_document(result.model, result.processing_class, corpus["text"][:])
query = encode_query(result.model, result.processing_class, [question])
(scores,), (rows,) = rank(query, vectors, top_k=3, show_progress=False)
for score, row in zip(scores, rows, strict=True):
    print(f"{score:.3f}  {corpus['doc_id'][row]}  {corpus['text'][row][:60]!r}")
