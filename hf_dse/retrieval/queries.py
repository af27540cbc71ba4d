# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Queries for a corpus that has none: titles or sentences of its documents stand in for them."""

import re
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from datasets import Dataset
from transformers.utils import logging

from hf_dse.data.passages import LITERAL
from hf_dse.data.rankings import Rankings, make_rankings
from hf_dse.retrieval.arguments import QUERY_KINDS


logger = logging.get_logger(__name__)

# A shorter sentence says too little to find its document.
MIN_CHARACTERS = 20
# Where a sentence may end: at its mark with the closing signs after it, or before an empty line.
SENTENCE_END = re.compile(r"[.!?…]+[\"'”’»)\]]*\s+|[。！？]+[」』”’）]*\s*|\n\s*\n\s*")
# Parts of Markdown that are not prose, in the order in which they are taken away.
REST_OF_PARAGRAPH = r"[^\n]*(?:\n[^\S\n]*\S[^\n]*)*"
NOT_PROSE = (
    LITERAL,
    *(
        re.compile(pattern, re.MULTILINE | re.IGNORECASE)
        for pattern in (
            # Headings, underlined ones, and rules between parts.
            r"^[^\S\n]*#[^\n]*",
            r"^[^\S\n]*\S[^\n]*\n {0,3}(?:={3,}|-{3,})[^\S\n]*$",
            r"^[^\S\n]*(?:[-*_=+][^\S\n]*){3,}$",
            # Tables: what is around a line of bars and dashes, and lines that begin with a bar.
            rf"^[^\n]*\|[^\n]*\n(?=[^\n]*\|)[-:|][-:|\t ]*$(?:\n{REST_OF_PARAGRAPH})?",
            r"^[^\S\n]*\|[^\n]*",
            # Images, targets of links, lines of links alone, and quotes.
            r"^[^\S\n]*\[?!\[[^\n]*",
            r"^ {0,3}\[[^\]\n]+\]:[^\n]*",
            r"^[^\S\n]*(?:(?:\[[^\]\n]*\]\([^)\n]*\)|<?https?://\S+(?!\S))[^\w\n]*)+$",
            r"^[^\S\n]*>[^\n]*",
            # HTML, and lines with a comment.
            r"^[^\n]*<!--[^\n]*",
            rf"^[^\S\n]*</?[a-z][\w-]*(?:[\s/>]|$){REST_OF_PARAGRAPH}",
            # Lists. Inside a paragraph, only the number 1 begins one.
            r"(?:^[^\S\n]*(?:[-*+]|1[.)])|(?:\A|(?<=\n\n))[^\S\n]*\d{1,9}[.)])[^\S\n]"
            rf"{REST_OF_PARAGRAPH}",
        )
    ),
)
# A sentence with one of these is not prose: a heading, an image or a tag.
MARKUP = re.compile(r"^#|!\[|</[a-z]|<[a-z][^<>]*/>|<br\b", re.IGNORECASE)
# Characters before a point that can be of an abbreviation.
LONGEST = 12
# No sentence ends at the point of these, nor of a single letter.
ABBREVIATIONS = re.compile(
    r"\b(?:[^\W\d_]|al|approx|cf|dr|e\.g|eq|etc|fig|i\.e|mr|mrs|ms|no|prof|st|vs)\.\s+$", re.IGNORECASE
)


