# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The base of all trainers: the output folder, checkpoints to resume from, and trainings that diverge."""

from pathlib import Path

import pytest
import torch
from datasets import Dataset
from trainings import TINY_RUN

from hf_dse import DseTrainer, DseTrainingArguments
from hf_dse.common.files import locked
from hf_dse.training.base import RESULTS_FILE, check_output_dir, find_checkpoint, lock_output_dir


@pytest.fixture
def make_trainer(tmp_path, make_student, bert_tokenizer):
    def make(labels=(0.0, 1.0, 2.0, 3.0, 4.0, 0.0, 1.0, 2.0), evaluates=False, student=None, **fields):
        size = len(labels)
        columns = {"sentence1": [f"the cat {row}" for row in range(size)], "sentence2": ["a dog"] * size}
        rows = Dataset.from_dict({**columns, "label": list(labels)})
        options = {**TINY_RUN, "per_device_train_batch_size": 4, "distillation_alpha": 0.0, "num_train_epochs": 1}
        options |= {"save_strategy": "steps", "save_steps": 1, "save_total_limit": None}
        args = DseTrainingArguments(str(tmp_path / "run"), **(options | fields))
        model, eval_rows = make_student(**(student or {})), rows if evaluates else None
        metrics = (lambda prediction: {"rows": len(prediction.predictions)}) if evaluates else None
        return DseTrainer(model, args, rows, eval_rows, bert_tokenizer, compute_metrics=metrics)

    return make


DIVERGING = {"learning_rate": 1e30, "max_grad_norm": 0.0, "warmup_steps": 0, "max_steps": 4, "save_strategy": "no"}


def test_a_nan_or_infinite_loss_stops_the_training(make_trainer):
    for logging_steps, name in ((1, "loss"), (50, "train_loss")):
        with pytest.raises(ValueError, match=f"The training diverged: {name} is .*Lower `learning_rate`"):
            make_trainer(**DIVERGING, logging_steps=logging_steps).train()


def test_a_checkpoint_is_complete_when_its_last_file_is(tmp_path, make_checkpoint):
    with pytest.raises(FileNotFoundError, match="holds no checkpoint to resume from: start without `resume_from"):
        find_checkpoint(str(tmp_path), "last")
    for step in (2, 9, 10):
        make_checkpoint(tmp_path / f"checkpoint-{step}").write_text('{"global_' if step == 10 else "{}")
    assert find_checkpoint(str(tmp_path), "last") == str(tmp_path / "checkpoint-9")
    (tmp_path / "checkpoint-9" / "rng_state.pth").unlink()
    assert find_checkpoint(str(tmp_path), True) == str(tmp_path / "checkpoint-2")


def test_an_earlier_training_is_not_overwritten(tmp_path, make_checkpoint):
    make_checkpoint(tmp_path / "checkpoint-1").write_text("{}")
    (tmp_path / RESULTS_FILE).write_text("{}")
    (tmp_path / "notes.txt").touch()
    with pytest.raises(FileExistsError, match="is not empty: choose another one.*`--overwrite_output_dir`"):
        check_output_dir(str(tmp_path), None, False)
    assert check_output_dir(str(tmp_path), "last", False) == str(tmp_path / "checkpoint-1")
    assert check_output_dir(str(tmp_path), None, True) is None
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_one_process_at_a_time_trains_into_a_folder(tmp_path):
    args = DseTrainingArguments(str(tmp_path / "run"), use_cpu=True, report_to="none")
    in_use = pytest.raises(BlockingIOError, match="is in use by another process")
    with lock_output_dir(args), in_use, locked(tmp_path / "run"):
        pass


