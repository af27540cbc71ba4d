"""
Embed parquet shards with two workers of a Ray cluster (`pip install hf-dse[ray]`). About 3 minutes on 2 busy
CPU cores.

    python examples/08_bulk_encode_with_ray.py bulk

prints, besides the progress of Ray:

    799 vectors written to bulk/vectors
    3 of 4 shards are already finished
    799 vectors written to bulk/vectors
    text: string
    embedding: fixed_size_list<element: float>[384]
      child 0, element: float

Set RAY_ADDRESS to use a cluster; otherwise Ray starts one on this machine.
"""

import sys
from pathlib import Path

import pyarrow.parquet as pq
from datasets import Dataset
from transformers import AutoTokenizer

from hf_dse import DataArguments, convert_encoder, default_encoder, export, load_pairs
from hf_dse_cli import main


folder = Path(sys.argv[1] if len(sys.argv) > 1 else "outputs/bulk")
num_texts = int(sys.argv[2]) if len(sys.argv) > 2 else None

source = default_encoder()
model = convert_encoder(source, linformer_length=64)
export(model, folder / "model", AutoTokenizer.from_pretrained(source), base_model=source, overwrite_output_dir=True)

# Four small shards represent those of a corpus that does not fit into memory.
texts = load_pairs(DataArguments(dataset_name="embedded"))["train"]["sentence1"][:num_texts]
for number in range(4):
    Dataset.from_dict({"text": texts[number::4]}).to_parquet(folder / "texts" / f"part-{number}.parquet")

# The same as `hf-dse encode --engine ray ...`; each worker loads the model once.
command = ["encode", "--engine", "ray", "--num_workers", "2", "--model_name_or_path", str(folder / "model")]
command += ["--input", str(folder / "texts"), "--output", str(folder / "vectors")]
main(command)
# An interrupted run continues: finished shards are skipped.
(folder / "vectors" / "part-2.parquet").unlink()
main(command)
print(pq.read_table(folder / "vectors" / "part-2.parquet").schema.remove_metadata())
