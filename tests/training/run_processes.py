"""Run by test_processes.py, in its own process or in several: a few steps of pretraining and of detector training."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from accelerate import Accelerator

sys.path.insert(0, str(Path(__file__).parents[1]))
from toy_recipe import small_recipe

from mast.data.splits import SplitConfig
from mast.training.detector_training import train_detector
from mast.training.pretraining import pretrain


def run(tones: Path, out: Path) -> None:
    """Ten steps of each, in this process and those that were started beside it."""
    accelerator = Accelerator(cpu=True)
    recipe = small_recipe(
        train__augmentation__probability=0.0,
        train__detector__contrastive_weight=0.0,
        # AdamW's first steps are as large for a gradient of rounding errors as for any other: keep them small
        train__lr=2e-4,
        train__unfreezing={
            "warmup_epochs": 1,
            "interval_epochs": 1,
            "blocks_per_stage": 2,
            "lr_multiplier": 0.5,
        },
        train__log_every_steps=1,
        pretrain__log_every_steps=1,
    )
    pretrain([tones], out / "pretrain", recipe, accelerator=accelerator, stop_after=10)
    accelerator.wait_for_everyone()
    train_detector(
        tones, out / "detector", recipe, accelerator=accelerator, stop_after=10, split=SplitConfig()
    )
    if accelerator.is_main_process:
        (out / "processes").write_text(str(accelerator.num_processes))
    accelerator.end_training()


if __name__ == "__main__":
    torch.set_num_threads(1)
    run(Path(sys.argv[1]), Path(sys.argv[2]))
