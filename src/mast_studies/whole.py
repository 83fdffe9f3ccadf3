"""What a model finds in whole recordings, as `mast detect` does: windows overlap, and boxes are joined across them.

Chunk by chunk, as in the paper, a call at the edge of a chunk is cut in two. Users never see that.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from mast.data.recordings import Dataset
from mast.detect_options import DetectOptions
from mast.errors import MastError
from mast.evaluation.part_tables import PartTables
from mast.events import as_events
from mast.grid import FrontEnd
from mast.inference import Detector, Source
from mast.models.checkpoint import load_card
from mast_studies.zero_shot_sets import variant


def detect_whole(
    model: Path, dataset: Dataset, heard: pd.DataFrame, front_end: FrontEnd, copy: Path, *, floor: float
) -> PartTables:
    """A model's events in the recordings of one part, at its own threshold, with those of lower scores beside them.

    Args:
        model: a detector's folder.
        dataset: the recordings and the expert's boxes.
        heard: ``recording, start_s, end_s`` of what counts.
        front_end: the grid on which boxes are compared.
        copy: for the model with a lower threshold.
        floor: that threshold, a raw score.
    """
    files = [str(name) for name in heard["recording"]]
    own = _events(model, dataset, files)
    low = _events(variant(model, copy, threshold=floor), dataset, files)
    card, truth = load_card(model), dataset.annotations.events
    # events have probabilities, rounded
    threshold = min([float(card.probabilities.apply(card.thresholds["score"])), *own["score"]])
    found = pd.concat([own, low[low["score"] < threshold]], ignore_index=True)
    there = truth[truth["recording"].isin(files)].reset_index(drop=True)
    return PartTables(there, as_events(found), heard, front_end, threshold=threshold)


def _events(model: Path, dataset: Dataset, files: Sequence[str]) -> pd.DataFrame:
    outcomes = list(Detector(model, DetectOptions()).outcomes([Source(dataset.path(f), f) for f in files]))
    failed = [outcome.error for outcome in outcomes if outcome.error]
    if failed:
        raise MastError(failed[0])
    return pd.concat([outcome.events for outcome in outcomes], ignore_index=True)
