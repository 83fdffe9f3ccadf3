"""The encoder as a CPU with bfloat16 products runs it fastest: the same numbers, to that type's rounding.

oneDNN keeps weights in blocks of its own. ``nn.Linear`` hands them over as they are, so that every call arranges them
again, and adds the bias in a pass of its own; together that costs as much as the product. Here they are arranged once.
Sums along the residual path stay in float32 and are made in place, because a core mostly waits for memory.

The operations are torch's own but not part of its promise (its compiler uses them). Where one is missing or gives
other results than the plain layer, :func:`pack_encoder` leaves the encoder as it was.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mast.models.encoder import Encoder
from mast.models.map_norm import MapNorm
from mast.models.transformer import Block

_TRIAL_ROWS = 8
_SMALL_MAP = 1_024  # cells; as in torch's kernel


class PackedLinear:
    """A linear layer in bfloat16 with its weights arranged once.

    Args:
        weight: (outputs, inputs).
        bias: (outputs,).
        rows: how many tokens it usually gets at once; any number works.
    """

    def __init__(self, weight: Tensor, bias: Tensor, rows: int) -> None:
        plain = weight.detach().to(torch.bfloat16).contiguous()
        self._weight: Tensor = torch.ops.mkldnn._reorder_linear_weight(plain, rows)
        self._bias = bias.detach().to(torch.bfloat16)

    @classmethod
    def of(cls, layer: nn.Linear, rows: int) -> PackedLinear:
        """The packed form of a layer with a bias."""
        return cls(layer.weight, layer.bias, rows)

    def __call__(self, tokens: Tensor) -> Tensor:
        """(…, inputs) bfloat16 → (…, outputs) bfloat16."""
        alone: tuple[str, list[float], str] = ("none", [], "")  # nothing done to the sums
        result: Tensor = torch.ops.mkldnn._linear_pointwise(tokens, self._weight, self._bias, *alone)
        return result


class PackedBlock:
    """:class:`mast.models.transformer.Block` with packed layers."""

    def __init__(self, block: Block, rows: int) -> None:
        self._norm1, self._norm2, self._heads = block.norm1, block.norm2, block.attn.heads
        self._qkv = PackedLinear.of(block.attn.qkv, rows)
        self._proj = PackedLinear.of(block.attn.proj, rows)
        self._fc1 = PackedLinear.of(block.mlp.fc1, rows)
        self._fc2 = PackedLinear.of(block.mlp.fc2, rows)

    def __call__(self, tokens: Tensor) -> Tensor:
        """(B, L, D) float32 → the same, in the same place."""
        b, length, width = tokens.shape
        qkv = self._qkv(self._norm1(tokens).to(torch.bfloat16)).view(b, length, 3, self._heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # each (B, heads, L, D / heads)
        seen = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, length, width)
        tokens += self._proj(seen)
        tokens += self._fc2(F.gelu(self._fc1(self._norm2(tokens).to(torch.bfloat16))))
        return tokens


class PackedEncoder:
    """:class:`mast.models.encoder.Encoder` on all patches, with packed layers. Carries no gradient.

    Args:
        encoder: later changes to its weights do not reach the packed ones.
        batch: how many spectrograms it usually gets at once; any number works.
    """

    def __init__(self, encoder: Encoder, batch: int) -> None:
        config = encoder.config
        self._patch, self._grid = config.patch, config.token_grid
        n_tokens = self._grid[0] * self._grid[1]
        proj = encoder.patch_embed.proj
        assert proj.bias is not None
        self._embed = PackedLinear(proj.weight.flatten(1), proj.bias, batch * n_tokens)
        positions = encoder.pos_embed.detach().float()
        self._positions = positions[:, 1:]  # (1, L, D)
        self._first = encoder.cls_token.detach().float() + positions[:, :1]  # (1, 1, D)
        blocks = [block for block in encoder.blocks if isinstance(block, Block)]
        assert len(blocks) == len(encoder.blocks)
        self._blocks = [PackedBlock(block, batch * (1 + n_tokens)) for block in blocks]
        self._norm = encoder.norm

    @torch.no_grad()
    def __call__(self, spectrograms: Tensor) -> Tensor:
        """(B, 1, T, F) → (B, 1 + L, D) float32: class token, then the tokens."""
        b, (n_time, n_frequency), side = len(spectrograms), self._grid, self._patch
        cells = spectrograms.reshape(b, n_time, side, n_frequency, side).transpose(2, 3)
        patches = cells.to(torch.bfloat16, memory_format=torch.contiguous_format)  # one pass: cast and order
        patches = patches.view(b, n_time * n_frequency, side * side)  # (B, L, 256)
        tokens = torch.empty(b, 1 + n_time * n_frequency, self._positions.shape[2])  # (B, 1 + L, D)
        tokens[:, :1] = self._first
        torch.add(self._positions, self._embed(patches), out=tokens[:, 1:])
        for block in self._blocks:
            tokens = block(tokens)
        encoded: Tensor = self._norm(tokens)
        return encoded


def pack_encoder(encoder: Encoder, batch: int) -> bool:
    """Let an encoder run packed from now on, in bfloat16 and without gradients; its weights are final.

    Args:
        encoder: on a CPU.
        batch: how many spectrograms it usually gets at once.

    Returns:
        Whether it does; nothing changes if this torch or this CPU cannot, or gives other results.
    """
    encoder.packed = _packed(encoder, batch)
    return encoder.packed is not None


def _packed(encoder: Encoder, batch: int) -> PackedEncoder | None:
    if not _is_supported():
        return None
    try:
        return PackedEncoder(encoder, batch)
    except (AssertionError, AttributeError, NotImplementedError, RuntimeError):
        return None


def arrange_convolutions(model: nn.Module) -> None:
    """Let convolutions and group norms find their weights and maps as oneDNN wants them, channels last.

    Convolutions would otherwise bring their weights into this order at every call; the numbers are the same.
    """
    for parent in list(model.modules()):
        if isinstance(parent, nn.Conv2d):
            parent.weight.data = parent.weight.data.contiguous(memory_format=torch.channels_last)
        for name, child in parent.named_children():
            if type(child) is MapNorm:
                setattr(parent, name, SmallMapGroupNorm(child))


class SmallMapGroupNorm(nn.Module):
    """Group norm that is fast on small maps too.

    With channels last, torch reads maps of fewer than 1024 cells in strides, which is five times slower than with
    channels first; converting the map there and back is quicker.
    """

    def __init__(self, norm: nn.GroupNorm) -> None:
        super().__init__()
        self.groups, self.eps = norm.num_groups, norm.eps
        self.weight, self.bias = norm.weight, norm.bias

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, T', F') → the same."""
        if x.shape[2] * x.shape[3] >= _SMALL_MAP:
            return F.group_norm(x, self.groups, self.weight, self.bias, self.eps)
        y = F.group_norm(x.contiguous(), self.groups, self.weight, self.bias, self.eps)
        return y.contiguous(memory_format=torch.channels_last)


def _is_supported() -> bool:
    """Whether oneDNN takes bfloat16 on this CPU, and a small packed layer gives what a plain one gives, to rounding."""
    try:
        if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            return False
    except AttributeError:  # torch without oneDNN
        return False
    generator = torch.Generator().manual_seed(0)
    weight, tokens = (torch.randn(n, 32, generator=generator).bfloat16() for n in (48, _TRIAL_ROWS))
    bias = torch.randn(48, generator=generator).bfloat16()
    plain = F.linear(tokens.float(), weight.float(), bias.float())
    try:
        packed = PackedLinear(weight, bias, _TRIAL_ROWS)(tokens)
    except (AttributeError, NotImplementedError, RuntimeError):  # AttributeError: no such operation
        return False
    return packed.dtype == torch.bfloat16 and torch.allclose(packed.float(), plain, rtol=0.01, atol=0.01)
