"""When and where: real-world names, folders, and headers written into real files."""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import guano
import numpy as np
import pytest
import soundfile as sf

from mast.audio import Metadata, metadata
from mast.audio.clock import site_in_name, time_in_name
from mast.audio.headers import parse_audiomoth_comment, parse_offset
from mast.audio.riff import read_chunks

MORNING = datetime(2023, 5, 10, 7, 30)


def zone(hours: float) -> timezone:
    return timezone(timedelta(hours=hours))


@pytest.mark.parametrize(
    ("name", "when", "site"),
    [
        # Song Meter
        ("AM1_20230510_073000", MORNING, "AM1"),
        ("BLACK_OAK-3_20230510_073000", MORNING, "BLACK_OAK-3"),
        ("S4A04430_20230510_073000", MORNING, "S4A04430"),
        ("S4A04430_A_20230510_073000", MORNING, "S4A04430"),
        ("2MM01234_20230510_073000", MORNING, "2MM01234"),
        ("SMM05123_20230510_073000", MORNING, "SMM05123"),
        ("OAK_0+1_20230510_073000", MORNING, "OAK"),
        ("OAK_0+1_20230510_073000_000", MORNING, "OAK"),
        ("OAK_0+_20230510_073000", MORNING, "OAK"),
        ("OAK_+1_20230510_073000", MORNING, "OAK"),
        ("S5A00032_AC_20230510$073000", MORNING, "S5A00032"),
        ("Plot_1_20230510_073000", MORNING, "Plot_1"),
        ("OAK_20230510$073000", MORNING, "OAK"),
        ("Plot_A_20230510_073000", MORNING, "Plot_A"),
        ("Montijo_20210708_000000", datetime(2021, 7, 8), "Montijo"),
        ("site 12 - 20230510_073000", MORNING, "site 12"),
        # AudioMoth
        ("20230510_073000", MORNING, None),
        ("20230510_073000T", MORNING, None),
        ("24F319055FDF2C94_20230510_073000", MORNING, None),
        ("5E90A4D4", datetime(2020, 4, 10, 16, 54, 44, tzinfo=UTC), None),
        # others
        ("20170116_1130_", datetime(2017, 1, 16, 11, 30), None),
        ("20230510-0730", MORNING, None),
        ("20230510T073000Z_frog", MORNING.replace(tzinfo=UTC), None),
        ("20230510T073000+1000_REC", MORNING.replace(tzinfo=zone(10)), None),
        ("20230510T073000-0330", MORNING.replace(tzinfo=zone(-3.5)), None),
        ("20230510_073000-0100", MORNING, None),
        ("2023-05-10T07-30-00", MORNING, None),
        ("2023-05-10T07:30:00Z", MORNING.replace(tzinfo=UTC), None),
        ("2023-05-10_07-30-00", MORNING, None),
        ("2023-05-10 07.30.00", MORNING, None),
        ("2023_05_10_07_30_00", MORNING, None),
        ("2023-05-10_0730", MORNING, None),
        ("ridge_2023-05-10_07h30m00", MORNING, "ridge"),
        ("20230510073000", MORNING, None),
        ("hill-20230510073000", MORNING, "hill"),
        ("5678.230510073000", MORNING, None),
        ("rec_20230510_073000", MORNING, None),
        ("20240229_235959", datetime(2024, 2, 29, 23, 59, 59), None),
        # nothing, or nothing possible
        ("XC557182", None, None),
        ("XC820302-Noctilio_leporinus-2013.01.08-CL00088_A_15", None, None),
        ("XC1-frog_20230510_073000", None, None),
        ("20231310_073000", None, None),
        ("20230230_073000", None, None),
        ("20230229_073000", None, None),
        ("20230510_253000", None, None),
        ("20230510_076000", None, None),
        ("17000101_000000", None, None),
        ("19700101_000000", None, None),
        ("20230510", None, None),
        ("2023-05-10", None, None),
        ("120230510_0730001", None, None),
        ("5e90a4d4", None, None),
        ("00000001", None, None),
        ("FFFFFFFF", None, None),
        ("dawn chorus", None, None),
        ("ZOOM0001", None, None),
        ("", None, None),
    ],
)
def test_names(name: str, when: datetime | None, site: str | None) -> None:
    assert time_in_name(name) == when
    if when is not None:
        assert time_in_name(name).utcoffset() == when.utcoffset()
    assert site_in_name(name) == site


