"""Prop. "Confidence weighting reduces effective label noise" (App. "Theoretical Analysis of Self-Training").

The weighting itself is ``MastDetector.loss(weights=…)``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def effective_noise_rate(error: ArrayLike, weights: ArrayLike | None = None) -> float:
    """Share of wrong labels that training feels: Σ g ε / Σ g, or the plain mean without weights.

    Where the error falls as the weight rises, weighting never raises it.

    >>> round(effective_noise_rate([0.5, 0.1], [0.2, 0.8]), 2), effective_noise_rate([0.5, 0.1])
    (0.18, 0.3)

    Args:
        error: (N,) probability that the pseudo-labels of each chunk are wrong, ε(ḡ(S)).
        weights: (N,) mean pseudo confidence ḡ(S) of each chunk.
    """
    errors = np.asarray(error, dtype=np.float64)
    return float(
        np.average(errors, weights=None if weights is None else np.asarray(weights, dtype=np.float64))
    )
