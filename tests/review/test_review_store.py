"""The file under a review: what a power cut may not take."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from mast.errors import ConfigError
from mast.review.store import STORE, Store

FULL = 2  # PRAGMA synchronous: a commit waits until the disk has it


def test_a_commit_is_on_disk_before_it_is_answered(tmp_path: Path) -> None:
    """No test can cut the power; SQLite promises this for these settings and for no weaker ones."""
    store = Store(tmp_path / STORE)
    try:
        with store.writing() as writer, store.reading() as reader:
            for db in (writer, reader):
                assert db.execute("PRAGMA synchronous").fetchone()[0] == FULL
                assert db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    finally:
        store.close()
    again = Store(tmp_path / STORE)  # the setting belongs to a connection, not to the file
    with again.writing() as db:
        assert db.execute("PRAGMA synchronous").fetchone()[0] == FULL
    again.close()


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / STORE)

    def fail_half_way() -> None:
        with store.writing() as db:
            db.execute("INSERT INTO facts VALUES ('a', 'b')")
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        fail_half_way()
    with store.writing() as db:
        db.execute("INSERT INTO facts VALUES ('c', 'd')")
    with store.reading() as db:
        assert [tuple(row) for row in db.execute("SELECT * FROM facts")] == [("c", "d")]
    store.close()


def test_another_layout_is_refused(tmp_path: Path) -> None:
    Store(tmp_path / STORE).close()
    with sqlite3.connect(tmp_path / STORE) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(ConfigError, match="layout 99"):
        Store(tmp_path / STORE)
