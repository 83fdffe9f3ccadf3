"""Scenes with truth and predictions for the tests of evaluation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

Tables = tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]


def table(rows: list[tuple]) -> pd.DataFrame:
    """Events from tuples ``recording, start_s, end_s, low_hz, high_hz[, score]``."""
    columns = ["recording", "start_s", "end_s", "low_hz", "high_hz", "score"]
    return pd.DataFrame([(*row, 1.0)[:6] for row in rows], columns=columns)


def random_tables(seed: int, n_recordings: int = 6, per_recording: int = 12) -> Tables:
    """Truth, predictions (jittered truths, false alarms; tied scores), reviewed recordings, some empty."""
    rng = np.random.default_rng(seed)
    truth, predictions = [], []
    for r in range(n_recordings):
        for _ in range(int(rng.integers(0, per_recording))):
            start, low = rng.uniform(0, 40), rng.uniform(100, 6_000)
            box = np.array([start, start + rng.uniform(0.2, 3), low, low + rng.uniform(200, 1_800)])
            truth.append((f"r{r}.wav", *box))
            for _ in range(int(rng.integers(0, 3))):
                size = np.array([box[1] - box[0]] * 2 + [box[3] - box[2]] * 2)
                jittered = box + rng.normal(0, 0.1, 4) * size
                predictions.append((f"r{r}.wav", *jittered, round(rng.random(), 1)))
        for _ in range(int(rng.integers(0, 6))):
            start, low = rng.uniform(0, 40), rng.uniform(100, 6_000)
            predictions.append((f"r{r}.wav", start, start + 1, low, low + 500, round(rng.random(), 1)))
    reviewed = pd.DataFrame(
        {"recording": [f"r{r}.wav" for r in range(n_recordings)], "start_s": 0.0, "end_s": float("nan")}
    )
    predicted = table(predictions)
    usable = (predicted["end_s"] > predicted["start_s"]) & (predicted["high_hz"] > predicted["low_hz"])
    usable &= predicted["start_s"] >= 0  # what begins before its recording is refused
    return table(truth), predicted[usable].reset_index(drop=True), reviewed


@pytest.fixture
def make_table() -> Callable[[list[tuple]], pd.DataFrame]:
    return table


@pytest.fixture
def make_random() -> Callable[..., Tables]:
    return random_tables
