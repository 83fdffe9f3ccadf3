"""Chunks in a seeded order: which examples make up step *n* depends on (seed, *n*) alone.

The global batch is the same however many processes share it: each takes its slice. So two GPUs see what
one would have seen, and a resumed run continues with the very batch that would have been next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from mast.errors import ConfigError

B = TypeVar("B")
_MIX = 0x9E3779B97F4A7C15  # odd 64-bit constant: spreads (seed, step) over the whole range


def step_seed(seed: int, step: int, stream: int = 0) -> int:
    """A seed for everything random at one step; ``stream`` tells independent uses apart."""
    return (seed * 1_000_003 + step * _MIX + stream * 0xD1B54A32D192ED03) & 0x7FFF_FFFF_FFFF_FFFF


def step_generator(seed: int, step: int, device: torch.device, stream: int = 0) -> torch.Generator:
    """A generator on ``device`` that depends on (seed, step, stream) alone."""
    return torch.Generator(device=device).manual_seed(step_seed(seed, step, stream))


def epoch_order(n_examples: int, batch_size: int, *, seed: int, epoch: int) -> np.ndarray[Any, Any]:
    """(steps, batch_size) rows of example indices for one epoch; what does not fill a batch is left out this time.

    With fewer examples than a batch, the batch is filled by further passes over them.
    """
    rng = np.random.default_rng([seed, epoch])
    if n_examples < batch_size:
        passes = -(-batch_size // n_examples)
        order = np.concatenate([rng.permutation(n_examples) for _ in range(passes)])[:batch_size]
    else:
        order = rng.permutation(n_examples)[: n_examples // batch_size * batch_size]
    return order.reshape(-1, batch_size)


class _StepSampler:
    """Index lists of this process's slices, step after step, across epochs without a pause."""

    def __init__(self, n_examples: int, batch_size: int, seed: int, rank: int, world: int) -> None:
        self.n_examples, self.batch_size, self.seed = n_examples, batch_size, seed
        self.local = slice(rank * batch_size // world, (rank + 1) * batch_size // world)
        self.steps_per_epoch = max(1, n_examples // batch_size)
        self.start = self.stop = 0

    def __iter__(self) -> Iterator[list[int]]:
        order, known = np.empty((0, 0), dtype=np.int64), -1
        for step in range(self.start, self.stop):
            epoch, row = divmod(step, self.steps_per_epoch)
            if epoch != known:
                order = epoch_order(self.n_examples, self.batch_size, seed=self.seed, epoch=epoch)
                known = epoch
            yield order[row, self.local].tolist()

    def __len__(self) -> int:
        return self.stop - self.start


class Batches(Generic[B]):
    """Batches of a map-style dataset, epoch by epoch, from any step on.

    Args:
        dataset: examples by index; nothing random inside.
        collate: list of examples → one batch.
        batch_size: the global batch, shared by all processes.
        seed: fixes the order.
        workers: decoding processes; 0 decodes in this one.
        rank, world: the number of this process, and how many processes there are.
        pin: pinned memory, for a GPU.
        take: indices → their batch, where all examples are in memory already; nothing is decoded then.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        collate: Callable[[list[Any]], B],
        *,
        batch_size: int,
        seed: int,
        workers: int = 0,
        rank: int = 0,
        world: int = 1,
        pin: bool = False,
        take: Callable[[list[int]], B] | None = None,
    ) -> None:
        n_examples = len(dataset)  # type: ignore[arg-type]
        if n_examples == 0:
            raise ConfigError("training: there is no chunk to train on; check the dataset and its splits")
        if batch_size % world:
            raise ConfigError(f"training: batch size {batch_size} does not divide among {world} processes")
        self._take = take
        self._sampler = _StepSampler(n_examples, batch_size, seed, rank, world)
        self._loader = DataLoader(
            dataset,
            batch_sampler=self._sampler,
            collate_fn=collate,
            num_workers=workers,
            prefetch_factor=2 if workers > 0 else None,
            pin_memory=pin,
        )
        self.steps_per_epoch = self._sampler.steps_per_epoch

    def steps(self, start: int, stop: int) -> Iterator[B]:
        """The batches of the steps from ``start`` up to ``stop``; decoding runs ahead across epochs."""
        self._sampler.start, self._sampler.stop = start, stop
        yield from self._loader if self._take is None else map(self._take, self._sampler)
