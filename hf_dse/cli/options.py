# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Options that several commands share."""

from dataclasses import dataclass
from typing import Any

from hf_dse.common.options import HfArg


# Metadata of a field `model_name_or_path`.
MODEL = {"help": "Hub id (user/name, or user/name@commit) or folder of an embedding model."}


@dataclass
class LoadArguments:
    """How to run the models."""

    trust_remote_code: bool = HfArg(default=False, help="Run the code that comes with the models.")
    dtype: str = HfArg(
        default="float32",
        help="Data type of the weights; auto: that of the checkpoint.",
        metadata={"choices": ["float32", "bfloat16", "float16", "auto"]},
    )
    device: str | None = HfArg(default=None, help="Such as cpu or cuda:0. Default: a GPU if any.")
    max_length: int | None = HfArg(default=None, help="Tokens per text or pair. Default: as the model says.")
    batch_size: int = HfArg(default=32, help="Texts or pairs per batch; fewer if they are long.")

    @property
    def loading(self) -> dict[str, Any]:
        """The options of `to_sentence_transformer`."""
        return {name: value for name, value in vars(self).items() if name != "batch_size"}
