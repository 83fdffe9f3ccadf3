from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from toy_recipe import FRONT_END, save_small_detector

from mast.data.recordings import Dataset
from mast.detect_options import DetectOptions
from mast.errors import ConfigError
from mast.events import BOX_COLUMNS, as_events
from mast.grid import FrontEnd
from mast.models.card import load_card
from mast_studies import zero_shot
from mast_studies.whole_recordings import SearchResult
from mast_studies.zero_shot import _busiest_start, boxes_of_tool, events_table, measure_tool
from mast_studies.zero_shot_measure import diagnose, difference, measure_thresholds
from mast_studies.zero_shot_sets import LabelledSet, half_of, load_set, parse_pairs, write_variant
from mast_studies.zero_shot_tools import TOOLS, Tool, find_boxes

NAMES = [f"{letter}.wav" for letter in "abcdefg"]


def named(tones: Path, folder: Path) -> Path:
    """The tones as a dataset of another name."""
    shutil.copytree(tones, folder)
    return folder


@pytest.fixture
def own(tones: Path, tmp_path: Path) -> LabelledSet:
    return load_set(named(tones, tmp_path / "tones"))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save_small_detector(tmp_path / "model", score=0.4)


def test_halves_are_disjoint_complete_and_fixed() -> None:
    first, second = half_of(NAMES, "first"), half_of(NAMES, "second")
    assert len(first) == 4
    assert sorted(first + second) == NAMES
    assert half_of(NAMES[::-1], "first") == first[::-1]  # by name, in the order given
    assert half_of(NAMES, "both") == NAMES
    assert half_of([], "first") == []
    # the split must never move: what was unseen has to stay unseen
    assert half_of(["XC1.flac", "XC2.flac", "XC3.flac", "XC4.flac"], "first") == FIXED_HALF
    with pytest.raises(ConfigError, match="expected one of first, second, both"):
        half_of(NAMES, "third")


FIXED_HALF = ["XC2.flac", "XC3.flac"]


def test_a_halved_set_is_not_read_by_accident(tones: Path, tmp_path: Path) -> None:
    folder = named(tones, tmp_path / "nbm_xc")
    with pytest.raises(ConfigError, match="is measured in halves; give --half nbm_xc=first"):
        load_set(folder)
    first = load_set(folder, halves={"nbm_xc": "first"})
    second = load_set(folder, halves={"nbm_xc": "second"})
    assert not set(first.dataset.recordings["file"]) & set(second.dataset.recordings["file"])
    assert len(first.dataset) + len(second.dataset) == 8
    assert set(first.truth["recording"]) <= set(first.dataset.recordings["file"])
    assert first.about()["part"] == "all recordings, first half"


def test_only_the_part_that_nothing_learnt_from_is_measured(tones: Path, tmp_path: Path) -> None:
    folder = named(tones, tmp_path / "birdeep_am1")
    listing = pd.read_csv(folder / "recordings.csv")
    listing["split"] = ["train"] * 5 + ["temporal_ood"] * 3
    listing.to_csv(folder / "recordings.csv", index=False)
    found = load_set(folder, bands_hz={"birdeep_am1": 4_000.0}, max_recordings=2)
    assert list(found.dataset.recordings["file"]) == list(listing["file"][5:7])
    assert found.front_end == FrontEnd.for_band(4_000)


def test_pairs() -> None:
    assert parse_pairs(["a=1", "b=x=y"]) == [("a", "1"), ("b", "x=y")]
    with pytest.raises(ConfigError, match="expected NAME=VALUE"):
        parse_pairs(["a"])


def test_a_variant_has_the_same_weights_and_another_band(model: Path, tmp_path: Path) -> None:
    before = load_card(model)
    copy = write_variant(model, tmp_path / "copy", band_hz=2_000, threshold=0.02)
    card = load_card(copy)
    assert card.weights_sha256 == before.weights_sha256
    assert card.front_end.sample_rate == 4_000
    assert card.front_end.chunk_s == pytest.approx(4 * FRONT_END.chunk_s)
    assert card.thresholds == {"score": 0.02, "nms_iou": 0.5}
    assert load_card(model) == before
    assert load_card(write_variant(model, tmp_path / "copy")) == before  # replaced


# the tools


def tone(rate: int, hz: float, start_s: float, end_s: float, duration_s: float = 6.0) -> np.ndarray:
    rng = np.random.default_rng(0)
    time_s = np.arange(int(duration_s * rate)) / rate
    sound = rng.normal(0, 0.002, len(time_s))
    sound += 0.3 * np.sin(2 * np.pi * hz * time_s) * ((time_s >= start_s) & (time_s < end_s))
    return sound.astype(np.float32)


def tool(name: str) -> Tool:
    return next(one for one in TOOLS if one.name == name)


