"""The file that says how far a command has come."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mast.progress import PROGRESS, CommandReport, announce, read_progress

_KILLED = """
import os, signal, sys
from pathlib import Path
from mast.progress import CommandReport
report = CommandReport(["detect", "a", "--out", "b"])
report.claim_folder(Path(sys.argv[1]))
report.update("detect", 3, 10, "recordings", 7.0)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_is_reported_is_what_is_read(tmp_path: Path) -> None:
    report = CommandReport(["detect", "sound", "--out", "x"])
    report.claim_folder(tmp_path / "out")
    assert not (tmp_path / "out").exists()  # a command that is refused leaves nothing
    report.note("measured")
    report.update("detect 1 h", 2, 10, "recordings", 30.5)
    found = read_progress(tmp_path / "out")
    assert found is not None
    assert (found.state, found.what, found.done, found.total) == ("running", "detect 1 h", 2, 10)
    assert (found.unit, found.left_s, found.notes) == ("recordings", 30.5, ["measured"])
    assert (found.command, found.folder, found.process) == (
        ["detect", "sound", "--out", "x"],
        os.getcwd(),
        os.getpid(),
    )


@pytest.mark.parametrize("state", ["done", "stopped", "failed"])
def test_the_end_is_reported(tmp_path: Path, state: str) -> None:
    report = CommandReport(["fit"])
    report.claim_folder(tmp_path)
    report.begin()
    report.end(state, "why")  # type: ignore[arg-type]
    found = read_progress(tmp_path)
    assert found is not None
    assert (found.state, found.sentence, found.left_s) == (state, "why", None)
    assert sorted(path.name for path in tmp_path.iterdir()) == [PROGRESS]


@pytest.mark.skipif(os.name != "posix", reason="no SIGKILL")
def test_a_killed_process_was_stopped_and_the_next_one_reports(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert json.loads((tmp_path / PROGRESS).read_text())["state"] == "running"
    found = read_progress(tmp_path)
    assert found is not None
    assert (found.state, found.done, found.left_s) == ("stopped", 3, None)
    after = CommandReport(["detect"])
    after.claim_folder(tmp_path)
    after.update("detect", 4, 10, "recordings", None)
    found = read_progress(tmp_path)
    assert found is not None
    assert (found.state, found.done) == ("running", 4)


def test_a_command_that_is_about_to_start_is_known(tmp_path: Path) -> None:
    announce(tmp_path, ["fit", "x"], tmp_path)
    found = read_progress(tmp_path)
    assert found is not None
    assert (found.state, found.command, found.folder) == ("stopped", ["fit", "x"], str(tmp_path))


def test_a_second_process_does_not_write_over_the_first(tmp_path: Path) -> None:
    first, second = CommandReport(["detect", "first"]), CommandReport(["detect", "second"])
    for report in (first, second):
        report.claim_folder(tmp_path)
        report.begin()
    second.end("failed", "is being written by another process")
    found = read_progress(tmp_path)
    assert found is not None
    assert (found.command, found.state) == (["detect", "first"], "running")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"command": 3}', '{"command": [], "folder": 7}'])
def test_a_file_that_somebody_else_wrote_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / PROGRESS).write_text(text)
    assert read_progress(tmp_path) is None


def test_a_number_that_is_none_is_not_read(tmp_path: Path) -> None:
    report = CommandReport(["fit"])
    report.claim_folder(tmp_path)
    report.update("fit", float("nan"), 3, "", None)
    assert read_progress(tmp_path) is None


def test_a_folder_that_takes_no_files_does_not_stop_the_command(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    report = CommandReport(["fit"])
    report.claim_folder(tmp_path / "file" / "out")
    report.update("fit", 1, 2, "steps", None)
    report.end("done")
