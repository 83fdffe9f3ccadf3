"""`make demo`: from sound and a few boxes to a detector, a report and tables, by the commands users type.

Two simulated sites, so that the truth is known. The first is labelled, the second nobody labelled: its boxes are kept
apart and only used to say, at the end, how well the detector does there: as it comes with mast, after training on the
first site's boxes, and after self-training on sound without boxes.
"""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

OUT = Path("demo")
START = "default"  # the detector that comes with mast, as the documentation recommends
ABOUT_START = (
    "The detector starts from the one that comes with mast (--init default). It has heard simulated worlds before, but "
    "not this one: these sites, species and recordings are new to it."
)
# the preset tiny, cut to what two CPU cores do in three minutes; chosen in another world (--seed 21)
SETTINGS: dict[str, float | str] = {
    "train.epochs": 4,
    "selftrain.rounds": 1,
    "selftrain.threshold": "validation",  # few chunks: better no pseudo-box than a doubtful one
    "selftrain.max_chunks": 48,
    "selftrain.measure_other_parts": "false",
    "selftrain.stage1.epochs": 1,
    "selftrain.stage1.warmup_epochs": 0.2,
    "selftrain.stage1.lr": 1e-4,  # as small as training's: larger steps undo what the start knows
    "selftrain.stage2.epochs": 1,
    "selftrain.stage2.warmup_epochs": 0.2,
    "selftrain.stage2.lr": 1e-4,
}
RECORDINGS = 40  # of a minute, half of them at each site
LABELLED, TEST = 14, 6  # of these: with boxes at the first site, and for the last table at the second


def mast(*arguments: str) -> None:
    """Show a command, run it, stop at the first failure."""
    print(f"\n$ mast {' '.join(arguments)}", flush=True)
    subprocess.run([sys.executable, "-m", "mast.cli.main", *arguments], check=True)


def main() -> None:
    """Simulate, look, fit, detect, compare."""
    started = time.monotonic()
    shutil.rmtree(OUT, ignore_errors=True)
    world = OUT / "world"
    # a world whose two sites share some species but not all, as neighbouring ones do; chosen by its boxes alone
    places = ["--sites", "2", "--days", "1", "--hours", "5-9", "--seed", "11", "--workers", "2"]
    mast("simulate", str(world), "--recordings", str(RECORDINGS), *places)
    labelled, archive = divide(world)
    mast("scan", str(labelled))
    mast("convert", str(labelled), str(OUT / "raven"), "--to", "raven")
    picture = str(OUT / "soundscape.png")
    recording = busiest(labelled)
    boxes = str(labelled / "boxes.csv")
    mast("plot", str(recording), "--boxes", boxes, "--end", "20.48", "--out", picture)

    changes = [text for name, value in SETTINGS.items() for text in ("--set", f"{name}={value}")]
    run = OUT / "run"
    print(f"\n{ABOUT_START}")
    begin = ["--out", str(run), "--init", START, "--preset", "tiny"]
    mast("fit", str(labelled), "--unlabeled", str(archive), *begin, *changes)
    found = OUT / "detections"
    mast("detect", str(archive), "--model", str(run), "--out", str(found), "--formats", "csv,raven")

    metrics = json.loads((run / "metrics.json").read_text())
    metrics["detectors"] = {"as it comes": measure_start(labelled), **metrics["detectors"]}
    print(f"\n{comparison(metrics)}\n{ABOUT_START}")
    print(
        f"\nDone in {(time.monotonic() - started) / 60:.1f} minutes. Open {run / 'report.html'} in a browser.\n"
        f"Events: {found / 'detections.csv'}; for Raven: {found / 'raven'}. What the truth looks like: {picture}"
    )


def divide(world: Path) -> tuple[Path, Path]:
    """What a user would have: a folder with boxes, and an archive without."""
    with (world / "recordings.csv").open() as file:
        recordings = list(csv.DictReader(file))
    with (world / "boxes.csv").open() as file:
        boxes = list(csv.DictReader(file))
    home = recordings[0]["site"]
    at_home = [row for row in recordings if row["site"] == home]
    away = [row for row in recordings if row["site"] != home]
    # the split column is left empty at home: mast divides what it may learn from
    known = [{**row, "split": ""} for row in at_home[:LABELLED]]
    known += [{**row, "split": "site_ood"} for row in away[:TEST]]
    unknown = at_home[LABELLED:] + away[TEST:]
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


def measure_start(labelled: Path) -> dict[str, Any]:
    """What ``mast fit`` measures of its detectors, of the one it started from: the same parts, its own threshold."""
    from mast.data.recordings import load_dataset
    from mast.fit.measure import measure_detectors
    from mast.models.find import find_model
    from mast.training.machine import prepare_machine
    from mast.training.recipe import load_recipe
    from mast.training.sources import labelled_chunks

    recipe = load_recipe("tiny")
    parts = labelled_chunks(load_dataset(labelled), recipe.front_end)
    found = measure_detectors(
        {START: find_model(START)},
        parts,
        OUT / "start",
        recipe,
        prepare_machine(recipe),
        resamples=1000,
        seed=0,
    )
    measured: dict[str, Any] = found["detectors"][START]
    return measured


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


def comparison(metrics: dict[str, Any]) -> str:
    """F1 of each detector on each part, with intervals, as a table for the terminal."""
    detectors = list(metrics["detectors"])
    names = {"test": "first site, test", "val": "first site, validation", "site_ood": "site nobody labelled"}
    lines = [f"{'F1 at IoU 0.5':<40}" + "".join(f"{name:>22}" for name in detectors)]
    for part in (part for part in ("test", "site_ood", "val") if part in metrics["parts"]):
        cells = []
        for detector in detectors:
            row = metrics["detectors"][detector]["parts"][part]
            low, high = (f"{value:.2f}" if value is not None else "?" for value in row["intervals"]["f1"])
            cells.append(f"{row['f1']:.2f}  ({low}–{high})")
        size = metrics["parts"][part]
        name = f"{names[part]} ({size['recordings']} min, {size['boxes']} boxes)"
        lines.append(f"{name:<40}" + "".join(f"{cell:>22}" for cell in cells))
    return "\n".join(lines)


if __name__ == "__main__":
    main()
