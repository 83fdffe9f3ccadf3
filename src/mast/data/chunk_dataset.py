"""Chunks as torch examples: sound read by seeking, boxes in cells, batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from mast.arrays import BoolArray, FloatArray, IntArray
from mast.audio import centre_and_pad, read
from mast.data.chunks import chunk_boxes
from mast.data.recordings import Dataset
from mast.errors import ConfigError
from mast.grid import FrontEnd


class Example(NamedTuple):
    """One chunk."""

    waveform: Tensor  # (chunk_samples,) float32, mean-centred, zero-padded
    boxes: Tensor  # (M, 4) float32 cells
    sure: Tensor  # (M,) bool: which are calls; pseudo-labels may be doubtful
    weight: float
    row: int  # in the table of chunks


class Batch(NamedTuple):
    """Several chunks. Few tensors, however many chunks: sending each one from a worker process takes time."""

    waveforms: Tensor  # (B, chunk_samples) float32
    all_boxes: Tensor  # (N, 4) float32 cells, chunk after chunk
    all_sure: Tensor  # (N,) bool
    counts: tuple[int, ...]  # boxes of each chunk
    weights: Tensor  # (B,) float32
    rows: Tensor  # (B,) in the table of chunks

    @property
    def boxes(self) -> list[Tensor]:
        """B × (M, 4) the boxes of each chunk."""
        return list(torch.split(self.all_boxes, list(self.counts)))

    @property
    def sure(self) -> list[Tensor]:
        """B × (M,) which of them are calls; the others are doubtful."""
        return list(torch.split(self.all_sure, list(self.counts)))


class ChunkDataset(torch.utils.data.Dataset[Example]):
    """Labelled chunks by number, read from disk when requested (by worker processes, with a DataLoader).

    Args:
        dataset: recordings and boxes.
        chunks: rows of :func:`chunk_table`, all labelled (or with ``boxes`` given, as for pseudo-labels).
        front_end: sample rate, length, grid.
        boxes: (M, 4) cells of each chunk; from the dataset's events by default.
        sure: (M,) which of them are calls; the others are doubtful, and count neither as calls nor as background. All
            are calls by default.
        weights: weight of each chunk in the loss; 1 by default.

    Raises:
        ConfigError: ``boxes`` are not given, and nobody listened to all of a chunk.
    """

    def __init__(
        self,
        dataset: Dataset,
        chunks: pd.DataFrame,
        front_end: FrontEnd,
        *,
        boxes: Sequence[IntArray] | Sequence[FloatArray] | None = None,
        sure: Sequence[BoolArray] | None = None,
        weights: Sequence[float] | None = None,
    ) -> None:
        if boxes is None:
            unheard = chunks.loc[~chunks["labelled"].astype(bool), ["recording", "start_s"]]
            if len(unheard):
                first, first_s = str(unheard["recording"].iloc[0]), float(unheard["start_s"].iloc[0])
                raise ConfigError(
                    f"chunks: {len(unheard)} of {len(chunks)} were not listened to from end to end, the "
                    f"first at {first_s:g} s of {first}; unlabelled is not empty, "
                    "so keep rows with labelled = true only"
                )
            boxes = chunk_boxes(dataset, chunks, front_end)
        self.front_end = front_end
        self.boxes = [torch.from_numpy(np.asarray(b, dtype=np.float32).reshape(-1, 4)) for b in boxes]
        if sure is None:
            self.sure = [torch.ones(len(b), dtype=torch.bool) for b in self.boxes]
        else:
            self.sure = [torch.tensor(own, dtype=torch.bool) for own in sure]
        self.weights = np.ones(len(chunks)) if weights is None else np.asarray(weights, dtype=np.float64)
        assert len(self.boxes) == len(self.weights) == len(chunks)
        # of the recordings in the chunks
        self.paths = {str(name): dataset.path(name) for name in chunks["recording"].unique()}
        self._paths = [self.paths[str(name)] for name in chunks["recording"]]
        self._starts = chunks["start_s"].to_numpy(dtype=np.float64)

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, row: int) -> Example:
        return Example(self._waveform(row), self.boxes[row], self.sure[row], float(self.weights[row]), row)

    def _waveform(self, row: int) -> Tensor:
        """The sound of a chunk as :func:`mast.audio.windows` would give it."""
        start_s = float(self._starts[row])
        sound = read(
            self._paths[row],
            start_s=start_s,
            end_s=start_s + self.front_end.chunk_s,
            sample_rate=self.front_end.sample_rate,
        )[: self.front_end.chunk_samples]
        return torch.from_numpy(centre_and_pad(sound, self.front_end.chunk_samples))


def collate(examples: Sequence[Example]) -> Batch:
    """Chunks → a batch."""
    return Batch(
        torch.stack([e.waveform for e in examples]),
        torch.cat([e.boxes for e in examples]),
        torch.cat([e.sure for e in examples]),
        tuple(len(e.boxes) for e in examples),
        torch.tensor([e.weight for e in examples], dtype=torch.float32),
        torch.tensor([e.row for e in examples], dtype=torch.long),
    )
