"""What a model makes of clips: an embedding of every chunk, and how unsure the detector is.

Only the candidates are read, by seeking, so that a plan over a thousand hours costs what its candidates cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from mast.annotations.redraw import redraw
from mast.arrays import FloatArray, IntArray, Vectors
from mast.audio import centre_and_pad, read
from mast.data.recordings import Dataset
from mast.errors import AudioError
from mast.grid import FrontEnd, grid_to_events
from mast.loaded_model import LoadedModel
from mast.models.card import load_card
from mast.models.decode import Detections
from mast.models.find import find_model
from mast.models.mast_detector import MastDetector
from mast.planning.cover import Survey

MIN_SCORE = 0.05  # raw; boxes with lower scores add hardly any uncertainty
_BATCH = {"cuda": 32}  # chunks at once, our choice; elsewhere 4


class _Chunk(NamedTuple):
    clip: int
    path: Path
    start_s: float


class Surveyor:
    """A trained detector, or a pretrained encoder (which gives no uncertainty), looking at clips.

    Args:
        folder: as :func:`mast.models.find.find_model` takes it.
        device: ``"cpu"``, ``"cuda"``; the GPU where there is one by default.
        band_hz: upper edge of the band to look at, Hz; the model's own by default.

    Attributes:
        card: what the checkpoint says about itself.
        detects: whether the model is a detector.
    """

    def __init__(
        self, folder: str | Path, *, device: str | None = None, band_hz: float | None = None
    ) -> None:
        self._hearing = LoadedModel.load(folder, device=device, band_hz=band_hz)
        self._width = self._hearing.encoder.config.width
        self.card, self.device = self._hearing.card, self._hearing.device
        self.detects = isinstance(self._hearing.model, MastDetector)

    @property
    def front_end(self) -> FrontEnd:
        """Band and chunks of the model."""
        return self.card.front_end

    def survey(
        self,
        dataset: Dataset,
        candidates: pd.DataFrame,
        heard: pd.DataFrame | None = None,
        *,
        progress: Callable[[int], None] | None = None,
    ) -> Survey:
        """Embed every chunk of the candidates, and of what was heard already.

        Args:
            dataset: where the recordings lie.
            candidates: clips with ``recording``, ``start_s``, ``end_s``.
            heard: likewise.
            progress: called with the number of chunks done.
        """
        vectors, clip, uncertainty, failures = self._embed_clips(dataset, candidates, progress)
        known: Vectors = np.zeros((0, vectors.shape[1]), dtype=np.float32)
        if heard is not None and len(heard):
            known = self._embed_clips(dataset, heard, progress)[0]
        return Survey(vectors, clip, uncertainty, known, failures)

    def count_chunks(self, clips: pd.DataFrame) -> int:
        """How many chunks the model looks at for these clips."""
        spans = zip(clips["start_s"], clips["end_s"], strict=True)
        return sum(len(chunk_grid(float(a), float(b), self.front_end)) for a, b in spans)

    def _embed_clips(
        self, dataset: Dataset, clips: pd.DataFrame, progress: Callable[[int], None] | None
    ) -> tuple[Vectors, IntArray, FloatArray, dict[int, str]]:
        paths = {str(name): dataset.path(str(name)) for name in clips["recording"].unique()}
        spans = zip(clips["recording"].astype(str), clips["start_s"], clips["end_s"], strict=True)
        todo = [
            _Chunk(row, paths[name], start)
            for row, (name, a, b) in enumerate(spans)
            for start in chunk_grid(float(a), float(b), self.front_end)
        ]
        found: list[Vectors] = []
        rows: list[int] = []
        uncertainty, failures = np.zeros(len(clips)), dict[int, str]()
        for batch, sound in self._batches(todo, failures, progress):
            embeddings, detections = self._run_model(sound)
            found.append(embeddings)
            rows += [chunk.clip for chunk in batch]
            for chunk, own in zip(batch, detections, strict=self.detects):
                try:
                    uncertainty[chunk.clip] += self._expected_errors(chunk, own)
                except AudioError as error:
                    failures[chunk.clip] = str(error)
        vectors = np.concatenate(found) if found else np.zeros((0, self._width), dtype=np.float32)
        clip = np.array(rows, dtype=np.int64)
        whole = ~np.isin(clip, list(failures))
        return vectors[whole], clip[whole], uncertainty, failures

    def _batches(
        self, todo: list[_Chunk], failures: dict[int, str], progress: Callable[[int], None] | None
    ) -> Iterator[tuple[list[_Chunk], Tensor]]:
        """Chunks with their sound; a clip that cannot be read goes to ``failures``."""
        size = _BATCH.get(self.device.type, 4)
        for begin in range(0, len(todo), size):
            batch, sound = [], []
            for chunk in todo[begin : begin + size]:
                try:
                    sound.append(self._read_chunk(chunk))
                    batch.append(chunk)
                except AudioError as error:
                    failures[chunk.clip] = str(error)
                except OSError as error:
                    failures[chunk.clip] = f"{chunk.path}: cannot be read ({error.strerror or error})"
            if batch:
                yield batch, torch.from_numpy(np.stack(sound))
            if progress is not None:
                progress(len(todo[begin : begin + size]))

    def _read_chunk(self, chunk: _Chunk) -> Vectors:
        front_end = self.front_end
        end_s = chunk.start_s + front_end.chunk_s
        sound = read(chunk.path, start_s=chunk.start_s, end_s=end_s, sample_rate=front_end.sample_rate)
        return centre_and_pad(sound[: front_end.chunk_samples], front_end.chunk_samples)

    @torch.inference_mode()
    def _run_model(self, sound: Tensor) -> tuple[Vectors, list[Detections]]:
        """(B, samples) → (B, D) embeddings, and what a detector finds: B results, or none from an encoder."""
        spectrograms = self._hearing.spectrograms(sound)
        if not self.detects:
            return pool_chunks(self._hearing.tokens(spectrograms)), []
        model = self._hearing.mast_detector
        output = model(spectrograms)
        found = model.select(output, score_threshold=MIN_SCORE, nms_iou=self._hearing.nms_iou)
        return pool_chunks(output.tokens), found

    def _expected_errors(self, chunk: _Chunk, found: Detections) -> float:
        """Expected errors in a chunk's boxes, as the habit draws them: a song of five notes is one decision."""
        scores, habit = found.scores.double().cpu().numpy(), self.card.habit
        if habit is not None:
            cells = found.boxes.double().cpu().numpy()
            boxes = grid_to_events(cells, self.front_end, chunk_start_s=chunk.start_s)
            own = self.card.thresholds.get("score", 0.0)
            scores = scores[redraw(boxes, scores, habit, chunk.path, self.front_end, threshold=own).rows]
        return expected_errors(self.card.probabilities.apply(scores))


