# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse doctor`: what is installed, what this machine can do, and what to mend. It opens no connection."""

import json
import os
import platform
import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import metadata, requires
from pathlib import Path

import huggingface_hub
from huggingface_hub.constants import HF_ASSETS_CACHE, HF_HUB_CACHE, HF_HUB_OFFLINE
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from hf_dse.cli.parsing import parse_args
from hf_dse.common.display import format_size


# What each extra is for. Its packages are those of the metadata.
EXTRAS = {
    "train": "training, and the measures of pairs",
    "demo": "an encoder for `hf-dse demo`",
    "study": "tables and plots of `hf-dse study`",
    "bench": "more encoders for `hf-dse bench`, faiss",
    "st": "SentenceTransformer loads the folders",
    "ranking": "BM25, and the measures of rankings",
    "onnx": "`hf-dse export` as ONNX or OpenVINO",
    "ray": "`--engine ray` on several machines",
    "app": "the web page of examples/app.py",
    "docs": "the site of the documentation",
    "notebooks": "the notebooks of examples",
}

# The packages whose versions a report of a problem needs.
NAMED = ("hf-dse", "torch", "transformers", "tokenizers", "sentence-transformers", "datasets", "accelerate")

OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")

# Folders that `hf-dse score`, `augment` and `mine` leave beside their output.
OWN_CACHES = (".hf-dse-scores", ".hf-dse-mining")

GB = 10**9


@dataclass
class DoctorArguments:
    """How to show the report."""

    format: str = field(
        default="text",
        metadata={"help": "text: for people. json: the same for programs.", "choices": ["text", "json"]},
    )


def doctor(argv: list[str]) -> None:
    """Prints a report on the installation and the machine, and the problems that it found."""
    (args,) = parse_args(
        argv,
        DoctorArguments,
        prog="hf-dse doctor",
        description="Describe the installation and this machine, and what to mend. It opens no connection and shows "
        "no tokens.",
    )
    problems = find_problems()
    report = {
        "versions": describe_versions(),
        "machine": describe_hardware(),
        "extras": describe_extras(),
        "caches": describe_caches(),
        "Hub": describe_hub(),
    }
    if args.format == "json":
        # Without the spaces between columns.
        plain = {
            title: {name: " ".join(line.split()) for name, line in lines.items()} for title, lines in report.items()
        }
        print(json.dumps({**plain, "problems": problems}, indent=2))
        return
    for title, lines in report.items():
        width = max(map(len, lines))
        print(f"{title}\n" + "\n".join(f"  {name:<{width}}  {line}" for name, line in lines.items()) + "\n")
    print("\n".join([f"problems: {len(problems)}", *(f"  - {problem}" for problem in problems)]))


def check_requirements(requirements: Iterable[str], extra: str = "") -> tuple[list[str], list[str]]:
    """
    Compares requirements with what is installed.

    Args:
        requirements (`Iterable[str]`):
            Those of the metadata of a package, such as `"scipy>=1.15; extra == 'study'"`.
        extra (`str`, *optional*, defaults to `""`):
            The extra to check. Without one, those that are always needed are checked.

    Returns:
        `tuple`: the packages that are missing, and for each with another version what it is and has to be.
    """
    from hf_dse.common.provenance import package_versions

    missing: list[str] = []
    wrong: list[str] = []
    for requirement in map(Requirement, requirements):
        marker = requirement.marker
        is_always = marker is None or marker.evaluate({"extra": ""})
        is_wanted = not is_always and marker is not None and marker.evaluate({"extra": extra}) if extra else is_always
        if not is_wanted:
            continue
        found = package_versions([requirement.name])[requirement.name]
        if found is None:
            missing.append(requirement.name)
        elif not requirement.specifier.contains(found, prereleases=True):
            wrong.append(f"{requirement.name} is {found}, and has to be {requirement.specifier}")
    return missing, wrong


