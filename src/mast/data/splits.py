"""Which sound trains, which tunes, which tests.

The rule here: no second of sound is in two parts. The paper splits *chunks* 70/15/15, and its
chunks overlap by half, so the same call is in training and in test; ``by="chunk"`` reproduces that for
comparison. By default whole recordings are assigned, so that seconds and boxes
both come in the right shares (:mod:`mast.data.part_assignment`). With one or two recordings, or where that would leave
validation nearly without boxes and a cut would not, recordings are cut in time instead, with a guard gap
between the parts.

Recordings from other sites or other days than the rest (out of domain) are named by a rule or by the
``split`` column of ``recordings.csv``, and never take part in training or tuning.

With fewer than 100 boxes to divide there is no test part: unless told otherwise, :func:`default_split` gives its
share to validation.

Everything depends on the recordings' names and the seed, not on the order of rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, model_validator

from mast.data.part_assignment import assign_parts, part_boxes, shuffle_key
from mast.errors import ConfigError
from mast.wording import format_names

PARTS = ("train", "val", "test")
TEMPORAL_OOD = "temporal_ood"
SITE_OOD = "site_ood"
# our choice: boxes below which no test part is made. Its 15 % would be a dozen boxes in a recording or two, which say
# nothing about a detector, but help validation to choose one
MIN_BOXES_TO_TEST = 100
NO_TEST = (0.7, 0.3, 0.0)  # train, val, test
_SPELLINGS = {"training": "train", "valid": "val", "validation": "val", "dev": "val", "testing": "test"}
_EDGE_S = 1e-6  # rounding of seconds
_FAIR = 1 / 3  # validation should have at least this much of its share of boxes; our choice


class SplitConfig(BaseModel):
    """How a dataset is divided."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    by: Literal["auto", "recording", "time", "chunk"] = Field(
        default="auto",
        description="auto: by recording where there are three or more and validation gets boxes, otherwise by "
        "time; chunk is leaky",
    )
    fractions: tuple[float, float, float] = Field(
        default=(0.7, 0.15, 0.15),
        description="train, val, test; Sec. 'Datasets' and App. 'Dataset Statistics'",
    )
    guard_s: float = Field(
        default=10.24, ge=0, description="silence kept between parts cut in time; our choice: a chunk"
    )
    block_s: float | None = Field(
        default=None,
        gt=0,
        description="cut in time into blocks of this length and assign those; one block per part by default",
    )
    column: bool = Field(
        default=True, description="follow the split column of recordings.csv where it is filled in"
    )
    ood_sites: tuple[str, ...] = Field(default=(), description="sites held out as site_ood")
    ood_dates: tuple[str, ...] = Field(default=(), description="dates (YYYY-MM-DD) held out as temporal_ood")
    ood_since: str | None = Field(
        default=None, description="hold out this date (YYYY-MM-DD) and all later ones too"
    )

    @model_validator(mode="after")
    def _check_fractions(self) -> SplitConfig:
        if min(self.fractions) < 0 or abs(sum(self.fractions) - 1) > 1e-6 or self.fractions[0] == 0:
            raise ConfigError(
                f"split: fractions {self.fractions} must add up to 1, with none negative and train above 0"
            )
        for given in (*self.ood_dates, *([self.ood_since] if self.ood_since else [])):
            _day(given)
        return self


def default_split(recordings: pd.DataFrame, boxes: pd.Series[str]) -> SplitConfig:
    """How a dataset is divided by default: 70/15/15, or 70/30/0 where it has too few boxes to test on.

    Only the boxes that are divided count: not those of other sites and days, which the ``split`` column may name.

    Args:
        recordings: columns ``file`` and, where there is one, ``split``.
        boxes: the recording of each box.
    """
    column = held_out(recordings)
    to_assign = boxes.isin(recordings.loc[column.isin(["", "train"]), "file"])
    few = to_assign.sum() < MIN_BOXES_TO_TEST and not column.isin(["val", "test"]).any()
    return SplitConfig(fractions=NO_TEST) if few else SplitConfig()


