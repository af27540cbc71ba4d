# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Third-party programs and libraries work with checkpoints of hf-dse: the real ones, on a tiny model."""

import itertools
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    pipeline,
)

from hf_dse import DseModel, convert_encoder, evaluate, export, make_pair_model


ENCODERS = {
    "bert": {"linformer_projection": "learned"},
    "modernbert": {"model_type": "modernbert", "local_attention": 8, "global_attn_every_n_layers": 2},
}

# From one token to far above k = 8, up to the limit of 64.
TEXTS = [
    "cat",
    "a dog ran on the mat",
    "the old house is in the new house",
    "the cat and a dog " * 9,
    "new",
    "is 1 + 1 = 2?",
]
# Sentences of similar length are similar.
COMBINATIONS = list(itertools.combinations(TEXTS, 2))
PAIRS = {
    "sentence1": [first for first, _ in COMBINATIONS],
    "sentence2": [second for _, second in COMBINATIONS],
    "label": [5 * min(map(len, pair)) / max(map(len, pair)) for pair in COMBINATIONS],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, bert_tokenizer, save_bert):
    """The exported student with a pair head that `hf-dse distill` makes from a BERT."""
    place = tmp_path_factory.mktemp("models")
    encoder = convert_encoder(str(save_bert(place / "bert")), linformer_length=8)
    student = make_pair_model(encoder, num_labels=1, problem_type="regression")
    return str(export(student, place / "dse", bert_tokenizer))


# transformers

# Similar to transformers' run_glue.py: joint tokenization, a plain Trainer, padding by batch.
SCRIPT = """
import json, sys

model_name, data_file, output_dir = sys.argv[1:]
sys.modules["hf_dse"] = sys.modules["modeling"] = None

from datasets import load_dataset
from scipy.stats import pearsonr
from transformers import (
    AutoModelForSequenceClassification, AutoTokenizer, DataCollatorWithPadding, Trainer, TrainingArguments, set_seed
)

set_seed(0)
tokenizer = AutoTokenizer.from_pretrained(model_name, trust_remote_code=True)
model = AutoModelForSequenceClassification.from_pretrained(model_name, num_labels=1, trust_remote_code=True)
data = load_dataset("json", data_files=data_file, split="train")
data = data.map(lambda rows: tokenizer(rows["sentence1"], rows["sentence2"], truncation=True), batched=True)
trainer = Trainer(
    model=model,
    args=TrainingArguments(
        output_dir, num_train_epochs=20, learning_rate=1e-2, per_device_train_batch_size=8, logging_steps=3,
        save_strategy="no", report_to="none", use_cpu=True, disable_tqdm=True,
    ),
    train_dataset=data,
    eval_dataset=data,
    data_collator=DataCollatorWithPadding(tokenizer),
    compute_metrics=lambda output: {"pearson": pearsonr(output.predictions[:, 0], output.label_ids)[0]},
    processing_class=tokenizer,
)
before = trainer.evaluate()
trainer.train()
after = trainer.evaluate()
trainer.save_model()
print(json.dumps([before, after]))
"""


@pytest.mark.slow
def test_a_stock_training_script_for_pairs(folder, tmp_path):
    data_file = tmp_path / "pairs.jsonl"
    Dataset.from_dict(PAIRS).to_json(data_file)
    output = tmp_path / "output"
    process = subprocess.run(
        [sys.executable, "-I", "-c", SCRIPT, folder, str(data_file), str(output)],
        capture_output=True,
        text=True,
        env=os.environ | {"HF_MODULES_CACHE": str(tmp_path / "modules")},
        cwd=tmp_path,
        timeout=600,
    )
    assert process.returncode == 0, process.stderr
    before, after = json.loads(process.stdout.splitlines()[-1])
    assert after["eval_loss"] < 0.8 * before["eval_loss"] and after["eval_pearson"] > before["eval_pearson"]
    # The saved model reproduces the evaluation; here every sentence is encoded separately.
    model = AutoModelForSequenceClassification.from_pretrained(output)
    tokenizer = AutoTokenizer.from_pretrained(output)
    metrics = evaluate(model, Dataset.from_dict(PAIRS), tokenizer, task_name="stsb", show_progress=False)
    assert metrics["pearson"] == pytest.approx(after["eval_pearson"], abs=1e-5)


def test_feature_extraction_pipeline(folder):
    extract = pipeline("feature-extraction", model=folder, device="cpu")
    model = AutoModel.from_pretrained(folder)
    for text, answer in zip(TEXTS, extract(TEXTS, batch_size=4, truncation=True), strict=True):
        with torch.inference_mode():
            expected = model(**extract.tokenizer(text, truncation=True, return_tensors="pt"))
        num_tokens = expected.last_hidden_state.shape[1]
        tokens = torch.tensor(answer[0])[:num_tokens]
        torch.testing.assert_close(tokens, expected.last_hidden_state[0], rtol=0, atol=1e-5)
        torch.testing.assert_close(tokens.mean(dim=0), expected.pooler_output[0], rtol=0, atol=1e-5)
    assert np.shape(extract(TEXTS[0])) == (1, len(extract.tokenizer(TEXTS[0])["input_ids"]), 16)


