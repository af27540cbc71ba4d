# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Model cards."""

import json
import math
import platform
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import Any

import torch
import transformers
import yaml
from huggingface_hub import EvalResult, ModelCard, ModelCardData

from hf_dse import __version__
from hf_dse.common.display import escape_markdown, one_line
from hf_dse.common.provenance import Source, describe_source
from hf_dse.data.tasks import EMBEDDED, GLUE, PAIR_TASKS
from hf_dse.inference.search import similarity_of
from hf_dse.metrics import RANKING_METRICS
from hf_dse.modeling import DseForSequenceClassification, DseModel
from hf_dse.student.checkpoint import (
    SENTENCE_TRANSFORMERS_NEEDED,
    SENTENCE_TRANSFORMERS_WITH_LENGTHS,
    TRANSFORMERS_NEEDED,
    has_head,
)


# Names of metrics in tables, where they are not the key with a capital.
TITLES = {"num_pairs": "Pairs", "num_queries": "Queries", "ap": "Average precision"}
TITLES |= {"ndcg@10": "nDCG@10", "mrr@10": "MRR@10", "map": "MAP"}

CARD_TEMPLATE = Path(__file__).with_name("model_card.md")


def make_model_card(
    model: DseModel | DseForSequenceClassification,
    *,
    model_id: str,
    metrics: Mapping[str, Mapping[str, float]] | None = None,
    base_model: str | None = None,
    teacher: str | None = None,
    datasets: Sequence[str | None] | None = None,
    recipe: Mapping[str, Any] | None = None,
    max_length: int | None = None,
    license: str | None = None,
    eval_results: Sequence[EvalResult] | None = None,
) -> ModelCard:
    """
    Renders `model_card.md`. Missing information is left out, never guessed.

    Args:
        model ([`DseModel`] or [`DseForSequenceClassification`]):
            The model to describe.
        model_id (`str`):
            Name under which the examples load the model: a Hub id or a folder.

    The other arguments are those of [`export_model`]; `max_length` defaults to the limit of the model.

    Returns:
        `huggingface_hub.ModelCard`: metadata and text.

    Raises:
        `TypeError`: if `model` is not a DSE model.
        `ValueError`: if `metrics` are not finite numbers by split, or `license` is no identifier.
    """
    config = model.config
    if config.model_type != "dse":
        raise TypeError(
            f"Only DSE models can be exported, got {type(model).__name__}: convert it with `convert_encoder`, or save "
            "it with its own `save_pretrained`."
        )
    if license is not None and not re.fullmatch(r"[\w.+-]+", license):
        raise ValueError(f"license={license!r}: name one of the Hub's identifiers, such as 'apache-2.0'.")
    metrics = _check_metrics(metrics)
    # The format of the Hub tells data apart by type and configuration, not by name.
    other_results = [
        replace(result, dataset_config=result.dataset_config or result.dataset_name)
        if result.dataset_type == "custom"
        else result
        for result in eval_results or []
    ]
    for result in other_results:
        if not _is_number(result.metric_value):
            raise ValueError(
                f"`eval_results` has {result.metric_value!r} for {result.dataset_name!r}, but needs finite numbers."
            )
    sources = [_describe_dataset(name) for name in datasets or [] if name is not None]
    measured_on = sources[0] if sources else Source("unnamed data")
    base = None if base_model is None else describe_source(base_model)
    num_linear = config.layer_types.count("linear_attention")

    tags = ["sentence-transformers", "transformers", "sentence-similarity", "feature-extraction", "hf-dse"]
    tags += ["linformer"] * (num_linear > 0) + ["knowledge-distillation"] * (teacher is not None)
    data = ModelCardData(
        model_name=model_id.split("/")[-1],
        library_name="sentence-transformers",
        pipeline_tag="sentence-similarity",
        tags=tags,
        license=license,
        base_model=base.hub_id if base else None,
        datasets=list(dict.fromkeys(source.hub_id for source in sources if source.hub_id)) or None,
        eval_results=[*_eval_results(metrics, measured_on, similarity_of(model)), *other_results] or None,
    )
    card = ModelCard.from_template(
        data,
        template_path=str(CARD_TEMPLATE),
        model_id=model_id,
        quoted_id=shlex.quote(one_line(model_id)),
        model_name=escape_markdown(data.model_name),
        config=config,
        num_parameters=f"{model.num_parameters():,}",
        num_linear=num_linear,
        linear_lengths=_linear_lengths(config),
        exact_length=_exact_length(config),
        has_head=has_head(model),
        labels=[escape_markdown(label) for label in config.id2label.values()],
        prompts={escape_markdown(name): prompt for name, prompt in (config.prompts or {}).items()},
        base=base,
        teacher=None if teacher is None else describe_source(teacher),
        sources=sources,
        measured_on=measured_on,
        command=(recipe or {}).get("command"),
        recipe={
            escape_markdown(name): escape_markdown(value)
            for name, value in (recipe or {}).items()
            if name != "command"
        },
        metrics={escape_markdown(split): values for split, values in metrics.items()},
        splits=shlex.join(map(one_line, metrics)),
        metric_names={name: escape_markdown(_metric_title(name)) for name in next(iter(metrics.values()), {})},
        # Without metrics the recipe tells: that of the ranking stage has a weight more.
        is_search=any(
            name in values
            for values in (recipe or {}, *metrics.values())
            for name in (*RANKING_METRICS, "contrastive_weight")
        ),
        other_results=[
            [
                replace(describe_source(result.dataset_type, prefix="datasets/"), name=result.dataset_name),
                escape_markdown(result.dataset_split or "-"),
                escape_markdown(result.metric_name or result.metric_type),
                result.metric_value,
            ]
            for result in other_results
        ],
        similarity=similarity_of(model),
        chunk_size=(recipe or {}).get("chunk_size"),
        max_length=max_length or config.max_position_embeddings,
        license=license,
        versions={
            "hf-dse": __version__,
            "transformers": transformers.__version__,
            "PyTorch": torch.__version__,
            "Python": platform.python_version(),
        },
        transformers_needed=TRANSFORMERS_NEEDED,
        sentence_transformers_needed=(
            SENTENCE_TRANSFORMERS_WITH_LENGTHS
            if config.query_length or config.document_length
            else SENTENCE_TRANSFORMERS_NEEDED
        ),
    )
    # Remove the blank lines of sections that are left out.
    card.content = re.sub(r"\n{3,}", "\n\n", card.content).rstrip() + "\n"
    return card


