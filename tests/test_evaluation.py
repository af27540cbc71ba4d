# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Metrics, encoding and evaluation of models, and the commands `hf-dse evaluate` and `hf-dse encode`."""

import json

import evaluate
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    BertForSequenceClassification,
    BertModel,
    EvalPrediction,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaModel,
    T5Config,
    T5Model,
    Trainer,
    TrainingArguments,
)

from hf_dse.data.collators import PairCollator
from hf_dse.data.tasks import PAIR_TASKS, PairTask
from hf_dse.data.tokenization import length_batches, max_tokens
from hf_dse.evaluation.pairs import evaluate_model
from hf_dse.inference.encoding import encode
from hf_dse.metrics import AccuracyF1, PearsonSpearman, compute_metrics_for
from hf_dse.modeling import DseConfig, DseForSequenceClassification, DseModel
from hf_dse_cli import main


WORDS = "the a cat dog sat ran on under mat rug big small old new red house and then slept all day".split()
TEXTS = ["the cat sat", "a dog ran " * 6, "house", "the old dog slept all day", "a dog ran " * 9, "cat"]
PAIRS = {
    "sentence1": ["the cat sat", "a dog ran", "old house", "the cat sat", "all day", "big red dog"],
    "sentence2": ["a cat sat on the mat", "the cat sat", "new house", "old rug", "then the dog slept", "a dog ran"],
}
SCORES = [4.5, 1.0, 3.0, 0.5, 2.0, 2.5]


@pytest.fixture(scope="module")
def tokenizer():
    vocab = {token: i for i, token in enumerate(["[PAD]", "[CLS]", "[SEP]", "[UNK]", *WORDS])}
    backend = Tokenizer(models.WordLevel(vocab, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocab["[CLS]"]), ("[SEP]", vocab["[SEP]"])],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        cls_token="[CLS]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        unk_token="[UNK]",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


SHAPE = {
    "vocab_size": 32,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 48,
    "initializer_range": 0.5,
}


def make(model_class, **fields):
    torch.manual_seed(0)
    config_class = model_class.config_class
    if issubclass(config_class, DseConfig):
        fields = {"linformer_length": 8, "cls_token_id": 1, "sep_token_id": 2, **fields}
    return model_class(config_class(**SHAPE, **fields)).eval()


@pytest.fixture(scope="module")
def pairs():
    return Dataset.from_dict({**PAIRS, "label": SCORES})


