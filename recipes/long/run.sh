#!/usr/bin/env bash
# The best student for long texts: lower four layers in chunks of 512 tokens, upper two linear, whitened embeddings of 320
# numbers, trained on 400 articles towards the whitened mean of the source's chunks. What is finished is not done again.
#
#   recipes/long/run.sh DATA [OUT]
#
# DATA holds the folders longwiki and stsb with parquet files. FLAGS are given to the training: FLAGS="--bf16 true
# --use_cpu true" on a CPU with AVX-512 bf16 or AMX. STUDENT holds other options of conversion: "--layer_types
# full_attention" makes the same with softmax attention.
set -euo pipefail
here=$(dirname "$0") data=$1 out=${2:-outputs/long}
chunked="chunked_attention chunked_attention chunked_attention chunked_attention"
mixed="--layer_types $chunked linear_attention linear_attention --linformer_projection strided --linformer_length 512"
student=${STUDENT:-$mixed --position_extension tile}
encoder=$(python -c "from hf_dse.demo import default_encoder; print(default_encoder())")
mkdir -p "$out"

[ -f "$out/texts.parquet" ] || python "$here/texts.py" "$data/longwiki/docs.parquet" "$out/texts.parquet" 400
[ -f "$out/pieces.parquet" ] ||
    python "$here/texts.py" "$data/longwiki/docs.parquet" "$out/pieces.parquet" 600 400 --pieces 350
[ -d "$out/converted" ] || hf-dse convert --model_name_or_path "$encoder" --output_dir "$out/converted" \
    --max_position_embeddings 16384 --attention_probs_dropout_prob 0 $student
[ -d "$out/whitened" ] || hf-dse whiten --model_name_or_path "$out/converted" --train_file "$out/pieces.parquet" \
    --max_seq_length 512 --projection_dim 320 --output_dir "$out/whitened"
resume=$(compgen -G "$out/student/checkpoint-*" > /dev/null && echo "--resume_from_checkpoint last" || true)
[ -f "$out/student/results.json" ] || hf-dse distill --config "$here/student.yaml" \
    --model_name_or_path "$out/whitened" --teacher_name_or_path "$encoder" --train_file "$out/texts.parquet" \
    --output_dir "$out/student" $resume ${FLAGS:-}
python studies/long_retrieval.py "$data" "$out/whitened" "$out/student/model" --max_documents 250 --max_length 4096 \
    --bf16
hf-dse evaluate --model_name_or_path "$out/student/model" --dataset_name "$data/stsb" --task_name stsb --split test
