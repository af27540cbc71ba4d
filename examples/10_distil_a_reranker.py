"""
Distil a reranker into an embedding model that searches your documents, without any labelled query: first sentences of
documents stand in for queries, and the model learns how the reranker scores documents for them.

    python examples/10_distil_a_reranker.py DOCUMENTS RERANKER outputs/search "How do planes fly?"

DOCUMENTS is a folder of .txt or .md files or a .txt file with one document per line, RERANKER a cross-encoder of
transformers or sentence-transformers: a folder or a Hub id. 13_train_a_teacher.py trains one.
"""

import sys

from sentence_transformers import SentenceTransformer

from hf_dse import default_encoder, distill, evaluate, load_corpus, make_queries, mine, search


documents, reranker, output_dir, question = sys.argv[1:5]
corpus = load_corpus(documents)
rankings = make_queries(corpus, "first_sentences", seed=42)
# One query in five is not for training, but measures how well the model finds the document that it is from.
held_out = rankings.select(range(0, len(rankings), 5))
training = rankings.select([row for row in range(len(rankings)) if row % 5])

# Documents that look like answers, for the reranker to score.
mined = mine(training, SentenceTransformer(default_encoder()), num_negatives=7)

# Scores them with the reranker, converts an encoder to linear attention, trains it and writes a folder for
# transformers and sentence-transformers.
result = distill(
    default_encoder(),
    reranker,
    {"train": mined},
    output_dir,
    linformer_length=256,
    max_length=256,
    num_train_epochs=1,
    overwrite_output_dir=True,
    report_to="none",
)
model = SentenceTransformer(str(result.path))
metrics = evaluate(model, held_out, show_progress=False)
print({name: round(value, 3) for name, value in metrics.items()})

# The documents as they are, first sentences included.
(hits,) = search(model, [question], corpus["text"][:], top_k=3, show_progress=False)
for hit in hits:
    print(f"{hit['score']:.3f}  {corpus['doc_id'][hit['row']]}  {hit['text'][:60]!r}")
