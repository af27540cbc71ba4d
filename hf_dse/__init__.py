# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
hf-dse: distil any Hugging Face cross-encoder into a sentence embedding model with Linformer attention.

`import hf_dse` makes the Auto classes of transformers know the model type `"dse"`. Everything else is loaded when it
is first asked for.
"""

import importlib
from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from hf_dse.data.collators import PairCollator
    from hf_dse.data.pairs import DataArguments, load_pairs
    from hf_dse.data.tasks import PAIR_TASKS, PairTask
    from hf_dse.evaluation import evaluate_model
    from hf_dse.inference.encoding import encode
    from hf_dse.inference.search import rank
    from hf_dse.mining.augmentation import augment_pairs
    from hf_dse.modeling import DseConfig, DseForSequenceClassification, DseModel
    from hf_dse.pipeline.distill import distill
    from hf_dse.pipeline.results import DistillationResult
    from hf_dse.publish.export import export_model
    from hf_dse.publish.graph import export_graph
    from hf_dse.publish.push import push_model
    from hf_dse.student.convert import convert_encoder
    from hf_dse.student.merge import merge_models
    from hf_dse.student.whiten import whiten_encoder
    from hf_dse.teacher.fine_tune import train_teacher
    from hf_dse.teacher.score import score_pairs
    from hf_dse.training.arguments import DseTrainingArguments
    from hf_dse.training.pair_trainer import DseTrainer

__version__ = "0.1.0"

# Where the public names live. They are imported when they are first asked for.
_MODULES = {
    "data.collators": ["PairCollator"],
    "data.pairs": ["DataArguments", "load_pairs"],
    "data.tasks": ["PAIR_TASKS", "PairTask"],
    "evaluation": ["evaluate_model"],
    "inference.encoding": ["encode"],
    "inference.search": ["rank"],
    "mining.augmentation": ["augment_pairs"],
    "modeling": ["DseConfig", "DseForSequenceClassification", "DseModel"],
    "pipeline.distill": ["distill"],
    "pipeline.results": ["DistillationResult"],
    "publish.export": ["export_model"],
    "publish.graph": ["export_graph"],
    "publish.push": ["push_model"],
    "student.convert": ["convert_encoder"],
    "student.merge": ["merge_models"],
    "student.whiten": ["whiten_encoder"],
    "teacher.fine_tune": ["train_teacher"],
    "teacher.score": ["score_pairs"],
    "training.arguments": ["DseTrainingArguments"],
    "training.pair_trainer": ["DseTrainer"],
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "PAIR_TASKS",
    "DataArguments",
    "DistillationResult",
    "DseConfig",
    "DseForSequenceClassification",
    "DseModel",
    "DseTrainer",
    "DseTrainingArguments",
    "PairCollator",
    "PairTask",
    "augment_pairs",
    "convert_encoder",
    "distill",
    "encode",
    "evaluate_model",
    "export_graph",
    "export_model",
    "load_pairs",
    "merge_models",
    "push_model",
    "rank",
    "score_pairs",
    "train_teacher",
    "whiten_encoder",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_MODULE_OF[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


def register() -> None:
    """Makes the Auto classes of transformers know the DSE classes. Called by `import hf_dse`."""
    from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

    from hf_dse.modeling import DseConfig, DseForSequenceClassification, DseModel

    AutoConfig.register("dse", DseConfig)
    AutoModel.register(DseConfig, DseModel)
    AutoModelForSequenceClassification.register(DseConfig, DseForSequenceClassification)
    # Checkpoints of these classes carry their code, so they load where hf_dse is not installed.
    DseConfig.register_for_auto_class()
    DseModel.register_for_auto_class("AutoModel")
    DseForSequenceClassification.register_for_auto_class("AutoModelForSequenceClassification")


register()