def parts_in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Names of parts: train, val, test first, then the others by name."""
    given = set(names)
    return (*(part for part in PARTS if part in given), *sorted(given - set(PARTS)))


class Span(NamedTuple):
    """A stretch of a recording that belongs to one part."""

    recording: str
    start_s: float
    end_s: float
    split: str


@dataclass(frozen=True)
class Split:
    """A dataset divided into spans, sorted by recording and time; in a split by chunk, spans of two parts overlap."""

    spans: tuple[Span, ...]

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the parts: train, val, test first, then the others by name."""
        return parts_in_order(span.split for span in self.spans)

    def part(self, name: str) -> tuple[Span, ...]:
        """The spans of one part."""
        return tuple(span for span in self.spans if span.split == name)

    def recordings(self, name: str) -> list[str]:
        """Recordings that have a span in one part."""
        return sorted({span.recording for span in self.part(name)})

    def seconds(self, name: str) -> float:
        """Length of one part."""
        return float(sum(span.end_s - span.start_s for span in self.part(name)))

    def assign(
        self, recordings: Sequence[str], start_s: Sequence[float], end_s: Sequence[float]
    ) -> list[str]:
        """The part that wholly holds each stretch, or ``""`` where none does (it lies in a guard gap)."""
        by_recording: dict[str, list[Span]] = {}
        for span in self.spans:
            by_recording.setdefault(span.recording, []).append(span)
        starts = {name: np.array([span.start_s for span in own]) for name, own in by_recording.items()}
        found = []
        for name, start, end in zip(recordings, start_s, end_s, strict=True):
            own = by_recording.get(name, [])
            # the last span that begins at or before the stretch; spans by chunk overlap, but start apart
            k = int(np.searchsorted(starts[name], start + _EDGE_S, side="right")) - 1 if own else -1
            found.append(own[k].split if k >= 0 and own[k].end_s >= end - _EDGE_S else "")
        return found


def split_recordings(
    recordings: pd.DataFrame,
    config: SplitConfig | None = None,
    *,
    seed: int = 0,
    boxed: Collection[str] = (),
    reviewed: Collection[str] = (),
    boxes: pd.DataFrame | None = None,
    chunks: pd.DataFrame | None = None,
) -> Split:
    """Divide recordings into parts.

    First, the ``split`` column and then the rules for sites and dates hold recordings out. The rest, and what
    the column calls ``train``, is divided 70/15/15. Where the column already has a ``val`` part, it is
    left alone: the rest is ``train``; where it has only a ``test`` part, the rest becomes train and val.

    Args:
        recordings: columns ``file`` and ``duration_s``; ``site``, ``datetime``, ``split`` where needed.
        config: how; by default, as described at the top of this file.
        seed: of the random order.
        boxed: recordings with boxes; assigned first, so that each part gets some. Those of ``boxes`` count too.
        reviewed: recordings that somebody listened to; assigned next, before unlabelled ones.
        boxes: columns ``recording, start_s, end_s``; where given, parts get their share of boxes too.
        chunks: columns ``recording, start_s, valid_s``; needed by ``by="chunk"`` alone.
    """
    config = SplitConfig() if config is None else config
    table = recordings.sort_values("file", kind="stable").reset_index(drop=True)
    repeated = table.loc[table["file"].duplicated(), "file"].tolist()
    if repeated:
        raise ConfigError(
            f"split: recording {repeated[0]} is listed twice; every recording must be listed once"
        )
    column = held_out(table, config)
    fixed = table[~column.isin(["", "train"])]
    spans = [
        Span(str(file), 0.0, float(duration), name)
        for file, duration, name in zip(fixed["file"], fixed["duration_s"], column[fixed.index], strict=True)
    ]
    rest = table[column.isin(["", "train"])]
    fractions = _remaining_fractions(config.fractions, set(column))
    by = config.by
    if by == "auto":
        by = "recording" if len(rest) >= 3 else "time"
    if by == "recording":
        counts = (
            {} if boxes is None else {str(n): int(k) for n, k in boxes["recording"].value_counts().items()}
        )
        assigned = _assign_recordings(rest, fractions, seed, {*boxed, *counts}, set(reviewed), counts)
        cut = None
        if config.by == "auto" and boxes is not None and _lacks_validation_boxes(assigned, counts, fractions):
            cut = _cut_boxed(rest, fractions, seed, config, set(reviewed), boxes)
        spans += assigned if cut is None else cut
    elif by == "time":
        spans += _cut_in_time(rest, fractions, seed, config.guard_s, config.block_s)
    else:
        if chunks is None:
            raise ConfigError("split: a split by chunk needs the table of chunks; make it with chunk_table")
        spans += _shuffle_chunks(chunks[chunks["recording"].isin(set(rest["file"]))], fractions, seed)
    return Split(tuple(sorted(spans)))


