"""Types of arrays, named by what they hold."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
Samples = NDArray[np.float32]  # of sound
Vectors = NDArray[np.float32]  # embeddings, one per row