def test_a_training_goes_on_from_its_newest_complete_checkpoint(make_trainer, tmp_path):
    with pytest.raises(FileNotFoundError, match="run holds no checkpoint to resume from: start without `resume_from"):
        make_trainer().train(resume_from_checkpoint=True)
    straight = make_trainer()
    straight.train()
    folders = [tmp_path / "run" / f"checkpoint-{step}" for step in (1, 2)]
    # What a kill leaves of a checkpoint is not one to go on from.
    (folders[1] / "optimizer.pt").unlink()
    resumed = make_trainer()
    seen = []
    step = resumed.training_step
    resumed.training_step = lambda *args: seen.append(resumed.state.global_step) or step(*args)
    resumed.train(resume_from_checkpoint=True)
    assert seen == [1]
    for name, value in straight.model.state_dict().items():
        assert torch.equal(resumed.model.state_dict()[name], value), name


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"learning_rate": 1e-3}, r"learning_rate=0.001 \(the checkpoint was made with 5e-05\)"),
        ({"weight_decay": 0.5}, "weight_decay=0.5"),
        ({"lr_scheduler_type": "cosine"}, "lr_scheduler_type=cosine"),
        ({"max_length": 16}, "max_length=16"),
        ({"per_device_train_batch_size": 2}, "per_device_train_batch_size=2"),
        ({"distillation_alpha": 0.5}, "distillation_alpha=0.5"),
        ({"bf16": True}, "bf16=True"),
        ({"labels": [1.0, 0.0] * 4}, "content of the rows="),
        ({"labels": [1.0, 0.0] * 3}, "training rows=6"),
        ({"student": {"hidden_dropout_prob": 0.4}}, "encoder.hidden_dropout_prob=0.4"),
    ],
)
def test_another_training_does_not_go_on(make_trainer, tmp_path, fields, message):
    make_trainer(max_steps=1).train()
    with pytest.raises(
        ValueError, match=f"checkpoint-1 is of another training: .*{message}.*Pass what it was made with"
    ):
        make_trainer(max_steps=1, **fields).train(resume_from_checkpoint=True)


def test_more_epochs_are_said_and_have_their_rates(make_trainer, warnings):
    rates = []
    for seen in (2, 1):
        trainer = make_trainer(num_train_epochs=seen, warmup_steps=0)
        trainer.train(resume_from_checkpoint=None)
        rates.append([entry["learning_rate"] for entry in trainer.state.log_history if "learning_rate" in entry])
    longer = make_trainer(num_train_epochs=2, warmup_steps=0)
    longer.args.output_dir = trainer.args.output_dir
    longer.train(resume_from_checkpoint=str(Path(trainer.args.output_dir) / "checkpoint-2"))
    assert "goes on with num_train_epochs=2 (the checkpoint was made with 1): this holds from here on" in warnings[-1]
    found = [entry["learning_rate"] for entry in longer.state.log_history if "learning_rate" in entry]
    assert found[:2] == rates[1] and found[2:] == rates[0][2:]
    with pytest.raises(ValueError, match="checkpoint-4 is beyond the end: num_train_epochs=1"):
        make_trainer(num_train_epochs=1, warmup_steps=0).train(resume_from_checkpoint=True)


def test_a_resumed_loss_is_that_of_the_whole_training(make_trainer, tmp_path, warnings):
    straight = make_trainer().train()
    for step in (1, 2):
        resumed = make_trainer()
        found = resumed.train(resume_from_checkpoint=str(tmp_path / "run" / f"checkpoint-{step}"))
        assert found.training_loss == pytest.approx(straight.training_loss) == found.metrics["train_loss"] > 0
    assert "checkpoint-2 is the end of its training: nothing is left to train" in warnings[-1]


def test_dropped_batches(make_trainer):
    """A training needs one batch, and an evaluation is one of all rows."""
    with pytest.raises(
        ValueError, match="8 training rows give no batch of 9, and with `dataloader_drop_last` a small"
    ):
        make_trainer(dataloader_drop_last=True, per_device_train_batch_size=9, max_steps=3)
    trainer = make_trainer(dataloader_drop_last=True, evaluates=True, per_device_eval_batch_size=3)
    assert trainer.evaluate()["eval_rows"] == 8
    assert trainer.args.dataloader_drop_last


def test_a_training_that_is_all_warmup_is_named(make_trainer, warnings):
    make_trainer(max_steps=1).train()
    assert "does not reach `learning_rate`: 1 warmup steps in a training of 1. Lower `warmup_steps`" in warnings[-1]
    make_trainer(max_steps=1, warmup_steps=0).train()
    assert len(warnings) == 1
