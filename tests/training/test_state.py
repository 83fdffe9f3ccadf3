from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from mast.errors import MastError
from mast.training.state import latest_state, save_state


def test_the_newest_is_found_and_older_ones_go(tmp_path: Path) -> None:
    assert latest_state(tmp_path / "none") is None
    for step in (1, 20, 3):
        save_state(tmp_path, step, {"step": step, "weights": torch.full((3,), float(step))})
    state = latest_state(tmp_path)
    assert state is not None
    assert state["step"] == 3
    assert len(list(tmp_path.iterdir())) == 1


def test_a_damaged_snapshot_is_named(tmp_path: Path) -> None:
    (tmp_path / "step-000000004").write_bytes(b"not a snapshot")
    with pytest.raises(MastError, match="step-000000004: this snapshot cannot be read"):
        latest_state(tmp_path)


def test_killed_while_writing_loses_nothing(tmp_path: Path) -> None:
    """A process writes snapshots as fast as it can and is killed; what is left always loads and never goes back."""
    writer = (
        "import sys, torch; from pathlib import Path; from mast.training.state import save_state\n"
        "torch.set_num_threads(1); step = int(sys.argv[2])\n"
        "while True:\n"
        "    step += 1; save_state(Path(sys.argv[1]), step, {'step': step, 'w': torch.full((300_000,), float(step))})\n"
        "    print(step, flush=True)\n"
    )
    seen = 0
    for delay in (0.0, 0.013, 0.031):
        process = subprocess.Popen(
            [sys.executable, "-c", writer, str(tmp_path), str(seen)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        finished = int(process.stdout.readline())
        time.sleep(delay)
        os.kill(process.pid, signal.SIGKILL)
        finished = max([finished, *(int(line) for line in process.stdout.read().split())])
        process.wait()
        state = latest_state(tmp_path)
        assert state is not None
        assert state["step"] >= finished
        assert torch.equal(state["w"], torch.full((300_000,), float(state["step"])))
        seen = state["step"]


def test_a_snapshot_has_its_name_only_once_it_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[str, int]] = []
    fsync, replace = os.fsync, os.replace

    def synced(descriptor: int) -> None:
        done.append(("on disk", os.fstat(descriptor).st_ino))
        fsync(descriptor)

    def renamed(source: Path, target: Path) -> None:
        done.append(("renamed", os.stat(source).st_ino))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    file = save_state(tmp_path, 1, {"step": 1}).stat().st_ino
    assert done == [("on disk", file), ("renamed", file)]
