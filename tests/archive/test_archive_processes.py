"""Several processes: the same events as one, whoever is killed on the way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from kill_worker import kill_a_worker
from poisoned import FullDiskSpec, PoisonedSpec, times_met
from same_results import assert_same_results
from typer.testing import Result

from mast.archive.crew import CrewEngine
from mast.archive.locations import list_recordings
from mast.archive.processes import ProcessCrew
from mast.archive.worker import DetectorSpec
from mast.cli.options import EXIT_SOME_FAILED
from mast.detect_options import DetectOptions
from mast.errors import MastError

Run = Callable[..., Result]


def test_a_worker_killed_in_the_middle(
    run: Run, whole: Path, survey: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = kill_a_worker(monkeypatch)
    result = run(survey, "--model", model, "--out", tmp_path / "out", "--workers", "2")
    assert result.exit_code == EXIT_SOME_FAILED, result.output
    assert killed
    assert_same_results(tmp_path / "out", whole)


@pytest.mark.parametrize("raises", [False, True])
def test_a_recording_that_kills_is_given_up_and_nothing_else_is(
    whole: Path, survey: Path, model: Path, tmp_path: Path, raises: bool
) -> None:
    poison = "OAK/20230510_040000.wav"
    spec = PoisonedSpec(
        str(model),
        DetectOptions(device="cpu"),
        1,
        poison=poison,
        raises=raises,
        diary=str(tmp_path / "diary"),
    )
    with CrewEngine(ProcessCrew(spec), 2) as engine:
        outcomes = list(engine.search(list_recordings([str(survey)]).recordings))
    names = [outcome.source.recording for outcome in outcomes]
    assert len(names) == len(set(names)) == 13
    errors = {outcome.source.recording: outcome.error for outcome in outcomes if outcome.error}
    assert set(errors) == {poison, "OAK/broken.wav"}
    assert "2 workers died" in errors[poison]
    assert ("MemoryError: too much of it" if raises else "SIGKILL") in errors[poison]
    assert 2 <= times_met(spec) <= 3
    found = pd.concat([outcome.events for outcome in outcomes]).sort_values(["recording", "start_s"])
    expected = pd.read_parquet(whole / "detections.parquet")
    expected = expected[expected["recording"] != poison]
    assert len(found) == len(expected)
    assert set(found["recording"]) == set(expected["recording"])


def test_mistakes_reach_the_user(model: Path, tmp_path: Path) -> None:
    with pytest.raises(MastError, match="no such folder"):
        CrewEngine(ProcessCrew(DetectorSpec(str(tmp_path / "typo"))), 2)
    doomed = PoisonedSpec(str(model), DetectOptions(device="cpu"), 1, at_start=True)
    with pytest.raises(MastError, match=r"3 workers in a row died while starting \(signal SIGKILL"):
        CrewEngine(ProcessCrew(doomed), 2)


def test_nothing_to_do(model: Path) -> None:
    with CrewEngine(ProcessCrew(DetectorSpec(str(model), DetectOptions(device="cpu"), 1)), 2) as engine:
        assert list(engine.search([])) == []
        assert len(engine.pids) == 1  # nobody was hired for it


def test_what_the_machine_refuses_a_worker_reaches_the_user(tmp_path: Path) -> None:
    """As a sentence, not as workers that end one after another."""
    temporary = tmp_path / "gone"  # where the model's files are to be unpacked
    spec = DetectorSpec("default", files={"model.json": b"{}"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(temporary))
        with pytest.raises(MastError, match=r"gone.*no such file or folder"):
            spec.load()


def test_workers_without_room_for_copies_stop_the_run_with_one_sentence(survey: Path, model: Path) -> None:
    """No recording is to blame."""
    recordings = list_recordings([f"local://{survey}"]).recordings
    with (
        CrewEngine(ProcessCrew(FullDiskSpec(str(model), DetectOptions(device="cpu"), 1)), 2) as engine,
        pytest.raises(MastError, match="the disk is full; free some space"),
    ):
        list(engine.search(recordings))
