"""
The results of examples/app.py as HTML: bars of time, tables, two rankings side by side, and the rows of a text. All
text is escaped. The colours are those of the page, light or dark.
"""

from collections.abc import Sequence
from html import escape
from itertools import groupby
from typing import NamedTuple

import torch
from transformers import PreTrainedTokenizerBase

from hf_dse.modeling.attention_dse import LayerAttention, LayerInputs, cut_slots, stride_slots


CSS = """
.gradio-container { --color-accent: #1d4ed8; --pale: #52525b; max-width: 1100px !important;
  margin: 0 auto !important; }
.dark .gradio-container, .gradio-container.dark { --color-accent: #60a5fa; --pale: #b4b4bd; }
.gradio-container { --body-text-color-subdued: var(--pale); --block-info-text-color: var(--pale);
  --block-info-text-size: 14px; }
.gradio-container :focus-visible { outline: 3px solid var(--color-accent) !important; outline-offset: 2px; }
.gradio-container ::placeholder { color: var(--pale) !important; }
.gradio-container :is(.min_value, .max_value, footer button) { color: var(--pale) !important; }
.gradio-container button.primary { background: #1d4ed8; color: white; }
.gradio-container .html-container { padding: 0; }
.dse { --band-a: #dbeafe; --band-b: #fde9b8; --up: #15803d; --down: #b91c1c; font-size: 16px; line-height: 1.5;
  overflow-wrap: anywhere; }
.dark .dse { --band-a: #1e3f73; --band-b: #5a430c; --up: #4ade80; --down: #fca5a5; }
.dse h3 { margin: 1.2em 0 0.4em; font-size: 18px; }
.dse p, .dse ol { margin: 0.4em 0; }
.dse .warning { padding-left: 0.6em; border-left: 4px solid var(--down); }
.dse .bar { display: grid; grid-template-columns: 17em 1fr 6em; gap: 0.2em 0.8em; align-items: center;
  margin: 0.4em 0; }
.dse .track { height: 1.1em; border-radius: 4px; background: var(--border-color-primary); }
.dse .fill { height: 100%; min-width: 3px; border-radius: 4px; background: var(--color-accent); }
.dse .value, .dse .number { text-align: right; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
.dse table { width: 100%; margin: 0.4em 0; border-collapse: collapse; }
.dse :is(table, thead, tbody, tr) { border: 0 !important; }
.dse th, .dse td { padding: 0.35em 0.6em; text-align: left; vertical-align: top; border: 0 !important;
  border-bottom: 1px solid var(--border-color-primary) !important; }
.dse th:first-child, .dse td:first-child { width: 50%; min-width: 5em; }
.dse .lists { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 300px), 1fr)); gap: 0 2em; }
.dse ol { padding: 0; list-style: none; }
.dse li { display: grid; grid-template-columns: 1.4em 1fr auto; gap: 0.6em; margin: 0; padding: 0.35em 0;
  border-bottom: 1px solid var(--border-color-primary); }
.dse .place { display: block; font: 13px ui-monospace, monospace; color: var(--body-text-color-subdued); }
.dse summary { cursor: pointer; font-size: 14px; color: var(--body-text-color-subdued); }
.dse details { font-size: 14px; white-space: pre-wrap; }
.dse .moved { display: inline-block; width: 2.6em; font-weight: 600; }
.dse .up { color: var(--up); }
.dse .down { color: var(--down); }
.dse .tokens { max-height: 24em; overflow-y: auto; padding: 0.6em; line-height: 2; white-space: pre-wrap;
  border: 1px solid var(--border-color-primary); border-radius: 6px; }
.dse .legend { line-height: 2; }
.dse .a, .dse .b { padding: 0.15em 0; border-radius: 3px; }
.dse .a { background: var(--band-a); }
.dse .b { background: var(--band-b); }
.dse sup { margin: 0 0.25em; font-size: 12px; line-height: 1; user-select: none; }
.dse .kept { font-weight: 700; text-decoration: underline 2px; text-underline-offset: 3px; }
@media (max-width: 640px) {
  .dse .bar { grid-template-columns: 1fr auto; }
  .dse .track { grid-column: 1 / -1; grid-row: 2; }
  .dse th, .dse td { padding: 0.3em 0.25em; font-size: 15px; }
  .dse th { font-size: 13px; }
}
"""


