# Copyright 2026 The hf-dse authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""DSE model configuration"""

import copy
from typing import Any, Literal

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig
from transformers.configuration_utils import PreTrainedConfig
from transformers.utils import auto_docstring
from transformers.utils.type_validators import positive_int_field


LAYER_TYPES = (
    "full_attention",
    "linear_attention",
    "sliding_attention",
    "chunked_attention",
    "sliding_linear_attention",
)

# Fields that the configuration of an encoder must have.
NEEDED = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings")


@auto_docstring(
    custom_intro="""
    Configuration of a distilled sentence embedding (DSE, [Barkan et al., 2020](https://huggingface.co/papers/1908.05161))
    model: an encoder of transformers, whose layers attend linearly
    (Linformer, [Wang et al., 2020](https://huggingface.co/papers/2006.04768)).
    """,
    checkpoint="hf-dse/dse-minilm-l6",
)
@strict
class DseConfig(PreTrainedConfig):
    r"""
    encoder (`dict` or `PreTrainedConfig`, *optional*):
        Configuration of the encoder inside, of any type that dispatches its attention, such as
        [`~transformers.BertConfig`] (the default) or [`~transformers.ModernBertConfig`]. Its weights keep their names.
    layer_types (`list[str]`, *optional*):
        Attention of each layer: `"linear_attention"` (k slots of the text; the default where the encoder attends to
        all tokens), `"sliding_attention"` (the tokens at most `sliding_window` before and after; the default where the
        encoder does that), `"sliding_linear_attention"` (both in one softmax), `"chunked_attention"` (the token's
        chunk of `attention_chunk_size` tokens, and both ends of the text) or `"full_attention"`.
    linformer_length (`int` or `list[int]`, *optional*, defaults to 128):
        Projected length k: the number of rows that keys and values are projected to, one for all layers or one per
        layer, at least 3. Texts of up to k tokens are attended exactly. In longer ones the first and the last token
        keep slots of their own, because pretrained encoders use them as attention sinks.
    linformer_projection (`str`, *optional*, defaults to `"strided"`):
        How to project n tokens to k slots: `"learned"` (the matrices E and F of the paper, added to a fixed start, see
        `linformer_init`), `"mean"` (of the tokens of k segments) or `"strided"` (evenly spaced tokens, with another
        offset in each layer). The last two have no parameters. Keys with rotary positions should not be averaged:
        `"strided"` keeps them.
    linformer_init (`str`, *optional*, defaults to `"mean"`):
        Start of a `"learned"` projection, to which E and F, at first 0, are added: `"mean"` or `"strided"`.
    linformer_sharing (`str`, *optional*, defaults to `"key_value"`):
        Parts that share a learned projection: `"none"` (every head has its own E and F), `"headwise"` (one E and one
        F per layer), `"key_value"` (one E = F per layer) or `"layerwise"` (one E = F for the whole model).
    sliding_window (`int`, *optional*):
        Tokens before and after a token that it attends to in layers with a window. Defaults to those of the encoder,
        or 64.
    attention_chunk_size (`int`, *optional*, defaults to 512):
        Tokens of a chunk in the layers of type `"chunked_attention"`. Texts of up to so many are attended exactly. In
        longer ones the first and the last token are keys of all chunks, because pretrained encoders use them as
        attention sinks ([Xiao et al., 2023](https://huggingface.co/papers/2309.17453)).
    max_position_embeddings (`int`, *optional*):
        Longest input in tokens. Defaults to the limit of the encoder. Beyond a table of learned positions they start
        again; rotary positions go on.
    pooling_mode (`str`, *optional*, defaults to `"mean"`):
        How token vectors become one vector: `"mean"` or `"cls"` (the first token).
    projection_dim (`int`, *optional*):
        Output size of a linear layer, through which the token vectors go before they are pooled. Without it there is
        no such layer, and a sentence embedding has the size `hidden_size`.
    normalize_embeddings (`bool`, *optional*, defaults to `False`):
        Whether sentence embeddings are scaled to length 1, as by the module `Normalize` of sentence-transformers.
    similarity (`str`, *optional*, defaults to `"cosine"`):
        How two embeddings become logits: `"cosine"` or `"dot"` with a learned scale and bias, or `"mlp"`, the DSE head
        on `[u, v, u * v, |u - v|]`.
    similarity_hidden_size (`int`, *optional*, defaults to 512):
        Hidden size of the `"mlp"` similarity.
    sep_token_id (`int`, *optional*):
        The token that ends every sentence. Where a tokenizer gives no token type ids, pairs are split at it.
    num_pair_separators (`int`, *optional*, defaults to 1):
        Number of `sep_token_id` between the two sentences of a pair: 1 for BERT, 2 for RoBERTa.

    Examples:

    ```python
    >>> from transformers import ModernBertConfig
    >>> from hf_dse import DseConfig, DseModel

    >>> encoder = ModernBertConfig(num_hidden_layers=4, hidden_size=384, num_attention_heads=6, intermediate_size=576)
    >>> model = DseModel(DseConfig(encoder=encoder, linformer_length=256))
    >>> model.config.layer_types
    ['linear_attention', 'sliding_attention', 'sliding_attention', 'linear_attention']
    ```"""

    model_type = "dse"
    sub_configs = {"encoder": AutoConfig}
    # The Trainer would gather them over the evaluation set.
    keys_to_ignore_at_inference = ["embeddings"]

    encoder: dict | PreTrainedConfig | None = None
    layer_types: list[str] | None = None
    linformer_length: int | list[int] = 128
    linformer_projection: Literal["learned", "mean", "strided"] = "strided"
    linformer_init: Literal["mean", "strided"] = "mean"
    linformer_sharing: Literal["none", "headwise", "key_value", "layerwise"] = "key_value"
    sliding_window: int | None = positive_int_field(default=None)
    attention_chunk_size: int = positive_int_field(default=512)
    max_position_embeddings: int | None = positive_int_field(default=None)
    pooling_mode: Literal["mean", "cls"] = "mean"
    projection_dim: int | None = positive_int_field(default=None)
    normalize_embeddings: bool = False
    similarity: Literal["cosine", "dot", "mlp"] = "cosine"
    similarity_hidden_size: int = positive_int_field(default=512)
    sep_token_id: int | None = None
    num_pair_separators: Literal[1, 2] = 1

    def __post_init__(self, **kwargs: Any) -> None:
        if self.encoder is None:
            self.encoder = {"model_type": "bert"}
        if isinstance(self.encoder, dict):
            self.encoder = AutoConfig.for_model(**self.encoder)
        # Its attention implementation is set, which must not change that of another model.
        encoder: Any = copy.deepcopy(self.encoder)
        self.encoder = encoder
        missing = [name for name in NEEDED if not hasattr(encoder, name)]
        if missing:
            raise ValueError(
                f"`encoder` is a configuration of the type {encoder.model_type!r}, which has no {', '.join(missing)}: "
                "pass that of a text encoder, such as BERT or ModernBERT."
            )
        if self.layer_types is None:
            kinds = getattr(encoder, "layer_types", None) or ["full_attention"] * encoder.num_hidden_layers
            self.layer_types = [kind if kind == "sliding_attention" else "linear_attention" for kind in kinds]
        if self.max_position_embeddings is None:
            self.max_position_embeddings = encoder.max_position_embeddings
        # The Trainer compares them with those of the tokenizer.
        for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
            kwargs.setdefault(name, getattr(encoder, name, None))
        super().__post_init__(**kwargs)
        # Every checkpoint carries its own code, so these are the names of the files beside it, for all classes.
        self.auto_map = {
            "AutoConfig": "configuration_dse.DseConfig",
            "AutoModel": "modeling_dse.DseModel",
            "AutoModelForSequenceClassification": "modeling_dse.DseForSequenceClassification",
        }

    def to_dict(self) -> dict[str, Any]:
        """The fields as they stand in `config.json`."""
        fields = super().to_dict()
        # Servers take a checkpoint with another architecture for a classifier, but it embeds texts in any case.
        fields["architectures"] = ["DseModel"]
        # The CrossEncoder of sentence-transformers reads here that scores have the range of the labels.
        is_probability = self.problem_type == "multi_label_classification"
        fields["sentence_transformers"] = {"activation_fn": f"torch.nn.{'Sigmoid' if is_probability else 'Identity'}"}
        return fields

    def to_diff_dict(self) -> dict[str, Any]:
        """The differences from the defaults, as they stand in `config.json`."""
        encoder = self.encoder.to_diff_dict()  # type: ignore[union-attr]
        # Where it was on the machine that converted it.
        encoder.pop("_name_or_path", None)
        fields = super().to_diff_dict() | {"encoder": encoder}
        return {name: value for name, value in fields.items() if value is not None}

    @property
    def vocab_size(self) -> int:
        """Size of the vocabulary of the encoder."""
        return self.encoder.vocab_size  # type: ignore[union-attr]

    @vocab_size.setter
    def vocab_size(self, value: int) -> None:
        self.encoder.vocab_size = value  # type: ignore[union-attr]

    @property
    def hidden_size(self) -> int:
        """Size of the token vectors of the encoder."""
        return self.encoder.hidden_size  # type: ignore[union-attr]

    @property
    def num_hidden_layers(self) -> int:
        """Layers of the encoder."""
        return self.encoder.num_hidden_layers  # type: ignore[union-attr]

    @property
    def num_attention_heads(self) -> int:
        """Heads of a layer of the encoder."""
        return self.encoder.num_attention_heads  # type: ignore[union-attr]

    @property
    def projected_lengths(self) -> list[int]:
        """The projected length k of each layer."""
        lengths = self.linformer_length
        return lengths if isinstance(lengths, list) else [lengths] * self.num_hidden_layers

    @property
    def linformer_start(self) -> str:
        """Slots before anything is learned: `"strided"` or `"mean"`."""
        return self.linformer_init if self.linformer_projection == "learned" else self.linformer_projection

    @property
    def pooled_size(self) -> int:
        """Size of the token vectors before the projection, if there is one."""
        # The last vectors of EmbeddingGemma have a size of their own.
        return getattr(self.encoder, "embedding_dim", None) or self.hidden_size

    @property
    def embedding_size(self) -> int:
        """Size of a sentence embedding."""
        return self.projection_dim or self.pooled_size

    def validate_layer_type(self) -> None:
        """Part of `@strict`-powered validation. Validates the types of the layers."""
        kinds = self.layer_types or []
        if not set(kinds) <= set(LAYER_TYPES) or len(kinds) != self.num_hidden_layers:
            raise ValueError(
                f"`layer_types` must name one of {', '.join(LAYER_TYPES)} for each of the {self.num_hidden_layers} "
                f"layers, got {kinds}."
            )

    def validate_architecture(self) -> None:
        """Part of `@strict`-powered validation. Validates the architecture of the config."""
        if (self.num_labels or 0) < 1:
            raise ValueError(f"`num_labels` must be at least 1, got {self.num_labels}.")
        lengths = self.projected_lengths
        if len(lengths) != self.num_hidden_layers:
            raise ValueError(
                f"`linformer_length` lists {len(lengths)} projected lengths for {self.num_hidden_layers} layers: give "
                "one integer, or one per layer (the entries of the other layers are ignored)."
            )
        kinds = zip(lengths, self.layer_types or [], strict=False)
        lengths = [length for length, kind in kinds if "linear" in kind]
        if min(lengths, default=3) < 3:
            raise ValueError(
                "`linformer_length` must be at least 3, because the first and the last token keep slots of their own, "
                f"got {self.linformer_length}."
            )
        is_plain = set(self.layer_types or []) <= {"full_attention", "linear_attention"}
        if self.encoder.model_type == "mpnet" and not (  # type: ignore[union-attr]
            is_plain and self.linformer_projection == "strided"
        ):
            raise ValueError(
                "MPNet looks its position bias up by the distance of two tokens, so it takes "
                '`linformer_projection="strided"`, whose slots are tokens, and layers of full_attention and '
                f"linear_attention, got {self.linformer_projection!r} and {self.layer_types}."
            )
        if self.linformer_sharing == "layerwise" and len(set(lengths)) > 1:
            raise ValueError(
                '`linformer_sharing="layerwise"` has one projection for all layers, but `linformer_length` is '
                f'{lengths}: give one length, or share less (`linformer_sharing="key_value"`).'
            )


__all__ = ["DseConfig"]
