#!/usr/bin/env bash
# Data, teachers and students of the five tasks. What is finished is not done again.
#
#   studies/five_tasks.sh DATA TEACHER_ENCODER STUDENT_ENCODER [flags of hf-dse teacher]
#
# DATA: see studies/prepare_five_tasks.py. The encoders are folders or Hub ids, such as
# sentence-transformers/all-mpnet-base-v2 and sentence-transformers/all-MiniLM-L6-v2.
set -euo pipefail
data=$1 teacher=$2
export ENCODER=$3 FIVE_TASKS=${FIVE_TASKS:-outputs/five-tasks}
shift 3

[ -d "$FIVE_TASKS/data" ] || python studies/prepare_five_tasks.py "$data" "$FIVE_TASKS/data"
for task in stsb mrpc qqp qnli nli; do
    name=${task/#nli/mnli}
    folder=$FIVE_TASKS/teachers/$task
    if [ ! -f "$folder/all_results.json" ]; then
        hf-dse teacher --model_name_or_path "$teacher" --task_name "$name" --dataset_name "$FIVE_TASKS/data/$task" \
            --output_dir "$folder" --overwrite_output_dir true --seed 42 "$@"
    fi
done
hf-dse study studies/five_tasks.yaml
hf-dse study report studies/five_tasks.yaml --metrics test.accuracy test.f1 test.pearson --baseline training=labels
