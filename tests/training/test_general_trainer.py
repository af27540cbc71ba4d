# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""GeneralTrainer: its losses against slow references, and what it computes, saves, resumes and refuses."""

import math

import pytest
import torch
from datasets import Dataset
from transformers import AutoModel, AutoTokenizer

from hf_dse import DseConfig, DseModel, GeneralTrainer, GeneralTrainingArguments
from hf_dse.data.collators import TextCollator
from hf_dse.training import layerwise
from hf_dse.training.layerwise import LayerwiseDistillation, hidden_loss, map_layers, relation_loss


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


def distil(student, teacher, **fields):
    """The module of a student and its teacher, with the options of a training."""
    return LayerwiseDistillation(student, teacher, GeneralTrainingArguments("unused", use_cpu=True, **fields))


@pytest.fixture
def make_trainer(tmp_path, bert_tokenizer):
    def make(student, teacher, train=TEXTS, evaluate=None, **fields):
        return GeneralTrainer(
            model=student,
            args=GeneralTrainingArguments(**{"output_dir": str(tmp_path / "run"), **TINY_RUN, **fields}),
            train_dataset=Dataset.from_dict({"text": train}),
            eval_dataset=None if evaluate is None else Dataset.from_dict({"text": evaluate}),
            processing_class=bert_tokenizer,
            teacher=teacher,
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
    whole = layerwise._row_divergence
    monkeypatch.setattr(layerwise, "RELATION_BLOCK", block)
    monkeypatch.setattr(layerwise, "_row_divergence", lambda *call: sizes.append(call[0].shape[2]) or whole(*call))
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
        (["uniform"], 5, 12, [2, 4, 7, 9, 12]),
        (["uniform"], 3, 1, [1, 1, 1]),
        (["last"], 3, 6, [4, 5, 6]),
        (["1", "3", "6"], 3, 6, [1, 3, 6]),
    ],
)
def test_map_layers(mapping, student, teacher, expected):
    assert map_layers(mapping, student, teacher) == expected


@pytest.mark.parametrize(
    ("mapping", "student"),
    [(["middle"], 3), (["uniform", "last"], 3), ([], 3), (["1", "2"], 3), (["0", "3", "6"], 3), (["2", "4", "7"], 3),
     (["4", "2", "6"], 3), (["last"], 7)],
)  # fmt: skip
def test_wrong_mappings(mapping, student):
    got = " ".join(mapping) or "nothing"
    with pytest.raises(ValueError, match=f"{student} numbers from 1 to 6 in ascending order; got {got}"):
        map_layers(mapping, student, 6)


# The module


def test_a_copy_of_the_teacher_has_nothing_to_learn(make_teacher, make_student, batch):
    teacher = make_teacher()
    copy = make_student(teacher, layer_types=["full_attention"] * 2)
    # As long as k is not below the length, a linear layer attends to every token.
    exact = make_student(teacher, linformer_length=MAX_LENGTH)
    short = make_student(teacher, linformer_length=4)
    for student, learns in ((copy, False), (exact, False), (short, True)):
        losses = distil(student, teacher, **ALL_LOSSES).eval()(**batch)
        assert set(losses) == {"loss", "hidden_loss", "embedding_loss", "relation_loss", "sentence_loss"}
        assert losses.pop("embedding_loss") == 0
        for name, value in losses.items():
            assert (value > 1e-4) == learns, name
            assert value > 1e-4 if learns else abs(value) < 1e-6, name


def test_the_loss_is_the_weighted_sum_of_its_parts(make_teacher, make_student, batch):
    teacher = make_teacher(num_hidden_layers=5)
    student = make_student(teacher, linformer_length=4)
    model = distil(student, teacher, layer_mapping=["2", "4"], **ALL_LOSSES).eval()
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


def test_relations_see_queries_keys_and_values(make_teacher, make_student, batch):
    teacher = make_teacher()
    for part in ("query", "key", "value"):
        student = make_student(teacher, layer_types=["full_attention"] * 2)
        with torch.no_grad():
            getattr(student.encoder.layer[1].attention.self, part).weight.mul_(1.5)
        losses = distil(student, teacher, **ALL_LOSSES, layer_mapping=["1", "2"]).eval()(**batch)
        assert losses["relation_loss"] > 1e-4