def find_problems() -> list[str]:
    """What to mend in the installation, in the order of its importance."""
    import torch

    needed = requires("hf-dse") or []
    python = metadata("hf-dse")["Requires-Python"]
    missing, wrong = check_requirements(needed)
    problems = []
    if not SpecifierSet(python).contains(platform.python_version()):
        problems.append(f"Python is {platform.python_version()}, and has to be {python}: make a new environment.")
    if missing or wrong:
        lacks = [f"{name} is not installed" for name in missing]
        problems.append(f"{'; '.join([*lacks, *wrong])}: `pip install --upgrade hf-dse`.")
    for extra in EXTRAS:
        missing, wrong = check_requirements(needed, extra)
        # Without its packages an extra is not installed, which is no problem.
        if wrong and not missing:
            problems.append(f"{'; '.join(wrong)}: `pip install --upgrade 'hf-dse[{extra}]'`.")
    if shutil.which("nvidia-smi") and not torch.cuda.is_available():
        problems.append(
            f"There is an NVIDIA driver, but torch {torch.__version__} does not use it: install a build of torch for "
            "CUDA, see pytorch.org/get-started."
        )
    if torch.get_num_threads() > num_cores():
        problems.append(
            f"torch uses {torch.get_num_threads()} threads on {num_cores()} cores, which is slower: set "
            f"OMP_NUM_THREADS={num_cores()}."
        )
    free = shutil.disk_usage(Path.cwd()).free
    if free < GB:
        problems.append(f"The disk of this folder has {free / GB:.1f} GB left: checkpoints need several.")
    return problems


def describe_versions() -> dict[str, str]:
    from hf_dse.common.provenance import package_versions

    found = package_versions(NAMED)
    others = [f"{name} {version or '(not installed)'}" for name, version in found.items() if name != "hf-dse"]
    return {
        "hf-dse": f"{found['hf-dse']}, Python {platform.python_version()}, {platform.platform(terse=True)}",
        "packages": ", ".join(others),
    }


def num_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def describe_hardware() -> dict[str, str]:
    import torch

    hardware = {"CPU": f"{num_cores()} {platform.machine()} cores, torch uses {torch.get_num_threads()} threads"}
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        hardware["memory"] = f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / GB:.0f} GB"
    hardware["bf16 on CPU"] = describe_bf16()
    hardware["GPU"] = "none: everything runs on the CPU"
    if torch.cuda.is_available():
        cards = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
        bf16 = "bf16" if torch.cuda.is_bf16_supported() else "no bf16"
        names = [f"{card.name} with {card.total_memory / GB:.0f} GB" for card in cards]
        hardware["GPU"] = f"{', '.join(names)}, {bf16}"
    elif torch.accelerator.is_available():
        hardware["GPU"] = f"{torch.accelerator.current_accelerator()}"
    return hardware


def describe_bf16() -> str:
    """How fast bf16 is on this CPU, measured with a matrix product."""
    from hf_dse.common.devices import bf16_speed

    speed = bf16_speed()
    if speed < 1.2:
        return f"no gain, a matrix product has {speed:.2g} times the speed of float32: leave it out"
    return f"a matrix product is {speed:.1f} times as fast as in float32: `--bf16 true`, `--dtype bfloat16`"


def describe_extras() -> dict[str, str]:
    extras = {}
    for extra, purpose in EXTRAS.items():
        missing, wrong = check_requirements(requires("hf-dse") or [], extra)
        if not missing and not wrong:
            state = "installed"
        else:
            state = f"`pip install 'hf-dse[{extra}]'` for {', '.join(missing or [line.split()[0] for line in wrong])}"
        extras[extra] = f"{purpose:<{max(map(len, EXTRAS.values()))}}  {state}"
    return extras


def describe_caches() -> dict[str, str]:
    import datasets

    folders = {
        "models": Path(HF_HUB_CACHE),
        "datasets": Path(datasets.config.HF_DATASETS_CACHE),
        "indexes of `hf-dse search`": Path(HF_ASSETS_CACHE) / "hf-dse" / "search",
    }
    own = [folder for name in OWN_CACHES for folder in (*Path().glob(name), *Path().glob(f"*/{name}"))]
    folders |= {str(folder): folder for folder in own}
    return {
        name: f"{format_size(folder_size(folder)):>9}" + ("" if name == str(folder) else f"  {folder}")
        for name, folder in folders.items()
    }


def folder_size(folder: Path) -> int:
    """The bytes of the files in a folder; those that several links name count once."""
    total = 0
    for file in folder.rglob("*"):
        # Another process may delete it.
        with suppress(OSError):
            total += file.stat().st_size if file.is_file() and not file.is_symlink() else 0
    return total


def describe_hub() -> dict[str, str]:
    state = "yes: the Hub is not asked, and what is not in the cache is an error" if HF_HUB_OFFLINE else "no"
    hub = {"offline": state}
    hub |= {name: os.environ[name] for name in OFFLINE if os.environ.get(name)}
    hub["token"] = "there is one" if huggingface_hub.get_token() else "none: `hf auth login` before `hf-dse push`"
    return hub
