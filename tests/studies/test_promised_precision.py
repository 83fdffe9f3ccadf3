from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from toy_calibration import stored_calibration

from mast.evaluation import Scoring
from mast.evaluation.outcome import Outcome, match_scene
from mast.evaluation.scene import build_scene
from mast.events import as_events
from mast.probability import Calibration, OperatingPoint
from mast_studies.promised_precision import (
    check_promises,
    format_table,
    precision_at,
    threshold_from,
    with_measured_precision,
)


def judged(scores: list[float], right: list[int], recording: list[int] | None = None) -> Outcome:
    """Boxes a second apart; those that are right are the truth."""
    numbers = [0] * len(scores) if recording is None else recording
    start_s = np.arange(len(scores)) + 1.0
    found = as_events(
        pd.DataFrame(
            {
                "recording": [f"{number}.wav" for number in numbers],
                "start_s": start_s,
                "end_s": start_s + 0.5,
                "low_hz": 1_000.0,
                "high_hz": 3_000.0,
                "score": scores,
            }
        )
    )
    names = [f"{number}.wav" for number in range(max(numbers) + 1)]
    heard = pd.DataFrame({"recording": names, "start_s": 0.0, "end_s": 1_000.0})
    return match_scene(
        build_scene(found[np.array(right, dtype=bool)], found, reviewed=heard, scoring=Scoring())
    )


def test_precision_of_what_a_threshold_keeps_whatever_the_order_of_the_boxes() -> None:
    one = judged([0.2, 0.9, 0.6, 0.8], [1, 1, 0, 1], [0, 0, 1, 1])
    row = precision_at(one, 0.6)
    assert row["kept"] == 3
    assert row["precision"] == pytest.approx(2 / 3, abs=1e-4)
    assert row["mean_score"] == pytest.approx((0.9 + 0.8 + 0.6) / 3, abs=1e-4)
    assert row["interval"] == [
        0.5,
        1.0,
    ]  # of a recording with one right box alone, and of one with one of two
    assert precision_at(one, 0.95) == {"kept": 0, "precision": None, "interval": None}


def test_sets_count_alike_however_many_boxes_they_have() -> None:
    good = judged(list(np.linspace(0.99, 0.5, 100)), [1] * 100)
    bad = judged(list(np.linspace(0.98, 0.5, 20)), [1] * 10 + [0] * 10)
    # all boxes together would be 110 of 120 right; alike, (1 + 0.5) / 2
    assert threshold_from([good, bad], 0.75) == pytest.approx(0.5)
    high = threshold_from([good, bad], 0.8)
    assert high is not None
    kept = bad.kept(high)
    assert bad.hit[:kept].mean() >= 0.6 > bad.hit[: kept + 1].mean()
    assert threshold_from([bad], 0.9) is not None
    assert threshold_from([judged([0.9] * 9, [1] * 9)], 0.5) is None  # too few boxes to say


def test_a_set_decides_nothing_about_itself() -> None:
    sure, unsure = (
        judged([0.9] * 12, [1] * 12),
        judged([0.9] * 6 + [0.4] * 12, [1] * 6 + [0] * 12, [0, 1] * 9),
    )
    points = tuple(
        OperatingPoint(threshold=t, precision=p, low=None, high=None, recall=0.5, n_kept=10)
        for t, p in ((0.3, 0.6), (0.8, 0.8))
    )
    stored = stored_calibration(curve=points)
    found = check_promises({"sure": sure, "unsure": unsure}, stored)
    assert found["unsure"]["0.5"]["card_threshold"] == 0.3
    assert found["unsure"]["0.5"]["card"]["precision"] == pytest.approx(1 / 3, abs=1e-4)
    assert found["unsure"]["0.8"]["card"]["precision"] == 1.0
    assert found["unsure"]["0.9"]["card"] is None
    assert found["unsure"]["0.9"]["others_threshold"] == 0.9  # of the other set, where all are right
    assert found["sure"]["0.5"]["others"] is None  # with enough boxes, a third of the other set's is right
    text = format_table(found)
    assert "not reached" in text
    assert "0.33 (no interval), 18 boxes" in text


def test_a_card_learns_what_its_thresholds_gave_where_enough_boxes_are_left() -> None:
    point = OperatingPoint(threshold=0.5, precision=0.9, low=None, high=None, recall=0.5, n_kept=10)
    stored = stored_calibration(
        Calibration(method="temperature", slope=0.5),
        curve=(point, point.model_copy(update={"threshold": 0.9})),
    )
    scores = list(np.linspace(0.95, 0.3, 40))
    found = with_measured_precision(
        stored, {"cr_bats": judged(scores, [1, 0] * 20), "meadow": judged([0.9] * 9, [1] * 9)}
    )
    for before, after in zip(stored.curve, found.curve, strict=True):
        kept = sum(score >= stored.shown_threshold(before) for score in scores)
        assert after.found == {
            "bats": pytest.approx(np.ceil(kept / 2) / kept, abs=1e-4)
        }  # nine boxes are too few
        assert after.threshold == before.threshold
