# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf_dse.distill` gives the same results as the command, with names and with loaded objects."""

import json
import shutil

import pytest
import torch
from datasets import Dataset, DatasetDict
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer, BertForSequenceClassification

from hf_dse import DseConfig, DseTrainingArguments, convert_encoder, distill, evaluate_model, load_pairs
from hf_dse.data.pairs import DataArguments
from hf_dse.teacher.load import load_teacher
from hf_dse_cli import main


WORDS = "cat dog mat house old new".split()
SHORT_RUN = {
    "max_length": 24,
    "num_train_epochs": 1,
    "learning_rate": 1e-3,
    "per_device_train_batch_size": 8,
    "linformer_length": 8,
    "use_cpu": True,
    "disable_tqdm": True,
    "report_to": "none",
}
REMOTE_MODEL = """
from transformers import BertConfig, BertForSequenceClassification

class HouseConfig(BertConfig):
    model_type = "house"

class HouseModel(BertForSequenceClassification):
    config_class = HouseConfig
"""


def make_rows(number, seed):
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for words in torch.randint(6, (number, 6), generator=generator).tolist():
        first, second = [WORDS[word] for word in words[:3]], [WORDS[word] for word in words[3:]]
        overlap = float(len(set(first) & set(second)))
        rows.append({"sentence1": " ".join(first), "sentence2": " ".join(second), "label": overlap})
    return rows


@pytest.fixture(scope="module")
def assets(tmp_path_factory, save_bert):
    folder = tmp_path_factory.mktemp("assets")
    save_bert(folder / "encoder")
    save_bert(folder / "teacher", BertForSequenceClassification, num_labels=1)
    (folder / "data").mkdir()
    for seed, (split, number) in enumerate({"train": 32, "validation": 12, "test": 12}.items()):
        Dataset.from_list(make_rows(number, seed)).to_parquet(folder / "data" / f"{split}.parquet")
    return folder


def weights(folder):
    return load_file(folder / "model.safetensors")


def same(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_one_call_equals_the_command(assets, tmp_path, capsys):
    result = distill(
        str(assets / "encoder"),
        teacher=str(assets / "teacher"),
        dataset=str(assets / "data"),
        output_dir=tmp_path / "call",
        **SHORT_RUN,
    )
    # Messages of libraries go to their logs.
    assert "Saved to" not in capsys.readouterr().out
    flags = [word for name, value in SHORT_RUN.items() for word in (f"--{name}", str(value))]
    names = {"model_name_or_path": "encoder", "teacher_name_or_path": "teacher", "dataset_name": "data"}
    flags += [word for name, part in names.items() for word in (f"--{name}", str(assets / part))]
    assert main(["distill", *flags, "--output_dir", str(tmp_path / "command")]) == 0
    printed = capsys.readouterr().out
    assert f"Saved to {tmp_path / 'command' / 'model'}" in printed and "cosine_pearson" in printed

    assert result.path == tmp_path / "call" / "model"
    assert same(weights(result.path), weights(tmp_path / "command" / "model"))
    recorded = json.loads((tmp_path / "command" / "results.json").read_text())
    assert result.metrics == recorded["metrics"] and set(result.metrics) == {"validation", "test"}
    assert type(result.model).__name__ == "DseForSequenceClassification"
    test = load_pairs(DataArguments(dataset_name=str(assets / "data"), num_labels=1))["test"]
    again = evaluate_model(result.model, result.processing_class, test, task="stsb", max_length=24)
    assert again == pytest.approx(result.metrics["test"], abs=1e-6)


def test_loaded_models_and_datasets_give_the_same_student(assets, tmp_path):
    options = {**SHORT_RUN, "num_labels": 1}
    by_name = distill(
        str(assets / "encoder"), str(assets / "teacher"), str(assets / "data"), tmp_path / "names", **options
    )
    teacher, teacher_tokenizer = load_teacher(str(assets / "teacher"))
    parts = load_pairs(DataArguments(dataset_name=str(assets / "data"), num_labels=1))
    del options["linformer_length"]
    by_object = distill(
        convert_encoder(str(assets / "encoder"), linformer_length=8),
        teacher,
        DatasetDict(parts),
        tmp_path / "objects",
        processing_class=AutoTokenizer.from_pretrained(assets / "encoder"),
        teacher_processing_class=teacher_tokenizer,
        **options,
    )
    assert same(weights(by_name.path), weights(by_object.path))
    assert by_name.metrics == by_object.metrics
    recipe = json.loads((tmp_path / "objects" / "results.json").read_text())["recipe"]
    assert recipe["teacher_name_or_path"] == str(assets / "teacher")


def test_a_single_dataset_is_the_train_split(assets, tmp_path):
    rows = [{**row, "teacher_logits": [row["label"]]} for row in make_rows(16, 5)]
    result = distill(
        str(assets / "encoder"),
        dataset=Dataset.from_list(rows),
        output_dir=tmp_path / "out",
        num_labels=1,
        **SHORT_RUN,
    )
    assert result.metrics == {}
    assert AutoModel.from_pretrained(result.path).config.linformer_length == 8


def test_training_arguments_can_be_an_object(assets, tmp_path):
    options = dict(SHORT_RUN)
    linformer_length = options.pop("linformer_length")
    args = DseTrainingArguments("elsewhere", **options)
    result = distill(
        assets / "encoder",
        assets / "teacher",
        assets / "data",
        tmp_path / "out",
        args=args,
        linformer_length=linformer_length,
    )
    assert result.path.is_dir() and args.output_dir == "elsewhere"
    with pytest.raises(TypeError, match="learning_rate, seed: set them in `args`"):
        distill(str(assets / "encoder"), args=args, seed=1, learning_rate=1e-3)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"learning_rat": 1e-3}, ValueError, "no option `learning_rat` .did you mean 'learning_rate'"),
        ({"xyzzy": 1}, ValueError, "no option `xyzzy`; `hf-dse distill --help all` lists them"),
        ({"dataset_name": "data"}, TypeError, "Passed twice: dataset_name"),
        ({"stage": "general"}, ValueError, "call `train_general`"),
        ({"dataset": [1, 2]}, TypeError, "is a list, and pairs have to be"),
        ({"dataset": None}, ValueError, "No data: pass"),
    ],
)
def test_errors(arguments, error, message, assets, tmp_path):
    arguments = {"dataset": str(assets / "data"), "num_labels": 1, **arguments}
    with pytest.raises(error, match=message):
        distill(str(assets / "encoder"), output_dir=tmp_path / "out", **arguments)
    assert not (tmp_path / "out").exists()


