"""Snapshots of a run: written atomically, found again after a kill, continued exactly."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import torch

from mast.errors import MastError
from mast.files import atomic_file

_NAME = re.compile(r"^step-(\d{9})$")


def save_state(folder: Path, step: int, state: dict[str, Any]) -> Path:
    """Write ``state`` as ``folder/step-N``; older snapshots are removed only once this one is complete.

    A kill at any moment leaves either the old snapshot or the new one, never half of one.
    """
    final = folder / f"step-{step:09d}"
    with atomic_file(final) as part:
        torch.save(state, part)
    for other in folder.iterdir():
        if other != final:
            shutil.rmtree(other) if other.is_dir() else other.unlink()
    return final


def latest_state(folder: Path) -> dict[str, Any] | None:
    """The newest complete snapshot in ``folder``, or None."""
    if not folder.is_dir():
        return None
    complete = sorted(p for p in folder.iterdir() if _NAME.match(p.name))
    if not complete:
        return None
    try:
        # weights_only: a snapshot is tensors and plain numbers, never code
        state: dict[str, Any] = torch.load(complete[-1], map_location="cpu", weights_only=True)
    except Exception as error:
        raise MastError(
            f"{complete[-1]}: this snapshot cannot be read ({type(error).__name__}); "
            "delete it to start the run again from its beginning"
        ) from error
    return state
