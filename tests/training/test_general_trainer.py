# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""GeneralTrainer: its losses against slow references, and what it computes, saves, resumes and refuses."""

import math

import numpy as np
import pytest
import torch
from datasets import Dataset
from trainings import (
    NO_DROPOUT,
    PLAIN_SGD,
    TINY_RUN,
    assert_accumulation_changes_nothing,
    assert_resumes,
    logged,
    same,
    weights,
)

from hf_dse import DseConfig, DseModel, GeneralTrainer, GeneralTrainingArguments
from hf_dse.data.collators import TextCollator
from hf_dse.training import losses
from hf_dse.training.losses import hidden_loss, relation_loss


MAX_LENGTH = 24
WORDS = "the a cat dog sat ran on mat house is old new in and of".split()
SIZES = (13, 2, 5, 16, 9, 2, 14, 5, 11, 4, 9, 3, 12, 3, 12, 3)
TEXTS = [" ".join(np.random.default_rng(row).choice(WORDS, size)) for row, size in enumerate(SIZES)]
ALL_LOSSES = {"hidden_weight": 0.7, "embedding_weight": 0.3, "relation_weight": 1.1, "sentence_weight": 0.9}


def only(name):
    return {**dict.fromkeys(ALL_LOSSES, 0.0), f"{name}_weight": 1.0}


@pytest.fixture
def make_teacher(make_model):
    def make(num_hidden_layers=2, **fields):
        layer_types = ["full_attention"] * num_hidden_layers
        return make_model(DseModel, num_hidden_layers=num_hidden_layers, layer_types=layer_types, **fields)

    return make


@pytest.fixture
def make_student(tiny_config, bert_tokenizer):
    """A student with the weights of its teacher, of its first layers where it is less deep."""

    def make(teacher, **fields):
        student = DseModel(tiny_config(bert_tokenizer, **{"linformer_sharing": "headwise", **fields}))
        student.load_state_dict(teacher.state_dict(), strict=False)
        return student

    return make


@pytest.fixture
def make_trainer(tmp_path, bert_tokenizer):
    def make(student, teacher, train=TEXTS, evaluate=None, **fields):
        return GeneralTrainer(
            model=student,
            args=GeneralTrainingArguments(
                **{"output_dir": str(tmp_path / "run"), **TINY_RUN, "max_length": MAX_LENGTH, **fields}
            ),
            train_dataset=Dataset.from_dict({"text": train}),
            eval_dataset=None if evaluate is None else Dataset.from_dict({"text": evaluate}),
            processing_class=bert_tokenizer,
            teacher=teacher,
        )

    return make


def losses_of(trainer, batch):
    """The loss and its parts, without dropout."""
    loss, parts = trainer.compute_loss(trainer.model.eval(), batch, return_outputs=True)
    return {"loss": loss, **parts}


@pytest.fixture
def batch(bert_tokenizer):
    return TextCollator(bert_tokenizer, MAX_LENGTH)([{"text": text} for text in TEXTS[:6]])


# Losses


def slow_hidden_loss(student, teacher, mask):
    of_texts = []
    for text in range(len(mask)):
        tokens = [token for token in range(mask.shape[1]) if mask[text, token]]
        errors = [
            (student[text, token, feature] - teacher[text, token, feature]) ** 2
            for token in tokens
            for feature in range(student.shape[2])
        ]
        of_texts.append(sum(errors) / len(errors))
    return sum(of_texts) / len(of_texts)


def slow_relations(states, tokens, head, num_heads):
    size = states.shape[-1] // num_heads
    part = states[tokens][:, head * size : (head + 1) * size]
    rows = []
    for first in part:
        powers = [math.exp(float(first @ second) / math.sqrt(size)) for second in part]
        rows.append([power / sum(powers) for power in powers])
    return rows


