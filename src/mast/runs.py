"""What a run was made from: its steps are done once, never mixed with other inputs, and timed.

Whatever takes hours leaves a small file that says what it is made from, written whole. A later run compares: with the
same inputs it resumes or skips; other inputs are refused in a sentence that names them, or start over, and the old
results are kept.

:class:`Ledger` does that for the steps of one folder, each with a note ``FOLDER/stages/NAME.json``, written when the
step starts and again when it is done. A kill at any moment leaves a step either started (its own folder resumes where
it was) or done.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mast.errors import ConfigError, MastError
from mast.files import holds_files, remove_partial_files, write_json

Say = Callable[[str], None]
Progress = Callable[[int, int, str], None]
"""Called with how many are done, how many there are in all (0: not known), and what they are, perhaps with more
after a comma: 12, 400, "steps, loss 0.31"."""
Bar = Callable[[str], AbstractContextManager[Progress]]
RECIPE = "recipe.json"  # in a run's folder: the resolved recipe, data and seed
STAGES = "stages"  # in the folder of a run of several steps: what is known about each
ADAPTED = "adapted.json"  # in the folder of mast adapt, once it is complete
ROUNDS = "rounds.csv"  # of self-training: one row for each stage; grows round by round
EARLIER = "earlier"  # subfolder with the results of steps that had other inputs
UPSTREAM = "upstream."  # before the name of a step: an input that is another step's fingerprint
_FINGERPRINT = re.compile(r"(^| )\(?[0-9a-f]{12,}\)?$")  # at the end of an input
_SHOWN_DIFFERENCES = 3  # maximum number of differing inputs
_SAVE_SECONDS = 10.0  # how often the time spent so far is written down


@dataclass(frozen=True)
class Reporter:
    """How a run reports on itself.

    Attributes:
        say: a line.
        bar: a progress bar for the step of that name.
    """

    say: Say
    bar: Bar


# reports nothing
SILENT = Reporter(say=lambda text: None, bar=lambda what: nullcontext(lambda done, total, text: None))


def digest(value: Any) -> str:
    """A short fingerprint of plain values, the same on every machine."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).hexdigest()[:16]


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as one level with dotted names.

    >>> flatten({"train": {"epochs": 5}})
    {'train.epochs': 5}
    """
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            found |= flatten(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def differences(
    before: Mapping[str, Any], now: Mapping[str, Any], *, ignore: Collection[str] = ()
) -> dict[str, tuple[Any, Any]]:
    """Inputs that differ, by dotted names: what each was, and what it is; None where it is missing.

    Args:
        before: as it was written.
        now: plain values, nested or not.
        ignore: last parts of names that do not count.
    """
    old, new = flatten(before), flatten(json.loads(json.dumps(dict(now))))
    return {
        name: (old.get(name), new.get(name))
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name) and name.rpartition(".")[2] not in ignore
    }


def describe_differences(
    found: Mapping[str, tuple[Any, Any]], called: Mapping[str, str] | None = None
) -> str:
    """Differences as part of a sentence, the first three.

    Args:
        found: as :func:`differences` gives them.
        called: inputs in words, where their names say little.

    >>> describe_differences({"train.epochs": (5, 6)})
    'train.epochs was 5, now 6'
    >>> describe_differences({"labels": ("4 boxes (6f1ec48567ac)", "4 boxes (c05fcff3c145)")}, {"labels": "your boxes"})
    'your boxes changed'
    """
    sentences = [
        _describe_difference((called or {}).get(name, name), old, new) for name, (old, new) in found.items()
    ]
    more = f" and {len(sentences) - _SHOWN_DIFFERENCES} more" if len(sentences) > _SHOWN_DIFFERENCES else ""
    return "; ".join(sentences[:_SHOWN_DIFFERENCES]) + more


def _describe_difference(name: str, old: Any, new: Any) -> str:
    """One difference; fingerprints are not shown."""
    if name.startswith(UPSTREAM):
        return f"{name.removeprefix(UPSTREAM)} was done again"
    before, now = short_value(old), short_value(new)
    plain = [_FINGERPRINT.sub("", text) for text in (before, now)]
    if plain == [before, now]:
        return f"{name} was {before}, now {now}"
    return f"{name} changed" + (
        f" ({plain[0]}, now {plain[1]})" if all(plain) and plain[0] != plain[1] else ""
    )


def short_value(value: Any) -> str:
    """A setting's value as part of a sentence, at most sixty letters."""
    if value is None:
        return "none"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "…"


