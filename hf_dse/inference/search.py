# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Semantic search: ranks the texts of a corpus for queries, by a similarity or by the pair head of a model. Cosine and
dot product, also those of a head, need a single matrix product. The MLP head of DSE needs a forward pass per pair, so
it only ranks the nearest candidates.
"""

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.utils.logging import tqdm

from hf_dse.inference.quantization import QuantizedEmbeddings


# Maximum number of similarities computed at once (128 MiB), and of texts of the corpus that they are of: their memory
# does not grow with the corpus, which is read once for many queries.
BLOCK_ELEMENTS = 2**25
BLOCK_TEXTS = 2**16


@torch.inference_mode()
def rank(
    query_embeddings: np.ndarray,
    corpus_embeddings: np.ndarray | QuantizedEmbeddings,
    *,
    top_k: int = 10,
    similarity: str = "cosine",
    head: PreTrainedModel | None = None,
    label: int | str | None = None,
    pool: int | None = 100,
    added_scores: Callable[[slice], np.ndarray] | None = None,
    batch_size: int = 4096,
    device: str | torch.device | None = None,
    show_progress: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """
    Ranks the texts of a corpus for queries: by the cosine or the dot product of the embeddings, or by the pair head of
    a model.

    A cosine is the same for every model, from -1 to 1. `similarity_of` tells what a model was made for. The logits
    of a head have the scale that it was trained with. Those of a cosine or dot head are a monotonic function of the
    similarity, so the search is exact. The head of DSE
    ([Barkan et al., 2020](https://huggingface.co/papers/1908.05161)), `similarity="mlp"`, cannot use an index: it
    ranks the `pool` candidates nearest to a query by cosine. It is not symmetric, and scores pairs in the order
    (query, candidate). Texts outside the pool are not found.

    Args:
        query_embeddings (`np.ndarray` of shape `(num_queries, embedding_size)`):
            Output of [`encode`]. Normalized or not is the same for the cosine and for a cosine head; other heads need
            embeddings that are not.
        corpus_embeddings (`np.ndarray` of shape `(num_texts, embedding_size)`):
            Output of [`encode`] for the corpus. [`QuantizedEmbeddings`] are compared with the queries as they are,
            which for bits is what is known as rescoring, of all texts.
        top_k (`int`, *optional*, defaults to 10):
            Number of texts to return per query; all texts if the corpus has fewer.
        similarity (`str`, *optional*, defaults to `"cosine"`):
            What ranks without a head: `"cosine"` or `"dot"`.
        head ([`DseForSequenceClassification`], *optional*):
            The model of the embeddings, to rank by its pair head instead.
        label (`int` or `str`, *optional*):
            The label whose logit ranks: a name in `config.label2id`, or an index. Required if the head has several.
        pool (`int`, *optional*, defaults to 100):
            Number of candidates that an MLP head ranks; `None` for the whole corpus. Ignored by the exact search.
        added_scores (`Callable[[slice], np.ndarray]`, *optional*):
            What is added to the similarities before texts are ranked, such as [`bm25_scores`]: takes a slice of the
            queries, and returns an array of shape `(num_rows, num_texts)`. Only without a head.
        batch_size (`int`, *optional*, defaults to 4096):
            Pairs per batch of an MLP head.
        device (`str` or `torch.device`, *optional*):
            Device to run on, in float32. Defaults to that of the head, and to the CPU for the cosine.
        show_progress (`bool`, *optional*, defaults to `True`):
            Whether to show progress bars.

    Returns:
        `tuple[np.ndarray, np.ndarray]`: scores (float32) and positions in the corpus (int64), both of shape
        `(num_queries, min(top_k, num_texts))`, the best first; ties are broken by the lower position. Scores are
        cosines or dot products, with `added_scores` if there are some, or logits of the head.

    Raises:
        `ValueError`: for embeddings that are NaN, infinite or of another size, an empty corpus, numbers below 1,
        another similarity, a model without a pair head, a label that the head does not have, scores that are NaN or
        infinite, or `added_scores` of another shape or with a head.

    Example:

    ```python
    >>> from transformers import AutoTokenizer
    >>> from hf_dse import convert_encoder, encode, rank

    >>> name = "sentence-transformers/all-MiniLM-L6-v2"
    >>> tokenizer, model = AutoTokenizer.from_pretrained(name), convert_encoder(name)
    >>> texts = ["Rain again.", "The kitten is asleep.", "My dog sleeps."]
    >>> corpus = encode(model, tokenizer, texts, show_progress=False)
    >>> query = encode(model, tokenizer, ["A cat sleeps."], show_progress=False)
    >>> scores, positions = rank(query, corpus, top_k=2, show_progress=False)
    >>> [texts[position] for position in positions[0]]
    ['The kitten is asleep.', 'My dog sleeps.']
    ```
    """
    logit = check_ranking(top_k, head, label, pool)
    if similarity not in ("cosine", "dot"):
        raise ValueError(f'similarity={similarity!r}: it has to be "cosine" or "dot"; pass a `head` to rank by it.')
    if batch_size < 1:
        raise ValueError(f"batch_size={batch_size}: it has to be at least 1.")
    if added_scores is not None and head is not None:
        raise ValueError("`added_scores` are added to the cosine or the dot product: leave out the head, or them.")
    if device is None:
        device = "cpu" if head is None else head.device
    queries = _to_tensor("query_embeddings", query_embeddings, head, device)
    # An mlp head needs the vectors of all candidates.
    is_restored = head is not None and head.config.similarity == "mlp"
    corpus: Any = corpus_embeddings
    if is_restored or not isinstance(corpus, QuantizedEmbeddings):
        corpus = _to_tensor("corpus_embeddings", corpus, head, device)
    if queries.shape[1] != corpus.shape[1]:
        raise ValueError(
            f"query_embeddings have size {queries.shape[1]} and corpus_embeddings {corpus.shape[1]}: embed both with "
            "the same model."
        )
    if not len(corpus):
        raise ValueError("The corpus is empty: there is nothing to rank.")
    if head is None:
        options: dict[str, Any] = {"cosine": similarity == "cosine", "show_progress": show_progress}
        if added_scores is None:
            scores, positions = nearest(queries, corpus, top_k, **options)
        else:
            scores, positions = _nearest_with(added_scores, queries, corpus, top_k, **options)
        return scores.cpu().numpy(), positions.cpu().numpy()

    # In half precision, close candidates would have equal scores.
    scorer: Any = copy.deepcopy(head.similarity).to(device).float()
    if scorer.kind == "mlp":
        if pool is None:
            candidates = torch.arange(len(corpus), device=corpus.device).expand(len(queries), -1)
        else:
            _, candidates = nearest(queries, corpus, pool, cosine=True, show_progress=show_progress)
        top_k = min(top_k, len(corpus))
        scores, positions = queries.new_empty(len(queries), top_k), candidates.new_empty(len(queries), top_k)
        progress = tqdm(candidates, desc="Ranking candidates", unit="query", disable=not show_progress)
        with torch.autocast(queries.device.type, enabled=False):
            for row, pooled in enumerate(progress):
                query = queries[row : row + 1]
                parts = pooled.split(batch_size)
                logits = [scorer(query.expand(len(part), -1), corpus[part])[:, logit] for part in parts]
                values, ranked = _best_first(torch.cat(logits), pooled)
                scores[row], positions[row] = values[:top_k], ranked[:top_k]
    else:
        scale, bias = scorer.scale[logit], scorer.bias[logit]
        # With a negative scale, the least similar texts rank first.
        is_cosine, queries = scorer.kind == "cosine", queries * scale.sign()
        similarities, positions = nearest(queries, corpus, top_k, cosine=is_cosine, show_progress=show_progress)
        scores = similarities * scale.abs() + bias
    if not scores.isfinite().all():
        raise ValueError("Scores are NaN or infinite: the weights of the model's head are damaged.")
    return scores.cpu().numpy(), positions.cpu().numpy()


def rank_groups(
    query_embeddings: np.ndarray,
    corpus_embeddings: np.ndarray | QuantizedEmbeddings,
    groups: Sequence,
    *,
    top_k: int = 10,
    **options: Any,
) -> list[list[tuple[float, int]]]:
    """
    Like [`rank`], for texts that are parts of greater ones, such as passages of files: the best part of each counts.

    Args:
        query_embeddings (`np.ndarray` of shape `(num_queries, embedding_size)`):
            The queries.
        corpus_embeddings (`np.ndarray` of shape `(num_texts, embedding_size)`):
            The parts.
        groups (`Sequence`):
            What each part belongs to.
        top_k (`int`, *optional*, defaults to 10):
            Number of groups to return per query; all if there are fewer. An MLP head ranks only those of its `pool`.
        options:
            Other arguments of [`rank`].

    Returns:
        `list[list[tuple[float, int]]]`: for each query the scores and the positions of the best parts of the groups,
        the best first.

    Raises:
        `ValueError`: if there is not one group for each part, or as [`rank`].

    Example:

    ```python
    >>> import numpy as np
    >>> from hf_dse import rank_groups

    >>> parts, groups = np.eye(3), ["one.txt", "one.txt", "two.txt"]
    >>> rank_groups(np.array([[0.6, 0.8, 0.0]]), parts, groups, similarity="dot", show_progress=False)
    [[(0.800000011920929, 1), (0.0, 2)]]
    ```
    """
    if len(groups) != len(corpus_embeddings):
        raise ValueError(f"There are {len(groups)} groups for {len(corpus_embeddings)} parts: pass one for each part.")
    head, pool = options.get("head"), options.get("pool", 100)
    is_pooled = head is not None and head.config.similarity == "mlp" and pool is not None
    # Of an empty corpus, `rank` says so.
    most = max(1, min(len(corpus_embeddings), pool) if is_pooled else len(corpus_embeddings))
    numbers = number_groups(groups)
    num_groups = numbers.max(initial=-1) + 1
    # Several of the best parts may be of one group.
    size = min(top_k if num_groups == len(numbers) else 4 * top_k, most)
    while True:
        found = []
        for scores, positions in zip(*rank(query_embeddings, corpus_embeddings, top_k=size, **options), strict=True):
            first = np.sort(np.unique(numbers[positions], return_index=True)[1])[:top_k]
            found.append(list(zip(scores[first].tolist(), positions[first].tolist(), strict=True)))
        if size >= most or all(len(hits) >= min(top_k, num_groups) for hits in found):
            return found
        size = min(4 * size, most)


def number_groups(groups: Sequence) -> np.ndarray:
    """The number of the group of each part, from 0 in the order of their first parts."""
    numbers: dict[Any, int] = {}
    return np.array([numbers.setdefault(group, len(numbers)) for group in groups], dtype=np.int64)


def similarity_of(model: PreTrainedModel) -> str:
    """How embeddings of a model are compared: `"dot"` if it was made for dot products, otherwise `"cosine"`."""
    return "dot" if getattr(model.config, "similarity", None) == "dot" else "cosine"


def check_ranking(top_k: int, head: PreTrainedModel | None, label: int | str | None, pool: int | None) -> int | None:
    """
    Checks the options of a ranking, to fail early: before a corpus is embedded.

    Args:
        top_k (`int`):
            Number of texts to return per query.
        head (`PreTrainedModel`, *optional*):
            The model whose head ranks, see [`rank`].
        label (`int` or `str`, *optional*):
            The label whose logit ranks, by name or index.
        pool (`int`, *optional*):
            Number of candidates that an MLP head ranks.

    Returns:
        `int`, *optional*: the index of the logit that ranks; `None` if the cosine ranks.

    Raises:
        `ValueError`: if `top_k` is below 1, the `pool` of an MLP head is below `top_k`, the label is missing or
        unknown, or the model has no head for embeddings.
    """
    if top_k < 1:
        raise ValueError(f"top_k={top_k}: it has to be at least 1.")
    if head is None:
        if label is not None:
            raise ValueError(f"label={label!r}: the cosine has no labels; rank by the head, or leave the label out.")
        return None
    config: Any = head.config
    if config.model_type != "dse" or head is head.base_model:
        raise ValueError(f"{type(head).__name__} has no head that scores pairs of embeddings: rank by the cosine.")
    if config.similarity == "mlp" and pool is not None and pool < top_k:
        raise ValueError(f"pool={pool} is below top_k={top_k}: raise it to at least top_k.")
    if label is None and config.num_labels == 1:
        return 0
    numbers = range(config.num_labels)
    # The command line passes strings; names take precedence over indices.
    known: dict[Any, int] = {
        **{str(number): number for number in numbers},
        **config.label2id,
        **{number: number for number in numbers},
    }
    if label not in known:
        what = "the head has several logits" if label is None else "there is no such logit"
        listing = ", ".join(f"{number} ({name})" for name, number in config.label2id.items())
        raise ValueError(f"label={label!r}: {what}; pass one of {listing}.")
    return known[label]


def nearest(
    vectors: torch.Tensor,
    corpus: torch.Tensor | QuantizedEmbeddings,
    top_k: int,
    *,
    cosine: bool = False,
    added: torch.Tensor | None = None,
    show_progress: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """
    Finds the vectors of a corpus with the largest dot products with each query vector, block by block.

    Args:
        vectors (`torch.Tensor` of shape `(num_vectors, embedding_size)`):
            The query vectors.
        corpus (`torch.Tensor` or [`QuantizedEmbeddings`] of shape `(num_texts, embedding_size)`):
            The vectors to search.
        top_k (`int`):
            Number of vectors to find; all if the corpus has fewer.
        cosine (`bool`, *optional*, defaults to `False`):
            Whether to compare by the cosine.
        added (`torch.Tensor` of shape `(num_vectors, num_texts)`, *optional*):
            What is added to each dot product or cosine.
        show_progress (`bool`, *optional*, defaults to `False`):
            Whether to show a progress bar.

    Returns:
        `tuple[torch.Tensor, torch.Tensor]`: the scores and the positions in the corpus, both of shape
        `(num_vectors, min(top_k, num_texts))`, the largest first; ties are broken by the lower position.
    """
    top_k = min(top_k, len(corpus))
    if cosine:
        vectors = nn.functional.normalize(vectors, dim=-1)
    values = vectors.new_full((len(vectors), top_k), -math.inf)
    positions = torch.zeros(values.shape, dtype=torch.long, device=values.device)
    size = max(1, BLOCK_ELEMENTS // min(len(corpus), BLOCK_TEXTS))
    progress = tqdm(total=len(corpus), desc="Searching", unit="text", disable=not show_progress)
    # Under autocast, close texts would have equal scores.
    with progress, torch.autocast(vectors.device.type, enabled=False):
        for start in range(0, len(corpus), BLOCK_TEXTS):
            block = torch.as_tensor(corpus[start : start + BLOCK_TEXTS], device=vectors.device)
            if cosine:
                block = nn.functional.normalize(block, dim=-1)
            for first in range(0, len(vectors), size):
                rows = slice(first, first + size)
                products = vectors[rows] @ block.T
                if added is not None:
                    products += added[rows, start : start + len(block)]
                found, where = _largest(products, min(top_k, len(block)))
                # What was found before comes first, and has lower positions.
                known = torch.cat([values[rows], found], dim=1), torch.cat([positions[rows], where + start], dim=1)
                values[rows], best = _largest(known[0], top_k)
                positions[rows] = known[1].gather(1, best)
            progress.update(len(block))
    return _best_first(values, positions)


def _nearest_with(
    added_scores: Callable[[slice], np.ndarray],
    queries: torch.Tensor,
    corpus: torch.Tensor | QuantizedEmbeddings,
    top_k: int,
    *,
    cosine: bool,
    show_progress: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Like [`nearest`], with scores that are computed for a block of queries and the whole corpus."""
    top_k = min(top_k, len(corpus))
    values = queries.new_empty(len(queries), top_k)
    positions = torch.empty(values.shape, dtype=torch.long, device=values.device)
    size = max(1, BLOCK_ELEMENTS // len(corpus))
    with tqdm(total=len(queries), desc="Searching", unit="query", disable=not show_progress) as progress:
        for start in range(0, len(queries), size):
            block = queries[start : start + size]
            rows = slice(start, start + len(block))
            added = np.asarray(added_scores(rows), dtype=np.float32)
            if added.shape != (len(block), len(corpus)):
                raise ValueError(
                    f"added_scores returned the shape {added.shape} for {len(block)} queries and {len(corpus)} texts: "
                    "they must be those of the same queries and texts."
                )
            if not np.isfinite(added).all():
                raise ValueError("added_scores are NaN or infinite: take a smaller weight.")
            added_block = torch.from_numpy(added).to(queries.device)
            values[rows], positions[rows] = nearest(block, corpus, top_k, cosine=cosine, added=added_block)
            progress.update(len(block))
    return values, positions


def _largest(values: torch.Tensor, number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """`torch.topk`, which of equal values may take any, with the first of those that are equal to the last taken."""
    found, where = values.topk(number)
    last = found[:, -1:]
    for row in ((values >= last).sum(dim=1) > number).nonzero()[:, 0].tolist():
        above = (values[row] > last[row]).nonzero()[:, 0]
        equal = (values[row] == last[row]).nonzero()[: number - len(above), 0]
        where[row] = torch.cat([above, equal])
    # What is equal stays in this order where blocks meet.
    where = where.sort(dim=1).values
    return values.gather(1, where), where


def _best_first(values: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Sorts along the last axis: the largest value first; ties are broken by the lower position."""
    positions, order = positions.sort(dim=-1)
    values, best = values.gather(-1, order).sort(dim=-1, descending=True, stable=True)
    return values, positions.gather(-1, best)


def _to_tensor(
    name: str, embeddings: np.ndarray, head: PreTrainedModel | None, device: str | torch.device
) -> torch.Tensor:
    """Checks embeddings, and moves them to the device in float32."""
    array = np.asarray(embeddings, dtype=np.float32, order="C")
    if array.ndim != 2:
        raise ValueError(f"{name} must have the shape (number, embedding_size), got {array.shape}.")
    # A length is finite only if all numbers are, and then so are cosines and dot products.
    with np.errstate(over="ignore"):
        wrong = np.flatnonzero(~np.isfinite(np.einsum("ij,ij->i", array, array)))
    if wrong.size:
        raise ValueError(
            f"{wrong.size} of {len(array)} {name} are NaN, infinite or too large, the first is row {wrong[0]}."
        )
    if head is not None and array.shape[1] != head.config.projection_dim:
        raise ValueError(
            f"{name} have size {array.shape[1]}, but those of the model have {head.config.projection_dim}: embed the "
            "texts with this model."
        )
    return torch.from_numpy(array).to(device)
