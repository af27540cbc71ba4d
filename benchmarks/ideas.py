# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Two ideas for faster attention on a CPU, each in turn with what stands in its place, on random states:

    python benchmarks/ideas.py [--dtype bfloat16] [--threads 1]

- Windows and slots in two softmaxes that are joined by their sums, against one softmax over both
  (`sliding_linear_attention`), alone and in a pass of an encoder: slots are not copied for each block then, and blocks
  not put together with them.
- The fused layer of torch (`torch._transformer_encoder_layer_fwd`) against a layer of `BertModel` with sdpa.
"""

from functools import partial
from statistics import median

import torch
from encoders import build
from timing import interleave, make_parser, set_threads, write_results
from transformers import BertConfig
from transformers.models.bert.modeling_bert import BertLayer

from hf_dse.modeling.attention_dse import (
    BLOCK_SIZE,
    LAYER_TYPES,
    LayerAttention,
    LayerInputs,
    attend_in_blocks,
    project,
    sliding_linear_attention,
)


HEADS, HEAD_DIM, WINDOW, SLOTS = 12, 32, 64, 128
BATCH_TOKENS, ROUNDS, MIN_SECONDS = 8192, 5, 0.2


def attend_with_sums(query, key, value, bias, sums):
    """sdpa's kernel on a CPU, which also returns the logarithm of each softmax's sum."""
    found, total = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(query, key, value, attn_mask=bias)
    sums.append(total)
    return found.transpose(1, 2), None


def attend(query, key, value, bias):
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, bias).transpose(1, 2), None


def joined(inputs: LayerInputs, layer: LayerAttention):
    """Attention to windows and to slots in two softmaxes, joined by their sums."""
    sums: list[torch.Tensor] = []
    with_sums = partial(attend_with_sums, sums=sums)
    near, _ = attend_in_blocks(inputs, max(BLOCK_SIZE, layer.window), layer.window, None, with_sums)
    far, _ = with_sums(inputs.query, *project(inputs, layer, None))
    batch_size, _, num_tokens, _ = inputs.query.shape
    # [B * N / C, H, C] as [B, N, H, 1]
    of_near = sums[0].unflatten(0, (batch_size, -1)).transpose(2, 3).flatten(1, 2)[:, :num_tokens, :, None]
    share = torch.sigmoid(of_near - sums[1].transpose(1, 2)[..., None]).to(near.dtype)
    return torch.lerp(far, near, share)


def fused(layer: BertLayer, states: torch.Tensor) -> torch.Tensor:
    """A layer without padding in one call of torch."""
    own, out = layer.attention.self, layer.attention.output
    parts = (own.query, own.key, own.value)
    weight, bias = (torch.cat([getattr(part, name) for part in parts]) for name in ("weight", "bias"))
    up, down = layer.intermediate.dense, layer.output.dense
    norms = out.LayerNorm, layer.output.LayerNorm
    return torch._transformer_encoder_layer_fwd(
        states, HEADS * HEAD_DIM, HEADS, weight, bias, out.dense.weight, out.dense.bias, True, False, norms[0].eps,
        norms[0].weight, norms[0].bias, norms[1].weight, norms[1].bias, up.weight, up.bias, down.weight, down.bias,
    )  # fmt: skip


def compare(name: str, tasks: dict) -> dict:
    values = [task() for task in tasks.values()]
    difference = (values[0].float() - values[1].float()).abs().max()
    seconds = {of: median(found) for of, found in interleave(tasks, ROUNDS, MIN_SECONDS).items()}
    times = "  ".join(f"{of} {1000 * value:.2f} ms" for of, value in seconds.items())
    first, second = seconds.values()
    print(f"{name:<32}{times}  speed {first / second:.2f}  largest difference {difference:.1e}", flush=True)
    return {name: seconds}


def compare_windows_and_slots(num_tokens: int, dtype: torch.dtype) -> dict:
    shape = BATCH_TOKENS // num_tokens, HEADS, num_tokens, HEAD_DIM
    inputs = LayerInputs(*(torch.randn(shape).to(dtype) for _ in range(3)), None)
    layer = LayerAttention("sliding_linear_attention", SLOTS, window=WINDOW)
    one = partial(sliding_linear_attention, inputs, layer, None, attend)
    return compare(
        f"windows and slots, {num_tokens}", {"one softmax": lambda: one()[0], "joined": partial(joined, inputs, layer)}
    )


def compare_passes(num_tokens: int, dtype: torch.dtype) -> dict:
    kind = "sliding_linear_attention"
    model = build("minilm", "sliding_linear", num_tokens, SLOTS, dtype).eval()
    input_ids = torch.randint(1000, (BATCH_TOKENS // num_tokens, num_tokens))

    def run(function) -> torch.Tensor:
        own, LAYER_TYPES[kind] = LAYER_TYPES[kind], function
        try:
            return model(input_ids).last_hidden_state
        finally:
            LAYER_TYPES[kind] = own

    def with_sums(inputs, layer, linformer, attend):
        return joined(inputs, layer), None

    tasks = {"one softmax": partial(run, LAYER_TYPES[kind]), "joined": partial(run, with_sums)}
    return compare(f"pass with both, {num_tokens}", tasks)


def compare_layers(num_tokens: int, dtype: torch.dtype) -> dict:
    config = BertConfig(
        hidden_size=HEADS * HEAD_DIM, num_attention_heads=HEADS, intermediate_size=4 * HEADS * HEAD_DIM
    )
    config._attn_implementation = "sdpa"
    layer = BertLayer(config).eval().to(dtype)
    states = torch.randn(BATCH_TOKENS // num_tokens, num_tokens, config.hidden_size).to(dtype)
    return compare(
        f"layer of BERT, {num_tokens}", {"sdpa": partial(layer, states), "fused": partial(fused, layer, states)}
    )


@torch.inference_mode()
def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"])
    args = parser.parse_args()
    set_threads(args.threads)
    torch.manual_seed(0)
    dtype, seconds = getattr(torch, args.dtype), {}
    for num_tokens in (512, 2048, 8192):
        seconds |= compare_windows_and_slots(num_tokens, dtype) | compare_passes(num_tokens, dtype)
    for num_tokens in (24, 128, 512, 2048):
        seconds |= compare_layers(num_tokens, dtype)
    write_results(args, {"dtype": args.dtype, "seconds": seconds})


if __name__ == "__main__":
    main()
