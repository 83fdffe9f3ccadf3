"""`make demo`: from sound and a few boxes to a detector, a report and tables, by the commands users type.

Two sites are simulated, so that the truth is known. The first is labelled, the second is not: its boxes are kept apart
and only used at the end, to say how well the detector does there: unchanged, after training on the first site's boxes,
and after self-training on sound without boxes.

It is small, so that two CPU cores without bfloat16 instructions finish in a few minutes. The seconds of CPU time
are counted and printed at the end: at most 240.
"""

from __future__ import annotations

import csv
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

OUT = Path("demo")
START = "default"  # the detector that comes with mast, as the documentation recommends
ABOUT_START = (
    "The detector starts from the one that comes with mast (--init default). It has heard simulated worlds before, but "
    "not this one: these sites, species and recordings are new to it."
)
# the preset tiny, cut to what a slow laptop does in minutes: two dozen small steps, most of the encoder frozen
SETTINGS: dict[str, float | str] = {
    "train.epochs": 2,
    "train.warmup_epochs": 0.2,
    "train.validate_every_epochs": 2,
    "train.batch_size": 4,
    "train.top_blocks": 1,
    "selftrain.rounds": 1,
    "selftrain.threshold": "validation",  # with few chunks, no pseudo-box is better than a doubtful one
    "selftrain.max_chunks": 16,
    "selftrain.measure_other_parts": "false",
    **{
        f"selftrain.{stage}.{name}": value
        for stage in ("stage1", "stage2")
        for name, value in {
            "epochs": 1,
            "warmup_epochs": 0.2,
            "batch_size": 4,
            "lr": 1e-4,  # as small as training's: larger steps undo what the start knows
        }.items()
    },
}
# half of them at each site; they are short, one chunk each, because intervals are over recordings
RECORDINGS, DURATION_S = 64, 10.24
TEST = 12  # at the second site, with boxes for the last table; the others there are the archive


def mast(*arguments: str) -> None:
    """Show a command, run it, stop at the first failure."""
    print(f"\n$ mast {' '.join(arguments)}", flush=True)
    # waiting threads sleep: with other programs running, spinning took three times the CPU time
    environment = {"OMP_WAIT_POLICY": "PASSIVE", **os.environ}
    subprocess.run([sys.executable, "-m", "mast.cli.main", *arguments], check=True, env=environment)


def main() -> None:
    """Simulate, look, fit, detect, compare."""
    started = time.monotonic()
    shutil.rmtree(OUT, ignore_errors=True)
    world = OUT / "world"
    # a world whose two sites share some species but not all, as neighbouring ones do; chosen by its boxes alone
    places = ["--sites", "2", "--days", "1", "--hours", "5-9", "--seed", "11"]
    sizes = ["--recordings", str(RECORDINGS), "--duration", str(DURATION_S)]
    mast("simulate", str(world), *sizes, *places)
    labelled, archive = divide(world)
    mast("scan", str(labelled))
    mast("convert", str(labelled), str(OUT / "raven"), "--to", "raven")
    picture = str(OUT / "soundscape.png")
    recording = busiest(labelled)
    boxes = str(labelled / "boxes.csv")
    mast("plot", str(recording), "--boxes", boxes, "--end", str(DURATION_S), "--out", picture)

    changes = [text for name, value in SETTINGS.items() for text in ("--set", f"{name}={value}")]
    run = OUT / "run"
    print(f"\n{ABOUT_START}")
    begin = ["--out", str(run), "--init", START, "--preset", "tiny"]
    mast("fit", str(labelled), "--unlabelled", str(archive), *begin, *changes)
    found = OUT / "detections"
    mast("detect", str(archive), "--model", str(run), "--out", str(found), "--formats", "csv,raven")

    from mast.reports.fit_verdict import f1_table, read_learnt, read_tallies, verdict

    metrics = json.loads((run / "metrics.json").read_text())
    print("\nThe first site was labelled, the second (other sites) was not:")
    print("\n".join([*f1_table(metrics), verdict(read_tallies(metrics), read_learnt(metrics))]))
    print(
        f"\nDone in {(time.monotonic() - started) / 60:.1f} minutes ({cpu_seconds():.0f} seconds of CPU time). "
        f"Open {run / 'report.html'} in a browser.\n"
        f"Events: {found / 'detections.csv'}; for Raven: {found / 'raven'}. What the truth looks like: {picture}"
    )


def cpu_seconds() -> float:
    """CPU seconds of this process and all commands so far, on all cores together."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def divide(world: Path) -> tuple[Path, Path]:
    """What a user would have: a folder with boxes, and an archive without."""
    with (world / "recordings.csv").open() as file:
        recordings = list(csv.DictReader(file))
    with (world / "boxes.csv").open() as file:
        boxes = list(csv.DictReader(file))
    home = recordings[0]["site"]
    at_home = [row for row in recordings if row["site"] == home]
    away = [row for row in recordings if row["site"] != home]
    # the split column is empty for the first site: mast divides what it may learn from
    known = [{**row, "split": ""} for row in at_home]
    known += [{**row, "split": "site_ood"} for row in away[:TEST]]
    unknown = away[TEST:]
    labelled, archive = OUT / "labelled", OUT / "archive"
    for folder, rows in ((labelled, known), (archive, unknown)):
        (folder / "audio").mkdir(parents=True)
        for row in rows:
            (world / "audio" / row["file"]).rename(folder / "audio" / row["file"])
        write_csv(folder / "recordings.csv", rows)
    files = {row["file"] for row in known}
    write_csv(labelled / "boxes.csv", [row for row in boxes if row["file"] in files])
    shutil.rmtree(world)
    return labelled, archive


def write_csv(path: Path, rows: list[dict[str, str]]) -> None:
    """Rows with a header."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def busiest(folder: Path) -> Path:
    """The recording with the most species makes the best picture."""
    with (folder / "boxes.csv").open() as file:
        species = {(row["file"], row["label"]) for row in csv.DictReader(file)}
    return folder / "audio" / Counter(file for file, _ in species).most_common(1)[0][0]


if __name__ == "__main__":
    main()
