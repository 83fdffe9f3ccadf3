"""A real Ray cluster on this machine, two workers: the same events as one process, whoever is killed on the way."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest
from kill_worker import kill_a_worker
from poisoned import PoisonedSpec, times_met
from same_results import assert_same_results
from small_s3 import small_s3
from typer.testing import Result

from mast.archive.crew import CrewEngine
from mast.archive.locations import list_recordings
from mast.cli.options import EXIT_SOME_FAILED
from mast.detect_options import DetectOptions
from mast.errors import ConfigError, MastError

pytestmark = pytest.mark.slow
Run = Callable[..., Result]


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Two CPUs, a small object store, and a folder with a short name: Ray keeps sockets there."""
    ray = pytest.importorskip("ray")
    environment = pytest.MonkeyPatch()
    environment.setenv("RAY_USAGE_STATS_ENABLED", "0")
    environment.setenv(
        "PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep
    )  # workers meet the poison, too
    folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")
    for attempt in range(3):
        try:
            ray.init(
                address="local",
                namespace="mast-tests",
                num_cpus=2,
                object_store_memory=100 * 2**20,
                include_dashboard=False,
                log_to_driver=False,
                logging_level="ERROR",
                _temp_dir=folder,
            )
            break
        except Exception:  # Ray gives up after 30 s, which a busy machine may need
            ray.shutdown()
            if attempt == 2:
                raise
    yield
    ray.shutdown()
    environment.undo()
    shutil.rmtree(folder, ignore_errors=True)


def test_a_worker_killed_in_the_middle(
    cluster: None,
    run: Run,
    whole: Path,
    survey: Path,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        killed = kill_a_worker(patch)
        result = run(survey, "--model", model, "--out", tmp_path / "out", "--engine", "ray", "--workers", "2")
    assert result.exit_code == EXIT_SOME_FAILED, result.output
    assert killed
    assert_same_results(tmp_path / "out", whole)

    lost = next((tmp_path / "out" / "recordings").rglob("*.wav.parquet"))
    lost.unlink()  # as if the run had been stopped before it; one process resumes where the cluster was
    assert run(survey, "--model", model, "--out", tmp_path / "out").exit_code == EXIT_SOME_FAILED
    assert_same_results(tmp_path / "out", whole)


def test_a_recording_that_kills_is_given_up_and_nothing_else_is(
    cluster: None, whole: Path, survey: Path, model: Path, tmp_path: Path
) -> None:
    from mast.archive.ray_crew import RayCrew

    poison = "ELM/20230510_050000.wav"
    spec = PoisonedSpec(
        str(model), DetectOptions(device="cpu"), 1, poison=poison, diary=str(tmp_path / "diary")
    )
    with CrewEngine(RayCrew(spec), 2) as engine:
        outcomes = list(engine.search(list_recordings([str(survey)]).recordings))
    names = [outcome.source.recording for outcome in outcomes]
    assert len(names) == len(set(names)) == 13
    errors = {outcome.source.recording: outcome.error for outcome in outcomes if outcome.error}
    assert set(errors) == {poison, "OAK/broken.wav"}
    assert "2 workers died" in errors[poison]
    assert 2 <= times_met(spec) <= 3
    expected = pd.read_parquet(whole / "detections.parquet")
    expected = expected[expected["recording"] != poison]
    assert sum(len(outcome.events) for outcome in outcomes) == len(expected)


def test_recordings_in_object_storage(
    cluster: None,
    run: Run,
    whole: Path,
    survey: Path,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
    shutil.copytree(survey, tmp_path / "buckets" / "forest" / "2023")
    with small_s3(tmp_path / "buckets") as server:
        uri = f"s3://nobody:nothing@forest/2023{server}"
        arguments = (uri, "--model", model, "--out", tmp_path / "out", "--engine", "ray", "--workers", "2")
        result = run(*arguments)
        assert result.exit_code == EXIT_SOME_FAILED, result.output
        assert_same_results(tmp_path / "out", whole)
        assert "nothing" not in (tmp_path / "out" / "run.json").read_text()  # no secrets are kept


def test_mistakes_reach_the_user(cluster: None, survey: Path, run: Run, tmp_path: Path) -> None:
    result = run(survey, "--model", tmp_path / "typo", "--out", tmp_path / "out", "--engine", "ray")
    assert isinstance(result.exception, MastError)
    assert "no such folder" in str(result.exception)
    assert not (tmp_path / "out").exists()


def test_without_ray_one_sentence_says_what_to_install(
    survey: Path, model: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "mast.archive.ray_crew", raising=False)
    result = run(survey, "--model", model, "--out", tmp_path / "out", "--engine", "ray")
    assert isinstance(result.exception, ConfigError)
    assert "pip install 'mast-audio[ray]'" in str(result.exception)
    assert not (tmp_path / "out").exists()


def test_one_file_imports_ray() -> None:
    package = Path(__file__).parents[2] / "src" / "mast"
    importers = [path for path in package.rglob("*.py") if "import ray" in path.read_text(encoding="utf-8")]
    assert [path.name for path in importers] == ["ray_crew.py"]