@pytest.fixture(scope="module")
def student(tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("student")
    make(DseForSequenceClassification, num_labels=1).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    rows = [dict(zip([*PAIRS, "label"], row, strict=True)) for row in zip(*PAIRS.values(), SCORES, strict=True)]
    for split in ("validation", "test"):
        lines = [json.dumps(row) for row in (rows if split == "validation" else rows[1:])]
        (folder / f"{split}.jsonl").write_text("\n".join(lines))
    return str(folder)


def symmetric_task(num_labels):
    return PairTask("pairs", num_labels=num_labels, symmetric=True)


class TestMetrics:
    @settings(max_examples=30, deadline=None)
    @given(st.lists(st.tuples(st.integers(0, 6), st.floats(-1e6, 1e6, width=32)), min_size=3, max_size=40))
    def test_correlations_are_those_of_scipy(self, rows):
        stats = pytest.importorskip("scipy.stats")
        x, y = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
        if any(np.ptp(values) <= 1e-3 * np.abs(values).max() for values in (x, y)):
            return
        result = PearsonSpearman().compute(predictions=x, references=y)
        assert result["pearson"] == pytest.approx(stats.pearsonr(x, y)[0], abs=1e-9)
        assert result["spearman"] == pytest.approx(stats.spearmanr(x, y)[0], abs=1e-9)

    @settings(max_examples=30, deadline=None)
    @given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30))
    def test_macro_f1_is_that_of_sklearn(self, rows):
        sklearn = pytest.importorskip("sklearn.metrics")
        x, y = zip(*rows, strict=True)
        result = AccuracyF1("macro").compute(predictions=x, references=y, allow_constant=True)
        assert result["f1"] == pytest.approx(sklearn.f1_score(y, x, average="macro", zero_division=0))
        assert result["accuracy"] == pytest.approx(sklearn.accuracy_score(y, x))

    def test_binary_f1_is_of_class_one(self):
        result = AccuracyF1().compute(predictions=[1, 1, 0, 0], references=[1, 0, 1, 0])
        assert result == {"accuracy": 0.5, "f1": 0.5}
        assert AccuracyF1().compute(predictions=[0, 0], references=[0, 0]) == {"accuracy": 1.0, "f1": 0.0}

    def test_correlations_of_tiny_and_huge_values(self):
        result = PearsonSpearman().compute(predictions=[1e-200, 2e-200, 4e-200], references=[1e200, 2e200, 4e200])
        assert result == pytest.approx({"pearson": 1.0, "spearman": 1.0})

    def test_metrics_are_evaluate_metrics(self):
        for metric, name, config in (
            (PearsonSpearman(), "pearson_spearman", "default"),
            (AccuracyF1(), "accuracy_f1", "binary"),
            (AccuracyF1("macro"), "accuracy_f1", "macro"),
        ):
            assert isinstance(metric, evaluate.Metric)
            assert (metric.name, metric.info.config_name) == (name, config)
            metric.add_batch(predictions=[0, 1], references=[0, 1])
            metric.add(prediction=1, reference=0)
            assert len(metric.compute()) == 2

    def test_combine(self):
        both = evaluate.combine([AccuracyF1("binary"), AccuracyF1("macro")])
        assert "accuracy_f1_0_f1" in both.compute(predictions=[0, 1, 1], references=[0, 1, 0])

    @pytest.mark.parametrize(
        ("predictions", "references", "match"),
        [
            ([2.5, 2.5, 2.5], [1, 2, 3], "Constant predictions: all 3 are 2.5.*collapsed model"),
            ([2.5, 2.5 + 1e-9], [1, 2], "Constant predictions"),
            ([1, 2, 3], [2, 2, 2], "Constant references.*different gold labels"),
            ([1, float("nan"), 3], [1, 2, 3], "1 of 3 predictions are NaN or infinite, the first at row 1"),
            ([1, 2, 3], [1, 2, float("inf")], "1 of 3 references are NaN"),
            ([1], [1], "at least 2 pairs"),
        ],
    )
    def test_meaningless_correlations_are_errors(self, predictions, references, match):
        metric = PearsonSpearman()
        with pytest.raises(ValueError, match=match):
            metric.compute(predictions=predictions, references=references)
        # An error leaves no state behind.
        assert metric.compute(predictions=[1, 2], references=[1, 2])["pearson"] == 1.0

    def test_predicting_a_single_class_is_an_error(self):
        with pytest.raises(ValueError, match="Constant predictions: all 3 are class 1"):
            AccuracyF1().compute(predictions=[1, 1, 1], references=[0, 1, 1])
        assert AccuracyF1().compute(predictions=[1, 1], references=[1, 1])["accuracy"] == 1.0

    def test_unknown_configuration(self):
        with pytest.raises(ValueError, match="'micro'.*'binary' or 'macro'"):
            AccuracyF1("micro")


