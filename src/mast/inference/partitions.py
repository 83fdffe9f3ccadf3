"""Events as a Parquet dataset by site and date, which DuckDB, pandas, Spark and Arrow read as one table.

``site=OAK/date=2023-05-10/part-0.parquet``: whoever asks for one site or one week reads only that. The date is the
event's own, so a recording may cross midnight. A site or date that is not known is called ``unknown``: Hive's name for
null would let DuckDB read the others as dates, but pyarrow, and so pandas, cannot read such a folder next to others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

PARTITIONED = "partitioned"
UNKNOWN = "unknown"
_ROWS_IN_MEMORY = 200_000  # about 50 MB


def write_partitions(tables: Iterable[pa.Table], folder: Path) -> None:
    """Write events into ``folder``, a bounded number of them in memory at a time.

    Args:
        tables: in the event schema. Best in the order of site and time: a partition is then one file, or few.
        folder: exists and is empty.
    """
    parts: Counter[Path] = Counter()
    for table in batch_tables(tables, _ROWS_IN_MEMORY):
        _write(table, folder, parts)


def batch_tables(tables: Iterable[pa.Table], rows: int) -> Iterator[pa.Table]:
    """The rows of all tables, in tables of at least this many; most recordings of a quiet place hold nothing."""
    waiting: list[pa.Table] = []
    held = 0
    for table in tables:
        if table.num_rows:
            waiting.append(table)
            held += table.num_rows
        if held >= rows:
            yield pa.concat_tables(waiting)
            waiting, held = [], 0
    if waiting:
        yield pa.concat_tables(waiting)


def _write(table: pa.Table, folder: Path, parts: Counter[Path]) -> None:
    """One more file in each partition that has events in this table."""
    site = pc.if_else(pc.equal(table["site"], ""), UNKNOWN, table["site"])
    day = pc.utf8_slice_codeunits(table["datetime"], 0, 10)
    date = pc.if_else(pc.equal(day, ""), UNKNOWN, day)
    keyed = table.drop_columns(["site"]).append_column("site", site).append_column("date", date)
    for key in keyed.group_by(["site", "date"]).aggregate([]).to_pylist():
        rows = keyed.filter(
            pc.and_(pc.equal(keyed["site"], key["site"]), pc.equal(keyed["date"], key["date"]))
        ).drop_columns(["site", "date"])  # the folders' names say them
        place = folder / f"site={quote(key['site'], safe='')}" / f"date={key['date']}"
        place.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, place / f"part-{parts[place]}.parquet")
        parts[place] += 1
