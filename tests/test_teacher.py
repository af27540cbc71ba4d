# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Training cross-encoders and scoring pairs with them, and the commands `hf-dse teacher` and `hf-dse score`."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from datetime import date

import numpy as np
import pyarrow.parquet
import pytest
import torch
from datasets import Dataset
from tokenizers.pre_tokenizers import ByteLevel
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertTokenizer,
    DebertaV2Config,
    DebertaV2ForSequenceClassification,
    DebertaV2Tokenizer,
    MPNetConfig,
    MPNetForSequenceClassification,
    MPNetTokenizer,
    RobertaConfig,
    RobertaForSequenceClassification,
    RobertaTokenizer,
    XLNetConfig,
    XLNetForSequenceClassification,
    XLNetTokenizer,
)

from hf_dse.common.provenance import fingerprint
from hf_dse.data.collators import CrossEncoderCollator
from hf_dse.data.pairs import DataArguments, load_pairs
from hf_dse.data.tables import read_columns
from hf_dse.data.tasks import PAIR_TASKS
from hf_dse.teacher.fine_tune import CrossEncoderTrainer, TeacherArguments, train_teacher
from hf_dse.teacher.load import check_labels, load_teacher
from hf_dse.teacher.score import score_pairs
from hf_dse.training.arguments import PairTrainingArguments
from hf_dse.training.base import FiniteLossCallback, check_output_dir
from hf_dse_cli import main


WORDS = "the a cat dog sat ran on under mat rug big small old new red house and then slept all day".split()
PAIRS = {
    "sentence1": ["the cat sat", "a dog ran", "old house", "the cat sat", "all day", "big red dog then slept all day"],
    "sentence2": ["a cat sat on the mat", "the cat sat", "new house", "a dog ran", "then the dog slept", "a dog ran"],
}
SHAPE = {
    "vocab_size": 300,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "initializer_range": 0.5,
}
ARCHITECTURES = ["bert", "roberta", "mpnet", "deberta", "xlnet"]


@pytest.fixture
def pairs():
    return Dataset.from_dict(PAIRS | {"label": [4.5, 1.0, 3.0, 0.5, 2.0, 2.5]})


def make_tokenizer(architecture):
    if architecture == "bert":
        return BertTokenizer(numbered(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]), model_max_length=64)
    if architecture == "mpnet":
        return MPNetTokenizer(numbered(["<s>", "<pad>", "</s>", "[UNK]", "<mask>", *WORDS]), model_max_length=64)
    if architecture == "roberta":
        vocab = numbered(["<s>", "<pad>", "</s>", "<unk>", "<mask>", *sorted(ByteLevel.alphabet())])
        return RobertaTokenizer(vocab, merges=[], model_max_length=64)
    pieces = [(f"\u2581{word}", -1.0) for word in WORDS]
    if architecture == "deberta":
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        return DebertaV2Tokenizer([(token, 0.0) for token in special] + pieces, model_max_length=64)
    special = ["<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"]
    return XLNetTokenizer([(token, 0.0) for token in special] + pieces, model_max_length=64)


def numbered(tokens):
    return {token: i for i, token in enumerate(tokens)}


