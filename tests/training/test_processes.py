"""Several processes see what one would have seen."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import run_processes


def launch(processes: int, tones: Path, out: Path) -> None:
    # accelerate's own launcher starts a single process on a CPU, however many are asked for; on several GPUs it is
    # `accelerate launch`, which starts them by the same torch.distributed.run
    command = [
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc_per_node={processes}",
        run_processes.__file__,
    ]
    done = subprocess.run([sys.executable, *command, str(tones), str(out)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2_000:]


def losses(run: Path) -> list[float]:
    rows = [json.loads(line) for line in (run / "curves.jsonl").read_text().splitlines()]
    return [row["train/loss"] for row in rows if "train/loss" in row]


@pytest.mark.slow
def test_two_processes_give_the_losses_of_one(tones: Path, tmp_path: Path) -> None:
    run_processes.run(tones, tmp_path / "1")
    launch(2, tones, tmp_path / "2")
    for processes in (1, 2):
        assert (tmp_path / str(processes) / "processes").read_text() == str(processes)
    for run in ("pretrain", "detector"):
        one, two = (losses(tmp_path / str(n) / run) for n in (1, 2))
        assert len(one) == 10
        assert two == pytest.approx(one, abs=1e-4), run
        assert one[-1] < one[0]  # and something was learnt, so that equal losses mean equal updates
