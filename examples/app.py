"""
A web page to try a model, with three tabs: compare texts, search a small corpus, and see what linear attention makes
of a long text. The student stands beside its teacher, in scores and in time; without a teacher, beside a cross-encoder
of the same size with random weights, of which only the time is shown.

    pip install "hf-dse[app,demo]"
    python examples/app.py
    python examples/app.py --model_name_or_path student/model --teacher_name_or_path teacher --corpus texts.txt

Without a model it converts all-MiniLM-L6-v2. The corpus is a file that `hf-dse search` accepts, by default the
2,396 embedded sentences. Ready at http://127.0.0.1:7860 in about a minute on 2 CPU cores. app_pictures.py draws
what it shows.

It answers one question at a time, of limited length, and others wait. What users enter is neither kept nor logged, and
what Gradio has beyond the page, such as uploads, is refused.
"""

import argparse
import copy
import html
import json
import os
import re
import threading
import time
from functools import partial


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
    result,
    rows_of,
    side_by_side,
    split_text,
    table,
)
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

from hf_dse import (
    DataArguments,
    DseModel,
    ModelArguments,
    convert_encoder,
    default_encoder,
    encode,
    encode_chunks,
    encode_query,
    load_model,
    load_pairs,
    load_reranker,
    max_tokens,
    rank,
    rank_groups,
    read_texts,
    score_texts,
)


MAX_CHARACTERS = 20_000
# A query is read with each of several texts.
MAX_QUERY = 5_000
MAX_CANDIDATES = 20
MAX_OWN_TEXTS = 200
MAX_FOUND = 10
MAX_TEXTS = 100_000
# Of the model that is converted here, which takes longer texts than its source.
DEFAULT_LENGTH = 2048
MAX_WAITING = 100
# What a page sends, at most in UTF-8 with every character escaped.
POSTS = re.compile(r"/gradio_api/(queue/join|cancel|reset)/?")
MAX_BYTES = 2 * 6 * MAX_CHARACTERS + 10_000
# Gradio would read files and other addresses, or write what a user entered to a file.
REFUSED = re.compile(r"/gradio_api/(file|proxy|deep_link|custom_component)")


# What each tab is for.
SAYS = {
    "Compare": "How alike are two texts? Enter one, or a query, and below it one or more others; see what the student "
    "and the cross-encoder say, and how long each takes. Or click an example.",
    "Search": f"Which texts fit a query? The student finds the {MAX_FOUND} best; with a teacher, its order of the "
    "same texts stands beside. A long text has a vector for each of its chunks: the best counts, and is shown. Enter "
    "a query, or click an example.",
    "Long text": "How does a long text stay cheap? Softmax attention compares each of n tokens with all n. Linear "
    "attention compares it with k rows that stand for the text. Enter a text, or click an example, to see which "
    "tokens share a row.",
}
# The examples of each tab: what a button says, and what it enters.
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
SEARCHES = {
    "How can I sleep better?": ["How can I sleep better?", ""],
    "What stars are made of": ["What are stars made of?", ""],
    "In texts of your own": [
        "Can I send it back?",
        "Returns are free within 30 days of delivery.\nWe ship on weekdays before noon.\n"
        "Pay by card, transfer or invoice.\nA damaged parcel is replaced at once.\n"
        "Refunds reach your account in five days.\nOur shop in the old town is open until six.",
    ],
}
# How many texts of the corpus make a long one.
LENGTHS = {"A page": 25, "A long text": 250, "A short text": 2}


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


def stored_length(model, tokenizer):
    """How many tokens are read, as by `encode`."""
    return min(tokenizer.model_max_length, max_tokens(model, tokenizer) or tokenizer.model_max_length)


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


