# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Queries for a corpus that has none: headings and sentences of its documents stand in for them."""

import re
from collections.abc import Collection, Iterator
from itertools import pairwise

import numpy as np
from datasets import Dataset
from markdown_it import MarkdownIt
from transformers.utils import logging

from hf_dse.data.passages import parse_headings, parse_markdown
from hf_dse.data.rankings import Rankings, make_corpus, make_rankings
from hf_dse.retrieval.options import QUERY_KINDS


logger = logging.get_logger(__name__)

# A shorter sentence says too little to find its document.
MIN_CHARACTERS = 20
# A heading of fewer bytes says too little, a longer one is none, and a shorter text below it is not what it is about.
HEADING_BYTES, TEXT_BELOW = range(12, 120), 100
# Behind a heading of some dialects of Markdown.
HEADING_ID = re.compile(r"\s*\{#.*\}$")
# A line below a heading in reStructuredText, for which Markdown has the first two of these signs alone, or around it.
RULE = re.compile(r"([=\-~^\"'`+*.:#])\1{3,}")
# Where a sentence may end: at its mark with the closing signs after it, or before an empty line.
SENTENCE_END = re.compile(r"[.!?…]+[\"'”’»)\]]*\s+|[。！？]+[」』”’）]*\s*|\n\s*\n\s*")
# Indented lines are text as any other.
PROSE = MarkdownIt("commonmark").enable("table").disable("code")
# The signs that begin a formula and the row of a table without a head.
NO_PROSE = ("$$", "|")
ADDRESS = re.compile(r"https?://\S+")
# Characters before a point that can be of an abbreviation.
LONGEST = 12
# No sentence ends at the point of these, nor of a single letter.
ABBREVIATIONS = re.compile(
    r"\b(?:[^\W\d_]|al|approx|art|ca|capt|cf|co|col|corp|dr|e\.g|eq|etc|fig|ft|gen|gov|i\.e|inc|jr|lit|lt|ltd|mr|mrs|ms|mt"
    r"|no|pp|prof|rep|rev|sec|sen|sr|st|vol|vs|jan|feb|mar|apr|aug|sept?|oct|nov|dec)\.\s+$",
    re.IGNORECASE,
)


