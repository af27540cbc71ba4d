# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Loading any model with its tokenizer, and with its classification head if it has one."""

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError, safe_open
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME, WEIGHTS_NAME, cached_file, logging

from hf_dse import __version__
from hf_dse.common.devices import advise_bf16, choose_device
from hf_dse.common.display import one_line
from hf_dse.common.hub import pin, source_of, split_revision, weights_of
from hf_dse.common.options import check_arguments
from hf_dse.data.tables import parse_json, read_text
from hf_dse.data.tokenization import check_vocabulary, lowercase
from hf_dse.inference.arguments import ModelArguments
from hf_dse.modeling import DseModel
from hf_dse.modeling.configuration_dse import LENGTHS, MOST_LABELS, MOST_LAYERS, TEXT_LENGTHS


logger = logging.get_logger(__name__)

# The file of sentence-transformers' settings.
SETTINGS = "config_sentence_transformers.json"

# Its file of lengths by the names of older versions, which wrote that of the architecture, in the order of its search.
OLD_LENGTHS = [
    f"sentence_{kind}_config.json" for kind in ("roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
]

# How sentence-transformers names the poolings, in the keys of the file of its pooling; those that DSE has; the file.
POOLINGS = {"mean": "mean_tokens", "cls": "cls_token", "max": "max_tokens", "lasttoken": "lasttoken"}
DSE_POOLINGS = ("mean", "cls", "max")
POOLING = "1_Pooling/config.json"

# The modules of sentence-transformers that `encode` applies itself.
OWN_MODULES = ("Transformer", "Pooling", "Normalize")

# What to do with an adapter of PEFT.
MERGE_FIRST = "a model folder holds whole weights: merge it first, with `merge_and_unload` of the `PeftModel`"

# What libraries raise when the files of a checkpoint are damaged or do not fit together.
DAMAGED = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    RuntimeError,
    SafetensorError,
    StrictDataclassError,
    TypeError,
    ValueError,
)


@contextmanager
def reading(name_or_path: str | PathLike) -> Iterator[None]:
    """
    Raises a `ValueError` that names the checkpoint for the errors of libraries about its files, and an `OSError` that
    names it where the Hub cannot be reached. Nothing but calls that read these files belongs inside.
    """
    try:
        yield
    except Exception as error:
        if type(error) is OSError and not Path(name_or_path).exists() and str(name_or_path) not in str(error):
            raise OSError(f"{name_or_path} is no folder here, and cannot be had from the Hub: {error}") from error
        # A bare `Exception` is that of the tokenizers library.
        is_damage = isinstance(error, DAMAGED) or type(error) is Exception
        if not is_damage or (isinstance(error, ValueError) and str(name_or_path) in str(error)):
            raise
        reason = f"{error}" if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        if "ignore_mismatched_sizes" in reason:
            reason = "its weights have other sizes than its config.json says; `--verbose` lists them"
        raise ValueError(
            f"{name_or_path} cannot be loaded, for its files are damaged or do not fit together: {reason}"
        ) from error


def load_config(name_or_path: str, **source: Any) -> PreTrainedConfig:
    """`AutoConfig.from_pretrained` with errors that name the checkpoint."""
    is_folder = Path(name_or_path).is_dir()
    stored = read_json(name_or_path, "config.json") if is_folder else {}
    if is_folder and not stored and (adapter := read_json(name_or_path, "adapter_config.json")):
        base = adapter.get("base_model_name_or_path") or "a model that it does not name"
        raise ValueError(
            f"{name_or_path} is an adapter of PEFT for {base}, and {MERGE_FIRST}, and save the model that it returns."
        )
    labels = stored.get("num_labels")
    if isinstance(labels, int) and labels > MOST_LABELS:
        raise ValueError(f"{name_or_path} has {labels:,} labels by its config.json; {MOST_LABELS:,} are the most.")
    with reading(name_or_path):
        config = AutoConfig.from_pretrained(**source_of(name_or_path, **source))
    layers = getattr(config, "num_hidden_layers", 1)
    if isinstance(layers, int) and layers > MOST_LAYERS:
        raise ValueError(f"{name_or_path} has {layers:,} layers by its config.json; {MOST_LAYERS:,} are the most.")
    return config


