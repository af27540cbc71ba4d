#!/usr/bin/env bash
# Where does a teacher pay for long documents? Fairy tales that are found by questions: few labels, many, a teacher, or
# both. Finished steps are skipped.
#
#   studies/long_budget.sh DATA STUDENT_ENCODER
#
# DATA: the folder with fairytaleqa. The encoder is a folder or Hub id, such as sentence-transformers/all-MiniLM-L6-v2.
# FLAGS are passed to every training, such as "--bf16 true --use_cpu true", and DTYPE to mining and scoring; JOBS is the
# number of parallel trainings.
set -euo pipefail
export BUDGET=${BUDGET:-outputs/long_budget}
export LONG=$BUDGET/long
dtype=${DTYPE:-float32}
mkdir -p "$BUDGET"

[ -d "$LONG" ] || python recipes/long/questions.py "$1" "$LONG" --sets fairytaleqa
[ -d "$BUDGET/tales" ] || python studies/label_budget.py tales "$LONG" "$BUDGET/tales"
[ -f "$BUDGET/queries.jsonl" ] || python studies/label_budget.py queries "$BUDGET/tales" "$BUDGET" --num_queries 480
[ -f "$BUDGET/mined.jsonl" ] || hf-dse mine --corpus "$BUDGET/tales" --train_file "$BUDGET/queries.jsonl" \
    --model "$2" --bm25 true --num_negatives 6 --range_max 20 --relative_margin -1 --max_length 512 \
    --dtype "$dtype" --output_file "$BUDGET/mined.jsonl"
[ -f "$BUDGET/scored.jsonl" ] || hf-dse score --model "$2" --windows best --max_length 130 \
    --bm25_weight 0.6 --corpus "$BUDGET/tales" --train_file "$BUDGET/mined.jsonl" --dtype "$dtype" \
    --output_file "$BUDGET/scored.jsonl"
[ -f "$BUDGET/labels-all.jsonl" ] || python studies/label_budget.py budgets "$BUDGET/tales" "$BUDGET"
[ -f "$BUDGET/start/config.json" ] || hf-dse convert --model "$2" --output_dir "$BUDGET/start" --layer_types \
    chunked_attention chunked_attention chunked_attention chunked_attention linear_attention linear_attention \
    --linformer_projection strided --linformer_length 1024 --max_position_embeddings 8192 \
    --hidden_dropout_prob 0 --attention_probs_dropout_prob 0
hf-dse study studies/long_budget.yaml --output_dir "$BUDGET/study" --jobs "${JOBS:-1}" --flags="${FLAGS:-}"
hf-dse study report studies/long_budget.yaml --metrics test.ndcg@10 test.mrr@10 test.recall@1
