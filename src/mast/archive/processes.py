"""Workers that are processes on this machine.

A worker that is killed, by the system for memory or by a bug in a decoder, is replaced, and the run continues.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import warnings
from contextlib import suppress
from multiprocessing import connection

from mast.archive.crew import Exited, Idle, Message, Ready, Reported
from mast.archive.locations import NoRoomError, Recording, search
from mast.archive.worker import DetectorFacts, DetectorSpec
from mast.audio import DamagedAudioWarning
from mast.errors import MastError
from mast.inference.detector import prefers_onnx

_Pipe = connection.Connection


class ProcessCrew:
    """Processes on this machine; see :class:`mast.archive.crew.Crew`.

    An answer waits in the worker until it is read here, so nothing piles up.
    """

    def __init__(self, spec: DetectorSpec) -> None:
        self._spec = spec
        # torch is imported once, in a process that is only there to be copied
        method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
        self._context = multiprocessing.get_context(method)
        if method == "forkserver":
            torch = [] if prefers_onnx(spec.options) else ["mast.inference.torch_network"]
            self._context.set_forkserver_preload([__name__, *torch])
        self._hired = 0
        self._pipes: dict[_Pipe, int] = {}
        self._processes: dict[int, multiprocessing.process.BaseProcess] = {}

    def hire(self) -> int:
        """See :class:`Crew`."""
        worker = self._hired
        self._hired += 1
        here, there = self._context.Pipe()
        process = self._context.Process(  # type: ignore[attr-defined]
            target=_run_worker, args=(there, self._spec, worker), name=f"mast-worker-{worker}", daemon=True
        )
        process.start()
        there.close()  # so that the end of the worker is the end of the pipe
        self._pipes[here] = worker
        self._processes[worker] = process
        return worker

    def assign(self, worker: int, recordings: list[Recording]) -> None:
        """See :class:`Crew`."""
        pipe = next(pipe for pipe, number in self._pipes.items() if number == worker)
        with suppress(OSError):  # it is gone: wait() says so
            pipe.send(recordings)

    def wait(self) -> list[Message]:
        """See :class:`Crew`."""
        messages: list[Message] = []
        for pipe in connection.wait(list(self._pipes)):
            assert isinstance(pipe, _Pipe)
            worker = self._pipes[pipe]
            try:
                message: Message = pipe.recv()
            except (EOFError, OSError):
                message = Exited(worker, self._exit_reason(worker))
            if isinstance(message, Exited):
                pipe.close()
                del self._pipes[pipe]
            messages.append(message)
        return messages

    def close(self) -> None:
        """See :class:`Crew`."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.join()
        for pipe in self._pipes:
            pipe.close()
        self._pipes = {}

    def _exit_reason(self, worker: int) -> str:
        process = self._processes[worker]
        process.join()
        code = process.exitcode or 0
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _run_worker(pipe: _Pipe, spec: DetectorSpec, worker: int) -> None:
    """The life of a worker: load the detector, then search what is given until the leader is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; the leader decides
    warnings.simplefilter("ignore", DamagedAudioWarning)  # reported in the outcome
    try:
        detector = spec.load(worker)
    except MastError as error:
        pipe.send(Exited(worker, str(error), error))
        return
    try:
        pipe.send(Ready(worker, DetectorFacts.of(detector), os.getpid()))
        while True:
            for outcome in search(detector, pipe.recv()):
                pipe.send(Reported(worker, outcome))
            pipe.send(Idle(worker))
    except (EOFError, BrokenPipeError):
        return  # nobody waits for more
    except NoRoomError as error:
        pipe.send(Exited(worker, str(error), error))
    except Exception as error:  # what is held, a GPU perhaps, may be in any state: a new worker is safer
        pipe.send(Exited(worker, f"{type(error).__name__}: {error}"))
