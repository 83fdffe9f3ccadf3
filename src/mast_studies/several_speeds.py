"""What listening several times at slightly different speeds is worth: the embedded model as its own committee.

    python -m mast_studies.several_speeds --model default --work runs/speeds --out results/several_speeds.json \\
        --data data/birdeep_am1 data/nbm_xc data/tagus_fish data/cr_bats --band tagus_fish=2000 --band cr_bats=128000 \\
        --half nbm_xc=first --simulated

A model that is asked for another band hears sound faster or slower (``mast detect --band``). Its boxes at all speeds
are fused as those of several teachers are (:mod:`mast.selftrain.committee`). The speeds were chosen before anything was
measured.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pandas as pd

from mast.detect_options import DetectOptions
from mast.evaluation import best_threshold
from mast.inference import Detector
from mast.models.find import find_model
from mast_studies.fused_systems import fuse_events
from mast_studies.record import write_result
from mast_studies.script import run_script
from mast_studies.whole import FLOOR, search
from mast_studies.zero_shot_measure import as_row, measure, scoring_of
from mast_studies.zero_shot_sets import LabelledSet, load_set, pairs, unseen_world, variant

SPEEDS = (1.0, 0.88, 1.13)  # of the band's upper edge; the first is the set's own


def measure_set(own: LabelledSet, model: Path, *, threshold: float) -> dict[str, Any]:
    """A model on one set: at each speed, and all speeds fused, at its own threshold and at the best one here.

    Args:
        own: the set.
        model: a model folder that gives boxes down to a low score.
        threshold: from which score on events count, as users see it.
    """
    found = {
        f"{speed:g}": search(Detector(model, DetectOptions(band_hz=own.band_hz * speed)), own.dataset)
        for speed in SPEEDS
    }
    found["together"] = fuse_events(list(found.values()), own.front_end)
    return {name: _measured(own, events, threshold) for name, events in found.items()}


def _measured(own: LabelledSet, events: pd.DataFrame, threshold: float) -> dict[str, Any]:
    everything = measure(own, events)
    best = best_threshold(own.truth, events, reviewed=own.reviewed, scoring=scoring_of(own)).value
    return {
        "own threshold": as_row(measure(own, events, threshold=threshold), scores=everything),
        "best on this set": as_row(measure(own, events, threshold=best), scores=everything)
        | {"threshold": round(best, 4)},
    }


def main() -> None:
    """Read the options, measure each set."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, nargs="*", default=[], help="dataset folders")
    parser.add_argument("--band", action="append", default=[], help="NAME=HZ, upper edge of the band")
    parser.add_argument("--half", action="append", default=[], help="NAME=first, as in zero_shot.py")
    parser.add_argument("--simulated", action="store_true", help="also the unseen simulated world")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    bands_hz = {name: float(value) for name, value in pairs(options.band)}
    folders = [*options.data]
    if options.simulated:
        folders.append(unseen_world(options.work / "simulated"))
    sets = [load_set(folder, bands_hz=bands_hz, halves=dict(pairs(options.half))) for folder in folders]
    model = find_model(options.model)
    threshold = Detector(model).scores.threshold
    low = variant(model, options.work / "low", threshold=FLOOR)
    found = {own.name: measure_set(own, low, threshold=threshold) for own in sets}
    figures = {"speeds": SPEEDS, "threshold": round(threshold, 4), "sets": found}
    write_result(options.out, figures, seed=0, data={own.name: own.about() for own in sets})
    for name, ways in found.items():
        for way, rows in ways.items():
            shown = ", ".join(f"F1 {row['f1']:.3f} ({kind})" for kind, row in rows.items())
            print(f"{name}, {way}: AP50 {rows['own threshold']['ap50']:.3f}, {shown}")


if __name__ == "__main__":
    run_script(main)
