"""Clips that together sound like the whole archive, with more weight where the detector is unsure.

Facility location: a chunk of the archive is covered as far as it resembles the most similar chunk that was heard, and
the next clip is the one that adds most to the sum of what is covered. Chunks near each other need no second clip, an
odd noise covers nothing but itself (where picking the farthest would pick every thunderclap), and what was annotated
before counts as heard. The sum is submodular, so taking the best next clip is within 1 − 1/e of the best set.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import numpy as np

from mast.arrays import FloatArray, IntArray, Vectors
from mast.retrieval.nearest import to_unit_length

GROUND = 4_096  # maximum number of chunks that have to be covered; our choice: 64 MB for 4,096 candidates
_BLOCK = 512  # clips compared at once


@dataclass(frozen=True)
class Survey:
    """What a model makes of the candidate clips.

    Attributes:
        vectors: (K, D) embeddings of chunks, several to a clip.
        clip: (K,) the candidate each belongs to, as a row number, ascending.
        uncertainty: (C,) how unsure the detector is in each candidate: about how many of its boxes are wrong; all 0
            where there is no detector.
        heard: (H, D) embeddings of chunks that somebody has listened to already.
        failures: candidate → why its sound could not be read; never chosen.
    """

    vectors: Vectors
    clip: IntArray
    uncertainty: FloatArray
    heard: Vectors = field(default_factory=lambda: np.zeros((0, 0), dtype=np.float32))
    failures: dict[int, str] = field(default_factory=dict)

    @property
    def n_clips(self) -> int:
        """How many candidates there are."""
        return len(self.uncertainty)


def cover_order(survey: Survey, n: int) -> IntArray:
    """Row numbers of the best ``n`` candidates, best first; fewer where there are no more.

    Greedy with a heap of stale gains: a gain only shrinks as more is covered, so a clip whose gain, computed again, is
    still on top is the best. Ties go to the earlier candidate, so nothing here is random.
    """
    if not survey.n_clips or not len(survey.vectors):
        return np.zeros(0, dtype=np.int64)
    similarity, covered, weight = coverage(survey)
    present = np.unique(survey.clip)
    heap: list[tuple[float, int, int]] = []  # −gain, candidate, size of the choice when it was computed
    for begin in range(0, len(present), _BLOCK):
        rows = present[begin : begin + _BLOCK]
        gains = np.maximum(similarity[rows] - covered, 0.0) @ weight
        heap += [(-float(gain), int(row), 0) for gain, row in zip(gains, rows, strict=True)]
    heapq.heapify(heap)
    chosen: list[int] = []
    while heap and len(chosen) < n:
        _, row, when = heapq.heappop(heap)
        if when < len(chosen):
            gain = float(np.maximum(similarity[row] - covered, 0.0) @ weight)
            heapq.heappush(heap, (-gain, row, len(chosen)))
            continue
        chosen.append(row)
        covered = np.maximum(covered, similarity[row])
    return np.array(chosen, dtype=np.int64)


def coverage(survey: Survey) -> tuple[Vectors, Vectors, FloatArray]:
    """How well each candidate covers each chunk, what is covered already, and how much each chunk counts.

    Returns:
        (C, G) similarity in 0–1, of the candidate's most similar chunk; (G,) the same for what was heard already;
        (G,) weights with mean 1. In a large archive, G chunks at equal distances in the list stand for all.
    """
    vectors, heard = _centred(survey.vectors, survey.heard)
    ground = np.unique(np.linspace(0, len(vectors) - 1, min(GROUND, len(vectors))).round().astype(np.int64))
    target = vectors[ground]
    similarity = np.zeros((survey.n_clips, len(ground)), dtype=np.float32)
    present, first = np.unique(survey.clip, return_index=True)
    last = np.append(first[1:], len(vectors))
    for begin in range(0, len(present), _BLOCK):
        some = slice(begin, begin + _BLOCK)
        of_chunks = kernel(vectors[first[some][0] : last[some][-1]] @ target.T)
        similarity[present[some]] = np.maximum.reduceat(of_chunks, first[some] - first[some][0], axis=0)
    covered = np.zeros(len(ground), dtype=np.float32)
    for begin in range(0, len(heard), _BLOCK):
        covered = np.maximum(covered, kernel(heard[begin : begin + _BLOCK] @ target.T).max(axis=0))
    return similarity, covered, clip_weights(survey.uncertainty)[survey.clip[ground]]


def clip_weights(uncertainty: FloatArray) -> FloatArray:
    """(C,) how much a clip counts: half for being there, half for how unsure the detector is; the mean is 1.

    The logarithm keeps a clip with a hundred unsure boxes from outweighing all others.
    """
    damped = np.log1p(np.asarray(uncertainty, dtype=np.float64))
    mean = damped.mean() if len(damped) else 0.0
    return np.full(len(damped), 1.0) if mean == 0 else 0.5 + 0.5 * damped / mean


def kernel(cosine: Vectors) -> Vectors:
    """Cosine → similarity in 0–1: unlike sounds (a right angle or more) cover nothing of each other."""
    return np.asarray(np.clip(cosine, 0.0, 1.0), dtype=np.float32)


def _centred(vectors: Vectors, heard: Vectors) -> tuple[Vectors, Vectors]:
    """Unit vectors around their common mean: what all chunks share says nothing, and would hide how they differ."""
    both = [np.asarray(vectors, dtype=np.float32)]
    both.append(np.asarray(heard, dtype=np.float32).reshape(-1, both[0].shape[1]))
    middle = np.concatenate(both).mean(axis=0, dtype=np.float64).astype(np.float32)
    around = [part - middle for part in both]
    return to_unit_length(around[0]), to_unit_length(around[1])
