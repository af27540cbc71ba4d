# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
nDCG@10 of what `hf-dse search` finds for judged questions, computed from its output without hf_dse: the rows of
`hf-dse assess` have to be the same.

    python studies/check_search.py docs studies/files/hf_dse_docs.csv --model ENCODER --bm25_weight 0.3

All options after the two files are those of `hf-dse search`.
"""

import csv
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path


def main() -> None:
    corpus, questions, *options = sys.argv[1:]
    relevant: dict[str, set[str]] = {}
    with open(questions, encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            relevant.setdefault(row["query"], set()).add(row["file"])
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "found.jsonl")
        command = ["hf-dse", "search", "--corpus", corpus, "--output_file", str(output), "--top_k", "10", *options]
        subprocess.run([*command, "--query", *relevant], check=True, stdout=subprocess.DEVNULL)
        found = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    values = []
    for result in found:
        wanted = relevant[result["query"]]
        gains = [1 / math.log2(rank + 1) for rank, hit in enumerate(result["results"], 1) if hit["file"] in wanted]
        values.append(sum(gains) / sum(1 / math.log2(rank + 1) for rank in range(1, min(10, len(wanted)) + 1)))
    print(f"nDCG@10 of {len(values)} questions: {100 * sum(values) / len(values):.2f}")


if __name__ == "__main__":
    main()
