"""What a model finds in whole recordings, as `mast detect` does: windows overlap, and boxes are joined across them.

Chunk by chunk, as in the paper, a call at the edge of a chunk is cut in two. Users never see that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from mast.data.recordings import Dataset
from mast.detect_options import DEFAULT_OPTIONS, DetectOptions
from mast.errors import MastError
from mast.evaluation.part_tables import PartTables
from mast.events import as_events
from mast.grid import FrontEnd
from mast.inference import Detector, Source
from mast_studies.zero_shot_sets import write_variant

FLOOR = 0.02  # raw score down to which detections are kept for average precision and the best threshold


@dataclass(frozen=True, eq=False)
class SearchResult:
    """What a model found.

    Attributes:
        events: events at the model's own threshold.
        scored: events down to a very low score.
        threshold: minimum score of ``events``.
    """

    events: pd.DataFrame
    scored: pd.DataFrame
    threshold: float


def search(detector: Detector, dataset: Dataset, files: Sequence[str] | None = None) -> pd.DataFrame:
    """The events of all recordings, or of some in this order, as one table; refuses those that cannot be read."""
    names = [str(file) for file in (dataset.recordings["file"] if files is None else files)]
    outcomes = list(detector.outcomes([Source(dataset.path(name), name) for name in names]))
    failed = [outcome.error for outcome in outcomes if outcome.error]
    if failed:
        raise MastError(failed[0])
    return as_events(pd.concat([outcome.events for outcome in outcomes], ignore_index=True))


def search_twice(
    model: Path,
    dataset: Dataset,
    files: Sequence[str] | None = None,
    *,
    floor: float = FLOOR,
    options: DetectOptions = DEFAULT_OPTIONS,
) -> SearchResult:
    """A model's events at its own threshold, and those down to a low raw score; recordings as in :func:`search`."""
    detector = Detector(model, options)
    events, threshold = search(detector, dataset, files), detector.scores.threshold
    with TemporaryDirectory() as folder:
        detector = Detector(write_variant(model, Path(folder) / "low", threshold=floor), options)
        return SearchResult(events, search(detector, dataset, files), threshold)


def detect_whole(
    model: Path, dataset: Dataset, heard: pd.DataFrame, front_end: FrontEnd, *, floor: float
) -> PartTables:
    """A model's events in the recordings of one part: those at its own threshold, and those with lower scores.

    Args:
        model: a detector's folder.
        dataset: the recordings and the expert's boxes.
        heard: ``recording, start_s, end_s`` of the spans that count.
        front_end: the grid on which boxes are compared.
        floor: raw score down to which events are kept.
    """
    found = search_twice(model, dataset, list(heard["recording"]), floor=floor)
    threshold = min([found.threshold, *found.events["score"]])  # events have probabilities, rounded
    lower = found.scored[found.scored["score"] < threshold]
    truth = dataset.annotations.events
    there = truth[truth["recording"].isin(heard["recording"])].reset_index(drop=True)
    both = pd.concat([found.events, lower], ignore_index=True)
    return PartTables(there, both, heard, front_end, threshold=threshold)
