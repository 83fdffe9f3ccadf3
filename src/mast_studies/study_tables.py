"""From what systems found to numbers with intervals, and to tables of them.

Every metric is the mean over seeds of its value on one seed's part, at the threshold that validation chose there.
Intervals are 95 % bootstrap intervals over recordings, drawn for all seeds at once; a recording that is a test in
several seeds is drawn in all of them or in none. Differences from the reference system, or from the row above, come
from the same draws.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from mast.arrays import FloatArray
from mast.data.splits import SITE_OOD, TEMPORAL_OOD
from mast.errors import MastError
from mast.evaluation.bootstrap import draw_weights, interval
from mast.evaluation.metrics import metrics_of
from mast.evaluation.outcome import Outcome
from mast.evaluation.part_tables import PartTables, has_part
from mast.events import BOX_COLUMNS
from mast_studies.found import NOT_TESTS, Trial, load_about, trials

METRICS = {
    "precision": "P",
    "recall": "R",
    "f1": "F1",
    "ap50_voc11": "AP50 (11-point)",
    "ap50": "AP50",
    "miou": "mIoU",
}
PARTS = {"test": "in domain", TEMPORAL_OOD: "other days", SITE_OOD: "other sites"}
RESAMPLES = 1_000


class Score(NamedTuple):
    """A value with its interval; NaN where it is not known."""

    value: float
    low: float
    high: float


class Line(NamedTuple):
    """A system in a table and its label there; without one, the label that the system's own run gave it."""

    system: str
    label: str = ""


@dataclass(frozen=True)
class Row:
    """One system on one part of one dataset.

    Attributes:
        dataset: its name.
        part: the dataset's name for it.
        system: its name.
        label: its name in the table.
        seeds: the seeds it was trained with.
        scores: by metric.
        by_seed: the values of each seed, by metric.
        differences: differences from the reference or the row above, on the seeds both have; empty if there is none.
        gained: differences from the system that self-training started from, in the same way.
        n_truth: true boxes over all seeds.
        n_recordings: recordings over all seeds.
        seconds: of training, including what it builds on; mean over seeds, NaN if not known.
        parameters: of the model; 0 if not known.
    """

    dataset: str
    part: str
    system: str
    label: str
    seeds: tuple[int, ...]
    scores: Mapping[str, Score]
    by_seed: Mapping[str, tuple[float, ...]]
    differences: Mapping[str, Score]
    gained: Mapping[str, Score]
    n_truth: int
    n_recordings: int
    seconds: float
    parameters: int


class _Values(NamedTuple):
    """Metrics of one system, part and seed: plain, and in each draw of recordings."""

    plain: dict[str, float]
    drawn: dict[str, FloatArray]
    n_truth: int
    n_recordings: int


