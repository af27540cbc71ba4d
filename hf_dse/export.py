# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""A model as a folder that anyone can load and read about: transformers, sentence-transformers, model card."""

import copy
import json
import math
import os
import platform
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from numbers import Real
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub import EvalResult, ModelCard, ModelCardData
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from . import __version__
from .data import EMBEDDED, GLUE, PAIR_TASKS
from .modeling import DseForSequenceClassification, DseModel


__all__ = ["export_graph", "export_model", "make_model_card"]

CARD_TEMPLATE = Path(__file__).with_name("model_card.md")
CODE_FILES = ("configuration_dse.py", "layout_dse.py", "modeling_dse.py", "pairs_dse.py")
# Formats of graphs, and the packages that write and run them.
GRAPH_FORMATS = {"onnx": ("onnx", "onnxscript", "onnxruntime"), "openvino": ("openvino",)}
# The code in a checkpoint is written for these versions; older ones fail in ways that do not name the cause.
TRANSFORMERS_NEEDED = ">=5.20"
# The first version that reads the files below.
SENTENCE_TRANSFORMERS_FORMAT = "5.4.0"


@dataclass(frozen=True)
class Source:
    """A model or data set that the card names; as a string, a Markdown link if the Hub has it."""

    name: str
    hub_id: str | None = None
    url: str | None = None
    config: str | None = None
    task: str | None = None

    def __str__(self) -> str:
        return self.name if self.url is None else f"[{self.name}]({self.url})"


