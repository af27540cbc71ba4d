# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Search by the words of a query with bm25s: BM25, alone or beside the cosine."""

import copy
import hashlib
import json
import shutil
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache, partial
from importlib.metadata import version
from importlib.util import find_spec
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import regex
from transformers.utils import logging

from hf_dse.common.cache import open_cache
from hf_dse.common.files import wait_for_lock, write_atomically, writing
from hf_dse.common.loading import import_extra
from hf_dse.retrieval.sentence_transformer import list_texts


logger = logging.get_logger(__name__)

# Scripts without spaces between words: Thai, Lao, Myanmar, Khmer, Tai Tham, Japanese, Bopomofo, Javanese, Tai Viet,
# Chinese and Yi. Korean has spaces, but its particles are written to the word before them.
UNSPACED = (
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1a20-\u1aaf\u3005-\u3007\u3040-\u312f\u31a0-\u31bf\u3400-\u9fff"
    "\ua000-\ua48f\ua980-\ua9ff\uaa60-\uaadf\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff]+"
)
# The index of kept words, the file that tells whether it is complete, and the words of each text.
FOLDER, CHECKSUMS, STEMS = "words-", "checksums.json", "words.sqlite"

# Runs of these scripts; C#, C++ and their kin; words as Unicode defines them (https://unicode.org/reports/tr29), by
# `\b` with the flag w, which keep the separators of numbers; and symbols, such as emoji.
# Compiled, because for each text the library would look at the flags again.
WORDS = regex.compile(rf"(?wV1){UNSPACED}|(?<!\w)\p{{L}}(?:#|\+\+)(?!\w)|\w.*?\b|\p{{So}}")
# Between the parts of a name: separators, and changes of case as in `getUserById` and `HTMLParser`, but not in mRNA or
# behind two letters at the beginning, as in `toString`.
BETWEEN_PARTS = (
    r"(?V1)[^\p{L}\p{M}\p{N}]+|(?<!^\p{Ll}{2})(?<=\p{Ll})(?=\p{Lu}\p{Ll})|(?<=\p{Lu}{2})(?=\p{Lu}\p{Ll}{2})"
)
# Abbreviations that are one word by Unicode's rules.
STOP_WORDS = ("e.g", "i.e")


class _Letters(dict[int, str | None]):
    """
    For `str.translate`: digits become those of ASCII, and letters that are seldom told apart become one. Invisible
    characters vanish, and the points of Arabic and Hebrew, which are seldom written.
    """

    def __missing__(self, code: int) -> str | None:
        character = chr(code)
        category, name = unicodedata.category(character), unicodedata.name(character, "")
        is_point = category == "Mn" and (name.startswith(("ARABIC", "HEBREW")) or "VARIATION SELECTOR" in name)
        if category == "Cf" or is_point:
            self[code] = None
        else:
            self[code] = str(unicodedata.decimal(character)) if category == "Nd" else character
        return self[code]


# Letters and signs, and those that are seldom told apart from them: alef, yeh, heh and kaf of Arabic and Farsi, final
# letters of Hebrew, the i of Turkish, the yo of Russian, vowels of Greek, whose capitals have no accents, apostrophes,
# and separators of numbers.
SAME = {
    **{"\u0627": "\u0622\u0623\u0625\u0671", "\u064a": "\u0649\u06cc", "\u0647": "\u0629\u06c0\u06c1\u06d5"},
    **{"\u0643": "\u06a9", "\u05db": "\u05da", "\u05de": "\u05dd", "\u05e0": "\u05df", "\u05e4": "\u05e3"},
    **{"\u05e6": "\u05e5", "i": "\u0130\u0131", "\u0435": "\u0401\u0451", "'": "\u2019"},
    **{".": "\u066b", ",": "\u066c", "/": "\u2044"},
    **dict(zip("αεηιουωϊϋ", ("άΆ", "έΈ", "ήΉ", "ίΊ", "όΌ", "ύΎ", "ώΏ", "ΐ", "ΰ"), strict=True)),
}
_LETTERS = _Letters({ord(other): same for same, others in SAME.items() for other in others})
# The tatweel only lengthens a word, a keycap ends an emoji, and the last stands for what could not be decoded.
_LETTERS |= {0x0640: None, 0x20E3: " ", 0xFFFD: " "}


def split_words(text: str) -> list[str]:
    """
    The words of a text in the normal form NFKC and without case: those of Unicode, behind a name its parts, and pairs
    and single letters for scripts without spaces. A word of one character counts once, however often a formula has it.
    """
    if not text.isascii():
        # NFKC makes the spaces in a number ordinary ones, and a fraction or a small number a part of the word before.
        text = regex.sub(r"(?<=\d)[\u00a0\u2009\u202f](?=\d{3})", "'", text)
        text = regex.sub(r"(?<=\d|\p{L}{3})(?=\p{No})", " ", text)
        text = unicodedata.normalize("NFKC", text).translate(_LETTERS)
        # Unicode joins Korean to the letters beside.
        text = regex.sub(UNSPACED, r" \g<0> ", text)
    words = list(chain.from_iterable(map(_forms, WORDS.findall(text))))
    characters = dict.fromkeys(word for word in words if len(word) == 1 and word.isascii())
    return [word for word in words if word not in characters] + [*characters]


