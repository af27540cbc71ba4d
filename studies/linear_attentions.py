# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Other linear attention in converted encoders, beside Linformer's: kernel attention (Katharopoulos et al., 2020:
2006.16236) and a decay in both directions in the manner of Lightning Attention-2 (Qin et al., 2024: 2401.04658).

    python studies/linear_attentions.py speed [--lengths 512 2048 8192]
    python studies/linear_attentions.py train DATA MODEL --attention kernel --num_hidden_layers 3
    python studies/linear_attentions.py train DATA MODEL --attention kernel --pairs LENGTH_DATA/concatenated-512

Both are functions that transformers calls in place of softmax attention. `speed` times encoders of the shape of
all-MiniLM-L6-v2 in turn. `train` converts MODEL, has it learn from its source on sentences (the general stage) or,
with `--pairs`, on labelled pairs, and prints correlations on STS-B, or on the pairs, before and after. DATA has the
folders stsb and wikisent with parquet files.
"""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from operator import truediv
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface

from hf_dse import (
    DataArguments,
    DseTrainer,
    DseTrainingArguments,
    GeneralTrainer,
    GeneralTrainingArguments,
    convert_encoder,
    evaluate,
    load_pairs,
    make_pair_model,
)
from hf_dse.common.display import markdown
from hf_dse.common.loading import choose_device, load_tokenizer
from hf_dse.data.texts import load_texts
from hf_dse.modeling.attention_dse import LayerInputs, linformer_mask


sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from encoders import SHAPES, build  # noqa: E402
from speed import token_states  # noqa: E402
from timing import interleave  # noqa: E402


# Tokens of a block, within which decayed attention is a product of all pairs
BLOCK = 64

# Fields of the conversion: a function is called where softmax attention would be
CONVERSIONS = {
    "linformer": {"linformer_projection": "strided", "linformer_length": 64},
    "linformer mean": {"linformer_projection": "mean", "linformer_length": 64},
    "softmax": {"layer_types": "full_attention"},
    "kernel": {"layer_types": "full_attention"},
    "decay": {"layer_types": "full_attention"},
}


def prepare(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Positive features elu + 1, 0 for the keys of padding; values get a 1, whose weighted sum is that of weights."""
    query, key = nn.functional.elu(query) + 1, nn.functional.elu(key) + 1
    if attention_mask is not None:
        key = key * attention_mask.transpose(2, 3)
    return query, key, nn.functional.pad(value, (0, 1), value=1.0)


def normalize(sums: torch.Tensor) -> torch.Tensor:
    """Weighted sums of values, with the sum of weights last, to means `(batch_size, seq_len, num_heads, head_dim)`."""
    return (sums[..., :-1] / sums[..., -1:].clamp(min=1e-6)).transpose(1, 2)


def kernel_attention(module, query, key, value, attention_mask):
    """The weight of a token is the dot product of features, so keys meet values first, for all queries at once."""
    query, key, value = prepare(query, key, value, attention_mask)
    return normalize(query @ (key.transpose(2, 3) @ value)), None


def decay_rates(module: nn.Module, num_heads: int) -> torch.Tensor:
    """How much a weight falls with each token of distance, as an exponent for each head; less in the higher layers."""
    heads, layer = torch.arange(1, num_heads + 1), module.linformer_layer
    return 2.0 ** (-8 * heads / num_heads) * (1 - layer.layer_idx / layer.num_layers)


def decay_attention(module, query, key, value, attention_mask):
    """
    Kernel attention whose weights fall exponentially with the distance in tokens. Within a block all pairs of tokens
    meet; of the blocks before and after there is a sum of keys times values each, which decays from block to block.
    """
    query, key, value = prepare(query, key, value, attention_mask)
    num_tokens = query.shape[2]
    query, key, value = (
        nn.functional.pad(states, (0, 0, 0, -num_tokens % BLOCK)).unflatten(2, (-1, BLOCK))  # [B, H, T, C, D]
        for states in (query, key, value)
    )
    rates = decay_rates(module, query.shape[1]).to(query.device)[:, None, None]  # [H, 1, 1]
    places, blocks = (torch.arange(size, device=query.device) for size in (BLOCK, query.shape[2]))
    near = torch.exp(-rates * (places[:, None] - places).abs()).to(query.dtype)  # [H, C, C]
    sums = (query @ key.transpose(3, 4) * near[:, None]) @ value
    ahead = blocks[:, None] - blocks - 1  # whole blocks between a block and one before it
    for distance, start, end in ((ahead, BLOCK - 1 - places, places + 1), (ahead.T, places, BLOCK - places)):
        to_edge, from_edge = (torch.exp(-rates * steps[:, None]).to(query.dtype)[:, None] for steps in (start, end))
        of_blocks = ((key * to_edge).transpose(3, 4) @ value).flatten(3)  # [B, H, T, D D]
        far = torch.where(distance >= 0, torch.exp(-rates * BLOCK * distance.clamp(min=0)), 0.0).to(query.dtype)
        sums = sums + (query * from_edge) @ (far @ of_blocks).unflatten(3, (key.shape[-1], -1))
    return normalize(sums.flatten(2, 3)[:, :, :num_tokens]), None


