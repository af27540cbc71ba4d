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

import json
import os
from pathlib import Path
from typing import Any, Literal

from huggingface_hub.dataclasses import strict
from transformers.activations import ACT2FN
from transformers.configuration_utils import PreTrainedConfig
from transformers.utils import auto_docstring


SETTINGS = "config_sentence_transformers.json"
LENGTHS = "sentence_bert_config.json"

# More than any encoder has: millions of layers or labels take hours.
MOST_LAYERS, MOST_LABELS = 1000, 100_000

# Maximum tokens of texts of one kind.
TEXT_LENGTHS = ("query_length", "document_length")

# Fields that are sizes or counts.
SIZES = (
    "vocab_size",
    "hidden_size",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "attention_chunk_size",
    "pooling_layers",
    "projection_dim",
    "similarity_hidden_size",
    "num_labels",
)


def sentence_transformers_files(config: "DseConfig") -> dict[str, Any]:
    """The files, by name, that make `SentenceTransformer(folder)` return the `pooler_output` of `DseModel`."""
    modules = ["Transformer", "Pooling"] + ["Normalize"] * config.normalize_embeddings
    lengths = {name: value for name in TEXT_LENGTHS if (value := getattr(config, name)) is not None}
    return {
        "modules.json": [
            {
                "idx": number,
                "name": str(number),
                "path": f"{number}_{module}" if number else "",
                "type": f"sentence_transformers.models.{module}",
            }
            for number, module in enumerate(modules)
        ],
        # One key for each mode, which the tools that pool themselves read.
        "1_Pooling/config.json": {
            "word_embedding_dimension": config.projection_dim,
            "pooling_mode_cls_token": config.pooling_mode == "cls",
            "pooling_mode_mean_tokens": config.pooling_mode == "mean",
            "pooling_mode_max_tokens": config.pooling_mode == "max",
            "pooling_mode_mean_sqrt_len_tokens": False,
            "pooling_mode_weightedmean_tokens": False,
            "pooling_mode_lasttoken": False,
            "include_prompt": True,
        },
        SETTINGS: {
            "model_type": "SentenceTransformer",
            "prompts": {"query": "", "document": "", **(config.prompts or {})},
            "default_prompt_name": None,
            # sentence-transformers has no similarity function for the head of DSE ("mlp").
            "similarity_fn_name": "dot" if config.similarity == "dot" else "cosine",
            # Older versions fail on this code with unclear errors.
            "requirements": {"transformers": ">=5.20"},
        },
        **({LENGTHS: lengths} if lengths else {}),
    }


def keeps_settings(folder: Path, prompts: dict[str, str] | None) -> bool:
    """
    Whether the settings in a folder, such as prompts, are those of sentence-transformers (with its version) for the
    model that is saved there now, and not for one before that had other prompts in its `config.json`.
    """
    settings, modules, config = (folder / name for name in (SETTINGS, "modules.json", "config.json"))
    if not settings.exists() or '"__version__"' not in settings.read_text(encoding="utf-8"):
        return False
    # It saves its settings first, then the model, and the modules last: these are older only while it is saving.
    if not modules.exists() or modules.stat().st_mtime_ns < settings.stat().st_mtime_ns:
        return True
    try:
        return not config.exists() or json.loads(config.read_text(encoding="utf-8")).get("prompts") == prompts
    except ValueError:  # a damaged file, which is about to be replaced
        return False


