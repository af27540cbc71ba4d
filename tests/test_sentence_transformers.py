# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The real sentence-transformers loads a model folder and returns exactly the embeddings of `DseModel`."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from datasets import Dataset
from sentence_transformers import (
    CrossEncoder,
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
    util,
)
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator
from sentence_transformers.sentence_transformer.losses import CoSENTLoss, MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling
from sentence_transformers.util import quantize_embeddings
from transformers import AutoModel, AutoTokenizer

from hf_dse import (
    BiEncoder,
    DseForSequenceClassification,
    DseModel,
    ModelArguments,
    convert_encoder,
    encode,
    evaluate_model,
    export_model,
    load_model,
)
from hf_dse.data.tasks import PairTask
from hf_dse.student.checkpoint import load_converted, load_dse_model
from hf_dse.student.convert import ConvertArguments


# From one token to far above k = 8, up to the limit of 64.
TEXTS = [
    "cat",
    "a dog ran on the mat",
    "the old house is in the new house",
    "the cat and a dog " * 9,
    "new",
    "is 1 + 1 = 2?",
]

LOADER = """
import json, sys

class NoHfDse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "hf_dse":
            raise ModuleNotFoundError(f"{name} is not installed here", name=name)

sys.meta_path.insert(0, NoHfDse())
from sentence_transformers import SentenceTransformer

model = SentenceTransformer(sys.argv[1], trust_remote_code=True, device="cpu")
embeddings = model.encode(json.loads(sys.argv[2]))
print(json.dumps({"module": type(model[0].auto_model).__module__, "embeddings": embeddings.tolist()}))
"""


def embed_alone(model, tokenizer, **truncation):
    """Embeds one text after the other, directly with the model."""
    truncation = truncation or {"truncation": True}
    with torch.inference_mode():
        batches = [tokenizer(text, return_tensors="pt", **truncation) for text in TEXTS]
        return torch.cat([model.base_model(**batch).pooler_output for batch in batches]).numpy()


@pytest.mark.parametrize(
    ("model_class", "fields"),
    [
        (DseModel, {}),
        (DseModel, {"normalize_embeddings": True, "projection_dim": 6}),
        (DseForSequenceClassification, {"similarity": "mlp"}),
        (DseForSequenceClassification, {"pooling_mode": "cls", "projection_dim": 6}),
        (DseForSequenceClassification, {"pooling_mode": "max", "pooling_layers": 2, "linformer_projection": "mean"}),
        (DseForSequenceClassification, {"pooling_mode": "max", "pooling_layers": 2, "projection_dim": 6}),
    ],
)
@pytest.mark.parametrize("writer", ["export_model", "save_pretrained"])
def test_encode_returns_our_embeddings(tmp_path, make_model, bert_tokenizer, model_class, fields, writer, recwarn):
    model = make_model(model_class, **fields)
    folder = tmp_path / "model"
    if writer == "export_model":
        export_model(model, bert_tokenizer, folder)
    else:
        model.save_pretrained(folder)
        bert_tokenizer.save_pretrained(folder)
    loaded = SentenceTransformer(str(folder), device="cpu")
    assert not [warning for warning in recwarn if "sentence_transformers" in str(warning.message)]
    assert type(loaded[0].auto_model) is DseModel
    modules = ["Transformer", "Pooling"] + ["Normalize"] * model.config.normalize_embeddings
    assert [type(module).__name__ for module in loaded] == modules
    assert loaded.max_seq_length == 64
    assert loaded.get_embedding_dimension() == model.config.projection_dim

    embeddings = loaded.encode(TEXTS, batch_size=len(TEXTS))
    assert embeddings.shape == (len(TEXTS), model.config.projection_dim)
    np.testing.assert_allclose(embeddings, embed_alone(model, bert_tokenizer), rtol=0, atol=1e-6)
    ours = encode(model, bert_tokenizer, TEXTS, show_progress=False)
    np.testing.assert_allclose(embeddings, ours, rtol=0, atol=1e-6)