def attend(attention: Callable, module, query, key, value, attention_mask, **kwargs):
    """The function that transformers calls in a layer; the general stage reads its record."""
    context, weights = attention(module, query, key, value, attention_mask)
    if (record := getattr(module, "linformer_record", None)) is not None:
        record.append((LayerInputs(query, key, value, None), context))
    return context, weights


for name, function in (("kernel", kernel_attention), ("decay", decay_attention)):
    AttentionInterface.register(name, partial(attend, function))
    AttentionMaskInterface.register(name, linformer_mask)


def use(model: Any, attention: str) -> Any:
    """A DSE model with one of these functions in place of softmax attention, or as it is."""
    if attention in ("kernel", "decay"):
        model.base_model.encoder.config._attn_implementation = attention
    return model


@torch.inference_mode()
def measure_speed(args: argparse.Namespace) -> None:
    rows = []
    for length in args.lengths:
        batch = torch.randint(SHAPES["minilm"].vocab_size, (max(1, args.batch_tokens // length), length))
        models = {
            "BERT, sdpa": build("minilm", "sdpa", length, dtype=torch.bfloat16),
            "Linformer, strided, k = 128": build("minilm", "linear", length, dtype=torch.bfloat16),
            **{
                name: use(build("minilm", "blocks", length, dtype=torch.bfloat16), name)
                for name in ("kernel", "decay")
            },
        }
        tasks = {name: partial(token_states, model.eval(), batch) for name, model in models.items()}
        for task in tasks.values():
            task()
        seconds = interleave(tasks, args.rounds, min_seconds=0.4)
        base = seconds["BERT, sdpa"]
        cells = [
            f"{batch.numel() / median(times) / 1000:.1f} ({median(map(truediv, base, times)):.2f})"
            for times in seconds.values()
        ]
        rows.append([str(length), *cells])
        print(rows[-1], flush=True)
    print(markdown(["tokens", *models], rows, num_left=1))


def train(args: argparse.Namespace) -> None:
    torch.manual_seed(args.seed)
    fields = {"num_hidden_layers": args.num_hidden_layers, "max_position_embeddings": args.max_positions}
    # With dropout, torch does not use its fast attention on a CPU.
    fields |= {**CONVERSIONS[args.attention], "attention_probs_dropout_prob": 0.0}
    student = convert_encoder(args.model, **fields)
    student, tokenizer = use(student, args.attention).to(choose_device()), load_tokenizer(args.model)
    options = {"bf16": True, "report_to": "none", "save_strategy": "no", "seed": args.seed, "disable_tqdm": True}
    options["use_cpu"] = not torch.cuda.is_available()
    if args.pairs is None:
        pairs = load_pairs(DataArguments(task_name="stsb", test_file=str(args.data / "stsb" / "test.parquet")))
        max_length = 128
    else:
        pairs = load_pairs(DataArguments(task_name="stsb", dataset_name=str(args.pairs)))
        max_length = args.max_positions

    def report(model: nn.Module, when: str) -> None:
        options = {"max_length": max_length, "batch_size": 8, "show_progress": False}
        metrics = evaluate(model, pairs["test"], tokenizer, task_name="stsb", **options)
        rounded = {name: round(100 * value, 2) for name, value in metrics.items()}
        print(args.attention, args.num_hidden_layers, "layers", when, rounded, flush=True)

    report(student, "before")
    if args.pairs is None:
        teacher = convert_encoder(args.model, layer_types="full_attention")
        texts = load_texts(str(args.data / "wikisent" / "train.parquet"), max_samples=args.max_train_samples)
        train_args = GeneralTrainingArguments(
            str(args.output_dir), per_device_train_batch_size=64, learning_rate=1e-4, **options
        )
        trainer = GeneralTrainer(
            model=student, args=train_args, train_dataset=texts, processing_class=tokenizer, teacher=teacher
        )
        print(trainer.train().metrics)
        report(student, "after")
        return
    train_args = DseTrainingArguments(
        str(args.output_dir),
        distillation_alpha=0.0,
        max_length=max_length,
        num_train_epochs=1,
        per_device_train_batch_size=8,
        learning_rate=5e-5,
        **options,
    )
    model = use(make_pair_model(student), args.attention)
    trainer = DseTrainer(model=model, args=train_args, train_dataset=pairs["train"], processing_class=tokenizer)
    print(trainer.train().metrics)
    report(model.eval(), "after")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int)
    commands = parser.add_subparsers(required=True)
    speed = commands.add_parser("speed")
    speed.add_argument("--lengths", type=int, nargs="+", default=[512, 1024, 2048, 4096, 8192])
    speed.add_argument("--batch_tokens", type=int, default=8192)
    speed.add_argument("--rounds", type=int, default=3)
    speed.set_defaults(run=measure_speed)
    learn = commands.add_parser("train")
    learn.add_argument("data", type=Path)
    learn.add_argument("model")
    learn.add_argument("--attention", choices=list(CONVERSIONS), required=True)
    learn.add_argument("--num_hidden_layers", type=int, default=6)
    learn.add_argument("--max_train_samples", type=int, default=30000)
    learn.add_argument("--pairs", type=Path, help="folder of studies/prepare_length.py")
    learn.add_argument("--max_positions", type=int, default=512)
    learn.add_argument("--seed", type=int, default=42)
    learn.add_argument("--output_dir", type=Path, default=Path("outputs/linear_attentions"))
    learn.set_defaults(run=train)
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    args.run(args)


if __name__ == "__main__":
    main()
