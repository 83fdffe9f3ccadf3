"""Streaming gives the samples that reading everything at once gives, whatever the blocks."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf
import soxr
from hypothesis import given
from hypothesis import strategies as st

from mast.audio import DamagedAudioWarning, probe, read, stream
from mast.errors import AudioError


def write(path: Path, seconds: float, rate: int, channels: int = 1, **options: str) -> np.ndarray:
    sound = np.random.default_rng(1).uniform(-0.5, 0.5, (round(seconds * rate), channels)).astype(np.float32)
    sf.write(path, sound, rate, **options)
    return sound


@pytest.mark.parametrize("rate", [4_000, 16_000, 22_050, 44_100, 48_000, 256_000, 384_000])
@pytest.mark.parametrize("block_s", [0.013, 0.5, 10.0])
def test_streamed_resampling_is_one_shot_resampling(tmp_path: Path, rate: int, block_s: float) -> None:
    path = tmp_path / "sound.wav"
    sound = write(path, 1.2345, rate, subtype="FLOAT")[:, 0]
    expected = sound if rate == 16_000 else soxr.resample(sound, rate, 16_000, quality="HQ")
    blocks = list(stream(path, sample_rate=16_000, block_s=block_s))
    assert all(block.dtype == np.float32 and block.ndim == 1 and len(block) for block in blocks)
    np.testing.assert_array_equal(np.concatenate(blocks), expected)
    np.testing.assert_array_equal(read(path, sample_rate=16_000), expected)


def test_own_rate_is_not_touched(tmp_path: Path) -> None:
    sound = write(tmp_path / "sound.wav", 1.0, 22_050, subtype="FLOAT")[:, 0]
    np.testing.assert_array_equal(read(tmp_path / "sound.wav"), sound)
    np.testing.assert_array_equal(np.concatenate(list(stream(tmp_path / "sound.wav", block_s=0.1))), sound)


@given(
    start=st.floats(0, 1.5),
    length=st.floats(0, 1.0),
    rates=st.sampled_from(
        [(16_000, 16_000), (48_000, 16_000), (44_100, 16_000), (8_000, 16_000), (96_000, 22_050)]
    ),
)
def test_span_is_a_cut_of_the_whole(
    tmp_path_factory: pytest.TempPathFactory, start: float, length: float, rates: tuple[int, int]
) -> None:
    rate, target = rates
    path = tmp_path_factory.getbasetemp() / f"span_{rate}.wav"
    if not path.exists():
        write(path, 2.0, rate, channels=2, subtype="FLOAT")
    whole = read(path, sample_rate=target)
    span = read(path, start_s=start, end_s=start + length, sample_rate=target)
    expected = whole[round(start * target) : round((start + length) * target)]
    assert span.shape == expected.shape
    np.testing.assert_allclose(span, expected, atol=2e-6)


@pytest.mark.parametrize(
    ("kind", "subtype"), [("MP3", "MPEG_LAYER_III"), ("OGG", "VORBIS"), ("OGG", "OPUS"), ("FLAC", "PCM_16")]
)
def test_span_of_a_compressed_recording(tmp_path: Path, kind: str, subtype: str) -> None:
    path = tmp_path / "sound.bin"
    write(path, 8.0, 48_000, format=kind, subtype=subtype)
    whole = read(path)
    np.testing.assert_allclose(read(path, start_s=4.321, end_s=5.0), whole[207_408:240_000], atol=1e-5)


def test_spans_at_the_edges(tmp_path: Path) -> None:
    path = tmp_path / "sound.wav"
    sound = write(path, 1.0, 16_000, subtype="FLOAT")[:, 0]
    assert read(path, start_s=1.0).shape == (0,)
    assert read(path, start_s=0.5, end_s=0.5).shape == (0,)
    np.testing.assert_array_equal(read(path, start_s=0.5, end_s=9.0), sound[8_000:])
    for start_s, end_s in ((-1.0, None), (0.5, 0.2), (60.0, None), (float("nan"), None)):
        with pytest.raises(AudioError, match="asked for"):
            read(path, start_s=start_s, end_s=end_s)


def test_channels(tmp_path: Path) -> None:
    path = tmp_path / "sound.wav"
    sound = write(path, 0.5, 16_000, channels=3, subtype="FLOAT")
    np.testing.assert_array_equal(read(path, channel=2), sound[:, 2])
    np.testing.assert_allclose(read(path, channel="mix"), sound.mean(axis=1), atol=1e-7)
    for channel in (3, -1):
        with pytest.raises(AudioError, match="no channel"):
            read(path, channel=channel)


def test_nonsense_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "sound.wav", 0.1, 16_000)
    with pytest.raises(AudioError, match="0 Hz"):
        stream(tmp_path / "sound.wav", sample_rate=0)
    with pytest.raises(AudioError, match="blocks of 0 s"):
        stream(tmp_path / "sound.wav", block_s=0)


@pytest.mark.parametrize("subtype", ["FLOAT", "DOUBLE"])
def test_not_finite_samples(tmp_path: Path, subtype: str) -> None:
    path = tmp_path / "sound.wav"
    sound = np.zeros((32_000, 2))
    sound[8_000, 0] = np.nan
    sound[8_001, 1] = np.inf
    sound[30_000] = -np.inf
    sf.write(path, sound, 16_000, subtype=subtype)
    told = r"sound\.wav: 3 NaN or infinite samples, the first at 0\.500 s; expected finite numbers, so write the file"
    for block_s in (0.01, 0.7, 10.0):
        with pytest.raises(AudioError, match=told):
            list(stream(path, block_s=block_s))
    assert len(read(path, end_s=0.5)) == 8_000  # the sound before is fine


def test_truncated_wav_gives_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "sound.wav"
    sound = write(path, 2.0, 16_000, subtype="FLOAT")[:, 0]
    path.write_bytes(path.read_bytes()[:-64_000])
    info = probe(path)
    assert info.truncated
    assert info.frames == 16_000
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(read(path), sound[:16_000])


def test_truncated_rf64(tmp_path: Path) -> None:
    path = tmp_path / "sound.wav"
    write(path, 2.0, 16_000, format="RF64", subtype="PCM_16")
    assert not probe(path).truncated
    path.write_bytes(path.read_bytes()[:-32_000])
    info = probe(path)
    assert info.truncated
    assert info.frames == 16_000
    assert len(read(path)) == 16_000


def test_truncated_flac_gives_what_is_there_and_warns(tmp_path: Path) -> None:
    path = tmp_path / "sound.flac"
    sound = write(path, 20.0, 16_000, subtype="PCM_16")[:, 0]
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert probe(path).truncated
    with pytest.warns(
        DamagedAudioWarning, match=r"sound\.flac: damaged, the sound ends at 9\.\d+ s of 20\.00 s"
    ):
        samples = read(path)
    assert len(samples) > 9.0 * 16_000  # nearly all of the half that is left
    np.testing.assert_allclose(samples, sound[: len(samples)], atol=1e-4)


@pytest.mark.parametrize(("kind", "subtype"), [("OGG", "VORBIS"), ("OGG", "OPUS"), ("MP3", "MPEG_LAYER_III")])
@pytest.mark.filterwarnings("ignore::mast.audio.DamagedAudioWarning")
def test_truncated_compressed_recordings(tmp_path: Path, kind: str, subtype: str) -> None:
    path = tmp_path / "sound.bin"
    write(path, 20.0, 16_000, format=kind, subtype=subtype)
    assert not probe(path).truncated
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert probe(path).truncated
    assert 8 < len(read(path)) / 16_000 < 12


def test_damage_in_the_middle_of_a_flac_is_not_silent(tmp_path: Path) -> None:
    path = tmp_path / "sound.flac"
    write(path, 20.0, 16_000, subtype="PCM_16")
    content = bytearray(path.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 300] = bytes(300)
    path.write_bytes(content)
    with pytest.warns(DamagedAudioWarning, match="damaged"):
        samples = read(path)
    assert len(samples) > 9.0 * 16_000