def test_token_embeddings_are_those_that_are_pooled(tmp_path, make_model, bert_tokenizer):
    model = make_model(projection_dim=6)
    loaded = SentenceTransformer(str(export_model(model, bert_tokenizer, tmp_path / "model")), device="cpu")
    tokens = loaded.encode(TEXTS, output_value="token_embeddings")
    for vectors, embedding in zip(tokens, loaded.encode(TEXTS), strict=True):
        np.testing.assert_allclose(vectors.mean(dim=0), embedding, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("labels", "is_probability"),
    [({"num_labels": 1}, False), ({"num_labels": 1, "problem_type": "multi_label_classification"}, True)],
)
def test_cross_encoder_returns_the_scores_of_the_head(tmp_path, make_model, bert_tokenizer, labels, is_probability):
    model = make_model(**labels)
    with torch.no_grad():
        model.similarity.scale.fill_(4.0)
        model.similarity.bias.fill_(1.0)
        logits = model(**bert_tokenizer(TEXTS, TEXTS[::-1], padding=True, return_tensors="pt")).logits[:, 0]
    folder = export_model(model, bert_tokenizer, tmp_path / "model")
    scores = CrossEncoder(str(folder), device="cpu").predict(list(zip(TEXTS, TEXTS[::-1], strict=True)))
    expected = logits.sigmoid() if is_probability else logits
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-5)


def test_cross_encoder_of_several_labels_has_to_know_their_number(tmp_path, make_model, bert_tokenizer):
    model = make_model(num_labels=3, problem_type="single_label_classification")
    with torch.no_grad():
        logits = model(**bert_tokenizer(TEXTS, TEXTS[::-1], padding=True, return_tensors="pt")).logits
    folder = export_model(model, bert_tokenizer, tmp_path / "model")
    scores = CrossEncoder(str(folder), num_labels=3, device="cpu").predict(list(zip(TEXTS, TEXTS[::-1], strict=True)))
    np.testing.assert_allclose(scores, logits, rtol=0, atol=1e-5)


def test_cross_encoder_of_an_encoder_returns_cosines(tmp_path, bert_tokenizer, save_bert):
    # Converted, so that it has no head and no training.
    model = convert_encoder(str(save_bert(tmp_path / "bert")))
    folder = export_model(model, bert_tokenizer, tmp_path / "model")
    scores = CrossEncoder(str(folder), device="cpu").predict(list(zip(TEXTS, TEXTS[::-1], strict=True)))
    embeddings = torch.from_numpy(encode(model, bert_tokenizer, TEXTS, normalize=True, show_progress=False))
    np.testing.assert_allclose(scores, (embeddings * embeddings.flip(0)).sum(dim=1), rtol=0, atol=1e-5)


@pytest.mark.parametrize("similarity", ["cosine", "dot", "mlp"])
def test_similarity_function_is_that_of_the_model(tmp_path, make_model, bert_tokenizer, similarity):
    model = make_model(similarity=similarity)
    loaded = SentenceTransformer(str(export_model(model, bert_tokenizer, tmp_path / "model")), device="cpu")
    vectors = torch.from_numpy(embed_alone(model, bert_tokenizer))
    if similarity != "dot":
        vectors = torch.nn.functional.normalize(vectors, dim=-1)
    embeddings = loaded.encode(TEXTS)
    torch.testing.assert_close(loaded.similarity(embeddings, embeddings), vectors @ vectors.T, rtol=0, atol=1e-5)


