"""What the scores of a thorough search mean: whether they are probabilities, and which threshold is best.

    python -m mast_studies.thorough_scores --model default --work runs/thorough --out results/thorough_scores.json \\
        --data runs/default/checked

Each dataset is searched once and at three speeds (`mast detect --thorough`), down to very low scores; in a dataset with
parts, only ``val`` is searched. ``slope`` and ``intercept`` are those of Platt scaling: 1 and 0 where scores are
probabilities.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pandas as pd

from mast.detect_options import DetectOptions
from mast.evaluation.calibration import calibrate
from mast.evaluation.outcome import match_scene
from mast.evaluation.scene import build_scene
from mast.evaluation.threshold import best_threshold_of
from mast.inference import Detector
from mast.models.find import find_model
from mast_studies.record import write_result
from mast_studies.script import run_script
from mast_studies.whole_recordings import FLOOR, search
from mast_studies.zero_shot_measure import measure, scoring_of
from mast_studies.zero_shot_sets import LabelledSet, load_set, write_variant

VALIDATION = "val"


def scores_of(labelled_set: LabelledSet, events: pd.DataFrame, threshold: float) -> dict[str, float]:
    """What the scores of some events mean on one set."""
    outcome = match_scene(
        build_scene(
            labelled_set.truth, events, reviewed=labelled_set.reviewed, scoring=scoring_of(labelled_set)
        )
    )
    scale, best = calibrate(outcome, "platt"), best_threshold_of(outcome)
    at_own = measure(labelled_set, events, threshold=threshold, resamples=0).metrics
    figures = {
        "slope": scale.slope,
        "intercept": scale.intercept,
        "threshold": threshold,
        "f1": at_own["f1"],
        "precision": at_own["precision"],
        "mean_score": float(outcome.scores[: outcome.kept(threshold)].mean()),
        "best_threshold": best.value,
        "best_f1": best.f1,
        "ap50": measure(labelled_set, events, resamples=0).metrics["ap50"],
    }
    return {name: round(float(value), 4) for name, value in figures.items()}


def measure_set(labelled_set: LabelledSet, model: Path, threshold: float) -> dict[str, Any]:
    """One set, searched once and thoroughly.

    Args:
        labelled_set: the set.
        model: a model folder that gives boxes down to a low score.
        threshold: minimum score of the events that count, as users see it.
    """
    found = {
        name: search(
            Detector(model, DetectOptions(band_hz=labelled_set.band_hz, thorough=thorough)),
            labelled_set.dataset,
        )
        for name, thorough in (("once", False), ("thorough", True))
    }
    return {name: scores_of(labelled_set, events, threshold) for name, events in found.items()}


def validation_of(folder: Path) -> LabelledSet:
    """The recordings that a dataset holds back for validation, or all if it has no parts."""
    labelled_set = load_set(folder)
    splits = labelled_set.dataset.recordings["split"]
    if not (splits == VALIDATION).any():
        return labelled_set
    held = labelled_set.dataset.select(
        recordings=list(labelled_set.dataset.recordings.loc[splits == VALIDATION, "file"])
    )
    return LabelledSet(labelled_set.name, VALIDATION, held, labelled_set.band_hz)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="dataset folders")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    model = find_model(options.model)
    threshold = Detector(model).scores.threshold
    low = write_variant(model, options.work / "low", threshold=FLOOR)
    sets = [validation_of(folder) for folder in options.data]
    found = {labelled_set.name: measure_set(labelled_set, low, threshold) for labelled_set in sets}
    write_result(
        options.out,
        {"sets": found},
        seed=0,
        data={labelled_set.name: labelled_set.about() for labelled_set in sets},
    )
    for name, ways in found.items():
        for way, figures in ways.items():
            print(name, way, figures)


if __name__ == "__main__":
    run_script(main)