def export_model(
    model: DseModel | DseForSequenceClassification,
    processing_class: PreTrainedTokenizerBase,
    path: str | os.PathLike,
    *,
    metrics: Mapping[str, Mapping[str, float]] | None = None,
    base_model: str | None = None,
    teacher: str | None = None,
    datasets: Sequence[str | None] | None = None,
    recipe: Mapping[str, Any] | None = None,
    max_seq_length: int | None = None,
    license: str | None = None,
    model_id: str | None = None,
    overwrite: bool = False,
) -> Path:
    """
    Writes a complete model folder: weights, configuration, code, tokenizer, what sentence-transformers needs, and a
    model card. It loads where hf_dse is not installed. The folder appears whole or not at all.

    Args:
        model ([`DseModel`] or [`DseForSequenceClassification`]):
            What to save; a head for sentence pairs is kept.
        processing_class (`PreTrainedTokenizerBase`):
            The tokenizer of the model. A copy that does not allow more tokens than the model takes is saved.
        path (`str` or `os.PathLike`):
            Folder to write.
        metrics (`Mapping[str, Mapping[str, float]]`, *optional*):
            Measured metrics by split, as [`evaluate_model`] returns them: `{"test": {"pearson": 0.86}}`; `num_pairs`
            may stand among them. They belong to the first of `datasets`.
        base_model (`str`, *optional*):
            The encoder that the model was made from.
        teacher (`str`, *optional*):
            The cross-encoder whose scores it learned.
        datasets (`Sequence[str]`, *optional*):
            Training data: names of pair tasks, Hub ids or folders. Of local paths only the last part is published.
        recipe (`Mapping[str, Any]`, *optional*):
            How it was trained, row by row of a table in the card: learning rate, epochs, seed, machine.
            `recipe["command"]` is shown as a command line.
        max_seq_length (`int`, *optional*):
            Tokens after which texts were cut in training and evaluation; sentence-transformers will cut there too.
            Defaults to what the model takes.
        license (`str`, *optional*):
            Hub identifier of the license of the weights, such as `"apache-2.0"`.
        model_id (`str`, *optional*):
            Name to load the model by in the examples of the card. Defaults to the name of the folder.
        overwrite (`bool`, *optional*, defaults to `False`):
            Whether to replace a model folder that is already there, with all that is in it.

    Returns:
        `pathlib.Path`: the folder.

    Raises:
        `FileExistsError`: if there is a file, a folder that is not empty, or, with `overwrite`, one without a model.
        `TypeError`: if `model` is not a DSE model, or of a class made from one.
        `ValueError`: if `metrics` are not finite numbers by split, or `max_seq_length` does not fit the model.

    Example:

    ```python
    >>> from hf_dse import export_model

    >>> export_model(model, tokenizer, "my-model", base_model="sentence-transformers/all-MiniLM-L6-v2")
    PosixPath('my-model')
    ```
    """
    path = Path(path).expanduser()
    target = path.resolve()
    _check_target(target, overwrite)
    card = make_model_card(
        model,
        model_id=model_id or target.name,
        metrics=metrics,
        base_model=base_model,
        teacher=teacher,
        datasets=datasets,
        recipe=recipe,
        max_seq_length=max_seq_length,
        license=license,
    )
    with _folder_in_one_step(target) as new:
        model.save_pretrained(new)
        missing = [name for name in CODE_FILES if not (new / name).is_file()]
        if missing:
            raise TypeError(
                f"{type(model).__name__} of {type(model).__module__} does not bring {', '.join(missing)} with it: "
                "export a `DseModel` or `DseForSequenceClassification`, not a class made from one."
            )
        limit_tokens(processing_class, model).save_pretrained(new)
        for name, content in _sentence_transformers_files(model, max_seq_length).items():
            (new / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        card.save(new / "README.md")
    return path


def export_graph(
    model: DseModel | DseForSequenceClassification,
    processing_class: PreTrainedTokenizerBase,
    path: str | os.PathLike,
    *,
    format: str = "onnx",
    int8: bool = False,
    overwrite: bool = False,
) -> Path:
    """
    Writes the encoder as a graph for ONNX Runtime or OpenVINO, by the exporters of transformers, with its tokenizer.
    From `input_ids` and `attention_mask` of any batch size and length the graph gives `last_hidden_state` and
    `pooler_output`, the sentence embeddings. A head for sentence pairs is left out.

    Args:
        model ([`DseModel`] or [`DseForSequenceClassification`]):
            What to export.
        processing_class (`PreTrainedTokenizerBase`):
            The tokenizer of the model.
        path (`str` or `os.PathLike`):
            Folder to write: `model.onnx` and `model.onnx.data`, or `openvino_model.xml` and `openvino_model.bin`.
        format (`str`, *optional*, defaults to `"onnx"`):
            `"onnx"` or `"openvino"`. On CPUs with bfloat16 instructions OpenVINO computes in bfloat16 unless
            `INFERENCE_PRECISION_HINT` is `"f32"`.
        int8 (`bool`, *optional*, defaults to `False`):
            Whether to quantize the weights of an ONNX graph to 8 bits; ONNX Runtime quantizes activations as it runs.
        overwrite (`bool`, *optional*, defaults to `False`):
            Whether to replace a model folder that is already there, with all that is in it.

    Returns:
        `pathlib.Path`: the folder.

    Raises:
        `FileExistsError`: if there is a file, a folder that is not empty, or, with `overwrite`, one without a model.
        `ImportError`: if the packages of the format are not installed.
        `ValueError`: if there is no such format, or it cannot be quantized.

    Example:

    ```python
    >>> from transformers.exporters import ExportedModel

    >>> from hf_dse import export_graph

    >>> graph = ExportedModel.from_pretrained(export_graph(model, tokenizer, "graph"), trust_remote_code=True)
    >>> embeddings = graph(**tokenizer(texts, padding=True, truncation=True, return_tensors="pt")).pooler_output
    ```
    """
    if format not in GRAPH_FORMATS:
        raise ValueError(f"format={format!r}: allowed are {' and '.join(GRAPH_FORMATS)}.")
    if int8 and format != "onnx":
        raise ValueError(f'int8=True: only an ONNX graph can be quantized here, and format={format!r}; pass "onnx".')
    path = Path(path).expanduser()
    target = path.resolve()
    _check_target(target, overwrite)
    missing = [package for package in GRAPH_FORMATS[format] if find_spec(package) is None]
    if missing:
        raise ImportError(
            f"format={format!r} needs {', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not "
            "installed: `pip install hf-dse[onnx]`."
        )
    from transformers.exporters import AutoExportConfig, AutoHfExporter, OnnxRuntimeDynamicConfig, OnnxRuntimeQuantizer

    options: dict[str, Any] = {"export_format": format, "dynamic": True}
    if int8:
        options["quantizer"] = OnnxRuntimeQuantizer(OnnxRuntimeDynamicConfig(per_channel=True))
    export_config = AutoExportConfig.from_dict(options)
    encoder = model.dse if has_head(model) else model
    # Two texts of different lengths: what is traced must not depend on there being one text, or no padding.
    attention_mask = torch.ones(2, min(16, model.config.max_position_embeddings), dtype=torch.long)
    attention_mask[1, 1:] = 0
    inputs: dict[str, Any] = {"input_ids": torch.zeros_like(attention_mask), "attention_mask": attention_mask}
    inputs = {name: tensor.to(model.device) for name, tensor in inputs.items()}
    exported = AutoHfExporter.from_config(export_config).export(encoder.eval(), inputs, export_config)
    with _folder_in_one_step(target) as new:
        exported.save_pretrained(new)
        limit_tokens(processing_class, model).save_pretrained(new)
    return path


@contextmanager
def _folder_in_one_step(target: Path) -> Iterator[Path]:
    """A new folder to write to, which takes the place of `target` at the end; on an error nothing changes."""
    target.parent.mkdir(parents=True, exist_ok=True)
    # A sibling, because only within one file system a folder can be moved in one step.
    with tempfile.TemporaryDirectory(
        prefix=f".{target.name}-", dir=target.parent, ignore_cleanup_errors=True
    ) as workshop:
        new, old = Path(workshop, "new"), Path(workshop, "old")
        new.mkdir()
        yield new
        if target.exists():
            target.rename(old)
        try:
            new.rename(target)
        except OSError:
            if old.exists():
                old.rename(target)
            raise


def make_model_card(
    model: DseModel | DseForSequenceClassification,
    *,
    model_id: str,
    metrics: Mapping[str, Mapping[str, float]] | None = None,
    base_model: str | None = None,
    teacher: str | None = None,
    datasets: Sequence[str | None] | None = None,
    recipe: Mapping[str, Any] | None = None,
    max_seq_length: int | None = None,
    license: str | None = None,
) -> ModelCard:
    """
    Renders `model_card.md`. What was not given is left out, nothing is guessed.

    Args:
        model ([`DseModel`] or [`DseForSequenceClassification`]):
            The model to describe.
        model_id (`str`):
            Name to load it by in the examples: a Hub id or a folder.

    The other arguments are those of [`export_model`].

    Returns:
        `huggingface_hub.ModelCard`: metadata and text.

    Raises:
        `TypeError`: if `model` is not a DSE model.
        `ValueError`: if `metrics` are not finite numbers by split, or `max_seq_length` does not fit the model.
    """
    config = model.config
    if config.model_type != "dse":
        raise TypeError(
            f"Only DSE models can be exported, got {type(model).__name__}: make one of it with `convert_encoder`, or "
            "save it with its own `save_pretrained`."
        )
    if max_seq_length is not None and not 1 <= max_seq_length <= config.max_position_embeddings:
        raise ValueError(
            f"`max_seq_length` must be between 1 and {config.max_position_embeddings}, the positions of this model, "
            f"got {max_seq_length}."
        )
    metrics = _check_metrics(metrics)
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
        eval_results=_eval_results(metrics, measured_on),
    )
    card = ModelCard.from_template(
        data,
        template_path=str(CARD_TEMPLATE),
        model_id=model_id,
        model_name=data.model_name,
        config=config,
        num_parameters=f"{model.num_parameters():,}",
        num_linear=num_linear,
        linear_lengths=_linear_lengths(config),
        has_head=has_head(model),
        base=base,
        teacher=None if teacher is None else describe_source(teacher),
        sources=sources,
        measured_on=measured_on,
        command=(recipe or {}).get("command"),
        recipe={name: _cell(value) for name, value in (recipe or {}).items() if name != "command"},
        metrics=metrics,
        metric_names={name: _metric_title(name) for name in next(iter(metrics.values()), {})},
        max_seq_length=max_seq_length,
        license=license,
        versions={
            "hf-dse": __version__,
            "transformers": transformers.__version__,
            "PyTorch": torch.__version__,
            "Python": platform.python_version(),
        },
        transformers_needed=TRANSFORMERS_NEEDED,
        sentence_transformers_needed=f">={SENTENCE_TRANSFORMERS_FORMAT.removesuffix('.0')}",
    )
    # Sections that are left out leave their blank lines behind.
    card.content = re.sub(r"\n{3,}", "\n\n", card.content).rstrip() + "\n"
    return card


