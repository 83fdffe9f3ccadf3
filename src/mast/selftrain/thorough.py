"""A detector that labels chunks at several playing speeds, as ``mast detect --thorough`` searches recordings.

One model at several speeds makes different mistakes, as several models do, so what it finds at most of them is right
more often (:mod:`mast.inference.speed_passes`). Beyond the paper, where a chunk is labelled at its own speed; compare
data distillation (Radosavovic et al., 2018).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mast.arrays import FloatArray
from mast.grid import FrontEnd, events_to_cells, grid_to_events
from mast.inference.fusion import fusion_threshold
from mast.inference.speed_passes import SPEEDS, Events, combine_speeds
from mast.inference.stitch import suppress_fused
from mast.loaded_model import LoadedModel
from mast.models.card import ModelCard
from mast.models.decode import Detections


class PlayedWindow(NamedTuple):
    """A part of each chunk, played at some speed, that is as long as the model's chunks.

    Attributes:
        start: where it begins, in samples.
        judged: the frames between which the middle of a box must lie to count, from the beginning of the chunk.
    """

    start: int
    judged: tuple[float, float]


class ThoroughModel:
    """A detector that searches chunks of one length at several speeds; for labelling.

    Args:
        model: the detector.
    """

    def __init__(self, model: LoadedModel) -> None:
        self.model, self.folder = model, model.folder
        # its scores are probabilities already, its boxes are drawn by no habit, and no threshold was chosen for them
        self.card: ModelCard = model.card.model_copy(
            update={"calibration": None, "habit": None, "thresholds": {}}
        )
        top_hz = model.front_end.high_hz
        self._front_ends = [model.front_end.at_band(top_hz * speed) for speed in SPEEDS]

    @property
    def front_end(self) -> FrontEnd:
        """Band and chunks."""
        return self.card.front_end

    def detect(
        self, sound: Tensor, *, score_threshold: float, nms_iou: float | None = None
    ) -> list[Detections]:
        """Boxes in each chunk of sound, best first; scores are probabilities.

        Args:
            sound: (B, samples), anywhere.
            score_threshold: minimum probability.
            nms_iou: of two boxes that overlap more than this, one stays; the model's own by default.
        """
        by_speed = [self._detect_at(front_end, sound, nms_iou) for front_end in self._front_ends]
        limits = [self.front_end.chunk_frames, self.front_end.n_bins] * 2
        detections = []
        for own in zip(*by_speed, strict=True):
            boxes, scores, _ = combine_speeds(own, self._front_ends)
            cells = np.clip(events_to_cells(boxes, self.front_end), 0.0, limits)
            detections.append(
                best_boxes(cells, scores, self.card, min_score=score_threshold, nms_iou=nms_iou)
            )
        return detections

    def _detect_at(self, front_end: FrontEnd, sound: Tensor, nms_iou: float | None) -> list[Events]:
        """What is found in each chunk at one speed, in seconds from its beginning."""
        calibration, threshold = self.model.card.probabilities, fusion_threshold(self.model.card)
        if threshold is None:
            return [Events(np.empty((0, 4)), np.empty(0))] * len(sound)
        samples = round(sound.shape[1] * front_end.sample_rate / self.front_end.sample_rate)
        played = resample(sound.to(self.model.device), samples)
        parts: list[list[Events]] = [[] for _ in range(len(sound))]
        for window in windows_of(samples, front_end):
            cut = played[:, window.start : window.start + front_end.chunk_samples]
            filled = torch.nn.functional.pad(cut, (0, front_end.chunk_samples - cut.shape[1]))
            found = self.model.detect(filled, score_threshold=threshold, nms_iou=nms_iou)
            for own, (boxes, scores) in zip(parts, found, strict=True):
                cells = boxes.double().cpu().numpy()
                cells[:, 0::2] += window.start / front_end.hop_samples
                middle = cells[:, 0::2].mean(axis=1)
                counts = (middle >= window.judged[0]) & (middle < window.judged[1])
                likely = calibration.apply(scores.double().cpu().numpy())
                own.append(Events(grid_to_events(cells[counts], front_end), likely[counts]))
        return [_concatenate(own) for own in parts]


def resample(sound: Tensor, samples: int) -> Tensor:
    """(B, N) → (B, ``samples``): the same sound at another rate, exactly, by its spectrum.

    What the lower of the two rates cannot hold is left out. The chunk is taken as periodic, so its ends may click.
    """
    played: Tensor = torch.fft.irfft(torch.fft.rfft(sound.float()), n=samples)
    return played * (samples / sound.shape[1])


def windows_of(samples: int, front_end: FrontEnd) -> list[PlayedWindow]:
    """The windows in which a chunk of this many samples is searched; each judges what is nearest to its own middle."""
    length = front_end.chunk_samples
    frames = samples / front_end.hop_samples
    if samples <= length:
        return [PlayedWindow(0, (0.0, frames))]
    return [PlayedWindow(0, (0.0, frames / 2)), PlayedWindow(samples - length, (frames / 2, np.inf))]


def _concatenate(parts: list[Events]) -> Events:
    boxes: FloatArray = np.concatenate([part.boxes for part in parts])
    return Events(boxes, np.concatenate([part.scores for part in parts]))


def best_boxes(
    boxes: FloatArray, scores: FloatArray, card: ModelCard, *, min_score: float, nms_iou: float | None
) -> Detections:
    """The fused boxes that score enough, best first, as far apart as the boxes of one detector are.

    Args:
        boxes: (N, 4) in cells.
        scores: (N,).
        card: of the detector.
        min_score: boxes scored lower are left out.
        nms_iou: of two boxes that overlap more than this, one stays; the detector's own by default.
    """
    kept = np.flatnonzero(scores >= min_score)
    kept = kept[
        suppress_fused(boxes[kept], scores[kept], card.nms_iou if nms_iou is None else nms_iou, card.nested)
    ]
    kept = kept[np.argsort(-scores[kept], kind="stable")]
    return Detections(torch.from_numpy(boxes[kept]), torch.from_numpy(scores[kept]))
