# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""How well projected attention approximates softmax attention on real text, before any training."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from transformers import PreTrainedTokenizerBase, set_seed
from transformers.utils.logging import tqdm

from hf_dse.bench.arguments import PROJECTIONS, AttentionArguments
from hf_dse.common.devices import choose_device, set_threads
from hf_dse.common.display import Lines, markdown
from hf_dse.data.tables import read_texts
from hf_dse.data.tokenization import token_lengths
from hf_dse.inference.loading import load_tokenizer
from hf_dse.modeling import DseConfig, DseModel
from hf_dse.modeling.layout_dse import lay_out
from hf_dse.modeling.modeling_dse import DseSelfAttention
from hf_dse.student.convert import convert_encoder


ENERGY = 0.9


class SoftmaxRun(NamedTuple):
    """What an encoder with softmax attention does with one text."""

    input_ids: torch.Tensor  # [1, N]
    hidden_states: Sequence[torch.Tensor]  # the input of each layer, [1, N, D]
    contexts: list[torch.Tensor]  # the output of each layer's attention, before its dense layer, [1, N, D]
    embedding: torch.Tensor  # [1, P]


@torch.inference_mode()
def measure_attention(args: AttentionArguments) -> dict[str, Any]:
    """
    Compares projected attention with the softmax attention that it replaces, on the same hidden states.

    The hidden states of the encoder go into the attention of each layer twice, as it is and with keys and values
    projected to k rows, so that errors of one layer do not reach the next. With outputs O and O_k the error is
    |O_k - O| / |O| in the Frobenius norm. How the errors add up shows in the sentence embedding of a model all of
    whose layers are projected, as 1 - cosine. The spectrum says what any approximation of rank k can reach: the
    attention matrix of a head has the squared singular values s_i^2 as its energy, and the best matrix of rank k
    leaves out all but the first k ([Wang et al., 2020](https://huggingface.co/papers/2006.04768), figure 1 and
    theorem 1).

    Args:
        args (`AttentionArguments`):
            What to compare.

    Returns:
        `dict[str, Any]`: `errors`, a row for each projection, n and k with the mean over texts of the error of each
        layer (`layer_errors`), their mean (`error`) and the `embedding_error`; and `spectrum`, a row for each n and
        layer, means over texts and heads, with `num_values` that hold 90 % of the energy and the `shares` of the
        energy in the first k.

    Raises:
        `ValueError`: for an encoder that cannot be converted, or texts that are too few for a length.

    Example:

    ```python
    >>> from hf_dse.bench.attention import AttentionArguments, error_table, measure_attention

    >>> args = AttentionArguments(
    ...     "sentence-transformers/all-MiniLM-L6-v2",
    ...     "articles.txt",
    ...     projections=["mean"],
    ...     projected_lengths=[32],
    ...     lengths=[64],
    ...     num_texts=2,
    ... )
    >>> print(error_table(measure_attention(args)["errors"]))
    | projection | n | k | mean % | ...
    ```
    """
    set_threads(args.threads)
    device = choose_device(args.device)
    texts = read_texts(args.texts, args.text_column)[args.text_column]
    tokenizer = load_tokenizer(args.model_name_or_path)
    documents = {
        length: cut_documents(tokenizer, texts, length, args.num_texts) for length in sorted(set(args.lengths))
    }
    errors: list[dict[str, Any]] = []
    spectrum: list[dict[str, Any]] = []
    for length, rows in tqdm(documents.items(), desc="Comparing", unit="length"):
        softmax = convert_encoder(
            args.model_name_or_path,
            layer_types="full_attention",
            max_position_embeddings=length,
            position_extension=args.position_extension,
        ).to(device)
        runs = [run_softmax(softmax, torch.tensor([row], device=device)) for row in rows]
        for name in args.projections:
            for k in args.projected_lengths:
                set_seed(args.seed)
                projected = project(softmax, k, name)
                layer_errors = torch.stack([context_errors(projected, run) for run in runs]).mean(dim=0)
                embedding_error = sum(embedding_distance(projected, run) for run in runs) / len(runs)
                errors.append(
                    {
                        "projection": name,
                        "n": length,
                        "k": k,
                        "error": layer_errors.mean().item(),
                        "layer_errors": layer_errors.tolist(),
                        "embedding_error": embedding_error,
                    }
                )
        if length <= args.max_spectrum_length:
            spectrum += measure_spectrum(softmax, runs, args.projected_lengths)
    return {"num_texts": {str(n): len(rows) for n, rows in documents.items()}, "errors": errors, "spectrum": spectrum}


