# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Files that somebody else wrote: they run no code without `trust_remote_code`, and what is in them is checked."""

import ast
import io
import json
import os
import pickle
import re
import shutil
import sqlite3
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from bad_input import no_hang
from datasets import Dataset
from harness import slow
from safetensors.torch import load_file, save_file
from transformers import BertForSequenceClassification, BertModel

from hf_dse import (
    export_model,
    load_reranker,
    make_rankings,
    mine_candidates,
    score_pairs,
)
from hf_dse.inference import ray_engine
from hf_dse.teacher.bi_encoders import BiEncoder
from hf_dse_cli import main


ROOT = Path(__file__).parents[2]
SOURCES = [ROOT / "hf_dse_cli.py", *sorted((ROOT / "hf_dse").rglob("*.py")), *sorted((ROOT / "modeling").glob("*.py"))]
RUNNING_CODE = {"eval", "exec", "compile", "__import__"}
UNSAFE_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib"}
UNSAFE_CALLS = {"torch.load", "np.load", "numpy.load", "yaml.load", "yaml.full_load", "yaml.unsafe_load", "os.system"}


class Bomb:
    """A pickle of it makes a file when it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.fixture
def trap(tmp_path):
    """A file that exists once code of others has run."""
    yield tmp_path / "code has run"
    assert not (tmp_path / "code has run").exists()


def test_the_bomb_works(tmp_path):
    pickle.loads(pickle.dumps(Bomb(tmp_path / "run")))
    assert (tmp_path / "run").exists()


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_call_reads_code(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [name.name for name in node.names]
            assert not {name.partition(".")[0] for name in names} & UNSAFE_MODULES
        if not isinstance(node, ast.Call):
            continue
        called, options = ast.unparse(node.func), {option.arg: option.value for option in node.keywords}
        assert called not in UNSAFE_CALLS | RUNNING_CODE, f"line {node.lineno}"
        assert not options.keys() & {"allow_pickle", "shell", "weights_only"}, f"line {node.lineno}"
        # All models and tokenizers of the library, except the program that the demo shows, which trusts its own model.
        if called.endswith(".from_pretrained") and path.is_relative_to(ROOT / "hf_dse") and path.name != "demo.py":
            source = ast.unparse(options[None].func) if isinstance(options.get(None), ast.Call) else "source_of"
            is_model = not re.match(r"Auto(Config|Tokenizer)\.", called)
            assert None in options and source == ("weights_of" if is_model else "source_of"), f"line {node.lineno}"


@pytest.fixture
def pickled(tmp_path, save_bert, trap):
    """A cross-encoder whose weights are a pickle that runs code."""
    folder = save_bert(tmp_path / "pickled", BertForSequenceClassification, num_labels=1)
    weights = {**load_file(folder / "model.safetensors"), "bomb": Bomb(trap)}
    torch.save(weights, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    return folder


COMMANDS = [
    "convert --model_name_or_path {model} --output_dir {out}",
    "encode --model_name_or_path {model} --input {texts} --output {out}.npy",
    "search --model_name_or_path {model} --corpus {texts} --query x",
    "evaluate --model_name_or_path {model} --dataset_name embedded",
    "score --model_name_or_path {model} --dataset_name embedded --num_labels 1 --output_file {out}.jsonl",
    "teacher --model_name_or_path {model} --dataset_name embedded --output_dir {out}",
    "distill --model_name_or_path {model} --dataset_name embedded --output_dir {out}",
    "distill --model_name_or_path {model} --train_file {texts} --output_dir {out} --stage align "
    "--teacher_name_or_path {model}",
    "bench long --model_name_or_path {model} --needles passkey --lengths 64 --output_dir {out}",
    "bench attention --model_name_or_path {model} --texts {texts} --output_dir {out} --lengths 4 --num_texts 1",
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.split(" --")[0])
def test_weights_are_safetensors_only(pickled, tmp_path, command, capsys):
    (tmp_path / "texts.txt").write_text("the cat\na dog\n")
    command = command.format(model=pickled, out=tmp_path / "out", texts=tmp_path / "texts.txt")
    assert main(command.split()) == 2
    assert "no file named model.safetensors found in directory" in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.split(" --")[0])
def test_code_of_a_model_needs_trust(tmp_path, save_bert, trap, command, capsys):
    folder = save_bert(tmp_path / "model", BertForSequenceClassification, num_labels=1)
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "theirs", "auto_map": {"AutoConfig": "theirs.Config", "AutoModel": "theirs.Model"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "theirs.py").write_text(f"open({str(trap)!r}, 'w')\n")
    (tmp_path / "texts.txt").write_text("the cat\na dog\n")
    command = command.format(model=folder, out=tmp_path / "out", texts=tmp_path / "texts.txt")
    assert main(command.split()) == 2
    assert "trust_remote_code=True" in capsys.readouterr().err


def test_code_of_a_reranker_needs_trust(tmp_path, save_bert, trap, monkeypatch):
    """A folder of sentence-transformers names the classes of its modules."""
    pytest.importorskip("sentence_transformers")
    folder = save_bert(tmp_path / "model", BertForSequenceClassification, num_labels=1)
    monkeypatch.syspath_prepend(folder)
    (folder / "theirs.py").write_text(f"open({str(trap)!r}, 'w')\n")
    settings = {"model_type": "CrossEncoder", "default_prompt_name": "query", "prompts": {"query": "x"}}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    (folder / "modules.json").write_text(json.dumps([{"idx": 0, "name": "0", "path": "", "type": "theirs.Module"}]))
    with pytest.raises(ValueError, match="model has code of its own, theirs.Module: read it, then pass `trust_"):
        load_reranker(str(folder))


@pytest.mark.parametrize("kind", ["pickled", "code", "elsewhere", "pickle of a module"])
def test_a_bi_encoder_runs_no_code(tmp_path, save_bert, trap, kind, monkeypatch):
    """The teacher of the align stage, with a module that sentence-transformers applies."""
    pytest.importorskip("sentence_transformers")
    folder, types = save_bert(tmp_path / "model"), "sentence_transformers.models."
    modules = [("", f"{types}Transformer"), ("1_Pooling", f"{types}Pooling"), ("2_Dense", f"{types}Dense")]
    for name, config in (
        ("1_Pooling", {"word_embedding_dimension": 16, "pooling_mode_mean_tokens": True}),
        ("2_Dense", {"in_features": 16, "out_features": 4, "activation_function": "torch.nn.modules.linear.Identity"}),
    ):
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(config))
    weights = {"linear.weight": torch.ones(4, 16), "linear.bias": torch.ones(4)}
    torch.save(weights, folder / "2_Dense" / "pytorch_model.bin")
    if kind == "pickled":
        torch.save({**load_file(folder / "model.safetensors"), "bomb": Bomb(trap)}, folder / "pytorch_model.bin")
        (folder / "model.safetensors").unlink()
    if kind != "pickle of a module":
        save_file(weights, folder / "2_Dense" / "model.safetensors")
    if kind == "code":
        monkeypatch.syspath_prepend(folder)
        (folder / "theirs.py").write_text(f"open({str(trap)!r}, 'w')\n")
        modules[2] = ("2_Dense", "theirs.Module")
    if kind == "elsewhere":
        (folder / "2_Dense").rename(tmp_path / "2_Dense")
        modules[2] = ("../2_Dense", f"{types}Dense")
    rows = [{"idx": n, "name": str(n), "path": path, "type": name} for n, (path, name) in enumerate(modules)]
    (folder / "modules.json").write_text(json.dumps(rows))
    message = {
        "pickled": "no file named model.safetensors",
        "code": "has code of its own, theirs.Module",
        "elsewhere": r"has its module '\.\./2_Dense' elsewhere",
        "pickle of a module": "2_Dense/pytorch_model.bin, a pickle, and no model.safetensors beside it",
    }[kind]
    with pytest.raises((ValueError, OSError), match=message):
        BiEncoder(str(folder))
    if kind == "pickle of a module":
        save_file(weights, folder / "2_Dense" / "model.safetensors")
        assert BiEncoder(str(folder)).encode(["the cat"]).shape == (1, 4)


@pytest.fixture(scope="module")
def trained(good, tmp_path_factory):
    """A command that trains for two steps, and a folder with its checkpoints."""
    folder = tmp_path_factory.mktemp("trained")
    command = f"distill --model_name_or_path {good}/dse --train_file {good}/pairs.jsonl --num_labels 1 --max_length 16"
    command += " --distillation_alpha 0 --per_device_train_batch_size 4 --max_steps 2 --save_strategy steps"
    command += " --save_steps 1 --save_total_limit 3 --report_to none --use_cpu --disable_tqdm true --output_dir"
    assert main([*command.split(), str(folder / "run")]) == 0
    return command.split(), folder / "run"


def saved(content):
    file = io.BytesIO()
    torch.save(content, file)
    return file.getvalue()


def with_states(content, change):
    """An optimizer whose states of parameters are changed."""
    optimizer = torch.load(io.BytesIO(content), weights_only=True)
    for state in optimizer["state"].values():
        change(state)
    return saved(optimizer)


POISONS = {
    "code": lambda content, bomb: saved({"bomb": bomb}),
    "code in an old pickle": lambda content, bomb: pickle.dumps(bomb),
    "garbage": lambda content, bomb: b"garbage" * 99,
    "nothing": lambda content, bomb: b"",
    "cut": lambda content, bomb: content[: len(content) // 2],
    "other content": lambda content, bomb: saved({"x": 1}),
    "a list": lambda content, bomb: saved([1]),
}
# A fused step would write to memory that is not its own.
SIZES = {
    "small": lambda state: state.update(exp_avg=torch.zeros(1)),
    "one number": lambda state: state.update(exp_avg_sq=torch.zeros(1).expand(state["exp_avg_sq"].shape)),
    "many steps": lambda state: state.update(step=torch.zeros(3)),
    "words": lambda state: state.update(exp_avg="x"),
}
POISONED = [("optimizer.pt", kind) for kind in SIZES]
POISONED += [
    (file, kind) if kind in ("code", "cut") else slow(file, kind)
    for file in ("optimizer.pt", "scheduler.pt", "rng_state.pth", "model.safetensors")
    for kind in POISONS
]


@pytest.mark.parametrize(("file", "kind"), POISONED)
def test_a_poisoned_checkpoint_is_named_and_runs_no_code(trained, tmp_path, trap, file, kind, capsys):
    command, folder = trained
    shutil.copytree(folder, tmp_path / "run")
    path = tmp_path / "run" / "checkpoint-1" / file
    content = path.read_bytes()
    path.write_bytes(with_states(content, SIZES[kind]) if kind in SIZES else POISONS[kind](content, Bomb(trap)))
    assert main([*command, str(tmp_path / "run"), "--resume_from_checkpoint", str(path.parent)]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    what = {"model.safetensors": "weights", "rng_state.pth": file}.get(file, "optimizer.pt or scheduler.pt")
    assert error.startswith(f"hf-dse distill: error: {path.parent} cannot be resumed from: its {what} is damaged, or")
    # torch advises to read the pickle with its code.
    assert "weights_only" not in error


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"global_step": "x"}', '{"bogus": 1}', "null", '{"global_step"'])
def test_a_damaged_state_of_a_training_is_named(trained, tmp_path, content, capsys):
    command, folder = trained
    shutil.copytree(folder, tmp_path / "run")
    path = tmp_path / "run" / "checkpoint-1" / "trainer_state.json"
    path.write_text(content)
    assert main([*command, str(tmp_path / "run"), "--resume_from_checkpoint", str(path.parent)]) == 2
    assert f"error: {path.parent} cannot be resumed from: its trainer_state.json is" in capsys.readouterr().err


def test_a_checkpoint_has_no_pickle_of_its_arguments(trained, tmp_path, trap):
    """One that somebody else put there is not read, and what is resumed is what was trained."""
    command, folder = trained
    assert not list(folder.rglob("training_args.bin"))
    shutil.copytree(folder, tmp_path / "run")
    torch.save({"bomb": Bomb(trap)}, tmp_path / "run" / "checkpoint-1" / "training_args.bin")
    checkpoint = str(tmp_path / "run" / "checkpoint-1")
    assert main([*command, str(tmp_path / "run"), "--resume_from_checkpoint", checkpoint]) == 0
    weights = [path / "model" / "model.safetensors" for path in (folder, tmp_path / "run")]
    assert weights[0].read_bytes() == weights[1].read_bytes()


def test_other_code_of_a_checkpoint_is_named(tmp_path, make_model, bert_tokenizer, trap, warnings, capsys):
    folder = export_model(make_model(), bert_tokenizer, tmp_path / "model")
    (tmp_path / "texts.txt").write_text("the cat\n")
    encode = ["encode", "--model_name_or_path", str(folder), "--input", str(tmp_path / "texts.txt")]
    encode += ["--output", str(tmp_path / "vectors.npy")]
    assert main(encode) == 0
    assert not [line for line in warnings if "its own code" in line]
    with (folder / "modeling_dse.py").open("a") as file:
        file.write(f"open({str(trap)!r}, 'w')\n")
    for command in (encode, ["export", "--model_name_or_path", str(folder), "--output_dir", str(tmp_path / "new")]):
        assert main(command) == 0
        assert "has its own code in modeling_dse.py, and that of the installed hf_dse" in warnings.pop()
    # What is written has the code that was installed.
    assert (tmp_path / "new" / "modeling_dse.py").read_text() == (ROOT / "modeling" / "modeling_dse.py").read_text()


@pytest.fixture
def teacher(tmp_path, save_bert):
    return save_bert(tmp_path / "teacher", BertForSequenceClassification, num_labels=1)


def sql(*statements):
    def change(file, other):
        with sqlite3.connect(file) as connection:
            for statement in statements:
                connection.execute(statement)

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (sql("UPDATE scores SET logits = x'000000000000f87f'"), "a score is not 1 finite numbers"),
        (sql("UPDATE scores SET logits = x'000000000000f07f'"), "a score is not 1 finite numbers"),
        (sql("UPDATE scores SET logits = zeroblob(16)"), "a score is not 1 finite numbers"),
        (sql("UPDATE scores SET logits = 'good'"), "a score is not 1 finite numbers"),
        (sql("ALTER TABLE scores RENAME TO s", "CREATE VIEW scores AS SELECT * FROM s"), "'scores' is not a table"),
        (sql("CREATE TRIGGER t AFTER INSERT ON scores BEGIN DELETE FROM scores; END"), "'t' is not a table"),
        (sql("DROP TABLE scores", "CREATE TABLE scores (pair)"), "no such column: logits"),
        (lambda file, other: file.write_bytes(other.read_bytes()), "its scores are those of another teacher"),
    ],
    ids=["nan", "infinite", "too many", "text", "view", "trigger", "columns", "another teacher"],
)
def test_a_poisoned_cache_of_scores(tmp_path, teacher, save_bert, change, message):
    pairs = Dataset.from_dict({"sentence1": ["the cat", "a dog"], "sentence2": ["a mat", "the house"]})

    def score(name):
        scored = score_pairs(str(name), pairs, cache_dir=tmp_path / name.name / "cache", show_progress=False)
        return scored["teacher_logits"][:], next((tmp_path / name.name / "cache").iterdir())

    expected, file = score(teacher)
    assert score(teacher)[0] == expected
    _, other = score(save_bert(tmp_path / "other", BertForSequenceClassification, num_labels=1, hidden_act="relu"))
    change(file, other)
    with pytest.raises((ValueError, OSError), match=rf"The score cache .*{message}"):
        score(teacher)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (lambda good: np.full_like(good, np.nan), "its vectors do not have the length 1"),
        (lambda good: good * 1e6, "its vectors do not have the length 1"),
        (lambda good: good[:, :1] * 0 + 1, r"it has float32 of the shape \(1, 1\)"),
        (lambda good: good.astype(np.float64), "it has float64 of the shape"),
        (lambda good: np.concatenate([good, good]), r"it has float32 of the shape \(2, 16\)"),
        (lambda good: np.array([Bomb(Path("code has run"))], dtype=object), "is damaged"),
        (lambda good: b"PK\x03\x04" + bytes(100), "is damaged"),
    ],
    ids=["nan", "scaled", "one number", "type", "rows", "pickle", "zip"],
)
def test_a_poisoned_cache_of_embeddings(tmp_path, save_bert, bert_tokenizer, trap, array, message, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = BertModel.from_pretrained(save_bert(tmp_path / "model"))
    rankings = make_rankings({"query": ["the cat"], "documents": [[0]]}, {"text": ["the cat", "a dog", "a mat"]})

    def mine():
        return mine_candidates(
            rankings, model, bert_tokenizer, num_candidates=1, range_max=2, cache_dir=tmp_path / "c"
        )

    mine()
    (file,) = [path for path in (tmp_path / "c").iterdir() if len(np.load(path)) == 1]
    poison = array(np.load(file))
    if isinstance(poison, bytes):
        file.write_bytes(poison)
    else:
        np.save(file, poison, allow_pickle=True)
    with pytest.raises(ValueError, match=message):
        mine()


def pipe(path):
    path.unlink()
    os.mkfifo(path)


def in_place(array):
    return lambda path: np.save(path, array(np.load(path)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        # They would be learned, for queries and documents or all texts have them alike.
        (in_place(lambda good: np.ones_like(good[:, :1])), r"it has float32 of the shape \(\d, 1\)"),
        (in_place(lambda good: good[:, :0]), r"it has float32 of the shape \(\d, 0\)"),
        (in_place(lambda good: np.full_like(good, np.nan)), "its vectors do not have the length 1"),
        (pipe, "it is no file"),
    ],
    ids=["one number", "no number", "nan", "pipe"],
)
@pytest.mark.parametrize("kind", ["teacher", "mining"])
def test_a_cache_of_which_every_file_is_poisoned(tmp_path, save_bert, bert_tokenizer, kind, change, message):
    folder = save_bert(tmp_path / "model")
    if kind == "teacher":
        run = partial(BiEncoder(str(folder)).encode, ["the cat", "a dog"], tmp_path / "c")
    else:
        rankings = make_rankings({"query": ["the cat"], "documents": [[0]]}, {"text": ["the cat", "a dog", "a mat"]})
        model, options = BertModel.from_pretrained(folder), {"num_candidates": 1, "cache_dir": tmp_path / "c"}
        run = partial(mine_candidates, rankings, model, bert_tokenizer, show_progress=False, **options)
    run()
    for path in (tmp_path / "c").iterdir():
        change(path)
    with no_hang(), pytest.raises(ValueError, match=f"{message}.*: delete it and run again"):
        run()


def test_a_huge_header_of_embeddings_takes_no_memory(tmp_path, save_bert, bert_tokenizer):
    model = BertModel.from_pretrained(save_bert(tmp_path / "model"))
    rankings = make_rankings({"query": ["the cat"], "documents": [[0]]}, {"text": ["the cat", "a dog"]})
    options = {"num_candidates": 1, "cache_dir": tmp_path / "c", "show_progress": False}
    mine_candidates(rankings, model, bert_tokenizer, **options)
    (file,) = [path for path in (tmp_path / "c").iterdir() if len(np.load(path)) == 1]
    with file.open("wb") as out:
        np.lib.format.write_array_header_1_0(out, {"descr": "<f4", "fortran_order": False, "shape": (1, 10**13)})
    with pytest.raises(ValueError, match="is damaged"):
        mine_candidates(rankings, model, bert_tokenizer, **options)


def with_column(table, name, values):
    place = table.column_names.index(name)
    return table.set_column(place, name, values).replace_schema_metadata(table.schema.metadata)


def vectors(rows):
    return pa.array(rows, pa.list_(pa.float32(), 16))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: with_column(t, "embedding", vectors([[np.nan] * 16] * 2)), "missing, NaN or infinite"),
        (lambda t: with_column(t, "embedding", vectors([[np.inf] * 16] * 2)), "missing, NaN or infinite"),
        # Of a length that is infinite: cosines would be 0, and dot products NaN.
        (lambda t: with_column(t, "embedding", vectors([[3e38] * 16] * 2)), "2 of 2 .* infinite or too large"),
        (lambda t: with_column(t, "embedding", vectors([None, [1.0] * 16])), "missing, NaN|not a readable"),
        (lambda t: with_column(t, "embedding", pa.array([[1.0], [2.0]])), "is list<.*>, not vectors of float32"),
        (lambda t: with_column(t, "embedding", pa.array([1.0, 2.0])), "is double, not vectors of float32"),
        (lambda t: with_column(t, "text", pa.array([None, "x"])), "row 0: text is None, not a string"),
        (lambda t: t.drop_columns("text"), "has no vectors of column 'text'"),
        (lambda t: t.replace_schema_metadata({b"hf_dse": b"{"}), "its settings of hf-dse are damaged"),
        (lambda t: t.replace_schema_metadata({b"hf_dse": b"[1]"}), "vectors of unknown origin"),
        (lambda t: t.replace_schema_metadata({b"hf_dse": b'{"columns": ["text"]}'}), "does not say which model"),
    ],
    ids=["nan", "infinite", "huge", "missing", "sizes", "numbers", "no text", "column", "json", "list", "no model"],
)
def test_a_poisoned_index(tmp_path, make_model, bert_tokenizer, change, message, capsys):
    folder = export_model(make_model(), bert_tokenizer, tmp_path / "model")
    (tmp_path / "texts.txt").write_text("the cat\na dog")
    index = tmp_path / "index.parquet"
    model = ["--model_name_or_path", str(folder)]
    assert main(["encode", *model, "--input", str(tmp_path / "texts.txt"), "--output", str(index)]) == 0
    pq.write_table(change(pq.read_table(index)), index)
    assert main(["search", *model, "--corpus", str(index), "--query", "cat"]) == 2
    assert re.search(message, capsys.readouterr().err)


@pytest.mark.parametrize(
    ("precision", "settings", "message"),
    [
        ("binary", {"size": 16.0}, "is damaged: size=16.0"),
        ("int8", {"size": True}, "is damaged: size=True"),
        ("binary", {"size": 15}, "query_embeddings have size 16 and corpus_embeddings 15"),
        ("int8", {"ranges": [[3e38] * 16] * 2}, "is damaged: int8 codes need ranges"),
        ("int8", {"ranges": 10**400}, "is damaged: int8 codes need ranges"),
        ("uint8", {"precision": ["uint8"]}, r"index.parquet is damaged: precision=\['uint8'\]"),
        # Bits have no ranges.
        ("ubinary", {"ranges": [[0] * 16, [1] * 16]}, None),
    ],
)
def test_a_poisoned_index_of_codes(tmp_path, make_model, bert_tokenizer, precision, settings, message, capsys):
    folder = export_model(make_model(), bert_tokenizer, tmp_path / "model")
    (tmp_path / "texts.txt").write_text("the cat\na dog")
    index, model = tmp_path / "index.parquet", ["--model_name_or_path", str(folder)]
    encode = ["encode", *model, "--input", str(tmp_path / "texts.txt"), "--output", str(index)]
    search = ["search", *model, "--corpus", str(index), "--query", "cat"]
    assert main([*encode, "--precision", precision]) == main(search) == 0
    found = capsys.readouterr().out.partition("query:")[2]
    table = pq.read_table(index)
    own = json.loads(table.schema.metadata[b"hf_dse"]) | settings
    pq.write_table(table.replace_schema_metadata({b"hf_dse": json.dumps(own)}), index)
    assert main(search) == (0 if message is None else 2)
    out, err = capsys.readouterr()
    assert out.partition("query:")[2] == found if message is None else re.search(message, err)


@pytest.fixture
def one_worker(monkeypatch):
    """Runs the worker of a Ray cluster in this process."""
    pytest.importorskip("ray")

    def run(load, todo, settings, args):
        worker = ray_engine.ShardWorker(load, "cpu", settings)
        return [worker({"shard": str(shard), "output": str(output)}) for shard, output in todo]

    monkeypatch.setattr(ray_engine, "_run", run)


def test_finished_shards_are_checked(one_worker, tmp_path, make_model, bert_tokenizer, capsys):
    folder = export_model(make_model(), bert_tokenizer, tmp_path / "model")
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"text": ["the cat", "a dog"]}), tmp_path / "in" / "a.parquet")
    command = ["encode", "--engine", "ray", "--model_name_or_path", str(folder), "--input", str(tmp_path / "in")]
    command += ["--output", str(tmp_path / "out")]
    assert main(command) == main(command) == 0
    output = tmp_path / "out" / "a.parquet"
    good = pq.read_table(output)
    for poison, message in (
        (good.slice(0, 1), "does not have 'embedding' for each row of a.parquet: delete it"),
        (good.drop_columns("embedding"), "does not have 'embedding' for each row of a.parquet: delete it"),
        (good.replace_schema_metadata({b"hf_dse": b"{"}), "its settings of hf-dse are damaged"),
    ):
        pq.write_table(poison, output)
        assert main(command) == 2
        assert message in capsys.readouterr().err


def test_scores_of_workers_are_checked(one_worker, tmp_path, save_bert, warnings, capsys):
    """All equal, and after a sigmoid: as in one process."""
    (tmp_path / "in").mkdir()
    for number in range(2):
        rows = {"query": ["the cat", "a dog"], "documents": [["a cat", "a mat"]] * 2, "labels": [[1.0, None]] * 2}
        pq.write_table(pa.table(rows), tmp_path / "in" / f"{number}.parquet")
    teacher = save_bert(tmp_path / "teacher", BertForSequenceClassification, num_labels=1)
    command = ["score", "--engine", "ray", "--dataset_name", str(tmp_path / "in"), "--model_name_or_path"]
    model = load_reranker(str(teacher)).model
    with torch.no_grad():
        model.classifier.weight.mul_(1e-3)
        model.classifier.bias.fill_(0.5)
    model.save_pretrained(teacher)
    assert main([*command, str(teacher), "--output_file", str(tmp_path / "low")]) == 0
    assert any(f"{teacher}: all scores lie between 0.499 and 0.5" in line for line in warnings)
    with torch.no_grad():
        model.classifier.weight.zero_()
    model.save_pretrained(teacher)
    assert main([*command, str(teacher), "--output_file", str(tmp_path / "equal")]) == 2
    assert f"{teacher}: all 8 scores are equal, so there is nothing to learn from them" in capsys.readouterr().err


def test_a_folder_of_a_user_named_like_a_revision(tmp_path, make_model, bert_tokenizer, monkeypatch):
    monkeypatch.chdir(tmp_path)
    export_model(make_model(), bert_tokenizer, "models/mine@v1")
    assert os.path.isdir("models/mine@v1")
    assert main(["export", "--model_name_or_path", "models/mine@v1", "--output_dir", "copy"]) == 0
