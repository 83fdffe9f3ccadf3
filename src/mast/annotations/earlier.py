"""A table that is written again: where the old one says what the new one does not, it is kept under another name."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mast.annotations.base import AnnotationSet
from mast.annotations.formats import read_annotations
from mast.annotations.sidecars import reviewed_path
from mast.errors import AnnotationError
from mast.events import BOX_COLUMNS
from mast.replaced import unused_name
from mast.spans import TimeSpan, subtract_spans, total_s
from mast.wording import format_names

_SLACK_S = 0.01  # our choice: durations are rounded in one table and not in another


class KeptCopy(NamedTuple):
    """Where an old file is now, and what it said that the new one does not, in words."""

    path: Path
    why: str


def keep_earlier(path: Path, new: AnnotationSet, *, heard_since: bool = False) -> KeptCopy | None:
    """Copy a file of annotations, and its ``reviewed.csv``, before ``new`` is written there.

    Args:
        path: the file.
        new: what will be written.
        heard_since: whether somebody has listened to more, so that ``new`` may say so.

    Returns:
        The copy (``boxes.earlier.csv``) and why it was made; None where nothing would be lost.
    """
    why = _describe_loss(path, new, heard_since) if path.is_file() else ""
    if not why:
        return None
    kept = unused_name(path)
    shutil.copy2(path, kept)
    if reviewed_path(path).is_file():
        shutil.copy2(reviewed_path(path), reviewed_path(kept))
    return KeptCopy(kept, why)


def _describe_loss(path: Path, new: AnnotationSet, heard_since: bool) -> str:
    """What a file says about boxes and listening that ``new`` does not; a file that cannot be read may say anything."""
    gone = "held boxes, or parts of recordings that were listened to, that are not in the new one"
    try:
        old = read_annotations(path)
    except AnnotationError:
        return gone if path.stat().st_size else ""
    before, after = _heard_spans(old, new), _heard_spans(new, new)
    unheard = any(_is_longer(spans, after.get(name, [])) for name, spans in before.items())
    if _box_set(old) - _box_set(new) or set(old.annotated()) - set(new.annotated()) or unheard:
        return gone
    # a table without spans says nothing about listening
    wider = [
        name for name in old.annotated() if before and _is_longer(after.get(name, []), before.get(name, []))
    ]
    if heard_since or not wider:
        return ""
    return f"said that less was listened to than the new one says (in {format_names(wider, 3)})"


def _heard_spans(annotations: AnnotationSet, known: AnnotationSet) -> dict[str, list[TimeSpan]]:
    """Recording → what was listened to, up to the recording's end where ``known`` has its duration."""
    spans = annotations.reviewed
    lasts = spans["recording"].map(known.durations()).astype("float64").fillna(np.inf)
    ends = np.minimum(spans["end_s"].fillna(np.inf), lasts)
    heard: dict[str, list[TimeSpan]] = {}
    for name, start, end in zip(spans["recording"], spans["start_s"], ends, strict=True):
        heard.setdefault(name, []).append((start, end))
    return heard


def _is_longer(spans: list[TimeSpan], others: list[TimeSpan]) -> bool:
    """Whether some time is in ``spans`` alone."""
    return total_s(subtract_spans(spans, others)) > _SLACK_S


def _box_set(annotations: AnnotationSet) -> set[tuple[object, ...]]:
    return set(annotations.events[["recording", *BOX_COLUMNS, "label"]].itertuples(index=False, name=None))