def refuse_other_inputs(
    where: Path,
    before: Mapping[str, Any],
    now: Mapping[str, Any],
    *,
    instead: str,
    ignore: Collection[str] = (),
    describe: Callable[[Mapping[str, tuple[Any, Any]]], str] | None = None,
) -> None:
    """Refuse to put results of different inputs into one place.

    Args:
        where: the place.
        before: the inputs it was made from.
        now: the present inputs.
        instead: what to do about it.
        ignore: last parts of names that do not count.
        describe: puts the differences into words; names and values by default.

    Raises:
        ConfigError: they differ.
    """
    found = differences(before, now, ignore=ignore)
    if found:
        described = describe(found) if describe else f"other settings ({describe_differences(found)})"
        raise ConfigError(f"{where}: was made with {described}; {instead}")


def refuse_foreign_files(out: Path, sign: str) -> None:
    """Refuse to begin a run in a folder that holds somebody's files, some of which it might overwrite or delete.

    Args:
        out: the run's folder.
        sign: what every run's folder holds from the start.
    """
    if holds_files(out) and not (out / sign).exists():
        raise ConfigError(
            f"{out}: holds files but no run of mast; choose a new folder for the run, so that none of them is lost"
        )


def load_inputs(path: Path, *needed: str) -> dict[str, Any] | None:
    """The inputs that :func:`save_inputs` wrote; None where there are none.

    Raises:
        ConfigError: the file is damaged, or lacks an input that is ``needed``.
    """
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not found.keys() >= set(needed):
        raise ConfigError(
            f"{path}: is damaged: it does not hold the settings of a run; choose another --out, or delete "
            f"{path.parent} to start again"
        )
    return found


def save_inputs(path: Path, inputs: Mapping[str, Any]) -> None:
    """Write down what a folder is made from."""
    write_json(path, dict(inputs))


@dataclass(frozen=True)
class Stage:
    """One step of a run.

    Attributes:
        name: as users see it, such as ``self-train``.
        inputs: everything that decides its result, by dotted names; plain values.
        products: what must exist if it is done.
        folder: the folder it fills over hours, moved aside when the inputs have changed; None where ``work`` writes its
            few files over the old ones.
    """

    name: str
    inputs: Mapping[str, Any]
    products: tuple[Path, ...]
    folder: Path | None = None

    @property
    def fingerprint(self) -> str:
        """Equal exactly when the inputs are equal."""
        return digest(dict(self.inputs))


