"""A few boxes as a user would draw them: chunks of recordings, in a random order, until they hold that many."""

from __future__ import annotations

import numpy as np
import pandas as pd

from mast.data.part_assignment import shuffle_key
from mast.data.recordings import Dataset
from mast.errors import ConfigError

MIN_PIECE = 0.1  # of a chunk: a remainder shorter than this is not a chunk of its own


def list_chunks(dataset: Dataset, chunk_s: float) -> pd.DataFrame:
    """Chunks end to end over the recordings, as :func:`mast.data.chunk_table` gives them, with short recordings whole.

    That table drops what is shorter than half a chunk; with only a handful of boxes, none should be lost.
    """
    rows = []
    table = dataset.recordings
    for name, duration, site in zip(table["file"], table["duration_s"], table["site"], strict=True):
        for start in np.arange(0.0, float(duration), chunk_s):
            valid = min(chunk_s, float(duration) - start)
            if valid >= MIN_PIECE * chunk_s or start == 0:
                rows.append((str(name), float(start), valid, str(site)))
    found = pd.DataFrame(rows, columns=["recording", "start_s", "valid_s", "site"])
    no_hour = pd.Series(pd.NA, index=found.index, dtype="Int64")
    return found.assign(datetime="", hour=no_hour, labelled=True, root=str(dataset.root))


def count_boxes(dataset: Dataset, table: pd.DataFrame) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """How many boxes each chunk costs: each box is counted once, in the chunk that holds its centre."""
    events = dataset.annotations.events
    centre = (events["start_s"] + events["end_s"]) / 2
    counts = [
        int(((events["recording"] == name) & (centre >= start) & (centre < start + valid)).sum())
        for name, start, valid in zip(table["recording"], table["start_s"], table["valid_s"], strict=True)
    ]
    return np.array(counts, dtype=np.int64)


def sample_chunks(
    table: pd.DataFrame, counts: np.ndarray[tuple[int], np.dtype[np.int64]], boxes: int, *, seed: int
) -> list[int]:
    """Rows of the chunks that a budget pays for: taken in random order until they hold that many boxes.

    The order depends on the seed alone, so a larger budget contains the smaller. Chunks without boxes that come up on
    the way belong to it: somebody listened to them.
    """
    places = zip(table["recording"], table["start_s"], strict=True)
    keys = [shuffle_key(seed, str(recording), f"{start:.3f}") for recording, start in places]
    order = sorted(range(len(table)), key=keys.__getitem__)
    cumulative = np.cumsum(counts[order])
    if not len(order) or cumulative[-1] < boxes:
        raise ConfigError(f"{boxes} boxes asked for, but there are {int(counts.sum())}; ask for fewer")
    return order[: int(np.searchsorted(cumulative, boxes)) + 1]