@dataclass
class Archive:
    """The contents of a work folder, measured on demand and only once for all studies.

    Attributes:
        work: the folder.
        datasets: names of those to use; all by default.
        seeds: seeds to use; all by default.
        left_out: systems to ignore, each with its seed.
        resamples: draws of recordings.
    """

    work: Path
    datasets: Sequence[str] | None = None
    seeds: Sequence[int] | None = None
    left_out: Collection[tuple[str, int]] = ()
    resamples: int = RESAMPLES
    _values: dict[tuple[Path, str, str], _Values] = field(default_factory=dict, repr=False)
    _draws: dict[tuple[str, str], dict[int, dict[str, FloatArray]]] = field(default_factory=dict, repr=False)

    @cached_property
    def trials(self) -> list[Trial]:
        """The datasets and seeds in use."""
        return [
            replace(trial, left_out=frozenset(name for name, seed in self.left_out if seed == trial.seed))
            for trial in trials(self.work)
            if (self.datasets is None or trial.dataset in self.datasets)
            and (self.seeds is None or trial.seed in self.seeds)
        ]

    def dataset_names(self) -> list[str]:
        """The datasets in use."""
        return list(dict.fromkeys(trial.dataset for trial in self.trials))

    def trials_of(self, dataset: str) -> list[Trial]:
        """The seeds of a dataset."""
        return [trial for trial in self.trials if trial.dataset == dataset]

    def parts(self, dataset: str) -> list[str]:
        """The test parts that any system was measured on: near home to far, then other datasets by name."""
        found = {
            p for trial in self.trials_of(dataset) for system in trial.systems() for p in trial.parts(system)
        }
        return [*(p for p in PARTS if p in found), *sorted(found - PARTS.keys() - NOT_TESTS)]

    def rows(
        self,
        dataset: str,
        part: str,
        lines: Sequence[Line],
        *,
        reference: str | None = None,
        stepwise: bool = False,
        starts: Mapping[str, str] | None = None,
    ) -> list[Row]:
        """The rows of a table: the systems that were measured on this part.

        Args:
            dataset: its name.
            part: the part of it.
            lines: systems in order.
            reference: the system that differences are taken from.
            stepwise: take differences from the row above instead.
            starts: for each self-trained system, the one it started from.
        """
        found: list[Row] = []
        for line in lines:
            own = self._values_by_seed(dataset, part, line.system)
            if own:
                if stepwise:
                    reference = found[-1].system if found else None
                base = self._values_by_seed(dataset, part, reference) if reference != line.system else {}
                start = self._values_by_seed(dataset, part, (starts or {}).get(line.system))
                found.append(self._row(dataset, part, line, own, base, start))
        return found

    def _values_by_seed(self, dataset: str, part: str, system: str | None) -> dict[int, _Values]:
        """A system's values by seed."""
        if system is None:
            return {}
        return {
            trial.seed: self._value(trial, part, system)
            for trial in self.trials_of(dataset)
            if trial.has(system, part)
        }

    def _value(self, trial: Trial, part: str, system: str) -> _Values:
        key = (trial.folder, part, system)
        if key not in self._values:
            folder = trial.system(system)
            tables = PartTables.load(folder, part)
            outcome, threshold = match_part(tables), tables.threshold
            weights_by_recording = self._weights(trial.dataset, part)[trial.seed]
            unknown = [name for name in outcome.scene.recordings if name not in weights_by_recording]
            if unknown:
                raise MastError(
                    f"{folder}: was measured on {unknown[0]}, which other systems of this seed were not; delete it "
                    "and run the system again"
                )
            weights = np.stack([weights_by_recording[name] for name in outcome.scene.recordings], axis=1)
            plain = metrics_of(outcome, threshold)
            drawn = metrics_of(outcome, threshold, weights)
            self._values[key] = _Values(
                {name: float(plain[name][0]) for name in METRICS},
                {name: drawn[name] for name in METRICS},
                len(outcome.scene.truth),
                len(outcome.scene.recordings),
            )
        return self._values[key]

    def _weights(self, dataset: str, part: str) -> dict[int, dict[str, FloatArray]]:
        """By seed and recording, how often it counts in each draw, (resamples,)."""
        key = (dataset, part)
        if key not in self._draws:
            fingerprints: dict[int, dict[str, bytes]] = {}
            for trial in self.trials_of(dataset):
                folders = [trial.system(name) for name in trial.systems()]
                known = next((folder for folder in folders if has_part(folder, part)), None)
                if known is not None:
                    fingerprints[trial.seed] = _fingerprints(PartTables.load(known, part))
            self._draws[key] = draw_recordings(fingerprints, self.resamples)
        return self._draws[key]

    def _row(
        self,
        dataset: str,
        part: str,
        line: Line,
        own: Mapping[int, _Values],
        base: Mapping[int, _Values],
        start: Mapping[int, _Values],
    ) -> Row:
        abouts = [
            load_about(trial.system(line.system)) for trial in self.trials_of(dataset) if trial.seed in own
        ]
        seconds = [sum(about["seconds"].values()) for about in abouts if about.get("seconds")]
        return Row(
            dataset=dataset,
            part=part,
            system=line.system,
            label=line.label or next((str(a["title"]) for a in abouts if "title" in a), line.system),
            seeds=tuple(own),
            scores={
                name: mean_over_seeds([(v.plain[name], v.drawn[name]) for v in own.values()])
                for name in METRICS
            },
            by_seed={name: tuple(v.plain[name] for v in own.values()) for name in METRICS},
            differences=_score_differences(own, base),
            gained=_score_differences(own, start),
            n_truth=sum(v.n_truth for v in own.values()),
            n_recordings=sum(v.n_recordings for v in own.values()),
            seconds=float(np.mean(seconds)) if seconds else float("nan"),
            parameters=max((int(about.get("parameters", 0)) for about in abouts), default=0),
        )


def _score_differences(own: Mapping[int, _Values], other: Mapping[int, _Values]) -> dict[str, Score]:
    """``own − other`` of every metric, on the seeds both have; empty if there is none."""
    both = [(own[seed], other[seed]) for seed in own if seed in other]
    return {
        name: mean_over_seeds(
            [(a.plain[name] - b.plain[name], a.drawn[name] - b.drawn[name]) for a, b in both]
        )
        for name in METRICS
        if both
    }


def draw_recordings(
    fingerprints: Mapping[int, Mapping[str, bytes]], resamples: int
) -> dict[int, dict[str, FloatArray]]:
    """By seed and recording, how often it counts in each draw, (resamples,).

    ``fingerprints``: by seed and recording, what tells apart recordings that have the same name but differ between
    seeds.
    """
    units: dict[tuple[str, bytes], int] = {}
    places = {
        seed: {name: units.setdefault((name, mark), len(units)) for name, mark in own.items()}
        for seed, own in fingerprints.items()
    }
    weights = draw_weights(len(units), resamples, seed=0)
    return {seed: {name: weights[:, unit] for name, unit in own.items()} for seed, own in places.items()}


def match_part(part: PartTables) -> Outcome:
    """Which detections are right, at IoU 0.5.

    The tables only show that overlap, so the nine stricter ones of ``ap50_95`` are left out: the bootstrap would spend
    most of its time on them.
    """
    outcome = part.match()
    return replace(outcome, hit_at=outcome.hit_at[:1])


