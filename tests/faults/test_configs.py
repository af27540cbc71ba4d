# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Configs with impossible values, through the constructor and through config.json, and damaged model folders."""

import json
from random import Random

import pytest
import torch
from bad_input import TINY, attempt, copy_of, mutate, no_hang, refuse, run
from counting import tried
from huggingface_hub.errors import StrictDataclassError
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModel

from hf_dse import DseConfig, DseModel, load_model
from hf_dse.inference.loading import ModelArguments


FUZZ = settings(max_examples=150, deadline=None, derandomize=True, database=None)
LONG = settings(max_examples=1500, deadline=None, derandomize=True, database=None)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_attention_heads": 0}, "`num_attention_heads` must be at least 1, got 0"),
        ({"num_attention_heads": -2}, "`num_attention_heads` must be at least 1"),
        ({"num_attention_heads": None}, "'num_attention_heads' expected int, got NoneType"),
        ({"hidden_size": 0}, "`hidden_size` must be at least 1"),
        ({"hidden_size": 16.0}, "'hidden_size' expected int, got float"),
        ({"vocab_size": -1}, "`vocab_size` must be at least 1"),
        ({"intermediate_size": 0}, "`intermediate_size` must be at least 1"),
        ({"similarity_hidden_size": 0}, "`similarity_hidden_size` must be at least 1"),
        ({"num_labels": 0}, "`num_labels` must be from 1 to 100000, got 0"),
        ({"num_labels": 10**9}, "`num_labels` must be from 1 to 100000"),
        ({"num_labels": "x"}, "`num_labels` must be from 1 to 100000, got 'x'"),
        ({"num_hidden_layers": 0}, "`num_hidden_layers` must be from 1 to 1000, got 0"),
        ({"num_hidden_layers": 10**9}, "`num_hidden_layers` must be from 1 to 1000, got 1000000000"),
        ({"hidden_act": "bogus"}, "`hidden_act` must be one of gelu, .*got 'bogus'"),
        ({"hidden_dropout_prob": 2.0}, "`hidden_dropout_prob` must be from 0 to 1, got 2.0"),
        (
            {"attention_probs_dropout_prob": float("nan")},
            "`attention_probs_.* must be from 0 to 1, got nan",
        ),
        ({"layer_norm_eps": -1.0}, "`layer_norm_eps` must be a finite number of at least 0"),
        ({"initializer_range": float("inf")}, "`initializer_range` must be a finite number of at least 0"),
        ({"type_vocab_size": -1}, "`type_vocab_size` must be a finite number of at least 0"),
        ({"pad_token_id": 10**6}, "`pad_token_id` must be from 0 to `vocab_size` - 1, got 1000000"),
        ({"pad_token_id": -5}, "`pad_token_id` must be from 0"),
    ],
    ids=str,
)
def test_impossible_numbers(fields, message):
    with no_hang(5), pytest.raises((ValueError, StrictDataclassError), match=message):
        DseConfig(**fields)


def commands(folder, tmp_path):
    """What loads a model: as a student, as an encoder to convert, and as a teacher."""
    texts = folder.parent / "texts.txt"
    yield "dse", ["encode", "--input", texts, "--output", tmp_path / "o.npy"]
    yield "bert", ["convert", "--output_dir", tmp_path / "converted"]
    data = ["--num_labels", "1", "--train_file", folder.parent / "pairs.jsonl", "--split", "train"]
    yield "teacher", ["score", *data, "--output_file", tmp_path / "scored.jsonl"]


