"""The layers of a Vision Transformer as MAE has them (Sec. "Detector Design"): pre-norm, MLP ratio 4, biased qkv.

The same numbers, parameter names and order of random draws as timm's, with which the tests compare. Written out
because timm imports its whole collection of models first: half a second before the first recording is opened.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from mast.models.architecture import NORM_EPSILON

_MLP_RATIO = 4


class PatchEmbed(nn.Module):
    """Spectrogram → one token per patch, time-major.

    The weights are those of a convolution, as everywhere; patches do not overlap, so it is one product. As a
    convolution of a single channel it was a twentieth of a whole search on a GPU.
    """

    def __init__(self, patch: int, width: int) -> None:
        super().__init__()
        self.patch = patch
        self.proj = nn.Conv2d(1, width, patch, stride=patch)

    def forward(self, spectrograms: Tensor) -> Tensor:
        """(B, 1, T, F) → (B, L, D)."""
        b, _, frames, bins = spectrograms.shape
        p = self.patch
        cells = spectrograms.reshape(b, frames // p, p, bins // p, p)
        patches = cells.transpose(2, 3).reshape(b, -1, p * p)  # (B, L, 16 · 16)
        return F.linear(patches, self.proj.weight.flatten(1), self.proj.bias)


class Attention(nn.Module):
    """Every token looks at every token, with several heads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, L, D) → the same."""
        b, length, width = tokens.shape
        qkv = self.qkv(tokens).reshape(b, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # each (B, heads, L, D / heads)
        seen = F.scaled_dot_product_attention(q, k, v)
        mixed: Tensor = self.proj(seen.transpose(1, 2).reshape(b, length, width))
        return mixed


class Mlp(nn.Module):
    """Two linear layers on each token by itself."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, _MLP_RATIO * width)
        self.fc2 = nn.Linear(_MLP_RATIO * width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, L, D) → the same."""
        changed: Tensor = self.fc2(F.gelu(self.fc1(tokens)))
        return changed


class Block(nn.Module):
    """x + attention, then x + MLP, each of the normalised tokens."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=NORM_EPSILON)
        self.attn = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width, eps=NORM_EPSILON)
        self.mlp = Mlp(width)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, L, D) → the same."""
        tokens = tokens + self.attn(self.norm1(tokens))
        changed: Tensor = tokens + self.mlp(self.norm2(tokens))
        return changed
