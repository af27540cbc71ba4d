#!/usr/bin/env bash
# Where does a teacher pay? Questions that find the sentences that answer them: few labels, many, a teacher, or both.
# Finished steps are skipped.
#
#   studies/squad_budget.sh DATA TEACHER_ENCODER STUDENT_ENCODER
#
# DATA: the folder with squad_sent. The encoders are folders or Hub ids, such as sentence-transformers/all-mpnet-base-v2 and
# sentence-transformers/all-MiniLM-L6-v2. FLAGS are passed to every training, such as "--bf16 true --use_cpu true", and
# DTYPE to mining and scoring; JOBS is the number of parallel trainings. On two cores the teacher takes half an hour, its
# scores 12 minutes, a run 3 to 9 minutes on one core.
set -euo pipefail
export ENCODER=$3 BUDGET=${BUDGET:-outputs/squad_budget}
export SQUAD=$BUDGET/squad
dtype=${DTYPE:-float32}
mkdir -p "$BUDGET"

[ -d "$SQUAD" ] || python studies/label_budget.py questions "$1/squad_sent" "$SQUAD"
# The teacher learns from the first 2,400 questions and easy negatives, the students from others.
[ -f "$BUDGET/labelled.jsonl" ] || hf-dse mine --dataset "$SQUAD" --bm25 true --num_negatives 8 --sampling random \
    --range_max 100 --output_file "$BUDGET/labelled.jsonl"
[ -f "$BUDGET/teacher/model.safetensors" ] || python examples/13_train_a_teacher.py --model_name_or_path "$2" \
    --train_file "$BUDGET/labelled.jsonl" --max_train_samples 2400 --max_length 80 --num_negatives 3 \
    --num_train_epochs 1 --output_dir "$BUDGET/teacher" --seed 42 ${FLAGS:-}
[ -f "$BUDGET/queries.jsonl" ] || python studies/label_budget.py queries "$SQUAD" "$BUDGET" --skip 2400 --num_queries 2400
[ -f "$BUDGET/mined.jsonl" ] || hf-dse mine --corpus "$SQUAD" --train_file "$BUDGET/queries.jsonl" \
    --model "$ENCODER" --bm25 true --num_negatives 6 --range_max 20 --relative_margin -1 --max_length 64 \
    --dtype "$dtype" --output_file "$BUDGET/mined.jsonl"
[ -f "$BUDGET/scored.jsonl" ] || hf-dse score --model "$BUDGET/teacher" --train_file "$BUDGET/mined.jsonl" \
    --max_length 80 --dtype "$dtype" --output_file "$BUDGET/scored.jsonl"
[ -f "$BUDGET/both-200.jsonl" ] || python studies/label_budget.py budgets "$SQUAD" "$BUDGET" --budgets 50 200
hf-dse study studies/squad_budget.yaml --output_dir "$BUDGET/study" --jobs "${JOBS:-1}" --flags="${FLAGS:-}"
hf-dse study report studies/squad_budget.yaml --metrics test.ndcg@10 test.mrr@10 test.recall@1 test.recall@10 \
    --baseline "learns from=0 labels, teacher"
