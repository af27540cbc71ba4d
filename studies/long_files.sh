#!/usr/bin/env bash
# The search in a folder of long files, before and after a distillation without labels: the four commands of the README,
# and one table of source, student and reranker by whole files and by passages.
#
#   studies/long_files.sh ENCODER RERANKER CORPUS QUESTIONS OUT
#
# CORPUS is docs/ or a folder of studies/prepare_files.py, QUESTIONS its table in studies/files/. FLAGS are passed to the
# training, such as "--bf16 true --use_cpu true", and DTYPE to mining; finished steps are skipped.
set -euo pipefail
encoder=$1 reranker=$2 corpus=$3 questions=$4 out=$5
mkdir -p "$out"
[ -f "$out/mined.parquet" ] || hf-dse mine --corpus "$corpus" --queries_from first_sentences --num_queries 600 --model "$encoder" \
    --bm25 true --num_negatives 7 --dtype "${DTYPE:-float32}" --output_file "$out/mined.parquet"
[ -f "$out/student/results.json" ] || hf-dse distill --stage ranking --model "$encoder" --teacher "$reranker" \
    --train_file "$out/mined.parquet" --layer_types full_attention --max_length 256 --num_train_epochs 1 \
    --output_dir "$out/student" --overwrite_output_dir true ${FLAGS:-}
hf-dse assess --model "$encoder" --compare_with "$out/student" --corpus "$corpus" --test_file "$questions" \
    --rerank "$reranker" --max_length 256