@pytest.mark.parametrize(
    ("file", "site", "when"),
    [
        ("OAK/2023-05-10/20230510_073000.wav", "OAK", MORNING),
        ("OAK/2023-05-10/073000.wav", "OAK", MORNING),
        ("OAK/20230510/07-30.wav", "OAK", MORNING),
        ("OAK/073000.wav", "OAK", None),
        ("OAK/2023-13-10/073000.wav", "OAK", None),
        ("OAK/2023-05-10/253000.wav", "OAK", None),
        ("study/OAK/audio/Data/20230510_073000.WAV", "OAK", MORNING),
        ("OAK/2023/2023-05/x.wav", "OAK", None),
        ("OAK/20230510_000000_card/x.wav", "OAK", None),
        ("OAK/ELM_20230510_073000.wav", "ELM", MORNING),
        ("audio/20230510_073000.wav", None, MORNING),
        ("20230510_073000.wav", None, MORNING),
        ("x.wav", None, None),
    ],
)
def test_folders(tmp_path: Path, file: str, site: str | None, when: datetime | None) -> None:
    about = metadata(tmp_path / file, tmp_path)
    assert (about.site, about.datetime) == (site, when)


def test_folders_above_the_dataset_say_nothing(tmp_path: Path) -> None:
    assert metadata(tmp_path / "OAK" / "x.wav").site is None
    assert metadata(tmp_path / "OAK" / "x.wav", tmp_path / "OAK").site is None
    assert metadata(tmp_path / "OAK" / "x.wav", tmp_path / "ELM").site is None


SPOKEN = "Recorded at 19:17:30 24/02/2019"
COMMENTS = [
    (f"{SPOKEN} (UTC) by AudioMoth 0FE081F80FE081F0 at gain setting 2 while battery state was 4.5V", 0.0),
    (
        f"{SPOKEN} (UTC-3) by AudioMoth 24F319055FDF2C94 at medium gain setting while battery was 4.5V.",
        -3.0,
    ),
    (f"{SPOKEN} (UTC+5:30) during deployment 24F319055FDF2C94 at medium gain while battery was 4.9V.", 5.5),
    (f"{SPOKEN} (UTC-03:30) by AudioMoth 24F319055FDF2C94. Recording stopped due to switch change.", -3.5),
    (f"{SPOKEN} (UTC+10) by HydroMoth 24F319055FDF2C94 at low gain and temperature was 12.3C.", 10.0),
    (f"{SPOKEN} by AudioMoth 24F319055FDF2C94 at gain setting 2 while battery state was 3.9V", None),
]


@pytest.mark.parametrize(("comment", "offset"), COMMENTS)
def test_audiomoth_comments(comment: str, offset: float | None) -> None:
    when = parse_audiomoth_comment(comment)
    assert when is not None
    assert when.replace(tzinfo=None) == datetime(2019, 2, 24, 19, 17, 30)
    assert when.utcoffset() == (None if offset is None else timedelta(hours=offset))


@pytest.mark.parametrize(
    "comment",
    [
        "",
        "Recorded with love",
        "Recorded at 19:17:30 24/13/2019 (UTC) by AudioMoth",
        "Recorded at 25:17:30 24/02/2019 (UTC) by AudioMoth",
        f"{SPOKEN} (UTC+soon) by AudioMoth",
        f"{SPOKEN} (UTC+44) by AudioMoth",
    ],
)
def test_audiomoth_comments_that_say_no_time(comment: str) -> None:
    assert parse_audiomoth_comment(comment) is None


