"""`mast plot`: from files to a picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile as sf
import typer
from typer.testing import CliRunner

from mast.annotations.detections import DetectionRun, write_run
from mast.cli.plot import plot
from mast.errors import AudioError, ConfigError
from mast.reports import spectrogram

app = typer.Typer()
app.command()(plot)


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "site1" / "dawn.wav"
    path.parent.mkdir()
    sf.write(path, 0.1 * np.random.default_rng(0).standard_normal(48_000), 16_000)
    return path


@pytest.fixture
def drawn(monkeypatch) -> dict:
    """What the command hands to the drawing."""
    given: dict = {}

    def remember(recording, out, **options):
        given.update(options, recording=recording, out=out)
        return Path(out)

    monkeypatch.setattr(spectrogram, "draw_spectrogram", remember)
    return given


def run(*arguments: object):
    result = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


def test_draws_a_png(recording, tmp_path):
    out = tmp_path / "pictures" / "dawn.png"
    result = run(recording, "--out", out, "--end", 2)
    assert out.read_bytes().startswith(b"\x89PNG")
    assert result.stdout.splitlines()[-1] == f"Wrote {out} (20–8000 Hz)."


def test_boxes_of_this_recording_only(recording, tmp_path, drawn):
    boxes = tmp_path / "boxes.csv"
    boxes.write_text(
        "file,start_s,end_s,low_hz,high_hz\n"
        "site1/dawn.wav,0.5,1,1000,2000\n"
        "site2/dawn.wav,1.5,2,1000,2000\n"
        "dusk.wav,1,2,1000,2000\n"
    )
    run(recording, "--boxes", boxes, "--out", tmp_path / "x.png")
    assert drawn["truth"]["start_s"].tolist() == [0.5]
    assert drawn["predictions"] is None


def test_predictions_above_a_threshold_from_a_detect_folder(recording, tmp_path, drawn):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "detections.csv").write_text(
        "recording,start_s,end_s,low_hz,high_hz,score\n"
        "dawn.wav,0.5,1,1000,2000,0.9\n"
        "dawn.wav,1.5,2,1000,2000,0.1\n"
    )
    run(
        recording,
        "--predictions",
        tmp_path / "run",
        "--threshold",
        0.5,
        "--start",
        0.2,
        "--out",
        tmp_path / "x.png",
    )
    assert drawn["predictions"]["score"].tolist() == [0.9]
    assert drawn["truth"] is None
    assert (drawn["start_s"], drawn["end_s"]) == (0.2, None)


def test_scores_below_the_threshold_are_not_drawn_whoever_gave_the_boxes(recording, tmp_path, drawn):
    boxes = tmp_path / "boxes.csv"
    boxes.write_text(
        "file,start_s,end_s,low_hz,high_hz,score\ndawn.wav,0.5,1,1000,2000,0.9\ndawn.wav,1,2,1000,2000,0.1\n"
    )
    run(recording, "--boxes", boxes, "--threshold", 0.5, "--out", tmp_path / "x.png")
    assert drawn["truth"]["score"].tolist() == [0.9]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--out", "a.xyz"], r"--out a\.xyz: expected the name of a picture, ending in \.png"),
        (["--out", "a"], r"ending in \.png"),
    ],
)
def test_mistakes_are_one_sentence(recording, tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=message):
        run(recording, *options)
    assert not list(tmp_path.glob("a*"))


@pytest.mark.parametrize(
    "name", ["a$\\frac{$.wav", "$$.wav", "雨の音.wav", "a\udcff.wav", "line\nbreak.wav", "\\$x$.wav"]
)
def test_a_recording_may_have_any_name(tmp_path, name, recwarn):
    path = tmp_path / name
    sf.write(tmp_path / "x.wav", np.zeros(16_000), 16_000)
    (tmp_path / "x.wav").rename(path)
    run(path, "--out", tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    assert not [w for w in recwarn if "Glyph" in str(w.message)]


def test_boxes_of_another_recording_are_not_silently_missing(recording, tmp_path, drawn):
    boxes = tmp_path / "boxes.csv"
    boxes.write_text("file,start_s,end_s,low_hz,high_hz\ndusk.wav,1,2,1000,2000\n")
    result = run(recording, "--boxes", boxes, "--out", tmp_path / "x.png")
    assert "dawn.wav is not one of them" in result.stderr
    assert drawn["truth"].empty
    assert run(recording, "--boxes", boxes, "--out", tmp_path / "x.png", "--quiet").stderr == ""


@pytest.mark.parametrize(
    ("rate", "options", "high_hz"),
    [(4_000, [], 2_000), (96_000, [], 8_000), (96_000, ["--band", 48_000], 48_000)],
)
def test_the_band_fits_the_recording(tmp_path, drawn, rate, options, high_hz):
    sf.write(tmp_path / "x.wav", np.zeros(rate), rate)
    run(tmp_path / "x.wav", "--out", tmp_path / "x.png", *options)
    assert drawn["front_end"].high_hz == high_hz


def test_the_band_is_the_one_that_detect_searched(tmp_path, drawn):
    sf.write(tmp_path / "x.wav", np.zeros(96_000), 96_000)
    run_folder = tmp_path / "left"
    run_folder.mkdir()
    write_run(run_folder, DetectionRun(root="", band_hz=(100.0, 40_000.0), made_with={"root": ""}))
    (run_folder / "detections.csv").write_text("recording,start_s,end_s,low_hz,high_hz,score\n")
    run(tmp_path / "x.wav", "--out", tmp_path / "x.png", "--predictions", run_folder)
    assert drawn["front_end"].high_hz == 40_000
    run(tmp_path / "x.wav", "--out", tmp_path / "x.png", "--predictions", run_folder, "--band", 20_000)
    assert drawn["front_end"].high_hz == 20_000


def test_a_recording_that_is_none_is_the_users_mistake(tmp_path):
    (tmp_path / "text.wav").write_text("not sound")
    with pytest.raises(AudioError, match=r"text\.wav"):
        CliRunner().invoke(app, [str(tmp_path / "text.wav"), "--out", "x.png"], catch_exceptions=False)
