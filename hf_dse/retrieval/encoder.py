# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""An encoder in memory, such as one that is being trained, as the first module of a `SentenceTransformer`."""

import inspect
from typing import Any

from sentence_transformers.base.modules import InputModule
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_dse.data.tokenization import count_token_types


class Encoder(InputModule):
    """
    A model with its tokenizer. The embedding is the `pooler_output` of DSE models, and the mean of `last_hidden_state`
    without padding of all others, in float32.
    """

    def __init__(self, model: PreTrainedModel, processing_class: PreTrainedTokenizerBase, **lengths: int):
        super().__init__()
        self.model = model
        self.tokenizer: Any = processing_class
        self.query_length, self.document_length = lengths.get("query_length"), lengths.get("document_length")
        has_types = "token_type_ids" in inspect.signature(model.base_model.forward).parameters
        # The tokenizer of BERT before a RoBERTa gives types beyond its embeddings.
        names = ["input_ids", "attention_mask", "token_type_ids"]
        self.inputs = names if has_types and count_token_types(model.config) > 1 else names[:2]

    @property
    def max_seq_length(self) -> int:
        return self.tokenizer.model_max_length

    @max_seq_length.setter
    def max_seq_length(self, value: int) -> None:
        self.tokenizer.model_max_length = value

    def preprocess(self, inputs: Any, prompt: str | None = None, task: str | None = None, **options: Any) -> Any:
        limit = getattr(self, f"{task}_length", None) or self.max_seq_length
        texts = [(prompt or "") + text for text in inputs]
        batch = self.tokenizer(texts, padding=True, truncation=True, max_length=limit, return_tensors="pt")
        return {name: batch[name] for name in self.inputs if name in batch}

    def forward(self, features: dict[str, Any], **options: Any) -> dict[str, Any]:
        outputs = self.model.base_model(**{name: features[name] for name in self.inputs if name in features})
        if self.model.config.model_type == "dse":
            return {**features, "sentence_embedding": outputs.pooler_output.float()}
        mask = features["attention_mask"][..., None].float()  # [B, N, 1]
        mean = (outputs.last_hidden_state.float() * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1.0)
        return {**features, "sentence_embedding": mean}

    def get_embedding_dimension(self) -> int:
        config: Any = self.model.config
        return config.embedding_size if config.model_type == "dse" else config.hidden_size

    def save(self, output_path: str, *args: Any, **options: Any) -> None:
        raise TypeError("An encoder in memory is saved with `export`, or its own `save_pretrained`.")
