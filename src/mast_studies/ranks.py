"""How well nearest neighbours name events: Top-1, Top-5, mean rank (App. "Box-Level Embeddings").

Each query box looks for its neighbours among annotated boxes. Its *rank* is the place of the first neighbour with the
right label, counted in boxes (1 is best); Top-1 and Top-5 are the shares of queries with a rank of at most 1 and 5. Its
*label rank* counts different labels instead of boxes, as a list of suggestions would show them. Ties count against.

The paper does not say whether boxes of the query's own recording may answer. They would make it easy (one animal calls
many times in a minute), so by default they may not; the results say which rule applied. Queries whose label no
permitted box has are left out and counted. Intervals draw recordings, not boxes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from mast.arrays import FloatArray, IntArray
from mast.errors import ConfigError
from mast.evaluation.bootstrap import draw_weights, interval
from mast.evaluation.metrics import ratio
from mast.retrieval.nearest import to_unit_length

_BLOCK_VALUES = 1 << 22  # similarities held at once (16 MB)
_MEASURES = ("top1", "top5", "mean_rank", "mean_label_rank")


class LabelledVectors(NamedTuple):
    """Boxes that carry a label."""

    vectors: NDArray[np.float32]  # (M, D)
    labels: Sequence[str]  # (M,)
    recordings: Sequence[str]  # (M,)


@dataclass(frozen=True, eq=False)
class Ranks:
    """The rank of each query that could be answered.

    Attributes:
        row: (Q,) rows of the queries.
        rank: (Q,) in boxes.
        label_rank: (Q,) in labels.
        chance: (Q,) Top-1 of a random order: the share of right ones among the boxes that may answer.
        recording: (Q,) the query's recording, as a whole number.
        n_unanswerable: queries that no box may answer.
        n_gallery: boxes that may answer.
        n_labels: different labels of the queries that could be answered.
        other_recordings: boxes of the query's recording may not answer.
    """

    row: IntArray
    rank: IntArray
    label_rank: IntArray
    chance: FloatArray
    recording: IntArray
    n_unanswerable: int
    n_gallery: int
    n_labels: int
    other_recordings: bool

    def measures(self, weights: FloatArray | None = None) -> dict[str, FloatArray]:
        """Each measure, (1,), or (resamples,) with weights (resamples, recordings)."""
        n_recordings = int(self.recording.max()) + 1 if len(self.recording) else 0
        weights = np.ones((1, n_recordings)) if weights is None else weights
        values = {
            "top1": self.rank <= 1,
            "top5": self.rank <= 5,
            "mean_rank": self.rank,
            "mean_label_rank": self.label_rank,
        }
        return {name: mean_in_draws(value, self.recording, weights) for name, value in values.items()}

    def summary(self, *, resamples: int = 1_000, seed: int = 0) -> dict[str, object]:
        """Measures with 95 % intervals over recordings, and what they were measured on."""
        n_recordings = len(np.unique(self.recording))
        drawn = self.measures(draw_weights(n_recordings, resamples, seed))
        point = {name: float(value[0]) for name, value in self.measures().items()}
        return {
            "n_queries": len(self.rank),
            "n_unanswerable": self.n_unanswerable,
            "n_gallery": self.n_gallery,
            "n_labels": self.n_labels,
            "n_recordings": n_recordings,
            "other_recordings_only": self.other_recordings,
            **point,
            "top1_of_a_random_order": float(self.chance.mean()) if len(self.chance) else float("nan"),
            "intervals": {name: interval(drawn[name]) for name in _MEASURES},
        }


def rank_queries(
    queries: LabelledVectors, gallery: LabelledVectors | None = None, *, other_recordings: bool = True
) -> Ranks:
    """Rank the right answer of each query; see the module docstring.

    Args:
        queries: boxes to be named.
        gallery: boxes that name them; the queries themselves by default, and then none answers for itself.
        other_recordings: boxes of the query's recording may not answer.

    Raises:
        ConfigError: vectors of different widths, or a number of labels that is not the number of vectors.
    """
    answers = queries if gallery is None else gallery
    for some in (queries, answers):
        if not len(some.vectors) == len(some.labels) == len(some.recordings):
            raise ConfigError(
                f"{len(some.vectors)} vectors, {len(some.labels)} labels and {len(some.recordings)} recordings do not "
                "belong together"
            )
    wanted, known = to_unit_length(queries.vectors), to_unit_length(answers.vectors)
    if len(wanted) and len(known) and wanted.shape[1] != known.shape[1]:
        raise ConfigError(
            f"queries of width {wanted.shape[1]} do not compare with boxes of width {known.shape[1]}"
        )
    n_queries = len(wanted)
    label = _codes([*queries.labels, *answers.labels])
    recording = _codes([*queries.recordings, *answers.recordings])
    query_label, query_recording = label[:n_queries], recording[:n_queries]
    by_label = np.argsort(label[n_queries:], kind="stable")  # labels side by side
    known, answer_label, answer_recording = (
        known[by_label],
        label[n_queries:][by_label],
        recording[n_queries:][by_label],
    )
    label_start = np.flatnonzero(np.diff(answer_label, prepend=-1))  # (labels of the gallery,)
    rank, label_rank = np.zeros(n_queries, np.int64), np.zeros(n_queries, np.int64)
    chance = np.zeros(n_queries)
    rows = max(1, _BLOCK_VALUES // max(len(known), 1))
    for first in range(0, n_queries if len(known) else 0, rows):
        block = slice(first, min(first + rows, n_queries))
        similarity = wanted[block] @ known.T  # (n, M)
        if other_recordings:
            similarity[query_recording[block, None] == answer_recording[None, :]] = -np.inf
        if gallery is None:
            own = np.arange(block.start, block.stop)[:, None] == by_label[None, :]
            similarity[own] = -np.inf
        right = query_label[block, None] == answer_label[None, :]
        best = np.where(right, similarity, -np.inf).max(axis=1)
        answerable = np.isfinite(best)
        rank[block] = np.where(answerable, 1 + ((similarity >= best[:, None]) & ~right).sum(axis=1), 0)
        best_of_label = np.maximum.reduceat(similarity, label_start, axis=1)  # (n, labels)
        label_rank[block] = (best_of_label >= best[:, None]).sum(axis=1) * answerable
        allowed = np.isfinite(similarity)
        chance[block] = (allowed & right).sum(axis=1) / np.maximum(allowed.sum(axis=1), 1)
    row = np.flatnonzero(rank > 0)
    return Ranks(
        row=row,
        rank=rank[row],
        label_rank=label_rank[row],
        chance=chance[row],
        recording=pd.factorize(query_recording[row])[0].astype(np.int64),
        n_unanswerable=n_queries - len(row),
        n_gallery=len(known),
        n_labels=len(np.unique(query_label[row])),
        other_recordings=other_recordings,
    )


def mean_in_draws(values: ArrayLike, recording: IntArray, weights: FloatArray) -> FloatArray:
    """The mean of values in each draw, (resamples,); NaN where a draw holds none.

    Args:
        values: (N,).
        recording: (N,) column of each value's recording.
        weights: (resamples, recordings) how often each is drawn.
    """
    own = np.asarray(values, dtype=np.float64)
    total = weights @ np.bincount(recording, weights=own, minlength=weights.shape[1])
    return ratio(total, weights @ np.bincount(recording, minlength=weights.shape[1]).astype(float))


def paired_difference(a: Ranks, b: Ranks, *, resamples: int = 1_000, seed: int = 0) -> dict[str, object]:
    """``b − a`` of each measure, with intervals; both use the same draws of recordings.

    Raises:
        ConfigError: they did not answer the same queries.
    """
    if not np.array_equal(a.row, b.row):
        raise ConfigError("the two did not answer the same queries, so they cannot be compared in pairs")
    weights = draw_weights(len(np.unique(a.recording)), resamples, seed)
    drawn_a, drawn_b, point_a, point_b = a.measures(weights), b.measures(weights), a.measures(), b.measures()
    return {
        name: {
            "difference": float(point_b[name][0] - point_a[name][0]),
            "interval": interval(drawn_b[name] - drawn_a[name]),
        }
        for name in _MEASURES
    }


def _codes(names: Sequence[str]) -> IntArray:
    return np.asarray(pd.factorize(np.asarray(names, dtype=object))[0], dtype=np.int64)
