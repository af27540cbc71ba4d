# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Which layers of an encoder need their own attention? One layer at a time is restored to it in an encoder whose other
layers are linear, and one layer at a time is made linear in an encoder whose other layers are as they were.

    python studies/which_layers.py MODEL DATA [--set longwiki] [--length 512] [--linformer_length 128]

The measure is the divergence of KL-guided layer selection (https://huggingface.co/papers/2512.20569), of the
similarities in a batch instead of the next token: softmax(cosine / temperature) over the other texts of the batch, the
source's against the changed encoder's, mean over texts. Nothing is trained. DATA has the folder of the set with
parquet files, whose documents are cut to one length.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from prepare_long import SETS, read_long

from hf_dse import DseModel, convert_encoder
from hf_dse.common.display import markdown
from hf_dse.common.loading import choose_device, load_tokenizer
from hf_dse.convert.student import with_own_attention


sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from attention_error import change, cut_documents  # noqa: E402
from timing import make_parser, set_threads, write_results  # noqa: E402


@torch.inference_mode()
def embed(model: DseModel, batches: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Embeddings of length 1 of each batch, `(batch_size, embedding_size)`."""
    return [torch.nn.functional.normalize(model(batch).pooler_output.float(), dim=-1) for batch in batches]


def divergence(source: Sequence[torch.Tensor], changed: Sequence[torch.Tensor], temperature: float) -> float:
    """The mean divergence of the similarities of each text to the others of its batch."""

    def log_shares(embeddings: torch.Tensor) -> torch.Tensor:
        size = len(embeddings)
        is_other = ~torch.eye(size, dtype=torch.bool, device=embeddings.device)
        cosines = (embeddings @ embeddings.T)[is_other].view(size, size - 1)
        return (cosines.double() / temperature).log_softmax(dim=-1)

    parts = [
        torch.nn.functional.kl_div(log_shares(own), log_shares(theirs), log_target=True, reduction="none").sum(dim=-1)
        for theirs, own in zip(source, changed, strict=True)
    ]
    return torch.cat(parts).mean().item()


def choices(num_layers: int) -> Iterator[tuple[str, int | None, set[int]]]:
    """The measurement, the layer that it is about, and the layers that are linear."""
    everything = set(range(num_layers))
    yield "all linear", None, everything
    for layer in range(num_layers):
        yield "only this one restored", layer, everything - {layer}
        yield "only this one linear", layer, {layer}


def measure(args: Any) -> list[dict[str, Any]]:
    """A row for each choice of layers with its `divergence`; layers with a window stay as they are."""
    tokenizer = load_tokenizer(args.model)
    split = "validation" if args.set in ("longwiki", "squality") else "test"
    texts = list(read_long(args.set, args.data, split)[1].values())
    rows = torch.tensor(cut_documents(tokenizer, texts, args.length, args.num_texts))
    options = {"linformer_projection": args.linformer_projection} if args.linformer_projection else {}
    converted = convert_encoder(args.model, max_position_embeddings=args.length, **options)
    source = with_own_attention(converted).to(choose_device(), torch.bfloat16 if args.bf16 else torch.float32)
    batches = rows.to(source.device).split(args.batch_size)
    expected, kinds = embed(source, batches), source.config.layer_types
    results = []
    for what, layer, linear in choices(len(kinds)):
        if layer is not None and kinds[layer] != "full_attention":
            continue
        mixed = [
            "linear_attention" if n in linear and kind == "full_attention" else kind for n, kind in enumerate(kinds)
        ]
        changed = change(source, layer_types=mixed, linformer_length=args.linformer_length)
        value = divergence(expected, embed(changed, batches), args.temperature)
        results.append({"what": what, "layer": layer, "divergence": value})
    return results


def table(rows: Sequence[dict[str, Any]]) -> str:
    """A line for each layer. The share is that of the divergence of all layers which restoring this one takes away."""
    first, *others = rows
    values = {(row["what"], row["layer"]): row["divergence"] for row in others}
    lines = [["all", "-", "-", f"{first['divergence']:.4f}"]]
    for layer in dict.fromkeys(row["layer"] for row in others):
        restored, alone = (values[what, layer] for what in ("only this one restored", "only this one linear"))
        share = 1 - restored / first["divergence"] if first["divergence"] else 0.0
        lines.append([str(layer), f"{restored:.4f}", f"{100 * share:.1f}", f"{alone:.4f}"])
    return markdown(["layer", "restored alone", "% less", "linear alone"], lines, num_left=1)


def main(argv: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("model", help="folder or Hub id of an encoder")
    parser.add_argument("data", type=Path)
    parser.add_argument("--set", choices=list(SETS), default="longwiki")
    parser.add_argument("--length", type=int, default=512, help="tokens of a text")
    parser.add_argument("--linformer_length", type=int, default=128, help="projected length k")
    parser.add_argument("--linformer_projection", help="default: that of a conversion")
    parser.add_argument("--num_texts", type=int, default=128)
    parser.add_argument("--batch_size", type=int, default=32, help="texts whose similarities are compared")
    parser.add_argument("--temperature", type=float, default=0.05)
    parser.add_argument("--bf16", action="store_true", help="weights and states in bfloat16")
    args = parser.parse_args(argv)
    set_threads(args.threads)
    rows = measure(args)
    print(table(rows))
    write_results(args, {"rows": rows})


if __name__ == "__main__":
    main()
