#!/usr/bin/env bash
# The student for long documents, and what each way of reading finds on three sets: the rows of
# docs/results.md#ways-of-reading-long-documents. Finished steps are skipped.
#
#   recipes/long/run.sh DATA [OUT]
#
# DATA has the folders qmsum, squality and fairytaleqa with parquet files. FLAGS are passed to the training:
# FLAGS="--bf16 --use_cpu" halves the time on a CPU with AVX-512 bf16 or AMX. DTYPE=bfloat16 does the same for the
# measurements. There the training took 52 minutes on a core.
set -euo pipefail
here=$(dirname "$0") data=$1 out=${2:-outputs/long}
flags=${FLAGS:-} dtype=${DTYPE:-float32} checkpoint=$here/../../checkpoints/dse-minilm-l6
encoder=$(python -c "from hf_dse import default_encoder; print(default_encoder())")
mkdir -p "$out"

# Questions, and the pieces of documents that answer them.
[ -f "$out/grouped.jsonl" ] || python "$here/questions.py" "$data" "$out"

# One vector, not trained: lower layers in chunks, upper ones linear, whitened.
[ -f "$out/mixed/config.json" ] || hf-dse convert --model "$encoder" --output_dir "$out/mixed" \
    --layer_types chunked_attention chunked_attention chunked_attention chunked_attention linear_attention \
    linear_attention --linformer_projection strided --linformer_length 1024 \
    --max_position_embeddings 16384
[ -f "$out/mixed-whitened/config.json" ] || hf-dse whiten --model "$out/mixed" \
    --train_file "$out/corpus.jsonl" --max_length 512 --projection_dim 320 --output_dir "$out/mixed-whitened"

# One vector that learns from the questions.
[ -f "$out/one/results.json" ] || hf-dse distill --stage ranking --output_dir "$out/one" --overwrite_output_dir \
    --model "$checkpoint" --train_file "$out/grouped.jsonl" \
    --corpus "$out/corpus.jsonl" --max_length 2048 --query_max_length 256 --num_candidates 2 \
    --train_sampling_strategy sequential --per_device_train_batch_size 96 --freeze_layers 4 --attention_probs_dropout_prob 0 \
    --hidden_dropout_prob 0 --learning_rate 5e-5 --warmup_steps 0.1 --max_steps 100 --eval_strategy no \
    --load_best_model_at_end false $flags

# The measurements.
for set in qmsum:test fairytaleqa:test squality:validation; do
    name=${set%:*}
    if [ ! -f "$out/$name.md" ]; then
        python "$here/../../benchmarks/long_documents.py" "$encoder" --max_length 512 --batch_size 8 --dtype "$dtype" \
            --dataset_name "$out/$name" --split "${set#*:}" --ways first chunks softmax linear mixed bm25 \
            --bm25_weight 0.6 --students "$out/mixed-whitened" "$checkpoint" "$out/one/model" --metric ndcg@10 \
            --timed_documents 2 --output "$out/bench-$name.json" >"$out/$name.part"
        mv "$out/$name.part" "$out/$name.md"
    fi
    echo && echo "$name" && cat "$out/$name.md"
done
