"""What a detector needs of the network that it searches with, whatever computes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from mast.arrays import Samples
from mast.inference.stitch import ScoredBoxes
from mast.models.card import ModelCard

# batches at once on a CPU, our choice: with one core each, none waits for another after every product, and a batch's
# results do not depend on the number of cores (benchmarks/bench_speed.py times both, "sharing"). More batches would
# wait for each other in Python and take more memory; further cores share the work within a batch instead
MAX_WORKERS = 8


def _nothing() -> None:
    """Nothing is set."""


class ThreadSetting(NamedTuple):
    """What the threads of a search set for themselves."""

    start: Callable[[], None] = _nothing  # in each worker, before its first batch
    restore: Callable[[], None] = _nothing  # in the thread that leads them, after each batch


class Network(Protocol):
    """A trained network, ready for windows of sound.

    Attributes:
        card: what the checkpoint says about itself, at the band that is searched.
        folder: where the checkpoint lies.
        precision: of matrix products, ``"float32"``, ``"bfloat16"`` or ``"int8"``: events depend on it.
        batch_size: windows at once.
        full_batches: whether all batches are of that size, filled up with the windows of the next recordings; else each
            piece of a recording is a batch.
        piece_size: windows of a recording that are read at once.
        readers: recordings that are read at once.
        workers: batches searched at once, each in a thread.
    """

    card: ModelCard
    folder: Path
    precision: str
    batch_size: int
    full_batches: bool
    piece_size: int
    readers: int
    workers: int

    def boxes(self, sounds: Sequence[Samples], min_score: float) -> list[ScoredBoxes]:
        """What is found in a batch; called by several threads at once.

        Args:
            sounds: its pieces, (B_i, samples) each; one piece unless batches are full, and never none.
            min_score: of the model's own scores.

        Returns:
            For each of the Σ B_i windows its boxes in cells of the window, and embeddings if they were requested.
        """

    def thread_setting(self) -> ThreadSetting:
        """Called in the thread that leads a search, before its workers start."""
