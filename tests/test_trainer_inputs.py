# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""What DseTrainer and GeneralTrainer accept as model, arguments, tokenizer and data, and what they refuse."""

import copy
from collections import OrderedDict

import pytest
import torch
from datasets import ClassLabel, Dataset, DatasetDict, Features, IterableDataset, Value
from torch import nn
from transformers import AutoTokenizer, TrainingArguments

from hf_dse import (
    AlignTrainer,
    AlignTrainingArguments,
    DseForSequenceClassification,
    DseModel,
    DseTrainer,
    DseTrainingArguments,
    GeneralTrainer,
    GeneralTrainingArguments,
    LayerwiseDistillation,
    RankingTrainer,
    RankingTrainingArguments,
    convert_encoder,
    make_pair_model,
    make_rankings,
)
from hf_dse.training.pair_trainer import infer_labels


TEXTS = ["the cat sat on the mat", "a dog ran", "the old house", "a new mat", "in the house", "cat and dog"]
TINY = {"max_length": 32, "per_device_train_batch_size": 3, "report_to": "none", "use_cpu": True, "disable_tqdm": True}


def make_pairs(**columns):
    return Dataset.from_dict({"sentence1": TEXTS, "sentence2": TEXTS[::-1], **columns})


@pytest.fixture
def scored():
    return make_pairs(label=[0.0, 1.0, 2.0, 3.0, 4.0, 5.0], teacher_logits=[[float(row)] for row in range(6)])


@pytest.fixture
def texts():
    return Dataset.from_dict({"text": TEXTS})


@pytest.fixture
def encoder(tmp_path, save_bert):
    return str(save_bert(tmp_path / "encoder"))


@pytest.fixture
def args(tmp_path):
    return DseTrainingArguments(str(tmp_path / "run"), max_steps=2, **TINY)


@pytest.fixture
def general_args(tmp_path):
    return GeneralTrainingArguments(str(tmp_path / "run"), max_steps=2, **TINY)


# Models and tokenizers by name


def test_an_encoder_is_converted(encoder, args, scored):
    trainer = DseTrainer(encoder, args, train_dataset=scored)
    assert isinstance(trainer.model, DseForSequenceClassification)
    assert (trainer.model.config.num_labels, trainer.model.config.problem_type) == (1, "regression")
    # What is saved reads as much of a text as the training.
    assert trainer.processing_class.model_max_length == args.max_length == 32
    assert trainer.train().global_step == 2


@pytest.mark.parametrize("has_head", [True, False])
def test_a_dse_folder_is_loaded(has_head, tmp_path, make_model, bert_tokenizer, args, scored):
    model = make_model(DseForSequenceClassification if has_head else DseModel)
    model.save_pretrained(tmp_path / "model")
    bert_tokenizer.save_pretrained(tmp_path / "model")
    loaded = DseTrainer(str(tmp_path / "model"), args, train_dataset=scored).model
    words = "embeddings.word_embeddings.weight"
    assert torch.equal(loaded.dse.state_dict()[words], model.base_model.state_dict()[words])
    if has_head:
        assert torch.equal(loaded.similarity.scale, model.similarity.scale)
        # A head says itself which labels it has.
        assert DseTrainer(str(tmp_path / "model"), args).model.config.num_labels == 1
    else:
        with pytest.raises(ValueError, match="has no head for pairs.*pass the training pairs"):
            DseTrainer(str(tmp_path / "model"), args)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"label": [0.5] * 6}, (1, "regression")),
        ({"label": [0, 1, 0, 1, 0, 1]}, (2, "single_label_classification")),
        ({"label": [0, 1, 2, 1, 0, None]}, (3, "single_label_classification")),
        ({"label": [None] * 6, "teacher_logits": [[0.5]] * 6}, (1, "regression")),
        ({"teacher_logits": [None, *[[0.5, 1.0, 2.0]] * 5]}, (3, "single_label_classification")),
    ],
)
def test_labels_follow_from_the_data(columns, expected):
    assert infer_labels(make_pairs(**columns)) == expected


