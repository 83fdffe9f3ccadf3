"""How spectrograms are normalised before a model sees them; every model card holds it.

The paper (App. "Data Processing") normalises ``(S − μ) / (σ + ε)`` with one μ and one σ for a whole dataset
(:mod:`mast.features.statistics` gathers them). Beyond the paper, ``levelled`` first subtracts each bin's own quiet
level, chunk by chunk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

if TYPE_CHECKING:  # arrays are normalised without torch
    from torch import Tensor

    ArrayT = TypeVar("ArrayT", Tensor, NDArray[Any])

_QUIET = 0.25  # our choice: a bin's level in a chunk's quietest quarter; more would also subtract a long song
_QUIET_STRIDE = 4  # frames skipped when looking for it: a quarter of them show it as well


class Normalisation(BaseModel):
    """``(S − mean) / std``, the same for every cell.

    AudioMAE's published weights were trained with twice the standard deviation in the denominator: to use them, set
    ``std = 2 × 4.5689974`` (and ``mean = -4.2677393``).

    >>> Normalisation(mean=-4.0, std=2.0).apply(np.array([0.0, -4.0])).tolist()
    [2.0, 0.0]
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    mean: float = Field(ge=-1e6, le=1e6, description="μ over the dataset, natural logarithm of power")
    std: float = Field(ge=1e-6, le=1e6, description="σ + ε over the dataset")
    levelled: bool = Field(
        default=False,
        description="first subtract each bin's quiet level, which removes a recorder's gain and hum",
    )

    @model_validator(mode="before")
    @classmethod
    def _with_epsilon(cls, fields: Any) -> Any:
        """The statistics of earlier runs hold ε separately from σ."""
        if not isinstance(fields, dict) or "epsilon" not in fields:
            return fields
        rest = {name: value for name, value in fields.items() if name != "epsilon"}
        return rest | {"std": fields["std"] + fields["epsilon"]}

    def apply(self, features: ArrayT) -> ArrayT:
        """Normalise a tensor or array of any shape; (…, T, F) chunks where ``levelled``."""
        if self.levelled:
            features = features - quiet_level(features)
        return (features - self.mean) / self.std


def quiet_level(features: ArrayT) -> ArrayT:
    """The level that each bin of a chunk stays below a quarter of the time: (…, T, F) raw log-mel → (…, 1, F).

    Frames of padding, where all bins have one and the same value, do not count; a chunk of nothing else gives that
    value.
    """
    if isinstance(features, np.ndarray):
        return _level_of_array(features)
    return _level_of_tensor(features)


def _level_of_array(features: NDArray[Any]) -> NDArray[Any]:
    some = features[..., ::_QUIET_STRIDE, :]
    sound = some.max(axis=-1, keepdims=True) > some.min(axis=-1, keepdims=True)  # (…, T', 1)
    by_bin = np.ascontiguousarray(np.where(sound, some, some.dtype.type(np.inf)).swapaxes(-1, -2))
    by_bin.sort(axis=-1)  # padding comes last
    place = ((sound.sum(axis=-2, keepdims=True) - 1).clip(0) * _QUIET).astype(np.int64)  # (…, 1, 1)
    level = np.take_along_axis(by_bin, np.broadcast_to(place, (*by_bin.shape[:-1], 1)), axis=-1)
    level = level.swapaxes(-1, -2)  # (…, 1, F)
    return np.where(np.isfinite(level), level, some[..., :1, :])


def _level_of_tensor(features: Tensor) -> Tensor:
    import torch

    traced = torch.compiler.is_compiling() or torch.jit.is_tracing()  # type: ignore[attr-defined,no-untyped-call]
    if (
        features.device.type == "cpu"
        and features.dtype == torch.float32
        and not (traced or features.requires_grad)
    ):
        # NumPy sorts in vectors, more than ten times as fast as torch on a CPU
        return torch.from_numpy(_level_of_array(features.numpy()))
    some = features[..., ::_QUIET_STRIDE, :]
    sound = some.amax(dim=-1, keepdim=True) > some.amin(dim=-1, keepdim=True)  # (…, T', 1)
    by_bin = some.where(sound, torch.inf).transpose(-1, -2)
    last = by_bin.sort(dim=-1).values.transpose(-1, -2)  # padding comes last
    place = ((sound.sum(dim=-2, keepdim=True) - 1).clamp(min=0) * _QUIET).long()  # (…, 1, 1)
    level = last.gather(-2, place.expand(*place.shape[:-1], features.shape[-1]))
    return level.where(level.isfinite(), some[..., :1, :])
