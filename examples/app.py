"""
A web page to try a model, with three tabs: compare texts, search a small corpus, and see the rows that linear
attention makes of a long text. With a teacher, its scores and times stand beside the student's.

    pip install "hf-dse[app,demo,st]"
    python examples/app.py
    python examples/app.py --model student/model --teacher teacher --corpus texts.txt

Without a model it converts all-MiniLM-L6-v2. The corpus is a .txt file with a text per line, or a folder, whose .txt
and .md files are searched by passages, shown with file and line; by default the 2,396 embedded sentences. Ready at
http://127.0.0.1:7860 in about a minute on 2 CPU cores. app_pictures.py draws the results.

The page answers one question at a time, of limited length, and others wait. Texts of users are neither kept nor
logged, and Gradio's services beyond the page, such as uploads, are refused.
"""

import argparse
import html
import json
import os
import re
import threading
import time
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path


# Disable the usage statistics of Gradio.
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")

try:
    import gradio as gr
except ImportError as error:
    raise ImportError("This example needs gradio, which is not installed: `pip install hf-dse[app]`.") from error
import numpy as np
import torch
from app_pictures import (
    CSS,
    bands,
    bars,
    duration,
    heading,
    paragraph,
    passage,
    result,
    rows_of,
    side_by_side,
    table,
    tokens_of,
)
from datasets import Dataset
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from transformers import AutoTokenizer

from hf_dse import (
    DataArguments,
    Index,
    convert_encoder,
    default_encoder,
    load_corpus,
    load_pairs,
    load_reranker,
    make_queries,
    report,
    to_sentence_transformer,
    with_own_attention,
)
from hf_dse.modeling.modeling_dse import find_attentions


MAX_CHARACTERS = 20_000
# A query is read with each of several texts.
MAX_QUERY = 5_000
MAX_CANDIDATES = 20
MAX_OWN_TEXTS = 200
MAX_FOUND = 10
MAX_TEXTS = 100_000
# Tokens of a passage in a search
CHUNK_SIZE = 128
# Tokens of the model that is converted here
DEFAULT_LENGTH = 2048
MAX_WAITING = 100
# The requests of a page; at most in UTF-8 with every character escaped.
POSTS = re.compile(r"/gradio_api/(queue/join|cancel|reset)/?")
MAX_BYTES = 2 * 6 * MAX_CHARACTERS + 10_000
# Gradio would read files and other addresses, or write a user's text to a file.
REFUSED = re.compile(r"/gradio_api/(file|proxy|deep_link|custom_component)")

SAYS = {
    "Compare": "How alike are two texts? Enter one, or a query, and below it one or more others; see the scores of "
    "the student and of its teacher, and the time of each. Or click an example.",
    "Search": f"Which texts fit a query? The student finds the {MAX_FOUND} best; with a teacher, its order of the "
    "same texts stands beside. A long text has a vector for each of its chunks: the best counts. Of it, the sentence "
    "whose embedding is closest to the query comes first, and the rest unfolds. Enter a query, or click an example, "
    "such as a sentence of the texts.",
    "Long text": "How does a long text stay cheap? Softmax attention compares each of n tokens with all n. Linear "
    "attention compares it with k rows that stand for the text. Enter a text, or click an example, to see the tokens "
    "that share a row. A short text gains nothing: the times below tell which attention is faster.",
}
# The examples of each tab: the text of a button, and the texts that it enters.
PAIRS = {
    "A paraphrase": ["A plane is taking off.", "An aircraft leaves the runway."],
    "A question, five answers": [
        "How can I fall asleep faster?",
        "Keep your bedroom dark and cool, and put the phone away an hour before bed.\n"
        "A cup of coffee in the evening keeps many people awake.\n"
        "The hotel has quiet rooms with comfortable beds.\n"
        "Cats sleep for up to sixteen hours a day.\n"
        "The train to the coast leaves at nine.",
    ],
    "Same words, another meaning": [
        "The ferry was cancelled because of the storm.",
        "The storm was cancelled because of the ferry.\nThe boat does not sail in this weather.",
    ],
}
OWN_TEXTS = {
    "In texts of your own": [
        "Can I send it back?",
        "Returns are free within 30 days of delivery.\nWe ship on weekdays before noon.\n"
        "Pay by card, transfer or invoice.\nA damaged parcel is replaced at once.\n"
        "Refunds reach your account in five days.\nOur shop in the old town is open until six.",
    ],
}
# Characters of the corpus
LENGTHS = {"A page": 2_500, "A long text": MAX_CHARACTERS, "A short text": 200}


