"""Small data, a small model, and every command on them, for the parts that attack whole commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
MAST = [sys.executable, "-m", "mast.cli.main"]
ENV = {**os.environ, "COLUMNS": "200"}
LIMIT_S = 900
OUT = "OUT"  # where a command writes


class Toy(NamedTuple):
    """What commands work on."""

    data: Path  # a labelled dataset
    wild: Path  # recordings without labels
    found: Path  # detections with embeddings
    store: Path  # a store of events
    model: Path


def run(
    *words: object, prefix: Sequence[str] = (), env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    line = [*prefix, *MAST, *map(str, words)]
    return subprocess.run(
        line, capture_output=True, text=True, env=env or ENV, timeout=LIMIT_S, errors="replace", check=False
    )


def prepare(work: Path) -> Toy:
    """Make simulated recordings, a detector trained for a few steps, its detections, and a store."""
    sys.path.insert(0, str(ROOT / "tests" / "fit"))
    from toy_archive import write_archive

    toy = Toy(work / "data", work / "wild", work / "found", work / "store", work / "run" / "best")
    write_archive(toy.data)
    write_archive(toy.wild, n=4, seed=1, boxed=False)
    for words in (
        ("train", toy.data, "--out", work / "run", *_settings(), "-q"),
        ("detect", toy.data / "audio", "--out", toy.found, "--embed", "--no-compile", "-q"),
        ("embed", toy.data, "--model", toy.model, "--out", toy.store, "-q"),
    ):
        done = run(*words)
        if done.returncode:
            raise SystemExit(f"{words[0]}: ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
    subprocess.run(["chmod", "-R", "a+rX", str(work)], check=False)
    return toy


def _settings() -> list[str]:
    from toy_archive import SETTINGS

    flags = [
        f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in SETTINGS.items()
    ]
    return ["--preset", "tiny", *(word for flag in [*flags, "workers=0"] for word in ("--set", flag))]


def writing_commands(toy: Toy) -> dict[str, tuple[object, ...]]:
    """Each command that writes, with ``OUT`` as the place that it writes to."""
    data, audio, model = toy.data, toy.data / "audio", toy.model
    wav = min(audio.iterdir())
    quick = _settings()
    return {
        "detect": ("detect", audio, "--model", model, "--out", OUT, "--no-compile"),
        "detect-workers": ("detect", audio, "--model", model, "--out", OUT, "--no-compile", "--workers", "2"),
        "scan": ("scan", audio, "--out", f"{OUT}.csv"),
        "convert": ("convert", data / "boxes.csv", OUT, "--to", "raven"),
        "convert-coco": ("convert", data / "boxes.csv", f"{OUT}.json", "--to", "coco", "--audio", audio),
        "fit": ("fit", data, "--unlabelled", toy.wild, "--out", OUT, *quick),
        "train": ("train", data, "--out", OUT, *quick),
        "pretrain": ("pretrain", data, "--out", OUT, *quick),
        "selftrain": ("selftrain", data, "--unlabelled", toy.wild, "--init", model, "--out", OUT, *quick),
        "simulate": ("simulate", OUT, "--recordings", "4", "--duration", "30"),
        "simulate-workers": ("simulate", OUT, "--recordings", "4", "--duration", "30", "--workers", "2"),
        "plot": ("plot", wav, "--out", f"{OUT}/a.png"),
        "export-hub": ("export", model, "--format", "hub", "--out", OUT),
        "export-onnx": ("export", model, "--format", "onnx", "--out", OUT),
        "embed": ("embed", toy.found, "--out", OUT),
        "embed-model": ("embed", data, "--model", model, "--out", OUT),
        "classify": ("classify", toy.store, "--examples", toy.store, "--out", f"{OUT}.csv"),
        "cluster": ("cluster", toy.store, "--out", OUT),
        "plan": ("plan", toy.wild, "--clips", "2", "--out", OUT, "--clip-length", "1"),
    }


def reading_commands(toy: Toy) -> dict[str, tuple[object, ...]]:
    """Commands that only print."""
    return {
        "scan": ("scan", toy.data / "audio"),
        "search": ("search", toy.store),
        "evaluate": ("evaluate", "--truth", toy.data, "--predictions", toy.found),
    }


def with_output(command: tuple[object, ...], out: Path) -> list[str]:
    """The command's words, with a real place for ``OUT``."""
    return [str(word).replace(OUT, str(out)) if isinstance(word, str) else str(word) for word in command]


def find_fault(done: subprocess.CompletedProcess[str], place: str) -> str:
    """What is wrong with the way a command failed; empty if nothing is."""
    lines = [line for line in (done.stderr or "").splitlines() if line.strip()]
    last = lines[-1] if lines else ""
    whole = (done.stdout or "") + (done.stderr or "")
    if done.returncode not in (2, 4):
        return f"exit code {done.returncode}: {last[:200]}"
    if "internal error" in whole or "Traceback" in whole:
        return f"internal error: {last[:200]}"
    if not last.startswith("mast: ") or len(last) > 500:
        return f"no sentence: {last[:200]}"
    return "" if place in last else f"does not name {place}: {last[:200]}"
