from __future__ import annotations

from pathlib import Path

import pandas as pd
from toy_recipe import small_recipe

from mast.data.recordings import load_dataset
from mast.data.splits import SplitConfig
from mast.training.chosen_chunks import labelled_chunks
from mast.training.detector_training import train_detector
from mast.training.part_list import PART_LIST, list_parts, parts_in_words


def test_a_run_lists_its_parts_and_the_column_split_repeats_them(tones: Path, tmp_path: Path) -> None:
    recipe = small_recipe(train__epochs=1)
    train_detector(tones, tmp_path, recipe, seed=3, split=SplitConfig())
    table = pd.read_csv(tmp_path / PART_LIST)
    dataset = load_dataset(tones)
    assert table["file"].is_unique
    boxes = dataset.annotations.events["recording"].value_counts()
    assert dict(zip(table["file"], table["boxes"], strict=True)) == {
        name: int(boxes.get(name, 0)) for name in table["file"]
    }
    parts = dict(zip(table["file"], table["split"], strict=True))
    assert sorted(set(parts.values())) == ["test", "train", "val"]
    named = dataset.recordings.assign(split=dataset.recordings["file"].map(parts).fillna(""))
    for seed in (3, 4):  # with the column, the seed no longer decides
        again = labelled_chunks(
            type(dataset)(**{**vars(dataset), "recordings": named}), recipe.front_end, seed=seed
        )
        assert {name: set(chunks.table["recording"]) for name, chunks in again.items()} == {
            name: {file for file, part in parts.items() if part == name} for name in again
        }


def test_a_recording_that_is_cut_in_time_has_a_row_for_each_part(tones: Path) -> None:
    dataset, front_end = load_dataset(tones), small_recipe().front_end
    parts = labelled_chunks(
        dataset, front_end, split=SplitConfig(by="time", guard_s=0.4, fractions=(0.5, 0.5, 0.0))
    )
    table = list_parts(dataset, parts)
    own = table[table["file"] == table["file"].iloc[0]].sort_values("start_s")
    assert set(own["split"]) == {"train", "val"}
    assert (own["start_s"].to_numpy()[1:] >= own["end_s"].to_numpy()[:-1]).all()
    events = dataset.annotations.events
    middles = (events["start_s"] + events["end_s"]) / 2
    for row in own.itertuples():
        inside = (events["recording"] == row.file) & middles.between(row.start_s, row.end_s)
        assert row.boxes == int(inside.sum())


def test_parts_are_counted_in_words() -> None:
    rows = [
        ("a", "site_ood", 0.0, 1.0, 4),
        ("b", "train", 0.0, 1.0, 1),
        ("b", "train", 2.0, 3.0, 1),
        ("c", "test", 0.0, 1.0, 0),
    ]
    table = pd.DataFrame(rows, columns=["file", "split", "start_s", "end_s", "boxes"])
    assert parts_in_words(table) == (
        "1 recording with 2 boxes trains, 1 recording with 0 boxes is held back for testing, "
        "1 recording with 4 boxes is site_ood"
    )
