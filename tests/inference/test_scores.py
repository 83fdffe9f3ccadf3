"""Calibrated scores and thresholds for a precision."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from random_detector import save_detector, write_sound
from toy_calibration import stored_calibration

from mast.detect_options import DetectOptions
from mast.errors import ConfigError, MastError
from mast.inference import Detector
from mast.models.card import load_card
from mast.models.checkpoint import update_card
from mast.probability import Calibration, OperatingPoint, StoredCalibration

CALIBRATION = Calibration(method="platt", slope=0.5, intercept=-0.4)


def stored(calibration: Calibration = CALIBRATION, *, reached: bool = True) -> StoredCalibration:
    points = [
        OperatingPoint(threshold=0.35, precision=0.5, low=0.4, high=0.6, recall=0.9, n_kept=90),
        OperatingPoint(threshold=0.55, precision=0.9, low=0.8, high=0.95, recall=0.4, n_kept=24),
    ]
    return stored_calibration(calibration, n_recordings=12, curve=tuple(points) if reached else ())


def with_calibration(folder: Path, kept: StoredCalibration) -> Path:
    update_card(folder, load_card(folder).model_copy(update={"calibration": kept}))
    return folder


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The weights of the fixture ``model``, calibrated."""
    return with_calibration(save_detector(tmp_path_factory.mktemp("calibrated")), stored())


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sound(tmp_path_factory.mktemp("sound") / "a.wav", 6)


def events(folder: Path, sound: Path, **options: float) -> pd.DataFrame:
    return Detector(folder, DetectOptions(device="cpu", **options)).detect(sound)  # type: ignore[arg-type]


def test_scores_are_probabilities_and_the_events_the_same(model: Path, calibrated: Path, sound: Path) -> None:
    """The checkpoint's own threshold is a raw score, so calibration changes no box."""
    raw, shown = events(model, sound), events(calibrated, sound)
    pd.testing.assert_frame_equal(raw.drop(columns="score"), shown.drop(columns="score"))
    assert np.allclose(shown["score"], CALIBRATION.apply(raw["score"]), atol=2e-6)
    assert Detector(calibrated, DetectOptions(device="cpu")).scores.threshold == CALIBRATION.apply(0.3)


def test_a_given_threshold_is_of_the_scores_that_users_see(
    model: Path, calibrated: Path, sound: Path
) -> None:
    threshold = float(CALIBRATION.apply(0.5))
    shown = events(calibrated, sound, threshold=threshold)
    assert len(shown)
    assert (shown["score"] >= threshold - 1e-6).all()
    raw = events(model, sound, threshold=0.5)
    pd.testing.assert_frame_equal(raw.drop(columns="score"), shown.drop(columns="score"))


def test_a_precision_takes_the_stored_threshold(model: Path, calibrated: Path, sound: Path) -> None:
    detector = Detector(calibrated, DetectOptions(device="cpu", precision_target=0.8))
    assert detector.scores.raw_threshold == 0.55
    assert detector.scores.threshold == CALIBRATION.apply(0.55)
    assert "reached precision 0.90 (95 % interval 0.80–0.95, recall 0.40) on 12" in detector.scores.sentence
    point = detector.scores.operating_point
    assert point is not None
    assert (point["target"], point["precision"], point["low"], point["n_recordings"]) == (0.8, 0.9, 0.8, 12)
    raw = events(model, sound, threshold=0.55)
    pd.testing.assert_frame_equal(raw.drop(columns="score"), detector.detect(sound).drop(columns="score"))


def test_mistakes_with_precision(model: Path, calibrated: Path, tmp_path: Path) -> None:
    def message(folder: Path, **options: float) -> str:
        with pytest.raises(MastError) as caught:
            Detector(folder, DetectOptions(device="cpu", **options))  # type: ignore[arg-type]
        return str(caught.value)

    assert "was never calibrated" in message(model, precision_target=0.8)
    best = (
        f"the best was 0.9 at threshold {CALIBRATION.apply(0.55):.3g} (recall 0.4; at least 10 predictions)"
    )
    assert best in message(calibrated, precision_target=0.95)
    assert "give only one of the two" in message(calibrated, precision_target=0.8, threshold=0.3)
    assert "expected above 0 and at most 1" in message(calibrated, precision_target=90)
    poor = with_calibration(save_detector(tmp_path / "poor"), stored(reached=False))
    assert "give a threshold instead" in message(poor, precision_target=0.1)
    steps = Calibration(method="isotonic", knot_scores=(0.1, 0.9), knot_probabilities=(0.2, 0.7))
    low = with_calibration(save_detector(tmp_path / "low"), stored(steps))
    assert "end at 0.7, so nothing would be found" in message(low, threshold=0.8)
    assert "expected a score between 0 and 1" in message(low, threshold=1.2)


def test_a_strange_calibration_is_refused(tmp_path: Path) -> None:
    folder = save_detector(tmp_path)
    card = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(card | {"calibration": {"slope": 2}}))
    with pytest.raises(MastError, match=r"field calibration\.calibration: .* written by another version"):
        Detector(folder, DetectOptions(device="cpu"))


def test_settings_tell_calibrations_and_thresholds_apart(
    model: Path, calibrated: Path, tmp_path: Path
) -> None:
    def settings(folder: Path, **options: float) -> dict[str, str | float]:
        return Detector(folder, DetectOptions(device="cpu", **options)).settings  # type: ignore[arg-type]

    plain, own = settings(model), settings(calibrated)
    assert (plain["calibration"], plain["threshold"], plain["raw_threshold"]) == ("none", 0.3, 0.3)
    assert own["model"] == plain["model"]
    assert own["calibration"] != "none"
    assert (own["threshold"], own["raw_threshold"]) == (CALIBRATION.apply(0.3), 0.3)
    other = stored(Calibration(method="platt", slope=0.6))
    assert settings(with_calibration(save_detector(tmp_path), other))["calibration"] != own["calibration"]
    assert settings(calibrated, precision_target=0.8) != own
    # two targets that the same threshold answers give the same events
    assert settings(calibrated, precision_target=0.8) == settings(calibrated, precision_target=0.9)


def test_precision_is_a_config_error_only_when_it_makes_no_sense(calibrated: Path) -> None:
    with pytest.raises(ConfigError):
        Detector(calibrated, DetectOptions(device="cpu", precision_target=0.0))
