"""Commands that the page starts: followed, stopped, killed, resumed, seen by two windows and by the next server."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from app_folders import client, use_slow_program, wait_for, write_sound
from fastapi.testclient import TestClient

from mast import jobs
from mast.annotations.detections import read_run, write_run
from mast.app.work import adapted_folder, learned_folder
from mast.detect_options import DetectOptions
from mast.jobs import Jobs
from mast.progress import PROGRESS, CommandReport, read_progress
from mast.review.decisions import change_event
from mast.review.open_review import open_review
from mast.review.store import STORE
from mast.review.suggestions import add_suggestions
from mast.runs import ADAPTED

sys.path.insert(0, str(Path(__file__).parents[1] / "review"))
from review_folders import small_results

# mast on a disk that is full once two recordings are written
SMALL_DISK = """
import errno, os
from mast.inference import results
write, written = results.write_atomic, []
def write_until_full(path, content):
    if path.suffix == ".parquet":
        if len(written) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        written.append(path)
    write(path, content)

results.write_atomic = write_until_full
from mast.cli.main import main
main()
"""


@pytest.fixture
def sound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    use_slow_program(monkeypatch, tmp_path)
    return write_sound(tmp_path / "wood")


def _work(page: TestClient, folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = page.get("/api/work", params={"path": str(folder)}).json()["results"]
    return found


def _begin(page: TestClient, sound: Path) -> Path:
    answer = page.post("/api/find", json={"path": str(sound), "sought": "birds"})
    assert answer.status_code == 200, answer.text
    out = Path(answer.json()["folder"])
    wait_for(lambda: _work(page, sound)[0]["done"] > 3)
    return out


def _stop(page: TestClient, sound: Path, out: Path) -> None:
    page.post("/api/stop", json={"folder": str(out)})
    wait_for(lambda: _work(page, sound)[0]["state"] != "running")


def test_two_windows_and_the_next_server_see_the_same_job(sound: Path) -> None:
    first, second = client(), client()
    out = _begin(first, sound)
    assert out == sound.parent / "wood-mast" / "birds"
    process = read_progress(out).process  # type: ignore[union-attr]
    seen = _work(second, sound)[0]
    assert (seen["state"], seen["kind"], seen["left_s"], seen["unit"]) == (
        "running",
        "find",
        60.0,
        "recordings",
    )
    for page in (first, second):  # pressed again: it is left to run
        assert page.post("/api/find", json={"path": str(sound), "sought": "birds"}).status_code == 200
    assert read_progress(out).process == process  # type: ignore[union-attr]
    _stop(second, sound, out)  # whoever asks
    stopped = _work(first, sound)[0]
    assert (stopped["state"], stopped["can_resume"]) == ("stopped", True)
    assert stopped["typed"].endswith(f"detect {sound} --out {out} --embed --band birds")


def test_a_job_killed_from_outside_was_stopped_and_is_resumed(sound: Path) -> None:
    page = client()
    out = _begin(page, sound)
    os.kill(read_progress(out).process, signal.SIGKILL)  # type: ignore[union-attr]
    wait_for(lambda: _work(page, sound)[0]["state"] == "stopped")
    after = client()  # a server that was started again knows as much
    assert _work(after, sound)[0]["state"] == "stopped"
    assert after.post("/api/resume", json={"folder": str(out)}).status_code == 200
    wait_for(lambda: _work(after, sound)[0]["state"] == "running")
    (out / "finish").touch()
    wait_for(lambda: _work(after, sound)[0]["state"] == "done")


def test_a_command_that_is_slow_to_leave_is_waited_for(sound: Path) -> None:
    page = client()
    out = _begin(page, sound)
    (out / "linger").touch()
    process = read_progress(out).process  # type: ignore[union-attr]
    _stop(page, sound, out)
    assert page.post("/api/resume", json={"folder": str(out)}).status_code == 200
    wait_for(lambda: read_progress(out).process not in (0, process))  # type: ignore[union-attr]
    wait_for(lambda: _work(page, sound)[0]["done"] > 3)
    _stop(page, sound, out)


def test_why_a_job_failed_is_said(sound: Path) -> None:
    page = client()
    out = _begin(page, sound)
    (out / "fail").touch()
    wait_for(lambda: _work(page, sound)[0]["state"] == "failed")
    assert _work(page, sound)[0]["sentence"] == "the model is not there; choose another"


def test_what_was_begun_in_a_terminal_is_seen_but_only_its_own_folder_is_written(
    sound: Path, tmp_path: Path
) -> None:
    out = tmp_path / "wood-mast" / "mine"
    out.mkdir(parents=True)
    told = {
        "command": ["detect", "wood", "--out", "wood-mast/mine"], "folder": str(tmp_path), "process": 1, "machine": "",
        "state": "running", "sentence": "", "what": "", "done": 1, "total": 2, "unit": "", "left_s": None, "notes": [],
    }  # fmt: skip
    page = client()
    for command in (
        ["convert", "a", "b", "--to", "csv", "--out", "wood-mast/mine"],
        ["detect", "wood", "--out", "elsewhere"],
        ["detect", "wood"],
    ):
        (out / PROGRESS).write_text(json.dumps({**told, "command": command}))
        assert page.post("/api/resume", json={"folder": str(out)}).status_code == 400
    (out / PROGRESS).write_text(json.dumps(told))
    assert _work(page, sound)[0]["state"] == "stopped"
    assert page.post("/api/resume", json={"folder": str(out)}).status_code == 200
    wait_for(lambda: _work(page, sound)[0]["done"] > 3)
    _stop(page, sound, out)


def test_a_full_disk_is_one_sentence_and_nothing_is_started(
    sound: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = client(raise_server_exceptions=False)

    def refuse(self: Path, *given: object, **more: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    answer = page.post("/api/find", json={"path": str(sound), "sought": "birds"})
    assert answer.status_code == 507
    assert answer.json()["error"].endswith("wood-mast/birds: the disk is full; free some space")
    assert _work(page, sound) == []


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"sought": "unicorns"}, "expected one of fish, frogs, birds, bats, whole"),
        ({"sought": "whole"}, "is still being read"),
        ({"sought": "birds", "model": "/tmp"}, "holds no model that was trained here"),
        ({}, "expected sought to be text"),
    ],
)
def test_what_cannot_be_found_is_said(sound: Path, wanted: dict[str, str], said: str) -> None:
    answer = client().post("/api/find", json={"path": str(sound), **wanted})
    assert answer.status_code == 400
    assert said in answer.json()["error"]


def test_the_contents_are_those_of_scan(sound: Path) -> None:
    (sound / "broken.wav").write_bytes(b"no sound")
    page = client()

    def read() -> Any:
        found = page.get("/api/contents", params={"path": str(sound)}).json()
        return found if found["state"] != "reading" else None

    found = wait_for(read)
    assert (found["recordings"], found["site_count"], found["day_count"]) == (2, 2, 2)
    assert found["hours"] == pytest.approx(6 / 3600)
    assert [one["file"] for one in found["broken"]] == ["broken.wav"]
    answer = page.post("/api/find", json={"path": str(sound), "sought": "whole"})
    out = Path(answer.json()["folder"])
    assert out.name == "whole-8000-Hz"
    wait_for(lambda: _work(page, sound)[0]["done"] > 3)
    _stop(page, sound, out)


def test_a_folder_without_sound_is_one_sentence(tmp_path: Path) -> None:
    page = client()

    def read() -> Any:
        found = page.get("/api/contents", params={"path": str(tmp_path)}).json()
        return found if found["state"] != "reading" else None

    assert "no recordings found; expected files ending in .wav" in wait_for(read)["sentence"]


def test_a_folder_that_may_not_be_read_is_one_sentence_and_nothing_is_started(
    sound: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scandir = os.scandir

    def refuse(path: Any = ".") -> Any:
        if Path(path) == sound:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    page = client()
    monkeypatch.setattr(os, "scandir", refuse)

    def read() -> Any:
        found = page.get("/api/contents", params={"path": str(sound)}).json()
        return found if found["state"] != "reading" else None

    listed = page.get("/api/folders", params={"path": str(sound)})
    assert listed.status_code == 400
    for sentence in (listed.json()["error"], wait_for(read)["sentence"]):
        assert sentence.startswith(f"{sound}: cannot be listed (Permission denied)")
        assert "permissions" in sentence
        assert "\n" not in sentence
    answer = page.post("/api/find", json={"path": str(sound), "sought": "whole"})
    assert answer.status_code == 400  # what is in it is not known
    assert not (sound.parent / "wood-mast").exists()


def test_a_disk_that_fills_on_the_way_is_one_sentence_and_what_is_done_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wood = write_sound(tmp_path / "wood", tuple(f"N1_20240501_0{hour}0000.wav" for hour in range(4)))
    program = tmp_path / "small_disk.py"
    program.write_text(SMALL_DISK)
    real = jobs._PROGRAM
    monkeypatch.setattr(jobs, "_PROGRAM", (sys.executable, str(program)))
    page = client()
    out = Path(page.post("/api/find", json={"path": str(wood), "sought": "birds"}).json()["folder"])
    wait_for(lambda: _work(page, wood)[0]["state"] != "running")
    failed = _work(page, wood)[0]
    assert failed["state"] == "failed"
    assert "the disk is full; free some space" in failed["sentence"]
    assert len(list((out / "recordings").rglob("*.parquet"))) == 2
    monkeypatch.setattr(jobs, "_PROGRAM", real)
    assert page.post("/api/resume", json={"folder": str(out)}).status_code == 200
    wait_for(lambda: _work(page, wood)[0]["state"] == "done")
    assert len(list((out / "recordings").rglob("*.parquet"))) == 4


def test_the_summary_has_the_names_that_the_review_was_given(tmp_path: Path) -> None:
    folder, page = small_results(tmp_path), client()

    def summarised() -> tuple[str, pd.DataFrame]:
        assert page.post("/api/summarize", json={"folder": str(folder)}).status_code == 200
        wait_for(lambda: read_progress(folder / "summary").state in ("done", "failed"))  # type: ignore[union-attr]
        told = read_progress(folder / "summary")
        assert told is not None
        assert told.state == "done", told.sentence
        return " ".join(told.command), pd.read_csv(folder / "summary" / "sites.csv")

    command, sites = summarised()
    assert "--names" not in command
    assert sites["label"].isna().all()
    assert not (folder / STORE).exists()  # nobody reviews it
    names = tmp_path / "named.csv"
    table = pd.read_parquet(folder / "detections.parquet").assign(label="wren", likely_label="wren")
    table.assign(label_score=0.9, label_source="BirdNET").to_csv(names, index=False)
    review = open_review(folder)
    add_suggestions(review.store, names)
    review.close()
    command, sites = summarised()
    assert command.endswith(f"--names {names}")
    assert set(sites["label"]) == {"wren"}
    names.unlink()
    assert "--names" not in summarised()[0]


def test_what_is_learnt_starts_from_boxes_as_they_were_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = small_results(tmp_path, recordings=1, events=2)
    begun: list[list[str]] = []
    monkeypatch.setattr(Jobs, "start", lambda self, command, out, **_: begun.append(list(command)))
    page = client()
    run = read_run(results)
    assert run is not None
    for options, given in (
        (DetectOptions(), []),
        (DetectOptions(box="strongest", join_s=0.25), ["--box", "strongest", "--join", "0.25"]),
        (DetectOptions(box="all"), ["--box", "all"]),
    ):
        write_run(results, replace(run, band_hz=(20.0, 96_000.0), model="default", options=options))
        review = open_review(results)
        with review.store.reading() as db:
            event = db.execute("SELECT id, version FROM events").fetchone()
        change_event(review.store, "Ana", event["id"], {"version": event["version"], "status": "accepted"})
        review.close()
        assert page.post("/api/learn", json={"folder": str(results)}).status_code == 200
        assert begun.pop()[2:] == [
            "--init", "default", "--out", str(learned_folder(results)), "--band", "96000", *given
        ]  # fmt: skip


@pytest.mark.parametrize("what", ["learn", "adapt"])
def test_learning_needs_something_that_was_found(sound: Path, what: str) -> None:
    answer = client().post(f"/api/{what}", json={"folder": str(sound)})
    assert answer.status_code == 400
    assert "is not a folder that Find made" in answer.json()["error"]


def test_adapting_runs_on_the_recordings_of_a_search_with_its_model_and_band(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = small_results(tmp_path, recordings=1, events=2)
    begun: list[list[str]] = []
    monkeypatch.setattr(Jobs, "start", lambda self, command, out, **_: begun.append([*command, str(out)]))
    page = client()
    run = read_run(results)
    assert run is not None
    for band, model, given in (
        (None, "", ["--model", "default"]),
        ((20.0, 2_000.0), "runs/mine", ["--model", "runs/mine"]),
    ):
        write_run(results, replace(run, band_hz=band, model=model))
        assert page.post("/api/adapt", json={"folder": str(results)}).status_code == 200
        out = str(adapted_folder(results))
        edge = ["--band", "2000"] if band else []
        assert begun.pop() == ["adapt", run.root, *given, "--out", out, *edge, out]


def test_an_adapted_detector_is_complete_and_can_be_chosen(tmp_path: Path) -> None:
    wood = write_sound(tmp_path / "wood")
    out = tmp_path / "wood-mast" / "birds-adapted"
    (out / "best").mkdir(parents=True)
    page = client()
    assert not _work(page, wood)
    begun = wood.parent / "wood-mast" / "fish-adapted"
    report = CommandReport(["adapt", str(wood)])
    report.claim_folder(begun)
    report.begin()
    assert [(one["name"], one["kind"], one["state"]) for one in _work(page, wood)] == [
        ("fish-adapted", "learn", "running")
    ]
    report.end("failed", "found nothing")
    shutil.rmtree(begun)
    (out / ADAPTED).write_text("{}", encoding="utf-8")
    shown = _work(page, wood)[0]
    assert (shown["kind"], shown["state"], shown["has_model"]) == ("learn", "done", True)
    told = page.get("/api/work", params={"path": str(wood)}).json()
    assert [model["name"] for model in told["models"]] == ["birds-adapted"]
