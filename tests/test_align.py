# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The align stage: a student learns the vectors of a teacher with another size and tokenizer."""

import copy
import json
import math

import numpy as np
import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file
from sklearn.linear_model import Ridge
from transformers import (
    AutoModel,
    AutoTokenizer,
    BertForSequenceClassification,
    RobertaConfig,
    RobertaModel,
    T5Config,
    T5EncoderModel,
)
from transformers.tokenization_utils_base import VERY_LARGE_INTEGER

from hf_dse import (
    AlignTrainer,
    AlignTrainingArguments,
    alignment_loss,
    convert_encoder,
    distill,
    encode,
    load_texts,
)
from hf_dse.common.files import save_array
from hf_dse.mining import embeddings
from hf_dse.pipeline import align_stage
from hf_dse.student.projection import drop_projection, fit_linear, set_projection
from hf_dse.teacher.bi_encoders import BiEncoder
from hf_dse_cli import main


sentence_transformers = pytest.importorskip("sentence_transformers")
modules = pytest.importorskip("sentence_transformers.models")

WORDS = "the a cat dog sat ran on mat house is old new in and of".split()
RANDOM = np.random.default_rng(0)
TEXTS = [" ".join(RANDOM.choice(WORDS, size)) for size in RANDOM.integers(3, 10, 64)]
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
OPTIONS = {
    "max_length": 24,
    "learning_rate": 1e-3,
    "num_train_epochs": 2,
    "per_device_train_batch_size": 8,
    "linformer_length": 8,
    "linformer_projection": "mean",
    "use_cpu": True,
    "disable_tqdm": True,
    "report_to": "none",
}


@pytest.fixture
def source(tmp_path, save_bert):
    return str(save_bert(tmp_path / "source", **NO_DROPOUT))


@pytest.fixture
def save_teacher(tmp_path, roberta_tokenizer):
    """A model of sentence-transformers with a byte-level tokenizer, vectors of 24 numbers and prompts."""

    def save(name="teacher", pooling="cls", dense=None, **settings):
        torch.manual_seed(1)
        config = RobertaConfig(
            vocab_size=len(roberta_tokenizer), hidden_size=24, num_hidden_layers=2, num_attention_heads=2,
            intermediate_size=32, max_position_embeddings=66, initializer_range=0.8, **NO_DROPOUT,
        )  # fmt: skip
        inner = tmp_path / f"{name}-inner"
        RobertaModel(config).save_pretrained(inner)
        roberta_tokenizer.save_pretrained(inner)
        parts = [modules.Transformer(str(inner)), modules.Pooling(24, pooling)]
        if dense is not None:
            parts.append(modules.Dense(24, dense))
        folder = tmp_path / name
        prompts = {"query": "the cat: ", "document": ""}
        model = sentence_transformers.SentenceTransformer(
            modules=[*parts, modules.Normalize()], prompts=prompts, device="cpu", **settings
        )
        model.save(str(folder))
        return str(folder), model

    return save


