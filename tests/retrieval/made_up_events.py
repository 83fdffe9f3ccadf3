"""Tables of events that nobody heard."""

from __future__ import annotations

import numpy as np
import pandas as pd


def make_events(n: int, *, recordings: int = 5, seed: int = 0) -> pd.DataFrame:
    """A table of made-up events of all sites, times and bands."""
    rng = np.random.default_rng(seed)
    start = np.sort(rng.uniform(0, 3_000, n)).round(3)
    low = rng.uniform(100, 5_000, n).round(1)
    days, hours = rng.integers(1, 4, n), rng.integers(0, 24, n)
    clock = [f"2024-05-{day:02d}T{hour:02d}:15:00.000" for day, hour in zip(days, hours, strict=True)]
    return pd.DataFrame(
        {
            "recording": [f"r{i % recordings}.wav" for i in range(n)],
            "start_s": start,
            "end_s": start + 0.5,
            "low_hz": low,
            "high_hz": low + 800,
            "score": rng.uniform(0, 1, n).round(3),
            "label": rng.choice(["wren", "O'Brien's \"frog\"", ""], n),
            "site": rng.choice(["OAK", "ELM", "Ufer-Süd"], n),
            "datetime": [
                text if keep else "" for text, keep in zip(clock, rng.uniform(size=n) > 0.1, strict=True)
            ],
            "source": "detector",
            "model": "mast-0123456789ab",
        }
    )
