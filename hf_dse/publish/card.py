# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Model cards."""

import platform
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub import EvalResult, ModelCard, ModelCardData

from hf_dse import __version__
from hf_dse.common.display import escape_markdown, one_line
from hf_dse.common.provenance import Origin, describe_source
from hf_dse.common.settings import TRANSFORMERS_NEEDED, settings_of
from hf_dse.convert.student import CODE_FILES, has_head
from hf_dse.data.options import EMBEDDED, GLUE, PAIR_TASKS
from hf_dse.modeling import DseForSequenceClassification, DseModel
from hf_dse.modeling.modeling_dse import find_attentions


CARD_TEMPLATE = Path(__file__).with_name("model_card.md")

# Versions of sentence-transformers that read the files of a folder.
SENTENCE_TRANSFORMERS_NEEDED = ">=5.4"


def make_model_card(
    model: DseModel | DseForSequenceClassification,
    *,
    model_id: str,
    metrics: Mapping[str, Mapping[str, float]] | None = None,
    searches: Mapping[str, Mapping[str, Mapping[str, Any]]] | None = None,
    base_model: str | None = None,
    teacher: str | Sequence[str | None] | None = None,
    datasets: Sequence[str | None] | None = None,
    recipe: Mapping[str, Any] | None = None,
    max_length: int | None = None,
    license: str | None = None,
) -> ModelCard:
    """Renders `model_card.md` with the facts that [`export`] was given; unknown ones are left out."""
    config: Any = model.config
    metrics, recipe = metrics or {}, dict(recipe or {})
    teachers = [teacher] if isinstance(teacher, str | None) else teacher
    command = recipe.pop("command", None)
    sources = [_describe_dataset(name) for name in datasets or [] if name is not None]
    measured_on = sources[0] if sources else Origin("unnamed data")
    base = None if base_model is None else describe_source(base_model)
    # Without metrics the recipe tells: only a training on rankings has this weight.
    is_search = "contrastive_weight" in recipe or any("ndcg@10" in values for values in metrics.values())
    layers: Any = [module.linformer_layer for module in find_attentions(model.base_model.encoder)]
    num_slots = sorted({layer.num_slots for layer in layers if "linear" in layer.layer_type})
    windows = sorted({layer.window for layer in layers if "sliding" in layer.layer_type})
    tags = ["sentence-transformers", "transformers", "sentence-similarity", "feature-extraction", "hf-dse"]
    tags += ["linformer"] * bool(num_slots) + ["knowledge-distillation"] * bool(teacher)
    data = ModelCardData(
        model_name=model_id.split("/")[-1],
        library_name="sentence-transformers",
        pipeline_tag="sentence-similarity",
        tags=tags,
        license=license,
        base_model=base.hub_id if base else None,
        datasets=list(dict.fromkeys(source.hub_id for source in sources if source.hub_id)) or None,
        eval_results=[
            EvalResult(
                task_type="information-retrieval" if is_search else "sentence-similarity",
                dataset_type=measured_on.hub_id or "custom",
                dataset_name=measured_on.name,
                dataset_config=measured_on.task,
                dataset_split=split,
                metric_type=name,
                metric_value=value,
            )
            for split, values in metrics.items()
            for name, value in values.items()
            if not name.startswith("num_")
        ]
        or None,
    )
    card = ModelCard.from_template(
        data,
        template_path=str(CARD_TEMPLATE),
        escape=escape_markdown,
        model_id=model_id,
        quoted_id=shlex.quote(one_line(model_id)),
        config=config,
        settings=settings_of(model),
        num_parameters=f"{model.num_parameters():,}",
        layer_counts=Counter(config.layer_types),
        num_slots=num_slots,
        windows=windows,
        has_head=has_head(model),
        max_length=max_length or config.max_position_embeddings,
        base=base,
        teacher=" and ".join(str(describe_source(name)) for name in teachers if name is not None) or None,
        sources=sources,
        measured_on=measured_on,
        command=command,
        recipe=recipe,
        metrics=metrics,
        searches=searches,
        splits=shlex.join(map(one_line, metrics)),
        metric_names=list(dict.fromkeys(name for values in metrics.values() for name in values)),
        is_search=is_search,
        versions={
            "hf-dse": __version__,
            "transformers": transformers.__version__,
            "PyTorch": torch.__version__,
            "Python": platform.python_version(),
        },
        code_files=CODE_FILES,
        transformers_needed=TRANSFORMERS_NEEDED,
        sentence_transformers_needed=SENTENCE_TRANSFORMERS_NEEDED,
    )
    # Remove the blank lines of sections that are left out.
    card.content = re.sub(r"\n{3,}", "\n\n", card.content).rstrip() + "\n"
    return card


def _describe_dataset(name: str) -> Origin:
    if name in PAIR_TASKS:
        return replace(describe_source(GLUE, prefix="datasets/"), name=f"{GLUE} ({name})", task=name)
    if name == EMBEDDED:
        return Origin("the sentence pairs embedded in hf-dse")
    return describe_source(name, prefix="datasets/")
