"""A detector on whole recordings."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import soundfile as sf
import torch
from random_detector import FRONT_END, save_detector, write_sound

import mast
from mast.annotations.redraw import redraw
from mast.arrays import Samples
from mast.detect_options import DetectOptions
from mast.errors import AudioError, ConfigError, MastError
from mast.events import EVENT_COLUMNS, boxes_of, pairwise_iom, pairwise_iou
from mast.grid import FrontEnd, events_to_cells
from mast.habit import Habit
from mast.inference import Detector, Source
from mast.inference.speed_passes import Events, combine_speeds
from mast.inference.stitch import ScoredBoxes
from mast.models.architecture import DetectorConfig, EncoderConfig, MaeConfig
from mast.models.card import ModelCard
from mast.models.checkpoint import load_checkpoint, save_checkpoint
from mast.models.mae import MaskedAutoencoder
from mast.models.mast_detector import MastDetector
from mast.normalisation import Normalisation

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


def test_another_band_is_the_same_sound_at_another_speed(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mast.inference.torch_network.has_bfloat16", lambda device: False)
    fast = write_sound(tmp_path / "fast.wav", 7.3)
    samples, _ = sf.read(fast, dtype="int16")
    slow = tmp_path / "slow.wav"
    sf.write(slow, samples, RATE // 4)  # the tape at a quarter of the speed
    own = mast.load(model, device="cpu")
    other = mast.load(model, device="cpu", band_hz=own.card.front_end.high_hz / 4)
    expected, found = own.detect(fast), other.detect(slow)
    assert len(found) > 5
    for columns, factor in ((["start_s", "end_s"], 4), (["low_hz", "high_hz"], 1 / 4), (["score"], 1)):
        np.testing.assert_allclose(found[columns], expected[columns] * factor, rtol=1e-3, atol=1e-2)
    assert other.settings != own.settings  # never mixed in one folder


def test_a_band_has_an_edge_in_hertz_or_the_name_of_animals(model: Path) -> None:
    fish, same = (mast.load(model, device="cpu", band_hz=band) for band in ("fish", 2_000))
    assert fish.settings == same.settings
    for wrong in (0, "bat", float("nan")):
        with pytest.raises(
            ConfigError, match=f"^'{wrong}' is not a band; expected fish .* or a number of hertz"
        ):
            mast.load(model, device="cpu", band_hz=wrong)  # type: ignore[arg-type]


def test_a_wrong_value_is_one_sentence() -> None:
    for wrong, told in (
        ({"threshold": "high"}, "mast.load: threshold is 'high': input should be a valid number"),
        ({"box": "loudest"}, "mast.load: box is 'loudest': input should be 'all' or 'strongest'"),
    ):
        with pytest.raises(ConfigError, match=f"^{told}[^\n]*$"):
            mast.load(**wrong)  # type: ignore[arg-type]


def test_batches_and_neighbours_change_nothing(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # in bfloat16 products of another size round so much otherwise that neighbours swap places
    monkeypatch.setattr("mast.inference.torch_network.has_bfloat16", lambda device: False)
    detector = mast.load(model, device="cpu")
    paths = [write_sound(tmp_path / f"{i}.wav", 3 + 2.1 * i, seed=i) for i in range(4)]
    for path, events in zip(paths, detector.stream(paths), strict=True):
        pd.testing.assert_frame_equal(events, detector.detect(path))
        singly = mast.load(model, device="cpu", batch_size=1).detect(path)  # other rounding in the products
        boxes = ["start_s", "end_s", "low_hz", "high_hz", "score"]
        pd.testing.assert_frame_equal(events[boxes], singly[boxes], atol=0.01, rtol=1e-4)


class Ear:
    """Stands for the network: hears every sound above silence, exactly, in one band."""

    def __call__(self, sounds: Sequence[Samples], min_score: float) -> list[ScoredBoxes]:
        found = []
        for row in np.concatenate(sounds):
            loud = np.abs(row).reshape(-1, FRONT_END.hop_samples).max(axis=1) > 0.2
            steps = np.flatnonzero(np.diff(np.concatenate([[0], loud, [0]])))
            spans = steps.reshape(-1, 2).astype(np.float64)
            boxes = np.stack(
                [spans[:, 0], np.full(len(spans), 9.0), spans[:, 1], np.full(len(spans), 20.0)], 1
            )
            found.append(ScoredBoxes(boxes, np.full(len(spans), 0.9)))
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
    monkeypatch.setattr(detector.network, "boxes", Ear())
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
    found = [ScoredBoxes(boxes, np.full(3, 0.5))]
    monkeypatch.setattr(detector.network, "boxes", lambda sounds, min_score: found)
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


def test_a_thorough_search_is_three_searches_whose_boxes_are_fused(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mast.inference.torch_network.has_bfloat16", lambda device: False)
    path = write_sound(tmp_path / "one.wav", 9, rate=32_000)  # boxes end at the bands, not at half the rate
    thorough = mast.load(model, device="cpu", thorough=True)
    front_end = thorough.card.front_end
    bands = [front_end.at_band(front_end.high_hz * speed) for speed in (1.0, 0.88, 1.13)]
    at_each = [
        mast.load(model, device="cpu", threshold=0.01, band_hz=band.high_hz).detect(path) for band in bands
    ]
    boxes, scores, _ = combine_speeds(
        [Events(boxes_of(events), events["score"].to_numpy(float)) for events in at_each], bands
    )
    cells, alone = events_to_cells(boxes, front_end), np.zeros(len(boxes), dtype=bool)
    for k in np.argsort(-scores, kind="stable"):  # two that overlap by half are one
        alone[k] = not (pairwise_iou(cells[alone], cells[k][None]) > 0.5).any()
    boxes, scores = boxes[alone], scores[alone]
    found = thorough.detect(path)
    # tables are rounded, so what scores about as much as the threshold may fall on either side of it
    above = thorough.scores.threshold + 1e-3
    counted, reached = scores >= above, found["score"] >= above
    expected = boxes[counted][np.lexsort(boxes[counted].T[[3, 2, 1, 0]])]
    assert len(expected) > 5
    assert found["score"].min() >= thorough.scores.threshold
    np.testing.assert_allclose(boxes_of(found[reached]), expected, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(sorted(found["score"][reached]), sorted(scores[counted]), atol=1e-4)


def test_a_thorough_search_counts_every_second_once(model: Path, tmp_path: Path) -> None:
    heard: list[float] = []
    detector = mast.load(model, device="cpu", thorough=True)
    sources = [Source(write_sound(tmp_path / f"{i}.wav", 11 + i), f"{i}.wav") for i in range(2)]
    outcomes = list(detector.outcomes(sources, progress=heard.append))
    assert sum(heard) == pytest.approx(23, abs=0.01)
    assert [outcome.duration_s for outcome in outcomes] == [11.0, 12.0]


def test_names_relative_to_a_root(detector: Detector, tmp_path: Path) -> None:
    path = write_sound(tmp_path / "ELM" / "073000.wav", 3)
    events = detector.detect(path, root=tmp_path)
    assert set(events["recording"]) == {"ELM/073000.wav"}
    assert set(events["site"]) == {"ELM"}
    with pytest.raises(AudioError, match=r"073000\.wav: is not in .*OAK"):
        detector.detect(path, root=tmp_path / "OAK")


def test_a_stream_of_one_name_is_that_file_or_folder(detector: Detector, tmp_path: Path) -> None:
    """And not a stream of its letters."""
    folder = tmp_path / "archive"
    paths = [write_sound(folder / name, 3, seed=k) for k, name in enumerate(("b.wav", "ELM/073000.wav"))]
    for given in (paths[0], str(paths[0])):
        (events,) = detector.stream(given)
        pd.testing.assert_frame_equal(events, detector.detect(paths[0]))
    for given in (folder, str(folder)):
        found = list(detector.stream(given))
        expected = [detector.detect(path, root=folder) for path in sorted(paths)]
        assert all(len(events) for events in expected)
        for events, alone in zip(found, expected, strict=True):
            pd.testing.assert_frame_equal(events, alone)
    (tmp_path / "empty").mkdir()
    for path, told in (("empty", "no recordings found"), ("gone.wav", "no such file")):
        with pytest.raises(AudioError, match=rf"{path}: {told}"):
            list(detector.stream(tmp_path / path))


@pytest.mark.parametrize("several", [1, 3])
def test_stopping_early_stops_the_threads(model: Path, tmp_path: Path, several: int) -> None:
    detector = Detector(model, DetectOptions(device="cpu"))
    detector._reader = replace(detector._reader, n_parallel=several)
    paths = [write_sound(tmp_path / f"{i}.wav", 6) for i in range(5)]
    stream = detector.stream(paths)
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert not any(thread.name.startswith(("prefetch", "worker")) for thread in threading.enumerate())


def test_mistakes_are_one_sentence(model: Path, tmp_path: Path) -> None:
    with pytest.raises(MastError, match="no such folder"):
        mast.load(tmp_path / "none")
    with pytest.raises(MastError, match="holds no model"):
        mast.load(tmp_path)
    for wrong in ({"hop": 0.0}, {"hop": 1.5}, {"threshold": 2.0}, {"batch_size": 0}, {"device": "toaster"}):
        with pytest.raises(ConfigError):
            mast.load(model, **({"device": "cpu"} | wrong))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="run mast embed with --model on the results"):
        mast.load(model, thorough=True, embed=True)
    encoder = MaeConfig(encoder=EncoderConfig(chunk_frames=64, n_bins=32, width=32, depth=1, heads=2))
    card = ModelCard(
        kind="mae",
        architecture=encoder,
        front_end=FrontEnd(chunk_frames=64, n_bins=32),
        normalisation=Normalisation(mean=0, std=1),
    )
    save_checkpoint(tmp_path / "mae", MaskedAutoencoder(encoder), card)
    with pytest.raises(MastError, match="not a detector"):
        mast.load(tmp_path / "mae")


def test_settings_change_with_all_that_changes_events(model: Path, tmp_path: Path) -> None:
    def settings(folder: Path = model, **options: float) -> dict[str, str | float]:
        return Detector(folder, DetectOptions(device="cpu", **options)).settings  # type: ignore[arg-type]

    assert settings() == settings(batch_size=3)
    assert settings() != settings(hop=0.5)
    assert settings() != settings(thorough=True)
    assert settings() != settings(threshold=0.31)
    assert settings() != settings(embed=True)
    assert settings() != settings(save_detector(tmp_path / "other", seed=1))
    kept, card = load_checkpoint(model / "best")
    assert isinstance(card.architecture, DetectorConfig)
    decides = card.architecture.model_copy(update={"nested": 0.8})
    save_checkpoint(tmp_path / "decides", kept, card.model_copy(update={"architecture": decides}))
    assert settings() != settings(tmp_path / "decides")
    assert settings()["model"] == settings(tmp_path / "decides")["model"]  # the same weights


def test_no_event_lies_in_a_better_one_also_of_another_window(model: Path, tmp_path: Path) -> None:
    path = write_sound(tmp_path / "one.wav", 30)
    kept, card = load_checkpoint(model / "best")
    assert isinstance(kept, MastDetector)
    kept.config = kept.config.model_copy(update={"nested": 0.8})
    save_checkpoint(tmp_path / "decides", kept, card.model_copy(update={"architecture": kept.config}))
    detector = Detector(tmp_path / "decides", DetectOptions(device="cpu", embed=True))

    def nested() -> int:
        boxes = boxes_of(detector.detect(path)).copy()
        boxes[:, 1::2] = FRONT_END.hz_to_bins(boxes[:, 1::2])  # where the rule is applied
        return int((np.triu(pairwise_iom(boxes, boxes), 1) > 0.8 + 1e-4).sum())

    events, embeddings = detector.detect_and_embed(path)
    assert len(events) == len(embeddings) > 0
    assert nested() == 0
    detector._nested = 1.0  # within windows alone
    assert nested() > 0
    every, rows = detector.detect_and_embed(path)
    columns = ["start_s", "low_hz", "end_s", "high_hz", "score"]
    both = every.assign(row=range(len(every))).merge(events, on=columns)
    assert len(both) == len(events) < len(every)
    np.testing.assert_array_equal(rows[both["row"]], embeddings)


def test_embeddings_are_the_models_own_in_the_order_of_the_events(model: Path, tmp_path: Path) -> None:
    path = write_sound(tmp_path / "one.wav", FRONT_END.chunk_s)  # one window: no stitching
    detector = mast.load(model, device="cpu", embed=True)
    events, embeddings = detector.detect_and_embed(path)
    pd.testing.assert_frame_equal(events, mast.load(model, device="cpu").detect(path))
    assert len(events) > 5
    sound = torch.from_numpy(sf.read(path, dtype="float32")[0])[None]
    low = torch.autocast("cpu", dtype=torch.bfloat16, enabled=detector.precision == "bfloat16")
    with torch.inference_mode(), low:
        spectrogram = detector.card.normalisation.apply(detector.loaded_model._log_mel.chunk_features(sound))
        frames = events[["start_s", "end_s"]].to_numpy() / FRONT_END.hop_s
        bins = FRONT_END.hz_to_bins(events[["low_hz", "high_hz"]].to_numpy())
        boxes = np.stack([frames[:, 0], bins[:, 0], frames[:, 1], bins[:, 1]], axis=1)
        (expected,) = detector.loaded_model.mast_detector.embed(
            spectrogram, [torch.from_numpy(boxes).float()]
        )
    assert embeddings.dtype == np.float16
    np.testing.assert_allclose(embeddings, expected.numpy(), atol=2e-3)
    assert np.ptp(embeddings, axis=0).max() > 0.1  # rows that could be told apart if they were mixed up


def test_embeddings_stay_with_their_events_over_many_windows(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ear that embeds a call by its pitch's place: after stitching and sorting it still says so."""
    rng = np.random.default_rng(0)
    truth = np.array(
        [
            [t, low, t + rng.uniform(20, 60), low + 6]
            for t in np.arange(10, 2_400, 70.0)
            for low in (5.0, 30.0)
        ]
    )
    truth[:, 1::2] += rng.uniform(0, 10, len(truth))[:, None]
    seconds = np.arange(25 * RATE) / RATE
    # steeper and steeper: how far a window rises in its first second tells where it begins, in whatever order
    sf.write(tmp_path / "long.wav", seconds**2 / 1_000, RATE, subtype="FLOAT")
    detector = mast.load(model, device="cpu", embed=True, hop=0.5)

    def ear(sounds: Sequence[Samples], min_score: float) -> list[ScoredBoxes]:
        found = []
        for window in np.concatenate(sounds):
            rise = float(window[RATE] - window[0])
            start = round((1_000 * rise - 1) / 2 / FRONT_END.hop_s)
            seen = truth - np.array([start, 0, start, 0])
            seen[:, 0::2] = seen[:, 0::2].clip(0, FRONT_END.chunk_frames)
            seen = np.random.default_rng(start).permutation(seen[seen[:, 2] - seen[:, 0] > 1])
            width = detector.embedding_width
            named = np.repeat(seen[:, 1:2], width, axis=1).astype(np.float16)
            found.append(ScoredBoxes(seen, np.full(len(seen), 0.9), named))
        return found

    monkeypatch.setattr(detector.network, "boxes", ear)
    events, embeddings = detector.detect_and_embed(tmp_path / "long.wav")
    assert len(events) == len(truth)
    low = FRONT_END.bins_to_hz(embeddings[:, 0].astype(np.float64))
    np.testing.assert_allclose(low, events["low_hz"], rtol=1e-2)


