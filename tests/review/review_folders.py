"""Folders to review: recordings with tones, detections as ``mast detect`` leaves them, and datasets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import soundfile as sf
from starlette.testclient import TestClient

from mast.arrays import FloatArray
from mast.events import as_events
from mast.inference.detector import Searched
from mast.inference.pieces import Source
from mast.inference.results import ResultsFolder
from mast.review.open_review import Review
from mast.review.server import create_app

TOKEN = "a-token-for-tests"
RATE = 16_000
WIDTH = 8  # of the embeddings


def review_client(review: Review, **more: Any) -> TestClient:
    """A page of this machine that has its token."""
    app = create_app(review, token=TOKEN, local_only=True)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    return TestClient(app, base_url="http://127.0.0.1:8765", headers=headers, **more)


def write_tones(path: Path, seconds: float = 6.0, *, rate: int = RATE, seed: int = 0) -> Path:
    """A recording: noise, and a tone of 1 kHz in every whole second's first half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    n = round(seconds * rate)
    time = np.arange(n) / rate
    sound = np.random.default_rng(seed).normal(0, 0.01, n)
    sound += 0.2 * np.sin(2 * np.pi * 1000 * time) * (time % 1 < 0.5)
    sf.write(path, sound, rate)
    return path


def write_short_tones(
    path: Path, start: FloatArray, hz: FloatArray, *, seconds: float, rng: np.random.Generator
) -> pd.DataFrame:
    """A recording of noise with tones of 0.3 s, and the boxes around them."""
    sound = rng.normal(0, 0.003, round(seconds * RATE))
    for begin, pitch in zip(start, hz, strict=True):
        at, time = round(begin * RATE), np.arange(round(0.3 * RATE)) / RATE
        sound[at : at + len(time)] += 0.2 * np.sin(2 * np.pi * pitch * time)
    sf.write(path, sound, RATE)
    times = {"start_s": start, "end_s": start + 0.3, "low_hz": hz - 200, "high_hz": hz + 200}
    return pd.DataFrame(times).assign(recording=path.name)


def detections(
    name: str, count: int, *, seed: int = 0, seconds: float = 6.0, rate: int = RATE
) -> pd.DataFrame:
    """Made-up boxes with scores."""
    rng = np.random.default_rng(seed)
    start = np.sort(rng.uniform(0, seconds - 1, count))
    low = rng.uniform(100, rate / 4, count)
    table = {
        "recording": name,
        "start_s": start,
        "end_s": start + rng.uniform(0.1, 0.9, count),
        "low_hz": low,
        "high_hz": low + rng.uniform(100, rate / 5, count),
        "score": rng.uniform(0.3, 1.0, count),
        "source": "detector",
        "model": "m",
    }
    return as_events(pd.DataFrame(table))


def add_detections(
    folder: Path, audio: Path, tables: dict[str, pd.DataFrame], *, embed: bool = True, seed: int = 0
) -> Path:
    """A results folder as ``mast detect`` writes it; more recordings may be added later."""
    settings: dict[str, str | float] = {
        "model": "m",
        "threshold": 0.3,
        "embeddings": WIDTH if embed else 0,
    }
    results = ResultsFolder(folder, settings, audio)
    rng = np.random.default_rng(seed)
    for name, events in tables.items():
        info = sf.info(audio / name)
        results.add(
            Searched(
                Source(audio / name, name, audio),
                events,
                duration_s=info.duration,
                sample_rate=info.samplerate,
                site=name.split("_")[0].split("/")[-1],
                datetime=f"2024-05-0{1 + len(name) % 3}T0{1 + len(tables) % 8}:59:57",
                embeddings=rng.normal(size=(len(events), WIDTH)).astype(np.float16),
            )
        )
    results.combine(["csv"])
    return folder


def small_results(root: Path, *, recordings: int = 3, events: int = 10, embed: bool = True) -> Path:
    """Detections of a few recordings in two folders, one named with what URLs and shells trip over."""
    audio = root / "audio"
    names = ["A_1.wav", "site b/100 % Grünfink #1?.wav", "B_3.wav", *(f"C_{i}.wav" for i in range(4, 99))][
        :recordings
    ]
    tables = {}
    for seed, name in enumerate(names):
        write_tones(audio / name, seed=seed)
        tables[name] = detections(name, events, seed=seed)
    return add_detections(root / "detections", audio, tables, embed=embed)


KINDS = {"low": 1_500.0, "middle": 3_000.0, "high": 5_000.0}  # tones of three pitches, in Hz


def results_of_kinds(root: Path, *, counts: tuple[int, int, int] = (30, 24, 18)) -> Path:
    """Two recordings of short tones of three pitches; vectors of one pitch are alike, and nothing has a name."""
    audio, folder = root / "audio", root / "detections"
    audio.mkdir(parents=True)
    results = ResultsFolder(folder, {"model": "m", "threshold": 0.3, "embeddings": WIDTH}, audio)
    for seed, name in enumerate(("K_1.wav", "K_2.wav")):
        rng = np.random.default_rng(seed)
        kind = rng.permutation(np.repeat(np.arange(3), [n // 2 for n in counts]))
        hz, start = np.array(list(KINDS.values()))[kind], 0.2 + 0.5 * np.arange(len(kind))
        seconds = 0.5 * len(kind) + 1
        boxes = write_short_tones(audio / name, start, hz, seconds=seconds, rng=rng)
        scores = rng.uniform(0.3, 1.0, len(kind))
        events = as_events(boxes.assign(score=scores, source="detector", model="m"))
        vectors = rng.normal(0, 0.05, (len(kind), WIDTH)) + 2 * np.eye(WIDTH)[kind]
        source = Source(audio / name, name, audio)
        results.add(
            Searched(
                source,
                events,
                seconds,
                RATE,
                "K",
                "2024-05-01T05:00:00",
                embeddings=vectors.astype(np.float16),
            )
        )
    results.combine([])
    return folder


def kind_of(event: dict[str, Any]) -> str:
    """Which tone a box is around."""
    return next(name for name, hz in KINDS.items() if event["low_hz"] < hz < event["high_hz"])


def write_dataset(root: Path, *, boxes: list[tuple[Any, ...]] | None = None) -> Path:
    """Three recordings with an expert's boxes; the second one is heard and empty, the third nobody listened to."""
    for seed, name in enumerate(("a.wav", "b.wav", "c.wav")):
        write_tones(root / "audio" / name, seed=seed)
    table = pd.DataFrame(
        {
            "file": ["a.wav", "b.wav", "c.wav"],
            "site": ["x", "x", "y"],
            "split": ["train", "val", ""],
            "reviewed": [True, True, False],
        }
    )
    table.to_csv(root / "recordings.csv", index=False)
    rows = [("a.wav", 1.0, 1.5, 900.0, 1100.0, "tone"), ("a.wav", 2.0, 2.5, 900.0, 1100.0, "tone")]
    columns = ["file", "start_s", "end_s", "low_hz", "high_hz", "label"]
    pd.DataFrame(boxes or rows, columns=columns).to_csv(root / "boxes.csv", index=False)
    return root
