"""What an archive costs: `mast detect` per core and side by side, and the results folder per recording and event.

    python benchmarks/bench_archive.py --out results/archive.json
    python benchmarks/bench_archive.py --device cuda --size base --out results/archive_gpu.json

``search`` runs the command on the same recordings in one process with one thread, in one process with all threads,
and with one worker per core (``--ray`` adds a Ray cluster); they take turns, and the best of each is kept.
``cpu_times_real_time`` is seconds of sound over CPU seconds without start-up: what one core does in a second, even on a
machine that others use. ``times_real_time`` is seconds of sound over wall time with start-up, and only means something
if nobody else uses the machine (see ``load_average``). ``results`` fills a folder with made-up events and measures its
size, how fast it is written and merged, and whether memory grows with it. The detector has random weights of a preset's
size.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.bench_memory import write_noise
from benchmarks.record import write_result

RATE = 16_000
_MAST = "from mast.cli.main import main; main()"
_EVENTS = 10  # in a made-up recording of a minute: one every six seconds
_THRESHOLD = "0.9"  # random weights then find little, so that only the search is timed


def run_detect(folder: Path, recordings: Path, words: list[str], threads: int) -> dict[str, float]:
    """Wall and CPU seconds for one `mast detect` over ``recordings``."""
    out = folder / f"out{time.monotonic_ns()}"
    arguments = [
        str(recordings),
        "--model",
        str(folder / "model"),
        "--out",
        str(out),
        "--threshold",
        _THRESHOLD,
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    began = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, "-c", _MAST, "detect", *arguments, "--quiet", *words],
        stdout=subprocess.DEVNULL,
        env=environment,
    )
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"mast detect {' '.join(words)} ended with {child.returncode}")
    return {"seconds": time.perf_counter() - began, "cpu_seconds": used.ru_utime + used.ru_stime}


def search(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The command in one process and in several, which take turns."""
    cores = os.cpu_count() or 1
    words = ["--device", options.device]
    subprocess.run([sys.executable, __file__, "--save", str(folder / "model"), options.size], check=True)
    write_noise(folder / "one" / "ten_seconds.wav", 1 / 6, RATE, options.seed)
    for i in range(options.recordings):
        write_noise(folder / "many" / f"{i:04d}.wav", options.minutes, RATE, options.seed + i)
    sound_s = 60 * options.minutes * options.recordings
    commands: dict[str, tuple[list[str], int]] = {"one_process_one_thread": (words, 1)}
    if options.device == "cpu" and cores > 1:
        commands["one_process_all_threads"] = (words, cores)
        commands["one_worker_per_core"] = ([*words, "--workers", str(cores)], 1)
    if options.ray:
        commands["ray_one_worker_per_core"] = ([*words, "--engine", "ray", "--workers", str(cores)], 1)
    best: dict[str, dict[str, float]] = {}
    for _ in range(options.repeats):
        start = run_detect(folder, folder / "one", words, 1)
        runs = {"start": start}
        runs |= {name: run_detect(folder, folder / "many", *command) for name, command in commands.items()}
        for name, run in runs.items():
            known = best.setdefault(name, run)
            best[name] = {key: min(known[key], run[key]) for key in run}
            print(f"{name}: {run}", flush=True)
    start = best.pop("start")
    alone = best["one_process_one_thread"]
    figures: dict[str, Any] = {
        "model": f"{options.size}, random weights",
        "device": options.device,
        "recordings": options.recordings,
        "minutes_each": options.minutes,
        "sample_rate": RATE,
        "cores": cores,
        "load_average": os.getloadavg()[0],
        "start_seconds": start["seconds"],
        "start_cpu_seconds": start["cpu_seconds"],
        "cpu_times_real_time": (sound_s - 10) / max(alone["cpu_seconds"] - start["cpu_seconds"], 1e-9),
        "steady_times_real_time": (sound_s - 10) / max(alone["seconds"] - start["seconds"], 1e-9),
    }
    for name, run in best.items():
        figures[name] = {"seconds": run["seconds"], "times_real_time": sound_s / run["seconds"]}
    for name in (
        "one_process_one_thread",
        "one_process_all_threads",
    ):  # workers are not children of this process
        if name in best:
            figures[name]["cpu_seconds"] = best[name]["cpu_seconds"]
    return figures