def _fingerprints(part: PartTables) -> dict[str, bytes]:
    """Each recording's true boxes: the same name with the same boxes means the same recording, in other seeds too."""
    boxes = {
        str(name): own[list(BOX_COLUMNS)].to_numpy(dtype=np.float64).round(3).tobytes()
        for name, own in part.truth.groupby("recording")
    }
    return {name: boxes.get(name, b"") for name in part.recordings}


def mean_over_seeds(seeds: Sequence[tuple[float, FloatArray]]) -> Score:
    """The mean over seeds, of the plain values and of each draw; seeds without a value are left out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # no seed has a value
        value = float(np.nanmean([plain for plain, _ in seeds]))
        drawn = np.nanmean(np.stack([drawn for _, drawn in seeds]), axis=0)
    return Score(value, *interval(drawn))


def as_frame(rows: Sequence[Row]) -> pd.DataFrame:
    """One line per row with all its values, for a spreadsheet."""
    lines = []
    for row in rows:
        line: dict[str, Any] = {
            "dataset": row.dataset,
            "part": row.part,
            "system": row.system,
            "label": row.label,
            "seeds": len(row.seeds),
        }
        for name in METRICS:
            line |= {name: row.scores[name].value}
            line |= {f"{name}_low": row.scores[name].low, f"{name}_high": row.scores[name].high}
        line["f1_by_seed"] = " ".join(f"{value:.4f}" for value in row.by_seed["f1"])
        for kind, differences in (("difference", row.differences), ("gained", row.gained)):
            for name in METRICS:
                value, low, high = differences.get(name, (float("nan"),) * 3)
                line |= {f"{name}_{kind}": value, f"{name}_{kind}_low": low, f"{name}_{kind}_high": high}
        line |= {"n_truth": row.n_truth, "n_recordings": row.n_recordings}
        line |= {"train_seconds": row.seconds, "parameters": row.parameters}
        lines.append(line)
    return pd.DataFrame(lines)


def as_cells(
    rows: Sequence[Row], *, reference: str = "", bold: bool = False
) -> tuple[list[str], list[list[str]]]:
    """Header and rows of a readable table of one dataset and part.

    Args:
        rows: of one dataset and part.
        reference: label of the system that differences are taken from; no such column without it.
        bold: whether the best value of each metric stands in Markdown's asterisks.
    """
    header = ["system", *METRICS.values()]
    if reference:
        header.append(f"F1 − {reference}")
    self_trained = any(row.gained for row in rows)
    if self_trained:
        header.append("F1 gained by ST")
    header += ["seeds", "training"]
    best = {
        name: np.nanmax([row.scores[name].value for row in rows])
        if any(np.isfinite(row.scores[name].value) for row in rows)
        else float("nan")
        for name in METRICS
    }
    cells = []
    for row in rows:
        line = [row.label]
        for name in METRICS:
            score = row.scores[name]
            is_best = score.value == best[name] and len({r.scores[name].value for r in rows}) > 1
            is_best &= format_number(score.value) != format_number(
                0.0
            )  # if no system found anything, none is the best
            mark = "**" if bold and is_best else ""
            line.append(f"{mark}{format_number(score.value)}{mark}{_format_interval(score)}")
        if reference:
            line.append(_format_difference(row.differences.get("f1")))
        if self_trained:
            line.append(_format_difference(row.gained.get("f1")))
        cells.append([*line, str(len(row.seeds)), format_duration(row.seconds)])
    return header, cells


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def as_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The rows as plain values; missing ones are None.

    ``differences`` and ``gained`` hold difference, low and high.
    """

    def plain(value: float) -> float | None:
        return round(float(value), 6) if np.isfinite(value) else None

    def scores(given: Mapping[str, Score]) -> dict[str, list[float | None]]:
        return {name: [plain(part) for part in score] for name, score in given.items()}

    return [
        {
            "dataset": row.dataset,
            "part": row.part,
            "system": row.system,
            "label": row.label,
            "seeds": list(row.seeds),
            **{name: plain(score.value) for name, score in row.scores.items()},
            "intervals": {name: [plain(s.low), plain(s.high)] for name, s in row.scores.items()},
            "by_seed": {name: [plain(value) for value in values] for name, values in row.by_seed.items()},
            "differences": scores(row.differences),
            "gained": scores(row.gained),
            "n_truth": row.n_truth,
            "n_recordings": row.n_recordings,
            "train_seconds": plain(row.seconds),
            "parameters": row.parameters,
        }
        for row in rows
    ]


def format_duration(seconds: float) -> str:
    """Training time in words."""
    if not np.isfinite(seconds):
        return "–"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


def format_number(value: float, digits: int = 3) -> str:
    """A value in a table; a dash where there is none."""
    return f"{value:.{digits}f}" if np.isfinite(value) else "–"


def _format_interval(score: Score) -> str:
    return f" ({format_number(score.low)}–{format_number(score.high)})" if np.isfinite(score.low) else ""


def _format_difference(score: Score | None) -> str:
    if score is None or not np.isfinite(score.value):
        return "–"
    interval = f" ({score.low:+.3f} to {score.high:+.3f})" if np.isfinite(score.low) else ""
    return f"{score.value:+.3f}{interval}"