@pytest.mark.parametrize("name", ["hidden", "sentence"])
def test_parts_without_weight_are_left_out(name, make_teacher, make_student, batch):
    teacher = make_teacher()
    model = distil(make_student(teacher), teacher, **only(name))
    assert model(**batch).keys() == {"loss", f"{name}_loss"}


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_no_loss(side, make_teacher, make_student, bert_tokenizer, batch):
    teacher = make_teacher()
    model = distil(make_student(teacher, linformer_length=4), teacher, **ALL_LOSSES).eval()
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
    distil(student, teacher, **only(name))(**batch)["loss"].backward()
    gradients = {key: value.grad for key, value in student.named_parameters() if "linformer." in key}
    assert len(gradients) == {"none": 4, "headwise": 4, "key_value": 2, "layerwise": 1}[sharing]
    for key, gradient in gradients.items():
        assert gradient.abs().max() > 0, key
    assert all(parameter.grad is None for parameter in teacher.parameters())


def test_the_teacher_is_read_through_the_projection_of_the_student(make_teacher, make_student, bert_tokenizer):
    teacher = make_teacher(**NO_DROPOUT)
    source = make_student(teacher, layer_types=["full_attention"] * 2, **NO_DROPOUT)
    student = DseModel(DseConfig(**{**source.config.to_dict(), "projection_dim": 5}))
    torch.manual_seed(0)
    student.load_state_dict({**student.state_dict(), **source.state_dict()})
    start = student.projection.weight.clone()
    model = distil(student, teacher, **only("sentence"))
    texts = [{"text": text} for text in TEXTS[:6]]
    batch = TextCollator(bert_tokenizer, MAX_LENGTH)(texts)
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
    assert torch.equal(model.target_projection.weight, start) and not model.target_projection.weight.requires_grad


def test_the_teacher_is_no_part_of_the_module(make_teacher, make_student):
    teacher = make_teacher().train()
    model = distil(make_student(teacher), teacher)
    assert all(name.startswith("student.") for name in model.state_dict())
    model.train()
    assert model.student.training
    assert not any(module.training for module in teacher.modules())
    assert not any(parameter.requires_grad for parameter in teacher.parameters())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            only("relation"),
            "Relations and embeddings alone do not train.*`hidden_weight` or `sentence_weight` above 0",
        ),
        ({**only("relation"), "embedding_weight": 1.0}, "Relations and embeddings alone do not"),
        ({"layer_mapping": ["1"]}, "2 numbers from 1 to 2"),
    ],
)
def test_what_cannot_be_learned_is_refused(fields, message, make_teacher, make_student):
    teacher = make_teacher()
    with pytest.raises(ValueError, match=message):
        distil(make_student(teacher), teacher, **fields)


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
    assert same(weights(teacher), frozen) and trainer.model.student is student
    # E and F of both layers had their part in it.
    assert sum("linformer." in name for name in changed(start, weights(student))) == 4
    # The lines of the log have the parts of their loss, averaged over the same steps.
    assert len(logged(trainer, "loss")) == 4
    parts = [logged(trainer, name) for name in ("hidden_loss", "embedding_loss", "relation_loss", "sentence_loss")]
    for total, *values in zip(logged(trainer, "loss"), *parts, strict=True):
        expected = sum(weight * value for weight, value in zip(ALL_LOSSES.values(), values, strict=True))
        assert total == pytest.approx(expected, rel=1e-4)


def test_evaluation_is_the_mean_over_texts(make_teacher, make_student, make_trainer, bert_tokenizer):
    teacher = make_teacher()
    # Batches of 5, 5, 5 and 1.
    trainer = make_trainer(make_student(teacher, linformer_length=4), teacher, evaluate=TEXTS)
    metrics = trainer.evaluate()
    collator = TextCollator(bert_tokenizer, MAX_LENGTH)
    with torch.no_grad():
        alone = [trainer.model.eval()(**collator([{"text": text}]))["loss"].item() for text in TEXTS]
    assert metrics["eval_loss"] == pytest.approx(sum(alone) / len(alone), rel=1e-4)


