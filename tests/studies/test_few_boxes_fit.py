"""`few_boxes.py --fit`: fits from a few boxes, as a user has them."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pandas as pd
import pytest
from toy_recipe import save_small_detector

from mast.data.recordings import load_dataset
from mast.errors import ConfigError
from mast_studies import few_boxes, few_boxes_fit
from mast_studies.few_boxes_fit import FitCell, list_cells, recommend_by_f1, summarise_fits
from mast_studies.few_boxes_folder import reviewed_spans, sample_chunks_for_fit
from mast_studies.folds import write_parts


def test_boxes_are_drawn_in_at_least_three_recordings(tones: Path) -> None:
    dataset = load_dataset(tones)
    few = sample_chunks_for_fit(dataset, 2.0, 1, seed=0)
    assert few.loc[few["boxes"] > 0, "recording"].nunique() == 3
    more = sample_chunks_for_fit(dataset, 2.0, 12, seed=0)
    assert more["boxes"].sum() >= 12
    assert more.iloc[: len(few)].equals(few)  # a larger budget contains the smaller
    assert more["recording"].head(8).nunique() == 8  # one of each before a second of any
    assert not sample_chunks_for_fit(dataset, 2.0, 1, seed=1).equals(few)
    with pytest.raises(ConfigError, match="5000 boxes in 3 recordings asked for, but there are 42 in 7"):
        sample_chunks_for_fit(dataset, 2.0, 5_000, seed=0)


def test_the_folder_holds_what_was_heard_and_the_tests(tones: Path, tmp_path: Path) -> None:
    dataset = load_dataset(tones)
    names = [str(name) for name in dataset.recordings["file"]]
    drawn = sample_chunks_for_fit(dataset.select(recordings=names[:5]), 2.0, 8, seed=0)
    parts = dict.fromkeys(drawn["recording"], "") | {names[5]: "site_ood"}
    heard = reviewed_spans(dataset, drawn, [names[5]])
    read = load_dataset(write_parts(dataset, heard, parts, tmp_path / "user"))
    assert set(read.recordings["file"]) == {*drawn["recording"], names[5]}
    split = read.recordings.set_index("file")["split"]
    assert split[names[5]] == "site_ood"
    assert (split.drop(names[5]) == "").all()
    heard = read.annotations.reviewed
    assert len(heard) == len(drawn) + 1
    assert heard.loc[heard["recording"] != names[5], "end_s"].max() <= 11
    boxes = read.annotations.events["recording"].value_counts()
    assert boxes[names[5]] == (dataset.annotations.events["recording"] == names[5]).sum()
    assert boxes.drop(names[5]).sum() == drawn["boxes"].sum()
    assert read.path(names[5]).read_bytes() == dataset.path(names[5]).read_bytes()


def test_each_recording_is_the_test_in_turn_where_there_is_no_part_to_learn_from(
    tones: Path, tmp_path: Path
) -> None:
    cells = list_cells(load_dataset(tones), [10], 2)
    assert len(cells) == 16
    assert all(cell.tests == {cell.held_out: "test"} and cell.held_out not in cell.learn for cell in cells)
    assert len({cell.name for cell in cells}) == 16
    shutil.copytree(tones, tmp_path / "parts")
    table = pd.read_csv(tmp_path / "parts" / "recordings.csv")
    table.assign(split=["train"] * 6 + ["temporal_ood"] * 2).to_csv(
        tmp_path / "parts" / "recordings.csv", index=False
    )
    (one,) = list_cells(load_dataset(tmp_path / "parts"), [10], 1)
    assert one.held_out == ""
    assert sorted(one.tests.values()) == ["temporal_ood"] * 2
    assert len(one.learn) == 6


def test_the_yardstick_is_the_higher_f1() -> None:
    assert recommend_by_f1({"start": 0.2, "trained": 0.21}) == "trained"
    assert recommend_by_f1({"start": 0.2, "trained": 0.2}) == "start"
    assert recommend_by_f1({"start": 0.2, "habit": 0.3, "trained": 0.25}) == "habit"
    assert recommend_by_f1({"start": None, "trained": 0.2}) == "start"


def test_every_fit_is_compared_with_its_start() -> None:
    cells = [FitCell((), {name: "test"}, name, 10, seed) for seed in range(2) for name in "ab"]
    start, good, bad = [5, 10, 10], [8, 10, 10], [2, 10, 10]
    rows = [
        {
            "boxes": 10,
            "chunks": 2,
            "recommended": "start",
            "validation_boxes": 3,
            "validation_f1": {"start": 0.2, "trained": 0.3},
            "parts": {"test": {"start": start, "trained": trained}},
        }
        for trained in (good, bad, bad, bad)
    ]
    found = summarise_fits(cells, rows)["10 boxes"]
    assert found["recommended_before"] == {"trained": 4}
    assert found["recommended"] == {"start": 4}
    own = found["parts"]["test"]
    assert own["boxes"] == 20
    assert own["start"]["f1"] == own["now"]["f1"] == 0.5
    assert own["before"]["f1_by_seed"] == [0.5, 0.2]  # both recordings together
    assert own["before"]["fits_worse_than_the_start"] == 3
    assert own["before"]["fits_better_than_the_start"] == 1
    assert (own["before"]["worst_change"], own["before"]["best_change"]) == (-0.3, 0.3)
    assert own["now"]["fits_worse_than_the_start"] == 0


@pytest.mark.slow
@pytest.mark.usefixtures("smaller_models")
def test_the_whole_command_trains_once(tones: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mast.training.effort.LOOKS", 8)
    monkeypatch.setattr("mast.training.effort.EPOCHS", 1)
    monkeypatch.setattr(few_boxes_fit, "list_cells", lambda *given: list_cells(*given)[:1])
    save_small_detector(tmp_path / "model", score=0.3)
    out = tmp_path / "few.json"
    words = ["few_boxes.py", "--fit", "--model", tmp_path / "model", "--data", tones, "--boxes", "8"]
    words += ["--seeds", "1", "--work", tmp_path / "work", "--out", out]
    monkeypatch.setattr(sys, "argv", [str(word) for word in words])
    few_boxes.main()
    result = json.loads(out.read_text())
    own = result["figures"]["sets"][tones.name]["8 boxes"]
    assert own["fits"] == 1
    assert own["boxes_used"][0] >= 8
    assert set(own["parts"]) == {"test"}
    assert own["parts"]["test"]["boxes"] >= 6  # one across two chunks is in both
    assert result["trainings"][0]["recipe"]["train"]["epochs"] >= 1
    assert result["data"][tones.name]["test"] == "each recording in turn"
    monkeypatch.setattr("mast.fit.learn.fit_detector", lambda *_, **__: pytest.fail("trained again"))
    few_boxes.main()
    assert json.loads(out.read_text())["figures"] == result["figures"]