def pool_chunks(tokens: Tensor) -> Vectors:
    """(B, D, T/16, F/16) the encoder's map → (B, D) one embedding per chunk: the mean over time and frequency."""
    return np.asarray(tokens.float().mean(dim=(2, 3)).cpu().numpy(), dtype=np.float32)


def expected_errors(scores: FloatArray) -> float:
    """About how many of these boxes are judged wrongly, if scores are probabilities: Σ min(p, 1 − p).

    >>> expected_errors(np.array([0.5, 0.99, 0.01]))
    0.52
    """
    return float(np.minimum(scores, 1.0 - np.asarray(scores)).sum().round(12))


def expected_errors_by_clip(events: pd.DataFrame, clips: pd.DataFrame) -> FloatArray:
    """(C,) uncertainty of each clip, from a table of detections: an event counts where its middle lies."""
    uncertainty = np.zeros(len(clips))
    middle = ((events["start_s"] + events["end_s"]) / 2).to_numpy(dtype=np.float64)
    scores = events["score"].to_numpy(dtype=np.float64)
    own = {str(name): rows for name, rows in events.groupby("recording", sort=False).indices.items()}
    spans = zip(clips["recording"].astype(str), clips["start_s"], clips["end_s"], strict=True)
    for row, (name, start, end) in enumerate(spans):
        if name in own:
            inside = own[name][(middle[own[name]] >= start) & (middle[own[name]] < end)]
            uncertainty[row] = expected_errors(scores[inside])
    return uncertainty


def chunk_grid(start_s: float, end_s: float, front_end: FrontEnd) -> list[float]:
    """Where the chunks of a clip begin: end to end, the last at least half full."""
    n = max(1, round((end_s - start_s) / front_end.chunk_s))
    return [start_s + k * front_end.chunk_s for k in range(n)]


def model_front_end(folder: str | Path, band_hz: float | None = None) -> FrontEnd:
    """Band and chunks of a model, or of the same one in another band, without loading its weights."""
    own = load_card(find_model(folder)).front_end
    return own if band_hz is None else own.at_band(band_hz)
