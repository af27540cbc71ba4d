# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
A first stage for learned projections, as that of RADLADS (https://huggingface.co/papers/2505.03005): E and F of each
layer learn to give the attention outputs of the source, from the source's own queries, keys and values.

    python studies/attention_outputs.py DATA MODEL OUT [--ks 64 128 256] [--tokens 1000000] [--bf16]

All k learn at once from one pass of the source, and nothing but E and F is trained. DATA has the folders of `--sets`
with docs.parquet, whose train split is cut into texts of `--length` tokens. With `--min_length` each batch is cut to a
random length, because a weight of E belongs to a place in the text, not to a share of it. OUT/k-64 and its like are
the students, for `studies/kinds_of_attention.py`. The table has the error |O_k - O| / |O| of each layer with a
projection on the validation split, before and after.
"""

import random
import sys
from collections.abc import Iterator, Sequence
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from transformers.utils.logging import tqdm

from hf_dse import DseModel, convert_encoder, export
from hf_dse.common.display import markdown
from hf_dse.common.loading import choose_device, load_tokenizer
from hf_dse.convert.student import with_own_attention
from hf_dse.modeling.modeling_dse import find_attentions


sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from attention_error import attend, change, run  # noqa: E402
from timing import make_parser, set_threads, write_results  # noqa: E402


def read_texts(args: Any, split: str) -> Iterator[str]:
    """The documents of a split in a random order."""
    tables = [pd.read_parquet(args.data / name / "docs.parquet") for name in args.sets]
    tables = [table[table["split"] == split] for table in tables]
    texts = [text for table in tables for text in table["body" if "body" in table else "text"]]
    random.Random(args.seed).shuffle(texts)
    yield from texts


def read_batches(args: Any, tokenizer: Any, split: str) -> Iterator[torch.Tensor]:
    """Texts of one length without padding, `(batch_size, length)`."""
    rows: list[list[int]] = []
    options = {"truncation": True, "max_length": args.length, "return_overflowing_tokens": True, "verbose": False}
    for text in read_texts(args, split):
        rows += [ids for ids in tokenizer([text], **options)["input_ids"] if len(ids) == args.length]
        while len(rows) >= args.batch_size:
            yield torch.tensor(rows[: args.batch_size])
            rows = rows[args.batch_size :]


def linear_layers(student: DseModel) -> list[tuple[int, Any]]:
    """The layers with a projection, and their numbers."""
    attentions = enumerate(find_attentions(student.encoder))
    return [(number, module) for number, module in attentions if "linear" in module.linformer_layer.layer_type]


def squared_errors(student: DseModel, layers: Sequence[Any]) -> torch.Tensor:
    """|O_k - O|^2 / |O|^2 of each layer with a projection, given what the source recorded."""
    errors = []
    for number, attention in linear_layers(student):
        inputs, exact = layers[number]
        difference = attend(attention, inputs).float() - exact.float()
        errors.append(difference.square().sum() / exact.float().square().sum())
    return torch.stack(errors)


@torch.no_grad()
def measure(args: Any, source: DseModel, students: dict[int, DseModel], batches: Sequence[torch.Tensor]) -> dict:
    """The error of each layer of each student, mean over batches."""
    found: dict[int, list[torch.Tensor]] = {k: [] for k in students}
    for batch in batches:
        with torch.autocast(source.device.type, torch.bfloat16, enabled=args.bf16):
            layers = run(source, batch.to(source.device)).layers
            for k, student in students.items():
                found[k].append(squared_errors(student, layers).sqrt())
    return {k: torch.stack(errors).mean(dim=0).tolist() for k, errors in found.items()}


def train(args: Any, source: DseModel, students: dict[int, DseModel], tokenizer: Any) -> None:
    """Trains E and F of all students on the budget of tokens, with a learning rate that falls to 0."""
    weights = [
        part for student in students.values() for name, part in student.named_parameters() if "linformer" in name
    ]
    optimizer = torch.optim.Adam(weights, lr=args.learning_rate)
    draw, seen = random.Random(args.seed), 0
    # From the start again where the texts are fewer.
    batches = chain.from_iterable(read_batches(args, tokenizer, "train") for _ in repeat(None))
    with tqdm(total=args.tokens, desc="Training", unit="token") as progress:
        while seen < args.tokens:
            batch = next(batches)
            length = draw.randint(args.min_length or args.length, args.length)
            # The last token ends the text.
            batch = torch.cat([batch[:, : length - 1], batch[:, -1:]], dim=1).to(source.device)
            with torch.autocast(source.device.type, torch.bfloat16, enabled=args.bf16):
                with torch.no_grad():
                    layers = run(source, batch).layers
                loss = torch.stack([squared_errors(student, layers).sum() for student in students.values()]).sum()
            for group in optimizer.param_groups:
                group["lr"] = args.learning_rate * (1 - seen / args.tokens)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += batch.numel()
            progress.update(batch.numel())
            progress.set_postfix(loss=f"{loss.item():.4f}")


def main(argv: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("model", help="folder or Hub id of an encoder")
    parser.add_argument("out", type=Path)
    parser.add_argument("--ks", type=int, nargs="+", default=[128], help="projected lengths")
    parser.add_argument("--tokens", type=int, default=1_000_000, help="budget of the training")
    parser.add_argument("--sets", nargs="+", default=["longwiki", "rfc"], help="folders of DATA")
    parser.add_argument("--length", type=int, default=512, help="tokens of a text")
    parser.add_argument("--min_length", type=int, help="of a batch; default: all have --length")
    parser.add_argument("--max_position_embeddings", type=int, help="longest text of the students; default: --length")
    parser.add_argument("--linformer_init", default="mean", choices=["mean", "strided"])
    parser.add_argument(
        "--linformer_sharing", default="key_value", choices=["none", "headwise", "key_value", "layerwise"]
    )
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--num_batches", type=int, default=4, help="of the validation split, for the errors")
    parser.add_argument("--learning_rate", type=float, default=3e-4)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--bf16", action="store_true", help="bfloat16 autocast")
    args = parser.parse_args(argv)
    set_threads(args.threads)
    torch.manual_seed(args.seed)
    args.output = args.output or args.out / "errors.json"
    tokenizer, limit = load_tokenizer(args.model), args.max_position_embeddings or args.length
    source = with_own_attention(convert_encoder(args.model, max_position_embeddings=limit)).to(choose_device())
    kinds = [kind.replace("full", "linear") for kind in source.config.layer_types]
    fields = {"layer_types": kinds, "linformer_projection": "learned"}
    fields |= {name: getattr(args, name) for name in ("linformer_init", "linformer_sharing")}
    students = {k: change(source, linformer_length=k, **fields) for k in args.ks}
    held_out = list(islice(read_batches(args, tokenizer, "validation"), args.num_batches))
    if not held_out:
        raise SystemExit(f"The validation split has fewer than {args.batch_size} texts of {args.length} tokens.")
    before = measure(args, source, students, held_out)
    train(args, source, students, tokenizer)
    after = measure(args, source, students, held_out)
    cells = []
    for k, student in students.items():
        export(student, args.out / f"k-{k}", tokenizer, max_length=args.length, overwrite_output_dir=True)
        for when, errors in (("before", before[k]), ("after", after[k])):
            mean = sum(errors) / len(errors)
            cells.append([str(k), when, *(f"{100 * error:.1f}" for error in (mean, *errors))])
    layers = [f"layer {number}" for number, _ in linear_layers(student)]
    print(markdown(["k", "training", "mean %", *layers], cells, num_left=2))
    write_results(args, {"tokens": args.tokens, "before": before, "after": after})


if __name__ == "__main__":
    main()
