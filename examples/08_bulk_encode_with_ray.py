"""
Embed the parquet shards of a corpus in the workers of a Ray cluster (`pip install hf-dse[ray]`).

    python examples/08_bulk_encode_with_ray.py bulk

prints, besides the progress of Ray:

    4 of 4 shards to embed
    1 of 4 shards to embed
    799 vectors of 384 dimensions

Each shard is a `hf-dse encode` of its own, whose output is complete or not there at all. `hf-dse score` works in the
same way for a teacher's scores. Set RAY_ADDRESS to use a cluster; otherwise Ray starts one on this machine.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import ray.data
from datasets import Dataset
from transformers import AutoTokenizer

from hf_dse import DataArguments, convert_encoder, default_encoder, export, load_pairs


folder = Path(sys.argv[1] if len(sys.argv) > 1 else "outputs/bulk").absolute()
num_texts = int(sys.argv[2]) if len(sys.argv) > 2 else None

source = default_encoder()
model = convert_encoder(source, linformer_length=64)
export(model, folder / "model", AutoTokenizer.from_pretrained(source), base_model=source, overwrite_output_dir=True)

# Four small shards represent those of a corpus that does not fit into memory.
texts = load_pairs(DataArguments(dataset_name="embedded"))["train"]["sentence1"][:num_texts]
for number in range(4):
    Dataset.from_dict({"text": texts[number::4]}).to_parquet(folder / "texts" / f"part-{number}.parquet")


def encode_shard(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    (shard,) = batch["shard"]
    command = [sys.executable, "-m", "hf_dse_cli", "encode", "--model", folder / "model"]
    subprocess.run([*command, "--input", shard, "--output", folder / "vectors" / Path(shard).name], check=True)
    return batch


def encode_all(num_workers: int) -> None:
    shards = sorted((folder / "texts").glob("*.parquet"))
    # Finished shards are skipped, so an interrupted run continues. Another model needs another folder.
    missing = [str(shard) for shard in shards if not (folder / "vectors" / shard.name).exists()]
    print(f"{len(missing)} of {len(shards)} shards to embed")
    rows = ray.data.from_items([{"shard": shard} for shard in missing], override_num_blocks=len(missing))
    # On a cluster with GPUs add num_gpus=1.
    rows.map_batches(encode_shard, batch_size=1, concurrency=num_workers).materialize()


encode_all(num_workers=2)
(folder / "vectors" / "part-2.parquet").unlink()
encode_all(num_workers=2)
vectors = pq.read_table(folder / "vectors")["embedding"]
print(f"{len(vectors)} vectors of {len(vectors[0])} dimensions")
