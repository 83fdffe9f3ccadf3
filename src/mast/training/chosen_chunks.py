"""Which chunks a run trains on, which it holds out, and the statistics it normalises by."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, DataLoader, Subset

from mast.arrays import FloatArray, IntArray
from mast.data.band_filter import restrict_to_band
from mast.data.chunk_dataset import Batch, ChunkDataset, Example, collate
from mast.data.chunks import chunk_table, split_chunks
from mast.data.recordings import SLACK_S, Dataset, load_dataset
from mast.data.splits import SplitConfig, held_out
from mast.device import to_device
from mast.errors import MastError
from mast.features.logmel import LogMel
from mast.features.statistics import running_stats
from mast.files import write_atomic
from mast.grid import FrontEnd
from mast.normalisation import Normalisation, quiet_level
from mast.runs import Progress
from mast.training.batches import Batches, epoch_order
from mast.training.machine import Machine
from mast.training.recipe import Recipe
from mast.wording import format_names

DECODED_SHARE = 0.2  # of a GPU's memory at most for decoded sound; our choice: the model needs the rest
STATISTICS_CHUNKS = 4_000  # our choice: μ and σ of 11 hours; more sound moves neither in the third digit


@dataclass(frozen=True)
class Chunks:
    """Chunks of one or several datasets as one list.

    Attributes:
        examples: chunk by number.
        table: one row per chunk, as :func:`mast.data.chunks.chunk_table` gives, with ``root``.
        sound: (N, samples) of all chunks, if :func:`decode_once` has decoded it; otherwise it is read when needed.
    """

    examples: ConcatDataset[Example]
    table: pd.DataFrame
    sound: Tensor | None = None

    def __len__(self) -> int:
        return len(self.table)

    @cached_property
    def _labels(self) -> tuple[list[Tensor], list[Tensor], list[float]]:
        """Boxes of each chunk, which of them are calls, and its weight."""
        parts = [part for part in self.examples.datasets if isinstance(part, ChunkDataset)]
        return (
            [b for part in parts for b in part.boxes],
            [s for part in parts for s in part.sure],
            [float(w) for part in parts for w in part.weights],
        )

    @property
    def boxes(self) -> list[Tensor]:
        """The (M, 4) boxes of each chunk, in cells."""
        return self._labels[0]

    def path_of(self, recording: str) -> Path:
        """Where a recording lies."""
        parts = [part for part in self.examples.datasets if isinstance(part, ChunkDataset)]
        return next(part.paths[recording] for part in parts if recording in part.paths)

    @property
    def n_boxes(self) -> int:
        """Number of boxes over all chunks; a box in two chunks counts twice."""
        return sum(map(len, self.boxes))

    def without_overlap(self, dataset: Dataset, front_end: FrontEnd) -> Chunks:
        """A dataset's chunks without those that overlap an earlier one, so that no box is in two of them."""
        kept, ends = [], dict[str, float]()
        for row, (name, start) in enumerate(zip(self.table["recording"], self.table["start_s"], strict=True)):
            if start >= ends.get(name, 0.0) - SLACK_S:
                kept.append(row)
                ends[name] = start + front_end.chunk_s
        own = self.table.iloc[kept].reset_index(drop=True)
        return Chunks(ConcatDataset([ChunkDataset(dataset, own, front_end)]), own)

    def take(self, rows: Sequence[int]) -> Batch:
        """A batch of decoded chunks: what :func:`mast.data.chunk_dataset.collate` makes of the same examples."""
        assert self.sound is not None
        boxes, sure, weights = self._labels
        chosen = [boxes[row] for row in rows]
        index = torch.tensor(rows, dtype=torch.long)
        return Batch(
            self.sound[to_device(index, self.sound.device)],
            torch.cat(chosen),
            torch.cat([sure[row] for row in rows]),
            tuple(len(own) for own in chosen),
            torch.tensor([weights[row] for row in rows], dtype=torch.float32),
            index,
        )

    def recording_names(self, rows: Sequence[int]) -> str:
        """The recordings behind some chunks, for a message."""
        chosen = self.table.iloc[list(rows)]
        shown = [f"{r} at {s:g} s" for r, s in zip(chosen["recording"], chosen["start_s"], strict=True)]
        return format_names(shown, 4)


def unlabelled_chunks(folders: Sequence[Path], front_end: FrontEnd) -> list[tuple[Dataset, pd.DataFrame]]:
    """All chunks of some folders, whether anybody listened to them or not."""
    found: list[tuple[Dataset, pd.DataFrame]] = []
    for folder in folders:
        dataset = load_dataset(folder)
        table = chunk_table(dataset, front_end)
        if table.empty:
            raise MastError(
                f"{folder}: no recording is as long as half a chunk ({front_end.chunk_s / 2:g} s); "
                "give longer recordings or a higher --band"
            )
        found.append((dataset, table.assign(root=str(folder))))
    return found