def pair_batch(tokenizer, size=6):
    encoding = tokenizer(
        PAIRS["sentence1"][:size], PAIRS["sentence2"][:size], padding=True, truncation=True, return_tensors="pt"
    )
    return {**encoding, "labels": torch.tensor(PAIRS["label"][:size])}


# PEFT


PROJECTIONS = {"bert": ["query", "value"], "modernbert": ["Wqkv"]}


@pytest.mark.parametrize("name", ENCODERS)
def test_lora(make_model, bert_tokenizer, tmp_path, name):
    from peft import LoraConfig, PeftModel, get_peft_model

    make_model(**ENCODERS[name]).save_pretrained(tmp_path / "model")

    def load(folder="model"):
        return AutoModelForSequenceClassification.from_pretrained(tmp_path / folder)

    batch = pair_batch(bert_tokenizer)
    # Adapters as after a training.
    options = {"modules_to_save": ["similarity"], "init_lora_weights": False}
    config = LoraConfig(task_type="SEQ_CLS", target_modules=PROJECTIONS[name], **options)
    model = get_peft_model(load(), config).eval()
    with torch.inference_mode():
        logits = model(**batch).logits
        assert (logits - load()(**batch).logits).abs().max() > 1e-2
        model.save_pretrained(tmp_path / "adapter")
        loaded = PeftModel.from_pretrained(load(), tmp_path / "adapter").eval()
        torch.testing.assert_close(loaded(**batch).logits, logits, rtol=0, atol=1e-6)
        # The merged model is a plain model, which can be exported.
        export(loaded.merge_and_unload(), tmp_path / "merged", bert_tokenizer)
        torch.testing.assert_close(load("merged")(**batch).logits, logits, rtol=0, atol=1e-5)


# torch


def token_batch(batch_size, num_tokens, vocab_size=50):
    """Random tokens; all rows but the first are padded."""
    generator = torch.Generator().manual_seed(batch_size * num_tokens)
    ids = torch.randint(5, vocab_size, (batch_size, num_tokens), generator=generator)
    lengths = torch.linspace(num_tokens, 1, batch_size).long()
    mask = (torch.arange(num_tokens) < lengths[:, None]).long()
    return {"input_ids": ids * mask, "attention_mask": mask, "token_type_ids": torch.zeros_like(mask)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("encoder", "shapes"),
    [
        ("bert", [(1, 2), (3, 5), (2, 8), (4, 9), (1, 64), (7, 33)]),
        # With windows the program checks that there are two texts, and three blocks of 64 tokens.
        ("modernbert", [(2, 129), (3, 150), (7, 200)]),
    ],
)
def test_torch_export(make_model, encoder, shapes):
    model = make_model(DseModel, max_position_embeddings=200, **ENCODERS[encoder])
    axes = {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}
    batch = token_batch(2, 140)
    program = torch.export.export(model, (), kwargs=batch, dynamic_shapes=dict.fromkeys(batch, axes)).module()
    with torch.inference_mode():
        for shape in shapes:
            batch = token_batch(*shape)
            expected, actual = model(**batch).pooler_output, program(**batch).pooler_output
            torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5)


# Servers


def test_servers_are_told_to_keep_the_attention():
    # vLLM asks this before it puts its own attention, over all tokens, into a model of transformers.
    assert not DseModel.is_backend_compatible()


# MTEB


@pytest.mark.slow
def test_mteb(folder, tmp_path, bert_tokenizer):
    import mteb
    from mteb.models import SentenceTransformerEncoderWrapper
    from mteb.tasks import STSBenchmarkSTS

    pairs = Dataset.from_dict(PAIRS)
    pairs.rename_column("label", "score").to_parquet(tmp_path / "data" / "test.parquet")

    class LocalSTS(STSBenchmarkSTS):
        metadata = STSBenchmarkSTS.metadata.model_copy(
            update={"name": "LocalSTS", "dataset": {"path": str(tmp_path / "data"), "revision": "1"}}
        )

    model = SentenceTransformerEncoderWrapper(folder, trust_remote_code=True, device="cpu")
    results = mteb.evaluate(model, LocalSTS(), cache=mteb.ResultCache(tmp_path / "cache"), show_progress_bar=False)
    # A model without a name would get results of mteb's cache.
    assert results.model_name == folder
    scores = results.task_results[0].scores["test"][0]
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    metrics = evaluate(model, pairs, bert_tokenizer, task_name="stsb", show_progress=False)
    # The head of a cosine is linear, so its logits and the cosines have the same correlations.
    assert scores["cosine_pearson"] == pytest.approx(metrics["pearson"], abs=1e-4)
    assert scores["cosine_spearman"] == pytest.approx(metrics["spearman"], abs=1e-4)
    assert scores["main_score"] == scores["cosine_spearman"]
