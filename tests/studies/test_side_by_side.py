"""Several jobs at once: order, room, what a job waits for, failures, and the end of time."""

from __future__ import annotations

import argparse
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from as_a_program import run_as_program

from mast_studies import side_by_side as script
from mast_studies.side_by_side import QueuedCommand, Report


def job(name: str, code: str, **settings: Any) -> QueuedCommand:
    return QueuedCommand(name, (sys.executable, "-c", code), **{"rank": 0.0, "gpu_gb": 1.0} | settings)


def run(jobs: list[QueuedCommand], folder: Path, **settings: Any) -> Report:
    options = {"gpu_gb": 10.0, "at_once": 4, "seconds": 60.0} | settings
    return script.run_jobs(jobs, logs=folder / "logs", say=lambda text: None, **options)


def write(path: Path, after: float = 0.0) -> str:
    """Code that appends a letter to a file."""
    return f"import time; time.sleep({after}); open({str(path)!r}, 'a').write('x')"


def test_jobs_run_by_rank_and_wait_for_what_they_need(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    jobs = [
        job("d/second", write(second) + f"; assert open({str(first)!r}).read() == 'x'", needs=(first,)),
        job("d/first", write(first, after=0.3), rank=1.0),
    ]
    report = run(jobs, tmp_path)
    assert list(report.done) == ["d/first", "d/second"]
    assert second.exists()
    assert not report.failed
    assert not report.not_done


def test_a_large_job_is_not_overtaken_for_ever(tmp_path: Path) -> None:
    order = tmp_path / "order"

    def note(letter: str, after: float = 0.0) -> str:
        return f"import time; open({str(order)!r}, 'a').write('{letter}'); time.sleep({after})"

    jobs = [
        job("d/small", note("s", 0.5), rank=0.0, gpu_gb=6),
        job("d/large", note("L"), rank=1.0, gpu_gb=9),
        job("d/late", note("t"), rank=2.0, gpu_gb=2),  # would fit beside the first, not the second
    ]
    run(jobs, tmp_path)
    assert order.read_text()[:2] == "sL"


def test_a_failure_is_reported_and_keeps_nobody_waiting(tmp_path: Path) -> None:
    jobs = [
        job("d/bad", "raise SystemExit('no such sound')"),
        job("d/orphan", "pass", needs=(tmp_path / "never",)),
    ]
    report = run(jobs, tmp_path)
    assert report.failed == {"d/bad": "no such sound", "d/orphan": "what it builds on was not made"}


def test_a_job_without_memory_has_a_second_chance(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    code = (
        f"import pathlib, sys; p = pathlib.Path({str(flag)!r})\n"
        "if not p.exists():\n    p.touch(); sys.exit('CUDA out of memory')"
    )
    report = run([job("d/big", code)], tmp_path)
    assert list(report.done) == ["d/big"]
    assert not report.failed
    flag.unlink()
    always = job("d/huge", "raise SystemExit('CUDA out of memory')")
    assert list(run([always], tmp_path).failed) == ["d/huge"]


def test_what_is_not_done_in_time_is_stopped_and_named(tmp_path: Path) -> None:
    jobs = [
        job("d/long", "import time; time.sleep(60)"),
        job("d/later", "pass", rank=1.0, gpu_gb=10),
    ]
    report = run(jobs, tmp_path, seconds=1.0)
    assert report.not_done == ["d/long", "d/later"]


def test_what_a_job_leaves_is_kept_at_once(tmp_path: Path) -> None:
    output = tmp_path / "work" / "d-0" / "found" / "fcos"
    code = f"import pathlib; p = pathlib.Path({str(output)!r}); p.mkdir(parents=True); (p / 'about.json').touch()"
    run([job("d-0/fcos", code, output=output)], tmp_path, keep=tmp_path / "kept")
    with tarfile.open(tmp_path / "kept" / "d-0_fcos.tar") as archive:
        assert "d-0/found/fcos/about.json" in archive.getnames()


def test_the_plan_has_every_system_once_and_builds_on_what_comes_before(tmp_path: Path) -> None:
    options = argparse.Namespace(
        bench="bench-{seed}", seeds="0,1", elsewhere=Path("away"), generic=Path("clips"), work=tmp_path / "work",
        preset="p.toml", real=["birds", "fish=2000"], real_unlabelled=None, real_preset="r.toml",
        budget_work=tmp_path / "budget", budget_preset="b.toml",
    )  # fmt: skip
    bench = list(script.bench_jobs(options))
    names = [one.name for one in bench]
    assert len(names) == len(set(names)) == 2 * (len(script.MAIN) + sum(map(len, script.ABLATIONS.values())))
    rank = {one.name: one.rank for one in bench}
    for system, base in script.BUILT_ON.items():
        assert rank[f"soundscape-bench-0/{system}"] > rank[f"soundscape-bench-0/{base}"]
    real = list(script.real_jobs(options))
    assert {one.name for one in real} == {
        f"{n}-0/{s}" for n in ("birds", "fish") for s in script.WITHOUT_UNLABELLED
    }
    assert all(("--band" in one.command) == one.name.startswith("fish") for one in real)
    assert len(list(script.budget_jobs(options))) == 2


def test_the_command_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    run_as_program(script.__name__, "--help")
    assert "--keep" in capsys.readouterr().out
