# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Fetches the common model tests of the installed transformers version into `_suite/<version>/transformers_tests`.

The source distribution of transformers carries these tests, but not all modules that they import. What is missing
concerns exporters, text generation and a table of configuration values; it gets the smallest stand-ins that work.
"""

import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path


SUITE = Path(__file__).parent / "_suite" / version("transformers")
PACKAGE = SUITE / "transformers_tests"

STAND_INS = {
    "__init__.py": "",
    "exporters/__init__.py": "",
    "exporters/test_export.py": "class ExportTesterMixin:\n    pass\n",
    "generation/__init__.py": "",
    "generation/test_utils.py": "class GenerationTesterMixin:\n    pass\n",
    "utils/__init__.py": "",
    # Values other than the defaults, for every argument that all configurations share
    "utils/test_configuration_utils.py": """config_common_kwargs = {
    "return_dict": False,
    "output_hidden_states": True,
    "output_attentions": True,
    "dtype": "float16",
    "chunk_size_feed_forward": 5,
    "architectures": ["BertModel"],
    "id2label": {0: "no", 1: "yes", 2: "maybe"},
    "label2id": {"no": 0, "yes": 1, "maybe": 2},
    "problem_type": "regression",
}
""",
}


def fetch_suite() -> Path:
    """Downloads and unpacks the suite unless it is there, and returns the folder to put on `sys.path`."""
    if (PACKAGE / "__init__.py").exists():
        return SUITE
    requirement = f"transformers=={version('transformers')}"
    print(f"fetching the common model tests of {requirement}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary=:all:", "--dest", folder]
        subprocess.run([*pip, requirement], check=True)
        (archive,) = Path(folder).glob("transformers-*.tar.gz")
        with tarfile.open(archive) as tar:
            for member in tar:
                parts = Path(member.name).parts
                if member.isfile() and len(parts) == 3 and parts[1] == "tests" and parts[2].endswith(".py"):
                    PACKAGE.mkdir(parents=True, exist_ok=True)
                    (PACKAGE / parts[2]).write_bytes(tar.extractfile(member).read())
    # `__init__.py` comes last: it says that the suite is complete.
    for name, text in reversed(STAND_INS.items()):
        path = PACKAGE / name
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
    return SUITE


if __name__ == "__main__":
    print(fetch_suite())
