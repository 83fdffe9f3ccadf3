"""What a detector has learnt from, so that none of it is held back to judge the detectors that start from it.

People box bit by bit: they fit a detector, box more, and start the next fit from the last. If the recordings were
divided again, much of what is held back would be sound that the start has learnt from, and F1, threshold and precision
would look too good. So a detector's card records which sound it and its own start have learnt from. Those recordings
stay in training; validation and test are drawn from the others. A recording is recognised by what is in its file,
whatever it is called and wherever it lies.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from os import SEEK_END
from pathlib import Path

import pandas as pd

from mast.data.chunks import default_split_of
from mast.data.part_assignment import assign_parts
from mast.data.recordings import Dataset
from mast.data.splits import SplitConfig, held_out
from mast.errors import MastError
from mast.grid import FrontEnd
from mast.models.card import LEARNT_FROM, ModelCard, load_card
from mast.runs import Say
from mast.spans import TimeSpan, merge_spans, subtract_spans, total_s
from mast.training.chosen_chunks import Chunks, labelled_chunks
from mast.wording import counted

_HELD_BACK = {"val": "validation", "test": "test"}  # parts, and their names in a sentence
_SLACK_S = 0.05  # times are rounded
_READ = 65_536  # bytes; our choice: half a second of an AudioMoth

Spans = dict[str, list[TimeSpan]]  # by recording, or by its fingerprint


def fingerprint(path: Path) -> str:
    """Identifies a recording by its file: the size, and the bytes in its middle."""
    with path.open("rb") as file:
        size = file.seek(0, SEEK_END)
        file.seek(max(0, size - _READ) // 2)
        return hashlib.sha256(b"%d\0" % size + file.read(_READ)).hexdigest()[:16]


def labelled_sound(parts: Iterable[Chunks]) -> Spans:
    """What the labelled chunks among these cover of each recording, by its fingerprint."""
    return _merge(
        {fingerprint(chunks.path_of(name)): spans}
        for chunks in parts
        for name, spans in spans_of(chunks.table[chunks.table["labelled"].astype(bool)]).items()
    )


def training_sound(train_chunks: Chunks, start: ModelCard | None) -> Spans:
    """What a detector will have learnt from: the labelled chunks among these, and all that its start learnt from.

    Pseudo-labels do not count: they leave out sound that is measured on (:mod:`mast.selftrain.unlabelled`).
    """
    known = labelled_sound([train_chunks])
    return _merge([known] if start is None else [known, _spans_in_card(start)])


def avoid_leakage(
    dataset: Dataset,
    starts: Sequence[Path],
    front_end: FrontEnd,
    *,
    split: SplitConfig | None = None,
    seed: int = 0,
    say: Say = lambda text: None,
) -> Dataset:
    """The dataset, divided so that the parts held back contain nothing that a detector has learnt from.

    It is returned unchanged if its usual division does that already.

    Args:
        dataset: the labelled one.
        starts: model folders of the detectors that are started from, or that label.
        front_end: of the run.
        split: how it is divided, if the user said so; that is not changed.
        seed: of the division.
        say: called with a sentence where the division changes.

    Raises:
        MastError: the user divided it otherwise, or there is nothing else to validate on.
    """
    known = {folder: _find_in_dataset(dataset, _spans_in_card(load_card(folder))) for folder in starts}
    learnt = _merge(known.values())
    if not learnt or (split is not None and split.by == "chunk"):  # that split is leaky anyway
        return dataset
    parts = labelled_chunks(dataset, front_end, split=split, seed=seed)
    held_out_tables = [parts[name].table for name in _HELD_BACK if name in parts]
    leaking = sorted({name for table in held_out_tables for name in _leaking_recordings(table, learnt)})
    if not leaking:
        return dataset
    names = [str(folder) for folder, spans in known.items() if spans]
    who = f"{' and '.join(names)} {'was' if len(names) == 1 else 'were'}"
    column = held_out(dataset.recordings, split)
    if split is not None or column.isin(_HELD_BACK).any():
        raise MastError(
            f"{who} trained on {counted(len(leaking), 'recording')} that would be held back here for validation or "
            f"test (the first: {leaking[0]}), so results would look too good; set the column split of recordings.csv "
            "to train for all that it was trained on, or give another detector"
        )
    divided = _split_other_recordings(dataset, learnt, column, seed=seed)
    if divided is None:
        raise MastError(
            f"{who} trained on every recording with boxes in {dataset.root}, so there is nothing to validate on; box "
            "some other recordings, or give another detector"
        )
    say(f"{who} trained on {_describe_learnt(learnt, dataset)}; {_describe_held_back(divided)}")
    return divided


def _describe_learnt(learnt: Spans, dataset: Dataset) -> str:
    stay = "it stays" if len(learnt) == 1 else "they stay"
    return f"{len(learnt):,} of these {counted(len(dataset), 'recording')}, so {stay} in training"


def _describe_held_back(divided: Dataset) -> str:
    sizes = divided.recordings["split"].value_counts()
    held = [
        f"{counted(int(sizes[name]), 'other')} for {word}"
        for name, word in _HELD_BACK.items()
        if name in sizes
    ]
    return f"held back are {' and '.join(held)}"


def _split_other_recordings(
    dataset: Dataset, learnt: Spans, column: pd.Series[str], *, seed: int
) -> Dataset | None:
    """The dataset with all parts in its column ``split``; None where no other recording has boxes."""
    table, reviewed = dataset.recordings, set(dataset.reviewed_recordings)
    free = table[column.isin(["", "train"]) & ~table["file"].isin(learnt) & table["file"].isin(reviewed)]
    counts = dataset.annotations.events["recording"].value_counts()
    boxes = {str(name): int(counts.get(name, 0)) for name in free["file"]}
    if not any(boxes.values()):
        return None
    dealt = table.loc[column.isin(["", "train"]), "file"]
    share = sum(boxes.values()) / int(counts.reindex(dealt, fill_value=0).sum())
    part_of = assign_parts(
        dict(zip(boxes, free["duration_s"].astype(float), strict=True)),
        _fractions(default_split_of(dataset), share, n_boxed=sum(map(bool, boxes.values()))),
        seed=seed,
        boxed=[name for name, n in boxes.items() if n],
        reviewed=list(boxes),
        counts=boxes,
    )
    rest = column.where(~column.eq(""), "train")
    split = table["file"].map(part_of).fillna(rest)
    return replace(dataset, recordings=table.assign(split=split))


def _fractions(usual: SplitConfig, share: float, *, n_boxed: int) -> dict[str, float]:
    """How to divide recordings with a share of all boxes so that the parts held back come close to their usual size."""
    _, val, test = usual.fractions
    if n_boxed == 1:
        val, test = val + test, 0.0
    held = min(1.0, (val + test) / share)
    dealt = {"train": 1.0 - held, "val": held * val / (val + test), "test": held * test / (val + test)}
    return {name: fraction for name, fraction in dealt.items() if fraction > 0}


def training_recordings(dataset: Dataset, card: ModelCard) -> list[str]:
    """The recordings of a dataset that a detector was trained on, in whole or in part."""
    return sorted(_find_in_dataset(dataset, _spans_in_card(card)))


def _spans_in_card(card: ModelCard) -> Spans:
    stored: Mapping[str, Sequence[Sequence[float]]] = card.provenance.get(LEARNT_FROM, {})
    return {key: [(float(start), float(end)) for start, end in spans] for key, spans in stored.items()}


def _find_in_dataset(dataset: Dataset, learnt: Spans) -> Spans:
    """The part of it that is in a dataset, by recording."""
    if not learnt:
        return {}
    prints = {name: fingerprint(dataset.path(name)) for name in dataset.reviewed_recordings}
    return {name: learnt[key] for name, key in prints.items() if key in learnt}


def _leaking_recordings(held: pd.DataFrame, learnt: Spans) -> list[str]:
    """The recordings with held-back chunks that have been learnt from."""
    return [name for name, spans in spans_of(held).items() if overlap(spans, learnt.get(name, []))]


def overlap(spans: list[TimeSpan], others: list[TimeSpan]) -> bool:
    """Whether they share more time than rounding explains."""
    return total_s(spans) - total_s(subtract_spans(spans, others)) > _SLACK_S


def spans_of(chunks: pd.DataFrame) -> Spans:
    """What chunks cover of each recording."""
    ends = chunks["start_s"] + chunks["valid_s"]
    rows = zip(chunks["recording"].astype(str), chunks["start_s"], ends, strict=True)
    found: Spans = {}
    for name, start, end in rows:
        found.setdefault(name, []).append((round(float(start), 3), round(float(end), 3)))
    return {name: merge_spans(spans) for name, spans in found.items()}


def _merge(learnt: Iterable[Spans]) -> Spans:
    """What any of them covers of each recording."""
    found: Spans = {}
    for one in learnt:
        for key, spans in one.items():
            found[key] = merge_spans([*found.get(key, []), *spans])
    return found
