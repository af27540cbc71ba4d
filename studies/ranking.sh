#!/usr/bin/env bash
# SciFact from its labels to students: mined negatives, a teacher, its scores, and the study ranking.yaml. Finished steps
# are skipped.
#
#   studies/ranking.sh DATA TEACHER_ENCODER STUDENT_ENCODER
#
# DATA: the folder with scifact. The encoders are folders or Hub ids, such as sentence-transformers/all-mpnet-base-v2 and
# sentence-transformers/all-MiniLM-L6-v2. FLAGS are passed to every training, such as "--bf16 true --use_cpu true", and
# DTYPE to mining and scoring; JOBS is the number of parallel trainings.
set -euo pipefail
export DATA=$1 ENCODER=$3 RANKING=${RANKING:-outputs/ranking}
teacher=$2
mkdir -p "$RANKING"

# The judgements are complete, so documents that score above a positive are no positives: no margin.
[ -f "$RANKING/scifact-mined.jsonl" ] || hf-dse mine --dataset_name "$DATA/scifact" --encoder_name_or_path "$ENCODER" \
    --bm25 true --num_candidates 10 --range_max 50 --relative_margin -1 --dtype "${DTYPE:-float32}" \
    --output_file "$RANKING/scifact-mined.jsonl"
if [ ! -f "$RANKING/scifact-scored.jsonl" ]; then
    [ -f "$RANKING/teacher/all_results.json" ] || hf-dse teacher --model_name_or_path "$teacher" \
        --train_file "$RANKING/scifact-mined.jsonl" --max_length 256 --num_negatives 3 --num_train_epochs 2 \
        --per_device_train_batch_size 8 --learning_rate 3e-5 --output_dir "$RANKING/teacher" --overwrite_output_dir true \
        --report_to none --seed 42 ${FLAGS:-}
    hf-dse score --model_name_or_path "$RANKING/teacher" --train_file "$RANKING/scifact-mined.jsonl" \
        --dtype "${DTYPE:-float32}" --output_file "$RANKING/scifact-scored.jsonl"
fi
hf-dse study studies/ranking.yaml --output_dir "$RANKING/study" \
    --jobs "${JOBS:-1}" --flags="${FLAGS:-}"
hf-dse study report studies/ranking.yaml \
    --metrics test.ndcg@10 test.mrr@10 test.recall@100 --baseline "learns from=labels"
