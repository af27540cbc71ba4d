# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""A saved checkpoint includes its code: it loads without hf_dse installed, with equal outputs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from hf_dse import DseConfig, DseForSequenceClassification, DseModel
from hf_dse.convert.student import CODE_FILES


AUTO_CLASSES = {DseModel: "AutoModel", DseForSequenceClassification: "AutoModelForSequenceClassification"}

# Pairs of seven and five words for the one class, two texts for the other; the second row is padded.
INPUTS = {
    "input_ids": [[1, 5, 6, 7, 2, 8, 9, 11, 2], [1, 4, 5, 2, 8, 9, 2, 0, 0]],
    "token_type_ids": [[0, 0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 1, 1, 1, 0, 0]],
    "attention_mask": [[1, 1, 1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1, 0, 0]],
}

# Runs in a process that cannot import hf_dse, as on the machine of someone who has torch and transformers only.
LOADER = """
import json, sys

class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("hf_dse", "modeling"):
            raise ModuleNotFoundError(f"{name} is not installed here", name=name)

sys.meta_path.insert(0, NotInstalled())
import torch, transformers

torch.set_num_threads(1)
jobs, inputs = json.loads(sys.argv[1])
inputs = {name: torch.tensor(value) for name, value in inputs.items()}
answers = []
for folder, auto_class in jobs:
    config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=True)
    model = getattr(transformers, auto_class).from_pretrained(folder, trust_remote_code=True, dtype=torch.float64)
    outputs = model(**inputs)
    output = outputs.pooler_output if auto_class == "AutoModel" else outputs.logits
    classes = [type(config).__name__, type(model).__name__, type(model).__module__.split(".")[0]]
    answers.append({"classes": classes, "output": output.tolist()})
print(json.dumps({"answers": answers, "imported": [name for name in sys.modules if name.startswith("hf_dse")]}))
"""


def make_model(model_class):
    torch.manual_seed(0)
    config = DseConfig(
        vocab_size=29,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=12,
        max_position_embeddings=12,
        linformer_length=[4, 5],
        projection_dim=6,
        cls_token_id=1,
        sep_token_id=2,
        num_labels=3,
    )
    model = model_class(config).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """Folders of both classes, and for each one a copy that was loaded and saved again, as after training."""
    folders = {}
    for model_class in AUTO_CLASSES:
        first, second = (tmp_path_factory.mktemp(f"{model_class.__name__}_{name}") for name in ("first", "second"))
        make_model(model_class).save_pretrained(first)
        model_class.from_pretrained(first).save_pretrained(second)
        folders[model_class] = [first, second]
    return folders


@pytest.fixture(scope="module")
def loaded_elsewhere(checkpoints, tmp_path_factory):
    """Returns the outputs of all checkpoints in a new process."""
    jobs = [(str(folder), AUTO_CLASSES[cls]) for cls, folders in checkpoints.items() for folder in folders]
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    process = subprocess.run(
        # -I: ignore the current folder and PYTHONPATH, so that the source tree is not found either.
        [sys.executable, "-I", "-c", LOADER, json.dumps([jobs, INPUTS])],
        capture_output=True,
        text=True,
        env=os.environ | {"HF_MODULES_CACHE": str(elsewhere / "modules"), "HF_HUB_OFFLINE": "1"},
        cwd=elsewhere,
        timeout=300,
    )
    assert process.returncode == 0, process.stderr
    result = json.loads(process.stdout.splitlines()[-1])
    assert not result["imported"]
    return dict(zip((folder for folder, _ in jobs), result["answers"], strict=True))


@pytest.mark.parametrize("generation", [0, 1])
@pytest.mark.parametrize("model_class", AUTO_CLASSES)
def test_checkpoint_loads_without_hf_dse(checkpoints, loaded_elsewhere, model_class, generation):
    folder = checkpoints[model_class][generation]
    assert {*CODE_FILES, "config.json", "model.safetensors"} <= set(os.listdir(folder))

    answer = loaded_elsewhere[str(folder)]
    assert answer["classes"] == ["DseConfig", model_class.__name__, "transformers_modules"]
    outputs = make_model(model_class)(**{name: torch.tensor(value) for name, value in INPUTS.items()})
    expected = outputs.pooler_output if model_class is DseModel else outputs.logits
    torch.testing.assert_close(torch.tensor(answer["output"], dtype=torch.float64), expected, rtol=0, atol=1e-12)


def test_code_needs_only_torch_and_transformers(checkpoints):
    for name in CODE_FILES:
        lines = (checkpoints[DseModel][0] / name).read_text().splitlines()
        modules = {line.split()[1] for line in lines if line.startswith(("import ", "from "))}
        siblings = {module for module in modules if module.startswith(".")}
        roots = {module.split(".")[0] for module in modules - siblings}
        assert roots <= {"torch", "transformers", "huggingface_hub", *sys.stdlib_module_names}
        assert siblings <= {f".{Path(sibling).stem}" for sibling in CODE_FILES}
