"""Whether one detector is better than another on the same boxes, or may only look so by chance.

Boxes are counted recording by recording: a recording in which many boxes change at once says little about the next.
What counts is the gain in right boxes, minus the cost of more false ones: Δright − F1/2 · Δfound, with the mean of both
F1. Its sum over all recordings is positive exactly where the F1 over all of them is higher.

With few boxes a gain has to be more than one box, and larger than its spread between recordings: three recordings that
agree are enough, two never are. With plenty of boxes in several recordings the higher F1 decides. It also decides after
training on several recordings, which can be expected to help on others; training on one or two may learn only those.

Where training had many boxes in several recordings, and validation holds too few to tell, the trained detector is
trusted unless it is clearly worse: on the real sets, such training helped (docs/results.md). From fewer boxes, the mean
of the trained weights and those before is trusted in the same way (docs/zero_shot.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

import numpy as np

from mast.arrays import FloatArray
from mast.evaluation.part_tables import PartTables
from mast.wording import counted

# our choice: a gain of this many right boxes, or one lucky box would decide
MIN_GAIN = 2.0
# our choice: the gain over its spread, √Σgain², as in a one-sided test at 5 %; n recordings with equal gains have √n
SURE_RATIO = 1.64
# our choice: boxes, and recordings with boxes, from which the higher F1 decides. Its error is then about 0.05, less in
# a paired comparison, and training had several times as many boxes. In few recordings even many boxes may mislead:
# 130 boxes of three bats chose a way to draw that was worse for a fourth
PLENTY_BOXES, PLENTY_RECORDINGS = 100, 5
# our choice: boxes, and recordings with boxes, from which training can be expected to help elsewhere
ENOUGH_BOXES, ENOUGH_RECORDINGS = 20, 3
# our choice: boxes to learn from with which training is trusted, where validation has too few to tell
TRUSTED_BOXES = 40
# our choice: from fewer boxes nothing is chosen or learnt
MIN_BOXES = 5
# our choice: with fewer boxes, validation chooses no threshold and no epoch, and does not decide between detectors
FEW_BOXES = 20


class TrainingEvidence(NamedTuple):
    """What training had to learn from."""

    boxes: int = 0
    recordings: int = 0  # with boxes
    averaged: bool = False  # whether the earlier weights are half of what is kept

    @property
    def is_enough(self) -> bool:
        """Whether training on it can be expected to help elsewhere."""
        return self.boxes >= ENOUGH_BOXES and self.recordings >= ENOUGH_RECORDINGS

    @property
    def is_plenty(self) -> bool:
        """Whether this much is trusted to help where validation cannot tell."""
        return self.boxes >= TRUSTED_BOXES and self.recordings >= ENOUGH_RECORDINGS

    @property
    def is_trusted(self) -> bool:
        """The same for what is kept: after few boxes, only the mean with the earlier weights."""
        return self.is_plenty or (self.averaged and self.boxes >= MIN_BOXES)

    @property
    def size(self) -> str:
        """In words, as in 55 boxes in 7 recordings."""
        return _size_text(self.boxes, self.recordings)


class Finding(Enum):
    """What a comparison says."""

    BETTER = "better"
    LUCK = "luck"  # a higher F1, on too little to be sure
    NOT_BETTER = "not better"


@dataclass(frozen=True, eq=False)
class Tally:
    """How many boxes a detector got right, at its threshold.

    Attributes:
        counts: (recordings, 3) right, found and true boxes of each recording; those without boxes are included,
            as false ones count there.
        stretches: whether rows are stretches of the only recording instead.
    """

    counts: FloatArray
    stretches: bool = False

    @classmethod
    def of(cls, counts: Sequence[Sequence[float]]) -> Tally:
        """From plain lists, as :meth:`as_lists` gives them."""
        return cls(np.asarray(counts, dtype=np.float64).reshape(-1, 3))

    def as_lists(self) -> list[list[int]]:
        """Plain lists, for a file."""
        return [[int(n) for n in row] for row in self.counts]

    @property
    def boxes(self) -> int:
        """How many true boxes there are."""
        return int(self.counts[:, 2].sum())

    @property
    def recordings(self) -> int:
        """How many recordings have boxes."""
        return 1 if self.stretches else int((self.counts[:, 2] > 0).sum())

    @property
    def size(self) -> str:
        """In words, as in 11 boxes in 1 recording."""
        return _size_text(self.boxes, self.recordings)

    @property
    def f1(self) -> float | None:
        """Over all recordings; None where there is neither a box nor a detection."""
        right, found, true = self.counts.sum(axis=0)
        return float(2 * right / (found + true)) if found + true else None


def tally_of(part: PartTables) -> Tally:
    """The counts of one detector on one part, at its threshold."""
    outcome = replace(part, found=part.above_threshold).match()
    n = len(outcome.scene.recordings)
    right, found, true = (
        np.bincount(rows, minlength=n)
        for rows in (outcome.recording[outcome.hit], outcome.recording, outcome.scene.truth.recording)
    )
    return Tally(np.stack([right, found, true], axis=1).astype(np.float64))


def judge_training(trained: Tally, start: Tally, learnt: TrainingEvidence) -> Finding:
    """What validation says about training on boxes, or what can be expected where it is too small to tell.

    Args:
        trained: the detector's tally after training.
        start: its tally before training.
        learnt: what was trained on.
    """
    if is_trusted(start, learnt) and trained.f1 is not None:
        return Finding.NOT_BETTER if compare_tallies(start, trained) is Finding.BETTER else Finding.BETTER
    return judge_further(trained, start, learnt)


def is_trusted(start: Tally, learnt: TrainingEvidence) -> bool:
    """Whether training is used unless it is clearly worse: it is trusted, and validation is too small to tell."""
    return learnt.is_trusted and 0 < start.boxes < FEW_BOXES


def judge_further(further: Tally, start: Tally, learnt: TrainingEvidence) -> Finding:
    """The same for what was made from a trained detector without more boxes: it must have the higher F1."""
    found = compare_tallies(further, start)
    return Finding.BETTER if found is Finding.LUCK and learnt.is_enough else found


def compare_tallies(ours: Tally, theirs: Tally) -> Finding:
    """What the same recordings say about two detectors.

    Where nothing could be measured, nothing is known to be better.
    """
    if ours.f1 is None or theirs.f1 is None or ours.f1 <= theirs.f1:
        return Finding.NOT_BETTER
    gain = box_gains(ours, theirs)
    total, spread = float(gain.sum()), math.sqrt(float((gain**2).sum()))
    if total < MIN_GAIN:
        return Finding.LUCK
    plenty = ours.boxes >= PLENTY_BOXES and ours.recordings >= PLENTY_RECORDINGS
    return Finding.BETTER if plenty or total >= SURE_RATIO * spread else Finding.LUCK


def box_gains(ours: Tally, theirs: Tally) -> FloatArray:
    """(recordings,) right boxes gained, minus the cost of more false ones."""
    difference = ours.counts - theirs.counts
    rate = ((ours.f1 or 0.0) + (theirs.f1 or 0.0)) / 2
    return np.asarray(difference[:, 0] - rate / 2 * difference[:, 1])


def _size_text(boxes: int, recordings: int) -> str:
    return f"{counted(boxes, 'box')} in {counted(recordings, 'recording')}"