def duration(seconds: float) -> str:
    """A time in a unit that suits it."""
    if seconds < 0.01:
        return f"{1000 * seconds:.1f} ms"
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    for unit, size in (("s", 1), ("min", 60), ("h", 3600)):
        if seconds < 100 * size or unit == "h":
            break
    return f"{seconds / size:.{1 if seconds < 10 * size else 0}f} {unit}"


def result(*parts: str) -> str:
    return f"<div class='dse'>{''.join(parts)}</div>"


def heading(text: str) -> str:
    return f"<h3>{escape(text)}</h3>"


def paragraph(text: str, kind: str = "") -> str:
    return f"<p class='{kind}'>{escape(text)}</p>" if text else ""


def bars(rows: Sequence[tuple[str, float, str]]) -> str:
    """A horizontal bar for each (label, value, value in words)."""
    longest = max(value for _, value, _ in rows) or 1
    return "".join(
        f"<div class='bar'><span>{escape(label)}</span><div class='track'><div class='fill' "
        f"style='width: {100 * value / longest:.1f}%'></div></div><span class='value'>{escape(words)}</span></div>"
        for label, value, words in rows
    )


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The first column is text, the others are numbers."""

    def line(tag: str, cells: Sequence[str]) -> str:
        first, *numbers = map(escape, cells)
        return f"<{tag}>{first}</{tag}>" + "".join(f"<{tag} class='number'>{number}</{tag}>" for number in numbers)

    body = "".join(f"<tr>{line('td', row)}</tr>" for row in rows)
    return f"<table><thead><tr>{line('th', header)}</tr></thead><tbody>{body}</tbody></table>"


def passage(text: str, sentence: str, place: str = "") -> str:
    """A passage as its best sentence, under its place in a file; the whole passage is folded."""
    shown = f"<span class='place'>{escape(place)}</span>" if place else ""
    shown += escape(sentence)
    if sentence != text:
        shown += f"<details><summary>The passage</summary>{escape(text)}</details>"
    return shown


def ranking(name: str, places: Sequence[int], texts: Sequence[str], scores: Sequence[float], compared: bool) -> str:
    """A list of texts, which are HTML, best first; `places` has the place of each in another ranking, or its own."""
    items = []
    for place, (before, text, score) in enumerate(zip(places, texts, scores, strict=True)):
        moved = before - place
        kind, arrow = ("up", "▲") if moved > 0 else ("down", "▼")
        change = ""
        if compared and moved:
            change = f"<span class='moved {kind}' aria-label='{kind} {abs(moved)}'>{arrow}{abs(moved)}</span>"
        elif compared:
            change = "<span class='moved' aria-label='unchanged'>=</span>"
        items.append(
            f"<li><span class='number'>{place + 1}</span><div>{text}</div>"
            f"<span class='number'>{score:.3f}{change}</span></li>"
        )
    return f"<section>{heading(name)}<ol>{''.join(items)}</ol></section>"


def side_by_side(
    texts: Sequence[str], student: Sequence[float], teacher: Sequence[float] | None, similarity: str = "cosine"
) -> str:
    """The student's ranking of [`passage`]s, and the same in the teacher's order with how far each moved."""
    lists = ranking(f"Student: {similarity}", range(len(texts)), texts, student, False)
    if teacher is not None:
        order = sorted(range(len(texts)), key=lambda place: -teacher[place])
        found, scores = [texts[place] for place in order], [teacher[place] for place in order]
        lists += ranking("Teacher: score, and moves", order, found, scores, True)
    return f"<div class='lists'>{lists}</div>"


class Rows(NamedTuple):
    """The tokens that share a row in a layer: a note, the row of each token, tokens that stand for a row."""

    note: str
    of_tokens: Sequence[int]
    compared: int  # keys that a token is compared with
    kept: set[int] = set()
    name: str = "row"


def rows_of(layer: LayerAttention, num_tokens: int, is_learned: bool = False) -> Rows:
    """The rows that a layer makes of a text of `num_tokens` tokens; `is_learned` if it has E and F."""
    name, num_rows, own = f"Layer {layer.layer_idx + 1}", layer.num_slots, range(num_tokens)
    kind, window = layer.layer_type, layer.window
    if kind == "chunked_attention":
        note = f"{name} attends in chunks of {window}: a token is compared with those of its own chunk."
        return Rows(note, [token // window for token in own], min(window, num_tokens), name="chunk")
    if kind == "sliding_attention":
        note = f"{name} attends to a window: a token is compared with the {window} before and the {window} after it."
        return Rows(note, own, min(2 * window + 1, num_tokens))
    if kind == "full_attention":
        return Rows(f"{name} has softmax attention: each token has a row of its own.", own, num_tokens)
    if num_tokens <= num_rows:
        note = f"{num_tokens} tokens, {num_rows} rows: each token has a row of its own, so attention is exact."
        return Rows(note, own, num_tokens)

    states = torch.zeros(1, 1, num_tokens, 1)
    inputs = LayerInputs(states, states, states, None)
    slots, rows, kept = cut_slots(layer, num_rows, inputs), [0] * num_tokens, set()
    for _, row, place in slots.in_slot.nonzero().tolist():
        rows[int(slots.tokens[0, row, place])] = row
    share = f"about {(num_tokens - 2) / (num_rows - 2):.3g} tokens share each of the others"
    note = f"{num_tokens:,} tokens, {num_rows} rows: the first and the last token have a row each, {share}. "
    if layer.start == "strided":
        selected = stride_slots(layer, num_rows, inputs).tokens[0].tolist()
        # One at the edge of its segment is rounded to the token before.
        for row, token in enumerate(selected):
            rows[token] = row
        kept = set(selected)
        note += "One token stands for all of its row; in the next layer it is another one."
    else:
        note += f"A row holds the {layer.start} of its tokens."
    if is_learned:
        note += " So E and F start; training moves them from there."
    compared = num_rows
    if kind == "sliding_linear_attention":
        note += f" Beside the rows, a token is compared with the {window} tokens before and the {window} after it."
        compared += min(2 * window + 1, num_tokens)
    return Rows(note, rows, compared, kept)


def tokens_of(tokenizer: PreTrainedTokenizerBase, text: str, max_length: int) -> list[str]:
    """A text as its tokens, each with the space before it; special tokens have their names."""
    options = {"truncation": True, "max_length": max_length, "verbose": False}
    encoded = tokenizer(text, return_offsets_mapping=tokenizer.is_fast, **options)
    pieces = tokenizer.convert_ids_to_tokens(encoded["input_ids"])
    if not tokenizer.is_fast:
        return [f"{piece} " for piece in pieces]
    shown = 0
    for token, (start, end) in enumerate(encoded["offset_mapping"]):
        if end > start:
            pieces[token], shown = text[shown:end], max(shown, end)
    return pieces


def bands(pieces: Sequence[str], rows: Rows) -> str:
    """The tokens of a text as `pieces`, in two colours by turns: one band is one row."""
    kept, what = rows.kept, rows.name

    def mark(piece: str) -> str:
        token = piece.lstrip()
        return f"{piece[: len(piece) - len(token)]}<span class='kept'>{escape(token)}</span>"

    shown = []
    for row, group in groupby(range(len(pieces)), key=rows.of_tokens.__getitem__):
        tokens = list(group)
        words = [mark(pieces[i]) if i in kept else escape(pieces[i]) for i in tokens]
        title = f"{what} {row + 1}: {len(tokens)} token{'s' * (len(tokens) > 1)}"
        number = f"<sup>{row + 1}</sup>"
        shown.append(f"<span class='{'ab'[row % 2]}' title='{title}'>{number}{''.join(words)}</span>")
    samples = (("a", 1, f"tokens of one {what}"), ("b", 2, f"the next {what}"))
    legend = "".join(f"<span class='{kind}'><sup>{row}</sup>{words} </span>" for kind, row, words in samples)
    if kept:
        legend += " <span class='kept'>token</span> that stands for its row in this layer"
    # A box that scrolls has to be reached with the keyboard.
    box = "<div class='tokens' tabindex='0' role='region' aria-label='Tokens'>"
    return f"<p class='legend'>{legend}</p>{box}{''.join(shown)}</div>"
