"""The fingerprint of a model's weights, the same from arrays and from tensors."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def fingerprint_of(weights: Iterable[tuple[str, str, tuple[int, ...], memoryview]]) -> str:
    """SHA-256 of weights in the order of their names: name, type, shape and bytes of each."""
    digest = hashlib.sha256()
    for name, type_, shape, numbers in weights:
        digest.update(f"{name} {type_} {shape}".encode())
        digest.update(numbers)
    return digest.hexdigest()
