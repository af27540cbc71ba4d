# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""GeneralTrainer: its losses against slow references, and what it computes, saves, resumes and refuses."""

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
from hf_dse.training.losses import hidden_loss


MAX_LENGTH = 24
WORDS = "the a cat dog sat ran on mat house is old new in and of".split()
SIZES = (13, 2, 5, 16, 9, 2, 14, 5, 11, 4, 9, 3, 12, 3, 12, 3)
TEXTS = [" ".join(np.random.default_rng(row).choice(WORDS, size)) for row, size in enumerate(SIZES)]
ALL_LOSSES = {"hidden_weight": 0.7, "sentence_weight": 0.9}
PARTS = [name.replace("weight", "loss") for name in ALL_LOSSES]


def only(name):
    return {**dict.fromkeys(ALL_LOSSES, 0.0), f"{name}_weight": 1.0}


ENCODERS = {
    "bert": {"linformer_projection": "strided"},
    "modernbert": {"global_attn_every_n_layers": 2, "local_attention": 4},
    "eurobert": {"num_key_value_heads": 1, "head_dim": 8, "linformer_projection": "strided"},
    "mpnet": {"linformer_projection": "strided"},
    "albert": {"embedding_size": 8},
}


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
        learned = {"linformer_projection": "learned", "linformer_sharing": "headwise"}
        student = DseModel(tiny_config(bert_tokenizer, **{**learned, **fields}))
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


@torch.no_grad()
def run(model, batch):
    """The inputs of the losses."""
    output = model(**batch, output_hidden_states=True)
    return {"hidden": output.hidden_states, "embeddings": output.pooler_output}


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


MASKS = {
    "none": torch.ones(3, 7, dtype=torch.long),
    "right": torch.tensor([[1] * 7, [1] * 4 + [0] * 3, [1] + [0] * 6]),
    "left": torch.tensor([[1] * 7, [0] * 3 + [1] * 4, [0] * 6 + [1]]),
}


def states(*shapes):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, dtype=torch.float64, generator=generator) for shape in shapes]


@pytest.mark.parametrize("padding", MASKS)
def test_the_loss_of_layers(padding):
    mask = MASKS[padding]
    student, teacher = states((3, 7, 4), (3, 7, 4))
    expected = float(slow_hidden_loss(student, teacher, mask))
    assert hidden_loss(student, teacher, mask).item() == pytest.approx(expected, rel=1e-10)
    assert expected > 0.01


# Losses of a step


def test_a_copy_of_the_teacher_has_nothing_to_learn(make_teacher, make_student, make_trainer, batch):
    teacher = make_teacher()
    copy = make_student(teacher, layer_types=["full_attention"] * 2)
    # As long as k is not below the length, a linear layer attends to every token.
    exact = make_student(teacher, linformer_length=MAX_LENGTH)
    short = make_student(teacher, linformer_length=4)
    for student, learns in ((copy, False), (exact, False), (short, True)):
        losses = losses_of(make_trainer(student, teacher, **ALL_LOSSES), batch)
        assert set(losses) == {"loss", *PARTS}
        for name, value in losses.items():
            assert (value > 1e-4) == learns, name
            assert value > 1e-4 if learns else abs(value) < 1e-6, name


# In ALBERT one module serves all layers.
@pytest.mark.parametrize("model_type", ["bert", "albert"])
def test_the_loss_is_the_weighted_sum_of_its_parts(model_type, make_teacher, make_student, make_trainer, batch):
    teacher = make_teacher(num_hidden_layers=5, model_type=model_type, embedding_size=16)
    student = make_student(teacher, linformer_length=4, model_type=model_type, embedding_size=16)
    trainer = make_trainer(student, teacher, **ALL_LOSSES)
    losses = losses_of(trainer, batch)
    mask = batch["attention_mask"]
    ours, theirs = run(student, batch), run(teacher, batch)
    assert [len(part["hidden"]) for part in (ours, theirs)] == [3, 6]
    layers = [(0, 1), (1, 4)]
    hidden = [hidden_loss(ours["hidden"][m + 1], theirs["hidden"][t + 1], mask) for m, t in layers]
    expected = {
        "hidden_loss": sum(hidden) / 2,
        "sentence_loss": 1 - torch.cosine_similarity(ours["embeddings"], theirs["embeddings"]).mean(),
    }
    assert list(expected) == PARTS
    for name, value in expected.items():
        assert losses[name].item() == pytest.approx(value.item(), rel=1e-4), name
        assert value > 1e-3, name
    total = sum(ALL_LOSSES[name.replace("loss", "weight")] * value for name, value in expected.items())
    assert losses["loss"].item() == pytest.approx(total.item(), rel=1e-4)


