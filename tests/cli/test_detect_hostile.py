"""`mast detect` on recordings that would stop everything: each fails alone, or not at all."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from pathlib import Path
from typing import NoReturn

import pandas as pd
import pytest
import soundfile as sf
import typer
from typer.testing import CliRunner, Result

from mast.cli.detect import detect
from mast.inference import results as results_module

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "inference"), str(TESTS / "audio")]
from hostile_recordings import deny_listing, flac_declaring, noise, with_guano  # noqa: E402
from random_detector import save_detector, write_sound  # noqa: E402

app = typer.Typer()
app.command()(detect)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_detector(tmp_path_factory.mktemp("run") / "best").parent


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["--quiet", "--device", "cpu", "--no-summary", *map(str, arguments)])


def rows(out: Path) -> dict[str, str]:
    table = pd.read_csv(out / "failures.csv", keep_default_na=False)
    return dict(zip(table["file"], table["reason"], strict=True))


def found(out: Path) -> pd.DataFrame:
    return pd.read_csv(out / "detections.csv", keep_default_na=False)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six recordings, each with a name or a header that has stopped a whole run."""
    root = tmp_path_factory.mktemp("hostile")
    good = write_sound(root / "a.wav", 3)
    (root / "a.wav.parquet").mkdir()
    for name in (
        b"a.wav.parquet/b.wav",
        b"x" * 244 + b".wav",
        b"y" * 251 + b".wav",
        b"caf\xe9.wav",
        b"caf\\xe9.wav",
    ):
        shutil.copy(good, os.fsencode(root) + b"/" + name)
    with_guano(root / "guano.wav", "Timestamp:2023-05-10T07:30:00+25:00", frames=3 * 16_000)
    return root


NAMES = {
    "a.wav",
    "a.wav.parquet/b.wav",
    "x" * 244 + ".wav",
    "y" * 251 + ".wav",
    "caf\\xe9.wav",
    "caf\\udce9.wav",
    "guano.wav",
}


@pytest.mark.parametrize("workers", ["1", "2"])
def test_no_name_and_no_header_stops_the_others(
    hostile: Path, model: Path, tmp_path: Path, workers: str
) -> None:
    arguments = (hostile, "--model", model, "--out", tmp_path / "out", "--workers", workers)
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    assert set(found(tmp_path / "out")["recording"]) == NAMES
    again = run(*arguments[:-1], "1")  # and all of them are done
    assert again.exit_code == 0
    assert set(found(tmp_path / "out")["recording"]) == NAMES