def refused_by_all(good, tmp_path, pattern, change):
    """Every kind of model folder with a change is refused, by the command that loads it."""
    for name, (command, *options) in commands(good / "dse", tmp_path):
        folder = copy_of(good / name, tmp_path / name)
        change(folder)
        refuse(pattern, command, "--model_name_or_path", folder, *options)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("null", "config.json has to hold an object, and it holds a NoneType"),
        ("[]", "config.json has to hold an object, and it holds a list"),
        ("", "config.json is not valid JSON: Expecting value"),
        ('{"model_type": "d', "config.json is not valid JSON"),
        ("[" * 100_000, "config.json is not valid JSON: .*nested too deeply"),
        (b"\xff\x00", "config.json: not a text in UTF-8"),
    ],
    ids=["null", "list", "empty", "cut", "nested", "bytes"],
)
def test_a_config_file_that_is_none(good, tmp_path, content, message):
    content = content.encode() if isinstance(content, str) else content
    refused_by_all(good, tmp_path, message, lambda folder: (folder / "config.json").write_bytes(content))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_attention_heads": 0}, "ZeroDivisionError|`num_attention_heads` must be at least 1"),
        ({"num_attention_heads": None}, "expected int, got NoneType"),
        ({"num_labels": "x", "id2label": None}, "as an integer|`num_labels` must be from 1 to 100000, got 'x'"),
        ({"num_labels": 10**9}, "has 1,000,000,000 labels by its config.json; 100,000 are the most"),
        ({"id2label": "x"}, "'str' object has no attribute 'items'"),
        ({"id2label": {"a": "b"}}, "invalid literal for int"),
        ({"hidden_act": "bogus"}, "'bogus'"),
        ({"hidden_size": 32}, "its weights have other sizes than its config.json says"),
        ({"vocab_size": 10}, "its weights have other sizes than its config.json says"),
        ({"hidden_size": -16}, "negative dimension|must be at least 1"),
        ({"num_hidden_layers": 10**9}, "1,?000,?000,?000"),
        ({"max_position_embeddings": 10**12}, "its weights have other sizes|can't allocate memory"),
        ({"pad_token_id": 10**6}, "Padding_idx must be within|`pad_token_id` must be"),
        ({"model_type": "x"}, "custom code which must be executed|does not recognize this architecture"),
    ],
    ids=str,
)
def test_a_config_file_with_wrong_values(good, tmp_path, fields, message):
    def change(folder):
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **fields}))

    refused_by_all(good, tmp_path, f"{tmp_path}.*({message})", change)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dtype": "bogus"}, "module 'torch' has no attribute 'bogus'"),
        ({"dtype": 3}, "'int' object has no attribute"),
        # These weights would be random, and the embeddings noise.
        ({"projection_dim": 8}, "lacks 2 weights of its architecture, such as `projection.bias`"),
        ({"pooling_layers": 2}, "lacks 2 weights of its architecture, such as `projection.bias`"),
        ({"projection_dim": 10**13}, "can't allocate memory"),
        ({"linformer_length": 10**12}, "its weights have other sizes"),
        ({"linformer_length": [8]}, "`linformer_length` lists 1 projected lengths for 2 layers"),
        ({"layer_types": ["x"] * 2}, "`layer_types` has"),
        ({"prompts": {"query": 3}}, "prompts"),
        ({"position_extension": "tile"}, "`original_max_position_embeddings`, at least 2"),
    ],
    ids=str,
)
def test_a_config_file_of_a_student_with_wrong_values(good, tmp_path, fields, message):
    config = json.loads((good / "dse" / "config.json").read_text())
    folder = copy_of(good / "dse", tmp_path / "dse", config_json=json.dumps({**config, **fields}))
    options = ["--input", good / "texts.txt", "--output", tmp_path / "o.npy"]
    refuse(message, "encode", "--model_name_or_path", folder, *options)


@pytest.mark.parametrize("kind", ["empty", "garbage", "cut", "cut in the header", "zeros"])
def test_damaged_weights(good, tmp_path, kind):
    def change(folder):
        content = (folder / "model.safetensors").read_bytes()
        damaged = {"empty": b"", "garbage": b"garbage" * 99, "cut": content[: len(content) // 2], "zeros": bytes(100)}
        (folder / "model.safetensors").write_bytes(damaged.get(kind, content[:20]))

    refused_by_all(good, tmp_path, f"{tmp_path}.* cannot be loaded, .*SafetensorError", change)


@pytest.mark.parametrize("content", ["{}", "null", "[]", "", '{"version"', '{"model": {}}'])
def test_damaged_tokenizers(good, tmp_path, content):
    def change(folder):
        (folder / "tokenizer.json").write_text(content)

    refused_by_all(good, tmp_path, f"{tmp_path}.* cannot be loaded, for its files are damaged", change)


def test_the_tokenizer_of_another_model(good, tmp_path):
    """Its ids are no rows of the embeddings."""

    def change(folder):
        tokenizer = json.loads((folder / "tokenizer.json").read_text())
        tokenizer["model"]["vocab"] |= {"plane": 123, "fly": 124}
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))

    refused_by_all(good, tmp_path, "The tokenizer has 125 tokens, but .* has embeddings for 123", change)


