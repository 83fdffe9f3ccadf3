"""Boxes of overlapping windows → events of the recording, each counted once.

Two neighbouring windows both see the sound where they overlap. A box of one and a box of the other mean the
same event when, cut to that shared span, they cover the same time and band. Then the event is taken from the
window that sees it whole (of two such windows from the one that sees it farther from its edges); where both
cut it, the pieces are joined. A box that only one of the windows reports counts if that window *owns* its
centre: each window owns its part of the recording up to the middle of its overlaps, so that every sound has
one judge, as in training, and a second window does not give false alarms a second chance.

Where one window covers an event as several boxes and its neighbour as one, what is left over after matching is
dropped. So no box is kept beside one from another window with which it has an IoU of 0.5 or more: outside the
shared span the two have nothing in common, so their IoU there is at least that of the whole boxes.

Everything is in cells counted from the recording's start: frames may be fractional, and bands are compared in
mel bins, where a small call and a large one are judged alike. Only boxes that reach into the latest window are
held, so a recording may have any length.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mast.arrays import BoolArray, FloatArray, IntArray
from mast.events import pairwise_iom, pairwise_iou, suppress_overlapping

Embeddings = NDArray[np.float16]

EDGE_CELLS = 2.0  # our choice: a box that ends this close to a window's edge counts as cut by it
SAME_EVENT = 0.5  # our choice, as the NMS within a window: minimum agreement of two boxes of one event


class ScoredBoxes(NamedTuple):
    """Boxes, their scores and, if requested, their embeddings."""

    boxes: FloatArray  # (K, 4) rows t1, f1, t2, f2 in cells from the recording's start
    scores: FloatArray  # (K,)
    embeddings: Embeddings | None = None  # (K, D)


@dataclass(eq=False)
class _Track:
    """An event as the windows so far have seen it."""

    box: FloatArray  # (4,)
    score: float
    seen_until: float  # end of the latest window that saw it
    margin: float  # distance to the nearer edge of the window it was taken from
    owned: bool  # its window owns its centre
    embedding: Embeddings | None  # (D,) from the window that saw most of it
    confirmed: bool = False  # another window reported it too
    weight: float = field(init=False)  # frames that band and score are averaged over
    embedded: float = field(init=False)  # frames of it that the embedding is of

    def __post_init__(self) -> None:
        self.weight = self.embedded = float(self.box[2] - self.box[0])

    @property
    def cut(self) -> bool:
        """Whether it seems to continue past the last window that saw it."""
        return bool(self.box[2] >= self.seen_until - EDGE_CELLS)


class Stitcher:
    """Joins the boxes of a recording's windows, given in order.

    >>> stitcher = Stitcher()
    >>> first = stitcher.add(0, 100, [[80, 3, 100, 9]], [0.5])  # cut by the window's end
    >>> second = stitcher.add(50, 150, [[80, 3, 130, 9]], [0.9])  # seen whole
    >>> stitcher.finish().boxes.tolist()
    [[80.0, 3.0, 130.0, 9.0]]
    """

    def __init__(self) -> None:
        self._tracks: list[_Track] = []
        self._latest_end = -math.inf  # of the window added last
        self._owned_from = -math.inf
        self._latest: list[_Track] = []  # tracks that began in the window added last

    def add(
        self,
        start: float,
        end: float,
        boxes: ArrayLike,
        scores: ArrayLike,
        embeddings: Embeddings | None = None,
    ) -> ScoredBoxes:
        """Take the boxes of the next window; give back the events that no later window can change.

        Args:
            start: where the window begins, in frames; not before the window given last.
            end: where its sound ends.
            boxes: (K, 4) cells from the recording's start, inside the window.
            scores: (K,).
            embeddings: (K, D), or none for all windows. Pieces of one event are not averaged: an embedding
                is what one window heard, so that of a joined event is its longest piece's.
        """
        new = np.asarray(boxes, dtype=np.float64).reshape(-1, 4)
        new_scores = np.asarray(scores, dtype=np.float64).reshape(-1)
        rows = [None] * len(new) if embeddings is None else [row.copy() for row in embeddings]
        self._divide_ownership(start)
        done = [track for track in self._tracks if track.box[2] < start - EDGE_CELLS]
        self._tracks = [track for track in self._tracks if track.box[2] >= start - EDGE_CELLS]

        same, agreement = _compare(self._tracks, new, start)
        with_box, with_track = same.sum(axis=1) > 0, same.sum(axis=0) > 0
        free_tracks, free_boxes = with_box.copy(), with_track.copy()
        order = np.argsort(-np.where(same, agreement, -1.0), axis=None, kind="stable")[: int(same.sum())]
        for i, j in zip(*np.unravel_index(order, same.shape), strict=True):
            if free_tracks[i] and free_boxes[j]:
                _fuse(self._tracks[i], new[j], float(new_scores[j]), rows[j], start, end)
                free_tracks[i] = free_boxes[j] = False
        # a box that has a counterpart but is still free is a further part of an event that is now counted
        self._tracks = [t for t, left_over in zip(self._tracks, free_tracks, strict=True) if not left_over]
        self._latest = [
            _Track(
                box=box,
                score=float(score),
                seen_until=end,
                margin=float(min(box[0] - start, end - box[2])),
                owned=bool(box[[0, 2]].mean() >= self._owned_from),
                embedding=row,
            )
            for box, score, row, known in zip(new, new_scores, rows, with_track, strict=True)
            if not known
        ]
        self._tracks += self._latest
        self._latest_end = end
        return _confirmed_boxes(done)

    def finish(self) -> ScoredBoxes:
        """The events still held, at the end of the recording."""
        return _confirmed_boxes(self._tracks)

    def _divide_ownership(self, start: float) -> None:
        """The window that begins at ``start`` takes over from the middle of its overlap with the last one."""
        if self._latest_end == -math.inf:
            return
        self._owned_from = (self._latest_end + start) / 2
        for track in self._latest:
            track.owned &= bool(track.box[[0, 2]].mean() < self._owned_from)


def _compare(tracks: list[_Track], new: FloatArray, start: float) -> tuple[BoolArray, FloatArray]:
    """Which track and which new box are one event, and how well they agree, (N, K) each."""
    if not tracks or not len(new):
        return np.zeros((len(tracks), len(new)), dtype=bool), np.zeros((len(tracks), len(new)))
    old = np.stack([track.box for track in tracks])
    until = np.array([track.seen_until for track in tracks])[:, None]  # (N, 1) end of the shared span
    track_cut = np.array([track.cut for track in tracks])[:, None]
    new_cut = new[None, :, 0] <= start + EDGE_CELLS
    # both in the shared span [start, until]
    old_t1, old_t2 = np.maximum(old[:, 0], start)[:, None], np.minimum(old[:, 2], until[:, 0])[:, None]
    new_t1, new_t2 = np.maximum(new[:, 0], start)[None, :], np.minimum(new[None, :, 2], until)
    old_span, new_span = old_t2 - old_t1, new_t2 - new_t1
    shared = np.clip(np.minimum(old_t2, new_t2) - np.maximum(old_t1, new_t1), 0.0, None)
    time_iou = _ratio(shared, np.clip(old_span, 0, None) + np.clip(new_span, 0, None) - shared)
    time_iom = _ratio(shared, np.minimum(old_span, new_span))
    band = np.minimum(old[:, None, 3], new[None, :, 3]) - np.maximum(old[:, None, 1], new[None, :, 1])
    band = np.clip(band, 0.0, None)
    heights = (old[:, 3] - old[:, 1])[:, None], (new[:, 3] - new[:, 1])[None, :]
    band_iou, band_iom = _ratio(band, sum(heights) - band), _ratio(band, np.minimum(*heights))

    # a sliver that barely reaches into the shared span says nothing about it
    comparable = _reaches(old_span, old[:, 2:3] - old[:, 0:1]) & _reaches(
        new_span, (new[:, 2] - new[:, 0])[None, :]
    )
    alike = comparable & (time_iou * band_iou >= SAME_EVENT)
    # of a cut event the two windows see different parts, so a part inside the other's is enough
    fragments = comparable & (track_cut | new_cut) & (time_iom >= SAME_EVENT) & (band_iom >= SAME_EVENT)
    # windows that share hardly any sound: an event is cut in two at the seam
    narrow = until - start <= 2 * EDGE_CELLS
    adjoining = narrow & track_cut & new_cut & (band_iom >= SAME_EVENT)
    return alike | fragments | adjoining, np.where(adjoining, 1.0, time_iou) * band_iou


def _reaches(span: FloatArray, length: FloatArray) -> BoolArray:
    return np.asarray((span > 0) & ((span >= EDGE_CELLS) | (span >= length - 1e-9)))


def _ratio(part: FloatArray, whole: FloatArray) -> FloatArray:
    return np.divide(part, whole, out=np.zeros(np.broadcast_shapes(part.shape, whole.shape)), where=whole > 0)


def _fuse(
    track: _Track, box: FloatArray, score: float, embedding: Embeddings | None, start: float, end: float
) -> None:
    """Let a track and a box of the window ``[start, end]`` be one event."""
    box_cut = box[0] <= start + EDGE_CELLS
    margin = float(min(box[0] - start, end - box[2]))
    if track.cut:
        join = box_cut or track.box[0] < start
        take = not join
    elif box_cut:
        join = bool(box[2] > track.seen_until)
        take = False
    else:  # both see it whole
        join = False
        take = margin > track.margin
    length = float(box[2] - box[0])
    if take or (join and length > track.embedded):
        track.embedding, track.embedded = embedding, length
    if join:
        share = length / (length + track.weight)
        band = (1 - share) * track.box[[1, 3]] + share * box[[1, 3]]
        times = min(track.box[0], box[0]), max(track.box[2], box[2])
        track.box = np.array([times[0], band[0], times[1], band[1]])
        track.score = (1 - share) * track.score + share * score
        track.weight += length
        track.margin = math.inf
    elif take:
        track.box, track.score, track.margin = box, score, margin
        track.weight = length
    track.seen_until = max(end, track.seen_until)
    track.confirmed = True


def _confirmed_boxes(tracks: list[_Track]) -> ScoredBoxes:
    kept = [track for track in tracks if track.owned or track.confirmed]
    boxes = np.array([track.box for track in kept], dtype=np.float64).reshape(-1, 4)
    scores = np.array([track.score for track in kept], dtype=np.float64)
    rows = [track.embedding for track in kept if track.embedding is not None]
    return ScoredBoxes(boxes, scores, np.stack(rows) if rows else None)


def without_nested(boxes: FloatArray, scores: FloatArray, share: float) -> IntArray:
    """Rows of a recording's events that stay when none may lie in a better one, in their order.

    As :func:`mast.models.nested.drop_nested` within a window: of two that share more than ``share`` of the smaller one,
    the lower-scored is dropped.
    """
    return suppress_overlapping(boxes, scores, threshold=share, overlap=pairwise_iom)


def suppress_fused(boxes: FloatArray, scores: FloatArray, nms_iou: float, nested: float) -> IntArray:
    """Rows of fused boxes that stay when no two overlap or lie in each other more than a detector's own may.

    Args:
        boxes: (N, 4) in cells.
        scores: (N,).
        nms_iou: of two that overlap more, the lower-scored is dropped.
        nested: likewise of two that share more than this of the smaller one; 1 for never.
    """
    rows = suppress_overlapping(boxes, scores, threshold=nms_iou, overlap=pairwise_iou)
    return rows[without_nested(boxes[rows], scores[rows], nested)] if nested < 1 else rows
