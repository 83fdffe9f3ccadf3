"""From waveforms to what a model sees: features, augmentation, normalisation, all on the device."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from mast.data.augment import AugmentConfig, Augmented, augment_batch
from mast.data.chunk_dataset import Batch
from mast.data.noise_bank import NoiseBank
from mast.device import to_device
from mast.features.logmel import LogMel
from mast.grid import FrontEnd
from mast.normalisation import Normalisation


class Spectrograms(NamedTuple):
    """A batch as the model takes it."""

    spectrograms: Tensor  # (B, 1, T, F) normalised
    boxes: list[Tensor]  # B × (M, 4) float cells
    doubtful: list[Tensor]  # B × (D, 4) boxes that are perhaps calls
    weights: Tensor  # (B,)


class FrontEndPipeline(nn.Module):
    """Waveforms → log-mel → augmentation (when training) → normalisation.

    Decoding stays in worker processes; everything here is batched on the device the model is on.
    """

    def __init__(
        self,
        front_end: FrontEnd,
        normalisation: Normalisation,
        *,
        augmentation: AugmentConfig | None = None,
        noise: NoiseBank | None = None,
    ) -> None:
        super().__init__()
        self.log_mel = LogMel(front_end)
        self.normalisation = normalisation
        self.augmentation = augmentation
        self.noise = noise

    def forward(self, batch: Batch, generator: torch.Generator | None = None) -> Spectrograms:
        """A batch of chunks → spectrograms; augmented only when a CPU ``generator`` is given."""
        device = self.log_mel.window.device
        sound = to_device(batch.waveforms, device)
        raw = self.log_mel.chunk_features(sound)
        if self.augmentation is not None and generator is not None:
            changed = augment_batch(
                raw,
                batch.boxes,
                self.augmentation,
                generator=generator,
                sure=batch.sure,
                weights=batch.weights,
                noise=self.noise,
            )
        else:
            pairs = list(zip(batch.boxes, batch.sure, strict=True))
            boxes, doubtful = ([b[s == calls] for b, s in pairs] for calls in (True, False))
            changed = Augmented(raw, boxes, doubtful, batch.weights)
        return Spectrograms(
            self.normalisation.apply(changed.spectrograms),
            changed.boxes,
            changed.doubtful,
            to_device(changed.weights, device),
        )
