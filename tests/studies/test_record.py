"""What is written beside every measurement."""

from __future__ import annotations

import json
from pathlib import Path

from mast_studies.record import TrainingRecord, write_result


def test_trainings_with_one_commit_and_recipe_are_written_once(tmp_path: Path) -> None:
    short, long = {"train": {"epochs": 1}}, {"train": {"epochs": 9}}
    trainings = [
        TrainingRecord("a", 0, "c0ffee", short),
        TrainingRecord("a", 1, "c0ffee", short),
        TrainingRecord("b", 0, "c0ffee", short),
        TrainingRecord("b", 1, "c0ffee", long),
        TrainingRecord("a", 2, "facade", short),
        TrainingRecord("c", 0, "", None),
    ]
    write_result(tmp_path / "found.json", {"f1": 0.5}, trainings=trainings)
    assert json.loads((tmp_path / "found.json").read_text())["trainings"] == [
        {"seeds": {"a": [0, 1], "b": [0]}, "commit": "c0ffee", "recipe": short},
        {"seeds": {"b": [1]}, "commit": "c0ffee", "recipe": long},
        {"seeds": {"a": [2]}, "commit": "facade", "recipe": short},
        {"seeds": {"c": [0]}, "commit": "not recorded", "recipe": "not recorded"},
    ]


def test_a_result_without_trainings_says_nothing_of_them(tmp_path: Path) -> None:
    write_result(tmp_path / "found.json", {"f1": 0.5})
    assert "trainings" not in json.loads((tmp_path / "found.json").read_text())
