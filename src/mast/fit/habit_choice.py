"""Which habit a user's boxes show: chosen from a few of them, in seconds, and only where it holds on others.

Each candidate redraws what the model found in the user's recordings, and is scored by F1 at an IoU of 0.5. One
recording at a time is held back: the best candidate on the others is scored there. Only if what is chosen this way
beats the start on the recordings held back, by the rule of :mod:`mast.evaluation.evidence`, is the best candidate on
all of them used. With boxes in a single recording, stretches of it are held back instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mast.annotations.redraw import redraw_events
from mast.arrays import FloatArray
from mast.evaluation.evidence import MIN_BOXES, Finding, Tally, compare_tallies
from mast.evaluation.part_tables import PartTables
from mast.fit.held_back import units_of
from mast.grid import FrontEnd
from mast.habit import Habit

# (dB of the band, dB of the time); the first is the default of mast.habit.Habit
_STRONGEST_DB = ((25.0, 15.0), (25.0, 10.0), (25.0, 20.0), (35.0, 20.0))
_GAPS_FRAMES = (10, 30, 80)  # 0.1, 0.3 and 0.8 s at the paper's band


@dataclass(frozen=True)
class HabitChoice:
    """What a few boxes say about the habit.

    Attributes:
        habit: the one to use: the start's if nothing beat it.
        start: the start's.
        start_tally: of the start, over all boxes.
        tally: over all boxes, each with the habit that was chosen while it was held back.
    """

    habit: Habit
    start: Habit
    start_tally: Tally
    tally: Tally

    @property
    def sentence(self) -> str:
        """The choice in words, for the user."""
        if self.tally.boxes < MIN_BOXES:
            return (
                f"habit: {self.tally.boxes} boxes are too few to learn how you draw them (at least {MIN_BOXES}); "
                f"they are drawn as before: {self.start}"
            )
        numbers = f"F1 {self.tally.f1 or 0:.2f} on held-out boxes, {self.start_tally.f1 or 0:.2f} as is"
        if self.habit != self.start:
            return f"habit: your boxes are drawn as {self.habit} ({numbers})"
        if compare_tallies(self.tally, self.start_tally) is Finding.LUCK:
            return (
                f"habit: another way to draw boxes fits yours better ({numbers}), but on {self.tally.size} that may "
                f"be due to chance, so they are drawn as before: {self.start}"
            )
        return (
            f"habit: no other way to draw boxes fits yours better ({numbers}), so they are drawn as before: "
            f"{self.start}"
        )


def candidates(front_end: FrontEnd) -> list[Habit]:
    """Whole calls, the strongest harmonic cut in a few ways, and notes joined over a few gaps."""
    strongest = [Habit(box="strongest", band_db=band, time_db=time) for band, time in _STRONGEST_DB]
    joined = [Habit(join_s=round(frames * front_end.hop_s, 6)) for frames in _GAPS_FRAMES]
    return [Habit(), *strongest, *joined]


def choose_habit(part: PartTables, start: Habit, path_of: Callable[[str], Path]) -> HabitChoice:
    """The habit that a user's boxes show, or the start's.

    Args:
        part: the user's boxes, and the model's as it gives them, with its threshold.
        start: the habit that the model comes with.
        path_of: where a recording lies.
    """
    # the start wins a tie
    habits = [start, *(habit for habit in candidates(part.front_end) if habit != start)]
    drawn = [redraw_events(part.above_threshold, habit, part.front_end, path_of) for habit in habits]
    units = [units_of(replace(part, found=found)) for found in drawn]
    table = np.stack([own.counts() for own in units])  # (habits, units, 3)
    everywhere, held = table.sum(axis=1), _leave_one_out(table)
    tally, start_tally = (Tally(counts, units[0].stretches) for counts in (held, table[0]))
    beats_start = len(part.truth) >= MIN_BOXES and compare_tallies(tally, start_tally) is Finding.BETTER
    best = habits[int(_f1(everywhere).argmax())]
    return HabitChoice(best if beats_start else start, start, start_tally, tally)


def _leave_one_out(table: FloatArray) -> FloatArray:
    """(units, 3) counts where each unit is scored by the candidate that is best on all others."""
    everywhere = table.sum(axis=1)
    chosen = [int(_f1(everywhere - table[:, unit]).argmax()) for unit in range(table.shape[1])]
    held: FloatArray = table[chosen, np.arange(len(chosen))]
    return held


def _f1(counts: FloatArray) -> FloatArray:
    """Of (…, 3) counts of right, found and true boxes; 0 where there are none."""
    right, found, true = np.moveaxis(counts, -1, 0)
    return np.asarray(2 * right / np.maximum(found + true, 1))
