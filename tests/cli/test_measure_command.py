"""`mast measure`: the table again, with measurements."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import soundfile as sf
import typer
from typer.testing import CliRunner, Result

from mast.annotations.detections import DetectionRun, write_run
from mast.cli.measure import measure
from mast.errors import AnnotationError, AudioError, ConfigError

app = typer.Typer()
app.command()(measure)
RATE = 16_000


@pytest.fixture
def found(tmp_path: Path) -> Path:
    """Tones of 1000 and 2000 Hz in two recordings, and the boxes in the order that hides mistakes of order."""
    audio, folder = tmp_path / "audio", tmp_path / "found"
    audio.mkdir()
    folder.mkdir()
    t = np.arange(4 * RATE) / RATE
    noise = np.random.default_rng(0).normal(0, 1e-3, len(t))
    for name, hz in (("a.wav", 1_000), ("b.wav", 2_000)):
        sf.write(audio / name, noise + 0.3 * np.sin(2 * np.pi * hz * t) * ((t > 1) & (t < 2)), RATE)
    write_run(folder, DetectionRun(root=str(audio), made_with={"root": str(audio)}))
    rows = [(name, 1.0, 2.0, 500, 4_000, 0.9) for name in ("b.wav", "a.wav", "b.wav")]
    columns = ["recording", "start_s", "end_s", "low_hz", "high_hz", "score"]
    pd.DataFrame(rows, columns=columns).to_csv(folder / "detections.csv", index=False)
    return folder


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments), "--quiet"])


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_each_row_has_its_own_measurements(found: Path, tmp_path: Path, ending: str) -> None:
    out = tmp_path / f"measured.{ending}"
    result = run(found, "--out", out)
    assert result.exit_code == 0, result.exception
    assert result.stdout == f"3 of 3 boxes measured → {out}.\n"
    table = pd.read_csv(out) if ending == "csv" else pd.read_parquet(out)
    assert dict(zip(table["recording"], table["peak_hz"], strict=True)) == {"a.wav": 1_000, "b.wav": 2_000}
    assert len(table) == 3
    assert table["duration_90_s"].tolist() == pytest.approx([0.9] * 3, abs=0.02)
    assert (table["snr_db"] > 30).all()
    assert (table["score"] == 0.9).all()


def test_measuring_again_replaces_what_was_measured_before(found: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    assert run(found, "--out", first).exit_code == 0
    measured = pd.read_csv(first)
    measured.assign(snr_db=-99.0, note="ours").to_csv(first, index=False)
    result = run(first, "--audio", tmp_path / "audio", "--out", second)
    assert result.exit_code == 0, result.exception
    again = pd.read_csv(second)
    pd.testing.assert_frame_equal(again[measured.columns], measured)
    assert (again["note"] == "ours").all()


def test_a_missing_recording_leaves_its_cells_empty(found: Path, tmp_path: Path) -> None:
    (tmp_path / "audio" / "b.wav").unlink()
    out = tmp_path / "m.csv"
    result = run(found, "--out", out)
    assert result.exit_code == 4
    assert (
        result.stdout == f"1 of 3 boxes measured → {out}; recordings that are missing or cannot be read: 1.\n"
    )
    table = pd.read_csv(out).set_index("recording")
    assert table.loc["b.wav", "peak_hz"].isna().all()
    assert table.loc["a.wav", "peak_hz"] == 1_000


def test_bad_input_is_one_sentence(found: Path, tmp_path: Path) -> None:
    (tmp_path / "none.csv").write_text("file,start_s,end_s,low_hz,high_hz\n")
    (tmp_path / "empty").mkdir()
    for kind, says, arguments in (
        (ConfigError, "ending in .csv or .parquet", (found, "--out", tmp_path / "m.xlsx")),
        (AnnotationError, "nothing to measure", (tmp_path / "none.csv", "--out", tmp_path / "m.csv")),
        (
            AudioError,
            "no box could be measured (3 tried); b.wav: no such recording here; give its folder with --audio",
            (found, "--out", tmp_path / "m.csv", "--audio", tmp_path / "empty"),
        ),
        (
            ConfigError,
            "nowhere: no such folder; expected the folder of the recordings",
            (found, "--out", tmp_path / "m.csv", "--audio", tmp_path / "nowhere"),
        ),
    ):
        result = run(*arguments)
        assert isinstance(result.exception, kind), result.exception
        assert says in str(result.exception)
    assert not (tmp_path / "m.csv").exists()


def test_an_output_that_cannot_be_written_is_noticed_before_any_work(
    found: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*given: object) -> None:
        raise AssertionError("measured first")

    monkeypatch.setattr("mast.features.measurements.measure_events", never)
    (tmp_path / "file").touch()
    result = run(found, "--out", tmp_path / "file" / "m.csv")
    assert isinstance(result.exception, NotADirectoryError), result.exception
    assert result.exception.filename == str(tmp_path / "file" / "m.csv")
