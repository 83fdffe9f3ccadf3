from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest

from mast.data.recordings import load_dataset
from mast.errors import MastError
from mast_studies.folds import write_fold


def test_each_recording_with_boxes_tests_in_turn(tones: Path, tmp_path: Path) -> None:
    whole = load_dataset(tones)
    boxed = sorted(set(whole.annotations.events["recording"]))
    tested = []
    for number in range(len(boxed) + 1):
        fold = load_dataset(write_fold(tones, tmp_path / "work" / str(number), number))
        parts = fold.recordings["split"].value_counts()
        assert dict(parts) == {"train": len(whole) - 1, "test": 1}
        name = str(fold.recordings.loc[fold.recordings["split"] == "test", "file"].item())
        assert fold.path(name).samefile(whole.path(name))
        tested.append(name)
        assert len(fold.annotations.events) == len(whole.annotations.events)
        assert len(fold.annotations.reviewed) == len(whole.annotations.reviewed)
    assert tested == [*boxed, boxed[0]]
    write_fold(tones, tmp_path / "work" / "0", 0)  # as another process does at the same time


def test_two_recordings_are_too_few(tones: Path, tmp_path: Path) -> None:
    data = tmp_path / "two"
    shutil.copytree(tones, data)
    boxes = pd.read_csv(data / "boxes.csv")
    column = boxes.columns[0]
    boxes[boxes[column].isin(sorted(set(boxes[column]))[:2])].to_csv(data / "boxes.csv", index=False)
    with pytest.raises(
        MastError, match="2 of its recordings have boxes; to leave one out takes at least three"
    ):
        write_fold(data, tmp_path / "fold", 0)
