#!/usr/bin/env bash
# What does a student without labels learn from a reranker beside the search? Questions of SQuAD that neither the reranker
# nor anybody has labelled. Finished steps are skipped.
#
#   studies/reranker_gain.sh DATA ENCODER [RERANKER]
#
# DATA: the folder with squad_sent. RERANKER is the folder of recipes/reranker/train.py; without it the scores are those
# that are kept in teacher_scores/squad.parquet. FLAGS are passed to the training, such as "--bf16 true --use_cpu true",
# and DTYPE to mining, scoring and measuring. On two cores the scores take 10 minutes, a student 10 minutes of one core.
set -euo pipefail
encoder=$2 reranker=${3:-} out=${OUT:-outputs/reranker_gain} dtype=${DTYPE:-float32}
squad=$out/squad
[ -d "$squad" ] || python studies/label_budget.py questions "$1/squad_sent" "$squad"
scored=studies/teacher_scores/squad.parquet
if [ -n "$reranker" ]; then
    # The reranker learned from the first 2,400 questions.
    [ -f "$out/queries.jsonl" ] || python studies/label_budget.py queries "$squad" "$out" --skip 2400 --num_queries 1500
    [ -f "$out/mined.jsonl" ] || hf-dse mine --corpus "$squad" --train_file "$out/queries.jsonl" --model "$encoder" \
        --bm25 true --num_negatives 6 --range_max 20 --relative_margin -1 --max_length 64 --dtype "$dtype" \
        --output_file "$out/mined.jsonl"
    scored=$out/scored.jsonl
    [ -f "$scored" ] || hf-dse score --model "$reranker" "$encoder" --bm25_weight 0.3 --corpus "$squad" \
        --train_file "$out/mined.jsonl" --dtype "$dtype" --output_file "$scored"
fi
[ -f "$out/student/results.json" ] || hf-dse distill --stage ranking --model "$encoder" --train_file "$scored" \
    --dataset "$squad" --linformer_length 64 --max_length 64 --num_candidates 6 --contrastive_weight 0 \
    --per_device_train_batch_size 16 --num_train_epochs 2 --learning_rate 3e-5 --warmup_steps 0.1 --eval_strategy no \
    --save_strategy no --load_best_model_at_end false --report_to none --seed "${SEED:-42}" \
    --output_dir "$out/student" --overwrite_output_dir true ${FLAGS:-}
if [ -n "$reranker" ]; then
    # It reads 20 sentences for each of 150 questions.
    hf-dse assess --model "$encoder" --compare_with "$out/student/model" --dataset "$squad" --max_queries 150 \
        --rerank "$reranker" --rerank_top 20 --dtype "$dtype" --max_length 64
fi
hf-dse assess --model "$encoder" --compare_with "$out/student/model" --dataset "$squad" --max_queries 3000 \
    --dtype "$dtype" --max_length 64
