"""Peak memory of streaming windows over a short and a long recording, each in a process of its own.

    python benchmarks/bench_memory.py --out results/memory.json

The figure to look at is ``ratio``: the peak on six hours over the peak on ten minutes. It is 1 if memory does not
depend on the length of the recording.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.record import write_result

RATES = (16_000, 48_000)
SHORT_MINUTES, LONG_MINUTES = 10.0, 360.0

# Run alone so that the peak is that of the streaming and nothing else.
_MEASURE = """
import json, resource, sys, time
from mast.audio import windows
from mast.grid import FrontEnd
def peak_mb():
    unit = 2**20 if sys.platform == "darwin" else 2**10  # bytes there, kilobytes on Linux
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
imports_mb = peak_mb()
began = time.perf_counter()
count = sum(1 for window in windows(sys.argv[1], FrontEnd()))
seconds = time.perf_counter() - began
print(json.dumps({"windows": count, "seconds": seconds, "imports_mb": imports_mb, "peak_mb": peak_mb()}))
"""


def write_noise(path: Path, minutes: float, rate: int, seed: int) -> None:
    """16-bit mono noise, the same ten seconds over and over."""
    import numpy as np
    import soundfile as sf

    block = np.random.default_rng(seed).integers(-3000, 3000, rate * 10, dtype=np.int16)
    with sf.SoundFile(path, "w", rate, 1, subtype="PCM_16", format="RF64") as file:
        for _ in range(round(minutes * 6)):
            file.write(block)


def measure(path: Path) -> dict[str, Any]:
    """Windows, seconds and peak memory of one pass, in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE, str(path)], capture_output=True, text=True, check=True
    )
    return dict(json.loads(done.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", help="JSON file to write")
    parser.add_argument("--short-minutes", type=float, default=SHORT_MINUTES)
    parser.add_argument("--long-minutes", type=float, default=LONG_MINUTES)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    figures: dict[str, Any] = {}
    for rate in RATES:
        case: dict[str, Any] = {}
        for name, minutes in (("short", args.short_minutes), ("long", args.long_minutes)):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "noise.wav"
                write_noise(path, minutes, rate, args.seed)
                began = time.perf_counter()
                case[name] = {"minutes": minutes, **measure(path)}
                print(
                    f"{rate} Hz, {minutes:g} min: {case[name]} ({time.perf_counter() - began:.1f} s)",
                    flush=True,
                )
        case["ratio"] = case["long"]["peak_mb"] / case["short"]["peak_mb"]
        case["real_time_factor"] = case["long"]["minutes"] * 60 / case["long"]["seconds"]
        figures[f"{rate}_hz"] = case
        print(
            f"{rate} Hz: peak ratio {case['ratio']:.3f}, {case['real_time_factor']:,.0f} × real time",
            flush=True,
        )
    if args.out:
        write_result(args.out, figures, seed=args.seed)
        print(f"written to {args.out}")


if __name__ == "__main__":
    main()
