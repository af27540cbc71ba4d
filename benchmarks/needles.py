# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Needles: documents of any length of which only one sentence tells which is wanted."""

from collections.abc import Sequence
from itertools import cycle, islice, product

import numpy as np

from hf_dse import Rankings, make_rankings


NEEDLES = ("passkey", "needle")
# The size of a token in LongEmbed.
WORDS_PER_TOKEN = 0.75
NUM_DOCUMENTS = 100
NUM_QUERIES = 50

FILLER = (
    "The grass is green and soft in the morning.",
    "The sky is blue above the hills.",
    "The sun is yellow and warms the stones.",
    "We walk there, and then we walk back.",
)
FIRST_NAMES = ("Alma", "Boris", "Clara", "Dario", "Edith", "Felix", "Greta", "Hamid", "Irene", "Jonas")
LAST_NAMES = ("Abbott", "Becker", "Castro", "Dubois", "Ericson", "Farrell", "Gruber", "Hansen", "Ito", "Jansen")
# Each with what a fact says of a person, and asks for.
FACTS = (
    ("{name} keeps the spare key of the cellar in a {thing}.", "Where does {name} keep the spare key of the cellar?"),
    ("The boat that {name} built last winter is called {thing}.", "What is the boat called that {name} built?"),
    ("For the village fair {name} always bakes a cake in the form of a {thing}.", "What cake does {name} bake?"),
    ("The first prize that {name} ever won was a {thing}.", "What was the first prize that {name} won?"),
    ("On long journeys {name} takes along nothing but a {thing}.", "What does {name} take along on long journeys?"),
    (
        "The painting above the desk of {name} shows a {thing}.",
        "What does the painting above the desk of {name} show?",
    ),
    ("{name} traded an old piano for a {thing}.", "For what did {name} trade an old piano?"),
    ("The secret password of {name}'s club is {thing}.", "What is the secret password of {name}'s club?"),
    ("In the garden of {name} stands a fountain in the shape of a {thing}.", "Which fountain is in {name}'s garden?"),
    ("The birthday present that {name} wished for was a {thing}.", "What did {name} wish for as a birthday present?"),
)
THINGS = ("lantern", "walrus", "teapot", "compass", "violin", "pumpkin", "kite", "beehive", "helmet", "mirror")


def make_needles(task: str, length: int, texts: Sequence[str] = (), *, seed: int = 42) -> Rankings:
    """
    Makes a task as those of [LongEmbed](https://arxiv.org/abs/2404.12096): 100 documents of one length, and 50
    queries, each with one relevant document.

    `"passkey"`: the same few sentences again and again, and at a random place that the pass key of a person is a
    number; the queries ask for the pass key of a person. `"needle"`: the same text in all documents, and at a random
    place a fact about a person that is nowhere else; the queries ask for the fact. Names and facts are our own.

    Args:
        task (`str`):
            `"passkey"` or `"needle"`.
        length (`int`):
            Length of the documents, in tokens of 0.75 words, at least 64, which hold a needle.
        texts (`Sequence[str]`, *optional*):
            With `"needle"`: sentences, which are joined, and repeated if they are too short.
        seed (`int`, *optional*, defaults to 42):
            Seed of names, numbers and places.

    Returns:
        [`Rankings`].

    Raises:
        `ValueError`: for a length below 64.
    """
    if length < 64:
        raise ValueError(f"length={length}: it has to be at least 64 tokens, which hold a needle.")
    rng = np.random.default_rng([seed, length, NEEDLES.index(task)])
    names = [f"{first} {last}" for first, last in product(FIRST_NAMES, LAST_NAMES)]
    names = [names[place] for place in rng.permutation(len(names))[:NUM_DOCUMENTS]]
    if task == "passkey":
        sentences: Sequence[str] = FILLER
        keys = rng.integers(10_000, 100_000, NUM_DOCUMENTS)
        hidden = [
            f"The pass key of {name} is {key}. Remember it: {key} is the pass key of {name}."
            for name, key in zip(names, keys, strict=True)
        ]
        questions = [f"What is the pass key of {name}?" for name in names]
    else:
        sentences = texts
        facts = [(fact, question, thing) for (fact, question), thing in product(FACTS, THINGS)]
        facts = [facts[place] for place in rng.permutation(len(facts))[:NUM_DOCUMENTS]]
        both = [
            (fact.format(name=name, thing=thing), question.format(name=name))
            for (fact, question, thing), name in zip(facts, names, strict=True)
        ]
        hidden, questions = map(list, zip(*both, strict=True))

    most = int(WORDS_PER_TOKEN * length)
    words = list(islice((word for sentence in cycle(sentences) for word in sentence.split()), most))
    # Only between sentences, where there are some.
    ends = [0, *(place for place, word in enumerate(words, start=1) if word[-1] in ".!?")]
    documents = []
    for sentence in hidden:
        kept = most - len(sentence.split())
        places = [end for end in ends if end <= kept]
        place = places[rng.integers(len(places))] if len(places) > 1 else int(rng.integers(kept + 1))
        documents.append(" ".join([*words[:place], sentence, *words[place:kept]]))
    wanted = rng.permutation(NUM_DOCUMENTS)[:NUM_QUERIES].tolist()
    queries = {
        "query_id": [f"q{row}" for row in wanted],
        "query": [questions[row] for row in wanted],
        "documents": [[row] for row in wanted],
        "labels": [[1] for _ in wanted],
    }
    return make_rankings(queries, {"doc_id": [f"d{row}" for row in range(NUM_DOCUMENTS)], "text": documents})
