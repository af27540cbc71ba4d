#!/usr/bin/env bash
# What a small bi-encoder learns to search from: labels; labels and the scores of its own cosine and BM25 together; half of
# these queries, and as many that nobody has labelled. Measured on collections that no training has seen. Finished steps are
# skipped.
#
#   studies/search_stages.sh DATA ENCODER
#
# DATA is that of recipes/flagship/run.sh, ENCODER a folder or Hub id, such as sentence-transformers/all-MiniLM-L6-v2.
# FLAGS are passed to every training, DTYPE to mining, scoring and measuring; ROWS and SEEDS choose some of the trainings.
# Each sees 1,600 queries with 4 documents of at most 128 tokens, as recipes/flagship/search.yaml says, without pairs.
set -euo pipefail
data=$1 encoder=$2 out=${OUT:-outputs/search-stages}
dtype=${DTYPE:-float32}
mkdir -p "$out"

[ -f "$out/search/corpus.jsonl" ] || python recipes/flagship/queries.py "$data" "$out"
mine() {
    [ -f "$out/$1-mined.jsonl" ] || hf-dse mine --model "$encoder" --bm25 --num_negatives 6 --max_length 256 \
        --dtype "$dtype" --output_file "$out/$1-mined.jsonl" "${@:2}"
}
mine labelled --dataset_name "$out/search" --range_max 50
mine unlabelled --corpus_file "$out/unlabelled" --train_file "$out/unlabelled.jsonl" --range_max 30 --relative_margin -1
score() {
    [ -f "$out/$1-scored.jsonl" ] || hf-dse score --bm25_weight 0.3 --model "$encoder" \
        --corpus "$out/$2" --train_file "$out/$1-mined.jsonl" --max_length 256 --dtype "$dtype" \
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
measure source-0 "$encoder"
for seed in ${SEEDS:-42 43 44}; do
    for row in ${ROWS:-labels teacher half}; do
        name="$out/$row-$seed"
        [ -f "$name/results.json" ] || hf-dse distill --config recipes/flagship/search.yaml --train_file "$out/$row.jsonl" \
            --model "$encoder" --layer_types full_attention --num_candidates 4 --num_train_epochs 1 --max_length 128 --seed "$seed" \
            --attention_probs_dropout_prob 0 --hidden_dropout_prob 0 --output_dir "$name" --overwrite_output_dir ${FLAGS:-}
        measure "$row-$seed" "$name/model"
    done
done
python - "$out" <<'END'
import json
import sys
from pathlib import Path

import pandas as pd

from hf_dse.studies.report import summarize, summary_table


rows = []
for file in sorted(Path(sys.argv[1]).glob("*-[0-9]*.json")):
    row, seed = file.stem.split("-")
    (scores,) = json.loads(file.read_text()).values()
    rows.append({"learns from": row, "seed": int(seed), **scores})
results = pd.DataFrame(rows).rename(columns=lambda name: name.replace("nDCG", "ndcg").replace("test", "spearman"))
results["mean ndcg@10"] = results.filter(like="ndcg").mean(axis=1)
metrics = list(results.columns[2:])
print(summary_table(summarize(results, ["learns from", "seed"], metrics), metrics))
END
