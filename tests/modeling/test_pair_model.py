# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`DseForSequenceClassification`: splitting pairs, similarities, losses, and the text-classification pipeline."""

import pytest
import torch
from reference import pair_logits
from transformers import pipeline


PAIRS = [
    ("the cat sat on the mat", "a dog ran"),
    ("old dog", "the new dog sat in the old house and ran"),
    ("new house", "new house"),
    ("cat", "dog"),
]
EMPTY = [("the cat", ""), ("", "a dog"), ("", "")]


@pytest.fixture(params=["bert", "distilbert", "roberta"])
def tokenizer(request, tokenizers):
    """A tokenizer of each way to write a pair."""
    return tokenizers[request.param]


@pytest.fixture
def make(make_model, bert_tokenizer):
    """Makes a model in float64."""

    def make(tokenizer=bert_tokenizer, **fields):
        fields = {"similarity": "mlp", "similarity_hidden_size": 7, "problem_type": "regression", **fields}
        return make_model(tokenizer=tokenizer, **fields).double()

    return make


def pair_batch(tokenizer, pairs=PAIRS, **options):
    return tokenizer(*map(list, zip(*pairs, strict=True)), padding=True, return_tensors="pt", **options)


def encode_apart(tokenizer, pairs):
    """The batch `(batch, 2, seq)` of the two sentences."""
    apart = tokenizer([text for pair in pairs for text in pair], padding=True, return_tensors="pt")
    return {name: tensor.view(len(pairs), 2, -1) for name, tensor in apart.items()}


def split_by_the_tokenizer(tokenizer, encoding):
    """The same, of the tokens that the tokenizer itself attributes to the sentences."""
    rows = []
    for row, ids in enumerate(encoding["input_ids"].tolist()):
        for wanted in (0, 1):
            sentences = zip(ids, encoding.sequence_ids(row), strict=True)
            own = [token for token, sentence in sentences if sentence == wanted]
            rows.append({"input_ids": [tokenizer.cls_token_id, *own, tokenizer.sep_token_id]})
    padded = tokenizer.pad(rows, return_tensors="pt")
    return {name: tensor.unflatten(0, (-1, 2)) for name, tensor in padded.items()}


def assert_split(model, tokenizer, pairs, **options):
    encoding = pair_batch(tokenizer, pairs, **options)
    expected = model(**split_by_the_tokenizer(tokenizer, encoding)).logits
    torch.testing.assert_close(model(**encoding).logits, expected, rtol=0, atol=1e-10)


# Splitting


@pytest.mark.parametrize("padding_side", ["right", "left"])
def test_pairs_are_split(tokenizer, padding_side, make):
    model = make(tokenizer)
    for cut in ({}, {"truncation": True, "max_length": 9}, {"truncation": True, "max_length": 12}):
        assert_split(model, tokenizer, PAIRS + EMPTY, padding_side=padding_side, **cut)
    for pair in PAIRS + EMPTY:
        assert_split(model, tokenizer, [pair])


