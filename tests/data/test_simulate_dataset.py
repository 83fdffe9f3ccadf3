"""Simulated datasets on disk, from nothing and from real material."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf

from mast.audio import metadata
from mast.data import load_dataset
from mast.data.simulate.dataset import Simulation, plan_recordings, simulate_dataset, simulate_recording
from mast.data.simulate.material import close_loop, isolate_calls, load_material, quietest, trim_silence
from mast.data.simulate.visible import BoxStyle
from mast.errors import ConfigError

RATE = 16_000
SMALL = Simulation(
    recordings=4, duration_s=3.0, sites=2, days=2, seed=3, species=11, hours=(5, 8), density=2.0
)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def contents(folder: Path) -> dict[str, bytes]:
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()
    }


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("simulated") / "out"
    simulate_dataset(out, SMALL)
    return out


def test_a_dataset_has_audio_tables_and_parameters(written: Path) -> None:
    recordings = rows(written / "recordings.csv")
    boxes = rows(written / "boxes.csv")
    assert len(recordings) == 4
    assert list(boxes[0]) == [
        "file",
        "start_s",
        "end_s",
        "low_hz",
        "high_hz",
        "label",
        "snr_db",
        "distance_m",
    ]
    for row in recordings:
        info = sf.info(written / "audio" / row["file"])
        assert (info.samplerate, info.frames, info.subtype, info.channels) == (RATE, 3 * RATE, "PCM_16", 1)
    assert {row["file"] for row in boxes} <= {row["file"] for row in recordings}
    for row in boxes:
        assert 0 <= float(row["start_s"]) < float(row["end_s"]) <= 3.0
        assert 0 <= float(row["low_hz"]) < float(row["high_hz"]) <= RATE / 2
    parameters = json.loads((written / "simulation.json").read_text(encoding="utf-8"))
    assert parameters["seed"] == 3
    assert parameters["style"]["gap_s"] == BoxStyle().gap_s
    assert len(parameters["labels"]) == 11


def test_names_carry_site_and_clock(written: Path) -> None:
    for row in rows(written / "recordings.csv"):
        known = metadata(written / "audio" / row["file"])
        assert known.site == row["site"]
        assert known.datetime is not None
        assert known.datetime.isoformat() == row["datetime"]
        assert 5 <= known.datetime.hour < 8


def test_the_dataset_loads_like_any_other(written: Path) -> None:
    dataset = load_dataset(written)
    assert len(dataset) == 4
    assert len(dataset.annotations.events) == len(rows(written / "boxes.csv"))
    assert len(dataset.annotations.reviewed) == 4  # those without boxes were listened to as well
    assert set(dataset.recordings["split"]) == {"train", "temporal_ood", "site_ood"}


def test_same_seed_same_bytes_whatever_the_processes(written: Path, tmp_path: Path) -> None:
    simulate_dataset(tmp_path / "again", SMALL, workers=2)
    assert contents(tmp_path / "again") == contents(written)


def test_a_recording_in_memory_is_the_one_on_disk(written: Path) -> None:
    planned = plan_recordings(SMALL)[1]
    scene = simulate_recording(SMALL, planned)
    on_disk, _ = sf.read(written / "audio" / planned.file, dtype="int16")
    np.testing.assert_array_equal(np.rint(scene.waveform * 32_767).astype(np.int16), on_disk)
    assert len(scene.events) == sum(row["file"] == planned.file for row in rows(written / "boxes.csv"))


def test_more_recordings_leave_the_first_untouched(written: Path, tmp_path: Path) -> None:
    """A recording depends on seed and number; with as many slots a day its time stays too."""
    planned = plan_recordings(SMALL)
    fewer = plan_recordings(SMALL.model_copy(update={"recordings": 3}))
    assert fewer == planned[:3]


def test_an_earlier_simulation_is_replaced_and_anything_else_refused(tmp_path: Path) -> None:
    one = Simulation(recordings=2, duration_s=0.5, sites=1, days=1, species=2, hidden=True)
    out = tmp_path / "out"
    simulate_dataset(out, one)
    assert (out / "hidden.csv").is_file()
    (out / "audio" / "my_own.wav").write_bytes(b"mine")
    simulate_dataset(out, one.model_copy(update={"recordings": 1, "format": "wav", "hidden": False}))
    assert sorted(p.suffix for p in (out / "audio").iterdir()) == [".wav", ".wav"]
    assert (out / "audio" / "my_own.wav").read_bytes() == b"mine"
    assert not (out / "hidden.csv").exists()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("years of work")
    with pytest.raises(ConfigError, match="not a simulation"):
        simulate_dataset(tmp_path / "full", one)
    with pytest.raises(ConfigError, match="is a file"):
        simulate_dataset(tmp_path / "full" / "thesis.tex", one)


def test_plans_spread_over_sites_days_and_hours() -> None:
    planned = plan_recordings(Simulation(recordings=192, sites=4, days=6))
    assert len({p.file for p in planned}) == 192
    assert {p.site for p in planned} == set(range(4))
    assert np.ptp([p.hour for p in planned]) > 18
    assert {p.split for p in planned if p.site == 3} == {"site_ood"}
    assert {p.split for p in planned if p.site < 3 and p.day >= 4} == {"temporal_ood"}
    assert {p.split for p in planned if p.site < 3 and p.day < 4} == {"train"}
    alone = plan_recordings(Simulation(recordings=3, sites=1, days=1))
    assert {p.split for p in alone} == {"train"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hours": (9.0, 5.0)}, "hours"),
        ({"sites": 2, "ood_sites": 2}, "held out"),
        ({"recordings": 100_000, "sites": 1, "days": 1}, "do not fit"),
        ({"duration_s": 0.001}, "too short"),
    ],
)
def test_senseless_simulations_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Simulation(**changes)


def test_the_tape_scales_times_and_frequencies() -> None:
    bird = Simulation(
        recordings=1, duration_s=4.0, sites=1, days=1, seed=3, species=11, hours=(5, 8), density=3.0
    )
    bat = bird.model_copy(update={"sample_rate": 384_000, "tape": 24.0, "duration_s": 4.0 / 24})
    a, b = (simulate_recording(s, plan_recordings(s)[0]) for s in (bird, bat))
    np.testing.assert_array_equal(a.waveform, b.waveform)
    assert a.events
    for x, y in zip(a.events, b.events, strict=True):
        np.testing.assert_allclose(y.row, np.array(x.row) * [1 / 24, 24, 1 / 24, 24])


def chirp(seconds: float = 0.3, low: float = 2_000, high: float = 3_000) -> np.ndarray:
    t = np.arange(int(seconds * RATE)) / RATE
    phase = 2 * np.pi * (low * t + 0.5 * (high - low) / seconds * t**2)
    return np.sin(phase) * np.hanning(len(t))


@pytest.fixture
def material(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for folder, name, low in (("calls/frog", "a.wav", 800.0), ("calls/finch", "b.wav", 3_000.0)):
        (tmp_path / folder).mkdir(parents=True)
        clip = 0.002 * rng.standard_normal(2 * RATE)
        clip[RATE // 2 : RATE // 2 + int(0.3 * RATE)] += 0.5 * chirp(0.3, low, 1.3 * low)
        sf.write(tmp_path / folder / name, clip, RATE)
    (tmp_path / "beds").mkdir()
    sf.write(tmp_path / "beds" / "wind.flac", 0.01 * rng.standard_normal(6 * RATE), RATE)
    return tmp_path


def test_calls_are_cut_from_their_clip() -> None:
    rng = np.random.default_rng(0)
    clip = (0.003 * rng.standard_normal(3 * RATE)).astype(np.float32)
    clip[RATE : RATE + int(0.3 * RATE)] += chirp().astype(np.float32)
    (call,) = isolate_calls(clip, RATE)
    assert len(call) / RATE == pytest.approx(0.3, abs=0.06)
    assert np.abs(call).max() <= 1.0
    outside = np.abs(np.fft.rfft(call)) ** 2
    hz = np.fft.rfftfreq(len(call), 1 / RATE)
    assert outside[(hz < 1_500) | (hz > 3_500)].sum() < 1e-3 * outside.sum()
    assert isolate_calls(np.zeros(RATE, dtype=np.float32), RATE) == []
    assert isolate_calls(np.ones(5, dtype=np.float32), RATE) == []


def test_two_calls_far_apart_in_a_clip_are_two() -> None:
    clip = (0.001 * np.random.default_rng(1).standard_normal(4 * RATE)).astype(np.float32)
    for start in (RATE // 2, 3 * RATE):
        clip[start : start + int(0.3 * RATE)] += chirp().astype(np.float32)
    assert len(isolate_calls(clip, RATE)) == 2


def test_real_material_makes_a_dataset(material: Path, tmp_path: Path) -> None:
    simulation = Simulation(
        recordings=2,
        duration_s=6.0,
        sites=1,
        days=1,
        species=0,
        density=3.0,
        calls=material / "calls",
        backgrounds=material / "beds",
        seed=1,
        hours=(5, 8),
    )
    counts = simulate_dataset(tmp_path / "out", simulation)
    assert counts.boxes > 0
    boxes = rows(tmp_path / "out" / "boxes.csv")
    assert {row["label"] for row in boxes} <= {"frog", "finch"}
    for row in boxes:  # the chirps' own bands, with a little room
        low, high = {"frog": (600, 1_300), "finch": (2_600, 4_200)}[row["label"]]
        assert low < float(row["low_hz"]) < float(row["high_hz"]) < high


def test_real_calls_at_half_speed_are_an_octave_lower(material: Path) -> None:
    (usual,) = (one for one in load_material(material / "calls", None, RATE).species if one.label == "finch")  # type: ignore[union-attr]
    slowed = load_material(material / "calls", None, RATE, speeds=(0.5, 0.5), seed=3)
    assert slowed is not None
    (slow,) = (one for one in slowed.species if one.label == "finch")
    once, half = (one.phrase(np.random.default_rng(4)) for one in (usual, slow))
    peaks = [np.argmax(np.abs(np.fft.rfft(call))) / len(call) for call in (once, half)]
    assert peaks[1] == pytest.approx(peaks[0] / 2, rel=0.05)
    assert len(half) == pytest.approx(2 * len(once), rel=0.2)


def test_speeds_differ_between_labels_and_seeds(material: Path) -> None:
    speeds = set()
    for seed in (1, 2):
        found = load_material(material / "calls", None, RATE, speeds=(0.3, 1.2), seed=seed)
        assert found is not None
        speeds |= {one.speed for one in found.species}
    assert len(speeds) == 4
    assert all(0.3 <= speed <= 1.2 for speed in speeds)


def test_real_calls_are_notes_of_a_song(material: Path) -> None:
    singing = load_material(material / "calls", None, RATE, motifs=1.0, seed=2)
    assert singing is not None
    for one in singing.species:
        assert 2 <= len(one.motif) <= 4
        song = one.phrase(np.random.default_rng(4))
        assert float(np.abs(song).max()) == pytest.approx(1.0)
        assert len(song) <= 8 * RATE
        again = one.phrase(np.random.default_rng(4))
        assert np.array_equal(song, again)
        parts = [one._calls(note.clip, note.speed)[0] for note in one.motif]
        assert len(song) > 1.5 * sum(map(len, parts))  # more than once
    calling = load_material(material / "calls", None, RATE, seed=2)
    assert calling is not None
    assert all(not one.motif and not one.song for one in calling.species)


def test_a_song_is_one_box_where_its_singer_has_it_so() -> None:
    base = Simulation(recordings=3, duration_s=20.0, sites=1, days=1, seed=8, hours=(5, 8), distance=0.2)
    style = BoxStyle(gap_s=0.05, song_gap_s=0.6)
    calls, songs = (base.model_copy(update={"motifs": share, "style": style}) for share in (0.0, 1.0))
    longest = [
        max(
            event.end_s - event.start_s
            for p in plan_recordings(s)
            for event in simulate_recording(s, p).events
        )
        for s in (calls, songs)
    ]
    assert longest[1] > 1.5


def test_a_microphone_held_near_hears_more() -> None:
    far = Simulation(recordings=1, duration_s=20.0, sites=1, days=1, seed=3, hours=(5, 8))
    near = far.model_copy(update={"distance": 0.2})
    heard = [simulate_recording(s, plan_recordings(s)[0]).events for s in (far, near)]
    assert len(heard[1]) >= len(heard[0])
    assert np.mean([e.snr_db for e in heard[1]]) > np.mean([e.snr_db for e in heard[0]]) + 5


def test_clips_are_chosen_by_label_source_or_path(material: Path) -> None:
    chosen = load_material(material / "calls", None, RATE, call_labels=["fr*"])
    assert chosen is not None
    assert [species.label for species in chosen.species] == ["frog"]
    (material / "calls" / "clips.csv").write_text(
        "file,source,label\nfrog/a.wav,mine,toad\nfinch/b.wav,yours,b.wav\n"
    )
    listed = load_material(material / "calls", None, RATE)
    assert listed is not None
    assert [species.label for species in listed.species] == ["toad", "yours"]  # a file's name is not a label
    assert load_material(None, None, RATE) is None
    with pytest.raises(ConfigError, match="matching whale"):
        load_material(material / "calls", None, RATE, call_labels=["whale"])
    with pytest.raises(ConfigError, match="no such folder; expected a folder of recordings"):
        load_material(material / "nowhere", None, RATE)
    with pytest.raises(ConfigError, match="quiet"):
        load_material(None, material / "beds", RATE, quiet=0.0)


def test_the_quiet_share_leaves_out_the_animal() -> None:
    bed = 0.01 * np.random.default_rng(0).standard_normal(20 * RATE)
    bed[5 * RATE : int(5.3 * RATE)] += chirp()
    calm = quietest(bed.astype(np.float32), RATE, 0.5)
    assert np.abs(calm).max() < 0.1
    assert len(calm) / RATE == pytest.approx(10.0, abs=0.5)
    assert np.abs(quietest(bed.astype(np.float32), RATE, 1.0)).max() > 0.5


def test_loops_close_and_silence_goes() -> None:
    noise = np.random.default_rng(0).standard_normal(4 * RATE).astype(np.float32)
    slow = np.cumsum(noise) * np.float32(0.01)
    loop = close_loop(slow, 800)
    assert len(loop) == len(slow) - 800
    assert abs(loop[0] - slow[-800]) < 0.1  # what follows the end is the end's continuation
    padded = np.concatenate([noise, np.zeros(RATE, dtype=np.float32)])
    assert len(trim_silence(padded, RATE)) == pytest.approx(len(noise), abs=RATE // 20)
    assert len(close_loop(np.zeros(1, dtype=np.float32), 800)) == 1


@pytest.mark.real
def test_pool_of_real_clips(shared_data: Path) -> None:
    found = load_material(
        shared_data / "pool", shared_data / "pool", RATE, call_labels=["frog"], background_labels=["wind"]
    )
    assert found is not None
    assert [species.label for species in found.species] == ["frog"]
    phrases = [found.species[0].phrase(np.random.default_rng(k)) for k in range(10)]
    assert sum(len(phrase) > 400 and np.abs(phrase).max() > 0.4 for phrase in phrases) >= 8
    assert found.backgrounds is not None
    assert np.square(found.backgrounds.loop(np.random.default_rng(0))).mean() == pytest.approx(1.0, rel=1e-2)
