"""Nearest neighbours by cosine, exactly."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from mast.arrays import IntArray, Vectors

_BLOCK_VALUES = 1 << 22  # similarities held at once (16 MB)


class Neighbours(NamedTuple):
    """The nearest examples of each query, nearest first; −1 and infinity where there are fewer than k."""

    index: IntArray  # type: ignore[assignment]  # (N, k) rows among the examples
    distance: NDArray[np.float32]  # (N, k) 1 − cosine


def to_unit_length(vectors: ArrayLike) -> Vectors:
    """Rows of length one, float32; a row of zeros stays zero."""
    given = np.asarray(vectors, dtype=np.float32)
    length = np.linalg.norm(given.astype(np.float64), axis=-1, keepdims=True)
    return np.asarray(given / np.where(length > 0, length, 1.0), dtype=np.float32)


def nearest(
    queries: ArrayLike, examples: ArrayLike, k: int, *, exclude: tuple[tuple[ArrayLike, ArrayLike], ...] = ()
) -> Neighbours:
    """The k nearest examples of each query, exactly, a block at a time.

    Args:
        queries: (N, D) of any length.
        examples: (M, D) likewise.
        k: how many.
        exclude: pairs of (N,) and (M,) names; a query and an example of the same name in any pair are not compared
            (the same recording, the same event).
    """
    wanted, known = to_unit_length(queries), to_unit_length(examples)
    index = np.full((len(wanted), k), -1, dtype=np.int64)
    distance = np.full((len(wanted), k), np.inf, dtype=np.float32)
    codes = [_shared_codes(a, b) for a, b in exclude]
    rows = max(1, _BLOCK_VALUES // max(len(known), 1))
    take = min(k, len(known))
    if not take:
        return Neighbours(index, distance)
    for first in range(0, len(wanted), rows):
        block = slice(first, first + rows)
        away = 1.0 - wanted[block] @ known.T  # (n, M)
        for query_code, example_code in codes:
            away[query_code[block, None] == example_code[None, :]] = np.inf
        best = np.argpartition(away, take - 1, axis=1)[:, :take]
        values = np.take_along_axis(away, best, axis=1)
        order = np.lexsort((best, values), axis=1)
        best, values = np.take_along_axis(best, order, axis=1), np.take_along_axis(values, order, axis=1)
        index[block, :take] = np.where(np.isfinite(values), best, -1)
        distance[block, :take] = np.maximum(values, 0.0)
    return Neighbours(index, distance)


def _shared_codes(a: ArrayLike, b: ArrayLike) -> tuple[IntArray, IntArray]:
    """Names of two tables as integer codes that can be compared."""
    names = np.concatenate([np.asarray(a, dtype=object), np.asarray(b, dtype=object)])
    codes = pd.factorize(names)[0].astype(np.int64)
    return codes[: len(np.asarray(a, dtype=object))], codes[len(np.asarray(a, dtype=object)) :]
