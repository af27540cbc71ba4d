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
    from hf_dse.data.collators import CrossEncoderCollator, PairCollator, TextCollator
    from hf_dse.data.pairs import DataArguments, load_pairs, mix_pairs
    from hf_dse.data.tables import read_texts
    from hf_dse.data.tasks import PAIR_TASKS, PairTask
    from hf_dse.data.texts import TextArguments, load_texts
    from hf_dse.data.tokenization import max_tokens
    from hf_dse.demo import default_encoder
    from hf_dse.evaluation import evaluate_model
    from hf_dse.inference.encoding import encode
    from hf_dse.inference.loading import ModelArguments, load_model
    from hf_dse.inference.search import rank
    from hf_dse.metrics import AccuracyF1, PearsonSpearman, compute_metrics_for
    from hf_dse.mining.augmentation import augment_pairs, balance_scores, bin_scores, normalize_text
    from hf_dse.modeling import DseConfig, DseForSequenceClassification, DseModel
    from hf_dse.pipeline.distill import distill
    from hf_dse.pipeline.results import DistillationResult
    from hf_dse.publish.export import export_model
    from hf_dse.publish.graph import export_graph
    from hf_dse.publish.push import push_model
    from hf_dse.student.convert import ConvertArguments, convert_encoder, make_pair_model
    from hf_dse.student.merge import merge_models
    from hf_dse.student.whiten import whiten_encoder
    from hf_dse.studies.probe import probe_layers
    from hf_dse.teacher.fine_tune import TeacherArguments, train_teacher
    from hf_dse.teacher.load import load_teacher
    from hf_dse.teacher.score import embed_pairs, score_pairs, score_similarities
    from hf_dse.training.arguments import DseTrainingArguments, GeneralTrainingArguments, PairTrainingArguments
    from hf_dse.training.general_trainer import GeneralTrainer, ProgressiveCallback, train_general
    from hf_dse.training.layerwise import LayerwiseDistillation, map_layers
    from hf_dse.training.layerwise_losses import chunk_mean, hidden_loss, relation_loss
    from hf_dse.training.losses import PairDistillationLoss, ranking_loss, similarity_loss
    from hf_dse.training.pair_trainer import DseTrainer

__version__ = "0.1.0"

# Where the public names live. They are imported when they are first asked for.
_MODULES = {
    "data.collators": ["CrossEncoderCollator", "PairCollator", "TextCollator"],
    "data.pairs": ["DataArguments", "load_pairs", "mix_pairs"],
    "data.tables": ["read_texts"],
    "data.tasks": ["PAIR_TASKS", "PairTask"],
    "data.texts": ["TextArguments", "load_texts"],
    "data.tokenization": ["max_tokens"],
    "demo": ["default_encoder"],
    "evaluation": ["evaluate_model"],
    "inference.encoding": ["encode"],
    "inference.loading": ["ModelArguments", "load_model"],
    "inference.search": ["rank"],
    "metrics": ["AccuracyF1", "PearsonSpearman", "compute_metrics_for"],
    "mining.augmentation": ["augment_pairs", "balance_scores", "bin_scores", "normalize_text"],
    "modeling": ["DseConfig", "DseForSequenceClassification", "DseModel"],
    "pipeline.distill": ["distill"],
    "pipeline.results": ["DistillationResult"],
    "publish.export": ["export_model"],
    "publish.graph": ["export_graph"],
    "publish.push": ["push_model"],
    "student.convert": ["ConvertArguments", "convert_encoder", "make_pair_model"],
    "student.merge": ["merge_models"],
    "student.whiten": ["whiten_encoder"],
    "studies.probe": ["probe_layers"],
    "teacher.fine_tune": ["TeacherArguments", "train_teacher"],
    "teacher.load": ["load_teacher"],
    "teacher.score": ["embed_pairs", "score_pairs", "score_similarities"],
    "training.arguments": ["DseTrainingArguments", "GeneralTrainingArguments", "PairTrainingArguments"],
    "training.general_trainer": ["GeneralTrainer", "ProgressiveCallback", "train_general"],
    "training.layerwise": ["LayerwiseDistillation", "map_layers"],
    "training.layerwise_losses": ["chunk_mean", "hidden_loss", "relation_loss"],
    "training.losses": ["PairDistillationLoss", "ranking_loss", "similarity_loss"],
    "training.pair_trainer": ["DseTrainer"],
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "PAIR_TASKS",
    "AccuracyF1",
    "ConvertArguments",
    "CrossEncoderCollator",
    "DataArguments",
    "DistillationResult",
    "DseConfig",
    "DseForSequenceClassification",
    "DseModel",
    "DseTrainer",
    "DseTrainingArguments",
    "GeneralTrainer",
    "GeneralTrainingArguments",
    "LayerwiseDistillation",
    "ModelArguments",
    "PairCollator",
    "PairDistillationLoss",
    "PairTask",
    "PairTrainingArguments",
    "PearsonSpearman",
    "ProgressiveCallback",
    "TeacherArguments",
    "TextArguments",
    "TextCollator",
    "augment_pairs",
    "balance_scores",
    "bin_scores",
    "chunk_mean",
    "compute_metrics_for",
    "convert_encoder",
    "default_encoder",
    "distill",
    "embed_pairs",
    "encode",
    "evaluate_model",
    "export_graph",
    "export_model",
    "hidden_loss",
    "load_model",
    "load_pairs",
    "load_teacher",
    "load_texts",
    "make_pair_model",
    "map_layers",
    "max_tokens",
    "merge_models",
    "mix_pairs",
    "normalize_text",
    "probe_layers",
    "push_model",
    "rank",
    "ranking_loss",
    "read_texts",
    "relation_loss",
    "score_pairs",
    "score_similarities",
    "similarity_loss",
    "train_general",
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
