"""What the machine offers: device, precision, processes, workers, compilation."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import nn

from mast.device import has_bfloat16
from mast.errors import ConfigError
from mast.loaded_model import LoadedModel, Precision
from mast.training.recipe import Recipe

_PRECISION = {"fp32": "no", "bf16": "bf16", "fp16": "fp16"}
# in accelerate's words
_COMPUTED: dict[str, Precision] = {"no": "float32", "bf16": "bfloat16", "fp16": "float16"}


@dataclass(frozen=True)
class Machine:
    """Where a run happens."""

    accelerator: Accelerator
    workers: int  # decoding processes
    compiled: bool

    @property
    def device(self) -> torch.device:
        """The device of this process."""
        device: torch.device = self.accelerator.device
        return device

    @property
    def precision(self) -> Precision:
        """What products are computed in."""
        return _COMPUTED[self.accelerator.mixed_precision]

    @property
    def is_main(self) -> bool:
        """Whether this process writes files."""
        return bool(self.accelerator.is_main_process)

    def load(self, folder: Path, *, band_hz: float | None = None) -> LoadedModel:
        """Read a model onto this device; see :meth:`mast.loaded_model.LoadedModel.load`."""
        return LoadedModel.load(folder, device=self.device, band_hz=band_hz, precision=self.precision)

    def eval_batch(self, train_batch: int) -> int:
        """Chunks at a time when only measuring: more on a GPU, where no gradients are kept."""
        return 64 if self.device.type == "cuda" else min(8, train_batch)

    def compile(self, model: nn.Module, *, graphs: bool = False) -> None:
        """Compile the model's forward pass in place, where the recipe and the machine allow it.

        ``graphs`` replays whole passes as CUDA graphs. Pretraining gains by it (1,185 → 1,555 chunks/s at batch
        64 on an H200, where starting the kernels one by one takes longer than running them).
        """
        if self.device.type == "cuda":
            # the layout that convolutions need there; otherwise each would convert its input and back
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if self.compiled:
            torch.set_float32_matmul_precision("high")
            use_graphs = graphs and self.device.type == "cuda"
            # one shape throughout: the training batch
            model.compile(dynamic=False, mode="reduce-overhead" if use_graphs else "default")


def _precision(recipe: Recipe) -> str:
    """The recipe's precision, or the fastest that this machine's hardware has; never one that it would emulate."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    on_gpu, bfloat16 = device.type == "cuda", has_bfloat16(device)
    if recipe.precision == "auto":
        return "bf16" if on_gpu and bfloat16 else "fp32"
    if (recipe.precision == "bf16" and not bfloat16) or (recipe.precision == "fp16" and not on_gpu):
        raise ConfigError(
            f"precision {recipe.precision}: this {'GPU' if on_gpu else 'CPU'} cannot compute in it; "
            "set precision=auto, or precision=fp32, which works everywhere"
        )
    return recipe.precision


def prepare_machine(recipe: Recipe, accelerator: Accelerator | None = None) -> Machine:
    """Decide what the recipe leaves to the machine."""
    if accelerator is None:
        accelerator = Accelerator(mixed_precision=_PRECISION[_precision(recipe)])
    on_gpu = accelerator.device.type == "cuda"
    processes = max(1, accelerator.num_processes)
    cores = os.cpu_count() or 1
    # a CPU that trains has no core to spare for decoding; a GPU starves without several
    workers = (
        recipe.workers
        if recipe.workers is not None
        else (min(12, max(1, cores // processes - 1)) if on_gpu else 0)
    )
    if on_gpu and workers > 0:
        # the decoding processes have the cores: a small operation that waits for sixteen threads among them takes
        # milliseconds (that way, augmentation took 82 ms per step at batch 64)
        torch.set_num_threads(1)
    # no baseline has been compiled for training yet; their lists of boxes change in length from step to step
    pays = on_gpu and recipe.model == "mast"
    return Machine(accelerator, workers, pays if recipe.compile is None else recipe.compile)
