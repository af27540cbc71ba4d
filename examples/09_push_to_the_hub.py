"""
Write a model folder, list its files, and publish it on the Hub with `--push`. Less than a minute on 2 CPU cores.

    python examples/09_push_to_the_hub.py user/my-model           # needs no token and no network
    python examples/09_push_to_the_hub.py user/my-model --push    # needs HF_TOKEN or `hf auth login`

The first command ends with

            350  modules.json
         17,491  pairs_dse.py
        711,396  tokenizer.json
            436  tokenizer_config.json

From the shell: `hf-dse push --model FOLDER --repo_id user/my-model`. Set HF_ENDPOINT to push to a server other than
huggingface.co.
"""

import sys
import tempfile

from transformers import AutoTokenizer

from hf_dse import convert_encoder, default_encoder, export, push_model


if len(sys.argv) < 2:
    sys.exit("Which repository? python examples/09_push_to_the_hub.py user/my-model [--push]")
repo_id = sys.argv[1]
source = default_encoder()
encoder = convert_encoder(source, linformer_length=64)
with tempfile.TemporaryDirectory() as parent:
    folder = export(
        encoder,
        f"{parent}/model",
        AutoTokenizer.from_pretrained(source),
        base_model="sentence-transformers/all-MiniLM-L6-v2",
        license="apache-2.0",
        # The examples in the model card load the model by this name.
        model_id=repo_id,
    )
    for file in sorted(file for file in folder.rglob("*") if file.is_file()):
        print(f"{file.stat().st_size:>11,}  {file.relative_to(folder)}")
    if "--push" in sys.argv[2:]:
        print(push_model(folder, repo_id))
