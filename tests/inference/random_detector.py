"""A detector that was never trained: it finds boxes of all kinds, the same ones in the same sound."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import soundfile as sf
import torch
from spread_scores import spread_scores

from mast.grid import FrontEnd
from mast.models.architecture import DetectorConfig, EncoderConfig
from mast.models.card import ModelCard
from mast.models.checkpoint import save_checkpoint
from mast.models.mast_detector import MastDetector
from mast.normalisation import Normalisation

FRONT_END = FrontEnd(n_bins=64, chunk_frames=256)  # 2.56 s


def save_detector(folder: Path, *, seed: int = 0, threshold: float = 0.3, second_look: bool = False) -> Path:
    """Write a model folder; a large last layer spreads the scores over (0, 1)."""
    torch.manual_seed(seed)
    encoder = EncoderConfig(chunk_frames=256, n_bins=64, width=32, depth=1, heads=2)
    config = DetectorConfig(
        encoder=encoder,
        channels=32,
        levels=2,
        head_convs=1,
        contrastive_weight=0,
        second_look=second_look,
    )
    model = MastDetector(config)
    spread_scores(model)
    card = ModelCard(
        kind="detector",
        architecture=config,
        front_end=FRONT_END,
        normalisation=Normalisation(mean=-8.0, std=4.0),
        thresholds={"score": threshold, "nms_iou": 0.5},
    )
    save_checkpoint(folder, model, card)
    return folder


def write_sound(
    path: Path, seconds: float, *, seed: int = 0, rate: int = 16_000, start_s: float = 0.0
) -> Path:
    """Noise with tones, from ``start_s`` of an endless sound onwards."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    sound = rng.normal(0, 0.01, round((start_s + seconds) * rate))
    for _ in range(round(start_s + seconds)):
        at, hz = rng.uniform(0, start_s + seconds), rng.uniform(500, rate / 3)
        a, n = round(at * rate), round(rng.uniform(0.1, 0.8) * rate)
        part = sound[a : a + n]
        part += 0.2 * np.sin(2 * np.pi * hz * np.arange(len(part)) / rate)
    sf.write(path, sound[round(start_s * rate) :], rate)
    return path