def make_queries(corpus: Dataset, kind: str, *, num_queries: int | None = None, seed: int = 42) -> Rankings:
    """
    Makes queries of the documents of a corpus, so that a teacher's knowledge can be distilled without any real query.

    A query is taken out of the text of its document, which would otherwise be found by that text alone; so the corpus
    of the result differs from the one given. A document gives at most one query.

    Args:
        corpus (`datasets.Dataset`):
            The columns `doc_id`, `text` and optionally `title`, as the corpus of [`Rankings`].
        kind (`str`):
            `"titles"`: the title, and no text of the result begins with one. `"first_sentences"`: the first sentence
            after the title, of at least 20 characters. `"sentences"`: any such sentence, drawn at random.
        num_queries (`int`, *optional*):
            Number of queries, of documents drawn at random. Defaults to all.
        seed (`int`, *optional*, defaults to 42):
            Random seed.

    Returns:
        [`Rankings`]: the queries with the ids `"kind-doc_id"`, each with its document as the only candidate.

    Example:

    ```python
    >>> from datasets import Dataset
    >>> from hf_dse import make_queries

    >>> corpus = Dataset.from_dict({"doc_id": ["a"], "text": ["Planes fly by lift alone. Wings make it."]})
    >>> rankings = make_queries(corpus, "first_sentences")
    >>> rankings.queries["query"][0], rankings.corpus["text"][0]
    ('Planes fly by lift alone.', 'Wings make it.')
    ```
    """
    if kind not in QUERY_KINDS:
        raise ValueError(f"kind={kind!r}: it has to be one of {', '.join(QUERY_KINDS)}.")
    columns = {name: corpus[name][:] for name in corpus.column_names if name in ("doc_id", "text", "title")}
    titles = columns.get("title") or [""] * len(corpus)
    titles = [(title or "").strip() for title in titles]
    bodies = [text.removeprefix(title).strip() for title, text in zip(titles, columns["text"], strict=True)]
    wanted = len(corpus) if num_queries is None else num_queries
    queries: dict[int, str] = {}
    for row in np.random.default_rng(seed).permutation(len(corpus)).tolist():
        if len(queries) == wanted:
            break
        query, body = titles[row], bodies[row]
        if kind != "titles":
            generator = np.random.default_rng([seed, row]) if kind == "sentences" else None
            query, body = take_sentence(body, generator)
        if query and body:
            queries[row], bodies[row] = query, body
    if not queries:
        raise ValueError(f"None of the {len(corpus)} documents gives a query of the kind {kind!r}.")
    if len(queries) < wanted:
        logger.info(f"{len(queries)} of {len(corpus)} documents give queries of the kind {kind!r}.")
    if kind == "titles":
        # A document that is only a title keeps it.
        texts = [body or title for title, body in zip(titles, bodies, strict=True)]
        columns = {"doc_id": columns["doc_id"], "text": texts}
    else:
        for row in queries:
            columns["text"][row] = f"{titles[row]} {bodies[row]}".strip()
    rows = sorted(queries)
    return make_rankings(
        {
            "query_id": [f"{kind}-{columns['doc_id'][row]}" for row in rows],
            "query": [queries[row] for row in rows],
            "documents": [[row] for row in rows],
            "labels": [[1.0] for _ in rows],
        },
        columns,
    )


def take_sentence(text: str, generator: np.random.Generator | None = None) -> tuple[str, str]:
    """A sentence of a text, the first or a random one, and the text without it; both are empty if there is none."""
    spans = [span for span in find_sentences(_blank_markup(text)) if not MARKUP.search(text[slice(*span)])]
    if generator is None:
        spans = spans[:1]
    spans = [(start, end) for start, end in spans if end - start >= MIN_CHARACTERS]
    if not spans:
        return "", ""
    start, end = spans[0 if generator is None else int(generator.choice(len(spans)))]
    before, after = text[:start].rstrip(), text[end:].lstrip()
    # The wider gap stays, such as an empty line.
    gaps = text[len(before) : start], text[end : len(text) - len(after)]
    rest = before + max(gaps, key=lambda gap: (gap.count("\n"), len(gap))) + after
    return (text[start:end], rest.strip()) if rest.strip() else ("", "")


def find_sentences(text: str) -> Iterator[tuple[int, int]]:
    """
    Yields where sentences begin and end: at their marks, but not after abbreviations and initials, and at empty lines.
    """
    starts = [0]
    for match in SENTENCE_END.finditer(text):
        before = text[max(starts[-1], match.start() - LONGEST) : match.end()]
        goes_on = text[match.end() : match.end() + 1].islower() or ABBREVIATIONS.search(before)
        if not goes_on or "\n\n" in re.sub(r"[^\S\n]", "", match[0]):
            starts.append(match.end())
    for start, end in pairwise((*starts, len(text))):
        sentence = text[start:end]
        if sentence.strip():
            yield end - len(sentence.lstrip()), start + len(sentence.rstrip())


def _blank_markup(text: str) -> str:
    """Puts line breaks in the place of all that is not prose. A text of one line has no Markdown."""
    if "\n" in text:
        for pattern in NOT_PROSE:
            text = pattern.sub(lambda match: "\n" * len(match[0]), text)
    return text
