"""Boxes outside the band that a model hears, although there is sound: one rule and one message for all commands.

Such a box is neither a call to find nor a miss. Where nothing else was boxed, the band is empty, and the sound counts
as heard and empty.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import replace

import pandas as pd

from mast.data.recordings import Dataset
from mast.errors import MastError
from mast.events import boxes_of
from mast.grid import FrontEnd, in_band


def restrict_to_band(
    dataset: Dataset, front_end: FrontEnd, *, tell: Callable[[str], None] = warnings.warn
) -> Dataset:
    """The dataset without the boxes that a front end cannot see; the record of what was listened to stays.

    Boxes that reach beyond the band stay whole here: :func:`mast.grid.events_to_grid` cuts them.

    Args:
        dataset: recordings and boxes.
        front_end: the band.
        tell: called with a sentence about boxes that are left out; a warning by default.

    Raises:
        MastError: there are boxes, and all lie outside.
    """
    events = dataset.annotations.events
    warning = band_warning(events, front_end, "boxes")
    if not warning:
        return dataset
    seen = events[in_band(boxes_of(events), front_end)]
    if seen.empty:
        raise MastError(f"{dataset.root}: {warning}, so nothing is left to learn from")
    tell(f"{dataset.root}: {warning}")
    return replace(dataset, annotations=replace(dataset.annotations, events=seen.reset_index(drop=True)))


def band_warning(events: pd.DataFrame, front_end: FrontEnd, what: str) -> str:
    """How many events lie outside the band and which ``--band`` would include them; empty where none does.

    Args:
        events: in the event schema.
        front_end: the band.
        what: what to call the events, in the plural.
    """
    outside = events[~in_band(boxes_of(events), front_end)]
    if outside.empty:
        return ""
    above = outside[outside["high_hz"] > front_end.high_hz]
    if above.empty:
        remedy = "a lower --band begins further down"
    else:
        which = "them" if len(above) == len(outside) else "those above it"
        remedy = f"--band {math.ceil(above['high_hz'].max())} would include {which}"
    return (
        f"{len(outside):,} of {len(events):,} {what} lie outside the band of {front_end.low_hz:g}–"
        f"{front_end.high_hz:g} Hz and are left out ({remedy})"
    )
