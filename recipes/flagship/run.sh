#!/usr/bin/env bash
# Rebuilds checkpoints/dse-minilm-l6 from packages and local data. Finished steps are skipped.
#
#   recipes/flagship/run.sh DATA [OUT [CHECKPOINT]]
#
# DATA has the folders stsb, sts12_16, multi30k, nli, mrpc, sick and scifact with parquet files. FLAGS are
# passed to every training: FLAGS="--bf16 --use_cpu" halves the hours on a CPU with AVX-512 bf16 or AMX,
# and on other CPUs bf16 is far slower than float32. DTYPE=bfloat16 does the same for the teacher's scores.
set -euo pipefail
here=$(dirname "$0") data=$1 out=${2:-outputs/flagship} checkpoint=${3:-checkpoints/dse-minilm-l6}
flags=${FLAGS:-} dtype=${DTYPE:-float32}
encoder=$(python -c "from hf_dse.demo import default_encoder; print(default_encoder())")
mkdir -p "$out"

# Unlabelled pairs without sentences of evaluation sets.
[ -f "$out/extra.parquet" ] || python "$here/pairs.py" labelled "$data" "$out"
augment() {
    local name=$1
    shift
    [ -f "$out/made_$name.parquet" ] || hf-dse augment --encoder_name_or_path "$encoder" \
        --exclude_text_files "$data"/stsb/{validation,test}.parquet "$data/sick/validation.parquet" \
        --exclude_files "$data/stsb/train.parquet" --output_file "$out/made_$name.parquet" "$@"
}
augment stsb --files "$data/stsb/train.parquet" --row_pairs 0 --num_neighbors 3 --neighbor_pool 8 --num_random 1
augment sts --files "$data"/sts12_16/sts1{2,3,4,5,6}_test.parquet --num_neighbors 1 --neighbor_pool 5 --num_random 0
augment multi30k --files "$data/multi30k/train.parquet:caption1,caption2,caption3,caption4,caption5" \
    --max_rows 1500 --row_pairs 2 --num_neighbors 1 --neighbor_pool 5 --num_random 0 --max_pairs 6000
augment snli --files "$data/nli/snli.parquet" --max_rows 4000 --num_neighbors 0 --num_random 0
augment mrpc --files "$data/mrpc/train.parquet" --num_neighbors 1 --neighbor_pool 4 --num_random 0
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
[ -f "$out/silver.parquet" ] || python "$here/pairs.py" training "$out"

# Three students, which keep the similarities of the source between sentences of different pairs. The checkpoint is the
# mean of their weights.
for seed in 42 43 44; do
    [ -f "$out/student-$seed/results.json" ] || hf-dse distill --config "$here/student.yaml" --seed "$seed" \
        --model_name_or_path "$encoder" --train_file "$out/scored_gold.parquet" "${sts[@]:4}" \
        --augmented_file "$out/silver.parquet" --bi_encoder_name_or_path "$encoder" \
        --output_dir "$out/student-$seed" --overwrite_output_dir $flags
done

python "$here/export.py" "$data" "$out" "$out/dse-minilm-l6"
[ -f "$out/generality.json" ] || python studies/generality.py "$data" "$encoder" "$out/dse-minilm-l6" \
    --output "$out/generality.json"
python "$here/export.py" "$data" "$out" "$checkpoint"
