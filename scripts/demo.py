"""`make demo`: a small soundscape with known truth, from sound to tables to a picture, by the commands users type."""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

OUT = Path("demo")


def mast(*arguments: str) -> None:
    """Show a command, run it, stop at the first failure."""
    print(f"\n$ mast {' '.join(arguments)}", flush=True)
    subprocess.run([sys.executable, "-m", "mast.cli.main", *arguments], check=True)


def main() -> None:
    """Simulate, scan, convert, plot."""
    shutil.rmtree(OUT, ignore_errors=True)
    sound = str(OUT / "soundscape")
    size = ["--recordings", "8", "--duration", "60", "--sites", "2", "--days", "2"]
    mast("simulate", sound, *size, "--hours", "5-9", "--seed", "7")
    mast("scan", sound)
    mast("convert", sound, str(OUT / "raven"), "--to", "raven")
    mast("convert", sound, str(OUT / "boxes.aoef.json"), "--to", "aoef")
    # the recording with the most species makes the best picture
    with (OUT / "soundscape" / "boxes.csv").open() as boxes:
        species = {(row["file"], row["label"]) for row in csv.DictReader(boxes)}
    busiest = Counter(file for file, _ in species).most_common(1)[0][0]
    recording = OUT / "soundscape" / "audio" / busiest
    picture = str(OUT / "soundscape.png")
    mast("plot", str(recording), "--boxes", f"{sound}/boxes.csv", "--end", "20.48", "--out", picture)
    print(f"\nDone. Open {picture}: every box is known to be right. Raven tables are in {OUT / 'raven'}.")


if __name__ == "__main__":
    main()
