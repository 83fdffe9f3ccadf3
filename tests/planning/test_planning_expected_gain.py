"""The law of label budgets: found again from its own points, and honest where points say little."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mast.errors import AnnotationError, ConfigError
from mast.planning.expected_gain import Curve, PowerLaw, estimate_gain, fit_power_law, read_curve


def curve(amounts: list[float], f1: list[float], noise: float = 0.01) -> Curve:
    return Curve(np.array(amounts), np.array(f1), np.full(len(f1), noise), "chunks", "made up")


def naive_fit(n: np.ndarray, y: np.ndarray) -> float:
    """The least squared error over every combination of a fine grid."""
    ceiling, exponent, drop = np.meshgrid(
        np.linspace(0.3, 1.0, 71), np.geomspace(0.1, 2.0, 40), np.linspace(0, 4, 81), indexing="ij"
    )
    error = sum((ceiling - drop * amount**-exponent - value) ** 2 for amount, value in zip(n, y, strict=True))
    return float(np.min(error))


@pytest.mark.parametrize("true", [PowerLaw(0.8, 1.2, 0.5), PowerLaw(0.6, 2.0, 1.0), PowerLaw(0.95, 0.9, 0.2)])
def test_the_law_is_found_again(true: PowerLaw) -> None:
    n = np.array([16.0, 32, 64, 128, 256])
    found = fit_power_law(n, true.at(n))
    assert np.abs(found.at(n) - true.at(n)).max() < 2e-3
    assert float(found.at(512.0)) == pytest.approx(float(true.at(512.0)), abs=0.01)


def test_the_fit_is_as_good_as_a_search_over_everything() -> None:
    rng = np.random.default_rng(0)
    n = np.array([16.0, 32, 64, 128, 256])
    for _ in range(3):
        y = PowerLaw(0.75, 1.5, 0.6).at(n) + 0.02 * rng.standard_normal(5)
        found = fit_power_law(n, y)
        assert ((found.at(n) - y) ** 2).sum() <= naive_fit(n, y) * 1.02 + 1e-6


def test_f1_never_passes_one_nor_falls_with_more_labels() -> None:
    n = np.array([1.0, 2, 4, 8])
    steep = fit_power_law(n, np.array([0.1, 0.4, 0.7, 0.99]))
    assert steep.ceiling <= 1.0
    falling = fit_power_law(n, np.array([0.9, 0.8, 0.7, 0.6]))
    assert falling.drop == 0.0
    assert float(falling.at(100.0)) == pytest.approx(0.75)


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    n, true = np.array([16.0, 32, 64, 128, 256, 512]), PowerLaw(0.8, 1.6, 0.6)
    gain = float(true.at(512.0) - true.at(256.0))
    held = 0
    for k in range(40):
        y = np.clip(true.at(n) + 0.02 * rng.standard_normal(6), 0, 1)
        found = estimate_gain(Curve(n, y, np.full(6, 0.02), "chunks", ""), 256, 256, seed=k, draws=120)
        held += found.gain_low <= gain <= found.gain_high
    assert held >= 33  # 38 expected of 40


def test_more_noise_widens_the_interval() -> None:
    n, f1 = [16, 32, 64, 128], PowerLaw(0.8, 1.2, 0.5).at(np.array([16.0, 32, 64, 128])).tolist()
    calm, loud = (estimate_gain(curve(n, f1, noise), 128, 64) for noise in (0.005, 0.05))
    assert loud.gain_high - loud.gain_low > 1.3 * (calm.gain_high - calm.gain_low)
    assert (
        calm.sentence == estimate_gain(curve(n, f1, 0.005), 128, 64).sentence
    )  # the same seed, the same words


def test_few_budgets_give_no_estimate() -> None:
    with pytest.raises(ConfigError, match=r"3 budgets \(16, 32, 64 chunks\).*needs at least 4"):
        estimate_gain(curve([16, 32, 64, 64], [0.3, 0.4, 0.5, 0.52]), 64, 64)
    with pytest.raises(ConfigError, match="expected amounts above 0"):
        estimate_gain(curve([1, 2, 3, 4], [0.1, 0.2, 0.3, 0.4]), 4, 0)


def test_doubts_are_said() -> None:
    n = [16, 32, 64, 128]
    rising = curve(n, PowerLaw(0.8, 1.2, 0.5).at(np.array(n, float)).tolist())
    assert "so this is a guess" in estimate_gain(rising, 128, 10_000).sentence
    assert "so today's F1 is a guess" in estimate_gain(rising, 1, 3).sentence
    assert "says nothing about more labels" in estimate_gain(curve(n, [0.5, 0.5, 0.5, 0.5]), 128, 64).sentence
    flat = curve(n, [0.50, 0.51, 0.49, 0.51], 0.05)
    assert "cannot tell whether they help" in estimate_gain(flat, 128, 4).sentence


def test_the_table_of_the_study_is_read(tmp_path: Path) -> None:
    lines = ["dataset,part,system,label,seeds,f1,f1_low,f1_high"]
    for strategy, shift in (("random", 0.0), ("time-balanced", 0.1)):
        lines += [f"bench,test,fcos_{strategy}_{n},x,2,{0.3 + shift},0.2,0.5" for n in (32, 64, 128, 256)]
    lines += ["bench,test,fcos,all labels,2,0.6,0.5,0.7", "other,test,fcos_random_8,x,2,0.1,0.0,0.2"]
    (tmp_path / "label-budget.csv").write_text("\n".join(lines) + "\n")
    found = read_curve(tmp_path / "label-budget.csv")
    assert found.amount.tolist() == [32, 64, 128, 256]
    assert found.f1.tolist() == [0.4] * 4
    assert found.noise == pytest.approx(0.3 / 3.92)
    assert (found.unit, found.about) == ("chunks", "time-balanced, bench, test")
    assert read_curve(tmp_path / "label-budget.csv", strategy="random").f1.tolist() == [0.3] * 4


def test_a_plain_table_is_read_and_others_are_refused(tmp_path: Path) -> None:
    own = tmp_path / "curve.csv"
    own.write_text("boxes,f1\n100,0.3\n200,0.4\n400,\n0,0.1\n800,0.5\n")
    found = read_curve(own)
    assert (found.amount.tolist(), found.unit, found.about) == ([100, 200, 800], "boxes", "curve.csv")
    assert np.isnan(found.noise).all()
    with pytest.raises(AnnotationError, match="no such file"):
        read_curve(tmp_path / "none.csv")
    own.write_text("boxes,recall\n1,2\n")
    with pytest.raises(AnnotationError, match="no column f1"):
        read_curve(own)
    own.write_text("f1\n0.3\n")
    with pytest.raises(AnnotationError, match="no amount of labels"):
        read_curve(own)
    own.write_text("f1,boxes\n,4\n")
    with pytest.raises(AnnotationError, match="no row has both"):
        read_curve(own)
