"""`mast scan`: counts what is there, lists what is broken, loses nothing written by hand."""

from __future__ import annotations

import csv
import os
import re
import shutil
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf
import typer
from typer.testing import CliRunner, Result

from mast.audio import Metadata
from mast.cli.scan import scan
from mast.errors import MastError

sys.path.insert(0, str(Path(__file__).parents[1] / "audio"))
from hostile_recordings import deny_listing

app = typer.Typer()
app.command()(scan)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three good recordings of two sites, one of them truncated, and three that are broken."""
    root = tmp_path / "survey"
    for name, rate, seconds in (
        ("OAK/20230510_073000.WAV", 16_000, 1.0),
        ("OAK/20230511_073000.WAV", 16_000, 1.0),
        ("ELM_20230512_183000.flac", 48_000, 2.0),
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        sf.write(root / name, np.zeros((round(rate * seconds), 2)), rate)
    cut = root / "OAK" / "20230511_073000.WAV"
    cut.write_bytes(cut.read_bytes()[:-32_000])
    (root / "empty.wav").touch()
    (root / "text.wav").write_text("not sound\n" * 30)
    (root / "header.flac").write_bytes(b"fLaC")
    (root / "._ELM_20230512_183000.flac").write_bytes(b"shadow")
    (root / "notes.txt").write_text("hello")
    return root


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["--quiet", *map(str, arguments)])


def table(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_table_failures_and_summary(folder: Path) -> None:
    out = folder / "recordings.csv"
    result = run(folder, "--out", out)
    assert result.exit_code == 4, result.output  # some are unreadable
    rows = table(out)
    assert [(row["file"], row["site"], row["datetime"], row["duration_s"]) for row in rows] == [
        ("ELM_20230512_183000.flac", "ELM", "2023-05-12T18:30:00", "2"),
        ("OAK/20230510_073000.WAV", "OAK", "2023-05-10T07:30:00", "1"),
        ("OAK/20230511_073000.WAV", "OAK", "2023-05-11T07:30:00", "0.5"),
    ]
    assert [row["sample_rate"] for row in rows] == ["48000", "16000", "16000"]
    assert {row["channels"] for row in rows} == {"2"}
    assert [row["format"] for row in rows] == ["FLAC PCM_16", "WAV PCM_16", "WAV PCM_16"]
    assert [row["warning"] for row in rows] == ["", "", "truncated"]
    failures = table(folder / "failures.csv")
    assert [row["file"] for row in failures] == ["empty.wav", "header.flac", "text.wav"]
    assert "empty (0 bytes)" in failures[0]["reason"]

    lines = result.stdout.splitlines()
    said = {line.split("  ")[0]: line for line in lines}
    assert said["recordings"].endswith(" 3")
    assert "16000 Hz (2), 48000 Hz (1)" in said["sample rates"]
    assert "2: OAK (2), ELM (1)" in said["sites"]
    assert "3, 2023-05-10 to 2023-05-12" in said["days"]
    assert said["unreadable"].endswith(" 3")
    assert said["warnings"].endswith(" 1")
    assert lines[-1] == f"3 recordings in {out}; 3 unreadable in {folder / 'failures.csv'}."


def test_a_little_sound_of_one_day(tmp_path: Path) -> None:
    sf.write(tmp_path / "OAK_20230510_073000.wav", np.zeros(96_000), 8_000)
    header = (tmp_path / "OAK_20230510_073000.wav").read_bytes()[:44]
    (tmp_path / "OAK_20230510_080000.wav").write_bytes(header)
    lines = run(tmp_path).stdout.splitlines()
    assert "minutes       0.20" in lines
    assert "days          1, 2023-05-10" in lines
    assert "  OAK_20230510_080000.wav: no sound" in lines


def test_a_table_that_a_spreadsheet_saved_with_semicolons_is_kept(folder: Path) -> None:
    out = folder / "recordings.csv"
    out.write_text("file;site;split\nOAK/20230510_073000.WAV;Old Oak;train\n")
    run(folder, "--out", out)
    rows = {row["file"]: row for row in table(out)}
    assert (rows["OAK/20230510_073000.WAV"]["site"], rows["OAK/20230510_073000.WAV"]["split"]) == (
        "Old Oak",
        "train",
    )


def test_without_out_nothing_is_written(folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    result = run(folder)
    assert result.exit_code == 4
    assert result.stdout.splitlines()[-1] == "3 recordings; 3 unreadable."
    assert sorted(folder.rglob("*")) == before


def test_many_files_of_which_three_are_broken(tmp_path: Path) -> None:
    good = tmp_path / "good.wav"
    sf.write(good, np.zeros(80), 8_000)
    root = tmp_path / "many"
    root.mkdir()
    for index in range(500):
        shutil.copyfile(good, root / f"{index:04}.wav")
    broken = ["0007.wav", "0123.wav", "0499.wav"]
    for name in broken:
        (root / name).write_bytes(b"RIFF")
    result = run(root, "--out", tmp_path / "recordings.csv")
    assert result.exit_code == 4
    assert [row["file"] for row in table(tmp_path / "failures.csv")] == broken
    assert len(table(tmp_path / "recordings.csv")) == 497
    assert "3 unreadable" in result.stdout.splitlines()[-1]


def test_what_was_written_by_hand_stays(folder: Path) -> None:
    out = folder / "recordings.csv"
    out.write_text(
        "file,split,site,datetime,duration_s\n"
        "OAK/20230510_073000.WAV,train,Old Oak,,999\n"
        "ELM_20230512_183000.flac,test,,2023-05-12T20:30:00+02:00,\n"
        "gone.wav,val,Ash,,5\n",
        encoding="utf-8-sig",
    )
    result = run(folder, "--out", out)
    rows = {row["file"]: row for row in table(out)}
    assert list(rows) == [
        "ELM_20230512_183000.flac",
        "OAK/20230510_073000.WAV",
        "OAK/20230511_073000.WAV",
        "gone.wav",
    ]
    oak, elm = rows["OAK/20230510_073000.WAV"], rows["ELM_20230512_183000.flac"]
    assert (oak["split"], oak["site"], oak["datetime"]) == ("train", "Old Oak", "2023-05-10T07:30:00")
    assert oak["duration_s"] == "1"  # measured, not believed
    assert (elm["split"], elm["site"], elm["datetime"]) == ("test", "ELM", "2023-05-12T20:30:00+02:00")
    assert rows["gone.wav"]["split"] == "val"
    closing = result.stdout.splitlines()[-1]
    assert "columns and values of the earlier recordings.csv kept" in closing
    assert "1 of its rows name files that are not readable here" in closing
    again = out.read_bytes()
    run(folder, "--out", out)
    assert out.read_bytes() == again


def test_table_that_names_files_below_audio(tmp_path: Path) -> None:
    (tmp_path / "audio").mkdir()
    sf.write(tmp_path / "audio" / "a.wav", np.zeros(800), 8_000)
    (tmp_path / "recordings.csv").write_text("file,split\na.wav,train\n")
    run(tmp_path, "--out", tmp_path / "recordings.csv")
    (row,) = table(tmp_path / "recordings.csv")
    assert (row["file"], row["split"], row["duration_s"]) == ("a.wav", "train", "0.1")


def test_a_file_that_is_not_a_table_of_recordings_is_left_alone(folder: Path) -> None:
    out = folder / "thesis.csv"
    out.write_text("chapter,pages\n1,20\n")
    result = run(folder, "--out", out)
    assert result.exit_code == 1
    assert isinstance(result.exception, MastError)
    assert "no column 'file'" in str(result.exception)
    assert out.read_text() == "chapter,pages\n1,20\n"


def test_repaired_files_leave_the_list_of_failures(folder: Path) -> None:
    out = folder / "recordings.csv"
    run(folder, "--out", out)
    for name in ("empty.wav", "text.wav", "header.flac"):
        (folder / name).unlink()
    result = run(folder, "--out", out)
    assert table(folder / "failures.csv") == []
    assert "0 unreadable" in result.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda root: None, "no such folder"),
        (lambda root: root.mkdir(), "no recordings found"),
        (lambda root: root.touch(), "is a file"),
    ],
)
def test_nothing_to_scan(tmp_path: Path, make: object, says: str) -> None:
    make(tmp_path / "survey")  # type: ignore[operator]
    result = run(tmp_path / "survey")
    assert result.exit_code == 1
    assert isinstance(result.exception, MastError)
    assert says in str(result.exception)


def test_only_broken_files(tmp_path: Path) -> None:
    (tmp_path / "survey").mkdir()
    (tmp_path / "survey" / "a.wav").touch()
    result = run(tmp_path / "survey", "--out", tmp_path / "recordings.csv")
    assert result.exit_code == 1
    assert "no recording can be read (1 tried); a.wav: the file is empty" in str(result.exception)
    assert not (tmp_path / "recordings.csv").exists()
    assert [row["file"] for row in table(tmp_path / "failures.csv")] == ["a.wav"]


def test_boxes_are_counted(tmp_path: Path) -> None:
    sf.write(tmp_path / "a.wav", np.zeros(160_000), 16_000)
    (tmp_path / "boxes.csv").write_text(
        "file,start_s,end_s,low_hz,high_hz,label\n"
        "a.wav,0,1,1000,2000,x\n"
        "a.wav,2,4,1000,4000,x\n"
        "a.wav,5,8,1000,1500,y\n"
    )
    result = run(tmp_path)
    assert result.exit_code == 0, result.exception
    assert re.search(r"^boxes +3, median 2 s long and 1,000 Hz wide$", result.stdout, re.MULTILINE)


@pytest.mark.real
def test_real_folder(shared_data: Path) -> None:
    result = run(shared_data / "birdeep_am1")
    assert result.exit_code == 0
    assert re.search(r"^recordings +20$", result.stdout, re.MULTILINE)
    assert re.search(r"^sites +1: AM1 \(20\)$", result.stdout, re.MULTILINE)
    assert re.search(r"^days +6, 2023-05-10 to 2023-05-30$", result.stdout, re.MULTILINE)


def test_a_scan_that_stops_leaves_the_earlier_table(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = folder / "recordings.csv"
    out.write_text("as it was")

    def stop(self: object, rows: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(csv.DictWriter, "writerows", stop)
    assert run(folder, "--out", out).exit_code != 0
    assert out.read_text() == "as it was"
    assert not list(folder.rglob("*.part"))


def test_sites_and_times_of_the_folders_own_table(tmp_path: Path) -> None:
    for name in ("OAK/20230510_073000.wav", "audio/b.wav"):
        (tmp_path / name).parent.mkdir()
        sf.write(tmp_path / name, np.zeros(1_600), 16_000)
    listing = "file,site,datetime\nOAK/20230510_073000.wav,Pond,\nb.wav,Lake,2024-01-02T03:04:05+02:00\n"
    (tmp_path / "recordings.csv").write_text(listing)
    result = run(tmp_path, "--out", tmp_path / "elsewhere.csv")
    assert result.exit_code == 0, result.output
    assert re.search(r"^sites +2: Pond \(1\), Lake \(1\)$", result.stdout, re.MULTILINE)
    assert [(row["site"], row["datetime"]) for row in table(tmp_path / "elsewhere.csv")] == [
        ("Pond", "2023-05-10T07:30:00"),
        ("Lake", "2024-01-02T03:04:05+02:00"),
    ]
    assert (tmp_path / "recordings.csv").read_text() == listing
    (tmp_path / "recordings.csv").write_text("name,site\nb.wav,Lake\n")  # somebody else's table
    assert re.search(r"^sites +1: ", run(tmp_path).stdout, re.MULTILINE)


def test_a_folder_that_cannot_be_listed_is_a_failure(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deny_listing(monkeypatch, folder / "OAK")
    result = run(folder, "--out", folder / "recordings.csv")
    assert result.exit_code == 4, result.output
    rows = {row["file"]: row["reason"] for row in table(folder / "failures.csv")}
    assert "cannot be listed (Permission denied)" in rows["OAK/"]
    shutil.rmtree(folder / "OAK")


def test_whatever_one_recording_raises_is_its_own_failure(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def surprised(path: Path, root: Path) -> None:
        if Path(path).name == "20230510_073000.WAV":
            raise RuntimeError("surprise\n" * 10_000)

    monkeypatch.setattr(
        import_module("mast.audio.describe"), "metadata", lambda p, r: surprised(p, r) or Metadata()
    )
    result = run(folder, "--out", folder / "recordings.csv")
    assert result.exit_code == 4
    rows = {row["file"]: row["reason"] for row in table(folder / "failures.csv")}
    assert len(rows) == 4
    assert "RuntimeError: surprise" in rows["OAK/20230510_073000.WAV"]
    assert len(rows["OAK/20230510_073000.WAV"]) < 500


def test_names_that_are_not_text_are_spelt_out(tmp_path: Path) -> None:
    sf.write(tmp_path / "a.wav", np.zeros(1_600), 16_000)
    root = tmp_path / "in"
    root.mkdir()
    for name in (b"caf\xe9.wav", b"caf\\xe9.wav"):
        shutil.copy(tmp_path / "a.wav", os.fsencode(root) + b"/" + name)
    assert run(root, "--out", root / "recordings.csv").exit_code == 0
    assert {row["file"] for row in table(root / "recordings.csv")} == {"caf\\xe9.wav", "caf\\udce9.wav"}
    (root / "recordings.csv").write_bytes(b"file,site\ncaf\xe9.wav,Pond\n")  # as an earlier version wrote it
    shutil.move(os.fsencode(root) + b"/caf\\xe9.wav", tmp_path / "gone.wav")
    assert run(root, "--out", root / "recordings.csv").exit_code == 0
    assert [(row["file"], row["site"]) for row in table(root / "recordings.csv")] == [
        ("caf\\xe9.wav", "Pond")
    ]
