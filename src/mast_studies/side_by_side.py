"""Run every system of the paper's tables, several at once on one GPU, the most important first, until time is up.

    python -m mast_studies.side_by_side --bench 'data/bench-{seed}' --seeds 0,1 --elsewhere data/nbm_xc \\
        --generic data/generic --real data/birdeep_am1 --real data/tagus_fish=2000 --work runs/exp \\
        --budget-work runs/budget --minutes 25 --keep kept/

One small detector in training leaves most of a large GPU idle: Faster R-CNN waits for its own non-maximum suppression,
a ViT-S for its kernels to start. Here every system is a process of its own (``mast experiment STUDY --systems NAME``),
and as many run as memory and ``--at-once`` allow; start ``nvidia-cuda-mps-control -d`` first, so that they share the
GPU instead of taking turns. A system that builds on another starts when that one has been measured. Everything can be
killed; repeating the command resumes it.

``--keep``: what a system found is copied there as a small archive as soon as it is measured, for a machine that is only
borrowed. Tables and figures can be made afterwards on any machine: ``mast experiment ood --collect-only --work …``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mast.files import atomic_file
from mast_studies.found import Trial
from mast_studies.script import run_script

BENCH = "soundscape-bench"
MAST = (sys.executable, "-c", "from mast.cli.main import main; main()")
# memory of a training run with batches of 32 on an H200, as measured, plus a margin
GPU_GB = {"faster_rcnn": 15, "fcos": 14, "yolo26": 24, "detr": 14, "mast_st": 10, "mast_detail_st": 12}
OTHER_GB = 9
# the systems in order of importance, by the study that trains them (each is trained once for all studies)
MAIN = ("mast", "faster_rcnn", "yolo26", "fcos", "audiomae", "detr", "mast_st")
ABLATIONS = {
    "adapters": ("adapter_none", "adapter_conv", "adapter_anisotropic"),
    "pipeline": ("no_contrastive", "no_adapter", "scratch"),
    "curriculum": ("st_stage1", "st_stage2", "st_union", "mast_st_1"),
    "detail": (
        "mast_detail",
        "scratch_detail",
        "mast_long",
        "mast_detail_st",
        "mast_long_detail",
        "scratch_adapter",
    ),
}
BUILT_ON = {
    "mast_st": "mast",
    "mast_st_1": "mast_st",
    "st_stage1": "mast",
    "st_stage2": "mast",
    "st_union": "mast",
    "mast_detail_st": "mast_detail",
}
WITHOUT_UNLABELLED = ("faster_rcnn", "fcos", "yolo26", "detr")


@dataclass(frozen=True)
class QueuedCommand:
    """A command, when it may start, and what it writes."""

    name: str
    command: tuple[str, ...]
    rank: float  # the lowest runs first
    gpu_gb: float = OTHER_GB
    needs: tuple[Path, ...] = ()  # files of other jobs
    output: Path | None = None  # a folder to keep


@dataclass
class Report:
    """How each job ended."""

    done: dict[str, float] = field(default_factory=dict)  # seconds
    failed: dict[str, str] = field(default_factory=dict)  # last line
    not_done: list[str] = field(default_factory=list)  # time was up


def main() -> None:
    """Read the options, plan, run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bench", help="soundscape-bench folders; {seed} stands for the number")
    parser.add_argument("--seeds", default="0,1")
    parser.add_argument(
        "--real", action="append", default=[], help="a labelled set, NAME or NAME=BAND; may be repeated"
    )
    parser.add_argument(
        "--real-unlabelled", type=Path, help="for MAST on these; without it, only the baselines run"
    )
    parser.add_argument("--elsewhere", type=Path, help="also measure the bench's systems there")
    parser.add_argument(
        "--generic", type=Path, help="clips for the AudioMAE architecture; without them it is left out"
    )
    parser.add_argument("--work", type=Path, default=Path("runs/experiments"))
    parser.add_argument(
        "--budget-work", type=Path, help="work folder of label budgets; without it none are run"
    )
    parser.add_argument("--preset", default="half_hour")
    parser.add_argument("--real-preset", default="real_sets")
    parser.add_argument("--budget-preset", default="label_budget")
    parser.add_argument("--only", default="", help="systems, as in fcos,yolo26")
    parser.add_argument("--minutes", type=float, default=25.0)
    parser.add_argument("--gpu-gb", type=float, default=130.0)
    parser.add_argument("--at-once", type=int, default=12)
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    jobs = [*bench_jobs(options), *real_jobs(options), *budget_jobs(options)]
    if options.only:
        jobs = [job for job in jobs if job.name.rpartition("/")[2] in options.only.split(",")]
    report = run_jobs(
        jobs,
        logs=options.work / "logs",
        gpu_gb=options.gpu_gb,
        at_once=options.at_once,
        seconds=60 * options.minutes,
        keep=options.keep,
    )
    for name, line in report.failed.items():
        print(f"failed: {name}: {line}")
    print(
        f"{len(report.done)} done, {len(report.failed)} failed, not reached: {', '.join(report.not_done) or 'none'}"
    )
    raise SystemExit(1 if report.failed or report.not_done else 0)


