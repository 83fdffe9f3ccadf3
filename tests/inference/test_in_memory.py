"""Arrays are searched as files of the same sound are."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import soundfile as sf
from random_detector import write_sound

import mast
from mast.audio import read
from mast.errors import AudioError, ConfigError
from mast.events import BOX_COLUMNS
from mast.inference import Detector
from mast.inference.in_memory import one_channel

FOUND = [*BOX_COLUMNS, "score"]


@pytest.fixture(scope="module")
def detector(model: Path) -> Detector:
    return mast.load(model, device="cpu")


@pytest.mark.parametrize("rate", [6_000, 16_000, 44_100])
def test_events_are_those_of_a_file(detector: Detector, tmp_path: Path, rate: int) -> None:
    sound, _ = sf.read(write_sound(tmp_path / "sound.wav", 7.3, rate=rate))
    sound *= 0.71  # between the steps of 16 bits
    path = tmp_path / "OAK_20230510_235958.wav"
    sf.write(path, sound, rate, subtype="FLOAT")
    of_file, of_array = detector.detect(path), detector.detect(sound, sample_rate=rate)
    assert len(of_file) > 5
    pd.testing.assert_frame_equal(of_array[FOUND], of_file[FOUND], check_exact=True)
    assert list(of_array.columns) == list(of_file.columns)
    assert set(of_array["recording"]) == {"samples"}
    assert set(of_array["site"]) == set(of_array["datetime"]) == {""}


def test_a_habit_that_reads_the_sound_again_finds_it(model: Path, tmp_path: Path) -> None:
    sound, rate = sf.read(write_sound(tmp_path / "sound.wav", 6))
    strongest = mast.load(model, device="cpu", box="strongest")
    found = strongest.detect(sound, sample_rate=rate)
    pd.testing.assert_frame_equal(found[FOUND], strongest.detect(tmp_path / "sound.wav")[FOUND])
    assert len(found)


def test_embeddings_of_an_array(model: Path, tmp_path: Path) -> None:
    sound, rate = sf.read(write_sound(tmp_path / "sound.wav", 4))
    embedding = mast.load(model, device="cpu", embed=True)
    events, vectors = embedding.detect_and_embed(sound, sample_rate=rate)
    expected, same = embedding.detect_and_embed(tmp_path / "sound.wav")
    assert len(events)
    pd.testing.assert_frame_equal(events[FOUND], expected[FOUND])
    assert np.array_equal(vectors, same)


@pytest.mark.parametrize("channels", [1, 2, 5])
@pytest.mark.parametrize(
    ("dtype", "subtype", "format"),
    [
        ("uint8", "PCM_U8", "WAV"),
        ("int8", "PCM_S8", "AIFF"),
        ("int16", "PCM_16", "WAV"),
        ("int32", "PCM_32", "WAV"),
        ("float32", "FLOAT", "WAV"),
        ("float64", "DOUBLE", "WAV"),
    ],
)
def test_samples_of_each_type_are_read_as_from_a_file(
    tmp_path: Path, dtype: str, subtype: str, format: str, channels: int
) -> None:
    """Of soundfile's own conversions those between 16, 32 bits and floats are taken; 8 bits are moved up to 16."""
    rng = np.random.default_rng(channels)
    if dtype.startswith("float"):
        samples = rng.uniform(-1, 1, (500, channels)).astype(dtype)
        written = samples
    else:
        limits = np.iinfo(dtype)
        samples = rng.integers(limits.min, limits.max, (500, channels), dtype=dtype, endpoint=True)
        wide = samples.astype(np.int64) - (128 if dtype == "uint8" else 0)
        written = (wide << 8).astype(np.int16) if limits.bits == 8 else samples
    path = tmp_path / f"sound.{format.lower()}"
    sf.write(path, written, 16_000, subtype=subtype, format=format)
    expected = read(path)
    assert np.array_equal(one_channel(samples), expected)
    if channels == 1:
        assert np.array_equal(one_channel(samples[:, 0]), expected)
        assert np.array_equal(
            one_channel(samples[:, 0].tolist()) if dtype == "float64" else expected, expected
        )


SOUND = np.zeros(1_000, dtype=np.float32)


@pytest.mark.parametrize(
    ("samples", "sample_rate", "told"),
    [
        (
            SOUND,
            None,
            r"an array does not say its sample rate; give it, for example detect\(samples, sample_",
        ),
        (SOUND, 0, "sample_rate is 0; expected a whole number of hertz from 20 to 10,000,000"),
        (SOUND, 16_000.5, "sample_rate is 16000.5; expected a whole number"),
        (SOUND, float("nan"), "sample_rate is nan; expected a whole number"),
        (SOUND[:0], 16_000, "samples hold no sound"),
        (np.zeros((2, 1_000)), 16_000, r"samples have the shape \(2, 1000\); .* samples\.T"),
        (np.zeros((10, 1, 1)), 16_000, r"samples have the shape \(10, 1, 1\)"),
        (np.float32(0.5), 16_000, r"samples have the shape \(\)"),
        (np.zeros(9, dtype=np.int64), 16_000, "samples are of type int64; expected floats .* int16"),
        (np.zeros(9, dtype=complex), 16_000, "samples are of type complex128"),
        (["a.wav", "b.wav"], None, "found list; expected the path of a recording, .* use stream"),
        (None, None, "found NoneType; expected the path of a recording"),
        (
            np.append(SOUND, [np.nan, np.inf]),
            1_000,
            "samples: 2 NaN or infinite samples, the first at 1.000 s",
        ),
        (
            np.array([0.0, 1e300]),
            1_000,
            "samples: 1 NaN or infinite sample, the first at 0.001 s; expected finite numbers$",
        ),
    ],
)
def test_what_is_no_sound_is_one_sentence(
    detector: Detector, samples: Any, sample_rate: Any, told: str
) -> None:
    with pytest.raises((AudioError, ConfigError), match=told):
        detector.detect(samples, sample_rate=sample_rate)


def test_what_belongs_to_a_path_or_an_array_is_refused_of_the_other(
    detector: Detector, tmp_path: Path
) -> None:
    path = write_sound(tmp_path / "dawn.wav", 1)
    with pytest.raises(ConfigError, match=r"dawn\.wav: sample_rate belongs to an array"):
        detector.detect(path, sample_rate=16_000)
    with pytest.raises(ConfigError, match="belongs to a path"):
        detector.detect(SOUND, sample_rate=16_000, root=tmp_path)
    with pytest.raises(ConfigError, match="stream takes recordings, not samples"):
        list(detector.stream(SOUND))  # type: ignore[arg-type]


def test_no_file_is_left(detector: Detector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    detector.detect(SOUND, sample_rate=16_000)
    assert not list(tmp_path.iterdir())
