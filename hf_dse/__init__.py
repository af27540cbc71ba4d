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
    from .augment import augment_pairs
    from .convert import convert_encoder
    from .data import PAIR_TASKS, DataArguments, PairCollator, PairTask, load_pairs
    from .evaluation import encode, evaluate_model
    from .export import export_graph, export_model
    from .merge import merge_models
    from .modeling import DseConfig, DseForSequenceClassification, DseModel
    from .push import push_model
    from .search import rank
    from .teacher import score_pairs, train_teacher
    from .trainer import DseTrainer
    from .training_args import DseTrainingArguments
    from .whiten import whiten_encoder

__version__ = "0.1.0"

_MODULES = {
    "augment": ["augment_pairs"],
    "convert": ["convert_encoder"],
    "data": ["PAIR_TASKS", "DataArguments", "PairCollator", "PairTask", "load_pairs"],
    "evaluation": ["encode", "evaluate_model"],
    "export": ["export_graph", "export_model"],
    "merge": ["merge_models"],
    "modeling": ["DseConfig", "DseForSequenceClassification", "DseModel"],
    "push": ["push_model"],
    "search": ["rank"],
    "teacher": ["score_pairs", "train_teacher"],
    "trainer": ["DseTrainer"],
    "training_args": ["DseTrainingArguments"],
    "whiten": ["whiten_encoder"],
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "PAIR_TASKS",
    "DataArguments",
    "DseConfig",
    "DseForSequenceClassification",
    "DseModel",
    "DseTrainer",
    "DseTrainingArguments",
    "PairCollator",
    "PairTask",
    "augment_pairs",
    "convert_encoder",
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

    from .modeling import DseConfig, DseForSequenceClassification, DseModel

    AutoConfig.register("dse", DseConfig)
    AutoModel.register(DseConfig, DseModel)
    AutoModelForSequenceClassification.register(DseConfig, DseForSequenceClassification)
    # Checkpoints of these classes carry their code, so they load where hf_dse is not installed.
    DseConfig.register_for_auto_class()
    DseModel.register_for_auto_class("AutoModel")
    DseForSequenceClassification.register_for_auto_class("AutoModelForSequenceClassification")


register()
