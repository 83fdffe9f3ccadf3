"""What another place may give: measured on places that are drawn, one of them held back."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.random import Generator
from outcomes import outcome_of

from mast.evaluation.elsewhere import precision_elsewhere, predicted_share
from mast.evaluation.operating import operating_curve, store_calibration


def draw_places(rng: Generator, n_places: int, spread: float) -> tuple[np.ndarray, np.ndarray]:
    """How many of how many predictions are right at each place; places differ by ``spread`` in log-odds."""
    chance = 1 / (1 + np.exp(-(0.5 + spread * rng.standard_normal(n_places))))
    n = rng.integers(40, 400, n_places)
    return rng.binomial(n, chance).astype(float), n.astype(float)


@pytest.mark.parametrize("spread", [0.0, 0.7, 1.5])
@pytest.mark.parametrize("n_places", [4, 7])
def test_the_next_place_is_inside_about_as_often_as_promised(spread: float, n_places: int) -> None:
    rng, inside = np.random.default_rng(n_places), []
    for _ in range(400):
        right, n = draw_places(rng, n_places + 1, spread)
        low, high = predicted_share(right[1:], n[1:])
        noise = 2 / np.sqrt(n[0])  # the share of the place held back is itself a count
        inside.append(low - noise <= right[0] / n[0] <= high + noise)
    assert np.mean(inside) > 0.92


def test_places_that_differ_widen_it() -> None:
    n = np.full(5, 2_000.0)
    alike = predicted_share(0.6 * n, n)
    apart = predicted_share(np.array([0.2, 0.4, 0.6, 0.8, 0.95]) * n, n)
    assert alike == pytest.approx((0.6, 0.6), abs=0.03)
    assert apart[0] < 0.1
    assert apart[1] > 0.95


def test_places_reach_the_curve_and_the_sentence() -> None:
    rng = np.random.default_rng(0)
    scores, recording = np.sort(rng.random(900))[::-1], rng.integers(0, 9, 900)
    hits = rng.random(900) < np.array([0.15, 0.5, 0.9])[recording % 3]
    outcome = outcome_of(scores, hits, recording)
    names = outcome.scene.recordings
    places = {name: f"place {k % 3}" for k, name in enumerate(names)}
    stored = store_calibration(outcome, least_score=0.05, places=places)
    point = stored.curve[0]
    assert point.elsewhere is not None
    assert point.low is not None
    assert point.elsewhere[0] < point.low
    place = np.arange(9) % 3
    assert point.elsewhere == precision_elsewhere(outcome, point.n_kept, place)
    assert "another place may give anything from" in stored.describe(point)
    assert all(one.elsewhere is None for one in operating_curve(outcome))  # nobody said where they are
    two = {name: f"place {k % 2}" for k, name in enumerate(names)}
    assert all(one.elsewhere is None for one in operating_curve(outcome, places=two))
