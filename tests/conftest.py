"""Fixtures for all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

torch.set_num_threads(1)
settings.register_profile(
    "mast", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
settings.load_profile("mast")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real recordings, boxed by hand; not part of the repository."""
    root = Path(os.environ.get("MAST_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not root.is_dir():
        pytest.skip(f"real recordings are not here ({root}); set MAST_SHARED_DATA to their folder")
    return root
