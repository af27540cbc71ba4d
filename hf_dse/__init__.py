# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
hf-dse: distil any Hugging Face cross-encoder into a sentence embedding model with Linformer attention.

`import hf_dse` registers the model type `"dse"` with the Auto classes of transformers, and the attention
implementation `"linformer"`. Everything else is imported when it is first used; `__init__.pyi` lists the public names.
"""

import functools
import os

import lazy_loader


__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


@functools.cache
def register() -> None:
    """
    Registers the DSE classes with the Auto classes of transformers, and linear attention as the attention
    implementation `"linformer"` of any encoder. `import hf_dse` calls it.
    """
    from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

    from hf_dse.common.code import warn_of_other_code
    from hf_dse.modeling import DseConfig, DseForSequenceClassification, DseModel, DsePreTrainedModel

    AutoConfig.register("dse", DseConfig)
    AutoModel.register(DseConfig, DseModel)
    AutoModelForSequenceClassification.register(DseConfig, DseForSequenceClassification)
    # Checkpoints of these classes carry their code, so they load where hf_dse is not installed.
    DseConfig.register_for_auto_class()
    DseModel.register_for_auto_class("AutoModel")
    DseForSequenceClassification.register_for_auto_class("AutoModelForSequenceClassification")
    # Now these classes are used for every checkpoint, without a look at the code that it carries.
    warn_of_other_code(DsePreTrainedModel)


# The command `hf-dse` registers them when it has read its options, because they need torch.
if os.environ.get("HF_DSE_REGISTER") != "later":
    register()