class Demo:
    """A model, an optional teacher (a `Reranker`) and a corpus; each tab of the page is a method."""

    def __init__(self, model, tokenizer, teacher, texts, chunk_size=None):
        self.model, self.tokenizer, self.teacher, self.texts = model.eval(), tokenizer, teacher, texts
        self.max_length = stored_length(model, tokenizer)
        # Neither the model nor the tokenizer can be used by two threads at once.
        self.lock = threading.Lock()
        # Pairs are scored by the head, as by the teacher. One with several logits has no single score.
        has_score = model is not model.base_model and model.config.num_labels == 1
        self.head = model if has_score else None
        self.score_name = "score of its head" if has_score else "cosine"
        self.cross_encoder = teacher or self.same_size_cross_encoder()
        self.cross_name = "Cross-encoder (teacher)" if teacher else "Cross-encoder of the same size"
        self.can_rank = teacher is not None and teacher.num_labels in (1, 2)
        self.chunk_size = chunk_size
        self.corpus = self.embed(texts, show_progress=True)

    # Models beside the student

    def same_size_cross_encoder(self):
        """What a cross-encoder of the student's size costs: its weights are random, so its scores mean nothing."""
        names = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
        sizes = {name: getattr(self.model.config, name) for name in (*names, "max_position_embeddings")}
        model = BertForSequenceClassification(BertConfig(**sizes, num_labels=1)).eval().to(self.model.device)
        return load_reranker(model, self.tokenizer)

    def with_attention(self, **fields):
        """The same weights, not copied, with another k or type of attention."""
        config = copy.deepcopy(self.model.config)
        for name, value in fields.items():
            setattr(config, name, value)
        with torch.device("meta"):
            model = DseModel(config)
        model.load_state_dict(self.model.base_model.state_dict(), strict=False, assign=True)
        return model.eval()

    @property
    def free_k(self):
        """Whether k can be chosen: all layers have the same, and it is not the shape of a trained E and F."""
        config = self.model.config
        is_linear = set(config.layer_types) == {"linear_attention"}
        return is_linear and not config.is_projection_learned and len(set(config.projected_lengths)) == 1

    # What all tabs need

    def embed(self, texts, show_progress=False):
        """The vectors of the chunks of some texts, these chunks, and which text each is of."""
        options = {"chunk_size": self.chunk_size, "show_progress": show_progress}
        vectors, chunks = encode_chunks(self.model, self.tokenizer, texts, **options)
        groups = [row for row, parts in enumerate(chunks) for _ in parts]
        return vectors, [chunk.strip() for parts in chunks for chunk in parts], groups

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
            # Gradio would log it, with what the user entered.
            raise gr.Error(html.escape(str(error), quote=False), print_exception=False) from None

    def cut_note(self, *texts):
        lengths = [len(ids) for ids in self.tokenizer(list(texts), verbose=False)["input_ids"]]
        cut = [f"A text of {n:,} tokens was truncated to {self.max_length:,}." for n in lengths if n > self.max_length]
        return "".join(paragraph(note, "warning") for note in cut)

    def score(self, query, texts):
        """The cross-encoder's logits for the query with each text."""
        pairs = [(query, text) for text in texts]
        options = {"batch_size": 32, "max_length": self.cross_encoder.check_max_length(None), "show_progress": False}
        logits = score_texts(self.cross_encoder, list(dict.fromkeys(pairs)), description="", **options)
        return [logits[pair] for pair in pairs]

    def teacher_note(self, query, texts):
        if self.teacher is None:
            return paragraph(
                "There is no teacher. To see its scores, start the app with --teacher_name_or_path and a folder or a "
                "model of the Hub. The times are those of a cross-encoder of the student's size with random weights."
            )
        limit = self.teacher.check_max_length(None)
        if limit is None or max(self.teacher.lengths([(query, text) for text in texts])) <= limit:
            return ""
        return paragraph(f"The teacher reads {limit:,} tokens of a pair: longer ones were truncated.", "warning")

    def check_query(self, query, num_texts):
        if num_texts > 1 and len(query) > MAX_QUERY:
            raise ValueError(f"A query for several texts can have {MAX_QUERY:,} characters.")

    # The tabs

    def compare(self, query, lines):
        texts = read_lines(lines, MAX_CANDIDATES)
        if not (query.strip() and texts):
            return [paragraph("Enter a text, and at least one other to compare it with.")]
        self.check_query(query, len(texts))
        encode_texts = partial(encode, self.model, self.tokenizer, show_progress=False)
        vectors = encode_texts([query, *texts])
        options = {"top_k": len(texts), "head": self.head, "show_progress": False}
        (_, ((scores,), (places,)), _, logits), (all_new, stored, search, cross) = measure(
            lambda: encode_texts([query, *texts]),
            # With the texts embedded before, only the query is left to embed.
            lambda: rank(encode_texts([query]), vectors[1:], **options),
            lambda: rank(vectors[:1], self.corpus[0], show_progress=False),
            lambda: self.score(query, texts),
        )
        header = ["Text", f"Student: {self.score_name}"]
        columns = [texts, [f"{score:.3f}" for score in scores[places.argsort()]]]
        meaning = "A cosine is 1 for texts that mean the same to the student, and about 0 for unrelated ones."
        if self.head is not None:
            meaning = "The student's head puts its similarity on the scale that it was trained for."
        meaning += " It hardly sees the order of words: the same words in another order have a high score."
        if self.teacher is not None:
            header.append("Teacher: logit")
            columns.append([", ".join(f"{logit:.3f}" for logit in row) for row in logits])
            meaning += " The teacher's logit has a scale of its own: compare the order, not the numbers."
        times = {"Student, all texts new": all_new, "Student, texts embedded before": stored, self.cross_name: cross}
        costs = [
            [f"{n:,}", duration(n * all_new / (1 + len(texts))), duration(stored + n * search / len(self.corpus[0]))]
            + [duration(n * cross / len(texts))]
            for n in (10, 1_000, 100_000)
        ]
        return [
            heading("Scores"),
            table(header, list(zip(*columns, strict=True))),
            paragraph(meaning),
            self.cut_note(query, *texts),
            self.teacher_note(query, texts),
            heading("Time"),
            bars([(name, seconds, duration(seconds)) for name, seconds in times.items()]),
            paragraph(
                "Measured now on this machine: the median of a few calls after a warm-up. For one pair the student "
                "need not be faster, for it reads the same words. It gains with many texts: they are embedded once, "
                "and then a query costs one text to embed, while a cross-encoder reads the query with every text."
            ),
            heading("Time to rank N texts like these"),
            table(["N", "Student: embed them once", "Student: then a query", "Cross-encoder: a query"], costs),
            paragraph("Computed from the times above."),
        ]

    def search(self, query, lines):
        if not query.strip():
            return [paragraph("Enter something to search for.")]
        self.check_query(query, MAX_FOUND)
        own, corpus, once = read_lines(lines, MAX_OWN_TEXTS), self.corpus, ""
        if own:
            (corpus,), (seconds,) = measure(lambda: self.embed(own))
            once = f" To embed them took {duration(seconds)}, once for all queries."
        texts, (embeddings, chunks, groups) = own or self.texts, corpus
        similarity = "dot" if getattr(self.model.config, "similarity", None) == "dot" else "cosine"

        def find():
            vector = encode_query(self.model, self.tokenizer, [query], show_progress=False)
            options = {"top_k": MAX_FOUND, "similarity": similarity, "show_progress": False}
            return rank_groups(vector, embeddings, groups, **options)[0]

        scores, rows = zip(*find(), strict=True)
        found = [chunks[row] for row in rows]
        (_, logits), (search, cross) = measure(find, lambda: self.score(query, found))
        parts = f", cut into {len(chunks):,} chunks," if len(chunks) > len(texts) else ""
        told = f"The student searched {len(texts):,} texts{parts} in {duration(search)}.{once}"
        teacher = None
        if self.can_rank:
            # Of two logits the second is that of "relevant".
            teacher = [row[-1] - (row[0] if len(row) == 2 else 0) for row in logits]
            told += (
                f" The teacher read the {len(found)} best of them in {duration(cross)} and put them in its own order: "
                "▲ and ▼ tell how many places a text moved."
            )
        times = {f"Student, all {len(texts):,} texts": search, f"{self.cross_name}, {len(found)} texts": cross}
        if len(texts) > len(found):
            times[f"The same, all {len(texts):,} (estimated)"] = cross * len(texts) / len(found)
        return [
            paragraph(told),
            side_by_side(found, scores, teacher, "cosine" if similarity == "cosine" else "dot product"),
            self.cut_note(query),
            self.teacher_note(query, found),
            heading("Time of a query"),
            bars([(name, seconds, duration(seconds)) for name, seconds in times.items()]),
        ]

    def long_text(self, text, layer, k=None):
        if not text.strip():
            return [paragraph("Enter a text.")]
        model = self.model if k is None else self.with_attention(linformer_length=int(k))
        softmax = self.with_attention(layer_types=["full_attention"] * model.config.num_hidden_layers, funnel_layers=0)
        pieces = split_text(self.tokenizer, text, self.max_length)
        rows = rows_of(model.config, int(layer), len(pieces))
        options = {"normalize": True, "show_progress": False}
        ((vector,), (exact,)), (linear_time, softmax_time) = measure(
            lambda: encode(model, self.tokenizer, [text], **options),
            lambda: encode(softmax, self.tokenizer, [text], **options),
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
            paragraph(
                f"The embedding has a cosine of {vector @ exact:.3f} with the one that the same weights give with "
                "softmax attention; 1.000 is the same. A text that fits in k rows loses nothing."
            ),
        ]

    # The page

    def describe(self):
        config, k = self.model.config, sorted(set(self.model.config.projected_lengths))
        size = f"{config.num_hidden_layers} layers, embeddings of {config.projection_dim} numbers"
        linear = "linear_attention" in config.layer_types
        rows = f", attention to k = {', '.join(map(str, k))} rows ({config.linformer_projection})" if linear else ""
        beside = "its teacher" if self.teacher else "a cross-encoder of the same size, for its time"
        return f"The student: {size}{rows}, {self.max_length:,} tokens at most. Beside it: {beside}."

    def tab(self, name, method, inputs, examples):
        """A tab: what it is for, its inputs, examples that fill them and run, and the result of the first."""
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
        config = self.model.config
        layer = gr.Slider(1, config.num_hidden_layers, 1, step=1, label="Layer", render=False)
        num_rows = config.projected_lengths[0]
        effect = "A larger k is nearer to softmax attention, and slower."
        k = gr.Slider(3, max(256, num_rows), num_rows, step=1, label="k: rows of a layer", info=effect, render=False)
        settings = {layer: 1, k: num_rows} if self.free_k else {layer: 1}
        with gr.Blocks(title="hf-dse") as page:
            gr.Markdown("# A student and its cross-encoder")
            gr.Markdown(self.describe())
            self.tab(
                "Compare",
                self.compare,
                [
                    gr.Textbox(label="Text or query", **line),
                    gr.Textbox(label=f"Compared with these texts, one per line, {MAX_CANDIDATES} at most", **lines),
                ],
                PAIRS,
            )
            here = f"Empty: the {len(self.texts):,} texts of this page"
            self.tab(
                "Search",
                self.search,
                [
                    gr.Textbox(label="Search for", **line),
                    gr.Textbox(
                        label=f"In your own texts, one per line, {MAX_OWN_TEXTS} at most", placeholder=here, **lines
                    ),
                ],
                SEARCHES,
            )
            self.tab(
                "Long text",
                self.long_text,
                [gr.Textbox(label="Text", **line), *settings],
                {name: [" ".join(self.texts[:n])[:MAX_CHARACTERS], *settings.values()] for name, n in LENGTHS.items()},
            )
        return page.queue(max_size=MAX_WAITING)

    def launch(self, **options):
        return self.page().launch(
            app_kwargs={"middleware": [Middleware(OnlyThePage)]},
            theme=gr.themes.Default(primary_hue="blue", font=["system-ui", "sans-serif"]),
            css=CSS,
            footer_links=["settings"],
            # Nothing of what users enter stays, also not in their browsers.
            run_history=False,
            enable_monitoring=False,
            **options,
        )


