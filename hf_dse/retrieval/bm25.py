# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Search by the words of a query with bm25s: BM25, alone or beside the cosine."""

import hashlib
import json
import re
import shutil
import unicodedata
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from transformers.utils import logging

from hf_dse.common.files import write_atomically, writing
from hf_dse.common.loading import import_extra
from hf_dse.retrieval.sentence_transformer import list_texts


logger = logging.get_logger(__name__)

# Chinese characters, and the syllables of Korean and Yi: one alone may be a word.
SYLLABLES = "\u3005-\u3007\u3400-\u9fff\ua000-\ua48f\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff"
# Scripts without spaces between words: Thai, Lao, Myanmar, Khmer, Tai Tham, Japanese, Bopomofo, Javanese, Tai Viet,
# Chinese and Yi. Korean has spaces, but its particles are written to the word before them.
UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1a20-\u1aaf\u3040-\u312f\u31a0-\u31bf\ua980-\ua9ff\uaa60-\uaadf"
    f"{SYLLABLES}]+"
)
# Kept words, and the file that tells whether they are complete.
FOLDER, CHECKSUMS = "words-", "checksums.json"
# As in scikit-learn, words of one letter do not count; those of one symbol do.
TOKEN = rf"\S\S+|[{SYLLABLES}]|[^\w\s]"


class _Letters(dict[int, str | None]):
    """
    For `str.translate`: what is not part of a word becomes a space, a symbol a word and a digit that of ASCII.
    Invisible characters vanish, and the points of Arabic and Hebrew, which are seldom written.
    """

    def __missing__(self, code: int) -> str | None:
        character = chr(code)
        category, name = unicodedata.category(character), unicodedata.name(character, "")
        is_point = category == "Mn" and (name.startswith(("ARABIC", "HEBREW")) or "VARIATION SELECTOR" in name)
        if category == "Cf" or is_point:
            self[code] = None
        elif category == "Nd":
            self[code] = str(unicodedata.decimal(character))
        elif category == "So":
            self[code] = f" {character} "
        else:
            # Letters, their marks, numbers, and the underscore.
            self[code] = character if category[0] in "LMN" or category == "Pc" else " "
        return self[code]


# The tatweel only lengthens a word, the forms of the alef are often not told apart, a keycap ends an emoji, and the
# last stands for what could not be decoded.
_LETTERS = _Letters(
    {0x0640: None, 0x20E3: " ", 0xFFFD: " ", **dict.fromkeys(map(ord, "\u0622\u0623\u0625\u0671"), "\u0627")}
)


def split_words(text: str) -> str:
    """The words of a text in the normal form NFKC; pairs and single letters for scripts without spaces."""
    text = unicodedata.normalize("NFKC", text).translate(_LETTERS)
    return UNSPACED.sub(lambda match: f" {' '.join(_parts(match[0]))} ", text)


def _parts(run: str) -> Iterator[str]:
    yield from map("".join, pairwise(run))
    # A mark alone is no word.
    yield from filter(str.isalnum, run)


class Bm25Index:
    """
    Lucene's BM25 of the words of a corpus, with the settings of MTEB: k1 = 1.5, b = 0.75, English stop words. The
    words of the same texts are read from `folder` if it keeps them, and kept there otherwise.
    """

    def __init__(self, corpus: Sequence[str], folder: Path | None = None):
        bm25s, stemmer = import_bm25()
        texts = list_texts(corpus)
        if not texts:
            raise ValueError("There are no texts to search in.")
        self.num_texts = len(texts)
        words = {"token_pattern": TOKEN, "stopwords": "en", "stemmer": stemmer.Stemmer("english")}
        self.tokenize = partial(bm25s.tokenize, **words, show_progress=False)
        kept = self.folder = None if folder is None else folder / f"{FOLDER}{_digest(texts)}"
        self.index: Any = None if kept is None else _read_words(bm25s, kept)
        if self.index is None:
            tokens = self._tokenize(texts)
            self.index = bm25s.BM25()
            if tokens.vocab:
                self.index.index(tokens, show_progress=False)
                if kept is not None:
                    _write_words(self.index, kept)
        self.has_words = bool(getattr(self.index, "vocab_dict", None))

    def words(self, queries: Sequence[str]) -> list[list[int]]:
        """The numbers of the words of each query that occur in the corpus."""
        if not self.has_words:
            return [[] for _ in list_texts(queries)]
        return [self.index.get_tokens_ids(found) for found in self._tokenize(queries, return_ids=False)]

    def scores(self, words: list[int]) -> np.ndarray:
        """The scores (float32) of all texts for the words of a query."""
        return self.index.get_scores_from_ids(words) if words else np.zeros(self.num_texts, np.float32)

    def _tokenize(self, texts: Sequence[str], **options: Any) -> Any:
        # `lower` of bm25s leaves the German ß.
        return self.tokenize([split_words(text).casefold() for text in list_texts(texts)], **options)


