"""Which patches the masked autoencoder does not see (Table "Masked Audio pretraining hyperparameters").

Two ways, docs/paper_notes.md 7: hide patches uniformly at random, or hide whole columns of time and whole rows of
frequency. A third, beyond the paper, leaves a few regions visible and hides everything between them, so that a call is
seen or hidden as a whole. All hide the *same number* of patches in every example, so that a batch stays one tensor.
Randomness comes in as a tensor of noise: same noise, same mask.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class PatchMask(NamedTuple):
    """A mask over L tokens, of which V stay visible."""

    visible: Tensor  # (B, V) indices of the visible tokens, ascending
    restore: Tensor  # (B, L) place of each token in the sequence "visible tokens, then hidden ones"
    hidden: Tensor  # (B, L) bool, True where the decoder must reconstruct


def uniform_mask(noise: Tensor, *, ratio: float = 0.75) -> PatchMask:
    """Hide patches at random.

    Args:
        noise: (B, L) uniform noise; each example's smallest values stay visible.
        ratio: share hidden; ``int(L · (1 − ratio))`` patches stay visible, 128 of 512.
    """
    n_visible = visible_count(noise.shape[1], ratio)
    return _mask(_rank(noise) >= n_visible, n_visible)


def structured_mask(
    time_noise: Tensor, frequency_noise: Tensor, *, time_ratio: float = 0.6, frequency_ratio: float = 0.3
) -> PatchMask:
    """Hide whole time columns and whole frequency rows, as AudioMAE does.

    ``int(n · (1 − ratio))`` columns and rows stay, whatever the draw: on 64 × 8 tokens 25 columns × 5 rows,
    that is 125 of 512 patches visible and 75.6 % hidden. (Hiding each column and row independently with
    these probabilities would hide 72 % on average, but a different number in every example.)

    Args:
        time_noise: (B, time tokens) uniform noise.
        frequency_noise: (B, frequency tokens) uniform noise.
        time_ratio: share of the time columns hidden.
        frequency_ratio: share of the frequency rows hidden.
    """
    columns = visible_count(time_noise.shape[1], time_ratio)
    rows = visible_count(frequency_noise.shape[1], frequency_ratio)
    hidden_columns = _rank(time_noise) >= columns  # (B, T/16)
    hidden_rows = _rank(frequency_noise) >= rows  # (B, F/16)
    hidden = hidden_columns[:, :, None] | hidden_rows[:, None, :]  # (B, T/16, F/16)
    return _mask(hidden.flatten(1), columns * rows)


def block_mask(centres: Tensor, ties: Tensor, *, grid: tuple[int, int], ratio: float = 0.75) -> PatchMask:
    """Leave square regions visible, as EAT does: the patches nearest to a few centres.

    Args:
        centres: (B, regions, 2) uniform noise: where each region lies in time and in frequency.
        ties: (B, L) uniform noise: which of equally near patches stay visible.
        grid: tokens in time and in frequency.
        ratio: share hidden, as in :func:`uniform_mask`.
    """
    axes = [torch.arange(n, device=centres.device) + 0.5 for n in grid]
    tokens = torch.cartesian_prod(*axes)  # (L, 2), time-major
    places = centres * torch.tensor(grid, device=centres.device)
    apart = (
        (tokens[None, :, None] - places[:, None]).abs().amax(dim=3)
    )  # (B, L, regions): sides, not corners, count
    return uniform_mask(apart.amin(dim=2).floor() + ties, ratio=ratio)


def visible_count(n: int, ratio: float) -> int:
    """How many of ``n`` stay visible, at least one; 1e-6 keeps 0.3 · 10 from losing one to rounding."""
    return max(1, int(n * (1.0 - ratio) + 1e-6))


def _rank(noise: Tensor) -> Tensor:
    return noise.argsort(dim=1).argsort(dim=1)


def _mask(hidden: Tensor, n_visible: int) -> PatchMask:
    order = hidden.to(torch.uint8).argsort(dim=1, stable=True)  # visible first, each part in its own order
    return PatchMask(order[:, :n_visible], order.argsort(dim=1), hidden)
