# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Benchmarks: what is timed and how it is summed up, counted operations, ranking, and the error of projections."""

import copy
import json
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertConfig, BertForSequenceClassification, BertModel, DistilBertConfig

import hf_dse.bench.ranking
import hf_dse.bench.speed
from hf_dse import DseForSequenceClassification, DseModel
from hf_dse.bench.arguments import MODELS
from hf_dse.bench.attention import (
    AttentionArguments,
    attention_matrix,
    context_errors,
    cumulative_energy,
    cut_documents,
    error_lines,
    measure_attention,
    measure_spectrum,
    project,
    run_softmax,
)
from hf_dse.bench.encoders import BUILDERS, CROSS_ENCODER, MODULES, Shape, count_flops, read_shape
from hf_dse.bench.ranking import RankArguments, measure_ranking, rank_table, score_query, summarize_ranking
from hf_dse.bench.speed import (
    MATMUL,
    Job,
    SpeedArguments,
    exponent_table,
    fit_exponents,
    run_speed,
    speed_table,
    summarize_speed,
)
from hf_dse.bench.timing import interleave
from hf_dse_cli import main


TINY = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
TEXTS = [f"the {age} {animal} {verb} on the mat" for age in ("old", "new") for animal in "xyz" for verb in "pq"]


def installed(name):
    return name not in MODULES or find_spec(MODULES[name]) is not None


@pytest.fixture
def save_model(tmp_path, bert_tokenizer):
    """Saves a tiny BERT whose attention is far from uniform, with its tokenizer."""

    def save(model_class=BertModel, **fields):
        torch.manual_seed(0)
        config = BertConfig(vocab_size=len(bert_tokenizer), max_position_embeddings=32, **TINY, **fields)
        model = model_class(config)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.3)
        path = tmp_path / model_class.__name__
        model.save_pretrained(path)
        bert_tokenizer.save_pretrained(path)
        return str(path)

    return save


@pytest.fixture
def text_file(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS))
    return str(path)


# Timing


def test_what_is_timed_unasked():
    """The options know the models without importing torch. Those that take minutes are asked for."""
    assert list(MODELS) == list(BUILDERS)
    assert not {"longformer", "bigbird"} & {*SpeedArguments().models}
    with pytest.raises(ValueError, match="the known models are bert-sdpa, dse-learned"):
        SpeedArguments(models=["gpt"])


def test_every_round_times_each_task_once():
    seen = []
    tasks = {name: lambda name=name: seen.append(name) for name in "abc"}
    seconds = interleave(tasks, rounds=3)
    assert seen == list("abc" * 3)
    assert {name: len(values) for name, values in seconds.items()} == {"a": 3, "b": 3, "c": 3}


