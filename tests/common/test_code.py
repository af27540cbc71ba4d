# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""A checkpoint whose code differs from that of this package, which is used in its place, is named in a warning."""

import shutil

import pytest
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from hf_dse import export
from hf_dse.common.code import other_code
from hf_dse.convert.student import CODE_FILES, load_dse_model
from hf_dse_cli import main


@pytest.fixture
def folder(make_model, bert_tokenizer, tmp_path):
    return export(make_model(), tmp_path / "theirs", bert_tokenizer)


def search(folder):
    (folder.parent / "texts.txt").write_text("a cat\na dog\n")
    words = ["search", "--model", str(folder), "--corpus", str(folder.parent / "texts.txt"), "--query", "cat"]
    assert main([*words, "--index_dir", str(folder.parent / "index")]) == 0


WAYS = {
    "AutoModel": lambda folder: AutoModel.from_pretrained(folder, trust_remote_code=True),
    "with its head": lambda folder: AutoModelForSequenceClassification.from_pretrained(folder),
    "SentenceTransformer": lambda folder: SentenceTransformer(str(folder), trust_remote_code=True, device="cpu"),
    "load_dse_model": lambda folder: load_dse_model(str(folder)),
    "hf-dse search": search,
}


@pytest.mark.parametrize("load", WAYS.values(), ids=list(WAYS))
def test_other_code_is_named(folder, warnings, load):
    load(folder)
    assert warnings == []
    code = folder / "modeling_dse.py"
    code.write_text(code.read_text() + "\nprint('another version')\n")
    load(folder)
    (message,) = warnings
    assert message.startswith(f"{folder} has other code than this version of hf-dse") and "`hf-dse export`" in message
    assert "used: modeling_dse.py. Its vectors may differ" in message


def test_the_remedy_of_the_warning(folder, warnings, tmp_path):
    (folder / "attention_dse.py").write_text("")
    assert main(["export", "--model", str(folder), "--output_dir", str(tmp_path / "ours")]) == 0
    assert "attention_dse.py" in warnings.pop() and not warnings
    WAYS["AutoModel"](tmp_path / "ours")
    assert not warnings


def test_what_is_no_difference(folder, warnings):
    for name, end in zip(CODE_FILES, (b"\r\n", b"\r", b"\n", None), strict=True):
        lines = (folder / name).read_bytes().splitlines()
        (folder / name).unlink() if end is None else (folder / name).write_bytes(end.join(lines))
    (folder / "mine.py").write_text("print('beside it')\n")
    assert other_code(folder) == []
    WAYS["AutoModel"](folder)
    AutoTokenizer.from_pretrained(folder)
    assert not warnings


def test_code_in_the_cache_of_the_hub(folder, tmp_path, warnings):
    """Nothing is fetched for it, and each commit has its own code."""
    commits = {"1" * 40: "", "2" * 40: "print('another version')\n", "3" * 40: None}
    for commit, added in commits.items():
        snapshot = tmp_path / "cache" / "models--user--model" / "snapshots" / commit
        shutil.copytree(folder, snapshot)
        code = snapshot / "pairs_dse.py"
        code.unlink() if added is None else code.write_text(code.read_text() + added)
    for commit, added in commits.items():
        assert other_code("user/model", revision=commit, cache_dir=tmp_path / "cache") == ["pairs_dse.py"] * bool(
            added
        )
        AutoModel.from_pretrained("user/model", revision=commit, cache_dir=tmp_path / "cache")
    assert len(warnings) == 1 and warnings[0].startswith("user/model has other code")