class OnlyThePage:
    """Lets through to Gradio what the page asks for."""

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        answer = self.app
        if scope["type"] == "http":
            size = dict(scope["headers"]).get(b"content-length", b"")
            is_small = size.isdigit() and int(size) <= MAX_BYTES
            is_post = scope["method"] not in ("GET", "HEAD")
            if REFUSED.match(scope["path"]) or (is_post and not POSTS.fullmatch(scope["path"])):
                answer = PlainTextResponse("This page takes no files and reads none.", 403)
            elif is_post and not is_small:
                answer = PlainTextResponse(f"At most {MAX_BYTES} bytes.", 413)
        await answer(scope, receive, send)


def measure(*calls):
    """
    The results of calls, and the time of each in seconds: after a warm-up, the median of a few, unless they are slow.
    They take turns, so that another program on the machine slows them alike.
    """
    times = []
    while not times or (len(times) < 6 and np.sum(times) < 0.5 * len(calls)):
        results, seconds = [], []
        for call in calls:
            started = time.perf_counter()
            results.append(call())
            seconds.append(time.perf_counter() - started)
        times.append(seconds)
    return results, np.median(times[1:] or times, axis=0).tolist()


def read_lines(text, most):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) > most:
        raise ValueError(f"These are {len(lines):,} lines, and this page takes {most}.")
    return lines


def example_queries(texts, most=2):
    """Short sentences of texts drawn at random, of prose where there is any."""
    corpus, found = Dataset.from_dict({"doc_id": list(map(str, range(len(texts)))), "text": texts}), texts
    # An error where no document has a sentence beside others.
    with suppress(ValueError):
        found = make_queries(corpus, "first_sentences").queries["query"][:]
    rows = np.random.default_rng(42).permutation(len(found))
    sentences = (" ".join(found[row].split()).strip("\"'“”") for row in rows)
    return list(islice((sentence for sentence in sentences if len(sentence) <= 80), most))


def split_sentences(text):
    return re.split(r"(?<=[.!?])\s+|\n\s*\n\s*", text.strip())


def compare_times(num_tokens, linear, softmax):
    ratio = softmax / linear
    if ratio > 1.1:
        return f"For these {num_tokens:,} tokens this model is {ratio:.1f} times as fast as with softmax attention."
    faster = f"{1 / ratio:.1f} times as fast" if ratio < 0.9 else "as fast"
    return f"For these {num_tokens:,} tokens softmax attention is {faster}: linear attention gains with longer texts."


