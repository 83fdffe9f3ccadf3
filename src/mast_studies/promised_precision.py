"""The precision that `mast detect --precision` promises, and the precision it reaches on recordings from elsewhere.

    python -m mast_studies.promised_precision --data data/birdeep_am1 data/nbm_xc data/tagus_fish data/cr_bats \\
        --band tagus_fish=2000 --band cr_bats=128000 --half nbm_xc=first --out results/promised_precision.json

For each precision the model's card names a threshold. ``card`` is the precision that this threshold gives on a set.
``others`` is a promise of another kind: the lowest threshold that reached the precision on all *other* sets together,
each set counting alike, which shows whether a calibration on several sources would hold on the next. ``mean_score``,
over the boxes kept, is what the scores themselves promise. Intervals are 95 %, by bootstrap over recordings. Nothing is
trained, and no set decides anything about itself. ``--into-card`` also writes the precision measured at each of the
card's thresholds into the card, so that `mast detect --precision` can report it.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mast.detect_options import DetectOptions
from mast.errors import MastError
from mast.evaluation.bootstrap import draw_weights, interval, round_interval
from mast.evaluation.calibration import resampled_precision
from mast.evaluation.outcome import Outcome, match_scene
from mast.evaluation.scene import build_scene
from mast.models.card import load_card
from mast.models.checkpoint import update_card
from mast.models.find import find_model
from mast.probability import MIN_KEPT, StoredCalibration
from mast_studies.record import write_result
from mast_studies.script import run_script
from mast_studies.study_tables import markdown_table
from mast_studies.whole_recordings import search_twice
from mast_studies.zero_shot_measure import scoring_of
from mast_studies.zero_shot_sets import SET_ANIMALS, LabelledSet, load_set, parse_pairs

TARGETS = (0.5, 0.6, 0.7, 0.8, 0.9)
RESAMPLES = 2_000


def precision_at(outcome: Outcome, threshold: float, seed: int = 0) -> dict[str, Any]:
    """Share of right boxes among those that score at least ``threshold``, with its interval over recordings."""
    kept = outcome.kept(threshold)
    if not kept:
        return {"kept": 0, "precision": None, "interval": None}
    weights = draw_weights(len(outcome.scene.recordings), RESAMPLES, seed)
    return {
        "kept": kept,
        "precision": round(float(outcome.hit[:kept].mean()), 4),
        "interval": round_interval(interval(resampled_precision(outcome, kept, weights))),
        "mean_score": round(float(outcome.scores[:kept].mean()), 4),
    }


def search_and_match(labelled_set: LabelledSet, model: Path, device: str | None) -> Outcome:
    """Search a set down to very low scores, and match what is found."""
    found = search_twice(
        model, labelled_set.dataset, options=DetectOptions(device=device, band_hz=labelled_set.band_hz)
    ).scored
    return match_scene(
        build_scene(
            labelled_set.truth, found, reviewed=labelled_set.reviewed, scoring=scoring_of(labelled_set)
        )
    )


def threshold_from(sets: list[Outcome], precision: float) -> float | None:
    """The lowest score at which sets that count alike have this precision on average; None where there is none.

    A threshold counts only where every set keeps :data:`mast.probability.MIN_KEPT` boxes.
    """
    candidates = np.unique(np.concatenate([one.scores for one in sets]))[::-1]
    lowest = None
    for threshold in candidates:
        kept = [one.kept(float(threshold)) for one in sets]
        if min(kept) >= MIN_KEPT:
            shares = [one.hit[:n].mean() for one, n in zip(sets, kept, strict=True)]
            if np.mean(shares) >= precision:
                lowest = float(threshold)
    return lowest


def check_promises(outcomes: Mapping[str, Outcome], stored: StoredCalibration) -> dict[str, Any]:
    """For each set and precision, what the card's threshold and the other sets' threshold reach."""
    result: dict[str, Any] = {}
    for name, one in outcomes.items():
        rows = {}
        for target in TARGETS:
            point = stored.threshold_for(target)
            elsewhere = threshold_from([other for n, other in outcomes.items() if n != name], target)
            rows[f"{target:g}"] = {
                "card": None if point is None else precision_at(one, stored.shown_threshold(point)),
                "card_threshold": None if point is None else round(stored.shown_threshold(point), 4),
                "others": None if elsewhere is None else precision_at(one, elsewhere),
                "others_threshold": None if elsewhere is None else round(elsewhere, 4),
            }
        result[name] = rows
    return result


def with_measured_precision(stored: StoredCalibration, outcomes: Mapping[str, Outcome]) -> StoredCalibration:
    """The calibration with what each of its thresholds gave on each set that keeps enough boxes there."""
    curve = []
    for point in stored.curve:
        kept = {name: one.kept(stored.shown_threshold(point)) for name, one in outcomes.items()}
        found = {
            SET_ANIMALS.get(name, name): round(float(outcomes[name].hit[:n].mean()), 4)
            for name, n in kept.items()
            if n >= MIN_KEPT
        }
        curve.append(point.model_copy(update={"found": found}))
    return stored.model_copy(update={"curve": tuple(curve)})


def format_table(result: Mapping[str, Any]) -> str:
    """One line for each set and precision."""
    rows = []
    for name, targets in result.items():
        for target, ways in targets.items():
            rows.append([name, target, *(_cell(ways[way]) for way in ("card", "others"))])
    return markdown_table(["set", "promised", "threshold of the card", "threshold of the other sets"], rows)


def _cell(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "not reached"
    if row["precision"] is None:
        return "no box"
    spread = "no interval" if row["interval"] is None else "{:.2f}–{:.2f}".format(*row["interval"])
    return f"{row['precision']:.2f} ({spread}), {row['kept']} boxes"


def main() -> None:
    """Read the options, search, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, default=Path("src/mast/pretrained/default"))
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="labelled datasets")
    parser.add_argument("--band", action="append", default=[], help="upper edge of a dataset's band: NAME=HZ")
    parser.add_argument("--half", action="append", default=[], help="NAME=first, second or both")
    parser.add_argument("--device", help="as in mast detect")
    parser.add_argument("--into-card", action="store_true", help="also write it into the model's card")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    bands_hz = {name: float(value) for name, value in parse_pairs(options.band)}
    sets = [
        load_set(folder, bands_hz=bands_hz, halves=dict(parse_pairs(options.half))) for folder in options.data
    ]
    model = find_model(options.model)
    card = load_card(model)
    stored = card.calibration
    if stored is None:
        raise MastError(f"{model}: the model is not calibrated, so it promises no precision")
    outcomes = {
        labelled_set.name: search_and_match(labelled_set, model, options.device) for labelled_set in sets
    }
    result = check_promises(outcomes, stored)
    print(format_table(result))
    write_result(
        options.out,
        {"sets": result},
        seed=0,
        data={labelled_set.name: labelled_set.about() for labelled_set in sets},
    )
    if options.into_card:
        update_card(model, card.model_copy(update={"calibration": with_measured_precision(stored, outcomes)}))


if __name__ == "__main__":
    run_script(main)
