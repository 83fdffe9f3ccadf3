"""Who searches what: recordings handed out to workers so that none is lost or searched twice, and none stops the run.

A worker gets a *batch* of recordings and reports each as it is done. When a worker dies, what it had not reported goes
back into the queue, now one recording at a time, so that the one to blame is found; a recording on which two workers
died becomes a failure, and the run continues. So a recording is tried at most three times: once in a batch, twice
alone.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable

from mast.archive.locations import Recording
from mast.events import empty_events
from mast.inference import Searched

MAX_DEATHS = 2  # of workers on one recording
_LARGEST_BATCH = (
    16  # our choice: decoding runs ahead inside a batch, and little is searched again after a death
)


class WorkBatch:
    """The recordings that one worker has, by name, in order, without those it has reported."""

    def __init__(self, recordings: Iterable[Recording]) -> None:
        self.remaining = {recording.name: recording for recording in recordings}


class WorkQueue:
    """Hands out recordings to workers; see the module docstring.

    >>> queue = WorkQueue([Recording("/a.wav", "a.wav", "/"), Recording("/b.wav", "b.wav", "/")], workers=2)
    >>> batch = queue.next_batch()
    >>> queue.mark_done(batch, "a.wav")
    >>> queue.remaining
    1
    """

    def __init__(self, recordings: Iterable[Recording], workers: int) -> None:
        self._fresh = deque(recordings)
        self._suspects: deque[Recording] = deque()
        self._deaths: Counter[str] = Counter()
        self._workers = workers
        self.remaining = len(self._fresh)  # not reported and not given up

    @property
    def waiting(self) -> int:
        """Recordings that no worker has."""
        return len(self._fresh) + len(self._suspects)

    def next_batch(self) -> WorkBatch | None:
        """The next batch; ``None`` where every recording is with a worker or done."""
        if self._fresh:
            # small batches towards the end: no worker should be left with many while the others have none
            size = min(_LARGEST_BATCH, max(1, len(self._fresh) // (4 * self._workers)))
            return WorkBatch(self._fresh.popleft() for _ in range(size))
        if self._suspects:
            return WorkBatch([self._suspects.popleft()])
        return None

    def mark_done(self, batch: WorkBatch, name: str) -> None:
        """Note that a recording is done."""
        del batch.remaining[name]
        self.remaining -= 1

    def requeue(self, batch: WorkBatch, reason: str) -> list[Searched]:
        """Take back the batch of a worker that died; returns the recordings that are given up now."""
        left, batch.remaining = list(batch.remaining.values()), {}
        given_up = []
        for recording in left:
            if len(left) == 1:  # else nobody knows which of them it was
                self._deaths[recording.name] += 1
            if self._deaths[recording.name] < MAX_DEATHS:
                self._suspects.append(recording)
                continue
            self.remaining -= 1
            problem = (
                f"{recording.source.path}: {MAX_DEATHS} workers died while searching it ({reason}); convert it "
                "to another format or remove it"
            )
            given_up.append(Searched(recording.source, empty_events(), error=problem))
        return given_up