def test_the_plain_threshold_boxes_a_tone() -> None:
    plain = tool("threshold on log-mel")
    boxes = find_boxes(plain, tone(16_000, 2_000, 2.0, 3.0), 16_000, {**plain.published, "percentile": 99.5})
    start, low, end, high = boxes[np.argmax(boxes[:, 2] - boxes[:, 0])]
    assert (start, end) == pytest.approx((2.0, 3.0), abs=0.06)
    assert low < 2_000 < high < 2_500


def test_played_faster_is_the_same_sound_at_a_higher_rate() -> None:
    """What is found at four times the speed lies four times later and lower, in the recording's own time."""
    plain = tool("threshold on log-mel")
    sound = tone(4_000, 500, 4.0, 8.0, duration_s=24.0)
    fast = find_boxes(plain, sound, 4_000, {**plain.published, "speed": 4.0})
    expected = find_boxes(plain, sound, 16_000, plain.published)
    assert len(fast)
    assert fast == pytest.approx(expected * np.array([4, 0.25, 4, 0.25]))


def test_too_short_or_silent_sound_holds_nothing() -> None:
    plain = tool("threshold on log-mel")
    for sound in (np.zeros(0, np.float32), np.zeros(100, np.float32), np.zeros(16_000, np.float32)):
        assert find_boxes(plain, sound, 16_000, plain.published).shape == (0, 4)


def test_what_is_not_a_box_is_dropped() -> None:
    nonsense = np.array([[0, 1, np.nan, 2], [1, 5, 1, 9], [2, 7, 3, 7], [0, 100, 1, 200]])
    odd = Tool("odd", {}, {}, lambda sound, rate, settings: nonsense)
    assert find_boxes(odd, np.ones(10, np.float32), 8, {}).tolist() == [[0, 100, 1, 200]]


def test_published_settings_come_first_and_none_twice() -> None:
    for one in TOOLS:
        tried = one.settings(speeds=(1.0, 4.0))
        assert tried[0] == {**one.published, "speed": 1.0}
        assert len({repr(sorted(settings.items())) for settings in tried}) == len(tried)
        assert {settings["speed"] for settings in tried} == {1.0, 4.0}


def test_a_tool_that_is_not_installed_says_so() -> None:
    absent = Tool("absent", {}, {}, lambda *_: np.empty((0, 4)), package="no-such-package")
    assert "pip install no-such-package" in absent.missing
    assert tool("threshold on log-mel").missing == ""


@pytest.mark.parametrize("one", TOOLS, ids=lambda one: one.name)
def test_every_tool_finds_a_loud_tone(one: Tool) -> None:
    if one.missing:
        pytest.skip(one.missing)
    boxes = find_boxes(one, tone(16_000, 2_000, 4.0, 5.0, duration_s=10.0), 16_000, one.published)
    hit = (boxes[:, 0] < 4.8) & (boxes[:, 2] > 4.2) & (boxes[:, 1] < 2_100) & (boxes[:, 3] > 1_900)
    assert hit.any()


def test_what_a_tool_found_is_kept(own: LabelledSet, tmp_path: Path) -> None:
    calls = []

    def find(sound: np.ndarray, rate: int, settings: object) -> np.ndarray:
        calls.append(len(sound))
        return np.array([[0.5, 1_000.0, 1.0, 2_000.0]])

    one = Tool("counting", {"a": 1}, {"a": [1, 2]}, find)
    first = boxes_of_tool(own, one, {"a": 1}, tmp_path)
    again = boxes_of_tool(own, one, {"a": 1}, tmp_path)
    assert len(calls) == 8
    pd.testing.assert_frame_equal(first, again)
    boxes_of_tool(own, one, {"a": 2}, tmp_path)
    assert len(calls) == 16


def test_the_best_settings_are_those_of_this_set(own: LabelledSet, tmp_path: Path) -> None:
    truth = own.truth[own.truth["recording"] == own.dataset.recordings["file"].iloc[0]]
    right = truth[BOX_COLUMNS].to_numpy(dtype=np.float64)[:, [0, 1, 2, 3]]
    columns = [BOX_COLUMNS.index(name) for name in ("start_s", "low_hz", "end_s", "high_hz")]
    right = right[:, columns]
    nothing = np.empty((0, 4))
    picky = Tool("picky", {"a": 0}, {"a": [0, 1]}, lambda s, r, settings: right if settings["a"] else nothing)
    rows, best = measure_tool(own, picky, tmp_path, published_only=False)
    assert rows["published settings"]["recall"] == 0
    assert rows["best on this set"]["settings"] == {"a": 1, "speed": 1.0}
    assert rows["best on this set"]["recall"] > 0
    assert "ap50" not in rows["best on this set"]  # no scores, no curve
    assert len(best) == 8 * len(right)


