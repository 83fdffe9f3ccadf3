"""The benchmark of the GPU, rehearsed on a CPU: what fails or comes too late costs no other figure."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks import bench_gpu

SECONDS_EACH, CHUNKS_EACH = 20.0, 2


def fails() -> None:
    raise RuntimeError("no such luck")


def test_a_step_that_fails_is_named_and_the_file_holds_the_others(tmp_path: Path) -> None:
    out = tmp_path / "gpu.json"
    steps = bench_gpu.Steps(str(out), 100.0, 0, {})
    assert steps.run("a.b", lambda: {"rate": 1}) == {"rate": 1}
    assert json.loads(out.read_text())["figures"]["a"] == {"b": {"rate": 1}}
    assert steps.run("a.c", fails) is None
    kept = json.loads(out.read_text())["figures"]["a"]
    assert kept == {"b": {"rate": 1}, "c": {"failed": "RuntimeError: no such luck"}}


def test_a_step_that_would_begin_too_late_is_not_begun() -> None:
    steps = bench_gpu.Steps(None, -1.0, 0, {})
    assert steps.run("late", fails) is None
    assert "skipped" in steps.figures["late"]


def test_rates_with_start_and_of_the_second_half() -> None:
    run = {"exit_code": 0, "wall_s": 10.0, "recordings_done": 4, "done_at_s": [6.0, 7.0, 7.5, 8.0]}
    found = bench_gpu.long_run(run, CHUNKS_EACH, SECONDS_EACH, 16.0)
    assert found["with_start"]["chunks_per_s"] == pytest.approx(0.8)
    assert found["with_start"]["times_real_time"] == pytest.approx(8)
    # two recordings of two chunks in the last second
    assert found["steady"]["chunks_per_s"] == pytest.approx(4)
    assert found["steady"]["ratio_to_encoder"] == pytest.approx(0.25)
    assert (found["first_done_s"], found["last_done_s"]) == (6.0, 8.0)


def test_a_run_that_failed_has_no_rates() -> None:
    run = {"exit_code": 1, "wall_s": 10.0, "recordings_done": 1, "done_at_s": [6.0], "last_words": "oh"}
    assert "with_start" not in bench_gpu.long_run(run, CHUNKS_EACH, SECONDS_EACH, 16.0)


def test_the_last_words_of_a_command_that_failed_are_kept(tmp_path: Path) -> None:
    (tmp_path / "sound").mkdir()
    bench_gpu.write_recording(tmp_path / "sound" / "a.wav", 0.05, 0)
    options = argparse.Namespace(device="cpu", detector_batch=None, no_compile=True, minutes=0.05)
    run = bench_gpu.command(tmp_path / "sound", tmp_path / "nowhere", tmp_path / "found", 1, options)
    assert run["exit_code"] != 0
    assert run["recordings_done"] == 0
    assert "nowhere" in run["last_words"]


def test_all_steps_from_model_to_rates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def command(sound: Path, model: Path, out: Path, workers: int, options: Any) -> dict[str, Any]:
        n = len(list(sound.glob("*.wav")))
        asked.append((n, workers))
        if workers == 2:
            return {"exit_code": 1, "wall_s": 1.0, "recordings_done": 0, "last_words": "no memory"}
        done_at = [5.0 + k for k in range(n)]
        return {"exit_code": 0, "wall_s": 5.0 + n, "recordings_done": n, "done_at_s": done_at}

    monkeypatch.setattr(bench_gpu, "command", command)
    monkeypatch.setattr("torch.set_num_threads", lambda n: None)  # other tests want theirs
    out = tmp_path / "gpu.json"
    small = ["--size", "tiny", "--device", "cpu", "--recordings", "3", "--minutes", "0.2", "--batch", "1"]
    small += ["--detector-batch", "1", "--blocks", "1", "--block-seconds", "0", "--most-seconds", "600"]
    figures = bench_gpu.main([*small, "--workers", "2,1", "--out", str(out)])
    assert json.loads(out.read_text())["figures"] == figures
    assert asked == [
        (3, 2),
        (3, 1),
        (1, 1),
    ]  # all in turn; starting alone only where there is something to compare
    assert figures["chunks_each"] == 2
    assert figures["encoder"]["plain_autocast"]["chunks_per_s"] > 0
    assert figures["detector"]["plain"]["boxes"]["chunks_per_s"] > 0
    assert all(rate > 0 for rate in figures["stages"]["chunks_per_s"].values())
    assert figures["end_to_end"]["2_workers"]["last_words"] == "no memory"
    one = figures["end_to_end"]["1_workers"]
    assert one["with_start"]["chunks_per_s"] == pytest.approx(6 / 8)
    assert one["without_start"]["chunks_per_s"] == pytest.approx(4 / 2)
    reference = figures["encoder"]["plain_autocast"]["chunks_per_s"]
    assert one["without_start"]["ratio_to_encoder"] == pytest.approx(2 / reference)


def test_only_the_steps_asked_for_are_run() -> None:
    figures: dict[str, object] = {}
    steps = bench_gpu.Steps(None, 100.0, 0, figures, ("encoder", "stages"))
    assert [steps.run(name, lambda: 1) for name in ("encoder.plain", "detector.plain", "stages")] == [
        1,
        None,
        1,
    ]
    assert figures.keys() == {"encoder", "stages", "step_seconds", "total_s"}
