"""The files of an event store: a few facts, and the parts of one table, each there whole or not at all.

A part is an Arrow file of some ten thousand events. On a disk it is mapped into memory, so a column costs nothing until
it is read, and nothing afterwards; from object storage only the requested columns are fetched. Each event is in one
part only, and a part is changed by writing it whole under the same name: a reader sees either the old or the new one.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs as arrow_fs

from mast.arrays import IntArray
from mast.errors import MastError, errno_of, first_line
from mast.files import atomic_file, remove_orphans, sole_writer, write_atomic
from mast.uris import is_uri, open_uri

FACTS = "event_store.json"
OLD_TABLE = "events.lance"  # in stores of earlier versions, which were LanceDB tables
_PART = re.compile(r"^events-(\d+)-[0-9a-f]{8}\.arrow$")
_KEY = b"mast"  # under which a part describes itself, in its schema
_FEW = 1_000  # rows that are checked one by one instead of the whole part


class Part(NamedTuple):
    """What is known about a part without reading it.

    Attributes:
        name: of the file.
        rows: events in it.
        first: its first recording in alphabetical order.
        last: its last recording.
    """

    name: str
    rows: int
    first: str
    last: str


class OpenPart:
    """A part that is being read.

    Attributes:
        name: of the file.
        schema: of all its columns.

    Raises:
        MastError: the file is damaged.
    """

    def __init__(self, folder: str, name: str, file: Any, *, mapped: bool) -> None:
        self.name = name
        self._place = f"{folder}/{name}"
        self._file = file
        self._mapped = mapped
        with _reporting_damage(self._place):
            self.schema = pa.ipc.open_file(file).schema

    def facts(self) -> Part:
        """What the part says about itself."""
        try:
            return Part(self.name, **json.loads((self.schema.metadata or {})[_KEY]))
        except (ValueError, KeyError, TypeError):
            raise _damage_error(self._place, "it does not say what it holds") from None

    def read(self, columns: Sequence[str], rows: IntArray | None = None) -> pa.Table:
        """Some columns, of all rows or of some; checked, as a damaged file could otherwise end the process."""
        with _reporting_damage(self._place):
            # choosing columns copies them, which a memory-mapped file does not need
            fields = None if self._mapped else [self.schema.get_field_index(column) for column in columns]
            reader = pa.ipc.open_file(self._file, options=pa.ipc.IpcReadOptions(included_fields=fields))
            table = reader.read_all().select(list(columns))
            if rows is not None and len(rows) <= _FEW:
                table = pa.concat_tables([table.slice(0, 0), *(table.slice(row, 1) for row in rows)])
            table.validate(full=True)
            return table if rows is None or len(rows) <= _FEW else table.take(pa.array(rows))


class StoreFolder:
    """Where a store lies: a folder, or a place in object storage."""

    def __init__(self, uri: str | Path) -> None:
        self.uri = str(uri)
        name = self.uri.removeprefix("file://")
        self.local = None if is_uri(name) else Path(name)
        self._mapped = self.local is not None and os.name == "posix"  # elsewhere it could not be replaced
        if self.local is None:
            self._system, self._path = open_uri(name)
        else:
            self._system, self._path = arrow_fs.LocalFileSystem(use_mmap=self._mapped), str(self.local)
        self._known: dict[tuple[str, int, int | None], Part] = {}

    def lock(self) -> AbstractContextManager[None]:
        """Keep other processes of this kind from writing here; object storage has no locks.

        Raises:
            ConfigError: another process is writing.
        """
        if self.local is None:
            return nullcontext()
        remove_orphans(self.local)
        return sole_writer(self.local)

    def holds(self, name: str) -> bool:
        """Whether there is such a file or folder."""
        try:
            found = self._system.get_file_info(f"{self._path}/{name}")
        except (pa.ArrowException, OSError) as error:
            if errno_of(error) is not None:
                raise
            raise MastError(
                f"{self.uri}: cannot be opened ({first_line(error)}); check the name, access rights and network"
            ) from error
        return bool(found.type != arrow_fs.FileType.NotFound)

    def is_empty(self) -> bool:
        """Whether nothing is here."""
        if self.local is not None:
            return not self.local.is_file() and not (self.local.is_dir() and any(self.local.iterdir()))
        return not self._files()

    def read_facts(self) -> dict[str, Any]:
        """What the store says about itself."""
        with self._system.open_input_stream(f"{self._path}/{FACTS}") as file:
            facts: dict[str, Any] = json.loads(file.read())
        return facts

    def write_facts(self, facts: Mapping[str, Any]) -> None:
        """The first file of a store."""
        content = (json.dumps(dict(facts), indent=2, ensure_ascii=False) + "\n").encode()
        if self.local is not None:
            write_atomic(self.local / FACTS, content)
        else:
            self._upload(FACTS, content)

    def parts(self, schema: pa.Schema) -> list[Part]:
        """All parts that are there now, in the order they were started.

        Raises:
            MastError: one is damaged, or has other columns than ``schema``.
        """
        files = sorted((f for f in self._files() if _PART.match(f.base_name)), key=lambda f: f.base_name)
        keys = [(file.base_name, file.size, file.mtime_ns) for file in files]
        self._known = {key: self._known.get(key) or self._read_part(key[0], schema) for key in keys}
        return list(self._known.values())

    @contextmanager
    def open_part(self, name: str) -> Iterator[OpenPart]:
        """Read a part as it is now, even if another is written in its place meanwhile."""
        with self._system.open_input_file(f"{self._path}/{name}") as file:
            yield OpenPart(self.uri, name, file, mapped=self._mapped)

    def write(self, name: str, table: pa.Table) -> None:
        """Write a part, new or in place of the old one."""
        self._known = {key: part for key, part in self._known.items() if key[0] != name}
        names = pc.min_max(table["recording"]).as_py()
        about = {"rows": table.num_rows, "first": names["min"] or "", "last": names["max"] or ""}
        table = table.combine_chunks().replace_schema_metadata({_KEY: json.dumps(about)})
        if self.local is not None:
            with atomic_file(self.local / name) as part, pa.OSFile(str(part), "wb") as sink:
                _write_table(sink, table)
        else:
            held = pa.BufferOutputStream()
            _write_table(held, table)
            self._upload(name, held.getvalue())

    def new_name(self) -> str:
        """A name for a part that follows all others; no two processes choose the same."""
        numbers = [int(match[1]) for file in self._files() if (match := _PART.match(file.base_name))]
        return f"events-{max(numbers, default=0) + 1:06d}-{secrets.token_hex(4)}.arrow"

    def _files(self) -> list[Any]:
        selector = arrow_fs.FileSelector(self._path, allow_not_found=True)
        return list(self._system.get_file_info(selector))

    def _read_part(self, name: str, schema: pa.Schema) -> Part:
        with self.open_part(name) as opened:
            if not opened.schema.equals(schema):
                raise _damage_error(f"{self.uri}/{name}", "its columns are those of another store")
            return opened.facts()

    def _upload(self, name: str, content: Any) -> None:
        """Upload to object storage, under a temporary name first, as some kinds show half-written files."""
        beside = f"{self._path}/.{name}.{secrets.token_hex(4)}.part"
        with self._system.open_output_stream(beside) as file:
            file.write(content)
        self._system.move(beside, f"{self._path}/{name}")


def _write_table(sink: Any, table: pa.Table) -> None:
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


@contextmanager
def _reporting_damage(place: str) -> Iterator[None]:
    """Turn pyarrow's read errors in the block into a ``MastError``; errors of the machine pass through."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and errno_of(error) is not None:
            raise
        raise _damage_error(place, first_line(error)) from error


def _damage_error(place: str, reason: str) -> MastError:
    return MastError(f"{place}: is damaged ({reason}); remove this file and run the same mast embed again")