@auto_docstring(
    custom_intro="""
    Configuration of a distilled sentence embedding (DSE, [Barkan et al., 2020](https://huggingface.co/papers/1908.05161))
    encoder with Linformer attention ([Wang et al., 2020](https://huggingface.co/papers/2006.04768)). The architecture
    is BERT's; in the layers of type `"linear_attention"` keys and values are projected along the sequence to
    `linformer_length` rows. A layer may also be of type `"chunked_attention"`, whose tokens attend to their own chunk
    of `attention_chunk_size` tokens and to both ends of the text, or `"full_attention"`.
    """,
    checkpoint="hf-dse/dse-minilm-l6",
)
@strict
class DseConfig(PreTrainedConfig):
    r"""
    linformer_length (`int` or `list[int]`, *optional*, defaults to 128):
        Projected length k: the number of rows that keys and values are projected to, one for all layers or one per
        layer, at least 3. Texts of up to k tokens are attended exactly. In longer ones the first and the last token
        keep slots of their own, for pretrained encoders lean on them.
    linformer_projection (`str`, *optional*, defaults to `"learned"`):
        How n tokens become k slots: `"learned"` (the matrices E and F of the paper, added to a fixed start, see
        `linformer_init`), `"conv"` (E has the structure of a convolution whose kernel and stride are n / k tokens),
        `"mean"` or `"max"` (pooling of k segments) or `"strided"` (evenly spaced tokens, with another offset in each
        layer). The last three have no parameters and no length limit of their own.
    linformer_init (`str`, *optional*, defaults to `"mean"`):
        What `"learned"` and `"conv"` projections start from: `"mean"`, `"strided"`, or `"random"` (no fixed start and
        normally distributed E and F with variance 1 / k, as in theorem 2 of the Linformer paper). Ignored by the
        projections without parameters.
    linformer_sharing (`str`, *optional*, defaults to `"key_value"`):
        What shares a learned projection: `"none"` (every head has its own E and F), `"headwise"` (one E and one F per
        layer), `"key_value"` (one E = F per layer) or `"layerwise"` (one E = F for the whole model).
    attention_chunk_size (`int`, *optional*, defaults to 512):
        Tokens of a chunk in the layers of type `"chunked_attention"`. Texts of up to so many are attended exactly. In
        longer ones the first and the last token are keys of all chunks, for pretrained encoders lean on them
        (attention sinks, [Xiao et al., 2023](https://huggingface.co/papers/2309.17453)).
    funnel_layers (`int`, *optional*, defaults to 0):
        How many of the last layers, of type `"linear_attention"`, have k rows instead of n tokens, as in
        Funnel-Transformer ([Dai et al., 2020](https://huggingface.co/papers/2006.03236)): before the first of them all
        states are projected to k rows, after the last one every token gets the state of its row. Texts of up to k
        tokens are not changed. Only for the projections `"strided"`, `"mean"` and `"max"`.
    pooling_mode (`str`, *optional*, defaults to `"mean"`):
        How token vectors become one vector: `"mean"`, `"cls"` (the first token) or `"max"`.
    pooling_layers (`int`, *optional*, defaults to 1):
        How many of the last layers are concatenated on the feature axis before pooling (4 in the DSE paper).
    projection_dim (`int`, *optional*):
        Size of the sentence embedding. A linear layer, through which the token vectors go before they are pooled, is
        added only where it differs from their size, `pooling_layers * hidden_size`, the default.
    square_projection (`bool`, *optional*, defaults to `False`):
        Whether there is a linear layer where the sizes are equal, too, as after whitening that keeps all numbers.
    normalize_embeddings (`bool`, *optional*, defaults to `False`):
        Whether sentence embeddings are scaled to length 1, as by the module `Normalize` of sentence-transformers.
    prompts (`dict[str, str]`, *optional*):
        Texts that stand before others, by name: `"query"` before queries, `"document"` before the texts of a corpus.
    query_length (`int`, *optional*):
        Maximum number of tokens of a query. Defaults to that of all texts, the `model_max_length` of the tokenizer.
    document_length (`int`, *optional*):
        The same for the texts of a corpus.
    similarity (`str`, *optional*, defaults to `"cosine"`):
        How two embeddings become logits: `"cosine"` or `"dot"` with a learned scale and bias, or `"mlp"`, the DSE head
        on `[u, v, u * v, |u - v|]`.
    similarity_hidden_size (`int`, *optional*, defaults to 512):
        Hidden size of the `"mlp"` similarity.
    sep_token_id (`int`, *optional*):
        The token that ends every sentence; where a tokenizer gives no token type ids, a pair is split at it.
    num_pair_separators (`int`, *optional*, defaults to 1):
        How many `sep_token_id` stand between the two sentences of a pair: 1 for BERT, 2 for RoBERTa.
    position_extension (`str`, *optional*):
        How positions go beyond the limit of the source encoder: `"dynamic"`, where those of a text that is longer than
        the table span the table, and all others are as they were; or `"tile"`, where they start again at the end of
        the table.
    original_max_position_embeddings (`int`, *optional*):
        Rows of the position table, if there is a `position_extension`.

    Examples:

    ```python
    >>> from hf_dse import DseConfig, DseModel

    >>> config = DseConfig(num_hidden_layers=6, hidden_size=384, num_attention_heads=12, intermediate_size=1536)
    >>> model = DseModel(config)
    >>> model.config.layer_types[0]
    'linear_attention'
    ```"""

    model_type = "dse"
    # The Trainer would gather them over the evaluation set.
    keys_to_ignore_at_inference = ["embeddings"]

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float | int = 0.1
    attention_probs_dropout_prob: float | int = 0.0
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    pad_token_id: int | None = 0
    layer_types: list[str] | None = None
    linformer_length: int | list[int] = 128
    linformer_projection: Literal["learned", "conv", "mean", "max", "strided"] = "learned"
    linformer_init: Literal["mean", "strided", "random"] = "mean"
    linformer_sharing: Literal["none", "headwise", "key_value", "layerwise"] = "key_value"
    attention_chunk_size: int = 512
    funnel_layers: int = 0
    pooling_mode: Literal["mean", "cls", "max"] = "mean"
    pooling_layers: int = 1
    projection_dim: int | None = None
    square_projection: bool = False
    normalize_embeddings: bool = False
    prompts: dict[str, str] | None = None
    query_length: int | None = None
    document_length: int | None = None
    similarity: Literal["cosine", "dot", "mlp"] = "cosine"
    similarity_hidden_size: int = 512
    sep_token_id: int | None = None
    num_pair_separators: int = 1
    position_extension: Literal["dynamic", "tile"] | None = None
    original_max_position_embeddings: int | None = None

    def __post_init__(self, **kwargs):
        # A field of older checkpoints: the ends have slots of their own now, as they had by default.
        if not kwargs.pop("linformer_keep_ends", True):
            raise ValueError(
                "`linformer_keep_ends=False` is gone: the first and the last token always keep their slots."
            )
        # Before there are lists of them.
        num_labels = kwargs.get("num_labels", 1)
        if not isinstance(num_labels, int) or not 1 <= num_labels <= MOST_LABELS:
            raise ValueError(f"`num_labels` must be from 1 to {MOST_LABELS}, got {num_labels!r}.")
        if isinstance(self.num_hidden_layers, int) and not 1 <= self.num_hidden_layers <= MOST_LAYERS:
            raise ValueError(f"`num_hidden_layers` must be from 1 to {MOST_LAYERS}, got {self.num_hidden_layers}.")
        if self.layer_types is None:
            self.layer_types = ["linear_attention"] * self.num_hidden_layers
        if self.projection_dim is None:
            self.projection_dim = self.pooling_layers * self.hidden_size
        # Empty prompts are none, so that they leave no trace.
        self.prompts = {name: text for name, text in (self.prompts or {}).items() if text} or None
        super().__post_init__(**kwargs)
        # Every checkpoint carries its own code, so the names are always those of the files beside it, for all classes.
        self.auto_map = {
            "AutoConfig": "configuration_dse.DseConfig",
            "AutoModel": "modeling_dse.DseModel",
            "AutoModelForSequenceClassification": "modeling_dse.DseForSequenceClassification",
        }

    def save_pretrained(self, save_directory: str | os.PathLike, **kwargs: Any):
        """
        Saves `config.json` and, for sentence-transformers and the tools that read its files, how token vectors become
        a sentence embedding.

        Args:
            save_directory (`str` or `os.PathLike`):
                The folder.
            kwargs:
                Other arguments of [`~transformers.PreTrainedConfig.save_pretrained`].
        """
        # Servers take a checkpoint with another architecture for a classifier, but it embeds texts in any case.
        self.architectures = ["DseModel"]
        # Scores have the range of the labels, as sentence-transformers' CrossEncoder reads here.
        is_probability = self.problem_type == "multi_label_classification"
        self.sentence_transformers = {"activation_fn": f"torch.nn.{'Sigmoid' if is_probability else 'Identity'}"}
        folder = Path(save_directory)
        # That of a model that was saved here before.
        (folder / LENGTHS).unlink(missing_ok=True)
        files = sentence_transformers_files(self)
        if keeps_settings(folder, self.prompts):
            del files[SETTINGS]
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        super().save_pretrained(save_directory, **kwargs)

    def to_dict(self) -> dict[str, Any]:
        """The fields; without prompts and lengths of texts where there are none: such models are saved as before."""
        fields = super().to_dict()
        for name in ("prompts", *TEXT_LENGTHS):
            if fields.get(name) is None:
                fields.pop(name, None)
        return fields

    @property
    def projected_lengths(self) -> list[int]:
        """The projected length k of each layer."""
        lengths = self.linformer_length
        return lengths if isinstance(lengths, list) else [lengths] * self.num_hidden_layers

    @property
    def is_projection_learned(self) -> bool:
        """Whether the projection has parameters, E and F."""
        return self.linformer_projection in ("learned", "conv")

    @property
    def linformer_start(self) -> str:
        """What fills the slots before anything is learned: `"strided"`, `"mean"`, `"max"`, or `"random"`, nothing."""
        return self.linformer_init if self.is_projection_learned else self.linformer_projection

    def validate_architecture(self):
        """Part of `@strict`-powered validation. Validates the architecture of the config."""
        self._validate_numbers()
        if self.hidden_size % self.num_attention_heads != 0:
            raise ValueError(
                f"`hidden_size` ({self.hidden_size}) must be a multiple of `num_attention_heads` "
                f"({self.num_attention_heads})."
            )
        unknown = set(self.layer_types) - {"linear_attention", "chunked_attention", "full_attention"}
        if unknown:
            raise ValueError(
                f'`layer_types` has {sorted(unknown)}; allowed are "linear_attention", "chunked_attention" and '
                '"full_attention".'
            )
        if not 1 <= self.pooling_layers <= self.num_hidden_layers:
            raise ValueError(
                f"`pooling_layers` must be between 1 and `num_hidden_layers` ({self.num_hidden_layers}), got "
                f"{self.pooling_layers}."
            )
        for name in TEXT_LENGTHS:
            length = getattr(self, name)
            if length is not None and not 1 <= length <= self.max_position_embeddings:
                raise ValueError(
                    f"`{name}` must be from 1 to `max_position_embeddings` ({self.max_position_embeddings}), got "
                    f"{length}."
                )
        if self.num_pair_separators not in (1, 2):
            raise ValueError(f"`num_pair_separators` must be 1 or 2, got {self.num_pair_separators}.")
        size = self.original_max_position_embeddings
        if (size is None) != (self.position_extension is None) or (size is not None and size < 2):
            raise ValueError(
                '`original_max_position_embeddings`, at least 2, and `position_extension="dynamic"` or "tile" go '
                f"together, got {size} and {self.position_extension!r}."
            )
        self._validate_linformer()

    def _validate_numbers(self):
        for name in SIZES:
            if (getattr(self, name) or 0) < 1:
                raise ValueError(f"`{name}` must be at least 1, got {getattr(self, name)}.")
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"`{name}` must be from 0 to 1, got {getattr(self, name)}.")
        for name in ("type_vocab_size", "initializer_range", "layer_norm_eps"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"`{name}` must be a finite number of at least 0, got {getattr(self, name)}.")
        if self.pad_token_id is not None and not 0 <= self.pad_token_id < self.vocab_size:
            raise ValueError(f"`pad_token_id` must be from 0 to `vocab_size` - 1, got {self.pad_token_id}.")
        if self.hidden_act not in ACT2FN:
            raise ValueError(f"`hidden_act` must be one of {', '.join(ACT2FN)}, got {self.hidden_act!r}.")

    def _validate_linformer(self):
        lengths = self.linformer_length
        if isinstance(lengths, list) and len(lengths) != self.num_hidden_layers:
            raise ValueError(
                f"`linformer_length` lists {len(lengths)} projected lengths for {self.num_hidden_layers} layers: give "
                "one integer, or one per layer (the entries of the other layers are ignored)."
            )
        kinds = zip(self.projected_lengths, self.layer_types, strict=False)
        lengths = [length for length, kind in kinds if kind == "linear_attention"]
        if min(lengths, default=3) < 3:
            raise ValueError(
                "`linformer_length` must be at least 3, for the first and the last token keep slots of their own, got "
                f"{self.linformer_length}."
            )
        if self.linformer_sharing == "layerwise" and len(set(lengths)) > 1:
            raise ValueError(
                '`linformer_sharing="layerwise"` has one projection for all layers, but `linformer_length` is '
                f'{lengths}: give one length, or share less (`linformer_sharing="key_value"`).'
            )
        self._validate_funnel()

    def _validate_funnel(self):
        count = self.funnel_layers
        if not 0 <= count < self.num_hidden_layers:
            raise ValueError(
                f"`funnel_layers` must be from 0 to {self.num_hidden_layers - 1}, one less than there are layers, got "
                f"{count}."
            )
        if count and self.is_projection_learned:
            raise ValueError(
                f"`funnel_layers={count}` needs a projection without weights: choose `linformer_projection` "
                f'"strided", "mean" or "max" instead of "{self.linformer_projection}".'
            )
        of_funnel = set(list(zip(self.layer_types, self.projected_lengths, strict=False))[-count:]) if count else set()
        if len(of_funnel) > 1 or {kind for kind, _ in of_funnel} - {"linear_attention"}:
            raise ValueError(
                f'The last {count} layers (`funnel_layers`) must be of the type "linear_attention" with one projected '
                f"length, got {self.layer_types[-count:]} and {self.projected_lengths[-count:]}."
            )


__all__ = ["DseConfig"]
