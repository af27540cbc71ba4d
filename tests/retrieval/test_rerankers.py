# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Loading rerankers: their raw logits whatever the batch, and clear errors for models that would teach noise."""

import pytest
import torch
from sentence_transformers import CrossEncoder
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertForSequenceClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForSequenceClassification,
)

from hf_dse import load_reranker, search
from hf_dse.data.options import PAIR_TASKS
from hf_dse.retrieval.rerankers import check_labels, overhead, raw_logits
from hf_dse.retrieval.sentence_transformer import fingerprint_of


PAIRS = [("word1", "word2"), ("word3 word4 word5", "word6"), ("word7", " ".join(f"word{n}" for n in range(20)))]
SHAPE = {
    "vocab_size": 45,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "initializer_range": 0.5,
}


def single_logits(folder, pairs, **inputs):
    """One pair at a time with transformers."""
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        rows = [model(**tokenizer(*pair, return_tensors="pt", **inputs)).logits[0] for pair in pairs]
    return torch.stack(rows).double()


def save(folder, model, tokenizer):
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def assert_right(reranker, expected):
    torch.testing.assert_close(raw_logits(reranker, PAIRS), expected, rtol=0, atol=1e-5)


def gpt2(folder, **fields):
    """A GPT-2 with a classification head and learned positions, whose tokenizer has no separators."""
    vocab = {"<pad>": 0, "<unk>": 1} | {f"word{number}": number + 2 for number in range(40)}
    backend = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    names = {"pad_token": "<pad>", "unk_token": "<unk>", "padding_side": "left", "model_max_length": 32}
    torch.manual_seed(0)
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32, "vocab_size": 42, "initializer_range": 0.5}
    model = GPT2ForSequenceClassification(GPT2Config(**sizes, num_labels=1, **{"pad_token_id": 0, **fields}))
    return save(folder, model, PreTrainedTokenizerFast(tokenizer_object=backend, **names))


def test_a_language_model_keeps_its_prompt_and_template(language_model, raw):
    reranker = load_reranker(language_model, device="cpu")
    expected = raw(language_model, PAIRS)
    found = raw_logits(reranker, PAIRS)[:, 0]
    torch.testing.assert_close(found, torch.tensor(expected).double(), rtol=0, atol=1e-5)
    # Instruction, template and special tokens.
    rendered = reranker.preprocess([("word1", "word2")], prompt=reranker.prompts["web"])["input_ids"].shape[1]
    assert overhead(reranker) == rendered - 2


def test_a_language_model_orders_what_a_search_finds(language_model, raw, save_bert, tmp_path):
    texts = [text for _, text in PAIRS]
    reranker = CrossEncoder(language_model, device="cpu")
    (hits,) = search(str(save_bert(tmp_path)), ["word1"], texts, reranker=reranker, show_progress=False)
    expected = raw(language_model, [("word1", hit["text"]) for hit in hits])
    assert [hit["rerank"] for hit in hits] == pytest.approx(expected, abs=1e-4) == sorted(expected, reverse=True)
    assert reranker.tokenizer.padding_side == CrossEncoder(language_model, device="cpu").tokenizer.padding_side


# Scores that would depend on the batch


def test_padding_on_the_left_with_learned_positions(tmp_path):
    folder = gpt2(tmp_path / "left")
    expected = single_logits(folder, PAIRS)
    plain = CrossEncoder(folder, device="cpu")
    # As sentence-transformers scores them.
    assert (raw_logits(plain, PAIRS) - expected).abs().max() > 0.1 * expected.std()
    assert_right(load_reranker(folder, device="cpu"), expected)
    # Of a loaded model a copy is cured, which shares its weights.
    cured = load_reranker(plain)
    assert_right(cured, expected)
    assert (raw_logits(plain, PAIRS) - expected).abs().max() > 0.1 * expected.std()
    assert (plain.tokenizer.padding_side, cured.tokenizer.padding_side) == ("left", "right")
    theirs, ours = ({id(part) for part in model.parameters()} for model in (plain, cured))
    assert theirs == ours


