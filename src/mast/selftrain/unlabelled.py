"""The unlabelled sound that self-training hears, and the same chunks with what was found in them."""

from __future__ import annotations

import numpy as np
import pandas as pd
from torch.utils.data import ConcatDataset

from mast.arrays import IntArray
from mast.data.chunk_dataset import ChunkDataset
from mast.data.recordings import Dataset
from mast.grid import FrontEnd
from mast.selftrain.pseudo import PseudoLabels
from mast.training.chosen_chunks import Chunks

ChunkSources = list[tuple[Dataset, pd.DataFrame]]  # datasets with some of their chunks


def sample_chunks(sources: ChunkSources, most: int | None, seed: int, number: int) -> ChunkSources:
    """A round's random sample of all chunks, in order: first those that no round before it took."""
    total = sum(len(table) for _, table in sources)
    if most is None or total <= most:
        return sources
    chosen = []
    for dataset, table in sources:
        n = max(1, round(most / total * len(table)))
        shuffled = np.random.default_rng([seed, 13]).permutation(len(table))
        rows = shuffled[np.arange((number - 1) * n, number * n) % len(table)]
        chosen.append((dataset, table.iloc[np.sort(rows)].reset_index(drop=True)))
    return chosen


def chosen_chunks(sources: ChunkSources, rows: IntArray) -> ChunkSources:
    """Some of the chunks, by their numbers over all sources, in order."""
    chosen: ChunkSources = []
    begin = 0
    for dataset, table in sources:
        own = rows[(rows >= begin) & (rows < begin + len(table))] - begin
        begin += len(table)
        if len(own):
            chosen.append((dataset, table.iloc[own].reset_index(drop=True)))
    return chosen


def without_labels(sources: ChunkSources, front_end: FrontEnd) -> Chunks:
    """The unlabelled chunks without boxes."""
    n_chunks = sum(len(table) for _, table in sources)
    nothing = PseudoLabels(
        [np.empty((0, 4))] * n_chunks, [np.empty(0, dtype=bool)] * n_chunks, [0.0] * n_chunks
    )
    return with_labels(sources, front_end, nothing)


def with_labels(sources: ChunkSources, front_end: FrontEnd, labels: PseudoLabels) -> Chunks:
    """The chunks with the boxes found in each, and its weight."""
    parts: list[ChunkDataset] = []
    start = 0
    for dataset, table in sources:
        own = slice(start, start + len(table))
        start += len(table)
        parts.append(
            ChunkDataset(
                dataset,
                table,
                front_end,
                boxes=labels.boxes[own],
                sure=labels.sure[own],
                weights=labels.weights[own],
            )
        )
    table = pd.concat([table for _, table in sources], ignore_index=True)
    return Chunks(ConcatDataset(parts), table.assign(labelled=False))