def slow_relation_loss(student, teacher, mask, num_heads):
    of_texts = []
    for text in range(len(mask)):
        tokens = [token for token in range(mask.shape[1]) if mask[text, token]]
        divergences = []
        for head in range(num_heads):
            ours = slow_relations(student[text], tokens, head, num_heads)
            theirs = slow_relations(teacher[text], tokens, head, num_heads)
            for p, q in zip(theirs, ours, strict=True):
                divergences.append(sum(a * math.log(a / b) for a, b in zip(p, q, strict=True)))
        of_texts.append(sum(divergences) / len(divergences))
    return sum(of_texts) / len(of_texts)


MASKS = {
    "none": torch.ones(3, 7, dtype=torch.long),
    "right": torch.tensor([[1] * 7, [1] * 4 + [0] * 3, [1] + [0] * 6]),
    "left": torch.tensor([[1] * 7, [0] * 3 + [1] * 4, [0] * 6 + [1]]),
}


def states(*sizes):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(3, 7, size, dtype=torch.float64, generator=generator) for size in sizes]


@pytest.mark.parametrize("padding", MASKS)
def test_hidden_loss(padding):
    student, teacher = states(4, 4)
    expected = slow_hidden_loss(student, teacher, MASKS[padding])
    assert hidden_loss(student, teacher, MASKS[padding]).item() == pytest.approx(expected.item(), rel=1e-12)


@pytest.mark.parametrize("padding", MASKS)
def test_relation_loss(padding, num_heads=3):
    student, teacher = states(12, 18)
    expected = slow_relation_loss(student, teacher, MASKS[padding], num_heads)
    loss = relation_loss(student, teacher, MASKS[padding], num_heads).item()
    assert loss == pytest.approx(expected, rel=1e-10)
    assert loss > 0.01


def test_relations_in_blocks_are_the_same(monkeypatch, block=3):
    student, teacher = states(12, 18)
    student.requires_grad_()
    expected = relation_loss(student, teacher, MASKS["right"], 3)
    (gradient,) = torch.autograd.grad(expected, student)
    sizes = []
    whole = losses._row_divergence
    monkeypatch.setattr(losses, "RELATION_BLOCK", block)
    monkeypatch.setattr(losses, "_row_divergence", lambda *call: sizes.append(call[0].shape[2]) or whole(*call))
    actual = relation_loss(student, teacher, MASKS["right"], 3)
    forward = len(sizes)
    (other,) = torch.autograd.grad(actual, student)
    assert actual.item() == pytest.approx(expected.item(), rel=1e-12)
    assert torch.allclose(other, gradient, rtol=1e-10, atol=1e-14)
    assert max(sizes) == block
    # Nothing of a block is kept: the backward pass computes it again.
    assert len(sizes) == 2 * forward


# Losses of a step


def test_a_copy_of_the_teacher_has_nothing_to_learn(make_teacher, make_student, make_trainer, batch):
    teacher = make_teacher()
    copy = make_student(teacher, layer_types=["full_attention"] * 2)
    # As long as k is not below the length, a linear layer attends to every token.
    exact = make_student(teacher, linformer_length=MAX_LENGTH)
    short = make_student(teacher, linformer_length=4)
    for student, learns in ((copy, False), (exact, False), (short, True)):
        losses = losses_of(make_trainer(student, teacher, **ALL_LOSSES), batch)
        assert set(losses) == {"loss", "hidden_loss", "embedding_loss", "relation_loss", "sentence_loss"}
        assert losses.pop("embedding_loss") == 0
        for name, value in losses.items():
            assert (value > 1e-4) == learns, name
            assert value > 1e-4 if learns else abs(value) < 1e-6, name


