"""
A web page to try a model: compare two texts, search a small corpus, see which tokens share a row of projected keys.
With a teacher, the texts that the model finds have the teacher's scores beside its own.

    pip install "hf-dse[app,demo]"
    python examples/app.py
    python examples/app.py --model_name_or_path student/model --teacher_name_or_path teacher --corpus texts.txt

Without a model it converts all-MiniLM-L6-v2. The corpus is a file that `hf-dse search` accepts, by default the
2,396 embedded sentences. Ready at http://127.0.0.1:7860 in less than a minute on 2 CPU cores.

It answers one question at a time, of limited length, and others wait. What users enter is neither kept nor logged, and
what Gradio has beyond the page, such as uploads, is refused.
"""

import argparse
import html
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
import torch
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from transformers import AutoTokenizer

from hf_dse import (
    DataArguments,
    ModelArguments,
    convert_encoder,
    default_encoder,
    encode,
    encode_document,
    encode_query,
    load_model,
    load_pairs,
    load_teacher,
    make_rankings,
    max_tokens,
    rank,
    read_texts,
    score_candidates,
)
from hf_dse.modeling.layout_dse import lay_out


MAX_CHARACTERS = 20_000
MAX_TEXTS = 100_000
MAX_WAITING = 100
# What a page sends, at most in UTF-8 with every character escaped.
POSTS = re.compile(r"/gradio_api/(queue/join|cancel|reset)/?")
MAX_BYTES = 2 * 6 * MAX_CHARACTERS + 10_000
# Gradio would read files and other addresses, or write what a user entered to a file.
REFUSED = re.compile(r"/gradio_api/(file|proxy|deep_link|custom_component)")


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


