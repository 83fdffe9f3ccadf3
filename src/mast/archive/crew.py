"""A crew of workers that search an archive together: how they are led, whatever their kind.

:class:`Crew` is what each kind of worker has to offer; :mod:`mast.archive.processes` and :mod:`mast.archive.ray_crew`
are the two kinds. :class:`CrewEngine` hires workers, hands out work, replaces dead workers and gives up on recordings
that kill them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from mast.archive.locations import NoRoomError, Recording, search
from mast.archive.work_queue import WorkBatch, WorkQueue
from mast.archive.worker import DetectorFacts, DetectorSpec
from mast.errors import ConfigError, MastError
from mast.inference import Searched

_MAX_FAILED_STARTS = 3  # in a row


class Ready(NamedTuple):
    """A worker has loaded the detector."""

    worker: int
    facts: DetectorFacts
    pid: int


class Reported(NamedTuple):
    """A worker is done with a recording."""

    worker: int
    outcome: Searched


class Idle(NamedTuple):
    """A worker is done with its batch."""

    worker: int


class Exited(NamedTuple):
    """A worker has ended; ``error`` where a user's mistake ended it."""

    worker: int
    reason: str
    error: MastError | None = None


Message = Ready | Reported | Idle | Exited


class Crew(Protocol):
    """Workers of some kind, numbered as they are hired."""

    def hire(self) -> int:
        """Start a worker, without waiting until it is ready."""

    def assign(self, worker: int, recordings: list[Recording]) -> None:
        """Let a ready worker search some recordings."""

    def wait(self) -> list[Message]:
        """Messages from workers, as soon as there is one."""

    def close(self) -> None:
        """End all workers."""


class Engine(Protocol):
    """Something that searches recordings; use as a context manager."""

    facts: DetectorFacts

    def __enter__(self) -> Engine: ...

    def __exit__(self, *_: object) -> None: ...

    def search(
        self, recordings: Sequence[Recording], *, progress: Callable[[float], None] | None = None
    ) -> Iterator[Searched]:
        """The outcome of each recording, in any order; ``progress`` gets the seconds of sound as they are done."""


class OneProcess:
    """The engine without a crew: this process, with all the threads torch wants."""

    def __init__(self, spec: DetectorSpec) -> None:
        self.detector = spec.load()
        self.facts = DetectorFacts.of(self.detector)

    def __enter__(self) -> OneProcess:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def search(
        self, recordings: Sequence[Recording], *, progress: Callable[[float], None] | None = None
    ) -> Iterator[Searched]:
        """See :class:`Engine`; outcomes come in order."""
        return search(self.detector, recordings, progress=progress)


class CrewEngine:
    """A crew at work.

    Args:
        crew: ended when this engine is closed.
        workers: maximum number.

    Attributes:
        facts: of the detector, as the first worker has loaded it.
        pids: process of each worker, by its number, on its own machine.

    Raises:
        MastError: the detector cannot be loaded.
    """

    def __init__(self, crew: Crew, workers: int) -> None:
        self._crew, self._workers = crew, workers
        self._batches: dict[int, WorkBatch | None] = {}  # of the living workers that are ready
        self._starting: set[int] = set()
        self._failed_starts = 0
        self.pids: dict[int, int] = {}
        self.facts = DetectorFacts({}, None, "")
        try:
            while not self.pids:
                if not self._starting:
                    self._starting.add(crew.hire())
                for message in crew.wait():
                    self._update_workers(message)
        except BaseException:
            crew.close()
            raise

    def __enter__(self) -> CrewEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self._crew.close()

    def search(
        self, recordings: Sequence[Recording], *, progress: Callable[[float], None] | None = None
    ) -> Iterator[Searched]:
        """See :class:`Engine`."""
        queue = WorkQueue(recordings, self._workers)
        while queue.remaining:
            self._assign_work(queue)
            for message in self._crew.wait():
                if isinstance(message, Reported):
                    batch = self._batches[message.worker]
                    assert batch is not None
                    queue.mark_done(batch, message.outcome.source.recording)
                    if progress is not None:
                        progress(message.outcome.duration_s)
                    yield message.outcome
                elif isinstance(message, Idle):
                    self._batches[message.worker] = None
                else:
                    batch = self._batches.get(message.worker)
                    if isinstance(message, Exited) and isinstance(message.error, NoRoomError):
                        raise message.error  # no recording is to blame, and every worker would end like this
                    if isinstance(message, Exited) and batch is not None:
                        yield from queue.requeue(batch, message.reason)
                        del self._batches[message.worker]
                    else:
                        self._update_workers(message)

    def _assign_work(self, queue: WorkQueue) -> None:
        """Give every free worker something to do, and hire where there is more to do than workers."""
        for worker, batch in self._batches.items():
            if batch is None and (new := queue.next_batch()) is not None:
                self._batches[worker] = new
                self._crew.assign(worker, list(new.remaining.values()))
        idle_or_starting = len(self._starting) + sum(batch is None for batch in self._batches.values())
        for _ in range(
            min(self._workers - len(self._batches) - len(self._starting), queue.waiting - idle_or_starting)
        ):
            self._starting.add(self._crew.hire())

    def _update_workers(self, message: Message) -> None:
        """Note that a worker is ready, or that one without work has exited."""
        self._starting.discard(message.worker)
        if isinstance(message, Ready):
            self._failed_starts = 0
            if self.pids and message.facts.settings != self.facts.settings:
                raise _different_settings(self.facts, message.facts)
            self.facts = message.facts
            self.pids[message.worker] = message.pid
            self._batches[message.worker] = None
        elif isinstance(message, Exited):
            self._batches.pop(message.worker, None)
            if message.error is not None:
                raise message.error
            self._failed_starts += 1
            if self._failed_starts >= _MAX_FAILED_STARTS:
                raise MastError(
                    f"{self._failed_starts} workers in a row died while starting ({message.reason}); use fewer "
                    "--workers to save memory, or --engine local with one worker to see the cause"
                )


def _different_settings(first: DetectorFacts, other: DetectorFacts) -> ConfigError:
    key = next(key for key in first.settings if first.settings[key] != other.settings.get(key))
    return ConfigError(
        f"workers differ in {key}: one has {first.settings[key]}, another {other.settings.get(key)}; use machines of "
        "the same kind with the same version of mast, or --device cpu or cuda for all"
    )
