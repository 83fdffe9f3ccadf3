"""Headers that lie are not believed, libraries are not heard, and folders do not vanish."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import threading
import warnings
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf
from hostile_recordings import (
    RATE,
    deny_listing,
    flac_declaring,
    mp3_declaring,
    noise,
    ogg_declaring,
    with_guano,
)

from mast.audio import (
    DamagedAudioWarning,
    Unlisted,
    describe,
    find_recordings,
    metadata,
    names_on_disk,
    probe,
    read,
    stream,
    text_names,
)
from mast.audio.libsndfile import silence_stderr
from mast.errors import AudioError


def sound_in(path: Path) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamagedAudioWarning)
        return sum(len(block) for block in stream(path))


@pytest.mark.parametrize("total", [2**35, 2**36 - 1, 3 * RATE + 778, 10 * RATE])
def test_a_flac_that_promises_too_much(tmp_path: Path, total: int) -> None:
    path = flac_declaring(tmp_path / "a.flac", total)
    info = probe(path)
    assert info.frames == pytest.approx(3 * RATE + 777, abs=1)  # soundfile never gives the very last
    assert info.truncated
    assert sound_in(path) == info.frames
    with pytest.warns(DamagedAudioWarning, match=r"sound ends at 3\.05 s of"):
        list(stream(path))


def test_a_flac_of_unknown_length_is_not_damaged(tmp_path: Path) -> None:
    path = flac_declaring(tmp_path / "a.flac", 0)
    info = probe(path)
    assert info.frames == pytest.approx(3 * RATE + 777, abs=1)
    assert not info.truncated
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(read(path)) == info.frames
    assert len(read(path, start_s=1, end_s=2)) == RATE


@pytest.mark.parametrize("mpeg_frames", [10**6, 2**31 - 1, 2**32 - 1])
def test_an_mp3_that_promises_too_much(tmp_path: Path, mpeg_frames: int) -> None:
    info = probe(mp3_declaring(tmp_path / "a.mp3", mpeg_frames))
    assert info.duration_s == pytest.approx(3.0, abs=0.3)
    assert info.truncated


@pytest.mark.parametrize("suffix", ["ogg", "opus"])
@pytest.mark.parametrize("position", [2**40, 2**62, 2**63 - 1])
def test_an_ogg_that_promises_too_much(tmp_path: Path, suffix: str, position: int) -> None:
    path = ogg_declaring(tmp_path / f"a.{suffix}", position)
    assert probe(path).duration_s == pytest.approx(3.0, abs=0.3)
    assert sound_in(path) == pytest.approx(3 * RATE, rel=0.1)


@pytest.mark.parametrize("rate", [1, 19, 2**31 - 1])
def test_rates_that_no_recorder_has(tmp_path: Path, rate: int) -> None:
    sf.write(tmp_path / "a.wav", noise(RATE), RATE)
    content = bytearray((tmp_path / "a.wav").read_bytes())
    content[24:28] = struct.pack("<I", rate)
    (tmp_path / "a.wav").write_bytes(content)
    with pytest.raises(AudioError, match=f"a sample rate of {rate:,} Hz, which no sound recorder uses"):
        probe(tmp_path / "a.wav")


def test_the_end_of_a_flac_is_looked_at_from_a_little_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a seek to the last sample takes seconds in a long file: libFLAC reads all of it
    sf.write(tmp_path / "a.flac", noise(10 * RATE), RATE)
    sought: list[int] = []
    seek = sf.SoundFile.seek

    def noted(self: sf.SoundFile, frames: int, whence: int = 0) -> int:
        if whence == 0:  # not where it is asked for the present place
            sought.append(frames)
        return seek(self, frames, whence)

    monkeypatch.setattr(sf.SoundFile, "seek", noted)
    assert not probe(tmp_path / "a.flac").truncated
    assert sought[0] == 10 * RATE - 8_192
    assert set(sought[1:]) <= {10 * RATE}  # soundfile's own, after reading to the end


@pytest.mark.skipif(
    not (hasattr(os, "confstr") and (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")),
    reason="decoders are silenced on glibc only",
)
def test_decoders_are_not_heard(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = mp3_declaring(tmp_path / "a.mp3", 10**6)
    content = bytearray(path.read_bytes())
    content[3_000:4_500] = bytes(1_500)
    path.write_bytes(content)
    with sf.SoundFile(path) as file, suppress(sf.LibsndfileError):
        file.read()
    assert "Illegal Audio-MPEG-Header" in capfd.readouterr().err  # what it would say
    probe(path)
    sound_in(path)
    metadata(path)
    assert capfd.readouterr().err == ""
    ctypes.CDLL(None).perror(b"others are heard")
    assert "others are heard" in capfd.readouterr().err


def test_silence_ends_when_the_last_thread_leaves(capfd: pytest.CaptureFixture[str]) -> None:
    inside, leave = threading.Event(), threading.Event()

    def decode() -> None:
        with silence_stderr():
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=decode)
    thread.start()
    inside.wait(10)
    with silence_stderr():
        pass
    print("Python speaks", file=sys.stderr)
    leave.set()
    thread.join()
    assert "Python speaks" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        ("2023-05-10T07:30:00+25:00", None),
        ("2023-05-10T07:30:00+24:00", None),
        ("2023-05-10T07:30:00-99:99", None),
        ("2023-05-10T07:30:00+15:00", None),
        ("2023-05-10T07:30:00+x", None),
        ("0001-01-01T00:00:00+14:00", None),
        ("2023-05-10T07:30:00+05:30", "2023-05-10T07:30:00+05:30"),
    ],
)
def test_guano_times_that_no_clock_shows(tmp_path: Path, timestamp: str, expected: str | None) -> None:
    about = metadata(with_guano(tmp_path / "a.wav", f"Timestamp:{timestamp}\nSite:OAK"))
    assert (about.datetime and about.datetime.isoformat()) == expected


@pytest.mark.parametrize("place", ["nan nan", "91 0", "0 181", "1e999 0", "inf inf", "north south", "1"])
def test_guano_places_that_are_not_on_earth(tmp_path: Path, place: str) -> None:
    about = metadata(with_guano(tmp_path / "a.wav", f"Loc Position:{place}"))
    assert (about.latitude, about.longitude) == (None, None)


def test_a_file_full_of_empty_chunks_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.wav"
    path.write_bytes(b"RIFF\0\0\0\0WAVE" + b"AAAA\0\0\0\0" * 1_000)
    monkeypatch.setattr(import_module("mast.audio.riff"), "_MAX_CHUNKS", 10)
    with pytest.raises(AudioError, match="not readable as sound"):
        probe(path)


def test_things_that_are_not_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.wav")
    (tmp_path / "loop.wav").symlink_to(tmp_path / "loop.wav")
    (tmp_path / "gone.wav").symlink_to(tmp_path / "nowhere.wav")
    (tmp_path / "folder.wav").mkdir()
    assert [path.name for path in find_recordings(tmp_path)] == ["gone.wav", "loop.wav", "pipe.wav"]
    for name, says in (
        ("pipe.wav", "is not a file but a pipe"),
        ("loop.wav", "cannot be read"),
        ("gone.wav", "no such file"),
        ("folder.wav", "is a folder"),
        ("x" * 300 + ".wav", "cannot be read"),
        ("a\0b.wav", "cannot be read"),
    ):
        with pytest.raises(AudioError, match=says):
            describe(tmp_path / name)


def test_whatever_a_recording_raises_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sf.write(tmp_path / "a.wav", noise(RATE), RATE)

    def surprised(*_: object) -> None:
        raise ZeroDivisionError("never seen before\n" * 1_000)

    monkeypatch.setattr(import_module("mast.audio.describe"), "metadata", surprised)
    with pytest.raises(AudioError) as caught:
        describe(tmp_path / "a.wav")
    assert str(caught.value).startswith(
        f"{tmp_path / 'a.wav'}: cannot be read (ZeroDivisionError: never seen"
    )
    assert len(str(caught.value)) < 1_000


def test_folders_that_cannot_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.wav", "locked/b.wav", "open/c.wav"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    deny_listing(monkeypatch, tmp_path / "locked")
    unlisted: list[Unlisted] = []
    found = find_recordings(tmp_path, unlisted=unlisted)
    assert [path.name for path in found] == ["a.wav", "c.wav"]
    assert [some.folder for some in unlisted] == [tmp_path / "locked"]
    assert "cannot be listed (Permission denied)" in unlisted[0].reason
    with pytest.warns(UserWarning, match="locked: cannot be listed"):
        find_recordings(tmp_path)
    with pytest.raises(AudioError, match="locked: cannot be listed"):
        find_recordings(tmp_path / "locked")


def test_names_are_text_and_no_two_alike(tmp_path: Path) -> None:
    names = ["plain.wav", "caf\udce9.wav", "caf\\xe9.wav", "caf\\udce9.wav", "d\udce9r/x.wav"]
    found = text_names([tmp_path / name for name in names], tmp_path)
    spelt = list(found.values())
    assert len(set(spelt)) == len(names)
    for name in spelt:
        name.encode()
    assert spelt[0] == "plain.wav"
    assert spelt[2:] == ["caf\\xe9.wav", "caf\\udce9.wav", "d\\xe9r/x.wav"]
    usual = text_names([tmp_path / "caf\udce9.wav"], tmp_path)
    assert list(usual.values()) == ["caf\\xe9.wav"]
    for name in ("caf\udce9.wav", "d\udce9r/x.wav"):
        for twin in ([], [tmp_path / "caf\\xe9.wav"]):
            one = text_names([tmp_path / name, *twin], tmp_path)[tmp_path / name]
            assert name in names_on_disk(one)
    assert names_on_disk("plain.wav") == ["plain.wav"]


def test_a_site_folder_whose_name_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "Ch\udceane" / "a.wav"
    path.parent.mkdir()
    sf.write(os.fsencode(path), noise(RATE), RATE)
    assert metadata(path, tmp_path).site == "Ch\\xeane"


def test_many_channels(tmp_path: Path) -> None:
    sf.write(tmp_path / "a.wav", np.zeros((100, 1_000)), RATE)
    assert len(read(tmp_path / "a.wav")) == 100


def test_damage_in_the_middle_costs_few_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # behind the damage libFLAC may continue, sample by sample
    sf.write(tmp_path / "a.flac", noise(20 * RATE), RATE)
    content = bytearray((tmp_path / "a.flac").read_bytes())
    content[len(content) // 2 : len(content) // 2 + 3_000] = np.random.default_rng(1).bytes(3_000)
    (tmp_path / "a.flac").write_bytes(content)
    reads = 0
    read_some = sf.SoundFile.read

    def counted(self: sf.SoundFile, *arguments: object, **options: object) -> object:
        nonlocal reads
        reads += 1
        return read_some(self, *arguments, **options)

    monkeypatch.setattr(sf.SoundFile, "read", counted)
    assert 8 * RATE < sound_in(tmp_path / "a.flac") < 20 * RATE
    assert reads < 100