def test_short_tasks_are_repeated(monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr("hf_dse.bench.timing.time", SimpleNamespace(perf_counter=lambda: float(next(clock))))
    seen = []
    # The clock ticks once at the start and once after every call.
    assert interleave({"a": lambda: seen.append("a")}, rounds=2, min_seconds=4.0) == {"a": [1.0, 1.0]}
    assert len(seen) == 8


# Speed


@pytest.mark.parametrize("name", [name for name in BUILDERS if installed(name)])
def test_every_model_runs(name):
    # The longest input is beyond 704 tokens, where BigBird's attention becomes sparse.
    for length, train in ((64, True), (128, False), (768, False)):
        job = Job(Shape(**TINY, vocab_size=50, linformer_length=8), length, batch_size=2, train=train)
        states = job.make_task(name)()
        width = 768 if name == CROSS_ENCODER else 16
        assert states.shape == (2, length, width) and states.dtype == torch.float32
        assert states.isfinite().all() and states.requires_grad == train


def test_without_attention_a_token_sees_no_other():
    model = Job(Shape(**TINY, vocab_size=50, linformer_length=4), 12, 1).build("no-attention")
    texts = torch.arange(5, 17).repeat(2, 1)
    texts[1, 3] = 40
    one, other = model(texts).last_hidden_state
    assert (one != other).any(dim=-1).nonzero().flatten().tolist() == [3]
    # The weights of dse-strided, but those of keys and values.
    left_out = (
        BUILDERS["dse-strided"](Shape(**TINY, vocab_size=50), 12).state_dict().keys() - model.state_dict().keys()
    )
    assert {name.split(".")[-2] for name in left_out} == {"key", "value"}


def test_training_computes_all_gradients():
    job = Job(Shape(**TINY, vocab_size=50, linformer_length=8), 32, batch_size=2, train=True)
    model = job.build("dse-learned")
    counts = []
    for train in (False, True):
        with FlopCounterMode(display=False) as counter:
            states = hf_dse.bench.speed.token_states(model, torch.ones(2, 32, dtype=torch.long))
            if train:
                states.sum().backward()
        counts.append(counter.get_total_flops())
    # What is timed as training is counted as three times the products of the forward pass.
    assert counts[1] == pytest.approx(3 * counts[0])


def test_models_have_the_number_format_asked_for():
    job = Job(Shape(**TINY, vocab_size=50, linformer_length=8), 64, batch_size=2, dtype="bfloat16")
    assert {parameter.dtype for parameter in job.build("bert-sdpa").parameters()} == {torch.bfloat16}
    assert torch.get_default_dtype() == torch.float32
    assert job.make_task("dse-learned")().dtype == torch.bfloat16


@pytest.mark.slow
def test_memory_of_a_pass_grows_with_the_batch():
    shape = Shape(**TINY, vocab_size=50, linformer_length=8)
    small, large = (Job(shape, 512, size).measure_memory("bert-eager") for size in (1, 32))
    # 32 texts and two heads with 512 x 512 attention weights of 4 bytes, beside their logits
    assert large - small > 31 * 2 * 512**2 * 4 / 2**20


@pytest.mark.parametrize("length", [5, 8, 9, 21])
@pytest.mark.parametrize(
    "fields",
    [
        {"linformer_projection": "learned"},
        {"linformer_projection": "learned", "linformer_sharing": "none"},
        {"linformer_projection": "learned", "linformer_sharing": "headwise"},
        {"linformer_projection": "learned", "linformer_sharing": "layerwise"},
        {"linformer_projection": "conv"},
        {"linformer_projection": "conv", "linformer_sharing": "headwise"},
        {"linformer_projection": "mean"},
        {"linformer_projection": "strided", "linformer_length": [4, 16]},
        {"linformer_projection": "max", "layer_types": ["full_attention", "linear_attention"]},
        {"layer_types": ["chunked_attention", "linear_attention"], "attention_chunk_size": 7},
        {"linformer_projection": "strided", "funnel_layers": 1},
    ],
)
def test_counted_operations_are_those_of_torch(make_model, fields, length):
    model = make_model(DseModel, **fields)
    model.set_attn_implementation("eager")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.randint(1, 20, (3, length)))
    assert count_flops(model.config, 3, length) == counter.get_total_flops()


def test_medians_and_ratios():
    seconds = {MATMUL: [1.0], "base": [1.0, 4.0, 2.0], "fast": [0.5, 0.5, 0.5]}
    base, fast = summarize_speed(seconds, 100, 8, "base")
    assert (base["ms"], base["ms_min"], base["ms_max"]) == (2000.0, 1000.0, 4000.0)
    assert base["speedup"] == 1.0 and base["tokens_per_second"] == 400.0
    # Round by round 2, 8 and 4 times as fast
    assert fast["speedup"] == 4.0
    assert summarize_speed({"fast": [1.0]}, 100, 8, "base")[0]["speedup"] is None


def test_exponents_are_those_of_a_text():
    rows = []
    for length in (256, 1024, 2048, 4096):
        size = 8192 // length
        timings = {"softmax": [size * 1e-9 * length**2], "linear": [size * 1e-6 * length + (length < 1024)]}
        rows += summarize_speed(timings, length, size, "softmax")
    rows += [
        {"model": "softmax", "length": 8192, "skipped": "slow"},
        *summarize_speed({"once": [1.0]}, 2048, 4, "softmax"),
    ]
    assert fit_exponents(rows) == pytest.approx({"softmax": 2.0, "linear": 1.0})
    for row in rows:
        # Not measured for one of them.
        row["peak_memory_mb"] = row["batch_size"] * row["length"] ** 1.5 if row["model"] == "linear" else None
    memory = fit_exponents(rows, "peak_memory_mb")
    assert memory == pytest.approx({"linear": 1.5})
    assert exponent_table(fit_exponents(rows), memory).splitlines()[2:] == [
        "| softmax | 2.00 | - |",
        "| linear | 1.00 | 1.50 |",
    ]
    assert "memory" not in exponent_table(fit_exponents(rows), {})


