"""Prepares the next items in the background while the current one is processed."""

from __future__ import annotations

import queue
import threading
from collections import deque
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


class Prefetch(Iterator[T]):
    """``items`` in order, drawn from now on by a thread that is at most ``depth`` items ahead.

    An exception among the items is raised in its turn. When the caller stops early, so does the thread: at once if
    this is closed, else when nothing refers to it any more.
    """

    def __init__(self, items: Iterator[T], *, depth: int = 2) -> None:
        self._ready: queue.Queue[T | _Failure] = queue.Queue(maxsize=depth)
        self._stopped = threading.Event()
        # the thread must not refer to this object, or it would never be deleted
        arguments = (items, self._ready, self._stopped)
        self._thread = threading.Thread(target=_fill_queue, args=arguments, name="prefetch", daemon=True)
        self._thread.start()

    def __iter__(self) -> Prefetch[T]:
        return self

    def __next__(self) -> T:
        if self._stopped.is_set():
            raise StopIteration
        item = self._ready.get()
        if not isinstance(item, _Failure):
            return item
        self.close()
        if item.error is not None:
            raise item.error
        raise StopIteration

    def close(self) -> None:
        """End the thread; what it had ready is lost."""
        self._stopped.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def __del__(self) -> None:
        if hasattr(self, "_thread"):
            self.close()


def _fill_queue(items: Iterator[T], ready: queue.Queue[T | _Failure], stopped: threading.Event) -> None:
    def put(item: T | _Failure) -> None:
        while not stopped.is_set():
            try:
                return ready.put(item, timeout=0.1)
            except queue.Full:
                continue

    error: BaseException | None = None
    try:
        for item in items:
            put(item)
            if stopped.is_set():
                if isinstance(items, Generator):
                    items.close()  # now, and not some time later
                return
    except BaseException as problem:
        error = problem
    put(_Failure(error))


def chain_prefetched(parts: Iterator[Iterator[T]], *, n_parallel: int, depth: int = 2) -> Iterator[T]:
    """Yield the items of one part after those of another, while the parts that follow are already being read.

    Args:
        parts: drawn by the caller's thread, up to ``n_parallel`` ahead.
        n_parallel: parts at once, each drawn by a thread of its own.
        depth: items of each part that may wait.
    """
    started: deque[Prefetch[T]] = deque()
    try:
        while True:
            while len(started) < n_parallel and (part := next(parts, None)) is not None:
                started.append(Prefetch(part, depth=depth))
            if not started:
                return
            yield from started[0]
            started.popleft()
    finally:
        for waiting in started:
            waiting.close()


def map_concurrently(
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
        # a thread is only started for work that no idle one can do: these tasks wait for each other, so each needs one
        barrier = threading.Barrier(workers)
        list(pool.map(lambda _: barrier.wait(), range(workers)))

        def begun() -> Iterator[tuple[T, Future[R]]]:
            for item in items:
                yield item, pool.submit(work, item)

        try:
            with closing(Prefetch(begun(), depth=2 * workers - 1)) as ahead:
                for item, future in ahead:
                    yield item, future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
