"""Sound → boxes and scores as one graph of plain tensor operations, which ONNX can hold.

:class:`mast.features.logmel.LogMel` works in slices with an FFT, as is fastest on each device; ONNX has no such slices,
and its FFT is slow or absent in most runtimes. Here the same steps are taken in the same order, with the spectrum as a
product with cosines and sines.
"""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn

from mast.features.mel_bank import FLOOR, PREEMPHASIS, fft_size, mel_bank
from mast.grid import FrontEnd
from mast.models.boxes import clip_boxes
from mast.models.encoder import Encoder
from mast.models.mast_detector import DenseOutput, MastDetector
from mast.normalisation import Normalisation


class PlainLogMel(nn.Module):
    """(B, chunk_samples) sound → (B, 1, T, F) log-mel, as :meth:`LogMel.chunk_features` gives it to rounding."""

    window: Tensor
    cosines: Tensor
    sines: Tensor
    bank: Tensor

    def __init__(self, front_end: FrontEnd) -> None:
        super().__init__()
        self.front_end = front_end
        size, width = fft_size(front_end), front_end.window_samples
        angle = torch.arange(width, dtype=torch.float64)[:, None] * torch.arange(size // 2 + 1) % size
        angle = angle * (2 * math.pi / size)  # (window, fft_size // 2 + 1)
        self.register_buffer("window", torch.hann_window(width, periodic=False), persistent=False)
        self.register_buffer("cosines", angle.cos().float(), persistent=False)
        self.register_buffer("sines", angle.sin().float(), persistent=False)
        self.register_buffer("bank", torch.from_numpy(mel_bank(front_end)), persistent=False)

    def frames(self, sound: Tensor) -> Tensor:
        """(B, chunk_samples) → (B, T, window) overlapping frames, joined from pieces that no frame cuts."""
        grid = self.front_end
        piece = math.gcd(grid.hop_samples, grid.window_samples)
        per_hop, per_window = grid.hop_samples // piece, grid.window_samples // piece
        count = per_hop * (grid.chunk_frames - 1) + per_window
        padded = nn.functional.pad(sound, (0, max(0, count * piece - grid.chunk_samples)))
        pieces = padded[:, : count * piece].reshape(-1, count, piece)  # (B, pieces, piece)
        last = per_hop * (grid.chunk_frames - 1)
        return torch.cat([pieces[:, i : i + last + 1 : per_hop] for i in range(per_window)], dim=2)

    def forward(self, sound: Tensor) -> Tensor:
        """(B, chunk_samples) → (B, 1, T, F)."""
        frames = self.frames(sound - sound.mean(dim=1, keepdim=True))  # (B, T, window)
        frames = frames - frames.mean(dim=2, keepdim=True)
        # the first sample has no predecessor, but the window is zero there
        before = nn.functional.pad(frames[:, :, :-1], (1, 0))
        frames = (frames - PREEMPHASIS * before) * self.window
        power = (frames @ self.cosines).square() + (frames @ self.sines).square()
        return (power @ self.bank).clamp(min=FLOOR).log().unsqueeze(1)  # (B, 1, T, F)


class PlainEncoder(Encoder):
    """The encoder for batches of a size that is not known yet: ``len(batch)`` would write it into the graph."""

    def forward(self, spectrograms: Tensor, visible: Tensor | None = None) -> Tensor:
        """(B, 1, T, F) → (B, 1 + L, D), as :meth:`mast.models.encoder.Encoder.forward` of all patches."""
        assert visible is None
        tokens: Tensor = self.patch_embed(spectrograms) + self.pos_embed[:, 1:]  # (B, L, D)
        class_token = (self.cls_token + self.pos_embed[:, :1]).expand(tokens.shape[0], -1, -1)
        tokens = torch.cat([class_token, tokens], dim=1)
        for block in self.blocks:
            tokens = block(tokens)
        encoded: Tensor = self.norm(tokens)
        return encoded


class SoundToBoxes(nn.Module):
    """The whole way from a chunk of sound to every point's box and score; choosing among them is left to NMS."""

    def __init__(self, model: MastDetector, front_end: FrontEnd, normalisation: Normalisation) -> None:
        super().__init__()
        encoder = PlainEncoder(model.config.encoder)
        encoder.load_state_dict(model.encoder.state_dict())
        self.model = copy.deepcopy(model)
        self.model.encoder = encoder
        self.log_mel = PlainLogMel(front_end)
        self.normalisation = normalisation

    def forward(self, sound: Tensor) -> tuple[Tensor, Tensor]:
        """(B, chunk_samples) → (B, R, 4) boxes t1, f1, t2, f2 in cells, inside the chunk, and (B, R) scores."""
        output: DenseOutput = self.model(self.normalisation.apply(self.log_mel(sound)))
        return clip_boxes(output.boxes, self.model.chunk), self.model.scores(output)