def test_events_that_cannot_be_written_are_one_recordings_failure(
    hostile: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, out = results_module.write_atomic, tmp_path / "out"

    def refuse(path: Path, content: bytes) -> None:
        if path.name == "guano.wav.parquet":
            raise IsADirectoryError(errno.EISDIR, "Is a directory", str(path))
        write(path, content)

    monkeypatch.setattr(results_module, "write_atomic", refuse)
    result = run(hostile, "--model", model, "--out", out)
    assert result.exit_code == 4, result.output
    assert set(found(out)["recording"]) == NAMES - {"guano.wav"}
    assert "its detections cannot be written" in rows(out)["guano.wav"]


def test_a_full_disk_is_nobodys_failure(
    hostile: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, out = results_module.write_atomic, tmp_path / "out"

    def full(path: Path, content: bytes) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(results_module, "write_atomic", full)
        result = run(hostile, "--model", model, "--out", out)
    assert isinstance(result.exception, OSError)
    assert result.exception.errno == errno.ENOSPC
    assert results_module.write_atomic is write
    assert run(hostile, "--model", model, "--out", out).exit_code == 0
    assert set(found(out)["recording"]) == NAMES


def test_whatever_is_raised_for_one_recording_is_its_failure(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mast.inference import pieces
    from mast.inference.detector import Detector

    for name in ("a.wav", "b.wav", "c.wav"):
        write_sound(tmp_path / "in" / name, 3)
    windows, table = pieces.window_batches, Detector._build_table

    def surprised(path: Path, *arguments: object, **options: object) -> object:
        if path.name == "a.wav":
            raise RuntimeError("in reading " + "very " * 1_000)
        return windows(path, *arguments, **options)  # type: ignore[arg-type]

    def overflowing(self: Detector, *arguments: object) -> object:
        if "b.wav" in str(arguments[1]):
            raise OverflowError("date value out of range")
        return table(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(pieces, "window_batches", surprised)
    monkeypatch.setattr(Detector, "_build_table", overflowing)
    result = run(tmp_path / "in", "--model", model, "--out", tmp_path / "out")
    assert result.exit_code == 4, result.output
    failed = rows(tmp_path / "out")
    assert set(failed) == {"a.wav", "b.wav"}
    assert failed["a.wav"].startswith("cannot be read (RuntimeError: in reading")
    assert len(failed["a.wav"]) < 500
    assert "OverflowError" in failed["b.wav"]
    assert set(found(tmp_path / "out")["recording"]) == {"c.wav"}


def test_lengths_that_are_not_believed(model: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    flac_declaring(tmp_path / "in" / "much.flac", 2**35)
    flac_declaring(tmp_path / "in" / "unknown.flac", 0)
    sf.write(tmp_path / "in" / "slow.wav", noise(16_000), 1)
    result = run(tmp_path / "in", "--model", model, "--out", tmp_path / "out")
    assert result.exit_code == 4, result.output
    failed = rows(tmp_path / "out")
    assert set(failed) == {"much.flac", "slow.wav"}
    assert "cut short, the header promises more than 3.05 s" in failed["much.flac"]
    assert "a sample rate of 1 Hz" in failed["slow.wav"]
    assert found(tmp_path / "out")["end_s"].max() <= 3.06


def test_a_folder_that_cannot_be_listed_is_among_the_failures(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OAK/a.wav", "ELM/b.wav"):
        write_sound(tmp_path / "in" / name, 3)
    arguments = (tmp_path / "in", "--model", model, "--out", tmp_path / "out")
    with monkeypatch.context() as patch:
        deny_listing(patch, tmp_path / "in" / "OAK")
        result = run(*arguments)
        assert result.exit_code == 4, result.output
        assert "1 folder cannot be listed (see" in result.output
        assert "cannot be listed (Permission denied)" in rows(tmp_path / "out")["OAK/"]
        shutil.rmtree(tmp_path / "in" / "ELM")
        nothing = run(*arguments[:-1], tmp_path / "new")
        assert "OAK/ cannot be listed" in str(nothing.exception)
    assert run(*arguments).exit_code == 0
    assert rows(tmp_path / "out") == {}


def test_sites_and_times_are_those_of_recordings_csv(model: Path, tmp_path: Path) -> None:
    root = tmp_path / "set"
    for name in ("audio/OAK_20230510_073000.wav", "audio/b.wav", "audio/c.wav"):
        write_sound(root / name, 3)
    listing = "file,site,datetime\nOAK_20230510_073000.wav,Pond,\nb.wav,Lake,2024-01-02T03:04:05\n"
    (root / "recordings.csv").write_text(listing)
    arguments = ("--model", model, "--out", tmp_path / "out", "--embed")
    assert run(root, *arguments).exit_code == 0
    events = found(tmp_path / "out").set_index("recording")
    assert set(events.loc["audio/OAK_20230510_073000.wav", "site"]) == {"Pond"}
    assert set(events.loc["audio/OAK_20230510_073000.wav", "datetime"].str[:10]) == {"2023-05-10"}
    assert set(events.loc["audio/b.wav", "site"]) == {"Lake"}
    assert set(events.loc["audio/b.wav", "datetime"].str[:17]) == {"2024-01-02T03:04:"}
    assert set(events.loc["audio/c.wav", "datetime"]) == {""}

    (root / "recordings.csv").write_text(listing.replace("Lake", "Sea").replace("2024-01-02", "2025-01-02"))
    assert run(root, *arguments).exit_code == 0  # nothing is searched again
    later = found(tmp_path / "out").set_index("recording")
    assert set(later.loc["audio/b.wav", "site"]) == {"Sea"}
    assert set(later.loc["audio/b.wav", "datetime"].str[:10]) == {"2025-01-02"}
    columns = ["start_s", "end_s", "score"]
    pd.testing.assert_frame_equal(later[columns], events[columns])

    for name, given in (("a", root / "audio"), ("b", root / "audio" / "b.wav")):
        assert run(given, "--model", model, "--out", tmp_path / name).exit_code == 0
        assert "Sea" in set(found(tmp_path / name)["site"])
    (root / "recordings.csv").write_text("file,datetime\nb.wav,yesterday\n")
    wrong = run(root, "--model", model, "--out", tmp_path / "c")
    assert "recordings.csv, line 2, datetime: 'yesterday' is not a valid time" in str(wrong.exception)
    (root / "recordings.csv").write_text("plot,site\n1,Lake\n")  # somebody else's table
    assert run(root, "--model", model, "--out", tmp_path / "c").exit_code == 0
