"""Workers that are actors of a Ray cluster. This is the only file that imports Ray.

Ray Data is not used: its unit of work is a block of rows, which it retries as a whole, endlessly or not at all, and it
does not say which recording a worker died of. Here each recording has to count by itself: kept when done, tried again
when its worker dies, given up when it is the cause.

What a worker finds comes back through a stream that holds few recordings, and is written by the leading process.
So results need no disk that all machines share, and memory stays flat however slow that disk is. The model travels
with the workers, too; recordings have to be where all workers can read them: a shared disk, or object storage.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from mast.archive.crew import Exited, Idle, Message, Ready, Reported
from mast.archive.locations import Recording, search
from mast.archive.worker import DetectorFacts, DetectorSpec
from mast.audio import DamagedAudioWarning
from mast.errors import ConfigError, MastError, first_line
from mast.inference import Detector, Searched

_UNREAD_OUTCOMES = 4  # a worker pauses when this many recordings wait to be written; our choice
# of a cluster that lives for one command: outcomes pass through, nothing stays
_OBJECT_STORE_BYTES = 256 * 2**20


class _Searcher:
    """What runs in an actor."""

    def __init__(self) -> None:
        self._detector: Detector | None = None

    def start(self, spec: DetectorSpec, number: int) -> tuple[DetectorFacts, int]:
        warnings.simplefilter("ignore", DamagedAudioWarning)  # reported in the outcome
        self._detector = spec.load(number)
        return DetectorFacts.of(self._detector), os.getpid()

    def search(self, recordings: list[Recording]) -> Iterator[Searched]:
        assert self._detector is not None
        yield from search(self._detector, recordings)


class RayCrew:
    """Actors of a Ray cluster; see :class:`mast.archive.crew.Crew`.

    ``RAY_ADDRESS`` says which cluster, as everywhere in Ray; without it, one is started on this machine and ended with
    the crew. A cluster that this process has joined already is used and left as it is.

    Attributes:
        capacity: how many workers the cluster has room for: its GPUs where they are used, else its CPUs.
    """

    def __init__(self, spec: DetectorSpec, *, workers: int | None = None) -> None:
        self._owns_cluster = not ray.is_initialized()
        local = self._owns_cluster and not os.environ.get("RAY_ADDRESS")
        sent = spec if local else spec.with_files()
        if self._owns_cluster:
            _connect(local, workers)
        resources = ray.cluster_resources()
        device = spec.options.device
        self._gpus = str(device).startswith("cuda") or (device is None and resources.get("GPU", 0) >= 1)
        self.capacity = max(1, int(resources.get("GPU" if self._gpus else "CPU", 0)))
        options = {"num_cpus": 1, "num_gpus": int(self._gpus), "max_restarts": 0, "max_task_retries": 0}
        self._actor_class = ray.remote(**options)(_Searcher)
        self._spec = ray.put(sent)
        self._hired = 0
        self._actors: dict[int, Any] = {}
        self._pending: dict[Any, int] = {}  # a worker's start, or the stream of what it finds

    def hire(self) -> int:
        """See :class:`Crew`."""
        worker = self._hired
        self._hired += 1
        self._actors[worker] = actor = self._actor_class.remote()
        self._pending[actor.start.remote(self._spec, worker)] = worker
        return worker

    def assign(self, worker: int, recordings: list[Recording]) -> None:
        """See :class:`Crew`."""
        method = self._actors[worker].search.options(
            num_returns="streaming", _generator_backpressure_num_objects=_UNREAD_OUTCOMES
        )
        self._pending[method.remote(recordings)] = worker

    def wait(self) -> list[Message]:
        """See :class:`Crew`."""
        ready, _ = ray.wait(list(self._pending), num_returns=1)
        return [self._message(ref, self._pending[ref]) for ref in ready]

    def close(self) -> None:
        """See :class:`Crew`."""
        for actor in self._actors.values():
            ray.kill(actor)
        self._actors, self._pending = {}, {}
        if self._owns_cluster:
            ray.shutdown()

    def _message(self, ref: Any, worker: int) -> Message:
        try:
            if isinstance(ref, ray.ObjectRef):
                facts, pid = ray.get(ref)
                del self._pending[ref]
                return Ready(worker, facts, pid)
            return Reported(worker, ray.get(next(ref)))
        except StopIteration:
            del self._pending[ref]
            return Idle(worker)
        except RayTaskError as error:
            # an error, not an outcome: what the worker holds, a GPU perhaps, may be in any state
            cause = error.cause
            mistake = cause if isinstance(cause, MastError) else None
            return self._remove_worker(ref, worker, f"{type(cause).__name__}: {cause}", mistake)
        except RayError as error:
            return self._remove_worker(ref, worker, type(error).__name__)

    def _remove_worker(self, ref: Any, worker: int, reason: str, mistake: MastError | None = None) -> Exited:
        del self._pending[ref]
        ray.kill(self._actors.pop(worker))
        return Exited(worker, (reason.strip().splitlines() or [""])[0], mistake)


def _connect(local: bool, workers: int | None) -> None:
    """Join the cluster of ``RAY_ADDRESS``, or start one on this machine."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no usage reports
    common: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        if local:
            here = {
                "num_cpus": workers,
                "object_store_memory": _OBJECT_STORE_BYTES,
                "include_dashboard": False,
            }
            ray.init(address="local", **here, **common)
        else:
            ray.init(address=os.environ["RAY_ADDRESS"], **common)
    except Exception as error:  # Ray has no common class for these
        where = "on this machine" if local else f"at RAY_ADDRESS={os.environ['RAY_ADDRESS']}"
        raise ConfigError(
            f"--engine ray: no cluster {where} ({first_line(error)}); start one with `ray start --head`"
        ) from error
