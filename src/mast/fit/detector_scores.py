"""How good the detectors of a run are, on every part of the labelled dataset; nothing is chosen here."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mast.data.splits import PARTS
from mast.evaluation.bootstrap import paired_differences
from mast.evaluation.calibration import calibrated
from mast.evaluation.metrics import metrics_of
from mast.evaluation.part_tables import PartTables
from mast.evaluation.report import without_nan
from mast.runs import Progress
from mast.training.chosen_chunks import Chunks
from mast.training.chunk_scores import detect_by_plan
from mast.training.machine import Machine
from mast.training.recipe import Recipe

_METRICS = ("precision", "recall", "f1", "f1_macro", "ap50", "ap50_voc11", "ap50_95", "miou", "ece")


def measure_detectors(
    detectors: Mapping[str, Path],
    parts: Mapping[str, Chunks],
    folder: Path,
    recipe: Recipe,
    machine: Machine,
    *,
    resamples: int,
    seed: int,
    pairs: Sequence[tuple[str, str]] = (),
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure every detector on every part, at the threshold it has from validation.

    Leaves the tables of each part (:class:`mast.evaluation.PartTables`) in ``folder``, below the detector's name.

    Args:
        detectors: model folders by name, in the order they were made.
        parts: labelled chunks by part; train is not measured.
        folder: for the tables; emptied first.
        recipe: of the run; it has the minimum score.
        machine: where.
        resamples: bootstrap draws over recordings.
        seed: of the draws.
        pairs: an earlier and a later detector each, whose difference is of interest.
        progress: as in training.

    Returns:
        Plain values for ``metrics.json``: what each part is; for each detector its fingerprint, its threshold and the
        metrics of each part with intervals; the differences of ``pairs`` (later − earlier), paired by recording.
    """
    shutil.rmtree(folder, ignore_errors=True)
    names = [*(p for p in PARTS[1:] if p in parts), *sorted(parts.keys() - set(PARTS))]
    found: dict[str, Any] = {"parts": {}, "detectors": {}}
    found["differences"] = [{"of": later, "to": earlier, "parts": {}} for earlier, later in pairs]
    tables: dict[str, dict[str, PartTables]] = {name: {} for name in names}
    for detector, model_folder in detectors.items():
        model = machine.load(model_folder)
        card = model.card
        own = card.thresholds["score"]
        found["detectors"][detector] = {
            "weights_sha256": card.weights_sha256,
            "threshold": own,
            "threshold_probability": float(card.probabilities.apply(own)),
            "parts": {},
        }
        for name in names:
            measured = detect_by_plan(model, parts[name], recipe.train, machine)
            tables[name][detector] = replace(measured, threshold=own, calibration=card.probabilities)
            tables[name][detector].save(folder / detector, name)
            if progress:
                done = sum(len(by_detector) for by_detector in tables.values())
                progress(done, len(detectors) * len(names), f"parts measured, {detector} on {name}")
    for name in names:
        first = next(iter(tables[name].values()))
        found["parts"][name] = {
            "recordings": len(first.recordings),
            "chunks": len(parts[name]),
            "seconds": round(float(parts[name].table["valid_s"].sum()), 3),
            "boxes": len(first.truth),
        }
        outcomes = {detector: (own.match(), own.threshold) for detector, own in tables[name].items()}
        for pair in found["differences"]:
            both = paired_differences(
                outcomes[pair["to"]], outcomes[pair["of"]], resamples=resamples, seed=seed
            )
            pair["parts"][name] = {key: without_nan(both[key]._asdict()) for key in _METRICS}
        for detector, part in tables[name].items():
            found["detectors"][detector]["parts"][name] = _result(part, resamples=resamples, seed=seed)
    return found


def _result(part: PartTables, *, resamples: int, seed: int) -> dict[str, Any]:
    """The metrics of one detector on one part, as plain values."""
    evaluation = part.evaluate(resamples=resamples, seed=seed)
    values = evaluation.as_dict()
    after = metrics_of(calibrated(part.match(), part.calibration), None)["ece"][0]
    kinds = evaluation.recall_by
    return {
        **{key: values[key] for key in (*_METRICS, "threshold", "n_truth", "n_predictions", "n_recordings")},
        "intervals": {key: values["intervals"][key] for key in _METRICS},
        "ece_calibrated": float(after) if after == after else None,
        "recall_by": {
            str(by): own[["group", "n_truth", "n_found"]].to_dict("records")
            for by, own in kinds[kinds["n_truth"] > 0].groupby("by", sort=False)
        },
    }
