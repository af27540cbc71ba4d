# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`DseForSequenceClassification`: splitting pairs, similarities, losses, and the text-classification pipeline."""

import pytest
import torch
from reference import pair_logits
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast, pipeline

from hf_dse.modeling import DseConfig, DseForSequenceClassification, DsePairOutput


WORDS = "the a cat dog sat ran on under mat rug big small old new red house and then slept all day".split()

# How families of tokenizers write a pair, and whether they give token types.
FAMILIES = {
    "bert": {"cls": "[CLS]", "sep": "[SEP]", "pad": "[PAD]", "separators": 1, "token_types": True},
    "distilbert": {"cls": "[CLS]", "sep": "[SEP]", "pad": "[PAD]", "separators": 1, "token_types": False},
    "roberta": {"cls": "<s>", "sep": "</s>", "pad": "<pad>", "separators": 2, "token_types": False},
}

PAIRS = [
    ("the cat sat on the mat", "a dog ran"),
    ("old dog", "the big red dog slept under the small old house all day and then ran"),
    ("new house", "new house"),
    ("cat", "dog"),
]


def make_tokenizer(family, padding_side="right"):
    names = FAMILIES[family]
    cls, sep, pad = names["cls"], names["sep"], names["pad"]
    vocab = {token: i for i, token in enumerate([pad, cls, sep, "[UNK]", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    segment = 1 if names["token_types"] else 0
    between = " ".join([f"{sep}:0"] * names["separators"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{cls}:0 $A:0 {sep}:0",
        pair=f"{cls}:0 $A:0 {between} $B:{segment} {sep}:{segment}",
        special_tokens=[(cls, vocab[cls]), (sep, vocab[sep])],
    )
    inputs = ["input_ids", "attention_mask"] + ["token_type_ids"] * names["token_types"]
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        cls_token=cls,
        sep_token=sep,
        pad_token=pad,
        unk_token="[UNK]",
        padding_side=padding_side,
        model_input_names=inputs,
        model_max_length=24,
    )


def make_model(family="bert", dtype=torch.float64, **overrides):
    torch.manual_seed(0)
    fields = {
        "vocab_size": 32,
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 12,
        "max_position_embeddings": 24,
        "linformer_length": 5,
        "pad_token_id": 0,
        "cls_token_id": 1,
        "sep_token_id": 2,
        "num_pair_separators": FAMILIES[family]["separators"],
        "similarity": "mlp",
        "similarity_hidden_size": 7,
        "num_labels": 1,
        "problem_type": "regression",
    }
    model = DseForSequenceClassification(DseConfig(**{**fields, **overrides}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model.to(dtype).eval()


def pair_batch(tokenizer):
    first, second = zip(*PAIRS, strict=True)
    return tokenizer(first, second, padding=True, return_tensors="pt")


def split_by_the_tokenizer(encoding, row):
    """The ids of the two sentences' own tokens, as the tokenizer itself attributes them."""
    ids, sentences = encoding["input_ids"][row].tolist(), encoding.sequence_ids(row)
    return [[i for i, sentence in zip(ids, sentences, strict=True) if sentence == wanted] for wanted in (0, 1)]


def encode_apart(tokenizer, encoding):
    """The batch `(batch, 2, seq)` of the two sentences, each with its own opening and closing token."""
    rows = []
    for row in range(len(encoding["input_ids"])):
        for sentence in split_by_the_tokenizer(encoding, row):
            rows.append([tokenizer.cls_token_id, *sentence, tokenizer.sep_token_id])
    longest = max(len(ids) for ids in rows)
    padded = torch.tensor([ids + [0] * (longest - len(ids)) for ids in rows])
    mask = torch.tensor([[1] * len(ids) + [0] * (longest - len(ids)) for ids in rows])
    return {"input_ids": padded.view(-1, 2, longest), "attention_mask": mask.view(-1, 2, longest)}


def assert_split(model, tokenizer, first, second, **kwargs):
    encoding = tokenizer(first, second, padding=True, return_tensors="pt", **kwargs)
    assert ("token_type_ids" in encoding) == ("token_type_ids" in tokenizer.model_input_names)
    actual = model(**encoding).logits
    expected = model(**encode_apart(tokenizer, encoding)).logits
    assert actual.shape == (len(first), model.config.num_labels)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-10)


# Splitting


@pytest.mark.parametrize("padding_side", ["right", "left"])
@pytest.mark.parametrize("family", FAMILIES)
def test_pairs_are_split(family, padding_side):
    model, tokenizer = make_model(family), make_tokenizer(family, padding_side)
    assert_split(model, tokenizer, *zip(*PAIRS, strict=True))
    for first, second in PAIRS:
        assert_split(model, tokenizer, [first], [second])


@pytest.mark.parametrize("family", FAMILIES)
def test_truncated_pairs(family):
    long = "the big red dog slept under the small old house"
    model, tokenizer = make_model(family), make_tokenizer(family)
    for max_length in (9, 11):
        options = {"truncation": True, "max_length": max_length}
        assert_split(model, tokenizer, [long, long], [long, "new cat"], **options)


@pytest.mark.parametrize("padding_side", ["right", "left"])
@pytest.mark.parametrize("family", FAMILIES)
def test_empty_sentences(family, padding_side):
    model, tokenizer = make_model(family), make_tokenizer(family, padding_side)
    assert_split(model, tokenizer, ["the cat sat", "a dog"], ["", "the old dog slept"])
    assert_split(model, tokenizer, ["the cat sat on the mat"], [""])
    assert_split(model, tokenizer, ["", "a dog ran"], ["the old dog slept", ""])
    assert_split(model, tokenizer, [""], [""])


@pytest.mark.parametrize("family", FAMILIES)
def test_batch_of_two_sentences_apart(family):
    """Inputs of shape `(batch, 2, seq)` are what the tokenizer gives for each sentence alone."""
    model, tokenizer = make_model(family), make_tokenizer(family)
    joint = model(**pair_batch(tokenizer)).logits
    interleaved = [sentence for pair in PAIRS for sentence in pair]
    apart = tokenizer(interleaved, padding=True, return_tensors="pt")
    apart = {name: tensor.view(len(PAIRS), 2, -1) for name, tensor in apart.items()}
    torch.testing.assert_close(model(**apart).logits, joint, rtol=0, atol=1e-10)


def test_literal_separators_in_the_text():
    first, second = ["the cat [SEP] sat on", "dog"], ["a [SEP] dog [SEP]", "cat [SEP] mat"]
    tokenizer = make_tokenizer("bert")
    # The tokenizer attributes special tokens to no sentence, so the expected split goes by token types here.
    encoding = tokenizer(first, second, padding=True, return_tensors="pt")
    assert (encoding["input_ids"] == tokenizer.sep_token_id).sum() == 8
    apart = tokenizer(
        [text for pair in zip(first, second, strict=True) for text in pair], padding=True, return_tensors="pt"
    )
    apart = {name: tensor.view(2, 2, -1) for name, tensor in apart.items()}
    model = make_model("bert")
    torch.testing.assert_close(model(**encoding).logits, model(**apart).logits, rtol=0, atol=1e-10)


@pytest.mark.parametrize("family", ["distilbert", "roberta"])
@pytest.mark.parametrize("sentence", [0, 1])
def test_literal_separators_without_token_types(family, sentence):
    tokenizer = make_tokenizer(family)
    pairs = [["the cat sat", "a dog ran"], ["the cat sat", "a dog ran"]]
    pairs[1][sentence] = f"the cat {tokenizer.sep_token} sat"
    encoding = tokenizer(*map(list, zip(*pairs, strict=True)), padding=True, return_tensors="pt")
    with pytest.raises(ValueError, match="separator|sep_token"):
        make_model(family)(**encoding)


def test_sentence_with_literal_separators_is_no_pair():
    """Three separators, as in a pair, but no two of them between the sentences."""
    encoding = make_tokenizer("roberta")(["the cat </s> sat </s> on"], return_tensors="pt")
    with pytest.raises(ValueError, match="separator|sep_token"):
        make_model("roberta")(**encoding)


@pytest.mark.parametrize("family", FAMILIES)
def test_only_one_sentence(family):
    model, tokenizer = make_model(family), make_tokenizer(family)
    with pytest.raises(ValueError, match=r"(?s)(pair|second|two).*tokenizer\("):
        model(**tokenizer(["the cat sat", "a dog"], padding=True, return_tensors="pt"))


def test_pairs_of_embeddings():
    model, tokenizer = make_model(), make_tokenizer("bert", padding_side="left")
    batch = pair_batch(tokenizer)
    expected = model(**batch).logits
    embeds = model.dse.get_input_embeddings()(batch.pop("input_ids"))
    # The second sentence opens with the embedding of the pair's first token, [CLS].
    torch.testing.assert_close(model(inputs_embeds=embeds, **batch).logits, expected, rtol=0, atol=1e-10)
    with pytest.raises(ValueError, match="token_type_ids"):
        model(inputs_embeds=embeds, attention_mask=batch["attention_mask"])


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_pair_longer_than_the_model(family):
    """Two sentences that fit one by one are fine; one that does not is refused."""
    model, tokenizer = make_model(family), make_tokenizer(family)
    fits, too_long = " ".join(["cat"] * 20), " ".join(["cat"] * 30)
    assert_split(model, tokenizer, [fits], [fits])
    with pytest.raises(ValueError, match="max_position_embeddings"):
        model(**tokenizer([fits], [too_long], return_tensors="pt"))


# Similarities


@pytest.mark.parametrize("num_labels", [1, 2, 3])
@pytest.mark.parametrize("similarity", ["cosine", "dot", "mlp"])
@pytest.mark.parametrize("normalize", [True, False])
def test_similarity(normalize, similarity, num_labels):
    problem_type = "regression" if num_labels == 1 else "single_label_classification"
    model = make_model(
        similarity=similarity,
        num_labels=num_labels,
        problem_type=problem_type,
        projection_dim=6,
        normalize_embeddings=normalize,
    )
    u, v = torch.randn(2, 5, 6, dtype=torch.float64)
    if similarity != "mlp":
        model.similarity.start.uniform_(-1, 1)
    logits = model.similarity(u, v)
    expected = torch.stack([pair_logits(model.config, model.state_dict(), *pair) for pair in zip(u, v, strict=True)])
    assert logits.shape == (5, num_labels)
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-10)


def test_new_model_ranks_by_cosine():
    """Before training, a higher cosine must already give a higher logit: a converted encoder works at once."""
    torch.manual_seed(0)
    config = make_model().config
    config.similarity = "cosine"
    model = DseForSequenceClassification(config).eval()
    u, v = torch.randn(2, 20, config.embedding_size)
    logits = model.similarity(u, v)[:, 0]
    cosines = torch.nn.functional.cosine_similarity(u, v)
    assert logits.argsort().tolist() == cosines.argsort().tolist()


# Losses


@pytest.mark.parametrize("similarity", ["cosine", "dot", "mlp"])
@pytest.mark.parametrize(
    ("num_labels", "problem_type", "labels", "loss"),
    [
        (1, "regression", [0.0, 2.5, 5.0, 1.0], torch.nn.functional.mse_loss),
        (1, "multi_label_classification", [0, 1, 1, 0], torch.nn.functional.binary_cross_entropy_with_logits),
        (2, "single_label_classification", [0, 1, 1, 0], torch.nn.functional.cross_entropy),
        (3, "single_label_classification", [0, 2, 1, 0], torch.nn.functional.cross_entropy),
    ],
)
def test_loss(similarity, num_labels, problem_type, labels, loss):
    model = make_model(similarity=similarity, num_labels=num_labels, problem_type=problem_type)
    batch = pair_batch(make_tokenizer("bert"))
    labels = torch.tensor(labels)
    outputs = model(**batch, labels=labels)
    if num_labels == 1:
        expected = loss(outputs.logits[:, 0], labels.to(outputs.logits))
    else:
        expected = loss(outputs.logits, labels)
    torch.testing.assert_close(outputs.loss, expected, rtol=0, atol=1e-12, check_dtype=False)
    outputs.loss.backward()
    for name, parameter in model.named_parameters():
        # The softmax forgets key biases, and without pooling layers nothing else is spared.
        if "linformer" in name or "similarity" in name or "word_embeddings" in name:
            assert parameter.grad is not None and parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize(
    ("problem_type", "num_labels", "labels", "needed"),
    [
        ("regression", 1, torch.ones(3), r"numbers of the shape \(4, 1\)"),
        ("regression", 1, torch.ones(4, 2), r"numbers of the shape \(4, 1\)"),
        ("regression", 3, torch.ones(4), r"numbers of the shape \(4, 3\)"),
        # A problem type that an earlier training left.
        ("multi_label_classification", 3, torch.tensor([0, 2, 1, 0]), r"numbers of the shape \(4, 3\)"),
        ("single_label_classification", 3, torch.ones(4), "one class from 0 to 2 for each of 4 pairs, as integers"),
        ("single_label_classification", 3, torch.ones(4, 3), "one class from 0 to 2"),
    ],
)
def test_labels_that_do_not_fit_are_refused(problem_type, num_labels, labels, needed):
    """One label for two pairs, say, would count for both."""
    model = make_model(problem_type=problem_type, num_labels=num_labels, similarity="cosine").train()
    before = model.config.to_dict()
    batch = pair_batch(make_tokenizer("bert"))
    with pytest.raises(ValueError, match=f"{needed}.*, got {labels.dtype} of the shape .* load the model with"):
        model(**batch, labels=labels)
    assert model.config.to_dict() == before


def test_outputs_carry_the_embeddings():
    model, tokenizer = make_model(), make_tokenizer("bert")
    batch = pair_batch(tokenizer)
    outputs = model(**batch, labels=torch.zeros(4, dtype=torch.float64))
    assert list(outputs) == ["loss", "logits", "embeddings"] and model(**batch).loss is None
    texts = [text for pair in PAIRS for text in pair]
    expected = model.dse(**tokenizer(texts, padding=True, return_tensors="pt")).pooler_output
    torch.testing.assert_close(outputs.embeddings, expected.unflatten(0, (4, 2)), rtol=0, atol=1e-10)
    torch.testing.assert_close(model.similarity(*outputs.embeddings.unbind(1)), outputs.logits, rtol=0, atol=0)
    # `torch.nn.DataParallel` puts outputs of several devices together in this way.
    joint = type(outputs)((name, torch.cat([outputs[name]] * 2)) for name in ("logits", "embeddings"))
    assert isinstance(joint, DsePairOutput) and joint.loss is None and joint.embeddings.shape == (8, 2, 8)


# In use


@pytest.mark.parametrize("family", FAMILIES)
def test_text_classification_pipeline(family):
    model = make_model(family, dtype=torch.float32, num_labels=3, problem_type="single_label_classification")
    tokenizer = make_tokenizer(family)
    classify = pipeline("text-classification", model=model, tokenizer=tokenizer, device="cpu")
    answers = classify([{"text": first, "text_pair": second} for first, second in PAIRS], top_k=None, batch_size=2)
    expected = model(**pair_batch(tokenizer)).logits.softmax(-1)
    for answer, probabilities in zip(answers, expected, strict=True):
        scores = {entry["label"]: entry["score"] for entry in answer}
        assert scores == pytest.approx({f"LABEL_{i}": p.item() for i, p in enumerate(probabilities)}, abs=1e-5)


@pytest.mark.parametrize("similarity", ["cosine", "dot", "mlp"])
def test_save_and_load(tmp_path, similarity):
    model = make_model(dtype=torch.float32, similarity=similarity)
    model.save_pretrained(tmp_path)
    loaded, info = DseForSequenceClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    batch = pair_batch(make_tokenizer("bert"))
    torch.testing.assert_close(loaded(**batch).logits, model(**batch).logits, rtol=0, atol=0)
