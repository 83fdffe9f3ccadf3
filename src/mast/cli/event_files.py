"""Events from whatever a user points at."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from mast.annotations import AnnotationSet


def read_event_file(path: Path, known: pd.DataFrame | None) -> AnnotationSet:
    """Read annotations in any format, or the detections in the folder that `mast detect` writes.

    ``known`` recordings are used only where a format cannot be read without their durations or rates: names
    stay as written, so that the caller decides what they mean.
    """
    from mast.annotations import read_annotations
    from mast.errors import AnnotationError

    if path.is_dir():
        written = [path / f"detections.{ending}" for ending in ("parquet", "csv")]
        path = next((file for file in written if file.is_file()), path)
    try:
        return read_annotations(path)
    except AnnotationError:
        if known is None:
            raise
        return read_annotations(path, recordings=known)
