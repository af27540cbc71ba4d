# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
The queries and documents that the flagship learns to search from, in the layout of BEIR.

    python recipes/flagship/queries.py DATA OUT
    python recipes/flagship/queries.py DATA OUT more    # for a trial that the checkpoint has no part of

OUT/search has the training queries of all sets with one corpus: claims of SciFact's train split, questions of SQuAD
for their sentences (three of four sentences, by a hash), of QNLI, of fairy tales for their section, of PubMedQA's
train split for abstracts, and titles of RFCs for abstracts. The other questions of SQuAD are a test set of
studies/generality.py. OUT/unlabelled has more documents, paragraphs of Wikipedia articles, and OUT/unlabelled.jsonl
queries that nobody has labelled: sentences of other paragraphs, and of SciFact's abstracts, and titles of these.
`more` writes OUT/more and OUT/more.jsonl alone, others of the last kind: paragraphs of RFCs and Wikipedia, abstracts
of SciFact and PubMedQA, and as queries sentences and words of other paragraphs, sentences of SciFact's abstracts,
titles of articles.
"""

import json
import random
import re
import sys
from pathlib import Path

import pandas as pd
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS


sys.path.insert(0, str(Path(__file__).parents[2] / "studies"))
from generality import is_held_out  # noqa: E402


SEED = 0
# Questions of each set, at most.
NUMBERS = {"squad": 6000, "qnli": 2000, "fairytaleqa": 1200, "rfc": 1500}
# Pairs of a query and a relevant document.
COLUMNS = ["query", "document"]


def scifact(data: Path) -> tuple[pd.DataFrame, pd.Series]:
    """The labelled claims of the train split, and the whole corpus, in which they have to find their abstracts."""
    corpus = pd.read_parquet(data / "scifact" / "corpus.parquet").set_index("doc_id")
    texts = corpus["title"] + " " + corpus["text"]
    queries = pd.read_parquet(data / "scifact" / "queries_train.parquet").set_index("query_id")["query"]
    judged = pd.read_parquet(data / "scifact" / "qrels_train.parquet")
    return pd.DataFrame({"query": judged["query_id"].map(queries), "document": judged["doc_id"].map(texts)}), texts


def fairytaleqa(data: Path) -> pd.DataFrame:
    documents = pd.read_parquet(data / "fairytaleqa" / "docs.parquet").set_index("doc_id")["text"].str.split("\n\n")
    questions = pd.read_parquet(data / "fairytaleqa" / "queries.parquet")
    # Others need several sections.
    is_local = questions["section"].str.fullmatch(r"\d+") & (questions["split"] == "train")
    rows = questions[is_local].to_dict("records")
    found = []
    for row in rows:
        sections = documents[row["doc_id"]]
        place = int(row["section"]) - 1
        if place < len(sections):
            found.append((row["question"], sections[place]))
    return pd.DataFrame(found, columns=COLUMNS)


def read(data: Path) -> dict[str, pd.DataFrame]:
    qnli = pd.read_parquet(data / "qnli" / "validation.parquet")
    pubmed = pd.read_parquet(data / "pubmedqa" / "pairs.parquet")
    rfc = pd.read_parquet(data / "rfc" / "docs.parquet")
    squad = pd.read_parquet(data / "squad_sent" / "train.parquet").drop_duplicates(["question", "sentence"])
    squad = squad[~squad["sentence"].map(is_held_out)]
    sets = {
        "squad": squad.rename(columns={"question": "query", "sentence": "document"}),
        "qnli": qnli[qnli["label"] == 0].rename(columns={"question": "query", "sentence": "document"}),
        "fairytaleqa": fairytaleqa(data),
        "pubmedqa": pubmed[pubmed["split"] == "train"].rename(columns={"question": "query", "abstract": "document"}),
        "rfc": rfc[rfc["split"] == "train"].rename(columns={"title": "query", "abstract": "document"}),
    }
    return {
        name: rows[COLUMNS].sample(min(NUMBERS.get(name, len(rows)), len(rows)), random_state=SEED)
        for name, rows in sets.items()
    }


def sentences(text: str) -> list[str]:
    return [part for part in re.split(r"(?<=[.!?])\s+", text) if 7 <= len(part.split()) <= 28]


def paragraphs_of(text: str, separator: str = "\n") -> list[str]:
    return [part for part in text.split(separator) if 40 <= len(part.split()) <= 160]


def unlabelled(data: Path, texts: list[str]) -> tuple[list[str], list[str]]:
    """Queries without labels, and the documents for them: `texts` and paragraphs of Wikipedia."""
    draw = random.Random(SEED)
    articles = pd.read_parquet(data / "longwiki" / "docs.parquet")
    documents, drawn = list(texts), []
    for article in articles[articles["split"] == "train"].itertuples():
        paragraphs = paragraphs_of(article.body)
        draw.shuffle(paragraphs)
        documents += [" ".join(f"{article.title} {article.lead}".split()[:150]), *paragraphs[:2]]
        found = [sentence for part in paragraphs[2:] for sentence in sentences(part)]
        drawn += [draw.choice(found)] if found else []
    corpus = pd.read_parquet(data / "scifact" / "corpus.parquet")
    queries = draw.sample(drawn, 3000)
    found = [sentences(text) for text in corpus["text"].sample(2200, random_state=SEED)]
    queries += [draw.choice(parts) for parts in found if parts][:1500]
    queries += corpus["title"].sample(800, random_state=1).tolist()
    return list(dict.fromkeys(queries)), list(dict.fromkeys(documents))


def keywords(sentence: str, draw: random.Random) -> str:
    """Three to eight words of a sentence, as somebody types them who searches."""
    words = [word for word in re.findall(r"[A-Za-z][\w-]+", sentence) if word.lower() not in ENGLISH_STOP_WORDS]
    kept = sorted(draw.sample(range(len(words)), min(draw.randint(3, 8), len(words))))
    return " ".join(words[place] for place in kept).lower()


def more_unlabelled(data: Path) -> tuple[list[str], list[str]]:
    """Queries without labels, and the documents for them, which are in part more technical."""
    draw = random.Random(SEED + 1)
    articles, rfcs = (
        texts[texts["split"] == "train"].sample(frac=1, random_state=SEED + 1)
        for texts in (pd.read_parquet(data / name / "docs.parquet") for name in ("longwiki", "rfc"))
    )
    documents: list[str] = []
    found: list[list[str]] = []
    # Two paragraphs of a text are documents, the others have the sentences.
    for bodies, separator in ((articles["body"][:2500], "\n"), (rfcs["body"][:1500], "\n\n")):
        found.append([])
        for body in bodies:
            parts = [" ".join(part.split()) for part in paragraphs_of(body, separator)]
            draw.shuffle(parts)
            documents += parts[:2]
            known = [sentence for part in parts[2:] for sentence in sentences(part)]
            found[-1] += draw.sample(known, min(2, len(known)))
    abstracts = pd.read_parquet(data / "scifact" / "corpus.parquet")["text"].sample(2000, random_state=SEED + 1)
    pubmed = pd.read_parquet(data / "pubmedqa" / "pairs.parquet")
    pubmed = pubmed[pubmed["split"] == "train"]["abstract"]
    # Their first 100 words: longer ones take long to read.
    documents += [" ".join(text.split()[:100]) for text in [*abstracts, *pubmed]]
    wiki, technical = (draw.sample(kind, len(kind)) for kind in found)
    science = [draw.choice(parts) for parts in map(sentences, abstracts) if parts]
    queries = [*wiki[:1500], *technical[:1200], *science[:700], *articles["title"][:600]]
    queries += [keywords(text, draw) for text in [*wiki[1500:2300], *technical[1200:1900], *science[700:1000]]]
    queries = list(dict.fromkeys(queries))
    return draw.sample(queries, len(queries)), list(dict.fromkeys(documents))


def write(folder: Path, rows: pd.DataFrame, texts: list[str]) -> None:
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    documents = {text: f"d{number}" for number, text in enumerate(dict.fromkeys([*rows["document"], *texts]))}
    queries = {text: f"q{number}" for number, text in enumerate(dict.fromkeys(rows["query"]))}
    for name, known in (("corpus", documents), ("queries", queries)):
        table = pd.DataFrame({"_id": known.values(), "text": known.keys()})
        table.to_json(folder / f"{name}.jsonl", orient="records", lines=True)
    relevant = {"query-id": rows["query"].map(queries), "corpus-id": rows["document"].map(documents), "score": 1}
    pd.DataFrame(relevant).drop_duplicates().to_csv(folder / "qrels" / "train.tsv", sep="\t", index=False)
    print(f"{folder.name}: {len(queries):,} queries, {len(documents):,} documents")


def write_unlabelled(out: Path, name: str, queries: list[str], documents: list[str]) -> None:
    (out / name).mkdir(parents=True, exist_ok=True)
    corpus = [{"_id": f"d{number}", "text": text} for number, text in enumerate(documents)]
    asked = [{"query_id": f"x{number}", "query": text} for number, text in enumerate(queries)]
    for file, lines in ((f"{name}/corpus.jsonl", corpus), (f"{name}.jsonl", asked)):
        (out / file).write_text("".join(json.dumps(line) + "\n" for line in lines))
    print(f"{name}: {len(queries):,} queries, {len(documents):,} documents")


def main() -> None:
    data, out = map(Path, sys.argv[1:3])
    if sys.argv[3:] == ["more"]:
        write_unlabelled(out, "more", *more_unlabelled(data))
        return
    sets = read(data)
    claims, abstracts = scifact(data)
    for name, rows in {"scifact": claims, **sets}.items():
        print(f"{name}: {len(rows):,} pairs of a query and a document")
    # Claims first: of the others `--max_train_samples` takes a part.
    others = pd.concat(sets.values()).sample(frac=1, random_state=SEED)
    pairs = pd.concat([claims, others])
    write(out / "search", pairs, abstracts.tolist())
    write_unlabelled(out, "unlabelled", *unlabelled(data, list(dict.fromkeys([*pairs["document"], *abstracts]))))


if __name__ == "__main__":
    main()