def hold_out(
    sources: list[tuple[Dataset, pd.DataFrame]],
    front_end: FrontEnd,
    *,
    share: float,
    seed: int,
    max_chunks: int | None = None,
) -> tuple[Chunks, Chunks]:
    """Chunks to learn from and chunks to measure reconstruction on, of different recordings where possible.

    ``max_chunks`` keeps a random sample of the chunks to learn from.
    """
    rng = np.random.default_rng([seed, 11])
    keys = pd.concat([t["root"] + "\n" + t["recording"] for _, t in sources], ignore_index=True)
    names = sorted(set(keys))
    if len(names) > 1:
        n_held = min(len(names) - 1, max(1, round(share * len(names))))
        held_names = {names[i] for i in rng.permutation(len(names))[:n_held]}
        held = keys.isin(held_names).to_numpy()
    else:  # a single recording: hold out its end
        held = np.arange(len(keys)) >= max(1, round((1 - share) * len(keys)))
    learn = np.flatnonzero(~held)
    if max_chunks is not None and len(learn) > max_chunks:
        learn = np.sort(rng.permutation(learn)[:max_chunks])
    if not len(learn) or not held.any():
        raise MastError(
            "pretraining: too little sound; expected at least two chunks, one of them to hold out"
        )
    return _join(sources, front_end, learn), _join(sources, front_end, np.flatnonzero(held))


def _join(
    sources: list[tuple[Dataset, pd.DataFrame]],
    front_end: FrontEnd,
    rows: IntArray,
) -> Chunks:
    parts: list[ChunkDataset] = []
    tables: list[pd.DataFrame] = []
    start = 0
    for dataset, table in sources:
        own = table.iloc[rows[(rows >= start) & (rows < start + len(table))] - start].reset_index(drop=True)
        start += len(table)
        if len(own):
            nothing = np.empty((0, 4), dtype=np.int64)
            parts.append(ChunkDataset(dataset, own, front_end, boxes=[nothing] * len(own)))
            tables.append(own)
    return Chunks(ConcatDataset(parts), pd.concat(tables, ignore_index=True))


def labelled_chunks(
    dataset: Dataset, front_end: FrontEnd, *, split: SplitConfig | None = None, seed: int = 0
) -> dict[str, Chunks]:
    """The labelled chunks of a dataset by part.

    ``train`` has a chunk every half chunk (App. "Data Processing"); the others are cut end to end, so that no box is
    counted twice when a model is measured on them. A recording shorter than half a chunk is one padded chunk, because
    somebody labelled it. Boxes outside the band do not count, not even towards the shares of the parts.
    """
    dataset = restrict_to_band(dataset, front_end)
    parts: dict[str, Chunks] = {}
    half = chunk_table(dataset, front_end, keep_short=True)
    whole = chunk_table(dataset, front_end, hop_s=front_end.chunk_s, keep_short=True)
    for overlapping, table in ((True, half), (False, whole)):
        labelled = table[table["labelled"].astype(bool)].reset_index(drop=True)
        _, assigned = split_chunks(dataset, labelled, split, seed=seed)
        for name, own in assigned.groupby("split"):
            if name and (name == "train") == overlapping:
                rows = own.reset_index(drop=True).assign(root=str(dataset.root))
                parts[str(name)] = Chunks(ConcatDataset([ChunkDataset(dataset, rows, front_end)]), rows)
    for name in ("train", "val"):
        if name not in parts:
            cause = _explain_empty_part(dataset, front_end, half[half["labelled"].astype(bool)], name, split)
            raise MastError(f"{dataset.root}: no labelled chunk is left for {name}: {cause}")
    if len(dataset.annotations.events) and not parts["train"].n_boxes:
        raise MastError(
            f"{dataset.root}: none of the {len(dataset.annotations.events):,} boxes lies in a chunk of train that was "
            "listened to; mark the sound around boxes as heard (reviewed.csv, or M on the review page), or label more "
            "recordings"
        )
    return parts


def _explain_empty_part(
    dataset: Dataset, front_end: FrontEnd, labelled: pd.DataFrame, part: str, config: SplitConfig | None
) -> str:
    """Why a part got none of the ``labelled`` chunks of a dataset, and what to do about it."""
    spans = dataset.annotations.reviewed
    if spans.empty:
        return (
            "no recording is marked as listened to; list those that were in reviewed.csv (a column file is enough), "
            "or add a column reviewed to recordings.csv"
        )
    if labelled.empty:
        longest_s = float((spans["end_s"] - spans["start_s"]).max())
        return (
            f"a chunk is {front_end.chunk_s:.4g} s of sound listened to without a gap, but the longest stretch marked "
            f"as heard lasts {longest_s:.4g} s; mark longer stretches or whole recordings (M or Shift M on the review "
            "page, or rows of reviewed.csv)"
        )
    split = held_out(dataset.recordings, config)
    heard = dataset.recordings["file"].isin(set(labelled["recording"]))
    free = heard & split.isin(["", "train"])
    others = sorted(set(split[heard]) - {"", "train"})
    if not free.any():
        return (
            f"recordings.csv puts every labelled recording ({heard.sum()}) into {', '.join(others)}, which "
            "training never sees; clear its column split, or write train and val for some of them"
        )
    if (split == part).any() and part != "train":
        return (
            f"nothing that recordings.csv puts into {part} was listened to for a whole chunk of "
            f"{front_end.chunk_s:.4g} s; label some of it, or clear the column split"
        )
    return (
        f"only {free.sum()} of the labelled recordings may be trained on"
        f"{' (the others: ' + ', '.join(others) + ')' if others else ''}, too little sound to divide into parts; label "
        f"three recordings or more, each at least {front_end.chunk_s:.4g} s long"
    )