def test_embeddings_only_where_asked_for(detector: Detector, model: Path, tmp_path: Path) -> None:
    path = write_sound(tmp_path / "a.wav", 4)
    (outcome,) = detector.outcomes([Source(path, "a.wav")])
    assert outcome.embeddings is None
    with pytest.raises(ConfigError, match="embed=True"):
        detector.detect_and_embed(path)
    deaf = Detector(model, DetectOptions(device="cpu", embed=True, threshold=1.0))
    events, embeddings = deaf.detect_and_embed(path)
    assert len(events) == 0
    assert embeddings.shape == (0, deaf.embedding_width)
    (tmp_path / "bad.wav").write_text("no sound")
    with pytest.raises(AudioError, match=r"bad\.wav"):
        deaf.detect_and_embed(tmp_path / "bad.wav")


def test_import_mast_imports_no_torch() -> None:
    code = "import sys, mast; mast.load; sys.exit('torch' in sys.modules or 'pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize(
    "habit", [Habit(box="strongest"), Habit(join_s=0.0), Habit(box="strongest", join_s=0.0)]
)
def test_boxes_are_drawn_as_the_habit_says(model: Path, tmp_path: Path, habit: Habit) -> None:
    path = write_sound(tmp_path / "OAK_20230510_235958.wav", 12.0)
    options = DetectOptions(device="cpu", embed=True, box="all")
    whole, vectors = Detector(model, options).detect_and_embed(path)
    asked = options.model_copy(update={"box": habit.box, "join_s": habit.join_s})
    events, embeddings = Detector(model, asked).detect_and_embed(path)
    drawn = redraw(boxes_of(whole), whole["score"].to_numpy(), habit, path, FRONT_END)
    assert 0 < len(events) == len(drawn.boxes) < len(whole)
    order = np.lexsort(drawn.boxes[:, [3, 2, 1, 0]].T)
    np.testing.assert_allclose(boxes_of(events), drawn.boxes[order], atol=2e-3)
    np.testing.assert_array_equal(embeddings, vectors[drawn.rows[order]])
    clock = pd.to_datetime(events["datetime"]) - pd.Timestamp("2023-05-10T23:59:58")
    np.testing.assert_allclose(clock.dt.total_seconds(), events["start_s"], atol=2e-3)


