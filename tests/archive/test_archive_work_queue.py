"""The queue: whatever dies whenever, every recording ends up done once or given up, and only killers are given up."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mast.archive.locations import Recording
from mast.archive.work_queue import WorkBatch, WorkQueue


def recordings(n: int) -> list[Recording]:
    return [Recording(f"/r/{i}.wav", f"{i}.wav", "/r") for i in range(n)]


@given(
    n=st.integers(0, 120),
    workers=st.integers(1, 6),
    poison=st.sets(st.integers(0, 119), max_size=5),
    accidents=st.integers(0, 3),
    seed=st.integers(0, 1000),
)
def test_none_lost_none_doubled(n: int, workers: int, poison: set[int], accidents: int, seed: int) -> None:
    rng = random.Random(seed)
    killers = {f"{i}.wav" for i in poison if i < n}
    queue = WorkQueue(recordings(n), workers)
    batches: dict[int, WorkBatch | None] = dict.fromkeys(range(workers))
    done: Counter[str] = Counter()
    given_up: Counter[str] = Counter()
    met: Counter[str] = Counter()
    while queue.remaining:
        worker = rng.randrange(workers)
        batch = batches[worker]
        if batch is None or not batch.remaining:
            batches[worker] = queue.next_batch()
            continue
        name = next(iter(batch.remaining))
        accident = accidents > 0 and rng.random() < 0.05
        if name in killers or accident:
            met[name] += name in killers
            accidents -= accident and name not in killers
            for outcome in queue.requeue(batch, "SIGKILL"):
                given_up[outcome.source.recording] += 1
                assert outcome.error.startswith(f"/r/{outcome.source.recording}: 2 workers died")
            batches[worker] = None
        else:
            queue.mark_done(batch, name)
            done[name] += 1
    assert set(done) | set(given_up) == {recording.name for recording in recordings(n)}
    assert not set(done) & set(given_up)
    assert max([*done.values(), *given_up.values()], default=1) == 1
    assert killers <= set(given_up)
    assert all(2 <= met[name] <= 3 or accidents >= 0 for name in killers)
    assert max(met.values(), default=0) <= 3  # tried again at most twice
    assert queue.next_batch() is None


def test_batches_are_small_at_the_end_and_a_lone_survivor_is_to_blame_at_once() -> None:
    queue = WorkQueue(recordings(80), workers=2)
    sizes = []
    while (batch := queue.next_batch()) is not None:
        sizes.append(len(batch.remaining))
        for name in list(batch.remaining):
            queue.mark_done(batch, name)
    assert sizes[0] == 10
    assert sizes[-8:] == [1] * 8
    assert sum(sizes) == 80

    queue = WorkQueue(recordings(16), workers=1)
    batch = queue.next_batch()
    assert batch is not None
    *others, last = batch.remaining
    for name in others:
        queue.mark_done(batch, name)
    assert queue.requeue(batch, "a first time") == []
    while (again := queue.next_batch()) is not None and last not in again.remaining:
        for name in list(again.remaining):
            queue.mark_done(again, name)
    assert again is not None
    assert [outcome.source.recording for outcome in queue.requeue(again, "a second time")] == [last]
    assert queue.remaining == 0


def test_nothing_to_deal() -> None:
    assert WorkQueue([], 3).next_batch() is None
    with pytest.raises(KeyError):
        WorkQueue(recordings(1), 1).mark_done(WorkBatch([]), "0.wav")