@lru_cache(maxsize=2**16)
def _forms(word: str) -> tuple[str, ...]:
    """
    What a word counts as: itself, and the parts of two letters or more that a name is made of. Behind C++ and C# the
    letter alone, and behind a number that is written in groups the number without them.
    """
    if regex.match(UNSPACED, word):
        # A mark alone is no word.
        return (*map("".join, pairwise(word)), *filter(str.isalnum, word))
    word = word.removesuffix("'s")
    # `lower` leaves the German ß.
    parts, word = regex.split(BETWEEN_PARTS, word), word.casefold()
    if word[-1] in "#+":
        return word, word[0]
    if regex.fullmatch(r"\d{1,3}(?:[,.']\d{3})+", word):
        return word, "".join(parts)
    is_name = len(parts) > 1 and any(map(str.isalpha, word))
    return (word, *(part.casefold() for part in parts if len(part) > 1)) if is_name else (word,)


class Bm25Index:
    """
    Lucene's BM25 of the words of a corpus, with the settings of MTEB: k1 = 1.5, b = 0.75, English stop words. The
    words of the same texts are read from `folder` if it keeps them, and kept there otherwise. `tokenize` gives the
    words of the corpus, if that is cheaper than to read its texts.
    """

    def __init__(self, corpus: Sequence[str], folder: Path | None = None, tokenize: Callable[[], Any] | None = None):
        texts = list_texts(corpus)
        if not texts:
            raise ValueError("There are no texts to search in.")
        self._open(f"{FOLDER}{_digest(texts)}", len(texts), tokenize or partial(tokenize_words, texts), folder)

    def of_documents(self, groups: np.ndarray, tokenize: Callable[[], Any], folder: Path | None) -> "Bm25Index":
        """The index of the documents with these numbers, of which the texts are passages."""
        documents, digest = copy.copy(self), hashlib.sha256(groups.tobytes()).hexdigest()
        name, number = f"{self.name}-{digest[:16]}", int(groups.max()) + 1
        documents._open(name, number, lambda: join_tokens(tokenize(), groups), folder)
        return documents

    def _open(self, name: str, num_texts: int, tokenize: Callable[[], Any], folder: Path | None) -> None:
        bm25s, _ = import_bm25()
        self.name, self.num_texts = name, num_texts
        self.index: Any = None if folder is None else _read_words(bm25s, folder / name)
        if self.index is None:
            tokens = tokenize()
            # By scipy where it is installed: the same matrix in less time.
            self.index = bm25s.BM25(csc_backend="auto")
            if tokens.vocab:
                self.index.index(tokens, show_progress=False)
        self.has_words = bool(getattr(self.index, "vocab_dict", None))
        if folder is not None:
            self.save(folder)

    def save(self, folder: Path) -> None:
        """Keeps the words in a folder. A corpus without words has none to keep."""
        if self.has_words:
            folder.mkdir(parents=True, exist_ok=True)
            with wait_for_lock(folder):
                if not (folder / self.name / CHECKSUMS).is_file():
                    _write_words(self.index, folder / self.name)

    def words(self, queries: Sequence[str]) -> list[list[int]]:
        """The numbers of the words of each query that occur in the corpus."""
        if not self.has_words:
            return [[] for _ in list_texts(queries)]
        return [self.index.get_tokens_ids(found) for found in _stems(queries)]

    def scores(self, words: list[int]) -> np.ndarray:
        """The scores (float32) of all texts for the words of a query."""
        return self.index.get_scores_from_ids(words) if words else np.zeros(self.num_texts, np.float32)


def tokenize_words(texts: Sequence[str], folder: Path | None = None) -> Any:
    """The stems of texts as numbers, as bm25s takes them. `folder` keeps those of each text, which cost most."""
    bm25s, _ = import_bm25()
    vocabulary: dict[str, int] = {}
    rows = _stems(texts) if folder is None else _kept_stems(texts, folder)
    ids = [[vocabulary.setdefault(stem, len(vocabulary)) for stem in row] for row in rows]
    return bm25s.tokenization.Tokenized(ids, vocabulary)


def _stems(texts: Sequence[str]) -> list[list[str]]:
    """The stems of the words of texts, without stop words."""
    bm25s, stemmer = import_bm25()
    return bm25s.tokenize(
        [" ".join(split_words(text)) for text in list_texts(texts)],
        token_pattern=r"\S+",
        stopwords=[*bm25s.stopwords.STOPWORDS_EN, *STOP_WORDS],
        stemmer=stemmer.Stemmer("english"),
        show_progress=False,
        return_ids=False,
    )


