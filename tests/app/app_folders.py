"""Folders of recordings, and a program that reports as a command does but takes as long as a test wants."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf
from fastapi.testclient import TestClient

from mast.app.window import create_window

TOKEN = "a-token-for-tests"
_PROGRAM = """
import atexit, sys, time
from pathlib import Path
from mast.cli.reporting import current_report, report_command
from mast.errors import ConfigError
words = sys.argv[1:]
out = Path(words[words.index("--out") + 1])
def leave():
    if (out / "linger").exists():
        (out / "linger").unlink()
        time.sleep(2)

atexit.register(leave)
with report_command():
    for done in range(100_000):
        current_report().update("detect", done, 100_000, "recordings", 60.0)
        if (out / "finish").exists():
            break
        if (out / "fail").exists():
            raise ConfigError("the model is not there; choose another")
        time.sleep(0.02)
"""


def write_sound(
    folder: Path, names: tuple[str, ...] = ("N1_20240501_050000.wav", "N2_20240502_060000.wav")
) -> Path:
    """A folder of short recordings with a tone in each."""
    folder.mkdir(parents=True, exist_ok=True)
    time_s = np.arange(3 * 16_000) / 16_000
    for name in names:
        sf.write(folder / name, 0.1 * np.sin(2 * np.pi * 2000 * time_s), 16_000)
    return folder


def use_slow_program(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let jobs run the program above instead of mast."""
    program = folder / "slow_program.py"
    program.write_text(_PROGRAM)
    monkeypatch.setattr("mast.jobs._PROGRAM", (sys.executable, str(program)))


def client(**more: Any) -> TestClient:
    """A page that has its token."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    return TestClient(create_window(token=TOKEN), base_url="http://127.0.0.1:8764", headers=headers, **more)


def wait_for(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Wait until something is true, and give it back."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.05)
    raise AssertionError("it did not come true")
