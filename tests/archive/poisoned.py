"""A detector that one recording kills, as a bug in a decoder would: importable where workers run."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mast.archive.worker import DetectorSpec
from mast.inference import Detector, Searched, Source


@dataclass(frozen=True)
class PoisonedSpec(DetectorSpec):
    """Loads a detector that ends its process, or raises, when it meets a recording of this name."""

    poison: str = ""
    raises: bool = False
    diary: str = ""  # a file that gets a letter for each time the poison was met
    at_start: bool = False

    def load(self, number: int = 0) -> Detector:
        if self.at_start:
            os.kill(os.getpid(), signal.SIGKILL)
        detector = super().load(number)
        outcomes = detector.outcomes

        def poisoned(
            sources: Iterable[Source], *, progress: Callable[[float], None] | None = None
        ) -> Iterator[Searched]:
            def checked() -> Iterator[Source]:
                for source in sources:
                    if source.recording == self.poison:
                        with open(self.diary, "a") as file:
                            file.write("x")
                        if self.raises:
                            raise MemoryError("too much of it")
                        os.kill(os.getpid(), signal.SIGKILL)
                    yield source

            yield from outcomes(checked(), progress=progress)

        detector.outcomes = poisoned  # type: ignore[method-assign]
        return detector


def times_met(spec: PoisonedSpec) -> int:
    return len(Path(spec.diary).read_text())


@dataclass(frozen=True)
class FullDiskSpec(DetectorSpec):
    """Workers that have no room for a copy of a recording."""

    def load(self, number: int = 0) -> Detector:
        def full(far: object, near: object, length: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        shutil.copyfileobj = full  # type: ignore[assignment]  # in a process of its own
        return super().load(number)
