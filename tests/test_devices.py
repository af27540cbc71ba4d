# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""What only differs where there is a GPU, as far as a CPU can tell: devices, low precision, and full memory."""

import pytest
import torch
from datasets import Dataset

from hf_dse import DseTrainer, DseTrainingArguments, encode, rank
from hf_dse.bench.encoders import Shape
from hf_dse.bench.speed import Job
from hf_dse.bench.timing import interleave
from hf_dse.common.provenance import weight_bytes
from hf_dse.teacher import bi_encoders
from hf_dse.training.base import resuming


PAIRS = {"sentence1": ["a cat sat", "a dog ran"], "sentence2": ["the cat sat", "the old house"], "label": [1.0, 0.0]}


def vectors(number, seed=0):
    return torch.nn.functional.normalize(
        torch.randn(number, 16, generator=torch.Generator().manual_seed(seed)), dim=-1
    )


@pytest.mark.parametrize("similarity", ["cosine", "mlp"])
def test_autocast_does_not_round_what_ranks(similarity, make_model, bert_tokenizer):
    """As in the ranking stage with `--bf16`: in bfloat16 many of 2,000 texts would be equally near."""
    queries, corpus = vectors(5), vectors(2000, seed=1)
    options = {"top_k": 100, "show_progress": False}
    if similarity == "mlp":
        model = make_model(similarity="mlp").eval()
        texts = [f"a cat sat {number}" for number in range(50)]
        queries, corpus = (encode(model, bert_tokenizer, part, show_progress=False) for part in (texts[:2], texts))
        options |= {"head": model, "top_k": 20}
    else:
        queries, corpus = queries.numpy(), corpus.numpy()
    expected = rank(queries, corpus, **options)
    with torch.autocast("cpu", torch.bfloat16):
        found = rank(queries, corpus, **options)
    for part, same in zip(found, expected, strict=True):
        assert (part == same).all()


def test_full_memory_is_no_damaged_checkpoint():
    """`auto_find_batch_size` waits for this error too."""
    with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate"), resuming("checkpoint-1", "optimizer.pt"):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def test_timings_wait_for_their_own_device(monkeypatch):
    calls = []
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda device=None: calls.append(str(device)))
    interleave({"a": lambda: calls.append("a")}, rounds=2, device=torch.device("cuda:1"))
    assert calls == ["cuda:1", "a", "cuda:1", "a", "cuda:1"]


def test_the_memory_of_a_step_has_its_gradients(monkeypatch):
    """What a step leaves behind would be taken for memory that was there before the next one."""
    job = Job(Shape(32, 2, 2, 64, 50), 16, 2, train=True)
    model = job.build("bert-sdpa")
    monkeypatch.setattr(Job, "build", lambda job, name: model)
    assert job.make_task("bert-sdpa")().requires_grad
    assert all(parameter.grad is None for parameter in model.parameters())


def test_heads_are_fitted_on_the_device_of_the_training(make_student, bert_tokenizer, tmp_path, monkeypatch):
    """With `bf16_full_eval`, `Trainer` moves the model when the training begins, after the fit."""
    moves = []
    monkeypatch.setattr(DseTrainer, "_move_model_to_device", lambda self, model, device: moves.append(device))
    args = DseTrainingArguments(
        str(tmp_path), max_length=16, bf16_full_eval=True, use_cpu=True, report_to="none", distillation_alpha=0.0
    )
    trainer = DseTrainer(make_student(), args, Dataset.from_dict(PAIRS), processing_class=bert_tokenizer)
    assert moves == [args.device]
    trainer.calibrate_similarity()
    assert trainer.model.similarity.bias.item() != 0


def test_several_gpus_of_one_process_and_low_precision(tmp_path, monkeypatch):
    """`Trainer` does not prepare a model for autocast that it wraps in `DataParallel`."""
    monkeypatch.setattr(DseTrainingArguments, "n_gpu", property(lambda args: 2))
    assert DseTrainingArguments(str(tmp_path), use_cpu=True).n_gpu == 2
    with pytest.raises(ValueError, match="computes in float32 on 2 GPUs of one process.*torchrun.*CUDA_VISIBLE_DEV"):
        DseTrainingArguments(str(tmp_path), use_cpu=True, bf16=True)


def test_weights_have_the_same_bytes_in_any_layout():
    weights = torch.randn(3, 4)
    assert weight_bytes(weights.T.contiguous().T) == weight_bytes(weights) != weight_bytes(-weights)
    assert len(weight_bytes(torch.tensor(1.0, dtype=torch.bfloat16))) == 2


def test_a_bi_encoder_is_loaded_where_it_is_asked_for(make_model, bert_tokenizer, tmp_path, monkeypatch):
    make_model().save_pretrained(tmp_path)
    bert_tokenizer.save_pretrained(tmp_path)
    devices, load = [], bi_encoders.load_model
    monkeypatch.setattr(bi_encoders, "load_model", lambda args: devices.append(args.device) or load(args))
    bi_encoders.BiEncoder(str(tmp_path), device="cpu")
    assert devices == ["cpu"]
