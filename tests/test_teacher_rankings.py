# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Rerankers as teachers: scoring candidates with any of them, checking the scores, and fine-tuning one."""

import json
import math
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from datasets import Dataset, load_dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    BertTokenizer,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from hf_dse import check_scores, load_reranker, make_rankings, score_candidates, score_pairs
from hf_dse.common.provenance import describe_source
from hf_dse.data.pairs import DataArguments
from hf_dse.data.ranking_files import load_rankings
from hf_dse.inference.ray_engine import ShardWorker
from hf_dse.pipeline.arguments import StudentArguments
from hf_dse.pipeline.inputs import Given
from hf_dse.pipeline.pairs_stage import load_task, score_parts
from hf_dse.teacher.fine_tune import TeacherArguments
from hf_dse.teacher.fine_tune_ranking import CandidateCollator, list_loss, train_reranker, training_rows
from hf_dse.teacher.rerankers import Reranker, needs_sentence_transformers
from hf_dse.teacher.score_files import RankingScorer, ScoreArguments
from hf_dse.training.arguments import DseTrainingArguments, PairTrainingArguments
from hf_dse.training.base import FiniteLossCallback
from hf_dse_cli import main


WORDS = [f"word{number}" for number in range(40)]
# Documents 2 and 3 are longer than a model with 32 positions reads; 4 has the text of 0.
TEXTS = [
    " ".join(WORDS[:5]),
    " ".join(WORDS[7:12]),
    " ".join(WORDS[start % 40] for start in range(3, 60, 3)),
    " ".join(WORDS[start % 40] for start in range(0, 7 * 83, 7)),
    " ".join(WORDS[:5]),
]
QUERIES = ["word1 word2", "word30 word8 word9 word11 word20", "word1  word2 word39"]
CANDIDATES = [[0, 2, 3], [3, 1], [4, 0, 2, 1]]

# The template of a reranker: what a prompt asks for, then the query and the document.
TEMPLATE = (
    "{% set ns = namespace(task='find') %}{% for m in messages if m.role == 'system' %}"
    "{% set ns.task = m.content if m.content is string else m.content[0].text %}{% endfor %}"
    "<|im_start|>user\n<Instruct>: {{ ns.task }}\n{% for m in messages if m.role != 'system' %}"
    "<{{ m.role }}>: {{ m.content if m.content is string else m.content[0].text }}\n{% endfor %}"
    "<|im_end|>\n<|im_start|>assistant\n"
)


@pytest.fixture(scope="session")
def tokenizer():
    """One token for each word."""
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    return BertTokenizer({token: number for number, token in enumerate(tokens)}, model_max_length=32)


@pytest.fixture
def rankings():
    return make_rankings({"query": QUERIES, "documents": CANDIDATES}, {"text": TEXTS})


def make_teacher(num_labels=1, seed=0):
    torch.manual_seed(seed)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = BertConfig(
        vocab_size=45, max_position_embeddings=32, initializer_range=0.5, num_labels=num_labels, **sizes
    )
    return BertForSequenceClassification(config).eval()


def save_teacher(folder, tokenizer, **arguments):
    make_teacher(**arguments).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def language_model(tmp_path_factory):
    """A `CrossEncoder` of a causal language model with a template, a prompt and `LogitScore`."""
    cross_encoder = pytest.importorskip("sentence_transformers").CrossEncoder
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
    model = cross_encoder(str(folder / "source"), device="cpu", prompts=prompts, default_prompt_name="web")
    model.save_pretrained(str(folder / "model"))
    return folder / "model"


def raw(cross_encoder, pairs):
    return cross_encoder.predict(pairs, activation_fn=torch.nn.Identity(), show_progress_bar=False).tolist()


def direct(model, tokenizer, query, document):
    """One pair at a time."""
    with torch.no_grad():
        encoded = tokenizer(query, document, return_tensors="pt", truncation="only_second", max_length=32)
        logits = model(**encoded).logits[0].tolist()
    return logits[0] if len(logits) == 1 else logits[1] - logits[0]


def windows_of(query, document, num_tokens=32):
    """Windows of a document, one word for each token, next to a query and three special tokens."""
    words, room = document.split(), num_tokens - 3 - len(query.split())
    if len(words) <= room:
        return [document]
    found = [words[start : start + room] for start in range(0, len(words), room)]
    found[-1] = words[-room:]
    return [" ".join(part) for part in found]


def expected_scores(model, tokenizer, windows):
    scores = []
    for query, rows in zip(QUERIES, CANDIDATES, strict=True):
        parts = [windows_of(query, TEXTS[row]) for row in rows]
        parts = [part if windows == "best" else part[:1] for part in parts]
        scores.append([max(direct(model, tokenizer, query, text) for text in part) for part in parts])
    return scores


def assert_close(found, expected, tolerance=1e-5):
    assert [len(row) for row in found] == [len(row) for row in expected]
    np.testing.assert_allclose(np.concatenate(found), np.concatenate(expected), rtol=0, atol=tolerance)


