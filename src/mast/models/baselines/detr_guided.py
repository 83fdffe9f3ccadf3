"""DETR's slots as places, so that it learns from scratch in a thousand steps (``variant = "guided"``).

In plain DETR a slot is a learned vector, and each slot has to find out for itself where in the picture to look.
Here each slot is a box from the start, and the decoder layers improve it one after another:

1. **Start boxes** (DAB-DETR, Liu et al. 2022): learned, spread evenly over the chunk at first. What a slot adds to its
   queries and keys is made from its present box; no slot has a vector of its own, so what one learns, all know.
2. **A look at the box** (SMCA, Gao et al. 2021): cross-attention gets a Gaussian bias around the present box. Each head
   has its own: the centre, one of the four edges, the whole box, its surroundings, everything. SMCA learns where its
   heads look; ours are fixed (our choice: one thing less to learn).
3. **Refinement** (Deformable DETR, Zhu et al. 2021): each layer shifts and stretches the box of the layer before, which
   gets no gradient from this. Shifts are shares of the box's own sides, as in Faster R-CNN (our choice).
4. **Groups** (Group DETR, Chen et al. 2023): in training, several sets of slots that do not see each other are matched
   each on its own, so a true box teaches several slots. Detection uses the first set alone.

The layers themselves (attention, feed-forward, normalisation) are transformers' DETR, unchanged.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mast.device import to_device

_HEADS = (  # where a head looks: centre in half box sides (time, frequency), and 1 / spread in the same; cycled
    (0.0, 0.0, 2.0),  # the centre
    (-1.0, 0.0, 2.0),  # the beginning
    (1.0, 0.0, 2.0),  # the end
    (0.0, -1.0, 2.0),  # the low edge
    (0.0, 1.0, 2.0),  # the high edge
    (0.0, 0.0, 1.0),  # the whole
    (0.0, 0.0, 0.5),  # around
    (0.0, 0.0, 0.0),  # everywhere
)
# the slowest wave of a position's features is this many times longer than the fastest, 2π tokens
_LONGEST = 100.0
_LOG_STRETCH = 2.0  # a layer makes a side at most e² = 7 times longer or shorter
_MIN_SIDE = 1e-3  # of a box handed on, as a share of the chunk


class SlotPredictions(NamedTuple):
    """What the slots say, after each decoder layer that has a loss; the last row is the answer."""

    logits: Tensor  # (N, B, Q): log-odds that the slot holds a box
    boxes: Tensor  # (N, B, Q, 4): cx, cy, w, h as shares of the chunk


class Guide(nn.Module):
    """Start boxes of the slots, and what their places add to attention.

    Args:
        queries: slots of one group.
        groups: sets of slots in training.
        width: of the transformer.
        heads: of the decoder's cross-attention.
    """

    def __init__(self, *, queries: int, groups: int, width: int, heads: int) -> None:
        super().__init__()
        self.queries, self.groups, self.heads, self.width = queries, groups, heads, width
        self.start = nn.Parameter(spread_boxes(queries, groups).logit())  # (G · Q, 4)
        first, second = nn.Linear(2 * width, width), nn.Linear(width, width)
        for linear in (first, second):  # as in the transformer: PyTorch's default would leave places faint
            nn.init.xavier_uniform_(linear.weight)
        self.place = nn.Sequential(first, nn.ReLU(), second)

    def forward(self, network: Any, pictures: Tensor, *, every_layer: bool) -> SlotPredictions:
        """Run transformers' DETR with guided slots.

        Args:
            network: ``DetrForObjectDetection``, with one logit a slot and box changes instead of boxes.
            pictures: (B, 1, H, W).
            every_layer: predictions of all decoder layers, not only of the last.

        Returns:
            Predictions of all groups in training, (N, B, G · Q, …); otherwise of the first, (N, B, Q, …).
        """
        model, b = network.model, len(pictures)
        seen = torch.ones_like(pictures[:, 0])
        features = model.input_projection(model.backbone(pictures, seen)[-1][0])  # (B, D, h, w)
        grid = (features.shape[3], features.shape[2])  # tokens along time, along frequency
        memory = features.flatten(2).transpose(1, 2)  # (B, L, D), time fastest
        positions = token_features(grid, self.width, pictures.device)[None].expand(b, -1, -1)
        for layer in model.encoder.layers:
            memory = layer(memory, None, spatial_position_embeddings=positions)

        groups = self.groups if self.training else 1
        boxes = self.start[: groups * self.queries].sigmoid().expand(b, -1, -1)  # (B, S, 4)
        apart = _group_bias(groups, self.queries, pictures.device)
        states: Tensor | None = None  # (B, S, D): at first what the places say, later what was read there
        logits, found = [], []
        for layer in model.decoder.layers:
            place = self.place(box_features(boxes, grid, self.width))
            look = attention_bias(boxes.detach(), grid, self.heads)  # (B, heads, S, L)
            states = layer(
                place if states is None else states,
                apart,
                positions,
                place,
                memory,
                encoder_attention_mask=look,
            )
            slots = model.decoder.layernorm(states).float()
            # a share of the chunk in bfloat16 is off by frames
            with torch.autocast(slots.device.type, enabled=False):
                logits.append(network.class_labels_classifier(slots)[..., 0])
                found.append(change_boxes(boxes, network.bbox_predictor(slots)))
            boxes = torch.cat(
                [found[-1][..., :2].clamp(0, 1), found[-1][..., 2:].clamp(_MIN_SIDE, 1)], dim=-1
            ).detach()
        if not every_layer:
            logits, found = logits[-1:], found[-1:]
        return SlotPredictions(torch.stack(logits), torch.stack(found))


def spread_boxes(queries: int, groups: int) -> Tensor:
    """(G · Q, 4) boxes spread evenly over the chunk, whatever their number; each a Qth of its area.

    Centres are the R2 sequence (Roberts 2018): every stretch of it, and so every group, is spread evenly too.
    """
    step = torch.tensor([0.7548776662466927, 0.5698402909980532], dtype=torch.float64)
    centres = (0.5 + torch.arange(1, groups * queries + 1)[:, None] * step) % 1.0
    side = min(queries**-0.5, 0.5)
    return torch.cat([centres, torch.full_like(centres, side)], dim=1).clamp(0.01, 0.99).float()


def change_boxes(boxes: Tensor, changes: Tensor) -> Tensor:
    """Shift (…, 4) boxes by shares of their sides, and stretch them by exponents: (…, 4)."""
    sides = boxes[..., 2:]
    stretch = changes[..., 2:].clamp(-_LOG_STRETCH, _LOG_STRETCH).exp()
    return torch.cat([boxes[..., :2] + changes[..., :2] * sides, sides * stretch], dim=-1)


def sinusoids(values: Tensor, n: int) -> Tensor:
    """(…) numbers in tokens → (…, n) sines and cosines of rising wavelength."""
    index = torch.arange(n // 2, device=values.device, dtype=torch.float32)
    angles = values[..., None] * _LONGEST ** (-index / (n // 2))
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


def token_features(grid: tuple[int, int], width: int, device: torch.device) -> Tensor:
    """(L, D) features of the tokens' positions: half of the width for time, half for frequency."""
    time, frequency = (sinusoids(torch.arange(n, device=device) + 0.5, width // 2) for n in grid)
    n_time, n_frequency = grid
    both = (
        time[None].expand(n_frequency, -1, -1),
        frequency[:, None].expand(-1, n_time, -1),
    )
    return torch.cat(both, dim=-1).flatten(0, 1)


def box_features(boxes: Tensor, grid: tuple[int, int], width: int) -> Tensor:
    """(B, S, 4) boxes → (B, S, 2 D) features of centre and sides."""
    tokens = boxes * to_device(torch.tensor([*grid, *grid], dtype=boxes.dtype), boxes.device)
    return sinusoids(tokens, width // 2).flatten(-2)


def attention_bias(boxes: Tensor, grid: tuple[int, int], heads: int) -> Tensor:
    """The bias of each head's attention around the slots' boxes: (B, S, 4) → (B, heads, S, L).

    A box smaller than two tokens is looked at as if it had that size, so that heads for its edges see their neighbours.
    """
    scale = to_device(torch.tensor(grid, dtype=boxes.dtype), boxes.device)
    pattern = to_device(
        torch.tensor([_HEADS[i % len(_HEADS)] for i in range(heads)]), boxes.device
    )  # (heads, 3)
    centres, half = boxes[..., :2] * scale, (boxes[..., 2:] * scale / 2).clamp(min=1)  # (B, S, 2)
    centres = centres[:, None] + half[:, None] * pattern[:, None, :2]  # (B, heads, S, 2)
    narrowness = pattern[:, None, 2:] / half[:, None]  # (B, heads, S, 2)
    along = [
        -0.5
        * (
            (torch.arange(n, device=boxes.device) + 0.5 - centres[..., i, None]) * narrowness[..., i, None]
        ).square()
        for i, n in enumerate(grid)
    ]  # (B, heads, S, tokens along time), (… along frequency)
    return (along[0][..., None, :] + along[1][..., :, None]).flatten(-2)


def _group_bias(groups: int, queries: int, device: torch.device) -> Tensor | None:
    """(1, 1, S, S) bias that hides other groups' slots, none where there is one group."""
    if groups == 1:
        return None
    group = torch.arange(groups * queries, device=device) // queries
    return torch.where(group[:, None] == group, 0.0, -torch.inf)[None, None]
