"""What a checkpoint remembers of its validation, against the data itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
from outcomes import outcome_of
from scipy.special import expit, logit

from mast.errors import ConfigError, MastError
from mast.evaluation.bootstrap import draw_weights
from mast.evaluation.operating import TARGETS, operating_curve, store_calibration
from mast.evaluation.outcome import Outcome
from mast.probability import MIN_KEPT, Calibration, OperatingPoint, StoredCalibration


def random_outcome(seed: int, n: int = 400, *, ties: bool = False, slope: float = 1.0) -> Outcome:
    rng = np.random.default_rng(seed)
    scores = rng.uniform(0.05, 0.99, n)
    if ties:
        scores = np.ceil(scores * 12) / 13
    hits = rng.random(n) < expit(slope * logit(scores))
    return outcome_of(scores, hits, rng.integers(0, 9, n), n_missed=20)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("ties", [False, True])
def test_curve_against_a_naive_scan(seed: int, ties: bool) -> None:
    """For each target, all thresholds one by one, from the lowest; precision and interval counted by hand."""
    outcome = random_outcome(seed, 120, ties=ties)
    rows = list(zip(outcome.scores, outcome.hit, outcome.recording, strict=True))
    draws = draw_weights(len(outcome.scene.recordings), 50, seed=1)

    def precision(threshold: float, times: np.ndarray) -> float:
        kept = [(times[r], times[r] * hit) for score, hit, r in rows if score >= threshold]
        total = sum(n for n, _ in kept)
        return sum(h for _, h in kept) / total if total else math.nan

    once = np.ones(len(outcome.scene.recordings))
    reached = {t: precision(t, once) for t in sorted(set(outcome.scores))}
    trusted = {t: p for t, p in reached.items() if sum(s >= t for s, _, _ in rows) >= 10 and p > 0}
    expected = {min(t for t, p in trusted.items() if p == max(trusted.values()))}
    for target in TARGETS:
        expected |= set([t for t, p in trusted.items() if p >= target][:1])
    curve = operating_curve(outcome, resamples=50, seed=1)
    assert [point.threshold for point in curve] == sorted(expected)
    for point in curve:
        assert point.precision == pytest.approx(reached[point.threshold])
        drawn = np.array([precision(point.threshold, times) for times in draws])
        low, high = np.percentile(drawn[np.isfinite(drawn)], [2.5, 97.5])
        bounds = pytest.approx((low, high)) if low < high else (None, None)  # where all draws agree
        assert (point.low, point.high) == bounds
        kept = [hit for score, hit, _ in rows if score >= point.threshold]
        assert point.n_kept == len(kept)
        assert point.recall == pytest.approx(sum(kept) / len(outcome.scene.truth))


@pytest.mark.parametrize("seed", range(4))
def test_stored_answers_are_those_of_the_data(seed: int) -> None:
    outcome = random_outcome(seed, 3_000)
    stored = store_calibration(outcome, min_score=0.05, seed=3)
    assert 20 < len(stored.curve) <= len(TARGETS) + 1
    precision = outcome.hit.cumsum() / np.arange(1, len(outcome.hit) + 1)  # all scores differ
    for target in TARGETS:
        point = stored.threshold_for(target)
        reached = np.flatnonzero(precision[MIN_KEPT - 1 :] >= target) + MIN_KEPT  # predictions kept
        if not len(reached):
            assert point is None
            continue
        assert point is not None
        assert (point.threshold, point.n_kept) == (outcome.scores[reached[-1] - 1], reached[-1])
        assert point.precision == precision[reached[-1] - 1]
    between, above = stored.threshold_for(0.7654), stored.threshold_for(0.77)
    assert between is not None
    assert above is not None
    assert between.precision >= 0.7654
    assert between.threshold <= above.threshold
    precisions, recalls = [p.precision for p in stored.curve], [p.recall for p in stored.curve]
    assert precisions == sorted(precisions)
    assert recalls == sorted(recalls, reverse=True)


def test_it_survives_json_and_improves_the_log_loss() -> None:
    outcome = random_outcome(5, 2_000, slope=0.4)
    stored = store_calibration(outcome, min_score=0.05)
    assert StoredCalibration.model_validate_json(stored.model_dump_json()) == stored
    assert stored.calibration.n_predictions == 2_000
    assert (stored.n_recordings, stored.n_truth) == (9, len(outcome.scene.truth))
    assert stored.log_loss_before is not None
    assert stored.log_loss_after is not None
    assert stored.log_loss_after < stored.log_loss_before - 0.05


def test_little_data() -> None:
    nothing = store_calibration(outcome_of(np.zeros(0), np.zeros(0), np.zeros(0, dtype=int)), min_score=0.05)
    assert nothing.calibration.method == "none"
    assert (nothing.curve, nothing.log_loss_before) == ((), None)
    with pytest.raises(MastError, match=r"precision 0\.5 was not reached .*fewer than 10 predictions"):
        nothing.require(0.5, "model")
    wrong = outcome_of(np.linspace(0.9, 0.1, 30), np.zeros(30), np.arange(30) % 3)
    assert operating_curve(wrong) == ()
    alone = store_calibration(
        outcome_of(np.linspace(0.9, 0.1, 20), np.ones(20), np.zeros(20, dtype=int)), min_score=0.05
    )
    (point,) = alone.curve
    assert (point.threshold, point.low, point.high) == (0.1, None, None)
    assert "no interval from 1 recording," in alone.describe(point)
    assert StoredCalibration.model_validate_json(alone.model_dump_json()) == alone
    agreed = store_calibration(
        outcome_of(np.linspace(0.9, 0.1, 20), np.ones(20), np.arange(20) % 2), min_score=0.05
    )
    assert "precision 1.00 (no interval: too few recordings differ, recall" in agreed.describe(
        agreed.curve[0]
    )


def by_hand() -> StoredCalibration:
    points = [
        OperatingPoint(threshold=0.2, precision=0.5, low=0.4, high=0.6, recall=0.9, n_kept=90),
        OperatingPoint(threshold=0.8, precision=0.9166, low=0.88, high=0.951, recall=0.4, n_kept=24),
    ]
    return StoredCalibration(
        calibration=Calibration(method="temperature", slope=0.5),
        n_recordings=12,
        n_truth=55,
        least_score=0.05,
        iou_threshold=0.5,
        curve=tuple(points),
    )


def test_sentences() -> None:
    stored = by_hand()
    point = stored.threshold_for(0.9)
    assert point is not None
    assert stored.describe(point) == (
        "threshold 0.667 reached precision 0.92 (95 % interval 0.88–0.95, recall 0.40) on 12 validation recordings; "
        "on other recordings it may be different"
    )
    told = stored.model_copy(update={"data": "marsh, boxed by two students"})
    assert "on 12 validation recordings of marsh, boxed by two students; on other" in told.describe(point)
    measured = point.model_copy(
        update={"found": {"wetland birds": 0.54, "fish": 0.921}, "elsewhere": (0.2, 0.9)}
    )
    assert stored.describe(measured).endswith(
        "recordings; on other recordings, boxed by experts, it was 0.54 for wetland birds, 0.92 for fish"
    )
    with pytest.raises(
        MastError, match="not reached on 12 validation recordings of marsh, boxed by two students"
    ):
        told.require(0.95, "model")
    assert stored.threshold_for(0.92) is None
    with pytest.raises(MastError, match=r"12 validation recordings; the best was 0\.916 at threshold 0\.667"):
        stored.require(0.92, "model")
    assert stored.require(0.916, "model") == point  # what the sentence offers can be asked for
    for wrong in (0.0, 1.01, math.nan):
        with pytest.raises(ConfigError, match="precision to reach"):
            stored.threshold_for(wrong)


@pytest.mark.parametrize(
    "calibration",
    [
        Calibration(),
        Calibration(method="temperature", slope=0.3),
        Calibration(method="platt", slope=2.0, intercept=-1.3),
        Calibration(
            method="isotonic", knot_scores=(0.1, 0.4, 0.6, 0.9), knot_probabilities=(0.1, 0.3, 0.3, 0.8)
        ),
    ],
)
@pytest.mark.parametrize("probability", [0.0, 0.05, 0.1, 0.3, 0.7, 0.8, 0.93, 1.0])
def test_the_minimum_score_of_a_probability(calibration: Calibration, probability: float) -> None:
    found = calibration.min_score(probability)
    if found is None:
        assert calibration.apply(1.0) < probability
        return
    assert calibration.apply(found) >= probability
    if found > 0:
        assert calibration.apply(np.nextafter(found, 0)) < probability
    if calibration.method == "none":
        assert found == probability
