#!/usr/bin/env bash
# Rebuilds checkpoints/dse-minilm-l6 from packages and local data. Finished steps are skipped. The published checkpoint also
# kept similarities of its source (`similarity_weight`), which gave nothing beyond the noise; commit 77a59e2 has the code.
#
#   recipes/flagship/run.sh DATA [OUT [CHECKPOINT]]
#
# DATA has the folders stsb, sts12_16, multi30k, nli, mrpc, sick, scifact, squad_sent, qnli, fairytaleqa, pubmedqa, rfc,
# longwiki, cranfield, npl and cacm with parquet files. FLAGS are passed to every training: FLAGS="--bf16 --use_cpu" halves the
# hours on a CPU with AVX-512 bf16 or AMX, and on other CPUs bf16 is far slower than float32. DTYPE=bfloat16 does the same
# for what the trainings use, and for the last measurement. RESEARCH=0 leaves out the texts that are for research only, MRPC
# and the captions of Flickr30k.
set -euo pipefail
here=$(dirname "$0") data=$1 out=${2:-outputs/flagship} checkpoint=${3:-checkpoints/dse-minilm-l6}
flags=${FLAGS:-} dtype=${DTYPE:-float32}
encoder=$(python -c "from hf_dse import default_encoder; print(default_encoder())")
mkdir -p "$out"

# Unlabelled pairs without sentences of evaluation sets.
[ -f "$out/extra.parquet" ] || python "$here/pairs.py" labelled "$data" "$out"
augment() {
    local name=$1
    shift
    [ -f "$out/made_$name.parquet" ] || python "$here/../augment.py" make "$@" --output "$out/made_$name.parquet" \
        --exclude_texts "$data"/stsb/{validation,test}.parquet "$data/sick/validation.parquet" \
        --exclude "$data/stsb/train.parquet"
}
similar=(--encoder "$encoder" --num_random 0 --num_similar)
augment stsb "$data/stsb/train.parquet" "${similar[@]}" 3 --pool 8 --row_pairs 0 --num_random 1
augment sts "$data"/sts12_16/sts1{2,3,4,5,6}_test.parquet "${similar[@]}" 1 --pool 5
if [ "${RESEARCH:-1}" != 0 ]; then
    # The premises of SNLI are captions of Flickr30k, too.
    augment multi30k "$data/multi30k/train.parquet:caption1,caption2,caption3,caption4,caption5" "${similar[@]}" 1 \
        --pool 5 --max_rows 1500 --row_pairs 2 --num_pairs 6000
    augment snli "$data/nli/snli.parquet" --max_rows 4000 --num_random 0
    augment mrpc "$data/mrpc/train.parquet" "${similar[@]}" 1 --pool 4
fi
[ -f "$out/pool.parquet" ] || python "$here/pairs.py" unlabelled "$out"

# The teacher's scores are stored next to this file. TEACHER=1 trains the teacher and scores again (1.5 hours).
sts=(--num_labels 1 --symmetric true --validation_file "$data/stsb/validation.parquet"
    --test_file "$data/stsb/test.parquet")
for name in gold pool; do
    [ -f "$out/scored_$name.parquet" ] || [ -n "${TEACHER:-}" ] || python "$here/../kept_scores.py" add \
        "$out/$name.parquet" "$here/teacher_scores.parquet" "$out/scored_$name.parquet" || break
done
if [ ! -f "$out/scored_pool.parquet" ]; then
    source "$here/teacher.sh"
fi
[ -f "$out/augmented_stsb.parquet" ] || python "$here/pairs.py" training "$out"

# Similarity: three students, and the mean of their weights.
merge() {
    [ -f "$1/config.json" ] || python "$here/../merge.py" "${@:2}" --output_dir "$1"
}
for seed in 42 43 44; do
    [ -f "$out/student-$seed/results.json" ] || hf-dse distill --config "$here/student.yaml" --seed "$seed" \
        --model "$encoder" --train_file "$out/train.parquet" "${sts[@]:4}" --output_dir "$out/student-$seed" \
        --overwrite_output_dir $flags
done
merge "$out/pairs" "$out"/student-{42,43,44}/model

# Length: the same and the source with layers for 16,384 tokens, which change nothing up to 512.
[ -f "$out/start/config.json" ] || python "$here/lengthen.py" "$out/pairs" "$out/start"
[ -f "$out/source/config.json" ] || hf-dse convert --model "$encoder" --output_dir "$out/source" \
    --layer_types chunked_attention chunked_attention chunked_attention chunked_attention linear_attention \
    linear_attention --linformer_projection strided \
    --linformer_length 1024 --max_position_embeddings 16384 --hidden_dropout_prob 0 \
    --attention_probs_dropout_prob 0 --max_length 256

