# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
hf-dse: distil any Hugging Face cross-encoder into a sentence embedding model with Linformer attention.

`import hf_dse` makes the Auto classes of transformers know the model type `"dse"`. Everything else is loaded when it
is first asked for.
"""

import functools
import importlib
import os
from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from hf_dse.data.arguments import DataArguments, TextArguments
    from hf_dse.data.collators import CrossEncoderCollator, PairCollator, TextCollator
    from hf_dse.data.pairs import load_pairs, mix_pairs
    from hf_dse.data.passages import split_text
    from hf_dse.data.ranking_files import load_corpus, load_rankings
    from hf_dse.data.ranking_rows import read_rankings
    from hf_dse.data.rankings import Rankings, make_rankings, write_rankings
    from hf_dse.data.tables import read_texts
    from hf_dse.data.tasks import PAIR_TASKS, PairTask
    from hf_dse.data.texts import load_texts
    from hf_dse.data.tokenization import max_tokens
    from hf_dse.demo import default_encoder
    from hf_dse.evaluation.pairs import evaluate_model
    from hf_dse.evaluation.retrieval import evaluate_retrieval
    from hf_dse.inference.arguments import ModelArguments
    from hf_dse.inference.chunks import add_context, encode_chunks
    from hf_dse.inference.encoding import encode, encode_document, encode_query
    from hf_dse.inference.loading import load_model
    from hf_dse.inference.quantization import QuantizedEmbeddings, quantize
    from hf_dse.inference.search import rank, rank_groups
    from hf_dse.metrics import AccuracyF1, PearsonSpearman, compute_metrics_for, ranking_metrics
    from hf_dse.mining.augmentation import augment_pairs, balance_scores, bin_scores, normalize_text
    from hf_dse.mining.bm25 import bm25_scores, bm25_search
    from hf_dse.mining.candidates import mine_candidates
    from hf_dse.mining.queries import make_queries
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
    from hf_dse.teacher.arguments import TeacherArguments
    from hf_dse.teacher.bi_encoders import BiEncoder, score_candidates_by_similarity
    from hf_dse.teacher.fine_tune import train_teacher
    from hf_dse.teacher.fine_tune_ranking import train_reranker
    from hf_dse.teacher.load import load_teacher
    from hf_dse.teacher.rerankers import load_reranker
    from hf_dse.teacher.score import embed_pairs, score_pairs, score_similarities, score_texts
    from hf_dse.teacher.score_candidates import check_scores, embed_rankings, score_candidates
    from hf_dse.training.align_trainer import AlignTrainer
    from hf_dse.training.arguments import (
        AlignTrainingArguments,
        DseTrainingArguments,
        GeneralTrainingArguments,
        PairTrainingArguments,
        RankingTrainingArguments,
    )
    from hf_dse.training.general_trainer import GeneralTrainer, ProgressiveCallback, train_general
    from hf_dse.training.layerwise import LayerwiseDistillation, map_layers
    from hf_dse.training.layerwise_losses import chunk_mean, hidden_loss, relation_loss
    from hf_dse.training.losses import PairDistillationLoss, alignment_loss, ranking_loss, similarity_loss
    from hf_dse.training.matryoshka import matryoshka_loss
    from hf_dse.training.pair_trainer import DseTrainer
    from hf_dse.training.ranking_losses import RankingLoss, contrastive_loss, listwise_loss, margin_loss
    from hf_dse.training.ranking_trainer import RankingTrainer

__version__ = "0.1.0"

# Where the public names live. They are imported when they are first asked for.
_MODULES = {
    "data.collators": ["CrossEncoderCollator", "PairCollator", "TextCollator"],
    "data.arguments": ["DataArguments", "TextArguments"],
    "data.pairs": ["load_pairs", "mix_pairs"],
    "data.passages": ["split_text"],
    "data.ranking_files": ["load_corpus", "load_rankings"],
    "data.ranking_rows": ["read_rankings"],
    "data.rankings": ["Rankings", "make_rankings", "write_rankings"],
    "data.tables": ["read_texts"],
    "data.tasks": ["PAIR_TASKS", "PairTask"],
    "data.texts": ["load_texts"],
    "data.tokenization": ["max_tokens"],
    "demo": ["default_encoder"],
    "evaluation.pairs": ["evaluate_model"],
    "evaluation.retrieval": ["evaluate_retrieval"],
    "inference.chunks": ["add_context", "encode_chunks"],
    "inference.encoding": ["encode", "encode_document", "encode_query"],
    "inference.arguments": ["ModelArguments"],
    "inference.loading": ["load_model"],
    "inference.quantization": ["QuantizedEmbeddings", "quantize"],
    "inference.search": ["rank", "rank_groups"],
    "metrics": ["AccuracyF1", "PearsonSpearman", "compute_metrics_for", "ranking_metrics"],
    "mining.augmentation": ["augment_pairs", "balance_scores", "bin_scores", "normalize_text"],
    "mining.bm25": ["bm25_scores", "bm25_search"],
    "mining.candidates": ["mine_candidates"],
    "mining.queries": ["make_queries"],
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
    "teacher.arguments": ["TeacherArguments"],
    "teacher.bi_encoders": ["BiEncoder", "score_candidates_by_similarity"],
    "teacher.fine_tune": ["train_teacher"],
    "teacher.fine_tune_ranking": ["train_reranker"],
    "teacher.load": ["load_teacher"],
    "teacher.rerankers": ["load_reranker"],
    "teacher.score": ["embed_pairs", "score_pairs", "score_similarities", "score_texts"],
    "teacher.score_candidates": ["check_scores", "embed_rankings", "score_candidates"],
    "training.align_trainer": ["AlignTrainer"],
    "training.arguments": [
        "AlignTrainingArguments",
        "DseTrainingArguments",
        "GeneralTrainingArguments",
        "PairTrainingArguments",
        "RankingTrainingArguments",
    ],
    "training.general_trainer": ["GeneralTrainer", "ProgressiveCallback", "train_general"],
    "training.layerwise": ["LayerwiseDistillation", "map_layers"],
    "training.layerwise_losses": ["chunk_mean", "hidden_loss", "relation_loss"],
    "training.losses": ["PairDistillationLoss", "alignment_loss", "ranking_loss", "similarity_loss"],
    "training.matryoshka": ["matryoshka_loss"],
    "training.pair_trainer": ["DseTrainer"],
    "training.ranking_losses": ["RankingLoss", "contrastive_loss", "listwise_loss", "margin_loss"],
    "training.ranking_trainer": ["RankingTrainer"],
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "PAIR_TASKS",
    "AccuracyF1",
    "AlignTrainer",
    "AlignTrainingArguments",
    "BiEncoder",
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
    "QuantizedEmbeddings",
    "ProgressiveCallback",
    "RankingLoss",
    "RankingTrainer",
    "RankingTrainingArguments",
    "Rankings",
    "TeacherArguments",
    "TextArguments",
    "TextCollator",
    "add_context",
    "alignment_loss",
    "augment_pairs",
    "balance_scores",
    "bin_scores",
    "bm25_scores",
    "bm25_search",
    "check_scores",
    "chunk_mean",
    "compute_metrics_for",
    "contrastive_loss",
    "convert_encoder",
    "default_encoder",
    "distill",
    "embed_pairs",
    "embed_rankings",
    "encode",
    "encode_chunks",
    "encode_document",
    "encode_query",
    "evaluate_model",
    "evaluate_retrieval",
    "export_graph",
    "export_model",
    "hidden_loss",
    "listwise_loss",
    "load_corpus",
    "load_model",
    "load_pairs",
    "load_rankings",
    "load_reranker",
    "load_teacher",
    "load_texts",
    "make_pair_model",
    "make_queries",
    "make_rankings",
    "map_layers",
    "margin_loss",
    "matryoshka_loss",
    "max_tokens",
    "merge_models",
    "mine_candidates",
    "mix_pairs",
    "normalize_text",
    "probe_layers",
    "push_model",
    "quantize",
    "rank",
    "rank_groups",
    "ranking_loss",
    "ranking_metrics",
    "read_rankings",
    "read_texts",
    "relation_loss",
    "score_candidates",
    "score_candidates_by_similarity",
    "score_pairs",
    "score_similarities",
    "score_texts",
    "similarity_loss",
    "split_text",
    "train_general",
    "train_reranker",
    "train_teacher",
    "whiten_encoder",
    "write_rankings",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_MODULE_OF[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


@functools.cache
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


# It imports torch. The program `hf-dse` reads its options first, so that help is fast, and registers then.
if os.environ.pop("HF_DSE_REGISTER_LATER", None) is None:
    register()
