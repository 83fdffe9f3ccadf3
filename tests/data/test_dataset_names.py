"""Recordings that tables name and that are missing or no sound: a few are left out, most are a wrong folder."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf

from mast.data.recordings import Dataset, load_dataset
from mast.errors import AnnotationError, shorten

NAMES = [f"r{i}.wav" for i in range(6)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Six recordings with two boxes each."""
    root = tmp_path / "sound"
    root.mkdir()
    for name in NAMES:
        sf.write(root / name, np.random.default_rng(0).normal(0, 0.1, 16_000), 16_000)
    write_boxes(root, NAMES)
    return root


def write_boxes(root: Path, names: list[str]) -> None:
    rows = [f"{name},{start},{start + 0.1},1000,2000" for name in names for start in (0.1, 0.5)]
    (root / "boxes.csv").write_text("\n".join(["file,start_s,end_s,low_hz,high_hz", *rows]) + "\n")


def remove(root: Path, *names: str) -> None:
    for name in names:
        (root / name).unlink()


def loaded(root: Path) -> tuple[Dataset, list[str]]:
    """The dataset, and what was said about it, without the folder's own path."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dataset = load_dataset(root)
    assert all(len(shorten(warning.message)) <= 400 for warning in caught)
    return dataset, [str(warning.message).replace(str(root), "sound") for warning in caught]


def test_nothing_is_said_where_nothing_is_missing(folder: Path) -> None:
    dataset, told = loaded(folder)
    assert (len(dataset), len(dataset.annotations.events), told) == (6, 12, [])


def test_one_that_was_moved_is_named_and_the_others_are_used(folder: Path) -> None:
    remove(folder, "r1.wav")
    dataset, told = loaded(folder)
    assert told == [
        "sound/boxes.csv: 1 of 6 boxed recordings is not in sound (r1.wav) and is left out with its 2 boxes; "
        "was it moved or renamed?"
    ]
    others = [name for name in NAMES if name != "r1.wav"]
    assert dataset.boxed_recordings == dataset.reviewed_recordings == others
    assert len(dataset.annotations.events) == 10
    assert dataset.failures["file"].tolist() == ["r1.wav"]
    assert dataset.failures["error"][0] == f"{folder / 'r1.wav'}: no such recording"


def test_a_few_are_named_and_the_rest_counted(folder: Path) -> None:
    write_boxes(folder, [*NAMES, *(f"gone{i}.wav" for i in range(5))])
    _, (told,) = loaded(folder)
    assert told == (
        "sound/boxes.csv: 5 of 11 boxed recordings are not in sound (gone0.wav, gone1.wav, gone2.wav and 2 more) and "
        "are left out with their 10 boxes; were they moved or renamed?"
    )


@pytest.mark.parametrize(("n_missing", "refused"), [(3, False), (4, True)])
def test_most_missing_is_a_wrong_folder(folder: Path, n_missing: int, refused: bool) -> None:
    remove(folder, *NAMES[:n_missing])
    if not refused:
        dataset, _ = loaded(folder)
        assert dataset.boxed_recordings == NAMES[n_missing:]
        return
    with pytest.raises(AnnotationError) as caught:
        loaded(folder)
    assert str(caught.value).replace(str(folder), "sound") == (
        "sound/boxes.csv: 4 of 6 recordings are not in sound (r0.wav, r1.wav, r2.wav and 1 more); give the folder that "
        "holds them, or correct their names"
    )


def test_the_only_one_missing_is_refused(folder: Path) -> None:
    write_boxes(folder, ["x.wav"])
    with pytest.raises(
        AnnotationError, match=r"1 of 1 recording is not in .* \(x\.wav\); give the folder that holds it, or"
    ):
        load_dataset(folder)


def test_listed_boxed_and_reviewed_ones_are_named_once(folder: Path) -> None:
    (folder / "recordings.csv").write_text("\n".join(["file", *NAMES]) + "\n")
    (folder / "reviewed.csv").write_text("\n".join(["file", *NAMES]) + "\n")
    write_boxes(folder, NAMES[:5])
    remove(folder, "r1.wav", "r5.wav")
    dataset, told = loaded(folder)
    assert told == [
        "sound/boxes.csv: 1 of 5 boxed recordings is not in sound (r1.wav) and is left out with its 2 boxes; "
        "was it moved or renamed?",
        "sound/reviewed.csv: 1 of 6 recordings is not in sound (r5.wav) and is left out; was it moved or renamed?",
    ]
    assert len(dataset) == 4
    assert dataset.reviewed_recordings == ["r0.wav", "r2.wav", "r3.wav", "r4.wav"]
    assert sorted(dataset.failures["file"]) == ["r1.wav", "r5.wav"]


def test_one_that_is_only_listed_is_named_too(folder: Path) -> None:
    (folder / "recordings.csv").write_text("\n".join(["file", *NAMES]) + "\n")
    (folder / "boxes.csv").unlink()
    remove(folder, "r5.wav")
    dataset, told = loaded(folder)
    assert told == [
        "sound/recordings.csv: 1 of 6 recordings is not in sound (r5.wav) and is left out; was it moved or renamed?"
    ]
    assert len(dataset) == 5


def test_a_listing_of_another_folder_is_refused(folder: Path) -> None:
    (folder / "recordings.csv").write_text("file\nx.wav\ny.wav\nr1.wav\n")
    with pytest.raises(AnnotationError, match=r"recordings\.csv: 2 of 3 recordings are not in .*x\.wav, y"):
        load_dataset(folder)


def test_one_that_is_no_sound_is_left_out_with_its_boxes(folder: Path) -> None:
    (folder / "r2.wav").write_text("no sound")
    dataset, (unreadable, told) = loaded(folder)
    assert "1 of 6 recordings cannot be read" in unreadable
    assert told == (
        "sound/boxes.csv: 1 of 6 boxed recordings cannot be read as sound (r2.wav) and is left out with its 2 boxes; "
        "repair it, or remove its rows"
    )
    assert "r2.wav" not in dataset.reviewed_recordings
    assert dataset.failures["file"].tolist() == ["r2.wav"]


@pytest.mark.filterwarnings("ignore:.*recordings cannot be read")
def test_missing_and_unreadable_ones_count_together(folder: Path) -> None:
    remove(folder, "r0.wav", "r1.wav")
    for name in NAMES[2:4]:
        (folder / name).write_text("no sound")
    with pytest.raises(
        AnnotationError,
        match=r"4 of 6 recordings are not in .* or cannot be read as sound \(r0\.wav, r1\.wav",
    ):
        load_dataset(folder)


def test_a_renamed_one_is_not_taken_for_heard_and_empty(folder: Path) -> None:
    """The listing knows its new name, the boxes its old one: without boxes it would count as empty."""
    shutil.move(folder / "r1.wav", folder / "new.wav")
    (folder / "recordings.csv").write_text("\n".join(["file", "new.wav", *NAMES[:1], *NAMES[2:]]) + "\n")
    dataset, told = loaded(folder)
    assert told == [
        "sound/boxes.csv: 1 of 6 boxed recordings is not listed in recordings.csv (r1.wav) and is left out with its 2 "
        "boxes; list it, or correct its name",
        "sound/boxes.csv: 1 recording without boxes may be meant by r1.wav, so it does not count as heard and empty",
    ]
    assert dataset.annotations.reviewed_empty() == []
    assert "new.wav" in set(dataset.recordings["file"])


def test_a_name_of_several_recordings_is_refused(folder: Path) -> None:
    for place in ("one", "two"):
        (folder / place).mkdir()
        shutil.copy(folder / "r0.wav", folder / place / "x.wav")
    for name in ("x.wav", "X.flac", "/home/me/x.wav"):
        write_boxes(folder, [*NAMES, name])
        with pytest.raises(
            AnnotationError,
            match=r"several recordings [xX]\.\w+ \(one/x\.wav, two/x\.wav\); name one of them with its folder",
        ):
            load_dataset(folder)
