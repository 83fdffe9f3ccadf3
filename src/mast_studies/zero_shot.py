"""How well a model does on recordings from places it never saw, next to what people without labels use today.

    python -m mast_studies.zero_shot --model runs/default --out results/zero_shot.json --work runs/zero_shot \\
        --data data/birdeep_am1 data/nbm_xc data/tagus_fish --band tagus_fish=2000 --half nbm_xc=first --simulated

Nothing is trained. Boxes count as found at an IoU of 0.5 in seconds × mel. Each system is measured as is (the model at
its own threshold, a tool with its published settings) and, marked as such, with the settings that are best on the set
itself. Intervals are 95 %, by bootstrap over recordings. ``docs/zero_shot.md`` says more.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mast.arrays import FloatArray
from mast.audio import probe, read
from mast.detect_options import DetectOptions
from mast.events import BOX_COLUMNS, as_events
from mast.files import write_atomic
from mast.models.card import load_card
from mast.models.find import find_model
from mast.reports.spectrogram import draw_spectrogram
from mast_studies.record import write_result
from mast_studies.script import run_script
from mast_studies.study_tables import markdown_table
from mast_studies.whole_recordings import SearchResult, search_twice
from mast_studies.zero_shot_measure import as_row, difference, measure, measure_thresholds
from mast_studies.zero_shot_sets import (
    PAPER_BAND_HZ,
    LabelledSet,
    load_set,
    parse_pairs,
    unseen_world,
)
from mast_studies.zero_shot_tools import TOOLS, Tool, find_boxes

METRICS = {"precision": "P", "recall": "R", "f1": "F1", "ap50": "AP50", "miou": "mIoU"}
MODEL, THOROUGH = "mast", "mast --thorough"
PICTURES = 3  # of each set
PICTURE_CHUNKS = 1.5  # seconds shown, in chunks of the band


def main() -> None:
    """Read the options, measure, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--model", type=Path, help="a model folder or a run; without it only the tools are run"
    )
    parser.add_argument(
        "--thorough", action="store_true", help="also search as `mast detect --thorough` does"
    )
    parser.add_argument("--data", type=Path, nargs="*", default=[], help="labelled datasets")
    parser.add_argument(
        "--simulated", action="store_true", help="also a simulated world that no model was trained on"
    )
    parser.add_argument("--band", action="append", default=[], help="upper edge of a dataset's band: NAME=HZ")
    parser.add_argument("--half", action="append", default=[], help="NAME=first, second or both")
    parser.add_argument(
        "--tools", choices=("best", "published", "none"), default="best", help="best: their grids, too"
    )
    parser.add_argument(
        "--packages", type=Path, help="a folder with scikit-maad and bambird, if not installed"
    )
    parser.add_argument("--recordings", type=int, help="only this many of each dataset, for a rehearsal")
    parser.add_argument("--device", help="as in mast detect")
    parser.add_argument(
        "--work", type=Path, required=True, help="for the simulated world and what tools found"
    )
    parser.add_argument("--pictures", type=Path, help="a folder for pictures; never into a repository")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    if options.packages:
        sys.path.append(str(options.packages))  # at the end: installed packages come first
    bands_hz = {name: float(value) for name, value in parse_pairs(options.band)}
    halves = dict(parse_pairs(options.half))
    folders = [*options.data]
    if options.simulated:
        folders.append(unseen_world(options.work / "simulated"))
    sets = [load_set(f, bands_hz=bands_hz, halves=halves, max_recordings=options.recordings) for f in folders]
    figures: dict[str, Any] = {}
    if options.model:
        figures["model"] = _describe_model(find_model(options.model))
    missing = [tool.missing for tool in TOOLS if tool.missing] if options.tools != "none" else []
    for sentence in missing:
        print(sentence, file=sys.stderr)
    figures |= {"left_out": missing, "iou": 0.5, "space": "grid (seconds × mel)", "sets": {}}
    for labelled_set in sets:
        figures["sets"][labelled_set.name] = measure_set(labelled_set, options)
        print(format_set(labelled_set, figures["sets"][labelled_set.name]), flush=True)
        # after every set, so that a long run that is stopped leaves results
        data = {one.name: one.about() for one in sets if one.name in figures["sets"]}
        write_result(options.out, figures, seed=0, data=data)


