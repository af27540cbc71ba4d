# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
How far projected attention is from softmax attention on real text, before any training.

    python benchmarks/attention_error.py MODEL TEXTS [--lengths 256 512 1024] [--projected_lengths 64 128]

MODEL is an encoder with softmax attention, TEXTS a .txt file or a table with a column `text`, joined and cut to the
lengths. The hidden states of the encoder go into the attention of each layer twice, as it is and with keys and values
projected to k rows, so that errors of one layer do not reach the next. With outputs O and O_k the error is
|O_k - O| / |O| in the Frobenius norm. The sentence embedding of a model all of whose layers are projected shows how
the errors add up, as 1 - cosine. The second table has the spectrum of the attention matrices: how many singular values
hold 90 % of the energy, and the share of the first k (https://huggingface.co/papers/2006.04768, theorem 1).
"""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch
from timing import make_parser, set_threads, write_results
from torch import nn
from transformers import PreTrainedTokenizerBase, set_seed
from transformers.utils.logging import tqdm

from hf_dse import DseConfig, DseModel, convert_encoder
from hf_dse.common.display import markdown
from hf_dse.common.loading import choose_device, load_tokenizer
from hf_dse.data.texts import load_texts
from hf_dse.data.tokenization import token_lengths


# Fields of `DseConfig` by the name of a projection. "learned" is at its start.
PROJECTIONS: dict[str, dict[str, str]] = {
    "mean": {"linformer_projection": "mean"},
    "max": {"linformer_projection": "max"},
    "strided": {"linformer_projection": "strided"},
    "learned": {"linformer_projection": "learned"},
    "random": {"linformer_projection": "learned", "linformer_init": "random"},
}
ENERGY = 0.9


class Run(NamedTuple):
    """A text in an encoder: input and output of each layer's attention, `(1, seq_len, size)`, and the embedding."""

    states: list[torch.Tensor]
    contexts: list[torch.Tensor]
    embedding: torch.Tensor


def attentions(model: DseModel) -> list[nn.Module]:
    return [layer.attention.self for layer in model.encoder.layer]


@torch.inference_mode()
def run(model: DseModel, input_ids: torch.Tensor, states: Sequence[torch.Tensor] | None = None) -> Run:
    """Runs a text `(1, seq_len)` through a model, whose attention gets other `states` instead of its own, if given."""
    seen: list[torch.Tensor] = []
    contexts: list[torch.Tensor] = []

    def replace(module: nn.Module, args: tuple, number: int) -> tuple:
        seen.append(args[0] if states is None else states[number])
        return (seen[-1], *args[1:])

    with ExitStack() as stack:
        for number, attention in enumerate(attentions(model)):
            before = attention.register_forward_pre_hook(lambda module, args, n=number: replace(module, args, n))
            after = attention.register_forward_hook(lambda module, args, output: contexts.append(output[0]))
            stack.callback(before.remove)
            stack.callback(after.remove)
        embedding = model(input_ids).pooler_output
    return Run(seen, contexts, embedding)


def project(model: DseModel, k: int, projection: str) -> DseModel:
    """A copy of a model with full attention, with a projection to k rows in all layers."""
    fields = model.config.to_dict()
    fields.update(layer_types=["linear_attention"] * len(fields["layer_types"]), linformer_length=k)
    projected = DseModel(DseConfig(**{**fields, **PROJECTIONS[projection]}))
    # It lacks E and F only.
    projected.load_state_dict(model.state_dict(), strict=False)
    return projected.to(model.device).eval()


def layer_errors(projected: DseModel, input_ids: torch.Tensor, expected: Run) -> torch.Tensor:
    """The relative error of each layer's attention `(num_layers,)` on the hidden states of the softmax model."""
    contexts = run(projected, input_ids, expected.states).contexts
    pairs = zip(contexts, expected.contexts, strict=True)
    return torch.stack([torch.linalg.norm(own - exact) / torch.linalg.norm(exact) for own, exact in pairs]).cpu()


def cut_documents(
    processing_class: PreTrainedTokenizerBase, texts: Sequence[str], length: int, number: int
) -> list[list[int]]:
    """
    Joins consecutive texts and cuts them to up to `number` documents of `length` tokens, special tokens included. The
    rest of a text that was cut is not used.
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
        raise ValueError(f"The {len(texts)} texts have fewer than {length} tokens altogether: lower `--lengths`.")
    return documents


def attention_matrix(attention: Any, hidden_states: torch.Tensor) -> torch.Tensor:
    """The softmax attention of hidden states `(batch, seq_len, size)`, `(batch, num_heads, seq_len, seq_len)`."""
    query, key = (
        dense(hidden_states).unflatten(-1, (-1, attention.head_dim)).transpose(1, 2)
        for dense in (attention.query, attention.key)
    )  # [B, H, N, D / H]
    return torch.softmax(query @ key.transpose(2, 3) * attention.scaling, dim=-1)


def cumulative_energy(matrices: torch.Tensor) -> torch.Tensor:
    """The share of the first i squared singular values in their sum, for all i, growing to 1."""
    energy = torch.linalg.svdvals(matrices.float()).cpu().double().square().cumsum(dim=-1)
    return energy / energy[..., -1:]


@torch.inference_mode()
def measure_spectrum(model: DseModel, runs: Sequence[Run], projected_lengths: Sequence[int]) -> list[dict[str, Any]]:
    """For each layer the number of singular values with 90 % of the energy, and the share of the first k."""
    rows = []
    for number, attention in enumerate(attentions(model)):
        energies = torch.stack(
            [cumulative_energy(attention_matrix(attention, of_text.states[number])) for of_text in runs]
        )  # [texts, 1, H, N]
        length = energies.shape[-1]
        shares = {str(k): energies[..., min(k, length) - 1].mean().item() for k in projected_lengths}
        num_values = (1 + (energies < ENERGY).sum(dim=-1)).double().mean().item()
        rows.append({"n": length, "layer": number, "num_values": num_values, "shares": shares})
    return rows


def measure(args: Any) -> dict[str, list[dict[str, Any]]]:
    """
    Compares projected attention with softmax attention.

    Returns:
        `dict[str, list[dict]]`: `errors`, a row for each projection, n and k with the mean over texts of the error of
        each layer (`layer_errors`), their mean (`error`) and the `embedding_error`; and `spectrum`, a row for each n
        and layer.
    """
    set_threads(args.threads)
    device = choose_device(None)
    tokenizer = load_tokenizer(args.model)
    texts = load_texts(args.texts)["text"][:]
    documents = {length: cut_documents(tokenizer, texts, length, args.num_texts) for length in sorted(args.lengths)}
    errors: list[dict[str, Any]] = []
    spectrum: list[dict[str, Any]] = []
    for length, rows in tqdm(documents.items(), desc="Comparing", unit="length"):
        fields = {"layer_types": "full_attention", "max_position_embeddings": length}
        softmax = convert_encoder(args.model, **fields).to(device)
        batches = [torch.tensor([row], device=device) for row in rows]
        runs = [run(softmax, batch) for batch in batches]
        for name in args.projections:
            for k in args.projected_lengths:
                set_seed(42)
                projected = project(softmax, k, name)
                pairs = list(zip(batches, runs, strict=True))
                of_layers = torch.stack([layer_errors(projected, *pair) for pair in pairs]).mean(dim=0)
                cosines = [
                    torch.cosine_similarity(run(projected, batch).embedding, expected.embedding).item()
                    for batch, expected in pairs
                ]
                row = {"projection": name, "n": length, "k": k, "error": of_layers.mean().item()}
                row |= {"layer_errors": of_layers.tolist(), "embedding_error": 1 - sum(cosines) / len(cosines)}
                errors.append(row)
        if length <= args.max_spectrum_length:
            spectrum += measure_spectrum(softmax, runs, args.projected_lengths)
    return {"errors": errors, "spectrum": spectrum}


def error_table(rows: Sequence[dict[str, Any]]) -> str:
    """The errors as a Markdown table, in percent; the error of the embedding as 1 - cosine."""
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


def spectrum_table(rows: Sequence[dict[str, Any]]) -> str:
    """The spectrum as a Markdown table, shares of the energy in percent."""
    cells = [
        [str(row["n"]), str(row["layer"]), f"{row['num_values']:.1f}"]
        + [f"{100 * share:.1f}" for share in row["shares"].values()]
        for row in rows
    ]
    shares = [f"% in first {k}" for k in rows[0]["shares"]]
    return markdown(["n", "layer", f"values for {100 * ENERGY:.0f} %", *shares], cells, num_left=0)


def main(argv: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("model", help="folder or Hub name of an encoder")
    parser.add_argument("texts", help=".txt with a text per line, or a table with a column `text`")
    parser.add_argument("--num_texts", type=int, default=8, help="texts of each length")
    parser.add_argument("--lengths", type=int, nargs="+", default=[128, 256, 512, 1024, 2048], help="n")
    parser.add_argument("--projected_lengths", type=int, nargs="+", default=[32, 64, 128, 256], help="k")
    parser.add_argument("--projections", nargs="+", default=list(PROJECTIONS), choices=PROJECTIONS)
    parser.add_argument("--max_spectrum_length", type=int, default=1024, help="longest text to decompose, in n^3 time")
    args = parser.parse_args(argv)
    results = measure(args)
    print(error_table(results["errors"]))
    if results["spectrum"]:
        print(f"\n{spectrum_table(results['spectrum'])}")
    write_results(args, results)


if __name__ == "__main__":
    main()
