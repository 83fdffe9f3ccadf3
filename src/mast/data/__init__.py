"""From recordings and boxes to training batches.

This package itself exports datasets. Chunks are in :mod:`mast.data.chunks`, the examples and batches for training in
:mod:`mast.data.chunk_dataset`, simulated recordings in :mod:`mast.data.simulate`.
"""

from mast.data.recordings import Dataset, load_dataset

__all__ = ["Dataset", "load_dataset"]
