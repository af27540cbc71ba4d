# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Names of models with their revision."""

from pathlib import Path

from hf_dse.common.hub import source_of, split_revision, weights_of


def test_names_with_a_revision(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert split_revision("user/name@abc") == ("user/name", "abc")
    assert split_revision("name@refs/pr/1") == ("name", "refs/pr/1")
    assert split_revision("user/name") == ("user/name", "main")
    for name in ("user/name@../x", "a/b/c@d"):
        assert split_revision(name) == (name, "main")
    (tmp_path / "models" / "mine@v1").mkdir(parents=True)
    assert split_revision("models/mine@v1") == ("models/mine@v1", "main")
    assert source_of(Path("user/name@abc")) == {
        "pretrained_model_name_or_path": "user/name",
        "revision": "abc",
        "trust_remote_code": False,
    }
    assert weights_of("user/name")["use_safetensors"] is True
