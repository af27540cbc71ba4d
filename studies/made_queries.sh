#!/usr/bin/env bash
# What are made queries worth? A student of each kind, which learns which text a query is from, and all in one table.
# Finished steps are skipped.
#
#   KINDS="headings first_sentences" studies/made_queries.sh CORPUS ENCODER
#
# CORPUS is in the layout of BEIR, or a folder of files, with the judged queries in JUDGED as options of `hf-dse assess`:
# "--corpus CORPUS --test_file studies/files/django.csv". CHUNK is the unit, 128 for files, and LENGTH the tokens that a
# student reads in its training, 160 for such passages and 256 for whole texts. FLAGS are passed to the training, such as
# "--bf16 true --use_cpu true". On one core a student of 900 queries takes 5 to 10 minutes.
set -euo pipefail
corpus=$1 encoder=$2 out=${OUT:-outputs/made_queries} students=()
for kind in ${KINDS:-headings first_sentences keywords}; do
    [ -f "$out/$kind.parquet" ] || python studies/made_queries.py "$corpus" "$out" --model "$encoder" --kinds "$kind" \
        --num_queries "${QUERIES:-900}" --chunk_size "${CHUNK:-128}"
    [ -f "$out/$kind/results.json" ] || hf-dse distill --stage ranking --model "$encoder" \
        --train_file "$out/$kind.parquet" --layer_types full_attention --max_length "${LENGTH:-160}" --num_candidates 4 \
        --num_train_epochs 1 --learning_rate 3e-5 --warmup_steps 0.1 --eval_strategy no --save_strategy no \
        --load_best_model_at_end false --report_to none --seed "${SEED:-42}" --output_dir "$out/$kind" \
        --overwrite_output_dir true ${FLAGS:-}
    students+=("$out/$kind/model")
done
hf-dse assess --model "$encoder" --compare_with "${students[@]}" --max_length 256 --max_queries 1000 \
    ${JUDGED:---dataset $corpus}