def count_rows(model, monkeypatch):
    seen = []
    forward = model.forward

    def count(input_ids, **rest):
        seen.append(len(input_ids))
        return forward(input_ids, **rest)

    monkeypatch.setattr(model, "forward", count)
    return seen


# Scoring


@pytest.mark.parametrize("windows", ["first", "best"])
@pytest.mark.parametrize("num_labels", [1, 2])
def test_scores_are_those_of_one_pair_at_a_time(tmp_path, rankings, tokenizer, windows, num_labels):
    folder = save_teacher(tmp_path / "teacher", tokenizer, num_labels=num_labels)
    scored = score_candidates(folder, rankings, batch_size=3, windows=windows, device="cpu", show_progress=False)
    found = scored.queries["teacher_logits"][:]
    assert_close(found, expected_scores(make_teacher(num_labels), tokenizer, windows))
    assert np.std(np.concatenate(found)) > 0.1
    assert scored.corpus is rankings.corpus
    for name in ("query_id", "query", "documents"):
        assert scored.queries[name][:] == rankings.queries[name][:]


def test_the_first_window_is_what_truncation_leaves(rankings, bert_tokenizer, save_bert, tmp_path):
    """With a tokenizer that splits words into several tokens."""
    folder = save_bert(tmp_path / "teacher", BertForSequenceClassification, num_labels=1)
    corpus = {"text": ["unbelievable housekeeping " * 20, "the cat"]}
    rankings = make_rankings({"query": ["old houses"], "documents": [[0, 1]]}, corpus)
    scored = score_candidates(str(folder), rankings, max_length=25, device="cpu", show_progress=False)
    model = BertForSequenceClassification.from_pretrained(folder).eval()
    expected = []
    for text in corpus["text"]:
        options = {"truncation": "only_second", "max_length": 25, "return_tensors": "pt"}
        with torch.no_grad():
            expected.append(model(**bert_tokenizer("old houses", text, **options)).logits.item())
    assert_close(scored.queries["teacher_logits"][:], [expected], 1e-6)


def test_long_documents_are_counted(rankings, tokenizer, warnings, infos):
    options = {"processing_class": tokenizer, "show_progress": False}
    score_candidates(make_teacher(), rankings, windows="first", **options)
    assert len(warnings) == 1 and "2 of 8 documents are longer than what max_length=32 leaves" in warnings[0]
    score_candidates(make_teacher(), rankings, windows="best", **options)
    number = sum(len(windows_of(query, TEXTS[3])) for query in QUERIES[:2])
    assert any(f"scored by the best of their {number} windows" in message for message in infos)
    assert len(warnings) == 1


def test_distinct_pairs_are_scored_once_and_scores_are_replaced(rankings, tokenizer, monkeypatch):
    model = make_teacher()
    seen = count_rows(model, monkeypatch)
    options = {"processing_class": tokenizer, "show_progress": False}
    scored = score_candidates(model, rankings, **options)
    # Documents 0 and 4 of the last query have the same text.
    assert sum(seen) == 8
    logits = scored.queries["teacher_logits"][2]
    assert logits[0] == logits[1]
    again = score_candidates(model, scored.select([2]), **options)
    assert_close(again.queries["teacher_logits"][:], [logits])


def test_a_query_is_never_truncated(tokenizer):
    model, corpus = make_teacher(), {"text": [TEXTS[3]]}
    options = {"processing_class": tokenizer, "show_progress": False}
    # 32 positions are 3 special tokens, 28 of the query and one of the document.
    query = " ".join(WORDS[:28])
    scored = score_candidates(model, make_rankings({"query": [query], "documents": [[0]]}, corpus), **options)
    assert_close(scored.queries["teacher_logits"][:], [[direct(model, tokenizer, query, "word0")]])
    query = " ".join(WORDS[:29])
    message = "has 29 tokens, which leaves no room for a document in max_length=32: raise the teacher's max_length"
    with pytest.raises(ValueError, match=message):
        score_candidates(model, make_rankings({"query": [query], "documents": [[0]]}, corpus), **options)


def test_invalid_arguments(rankings, tokenizer):
    model = make_teacher()
    with pytest.raises(ValueError, match="windows='all': it has to be 'first' or 'best'"):
        score_candidates(model, rankings, processing_class=tokenizer, windows="all")
    with pytest.raises(ValueError, match="needs its tokenizer: pass `processing_class`"):
        score_candidates(model, rankings)
    with pytest.raises(ValueError, match="batch_size has to be at least 1, got 0"):
        score_candidates(model, rankings, processing_class=tokenizer, batch_size=0)
    with pytest.raises(ValueError, match="max_length=33 is above the 32 tokens"):
        score_candidates(model, rankings, processing_class=tokenizer, max_length=33)
    with pytest.raises(ValueError, match="The teacher has 3 logits, and a reranker has 1, or 2"):
        score_candidates(make_teacher(3), rankings, processing_class=tokenizer)
    with torch.no_grad():
        model.classifier.bias.fill_(math.nan)
    with pytest.raises(ValueError, match="score of the pair .* is NaN or infinite"):
        score_candidates(model, rankings, processing_class=tokenizer, show_progress=False)


