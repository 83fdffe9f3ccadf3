"""How far a command has come, in a small file next to its results: for the page of `mast app`, and for scripts.

``OUT/.progress.json`` holds the command, its process, its current step, how much of that is done, the seconds left, and
in the end what became of it. The process holds ``OUT/.progress.lock`` until it ends, however that happens. So if the
file still says "running" but nobody holds the lock, the command was stopped.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from mast.files import is_locked, locked, machine_id, write_atomic

PROGRESS = ".progress.json"
_LOCK = ".progress.lock"
STARTING = "starting"  # before the command itself reports anything
# an environment variable: the folder that a command reports in from its first moment, whatever becomes of it
REPORT_IN = "MAST_REPORT_IN"
_EVERY_S = 1.0  # between two writes of the file
_LOCK_S = 2.0  # a reader that asks whether the lock is free holds it for an instant
_NOTES = 12  # kept, the last ones

State = Literal["running", "done", "stopped", "failed"]


@dataclass
class CommandProgress:
    """What the file says.

    Attributes:
        command: the words after ``mast``; with ``folder``, it can be run again.
        folder: the working directory that paths in ``command`` are relative to.
        process: its number.
        machine: where that number means this process.
        state: what became of it; still ``running`` for a process that was killed.
        sentence: why it failed; empty otherwise.
        what: its current step.
        done: items of the step that are done.
        total: items in all; 0 where that is not known.
        unit: what the items are.
        left_s: seconds until all of ``what`` is done, at the rate so far; ``None`` where that is not known.
        notes: the last lines it has printed.
        began: when it began, in UTC; empty if an earlier version of mast did not say.
    """

    command: list[str]
    folder: str
    process: int
    machine: str
    state: State = "running"
    sentence: str = ""
    what: str = ""
    done: float = 0
    total: float = 0
    unit: str = ""
    left_s: float | None = None
    notes: list[str] = field(default_factory=list)
    began: str = ""


class _TakenError(Exception):
    """Another process reports in the same folder."""


def _give_up() -> None:
    raise _TakenError


class CommandReport:
    """Writes the file of one command.

    Args:
        command: the words after ``mast``.
    """

    def __init__(self, command: Sequence[str]) -> None:
        began = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._now = CommandProgress(list(command), os.getcwd(), os.getpid(), machine_id(), began=began)
        self._folder: Path | None = None
        self._held: ExitStack | None = None  # the lock, once it is ours
        self._written_s = -math.inf

    def claim_folder(self, folder: Path) -> None:
        """Take this folder; the file is written with the first figures, so that a refused command leaves none."""
        if self._folder is None:
            self._folder = folder

    def begin(self) -> None:
        """Write the file now, unless another process reports in the same folder."""
        if self._folder is None or self._held is not None:
            return
        held = ExitStack()
        try:
            held.enter_context(locked(self._folder / _LOCK, busy=_give_up, patience_s=_LOCK_S))
        except _TakenError:
            self._folder = None
        except OSError:  # a disk that refuses stops the command itself, with a sentence
            return
        else:
            self._held = held
            self._write()

    def update(self, what: str, done: float, total: float | None, unit: str, left_s: float | None) -> None:
        """How far it has come."""
        now = self._now
        news = now.what.partition(" ")[0] != what.partition(" ")[0] or now.total != (total or 0)
        now.what, now.done, now.total, now.unit, now.left_s = what, done, total or 0, unit, left_s
        self.begin()
        if news or time.monotonic() - self._written_s > _EVERY_S:
            self._write()

    def note(self, line: str) -> None:
        """A line that the command prints."""
        self._now.notes = [*self._now.notes, line][-_NOTES:]

    def end(self, state: State, sentence: str = "") -> None:
        """What became of it."""
        self._now.state, self._now.sentence, self._now.left_s = state, sentence, None
        self._write()
        if self._held is not None:
            self._held.close()
            self._held = None

    def _write(self) -> None:
        if self._held is None or self._folder is None:
            return
        self._written_s = time.monotonic()
        with suppress(OSError):  # a full disk stops the command itself, with a sentence
            write_atomic(self._folder / PROGRESS, json.dumps(asdict(self._now)).encode())


def announce(folder: Path, command: Sequence[str], working: Path) -> None:
    """Write the file of a command that is about to be started, so that it is known whatever becomes of it.

    Raises:
        OSError: nothing can be written there.
    """
    coming = CommandProgress(list(command), str(working), process=0, machine="", what=STARTING)
    write_atomic(folder / PROGRESS, json.dumps(asdict(coming)).encode())


def read_progress(folder: Path) -> CommandProgress | None:
    """What the file in a folder says, ``stopped`` where its process is gone; ``None`` where there is none to read."""
    running = is_locked(folder / _LOCK)  # first: a process that ends meanwhile has written its last state
    try:
        content = json.loads((folder / PROGRESS).read_text(encoding="utf-8"))
        found = CommandProgress(
            **{one.name: content[one.name] for one in fields(CommandProgress) if one.name in content}
        )
        texts = [
            found.folder,
            found.machine,
            found.state,
            found.sentence,
            found.what,
            found.unit,
            found.began,
        ]
        texts += [*found.command, *found.notes]
        numbers = [found.process, found.done, found.total, *([] if found.left_s is None else [found.left_s])]
        if not all(isinstance(text, str) for text in texts) or not all(math.isfinite(n) for n in numbers):
            return None
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    if running:
        found.state = "running"
    elif found.state == "running":
        found.state, found.left_s = "stopped", None
    return found