def main():
    parser = argparse.ArgumentParser(description="A web page to try a model.")
    parser.add_argument("--model_name_or_path", help="DSE model. Default: all-MiniLM-L6-v2, converted.")
    parser.add_argument("--teacher_name_or_path", help="Cross-encoder to compare with.")
    parser.add_argument("--corpus", help="Texts to search: .txt, one per line, or a table with a column `text`.")
    parser.add_argument(
        "--chunk_size",
        type=int,
        help="Tokens of a chunk in a search. Default: 128, or fewer if the model reads fewer.",
    )
    parser.add_argument("--port", type=int, default=7860)
    args = parser.parse_args()
    if args.model_name_or_path is None:
        options = {"linformer_length": 64, "linformer_projection": "strided"}
        model = convert_encoder(default_encoder(), max_position_embeddings=DEFAULT_LENGTH, **options)
        tokenizer = AutoTokenizer.from_pretrained(default_encoder(), model_max_length=DEFAULT_LENGTH)
    else:
        model, tokenizer = load_model(ModelArguments(args.model_name_or_path))
    if model.config.model_type != "dse":
        raise ValueError(f"{args.model_name_or_path} is not a DSE model: convert it with `hf-dse convert`.")
    teacher = None
    if args.teacher_name_or_path is not None:
        teacher = load_reranker(args.teacher_name_or_path, device=model.device)
    if args.corpus is None:
        pairs = load_pairs(DataArguments(dataset_name="embedded"))
        texts = [text for split in pairs.values() for name in ("sentence1", "sentence2") for text in split[name]]
    else:
        texts = read_texts(args.corpus, "text")["text"]
    if len(texts) > MAX_TEXTS:
        raise ValueError(f"{args.corpus} has {len(texts):,} texts, and this page searches {MAX_TEXTS:,} at most.")
    Demo(model, tokenizer, teacher, texts, args.chunk_size).launch(server_port=args.port)


if __name__ == "__main__":
    main()
