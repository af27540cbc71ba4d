# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse whiten`."""

import logging
from dataclasses import dataclass, field
from typing import Any

from hf_dse.common.files import check_target, to_path


logger = logging.getLogger(__name__)


@dataclass
class WhitenArguments:
    """Which embeddings to whiten, and the texts to fit on."""

    model_name_or_path: str = field(metadata={"help": "A DSE model without a projection: a Hub id or a folder."})
    train_file: str = field(
        metadata={"help": "Texts to fit on: .txt with one text per line, or csv, json, jsonl, parquet."}
    )
    output_dir: str = field(metadata={"help": "Folder to write."})
    projection_dim: int = field(metadata={"help": "Dimensions of a new embedding, at most as many as now."})
    power: float = field(default=0.5, metadata={"help": "0: PCA. 1: full whitening. Between: partial whitening."})
    text_column: str = field(default="text", metadata={"help": "Column of the texts in a table."})
    max_train_samples: int | None = field(default=None, metadata={"help": "Fit on so many texts. Default: all."})
    max_length: int | None = field(
        default=None,
        metadata={"help": "Maximum number of tokens per text. Default: the `model_max_length` of the tokenizer."},
    )
    batch_size: int = field(default=32, metadata={"help": "Texts per batch."})
    overwrite_output_dir: bool = field(default=False, metadata={"help": "Replace a folder that is not empty."})


def whiten(args: WhitenArguments) -> None:
    """
    Level the spread of a student's embeddings, or make them smaller, by whitening or PCA, without training.

    hf-dse whiten --model_name_or_path converted --train_file texts.txt --projection_dim 256 --output_dir smaller
    """
    from hf_dse.common.devices import choose_device
    from hf_dse.common.loading import load_tokenizer
    from hf_dse.common.provenance import describe_command, describe_source
    from hf_dse.convert.student import has_head, load_dse_model
    from hf_dse.convert.whiten import whiten_encoder
    from hf_dse.data.texts import load_texts
    from hf_dse.publish.export import export_model

    check_target(to_path(args.output_dir), args.overwrite_output_dir)
    texts = load_texts(args.train_file, args.text_column, args.max_train_samples)["text"][:]
    model: Any = load_dse_model(args.model_name_or_path)
    model.to(choose_device())
    if has_head(model):
        logger.warning(
            f"The head of {args.model_name_or_path} is left out: it was trained for the original embeddings. "
            "`hf-dse distill` adds a new head to the whitened encoder."
        )
        model = model.dse
    tokenizer = load_tokenizer(args.model_name_or_path)
    size = model.config.embedding_size
    whiten_encoder(
        model,
        tokenizer,
        texts,
        args.projection_dim,
        power=args.power,
        max_length=args.max_length,
        batch_size=args.batch_size,
    )
    source = describe_source(args.model_name_or_path).name
    recipe = {
        "whitened": f"{source}, {size} to {args.projection_dim} dimensions, power {args.power}, {len(texts)} texts",
        "command": describe_command(),
    }
    folder = export_model(model, tokenizer, args.output_dir, recipe=recipe, overwrite=args.overwrite_output_dir)
    print(f"Saved to {folder}")
