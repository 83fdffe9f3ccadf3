"""Boxes found in ONNX Runtime, each with its vector from torch.

Requesting vectors does not change the events. Vectors are computed in float32: they are compared with those of other
recordings, searched on other machines. Only windows in which something was found are processed a second time.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from mast.arrays import Samples
from mast.inference.network import ThreadSetting
from mast.inference.onnx_network import OnnxNetwork
from mast.inference.stitch import ScoredBoxes
from mast.inference.torch_network import threads_to_share
from mast.loaded_model import LoadedModel
from mast.models.card import ModelCard


class EmbeddingOnnxNetwork(OnnxNetwork):
    """:class:`OnnxNetwork` that also gives embeddings."""

    def __init__(self, folder: Path, card: ModelCard, graph: bytes, *, threads: int) -> None:
        super().__init__(folder, card, graph, threads=threads)
        self.loaded_model = LoadedModel.load(folder, device="cpu", band_hz=card.front_end.high_hz)

    def thread_setting(self) -> ThreadSetting:
        """Each worker has its share of torch's threads."""
        return threads_to_share(self.workers)

    @torch.inference_mode()
    def boxes(self, sounds: Sequence[Samples], min_score: float) -> list[ScoredBoxes]:
        """See :class:`Network`."""
        windows = [window for sound in sounds for window in sound]
        return [
            self._embed(window, found)
            for window, found in zip(windows, super().boxes(sounds, min_score), strict=True)
        ]

    def _embed(self, window: Samples, found: ScoredBoxes) -> ScoredBoxes:
        if not len(found.scores):
            width = self.loaded_model.mast_detector.embedding_width
            return found._replace(embeddings=np.zeros((0, width), dtype=np.float16))
        seen = self.loaded_model.spectrograms(torch.from_numpy(window[None]))
        boxes = torch.from_numpy(found.boxes).float()
        (vectors,) = self.loaded_model.embed(self.loaded_model.tokens(seen), seen, [boxes])
        return found._replace(embeddings=vectors.half().numpy())