def results(recordings: int, folder: Path) -> dict[str, Any]:
    """A folder of made-up events: bytes, rates, peak memory of this process."""
    import numpy as np
    import pandas as pd

    from mast.events import as_events
    from mast.inference import Searched, Source
    from mast.inference.results import ResultsFolder

    results_folder = ResultsFolder(
        folder / "results", {"model": "none"}, "/survey", size_of=lambda source: 1_920_044
    )

    def outcome(i: int) -> Searched:
        day, minute = divmod(i, 1440)
        when = pd.Timestamp(2023, 5, 1) + pd.Timedelta(days=day % 90, minutes=minute)
        site = f"SITE{day // 90:04d}"
        name = f"{site}/{when:%Y%m%d_%H%M%S}.wav"
        # as irregular as real ones: regular numbers would compress to almost nothing
        rng = np.random.default_rng(i)
        start = np.sort(rng.uniform(0, 59, _EVENTS)).round(6)
        low = rng.uniform(500, 4_000, _EVENTS).round(3)
        table = pd.DataFrame(
            {
                "recording": name,
                "start_s": start,
                "end_s": (start + rng.uniform(0.1, 1, _EVENTS)).round(6),
                "low_hz": low,
                "high_hz": (low + rng.uniform(200, 3_000, _EVENTS)).round(3),
                "score": rng.uniform(0.3, 1, _EVENTS).round(6),
                "site": site,
                "datetime": [
                    (when + pd.Timedelta(seconds=s)).isoformat(timespec="milliseconds") for s in start
                ],
                "source": "detector",
                "model": "mast-0123456789ab",
            }
        )
        return Searched(
            Source(Path("/survey") / name, name), as_events(table), 60.0, 16_000, site, when.isoformat()
        )

    outcomes = [outcome(i) for i in range(200)]
    began = time.process_time(), time.perf_counter()
    for some in outcomes:
        results_folder.add(some)
    adding = time.process_time() - began[0], time.perf_counter() - began[1]
    for i in range(200, recordings):
        results_folder.add(outcome(i))
    began = time.process_time(), time.perf_counter()
    totals = results_folder.combine(["partitioned"])
    merging = time.process_time() - began[0], time.perf_counter() - began[1]

    def total_bytes(pattern: str) -> int:
        return sum(path.stat().st_size for path in (folder / "results").glob(pattern) if path.is_file())

    return {
        "recordings": totals.recordings,
        "events": totals.events,
        "mark_bytes": total_bytes("recordings/**/*") / totals.recordings,
        "parquet_bytes_per_event": total_bytes("detections.parquet") / totals.events,
        "csv_bytes_per_event": total_bytes("detections.csv") / totals.events,
        "partitioned_bytes_per_event": total_bytes("partitioned/**/*") / totals.events,
        "kept_per_second": len(outcomes) / adding[1],
        "kept_per_cpu_second": len(outcomes) / adding[0],
        "merged_recordings_per_second": totals.recordings / merging[1],
        "merged_recordings_per_cpu_second": totals.recordings / merging[0],
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        / (2**20 if sys.platform == "darwin" else 2**10),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", help="JSON file to write")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--size", default="tiny", help="preset whose size the model has")
    parser.add_argument("--recordings", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=1.0, help="length of each")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--kept", type=int, default=10_000, help="made-up recordings of the results folder")
    parser.add_argument("--ray", action="store_true", help="also on a Ray cluster of this machine")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--results", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.save:
        from benchmarks.bench_detect import save_random_detector

        save_random_detector(Path(options.save[0]), options.save[1], options.seed)
        return
    if options.results:
        import json

        print(json.dumps(results(int(options.results[0]), Path(options.results[1]))))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name in ("one", "many", "few", "all"):
            (folder / name).mkdir()
        figures: dict[str, Any] = {"search": search(options, folder)}
        for name, count in (("few", options.kept // 4), ("all", options.kept)):
            figures[f"results_{name}"] = _in_child(count, folder / name)
            print(f"{name}: {figures[f'results_{name}']}", flush=True)
    figures["memory_ratio"] = figures["results_all"]["peak_mb"] / figures["results_few"]["peak_mb"]
    if options.out:
        write_result(options.out, figures, seed=options.seed)


def _in_child(count: int, folder: Path) -> Any:
    import json

    step = [sys.executable, __file__, "--results", str(count), str(folder)]
    return json.loads(subprocess.run(step, stdout=subprocess.PIPE, check=True).stdout)


if __name__ == "__main__":
    main()