class TestComputeMetrics:
    def score(self, task, logits, labels, num_labels=None):
        prediction = EvalPrediction(predictions=np.array(logits, dtype=np.float32), label_ids=np.array(labels))
        return compute_metrics_for(task, num_labels)(prediction)

    def test_regression(self):
        for task in ("regression", "stsb", PAIR_TASKS["stsb"]):
            assert self.score(task, [[0.0], [1.0], [2.0]], [0.0, 2.0, 4.0]) == {"pearson": 1.0, "spearman": 1.0}

    def test_binary_takes_one_logit_or_two(self):
        one = self.score("mrpc", [[-1.0], [0.5], [2.0]], [0, 1, 0])
        two = self.score("mrpc", [[1.0, 0.0], [0.0, 0.5], [1.0, 3.0]], [0, 1, 0])
        assert one == two == {"accuracy": pytest.approx(2 / 3), "f1": pytest.approx(2 / 3)}

    def test_three_classes(self):
        logits = [[3, 1, 0], [0, 2, 1], [0, 1, 2], [0, 1, 2]]
        assert self.score("mnli", logits, [0, 1, 1, 2])["f1"] == pytest.approx(7 / 9)
        assert self.score("single_label_classification", logits, [0, 1, 1, 2], 3)["accuracy"] == 0.75

    def test_logits_come_first_in_a_tuple(self):
        prediction = EvalPrediction(
            predictions=(np.array([[0.0], [1.0]]), np.zeros((2, 3))), label_ids=np.array([0, 1])
        )
        assert compute_metrics_for("regression")(prediction)["pearson"] == 1.0

    def test_predicting_a_single_class_is_allowed_in_training(self):
        assert self.score("mrpc", [[1.0], [2.0], [3.0]], [1, 1, 0])["accuracy"] == pytest.approx(2 / 3)

    @pytest.mark.parametrize(
        ("task", "logits", "labels", "match"),
        [
            ("regression", [[1, 2], [2, 1]], [0, 1], "2 logits per pair.*needs 1"),
            ("mrpc", [[1, 2, 3], [2, 1, 3]], [0, 1], "3 logits per pair.*needs 1 or 2"),
            ("mnli", [[1, 2], [2, 1]], [0, 1], "2 logits per pair.*num_labels=3"),
            ("mrpc", [[1.0], [1.0]], [0, 1], "Constant predictions: all 2 pairs have the same logits"),
            ("mrpc", [[np.nan], [1.0]], [0, 1], "1 of 2 predictions are NaN"),
            ("mrpc", [[-1.0], [1.0]], [0, -100], r"0 to 1, but these occur too: \[-100\]"),
            ("regression", [[2.0], [2.0]], [0, 1], "Constant predictions"),
        ],
    )
    def test_errors(self, task, logits, labels, match):
        with pytest.raises(ValueError, match=match):
            self.score(task, logits, labels)

    def test_unknown_task(self):
        with pytest.raises(ValueError, match="Unknown task or problem type 'cola'.*stsb"):
            compute_metrics_for("cola")
        with pytest.raises(ValueError, match="needs num_labels of at least 2, got None"):
            compute_metrics_for("single_label_classification")

    def test_with_trainer(self, tokenizer, pairs, tmp_path):
        arguments = TrainingArguments(
            str(tmp_path), remove_unused_columns=False, report_to="none", use_cpu=True, per_device_eval_batch_size=2
        )
        model = make(DseForSequenceClassification, num_labels=1)
        trainer = Trainer(
            model,
            arguments,
            data_collator=PairCollator(tokenizer, 32),
            eval_dataset=pairs,
            compute_metrics=compute_metrics_for("stsb"),
        )
        metrics = trainer.evaluate()
        expected = evaluate_model(model, tokenizer, pairs, task="stsb", show_progress=False)
        assert metrics["eval_pearson"] == pytest.approx(expected["pearson"], abs=1e-6)
        assert metrics["eval_spearman"] == pytest.approx(expected["spearman"], abs=1e-6)


