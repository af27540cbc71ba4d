# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures of rankings by pytrec_eval: what is relevant, and how well a search found it."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from hf_dse.common.loading import import_extra
from hf_dse.data.rankings import Rankings


RANKING_METRICS = ("ndcg@10", "mrr@10", "map", "recall@1", "recall@10", "recall@100")


def relevance(rankings: Rankings) -> dict[str, dict[str, int]]:
    """The grades of documents by query id. Call it before a corpus is embedded, because it checks the grades."""
    ids = rankings.document_ids
    grades: dict[str, dict[str, int]] = {}
    columns = (rankings.queries[name][:] for name in ("query_id", "documents", "labels"))
    for query_id, rows, labels in zip(*columns, strict=True):
        known: dict[str, float] = {}
        for row, label in zip(rows, labels, strict=True):
            # A document is as relevant as its best passage.
            if not math.isnan(label):
                known[ids[row]] = max(label, known.get(ids[row], label))
        wrong = next((doc_id for doc_id, label in known.items() if not label.is_integer()), None)
        if wrong is not None:
            raise ValueError(
                f"The relevance of document {wrong!r} for query {query_id!r} is {known[wrong]}: measures of rankings "
                "need whole grades, such as 0, 1 and 2."
            )
        if any(label > 0 for label in known.values()):
            grades[query_id] = {doc_id: int(label) for doc_id, label in known.items()}
    if not grades:
        raise ValueError(
            f"None of the {len(rankings)} queries has a relevant document (above 0): nothing can be measured."
        )
    return grades


def measure_run(
    run: Mapping[str, Mapping[str, float]], qrels: Mapping[str, Mapping[str, int]], *, per_query: bool = False
) -> dict[str, Any]:
    """
    The means of `RANKING_METRICS` by pytrec_eval, as MTEB and BEIR report, or the values of each query id. Of equal
    scores the first in the run is first, as in the search; pytrec_eval alone would sort them by their ids.
    """
    (pytrec_eval,) = import_extra("ranking", "pytrec_eval")
    found = {}
    for query_id in qrels:
        scores = run.get(query_id, {})
        if any(map(math.isnan, scores.values())):
            raise ValueError(f"A score of the query {query_id!r} is NaN.")
        ranked = sorted(scores, key=scores.__getitem__, reverse=True)
        found[query_id] = {doc_id: float(len(ranked) - rank) for rank, doc_id in enumerate(ranked)}
    evaluator = pytrec_eval.RelevanceEvaluator(dict(qrels), {"ndcg_cut.10", "recip_rank", "map", "recall.1,10,100"})
    measured = {
        query_id: {
            "ndcg@10": values["ndcg_cut_10"],
            # The reciprocal rank of trec_eval has no limit: below 1 / 10 the rank is beyond 10.
            "mrr@10": values["recip_rank"] if values["recip_rank"] > 1 / 11 else 0.0,
            "map": values["map"],
            **{f"recall@{k}": values[f"recall_{k}"] for k in (1, 10, 100)},
        }
        for query_id, values in evaluator.evaluate(found).items()
    }
    if per_query:
        return measured
    return {name: float(np.mean([values[name] for values in measured.values()])) for name in RANKING_METRICS}
