"""Embeddings of a dataset's chunks and boxes: the numbers behind the studies of embeddings.

This needs the models, so it runs where they are trained; its output is small, and enough for every table and figure
(:mod:`mast_studies.embedding_tables`).

Boxes are compared in four ways, on the same boxes: by statistics of the mel spectrogram (nothing learnt), by the
encoder as pretraining left it (the paper's way), by the same encoder inside the trained detector, and by the detector's
contrastive projection. A box's neighbours never come from its own recording: one animal calls many times in a minute.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset

from mast.arrays import FloatArray, IntArray, Vectors
from mast.data.chunk_dataset import Batch, ChunkDataset
from mast.data.recordings import Dataset
from mast.errors import MastError
from mast.events import BOX_COLUMNS, boxes_of
from mast.grid import FrontEnd, events_to_cells, events_to_grid
from mast.loaded_model import LoadedModel
from mast.models.boxes import iou, pad_boxes, pool_boxes
from mast.training.chosen_chunks import Chunks, ordered_batches
from mast.training.machine import Machine
from mast_studies.embedding_tables import EmbeddedTables, Way
from mast_studies.mel_statistics import mel_statistics
from mast_studies.neighbours import EmbeddedPart, box_neighbours, chunk_neighbours

MATCH_IOU = (
    0.5  # App. "Box-Level Embeddings": a detection takes the label of the true box it overlaps this much
)


class Models(NamedTuple):
    """Where embeddings come from."""

    pretrained: Path  # a masked autoencoder
    detector: Path  # MAST, trained from it


def embed_parts(
    dataset: Dataset,
    parts: Mapping[str, Chunks],
    detections: Mapping[str, pd.DataFrame],
    models: Models,
    machine: Machine,
    *,
    batch_size: int,
    seed: int,
) -> EmbeddedTables:
    """Embed every part of a dataset.

    Args:
        dataset: the labelled dataset.
        parts: its labelled chunks; where they overlap (``train``), every other one is used.
        detections: those in the test parts, from the threshold up.
        models: the encoders.
        machine: where they run.
        batch_size: chunks at a time.
        seed: for the choice of points shown, and for UMAP.
    """
    encoders = Encoders(models, machine)
    embedded: dict[str, EmbeddedPart] = {}
    for name, chunks in parts.items():
        own = drop_overlapping(dataset, chunks, encoders.front_end)
        boxes = labelled_boxes(dataset, own.table, detections.get(name), encoders.front_end)
        embedded[name] = encoders.embed_part(own, boxes, batch_size=batch_size)
    return EmbeddedTables(
        chunk_neighbours(embedded, seed=seed), box_neighbours(embedded, encoders.front_end, seed=seed)
    )


class Encoders:
    """The pretrained encoder and the detector, on one device."""

    def __init__(self, models: Models, machine: Machine) -> None:
        loaded = (
            LoadedModel.load(folder, device=machine.device, precision=machine.precision)
            for folder in (models.pretrained, models.detector)
        )
        self._pretrained, self._detector = loaded
        self._workers = machine.workers
        self.front_end: FrontEnd = self._detector.front_end
        if self._pretrained.front_end != self.front_end:
            raise MastError(
                f"{models.pretrained}: has another front end than {models.detector}, so their embeddings are not of "
                "the same boxes; train the detector from it"
            )

    def embed_part(self, chunks: Chunks, boxes: pd.DataFrame, *, batch_size: int) -> EmbeddedPart:
        """Embed all chunks of a part, and the boxes in them."""
        cells = boxes[list(BOX_COLUMNS)].to_numpy(dtype=np.float32)
        per_chunk = np.bincount(boxes["chunk"].to_numpy(dtype=np.int64), minlength=len(chunks))
        by_chunk = np.split(cells, np.cumsum(per_chunk)[:-1])
        heard = np.ceil(chunks.table["valid_s"].to_numpy(dtype=np.float64) / self.front_end.hop_s - 1e-6)
        frames = heard.clip(1, self.front_end.chunk_frames).astype(np.int64)
        of_chunks: dict[Way, list[Vectors]] = {}
        of_boxes: dict[Way, list[Vectors]] = {}
        done = 0
        for batch in ordered_batches(chunks, batch_size=batch_size, workers=self._workers):
            rows = slice(done, done + len(batch.waveforms))
            done = rows.stop
            whole, inside = self._embed_batch(batch, by_chunk[rows], frames[rows])
            for kept, made in ((of_chunks, whole), (of_boxes, inside)):
                for way, vectors in made.items():
                    kept.setdefault(way, []).append(vectors)
        return EmbeddedPart(
            chunks.table.reset_index(drop=True),
            boxes,
            {way: np.concatenate(some) for way, some in of_chunks.items()},
            {way: np.concatenate(some) for way, some in of_boxes.items()},
        )

    @torch.no_grad()
    def _embed_batch(
        self, batch: Batch, cells: Sequence[Vectors], frames: IntArray
    ) -> tuple[dict[Way, Vectors], dict[Way, Vectors]]:
        """The vectors of some chunks, and of the boxes in them, by way of comparing."""
        boxes = [torch.tensor(some) for some in cells]
        padded = pad_boxes(boxes, self._detector.device).boxes
        counts = [len(some) for some in boxes]
        shown = self._detector.spectrograms(batch.waveforms)  # (B, 1, T, F)
        tokens = self._detector.tokens(shown)  # (B, D, T/16, F/16)
        before = self._pretrained.tokens(self._pretrained.spectrograms(batch.waveforms))
        patch = self._detector.encoder.config.patch
        columns = [math.ceil(n / patch) for n in frames.tolist()]  # the columns with sound in them
        size = (float(patch), float(patch))
        pictures = [picture[0].float().cpu().numpy() for picture in shown]
        whole: dict[Way, Vectors] = {
            "mel": np.stack([_bin_statistics(p[:n]) for p, n in zip(pictures, frames.tolist(), strict=True)]),
            "pretrained": _chunk_means(before, columns),
            "encoder": _chunk_means(tokens, columns),
        }
        inside: dict[Way, Vectors] = {
            "mel": np.concatenate([mel_statistics(p, some) for p, some in zip(pictures, cells, strict=True)]),
            # the encoder alone, as in the paper; mast embed also appends simple statistics of the box
            "pretrained": _remove_padding(pool_boxes(before, padded, size, samples=2), counts),
            "encoder": _remove_padding(pool_boxes(tokens, padded, size, samples=2), counts),
        }
        projected = self._detector.project(tokens, shown, boxes)
        if projected is not None:
            inside["projection"] = torch.cat(projected).float().cpu().numpy()
        return whole, inside


def drop_overlapping(dataset: Dataset, chunks: Chunks, front_end: FrontEnd) -> Chunks:
    """The chunks that do not overlap an earlier one, so that no box is there twice."""
    table = chunks.table.reset_index(drop=True)
    kept: list[int] = []
    reached: dict[str, float] = {}
    order = table.sort_values(["recording", "start_s"], kind="stable")
    for row, name, start in zip(order.index, order["recording"], order["start_s"], strict=True):
        if start >= reached.get(str(name), -math.inf) - front_end.hop_s / 2:
            kept.append(int(row))
            reached[str(name)] = float(start) + front_end.chunk_s
    if len(kept) == len(table):
        return chunks
    rows = sorted(kept)
    own = ChunkDataset(dataset, table.iloc[rows], front_end)
    sound = None if chunks.sound is None else chunks.sound[torch.tensor(rows, device=chunks.sound.device)]
    return Chunks(ConcatDataset([own]), table.iloc[rows].reset_index(drop=True), sound)


def labelled_boxes(
    dataset: Dataset, chunks: pd.DataFrame, detections: pd.DataFrame | None, front_end: FrontEnd
) -> pd.DataFrame:
    """True boxes and detections of some chunks, as :attr:`EmbeddedPart.boxes`.

    A detection takes the label of the true box that it overlaps most, if the IoU is at least one half.

    Args:
        dataset: the labelled dataset.
        chunks: chunks that do not overlap.
        detections: detections in the same recordings; none by default.
        front_end: the grid.
    """
    events = {str(name): own for name, own in dataset.annotations.events.groupby("recording")}
    found = {} if detections is None else _detections_by_chunk(detections, chunks, front_end)
    tables = [_empty_boxes()]
    for row, (name, start, valid) in enumerate(
        zip(chunks["recording"].astype(str), chunks["start_s"], chunks["valid_s"], strict=True)
    ):
        own = events.get(name)
        frames = min(
            front_end.chunk_frames, math.ceil(valid / front_end.hop_s - 1e-6)
        )  # no box reaches into the padding
        grid = events_to_grid(
            boxes_of(own) if own is not None else np.empty((0, 4)),
            front_end,
            chunk_start_s=float(start),
            n_frames=frames,
        )
        labels = (
            own["label"].astype(str).to_numpy()[grid.index] if own is not None else np.empty(0, dtype=str)
        )
        detected = found.get(row, np.empty((0, 4)))
        best, overlap = best_matches(detected, grid.boxes)
        hit = overlap >= MATCH_IOU
        truth = pd.DataFrame(grid.boxes, columns=BOX_COLUMNS, dtype=np.float64)
        truth = truth.assign(kind="truth", label=labels, iou=np.nan)
        truth["matched"] = np.isin(np.arange(len(truth)), best[hit])
        boxes = pd.DataFrame(detected, columns=BOX_COLUMNS, dtype=np.float64)
        own_labels = [str(labels[at]) if ok else "" for at, ok in zip(best, hit, strict=True)]
        boxes = boxes.assign(kind="detected", label=own_labels, iou=overlap, matched=hit)
        both = [some for some in (truth, boxes) if len(some)]
        if both:
            tables.append(pd.concat(both, ignore_index=True).assign(chunk=row, recording=name))
    filled = [table for table in tables if len(table)] or tables
    return pd.concat(filled, ignore_index=True)[list(_empty_boxes())]


def best_matches(detected: FloatArray, truth: IntArray) -> tuple[IntArray, FloatArray]:
    """For each detection, the true box that it overlaps most, and their IoU; −1 and 0 where there is none."""
    if not len(truth) or not len(detected):
        return np.full(len(detected), -1, dtype=np.int64), np.zeros(len(detected))
    a, b = (
        torch.from_numpy(np.asarray(detected, dtype=np.float64)),
        torch.from_numpy(truth.astype(np.float64)),
    )
    overlaps = iou(a[:, None], b[None]).numpy()  # (detections, truths)
    return overlaps.argmax(axis=1).astype(np.int64), overlaps.max(axis=1)


def _detections_by_chunk(
    detections: pd.DataFrame, chunks: pd.DataFrame, front_end: FrontEnd
) -> dict[int, FloatArray]:
    """Detections in cells of a chunk, by the row of the chunk that holds their middle."""
    found: dict[int, FloatArray] = {}
    first = chunks["start_s"].to_numpy(dtype=np.float64) / front_end.hop_s
    own_rows = {str(name): np.asarray(rows) for name, rows in chunks.groupby("recording").indices.items()}
    for name, own in detections.groupby("recording"):
        rows = own_rows.get(str(name))
        if rows is None:
            continue
        rows = rows[np.argsort(first[rows], kind="stable")]
        boxes = events_to_cells(boxes_of(own), front_end)
        at = np.searchsorted(first[rows], boxes[:, [0, 2]].mean(axis=1), side="right") - 1
        for k in np.unique(at[at >= 0]).tolist():
            mine = boxes[at == k]
            mine[:, [0, 2]] = (mine[:, [0, 2]] - first[rows[k]]).clip(0, front_end.chunk_frames)
            found[int(rows[k])] = mine
    return found


def _empty_boxes() -> pd.DataFrame:
    columns = {"chunk": "int64", "recording": "object", "kind": "object", "label": "object", "iou": "float64"}
    columns |= {"matched": "bool", **dict.fromkeys(BOX_COLUMNS, "float64")}
    return pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in columns.items()})


def _bin_statistics(picture: Vectors) -> Vectors:
    """(T, F) → (2 F,) mean and deviation of each bin over time."""
    return np.concatenate([picture.mean(axis=0), picture.std(axis=0)])


def _chunk_means(tokens: Tensor, columns: Sequence[int]) -> Vectors:
    """(B, D, T/16, F/16) → (B, D), over the columns with sound in them."""
    means = [map_[:, :n].float().mean(dim=(1, 2)) for map_, n in zip(tokens, columns, strict=True)]
    return torch.stack(means).cpu().numpy()


def _remove_padding(values: Tensor, counts: Sequence[int]) -> Vectors:
    """(B, M, C) → the rows of real boxes, chunk after chunk."""
    rows = [row[:count].float().cpu().numpy() for row, count in zip(values, counts, strict=True)]
    return np.concatenate(rows)
