"""`mast convert`: counts, losses, refusals."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
import typer
from typer.testing import CliRunner

from mast.annotations import FORMATS, read_annotations
from mast.cli import convert as module
from mast.cli.convert import convert
from mast.errors import AnnotationError

CSV = "file,start_s,end_s,low_hz,high_hz,label,score\n"


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Two recordings of 2 s at 16 kHz, one with a box above Nyquist, one heard and empty."""
    folder = tmp_path / "data"
    (folder / "audio").mkdir(parents=True)
    for name in ("a.wav", "b.wav"):
        soundfile.write(folder / "audio" / name, np.zeros(32_000), 16_000)
    (folder / "boxes.csv").write_text(CSV + "a.wav,0.5,1.25,1000,9000,robin,0.5\n")
    (folder / "recordings.csv").write_text("file\na.wav\nb.wav\n")
    return folder


def run(*arguments: object) -> tuple[str, str]:
    app = typer.Typer()
    app.command()(convert)
    result = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr


@pytest.mark.parametrize("name", list(FORMATS))
def test_a_dataset_goes_to_every_format_and_back(name: str, dataset: Path, tmp_path: Path) -> None:
    out = tmp_path / f"out{'' if FORMATS[name].folder else FORMATS[name].suffix}"
    stdout, stderr = run(dataset, out, "--to", name, "--audio", dataset / "audio", "--quiet")
    assert stdout == f"2 recordings, 1 events, 1 recordings heard and empty → {out} ({name})\n"
    assert ("events' score" in stderr) == (name in ("audacity", "birdeep"))
    run(out, tmp_path / "back.csv", "--to", "csv", "--quiet")
    back = read_annotations(tmp_path / "back.csv")
    row = back.events[["recording", "start_s", "end_s", "low_hz", "high_hz", "label"]].values.tolist()
    assert row == [["a.wav", 0.5, 1.25, 1000.0, 8000.0, "robin"]]
    assert back.reviewed_empty() == ["b.wav"]


def test_cut_frequencies_and_losses_are_said(dataset: Path, tmp_path: Path) -> None:
    _, stderr = run(
        dataset / "boxes.csv", tmp_path / "labels", "--to", "audacity", "--audio", dataset / "audio"
    )
    assert "1 of 1 events reached above Nyquist and were cut to it" in stderr
    assert "dropped, audacity cannot hold it: events' score" in stderr


def test_recordings_that_are_not_mentioned_are_not_carried_along(dataset: Path, tmp_path: Path) -> None:
    run(dataset / "boxes.csv", tmp_path / "c.json", "--to", "coco", "--audio", dataset / "audio", "--quiet")
    assert read_annotations(tmp_path / "c.json").names() == ["a.wav"]


def test_wrong_wishes_are_refused(dataset: Path, tmp_path: Path) -> None:
    boxes = dataset / "boxes.csv"
    with pytest.raises(AnnotationError, match="--to ravn: no such format; choose one of csv, raven"):
        convert(boxes, tmp_path / "x", "ravn")
    with pytest.raises(AnnotationError, match="is also what is read"):
        convert(boxes, boxes, "csv")
    with pytest.raises(AnnotationError, match="is not empty"):
        convert(boxes, dataset, "raven")
    with pytest.raises(AnnotationError, match="no such file or folder"):
        convert(tmp_path / "nowhere", tmp_path / "x", "raven")


def test_help_names_every_format() -> None:
    assert module._FORMATS.split(", ") == list(FORMATS)
    assert "Example:" in inspect.getdoc(convert)  # type: ignore[operator]


def test_a_mistake_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    (tmp_path / "boxes.csv").write_text(CSV + "a.wav,2,1,0,1,x,1\n")
    command = [sys.executable, "-m", "mast.cli.main", "convert"]
    done = subprocess.run(
        [*command, str(tmp_path / "boxes.csv"), str(tmp_path / "out"), "--to", "raven"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "boxes.csv, line 2: starts at 2 s after it ends at 1 s" in done.stderr
    assert not (tmp_path / "out").exists()
