# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse bench` and `hf-dse demo`: linear against softmax attention on this machine."""

from dataclasses import dataclass

from hf_dse.common.display import markdown
from hf_dse.common.options import HfArg
from hf_dse.convert.options import ConvertOptions
from hf_dse.stages.options import DemoOptions


LINEAR, OWN = "linear", "its own attention"
# A batch has as many texts as fit, at least one.
BATCH_TOKENS = 8192


def demo(args: DemoOptions) -> None:
    """
    Run all steps on a small embedded dataset: convert, distil, compare, and time.

    hf-dse demo --output_dir outputs/demo
    """
    from hf_dse.demo import run_demo

    run_demo(args)


@dataclass
class BenchArguments:
    """Which model to time, and on which texts."""

    model_name_or_path: str | None = HfArg(
        default=None, help="A DSE model, or an encoder to convert. Default: that of `hf-dse demo`."
    )
    lengths: list[int] = HfArg(
        default_factory=lambda: [128, 512, 2048, 8192], help="Tokens per text, such as: 512 4096."
    )
    bf16: bool = HfArg(default=False, help="Compute in bfloat16.")
    device: str | None = HfArg(default=None, help="Such as cpu or cuda:0. Default: a GPU if any.")


def bench(args: BenchArguments, convert_args: ConvertOptions) -> None:
    """
    Compare the speed of an encoder with linear attention to that with its own attention. benchmarks/ in the repository
    measures other models, ranking and long documents.

    hf-dse bench --lengths 512 2048 8192
    """
    import torch

    from hf_dse.common.loading import choose_device, load_config
    from hf_dse.convert.student import load_or_convert, with_own_attention
    from hf_dse.demo import default_encoder, tokens_per_second

    device, dtype = choose_device(args.device), torch.bfloat16 if args.bf16 else torch.float32
    name, longest = args.model_name_or_path or default_encoder(), max(args.lengths)
    if load_config(name).model_type != "dse":
        convert_args.max_position_embeddings = convert_args.max_position_embeddings or longest
    model = load_or_convert(name, convert_args).base_model.to(device, dtype).eval()
    if longest > model.config.max_position_embeddings:
        raise ValueError(f"{name} takes {model.config.max_position_embeddings:,} tokens: pass shorter `--lengths`.")
    models = {LINEAR: model, OWN: with_own_attention(model)}
    speeds = [tokens_per_second(models, max(1, BATCH_TOKENS // length), length) for length in args.lengths]
    rows = [[kind, *(f"{speed[kind]:,.0f}" for speed in speeds)] for kind in models]
    rows.append(["ratio", *(f"{speed[LINEAR] / speed[OWN]:.2f}" for speed in speeds)])
    print("Tokens per second:\n")
    print(markdown(["tokens per text", *map(str, args.lengths)], rows, 0))
