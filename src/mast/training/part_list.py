"""Which recordings a run trains on, validates on and tests on, as a table in its folder.

The parts follow from the recordings, their boxes and the seed. Written down, they can be looked up, copied into the
column ``split`` of ``recordings.csv`` so that other seeds and other tools use the same ones, or evaluated one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

from mast.data.recordings import Dataset
from mast.data.splits import parts_in_order
from mast.grid import FrontEnd
from mast.training.chosen_chunks import Chunks
from mast.training.leakage import spans_of
from mast.wording import counted

PART_LIST = "split.csv"
_ROLE_OF_ONE = {"train": "trains", "val": "validates", "test": "is held back for testing"}
_ROLE_OF_SEVERAL = {"train": "train", "val": "validate", "test": "are held back for testing"}


def list_parts(dataset: Dataset, parts: Mapping[str, Chunks]) -> pd.DataFrame:
    """One row for each stretch of a recording in a part: ``file, split, start_s, end_s, boxes``.

    Boxes count where their middle is; those in the gap between two parts of one recording are in neither.
    """
    middles = dataset.annotations.events.assign(
        middle_s=lambda events: (events["start_s"] + events["end_s"]) / 2
    )
    by_recording = {name: own["middle_s"] for name, own in middles.groupby("recording")}
    rows = []
    for part in parts_in_order(parts):
        for name, spans in sorted(spans_of(parts[part].table).items()):
            own = by_recording.get(name, pd.Series(dtype=float))
            rows += [(name, part, start, end, int(own.between(start, end).sum())) for start, end in spans]
    return pd.DataFrame(rows, columns=["file", "split", "start_s", "end_s", "boxes"])


class UnusedBoxes(NamedTuple):
    """Boxes in no part: nothing is learnt from them or measured on them."""

    boxes: int
    sentence: str  # a sentence without its full stop; empty where there are none


def unused_boxes(dataset: Dataset, table: pd.DataFrame, front_end: FrontEnd) -> UnusedBoxes:
    """The boxes in none of the stretches that :func:`list_parts` gives, and why.

    Args:
        dataset: as it was divided.
        table: of :func:`list_parts`.
        front_end: length of a chunk.
    """
    events = dataset.annotations.events
    columns = ["start_s", "end_s"]
    stretches = {name: own[columns].to_numpy(dtype=float) for name, own in table.groupby("file")}
    nowhere = np.empty((0, 2))

    def touched(name: str, start_s: float, end_s: float) -> bool:
        own = stretches.get(name, nowhere)
        return bool(((own[:, 0] < end_s) & (own[:, 1] > start_s)).any())

    used = map(touched, events["recording"], events["start_s"], events["end_s"])
    missed = events.loc[[not one for one in used], "recording"]
    names = list(dict.fromkeys(missed))
    if not names:
        return UnusedBoxes(0, "")
    n = len(missed)
    cut = bool((table[table["file"].isin(names)].groupby("file")["split"].nunique() > 1).any())
    verb, subject = ("is", "it lies") if n == 1 else ("are", "they lie")
    return UnusedBoxes(
        n,
        f"{n:,} of {counted(len(events), 'box')} {verb} not used, {'' if n == 1 else 'the first '}in {names[0]}: "
        f"{subject} where less than {front_end.chunk_s:.4g} s was listened to without a gap, or before or after the "
        f"whole chunks of a longer stretch{', or between two parts of one recording' if cut else ''}",
    )


def describe_parts(table: pd.DataFrame) -> str:
    """How many recordings and boxes each part has.

    >>> rows = [("a.wav", "train", 0.0, 60.0, 12), ("b.wav", "val", 0.0, 60.0, 3), ("c.wav", "val", 0.0, 60.0, 1)]
    >>> describe_parts(pd.DataFrame(rows, columns=["file", "split", "start_s", "end_s", "boxes"]))
    '1 recording with 12 boxes trains, 2 recordings with 4 boxes validate'
    """
    words = []
    for part in parts_in_order(table["split"]):
        own = table[table["split"] == part]
        n, boxes = own["file"].nunique(), int(own["boxes"].sum())
        role = (_ROLE_OF_ONE if n == 1 else _ROLE_OF_SEVERAL).get(part, f"{'is' if n == 1 else 'are'} {part}")
        words.append(f"{counted(n, 'recording')} with {counted(boxes, 'box')} {role}")
    return ", ".join(words)
