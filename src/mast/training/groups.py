"""Which parameters train, and how fast: component-wise learning rates, frozen and unfrozen blocks.

MAST's detector has an ``encoder`` (with ``blocks``), an ``adapter`` and the rest (pyramid, head, projection); a
baseline has parameters that may come pretrained, by their prefixes, and the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from mast.training.schedule import Unfreezing


def parameter_groups(
    named: Iterator[tuple[str, nn.Parameter]],
    *,
    lr: float,
    weight_decay: float,
    multipliers: dict[str, float],
) -> list[dict[str, Any]]:
    """AdamW groups by the longest prefix in ``multipliers`` ("" matches all) and by decay.

    Vectors (biases, norms, scales) are not decayed, as masked autoencoders are commonly trained. Each
    group carries ``base_lr``; the schedule multiplies it.
    """
    groups: dict[tuple[str, bool], dict[str, Any]] = {}
    for name, parameter in named:
        prefix = max((p for p in multipliers if name.startswith(p)), key=len)
        decayed = parameter.ndim > 1
        group = groups.setdefault(
            (prefix, decayed),
            {
                "params": [],
                "name": f"{prefix or 'rest'}{'' if decayed else ' (no decay)'}",
                "base_lr": lr * multipliers[prefix],
                "lr": lr * multipliers[prefix],
                "weight_decay": weight_decay if decayed else 0.0,
            },
        )
        group["params"].append(parameter)
    return list(groups.values())


def encoder_multipliers(depth: int, *, backbone: float, unfreezing: Unfreezing | None) -> dict[str, float]:
    """Multipliers for the encoder: its blocks at the unfreezing rate where there is one, the rest at ``backbone``.

    Note 10 of our reading: the row "backbone multiplier" is for what trains outside the gradually
    unfrozen blocks.
    """
    multipliers = {"encoder.": backbone}
    if unfreezing is not None:
        multipliers |= {f"encoder.blocks.{i}.": unfreezing.lr_multiplier for i in range(depth)}
    return multipliers


def baseline_multipliers(
    pretrained_prefixes: tuple[str, ...], *, backbone: float, head: float
) -> dict[str, float]:
    """Multipliers for a baseline: what comes pretrained at ``backbone``, the rest at ``head``."""
    return {"": head, **dict.fromkeys(pretrained_prefixes, backbone)}


def set_trainable(model: nn.Module, *, depth: int, top_blocks: int, whole_encoder: bool) -> bool:
    """Freeze the encoder below its top ``top_blocks`` blocks; returns whether anything changed.

    With ``whole_encoder`` everything trains, patch embedding included. Otherwise the final norm trains
    with the first unfrozen block and the patch embedding stays frozen.
    """
    changed = False
    for name, parameter in model.named_parameters():
        wanted = True
        if name.startswith("encoder.") and not whole_encoder:
            wanted = top_blocks > 0 and name.startswith(
                ("encoder.norm.", *(f"encoder.blocks.{i}." for i in range(depth - top_blocks, depth)))
            )
        changed |= parameter.requires_grad != wanted
        parameter.requires_grad_(wanted)
    return changed