class Ledger:
    """The steps of one folder.

    Args:
        run: the folder.
        say: called with what is skipped and what starts over.
        main: whether this process writes; in a run of several processes one does.
        wait: waits until all processes have come this far.
        instead: refuse a step whose folder holds what other inputs made, and advise this; it starts over by default.
        called: inputs in words, where their names say little.
    """

    def __init__(
        self,
        run: Path,
        say: Say,
        *,
        main: bool = True,
        wait: Callable[[], None] = lambda: None,
        instead: str = "",
        called: Mapping[str, str] | None = None,
    ) -> None:
        self.run, self.say, self.main, self.wait, self.instead = run, say, main, wait, instead
        self._called = called
        self._clock = _Stopwatch(lambda seconds: None)

    def do(self, stage: Stage, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Do a step unless it is done; returns what ``work`` returned, now or earlier.

        Args:
            stage: name and inputs.
            work: does the step; what it returns is kept with the step, so it has to be plain values.
        """
        before = self._read(stage.name)
        same = before is not None and before["fingerprint"] == stage.fingerprint
        present = all(path.exists() for path in stage.products)
        self.wait()  # nobody writes before everybody has read
        if before is not None and same and before["done"] and present:
            self.say(f"{stage.name}: nothing has changed, skipped")
            kept: dict[str, Any] = before["result"]
            return kept
        if self.main:
            if not same:
                self._clear(stage, before)
            elif before is not None and before["done"]:
                missing = next(path for path in stage.products if not path.exists())
                self.say(f"{stage.name}: {missing} is missing, repeating")
            elif before is not None:
                self.say(f"{stage.name}: was stopped, resuming")
            for path in (self._path(stage.name), *stage.products):
                remove_partial_files(path)  # of a write that was killed
        self.wait()
        resuming = before is not None and same and not before["done"]
        spent = float(before.get("seconds", 0.0)) if before is not None and resuming else 0.0
        self._clock = _Stopwatch(lambda seconds: self._write(stage, seconds), spent)
        self._clock.save()
        result = work()
        self.wait()
        self._write(stage, self._clock.seconds, result)
        return result

    def timed(self, progress: Progress) -> Progress:
        """The same progress, which also saves now and then how long the step has taken, so that a kill loses little."""

        def show(done: int, total: int, text: str) -> None:
            self._clock.save_now_and_then()
            progress(done, total, text)

        return show

    def is_done(self, name: str) -> bool:
        """Whether a step was done, from whatever inputs."""
        return bool((self._read(name) or {}).get("done"))

    def seconds(self, name: str) -> float:
        """How long a step has taken so far, across kills; 0 where nothing is known."""
        return float((self._read(name) or {}).get("seconds", 0.0))

    def _clear(self, stage: Stage, before: dict[str, Any] | None) -> None:
        """Move aside what was made from other inputs, or refuse; refuse what this command has not made."""
        filled = stage.folder is not None and holds_files(stage.folder)
        if self.instead:
            if before is not None and stage.folder is not None and filled:
                refuse_other_inputs(stage.folder, before["inputs"], stage.inputs, instead=self.instead)
            return
        changed = (
            describe_differences(differences(before["inputs"], stage.inputs), self._called)
            if before is not None
            else ""
        )
        if stage.folder is None or not filled:
            if changed:
                self.say(f"{stage.name}: {changed}; repeating")
            return
        if before is None:
            raise MastError(
                f"{stage.folder}: holds files that are not from `mast fit`; choose another --out, or move them away"
            )
        number = 1
        while (aside := self.run / EARLIER / f"{stage.folder.name}-{number}").exists():
            number += 1
        aside.parent.mkdir(exist_ok=True)
        os.rename(stage.folder, aside)
        self.say(f"{stage.name}: {changed}; starting over, and the earlier results are kept in {aside}")

    def _path(self, name: str) -> Path:
        return self.run / STAGES / f"{name}.json"

    def _read(self, name: str) -> dict[str, Any] | None:
        path = self._path(name)
        if not path.exists():
            return None
        try:
            found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            return found if {"fingerprint", "inputs", "done", "result"} <= found.keys() else None
        except (json.JSONDecodeError, AttributeError):
            raise MastError(f"{path}: is damaged or not from mast; delete it to do {name} again") from None

    def _write(self, stage: Stage, seconds: float, result: dict[str, Any] | None = None) -> None:
        if self.main:
            content = {
                "stage": stage.name,
                "fingerprint": stage.fingerprint,
                "done": result is not None,
                "seconds": round(seconds, 3),
                "result": result or {},
                "inputs": dict(stage.inputs),
            }
            write_json(self._path(stage.name), content)


def stopped_steps(run: Path) -> list[str]:
    """The steps of a folder with a :class:`Ledger` that were started and are not done; damaged notes are ignored.

    A step that is running now is included.
    """
    found = []
    for path in sorted((run / STAGES).glob("*.json")):
        try:
            note = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(note, dict) and note.get("done") is False:
            found.append(path.stem)
    return found


class _Stopwatch:
    """Seconds of work on a step, including those before a kill."""

    def __init__(self, write: Callable[[float], None], before: float = 0.0) -> None:
        self._write, self._before = write, before
        self._started = self._saved = time.perf_counter()

    @property
    def seconds(self) -> float:
        return self._before + time.perf_counter() - self._started

    def save(self) -> None:
        self._saved = time.perf_counter()
        self._write(self.seconds)

    def save_now_and_then(self) -> None:
        if time.perf_counter() - self._saved > _SAVE_SECONDS:
            self.save()
