"""Models for the tests of self-training."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from toy_recipe import use_smaller_models


@pytest.fixture(scope="module", autouse=True)
def smaller_models() -> Iterator[None]:
    """Which model labels, learns and is kept does not depend on its size."""
    with pytest.MonkeyPatch.context() as patch:
        use_smaller_models(patch)
        yield