def load_weights(
    auto_class: Any, name_or_path: str, *, revision: str = "main", trust_remote_code: bool = False, **options: Any
) -> tuple[Any, dict[str, Any]]:
    """`from_pretrained` of a class with errors that name the checkpoint: the model, and which weights it lacks."""
    load_config(name_or_path, revision=revision, trust_remote_code=trust_remote_code)
    logger.info(f"Loading {one_line(name_or_path)}")
    with reading(name_or_path):
        model, info = auto_class.from_pretrained(
            output_loading_info=True, **options, **weights_of(name_or_path, revision, trust_remote_code)
        )
    if model.config.model_type == "dse":
        warn_of_other_code(model, name_or_path, revision)
    return model, info


def load_encoder(auto_class: Any, name_or_path: str, **options: Any) -> Any:
    """A model all of whose weights are in its checkpoint; of a pooler, which is not used, they may be missing."""
    model, info = load_weights(auto_class, name_or_path, **options)
    check_complete(name_or_path, info)
    return model


def check_complete(name_or_path: str, info: Mapping[str, Any]) -> None:
    """Raises a `ValueError` if a checkpoint lacks weights, by the `info` of its loading."""
    lost = sorted(name for name in info["missing_keys"] if not name.startswith("pooler."))
    if lost:
        raise ValueError(
            f"The checkpoint {name_or_path} lacks {len(lost)} weights of its architecture, such as `{lost[0]}`: they "
            "would be random. Use a complete checkpoint."
        )


def load_tokenizer(tokenizer: PreTrainedTokenizerBase | str | PathLike, **source: Any) -> PreTrainedTokenizerBase:
    """
    The tokenizer itself, or that of a folder or a Hub id, lowercase where sentence-transformers makes it so; errors
    name the checkpoint.
    """
    if isinstance(tokenizer, PreTrainedTokenizerBase):
        return tokenizer
    with reading(tokenizer):
        loaded = AutoTokenizer.from_pretrained(**source_of(tokenizer, **source))
    settings, _ = read_text_settings(str(tokenizer), source.get("revision", "main"))
    return lowercase(loaded) if settings.get("do_lower_case") and loaded.is_fast else loaded


def load_model(args: ModelArguments) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """
    Loads a model and its tokenizer, with the classification head if the checkpoint has one. Of a sentence-transformers
    folder, its prompts become `config.prompts`, its lengths of queries and documents `config.query_length` and
    `config.document_length`, that of all texts the `model_max_length` of the tokenizer, and its pooling, its
    normalization and its similarity those of [`encode`] and `similarity_of`.

    Args:
        args (`ModelArguments`):
            Which model to load, and how to run it.

    Returns:
        `tuple[PreTrainedModel, PreTrainedTokenizerBase]`: the model, on its device, and the tokenizer.

    Raises:
        `TypeError`: if `args` is something else, such as a name.
        `ValueError`: if the files of the checkpoint are damaged or lack weights, those of a classification head that
        the config names among them, or if there is no such device.
    """
    check_arguments(args, ModelArguments, '"user/model"')
    source: dict[str, Any] = {"revision": args.model_revision, "trust_remote_code": args.trust_remote_code}
    device = choose_device(args.device)
    if args.dtype == "bfloat16":
        advise_bf16(device, "dtype=bfloat16")
    config = load_config(args.model_name_or_path, **source)
    if config.model_type == "dse":
        has_head = stores_head(args.model_name_or_path, args.model_revision)
    else:
        has_head = any(name.endswith("ForSequenceClassification") for name in config.architectures or [])
    if has_head:
        model, info = load_weights(
            AutoModelForSequenceClassification, args.model_name_or_path, dtype=args.dtype, **source
        )
        # A head that is missing in the checkpoint is randomly initialized, so its scores are noise.
        if info["missing_keys"]:
            raise ValueError(
                f"The checkpoint {args.model_name_or_path} has no {', '.join(sorted(info['missing_keys']))}: train it "
                "first, or remove the head from `architectures` in its config.json."
            )
    else:
        model = load_encoder(AutoModel, args.model_name_or_path, dtype=args.dtype, **source)
    tokenizer = load_tokenizer(args.model_name_or_path, **source)
    _apply_settings(model, tokenizer, args.model_name_or_path, args.model_revision)
    check_vocabulary(model, tokenizer)
    return model.to(device), tokenizer


