"""Events and vectors as they are stored: rows of an Arrow table.

Vectors have length one, so their numbers lie within ±1. They are stored as 16-bit integers, with ±32767 for ±1: as
small as 16-bit floats and at least as precise here, and NumPy turns them into floats many times faster.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from mast.arrays import Vectors
from mast.errors import ConfigError
from mast.events import EVENT_COLUMNS, as_events
from mast.retrieval.event_ids import event_ids
from mast.retrieval.nearest import to_unit_length

_SCALE = 32_767  # what 1.0 is stored as
_SAME_DISTANCE = 1e-4  # distance up to which two vectors of one event are the same but for rounding
_BLOCK_ROWS = 256  # vectors turned into floats at once: they stay in the processor's cache


class EventBatch(NamedTuple):
    """Some events and the embedding of each, row by row."""

    events: pd.DataFrame
    vectors: Vectors  # (N, D), of any length
    projections: Vectors | None = None  # (N, P)


def storage_schema(width: int, projection_width: int) -> pa.Schema:
    """``id``, the event columns, ``vector``, and ``projection`` where the model has one."""
    fields = [("id", pa.string())]
    fields += [(name, pa.string() if kind == "str" else pa.float64()) for name, kind in EVENT_COLUMNS.items()]
    fields.append(("vector", pa.list_(pa.int16(), width)))
    if projection_width:
        fields.append(("projection", pa.list_(pa.int16(), projection_width)))
    return pa.schema(fields)


def storage_table(batch: EventBatch, schema: pa.Schema, where: str) -> pa.Table:
    """A batch as it is stored: in the event schema with an ``id``, vectors of length one.

    Raises:
        ConfigError: vectors of another width or number, or not finite, or zero; ``where`` is named.
    """
    events = as_events(batch.events)[list(EVENT_COLUMNS)]
    if any(len(given) != len(events) for given in (batch.vectors, batch.projections) if given is not None):
        raise ConfigError(f"{where}: {len(events)} events given with {len(batch.vectors)} vectors")
    columns = [pa.array(event_ids(events), pa.string())]
    columns += [
        pa.array(events[name], pa.string()) if kind == "str" else pa.array(events[name].to_numpy())
        for name, kind in EVENT_COLUMNS.items()
    ]
    columns.append(_storage_column(unit_vectors(batch.vectors, schema.field("vector").type.list_size, where)))
    if "projection" in schema.names:
        width = schema.field("projection").type.list_size
        columns.append(
            _storage_column(np.full((len(events), width), np.nan, dtype=np.float32))
            if batch.projections is None
            else _storage_column(unit_vectors(batch.projections, width, f"{where}, projections"))
        )
    return pa.table(columns, schema=schema)


def as_vectors(column: pa.ChunkedArray) -> Vectors:
    """(N, D) vectors of a column; NaN where one is missing."""
    vectors = _stored_integers(column).astype(np.float32)
    vectors /= _SCALE
    vectors[column.is_null().to_numpy()] = np.nan
    return vectors


def distances(column: pa.ChunkedArray, wanted: Vectors) -> NDArray[np.float32]:
    """(N,) 1 − cosine of the vectors in a column, none of them missing, and a (D,) vector of length one."""
    numbers = _stored_integers(column)
    cosine = np.empty(len(numbers), dtype=np.float32)
    floats, scaled = np.empty((_BLOCK_ROWS, len(wanted)), dtype=np.float32), wanted / _SCALE
    for first in range(0, len(numbers), _BLOCK_ROWS):
        block = numbers[first : first + _BLOCK_ROWS]
        floats[: len(block)] = block
        np.matmul(floats[: len(block)], scaled, out=cosine[first : first + len(block)])
    return np.maximum(np.subtract(1.0, cosine, out=cosine), 0.0, out=cosine)


def find_changed(now: pa.Table, before: pa.Table) -> NDArray[np.bool_]:
    """Row by row, whether events differ by more than rounding."""
    a, b = (some.select(list(EVENT_COLUMNS)).to_pandas() for some in (now, before))
    differs: NDArray[np.bool_] = ~((a == b) | (a.isna() & b.isna())).all(axis=1).to_numpy(dtype=bool)
    for column in {"vector", "projection"} & set(now.column_names):
        for first in range(0, len(now), _BLOCK_ROWS):
            new, old = (as_vectors(some[column].slice(first, _BLOCK_ROWS)) for some in (now, before))
            moved = 1.0 - (new * old).sum(axis=1) > _SAME_DISTANCE
            gained = ~np.isnan(new[:, 0]) & np.isnan(old[:, 0])
            differs[first : first + _BLOCK_ROWS] |= moved | gained
    return differs


def unit_vectors(vectors: ArrayLike, width: int, where: str) -> Vectors:
    """(N, D) float32 of length one.

    Raises:
        ConfigError: another width, or a vector that is zero or not finite; ``where`` is named.
    """
    given = np.asarray(vectors, dtype=np.float32)
    if given.ndim != 2 or given.shape[1] != width:
        found = given.shape[1] if given.ndim == 2 else given.shape
        raise ConfigError(
            f"{where}: vectors of width {found} given where {width} was expected; are they another model's?"
        )
    bad = np.flatnonzero(~np.isfinite(given).all(axis=1) | ~given.any(axis=1))
    if len(bad):
        raise ConfigError(
            f"{where}: vector {bad[0]} (of {len(given)}) is zero or holds no finite numbers; expected a direction, so "
            "embed that event again"
        )
    return to_unit_length(given)


def _storage_column(vectors: Vectors) -> pa.Array:
    """(N, D) vectors as a column; NaN is a missing one."""
    missing = np.isnan(vectors[:, 0])
    numbers = np.rint(np.where(missing[:, None], 0.0, vectors) * _SCALE).astype(np.int16)
    return pa.FixedSizeListArray.from_arrays(
        pa.array(numbers.ravel()), vectors.shape[1], mask=pa.array(missing) if missing.any() else None
    )


def _stored_integers(column: pa.ChunkedArray) -> NDArray[np.int16]:
    """(N, D) as stored, without a copy where the column is one piece; zeros where a vector is missing."""
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    values = pc.fill_null(array.values, 0) if array.values.null_count else array.values
    numbers: NDArray[np.int16] = values.to_numpy()
    return numbers.reshape(-1, array.type.list_size)[array.offset :][: len(array)]