def test_accumulated_gradients_are_those_of_one_batch(make_teacher, make_student, make_trainer):
    # Clipped gradients would hide a wrong scale of the loss. Texts of different lengths count alike.
    plain = {"optim": "sgd", "learning_rate": 0.2, "lr_scheduler_type": "constant", "warmup_steps": 0}
    plain |= {"max_grad_norm": 0.0, "max_steps": 2, "train_sampling_strategy": "sequential", **ALL_LOSSES}
    results = []
    for size in (16, 4, 2):
        teacher = make_teacher()
        student = make_student(teacher, linformer_length=4, **NO_DROPOUT)
        start = weights(student)
        batches = {"per_device_train_batch_size": size, "gradient_accumulation_steps": 16 // size}
        trainer = make_trainer(student, teacher, **plain, **batches)
        trainer.train()
        results.append((weights(student), [logged(trainer, name) for name in ("loss", "hidden_loss", "grad_norm")]))
    (first, losses), *others = results
    assert max((first[name] - start[name]).abs().max() for name in start) > 2e-3
    for second, other_losses in others:
        for name in start:
            torch.testing.assert_close(second[name], first[name], rtol=0, atol=5e-6, msg=name)
        for mine, theirs in zip(losses, other_losses, strict=True):
            assert len(mine) == 2 and mine == pytest.approx(theirs, rel=1e-4, abs=1e-5)


def test_a_resumed_run_ends_where_a_straight_run_does(
    tmp_path, make_teacher, tiny_config, bert_tokenizer, make_trainer
):
    # Dropout, a schedule, batches by length, evaluations and checkpoints amid the epochs: all has to be restored.
    options = {"num_train_epochs": 3, "per_device_train_batch_size": 6, "learning_rate": 1e-3}
    options |= {"save_strategy": "steps", "eval_strategy": "steps", "eval_steps": 2, "save_steps": 2}
    options |= {"save_total_limit": None, **ALL_LOSSES}

    def make(seed):
        teacher = make_teacher(num_hidden_layers=4)
        torch.manual_seed(seed)
        student = DseModel(tiny_config(bert_tokenizer, linformer_length=4, initializer_range=0.2))
        return make_trainer(student, teacher, evaluate=TEXTS[:5], **options)

    straight = make(0)
    assert straight.train().global_step == 9
    expected, first = weights(straight.model), straight.optimizer.state_dict()
    for step in (2, 4, 8):
        # A new process would not start from the same random numbers or weights.
        resumed = make(1)
        torch.manual_seed(7)
        checkpoint = tmp_path / "run" / f"checkpoint-{step}"
        resumed.train(resume_from_checkpoint=str(checkpoint))
        assert same(weights(resumed.model), expected)
        second = resumed.optimizer.state_dict()
        assert first["param_groups"] == second["param_groups"]
        assert all(same(state, second["state"][index]) for index, state in first["state"].items())
        for name, count in (("loss", 9), ("hidden_loss", 9), ("eval_loss", 5)):
            assert logged(resumed, name) == logged(straight, name) and len(logged(straight, name)) == count


def test_a_checkpoint_is_a_model_folder(tmp_path, make_teacher, make_student, make_trainer, bert_tokenizer, batch):
    teacher = make_teacher()
    student = make_student(teacher, linformer_length=4)
    make_trainer(student, teacher, max_steps=1, save_strategy="steps", save_steps=1).train()
    checkpoint = tmp_path / "run" / "checkpoint-1"
    names = {path.name for path in checkpoint.iterdir()}
    assert {"config.json", "modules.json", "modeling_dse.py", "model.safetensors", "tokenizer.json"} <= names
    assert "training_args.bin" not in names
    loaded, info = AutoModel.from_pretrained(checkpoint, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    with torch.no_grad():
        assert torch.equal(loaded(**batch).pooler_output, student.eval()(**batch).pooler_output)
    assert AutoTokenizer.from_pretrained(checkpoint)(TEXTS)["input_ids"] == bert_tokenizer(TEXTS)["input_ids"]


def test_the_best_student_is_kept(make_teacher, tiny_config, bert_tokenizer, make_trainer):
    torch.manual_seed(0)
    # Steps that grow make everything worse in the end.
    options = {"max_steps": 4, "learning_rate": 0.5, "warmup_steps": 4, "eval_steps": 1}
    options |= {"eval_strategy": "steps", "save_strategy": "steps", "save_steps": 1, "load_best_model_at_end": True}
    trainer = make_trainer(DseModel(tiny_config(bert_tokenizer)), make_teacher(), evaluate=TEXTS, **options)
    trainer.train()
    losses = logged(trainer, "eval_loss")
    assert min(losses) < losses[-1]
    assert trainer.evaluate()["eval_loss"] == pytest.approx(min(losses), rel=1e-6)


def test_activation_checkpointing_changes_nothing(make_teacher, make_student, make_trainer):
    # Its name in transformers below 5.23 is the other one.
    fields = GeneralTrainingArguments.__dataclass_fields__
    option = "activation_checkpointing" if "activation_checkpointing" in fields else "gradient_checkpointing"
    results = []
    for enable in (False, True):
        teacher = make_teacher()
        student = make_student(teacher, linformer_length=4)
        make_trainer(student, teacher, max_steps=2, **{option: enable}).train()
        results.append(weights(student))
    assert all(torch.allclose(results[0][name], results[1][name], atol=1e-6) for name in results[0])


def test_an_encoder_learns_from_itself(tmp_path, save_bert, bert_tokenizer, tiny_config, infos):
    source = save_bert(tmp_path / "source", num_hidden_layers=4)
    options = {"max_length": MAX_LENGTH, "report_to": "none", "use_cpu": True, "disable_tqdm": True}
    args = GeneralTrainingArguments(
        str(tmp_path / "run"), **options, per_device_train_batch_size=4, neftune_noise_alpha=5.0, relation_weight=0.0
    )
    parts = {name: Dataset.from_dict({"text": texts}) for name, texts in (("near", TEXTS), ("far", TEXTS[:5]))}
    trainer = GeneralTrainer(source, args, parts["near"], parts)
    assert trainer.model.teacher.config.layer_types == ["full_attention"] * 4
    assert "Student layers learn from teacher layers: 1 from 1, 2 from 2, 3 from 3, 4 from 4" in infos
    assert trainer.processing_class.model_max_length == MAX_LENGTH
    # Batches of similar length: the first has the longest text.
    longest = [batch["attention_mask"].sum(dim=1).max() for batch in trainer.get_train_dataloader()]
    assert longest[0] == max(trainer.train_dataset["length"])
    trainer.train()
    # Of several datasets the first tells the best; others can be evaluated on.
    assert trainer.state.best_metric == min(logged(trainer, "eval_near_loss"))
    assert trainer.evaluate(parts["far"])["eval_loss"] > 0

    student = trainer.model.student
    student.save_pretrained(tmp_path / "student")
    with pytest.raises(ValueError, match="is a DSE model, so its source is unknown: pass it as `teacher`"):
        GeneralTrainer(tmp_path / "student", args, parts["near"])
    for given in ({"processing_class": bert_tokenizer}, {"teacher": source}):
        with pytest.raises(ValueError, match="needs `processing_class`, the tokenizer .*, and `teacher`, the source"):
            GeneralTrainer(student, args, parts["near"], **given)
    with pytest.raises(TypeError, match="unexpected keyword argument 'data_collator'"):
        GeneralTrainer(source, args, parts["near"], data_collator=len)
    with pytest.raises(TypeError, match="`train_dataset` is a `IterableDataset`, and `GeneralTrainer` needs"):
        GeneralTrainer(source, args, parts["near"].to_iterable_dataset())
    args.max_length = 100
    with pytest.raises(ValueError, match="max_length=100 is above the 64 tokens this model takes"):
        GeneralTrainer(source, args, parts["near"])
    other = DseModel(tiny_config(bert_tokenizer, vocab_size=len(bert_tokenizer) + 9))
    args.max_length = MAX_LENGTH
    with pytest.raises(ValueError, match="has a `vocab_size` of .* and the teacher one of .*converted from"):
        GeneralTrainer(other, args, parts["near"], processing_class=bert_tokenizer, teacher=source)
