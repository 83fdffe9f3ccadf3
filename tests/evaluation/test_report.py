"""Results as plain values."""

from __future__ import annotations

import json

import pandas as pd

from mast.evaluation import Scoring, compare, evaluate

CONTRACT = {
    *(
        "precision",
        "recall",
        "f1",
        "f1_macro",
        "ap50",
        "ap50_voc11",
        "ap50_95",
        "miou",
        "n_truth",
        "n_predictions",
    ),
    *("space", "iou_threshold", "threshold", "ece", "f1_time", "f1_iom", "intervals"),
}


def strict(value: dict) -> dict:
    return json.loads(json.dumps(value, allow_nan=False))


def test_every_promised_key_is_there_and_the_space_is_said(make_random):
    truth, predictions, reviewed = make_random(0)
    for space in ("grid", "hz"):
        result = evaluate(
            truth, predictions, reviewed=reviewed, scoring=Scoring(space=space), threshold=0.3, resamples=20
        )
        plain = strict(result.as_dict())
        assert set(plain) >= CONTRACT
        assert plain["space"] == space
        assert plain["threshold"] == 0.3
        assert plain["f1"] == result.metrics["f1"]
        low, high = plain["intervals"]["f1"]
        assert low <= high
        assert {row["group"] for row in plain["recall_by"]["size"]} == {"small", "medium", "large"}
        assert len(plain["reliability"]) == 10


def test_what_has_no_value_is_null(make_table):
    reviewed = pd.DataFrame({"recording": ["a"], "start_s": [0.0], "end_s": [60.0]})
    plain = strict(evaluate(make_table([]), make_table([]), reviewed=reviewed).as_dict())
    assert plain["f1"] is None
    assert plain["intervals"]["f1"] == [None, None]
    assert plain["threshold"] is None
    assert plain["n_truth"] == 0


def test_a_comparison_holds_both_and_the_differences(make_random):
    truth, predictions, reviewed = make_random(0)
    plain = strict(compare(truth, predictions, predictions[:3], reviewed=reviewed, resamples=20).as_dict())
    assert plain["other"]["n_predictions"] == 3
    assert plain["n_predictions"] == len(predictions)
    assert set(plain["differences"]["f1"]) == {"a", "b", "difference", "low", "high"}


def test_order_of_rows_and_recordings_does_not_matter_without_ties(make_random):
    truth, predictions, reviewed = make_random(3)
    predictions["score"] = [k / len(predictions) for k in range(len(predictions))]
    shuffled = [
        table.sample(frac=1, random_state=1).reset_index(drop=True)
        for table in (truth, predictions, reviewed)
    ]
    one = evaluate(truth, predictions, reviewed=reviewed, resamples=30)
    other = evaluate(shuffled[0], shuffled[1], reviewed=shuffled[2], resamples=30)
    assert one.as_dict() == other.as_dict()
