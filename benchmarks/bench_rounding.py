"""What searching in eight bits changes: the same recordings in ONNX Runtime and in torch, in single precision.

    python benchmarks/bench_rounding.py --data birdeep_am1 --data tagus_fish=2000 --out results/rounding.json

For each labelled set (``folder`` or ``folder=band in Hz``): F1 at the model's threshold and AP50 of both, the
difference of F1 with its interval over recordings, how similar the events are, and the seconds that each took; the two
take turns.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pandas as pd

from benchmarks.record import write_result
from mast.detect_options import DetectOptions
from mast.evaluation import compare, evaluate
from mast.inference import Detector
from mast.models.find import find_model
from mast_studies.whole_recordings import search, search_twice
from mast_studies.zero_shot_measure import measure, scoring_of
from mast_studies.zero_shot_sets import LabelledSet, load_set

PRECISIONS = {"torch": "float32", "onnx": "int8"}


def detect_options(labelled_set: LabelledSet, runtime: Any) -> DetectOptions:
    """Boxes as the model gives them, in a set's band."""
    return DetectOptions(device="cpu", runtime=runtime, band_hz=labelled_set.band_hz)


def measure_set(labelled_set: LabelledSet, model: Path, *, rounds: int) -> dict[str, Any]:
    """Both ways on one set."""
    figures: dict[str, Any] = {
        "boxes": len(labelled_set.truth),
        "recordings": len(labelled_set.dataset),
        "seconds": {},
    }
    found: dict[str, pd.DataFrame] = {}
    for runtime in PRECISIONS:
        both = search_twice(model, labelled_set.dataset, options=detect_options(labelled_set, runtime))
        found[runtime] = both.events
        at_threshold = measure(labelled_set, both.events)
        figures[PRECISIONS[runtime]] = {
            "events": len(both.events),
            "f1": at_threshold.metrics["f1"],
            "f1_interval": list(at_threshold.intervals["f1"]),
            "ap50": measure(labelled_set, both.scored, resamples=0).metrics["ap50"],
        }
    judged: dict[str, Any] = {"reviewed": labelled_set.reviewed, "scoring": scoring_of(labelled_set)}
    gained = compare(labelled_set.truth, found["torch"], found["onnx"], **judged).differences["f1"]
    figures["f1 difference"] = gained._asdict()
    alike = evaluate(found["torch"], found["onnx"], **judged)
    figures["f1 of one against the other"] = alike.metrics["f1"]
    figures["seconds"] = search_seconds(labelled_set, model, rounds)
    return figures


def search_seconds(labelled_set: LabelledSet, model: Path, rounds: int) -> dict[str, list[float]]:
    """Seconds of a search by detectors that are already loaded, which take turns."""
    detectors = {runtime: Detector(model, detect_options(labelled_set, runtime)) for runtime in PRECISIONS}
    seconds: dict[str, list[float]] = {precision: [] for precision in PRECISIONS.values()}
    for _ in range(rounds):
        for runtime, detector in detectors.items():
            began = time.perf_counter()
            search(detector, labelled_set.dataset)
            seconds[PRECISIONS[runtime]].append(time.perf_counter() - began)
    return seconds


def main() -> None:
    """Read the options, measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", action="append", required=True, help="a labelled set, or SET=HZ")
    parser.add_argument("--model", default="default")
    parser.add_argument("--rounds", type=int, default=2, help="rounds of timing")
    parser.add_argument("--out", help="JSON file to write")
    options = parser.parse_args()
    model, figures = find_model(options.model), {}
    for words in options.data:
        folder, _, band = words.partition("=")
        name = Path(folder).resolve().name
        labelled_set = load_set(
            Path(folder), bands_hz={name: float(band)} if band else None, halves={name: "both"}
        )
        figures[name] = measure_set(labelled_set, model, rounds=options.rounds)
        print(f"{name}: {figures[name]}", flush=True)
    if options.out:
        write_result(options.out, {"model": options.model, "sets": figures}, seed=0)


if __name__ == "__main__":
    main()
