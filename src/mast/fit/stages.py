"""What a run has done, and from what: a stage is skipped when nothing that decides its result has changed.

Each stage leaves a small file ``RUN/stages/NAME.json`` with its inputs, written whole when it starts and again when it
is done. A kill at any moment leaves a stage either started (its own folder continues where it was) or done.
A stage whose inputs have changed starts anew; the folder it filled before is moved aside, never mixed with the new one.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mast.errors import MastError
from mast.files import remove_parts, write_whole

Say = Callable[[str], None]
EARLIER = "earlier"  # below a run: what stages with other inputs had made
UPSTREAM = "upstream."  # before the name of a stage: an input that is another stage's fingerprint


@dataclass(frozen=True)
class Stage:
    """One step of a run.

    Attributes:
        name: as users see it, such as ``self-train``.
        inputs: everything that decides its result, by dotted names; plain values.
        products: what must be there if it is done.
        folder: what it fills over hours, moved aside when the inputs have changed; None where ``work`` writes its few
            files over the old ones.
    """

    name: str
    inputs: Mapping[str, Any]
    products: tuple[Path, ...]
    folder: Path | None = None

    @property
    def fingerprint(self) -> str:
        """The same exactly when the inputs are."""
        return digest(dict(self.inputs))


@dataclass(frozen=True)
class Ledger:
    """The stages of one run folder.

    Attributes:
        run: the folder.
        say: told of what is skipped and what starts anew.
        main: whether this process writes; in a run of several processes one does.
        wait: until all processes are here.
    """

    run: Path
    say: Say
    main: bool = True
    wait: Callable[[], None] = lambda: None

    def do(self, stage: Stage, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Do a stage unless it is done; gives back what ``work`` gave, now or then.

        Args:
            stage: name and inputs.
            work: does it; what it gives back is kept with the stage, so it has to be plain values.
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
                gone = next(path for path in stage.products if not path.exists())
                self.say(f"{stage.name}: {gone} is gone, made again")
            elif before is not None:
                self.say(f"{stage.name}: was stopped, resuming")
            for path in (self._path(stage.name), *stage.products):
                remove_parts(path)  # of a write that was killed
            self._write(stage, done=False, result={})
        self.wait()
        result = work()
        self.wait()
        if self.main:
            self._write(stage, done=True, result=result)
        return result

    def _clear(self, stage: Stage, before: dict[str, Any] | None) -> None:
        """Move aside what was made from other inputs; refuse what this command has not made."""
        changed = _sentence(before["inputs"], stage.inputs) if before is not None else ""
        if stage.folder is None or not _filled(stage.folder):
            if changed:
                self.say(f"{stage.name}: {changed}; made again")
            return
        if before is None:
            raise MastError(
                f"{stage.folder}: holds files, but not of a `mast fit`; choose another --out, or move them away"
            )
        number = 1
        while (aside := self.run / EARLIER / f"{stage.folder.name}-{number}").exists():
            number += 1
        aside.parent.mkdir(exist_ok=True)
        os.rename(stage.folder, aside)
        self.say(f"{stage.name}: {changed}; starting over, what it had made is kept in {aside}")

    def _path(self, name: str) -> Path:
        return self.run / "stages" / f"{name}.json"

    def _read(self, name: str) -> dict[str, Any] | None:
        path = self._path(name)
        if not path.exists():
            return None
        try:
            found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            return found if {"fingerprint", "inputs", "done", "result"} <= found.keys() else None
        except (json.JSONDecodeError, AttributeError):
            raise MastError(f"{path}: is not what mast fit wrote; delete it to do {name} again") from None

    def _write(self, stage: Stage, *, done: bool, result: dict[str, Any]) -> None:
        content = {
            "stage": stage.name,
            "fingerprint": stage.fingerprint,
            "done": done,
            "result": result,
            "inputs": dict(stage.inputs),
        }
        write_whole(self._path(stage.name), json.dumps(content, indent=2).encode())


def digest(value: Any) -> str:
    """A short fingerprint of plain values, the same on every machine."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).hexdigest()[:16]


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as one level with dotted names.

    >>> flat({"train": {"epochs": 5}})
    {'train.epochs': 5}
    """
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def _filled(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())


def _sentence(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What changed, in words: the first three."""
    now = json.loads(json.dumps(dict(now)))
    changed = [
        f"{name.removeprefix(UPSTREAM)} was done again"
        if name.startswith(UPSTREAM)
        else f"{name} was {_short(before.get(name))}, now {_short(now.get(name))}"
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name)
    ]
    more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
    return "; ".join(changed[:3]) + more


def _short(value: Any) -> str:
    if value is None:
        return "not there"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "…"
