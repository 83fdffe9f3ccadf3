"""Time and memory of `mast summarize` and `mast clips` on a hundred thousand boxes, and on ten times fewer.

    python benchmarks/bench_summarize.py --out results/summarize.json

Recordings of a minute at ten sites over sixty days, with random boxes; a sample of 60 is drawn and decided, so that
corrected counts with intervals are included. ``clips`` are the best 100 of all boxes with a picture each, ``sound`` the
best 2,000 without pictures. ``cpu_s`` is what one core would need; ``ratio`` is the peak memory with many boxes over
that with few.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.record import write_result

SITES, DAYS = 10, 60
LABELS = ("wren", "robin", "blackcap")

# Run alone so that the peak is that of the command and nothing else. Needs Linux.
_MEASURE = """
import json, os, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[4])
from benchmarks.record import peak_mb
from mast.cli.clips import clips
from mast.cli.summarize import summarize
found, out, what = Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])
began, cpu = time.perf_counter(), time.process_time()
clips(found, out, quiet=True, **what) if what else summarize(found, out, quiet=True)
took = {"seconds": time.perf_counter() - began, "cpu_s": time.process_time() - cpu}
print(json.dumps({**took, "peak_mb": peak_mb(os.getpid())}))
"""
CLIPS = {"clips": {"most": 100}, "sound": {"most": 2_000, "pictures": False}}


def write_detections(folder: Path, audio: Path, events: int, recordings: int) -> None:
    """A results folder as `mast detect` leaves it; the recordings are links to one minute of noise."""
    import numpy as np
    import pandas as pd
    import soundfile as sf

    from mast.events import as_events
    from mast.inference.detector import Searched
    from mast.inference.pieces import Source
    from mast.inference.results import ResultsFolder

    generator = np.random.default_rng(0)
    audio.mkdir(parents=True)
    sf.write(audio / "minute.wav", 0.1 * generator.standard_normal(60 * 16_000), 16_000)
    results = ResultsFolder(folder, {"model": "m", "threshold": 0.3}, audio)
    each = events // recordings
    for k in range(recordings):
        site, day, minute = k % SITES, k // SITES % DAYS, k // SITES // DAYS * 17 % 1_440
        clock = f"2024-{4 + day // 30:02}-{1 + day % 30:02}T{minute // 60:02}:{minute % 60:02}:00"
        name = f"S{site}/{clock.replace(':', '').replace('-', '')}.wav"
        (audio / name).parent.mkdir(exist_ok=True)
        if not (audio / name).exists():
            (audio / name).symlink_to(audio / "minute.wav")
        start = np.sort(generator.uniform(0, 59, each))
        table = {
            "recording": name,
            "start_s": start,
            "end_s": start + 0.5,
            "low_hz": 1_000.0,
            "high_hz": 3_000.0,
            "score": generator.uniform(0.3, 1.0, each),
            "label": generator.choice(LABELS, each),
            "source": "detector",
        }
        found = as_events(pd.DataFrame(table))
        source = Source(audio / name, name, audio)
        results.add(
            Searched(source, found, duration_s=60.0, sample_rate=16_000, site=f"S{site}", datetime=clock)
        )
    results.combine(["csv"])


def decide(folder: Path, out: Path) -> None:
    """Draw a sample, and decide about it as a reviewer would in `mast review`."""
    import sqlite3

    import pandas as pd

    from mast.cli.summarize import summarize
    from mast.review.open_review import open_review

    summarize(folder, out, check=60, quiet=True)
    open_review(folder).close()
    with sqlite3.connect(folder / "review.sqlite") as db:
        drawn = pd.read_csv(folder / "to_check.csv")
        for k, event in enumerate(drawn["event"]):
            status = "rejected" if k % 4 == 0 else "accepted"
            db.execute("UPDATE events SET status = ?, version = 1 WHERE id = ?", (status, event))


def measure(folder: Path, out: Path, clips: dict[str, Any] | None = None) -> dict[str, Any]:
    """Seconds and peak memory in a fresh process, for the summary or for clips with these options."""
    command = [sys.executable, "-c", _MEASURE, str(folder), str(out), json.dumps(clips), sys.path[0]]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", help="JSON file to write")
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--recordings", type=int, default=5_000)
    args = parser.parse_args()

    figures: dict[str, Any] = {"sites": SITES, "days": DAYS, "labels": len(LABELS)}
    with tempfile.TemporaryDirectory() as temporary:
        for kind, share in (("few", 10), ("many", 1)):
            root = Path(temporary, kind)
            events, recordings = args.events // share, args.recordings // share
            write_detections(root / "found", root / "audio", events, recordings)
            decide(root / "found", root / "out")
            took = measure(root / "found", root / "out")
            with open(root / "out" / "counts.csv", encoding="utf-8") as file:
                rows = sum(1 for _ in file) - 1
            page_mb = (root / "out" / "summary.html").stat().st_size / 1e6
            figures[kind] = {
                "events": events // recordings * recordings,
                "recordings": recordings,
                "rows_of_counts": rows,
                "page_mb": round(page_mb, 2),
                **took,
                **{
                    name: {"most": chosen["most"], **measure(root / "found", root / name, chosen)}
                    for name, chosen in CLIPS.items()
                },
            }
    figures["ratio"] = figures["many"]["peak_mb"] / figures["few"]["peak_mb"]
    many = figures["many"]
    for name in CLIPS:
        cut = many[name]
        print(f"{name}: {cut['most']:,} in {cut['cpu_s']:.1f} s of CPU, {cut['peak_mb']:,.0f} MB at most")
    print(
        f"{many['events']:,} boxes in {many['recordings']:,} recordings: {many['seconds']:.1f} s, "
        f"{many['peak_mb']:,.0f} MB at most, {figures['ratio']:.2f} × that of a tenth"
    )
    if args.out:
        write_result(args.out, figures, seed=0)
        print(f"written to {args.out}")


if __name__ == "__main__":
    main()
