# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Training in two processes on the CPU, started with the usual launchers."""

import json
import re
import subprocess

import pytest
import torch
from datasets import Dataset
from flags import BIN, LAUNCHERS, launch
from safetensors.torch import load_file
from transformers import BertForSequenceClassification

from hf_dse_cli import main


@pytest.fixture(scope="module")
def encoder(tmp_path_factory, save_bert):
    # No dropout, because each process draws its own random numbers.
    return save_bert(tmp_path_factory.mktemp("encoder"), hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    words = "cat dog mat house old new".split()
    rows = [
        {
            "sentence1": f"the {words[row % 6]} is {words[row % 5]} {row}",
            "sentence2": f"a {words[row % 4]}",
            "label": float(row % 6),
            "teacher_logits": [float((row + 1) % 6)],
        }
        for row in range(32)
    ]
    Dataset.from_list(rows).to_parquet(folder / "train.parquet")
    Dataset.from_list(rows[:8]).to_parquet(folder / "validation.parquet")
    return folder


@pytest.fixture(scope="module")
def distill(encoder, data):
    """The command line of a small training with a given number of pairs per process and step."""

    def command(output, batch_size, *options):
        return ["distill", "--model_name_or_path", str(encoder), "--dataset_name", str(data), "--num_labels", "1",
                "--linformer_length", "8", "--max_length", "32", "--output_dir", str(output),
                "--per_device_train_batch_size", str(batch_size), "--train_sampling_strategy", "sequential",
                "--optim", "sgd", "--learning_rate", "0.02", "--scale_learning_rate", "0.02", "--max_grad_norm", "0",
                "--num_train_epochs", "2", "--logging_steps", "1", "--use_cpu",
                "--disable_tqdm", "true", "--report_to", "none", *options]  # fmt: skip

    return command


@pytest.fixture(scope="module")
def alone(tmp_path_factory, distill):
    """One process with batches of 8."""
    output = tmp_path_factory.mktemp("alone") / "student"
    assert main(distill(output, 8)) == 0
    return output


def losses(output):
    history = json.loads((output / "trainer_state.json").read_text())["log_history"]
    return [entry["loss"] for entry in history if "loss" in entry]


# A batch is that of a process, unless it is split.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("launcher", "batch_size", "options"),
    [
        *((launcher, 4, {}) for launcher in LAUNCHERS),
        ("torchrun", 8, {"split_batches": True}),
    ],
)
def test_two_processes_equal_one_with_twice_the_batch_size(
    launcher, batch_size, options, alone, encoder, distill, tmp_path
):
    output = tmp_path / "student"
    command = distill(output, batch_size, "--accelerator_config", json.dumps(options))
    assert launch(launcher, *command).stdout.count("Saved to") == 1
    first, second = (load_file(folder / "model" / "model.safetensors") for folder in (alone, output))
    for name in first:
        torch.testing.assert_close(second[name], first[name], rtol=0, atol=1e-6, msg=name)
    assert len(losses(alone)) == 8
    assert losses(output) == pytest.approx(losses(alone), abs=1e-4)
    start = load_file(encoder / "model.safetensors")["embeddings.word_embeddings.weight"]
    assert (first["dse.embeddings.word_embeddings.weight"] - start).abs().max() > 1e-3
    results = [json.loads((folder / "results.json").read_text()) for folder in (alone, output)]
    assert results[1]["metrics"]["validation"] == pytest.approx(results[0]["metrics"]["validation"], abs=1e-4)
    assert [result["recipe"]["train_batch_size"] for result in results] == [8, 8]


@pytest.mark.slow
def test_only_the_first_process_scores_embeds_and_evaluates(encoder, data, distill, save_bert, tmp_path):
    save_bert(tmp_path / "teacher", BertForSequenceClassification, num_labels=1)
    unscored = tmp_path / "unscored.parquet"
    Dataset.from_parquet(str(data / "train.parquet")).remove_columns("teacher_logits").to_parquet(unscored)
    options = ["--train_file", str(unscored), "--teacher_name_or_path", str(tmp_path / "teacher"),
               "--bi_encoder_name_or_path", str(encoder), "--similarity_weight", "1"]  # fmt: skip
    assert main(distill(tmp_path / "alone", 8, *options)) == 0
    # A command of its own shows no bars of quick work.
    result = launch("torchrun", *distill(tmp_path / "both", 4, *options), "--verbose")
    # A full progress bar shows the rate of all its pairs; each scoring process would have its own bar.
    bars = [line for line in re.split(r"[\r\n]", result.stderr) if "100%" in line]
    assert sum(line.startswith("Scoring pairs") for line in bars) == 1
    # The training pairs of the bi-encoder, and the validation split of the student.
    assert sum(line.startswith("Encoding texts") for line in bars) == 2
    results = [json.loads((tmp_path / name / "results.json").read_text()) for name in ("alone", "both")]
    assert results[1]["metrics"]["validation"] == pytest.approx(results[0]["metrics"]["validation"], abs=1e-3)
    assert not (tmp_path / "both" / ".train-data").exists()