def test_candidates_are_batched_by_length(tokenizer, monkeypatch):
    """Little of what the teacher reads is padding, whatever the order of the candidates."""
    model, shapes, real = make_teacher(), [], []
    lengths = np.random.default_rng(0).permutation(np.repeat([2, 8, 24], 40))
    texts = [" ".join(WORDS[(row + word) % 40] for word in range(length)) for row, length in enumerate(lengths)]
    columns = {"query": ["word1", "word3"], "documents": [list(range(0, 120, 2)), list(range(1, 120, 2))]}
    forward = model.forward

    def watch(**batch):
        shapes.append(batch["input_ids"].shape)
        real.append(batch["attention_mask"].sum().item())
        return forward(**batch)

    monkeypatch.setattr(model, "forward", watch)
    options = {"processing_class": tokenizer, "show_progress": False}
    scored = score_candidates(model, make_rankings(columns, {"text": texts}), batch_size=8, **options)
    assert max(rows for rows, _ in shapes) == 8
    padded = sum(rows * length for rows, length in shapes)
    assert sum(real) <= padded < 1.1 * sum(real)
    for query, rows, found in zip(*columns.values(), scored.queries["teacher_logits"][:], strict=True):
        assert_close([found], [[direct(model, tokenizer, query, texts[row]) for row in rows]], 1e-5)


# The cache