@pytest.mark.parametrize("model_type", ENCODERS)
def test_any_encoder(model_type, make_teacher, make_student, make_trainer):
    """Checkpointed and accumulated gradients are the plain ones."""
    fields = {"model_type": model_type, **ENCODERS[model_type], **NO_DROPOUT}
    teacher, found = make_teacher(4, **fields), []
    # transformers has no gradient checkpointing for these two.
    checkpointing = {"gradient_checkpointing": model_type not in ("mpnet", "albert")}
    accumulated = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4, **checkpointing}
    for batches in ({}, accumulated, {**checkpointing, "gradient_checkpointing_kwargs": {"use_reentrant": True}}):
        student = make_student(teacher, num_hidden_layers=4, linformer_length=4, **fields)
        trainer = make_trainer(student, teacher, **{**PLAIN_SGD, **ALL_LOSSES, **batches})
        trainer.train()
        found.append((weights(student), logged(trainer, "loss")))
    (plain, losses), *others = found
    for weight, logs in others:
        for name in plain:
            torch.testing.assert_close(weight[name], plain[name], rtol=1e-4, atol=1e-5, msg=name)
        np.testing.assert_allclose(logs, losses, rtol=1e-3, atol=1e-5)
    assert len(losses) == 2 and min(losses) > 1e-5


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

    straight, _ = assert_resumes(make, tmp_path / "run", (2, 4, 8), ("loss", "eval_loss"))
    assert straight.state.global_step == 9


def test_the_first_of_several_sets_tells_the_best(tmp_path, make_teacher, make_student, bert_tokenizer, tiny_config):
    options = {"max_length": MAX_LENGTH, "report_to": "none", "use_cpu": True, "disable_tqdm": True}
    args = GeneralTrainingArguments(str(tmp_path / "run"), **options, per_device_train_batch_size=4)
    parts = {name: Dataset.from_dict({"text": texts}) for name, texts in (("near", TEXTS), ("far", TEXTS[:5]))}
    teacher = make_teacher()
    given = (args, parts["near"], parts, bert_tokenizer)
    trainer = GeneralTrainer(make_student(teacher, linformer_length=4), *given, teacher)
    assert trainer.processing_class.model_max_length == MAX_LENGTH
    # Batches of similar length: the first has the longest text.
    longest = [batch["attention_mask"].sum(dim=1).max() for batch in trainer.get_train_dataloader()]
    assert longest[0] == max(trainer.train_dataset["length"])
    trainer.train()
    assert trainer.state.best_metric == min(logged(trainer, "eval_near_loss"))
    # Others can be evaluated on.
    assert trainer.evaluate(parts["far"])["eval_loss"] > 0

    with pytest.raises(TypeError, match="needs a loaded `teacher`, the source of the student"):
        GeneralTrainer(make_student(teacher), *given, "a name")
    other = DseModel(tiny_config(bert_tokenizer, vocab_size=len(bert_tokenizer) + 9))
    with pytest.raises(ValueError, match="has a `vocab_size` of .* and the teacher one of .*converted from"):
        GeneralTrainer(other, *given, teacher)
    args._n_gpu = 2
    with pytest.raises(ValueError, match="start one process for each device with torchrun"):
        GeneralTrainer(make_student(teacher), *given, teacher)


def test_accumulated_gradients_are_those_of_one_batch(make_teacher, make_student, make_trainer):
    # Texts of different lengths count alike.
    def make(batches):
        teacher = make_teacher()
        student = make_student(teacher, linformer_length=4, **NO_DROPOUT)
        return make_trainer(student, teacher, **{**PLAIN_SGD, "learning_rate": 0.2, **ALL_LOSSES, **batches})

    assert_accumulation_changes_nothing(make)