class TestEncode:
    @pytest.mark.parametrize("model_class", [DseModel, DseForSequenceClassification, BertModel])
    @pytest.mark.parametrize("batch_size", [1, 4, 32])
    def test_equals_one_text_at_a_time(self, tokenizer, model_class, batch_size):
        model = make(model_class)
        vectors = encode(model, tokenizer, TEXTS, batch_size=batch_size, show_progress=False)
        assert vectors.dtype == np.float32
        for text, vector in zip(TEXTS, vectors, strict=True):
            with torch.no_grad():
                outputs = model.base_model(**tokenizer(text, return_tensors="pt"))
            is_dse = model.config.model_type == "dse"
            expected = outputs.pooler_output[0] if is_dse else outputs.last_hidden_state[0].mean(dim=0)
            np.testing.assert_allclose(vector, expected.numpy(), atol=1e-5)

    def test_order_is_kept_across_windows(self, tokenizer, monkeypatch):
        monkeypatch.setattr("hf_dse.inference.encoding.BATCHES_PER_WINDOW", 2)
        model = make(DseModel)
        texts = [" ".join(np.random.default_rng(i).choice(WORDS, 1 + i * 7 % 30)) for i in range(23)]
        vectors = encode(model, tokenizer, texts, batch_size=3, show_progress=False)
        alone = [encode(model, tokenizer, [text], show_progress=False)[0] for text in texts]
        np.testing.assert_allclose(vectors, alone, atol=1e-5)

    def test_takes_any_sequence_of_strings(self, tokenizer, pairs):
        model = make(DseModel)
        expected = encode(model, tokenizer, PAIRS["sentence1"], show_progress=False)
        for texts in (np.array(PAIRS["sentence1"]), pairs["sentence1"], iter(PAIRS["sentence1"])):
            np.testing.assert_array_equal(encode(model, tokenizer, texts, show_progress=False), expected)

    def test_no_texts(self, tokenizer):
        vectors = encode(make(DseModel, projection_dim=5), tokenizer, [])
        assert vectors.shape == (0, 5) and vectors.dtype == np.float32

    def test_normalize(self, tokenizer):
        model = make(DseModel)
        plain = encode(model, tokenizer, TEXTS, show_progress=False)
        unit = encode(model, tokenizer, TEXTS, normalize=True, show_progress=False)
        np.testing.assert_allclose(unit, plain / np.linalg.norm(plain, axis=1, keepdims=True), atol=1e-6)

    def test_modes_are_restored(self, tokenizer):
        model = make(DseModel, hidden_dropout_prob=0.5).train()
        model.embeddings.eval()
        first, second = (encode(model, tokenizer, TEXTS, show_progress=False) for _ in range(2))
        np.testing.assert_array_equal(first, second)
        assert model.training and model.encoder.training and not model.embeddings.training
        with pytest.raises(ValueError, match="NaN"):
            torch.nn.init.constant_(model.embeddings.word_embeddings.weight, float("nan"))
            encode(model, tokenizer, TEXTS, show_progress=False)
        assert model.training and not model.embeddings.training

    def test_truncated_texts_are_counted(self, tokenizer, caplog):
        model = make(DseModel)
        texts = ["cat " * 4, "dog " * 5, "house " * 9]
        vectors = encode(model, tokenizer, texts, max_length=6, show_progress=False)
        assert "2 of 3 texts are longer than 6 tokens and were truncated: raise max_length" in caplog.text
        np.testing.assert_allclose(
            vectors[2], encode(model, tokenizer, ["house " * 4], show_progress=False)[0], atol=1e-5
        )
        caplog.clear()
        encode(model, tokenizer, ["cat " * 100], show_progress=False)
        message = "1 of 1 texts are longer than 48 tokens and were truncated: use a model with more positions"
        assert message in caplog.text
        caplog.clear()
        encode(model, tokenizer, ["cat " * 46], show_progress=False)
        assert not caplog.text

    def test_maximum_length_with_offset_positions(self, tokenizer):
        torch.manual_seed(0)
        model = RobertaModel(RobertaConfig(**SHAPE | {"max_position_embeddings": 50}, pad_token_id=1)).eval()
        assert max_tokens(model, tokenizer) == 48
        assert np.isfinite(encode(model, tokenizer, ["cat " * 100], show_progress=False)).all()

    def test_blank_texts_raise_a_warning(self, tokenizer, caplog):
        encode(make(DseModel), tokenizer, ["cat", " "], show_progress=False)
        assert r"1 of 2 texts are blank, the first is texts[1]" in caplog.text

    def test_progress_bar(self, tokenizer, capsys):
        encode(make(DseModel), tokenizer, TEXTS)
        assert "Encoding texts: 100%" in capsys.readouterr().err
        encode(make(DseModel), tokenizer, TEXTS, show_progress=False)
        assert not capsys.readouterr().err

    @pytest.mark.parametrize(
        ("texts", "options", "error", "match"),
        [
            ("one text", {}, TypeError, r"list of strings, got str: pass \[text\]"),
            (None, {}, TypeError, "got NoneType"),
            (pd.DataFrame({"text": TEXTS}), {}, TypeError, "got DataFrame: pass one of its columns"),
            ({"text": TEXTS}, {}, TypeError, "got dict: pass one of its columns"),
            (["cat", None], {}, ValueError, r"texts\[1\] is None, not a string"),
            (["cat", "dog", 3.5], {}, ValueError, r"texts\[2\] is 3.5"),
            (["cat"], {"max_length": 49}, ValueError, "max_length=49 is above the 48 tokens"),
            (["cat"], {"max_length": 2}, ValueError, "max_length=2 leaves no room for a text: pass at least 3"),
            (
                ["cat", "dog " * 9],
                {"max_length": 6, "truncation": False},
                ValueError,
                r"1 of texts\[0:2\] are longer than 6 tokens",
            ),
            (["cat"], {"batch_size": 0}, ValueError, "batch_size has to be at least 1, got 0"),
        ],
    )
    def test_errors(self, tokenizer, texts, options, error, match):
        with pytest.raises(error, match=match):
            encode(make(DseModel), tokenizer, texts, show_progress=False, **options)

    def test_models_with_a_decoder_are_errors(self, tokenizer):
        model = T5Model(T5Config(vocab_size=32, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2))
        with pytest.raises(ValueError, match="T5Model has a decoder: pass only its encoder"):
            encode(model, tokenizer, TEXTS)

    def test_damaged_model(self, tokenizer):
        model = make(DseModel)
        with torch.no_grad():
            model.embeddings.word_embeddings.weight[tokenizer.convert_tokens_to_ids("house")] = float("inf")
        with pytest.raises(
            ValueError, match=r"1 of 3 embeddings are NaN or infinite, the first is that of texts\[1\]"
        ):
            encode(model, tokenizer, ["cat", "house", "dog"], show_progress=False)

    @given(st.lists(st.integers(1, 5000), max_size=60), st.integers(1, 9))
    def test_batches(self, lengths, batch_size):
        batches = list(length_batches(lengths, batch_size))
        assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
        for batch in batches:
            sizes = [lengths[row] for row in batch]
            assert sizes == sorted(sizes, reverse=True) and len(batch) <= batch_size
            assert len(batch) == 1 or len(batch) * sizes[0] <= batch_size * 512
            # One long text does not pad short ones.
            assert sizes[0] <= max(64, 2 * sizes[-1])


