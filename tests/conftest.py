"""Fixtures for all tests."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import soundfile as sf
import torch
from hypothesis import HealthCheck, settings
from toy_recipe import small_recipe

from mast.training.recipe import Recipe

torch.set_num_threads(1)  # for what happens before a first test: fixtures of a session
settings.register_profile(
    "mast", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
settings.load_profile("mast")


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Sums in another order differ in the last digit; libraries of other tests change the number for good."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real recordings, boxed by hand; not part of the repository."""
    root = Path(os.environ.get("MAST_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not root.is_dir():
        pytest.skip(f"real recordings are not here ({root}); set MAST_SHARED_DATA to their folder")
    return root


@pytest.fixture(scope="session")
def tones(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight recordings of 11 s with boxed tones; the last is heard and empty."""
    root = tmp_path_factory.mktemp("tones")
    (root / "audio").mkdir()
    rng = np.random.default_rng(0)
    boxes: list[tuple[str, float, float, float, float, str]] = []
    for i in range(8):
        name = f"S1_20240501_{6 + i:02d}0000.wav"
        sound = rng.normal(0, 0.003, 16_000 * 11)
        for start in np.arange(0.5, 9.5, 1.6) if i < 7 else []:
            length, hz = rng.uniform(0.3, 0.9), rng.uniform(600, 5_000)
            a, n = int(start * 16_000), int(length * 16_000)
            sound[a : a + n] += 0.2 * np.sin(2 * np.pi * hz * np.arange(n) / 16_000)
            boxes.append((name, float(start), float(start + length), hz * 0.93, hz * 1.07, "tone"))
        sf.write(root / "audio" / name, sound, 16_000)
    files = sorted(p.name for p in (root / "audio").iterdir())
    pd.DataFrame({"file": files}).to_csv(root / "recordings.csv", index=False)
    columns = ["file", "start_s", "end_s", "low_hz", "high_hz", "label"]
    pd.DataFrame(boxes, columns=columns).to_csv(root / "boxes.csv", index=False)
    return root


@pytest.fixture
def recipe() -> Recipe:
    """The tiny preset on short chunks, two epochs."""
    return small_recipe()
