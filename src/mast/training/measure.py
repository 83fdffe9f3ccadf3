"""A detector on chunks with known boxes: the numbers that training shows and chooses by."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd
import torch
from torch import nn

from mast.data.chunk_dataset import Batch
from mast.evaluation import Scoring, best_threshold, evaluate
from mast.events import BOX_COLUMNS, as_events
from mast.models.detector import MastDetector
from mast.training.spectrograms import FrontEndPipeline


@torch.no_grad()
def detect_chunks(
    model: nn.Module,
    batches: Iterable[Batch],
    pipeline: FrontEndPipeline,
    *,
    score_threshold: float = 0.05,
    nms_iou: float = 0.5,
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Truth, predictions and reviewed spans of some chunks, in cells, each chunk as a recording of its own.

    Cells stand in the columns for seconds and hertz: scored in the space ``"hz"``, which takes coordinates as
    they are, this is the overlap on the grid that the detector was trained on.
    """
    assert isinstance(model, MastDetector)
    truth: list[pd.DataFrame] = []
    found: list[pd.DataFrame] = []
    names: list[str] = []
    for batch in batches:
        seen = pipeline(batch)
        detections = model.detect(seen.spectrograms, score_threshold=score_threshold, nms_iou=nms_iou)
        for boxes, detected in zip(batch.boxes, detections, strict=True):
            name = f"{len(names):07d}"
            names.append(name)
            truth.append(_rows(name, boxes.numpy()))
            cells = detected.boxes.float().cpu().numpy()
            found.append(_rows(name, cells).assign(score=detected.scores.float().cpu().numpy()))
    reviewed = pd.DataFrame({"recording": names, "start_s": 0.0, "end_s": np.inf})
    return as_events(pd.concat(truth)), as_events(pd.concat(found)), reviewed


def _rows(name: str, boxes: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> pd.DataFrame:
    return pd.DataFrame(boxes.reshape(-1, 4).astype(np.float64), columns=BOX_COLUMNS).assign(recording=name)


def chunk_metrics(truth: pd.DataFrame, predictions: pd.DataFrame, reviewed: pd.DataFrame) -> dict[str, float]:
    """F1 at the threshold that is best on these very chunks (they are the validation set), AP and mIoU."""
    scoring = Scoring(space="hz")
    if truth.empty or predictions.empty:
        return {"f1": 0.0, "precision": 0.0, "recall": 0.0, "threshold": 0.5, "ap50": 0.0, "miou": 0.0}
    threshold = best_threshold(truth, predictions, reviewed=reviewed, scoring=scoring)
    found = evaluate(
        truth, predictions, reviewed=reviewed, scoring=scoring, threshold=threshold.value, resamples=0
    ).metrics
    keys = ("f1", "precision", "recall", "ap50", "miou")
    return {key: found[key] if np.isfinite(found[key]) else 0.0 for key in keys} | {
        "threshold": threshold.value
    }
