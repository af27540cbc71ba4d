# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse search` in a folder of files: passages, the index and its updates, places, reranking, and JSON."""

import json
import multiprocessing
import os
import signal
import sqlite3
import time

import numpy as np
import pytest
from datasets import Dataset
from flags import to_flags
from hypothesis import example, given, settings
from hypothesis import strategies as st
from transformers import BertForSequenceClassification

import hf_dse.data.passages
import hf_dse.inference.folder_index
from hf_dse import encode_document, export_model, make_rankings, rank, score_candidates, split_text
from hf_dse.common.files import locked
from hf_dse.data.passages import line_numbers
from hf_dse.inference.search import rank_groups
from hf_dse_cli import main


FORK = multiprocessing.get_context("fork")
FILES = {
    "a.md": "# the cat\n\nthe cat sat on the mat. the old cat ran.\n",
    "b.txt": "a dog ran in the house. " * 8,
    "deep/c.md": "new\n\nthe dog and the cat. a dog sat on a mat.\n\n## of old\n\nthe old dog is in the house.\n",
}


def size_of(text, tokenizer):
    return len(tokenizer(text, add_special_tokens=False)["input_ids"])


@pytest.fixture(params=["bert", "roberta"], scope="module")
def tokenizer(request, bert_tokenizer, roberta_tokenizer):
    """Words that are spelled in pieces, or several tokens for one character."""
    return bert_tokenizer if request.param == "bert" else roberta_tokenizer


TEXT = st.lists(
    st.sampled_from(
        ["cat", "dog.", "Is it?", "é", "日本。", "👩‍🔬", "\n", "\n\n", "# a\n", " ", "\t", "\r", "\u2028", "x" * 30]
    )
    | st.text(max_size=5),
    max_size=30,
).map("".join)


