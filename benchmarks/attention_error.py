# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
How far projected attention is from softmax attention on real text, before any training.

    python benchmarks/attention_error.py MODEL TEXTS [--lengths 256 512 1024] [--projected_lengths 64 128]

MODEL is an encoder with softmax attention, TEXTS a .txt file or a table with a column `text`, joined and cut to the
lengths. Each layer's attention gets the queries, keys and values of the encoder, and keys and values are projected to
k rows, so that errors of one layer do not reach the next. With outputs O and O_k the error is |O_k - O| / |O| in the
Frobenius norm. The sentence embedding of a model all of whose layers are projected shows how the errors add up, as
1 - cosine. Layers with a window keep it, exactly. The second table has the spectrum of the attention matrices: how
many singular values hold 90 % of the energy, and the share of the first k
(https://huggingface.co/papers/2006.04768, theorem 1).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from timing import make_parser, set_threads, write_results
from transformers import PreTrainedTokenizerBase, set_seed
from transformers.utils.logging import tqdm

from hf_dse import DseConfig, DseModel, convert_encoder
from hf_dse.common.display import markdown
from hf_dse.common.loading import choose_device, load_tokenizer
from hf_dse.convert.student import with_own_attention
from hf_dse.data.texts import load_texts
from hf_dse.data.tokenization import token_lengths
from hf_dse.modeling.attention_dse import LayerInputs, attend_eagerly, linformer_attention_forward
from hf_dse.modeling.modeling_dse import find_attentions


# Fields of `DseConfig` by the name of a projection. "learned" is at its start.
PROJECTIONS: dict[str, dict[str, str]] = {
    "mean": {"linformer_projection": "mean"},
    "strided": {"linformer_projection": "strided"},
    "learned": {"linformer_projection": "learned"},
}
ENERGY = 0.9


class Run(NamedTuple):
    """A text in an encoder: what each layer's attention gets, and its output `(1, seq_len, heads, size)`."""

    layers: list[tuple[LayerInputs, torch.Tensor]]
    embedding: torch.Tensor


def run(model: DseModel, input_ids: torch.Tensor) -> Run:
    """Runs texts `(batch_size, seq_len)` without padding through a model, and records its attention."""
    attentions: list[Any] = find_attentions(model.encoder)
    records: list[list[tuple[LayerInputs, torch.Tensor]]] = []
    for attention in attentions:
        attention.linformer_record = []
        records.append(attention.linformer_record)
    try:
        embedding = model(input_ids).pooler_output
    finally:
        for attention in attentions:
            del attention.linformer_record
    if not all(records):
        raise ValueError(f"The attention of {model.config.encoder.model_type} is not recorded.")
    return Run([record[0] for record in records], embedding)


def change(model: DseModel, **fields: Any) -> DseModel:
    """A copy of a model with other fields of its configuration. E and F are those of a new model."""
    changed = DseModel(DseConfig(**{**model.config.to_dict(), **fields}))
    changed.load_state_dict(model.state_dict(), strict=False)
    return changed.to(model.device, model.dtype).eval()


def project(model: DseModel, k: int, projection: str) -> DseModel:
    """A copy of a model with a projection to k rows in the layers that attend to all tokens."""
    kinds = [kind.replace("full", "linear") for kind in model.config.layer_types or []]
    return change(model, layer_types=kinds, linformer_length=k, **PROJECTIONS[projection])


def attend(attention: Any, inputs: LayerInputs) -> torch.Tensor:
    """The output of an attention module for the recorded inputs of another one."""
    return linformer_attention_forward(attention, *inputs[:3], None, scaling=getattr(attention, "scaling", None))[0]


def layer_errors(projected: DseModel, expected: Run) -> torch.Tensor:
    """The relative error of each layer's attention `(num_layers,)` on what the layers of the softmax model get."""
    layers = zip(find_attentions(projected.encoder), expected.layers, strict=True)
    errors = [
        torch.linalg.norm(attend(module, inputs) - exact) / torch.linalg.norm(exact)
        for module, (inputs, exact) in layers
    ]
    return torch.stack(errors).cpu()


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


def attention_matrix(attention: Any, inputs: LayerInputs) -> torch.Tensor:
    """The softmax attention of recorded inputs, `(batch_size, num_heads, seq_len, seq_len)`."""
    return attend_eagerly(attention, *inputs[:3], None, scaling=getattr(attention, "scaling", None))[1]


def cumulative_energy(matrices: torch.Tensor) -> torch.Tensor:
    """The share of the first i squared singular values in their sum, for all i, growing to 1."""
    energy = torch.linalg.svdvals(matrices.float()).cpu().double().square().cumsum(dim=-1)
    return energy / energy[..., -1:]


def measure_spectrum(model: DseModel, runs: Sequence[Run], projected_lengths: Sequence[int]) -> list[dict[str, Any]]:
    """The singular values with 90 % of the energy in each layer without a window, and the share of the first k."""
    rows = []
    for number, attention in enumerate(find_attentions(model.encoder)):
        if attention.linformer_layer.layer_type != "full_attention":
            continue
        matrices = (attention_matrix(attention, of_text.layers[number][0]) for of_text in runs)
        energies = torch.stack([cumulative_energy(matrix) for matrix in matrices])  # [texts, 1, H, N]
        length = energies.shape[-1]
        shares = {str(k): energies[..., min(k, length) - 1].mean().item() for k in projected_lengths}
        num_values = (1 + (energies < ENERGY).sum(dim=-1)).double().mean().item()
        rows.append({"n": length, "layer": number, "num_values": num_values, "shares": shares})
    return rows


@torch.inference_mode()
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
        softmax = with_own_attention(convert_encoder(args.model, max_position_embeddings=length)).to(device)
        batches = [torch.tensor([row], device=device) for row in rows]
        runs = [run(softmax, batch) for batch in batches]
        for name in args.projections:
            for k in args.projected_lengths:
                set_seed(42)
                projected = project(softmax, k, name)
                of_layers = torch.stack([layer_errors(projected, of_text) for of_text in runs]).mean(dim=0)
                cosines = [
                    torch.cosine_similarity(projected(batch).pooler_output, expected.embedding).item()
                    for batch, expected in zip(batches, runs, strict=True)
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
