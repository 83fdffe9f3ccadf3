"""Commands in processes of their own. They outlive the page and the server; their folders say what became of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from mast.errors import ConfigError
from mast.files import machine_id
from mast.progress import PROGRESS, REPORT_IN, STARTING, announce, read_progress

LOG = ".job.log"  # the command's output, in its folder
_PROGRAM = (sys.executable, "-m", "mast")
_RESUMED = ("detect", "fit")  # what the page starts, and may run again
_PATIENCE_S = 10.0  # after which a command that was asked to stop is terminated


class Jobs:
    """Starts, stops and resumes commands. Only one at a time writes a folder."""

    def __init__(self) -> None:
        self._children: dict[Path, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()

    def is_running(self, out: Path) -> bool:
        """Whether a command is writing this folder, whether it was started here or in a terminal."""
        progress = read_progress(out)
        if progress is not None and progress.what != STARTING:
            return progress.state == "running"
        child = self._children.get(out)
        return child is not None and child.poll() is None

    def start(self, command: Sequence[str], out: Path, *, folder: Path | None = None) -> None:
        """Start ``mast COMMAND``, which writes ``out``; one that is already writing it is left running.

        Args:
            command: the words after ``mast``.
            out: the folder it writes.
            folder: the working directory.

        Raises:
            OSError: nothing can be written there.
        """
        with self._lock:
            if self.is_running(out):
                return
            self._await_end(out)
            out.mkdir(parents=True, exist_ok=True)
            working = folder or Path.cwd()
            announce(out, command, working)
            with open(out / LOG, "wb") as log:
                self._children[out] = subprocess.Popen(
                    [*_PROGRAM, *command],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=working,
                    env={**os.environ, REPORT_IN: str(out)},
                    start_new_session=True,  # Ctrl-C at the server does not reach it
                )

    def _await_end(self, out: Path) -> None:
        """Wait for the last command in a folder to exit: it has reported that it is done, but may still hold a lock."""
        child = self._children.pop(out, None)
        if child is not None:
            try:
                child.wait(2 * _PATIENCE_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    def resume(self, out: Path) -> None:
        """Run a folder's stopped command again, whether the page, a terminal or a power cut stopped it.

        Raises:
            ConfigError: the folder does not say which command that was, or names one for another folder.
        """
        progress = read_progress(out)
        if progress is None:
            raise ConfigError(
                f"{out}: does not say how it was started; run the same mast detect or mast fit again in a terminal"
            )
        command = progress.command
        if not command or command[0] not in _RESUMED or not _writes_to(command, Path(progress.folder), out):
            raise ConfigError(
                f"{out}: was not started by mast detect or mast fit into this folder; choose Find instead"
            )
        self.start(command, out, folder=Path(progress.folder))

    def stop(self, out: Path) -> None:
        """Ask the command that writes a folder to stop; what it has done is kept.

        Raises:
            ConfigError: it runs on another machine, or is somebody else's.
        """
        child = self._children.get(out)
        if child is not None and child.poll() is None:
            _interrupt(child.pid)
            _terminate_later(lambda: child.poll() is None, child.pid)
            return
        progress = read_progress(out)
        if progress is None or progress.state != "running":
            return
        if progress.machine != machine_id() or not _is_own_file(out / PROGRESS):
            raise ConfigError(f"{out}: is being written by another user or machine; stop it there")
        process = progress.process
        _interrupt(process)

        def is_running() -> bool:
            now = read_progress(out)
            return now is not None and now.state == "running" and now.process == process

        _terminate_later(is_running, process)


def _writes_to(command: Sequence[str], folder: Path, out: Path) -> bool:
    """Whether a command's ``--out`` is this folder."""
    for word, following in zip(command, [*command[1:], ""], strict=True):
        name, given, value = word.partition("=")
        if name in ("--out", "-o"):
            return os.path.realpath(folder / (value if given else following)) == os.path.realpath(out)
    return False


def _interrupt(process: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGINT if os.name == "posix" else signal.SIGTERM)


def _terminate_later(is_running: Callable[[], bool], process: int) -> None:
    """End a process that has not stopped after a while: one started in the background may ignore the interrupt."""

    def end() -> None:
        if is_running():
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGTERM)

    timer = threading.Timer(_PATIENCE_S, end)
    timer.daemon = True
    timer.start()


def _is_own_file(file: Path) -> bool:
    try:
        return os.name != "posix" or file.stat().st_uid == os.getuid()
    except OSError:
        return False