@pytest.mark.slow
def test_only_the_first_process_runs_the_teacher_whose_vectors_are_learned(encoder, data, save_bert, tmp_path):
    save_bert(tmp_path / "teacher", hidden_size=24)
    texts = ["--train_file", str(data / "train.parquet"), "--validation_file", str(data / "validation.parquet")]

    def align(output, batch_size):
        return ["distill", "--stage", "align", "--model_name_or_path", str(encoder), "--linformer_length", "8",
                "--teacher_name_or_path", str(tmp_path / "teacher"), *texts, "--text_column", "sentence1",
                "--sts_file", str(data / "validation.parquet"), "--max_length", "32", "--output_dir", str(output),
                "--per_device_train_batch_size", str(batch_size), "--train_sampling_strategy", "sequential",
                "--optim", "sgd", "--learning_rate", "0.1", "--max_grad_norm", "0", "--logging_steps", "1",
                "--use_cpu", "--disable_tqdm", "true", "--report_to", "none"]  # fmt: skip

    assert main(align(tmp_path / "alone", 8)) == 0
    result = launch("torchrun", *align(tmp_path / "both", 4), "--verbose")
    bars = [line for line in re.split(r"[\r\n]", result.stderr) if line.startswith("Encoding texts: 100%")]
    # The teacher: pairs, training and validation texts. The student: pairs and validation texts, before and after.
    assert len(bars) == 7
    assert result.stdout.count("Saved to") == 1
    first, second = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("alone", "both"))
    for name in first:
        torch.testing.assert_close(second[name], first[name], rtol=0, atol=1e-5, msg=name)
    results = [json.loads((tmp_path / name / "results.json").read_text())["metrics"] for name in ("alone", "both")]
    for when in ("before", "after", "teacher"):
        assert results[1][when] == pytest.approx(results[0][when], abs=1e-3)
    assert not list((tmp_path / "both").glob(".*"))


@pytest.mark.slow
def test_a_launcher_that_divides_the_model_is_refused(distill, tmp_path):
    """On CPUs accelerate would ignore it without a word."""
    launcher = ["--use_fsdp", "--fsdp_version", "2", "--num_machines", "1", "--mixed_precision", "no",
                "--dynamo_backend", "no", "--num_processes", "2"]  # fmt: skip
    line = [BIN / "accelerate", "launch", *launcher, BIN / "hf-dse", *distill(tmp_path / "student", 4)]
    result = subprocess.run(list(map(str, line)), capture_output=True, text=True, timeout=300)
    assert result.returncode != 0
    assert "error: ACCELERATE_USE_FSDP, as by `accelerate launch`, is set, and these trainers" in result.stderr
    assert not (tmp_path / "student").exists()


# FSDP of torch: `accelerate` uses it with accelerators only, so this test does not use the Trainer.
SHARDED = """
import sys
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from hf_dse import PairCollator

folder, output = sys.argv[1:]
dist.init_process_group("gloo")
rank, mesh = dist.get_rank(), init_device_mesh("cpu", (2,))

def load():
    return AutoModelForSequenceClassification.from_pretrained(folder).eval()

def shard(model):
    for layer in model.dse.encoder.layer:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)

def train(model, batch):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for _ in range(3):
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()

rows = [{"sentence1": f"the cat {row}", "sentence2": "a dog is old", "label": float(row)} for row in range(8)]
batch = PairCollator(AutoTokenizer.from_pretrained(folder), 32)(rows)
start, whole, sharded = load(), load(), shard(load())
assert next(sharded.parameters()).to_local().numel() < next(whole.parameters()).numel()
train(whole, batch)
train(sharded, {name: value[4 * rank : 4 * rank + 4] for name, value in batch.items()})
state = get_model_state_dict(sharded, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
if rank == 0:
    expected = whole.state_dict()
    assert state.keys() == expected.keys()
    assert max((state[name] - value).abs().max() for name, value in expected.items()) < 1e-6
    assert max((start.state_dict()[name] - value).abs().max() for name, value in expected.items()) > 1e-3
    torch.save(state, output)
dist.barrier()
loaded = shard(load())
set_model_state_dict(loaded, torch.load(output), options=StateDictOptions(full_state_dict=True))
with torch.no_grad():
    assert torch.allclose(loaded(**batch).logits, whole(**batch).logits, atol=1e-5)
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_a_sharded_student_trains_and_its_state_is_saved_and_loaded(alone, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(SHARDED)
    command = [BIN / "torchrun", "--nproc_per_node", "2", program, alone / "model", tmp_path / "state.pt"]
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-3000:]
    assert torch.load(tmp_path / "state.pt").keys() == load_file(alone / "model" / "model.safetensors").keys()
