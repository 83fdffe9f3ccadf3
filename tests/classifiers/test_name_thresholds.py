"""How sure a name must be, from boxes that people have named."""

from __future__ import annotations

import numpy as np
import pandas as pd

from mast.classifiers.thresholds import NEVER, NameThresholds, choose_thresholds, match_reviewed_names
from mast.events import as_events


def test_the_smallest_score_at_which_enough_are_right() -> None:
    names = ["tit"] * 20 + ["wren"] * 20 + ["owl"] * 9
    scores = [*np.linspace(0.05, 1, 20).round(2)] * 2 + [0.9] * 9
    truth = ["tit" if score > 0.4 else "wren" for score in scores[:20]]
    truth += ["tit"] * 20 + ["owl"] * 9
    found = choose_thresholds(names, scores, truth, precision=0.75, default=0.5)
    assert found.by_label == {"tit": 0.25, "wren": NEVER}  # 12 of 16 right from 0.25 on; wrens never
    assert found.reviewed == 49
    right = [name == true for name, true in zip(names[:20], truth, strict=False)]
    assert np.mean([ok for ok, score in zip(right, scores, strict=False) if score >= 0.25]) == 0.75
    believed = found.accepts(["tit", "tit", "wren", "owl", "owl"], [0.25, 0.24, 1.0, 0.5, 0.49])
    assert believed.tolist() == [True, False, False, True, False]


def test_boxes_that_could_not_be_heard_stay_unknown() -> None:
    assert NameThresholds(0.0).accepts(["", "tit"], [np.nan, 0.0]).tolist() == [False, True]


def test_reviewed_boxes_are_found_again_in_their_own_recording() -> None:
    columns = ["recording", "start_s", "end_s", "low_hz", "high_hz", "label"]
    found = as_events(pd.DataFrame([("a", 0, 1, 0, 100, ""), ("b", 0, 1, 0, 100, ""), ("b", 5, 6, 0, 100, "")],
                                   columns=columns))  # fmt: skip
    people = as_events(
        pd.DataFrame([("b", 0.1, 1, 0, 110, "wren"), ("c", 5, 6, 0, 100, "tit")], columns=columns)
    )
    rows, labels = match_reviewed_names(found, people)
    assert (rows.tolist(), labels) == ([1], ["wren"])
