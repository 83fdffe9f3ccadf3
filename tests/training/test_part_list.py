from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
from toy_recipe import small_recipe

from mast.data.recordings import load_dataset
from mast.data.splits import SplitConfig
from mast.training.chosen_chunks import labelled_chunks
from mast.training.detector_training import train_detector
from mast.training.part_list import PART_LIST, describe_parts, list_parts, unused_boxes


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


def test_boxes_in_stretches_shorter_than_a_chunk_are_counted_and_named(tones: Path) -> None:
    dataset, front_end = load_dataset(tones), small_recipe().front_end
    whole = labelled_chunks(dataset, front_end)
    assert unused_boxes(dataset, list_parts(dataset, whole), front_end) == (0, "")

    boxes = dataset.annotations.events
    first = str(boxes["recording"].iloc[0])
    heard = dataset.annotations.reviewed
    short = heard["end_s"].where(heard["recording"] != first, 0.9 * front_end.chunk_s)
    annotations = replace(dataset.annotations, reviewed=heard.assign(end_s=short))
    less = replace(dataset, annotations=annotations)
    unused = unused_boxes(less, list_parts(less, labelled_chunks(less, front_end)), front_end)
    n = int((boxes["recording"] == first).sum())
    assert unused == (
        n,
        f"{n} of {len(boxes)} boxes are not used, the first in {first}: they lie where less than 2.56 s was listened "
        "to without a gap, or before or after the whole chunks of a longer stretch",
    )


def test_boxes_beyond_the_last_whole_chunk_and_between_two_parts_are_not_used(tones: Path) -> None:
    dataset, front_end = load_dataset(tones), small_recipe().front_end
    event = dataset.annotations.events.iloc[[0]]
    name = str(event["recording"].iloc[0])
    boxes = pd.concat(
        [event.assign(start_s=at, end_s=at + 0.2) for at in (1.0, 2.5, 3.0, 9.0)], ignore_index=True
    )
    dataset = replace(dataset, annotations=replace(dataset.annotations, events=boxes))
    rows = [(name, "train", 0.0, 2.56, 2), (name, "val", 8.0, 11.0, 1)]
    table = pd.DataFrame(rows, columns=["file", "split", "start_s", "end_s", "boxes"])
    n, words = unused_boxes(dataset, table, front_end)
    assert n == 1
    assert words.startswith(f"1 of 4 boxes is not used, in {name}: it lies where less than")
    assert words.endswith("of a longer stretch, or between two parts of one recording")


def test_parts_are_counted_in_words() -> None:
    rows = [
        ("a", "site_ood", 0.0, 1.0, 4),
        ("b", "train", 0.0, 1.0, 1),
        ("b", "train", 2.0, 3.0, 1),
        ("c", "test", 0.0, 1.0, 0),
    ]
    table = pd.DataFrame(rows, columns=["file", "split", "start_s", "end_s", "boxes"])
    assert describe_parts(table) == (
        "1 recording with 2 boxes trains, 1 recording with 0 boxes is held back for testing, "
        "1 recording with 4 boxes is site_ood"
    )
