# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Bi-encoders as teachers: their vectors, as sentence-transformers computes them, and their scores of candidates."""

import hashlib
import json
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers.tokenization_utils_base import VERY_LARGE_INTEGER

from hf_dse.common.devices import choose_device
from hf_dse.common.files import to_path
from hf_dse.common.provenance import fingerprint, weight_bytes
from hf_dse.data.passages import split_text
from hf_dse.data.ranking_batches import keep_documents
from hf_dse.data.rankings import Rankings
from hf_dse.data.tokenization import max_tokens
from hf_dse.inference.arguments import ModelArguments
from hf_dse.inference.encoding import encode, evaluating
from hf_dse.inference.loading import (
    SETTINGS,
    load_config,
    load_model,
    lost_modules,
    read_json,
    read_lengths,
    read_modules,
    read_prompts,
)
from hf_dse.mining.bm25 import bm25_scores
from hf_dse.mining.embeddings import keep_blocks
from hf_dse.modeling.configuration_dse import TEXT_LENGTHS
from hf_dse.teacher.arguments import check_windows
from hf_dse.teacher.rerankers import load_sentence_transformers
from hf_dse.teacher.score_candidates import with_scores


class BiEncoder:
    """
    A bi-encoder with any tokenizer, from which a student learns.

    Args:
        name_or_path (`str`):
            A folder or Hub id of sentence-transformers with a `Transformer`, or of another encoder. Pooling, prompts
            and further layers are those of its files; for layers besides the pooling, sentence-transformers has to be
            installed.
        revision (`str`, *optional*, defaults to `"main"`):
            Branch, tag or commit on the Hub.
        trust_remote_code (`bool`, *optional*, defaults to `False`):
            Whether to run the code that comes with the model.
        dtype (`str`, *optional*, defaults to `"float32"`):
            Data type of the weights.
        prompt_name (`str`, *optional*):
            Which of its prompts stands before each text. Defaults to its `default_prompt_name`, usually none.
        max_length (`int`, *optional*):
            Maximum number of tokens of a text, if it reads so many. Defaults to all that it reads of queries, of
            documents and of other texts.
        batch_size (`int`, *optional*, defaults to 32):
            Maximum number of texts in a batch.
        device (`str` or `torch.device`, *optional*):
            Device to run on. Defaults to an accelerator if available.

    Raises:
        `ValueError`: for a cross-encoder, a model of sentence-transformers without a `Transformer`, an unknown prompt,
        or a damaged checkpoint.
    """

    def __init__(
        self,
        name_or_path: str,
        *,
        revision: str = "main",
        trust_remote_code: bool = False,
        dtype: str = "float32",
        prompt_name: str | None = None,
        max_length: int | None = None,
        batch_size: int = 32,
        device: str | torch.device | None = None,
    ):
        source: dict[str, Any] = {"revision": revision, "trust_remote_code": trust_remote_code}
        device = choose_device(device)
        modules = read_modules(name_or_path, revision)
        if modules and "Transformer" not in modules and not read_json(name_or_path, "config.json", revision):
            raise ValueError(
                f"{name_or_path} has the modules {', '.join(modules)} of sentence-transformers, and a teacher has to "
                "have a `Transformer`: name a bi-encoder with one."
            )
        config = load_config(name_or_path, **source)
        heads = [name for name in config.architectures or [] if name.endswith("ForSequenceClassification")]
        if heads and config.model_type != "dse":
            raise ValueError(
                f"{name_or_path} is a {heads[0]}, a cross-encoder without vectors of single texts: name a bi-encoder, "
                "or learn from its scores with `--stage pairs` or `--stage ranking`."
            )
        name = prompt_name or read_json(name_or_path, SETTINGS, revision).get("default_prompt_name")
        prompts = read_prompts(name_or_path, revision)
        prompts = (getattr(config, "prompts", None) if prompts is None else prompts) or {}
        if name is not None and name not in prompts:
            raise ValueError(
                f"teacher_prompt_name={name!r}: {name_or_path} has no such prompt, "
                f"{'only ' + ', '.join(prompts) if prompts else 'and no others'}."
            )
        self.prompts, self.prompt = prompts, "" if name is None else prompts[name]
        lengths = read_lengths(name_or_path, revision)
        if lengths is None:
            lengths = {name: value for name in TEXT_LENGTHS if (value := getattr(config, name, None)) is not None}
        if not lost_modules(config, name_or_path, revision):
            own = ModelArguments(
                name_or_path,
                model_revision=revision,
                trust_remote_code=trust_remote_code,
                dtype=dtype,
                device=str(device),
            )
            model, tokenizer = load_model(own)
            # A length that is asked for may be above that of sentence-transformers, up to what the model takes.
            most, own_length = max_tokens(model, tokenizer), None if max_length else tokenizer.model_max_length
            encode_block: Callable = partial(encode, model, tokenizer, device=device)
            self.settings: list[Any] = [fingerprint(model, tokenizer), "encode"]
            options = {"normalize": True, "show_progress": False}
        else:
            model = load_sentence_transformers("SentenceTransformer", name_or_path, dtype, **source)
            model.to(device)
            most, own_length = None, model.max_seq_length
            # The text of a model names its modules and their settings.
            weights = {
                name: hashlib.sha256(weight_bytes(value)).hexdigest() for name, value in model.state_dict().items()
            }
            text = json.dumps([str(model), sorted(weights.items())])
            inner = fingerprint(model.transformers_model, model.tokenizer)
            self.settings = [inner, hashlib.sha256(text.encode()).hexdigest()]
            encode_block = partial(_encode_with, model)
            options = {}
            tokenizer = model.tokenizer
        self.model, self.processing_class = model, tokenizer
        self.max_length = _lower(max_length, most, own_length)
        # Those of texts of one kind.
        self._lengths = {
            kind: _lower(max_length, most, lengths.get(f"{kind}_length", own_length)) for kind in ("query", "document")
        }
        self.settings += [self.max_length, *([lengths] if lengths else [])]
        self._encode = partial(encode_block, batch_size=batch_size, **options)
        self.size = self._encode(["a"], max_length=self.max_length).shape[1]

    def encode(
        self,
        texts: Sequence[str],
        cache_dir: str | Path | None = None,
        *,
        prompt_name: str | None = None,
        dtype: Any = np.float32,
        show_progress: bool = True,
    ) -> np.ndarray:
        """
        The unit vectors of texts, of shape `(num_texts, embedding_size)`. With `cache_dir` those of each 1,024 texts
        are kept in a file there, by texts, weights and settings, so that none is computed twice. `prompt_name` names
        another prompt than that of the class, `"query"` or `"document"`, which is empty if the model has none.
        """
        prompt, limit = self._prompt_and_length(prompt_name)
        texts = [prompt + text for text in texts] if prompt else texts
        folder = None if cache_dir is None else to_path(cache_dir)
        settings = self.settings if limit == self.max_length else [*self.settings, limit]
        options: dict[str, Any] = {"size": self.size, "dtype": dtype, "show_progress": show_progress}
        return keep_blocks(partial(self._encode, max_length=limit), texts, settings, folder, **options)

    def split(self, text: str, prompt_name: str | None = None) -> list[str]:
        """The parts of a text that are read whole after the prompt, by [`split_text`]; a blank text is one part."""
        prompt, limit = self._prompt_and_length(prompt_name)
        if limit is None or not text.strip():
            return [text]
        room = limit - len(self.processing_class(prompt, verbose=False)["input_ids"])
        if room < 1:
            raise ValueError(f"max_length={limit} leaves no room for a text after the prompt {prompt!r}.")
        return split_text(text, self.processing_class, room)

    def _prompt_and_length(self, prompt_name: str | None) -> tuple[str, int | None]:
        """What stands before a text of a kind, and how many tokens of both are read."""
        if prompt_name is None:
            return self.prompt, self.max_length
        return self.prompts.get(prompt_name, ""), self._lengths.get(prompt_name, self.max_length)