def test_a_shape_is_read_from_a_config(tmp_path, save_model):
    assert read_shape(None) == Shape(384, 6, 12, 1536, 30522)
    assert read_shape(save_model()).hidden_size == 16
    DistilBertConfig(dim=24, n_layers=3, n_heads=4, hidden_dim=40, vocab_size=9).save_pretrained(tmp_path / "distil")
    assert read_shape(str(tmp_path / "distil")) == Shape(24, 3, 4, 40, 9)
    (tmp_path / "t5").mkdir()
    (tmp_path / "t5" / "config.json").write_text('{"model_type": "t5"}')
    with pytest.raises(ValueError, match="of the type 't5', whose config has no number `intermediate_size`"):
        read_shape(str(tmp_path / "t5"))


def test_what_fails_or_is_too_slow_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(hf_dse.bench.speed, "read_shape", lambda _: Shape(**TINY, vocab_size=50))
    args = SpeedArguments(
        lengths=[65, 128],
        batch_tokens=128,
        models=["nystromformer", "dse-mean", "dse-chunked", "dse-funnel", "fnet"],
        linformer_length=8,
        rounds=1,
        min_seconds=0.0,
        max_seconds=0.0,
        matmul_size=8,
        device="cpu",
        output_dir=str(tmp_path),
    )
    results = run_speed(args)
    rows = {(row["model"], row["length"]): row for row in results["rows"]}
    assert results["baseline"] == "nystromformer"
    # Nystromformer fails at 65 tokens, so it was not too slow there, and there is no ratio to it.
    assert "needs a multiple of its 64 landmarks, not 65 tokens" in rows["nystromformer", 65]["skipped"]
    assert rows["nystromformer", 128]["ms"] > 0 and rows["dse-mean", 65]["speedup"] is None
    assert "left out, a batch took" in rows["dse-mean", 128]["skipped"]
    assert (rows["dse-mean", 65]["batch_size"], rows["nystromformer", 128]["batch_size"]) == (1, 1)
    flops = count_flops(Job(Shape(**TINY, vocab_size=50, linformer_length=8), 65, 1).build("dse-mean").config, 1, 65)
    share = flops / rows["dse-mean", 65]["seconds"][0] / (1e9 * results["matmul_gflops"]["65"])
    assert rows["dse-mean", 65]["flop_share"] == pytest.approx(share) and rows["fnet", 65]["flop_share"] is None
    table = speed_table(results["rows"], results["baseline"])
    assert "| 128 | dse-mean | - | - |" in table and "fnet at 128 tokens: left out, a batch took" in table


def test_speed_command(tmp_path, save_model, monkeypatch, capsys):
    monkeypatch.setitem(MODULES, "linformer", "no_such_module")
    argv = ["--lengths", "1024", "2048", "--batch_size", "1", "--models", "dse-mean", "linformer", "bert-sdpa"]
    argv += ["--linformer_length", "8", "--shape_from", save_model(), "--rounds", "2", "--min_seconds", "0"]
    argv += ["--matmul_size", "16", "--device", "cpu", "--output_dir", str(tmp_path / "out")]
    assert main(["bench", *argv]) == 0
    out = capsys.readouterr().out
    assert "| 2048 | bert-sdpa |" in out and "x bert-sdpa" in out and "length to the power of" in out
    assert "Not installed (`pip install hf-dse[bench]`): linformer" in out
    report = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [(row["model"], row["length"]) for row in report["rows"]] == [
        ("dse-mean", 1024),
        ("bert-sdpa", 1024),
        ("dse-mean", 2048),
        ("bert-sdpa", 2048),
    ]
    assert report["baseline"] == "bert-sdpa" and set(report["exponents"]) == {"dse-mean", "bert-sdpa"}
    assert report["options"]["shape_from"] == "BertModel" and report["shape"]["hidden_size"] == 16
    assert report["versions"]["torch"] == torch.__version__ and report["threads"] == torch.get_num_threads()
    assert str(tmp_path) not in json.dumps(report)
    assert (tmp_path / "out" / "plot.png").read_bytes().startswith(b"\x89PNG")

    assert main(["bench", "speed", "--models", "linformer"]) == 2
    assert "linformer: not installed" in capsys.readouterr().err


# Ranking