def test_sentence_transformers_saves_the_same_modules(tmp_path, make_model, bert_tokenizer):
    folder = export_model(make_model(DseModel, normalize_embeddings=True), bert_tokenizer, tmp_path / "ours")
    theirs = tmp_path / "theirs"
    prompts = {"query": "ask: ", "document": ""}
    SentenceTransformer(str(folder), device="cpu", prompts=prompts).save(str(theirs))
    written, expected = (json.loads((place / "modules.json").read_text()) for place in (folder, theirs))
    kinds = [[module["type"].rpartition(".")[2] for module in modules] for modules in (written, expected)]
    assert kinds == [["Transformer", "Pooling", "Normalize"]] * 2
    assert [module["path"] for module in written] == [module["path"] for module in expected]
    written, expected = (json.loads((place / "config.json").read_text()) for place in (folder, theirs))
    assert written == expected
    # Saving the model inside does not overwrite what sentence-transformers saved before.
    settings = json.loads((theirs / "config_sentence_transformers.json").read_text())
    assert settings["prompts"] == prompts and settings["similarity_fn_name"] == "cosine"


@pytest.mark.parametrize(
    ("modules", "lost"),
    [
        ([Pooling(16, pooling_mode="cls"), Normalize()], ""),
        ([Pooling(16, pooling_mode="max")], ""),
        ([Pooling(16, pooling_mode="lasttoken")], "with the pooling lasttoken, which is not"),
        ([Pooling(16), Dense(16, 8), Normalize()], "with Dense, which is not applied"),
    ],
)
def test_other_modules_around_a_model(tmp_path, make_model, bert_tokenizer, warnings, modules, lost):
    """What the config can say is set, all else is named; a teacher has the vectors of sentence-transformers anyway."""
    ours = export_model(make_model(DseModel, normalize_embeddings=True), bert_tokenizer, tmp_path / "ours")
    transformer = SentenceTransformer(str(ours), device="cpu")[0]
    theirs, folder = SentenceTransformer(modules=[transformer, *modules], device="cpu"), str(tmp_path / "theirs")
    theirs.save(folder)
    expected = theirs.encode(TEXTS)
    model, tokenizer = load_model(ModelArguments(folder, device="cpu"))
    if lost:
        assert len(warnings) == 1 and lost in warnings[0]
    else:
        assert warnings == []
        for loaded in (model, load_dse_model(folder), load_converted(folder, ConvertArguments())):
            vectors = encode(loaded, tokenizer, TEXTS, show_progress=False)
            np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)
    vectors = BiEncoder(folder, device="cpu").encode(TEXTS, show_progress=False)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("missing", ["modules.json", "1_Pooling/config.json"])
def test_the_config_counts_without_files_of_modules(tmp_path, make_model, bert_tokenizer, missing):
    model = make_model(DseModel, pooling_mode="cls", normalize_embeddings=True)
    folder = export_model(model, bert_tokenizer, tmp_path / "model")
    (folder / missing).unlink()
    loaded, _ = load_model(ModelArguments(str(folder), device="cpu"))
    assert loaded.config.pooling_mode == "cls" and loaded.config.normalize_embeddings


def test_save_and_load_again(tmp_path, make_model, bert_tokenizer):
    model = make_model()
    folder = export_model(model, bert_tokenizer, tmp_path / "first", max_length=32)
    SentenceTransformer(str(folder), device="cpu").save(str(tmp_path / "second"))
    loaded = SentenceTransformer(str(tmp_path / "second"), device="cpu")
    assert loaded.max_seq_length == 32
    expected = embed_alone(model, bert_tokenizer, truncation=True, max_length=32)
    np.testing.assert_allclose(loaded.encode(TEXTS), expected, rtol=0, atol=1e-6)
    assert (tmp_path / "second" / "modeling_dse.py").is_file()

    encoder = AutoModel.from_pretrained(tmp_path / "second")
    assert embed_alone(encoder, bert_tokenizer).shape == expected.shape


def test_texts_are_truncated_as_in_training(tmp_path, make_model, bert_tokenizer):
    model = make_model()
    loaded = SentenceTransformer(
        str(export_model(model, bert_tokenizer, tmp_path / "model", max_length=10)), device="cpu"
    )
    assert loaded.max_seq_length == loaded.tokenizer.model_max_length == 10
    expected = embed_alone(model, bert_tokenizer, truncation=True, max_length=10)
    np.testing.assert_allclose(loaded.encode(TEXTS), expected, rtol=0, atol=1e-6)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    ours = encode(model, tokenizer, TEXTS, show_progress=False)
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-6)
    # Reading more is an explicit choice.
    longer = encode(model, tokenizer, TEXTS, max_length=64, show_progress=False)
    loaded.max_seq_length = 64
    np.testing.assert_allclose(loaded.encode(TEXTS), longer, rtol=0, atol=1e-6)
    assert abs(longer - expected).max() > 1e-3


