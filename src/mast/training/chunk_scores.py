"""A detector on chunks with known boxes: the numbers that training shows and chooses by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import pandas as pd
from torch import Tensor

from mast.annotations.redraw import redraw_events
from mast.arrays import FloatArray
from mast.evaluation.part_tables import PartTables
from mast.evaluation.threshold import steady_threshold_of
from mast.events import BOX_COLUMNS, as_events
from mast.grid import FrontEnd, grid_to_events
from mast.models.card import ModelCard
from mast.models.decode import Detections
from mast.training.chosen_chunks import Chunks, ordered_batches
from mast.training.machine import Machine
from mast.training.recipe import TrainRecipe


class BoxFinder(Protocol):
    """What finds boxes in chunks: a detector, or several as one."""

    @property
    def card(self) -> ModelCard:
        """How its boxes are redrawn, and their minimum score."""

    @property
    def front_end(self) -> FrontEnd:
        """Band and chunks."""

    def detect(
        self, sound: Tensor, *, score_threshold: float, nms_iou: float | None = None
    ) -> list[Detections]:
        """Boxes in each chunk of sound, best first."""


def detect_chunks(
    model: BoxFinder,
    chunks: Chunks,
    *,
    batch_size: int = 8,
    workers: int = 0,
    score_threshold: float = 0.05,
    nms_iou: float | None = None,
) -> PartTables:
    """Truth and detections of labelled chunks that do not overlap, drawn by the model's habit where it has one.

    Args:
        model: a detector.
        chunks: labelled, end to end.
        batch_size: chunks at a time.
        workers: decoding processes.
        score_threshold: minimum score, on the model's own scale.
        nms_iou: the model's by default.
    """
    front_end = model.front_end
    truth: list[FloatArray] = []  # (M, 4) cells of each chunk
    found: list[FloatArray] = []
    scores: list[FloatArray] = []
    for batch in ordered_batches(chunks, batch_size=batch_size, workers=workers):
        detections = model.detect(batch.waveforms, score_threshold=score_threshold, nms_iou=nms_iou)
        truth += [boxes.double().numpy() for boxes in batch.boxes]
        found += [detected.boxes.double().cpu().numpy() for detected in detections]
        scores += [detected.scores.double().cpu().numpy() for detected in detections]
    events = _events(found, chunks, front_end).assign(score=np.concatenate(scores), source="detector")
    card = model.card
    if card.habit is not None:
        own = card.thresholds.get("score", 0.0)
        events = redraw_events(events, card.habit, front_end, chunks.path_of, threshold=own)
    spans = chunks.table.assign(end_s=chunks.table["start_s"] + front_end.chunk_s).groupby("recording")
    return PartTables(
        _events(truth, chunks, front_end),
        events,
        spans.agg(start_s=("start_s", "min"), end_s=("end_s", "max")).reset_index(),
        front_end,
    )


def detect_by_plan(
    model: BoxFinder,
    chunks: Chunks,
    plan: TrainRecipe,
    machine: Machine,
    *,
    score_threshold: float | None = None,
    nms_iou: float | None = None,
) -> PartTables:
    """:func:`detect_chunks` with batches that suit the machine, down to the lowest score that the plan considers."""
    return detect_chunks(
        model,
        chunks,
        batch_size=machine.eval_batch(plan.batch_size),
        workers=machine.workers,
        score_threshold=plan.score_threshold if score_threshold is None else score_threshold,
        nms_iou=nms_iou,
    )


def _events(cells: Sequence[FloatArray], chunks: Chunks, front_end: FrontEnd) -> pd.DataFrame:
    """Boxes in the cells of each chunk → events of its recording."""
    rows = np.repeat(np.arange(len(cells)), [len(own) for own in cells])
    start_s = chunks.table["start_s"].to_numpy(dtype=np.float64)[rows]
    boxes = grid_to_events(np.concatenate(cells), front_end, chunk_start_s=start_s)
    recording = chunks.table["recording"].astype(str).to_numpy()[rows]
    return as_events(pd.DataFrame(boxes, columns=BOX_COLUMNS).assign(recording=recording))


def chunk_metrics(part: PartTables) -> dict[str, float]:
    """F1 at a threshold chosen on these very chunks (they are the validation set), AP and mIoU."""
    if part.truth.empty or part.found.empty:
        return {"f1": 0.0, "precision": 0.0, "recall": 0.0, "threshold": 0.5, "ap50": 0.0, "miou": 0.0}
    threshold = steady_threshold_of(part.match()).value
    found = replace(part, threshold=threshold).evaluate().metrics
    keys = ("f1", "precision", "recall", "ap50", "miou")
    return {key: found[key] if np.isfinite(found[key]) else 0.0 for key in keys} | {"threshold": threshold}
