"""Lines of JSON that many processes append to one folder, any of which may be killed at any moment."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any


class Journal:
    """Records in the files ``<name><suffix>`` of a folder; a writer has a name of its own.

    A record is there once its line is complete. Half a line, from a writer at work or one that was killed,
    is not there.

    Args:
        folder: need not exist yet.
        suffix: which files belong to the journal.
    """

    def __init__(self, folder: Path, suffix: str) -> None:
        self.folder = folder
        self.suffix = suffix
        self._read_to: dict[str, int] = {}

    def append(self, name: str, records: Iterable[dict[str, Any]], *, durable: bool) -> None:
        """Add records to the file of writer ``name``; ``durable`` waits until they have reached the disk."""
        # The empty line in front ends the half line that a full disk may have left there.
        text = "\n" + "".join(json.dumps(record) + "\n" for record in records)
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / f"{name}{self.suffix}").open("ab") as file:
            file.write(text.encode())
            file.flush()
            if durable:
                os.fsync(file.fileno())

    def news(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Records that were added by anybody since the last call, each with its writer's name."""
        for file_name in self._changed():
            start = self._read_to.get(file_name, 0)
            with (self.folder / file_name).open("rb") as file:
                file.seek(start)
                text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._read_to[file_name] = start + len(whole)
            for line in whole.splitlines():
                try:
                    record = json.loads(line)
                except ValueError:
                    continue  # empty, or half a line that was given up: as good as absent
                yield file_name.removesuffix(self.suffix), record

    def _changed(self) -> list[str]:
        """Files that have grown since they were read; asked for each key that is missing, so kept cheap."""
        try:
            with os.scandir(self.folder) as entries:
                return sorted(
                    entry.name
                    for entry in entries
                    if entry.name.endswith(self.suffix)
                    and entry.stat().st_size > self._read_to.get(entry.name, 0)
                )
        except (FileNotFoundError, NotADirectoryError):
            return []


def new_name() -> str:
    """A name no other writer has."""
    return uuid.uuid4().hex[:16]
