# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The general stage: its losses against slow references, and what its Trainer computes, saves, resumes and refuses."""

import json
import math

import pytest
import torch
from datasets import Dataset
from transformers import AutoModel, AutoTokenizer

from hf_dse import DseConfig, DseModel, convert_encoder
from hf_dse.cli.parsing import parse_args
from hf_dse.data.arguments import TextArguments
from hf_dse.data.collators import TextCollator
from hf_dse.data.texts import load_texts
from hf_dse.student.convert import _evenly_spaced
from hf_dse.training import layerwise_losses
from hf_dse.training.arguments import GeneralTrainingArguments
from hf_dse.training.general_trainer import GeneralTrainer, train_general
from hf_dse.training.layerwise import LayerwiseDistillation, map_layers
from hf_dse.training.layerwise_losses import hidden_loss, relation_loss


MAX_LENGTH = 24
TEXTS = [
    "the cat sat on the mat and ran in the house",
    "a dog",
    "the old house is new",
    "a cat ran on and on and on and on in the old house",
    "the dog sat in the house of the cat",
    "new mat",
    "the mat is old and the house is new and the cat is in",
    "a dog ran in a house",
    "on the old mat sat a new cat and a new dog",
    "is the house old",
    "and the cat and the dog and the mat",
    "the dog ran",
    "in the new house is an old mat of the old dog",
    "of the cat",
    "the house is the house of the dog and of the cat",
    "ran and sat",
]
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
TINY_RUN = {
    "max_length": MAX_LENGTH,
    "per_device_train_batch_size": 8,
    "per_device_eval_batch_size": 5,
    "eval_strategy": "no",
    "save_strategy": "no",
    "load_best_model_at_end": False,
    "logging_steps": 1,
    "report_to": "none",
    "use_cpu": True,
    "disable_tqdm": True,
}
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
    """A student as conversion makes it: the weights of its teacher, the last layers of it where it is less deep."""

    def make(teacher, num_hidden_layers=2, **fields):
        config = {"linformer_sharing": "headwise", "num_hidden_layers": num_hidden_layers, **fields}
        student = DseModel(tiny_config(bert_tokenizer, **config))
        dropped = teacher.config.num_hidden_layers - num_hidden_layers
        state = {
            name.replace(f"layer.{layer}.", f"layer.{layer - dropped}."): value
            for layer in range(dropped, teacher.config.num_hidden_layers)
            for name, value in teacher.state_dict().items()
            if f"layer.{layer}." in name or "layer." not in name
        }
        unknown = student.load_state_dict(state, strict=False)
        assert not unknown.unexpected_keys
        assert all("linformer." in name for name in unknown.missing_keys)
        return student

    return make


@pytest.fixture
def make_trainer(tmp_path, bert_tokenizer):
    def make(model, train=TEXTS, evaluate=None, **fields):
        arguments = {"output_dir": str(tmp_path / "run"), **TINY_RUN, **fields}
        return GeneralTrainer(
            model=model,
            args=GeneralTrainingArguments(**arguments),
            train_dataset=Dataset.from_dict({"text": train}),
            eval_dataset=None if evaluate is None else Dataset.from_dict({"text": evaluate}),
            processing_class=bert_tokenizer,
        )

    return make


@pytest.fixture
def batch(bert_tokenizer):
    return TextCollator(bert_tokenizer, MAX_LENGTH)([{"text": text} for text in TEXTS[:6]])