def test_loaded_models_need_their_tokenizers(assets, tmp_path):
    model, teacher = convert_encoder(str(assets / "encoder")), load_teacher(str(assets / "teacher"))[0]
    with pytest.raises(TypeError, match="A loaded `model` needs its tokenizer: pass `processing_class`"):
        distill(model, dataset=str(assets / "data"), output_dir=tmp_path / "out")
    with pytest.raises(TypeError, match="A loaded `teacher` needs its tokenizer: pass `teacher_processing_class`"):
        distill(str(assets / "encoder"), teacher, str(assets / "data"), tmp_path / "out")
    with pytest.raises(TypeError, match="`teacher` is a `list`: pass a Hub id, a folder, or a model of transformers"):
        distill(str(assets / "encoder"), [1.0], str(assets / "data"), tmp_path / "out")
    bert, tokenizer = AutoModel.from_pretrained(assets / "encoder"), AutoTokenizer.from_pretrained(assets / "encoder")
    with pytest.raises(TypeError, match="A loaded student has to be a DSE model, got BertModel"):
        distill(bert, None, str(assets / "data"), tmp_path / "out", processing_class=tokenizer, num_labels=1)


def test_streaming_datasets_are_errors(assets, tmp_path):
    stream = Dataset.from_list(make_rows(8, 1)).to_iterable_dataset()
    with pytest.raises(TypeError, match="'train' is a IterableDataset.* without `streaming=True`"):
        distill(str(assets / "encoder"), dataset=stream, output_dir=tmp_path / "out", num_labels=1)
    with pytest.raises(TypeError, match="'train' is a list.* convert it with `Dataset.from_list`"):
        distill(str(assets / "encoder"), dataset=make_rows(8, 1), output_dir=tmp_path / "out", num_labels=1)
    columns = {"train": Dataset.from_list(make_rows(8, 1)).to_dict()}
    with pytest.raises(TypeError, match="'train' is a dict.* convert it with `Dataset.from_dict`"):
        distill(str(assets / "encoder"), dataset=columns, output_dir=tmp_path / "out", num_labels=1)


def test_the_options_of_the_teacher_are_used_to_load_it(assets, tmp_path):
    """A teacher with custom code is loaded only with `trust_remote_code`, and in the given dtype."""
    folder = shutil.copytree(assets / "teacher", tmp_path / "house")
    (folder / "house.py").write_text(REMOTE_MODEL)
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "house", "architectures": ["HouseModel"]}
    config["auto_map"] = {"AutoConfig": "house.HouseConfig", "AutoModelForSequenceClassification": "house.HouseModel"}
    (folder / "config.json").write_text(json.dumps(config))

    def run(name, **options):
        return distill(
            str(assets / "encoder"),
            str(folder),
            str(assets / "data"),
            tmp_path / name,
            **{**SHORT_RUN, "distillation_alpha": 1.0, **options},
        )

    with pytest.raises(ValueError, match="trust_remote_code"):
        run("refused")
    exact = run("exact", trust_remote_code=True)
    rounded = run("rounded", trust_remote_code=True, teacher_dtype="bfloat16")
    first, second = weights(exact.path), weights(rounded.path)
    assert not same(first, second)
    assert all(torch.allclose(first[name], second[name], atol=0.05) for name in first)
    # A folder has no branches: the revision is passed on and changes nothing.
    assert isinstance(AutoModel.from_pretrained(exact.path).config, DseConfig)
