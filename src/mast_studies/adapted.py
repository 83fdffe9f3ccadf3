"""What `mast adapt` gains: the embedded model as is, and adapted to recordings whose boxes it never saw.

    python -m mast_studies.adapted --model default --work runs/adapted --out results/adapted.json --device cpu \\
        --data data/birdeep_am1 data/nbm_xc data/tagus_fish data/cr_bats --band tagus_fish=2000 --band cr_bats=128000 \\
        --half nbm_xc=both --simulated --seeds 2

*heard*: the model is adapted to the recordings that it then searches, as `mast adapt` and `mast detect` on one archive
do; *twice*: then adapted to them again, as by `mast adapt --model adapted`. *others*: a set is divided into two halves
by the hash of the names; each half is searched by a model adapted to the other one. Boxes are only used to measure. A
stopped run resumes: a finished adaptation in ``--work`` is not repeated.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mast.detect_options import DetectOptions
from mast.models.card import load_card
from mast.models.find import find_model
from mast.runs import SILENT
from mast.selftrain.adaptation import adapt
from mast_studies.folds import link_recordings
from mast_studies.record import write_result
from mast_studies.script import run_script
from mast_studies.whole_recordings import SearchResult, search_twice
from mast_studies.zero_shot_measure import difference, measure_thresholds
from mast_studies.zero_shot_sets import LabelledSet, half_of, load_set, parse_pairs, unseen_world

MODEL, HEARD, TWICE, OTHERS = "mast", "adapted to these", "adapted to these twice", "adapted to others"
_PRINTED_METRICS = ("precision", "recall", "f1", "ap50", "f1_time")


def main() -> None:
    """Read the options, adapt, measure, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="default")
    parser.add_argument("--data", type=Path, nargs="*", default=[], help="labelled datasets")
    parser.add_argument(
        "--simulated", action="store_true", help="also a simulated world that no model was trained on"
    )
    parser.add_argument("--band", action="append", default=[], help="upper edge of a dataset's band: NAME=HZ")
    parser.add_argument("--half", action="append", default=[], help="NAME=first, second or both")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--no-others", action="store_true", help="only adapt to the recordings themselves")
    parser.add_argument("--device", help="as in mast detect")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    bands_hz = {name: float(value) for name, value in parse_pairs(options.band)}
    halves = dict(parse_pairs(options.half))
    folders = [*options.data]
    if options.simulated:
        folders.append(unseen_world(options.work / "simulated"))
    sets = [load_set(folder, bands_hz=bands_hz, halves=halves) for folder in folders]
    model = find_model(options.model)
    figures: dict[str, Any] = {
        "model": {"weights_sha256": load_card(model).weights_sha256},
        "seeds": options.seeds,
        "iou": 0.5,
        "space": "grid (seconds × mel)",
        "sets": {},
    }
    for labelled_set in sets:
        figures["sets"][labelled_set.name] = measure_set(labelled_set, model, options)
        print(labelled_set.name, _result_lines(figures["sets"][labelled_set.name]), flush=True)
        data = {one.name: one.about() for one in sets if one.name in figures["sets"]}
        write_result(options.out, figures, seed=0, data=data)


def measure_set(labelled_set: LabelledSet, model: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Measure the model as is and adapted on one set."""
    detect_options = DetectOptions(device=options.device, band_hz=labelled_set.band_hz)
    before = search_twice(model, labelled_set.dataset, options=detect_options)
    result: dict[str, Any] = {
        MODEL: measure_thresholds(labelled_set, before),
        HEARD: [],
        TWICE: [],
        OTHERS: [],
    }
    names = [str(name) for name in labelled_set.dataset.recordings["file"]]
    first, second = half_of(names, "first"), half_of(names, "second")
    for seed in range(options.seeds):
        work = options.work / labelled_set.name / f"seed-{seed}"
        heard = _adapt_and_search(labelled_set, model, work / "whole", names, names, seed, detect_options)
        result[HEARD].append(_row(labelled_set, before, *heard, seed=seed))
        once = work / "whole" / "run"
        twice = _adapt_and_search(labelled_set, once, work / "twice", names, names, seed, detect_options)
        result[TWICE].append(_row(labelled_set, before, *twice, seed=seed))
        if options.no_others:
            continue
        halves = [
            _adapt_and_search(labelled_set, model, work / name, learnt, searched, seed, detect_options)
            for name, learnt, searched in (("first", first, second), ("second", second, first))
        ]
        both = SearchResult(
            pd.concat([found.events for found, _ in halves], ignore_index=True),
            pd.concat([found.scored for found, _ in halves], ignore_index=True),
            float(np.mean([found.threshold for found, _ in halves])),
        )
        counts = {key: sum(counts[key] for _, counts in halves) for key in halves[0][1]}
        result[OTHERS].append(_row(labelled_set, before, both, counts, seed=seed))
    return result


def _adapt_and_search(
    labelled_set: LabelledSet,
    model: Path,
    work: Path,
    learnt: Sequence[str],
    searched: Sequence[str],
    seed: int,
    detect_options: DetectOptions,
) -> tuple[SearchResult, dict[str, int]]:
    """Adapt the model to the recordings in ``learnt``, then search those in ``searched``."""
    sound = link_recordings(labelled_set.dataset, learnt, work / "sound")
    adapted = adapt(
        [sound],
        work / "run",
        init=model,
        band_hz=labelled_set.band_hz,
        seed=seed,
        reporter=replace(
            SILENT, say=lambda text: print(f"{labelled_set.name}: {text}", file=sys.stderr, flush=True)
        ),
    )
    found = search_twice(adapted.model, labelled_set.dataset, searched, options=detect_options)
    return found, {"chunks": adapted.heard, "boxes": adapted.boxes, "learnt": adapted.learnt}


def _row(
    labelled_set: LabelledSet, before: SearchResult, found: SearchResult, counts: dict[str, int], *, seed: int
) -> dict[str, Any]:
    return {
        "seed": seed,
        **counts,
        **measure_thresholds(labelled_set, found),
        "f1_minus_model": difference(labelled_set, before.events, found.events),
    }


def _result_lines(result: dict[str, Any]) -> str:
    """One line per system."""
    rows = [(MODEL, result[MODEL]), *((name, row) for name in (HEARD, TWICE, OTHERS) for row in result[name])]
    lines = []
    for name, row in rows:
        own = row["own threshold"]
        figures = " ".join(f"{metric} {own[metric]:.3f}" for metric in _PRINTED_METRICS)
        lines.append(
            f"{name}: {figures} n {own['n_predictions']}, best F1 {row['best on this set']['f1']:.3f}"
        )
    return "\n  ".join(["", *lines])


if __name__ == "__main__":
    run_script(main)
