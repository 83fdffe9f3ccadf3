"""Notes into songs: events of one recording that follow each other closely in a similar band become one."""

from __future__ import annotations

import numpy as np
import pandas as pd

from mast.arrays import FloatArray, IntArray
from mast.events import boxes_of, pairwise_band_iou

SIMILAR_BAND = 0.25  # overlap of two bands as a share of both together; our choice
NOTES = "notes"  # the column that counts what was joined


def join_events(events: pd.DataFrame, gap_s: float) -> pd.DataFrame:
    """One event for each song.

    Two events of one recording and label belong to one song where at most ``gap_s`` seconds lie between them and the
    overlap of their bands is at least a quarter of both together; two that belong with a third belong together.

    Args:
        events: in the event schema, in any order.
        gap_s: seconds.

    Returns:
        In the order of the first note of each song. Its box holds all of them; everything else is taken from the note
        with the highest score, except for the time of day, which is that of the first. ``notes`` counts them.
    """
    if events.empty:
        return events.assign(**{NOTES: np.zeros(0, np.int64)})
    song = np.empty(len(events), dtype=np.int64)
    counted = 0
    for rows in events.groupby(["recording", "label"], sort=False).indices.values():
        song[rows] = counted + song_numbers(boxes_of(events.iloc[rows]), gap_s)
        counted = int(song[rows].max()) + 1
    by_score = events.assign(song=song).sort_values(
        "score", ascending=False, kind="stable", na_position="last"
    )
    joined = by_score.drop_duplicates("song").set_index("song")
    grouped = events.groupby(song)
    for edge, which in (("start_s", "min"), ("low_hz", "min"), ("end_s", "max"), ("high_hz", "max")):
        joined[edge] = grouped[edge].agg(which)
    first = events.assign(song=song).sort_values("start_s", kind="stable").drop_duplicates("song")
    joined["datetime"] = first.set_index("song")["datetime"]
    joined[NOTES] = grouped.size()
    order = pd.Series(np.arange(len(events))).groupby(song).min().sort_values().index
    return joined.loc[order].reset_index(drop=True)


def join_boxes(boxes: FloatArray, scores: FloatArray, gap_s: float) -> tuple[FloatArray, IntArray]:
    """The box of each song, and the row of its best-scored note.

    Args:
        boxes: (N, 4) rows start_s, low_hz, end_s, high_hz of one recording.
        scores: (N,).
        gap_s: as in :func:`join_events`.
    """
    song = song_numbers(boxes, gap_s)
    by_score = np.argsort(-scores, kind="stable")
    _, first = np.unique(song[by_score], return_index=True)
    best = by_score[first]
    joined = boxes[best].copy()
    np.minimum.at(joined[:, :2], song, boxes[:, :2])
    np.maximum.at(joined[:, 2:], song, boxes[:, 2:])
    return joined, best


def song_numbers(boxes: FloatArray, gap_s: float, similar: float = SIMILAR_BAND) -> IntArray:
    """The number of the song that each box belongs to, from 0 on; rows start_s, low_hz, end_s, high_hz.

    Boxes may be in other units, such as frames and mel bins, with the gap in the same.
    """
    from scipy.sparse import coo_array  # a third of a second to import, and most searches join nothing
    from scipy.sparse.csgraph import connected_components

    links: list[tuple[int, int]] = []
    waiting = np.zeros(0, dtype=np.int64)  # boxes that a later one may still belong to
    for row in np.argsort(boxes[:, 0], kind="stable").tolist():
        waiting = waiting[boxes[waiting, 2] >= boxes[row, 0] - gap_s]
        alike = pairwise_band_iou(boxes[row], boxes[waiting])[0] >= similar
        links += [(row, other) for other in waiting[alike].tolist()]
        waiting = np.append(waiting, row)
    a, b = np.array(links, dtype=np.int64).reshape(-1, 2).T
    graph = coo_array((np.ones(len(a)), (a, b)), shape=(len(boxes), len(boxes)))
    return np.asarray(connected_components(graph, directed=False)[1], dtype=np.int64)