@pytest.fixture
def files(tmp_path):
    (tmp_path / "train.txt").write_text("\n".join(TEXTS[:48]))
    (tmp_path / "validation.txt").write_text("\n".join(TEXTS[48:]))
    pairs = [{"sentence1": TEXTS[row], "sentence2": TEXTS[row + 20], "label": (row * 7) % 6} for row in range(20)]
    (tmp_path / "sts.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    names = {"train_file": "train.txt", "validation_file": "validation.txt", "sts_file": "sts.jsonl"}
    return {option: str(tmp_path / name) for option, name in names.items()}


def with_vectors(texts=TEXTS, size=24):
    vectors = np.random.default_rng(0).normal(size=(len(texts), size))
    return Dataset.from_dict({"text": texts, "embeddings": (vectors / np.linalg.norm(vectors, axis=1)[:, None])})


def words(options):
    return [word for name, value in options.items() for word in (f"--{name}", str(value))]


def test_a_teacher_without_correlation_has_no_share():
    """After hours of training."""
    rows = ({"cosine_spearman": 0.1}, {"cosine_spearman": 0.2})
    assert align_stage._table(*rows, {"cosine_spearman": 0.0})["after"] == {"cosine_spearman": 0.2}
    assert align_stage._table(*rows, {"cosine_spearman": 0.4})["after"] == {"cosine_spearman": 0.2, "share": 0.5}


# The loss and the linear layer


def test_the_loss():
    generator = torch.Generator().manual_seed(0)
    ours, theirs = (torch.randn(5, 7, generator=generator) for _ in range(2))
    expected = []
    for first, second in zip(ours.tolist(), theirs.tolist(), strict=True):
        lengths = [math.sqrt(sum(x * x for x in vector)) for vector in (first, second)]
        expected.append(sum((x / lengths[0] - y / lengths[1]) ** 2 for x, y in zip(first, second, strict=True)))
    assert alignment_loss(ours, theirs).item() == pytest.approx(sum(expected) / 5, rel=1e-5)
    cosine = torch.nn.functional.cosine_similarity(ours, theirs).mean().item()
    assert alignment_loss(ours, theirs).item() == pytest.approx(2 - 2 * cosine, rel=1e-5)
    assert alignment_loss(3 * theirs, theirs) < 1e-6
    assert alignment_loss(ours.bfloat16(), theirs).dtype == torch.float32
    with pytest.raises(ValueError, match=r"the shape \(5, 6\), and those of the teacher \(5, 7\)"):
        alignment_loss(ours[:, :6], theirs)


def test_the_first_layer_is_a_ridge_regression():
    generator = torch.Generator().manual_seed(0)
    vectors, weight, bias = (torch.randn(*size, generator=generator) for size in ((200, 6), (9, 6), (9,)))
    targets = vectors @ weight.T + bias
    fitted = fit_linear(vectors, targets, ridge=0.0)
    assert torch.allclose(fitted[0], weight.double(), atol=1e-4)
    assert torch.allclose(fitted[1], bias.double(), atol=1e-4)
    # sklearn minimizes the same with the same penalty.
    model = Ridge(alpha=0.1 * vectors.square().mean().item() * 200).fit(vectors, targets)
    fitted = fit_linear(vectors, targets)
    assert np.allclose(fitted[0], model.coef_, atol=1e-4)
    assert np.allclose(fitted[1], model.intercept_, atol=1e-4)
    assert all(part.isfinite().all() for part in fit_linear(vectors[:1], targets[:1]))


def test_a_layer_is_set_and_dropped(source):
    model = convert_encoder(source).eval()
    batch = AutoTokenizer.from_pretrained(source)(TEXTS[:3], padding=True, return_tensors="pt")
    before = model(**batch).pooler_output
    weight, bias = torch.randn(24, 16), torch.randn(24)
    set_projection(model, weight, bias)
    assert model.config.projection_dim == 24
    assert torch.allclose(model(**batch).pooler_output, before @ weight.T + bias, atol=1e-4)
    assert torch.equal(drop_projection(model)(**batch).pooler_output, before)
    assert model.config.projection_dim == 16


# The teacher


@pytest.mark.parametrize("pooling", ["mean", "cls", "max", "lasttoken"])
@pytest.mark.parametrize("prompt_name", [None, "query"])
def test_vectors_are_those_of_sentence_transformers(pooling, prompt_name, save_teacher):
    folder, model = save_teacher(pooling=pooling)
    expected = model.encode(TEXTS, prompt_name=prompt_name, normalize_embeddings=True)
    ours = BiEncoder(folder, prompt_name=prompt_name, device="cpu").encode(TEXTS)
    assert np.allclose(ours, expected, atol=1e-5)


def test_further_layers_and_the_default_prompt_are_applied(save_teacher, tmp_path):
    folder, model = save_teacher(dense=10, default_prompt_name="query")
    expected = model.encode(TEXTS, normalize_embeddings=True)
    teacher = BiEncoder(folder, device="cpu")
    assert np.allclose(teacher.encode(TEXTS, tmp_path / "cache"), expected, atol=1e-5)
    assert not np.allclose(model.encode(TEXTS, prompt="", normalize_embeddings=True), expected, atol=1e-2)
    # Other weights in a further layer are another teacher.
    with torch.no_grad():
        model[2].linear.weight.mul_(-1)
    model.save(folder)
    assert np.allclose(
        BiEncoder(folder, device="cpu").encode(TEXTS, tmp_path / "cache"), model.encode(TEXTS), atol=1e-5
    )


def test_a_teacher_reads_no_more_than_max_length(save_teacher):
    for dense in (None, 10):
        folder, model = save_teacher(f"teacher-{dense}", dense=dense)
        model.max_seq_length = 12
        long = " ".join(TEXTS)
        assert np.allclose(
            BiEncoder(folder, max_length=12, device="cpu").encode([long]), model.encode([long]), atol=1e-5
        )
        # Its own limit is 64.
        assert BiEncoder(folder, max_length=1000, device="cpu").settings[-1] == 64


def test_a_teacher_without_a_limit_of_its_length(tmp_path, bert_tokenizer):
    config = T5Config(vocab_size=len(bert_tokenizer), d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2)
    T5EncoderModel(config).save_pretrained(tmp_path / "t5")
    tokenizer = copy.deepcopy(bert_tokenizer)
    tokenizer.model_max_length = VERY_LARGE_INTEGER
    tokenizer.save_pretrained(tmp_path / "t5")
    parts = [modules.Transformer(str(tmp_path / "t5"), query_length=4), modules.Pooling(16), modules.Dense(16, 8)]
    model, folder = sentence_transformers.SentenceTransformer(modules=parts, device="cpu"), str(tmp_path / "teacher")
    model.save(folder)
    texts = [TEXTS[0] * 30, TEXTS[1]]
    teacher = BiEncoder(folder, device="cpu")
    queries = model.encode_query(texts, normalize_embeddings=True)
    expected = model.encode(texts, normalize_embeddings=True)
    assert np.allclose(teacher.encode(texts, prompt_name="query"), queries, atol=1e-5)
    # A text after queries, without their length.
    assert np.allclose(teacher.encode(texts), expected, atol=1e-5) and not np.allclose(queries, expected, atol=1e-2)


def test_what_is_no_teacher(save_teacher, save_bert, roberta_tokenizer, tmp_path):
    folder, _ = save_teacher()
    with pytest.raises(ValueError, match="'title'.*has no such prompt, only query"):
        BiEncoder(folder, prompt_name="title")
    cross_encoder = save_bert(tmp_path / "cross", BertForSequenceClassification, num_labels=1)
    with pytest.raises(ValueError, match="a cross-encoder without vectors.*--stage pairs"):
        BiEncoder(str(cross_encoder))
    static = modules.StaticEmbedding(roberta_tokenizer.backend_tokenizer, embedding_dim=8)
    sentence_transformers.SentenceTransformer(modules=[static], device="cpu").save(str(tmp_path / "static"))
    with pytest.raises(ValueError, match="static has the modules StaticEmbedding .* name a bi-encoder with one"):
        BiEncoder(str(tmp_path / "static"))


def test_vectors_are_computed_once(save_teacher, tmp_path, monkeypatch):
    """What was computed before a kill is read; other texts, weights, prompts and lengths are computed."""
    monkeypatch.setattr(embeddings, "TEXTS_PER_BLOCK", 16)
    folder, _ = save_teacher()
    computed = []

    def encode_all(texts=TEXTS, name=folder, **options):
        teacher = BiEncoder(name, device="cpu", **options)
        inner = teacher._encode
        teacher._encode = lambda block, **limits: computed.append(len(block)) or inner(block, **limits)
        computed.clear()
        return teacher.encode(texts, tmp_path / "cache", dtype=np.float16)

    first = encode_all()
    assert first.dtype == np.float16
    assert computed == [16] * 4
    assert np.array_equal(encode_all(), first)
    assert computed == []
    files = sorted((tmp_path / "cache").iterdir())
    assert [file.suffix for file in files] == [".npy"] * 4
    files[2].unlink()
    assert np.array_equal(encode_all(TEXTS[:40]), first[:40])
    assert sum(computed) in (8, 24)
    for change in ({"prompt_name": "query"}, {"max_length": 8}, {"dtype": "bfloat16"}):
        encode_all(**change)
        assert sum(computed) == 64
    other, _ = save_teacher("other", pooling="mean")
    encode_all(name=other)
    assert sum(computed) == 64
    with files[0].open("wb") as file:
        save_array(file, np.full((16, 24), np.nan, dtype=np.float32))
    with pytest.raises(ValueError, match="is damaged.*delete it and run again"):
        encode_all()


# The training


def test_distill_in_one_call(source, save_teacher, files, tmp_path, capsys):
    teacher, model = save_teacher()
    output = tmp_path / "out"
    assert main(["distill", "--stage", "align", "--model_name_or_path", source, "--teacher_name_or_path", teacher,
                 "--output_dir", str(output), *words(OPTIONS | files)]) == 0  # fmt: skip
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["split", "teacher_cosine", "cosine_spearman", "share"]
    assert [line.split()[0] for line in lines[1:4]] == ["before", "after", "teacher"]
    results = json.loads((output / "results.json").read_text())
    before, after, of_teacher = (results["metrics"][name] for name in ("before", "after", "teacher"))
    assert after["teacher_cosine"] > before["teacher_cosine"] + 0.003
    assert after["share"] == pytest.approx(after["cosine_spearman"] / of_teacher["cosine_spearman"])
    assert not list(output.glob(".*"))
    assert "vectors of teacher" in (output / "model" / "README.md").read_text()

    # The student alone has its own size, and the best checkpoint the linear layer.
    student = sentence_transformers.SentenceTransformer(str(output / "model"), trust_remote_code=True, device="cpu")
    assert student.encode(TEXTS[:2]).shape == (2, 16)
    weights = load_file(output / "model" / "model.safetensors")
    assert not any(name.startswith("projection.") for name in weights)

    # The same from Python, with loaded texts; the layer stays, and the vectors meet those of the teacher.
    texts = {"train": Dataset.from_dict({"text": TEXTS[:48]}), "validation": Dataset.from_dict({"text": TEXTS[48:]})}
    result = distill(
        source, teacher, texts, tmp_path / "again", stage="align", keep_projection=True, sts_file=files["sts_file"],
        **OPTIONS,
    )  # fmt: skip
    assert result.metrics["after"]["teacher_cosine"] == pytest.approx(after["teacher_cosine"], abs=1e-6)
    again = load_file(result.path / "model.safetensors")
    assert all(torch.equal(again[name], value) for name, value in weights.items())
    student = sentence_transformers.SentenceTransformer(str(result.path), trust_remote_code=True, device="cpu")
    model.max_seq_length = OPTIONS["max_length"]
    cosines = student.similarity_pairwise(student.encode(TEXTS[48:]), model.encode(TEXTS[48:]))
    assert cosines.mean().item() == pytest.approx(after["teacher_cosine"], abs=1e-4)


def test_the_best_student_is_kept_and_a_training_resumes(source, tmp_path):
    def train(name, resume=None, **options):
        arguments = AlignTrainingArguments(
            str(tmp_path / name), save_total_limit=9,
            **{k: v for k, v in OPTIONS.items() if not k.startswith("linformer")} | {"num_train_epochs": 3} | options,
        )  # fmt: skip
        data = with_vectors()
        trainer = AlignTrainer(
            convert_encoder(source, linformer_length=8, linformer_projection="mean"), arguments, data,
            data.select(range(16)), source,
        )  # fmt: skip
        trainer.train(resume_from_checkpoint=resume)
        return trainer

    whole = train("whole")
    log = [entry["eval_teacher_cosine"] for entry in whole.state.log_history if "eval_teacher_cosine" in entry]
    losses = [entry["eval_loss"] for entry in whole.state.log_history if "eval_loss" in entry]
    assert len(log) == 3
    assert losses == pytest.approx([2 - 2 * cosine for cosine in log], abs=1e-5)
    assert whole.state.best_metric == max(log)
    rest = train("whole", str(tmp_path / "whole" / "checkpoint-8"))
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, rest.model.state_dict()[name]), name
    # A checkpoint is a model folder with the linear layer.
    loaded = AutoModel.from_pretrained(tmp_path / "whole" / "checkpoint-16")
    assert loaded.projection.weight.shape == (24, 16)
    slow = train("slow", projection_learning_rate=0.0, eval_strategy="no", save_strategy="no")
    start = train("start", learning_rate=0.0, eval_strategy="no", save_strategy="no")
    assert torch.equal(slow.model.projection.weight, start.model.projection.weight)
    assert not torch.equal(slow.model.embeddings.word_embeddings.weight, start.model.embeddings.word_embeddings.weight)


