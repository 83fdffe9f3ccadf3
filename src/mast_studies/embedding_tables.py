"""Tables of the studies of embeddings: what is kept for each trial, and means with intervals.

    WORK/<dataset>-<seed>/embedded/<system>/chunks.parquet   one row per chunk
                                            boxes.parquet    one row per true box or detection
                                            about.json       which models; written last

Every value is the mean over seeds of a mean over chunks or boxes; intervals (95 %) draw recordings, as in
:mod:`mast_studies.study_tables`, and differences come from the same draws.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from mast.arrays import FloatArray
from mast.files import atomic_file
from mast_studies.figures import part_name
from mast_studies.found import Trial, load_about, save_about
from mast_studies.ranks import mean_in_draws
from mast_studies.study_tables import PARTS, Archive, Score, draw_recordings, format_number, mean_over_seeds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Way = Literal["mel", "pretrained", "encoder", "projection"]
WAYS: dict[str, str] = {
    "mel": "mel statistics",
    "pretrained": "pretrained encoder",
    "encoder": "MAST's encoder",
    "projection": "MAST's contrastive projection",
}
BASELINE = "mel"
SETTINGS = {
    "oracle": "true boxes",
    "oracle_found": "true boxes that were detected",
    "detected": "detected boxes",
}
NEIGHBOURS = 10  # our choice: as many as a person would look at
GOOD_IOU = 0.75  # our choice: halfway from a match to a perfect one
_FOLDER = "embedded"


class EmbeddedTables(NamedTuple):
    """What is kept for a trial; see :mod:`mast_studies.embedded`."""

    chunks: pd.DataFrame
    boxes: pd.DataFrame


class TableCell(NamedTuple):
    """One mean of a table, and what it belongs to."""

    dataset: str
    part: str  # "" where all test parts are taken together
    line: str  # what is compared, as the table calls it
    way: str
    measure: str
    score: Score
    difference: Score | None  # difference from the baseline
    n: int  # chunks or boxes, over all seeds
    n_recordings: int
    seeds: tuple[int, ...]


class ShownTable(NamedTuple):
    """A table to be read by people."""

    heading: str
    header: list[str]
    cells: list[list[str]]


@dataclass(frozen=True)
class Summary:
    """The results of a study of embeddings.

    Attributes:
        cells: all values, for the CSV and the JSON.
        tables: tables to be read by people.
        notes: one sentence for each thing that could not be measured.
        figure: the picture; None where there is nothing to draw.
    """

    cells: list[TableCell] = field(default_factory=list)
    tables: list[ShownTable] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    figure: Callable[[], Figure] | None = None


def folder_of(trial: Trial, system: str) -> Path:
    """Where a trial's tables are."""
    return trial.folder / _FOLDER / system


def save_embedded(folder: Path, tables: EmbeddedTables, about: Mapping[str, Any]) -> None:
    """Keep the tables, and last what they were made from."""
    for name, table in tables._asdict().items():
        with atomic_file(folder / f"{name}.parquet") as path:
            table.to_parquet(path, index=False)
    save_about(folder, about)


def load_embedded(folder: Path) -> EmbeddedTables | None:
    """Read the tables; None if any of them is missing."""
    if not load_about(folder):
        return None
    return EmbeddedTables(*(pd.read_parquet(folder / f"{name}.parquet") for name in EmbeddedTables._fields))


def load_embedded_seeds(archive: Archive, dataset: str) -> dict[int, EmbeddedTables]:
    """The tables that exist for a dataset, by seed."""
    trials = [trial for trial in archive.trials_of(dataset) if "mast" not in trial.left_out]
    found = {trial.seed: load_embedded(folder_of(trial, "mast")) for trial in trials}
    return {seed: tables for seed, tables in found.items() if tables is not None}