class Demo:
    """
    A `SentenceTransformer`, an optional teacher (a `CrossEncoder`) and a corpus, whose texts may be `files` with these
    names; each tab is a method.
    """

    def __init__(self, model, teacher, texts, files=None):
        self.model, self.teacher, self.texts, self.files = model, teacher, texts, files
        self.encoder, self.tokenizer = model.transformers_model.base_model, model.tokenizer
        self.max_length = model.max_seq_length
        self.measure = "dot product" if model.similarity_fn_name == "dot" else "cosine"
        # Neither the model nor the tokenizer can be used by two threads at once.
        self.lock = threading.Lock()
        self.index, _ = self.embed(texts)
        self.linear, self.softmax = (
            to_sentence_transformer(encoder, self.tokenizer)
            for encoder in (self.encoder, with_own_attention(self.encoder))
        )

    def embed(self, texts):
        """An index of texts, and the seconds to embed them."""
        index, started = Index(self.model, texts, chunk_size=CHUNK_SIZE, show_progress=False), time.perf_counter()
        # Made when they are first needed.
        _ = index.vectors
        return index, time.perf_counter() - started

    def find_sentences(self, query, passages):
        """Finds the sentence of each passage whose embedding is the closest to that of the query."""
        parts = list(map(split_sentences, passages))
        sentences = [sentence for part in parts for sentence in part]
        groups = [row for row, part in enumerate(parts) for _ in part]
        (hits,) = Index(self.model, sentences, groups=groups, show_progress=False).search([query], MAX_FOUND)
        best = {groups[hit["row"]]: hit["text"] for hit in hits}
        return [best[row] for row in range(len(passages))]

    def answer(self, method, *inputs):
        try:
            for text in inputs:
                if isinstance(text, str):
                    # A ValueError for lone surrogates.
                    text.encode()
                    if len(text) > MAX_CHARACTERS:
                        raise ValueError(f"A text can have {MAX_CHARACTERS:,} characters.")
            with self.lock:
                return result(*method(*inputs))
        except ValueError as error:
            # Gradio would log it, with the text of the user.
            raise gr.Error(html.escape(str(error), quote=False), print_exception=False) from None

    def cut_note(self, *texts):
        lengths = [len(ids) for ids in self.tokenizer(list(texts), verbose=False)["input_ids"]]
        cut = [f"A text of {n:,} tokens was truncated to {self.max_length:,}." for n in lengths if n > self.max_length]
        return "".join(paragraph(note, "warning") for note in cut)

    def ask_teacher(self, query, texts):
        """The teacher's score of the query with each text; of two logits, how much more relevant than not."""
        pairs = [(query, text) for text in texts]
        logits = self.teacher.predict(pairs, activation_fn=torch.nn.Identity(), show_progress_bar=False)
        logits = logits.reshape(len(texts), -1)
        return (logits[:, -1] - (logits[:, 0] if logits.shape[1] == 2 else 0)).tolist()

    def teacher_note(self):
        if self.teacher is not None:
            return ""
        return paragraph(
            "There is no teacher. To see its scores and times, start the app with --teacher and a folder "
            "or a model of the Hub."
        )

    def check_query(self, query, num_texts):
        if num_texts > 1 and len(query) > MAX_QUERY:
            raise ValueError(f"A query for several texts can have {MAX_QUERY:,} characters.")

    # The tabs

    def compare(self, query, lines):
        texts = read_lines(lines, MAX_CANDIDATES)
        if not (query.strip() and texts):
            return [paragraph("Enter a text, and at least one other to compare it with.")]
        self.check_query(query, len(texts))
        embed = partial(self.model.encode, show_progress_bar=False)
        calls = {"Student, all texts new": lambda: embed([query, *texts])}
        # With the texts embedded before, only the query is left to embed.
        calls["Student, texts embedded before"] = lambda: embed([query])
        if self.teacher is not None:
            calls["Teacher"] = lambda: self.ask_teacher(query, texts)
        (vectors, _, *scores), times = measure(*calls.values())
        similarities = self.model.similarity(vectors[:1], vectors[1:])[0].tolist()
        header, columns = ["Text", f"Student: {self.measure}"], [texts, [f"{value:.3f}" for value in similarities]]
        meaning = (
            "A cosine is 1 for texts that mean the same to the student, and about 0 for unrelated ones. The student "
        )
        meaning += "hardly sees the order of words: the same words in another order have a high score."
        costs = []
        if scores:
            header.append("Teacher: score")
            columns.append([f"{score:.3f}" for score in scores[0]])
            meaning += " The teacher's score has a scale of its own: compare the order, not the numbers."
            rows = [
                [f"{n:,}", *(duration(n * seconds / len(texts)) for seconds in (times[0], times[2]))]
                for n in (10, 1_000, 100_000)
            ]
            costs = [
                heading("Time for N texts like these, computed from the times above"),
                table(["N", "Student: embed them once", "Teacher: for each query"], rows),
            ]
        return [
            heading("Scores"),
            table(header, list(zip(*columns, strict=True))),
            paragraph(meaning),
            self.cut_note(query, *texts),
            self.teacher_note(),
            heading("Time"),
            bars([(name, seconds, duration(seconds)) for name, seconds in zip(calls, times, strict=True)]),
            paragraph(
                "Measured now on this machine. For one pair the student need not be faster, because it reads the same "
                "words. It gains with many texts: they are embedded once, and then a query costs one text to embed, "
                "while a cross-encoder reads the query with every text."
            ),
            *costs,
        ]

    def search(self, query, lines):
        if not query.strip():
            return [paragraph("Enter something to search for.")]
        self.check_query(query, MAX_FOUND)
        own, index, once = read_lines(lines, MAX_OWN_TEXTS), self.index, ""
        if own:
            index, seconds = self.embed(own)
            once = f" To embed them took {duration(seconds)}, once for all queries."
        texts = index.texts
        ((hits,),), (seconds,) = measure(lambda: index.search([query], MAX_FOUND))
        found, scores = [hit["text"].strip() for hit in hits], [hit["score"] for hit in hits]
        sentences, places, kind = self.find_sentences(query, found), [""] * len(hits), "texts"
        if self.files and not own:
            kind = "files"
            for rank, (hit, sentence) in enumerate(zip(hits, sentences, strict=True)):
                line = 1 + texts[hit["row"]].count("\n", 0, hit["start"] + hit["text"].index(sentence))
                places[rank] = f"{self.files[hit['row']]}:{line}"
        parts = f", cut into {len(index.passages):,} chunks," if len(index.passages) > len(texts) else ""
        told = f"The student searched {len(texts):,} {kind}{parts} in {duration(seconds)}.{once}"
        times, order = {f"Student, all {len(texts):,} {kind}": seconds}, None
        if self.teacher is not None:
            (order,), (seconds,) = measure(lambda: self.ask_teacher(query, found))
            told += (
                f" The teacher read the {len(found)} best of them in {duration(seconds)} and put them in its own "
                "order: ▲ and ▼ tell how many places a text moved."
            )
            times[f"Teacher, {len(found)} texts"] = seconds
            if len(texts) > len(found):
                times[f"The same, all {len(texts):,} (estimated)"] = seconds * len(texts) / len(found)
        return [
            paragraph(told),
            side_by_side(list(map(passage, found, sentences, places)), scores, order, self.measure),
            self.cut_note(query),
            self.teacher_note(),
            heading("Time of a query"),
            bars([(name, seconds, duration(seconds)) for name, seconds in times.items()]),
        ]

    def long_text(self, text, layer):
        if not text.strip():
            return [paragraph("Enter a text.")]
        pieces = tokens_of(self.tokenizer, text, self.max_length)
        attention = find_attentions(self.encoder.encoder)[int(layer) - 1].linformer_layer
        rows = rows_of(attention, len(pieces), self.encoder.config.linformer_projection == "learned")
        options = {"normalize_embeddings": True, "show_progress_bar": False}
        (vector, exact), (linear_time, softmax_time) = measure(
            lambda: self.linear.encode(text, **options), lambda: self.softmax.encode(text, **options)
        )
        counts = {"This layer": len(pieces) * rows.compared, "Softmax attention": len(pieces) ** 2}
        times = {"This model": linear_time, "The same with softmax attention": softmax_time}
        return [
            paragraph(rows.note),
            bands(pieces, rows),
            self.cut_note(text),
            heading("Comparisons of a head in this layer"),
            bars([(name, count, f"{count:,}") for name, count in counts.items()]),
            heading("Time to embed this text"),
            bars([(name, seconds, duration(seconds)) for name, seconds in times.items()]),
            paragraph(compare_times(len(pieces), linear_time, softmax_time)),
            paragraph(
                f"The embedding has a cosine of {vector @ exact:.3f} with the embedding that the same weights give "
                "with softmax attention; 1.000 is the same. A text that fits in k rows loses nothing."
            ),
        ]

    # The page

    def describe(self):
        config, k = self.encoder.config, sorted(set(self.encoder.config.projected_lengths))
        size = f"{config.num_hidden_layers} layers, embeddings of {config.embedding_size} dimensions"
        linear = any("linear" in kind for kind in config.layer_types)
        rows = f", attention to k = {', '.join(map(str, k))} rows ({config.linformer_projection})" if linear else ""
        beside = " Beside it: its teacher." if self.teacher else ""
        return f"The student: {size}{rows}, {self.max_length:,} tokens at most.{beside} Searched: {self.index.unit}."

    def tab(self, name, method, inputs, examples):
        """A tab: its purpose, its inputs, examples that fill them and run, and the result of the first."""
        run = partial(self.answer, method)
        options = {"api_visibility": "private", "concurrency_id": "model", "show_progress": "minimal"}
        with gr.Tab(name):
            gr.Markdown(SAYS[name])
            with gr.Row():
                fills = [gr.Button(label, size="md", min_width=140) for label in examples]
            first = next(iter(examples.values()))
            for field, value in zip(inputs, first, strict=True):
                field.value = value
                field.render()
            submit = gr.Button("Show" if name == "Long text" else name, variant="primary")
            # A fuller picture than an empty page, and the first call, which is slow, is over.
            output = gr.HTML(run(*first))
        fields = [field.submit if isinstance(field, gr.Textbox) else field.release for field in inputs]
        gr.on([submit.click, *fields], run, inputs, output, api_name=name.lower().replace(" ", "_"), **options)
        for fill, values in zip(fills, examples.values(), strict=True):
            fill.click(None, None, inputs, js=f"() => {json.dumps(values)}", api_visibility="private").then(
                run, inputs, output, **options
            )

    def page(self):
        # One line, so that Enter submits; longer texts wrap.
        line = {"lines": 1, "max_lines": 8, "max_length": MAX_CHARACTERS, "render": False}
        lines = {**line, "lines": 5, "max_lines": 12}
        others = gr.Textbox(label=f"Compared with these texts, one per line, {MAX_CANDIDATES} at most", **lines)
        here = f"Empty: the {len(self.texts):,} {'files' if self.files else 'texts'} of this page"
        own = f"In your own texts, one per line, {MAX_OWN_TEXTS} at most"
        own = gr.Textbox(label=own, placeholder=here, **lines)
        layer = gr.Slider(1, self.encoder.config.num_hidden_layers, 1, step=1, label="Layer", render=False)
        searches = {query: [query, ""] for query in example_queries(self.texts)} | OWN_TEXTS
        text = " ".join(self.texts[:1000])
        long_texts = {name: [text[:n].rsplit(" ", 1)[0], 1] for name, n in LENGTHS.items()}
        with gr.Blocks(title="hf-dse") as page:
            gr.Markdown("# A student and its cross-encoder")
            gr.Markdown(self.describe())
            self.tab("Compare", self.compare, [gr.Textbox(label="Text or query", **line), others], PAIRS)
            self.tab("Search", self.search, [gr.Textbox(label="Search for", **line), own], searches)
            self.tab("Long text", self.long_text, [gr.Textbox(label="Text", **line), layer], long_texts)
        return page.queue(max_size=MAX_WAITING)

    def launch(self, **options):
        return self.page().launch(
            app_kwargs={"middleware": [Middleware(OnlyThePage)]},
            theme=gr.themes.Default(primary_hue="blue", font=["system-ui", "sans-serif"]),
            css=CSS,
            footer_links=["settings"],
            # Texts of users do not stay, also not in their browsers.
            run_history=False,
            enable_monitoring=False,
            **options,
        )


