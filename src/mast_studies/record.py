"""What is written with every measurement: what was run, on what, when."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from mast.files import write_atomic
from mast.version import commit

_ROOT = Path(__file__).resolve().parents[2]  # of the repository, where the package is used from one
_PACKAGES = ("numpy", "torch", "torchaudio", "torchvision", "soundfile", "soxr", "pandas")

NOT_RECORDED = "not recorded"


class TrainingRecord(NamedTuple):
    """Where a model that was measured came from.

    Attributes:
        name: of the model among those measured.
        seed: of the training.
        commit: of the code that trained it; empty if it was not recorded.
        recipe: all its settings; none if they were not recorded.
    """

    name: str
    seed: int
    commit: str
    recipe: Mapping[str, Any] | None


def write_result(
    path: str | Path,
    figures: Mapping[str, Any],
    *,
    seed: int | list[int] | None = None,
    data: Mapping[str, Any] | None = None,
    trainings: Iterable[TrainingRecord] = (),
) -> None:
    """Write ``figures`` and their provenance as JSON (command, commit, versions, hardware, date, seed, data).

    Args:
        path: the file to write; its folder is made.
        figures: the measurements, anything JSON can hold; they keep their own keys, under ``figures``.
        seed: the seed of everything random, or all seeds; ``None`` where nothing is random.
        data: what was measured on, and where it was trained; left out where the figures say it themselves.
        trainings: of the models measured; those with the same commit and recipe are written together.
    """
    trained = _group_by_recipe(trainings)
    result = {
        "command": " ".join(_command()),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "seed": seed,
        **({"data": dict(data)} if data is not None else {}),
        **({"trainings": trained} if trained else {}),
        "hardware": {"cpu": _cpu_model(), "cores": os.cpu_count(), "memory_gb": _memory_gb(), "gpu": _gpu()},
        "versions": {"python": platform.python_version(), **_package_versions()},
        "figures": dict(figures),
    }
    write_atomic(Path(path), (json.dumps(result, indent=2, ensure_ascii=False) + "\n").encode())


def describe_commits(commits: Iterable[str]) -> str:
    """One sentence for the foot of a table: the commits of its trainings."""
    known = sorted({commit_of or NOT_RECORDED for commit_of in commits})
    if not known or NOT_RECORDED in known:
        return "The commit of these training runs was not recorded."
    return f"Trained at commit {', '.join(one[:7] + ('' if '+' not in one else ' with changes') for one in known)}."


def _group_by_recipe(trainings: Iterable[TrainingRecord]) -> list[dict[str, Any]]:
    """Each commit and recipe once, with the seeds of every model trained with them."""
    found: list[dict[str, Any]] = []
    for name, seed, commit_of, recipe in trainings:
        made = {
            "commit": commit_of or NOT_RECORDED,
            "recipe": dict(recipe) if recipe is not None else NOT_RECORDED,
        }
        same = next((one for one in found if {**one, **made} == one), None)
        if same is None:
            same = {"seeds": {}, **made}
            found.append(same)
        same["seeds"].setdefault(name, []).append(seed)
    return found


def _command() -> list[str]:
    """What was typed; paths inside the repository relative to it, so that it can be repeated elsewhere."""
    program = Path(sys.argv[0])
    if program.stem == "mast":
        first = ["mast"]
    elif program.resolve().parent == Path(__file__).parent:
        first = ["python", "-m", f"{__package__}.{program.stem}"]
    else:
        first = ["python", _without_root(sys.argv[0])]
    return [*first, *(_without_root(word) for word in sys.argv[1:])]


def _without_root(word: str) -> str:
    try:
        return str(Path(word).relative_to(_ROOT)) if Path(word).is_absolute() else word
    except ValueError:
        return word


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _memory_gb() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (AttributeError, OSError, ValueError):
        return None


def _gpu() -> str | None:
    """The GPU's name, only if torch is loaded already: looking it up must not cost an import."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    return str(torch.cuda.get_device_name(0))


def _package_versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
