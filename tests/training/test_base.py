# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The base of all trainers: the output folder, checkpoints to resume from, and trainings that diverge."""

import pytest
import torch
from datasets import Dataset
from trainings import TINY_RUN

from hf_dse import DseTrainer, DseTrainingArguments
from hf_dse.common.files import locked
from hf_dse.training.base import RESULTS_FILE, check_output_dir, find_checkpoint, lock_output_dir


@pytest.fixture
def make_trainer(tmp_path, make_student, bert_tokenizer):
    def make(**fields):
        columns = {"sentence1": [f"the cat {row}" for row in range(8)], "sentence2": ["a dog"] * 8}
        rows = Dataset.from_dict({**columns, "label": [float(row % 5) for row in range(8)]})
        options = {**TINY_RUN, "per_device_train_batch_size": 4, "distillation_alpha": 0.0, "num_train_epochs": 1}
        options |= {"save_strategy": "steps", "save_steps": 1, "save_total_limit": None}
        args = DseTrainingArguments(str(tmp_path / "run"), **(options | fields))
        return DseTrainer(make_student(), args, rows, processing_class=bert_tokenizer)

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
