"""From recordings and boxes to training batches.

What needs no torch is here by name. What does is in :mod:`mast.data.chunk_dataset` (examples and batches),
:mod:`mast.data.augment`, :mod:`mast.data.noise_bank` and :mod:`mast.data.simulate`.
"""

from mast.data.recordings import Dataset, load_dataset

__all__ = ["Dataset", "load_dataset"]
