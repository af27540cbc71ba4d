# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Pairs made of texts, their balance over a teacher's scale, and `hf-dse augment` from files to training pairs."""

import csv
import json
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from datasets import Dataset
from flags import to_flags
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import BertForSequenceClassification

import hf_dse.mining.augmentation
from hf_dse import DataArguments, DseModel, augment_pairs, encode, load_pairs, score_pairs
from hf_dse.mining.augmentation import balance_scores, bin_scores, normalize_text
from hf_dse_cli import main


NOTHING = {"row_pairs": 0, "num_neighbors": 0, "num_random": 0, "show_progress": False}
ONLY_ROWS = {**NOTHING, "row_pairs": 1}
ANIMALS = ["cat", "dog", "old dog", "new cat", "the old cat", "a new dog"]
# Each text is nearly the one beside it, so the nearest would be that of its own row.
TWINS = [(f"{animal} {verb} on mat", f"the {animal} {verb} on mat") for animal in ANIMALS for verb in ("sat", "ran")]


def write_csv(path, rows, columns=("sentence1", "sentence2")):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([columns, *rows])
    return path


def write_lines(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def pairs_of(dataset):
    return list(zip(dataset["sentence1"], dataset["sentence2"], strict=True))


def unordered(pairs):
    return {frozenset(pair) for pair in pairs}


@pytest.fixture
def encoder(make_model, bert_tokenizer):
    return {"encoder": make_model(DseModel), "processing_class": bert_tokenizer}


def brute_force_pool(rows, encoder, size):
    """By text the nearest texts that share no row with it, the slow way."""
    texts = list(dict.fromkeys(text for row in rows for text in row))
    vectors = encode(encoder["encoder"], encoder["processing_class"], texts, normalize=True, show_progress=False)
    pool = {}
    for text, vector in zip(texts, vectors, strict=True):
        own = {other for row in rows if text in row for other in row}
        cosines = {other: float(vector @ v) for other, v in zip(texts, vectors, strict=True) if other not in own}
        pool[text] = sorted(cosines, key=cosines.__getitem__, reverse=True)[:size]
    return pool


class TestRows:
    def test_pairs_within_rows(self, tmp_path):
        captions = [f"caption {letter}" for letter in "abcde"]
        rows = [{"c": captions[:1]}, {"c": captions[1:3]}, {"c": captions}]
        rows = [{f"c{number}": text for number, text in enumerate(row["c"])} for row in rows]
        path = write_lines(tmp_path / "pictures.jsonl", map(json.dumps, rows))
        files = [f"{path}:c0,c1,c2,c3,c4"]
        every = augment_pairs(files, **{**NOTHING, "row_pairs": 10})
        assert every.column_names == ["sentence1", "sentence2", "source"]
        assert unordered(pairs_of(every)) == unordered(combinations(captions, 2))
        assert set(every["source"]) == {"pictures/row"}
        # One of two texts, four of five.
        some = [pairs_of(augment_pairs(files, **{**NOTHING, "row_pairs": 4, "seed": seed})) for seed in range(5)]
        assert all(pairs[0] == ("caption b", "caption c") and 4 <= len(pairs) <= 5 for pairs in some)
        assert len({frozenset(pairs) for pairs in some}) > 1

    def test_empty_cells_are_left_out(self, tmp_path):
        rows = [{"a": "one", "b": None, "c": "two"}, {"a": "", "b": " ", "c": "three"}, {"b": "four", "c": "five"}]
        path = write_lines(tmp_path / "rows.jsonl", map(json.dumps, rows))
        result = augment_pairs([f"{path}:a,b,c"], **ONLY_ROWS)
        assert pairs_of(result) == [("one", "two"), ("four", "five")]

    def test_max_rows_is_a_random_sample(self, tmp_path):
        path = write_csv(tmp_path / "train.csv", [(f"first {n}", f"second {n}") for n in range(50)])
        samples = [pairs_of(augment_pairs([path], max_rows=7, seed=seed, **ONLY_ROWS)) for seed in (0, 0, 1)]
        assert all(len(sample) == 7 for sample in samples)
        assert samples[0] == samples[1] != samples[2]
        assert samples[0] != [(f"first {n}", f"second {n}") for n in range(7)]
        assert len(augment_pairs([path], max_rows=50, **ONLY_ROWS)) == 50


class TestNeighbors:
    def test_they_are_those_of_brute_force(self, tmp_path, encoder):
        # A text may stand in several rows.
        rows = [*TWINS, (TWINS[0][0], "a house is old"), (TWINS[0][0], TWINS[5][1])]
        path = write_csv(tmp_path / "twins.csv", rows)
        options = {**NOTHING, **encoder, "num_neighbors": 3, "neighbor_pool": 3}
        result = augment_pairs([path], **options)
        pool = brute_force_pool(rows, encoder, 3)
        assert unordered(pairs_of(result)) == unordered((text, other) for text in pool for other in pool[text])
        assert not unordered(pairs_of(result)) & unordered(rows)
        assert set(result["source"]) == {"twins/neighbor"}
        # Without the texts of its own rows in the way, a text would have met them.
        alone = write_lines(tmp_path / "alone.txt", pool)
        assert unordered(pairs_of(augment_pairs([alone], **options))) & unordered(rows)

    def test_they_are_drawn_from_the_pool(self, tmp_path, encoder):
        path = write_csv(tmp_path / "twins.csv", TWINS)
        pool = brute_force_pool(TWINS, encoder, 6)
        drawn = Counter()
        for seed in range(20):
            options = {**NOTHING, "num_neighbors": 2, "neighbor_pool": 6, "seed": seed}
            pairs = pairs_of(augment_pairs([path], **{**options, **encoder}))
            assert all(second in pool[first] for first, second in pairs)
            assert max(Counter(first for first, _ in pairs).values()) == 2
            assert len(TWINS) * 2 <= len(pairs) <= len(TWINS) * 4
            drawn.update(unordered(pairs))
        # Every place in the pool is drawn some time.
        assert set(drawn) == unordered((text, other) for text in pool for other in pool[text])

    def test_blocks_make_no_difference(self, tmp_path, encoder, monkeypatch):
        path = write_csv(tmp_path / "twins.csv", TWINS)
        options = {**NOTHING, **encoder, "num_neighbors": 2, "neighbor_pool": 5}
        whole = augment_pairs([path], **options)
        for elements in (1, 100):
            monkeypatch.setattr(hf_dse.mining.augmentation, "BLOCK_ELEMENTS", elements)
            assert pairs_of(augment_pairs([path], **options)) == pairs_of(whole)

    def test_a_small_file_has_few(self, tmp_path, encoder):
        path = write_csv(tmp_path / "few.csv", [("a cat", "a dog"), ("the house", "")])
        result = augment_pairs([path], **{**NOTHING, **encoder, "num_neighbors": 2})
        assert unordered(pairs_of(result)) == unordered([("a cat", "the house"), ("a dog", "the house")])

    def test_spellings_of_a_text_are_one_text(self, tmp_path, encoder):
        path = write_lines(tmp_path / "texts.txt", ["A cat.", "a cat", "a CAT!", "a dog"])
        result = augment_pairs([path], **{**NOTHING, **encoder, "num_neighbors": 1})
        assert [normalize_text(text) for text in pairs_of(result)[0]] == ["a cat", "a dog"]
        assert len(result) == 1


class TestRandom:
    def test_any_other_text_of_the_file(self, tmp_path):
        cats = write_lines(tmp_path / "cats.txt", [f"cat {n}" for n in range(5)])
        dogs = write_lines(tmp_path / "dogs.txt", [f"dog {n}" for n in range(4)])
        result = augment_pairs([cats, dogs], **{**NOTHING, "num_random": 50})
        # So many draws meet every pair of texts, and never two of different files.
        expected = [*combinations([f"cat {n}" for n in range(5)], 2), *combinations([f"dog {n}" for n in range(4)], 2)]
        assert unordered(pairs_of(result)) == unordered(expected)
        assert Counter(result["source"]) == {"cats/random": 10, "dogs/random": 6}

    def test_so_many_for_each_text(self, tmp_path, infos):
        path = write_lines(tmp_path / "texts.txt", [f"text {n}" for n in range(500)])
        result = augment_pairs([path], row_pairs=0, num_neighbors=0, num_random=3)
        assert infos[0].splitlines()[1].split()[:3] == [str(path), "1,500", "0"]
        assert all(1 <= count <= 3 for count in Counter(result["sentence1"]).values())
        assert 1450 < len(result) < 1500


class TestRepetition:
    def test_same_seed_same_pairs(self, tmp_path, encoder):
        path = write_csv(tmp_path / "twins.csv", TWINS)
        options = {**encoder, "show_progress": False}
        first, second, other = (augment_pairs([path], **options, seed=seed) for seed in (1, 1, 2))
        assert first.to_dict() == second.to_dict() != other.to_dict()
        assert {source.split("/")[1] for source in first["source"]} == {"row", "neighbor", "random"}

    def test_another_file_changes_nothing(self, tmp_path):
        path = write_csv(tmp_path / "twins.csv", TWINS)
        texts = write_lines(tmp_path / "texts.txt", [f"text {n}" for n in range(9)])
        options = {**ONLY_ROWS, "num_random": 2, "max_rows": 5}
        alone = pairs_of(augment_pairs([path], **options))
        assert pairs_of(augment_pairs([texts, path], **options))[-len(alone) :] == alone


class TestDeduplication:
    def test_counts(self, tmp_path, infos):
        pets = [("A cat.", "a  CAT"), ("a cat", "a dog"), ("A dog!", "A cat?")]
        first = write_csv(tmp_path / "first.csv", [*pets, ("old", "new"), ("New", "Old"), ("x", "y")])
        second = write_csv(tmp_path / "second.csv", [("dog, a", "x"), ("a dog", "a cat"), ("?!", "..."), ("z", "x")])
        tests = write_csv(tmp_path / "test.csv", [("NEW", "old."), ("only one", "")], columns=("q1", "q2"))
        more = write_csv(tmp_path / "dev.csv", [("x", "Z")])
        result = augment_pairs(
            [first, second], row_pairs=1, num_neighbors=0, num_random=0, exclude_files=[f"{tests}:q1,q2", more]
        )
        assert pairs_of(result) == [("a cat", "a dog"), ("x", "y"), ("dog, a", "x"), ("?!", "...")]
        table = [line.split() for line in infos[0].splitlines()]
        assert table == [
            ["file", "made", "equal", "repeated", "excluded", "kept"],
            [str(first), "6", "1", "2", "1", "2"],
            [str(second), "4", "0", "1", "1", "2"],
        ]

    def test_excluded_texts_are_in_no_pair(self, tmp_path):
        rows = [("a cat", "a dog"), ("a dog", "a cow"), ("a hen", "a pig")]
        data = write_csv(tmp_path / "data.csv", rows)
        tests = write_csv(tmp_path / "test.csv", [("A dog!", "a fox")])
        result = augment_pairs([data], exclude_text_files=[tests], **{**ONLY_ROWS, "num_random": 3})
        assert ("a hen", "a pig") in pairs_of(result)
        assert {text for pair in pairs_of(result) for text in pair} == {"a cat", "a cow", "a hen", "a pig"}
        with pytest.raises(ValueError, match="There are no pairs"):
            augment_pairs([tests], exclude_text_files=[tests], **ONLY_ROWS)

    def test_the_first_kind_wins(self, tmp_path):
        path = write_csv(tmp_path / "data.csv", [("a", "b")])
        result = augment_pairs([path], **{**ONLY_ROWS, "num_random": 5})
        assert result["source"][:] == [f"{tmp_path.name}/row"]

    @settings(max_examples=200, deadline=None)
    @given(st.text(max_size=12))
    def test_normalized_texts(self, text):
        kept = "".join(char if char.isalnum() else " " for char in text.lower())
        assert normalize_text(text) == (" ".join(kept.split()) or text.lower().strip())

    def test_every_script_survives(self):
        assert normalize_text("  «Ça va,\tÉLODIE_2?» ") == "ça va élodie 2"
        assert normalize_text("猫が 眠る。") == "猫が 眠る"
        assert normalize_text(" ?! ") == "?!"


class TestFiles:
    def test_columns(self, tmp_path):
        rows = [("a", "b", "c", "d")]
        path = write_csv(tmp_path / "table.csv", rows, columns=("text", "sentence1", "sentence2", "other"))
        assert pairs_of(augment_pairs([path], **ONLY_ROWS)) == [("b", "c")]
        assert pairs_of(augment_pairs([f"{path}:other,text"], **ONLY_ROWS)) == [("d", "a")]
        write_csv(tmp_path / "text.csv", [("1", "x"), ("2", "y")], columns=("text", "other"))
        texts = augment_pairs([tmp_path / "text.csv"], **{**NOTHING, "num_random": 1})
        assert pairs_of(texts) == [("1", "2")]

    def test_a_path_that_exists_goes_before_columns(self, tmp_path):
        path = write_csv(tmp_path / "odd.csv:a,b.csv", [("one", "two")])
        write_csv(tmp_path / "odd.csv", [("wrong", "wrong too")])
        assert pairs_of(augment_pairs([path], **ONLY_ROWS)) == [("one", "two")]
        write_csv(path, [("three", "four")], columns=("a:c", "b"))
        with pytest.raises(ValueError, match="there is no column 'text'; the columns are a:c, b"):
            augment_pairs([path], **ONLY_ROWS)

    def test_lines_of_text(self, tmp_path):
        (tmp_path / "lines.txt").write_bytes("\ufeffone\u2028still one\r\n\r\ntwo".encode())
        result = augment_pairs([tmp_path / "lines.txt"], **{**NOTHING, "num_random": 1})
        assert pairs_of(result) == [("one\u2028still one", "two")]

    def test_sources(self, tmp_path):
        files = []
        for name in ("quora/train.csv", "snli/data.csv", "headlines.csv", "mnli/validation.csv", "dev/test.csv"):
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            files.append(f"{write_csv(path, [(name, 'x')], columns=('a', 'b'))}:a,b")
        result = augment_pairs(files, **ONLY_ROWS)
        assert result["source"][:] == ["quora/row", "snli/row", "headlines/row", "mnli/row", "dev/row"]

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("table.csv", "no column 'text'; the columns are a, b. Choose those of the texts, as in `FILE:column,col"),
            ("table.csv:a,c", "no column 'c'; the columns are a, b"),
            ("table.csv:", "no column ''; the columns are a, b"),
            ("numbers.jsonl", "numbers.jsonl, row 1: text is 7, not a string"),
            ("empty.csv", "there are no texts in text"),
            ("notes.md:a", "unsupported ending '.md'"),
            ("missing.csv:a,b", r"missing\.csv: there is no such file"),
            ("missing.txt", r"missing\.txt"),
        ],
    )
    @pytest.mark.parametrize("excluded", [False, True])
    def test_what_cannot_be_read(self, name, message, excluded, tmp_path):
        write_csv(tmp_path / "table.csv", [("x", "y")], columns=("a", "b"))
        write_lines(tmp_path / "numbers.jsonl", ['{"text": "x"}', '{"text": 7}'])
        write_csv(tmp_path / "empty.csv", [("",), (" ",)], columns=("text",))
        (tmp_path / "notes.md").write_text("a")
        good, bad = f"{tmp_path / 'table.csv'}:a,b", tmp_path / name
        if excluded and name in ("numbers.jsonl", "empty.csv"):
            message = "2 columns of texts are required, got 1"
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            augment_pairs([good] if excluded else [good, bad], exclude_files=[bad] if excluded else [], **ONLY_ROWS)

    @pytest.mark.parametrize("columns", ["a", "a,b,c"])
    def test_excluded_pairs_have_two_columns(self, columns, tmp_path):
        path = write_csv(tmp_path / "table.csv", [("x", "y", "z")], columns=("a", "b", "c"))
        message = rf"2 columns of texts are required, got \d \({columns.replace(',', ', ')}\)"
        with pytest.raises(ValueError, match=message):
            augment_pairs([f"{path}:a,b"], exclude_files=[f"{path}:{columns}"], **ONLY_ROWS)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"row_pairs": -1}, "row_pairs=-1: it has to be at least 0"),
            ({"num_random": -1}, "num_random=-1: it has to be at least 0"),
            ({"num_neighbors": 3, "neighbor_pool": 2}, "neighbor_pool=2: it has to be at least 3"),
            ({"max_rows": 0}, "max_rows=0: it has to be at least 1"),
            ({"num_neighbors": 1}, "num_neighbors=1 needs an encoder"),
            ({"row_pairs": 0}, "There are no pairs"),
        ],
    )
    def test_what_cannot_be_done(self, options, message, tmp_path):
        path = write_csv(tmp_path / "data.csv", [("a", "b")])
        with pytest.raises(ValueError, match=message):
            augment_pairs([path], **{**ONLY_ROWS, **options})