@pytest.mark.parametrize("loss_class", [CoSENTLoss, MultipleNegativesRankingLoss])
def test_its_trainer_fine_tunes(tmp_path, make_model, bert_tokenizer, loss_class):
    folder = export_model(make_model(), bert_tokenizer, tmp_path / "first")
    model = SentenceTransformer(str(folder), device="cpu")
    columns = {"sentence1": TEXTS, "sentence2": TEXTS[1:] + TEXTS[:1]}
    labels = {"label": [1.0, 0.0] * 3} if loss_class is CoSENTLoss else {}
    args = SentenceTransformerTrainingArguments(
        str(tmp_path / "run"), max_steps=8, learning_rate=1e-2, report_to="none", use_cpu=True, disable_tqdm=True
    )
    trainer = SentenceTransformerTrainer(
        model=model, args=args, train_dataset=Dataset.from_dict({**columns, **labels}), loss=loss_class(model)
    )
    before = model.encode(TEXTS)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    model.save_pretrained(str(tmp_path / "second"))
    loaded = AutoModel.from_pretrained(tmp_path / "second")
    after = embed_alone(loaded, bert_tokenizer)
    assert np.isfinite(losses).all() and not np.allclose(before, after, atol=1e-2)
    np.testing.assert_allclose(model.encode(TEXTS), after, rtol=0, atol=1e-5)


def test_its_evaluator_agrees_with_ours(tmp_path, make_model, bert_tokenizer):
    model = make_model(num_labels=1)
    loaded = SentenceTransformer(str(export_model(model, bert_tokenizer, tmp_path / "model")), device="cpu")
    pairs = Dataset.from_dict(
        {"sentence1": TEXTS, "sentence2": TEXTS[1:] + TEXTS[:1], "label": [0.0, 3.0, 1.0, 5.0, 2.0, 4.0]}
    )
    theirs = EmbeddingSimilarityEvaluator(pairs["sentence1"][:], pairs["sentence2"][:], pairs["label"][:])(loaded)
    task = PairTask("scores")
    ours = evaluate_model(model, bert_tokenizer, pairs, task=task)
    # Scale and bias of the head change neither, as long as the scale is positive.
    assert theirs["pearson_cosine"] == pytest.approx(ours["pearson"], abs=1e-5)
    assert theirs["spearman_cosine"] == pytest.approx(ours["spearman"], abs=1e-5)


def test_queries_and_documents(tmp_path, make_model, bert_tokenizer):
    """An exported folder has no prompts; those that a user sets are for one side only."""
    model = make_model()
    loaded = SentenceTransformer(str(export_model(model, bert_tokenizer, tmp_path / "model")), device="cpu")
    expected = embed_alone(model, bert_tokenizer)
    np.testing.assert_allclose(loaded.encode_query(TEXTS), expected, rtol=0, atol=1e-6)
    np.testing.assert_allclose(loaded.encode_document(TEXTS), expected, rtol=0, atol=1e-6)
    loaded.prompts["query"] = "the "
    np.testing.assert_allclose(loaded.encode_document(TEXTS), expected, rtol=0, atol=1e-6)
    with_prompts = loaded.encode([f"the {text}" for text in TEXTS])
    np.testing.assert_allclose(loaded.encode_query(TEXTS), with_prompts, rtol=0, atol=1e-6)
    assert np.abs(with_prompts - expected).max() > 1e-3


