"""How often people draw a box inside another, how often a model does, and what deciding between the two gains.

    python -m mast_studies.nested_boxes --model MODEL --work runs/nested --out results/nested.json \\
        --data data/birdeep_am1 data/nbm_xc data/tagus_fish data/cr_bats --band tagus_fish=2000 --band cr_bats=128000 \\
        --half nbm_xc=first --simulated

A box lies in another when they share more than 0.8 of the smaller one, on the grid that boxes are compared on. The
model searches twice at its own threshold: once with ``nested`` as is, once with both boxes kept.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mast.arrays import FloatArray
from mast.detect_options import DetectOptions
from mast.events import boxes_of, pairwise_iom
from mast.inference import Detector
from mast.models.checkpoint import load_checkpoint, save_checkpoint
from mast.models.find import find_model
from mast.models.mast_detector import MastDetector
from mast_studies.record import write_result
from mast_studies.script import run_script
from mast_studies.whole_recordings import search
from mast_studies.zero_shot_measure import as_row, difference, measure
from mast_studies.zero_shot_sets import LabelledSet, load_set, parse_pairs, unseen_world

SHARE = 0.8


def share_nested(labelled_set: LabelledSet, events: pd.DataFrame) -> float | None:
    """The share of events that lie in another one of the same recording, or hold one."""
    front_end, nested = labelled_set.front_end, 0
    for _, group in events.groupby("recording"):
        cells: FloatArray = boxes_of(group)
        cells[:, 0::2] /= front_end.hop_s
        cells[:, 1::2] = front_end.hz_to_bins(cells[:, 1::2])
        shared = pairwise_iom(cells, cells)
        np.fill_diagonal(shared, 0.0)
        nested += int((shared > SHARE).any(axis=1).sum())
    return round(nested / len(events), 4) if len(events) else None


def with_both(model: Path, out: Path) -> Path:
    """A copy of the model that also reports boxes that lie inside others; otherwise unchanged."""
    loaded, card = load_checkpoint(model)
    assert isinstance(loaded, MastDetector)
    loaded.config = loaded.config.model_copy(update={"nested": 1.0})
    save_checkpoint(out, loaded, card.model_copy(update={"architecture": loaded.config}), dtype="float16")
    return out


def measure_set(labelled_set: LabelledSet, models: dict[str, Path]) -> dict[str, Any]:
    """One set: how many boxes lie in others, and the model with and without the decision."""
    options = DetectOptions(band_hz=labelled_set.band_hz)
    found = {name: search(Detector(model, options), labelled_set.dataset) for name, model in models.items()}
    return {
        "boxes": len(labelled_set.truth),
        "boxes_nested": share_nested(labelled_set, labelled_set.truth),
        "detections_nested": {name: share_nested(labelled_set, events) for name, events in found.items()},
        "systems": {name: as_row(measure(labelled_set, events)) for name, events in found.items()},
        "f1_of_decided_minus_both": difference(labelled_set, found["both"], found["decided"]),
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
    bands_hz = {name: float(value) for name, value in parse_pairs(options.band)}
    folders = [*options.data]
    if options.simulated:
        folders.append(unseen_world(options.work / "simulated"))
    sets = [load_set(folder, bands_hz=bands_hz, halves=dict(parse_pairs(options.half))) for folder in folders]
    model = find_model(options.model)
    models = {"decided": model, "both": with_both(model, options.work / "both")}
    found = {labelled_set.name: measure_set(labelled_set, models) for labelled_set in sets}
    data = {labelled_set.name: labelled_set.about() for labelled_set in sets}
    write_result(options.out, {"share": SHARE, "sets": found}, seed=0, data=data)
    for name, one in found.items():
        print(name, one["boxes_nested"], one["detections_nested"], one["f1_of_decided_minus_both"])


if __name__ == "__main__":
    run_script(main)