def bench_jobs(options: argparse.Namespace) -> Iterator[QueuedCommand]:
    """All systems and ablations on soundscape-bench, seed by seed."""
    if not options.bench:
        return
    elsewhere = ("--elsewhere", str(options.elsewhere)) if options.elsewhere else ()
    studies = dict.fromkeys(MAIN, "transfer" if options.elsewhere else "ood")
    studies |= {name: study for study, names in ABLATIONS.items() for name in names}
    for seed in map(int, options.seeds.split(",")):
        sound = ("-u", f"{options.bench}/unlabelled")
        for order, (system, study) in enumerate(studies.items()):
            more = (*sound, *(elsewhere if system in MAIN else ()))
            if system == "audiomae":
                if options.generic is None:
                    continue
                more = (*more, "--generic", str(options.generic))
            rank = order + 0.5 * seed + (10 if system not in MAIN else 0)
            yield _study_command(options, study, system, BENCH, f"{options.bench}/labelled", seed, rank, more)


def real_jobs(options: argparse.Namespace) -> Iterator[QueuedCommand]:
    """The seven systems on small labelled sets."""
    for number, dataset in enumerate(options.real):
        folder, _, band = dataset.partition("=")
        for order, system in enumerate(MAIN):
            sound: tuple[str, ...] = ()
            if system not in WITHOUT_UNLABELLED:
                if options.real_unlabelled is None or (system == "audiomae" and options.generic is None):
                    continue
                sound = ("-u", str(options.real_unlabelled))
                if system == "audiomae":
                    sound = (*sound, "--generic", str(options.generic))
            more = (*sound, *(("--band", band) if band else ()))
            name, rank = Path(folder).name, 2.2 + order + 0.1 * number
            yield _study_command(
                options, "ood", system, name, folder, 0, rank, more, preset=options.real_preset
            )


def budget_jobs(options: argparse.Namespace) -> Iterator[QueuedCommand]:
    """All label budgets of a seed in one process: they share the decoded sound."""
    if not options.budget_work or not options.bench:
        return
    for seed in map(int, options.seeds.split(",")):
        trial = Trial.at(options.budget_work, BENCH, seed)
        command = _experiment_command(
            "label-budget", BENCH, f"{options.bench}/labelled", seed, options.budget_preset, options.budget_work,
            options.work / "out" / f"budgets-{seed}",
        )  # fmt: skip
        yield QueuedCommand(
            f"{BENCH}-{seed}/budgets", command, 6.5 + 0.1 * seed, 7, output=trial.folder / "found"
        )


def _study_command(
    options: argparse.Namespace,
    study: str,
    system: str,
    dataset: str,
    data: str,
    seed: int,
    rank: float,
    more: Sequence[str],
    preset: str | None = None,
) -> QueuedCommand:
    trial = Trial.at(options.work, dataset, seed)
    out = options.work / "out" / f"{dataset}-{seed}-{system}"
    command = _experiment_command(study, dataset, data, seed, preset or options.preset, options.work, out)
    needs = (trial.system(BUILT_ON[system]) / "about.json",) if system in BUILT_ON else ()
    memory = GPU_GB.get(system, OTHER_GB)
    name, words = f"{dataset}-{seed}/{system}", (*command, "--systems", system, *more)
    return QueuedCommand(name, words, rank, memory, needs, output=trial.system(system))


