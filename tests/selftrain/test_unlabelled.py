from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest
from toy_recipe import small_recipe

from mast.data.recordings import load_dataset
from mast.data.splits import SplitConfig
from mast.grid import FrontEnd
from mast.selftrain.unlabelled import NothingUnlabelledError, leave_out_measured
from mast.training.chosen_chunks import Chunks, labelled_chunks, unlabelled_chunks

FRONT_END: FrontEnd = small_recipe().front_end


@pytest.fixture(scope="module")
def parts(tones: Path) -> dict[str, Chunks]:
    return labelled_chunks(load_dataset(tones), FRONT_END, split=SplitConfig())


def names(chunks: pd.DataFrame) -> set[str]:
    return set(chunks["recording"])


def test_recordings_that_validate_or_test_are_left_out_wherever_they_lie(
    tones: Path, parts: dict[str, Chunks], tmp_path: Path
) -> None:
    held = names(parts["val"].table) | names(parts["test"].table)
    moved = tmp_path / "archive" / "2024"
    moved.mkdir(parents=True)
    for number, path in enumerate(sorted((tones / "audio").iterdir())):
        shutil.copy(path, moved / f"other name {number}{path.suffix}")
    said: list[str] = []
    for folder in (tones / "audio", tmp_path / "archive"):
        sources = unlabelled_chunks([folder], FRONT_END)
        left = leave_out_measured(sources, [parts["val"], parts["test"]], said.append)
        ((dataset, table),) = left
        contents = {dataset.path(name).read_bytes() for name in names(table)}
        assert contents == {
            path.read_bytes() for path in (tones / "audio").iterdir() if path.name not in held_files(held)
        }
    text = (
        f"{len(held)} unlabelled recordings are held back for validation or test, so nothing is learnt from "
    )
    assert said == [text + "what is measured there"] * 2


def held_files(held: set[str]) -> set[str]:
    return {Path(name).name for name in held}


def test_only_the_time_that_is_measured_is_left_out(tones: Path, parts: dict[str, Chunks]) -> None:
    sources = unlabelled_chunks([tones], FRONT_END)
    ((_, every),) = sources
    first = parts["val"].table.iloc[:1]
    one = Chunks(parts["val"].examples, first)
    ((_, left),) = leave_out_measured(sources, [one], lambda text: None)
    name, start, end = first["recording"][0], first["start_s"][0], (first["start_s"] + first["valid_s"])[0]
    touches = (
        (every["recording"] == name)
        & (every["start_s"] < end - 0.1)
        & (every["start_s"] + every["valid_s"] > start + 0.1)
    )
    assert touches.any()
    pd.testing.assert_frame_equal(left, every[~touches].reset_index(drop=True))


def test_nothing_is_said_or_changed_where_nothing_is_shared(
    tones: Path, parts: dict[str, Chunks], tmp_path: Path
) -> None:
    held = names(parts["val"].table)
    for path in (tones / "audio").iterdir():
        if path.name not in held_files(held):
            shutil.copy(path, tmp_path)
    sources, said = unlabelled_chunks([tmp_path], FRONT_END), list[str]()
    ((_, left),) = leave_out_measured(sources, [parts["val"]], said.append)
    pd.testing.assert_frame_equal(left, sources[0][1])
    assert said == []


def test_sound_that_only_measures_is_refused(tones: Path, parts: dict[str, Chunks], tmp_path: Path) -> None:
    for name in held_files(names(parts["val"].table)):
        shutil.copy(tones / "audio" / name, tmp_path)
    with pytest.raises(NothingUnlabelledError, match="nothing is left to learn from"):
        leave_out_measured(unlabelled_chunks([tmp_path], FRONT_END), [parts["val"]], lambda text: None)
