# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Teachers: fine-tuning a cross-encoder on a pair task, and scoring sentence pairs with one."""

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import torch
from datasets import Dataset, concatenate_datasets
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TrainingArguments,
    set_seed,
)
from transformers.utils import logging
from transformers.utils.logging import tqdm

from .data import CrossEncoderCollator, DataArguments, PairTask, lengths, load_pairs, resolve_task, token_lengths
from .encoding import check_max_length, encode_pairs, evaluating, length_batches
from .evaluation import compute_metrics_for
from .trainer import ReproducibleTrainer
from .training_args import check_output_dir


logger = logging.get_logger(__name__)


@dataclass
class TeacherArguments:
    """Which encoder becomes a cross-encoder."""

    model_name_or_path: str = field(metadata={"help": "The encoder to fine-tune: a folder or a Hub name."})
    model_revision: str = field(default="main", metadata={"help": "Branch, tag or commit on the Hub."})
    trust_remote_code: bool = field(default=False, metadata={"help": "Run the code that comes with the model."})
    overwrite_output_dir: bool = field(
        default=False, metadata={"help": "Train into a folder that is not empty; checkpoints in it are deleted."}
    )


class CrossEncoderTrainer(ReproducibleTrainer):
    """A [`~transformers.Trainer`] that swaps sentences in training only."""

    def get_eval_dataloader(self, eval_dataset=None):
        training = self.data_collator
        if isinstance(training, CrossEncoderCollator):
            self.data_collator = CrossEncoderCollator(training.processing_class, training.max_length)
        try:
            return super().get_eval_dataloader(eval_dataset)
        finally:
            self.data_collator = training


def train_teacher(
    teacher_args: TeacherArguments, data_args: DataArguments, training_args: TrainingArguments
) -> dict[str, float]:
    """
    Fine-tunes an encoder as a cross-encoder on a pair task and saves it with its tokenizer.

    In a symmetric task each pair is seen in a random order, so that both orders are learned over the epochs.

    Args:
        teacher_args (`TeacherArguments`):
            The encoder.
        data_args (`DataArguments`):
            The pairs. The split `train` is required, `validation` is evaluated during the training, and every
            labelled split but `train` at the end.
        training_args (`TrainingArguments`):
            Everything else, usually [`PairTrainingArguments`].

    Returns:
        `dict[str, float]`: the metrics of the training, and of the saved model as `eval_*` (validation) and `test_*`.

    Raises:
        `FileExistsError`: if the output folder is not empty.
        `ValueError`: for bad data, a loss that is not finite, or constant predictions.

    Example:

    ```python
    >>> train_teacher(
    ...     TeacherArguments("microsoft/mpnet-base"),
    ...     DataArguments(task_name="stsb"),
    ...     PairTrainingArguments(output_dir="teacher", num_train_epochs=3),
    ... )
    ```
    """
    task = resolve_task(data_args)
    checkpoint = check_output_dir(
        str(training_args.output_dir), training_args.resume_from_checkpoint, teacher_args.overwrite_output_dir
    )
    pairs = load_pairs(data_args)
    if "train" not in pairs:
        raise ValueError(f"There is no train split to learn from; found {', '.join(pairs)}.")
    labelled = {split for split, part in pairs.items() if "label" in part.column_names}
    if "validation" not in labelled and training_args.eval_strategy != "no":
        logger.warning("There is no labelled validation split: nothing is evaluated, and the last model is kept.")
        training_args.eval_strategy = "no"
        training_args.load_best_model_at_end = False
    if training_args.load_best_model_at_end and training_args.metric_for_best_model in (None, "loss"):
        training_args.metric_for_best_model = task.metric_for_best_model
        training_args.greater_is_better = True

    set_seed(training_args.seed)
    source: dict[str, Any] = {
        "revision": teacher_args.model_revision,
        "trust_remote_code": teacher_args.trust_remote_code,
    }
    tokenizer = AutoTokenizer.from_pretrained(teacher_args.model_name_or_path, **source)
    # Weights stored in half precision are no basis for training: TrainingArguments' bf16 and fp16 keep float32 ones.
    model, info = AutoModelForSequenceClassification.from_pretrained(
        teacher_args.model_name_or_path,
        num_labels=task.num_labels,
        problem_type=task.problem_type,
        dtype=torch.float32,
        # A cross-encoder of another task may start from its encoder; its head is replaced.
        ignore_mismatched_sizes=True,
        output_loading_info=True,
        **source,
    )
    if task.num_labels == 1:
        new = {*info["missing_keys"], *(key for key, *_ in info["mismatched_keys"])}
        _center_head(model, new, pairs["train"]["label"][:])
    check_max_length(data_args.max_seq_length, model, tokenizer, pair=True)
    parts = {split: lengths(part, tokenizer, joint=True) for split, part in pairs.items()}
    for split, part in parts.items():
        cut = sum(length > data_args.max_seq_length for length in part["length"][:])
        if cut:
            logger.warning(
                f"{cut} of {len(part)} {split} pairs are longer than {data_args.max_seq_length} tokens and are cut: "
                "raise `max_seq_length` if their ends matter."
            )
    trainer = CrossEncoderTrainer(
        model=model,
        args=training_args,
        train_dataset=parts["train"],
        eval_dataset=parts["validation"] if "validation" in labelled else None,
        processing_class=tokenizer,
        data_collator=CrossEncoderCollator(tokenizer, data_args.max_seq_length, swap=task.symmetric),
        compute_metrics=compute_metrics_for(task.problem_type, task.num_labels),
    )
    metrics = dict(trainer.train(resume_from_checkpoint=checkpoint).metrics)
    trainer.save_model()
    trainer.save_state()
    for split, prefix in (("validation", "eval"), ("test", "test")):
        if split in labelled:
            metrics.update(trainer.evaluate(parts[split], metric_key_prefix=prefix))
    trainer.save_metrics("all", metrics, combined=False)
    return metrics