@pytest.mark.parametrize(("stored", "length"), [(64, 32), (20, 20)], ids=["the model's limit", "the stored length"])
def test_scores_are_those_of_single_pairs(bert_tokenizer, save_model, stored, length):
    tokenizer = copy.deepcopy(bert_tokenizer)
    tokenizer.model_max_length = stored
    model = BertForSequenceClassification.from_pretrained(save_model(BertForSequenceClassification, num_labels=3))
    texts = [*TEXTS, "a cat", "x " * 60]
    scores = score_query(model.eval(), tokenizer, "a dog", texts, batch_size=5)
    for text, row in zip(texts, scores, strict=True):
        alone = tokenizer("a dog", text, truncation=True, max_length=length, return_tensors="pt")
        torch.testing.assert_close(model(**alone).logits[0].detach(), row, rtol=1e-4, atol=1e-4)


def test_extrapolated_costs():
    seconds = {"cross-encoder": [1.0, 2.0, 3.0], "fast": [0.1, 0.1, 0.1]}
    cross, fast = summarize_ranking(seconds, 1000, 10, 50.0, {"fast": 2.0}, 100)
    assert (cross["online_ms"], cross["online_extrapolated"], cross["offline_seconds"]) == (200_000.0, True, 0.0)
    assert (fast["online_ms"], fast["online_extrapolated"]) == (100.0, False)
    assert (fast["offline_seconds"], fast["offline_extrapolated"]) == (52.0, True)
    assert cross["speedup"] == 1.0 and fast["speedup"] == pytest.approx(2000.0)
    table = rank_table([cross, fast])
    assert "| 1,000 | cross-encoder | 0.00 | ~200,000.00 | 1.0 |" in table
    assert "| 1,000 | fast | ~52.00 | 100.00 | 2,000.0 |" in table
    (exact,) = summarize_ranking({"cross-encoder": [1.0]}, 10, 10, 0.5, {}, 10)
    assert exact["online_ms"] == 1000.0 and not exact["online_extrapolated"]


@pytest.mark.parametrize("similarity", ["cosine", "mlp"])
def test_ranking_counts_pairs(make_model, bert_tokenizer, save_model, monkeypatch, similarity):
    cross_encoder = BertForSequenceClassification.from_pretrained(save_model(BertForSequenceClassification))
    scored = []

    def count(*args, texts, **kwargs):
        scored.append(len(texts))
        return score_query(*args, texts=texts, **kwargs)

    monkeypatch.setattr(hf_dse.bench.ranking, "score_query", count)
    student = make_model(DseForSequenceClassification, similarity=similarity, num_labels=2)
    args = RankArguments("", candidates=[40, 4], max_pairs=7, rounds=2, top_k=3, pool=5, hnsw_from=40)
    rows = measure_ranking(student, bert_tokenizer, cross_encoder, bert_tokenizer, TEXTS, args)
    # Once to warm up and once for each round; of the nearest, 5 at most
    assert sorted(scored[:6]) == [4] * 6 and sorted(scored[6:]) == [5] * 3 + [7] * 3
    ways = ["cross-encoder", "student, exact search", "student, mlp head on all", "student, mlp head on 5"]
    ways += ["exact search, cross-encoder on 5"]
    faiss = ["student, faiss flat", "student, faiss HNSW"] if find_spec("faiss") else []
    assert [row["way"] for row in rows if row["candidates"] == 4] == [*ways[:2], *faiss[:1], *ways[2:]]
    assert [row["way"] for row in rows if row["candidates"] == 40] == [*ways[:2], *faiss, *ways[2:]]
    marked = [(row["candidates"], row["way"]) for row in rows if row["online_extrapolated"]]
    assert marked == [(40, "cross-encoder")]
    assert all(row["offline_extrapolated"] == (row["candidates"] == 40) for row in rows if row["way"] in ways[1:])
    assert all(row["online_ms"] > 0 for row in rows)


def test_rank_command(tmp_path, make_model, bert_tokenizer, save_model, text_file, capsys):
    make_model().save_pretrained(tmp_path / "student")
    bert_tokenizer.save_pretrained(tmp_path / "student")
    argv = ["bench", "rank", "--model_name_or_path", str(tmp_path / "student"), "--device", "cpu"]
    argv += ["--cross_encoder", save_model(BertForSequenceClassification), "--output_dir", str(tmp_path / "out")]
    argv += ["--candidates", "5", "50", "--max_pairs", "5", "--rounds", "1", "--top_k", "2"]
    assert main([*argv, "--texts", text_file]) == 0
    assert "| 50 | cross-encoder | 0.00 | ~" in capsys.readouterr().out
    report = json.loads((tmp_path / "out" / "results.json").read_text())
    assert {row["candidates"] for row in report["rows"]} == {5, 50}
    assert report["options"]["texts"] == "texts.txt" and report["options"]["model_name_or_path"] == "student"
    assert str(tmp_path) not in json.dumps(report)

    # Without texts of one's own the embedded pairs are ranked, and a student has to be DSE.
    assert main([*argv, "--model_name_or_path", save_model()]) == 2
    assert "The student is of the type 'bert'" in capsys.readouterr().err


