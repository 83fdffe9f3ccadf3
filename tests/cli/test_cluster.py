"""`mast cluster`, from a store to tables, a map and contact sheets."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import soundfile as sf
import typer
from typer.testing import CliRunner

from mast.cli.cluster import cluster
from mast.errors import ConfigError, MastError
from mast.events import as_events
from mast.retrieval.event_store import EventBatch, EventStore


def run(*arguments: object) -> str:
    app = typer.Typer()
    app.command()(cluster)
    result = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def fill(store: EventStore, centres: np.ndarray, each: int, labels: list[str], prefix: str = "") -> None:
    rng = np.random.default_rng(len(prefix))
    group = np.repeat(np.arange(len(centres)), each)
    events = pd.DataFrame(
        {
            "recording": [f"{prefix}{'AB'[k % 2]}.wav" for k in range(len(group))],
            "start_s": np.arange(len(group)) * 0.05,
            "end_s": np.arange(len(group)) * 0.05 + 0.3,
            "low_hz": 1_000.0,
            "high_hz": 2_000.0,
            "score": 0.8,
            "label": [labels[g] for g in group],
            "site": "S1",
            "source": "detector",
        }
    )
    vectors = centres[group] + 0.1 * rng.normal(size=(len(group), centres.shape[1]))
    store.add([EventBatch(as_events(events), vectors.astype(np.float32))])


@pytest.mark.slow
def test_groups_novelty_and_sheets(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    centres = np.linalg.qr(rng.normal(size=(16, 16)))[0][:3] * 2 + 1
    store = EventStore.create(tmp_path / "events", 16, "mast-x")
    fill(store, centres, 40, ["", "", ""])
    known = EventStore.create(tmp_path / "known", 16, "mast-x")
    fill(known, centres[:2], 10, ["wren", "robin"], "k")
    (tmp_path / "recordings").mkdir()
    sf.write(tmp_path / "recordings" / "A.wav", 0.01 * rng.normal(size=16_000 * 8), 16_000)  # B is missing
    out = tmp_path / "out"
    stdout = run(
        tmp_path / "events", "--out", out, "--annotated", tmp_path / "known", "--audio", tmp_path / "recordings",
        "--tiles", 6, "--quiet",
    )  # fmt: skip
    assert "3 groups among 120 events" in stdout
    assert "the most novel first, against 20 annotated events" in stdout
    assert f"open {out / 'index.html'}." in stdout
    table = pd.read_csv(out / "clusters.csv", keep_default_na=False)
    assert {"id", "cluster", "x", "y", "novelty", "beyond", "nearest_label"} <= set(table.columns)
    assert pd.read_parquet(out / "clusters.parquet")["id"].tolist() == table["id"].tolist()
    assert table["id"].is_unique
    # three groups, each made of one centre's events
    centre = (table["start_s"] / 0.05).round().astype(int) // 40
    grouped = table[table["cluster"] >= 0]
    assert len(grouped) > 100
    assert (grouped.groupby("cluster")["start_s"].count() > 25).all()
    assert (pd.crosstab(grouped["cluster"], centre[grouped.index]) > 0).sum(axis=1).tolist() == [1, 1, 1]
    # the one that nobody has annotated is the most novel
    summary = pd.read_csv(out / "summary.csv", keep_default_na=False)
    newest = grouped[grouped["cluster"] == summary["cluster"][0]]
    assert set(centre[newest.index]) == {2}
    assert set(table.loc[centre == 0, "nearest_label"]) == {"wren"}
    page = (out / "index.html").read_text(encoding="utf-8")
    assert page.count("<audio") > 0
    assert "in 3 groups, the most novel first." in page
    assert "recording not found: B.wav" in page
    assert len(list((out / "sheets").glob("cluster-00*.png"))) == 3
    assert (out / "map.png").stat().st_size > 10_000


def test_few_events_without_sound_or_labels(tmp_path: Path) -> None:
    store = EventStore.create(tmp_path / "events", 4, "mast-x")
    fill(store, np.eye(4)[:2], 5, ["", ""])
    stdout = run(tmp_path / "events", "--out", tmp_path / "out", "--quiet")
    assert "the largest first, because nothing is annotated" in stdout
    assert "contact sheets need --audio" in stdout
    assert not (tmp_path / "out" / "index.html").exists()
    (tmp_path / "recordings").mkdir()
    run(tmp_path / "events", "--out", tmp_path / "sheets", "--audio", tmp_path / "recordings", "--quiet")
    assert "the largest first." in (tmp_path / "sheets" / "index.html").read_text(encoding="utf-8")
    assert pd.read_csv(tmp_path / "out" / "clusters.csv")["novelty"].isna().all()


def test_wrong_wishes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MastError, match="no such folder"):
        run(tmp_path / "none", "--out", tmp_path / "out")
    empty = EventStore.create(tmp_path / "events", 4, "mast-x")
    with pytest.raises(MastError, match="holds no events"):
        run(tmp_path / "events", "--out", tmp_path / "out")
    fill(empty, np.eye(4)[:1], 3, ["a"])
    EventStore.create(tmp_path / "other", 4, "mast-y")
    with pytest.raises(ConfigError, match="cannot be compared"):
        run(tmp_path / "events", "--out", tmp_path / "out", "--annotated", tmp_path / "other")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    with pytest.raises(ConfigError, match="exists already"):
        run(tmp_path / "events", "--out", tmp_path / "full")
    assert "Example:" in inspect.getdoc(cluster)  # type: ignore[operator]
