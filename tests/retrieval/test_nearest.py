"""Nearest neighbours by cosine against a full sort."""

from __future__ import annotations

import numpy as np
import pytest

from mast.retrieval.nearest import nearest, to_unit_length


def test_nearest_is_sorted_and_exact() -> None:
    rng = np.random.default_rng(2)
    among, vectors = (to_unit_length(rng.normal(size=(n, 6))) for n in (50, 9))
    near, distance = nearest(vectors, among, 4)
    exact = 1 - vectors.astype(np.float64) @ among.T.astype(np.float64)
    assert near.tolist() == np.argsort(exact, axis=1)[:, :4].tolist()
    assert distance == pytest.approx(np.sort(exact, axis=1)[:, :4], abs=1e-6)
    assert nearest(vectors, among[:3], 3)[0].shape == (9, 3)


def test_a_row_of_zeros_has_no_direction() -> None:
    assert to_unit_length([[3.0, 4.0], [0.0, 0.0]]).tolist() == pytest.approx(
        np.array([[0.6, 0.8], [0.0, 0.0]])
    )
