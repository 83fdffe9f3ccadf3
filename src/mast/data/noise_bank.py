"""A bank of backgrounds to mix into training chunks: rain, wind, engines, empty forest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from mast.device import to_device
from mast.errors import ConfigError
from mast.features.logmel import LogMel
from mast.grid import FrontEnd

if TYPE_CHECKING:
    from mast.data.chunk_dataset import ChunkDataset

_BATCH = 16  # chunks turned into features at a time


class NoiseBank:
    """Raw log-mel spectrograms without animals.

    Args:
        spectrograms: (N, 1, T, F) raw log-mel, kept as float16 on the device given: 0.25 MB per chunk.

    Raises:
        ConfigError: no spectrogram at all.
    """

    def __init__(self, spectrograms: Tensor) -> None:
        if spectrograms.ndim != 4 or len(spectrograms) == 0:
            raise ConfigError(
                f"noise bank: got spectrograms of shape {tuple(spectrograms.shape)}, expected (N, 1, T, F) "
                "with N ≥ 1; give chunks without boxes or a folder of noise, or leave background mixing out"
            )
        self.spectrograms = spectrograms.half()  # ln(power) to 0.01: far below any noise's own flicker

    def __len__(self) -> int:
        return len(self.spectrograms)

    def to(self, device: torch.device | str) -> NoiseBank:
        """The bank on another device."""
        return NoiseBank(self.spectrograms.to(device))

    def draw(self, n: int, *, generator: torch.Generator) -> Tensor:
        """(n, 1, T, F) float32 backgrounds drawn with replacement; the (CPU) generator decides."""
        index = torch.randint(len(self), (n,), generator=generator)
        return self.spectrograms[to_device(index, self.spectrograms.device)].float()

    @classmethod
    def from_chunks(
        cls, parts: Sequence[ChunkDataset], *, max_backgrounds: int = 1_000, seed: int = 0
    ) -> NoiseBank:
        """Backgrounds from chunks that hold no box.

        Args:
            parts: chunks of one front end; those with boxes are left out.
            max_backgrounds: maximum number; drawn at random where there are more.
            seed: for that draw.
        """
        empty = [(k, i) for k, part in enumerate(parts) for i in range(len(part)) if len(part.boxes[i]) == 0]
        order = torch.randperm(len(empty), generator=torch.Generator().manual_seed(seed))[:max_backgrounds]
        chosen = [empty[n] for n in order.sort().values]  # in order of the recordings: kinder to the disk
        return cls(_features((parts[k][i].waveform for k, i in chosen), parts[0].front_end))


def _features(waveforms: Iterable[Tensor], front_end: FrontEnd) -> Tensor:
    """(N, 1, T, F) raw log-mel of chunk-long waveforms, a few at a time."""
    log_mel = LogMel(front_end)
    done: list[Tensor] = []
    pending: list[Tensor] = []
    for waveform in waveforms:
        pending.append(waveform)
        if len(pending) == _BATCH:
            done.append(log_mel.chunk_features(torch.stack(pending)).half())
            pending = []
    if pending:
        done.append(log_mel.chunk_features(torch.stack(pending)).half())
    return torch.cat(done) if done else torch.empty(0, 1, front_end.chunk_frames, front_end.n_bins)