def held_out(table: pd.DataFrame, config: SplitConfig | None = None) -> pd.Series[str]:
    """The part that the column and the rules give each recording; ``""`` where they say nothing."""
    config = SplitConfig() if config is None else config
    parts = pd.Series("", index=table.index, dtype=object)
    if config.column and "split" in table:
        given = table["split"].fillna("").astype(str).str.strip().str.lower()
        parts = given.replace(_SPELLINGS).astype(object)
    if config.ood_dates or config.ood_since:
        days = _complete_column(table, "datetime", "date").str.slice(0, 10)
        later = days >= config.ood_since if config.ood_since else pd.Series(False, index=table.index)
        absent = sorted(set(config.ood_dates) - set(days))
        if absent:
            raise ConfigError(
                f"split: no recording is from {absent[0]}; the dates found are {_join_values(days)}"
            )
        parts[later | days.isin(config.ood_dates)] = TEMPORAL_OOD
    if config.ood_sites:  # last: another site on another day is another site
        sites = _complete_column(table, "site", "site")
        absent = sorted(set(config.ood_sites) - set(sites))
        if absent:
            raise ConfigError(
                f"split: no recording is from site {absent[0]}; the sites found are {_join_values(sites)}"
            )
        parts[sites.isin(config.ood_sites)] = SITE_OOD
    return parts


def _complete_column(table: pd.DataFrame, column: str, noun: str) -> pd.Series[str]:
    """A column that a rule needs, complete."""
    values = table[column].fillna("").astype(str) if column in table else pd.Series("", index=table.index)
    unknown = table.loc[values == "", "file"].tolist()
    if unknown:
        raise ConfigError(
            f"split: the {noun} of {unknown[0]} is not known ({len(unknown)} such recordings), but the split "
            f"asks for it; add it to the column {column} of recordings.csv"
        )
    return values


def _join_values(values: pd.Series[str]) -> str:
    return format_names(sorted(set(values)), 8)


def _day(text: str) -> str:
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise ConfigError(
            f"split: '{text}' is not a valid date; expected YYYY-MM-DD, as in 2023-05-14"
        ) from None


def _remaining_fractions(fractions: tuple[float, float, float], given: set[str]) -> dict[str, float]:
    """The parts that the column leaves to be assigned: only train where it has val, no test where it has test."""
    wanted = dict(zip(PARTS, fractions, strict=True))
    if "val" in given:
        wanted = {"train": 1.0}
    elif "test" in given:
        wanted.pop("test")
    total = sum(wanted.values())
    return {name: share / total for name, share in wanted.items() if share > 0}


def _assign_recordings(
    table: pd.DataFrame,
    fractions: dict[str, float],
    seed: int,
    boxed: set[str],
    reviewed: set[str],
    counts: Mapping[str, int] | None = None,
) -> list[Span]:
    """Whole recordings, assigned so that seconds and boxes come out in the right shares."""
    length = dict(zip(table["file"].astype(str), table["duration_s"].astype(float), strict=True))
    part_of = assign_parts(length, fractions, seed=seed, boxed=boxed, reviewed=reviewed, counts=counts)
    return [Span(name, 0.0, length[name], part) for name, part in part_of.items()]


def _lacks_validation_boxes(
    spans: list[Span], counts: Mapping[str, int], fractions: dict[str, float]
) -> bool:
    """Whether an assignment leaves validation with less than a fair part of its boxes."""
    held = part_boxes({span.recording: span.split for span in spans}, counts, fractions)
    return "val" in held and held["val"] < _FAIR * fractions["val"] * sum(held.values())


