"""From recordings and boxes to training batches.

Datasets are here by name. Chunks are in :mod:`mast.data.chunks`, the examples and batches that are trained on in
:mod:`mast.data.chunk_dataset`, simulated recordings in :mod:`mast.data.simulate`.
"""

from mast.data.recordings import Dataset, load_dataset

__all__ = ["Dataset", "load_dataset"]
