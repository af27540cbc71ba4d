#!/usr/bin/env bash
# What a small bi-encoder learns to search from: labels, labels with the scores of its own cosine and BM25, and these
# with queries that nobody has labelled, on collections that no training has seen. Finished steps are skipped.
#
#   studies/search_stages.sh DATA ENCODER
#
# DATA is that of recipes/flagship/run.sh, ENCODER a folder or Hub id, such as sentence-transformers/all-MiniLM-L6-v2. FLAGS
# are passed to every training, DTYPE to mining, scoring and measuring, SEEDS and ROWS are some of the seeds and rows. A row is 1,600 queries with
# 4 documents of at most 128 tokens, trained as in recipes/flagship/search.yaml, without its pairs.
set -euo pipefail
data=$1 encoder=$2 out=${OUT:-outputs/search-stages}
dtype=${DTYPE:-float32}
mkdir -p "$out"

[ -f "$out/search/corpus.jsonl" ] || python recipes/flagship/queries.py "$data" "$out"
[ -f "$out/labelled-mined.jsonl" ] || hf-dse mine --dataset_name "$out/search" --encoder_name_or_path "$encoder" --bm25 \
    --num_candidates 6 --range_max 50 --max_length 256 --dtype "$dtype" --output_file "$out/labelled-mined.jsonl"
[ -f "$out/unlabelled-mined.jsonl" ] || hf-dse mine --corpus_file "$out/unlabelled" --train_file \
    "$out/unlabelled.jsonl" --encoder_name_or_path "$encoder" --bm25 --num_candidates 6 --range_max 30 --relative_margin -1 --max_length 256 \
    --dtype "$dtype" --output_file "$out/unlabelled-mined.jsonl"
score() {
    [ -f "$out/$1-scored.jsonl" ] || hf-dse score --bi_encoder --bm25_weight 0.3 --model_name_or_path "$encoder" \
        --corpus_file "$out/$2" --train_file "$out/$1-mined.jsonl" --max_length 256 --dtype "$dtype" \
        --output_file "$out/$1-scored.jsonl"
}
score labelled search
score unlabelled unlabelled

# After the claims of SciFact, which are first in the file.
sed -n 810,2409p "$out/labelled-mined.jsonl" >"$out/labels.jsonl"
sed -n 810,2409p "$out/labelled-scored.jsonl" >"$out/teacher.jsonl"
{
    head -n 800 "$out/teacher.jsonl"
    head -n 800 "$out/unlabelled-scored.jsonl"
} >"$out/half.jsonl"
measure() {
    [ -f "$out/$1.json" ] || python studies/generality.py "$data" "$2" --dtype "$dtype" --sets STS-B Cranfield NPL CACM \
        --output "$out/$1.json"
}
for seed in ${SEEDS:-42 43 44}; do
    for row in ${ROWS:-labels teacher half}; do
        name="$out/$row-$seed"
        [ -f "$name/results.json" ] || hf-dse distill --config recipes/flagship/search.yaml --train_file "$out/$row.jsonl" \
            --model_name_or_path "$encoder" --layer_types full_attention --bi_encoder_name_or_path "$encoder" \
            --similarity_weight 10 --num_candidates 4 --num_train_epochs 1 --max_length 128 --seed "$seed" \
            --attention_probs_dropout_prob 0 --hidden_dropout_prob 0 --output_dir "$name" --overwrite_output_dir ${FLAGS:-}
        measure "$row-$seed" "$name/model"
    done
done
measure source-0 "$encoder"
python - "$out" <<'END'
# Means and standard deviations over the seeds, x 100.
import sys
from pathlib import Path

import pandas as pd

from hf_dse.common.display import markdown

rows = []
for file in Path(sys.argv[1]).glob("*-[0-9]*.json"):
    row, _, seed = file.stem.rpartition("-")
    (scores,) = pd.read_json(file).items()
    rows.append({"row": row, "seed": seed, **100 * scores[1]})
table = pd.DataFrame(rows).set_index("row").drop(columns="seed")
table["mean of the three"] = table.filter(like="nDCG").mean(axis=1)
parts = table.groupby(level=0, sort=False)
cells = parts.mean().map("{:.2f}".format) + parts.std().map(lambda std: "" if pd.isna(std) else f" ± {std:.2f}")
print(markdown(["trained on", *cells.columns], [[name, *row] for name, row in zip(cells.index, cells.values, strict=True)]))
END