def _experiment_command(
    study: str, dataset: str, data: str, seed: int, preset: str, work: Path, out: Path
) -> tuple[str, ...]:
    """``mast experiment`` for one dataset and seed."""
    options = {"data": data, "seed": seed, "preset": preset, "work": work, "out": out, "name": dataset}
    words = [word for option, value in options.items() for word in (f"--{option}", str(value))]
    return (*MAST, "experiment", study, *words, "--quiet")


def run_jobs(
    jobs: Sequence[QueuedCommand],
    *,
    logs: Path,
    gpu_gb: float,
    at_once: int,
    seconds: float,
    keep: Path | None = None,
    say: Callable[[str], None] = print,
) -> Report:
    """Run jobs by rank, as many as fit, until all are done or time is up; what still runs then is stopped.

    The first job that is ready but does not fit holds back those behind it: a large one would never find room
    otherwise. A job that ran out of memory gets a second try, and then counts as larger.
    """
    logs.mkdir(parents=True, exist_ok=True)
    waiting, running, report = sorted(jobs, key=lambda job: job.rank), dict[str, _Running](), Report()
    retried: set[str] = set()
    began = time.monotonic()

    def report_progress(text: str) -> None:
        say(f"{time.monotonic() - began:5.0f} s: {text}")

    while (waiting or running) and time.monotonic() - began < seconds:
        for name in [name for name, one in running.items() if one.process.poll() is not None]:
            one = running.pop(name)
            spent, log_text = time.monotonic() - one.began, one.log.read_text(errors="replace")
            if one.process.returncode == 0:
                report.done[name] = spent
                _keep_output(one.job, keep)
                report_progress(f"{name} done after {spent:.0f} s")
            elif "out of memory" in log_text and name not in retried:
                retried.add(name)
                waiting.insert(0, replace(one.job, gpu_gb=min(gpu_gb, 1.5 * one.job.gpu_gb)))
                report_progress(f"{name} ran out of memory, waits for more")
            else:
                report.failed[name] = _last_line(log_text)
                report_progress(f"{name} failed: {report.failed[name]}")
        ready = [job for job in waiting if all(need.exists() for need in job.needs)]
        for job in ready:
            if len(running) >= at_once or sum(r.job.gpu_gb for r in running.values()) + job.gpu_gb > gpu_gb:
                break
            waiting.remove(job)
            running[job.name] = _start(job, logs)
        if waiting and not ready and not running:
            report.failed |= {job.name: "what it builds on was not made" for job in waiting}
            return report
        time.sleep(0.2)
    report.not_done = [*running, *(job.name for job in waiting)]
    for one in running.values():
        one.process.terminate()
    for one in running.values():
        one.process.wait()
    return report


@dataclass(frozen=True)
class _Running:
    job: QueuedCommand
    process: subprocess.Popen[bytes]
    log: Path
    began: float


def _start(job: QueuedCommand, logs: Path) -> _Running:
    log = logs / f"{job.name.replace('/', '_')}.log"
    with log.open("wb") as file:
        process = subprocess.Popen(job.command, stdout=file, stderr=subprocess.STDOUT)
    return _Running(job, process, log, time.monotonic())


def _last_line(log_text: str) -> str:
    lines = [line for line in log_text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it said nothing"


def _keep_output(job: QueuedCommand, keep: Path | None) -> None:
    """A copy of what a job left, in one archive."""
    if keep is None or job.output is None or not job.output.exists():
        return
    parts = job.output.parts
    inside = "/".join(parts[parts.index(job.name.partition("/")[0]) :])  # from the dataset's folder on
    with atomic_file(keep / f"{job.name.replace('/', '_')}.tar") as path, tarfile.open(path, "w") as archive:
        archive.add(job.output, arcname=inside)


if __name__ == "__main__":
    run_script(main)
