"""The encoder's embeddings of boxes that are already known.

If possible, a box is embedded from a window that holds all of it: of the windows that detection would use, the one in
which it lies farthest from the edges. A box that all of them cut gets its own window around its middle.
Only windows that are needed are read, so a few boxes in a day-long recording cost little.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from mast.arrays import BoolArray, FloatArray, IntArray, Vectors
from mast.audio import centre_and_pad, probe, read
from mast.grid import FrontEnd
from mast.inference import Detector


class WindowPlan(NamedTuple):
    """Which windows to look at, and in which of them each box is embedded."""

    starts_s: FloatArray  # (W,) ascending
    window: IntArray  # (M,) of each box


class BoxVectors(NamedTuple):
    """Embeddings of boxes, row by row; rows of boxes that cannot be seen are NaN."""

    vectors: Vectors  # (M, width), see mast.models.box_vectors
    projections: Vectors | None  # (M, P), length one; None where the model has no contrastive head
    seen: BoolArray  # (M,) inside the recording and the front end's band


class WindowBatch(NamedTuple):
    """Some windows as the model takes them, with the boxes to embed in each."""

    spectrograms: Tensor  # (B, 1, T, F) on the model's device
    cells: list[FloatArray]  # B × (M_i, 4) in cells of the window
    rows: list[IntArray]  # B × (M_i,) rows among the boxes given


class BoxEmbedder:
    """The encoder of a trained detector, for boxes that come from anywhere.

    Args:
        detector: a MAST detector.

    Raises:
        MastError: it is a baseline, which has no such encoder.
    """

    def __init__(self, detector: Detector) -> None:
        self._loaded_model = (
            detector.loaded_model
        )  # the weights are the detector's: they are not loaded twice
        self._model = self._loaded_model.mast_detector
        self._detector = detector

    @property
    def front_end(self) -> FrontEnd:
        """What the encoder looks at."""
        return self._detector.card.front_end

    @property
    def model_id(self) -> str:
        """As in the column ``model`` of its detections."""
        return self._detector.model_id

    @property
    def width(self) -> int:
        """Of a box's vector: the encoder's features and the box's look."""
        return self._model.embedding_width

    @property
    def chunk_width(self) -> int:
        """Of a window's vector: D."""
        return self._model.config.encoder.width

    @property
    def projection_width(self) -> int:
        """Of the contrastive projection; 0 where the model has none."""
        return self._model.projection_width

    def embed_boxes(self, path: str | Path, boxes: ArrayLike) -> BoxVectors:
        """Embed boxes of one recording.

        Args:
            path: the recording.
            boxes: (M, 4) rows ``start_s, low_hz, end_s, high_hz``.

        Raises:
            AudioError: the recording cannot be read.
        """
        given = np.asarray(boxes, dtype=np.float64).reshape(-1, 4)
        vectors = np.full((len(given), self.width), np.nan, dtype=np.float32)
        projections = np.full((len(given), self.projection_width), np.nan, dtype=np.float32)
        seen = np.zeros(len(given), dtype=bool)
        for batch in self.iter_windows(path, given):
            pooled, projected = self._embed(batch)
            rows = np.concatenate(batch.rows)
            vectors[rows], seen[rows] = pooled, True
            if projected is not None:
                projections[rows] = projected
        return BoxVectors(vectors, projections if self.projection_width else None, seen)

    def iter_windows(self, path: str | Path, boxes: ArrayLike) -> Iterator[WindowBatch]:
        """The windows that boxes of a recording are embedded from, a batch at a time; unseen boxes are in none.

        Raises:
            AudioError: the recording cannot be read.
        """
        given = np.asarray(boxes, dtype=np.float64).reshape(-1, 4)
        front_end = self.front_end
        duration_s = probe(path).duration_s
        visible = np.flatnonzero(_visible(given, front_end, duration_s))
        plan = plan_windows(
            given[visible][:, [0, 2]],
            duration_s,
            front_end.chunk_s,
            self._detector.options.hop * front_end.chunk_s,
        )
        size = self._detector.network.batch_size
        for first in range(0, len(plan.starts_s), size):
            sounds, cells, rows = [], [], []
            for at in range(first, min(first + size, len(plan.starts_s))):
                start = round(plan.starts_s[at] * front_end.sample_rate) / front_end.sample_rate
                sound = read(
                    path, start_s=start, end_s=start + front_end.chunk_s, sample_rate=front_end.sample_rate
                )
                mine = visible[plan.window == at]
                # a header may promise more sound than there is
                mine = mine[given[mine, 0] - start < len(sound) / front_end.sample_rate]
                sounds.append(centre_and_pad(sound, front_end.chunk_samples))
                cells.append(_cells(given[mine], start, front_end))
                rows.append(mine)
            yield WindowBatch(self._spectrograms(np.stack(sounds)), cells, rows)

    @torch.inference_mode()
    def _spectrograms(self, sounds: Vectors) -> Tensor:
        """(B, samples) → (B, 1, T, F), normalised."""
        return self._loaded_model.spectrograms(torch.from_numpy(sounds))

    @torch.inference_mode()
    def _embed(self, batch: WindowBatch) -> tuple[Vectors, Vectors | None]:
        """(M, D) and (M, P) of all boxes of some windows."""
        boxes = [torch.from_numpy(cells).float() for cells in batch.cells]
        tokens = self._loaded_model.tokens(batch.spectrograms)
        projected = self._loaded_model.project(tokens, batch.spectrograms, boxes)
        return (
            _concatenate(self._loaded_model.embed(tokens, batch.spectrograms, boxes)),
            None if projected is None else _concatenate(projected),
        )


