# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Texts for the long student: whole articles, and their leads so that short texts stay where they were.

    python recipes/long/texts.py DATA/longwiki/docs.parquet OUT/texts.parquet [NUM_ARTICLES [FIRST]]

The table needs the columns `split` (only `train` is used), `lead` and `body`.
"""

import sys
from pathlib import Path

import pandas as pd


source, target = Path(sys.argv[1]), Path(sys.argv[2])
first = int(sys.argv[4]) if len(sys.argv) > 4 else 0
last = first + int(sys.argv[3]) if len(sys.argv) > 3 else None
articles = pd.read_parquet(source)
articles = articles[articles["split"] == "train"][first:last]
target.parent.mkdir(parents=True, exist_ok=True)
pd.DataFrame({"text": [*articles["body"], *articles["lead"]]}).to_parquet(target, index=False)
print(f"{2 * len(articles)} texts written to {target}")