def test_an_interrupted_run_continues(tmp_path, rankings, tokenizer, monkeypatch):
    model, logits = make_teacher(), Reranker.logits
    options = {"processing_class": tokenizer, "batch_size": 2, "windows": "best", "show_progress": False}
    whole = score_candidates(model, rankings, **options).queries["teacher_logits"][:]
    batches = []

    def fail(self, pairs, *rest):
        if len(batches) == 4:
            raise KeyboardInterrupt
        batches.append(len(pairs))
        return logits(self, pairs, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(Reranker, "logits", fail)
        with pytest.raises(KeyboardInterrupt):
            score_candidates(model, rankings, cache_dir=tmp_path, **options)
    seen = count_rows(model, monkeypatch)
    total = len({(q, text) for q, rows in zip(QUERIES, CANDIDATES, strict=True)
                 for row in rows for text in windows_of(q, TEXTS[row])})  # fmt: skip
    again = score_candidates(model, rankings, cache_dir=tmp_path, **options)
    assert sum(seen) == total - sum(batches) and sum(batches) > 0
    assert_close(again.queries["teacher_logits"][:], whole, 1e-6)


def test_the_cache_knows_what_was_read(tmp_path, rankings, tokenizer, monkeypatch):
    model = make_teacher()
    options = {"processing_class": tokenizer, "cache_dir": tmp_path, "show_progress": False}
    first = score_candidates(model, rankings, windows="first", **options).queries["teacher_logits"][:]
    seen = count_rows(model, monkeypatch)
    best = score_candidates(model, rankings, windows="best", **options).queries["teacher_logits"][:]
    # The windows of the long document after the first one.
    assert sum(seen) == sum(len(windows_of(query, TEXTS[3])) - 1 for query in QUERIES[:2])
    assert best[0][2] > first[0][2] or best[1][0] > first[1][0]
    assert score_candidates(model, rankings, windows="first", **options).queries["teacher_logits"][:] == first
    # Pairs of sentences are cut in another way.
    before = sum(seen)
    pairs = Dataset.from_dict({"sentence1": [QUERIES[0]], "sentence2": [TEXTS[0]]})
    score_pairs(model, pairs, **options)
    assert sum(seen) == before + 1


# Rerankers of sentence-transformers


def test_a_cross_encoder_folder(tmp_path, rankings, tokenizer):
    cross_encoder = pytest.importorskip("sentence_transformers").CrossEncoder
    model = cross_encoder(save_teacher(tmp_path / "source", tokenizer), device="cpu")
    model.save_pretrained(str(tmp_path / "teacher"))
    assert not needs_sentence_transformers(str(tmp_path / "teacher"))
    pairs = [(query, TEXTS[row]) for query, rows in zip(QUERIES, CANDIDATES, strict=True) for row in rows]
    expected = raw(model, pairs)
    for teacher in (str(tmp_path / "teacher"), model):
        scored = score_candidates(teacher, rankings, device="cpu", show_progress=False)
        assert_close(scored.queries["teacher_logits"][:], [expected[:3], expected[3:5], expected[5:]])


def test_a_language_model_with_prompt_and_logit_score(language_model, rankings):
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(str(language_model), device="cpu")
    assert needs_sentence_transformers(str(language_model))
    pairs = [(query, TEXTS[row]) for query, rows in zip(QUERIES, CANDIDATES, strict=True) for row in rows]
    expected = raw(model, pairs)
    assert np.std(expected) > 0.01 and np.abs(expected - model.predict(pairs, show_progress_bar=False)).min() > 1e-3
    without = model.predict(pairs, prompt="other", activation_fn=torch.nn.Identity(), show_progress_bar=False)
    assert np.abs(expected - without).max() > 1e-3
    model.train()
    for teacher in (str(language_model), model):
        scored = score_candidates(teacher, rankings, batch_size=3, device="cpu", show_progress=False)
        assert_close(scored.queries["teacher_logits"][:], [expected[:3], expected[3:5], expected[5:]])
    assert model.training and model.max_seq_length == 512

    sentences = Dataset.from_dict(
        {"sentence1": [first for first, _ in pairs], "sentence2": [text for _, text in pairs]}
    )
    scored = score_pairs(str(language_model), sentences, device="cpu", show_progress=False)
    assert_close(scored["teacher_logits"][:], [[value] for value in expected])


def test_windows_of_a_language_model(language_model):
    """The windows cover the document, and with query, prompt and template each fits into the limit."""
    from sentence_transformers import CrossEncoder

    reranker = load_reranker(str(language_model), device="cpu")
    words = [WORDS[number % 40] for number in range(600)]
    rankings = make_rankings({"query": [QUERIES[1]], "documents": [[0]]}, {"text": [" ".join(words)]})
    best = score_candidates(reranker, rankings, windows="best", show_progress=False)
    model = CrossEncoder(str(language_model), device="cpu")
    # Words and spaces are tokens.
    size = model.tokenizer(QUERIES[1], return_tensors="pt")["input_ids"].shape[1]
    rendered = model.preprocess([(QUERIES[1], "")], prompt=reranker.prompt)["input_ids"].shape[1]
    room = reranker.room(512) - size
    assert 0 <= 512 - rendered - room <= 12
    tokens = [token for word in words for token in (" ", word)][1:]
    starts = [*range(0, len(tokens) - room, room), len(tokens) - room]
    parts = ["".join(tokens[start : start + room]) for start in starts]
    assert len(parts) > 2
    lengths = [model.preprocess([(QUERIES[1], part)], prompt=reranker.prompt)["input_ids"].shape[1] for part in parts]
    assert max(lengths) < 512
    assert_close(best.queries["teacher_logits"][:], [[max(raw(model, [(QUERIES[1], part) for part in parts]))]])


def test_the_fingerprint_of_a_cross_encoder(language_model):
    from sentence_transformers import CrossEncoder

    names = [load_reranker(str(language_model), device="cpu").fingerprint()]
    model = CrossEncoder(str(language_model), device="cpu")
    names.append(load_reranker(model).fingerprint())
    assert names[0] == names[1]
    model.prompts["web"] = "another task"
    names.append(load_reranker(model).fingerprint())
    model[1].true_token_id += 1
    names.append(load_reranker(model).fingerprint())
    model.tokenizer.chat_template = TEMPLATE.replace("Instruct", "Task")
    names.append(load_reranker(model).fingerprint())
    with torch.no_grad():
        model[0].model.model.norm.weight += 1.0
    names.append(load_reranker(model).fingerprint())
    assert len(set(names)) == 5


def test_a_bi_encoder_is_no_reranker(save_bert, tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    encoder = sentence_transformers.SentenceTransformer(str(save_bert(tmp_path / "encoder")), device="cpu")
    encoder.save_pretrained(str(tmp_path / "model"))
    with pytest.raises(ValueError, match=r"is not a trained cross-encoder: it has no .*hf-dse teacher"):
        load_reranker(str(tmp_path / "model"))


# Checks of scores


def test_inverted_scores_are_named(warnings):
    """Documents without a label count as others, unknown scores do not count."""
    columns = {
        "query": ["a", "b"],
        "documents": [[0, 1, 2], [0, 1, 2]],
        "labels": [[1, None, None], [1, 0, 0]],
        "teacher_logits": [[-3.0, 2.0, -4.0], [1.0, 5.0, None]],
    }
    check_scores(make_rankings(columns, {"text": ["x", "y", "z"]}), "my-teacher")
    assert len(warnings) == 1
    assert (
        "my-teacher: over 2 queries, a relevant document scores higher than another candidate in only 25 %"
        in warnings[0]
    )
    columns["teacher_logits"] = [[3.0, 2.0, -4.0], [1.0, 5.0, None]]
    check_scores(make_rankings(columns, {"text": ["x", "y", "z"]}))
    assert len(warnings) == 1
    del columns["teacher_logits"]
    with pytest.raises(ValueError, match="The teacher has no scores: add them with `score_candidates`"):
        check_scores(make_rankings(columns, {"text": ["x", "y", "z"]}))


# The commands


def write_data(folder, rows, name="train"):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def score_data(tmp_path):
    rows = [
        {"query": query, "documents": [TEXTS[row] for row in dict.fromkeys(rows) if row != 4]}
        for query, rows in zip(QUERIES, CANDIDATES, strict=True)
    ]
    write_data(tmp_path / "data", rows)
    return tmp_path / "data"


@pytest.mark.parametrize("ending", [".jsonl", ".parquet"])
def test_the_score_command_averages_rerankers(score_data, tmp_path, tokenizer, language_model, capsys, ending):
    plain = save_teacher(tmp_path / "teacher", tokenizer, num_labels=2)
    rankings = load_rankings(DataArguments(dataset_name=str(score_data)))["train"]
    scores = [
        score_candidates(name, rankings, windows="best", device="cpu", show_progress=False).queries["teacher_logits"][
            :
        ]
        for name in (plain, str(language_model))
    ]
    output = tmp_path / f"scored{ending}"
    command = ["score", "--model_name_or_path", plain, str(language_model), "--dataset_name", str(score_data),
               "--windows", "best", "--output_file", str(output), "--device", "cpu"]  # fmt: skip
    assert main(command) == 0
    assert f"3 queries with scored candidates (windows: best) written to {output}" in capsys.readouterr().out
    name = f"{describe_source(plain).name} and {describe_source(str(language_model)).name}"
    written = load_dataset("json" if ending == ".jsonl" else "parquet", data_files=str(output), split="train")
    assert set(written["teacher"]) == {f"{name} (windows: best)"}
    found = load_rankings(DataArguments(train_file=str(output)))["train"]
    assert found.queries["query"][:] == QUERIES
    assert found.queries["documents"][:] == rankings.queries["documents"][:]
    assert_close(found.queries["teacher_logits"][:], [np.mean(rows, axis=0) for rows in zip(*scores, strict=True)])
    assert len(list((tmp_path / ".hf-dse-scores").iterdir())) == 2


def test_errors_of_the_score_command(score_data, tmp_path, tokenizer, capsys):
    teacher = save_teacher(tmp_path / "teacher", tokenizer)
    output = tmp_path / "scored.jsonl"
    command = ["score", "--model_name_or_path", teacher, "--output_file", str(output), "--device", "cpu"]
    assert main([*command, "--dataset_name", str(score_data), "--bi_encoder"]) == 2
    assert "is a BertForSequenceClassification, a cross-encoder without vectors" in capsys.readouterr().err
    assert main([*command, "--dataset_name", "embedded", "--windows", "best"]) == 2
    assert "`--windows` is an option of rankings, and the data are pairs" in capsys.readouterr().err
    with torch.no_grad():
        model = make_teacher()
        model.classifier.weight.zero_()
    model.save_pretrained(teacher)
    assert main([*command, "--dataset_name", str(score_data)]) == 2
    assert f"{teacher}: all 8 scores are equal" in capsys.readouterr().err
    assert not output.exists()


def test_a_language_model_scores_pairs(language_model, tmp_path, capsys):
    from sentence_transformers import CrossEncoder

    rows = [{"sentence1": "word1 word2", "sentence2": "word3"}, {"sentence1": "word4", "sentence2": "word5 word6"}]
    write_data(tmp_path / "data", rows)
    output = tmp_path / "scored.jsonl"
    command = ["score", "--model_name_or_path", str(language_model), "--dataset_name", str(tmp_path / "data"),
               "--output_file", str(output), "--device", "cpu", "--symmetric", "false"]  # fmt: skip
    assert main(command) == 0
    found = [json.loads(line)["teacher_logits"] for line in output.read_text().splitlines()]
    expected = raw(CrossEncoder(str(language_model), device="cpu"), [tuple(row.values()) for row in rows])
    assert_close(found, [[value] for value in expected])


def test_a_student_learns_from_a_language_model_with_its_prompt(language_model, tmp_path):
    from sentence_transformers import CrossEncoder

    pairs = {"sentence1": ["word1 word2", "word4"], "sentence2": ["word3", "word5 word6"]}
    args = StudentArguments(model_name_or_path="a-student", teacher_name_or_path=str(language_model))
    training_args = DseTrainingArguments(output_dir=str(tmp_path), max_length=64, use_cpu=True, report_to="none")
    task, data = load_task(args, DataArguments(), Given(dataset=Dataset.from_dict({**pairs, "label": [0.0, 1.0]})))
    assert task.num_labels == 1
    found = score_parts(args, DataArguments(), training_args, task, data["train"], Given())["teacher_logits"][:]
    model = CrossEncoder(str(language_model), device="cpu")
    expected = raw(model, list(zip(pairs["sentence1"], pairs["sentence2"], strict=True)))
    assert_close(found, [[value] for value in expected])


def write_shard(path, queries, lists):
    columns = {"query": pa.array(queries, pa.string()), "documents": pa.array(lists, pa.list_(pa.string()))}
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), path)


