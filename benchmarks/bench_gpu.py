"""`mast detect` on one GPU, files to results, against the bare encoder's rate in the same run.

    python benchmarks/bench_gpu.py --out results/gpu_speed.json
    python benchmarks/bench_gpu.py --size tiny --device cpu --recordings 2 --minutes 0.5 --workers 1,2 --batch 8

All weights are random, of a preset's size. ``encoder`` is the transformer alone, on spectrograms that are already on
the GPU, ``detector`` the whole network on the batches that `mast detect` makes (``network``: up to its dense output;
``boxes``: with NMS), both compiled and not. ``stages`` times each step from file to result separately, in one process.
``end_to_end`` is the command itself, by number of workers, with chunks/s counted in three ways:

- ``with_start``: over the whole wall time, with loading and compiling (from torch's cache on disk, which the steps
  before have filled, as in every run but a machine's first);
- ``steady``: from the moment half of the recordings are done until the last one is, by the time stamps of the results:
  by then most late-starting workers have joined in;
- ``without_start``: over the difference from the wall time of the same command on one recording. One recording only
  starts one worker, so the start of the others is still included.

A step that fails or would begin after ``--most-seconds`` is reported as such, and the others continue; the file is
written after every step. The recordings are one file of noise under many names, so it is read from memory and not from
a disk.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.bench_detect import save_random_detector
from benchmarks.record import write_result

if TYPE_CHECKING:
    import torch

    from mast.inference import Detector
    from mast.inference.torch_network import TorchNetwork

RATE = 16_000
_MAST = "from mast.cli.main import main; main()"
_LAST_WORDS = 600  # characters kept of a command that failed
_LONGEST_RUN_S = 150.0  # a command that runs longer is stopped


class Steps:
    """Runs steps one after another; keeps the figures of each, and the file up to date."""

    def __init__(
        self,
        out: str | None,
        max_seconds: float,
        seed: int,
        figures: dict[str, Any],
        only: tuple[str, ...] = (),
    ) -> None:
        self._out, self._max_seconds, self._seed = out, max_seconds, seed
        self.figures, self._only = figures, only
        self._began = time.perf_counter()

    def run(self, name: str, work: Callable[[], Any]) -> Any:
        """What ``work`` returns, saved under a dotted name; ``None`` if it failed or came too late."""
        began = time.perf_counter()
        elapsed, result = began - self._began, None
        if self._only and not name.startswith(self._only):
            return None
        if elapsed > self._max_seconds:
            outcome: Any = {"skipped": f"{elapsed:.0f} s had passed, of {self._max_seconds:g} at most"}
        else:
            try:
                outcome = result = work()
            except Exception as error:  # whatever it is, the other figures are still wanted
                outcome = {"failed": f"{type(error).__name__}: {error}"[-_LAST_WORDS:]}
        place = self.figures
        *folders, last = name.split(".")
        for folder in folders:
            place = place.setdefault(folder, {})
        place[last] = outcome
        self.figures.setdefault("step_seconds", {})[name] = round(time.perf_counter() - began, 2)
        print(f"{name}: {json.dumps(outcome)}", flush=True)
        self.write()
        return result

    def write(self) -> None:
        """Bring the file up to date."""
        self.figures["total_s"] = round(time.perf_counter() - self._began, 1)
        if self._out:
            write_result(self._out, self.figures, seed=self._seed)


class Timer:
    """How many chunks a second some work does: the median of a few blocks, after a warm-up."""

    def __init__(self, device: torch.device, blocks: int, block_s: float) -> None:
        self._device, self._blocks, self._block_s = device, blocks, block_s

    def now(self) -> float:
        if self._device.type == "cuda":
            import torch

            torch.cuda.synchronize(self._device)
        return time.perf_counter()

    def __call__(self, work: Callable[[], Any], chunks: int) -> dict[str, Any]:
        began = self.now()
        work()
        first_s = self.now() - began  # with compilation, where there is any
        began = self.now()
        work()
        repeats = max(1, round(self._block_s / max(self.now() - began, 1e-6)))
        rates = []
        for _ in range(self._blocks):
            began = self.now()
            for _ in range(repeats):
                work()
            rates.append(repeats * chunks / (self.now() - began))
        return {
            "chunks_per_s": statistics.median(rates),
            "least": min(rates),
            "most": max(rates),
            "calls": repeats * len(rates),
            "first_call_s": first_s,
        }


def write_recording(path: Path, minutes: float, seed: int) -> None:
    """Noise that does not repeat itself, 16-bit mono."""
    import numpy as np
    import soundfile as sf

    noise = np.random.default_rng(seed).standard_normal(round(60 * minutes * RATE)) * 0.05
    sf.write(path, noise.astype(np.float32), RATE, subtype="PCM_16")


def windows_in(path: Path, detector: Detector) -> list[Any]:
    """The windows of a recording, end to end without overlap."""
    from mast.audio import windows

    front_end = detector.card.front_end
    return list(windows(path, front_end, hop_s=front_end.chunk_s, keep_short=True))


def stack_windows(heard: list[Any], n: int) -> torch.Tensor:
    """(n, samples): windows, repeated from the first if there are too few."""
    import numpy as np
    import torch

    return torch.from_numpy(np.stack([heard[k % len(heard)].samples for k in range(n)]))


def torch_network_of(detector: Detector) -> TorchNetwork:
    """The torch network that a detector searches with."""
    from mast.inference.torch_network import TorchNetwork

    assert isinstance(detector.network, TorchNetwork)
    return detector.network


@contextmanager
def search_mode(detector: Detector) -> Iterator[None]:
    """The modes in which a detector runs its network."""
    import torch

    half, network = detector.precision == "bfloat16", torch_network_of(detector)
    with (
        torch.inference_mode(),
        torch.autocast(network.device.type, dtype=torch.bfloat16, enabled=half),
    ):
        yield


def make_model(folder: Path, recording: Path, size: str, device: str, seed: int) -> dict[str, Any]:
    """Random weights, and a threshold that every second window of the noise reaches: a few events per minute."""
    from mast.detect_options import DetectOptions
    from mast.inference import Detector

    save_random_detector(folder, size, seed)
    detector = Detector(folder, DetectOptions(device=device, runtime="torch", compile=False))
    network = torch_network_of(detector)
    n = min(16, network.batch_size)
    with search_mode(detector):
        sound = stack_windows(windows_in(recording, detector), n).to(network.device)
        model: Any = network.model
        best = model.scores(model(network.loaded_model.spectrograms(sound))).amax(dim=1)
    threshold = float(best.double().median())
    card = folder / "model.json"
    content = json.loads(card.read_text(encoding="utf-8"))
    content["thresholds"]["score"] = threshold
    card.write_text(json.dumps(content), encoding="utf-8")
    return {"size": size, "weights": "random", "threshold": threshold, "precision": detector.precision}


def encoder(timer: Timer, options: argparse.Namespace, *, compiled: bool, cast: bool) -> dict[str, Any]:
    """The bare encoder: float32 weights under autocast as the detector runs it, or all in bfloat16."""
    import torch

    from mast.models.architecture import DetectorConfig
    from mast.models.mast_detector import MastDetector

    torch.manual_seed(options.seed)
    device = torch.device(options.device)
    model: Any = MastDetector(DetectorConfig.named(options.size)).encoder.to(device).eval()
    frames, bins = model.config.chunk_frames, model.config.n_bins
    spectrograms = torch.randn(options.batch, 1, frames, bins, device=device)
    if cast:
        model, spectrograms = model.to(torch.bfloat16), spectrograms.to(torch.bfloat16)
    if compiled:
        model = torch.compile(model, dynamic=False)
    with torch.inference_mode(), torch.autocast(device.type, dtype=torch.bfloat16, enabled=not cast):
        return {"batch": options.batch, **timer(lambda: model(spectrograms), options.batch)}


def network(timer: Timer, detector: Detector, recording: Path, batch: int) -> dict[str, Any]:
    """The whole network on one batch: its dense output alone, and with the choice of boxes."""
    searched = torch_network_of(detector)
    model: Any = searched.model
    with search_mode(detector):
        sound = stack_windows(windows_in(recording, detector), batch).to(searched.device)
        spectrograms = searched.loaded_model.spectrograms(sound)
        threshold, nms_iou = detector.scores.raw_threshold, detector.card.nms_iou
        return {
            "batch": batch,
            "network": timer(lambda: model(spectrograms), batch),
            "boxes": timer(
                lambda: model.detect(spectrograms, score_threshold=threshold, nms_iou=nms_iou), batch
            ),
        }


def stages(timer: Timer, detector: Detector, recording: Path, folder: Path) -> dict[str, Any]:
    """Chunks/s of each step by itself, in one process, on the detector's own batches.

    Reading and stacking run in threads, several recordings at a time (``read_ahead``), the steps up to ``boxes`` in
    another one, the rest in a third. ``one_after_the_other`` is the rate of everything but reading without these
    threads. ``together`` is the detector itself, without writing results; ``table`` and ``write`` run once per
    recording, and are given in chunks of it.
    """
    from mast.audio import metadata, probe, stream
    from mast.device import to_device
    from mast.inference import Source
    from mast.inference.pieces import End, Piece
    from mast.inference.results import ResultsFolder
    from mast.inference.speed_passes import SpeedPass

    searched = torch_network_of(detector)
    model: Any = searched.model
    batch = searched.batch_size
    windows = windows_in(recording, detector)
    sound, source = stack_windows(windows, batch), Source(recording, recording.name)
    front_end = detector.card.front_end
    figures: dict[str, Any] = {}

    def record(name: str, work: Callable[[], Any], chunks: int) -> None:
        figures[name] = timer(work, chunks)["chunks_per_s"]

    record("read", lambda: [None for _ in stream(recording, sample_rate=RATE)], len(windows))
    record("read_and_cut", lambda: windows_in(recording, detector), len(windows))
    n_recordings = 4
    record("read_ahead", lambda: list(detector._reader([source] * n_recordings)), n_recordings * len(windows))
    with search_mode(detector):
        record("stack", lambda: stack_windows(windows, batch), batch)
        record("transfer", lambda: to_device(sound, searched.device), batch)
        there = sound.to(searched.device)
        record("features", lambda: searched.loaded_model.spectrograms(there), batch)
        spectrograms = searched.loaded_model.spectrograms(there)
        record("network", lambda: model(spectrograms), batch)
        output = model(spectrograms)
        raised = detector.scores.raw_threshold

        def choose() -> list[Any]:
            found = model.select(output, score_threshold=raised, nms_iou=detector.card.nms_iou)
            return [(some.boxes.double().cpu(), some.scores.double().cpu()) for some in found]

        record("boxes", choose, batch)
    threshold = detector.scores.raw_threshold
    found = searched._search(sound, threshold)

    whole = (front_end.chunk_s,) * len(found)
    piece = Piece(sound.numpy(), tuple(k * front_end.chunk_s for k in range(len(found))), whole)

    def stitch() -> SpeedPass:
        listening = SpeedPass(front_end)
        listening.add(piece, [inside._replace(boxes=inside.boxes.copy()) for inside in found])
        listening.finish(1.0)
        return listening

    record("stitch", stitch, batch)
    serial = ("stack", "transfer", "features", "network", "boxes", "stitch")
    figures["one_after_the_other"] = 1 / sum(1 / figures[name] for name in serial)
    record("search", lambda: searched._search(sound, threshold), batch)
    record("together", lambda: list(detector.outcomes([source] * n_recordings)), n_recordings * len(windows))
    end = End(source, probe(recording), metadata(recording))
    stitched = stitch()
    record("table", lambda: detector._outcome(end, [stitched]), len(windows))
    outcome = next(detector.outcomes([source]))
    results = ResultsFolder(folder, detector.settings, recording.parent)
    record("write", lambda: results.add(outcome), len(windows))
    return {"batch": batch, "compiled": searched.compiled, "chunks_per_s": figures}


def command(sound: Path, model: Path, out: Path, workers: int, options: argparse.Namespace) -> dict[str, Any]:
    """`mast detect` in a process of its own: exit code, wall clock, and when each recording was done."""
    import pyarrow.parquet as pq

    words = [str(sound), "--model", str(model), "--out", str(out), "--workers", str(workers), "--hop", "1.0"]
    words += ["--device", options.device, "--no-tables", "--quiet"]
    words += ["--batch", str(options.detector_batch)] if options.detector_batch else []
    words += ["--no-compile"] if options.no_compile else []
    shutil.rmtree(out, ignore_errors=True)
    began_at, began = time.time(), time.perf_counter()
    with open(f"{out}.log", "wb") as log:  # not a pipe: what the workers leave behind would hold it open
        child = subprocess.Popen(
            [sys.executable, "-c", _MAST, "detect", *words],
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            child.wait(_LONGEST_RUN_S)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)  # its workers too
            child.wait()
    wall = time.perf_counter() - began
    marks = sorted(out.rglob("*.parquet"), key=lambda mark: mark.stat().st_mtime)
    figures: dict[str, Any] = {"exit_code": child.returncode, "wall_s": wall, "recordings_done": len(marks)}
    if child.returncode:
        last = Path(log.name).read_text(encoding="utf-8", errors="replace").strip()
        figures["last_words"] = last[-_LAST_WORDS:]
    if marks:
        figures["done_at_s"] = [round(mark.stat().st_mtime - began_at, 3) for mark in marks]
        figures["events_per_minute"] = pq.read_metadata(marks[0]).num_rows / options.minutes
    return figures


def speed(chunks: float, sound_s: float, seconds: float, reference: float | None) -> dict[str, Any]:
    """One rate as the table shows it."""
    if seconds <= 0:
        return {"unknown": "too little to do: starting took longer"}
    rate = chunks / seconds
    figures = {"seconds": seconds, "chunks_per_s": rate, "times_real_time": sound_s / seconds}
    return {**figures, "ratio_to_encoder": rate / reference} if reference else figures


def long_run(
    run: dict[str, Any], chunks_each: int, sound_s: float, reference: float | None
) -> dict[str, Any]:
    """The command's figures with the resulting rates; ``sound_s`` is the length of one recording."""
    done_at, n = run.pop("done_at_s", []), run["recordings_done"]
    if run["exit_code"] != 0 or not n:
        return run
    run["with_start"] = speed(n * chunks_each, n * sound_s, run["wall_s"], reference)
    run["first_done_s"], run["last_done_s"] = done_at[0], done_at[-1]
    later = n - n // 2  # what was done after the first half
    if n >= 4:  # with fewer, too many are in progress at once to tell
        seconds = done_at[-1] - done_at[n // 2 - 1]
        run["steady"] = speed(later * chunks_each, later * sound_s, seconds, reference)
    return run


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    import torch

    from mast.detect_options import DetectOptions
    from mast.grid import FrontEnd
    from mast.inference import Detector
    from mast.inference.torch_network import _can_compile

    device = torch.device(options.device)
    if device.type == "cpu":
        torch.set_num_threads(
            1
        )  # a rehearsal: threads that wait for each other on a busy machine take minutes
    timer = Timer(device, options.blocks, options.block_seconds)
    can_compile = _can_compile(device) and not options.no_compile
    figures: dict[str, Any] = {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else str(device),
        "compiles": can_compile,
        "recordings": options.recordings,
        "minutes_each": options.minutes,
    }
    only = ("model", *options.steps.split(",")) if options.steps else ()
    steps = Steps(options.out, options.most_seconds, options.seed, figures, only)
    model, many, one = folder / "model", folder / "many", folder / "one"
    many.mkdir()
    one.mkdir()
    recording = one / "r00000.wav"
    write_recording(recording, options.minutes, options.seed)
    for k in range(options.recordings):
        os.link(recording, many / f"r{k:05d}.wav")
    steps.run("model", lambda: make_model(model, recording, options.size, options.device, options.seed))

    def bare_encoder(*, compiled: bool, cast: bool) -> dict[str, Any] | None:
        name = f"encoder.{'compiled' if compiled else 'plain'}_{'bfloat16' if cast else 'autocast'}"
        found: dict[str, Any] | None = steps.run(
            name, lambda: encoder(timer, options, compiled=compiled, cast=cast)
        )
        if device.type == "cuda":
            torch.cuda.empty_cache()
        return found

    plain = bare_encoder(compiled=False, cast=False)
    bare_encoder(compiled=False, cast=True)
    compiled = bare_encoder(compiled=True, cast=False) if can_compile else None
    best = compiled or plain
    reference = best["chunks_per_s"] if best else None
    figures["reference"] = "encoder.compiled_autocast" if compiled else "encoder.plain_autocast"

    loaded: dict[bool, Detector] = {}

    def load(*, compile: bool) -> Detector:
        if compile not in loaded:
            loaded[compile] = Detector(
                model,
                DetectOptions(
                    device=options.device,
                    runtime="torch",
                    hop=1.0,
                    batch_size=options.detector_batch,
                    compile=compile and can_compile,
                ),
            )
        return loaded[compile]

    def whole_network(*, compile: bool, times: int) -> dict[str, Any]:
        detector = load(compile=compile)
        return network(timer, detector, recording, times * detector.network.batch_size)

    chunks_each = -(-round(60 * options.minutes * RATE) // FrontEnd().chunk_samples)
    figures["chunks_each"] = chunks_each
    steps.run("detector.plain", lambda: whole_network(compile=False, times=1))
    steps.run("detector.plain_four_batches_at_once", lambda: whole_network(compile=False, times=4))
    if can_compile:  # what is compiled here is cached on disk, where the commands below find it
        steps.run("detector.compiled", lambda: whole_network(compile=True, times=1))
    steps.run("stages", lambda: stages(timer, load(compile=can_compile), recording, folder / "written"))
    loaded.clear()
    if device.type == "cuda":
        torch.cuda.empty_cache()

    sound_s = 60 * options.minutes
    runs: dict[int, Any] = {}

    def run_with(n: int) -> dict[str, Any]:
        run = command(many, model, folder / "found", n, options)
        return long_run(run, chunks_each, sound_s, reference)

    for n in options.workers:
        runs[n] = steps.run(f"end_to_end.{n}_workers", partial(run_with, n))
    for n, run in runs.items():
        if run is not None and "with_start" in run:
            steps.run(f"end_to_end.{n}_workers.start", partial(run_on_one, one, model, folder, n, options))
            start = run.get("start", {})
            if start.get("exit_code") == 0:
                further = run["recordings_done"] - 1
                saved = run["wall_s"] - start["wall_s"]
                run["without_start"] = speed(further * chunks_each, further * sound_s, saved, reference)
    if can_compile:
        bare_encoder(compiled=True, cast=True)
    steps.write()
    return figures


def run_on_one(
    one: Path, model: Path, folder: Path, workers: int, options: argparse.Namespace
) -> dict[str, Any]:
    """The command on one recording."""
    run = command(one, model, folder / "begun", workers, options)
    run.pop("done_at_s", None)
    return run


def main(argv: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", help="JSON file to write, after every step")
    parser.add_argument("--size", default="base", help="preset of the random model")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--batch", type=int, default=512, help="spectrograms of the bare encoder at once")
    parser.add_argument(
        "--detector-batch", type=int, help="windows at once in the detector; its own choice by default"
    )
    parser.add_argument("--recordings", type=int, default=150, help="number of names for the one recording")
    parser.add_argument("--minutes", type=float, default=10.0, help="length of the recording")
    parser.add_argument("--workers", default="1,4,8", help="numbers of workers, separated by commas")
    parser.add_argument("--no-compile", action="store_true", help="neither here nor in the command")
    parser.add_argument("--steps", default="", help="only steps whose names start so, separated by commas")
    parser.add_argument("--blocks", type=int, default=5, help="blocks timed; the median counts")
    parser.add_argument("--block-seconds", type=float, default=0.3)
    parser.add_argument("--most-seconds", type=float, default=100.0, help="no step begins later than this")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    options.workers = [int(word) for word in options.workers.split(",")]
    with tempfile.TemporaryDirectory(prefix="mast-bench-") as temporary:
        return measure(options, Path(temporary))


if __name__ == "__main__":
    main()
