# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
A hook of MkDocs. Pages link to files outside of docs/ by relative paths, such as `../examples`. The site has these
files too, under repository/: pages, sources as pages, lists of folders. README.md is its start, and a list of
FOLDERS is in the place of a link to a public repository.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.structure.files import File, Files


ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(\[[^\]]*\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")
CODE = re.compile(r"(^(```+)[^`].*?^\2$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
NO_SEARCH = "---\nsearch: {exclude: true}\n---\n"
FOLDERS = ("hf_dse", "modeling", "examples", "recipes", "benchmarks", "studies")
# Only in the repository: links to it become text.
LEFT_OUT = {ROOT / "studies" / "notebook.md"}
# Files that are copied as they are; others become pages.
COPIED = (".parquet", ".ipynb")
LANGUAGES = {".py": "python", ".yaml": "yaml", ".sh": "bash", ".cff": "yaml"}

# page of the site -> file or folder of the repository
SOURCES: dict[str, Path] = {}


def in_site(source: Path) -> str:
    """Where the site has a file of the repository."""
    path = source.relative_to(ROOT)
    if path == Path("README.md"):
        return "index.md"
    if path.parts[:1] == ("docs",):
        return path.relative_to("docs").as_posix()
    if source.is_dir():
        path /= "README.md"
    elif path.suffix not in (".md", *COPIED):
        path = path.with_name(f"{path.name}.md")
    return (Path("repository") / path).as_posix()


def to_page(source: Path) -> str:
    """The Markdown of a file or folder."""
    name = source.relative_to(ROOT).as_posix()
    if source == ROOT:
        lists = "".join(f"- [{folder}]({folder})\n" for folder in FOLDERS)
        return f"# Source\n\nThe repository has no public address yet. Its folders:\n\n{lists}"
    if source.is_dir():
        readme = source / "README.md"
        if readme.exists():
            return readme.read_text(encoding="utf-8")
        paths = sorted(path for path in source.rglob("*") if path.suffix in (*LANGUAGES, ".ipynb"))
        files = [path.relative_to(source).as_posix() for path in paths]
        return f"{NO_SEARCH}# {name}\n\n" + "".join(f"- [{file}]({file})\n" for file in files)
    text = source.read_text(encoding="utf-8")
    if source.suffix == ".md":
        return text
    return f"{NO_SEARCH}# {name}\n\n````````{LANGUAGES.get(source.suffix, 'text')}\n{text}\n````````\n"


def targets(source: Path, text: str) -> Iterator[Path]:
    """The files and folders of the repository that a page links to."""
    for _, link, _ in LINK.findall(CODE.sub("", text)):
        target = resolve(source, link)
        if target is not None and target not in LEFT_OUT:
            yield target


def resolve(source: Path, link: str) -> Path | None:
    target = Path(os.path.normpath((source if source.is_dir() else source.parent) / link))
    return target if target.is_relative_to(ROOT) and target.exists() else None


def on_files(files: Files, config) -> Files:
    """Adds the files that pages link to, and those that these link to."""
    SOURCES.clear()
    todo = [ROOT, ROOT / "README.md", *(ROOT / "docs" / file.src_uri for file in files.documentation_pages())]
    while todo:
        source = todo.pop()
        uri = in_site(source)
        if uri in SOURCES or source.is_relative_to(ROOT / "docs") and source.suffix != ".md":
            continue
        SOURCES[uri] = source
        if source.suffix in COPIED:
            files.append(File.generated(config, uri, abs_src_path=str(source)))
            continue
        text = to_page(source)
        if files.get_file_from_path(uri) is None:
            files.append(File.generated(config, uri, content=text))
        todo += targets(source, text)
    return files


def on_page_markdown(markdown: str, page, **_) -> str:
    """Links between files of the repository as links between pages of the site."""
    source, uri = SOURCES[page.file.src_uri], page.file.src_uri

    def relink(match: re.Match) -> str:
        start, link, end = match.groups()
        target = resolve(source, link)
        if target in LEFT_OUT:
            return f"{start[1:-2]} (`{target.relative_to(ROOT)}`)"
        return match[0] if target is None else start + os.path.relpath(in_site(target), os.path.dirname(uri)) + end

    # CODE has two groups: a text, code, the fence of the code, and so on.
    parts = CODE.split(markdown)
    return "".join(
        LINK.sub(relink, part) if number % 3 == 0 else part for number, part in enumerate(parts) if number % 3 != 2
    )
