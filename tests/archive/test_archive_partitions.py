"""The dataset by site and date: every event once, in the folder where one would look for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from duckdb_answers import ask_duckdb
from random_detector import write_sound
from typer.testing import Result

from mast.events import EVENT_COLUMNS, as_events
from mast.inference import partitions
from mast.inference.partitions import write_partitions

Run = Callable[..., Result]
SITES = ["OAK", "", "Plot A/β=1%", "unknown place"]


def events(n: int) -> pd.DataFrame:
    """Of four sites, four days and none, in an unhelpful order."""
    return as_events(
        pd.DataFrame(
            {
                "recording": [f"r{i % 7}.wav" for i in range(n)],
                "start_s": [float(i) for i in range(n)],
                "end_s": [i + 0.5 for i in range(n)],
                "low_hz": 100.0,
                "high_hz": 900.0,
                "score": 0.5,
                "site": [SITES[i % 4] for i in range(n)],
                "datetime": [f"2023-05-{10 + i % 3}T23:59:59.000" if i % 5 else "" for i in range(n)],
            }
        )
    )


def write(table: pd.DataFrame, folder: Path, pieces: int) -> None:
    folder.mkdir()
    size = -(-len(table) // pieces)
    parts = [table[k : k + size] for k in range(0, len(table), size)]
    write_partitions((pa.Table.from_pandas(part, preserve_index=False) for part in parts), folder)


@pytest.mark.parametrize("rows_in_memory", [1, 50, 1_000])
def test_every_event_once_whatever_fits_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows_in_memory: int
) -> None:
    monkeypatch.setattr(partitions, "_ROWS_IN_MEMORY", rows_in_memory)
    table = events(240)
    write(table, tmp_path / "p", pieces=12)
    expected = table.assign(
        site=table["site"].replace("", "unknown"), date=table["datetime"].str[:10].replace("", "unknown")
    ).sort_values("start_s", ignore_index=True)
    # DuckDB
    found = ask_duckdb(f"FROM '{tmp_path}/p/**/*.parquet' ORDER BY start_s")
    assert found["site"].tolist() == expected["site"].tolist()
    assert found["date"].tolist() == expected["date"].tolist()
    assert set(found.columns) == {*EVENT_COLUMNS, "date"}
    for column in set(EVENT_COLUMNS) - {"site"}:
        assert found[column].tolist() == expected[column].tolist(), column
    # pandas
    again = pd.read_parquet(tmp_path / "p").sort_values("start_s", ignore_index=True)
    assert again["site"].astype(str).tolist() == expected["site"].tolist()
    assert again["start_s"].tolist() == expected["start_s"].tolist()
    few = pd.read_parquet(tmp_path / "p", filters=[("site", "=", "OAK"), ("date", "=", "2023-05-11")])
    assert len(few) == ((expected["site"] == "OAK") & (expected["date"] == "2023-05-11")).sum() > 0


def test_what_is_in_order_is_one_file_a_partition(tmp_path: Path) -> None:
    write(events(240).sort_values(["site", "datetime"]), tmp_path / "p", pieces=12)
    files = list((tmp_path / "p").rglob("*.parquet"))
    assert len(files) == len({path.parent for path in files}) == 16
    assert (tmp_path / "p" / "site=Plot%20A%2F%CE%B2%3D1%25" / "date=2023-05-10" / "part-0.parquet").is_file()


def test_nothing(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    write_partitions([], tmp_path / "p")
    write_partitions([pa.Table.from_pandas(events(0), preserve_index=False)], tmp_path / "p")
    assert list((tmp_path / "p").iterdir()) == []


def test_detect_rewrites_it_each_time(run: Run, model: Path, tmp_path: Path) -> None:
    root, out = tmp_path / "in", tmp_path / "out"
    write_sound(root / "OAK" / "20230510_235955.wav", 12)  # over midnight
    write_sound(root / "b.wav", 4, seed=1)
    arguments = (root, "--model", model, "--out", out, "--formats", "partitioned")
    for _ in range(2):
        assert run(*arguments).exit_code == 0
        folders = sorted(p.relative_to(out / "partitioned").as_posix() for p in out.glob("partitioned/*/*"))
        assert folders == [
            "site=OAK/date=2023-05-10",
            "site=OAK/date=2023-05-11",
            "site=unknown/date=unknown",
        ]
        whole = pd.read_parquet(out / "detections.parquet")
        counted = ask_duckdb(f"SELECT count(*) AS n FROM '{out}/partitioned/**/*.parquet'")
        assert counted["n"].tolist() == [len(whole)]
        late = ask_duckdb(f"FROM '{out}/partitioned/**/*.parquet' WHERE date = '2023-05-11'")
        assert sorted(late["start_s"]) == sorted(whole.loc[whole["datetime"] >= "2023-05-11", "start_s"])
        (root / "b.wav").unlink()
        write_sound(root / "b.wav", 6, seed=2)