class Demo:
    """A model, an optional teacher and a corpus; each tab of the page is a method."""

    def __init__(self, model, tokenizer, teacher, texts):
        self.model, self.tokenizer, self.teacher, self.texts = model.eval(), tokenizer, teacher, texts
        self.max_length = stored_length(model, tokenizer)
        # Neither the model nor the tokenizer can be used by two threads at once.
        self.lock = threading.Lock()
        # Pairs are scored by the head, as by the teacher. One with several logits has no single score.
        has_score = model is not model.base_model and model.config.num_labels == 1
        self.head = model if has_score else None
        self.score_name = f"score of the {model.config.similarity} head" if has_score else "cosine"
        self.can_rerank = teacher is not None and teacher[0].config.num_labels in (1, 2)
        self.embeddings = encode_document(model, tokenizer, texts)
        if teacher is not None:
            self.ask_teacher("warm", "up")

    def answer(self, method, *inputs):
        if any(isinstance(text, str) and len(text) > MAX_CHARACTERS for text in inputs):
            raise gr.Error(f"A text can have {MAX_CHARACTERS:,} characters.", print_exception=False)
        with self.lock:
            return method(*inputs)

    def cut_note(self, *texts):
        lengths = [len(ids) for ids in self.tokenizer(list(texts), verbose=False)["input_ids"]]
        note = "\n\n**A text of {} tokens was truncated to {}.**"
        return "".join(note.format(length, self.max_length) for length in lengths if length > self.max_length)

    def ask_teacher(self, first, second):
        model, tokenizer = self.teacher
        limit = stored_length(*self.teacher)
        length = len(tokenizer(first, second, verbose=False)["input_ids"])
        batch = tokenizer(first, second, truncation=True, max_length=limit, return_tensors="pt")
        with torch.inference_mode():
            logits = ", ".join(f"{logit:.3f}" for logit in model(**batch).logits[0].tolist())
        return f"**{logits}**" + (f" (pair of {length} tokens truncated to {limit})" if length > limit else "")

    def compare(self, first, second):
        if not (first.strip() and second.strip()):
            return "Enter two texts to compare."
        started = time.perf_counter()
        vectors = encode(self.model, self.tokenizer, [first, second], show_progress=False)
        ((score,),), _ = rank(vectors[:1], vectors[1:], top_k=1, head=self.head, show_progress=False)
        took = 1000 * (time.perf_counter() - started)
        lines = [f"- this model: {self.score_name} **{score:.3f}**, {took:.1f} ms"]
        if self.teacher is not None:
            started = time.perf_counter()
            logits = self.ask_teacher(first, second)
            lines.append(f"- cross-encoder: logit {logits}, {1000 * (time.perf_counter() - started):.1f} ms")
        return "\n".join(lines) + self.cut_note(first, second)

    def search(self, query):
        if not query.strip():
            return "Enter something to search for.", ""
        started = time.perf_counter()
        vector = encode_query(self.model, self.tokenizer, [query], show_progress=False)
        (scores,), (rows,) = rank(vector, self.embeddings, top_k=5, show_progress=False)
        took = 1000 * (time.perf_counter() - started)
        note = f"{len(self.texts):,} texts searched in {took:.1f} ms, best cosine first."
        columns = {"cosine": [f"{score:.3f}" for score in scores]}
        if self.can_rerank:
            started = time.perf_counter()
            found = make_rankings(
                {"query": [query], "documents": [list(range(len(rows)))]}, {"text": [self.texts[row] for row in rows]}
            )
            model, tokenizer = self.teacher
            try:
                scored = score_candidates(model, found, processing_class=tokenizer, show_progress=False)
            except ValueError as error:
                # Such as a query that leaves no room for a text.
                note += f" The teacher has no scores: {html.escape(str(error))}"
            else:
                columns["teacher"] = [f"{logit:.3f}" for logit in scored.queries["teacher_logits"][0]]
                note += f" The teacher took {1000 * (time.perf_counter() - started):.1f} ms for these {len(rows)}."
        columns["text"] = [html.escape(self.texts[row]) for row in rows]
        lines = ["<td>" + "<td>".join(cells) for cells in zip(*columns.values(), strict=True)]
        return note + self.cut_note(query), "<table><tr><th>" + "<th>".join(columns) + "<tr>" + "<tr>".join(
            lines
        ) + "</table>"

    def show_rows(self, text, layer):
        if not text.strip():
            return "Enter a text.", []
        ids = self.tokenizer(text, truncation=True, max_length=self.max_length, verbose=False)["input_ids"]
        config = self.model.config
        num_rows, layer_type = config.projected_lengths[layer - 1], config.layer_types[layer - 1]
        kind, start = config.linformer_projection, config.linformer_start
        row_of = {}
        if layer_type == "chunked_attention":
            size = config.attention_chunk_size
            note = f"Layer {layer} attends in chunks of {size}: each token has a row in its own chunk."
        elif layer_type == "full_attention":
            note = f"Layer {layer} has softmax attention: each token has a row of its own."
        elif start == "random":
            note = f"Layer {layer} has a random E and F: each of its {num_rows} rows mixes all tokens."
        elif len(ids) <= num_rows:
            note = f"{len(ids)} tokens, {num_rows} rows: each token has a row of its own, so attention is exact."
        else:
            slots = lay_out(config, torch.zeros(1, len(ids), 1), None)[layer - 1].slots
            if start == "strided":
                row_of = {token: str(row) for row, token in enumerate(slots.selected[layer - 1, 0].tolist(), start=1)}
            else:
                for _, row, place, _ in slots.in_segment.nonzero().tolist():
                    row_of[int(slots.segments[0, row, place])] = str(row + 1)
            note = f"{len(ids)} tokens, {num_rows} rows (`{kind}`): "
            if start == "strided":
                note += "a row holds the token before its number; tokens without one have no row in this layer."
            else:
                note += f"a row holds the {start} of the tokens before its number."
            if kind in ("learned", "conv"):
                note += " This is the initialization of E and F, before training."
        tokens = self.tokenizer.convert_ids_to_tokens(ids)
        return note + self.cut_note(text), [(token, row_of.get(place)) for place, token in enumerate(tokens)]

    def page(self):
        # One line, so that Enter submits; longer texts wrap.
        text = {"lines": 1, "max_lines": 8, "max_length": MAX_CHARACTERS}
        options = {"flagging_mode": "never", "clear_btn": None, "api_visibility": "private"}
        first = gr.Textbox("A plane is taking off.", label="First text", **text)
        second = gr.Textbox("An aircraft leaves the runway.", label="Second text", **text)
        query = gr.Textbox("How can I sleep better?", label="Search for", **text)
        long_text = gr.Textbox(" ".join(self.texts[:10]), label="Text", **text)
        layer = gr.Slider(1, self.model.config.num_hidden_layers, 1, step=1, label="Layer")
        rows = gr.HighlightedText(label="Tokens and their rows", combine_adjacent=True, adjacent_separator=" ")
        tabs = {
            name: gr.Interface(
                partial(self.answer, method), inputs, outputs, api_name=name.lower(), submit_btn=button, **options
            )
            for name, method, inputs, outputs, button in (
                ("Compare", self.compare, [first, second], gr.Markdown(), "Compare"),
                ("Search", self.search, query, [gr.Markdown(), gr.HTML()], "Search"),
                ("Rows", self.show_rows, [long_text, layer], [gr.Markdown(), rows], "Show"),
            )
        }
        page = gr.TabbedInterface(list(tabs.values()), list(tabs), title="hf-dse")
        return page.queue(max_size=MAX_WAITING)

    def launch(self, **options):
        return self.page().launch(
            app_kwargs={"middleware": [Middleware(OnlyThePage)]},
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
    parser.add_argument("--port", type=int, default=7860)
    args = parser.parse_args()
    if args.model_name_or_path is None:
        model = convert_encoder(default_encoder(), linformer_length=64, linformer_projection="strided")
        tokenizer = AutoTokenizer.from_pretrained(default_encoder())
    else:
        model, tokenizer = load_model(ModelArguments(args.model_name_or_path))
    if model.config.model_type != "dse":
        raise ValueError(f"{args.model_name_or_path} is not a DSE model: convert it with `hf-dse convert`.")
    teacher = None if args.teacher_name_or_path is None else load_teacher(args.teacher_name_or_path)
    if args.corpus is None:
        pairs = load_pairs(DataArguments(dataset_name="embedded"))
        texts = [text for split in pairs.values() for name in ("sentence1", "sentence2") for text in split[name]]
    else:
        texts = read_texts(args.corpus, "text")["text"]
    if len(texts) > MAX_TEXTS:
        raise ValueError(f"{args.corpus} has {len(texts):,} texts, and this page searches {MAX_TEXTS:,} at most.")
    Demo(model, tokenizer, teacher, texts).launch(server_port=args.port)


if __name__ == "__main__":
    main()
