"""
Convert a pretrained encoder to linear attention and compare sentences. No training, a few seconds on a CPU.

    python examples/01_convert_and_compare.py
    python examples/01_convert_and_compare.py sentence-transformers/all-MiniLM-L6-v2
"""

import sys

import torch
from transformers import AutoTokenizer

from hf_dse import convert_encoder, default_encoder


source = sys.argv[1] if len(sys.argv) > 1 else default_encoder()
tokenizer = AutoTokenizer.from_pretrained(source)
# The outputs equal those of the source for up to 64 tokens; above, attention costs O(n * 64).
model = convert_encoder(source, linformer_length=64)

sentences = ["A plane is taking off.", "An aircraft leaves the runway.", "A cat is drinking milk."]
with torch.no_grad():
    embeddings = model(**tokenizer(sentences, padding=True, return_tensors="pt")).pooler_output
for sentence, similarity in zip(sentences, torch.cosine_similarity(embeddings[:1], embeddings), strict=True):
    print(f"{similarity:.2f}  {sentence}")
