"""Which minimum score suits a user's boxes: the start's own, unless another one is better on held-back boxes.

The start's threshold comes from other recordings. Where calls are fainter or false alarms more frequent, another one is
better. One recording at a time is held back: the threshold that is best on the others is tried there. Only if what is
chosen this way beats the start's own, by the rule of :mod:`mast.evaluation.evidence`, is the best one on all of them
used.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mast.evaluation.evidence import MIN_BOXES, Finding, Tally, compare_tallies
from mast.evaluation.part_tables import PartTables
from mast.evaluation.threshold import steady_score
from mast.fit.held_back import Units, units_of


@dataclass(frozen=True)
class ThresholdChoice:
    """What a few boxes say about the threshold.

    Attributes:
        value: the threshold to use.
        start: the start's own.
        start_tally: of the start's own, over all boxes.
        tally: over all boxes, each with the threshold that was chosen while it was held back.
    """

    value: float
    start: float
    start_tally: Tally
    tally: Tally

    def sentence(self, shown: float, shown_before: float) -> str:
        """The choice in words, for the user; empty where there was nothing to choose from.

        Args:
            shown: the score that users see at the threshold.
            shown_before: the same at the start's own.
        """
        if self.tally.boxes < MIN_BOXES or self.tally.f1 is None:
            return ""
        numbers = (
            f"F1 {self.tally.f1:.2f} on held-out boxes, {self.start_tally.f1 or 0:.2f} at {shown_before:.2f}"
        )
        if self.value != self.start:
            return f"threshold: a minimum score of {shown:.2f} fits your boxes better ({numbers})"
        if compare_tallies(self.tally, self.start_tally) is Finding.LUCK:
            return (
                f"threshold: another minimum score fits your boxes better ({numbers}), but on {self.tally.size} that "
                f"may be due to chance, so it stays at {shown_before:.2f}"
            )
        return f"threshold: a minimum score of {shown_before:.2f} is kept ({numbers})"


def choose_threshold(part: PartTables, start: float) -> ThresholdChoice:
    """The threshold that suits a user's boxes, or the start's.

    Args:
        part: the user's boxes, and all of the model's as they are to be drawn, down to low scores.
        start: the start's own threshold.
    """
    units = units_of(part)
    held = np.array([_best_without(units, unit, start) for unit in range(units.n)])
    tally, before = (Tally(units.counts(value), units.stretches) for value in (held, start))
    beats_start = len(part.truth) >= MIN_BOXES and compare_tallies(tally, before) is Finding.BETTER
    best = steady_score(units.scores, units.hit, len(units.of_truth)) if beats_start else start
    return ThresholdChoice(best, start, before, tally)


def _best_without(units: Units, unit: int, start: float) -> float:
    """The best threshold on all units but one; the start's where nothing is left to choose on."""
    others, n_truth = units.of_found != unit, int((units.of_truth != unit).sum())
    if not others.any() or not n_truth:
        return start
    return steady_score(units.scores[others], units.hit[others], n_truth)
