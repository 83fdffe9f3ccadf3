"""`mast detect` in a folder of earlier results: what is older there is named, and what people changed is kept."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from mast.annotations.detections import read_run
from mast.cli.detect import detect

INFERENCE_TESTS = Path(__file__).parents[1] / "inference"
sys.path.insert(0, str(INFERENCE_TESTS))
from random_detector import save_detector, write_sound  # noqa: E402

app = typer.Typer()
app.command()(detect)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_detector(tmp_path_factory.mktemp("run") / "best").parent


def test_folders_of_other_formats_that_are_older_are_named(model: Path, tmp_path: Path) -> None:
    sounds, out = tmp_path / "sounds", tmp_path / "out"
    write_sound(sounds / "a.wav", 3, seed=0)
    detector = ("--device", "cpu", "--no-summary", "--model", str(model), "--out", str(out))

    def said(*more: str) -> str:
        result = CliRunner().invoke(app, [str(sounds), *detector, *more])
        assert result.exit_code == 0, result.output
        return result.stderr

    assert "warning" not in said("--formats", "csv,raven")
    assert "warning" not in said()  # nothing has changed
    write_sound(sounds / "b.wav", 3, seed=1)
    told = said("--formats", "csv")
    assert f"raven/ in {out} is older than these results; add --formats csv,raven to write it again" in told
    assert "raven/" not in said("--formats", "csv,raven")
    run_json = read_run(out)
    assert run_json is not None
    assert run_json.threshold is not None
    assert "raven/" in said("--threshold", str(run_json.threshold + 0.01))


def test_recordings_that_are_no_longer_there_are_named(model: Path, tmp_path: Path) -> None:
    sounds, out = tmp_path / "sounds", tmp_path / "out"
    for k in range(3):
        write_sound(sounds / f"{k}.wav", 3, seed=k)
    arguments = ["--device", "cpu", "--no-summary", "--model", str(model), "--out", str(out)]
    CliRunner().invoke(app, [str(sounds), *arguments])
    apart = CliRunner().invoke(app, [*(str(sounds / f"{k}.wav") for k in range(2)), *arguments])
    assert "no longer there" not in apart.stderr  # not given, and there
    (sounds / "2.wav").unlink()
    result = CliRunner().invoke(app, [str(sounds), *arguments])
    assert "1 recording searched earlier is no longer there, such as 2.wav" in result.stderr
    assert "in 3 recordings" in result.stdout


def test_tables_that_somebody_changed_are_kept(model: Path, tmp_path: Path) -> None:
    sounds, out = tmp_path / "sounds", tmp_path / "out"
    write_sound(sounds / "a.wav", 3, seed=0)
    command = [str(sounds), "--device", "cpu", "--no-summary", "--model", str(model), "--out", str(out)]
    command += ["--formats", "csv,raven,partitioned", "--quiet"]

    def said() -> str:
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0, result.output
        return result.stderr

    assert said() == ""
    (out / "raven" / ".DS_Store").touch()
    write_sound(sounds / "b.wav", 3, seed=1)
    assert said() == ""  # nobody changed a table
    assert not list(out.glob("*earlier*"))
    table, raven = out / "detections.csv", out / "raven" / "a.Table.1.selections.txt"
    written, fewer = table.read_bytes(), raven.read_text().rsplit("\n", 2)[0]
    table.write_bytes(written[:100])
    raven.write_text(fewer)
    (out / "raven" / "notes.txt").write_text("a wren")
    told = said()
    assert (
        f"{table} was changed after mast wrote it; that version is kept as {out}/detections.earlier.csv"
        in told
    )
    assert (
        f"{out}/raven was changed after mast wrote it; that version is kept as {out}/raven.earlier\n" in told
    )
    assert "partitioned" not in told
    assert (out / "detections.earlier.csv").read_bytes() == written[:100]
    assert table.read_bytes() == written
    assert (out / "raven.earlier" / raven.name).read_text() == fewer
    assert (out / "raven.earlier" / "notes.txt").read_text() == "a wren"
    assert raven.read_text() != fewer
    assert not (out / "raven" / "notes.txt").exists()
    assert said() == ""
    raven.unlink()
    assert f"kept as {out}/raven.earlier-2" in said()
    assert not (out / "raven.earlier-2" / raven.name).exists()


def test_a_table_of_an_earlier_version_is_kept_where_the_new_one_differs(model: Path, tmp_path: Path) -> None:
    sounds, out = tmp_path / "sounds", tmp_path / "out"
    write_sound(sounds / "a.wav", 3, seed=0)
    command = [str(sounds), "--device", "cpu", "--no-summary", "--model", str(model), "--out", str(out)]
    CliRunner().invoke(app, command)
    (out / ".written.json").unlink()
    assert "kept as" not in CliRunner().invoke(app, command).stderr
    (out / ".written.json").write_text("[")
    (out / "detections.csv").write_text("recording\n")
    assert "detections.csv may have been changed after mast" in CliRunner().invoke(app, command).stderr
    assert (out / "detections.earlier.csv").read_text() == "recording\n"
