"""`mast clips`: from a folder of detections to files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import soundfile as sf
import typer
from typer.testing import CliRunner, Result

from mast.annotations.detections import DetectionRun, write_run
from mast.classifiers import voices
from mast.cli.clips import clips
from mast.errors import AnnotationError, AudioError, ConfigError
from mast.grid import FrontEnd
from mast.reports import contact_sheet
from mast.reports.spectrogram import Spectrogram, compute_spectrogram

app = typer.Typer()
app.command()(clips)
RATE = 16_000


@pytest.fixture
def found(tmp_path: Path) -> Path:
    """A folder of detections in two recordings, as `mast detect` leaves it."""
    audio, folder = tmp_path / "audio", tmp_path / "found"
    audio.mkdir()
    folder.mkdir()
    for name in ("a.wav", "b.wav"):
        sf.write(audio / name, 0.1 * np.random.default_rng(0).standard_normal(6 * RATE), RATE)
    write_run(folder, DetectionRun(root=str(audio), made_with={"root": str(audio)}))
    rows = [
        (name, n, n + 0.5, 1_000, 2_000, 0.9 - 0.1 * n, ("wren", "")[n % 2])
        for name in ("a.wav", "b.wav")
        for n in range(4)
    ]
    columns = ["recording", "start_s", "end_s", "low_hz", "high_hz", "score", "label"]
    pd.DataFrame(rows, columns=columns).to_csv(folder / "detections.csv", index=False)
    return folder


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments), "--quiet"])


def cut(out: Path) -> list[str]:
    return pd.read_csv(out / "clips.csv")["clip"].tolist()


def test_the_recordings_are_found_where_detect_found_them(found: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = run(found, "--out", out, "-n", 3, "--format", "flac")
    assert result.exit_code == 0, result.exception
    assert result.stdout == f"3 clips of 8 events → {out / 'index.html'}.\n"
    assert [name[:8] for name in cut(out)] == ["001_0.90", "002_0.90", "003_0.80"]
    assert all((out / name).is_file() and name.endswith(".flac") for name in cut(out))


def test_pictures_show_the_band_that_was_searched(
    found: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = []

    def draw(*given: object, front_end: FrontEnd, **more: object) -> Spectrogram:
        drawn.append(front_end.high_hz)
        return compute_spectrogram(*given, front_end=front_end, **more)

    monkeypatch.setattr(contact_sheet, "compute_spectrogram", draw)
    run(found, "--out", tmp_path / "birds", "-n", 2)
    audio = str(tmp_path / "audio")
    write_run(found, DetectionRun(root=audio, made_with={"root": audio}, band_hz=(5.0, 2_000.0)))
    run(found, "--out", tmp_path / "fish", "-n", 2)
    assert drawn == [8_000, 8_000, 2_000, 2_000]


def test_conditions_and_groups(found: Path, tmp_path: Path) -> None:
    run(found, "--out", tmp_path / "wrens", "--label", "wren", "--min-score", 0.75, "--no-pictures")
    assert [name.rpartition("_")[2] for name in cut(tmp_path / "wrens")] == ["wren.wav"] * 2
    run(found, "--out", tmp_path / "groups", "--per", "recording", "--most", 2, "--no-pictures")
    assert [name.partition("/")[0] for name in cut(tmp_path / "groups")] == ["a.wav"] * 2 + ["b.wav"] * 2


def test_notes_are_joined_into_songs_first(found: Path, tmp_path: Path) -> None:
    out = tmp_path / "songs"
    result = run(found, "--out", out, "--join", 1.5, "--no-pictures", "--pad", 0)
    assert result.stdout == f"4 clips of 4 events → {out / 'index.html'}.\n"  # two labels in two recordings
    table = pd.read_csv(out / "clips.csv")
    assert table["notes"].tolist() == [2] * 4
    assert [sf.info(out / name).duration for name in cut(out)] == [2.5] * 4
    assert isinstance(run(found, "--out", out, "--no-pictures", "--pad", 0).exception, ConfigError)


def test_clips_in_which_somebody_speaks_are_left_out(
    found: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Pretended:
        """Somebody speaks in the first 1.2 s of one recording."""

        def __call__(self, path: Path, start_s: float, end_s: float) -> list[tuple[float, float]]:
            return [(0.2 + start_s / 100, 1.2)] if path.name == "a.wav" and start_s < 1.2 else []

    monkeypatch.setattr(voices, "VoiceFinder", Pretended)
    out = tmp_path / "out"
    result = run(found, "--out", out, "--no-voices", "--no-pictures", "--pad", 0.1)
    assert result.exit_code == 0, result.exception
    assert result.stdout == (
        f"6 clips of 8 events → {out / 'index.html'}; 2 left out because somebody speaks (see {out / 'voices.csv'}).\n"
    )
    assert (out / "voices.csv").read_text() == "recording,start_s,end_s\na.wav,0.2,1.2\n"
    assert len([*out.glob("*.wav")]) == len(cut(out)) == 6
    assert "2 left out because somebody speaks there" in (out / "index.html").read_text()
    assert isinstance(run(found, "--out", out, "--no-pictures", "--pad", 0.1).exception, ConfigError)
    monkeypatch.setattr(Pretended, "__call__", lambda self, path, start_s, end_s: [(0.0, 9.0)])
    result = run(found, "--out", tmp_path / "all", "--no-voices", "--no-pictures")
    assert "somebody speaks in all 8 clips" in str(result.exception)


def test_the_same_again_resumes_and_other_choices_are_refused(found: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(found, "--out", out, "-n", 2, "--no-pictures")
    first = {name: (out / name).stat().st_mtime_ns for name in cut(out)}
    assert run(found, "--out", out, "-n", 2, "--no-pictures").exit_code == 0
    assert {name: (out / name).stat().st_mtime_ns for name in cut(out)} == first
    other = run(found, "--out", out, "-n", 3, "--no-pictures")
    assert isinstance(other.exception, ConfigError)
    assert "most was 2, now 3" in str(other.exception)
    table = pd.read_csv(found / "detections.csv")
    table.assign(start_s=table["start_s"] + 0.1).to_csv(found / "detections.csv", index=False)
    moved = run(found, "--out", out, "-n", 2, "--no-pictures")
    assert isinstance(moved.exception, ConfigError)
    assert "holds clips of events that have changed since" in str(moved.exception)


def test_bad_input_is_one_sentence_and_nothing_is_touched(found: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.docx").write_text("years")
    kinds: list[tuple[type[Exception], str, tuple[object, ...]]] = [
        (ConfigError, "holds no clips", (found, "--out", mine)),
        (
            AnnotationError,
            "none of its 8 events meets",
            (found, "--out", tmp_path / "x", "--min-score", 0.99),
        ),
        (
            ConfigError,
            "no: no such folder; expected the folder of the recordings",
            (found, "--out", tmp_path / "y", "--audio", tmp_path / "no"),
        ),
        (AudioError, "no event could be cut (8 tried)", (found, "--out", tmp_path / "z", "--audio", mine)),
        (
            AudioError,
            "no such recording here; give its folder with --audio",
            (found, "--out", tmp_path / "z", "--audio", mine),
        ),
    ]
    for kind, says, arguments in kinds:
        result = run(*arguments)
        assert isinstance(result.exception, kind), result.exception
        assert says in str(result.exception)
    assert [path.name for path in mine.iterdir()] == ["thesis.docx"]
    assert not (tmp_path / "x").exists()


def test_a_missing_recording_is_listed(found: Path, tmp_path: Path) -> None:
    (tmp_path / "audio" / "b.wav").unlink()
    out = tmp_path / "out"
    result = run(found, "--out", out, "--no-pictures")
    assert result.exit_code == 4
    assert f"4 could not be cut (see {out / 'failures.csv'})" in result.stdout
    assert set(pd.read_csv(out / "failures.csv")["recording"]) == {"b.wav"}
