#!/usr/bin/env bash
# Where does a teacher pay? Captions of one image that find each other: few labels, many, a teacher, or both. Finished
# steps are skipped.
#
#   studies/label_budget.sh DATA TEACHER_ENCODER STUDENT_ENCODER
#
# DATA: the folder with multi30k. The encoders are folders or Hub ids, such as sentence-transformers/all-mpnet-base-v2 and
# sentence-transformers/all-MiniLM-L6-v2. FLAGS are passed to every training, such as "--bf16 true --use_cpu true", and
# DTYPE to mining, scoring and evaluation; JOBS is the number of parallel trainings.
set -euo pipefail
export ENCODER=$3 BUDGET=${BUDGET:-outputs/label_budget}
export CAPTIONS=$BUDGET/captions
teacher=$2 dtype=${DTYPE:-float32}
mkdir -p "$BUDGET"

[ -d "$CAPTIONS" ] || python studies/label_budget.py captions "$1/multi30k" "$CAPTIONS"
mine() {
    hf-dse mine --model "$ENCODER" --bm25 true --num_negatives 6 --range_max 20 --relative_margin -1 \
        --max_length 32 --dtype "$dtype" "$@"
}
# The teacher learns from the first 1,200 queries, the students from the others.
[ -f "$BUDGET/labelled.jsonl" ] || mine --dataset_name "$CAPTIONS" --output_file "$BUDGET/labelled.jsonl"
[ -f "$BUDGET/teacher/model.safetensors" ] || python examples/13_train_a_teacher.py --model_name_or_path "$teacher" \
    --train_file "$BUDGET/labelled.jsonl" --max_train_samples 1200 --max_length 96 --num_negatives 3 \
    --num_train_epochs 1 --output_dir "$BUDGET/teacher" --seed 42 ${FLAGS:-}
[ -f "$BUDGET/queries.jsonl" ] || python studies/label_budget.py queries "$CAPTIONS" "$BUDGET" --skip 1200
[ -f "$BUDGET/mined.jsonl" ] || mine --corpus_file "$CAPTIONS" --train_file "$BUDGET/queries.jsonl" \
    --output_file "$BUDGET/mined.jsonl"
[ -f "$BUDGET/scored.jsonl" ] || hf-dse score --model "$BUDGET/teacher" --train_file "$BUDGET/mined.jsonl" \
    --max_length 96 --dtype "$dtype" --output_file "$BUDGET/scored.jsonl"
[ -f "$BUDGET/both-first.jsonl" ] || python studies/label_budget.py budgets "$CAPTIONS" "$BUDGET" --skip 1200 \
    --labelled_file "$BUDGET/labelled.jsonl"
# Another teacher, which nobody has trained: the cosines of the larger encoder.
mkdir -p "$BUDGET/cosine"
[ -f "$BUDGET/cosine/scored.jsonl" ] || hf-dse score --model "$teacher" \
    --corpus "$CAPTIONS" --train_file "$BUDGET/mined.jsonl" --max_length 32 --dtype "$dtype" \
    --output_file "$BUDGET/cosine/scored.jsonl"
[ -f "$BUDGET/cosine/teacher.jsonl" ] || python studies/label_budget.py budgets "$CAPTIONS" "$BUDGET/cosine" --skip 1200
hf-dse study studies/label_budget.yaml --output_dir "$BUDGET/study" --jobs "${JOBS:-1}" --flags="${FLAGS:-}"
hf-dse study report studies/label_budget.yaml --metrics test.ndcg@10 test.mrr@10 test.recall@1 \
    --baseline "learns from=0 labels, teacher"
hf-dse evaluate --model "$ENCODER" --dataset "$CAPTIONS" --split test --bm25 true --max_length 32 \
    --dtype "$dtype" --compare_with "$teacher"
