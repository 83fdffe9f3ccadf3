"""Events and their embeddings in one table that can be searched: on disk, or in object storage by URI.

The table has the event columns, a stable ``id``, the ``vector`` (the encoder's features inside the box, length one)
and, where the model has that head, its contrastive ``projection``. :mod:`mast.retrieval.parts` says how it is kept.
Vectors of different models do not compare, so a store holds those of one model and refuses others.

Distance is 1 − cosine: 0 for the same direction, 1 for nothing in common, 2 for the opposite. Every search looks at
every event that meets the conditions, a part at a time.

An event is known by its recording, box and source, so adding it again after a crash duplicates nothing.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from mast.arrays import Vectors
from mast.errors import ConfigError, MastError, first_line, machine_fault, not_a_folder
from mast.events import EVENT_COLUMNS, as_events
from mast.retrieval.event_ids import event_ids
from mast.retrieval.event_table import (
    EventBatch,
    as_vectors,
    distances,
    find_changed,
    storage_schema,
    storage_table,
    unit_vectors,
)
from mast.retrieval.filters import Filter, is_one_of
from mast.retrieval.parts import FACTS, OLD_TABLE, OpenPart, Part, StoreFolder
from mast.version import __version__

_PART_ROWS = 32_768  # events in a part: some 25 MB, which is what a search has in memory at a time
_COMMIT_S = 60.0  # so that a kill costs at most a minute of work
_EVENT_FIELDS = ["id", *EVENT_COLUMNS]


class Added(NamedTuple):
    """What became of the events given to :meth:`EventStore.add`."""

    new: int
    changed: int  # known before, but with another label, score … or sound
    removed: int  # no longer among the events of a recording that was given whole
    unchanged: int


class EventStore:
    """Embedded events of one model. Use :meth:`create` or :meth:`open`.

    Attributes:
        uri: where it lies.
        model_id: of the detector whose encoder made the vectors, as in the column ``model``.
        width: D of the vectors.
        projection_width: of the contrastive projections; 0 where there are none.
        model_folder: where that model lay when the store was made; empty where not stated.
        band_hz: upper edge of the band in which it heard the events; None where not stated.

    >>> from mast.retrieval.event_store import EventStore
    >>> store = EventStore.open("calls")
    >>> len(store), store.recordings()
    (5, ['S01_20240512_055800.flac', 'S03_20240512_094600.flac'])
    """

    def __init__(self, folder: StoreFolder, facts: Mapping[str, Any]) -> None:
        self.uri = folder.uri
        self._folder = folder
        self.model_id = str(facts["model"])
        self.width = int(facts["width"])
        self.projection_width = int(facts["projection_width"])
        self.model_folder = str(facts["model_folder"])
        edge = facts.get("band_hz")  # stores of earlier versions do not say
        self.band_hz = None if edge is None else float(edge)
        self._schema = storage_schema(self.width, self.projection_width)

    @classmethod
    def create(
        cls,
        uri: str | Path,
        width: int,
        model_id: str,
        *,
        projection_width: int = 0,
        model_folder: str = "",
        band_hz: float | None = None,
    ) -> EventStore:
        """Make an empty store.

        Args:
            uri: a folder to create, or a URI of object storage (``s3://bucket/name``, ``gs://…``).
            width: D of the vectors.
            model_id: of the model they come from.
            projection_width: of the contrastive projections; 0 for none.
            model_folder: where the model lies, for later searches by sound.
            band_hz: upper edge of the band that it listens to.

        Raises:
            ConfigError: something is already there, or the width makes no sense.
        """
        if width < 1:
            raise ConfigError(f"{uri}: vectors of width {width} make no sense; expected at least 1")
        facts = {
            "model": model_id,
            "width": width,
            "projection_width": projection_width,
            "model_folder": model_folder,
            "band_hz": band_hz,
            "mast": __version__,
        }
        folder = StoreFolder(uri)
        try:
            if not folder.is_empty():
                raise ConfigError(
                    f"{uri}: already exists; choose another name, or add to it if it is a store"
                )
            folder.write_facts(facts)
        except (pa.ArrowException, OSError) as error:
            if machine_fault(error) is not None:
                raise
            raise ConfigError(f"{uri}: no store can be made here ({first_line(error)})") from None
        return cls(folder, facts)

    @classmethod
    def open(cls, uri: str | Path) -> EventStore:
        """Open a store that is there.

        Raises:
            MastError: there is none, or it is one that an earlier mast made.

        >>> from mast.retrieval.event_store import EventStore
        >>> EventStore.open("calls").width
        323
        """
        wanted = "expected an event store, as `mast embed` writes it"
        folder = StoreFolder(uri)
        if folder.local is not None and not folder.local.is_dir():
            raise MastError(f"{uri}: {not_a_folder(folder.local)}; {wanted}")
        try:
            if not folder.holds(FACTS) and folder.holds(OLD_TABLE):
                raise MastError(
                    f"{uri}: is a store of an earlier mast, which this one does not read; remove it, or choose "
                    "another name, and rebuild it with mast embed"
                )
            return cls(folder, folder.read_facts())
        except FileNotFoundError:
            raise MastError(f"{uri}: holds no event store; {wanted}") from None
        except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
            if machine_fault(error) is not None:
                raise
            raise MastError(f"{uri}: cannot be opened ({first_line(error)}); {wanted}") from None

    @staticmethod
    def exists(uri: str | Path) -> bool:
        """Whether there is a store, even one that :meth:`open` refuses."""
        folder = StoreFolder(uri)
        return folder.holds(FACTS) or folder.holds(OLD_TABLE)

    def __len__(self) -> int:
        return sum(part.rows for part in self._parts())

    def refuse_other_model(
        self, model_id: str, width: int | None = None, band_hz: float | None = None
    ) -> None:
        """Refuse vectors of another model or band, or of an earlier mast: they cannot be compared with the store's.

        Raises:
            ConfigError: ``model_id`` or ``band_hz`` is not that of the store, or its vectors do not have ``width``
                numbers.
        """
        if model_id != self.model_id:
            raise ConfigError(
                f"{self.uri}: holds vectors of {self.model_id}, which cannot be compared with those of {model_id}; use "
                "the store's model, or another store"
            )
        if width is not None and width != self.width:
            raise ConfigError(
                f"{self.uri}: holds vectors of {self.width} numbers, but this version of mast makes {width}; rebuild "
                "the store with mast embed"
            )
        # rates are whole numbers, so the edges of one band may differ by a fraction of a hertz
        if band_hz and self.band_hz and not math.isclose(band_hz, self.band_hz, rel_tol=1e-3):
            raise ConfigError(
                f"{self.uri}: holds vectors of sounds up to {self.band_hz:g} Hz, which cannot be compared with those "
                f"in a band up to {band_hz:g} Hz; use the store's band, or another store"
            )

    def add(self, batches: Iterable[EventBatch], *, whole_recordings: bool = False) -> Added:
        """Add events; what is there already is not duplicated, what has changed is replaced.

        In constant memory: some ten thousand events are held, for at most a minute, then written.

        Args:
            batches: events with their vectors; normalised here.
            whole_recordings: each batch holds all events of the recordings it names; any others are removed.

        Raises:
            ConfigError: vectors of another width, or not finite, or zero; or another process
                is adding events.

        >>> import numpy as np
        >>> import pandas as pd
        >>> from mast.retrieval.event_store import EventStore
        >>> from mast.retrieval.event_table import EventBatch
        >>> box = {"recording": "a.wav", "start_s": 1.0, "end_s": 2.0, "low_hz": 2000.0, "high_hz": 9000.0}
        >>> store = EventStore.create("store", 3, "my-model")
        >>> store.add([EventBatch(pd.DataFrame([box]), np.array([[0.5, 0.1, 0.2]], dtype=np.float32))])
        Added(new=1, changed=0, removed=0, unchanged=0)
        """
        total = np.zeros(4, dtype=np.int64)
        held: list[pa.Table] = []
        with self._folder.lock():
            since = time.monotonic()
            for given in batches:
                held.append(storage_table(given, self._schema, self.uri))
                if sum(map(len, held)) >= _PART_ROWS or time.monotonic() - since > _COMMIT_S:
                    total += self._commit(pa.concat_tables(held), whole_recordings)
                    held, since = [], time.monotonic()
            if held:
                total += self._commit(pa.concat_tables(held), whole_recordings)
        return Added(*total.tolist())

    def holds(self, events: pd.DataFrame) -> bool:
        """Whether these are exactly the events that the store has for their recordings."""
        given = as_events(events)[list(EVENT_COLUMNS)]
        given = given.assign(id=event_ids(given)).set_index("id").sort_index()
        known = [table for _, table in self._rows_of_recordings(given["recording"], _EVENT_FIELDS)]
        found = (
            pa.concat_tables([self._empty_table(_EVENT_FIELDS), *known])
            .to_pandas()
            .set_index("id")
            .sort_index()
        )
        if not given.index.equals(found.index.astype(given.index.dtype)):
            return False
        return bool(((given == found) | (given.isna() & found.isna())).all(axis=None))

    def search(
        self, vector: ArrayLike, k: int = 10, where: Filter | None = None, *, projection: bool = False
    ) -> pd.DataFrame:
        """The nearest events, nearest first.

        Args:
            vector: (D,) of any length; (P,) for projections.
            k: how many.
            where: only among these.
            projection: compare contrastive projections instead of the encoder's features.

        Returns:
            ``id``, ``distance`` (1 − cosine) and the event columns; fewer than ``k`` rows where there are fewer.

        Raises:
            ConfigError: the vector has another width or is not finite, or the store has no projections.

        >>> from mast.retrieval.event_store import EventStore
        >>> store = EventStore.open("calls")
        >>> trill = store.find(k=1)["id"]
        >>> store.search(store.vectors(trill)[0], k=3)[["start_s", "label"]]
           start_s     label
        0   0.5775  trill-06
        1   7.5875  trill-06
        2   3.8475  trill-06
        """
        if k < 1:
            raise ConfigError(f"{k} neighbours make no sense; expected at least 1")
        column, width = self._vector_column(projection)
        given = np.asarray(vector, dtype=np.float32).reshape(1, -1)
        wanted = unit_vectors(given, width, "the vector to search for")[0]
        best = self._empty_table(_EVENT_FIELDS).append_column("distance", pa.array([], pa.float32()))
        for part, table in self._matching(where, [column]):
            if table[column].null_count:
                table = table.filter(table[column].is_valid())
            distance = distances(table[column], wanted)
            near = np.argpartition(distance, k)[:k] if len(distance) > k else np.arange(len(distance))
            events = part.read(_EVENT_FIELDS, table["row"].to_numpy()[near])
            events = events.append_column("distance", pa.array(distance[near]))
            best = pa.concat_tables([best, events]).sort_by([(c, "ascending") for c in ("distance", "id")])
            best = best.slice(0, k)
        found: pd.DataFrame = best.select(["id", "distance", *EVENT_COLUMNS]).to_pandas()
        return found

    def find(self, where: Filter | None = None, k: int = 10) -> pd.DataFrame:
        """``id`` and the event columns of the first ``k`` events that meet the conditions.

        >>> from mast.retrieval.event_store import EventStore
        >>> from mast.retrieval.filters import Filter
        >>> found = EventStore.open("calls").find(Filter(labels=("trill-06",)), k=2)
        >>> found[["recording", "start_s", "label"]]
                          recording  start_s     label
        0  S01_20240512_055800.flac   0.5775  trill-06
        1  S01_20240512_055800.flac   3.8475  trill-06
        """
        found = [self._empty_table(_EVENT_FIELDS)]
        for _, table in self._matching(where, _EVENT_FIELDS):
            found.append(table.select(_EVENT_FIELDS))
            if sum(map(len, found)) >= k:
                break
        first: pd.DataFrame = pa.concat_tables(found).slice(0, k).to_pandas()
        return first

    def get(self, ids: Sequence[str]) -> pd.DataFrame:
        """``id`` and the event columns of some events, in the order requested.

        Raises:
            MastError: there is no such event.
        """
        found: pd.DataFrame = self._rows(ids, _EVENT_FIELDS).to_pandas()
        return found

    def vectors(self, ids: Sequence[str], *, projection: bool = False) -> Vectors:
        """(N, D) vectors of some events, in the order requested; NaN where an event has no projection.

        Raises:
            MastError: there is no such event.

        >>> from mast.retrieval.event_store import EventStore
        >>> store = EventStore.open("calls")
        >>> store.vectors(store.find(k=2)["id"]).shape
        (2, 323)
        """
        column, _ = self._vector_column(projection)
        return as_vectors(self._rows(ids, ["id", column])[column])

    def known_vectors(self, ids: Sequence[str]) -> tuple[list[str], Vectors]:
        """The ids that the store holds, in the order requested, and their (N, D) vectors."""
        found = self._rows(ids, ["id", "vector"], only_known=True)
        return found["id"].to_pylist(), as_vectors(found["vector"])

    def batches(
        self, rows: int = 10_000, where: Filter | None = None, *, projection: bool = False
    ) -> Iterator[EventBatch]:
        """All events (with ``id``) and their vectors, a batch at a time.

        Args:
            rows: maximum number in a batch.
            where: only these.
            projection: also give the projections.

        >>> from mast.retrieval.event_store import EventStore
        >>> for batch in EventStore.open("calls").batches(rows=3):
        ...     print(len(batch.events), batch.vectors.shape)
        3 (3, 323)
        2 (2, 323)
        """
        projection = projection and self.projection_width > 0
        columns = [*_EVENT_FIELDS, "vector", *(["projection"] if projection else [])]
        for _, table in self._matching(where, columns):
            for first in range(0, len(table), rows):
                some = table.slice(first, rows)
                yield EventBatch(
                    some.select(_EVENT_FIELDS).to_pandas(),
                    as_vectors(some["vector"]),
                    as_vectors(some["projection"]) if projection else None,
                )

    def recordings(self) -> list[str]:
        """Names of all recordings that have events here, sorted."""
        names: set[str] = set()
        for _, table in self._matching(None, ["recording"]):
            names.update(table["recording"].unique().to_pylist())
        return sorted(names)

    def count(self, where: Filter | None = None) -> int:
        """How many events meet the conditions."""
        return sum(len(table) for _, table in self._matching(where, ["id"]))

    def _parts(self) -> list[Part]:
        return self._folder.parts(self._schema)

    def _vector_column(self, projection: bool) -> tuple[str, int]:
        if projection and not self.projection_width:
            raise ConfigError(
                f"{self.uri}: holds no contrastive projections; search by the encoder's vectors"
            )
        return ("projection", self.projection_width) if projection else ("vector", self.width)

    def _empty_table(self, columns: list[str]) -> pa.Table:
        """A table without rows."""
        return self._schema.empty_table().select(columns)

    def _matching(self, where: Filter | None, columns: list[str]) -> Iterator[tuple[OpenPart, pa.Table]]:
        """Part by part, these columns and the ``row`` of the events that meet the conditions."""
        where = where or Filter()
        names = sorted(where.recordings)
        for part in self._parts():
            at = bisect_left(names, part.first)
            if names and (at == len(names) or names[at] > part.last):
                continue
            with self._folder.open_part(part.name) as opened:
                rows = np.flatnonzero(where.mask(opened.read(where.columns))) if where.columns else None
                table = opened.read(columns, rows)
                number = np.arange(len(table)) if rows is None else rows
                yield opened, table.append_column("row", pa.array(number))

    def _rows_of_recordings(
        self, recordings: Iterable[str], columns: list[str]
    ) -> list[tuple[str, pa.Table]]:
        """Name of each part that has events of these recordings, and those events."""
        names = tuple(set(recordings))
        found = self._matching(Filter(recordings=names), columns) if names else ()
        return [(part.name, table.select(columns)) for part, table in found if len(table)]

    def _rows(self, ids: Sequence[str], columns: list[str], *, only_known: bool = False) -> pa.Table:
        """Some columns of some events, in order; an unknown event is an error unless ``only_known``."""
        found = [self._empty_table(columns)]
        for part, own in self._matching(None, ["id"]):
            rows = own["row"].filter(is_one_of(own["id"], ids)).to_numpy()
            if len(rows):
                found.append(part.read(columns, rows))
        table = pa.concat_tables(found)
        row_of = {name: row for row, name in enumerate(table["id"].to_pylist())}
        missing = [name for name in ids if name not in row_of]
        if missing and not only_known:
            raise MastError(
                f"{self.uri}: there is no event {missing[0]} among its {len(self):,}; `mast search {self.uri}` "
                "lists some"
            )
        return table.take(pa.array([row_of[name] for name in ids if name in row_of], type=pa.int64()))

    def _commit(self, given: pa.Table, whole_recordings: bool) -> NDArray[np.int64]:
        """Write some events; gives the numbers of new, changed, removed and unchanged ones.

        New events go into one part; then the parts that held changed or removed events are rewritten. So a kill loses
        nothing, and at worst leaves removed events for the next time.
        """
        given = given.filter(pa.array(~given["id"].to_pandas().duplicated().to_numpy()))
        is_new = np.ones(len(given), dtype=bool)
        changed = removed = 0
        rewrites: list[tuple[str, pa.Table, pa.Array]] = []
        for name, known in self._rows_of_recordings(given["recording"].to_pylist(), self._schema.names):
            at = pc.index_in(known["id"], value_set=given["id"].combine_chunks())
            again = at.is_valid().to_numpy()
            now = given.take(at.drop_null())
            is_new[at.drop_null().to_numpy()] = False
            differs = find_changed(now, known.filter(pa.array(again)))
            goes = ~again if whole_recordings else np.zeros(len(again), dtype=bool)
            changed, removed = changed + int(differs.sum()), removed + int(goes.sum())
            goes[again] = differs
            if goes.any():
                ids = known["id"].filter(pa.array(goes)).combine_chunks()
                rewrites.append((name, now.filter(pa.array(differs)), ids))
        self._append(given.filter(pa.array(is_new)))
        for name, instead, ids in rewrites:
            self._rewrite(name, instead, without=ids)
        new = int(is_new.sum())
        return np.array([new, changed, removed, len(given) - new - changed])

    def _append(self, table: pa.Table) -> None:
        """Write new events into the part that has the most room, or a new one; in object storage always into a new one.

        There is no lock there, and two processes that write the same part would lose each other's events.
        """
        if not len(table):
            return
        room = min(self._parts(), key=lambda part: part.rows, default=None)
        if room is not None and room.rows + len(table) <= _PART_ROWS and self._folder.local is not None:
            self._rewrite(room.name, table)
        else:
            self._folder.write(self._folder.new_name(), table)

    def _rewrite(self, name: str, further: pa.Table, without: pa.Array | None = None) -> None:
        """Write a part with further events, and without those of some ids."""
        with self._folder.open_part(name) as opened:
            kept = opened.read(self._schema.names)
        if without is not None:
            kept = kept.filter(pc.invert(pc.is_in(kept["id"], value_set=without)))
        self._folder.write(name, pa.concat_tables([kept, further]))