def _cut_boxed(
    table: pd.DataFrame,
    fractions: dict[str, float],
    seed: int,
    config: SplitConfig,
    reviewed: set[str],
    boxes: pd.DataFrame,
) -> list[Span] | None:
    """Recordings with boxes cut in time and the others assigned; None where that does not give val its boxes."""
    has_boxes = table["file"].isin(set(boxes["recording"]))
    try:
        spans = _cut_in_time(table[has_boxes], fractions, seed, config.guard_s, config.block_s)
    except ConfigError:  # too short to be cut
        return None
    whole = Split(tuple(sorted(spans)))
    parts = whole.assign(list(boxes["recording"]), list(boxes["start_s"]), list(boxes["end_s"]))
    kept = [part for part in parts if part]
    if not all(part in kept for part in fractions) or kept.count("val") < _FAIR * fractions["val"] * len(
        kept
    ):
        return None
    return spans + _assign_recordings(table[~has_boxes], fractions, seed, set(), reviewed)


def _cut_in_time(
    table: pd.DataFrame, fractions: dict[str, float], seed: int, guard_s: float, block_s: float | None
) -> list[Span]:
    """Each recording cut into blocks in time, ``guard_s`` apart where neighbours are in different parts."""
    spans: list[Span] = []
    for file, duration in zip(table["file"].astype(str), table["duration_s"].astype(float), strict=True):
        blocks = (
            _three_blocks(duration, fractions)
            if block_s is None
            else _many_blocks(file, duration, fractions, seed, block_s)
        )
        for k, (start, end, part) in enumerate(blocks):
            first = k == 0 or blocks[k - 1][2] == part
            last = k == len(blocks) - 1 or blocks[k + 1][2] == part
            # half of the gap from either side
            start_s, end_s = start + (0 if first else guard_s / 2), end - (0 if last else guard_s / 2)
            if end_s > start_s:
                spans.append(Span(file, start_s, end_s, part))
        missing = sorted(set(fractions) - {span.split for span in spans if span.recording == file})
        if missing:
            raise ConfigError(
                f"split: {file} is too short ({duration:g} s) to cut in time with a guard of {guard_s:g} s: "
                f"nothing is left for {missing[0]}; label three recordings or more, or longer ones"
            )
    return _merge_neighbours(spans)


def _three_blocks(duration: float, fractions: dict[str, float]) -> list[tuple[float, float, str]]:
    edges = np.cumsum([0.0, *fractions.values()]) * duration
    return [(float(a), float(b), part) for a, b, part in zip(edges[:-1], edges[1:], fractions, strict=True)]


def _many_blocks(
    file: str, duration: float, fractions: dict[str, float], seed: int, block_s: float
) -> list[tuple[float, float, str]]:
    """Blocks of about ``block_s``, assigned at random in the right numbers."""
    n = max(len(fractions), round(duration / block_s))
    edges = np.linspace(0.0, duration, n + 1)
    blocks = pd.DataFrame({"file": [str(k) for k in range(n)], "duration_s": duration / n})
    names = set(blocks["file"])
    assigned = _assign_recordings(blocks, fractions, int(shuffle_key(seed, file)[:8], 16), names, names)
    part_of = {int(span.recording): span.split for span in assigned}
    return [(float(edges[k]), float(edges[k + 1]), part_of[k]) for k in range(n)]


def _merge_neighbours(spans: list[Span]) -> list[Span]:
    """Neighbouring spans of one part as one, so that chunks across their common edge are not lost."""
    merged: list[Span] = []
    for span in sorted(spans):
        last = merged[-1] if merged else None
        if (
            last
            and last.recording == span.recording
            and last.split == span.split
            and span.start_s <= last.end_s + _EDGE_S
        ):
            merged[-1] = last._replace(end_s=span.end_s)
        else:
            merged.append(span)
    return merged


def _shuffle_chunks(chunks: pd.DataFrame, fractions: dict[str, float], seed: int) -> list[Span]:
    """Chunks at random, overlapping or not: the paper's split."""
    rows = sorted(
        zip(
            chunks["recording"].astype(str),
            chunks["start_s"].astype(float),
            chunks["valid_s"].astype(float),
            strict=True,
        ),
        key=lambda row: shuffle_key(seed, row[0], f"{row[1]:.6f}"),
    )
    edges = np.rint(np.cumsum(list(fractions.values())) * len(rows)).astype(int)
    which = np.searchsorted(edges, np.arange(len(rows)), side="right")
    names = list(fractions)
    return [
        Span(file, start, start + valid, names[k])
        for (file, start, valid), k in zip(rows, which, strict=True)
    ]
