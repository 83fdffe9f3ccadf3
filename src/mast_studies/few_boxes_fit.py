"""`few_boxes.py --fit`: the result of `mast fit --init MODEL` with a few boxes, compared with the model as is.

If a set has a part ``train``, boxes are drawn from there, and its other parts are the test. Otherwise each recording is
the test in turn, and the boxes come from the others; the figures are over all recordings together. Everything goes
through :func:`mast.fit.pipeline.fit`, with the settings it chooses by itself. Its run folders stay in WORK, so that a
stopped study resumes, and another rule for what to recommend can be measured without training again.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mast.data.recordings import Dataset, load_dataset
from mast.evaluation.evidence import Tally, tally_of
from mast.evaluation.part_tables import PartTables
from mast.files import write_json
from mast.fit.pipeline import Fitted, fit
from mast.models.card import load_card
from mast.models.find import find_model
from mast.reports.fit_verdict import HABIT, START, TRAINED
from mast.runs import SILENT
from mast.training.recipe import load_recipe
from mast_studies.few_boxes_folder import reviewed_spans, sample_chunks_for_fit
from mast_studies.folds import write_parts
from mast_studies.record import TrainingRecord

PRESET = "tiny"  # used by `mast fit` when it starts from a detector


@dataclass(frozen=True)
class FitCell:
    """One fit: what it may draw boxes from, and what it is tested on."""

    learn: tuple[str, ...]
    tests: dict[str, str]  # the part of each recording to test on
    held_out: str  # the recording to test on, where each is the test in turn
    boxes: int
    seed: int

    @property
    def name(self) -> str:
        """Name of its folder."""
        return f"{self.boxes:04d}-{self.seed}{'-' + Path(self.held_out).stem if self.held_out else ''}"


def list_cells(dataset: Dataset, budgets: list[int], seeds: int) -> list[FitCell]:
    """All fits on a set, the smallest budget first."""
    table = dataset.recordings
    parts = dict(zip(table["file"].astype(str), table["split"].astype(str), strict=True))
    learn = tuple(name for name, part in parts.items() if part == "train")
    if learn:
        folds = [(learn, {name: part for name, part in parts.items() if part != "train"}, "")]
    else:
        folds = [
            (tuple(n for n in parts if n != held_out), {held_out: "test"}, held_out) for held_out in parts
        ]
    return [
        FitCell(*fold, boxes, seed) for boxes in sorted(budgets) for seed in range(seeds) for fold in folds
    ]


class FitStudy:
    """A labelled set, and the fits that are measured on it."""

    def __init__(self, folder: Path, options: argparse.Namespace, band_hz: float | None) -> None:
        self.dataset, self.name, self.band_hz = load_dataset(folder), folder.resolve().name, band_hz
        self.model, self.work = find_model(options.model), options.work / folder.resolve().name
        self.cells = list_cells(self.dataset, options.boxes, options.seeds)
        front_end = load_card(self.model).front_end
        self.chunk_s = (front_end if band_hz is None else front_end.at_band(band_hz)).chunk_s
        settings = {} if band_hz is None else {"band_hz": band_hz}
        self.recipe = load_recipe(PRESET, settings)

    def measure(self, cell: FitCell) -> dict[str, Any]:
        """The result of one fit, trained if need be."""
        folder = self.work / cell.name
        drawn = sample_chunks_for_fit(
            self.dataset.select(recordings=cell.learn), self.chunk_s, cell.boxes, seed=cell.seed
        )
        note = folder / "drawn.json"
        if not note.is_file():  # written after the data and before any training
            shutil.rmtree(folder, ignore_errors=True)
            parts = dict.fromkeys(drawn["recording"], "") | cell.tests
            heard = reviewed_spans(self.dataset, drawn, cell.tests)
            write_parts(self.dataset, heard, parts, folder / "data")
            write_json(note, {"boxes": int(drawn["boxes"].sum()), "chunks": len(drawn)})
        messages: list[str] = []
        fitted = fit(
            folder / "data",
            [],
            folder / "run",
            self.recipe,
            reporter=replace(SILENT, say=messages.append),
            init=self.model,
            fixed=(),
            seed=cell.seed,
            resamples=0,
            examples=0,
        )
        about: dict[str, Any] = json.loads(note.read_text(encoding="utf-8"))
        row = about | self._row(cell, fitted, folder / "run")
        print(f"{self.name} {cell.name}: {row['recommended']} of {row['validation_f1']}", flush=True)
        return row

    def _row(self, cell: FitCell, fitted: Fitted, run: Path) -> dict[str, Any]:
        """A fit's recommendation, and how many boxes each of its detectors got right in each part."""
        metrics = fitted.metrics
        return {
            "recommended": metrics["recommended"],
            "validation_boxes": sum(true for _, _, true in metrics["validation_counts"][START]),
            "validation_f1": metrics["validation_f1"],
            "parts": {
                part: {
                    name: _total_counts(tally_of(PartTables.load(run / "evaluate" / name, part)))
                    for name in metrics["detectors"]
                }
                for part in dict.fromkeys(cell.tests.values())
            },
        }

    def about(self) -> dict[str, Any]:
        """For the result file."""
        return {
            "recordings": len(self.dataset),
            "boxes": len(self.dataset.annotations.events),
            "band_hz": self.band_hz,
            "chunk_s": self.chunk_s,
            "test": "each recording in turn" if self.cells[0].held_out else "its other parts",
        }

    def training(self, cell: FitCell) -> TrainingRecord:
        """For the result file: where the trained detector of a fit comes from."""
        provenance = load_card(self.work / cell.name / "run" / "train" / "best").provenance
        name = f"{self.name}, {cell.boxes} boxes{', without ' + cell.held_out if cell.held_out else ''}"
        return TrainingRecord(name, cell.seed, provenance["commit"], provenance["recipe"])


