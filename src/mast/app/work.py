"""Where results lie, and what state they are in. All of it is read from the folders themselves."""

from __future__ import annotations

import os
import shlex
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pyarrow.parquet as pq

from mast.annotations.detections import DETECTIONS, DONE, FAILED, RUN, marks, read_run
from mast.errors import ConfigError
from mast.progress import CommandProgress, read_progress
from mast.review.requests_summary import SUMMARY, SUMMARY_PAGE
from mast.runs import ADAPTED, STAGES

REPORT_PAGE = "report.html"
_MODEL = "best"  # below a run of `mast fit`
_LEARNED = "-learned"
_ADAPTED = "-adapted"
Kind = Literal["find", "learn", "summary"]
_KINDS: dict[str, Kind] = {"detect": "find", "fit": "learn", "adapt": "learn", "summarize": "summary"}


class Work(NamedTuple):
    """What belongs to the folder that somebody chose.

    Attributes:
        recordings: where the sound is.
        root: where results lie, or will.
        results: folders of `mast detect`, `mast fit` and `mast adapt`.
    """

    recordings: Path
    root: Path
    results: list[Path]


def find_work(folder: Path) -> Work:
    """Find what was made from a folder of recordings; or, for a results folder, its recordings.

    Raises:
        ConfigError: the recordings of a results folder are missing, or unknown.
    """
    if (folder / RUN).is_file() or _kind(folder) == "find":
        run = read_run(folder)
        if run is None:
            raise ConfigError(
                f"{folder}: holds a search that has barely started; choose the folder of its recordings"
            )
        if not Path(run.root).is_dir():
            raise ConfigError(
                f"{folder}: its recordings were in {run.root}, which is not there now; connect the disk"
            )
        related = [path for path in _list_folders(folder.parent) if path.name.startswith(f"{folder.name}-")]
        return Work(Path(run.root), folder.parent, [folder, *(path for path in related if _kind(path))])
    root = results_root(folder)
    return Work(folder, root, [path for path in _list_folders(root) if _kind(path)])


def results_root(recordings: Path) -> Path:
    """Where results go: next to the recordings, or in the home folder if nothing can be written there."""
    beside = recordings.with_name(f"{recordings.name}-mast")
    if beside.is_dir() or (recordings.name and os.access(recordings.parent, os.W_OK)):
        return beside
    return Path.home() / "mast" / (recordings.name or "recordings")


def learned_folder(results: Path) -> Path:
    """Where to put the model that is learned from what was checked in a results folder."""
    return results.with_name(f"{results.name}{_LEARNED}")


def adapted_folder(results: Path) -> Path:
    """Where to put the model that is adapted to the recordings of a results folder."""
    return results.with_name(f"{results.name}{_ADAPTED}")


def list_models(work: Work) -> list[Path]:
    """Runs of `mast fit` and `mast adapt` that have a model."""
    return [path for path in work.results if (path / _MODEL).is_dir()]


def describe_results(folder: Path) -> dict[str, Any]:
    """A results folder for the page: what it is, how far it has come, and what can be done with it."""
    progress, kind = read_progress(folder), _kind(folder)
    state = progress.state if progress is not None else "done" if _is_complete(folder, kind) else "stopped"
    return {
        "folder": str(folder),
        "name": folder.name,
        "kind": kind,
        "state": state,
        "can_resume": state in ("stopped", "failed") and progress is not None,
        **_progress_fields(progress),
        **(_detection_counts(folder) if kind == "find" else {}),
        "has_summary": (folder / SUMMARY / SUMMARY_PAGE).is_file(),
        "has_report": (folder / REPORT_PAGE).is_file(),
        "has_model": (folder / _MODEL).is_dir(),
    }


def _progress_fields(progress: CommandProgress | None) -> dict[str, Any]:
    shown = progress or CommandProgress([], "", 0, "")
    names = ("sentence", "what", "done", "total", "unit", "left_s", "notes")
    typed = "" if progress is None else shlex.join(["mast", *progress.command])
    return {**{name: getattr(shown, name) for name in names}, "typed": typed}


def _kind(folder: Path) -> Kind | None:
    """What a folder holds; ``None`` where it is not one of ours."""
    progress = read_progress(folder)
    if progress is not None and progress.command and progress.command[0] in _KINDS:
        return _KINDS[progress.command[0]]
    if (folder / RUN).is_file():
        return "find"
    learned = (folder / STAGES).is_dir() or (folder / ADAPTED).is_file()
    return "learn" if learned and (folder / _MODEL).is_dir() else None


def _is_complete(folder: Path, kind: Kind | None) -> bool:
    ends = {"find": (DETECTIONS,), "learn": (REPORT_PAGE, ADAPTED), "summary": (SUMMARY_PAGE,)}[
        kind or "find"
    ]
    return any((folder / name).is_file() for name in ends)


def _detection_counts(folder: Path) -> dict[str, Any]:
    """What was found so far; empty before the tables are there."""
    try:
        status = (folder / DETECTIONS).stat()
        return dict(_count_detections(folder, status.st_mtime_ns))
    except OSError:
        return {"events": None, "searched": 0, "failed": 0}


@lru_cache(maxsize=64)
def _count_detections(folder: Path, stamp: int) -> dict[str, int]:
    """Counts of a results folder, once for each time that its tables were written."""
    return {
        "events": pq.read_metadata(folder / DETECTIONS).num_rows,
        "searched": sum(1 for _ in marks(folder, DONE)),
        "failed": sum(1 for _ in marks(folder, FAILED)),
    }


def _list_folders(root: Path) -> list[Path]:
    try:
        return sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError:
        return []
