"""What every layout reads into, and how it becomes a dataset folder."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from mast.annotations import AnnotationSet, write_annotations
from mast.data.header_scan import scan_headers
from mast.errors import AnnotationError
from mast.files import holds_files
from mast.wording import counted


@dataclass(frozen=True)
class LayoutDataset:
    """A dataset as read from another layout.

    Attributes:
        annotations: boxes, what was listened to, and the recordings with a column ``split``.
        sources: where each recording lies.
    """

    annotations: AnnotationSet
    sources: dict[str, Path]


def write_dataset_folder(data: LayoutDataset, out: Path) -> None:
    """Write ``out/audio``, ``recordings.csv``, ``boxes.csv`` and, where not all was heard, ``reviewed.csv``.

    Recordings are linked where the file system allows it (no second copy), and copied otherwise. Tables come last:
    without them an interrupted run is not a dataset.
    """
    make_empty_folder(out)
    for name in data.annotations.names():
        target = out / "audio" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(data.sources[name].resolve(), target)
        except OSError:  # another file system, or one without links
            shutil.copy2(data.sources[name], target)
    write_annotations(data.annotations, out, "csv")


def make_empty_folder(out: Path) -> None:
    """Make a folder to write a dataset into; refuse one that holds files."""
    if holds_files(out):
        raise AnnotationError(f"{out}: exists and is not empty; choose a new folder")
    out.mkdir(parents=True, exist_ok=True)


def probe_recordings(root: Path, paths: Iterable[Path]) -> pd.DataFrame:
    """Columns ``recording`` (relative to ``root``), ``duration_s``, ``sample_rate`` of what can be read."""
    found = scan_headers({path.relative_to(root).as_posix(): path for path in paths}, root)
    rows = [
        {"recording": name, "duration_s": info.duration_s, "sample_rate": float(info.sample_rate)}
        for name, info, _ in found.recordings
    ]
    if failed := found.unreadable:
        warnings.warn(
            f"{root}: left out {counted(len(failed), 'recording')} that cannot be read; the first: {failed[0].error}",
            stacklevel=3,
        )
    return pd.DataFrame(rows, columns=["recording", "duration_s", "sample_rate"])
