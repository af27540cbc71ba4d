# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Whitening: a linear layer that makes sentence embeddings smaller and uses their directions more evenly, fitted to texts
without labels and without training.

Embeddings of a collection vary most in a few directions, and what tells alike texts apart may lie in the others.
Whitening (Su et al. 2021, https://arxiv.org/abs/2103.15316) scales all principal directions to the same spread and
drops the last ones. Here `power` says how far it goes.
"""

from collections.abc import Sequence

import torch
from torch import nn
from transformers import PreTrainedTokenizerBase

from hf_dse.inference.encoding import encode
from hf_dse.modeling import DseModel


def whiten_encoder(
    model: DseModel,
    processing_class: PreTrainedTokenizerBase,
    texts: Sequence[str],
    projection_dim: int,
    *,
    power: float = 0.5,
    max_length: int | None = None,
    batch_size: int = 32,
) -> DseModel:
    """
    Puts a projection on an encoder that whitens its embeddings.

    Let s_i and v_i be the singular values and right singular vectors of the embeddings of `texts`, scaled to length 1
    and centred. An embedding e becomes the numbers c * s_i^-power * (v_i · e) for the `projection_dim` largest s_i; c
    keeps the mean square length. Su et al. 2021 have a power of 1 and subtract the mean from e as well. That costs
    0.3 points of STS-B Pearson (docs/results.md) and is left out.

    Args:
        model ([`DseModel`]):
            An encoder without a projection. It is changed and returned.
        processing_class (`PreTrainedTokenizerBase`):
            Its tokenizer.
        texts (`Sequence[str]`):
            Texts like those that will be embedded, at least as many as the embedding has numbers; some thousands are
            good.
        projection_dim (`int`):
            Size of the new embedding, from 1 to less than now.
        power (`float`, *optional*, defaults to 0.5):
            How much of the spread is levelled: 0 is PCA, which keeps it, 1 is whitening.
        max_length (`int`, *optional*):
            Tokens after which a text is cut. Defaults to what model and tokenizer allow.
        batch_size (`int`, *optional*, defaults to 32):
            Largest number of texts in a batch.

    Returns:
        [`DseModel`]: the model, in evaluation mode, with a `projection` and its size as `config.projection_dim`.

    Raises:
        `TypeError`: for something else than a `DseModel`.
        `ValueError`: for an encoder with a projection, a size or power out of range, too few texts, or texts whose
            embeddings span fewer than `projection_dim` directions.

    Example:

    ```python
    >>> from transformers import AutoTokenizer
    >>> from hf_dse import DataArguments, convert_encoder, load_pairs, whiten_encoder

    >>> name = "sentence-transformers/all-MiniLM-L6-v2"
    >>> tokenizer, model = AutoTokenizer.from_pretrained(name), convert_encoder(name, verbose=False)
    >>> # Some thousand texts are better than these 400.
    >>> texts = load_pairs(DataArguments(dataset_name="embedded"))["train"]["sentence1"][:400]
    >>> model = whiten_encoder(model, tokenizer, texts, projection_dim=256)
    >>> model(**tokenizer("A cat sleeps.", return_tensors="pt")).pooler_output.shape
    torch.Size([1, 256])
    ```
    """
    if not isinstance(model, DseModel):
        raise TypeError(
            f"`model` has to be a DseModel, got {type(model).__name__}: a head for pairs is trained for the "
            "embeddings as they are, so whiten the encoder and train the head afterwards."
        )
    size = model.config.pooling_layers * model.config.hidden_size
    if model.projection is not None:
        raise ValueError(
            f"The encoder has a projection to {model.config.projection_dim} numbers already: whiten one without, "
            "converted with no `projection_dim`."
        )
    if not 1 <= projection_dim < size:
        raise ValueError(
            f"`projection_dim` must be from 1 to {size - 1}, less than the pooled size, got {projection_dim}."
        )
    if not 0 <= power <= 1:
        raise ValueError(f"`power` must be between 0 (PCA) and 1 (whitening), got {power}.")
    if len(texts) < size:
        raise ValueError(
            f"{len(texts)} texts are too few to find the directions of embeddings of {size} numbers: give at least "
            f"{size}, better ten times as many."
        )

    vectors = encode(model, processing_class, texts, batch_size=batch_size, max_length=max_length, normalize=True)
    embeddings = torch.from_numpy(vectors).double()
    _, spreads, directions = torch.linalg.svd(embeddings - embeddings.mean(dim=0), full_matrices=False)
    rank = int((spreads > 1e-6 * spreads[0]).sum())
    if rank < projection_dim:
        raise ValueError(
            f"The embeddings of the texts span {rank} directions, fewer than `projection_dim` = {projection_dim}: "
            "give more different texts, or a smaller size."
        )
    # A singular vector has no sign of its own; this one is the same on every machine.
    signs = directions.gather(1, directions.abs().argmax(dim=1, keepdim=True)).sign()
    weight = (spreads[:, None] ** -power * signs * directions)[:projection_dim]
    # Embeddings have length 1 before.
    weight /= (embeddings @ weight.T).square().sum(dim=1).mean().sqrt()

    model.config.projection_dim = projection_dim
    reference = next(model.parameters())
    model.projection = nn.Linear(size, projection_dim, device=reference.device, dtype=reference.dtype)
    with torch.no_grad():
        model.projection.weight.copy_(weight)
        model.projection.bias.zero_()
    return model.eval()
