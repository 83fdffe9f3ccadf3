"""Two commands that write one folder at the same time: the second is told so, in one sentence, and changes nothing."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import soundfile as sf
from typer.testing import CliRunner

from mast.cli.main import app
from mast.errors import ConfigError
from mast.files import sole_writer
from mast.inference.results import ResultsFolder
from mast.retrieval.event_store import EventStore


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    sf.write(folder / "a.wav", np.zeros(16_000), 16_000)
    sf.write(folder / "unheard.wav", np.zeros(16_000), 16_000)
    box = {
        "file": ["a.wav"],
        "start_s": [0.1],
        "end_s": [0.4],
        "low_hz": [10],
        "high_hz": [99],
        "label": ["x"],
    }
    pd.DataFrame(box).to_csv(folder / "boxes.csv", index=False)
    return folder


@pytest.mark.parametrize(
    ("command", "lock"),
    [
        (("fit", "DATA", "--preset", "tiny"), ".lock"),
        (("train", "DATA", "--preset", "tiny"), ".lock"),
        (("pretrain", "DATA", "--preset", "tiny"), ".lock"),
        (("selftrain", "DATA", "--unlabelled", "DATA", "--init", "DATA", "--preset", "tiny"), ".lock"),
        (("export", "default"), ".lock"),
        (("export", "default", "--format", "hub"), ".lock"),
        (("plan", "DATA", "--clips", "1"), ".lock"),
        (("simulate", "--recordings", "1"), ".lock"),
        (("detect", "DATA"), ".shard-0-of-1.lock"),
        (("detect", "DATA", "--shard", "1/4"), ".shard-1-of-4.lock"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_the_second_is_refused(data: Path, tmp_path: Path, command: tuple[str, ...], lock: str) -> None:
    out = tmp_path / "out"
    words = [str(data) if word == "DATA" else word for word in command]
    with sole_writer(out, lock):
        where = [str(out)] if "simulate" in words else ["--out", str(out)]
        told = CliRunner().invoke(app, [*words, *where, "--quiet"])
        assert isinstance(told.exception, ConfigError), told.output
        assert "out: is being written by another process" in str(told.exception)
        assert [path.name for path in out.iterdir()] == [lock]


def test_a_store_of_events(tmp_path: Path) -> None:
    store = EventStore.create(tmp_path / "store", 4, "a-model")
    with (
        sole_writer(tmp_path / "store"),
        pytest.raises(ConfigError, match="is being written by another process"),
    ):
        store.add([])
    store.add([])


def test_a_full_disk_keeps_the_old_tables_of_detections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    results = ResultsFolder(out, {"model": "m", "threshold": 0.5, "embeddings": 0}, tmp_path)
    results.combine(["raven"])
    before = sorted(path.name for path in out.iterdir())

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(OSError, match=r"detections\.(csv|parquet)"):
            results.combine(["raven"])
    assert sorted(path.name for path in out.iterdir()) == before
    results.combine(["raven"])
    assert sorted(path.name for path in out.iterdir()) == before
