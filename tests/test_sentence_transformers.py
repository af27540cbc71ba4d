# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The real sentence-transformers loads an exported folder and returns exactly the embeddings of `DseModel`."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
    util,
)
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator
from sentence_transformers.sentence_transformer.losses import CoSENTLoss, MultipleNegativesRankingLoss
from transformers import AutoModel

from hf_dse import DseForSequenceClassification, DseModel, encode, evaluate_model, export_model
from hf_dse.data.tasks import PairTask


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
        (DseForSequenceClassification, {"similarity": "mlp"}),
        (DseForSequenceClassification, {"pooling_mode": "cls", "projection_dim": 6}),
        (DseForSequenceClassification, {"pooling_mode": "max", "pooling_layers": 2, "linformer_projection": "mean"}),
    ],
)
def test_encode_returns_our_embeddings(tmp_path, make_model, bert_tokenizer, model_class, fields):
    model = make_model(model_class, **fields)
    folder = export_model(model, bert_tokenizer, tmp_path / "model")
    loaded = SentenceTransformer(str(folder), device="cpu")
    assert type(loaded[0].auto_model) is DseModel
    assert len(loaded) == 1
    assert loaded.max_seq_length == 64
    assert loaded.get_embedding_dimension() == model.config.projection_dim

    embeddings = loaded.encode(TEXTS, batch_size=len(TEXTS))
    assert embeddings.shape == (len(TEXTS), model.config.projection_dim)
    np.testing.assert_allclose(embeddings, embed_alone(model, bert_tokenizer), rtol=0, atol=1e-6)
    ours = encode(model, bert_tokenizer, TEXTS, show_progress=False)
    np.testing.assert_allclose(embeddings, ours, rtol=0, atol=1e-6)


@pytest.mark.parametrize("similarity", ["cosine", "dot", "mlp"])
def test_similarity_function_is_that_of_the_model(tmp_path, make_model, bert_tokenizer, similarity):
    model = make_model(similarity=similarity)
    loaded = SentenceTransformer(str(export_model(model, bert_tokenizer, tmp_path / "model")), device="cpu")
    vectors = torch.from_numpy(embed_alone(model, bert_tokenizer))
    if similarity != "dot":
        vectors = torch.nn.functional.normalize(vectors, dim=-1)
    embeddings = loaded.encode(TEXTS)
    torch.testing.assert_close(loaded.similarity(embeddings, embeddings), vectors @ vectors.T, rtol=0, atol=1e-5)


def test_files_equal_those_written_by_sentence_transformers(tmp_path, make_model, bert_tokenizer):
    folder = export_model(make_model(DseModel), bert_tokenizer, tmp_path / "ours")
    transformer = Transformer(
        str(folder),
        modality_config={"text": {"method": "forward", "method_output_name": "pooler_output"}},
        module_output_name="sentence_embedding",
    )
    theirs = tmp_path / "theirs"
    SentenceTransformer(modules=[transformer], similarity_fn_name="cosine", device="cpu").save(str(theirs))
    assert set(os.listdir(theirs)) == set(os.listdir(folder))
    for name in ("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json", "config.json"):
        written, expected = (json.loads((place / name).read_text()) for place in (folder, theirs))
        # Our files name the oldest supported version, and the requirements of the code.
        if name == "config_sentence_transformers.json":
            assert written.pop("requirements") == {"transformers": ">=5.20"}
            expected["__version__"]["sentence_transformers"] = written["__version__"]["sentence_transformers"]
        assert written == expected, name


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
    assert loaded.max_seq_length == 10
    expected = embed_alone(model, bert_tokenizer, truncation=True, max_length=10)
    np.testing.assert_allclose(loaded.encode(TEXTS), expected, rtol=0, atol=1e-6)
    # Only in sentence-transformers: the limit of transformers is that of the model.
    assert loaded.tokenizer.model_max_length == 10
    assert json.loads((tmp_path / "model" / "tokenizer_config.json").read_text())["model_max_length"] == 64


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
