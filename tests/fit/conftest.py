"""Models for the tests of fits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from toy_recipe import use_smaller_models


@pytest.fixture(scope="module", autouse=True)
def smaller_models() -> Iterator[None]:
    """What a fit does is the same with a small model."""
    with pytest.MonkeyPatch.context() as patch:
        use_smaller_models(patch)
        yield
