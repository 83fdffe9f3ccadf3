"""Every kind of broken file gets one clear sentence; every kind of good one is described truly."""

from __future__ import annotations

import os
import struct
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf

from mast.audio import find_recordings, no_recordings_error, probe, read, stream, windows
from mast.errors import AudioError
from mast.grid import FrontEnd

RATE = 16_000


def noise(seconds: float, rate: int = RATE, channels: int = 1, seed: int = 0) -> np.ndarray:
    return (
        np.random.default_rng(seed).uniform(-0.5, 0.5, (round(seconds * rate), channels)).astype(np.float32)
    )


def wav_bytes(tmp_path: Path, seconds: float = 1.0) -> bytearray:
    sf.write(tmp_path / "source.wav", noise(seconds), RATE, subtype="PCM_16")
    content = bytearray((tmp_path / "source.wav").read_bytes())
    (tmp_path / "source.wav").unlink()
    return content


def complaint(path: Path) -> str:
    """The sentence for a path: the same from every way in."""
    sentences = set()
    for ask in (probe, read, lambda p: list(stream(p)), lambda p: list(windows(p, FrontEnd()))):
        with pytest.raises(AudioError) as caught:
            ask(path)
        sentences.add(str(caught.value))
    assert len(sentences) == 1
    sentence = sentences.pop()
    assert sentence.startswith(f"{path}: ")
    assert "\n" not in sentence
    return sentence


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("zero.wav", b"", "empty (0 bytes)"),
        ("zero.flac", b"", "empty (0 bytes)"),
        ("text.wav", b"site,date\nAM1,2023\n" * 20, "unknown sound format"),
        ("text.mp3", b"\xff\xfbgarbage" * 2_000, "unknown sound format"),
        ("text.mp3", b"site,date\nAM1,2023\n" * 20, "not readable as sound"),
        ("riff.wav", b"RIFF\x24\x00\x00\x00WAVE", "not readable as sound"),
        ("one.wav", b"R", "not readable as sound"),
        ("flac.flac", b"fLaC\x00\x00", "not readable as sound"),
        ("ogg.ogg", b"OggS\x00\x02", "not readable as sound"),
    ],
)
def test_not_a_recording(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert says in complaint(path)


def test_a_sample_rate_of_nothing(tmp_path: Path) -> None:
    path, content = tmp_path / "a.wav", wav_bytes(tmp_path)
    path.write_bytes(content[:24] + bytes(4) + content[28:])
    assert "not readable as sound (its header is damaged)" in complaint(path)


@pytest.mark.parametrize("length", [4, 12, 20, 30, 40])
def test_truncated_header(tmp_path: Path, length: int) -> None:
    path = tmp_path / "cut.wav"
    path.write_bytes(wav_bytes(tmp_path)[:length])
    assert "not readable as sound" in complaint(path)


def test_missing_folder_and_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no such file" in complaint(tmp_path / "gone.wav")
    (tmp_path / "folder.wav").mkdir()
    assert "is a folder" in complaint(tmp_path / "folder.wav")

    path = tmp_path / "locked.wav"
    path.write_bytes(wav_bytes(tmp_path))

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    # root may read everything, so chmod would prove nothing there
    monkeypatch.setattr(import_module("mast.audio.probe"), "read_chunks", refuse)
    assert "no permission" in complaint(path)


def test_zero_rate_and_zero_channels(tmp_path: Path) -> None:
    for offset, name in ((24, "rate.wav"), (22, "channels.wav")):
        content = wav_bytes(tmp_path)
        content[offset : offset + 2] = b"\0\0"
        (tmp_path / name).write_bytes(content)
        assert "not readable as sound" in complaint(tmp_path / name)


def test_wav_that_was_never_closed(tmp_path: Path) -> None:
    content = wav_bytes(tmp_path)
    content[4:8] = content[40:44] = struct.pack("<I", 0)
    content[44:52] = b"\xff\x80\x01\x02\x03\x04\x05\x06"  # sound, surely no chunk name
    (tmp_path / "unclosed.wav").write_bytes(content)
    assert "0 bytes of sound although sound follows" in complaint(tmp_path / "unclosed.wav")


def test_wav_with_unknown_length_reads_to_the_end(tmp_path: Path) -> None:
    content = wav_bytes(tmp_path)
    content[40:44] = struct.pack("<I", 0xFFFFFFFF)
    (tmp_path / "piped.wav").write_bytes(content)
    info = probe(tmp_path / "piped.wav")
    assert (info.frames, info.truncated) == (RATE, False)


def test_wav_without_sound(tmp_path: Path) -> None:
    sf.write(tmp_path / "none.wav", noise(0), RATE)
    info = probe(tmp_path / "none.wav")
    assert (info.frames, info.duration_s, info.truncated) == (0, 0.0, False)
    assert read(tmp_path / "none.wav").shape == (0,)
    assert list(stream(tmp_path / "none.wav", sample_rate=8_000)) == []
    assert list(windows(tmp_path / "none.wav", FrontEnd(), keep_short=True)) == []


SUBTYPES = [
    ("WAV", "PCM_U8", 1 / 64),
    ("WAV", "PCM_16", 1e-4),
    ("WAV", "PCM_24", 1e-6),
    ("WAV", "PCM_32", 1e-7),
    ("WAV", "FLOAT", 0.0),
    ("WAV", "DOUBLE", 0.0),
    ("WAVEX", "PCM_24", 1e-6),
    ("WAVEX", "FLOAT", 0.0),
    ("RF64", "PCM_16", 1e-4),
    ("RF64", "FLOAT", 0.0),
    ("W64", "PCM_16", 1e-4),
    ("AIFF", "PCM_16", 1e-4),
    ("FLAC", "PCM_S8", 1 / 64),
    ("FLAC", "PCM_16", 1e-4),
    ("FLAC", "PCM_24", 1e-6),
]


@pytest.mark.parametrize(("kind", "subtype", "tolerance"), SUBTYPES)
@pytest.mark.parametrize("channels", [1, 2, 8])
def test_lossless_round_trip(
    tmp_path: Path, kind: str, subtype: str, tolerance: float, channels: int
) -> None:
    path = tmp_path / f"sound.{kind.lower()}"
    sound = noise(0.3, channels=channels)
    sf.write(path, sound, RATE, format=kind, subtype=subtype)
    info = probe(path)
    assert (info.frames, info.channels, info.sample_rate, info.subtype) == (4_800, channels, RATE, subtype)
    assert info.duration_s == 0.3
    assert not info.truncated
    for channel in range(channels):
        samples = read(path, channel=channel)
        assert samples.dtype == np.float32
        np.testing.assert_allclose(samples, sound[:, channel], atol=tolerance)
    np.testing.assert_allclose(read(path), sound.mean(axis=1), atol=tolerance + 1e-6)


@pytest.mark.parametrize(
    ("kind", "subtype", "suffix"),
    [("MP3", "MPEG_LAYER_III", "mp3"), ("OGG", "VORBIS", "ogg"), ("OGG", "OPUS", "opus")],
)
@pytest.mark.parametrize("channels", [1, 2])
def test_lossy_formats_keep_the_tone_in_place(
    tmp_path: Path, kind: str, subtype: str, suffix: str, channels: int
) -> None:
    rate = 48_000
    times = np.arange(2 * rate) / rate
    tone = np.where((times > 1.0) & (times < 1.5), 0.5 * np.sin(2 * np.pi * 1_000 * times), 0.0)
    path = tmp_path / f"tone.{suffix}"
    sf.write(path, np.repeat(tone[:, None], channels, axis=1), rate, format=kind, subtype=subtype)
    info = probe(path)
    assert (info.channels, info.sample_rate, info.truncated) == (channels, rate, False)
    assert info.duration_s == pytest.approx(2.0, abs=0.1)
    loud = np.flatnonzero(np.abs(read(path)) > 0.25) / rate
    assert loud[0] == pytest.approx(1.0, abs=0.01)
    assert loud[-1] == pytest.approx(1.5, abs=0.01)


@pytest.mark.parametrize(
    ("rate", "channels"), [(4_000, 1), (384_000, 1), (500_000, 1), (384_000, 8), (11_025, 2)]
)
def test_unusual_rates(tmp_path: Path, rate: int, channels: int) -> None:
    path = tmp_path / "sound.wav"
    sf.write(path, noise(0.25, rate, channels), rate)
    assert probe(path).sample_rate == rate
    assert read(path).shape == (round(0.25 * rate),)
    assert read(path, sample_rate=16_000).shape[0] == pytest.approx(4_000, abs=1)


def test_silence_is_sound(tmp_path: Path) -> None:
    sf.write(tmp_path / "silent.wav", np.zeros(RATE * 11), RATE)
    got = list(windows(tmp_path / "silent.wav", FrontEnd()))
    assert len(got) == 2
    assert not any(window.samples.any() for window in got)


def test_find_recordings(tmp_path: Path) -> None:
    for name in (
        "b.WAV",
        "a.flac",
        "deep/er/c.Mp3",
        "d.opus",
        "notes.txt",
        "._a.flac",
        ".hidden/e.wav",
        ".f.wav",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "deep" / "loop").symlink_to(tmp_path, target_is_directory=True)
    found = find_recordings(tmp_path)
    assert [path.relative_to(tmp_path).as_posix() for path in found] == [
        "a.flac",
        "b.WAV",
        "d.opus",
        "deep/er/c.Mp3",
    ]


def test_find_recordings_follows_a_linked_folder(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "a.wav").touch()
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "linked").symlink_to(tmp_path / "disk", target_is_directory=True)
    assert find_recordings(tmp_path / "set") == [tmp_path / "set" / "linked" / "a.wav"]


