# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Options of an evaluation."""

from dataclasses import dataclass, field

from hf_dse.common.options import check_at_least, check_numbers, check_positive
from hf_dse.mining.arguments import BM25_WEIGHT


# Documents that a reranker reads for each query.
RERANK_TOP = 100


@dataclass
class ComparisonArguments:
    """What a search in a corpus is compared with."""

    bm25: bool = field(
        default=False, metadata={"help": "On a corpus: compare with BM25, and with the cosine and BM25 together."}
    )
    bm25_weight: float = field(
        default=BM25_WEIGHT,
        metadata={
            "help": "With `--bm25`: what multiplies BM25 over the best BM25 score of the query, before the cosine is "
            "added; of a chunk the mean of its own and its document's. 0: no such row."
        },
    )
    compare_with: list[str] = field(
        default_factory=list,
        metadata={"help": "On a corpus: other encoders to compare with, such as the source of the student."},
    )
    rerank: str | None = field(
        default=None,
        metadata={
            "help": "On a corpus: a reranker, such as the teacher, that ranks what the model finds again. It "
            "reads whole documents, with `--chunks` too; of one that is longer than it reads, the best window counts."
        },
    )
    rerank_top: int = field(
        default=RERANK_TOP, metadata={"help": "With `--rerank`: documents of each query that it ranks again."}
    )

    def __post_init__(self) -> None:
        check_numbers(self)
        check_positive(self, "rerank_top")
        check_at_least(0, bm25_weight=self.bm25_weight)
        if not self.bm25 and self.bm25_weight != BM25_WEIGHT:
            raise ValueError(f"bm25_weight={self.bm25_weight}: there is no BM25 to weigh; add `--bm25`.")
        if self.rerank is None and self.rerank_top != RERANK_TOP:
            raise ValueError(f"rerank_top={self.rerank_top}: there is no reranker; add `--rerank MODEL`.")