class RecordingBootstrap:
    """Means of columns over rows of several seeds, with intervals over recordings."""

    def __init__(self, tables: Mapping[int, pd.DataFrame], columns: Sequence[str], resamples: int) -> None:
        """``columns`` tell apart recordings that have the same name but differ between seeds."""
        fingerprints = {
            seed: {
                str(name): own[list(columns)].to_numpy(dtype=np.float64).round(3).tobytes()
                for name, own in table.groupby("recording")
            }
            for seed, table in tables.items()
        }
        self._weights = draw_recordings(fingerprints, resamples)
        self._count = max((len(w) for own in self._weights.values() for w in own.values()), default=0)

    def mean(
        self, tables: Mapping[int, pd.DataFrame], column: str
    ) -> tuple[dict[int, float], dict[int, FloatArray]]:
        """By seed: the mean of a column, and its mean in each draw; rows without a value are left out."""
        plain, drawn = {}, {}
        for seed, table in tables.items():
            known = table[table[column].notna()]
            plain[seed] = float(known[column].mean())
            recording, names = pd.factorize(known["recording"])
            own = [self._weights[seed][str(name)] for name in names]
            weights = np.stack(own, axis=1) if own else np.zeros((self._count, 0))  # (resamples, recordings)
            drawn[seed] = mean_in_draws(known[column], recording, weights)
        return plain, drawn

    def score(self, tables: Mapping[int, pd.DataFrame], column: str, subtract: str | None = None) -> Score:
        """The mean over seeds of a column, or of its difference from another."""
        plain, drawn = self.mean(tables, column)
        if subtract is not None:
            other_plain, other_drawn = self.mean(tables, subtract)
            plain = {seed: plain[seed] - other_plain[seed] for seed in plain}
            drawn = {seed: drawn[seed] - other_drawn[seed] for seed in drawn}
        return mean_over_seeds([(plain[seed], drawn[seed]) for seed in plain])


def table_cell(
    bootstrap: RecordingBootstrap,
    tables: Mapping[int, pd.DataFrame],
    column: str,
    *,
    subtract: str | None,
    place: tuple[str, str],
    measured: tuple[str, str, str],
) -> TableCell:
    """The mean of a column with its interval; ``place`` is dataset and part, ``measured`` line, way and measure."""
    filled = {seed: table[table[column].notna()] for seed, table in tables.items()}
    filled = {seed: table for seed, table in filled.items() if len(table)}
    return TableCell(
        *place,
        *measured,
        bootstrap.score(filled, column) if filled else Score(*[float("nan")] * 3),
        bootstrap.score(filled, column, subtract) if filled and subtract not in (None, column) else None,
        sum(len(table) for table in filled.values()),
        sum(int(table["recording"].nunique()) for table in filled.values()),
        tuple(filled),
    )


def as_frame(cells: Sequence[TableCell]) -> pd.DataFrame:
    """One line per value, for a spreadsheet."""
    nothing = Score(*[float("nan")] * 3)
    return pd.DataFrame(
        [
            {
                "dataset": c.dataset,
                "part": c.part,
                "boxes_or_chunks": c.line,
                "way": c.way,
                "measure": c.measure,
                "value": c.score.value,
                "low": c.score.low,
                "high": c.score.high,
                "difference": (c.difference or nothing).value,
                "difference_low": (c.difference or nothing).low,
                "difference_high": (c.difference or nothing).high,
                "n": c.n,
                "n_recordings": c.n_recordings,
                "seeds": len(c.seeds),
            }
            for c in cells
        ]
    )


def as_json(cells: Sequence[TableCell]) -> list[dict[str, Any]]:
    """The values as plain numbers and text; missing values are None."""

    def plain(score: Score | None) -> list[float | None] | None:
        return None if score is None else [round(v, 6) if np.isfinite(v) else None for v in score]

    return [
        {
            **{k: v for k, v in c._asdict().items() if k not in ("score", "against", "seeds")},
            "value_low_high": plain(c.score),
            "difference_low_high": plain(c.difference),
            "seeds": list(c.seeds),
        }
        for c in cells
    ]


def format_score(score: Score, digits: int = 3) -> str:
    """A value with its interval in brackets."""
    ends = (
        f" ({format_number(score.low, digits)}–{format_number(score.high, digits)})"
        if np.isfinite(score.low)
        else ""
    )
    return format_number(score.value, digits) + ends


def format_difference(score: Score | None) -> str:
    """A difference with its interval in brackets."""
    if score is None or not np.isfinite(score.value):
        return "–"
    ends = f" ({score.low:+.3f} to {score.high:+.3f})" if np.isfinite(score.low) else ""
    return f"{score.value:+.3f}{ends}"


def ways_of(table: pd.DataFrame, prefix: str) -> list[str]:
    """The ways of comparing that a table has, the baseline first."""
    return [way for way in WAYS if f"{prefix}_{way}" in table]


def parts_of(tables: Mapping[int, EmbeddedTables]) -> list[str]:
    """The test parts, near home to far."""
    found = {part for own in tables.values() for part in own.chunks["part"].unique()}
    return [part for part in PARTS if part in found]


def place_name(dataset: str, part: str) -> str:
    """What a table was measured on."""
    return f"{dataset}, {part_name(part)}" if part else dataset
