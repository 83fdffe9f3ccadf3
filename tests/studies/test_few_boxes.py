from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from toy_recipe import FRONT_END, save_small_detector, small_recipe

from mast.data.recordings import load_dataset
from mast.errors import ConfigError
from mast.models.architecture import DetectorConfig
from mast_studies import few_boxes
from mast_studies.few_boxes import recipe_of, split_chunks
from mast_studies.few_boxes_chunks import count_boxes, list_chunks, sample_chunks
from mast_studies.few_boxes_table import summarise, write_figure
from mast_studies.zero_shot_sets import load_set


def test_chunks_lie_end_to_end_and_lose_no_box(tones: Path) -> None:
    dataset = load_dataset(tones)  # of 11 s
    table = list_chunks(dataset, 4.0)
    first = table[table["recording"] == dataset.recordings["file"].iloc[0]]
    assert first["start_s"].tolist() == [0.0, 4.0, 8.0]
    assert first["valid_s"].tolist() == pytest.approx([4.0, 4.0, 3.0])
    assert count_boxes(dataset, table).sum() == len(dataset.annotations.events)


def test_a_recording_shorter_than_a_chunk_is_one(tones: Path) -> None:
    dataset = load_dataset(tones)
    table = list_chunks(dataset, 30.0)
    assert len(table) == 8
    assert (table["valid_s"] < 12).all()
    # a remainder of 0.2 s is none
    assert (list_chunks(dataset, 10.8).groupby("recording").size() == 1).all()


def test_a_larger_budget_contains_the_smaller(tones: Path) -> None:
    dataset = load_dataset(tones)
    table = list_chunks(dataset, FRONT_END.chunk_s)
    counts = count_boxes(dataset, table)
    smaller: list[int] = []
    for boxes in (1, 5, 12, int(counts.sum())):
        rows = sample_chunks(table, counts, boxes, seed=3)
        assert rows[: len(smaller)] == smaller
        assert counts[rows].sum() >= boxes
        assert counts[rows[:-1]].sum() < boxes  # none too many
        smaller = rows
    assert sample_chunks(table, counts, 5, seed=4) != sample_chunks(table, counts, 5, seed=3)
    with pytest.raises(ConfigError, match="ask for fewer"):
        sample_chunks(table, counts, int(counts.sum()) + 1, seed=0)
    with pytest.raises(ConfigError, match="there are 0"):
        sample_chunks(table.iloc[:0], counts[:0], 1, seed=0)


def test_who_chooses_the_threshold() -> None:
    assert split_chunks([7]) == ([7], [7])
    assert split_chunks([7, 8, 9]) == ([7, 8, 9], [7, 8, 9])
    assert split_chunks([7, 8, 9, 1]) == ([7, 8, 9], [1])
    learn, held = split_chunks(list(range(10)))
    assert held == [3, 7]
    assert sorted(learn + held) == list(range(10))


def test_the_recipe_has_the_models_own_shape() -> None:
    config = small_recipe().detector
    assert isinstance(config, DetectorConfig)
    assert recipe_of(config, FRONT_END).detector == config


@dataclass(frozen=True)
class OneCell:
    start: str
    boxes: int
    seed: int

    @property
    def name(self) -> str:
        return f"{self.start}-{self.boxes}-{self.seed}"


def write_cell(folder: Path, cell: OneCell, found: pd.DataFrame) -> None:
    metrics = {way: {"f1": 0.5, "ap50": None} for way in ("own threshold", "best on this set")}
    row = {"boxes": cell.boxes, "chunks": 1, "seconds": 1.0, "metrics": metrics}
    (folder / f"{cell.name}.json").write_text(json.dumps(row))
    found.to_parquet(folder / f"{cell.name}.parquet", index=False)


def test_training_twice_does_not_narrow_the_interval(tones: Path, tmp_path: Path) -> None:
    test = load_set(tones)
    rng = np.random.default_rng(0)
    found = test.truth[rng.random(len(test.truth)) < 0.5].assign(score=1.0)
    twice = [OneCell("model", 10, seed) for seed in (0, 1)]
    for cell in (*twice, OneCell("scratch", 10, 0)):
        write_cell(tmp_path, cell, found)
    curves = summarise(tmp_path, test, [*twice, OneCell("scratch", 10, 0)])["curves"]
    (two,), (one,) = curves["model"], curves["scratch"]
    assert two["f1_by_seed"] == [one["f1"]] * 2
    assert two["f1_interval"] == one["f1_interval"]
    assert one["f1_interval"][0] < one["f1"] < one["f1_interval"][1]
    assert one["ap50"] is None


def test_the_figure_is_drawn(tmp_path: Path) -> None:
    point = {"f1_interval": [0.2, 0.4], "f1_by_seed": [0.28, 0.32], "f1": 0.3}
    curves = {"model": [{"boxes": 0, **point}, {"boxes": 10, **point}], "scratch": [{"boxes": 10, **point}]}
    write_figure({"curves": curves}, tmp_path / "few.png", title="made up")
    assert (tmp_path / "few.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.slow
@pytest.mark.usefixtures("smaller_models")
def test_the_whole_command_resumes_where_it_stopped(
    tones: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save_small_detector(tmp_path / "model", score=0.3)
    out = tmp_path / "few.json"
    words = ["few_boxes.py", "--model", tmp_path / "model", "--data", tones, "--work", tmp_path / "work"]
    words += ["--boxes", "4", "5000", "--seeds", "1", "--steps", "2", "--device", "cpu", "--out", out]
    monkeypatch.setattr(sys, "argv", [str(word) for word in words])
    few_boxes.main()
    figures = json.loads(out.read_text())["figures"][tones.name]
    budgets = [point["boxes"] for point in figures["curves"]["model"]]
    (n_boxes,) = [n for n in budgets if n > 4]  # 5000 are not to be had: all there are
    assert budgets == [0, 4, n_boxes]
    assert [point["boxes"] for point in figures["curves"]["scratch"]] == [4, n_boxes]
    assert figures["curves"]["model"][1]["boxes_used"][0] >= 4
    monkeypatch.setattr(few_boxes, "fit_detector", lambda *_, **__: pytest.fail("trained again"))
    few_boxes.main()
    assert json.loads(out.read_text())["figures"][tones.name] == figures
    assert "5/5" in capsys.readouterr().out


@pytest.mark.usefixtures("smaller_models")
def test_habits_are_measured_with_each_recording_held_back(
    tones: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_small_detector(tmp_path / "model", score=0.3)
    out = tmp_path / "habits.json"
    words = ["few_boxes.py", "--habits", "--model", tmp_path / "model", "--data", tones, "--boxes", "4"]
    words += ["--seeds", "2", "--device", "cpu", "--out", out]
    monkeypatch.setattr(sys, "argv", [str(word) for word in words])
    few_boxes.main()
    own = json.loads(out.read_text())["figures"]["sets"][tones.name]
    assert own["ways"]["all"] == own["ways"]["as is"]  # whole calls, at this band
    assert own["ways"]["strongest"]["n_truth"] == own["data"]["boxes"]
    seeds = own["4 boxes"]
    assert [row["seed"] for row in seeds] == [0, 1]
    for row in seeds:
        assert sum(row["recordings_by_habit"].values()) == len(load_dataset(tones))
        if not row["changed"]:
            assert row["f1"] == own["ways"]["all"]["f1"]
