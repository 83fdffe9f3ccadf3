"""Untrained models on short chunks, and noise to plan in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import soundfile as sf
import torch
from spread_scores import spread_scores

from mast.grid import FrontEnd
from mast.models.architecture import DetectorConfig, EncoderConfig, MaeConfig
from mast.models.card import ModelCard
from mast.models.checkpoint import save_checkpoint
from mast.models.mae import MaskedAutoencoder
from mast.models.mast_detector import MastDetector
from mast.normalisation import Normalisation

FRONT_END = FrontEnd(n_bins=64, chunk_frames=256)  # 2.56 s
ENCODER = EncoderConfig(chunk_frames=256, n_bins=64, width=32, depth=1, heads=2)


def save_untrained(folder: Path, *, detects: bool = True) -> Path:
    """A model folder: a detector whose scores spread over (0, 1), or a masked autoencoder."""
    torch.manual_seed(0)
    config = DetectorConfig(encoder=ENCODER, channels=32, levels=2, head_convs=1, contrastive_weight=0)
    mae = MaeConfig.named("tiny", chunk_frames=256, n_bins=64)
    model = MastDetector(config) if detects else MaskedAutoencoder(mae)
    if isinstance(model, MastDetector):
        spread_scores(model)
    card = ModelCard(
        kind="detector" if detects else "mae",
        architecture=config if detects else mae,
        front_end=FRONT_END,
        normalisation=Normalisation(mean=-8.0, std=4.0),
        thresholds={"score": 0.3, "nms_iou": 0.5} if detects else {},
    )
    save_checkpoint(folder, model, card)
    return folder


def write_noise(root: Path, *, sites: int = 2, hours: int = 3, seconds: float = 12.0) -> Path:
    """Recordings that nobody has listened to: site A hisses, site B hums."""
    root.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for site in "ABCD"[:sites]:
        for hour in range(hours):
            sound = rng.normal(0, 0.02, round(seconds * 16_000))
            if site == "B":
                sound += 0.1 * np.sin(2 * np.pi * 500 * np.arange(len(sound)) / 16_000)
            sf.write(root / f"{site}_20240512_{5 + hour:02d}0000.wav", sound, 16_000)
    return root
