"""How sure a name must be, label by label, from boxes that people have named.

A name stands where its score reaches a threshold. Where ten or more boxes that got a name have been reviewed, the
label's threshold is the smallest at which the wanted share of them was right; a label that never reaches it stays
unknown. Labels with fewer reviewed boxes keep the default threshold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from mast.events import boxes_of, match_pairs, overlapping_pairs
from mast.retrieval.naming import MIN_NAMED, choose_distance

NEVER = 2.0  # no score reaches it


@dataclass(frozen=True)
class NameThresholds:
    """Scores from which a name is believed.

    Attributes:
        default: of labels that were not reviewed often enough.
        by_label: of the others; above 1 where no score was good enough.
        reviewed: number of boxes they were chosen on.
        precision: share of names that should be right.
    """

    default: float
    by_label: dict[str, float] = field(default_factory=dict)
    reviewed: int = 0
    precision: float | None = None

    def accepts(self, labels: Sequence[str], scores: ArrayLike) -> NDArray[np.bool_]:
        """Which names reach their threshold."""
        needed = np.array([self.by_label.get(label, self.default) for label in labels], dtype=np.float64)
        return np.asarray(scores, dtype=np.float64) >= needed


def choose_thresholds(
    names: Sequence[str], scores: ArrayLike, truth: Sequence[str], *, precision: float, default: float
) -> NameThresholds:
    """The smallest threshold for each label at which enough of its names were right.

    Args:
        names: likeliest name of each reviewed box.
        scores: of these names.
        truth: the name that a person gave; empty for a box that holds no animal, where every name is wrong.
        precision: share of names that should be right.
        default: threshold of labels with fewer than ten such boxes.
    """
    table = pd.DataFrame({"name": list(names), "score": np.asarray(scores, dtype=np.float64)})
    table["right"] = [name == true for name, true in zip(names, truth, strict=True)]
    found = {}
    for name, own in table.groupby("name"):
        if len(own) >= MIN_NAMED:
            distance = choose_distance(1 - own["score"], own["right"], precision)
            found[str(name)] = NEVER if distance < 0 else round(1 - distance, 6)
    return NameThresholds(default, found, len(table), precision)


def match_reviewed_names(events: pd.DataFrame, reviewed: pd.DataFrame) -> tuple[NDArray[np.int64], list[str]]:
    """Rows of events that people have named, and these names; boxes are the same where they overlap by half.

    Args:
        events: in the event schema.
        reviewed: likewise; ``label`` is what people say.
    """
    codes = pd.factorize(pd.concat([events["recording"], reviewed["recording"]]))[0]
    pairs = overlapping_pairs(
        boxes_of(reviewed),
        boxes_of(events),
        truth_group=codes[len(events) :],
        prediction_group=codes[: len(events)],
    )
    matched = match_pairs(pairs, events["score"].fillna(0.0).to_numpy())
    labels = reviewed["label"].to_numpy()
    return matched.prediction, [str(labels[row]) for row in matched.truth]