class TestPassages:
    @settings(max_examples=150, deadline=None)
    @given(text=TEXT, chunk_size=st.integers(1, 20), block=st.sampled_from([1, 7, 40, 2**16]))
    @example(text="", chunk_size=3, block=1)
    @example(text="\x00\ufeff \n", chunk_size=1, block=2)
    @example(text="a\n", chunk_size=1, block=1)
    def test_nothing_is_lost_and_all_fit(self, tokenizer, text, chunk_size, block):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(hf_dse.data.passages, "BLOCK", block)
            passages = split_text(text, tokenizer, chunk_size)
        assert "".join(passages) == text
        assert all(passages)
        assert all(len(passage) == 1 or size_of(passage, tokenizer) <= chunk_size for passage in passages)
        # As a text editor counts lines, by the first sign of the passage.
        start = 0
        for passage, line in zip(passages, line_numbers(passages), strict=True):
            first = start + len(passage) - len(passage.lstrip())
            assert line == text[:first].count("\n") + 1
            start += len(passage)

    @settings(max_examples=50, deadline=None)
    @given(text=TEXT, chunk_size=st.integers(8, 20))
    def test_the_size_of_blocks_changes_nothing_for_words(self, bert_tokenizer, text, chunk_size):
        text = " ".join(text.split())
        passages = split_text(text, bert_tokenizer, chunk_size)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(hf_dse.data.passages, "BLOCK", len(text) // 2 + 1)
            assert "".join(split_text(text, bert_tokenizer, chunk_size)) == "".join(passages)

    @pytest.mark.parametrize(
        ("chunk_size", "passages"),
        [
            # 6 tokens, and each other sentence 4.
            (10, ["the cat sat on mat. the dog ran. ", "the cat ran.\n\na dog sat. ", "old cat is in the house"]),
            (14, ["the cat sat on mat. the dog ran. the cat ran.\n\n", "a dog sat. old cat is in the house"]),
            (
                4,
                [
                    "the cat sat on ",
                    "mat. ",
                    "the dog ran. ",
                    "the cat ran.\n\n",
                    "a dog sat. ",
                    "old cat is in ",
                    "the house",
                ],
            ),
            (99, ["the cat sat on mat. the dog ran. the cat ran.\n\na dog sat. old cat is in the house"]),
        ],
    )
    def test_passages_end_with_paragraphs_and_sentences(self, bert_tokenizer, chunk_size, passages):
        assert split_text("".join(passages), bert_tokenizer, chunk_size) == passages

    def test_headings_stay_with_their_text(self, bert_tokenizer):
        text = "# a cat\n\nthe cat sat. the cat ran.\n\n## a dog\n\nthe dog sat. the dog ran.\n"
        parts = ["# a cat\n\nthe cat sat. the cat ran.\n\n", "## a dog\n\nthe dog sat. the dog ran.\n"]
        for size in (14, 15, 16, 17):
            assert split_text(text, bert_tokenizer, size) == parts

    @pytest.mark.parametrize("text", ["." * 100_000, " " * 100_000, "\n" * 100_000, "a. " * 30_000, '."' * 50_000])
    def test_long_texts_take_seconds(self, bert_tokenizer, text):
        begin = time.monotonic()
        assert "".join(split_text(text, bert_tokenizer, 60)) == text
        assert time.monotonic() - begin < 20

    def test_errors(self, bert_tokenizer):
        with pytest.raises(ValueError, match="chunk_size=0: it has to be at least 1"):
            split_text("a", bert_tokenizer, 0)


@settings(max_examples=60, deadline=None)
@given(groups=st.lists(st.integers(0, 6), min_size=1, max_size=30), top_k=st.integers(1, 8), seed=st.integers(0, 5))
def test_the_best_part_of_each_group(groups, top_k, seed):
    random = np.random.default_rng(seed)
    queries, corpus = random.normal(size=(3, 4)), random.normal(size=(len(groups), 4))
    found = rank_groups(queries, corpus, groups, top_k=top_k, similarity="dot", show_progress=False)
    for hits, scores in zip(found, queries.astype(np.float32) @ corpus.astype(np.float32).T, strict=True):
        best = {group: max(scores[np.array(groups) == group]) for group in groups}
        expected = sorted(best.values(), reverse=True)[:top_k]
        assert [score for score, _ in hits] == pytest.approx(expected, abs=1e-5)
        assert [scores[position] for _, position in hits] == pytest.approx(expected, abs=1e-5)
        assert len({groups[position] for _, position in hits}) == len(hits)


def test_no_groups():
    with pytest.raises(ValueError, match="The corpus is empty"):
        rank_groups(np.eye(2), np.empty((0, 2)), [], show_progress=False)
    with pytest.raises(ValueError, match="top_k=0: it has to be at least 1"):
        rank_groups(np.eye(2), np.eye(2), ["a", "b"], top_k=0, show_progress=False)


def test_an_mlp_head_ranks_the_groups_of_its_pool(make_model):
    model, random = make_model(similarity="mlp"), np.random.default_rng(0)
    queries, corpus = random.normal(size=(4, 16)), random.normal(size=(40, 16))
    groups = [number // 4 for number in range(40)]
    _, positions = rank(queries, corpus, head=model, top_k=12, pool=12, show_progress=False)
    found = rank_groups(queries, corpus, groups, head=model, top_k=12, pool=12, show_progress=False)
    for hits, row in zip(found, positions, strict=True):
        assert [groups[position] for _, position in hits] == list(dict.fromkeys(groups[place] for place in row))


@pytest.fixture
def docs(tmp_path):
    for name, text in FILES.items():
        (tmp_path / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "docs" / name).write_text(text)
    return tmp_path / "docs"


@pytest.fixture
def run(tmp_path, docs, make_model, bert_tokenizer):
    """Runs `hf-dse search` in the folder; options can be overridden, or omitted with `None`."""
    make_model(similarity="cosine").save_pretrained(tmp_path / "model")
    bert_tokenizer.save_pretrained(tmp_path / "model")

    def search(**options):
        defaults = {
            "model_name_or_path": tmp_path / "model",
            "corpus": docs,
            "query": ["an old cat", "the house"],
            "chunk_size": 12,
            "index_dir": tmp_path / "index",
            "output_file": tmp_path / "results.jsonl",
            "device": "cpu",
        }
        return main(["search", *to_flags({**defaults, **options})])

    return search


@pytest.fixture
def results(tmp_path):
    def read():
        return [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().removesuffix("\n").split("\n")]

    return read


@pytest.fixture
def embedded(monkeypatch):
    """The passages that are embedded, in lists that are committed together."""
    calls = []

    def spy(model, processing_class, texts, **options):
        calls.append(list(texts))
        return encode_document(model, processing_class, texts, **options)

    monkeypatch.setattr(hf_dse.inference.folder_index, "encode_document", spy)
    return calls


def joined(calls):
    return sorted("".join(passages) for passages in calls)


class TestIndex:
    def test_only_new_and_changed_files_are_embedded(
        self, run, docs, results, embedded, monkeypatch, capsys, tmp_path
    ):
        monkeypatch.setattr(hf_dse.inference.folder_index, "PASSAGES_PER_COMMIT", 1)
        counted = (
            f"Index of {docs}: {{}} new, {{}} changed, {{}} deleted and {{}} unchanged files; {{}} passages of up to "
        )
        counted += f"12 tokens, in {tmp_path / 'index'}\n"
        number = sum(len(split_text(text, _tokenizer(tmp_path), 12)) for text in FILES.values())
        assert run() == 0
        assert counted.format(3, 0, 0, 0, number) in capsys.readouterr().err
        assert joined(embedded) == sorted(FILES.values())
        first = results()
        # The same again.
        embedded.clear()
        assert run() == 0
        assert counted.format(0, 0, 0, 3, number) in capsys.readouterr().err
        assert embedded == [] and results() == first
        # One is new, one changed, one has a new name, one has a copy, and one is there again at the end.
        (docs / "new.md").write_text("a new mat")
        (docs / "a.md").write_text("the mat is old")
        (docs / "deep" / "c.md").rename(docs / "moved.txt")
        (docs / "copy.md").write_text(FILES["b.txt"])
        assert run() == 0
        assert (
            "Index of" in (line := capsys.readouterr().err) and "3 new, 1 changed, 1 deleted and 1 unchanged" in line
        )
        assert joined(embedded) == ["a new mat", "the mat is old"]
        found = results()
        assert {hit["file"] for hit in found[0]["results"]} == {"new.md", "a.md", "moved.txt", "copy.md", "b.txt"}
        # What an index of its own has.
        assert run(index_dir=tmp_path / "other") == 0
        for one, other in zip(found, results(), strict=True):
            scores = [[hit.pop("cosine") for hit in result["results"]] for result in (one, other)]
            assert one == other and scores[0] == pytest.approx(scores[1], abs=1e-5)
        embedded.clear()
        for name in ("new.md", "copy.md", "moved.txt"):
            (docs / name).unlink()
        assert run() == 0
        assert "0 new, 0 changed, 3 deleted and 2 unchanged files" in capsys.readouterr().err
        assert embedded == [] and {hit["file"] for hit in results()[0]["results"]} == {"a.md", "b.txt"}
        # What was deleted is no longer there.
        with sqlite3.connect(tmp_path / "index" / "index.sqlite") as connection:
            assert connection.execute("SELECT count(*) FROM entries").fetchone() == (2,)

    def test_a_table_among_texts_is_not_searched(self, run, docs, results):
        assert run() == 0
        expected = results()
        Dataset.from_dict({"text": ["an old cat in the house"], "price": [3]}).to_parquet(docs / "prices.parquet")
        assert run() == 0
        assert results() == expected

    def test_the_best_passage_of_a_file_is_found(self, run, docs, results, tmp_path, make_model):
        assert run() == 0
        model, tokenizer = make_model(similarity="cosine"), _tokenizer(tmp_path)
        for result in results():
            best = {}
            for name, text in FILES.items():
                passages = split_text(text, tokenizer, 12)
                vectors = encode_document(model, tokenizer, passages, show_progress=False)
                query = encode_document(model, tokenizer, [result["query"]], show_progress=False)
                scores, positions = rank(query, vectors, top_k=1, show_progress=False)
                lines = list(line_numbers(passages))
                best[name] = (scores[0, 0], lines[positions[0, 0]], passages[positions[0, 0]])
            assert [hit["file"] for hit in result["results"]] == sorted(best, key=lambda name: -best[name][0])
            for hit in result["results"]:
                score, line, text = best[hit["file"]]
                assert hit["cosine"] == pytest.approx(float(score), abs=1e-5)
                assert (hit["line"], hit["text"]) == (line, text)

    @pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
    @pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
    def test_lines_are_those_of_an_editor(self, run, results, line_end, encoding, capsys, tmp_path):
        lines = ["", "# é 日本 👩‍🔬\u2028 a\x0b", "", *["the old mat is in the house."] * 30, "", "a cat ran", ""]
        (tmp_path / "one").mkdir()
        (tmp_path / "one" / "a.md").write_bytes(line_end.join(lines).encode(encoding))
        queries = ["a cat ran", "é 日本", "the old mat", "is in", "house", "cat", "x y z"]
        assert run(corpus=tmp_path / "one", query=queries, chunk_size=5) == 0
        out, found = capsys.readouterr().out, set()
        for result in results():
            (hit,) = result["results"]
            assert hit["text"].lstrip("\n").split("\n")[0] in lines[hit["line"] - 1]
            assert f"  a.md:{hit['line']}" in out and hit["text"][0] != "\ufeff"
            found.add(hit["line"])
        assert len(found) > 1

    def test_the_default_place_is_in_the_cache(self, run, docs, capsys, tmp_path, embedded):
        home = os.environ["HF_HOME"]
        for _ in range(2):
            assert run(index_dir=None) == 0
            place = capsys.readouterr().err.partition(", in ")[2].partition("\n")[0]
            assert place.startswith(f"{home}/assets/hf-dse/search/") and os.listdir(place) == ["index.sqlite"]
        assert len(embedded) == 1
        # Another folder has an index of its own.
        docs.rename(tmp_path / "others")
        assert run(index_dir=None, corpus=tmp_path / "others") == 0
        assert place not in capsys.readouterr().err

    def test_another_model_prompt_or_size_makes_it_anew(self, run, make_model, capsys, embedded, results, tmp_path):
        assert run() == 0
        anew = f"The index of {tmp_path / 'docs'} is built anew: it is of another "
        assert anew not in capsys.readouterr().err
        make_model(similarity="cosine", linformer_length=5).save_pretrained(tmp_path / "model")
        for options, reason in (
            ({}, "model\n"),
            ({"chunk_size": 9}, "chunk_size\n"),
            ({"chunk_size": 0}, "chunk_size and max_length\n"),
            ({"chunk_size": 0, "max_length": 20}, "max_length\n"),
        ):
            embedded.clear()
            assert run(**options) == 0
            assert anew + reason in capsys.readouterr().err
            assert joined(["".join(passages) for passages in embedded]) == ["".join(FILES.values())]
            found = results()
            embedded.clear()
            assert run(**options) == 0
            assert anew not in capsys.readouterr().err and embedded == [] and results() == found
        model = make_model(similarity="cosine", prompts={"document": "the "})
        export_model(model, _tokenizer(tmp_path), tmp_path / "model", overwrite=True)
        assert run(chunk_size=0, max_length=20) == 0
        assert f"{anew}model and prompt" in capsys.readouterr().err

    def test_passages_fit_next_to_a_prompt(self, run, docs, make_model, warnings, capsys, tmp_path):
        model = make_model(similarity="cosine", prompts={"document": "the old cat: "})
        export_model(model, _tokenizer(tmp_path), tmp_path / "model", overwrite=True)
        (docs / "long.txt").write_text("the cat and the dog ran in the house " * 50)
        assert run(chunk_size=None) == 0
        # 64 less two special tokens and the prompt.
        assert "passages of up to 58 tokens" in capsys.readouterr().err
        assert run(chunk_size=58) == 0 and warnings == []
        capsys.readouterr()
        assert run(chunk_size=59) == 2
        error = capsys.readouterr().err
        assert "chunk_size=59: the model reads 64 tokens, which leaves 58 for a passage: take fewer" in error
        assert run(chunk_size=0) == 0
        assert "4 files, cut at 64 tokens, in" in capsys.readouterr().err
        assert any("1 of 4 texts are longer than 64 tokens and were truncated" in line for line in warnings)

    def test_a_killed_build_goes_on(self, run, results, embedded, monkeypatch, tmp_path):
        monkeypatch.setattr(hf_dse.inference.folder_index, "PASSAGES_PER_COMMIT", 1)
        assert run(index_dir=tmp_path / "straight") == 0
        expected = results()
        embedded.clear()
        encode = hf_dse.inference.folder_index.encode_document

        def die(*args, **options):
            if len(embedded) == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            return encode(*args, **options)

        with monkeypatch.context() as patch:
            patch.setattr(hf_dse.inference.folder_index, "encode_document", die)
            process = FORK.Process(target=run)
            process.start()
            process.join(60)
        assert process.exitcode == -signal.SIGKILL and embedded == []
        assert run() == 0
        assert joined(embedded) == [FILES["deep/c.md"]]
        assert results() == expected
        assert os.listdir(tmp_path / "index") == ["index.sqlite"]

    def test_two_searches_at_once_embed_once(self, run, results, embedded, monkeypatch, tmp_path):
        assert run(index_dir=tmp_path / "straight") == 0
        expected, log = results(), tmp_path / "log"
        encode = hf_dse.inference.folder_index.encode_document

        def slowly(model, processing_class, texts, **options):
            with log.open("a") as file:
                file.write("embedded\n")
            time.sleep(0.5)
            return encode(model, processing_class, texts, **options)

        monkeypatch.setattr(hf_dse.inference.folder_index, "encode_document", slowly)
        outputs = [tmp_path / f"{number}.jsonl" for number in range(3)]
        processes = [FORK.Process(target=_exit, args=(run, {"output_file": output})) for output in outputs]
        for process in processes:
            process.start()
        for process in processes:
            process.join(60)
        assert [process.exitcode for process in processes] == [0, 0, 0]
        assert [[json.loads(line) for line in output.read_text().splitlines()] for output in outputs] == [expected] * 3
        assert log.read_text() == "embedded\n"

    def test_a_search_without_changes_does_not_wait(self, run, capsys, tmp_path):
        assert run() == 0
        with locked(tmp_path / "index"):
            assert run() == 0
        assert "in use" not in capsys.readouterr().err

    def test_odd_files(self, run, docs, results, tmp_path, capsys):
        (docs / "empty.txt").write_text("")
        (docs / "blank.md").write_text(" \n\t\n")
        os.mkfifo(docs / "pipe.txt")
        (docs / "link.md").symlink_to(docs / "a.md")
        (docs / "dangling.md").symlink_to(docs / "nowhere.md")
        (docs / "loop").symlink_to(docs)
        with open(os.fsencode(docs) + b"/\xff\x1b[2J.txt", "w") as file:
            file.write("a mat")
        for _ in range(2):
            assert run(query="a mat", top_k=10) == 0
            found = {hit["file"] for hit in results()[0]["results"]}
            assert found == {*FILES, "link.md", "\udcff\x1b[2J.txt"}
            assert "\x1b" not in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("statement", "message"),
        [
            (
                "UPDATE entries SET vectors = zeroblob(length(vectors) - 4)",
                "does not have one vector for each passage",
            ),
            ("UPDATE entries SET vectors = zeroblob(0)", "does not have one vector for each passage"),
            ("UPDATE entries SET vectors = NULL", "an entry is not arrays of numbers"),
            ("UPDATE entries SET ends = 'x'", "an entry is not arrays of numbers"),
            ("UPDATE entries SET ends = zeroblob(0)", "the passages of a file are not those of its text"),
            ("UPDATE entries SET ends = zeroblob(length(ends))", "the passages of a file are not those of its text"),
            ("UPDATE entries SET vectors = NAN(vectors)", "a vector is NaN or infinite"),
            (
                "UPDATE entries SET vectors = HALF(vectors) WHERE key = (SELECT min(key) FROM entries)",
                "different sizes",
            ),
            ("UPDATE settings SET json = '['", "its settings or paths are none"),
            ("UPDATE settings SET json = '[]'", "its settings are []"),
            ("CREATE VIEW evil AS SELECT * FROM entries", "'evil' is not a table"),
        ],
    )
    def test_a_poisoned_index(self, run, statement, message, tmp_path, capsys):
        assert run() == 0
        capsys.readouterr()
        connection = sqlite3.connect(tmp_path / "index" / "index.sqlite")
        connection.create_function("NAN", 1, lambda blob: b"\xff" * len(blob))
        connection.create_function("HALF", 1, lambda blob: blob[: len(blob) // 2])
        with connection:
            connection.execute(statement)
        connection.close()
        assert run() == 2
        error = capsys.readouterr().err
        assert f"The search index {tmp_path / 'index' / 'index.sqlite'} is damaged" in error and message in error
        assert "delete this file and run again" in error
        (tmp_path / "index" / "index.sqlite").unlink()
        assert run() == 0

    def test_vectors_of_another_size_do_not_fit_the_query(self, run, tmp_path, capsys):
        assert run() == 0
        connection = sqlite3.connect(tmp_path / "index" / "index.sqlite")
        connection.create_function("HALF", 1, lambda blob: blob[: len(blob) // 2])
        with connection:
            connection.execute("UPDATE entries SET vectors = HALF(vectors)")
        connection.close()
        assert run() == 2
        assert "embed both with the same model" in capsys.readouterr().err

    @pytest.mark.parametrize("content", ["no database", "x" * 10_000])
    def test_another_file_in_its_place(self, run, content, tmp_path, capsys):
        (tmp_path / "index").mkdir()
        (tmp_path / "index" / "index.sqlite").write_text(content)
        assert run() == 2
        assert "is damaged (file is not a database): delete this file and run again" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"corpus": "texts.txt"}, "is no folder of files: leave out `--chunk_size` and `--index_dir`"),
            ({"corpus": "blank"}, "blank holds no texts"),
            ({"chunk_size": -1}, "chunk_size=-1: it has to be at least 0"),
            ({"index_dir": "texts.txt"}, "File exists: 'texts.txt'): name a folder as `--index_dir`"),
            ({"index_dir": "/proc/none"}, "There is no place for the index of"),
            ({"chunk_size": 63}, "chunk_size=63: the model reads 64 tokens, which leaves 62 for a passage"),
            ({"rerank": "model", "rerank_top": 3, "top_k": 4}, "rerank_top=3 is below top_k=4: raise it"),
            ({"format": "xml"}, "invalid choice: 'xml'"),
        ],
    )
    def test_errors(self, run, options, message, tmp_path, capsys, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "texts.txt").write_text("a cat\n")
        (tmp_path / "blank").mkdir()
        (tmp_path / "blank" / "a.txt").write_text(" \n")
        assert run(**options) == 2
        error = capsys.readouterr().err
        assert message in error and error.strip().splitlines()[-1].startswith("hf-dse search: error: ")


def _tokenizer(tmp_path):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(tmp_path / "model")


def _exit(run, options):
    os._exit(run(**options))


class TestReranking:
    @pytest.fixture(params=[1, 2])
    def teacher(self, request, save_bert, tmp_path):
        folder = save_bert(tmp_path / "teacher", BertForSequenceClassification, num_labels=request.param)
        return folder

    @pytest.mark.parametrize("corpus", ["folder", "table"])
    def test_it_orders_the_best_texts(self, run, docs, teacher, results, tmp_path, corpus, capsys):
        options = {"query": None, "queries": tmp_path / "queries.jsonl"}
        (tmp_path / "queries.jsonl").write_text('{"id": "q1", "text": "an old cat"}\n{"id": "q2", "text": "a dog"}\n')
        if corpus == "table":
            options |= {"corpus": tmp_path / "table.jsonl", "chunk_size": None, "index_dir": None}
            rows = [{"id": f"d{number}", "text": text} for number, text in enumerate(FILES.values())]
            (tmp_path / "table.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        assert run(**options) == 0
        first = results()
        assert run(**options, rerank=teacher, top_k=2, rerank_top=3) == 0
        assert capsys.readouterr().out.endswith(f"2 queries written to {tmp_path / 'results.jsonl'}\n")
        for before, after in zip(first, results(), strict=True):
            assert after["id"] == before["id"]
            texts = [hit["text"] for hit in before["results"]]
            rankings = make_rankings({"query": [after["query"]], "documents": [[0, 1, 2]]}, {"text": texts})
            scored = score_candidates(str(teacher), rankings, windows="best", show_progress=False)
            expected = sorted(
                zip(scored.queries["teacher_logits"][0], before["results"], strict=True), key=lambda x: -x[0]
            )
            assert len(after["results"]) == 2
            for hit, (score, old) in zip(after["results"], expected, strict=False):
                assert list(hit)[:2] == ["rerank", "cosine"]
                assert hit.pop("rerank") == pytest.approx(score, abs=1e-4)
                assert hit == pytest.approx(old)

    def test_it_is_shown(self, run, teacher, results, capsys):
        assert run(rerank=teacher) == 0
        printed = [line.split() for line in capsys.readouterr().out.splitlines()]
        assert ["rank", "rerank", "cosine", "file:line", "text"] in printed
        for number, hit in enumerate(results()[0]["results"], start=1):
            scores = [f"{hit[name]:.4f}" for name in ("rerank", "cosine")]
            assert [str(number), *scores, f"{hit['file']}:{hit['line']}"] in [words[:4] for words in printed]

    def test_it_needs_one_score(self, run, save_bert, tmp_path, capsys):
        save_bert(tmp_path / "teacher", BertForSequenceClassification, num_labels=3)
        assert run(rerank=tmp_path / "teacher") == 2
        assert "The teacher has 3 logits, and a reranker has 1" in capsys.readouterr().err


class TestJson:
    def test_stdout_has_the_lines_of_the_file_and_nothing_else(self, run, docs, results, capsys):
        (docs / "odd.txt").write_text("a mat \x1b[2J \u2028 日本")
        assert run(format="json", top_k=4) == 0
        out, err = capsys.readouterr()
        assert [json.loads(line) for line in out.removesuffix("\n").split("\n")] == results()
        assert "Index of" in err and "2 queries written to" in err
        hit = results()[0]["results"][0]
        assert list(hit) == ["cosine", "file", "line", "text"]

    def test_without_a_folder(self, run, tmp_path, capsys):
        (tmp_path / "texts.txt").write_text("a cat\na dog\n")
        options = {"corpus": tmp_path / "texts.txt", "index_dir": None, "chunk_size": None, "output_file": None}
        assert run(**options, query="a dog", format="json") == 0
        (result,) = map(json.loads, capsys.readouterr().out.splitlines())
        assert sorted((hit["position"], hit["text"]) for hit in result["results"]) == [(0, "a cat"), (1, "a dog")]
