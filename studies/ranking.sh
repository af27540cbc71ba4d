#!/usr/bin/env bash
# SciFact from its labels, or from none, to students: mined negatives, scores of cosine and BM25 together, and the study
# ranking.yaml. Finished steps are skipped.
#
#   studies/ranking.sh DATA STUDENT_ENCODER
#
# DATA: the folder with scifact. The encoder is a folder or Hub id, such as sentence-transformers/all-MiniLM-L6-v2. FLAGS
# are passed to every training, such as "--bf16 true --use_cpu true", and DTYPE to mining and scoring; JOBS is the number
# of parallel trainings. A cross-encoder's scores are stored in teacher_scores; TEACHER=ENCODER, such as
# sentence-transformers/all-mpnet-base-v2, trains it and scores again (an hour on two cores), and wants squad_sent in DATA.
set -euo pipefail
export DATA=$1 ENCODER=$2 RANKING=${RANKING:-outputs/ranking}
dtype=${DTYPE:-float32}
mkdir -p "$RANKING"

mine() {
    [ -f "$RANKING/$1-mined.jsonl" ] || hf-dse mine --dataset "$DATA/scifact" --model "$ENCODER" \
        --bm25 true --num_negatives 10 --range_max 50 --relative_margin -1 --max_length 256 --dtype "$dtype" \
        --output_file "$RANKING/$1-mined.jsonl" "${@:2}"
}
score() {
    [ -f "$RANKING/$1.jsonl" ] || hf-dse score --model "$ENCODER" --bm25_weight 0.3 \
        --train_file "$RANKING/$1-mined.jsonl" --max_length 256 --dtype "$dtype" --output_file "$RANKING/$1.jsonl" "${@:2}"
}
# The judgements are complete, so documents that score above a positive are no positives: no margin.
mine claims
score claims --corpus_file "$DATA/scifact"
# As many sentences, each taken out of the abstract that it is from, which stands for the document that is relevant. The
# whole abstracts of the corpus would have the best BM25 scores, so the candidates stand in for it.
# The row in docs/results.md is of random sentences, which the code of commit 2e3589a has.
mine sentences --queries_from first_sentences --num_queries 809
score sentences
# First on questions about sentences, for 919 claims and abstracts alone are few.
teacher() {
    [ -f "$RANKING/$1/model.safetensors" ] || python examples/13_train_a_teacher.py --output_dir "$RANKING/$1" \
        --num_negatives 3 --num_train_epochs 1 ${FLAGS:-} "${@:2}"
}
if [ -n "${TEACHER:-}" ]; then
    squad=$RANKING/squad
    [ -d "$squad" ] || python studies/label_budget.py questions "$DATA/squad_sent" "$squad"
    [ -f "$squad-mined.jsonl" ] || hf-dse mine --dataset "$squad" --bm25 true --num_negatives 8 --sampling random \
        --range_max 100 --output_file "$squad-mined.jsonl"
    teacher squad-teacher --model_name_or_path "$TEACHER" --train_file "$squad-mined.jsonl" --max_train_samples 2400 \
        --max_length 80
    teacher teacher --model_name_or_path "$RANKING/squad-teacher" --train_file "$RANKING/claims-mined.jsonl" \
        --max_length 160 --per_device_train_batch_size 8 --learning_rate 3e-5
    [ -f "$RANKING/reranker.jsonl" ] || hf-dse score --model "$RANKING/teacher" --max_length 160 \
        --train_file "$RANKING/claims-mined.jsonl" --dtype "$dtype" --output_file "$RANKING/reranker.jsonl"
    python recipes/kept_scores.py ids "$RANKING/reranker.jsonl" studies/teacher_scores/scifact.parquet
fi
hf-dse study studies/ranking.yaml --output_dir "$RANKING/study" --jobs "${JOBS:-1}" --flags="${FLAGS:-}"
hf-dse study report studies/ranking.yaml --metrics test.ndcg@10 test.mrr@10 test.recall@100 \
    --baseline "learns from=labels"