def _digest(texts: list[str]) -> str:
    """What kept words were made of: the texts, and this file, which says what words are."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for text in texts:
        digest.update(f"{len(text)} {text}".encode(errors="surrogatepass"))
    return digest.hexdigest()[:32]


def _read_words(bm25s: Any, folder: Path) -> Any:
    """Kept words; `None` where there are none or damaged ones, which a warning names."""
    if not (folder / CHECKSUMS).is_file():
        return None
    try:
        sums = json.loads((folder / CHECKSUMS).read_text())
        if {name: zlib.crc32((folder / name).read_bytes()) for name in sums} == sums:
            return bm25s.BM25.load(folder, load_corpus=False, show_progress=False)
    except (OSError, ValueError):
        pass
    logger.warning(f"{folder}: the kept words are damaged, and are made anew.")
    return None


def _write_words(index: Any, folder: Path) -> None:
    (folder / CHECKSUMS).unlink(missing_ok=True)
    with writing(folder):
        index.save(folder, show_progress=False)
        sums = {path.name: zlib.crc32(path.read_bytes()) for path in folder.iterdir() if path.name != CHECKSUMS}
    # The last file, which says that the others are complete.
    write_atomically(folder / CHECKSUMS, lambda file: file.write(json.dumps(sums).encode()))


class Words:
    """
    BM25 of passages and of the documents that they are of. Half of a score is that of the whole document, because the
    words of a question are seldom all in one passage.

    Args:
        passages (`Sequence[str]`):
            The passages.
        groups (`Sequence`, *optional*):
            The document of each passage. Where each document is one passage, one index serves both.
        folder (`Path`, *optional*):
            Folder that keeps the words.
    """

    def __init__(
        self, passages: Sequence[str], groups: Sequence | np.ndarray | None = None, folder: Path | None = None
    ):
        self.groups = np.arange(len(passages)) if groups is None else number_groups(groups)
        parts: list[Sequence[str]] = [passages]
        if len(passages) and self.groups.max() + 1 < len(passages):
            parts.append(pd.Series(list(passages), dtype=object).groupby(self.groups).agg(" ".join).tolist())
        self.indexes = [Bm25Index(part, folder) for part in parts]

    def scores(self, queries: Sequence[str], weight: float = 1.0) -> Callable[[slice], np.ndarray]:
        """
        For a slice of the queries, the scores of all passages (float32), `(num_rows, num_passages)`, from 0 to
        `weight`: divided by the best score of the query.
        """
        words = [index.words(queries) for index in self.indexes]
        num_without = words[0].count([])
        if num_without > len(words[0]) / 2:
            logger.warning(
                f"{num_without} of {len(words[0])} queries share no word with the texts: BM25 finds nothing for them."
            )

        def added(rows: slice) -> np.ndarray:
            parts = []
            for index, found in zip(self.indexes, words, strict=True):
                scores = np.array([index.scores(row) for row in found[rows]], np.float32).reshape(-1, index.num_texts)
                best = scores.max(axis=1, keepdims=True)
                scores *= np.float32(weight / len(words)) / np.where(best > 0, best, 1)
                parts.append(scores)
            return parts[0] if len(parts) == 1 else parts[0] + parts[1][:, self.groups]

        return added


def drop_words(folder: Path, words: Words) -> None:
    """Deletes the words that a folder keeps of other texts."""
    for other in set(folder.glob(f"{FOLDER}*")) - {index.folder for index in words.indexes}:
        shutil.rmtree(other, ignore_errors=True)


def number_groups(groups: Sequence | np.ndarray) -> np.ndarray:
    """Any values, such as names, `None` or NaN, as the numbers of groups, from 0, in their order."""
    # An array or a tensor as a list, because the entries of a tensor are never equal.
    values = groups.tolist() if hasattr(groups, "tolist") else groups
    keys = pd.Series(values, dtype=object)
    return keys.groupby(keys, sort=False, dropna=False).ngroup().to_numpy()


def has_bm25() -> bool:
    """Whether the packages of BM25 are installed."""
    return find_spec("bm25s") is not None and find_spec("Stemmer") is not None


def import_bm25() -> list[Any]:
    """The packages of BM25. Call it before a corpus is embedded."""
    return import_extra("ranking", "bm25s", "Stemmer")
