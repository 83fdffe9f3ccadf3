"""The data of a user who drew a few boxes: recordings in which some chunks were listened to, and others to test on."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from mast.data.recordings import Dataset
from mast.errors import ConfigError
from mast_studies.few_boxes_chunks import count_boxes, list_chunks, sample_chunks

MIN_RECORDINGS = 3  # with boxes, which `mast fit` needs to divide short recordings into parts


def sample_chunks_for_fit(learn: Dataset, chunk_s: float, boxes: int, *, seed: int) -> pd.DataFrame:
    """The chunks that a budget pays for: in random order, but one from each recording before a second from any.

    `mast fit` needs three recordings with boxes if they are short, so drawing continues until there are three.

    Args:
        learn: recordings to draw from.
        chunk_s: length of a chunk.
        boxes: at least this many, in three recordings.
        seed: for the order.

    Returns:
        Chunks as in :func:`list_chunks`, with ``boxes``.
    """
    table = list_chunks(learn, chunk_s)
    # without the chunks that training would drop
    table = table[(table["valid_s"] >= chunk_s / 2) | (table["start_s"] == 0)].reset_index(drop=True)
    counts = count_boxes(learn, table)
    order = np.array(sample_chunks(table, counts, int(counts.sum()), seed=seed))
    turn = table.iloc[order].groupby("recording").cumcount().to_numpy()
    order = order[np.argsort(turn, kind="stable")]
    for n in range(1, len(order) + 1):
        rows = table.iloc[order[:n]].assign(boxes=counts[order[:n]])
        boxed = rows.loc[rows["boxes"] > 0, "recording"].nunique()
        if rows["boxes"].sum() >= boxes and boxed >= MIN_RECORDINGS:
            return rows.reset_index(drop=True)
    raise ConfigError(
        f"{learn.root}: {boxes} boxes in {MIN_RECORDINGS} recordings asked for, but there are "
        f"{int(counts.sum())} in {len(learn.boxed_recordings)}; ask for fewer, or add recordings"
    )


def reviewed_spans(dataset: Dataset, drawn: pd.DataFrame, tests: Iterable[str]) -> pd.DataFrame:
    """What such a user has listened to: the chunks drawn, and the dataset's own spans in the recordings to test on."""
    ends = drawn.assign(end_s=drawn["start_s"] + drawn["valid_s"])
    spans = dataset.annotations.reviewed
    both = [ends, spans[spans["recording"].isin(list(tests))]]
    return pd.concat([table[["recording", "start_s", "end_s"]] for table in both], ignore_index=True)