def summarise_fits(cells: Sequence[FitCell], rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The results of the fits on one set, for each budget and each part to test on."""
    found: dict[str, Any] = {}
    for boxes in sorted({cell.boxes for cell in cells}):
        own = [(cell, row) for cell, row in zip(cells, rows, strict=True) if cell.boxes == boxes]
        fits = [row for _, row in own]
        found[f"{boxes} boxes"] = {
            "fits": len(fits),
            "boxes_used": [row["boxes"] for row in fits],
            "chunks_used": [row["chunks"] for row in fits],
            "recommended_before": _count_names(recommend_by_f1(row["validation_f1"]) for row in fits),
            "recommended": _count_names(row["recommended"] for row in fits),
            "validation_boxes": [row["validation_boxes"] for row in fits],
            "parts": {part: _summarise_part(own, part) for part in fits[0]["parts"]},
        }
    return found


def _summarise_part(own: Sequence[tuple[FitCell, dict[str, Any]]], part: str) -> dict[str, Any]:
    """F1 on one part, by seed; and every fit compared with the start."""
    ways: dict[str, Callable[[dict[str, Any]], str]] = {
        "start": lambda row: START,
        "before": lambda row: recommend_by_f1(row["validation_f1"]),
        "now": lambda row: str(row["recommended"]),
        "always trained": lambda row: TRAINED,
    }
    seeds = sorted({cell.seed for cell, _ in own})
    found: dict[str, Any] = {
        "boxes": sum(row["parts"][part][START][2] for cell, row in own if cell.seed == 0)
    }
    for way, chosen in ways.items():
        counts = {seed: [r["parts"][part][chosen(r)] for c, r in own if c.seed == seed] for seed in seeds}
        each = [_f1([row["parts"][part][chosen(row)]]) - _f1([row["parts"][part][START]]) for _, row in own]
        by_seed = [_f1(counts[seed]) for seed in seeds]
        found[way] = {
            "f1": round(float(np.mean(by_seed)), 4),
            "f1_by_seed": [round(value, 4) for value in by_seed],
            "fits_worse_than_the_start": sum(change < 0 for change in each),
            "fits_better_than_the_start": sum(change > 0 for change in each),
            "worst_change": round(min(each), 4),
            "best_change": round(max(each), 4),
        }
    return found


def _count_names(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items()))


def _total_counts(tally: Tally) -> list[int]:
    """Counts of right, found and true boxes over all recordings."""
    return [int(n) for n in tally.counts.sum(axis=0)]


def _f1(counts: list[list[int]]) -> float:
    return Tally.of(counts).f1 or 0.0


def recommend_by_f1(f1: dict[str, float | None]) -> str:
    """The earlier rule, for comparison: the higher F1 on validation wins, by however little."""

    def beats(name: str, other: str) -> bool:
        mine, theirs = f1.get(name), f1.get(other)
        return mine is not None and theirs is not None and mine > theirs

    start = HABIT if beats(HABIT, START) else START
    return TRAINED if beats(TRAINED, start) else start