def scored(logits):
    rows = [[*row] if isinstance(row, tuple) else [row] for row in logits]
    names = [f"pair {number}" for number in range(len(rows))]
    return Dataset.from_dict({"sentence1": names, "sentence2": names, "teacher_logits": rows})


def assert_even(kept, supplies):
    """No bin gives fewer than another, but for one of the remainder, unless it gives all it has."""
    for number, supply in enumerate(supplies):
        assert kept[number] <= supply
        assert kept[number] == supply or kept[number] >= max(kept) - 1


class TestBalance:
    @settings(max_examples=60, deadline=None)
    @given(st.lists(st.floats(-5, 5) | st.floats(1, 1.1), min_size=2), st.integers(1, 60), st.integers(1, 12))
    def test_even_as_the_supply_permits(self, logits, max_pairs, num_bins):
        low, high = min(logits), max(logits)
        dataset = scored(logits)
        bins, names = bin_scores(dataset, num_bins)
        assert len(names) == num_bins and 0 <= bins.min() and bins.max() < num_bins
        for logit, number in zip(logits, bins, strict=True):
            if high > low:
                width = (high - low) / num_bins
                assert low + number * width - 1e-9 <= logit <= low + (number + 1) * width + 1e-9
        result = balance_scores(dataset, max_pairs, num_bins)
        assert len(result) == min(max_pairs, len(logits))
        places = [int(name.split()[1]) for name in result["sentence1"]]
        assert places == sorted(set(places))
        if max_pairs < len(logits):
            counts = [np.bincount(part, minlength=num_bins).tolist() for part in (bins[places], bins)]
            assert_even(*counts)

    def test_a_skewed_scale(self):
        logits = [*np.linspace(0, 0.99, 1000), *np.linspace(4, 5, 30)]
        result = balance_scores(scored(logits), 100, num_bins=5)
        counts, _ = np.histogram([row[0] for row in result["teacher_logits"]], bins=5, range=(0, 5))
        assert counts.tolist() == [70, 0, 0, 0, 30]

    def test_classes(self):
        logits = [(0.0, 9.0, 1.0)] * 50 + [(3.0, 2.0, 1.0)] * 5 + [(-3.0, -2.0, -1.0)] * 20
        bins, names = bin_scores(scored(logits))
        assert np.bincount(bins).tolist() == [5, 50, 20]
        assert names == ["class 0", "class 1", "class 2"]
        result = balance_scores(scored(logits), 31)
        assert sorted(Counter(map(tuple, result["teacher_logits"])).values()) == [5, 13, 13]

    def test_equal_scores_and_none(self):
        same = scored([2.0] * 40)
        for dataset in (same, same.remove_columns("teacher_logits")):
            first, second, other = (balance_scores(dataset, 10, seed=seed)["sentence1"][:] for seed in (1, 1, 2))
            assert first == second != other
            assert len(first) == 10 and first != dataset["sentence1"][:10]

    @pytest.mark.parametrize("options", [{"max_pairs": 0}, {"max_pairs": 5, "num_bins": 0}])
    def test_numbers_out_of_range(self, options):
        with pytest.raises(ValueError, match="=0: it has to be at least 1"):
            balance_scores(scored([1.0, 2.0]), **options)


