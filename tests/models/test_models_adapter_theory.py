"""The propositions of App. "Theoretical Analysis of Adapter Design", as properties."""

import numpy as np
import pytest
from adapter_theory import (
    best_split,
    enclosing_extent,
    integer_splits,
    iou_bound,
    optimal_factors,
    worst_case_iou,
)
from hypothesis import assume, given
from hypothesis import strategies as st

stride = st.sampled_from([1.0, 2.0, 4.0, 8.0, 16.0])
extent = st.integers(1, 4096).map(lambda n: n / 4)  # quarters: exact in floating point


def enclosing_iou(
    start: tuple[float, float], extents: tuple[float, float], strides: tuple[float, float]
) -> float:
    """IoU of a box with the tightest grid-aligned box around it: the box's area over the other's."""
    (t, f), (dt, df), (st_, sf) = start, extents, strides
    return float(dt * df / (enclosing_extent(t, dt, st_) * enclosing_extent(f, df, sf)))


def worst_start(extent: float, stride: float) -> float:
    """The proof's placement: just before a grid line, by less than what exceeds whole strides."""
    excess = extent % stride
    return stride - (excess if excess > 0 else stride) / 2


@given(extent, extent, stride, stride)
def test_prop_1_bound_holds_in_the_worst_placement(dt: float, df: float, st_: float, sf: float) -> None:
    iou = enclosing_iou((worst_start(dt, st_), worst_start(df, sf)), (dt, df), (st_, sf))
    assert iou <= iou_bound(dt, df, (st_, sf)) * (1 + 1e-12)
    assert iou == pytest.approx(float(worst_case_iou(dt, df, (st_, sf))))


@given(extent, extent, stride, stride, st.floats(0, 64), st.floats(0, 64))
def test_prop_1_no_placement_is_worse(
    dt: float, df: float, st_: float, sf: float, t: float, f: float
) -> None:
    t, f = round(t * 64) / 64, round(f * 64) / 64
    assert enclosing_iou((t, f), (dt, df), (st_, sf)) >= worst_case_iou(dt, df, (st_, sf)) * (1 - 1e-12)


@given(st.integers(1, 64), st.integers(1, 8), stride, stride)
def test_prop_1_bound_is_attained_at_whole_strides(n_t: int, n_f: int, st_: float, sf: float) -> None:
    dt, df = n_t * st_, n_f * sf
    iou = enclosing_iou((st_ / 2, sf / 2), (dt, df), (st_, sf))
    assert iou == pytest.approx(float(iou_bound(dt, df, (st_, sf))))


@given(extent, st.integers(1, 64).map(lambda n: n / 4))
def test_corollary_narrow_band_events_stay_below_half_on_the_token_grid(dt: float, df: float) -> None:
    assert df <= 16
    assert iou_bound(dt, df, (16, 16)) < 0.5
    iou = enclosing_iou((worst_start(dt, 16), worst_start(df, 16)), (dt, df), (16, 16))
    assert iou < 0.5


def test_the_papers_example_of_what_upsampling_gains() -> None:
    assert iou_bound(14, 16, (8, 4)) >= 0.5  # "exceeds 0.5 for δ_t ≥ 14"
    assert iou_bound(13, 16, (8, 4)) < 0.5


@given(extent, extent, st.sampled_from([2, 4, 8, 16, 64]), st.floats(0.01, 100))
def test_prop_2_optimum_beats_every_other_real_split(dt: float, df: float, budget: int, other: float) -> None:
    u_t, u_f = optimal_factors(dt, df, budget)
    assert u_t * u_f == pytest.approx(budget)
    assert u_f / u_t == pytest.approx(dt / df)
    best = iou_bound(dt, df, (16 / u_t, 16 / u_f))
    assert best >= iou_bound(dt, df, (16 / other, 16 * other / budget)) * (1 - 1e-12)


@given(extent, extent, st.sampled_from([1, 2, 6, 8, 12, 16, 64]))
def test_prop_2_best_integer_split(dt: float, df: float, budget: int) -> None:
    u_t, u_f = best_split([(dt, df)], budget)
    assert u_t * u_f == budget
    best = iou_bound(dt, df, (16 / u_t, 16 / u_f))
    others = [iou_bound(dt, df, (16 / a, 16 / b)) for a, b in integer_splits(budget)]
    assert best == max(others)
    # the bound has one hump: no split beyond the two around the real optimum can be better
    real, _ = optimal_factors(dt, df, budget)
    divisors = [a for a, _ in integer_splits(budget)]
    around = {
        max([a for a in divisors if a <= real], default=1),
        min([a for a in divisors if a >= real], default=budget),
    }
    assert max(iou_bound(dt, df, (16 / a, 16 * a / budget)) for a in around) == pytest.approx(float(best))


def test_the_papers_split_suits_events_twice_as_long_as_wide() -> None:
    assert best_split([(40, 20)], 8) == (2, 4)


def effective_noise_rate(error: np.ndarray, weights: np.ndarray | None = None) -> float:
    """Share of wrong labels that training feels: Σ g ε / Σ g, or the plain mean without weights."""
    return float(np.average(error, weights=weights))


@given(st.lists(st.tuples(st.floats(0.01, 1), st.floats(0, 1)), min_size=1, max_size=30))
def test_confidence_weighting_never_raises_the_noise(pairs: list[tuple[float, float]]) -> None:
    confidence = np.sort([c for c, _ in pairs])
    error = np.sort([e for _, e in pairs])[::-1]  # falls as confidence rises: the proposition's assumption
    weighted = effective_noise_rate(error, confidence)
    assert weighted <= effective_noise_rate(error) + 1e-12
    assume(confidence[0] < confidence[-1] - 1e-3 and error[0] > error[-1] + 1e-3)
    assert weighted < effective_noise_rate(error)
