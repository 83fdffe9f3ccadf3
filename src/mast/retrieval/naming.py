"""Tentative names for events, from annotated examples, with an honest "unknown".

An event takes the label that most of its k nearest examples have. It stays unknown where the nearest example of that
label is farther than a threshold, which is chosen on the examples themselves: each is named by those of *other
recordings* (calls of one recording resemble each other for many reasons), and the threshold is the largest distance up
to which the wanted share of the names was right. A label that occurs in only one recording cannot be named from another
one: the only right answer for it is "unknown", so such labels teach the threshold what new sounds look like.

The stated accuracy was measured with thresholds chosen without the recordings it was measured on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from mast.annotations import read_annotations
from mast.arrays import FloatArray, IntArray, Vectors
from mast.errors import ConfigError
from mast.retrieval.nearest import Neighbours, nearest
from mast.wording import counted

UNKNOWN = "unknown"
SOURCE = "examples"  # stated as the source of these names
_FOLDS = 20  # maximum number of groups of recordings that are held out in turn
LIKELY_COLUMNS = (
    "likely_label",
    "nearest_label",
)  # the name before the threshold was applied, in tables of mast name and mast classify
MIN_NAMED = 10  # held-out examples that must be named before a share of right ones means anything; our choice


def read_names(path: Path) -> pd.DataFrame:
    """The events of a table of `mast name` or `mast classify`, their names in ``label``.

    Raises:
        ConfigError: it holds no names.
    """
    table = read_annotations(path).events
    if not {"label_score", "label_source"} <= set(table) or not any(name in table for name in LIKELY_COLUMNS):
        raise ConfigError(f"--names {path}: holds no names; expected a table of mast name or mast classify")
    return table


class Votes(NamedTuple):
    """What the nearest examples say about each event."""

    label: IntArray  # (N,) code of the label most of them have; −1 where there is no example
    share: NDArray[np.float64]  # (N,) of the neighbours that have it
    distance: NDArray[np.float64]  # (N,) to the nearest of these
    example: IntArray  # (N,) row of that one


@dataclass(frozen=True)
class HeldOut:
    """How well naming does on examples from recordings it has not seen.

    Attributes:
        events: examples that were tested.
        named: those that were given a name.
        right: those that were given the right name.
        unknown_label_events: examples that were tested with all examples of their label removed.
        unknown_label_named: those of them that were given a name, which is always wrong.
    """

    events: int
    named: int
    right: int
    unknown_label_events: int
    unknown_label_named: int

    @property
    def named_share(self) -> float:
        """Share of the events that were named."""
        return self.named / self.events if self.events else float("nan")

    @property
    def right_share(self) -> float:
        """Share of the names that were right."""
        return self.right / self.named if self.named else float("nan")

    @property
    def unknown_found_share(self) -> float:
        """Share of sounds of labels without examples that were called unknown, as they should be."""
        if not self.unknown_label_events:
            return float("nan")
        return 1 - self.unknown_label_named / self.unknown_label_events


@dataclass(frozen=True)
class UnknownRule:
    """The distance beyond which an event is unknown, and how it was found.

    Attributes:
        k: neighbours that vote.
        target: share of names that should be right.
        max_distance: the threshold; below 0 where no distance reached the target, so that all is unknown.
        chosen: whether it was chosen here, or given.
        examples: number of examples.
        recordings: number of recordings they come from.
        labels: number of different labels.
        single_recording_labels: labels that occur in only one recording.
        reachable: the largest share of names that any distance makes right; None where too few can be measured.
        held_out: what naming reaches on other recordings, with thresholds chosen without them.
    """

    k: int
    target: float
    max_distance: float
    chosen: bool
    examples: int
    recordings: int
    labels: int
    single_recording_labels: int
    reachable: float | None
    held_out: HeldOut | None

    def as_json(self) -> dict[str, object]:
        """All of it, with the shares; shares of nothing are ``None``."""
        content: dict[str, object] = asdict(self)
        if self.held_out is not None:
            names = ("named_share", "right_share", "unknown_found_share")
            shares = {name: float(getattr(self.held_out, name)) for name in names}
            held = {**asdict(self.held_out), **{n: v if v == v else None for n, v in shares.items()}}
            content["held_out"] = held
        return content

    def sentence(self) -> str:
        """What to expect, in a sentence for the user."""
        found = self.held_out
        if found is None:
            return f"names within distance {self.max_distance:.3f}, as given; how many are right is not known"
        if self.max_distance < 0:
            return (
                f"on held-out recordings no distance made {self.target:.0%} of the names right, so everything is "
                f"{UNKNOWN}{self._single_recording_note()}; {self._remedy()}"
            )
        said = (
            f"on examples from held-out recordings {found.named_share:.0%} of {found.events:,} events were named, "
            f"{_percent(found.right_share)} of them correctly"
        )
        if found.unknown_label_events:
            said += f", and {found.unknown_found_share:.0%} of events whose label had no example were called {UNKNOWN}"
        return said

    def _single_recording_note(self) -> str:
        single = self.single_recording_labels
        if not single:
            return ""
        verb = "comes" if single == 1 else "come"
        return f" ({single:,} of {counted(self.labels, 'label')} {verb} from one recording only)"

    def _remedy(self) -> str:
        others = " from other recordings" if self.single_recording_labels else ""
        reached = math.floor(100 * (self.reachable or 0) + 1e-9) / 100
        return f"give more examples{others}" + (
            f", or --precision {reached:g}, the highest that is reached" if reached else ""
        )


class Namer:
    """Annotated examples that name other events.

    Args:
        vectors: (M, D) of the examples.
        labels: (M,) their labels; none may be empty.
        recordings: (M,) the recordings they come from.
        ids: (M,) their ids; an event is never named by itself.
        k: neighbours that vote; 5 is our choice.

    Raises:
        ConfigError: no examples.
    """

    def __init__(
        self,
        vectors: Vectors,
        labels: Sequence[str],
        recordings: Sequence[str],
        ids: Sequence[str],
        *,
        k: int = 5,
    ) -> None:
        if not len(vectors):
            raise ConfigError("there are no labelled examples to name by; give events with a label")
        if k < 1:
            raise ConfigError(f"{k} neighbours make no sense; expected at least 1")
        self.vectors = vectors
        self.k = k
        self._codes, names = pd.factorize(np.asarray(labels, dtype=object), sort=True)
        self.labels = [str(name) for name in names]
        self._recordings = np.asarray(recordings, dtype=object)
        self._ids = np.asarray(ids, dtype=object)

    def calibrate(self, target: float = 0.9, *, max_distance: float | None = None) -> UnknownRule:
        """Choose the threshold on the examples, or take the one given, and measure what it achieves.

        Args:
            target: share of names that should be right.
            max_distance: use this threshold instead.

        Raises:
            ConfigError: a share outside (0, 1], or examples of a single recording, which cannot be held out.
        """
        if not 0 < target <= 1:
            raise ConfigError(f"precision {target:g}: expected a share above 0 and at most 1, such as 0.9")
        recordings, n_recordings = pd.factorize(self._recordings)[0], len(set(self._recordings))
        if n_recordings < 2 and max_distance is None:
            raise ConfigError(
                f"all {len(self.vectors)} examples come from one recording, so how far a name can be trusted cannot "
                "be measured; give examples of other recordings, or a --max-distance"
            )
        of_label = pd.DataFrame({"label": self._codes, "recording": recordings})
        single = int((of_label.groupby("label")["recording"].nunique() == 1).sum())
        limit, held_out, reachable = max_distance, None, None
        if n_recordings >= 2:
            limit, held_out, reachable = self._held_out(
                target, max_distance, recordings % min(_FOLDS, n_recordings)
            )
        assert limit is not None
        return UnknownRule(
            k=self.k,
            target=target,
            max_distance=float(limit),
            chosen=max_distance is None,
            examples=len(self.vectors),
            recordings=n_recordings,
            labels=len(self.labels),
            single_recording_labels=single,
            reachable=reachable,
            held_out=held_out,
        )

    def _held_out(
        self, target: float, max_distance: float | None, folds: IntArray
    ) -> tuple[float, HeldOut, float | None]:
        """The limit (chosen if none is given), its results on held-out recordings, and the best share that is right."""
        same_recording = (self._recordings, self._recordings)
        votes = self._vote(nearest(self.vectors, self.vectors, self.k, exclude=(same_recording,)))
        right = votes.label == self._codes
        same_label = (self._codes, self._codes)
        without_own_label = self._vote(
            nearest(self.vectors, self.vectors, self.k, exclude=(same_recording, same_label))
        )
        limit = choose_distance(votes.distance, right, target) if max_distance is None else max_distance
        limits = np.full(len(right), limit)
        if max_distance is None:
            for fold in np.unique(folds):
                others = folds != fold
                limits[~others] = choose_distance(votes.distance[others], right[others], target)
        named = votes.distance <= limits
        shares = _right_share_by_distance(votes.distance, right)[1]
        held_out = HeldOut(
            events=len(right),
            named=int(named.sum()),
            right=int((named & right).sum()),
            unknown_label_events=len(right) if len(self.labels) > 1 else 0,
            unknown_label_named=int((without_own_label.distance <= limits).sum())
            if len(self.labels) > 1
            else 0,
        )
        return limit, held_out, float(shares.max()) if len(shares) else None

    def name(self, events: pd.DataFrame, vectors: ArrayLike, calibration: UnknownRule) -> pd.DataFrame:
        """Name events.

        Args:
            events: with an ``id``.
            vectors: (N, D) of them.
            calibration: the threshold.

        Returns:
            The events with ``label`` (or "unknown"), ``label_share`` (of the neighbours that have it), ``distance``
            (to the nearest of these), ``nearest_label`` (the name whatever its distance), ``nearest_id`` (of that
            example), ``given_label`` (what ``label`` was), and, as in tables of `mast name`, ``label_score``
            (1 − distance) and ``label_source``.
        """
        votes = self._vote(nearest(vectors, self.vectors, self.k, exclude=((events["id"], self._ids),)))
        guess = np.array([*self.labels, ""], dtype=object)[votes.label]
        return events.assign(
            given_label=events["label"],
            label=np.where(votes.distance <= calibration.max_distance, guess, UNKNOWN),
            label_share=votes.share.round(6),
            distance=votes.distance.round(6),
            nearest_label=guess,
            nearest_id=np.array([*self._ids, ""], dtype=object)[votes.example],
            label_score=(1 - votes.distance).clip(min=0.0).round(6),
            label_source=SOURCE,
        )

    def _vote(self, found: Neighbours) -> Votes:
        """The label of most neighbours; in a tie, that of the nearest."""
        known = found.index >= 0
        codes = np.where(known, self._codes[found.index], -1)  # (N, k)
        counts = (codes[:, :, None] == codes[:, None, :]).sum(axis=2) * known  # of the label at each place
        place = counts.argmax(axis=1)  # the first of the largest: neighbours are in order
        rows = np.arange(len(codes))
        return Votes(
            label=codes[rows, place],
            share=counts[rows, place] / np.maximum(known.sum(axis=1), 1),
            distance=found.distance[rows, place].astype(np.float64),
            example=found.index[rows, place],
        )


def choose_distance(distance: ArrayLike, right: ArrayLike, target: float) -> float:
    """The largest distance up to which at least ``target`` of the names were right; −1 where there is none.

    At least ten names must lie within it: one right name out of one says nothing.

    >>> choose_distance([0.1] * 10 + [0.2] * 10 + [0.3], [True] * 19 + [False] * 2, 0.95)
    0.2
    """
    away, share = _right_share_by_distance(distance, right)
    fine = np.flatnonzero(share >= target - 1e-12)
    return float(away[fine[-1]]) if len(fine) else -1.0


def _right_share_by_distance(distance: ArrayLike, right: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Distances within which enough names lie, in order, and the share of these that is right."""
    away = np.asarray(distance, dtype=np.float64)
    good = np.asarray(right, dtype=bool)[np.isfinite(away)]
    away = away[np.isfinite(away)]
    order = np.argsort(away, kind="stable")
    away, good = away[order], good[order]
    share = np.cumsum(good) / np.arange(1, len(good) + 1)
    last_of_equals = np.append(away[1:] > away[:-1], True) if len(away) else np.zeros(0, dtype=bool)
    usable = last_of_equals & (np.arange(1, len(away) + 1) >= MIN_NAMED)
    return away[usable], share[usable]


def _percent(share: float) -> str:
    return f"{share:.0%}" if share == share else "none"
