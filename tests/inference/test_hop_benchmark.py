"""The benchmark of hops runs from end to end, and counts what it says."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks import bench_hop
from mast.data import load_dataset
from mast.detect_options import DetectOptions
from mast.inference import Detector, Searched, Source
from mast.inference.pieces import Piece


def test_each_hop_is_measured_and_compared_with_the_first(model: Path, tones: Path, tmp_path: Path) -> None:
    out = tmp_path / "hop.json"
    arguments = ["--model", str(model), "--data", str(tones), "--device", "cpu", "--out", str(out)]
    figures = bench_hop.main(
        [*arguments, "--hops", "0.5", "1", "--threshold", "0.6", "--floor", "0.5", "--resamples", "20"]
    )
    assert json.loads(out.read_text())["figures"] == figures
    assert figures["recordings"] == 8
    assert figures["hours"] == pytest.approx(88 / 3600)
    half, whole = figures["hops"]["0.5"], figures["hops"]["1"]
    for values in (half, whole):
        assert values["n_truth"] == 42
        assert values["n_predictions"] > 0
        assert 0 <= values["f1"] <= 1
        assert 0 <= values["ap50"] <= 1
        assert values["times_real_time"] > 0
    assert "difference" not in half
    change = whole["difference"]["recall"]
    assert change["a"] == half["recall"]
    # windows that start elsewhere see other pictures: the hop reached the search itself
    assert half["n_predictions"] != whole["n_predictions"]
    assert change["b"] == whole["recall"]


@pytest.mark.parametrize("hop", [0.5, 0.75, 1.0])
def test_windows_are_counted_as_they_are_searched(model: Path, tones: Path, hop: float) -> None:
    detector = Detector(model, DetectOptions(device="cpu", hop=hop))
    dataset = load_dataset(tones)
    sources = [Source(dataset.path(name), name) for name in map(str, dataset.recordings["file"])]
    searched = sum(len(piece.sound) for piece in detector._reader(sources) if isinstance(piece, Piece))
    assert bench_hop.count_windows(detector, dataset) == searched


def test_a_detector_that_hears_everything_at_one_hop_and_half_at_another(
    model: Path, tones: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = load_dataset(tones).annotations.events.assign(score=0.9)

    def outcomes(self: Detector, sources: list[Source]) -> Iterator[Searched]:
        for source in sources:
            events = truth[truth["recording"] == source.recording]
            yield Searched(source, events if self.options.hop == 0.5 else events.iloc[::2])

    monkeypatch.setattr(Detector, "outcomes", outcomes)
    arguments = ["--model", str(model), "--data", str(tones), "--device", "cpu", "--resamples", "20"]
    hops = bench_hop.main([*arguments, "--hops", "0.5", "1"])["hops"]
    assert [hops["0.5"][name] for name in ("f1", "precision", "recall", "ap50")] == pytest.approx(
        [1, 1, 1, 1]
    )
    assert [hops["1"][name] for name in ("precision", "recall")] == pytest.approx([1, 0.5])
    change = hops["1"]["difference"]["recall"]
    assert (change["a"], change["b"], change["difference"]) == pytest.approx((1, 0.5, -0.5))
