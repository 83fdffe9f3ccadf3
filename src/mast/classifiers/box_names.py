"""Names for boxes, from a classifier that hears the sound around each of them.

A box's logits are the means over its windows (:mod:`mast.classifiers.window_grid`). Boxes of one song mostly come from
one animal, so boxes with similar bands that are at most twenty seconds apart are named together, by the mean of their
logits. The score is the box's own for that name. results/naming.json has the comparisons behind this choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from mast.annotations.songs import SIMILAR_BAND
from mast.arrays import FloatArray, IntArray, Samples
from mast.audio import probe
from mast.classifiers.classifier import Classifier, Logits
from mast.classifiers.window_grid import HOPS, WindowGrid, isolate_band, read_windows
from mast.events import boxes_of, pairwise_band_iou

SONG_GAP_S = 20.0  # between boxes that decide together
_BLOCK = 256  # boxes named at once


@dataclass(frozen=True)
class NamingOptions:
    """What the classifier listens to, and which boxes decide together.

    Attributes:
        rows: the possible labels, as rows among the classifier's.
        band: listen only to the band of each box.
        hops: windows that begin within one window's length.
        song_gap_s: how far apart boxes that decide together may be; below 0, each box decides alone.
    """

    rows: IntArray
    band: bool = False
    hops: int = HOPS
    song_gap_s: float = SONG_GAP_S


def name_boxes(
    path: str | Path, events: pd.DataFrame, classifier: Classifier, options: NamingOptions
) -> pd.DataFrame:
    """The likeliest name of each box of a recording and its score, row by row.

    Args:
        path: the recording.
        events: its events, in any order.
        classifier: the one that names them.
        options: which names are possible, and what is heard.

    Returns:
        ``likely``, the row of a label among the classifier's, and ``label_score``, a probability; −1 and NaN where the
        recording ends before the box begins.

    Raises:
        AudioError: the recording cannot be read.
    """
    info = probe(path)
    boxes = boxes_of(events).copy()
    boxes[:, 3] = np.minimum(boxes[:, 3], info.sample_rate / 2)  # there is no sound above it
    likely, score = np.full(len(boxes), -1, dtype=np.int64), np.full(len(boxes), np.nan)
    inside = np.flatnonzero(boxes[:, 0] < info.duration_s)
    order = inside[np.argsort(boxes[inside, 0], kind="stable")]
    grid = WindowGrid(info.duration_s, classifier.window_s, options.hops)
    recording_classifier = _RecordingClassifier(Path(path), grid, classifier, options)
    reach_s = max(options.song_gap_s, 0.0) + 1e-6  # a little more: rounding must not decide what is near
    for at in range(0, len(order), _BLOCK):
        block = order[at : at + _BLOCK]
        first_s, last_s = float(boxes[block, 0].min()), float(boxes[block, 2].max())
        near = order[(boxes[order, 2] >= first_s - reach_s) & (boxes[order, 0] <= last_s + reach_s)]
        recording_classifier.drop_except(near, first_s - reach_s - classifier.window_s)
        logits = recording_classifier.box_logits(boxes, near)
        place = {row: k for k, row in enumerate(near.tolist())}
        own = np.array([place[row] for row in block.tolist()])
        together = same_song(boxes[block], boxes[near], options.song_gap_s)
        together[np.arange(len(block)), own] = True
        decided = (together @ logits / together.sum(axis=1, keepdims=True)).argmax(axis=1)
        likely[block] = options.rows[decided]
        score[block] = 1 / (1 + np.exp(-logits[own, decided].astype(np.float64)))
    return pd.DataFrame({"likely": likely, "label_score": score.round(6)}, index=events.index)


def same_song(boxes: FloatArray, others: FloatArray, gap_s: float) -> FloatArray:
    """(N, M) 1 where two boxes are near in time and alike in band, else 0.

    Rows are start_s, low_hz, end_s, high_hz.
    """
    a, b = boxes[:, None], others[None]
    apart = np.maximum(a[..., 0] - b[..., 2], b[..., 0] - a[..., 2]).clip(min=0.0)
    alike = pairwise_band_iou(boxes, others) >= SIMILAR_BAND
    return np.asarray((apart <= gap_s) & alike, dtype=np.float64)


@dataclass
class _RecordingClassifier:
    """A classifier's logits for one recording; each window is classified once."""

    path: Path
    grid: WindowGrid
    classifier: Classifier
    options: NamingOptions
    boxes: dict[int, Logits] = field(default_factory=dict)
    windows: dict[tuple[int, ...], Logits] = field(default_factory=dict)

    def box_logits(self, boxes: FloatArray, rows: Sequence[int] | IntArray) -> Logits:
        """(N, labels) logits of some boxes."""
        keys: dict[int, list[tuple[int, ...]]] = {}
        for row in (int(row) for row in rows if int(row) not in self.boxes):
            start_s, low_hz, end_s, high_hz = boxes[row]
            band = (round(low_hz), round(high_hz)) if self.options.band else ()
            keys[row] = [(window, *band) for window in self.grid.windows_for(start_s, end_s)]
        self._classify_windows(
            sorted({key for own in keys.values() for key in own if key not in self.windows})
        )
        for row, own in keys.items():
            self.boxes[row] = np.mean([self.windows[key] for key in own], axis=0, dtype=np.float32)
        return np.stack([self.boxes[int(row)] for row in rows])

    def _classify_windows(self, keys: list[tuple[int, ...]]) -> None:
        waiting: dict[int, list[tuple[int, ...]]] = {}
        for key in keys:
            waiting.setdefault(key[0], []).append(key)
        rate, samples = self.classifier.sample_rate, self.classifier.window_samples
        batch: list[tuple[tuple[int, ...], Samples]] = []

        def run() -> None:
            found = self.classifier.logits(np.stack([sound for _, sound in batch]))[:, self.options.rows]
            self.windows.update(zip((key for key, _ in batch), found, strict=True))
            batch.clear()

        for window, sound in read_windows(self.path, self.grid, list(waiting), rate, samples):
            for key in waiting[window]:
                heard = sound if len(key) == 1 else isolate_band(sound, rate, key[1], key[2])
                batch.append((key, heard))
                if len(batch) >= self.classifier.batch:
                    run()
        if batch:
            run()

    def drop_except(self, rows: IntArray, before_s: float) -> None:
        """Drop what no later box needs."""
        keep = set(rows.tolist())
        self.boxes = {row: value for row, value in self.boxes.items() if row in keep}
        self.windows = {
            key: value for key, value in self.windows.items() if self.grid.start_s(key[0]) >= before_s
        }
