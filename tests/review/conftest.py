"""Fixtures for the tests of the review."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from browser_reviewer import open_browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One browser for all tests of a file."""
    with open_browser() as opened:
        yield opened
