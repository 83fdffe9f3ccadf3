"""Finding a device and what it can do, and moving small tensors to a GPU without making the CPU wait."""

from __future__ import annotations

import torch
from torch import Tensor

from mast.errors import ConfigError, first_line


def find_device(name: str | torch.device | None = None) -> torch.device:
    """The device of that name, if it can be used here; without a name, the GPU if there is one.

    Raises:
        ConfigError: the device cannot be used.
    """
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"device {name}: no such device; expected cpu, cuda or cuda:1") from None
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = first_line(error).partition(". ")[0]  # further sentences advise programmers
        raise ConfigError(
            f"device {name}: cannot be used here ({reason}); leave the device out, or give cpu"
        ) from None
    return device


def gpu_of_worker(number: int) -> str | None:
    """The GPU for one of several workers on this machine, assigned in turn; None without a GPU."""
    return f"cuda:{number % torch.cuda.device_count()}" if torch.cuda.is_available() else None


def to_device(tensor: Tensor, device: torch.device | str) -> Tensor:
    """A CPU tensor on ``device``; the CPU does not wait.

    A copy from ordinary memory may wait until the GPU has finished all queued work, in training the whole previous
    step. A copy from pinned memory is queued like any other work; pinned blocks are kept and reused.
    Compiled code cannot pin memory: there, a small constant becomes part of the graph.
    """
    target = torch.device(device)
    if torch.compiler.is_compiling():
        return tensor.to(target)
    if target.type == "cuda" and tensor.device.type == "cpu" and not tensor.is_pinned():
        tensor = tensor.pin_memory()
    return tensor.to(target, non_blocking=True)


def has_bfloat16(device: torch.device) -> bool:
    """Whether the hardware multiplies bfloat16 itself. Elsewhere it is emulated, slower than float32, or fails."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    # older releases of torch lack these functions: float32 always works
    asks = (
        getattr(torch.cpu, name, None) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    )
    return device.type == "cpu" and any(bool(ask()) for ask in asks if ask is not None)