def test_a_worker_returns_the_scores_of_the_local_engine(score_data, tmp_path, tokenizer):
    teachers = [save_teacher(tmp_path / f"teacher-{seed}", tokenizer, seed=seed) for seed in (0, 1)]
    rankings = load_rankings(DataArguments(dataset_name=str(score_data)))["train"]
    expected = np.mean(
        [
            np.concatenate(
                score_candidates(name, rankings, windows="best", show_progress=False).queries["teacher_logits"][:]
            )
            for name in teachers
        ],
        axis=0,
    )
    rows = [json.loads(line) for line in (score_data / "train.jsonl").read_text().splitlines()]
    # The same query in two rows.
    rows.append(rows[0])
    write_shard(tmp_path / "in/part.parquet", [row["query"] for row in rows], [row["documents"] for row in rows])
    write_shard(tmp_path / "in/bad.parquet", ["word1"], [["word2", None]])
    write_shard(tmp_path / "in/none.parquet", ["word1"], [None])
    load = partial(RankingScorer, ScoreArguments(teachers, "", windows="best"))
    worker = ShardWorker(load, "cpu", {**load("cpu").settings, "columns": ["query", "documents"]})

    def work(name):
        return worker({"shard": str(tmp_path / "in" / name), "output": str(tmp_path / "out" / name)})["error"]

    (tmp_path / "out").mkdir()
    assert work("part.parquet") == ""
    table = pq.read_table(tmp_path / "out/part.parquet")
    found = table["teacher_logits"].to_pylist()
    assert found[0] == found[3]
    np.testing.assert_allclose(np.concatenate(found[:3]), expected, rtol=0, atol=1e-5)
    assert b'"windows": "best"' in table.schema.metadata[b"hf_dse"]
    assert "document '1' is None, not a text" in work("bad.parquet")
    assert "the documents of query 0 are None, not a list" in work("none.parquet")