# Attention


@pytest.fixture
def softmax(make_model):
    return make_model(DseModel, layer_types=["full_attention"] * 2)


@pytest.mark.parametrize("name", ["mean", "max", "strided", "learned"])
def test_there_is_no_error_up_to_k_tokens(softmax, name):
    run = run_softmax(softmax, torch.randint(5, 40, (1, 12)))
    for k in (12, 20):
        torch.testing.assert_close(context_errors(project(softmax, k, name), run), torch.zeros(2), rtol=0, atol=1e-5)
    assert (context_errors(project(softmax, 6, name), run) > 1e-2).all()


def test_the_error_is_that_of_a_plain_computation(softmax):
    input_ids = torch.randint(5, 40, (1, 10))
    run = run_softmax(softmax, input_ids)
    errors = context_errors(project(softmax, 4, "mean"), run)
    states = softmax(input_ids, output_hidden_states=True).hidden_states
    # First and last token stay, the eight between them are two segments of four tokens.
    pool = torch.zeros(4, 10)
    pool[0, 0] = pool[3, 9] = 1.0
    pool[1, 1:5] = pool[2, 5:9] = 0.25
    counts = torch.tensor([1.0, 4.0, 4.0, 1.0])
    for number, layer in enumerate(softmax.encoder.layer):
        x, attention = states[number][0].detach(), layer.attention.self
        expected, found = torch.empty(10, 16), torch.empty(10, 16)
        for head in (slice(0, 8), slice(8, 16)):
            query = attention.query(x)[:, head]
            logits = query @ attention.key(x)[:, head].T / 8**0.5
            expected[:, head] = logits.softmax(dim=-1) @ attention.value(x)[:, head]
            logits = query @ attention.key(pool @ x)[:, head].T / 8**0.5 + counts.log()
            found[:, head] = logits.softmax(dim=-1) @ attention.value(pool @ x)[:, head]
        plain = ((found - expected) ** 2).sum().sqrt() / (expected**2).sum().sqrt()
        assert errors[number].item() == pytest.approx(plain.item(), rel=1e-4)


def test_the_energy_of_a_known_matrix():
    basis, _ = torch.linalg.qr(torch.randn(4, 4, generator=torch.Generator().manual_seed(0)))
    matrix = basis @ torch.diag(torch.tensor([1.0, 3.0, 0.0, 2.0])) @ basis.T
    expected = torch.tensor([9 / 14, 13 / 14, 1.0, 1.0], dtype=torch.float64)
    torch.testing.assert_close(cumulative_energy(matrix), expected, rtol=1e-5, atol=1e-5)


@torch.inference_mode()
def test_the_spectrum_is_that_of_the_recorded_attention(softmax):
    runs = [run_softmax(softmax, torch.randint(5, 40, (1, 12))) for _ in range(2)]
    rows = measure_spectrum(softmax, runs, [1, 5, 20])
    softmax.set_attn_implementation("eager")
    for number, row in enumerate(rows):
        shares, counts = [], []
        for run in runs:
            recorded = softmax(run.input_ids, output_attentions=True).attentions[number]
            attention = softmax.encoder.layer[number].attention.self
            torch.testing.assert_close(attention_matrix(attention, run.hidden_states[number]), recorded)
            for matrix in recorded[0]:
                energy = torch.linalg.svdvals(matrix) ** 2
                shares.append([(energy[:k].sum() / energy.sum()).item() for k in (1, 5, 20)])
                counts.append(next(i for i in range(1, 13) if energy[:i].sum() >= 0.9 * energy.sum()))
        assert list(row["shares"].values()) == pytest.approx(torch.tensor(shares).mean(dim=0).tolist())
        assert list(row["shares"]) == ["1", "5", "20"]
        assert (row["n"], row["layer"]) == (12, number)
        assert row["num_values"] == pytest.approx(sum(counts) / len(counts))