# measuring


def events(rows: list[tuple[float, float, float, float]], name: str, score: float = 1.0) -> pd.DataFrame:
    table = pd.DataFrame(rows, columns=["start_s", "end_s", "low_hz", "high_hz"])
    return as_events(table.assign(recording=name, score=score))


def test_perfect_and_empty_detections(own: LabelledSet) -> None:
    perfect = own.truth.assign(score=0.9)
    rows = measure_thresholds(own, SearchResult(perfect, perfect, 0.5000004), resamples=20)
    assert rows["own threshold"]["threshold"] == 0.5
    assert rows["own threshold"]["f1"] == rows["best on this set"]["f1"] == 1
    assert rows["diagnosis"] == {
        "f1_iou30": 1,
        "missed": 0,
        "split": 0,
        "stray": 0,
        "merging": 0,
        "longer": 1,
        "taller": 1,
    }
    nothing = events_table({})
    rows = measure_thresholds(own, SearchResult(nothing, nothing, 0.5), resamples=20)
    assert rows["best on this set"]["recall"] == 0
    assert rows["diagnosis"]["missed"] == 1
    assert rows["diagnosis"]["longer"] is None
    assert difference(own, nothing, perfect)["difference"] == 1


def test_diagnosis_by_hand(own: LabelledSet) -> None:
    """One call cut in two, two calls in one box, one stray, the rest missed."""
    name = str(own.dataset.recordings["file"].iloc[0])
    truth = own.truth[own.truth["recording"] == name].sort_values("start_s")
    first, second, third = (truth.iloc[i] for i in range(3))
    middle = (first["start_s"] + first["end_s"]) / 2
    band = (first["low_hz"], first["high_hz"])
    low = min(second["low_hz"], third["low_hz"])
    high = max(second["high_hz"], third["high_hz"])
    found = events(
        [
            (first["start_s"], middle, *band),
            (middle, first["end_s"], *band),
            (second["start_s"], third["end_s"], low, high),
            (10.2, 10.6, 100.0, 200.0),
        ],
        name,
    )
    result = diagnose(own, found)
    n_truth = len(own.truth)
    assert result["split"] == pytest.approx(1 / n_truth, abs=1e-4)
    assert result["merging"] == 0.25
    assert result["stray"] == 0.25
    assert result["missed"] == pytest.approx((n_truth - 3) / n_truth, abs=1e-4)


def test_the_busiest_span() -> None:
    assert _busiest_start(np.array([]), 10.0) == 0
    assert _busiest_start(np.array([1.0, 30.0, 31.0, 32.0]), 10.0) == pytest.approx(29.8)
    assert _busiest_start(np.array([0.1]), 10.0) == 0  # never before the recording


def test_the_whole_command(
    tones: Path,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data, out = named(tones, tmp_path / "tones"), tmp_path / "zero_shot.json"
    words = ["zero_shot.py", "--model", model, "--data", data, "--work", tmp_path / "work", "--out", out]
    words += [
        "--thorough",
        "--tools",
        "none",
        "--recordings",
        "2",
        "--device",
        "cpu",
        "--pictures",
        tmp_path / "pictures",
    ]
    monkeypatch.setattr(sys, "argv", [str(word) for word in words])
    zero_shot.main()
    result = pd.read_json(out, typ="series")
    system = result["figures"]["sets"]["tones"]["systems"]["mast"]
    assert set(system) >= {"own threshold", "best on this set", "diagnosis"}
    assert system["best on this set"]["f1"] >= (system["own threshold"]["f1"] or 0.0)
    assert result["data"]["tones"]["recordings"] == 2
    assert "| mast | best on this set |" in capsys.readouterr().out
    assert len(list((tmp_path / "pictures").glob("*.png"))) == 2


def test_a_thorough_search_is_measured_beside_the_plain_one(
    own: LabelledSet, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def search(model: Path, dataset: Dataset, *, options: DetectOptions) -> SearchResult:
        """All calls where the search is thorough, else half of them."""
        calls = own.truth.assign(score=0.6)
        found = calls if options.thorough else calls.iloc[::2]
        return SearchResult(found, found, 0.5)

    monkeypatch.setattr(zero_shot, "search_twice", search)
    options = argparse.Namespace(model=model, device="cpu", thorough=True, tools="none", pictures=None)
    result = zero_shot.measure_set(own, options)
    assert result["systems"]["mast --thorough"]["own threshold"]["f1"] == 1.0
    plain = result["systems"]["mast"]["own threshold"]["f1"]
    assert plain < 1.0
    gain = result["f1_of_thorough_minus_model"]
    assert gain["difference"] == pytest.approx(1.0 - plain, abs=1e-4)
    assert "f1_of_model_minus_best_of" not in result  # there is no tool beside it
