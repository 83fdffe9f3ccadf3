"""A model searches a dataset: one table of all recordings, at its own threshold and below."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import pandas as pd
import pytest
from spread_scores import spread_scores
from toy_calibration import stored_calibration
from toy_recipe import FRONT_END, save_small_detector

from mast.data.recordings import Dataset, load_dataset
from mast.detect_options import DetectOptions
from mast.errors import MastError
from mast.inference import Detector
from mast.models.checkpoint import load_checkpoint, save_checkpoint
from mast.models.mast_detector import MastDetector
from mast.probability import Calibration
from mast_studies import whole_recordings
from mast_studies.whole_recordings import SearchResult, detect_whole, search, search_twice

OWN, LOW = 0.8123456, 0.5  # raw scores
PLATT = Calibration(method="platt", slope=1.7, intercept=-0.3)
CPU = DetectOptions(device="cpu")


def saved(folder: Path, score: float) -> Path:
    """A calibrated model that was never trained; always the same one, but for its threshold."""
    stored = stored_calibration(PLATT, least_score=0.02)
    model = load_checkpoint(save_small_detector(folder, score=score))
    assert isinstance(model.model, MastDetector)
    spread_scores(model.model)
    save_checkpoint(folder, model.model, model.card.model_copy(update={"calibration": stored}))
    return folder


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return saved(tmp_path / "own", OWN)


@pytest.fixture
def low(tmp_path: Path) -> Path:
    return saved(tmp_path / "low", LOW)


@pytest.fixture
def dataset(tones: Path) -> Dataset:
    return load_dataset(tones)


def one_by_one(model: Path, dataset: Dataset, files: Iterable[str], options: DetectOptions) -> pd.DataFrame:
    """The slow way: a detector for each recording."""
    tables = [Detector(model, options).detect(dataset.path(file)) for file in files]
    return pd.concat(tables, ignore_index=True)


def test_all_recordings_or_some_in_the_order_given_are_one_table(own: Path, dataset: Dataset) -> None:
    files = list(dataset.recordings["file"])
    expected = one_by_one(own, dataset, files, CPU)
    assert expected["recording"].nunique() > 4
    pd.testing.assert_frame_equal(search(Detector(own, CPU), dataset), expected)
    some = [files[5], files[7], files[1]]
    pd.testing.assert_frame_equal(
        search(Detector(own, CPU), dataset, some), one_by_one(own, dataset, some, CPU)
    )


def test_a_recording_that_cannot_be_read_is_refused(own: Path, tones: Path, tmp_path: Path) -> None:
    shutil.copytree(tones, tmp_path / "tones")
    dataset = load_dataset(tmp_path / "tones")
    broken = dataset.path(str(dataset.recordings["file"].iloc[2]))
    broken.write_bytes(b"no sound")
    with pytest.raises(MastError, match=broken.name):
        search(Detector(own, CPU), dataset)


@pytest.mark.parametrize("band_hz", [None, 2_000.0])
def test_a_model_searches_at_its_own_threshold_and_below(
    own: Path, low: Path, dataset: Dataset, band_hz: float | None
) -> None:
    files = list(dataset.recordings["file"][4:])
    options = CPU.model_copy(update={"band_hz": band_hz})
    found = search_twice(own, dataset, files, floor=LOW, options=options)
    pd.testing.assert_frame_equal(found.events, one_by_one(own, dataset, files, options))
    pd.testing.assert_frame_equal(found.scored, one_by_one(low, dataset, files, options))
    assert 0 < len(found.events) < len(found.scored)
    assert found.threshold == float(PLATT.apply(OWN))


def test_lower_scores_lie_beside_what_the_model_gives(own: Path, low: Path, dataset: Dataset) -> None:
    heard = dataset.annotations.reviewed.iloc[[5, 7, 1]].reset_index(drop=True)
    files = list(heard["recording"])
    part = detect_whole(own, dataset, heard, FRONT_END, floor=LOW)
    given = one_by_one(own, dataset, files, DetectOptions())
    every = one_by_one(low, dataset, files, DetectOptions())
    assert part.threshold == min(float(PLATT.apply(OWN)), given["score"].min())
    lower = every[every["score"] < part.threshold]
    assert 0 < len(given) < len(lower)
    pd.testing.assert_frame_equal(part.found, pd.concat([given, lower], ignore_index=True))
    pd.testing.assert_frame_equal(part.above_threshold, given)
    boxes = dataset.annotations.events
    pd.testing.assert_frame_equal(part.truth, boxes[boxes["recording"].isin(files)].reset_index(drop=True))
    assert part.front_end == FRONT_END
    pd.testing.assert_frame_equal(part.heard, heard)


def test_an_event_at_the_threshold_is_there_once(
    dataset: Dataset, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scores of events are rounded, the threshold is not: here it is above the event that just reached it."""
    scored = dataset.annotations.events.head(3).assign(score=[0.599999, 0.6, 0.9])
    monkeypatch.setattr(
        whole_recordings, "search_twice", lambda *_, **__: SearchResult(scored[1:], scored, 0.6000004)
    )
    part = detect_whole(own, dataset, dataset.annotations.reviewed, FRONT_END, floor=LOW)
    assert part.threshold == 0.6
    assert list(part.found["score"]) == [0.6, 0.9, 0.599999]