@pytest.mark.slow
def test_the_score_command_with_ray(score_data, tmp_path, tokenizer, capsys, monkeypatch):
    ray = pytest.importorskip("ray")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    teacher = save_teacher(tmp_path / "teacher", tokenizer)
    rows = [json.loads(line) for line in (score_data / "train.jsonl").read_text().splitlines()]
    for number, row in enumerate(rows):
        write_shard(tmp_path / f"in/part-{number}.parquet", [row["query"]], [row["documents"]])
    command = ["score", "--engine", "ray", "--model_name_or_path", teacher, "--dataset_name", str(tmp_path / "in"),
               "--output_file", str(tmp_path / "out"), "--windows", "best"]  # fmt: skip
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=100 * 2**20, _node_ip_address="127.0.0.1")
    try:
        assert main(command) == 0
    finally:
        ray.shutdown()
    assert "3 queries with scored candidates (windows: best) written to" in capsys.readouterr().out
    rankings = load_rankings(DataArguments(dataset_name=str(score_data)))["train"]
    expected = score_candidates(teacher, rankings, windows="best", show_progress=False).queries["teacher_logits"][:]
    found = [
        pq.read_table(tmp_path / f"out/part-{number}.parquet")["teacher_logits"][0].as_py() for number in range(3)
    ]
    assert_close(found, expected)


# Fine-tuning a reranker


def make_rows(count, seed, num_negatives=6):
    """A document is relevant if it contains the word of the query."""
    draw = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        word = WORDS[number % 8]
        texts = [" ".join(draw.choice(WORDS[8:], size=3 + number % 5)) for _ in range(num_negatives + 1)]
        documents = list(dict.fromkeys([f"{texts[0]} {word}", *texts[1:]]))
        rows.append({"query": f"{word} {WORDS[20 + number % 7]}", "documents": documents,
                     "labels": [1.0] + [0.0] * (len(documents) - 1)})  # fmt: skip
    return list({row["query"]: row for row in rows}.values())


@pytest.fixture
def folder(tmp_path, tokenizer):
    write_data(tmp_path / "data", make_rows(48, seed=0))
    write_data(tmp_path / "data", make_rows(16, seed=1), "validation")
    write_data(tmp_path / "data", make_rows(16, seed=2), "test")
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    sizes |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    BertModel(BertConfig(vocab_size=45, max_position_embeddings=32, **sizes)).save_pretrained(tmp_path / "encoder")
    tokenizer.save_pretrained(tmp_path / "encoder")
    return tmp_path


def run(folder, name, data=None, overwrite=False, num_negatives=4, **options):
    defaults = {"num_train_epochs": 2, "max_length": 24, "per_device_train_batch_size": 8, "use_cpu": True,
                "report_to": "none", "disable_tqdm": True}  # fmt: skip
    return train_reranker(
        TeacherArguments(str(folder / "encoder"), num_negatives=num_negatives, overwrite_output_dir=overwrite),
        DataArguments(dataset_name=str(folder / "data") if data is None else str(data)),
        PairTrainingArguments(str(folder / name), **(defaults | options)),
    )


