"""Checks that refuse a damaged or malicious model before it takes memory, and before it silently finds nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from mast.errors import MastError
from mast.models.fingerprint import fingerprint_of

_CREATORS = (
    torch.empty,
    torch.zeros,
    torch.ones,
    torch.full,
    torch.rand,
    torch.randn,
    torch.arange,
    torch.linspace,
)
# they never broadcast picture and kernel; YOLO26 runs its layers to find their strides while it is built
_CONVOLUTIONS = (torch.conv1d, torch.conv2d, torch.conv_transpose2d)
# what building a model may need beyond its weights, our choice: a detector of the paper's size needs a thousandth
_SPARE_NUMBERS = 2**24
_SPARE_TENSORS = 1_000
_COPIES = 4  # how often a tensor may be made, the one that is kept included


class SizeGuard(TorchFunctionMode):
    """Build a model that is to be filled with given weights, and no larger one: stops before the memory is taken.

    Args:
        shapes: of the weights.
        source: where they lie, for the message.
    """

    def __init__(self, shapes: Iterable[tuple[int, ...]], source: Path) -> None:
        super().__init__()
        sizes = [math.prod(shape) for shape in shapes]
        self._numbers = _COPIES * sum(sizes) + _SPARE_NUMBERS
        self._tensors = _COPIES * len(sizes) + _SPARE_TENSORS
        self._source = source

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func in _CREATORS:
            self._tensors -= 1
            self._numbers -= _requested_size((*args, kwargs.get("size", ())))
        joined = 0 if func in _CONVOLUTIONS else _broadcast_size(args)
        if min(self._tensors, self._numbers - joined) < 0:
            raise MastError(
                f"{self._source}: its model.json describes a larger model than these weights; the two do not "
                "belong together, copy the model again"
            )
        return func(*args, **kwargs)


def _requested_size(args: Iterable[Any]) -> int:
    """About how many numbers a new tensor has; too many at worst."""
    size = 1
    for arg in args:
        if isinstance(arg, tuple | list):
            size *= _requested_size(arg)
        elif isinstance(arg, int):
            size *= max(arg, 1)
    return size


def _broadcast_size(args: Iterable[Any]) -> int:
    """How many numbers result when tensors are added or multiplied; 0 where their shapes do not match."""
    size = 1
    for sides in zip_longest(*(arg.shape[::-1] for arg in args if isinstance(arg, Tensor)), fillvalue=1):
        if len(set(sides) - {1}) > 1:
            return 0
        size *= max(sides)
    return size


def fingerprint(weights: Mapping[str, Tensor]) -> str:
    """SHA-256 of names, types, shapes and numbers."""
    return fingerprint_of(
        (name, str(tensor.dtype), tuple(tensor.shape), tensor.flatten().view(torch.uint8).numpy().data)
        for name, tensor in sorted(weights.items())
    )


def refuse_changed(weights: Mapping[str, Tensor], expected: str, source: Path) -> None:
    """Refuse weights that are not those that were written."""
    found = fingerprint(weights)
    if found != expected:
        raise MastError(
            f"{source}: the weights have changed since they were written (fingerprint {found[:12]}, expected "
            f"{expected[:12] or 'none'}); the file is damaged, copy it again"
        )


def refuse_invalid(weights: Mapping[Any, Any], source: Path) -> None:
    """Refuse weights that are not plain tensors, or hold a number that is not finite."""
    for name, tensor in weights.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise MastError(f"{source}: holds {type(tensor).__name__} under {name!r}; expected named tensors")
        plain = tensor.layout == torch.strided and tensor.device.type == "cpu" and not tensor.is_quantized
        # one stored number can stand for a million million
        if not plain or tensor.is_complex() or tensor.nbytes > tensor.untyped_storage().nbytes():
            raise MastError(f"{source}: tensor {name} is not a plain array of real numbers")
        # a sum is five times faster than a look at each number, which is only needed if the sum is not finite
        if tensor.is_floating_point() and not tensor.sum(dtype=torch.float32).isfinite():
            wrong = int((~tensor.isfinite()).sum())
            if wrong:
                raise MastError(
                    f"{source}: tensor {name} holds {wrong:,} of {tensor.numel():,} numbers that are not finite; the "
                    "model is damaged, or its training failed: copy it again, or train it again"
                )