def _encode_with(model: Any, texts: list[str], batch_size: int, max_length: int | None) -> np.ndarray:
    model.max_seq_length = VERY_LARGE_INTEGER if max_length is None else max_length
    with evaluating(model):
        vectors = model.encode(
            texts, prompt="", batch_size=batch_size, normalize_embeddings=True, show_progress_bar=False
        )
    if not np.isfinite(vectors).all():
        raise ValueError("Vectors of the teacher are NaN or infinite: load it in float32, or its weights are damaged.")
    return np.asarray(vectors, dtype=np.float32)


def score_candidates_by_similarity(
    encoder: BiEncoder,
    rankings: Rankings,
    *,
    bm25_weight: float = 0.0,
    windows: str = "first",
    cache_dir: str | Path | None = None,
    show_progress: bool = True,
) -> Rankings:
    """
    Scores the candidates of each query without a reranker: by the cosine of a bi-encoder, and BM25 if wanted. Both
    together often find far more than each of them, and teach that to a student. Each document is embedded once, after
    the prompt of the bi-encoder for documents, and queries after that for queries.

    Args:
        encoder ([`BiEncoder`]):
            The bi-encoder.
        rankings ([`Rankings`]):
            The queries, their candidates and the whole corpus, whose words BM25 counts.
        bm25_weight (`float`, *optional*, defaults to 0.0):
            What is added to the cosine of the text with the best BM25 score of the query, and a share of it to others,
            see [`bm25_scores`]. 0.3 is a good start. A query that shares no word with the corpus has cosines alone.
        windows (`str`, *optional*, defaults to `"first"`):
            What of a document counts that is longer than the bi-encoder reads: its `"first"` tokens, or the `"best"`
            cosine of all its parts, see [`split_text`], whose length is the `max_length` of the bi-encoder. The words
            of BM25 are those of the whole document.
        cache_dir (`str` or `Path`, *optional*):
            Folder of the vectors, from which an interrupted run continues. Defaults to none.
        show_progress (`bool`, *optional*, defaults to `True`):
            Whether to show progress bars.

    Returns:
        [`Rankings`]: the same with `teacher_logits`, the cosines and what is added to them.

    Raises:
        `ValueError`: if there are no candidates, the weight is negative, NaN or infinite, `windows` is neither, a
            vector is NaN or infinite, the cache is damaged, or the tokenizer cannot split texts.
        `ImportError`: for BM25 without its packages.

    Example:

    ```python
    >>> from hf_dse import BiEncoder, make_rankings, score_candidates_by_similarity

    >>> corpus = {"text": ["Error 4711: no paper.", "Error 4712: no ink.", "Rain again."]}
    >>> rankings = make_rankings({"query": ["What is error 4712?"], "documents": [[0, 1]]}, corpus)
    >>> encoder = BiEncoder("sentence-transformers/all-MiniLM-L6-v2")
    >>> scored = score_candidates_by_similarity(encoder, rankings, bm25_weight=0.3, show_progress=False)
    >>> [round(score, 2) for score in scored.queries["teacher_logits"][0]]
    [0.77, 0.95]
    ```
    """
    check_windows(windows)
    queries, lists = (rankings.queries[name][:] for name in ("query", "documents"))
    if not any(lists):
        raise ValueError("The queries have no candidates to score: mine them with `mine_candidates` or `hf-dse mine`.")
    # Before the texts are embedded, as it may lack its packages.
    words = bm25_scores(queries, rankings.corpus["text"][:], bm25_weight) if bm25_weight else None
    needed = keep_documents(rankings)
    options: dict[str, Any] = {"cache_dir": cache_dir, "show_progress": show_progress}
    query_vectors = encoder.encode(queries, prompt_name="query", **options)
    parts = [[text] if windows == "first" else encoder.split(text, "document") for text in needed.corpus["text"][:]]
    vectors = encoder.encode([part for row in parts for part in row], prompt_name="document", **options)
    spans = [slice(end - len(row), end) for row, end in zip(parts, accumulate(map(len, parts)), strict=True)]
    scores = []
    for number, (documents, rows) in enumerate(zip(lists, needed.queries["documents"][:], strict=True)):
        values = np.array([(vectors[spans[row]] @ query_vectors[number]).max() for row in rows], dtype=np.float32)
        if words is not None:
            # One query at a time, as its scores are those of the whole corpus.
            values += words(slice(number, number + 1))[0, documents]
            if not np.isfinite(values).all():
                raise ValueError(f"bm25_weight={bm25_weight}: the scores are infinite, take a smaller weight.")
        scores.append(values.tolist())
    return with_scores(rankings, scores)


def _lower(*limits: int | None) -> int | None:
    """The lowest of the limits that are known."""
    return min((limit for limit in limits if limit is not None and limit < 10**9), default=None)