@pytest.fixture(scope="module")
def teachers(tmp_path_factory, save_bert):
    folder = tmp_path_factory.mktemp("teachers")
    for num_labels in (1, 3):
        fields = {"num_labels": num_labels, "initializer_range": 0.5}
        save_bert(folder / f"teacher-{num_labels}", BertForSequenceClassification, **fields)
    return folder


@pytest.fixture
def run(tmp_path, teachers, make_model, bert_tokenizer):
    """Runs `hf-dse augment` on the twins; options may be overridden or left out with `None`."""
    make_model(DseModel).save_pretrained(tmp_path / "encoder")
    bert_tokenizer.save_pretrained(tmp_path / "encoder")
    write_csv(tmp_path / "twins.csv", TWINS)

    def augment(**options):
        defaults = {
            "files": tmp_path / "twins.csv",
            "output_file": tmp_path / "out" / "pairs.parquet",
            "encoder_name_or_path": tmp_path / "encoder",
            "teacher_name_or_path": teachers / "teacher-1",
            "max_length": 64,
            "device": "cpu",
        }
        return main(["augment", *to_flags({**defaults, **options})])

    return augment


def read_output(path, **options):
    return load_pairs(DataArguments(train_file=str(path), num_labels=1, **options), require_labels=False)["train"]