def measure_set(labelled_set: LabelledSet, options: argparse.Namespace) -> dict[str, Any]:
    """Every system on one set."""
    result: dict[str, Any] = {"systems": {}}
    found: dict[str, pd.DataFrame] = {}
    if options.model:
        model = _search(labelled_set, options, MODEL)
        found[MODEL] = model.events
        result["systems"][MODEL] = measure_thresholds(labelled_set, model)
        if options.thorough:
            thorough = _search(labelled_set, options, THOROUGH)
            result["systems"][THOROUGH] = measure_thresholds(labelled_set, thorough)
            result["f1_of_thorough_minus_model"] = difference(labelled_set, model.events, thorough.events)
        if options.pictures:
            draw(labelled_set, found[MODEL], options.pictures)
    for tool in TOOLS:
        if options.tools == "none" or tool.missing:
            continue
        rows, best = measure_tool(
            labelled_set, tool, options.work, published_only=options.tools == "published"
        )
        result["systems"][tool.name] = rows
        found[tool.name] = best
    if options.model and len(found) > 1:
        # the tools with their best settings against the model as is: the hardest comparison for the model
        result["f1_of_model_minus_best_of"] = {
            name: difference(labelled_set, events, found[MODEL])
            for name, events in found.items()
            if name != MODEL
        }
    return result


def _search(labelled_set: LabelledSet, options: argparse.Namespace, name: str) -> SearchResult:
    started = time.perf_counter()
    detect_options = DetectOptions(
        device=options.device, band_hz=labelled_set.band_hz, thorough=name == THOROUGH
    )
    found = search_twice(find_model(options.model), labelled_set.dataset, options=detect_options)
    print(
        f"{labelled_set.name}, {name}: searched twice in {time.perf_counter() - started:.0f} s",
        file=sys.stderr,
    )
    return found


def measure_tool(
    labelled_set: LabelledSet, tool: Tool, work: Path, *, published_only: bool
) -> tuple[dict[str, Any], pd.DataFrame]:
    """A tool with its published settings and with those that are best on this set, and the boxes of the latter."""
    speeds = (1.0,) if labelled_set.band_hz == PAPER_BAND_HZ else (1.0, PAPER_BAND_HZ / labelled_set.band_hz)
    settings = tool.settings(speeds=speeds)[: 1 if published_only else None]
    tables = [boxes_of_tool(labelled_set, tool, one, work / "tools") for one in settings]
    f1 = [measure(labelled_set, table, resamples=0).metrics["f1"] for table in tables]
    best = int(np.nanargmax(f1))
    rows = {"published settings": as_row(measure(labelled_set, tables[0])) | {"settings": settings[0]}}
    if not published_only:
        rows["best on this set"] = as_row(measure(labelled_set, tables[best])) | {
            "settings": {n: v for n, v in settings[best].items() if n in tool.grid or n == "speed"},
            "tried": len(settings),
        }
    if tool.version:
        rows["version"] = {tool.package or "": tool.version}
    return rows, tables[best]


def boxes_of_tool(
    labelled_set: LabelledSet, tool: Tool, settings: Mapping[str, Any], cache: Path
) -> pd.DataFrame:
    """What a tool boxes in a set; saved, because it does not depend on the model."""
    files = [str(name) for name in labelled_set.dataset.recordings["file"]]
    paths = [labelled_set.dataset.path(name) for name in files]
    stamp = [
        (name, path.stat().st_size, path.stat().st_mtime_ns) for name, path in zip(files, paths, strict=True)
    ]
    key = json.dumps([tool.name, tool.version, dict(settings), labelled_set.band_hz, stamp], sort_keys=True)
    path = cache / f"{labelled_set.name}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"
    if path.is_file():
        found = json.loads(path.read_text(encoding="utf-8"))
    else:
        found = {}
        for name, recording in zip(files, paths, strict=True):
            # if a recording has a wider band than is measured, the tools hear no more of it than the model does
            rate = min(probe(recording).sample_rate, labelled_set.front_end.sample_rate)
            boxes = find_boxes(tool, read(recording, sample_rate=rate), rate, settings)
            found[name] = boxes.round(6).tolist()
        write_atomic(path, json.dumps(found).encode())
    return events_table({name: np.array(boxes).reshape(-1, 4) for name, boxes in found.items()})


