"""A loaded model: sound in; spectrograms, boxes and embeddings out.

Whatever uses a trained model gets it here: searching recordings, embedding boxes, planning, self-training, measuring,
export. Front end, normalisation and thresholds are those of the model's card.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mast.device import find_device, to_device
from mast.errors import MastError
from mast.features.logmel import LogMel
from mast.grid import FrontEnd
from mast.models.boxes import pad_boxes
from mast.models.card import ModelCard
from mast.models.checkpoint import load_checkpoint
from mast.models.decode import Detections
from mast.models.encoder import Encoder
from mast.models.find import find_model
from mast.models.interface import BoxDetector
from mast.models.mae import MaskedAutoencoder
from mast.models.mast_detector import MastDetector

Precision = Literal["float32", "bfloat16", "float16"]
_TYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


class LoadedModel:
    """A model, its card and its front end, on one device.

    Args:
        model: as ``card.architecture`` describes it.
        card: what is known about it.
        device: where it runs.
        precision: what its matrix products are computed in.
        folder: where it lies, for messages.
    """

    def __init__(
        self,
        model: nn.Module,
        card: ModelCard,
        *,
        device: torch.device,
        precision: Precision = "float32",
        folder: Path = Path("the model"),
    ) -> None:
        self.model = model.to(device)
        self.card, self.device, self.precision, self.folder = card, device, precision, folder
        self._log_mel = LogMel(card.front_end).to(device)

    @classmethod
    def load(
        cls,
        name: str | Path,
        *,
        device: str | torch.device | None = None,
        band_hz: float | None = None,
        precision: Precision = "float32",
    ) -> LoadedModel:
        """Read a model in evaluation mode.

        Args:
            name: as :func:`mast.models.find.find_model` takes it.
            device: by default, the GPU if there is one.
            band_hz: upper edge of the band to search, Hz; the model's own by default. Sound is then played to the model
                that much faster or slower.
            precision: what matrix products are computed in.
        """
        folder = find_model(name)
        place = find_device(device)
        model, card = load_checkpoint(folder)
        if band_hz is not None:
            card = card.at_band(band_hz)
        return cls(model, card, device=place, precision=precision, folder=folder)

    @property
    def front_end(self) -> FrontEnd:
        """Band and chunks."""
        return self.card.front_end

    @property
    def nms_iou(self) -> float:
        """Of two boxes in a chunk that overlap more than this, one stays."""
        return self.card.nms_iou

    @property
    def box_detector(self) -> BoxDetector:
        """The model; refuses one that finds no boxes."""
        if not isinstance(self.model, BoxDetector):
            raise MastError(
                f"{self.folder}: holds a pretrained encoder, not a detector; train one from it with "
                f"`mast train DATA --init {self.folder} --out RUN`"
            )
        return self.model

    @property
    def mast_detector(self) -> MastDetector:
        """The model; refuses all but a detector of MAST."""
        if not isinstance(self.box_detector, MastDetector):
            raise self._no_encoder("use a MAST detector, or do without embeddings")
        return self.box_detector

    @property
    def encoder(self) -> Encoder:
        """The encoder of a detector of MAST, or a pretrained one; refuses a baseline."""
        if not isinstance(self.model, MastDetector | MaskedAutoencoder):
            raise self._no_encoder("use a MAST detector or a pretrained encoder")
        return self.model.encoder

    def _no_encoder(self, remedy: str) -> MastError:
        kind = type(self.model).__name__
        return MastError(
            f"{self.folder}: is a baseline ({kind}) without the encoder that embeddings come from; {remedy}"
        )

    def autocast(self) -> torch.autocast:
        """Within it, products are computed in the model's precision."""
        dtype = _TYPES.get(self.precision)
        return torch.autocast(
            self.device.type, dtype=dtype or torch.bfloat16, enabled=self.precision in _TYPES
        )

    def spectrograms(self, sound: Tensor) -> Tensor:
        """(B, samples), anywhere → (B, 1, T, F) as the model sees it."""
        return self.card.normalisation.apply(self._log_mel.chunk_features(to_device(sound, self.device)))

    @torch.no_grad()
    def detect(
        self, sound: Tensor, *, score_threshold: float, nms_iou: float | None = None
    ) -> list[Detections]:
        """Boxes in each chunk of sound, best first.

        Args:
            sound: (B, samples), anywhere.
            score_threshold: minimum score, on the model's own scale.
            nms_iou: :attr:`nms_iou` by default.

        Returns:
            B times (K, 4) cells and (K,) scores.
        """
        overlap = self.nms_iou if nms_iou is None else nms_iou
        with self.autocast():
            return self.box_detector.detect(
                self.spectrograms(sound), score_threshold=score_threshold, nms_iou=overlap
            )

    @torch.no_grad()
    def tokens(self, spectrograms: Tensor) -> Tensor:
        """(B, 1, T, F) → the encoder's map, (B, D, T/16, F/16)."""
        with self.autocast():
            return self.encoder.feature_map(spectrograms)

    @torch.no_grad()
    def embed(self, tokens: Tensor, spectrograms: Tensor, boxes: Sequence[Tensor]) -> list[Tensor]:
        """B times (M_i, ``embedding_width``): the encoder's features of boxes, and what the boxes look like.

        Args:
            tokens: from :meth:`tokens`.
            spectrograms: (B, 1, T, F), which the tokens come from.
            boxes: B times (M_i, 4) in cells.
        """
        return self.mast_detector.vectors(tokens, spectrograms, boxes)

    @torch.no_grad()
    def project(self, tokens: Tensor, spectrograms: Tensor, boxes: Sequence[Tensor]) -> list[Tensor] | None:
        """B times (M_i, P), of length one: the contrastive projection; None where the model has none.

        Arguments are those of :meth:`embed`.
        """
        model = self.mast_detector
        if not model.projection_width:
            return None
        padded = pad_boxes(boxes, self.device).boxes
        with self.autocast():  # as in the contrastive loss
            levels = model.pyramid(model.adapt(tokens, spectrograms))
            projected = F.normalize(model.project(levels, padded).float(), dim=-1)  # (B, M, P)
        return [row[: len(own)] for row, own in zip(projected, boxes, strict=True)]
