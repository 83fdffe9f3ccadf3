"""Where the scores come from: calibration bin by bin, recall by kind of sound."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd

from mast.arrays import FloatArray
from mast.evaluation.metrics import CALIBRATION_BINS, calibration_bins, ratio
from mast.evaluation.outcome import Outcome

_SIZE_EDGES: list[float] = [32**2, 96**2]  # COCO's
_LENGTH_EDGES_S: list[float] = [0.1, 0.5, 2.0]  # our choice
_SNR_EDGES_DB: list[float] = [0, 6, 12, 20]  # our choice


def reliability(outcome: Outcome) -> pd.DataFrame:
    """Data of a reliability diagram: one row per bin, ``low, high, n, mean_score, share_matched``.

    Means of an empty bin are NaN; there are no rows when scores lie outside 0–1.
    """
    bins = calibration_bins(outcome)
    edges = np.linspace(0.0, 1.0, CALIBRATION_BINS + 1)
    if bins is None:
        return pd.DataFrame({c: np.zeros(0) for c in ("low", "high", "n", "mean_score", "share_matched")})
    n = np.bincount(bins, minlength=CALIBRATION_BINS).astype(np.float64)
    scores = np.bincount(bins, weights=outcome.scores, minlength=CALIBRATION_BINS).astype(np.float64)
    matched = np.bincount(bins, weights=outcome.hit, minlength=CALIBRATION_BINS).astype(np.float64)
    return pd.DataFrame(
        {
            "low": edges[:-1],
            "high": edges[1:],
            "n": n.astype(np.int64),
            "mean_score": ratio(scores, n),
            "share_matched": ratio(matched, n),
        }
    )


def recall_by(outcome: Outcome, threshold: float | None) -> pd.DataFrame:
    """Recall by kind of truth: one row per group, ``by, group, n_truth, n_found, recall``.

    ``size``: area in cells of the front end (one frame × one mel bin), with COCO's edges 32² and 96².
    ``length``: from beginning to end. ``band``: centre frequency, in four equal parts of the front end's mel range.
    ``snr_db``: where the truth table has such a column, as simulated soundscapes do.
    """
    scene, front_end = outcome.scene, outcome.scene.scoring.front_end
    events = scene.truth_events.iloc[scene.truth.row]
    found = np.zeros(len(scene.truth), dtype=bool)
    partner = outcome.truth[: outcome.kept(threshold)]
    found[partner[partner >= 0]] = True

    frames = (events["end_s"] - events["start_s"]).to_numpy(dtype=np.float64) / front_end.hop_s
    low, high = (
        front_end.hz_to_bins(
            np.clip(events[c].to_numpy(dtype=np.float64), front_end.low_hz, front_end.high_hz)
        )
        for c in ("low_hz", "high_hz")
    )
    quarters = front_end.bins_to_hz(np.linspace(-1, front_end.n_bins, 5))
    kinds: list[tuple[str, FloatArray, list[float], list[str]]] = [
        ("size", frames * (high - low), _SIZE_EDGES, ["small", "medium", "large"]),
        (
            "length",
            frames * front_end.hop_s,
            _LENGTH_EDGES_S,
            ["under 0.1 s", "0.1–0.5 s", "0.5–2 s", "2 s and over"],
        ),
        (
            "band",
            front_end.bins_to_hz((low + high) / 2),
            quarters[1:-1].tolist(),
            [f"{a:.0f}–{b:.0f} Hz" for a, b in pairwise(quarters)],
        ),
    ]
    if "snr_db" in events:
        snr_db = pd.to_numeric(events["snr_db"], errors="coerce").to_numpy(dtype=np.float64)
        kinds.append(("snr_db", snr_db, _SNR_EDGES_DB, ["under 0", "0–6", "6–12", "12–20", "20 and over"]))
    rows = []
    for by, values, edges, groups in kinds:
        group = np.where(np.isnan(values), -1, np.searchsorted(edges, values, side="right"))
        for g, name in enumerate(groups):
            n, n_found = int((group == g).sum()), int(found[group == g].sum())
            rows.append((by, name, n, n_found, n_found / n if n else float("nan")))
    return pd.DataFrame(rows, columns=["by", "group", "n_truth", "n_found", "recall"])