def _apply_settings(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, name: str, revision: str) -> None:
    """Sets in the config of a loaded model and its tokenizer what the files of sentence-transformers beside it say."""
    apply_settings(model, name, revision)
    if getattr(model.config, "prompts", None):
        warn_of_prompts(name, revision)
    if model.config.model_type == "dse":
        return
    if read_similarity(name, revision) == "dot":
        model.config.similarity = "dot"
    tokenizer.model_max_length = read_max_length(name, revision) or tokenizer.model_max_length


def apply_settings(model: PreTrainedModel, name_or_path: str, revision: str = "main") -> None:
    """
    Sets the prompts, the lengths of queries and documents, the pooling and the normalization in the config of a loaded
    model to those that sentence-transformers reads, if it has settings for them, and warns of what is not applied.
    """
    prompts = read_prompts(name_or_path, revision)
    if prompts is not None:
        model.config.prompts = prompts or None
    lengths = read_lengths(name_or_path, revision)
    if lengths is not None:
        for name in TEXT_LENGTHS:
            setattr(model.config, name, lengths.get(name))
    is_dse, pooling = model.config.model_type == "dse", read_pooling(name_or_path, revision)
    modules = read_modules(name_or_path, revision)
    if is_dse and "Pooling" in modules and read_json(name_or_path, POOLING, revision):
        # Those of its config, unless sentence-transformers has saved it with others.
        model.config.normalize_embeddings = "Normalize" in modules
        if pooling in DSE_POOLINGS:
            model.config.pooling_mode = pooling
    elif not is_dse:
        if pooling in POOLINGS and pooling != "mean":
            model.config.sentence_pooling = pooling
        if "Normalize" in modules:
            model.config.normalize_embeddings = True
    lost = lost_modules(model.config, name_or_path, revision)
    if lost:
        logger.warning(
            f"{name_or_path} is a sentence-transformers model with {' and '.join(lost)}, which is not applied here: "
            "its embeddings differ from those of sentence-transformers."
        )


def lost_modules(config: PreTrainedConfig, name_or_path: str, revision: str = "main") -> list[str]:
    """What of the modules of a sentence-transformers checkpoint, or of its pooling, [`encode`] does not apply."""
    lost = [name for name in read_modules(name_or_path, revision) if name not in OWN_MODULES]
    pooling = read_pooling(name_or_path, revision)
    known = DSE_POOLINGS if config.model_type == "dse" else POOLINGS
    return lost if pooling in known else [*lost, f"the pooling {pooling}"]


def read_prompts(name_or_path: str, revision: str = "main") -> dict[str, str] | None:
    """
    The prompts of a sentence-transformers checkpoint that are not empty; `None` if it has no settings. A prompt for
    passages or for a corpus is that for documents if there is no other, for which `encode_document` of
    sentence-transformers, too, looks in this order, though version 6 finds an empty one for documents first.
    """
    stored = read_json(name_or_path, SETTINGS, revision).get("prompts")
    if stored is None:
        return None
    if not isinstance(stored, dict) or not all(isinstance(text, str | None) for text in stored.values()):
        raise ValueError(f"{name_or_path}: `prompts` in {SETTINGS} are {stored!r}, not texts by name.")
    document = next((stored[name] for name in ("document", "passage", "corpus") if name in stored), None)
    return {name: text for name, text in {**stored, "document": document}.items() if text}