def weights(model):
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def same(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def changed(before, after):
    return {name for name in before if not torch.equal(before[name], after[name])}


def logged(trainer, name):
    return [entry[name] for entry in trainer.state.log_history if name in entry]


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


def states(*sizes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(3, 7, size, dtype=torch.float64, generator=generator) for size in sizes]


@pytest.mark.parametrize("padding", MASKS)
def test_hidden_loss(padding):
    student, teacher = states(4, 4)
    expected = slow_hidden_loss(student, teacher, MASKS[padding])
    assert hidden_loss(student, teacher, MASKS[padding]).item() == pytest.approx(expected.item(), rel=1e-12)


@pytest.mark.parametrize("num_heads", [1, 2, 6])
@pytest.mark.parametrize("padding", MASKS)
def test_relation_loss(padding, num_heads):
    student, teacher = states(12, 18)
    expected = slow_relation_loss(student, teacher, MASKS[padding], num_heads)
    loss = relation_loss(student, teacher, MASKS[padding], num_heads).item()
    assert loss == pytest.approx(expected, rel=1e-10)
    assert loss > 0.01


@pytest.mark.parametrize("loss", [hidden_loss, lambda *inputs: relation_loss(*inputs, num_heads=2)])
def test_losses_ignore_what_stands_in_padding(loss):
    student, teacher = states(8, 8)
    mask = MASKS["right"]
    expected = loss(student, teacher, mask)
    for value in (1e4, math.nan):
        filled = [part.masked_fill(mask[..., None] == 0, value) for part in (student, teacher)]
        filled[0].requires_grad_()
        actual = loss(*filled, mask)
        assert torch.equal(actual, expected)
        if math.isfinite(value):
            (gradient,) = torch.autograd.grad(actual, filled[0])
            assert (gradient[mask == 0] == 0).all()
            assert gradient.isfinite().all()


@pytest.mark.parametrize("block", [1, 3, 6])
def test_relations_in_blocks_are_the_same(block, monkeypatch):
    (student,), (teacher,) = states(12), states(18, seed=1)
    student.requires_grad_()
    expected = relation_loss(student, teacher, MASKS["right"], 3)
    (gradient,) = torch.autograd.grad(expected, student)
    sizes = []
    whole = layerwise_losses._row_divergence
    monkeypatch.setattr(layerwise_losses, "RELATION_BLOCK", block)
    monkeypatch.setattr(
        layerwise_losses, "_row_divergence", lambda *call: sizes.append(call[0].shape[2]) or whole(*call)
    )
    actual = relation_loss(student, teacher, MASKS["right"], 3)
    forward = len(sizes)
    (other,) = torch.autograd.grad(actual, student)
    assert actual.item() == pytest.approx(expected.item(), rel=1e-12)
    assert torch.allclose(other, gradient, rtol=1e-10, atol=1e-14)
    assert max(sizes) == block
    # Nothing of a block is kept: the backward pass computes it again.
    assert len(sizes) == 2 * forward


@pytest.mark.parametrize(
    ("mapping", "student", "teacher", "expected"),
    [
        (["uniform"], 3, 6, [2, 4, 6]),
        (["uniform"], 4, 6, [1, 3, 4, 6]),
        (["uniform"], 5, 12, [2, 4, 7, 9, 12]),
        (["uniform"], 6, 6, [1, 2, 3, 4, 5, 6]),
        (["uniform"], 1, 12, [12]),
        (["uniform"], 3, 1, [1, 1, 1]),
        (["last"], 3, 6, [4, 5, 6]),
        (["last"], 2, 2, [1, 2]),
        (["1", "3", "6"], 3, 6, [1, 3, 6]),
        (["2", "2"], 2, 6, [2, 2]),
    ],
)
def test_map_layers(mapping, student, teacher, expected):
    assert map_layers(mapping, student, teacher) == expected


def test_uniform_layers_ascend_to_the_last():
    for teacher in range(1, 25):
        for student in range(1, teacher + 1):
            layers = map_layers(["uniform"], student, teacher)
            assert layers[0] >= 1
            assert layers[-1] == teacher
            assert all(first < second for first, second in zip(layers, layers[1:], strict=False))
            # The very layers that a student of this depth is made of
            assert [layer - 1 for layer in layers] == _evenly_spaced(teacher, student)


@pytest.mark.parametrize(
    ("mapping", "student", "message"),
    [
        (["middle"], 3, '"uniform", "last", or the teacher layer of each student layer.*got middle'),
        (["uniform", "last"], 3, "got uniform last"),
        ([], 3, "got nothing"),
        (["-1", "2", "3"], 3, "got -1 2 3"),
        (["1", "2"], 3, "3 numbers from 1 to 6 in ascending order; got 1 2"),
        (["0", "3", "6"], 3, "3 numbers from 1 to 6.*got 0 3 6"),
        (["2", "4", "7"], 3, "3 numbers from 1 to 6.*got 2 4 7"),
        (["4", "2", "6"], 3, "3 numbers from 1 to 6.*got 4 2 6"),
        (["last"], 7, 'needs a teacher with at least 7 layers.*it has 6: choose "uniform"'),
    ],
)
def test_wrong_mappings(mapping, student, message):
    with pytest.raises(ValueError, match=message):
        map_layers(mapping, student, 6)


# The module


def test_a_copy_of_the_teacher_has_nothing_to_learn(make_teacher, make_student, batch):
    teacher = make_teacher()
    copy = make_student(teacher, layer_types=["full_attention"] * 2)
    # As long as k is not below the length, a linear layer attends to every token.
    exact = make_student(teacher, linformer_length=MAX_LENGTH)
    short = make_student(teacher, linformer_length=4)
    for student, learns in ((copy, False), (exact, False), (short, True)):
        losses = LayerwiseDistillation(student, teacher, **ALL_LOSSES).eval()(**batch)
        assert set(losses) == {"loss", "hidden_loss", "embedding_loss", "relation_loss", "sentence_loss"}
        assert losses.pop("embedding_loss") == 0
        for name, value in losses.items():
            assert (value > 1e-4) == learns, name
            assert value > 1e-4 if learns else abs(value) < 1e-6, name


def test_the_loss_is_the_weighted_sum_of_its_parts(make_teacher, make_student, batch):
    teacher = make_teacher(num_hidden_layers=5)
    student = make_student(teacher, linformer_length=4)
    model = LayerwiseDistillation(student, teacher, layer_mapping=["2", "4"], relation_heads=4, **ALL_LOSSES).eval()
    # Away from the teacher in every part, the embeddings too.
    with torch.no_grad():
        student.embeddings.LayerNorm.bias.add_(0.3 * torch.arange(16) / 16)
    losses = model(**batch)
    mask = batch["attention_mask"]
    ours = student(**batch, output_hidden_states=True)
    theirs = teacher(**batch, output_hidden_states=True)
    assert [len(out.hidden_states) for out in (ours, theirs)] == [3, 6]
    assert torch.equal(ours.hidden_states[2], ours.last_hidden_state)
    hidden = [hidden_loss(ours.hidden_states[m], theirs.hidden_states[t], mask) for m, t in ((1, 2), (2, 4))]
    relations = 0.0
    for name in ("query", "key", "value"):
        pair = [
            getattr(net.encoder.layer[layer].attention.self, name)(out.hidden_states[layer])
            for net, layer, out in ((student, 1, ours), (teacher, 3, theirs))
        ]
        relations += relation_loss(*pair, mask, 4)
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


def test_relations_see_queries_keys_and_values(make_teacher, make_student, batch):
    teacher = make_teacher()
    for part in ("query", "key", "value"):
        student = make_student(teacher, layer_types=["full_attention"] * 2)
        with torch.no_grad():
            getattr(student.encoder.layer[1].attention.self, part).weight.mul_(1.5)
        losses = LayerwiseDistillation(student, teacher, **ALL_LOSSES, layer_mapping=["1", "2"]).eval()(**batch)
        assert losses["relation_loss"] > 1e-4


@pytest.mark.parametrize("name", ["hidden", "embedding", "sentence"])
def test_parts_without_weight_are_left_out(name, make_teacher, make_student, batch):
    teacher = make_teacher()
    model = LayerwiseDistillation(make_student(teacher), teacher, **only(name))
    assert model(**batch).keys() == {"loss", f"{name}_loss"}


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_no_loss(side, make_teacher, make_student, bert_tokenizer, batch):
    teacher = make_teacher()
    model = LayerwiseDistillation(make_student(teacher, linformer_length=4), teacher, **ALL_LOSSES).eval()
    expected = model(**batch)
    sizes = batch["attention_mask"].sum(dim=1).tolist()
    padded = {name: torch.zeros(len(sizes), MAX_LENGTH + 9, dtype=torch.long) for name in batch}
    padded["input_ids"].fill_(bert_tokenizer.pad_token_id)
    for row, size in enumerate(sizes):
        start = 0 if side == "right" else MAX_LENGTH + 9 - size
        for name in batch:
            padded[name][row, start : start + size] = batch[name][row, :size]
    for name, value in model(**padded).items():
        assert value.item() == pytest.approx(expected[name].item(), rel=1e-4, abs=1e-6), name
    # A batch counts as the mean of its texts.
    alone = [model(**{name: value[row : row + 1] for name, value in batch.items()}) for row in range(len(sizes))]
    for name, value in expected.items():
        mean = sum(losses[name] for losses in alone) / len(alone)
        assert value.item() == pytest.approx(mean.item(), rel=1e-4, abs=1e-6), name


@pytest.mark.parametrize("name", ["hidden", "sentence"])
@pytest.mark.parametrize("sharing", ["none", "headwise", "key_value", "layerwise"])
def test_gradients_reach_the_length_projection(name, sharing, make_teacher, make_student, batch):
    teacher = make_teacher()
    student = make_student(teacher, linformer_length=4, linformer_sharing=sharing)
    LayerwiseDistillation(student, teacher, **only(name))(**batch)["loss"].backward()
    gradients = {key: value.grad for key, value in student.named_parameters() if "linformer." in key}
    assert len(gradients) == {"none": 4, "headwise": 4, "key_value": 2, "layerwise": 1}[sharing]
    for key, gradient in gradients.items():
        assert gradient.abs().max() > 0, key
    assert all(parameter.grad is None for parameter in teacher.parameters())


def test_relations_give_the_length_projection_of_their_layer_no_gradient(make_teacher, make_student, batch):
    teacher = make_teacher()
    student = make_student(teacher, linformer_length=4)
    model = LayerwiseDistillation(student, teacher, **{**only("relation"), "sentence_weight": 1.0})
    model(**batch)["relation_loss"].backward()
    gradients = {name: parameter.grad for name, parameter in student.named_parameters() if "linformer." in name}
    for name, gradient in gradients.items():
        assert (gradient is None) == ("layer.1." in name), name


def test_other_widths_are_projected(make_teacher, tiny_config, bert_tokenizer, batch):
    teacher = make_teacher(num_hidden_layers=4, hidden_size=24, num_attention_heads=4, projection_dim=20)
    student = DseModel(tiny_config(bert_tokenizer))
    model = LayerwiseDistillation(student, teacher, **ALL_LOSSES)
    shapes = {name: tuple(value.shape) for name, value in model.projections.state_dict().items()}
    assert shapes == {
        "hidden_1.weight": (24, 16),
        "hidden_2.weight": (24, 16),
        "embedding.weight": (24, 16),
        "sentence.weight": (20, 16),
    }
    losses = model.eval()(**batch)
    ours = student.eval()(**batch, output_hidden_states=True)
    theirs = teacher(**batch, output_hidden_states=True)
    mask = batch["attention_mask"]
    expected = {
        "hidden_loss": sum(
            hidden_loss(
                ours.hidden_states[m] @ model.projections[f"hidden_{m}"].weight.T, theirs.hidden_states[t], mask
            )
            for m, t in ((1, 2), (2, 4))
        )
        / 2,
        "embedding_loss": hidden_loss(
            ours.hidden_states[0] @ model.projections["embedding"].weight.T, theirs.hidden_states[0], mask
        ),
        "sentence_loss": 1
        - torch.cosine_similarity(
            ours.pooler_output @ model.projections["sentence"].weight.T, theirs.pooler_output
        ).mean(),
    }
    for name, value in expected.items():
        assert losses[name].item() == pytest.approx(value.item(), rel=1e-4), name
    losses["loss"].backward()
    for name, parameter in model.projections.named_parameters():
        assert parameter.grad.abs().max() > 0, name
    same_size = make_teacher()
    assert not LayerwiseDistillation(student, same_size, **ALL_LOSSES).projections


@pytest.mark.parametrize("is_chunked", [False, True])
def test_the_teacher_is_read_through_the_projection_of_the_student(
    is_chunked, make_teacher, make_student, bert_tokenizer, make_trainer
):
    teacher = make_teacher(**NO_DROPOUT)
    source = make_student(teacher, layer_types=["full_attention"] * 2, **NO_DROPOUT)
    student = DseModel(DseConfig(**{**source.config.to_dict(), "projection_dim": 5}))
    torch.manual_seed(0)
    student.load_state_dict({**student.state_dict(), **source.state_dict()})
    start = student.projection.weight.clone()
    model = LayerwiseDistillation(student, teacher, **only("sentence"))
    assert not model.projections
    texts = [{"text": text} for text in TEXTS[:6]]
    batch = TextCollator(bert_tokenizer, MAX_LENGTH, MAX_LENGTH if is_chunked else None)(texts)
    # It begins where its teacher is, in any projection.
    assert model(**batch)["loss"].item() == pytest.approx(0, abs=1e-5)

    # What it learns afterwards is the projection of the start, not its own.
    with torch.no_grad():
        student.projection.weight.add_(torch.randn_like(start))
    theirs = teacher(**{name: batch[name] for name in ("input_ids", "attention_mask")}).pooler_output
    target = theirs @ start.T + student.projection.bias
    ours = student(**{name: batch[name] for name in ("input_ids", "attention_mask")}).pooler_output
    expected = 1 - torch.cosine_similarity(ours, target).mean()
    assert model(**batch)["loss"].item() == pytest.approx(expected.item(), rel=1e-4)
    trainer = make_trainer(model, num_train_epochs=10, learning_rate=1e-2, **only("sentence"))
    trainer.train()
    assert torch.equal(model.target_projection.weight, start)
    assert model.eval()(**batch)["loss"] < 0.5 * expected


def test_the_teacher_is_no_part_of_the_module(make_teacher, make_student):
    teacher = make_teacher().train()
    model = LayerwiseDistillation(make_student(teacher), teacher)
    assert all(name.startswith("student.") for name in model.state_dict())
    model.train()
    assert model.student.training
    assert not any(module.training for module in teacher.modules())
    assert not any(parameter.requires_grad for parameter in teacher.parameters())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"relation_heads": 3}, r"student \(16\) and teacher \(16\), got 3: choose a divisor of 16"),
        ({"relation_heads": 0}, "got 0"),
        (only("relation"), "Relations alone do not train.*`hidden_weight` or `sentence_weight` above 0"),
        ({**only("relation"), "embedding_weight": 1.0}, "Relations alone do not train"),
        (dict.fromkeys(ALL_LOSSES, 0.0), "All loss weights are 0"),
        ({"sentence_weight": -1.0}, "`sentence_weight` must be a finite number of at least 0, got -1.0"),
        ({"layer_mapping": ["1"]}, "2 numbers from 1 to 2"),
    ],
)
def test_what_cannot_be_learned_is_refused(fields, message, make_teacher, make_student):
    teacher = make_teacher()
    with pytest.raises(ValueError, match=message):
        LayerwiseDistillation(make_student(teacher), teacher, **fields)


