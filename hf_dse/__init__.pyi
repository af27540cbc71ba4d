# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0

# The public names, each once. Type checkers read this file, and `hf_dse/__init__.py` reads it at runtime.
from .convert.convert import convert_encoder as convert_encoder
from .convert.convert import make_pair_model as make_pair_model
from .convert.student import with_own_attention as with_own_attention
from .convert.whiten import whiten_encoder as whiten_encoder
from .data.collators import PairCollator as PairCollator
from .data.options import DataArguments as DataArguments
from .data.pairs import load_pairs as load_pairs
from .data.passages import split_text as split_text
from .data.ranking_files import load_corpus as load_corpus
from .data.ranking_files import load_rankings as load_rankings
from .data.rankings import Rankings as Rankings
from .data.rankings import make_rankings as make_rankings
from .data.read import report as report
from .demo import default_encoder as default_encoder
from .measure.assess import assess as assess
from .measure.evaluate import evaluate as evaluate
from .measure.metrics import compute_metrics_for as compute_metrics_for
from .modeling import DseConfig as DseConfig
from .modeling import DseForSequenceClassification as DseForSequenceClassification
from .modeling import DseModel as DseModel
from .publish.export import export as export
from .publish.export import push_model as push_model
from .retrieval.index import Index as Index
from .retrieval.index import search as search
from .retrieval.negatives import mine as mine
from .retrieval.queries import make_queries as make_queries
from .retrieval.rerankers import load_reranker as load_reranker
from .retrieval.sentence_transformer import to_sentence_transformer as to_sentence_transformer
from .stages.distill import distill as distill
from .teacher.score import score as score
from .training.arguments import DseTrainingArguments as DseTrainingArguments
from .training.arguments import GeneralTrainingArguments as GeneralTrainingArguments
from .training.arguments import RankingTrainingArguments as RankingTrainingArguments
from .training.general_trainer import GeneralTrainer as GeneralTrainer
from .training.losses import PairDistillationLoss as PairDistillationLoss
from .training.losses import RankingLoss as RankingLoss
from .training.pair_trainer import DseTrainer as DseTrainer
from .training.ranking_trainer import RankingTrainer as RankingTrainer

__version__: str

def register() -> None: ...
