"""What a start has learnt from is not held back; counted on recordings, some of which come later."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from toy_recipe import FRONT_END, save_small_detector, small_recipe

from mast.data.recordings import Dataset, load_dataset
from mast.data.splits import SplitConfig
from mast.errors import MastError
from mast.models.card import LEARNT_FROM, load_card
from mast.models.checkpoint import update_card
from mast.training.chosen_chunks import labelled_chunks
from mast.training.detector_training import train_detector
from mast.training.leakage import avoid_leakage, fingerprint, labelled_sound


def start_that_learnt_from(folder: Path, dataset: Dataset, names: Sequence[str], end_s: float = 11.0) -> Path:
    save_small_detector(folder, score=0.3)
    told = {LEARNT_FROM: {fingerprint(dataset.path(name)): [[0.0, end_s]] for name in names}}
    update_card(folder, load_card(folder).model_copy(update={"provenance": told}))
    return folder


def held_back(dataset: Dataset, split: SplitConfig | None = None) -> set[str]:
    parts = labelled_chunks(dataset, FRONT_END, split=split)
    return {name for part in ("val", "test") if part in parts for name in parts[part].table["recording"]}


def with_column(dataset: Dataset, **parts: str) -> Dataset:
    split = dataset.recordings["file"].map(parts).fillna("")
    return replace(dataset, recordings=dataset.recordings.assign(split=split))


def test_a_recording_is_known_by_its_file_not_by_its_name(tones: Path, tmp_path: Path) -> None:
    files = sorted((tones / "audio").iterdir())
    assert len({fingerprint(file) for file in files}) == len(files)
    copied = tmp_path / "renamed.wav"
    shutil.copy(files[0], copied)
    assert fingerprint(copied) == fingerprint(files[0])
    with copied.open("r+b") as file:  # one byte in the middle
        file.seek(copied.stat().st_size // 2)
        file.write(b"\x55")
    assert fingerprint(copied) != fingerprint(files[0])
    with copied.open("ab") as file:
        file.write(b"\0" * 10)
    (tmp_path / "empty").touch()
    assert len({fingerprint(copied), fingerprint(tmp_path / "empty"), fingerprint(files[1])}) == 3


def test_copies_of_one_recording_count_together(tones: Path, tmp_path: Path) -> None:
    (tmp_path / "audio").mkdir()
    sound, other, *_ = sorted((tones / "audio").iterdir())
    for name, path in (("a.wav", sound), ("copy of a.wav", sound), ("b.wav", other)):
        shutil.copy(path, tmp_path / "audio" / name)
    files = {"file": ["a.wav", "copy of a.wav", "b.wav"]}
    pd.DataFrame({**files, "split": ["train", "train", "val"]}).to_csv(
        tmp_path / "recordings.csv", index=False
    )
    heard = {"start_s": [0.0, 6.0, 0.0], "end_s": [5.0, 11.0, 11.0]}
    pd.DataFrame({**files, **heard}).to_csv(tmp_path / "reviewed.csv", index=False)
    learn = labelled_chunks(load_dataset(tmp_path), FRONT_END)["train"]
    assert labelled_sound([learn]) == {fingerprint(sound): [(0.0, 3.84), (6.4, 11.0)]}  # in whole chunks


def test_recordings_that_the_start_learnt_from_stay_in_training(tones: Path, tmp_path: Path) -> None:
    dataset = load_dataset(tones)
    usual = held_back(dataset)
    own = sorted(usual)[:1] + sorted(set(dataset.boxed_recordings) - usual)[:2]
    start = start_that_learnt_from(tmp_path / "a", dataset, own)
    said: list[str] = []
    divided = avoid_leakage(dataset, [start], FRONT_END, say=said.append)
    held = held_back(divided)
    assert held
    assert not held & set(own)
    assert set(own) <= set(labelled_chunks(divided, FRONT_END)["train"].table["recording"])
    assert "was trained on 3 of these 8 recordings, so they stay in training; held back are" in said[0]
    assert "for validation" in said[0]
    again = avoid_leakage(divided, [start], FRONT_END, say=said.append)
    assert again is divided  # nothing left to say
    assert len(said) == 1


@pytest.mark.parametrize("n_learnt", [1, 3, 5, 6])
def test_whatever_it_learnt_from_validation_gets_boxes(tones: Path, tmp_path: Path, n_learnt: int) -> None:
    dataset = load_dataset(tones)
    usual = sorted(held_back(dataset) & set(dataset.boxed_recordings))
    own = [*usual, *sorted(set(dataset.boxed_recordings) - set(usual))][:n_learnt]
    divided = avoid_leakage(dataset, [start_that_learnt_from(tmp_path / "a", dataset, own)], FRONT_END)
    parts = labelled_chunks(divided, FRONT_END)
    assert not held_back(divided) & set(own)
    assert parts["val"].n_boxes
    assert set(dataset.recordings["file"]) == {
        name for part in parts.values() for name in part.table["recording"]
    }


def test_nothing_changes_where_nothing_of_it_is_held_back(tones: Path, tmp_path: Path) -> None:
    dataset = load_dataset(tones)
    others = sorted(set(dataset.boxed_recordings) - held_back(dataset))
    start = start_that_learnt_from(tmp_path / "a", dataset, others)
    assert avoid_leakage(dataset, [start], FRONT_END, say=pytest.fail) is dataset
    unknown = save_small_detector(tmp_path / "b", score=0.3)
    assert avoid_leakage(dataset, [unknown], FRONT_END, say=pytest.fail) is dataset
    before = start_that_learnt_from(tmp_path / "c", dataset, sorted(held_back(dataset)), end_s=0.01)
    assert avoid_leakage(dataset, [before], FRONT_END, say=pytest.fail) is dataset  # not that part of it


def test_what_somebody_divided_is_refused_rather_than_changed(tones: Path, tmp_path: Path) -> None:
    dataset = load_dataset(tones)
    names = dataset.boxed_recordings
    start = start_that_learnt_from(tmp_path / "a", dataset, names[:1])
    chosen = with_column(dataset, **{names[0]: "val"})
    with pytest.raises(
        MastError,
        match=r"1 recording that would be held back.*set the column split of recordings.csv to train",
    ):
        avoid_leakage(chosen, [start], FRONT_END)
    fine = with_column(dataset, **{names[1]: "val"})
    assert avoid_leakage(fine, [start], FRONT_END) is fine
    split = SplitConfig(fractions=(0.1, 0.9, 0.0))
    leaking = start_that_learnt_from(tmp_path / "b", dataset, sorted(held_back(dataset, split)))
    with pytest.raises(MastError, match="that would be held back"):
        avoid_leakage(dataset, [leaking], FRONT_END, split=split)
    by_chunk = SplitConfig(by="chunk")  # leaks on purpose, as in the paper
    assert avoid_leakage(dataset, [leaking], FRONT_END, split=by_chunk) is dataset


def test_a_start_that_learnt_from_everything_is_refused(tones: Path, tmp_path: Path) -> None:
    dataset = load_dataset(tones)
    start = start_that_learnt_from(tmp_path / "a", dataset, dataset.boxed_recordings)
    with pytest.raises(MastError, match="was trained on every recording with boxes"):
        avoid_leakage(dataset, [start], FRONT_END)


def test_other_sites_stay_what_they_are(tones: Path, tmp_path: Path) -> None:
    dataset = load_dataset(tones)
    names = dataset.boxed_recordings
    dataset = with_column(dataset, **{names[0]: "site_ood", names[1]: "train"})
    own = sorted(held_back(dataset))
    divided = avoid_leakage(dataset, [start_that_learnt_from(tmp_path / "a", dataset, own)], FRONT_END)
    parts = divided.recordings.set_index("file")["split"]
    assert parts[names[0]] == "site_ood"
    assert set(parts[own]) == {"train"}
    assert not held_back(divided) & {names[0], *own}


def test_each_detector_keeps_what_it_and_its_starts_have_learnt_from(tones: Path, tmp_path: Path) -> None:
    """First six recordings are boxed, elsewhere and by other names, then all eight."""
    few = pd.read_csv(tones / "recordings.csv").head(6)
    first = tmp_path / "first"
    (first / "audio").mkdir(parents=True)
    for name in few["file"]:
        shutil.copy(tones / "audio" / name, first / "audio" / f"renamed_{name}")
    boxes = pd.read_csv(tones / "boxes.csv")
    own = boxes[boxes["file"].isin(few["file"])]
    own.assign(file="renamed_" + own["file"]).to_csv(first / "boxes.csv", index=False)
    recipe = small_recipe(train__epochs=1)
    train_detector(first, tmp_path / "a", recipe)
    learnt = set(load_card(tmp_path / "a" / "best").provenance[LEARNT_FROM])
    dataset = load_dataset(first)
    trained_on = labelled_chunks(dataset, FRONT_END)["train"].table["recording"].unique()
    assert learnt == {fingerprint(dataset.path(name)) for name in trained_on}

    card = load_card(tmp_path / "a" / "best")
    elsewhere = {**card.provenance[LEARNT_FROM], "0123": [[0.0, 60.0]]}  # what its own start had learnt from
    known = {"provenance": {**card.provenance, LEARNT_FROM: elsewhere}}
    update_card(tmp_path / "a" / "best", card.model_copy(update=known))
    train_detector(tones, tmp_path / "b", recipe, init=tmp_path / "a")
    told = load_card(tmp_path / "b" / "best").provenance[LEARNT_FROM]
    assert told.pop("0123") == [[0.0, 60.0]]
    divided = avoid_leakage(load_dataset(tones), [tmp_path / "a" / "best"], FRONT_END)
    held = {fingerprint(tones / "audio" / name) for name in held_back(divided)}
    assert learnt < set(told)
    assert held
    assert not held & set(told)
    assert all(spans == [[0.0, 11.0]] for spans in told.values())
