#!/usr/bin/env bash
# What does a student without labels learn from a reranker beside the search? Questions that neither the reranker nor
# anybody has labelled, of SQuAD (SET=squad), or about the sections of fairy tales (SET=tales), or the claims of SciFact
# (SET=claims), of which the reranker has learned a quarter. Finished steps are skipped.
#
#   SET=squad studies/reranker_gain.sh DATA ENCODER [RERANKER]
#
# DATA: the folder with squad_sent, fairytaleqa and scifact. RERANKER is the folder of recipes/reranker/train.py;
# without it the scores are those that are kept in teacher_scores, under the name of the set or of SCORES. SEEDS, such
# as "42 43 44": a student of each. FLAGS are passed to the training, such as "--bf16 true --use_cpu true". TOP: texts
# that the reranker reads for each question. NUMBER: questions to learn from. WEIGHTS, such as "0.9 0.1": of the
# reranker and the search as teachers; for each another OUT. On two cores the scores take 10 minutes, a student 10
# minutes of one core.
set -euo pipefail
set=${SET:-squad} encoder=$2 reranker=${3:-} out=${OUT:-outputs/reranker_gain}/${SET:-squad}
# The reranker learned from the first 2,400 questions of SQuAD, and from no tale of these.
case $set in
    squad) collection=(questions "$1/squad_sent") skip=2400 number=1500 length=64 attention=(--linformer_length 64) ;;
    tales) collection=(sections "$1/fairytaleqa") skip=0 number=400 length=256 attention=(--layer_types full_attention) ;;
    claims) collection=(claims "$1/scifact") skip=0 number=400 length=256 attention=(--layer_types full_attention) ;;
    *) echo "SET=$set: it has to be squad, tales or claims" >&2 && exit 2 ;;
esac
data=$out/data
[ -d "$data" ] || python studies/label_budget.py "${collection[@]}" "$data"
scored=studies/teacher_scores/${SCORES:-$set}.parquet
if [ -n "$reranker" ]; then
    [ -f "$out/queries.jsonl" ] || python studies/label_budget.py queries "$data" "$out" --skip $skip \
        --num_queries "${NUMBER:-$number}"
    [ -f "$out/mined.jsonl" ] || hf-dse mine --corpus "$data" --train_file "$out/queries.jsonl" --model "$encoder" \
        --bm25 true --num_negatives 6 --range_max 20 --relative_margin -1 --max_length $length \
        --output_file "$out/mined.jsonl"
    scored=$out/scored.jsonl
    [ -f "$scored" ] || hf-dse score --model "$reranker" "$encoder" --weights ${WEIGHTS:-0.5 0.5} \
        --bm25_weight 0.3 --corpus "$data" --train_file "$out/mined.jsonl" --output_file "$scored"
fi
students=()
for seed in ${SEEDS:-42}; do
    student=$out/student-$seed
    [ -f "$student/results.json" ] || hf-dse distill --stage ranking --model "$encoder" --train_file "$scored" \
        --dataset "$data" "${attention[@]}" --max_length $length --num_candidates 6 --contrastive_weight 0 \
        --per_device_train_batch_size 16 --num_train_epochs 2 --learning_rate 3e-5 --warmup_steps 0.1 --eval_strategy no \
        --save_strategy no --load_best_model_at_end false --report_to none --seed "$seed" \
        --output_dir "$student" --overwrite_output_dir true ${FLAGS:-}
    students+=("$student/model")
done
compared=(hf-dse assess --model "$encoder" --dataset "$data" --max_length $length)
[ -z "$reranker" ] || "${compared[@]}" --compare_with "${students[@]}" --max_queries "${QUERIES:-150}" \
    --rerank "$reranker" --rerank_top "${TOP:-20}"
"${compared[@]}" --compare_with "${students[@]}" --max_queries 3000