def _center_head(model: PreTrainedModel, new: set[str], labels: Sequence[float]) -> None:
    """
    Lets a new regression head start at the mean label. Otherwise the first epoch goes into reaching it, at the rate of
    fine-tuning, through weights that have better things to learn.
    """
    for name, parameter in model.named_parameters():
        if name in new and name.endswith("bias") and parameter.shape == (1,):
            with torch.no_grad():
                parameter.fill_(sum(labels) / len(labels))


def load_teacher(
    model_name_or_path: str,
    *,
    revision: str = "main",
    trust_remote_code: bool = False,
    dtype: str | torch.dtype = "float32",
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """
    Loads a cross-encoder together with its tokenizer.

    Args:
        model_name_or_path (`str`):
            A folder or a Hub name: what `AutoModelForSequenceClassification` loads, sentence-transformers
            CrossEncoders among them.
        revision (`str`, *optional*, defaults to `"main"`):
            Branch, tag or commit on the Hub.
        trust_remote_code (`bool`, *optional*, defaults to `False`):
            Whether to run the code that comes with the model.
        dtype (`str` or `torch.dtype`, *optional*, defaults to `"float32"`):
            Number format of the weights. `"bfloat16"` is several times faster where the hardware has it, and rounds
            scores to about 0.4 %.

    Returns:
        `tuple[PreTrainedModel, PreTrainedTokenizerBase]`: the model in evaluation mode, and the tokenizer.

    Raises:
        `ValueError`: if the checkpoint has no trained classification head.
    """
    source: dict[str, Any] = {"revision": revision, "trust_remote_code": trust_remote_code}
    model, info = AutoModelForSequenceClassification.from_pretrained(
        model_name_or_path, dtype=dtype, output_loading_info=True, **source
    )
    # A head that is not in the checkpoint is random, and its scores are noise.
    if info["missing_keys"]:
        raise ValueError(
            f"{model_name_or_path} is no trained cross-encoder: it lacks {', '.join(sorted(info['missing_keys']))}. "
            "Fine-tune it on pairs first, with `hf-dse teacher`."
        )
    return model.eval(), AutoTokenizer.from_pretrained(model_name_or_path, **source)


def default_device() -> torch.device:
    """The accelerator of this machine if there is one, otherwise the CPU."""
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return accelerator or torch.device("cpu")


def check_num_labels(num_logits: int | None, task: PairTask) -> None:
    """
    Compares a teacher's head with a task.

    Args:
        num_logits (`int`):
            Logits of the teacher.
        task (`PairTask`):
            The task; a binary one takes one or two logits.

    Raises:
        `ValueError`: if they do not fit.
    """
    allowed = {2: (1, 2)}.get(task.num_labels, (task.num_labels,))
    if num_logits not in allowed:
        raise ValueError(
            f"The teacher has {num_logits} logits, but task {task.name!r} has {task.num_labels} labels and needs "
            f"{' or '.join(map(str, allowed))}: use a teacher trained for this task, or the task it was trained for."
        )


def score_pairs(
    teacher: str | PreTrainedModel,
    dataset: Dataset,
    *,
    processing_class: PreTrainedTokenizerBase | None = None,
    batch_size: int = 64,
    max_length: int | None = None,
    symmetric: bool = False,
    cache_dir: str | Path | None = None,
    column: str = "teacher_logits",
    device: str | torch.device | None = None,
    show_progress: bool = True,
) -> Dataset:
    """
    Adds a teacher's raw logits to sentence pairs. Every distinct pair is scored once, in batches of similar length.

    Args:
        teacher (`str` or `PreTrainedModel`):
            A cross-encoder: a loaded model, or what [`load_teacher`] takes.
        dataset (`Dataset`):
            Pairs with the columns `sentence1` and `sentence2`.
        processing_class (`PreTrainedTokenizerBase`, *optional*):
            The tokenizer; required with a loaded model.
        batch_size (`int`, *optional*, defaults to 64):
            Largest number of pairs in a batch; of pairs above 512 tokens a batch takes fewer.
        max_length (`int`, *optional*):
            Tokens after which a pair is cut, the longer sentence first. Defaults to what the teacher takes.
        symmetric (`bool`, *optional*, defaults to `False`):
            Whether to score both orders of a pair and average.
        cache_dir (`str` or `Path`, *optional*):
            Folder of the scores that are already known. They are stored batch by batch, so a run that was killed goes
            on where it stopped; they belong to the weights, the configuration and the tokenizer of the teacher, so
            that another teacher never meets them.
        column (`str`, *optional*, defaults to `"teacher_logits"`):
            Name of the new column; one of that name is replaced.
        device (`str` or `torch.device`, *optional*):
            Where to run. Defaults to where a loaded model is, otherwise to an accelerator if there is one.
        show_progress (`bool`, *optional*, defaults to `True`):
            Whether to show a progress bar.

    Returns:
        `Dataset`: the dataset with a list of `num_labels` floats a row: logits, to which no sigmoid or softmax was
        applied.

    Raises:
        `ValueError`: if a column or the tokenizer is missing, a limit does not fit, a score is not finite, or the
        cache is damaged.

    Example:

    ```python
    >>> pairs = load_pairs(DataArguments(task_name="stsb"))["train"]
    >>> score_pairs("cross-encoder/stsb-roberta-base", pairs, symmetric=True, cache_dir="scores")[0]["teacher_logits"]
    ```
    """
    missing = {"sentence1", "sentence2"} - set(dataset.column_names)
    if missing:
        raise ValueError(
            f"There is no column {' or '.join(sorted(missing))} to score; the columns are "
            f"{', '.join(dataset.column_names)}. Rename them, or read the data with `load_pairs`."
        )
    if batch_size < 1:
        raise ValueError(f"batch_size has to be at least 1, got {batch_size}.")
    if isinstance(teacher, str | Path):
        model, tokenizer = load_teacher(str(teacher))
        processing_class = processing_class or tokenizer
        device = device or default_device()
    elif processing_class is None:
        raise ValueError("A teacher given as a model needs its tokenizer: pass `processing_class`.")
    else:
        model = teacher
    if device is not None:
        model.to(device)  # type: ignore[arg-type]
    max_length = check_max_length(max_length, model, processing_class, pair=True)

    rows = list(zip(dataset["sentence1"][:], dataset["sentence2"][:], strict=True))
    orders = [rows, [pair[::-1] for pair in rows]] if symmetric else [rows]
    pairs = list(dict.fromkeys(pair for order in orders for pair in order))
    path = None
    if cache_dir is not None:
        path = Path(cache_dir).expanduser() / f"{fingerprint(model, processing_class)[:16]}.sqlite"
    with _open_cache(path, model.config.num_labels) as cache:
        scores = cache.read(pairs, max_length)
        unknown = [pair for pair in pairs if pair not in scores]
        with tqdm(total=len(unknown), desc="Scoring pairs", unit="pair", disable=not show_progress) as progress:
            for batch in _score(model, processing_class, unknown, batch_size, max_length):
                cache.write(batch, max_length)
                scores.update(batch)
                progress.update(len(batch))

    logits = np.mean([[scores[pair] for pair in order] for order in orders], axis=0)  # [N, C]
    if column in dataset.column_names:
        dataset = dataset.remove_columns(column)
    return dataset.add_column(column, logits.tolist())


def score_similarities(
    encoder: PreTrainedModel,
    dataset: Dataset,
    *,
    processing_class: PreTrainedTokenizerBase,
    scale: float = 5.0,
    bias: float = 0.0,
    batch_size: int = 64,
    max_length: int | None = None,
    column: str = "teacher_logits",
    device: str | torch.device | None = None,
    show_progress: bool = True,
) -> Dataset:
    """
    Adds the similarities of a bi-encoder to sentence pairs: a second teacher. On texts like those of its own task,
    such as queries and passages, the source of a student teaches it to stay what it was there.

    Args:
        encoder (`PreTrainedModel`):
            What [`~hf_dse.encode`] takes.
        dataset (`Dataset`):
            Pairs with the columns `sentence1` and `sentence2`.
        processing_class (`PreTrainedTokenizerBase`):
            The tokenizer of the encoder.
        scale (`float`, *optional*, defaults to 5.0):
            A pair's score is `scale * cosine + bias`, on the scale of the labels.
        bias (`float`, *optional*, defaults to 0.0):
            See `scale`.
        batch_size (`int`, *optional*, defaults to 64):
            Largest number of texts in a batch.
        max_length (`int`, *optional*):
            Tokens after which a text is cut. Defaults to what the encoder takes.
        column (`str`, *optional*, defaults to `"teacher_logits"`):
            Name of the new column; one of that name is replaced.
        device (`str` or `torch.device`, *optional*):
            Where to run. Defaults to where the encoder is.
        show_progress (`bool`, *optional*, defaults to `True`):
            Whether to show a progress bar.

    Returns:
        `Dataset`: the dataset with a list of one float a row.

    Raises:
        `ValueError`: if an embedding is not finite.

    Example:

    ```python
    >>> score_similarities(encoder, pairs, processing_class=tokenizer)[0]["teacher_logits"]
    ```
    """
    first, second = encode_pairs(
        encoder,
        processing_class,
        dataset["sentence1"][:],
        dataset["sentence2"][:],
        batch_size=batch_size,
        max_length=max_length,
        normalize=True,
        device=device,
        show_progress=show_progress,
    )
    cosines = np.einsum("nd,nd->n", first, second, dtype=np.float64)
    if column in dataset.column_names:
        dataset = dataset.remove_columns(column)
    return dataset.add_column(column, (scale * cosines + bias)[:, None].tolist())


def embed_pairs(
    encoder: PreTrainedModel,
    dataset: Dataset,
    *,
    processing_class: PreTrainedTokenizerBase,
    batch_size: int = 64,
    max_length: int | None = None,
    column: str = "embeddings",
    device: str | torch.device | None = None,
    show_progress: bool = True,
) -> Dataset:
    """
    Adds the embeddings of a bi-encoder to sentence pairs, for a [`~hf_dse.losses.similarity_loss`].

    Args:
        encoder (`PreTrainedModel`):
            What [`~hf_dse.encode`] takes. It may have another tokenizer than the student.
        dataset (`Dataset`):
            Pairs with the columns `sentence1` and `sentence2`.
        processing_class (`PreTrainedTokenizerBase`):
            The tokenizer of the encoder.
        batch_size (`int`, *optional*, defaults to 64):
            Largest number of texts in a batch.
        max_length (`int`, *optional*):
            Tokens after which a text is cut. Defaults to what the encoder takes.
        column (`str`, *optional*, defaults to `"embeddings"`):
            Name of the new column; one of that name is replaced.
        device (`str` or `torch.device`, *optional*):
            Where to run. Defaults to where the encoder is.
        show_progress (`bool`, *optional*, defaults to `True`):
            Whether to show a progress bar.

    Returns:
        `Dataset`: the dataset with two embeddings a row, of type float32.

    Raises:
        `ValueError`: if an embedding is not finite.

    Example:

    ```python
    >>> len(embed_pairs(encoder, pairs, processing_class=tokenizer)[0]["embeddings"])
    2
    ```
    """
    vectors = encode_pairs(
        encoder,
        processing_class,
        dataset["sentence1"][:],
        dataset["sentence2"][:],
        batch_size=batch_size,
        max_length=max_length,
        device=device,
        show_progress=show_progress,
    )
    both = np.stack(vectors, axis=1)
    if column in dataset.column_names:
        dataset = dataset.remove_columns(column)
    rows = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(both.reshape(-1)), both.shape[2])
    table = pyarrow.table({column: pyarrow.FixedSizeListArray.from_arrays(rows, 2)})
    return concatenate_datasets([dataset, Dataset(table)], axis=1)


