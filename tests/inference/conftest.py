"""A detector with random weights on short windows, and recordings to try it on."""

from __future__ import annotations

from pathlib import Path

import pytest
from random_detector import save_detector


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder; windows of 2.56 s."""
    return save_detector(tmp_path_factory.mktemp("run") / "best").parent
