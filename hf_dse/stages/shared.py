# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""What all stages do: load models, share data between processes, train, write the model folder and the results."""

import json
import resource
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from accelerate.utils import broadcast_object_list
from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase, set_seed
from transformers.utils import logging

from hf_dse.common.files import write_atomically
from hf_dse.common.loading import MODEL_FOLDER, check_named, computes_bfloat16, load_tokenizer, named
from hf_dse.common.provenance import describe_machine
from hf_dse.convert.options import ConvertOptions
from hf_dse.convert.student import listed, load_student
from hf_dse.data.rankings import Rankings
from hf_dse.modeling import DseForSequenceClassification
from hf_dse.publish.export import export, push_model
from hf_dse.stages.options import REFUSED, REFUSED_WITH_DATA, REFUSED_WITHOUT_TEACHER
from hf_dse.teacher.bi_encoders import is_bi_encoder
from hf_dse.teacher.score import load_teacher
from hf_dse.training.base import RESULTS_FILE


if TYPE_CHECKING:
    from hf_dse.retrieval.rerankers import Teacher

logger = logging.get_logger(__name__)

Split = TypeVar("Split", Dataset, Rankings)
Metrics = dict[str, dict[str, float]]


@dataclass(frozen=True)
class DistillationResult:
    """The student, its tokenizer, its metrics on each labelled split but train, and the path of its folder."""

    model: PreTrainedModel
    processing_class: PreTrainedTokenizerBase
    metrics: Metrics
    path: Path


