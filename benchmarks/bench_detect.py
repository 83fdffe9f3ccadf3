"""`mast detect` on a long recording: peak memory against a short one, and where the time goes.

    python benchmarks/bench_detect.py --out results/detect.json

``memory.ratio`` is the peak of the command on six hours over its peak on ten minutes, each in a process of its own.
It is 1 where memory does not depend on the length of the recording. The model there is as small as possible, with
random weights: what a long recording adds then shows most clearly, and six hours take minutes on two cores. ``stages``
says how many times faster than real time each step is by itself, with random weights of a preset's size.
"""

from __future__ import annotations

import argparse
import json
import os
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
SHORT_MINUTES, LONG_MINUTES, STAGE_MINUTES = 10.0, 360.0, 10.0
_THRESHOLD = 0.55  # the smallest model then finds about one event a second in the noise
_MAST = "from mast.cli.main import main; main()"


def save_random_detector(folder: Path, size: str, seed: int) -> None:
    """A model folder with random weights; ``smallest`` searches 2.56 s at a time in 64 mel bins."""
    import torch

    from mast.grid import FrontEnd
    from mast.models.architecture import DetectorConfig, EncoderConfig
    from mast.models.card import ModelCard
    from mast.models.checkpoint import save_checkpoint
    from mast.models.mast_detector import MastDetector
    from mast.normalisation import Normalisation

    torch.manual_seed(seed)
    if size == "smallest":
        front_end = FrontEnd(n_bins=64, chunk_frames=256)
        encoder = EncoderConfig(chunk_frames=256, n_bins=64, width=32, depth=1, heads=2)
        config = DetectorConfig(encoder=encoder, channels=32, levels=2, head_convs=1, contrastive_weight=0)
    else:
        front_end, config = FrontEnd(), DetectorConfig.named(size)  # type: ignore[arg-type]
    model = MastDetector(config)
    with torch.no_grad():  # a large last layer spreads scores over (0, 1)
        for layer in (model.head.classify, model.head.regress):
            layer.weight.normal_(0, 0.1)
            assert layer.bias is not None
            layer.bias.zero_()
    card = ModelCard(
        kind="detector",
        architecture=config,
        front_end=front_end,
        normalisation=Normalisation(mean=-8.0, std=4.0),
        thresholds={"score": _THRESHOLD, "nms_iou": 0.5},
    )
    save_checkpoint(folder, model, card)


def measure_command(path: Path, model: Path, out: Path, hop: float) -> dict[str, Any]:
    """Seconds, peak memory and events of one `mast detect` in a fresh process."""
    arguments = [str(path), "--model", str(model), "--out", str(out), "--hop", str(hop), "--quiet"]
    began = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, "-c", _MAST, "detect", *arguments, "--device", "cpu"], stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    output = child.stdout.read().decode().strip()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"mast detect ended with {child.returncode}: {output}")
    unit = 2**20 if sys.platform == "darwin" else 2**10  # bytes there, kilobytes on Linux
    with open(out / "detections.csv", encoding="utf-8") as table:
        events = sum(1 for _ in table) - 1
    return {"seconds": time.perf_counter() - began, "peak_mb": used.ru_maxrss / unit, "events": events}