def plan_windows(spans: ArrayLike, duration_s: float, chunk_s: float, hop_s: float) -> WindowPlan:
    """Choose a window for each box; see the module docstring.

    Args:
        spans: (M, 2) start and end of each box, in seconds.
        duration_s: of the recording.
        chunk_s: of a window.
        hop_s: from window to window in detection.

    >>> plan_windows([[1, 2], [9, 11], [11, 14]], 60, 10, 10).starts_s.tolist()
    [0.0, 5.0, 10.0]
    """
    given = np.asarray(spans, dtype=np.float64).reshape(-1, 2)
    last = max(0, math.ceil((duration_s - chunk_s) / hop_s - 1e-9))  # the first window that reaches the end
    middle = given.mean(axis=1)
    ideal = (middle - chunk_s / 2) / hop_s
    near = np.stack([np.floor(ideal), np.ceil(ideal)]).clip(0, last) * hop_s  # (2, M) starts
    margin = np.minimum(given[:, 0] - near, near + chunk_s - given[:, 1])
    best = margin.argmax(axis=0)
    pick = np.arange(len(given))
    # a box that all windows cut gets its own, inside the recording
    own = (middle - chunk_s / 2).clip(0, max(0.0, duration_s - chunk_s))
    starts = np.where(margin[best, pick] >= -1e-9, near[best, pick], own)
    unique, window = np.unique(starts, return_inverse=True)
    return WindowPlan(unique, window.reshape(-1).astype(np.int64))


def _visible(boxes: FloatArray, front_end: FrontEnd, duration_s: float) -> BoolArray:
    """Which boxes touch both the recording and the band."""
    in_time = (boxes[:, 0] < duration_s) & (boxes[:, 2] > 0) & (boxes[:, 2] >= boxes[:, 0])
    in_band = (boxes[:, 1] < front_end.high_hz) & (boxes[:, 3] > front_end.low_hz)
    return np.asarray(np.isfinite(boxes).all(axis=1) & in_time & in_band)


def _cells(boxes: FloatArray, start_s: float, front_end: FrontEnd) -> FloatArray:
    """Boxes in cells of the window that begins at ``start_s``, cut to it; at least one cell each way."""
    time = ((boxes[:, 0::2] - start_s) / front_end.hop_s).clip(0, front_end.chunk_frames)
    band = front_end.hz_to_bins(np.maximum(boxes[:, 1::2], 0.0)).clip(0, front_end.n_bins)
    for edges, size in ((time, front_end.chunk_frames), (band, front_end.n_bins)):
        short = edges[:, 1] - edges[:, 0] < 1
        low = (edges[short].mean(axis=1) - 0.5).clip(0, size - 1)
        edges[short] = np.stack([low, low + 1], axis=1)
    return np.stack([time[:, 0], band[:, 0], time[:, 1], band[:, 1]], axis=1)


def _concatenate(values: list[Tensor]) -> Vectors:
    """B times (M_i, C) → the rows of all boxes, one window after the other."""
    return np.asarray(torch.cat(values).cpu().numpy(), dtype=np.float32)
