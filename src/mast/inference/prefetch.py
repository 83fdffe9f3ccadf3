"""The next items made ready in the background while the present one is worked on."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


class _Failure:
    """What ended the background work."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


def prefetch(items: Iterator[T], *, depth: int = 2) -> Generator[T]:
    """Yield ``items`` in order, drawn by a thread that is at most ``depth`` items ahead.

    An exception among the items is raised here. When the caller stops early, so does the thread.
    """
    ready: queue.Queue[T | _Failure] = queue.Queue(maxsize=depth)
    stopped = threading.Event()

    def put(item: T | _Failure) -> None:
        while not stopped.is_set():
            try:
                return ready.put(item, timeout=0.1)
            except queue.Full:
                continue

    def draw() -> None:
        error: BaseException | None = None
        try:
            for item in items:
                put(item)
                if stopped.is_set():
                    return
        except BaseException as problem:
            error = problem
        put(_Failure(error))

    thread = threading.Thread(target=draw, name="prefetch", daemon=True)
    thread.start()
    try:
        while True:
            item = ready.get()
            if isinstance(item, _Failure):
                if item.error is not None:
                    raise item.error
                return
            yield item
    finally:
        stopped.set()
        thread.join()


def concurrently(
    work: Callable[[T], R],
    items: Iterator[T],
    *,
    workers: int,
    start: Callable[[], None] | None = None,
) -> Iterator[tuple[T, R]]:
    """Yield each item with what ``work`` makes of it, in order, while ``workers`` threads do the next ones.

    The items are drawn by a further thread. At most ``2 × workers + 1`` of them are under way or done and waiting,
    so that memory stays bounded. An exception among the items or in the work is raised here, in its turn; when the
    caller stops early, so do the threads.

    Args:
        work: done in the threads, on several items at once.
        items: what to work on.
        workers: threads; at least 1.
        start: called once in each thread before its first item, and in all of them before this begins.
    """
    with ThreadPoolExecutor(workers, thread_name_prefix="worker", initializer=start) as pool:
        # a thread is only started for work that no idle one can do: these meet, so they need one each
        meeting = threading.Barrier(workers)
        list(pool.map(lambda _: meeting.wait(), range(workers)))

        def begun() -> Iterator[tuple[T, Future[R]]]:
            for item in items:
                yield item, pool.submit(work, item)

        try:
            with closing(prefetch(begun(), depth=2 * workers - 1)) as ahead:
                for item, future in ahead:
                    yield item, future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
