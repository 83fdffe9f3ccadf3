"""A table that is written again: where the new one lacks boxes of the old one, the old one is kept beside it."""

from __future__ import annotations

import shutil
from itertools import count
from pathlib import Path

from mast.annotations.base import AnnotationSet
from mast.annotations.formats import read_annotations
from mast.annotations.sidecars import reviewed_path
from mast.errors import AnnotationError
from mast.events import BOX_COLUMNS


def keep_earlier(path: Path, new: AnnotationSet) -> Path | None:
    """Copy a file of annotations, and its ``reviewed.csv``, before ``new`` is written there.

    Returns:
        The copy (``boxes.earlier.csv``); None where nothing would be lost.
    """
    if not path.is_file() or not _would_lose(path, new):
        return None
    names = (f"{path.stem}.earlier{'' if n == 1 else f'-{n}'}{path.suffix}" for n in count(1))
    kept = next(path.with_name(name) for name in names if not path.with_name(name).exists())
    shutil.copy2(path, kept)
    if reviewed_path(path).is_file():
        shutil.copy2(reviewed_path(path), reviewed_path(kept))
    return kept


def _would_lose(path: Path, new: AnnotationSet) -> bool:
    """Whether a file holds a box, or a recording that was listened to, that ``new`` does not; or cannot be read."""
    try:
        old = read_annotations(path)
    except AnnotationError:
        return path.stat().st_size > 0
    return bool(_boxes(old) - _boxes(new)) or bool(set(old.annotated()) - set(new.annotated()))


def _boxes(annotations: AnnotationSet) -> set[tuple[object, ...]]:
    return set(annotations.events[["recording", *BOX_COLUMNS, "label"]].itertuples(index=False, name=None))