def make_queries(corpus: Dataset, kind: str, *, num_queries: int | None = None, seed: int = 42) -> Rankings:
    """
    Makes queries of the documents of a corpus, so that a teacher's knowledge can be distilled without any real query.

    A query is taken out of the text of its document, which would otherwise be found by that text alone; so the corpus
    of the result differs from the one given. A document gives at most one query.

    Args:
        corpus (`datasets.Dataset`):
            Documents: the columns `doc_id`, `text` and optionally `title`, or the corpus of [`Rankings`].
        kind (`str`):
            `"headings"`: the first heading of several words with text below it, in Markdown or reStructuredText; of
            documents without one the first sentence, if there are too few. `"first_sentences"`: the first sentence
            after the title, of at least 20 characters.
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
    corpus = make_corpus(corpus, "The documents")
    names = ("doc_id", "text", "joined_title", "passage_of")
    columns = {name: corpus[name][:] for name in corpus.column_names if name in names}
    titles = columns.get("joined_title") or [""] * len(corpus)
    wanted = len(corpus) if num_queries is None else num_queries
    queries: dict[int, str] = {}
    # A passage may begin inside of a block of code: what is prose is seen in the whole document.
    has_passages = "passage_of" in columns
    prose = _blank_passages(columns) if has_passages else None
    known = _known_headings(columns) if has_passages and kind == "headings" else None
    order = np.random.default_rng(seed).permutation(len(corpus)).tolist()
    kinds = QUERY_KINDS if kind == "headings" else (kind,)
    for row, taken in ((row, taken) for taken in kinds for row in order):
        if len(queries) == wanted:
            break
        if row in queries:
            continue
        title = (titles[row] or "").strip()
        text = columns["text"][row].removeprefix(title).strip()
        if taken == "headings":
            query, rest = take_heading(text, known and known[columns["passage_of"][row]])
        else:
            query, rest = take_sentence(text, None if prose is None else prose[row][-len(text) :])
        if query:
            # As other passages stand after their titles.
            between = " " if prose is None else "\n"
            queries[row], columns["text"][row] = query, f"{title}{between}{rest}".strip()
    if not queries:
        raise ValueError(f"None of the {len(corpus)} documents gives a query of the kind {kind!r}.")
    if len(queries) < wanted:
        logger.info(f"{len(queries)} of {len(corpus)} documents give queries of the kind {kind!r}.")
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


def find_headings(text: str) -> Iterator[tuple[int, int, str]]:
    """Yields the first line, the line after the last, and the words of headings with text below them."""
    lines = text.split("\n")
    marked = _as_markdown(lines)
    for token, inner in pairwise(parse_headings("\n".join(marked))):
        if token.type != "heading_open" or token.level or not token.map or "\n" in inner.content:
            continue
        first, end = token.map
        heading = _words_of(HEADING_ID.sub("", inner.content))
        # A single word is the name of a part, and a short line may be the end of a letter.
        is_heading = len(heading.encode()) in HEADING_BYTES and (" " in heading or not heading.isascii())
        is_heading &= end - first == 1 or len(lines[end - 1].strip()) > 2
        if is_heading and sum(map(len, lines[end:])) >= TEXT_BELOW:
            has_line_above = first > 0 and marked[first - 1] != lines[first - 1]
            yield first - has_line_above, end, heading


def _as_markdown(lines: list[str]) -> list[str]:
    """The lines of a text with headings of reStructuredText, whose rules are as long as they, as those of Markdown."""
    lines = list(lines)
    for number in range(1, len(lines)):
        title, rule = lines[number - 1].strip(), lines[number].strip()
        if title and RULE.fullmatch(rule) and len(rule) >= len(title) and not RULE.fullmatch(title):
            lines[number - 1], lines[number] = title, "=" * len(rule)
            if number > 1 and lines[number - 2].strip() == rule:
                lines[number - 2] = ""
    return lines


def take_heading(text: str, known: Collection[str] | None = None) -> tuple[str, str]:
    """The first heading, of those that are known, and the text without it; both are empty without one."""
    lines = text.split("\n")
    for first, end, heading in find_headings(text):
        if known is None or heading in known:
            return heading, "\n".join(lines[:first] + lines[end:]).strip()
    return "", ""


def take_sentence(text: str, blanked: str | None = None) -> tuple[str, str]:
    """
    The first sentence of a text and the text without it; both are empty if it is too short. `blanked` is the text with
    blanks in the place of what is no prose, if that is known.
    """
    blanked = _blank_markup(text) if blanked is None else blanked
    prose = (span for span in find_sentences(blanked) if _is_prose(text[slice(*span)]))
    start, end = next(prose, (0, 0))
    if end - start < MIN_CHARACTERS:
        return "", ""
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


def _documents(columns: dict[str, list]) -> dict[str, tuple[list[int], list[str]]]:
    """The rows of the passages of each document, and their texts without the titles before them."""
    titles = columns.get("joined_title") or [""] * len(columns["text"])
    found: dict[str, tuple[list[int], list[str]]] = {}
    for row, (name, title, text) in enumerate(zip(columns["passage_of"], titles, columns["text"], strict=True)):
        rows, parts = found.setdefault(name, ([], []))
        # All but the first stand after the title.
        parts.append(text.removeprefix(f"{title}\n") if rows and title else text)
        rows.append(row)
    return found


def _known_headings(columns: dict[str, list]) -> dict[str, set[str]]:
    """The headings of each document."""
    return {
        name: {heading for *_, heading in find_headings("\n".join(parts))}
        for name, (_, parts) in _documents(columns).items()
    }


def _blank_passages(columns: dict[str, list]) -> list[str]:
    """For each passage, without its white space at the end, what [`_blank_markup`] leaves of it in its document."""
    found = [""] * len(columns["text"])
    for rows, parts in _documents(columns).values():
        blanked, start = _blank_markup("\n".join(parts)), 0
        for row, part in zip(rows, parts, strict=True):
            found[row] = blanked[start : start + len(part.rstrip())]
            start += len(part) + 1
    return found


def _blank_markup(text: str) -> str:
    """Puts line breaks in the place of all that is not a paragraph. A text of one line has no Markdown."""
    if "\n" not in text:
        return text
    lines: set[int] = set()
    tokens, quotes = parse_markdown(text, PROSE), 0
    for number, token in enumerate(tokens):
        quotes += token.nesting if token.type.startswith("blockquote") else 0
        # The first paragraph of an item of a list is the item; others may be the text below a numbered heading.
        if token.type == "paragraph_open" and not quotes and tokens[number - 1].type != "list_item_open":
            inner = tokens[number + 1]
            has_image = any(part.type == "image" for part in inner.children or [])
            if not has_image and not inner.content.startswith(NO_PROSE):
                lines.update(range(*(token.map or [])))
    parts = text.split("\n")
    return "\n".join(part if row in lines else "\n" * len(part) for row, part in enumerate(parts))


def _is_prose(sentence: str) -> bool:
    """Whether a sentence has words beside links, and neither images nor tags."""
    return re.search(r"\w", ADDRESS.sub("", _words_of(sentence, with_links=False))) is not None


def _words_of(line: str, with_links: bool = True) -> str:
    """The words of a line without its markup, those of links too or not; nothing of one with images or tags."""
    words, depth = "", 0
    for part in PROSE.parseInline(line)[0].children or []:
        if part.type in ("image", "html_inline"):
            return ""
        depth += part.nesting if part.type.startswith("link") else 0
        words += "" if depth and not with_links else part.content
    return " ".join(words.split())
