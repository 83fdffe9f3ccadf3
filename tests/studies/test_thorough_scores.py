"""What the scores of a thorough search mean, by hand and by the command."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pandas as pd
import pytest
from toy_recipe import save_small_detector

from mast_studies import thorough_scores
from mast_studies.zero_shot_sets import load_set


def test_scores_that_are_too_low_have_a_positive_intercept(tones: Path, tmp_path: Path) -> None:
    shutil.copytree(tones, tmp_path / "tones")
    own = load_set(tmp_path / "tones")
    calls, wrong = own.truth.assign(score=0.5), own.truth.assign(score=0.5)
    wrong[["start_s", "end_s"]] += [0.001, -0.001]
    wrong[["low_hz", "high_hz"]] = [20.0, 60.0]
    share = len(calls) // 4
    mostly_right = pd.concat([calls, wrong.iloc[:share]], ignore_index=True)
    mostly_right.loc[len(calls) :, "score"] = 0.49  # scores have to differ
    figures = thorough_scores.scores_of(own, mostly_right, 0.3)
    assert figures["intercept"] > 0
    assert figures["precision"] == pytest.approx(len(calls) / (len(calls) + share), abs=1e-3)
    assert figures["mean_score"] == pytest.approx(0.5, abs=0.01)
    assert figures["best_f1"] == figures["ap50"] == 1.0
    assert figures["best_threshold"] == 0.5


def test_only_what_is_held_back_is_searched_once_and_thoroughly(
    tones: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(tones, tmp_path / "tones")
    table = pd.read_csv(tmp_path / "tones" / "recordings.csv")
    table["split"] = ["val", "train"] * (len(table) // 2) + ["val"] * (len(table) % 2)
    table.to_csv(tmp_path / "tones" / "recordings.csv", index=False)
    held = set(table.loc[table["split"] == "val", "file"])
    asked: list[bool] = []

    def search(detector, dataset):  # type: ignore[no-untyped-def]
        assert set(dataset.recordings["file"]) == held
        asked.append(detector.options.thorough)
        calls = dataset.annotations.events
        return calls.assign(score=[0.3 + 0.5 * (k % 2) for k in range(len(calls))])

    monkeypatch.setattr(thorough_scores, "search", search)
    model, out = save_small_detector(tmp_path / "model", score=0.4), tmp_path / "out.json"
    words = ["--model", model, "--data", tmp_path / "tones", "--work", tmp_path / "work", "--out", out]
    monkeypatch.setattr(sys, "argv", ["thorough_scores", *map(str, words)])
    thorough_scores.main()
    result = json.loads(out.read_text())
    assert asked == [False, True]
    assert result["data"]["tones"]["part"] == "val"
    assert result["figures"]["sets"]["tones"]["thorough"]["best_f1"] == 1.0
    assert result["figures"]["sets"]["tones"]["thorough"]["f1"] < 1.0