def test_a_reranker_learns_and_loads_everywhere(folder):
    metrics = run(folder, "teacher", num_train_epochs=15, learning_rate=3e-3)
    assert metrics["eval_ndcg@10"] > 0.9 and metrics["test_ndcg@10"] > 0.8
    assert json.loads((folder / "teacher/all_results.json").read_text())["test_mrr@10"] == metrics["test_mrr@10"]
    test = load_rankings(DataArguments(dataset_name=str(folder / "data")))["test"]
    scored = score_candidates(str(folder / "teacher"), test, device="cpu", show_progress=False)
    logits = scored.queries["teacher_logits"][:]
    ranks = [1 + sum(value > row[0] for value in row[1:]) for row in logits]
    assert np.mean([1 / rank for rank in ranks]) == pytest.approx(metrics["test_mrr@10"], abs=1e-4)
    assert np.mean([1 / math.log2(1 + rank) for rank in ranks]) == pytest.approx(metrics["test_ndcg@10"], abs=1e-4)
    tokenizer = AutoTokenizer.from_pretrained(folder / "teacher")
    assert tokenizer.model_max_length == 24
    # sentence-transformers applies no sigmoid to the scores.
    cross_encoder = pytest.importorskip("sentence_transformers").CrossEncoder
    model = cross_encoder(str(folder / "teacher"), device="cpu")
    texts = test.corpus["text"][:]
    pairs = [(test.queries["query"][0], texts[row]) for row in test.queries["documents"][0]]
    assert_close([model.predict(pairs, show_progress_bar=False)], logits[:1])


def test_negatives_are_drawn_anew_in_each_epoch(tokenizer):
    rankings = make_rankings(
        {
            "query": ["word1", "word2"],
            "documents": [list(range(12)), [12, 13]],
            "labels": [[2] * 2 + [0] * 9 + [None], [1, 0]],
        },
        {"text": [f"{word} word0" for word in WORDS[:14]]},
    )
    rows = training_rows(rankings)
    assert rows["positive"][:] == [0, 1, 12] and rows["negatives"][0] == list(range(2, 11))
    collator = CandidateCollator(tokenizer, 16, rankings.corpus, 4, seed=3)
    words = tokenizer.convert_tokens_to_ids(WORDS[:14])

    def draw(collator, features):
        batch = collator(features)
        return [words.index(ids[3]) for ids in batch["input_ids"].tolist()], batch["labels"].tolist()

    drawn = []
    for epoch in (0, 1, 2):
        collator.set_epoch(epoch)
        documents, labels = draw(collator, list(rows))
        assert labels == [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0]
        assert [documents[0], documents[5], *documents[10:]] == [0, 1, 12, 13]
        for part in (documents[1:5], documents[6:10]):
            assert len(set(part)) == 4 and set(part) <= set(range(2, 11))
        # The draw does not depend on the other rows of the batch.
        assert draw(collator, [rows[1]])[0] == documents[5:10]
        drawn.append(tuple(documents))
    assert len(set(drawn)) == 3
    other = CandidateCollator(tokenizer, 16, rankings.corpus, 4, seed=4)
    assert tuple(draw(other, list(rows))[0]) != drawn[0]


def test_workers_that_stay_know_the_epoch(tokenizer):
    rankings = make_rankings(
        {"query": ["word1"], "documents": [list(range(12))], "labels": [[1] + [0] * 11]},
        {"text": [f"{word} word0" for word in WORDS[:12]]},
    )
    collator = CandidateCollator(tokenizer, 16, rankings.corpus, 4)
    options = {"collate_fn": collator, "num_workers": 1, "persistent_workers": True}
    loader = torch.utils.data.DataLoader(training_rows(rankings), **options)
    drawn = []
    for epoch in range(3):
        collator.set_epoch(epoch)
        (batch,) = loader
        assert torch.equal(batch["input_ids"], collator([training_rows(rankings)[0]])["input_ids"])
        drawn.append(tuple(batch["input_ids"].flatten().tolist()))
    assert len(set(drawn)) == 3


def test_the_loss_is_the_cross_entropy_of_each_list():
    torch.manual_seed(0)
    scores = torch.randn(9, dtype=torch.float64).float().requires_grad_()
    labels = torch.tensor([1, 0, 0, 0, 1, 0, 1, 0, 0])
    expected = -sum(torch.log_softmax(part, dim=0)[0] for part in scores.split([4, 2, 3])) / 3
    loss = list_loss(scores, labels)
    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)
    loss.backward()
    assert scores.grad.isfinite().all()


def test_only_documents_are_truncated(tokenizer):
    rankings = make_rankings(
        {"query": [" ".join(WORDS[:9])], "documents": [[0, 1]], "labels": [[1, 0]]}, {"text": [TEXTS[3], "word3"]}
    )
    batch = CandidateCollator(tokenizer, 16, rankings.corpus, 4)(list(training_rows(rankings)))
    assert tokenizer.decode(batch["input_ids"][0]).startswith(f"[CLS] {' '.join(WORDS[:9])} [SEP] word0 word7")
    assert batch["input_ids"].shape == (2, 16)


