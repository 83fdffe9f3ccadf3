"""`mast classify`: every event named or unknown, and what to expect of the names."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer
from typer.testing import CliRunner, Result

from mast.cli.classify import classify
from mast.detect_options import DetectOptions
from mast.errors import MastError
from mast.events import EVENT_COLUMNS
from mast.inference import Detector
from mast.retrieval.event_store import EventBatch, EventStore

sys.path.insert(0, str(Path(__file__).parents[1] / "retrieval"))
from made_up_events import make_events
from toy_embedder import save_embedder, write_species

app = typer.Typer()
app.command()(classify)
CENTRES = np.linalg.qr(np.random.default_rng(0).normal(size=(32, 32)))[0][:3]


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["--quiet", "--device", "cpu", *map(str, arguments)])


def failing(*arguments: str | Path) -> str:
    result = run(*arguments)
    assert isinstance(result.exception, MastError), result.output
    return str(result.exception)


def save_store(
    uri: Path, n: int, kinds: list[int], *, seed: int, labelled: bool, model_id: str = "mast-a"
) -> EventStore:
    """Events of some kinds, each a direction; ``source`` tells the truth."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(kinds, n)
    names = np.array(["wren", "frog", "cicada"])[kind]
    events = make_events(n, recordings=8, seed=seed).assign(label=names if labelled else "", source=names)
    store = EventStore.create(uri, 32, model_id)
    store.add([EventBatch(events, (CENTRES[kind] + 0.08 * rng.normal(size=(n, 32))).astype(np.float32))])
    return store


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Events to name, of three kinds; examples of two of them."""
    root = tmp_path_factory.mktemp("stores")
    save_store(root / "events", 90, [0, 1, 2], seed=1, labelled=False)
    save_store(root / "examples", 80, [0, 1], seed=2, labelled=True)
    return root / "events", root / "examples"


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_known_kinds_are_named_and_the_third_is_unknown(
    stores: tuple[Path, Path], tmp_path: Path, suffix: str
) -> None:
    events, examples = stores
    out = tmp_path / f"named{suffix}"
    result = run(events, "--examples", examples, "--out", out)
    assert result.exit_code == 0, result.output
    named = pd.read_csv(out, keep_default_na=False) if suffix == ".csv" else pd.read_parquet(out)
    further = [
        "given_label",
        "label_share",
        "distance",
        "nearest_label",
        "nearest_id",
        "label_score",
        "label_source",
        "id",
    ]
    assert list(named.columns) == [*EVENT_COLUMNS, *further]
    assert len(named) == 90
    known = named["source"] != "cicada"
    assert (named["label"][known] == named["source"][known]).mean() > 0.9
    assert (named["label"][~known] == "unknown").mean() > 0.9
    told = json.loads((tmp_path / f"named{suffix}.calibration.json").read_text())
    held = told["held_out"]
    assert told["examples"] == held["events"] == 80
    assert told["recordings"] == 8
    assert held["right_share"] == pytest.approx(held["right"] / held["named"])
    assert held["right_share"] >= 0.9
    assert held["unknown_found_share"] > 0.9
    assert (
        f"{(named['label'] != 'unknown').sum()} of 90 events named by 80 examples of 2 labels"
        in result.output
    )
    assert "of them correctly" in result.output


def test_a_store_may_name_its_own_events(tmp_path: Path) -> None:
    store = save_store(tmp_path / "s", 60, [0, 1], seed=3, labelled=True)
    more = make_events(20, recordings=8, seed=4).assign(label="", source="wren")
    store.add([EventBatch(more, np.tile(CENTRES[0], (20, 1)).astype(np.float32))])
    out = tmp_path / "named.csv"
    assert run(tmp_path / "s", "--examples", tmp_path / "s", "--out", out).exit_code == 0
    named = pd.read_csv(out, keep_default_na=False)
    assert (named["id"] != named["nearest_id"]).all()
    assert set(named["label"][named["given_label"] == ""]) == {"wren"}


def test_examples_may_be_a_dataset(tmp_path: Path) -> None:
    model = save_embedder(tmp_path / "model")
    species = write_species(tmp_path / "data", recordings=5, seconds=6)
    detector = Detector(model, DetectOptions(device="cpu"))
    width = detector.embedding_width
    store = EventStore.create(tmp_path / "s", width, detector.model_id, model_folder=str(model))
    store.add([EventBatch(make_events(5), np.eye(5, width, dtype=np.float32))])
    result = run(
        tmp_path / "s", "--examples", species, "--out", tmp_path / "named.csv", "--max-distance", "2"
    )
    assert result.exit_code == 0, result.output
    named = pd.read_csv(tmp_path / "named.csv")
    assert set(named["label"]) <= {"tone", "hiss"}
    told = json.loads((tmp_path / "named.csv.calibration.json").read_text())
    assert told["chosen"] is False
    assert told["held_out"]["right_share"] > 0.8  # low tones and high hisses differ for any encoder


def test_mistakes(stores: tuple[Path, Path], tmp_path: Path) -> None:
    events, examples = stores
    out = tmp_path / "named.csv"
    assert ".csv or .parquet" in failing(events, "--examples", examples, "--out", tmp_path / "named.xlsx")
    assert "no such store or folder" in failing(events, "--examples", tmp_path / "none", "--out", out)
    assert "none of its events has a label" in failing(events, "--examples", events, "--out", out)
    save_store(tmp_path / "other", 5, [0], seed=0, labelled=True, model_id="mast-b")
    assert "cannot be compared" in failing(events, "--examples", tmp_path / "other", "--out", out)
    EventStore.create(tmp_path / "empty", 32, "mast-a")
    assert "no events to name" in failing(tmp_path / "empty", "--examples", examples, "--out", out)
    assert "precision 0" in failing(events, "--examples", examples, "--out", out, "--precision", "0")
    assert not out.exists()