def test_find_recordings_needs_a_folder(tmp_path: Path) -> None:
    with pytest.raises(AudioError, match="no such folder"):
        find_recordings(tmp_path / "gone")
    (tmp_path / "file").touch()
    with pytest.raises(AudioError, match="is a file; expected a folder of recordings"):
        find_recordings(tmp_path / "file")
    assert find_recordings(tmp_path) == []


def test_no_recordings_may_be_due_to_a_folder_that_cannot_be_listed() -> None:
    told = "card: no recordings found; expected files ending in .wav, .flac, .mp3, .ogg or .opus, here or in subfolders"
    assert str(no_recordings_error("card")) == told
    assert str(no_recordings_error("card", ["card/a: locked", "card/b: locked"])) == f"{told}; card/a: locked"


@pytest.mark.skipif(os.name != "posix", reason="file names are bytes on POSIX only")
def test_file_name_that_is_not_text(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.wav"))
    try:
        path.write_bytes(wav_bytes(tmp_path))
    except OSError:
        pytest.skip("this file system wants UTF-8 names")
    assert probe(path).frames == RATE


@pytest.mark.real
def test_real_recordings_are_as_their_table_says(shared_data: Path) -> None:
    import pandas as pd

    for name in ("birdeep_am1", "nbm_xc", "tagus_fish", "cr_bats"):
        table = pd.read_csv(shared_data / name / "recordings.csv")
        for row in table.itertuples():
            info = probe(shared_data / name / "audio" / str(row.file))
            assert info.sample_rate == row.sample_rate
            assert info.duration_s == pytest.approx(row.duration_s, abs=1e-3)
            assert not info.truncated
