from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mast.errors import ConfigError
from mast.training.batches import Batches, epoch_order, step_generator, step_seed


@given(n=st.integers(1, 60), batch=st.integers(1, 16), epoch=st.integers(0, 5))
def test_an_epoch_shows_each_example_at_most_once(n: int, batch: int, epoch: int) -> None:
    order = epoch_order(n, batch, seed=3, epoch=epoch)
    assert order.shape == (max(1, n // batch), batch)
    if n >= batch:
        assert len(set(order.ravel().tolist())) == order.size
    else:  # all of them, again and again
        assert set(order.ravel().tolist()) == set(range(n)) or batch < n
    assert np.array_equal(order, epoch_order(n, batch, seed=3, epoch=epoch))


def numbers(n: int) -> torch.utils.data.Dataset[int]:
    return torch.utils.data.TensorDataset(torch.arange(n))  # type: ignore[return-value]


def plain(examples: list[tuple[torch.Tensor]]) -> list[int]:
    return [int(e[0]) for e in examples]


@pytest.mark.parametrize("workers", [0, 2])
def test_resuming_continues_with_the_very_batch(workers: int) -> None:
    batches = Batches(numbers(23), plain, batch_size=4, seed=1, workers=workers)
    whole = list(batches.steps(0, 12))
    assert batches.steps_per_epoch == 5
    for epoch in (0, 1):
        order = epoch_order(23, 4, seed=1, epoch=epoch)
        assert whole[5 * epoch : 5 * epoch + 5] == order.tolist()
    assert list(batches.steps(7, 12)) == whole[7:]
    assert list(batches.steps(12, 12)) == []


def test_processes_share_the_global_batch() -> None:
    whole = list(Batches(numbers(20), plain, batch_size=6, seed=1).steps(0, 7))
    shares = [
        list(Batches(numbers(20), plain, batch_size=6, seed=1, rank=r, world=3).steps(0, 7)) for r in range(3)
    ]
    assert [a + b + c for a, b, c in zip(*shares, strict=True)] == whole


def test_mistakes() -> None:
    with pytest.raises(ConfigError, match="no chunk to train on"):
        Batches(numbers(0), plain, batch_size=2, seed=0)
    with pytest.raises(ConfigError, match="batch size 5 does not divide among 2 processes"):
        Batches(numbers(9), plain, batch_size=5, seed=0, world=2)


def test_seeds_of_steps_and_streams_differ() -> None:
    seeds = {step_seed(s, n, stream) for s in range(3) for n in range(100) for stream in range(3)}
    assert len(seeds) == 900
    cpu = torch.device("cpu")
    a, b = (torch.rand(4, generator=step_generator(1, 2, cpu, stream=k)) for k in (0, 1))
    assert not torch.equal(a, b)


def test_examples_in_memory_come_in_the_same_order() -> None:
    read = Batches(numbers(23), plain, batch_size=6, seed=1, rank=1, world=3)
    taken = Batches(numbers(23), plain, batch_size=6, seed=1, rank=1, world=3, take=lambda rows: rows)
    assert list(taken.steps(2, 9)) == list(read.steps(2, 9))
