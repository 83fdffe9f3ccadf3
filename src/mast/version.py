"""The version and the commit of the code, in a module that imports nothing else from mast."""

from __future__ import annotations

import os
from pathlib import Path

__version__ = "0.1.0"

_ROOT = Path(__file__).resolve().parents[2]  # of the repository, where the package is used from one


def commit() -> str:
    """The commit of this code, with ``+changes`` where the tree differs from it; ``unknown`` outside its repository.

    The variable ``MAST_COMMIT`` names it where the code was copied without its history.
    """
    if stated := os.environ.get("MAST_COMMIT"):
        return stated
    if not (_ROOT / ".git").exists():  # installed: a repository further up is somebody else's
        return "unknown"
    import subprocess  # imported late: not every command needs it

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=_ROOT, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        head = git("rev-parse", "HEAD")
        changed = git("status", "--porcelain", "--", "src", "benchmarks")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head + ("+changes" if changed else "")


def provenance_of_code() -> dict[str, str]:
    """What ``model.json`` says about the code that trained a model."""
    return {"mast": __version__, "commit": commit()}
