"""What another place may give: measured on places that are drawn, one of them held back."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.random import Generator
from outcomes import outcome_of

from mast.evaluation.elsewhere import PlaceCount, precision_elsewhere
from mast.evaluation.operating import operating_curve, store_calibration


def draw_place(rng: Generator, spread: float, clumped: float = 0.0) -> PlaceCount:
    """Predictions of six recordings of a place; places differ by ``spread`` in log-odds, recordings by ``clumped``."""
    log_odds = 0.5 + spread * rng.standard_normal() + clumped * rng.standard_normal(6)
    kept = rng.integers(5, 60, 6)
    return PlaceCount(rng.binomial(kept, 1 / (1 + np.exp(-log_odds))).astype(float), kept.astype(float))


def place_of(share: float, n: float = 2_000.0) -> PlaceCount:
    return PlaceCount(np.full(4, share * n / 4), np.full(4, n / 4))


@pytest.mark.parametrize(("spread", "clumped"), [(0.0, 0.0), (0.7, 0.0), (1.5, 0.0), (0.0, 1.0), (0.7, 1.0)])
@pytest.mark.parametrize("n_places", [4, 7])
def test_the_next_place_is_inside_about_as_often_as_promised(
    spread: float, clumped: float, n_places: int
) -> None:
    rng, inside = np.random.default_rng(n_places), []
    for _ in range(400):
        held_back, *places = (draw_place(rng, spread, clumped) for _ in range(n_places + 1))
        found = precision_elsewhere(places)
        assert found is not None
        noise = 2 * np.sqrt(
            (0.25 + clumped / 10) / held_back.kept.sum()
        )  # what is held back is itself a count
        share = held_back.right.sum() / held_back.kept.sum()
        inside.append(found[0] - noise <= share <= found[1] + noise)
    assert np.mean(inside) > 0.92


def test_places_that_differ_widen_it_and_so_do_recordings_that_do() -> None:
    alike = precision_elsewhere([place_of(0.6)] * 5)
    apart = precision_elsewhere([place_of(share) for share in (0.2, 0.4, 0.6, 0.8, 0.95)])
    uneven = PlaceCount(
        np.array([500.0, 500.0, 100.0, 100.0]), np.full(4, 500.0)
    )  # as many right as with 0.6
    clumped = precision_elsewhere([uneven] * 5)
    assert alike == pytest.approx((0.6, 0.6), abs=0.03)
    assert apart is not None
    assert clumped is not None
    assert apart[0] < 0.1
    assert apart[1] > 0.95
    assert clumped[0] < 0.5 < 0.7 < clumped[1]


def test_two_places_say_nothing_about_a_third() -> None:
    assert precision_elsewhere([place_of(0.6)] * 2) is None
    assert precision_elsewhere([place_of(0.6), place_of(0.5), place_of(1.0, n=8.0)]) is None  # eight boxes


def test_places_reach_the_curve_and_the_sentence() -> None:
    rng = np.random.default_rng(0)
    scores, recording = np.sort(rng.random(900))[::-1], rng.integers(0, 9, 900)
    hits = rng.random(900) < np.array([0.15, 0.5, 0.9])[recording % 3]
    outcome = outcome_of(scores, hits, recording)
    names = outcome.scene.recordings
    places = {name: f"place {k % 3}" for k, name in enumerate(names)}
    stored = store_calibration(outcome, min_score=0.05, places=places)
    point = stored.curve[0]
    assert point.elsewhere is not None
    assert point.low is not None
    assert point.elsewhere[0] < point.low
    place = np.arange(9) % 3
    by_hand = [
        PlaceCount(
            *(
                np.array(
                    [
                        (mine & (outcome.recording == r))[: point.n_kept].sum()
                        for r in range(9)
                        if place[r] == p
                    ]
                )
                for mine in (outcome.hit, np.ones_like(outcome.hit))
            )
        )
        for p in range(3)
    ]
    assert point.elsewhere == precision_elsewhere(by_hand)
    assert "another place may give anything from" in stored.describe(point)
    assert all(one.elsewhere is None for one in operating_curve(outcome))  # nobody said where they are
    two = {name: f"place {k % 2}" for k, name in enumerate(names)}
    assert all(one.elsewhere is None for one in operating_curve(outcome, places=two))