def cached_normalisation(
    chunks: Sequence[Chunks],
    recipe: Recipe,
    machine: Machine,
    out: Path,
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> Normalisation:
    """:func:`measure_normalisation`, kept in the folder ``out`` and read from there the next time."""
    path = out / "normalisation.json"
    if path.exists():
        return Normalisation.model_validate_json(path.read_text(encoding="utf-8"))
    found = measure_normalisation(chunks, recipe, machine, seed=seed, progress=progress)
    write_atomic(path, found.model_dump_json().encode())
    return found


def measure_normalisation(
    chunks: Sequence[Chunks],
    recipe: Recipe,
    machine: Machine,
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> Normalisation:
    """μ and σ over (a random sample of) the chunks.

    With a levelled recipe, each chunk's own quiet level is subtracted first, as
    :class:`mast.normalisation.Normalisation` then does. ``progress`` counts chunks.
    """
    everything: ConcatDataset[Example] = ConcatDataset([c.examples for c in chunks])
    valid_s = np.concatenate([c.table["valid_s"].to_numpy(dtype=np.float64) for c in chunks])
    rows = np.random.default_rng([seed, 12]).permutation(len(everything))[:STATISTICS_CHUNKS].tolist()
    log_mel = LogMel(recipe.front_end).to(machine.device)
    sample = Subset(everything, rows)
    loader = DataLoader(sample, batch_size=16, collate_fn=collate, num_workers=machine.workers)

    def features() -> Iterator[tuple[Tensor, FloatArray]]:
        done = 0
        for batch in loader:
            frames = np.floor(valid_s[rows[done : done + len(batch.weights)]] / recipe.front_end.hop_s)
            raw = log_mel.chunk_features(batch.waveforms.to(machine.device))
            yield raw - quiet_level(raw) if recipe.levelled else raw, frames
            done += len(batch.weights)
            if progress:
                progress(done, len(rows), "chunks, for their mean and spread")

    return running_stats(features()).normalisation(levelled=recipe.levelled)


def decode_once(
    chunks: Chunks, device: torch.device, *, workers: int = 0, progress: Progress | None = None
) -> Chunks:
    """The same chunks with their sound on a GPU, where there is one and they fit into a share of its memory.

    A small model on a GPU learns faster than sound is decoded, above all compressed sound; an archive does not fit, and
    is decoded again in each epoch.
    """
    if chunks.sound is not None or device.type != "cuda":
        return chunks
    first: Example = chunks.examples[0]
    total = torch.cuda.get_device_properties(device).total_memory
    if len(chunks) * first.waveform.nbytes > DECODED_SHARE * total:
        return chunks
    return replace(chunks, sound=decoded_chunks(chunks, device, workers=workers, progress=progress))


def decoded_chunks(
    chunks: Chunks, device: torch.device, *, workers: int = 0, progress: Progress | None = None
) -> Tensor:
    """The sound of all chunks, (N, samples)."""
    sound: Tensor | None = None
    done = 0
    for batch in ordered_batches(replace(chunks, sound=None), batch_size=16, workers=workers):
        if sound is None:
            sound = torch.empty(len(chunks), batch.waveforms.shape[1], device=device)
        sound[done : done + len(batch.waveforms)] = batch.waveforms.to(device)
        done += len(batch.waveforms)
        if progress:
            progress(done, len(chunks), "chunks, read into memory")
    assert sound is not None
    return sound


def ordered_batches(chunks: Chunks, *, batch_size: int, workers: int = 0) -> Iterator[Batch]:
    """The chunks one after the other, in batches; for measuring."""
    if chunks.sound is not None:
        for start in range(0, len(chunks), batch_size):
            yield chunks.take(range(start, min(start + batch_size, len(chunks))))
        return
    yield from DataLoader(chunks.examples, batch_size=batch_size, collate_fn=collate, num_workers=workers)


def shuffled_batches(chunks: Chunks, batch_size: int, machine: Machine, *, seed: int) -> Batches[Batch]:
    """The chunks in batches for training, in a different order each epoch; this process's share."""
    return Batches(
        chunks.examples,
        collate,
        batch_size=batch_size,
        seed=seed,
        workers=machine.workers,
        rank=machine.accelerator.process_index,
        world=machine.accelerator.num_processes,
        pin=machine.device.type == "cuda",
        take=chunks.take if chunks.sound is not None else None,
    )


def batch_names(chunks: Chunks, batch_size: int, seed: int) -> Callable[[int], str]:
    """A function from a step to the recordings of its batch."""

    def names(step: int) -> str:
        epoch, row = divmod(step, max(1, len(chunks) // batch_size))
        return chunks.recording_names(
            epoch_order(len(chunks), batch_size, seed=seed, epoch=epoch)[row].tolist()
        )

    return names