def rename_card(text: str, model_id: str) -> str:
    """
    The text of a card that hf-dse made, with another `model_id` in its title, metadata and examples. Where other cards
    name their model is not known: they stay as they are.
    """
    example = re.search(r'SentenceTransformer\(("[^"\n]+")', text)
    if example is None or not re.search("^- hf-dse$", text, re.MULTILINE):
        return text
    old = example[1].strip('"')
    name, old_name = model_id.split("/")[-1], old.split("/")[-1]
    command = "hf-dse evaluate --model_name_or_path "
    for pattern, new in (
        (r"^(model-index:\n- name: |model_name: ).*$", yaml.safe_dump(name, width=math.inf).splitlines()[0]),
        (rf"^(# ){re.escape(escape_markdown(old_name))}$", escape_markdown(name)),
        (rf"\b((?:SentenceTransformer|from_pretrained)\(){re.escape(example[1])}", json.dumps(model_id)),
        (rf"^({command}){re.escape(shlex.quote(old))}(?= )", shlex.quote(one_line(model_id))),
    ):
        text = re.sub(pattern, r"\g<1>" + new.replace("\\", r"\\"), text, flags=re.MULTILINE)
    return text


def _check_metrics(metrics: Mapping[str, Mapping[str, float]] | None) -> dict[str, dict[str, float]]:
    checked = {}
    for split, values in (metrics or {}).items():
        if not isinstance(values, Mapping):
            raise ValueError(
                f'`metrics` must map splits to metrics, such as {{"test": {{"pearson": 0.86}}}}, got {values!r} for '
                f"{split!r}."
            )
        for name, value in values.items():
            if not _is_number(value):
                raise ValueError(f"`metrics[{split!r}][{name!r}]` is {value!r}, but must be a finite number.")
        checked[split] = {
            name: int(value) if name.startswith("num_") else float(value) for name, value in values.items()
        }
    names = [list(values) for values in checked.values()]
    if any(other != names[0] for other in names):
        raise ValueError(f"`metrics` must have the same metrics for all splits, got {names}.")
    return checked


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def _eval_results(metrics: dict[str, dict[str, float]], dataset: Source, similarity: str) -> list[EvalResult]:
    return [
        EvalResult(
            task_type=_task_type(name),
            dataset_type=dataset.hub_id or "custom",
            dataset_name=dataset.name,
            dataset_config=dataset.config,
            dataset_split=split,
            metric_type=_metric_type(name, similarity),
            metric_name=_metric_title(name),
            metric_value=value,
        )
        for split, values in metrics.items()
        for name, value in values.items()
        if not name.startswith("num_")
    ]


def _task_type(metric: str) -> str:
    if metric in RANKING_METRICS:
        return "information-retrieval"
    return "text-classification" if metric in ("accuracy", "f1") else "sentence-similarity"


def _metric_type(name: str, similarity: str) -> str:
    """Metrics of a search are named as in the cards of sentence-transformers: with what ranks, and how many."""
    if name not in RANKING_METRICS:
        return name
    return f"{similarity}_{'map@100' if name == 'map' else name}"


def _metric_title(name: str) -> str:
    kind = name.removeprefix("cosine_")
    title = TITLES.get(kind, kind.capitalize())
    return title if kind == name else f"{title} of the cosine"


def _linear_lengths(config: Any) -> list[int]:
    lengths = config.linformer_length
    if not isinstance(lengths, list):
        lengths = [lengths] * config.num_hidden_layers
    kinds = zip(lengths, config.layer_types, strict=True)
    return sorted({length for length, kind in kinds if kind == "linear_attention"})


def _exact_length(config: Any) -> int:
    """Tokens up to which every layer that is not softmax attention equals it; 0 without such a layer."""
    chunks = [config.attention_chunk_size] * ("chunked_attention" in config.layer_types)
    return min([*_linear_lengths(config), *chunks], default=0)


def _describe_dataset(name: str) -> Source:
    if name in PAIR_TASKS:
        task = PAIR_TASKS[name]
        url = f"https://huggingface.co/datasets/{GLUE}"
        return Source(f"{GLUE} ({task.glue_name})", GLUE, url, config=task.glue_name, task=name)
    if name == EMBEDDED:
        return Source("the sentence pairs embedded in hf-dse")
    return describe_source(name, prefix="datasets/")
