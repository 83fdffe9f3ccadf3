"""How good the detectors of a run are, on every part of the labelled dataset; nothing is chosen here."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mast.data.splits import PARTS
from mast.evaluation import Calibration, Evaluation, calibrated, evaluate
from mast.evaluation.bootstrap import paired_differences
from mast.evaluation.breakdown import recall_by
from mast.evaluation.metrics import metrics_of
from mast.evaluation.operating import StoredCalibration
from mast.grid import FrontEnd
from mast.models.checkpoint import load_checkpoint
from mast.reports.measured_tables import (
    PartTables,
    as_measured,
    in_hertz,
    match_part,
    save_part,
    scoring_of,
)
from mast.runs import Progress
from mast.training.machine import Machine
from mast.training.measure import detect_chunks
from mast.training.recipe import Recipe
from mast.training.sources import Chunks
from mast.training.spectrograms import FrontEndPipeline

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
    """Every detector on every part, at the threshold it carries from validation.

    Leaves the tables of :func:`mast.reports.measured_tables.save_part` in ``folder``.

    Args:
        detectors: model folders by name, in the order they were made.
        parts: labelled chunks by part; train is not measured.
        folder: for the tables; emptied first.
        recipe: lowest score and front end.
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
    calibrations: dict[str, Calibration] = {}
    for detector, model_folder in detectors.items():
        model, card = load_checkpoint(model_folder)
        stored = StoredCalibration.of_card(card.calibration, model_folder)
        calibrations[detector] = stored.calibration if stored else Calibration()
        own = card.thresholds["score"]
        found["detectors"][detector] = {
            "weights_sha256": card.weights_sha256,
            "threshold": own,
            "threshold_probability": float(calibrations[detector].apply(own)),
            "parts": {},
        }
        model, pipeline = model.to(machine.device), FrontEndPipeline.of(card).to(machine.device)
        for name in names:
            with machine.accelerator.autocast():
                measured = detect_chunks(
                    model,
                    parts[name],
                    pipeline,
                    batch_size=machine.eval_batch(recipe.train.batch_size),
                    workers=machine.workers,
                    score_threshold=recipe.train.score_threshold,
                    nms_iou=card.thresholds.get("nms_iou", recipe.train.nms_iou),
                )
            tables[name][detector] = in_hertz(measured, card.front_end, calibrations[detector])
            save_part(tables[name][detector], folder, part=name, detector=detector)
            if progress:
                done = sum(len(by_detector) for by_detector in tables.values())
                progress(done, len(detectors) * len(names), f"parts measured, {detector} on {name}")
    thresholds = {detector: about["threshold"] for detector, about in found["detectors"].items()}
    for name in names:
        first = next(iter(tables[name].values()))
        found["parts"][name] = {
            "recordings": len(first.reviewed),
            "chunks": len(parts[name]),
            "seconds": round(float(parts[name].table["valid_s"].sum()), 3),
            "boxes": len(first.truth),
        }
        evaluations, differences = _evaluate(
            tables[name], thresholds, pairs, recipe.front_end, resamples=resamples, seed=seed
        )
        for pair, difference in zip(found["differences"], differences, strict=True):
            pair["parts"][name] = difference
        for detector, evaluation in evaluations.items():
            result = _plain(evaluation)
            outcome = match_part(tables[name][detector], recipe.front_end)
            after = metrics_of(calibrated(outcome, calibrations[detector]), None)["ece"][0]
            kinds = recall_by(outcome, thresholds[detector])
            result["ece_calibrated"] = float(after) if after == after else None
            result["recall_by"] = {
                str(by): own[["group", "n_truth", "n_found"]].to_dict("records")
                for by, own in kinds[kinds["n_truth"] > 0].groupby("by", sort=False)
            }
            found["detectors"][detector]["parts"][name] = result
    return found


def _evaluate(
    tables: Mapping[str, PartTables],
    thresholds: Mapping[str, float],
    pairs: Sequence[tuple[str, str]],
    front_end: FrontEnd,
    *,
    resamples: int,
    seed: int,
) -> tuple[dict[str, Evaluation], list[dict[str, Any]]]:
    """Metrics of each detector on one part, and the paired difference of each pair."""
    first = next(iter(tables.values()))
    truth = as_measured(first.truth)
    predictions = {name: as_measured(own.predictions) for name, own in tables.items()}
    shared: dict[str, Any] = {
        "reviewed": first.reviewed,
        "scoring": scoring_of(front_end),
        "resamples": resamples,
        "seed": seed,
    }
    evaluations = {
        name: evaluate(truth, own, threshold=thresholds[name], **shared) for name, own in predictions.items()
    }
    outcomes = {name: (match_part(own, front_end), thresholds[name]) for name, own in tables.items()}
    differences = []
    for earlier, later in pairs:
        both = paired_differences(outcomes[earlier], outcomes[later], resamples=resamples, seed=seed)
        differences.append({name: _without_nan(both[name]._asdict()) for name in _METRICS})
    return evaluations, differences


def _without_nan(values: dict[str, float]) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def _plain(evaluation: Evaluation) -> dict[str, Any]:
    values = evaluation.as_dict()
    keys = (*_METRICS, "threshold", "n_truth", "n_predictions", "n_recordings")
    intervals = {key: values["intervals"][key] for key in _METRICS}
    return {key: values[key] for key in keys} | {"intervals": intervals}