def read_text_settings(name_or_path: str, revision: str = "main") -> tuple[dict[str, Any], str]:
    """How sentence-transformers reads texts with a checkpoint, empty without such settings, and the file's name."""
    if stored := read_json(name_or_path, LENGTHS, revision):
        return stored, LENGTHS
    # Each file that is not there costs a request to the Hub.
    is_dse = read_json(name_or_path, "config.json", revision).get("model_type") == "dse"
    names = [] if is_dse or not read_modules(name_or_path, revision) else OLD_LENGTHS
    found = ((stored, name) for name in names if (stored := read_json(name_or_path, name, revision)))
    return next(found, ({}, LENGTHS))


def read_lengths(name_or_path: str, revision: str = "main") -> dict[str, int] | None:
    """
    `query_length` and `document_length` of a sentence-transformers checkpoint, those that it has; `None` if it has no
    settings.
    """
    stored, file = read_text_settings(name_or_path, revision)
    lengths = {name: value for name in TEXT_LENGTHS if (value := stored.get(name)) is not None}
    for name, length in lengths.items():
        if not isinstance(length, int) or length < 1:
            raise ValueError(f"{name_or_path}: `{name}` in {file} is {length!r}, no number of tokens.")
    return lengths if stored else None


def read_max_length(name_or_path: str, revision: str = "main") -> int | None:
    """How many tokens sentence-transformers reads of a text with a checkpoint, if it has a length of its own."""
    stored, file = read_text_settings(name_or_path, revision)
    length = stored.get("max_seq_length")
    if length is not None and (not isinstance(length, int) or length < 1):
        raise ValueError(f"{name_or_path}: `max_seq_length` in {file} is {length!r}, no number of tokens.")
    return length


def warn_of_prompts(name_or_path: str, revision: str = "main") -> None:
    """
    Warns of a checkpoint with a prompt for all texts, and of one whose pooling leaves out the tokens of a prompt, as
    that of INSTRUCTOR.
    """
    prompts = read_prompts(name_or_path, revision) or {}
    default = read_json(name_or_path, SETTINGS, revision).get("default_prompt_name")
    if default in prompts:
        logger.warning(
            f"{name_or_path} has the default prompt {default!r}, which sentence-transformers puts before every text, "
            f"and hf_dse only before those that are encoded with `prompt_name={default!r}`."
        )
    if prompts and read_json(name_or_path, POOLING, revision).get("include_prompt") is False:
        logger.warning(
            f"{name_or_path} leaves its prompts out of the pooling (`include_prompt`), which is not done here: "
            "embeddings of texts with a prompt differ from those of sentence-transformers."
        )


def read_similarity(name_or_path: str, revision: str = "main") -> str:
    """
    How sentence-transformers compares two embeddings of a checkpoint: by `"dot"` product, or by `"cosine"`, which
    stands for other similarities too, with a warning.
    """
    name = read_json(name_or_path, SETTINGS, revision).get("similarity_fn_name")
    if name not in (None, "cosine", "dot", "dot_product"):
        logger.warning(
            f"{name_or_path} compares embeddings by {name!r} in sentence-transformers, and here by their cosine: a "
            "search may rank otherwise."
        )
    return "dot" if name in ("dot", "dot_product") else "cosine"


def read_pooling(name_or_path: str, revision: str = "main") -> str:
    """The pooling of a sentence-transformers checkpoint, its settings if it is none of ours; mean for others."""
    pooling = read_json(name_or_path, POOLING, revision)
    if not pooling:
        return "mean"
    chosen = [
        mode
        for mode, key in POOLINGS.items()
        if pooling.get(f"pooling_mode_{key}") or pooling.get("pooling_mode") == mode
    ]
    return chosen[0] if len(chosen) == 1 else str(pooling)


def read_modules(name_or_path: str, revision: str = "main") -> list[str]:
    """The names of the modules of a sentence-transformers checkpoint; none for other checkpoints."""
    return [kind.rpartition(".")[2] for kind in module_types(name_or_path, revision)]


def module_types(name_or_path: str, revision: str = "main") -> list[str]:
    """The modules of a sentence-transformers checkpoint by the full names of their classes."""
    modules = read_json(name_or_path, "modules.json", revision, list)
    kinds = [module.get("type") if isinstance(module, dict) else None for module in modules]
    if not all(isinstance(kind, str) for kind in kinds):
        raise ValueError(f"{name_or_path}: each module in modules.json needs a `type`, and they have {kinds}.")
    return [str(kind) for kind in kinds]


