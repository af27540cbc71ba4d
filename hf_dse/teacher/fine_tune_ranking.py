# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning a reranker on queries with relevant and other documents."""

import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch import nn
from transformers import PreTrainedTokenizerBase, set_seed
from transformers.utils import logging

from hf_dse.common.files import writing
from hf_dse.data.pairs import DataArguments
from hf_dse.data.ranking_files import load_rankings
from hf_dse.data.rankings import Rankings
from hf_dse.data.tokenization import check_max_length, token_lengths
from hf_dse.metrics import ranking_metrics
from hf_dse.teacher.fine_tune import TeacherArguments, load_base
from hf_dse.teacher.score_candidates import score_candidates
from hf_dse.training.arguments import PairTrainingArguments
from hf_dse.training.base import ReproducibleTrainer, check_output_dir, locks_output_dir
from hf_dse.training.progress import show_progress


logger = logging.get_logger(__name__)

# What sentence-transformers applies to the scores of the saved model: nothing, they are raw logits.
ACTIVATION = "torch.nn.modules.linear.Identity"


class CandidateCollator:
    """
    Tokenizes queries, each with a relevant document and some that are not, as pairs for a cross-encoder. Only
    documents are truncated. Use it with `remove_unused_columns=False`.

    Args:
        processing_class (`PreTrainedTokenizerBase`):
            The tokenizer.
        max_length (`int`):
            Maximum tokens of query and document together.
        corpus (`datasets.Dataset`):
            The documents, in the column `text`.
        num_negatives (`int`):
            Documents that are drawn from the negatives of a row. The draw depends only on the seed, the attribute
            `epoch` and the row, so a resumed training continues with the same documents.
        seed (`int`, *optional*, defaults to 0):
            The seed.

    A call returns the tensors of the tokenizer, of shape `(num_pairs, seq_len)`, and `labels` of shape `(num_pairs,)`:
    1 for a relevant document, which comes first in each list, and 0 for its negatives.
    """

    def __init__(
        self,
        processing_class: PreTrainedTokenizerBase,
        max_length: int,
        corpus: Dataset,
        num_negatives: int,
        seed: int = 0,
    ):
        self.processing_class, self.max_length, self.corpus = processing_class, max_length, corpus
        self.num_negatives, self.seed = num_negatives, seed
        # In shared memory, for workers of the loader that stay from epoch to epoch.
        self._epoch = torch.zeros((), dtype=torch.long).share_memory_()

    @property
    def epoch(self) -> int:
        return int(self._epoch)

    def set_epoch(self, epoch: int) -> None:
        self._epoch.fill_(epoch)

    def __call__(self, features: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        queries: list[str] = []
        documents: list[int] = []
        labels: list[int] = []
        for feature in features:
            negatives = feature["negatives"]
            if len(negatives) > self.num_negatives:
                draw = random.Random(f"{self.seed} {self.epoch} {feature['row']}")
                negatives = draw.sample(negatives, self.num_negatives)
            queries += [feature["query"]] * (1 + len(negatives))
            documents += [feature["positive"], *negatives]
            labels += [1] + [0] * len(negatives)
        encoded = self.processing_class(
            queries,
            self.corpus[documents]["text"],
            truncation="only_second",
            max_length=self.max_length,
            padding=True,
            return_tensors="pt",
        )
        return {**encoded, "labels": torch.tensor(labels)}


class RerankerTrainer(ReproducibleTrainer):
    """
    Trains a cross-encoder to score the relevant document of each list above the others: the loss is the cross-entropy
    of the scores in a list. It evaluates by ranking the candidates of `eval_rankings`.
    """

    args: PairTrainingArguments
    # `compute_loss` returns the mean over the lists of a batch.
    loss_is_scaled_for_ga = False

    def __init__(self, *, data_collator: CandidateCollator, eval_rankings: Rankings | None = None, **kwargs: Any):
        self.eval_rankings: Any = eval_rankings
        self.tokenizer = data_collator.processing_class
        eval_dataset = None if eval_rankings is None else eval_rankings.queries
        super().__init__(data_collator=data_collator, eval_dataset=eval_dataset, **kwargs)

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> torch.Tensor | tuple[torch.Tensor, Any]:
        inputs = dict(inputs)
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        loss = list_loss(outputs.logits[:, 0], labels)
        return (loss, outputs) if return_outputs else loss

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: list[str] | None = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        with self.compute_loss_context_manager():
            scored = score_candidates(
                self.accelerator.unwrap_model(self.model),
                self.eval_rankings if eval_dataset is None else eval_dataset,
                processing_class=self.tokenizer,
                batch_size=self.args.per_device_eval_batch_size,
                max_length=self.args.max_length,
                show_progress=not self.args.disable_tqdm and self.args.process_index == 0,
            )
        return self.report(measure_candidates(scored), metric_key_prefix)


def list_loss(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """
    The cross-entropy of the relevant document in each list, with the softmax over the scores of the list.

    Args:
        scores (`torch.Tensor` of shape `(num_pairs,)`):
            The scores of all lists, one list after the other.
        labels (`torch.Tensor` of shape `(num_pairs,)`):
            1 for the first of each list, the relevant document, and 0 for the others.

    Returns:
        `torch.Tensor`: the mean over the lists.
    """
    starts = labels.nonzero()[:, 0].tolist()
    sizes = [end - start for start, end in zip(starts, [*starts[1:], len(labels)], strict=True)]
    lists = nn.utils.rnn.pad_sequence(list(scores.float().split(sizes)), batch_first=True, padding_value=-math.inf)
    return nn.functional.cross_entropy(lists, lists.new_zeros(len(lists), dtype=torch.long))


def measure_candidates(rankings: Rankings) -> dict[str, float]:
    """The nDCG@10 and the MRR@10 of ranking the candidates of each query by the scores of the teacher."""
    names = ("query_id", "documents", "labels", "teacher_logits")
    run: dict[str, dict[str, float]] = {}
    grades: dict[str, dict[str, float]] = {}
    for query_id, documents, labels, logits in zip(*(rankings.queries[name][:] for name in names), strict=True):
        ids = list(map(str, documents))
        run[query_id] = dict(zip(ids, logits, strict=True))
        grades[query_id] = {row: label for row, label in zip(ids, labels, strict=True) if not math.isnan(label)}
    measures = ranking_metrics(run, grades)
    return {name: measures[name] for name in ("ndcg@10", "mrr@10")}


@locks_output_dir
def train_reranker(
    teacher_args: TeacherArguments, data_args: DataArguments, training_args: PairTrainingArguments
) -> dict[str, float]:
    """
    Fine-tunes an encoder as a reranker on queries with candidates and saves it with its tokenizer, as a folder that
    [`score_candidates`] and the `CrossEncoder` of sentence-transformers load. Its scores are raw logits.

    A row of the training is a query with one relevant document and `num_negatives` of its documents that are known
    not to be relevant, drawn anew in each epoch. The loss is the cross-entropy of the relevant one.

    Args:
        teacher_args (`TeacherArguments`):
            The encoder, and the number of negatives.
        data_args (`DataArguments`):
            The queries with candidates, such as [`mine_candidates`] returns them. The split `train` is required.
            `validation` is evaluated during training, and both `validation` and `test` at the end, if they have
            relevant and other candidates.
        training_args ([`PairTrainingArguments`]):
            The training arguments. `max_length` counts the tokens of query and document together; documents that are
            longer are truncated, queries never. It becomes the `model_max_length` of the saved tokenizer.

    Returns:
        `dict[str, float]`: the metrics of the training, and of the saved model `ndcg@10` and `mrr@10` over the
        candidates, as `eval_*` (validation) and `test_*`.

    Raises:
        `FileExistsError`: if the output folder is not empty.
        `ValueError`: if the data are invalid, no query has a negative, a query leaves no room for a document, or the
        loss is NaN or infinite.
    """
    checkpoint = check_output_dir(
        str(training_args.output_dir), training_args.resume_from_checkpoint, teacher_args.overwrite_output_dir
    )
    splits = load_rankings(data_args)
    if "train" not in splits:
        raise ValueError(f"There is no train split to learn from; found {', '.join(splits)}.")
    rows = training_rows(splits["train"])
    evaluated = {split: part for split in ("validation", "test") if split in splits and (part := _both(splits[split]))}
    if evaluated:
        # Fail early without the package of the measures.
        ranking_metrics({"query": {"document": 1.0}}, {"query": {"document": 1}})
    if training_args.metric_for_best_model is None and "validation" in evaluated:
        training_args.metric_for_best_model = "ndcg@10"

    set_seed(training_args.seed)
    model, tokenizer, _ = load_base(teacher_args, 1, None)
    check_max_length(training_args.max_length, model, tokenizer, pair=True)
    # What loads the folder reads as much of a pair as the training, and returns raw logits.
    tokenizer.model_max_length = training_args.max_length
    model.config.sentence_transformers = {"activation_fn": ACTIVATION}
    corpus = splits["train"].corpus
    trainer = RerankerTrainer(
        model=model,
        args=training_args,
        train_dataset=_with_lengths(rows, corpus, tokenizer, training_args.max_length),
        eval_rankings=evaluated.get("validation"),
        processing_class=tokenizer,
        data_collator=CandidateCollator(
            tokenizer, training_args.max_length, corpus, teacher_args.num_negatives, training_args.seed
        ),
    )
    show_progress(trainer)
    metrics = dict(trainer.train(resume_from_checkpoint=checkpoint).metrics)
    with writing(Path(str(training_args.output_dir))):
        trainer.save_model()
    trainer.save_state()
    for split, prefix in (("validation", "eval"), ("test", "test")):
        if split in evaluated:
            metrics.update(trainer.evaluate(evaluated[split], metric_key_prefix=prefix))
    trainer.save_metrics("all", metrics, combined=False)
    return metrics


def training_rows(rankings: Rankings) -> Dataset:
    """
    A row for each relevant document of a query: `row` (its number), `query`, `positive` (the row of the document in
    the corpus) and `negatives` (the rows of the documents that are known not to be relevant).

    Raises:
        `ValueError`: if no query has both.
    """
    rows: dict[str, list] = {"row": [], "query": [], "positive": [], "negatives": []}
    num_left_out = 0
    columns = (rankings.queries[name][:] for name in ("query", "documents", "labels"))
    for query, documents, labels in zip(*columns, strict=True):
        negatives = [row for row, label in zip(documents, labels, strict=True) if label == 0]
        positives = [row for row, label in zip(documents, labels, strict=True) if label > 0]
        num_left_out += not (positives and negatives)
        for positive in positives if negatives else []:
            values = (len(rows["row"]), query, positive, negatives)
            for name, value in zip(rows, values, strict=True):
                rows[name].append(value)
    if not rows["row"]:
        raise ValueError(
            f"None of the {len(rankings)} training queries has both a relevant document (a label above 0) and one "
            "that is not (label 0): add negatives with `hf-dse mine` or `mine_candidates`."
        )
    if num_left_out:
        logger.warning(
            f"{num_left_out} of {len(rankings)} training queries have no relevant document or no negative, and are "
            "left out: `hf-dse mine` adds negatives."
        )
    return Dataset.from_dict(rows)


def _both(rankings: Rankings) -> Rankings | None:
    """The queries with both a relevant document and another candidate; other lists have one order only."""
    labels = (np.array(row) for row in rankings.queries["labels"][:])
    rows = [number for number, row in enumerate(labels) if 0 < np.sum(row > 0) < len(row)]
    if len(rows) < len(rankings):
        logger.warning(
            f"{len(rankings) - len(rows)} of {len(rankings)} queries have no relevant document or no other candidate, "
            "so they are not evaluated: `hf-dse mine` adds candidates."
        )
    return rankings.select(rows) if rows else None


def _with_lengths(rows: Dataset, corpus: Dataset, tokenizer: PreTrainedTokenizerBase, max_length: int) -> Dataset:
    """Adds a column `length`, the tokens of the longest pair of a row, for batches of similar length."""
    lists = [[positive, *rest] for positive, rest in zip(rows["positive"][:], rows["negatives"][:], strict=True)]
    needed = sorted({row for documents in lists for row in documents})
    size_of = dict(zip(needed, token_lengths(tokenizer, corpus.select(needed)["text"][:]), strict=True))
    # The special tokens of a pair instead of those of two texts.
    special = tokenizer.num_special_tokens_to_add(pair=True) - 2 * tokenizer.num_special_tokens_to_add()
    queries = token_lengths(tokenizer, rows["query"][:])
    longest = max(range(len(queries)), key=queries.__getitem__)
    if queries[longest] + special + tokenizer.num_special_tokens_to_add() >= max_length:
        raise ValueError(
            f"The query {rows['query'][longest][:60]!r} leaves no room for a document in max_length={max_length}: "
            "raise max_length if the model allows it, or shorten the query."
        )
    sizes = [
        [query + special + size_of[document] for document in documents]
        for query, documents in zip(queries, lists, strict=True)
    ]
    cut = sum(size > max_length for row in sizes for size in row)
    if cut:
        logger.warning(
            f"{cut} of {sum(map(len, sizes))} training pairs do not fit into {max_length} tokens, so their documents "
            "are truncated: raise `max_length` if the ends of documents matter."
        )
    return rows.add_column("length", [min(max(row), max_length) for row in sizes])
