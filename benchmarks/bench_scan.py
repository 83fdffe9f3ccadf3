"""How fast `mast scan` goes through ten thousand small recordings.

python benchmarks/bench_scan.py --out results/scan.json
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import typer

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.record import write_result


def write_recordings(folder: Path, count: int, broken: int) -> None:
    """Files of 0.1 s in twenty folders, named by site and time; ``broken`` of them hold no sound."""
    import numpy as np
    import soundfile as sf

    sample = folder.parent / "sample.wav"
    sf.write(sample, np.zeros(1_600), 16_000, subtype="PCM_16")
    content = sample.read_bytes()
    for site in range(20):
        (folder / f"S{site:02}").mkdir(parents=True)
    for index in range(count):
        day, minute = 1 + index // 1_440 % 28, index % 1_440
        name = f"S{index % 20:02}/202305{day:02}_{minute // 60:02}{minute % 60:02}{index // 40_320:02}.wav"
        (folder / name).write_bytes(b"RIFF" if index < broken else content)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", help="JSON file to write")
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--broken", type=int, default=3)
    args = parser.parse_args()

    from mast.cli.scan import scan

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "survey"
        write_recordings(folder, args.files, args.broken)
        seconds = []
        for _ in range(3):
            began = time.perf_counter()
            with suppress(typer.Exit):  # with 4: some files are broken
                scan(folder, Path(temporary) / "recordings.csv", quiet=True)
            seconds.append(time.perf_counter() - began)
        with open(Path(temporary) / "failures.csv", encoding="utf-8", newline="") as file:
            listed = len(list(csv.DictReader(file)))
    figures = {
        "files": args.files,
        "broken": args.broken,
        "broken_listed": listed,
        "seconds": seconds,
        "files_per_second": args.files / min(seconds),
    }
    print(
        f"{figures['files_per_second']:,.0f} files per second; {listed} of {args.broken} broken files listed"
    )
    if args.out:
        write_result(args.out, figures)
        print(f"written to {args.out}")


if __name__ == "__main__":
    main()