def test_audiomoth_fractions_of_a_second() -> None:
    when = parse_audiomoth_comment("Recorded at 10:00:00.250 14/07/2021 (UTC) by AudioMoth 24F319055FDF2C94")
    assert when == datetime(2021, 7, 14, 10, 0, 0, 250_000, tzinfo=UTC)


def test_offsets() -> None:
    assert parse_offset("+2") == zone(2)
    assert parse_offset("-0330") == zone(-3.5)
    assert parse_offset("2") is None
    assert parse_offset("+15") is None


def chunk(name: bytes, content: bytes) -> bytes:
    return name + struct.pack("<I", len(content)) + content + b"\0" * (len(content) % 2)


def wav_with(before: bytes = b"", after: bytes = b"", seconds: float = 0.1) -> bytes:
    """A 16-bit 8 kHz WAV with further chunks before and after its sound."""
    form = chunk(b"fmt ", struct.pack("<HHIIHH", 1, 1, 8_000, 16_000, 2, 16))
    sound = np.zeros(round(seconds * 8_000), "<i2").tobytes()
    body = b"WAVE" + form + before + chunk(b"data", sound) + after
    return b"RIFF" + struct.pack("<I", len(body)) + body


def info_list(**entries: str) -> bytes:
    """A LIST/INFO chunk; texts padded with NUL bytes as AudioMoth does."""
    return chunk(
        b"LIST",
        b"INFO"
        + b"".join(chunk(name.encode(), text.encode().ljust(256, b"\0")) for name, text in entries.items()),
    )


@pytest.mark.parametrize("place", ["before", "after"])
def test_audiomoth_header_in_a_file(tmp_path: Path, place: str) -> None:
    path = tmp_path / "20230510_073000.WAV"
    notes = info_list(ICMT=COMMENTS[1][0], IART="AudioMoth 24F319055FDF2C94")
    path.write_bytes(wav_with(**{place: notes}))
    assert sf.info(path).frames == 800
    about = metadata(path, tmp_path)
    assert about.datetime == datetime(2019, 2, 24, 19, 17, 30, tzinfo=zone(-3))  # the header, not the name
    assert about.recorder == "AudioMoth 24F319055FDF2C94"
    assert about.site is None


def test_audiomoth_comment_that_was_carried_into_a_flac(tmp_path: Path) -> None:
    path = tmp_path / "x.flac"
    with sf.SoundFile(path, "w", 8_000, 1) as file:
        file.comment = COMMENTS[0][0]
        file.write(np.zeros(800))
    assert metadata(path).datetime == datetime(2019, 2, 24, 19, 17, 30, tzinfo=UTC)


def test_unset_clock_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "x.wav"
    path.write_bytes(
        wav_with(before=info_list(ICMT="Recorded at 00:00:05 01/01/1970 (UTC) by AudioMoth 24F319055FDF2C94"))
    )
    assert metadata(path).datetime is None


def test_guano_chunk_written_by_the_guano_library(tmp_path: Path) -> None:
    path = tmp_path / "bat.wav"
    path.write_bytes(wav_with())
    notes = guano.GuanoFile(str(path))
    notes["Timestamp"] = datetime(2021, 7, 14, 22, 0, 5, tzinfo=zone(2))
    notes["Loc Position"] = (48.25, 11.5)
    notes["Make"], notes["Model"] = "Pettersson", "D500X"
    notes["NABat|Site Name"] = "Mühlbach"
    notes.write(make_backup=False)
    about = metadata(path, tmp_path)
    assert about == Metadata(
        site="Mühlbach",
        datetime=datetime(2021, 7, 14, 22, 0, 5, tzinfo=zone(2)),
        recorder="Pettersson D500X",
        latitude=48.25,
        longitude=11.5,
    )