class TestEvaluateModel:
    @pytest.mark.parametrize("similarity", ["cosine", "dot", "mlp"])
    def test_student(self, tokenizer, pairs, similarity):
        model = make(DseForSequenceClassification, num_labels=1, similarity=similarity)
        metrics = evaluate_model(model, tokenizer, pairs, task="stsb", show_progress=False)
        encoded = tokenizer(PAIRS["sentence1"], PAIRS["sentence2"], padding=True, return_tensors="pt")
        with torch.no_grad():
            logits = model(**encoded).logits[:, 0].double().numpy()
        assert metrics["pearson"] == pytest.approx(np.corrcoef(logits, SCORES)[0, 1], abs=1e-5)
        u, v = (encode(model, tokenizer, PAIRS[name], normalize=True, show_progress=False) for name in PAIRS)
        assert metrics["cosine_pearson"] == pytest.approx(np.corrcoef((u * v).sum(axis=1), SCORES)[0, 1], abs=1e-5)
        assert set(metrics) == {"pearson", "spearman", "cosine_pearson", "cosine_spearman"}

    def test_every_sentence_is_embedded_once(self, tokenizer, pairs):
        model, seen = make(DseForSequenceClassification, num_labels=1), []
        model.dse.register_forward_hook(
            lambda module, args, kwargs, output: seen.append(len(output[0])), with_kwargs=True
        )
        evaluate_model(model, tokenizer, pairs, task="stsb", show_progress=False)
        assert sum(seen) == len({*PAIRS["sentence1"], *PAIRS["sentence2"]}) == 9

    def test_encoder_without_head(self, tokenizer, pairs):
        for model_class in (DseModel, BertModel):
            metrics = evaluate_model(make(model_class), tokenizer, pairs, task="stsb", show_progress=False)
            assert set(metrics) == {"cosine_pearson", "cosine_spearman"}

    @pytest.mark.parametrize(("task", "num_labels"), [("stsb", 1), ("mrpc", 2), ("mrpc", 1), ("mnli", 3)])
    def test_cross_encoder(self, tokenizer, pairs, task, num_labels):
        model = make(BertForSequenceClassification, num_labels=num_labels)
        encoded = tokenizer(PAIRS["sentence1"], PAIRS["sentence2"], padding=True, return_tensors="pt")
        with torch.no_grad():
            # A model with random weights may predict a single class.
            model.classifier.bias -= model(**encoded).logits.median(dim=0).values - 1e-3
            logits = model(**encoded).logits.numpy()
        if task == "stsb":
            labels = SCORES
        else:
            labels = (logits[:, 0] > 0).astype(int) if num_labels == 1 else logits.argmax(axis=1)
            labels[0] = 1 - labels[0] if task == "mrpc" else (labels[0] + 1) % 3
        metrics = evaluate_model(
            model,
            tokenizer,
            pairs.remove_columns("label").add_column("label", list(labels)),
            task=task,
            batch_size=4,
            show_progress=False,
        )
        if task == "stsb":
            assert metrics["pearson"] == pytest.approx(np.corrcoef(logits[:, 0], SCORES)[0, 1], abs=1e-5)
        else:
            assert metrics["accuracy"] == pytest.approx(5 / 6)
        assert not any(name.startswith("cosine") for name in metrics)

    def test_binary_cosine_is_average_precision(self, tokenizer):
        sklearn = pytest.importorskip("sklearn.metrics")
        # Two equal pairs with different labels: ties must not depend on the order of the rows.
        rows = {name: texts + texts[:1] for name, texts in PAIRS.items()}
        labels = [1, 0, 1, 0, 0, 1, 0]
        dataset = Dataset.from_dict({**rows, "label": labels})
        model = make(DseModel)
        metrics = evaluate_model(model, tokenizer, dataset, task=symmetric_task(2), show_progress=False)
        u, v = (encode(model, tokenizer, rows[name], normalize=True, show_progress=False) for name in rows)
        cosine = (u * v).sum(axis=1).round(6)
        assert metrics == {"cosine_ap": pytest.approx(sklearn.average_precision_score(labels, cosine))}

    def test_asymmetric_tasks_have_no_cosine_metrics(self, tokenizer, pairs):
        dataset = pairs.remove_columns("label").add_column("label", [0, 1, 0, 1, 0, 1])
        with pytest.raises(ValueError, match="cannot score task 'qnli'"):
            evaluate_model(make(DseModel), tokenizer, dataset, task="qnli", show_progress=False)
        model = make(DseForSequenceClassification, num_labels=2, similarity="mlp")
        encoded = tokenizer(PAIRS["sentence1"], PAIRS["sentence2"], padding=True, return_tensors="pt")
        with torch.no_grad():
            logits = model(**encoded).logits
            # A model with random weights may predict a single class.
            model.similarity.out_proj.bias[1] -= (logits[:, 1] - logits[:, 0]).median() - 1e-3
            predictions = model(**encoded).logits.argmax(dim=1)
        metrics = evaluate_model(model, tokenizer, dataset, task="qnli", show_progress=False)
        assert set(metrics) == {"accuracy", "f1"}
        assert metrics["accuracy"] == pytest.approx(np.mean(predictions.numpy() == dataset["label"]))

    def test_collapsed_student(self, tokenizer, pairs):
        model = make(DseForSequenceClassification, num_labels=1)
        torch.nn.init.zeros_(model.similarity.scale)
        with pytest.raises(ValueError, match="Constant predictions.*collapsed model"):
            evaluate_model(model, tokenizer, pairs, task="stsb", show_progress=False)

    def test_errors(self, tokenizer, pairs):
        model = make(DseForSequenceClassification, num_labels=3)
        with pytest.raises(ValueError, match="3 logits per pair.*regression.*needs 1"):
            evaluate_model(model, tokenizer, pairs, task="stsb", show_progress=False)
        with pytest.raises(ValueError, match="no column 'label', only sentence1, sentence2"):
            evaluate_model(model, tokenizer, pairs.remove_columns("label"), task="stsb")
        with pytest.raises(ValueError, match="Unknown task 'cola': pass one of stsb"):
            evaluate_model(model, tokenizer, pairs, task="cola")