@dataclass
class Stage:
    """
    Options of the classes that [`STAGES`] names for a stage, models and data that a Python caller has loaded already,
    the source that the model card names, and the searches that the student was compared with.
    """

    args: Any
    convert_args: ConvertOptions
    data_args: Any
    training_args: Any
    model: PreTrainedModel | None = None
    processing_class: PreTrainedTokenizerBase | None = None
    teacher: Any = None
    dataset: Mapping[str, Dataset | Rankings] | None = None
    base_model: str | None = None
    searches: dict[str, Any] = field(default_factory=dict)

    @property
    def teachers(self) -> "list[Teacher]":
        """The teachers, loaded or by their names."""
        found = self.args.teacher_name_or_path if self.teacher is None else self.teacher
        return list(found) if isinstance(found, list | tuple) else [] if found is None else [found]

    @property
    def has_teacher(self) -> bool:
        return bool(self.teachers)

    def check_options(self) -> None:
        """Raises a `ValueError` for an option that the stage would not follow."""
        refused = REFUSED[self.args.stage] | ({} if self.has_teacher else REFUSED_WITHOUT_TEACHER)
        if self.dataset is not None:
            # Columns and labels are those of the task.
            refused = REFUSED_WITH_DATA | refused
        for options in (self.args, self.data_args):
            for entry in fields(options):
                value = getattr(options, entry.name)
                if entry.name in refused and value not in (entry.default, ""):
                    raise ValueError(f"{entry.name}={value} {refused[entry.name]}: leave it out.")

    def limit(self, splits: Mapping[str, Split]) -> dict[str, Split]:
        """Loaded data with as many rows as the options say."""
        data_args, limited = self.data_args, {}
        for name, part in splits.items():
            size = data_args.max_train_samples if name == "train" else data_args.max_eval_samples
            limited[name] = part if size is None else part.select(range(min(size, len(part))))
        return limited

    def check_metric(self, *names: str) -> None:
        """Raises a `ValueError` if the evaluations lack the metric that compares checkpoints."""
        metric = self.training_args.metric_for_best_model
        if metric is not None and metric.removeprefix("eval_") not in names:
            raise ValueError(f"metric_for_best_model={metric!r}: an evaluation has {', '.join(names)}.")

    def load_tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer of the student."""
        return self.processing_class or load_tokenizer(self.args.model_name_or_path)

    def load_student(self, num_labels: int, problem_type: str) -> DseForSequenceClassification:
        """The student, whose new weights are drawn with the seed."""
        set_seed(self.training_args.seed)
        model = self.model or self.args.model_name_or_path
        return load_student(model, self.convert_args, num_labels, problem_type)

    def load_teachers(self) -> list[Any]:
        """The teachers whose scores the student learns."""
        options = {"trust_remote_code": self.args.trust_remote_code, "dtype": self.args.teacher_dtype}
        if options["dtype"] != "auto":
            check_named("teacher_dtype", *self.teachers)
        placed = {"device": self.training_args.device}
        # A loaded bi-encoder stays where it is.
        places = [placed if isinstance(one, str) or not is_bi_encoder(one) else {} for one in self.teachers]
        return [
            load_teacher(one, **named(one, options), **place) for one, place in zip(self.teachers, places, strict=True)
        ]

    def make_once(self, make: Callable[[], Split]) -> Split:
        """Makes data in the first of several processes, which sends them to the others."""
        return broadcast_object_list([make() if self.training_args.process_index == 0 else None])[0]

    def train(
        self, trainer: Any, evaluate: Callable[[], Metrics], recipe: Mapping[str, Any], **facts: Any
    ) -> DistillationResult:
        """
        Trains a student. Then the first of several processes evaluates it, writes its model folder with `recipe` and
        `facts` in the card, and the results with the options of the stage, and pushes the folder if asked.
        """
        training_args = trainer.args
        is_float32 = not training_args.bf16 and not training_args.fp16
        if is_float32 and computes_bfloat16(training_args.device):
            where = " --use_cpu true" if training_args.device.type == "cpu" else ""
            logger.info(f"The training computes in float32: `--bf16 true{where}` may take half of the time.")
        # The Trainer prints its log, and stdout is for results alone.
        with redirect_stdout(sys.stderr):
            training = trainer.train(resume_from_checkpoint=training_args.resume_from_checkpoint).metrics
        trainer.save_state()
        student = trainer.model.eval()
        output_dir = Path(str(training_args.output_dir))
        path, metrics = output_dir / MODEL_FOLDER, {}
        if training_args.process_index == 0:
            # In KB, but on a Mac in bytes.
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            training["peak_memory_mb"] = peak / (2**20 if sys.platform == "darwin" else 2**10)
            metrics = evaluate()
            # A part of the data may give other numbers than all of it.
            parts = {name: getattr(self.data_args, name) for name in ("max_train_samples", "max_eval_samples")}
            recipe = {name: value for name, value in {**recipe, **parts}.items() if value is not None}
            recipe |= _common_recipe(trainer)
            name = training_args.hub_model_id or output_dir.name
            facts |= {
                "searches": self.searches or None,
                "metrics": metrics or None,
                "recipe": recipe,
                "model_id": name,
                "base_model": self.base_model,
            }
            export(student, path, trainer.processing_class, overwrite_output_dir=True, **facts)
            options = asdict(self.args) | asdict(self.convert_args) | asdict(self.data_args)
            # A teacher that was not asked taught nothing.
            options["teacher_name_or_path"] = facts.get("teacher", self.args.teacher_name_or_path)
            # What a conversion decided, also an earlier one.
            for option, value in asdict(self.convert_args).items():
                own = getattr(student.config, option, value)
                options[option] = listed(own) if isinstance(value, list) else own
            results = {"metrics": metrics, "training": training, "recipe": {**options, **recipe}}
            # The last file, which says that the stage is complete.
            text = json.dumps(results, indent=2)
            write_atomically(output_dir / RESULTS_FILE, lambda file: file.write(text.encode()))
            if training_args.push_to_hub:
                keys = {"private": "hub_private_repo", "revision": "hub_revision", "token": "hub_token"}
                commit = push_model(path, name, **{key: getattr(training_args, keys[key]) for key in keys})
                logger.info(f"Pushed to {commit}")
        (metrics,) = broadcast_object_list([metrics])
        return DistillationResult(student, trainer.processing_class, metrics, path)


def _common_recipe(trainer: Any) -> dict[str, Any]:
    """The settings of any training that a model card names, as they were used."""
    args, state = trainer.args, trainer.state
    # With `split_batches` the processes share a batch.
    num_batches = 1 if args.accelerator_config.split_batches else args.world_size
    return {
        "learning_rate": args.learning_rate,
        "num_train_epochs": round(state.epoch, 4),
        "train_batch_size": state.train_batch_size * args.gradient_accumulation_steps * num_batches,
        "precision": "bf16" if args.bf16 else "fp16" if args.fp16 else "float32",
        "seed": args.seed,
        "machine": describe_machine(),
    }