def test_relations_alone_train_a_student_without_e_and_f(make_teacher, make_student, batch):
    teacher = make_teacher()
    student = make_student(teacher, linformer_projection="mean", linformer_length=4)
    assert LayerwiseDistillation(student, teacher, **only("relation"))(**batch)["loss"] > 0


def test_other_vocabularies_are_refused(make_teacher, make_student, tiny_config, bert_tokenizer):
    teacher = make_teacher()
    student = DseModel(tiny_config(bert_tokenizer, vocab_size=50))
    with pytest.raises(ValueError, match="a vocabulary of 50 tokens and the teacher one of .*same tokenizer"):
        LayerwiseDistillation(student, teacher)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"hidden_weight": -0.1}, "`hidden_weight` must be a finite number of at least 0, got -0.1"),
        ({"relation_weight": math.nan}, "relation_weight=nan: it has to be a finite number"),
        (dict.fromkeys(ALL_LOSSES, 0.0), "All loss weights are 0.*set one of `hidden_weight`"),
        ({"relation_heads": 0}, "`relation_heads` must be at least 1, got 0"),
        ({"progressive": True, "hidden_weight": 0.0}, "`hidden_weight` must be above 0"),
        ({"remove_unused_columns": True}, "`remove_unused_columns` must be false"),
    ],
)
def test_bad_training_arguments(fields, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        GeneralTrainingArguments(str(tmp_path), **{**TINY_RUN, **fields})


def test_arguments_are_flags(tmp_path):
    argv = [
        "--output_dir",
        str(tmp_path),
        "--train_file",
        "a.txt",
        "--layer_mapping",
        "1",
        "3",
        "--progressive",
        "true",
    ]
    text_args, training_args = parse_args(argv, TextArguments, GeneralTrainingArguments)
    assert (text_args.train_file, training_args.max_length) == ("a.txt", 128)
    assert (training_args.layer_mapping, training_args.progressive) == (["1", "3"], True)
    assert (training_args.learning_rate, training_args.per_device_train_batch_size) == (1e-4, 64)
    assert (training_args.num_train_epochs, training_args.relation_heads) == (1, None)
    weights_of = [getattr(training_args, name) for name in ALL_LOSSES]
    assert weights_of == [1.0, 0.0, 1.0, 1.0]


# The Trainer


def test_a_student_learns(make_teacher, make_student, make_trainer):
    teacher = make_teacher(num_hidden_layers=4)
    student = make_student(teacher, linformer_length=4, **NO_DROPOUT)
    model = LayerwiseDistillation(student, teacher, **ALL_LOSSES)
    frozen, start = weights(teacher), weights(student)
    trainer = make_trainer(model, evaluate=TEXTS, learning_rate=3e-3, num_train_epochs=20, logging_steps=10)
    before = trainer.evaluate()
    trainer.train()
    after = trainer.evaluate()
    for name in ("eval_loss", "eval_hidden_loss", "eval_relation_loss", "eval_sentence_loss"):
        assert after[name] < 0.6 * before[name], name
    assert same(weights(teacher), frozen)
    # E and F of both layers had their part in it.
    learned = [name for name in changed(start, weights(student)) if "linformer." in name]
    assert len(learned) == 4
    # The lines of the log have the parts of their loss, averaged over the same steps.
    assert len(logged(trainer, "loss")) == 4
    parts = [logged(trainer, name) for name in ("hidden_loss", "embedding_loss", "relation_loss", "sentence_loss")]
    for total, *values in zip(logged(trainer, "loss"), *parts, strict=True):
        expected = sum(weight * value for weight, value in zip(ALL_LOSSES.values(), values, strict=True))
        assert total == pytest.approx(expected, rel=1e-4)


def test_evaluation_is_the_mean_over_texts(make_teacher, make_student, make_trainer, bert_tokenizer):
    teacher = make_teacher()
    model = LayerwiseDistillation(make_student(teacher, linformer_length=4), teacher)
    # Batches of 5, 5, 5 and 1.
    metrics = make_trainer(model.train(), evaluate=TEXTS).evaluate()
    collator = TextCollator(bert_tokenizer, MAX_LENGTH)
    alone = [model.eval()(**collator([{"text": text}])) for text in TEXTS]
    for name in ("loss", "hidden_loss", "relation_loss", "sentence_loss"):
        expected = sum(losses[name].item() for losses in alone) / len(alone)
        assert metrics[f"eval_{name}"] == pytest.approx(expected, rel=1e-4), name
    assert "eval_embedding_loss" not in metrics


def test_several_datasets_and_other_ones_are_evaluated(source, tmp_path):
    options = {name: TINY_RUN[name] for name in ("max_length", "per_device_eval_batch_size", "report_to", "use_cpu")}
    options |= {"neftune_noise_alpha": 5.0, "learning_rate": 1e-2, "per_device_train_batch_size": 4}
    args = GeneralTrainingArguments(str(tmp_path / "out"), **options)
    parts = {name: Dataset.from_dict({"text": texts}) for name, texts in (("near", TEXTS), ("far", TEXTS[:5]))}
    trainer = GeneralTrainer(source, args, parts["near"], parts)
    trainer.train()
    logged = [entry for entry in trainer.state.log_history if "eval_near_loss" in entry]
    assert trainer.state.best_metric == min(entry["eval_near_loss"] for entry in logged)
    other = trainer.evaluate(parts["far"])
    assert other["eval_loss"] > 0 and other["eval_hidden_loss"] > 0


def test_accumulated_gradients_are_those_of_one_batch(make_teacher, make_student, make_trainer):
    # Clipped gradients would hide a wrong scale of the loss. Texts of different lengths count alike.
    plain = {
        "optim": "sgd",
        "learning_rate": 0.2,
        "lr_scheduler_type": "constant",
        "warmup_steps": 0,
        "max_grad_norm": 0.0,
        "max_steps": 3,
        "train_sampling_strategy": "sequential",
    }
    results = []
    for size, accumulation in ((8, 1), (1, 8), (4, 2)):
        teacher = make_teacher()
        student = make_student(teacher, linformer_length=4, **NO_DROPOUT)
        start = weights(student)
        model = LayerwiseDistillation(student, teacher, **ALL_LOSSES)
        batches = {"per_device_train_batch_size": size, "gradient_accumulation_steps": accumulation}
        trainer = make_trainer(model, **plain, **batches)
        trainer.train()
        results.append((weights(student), [logged(trainer, name) for name in ("loss", "hidden_loss")]))
    (first, losses), *others = results
    assert max((first[name] - start[name]).abs().max() for name in start) > 5e-3
    for second, other_losses in others:
        for name in start:
            assert torch.allclose(first[name], second[name], rtol=0, atol=2e-6), name
        for mine, theirs in zip(losses, other_losses, strict=True):
            assert len(mine) == 3
            assert mine == pytest.approx(theirs, abs=1e-5)


WIDE = {"hidden_size": 24, "num_attention_heads": 4}


@pytest.mark.parametrize(
    ("teacher_fields", "fields"),
    [({}, {}), (WIDE, {}), (WIDE, {"progressive": True})],
    ids=["", "wide", "progressive"],
)
def test_a_resumed_run_ends_where_a_straight_run_does(
    teacher_fields, fields, tmp_path, make_teacher, tiny_config, bert_tokenizer, make_trainer
):
    # Dropout, a schedule, batches by length, evaluations and checkpoints amid the epochs: all has to be restored.
    def make(seed):
        teacher = make_teacher(num_hidden_layers=4, **teacher_fields)
        torch.manual_seed(seed)
        student = DseModel(tiny_config(bert_tokenizer, linformer_length=4, initializer_range=0.2))
        return LayerwiseDistillation(student, teacher, **{**ALL_LOSSES, "relation_weight": 0.1}, relation_heads=2)

    options = {
        "num_train_epochs": 3,
        "per_device_train_batch_size": 6,
        "learning_rate": 1e-3,
        "save_strategy": "steps",
        "eval_strategy": "steps",
        "eval_steps": 2,
        "save_steps": 2,
        "save_total_limit": None,
        **fields,
    }
    straight = make_trainer(make(0), evaluate=TEXTS[:5], **options)
    assert straight.train().global_step == 9
    expected, first = weights(straight.model), straight.optimizer.state_dict()
    for step in (2, 4, 8):
        # A new process would not start from the same random numbers or weights.
        resumed = make_trainer(make(1), evaluate=TEXTS[:5], **options)
        torch.manual_seed(7)
        checkpoint = tmp_path / "run" / f"checkpoint-{step}"
        assert (checkpoint / "distillation.safetensors").exists() == bool(teacher_fields)
        resumed.train(resume_from_checkpoint=str(checkpoint))
        assert same(weights(resumed.model), expected)
        second = resumed.optimizer.state_dict()
        assert first["param_groups"] == second["param_groups"]
        assert first["state"].keys() == second["state"].keys()
        for index, state in first["state"].items():
            assert same(state, second["state"][index])
        for name, count in (("loss", 9), ("eval_hidden_loss", 5)):
            values = [logged(run, name) for run in (straight, resumed)]
            assert len(values[0]) == count
            assert values[0] == values[1]


def test_a_checkpoint_is_a_model_folder(tmp_path, make_teacher, make_student, make_trainer, bert_tokenizer, batch):
    teacher = make_teacher()
    student = make_student(teacher, linformer_length=4)
    make_trainer(LayerwiseDistillation(student, teacher), max_steps=1, save_strategy="steps", save_steps=1).train()
    checkpoint = tmp_path / "run" / "checkpoint-1"
    names = {path.name for path in checkpoint.iterdir()}
    assert {"config.json", "configuration_dse.py", "modeling_dse.py", "model.safetensors", "tokenizer.json"} <= names
    assert "distillation.safetensors" not in names
    loaded, info = AutoModel.from_pretrained(checkpoint, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    with torch.no_grad():
        assert torch.equal(loaded(**batch).pooler_output, student.eval()(**batch).pooler_output)
    assert AutoTokenizer.from_pretrained(checkpoint)(TEXTS)["input_ids"] == bert_tokenizer(TEXTS)["input_ids"]


def test_the_best_student_is_kept(make_teacher, tiny_config, bert_tokenizer, make_trainer):
    teacher = make_teacher(**WIDE)
    torch.manual_seed(0)
    model = LayerwiseDistillation(DseModel(tiny_config(bert_tokenizer)), teacher, relation_heads=2)
    # Steps that grow make everything worse in the end.
    trainer = make_trainer(
        model,
        evaluate=TEXTS,
        max_steps=4,
        learning_rate=0.5,
        warmup_steps=4,
        eval_strategy="steps",
        save_strategy="steps",
        eval_steps=1,
        save_steps=1,
        load_best_model_at_end=True,
    )
    trainer.train()
    losses = logged(trainer, "eval_loss")
    assert min(losses) < losses[-1]
    # With the projections of that time, too.
    assert trainer.evaluate()["eval_loss"] == pytest.approx(min(losses), rel=1e-6)


@pytest.mark.parametrize("sharing", ["headwise", "layerwise"])
def test_progressive_training_goes_from_layer_to_layer(
    sharing, make_teacher, tiny_config, bert_tokenizer, make_trainer
):
    teacher = make_teacher(num_hidden_layers=4, **WIDE)
    torch.manual_seed(0)
    student = DseModel(tiny_config(bert_tokenizer, linformer_length=4, linformer_sharing=sharing, **NO_DROPOUT))
    student.embeddings.position_embeddings.requires_grad_(False)
    model = LayerwiseDistillation(student, teacher, relation_heads=2)
    trainable = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    trainer = make_trainer(
        model, progressive=True, max_steps=6, learning_rate=1e-3, lr_scheduler_type="constant", warmup_steps=0
    )
    shots = []
    compute_loss = trainer.compute_loss

    def watch(model, inputs, **options):
        shots.append(({name for name, p in model.named_parameters() if p.requires_grad}, weights(trainer.model)))
        return compute_loss(model, inputs, **options)

    trainer.compute_loss = watch
    trainer.train()
    shots.append((trainable, weights(model)))
    moved = [changed(first, second) for (_, first), (_, second) in zip(shots, shots[1:], strict=False)]
    first = {name for name in trainable if name.startswith(("student.embeddings.", "student.encoder.linformer."))}
    assert len(first) == (4 if sharing == "headwise" else 5)
    for part, layer in ((0, 1), (1, 1), (2, 2), (3, 2)):
        names = {
            name
            for name in trainable
            if name.startswith((f"student.encoder.layer.{layer - 1}.", f"projections.hidden_{layer}."))
        }
        names |= first if layer == 1 else set()
        assert shots[part][0] == names
        # Rows of words that do not occur have no gradient, but all others move.
        assert moved[part] == names
    for part in (4, 5):
        assert shots[part][0] == trainable
        assert moved[part] == trainable
    assert all(parameter.requires_grad == (name in trainable) for name, parameter in model.named_parameters())
    assert len(logged(trainer, "hidden_loss")) == 6
    assert logged(trainer, "loss")[:4] == pytest.approx(logged(trainer, "hidden_loss")[:4])
    assert len(logged(trainer, "relation_loss")) == 2


def test_progressive_training_evaluates_everything(make_teacher, make_student, make_trainer):
    teacher = make_teacher()
    model = LayerwiseDistillation(make_student(teacher, linformer_length=4), teacher)
    options = {"eval_strategy": "steps", "eval_steps": 1, "max_steps": 3, "learning_rate": 0.0}
    trainer = make_trainer(model, evaluate=TEXTS, progressive=True, **options)
    trainer.train()
    for name in ("eval_loss", "eval_hidden_loss", "eval_relation_loss", "eval_sentence_loss"):
        values = logged(trainer, name)
        assert values == pytest.approx([values[0]] * 3)
    with pytest.raises(ValueError, match="divides the training into 3 parts.*has only 2 steps: train longer"):
        make_trainer(model, progressive=True, max_steps=2).train()


def test_activation_checkpointing_changes_nothing(make_teacher, make_student, make_trainer):
    # Its name in transformers below 5.23 is the other one.
    fields = GeneralTrainingArguments.__dataclass_fields__
    option = "activation_checkpointing" if "activation_checkpointing" in fields else "gradient_checkpointing"
    results = []
    for enable in (False, True):
        teacher = make_teacher()
        student = make_student(teacher, linformer_length=4)
        model = LayerwiseDistillation(student, teacher, **ALL_LOSSES)
        make_trainer(model, max_steps=2, **{option: enable}).train()
        results.append(weights(student))
    assert all(torch.allclose(results[0][name], results[1][name], atol=1e-6) for name in results[0])


def test_bf16(make_teacher, make_student, make_trainer):
    teacher = make_teacher()
    student = make_student(teacher, linformer_length=4)
    model = LayerwiseDistillation(student, teacher, **ALL_LOSSES)
    dtypes = []
    teacher.encoder.layer[0].output.dense.register_forward_hook(lambda *call: dtypes.append(call[2].dtype))
    trainer = make_trainer(model, evaluate=TEXTS, bf16=True, max_steps=2)
    assert math.isfinite(trainer.train().training_loss)
    assert math.isfinite(trainer.evaluate()["eval_loss"])
    assert set(dtypes) == {torch.bfloat16}
    assert all(value.dtype == torch.float32 for value in student.state_dict().values())


def test_batches_are_of_similar_length(make_teacher, make_student, make_trainer, bert_tokenizer):
    teacher = make_teacher()
    model = LayerwiseDistillation(make_student(teacher), teacher)
    trainer = make_trainer(model, train=[*TEXTS, "spelled letter by letter in a house"], per_device_train_batch_size=4)
    sizes = [min(len(ids), MAX_LENGTH) for ids in bert_tokenizer(trainer.train_dataset["text"][:])["input_ids"]]
    assert trainer.train_dataset["length"][:] == sizes
    assert max(sizes) == MAX_LENGTH

    def order(epoch):
        sampler = trainer.get_train_dataloader().batch_sampler.sampler
        torch.rand(epoch + 1)
        sampler.set_epoch(epoch)
        return list(sampler)

    assert order(0) == order(0) != order(1)
    longest = [batch["attention_mask"].sum(dim=1).max() for batch in trainer.get_train_dataloader()]
    assert longest[0] == MAX_LENGTH


def test_a_nan_or_infinite_loss_stops_the_training(make_teacher, make_student, make_trainer):
    teacher = make_teacher()
    model = LayerwiseDistillation(make_student(teacher), teacher)
    options = {"learning_rate": 1e30, "max_grad_norm": 0.0, "warmup_steps": 0, "max_steps": 4}
    with pytest.raises(ValueError, match="The training diverged: .*Lower `learning_rate`"):
        make_trainer(model, **options).train()


def test_the_trainer_needs_a_tokenizer(tmp_path, make_teacher, make_student):
    teacher = make_teacher()
    with pytest.raises(ValueError, match="`GeneralTrainer` needs `processing_class`"):
        GeneralTrainer(
            LayerwiseDistillation(make_student(teacher), teacher), GeneralTrainingArguments(str(tmp_path), **TINY_RUN)
        )


# Texts


def test_the_collator_counts_what_it_cuts(bert_tokenizer, caplog):
    collator = TextCollator(bert_tokenizer, 6)
    batch = collator([{"text": text} for text in ("a cat", "the cat sat on the mat", "the cat sat on")])
    assert batch.keys() == {"input_ids", "attention_mask"}
    assert batch["attention_mask"].sum(dim=1).tolist() == [4, 6, 6]
    assert bert_tokenizer.batch_decode(batch["input_ids"], skip_special_tokens=True)[1] == "the cat sat on"
    assert collator.n_truncated == 1
    collator([{"text": text} for text in TEXTS])
    assert collator.n_truncated == 1 + sum(len(text.split()) > 4 for text in TEXTS)


@pytest.mark.parametrize("max_length, num_chunks", [(22, [2, 1, 3, 5]), (13, [2, 1, 3, 3]), (6, [1, 1, 1, 1])])
def test_the_collator_cuts_texts_into_chunks(max_length, num_chunks, bert_tokenizer):
    words = TEXTS[0].split() * 9
    texts = [" ".join(words[start : start + size]) for start, size in ((0, 7), (1, 3), (2, 12), (3, 40))]
    batch = TextCollator(bert_tokenizer, max_length, chunk_length=6)([{"text": text} for text in texts])
    assert batch["attention_mask"].sum(dim=1).tolist() == [min(size + 2, max_length) for size in (7, 3, 12, 40)]
    assert batch["chunk_input_ids"].shape == batch["chunk_attention_mask"].shape == (sum(num_chunks), 6)
    assert torch.bincount(batch["chunk_texts"]).tolist() == num_chunks
    for row, (text, number) in enumerate(zip(texts, num_chunks, strict=True)):
        chunks = batch["chunk_input_ids"][batch["chunk_texts"] == row]
        assert (chunks[:, 0] == bert_tokenizer.cls_token_id).all()
        # Four words a chunk, in their order.
        decoded = bert_tokenizer.batch_decode(chunks, skip_special_tokens=True)
        assert " ".join(decoded) == " ".join(text.split()[: 4 * number])


@pytest.mark.parametrize("ending", ["txt", "csv", "jsonl"])
def test_texts_are_read(ending, tmp_path, warnings):
    rows = ["the cat", "", "a dog, an old one", "  ", "new"]
    path = tmp_path / f"texts.{ending}"
    if ending == "txt":
        path.write_text("\n".join(rows))
    elif ending == "csv":
        path.write_text("text\n" + "".join(f'"{row}"\n' for row in rows))
    else:
        path.write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
    assert load_texts(str(path))["text"][:] == ["the cat", "a dog, an old one", "new"]
    assert load_texts(str(path), max_samples=2)["text"][:] == ["the cat", "a dog, an old one"]
    assert "dropped 2 of 5 texts because they are empty" in warnings[0]


def test_texts_that_are_not_there(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("\n \n")
    with pytest.raises(ValueError, match="texts.txt has no text"):
        load_texts(str(path))
    with pytest.raises(FileNotFoundError, match="other.txt"):
        load_texts(str(tmp_path / "other.txt"))
    (tmp_path / "texts.csv").write_text("sentence\na cat\n")
    with pytest.raises(ValueError, match="no column 'text'; the columns are sentence"):
        load_texts(str(tmp_path / "texts.csv"))
    with pytest.raises(ValueError, match="max_train_samples=0: it must be at least 1"):
        TextArguments("texts.txt", max_train_samples=0)


# From an encoder to a trained student


def test_a_teacher_of_chunks(make_teacher, make_student, bert_tokenizer):
    teacher = make_teacher(max_position_embeddings=8)
    student = make_student(make_teacher(), linformer_projection="mean").eval()
    model = LayerwiseDistillation(student, teacher, **only("sentence"))
    texts = [TEXTS[0], " ".join(" ".join(TEXTS[:4]).split()[:20])]
    batch = TextCollator(bert_tokenizer, MAX_LENGTH, chunk_length=8)([{"text": text} for text in texts])
    losses = model(**batch)

    # Every chunk alone, without padding.
    cosines = []
    for row, text in enumerate(texts):
        total = torch.zeros(teacher.config.hidden_size)
        words = text.split()
        for start in range(0, len(words), 6):
            chunk = bert_tokenizer(" ".join(words[start : start + 6]), return_tensors="pt")
            size = chunk["input_ids"].shape[1]
            total += size * torch.nn.functional.normalize(teacher(chunk["input_ids"]).pooler_output[0], dim=0)
        own = student(batch["input_ids"][row : row + 1], attention_mask=batch["attention_mask"][row : row + 1])
        cosines.append(torch.cosine_similarity(own.pooler_output[0], total, dim=0))
    assert len(words) > 12, "several chunks"
    assert torch.allclose(losses["loss"], 1 - torch.stack(cosines).mean(), atol=1e-5)
    assert losses.keys() == {"loss", "sentence_loss"}

    # One chunk is the text itself.
    short = [{"text": "the cat sat"}, {"text": "a dog"}]
    whole, chunked = TextCollator(bert_tokenizer, 8)(short), TextCollator(bert_tokenizer, 8, chunk_length=8)(short)
    assert torch.allclose(model(**whole)["loss"], model(**chunked)["loss"], atol=1e-6)


def test_chunks_have_no_layers_to_learn_from(tmp_path):
    with pytest.raises(ValueError, match="set `hidden_weight` and `relation_weight` to 0"):
        GeneralTrainingArguments(str(tmp_path), **TINY_RUN, teacher_chunk_length=8)


@pytest.fixture
def source(tmp_path, save_bert):
    folder = save_bert(tmp_path / "source", num_hidden_layers=4, initializer_range=0.3, **NO_DROPOUT)
    (tmp_path / "train.txt").write_text("\n".join(TEXTS))
    (tmp_path / "validation.jsonl").write_text("".join(json.dumps({"sentence": text}) + "\n" for text in TEXTS))
    return str(folder)


def test_train_general(source, tmp_path, infos, batch):
    teacher = convert_encoder(source, layer_types="full_attention")
    student = convert_encoder(source, num_hidden_layers=2, linformer_length=4)
    with torch.no_grad():
        original = AutoModel.from_pretrained(source)(**batch).last_hidden_state[batch["attention_mask"] == 1]
        ours = teacher(**batch).last_hidden_state[batch["attention_mask"] == 1]
        assert torch.allclose(ours, original, atol=1e-5)
    tokenizer = AutoTokenizer.from_pretrained(source)
    files = {"train_file": str(tmp_path / "train.txt")}
    run = {**TINY_RUN, "num_train_epochs": 4, "learning_rate": 2e-3}
    training_args = GeneralTrainingArguments(str(tmp_path / "first"), **{**run, "save_strategy": "epoch"})
    metrics = train_general(teacher, student, tokenizer, TextArguments(**files), training_args)
    assert "Student layers learn from teacher layers: 1 from 2, 2 from 4" in infos
    assert metrics["train_loss"] > 0
    assert not any(name.startswith("eval_") for name in metrics)
    assert not student.training
    assert (tmp_path / "first" / "trainer_state.json").is_file()

    # The same in two halves, and evaluated.
    other = convert_encoder(source, num_hidden_layers=2, linformer_length=4)
    training_args = GeneralTrainingArguments(str(tmp_path / "second"), **{**run, "eval_strategy": "epoch"})
    text_args = TextArguments(
        **{**files, "train_file": str(tmp_path / "validation.jsonl")},
        text_column="sentence",
        validation_file=str(tmp_path / "validation.jsonl"),
        max_eval_samples=4,
    )
    states = sorted((tmp_path / "first").glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    metrics = train_general(teacher, other, tokenizer, text_args, training_args, checkpoint=str(states[0]))
    assert same(weights(other), weights(student))
    assert {"train_loss", "eval_loss", "eval_hidden_loss", "eval_relation_loss", "eval_sentence_loss"} <= set(metrics)


def test_what_train_general_refuses(source, tmp_path):
    teacher = convert_encoder(source, layer_types="full_attention")
    student = convert_encoder(source, num_hidden_layers=2, max_position_embeddings=128)
    tokenizer = AutoTokenizer.from_pretrained(source, model_max_length=128)

    def train(**fields):
        training_args = GeneralTrainingArguments(str(tmp_path / "run"), **{**TINY_RUN, **fields})
        text_args = TextArguments(str(tmp_path / "train.txt"))
        train_general(teacher, student, tokenizer, text_args, training_args)

    with pytest.raises(ValueError, match="max_length=100 is above the 64 tokens this model takes"):
        train(max_length=100)
    with pytest.raises(ValueError, match="2 numbers from 1 to 4.*got 1 2 3"):
        train(layer_mapping=["1", "2", "3"])
    with pytest.raises(ValueError, match="`relation_heads` must divide"):
        train(relation_heads=5)


def test_a_student_reads_more_than_its_teacher(source, tmp_path):
    teacher = convert_encoder(source, layer_types="full_attention")
    student = convert_encoder(source, linformer_projection="strided", linformer_length=8, max_position_embeddings=128)
    (tmp_path / "long.txt").write_text("\n".join(" ".join(TEXTS * repeats) for repeats in (1, 2, 3)))
    tokenizer = AutoTokenizer.from_pretrained(source, model_max_length=128)
    fields = {
        **TINY_RUN,
        **only("sentence"),
        "num_train_epochs": 8,
        "learning_rate": 2e-3,
        "logging_steps": 1,
        "max_length": 128,
    }
    training_args = GeneralTrainingArguments(str(tmp_path / "run"), **fields, teacher_chunk_length=16)
    text_args = TextArguments(str(tmp_path / "long.txt"), validation_file=str(tmp_path / "long.txt"))
    training_args.eval_strategy = "epoch"
    metrics = train_general(teacher, student, tokenizer, text_args, training_args)
    state = json.loads((tmp_path / "run" / "trainer_state.json").read_text())
    losses = [entry["eval_sentence_loss"] for entry in state["log_history"] if "eval_sentence_loss" in entry]
    assert metrics["eval_sentence_loss"] < 0.8 * losses[0]
    training_args.teacher_chunk_length = 100
    with pytest.raises(ValueError, match="max_length=100 is above the 64 tokens this model takes"):
        train_general(teacher, student, tokenizer, text_args, training_args)


def test_without_a_validation_file_the_last_student_is_kept(source, tmp_path, infos):
    teacher = convert_encoder(source, layer_types="full_attention")
    student = convert_encoder(source, linformer_length=4)
    training_args = GeneralTrainingArguments(
        str(tmp_path / "run"), max_length=32, report_to="none", use_cpu=True, disable_tqdm=True, max_steps=1
    )
    text_args = TextArguments(str(tmp_path / "train.txt"), max_train_samples=3)
    train_general(teacher, student, AutoTokenizer.from_pretrained(source), text_args, training_args)
    assert "There is no `eval_dataset`: nothing is evaluated, and the last model is kept." in infos
    assert not training_args.load_best_model_at_end
    assert (tmp_path / "run" / "checkpoint-1" / "model.safetensors").is_file()
