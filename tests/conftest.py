"""Fixtures for all tests."""

from __future__ import annotations

import logging
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import soundfile as sf
import torch
from hypothesis import HealthCheck, settings
from toy_recipe import small_recipe, use_smaller_models

from mast.training.recipe import Recipe

settings.register_profile(
    "mast", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
settings.load_profile("mast")
# one core for each of pytest's workers; sums of several threads differ in the last digit, which no test may notice
THREADS = int(os.environ.get("MAST_TEST_THREADS", "1"))


def pytest_configure(config: pytest.Config) -> None:
    """Random is the order alone: which numbers a test draws does not change from run to run."""
    if config.pluginmanager.hasplugin("randomly"):
        config.option.randomly_reset_seed = False


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """How to repeat this order; quiet runs leave out the header that says so."""
    if config.pluginmanager.hasplugin("randomly"):
        terminalreporter.write_line(f"order: -p randomly --randomly-seed={config.option.randomly_seed}")


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> None:
    """A fixture of a module or session is the same, whichever test asks for it first."""
    if fixturedef.scope != "function":
        reset_process_state()


@pytest.fixture(autouse=True)
def isolate_process_state() -> Iterator[None]:
    """No test sees what those before it, or the libraries they used, have changed for the whole process."""
    environment, folder, disabled = dict(os.environ), Path.cwd(), logging.root.manager.disable
    reset_process_state()
    yield
    os.chdir(folder)
    logging.disable(disabled)
    if os.environ != environment:
        os.environ.clear()
        os.environ.update(environment)
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


def reset_process_state() -> None:
    """Seeds, and the settings that numbers depend on, as in a new process."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(THREADS)
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)
    torch.set_grad_enabled(True)
    torch.set_float32_matmul_precision("highest")
    torch._C._set_mkldnn_enabled(True)  # switches itself off where it fails, for good


@pytest.fixture
def bfloat16_anywhere() -> None:
    """bfloat16 by torch's own loops where oneDNN has none: there it fails with a warning and a stack trace."""
    torch._C._set_mkldnn_enabled(torch.ops.mkldnn._is_mkldnn_bf16_supported())


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


@pytest.fixture
def smaller_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests in which a model is trained but need not learn."""
    use_smaller_models(monkeypatch)
