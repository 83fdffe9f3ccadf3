"""Streaming statistics against numpy on everything at once."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mast.errors import MastError
from mast.features.statistics import RunningStats, running_stats


def test_constant_features_do_not_divide_by_zero() -> None:
    stats = RunningStats()
    stats.update(np.full(10, 3.0))
    assert stats.std == 0.0
    assert np.isfinite(stats.normalisation().apply(np.array([3.0, 4.0]))).all()


@given(
    parts=st.lists(st.lists(st.floats(-20, 20), max_size=30), max_size=6),
    offset=st.sampled_from([0.0, 1e6]),
)
def test_streamed_and_merged_equal_all_at_once(parts: list[list[float]], offset: float) -> None:
    arrays = [np.array(part) + offset for part in parts]
    everything = np.concatenate([np.empty(0), *arrays])
    streamed, merged = RunningStats(), RunningStats()
    for array in arrays:
        streamed.update(array)
        part = RunningStats()
        part.update(torch.from_numpy(array))
        merged.merge(part)
    for stats in (streamed, merged):
        assert stats.count == everything.size
        if everything.size:
            assert stats.mean == pytest.approx(everything.mean(), rel=1e-12, abs=1e-12)
            assert stats.std == pytest.approx(everything.std(), rel=1e-6, abs=1e-7)


def test_float32_and_float16_are_summed_in_float64() -> None:
    values = (np.random.default_rng(0).normal(1_000, 0.5, 200_000)).astype(np.float32)
    stats = RunningStats()
    for part in np.array_split(values, 7):
        stats.update(part)
    assert stats.mean == pytest.approx(values.astype(np.float64).mean(), rel=1e-13)
    assert stats.std == pytest.approx(values.astype(np.float64).std(), rel=1e-10)
    half = RunningStats()
    half.update(torch.full((100_000,), 15.0, dtype=torch.float16))  # the float16 sum would overflow
    assert half.mean == 15.0


def test_a_value_that_is_not_finite_is_refused_and_leaves_no_trace() -> None:
    stats = RunningStats()
    stats.update(np.array([1.0]))
    for bad in (np.nan, np.inf):
        with pytest.raises(MastError, match="not finite"):
            stats.update(np.array([2.0, bad]))
    assert (stats.count, stats.mean) == (1, 1.0)
    stats.update(np.array([3.0]))
    assert stats.mean == 2.0


def test_nothing_seen_is_an_error_that_says_so() -> None:
    with pytest.raises(MastError, match="no sound"):
        running_stats([]).normalisation()


def test_padding_is_left_out() -> None:
    features = np.full((2, 4, 3), -15.9)
    features[0], features[1, :3] = 1.0, 2.0
    stats = running_stats([(features, [4, 3])])
    assert (stats.count, stats.mean) == (21, pytest.approx((12 * 1.0 + 9 * 2.0) / 21))
    with_channel = running_stats([(torch.from_numpy(features).unsqueeze(1), torch.tensor([4, 3]))])
    assert (with_channel.count, with_channel.mean) == (stats.count, pytest.approx(stats.mean))