Pair = tuple[str, str]


def _score(
    model: PreTrainedModel,
    processing_class: PreTrainedTokenizerBase,
    pairs: Sequence[Pair],
    batch_size: int,
    max_length: int | None,
) -> Iterator[dict[Pair, list[float]]]:
    """Yields the logits of batches of pairs."""
    if not pairs:
        return
    sizes = token_lengths(processing_class, *(list(texts) for texts in zip(*pairs, strict=True)))
    if max_length is not None:
        cut = sum(size > max_length for size in sizes)
        if cut:
            logger.warning(
                f"{cut} of {len(pairs)} pairs are longer than {max_length} tokens and were cut: raise the limit, "
                "or use a teacher with more positions, if their ends matter."
            )
        sizes = [min(size, max_length) for size in sizes]
    with evaluating(model), torch.inference_mode():
        for positions in length_batches(sizes, batch_size):
            batch = [pairs[position] for position in positions]
            first, second = (list(texts) for texts in zip(*batch, strict=True))
            truncation: Any = "longest_first" if max_length is not None else False
            encoded = processing_class(
                first,
                second,
                truncation=truncation,
                max_length=max_length,
                padding=True,
                return_tensors="pt",
                verbose=False,
            )
            logits = model(**encoded.to(model.device)).logits.double().cpu()  # [B, C]
            for pair, row in zip(batch, logits.isfinite().all(dim=-1).tolist(), strict=True):
                if not row:
                    raise ValueError(
                        f"The teacher's score of the pair {pair!r} is NaN or infinite: its weights are damaged, or it "
                        "does not run in this precision (float16 overflows easily)."
                    )
            yield dict(zip(batch, logits.tolist(), strict=True))