def weights(folder):
    return AutoModelForSequenceClassification.from_pretrained(folder).state_dict()


@pytest.mark.parametrize("every", ["epoch", "steps"])
def test_a_resumed_training_equals_an_uninterrupted_one(folder, monkeypatch, every):
    options = {"save_strategy": every, "eval_strategy": every, "save_steps": 2, "eval_steps": 2, "num_train_epochs": 3}
    unbroken = run(folder, "unbroken", **options)

    class Stop(Exception):
        pass

    def stop(self, args, state, control, **kwargs):
        if state.global_step == {"epoch": 6, "steps": 8}[every]:
            raise Stop

    with monkeypatch.context() as patch:
        patch.setattr(FiniteLossCallback, "on_save", stop)
        with pytest.raises(Stop):
            run(folder, "broken", **options)
    resumed = run(folder, "broken", resume_from_checkpoint="last", **options)
    assert resumed["eval_ndcg@10"] == unbroken["eval_ndcg@10"]
    expected, actual = weights(folder / "unbroken"), weights(folder / "broken")
    assert all(torch.equal(actual[name], expected[name]) for name in expected)


def test_accumulated_gradients_are_those_of_a_larger_batch(folder):
    options = {"max_steps": 1, "eval_strategy": "no", "optim": "sgd", "warmup_steps": 0, "max_grad_norm": 0.0,
               "train_sampling_strategy": "sequential"}  # fmt: skip
    run(folder, "start", learning_rate=0.0, **options)
    run(folder, "one", learning_rate=10.0, **options)
    run(folder, "four", learning_rate=10.0, per_device_train_batch_size=2, gradient_accumulation_steps=4, **options)
    start, one, four = (weights(folder / name) for name in ("start", "one", "four"))
    assert max((one[name] - start[name]).abs().max() for name in one) > 1e-3
    for name in one:
        torch.testing.assert_close(one[name], four[name], rtol=0, atol=1e-6)


def test_errors_of_a_training(folder, warnings):
    positives = [row | {"documents": row["documents"][:1], "labels": [1.0]} for row in make_rows(8, seed=0)]
    write_data(folder / "positives", positives)
    with pytest.raises(
        ValueError, match="None of the 8 training queries has both .* add negatives with `hf-dse mine`"
    ):
        run(folder, "teacher", data=folder / "positives")
    rows = make_rows(8, seed=0)
    write_data(folder / "some", [*positives[:2], *rows[2:]])
    write_data(folder / "some", positives, "validation")
    metrics = run(folder, "some-teacher", data=folder / "some", max_steps=1)
    assert not any("ndcg" in name for name in metrics)
    assert any("2 of 8 training queries have no relevant document or no negative" in text for text in warnings)
    assert any("8 of 8 queries have no relevant document or no other candidate" in text for text in warnings)
    with pytest.raises(FileExistsError, match="--resume_from_checkpoint last"):
        run(folder, "some-teacher", data=folder / "some")
    rows[3]["query"] = " ".join(WORDS[:20])
    write_data(folder / "long", rows)
    with pytest.raises(ValueError, match="The query 'word0 word1 .*leaves no room for a document in max_length=23"):
        run(folder, "teacher", data=folder / "long", max_length=23)
    run(folder, "teacher", data=folder / "long", max_length=24, max_steps=1)
    number = len(rows[3]["documents"])
    total = sum(len(row["documents"]) for row in rows)
    assert any(f"{number} of {total} training pairs do not fit into 24 tokens" in text for text in warnings)
    with pytest.raises(ValueError, match="num_negatives=0: it has to be at least 1"):
        TeacherArguments("encoder", num_negatives=0)


def test_the_teacher_command(folder, capsys):
    output = folder / "teacher"
    command = ["teacher", "--model_name_or_path", str(folder / "encoder"), "--dataset_name", str(folder / "data"),
               "--num_negatives", "2", "--max_length", "24", "--num_train_epochs", "1", "--use_cpu", "--bf16",
               "--disable_tqdm", "true", "--report_to", "none", "--output_dir", str(output)]  # fmt: skip
    assert main(command) == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines()[:3]] == ["split", "validation", "test"]
    assert "ndcg@10" in out and "mrr@10" in out and f"Saved to {output}" in out
    scored = folder / "scored.parquet"
    score = ["score", "--model_name_or_path", str(output), "--dataset_name", str(folder / "data"), "--split", "test",
             "--output_file", str(scored), "--device", "cpu"]  # fmt: skip
    assert main(score) == 0
    count = len(make_rows(16, seed=2))
    assert f"{count} queries with scored candidates (windows: first) written to {scored}" in capsys.readouterr().out
    assert load_rankings(DataArguments(train_file=str(scored)))["train"].has_scores