def test_literal_separators_in_the_text(bert_tokenizer, make):
    # The tokenizer attributes special tokens to no sentence, so the expected split goes by token types here.
    pairs = [("the cat [SEP] sat on", "a [SEP] dog [SEP]"), ("dog", "cat [SEP] mat")]
    encoding = pair_batch(bert_tokenizer, pairs)
    assert (encoding["input_ids"] == bert_tokenizer.sep_token_id).sum() == 8
    model = make()
    expected = model(**encode_apart(bert_tokenizer, pairs)).logits
    torch.testing.assert_close(model(**encoding).logits, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("family", ["distilbert", "roberta"])
def test_literal_separators_without_token_types(family, tokenizers, make):
    tokenizer = tokenizers[family]
    literal = f"the cat {tokenizer.sep_token} sat"
    for pair in ((literal, "a dog ran"), ("a dog ran", literal)):
        with pytest.raises(ValueError, match="separator|sep_token"):
            make(tokenizer)(**pair_batch(tokenizer, [PAIRS[0], pair]))


def test_only_one_sentence(tokenizer, tokenizers, make):
    with pytest.raises(ValueError, match=r"(?s)(pair|second|two).*tokenizer\("):
        make(tokenizer)(**tokenizer(["the cat sat", "a dog"], padding=True, return_tensors="pt"))
    # Three separators, as in a pair, but no two of them between the sentences.
    encoding = tokenizers["roberta"](["the cat </s> sat </s> on"], return_tensors="pt")
    with pytest.raises(ValueError, match="separator|sep_token"):
        make(tokenizers["roberta"])(**encoding)


def test_pairs_of_embeddings(bert_tokenizer, make):
    model = make()
    batch = pair_batch(bert_tokenizer, padding_side="left")
    expected = model(**batch).logits
    embeds = model.dse.get_input_embeddings()(batch.pop("input_ids"))
    # The second sentence opens with the embedding of the pair's first token, [CLS].
    torch.testing.assert_close(model(inputs_embeds=embeds, **batch).logits, expected, rtol=0, atol=1e-10)
    with pytest.raises(ValueError, match="token_type_ids"):
        model(inputs_embeds=embeds, attention_mask=batch["attention_mask"])


def test_pair_longer_than_the_model(tokenizer, make):
    """Two sentences that fit one by one are fine; one that does not is refused."""
    model = make(tokenizer)
    fits, too_long = " ".join("a" * 31), " ".join("a" * 70)
    assert_split(model, tokenizer, [(fits, fits)])
    with pytest.raises(ValueError, match="max_position_embeddings"):
        model(**pair_batch(tokenizer, [(fits, too_long)]))


# Similarities and losses


@pytest.mark.parametrize("num_labels", [1, 3])
@pytest.mark.parametrize("similarity", ["cosine", "dot", "mlp"])
@pytest.mark.parametrize("normalize", [True, False])
def test_similarity(normalize, similarity, num_labels, make):
    fields = {"similarity": similarity, "num_labels": num_labels, "normalize_embeddings": normalize}
    model = make(**fields, projection_dim=6)
    u, v = torch.randn(2, 5, 6, dtype=torch.float64)
    if similarity != "mlp":
        model.similarity.start.uniform_(-1, 1)
    logits = model.similarity(u, v)
    expected = torch.stack([pair_logits(model.config, model.state_dict(), *pair) for pair in zip(u, v, strict=True)])
    assert logits.shape == (5, num_labels)
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("similarity", ["cosine", "mlp"])
@pytest.mark.parametrize(
    ("num_labels", "problem_type", "labels", "loss"),
    [
        (1, "regression", [0.0, 2.5, 5.0, 1.0], torch.nn.functional.mse_loss),
        (1, "multi_label_classification", [0, 1, 1, 0], torch.nn.functional.binary_cross_entropy_with_logits),
        (3, "single_label_classification", [0, 2, 1, 0], torch.nn.functional.cross_entropy),
    ],
)
def test_loss(similarity, num_labels, problem_type, labels, loss, make, bert_tokenizer):
    model = make(similarity=similarity, num_labels=num_labels, problem_type=problem_type)
    labels = torch.tensor(labels)
    outputs = model(**pair_batch(bert_tokenizer), labels=labels)
    targets = labels.to(outputs.logits)[:, None] if num_labels == 1 else labels
    torch.testing.assert_close(outputs.loss, loss(outputs.logits, targets), rtol=0, atol=1e-12, check_dtype=False)
    outputs.loss.backward()
    for name, parameter in model.named_parameters():
        # The softmax forgets key biases, and without pooling layers nothing else is spared.
        if "linformer" in name or "similarity" in name or "word_embeddings" in name:
            assert parameter.grad is not None and parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize(
    ("problem_type", "num_labels", "labels", "needed"),
    [
        ("regression", 1, torch.ones(3), r"numbers of the shape \(4, 1\)"),
        # A problem type that an earlier training left.
        ("multi_label_classification", 3, torch.tensor([0, 2, 1, 0]), r"numbers of the shape \(4, 3\)"),
        ("single_label_classification", 3, torch.ones(4), "one class from 0 to 2 for each of 4 pairs, as integers"),
        # A cross-entropy of such labels may be negative.
        ("single_label_classification", 3, torch.tensor([0, 2, 1, 3]), "within their range, not 0 to 3"),
        ("multi_label_classification", 1, torch.tensor([0.0, 2.0, 1.0, 0.0]), "within their range, not 0 to 2"),
    ],
)
def test_labels_that_do_not_fit_are_refused(problem_type, num_labels, labels, needed, make, bert_tokenizer):
    """One label for two pairs, say, would count for both."""
    model = make(problem_type=problem_type, num_labels=num_labels, similarity="cosine").train()
    before = model.config.to_dict()
    with pytest.raises(ValueError, match=f"{needed}.*, got {labels.dtype} of the shape .* load the model with"):
        model(**pair_batch(bert_tokenizer), labels=labels)
    assert model.config.to_dict() == before


def test_outputs_carry_the_embeddings(bert_tokenizer, make):
    model, batch = make(), pair_batch(bert_tokenizer)
    outputs = model(**batch, labels=torch.zeros(4, dtype=torch.float64))
    assert list(outputs) == ["loss", "logits", "embeddings"] and model(**batch).loss is None
    texts = bert_tokenizer([text for pair in PAIRS for text in pair], padding=True, return_tensors="pt")
    expected = model.dse(**texts).pooler_output
    torch.testing.assert_close(outputs.embeddings, expected.unflatten(0, (4, 2)), rtol=0, atol=1e-10)
    torch.testing.assert_close(model.similarity(*outputs.embeddings.unbind(1)), outputs.logits, rtol=0, atol=0)


@pytest.mark.parametrize("batch_size", [1, 2])
def test_text_classification_pipeline(tokenizer, batch_size, make):
    model = make(tokenizer, num_labels=3, problem_type="single_label_classification").float()
    classify = pipeline("text-classification", model=model, tokenizer=tokenizer, device="cpu")
    pairs = [{"text": first, "text_pair": second} for first, second in PAIRS]
    expected = model(**pair_batch(tokenizer)).logits.softmax(-1)
    for answer, probabilities in zip(classify(pairs, top_k=None, batch_size=batch_size), expected, strict=True):
        scores = {entry["label"]: entry["score"] for entry in answer}
        assert scores == pytest.approx({f"LABEL_{i}": p.item() for i, p in enumerate(probabilities)}, abs=1e-5)