def test_class_names_count_as_labels():
    features = {"sentence1": Value("string"), "sentence2": Value("string"), "label": ClassLabel(names=["a", "b", "c"])}
    assert infer_labels(make_pairs(label=[0, 1] * 3).cast(Features(features)))[0] == 3
    with pytest.raises(ValueError, match="neither labels nor teacher scores, only the columns sentence1, sentence2"):
        infer_labels(make_pairs())


def test_two_classes_have_one_logit(encoder, args):
    args.distillation_alpha = 0.0
    trainer = DseTrainer(encoder, args, train_dataset=make_pairs(label=[0, 1, 0, 1, 1, 0]))
    config = trainer.model.config
    assert (config.num_labels, config.problem_type) == (1, "multi_label_classification")
    assert trainer.train().global_step == 2


def test_a_loaded_model_and_the_name_of_its_tokenizer(encoder, args, scored):
    student = make_pair_model(convert_encoder(encoder), num_labels=1, problem_type="regression")
    trainer = DseTrainer(student, args, scored, processing_class=encoder)
    assert trainer.model is student and len(trainer.processing_class) == student.config.vocab_size
    with pytest.raises(TypeError, match="`model` is a `DseModel`.*`hf_dse.make_pair_model"):
        DseTrainer(student.dse, args, scored, processing_class=encoder)


def test_a_limit_above_that_of_the_model_is_refused_early(encoder, args, scored):
    args.max_length = 100
    with pytest.raises(ValueError, match="`max_length` is 100, but the student takes at most 64 tokens"):
        DseTrainer(encoder, args, scored)


def test_an_encoder_learns_from_itself(encoder, general_args, texts):
    general_args.relation_weight = 0.0
    trainer = GeneralTrainer(encoder, general_args, texts)
    assert isinstance(trainer.model, LayerwiseDistillation)
    assert trainer.model.teacher.config.layer_types == ["full_attention"] * 2
    assert set(trainer.model.weights) == {"hidden_loss", "sentence_loss"}
    assert trainer.train().global_step == 2
    trainer.model.student.save_pretrained(f"{encoder}-student")
    with pytest.raises(ValueError, match="is a DSE model, so its teacher is unknown"):
        GeneralTrainer(f"{encoder}-student", general_args, texts)
    named = GeneralTrainer(trainer.model, general_args, texts, processing_class=encoder)
    assert named.processing_class.get_vocab() == AutoTokenizer.from_pretrained(encoder).get_vocab()
    with pytest.raises(ValueError, match="`GeneralTrainer` needs `processing_class`"):
        GeneralTrainer(trainer.model, general_args, texts)


# Arguments


