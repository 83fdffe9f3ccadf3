"""Events and their embeddings in one table that can be searched: on disk, or in object storage by URI.

The table (LanceDB) has the event columns, a stable ``id``, the ``vector`` (the encoder's features inside the box,
length one) and, where the model has that head, its contrastive ``projection``. Vectors of different models do not
compare, so a store holds those of one model and refuses others.

Distance is 1 − cosine: 0 for the same direction, 1 for none in common, 2 for the opposite. Up to
:data:`EXACT_UP_TO` events every vector is compared; above, :meth:`EventStore.build_index` makes an index of vectors in
a quarter of the size. Searches go through all of it, then compare the best candidates exactly: several times faster.

Every commit is whole or not at all. An event is known by its recording, box and source, so what is added again after
a kill is found there and not doubled.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import lancedb
import numpy as np
import pandas as pd
import pyarrow as pa
from lancedb.index import BTree, IvfSq
from numpy.typing import ArrayLike, NDArray

from mast.errors import ConfigError, MastError, machine_fault
from mast.events import EVENT_COLUMNS, as_events
from mast.files import naming, sole_writer
from mast.retrieval.filters import Filter, texts
from mast.version import __version__

Vectors = NDArray[np.float32]

EXACT_UP_TO = 50_000  # events; our choice: a comparison with all of them takes well under a tenth of a second
_TABLE = "events"
_KEY = b"mast"  # of what a store says about itself, in the table's schema
_COMMIT_ROWS = 16_384  # held before they are written: some 20 MB, and files of useful size
_COMMIT_S = 60.0  # or after this long, so that a kill costs a minute of work at most
_SAME = 1e-4  # distance up to which two vectors of one event are the same but for rounding
_REFINE = 5  # × k candidates are compared exactly
_LIST = 1_000  # names in one SQL condition
_MANY_FILES = 200  # above, a search opens more files than it should
_KEEP_VERSIONS = timedelta(hours=1)  # readers may be in the middle of an older state
_PARTITION_ROWS = 8_192  # of the index
_MOST_PARTITIONS = 128  # each is an open file while the index is made, and a part of its memory
_LANCE_SETTINGS = {
    "LANCE_DEFAULT_IO_BUFFER_SIZE": str(32 * 2**20),  # read ahead; Lance's own 2 GB is all there is
    "LANCE_SHUFFLE_BATCH_BYTES": str(16 * 2**20),  # should there be no other shuffler
    "LANCE_LEGACY_SHUFFLER": "1",  # a file a partition: with one for all, the whole index is read back at once
}
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
_USUAL_MMAP_BYTES = 32 * 2**20  # where glibc's own threshold ends up in a process that frees large blocks
_SMALL_MMAP_BYTES = 64 * 2**10


class EventBatch(NamedTuple):
    """Some events and the embedding of each, row by row."""

    events: pd.DataFrame
    vectors: Vectors  # (N, D), of any length
    projections: Vectors | None = None  # (N, P)


class Added(NamedTuple):
    """What became of the events given to :meth:`EventStore.add`."""

    new: int
    changed: int  # known before, but with another label, score … or sound
    removed: int  # of a recording that was given whole, and no longer among its events
    unchanged: int


class EventStore:
    """Embedded events of one model. Use :meth:`create` or :meth:`open`.

    Attributes:
        uri: where it lies.
        model_id: of the detector whose encoder made the vectors, as in the column ``model``.
        width: D of the vectors.
        projection_width: of the contrastive projections; 0 where there are none.
        model_folder: where that model lay when the store was made; empty where nobody said.
    """

    def __init__(self, uri: str, table: Any, about: Mapping[str, Any]) -> None:
        self.uri = uri
        self._table = table
        self.model_id = str(about["model"])
        self.width = int(about["width"])
        self.projection_width = int(about["projection_width"])
        self.model_folder = str(about.get("model_folder", ""))

    @classmethod
    def create(
        cls,
        uri: str | Path,
        width: int,
        model_id: str,
        *,
        projection_width: int = 0,
        model_folder: str = "",
        storage_options: Mapping[str, str] | None = None,
    ) -> EventStore:
        """Make an empty store.

        Args:
            uri: a folder that is made, or a URI of object storage (``s3://bucket/name``, ``gs://…``, ``az://…``).
            width: D of the vectors.
            model_id: of the model they come from.
            projection_width: of the contrastive projections; 0 for none.
            model_folder: where the model lies, for those who search by sound later.
            storage_options: for object storage, such as keys and endpoint; the environment's by default.

        Raises:
            ConfigError: there is something already, or the width makes no sense.
        """
        if width < 1:
            raise ConfigError(f"{uri}: vectors of width {width} make no sense; expected at least 1")
        local = _local(uri)
        if local is not None and (local.is_file() or (local.is_dir() and any(local.iterdir()))):
            raise ConfigError(f"{uri}: is there already; choose another name, or add to it if it is a store")
        about = {
            "model": model_id,
            "width": width,
            "projection_width": projection_width,
            "model_folder": model_folder,
            "mast": __version__,
        }
        try:
            with naming(Path(uri)):
                table = _connect(uri, storage_options).create_table(
                    _TABLE, schema=_schema(width, projection_width, about)
                )
        except (ValueError, OSError, RuntimeError) as error:
            if machine_fault(error) is not None:
                raise
            raise ConfigError(f"{uri}: no store can be made here ({_first_line(error)})") from None
        return cls(str(uri), table, about)

    @classmethod
    def open(cls, uri: str | Path, *, storage_options: Mapping[str, str] | None = None) -> EventStore:
        """Open a store that is there.

        Raises:
            MastError: there is none.
        """
        wanted = "expected an event store, as `mast embed` writes it"
        local = _local(uri)
        if local is not None and not local.is_dir():
            raise MastError(f"{uri}: no such folder; {wanted}")
        try:
            table = _connect(uri, storage_options).open_table(_TABLE)
            about = json.loads((table.schema.metadata or {})[_KEY])
        except (ValueError, OSError, RuntimeError, KeyError) as error:
            reason = (
                "holds no event store" if local is not None else f"cannot be opened ({_first_line(error)})"
            )
            raise MastError(f"{uri}: {reason}; {wanted}") from None
        return cls(str(uri), table, about)

    @staticmethod
    def exists(uri: str | Path) -> bool:
        """Whether a store can be opened there."""
        try:
            EventStore.open(uri)
        except MastError:
            return False
        return True

    def __len__(self) -> int:
        return int(self._table.count_rows())

    def refuse_other_model(self, model_id: str, width: int | None = None) -> None:
        """Vectors of different models do not compare, nor those that an earlier mast made another way.

        Raises:
            ConfigError: ``model_id`` is not that of the store, or its vectors do not have ``width`` numbers.
        """
        if model_id != self.model_id:
            raise ConfigError(
                f"{self.uri}: holds vectors of {self.model_id}, which do not compare with those of {model_id}; use "
                "that model, or another store"
            )
        if width is not None and width != self.width:
            raise ConfigError(
                f"{self.uri}: holds vectors of {self.width} numbers, and this version of mast makes {width}; make the "
                "store anew with mast embed"
            )

    def add(
        self, batches: Iterable[EventBatch], *, model_id: str = "", whole_recordings: bool = False
    ) -> Added:
        """Add events; what is there already is not doubled, what has changed is replaced.

        In constant memory: a commit holds some ten thousand events, and is made at least once a minute.

        Args:
            batches: events with their vectors; normalised here.
            model_id: of the vectors, where the caller has not compared it yet.
            whole_recordings: each batch holds all events of the recordings it names: others of them are removed.

        Raises:
            ConfigError: vectors of another model or width, or not finite, or without direction; or another process
                is adding events.
        """
        if model_id:
            self.refuse_other_model(model_id)
        with self._alone():
            return self._add(batches, whole_recordings)

    def _add(self, batches: Iterable[EventBatch], whole_recordings: bool) -> Added:
        total = np.zeros(4, dtype=np.int64)
        held: list[EventBatch] = []
        since = time.monotonic()
        for given in batches:
            held.append(self._checked(EventBatch(*given)))
            if sum(len(some.events) for some in held) >= _COMMIT_ROWS or time.monotonic() - since > _COMMIT_S:
                total += self._commit(held, whole_recordings)
                held, since = [], time.monotonic()
                _trim()
        if held:
            total += self._commit(held, whole_recordings)
        return Added(*total.tolist())

    def holds(self, events: pd.DataFrame) -> bool:
        """Whether these are exactly the events that the store has of their recordings."""
        given = as_events(events)[list(EVENT_COLUMNS)]
        given = given.assign(id=event_ids(given)).set_index("id").sort_index()
        columns = ["id", *EVENT_COLUMNS]
        known = self._known(sorted(set(given["recording"])), columns).to_pandas().set_index("id").sort_index()
        if not given.index.equals(known.index.astype(given.index.dtype)):
            return False
        return bool(((given == known) | (given.isna() & known.isna())).all(axis=None))

    def remove_recordings(self, recordings: Iterable[str]) -> None:
        """Remove all events of some recordings."""
        self._delete("recording", recordings)

    def search(
        self,
        vector: ArrayLike,
        k: int = 10,
        where: Filter | None = None,
        exact: bool | None = None,
        *,
        projection: bool = False,
    ) -> pd.DataFrame:
        """The nearest events, nearest first.

        Args:
            vector: (D,) of any length; (P,) for projections.
            k: how many.
            where: only among these.
            exact: compare with all; by default only where there is no index, or few events.
            projection: compare contrastive projections instead of the encoder's features.

        Returns:
            ``id``, ``distance`` (1 − cosine) and the event columns; fewer than ``k`` rows where there are fewer.

        Raises:
            ConfigError: another width, no number, or no projections here.
        """
        if k < 1:
            raise ConfigError(f"{k} neighbours make no sense; expected at least 1")
        column, width = ("projection", self.projection_width) if projection else ("vector", self.width)
        if width == 0:
            raise ConfigError(
                f"{self.uri}: holds no contrastive projections; search by the encoder's vectors"
            )
        wanted = _unit(
            np.asarray(vector, dtype=np.float32).reshape(1, -1), width, "the vector to search for"
        )[0]
        conditions = [where.sql() if where is not None else "", f"{column} IS NOT NULL" if projection else ""]
        condition = " AND ".join(part for part in conditions if part)
        if exact is None:
            exact = not self.indexed(projection=projection) or len(self) <= EXACT_UP_TO
        query = self._table.search(wanted, vector_column_name=column).distance_type("cosine").limit(k)
        if condition:
            query = query.where(condition, prefilter=True)
        if exact:
            query = query.bypass_vector_index()
        else:
            # All partitions: in 20 of 97 lay only 0.64 of the ten nearest to a vector unlike all others, and with a
            # filter Lance stops at the first k it finds. 0 is no limit.
            query = query.minimum_nprobes(_MOST_PARTITIONS).maximum_nprobes(0).refine_factor(_REFINE)
        found = query.select(["id", *EVENT_COLUMNS, "_distance"]).to_arrow().to_pandas()
        found = found.rename(columns={"_distance": "distance"})
        found["distance"] = found["distance"].clip(lower=0.0)
        found = found.sort_values(["distance", "id"], ignore_index=True)
        ordered: pd.DataFrame = found[["id", "distance", *EVENT_COLUMNS]]
        return ordered

    def find(self, where: Filter | None = None, k: int = 10) -> pd.DataFrame:
        """``id`` and the event columns of the first ``k`` events that meet the conditions, as they were added."""
        query = self._table.search().select(["id", *EVENT_COLUMNS]).limit(k)
        if where is not None and where.sql():
            query = query.where(where.sql())
        found: pd.DataFrame = query.to_arrow().to_pandas()
        return found

    def get(self, ids: Sequence[str]) -> pd.DataFrame:
        """``id`` and the event columns of some events, in the order asked for.

        Raises:
            MastError: there is no such event.
        """
        found: pd.DataFrame = self._rows(ids, ["id", *EVENT_COLUMNS]).to_pandas()
        return found

    def vectors(self, ids: Sequence[str], *, projection: bool = False) -> Vectors:
        """(N, D) vectors of some events, in the order asked for; NaN where an event has no projection.

        Raises:
            MastError: there is no such event.
        """
        column, width = ("projection", self.projection_width) if projection else ("vector", self.width)
        if width == 0:
            raise ConfigError(f"{self.uri}: holds no contrastive projections")
        return _matrix(self._rows(ids, ["id", column])[column], width)

    def known_vectors(self, ids: Sequence[str]) -> tuple[list[str], Vectors]:
        """Those of some events that are here, in the order asked for, and their (N, D) vectors."""
        found = self._rows(ids, ["id", "vector"], only_known=True)
        return found["id"].to_pylist(), _matrix(found["vector"], self.width)

    def batches(
        self, rows: int = 10_000, where: Filter | None = None, *, projection: bool = False
    ) -> Iterator[EventBatch]:
        """All events (with ``id``) and their vectors, some at a time, in no particular order.

        Args:
            rows: at most, in a batch.
            where: only these.
            projection: also give the projections.
        """
        projection = projection and self.projection_width > 0
        columns = ["id", *EVENT_COLUMNS, "vector", *(["projection"] if projection else [])]
        query = self._table.search().select(columns)
        if where is not None and where.sql():
            query = query.where(where.sql())
        for part in query.to_batches(batch_size=rows):
            for first in range(0, part.num_rows, rows):
                some = pa.table(part.slice(first, rows))
                yield EventBatch(
                    some.select(["id", *EVENT_COLUMNS]).to_pandas(),
                    _matrix(some["vector"], self.width),
                    _matrix(some["projection"], self.projection_width) if projection else None,
                )

    def recordings(self) -> list[str]:
        """Names of all recordings that have events here, sorted."""
        names: set[str] = set()
        for part in self._table.search().select(["recording"]).to_batches():
            names.update(part["recording"].unique().to_pylist())
        return sorted(names)

    def count(self, where: Filter | None = None) -> int:
        """How many events meet the conditions."""
        return int(self._table.count_rows((where.sql() if where is not None else "") or None))

    def indexed(self, *, projection: bool = False) -> bool:
        """Whether there is an index for approximate search."""
        return self._index_name(projection) in {index.name for index in self._table.list_indices()}

    def build_index(self, *, at_least: int = EXACT_UP_TO) -> bool:
        """Put the store in order: many small files into large ones and, where there are many events, an index.

        Vectors are kept in it as bytes, one a number (IVF with scalar quantisation): built in seconds, and its
        candidates are compared exactly. Product quantisation took a hundred times as long to build. Events added
        later are found beside it, one by one; when they are more than ``at_least``, the index is made anew. In
        constant memory: what is read ahead, the sample that partitions are found with, and the number of partitions
        are all bounded.

        Args:
            at_least: events up to which none is made: comparing with all of them is as fast.

        Returns:
            Whether there is an index now.

        Raises:
            ConfigError: another process is adding events.
        """
        with self._alone(), naming(Path(self.uri)):
            return self._build_index(at_least)

    def _build_index(self, at_least: int) -> bool:
        name = self._index_name(False)
        known = self._table.index_stats(name)
        beside = len(self) if known is None else known.num_unindexed_rows
        if known is not None and beside <= at_least:
            return True
        if self._table.stats()["fragment_stats"]["num_fragments"] > _MANY_FILES:
            for index in self._table.list_indices():  # made anew, not carried along
                self._table.drop_index(index.name)
            self._table.optimize(cleanup_older_than=_KEEP_VERSIONS)
        if beside <= at_least:
            return False
        with _freed_at_once():
            for column in ("id", "recording"):
                self._table.create_index(column, config=BTree(), replace=True, name=f"{column}_order")
            for projection in (False, *([True] if self.projection_width else [])):
                column = "projection" if projection else "vector"
                rows = int(self._table.count_rows(f"{column} IS NOT NULL" if projection else None))
                if not rows:
                    continue
                kind = IvfSq(distance_type="cosine", num_partitions=_partitions(rows))
                self._table.create_index(column, config=kind, replace=True, name=self._index_name(projection))
        return True

    def _alone(self) -> AbstractContextManager[None]:
        """No other process of this kind writes the store; object storage has no locks, and sorts it out by itself."""
        local = _local(self.uri)
        return nullcontext() if local is None else sole_writer(local)

    @staticmethod
    def _index_name(projection: bool) -> str:
        return f"{'projection' if projection else 'vector'}_neighbours"

    def _checked(self, batch: EventBatch) -> EventBatch:
        """The batch in the event schema with an ``id``, each event once, vectors of length one."""
        events = as_events(batch.events)[list(EVENT_COLUMNS)]
        counts = {
            len(events),
            len(batch.vectors),
            *([len(batch.projections)] if batch.projections is not None else []),
        }
        if len(counts) > 1:
            raise ConfigError(f"{self.uri}: {len(events)} events given with {len(batch.vectors)} vectors")
        vectors = _unit(batch.vectors, self.width, self.uri)
        projections = None
        if self.projection_width and batch.projections is not None:
            projections = _unit(batch.projections, self.projection_width, f"{self.uri}, projections")
        return EventBatch(events.assign(id=event_ids(events)), vectors, projections)

    def _commit(self, held: list[EventBatch], whole_recordings: bool) -> NDArray[np.int64]:
        """Write some batches: new, changed, removed, unchanged."""
        events = pd.concat([some.events for some in held], ignore_index=True)
        table = pa.concat_tables([self._arrow(some) for some in held])
        once = ~events["id"].duplicated().to_numpy()
        events, table = events[once].reset_index(drop=True), table.filter(pa.array(once))
        known = self._known(sorted(set(events["recording"])))
        row_of = {name: row for row, name in enumerate(known["id"].to_pylist())}
        at = np.array([row_of.get(name, -1) for name in events["id"]], dtype=np.int64)
        differs = np.zeros(len(events), dtype=bool)
        if (at >= 0).any():
            differs[at >= 0] = self._differs(
                table.filter(pa.array(at >= 0)), known.take(pa.array(at[at >= 0]))
            )
        write = table.filter(pa.array((at < 0) | differs))
        stale = sorted(set(row_of) - set(events["id"])) if whole_recordings else []
        with naming(Path(self.uri)):
            if differs.any():
                merge = self._table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
                merge.execute(write)
            elif write.num_rows:
                self._table.add(write)
            self._delete("id", stale)
        new, changed = int((at < 0).sum()), int(differs.sum())
        return np.array([new, changed, len(stale), len(events) - new - changed])

    def _differs(self, now: pa.Table, before: pa.Table) -> NDArray[np.bool_]:
        """Row by row, whether anything but rounding has changed."""
        a, b = (some.select(list(EVENT_COLUMNS)).to_pandas() for some in (now, before))
        equal = (a == b) | (a.isna() & b.isna())
        differs = ~equal.all(axis=1).to_numpy()
        for column in ("vector", *(["projection"] if self.projection_width else [])):
            width = self.width if column == "vector" else self.projection_width
            new, old = (_matrix(some[column], width) for some in (now, before))
            moved = 1.0 - (new * old).sum(axis=1) > _SAME
            gained = np.isfinite(new).all(axis=1) & ~np.isfinite(old).all(axis=1)
            differs |= moved | gained
        return np.asarray(differs, dtype=bool)

    def _known(self, recordings: list[str], columns: list[str] | None = None) -> pa.Table:
        """All rows of some recordings."""
        names = self._table.schema.names if columns is None else columns
        parts = [
            self._table.search()
            .where(f"recording IN {texts(recordings[first : first + _LIST])}")
            .select(names)
            .to_arrow()
            for first in range(0, len(recordings), _LIST)
        ]
        return pa.concat_tables(parts) if parts else self._table.schema.empty_table().select(names)

    def _rows(self, ids: Sequence[str], columns: list[str], *, only_known: bool = False) -> pa.Table:
        """Some columns of some events, in order; of those that are here, or all of them or an error."""
        unique = list(dict.fromkeys(ids))
        parts = [
            self._table.search()
            .where(f"id IN {texts(unique[first : first + _LIST])}")
            .select(columns)
            .to_arrow()
            for first in range(0, len(unique), _LIST)
        ]
        found = pa.concat_tables(parts) if parts else self._table.schema.empty_table().select(columns)
        row_of = {name: row for row, name in enumerate(found["id"].to_pylist())}
        missing = [name for name in unique if name not in row_of]
        if only_known:
            ids = [name for name in ids if name in row_of]
        elif missing:
            raise MastError(
                f"{self.uri}: there is no event {missing[0]} among its {len(self):,}; `mast search {self.uri}` "
                "lists some"
            )
        return found.take(pa.array([row_of[name] for name in ids], type=pa.int64()))

    def _delete(self, column: str, names: Iterable[str]) -> None:
        wanted = list(names)
        for first in range(0, len(wanted), _LIST):
            self._table.delete(f"{column} IN {texts(wanted[first : first + _LIST])}")

    def _arrow(self, batch: EventBatch) -> pa.Table:
        columns: dict[str, Any] = {
            name: pa.array(batch.events[name], type=_arrow_type(EVENT_COLUMNS.get(name, "str")))
            for name in ("id", *EVENT_COLUMNS)
        }
        columns["vector"] = _list_array(batch.vectors)
        if self.projection_width:
            kind = pa.list_(pa.float32(), self.projection_width)
            columns["projection"] = (
                pa.nulls(len(batch.events), kind)
                if batch.projections is None
                else _list_array(batch.projections)
            )
        return pa.table(columns).cast(_schema(self.width, self.projection_width))


def event_ids(events: pd.DataFrame) -> list[str]:
    """A name for each event that is the same whenever and wherever it is asked for.

    Made from recording, box (to a microsecond and a millihertz) and source; of equal boxes in one table the second
    gets a name of its own. It begins with a letter: spreadsheets take 12e45 for a number.
    """
    seen: dict[str, int] = {}
    names = []
    columns = ("recording", "source", "start_s", "end_s", "low_hz", "high_hz")
    for recording, source, *box in zip(*(events[name].tolist() for name in columns), strict=True):
        name = event_id(recording, source, box)
        repeat = seen.get(name, 0)
        seen[name] = repeat + 1
        names.append(event_id(recording, source, box, repeat=repeat) if repeat else name)
    return names


def event_id(recording: str, source: str, box: Sequence[float], *, repeat: int = 0) -> str:
    """The name of one event, as :func:`event_ids` gives it.

    Args:
        recording: its name.
        source: who drew the box.
        box: start and end in seconds, lower and upper edge in hertz.
        repeat: of equal events in one table, how many are before it.
    """
    start, end, low, high = box
    key = f"{recording}\n{source}\n{start:.6f}\n{end:.6f}\n{low:.3f}\n{high:.3f}"
    if repeat:
        key += f"\n{repeat}"
    return "e" + hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()[:20]


def _unit(vectors: ArrayLike, width: int, where: str) -> Vectors:
    """(N, D) float32 of length one; refused where that cannot be."""
    given = np.asarray(vectors, dtype=np.float32)
    if given.ndim != 2 or given.shape[1] != width:
        found = given.shape[1] if given.ndim == 2 else given.shape
        raise ConfigError(
            f"{where}: vectors of width {found} given where {width} was expected; are they another model's?"
        )
    length = np.linalg.norm(given.astype(np.float64), axis=1, keepdims=True)
    bad = np.flatnonzero(~np.isfinite(length[:, 0]) | (length[:, 0] == 0))
    if len(bad):
        raise ConfigError(
            f"{where}: vector {bad[0]} (of {len(given)}) is zero or holds no finite numbers; expected a direction, so "
            "embed that event again"
        )
    return np.asarray(given / length, dtype=np.float32)


def _matrix(column: pa.ChunkedArray, width: int) -> Vectors:
    """A column of lists → (N, D); NaN where a list is missing."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):  # of no rows
        return np.zeros((0, width), dtype=np.float32)
    missing = array.is_null().to_numpy(zero_copy_only=False)
    out = np.full((len(array), width), np.nan, dtype=np.float32)
    out[~missing] = array.drop_null().flatten().to_numpy(zero_copy_only=False).reshape(-1, width)
    return out


def _list_array(vectors: Vectors) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(
        pa.array(np.ascontiguousarray(vectors).ravel()), vectors.shape[1]
    )


def _schema(width: int, projection_width: int, about: Mapping[str, Any] | None = None) -> pa.Schema:
    fields = [("id", pa.string())]
    fields += [(name, _arrow_type(dtype)) for name, dtype in EVENT_COLUMNS.items()]
    fields.append(("vector", pa.list_(pa.float32(), width)))
    if projection_width:
        fields.append(("projection", pa.list_(pa.float32(), projection_width)))
    return pa.schema(fields, metadata=None if about is None else {_KEY: json.dumps(dict(about)).encode()})


def _arrow_type(dtype: str) -> pa.DataType:
    return pa.string() if dtype == "str" else pa.float64()


def _partitions(rows: int) -> int:
    """Of an index of so many vectors."""
    return min(max(1, rows // _PARTITION_ROWS), _MOST_PARTITIONS)


def _of_glibc(name: str) -> Callable[..., int] | None:
    """A function of the C library's memory management; ``None`` where it has no such thing."""
    if not sys.platform.startswith("linux"):
        return None
    function: Callable[..., int] | None = getattr(ctypes.CDLL(None), name, None)
    return function


def _trim() -> None:
    """Give freed memory back to the system: glibc keeps some for each of Lance's threads, and ever more of it."""
    trim = _of_glibc("malloc_trim")
    if trim is not None:
        trim(0)


@contextmanager
def _freed_at_once() -> Iterator[None]:
    """Meanwhile, blocks go back to the system when they are freed, and none stay with the thread that had them.

    That is slower, so it is not for always: a model's tensors would be paid for anew in each pass.
    """
    mallopt = _of_glibc("mallopt")
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _SMALL_MMAP_BYTES)
        mallopt(_M_TRIM_THRESHOLD, 2 * _SMALL_MMAP_BYTES)
    _trim()
    try:
        yield
    finally:
        if mallopt is not None:
            mallopt(_M_MMAP_THRESHOLD, _USUAL_MMAP_BYTES)
            mallopt(_M_TRIM_THRESHOLD, 2 * _USUAL_MMAP_BYTES)
        _trim()


def _connect(uri: str | Path, storage_options: Mapping[str, str] | None) -> Any:
    # Lance has no other way to be told; it reads them at first use
    for name, value in _LANCE_SETTINGS.items():
        os.environ.setdefault(name, value)
    options = dict(storage_options) if storage_options is not None else None
    # every read looks for what others have written since
    return lancedb.connect(str(uri), read_consistency_interval=timedelta(0), storage_options=options)


def _local(uri: str | Path) -> Path | None:
    """The folder of a store on this machine's disks; ``None`` for object storage."""
    name = str(uri)
    if name.startswith("file://"):
        return Path(name.removeprefix("file://"))
    return None if "://" in name else Path(name)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
