"""The pseudo-label operator Π_q: a detector's confident, valid boxes on unlabelled chunks.

    Π_q(S) = { b ∈ NMS_η(B̂(S)) : s(b) ≥ q(S) ∧ v(b) }

Pseudo-labels are an ordinary event table with ``source = "pseudo-<round>"``; other columns keep the cells and the
chunk each box was found in, so that a stage trains on exactly what was found, the folder of its recording, the
threshold q(S), and whether the box is ``sure``, that is in Π_q. One that is not may still be a call. The paper takes it
for background; with ``selftrain.doubtful`` such boxes are kept in the table, and a stage learns nothing from them.
Then the notes of a song are doubtful, too: a detector that does not know the song finds its notes one by one, and a
student that learnt them as calls would find more of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from mast.annotations.songs import song_numbers
from mast.arrays import BoolArray, FloatArray, IntArray
from mast.events import BOX_COLUMNS, as_events
from mast.files import write_atomic
from mast.grid import FrontEnd, grid_to_events
from mast.runs import Progress
from mast.selftrain.policy import Trust, recording_thresholds
from mast.training.chosen_chunks import Chunks, ordered_batches
from mast.training.chunk_scores import BoxFinder
from mast.training.recipe import SelfTrainRecipe

CELLS = ["t1", "f1", "t2", "f2"]
UNLABELLED = "unlabelled.parquet"  # in a round's folder: the chunks that its pseudo-labels come from
_IN_A_ROW_FRAMES, _SAME_BAND = 20, 0.6  # longest gap in a row, and minimum overlap of the bands; our choice


def is_valid(
    boxes: Tensor, *, chunk_frames: int, min_frames: float, min_bins: float, border_frames: int
) -> Tensor:
    """v(b): long and high enough, and more than a remnant at the chunk's edge; (K, 4) → (K,) bool.

    A call cut by the edge is seen whole in the neighbouring chunk, which overlaps by half.
    """
    extent = boxes[:, 2:] - boxes[:, :2]
    large = (extent[:, 0] >= min_frames) & (extent[:, 1] >= min_bins)
    remnant = (boxes[:, 2] <= border_frames) | (boxes[:, 0] >= chunk_frames - border_frames)
    return large & ~remnant


def smallest_box(boxes: Sequence[Tensor]) -> tuple[float, float]:
    """The frames and bins that 99 in 100 of the expert's boxes have at least; 1 and 1 without boxes.

    A fixed minimum length would teach the student that every shorter call is background: with 100 ms, it found 12 in
    100 of the calls shorter than that, where its teacher had found 33.
    """
    extents = torch.cat([torch.empty(0, 2), *((own[:, 2:] - own[:, :2]).float() for own in boxes)])
    if not len(extents):
        return 1.0, 1.0
    frames, bins = extents.quantile(0.01, dim=0).tolist()
    return frames, bins


def boxes_in_a_row(boxes: FloatArray) -> IntArray:
    """The length of the row that each box of a chunk stands in: boxes close together in one band; (K, 4) → (K,)."""
    row = song_numbers(boxes, _IN_A_ROW_FRAMES, _SAME_BAND)
    return np.asarray(np.bincount(row)[row], dtype=np.int64)


def max_row_length(boxes: Sequence[Tensor]) -> int:
    """The length of row that 98 in 100 of the expert's boxes do not exceed, at least 3.

    Rows are short where the expert draws one box around a song.
    """
    rows = [boxes_in_a_row(own.double().cpu().numpy()) for own in boxes if len(own)]
    return max(3, int(np.quantile(np.concatenate(rows), 0.98))) if rows else 3


def pseudo_label(
    model: BoxFinder,
    chunks: Chunks,
    recipe: SelfTrainRecipe,
    *,
    threshold: float,
    source: str,
    batch_size: int = 8,
    workers: int = 0,
    progress: Progress | None = None,
) -> pd.DataFrame:
    """Π_q of every chunk, as an event table followed by the columns ``root, chunk, chunk_start_s, t1, f1, t2, f2, sure,
    threshold``; with ``recipe.doubtful`` also boxes that score less, those that are not valid, and those that may be
    notes of a song.

    Args:
        model: the detector of the round before, or several.
        chunks: unlabelled chunks.
        recipe: η, the validity predicate and what is doubtful, in numbers.
        threshold: q.
        source: the column ``source`` of the events.
        batch_size: chunks at a time.
        workers: decoding processes.
        progress: called with chunks done, chunks in all and a short text.
    """
    front_end = model.front_end
    frames = front_end.chunk_frames
    assert recipe.min_frames is not None
    assert recipe.min_bins is not None
    lowest = threshold if recipe.doubtful is None else min(threshold, recipe.doubtful)
    by_chunk: list[_Found] = []
    for batch in ordered_batches(chunks, batch_size=batch_size, workers=workers):
        found = model.detect(batch.waveforms, score_threshold=lowest, nms_iou=recipe.nms_iou)
        for boxes, scores in found:
            valid = is_valid(
                boxes,
                chunk_frames=frames,
                min_frames=recipe.min_frames,
                min_bins=recipe.min_bins,
                border_frames=recipe.border_frames,
            )
            cells, strength = boxes.double().cpu().numpy(), scores.double().cpu().numpy()
            sure = valid.cpu().numpy() & (strength >= threshold)
            if recipe.doubtful is not None and sure.any():
                sure[sure] = boxes_in_a_row(cells[sure]) <= (recipe.most_in_a_row or np.inf)
            by_chunk.append(_Found(cells, strength, sure))
        if progress:
            progress(len(by_chunk), len(chunks), "chunks, looking for pseudo-boxes")
    events = as_events(_table(by_chunk, chunks.table, front_end))
    return _drop_unwanted_doubt(events.assign(source=source, threshold=threshold), recipe)


def _drop_unwanted_doubt(events: pd.DataFrame, recipe: SelfTrainRecipe) -> pd.DataFrame:
    """The boxes that are sure, and the others where the recipe wants them."""
    return events if recipe.doubtful is not None else events[events["sure"]].reset_index(drop=True)


def sure_pseudo_labels(path: Path) -> pd.DataFrame:
    """Π_q as a round wrote it, without the doubtful boxes."""
    events = pd.read_parquet(path)
    return events[events["sure"]].reset_index(drop=True) if "sure" in events else events


def keep_trusted(
    events: pd.DataFrame, trust: Trust, recipe: SelfTrainRecipe, *, max_threshold: float
) -> pd.DataFrame:
    """Raise the threshold of an event table of :func:`pseudo_label` recording by recording; see ``policy.py``.

    Boxes that score less do not affect NMS, so what is left is Π_q with the higher threshold.

    Args:
        events: boxes at or above q.
        trust: what validation says about such boxes.
        recipe: whether boxes below the threshold are kept as doubtful ones.
        max_threshold: the model's own threshold, above which nothing is dropped.
    """
    sure = events[events["sure"]]
    if sure.empty:
        return events
    min_threshold = float(sure["threshold"].iloc[0])
    scores = sure["score"].to_numpy(dtype=np.float64)
    thresholds = recording_thresholds(
        scores,
        trust.calibration.apply(scores),
        sure.groupby(["root", "recording"]).ngroup(),
        min_threshold=min_threshold,
        max_threshold=max(min_threshold, max_threshold),
        precision=trust.precision,
    )
    raised = events.copy()
    raised.loc[sure.index, "threshold"] = thresholds
    raised.loc[sure.index, "sure"] = scores >= thresholds
    return _drop_unwanted_doubt(raised, recipe)


class _Found(NamedTuple):
    """What was found in one chunk."""

    cells: FloatArray  # (K, 4)
    scores: FloatArray  # (K,)
    sure: BoolArray  # (K,)


def _table(by_chunk: Sequence[_Found], chunks: pd.DataFrame, front_end: FrontEnd) -> pd.DataFrame:
    """What was found in the first of these chunks, one row for each box. A table for each chunk would take longer."""
    nothing = _Found(np.empty((0, 4)), np.empty(0), np.empty(0, dtype=bool))
    cells, scores, sure = (np.concatenate(column) for column in zip(nothing, *by_chunk, strict=True))
    number = np.repeat(np.arange(len(by_chunk)), [len(own.scores) for own in by_chunk])
    start_s = chunks["start_s"].to_numpy(dtype=np.float64)[number]
    texts = {
        name: chunks[name].astype(str).to_numpy(object)[number] for name in ("recording", "site", "root")
    }
    boxes = pd.DataFrame(grid_to_events(cells, front_end, chunk_start_s=start_s), columns=BOX_COLUMNS)
    return boxes.assign(
        recording=texts["recording"],
        site=texts["site"],
        score=scores,
        root=texts["root"],
        chunk=number,
        chunk_start_s=start_s,
        **{name: cells[:, i] for i, name in enumerate(CELLS)},
        sure=sure,
    )


class PseudoLabels(NamedTuple):
    """Boxes and weights of every chunk, as a stage trains on them."""

    boxes: list[FloatArray]  # (M, 4) cells each
    sure: list[BoolArray]  # (M,) each
    weights: list[float]


def labels_by_chunk(events: pd.DataFrame, n_chunks: int, recipe: SelfTrainRecipe) -> PseudoLabels:
    """An event table of :func:`pseudo_label` → each chunk's boxes and its weight ḡ(S), the mean score of the sure ones.

    A chunk without sure boxes has no mean: it is background, with a small weight (docs/paper_notes.md 11).
    """
    boxes: list[FloatArray] = [np.empty((0, 4))] * n_chunks
    sure: list[BoolArray] = [np.empty(0, dtype=bool)] * n_chunks
    weights = [recipe.empty_weight] * n_chunks
    for _, own in events.groupby("chunk"):
        number = int(own["chunk"].iloc[0])
        boxes[number] = own[CELLS].to_numpy(dtype=np.float64)
        sure[number] = own["sure"].to_numpy(dtype=bool)
        if sure[number].any():
            mean = float(own["score"][own["sure"]].mean())
            weights[number] = mean if recipe.confidence_weighting else 1.0
    return PseudoLabels(boxes, sure, weights)


def save_events(events: pd.DataFrame, path: Path) -> None:
    """Write an event table, whole or not at all."""
    write_atomic(path, events.to_parquet(index=False))