def test_arguments_are_optional(save_bert, scored, texts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # The default length.
    encoder = str(save_bert(tmp_path / "bert", max_position_embeddings=128))
    student = make_pair_model(convert_encoder(encoder), num_labels=1)
    args = DseTrainer(student, train_dataset=scored, processing_class=encoder).args
    assert isinstance(args, DseTrainingArguments) and args.output_dir == "tmp_trainer"
    assert (args.eval_strategy, args.save_strategy, args.load_best_model_at_end) == ("no", "steps", False)
    general = GeneralTrainer(encoder, train_dataset=texts).args
    assert isinstance(general, GeneralTrainingArguments) and general.output_dir == "tmp_trainer"


@pytest.mark.parametrize("trainer", [DseTrainer, GeneralTrainer])
def test_arguments_of_another_trainer_are_refused(trainer, encoder, scored, tmp_path):
    plain = TrainingArguments(str(tmp_path), use_cpu=True)
    wanted = trainer.arguments_class.__name__
    message = rf"`args` is a `TrainingArguments`, and `{trainer.__name__}` needs `{wanted}`: pass `hf_dse.{wanted}\("
    with pytest.raises(TypeError, match=message):
        trainer(encoder, plain, scored)


# Data


@pytest.mark.parametrize("place", ["train_dataset", "eval_dataset"])
@pytest.mark.parametrize("trainer", [DseTrainer, GeneralTrainer])
def test_streams_are_refused(trainer, place, encoder, args, general_args, scored, texts):
    options = {"args": args, "train_dataset": scored} if trainer is DseTrainer else {"args": general_args}
    stream = (scored if trainer is DseTrainer else texts).to_iterable_dataset()
    assert isinstance(stream, IterableDataset)
    message = rf"`{place}` is a `datasets.IterableDataset`, and `{trainer.__name__}` needs a `datasets.Dataset`"
    with pytest.raises(TypeError, match=message + ".*without `streaming=True`"):
        trainer(encoder, **{**options, place: stream})


def test_other_containers_are_refused(encoder, args, scored):
    with pytest.raises(TypeError, match=r"`train_dataset` is a `datasets.DatasetDict`.*pass one of its splits: train"):
        DseTrainer(encoder, args, DatasetDict(train=scored))
    with pytest.raises(TypeError, match=r"`train_dataset` is a `builtins.list`.*`Dataset.from_list`"):
        DseTrainer(encoder, args, scored.to_list())
    parts = {"near": scored, "far": scored.to_iterable_dataset()}
    with pytest.raises(TypeError, match=r"`eval_dataset\['far'\]` is a `datasets.IterableDataset`"):
        DseTrainer(encoder, args, scored, parts)
    trainer = DseTrainer(encoder, args, scored)
    with pytest.raises(TypeError, match="`eval_dataset` is a `datasets.IterableDataset`"):
        trainer.evaluate(scored.to_iterable_dataset())
    with pytest.raises(TypeError, match="`test_dataset` is a `datasets.IterableDataset`"):
        trainer.predict(scored.to_iterable_dataset())


# Two of the trainers that take texts, with rows for each.
TEXT_TRAINERS = [(GeneralTrainer, GeneralTrainingArguments), (AlignTrainer, AlignTrainingArguments)]


@pytest.mark.parametrize("kind", ["torch", "numpy", "pandas", "arrow"])
def test_the_format_of_a_dataset_does_not_matter(kind, encoder, args, scored, tmp_path):
    classes = make_pairs(label=[0, 1, 2, 1, 0, 2])
    assert infer_labels(classes.with_format(kind)) == infer_labels(classes) == (3, "single_label_classification")
    trainers = [DseTrainer(encoder, args, rows, {"near": rows}) for rows in (scored, scored.with_format(kind))]
    results = []
    for rows, trainer in zip((scored, scored.with_format(kind)), trainers, strict=True):
        torch.manual_seed(0)
        loss = trainer.train().training_loss
        results.append([loss, trainer.evaluate()["eval_near_loss"], trainer.evaluate(rows)["eval_loss"]])
        results[-1] += trainer.predict(rows).predictions.ravel().tolist()
    assert results[0] == results[1]
    texts = Dataset.from_dict({"text": TEXTS, "embeddings": torch.randn(6, 12).tolist()}).with_format(kind)
    for trainer_class, arguments_class in TEXT_TRAINERS:
        rows = texts.select_columns("text") if trainer_class is GeneralTrainer else texts
        trainer = trainer_class(encoder, arguments_class(str(tmp_path), max_steps=1, **TINY), rows, rows)
        assert trainer.train().global_step == 1 and trainer.evaluate(rows)["eval_loss"] >= 0


def test_columns_without_numbers_are_named(encoder, args, scored):
    words = make_pairs(label=["true", "false"] * 3)
    message = "The column 'label' holds 'true', and a label is a number.*`dataset.class_encode_column"
    for train, evaluate in ((words, None), (scored, words)):
        with pytest.raises(ValueError, match=message):
            DseTrainer(encoder, args, train, evaluate)
    numbers = make_pairs(label=[1.0] * 6, teacher_logits=[0.5] * 6)
    for wrong in (numbers, numbers.remove_columns("label")):
        with pytest.raises(ValueError, match=r"'teacher_logits' holds 0.5, and it needs a list.*write `\[0.5\]`"):
            DseTrainer(encoder, args, wrong)


# Arguments that a trainer would ignore


@pytest.mark.parametrize("trainer", [DseTrainer, GeneralTrainer, AlignTrainer, RankingTrainer])
def test_arguments_that_would_be_ignored_are_refused(trainer, encoder, tmp_path):
    refused = ["compute_loss_func", "model_init"] + ["data_collator", "compute_metrics"] * (trainer is not DseTrainer)
    args = trainer.arguments_class(str(tmp_path), **TINY)
    for name in refused:
        model = None if name == "model_init" else encoder
        with pytest.raises(TypeError, match=f"`{trainer.__name__}` takes no `{name}`: (it|pass) "):
            trainer(model, args, **{name: len})
    if trainer is GeneralTrainer:
        assert trainer(encoder, args, **dict.fromkeys(refused)).compute_metrics is not None


def test_rankings_are_evaluated_and_not_predicted(encoder, tmp_path):
    trainer = RankingTrainer(encoder, RankingTrainingArguments(str(tmp_path), **TINY))
    queries = {"query": ["a dog", "the cat"], "documents": [[0, 1], [1, 0]], "labels": [[1, 0], [1, 0]]}
    rankings = make_rankings(queries, {"text": TEXTS})
    with pytest.raises(TypeError, match=r"`RankingTrainer` has no predictions: rank.*`evaluate\(rankings"):
        trainer.predict(rankings)
    assert 0 <= trainer.evaluate(rankings)["eval_ndcg@10"] <= 1


# Several devices in one process


class Replicas(nn.Module):
    """`torch.nn.DataParallel` with two replicas, which needs two GPUs, on one CPU."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, **inputs):
        halves = zip(*(value.chunk(2) for value in inputs.values()), strict=True)
        outputs = [self.replica()(**dict(zip(inputs, half, strict=True))) for half in halves]
        return gather(outputs)

    def replica(self):
        """What `torch.nn.parallel.replicate` makes: modules without parameters, whose tensors have a history."""
        modules = list(self.module.modules())
        copies = {id(module): module._replicate_for_data_parallel() for module in modules}
        for module in modules:
            made = copies[id(module)]
            for name, child in module._modules.items():
                made._modules[name] = None if child is None else copies[id(child)]
            made._parameters = OrderedDict()
            for name, parameter in module._parameters.items():
                setattr(made, name, None if parameter is None else parameter.clone())
        return copies[id(self.module)]


def gather(outputs):
    """As `torch.nn.parallel.gather`, which is for GPUs: tensors are joined along the first axis, scalars listed."""
    first = outputs[0]
    if isinstance(first, torch.Tensor):
        return torch.cat([output.reshape(1) if output.ndim == 0 else output for output in outputs])
    if isinstance(first, dict):
        return type(first)((name, gather([output[name] for output in outputs])) for name in first)
    return type(first)(map(gather, zip(*outputs, strict=True)))


@pytest.mark.parametrize("similarity_weight", [0.0, 3.0])
def test_two_replicas_do_what_one_model_does(similarity_weight, encoder, args, scored):
    """The loss of a batch and its gradients do not depend on how many devices share it."""
    args.similarity_weight, args.ranking_weight = similarity_weight, 0.5
    torch.manual_seed(0)
    train = scored.add_column("embeddings", torch.randn(6, 2, 4).tolist())
    source = convert_encoder(encoder, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model = make_pair_model(source, num_labels=1, problem_type="regression")
    trainer = DseTrainer(model, args, train, processing_class=encoder)
    batch = trainer.data_collator(train.to_list())
    results = []
    for wrapped in (trainer.model, Replicas(trainer.model)):
        trainer.model.zero_grad()
        loss = trainer.compute_loss(wrapped.train(), copy.copy(batch))
        loss.backward()
        gradients = {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}
        results.append((loss, gradients))
    (loss, expected), (other, gradients) = results
    assert other.item() == pytest.approx(loss.item(), rel=1e-6)
    assert gradients.keys() == expected.keys() and len(expected) > 20
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-6, msg=name)
    # Evaluation: the mean over the replicas.
    with torch.no_grad():
        losses = [trainer.compute_loss(part.eval(), dict(batch)).mean() for part in (model, Replicas(model))]
    assert losses[1].item() == pytest.approx(losses[0].item(), rel=1e-6)
