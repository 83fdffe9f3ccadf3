"""95 % bootstrap intervals. Recordings are drawn, not boxes: boxes of one recording are not independent."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mast.arrays import FloatArray
from mast.evaluation.metrics import metrics_of
from mast.evaluation.outcome import Outcome

Interval = tuple[float, float]  # low, high; NaN where it is unknown
_NO_WIDTH = 1e-9  # rounding of a mean
# said wherever training runs are compared; docs/results_first_edition.md says which runs these were
TRAINING_NOISE = (
    "Intervals are over recordings and leave out run-to-run variation: two training runs with the same recipe and "
    "seed differed by up to 0.02 in F1."
)


class Difference(NamedTuple):
    """One metric of two systems on the same recordings; positive where ``b`` is larger."""

    a: float
    b: float
    difference: float
    low: float
    high: float


def draw_weights(n_recordings: int, resamples: int, seed: int) -> FloatArray:
    """How often each recording is drawn, (resamples, recordings): with replacement, as many as there are."""
    if n_recordings < 2 or resamples < 1:
        return np.zeros((0, n_recordings))  # one recording says nothing about the spread between recordings
    rng = np.random.default_rng(seed)
    return rng.multinomial(n_recordings, np.full(n_recordings, 1 / n_recordings), size=resamples).astype(
        float
    )


def interval(values: FloatArray) -> Interval:
    """The middle 95 % of resampled values; resamples in which the metric has no value are left out.

    There is none where resamples do not differ: that means too little data, not certainty.
    """
    defined = values[np.isfinite(values)]
    if not defined.size:
        return float("nan"), float("nan")
    low, high = np.percentile(defined, [2.5, 97.5])
    return (float(low), float(high)) if high - low > _NO_WIDTH else (float("nan"), float("nan"))


def round_interval(bounds: Interval) -> list[float] | None:
    """An interval for a result file; None where it is unknown."""
    return [round(bound, 4) for bound in bounds] if np.isfinite(bounds[0]) else None


def intervals(outcome: Outcome, threshold: float | None, *, resamples: int, seed: int) -> dict[str, Interval]:
    """Interval of every metric."""
    weights = draw_weights(len(outcome.scene.recordings), resamples, seed)
    return {name: interval(values) for name, values in metrics_of(outcome, threshold, weights).items()}


def paired_differences(
    a: tuple[Outcome, float | None], b: tuple[Outcome, float | None], *, resamples: int, seed: int
) -> dict[str, Difference]:
    """``b − a`` of every metric; both systems get the same draws of recordings.

    Args:
        a: outcome and score threshold of the first system.
        b: outcome and score threshold of the second, over the same recordings.
        resamples: draws of recordings.
        seed: of the draws.
    """
    assert a[0].scene.recordings == b[0].scene.recordings
    weights = draw_weights(len(a[0].scene.recordings), resamples, seed)
    value_a, value_b = metrics_of(*a), metrics_of(*b)
    drawn_a, drawn_b = metrics_of(*a, weights), metrics_of(*b, weights)
    return {
        name: Difference(
            float(value_a[name][0]),
            float(value_b[name][0]),
            float(value_b[name][0] - value_a[name][0]),
            *interval(drawn_b[name] - drawn_a[name]),
        )
        for name in value_a
    }