def cut_documents(
    processing_class: PreTrainedTokenizerBase, texts: Sequence[str], length: int, number: int
) -> list[list[int]]:
    """
    Joins consecutive texts and cuts them to documents of equal length.

    Args:
        processing_class (`PreTrainedTokenizerBase`):
            The tokenizer.
        texts (`Sequence[str]`):
            The texts; what is left of one that was cut is not used.
        length (`int`):
            Tokens of a document, special tokens included.
        number (`int`):
            How many documents are wanted.

    Returns:
        `list[list[int]]`: the tokens of up to that many documents.

    Raises:
        `ValueError`: if not a single document can be made.
    """
    documents: list[list[int]] = []
    parts: list[str] = []
    size = 0
    for text, num_tokens in zip(texts, token_lengths(processing_class, list(texts)), strict=True):
        parts.append(text)
        size += num_tokens
        if size < length:
            continue
        encoded = processing_class(" ".join(parts), truncation=True, max_length=length, verbose=False)["input_ids"]
        # Each part was counted with special tokens of its own.
        if len(encoded) == length:
            documents.append(encoded)
            parts, size = [], 0
        if len(documents) == number:
            break
    if not documents:
        raise ValueError(
            f"The {len(texts)} texts have fewer than {length} tokens altogether: give more, or lower `lengths`."
        )
    return documents


@torch.inference_mode()
def run_softmax(model: DseModel, input_ids: torch.Tensor) -> SoftmaxRun:
    """Runs a model with full attention on a text `(1, seq_len)` and keeps what the comparison needs."""
    outputs = model(input_ids, output_hidden_states=True)
    states = outputs.hidden_states[:-1]
    layouts = lay_out(model.config, states[0], None)
    contexts = [
        layer.attention.self(hidden_states, layout)[0]
        for layer, hidden_states, layout in zip(model.encoder.layer, states, layouts, strict=True)
    ]
    return SoftmaxRun(input_ids, states, contexts, outputs.pooler_output)


def project(model: DseModel, linformer_length: int, projection: str) -> DseModel:
    """
    Gives a model with full attention a projection in all layers.

    Args:
        model ([`DseModel`]):
            The model; its weights are copied.
        linformer_length (`int`):
            Projected length k.
        projection (`str`):
            A key of `PROJECTIONS`. Learned weights are at their start.

    Returns:
        [`DseModel`] in evaluation mode, where the model is.
    """
    fields = copy.deepcopy(model.config).to_dict()
    fields.update(layer_types=["linear_attention"] * len(fields["layer_types"]), funnel_layers=0)
    projected = DseModel(DseConfig(**{**fields, "linformer_length": linformer_length, **PROJECTIONS[projection]}))
    # Only E and F are not in it.
    projected.load_state_dict(model.state_dict(), strict=False)
    return projected.to(model.device).eval()


@torch.inference_mode()
def context_errors(projected: DseModel, run: SoftmaxRun) -> torch.Tensor:
    """
    The relative error of each layer's attention on the hidden states of the softmax model.

    Args:
        projected ([`DseModel`]):
            The model with projections.
        run ([`SoftmaxRun`]):
            The softmax model on a text.

    Returns:
        `torch.Tensor` of shape `(num_layers,)`: |O_k - O| / |O| in the Frobenius norm.
    """
    errors = []
    layouts = lay_out(projected.config, run.hidden_states[0], None)
    parts = zip(projected.encoder.layer, layouts, run.hidden_states, run.contexts, strict=True)
    for layer, layout, states, expected in parts:
        context, _ = layer.attention.self(states, layout, projected.encoder.linformer)
        errors.append(torch.linalg.norm(context - expected) / torch.linalg.norm(expected))
    return torch.stack(errors).cpu()


