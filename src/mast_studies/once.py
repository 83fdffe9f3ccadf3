"""A training run that is done once, whoever needs it: settings compared, time added up, one process at a time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from mast.errors import MastError
from mast.files import locked, write_whole
from mast.fit.pipeline import Show
from mast.runs import Progress
from mast.training.recipe import Recipe

_SAVE_SECONDS = 10.0  # how often the time spent so far is written down


def once(run: Path, recipe: Recipe, work: Callable[[Progress], None], *, show: Show, of: str) -> None:
    """Do a run unless it is done; the time it takes is added up over kills.

    Args:
        run: its folder; ``done`` in it holds the settings of a run that is.
        recipe: its settings.
        work: what to do, telling how far it is.
        show: told what happens.
        of: the dataset and seed, in what is told.

    Raises:
        MastError: it was done with other settings.
    """
    done, settings = run / "done", recipe.model_dump(mode="json")
    with alone(run.with_name(f".{run.name}.lock"), show.say):
        if done.exists():
            refuse_other(json.loads(done.read_text(encoding="utf-8")), settings, run)
            return
        show.say(f"{of}: training {run.name}")
        with show.bar(run.name) as progress:
            clock = _Clock(run)
            work(clock.beside(progress))
        clock.save()
        write_whole(done, json.dumps(settings, indent=2).encode())


def seconds_spent(run: Path) -> float:
    """How long a run has taken so far; 0 where nothing is known."""
    try:
        return float(json.loads((run / "seconds.json").read_text(encoding="utf-8")))
    except OSError:
        return 0.0


def refuse_other(before: Mapping[str, Any], now: Mapping[str, Any], where: Path) -> None:
    """Results of different recipes are not put into one table."""
    old, new = _flat(before), _flat(now)
    for name in sorted((old.keys() | new.keys()) - {"workers", "compile"}):  # those two change no result
        if old.get(name) != new.get(name):
            raise MastError(
                f"{where}: was made with other settings ({name} was {old.get(name)}, now {new.get(name)}); "
                "choose another --work, or delete it to make it again"
            )


def _flat(tables: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in tables.items():
        found |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found


class _Clock:
    """Seconds of work on a run, added up over kills."""

    def __init__(self, run: Path) -> None:
        self.path, self.before = run / "seconds.json", seconds_spent(run)
        self.started = self.saved = time.perf_counter()

    def save(self) -> None:
        self.saved = time.perf_counter()
        write_whole(self.path, json.dumps(self.before + self.saved - self.started).encode())

    def beside(self, progress: Progress) -> Progress:
        """The same progress, which also saves the time now and then."""

        def show(done: int, total: int, text: str) -> None:
            if time.perf_counter() - self.saved > _SAVE_SECONDS:
                self.save()
            progress(done, total, text)

        return show


def alone(path: Path, say: Callable[[str], None]) -> AbstractContextManager[None]:
    """One process at a time; those who wait say so."""
    what = path.name.removeprefix(".").removesuffix(".lock")
    return locked(path, busy=lambda: say(f"{what}: another process is at it, waiting"))
