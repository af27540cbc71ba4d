# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Tiny rerankers, one token per word."""

import pytest
import torch
from sentence_transformers import CrossEncoder
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertTokenizer,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)


WORDS = [f"word{number}" for number in range(40)]

# The template of a reranker: what a prompt asks for, then the query and the document.
TEMPLATE = (
    "{% set ns = namespace(task='find') %}{% for m in messages if m.role == 'system' %}"
    "{% set ns.task = m.content if m.content is string else m.content[0].text %}{% endfor %}"
    "<|im_start|>user\n<Instruct>: {{ ns.task }}\n{% for m in messages if m.role != 'system' %}"
    "<{{ m.role }}>: {{ m.content if m.content is string else m.content[0].text }}\n{% endfor %}"
    "<|im_end|>\n<|im_start|>assistant\n"
)


@pytest.fixture(scope="session")
def word_tokenizer():
    """Makes a tokenizer with one token for each word, which reads 32 tokens."""

    def make(**settings):
        tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
        vocab = {token: number for number, token in enumerate(tokens)}
        return BertTokenizer(vocab, model_max_length=32, **settings)

    return make


@pytest.fixture
def save_teacher(tmp_path, word_tokenizer):
    """Saves a tiny classifier with its tokenizer, and returns the folder."""

    def save(name="teacher", num_labels=1, seed=0, tokenizer=None, **fields):
        torch.manual_seed(seed)
        sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
        sizes |= {"vocab_size": 45, "max_position_embeddings": 32, "initializer_range": 0.5}
        config = BertConfig(**sizes, num_labels=num_labels, **fields)
        BertForSequenceClassification(config).save_pretrained(tmp_path / name)
        (tokenizer or word_tokenizer()).save_pretrained(tmp_path / name)
        return str(tmp_path / name)

    return save


@pytest.fixture(scope="session")
def language_model(tmp_path_factory):
    """The folder of a `CrossEncoder` of a causal language model with a template, a prompt and `LogitScore`."""
    folder = tmp_path_factory.mktemp("lm")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE({letter: number for number, letter in enumerate(alphabet)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<|endoftext|>", eos_token="<|im_end|>", model_max_length=512
    )
    tokenizer.add_tokens(["<|im_start|>", "<Instruct>", "yes", "no", *WORDS])
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder / "source")
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=512,
        initializer_range=0.3,
        pad_token_id=tokenizer.pad_token_id,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder / "source")
    prompts = {"web": "which document answers the query?"}
    model = CrossEncoder(str(folder / "source"), device="cpu", prompts=prompts, default_prompt_name="web")
    model.save_pretrained(str(folder / "model"))
    return str(folder / "model")


@pytest.fixture
def raw():
    """Scores one pair at a time with sentence-transformers, without sigmoid."""

    def score(model, pairs):
        model = CrossEncoder(model, device="cpu") if isinstance(model, str) else model
        options = {"activation_fn": torch.nn.Identity(), "show_progress_bar": False}
        return [model.predict([pair], **options)[0].tolist() for pair in pairs]

    return score


@pytest.fixture
def count_pairs(monkeypatch):
    """The number of pairs in each batch that any reranker scores from now on, without those of its own checks."""
    from hf_dse.teacher import score

    seen, raw_logits = [], score.raw_logits

    def count(model, pairs, *options):
        seen.append(len(pairs))
        return raw_logits(model, pairs, *options)

    monkeypatch.setattr(score, "raw_logits", count)
    return seen
