"""Parts of a dataset with vectors of our own choosing, as if an encoder had looked at them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from mast.arrays import Vectors
from mast_studies.neighbours import EmbeddedPart

LABELS = ("buzz", "chirp", "whoop")


def part(
    name: str,
    *,
    recordings: int = 4,
    boxes: int = 6,
    labels: tuple[str, ...] = LABELS,
    detected: bool = True,
    spread: float = 0.05,
    seed: int = 0,
) -> EmbeddedPart:
    """Two chunks a recording; a box's vector points to its label, a chunk's to its site, give or take ``spread``."""
    rng = np.random.default_rng([seed, len(name)])
    names = [f"{name}-{i}.wav" for i in range(recordings)]
    chunks = pd.DataFrame(
        {
            "recording": np.repeat(names, 2),
            "start_s": np.tile([0.0, 10.24], recordings),
            "valid_s": 10.24,
            "site": np.repeat([f"S{i % 2}" for i in range(recordings)], 2),
            "datetime": "",
            "hour": pd.Series(np.repeat([(6 * i) % 24 for i in range(recordings)], 2), dtype="Int64"),
        }
    )
    rows = []
    for chunk in range(len(chunks)):
        for k in range(boxes):
            label = labels[(chunk + k) % len(labels)] if labels else ""
            row = {"chunk": chunk, "recording": chunks["recording"][chunk], "label": label}
            box = {"start_s": 100.0 * k, "low_hz": 20.0, "end_s": 100.0 * k + 50, "high_hz": 40.0}
            hit = detected and k % 2 == 0
            rows.append(row | box | {"kind": "truth", "iou": np.nan, "matched": hit})
            if hit:
                rows.append(row | box | {"kind": "detected", "iou": 0.9 if k else 0.6, "matched": True})
        if detected:
            wrong = {"start_s": 900.0, "low_hz": 60.0, "end_s": 950.0, "high_hz": 80.0, "label": ""}
            rows.append(row | wrong | {"kind": "detected", "iou": 0.0, "matched": False})
    table = pd.DataFrame(rows)
    directions = np.eye(8)[[*(LABELS.index(n) if n else 7 for n in table["label"])]]
    sites = np.eye(8)[[int(n[1]) for n in chunks["site"]]]

    def noisy(centre: np.ndarray, amount: float) -> Vectors:
        return (centre + amount * rng.normal(size=centre.shape)).astype(np.float32)

    return EmbeddedPart(
        chunks,
        table,
        {"mel": noisy(0 * sites, 1.0), "pretrained": noisy(sites, spread), "encoder": noisy(sites, spread)},
        {
            "mel": noisy(0 * directions, 1.0),
            "pretrained": noisy(directions, spread),
            "encoder": noisy(directions, spread),
        },
    )
