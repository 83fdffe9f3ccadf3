"""Boxes outside the band that a model hears: not looked for, and their sound is empty in the band."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import soundfile as sf

from mast.data.band_filter import band_warning, restrict_to_band
from mast.data.chunk_dataset import ChunkDataset
from mast.data.chunks import chunk_boxes, chunk_table
from mast.data.recordings import Dataset, load_dataset
from mast.errors import MastError
from mast.grid import FrontEnd

FRONT_END = FrontEnd()
BIRD, INSECT, SLIVER, ACROSS = (2_000, 3_000), (12_000, 15_000), (7_990, 12_000), (6_000, 12_000)


def dataset_of(root: Path, **bands: list[tuple[float, float]]) -> Dataset:
    """Recordings of ten seconds at 44.1 kHz, each with boxes in these bands."""
    root.mkdir()
    rows = []
    for name, own in bands.items():
        sf.write(root / f"{name}.wav", np.random.default_rng(0).normal(0, 0.1, 441_000), 44_100)
        rows += [
            f"{name}.wav,{start},{start + 0.5},{low},{high}" for start, (low, high) in enumerate(own, start=1)
        ]
    (root / "boxes.csv").write_text("\n".join(["file,start_s,end_s,low_hz,high_hz", *rows]) + "\n")
    return load_dataset(root)


def heard(dataset: Dataset, front_end: FrontEnd = FRONT_END) -> tuple[Dataset, list[str]]:
    """The dataset as a front end hears it, and what was said about it, without the folder's own path."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = restrict_to_band(dataset, front_end)
    return found, [str(warning.message).replace(str(dataset.root), "sound") for warning in caught]


def test_nothing_is_said_where_all_can_be_heard(tmp_path: Path) -> None:
    dataset = dataset_of(tmp_path / "sound", a=[BIRD, ACROSS])
    assert heard(dataset) == (dataset, [])
    insects = dataset_of(tmp_path / "insects", a=[BIRD, INSECT])
    assert heard(insects, FrontEnd.for_band(15_000)) == (insects, [])


def test_no_boxes(tmp_path: Path) -> None:
    sf.write(tmp_path / "a.wav", np.zeros(441_000), 44_100)
    dataset = load_dataset(tmp_path)
    assert heard(dataset) == (dataset, [])


def test_one_sentence_counts_them_and_names_the_option(tmp_path: Path) -> None:
    dataset = dataset_of(tmp_path / "sound", a=[BIRD, INSECT, SLIVER], b=[INSECT], c=[ACROSS])
    found, told = heard(dataset)
    assert told == [
        "sound: 3 of 5 boxes lie outside the band of 20–8000 Hz and are left out (--band 15000 would include them)"
    ]
    assert found.annotations.events[["recording", "low_hz"]].to_numpy().tolist() == [
        ["a.wav", 2_000],
        ["c.wav", 6_000],
    ]
    assert heard(found) == (found, [])  # said once
    assert heard(dataset, FrontEnd.for_band(15_000))[1] == []  # as the sentence says


def test_sound_with_such_boxes_alone_is_heard_and_empty(tmp_path: Path) -> None:
    dataset = dataset_of(tmp_path / "sound", a=[BIRD], b=[INSECT])
    found, _ = heard(dataset)
    assert found.reviewed_recordings == dataset.reviewed_recordings == ["a.wav", "b.wav"]
    pd.testing.assert_frame_equal(found.annotations.reviewed, dataset.annotations.reviewed)
    assert found.boxed_recordings == ["a.wav"]
    chunks = chunk_table(found, FRONT_END)
    assert chunks["labelled"].all()
    own = dict(zip(chunks["recording"], ChunkDataset(found, chunks, FRONT_END).boxes, strict=True))
    assert {name: len(boxes) for name, boxes in own.items()} == {"a.wav": 1, "b.wav": 0}


@pytest.mark.parametrize("cut_first", [False, True])
def test_no_sliver_is_learnt_from(tmp_path: Path, cut_first: bool) -> None:
    """Whether or not somebody asked for the boxes in the band before."""
    edges = [(8_000, 12_000), SLIVER, (7_840, 9_000), (0, 20), (0, 33), INSECT]
    dataset = dataset_of(tmp_path / "sound", a=[*edges, ACROSS])
    if cut_first:
        dataset, _ = heard(dataset)
    (boxes,) = chunk_boxes(dataset, chunk_table(dataset, FRONT_END), FRONT_END)
    assert boxes.tolist() == [[700, 114, 750, 127]]  # the last alone, cut at the edge; mel 2545.8 → 114.5


def test_below_the_band(tmp_path: Path) -> None:
    """A number would be a guess: a lower band also ends lower."""
    whales = dataset_of(tmp_path / "whales", a=[(5, 15), BIRD])
    assert heard(whales)[1][0].endswith("and are left out (a lower --band begins further down)")
    mixed = dataset_of(tmp_path / "mixed", a=[(5, 15), INSECT, BIRD])
    assert heard(mixed)[1][0].endswith("and are left out (--band 15000 would include those above it)")


def test_all_outside_is_refused(tmp_path: Path) -> None:
    dataset = dataset_of(tmp_path / "sound", a=[INSECT], b=[SLIVER])
    with pytest.raises(
        MastError, match=r"2 of 2 boxes lie outside .*--band 15000.*nothing is left to learn from"
    ):
        restrict_to_band(dataset, FRONT_END)


def test_whoever_asks_is_told_in_another_way(tmp_path: Path) -> None:
    dataset, told = dataset_of(tmp_path / "sound", a=[BIRD, INSECT]), list[str]()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        restrict_to_band(dataset, FRONT_END, tell=told.append)
    assert told == [f"{dataset.root}: {band_warning(dataset.annotations.events, FRONT_END, 'boxes')}"]