def test_predictions_are_in_the_order_of_the_rows(source, tmp_path):
    args = AlignTrainingArguments(str(tmp_path / "out"), max_length=24, use_cpu=True, report_to="none")
    data = with_vectors(size=16)
    trainer = AlignTrainer(source, args, data, data)
    vectors = encode(trainer.model, trainer.processing_class, data["text"][:], normalize=True, show_progress=False)
    targets = np.asarray(data["embeddings"][:])
    expected = (vectors * targets).sum(axis=1) / np.linalg.norm(targets, axis=1)
    assert len(set(map(len, data["text"][:]))) > 3
    for part in (trainer.eval_dataset, data):
        np.testing.assert_allclose(trainer.predict(part).predictions, expected, rtol=0, atol=1e-5)
    assert trainer.evaluate(data)["eval_teacher_cosine"] == pytest.approx(expected.mean(), abs=1e-5)
    with pytest.raises(TypeError, match="evaluates on one dataset, and got a, b: pass one of them"):
        AlignTrainer(source, args, data, {"a": data, "b": data})


def test_a_student_of_the_same_size_has_no_layer(source, tmp_path):
    args = AlignTrainingArguments(str(tmp_path / "out"), max_length=24, use_cpu=True, report_to="none")
    trainer = AlignTrainer(source, args, with_vectors(size=16))
    assert trainer.model.projection is None


