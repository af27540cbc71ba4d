# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The files that travel to the Hub with every checkpoint: configuration and model, and nothing else."""

from .configuration_dse import DseConfig
from .modeling_dse import DseForSequenceClassification, DseModel, DsePreTrainedModel
from .pairs_dse import DsePairOutput


__all__ = [
    "DseConfig",
    "DseForSequenceClassification",
    "DseModel",
    "DsePairOutput",
    "DsePreTrainedModel",
]