def check_modules(name_or_path: str, revision: str = "main") -> None:
    """
    Raises a `ValueError` if a module of a sentence-transformers checkpoint is outside of it, or has its weights in a
    pickle, which sentence-transformers reads where there are no safetensors.
    """
    name, commit = split_revision(name_or_path, revision)
    optional = {
        f"_raise_exceptions_for_{kind}": False for kind in ("missing_entries", "gated_repo", "connection_errors")
    }
    for module in read_json(name_or_path, "modules.json", revision, list):
        folder = Path(str(module.get("path") or ""))
        if folder.is_absolute() or ".." in folder.parts:
            raise ValueError(f"{name_or_path} has its module {str(folder)!r} elsewhere: its modules.json is damaged.")
        # Those of transformers are told to read safetensors only, which may be in several files.
        kinds = () if str(module.get("type")).endswith(".Transformer") else (SAFE_WEIGHTS_NAME, WEIGHTS_NAME)
        found = (file for file in kinds if cached_file(name, (folder / file).as_posix(), revision=commit, **optional))
        if next(found, None) == WEIGHTS_NAME:
            pickle = (folder / WEIGHTS_NAME).as_posix()
            raise ValueError(
                f"{name_or_path} has weights in {pickle}, a pickle, and no {SAFE_WEIGHTS_NAME} beside it: load it "
                "with sentence-transformers if you trust it, and save it again."
            )


def warn_of_other_code(model: PreTrainedModel, name_or_path: str, revision: str = "main") -> None:
    """Names a DSE checkpoint with other code than that of the installed hf_dse, if it is the latter that runs."""
    ours = Path(inspect.getfile(DseModel)).parent
    if Path(inspect.getfile(type(model))).parent != ours:
        return
    different = [
        file.name
        for file in sorted(ours.glob("*_dse.py"))
        if read_file(name_or_path, file.name, revision) not in (None, file.read_text(encoding="utf-8"))
    ]
    if different:
        logger.warning(
            f"{pin(name_or_path, revision)} has its own code in {', '.join(different)}, and that of the installed "
            f"hf_dse {__version__} runs: if the results are not those of its card, install the version that the card "
            "names."
        )


def read_json(name_or_path: str, filename: str, revision: str = "main", kind: type = dict) -> Any:
    """The object (or a list, as `kind`) in a json file of a checkpoint; an empty one if the file does not exist."""
    text = read_file(name_or_path, filename, revision)
    if text is None:
        return kind()
    try:
        content = parse_json(text)
    except ValueError as error:
        raise ValueError(f"{name_or_path}: {filename} is not valid JSON: {error}.") from error
    if not isinstance(content, kind):
        wanted = "an object" if kind is dict else "a list"
        raise ValueError(f"{name_or_path}: {filename} has to hold {wanted}, and it holds a {type(content).__name__}.")
    return content


def read_file(name_or_path: str, filename: str, revision: str = "main") -> str | None:
    """The text of a file of a checkpoint; `None` if the file does not exist."""
    name, revision = split_revision(name_or_path, revision)
    path = cached_file(
        name,
        filename,
        revision=revision,
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    return None if path is None else read_text(Path(path))


def stores_head(name_or_path: str, revision: str = "main") -> bool:
    """Whether a DSE checkpoint has weights of a head for sentence pairs. Its config always names the encoder."""
    optional = {"_raise_exceptions_for_missing_entries": False, "_raise_exceptions_for_gated_repo": False}
    names = set(read_json(name_or_path, SAFE_WEIGHTS_INDEX_NAME, revision).get("weight_map", {}))
    if not names:
        name, revision = split_revision(name_or_path, revision)
        weights = cached_file(name, SAFE_WEIGHTS_NAME, revision=revision, **optional)
        if weights is None:
            return False
        with reading(name_or_path), safe_open(weights, framework="pt") as tensors:
            names = set(tensors.keys())
    return any(name.startswith("similarity.") for name in names)
