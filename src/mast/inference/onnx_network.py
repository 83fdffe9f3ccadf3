"""A trained network in ONNX Runtime: the search on a CPU without bfloat16, where torch would be slower.

Torch is not imported, which saves two seconds at the start and half a gigabyte of memory. Every window is searched on
its own: several at once are no faster here, and rounding them together would make the events of a window depend on its
neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from mast.arrays import Samples
from mast.detect_options import DetectOptions
from mast.features.array_logmel import ArrayLogMel
from mast.hardware import cpu_threads
from mast.inference.network import MAX_WORKERS, ThreadSetting
from mast.inference.stitch import ScoredBoxes
from mast.models.architecture import DetectorConfig
from mast.models.card import ModelCard, load_card, read_arrays
from mast.models.find import find_model
from mast.models.nested import CANDIDATES, MAX_BOXES, drop_nested, drop_overlapping
from mast.models.onnx_detector import BOXES, GIVEN, MIN_SCORE, SCORES, can_write, open_session, write_graph

_PIECE = 4  # windows read at once, our choice: enough for a worker to be busy, few enough to share at a recording's end


class OnnxNetwork:
    """A network in ONNX Runtime, set up for searching; see :class:`mast.inference.network.Network`.

    Args:
        folder: where the checkpoint lies.
        card: what it says about itself, at the band that is searched.
        graph: of :func:`mast.models.onnx_detector.write_graph`.
        threads: of the CPU.
    """

    precision = "int8"
    batch_size = piece_size = _PIECE
    full_batches = False
    readers = 1

    def __init__(self, folder: Path, card: ModelCard, graph: bytes, *, threads: int) -> None:
        assert isinstance(card.architecture, DetectorConfig)
        self.folder, self.card = folder, card
        self.workers = min(threads, MAX_WORKERS)
        self._nested = card.architecture.nested
        self._log_mel = ArrayLogMel(card.front_end)
        self._session = open_session(graph, threads=max(1, threads // self.workers))

    @classmethod
    def open(cls, name: str | Path, options: DetectOptions, *, threads: int | None = None) -> Self | None:
        """A detector in ONNX Runtime; None where only torch can run it.

        That is so for a baseline, a detector with parts beyond the paper's, damaged weights (torch's loader says how),
        and a release of ONNX Runtime that cannot run the graph.

        Args:
            name: of the model, as :func:`mast.models.find.find_model` takes it.
            options: how it searches.
            threads: of the CPU; all that this process may use by default.
        """
        folder = find_model(name)
        card = load_card(folder)
        config, front_end = card.architecture, card.front_end
        if not isinstance(config, DetectorConfig) or not can_write(config):
            return None
        made_for = config.encoder.chunk_frames, config.encoder.n_bins
        weights = read_arrays(folder, card.weights_sha256)
        if (front_end.chunk_frames, front_end.n_bins) != made_for or weights is None:
            return None
        try:
            graph = write_graph(config, weights, ranges=card.ranges)
        except (KeyError, ValueError):  # weights of another architecture
            return None
        if options.band_hz is not None:
            card = card.at_band(options.band_hz)
        try:
            return cls(folder, card, graph, threads=threads or cpu_threads())
        except Exception as error:
            if type(error).__module__.startswith("onnxruntime"):  # a release that lacks one of the nodes
                return None
            raise

    def thread_setting(self) -> ThreadSetting:
        """Nothing: each worker computes in its own thread."""
        return ThreadSetting()

    def boxes(self, sounds: Sequence[Samples], min_score: float) -> list[ScoredBoxes]:
        """See :class:`Network`."""
        return [self._find_boxes(window, min_score) for sound in sounds for window in sound]

    def _find_boxes(self, window: Samples, min_score: float) -> ScoredBoxes:
        seen = self.card.normalisation.apply(self._log_mel.chunk(window))
        given = {GIVEN: seen[None, None], MIN_SCORE: np.array(min_score, dtype=np.float32)}
        boxes, scores = self._session.run([BOXES, SCORES], given)
        return choose_boxes(
            boxes, scores, min_score=min_score, nms_iou=self.card.nms_iou, nested=self._nested
        )


def choose_boxes(
    boxes: NDArray[np.float32],
    scores: NDArray[np.float32],
    *,
    min_score: float,
    nms_iou: float,
    nested: float,
) -> ScoredBoxes:
    """The boxes that count, best first, as :func:`mast.models.decode.select_boxes` chooses them.

    Args:
        boxes: (R, 4) in cells, inside the chunk.
        scores: (R,).
        min_score: boxes scored lower are dropped.
        nms_iou: of two boxes that overlap more, the lower-scored is dropped.
        nested: of the remaining boxes, the lower-scored of two that share more than this of the smaller one is dropped,
            too; 1 for never.
    """
    enough = np.flatnonzero(scores >= min_score)
    best = enough[np.argsort(-scores[enough], kind="stable")][:CANDIDATES]
    best = best[(boxes[best, 2:] > boxes[best, :2]).all(axis=1)]
    found = boxes[best].astype(np.float64)
    kept = np.flatnonzero(drop_overlapping(found, nms_iou))
    if nested < 1:
        kept = kept[drop_nested(found[kept], nested)]
    kept = kept[:MAX_BOXES]
    return ScoredBoxes(found[kept], scores[best[kept]].astype(np.float64))
