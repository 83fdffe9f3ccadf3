"""The model that ships with the package."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

import mast
from mast.data.recordings import load_dataset
from mast.data.simulate.dataset import Simulation, simulate_dataset
from mast.evaluation import evaluate
from mast.models.find import find_model

MAX_BYTES = 16_000_000


def test_it_is_small_and_says_what_it_is() -> None:
    folder = find_model("default")
    assert sum(path.stat().st_size for path in folder.iterdir()) < MAX_BYTES
    card = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    assert card["licence"] == "Apache-2.0"
    assert card["calibration"]
    assert "BIRDeep" in (folder / "README.md").read_text(encoding="utf-8")
    owed = pd.read_csv(folder / "attribution.csv")
    assert len(owed) > 100
    assert owed["licence"].str.contains("BY").all()


def test_it_finds_calls_of_a_world_it_never_heard(tmp_path: Path) -> None:
    world = Simulation(
        recordings=6, duration_s=30.0, sites=3, days=2, hours=(5.0, 8.0), seed=9_321, format="wav"
    )
    simulate_dataset(tmp_path, world)
    dataset = load_dataset(tmp_path)
    detector = mast.load(device="cpu")
    paths = sorted((tmp_path / "audio").glob("*.wav"))
    found = pd.concat(list(detector.stream(paths, root=tmp_path / "audio")))
    truth = dataset.annotations
    names = {Path(name).name: name for name in dataset.recordings["file"]}
    found = found.assign(recording=found["recording"].map(names))
    result = evaluate(truth.events, found, reviewed=truth.reviewed, threshold=0.0)
    assert len(truth.events) > 150
    # in float32 0.573, 0.556 and 0.746, with AVX-512 and with SSE kernels; in bfloat16 0.575, 0.561 and 0.744
    assert result.metrics["precision"] > 0.54
    assert result.metrics["recall"] > 0.52
    assert result.metrics["miou"] > 0.72
