"""A detector on chunks with known boxes: the numbers that training shows and chooses by."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import nn

from mast.evaluation import Outcome, Scoring, best_threshold, build_scene, evaluate, match_scene
from mast.events import BOX_COLUMNS, FloatArray, as_events
from mast.models.interface import BoxDetector
from mast.training.sources import Chunks, in_order
from mast.training.spectrograms import FrontEndPipeline


class Measured(NamedTuple):
    """Boxes of some chunks in cells, by recording: truth, what was detected, and what was listened to."""

    truth: pd.DataFrame
    predictions: pd.DataFrame
    reviewed: pd.DataFrame


@torch.no_grad()
def detect_chunks(
    model: nn.Module,
    chunks: Chunks,
    pipeline: FrontEndPipeline,
    *,
    batch_size: int = 8,
    workers: int = 0,
    score_threshold: float = 0.05,
    nms_iou: float = 0.5,
) -> Measured:
    """Truth and detections of labelled chunks that do not overlap.

    Cells stand in the columns for seconds and hertz, counted in frames from the recording's start. Scored in the
    space ``"hz"``, which takes coordinates as they are, that is the overlap on the grid the detector works on.
    """
    assert isinstance(model, BoxDetector)
    hop_s = pipeline.log_mel.front_end.hop_s
    first_frame = np.rint(chunks.table["start_s"].to_numpy(dtype=np.float64) / hop_s)
    recording = chunks.table["recording"].astype(str).tolist()
    truth: list[pd.DataFrame] = []
    found: list[pd.DataFrame] = []
    for batch in in_order(chunks, batch_size=batch_size, workers=workers):
        seen = pipeline(batch)
        detections = model.detect(seen.spectrograms, score_threshold=score_threshold, nms_iou=nms_iou)
        for boxes, detected in zip(batch.boxes, detections, strict=True):
            chunk = len(truth)
            shift = np.array([first_frame[chunk], 0, first_frame[chunk], 0])
            truth.append(_rows(recording[chunk], boxes.numpy() + shift))
            rows = _rows(recording[chunk], detected.boxes.float().cpu().numpy() + shift)
            found.append(rows.assign(score=detected.scores.float().cpu().numpy()))
    reviewed = pd.DataFrame({"recording": sorted(set(recording)), "start_s": 0.0, "end_s": np.inf})
    return Measured(as_events(pd.concat(truth)), as_events(pd.concat(found)), reviewed)


def _rows(name: str, boxes: FloatArray) -> pd.DataFrame:
    return pd.DataFrame(boxes.reshape(-1, 4), columns=BOX_COLUMNS).assign(recording=name)


def match_chunks(measured: Measured) -> Outcome:
    """Which detections are right, on the grid the detector works on."""
    truth, predictions, reviewed = measured
    return match_scene(build_scene(truth, predictions, reviewed=reviewed, scoring=Scoring(space="hz")))


def chunk_metrics(measured: Measured) -> dict[str, float]:
    """F1 at the threshold that is best on these very chunks (they are the validation set), AP and mIoU."""
    if measured.truth.empty or measured.predictions.empty:
        return {"f1": 0.0, "precision": 0.0, "recall": 0.0, "threshold": 0.5, "ap50": 0.0, "miou": 0.0}
    scoring = Scoring(space="hz")
    truth, predictions, reviewed = measured
    threshold = best_threshold(truth, predictions, reviewed=reviewed, scoring=scoring)
    found = evaluate(
        truth, predictions, reviewed=reviewed, scoring=scoring, threshold=threshold.value, resamples=0
    ).metrics
    keys = ("f1", "precision", "recall", "ap50", "miou")
    return {key: found[key] if np.isfinite(found[key]) else 0.0 for key in keys} | {
        "threshold": threshold.value
    }