@torch.inference_mode()
def embedding_distance(projected: DseModel, run: SoftmaxRun) -> float:
    """1 - cosine of the sentence embeddings with and without projections, in all layers at once."""
    embedding = projected(run.input_ids).pooler_output
    return 1.0 - torch.nn.functional.cosine_similarity(embedding, run.embedding).item()


@torch.inference_mode()
def measure_spectrum(
    model: DseModel, runs: Sequence[SoftmaxRun], projected_lengths: Sequence[int]
) -> list[dict[str, Any]]:
    """
    Measures how fast the singular values of each layer's attention matrices fall.

    Args:
        model ([`DseModel`]):
            The model with full attention.
        runs (`Sequence[SoftmaxRun]`):
            What it did with some texts of equal length.
        projected_lengths (`Sequence[int]`):
            The k for which the share of the energy is wanted.

    Returns:
        `list[dict]`: a row for each layer, see [`measure_attention`].
    """
    rows = []
    for number, layer in enumerate(model.encoder.layer):
        energies = torch.stack(
            [cumulative_energy(attention_matrix(layer.attention.self, run.hidden_states[number])) for run in runs]
        )  # [texts, 1, H, N]
        length = energies.shape[-1]
        rows.append(
            {
                "n": length,
                "layer": number,
                "num_values": (1 + (energies < ENERGY).sum(dim=-1)).cpu().double().mean().item(),
                "shares": {str(k): energies[..., min(k, length) - 1].mean().item() for k in projected_lengths},
            }
        )
    return rows


def attention_matrix(attention: DseSelfAttention, hidden_states: torch.Tensor) -> torch.Tensor:
    """The softmax attention of hidden states `(batch, seq_len, size)`, `(batch, num_heads, seq_len, seq_len)`."""
    query, key = (
        dense(hidden_states).unflatten(-1, (-1, attention.head_dim)).transpose(1, 2)
        for dense in (attention.query, attention.key)
    )  # [B, H, N, D / H]
    return torch.softmax(query @ key.transpose(2, 3) * attention.scaling, dim=-1)


def cumulative_energy(matrices: torch.Tensor) -> torch.Tensor:
    """
    The share of the first i squared singular values in their sum, for all i.

    Args:
        matrices (`torch.Tensor` of shape `(..., n, n)`):
            Any matrices.

    Returns:
        `torch.Tensor` of shape `(..., n)`, growing to 1.
    """
    energy = torch.linalg.svdvals(matrices.float()).cpu().double().square().cumsum(dim=-1)
    return energy / energy[..., -1:]


def error_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The errors as a Markdown table, in percent; the embedding's as 1 - cosine."""
    layers = [f"layer {number}" for number in range(len(rows[0]["layer_errors"]))]
    cells = [
        [
            row["projection"],
            str(row["n"]),
            str(row["k"]),
            *(f"{100 * error:.1f}" for error in (row["error"], *row["layer_errors"])),
            f"{row['embedding_error']:.4f}",
        ]
        for row in rows
    ]
    return markdown(["projection", "n", "k", "mean %", *layers, "1 - cosine"], cells, num_left=1)


def spectrum_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The spectrum as a Markdown table, shares of the energy in percent."""
    cells = [
        [
            str(row["n"]),
            str(row["layer"]),
            f"{row['num_values']:.1f}",
            *(f"{100 * share:.1f}" for share in row["shares"].values()),
        ]
        for row in rows
    ]
    shares = [f"% in first {k}" for k in rows[0]["shares"]]
    return markdown(["n", "layer", f"values for {100 * ENERGY:.0f} %", *shares], cells, num_left=0)


def error_lines(rows: Sequence[Mapping[str, Any]]) -> dict[str, Lines]:
    """For the plot: a panel for each projection and in it a line for each k, the mean error against n."""
    panels: dict[str, dict[str, tuple[list[float], list[float]]]] = {}
    for row in rows:
        xs, ys = panels.setdefault(row["projection"], {}).setdefault(str(row["k"]), ([], []))
        # Where n <= k the error is 0 but for rounding, and has no place on a logarithmic axis.
        if row["n"] > row["k"]:
            xs.append(row["n"])
            ys.append(row["error"])
    return {name: dict(lines) for name, lines in panels.items()}
