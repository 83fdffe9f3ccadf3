"""One mean and one deviation for a whole dataset, gathered in a single pass.

The paper (App. "Data Processing") normalises ``(S − μ) / (σ + ε)`` with μ and σ over all labelled and
unlabelled sound, computed once and reused everywhere (:mod:`mast.normalisation`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from mast.errors import MastError
from mast.normalisation import Normalisation

EPSILON = 1e-6  # added to σ; the paper gives no value, our choice


@dataclass
class RunningStats:
    """Count, mean and squared deviation so far, in float64. Streams, and parts merge exactly.

    Shifting sums as Welford and Chan et al. do: the usual Σx² − (Σx)²/n loses its digits where the mean
    is large compared with the deviation.

    >>> stats = RunningStats()
    >>> stats.update(np.array([1.0, 2.0]))
    >>> stats.merge(RunningStats(count=1, mean=6.0, m2=0.0))
    >>> stats.count, stats.mean
    (3, 3.0)
    """

    count: int = 0
    mean: float = 0.0
    m2: float = 0.0  # Σ (x − mean)²

    @property
    def std(self) -> float:
        """Deviation over all values seen (divided by n)."""
        return math.sqrt(self.m2 / self.count) if self.count else 0.0

    def update(self, values: Tensor | NDArray[Any]) -> None:
        """Take in values of any shape; a tensor may lie on a GPU.

        Raises:
            MastError: if a value is not finite. Nothing is taken in then.
        """
        numbers = torch.as_tensor(values)
        if numbers.numel() == 0:
            return
        numbers = numbers.double()
        mean = numbers.mean()
        m2 = float((numbers - mean).square_().sum())
        if not math.isfinite(m2):
            raise MastError(
                "statistics: found features that are not finite (NaN or infinite) among "
                f"{numbers.numel()} values; check the recording they came from with mast scan"
            )
        self.merge(RunningStats(numbers.numel(), float(mean), m2))

    def merge(self, other: RunningStats) -> None:
        """Take in what another has seen (another process, another shard)."""
        count = self.count + other.count
        if count == 0:
            return
        delta = other.mean - self.mean
        self.mean += delta * other.count / count
        self.m2 += other.m2 + delta * delta * self.count * other.count / count
        self.count = count

    def normalisation(self, *, levelled: bool = False) -> Normalisation:
        """What to apply to features like those seen (levelled ones, where ``levelled``).

        Raises:
            MastError: if nothing was seen.
        """
        if self.count == 0:
            raise MastError(
                "statistics: no sound to normalise by; expected at least one chunk, but a recording shorter than "
                "half a chunk gives none"
            )
        return Normalisation(mean=self.mean, std=self.std + EPSILON, levelled=levelled)


def running_stats(batches: Iterable[tuple[Tensor | NDArray[Any], ArrayLike]]) -> RunningStats:
    """Statistics over a stream of chunks, leaving out frames that are padding.

    The paper's wording implies counting them. They sit at the floor of the logarithm and would drag μ down where clips
    are short.

    Args:
        batches: pairs of features, (N, T, F) or (N, 1, T, F), and frames of real sound per chunk, (N,).

    Returns:
        The statistics; memory is that of one batch.
    """
    stats = RunningStats()
    for features, valid_frames in batches:
        values = torch.as_tensor(features)
        n_frames = values.shape[-2]
        real = np.arange(n_frames) < np.asarray(valid_frames).reshape(-1, 1)  # (N, T)
        frames = values.reshape(-1, n_frames, values.shape[-1])  # (N, T, F)
        stats.update(frames[torch.as_tensor(real, device=values.device)])
    return stats
