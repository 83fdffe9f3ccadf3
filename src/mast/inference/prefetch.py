"""The next items made ready in the background while the present one is worked on."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import TypeVar

T = TypeVar("T")


class _Failure:
    """What ended the background work."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


def prefetch(items: Iterator[T], *, depth: int = 2) -> Iterator[T]:
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
