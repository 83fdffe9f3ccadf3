"""The unlabelled sound that self-training uses, and the same chunks with what was found in them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd
from torch.utils.data import ConcatDataset

from mast.arrays import IntArray
from mast.data.chunk_dataset import ChunkDataset
from mast.data.recordings import Dataset
from mast.errors import MastError
from mast.grid import FrontEnd
from mast.runs import Say
from mast.selftrain.pseudo import PseudoLabels
from mast.training.chosen_chunks import Chunks
from mast.training.leakage import fingerprint, labelled_sound, overlap
from mast.wording import counted

ChunkSources = list[tuple[Dataset, pd.DataFrame]]  # datasets with some of their chunks


class NothingUnlabelledError(MastError):
    """All of the unlabelled sound is what detectors are measured on."""


def leave_out_measured(sources: ChunkSources, measured: Iterable[Chunks], say: Say) -> ChunkSources:
    """The unlabelled chunks without any sound on which detectors are measured.

    The labelled recordings often lie inside the archive that is given as unlabelled. If those held back for validation
    or test were learnt from, even without the expert's boxes, F1 on them would look too good. They are recognised by
    what is in their files, whatever they are called there.

    Args:
        sources: the unlabelled datasets with their chunks.
        measured: labelled chunks that are validated or tested on.
        say: called with a sentence where something is left out.

    Raises:
        NothingUnlabelledError: nothing else is left.
    """
    held = labelled_sound(measured)
    left: ChunkSources = []
    names: set[str] = set()
    for dataset, table in sources:
        kept = np.ones(len(table), dtype=bool)
        for name, rows in table.groupby("recording").indices.items():
            path = dataset.path(str(name))
            spans = held.get(fingerprint(path))
            if spans:
                own = table.iloc[rows]
                pieces = zip(own["start_s"], own["start_s"] + own["valid_s"], strict=True)
                kept[rows] = [not overlap([piece], spans) for piece in pieces]
                if not kept[rows].all():
                    names.add(str(path))
        if kept.any():
            left.append((dataset, table[kept].reset_index(drop=True)))
    if sources and not left:
        raise NothingUnlabelledError(
            "all of the unlabelled sound is held back for validation or test, so nothing is left to learn from; give "
            "other recordings with --unlabelled"
        )
    if names:
        say(
            f"{counted(len(names), 'unlabelled recording')} {'is' if len(names) == 1 else 'are'} held back for "
            "validation or test, so nothing is learnt from what is measured there"
        )
    return left


def sample_chunks(sources: ChunkSources, max_chunks: int | None, seed: int, number: int) -> ChunkSources:
    """A round's random sample of all chunks, in order: first those that no round before it took."""
    total = sum(len(table) for _, table in sources)
    if max_chunks is None or total <= max_chunks:
        return sources
    chosen = []
    for dataset, table in sources:
        n = max(1, round(max_chunks / total * len(table)))
        shuffled = np.random.default_rng([seed, 13]).permutation(len(table))
        rows = shuffled[np.arange((number - 1) * n, number * n) % len(table)]
        chosen.append((dataset, table.iloc[np.sort(rows)].reset_index(drop=True)))
    return chosen


def select_chunks(sources: ChunkSources, rows: IntArray) -> ChunkSources:
    """Some of the chunks, by their numbers over all sources, in order."""
    chosen: ChunkSources = []
    begin = 0
    for dataset, table in sources:
        own = rows[(rows >= begin) & (rows < begin + len(table))] - begin
        begin += len(table)
        if len(own):
            chosen.append((dataset, table.iloc[own].reset_index(drop=True)))
    return chosen


def without_labels(sources: ChunkSources, front_end: FrontEnd) -> Chunks:
    """The unlabelled chunks without boxes."""
    n_chunks = sum(len(table) for _, table in sources)
    nothing = PseudoLabels(
        [np.empty((0, 4))] * n_chunks, [np.empty(0, dtype=bool)] * n_chunks, [0.0] * n_chunks
    )
    return with_labels(sources, front_end, nothing)


def with_labels(sources: ChunkSources, front_end: FrontEnd, labels: PseudoLabels) -> Chunks:
    """The chunks with the boxes found in each, and its weight."""
    parts: list[ChunkDataset] = []
    start = 0
    for dataset, table in sources:
        own = slice(start, start + len(table))
        start += len(table)
        parts.append(
            ChunkDataset(
                dataset,
                table,
                front_end,
                boxes=labels.boxes[own],
                sure=labels.sure[own],
                weights=labels.weights[own],
            )
        )
    table = pd.concat([table for _, table in sources], ignore_index=True)
    return Chunks(ConcatDataset(parts), table.assign(labelled=False))
