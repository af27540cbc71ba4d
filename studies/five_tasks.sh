#!/usr/bin/env bash
# Data, teachers, their scores and students of the five tasks. Finished steps are skipped.
#
#   studies/five_tasks.sh DATA TEACHER_ENCODER STUDENT_ENCODER
#
# DATA: see studies/prepare_five_tasks.py. The encoders are folders or Hub ids, such as
# sentence-transformers/all-mpnet-base-v2 and sentence-transformers/all-MiniLM-L6-v2. FLAGS are passed to every
# training and DTYPE to the scoring, as in recipes/flagship/run.sh; JOBS is the number of parallel trainings. The
# teachers' scores are stored in teacher_scores; TEACHER=1 trains the teachers and scores again (4 hours on a core).
set -euo pipefail
data=$1 teacher=$2
export ENCODER=$3 FIVE_TASKS=${FIVE_TASKS:-outputs/five-tasks}

[ -d "$FIVE_TASKS/data" ] || python studies/prepare_five_tasks.py "$data" "$FIVE_TASKS/data"
for task in stsb mrpc qnli nli qqp; do
    scored=$FIVE_TASKS/scored/$task.parquet
    [ -f "$scored" ] || [ -n "${TEACHER:-}" ] || python recipes/kept_scores.py add \
        "$FIVE_TASKS/data/$task/train.parquet" "studies/teacher_scores/$task.parquet" "$scored" || true
    [ -f "$scored" ] && continue
    name=${task/#nli/mnli} epochs=3 symmetric=true
    [ $task = nli ] || [ $task = qqp ] && epochs=2
    [ $task = nli ] || [ $task = qnli ] && symmetric=false
    if [ ! -f "$FIVE_TASKS/teachers/$task/model.safetensors" ]; then
        python examples/13_train_a_teacher.py --model_name_or_path "$teacher" --task_name $name \
            --dataset_name "$FIVE_TASKS/data/$task" --symmetric $symmetric --num_train_epochs $epochs --learning_rate 3e-5 \
            --output_dir "$FIVE_TASKS/teachers/$task" --seed 42 ${FLAGS:-}
    fi
    hf-dse score --model "$FIVE_TASKS/teachers/$task" --task_name $name --symmetric false \
        --dataset "$FIVE_TASKS/data/$task" --dtype "${DTYPE:-float32}" --output_file "$scored"
done
hf-dse study studies/five_tasks.yaml --jobs "${JOBS:-1}" --flags="${FLAGS:-}"
hf-dse study report studies/five_tasks.yaml --metrics test.accuracy test.f1 test.pearson \
    --baseline "student=mlp, labels"