@pytest.mark.parametrize("content", ["null", "[1]", '"x"', "{", "[]", '{"prompts": [1]}', '[{"type": 3}]'])
@pytest.mark.parametrize(
    "name", ["modules.json", "1_Pooling/config.json", "config_sentence_transformers.json", "sentence_bert_config.json"]
)
def test_damaged_settings_of_sentence_transformers(good, tmp_path, name, content):
    """They are refused, or say nothing that is read."""
    folder = copy_of(good / "bert", tmp_path / "bert")
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(content)
    is_fine = content == {"modules.json": "[]"}.get(name, '{"prompts": [1]}') and "config_s" not in name
    for command in (
        ["encode", "--input", good / "texts.txt", "--output", tmp_path / "o.npy"],
        ["convert", "--output_dir", tmp_path / "converted"],
    ):
        error = run(command[0], "--model_name_or_path", folder, *command[1:])
        if is_fine:
            assert error == "" or "pooling" in error
        else:
            assert name in error and str(folder) in error


# Any values

NUMBERS = st.sampled_from([-1, 0, 1, 2, 3, 4, 6, 8, 16, 64, 10**9, 2**63, 1.5, -0.5, 0.1, float("nan"), float("inf")])
WORDS = st.sampled_from(["", "x", "gelu", "mean", "max", "cls", "strided", "learned", "conv", "cosine", "mlp", "tile"])
ANY = st.one_of(
    NUMBERS,
    WORDS,
    st.none(),
    st.booleans(),
    st.lists(NUMBERS, max_size=3),
    st.lists(st.sampled_from(["full_attention", "linear_attention", "chunked_attention", "x"]), max_size=3),
    st.dictionaries(WORDS, NUMBERS | WORDS, max_size=2),
)
FIELDS = sorted([*DseConfig.__annotations__, "num_labels"])
CHANGES = st.dictionaries(st.sampled_from(FIELDS), ANY, min_size=1, max_size=3)


def check_config(changes):
    """What is accepted makes a model with finite embeddings."""
    tried()
    with no_hang():
        try:
            config = DseConfig(**{**TINY, **changes})
        except (ValueError, StrictDataclassError):
            return
        sizes = [value for value in (getattr(config, name) for name in FIELDS) if type(value) is int]
        lengths = config.linformer_length if isinstance(config.linformer_length, list) else []
        if max([*sizes, *lengths]) > 1000:
            return
        model = DseModel(config).eval()
        with torch.no_grad():
            outputs = model(torch.arange(min(12, config.vocab_size, config.max_position_embeddings))[None])
        assert outputs[1].isfinite().all()


@FUZZ
@given(changes=CHANGES)
def test_configs_of_any_values(changes):
    check_config(changes)


@pytest.mark.slow
@LONG
@given(changes=CHANGES)
def test_many_configs_of_any_values(changes):
    check_config(changes)


def load(folder, changes):
    tried()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    attempt(load_model, ModelArguments(str(folder)))


@FUZZ
@given(changes=CHANGES)
def test_config_files_of_any_values(good, changes):
    load(copy_of(good / "dse", good / "changed"), changes)


@pytest.mark.slow
@LONG
@given(changes=CHANGES)
def test_many_config_files_of_any_values(good, changes):
    load(copy_of(good / "dse", good / "changed"), changes)


def damage(good, number):
    tried()
    random = Random(number)
    folder = copy_of(good / random.choice(["dse", "bert", "teacher"]), good / "changed")
    names = sorted(path.name for path in folder.iterdir() if path.suffix in (".json", ".safetensors"))
    path = folder / random.choice(names)
    path.write_bytes(mutate(path.read_bytes(), random))
    attempt(load_model, ModelArguments(str(folder)))


def test_damaged_model_folders(good):
    for number in range(60):
        damage(good, number)


@pytest.mark.slow
def test_many_damaged_model_folders(good):
    for number in range(60, 800):
        damage(good, number)


def test_a_good_folder_is_loaded(good):
    """So that the tests above refuse what they mean to refuse."""
    model, _ = load_model(ModelArguments(str(good / "dse")))
    again = AutoModel.from_pretrained(good / "dse")
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), again.parameters(), strict=True))
