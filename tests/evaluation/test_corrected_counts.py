"""Counts that a stratified sample corrects: the estimator, the sample's size, and whether its intervals hold."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import betabinom

from mast.evaluation.corrected_counts import (
    MIN_CHECKED,
    Checked,
    allocate,
    correct,
    expected_error,
    sample_size,
    stratify,
    stratify_by_site,
)


def no_labels(n: int) -> np.ndarray:
    return np.full(n, "", dtype=object)


def test_strata_are_bands_of_as_many_events_and_know_their_own() -> None:
    scores = np.random.default_rng(0).uniform(0.3, 1.0, 1_000)
    strata = stratify(no_labels(1_000), scores)
    assert strata.sizes.tolist() == [200] * 5
    codes = strata.of(no_labels(1_000), scores)
    assert np.bincount(codes).tolist() == [200] * 5
    assert all(scores[codes == k].max() < scores[codes == k + 1].min() for k in range(4))
    np.testing.assert_allclose(strata.expected, [scores[codes == k].mean() for k in range(5)])
    assert strata.names[0].startswith("no label, 0.3")
    assert strata.names[0].endswith("(200 events)")


def test_equal_scores_stay_together_and_few_events_are_one_stratum() -> None:
    assert stratify(no_labels(100), np.full(100, 0.5)).sizes.tolist() == [100]
    assert stratify(no_labels(12), np.linspace(0, 1, 12)).sizes.tolist() == [12]
    nothing = stratify(no_labels(0), np.empty(0))
    assert len(nothing) == 0
    assert sample_size(nothing.sizes, nothing.expected, 0.15) == 0


def test_each_site_may_have_strata_of_its_own() -> None:
    rng = np.random.default_rng(3)
    scores = rng.random(300)
    sites = np.array(["OAK"] * 220 + [""] * 80, dtype=object)
    labels = np.array(["wren"] * 100 + ["tit"] * 200, dtype=object)
    strata = stratify_by_site(labels, scores, sites)
    parts = {site: stratify(labels[sites == site], scores[sites == site]) for site in ("", "OAK")}
    assert strata.names == (
        *(f"no site · {name}" for name in parts[""].names),
        *(f"OAK · {name}" for name in parts["OAK"].names),
    )
    codes = strata.of(labels, scores, sites)
    assert np.bincount(codes, minlength=len(strata)).tolist() == strata.sizes.tolist()
    assert codes[sites == ""].max() < len(parts[""]) <= codes[sites == "OAK"].min()
    for code in range(len(strata)):
        assert strata.expected[code] == pytest.approx(scores[codes == code].mean())
    given = strata.allocate(40)
    assert given[: len(parts[""])].tolist() == parts[""].allocate(40).tolist()
    assert (given[: len(parts[""])].sum(), given.sum()) == (40, 80)


def test_frequent_labels_have_strata_of_their_own_and_rare_ones_share() -> None:
    labels = np.array(["wren"] * 60 + ["robin"] * 20 + ["owl"] * 30, dtype=object)
    scores = np.linspace(0.2, 0.9, 110)
    strata = stratify(labels, scores)
    codes = strata.of(labels, scores)
    assert {name.partition(",")[0] for name in strata.names} == {"wren", "other labels"}
    assert set(codes[:60]).isdisjoint(codes[60:])
    assert np.bincount(codes).tolist() == strata.sizes.tolist()


def test_allocation_follows_size_and_spread_and_never_exceeds_a_stratum() -> None:
    given = allocate([1_000, 1_000, 4], [0.5, 0.99, 0.5], 100)
    assert given.sum() == 100
    assert given[2] <= 4
    assert given[0] > 1.5 * given[1] > 1.5 * MIN_CHECKED  # a spread of 0.5 beside the minimum of 0.3
    assert allocate([2, 5], [0.5, 0.5], 1_000).tolist() == [2, 5]
    assert allocate([100, 100], [0.5, 0.5], 1).tolist() == [MIN_CHECKED, MIN_CHECKED]


def test_the_sample_size_is_the_smallest_that_is_good_enough() -> None:
    sizes, expected = [500] * 5, [0.3, 0.5, 0.7, 0.8, 0.95]
    size = sample_size(sizes, expected, 0.15)
    assert expected_error(sizes, expected, allocate(sizes, expected, size)) <= 0.15
    assert expected_error(sizes, expected, allocate(sizes, expected, size - 1)) > 0.15
    assert expected_error([10], [0.5], [10]) == 0.0
    assert expected_error([10], [0.0], [5]) == float("inf")


def test_the_estimate_by_hand() -> None:
    checked = Checked(np.array([100, 50]), np.array([10, 5]), np.array([9, 2]))
    estimate, low, high = (float(value[0]) for value in correct(checked, [[90, 45]], [11]))
    assert estimate == pytest.approx(11 + 90 * 0.9 + 45 * 0.4)
    assert 11 <= low < estimate < high <= 146
    limits = []
    for share in (0.5, 11.5 / 16):  # exactly, without draws: both priors, and the distribution of the sum
        first = betabinom(90, 9 + share, 1 + 1 - share).pmf(np.arange(91))
        second = betabinom(45, 2 + share, 3 + 1 - share).pmf(np.arange(46))
        below = np.cumsum(np.convolve(first, second))
        limits.append([11 + int(np.searchsorted(below, q)) for q in (0.025, 0.975)])
    assert low == pytest.approx(min(a for a, _ in limits), abs=2)
    assert high == pytest.approx(max(b for _, b in limits), abs=2)


def test_what_was_checked_whole_is_known_and_what_was_not_checked_is_not() -> None:
    checked = Checked(np.array([5, 40]), np.array([5, 0]), np.array([3, 0]))
    estimate, low, high = correct(checked, [[0, 0], [0, 3], [0, 0]], [3, 0, 0])
    assert (estimate[0], low[0], high[0]) == (3, 3, 3)
    assert np.isnan([estimate[1], low[1], high[1]]).all()
    assert (estimate[2], low[2], high[2]) == (0, 0, 0)


def test_small_cells_get_intervals_of_whole_calls_that_hold_their_estimate() -> None:
    checked = Checked(np.array([1_000]), np.array([40]), np.array([40]))
    estimate, low, high = correct(checked, [[1], [3], [900]], [0, 1, 40])
    assert estimate.tolist() == [1, 4, 940]
    assert (high == estimate).all()
    assert low[0] == 1
    assert low[1] == 3
    assert 800 < low[2] < 940


def test_the_same_seed_gives_the_same_interval() -> None:
    checked = Checked(np.array([100]), np.array([20]), np.array([13]))
    assert correct(checked, [[80]], [13]) == correct(checked, [[80]], [13])


@pytest.mark.parametrize("power", [0.5, 1.0, 3.0])
def test_intervals_hold_the_truth_nineteen_times_in_twenty(power: float) -> None:
    """200 draws with scores too modest, calibrated and too sure; `mast_studies.corrected_counts_study` has more."""
    generator = np.random.default_rng(7)
    held, errors = [], []
    for _ in range(200):
        scores = np.clip(generator.beta(3, 2, 2_000), 0.2, 1.0)
        right = generator.random(2_000) < scores**power
        strata = stratify(no_labels(2_000), scores)
        codes = strata.of(no_labels(2_000), scores)
        drawn = [
            generator.choice(np.flatnonzero(codes == k), n, replace=False)
            for k, n in enumerate(allocate(strata.sizes, strata.expected, 60))
        ]
        checked = np.array([len(rows) for rows in drawn])
        found = np.array([right[rows].sum() for rows in drawn])
        sample = Checked(strata.sizes, checked, found)
        estimate, low, high = correct(sample, (strata.sizes - checked)[None], [found.sum()])
        held.append(low[0] <= right.sum() <= high[0])
        errors.append(estimate[0] / right.sum() - 1)
    assert 0.93 <= np.mean(held) <= 0.985
    assert abs(np.mean(errors)) < 0.03