def events_table(boxes: Mapping[str, FloatArray]) -> pd.DataFrame:
    """Boxes by recording as events that all score 1."""
    tables = [
        pd.DataFrame(own, columns=BOX_COLUMNS).assign(recording=name, score=1.0)
        for name, own in boxes.items()
        if len(own)
    ]
    empty = pd.DataFrame({"recording": pd.Series([], dtype=str), **{n: [] for n in (*BOX_COLUMNS, "score")}})
    return as_events(pd.concat(tables, ignore_index=True) if tables else empty)


def draw(labelled_set: LabelledSet, events: pd.DataFrame, folder: Path) -> list[Path]:
    """Truth and detections on the spectrogram of a few recordings: the one with the most boxes, and some at random."""
    counts = labelled_set.truth.groupby("recording").size().sort_values(ascending=False)
    names = [str(counts.index[0])]
    others = [str(name) for name in labelled_set.dataset.recordings["file"] if name not in names]
    names += [str(n) for n in np.random.default_rng(0).permutation(others)[: PICTURES - 1]]
    drawn = []
    for number, name in enumerate(names):
        truth, found = (table[table["recording"] == name] for table in (labelled_set.truth, events))
        span_s = PICTURE_CHUNKS * labelled_set.front_end.chunk_s
        start_s = _busiest_start(truth["start_s"].to_numpy(dtype=np.float64), span_s)
        out = folder / f"{labelled_set.name}-{number}.png"
        drawn.append(
            draw_spectrogram(
                labelled_set.dataset.path(name),
                out,
                truth=truth,
                predictions=found,
                start_s=start_s,
                end_s=start_s + span_s,
                front_end=labelled_set.front_end,
            )
        )
    return drawn


def _busiest_start(starts_s: FloatArray, span_s: float) -> float:
    """Where a span of that length holds the most starts; 0 if there are no starts."""
    if not len(starts_s):
        return 0.0
    inside = [(int(((starts_s >= s) & (starts_s < s + span_s)).sum()), -s) for s in starts_s]
    return max(0.0, float(-max(inside)[1]) - 0.02 * span_s)


def format_set(labelled_set: LabelledSet, result: Mapping[str, Any]) -> str:
    """One set as a table, with the kinds of mistakes of each system."""
    about = labelled_set.about()
    header = ["system", "as", *METRICS.values(), "boxes"]
    rows, diagnoses = [], []
    for name, ways in result["systems"].items():
        for way in ("own threshold", "published settings", "best on this set"):
            if way in ways:
                cells = [_cell(ways[way], metric) for metric in METRICS]
                rows.append([name, way, *cells, str(ways[way]["n_predictions"])])
        if "diagnosis" in ways:
            diagnoses.append(f"{name}: " + ", ".join(f"{key} {n}" for key, n in ways["diagnosis"].items()))
    title = (
        f"{labelled_set.name} ({about['part']}): {about['recordings']} recordings, {about['minutes']} min, "
        f"{about['boxes']} boxes, band to {labelled_set.band_hz:g} Hz"
    )
    return "\n\n".join(["", title, markdown_table(header, rows), *diagnoses])


def _cell(row: Mapping[str, Any], metric: str) -> str:
    value = row.get(metric)
    if value is None:
        return "–"
    low, high = row[f"{metric}_interval"]
    return f"{value:.3f}" if low is None else f"{value:.3f} ({low:.2f}–{high:.2f})"


def _describe_model(folder: Path) -> dict[str, Any]:
    card = load_card(folder)
    size = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
    return {
        "weights_sha256": card.weights_sha256,
        "megabytes": round(size / 1e6, 2),
        "thresholds": card.thresholds,
        "front_end": card.front_end.model_dump(mode="json"),
    }


if __name__ == "__main__":
    run_script(main)