def test_smaller_embeddings(tmp_path, make_model, bert_tokenizer):
    model = make_model(projection_dim=12)
    folder = str(export_model(model, bert_tokenizer, tmp_path / "model"))
    expected = embed_alone(model, bert_tokenizer)[:, :8]
    loaded = SentenceTransformer(folder, device="cpu", truncate_dim=8)
    assert loaded.get_embedding_dimension() == 8
    np.testing.assert_allclose(loaded.encode(TEXTS), expected, rtol=0, atol=1e-6)
    loaded = SentenceTransformer(folder, device="cpu")
    np.testing.assert_allclose(loaded.encode(TEXTS, truncate_dim=8), expected, rtol=0, atol=1e-6)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    unit = loaded.encode(TEXTS, truncate_dim=8, normalize_embeddings=True)
    np.testing.assert_allclose(unit, expected, rtol=0, atol=1e-6)
    # Vectors of unit length have it again when they are cut, which sentence-transformers has to be asked for.
    model.config.normalize_embeddings = True
    folder = str(export_model(model, bert_tokenizer, tmp_path / "unit"))
    ours = encode(model, bert_tokenizer, TEXTS, truncate_dim=np.int64(8), show_progress=False)
    loaded = SentenceTransformer(folder, device="cpu", truncate_dim=8)
    for theirs in (ours, loaded.encode(TEXTS, normalize_embeddings=True)):
        np.testing.assert_allclose(theirs, expected, rtol=0, atol=1e-6)


def test_quantized_embeddings(tmp_path, make_model, bert_tokenizer):
    model = make_model()
    loaded = SentenceTransformer(str(export_model(model, bert_tokenizer, tmp_path / "model")), device="cpu")
    expected = embed_alone(model, bert_tokenizer)
    low, high = expected.min(axis=0), expected.max(axis=0)
    int8 = quantize_embeddings(loaded.encode(TEXTS), "int8", ranges=np.stack([low, high]))
    assert int8.dtype == np.int8
    step = (high - low) / 255
    assert (np.abs(low + (int8.astype(float) + 128) * step - expected) <= 1.01 * step + 1e-6).all()
    binary = loaded.encode(TEXTS, precision="ubinary")
    np.testing.assert_array_equal(np.unpackbits(binary, axis=1), expected > 0)


@pytest.mark.slow
def test_encode_in_several_processes(tmp_path, make_model, bert_tokenizer):
    model = make_model()
    loaded = SentenceTransformer(str(export_model(model, bert_tokenizer, tmp_path / "model")), device="cpu")
    embeddings = loaded.encode(TEXTS, device=["cpu", "cpu"], chunk_size=2)
    np.testing.assert_allclose(embeddings, embed_alone(model, bert_tokenizer), rtol=0, atol=1e-6)


@pytest.mark.skipif(not hasattr(util, "check_version_requirements"), reason="sentence-transformers 6 checks versions")
def test_the_error_for_an_old_transformers_version(tmp_path, make_model, bert_tokenizer):
    folder = export_model(make_model(), bert_tokenizer, tmp_path / "model")
    file = folder / "config_sentence_transformers.json"
    # A version that does not exist yet, so the installed one is too old.
    file.write_text(file.read_text().replace(">=5.20", ">=99"))
    with pytest.raises(ImportError, match="transformers>=99, but transformers==.* is installed"):
        SentenceTransformer(str(folder), device="cpu")


@pytest.mark.slow
def test_loads_without_hf_dse(tmp_path, make_model, bert_tokenizer):
    model = make_model(projection_dim=6)
    folder = export_model(model, bert_tokenizer, tmp_path / "model")
    command = [sys.executable, "-I", "-c", LOADER, str(folder), json.dumps(TEXTS)]
    environment = os.environ | {"HF_MODULES_CACHE": str(tmp_path / "modules")}
    process = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert process.returncode == 0, process.stderr
    assert "UNEXPECTED" not in process.stderr and "newly initialized" not in process.stderr
    result = json.loads(process.stdout.splitlines()[-1])
    assert result["module"].startswith("transformers_modules.")
    np.testing.assert_allclose(result["embeddings"], embed_alone(model, bert_tokenizer), rtol=0, atol=1e-6)