class TestCommands:
    def evaluate(self, student, data, *options):
        command = ["evaluate", "--model_name_or_path", student, "--task_name", "stsb", "--dataset_name", data]
        return main([*command, "--max_length", "48", "--device", "cpu", *options])

    def test_evaluate(self, tokenizer, pairs, student, data, tmp_path, capsys):
        output = tmp_path / "made" / "results.json"
        assert self.evaluate(student, data, "--split", "validation", "test", "--output_file", str(output)) == 0
        report = json.loads(output.read_text())
        model = AutoModelForSequenceClassification.from_pretrained(student)
        expected = evaluate_model(model, tokenizer, pairs, task="stsb", show_progress=False)
        assert report["results"]["validation"] == {
            "num_pairs": 6,
            **{k: pytest.approx(v) for k, v in expected.items()},
        }
        assert report["results"]["test"]["num_pairs"] == 5
        assert [path.name for path in output.parent.iterdir()] == ["results.json"]
        table = capsys.readouterr().out.splitlines()
        assert table[0].split() == ["split", "num_pairs", "pearson", "spearman", "cosine_pearson", "cosine_spearman"]
        assert table[1].split()[:3] == ["validation", "6", f"{100 * expected['pearson']:.2f}"]

    def test_evaluate_does_not_add_a_random_head(self, tokenizer, data, tmp_path, capsys):
        make(DseModel).save_pretrained(tmp_path)
        tokenizer.save_pretrained(tmp_path)
        assert self.evaluate(str(tmp_path), data) == 0
        assert capsys.readouterr().out.split()[:4] == ["split", "num_pairs", "cosine_pearson", "cosine_spearman"]

    def test_evaluate_with_a_missing_head_is_an_error(self, save_bert, data, tmp_path, capsys):
        save_bert(tmp_path)
        config = json.loads((tmp_path / "config.json").read_text())
        config["architectures"] = ["BertForSequenceClassification"]
        (tmp_path / "config.json").write_text(json.dumps(config))
        assert self.evaluate(str(tmp_path), data) == 2
        assert "has no classifier.bias, classifier.weight: train it first" in capsys.readouterr().err

    def test_evaluate_errors(self, student, data, tmp_path, capsys):
        assert self.evaluate(student, data, "--split", "train") == 2
        assert "no split train" in capsys.readouterr().err.lower().replace("'", "")
        assert self.evaluate(student, data, "--output_file", str(tmp_path / "results.txt")) == 2
        assert "unsupported ending '.txt'; the output is .json" in capsys.readouterr().err
        assert self.evaluate(str(tmp_path / "nothing"), data) == 2
        assert "hf-dse evaluate: error:" in capsys.readouterr().err

    def encode(self, student, source, output, *options):
        command = ["encode", "--model_name_or_path", student, "--input", str(source), "--output", str(output)]
        return main([*command, "--device", "cpu", *options])

    def test_encode_lines(self, tokenizer, student, tmp_path, capsys):
        source, output = tmp_path / "texts.txt", tmp_path / "vectors.npy"
        source.write_text("\n".join(PAIRS["sentence1"]) + "\n", encoding="utf-8")
        assert self.encode(student, source, output, "--normalize") == 0
        assert "6 vectors of size 16 written to" in capsys.readouterr().out
        expected = encode(
            AutoModel.from_pretrained(student), tokenizer, PAIRS["sentence1"], normalize=True, show_progress=False
        )
        np.testing.assert_allclose(np.load(output), expected, atol=1e-6)

    @pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
    def test_encode_tables(self, student, tmp_path, ending):
        table = Dataset.from_dict({"id": ["x", "y"], "body": ["the cat, sat", "a dog"]})
        source, output = tmp_path / f"texts.{ending}", tmp_path / "vectors.parquet"
        {"jsonl": table.to_json, "csv": table.to_csv, "parquet": table.to_parquet}[ending](source)
        assert self.encode(student, source, output, "--text_column", "body") == 0
        result = pq.read_table(output)
        assert result.column_names == ["id", "body", "embedding"]
        assert result["id"].to_pylist() == ["x", "y"]
        assert str(result["embedding"].type) == "fixed_size_list<element: float>[16]"

    def test_encode_an_empty_file(self, student, tmp_path):
        (tmp_path / "texts.txt").write_text("")
        for name in ("vectors.npy", "vectors.parquet"):
            assert self.encode(student, tmp_path / "texts.txt", tmp_path / name) == 0
        assert np.load(tmp_path / "vectors.npy").shape == (0, 16)
        assert pq.read_table(tmp_path / "vectors.parquet").num_rows == 0

    def test_encode_errors(self, student, tmp_path, capsys):
        (tmp_path / "texts.jsonl").write_text('{"text": "cat"}\n{"text": null}\n')
        (tmp_path / "done.jsonl").write_text('{"text": "cat", "embedding": [1.0]}\n')
        for source, output, options, message in (
            ("texts.jsonl", "vectors.npy", (), "row 1: text is None, not a string"),
            ("texts.jsonl", "vectors.npy", ("--text_column", "body"), "no column 'body'; the columns are text"),
            ("texts.xml", "vectors.npy", (), "unsupported ending '.xml'; supported are .txt, .csv"),
            ("texts", "vectors.npy", (), "texts: there is no such file or folder"),
            ("texts.txt", "vectors.npy", (), "there is no such file"),
            ("texts.jsonl", "vectors.pt", (), "unsupported ending '.pt'; the output is .npy or .parquet"),
            ("done.jsonl", "vectors.parquet", (), "already has a column 'embedding'"),
        ):
            assert self.encode(student, tmp_path / source, tmp_path / output, *options) == 2
            assert message in capsys.readouterr().err
            assert not (tmp_path / output).exists()

    def test_failed_write_keeps_the_old_file(self, student, tmp_path, monkeypatch):
        source, output = tmp_path / "texts.txt", tmp_path / "vectors.npy"
        source.write_text("cat")
        output.write_bytes(b"old")

        def fail(file, vectors):
            file.write(b"half")
            raise OSError("No space left on device")

        monkeypatch.setattr("numpy.save", fail)
        assert self.encode(student, source, output) == 2
        assert output.read_bytes() == b"old"
        assert sorted(path.name for path in tmp_path.iterdir()) == ["texts.txt", "vectors.npy"]