# Search: queries with mined negatives, mixed with the labelled pairs. First from the pairs' student, then from the middle
# between that and the source. Version 2 of the checkpoint was the mean of both.
[ -f "$out/search/corpus.jsonl" ] || python "$here/queries.py" "$data" "$out"
[ -f "$out/mined.jsonl" ] || hf-dse mine --dataset "$out/search" --model "$out/pairs" --bm25 \
    --num_negatives 6 --range_max 50 --max_length 256 --dtype "$dtype" --output_file "$out/mined.jsonl"
search() {
    local name=$1
    shift
    [ -f "$out/$name/results.json" ] || hf-dse distill --config "$here/search.yaml" --output_dir "$out/$name" \
        --corpus "$out/search" --train_file "$out/mined.jsonl" --pairs_file "$out/scored_gold.parquet" \
        --overwrite_output_dir $flags "$@"
}
search search-1 --model_name_or_path "$out/start" --num_train_epochs 2 --seed 42
merge "$out/middle" "$out/search-1/model" "$out/source"
search search-2 --model_name_or_path "$out/middle" --num_train_epochs 1 --seed 43
merge "$out/mean" "$out"/search-{1,2}/model
[ -f "$out/version-2/config.json" ] || python "$here/export.py" "$data" "$out" "$out/version-2" mean

# A teacher for the candidates, cosine and BM25 together, which finds more than each of them, and queries that nobody
# has labelled.
[ -f "$out/unlabelled-mined.jsonl" ] || hf-dse mine --corpus "$out/unlabelled" --train_file "$out/unlabelled.jsonl" \
    --model "$encoder" --bm25 --num_negatives 6 --range_max 30 --relative_margin -1 --max_length 256 \
    --dtype "$dtype" --output_file "$out/unlabelled-mined.jsonl"
score() {
    [ -f "$out/$2-scored.jsonl" ] || hf-dse score --bm25_weight 0.3 --model "$encoder" \
        --corpus "$out/$1" --train_file "$out/$2.jsonl" --max_length 256 --dtype "$dtype" \
        --output_file "$out/$2-scored.jsonl"
}
score search mined
score unlabelled unlabelled-mined
# In the order of their use: the 809 claims of SciFact, queries without labels, the other queries.
{
    head -n 809 "$out/mined-scored.jsonl"
    cat "$out/unlabelled-mined-scored.jsonl"
    tail -n +810 "$out/mined-scored.jsonl"
} >"$out/fused.jsonl"
search search-3 --model_name_or_path "$out/version-2" --corpus_file "$out/unlabelled" --train_file "$out/fused.jsonl" \
    --max_train_samples 14000 --num_candidates 4 \
    --num_train_epochs 1 --seed 44 --save_steps 0.5 --save_total_limit 2

# The mean of the weights after half of the steps and at the end was version 3 of the checkpoint.
half=$(find "$out/search-3" -maxdepth 1 -name "checkpoint-*" | sort -V | head -n 1)
merge "$out/version-3" "$half" "$out/search-3/model"

# A student of SciFact's claims alone, which reads whole abstracts, the run "softmax" of studies/ranking_attention.yaml with
# RANKING=OUT. 0.15 of the weights are its.
claims="$out/claims-whole-mined.jsonl"
[ -f "$claims" ] || hf-dse mine --dataset "$data/scifact" --model "$encoder" --bm25 \
    --num_negatives 10 --range_max 50 --relative_margin -1 --max_length 512 --dtype "$dtype" --output_file "$claims"
[ -f "$out/claims/results.json" ] || hf-dse distill --stage ranking --model "$encoder" \
    --dataset "$data/scifact" --train_file "$claims" --layer_types full_attention --max_length 512 \
    --attention_probs_dropout_prob 0 --freeze_layers 2 --num_candidates 4 --per_device_train_batch_size 16 \
    --num_train_epochs 3 --learning_rate 4e-5 --warmup_steps 0.1 --eval_strategy no --save_strategy no \
    --load_best_model_at_end false --report_to none --seed 42 --output_dir "$out/claims" --overwrite_output_dir $flags
for name in version-3 claims/model; do
    [ -f "$out/long/$name/config.json" ] || python "$here/lengthen.py" "$out/$name" "$out/long/$name"
done
merge "$out/final" "$out"/long/{version-3,claims/model} --weights 0.85 0.15

# The checkpoint has vectors that begin with what texts differ in most, and are whitened slightly.
[ -f "$out/whiten_texts.parquet" ] || python "$here/whiten_texts.py" "$data" "$out" "$out/whiten_texts.parquet"
[ -f "$out/whitened/config.json" ] || hf-dse whiten --model "$out/final" --projection_dim 384 --power 0.2 \
    --train_file "$out/whiten_texts.parquet" --max_length 256 --output_dir "$out/whitened"

python "$here/export.py" "$data" "$out" "$out/dse-minilm-l6"
[ -f "$out/generality.json" ] || python studies/generality.py "$data" "$encoder" "$out/dse-minilm-l6" \
    --dtype "$dtype" --output "$out/generality.json"
python "$here/export.py" "$data" "$out" "$checkpoint"
