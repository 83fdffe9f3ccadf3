"""The simulation of corrected counts runs as its command says, and would notice intervals that are too narrow."""

from __future__ import annotations

import numpy as np
import pytest

from mast.evaluation.corrected_counts import Checked, Corrected
from mast_studies import corrected_counts_study
from mast_studies.corrected_counts_study import simulate, simulate_sites


def test_coverage_and_width_of_one_case() -> None:
    row = simulate(300, 60, 1.0, draws=40, seed=0)
    assert row["coverage"] >= 0.85
    assert 0.1 < row["half_width"] < 0.25
    assert abs(row["mean_error"]) < 0.05
    assert row == simulate(300, 60, 1.0, draws=40, seed=0)


def test_intervals_that_are_too_narrow_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = corrected_counts_study.correct

    def too_sure(strata: Checked, unchecked: np.ndarray, right: list[int]) -> Corrected:
        estimate, low, high = honest(strata, unchecked, right)
        return Corrected(estimate, estimate - (estimate - low) / 4, estimate + (high - estimate) / 4)

    monkeypatch.setattr(corrected_counts_study, "correct", too_sure)
    assert simulate(300, 60, 1.0, draws=40, seed=0)["coverage"] < 0.7


def test_a_site_where_more_is_wrong_needs_a_sample_of_its_own() -> None:
    shared, each = (simulate_sites(30, (0.5, 3.0), draws=40, seed=0, each=each) for each in (False, True))
    assert max(shared["coverage"]) < 0.3
    assert min(each["coverage"]) > 0.8