def make_model(architecture="bert", num_labels=1, seed=0, **fields):
    torch.manual_seed(seed)
    shape = SHAPE | {"num_labels": num_labels} | fields
    if architecture == "bert":
        model = BertForSequenceClassification(BertConfig(max_position_embeddings=64, **shape))
    elif architecture == "mpnet":
        model = MPNetForSequenceClassification(MPNetConfig(max_position_embeddings=66, **shape))
    elif architecture == "roberta":
        model = RobertaForSequenceClassification(RobertaConfig(max_position_embeddings=66, type_vocab_size=1, **shape))
    elif architecture == "deberta":
        model = DebertaV2ForSequenceClassification(
            DebertaV2Config(
                max_position_embeddings=64,
                relative_attention=True,
                pos_att_type=["c2p", "p2c"],
                type_vocab_size=0,
                **shape,
            )
        )
    else:
        sizes = {"d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 32, "initializer_range": 0.5, "vocab_size": 300}
        model = XLNetForSequenceClassification(XLNetConfig(pad_token_id=5, num_labels=num_labels, **sizes))
    return model.eval()


def save_teacher(folder, architecture="bert", **arguments):
    make_model(architecture, **arguments).save_pretrained(folder)
    make_tokenizer(architecture).save_pretrained(folder)
    return str(folder)


def plain_logits(model, tokenizer, first, second):
    """Scores one pair at a time, without any batching."""
    with torch.no_grad():
        return [
            model(**tokenizer(a, b, return_tensors="pt")).logits[0].tolist()
            for a, b in zip(first, second, strict=True)
        ]


def close(actual, expected, tolerance=1e-5):
    return torch.allclose(torch.tensor(actual), torch.tensor(expected), atol=tolerance, rtol=tolerance)


# Scoring


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("num_labels", [1, 3])
def test_scores_are_the_logits_of_the_teacher(tmp_path, pairs, architecture, num_labels):
    folder = save_teacher(tmp_path / "teacher", architecture, num_labels=num_labels)
    scored = score_pairs(folder, pairs, batch_size=4, device="cpu", show_progress=False)
    assert scored.column_names == ["sentence1", "sentence2", "label", "teacher_logits"]
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    expected = plain_logits(model, AutoTokenizer.from_pretrained(folder), PAIRS["sentence1"], PAIRS["sentence2"])
    assert close(scored["teacher_logits"][:], expected)
    assert torch.tensor(expected).std(dim=0).min() > 1e-3


@pytest.mark.parametrize("num_labels", [1, 3])
def test_a_sentence_transformers_cross_encoder_folder(tmp_path, pairs, num_labels):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    source = save_teacher(tmp_path / "source", "bert", num_labels=num_labels)
    cross_encoder = sentence_transformers.CrossEncoder(source, device="cpu")
    cross_encoder.save_pretrained(str(tmp_path / "teacher"))
    rows = list(zip(PAIRS["sentence1"], PAIRS["sentence2"], strict=True))
    expected = cross_encoder.predict(rows, activation_fn=torch.nn.Identity(), show_progress_bar=False)
    scored = score_pairs(str(tmp_path / "teacher"), pairs, device="cpu", show_progress=False)
    assert close(scored["teacher_logits"][:], expected.reshape(len(rows), -1).tolist())


def test_a_symmetric_score_is_the_mean_of_both_orders(pairs):
    model, tokenizer = make_model(num_labels=2), make_tokenizer("bert")
    scored = score_pairs(model, pairs, processing_class=tokenizer, symmetric=True, show_progress=False)
    there = torch.tensor(plain_logits(model, tokenizer, PAIRS["sentence1"], PAIRS["sentence2"]))
    back = torch.tensor(plain_logits(model, tokenizer, PAIRS["sentence2"], PAIRS["sentence1"]))
    assert close(scored["teacher_logits"][:], ((there + back) / 2).tolist())
    assert (there - back).abs().max() > 1e-3
    # "the cat sat" and "a dog ran" occur in both orders.
    assert scored[1]["teacher_logits"] == scored[3]["teacher_logits"]


def test_distinct_pairs_are_scored_once_and_the_column_is_replaced(pairs, monkeypatch):
    model, tokenizer = make_model(), make_tokenizer("bert")
    seen = count_rows(model, monkeypatch)
    scored = score_pairs(model, pairs, processing_class=tokenizer, column="score", show_progress=False)
    assert sum(seen) == 6
    doubled = Dataset.from_list(scored.to_list() * 2)
    again = score_pairs(model, doubled, processing_class=tokenizer, column="score", show_progress=False)
    assert sum(seen) == 12
    assert again["score"][:] == scored["score"][:] * 2


def count_rows(model, monkeypatch):
    seen = []
    forward = model.forward
    monkeypatch.setattr(
        model, "forward", lambda input_ids, **rest: seen.append(len(input_ids)) or forward(input_ids, **rest)
    )
    return seen


def test_scoring_does_not_change_the_model(pairs):
    model = make_model().train()
    model.bert.embeddings.eval()
    first, second = (
        score_pairs(model, pairs, processing_class=make_tokenizer("bert"), show_progress=False) for _ in range(2)
    )
    assert first["teacher_logits"][:] == second["teacher_logits"][:]
    assert model.training and not model.bert.embeddings.training


def test_long_pairs_are_truncated_and_counted(warnings):
    model, tokenizer = make_model(), make_tokenizer("bert")
    long = Dataset.from_dict({"sentence1": ["the cat sat " * 30, "a dog"], "sentence2": ["a dog ran", "a cat"]})
    scored = score_pairs(model, long, processing_class=tokenizer, show_progress=False)
    assert len(warnings) == 1 and "1 of 2 pairs are longer than 64 tokens and were truncated" in warnings[0]
    assert "raise the teacher's max_length" in warnings[0]
    encoded = tokenizer(
        long[0]["sentence1"], long[0]["sentence2"], truncation=True, max_length=64, return_tensors="pt"
    )
    assert encoded["input_ids"].shape == (1, 64)
    assert close(scored[0]["teacher_logits"], model(**encoded).logits[0].tolist())


def test_a_progress_bar(capsys, pairs):
    model, tokenizer = make_model(), make_tokenizer("bert")
    score_pairs(model, pairs, processing_class=tokenizer)
    assert "Scoring pairs: 100%" in capsys.readouterr().err


@pytest.mark.parametrize("symmetric", [False, True])
def test_an_empty_dataset(tmp_path, pairs, symmetric):
    model, tokenizer = make_model(), make_tokenizer("bert")
    options = {"processing_class": tokenizer, "symmetric": symmetric, "show_progress": False}
    scored = score_pairs(model, pairs.select([]), cache_dir=tmp_path, **options)
    assert len(scored) == 0 and scored.column_names == [*pairs.column_names, "teacher_logits"]


def test_invalid_arguments(tmp_path, pairs):
    model, tokenizer = make_model(), make_tokenizer("bert")
    with pytest.raises(ValueError, match="needs its tokenizer: pass `processing_class`"):
        score_pairs(model, pairs)
    with pytest.raises(ValueError, match="no column sentence2 to score; the columns are sentence1, label"):
        score_pairs(model, pairs.remove_columns("sentence2"), processing_class=tokenizer)
    with pytest.raises(ValueError, match="batch_size has to be at least 1, got 0"):
        score_pairs(model, pairs, processing_class=tokenizer, batch_size=0)
    with pytest.raises(ValueError, match="max_length=65 is above the 64 tokens"):
        score_pairs(model, pairs, processing_class=tokenizer, max_length=65)
    with pytest.raises(ValueError, match="max_length=4 leaves no room for two sentences: pass at least 5"):
        score_pairs(model, pairs, processing_class=tokenizer, max_length=4)
    BertForMaskedLM(BertConfig(**SHAPE)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(
        ValueError, match="is not a trained cross-encoder: it has no .*classifier.weight.*hf-dse teacher"
    ):
        score_pairs(str(tmp_path), pairs)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_the_error_for_a_nan_or_infinite_score_names_the_pair(tmp_path, pairs, bad):
    model, tokenizer = make_model(), make_tokenizer("bert")
    with torch.no_grad():
        model.bert.embeddings.word_embeddings.weight[tokenizer.convert_tokens_to_ids("old")] = bad
    with pytest.raises(ValueError, match=r"score of the pair \('old house', 'new house'\) is NaN or infinite"):
        score_pairs(model, pairs, processing_class=tokenizer, show_progress=False)


def test_the_number_of_logits_has_to_fit_the_task():
    for name, good in (("stsb", (1,)), ("mrpc", (1, 2)), ("mnli", (3,))):
        for num_logits in (1, 2, 3):
            if num_logits in good:
                check_labels(BertConfig(num_labels=num_logits), PAIR_TASKS[name])
            else:
                with pytest.raises(ValueError, match=f"The teacher has {num_logits} logits, but task '{name}'"):
                    check_labels(BertConfig(num_labels=num_logits), PAIR_TASKS[name])


def test_a_regression_is_no_teacher_of_classes():
    config = BertConfig(num_labels=1, problem_type="regression")
    check_labels(config, PAIR_TASKS["stsb"])
    with pytest.raises(ValueError, match="The teacher predicts scores .* but task 'mrpc' has classes"):
        check_labels(config, PAIR_TASKS["mrpc"])


# The cache


def cached(model, pairs, folder, tokenizer=None, **arguments):
    tokenizer = tokenizer or make_tokenizer("bert")
    scored = score_pairs(model, pairs, processing_class=tokenizer, cache_dir=folder, show_progress=False, **arguments)
    return scored["teacher_logits"][:]


def test_cached_scores_are_not_computed_again(tmp_path, pairs, monkeypatch):
    model = make_model(num_labels=2)
    first = cached(model, pairs, tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    seen = count_rows(model, monkeypatch)
    # Keyed by text: another order of the rows and other columns make no difference.
    assert cached(model, pairs.select([3, 0, 5]).remove_columns("label"), tmp_path) == [first[3], first[0], first[5]]
    assert seen == []
    cached(model, Dataset.from_list([*pairs, {"sentence1": "new", "sentence2": "old", "label": 0.0}]), tmp_path)
    assert seen == [1]
    # The other orders of seven pairs, of which two are each other's.
    cached(model, pairs, tmp_path, symmetric=True)
    assert sum(seen) == 5
    cached(model, pairs, tmp_path, max_length=16)
    assert sum(seen) == 11


def test_texts_that_join_to_the_same_string_are_different_pairs(tmp_path):
    pairs = Dataset.from_dict({"sentence1": ["the cat", "the"], "sentence2": ["sat", "cat sat"]})
    model = make_model()
    first, second = cached(model, pairs, tmp_path)
    assert first != second
    assert cached(model, pairs, tmp_path) == [first, second]


def test_teachers_do_not_share_cached_scores(tmp_path, pairs, monkeypatch):
    model = make_model()
    first = cached(model, pairs, tmp_path)
    with torch.no_grad():
        model.classifier.bias += 1.0
    assert close(cached(model, pairs, tmp_path), (torch.tensor(first) + 1.0).tolist())
    with torch.no_grad():
        model.classifier.bias -= 1.0
    model.config.layer_norm_eps = 0.1
    cached(model, pairs, tmp_path)
    tokenizer = BertTokenizer(numbered(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *reversed(WORDS)]))
    assert cached(model, pairs, tmp_path, tokenizer, max_length=64) != first
    assert len(list(tmp_path.iterdir())) == 4


def test_the_fingerprint_is_unchanged_after_saving_and_loading(tmp_path):
    folder = save_teacher(tmp_path / "a")
    model, tokenizer = load_teacher(folder)
    first = fingerprint(model, tokenizer)
    tokenizer(["the cat"] * 2, ["a"] * 2, padding=True, truncation=True, max_length=8)
    assert fingerprint(model.train(), tokenizer) == first
    model.save_pretrained(tmp_path / "b")
    tokenizer.save_pretrained(tmp_path / "b")
    assert fingerprint(*load_teacher(str(tmp_path / "b"))) == first
    assert fingerprint(make_model(seed=1), tokenizer) != first


@pytest.mark.parametrize("damage", ["garbage", "pages", "value", "width"])
def test_a_damaged_cache_names_the_file_to_delete(tmp_path, damage):
    texts = [f"{a} {b}" for a in WORDS for b in WORDS]
    pairs = Dataset.from_dict({"sentence1": texts, "sentence2": texts[::-1]})
    model = make_model()
    cached(model, pairs, tmp_path)
    file = next(tmp_path.iterdir())
    content = bytearray(file.read_bytes())
    if damage == "garbage":
        file.write_bytes(b"no database" * 100)
    elif damage == "pages":
        content[4096:] = bytes(reversed(content[4096:]))
        file.write_bytes(content)
    else:
        value = b"1234" if damage == "value" else bytes(16)
        with sqlite3.connect(file) as connection:
            connection.execute("UPDATE scores SET logits = ?", (value,))
    with pytest.raises(ValueError, match=f"The score cache .*{file.name} is damaged .*: delete this file and run"):
        cached(model, pairs, tmp_path)
    file.unlink()
    assert len(cached(model, pairs.select(range(3)), tmp_path)) == 3


def test_a_cache_that_cannot_be_opened(tmp_path, pairs):
    (tmp_path / f"{fingerprint(make_model(), make_tokenizer('bert'))[:16]}.sqlite").mkdir()
    with pytest.raises(OSError, match="The score cache .* cannot be used: unable to open database file"):
        cached(make_model(), pairs, tmp_path)


def test_two_runs_share_a_cache(tmp_path, pairs):
    model = make_model()
    first = cached(model, pairs, tmp_path)
    with sqlite3.connect(next(tmp_path.iterdir())) as reader:
        reader.execute("SELECT * FROM scores").fetchone()
        more = Dataset.from_dict({"sentence1": ["new"], "sentence2": ["old"]})
        cached(model, more, tmp_path)
    assert cached(model, pairs, tmp_path) == first


KILLED_RUN = """
    import sys, time
    import torch
    from datasets import Dataset
    from hf_dse.teacher.load import load_teacher
    from hf_dse.teacher.score import score_pairs

    torch.set_num_threads(1)
    model, tokenizer = load_teacher(sys.argv[1])
    forward = model.forward

    def slow(**batch):
        # The third batch never ends: the parent kills this process then.
        slow.calls += 1
        if slow.calls == 3:
            print("two batches are done", flush=True)
            time.sleep(600)
        return forward(**batch)

    slow.calls = 0
    model.forward = slow
    pairs = Dataset.from_json(sys.argv[2])
    score_pairs(model, pairs, processing_class=tokenizer, batch_size=2, cache_dir=sys.argv[3], show_progress=False)
"""


@pytest.mark.slow
def test_a_killed_run_continues_where_it_stopped(tmp_path, pairs, monkeypatch):
    folder = save_teacher(tmp_path / "teacher")
    pairs.to_json(tmp_path / "pairs.jsonl")
    command = [sys.executable, "-c", textwrap.dedent(KILLED_RUN), folder, "pairs.jsonl", "cache"]
    environment = os.environ | {"HF_DATASETS_CACHE": str(tmp_path / "datasets")}
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "two batches are done\n"
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert process.returncode == -signal.SIGKILL

    model, tokenizer = load_teacher(folder)
    seen = count_rows(model, monkeypatch)
    scores = cached(model, pairs, tmp_path / "cache", tokenizer, batch_size=2)
    assert sum(seen) == 2
    assert close(scores, plain_logits(model, tokenizer, PAIRS["sentence1"], PAIRS["sentence2"]))


# Training


def make_rows(count, num_labels=1, seed=0):
    """Pairs whose label is whether, or how much of, the first sentence is repeated in the second."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for number in range(count):
        words = [WORDS[i] for i in torch.randperm(len(WORDS), generator=generator)]
        label = number % (6 if num_labels == 1 else num_labels)
        shared = label if num_labels == 1 else 5 * label // (num_labels - 1)
        rows.append(
            {
                "sentence1": " ".join(words[:5]),
                "sentence2": " ".join(words[5 - shared : 10 - shared]),
                "label": float(label) if num_labels == 1 else label,
            }
        )
    return rows


def write_rows(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def folder(tmp_path):
    """A tiny encoder without a classification head, and a folder of regression pairs."""
    torch.manual_seed(0)
    BertForMaskedLM(BertConfig(max_position_embeddings=64, **SHAPE)).save_pretrained(tmp_path / "encoder")
    make_tokenizer("bert").save_pretrained(tmp_path / "encoder")
    for split, count in (("train", 48), ("validation", 12), ("test", 12)):
        write_rows(tmp_path / "data" / f"{split}.jsonl", make_rows(count, seed=count))
    return tmp_path


def run(folder, output="teacher", overwrite=False, data=None, **arguments):
    return train_teacher(
        TeacherArguments(str(folder / "encoder"), overwrite_output_dir=overwrite),
        DataArguments(
            **{"task_name": "stsb", "dataset_name": str(folder / "data")} | (data or {}),
        ),
        PairTrainingArguments(
            str(folder / output),
            **{
                "num_train_epochs": 2,
                "max_length": 32,
                "per_device_train_batch_size": 8,
                "use_cpu": True,
                "disable_tqdm": True,
                "learning_rate": 1e-3,
            }
            | arguments,
        ),
    )


def test_a_saved_teacher_reproduces_its_metrics(folder):
    metrics = run(folder, num_train_epochs=3)
    assert {"eval_pearson", "eval_spearman", "test_pearson", "test_spearman", "train_loss"} <= metrics.keys()
    assert json.loads((folder / "teacher" / "all_results.json").read_text())["test_pearson"] == metrics["test_pearson"]
    model, tokenizer = load_teacher(str(folder / "teacher"))
    assert (model.config.num_labels, model.config.problem_type) == (1, "regression")
    rows = make_rows(12, seed=12)
    scored = score_pairs(model, Dataset.from_list(rows), processing_class=tokenizer, show_progress=False)
    predicted = torch.tensor(scored["teacher_logits"][:])[:, 0]
    labels = torch.tensor([row["label"] for row in rows])
    pearson = torch.corrcoef(torch.stack([predicted, labels]))[0, 1].item()
    assert pearson == pytest.approx(metrics["test_pearson"], abs=1e-4)


@pytest.mark.parametrize(("task", "num_labels"), [("mrpc", 2), ("mnli", 3)])
def test_a_classification_teacher(folder, task, num_labels):
    for split, count in (("train", 24), ("validation", 12)):
        write_rows(folder / "classes" / f"{split}.jsonl", make_rows(count, num_labels))
    metrics = run(folder, data={"task_name": task, "dataset_name": str(folder / "classes")})
    assert {"eval_accuracy", "eval_f1"} <= metrics.keys()
    config = load_teacher(str(folder / "teacher"))[0].config
    assert (config.num_labels, config.problem_type) == (num_labels, "single_label_classification")


def test_the_best_epoch_is_kept(folder, monkeypatch):
    results = iter([{"eval_pearson": 0.9}, {"eval_pearson": 0.1}])
    evaluated = []
    original = CrossEncoderTrainer.evaluation_loop

    def loop(self, *arguments, **options):
        output = original(self, *arguments, **options)
        if self.is_in_train:
            evaluated.append({name: tensor.clone() for name, tensor in self.model.state_dict().items()})
            output.metrics.update(next(results))
        return output

    monkeypatch.setattr(CrossEncoderTrainer, "evaluation_loop", loop)
    run(folder)
    saved = load_teacher(str(folder / "teacher"))[0].state_dict()
    assert all(torch.equal(saved[name], evaluated[0][name]) for name in saved)
    assert not all(torch.equal(saved[name], evaluated[1][name]) for name in saved)


def test_without_predictions_the_loss_is_compared(folder):
    run(folder, prediction_loss_only=True, save_total_limit=3)
    states = [json.loads(file.read_text()) for file in (folder / "teacher").glob("checkpoint-*/trainer_state.json")]
    last = max(states, key=lambda state: state["global_step"])
    assert last["best_metric"] == min(entry["eval_loss"] for entry in last["log_history"] if "eval_loss" in entry)


@pytest.mark.parametrize("task_symmetric", [True, False])
def test_sentences_are_swapped_only_in_training_of_symmetric_tasks(folder, monkeypatch, task_symmetric):
    swaps = {48: set(), 12: set()}
    counts = {row["sentence1"]: count for count in swaps for row in make_rows(count, seed=count)}
    original = CrossEncoderCollator.__call__

    def call(self, features):
        swaps[counts[features[0]["sentence1"]]].add(self.swap)
        return original(self, features)

    monkeypatch.setattr(CrossEncoderCollator, "__call__", call)
    run(folder, data={"symmetric": task_symmetric}, num_train_epochs=1)
    assert swaps == {48: {task_symmetric}, 12: {False}}


def test_without_a_validation_split_the_last_model_is_kept(folder, infos):
    (folder / "data" / "validation.jsonl").unlink()
    (folder / "data" / "test.jsonl").unlink()
    metrics = run(folder)
    assert not any(name.startswith(("eval_", "test_")) for name in metrics)
    assert "There is no `eval_dataset`: nothing is evaluated, and the last model is kept." in infos
    load_teacher(str(folder / "teacher"))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_new_regression_head_starts_at_the_mean_label(folder, architecture):
    # Another number of labels: the head of this checkpoint is replaced.
    save_teacher(folder / "encoder", architecture, num_labels=3)
    run(folder, learning_rate=0.0, max_steps=1)
    model, tokenizer = load_teacher(str(folder / "teacher"))
    (bias,) = [value for name, value in model.named_parameters() if name.endswith("bias") and value.shape == (1,)]
    assert bias.item() == pytest.approx(2.5)


def test_the_head_of_a_trained_teacher_is_kept(folder):
    run(folder, max_steps=1)
    expected = load_teacher(str(folder / "teacher"))[0].classifier.bias
    (folder / "teacher").rename(folder / "again")
    train_teacher(
        TeacherArguments(str(folder / "again")),
        DataArguments(task_name="stsb", dataset_name=str(folder / "data")),
        PairTrainingArguments(str(folder / "teacher"), use_cpu=True, learning_rate=0.0, max_steps=1, max_length=32),
    )
    assert torch.equal(load_teacher(str(folder / "teacher"))[0].classifier.bias, expected)


def test_pairs_truncated_in_training_are_counted(folder, warnings):
    run(folder, max_length=12, max_steps=1)
    # Ten words and three special tokens.
    assert [message.split(" pairs are longer than 12 tokens")[0] for message in warnings] == [
        "48 of 48 train", "12 of 12 validation", "12 of 12 test",
    ]  # fmt: skip


def test_a_train_split_is_required(folder):
    (folder / "data" / "train.jsonl").unlink()
    with pytest.raises(ValueError, match="There is no train split to learn from; found validation, test"):
        run(folder)


def test_max_length_above_the_limit_is_an_error_before_training(folder):
    with pytest.raises(ValueError, match="max_length=65 is above the 64 tokens"):
        train_teacher(
            TeacherArguments(str(folder / "encoder")),
            DataArguments(task_name="stsb", dataset_name=str(folder / "data")),
            PairTrainingArguments(str(folder / "teacher"), use_cpu=True, max_length=65),
        )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_checkpoints_are_trained_and_loaded_in_float32(folder, dtype):
    AutoModelForSequenceClassification.from_pretrained(folder / "encoder", dtype=dtype).save_pretrained(
        folder / "encoder"
    )
    assert load_teacher(str(folder / "encoder"))[0].dtype == torch.float32
    run(folder, max_steps=1)
    assert AutoModelForSequenceClassification.from_pretrained(folder / "teacher").dtype == torch.float32


def test_constant_predictions_stop_the_training(folder):
    model = BertForMaskedLM.from_pretrained(folder / "encoder")
    with torch.no_grad():
        model.bert.encoder.layer[-1].output.LayerNorm.weight.zero_()
    model.save_pretrained(folder / "encoder")
    with pytest.raises(ValueError, match="(?i)constant predictions"):
        run(folder, learning_rate=0.0)


def test_a_nan_or_infinite_loss_stops_the_training(folder):
    with pytest.raises(ValueError, match="The training diverged: loss is .*Lower `learning_rate`"):
        run(folder, learning_rate=1e30, max_grad_norm=0.0, warmup_steps=0, logging_steps=1)


@pytest.mark.parametrize("name", ["loss", "eval_loss"])
def test_training_and_evaluation_losses_are_checked(name):
    class State:
        global_step = 7

    arguments = PairTrainingArguments("unused", use_cpu=True)
    FiniteLossCallback().on_log(arguments, State(), None, logs={name: 1.0})
    with pytest.raises(ValueError, match=f"{name} is nan at step 7"):
        FiniteLossCallback().on_log(arguments, State(), None, logs={name: float("nan")})


def test_output_folders(tmp_path, make_checkpoint):
    output = tmp_path / "out"
    assert check_output_dir(str(output), None, False) is None
    with pytest.raises(FileNotFoundError, match="holds no checkpoint to resume from"):
        check_output_dir(str(output), "last", False)
    states = [make_checkpoint(output / f"checkpoint-{step}") for step in (5, 10, 15)]
    # The last checkpoint is incomplete: the Trainer writes the state last.
    for state in states[:2]:
        state.write_text("{}")
    (output / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="is not empty: choose another one"):
        check_output_dir(str(output), None, False)
    with pytest.raises(FileNotFoundError, match="There is no checkpoint .*checkpoint-7 to resume from"):
        check_output_dir(str(output), str(output / "checkpoint-7"), False)
    assert check_output_dir(str(output), "last", False) == str(output / "checkpoint-10")
    assert check_output_dir(str(output), True, False) == str(output / "checkpoint-10")
    assert check_output_dir(str(output), str(output / "checkpoint-5"), False) == str(output / "checkpoint-5")
    assert check_output_dir(str(output), "false", True) is None
    assert [path.name for path in output.iterdir()] == ["notes.txt"]


# Between two epochs; within an epoch only without swaps, because prefetching has already drawn their random numbers
@pytest.mark.parametrize("every", ["epoch", "steps"])
def test_a_resumed_training_equals_an_uninterrupted_one(folder, monkeypatch, every):
    options = {"save_strategy": every, "eval_strategy": every, "save_steps": 2, "eval_steps": 2}
    options["data"] = {"symmetric": every == "epoch"}
    unbroken = run(folder, "unbroken", **options)

    class Stop(Exception):
        pass

    def stop(self, args, state, control, **kwargs):
        if state.epoch == 1 or every == "steps":
            assert (state.epoch == 1) == (every == "epoch")
            raise Stop

    # Raised after the first checkpoint has been written.
    with monkeypatch.context() as patch:
        patch.setattr(FiniteLossCallback, "on_save", stop)
        with pytest.raises(Stop):
            run(folder, "broken", **options)
    with pytest.raises(FileExistsError, match="--resume_from_checkpoint last"):
        run(folder, "broken")
    resumed = run(folder, "broken", resume_from_checkpoint="last", **options)
    assert resumed["test_pearson"] == unbroken["test_pearson"]
    expected = load_teacher(str(folder / "unbroken"))[0].state_dict()
    actual = load_teacher(str(folder / "broken"))[0].state_dict()
    assert all(torch.equal(actual[name], expected[name]) for name in expected)
    run(folder, "broken", overwrite=True, max_steps=1)


# The commands


def test_the_teacher_and_score_commands(folder, capsys):
    data = ["--task_name", "stsb", "--dataset_name", str(folder / "data"), "--max_length", "32"]
    output = folder / "teacher"
    command = ["teacher", "--model_name_or_path", str(folder / "encoder"), "--output_dir", str(output), *data]
    training = ["--num_train_epochs", "1", "--use_cpu", "--disable_tqdm", "true", "--learning_rate", "1e-3"]
    assert main([*command, *training]) == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines()[:3]] == ["split", "validation", "test"]
    assert "spearman" in out and f"Saved to {output}" in out
    assert main([*command, *training]) == 2
    assert "hf-dse teacher: error: The output folder" in capsys.readouterr().err

    score = ["score", "--model_name_or_path", str(output), *data, "--device", "cpu"]
    for ending in (".jsonl", ".parquet"):
        file = folder / "scored" / f"train{ending}"
        assert main([*score, "--output_file", str(file)]) == 0
        assert f"48 scored pairs written to {file}" in capsys.readouterr().out
    rows = [json.loads(line) for line in (folder / "scored" / "train.jsonl").read_text().splitlines()]
    assert rows == pyarrow.parquet.read_table(folder / "scored" / "train.parquet").to_pylist()
    model, tokenizer = load_teacher(str(output))
    expected = score_pairs(
        model,
        Dataset.from_list(make_rows(48, seed=48)),
        processing_class=tokenizer,
        symmetric=True,
        max_length=32,
        show_progress=False,
    )
    assert rows == expected.to_list()
    assert [path.name for path in (folder / "scored").glob("*/*")] == [f"{fingerprint(model, tokenizer)[:16]}.sqlite"]

    one_way = folder / "one-way.jsonl"
    assert main([*score, "--output_file", str(one_way), "--symmetric", "false", "--split", "test"]) == 0
    assert len(one_way.read_text().splitlines()) == 12


def test_scoring_pairs_without_labels_and_without_a_task(folder):
    save_teacher(folder / "classes", num_labels=3)
    rows = [{"sentence1": row["sentence1"], "sentence2": row["sentence2"]} for row in make_rows(4)]
    write_rows(folder / "data" / "texts.jsonl", rows)
    file = folder / "scored.jsonl"
    arguments = ["--model_name_or_path", str(folder / "classes"), "--dataset_name", str(folder / "data"),
                 "--split", "texts", "--output_file", str(file), "--device", "cpu", "--max_length", "32",
                 "--cache_dir", str(folder / "cache")]  # fmt: skip
    assert main(["score", *arguments]) == 0
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [{key: line[key] for key in ("sentence1", "sentence2")} for line in lines] == rows
    assert all(len(line["teacher_logits"]) == 3 for line in lines)
    assert len(list((folder / "cache").iterdir())) == 1


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_scored_pairs_keep_their_other_columns(folder, ending):
    save_teacher(folder / "teacher")
    rows = [
        {**row, "id": number, "day": date(2026, 1, 1 + number)} for number, row in enumerate(make_rows(3, seed=12))
    ]
    rows[1]["sentence2"] = ""
    Dataset.from_list(rows).to_parquet(folder / "pairs.parquet")
    file = folder / f"scored.{ending}"
    options = ["--train_file", str(folder / "pairs.parquet"), "--task_name", "stsb", "--drop_empty_sentences"]
    options += ["--device", "cpu", "--max_length", "32", "--output_file", str(file)]
    assert main(["score", "--model_name_or_path", str(folder / "teacher"), *options]) == 0
    found = read_columns(file)
    assert list(found) == ["sentence1", "sentence2", "label", "id", "day", "teacher_logits"]
    assert found["id"] == [0, 2] and list(map(str, found["day"])) == ["2026-01-01", "2026-01-03"]
    # They are not for the training.
    assert load_pairs(DataArguments(train_file=str(file)))["train"].column_names == [
        "sentence1",
        "sentence2",
        "label",
        "teacher_logits",
    ]


def test_the_scores_of_several_teachers_are_averaged(folder, capsys):
    logits = []
    for seed in (0, 1):
        save_teacher(folder / f"teacher-{seed}", seed=seed)
        pairs = Dataset.from_list(make_rows(12, seed=12))
        scored = score_pairs(str(folder / f"teacher-{seed}"), pairs, symmetric=True, device="cpu", show_progress=False)
        logits.append(scored["teacher_logits"][:])
    save_teacher(folder / "classes", num_labels=3)
    names = [str(folder / name) for name in ("teacher-0", "teacher-1", "classes")]
    options = ["--dataset_name", str(folder / "data"), "--task_name", "stsb", "--split", "test", "--device", "cpu",
               "--max_length", "32"]  # fmt: skip
    file = folder / "scored.jsonl"
    assert main(["score", *options, "--output_file", str(file), "--model_name_or_path", *names]) == 2
    assert f"the same number of logits: 1 in {names[0]}, 1 in {names[1]}, 3 in {names[2]}" in capsys.readouterr().err
    assert main(["score", *options, "--output_file", str(file), "--model_name_or_path", *names[:2]]) == 0
    found = [json.loads(line)["teacher_logits"] for line in file.read_text().splitlines()]
    assert not np.allclose(*logits)
    assert np.allclose(found, np.mean(logits, axis=0), atol=1e-6)


def test_a_bi_encoder_scores_with_its_cosine(folder, capsys):
    options = ["--model_name_or_path", str(folder / "encoder"), "--bi_encoder", "--dataset_name", str(folder / "data"),
               "--split", "test", "--device", "cpu", "--max_length", "32"]  # fmt: skip
    file = folder / "scored.jsonl"
    scale = ["--similarity_scale", "4", "--similarity_bias", "-1"]
    assert main(["score", *options, "--task_name", "stsb", *scale, "--output_file", str(file)]) == 0
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row["sentence1"] for row in rows] == [row["sentence1"] for row in make_rows(12, seed=12)]
    model, tokenizer = AutoModel.from_pretrained(folder / "encoder"), AutoTokenizer.from_pretrained(folder / "encoder")
    for row in rows:
        vectors = []
        for text in (row["sentence1"], row["sentence2"]):
            hidden = model.eval()(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
            vectors.append(hidden.mean(dim=0))
        expected = 4 * torch.cosine_similarity(*vectors, dim=0).item() - 1
        assert row["teacher_logits"] == [pytest.approx(expected, abs=1e-4)]

    assert main(["score", *options, "--task_name", "mrpc", "--output_file", str(folder / "out.jsonl")]) == 2
    assert "A bi-encoder gives one score per pair, but task 'mrpc' has 2 labels" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--task_name", "sts"], "Unknown task 'sts'"),
        (["--task_name", "mnli"], "The teacher has 1 logits, but task 'mnli' has 3 labels"),
        (
            ["--task_name", "stsb", "--output_file", "x.csv"],
            "unsupported ending '.csv'; the output is .jsonl or .parquet",
        ),
        (["--task_name", "stsb", "--split", "dev"], "has no split dev; the splits are test, train, validation"),
        (["--task_name", "stsb", "--symmetrical", "true"], "unknown option '--symmetrical'"),
    ],
)
def test_errors_of_the_score_command(folder, capsys, arguments, message):
    save_teacher(folder / "teacher")
    command = ["score", "--model_name_or_path", str(folder / "teacher"), "--dataset_name", str(folder / "data")]
    assert main([*command, "--output_file", str(folder / "out.jsonl"), *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not (folder / "out.jsonl").exists()