def memory(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The command on a short and a long recording.

    This process itself stays small: on Linux a child's peak starts at its parent's size.
    """
    model = folder / "smallest"
    _in_child("save", str(model), "smallest", str(options.seed))
    figures: dict[str, Any] = {"model": "smallest, random weights", "hop": options.hop}
    # ten seconds of sound show the memory of libraries and model
    lengths = (("ten_seconds", 1 / 6), ("short", options.short_minutes), ("long", options.long_minutes))
    for name, minutes in lengths:
        path = folder / "noise.wav"
        write_noise(path, minutes, RATE, options.seed)
        figures[name] = {
            "minutes": minutes,
            **measure_command(path, model, folder / name, options.hop),
        }
        path.unlink()
        print(f"{minutes:g} min: {figures[name]}", flush=True)
    figures["growth_mb"] = figures["long"]["peak_mb"] - figures["short"]["peak_mb"]
    figures["ratio"] = figures["long"]["peak_mb"] / figures["short"]["peak_mb"]
    figures["times_real_time"] = options.long_minutes * 60 / figures["long"]["seconds"]
    return figures


def stages(size: str, minutes: float, device: str | None, seed: int) -> dict[str, Any]:
    """× real time of each step by itself, and of all steps together as the detector runs them."""
    import numpy as np
    import torch

    from mast.audio import windows
    from mast.detect_options import DetectOptions
    from mast.inference import Detector
    from mast.inference.stitch import Stitcher

    with tempfile.TemporaryDirectory() as temporary:
        path, model = Path(temporary) / "noise.wav", Path(temporary) / "model"
        write_noise(path, minutes, RATE, seed)
        save_random_detector(model, size, seed)
        detector = Detector(model, DetectOptions(device=device, runtime="torch"))
        network: Any = detector.network
        front_end, cuda = detector.card.front_end, network.device.type == "cuda"

        def now() -> float:
            if cuda:
                torch.cuda.synchronize()
            return time.perf_counter()

        warm = Path(temporary) / "warm.wav"
        write_noise(warm, 4 * network.batch_size * front_end.chunk_s / 60, RATE, seed)
        events = detector.detect(warm)  # compilation, memory pools
        spent = dict.fromkeys(("decode", "features", "network", "boxes", "stitch"), 0.0)
        began = now()
        heard = list(
            windows(path, front_end, hop_s=detector.options.hop * front_end.chunk_s, keep_short=True)
        )
        spent["decode"] = now() - began
        stitcher = Stitcher()
        full = len(heard) - len(heard) % network.batch_size  # whole batches only: shapes stay as compiled
        for first in range(0, full, network.batch_size):
            batch = heard[first : first + network.batch_size]
            sound = torch.from_numpy(np.stack([window.samples for window in batch]))
            with (
                torch.inference_mode(),
                torch.autocast(
                    network.device.type, dtype=torch.bfloat16, enabled=detector.precision == "bfloat16"
                ),
            ):
                marks = [now()]
                raw = network.loaded_model._log_mel.chunk_features(sound.to(network.device))
                marks.append(now())
                output = network.model(detector.card.normalisation.apply(raw))
                marks.append(now())
                found = network.model.select(
                    output, score_threshold=detector.scores.raw_threshold, nms_iou=detector.card.nms_iou
                )
                boxes = [(some.boxes.double().cpu().numpy(), some.scores.cpu().numpy()) for some in found]
                marks.append(now())
            for window, (cells, scores) in zip(batch, boxes, strict=True):
                start = window.start_s / front_end.hop_s
                cells[:, 0::2] += start
                stitcher.add(start, start + front_end.chunk_frames, cells, scores)
            marks.append(now())
            for name, a, b in zip(("features", "network", "boxes", "stitch"), marks, marks[1:], strict=False):
                spent[name] += b - a
        began = now()
        events = detector.detect(path)
        together = now() - began
    sound_s = 60 * minutes
    share = full / len(heard)
    rates = {name: sound_s * (1 if name == "decode" else share) / s for name, s in spent.items()}
    return {
        "model": f"{size}, random weights",
        "device": str(network.device),
        "precision": detector.precision,
        "compiled": network.compiled,
        "batch_size": network.batch_size,
        "hop": detector.options.hop,
        "minutes": minutes,
        "events": len(events),
        "times_real_time": {**rates, "together": sound_s / together},
    }


def _in_child(*words: str) -> str:
    """Run a step that needs torch outside this process."""
    done = subprocess.run([sys.executable, __file__, "--step", *words], stdout=subprocess.PIPE, check=True)
    return done.stdout.decode()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", help="JSON file to write")
    parser.add_argument("--short-minutes", type=float, default=SHORT_MINUTES)
    parser.add_argument("--long-minutes", type=float, default=LONG_MINUTES)
    parser.add_argument("--stage-minutes", type=float, default=STAGE_MINUTES)
    parser.add_argument("--hop", type=float, default=1.0, help="hop of the memory runs")
    parser.add_argument("--size", default="tiny", help="preset measured by stage")
    parser.add_argument("--device", default="", help="for the stages; by default the GPU if there is one")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--step", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step and options.step[0] == "save":
        save_random_detector(Path(options.step[1]), options.step[2], int(options.step[3]))
        return
    if options.step:
        _, size, minutes, device, seed = options.step
        print(json.dumps(stages(size, float(minutes), device or None, int(seed))))
        return

    with tempfile.TemporaryDirectory() as temporary:
        figures: dict[str, Any] = {"memory": memory(options, Path(temporary))}
    print(f"peak ratio {figures['memory']['ratio']:.3f}", flush=True)
    figures["load_before_stages"] = os.getloadavg()[
        0
    ]  # on a busy machine speeds mean little, but memory is unaffected
    output = _in_child("stages", options.size, str(options.stage_minutes), options.device, str(options.seed))
    figures["stages"] = json.loads(output.splitlines()[-1])
    for name, rate in figures["stages"]["times_real_time"].items():
        print(f"{name:9} {rate:10,.0f} × real time")
    if options.out:
        write_result(options.out, figures, seed=options.seed)
        print(f"written to {options.out}")


if __name__ == "__main__":
    main()