def describe_machine() -> str:
    """The kind of machine this is, as far as it decides about speed and rounding."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return f"{os.cpu_count()} {platform.machine()} CPU cores, {torch.backends.cpu.get_cpu_capability()}"


def package_versions(names: Sequence[str]) -> dict[str, str | None]:
    """The installed versions of packages; `None` where one is missing."""
    versions: dict[str, str | None] = dict.fromkeys(names)
    for name in names:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def describe_command() -> str | None:
    """
    The `hf-dse` command that this process runs, without the folders above local files; `None` in other programs.
    """
    if Path(sys.argv[0]).stem not in ("hf-dse", "hf_dse_cli"):
        return None
    words = []
    for word in sys.argv[1:]:
        option, separator, value = word.partition("=") if word.startswith("-") else ("", "", word)
        is_path = value and (Path(value).exists() or Path(value).is_absolute())
        words.append(option + separator + (Path(value).name if is_path else value))
    return shlex.join(["hf-dse", *words])


def _check_target(target: Path, overwrite: bool) -> None:
    if not target.exists():
        return
    if not target.is_dir():
        raise FileExistsError(f"{target} is a file: name a folder.")
    if not any(target.iterdir()):
        return
    if not overwrite:
        raise FileExistsError(
            f"{target} is not empty: name another folder, or pass `overwrite=True` (`--overwrite_output_dir`) to "
            "replace it."
        )
    # A slip of the keyboard must not cost a home folder or a repository.
    if not (target / "config.json").is_file() or (target / ".git").exists():
        raise FileExistsError(
            f"{target} is not a plain model folder (it has no config.json, or is a git repository), so it is not "
            "replaced: name another folder, or empty it yourself."
        )


def has_head(model: PreTrainedModel) -> bool:
    """Whether a DSE model has a head for sentence pairs."""
    # By name: a model loaded with its own code is of a class of its own.
    return type(model).__name__ == "DseForSequenceClassification"


def limit_tokens(
    processing_class: PreTrainedTokenizerBase, model: DseModel | DseForSequenceClassification
) -> PreTrainedTokenizerBase:
    """A copy of the tokenizer whose truncation fits the model."""
    limit = model.config.max_position_embeddings
    # The limit of the source encoder's tokenizer is void where the position table was extended.
    if model.config.position_extension is None:
        limit = min(limit, processing_class.model_max_length)
    tokenizer = copy.deepcopy(processing_class)
    tokenizer.model_max_length = limit
    return tokenizer


def _sentence_transformers_files(
    model: DseModel | DseForSequenceClassification, max_seq_length: int | None
) -> dict[str, Any]:
    """The files that make `SentenceTransformer(folder)` return the `pooler_output` of `DseModel`, by name."""
    transformer: dict[str, Any] = {
        "transformer_task": "feature-extraction",
        "modality_config": {"text": {"method": "forward", "method_output_name": "pooler_output"}},
        "module_output_name": "sentence_embedding",
    }
    if max_seq_length is not None:
        transformer["max_seq_length"] = max_seq_length
    return {
        "modules.json": [
            {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"}
        ],
        "sentence_bert_config.json": transformer,
        "config_sentence_transformers.json": {
            "__version__": {
                "pytorch": torch.__version__,
                "sentence_transformers": SENTENCE_TRANSFORMERS_FORMAT,
                "transformers": transformers.__version__,
            },
            "default_prompt_name": None,
            "model_type": "SentenceTransformer",
            "prompts": {"document": "", "query": ""},
            "requirements": {"transformers": TRANSFORMERS_NEEDED},
            # The head of DSE ("mlp") is not among the similarities of sentence-transformers.
            "similarity_fn_name": "dot" if model.config.similarity == "dot" else "cosine",
        },
    }


def _check_metrics(metrics: Mapping[str, Mapping[str, float]] | None) -> dict[str, dict[str, float]]:
    checked = {}
    for split, values in (metrics or {}).items():
        if not isinstance(values, Mapping):
            raise ValueError(
                f'`metrics` must hold metrics by split, such as {{"test": {{"pearson": 0.86}}}}, got {values!r} for '
                f"{split!r}."
            )
        for name, value in values.items():
            if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
                raise ValueError(
                    f"`metrics[{split!r}][{name!r}]` is {value!r}, but a card takes measured, finite numbers only."
                )
        checked[split] = {name: int(value) if name == "num_pairs" else float(value) for name, value in values.items()}
    names = [list(values) for values in checked.values()]
    if any(other != names[0] for other in names):
        raise ValueError(f"`metrics` has different metrics for its splits ({names}): measure the same on all.")
    return checked


def _eval_results(metrics: dict[str, dict[str, float]], dataset: Source) -> list[EvalResult] | None:
    results = [
        EvalResult(
            task_type="text-classification" if name in ("accuracy", "f1") else "sentence-similarity",
            dataset_type=dataset.hub_id or "custom",
            dataset_name=dataset.name,
            dataset_config=dataset.config,
            dataset_split=split,
            metric_type=name,
            metric_name=_metric_title(name),
            metric_value=value,
        )
        for split, values in metrics.items()
        for name, value in values.items()
        if name != "num_pairs"
    ]
    return results or None


def _metric_title(name: str) -> str:
    kind = name.removeprefix("cosine_")
    title = {"num_pairs": "Pairs", "ap": "Average precision"}.get(kind, kind.capitalize())
    return title if kind == name else f"{title} of the cosine"


def _linear_lengths(config: Any) -> list[int]:
    lengths = config.linformer_length
    if not isinstance(lengths, list):
        lengths = [lengths] * config.num_hidden_layers
    kinds = zip(lengths, config.layer_types, strict=True)
    return sorted({length for length, kind in kinds if kind == "linear_attention"})


def describe_source(name: str, prefix: str = "") -> Source:
    """What the card says about a model or data set: never where somebody keeps it."""
    local = Path(name).expanduser()
    if local.exists() or local.is_absolute() or name.startswith((".", "~")):
        return Source(local.resolve().name)
    is_hub_id = re.fullmatch(r"[\w.-]+/[\w.-]+", name) is not None
    return Source(name, hub_id=name, url=f"https://huggingface.co/{prefix}{name}") if is_hub_id else Source(name)


def _describe_dataset(name: str) -> Source:
    if name in PAIR_TASKS:
        task = PAIR_TASKS[name]
        url = f"https://huggingface.co/datasets/{GLUE}"
        return Source(f"{GLUE} ({task.glue_name})", GLUE, url, config=task.glue_name, task=name)
    if name == EMBEDDED:
        return Source("the sentence pairs embedded in hf-dse")
    return describe_source(name, prefix="datasets/")


def _cell(value: Any) -> str:
    """A value as it may stand in a Markdown table."""
    return " ".join(str(value).split()).replace("|", "\\|")
