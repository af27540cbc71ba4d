"""
Search the 2,396 embedded sentences, the lines of a file, or the passages of a folder of .txt and .md files, with faiss
(`pip install hf-dse[st] faiss-cpu`). Less than a minute on 2 CPU cores. `hf-dse search --corpus my_folder` does the
same without Python, and keeps the vectors for the next time.

    python examples/04_semantic_search.py "How can I sleep better?"
    python examples/04_semantic_search.py "How can I sleep better?" my_sentences.txt
    python examples/04_semantic_search.py "How can I sleep better?" my_folder

The first command prints

    0.65  If you have trouble falling asleep, try to go to bed at the same time every even
    0.61  any tips for sleeping on night trains?
    0.60  Good sleep starts with routine. Go to bed and get up at fixed times, even at wee
"""

import sys

from transformers import AutoTokenizer

from hf_dse import DataArguments, Index, convert_encoder, default_encoder, load_corpus, load_pairs


try:
    import faiss
except ImportError:
    sys.exit("This example needs faiss: pip install faiss-cpu")
if len(sys.argv) < 2:
    sys.exit('What to search for? python examples/04_semantic_search.py "How can I sleep better?" [FILE OR FOLDER]')
query = sys.argv[1]
source = default_encoder()
encoder, tokenizer = convert_encoder(source, linformer_length=64), AutoTokenizer.from_pretrained(source)
if len(sys.argv) > 2:
    texts = load_corpus(sys.argv[2])["text"]
else:
    pairs = load_pairs(DataArguments(dataset_name="embedded"))
    texts = [text for split in pairs.values() for name in ("sentence1", "sentence2") for text in split[name]]

# Passages of about as many tokens as the model reads exactly.
index = Index(encoder, texts, chunk_size=64, processing_class=tokenizer)
# The inner product of unit vectors is their cosine. For millions of texts, use an approximate index.
vectors = faiss.IndexFlatIP(index.vectors.shape[1])
vectors.add(index.vectors)
scores, positions = vectors.search(index.encode_queries([query]), 3)
for score, position in zip(scores[0], positions[0], strict=True):
    print(f"{score:.2f}  {' '.join(index.passages[position].split())[:80]}")
