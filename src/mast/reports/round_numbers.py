"""The contents of a self-training run's folder, and its pseudo-labels in numbers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from mast.arrays import IntArray
from mast.errors import MastError
from mast.events import match_pairs, overlapping_pairs
from mast.grid import FrontEnd
from mast.runs import ROUNDS, load_inputs
from mast.selftrain.pseudo import UNLABELLED, sure_pseudo_labels

_CELLS = ["t1", "f1", "t2", "f2"]


class Agreement(NamedTuple):
    """How far two rounds' pseudo-boxes are the same boxes: one-to-one pairs at IoU ≥ 0.5."""

    matched: int
    of_current: float  # share of this round's boxes that the round before had; NaN without boxes
    of_previous: float  # share of the round before's boxes that are still there; NaN without boxes


@dataclass(frozen=True)
class SelfTrainingRun:
    """The contents of a run's folder.

    Attributes:
        rows: ``rounds.csv``.
        pseudo: the pseudo-boxes of each round, by its number; ``chunk`` means the same sound in all rounds.
        labelled_chunks: numbers of the chunks that each round labelled; empty for older runs, whose rounds all
            labelled the same chunks.
        expert: the expert's boxes of the training part.
        front_end: of the detector.
        seed: of the run; samples are drawn with it.
        teachers: folders of the detectors that labelled together with the run's own.
    """

    rows: pd.DataFrame
    pseudo: dict[int, pd.DataFrame]
    labelled_chunks: dict[int, IntArray]
    expert: pd.DataFrame
    front_end: FrontEnd
    seed: int
    teachers: tuple[str, ...] = ()

    @property
    def parts(self) -> list[str]:
        """Parts other than validation that were measured."""
        return [c.removesuffix("_f1") for c in self.rows.columns if c.endswith("_f1")]

    def in_shared_chunks(self, number: int) -> tuple[pd.DataFrame, pd.DataFrame] | None:
        """The pseudo-boxes of the round before and of this one in the chunks that both labelled, if any."""
        if number - 1 not in self.pseudo:
            return None
        both = self.pseudo[number - 1], self.pseudo[number]
        if not self.labelled_chunks:
            return both
        chunks = np.intersect1d(self.labelled_chunks[number - 1], self.labelled_chunks[number])
        previous, current = (events[events["chunk"].isin(chunks)] for events in both)
        return (previous, current) if len(chunks) else None


def read_rounds(run: Path) -> SelfTrainingRun:
    """Read the folder of a self-training run."""
    for needed in (ROUNDS, "recipe.json", "expert.parquet"):
        if not (run / needed).is_file():
            raise MastError(f"{run}: has no {needed}; expected the --out folder of mast selftrain")
    about = load_inputs(run / "recipe.json", "recipe", "seed") or {}
    rows = pd.read_csv(run / ROUNDS)
    numbers = sorted(set(rows["round"]) - {0})
    pseudo, labelled_chunks = _number_chunks_alike(
        {n: sure_pseudo_labels(run / f"round-{n}" / "pseudo.parquet") for n in numbers},
        {n: run / f"round-{n}" / UNLABELLED for n in numbers},
    )
    return SelfTrainingRun(
        rows=rows,
        pseudo=pseudo,
        labelled_chunks=labelled_chunks,
        expert=pd.read_parquet(run / "expert.parquet"),
        front_end=FrontEnd.model_validate(about["recipe"]["front_end"]),
        seed=int(about["seed"]),
        teachers=tuple(about.get("teachers", ())),
    )


def _number_chunks_alike(
    pseudo: dict[int, pd.DataFrame], paths: dict[int, Path]
) -> tuple[dict[int, pd.DataFrame], dict[int, IntArray]]:
    """The pseudo-boxes of all rounds with chunks numbered alike, and the numbers of the chunks each round labelled."""
    if not all(path.is_file() for path in paths.values()):
        return pseudo, {}
    tables = [pd.read_parquet(path) for path in paths.values()]
    if not tables:
        return pseudo, {}
    groups = pd.concat(tables).groupby(["root", "recording", "start_s"]).ngroup()
    numbers = np.asarray(groups, dtype=np.int64)
    of_each = np.split(numbers, np.cumsum([len(own) for own in tables])[:-1])
    labelled = dict(zip(paths, of_each, strict=True))
    return {n: own.assign(chunk=labelled[n][own["chunk"].to_numpy()]) for n, own in pseudo.items()}, labelled


def agreement(previous: pd.DataFrame, current: pd.DataFrame) -> Agreement:
    """Match the pseudo-boxes of two rounds chunk by chunk, in cells, the best-scored of ``current`` first."""
    pairs = overlapping_pairs(
        previous[_CELLS],
        current[_CELLS],
        threshold=0.5,
        truth_group=previous["chunk"],
        prediction_group=current["chunk"],
    )
    matched = len(match_pairs(pairs, current["score"]).prediction)
    return Agreement(
        matched,
        matched / len(current) if len(current) else float("nan"),
        matched / len(previous) if len(previous) else float("nan"),
    )


def round_summary(run: SelfTrainingRun) -> pd.DataFrame:
    """One row per round: how many pseudo-boxes, where, of what size, and what they share with the round before.

    Columns: ``round, boxes, chunks, recordings, median_length_s, median_bandwidth_hz, median_score,
    median_threshold, in_previous, of_previous``.
    """
    rows = []
    for number, events in run.pseudo.items():
        both = run.in_shared_chunks(number)
        shared = agreement(*both) if both is not None else Agreement(0, float("nan"), float("nan"))
        rows.append(
            {
                "round": number,
                "boxes": len(events),
                "chunks": events["chunk"].nunique(),
                "recordings": len(events[["root", "recording"]].drop_duplicates()),
                "median_length_s": (events["end_s"] - events["start_s"]).median(),
                "median_bandwidth_hz": (events["high_hz"] - events["low_hz"]).median(),
                "median_score": events["score"].median(),
                "median_threshold": events["threshold"].median(),
                "in_previous": shared.of_current,
                "of_previous": shared.of_previous,
            }
        )
    return pd.DataFrame(rows)