@pytest.mark.parametrize(
    "settings", [{"padding_side": "left"}, {"model_input_names": ["input_ids", "token_type_ids"]}]
)
def test_tokenizers_that_pad_on_the_left_or_give_no_attention_mask(save_teacher, word_tokenizer, settings):
    folder = save_teacher(tokenizer=word_tokenizer(**settings))
    expected = single_logits(folder, PAIRS, return_attention_mask=True)
    assert (raw_logits(CrossEncoder(folder, device="cpu"), PAIRS) - expected).abs().max() > 0.01
    assert_right(load_reranker(folder, device="cpu"), expected)


def test_scores_that_depend_on_the_batch_are_an_error(tmp_path):
    # The model looks for the last token that is not this one, and padding has another id.
    folder = gpt2(tmp_path, pad_token_id=9)
    with pytest.raises(ValueError, match="score of a pair depends on the other pairs of its batch"):
        load_reranker(folder, device="cpu")


def test_token_types_that_the_model_lacks_are_dropped(tmp_path, word_tokenizer):
    torch.manual_seed(0)
    fields = SHAPE | {"type_vocab_size": 1, "num_labels": 1, "max_position_embeddings": 66, "pad_token_id": 0}
    folder = save(tmp_path, RobertaForSequenceClassification(RobertaConfig(**fields)), word_tokenizer())
    with pytest.raises(IndexError):
        raw_logits(CrossEncoder(folder, device="cpu"), PAIRS)
    assert_right(load_reranker(folder, device="cpu"), single_logits(folder, PAIRS, return_token_type_ids=False))


# Limits, labels and identity


def test_the_number_of_logits_has_to_fit_the_task(save_teacher):
    reranker = load_reranker(save_teacher(num_labels=2), device="cpu")
    check_labels(reranker, PAIR_TASKS["mrpc"])
    for task in ("stsb", "mnli"):
        with pytest.raises(ValueError, match=f"The teacher has 2 logits, but task '{task}'"):
            check_labels(reranker, PAIR_TASKS[task])
    reranker = load_reranker(save_teacher("scores", problem_type="regression"), device="cpu")
    check_labels(reranker, PAIR_TASKS["stsb"])
    with pytest.raises(ValueError, match="1 logits of scores, not of classes, but task 'mrpc' has 2"):
        check_labels(reranker, PAIR_TASKS["mrpc"])


def test_what_is_not_a_reranker_is_refused(save_teacher, tmp_path):
    folder = save_teacher()
    model = BertForSequenceClassification.from_pretrained(folder)
    with pytest.raises(TypeError, match="is a BertForSequenceClassification, and has to be a `CrossEncoder`"):
        load_reranker(model)
    # The configuration names a head, and the weights are not there.
    weights = {name: value for name, value in model.state_dict().items() if not name.startswith("classifier")}
    model.save_pretrained(folder, state_dict=weights)
    with pytest.raises(ValueError, match="the checkpoint lacks classifier.bias, classifier.weight, and scores would"):
        load_reranker(folder)


def test_the_longest_pair(save_teacher, tmp_path, word_tokenizer):
    folder = save_teacher()
    assert load_reranker(folder, device="cpu").max_seq_length == 32
    assert load_reranker(folder, device="cpu", max_length=16).max_seq_length == 16
    with pytest.raises(ValueError, match="max_length=33 is above the 32 tokens"):
        load_reranker(folder, device="cpu", max_length=33)
    # Positions of RoBERTa begin after that of the padding.
    config = RobertaConfig(**SHAPE, max_position_embeddings=22, pad_token_id=1, type_vocab_size=1, num_labels=1)
    roberta = save(tmp_path / "roberta", RobertaForSequenceClassification(config), word_tokenizer())
    reranker = load_reranker(roberta, device="cpu")
    assert reranker.max_seq_length == 20
    assert raw_logits(reranker, [("word1", "word2 " * 40)]).isfinite().all()


def test_the_identity_is_that_of_all_that_affects_scores(language_model):
    model = CrossEncoder(language_model, device="cpu")
    names = [fingerprint_of(model)]
    assert fingerprint_of(load_reranker(language_model, device="cpu")) == names[0]
    model[1].true_token_id += 1
    names.append(fingerprint_of(model))
    model.tokenizer.chat_template = model.tokenizer.chat_template.replace("Instruct", "Task")
    names.append(fingerprint_of(model))
    with torch.no_grad():
        model[0].model.model.norm.weight += 1.0
    names.append(fingerprint_of(model))
    assert len(set(names)) == 4
