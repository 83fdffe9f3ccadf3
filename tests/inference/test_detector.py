"""A detector on whole recordings."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import soundfile as sf
import torch
from random_detector import FRONT_END, save_detector, write_sound

import mast
from mast.errors import AudioError, ConfigError, MastError
from mast.events import EVENT_COLUMNS
from mast.inference import Boxes, Detector, Source
from mast.inference.prefetch import prefetch
from mast.models.checkpoint import ModelCard, NormalisationStatistics, save_checkpoint
from mast.models.encoder import EncoderConfig
from mast.models.mae import MaeConfig, MaskedAutoencoder

RATE = FRONT_END.sample_rate


@pytest.fixture(scope="module")
def detector(model: Path) -> Detector:
    return mast.load(model, device="cpu")


def test_events_follow_the_schema_with_clock_and_site(detector: Detector, tmp_path: Path) -> None:
    path = write_sound(tmp_path / "OAK_20230510_235958.wav", 7.3)
    events = detector.detect(path)
    assert list(events.columns) == list(EVENT_COLUMNS)
    assert len(events) > 5
    assert set(events["recording"]) == {path.name}
    assert set(events["site"]) == {"OAK"}
    assert set(events["source"]) == {"detector"}
    assert set(events["model"]) == {f"mast-{detector.card.weights_sha256[:12]}"}
    assert events["start_s"].is_monotonic_increasing
    assert (events["start_s"] >= 0).all()
    assert (events["end_s"] <= 7.3).all()
    assert (events["score"] >= 0.3).all()
    start = pd.Timestamp("2023-05-10T23:59:58")
    expected = [
        (start + pd.Timedelta(seconds=s)).isoformat(timespec="milliseconds") for s in events["start_s"]
    ]
    # both cut to the millisecond from microseconds, so one may be a step off
    assert (
        pd.to_datetime(events["datetime"]) - pd.to_datetime(pd.Series(expected))
    ).abs().max() <= pd.Timedelta("1ms")
    assert any(text.startswith("2023-05-11T00:00:0") for text in events["datetime"])


def test_batches_and_neighbours_change_nothing(detector: Detector, model: Path, tmp_path: Path) -> None:
    paths = [write_sound(tmp_path / f"{i}.wav", 3 + 2.1 * i, seed=i) for i in range(4)]
    for path, events in zip(paths, detector.stream(paths), strict=True):
        pd.testing.assert_frame_equal(events, detector.detect(path))
        singly = mast.load(model, device="cpu", batch_size=1).detect(path)  # other rounding in the products
        boxes = ["start_s", "end_s", "low_hz", "high_hz", "score"]
        pd.testing.assert_frame_equal(events[boxes], singly[boxes], atol=0.01, rtol=1e-4)


class Ear:
    """Stands for the model: hears every sound above silence, exactly, in one band."""

    def __call__(self, sound: torch.Tensor) -> list[Boxes]:
        found = []
        for row in sound.numpy():
            loud = np.abs(row).reshape(-1, FRONT_END.hop_samples).max(axis=1) > 0.2
            steps = np.flatnonzero(np.diff(np.concatenate([[0], loud, [0]])))
            spans = steps.reshape(-1, 2).astype(np.float64)
            boxes = np.stack(
                [spans[:, 0], np.full(len(spans), 9.0), spans[:, 1], np.full(len(spans), 20.0)], 1
            )
            found.append(Boxes(boxes, np.full(len(spans), 0.9)))
        return found


@pytest.mark.parametrize("hop", [0.5, 0.75, 1.0])
@pytest.mark.parametrize("offset_s", [0.0, 0.4, 1.7])
def test_the_same_events_wherever_the_windows_begin(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hop: float, offset_s: float
) -> None:
    rng = np.random.default_rng(3)
    spans, t = [], 2.0
    while t < 55:
        length = rng.uniform(3, 8) if len(spans) % 7 == 3 else rng.uniform(0.05, 1.5)
        spans.append((t, t + length))
        t += length + rng.uniform(0.1, 0.8)
    sound = np.zeros(round(65.1 * RATE))
    for a, b in spans:
        n = round(b * RATE) - round(a * RATE)
        sound[round(a * RATE) : round(b * RATE)] = 0.5 * np.sign(np.sin(np.arange(n) * 0.9))
    sf.write(tmp_path / "long.wav", sound[round(offset_s * RATE) :], RATE)
    detector = mast.load(model, device="cpu", hop=hop)
    monkeypatch.setattr(detector, "_boxes", Ear())
    events = detector.detect(tmp_path / "long.wav")
    found = events[["start_s", "end_s"]].to_numpy() + offset_s
    assert found.shape == (len(spans), 2)
    assert np.abs(found - np.array(spans)).max() <= FRONT_END.hop_s + 1e-6
    assert np.allclose(events["low_hz"], FRONT_END.bins_to_hz(9), atol=1e-3)


def test_nothing_is_found_in_the_padding(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_sound(tmp_path / "short.wav", 0.8)  # less than half a window
    detector = mast.load(model, device="cpu")
    boxes = np.array([[10.0, 2, 20, 9], [60, 2, 200, 9], [80.5, 2, 120, 9]])  # valid up to cell 80
    monkeypatch.setattr(detector, "_boxes", lambda sound: [Boxes(boxes.copy(), np.full(3, 0.5))])
    events = detector.detect(tmp_path / "short.wav")
    assert events[["start_s", "end_s"]].to_numpy().tolist() == [[0.1, 0.2], [0.6, 0.8]]


def test_nothing_above_the_recordings_own_nyquist(detector: Detector, tmp_path: Path) -> None:
    events = detector.detect(write_sound(tmp_path / "slow.wav", 6, rate=6_000))
    assert len(events)
    assert events["high_hz"].max() <= 3_000
    assert (events["low_hz"] < events["high_hz"]).all()


def test_an_unreadable_recording_raises_or_is_an_outcome(detector: Detector, tmp_path: Path) -> None:
    good = write_sound(tmp_path / "good.wav", 3)
    (tmp_path / "bad.wav").write_text("no sound")
    sf.write(tmp_path / "empty.wav", np.zeros(0), RATE)
    with pytest.raises(AudioError, match=r"bad\.wav"):
        detector.detect(tmp_path / "bad.wav")
    names = ["bad.wav", "good.wav", "empty.wav", "good.wav"]
    outcomes = list(detector.outcomes(Source(tmp_path / name, name) for name in names))
    assert [bool(outcome.error) for outcome in outcomes] == [True, False, True, False]
    assert "holds no sound" in outcomes[2].error
    pd.testing.assert_frame_equal(outcomes[1].events, outcomes[3].events)
    pd.testing.assert_frame_equal(outcomes[1].events, detector.detect(good))


def test_a_damaged_recording_is_searched_as_far_as_it_goes(detector: Detector, tmp_path: Path) -> None:
    cut = write_sound(tmp_path / "cut.wav", 6)
    cut.write_bytes(cut.read_bytes()[: 44 + 2 * 4 * RATE])
    (outcome,) = detector.outcomes([Source(cut, "cut.wav")])
    assert outcome.damage
    assert outcome.duration_s == pytest.approx(4, abs=0.01)
    assert len(outcome.events)


def test_progress_counts_every_second_once(detector: Detector, tmp_path: Path) -> None:
    heard: list[float] = []
    sources = [Source(write_sound(tmp_path / f"{i}.wav", 11 + i), f"{i}.wav") for i in range(2)]
    list(detector.outcomes(sources, progress=heard.append))
    assert sum(heard) == pytest.approx(23)


def test_names_relative_to_a_root(detector: Detector, tmp_path: Path) -> None:
    path = write_sound(tmp_path / "ELM" / "073000.wav", 3)
    events = detector.detect(path, root=tmp_path)
    assert set(events["recording"]) == {"ELM/073000.wav"}
    assert set(events["site"]) == {"ELM"}
    with pytest.raises(AudioError, match="does not lie in"):
        detector.detect(path, root=tmp_path / "OAK")


def test_stopping_early_stops_the_thread(detector: Detector, tmp_path: Path) -> None:
    paths = [write_sound(tmp_path / f"{i}.wav", 6) for i in range(3)]
    stream = detector.stream(paths)
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert not any(thread.name == "prefetch" for thread in threading.enumerate())


def test_prefetch_keeps_order_and_passes_errors_on() -> None:
    def items() -> Iterator[int]:
        yield from range(50)
        raise ValueError("fifty")

    seen: list[int] = []
    with pytest.raises(ValueError, match="fifty"):
        seen.extend(prefetch(items(), depth=3))
    assert seen == list(range(50))
    assert list(prefetch(iter([]))) == []


def test_mistakes_are_one_sentence(model: Path, tmp_path: Path) -> None:
    with pytest.raises(MastError, match="no model ships"):
        mast.load("default")
    with pytest.raises(MastError, match="no such folder"):
        mast.load(tmp_path / "none")
    with pytest.raises(MastError, match="holds no trained model"):
        mast.load(tmp_path)
    for wrong in ({"hop": 0.0}, {"hop": 1.5}, {"threshold": 2.0}, {"batch_size": 0}, {"device": "toaster"}):
        with pytest.raises(ConfigError):
            mast.load(model, **({"device": "cpu"} | wrong))  # type: ignore[arg-type]
    encoder = MaeConfig(encoder=EncoderConfig(chunk_frames=64, n_bins=32, width=32, depth=1, heads=2))
    card = ModelCard(kind="mae", architecture=encoder, normalisation=NormalisationStatistics(mean=0, std=1))
    save_checkpoint(tmp_path / "mae", MaskedAutoencoder(encoder), card)
    with pytest.raises(MastError, match="not a detector"):
        mast.load(tmp_path / "mae")


def test_settings_change_with_all_that_changes_events(model: Path, tmp_path: Path) -> None:
    def settings(folder: Path = model, **options: float) -> dict[str, str | float]:
        return Detector(folder, device="cpu", **options).settings  # type: ignore[arg-type]

    assert settings() == settings(batch_size=3)
    assert settings() != settings(hop=0.75)
    assert settings() != settings(threshold=0.31)
    assert settings() != settings(save_detector(tmp_path / "other", seed=1))


def test_import_mast_imports_no_torch() -> None:
    code = "import sys, mast; mast.load; sys.exit('torch' in sys.modules or 'pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
