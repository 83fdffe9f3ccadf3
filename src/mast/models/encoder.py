"""The encoder E_φ: a Vision Transformer over 16 × 16 patches of a spectrogram (Sec. "Detector Design")."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from mast.errors import ConfigError
from mast.models.architecture import NORM_EPSILON, EncoderConfig
from mast.models.transformer import Block, PatchEmbed


def sincos_positions(width: int, grid: tuple[int, int]) -> Tensor:
    """Fixed 2-D sine–cosine positions, laid out as in AudioMAE's checkpoints.

    The first half of the width encodes frequency, the second half time; each half is sines then cosines of
    ``position / 10000^(i / (width / 4))``. The class token, in front, is at zero.

    Args:
        width: token width, a multiple of 4.
        grid: tokens in time and in frequency.

    Returns:
        (1, 1 + time · frequency, width), float32, tokens time-major.
    """
    omega = 10_000.0 ** (-torch.arange(width // 4, dtype=torch.float64) / (width / 4))
    time, frequency = torch.meshgrid(
        *(torch.arange(n, dtype=torch.float64) for n in grid), indexing="ij"
    )  # each (time, frequency)
    angles = [axis.reshape(-1, 1) * omega for axis in (frequency, time)]
    tokens = torch.cat([wave(angle) for angle in angles for wave in (torch.sin, torch.cos)], dim=1)  # (L, D)
    class_token = torch.zeros(1, width, dtype=torch.float64)
    return torch.cat([class_token, tokens])[None].float()  # (1, 1 + L, D)


def transformer_blocks(width: int, depth: int, heads: int) -> nn.ModuleList:
    """A stack of blocks, for the encoder and for MAE's decoder."""
    return nn.ModuleList(Block(width, heads) for _ in range(depth))


def initialise_transformer(module: nn.Module) -> None:
    """MAE's initialisation: Xavier for every linear layer, zero biases; use with ``Module.apply``."""
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


class Encoder(nn.Module):
    """ViT over spectrogram patches. Parameter names are those of AudioMAE's public checkpoint."""

    pos_embed: Tensor

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.patch_embed = PatchEmbed(config.patch, config.width)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, config.width))
        # fixed, but stored: weights from elsewhere bring the positions they were trained with
        self.register_buffer("pos_embed", sincos_positions(config.width, config.token_grid))
        self.blocks = transformer_blocks(config.width, config.depth, config.heads)
        self.norm = nn.LayerNorm(config.width, eps=NORM_EPSILON)
        self.apply(initialise_transformer)
        nn.init.xavier_uniform_(self.patch_embed.proj.weight.view(config.width, -1))
        nn.init.normal_(self.cls_token, std=0.02)
        # the fastest form on a CPU, if mast.models.packed has set it: all patches, no gradient
        self.packed: Callable[[Tensor], Tensor] | None = None

    def forward(self, spectrograms: Tensor, visible: Tensor | None = None) -> Tensor:
        """Encode all patches, or only those named.

        Args:
            spectrograms: (B, 1, T, F), normalised.
            visible: (B, V) indices of the tokens to encode; all by default.

        Returns:
            (B, 1 + V, D): class token, then the tokens in the order given.
        """
        check_spectrograms(spectrograms, self.config)
        if self.packed is not None and visible is None:
            return self.packed(spectrograms)
        tokens = self.embed(spectrograms, visible)
        for block in self.blocks:
            tokens = block(tokens)
        encoded: Tensor = self.norm(tokens)
        return encoded

    def embed(self, spectrograms: Tensor, visible: Tensor | None = None) -> Tensor:
        """What the first block sees, (B, 1 + V, D): patches and their positions, the class token in front."""
        tokens: Tensor = self.patch_embed(spectrograms) + self.pos_embed[:, 1:]  # (B, L, D)
        if visible is not None:
            tokens = tokens.gather(1, visible[:, :, None].expand(-1, -1, tokens.shape[2]))  # (B, V, D)
        class_token = (self.cls_token + self.pos_embed[:, :1]).expand(len(tokens), -1, -1)
        return torch.cat([class_token.to(tokens.dtype), tokens], dim=1)

    def feature_map(self, spectrograms: Tensor) -> Tensor:
        """(B, 1, T, F) → the paper's map E, (B, D, T / 16, F / 16); the class token is left out."""
        tokens = self(spectrograms)[:, 1:]  # (B, L, D)
        feature_map: Tensor = tokens.transpose(1, 2).unflatten(
            2, self.config.token_grid
        )  # (B, D, T/16, F/16)
        return feature_map


def check_spectrograms(spectrograms: Tensor, config: EncoderConfig) -> None:
    """Refuse a batch whose shape is not the one the model was built for."""
    expected = (1, config.chunk_frames, config.n_bins)
    if spectrograms.ndim != 4 or tuple(spectrograms.shape[1:]) != expected:
        raise ConfigError(
            f"spectrograms of shape {tuple(spectrograms.shape)} given to a model for (batch, 1, "
            f"{config.chunk_frames} frames, {config.n_bins} bins); use the model's own front end"
        )