def fingerprint(model: PreTrainedModel, processing_class: PreTrainedTokenizerBase) -> str:
    """
    Identifies what decides a score.

    Args:
        model (`PreTrainedModel`):
            The teacher: its weights and its configuration count.
        processing_class (`PreTrainedTokenizerBase`):
            Its tokenizer: vocabulary and rules count, not the padding and truncation of the last call.

    Returns:
        `str`: a SHA-256 in hexadecimal digits.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    config = model.config.to_dict()
    # What says where a model comes from, or who reads it, does not change its scores.
    for name in ("_name_or_path", "transformers_version", "sentence_transformers", "architectures"):
        config.pop(name, None)
    digest.update(json.dumps(config, sort_keys=True, default=str).encode())
    backend = getattr(processing_class, "backend_tokenizer", None)
    rules = json.loads(backend.to_str()) if backend is not None else processing_class.get_vocab()
    for name in ("truncation", "padding"):
        rules.pop(name, None)
    digest.update(json.dumps(rules, sort_keys=True).encode())
    digest.update(f"{type(processing_class).__name__} {processing_class.padding_side}".encode())
    return digest.hexdigest()


class _ScoreCache:
    """The scores of one teacher in a table: a digest of the ordered pair and the length limit, and its logits."""

    def __init__(self, connection: sqlite3.Connection, num_labels: int | None):
        self.connection = connection
        self.num_labels = num_labels
        connection.execute("CREATE TABLE IF NOT EXISTS scores (pair BLOB PRIMARY KEY, logits BLOB) WITHOUT ROWID")

    @staticmethod
    def _key(pair: Pair, max_length: int | None) -> bytes:
        return hashlib.sha256(json.dumps([*pair, max_length]).encode()).digest()

    def read(self, pairs: Iterable[Pair], max_length: int | None) -> dict[Pair, list[float]]:
        scores = {}
        for pair in pairs:
            key = (self._key(pair, max_length),)
            row = self.connection.execute("SELECT logits FROM scores WHERE pair = ?", key).fetchone()
            if row is not None:
                # Eight bytes a number: anything else was not written here.
                if not isinstance(row[0], bytes) or len(row[0]) != 8 * (self.num_labels or 0):
                    raise sqlite3.DatabaseError(f"a score is not {self.num_labels} numbers")
                scores[pair] = np.frombuffer(row[0], dtype="<f8").tolist()
        return scores

    def write(self, scores: Mapping[Pair, list[float]], max_length: int | None) -> None:
        rows = [(self._key(pair, max_length), np.array(row, dtype="<f8").tobytes()) for pair, row in scores.items()]
        with self.connection:
            self.connection.executemany("INSERT OR REPLACE INTO scores VALUES (?, ?)", rows)


@contextmanager
def _open_cache(path: Path | None, num_labels: int | None) -> Iterator[_ScoreCache]:
    """Opens a cache, in memory without a path, and says which file to delete where it is damaged."""
    try:
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        # Two runs may share the file: each waits for the other's commit of a batch.
        with closing(sqlite3.connect(path or ":memory:", timeout=60.0)) as connection:
            problem = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if problem != "ok":
                raise sqlite3.DatabaseError(problem)
            yield _ScoreCache(connection, num_labels)
    except sqlite3.OperationalError as error:
        raise OSError(f"The score cache {path} cannot be used: {error}.") from error
    except sqlite3.DatabaseError as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"The score cache {path} is damaged ({reason}): delete this file and run again.") from error
