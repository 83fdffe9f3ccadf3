"""What the detector finds, misses and imagines: a few spectrograms of each, drawn at random."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
from markupsafe import Markup

from mast.arrays import FloatArray
from mast.data.recordings import Dataset
from mast.evaluation.part_tables import PartTables
from mast.grid import FrontEnd
from mast.reports.html_page import picture
from mast.reports.spectrogram import compute_spectrogram, plot_boxes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HIT, MISS, FALSE_ALARM = "hit", "miss", "false alarm"
_MARK = "#e8590c"


class ShownBox(NamedTuple):
    """One box to look at."""

    kind: str
    recording: str
    box: FloatArray  # (4,) start_s, low_hz, end_s, high_hz
    score: float  # as users see it; NaN for a miss


def choose_examples(part: PartTables, *, each: int, seed: int) -> list[ShownBox]:
    """Hits, misses and false alarms at the part's threshold, drawn at random, from different recordings where possible.

    Random, so that they look like what a user will meet; the best hits would flatter, the worst misses would alarm.

    Args:
        part: what a detector found.
        each: maximum number of each kind.
        seed: of the draw.
    """
    outcome = part.match()
    kept = outcome.kept(part.threshold)
    order = np.argsort(-outcome.scene.scores, kind="stable")  # as match_scene orders predictions
    rows = outcome.scene.predictions.row[order]
    right = outcome.truth[:kept] >= 0
    found = np.zeros(len(outcome.scene.truth), dtype=bool)
    found[outcome.truth[:kept][right]] = True
    pools = {
        HIT: part.with_probabilities(part.found.iloc[rows[:kept][right]]),
        MISS: part.truth.iloc[outcome.scene.truth.row[~found]].assign(score=np.nan),
        FALSE_ALARM: part.with_probabilities(part.found.iloc[rows[:kept][~right]]),
    }
    return [
        ShownBox(
            kind,
            str(row["recording"]),
            row[["start_s", "low_hz", "end_s", "high_hz"]].to_numpy(dtype=np.float64),
            float(row["score"]),
        )
        for number, (kind, pool) in enumerate(pools.items())
        for _, row in _sample_rows(pool, each, np.random.default_rng([seed, 31, number])).iterrows()
    ]


def example_pictures(examples: list[ShownBox], part: PartTables, dataset: Dataset) -> Iterator[Markup]:
    """Each example as HTML: a chunk of sound around it, with all boxes there and a frame around the one meant."""
    shown = part.with_probabilities(part.above_threshold)
    for example in examples:
        path = dataset.path(example.recording)
        if path.is_file():
            figure = draw_example(
                example,
                path,
                truth=part.truth[part.truth["recording"] == example.recording],
                predictions=shown[shown["recording"] == example.recording],
                front_end=part.front_end,
            )
            yield picture(figure, dpi=85, small=True)


def draw_example(
    example: ShownBox, path: Path, *, truth: pd.DataFrame, predictions: pd.DataFrame, front_end: FrontEnd
) -> Figure:
    """A chunk of sound around one box."""
    from matplotlib.patches import Rectangle

    middle_s = float(example.box[0] + example.box[2]) / 2
    start_s = max(0.0, middle_s - front_end.chunk_s / 2)
    spectrogram = compute_spectrogram(
        path, front_end=front_end, start_s=start_s, end_s=start_s + front_end.chunk_s
    )
    score = "" if np.isnan(example.score) else f", score {example.score:.2f}"
    words = {HIT: "Found", MISS: "Missed", FALSE_ALARM: "False alarm"}[example.kind]
    figure = plot_boxes(
        spectrogram,
        truth=truth,
        predictions=predictions,
        title=f"{words}{score}: {example.recording} at {example.box[0]:.1f} s",
    )
    figure.set_size_inches(11, 3.6)
    low, high = front_end.hz_to_bins(
        np.clip(example.box[[1, 3]], front_end.low_hz, front_end.high_hz)
    ).tolist()
    pad_s, pad_bins = 0.006 * front_end.chunk_s, 0.012 * front_end.n_bins
    figure.axes[0].add_patch(
        Rectangle(
            (example.box[0] - pad_s, low - pad_bins),
            example.box[2] - example.box[0] + 2 * pad_s,
            high - low + 2 * pad_bins,
            fill=False,
            edgecolor=_MARK,
            linewidth=2.2,
        )
    )
    return figure


def _sample_rows(pool: pd.DataFrame, n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Some rows at random, no second one from a recording before every recording has had its turn."""
    shuffled = pool.iloc[rng.permutation(len(pool))]
    turn = shuffled.groupby("recording").cumcount()
    return shuffled.iloc[np.argsort(turn.to_numpy(), kind="stable")[:n]]