def _kept_stems(texts: Sequence[str], folder: Path) -> Iterable[list[str]]:
    """The same, from a folder, to which those of new texts are added."""
    keys = _keys(texts)
    with open_cache(folder / STEMS) as cache:
        kept = dict(cache.read(set(keys)))
        new = {key: text for key, text in zip(keys, texts, strict=True) if key not in kept}
        # A line break, because an entry is never empty.
        made = {key: f"{' '.join(row)}\n".encode() for key, row in zip(new, _stems([*new.values()]), strict=True)}
        cache.write(made)
    kept |= made
    return (kept[key].decode().split() for key in keys)


def _keys(texts: Sequence[str]) -> list[bytes]:
    """The names under which a folder keeps the words of texts."""
    return [hashlib.sha256(_made_by() + text.encode()).digest() for text in texts]


@cache
def _made_by() -> bytes:
    """What says which words a text has: this file, and its packages."""
    packages = "".join(version(name) for name in ("bm25s", "PyStemmer", "regex"))
    return hashlib.sha256(Path(__file__).read_bytes() + packages.encode()).digest()


def join_tokens(tokens: Any, groups: np.ndarray) -> Any:
    """The words of documents, by those of their passages."""
    joined: list[list[int]] = [[] for _ in range(groups.max() + 1)]
    for row, group in zip(tokens.ids, groups, strict=True):
        joined[group] += row
    # A word of one character counts once in a document too.
    characters = {number for word, number in tokens.vocab.items() if len(word) == 1 and word.isascii()}
    for number, row in enumerate(joined):
        if characters.isdisjoint(row):
            continue
        once = dict.fromkeys(word for word in row if word in characters)
        joined[number] = [word for word in row if word not in characters] + [*once]
    return tokens._replace(ids=joined)


def _digest(texts: list[str]) -> str:
    """What an index of words is made of."""
    digest = hashlib.sha256(_made_by())
    for text in texts:
        digest.update(f"{len(text)} {text}".encode())
    return digest.hexdigest()[:32]


def _read_words(bm25s: Any, folder: Path) -> Any:
    """Kept words; `None` where there are none or damaged ones, which a warning names."""
    if not (folder / CHECKSUMS).is_file():
        return None
    try:
        sums = json.loads((folder / CHECKSUMS).read_text())
        if {name: zlib.crc32((folder / name).read_bytes()) for name in sums} == sums:
            return bm25s.BM25.load(folder, load_corpus=False, show_progress=False)
    except (OSError, ValueError, EOFError):
        pass
    logger.warning(f"{folder}: the kept words are damaged, and are made anew.")
    (folder / CHECKSUMS).unlink(missing_ok=True)
    return None


def _write_words(index: Any, folder: Path) -> None:
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
        self.passages = passages
        tokenize = cache(partial(tokenize_words, passages, folder))
        self.indexes = [Bm25Index(passages, folder, tokenize)]
        if self.groups.max() + 1 < len(passages):
            self.indexes.append(self.indexes[0].of_documents(self.groups, tokenize, folder))

    def scores(self, queries: Sequence[str], weight: float = 1.0) -> Callable[[slice], np.ndarray]:
        """
        For a slice of the queries, the scores of all passages (float32), `(num_rows, num_passages)`, from 0 to
        `weight`: divided by the best score of the query.
        """
        words = [index.words(queries) for index in self.indexes]
        num_without = words[0].count([])
        if num_without > len(words[0]) / 2:
            logger.warning(
                f"{num_without} of {len(words[0])} queries share no word with the texts but such as `the` and `is`, "
                "which do not count: BM25 finds nothing for them."
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


def keep_words(folder: Path, words: Words) -> None:
    """Leaves nothing but these words in a folder."""
    for index in words.indexes:
        index.save(folder)
    with wait_for_lock(folder):
        for other in set(folder.glob(f"{FOLDER}*")) - {folder / index.name for index in words.indexes}:
            # First the file that says that the others are there.
            (other / CHECKSUMS).unlink(missing_ok=True)
            shutil.rmtree(other, ignore_errors=True)
    if (folder / STEMS).is_file():
        with open_cache(folder / STEMS) as kept:
            kept.drop_others(_keys(words.passages))


def number_groups(groups: Sequence | np.ndarray) -> np.ndarray:
    """Any values, such as names, `None` or NaN, as the numbers of groups, from 0, in their order."""
    if not isinstance(groups, np.ndarray):
        # A tensor as a list, because its entries are never equal.
        groups = pd.Series(groups.tolist() if hasattr(groups, "tolist") else groups, dtype=object)
    return pd.factorize(groups, use_na_sentinel=False)[0]


def has_bm25() -> bool:
    """Whether the packages of BM25 are installed."""
    return find_spec("bm25s") is not None and find_spec("Stemmer") is not None


def import_bm25() -> list[Any]:
    """The packages of BM25. Call it before a corpus is embedded."""
    return import_extra("ranking", "bm25s", "Stemmer")