@pytest.mark.parametrize(
    ("content", "when"),
    [
        (b"GUANO|Version: 1.0\nTimestamp: 2021-07-14T22:00:05", datetime(2021, 7, 14, 22, 0, 5)),
        (b"GUANO|Version: 1.0\nTimestamp: 2021-07-14T22:00:05Z", datetime(2021, 7, 14, 22, 0, 5, tzinfo=UTC)),
        (b"GUANO|Version: 1.0\nTimestamp: last tuesday\nLoc Position: here", None),
        (b"GUANO|Version: 1.0\nno colon in this line", None),
        (b"\xff\xfe\x00garbage", None),
        (b"", None),
    ],
)
def test_guano_chunks_good_and_bad(tmp_path: Path, content: bytes, when: datetime | None) -> None:
    path = tmp_path / "x.wav"
    path.write_bytes(wav_with(after=chunk(b"guan", content)))
    about = metadata(path)
    assert about.datetime == when
    assert (about.latitude, about.longitude) == (None, None)


def test_wildlife_acoustics_chunk(tmp_path: Path) -> None:
    fields = {0x01: b"SM4", 0x02: b"S4A04430", 0x04: b"OAK\0", 0x05: b"2023-05-10 07:30:00+02:00", 0x99: b"?"}
    content = b"".join(struct.pack("<HI", key, len(value)) + value for key, value in fields.items())
    path = tmp_path / "x.wav"
    path.write_bytes(wav_with(after=chunk(b"wamd", content)))
    about = metadata(path)
    assert (about.site, about.datetime) == ("OAK", MORNING.replace(tzinfo=zone(2)))
    assert about.recorder == "SM4 S4A04430"
    path.write_bytes(wav_with(after=chunk(b"wamd", content[:9])))
    assert metadata(path) == Metadata(recorder="SM4")
    path.write_bytes(wav_with(after=chunk(b"wamd", b"\0\0\0")))
    assert metadata(path) == Metadata()


def test_notes_behind_rf64_sound(tmp_path: Path) -> None:
    path = tmp_path / "x.wav"
    sf.write(path, np.zeros(8_001, np.float32), 8_000, format="RF64", subtype="PCM_16")
    with open(path, "ab") as file:
        file.write(info_list(ICMT=COMMENTS[0][0]))
    assert metadata(path).datetime == datetime(2019, 2, 24, 19, 17, 30, tzinfo=UTC)


def test_sound_is_not_read_for_the_notes(tmp_path: Path) -> None:
    """A sparse 3 GB file: reading its sound would show in bytes read; seeking does not."""
    path = tmp_path / "long.wav"
    size = 3_000_000_000
    head = wav_with(seconds=0)
    notes = info_list(ICMT=COMMENTS[0][0])
    with open(path, "wb") as file:
        file.write(head[:-4] + struct.pack("<I", size))
        file.seek(size, 1)
        file.write(notes)
    chunks = read_chunks(path)
    assert chunks is not None
    assert (chunks.declared_bytes, chunks.available_bytes, chunks.truncated) == (size, size, False)
    assert metadata(path).datetime == datetime(2019, 2, 24, 19, 17, 30, tzinfo=UTC)


@pytest.mark.parametrize("length", range(0, 140, 7))
def test_chunks_of_a_cut_file_never_fail(tmp_path: Path, length: int) -> None:
    path = tmp_path / "x.wav"
    path.write_bytes(wav_with(before=info_list(ICMT="x"), after=chunk(b"guan", b"a: b"))[:length])
    assert isinstance(metadata(path), Metadata)


@pytest.mark.real
@pytest.mark.parametrize("name", ["birdeep_am1", "tagus_fish", "nbm_xc", "cr_bats"])
def test_real_names_agree_with_their_table(shared_data: Path, name: str) -> None:
    import pandas as pd

    root = shared_data / name
    table = pd.read_csv(root / "recordings.csv", dtype=str, keep_default_na=False)
    for row in table.itertuples():
        about = metadata(root / "audio" / row.file, root)
        assert (about.datetime.isoformat() if about.datetime else "") == row.datetime
        if about.site is not None:  # tables may know more than names say
            assert row.site.endswith(about.site)