def test_the_loss_is_the_weighted_sum_of_its_parts(make_teacher, make_student, make_trainer, batch):
    teacher = make_teacher(num_hidden_layers=5)
    student = make_student(teacher, linformer_length=4)
    trainer = make_trainer(student, teacher, **ALL_LOSSES)
    # Away from the teacher in every part, the embeddings too.
    with torch.no_grad():
        student.embeddings.LayerNorm.bias.add_(0.3 * torch.arange(16) / 16)
    losses = losses_of(trainer, batch)
    mask = batch["attention_mask"]
    ours = student(**batch, output_hidden_states=True)
    theirs = teacher(**batch, output_hidden_states=True)
    assert [len(out.hidden_states) for out in (ours, theirs)] == [3, 6]
    assert torch.equal(ours.hidden_states[2], ours.last_hidden_state)
    hidden = [hidden_loss(ours.hidden_states[m], theirs.hidden_states[t], mask) for m, t in ((1, 2), (2, 5))]
    relations = 0.0
    for name in ("query", "key", "value"):
        pair = [
            getattr(net.encoder.layer[layer].attention.self, name)(out.hidden_states[layer])
            for net, layer, out in ((student, 1, ours), (teacher, 4, theirs))
        ]
        relations += relation_loss(*pair, mask, 2)
    cosine = torch.cosine_similarity(ours.pooler_output, theirs.pooler_output)
    expected = {
        "hidden_loss": sum(hidden) / 2,
        "embedding_loss": hidden_loss(ours.hidden_states[0], theirs.hidden_states[0], mask),
        "relation_loss": relations,
        "sentence_loss": 1 - cosine.mean(),
    }
    for name, value in expected.items():
        assert losses[name].item() == pytest.approx(value.item(), rel=1e-4), name
        assert value > 1e-3, name
    total = sum(ALL_LOSSES[name.replace("loss", "weight")] * value for name, value in expected.items())
    assert losses["loss"].item() == pytest.approx(total.item(), rel=1e-4)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_no_loss(side, make_teacher, make_student, make_trainer, bert_tokenizer, batch):
    teacher = make_teacher()
    trainer = make_trainer(make_student(teacher, linformer_length=4), teacher, **ALL_LOSSES)
    expected = losses_of(trainer, batch)
    sizes = batch["attention_mask"].sum(dim=1).tolist()
    padded = {name: torch.zeros(len(sizes), MAX_LENGTH + 9, dtype=torch.long) for name in batch}
    padded["input_ids"].fill_(bert_tokenizer.pad_token_id)
    for row, size in enumerate(sizes):
        start = 0 if side == "right" else MAX_LENGTH + 9 - size
        for name in batch:
            padded[name][row, start : start + size] = batch[name][row, :size]
    for name, value in losses_of(trainer, padded).items():
        assert value.item() == pytest.approx(expected[name].item(), rel=1e-4, abs=1e-6), name
    # A batch counts as the mean of its texts.
    rows = range(len(sizes))
    alone = [losses_of(trainer, {name: value[row : row + 1] for name, value in batch.items()}) for row in rows]
    for name, value in expected.items():
        mean = sum(losses[name] for losses in alone) / len(alone)
        assert value.item() == pytest.approx(mean.item(), rel=1e-4, abs=1e-6), name


def test_the_teacher_is_read_through_the_projection_of_the_student(make_teacher, make_student, make_trainer, batch):
    teacher = make_teacher(**NO_DROPOUT)
    source = make_student(teacher, layer_types=["full_attention"] * 2, **NO_DROPOUT)
    student = DseModel(DseConfig(**{**source.config.to_dict(), "projection_dim": 5}))
    torch.manual_seed(0)
    student.load_state_dict({**student.state_dict(), **source.state_dict()})
    start = student.projection.weight.clone()
    trainer = make_trainer(student, teacher, **only("sentence"))
    # It begins where its teacher is, in any projection.
    assert losses_of(trainer, batch)["loss"].item() == pytest.approx(0, abs=1e-5)

    # What it learns afterwards is the projection of the start, not its own.
    with torch.no_grad():
        student.projection.weight.add_(torch.randn_like(start))
    target = teacher(**batch).pooler_output @ start.T + student.projection.bias
    expected = 1 - torch.cosine_similarity(student(**batch).pooler_output, target).mean()
    assert losses_of(trainer, batch)["loss"].item() == pytest.approx(expected.item(), rel=1e-4)


# The Trainer


