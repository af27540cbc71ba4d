# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""A saved checkpoint includes its code: it loads without hf_dse installed, with equal outputs."""

import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import torch
from transformers import AttentionInterface
from transformers.dynamic_module_utils import get_class_from_dynamic_module

from hf_dse import DseForSequenceClassification, DseModel
from hf_dse.convert.student import CODE_FILES
from hf_dse.modeling.attention_dse import linformer_attention_forward


AUTO_CLASSES = {DseModel: "AutoModel", DseForSequenceClassification: "AutoModelForSequenceClassification"}
ENCODERS = {
    "bert": {"linformer_length": [4, 5], "linformer_projection": "learned"},
    "modernbert": {"local_attention": 4, "global_attn_every_n_layers": 2, "linformer_length": 4},
    # The one encoder whose attention transformers cannot exchange.
    "mpnet": {"max_position_embeddings": 66, "linformer_length": 4},
}

# Pairs of seven and five words for the one class, two texts for the other; the second row is padded.
INPUTS = {
    "input_ids": [[2, 5, 6, 7, 3, 8, 9, 11, 3], [2, 4, 5, 3, 8, 9, 3, 0, 0]],
    "token_type_ids": [[0, 0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 1, 1, 1, 0, 0]],
    "attention_mask": [[1, 1, 1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1, 0, 0]],
}

# Runs in a process that cannot import hf_dse, as on the machine of someone who has torch and transformers only.
LOADER = """
import json, sys

sys.modules["hf_dse"] = sys.modules["modeling"] = None
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
print(json.dumps({"answers": answers, "imported": [name for name in sys.modules if name.startswith("hf_dse.")]}))
"""


def run(model, model_class):
    outputs = model(**{name: torch.tensor(value) for name, value in INPUTS.items()})
    return outputs.pooler_output if model_class is DseModel else outputs.logits


def test_checkpoints_load_without_hf_dse(make_model, tmp_path):
    """Folders of both classes, and a copy of each that was loaded and saved again, as after training."""
    jobs, expected = [], []
    for (model_class, auto_class), (encoder, fields) in product(AUTO_CLASSES.items(), ENCODERS.items()):
        first, second = (tmp_path / f"{auto_class}_{encoder}_{name}" for name in ("first", "second"))
        model = make_model(model_class, model_type=encoder, projection_dim=6, num_labels=3, **fields)
        model.save_pretrained(first)
        model_class.from_pretrained(first).save_pretrained(second)
        jobs += [(str(first), auto_class), (str(second), auto_class)]
        expected += [(model_class.__name__, run(model.double(), model_class))] * 2
    process = subprocess.run(
        # -I: ignore the current folder and PYTHONPATH, so that the source tree is not found either.
        [sys.executable, "-I", "-c", LOADER, json.dumps([jobs, INPUTS])],
        capture_output=True,
        text=True,
        env=os.environ | {"HF_MODULES_CACHE": str(tmp_path / "modules"), "HF_HUB_OFFLINE": "1"},
        cwd=tmp_path,
        timeout=300,
    )
    assert process.returncode == 0, process.stderr
    result = json.loads(process.stdout.splitlines()[-1])
    assert not result["imported"]
    for answer, (name, output) in zip(result["answers"], expected, strict=True):
        assert answer["classes"] == ["DseConfig", name, "transformers_modules"]
        found = torch.tensor(answer["output"], dtype=torch.float64)
        torch.testing.assert_close(found, output, rtol=0, atol=1e-12)


def test_code_needs_only_torch_and_transformers(make_model, tmp_path):
    make_model().save_pretrained(tmp_path)
    for name in CODE_FILES:
        lines = (tmp_path / name).read_text().splitlines()
        modules = {line.split()[1] for line in lines if line.startswith(("import ", "from "))}
        siblings = {module for module in modules if module.startswith(".")}
        roots = {module.split(".")[0] for module in modules - siblings}
        assert roots <= {"torch", "transformers", "huggingface_hub", *sys.stdlib_module_names}
        assert siblings <= {f".{Path(sibling).stem}" for sibling in CODE_FILES}


def test_the_code_of_a_checkpoint_leaves_other_models_alone(make_model, tmp_path):
    model = make_model(DseModel)
    model.save_pretrained(tmp_path)
    theirs = get_class_from_dynamic_module("modeling_dse.DseModel", str(tmp_path)).from_pretrained(tmp_path)
    assert type(theirs).__module__.startswith("transformers_modules")
    assert AttentionInterface()["linformer"] is linformer_attention_forward
    inputs = {name: torch.tensor(values) for name, values in INPUTS.items()}
    with torch.no_grad():
        torch.testing.assert_close(theirs(**inputs).pooler_output, model(**inputs).pooler_output, rtol=0, atol=1e-6)
