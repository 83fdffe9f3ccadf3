"""Masked-audio pretraining (Sec. Methods, "Self-supervised pretraining").

Hide most patches of a spectrogram, encode what is left, reconstruct what was hidden:

    L_MAE = 1/|M| Σ_{(f,t) ∈ M} ‖Ŝ[f,t] − S[f,t]‖²

Beyond the paper the decoder may also predict *latent targets*, as in data2vec 2.0 and EAT: what an average of past
encoders, which sees everything, makes of the hidden patches. Noise cannot be predicted, and a spectrogram is mostly
noise; an encoder's view of it holds less of that.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mast.models.architecture import NORM_EPSILON, MaeConfig
from mast.models.encoder import Encoder, initialise_transformer, sincos_positions, transformer_blocks
from mast.models.masking import PatchMask, block_mask, structured_mask, uniform_mask, visible_count

BLOCK = 5  # patches a side of the regions that masking by blocks leaves visible, as in EAT


class Reconstruction(NamedTuple):
    """What one pretraining step gives."""

    loss: Tensor  # ()
    patches: Tensor  # (B, L, patch²) predicted, in the space of the targets
    mask: PatchMask


def patchify(spectrograms: Tensor, patch: int) -> Tensor:
    """(B, 1, T, F) → (B, L, patch²): tokens time-major, cells within a patch time-major."""
    b, _, t, f = spectrograms.shape
    grid = spectrograms.reshape(b, t // patch, patch, f // patch, patch)
    return grid.permute(0, 1, 3, 2, 4).reshape(b, -1, patch * patch)


def unpatchify(patches: Tensor, patch: int, token_grid: tuple[int, int]) -> Tensor:
    """Inverse of :func:`patchify`: (B, L, patch²) → (B, 1, T, F)."""
    time, frequency = token_grid
    grid = patches.reshape(len(patches), time, frequency, patch, patch).permute(0, 1, 3, 2, 4)
    return grid.reshape(len(patches), 1, time * patch, frequency * patch)


def reconstruction_targets(spectrograms: Tensor, patch: int, *, normalise: bool) -> Tensor:
    """(B, L, patch²) what the decoder should predict, in float32; ``normalise`` standardises each patch."""
    targets = patchify(spectrograms.float(), patch)
    if normalise:
        targets = (targets - targets.mean(2, keepdim=True)) / (targets.var(2, keepdim=True) + 1e-6).sqrt()
    return targets


def masked_reconstruction_loss(patches: Tensor, targets: Tensor, hidden: Tensor) -> Tensor:
    """L_MAE: squared error per cell, averaged over the hidden patches only; 0 where nothing is hidden.

    Args:
        patches: (B, L, patch²) predicted.
        targets: (B, L, patch²).
        hidden: (B, L) bool.
    """
    per_patch = (patches.float() - targets).square().mean(dim=2)  # (B, L)
    return (per_patch * hidden).sum() / hidden.sum().clamp(min=1)


@torch.no_grad()
def latent_targets(teacher: Encoder, spectrograms: Tensor) -> Tensor:
    """(B, L, D) what a teacher makes of every patch when nothing is hidden: the mean over its blocks, in float32.

    Each block's channels are standardised over the patches of an example, so that no block outweighs the others and a
    teacher that says the same everywhere says nothing.
    """
    tokens = teacher.embed(spectrograms)
    total = torch.zeros((), device=tokens.device)
    for block in teacher.blocks:
        tokens = block(tokens)
        patches = tokens[:, 1:].float()
        spread, mean = torch.var_mean(patches, dim=1, keepdim=True)
        total = total + (patches - mean) * (spread + 1e-5).rsqrt()
    return F.layer_norm(total / len(teacher.blocks), total.shape[2:])


class Decoder(nn.Module):
    """The lightweight decoder: fills the gaps with a mask token, and says something about every patch."""

    pos_embed: Tensor

    def __init__(self, config: MaeConfig) -> None:
        super().__init__()
        width = config.decoder_width
        self.embed = nn.Linear(config.encoder.width, width)
        self.mask_token = nn.Parameter(torch.zeros(1, 1, width))
        self.register_buffer("pos_embed", sincos_positions(width, config.encoder.token_grid))
        self.blocks = transformer_blocks(width, config.decoder_depth, config.decoder_heads)
        self.norm = nn.LayerNorm(width, eps=NORM_EPSILON)
        self.predict = nn.Linear(width, config.encoder.patch**2)
        if config.latent_weight:
            self.predict_latent = nn.Linear(width, config.encoder.width)
        self.apply(initialise_transformer)
        nn.init.normal_(self.mask_token, std=0.02)

    def forward(self, tokens: Tensor, restore: Tensor) -> Tensor:
        """(B, 1 + V, D) encoded tokens and (B, L) where each belongs → (B, L, width), to predict from."""
        embedded: Tensor = self.embed(tokens)
        n_hidden = restore.shape[1] + 1 - embedded.shape[1]
        gaps = self.mask_token.to(embedded.dtype).expand(len(embedded), n_hidden, -1)
        patches = torch.cat([embedded[:, 1:], gaps], dim=1)  # (B, L, width): visible, then hidden
        patches = patches.gather(1, restore[:, :, None].expand(-1, -1, patches.shape[2]))
        x = torch.cat([embedded[:, :1], patches], dim=1) + self.pos_embed  # (B, 1 + L, width)
        for block in self.blocks:
            x = block(x)
        decoded: Tensor = self.norm(x)[:, 1:]
        return decoded


class MaskedAutoencoder(nn.Module):
    """Encoder and decoder of the pretraining stage; the encoder is what the detector keeps.

    >>> import torch
    >>> from mast.models.architecture import MaeConfig
    >>> from mast.models.mae import MaskedAutoencoder
    >>> model = MaskedAutoencoder(MaeConfig.named("tiny"))
    >>> model.config.encoder.depth, model.config.encoder.width
    (4, 192)
    """

    def __init__(self, config: MaeConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config.encoder)
        self.decoder = Decoder(config)

    def forward(
        self,
        spectrograms: Tensor,
        mask: PatchMask | None = None,
        *,
        generator: torch.Generator | None = None,
        latent: Tensor | None = None,
    ) -> Reconstruction:
        """One pretraining step.

        Args:
            spectrograms: (B, 1, T, F), normalised.
            mask: what to hide; drawn if not given.
            generator: source of the draw, on the spectrograms' device.
            latent: (B, L, D) of :func:`latent_targets`, to be predicted as well.

        >>> model = MaskedAutoencoder(MaeConfig.named("tiny"))
        >>> step = model(torch.randn(2, 1, 1024, 128))
        >>> step.patches.shape, step.loss.isfinite().item()
        (torch.Size([2, 512, 256]), True)
        """
        if mask is None:
            mask = self.draw_mask(len(spectrograms), device=spectrograms.device, generator=generator)
        tokens = self.encode(spectrograms, mask.visible)  # (B, 1 + V, D)
        decoded: Tensor = self.decoder(tokens, mask.restore)  # (B, L, width)
        patches: Tensor = self.decoder.predict(decoded)  # (B, L, patch²)
        loss = self.loss(patches, spectrograms, mask.hidden)
        if latent is not None:
            error = masked_reconstruction_loss(self.decoder.predict_latent(decoded), latent, mask.hidden)
            loss = loss + self.config.latent_weight * error
        return Reconstruction(loss, patches, mask)

    def encode(self, spectrograms: Tensor, visible: Tensor) -> Tensor:
        """Encode the visible patches only: (B, 1, T, F), (B, V) → (B, 1 + V, D)."""
        tokens: Tensor = self.encoder(spectrograms, visible)
        return tokens

    def loss(self, patches: Tensor, spectrograms: Tensor, hidden: Tensor) -> Tensor:
        """L_MAE over the hidden patches."""
        targets = reconstruction_targets(
            spectrograms, self.config.encoder.patch, normalise=self.config.normalise_targets
        )
        return masked_reconstruction_loss(patches, targets, hidden)

    def draw_mask(
        self, batch: int, *, device: torch.device | str = "cpu", generator: torch.Generator | None = None
    ) -> PatchMask:
        """A fresh mask for ``batch`` examples, by the configured strategy."""
        time, frequency = self.config.encoder.token_grid
        if self.config.masking == "uniform":
            noise = torch.rand(batch, time * frequency, device=device, generator=generator)
            return uniform_mask(noise, ratio=self.config.mask_ratio)
        if self.config.masking == "blocks":
            regions = max(1, round(visible_count(time * frequency, self.config.mask_ratio) / BLOCK**2))
            centres = torch.rand(batch, regions, 2, device=device, generator=generator)
            ties = torch.rand(batch, time * frequency, device=device, generator=generator)
            return block_mask(centres, ties, grid=(time, frequency), ratio=self.config.mask_ratio)
        return structured_mask(
            torch.rand(batch, time, device=device, generator=generator),
            torch.rand(batch, frequency, device=device, generator=generator),
            time_ratio=self.config.time_mask_ratio,
            frequency_ratio=self.config.frequency_mask_ratio,
        )