def test_documents_have_exactly_the_length_asked_for(bert_tokenizer, roberta_tokenizer):
    for tokenizer in (bert_tokenizer, roberta_tokenizer):
        documents = cut_documents(tokenizer, TEXTS, 30, 3)
        assert [len(document) for document in documents] == [30] * 3
        begin, end = tokenizer("a")["input_ids"][0], tokenizer("a")["input_ids"][-1]
        assert all(document[0] == begin and document[-1] == end for document in documents)
        assert documents[0] != documents[1]
    assert cut_documents(bert_tokenizer, [*TEXTS[:5]], 30, 3)
    with pytest.raises(ValueError, match="The 2 texts have fewer than 30 tokens altogether"):
        cut_documents(bert_tokenizer, TEXTS[:2], 30, 3)


def test_attention_command(tmp_path, save_model, text_file, capsys):
    argv = ["bench", "attention", "--model_name_or_path", save_model(), "--texts", text_file, "--num_texts", "2"]
    argv += ["--lengths", "8", "40", "--projected_lengths", "4", "8", "--max_spectrum_length", "8"]
    assert main([*argv, "--device", "cpu", "--output_dir", str(tmp_path / "out")]) == 0
    out = capsys.readouterr().out
    assert "| projection | n | k | mean % | layer 0 | layer 1 | 1 - cosine |" in out
    assert "| n | layer | values for 90 % | % in first 4 | % in first 8 |" in out
    report = json.loads((tmp_path / "out" / "results.json").read_text())
    errors = {(row["projection"], row["n"], row["k"]): row for row in report["errors"]}
    assert len(errors) == 5 * 2 * 2 and report["num_texts"] == {"8": 2, "40": 2}
    for name in ("mean", "max", "strided", "learned"):
        assert errors[name, 8, 8]["error"] < 1e-5 < errors[name, 8, 4]["error"]
        assert abs(errors[name, 8, 8]["embedding_error"]) < 1e-5 < errors[name, 40, 8]["embedding_error"]
    # A learned projection starts from means; random rows mix the tokens at any length.
    assert errors["learned", 40, 8]["error"] == pytest.approx(errors["mean", 40, 8]["error"])
    assert errors["random", 8, 8]["error"] > 1e-2
    assert [(row["n"], row["layer"]) for row in report["spectrum"]] == [(8, 0), (8, 1)]
    assert all(row["shares"]["8"] == pytest.approx(1.0) for row in report["spectrum"])
    assert (tmp_path / "out" / "plot.png").is_file()


def test_the_plot_has_only_what_is_projected():
    rows = [{"projection": "mean", "n": n, "k": 8, "error": n / 100} for n in (8, 16, 32)]
    assert error_lines(rows) == {"mean": {"8": ([16, 32], [0.16, 0.32])}}


def test_positions_are_extended_as_asked(save_model, text_file):
    results = {}
    for extension in ("dynamic", "tile"):
        args = AttentionArguments(
            save_model(), text_file, lengths=[40], projected_lengths=[4], projections=["mean"], device="cpu"
        )
        args.position_extension, args.num_texts, args.max_spectrum_length = extension, 1, 1
        (results[extension],) = measure_attention(args)["errors"]
    assert results["tile"]["layer_errors"] != results["dynamic"]["layer_errors"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["memory"], "There is no benchmark 'memory'; the benchmarks are speed, rank, attention, long"),
        (["--models", "gpt"], "invalid choice: 'gpt'; choose from bert-sdpa, dse-learned"),
        (["speed", "--lengths", "0"], "lengths=[0]: it has to be at least 1"),
        (["speed", "--dtype", "int8"], "invalid choice: 'int8'"),
        (["rank", "--model_name_or_path", "x"], "required: --cross_encoder"),
        (
            ["rank", "--model_name_or_path", "x", "--cross_encoder", "y", "--pool", "3"],
            "pool=3 is below top_k=10: raise `pool`",
        ),
        (["attention", "--model_name_or_path", "x"], "required: --texts"),
        (
            ["attention", "--model_name_or_path", "x", "--texts", "y", "--projections", "min"],
            "invalid choice: 'min'; choose from mean, max, strided, learned, random",
        ),
    ],
)
def test_errors(argv, message, capsys):
    assert main(["bench", *argv]) == 2
    assert message in capsys.readouterr().err
