# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Whitening of sentence embeddings by a linear layer that is fitted to texts, without labels and training."""

from collections.abc import Sequence

import torch
from torch import nn
from transformers import PreTrainedTokenizerBase

from hf_dse.convert.student import has_head
from hf_dse.modeling import DseModel
from hf_dse.retrieval.sentence_transformer import embed, to_sentence_transformer


# Less than this share of the largest spread is rounding.
LEAST_SPREAD = 1e-3


def whiten_encoder(
    model: DseModel,
    processing_class: PreTrainedTokenizerBase,
    texts: Sequence[str],
    projection_dim: int,
    *,
    power: float = 0.5,
    max_length: int | None = None,
) -> DseModel:
    """
    Adds a projection to an encoder that whitens its embeddings.

    Embeddings vary most in a few directions, but the differences between similar texts may be in the others. Whitening
    (Su et al. 2021, https://arxiv.org/abs/2103.15316) scales all principal directions to the same variance and drops
    the last ones. Texts vary most in the first dimensions, so vectors that are cut (`truncate_dim`) keep more.

    Let s_i and v_i be the singular values and right singular vectors of the embeddings of `texts`, scaled to length 1
    and centred. An embedding e becomes the numbers c * s_i^-power * (v_i · e) for the `projection_dim` largest s_i, of
    which those below a thousandth of the largest count as that; c keeps the mean square length. Su et al. 2021 use a
    power of 1 and also subtract the mean from e. That costs 0.3 points of STS-B Pearson (studies/notebook.md) and is
    not done here.

    Args:
        model ([`DseModel`]):
            An encoder without a projection. It is changed in place and returned.
        processing_class (`PreTrainedTokenizerBase`):
            Its tokenizer.
        texts (`Sequence[str]`):
            Texts similar to those that will be embedded; at least as many as the embedding has dimensions, better a
            few thousand.
        projection_dim (`int`):
            Size of the new embedding, at most the size of the current one.
        power (`float`, *optional*, defaults to 0.5):
            Degree of scaling: 0 is PCA, which keeps the variances, 1 is whitening, which makes them equal.
        max_length (`int`, *optional*):
            Maximum tokens of a text. Defaults to the `model_max_length` of the tokenizer.

    Returns:
        [`DseModel`]: the model, in evaluation mode, with a `projection` and its size as `config.projection_dim`.

    Raises:
        `TypeError`: for a model that is not a `DseModel`.
        `ValueError`: for an encoder with a projection, a size or power out of range, or texts whose embeddings span
            fewer than `projection_dim` directions, such as too few.

    Example:

    ```python
    >>> from transformers import AutoTokenizer
    >>> from hf_dse import DataArguments, convert_encoder, load_pairs, whiten_encoder

    >>> name = "sentence-transformers/all-MiniLM-L6-v2"
    >>> tokenizer, model = AutoTokenizer.from_pretrained(name), convert_encoder(name)
    >>> # Some thousand texts are better than these 400.
    >>> texts = load_pairs(DataArguments(dataset_name="embedded"))["train"]["sentence1"][:400]
    >>> model = whiten_encoder(model, tokenizer, texts, projection_dim=256)
    >>> model(**tokenizer("A cat sleeps.", return_tensors="pt")).pooler_output.shape
    torch.Size([1, 256])
    ```
    """
    # By its type, because a model that was loaded with the code of its folder has another class.
    if getattr(getattr(model, "config", None), "model_type", None) != "dse" or has_head(model):
        raise TypeError(
            f"`model` must be a DseModel, got {type(model).__name__}: a head for pairs is trained for the "
            "current embeddings, so whiten the encoder and train a new head afterwards."
        )
    size = model.config.pooled_size
    if model.projection is not None:
        raise ValueError(
            f"The encoder already has a projection to {model.config.projection_dim} dimensions: whiten an encoder "
            "without one, converted without `projection_dim`."
        )
    if not 1 <= projection_dim <= size:
        raise ValueError(f"`projection_dim` must be from 1 to {size}, the pooled size, got {projection_dim}.")
    if not 0 <= power <= 1:
        raise ValueError(f"`power` must be between 0 (PCA) and 1 (whitening), got {power}.")

    encoder = to_sentence_transformer(model, processing_class, max_length=max_length)
    vectors = embed(encoder, texts, None, normalize=True)
    weight = whitening(torch.from_numpy(vectors), projection_dim, power)
    projection = nn.Linear(size, projection_dim, device=model.device, dtype=model.dtype)
    with torch.no_grad():
        projection.weight.copy_(weight)
        projection.bias.zero_()
    model.projection, model.config.projection_dim = projection, projection_dim
    return model.eval()


def whitening(embeddings: torch.Tensor, projection_dim: int, power: float = 0.5) -> torch.Tensor:
    """The weight `(projection_dim, size)` that whitens embeddings `(num_texts, size)` of length 1, in float64."""
    embeddings, size = embeddings.double(), embeddings.shape[1]
    _, spreads, directions = torch.linalg.svd(embeddings - embeddings.mean(dim=0), full_matrices=False)
    rank = int((spreads > 1e-6 * spreads[0]).sum())
    # All embeddings are alike in one direction, which a layer norm takes away.
    if rank < min(projection_dim, size - 1):
        raise ValueError(
            f"The embeddings of the texts span {rank} directions, fewer than `projection_dim` = {projection_dim}: "
            "pass more different texts, or a smaller size."
        )
    # The sign of a singular vector is arbitrary; this one is the same on every machine.
    signs = directions.gather(1, directions.abs().argmax(dim=1, keepdim=True)).sign()
    # Nothing but rounding would be scaled up there.
    scales = spreads.clamp(min=LEAST_SPREAD * spreads[0]) ** -power
    weight = (scales[:, None] * signs * directions)[:projection_dim]
    # The embeddings before have length 1.
    return weight / (embeddings @ weight.T).square().sum(dim=1).mean().sqrt()
