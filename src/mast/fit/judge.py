"""The stages that measure and report: scan at the beginning, then calibrate → evaluate → report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mast.data.chunks import default_split_of
from mast.data.splits import MIN_BOXES_TO_TEST, NO_TEST, parts_in_order
from mast.evaluation.evidence import tally_of
from mast.evaluation.part_tables import PartTables
from mast.files import replace_folder, write_json
from mast.fit.detector_scores import measure_detectors
from mast.fit.fit_run import FitRun
from mast.fit.inputs import dataset_fingerprint, write_listing
from mast.fit.time_estimate import format_duration
from mast.models.card import load_card
from mast.reports.fit_report import write_fit_report
from mast.reports.fit_verdict import HABIT, NAMES, SELF_TRAINED, START, TRAINED
from mast.table_files import write_table
from mast.training.part_list import PART_LIST, list_parts
from mast.version import __version__
from mast.wording import counted


def scan(run: FitRun) -> None:
    """What there is to learn from."""
    labelled = run.sources.labelled
    spans = labelled.annotations.reviewed
    heard_s = float((spans["end_s"] - spans["start_s"]).sum())
    run.say(
        f"scan: {counted(len(labelled), 'recording')}, {format_duration(heard_s)} of them listened to, with "
        f"{counted(len(labelled.annotations.events), 'box')}"
    )
    if run.sources.unlabelled:
        n_unlabelled = sum(map(len, run.sources.unlabelled))
        sound_s = sum(float(d.recordings["duration_s"].sum()) for d in run.sources.unlabelled)
        run.say(f"scan: {n_unlabelled:,} unlabelled recordings, {format_duration(sound_s)}")
    parts = ", ".join(f"{name} {len(run.parts[name]):,}" for name in parts_in_order(run.parts))
    run.say(f"scan: labelled chunks of {run.recipe.front_end.chunk_s:g} s by part: {parts}")
    if run.unused.boxes:
        run.say(f"scan: {run.unused.sentence}")
    if default_split_of(labelled).fractions == NO_TEST:
        run.say(f"scan: no test part: fewer than {MIN_BOXES_TO_TEST} boxes are too few for one")
    inputs = {f"dataset {i}": dataset_fingerprint(d) for i, (_, d) in enumerate(run.sources.everything)}

    def work() -> dict[str, Any]:
        if run.machine.is_main:
            write_listing(run.sources, run.out / "scan")
            write_table(run.out / "scan" / PART_LIST, list_parts(labelled, run.parts))
        return {}

    run.do("scan", {**inputs, **run.sound}, (run.out / "scan" / "recordings.csv",), work)


def calibrate(run: FitRun) -> None:
    """Copy the recommended detector to ``best``, the model to use, with calibrated scores."""
    chosen, model = run.recommended, run.out / "best"

    def work() -> dict[str, Any]:
        if run.machine.is_main:
            replace_folder(run.detectors[chosen], model)
            if not load_card(model).calibration:  # a finished run has calibrated its own
                run.calibrate(model)
        run.machine.accelerator.wait_for_everyone()
        card = load_card(model)
        stored = card.calibration
        assert stored is not None
        seen = float(stored.calibration.apply(card.thresholds["score"]))
        before = load_card(run.detectors[START]).calibration if START in run.detectors else None
        as_is = before is not None and stored.calibration == before.calibration
        origin = (
            "from the starting model"
            if as_is
            else f"from {counted(stored.n_recordings, 'validation recording')}"
        )
        run.say(f"calibrate: method {stored.calibration.method}, {origin}; threshold {seen:.2f}")
        return {"method": stored.calibration.method, "threshold": seen}

    products = (model / "model.safetensors", model / "model.json")
    run.do("calibrate", run.upstream(run.made_by[chosen]), products, work)


def evaluate(run: FitRun, resamples: int) -> dict[str, Any]:
    """How good every detector is on every part but train; returns ``metrics.json``."""
    path, detectors = run.out / "metrics.json", run.detectors
    names = list(detectors)
    before = {HABIT: START, TRAINED: START, SELF_TRAINED: run.teacher}
    pairs = [(before[name], name) for name in names if before.get(name) in detectors]

    def work() -> dict[str, Any]:
        if not run.machine.is_main:
            return {}
        parts = {name: chunks for name, chunks in run.parts.items() if name != "train"}
        measured = ", ".join(NAMES[name] for name in names)
        run.say(f"evaluate: detectors {measured}; parts {', '.join(parts_in_order(parts))}")
        with run.bar("evaluate") as progress:
            found = measure_detectors(
                detectors,
                parts,
                run.out / "evaluate",
                run.recipe,
                run.machine,
                resamples=resamples,
                seed=run.seed,
                pairs=pairs,
                progress=progress,
            )
        tallies = run.tallies or {
            name: tally_of(PartTables.load(run.out / "evaluate" / name, "val")) for name in names
        }
        found |= {
            "validation_f1": {name: own.f1 for name, own in tallies.items()},
            "validation_counts": {name: own.as_lists() for name, own in tallies.items()},
            "learnt_from": run.learnt._asdict(),
            "recommended": run.recommended,
        }
        write_json(path, found)
        return {}

    inputs = {
        **run.upstream("calibrate"),
        **run.labels,
        "resamples": resamples,
        "counted": "by recording, and learnt",
    }
    for name in names:
        inputs |= run.upstream(run.made_by[name])
    run.do("evaluate", inputs, (path, run.out / "evaluate"), work)
    metrics: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return metrics


def report(run: FitRun, examples: int) -> Path:
    """Write the page about the whole run."""
    path = run.out / "report.html"
    facts = {f"dataset {i}": dataset_fingerprint(d) for i, (_, d) in enumerate(run.sources.everything)}
    inputs = {**run.upstream("evaluate"), **facts, **run.sound, "mast": __version__, "examples": examples}

    def work() -> dict[str, Any]:
        if run.machine.is_main:
            write_fit_report(
                run.out,
                path,
                run.sources.labelled,
                run.sources.unlabelled,
                run.recipe,
                unused=run.unused,
                seed=run.seed,
                examples=examples,
            )
            run.say(f"report: {path}")
        return {}

    run.do("report", inputs, (path,), work)
    return path
