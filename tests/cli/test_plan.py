"""`mast plan`: from a folder to tasks, and back with `mast convert`."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import soundfile as sf
import typer
from typer.testing import CliRunner

from mast.annotations import read_annotations
from mast.cli import plan as module
from mast.cli.convert import convert
from mast.cli.plan import plan
from mast.errors import AnnotationError, ConfigError, MastError
from mast.habit import Habit
from mast.models.card import load_card
from mast.models.checkpoint import update_card
from mast.planning.choose import PLAN_STRATEGIES
from mast.planning.tasks import TASK_FORMATS

sys.path.insert(0, str(Path(__file__).parents[1] / "planning"))
from untrained import save_untrained, write_noise

CURVE = "minutes,f1\n" + "".join(f"{n},{0.8 - 0.5 * n**-0.5:.4f}\n" for n in (1, 2, 4, 8))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_noise(tmp_path / "noise", seconds=24.0)


def run(command: object, *arguments: object) -> tuple[str, str]:
    app = typer.Typer()
    app.command()(command)  # type: ignore[type-var]
    result = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr


def test_tasks_go_out_and_come_back(data: Path, tmp_path: Path) -> None:
    tasks = tmp_path / "tasks"
    stdout, _ = run(plan, data, "--clips", 3, "--clip-length", 10.24, "--out", tasks, "--quiet")
    assert stdout == (
        f"3 clips, 0.5 min, time-balanced, of 2 sites, 1 day, 3 hours, 3 recordings → {tasks}; "
        f"open {tasks / 'README.txt'} first.\n"
    )
    rows = pd.read_csv(tasks / "plan.csv")
    table = tasks / "clips" / rows["clip"][0].replace(".wav", ".Table.1.selections.txt")
    header = table.read_text().splitlines()[0].split("\t")
    line = {"Selection": 1, "View": "Spectrogram 1", "Channel": 1, "Begin Time (s)": 1.5, "End Time (s)": 2.0}
    line |= {"Low Freq (Hz)": 400, "High Freq (Hz)": 600, "Annotation": "hum"}
    with open(table, "a") as file:
        file.write("\t".join(str(line.get(name, "")) for name in header) + "\n")
    boxes = data / "boxes.csv"
    stdout, stderr = run(convert, tasks, boxes, "--to", "csv")
    assert "1 of 3 clips were listened to" in stderr
    assert "2 are unchanged and count as not heard" in stderr
    back = read_annotations(boxes)
    start = float(rows["start_s"][0])
    found = back.events[["recording", "start_s", "end_s", "label"]].values.tolist()
    assert found == [[rows["recording"][0], start + 1.5, start + 2.0, "hum"]]
    assert back.reviewed.values.tolist() == [[rows["recording"][0], start, start + 10.24]]

    assert "add --add-to recordings/ to keep them" in (tasks / "README.txt").read_text()

    # a second plan avoids what was heard, and is added to it
    more = tmp_path / "more"
    run(
        plan,
        data,
        "-n",
        99,
        "--clip-length",
        10.24,
        "--strategy",
        "random",
        "--format",
        "audacity",
        "-o",
        more,
        "-q",
    )
    second = pd.read_csv(more / "plan.csv")
    same = second[second["recording"] == rows["recording"][0]]
    assert ((same["end_s"] <= start + 0.01) | (same["start_s"] >= start + 10.23)).all()
    run(convert, more, boxes, "--from", "tasks", "--to", "csv", "--all-done", "--add-to", boxes)
    both = read_annotations(boxes)
    assert both.events["label"].tolist() == ["hum"]
    assert len(both.reviewed) == 1 + len(second)


def test_nothing_heard_nothing_taken_back(data: Path, tmp_path: Path) -> None:
    run(plan, data, "--clips", 2, "--out", tmp_path / "tasks", "--quiet")
    with pytest.raises(AnnotationError, match="no clip was listened to"):
        run(convert, tmp_path / "tasks", tmp_path / "boxes.csv", "--to", "csv")
    with pytest.raises(AnnotationError, match="are for tasks of mast plan"):
        run(convert, data, tmp_path / "boxes.csv", "--to", "csv", "--all-done")


def test_a_detector_chooses_and_fills_in(data: Path, tmp_path: Path) -> None:
    model = save_untrained(tmp_path / "model")
    tasks = tmp_path / "tasks"
    options = [
        "--model",
        model,
        "--prefill",
        "--format",
        "aoef",
        "--device",
        "cpu",
        "--candidates",
        8,
        "--quiet",
    ]
    stdout, _ = run(plan, data, "--clips", 3, "--clip-length", 2.56, "--out", tasks, *options)
    assert "3 clips, 0.1 min, diverse" in stdout
    rows = pd.read_csv(tasks / "plan.csv")
    assert rows["strategy"].tolist() == ["diverse"] * 3
    assert rows["prefilled"].sum() > 0
    found = read_annotations(tasks / "project.json", "aoef")
    assert len(found.events) == rows["prefilled"].sum()


def test_boxes_are_filled_in_as_the_model_draws_them(data: Path, tmp_path: Path) -> None:
    model = save_untrained(tmp_path / "model")
    options = ["--model", model, "--prefill", "--strategy", "sequential", "--device", "cpu", "--quiet"]
    filled = []
    for habit in (None, Habit(join_s=10.0)):
        update_card(model, load_card(model).model_copy(update={"habit": habit}))
        tasks = tmp_path / f"tasks{len(filled)}"
        run(plan, data, "--clips", 1, "--clip-length", 2.56, "--out", tasks, *options)
        filled.append(int(pd.read_csv(tasks / "plan.csv")["prefilled"].sum()))
    assert 0 < filled[1] < filled[0]


def test_detections_say_where_the_detector_is_unsure_and_fill_in(data: Path, tmp_path: Path) -> None:
    model = save_untrained(tmp_path / "model")
    names = sorted(p.name for p in data.glob("*.wav"))
    detections = tmp_path / "detections.csv"
    table = pd.DataFrame(
        {"recording": [f"x/{names[4]}"] * 8, "start_s": np.arange(8) * 0.3 + 10.24, "score": 0.5}
    )
    table.assign(end_s=table["start_s"] + 0.2, low_hz=100, high_hz=900).to_csv(detections, index=False)
    tasks = tmp_path / "tasks"
    options = ["--model", model, "--detections", detections, "--prefill", "--device", "cpu", "--quiet"]
    run(plan, data, "--clips", 2, "--clip-length", 2.56, "--out", tasks, *options)
    rows = pd.read_csv(tasks / "plan.csv")
    assert names[4] in rows["recording"].tolist()[:1]
    assert rows["prefilled"].tolist()[0] == 8
    table.assign(recording="strange.wav", end_s=99.0, low_hz=1, high_hz=2).to_csv(detections, index=False)
    with pytest.raises(AnnotationError, match="none of its 1 recordings is in"):
        run(plan, data, "--clips", 2, "--out", tmp_path / "no", *options)


def test_what_the_clips_should_buy_is_said(data: Path, tmp_path: Path) -> None:
    curve = tmp_path / "curve.csv"
    curve.write_text(CURVE)
    name = sorted(p.name for p in data.glob("*.wav"))[0]
    (data / "boxes.csv").write_text(f"file,start_s,end_s,low_hz,high_hz,label\n{name},1,2,100,200,x\n")
    (data / "reviewed.csv").write_text(f"file,start_s,end_s\n{name},0,24\n")
    stdout, _ = run(plan, data, "--clips", 4, "--curve", curve, "--out", tmp_path / "tasks", "--quiet")
    assert "2 minutes on top of 0 should take F1 from" in stdout
    curve.write_text("boxes,f1\n10,0.1\n20,0.2\n")
    stdout, _ = run(plan, data, "--clips", 4, "--curve", curve, "--out", tmp_path / "more", "--quiet")
    assert "No estimate: the curve has 2 budgets (10, 20 boxes)" in stdout
    (data / "boxes.csv").unlink()
    (data / "reviewed.csv").unlink()
    stdout, _ = run(plan, data, "--clips", 4, "--curve", curve, "--out", tmp_path / "third", "--quiet")
    assert "nothing in this band is annotated yet" in stdout


def test_an_estimate_counts_boxes_that_a_detector_would_see(data: Path, tmp_path: Path) -> None:
    curve = tmp_path / "curve.csv"
    curve.write_text(CURVE.replace("minutes", "boxes"))
    name = sorted(p.name for p in data.glob("*.wav"))[0]
    rows = [
        f"{name},{start},{start + 1},{low},{low + 500},x"
        for start, low in ((1, 1_000), (3, 5_000), (5, 6_000))
    ]
    (data / "boxes.csv").write_text("\n".join(["file,start_s,end_s,low_hz,high_hz,label", *rows]) + "\n")
    (data / "reviewed.csv").write_text(f"file,start_s,end_s\n{name},0,24\n")
    for band, counted in ((8_000, 3), (4_000, 1)):
        out = tmp_path / f"tasks{band}"
        stdout, _ = run(plan, data, "--clips", 4, "--curve", curve, "--band", band, "--out", out, "--quiet")
        assert f"boxes on top of {counted} should take F1" in stdout


def test_forty_clips_where_nobody_says_how_many(tmp_path: Path) -> None:
    data = write_noise(tmp_path / "noise", seconds=48.0)
    stdout, _ = run(plan, data, "--clip-length", 1.28, "--out", tmp_path / "tasks", "--quiet")
    assert stdout.startswith("40 clips, ")
    run(plan, data, "--clip-length", 1.28, "--clips", 3, "--out", tmp_path / "fewer", "--quiet")
    chosen, fewer = (pd.read_csv(tmp_path / name / "plan.csv") for name in ("tasks", "fewer"))
    columns = ["recording", "start_s", "end_s"]
    pd.testing.assert_frame_equal(chosen[columns].head(3), fewer[columns])


def test_short_clips_and_short_supplies_are_said(data: Path, tmp_path: Path) -> None:
    _, stderr = run(plan, data, "--clips", 50, "--clip-length", 8, "--out", tmp_path / "tasks")
    assert "There are only 12 clips that nobody has listened to." in stderr
    assert "shorter than a chunk (10.24 s)" in stderr


def test_a_recording_that_cannot_be_cut_is_named(data: Path, tmp_path: Path) -> None:
    sound = np.zeros(24 * 16_000, dtype=np.float32)
    sound[5_000] = np.nan
    sf.write(data / "C_20240512_050000.wav", sound, 16_000, subtype="FLOAT")
    _, stderr = run(plan, data, "--clips", 50, "--clip-length", 24, "--out", tmp_path / "tasks", "--quiet")
    assert "left out, C_20240512_050000.wav: " in stderr
    assert len(pd.read_csv(tmp_path / "tasks" / "plan.csv")) == 6


def test_wrong_wishes_are_refused(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "tasks"
    for options, message in (
        (["--strategy", "best"], "no such strategy; choose one of time-balanced"),
        (["--strategy", "diverse"], "needs --model"),
        (["--format", "word"], "no such format of tasks"),
        (["--prefill"], "needs boxes to fill in"),
    ):
        with pytest.raises(ConfigError, match=message):
            run(plan, data, "--clips", 2, "--out", out, *options)
    assert not out.exists()
    names = "".join(f"{p.name},,\n" for p in data.glob("*.wav"))
    (data / "reviewed.csv").write_text("file,start_s,end_s\n" + names)
    with pytest.raises(MastError, match="everything here has been listened to"):
        run(plan, data, "--clips", 2, "--out", out)


def test_help_names_what_there_is() -> None:
    assert module._STRATEGIES.split(", ") == list(PLAN_STRATEGIES)
    assert module._FORMATS.split(", ") == list(TASK_FORMATS)
    assert "Example:" in inspect.getdoc(plan)  # type: ignore[operator]
