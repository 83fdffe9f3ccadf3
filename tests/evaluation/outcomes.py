"""Matched scenes made to order."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from mast.evaluation import Scoring
from mast.evaluation.outcome import Outcome, match_scene
from mast.evaluation.scene import build_scene


def outcome_of(
    scores: np.ndarray, hits: ArrayLike, recording: ArrayLike | None = None, n_missed: int = 0
) -> Outcome:
    """A matched scene whose predictions have these scores and hits; missed truths lie in the first recording.

    Without recordings given, predictions are dealt to five in turn.
    """
    n = len(scores)
    recording = np.arange(n) % 5 if recording is None else np.asarray(recording)
    start_s = 2.0 * np.arange(n + n_missed)
    boxes = pd.DataFrame({"start_s": start_s, "end_s": start_s + 1, "low_hz": 1000.0, "high_hz": 2000.0})
    names = [f"r{r:03d}.wav" for r in recording] + ["r000.wav"] * n_missed
    boxes.insert(0, "recording", pd.Series(names, dtype=str))
    wanted = np.append(np.asarray(hits, dtype=bool), np.ones(n_missed, dtype=bool))
    reviewed = pd.DataFrame({"recording": sorted({"r000.wav", *names}), "start_s": 0.0, "end_s": np.nan})
    predictions = boxes[:n].assign(score=np.asarray(scores, dtype=float))
    scoring = Scoring(space="hz")
    return match_scene(build_scene(boxes[wanted], predictions, reviewed=reviewed, scoring=scoring))
