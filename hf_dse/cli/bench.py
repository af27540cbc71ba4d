# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse bench` and `hf-dse demo`: linear against softmax attention on this machine."""

import copy
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from hf_dse.common.display import markdown
from hf_dse.convert.options import ConvertOptions
from hf_dse.pipeline.arguments import DemoArguments


# A batch has as many texts as fit, at least one.
BATCH_TOKENS = 8192


def demo(args: DemoArguments) -> None:
    """
    Run all steps on a small embedded dataset: convert, distil, compare, and time.

    hf-dse demo --output_dir outputs/demo
    """
    from hf_dse.demo import run_demo

    run_demo(args)


@dataclass
class BenchArguments:
    """Which model to time, and on which texts."""

    model_name_or_path: str | None = field(
        default=None, metadata={"help": "A DSE model, or an encoder to convert. Default: that of `hf-dse demo`."}
    )
    lengths: list[int] = field(
        default_factory=lambda: [128, 512, 2048, 8192], metadata={"help": "Tokens per text, such as: 512 4096."}
    )
    bf16: bool = field(default=False, metadata={"help": "Compute in bfloat16."})
    device: str | None = field(default=None, metadata={"help": "Such as cpu or cuda:0. Default: a GPU if any."})


def bench(args: BenchArguments, convert_args: ConvertOptions) -> None:
    """
    Compare the speed of a model with that of the same model with softmax attention. benchmarks/ in the repository
    measures other models, ranking and long documents.

    hf-dse bench --lengths 512 2048 8192
    """
    import torch

    from hf_dse.common.loading import choose_device
    from hf_dse.demo import time_in_turn

    device, dtype = choose_device(args.device), torch.bfloat16 if args.bf16 else torch.float32
    models = {name: model.to(device, dtype).eval() for name, model in make_models(args, convert_args).items()}
    rows = []
    for length in args.lengths:
        size = max(1, BATCH_TOKENS // length)
        batch = {"input_ids": torch.randint(models["linear"].config.vocab_size, (size, length), device=device)}
        batch["attention_mask"] = torch.ones_like(batch["input_ids"])
        seconds = time_in_turn({name: partial(model, **batch) for name, model in models.items()})
        speeds = [size * length / taken for taken in seconds.values()]
        rows.append([str(length), *(f"{speed:,.0f}" for speed in speeds), f"{speeds[0] / speeds[1]:.2f}"])
    print("Tokens per second:\n")
    print(markdown(["tokens per text", *models, "ratio"], rows, 0))


def make_models(args: BenchArguments, convert_args: Any) -> dict[str, Any]:
    """Returns the model with its own attention, and a copy with softmax attention in all layers."""
    from hf_dse.common.loading import load_config
    from hf_dse.convert.student import has_head, load_dse_model
    from hf_dse.demo import default_encoder
    from hf_dse.modeling import DseModel

    name = args.model_name_or_path or default_encoder()
    if load_config(name).model_type == "dse":
        model: Any = load_dse_model(name)
        model = model.dse if has_head(model) else model
    else:
        if convert_args.max_position_embeddings is None:
            convert_args.max_position_embeddings = max(args.lengths)
        model = convert_args.convert(name)
    config = copy.deepcopy(model.config)
    if max(args.lengths) > config.max_position_embeddings:
        raise ValueError(f"{name} takes {config.max_position_embeddings:,} tokens: pass shorter `--lengths`.")
    config.layer_types = ["full_attention"] * config.num_hidden_layers
    softmax = DseModel(config)
    # Without the parameters of the projections.
    softmax.load_state_dict(model.state_dict(), strict=False)
    return {"linear": model, "softmax": softmax}
