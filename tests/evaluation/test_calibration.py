"""Scores as probabilities, and thresholds that reached a precision."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from outcomes import outcome_of
from pydantic import ValidationError
from scipy.special import expit, logit

from mast.errors import ConfigError
from mast.evaluation.calibration import MIN_FOR_ISOTONIC, calibrate, calibrated, fit_best, fit_calibration
from mast.evaluation.metrics import metrics_of
from mast.evaluation.outcome import Outcome, match_scene
from mast.probability import Calibration

METHODS = ["none", "temperature", "platt", "isotonic"]
FITTED = METHODS[1:]


def draw(n: int, seed: int, slope: float = 1.0, intercept: float = 0.0):
    """Scores, and hits whose true probability is ``sigmoid(slope · logit(score) + intercept)``."""
    rng = np.random.default_rng(seed)
    scores = rng.uniform(0.01, 0.99, n)
    return scores, rng.random(n) < expit(slope * logit(scores) + intercept)


def ece(outcome: Outcome) -> float:
    return float(metrics_of(outcome, None)["ece"][0])


# --- applying ---------------------------------------------------------------------------------------------


def test_apply_by_hand():
    scores = [0.0, 0.2, 0.5, 0.8, 1.0]
    assert Calibration().apply(scores).tolist() == scores
    half = Calibration(method="temperature", slope=0.5)  # odds become their square root
    assert half.temperature == 2
    assert half.apply([0.2, 0.5, 0.8]) == pytest.approx([1 / 3, 1 / 2, 2 / 3])
    platt = Calibration(method="platt", slope=2, intercept=math.log(3))  # odds squared, times three
    assert platt.apply([0.5, 2 / 3]) == pytest.approx([3 / 4, 12 / 13])
    steps = Calibration(method="isotonic", knot_scores=(0.2, 0.4, 0.8), knot_probabilities=(0.1, 0.1, 0.9))
    assert steps.apply([0.0, 0.3, 0.5, 0.8, 1.0]) == pytest.approx([0.1, 0.1, 0.3, 0.9, 0.9])


@pytest.mark.parametrize("method", METHODS)
def test_apply_keeps_shape_and_takes_nothing(method):
    calibration = fit_calibration(*draw(200, 0), method)
    assert calibration.apply([]).shape == (0,)
    assert calibration.apply(np.full((2, 3), 0.4, dtype=np.float32)).shape == (2, 3)
    scores = np.array([0.1, 0.2])
    calibration.apply(scores)[:] = 9
    assert scores.tolist() == [0.1, 0.2]


@pytest.mark.parametrize("bad", [-0.1, 1.1, math.nan, math.inf])
def test_scores_outside_are_refused(bad):
    with pytest.raises(ConfigError, match="1 of 2 scores are not numbers from 0 to 1"):
        Calibration(method="temperature").apply([0.5, bad])
    with pytest.raises(ConfigError, match="1 of 2 scores"):
        fit_calibration([0.5, bad], [True, False], "platt")


few_scores = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.floats(0, 1e-7))


@settings(deadline=None, max_examples=60)
@given(
    data=st.lists(st.tuples(few_scores, st.booleans()), max_size=40),
    method=st.sampled_from(METHODS),
    probes=st.lists(few_scores, max_size=30),
)
def test_any_data_give_rising_probabilities_that_survive_json(data, method, probes):
    scores, hits = [s for s, _ in data], [h for _, h in data]
    calibration = fit_calibration(scores, hits, method)
    at = np.sort([*scores, *probes, 0.0, 1.0])
    probabilities = calibration.apply(at)
    assert np.isfinite(probabilities).all()
    assert ((probabilities >= 0) & (probabilities <= 1)).all()
    assert (np.diff(probabilities) >= -1e-12).all()
    assert (calibration.n_predictions, calibration.n_hits) == (len(data), sum(hits))
    back = Calibration.model_validate(json.loads(json.dumps(calibration.model_dump(mode="json"))))
    assert back == calibration
    assert (back.apply(at) == probabilities).all()


# --- what a model card holds ------------------------------------------------------------------------------


def test_an_empty_card_leaves_scores_alone():
    assert Calibration.model_validate({}) == Calibration(method="none")


@pytest.mark.parametrize(
    "card",
    [
        {"method": "isotonic"},
        {"method": "platt", "knot_scores": [0.1], "knot_probabilities": [0.1]},
        {"method": "isotonic", "knot_scores": [0.1, 0.2], "knot_probabilities": [0.1]},
        {"method": "isotonic", "knot_scores": [0.2, 0.1], "knot_probabilities": [0.1, 0.2]},
        {"method": "isotonic", "knot_scores": [0.1, 0.2], "knot_probabilities": [0.2, 0.1]},
        {"method": "isotonic", "knot_scores": [0.1, 0.2], "knot_probabilities": [0.2, 1.1]},
    ],
)
def test_broken_knots_are_refused(card):
    with pytest.raises(ConfigError, match="knot"):
        Calibration.model_validate(card)


@pytest.mark.parametrize("card", [{"method": "beta"}, {"slope": 0}, {"slope": math.nan}, {"temperature": 2}])
def test_a_broken_card_is_refused(card):
    with pytest.raises(ValidationError):
        Calibration.model_validate(card)


def test_it_cannot_be_changed():
    with pytest.raises(ValidationError):
        Calibration().slope = 2.0


# --- fitting ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slope", [0.4, 1.0, 2.5])
def test_a_known_temperature_is_recovered(slope):
    fitted = fit_calibration(*draw(20_000, 1, slope), "temperature")
    assert fitted.slope == pytest.approx(slope, rel=0.05)
    assert fitted.intercept == 0


@pytest.mark.parametrize(("slope", "intercept"), [(0.5, -2.0), (1.0, 0.0), (1.8, 1.0)])
def test_a_known_platt_is_recovered(slope, intercept):
    fitted = fit_calibration(*draw(20_000, 2, slope, intercept), "platt")
    assert fitted.slope == pytest.approx(slope, rel=0.06)
    assert fitted.intercept == pytest.approx(intercept, abs=0.08)


@pytest.mark.parametrize("method", ["temperature", "platt"])
def test_logistic_against_a_search(method):
    """No slope and intercept nearby have a higher posterior: likelihood times normal prior of s.d. 2."""
    scores, hits = draw(60, 3, 0.6, -1.0)
    fitted = fit_calibration(scores, hits, method)

    def posterior(slope, intercept):
        p = 1 / (1 + np.exp(-(slope * np.log(scores / (1 - scores)) + intercept)))
        log_likelihood = sum(math.log(q if hit else 1 - q) for q, hit in zip(p, hits, strict=True))
        return log_likelihood - ((slope - 1) ** 2 + intercept**2) / 8

    best = posterior(fitted.slope, fitted.intercept)
    intercepts = [0.0] if method == "temperature" else np.linspace(-3, 3, 61)
    searched = [posterior(s, i) for s in np.linspace(0.01, 3, 100) for i in intercepts]
    assert best >= max(searched)
    assert best == pytest.approx(max(searched), abs=0.02)


def naive_steps(points):
    """Pool adjacent violators, as the textbook has it: ``[sum of values, weight, members]``, rising means."""
    steps = [[value * weight, weight, [k]] for k, (value, weight) in enumerate(points)]
    k = 0
    while k + 1 < len(steps):
        if steps[k][0] / steps[k][1] < steps[k + 1][0] / steps[k + 1][1]:
            k += 1
            continue
        after = steps.pop(k + 1)
        steps[k] = [steps[k][0] + after[0], steps[k][1] + after[1], steps[k][2] + after[2]]
        k = max(k - 1, 0)
    return steps


@pytest.mark.parametrize("seed", range(5))
def test_isotonic_against_pooling_by_hand(seed):
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 30, 150) / 30
    hits = rng.random(150) < scores**2
    values = sorted(set(scores))
    points = [(hits[scores == v].mean(), int((scores == v).sum())) for v in values]
    first = naive_steps(points)
    smoothed = [((h + 1) / (n + 2), n + 2) for h, n, _ in first]
    knots = []
    for total, weight, members in naive_steps(smoothed):
        inside = [values[k] for m in members for k in first[m][2]]
        knots.append((scores[np.isin(scores, inside)].mean(), total / weight))
    fitted = fit_calibration(scores, hits, "isotonic")
    assert fitted.knot_scores == pytest.approx([x for x, _ in knots])
    assert fitted.knot_probabilities == pytest.approx([p for _, p in knots])
    assert len(knots) > 2


def test_isotonic_by_hand():
    scores = [0.1, 0.1, 0.3, 0.5, 0.9, 0.9]
    hits = [False, False, True, False, True, True]
    fitted = fit_calibration(scores, hits, "isotonic")  # steps 0/2, 1/2 (a pair out of order), 2/2
    assert fitted.knot_scores == pytest.approx((0.1, 0.4, 0.9))
    assert fitted.knot_probabilities == pytest.approx((1 / 4, 2 / 4, 3 / 4))


@pytest.mark.parametrize("method", FITTED)
def test_held_out_error_falls(method):
    """Over-confident scores with a shifted base rate for all but temperature, which cannot shift."""
    intercept = 0.0 if method == "temperature" else -1.0
    fitted = calibrate(outcome_of(*draw(3_000, 4, 0.4, intercept)), method)
    unseen = outcome_of(*draw(3_000, 5, 0.4, intercept))
    before, after = ece(unseen), ece(calibrated(unseen, fitted))
    assert before > 0.12
    assert after < 0.04


def test_a_calibrated_outcome_keeps_its_order_and_hits():
    outcome = outcome_of(*draw(300, 6))
    fitted = calibrate(outcome, "platt")
    after = calibrated(outcome, fitted)
    assert (np.diff(after.scores) <= 0).all()
    assert (after.hit == outcome.hit).all()
    again = match_scene(after.scene)
    assert (again.scores == after.scores).all()
    assert (again.truth == after.truth).all()
    assert (outcome.scores != after.scores).any()


# --- little or odd data -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_nothing_to_learn_from(method):
    assert fit_calibration([], [], method) == Calibration(method="none")


@pytest.mark.parametrize("method", ["platt", "isotonic"])
@pytest.mark.parametrize("n", [5, 100, 2_000])
def test_all_hits_or_none_are_never_certain(method, n):
    """About the rule of succession, (n + 1) / (n + 2)."""
    scores = np.full(n, 0.5)
    all_hits = fit_calibration(scores, np.ones(n, dtype=bool), method).apply([0.5])[0]
    no_hits = fit_calibration(scores, np.zeros(n, dtype=bool), method).apply([0.5])[0]
    assert 1 - all_hits == pytest.approx(no_hits, rel=1e-4)
    assert 0.5 / (n + 2) < no_hits < 2 / (n + 2)


@pytest.mark.parametrize("method", ["platt", "isotonic"])
@pytest.mark.parametrize("score", [0.0, 0.3, 0.5, 1.0])
def test_constant_scores_give_the_share_matched(method, score):
    hits = np.arange(400) % 4 == 0
    assert fit_calibration(np.full(400, score), hits, method).apply([score]) == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize("method", FITTED)
def test_scores_that_mislead_become_nearly_equal(method):
    scores, hits = draw(2_000, 7, slope=-1.0)
    low, high = fit_calibration(scores, hits, method).apply([0.05, 0.95])
    assert 0.45 < low <= high < 0.55


@pytest.mark.parametrize("method", FITTED)
@pytest.mark.parametrize("hit", [True, False])
def test_a_single_prediction_makes_nothing_certain(method, hit):
    low, there, high = fit_calibration([0.6], [hit], method).apply([0.1, 0.6, 0.9])
    assert 0.25 < there < 0.8
    assert 0.02 < low <= there <= high < 0.98
    assert (there > 0.6) == hit


def test_perfectly_separated_scores_stay_finite():
    scores = np.r_[np.linspace(0.1, 0.3, 50), np.linspace(0.7, 0.9, 50)]
    for method in FITTED:
        low, high = fit_calibration(scores, scores > 0.5, method).apply([0.1, 0.9])
        assert 0 < low < 0.1
        assert 0.9 < high < 1


def test_unequal_lengths_and_unknown_methods_are_refused():
    with pytest.raises(ConfigError, match="one hit per score"):
        fit_calibration([0.1, 0.2], [True], "platt")
    with pytest.raises(ConfigError, match="expected one of none, temperature, platt, isotonic"):
        fit_calibration([0.1], [True], "beta")


# --- the best method --------------------------------------------------------------------------------------


def test_the_right_method_wins():
    shifted = fit_best(outcome_of(*draw(3_000, 8, 0.5, -2.0)), seed=0)
    assert shifted.calibration.method == "platt"
    assert set(shifted.log_loss) == set(METHODS)
    assert shifted.log_loss["none"] > shifted.log_loss["temperature"] > shifted.log_loss["platt"]
    assert shifted.n_folds == 5

    scores = np.random.default_rng(9).uniform(0.01, 0.99, 4_000)
    truth = np.where(scores < 0.4, 0.05, np.where(scores < 0.6, 0.5, 0.55))  # no sigmoid of any logit
    stepped = fit_best(outcome_of(scores, np.random.default_rng(10).random(4_000) < truth), seed=0)
    assert stepped.calibration.method == "isotonic"
    assert stepped.calibration.n_predictions == 4_000  # fitted on all, not on folds


def test_held_out_log_loss_against_a_naive_one():
    """Five recordings in five folds: each is held out alone, whatever the seed."""
    scores, hits = draw(200, 11, 0.7)
    recording = np.random.default_rng(0).integers(0, 5, 200)
    total = 0.0
    for r in range(5):
        out = recording == r
        p = fit_calibration(scores[~out], hits[~out], "platt").apply(scores[out])
        total -= np.log(np.where(hits[out], p, 1 - p)).sum()
    best = fit_best(outcome_of(scores, hits, recording), seed=3)
    assert best.log_loss["platt"] == pytest.approx(total / 200)


def test_folds_hold_recordings_whole_and_follow_the_seed():
    scores, hits = draw(400, 12)
    outcome = outcome_of(scores, hits, np.arange(400) % 20)
    assert fit_best(outcome, seed=1) == fit_best(outcome, seed=1)
    assert fit_best(outcome, seed=1).log_loss["platt"] != fit_best(outcome, seed=2).log_loss["platt"]


def test_isotonic_needs_enough_of_both():
    enough = np.arange(400) < MIN_FOR_ISOTONIC
    scores = np.random.default_rng(13).random(400)
    assert "isotonic" in fit_best(outcome_of(scores, enough), seed=0).log_loss
    enough[0] = False
    assert "isotonic" not in fit_best(outcome_of(scores, enough), seed=0).log_loss


def test_one_recording_is_folded_by_chunks():
    scores, hits = draw(500, 14, 0.5, -2.0)
    best = fit_best(outcome_of(scores, hits, np.zeros(500, dtype=int)), seed=0)
    assert best.n_folds == 5
    assert best.calibration.method == "platt"


@pytest.mark.parametrize("n", [0, 1])
def test_nothing_to_hold_out(n):
    best = fit_best(outcome_of(np.full(n, 0.7), np.ones(n, dtype=bool)), seed=0)
    assert best.calibration == Calibration(method="none", n_predictions=n, n_hits=n)
    assert (best.log_loss, best.n_folds) == ({}, 0)
