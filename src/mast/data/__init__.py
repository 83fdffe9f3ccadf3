"""From recordings and boxes to training batches.

What needs no torch is here by name. What does is in :mod:`mast.data.chunk_dataset` (examples and batches),
:mod:`mast.data.augment`, :mod:`mast.data.noise_bank` and :mod:`mast.data.simulate`.
"""

from mast.data.budgets import budget_order, sample_budget
from mast.data.chunks import chunk_boxes, chunk_starts, chunk_table, split_chunks
from mast.data.recordings import Dataset, load_dataset
from mast.data.splits import Span, Split, SplitConfig, split_recordings

__all__ = [
    "Dataset",
    "Span",
    "Split",
    "SplitConfig",
    "budget_order",
    "chunk_boxes",
    "chunk_starts",
    "chunk_table",
    "load_dataset",
    "sample_budget",
    "split_chunks",
    "split_recordings",
]