def test_a_layer_that_was_asked_for_is_kept(source, save_teacher, files, tmp_path):
    teacher, _ = save_teacher()
    options = ["--projection_dim", "24", "--max_length", "24", "--use_cpu", "true", "--report_to", "none"]
    command = ["distill", "--stage", "align", "--model_name_or_path", source, "--teacher_name_or_path", teacher]
    command += ["--train_file", files["train_file"], "--max_steps", "1", "--eval_strategy", "no", *options]
    assert main([*command, "--save_strategy", "no", "--output_dir", str(tmp_path / "own")]) == 0
    assert AutoModel.from_pretrained(tmp_path / "own" / "model").config.projection_dim == 24


def test_what_is_refused(source, save_teacher, files, tmp_path, bert_tokenizer, make_model, capsys):
    args = AlignTrainingArguments(str(tmp_path / "args"), max_length=24, use_cpu=True, report_to="none")
    with pytest.raises(ValueError, match="no column embeddings; it needs texts in the column 'text' and the vectors"):
        AlignTrainer(source, args, Dataset.from_dict({"text": TEXTS}))
    with pytest.raises(ValueError, match="different sizes, 24 in train_dataset, 9 in eval_dataset"):
        AlignTrainer(source, args, with_vectors(), with_vectors(size=9))
    with pytest.raises(ValueError, match="a projection to 8 dimensions, and the teacher's vectors have 24"):
        AlignTrainer(convert_encoder(source, projection_dim=8), args, with_vectors(), processing_class=source)
    with pytest.raises(TypeError, match="needs a `DseModel`.*`model.dse`"):
        AlignTrainer(make_model(), args, with_vectors(), processing_class=bert_tokenizer)
    with pytest.raises(ValueError, match="needs `processing_class`"):
        AlignTrainer(convert_encoder(source), args, with_vectors())
    with pytest.raises(ValueError, match="`projection_learning_rate` must not be negative, got -1"):
        AlignTrainingArguments(str(tmp_path), projection_learning_rate=-1.0)
    line = ["distill", "--stage", "align", "--model_name_or_path", source, "--output_dir", str(tmp_path / "out")]
    assert main([*line, *words(OPTIONS | files)]) != 0
    assert "name it with `--teacher_name_or_path`" in capsys.readouterr().err
    teacher, _ = save_teacher()
    with pytest.raises(TypeError, match="needs texts: pass a file"):
        distill(source, teacher, stage="align", output_dir=tmp_path / "out", **OPTIONS)
    with pytest.raises(TypeError, match="with the columns sentence, and the align stage needs"):
        distill(source, teacher, Dataset.from_dict({"sentence": TEXTS}), tmp_path / "out", stage="align", **OPTIONS)


def test_texts_of_several_columns(tmp_path):
    rows = [{"first": "a cat", "second": "a dog", "third": "x"}, {"first": "new", "second": " ", "third": "y"}]
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert load_texts(str(path), "first,second")["text"][:] == ["a cat", "new", "a dog"]
    with pytest.raises(ValueError, match="no column 'fourth'; the columns are first, second, third"):
        load_texts(str(path), "first,fourth")


def test_the_vectors_of_a_dse_model_are_a_teacher_too(source, tmp_path):
    from hf_dse import export_model

    tokenizer = AutoTokenizer.from_pretrained(source)
    teacher = export_model(convert_encoder(source, linformer_length=8), tokenizer, tmp_path / "dse")
    expected = encode(AutoModel.from_pretrained(teacher), tokenizer, TEXTS, normalize=True, show_progress=False)
    assert np.allclose(BiEncoder(str(teacher), device="cpu").encode(TEXTS), expected, atol=1e-5)
