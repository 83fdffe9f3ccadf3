"""Items made ready in the background: in order, never too many, and no thread left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from mast.inference.prefetch import Prefetch, chain_prefetched, map_concurrently


def threads() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name.startswith(("prefetch", "worker"))]


def test_prefetch_keeps_order_and_passes_errors_on() -> None:
    def items() -> Iterator[int]:
        yield from range(50)
        raise ValueError("fifty")

    seen: list[int] = []
    with pytest.raises(ValueError, match="fifty"):
        seen.extend(Prefetch(items(), depth=3))
    assert seen == list(range(50))
    assert list(Prefetch(iter([]))) == []


def test_concurrent_work_comes_in_order_and_is_bounded() -> None:
    under_way, peak, lock = 0, 0, threading.Lock()
    begun: list[int] = []

    def drawn() -> Iterator[int]:
        for i in range(40):
            begun.append(i)
            yield i

    def work(i: int) -> int:
        nonlocal under_way, peak
        with lock:
            under_way += 1
            peak = max(peak, under_way)
        time.sleep(0.003 * (i % 3))  # later ones are often done first
        with lock:
            under_way -= 1
        return i * i

    started: list[str] = []
    pairs = map_concurrently(
        work, drawn(), workers=3, start=lambda: started.append(threading.current_thread().name)
    )
    assert next(pairs) == (0, 0)
    assert len(set(started)) == 3
    time.sleep(0.2)  # the caller is slow: nobody runs far ahead
    assert len(begun) <= 2 * 3 + 2
    assert list(pairs) == [(i, i * i) for i in range(1, 40)]
    assert 1 < peak <= 3
    assert list(map_concurrently(work, iter([]), workers=2)) == []


def test_concurrent_work_passes_errors_on_in_their_turn_and_stops() -> None:
    def work(i: int) -> int:
        if i == 5:
            raise ValueError("five")
        return i

    seen: list[int] = []
    with pytest.raises(ValueError, match="five"):
        seen.extend(i for i, _ in map_concurrently(work, iter(range(100)), workers=2))
    assert seen == [0, 1, 2, 3, 4]

    def items() -> Iterator[int]:
        yield 1
        raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        list(map_concurrently(work, items(), workers=2))
    pairs = map_concurrently(work, iter(range(5)), workers=2)
    next(pairs)
    pairs.close()  # type: ignore[attr-defined]
    assert not threads()


def test_what_is_prefetched_is_begun_at_once_and_let_go_with_its_holder() -> None:
    begun = threading.Event()

    def items() -> Iterator[int]:
        begun.set()
        yield from range(100)

    ahead = Prefetch(items())
    assert begun.wait(5)  # before anybody asked
    assert next(ahead) == 0
    del ahead
    assert not threads()


def test_parts_come_in_turn_though_several_are_begun() -> None:
    begun: list[int] = []

    def part(k: int) -> Iterator[tuple[int, int]]:
        begun.append(k)
        for i in range(k):
            time.sleep(0.001 * (k % 3))  # later ones are often done first
            yield k, i

    found = chain_prefetched((part(k) for k in range(8)), n_parallel=3)
    assert next(found) == (1, 0)  # the first part holds nothing
    assert len(begun) <= 4
    assert list(found) == [(k, i) for k in range(8) for i in range(k)][1:]
    assert list(chain_prefetched(iter([]), n_parallel=2)) == []
    assert not threads()


def test_parts_in_turn_wait_with_few_items() -> None:
    drawn = [0, 0, 0]

    def part(k: int) -> Iterator[int]:
        for i in range(50):
            drawn[k] += 1
            yield i

    found = chain_prefetched((part(k) for k in range(3)), n_parallel=2, depth=2)
    next(found)
    time.sleep(0.2)  # the caller is slow: nobody runs far ahead
    assert drawn[0] <= 4
    assert drawn[1] <= 3
    assert drawn[2] == 0
    found.close()  # type: ignore[attr-defined]
    assert not threads()


def test_an_error_in_a_part_comes_in_its_turn_and_ends_the_others() -> None:
    def part(k: int) -> Iterator[int]:
        yield k
        if k == 2:
            raise ValueError("two")

    seen: list[int] = []
    with pytest.raises(ValueError, match="two"):
        seen.extend(chain_prefetched((part(k) for k in range(9)), n_parallel=4))
    assert seen == [0, 1, 2]
    assert not threads()