def test_a_habit_in_the_card_is_used_unless_told_otherwise(model: Path, tmp_path: Path) -> None:
    kept, card = load_checkpoint(model / "best")
    learnt = card.model_copy(update={"habit": Habit(box="strongest", time_db=10.0)})
    save_checkpoint(tmp_path / "learnt", kept, learnt)
    path = write_sound(tmp_path / "a.wav", 6.0)
    own = Detector(tmp_path / "learnt", DetectOptions(device="cpu"))
    assert own.habit == learnt.habit
    assert own.settings["box"] == "strongest, 25 dB of its band and 10 dB of its time"
    told = Detector(tmp_path / "learnt", DetectOptions(device="cpu", box="all"))
    plain = Detector(model, DetectOptions(device="cpu"))
    pd.testing.assert_frame_equal(told.detect(path), plain.detect(path))
    assert not own.detect(path).equals(plain.detect(path))
    assert told.settings == plain.settings != own.settings


def test_only_the_default_step_is_spread(model: Path) -> None:
    minute_s = 60 / 10.24 * FRONT_END.chunk_s  # as many windows as a minute has with the paper's front end
    readers = {hop: mast.load(model, device="cpu", hop=hop)._reader for hop in (0.7, 0.75)}
    assert readers[0.75].hop_in(minute_s) > readers[0.75].hop_s
    assert readers[0.7].hop_in(minute_s) == readers[0.7].hop_s
    # of hundreds of windows one is saved by a step that is hardly longer
    assert readers[0.75].hop_in(100 * minute_s) == pytest.approx(readers[0.75].hop_s, abs=0.02)
