"""A detector on whole recordings."""

from __future__ import annotations

import subprocess
import sys
import threading
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
from mast.audio import windows as audio_windows
from mast.detect_options import DetectOptions
from mast.errors import AudioError, ConfigError, MastError
from mast.events import EVENT_COLUMNS, boxes_of, pairwise_iom, pairwise_iou
from mast.grid import FrontEnd
from mast.habit import Habit
from mast.inference import Detector, Source
from mast.inference.detector import _cast_products
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
    monkeypatch.setattr("mast.inference.detector.has_bfloat16", lambda device: False)
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
    with pytest.raises(ConfigError, match="expected above 0 and at most"):
        mast.load(model, device="cpu", band_hz=0)


def test_batches_and_neighbours_change_nothing(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # in bfloat16 products of another size round so much otherwise that neighbours swap places
    monkeypatch.setattr("mast.inference.detector.has_bfloat16", lambda device: False)
    detector = mast.load(model, device="cpu")
    paths = [write_sound(tmp_path / f"{i}.wav", 3 + 2.1 * i, seed=i) for i in range(4)]
    for path, events in zip(paths, detector.stream(paths), strict=True):
        pd.testing.assert_frame_equal(events, detector.detect(path))
        singly = mast.load(model, device="cpu", batch_size=1).detect(path)  # other rounding in the products
        boxes = ["start_s", "end_s", "low_hz", "high_hz", "score"]
        pd.testing.assert_frame_equal(events[boxes], singly[boxes], atol=0.01, rtol=1e-4)


@pytest.mark.usefixtures("bfloat16_anywhere")
@pytest.mark.parametrize("bfloat16", [False, True])
def test_several_batches_at_once_give_the_very_same_events(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bfloat16: bool
) -> None:
    monkeypatch.setattr("mast.inference.detector.has_bfloat16", lambda device: bfloat16)
    paths = [write_sound(tmp_path / f"{i}.wav", 2 + 6.3 * i, seed=i) for i in range(5)]
    sources = [Source(path, path.name) for path in paths]
    one, many = (Detector(model, DetectOptions(device="cpu", batch_size=2, embed=True)) for _ in range(2))
    one.workers, many.workers = 1, 3
    threads = torch.get_num_threads()
    for expected, found in zip(one.outcomes(sources), many.outcomes(sources), strict=True):
        assert len(expected.events)
        pd.testing.assert_frame_equal(found.events, expected.events)
        assert found.embeddings is not None
        assert expected.embeddings is not None
        np.testing.assert_array_equal(found.embeddings, expected.embeddings)
        assert torch.get_num_threads() == threads  # what the workers use is their own affair


def test_workers_share_the_cores(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each in its own share, whatever the main thread sets meanwhile."""
    paths = [write_sound(tmp_path / f"{i}.wav", 9, seed=i) for i in range(3)]
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        detector = Detector(model, DetectOptions(device="cpu", batch_size=1))
        assert detector.workers == 4
        detector.workers = 2
        search, seen = detector._boxes, []

        def watched(sound: torch.Tensor) -> list[ScoredBoxes]:
            found = search(sound)
            seen.append((threading.current_thread().name, torch.get_num_threads()))
            return found

        monkeypatch.setattr(detector, "_boxes", watched)
        list(detector.stream(paths))
        assert {threads for _, threads in seen} == {2}
        assert {name for name, _ in seen} == {"worker_0", "worker_1"}
        assert torch.get_num_threads() == 4
    finally:
        torch.set_num_threads(before)


@pytest.mark.usefixtures("bfloat16_anywhere")
def test_weights_cast_once_give_what_autocast_gives(model: Path, tmp_path: Path) -> None:
    spectrograms = torch.randn(2, 1, FRONT_END.chunk_frames, FRONT_END.n_bins)
    ours, cast = (load_checkpoint(model / "best").model for _ in range(2))
    assert isinstance(cast, MastDetector)
    _cast_products(cast)
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        a, b = ours(spectrograms), cast(spectrograms)
        for expected, found in zip((*a[:3], *a.levels, a.tokens), (*b[:3], *b.levels, b.tokens), strict=True):
            assert torch.equal(found, expected)


class Ear:
    """Stands for the model: hears every sound above silence, exactly, in one band."""

    def __call__(self, sound: torch.Tensor) -> list[ScoredBoxes]:
        found = []
        for row in sound.numpy():
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
    monkeypatch.setattr(detector, "_boxes", lambda sound: [ScoredBoxes(boxes.copy(), np.full(3, 0.5))])
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


@pytest.mark.parametrize("several", [1, 3])
def test_stopping_early_stops_the_threads(model: Path, tmp_path: Path, several: int) -> None:
    detector = Detector(model, DetectOptions(device="cpu"))
    detector._reader = replace(detector._reader, several=several)
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
        spectrogram = detector.card.normalisation.apply(detector.hearing._log_mel.chunk_features(sound))
        frames = events[["start_s", "end_s"]].to_numpy() / FRONT_END.hop_s
        bins = FRONT_END.hz_to_bins(events[["low_hz", "high_hz"]].to_numpy())
        boxes = np.stack([frames[:, 0], bins[:, 0], frames[:, 1], bins[:, 1]], axis=1)
        (expected,) = detector._model.embed(spectrogram, [torch.from_numpy(boxes).float()])
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
    write_sound(tmp_path / "long.wav", 25.0)
    detector = mast.load(model, device="cpu", embed=True, hop=0.75)
    windows = iter(range(1_000))

    def ear(sound: torch.Tensor) -> list[ScoredBoxes]:
        found = []
        for _ in sound:
            start = next(windows) * 0.75 * FRONT_END.chunk_frames
            seen = truth - np.array([start, 0, start, 0])
            seen[:, 0::2] = seen[:, 0::2].clip(0, FRONT_END.chunk_frames)
            seen = rng.permutation(seen[seen[:, 2] - seen[:, 0] > 1])
            width = detector.embedding_width
            named = np.repeat(seen[:, 1:2], width, axis=1).astype(np.float16)
            found.append(ScoredBoxes(seen, np.full(len(seen), 0.9), named))
        return found

    monkeypatch.setattr(detector, "_boxes", ear)
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


def test_full_batches_are_of_one_size_and_do_not_mix_recordings(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU, where the network is compiled and recorded for one shape."""
    monkeypatch.setattr(
        "mast.inference.detector.has_bfloat16", lambda device: False
    )  # not a CPU's own layers
    plain, full = (Detector(model, DetectOptions(device="cpu", batch_size=8, embed=True)) for _ in range(2))
    full._full, full.workers = True, 2
    full._reader = replace(full._reader, batch_size=3)
    sizes: list[int] = []
    search = full._boxes
    monkeypatch.setattr(full, "_boxes", lambda sound: (sizes.append(len(sound)), search(sound))[1])
    paths = [write_sound(tmp_path / f"{i}.wav", 1.3 * i, seed=i) for i in (6, 1, 3, 11, 2)]
    (tmp_path / "none.wav").write_text("no sound")
    paths.insert(2, tmp_path / "none.wav")
    together = list(full.outcomes(Source(path, path.name) for path in paths))
    assert [outcome.source.path for outcome in together] == paths
    windows = sum(
        len(list(audio_windows(path, FRONT_END, hop_s=0.75 * FRONT_END.chunk_s, keep_short=True)))
        for path in paths
        if path.name != "none.wav"
    )
    assert sizes == [8] * -(-windows // 8)
    for outcome in together:
        if outcome.source.recording == "none.wav":
            assert outcome.error
            continue
        expected, rows = plain.detect_and_embed(outcome.source.path)
        boxes = ["start_s", "end_s", "low_hz", "high_hz", "score"]
        assert outcome.embeddings is not None
        # other sizes of products round differently
        pd.testing.assert_frame_equal(outcome.events[boxes], expected[boxes], atol=0.01, rtol=1e-4)
        np.testing.assert_allclose(outcome.embeddings, rows, atol=2e-3)
        # alone as among others, to the last digit
        pd.testing.assert_frame_equal(outcome.events, full.detect(outcome.source.path))


def test_compiling_is_for_gpus(model: Path) -> None:
    assert not Detector(model, DetectOptions(device="cpu")).compiled
    with pytest.raises(ConfigError, match="compile on cpu"):
        Detector(model, DetectOptions(device="cpu", compile=True))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_compiled_on_a_gpu_finds_what_the_plain_model_finds(model: Path, tmp_path: Path) -> None:
    path = write_sound(tmp_path / "a.wav", 30)
    plain = Detector(model, DetectOptions(device="cuda", batch_size=8, compile=False, embed=True))
    compiled = Detector(model, DetectOptions(device="cuda", batch_size=8, compile=True, embed=True))
    expected, rows = plain.detect_and_embed(path)
    events, embeddings = compiled.detect_and_embed(path)
    # in bfloat16 a score near the threshold may fall on either side
    assert abs(len(events) - len(expected)) <= 0.1 * len(expected)
    near = pairwise_iou(boxes_of(expected), boxes_of(events))
    assert (near.max(axis=1) > 0.8).mean() > 0.8
    assert embeddings.shape == (len(events), rows.shape[1])
    again = compiled.detect_and_embed(path)
    pd.testing.assert_frame_equal(events, again[0])
    np.testing.assert_array_equal(embeddings, again[1])
    assert 0 < len(compiled._graphs) <= compiled.workers  # the same for both
    assert all(graph.recorded for graph in compiled._graphs)


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