def load_model(name):
    if name is not None:
        return to_sentence_transformer(name)
    options = {"linformer_length": 64, "linformer_projection": "strided", "max_position_embeddings": DEFAULT_LENGTH}
    tokenizer = AutoTokenizer.from_pretrained(default_encoder(), model_max_length=DEFAULT_LENGTH)
    return to_sentence_transformer(convert_encoder(default_encoder(), **options), tokenizer)


def main():
    parser = argparse.ArgumentParser(description="A web page to try a model.")
    parser.add_argument("--model", help="DSE model. Default: all-MiniLM-L6-v2, converted.")
    parser.add_argument("--teacher", help="Cross-encoder to compare with.")
    parser.add_argument(
        "--corpus",
        help="Texts to search: a .txt file with one per line, or a folder of .txt and .md files, also in folders "
        "inside. Files are cut into passages; what is found has the name of its file and a line. Default: the "
        "embedded sentences.",
    )
    parser.add_argument("--port", type=int, default=7860)
    args = parser.parse_args()
    model = load_model(args.model)
    if model.transformers_model.config.model_type != "dse":
        raise ValueError(f"{args.model} is not a DSE model: convert it with `hf-dse convert`.")
    teacher, files = None, None
    if args.teacher is not None:
        teacher = load_reranker(args.teacher, device=model.device)
    if args.corpus is None:
        pairs = load_pairs(DataArguments(dataset_name="embedded"))
        texts = [text for split in pairs.values() for name in ("sentence1", "sentence2") for text in split[name]]
    else:
        print(report(DataArguments(corpus_file=args.corpus, chunk_size=CHUNK_SIZE)))
        corpus = load_corpus(args.corpus)
        texts, files = corpus["text"][:], corpus["doc_id"][:] if Path(args.corpus).is_dir() else None
    if len(texts) > MAX_TEXTS:
        raise ValueError(f"{args.corpus} has {len(texts):,} texts, and this page searches {MAX_TEXTS:,} at most.")
    Demo(model, teacher, texts, files).launch(server_port=args.port)


if __name__ == "__main__":
    main()