def test_a_student_learns(make_teacher, make_student, make_trainer):
    teacher = make_teacher(num_hidden_layers=4)
    student = make_student(teacher, linformer_length=4, **NO_DROPOUT)
    frozen, start = weights(teacher), weights(student)
    run = {"learning_rate": 3e-3, "num_train_epochs": 20, "logging_steps": 10, **ALL_LOSSES}
    trainer = make_trainer(student, teacher, evaluate=TEXTS, **run)
    before = trainer.evaluate()
    trainer.train()
    after = trainer.evaluate()
    assert after["eval_loss"] < 0.6 * before["eval_loss"]
    assert same(weights(teacher), frozen) and trainer.model is student
    # E and F of both layers had their part in it.
    learned = [name for name in start if "linformer." in name]
    assert len(learned) == 4 and not any(torch.equal(start[name], student.state_dict()[name]) for name in learned)
    # The lines of the log have the parts of their loss, averaged over the same steps.
    assert len(logged(trainer, "loss")) == 4
    parts = [logged(trainer, name) for name in ("hidden_loss", "embedding_loss", "relation_loss", "sentence_loss")]
    for total, *values in zip(logged(trainer, "loss"), *parts, strict=True):
        expected = sum(weight * value for weight, value in zip(ALL_LOSSES.values(), values, strict=True))
        assert total == pytest.approx(expected, rel=1e-4)


def test_accumulated_gradients_are_those_of_one_batch(make_teacher, make_student, make_trainer):
    # Texts of different lengths count alike.
    def make(batches):
        teacher = make_teacher()
        student = make_student(teacher, linformer_length=4, **NO_DROPOUT)
        return make_trainer(student, teacher, **{**PLAIN_SGD, "learning_rate": 0.2, **ALL_LOSSES, **batches})

    assert_accumulation_changes_nothing(make, ("loss", "hidden_loss", "grad_norm"))


def test_a_resumed_run_ends_where_a_straight_run_does(
    tmp_path, make_teacher, tiny_config, bert_tokenizer, make_trainer
):
    # Dropout, a schedule, batches by length, evaluations and checkpoints amid the epochs: all has to be restored.
    options = {"num_train_epochs": 3, "per_device_train_batch_size": 6, "learning_rate": 1e-3}
    options |= {"save_strategy": "steps", "eval_strategy": "steps", "eval_steps": 2, "save_steps": 2}
    options |= {"save_total_limit": None, **ALL_LOSSES}

    def make(seed):
        torch.manual_seed(seed)
        student = DseModel(tiny_config(bert_tokenizer, linformer_length=4, initializer_range=0.2))
        return make_trainer(student, make_teacher(num_hidden_layers=4), evaluate=TEXTS[:5], **options)

    straight, _ = assert_resumes(make, tmp_path / "run", (2, 4, 8), ("loss", "hidden_loss", "eval_loss"))
    assert straight.state.global_step == 9


def test_an_encoder_learns_from_itself(tmp_path, save_bert, bert_tokenizer, tiny_config):
    source = save_bert(tmp_path / "source", num_hidden_layers=4)
    options = {"max_length": MAX_LENGTH, "report_to": "none", "use_cpu": True, "disable_tqdm": True}
    args = GeneralTrainingArguments(str(tmp_path / "run"), **options, per_device_train_batch_size=4)
    parts = {name: Dataset.from_dict({"text": texts}) for name, texts in (("near", TEXTS), ("far", TEXTS[:5]))}
    trainer = GeneralTrainer(source, args, parts["near"], parts)
    assert trainer.teacher.config.layer_types == ["full_attention"] * 4
    assert trainer.processing_class.model_max_length == MAX_LENGTH
    # Batches of similar length: the first has the longest text.
    longest = [batch["attention_mask"].sum(dim=1).max() for batch in trainer.get_train_dataloader()]
    assert longest[0] == max(trainer.train_dataset["length"])
    trainer.train()
    # Of several datasets the first tells the best; others can be evaluated on.
    assert trainer.state.best_metric == min(logged(trainer, "eval_near_loss"))
    assert trainer.evaluate(parts["far"])["eval_loss"] > 0

    other = DseModel(tiny_config(bert_tokenizer, vocab_size=len(bert_tokenizer) + 9))
    with pytest.raises(ValueError, match="has a `vocab_size` of .* and the teacher one of .*converted from"):
        GeneralTrainer(other, args, parts["near"], processing_class=bert_tokenizer, teacher=source)
