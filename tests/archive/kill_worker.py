"""A worker of a running `mast detect` killed in the middle of its work."""

from __future__ import annotations

import os
import signal
import time

import pytest

from mast.archive.crew import CrewEngine, Engine
from mast.archive.locations import Recording
from mast.cli import detect as command
from mast.inference.results import ResultsFolder


def kill_a_worker(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """From now on, the worker that gets the third batch of a `mast detect` is killed at it; gives its process."""
    killed: list[int] = []
    search = command._search

    def search_with_kill(
        engine: Engine, results: ResultsFolder, todo: list[Recording], quiet: bool
    ) -> list[str]:
        assert isinstance(engine, CrewEngine)
        assign, n_given = engine._crew.assign, 0

        def assign_and_kill(worker: int, recordings: list[Recording]) -> None:
            nonlocal n_given
            assign(worker, recordings)
            n_given += 1
            if n_given == 3:
                time.sleep(0.02)  # so that it has started
                killed.append(engine.pids[worker])
                os.kill(killed[0], signal.SIGKILL)

        monkeypatch.setattr(engine._crew, "assign", assign_and_kill)
        failures = search(engine, results, todo, quiet)
        assert len(set(engine.pids.values())) == len(engine.pids) >= 2  # somebody else did its work
        return failures

    monkeypatch.setattr(command, "_search", search_with_kill)
    return killed