class TestCommand:
    def test_from_texts_to_training_pairs(self, tmp_path, teachers, run, capsys, monkeypatch):
        output = tmp_path / "out" / "pairs.parquet"
        write_csv(tmp_path / "test.csv", TWINS[:2], columns=("q1", "q2"))
        write_lines(tmp_path / "more.txt", [f"{animal} {number}" for animal in ANIMALS for number in range(5)])
        files = {
            "files": [tmp_path / "twins.csv", tmp_path / "more.txt"],
            "exclude_files": [f"{tmp_path / 'test.csv'}:q1,q2"],
        }
        assert run(**files) == 0
        out = capsys.readouterr().out
        pairs = read_output(output)
        assert pairs.column_names == ["sentence1", "sentence2", "teacher_logits"]
        found = unordered(pairs_of(pairs))
        assert not found & unordered(TWINS[:2]) and unordered(TWINS[2:]) <= found
        assert (tmp_path / "out" / ".hf-dse-scores").is_dir()
        again = score_pairs(
            str(teachers / "teacher-1"), pairs, symmetric=True, max_length=64, device="cpu", show_progress=False
        )
        assert np.allclose(again["teacher_logits"], pairs["teacher_logits"], atol=1e-5)

        assert f"{len(pairs)} pairs written to {output}" in out
        sources = Counter(Dataset.from_parquet(str(output))["source"])
        assert set(sources) == {"twins/row", "twins/neighbor", "twins/random", "more/neighbor", "more/random"}
        lines = [line.split() for line in out.splitlines()]
        assert all([source, str(count)] in lines for source, count in sources.items())
        histogram = [int(line[-1]) for line in lines[lines.index(["Teacher's", "scores:"]) + 1 :]]
        logits = [logit for (logit,) in pairs["teacher_logits"]]
        assert histogram == np.histogram(logits, bins=10)[0].tolist()

        calls, forward = [], BertForSequenceClassification.forward

        def counted(*args, **kwargs):
            calls.append(args)
            return forward(*args, **kwargs)

        monkeypatch.setattr(BertForSequenceClassification, "forward", counted)
        before = output.read_bytes()
        assert run(**files) == 0
        assert calls == [] and output.read_bytes() == before
        assert run(**files, symmetric="false") == 0
        assert calls == []
        assert run(**files, seed=43) == 0
        assert calls

    @pytest.mark.parametrize("num_labels", [1, 3])
    def test_max_pairs_are_even(self, num_labels, tmp_path, teachers, run, capsys):
        options = {"teacher_name_or_path": teachers / f"teacher-{num_labels}", "score_bins": 4}
        assert run(**options, output_file=tmp_path / "every.jsonl") == 0
        every = Dataset.from_json(str(tmp_path / "every.jsonl"))
        assert run(**options, max_pairs=20, output_file=tmp_path / "some.jsonl") == 0
        some = Dataset.from_json(str(tmp_path / "some.jsonl"))
        assert len(some) == 20 and "20 pairs written" in capsys.readouterr().out
        bins, names = bin_scores(every, 4)
        rows = pairs_of(every)
        kept = [rows.index(pair) for pair in pairs_of(some)]
        assert_even(*(np.bincount(part, minlength=len(names)).tolist() for part in (bins[kept], bins)))
        assert len(names) == {1: 4, 3: 3}[num_labels]

    def test_without_teacher_and_encoder(self, tmp_path, run, capsys):
        output = tmp_path / "pairs.jsonl"
        options = {"encoder_name_or_path": None, "teacher_name_or_path": None, "output_file": output}
        assert run(**options, num_neighbors=0, num_random=2, max_pairs=15) == 0
        rows = [json.loads(line) for line in output.read_text().splitlines()]
        assert len(rows) == 15 and all(set(row) == {"sentence1", "sentence2", "source"} for row in rows)
        assert "scores" not in capsys.readouterr().out
        assert len(read_output(output)) == 15
        assert not (tmp_path / ".hf-dse-scores").exists()

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"output_file": "pairs.csv", "teacher_name_or_path": "nowhere"}, "unsupported ending '.csv'"),
            ({"encoder_name_or_path": None}, "num_neighbors=2 needs an encoder"),
            ({"max_pairs": 0}, "max_pairs=0: it has to be at least 1"),
            ({"score_bins": 0}, "score_bins=0: it has to be at least 1"),
            ({"max_length": 65}, "max_length=65 is above the 64 tokens"),
            ({"files": None}, "--files"),
        ],
    )
    def test_says_what_is_wrong(self, options, message, tmp_path, run, capsys):
        assert run(**options) == 2
        assert message in capsys.readouterr().err
        assert not (tmp_path / "out").exists()
