"""An untrained detector with a contrastive head on short windows, and sounds it can tell apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
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
RATE = 16_000


def save_embedder(folder: Path, *, seed: int = 0, threshold: float = 0.3) -> Path:
    """Write a model folder with random weights; large last layers spread the scores over (0, 1)."""
    torch.manual_seed(seed)
    encoder = EncoderConfig(chunk_frames=256, n_bins=64, width=32, depth=1, heads=2)
    config = DetectorConfig(encoder=encoder, channels=32, levels=2, head_convs=1, contrastive_dimension=16)
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


def write_species(root: Path, *, recordings: int = 6, seconds: float = 8.0, seed: int = 0) -> Path:
    """A dataset of two species that any ear tells apart: low tones and high hisses, boxed and labelled."""
    rng = np.random.default_rng(seed)
    (root / "audio").mkdir(parents=True)
    rows = []
    for number in range(recordings):
        name = f"{('OAK', 'ELM')[number % 2]}_20240501_{4 + number:02d}0000.wav"
        sound = rng.normal(0, 0.003, round(seconds * RATE))
        for at in np.arange(0.4, seconds - 1, 1.3):
            label = ("tone", "hiss")[int(rng.integers(2))]
            length = rng.uniform(0.4, 0.7)
            a, n = round(at * RATE), round(length * RATE)
            if label == "tone":
                hz = rng.uniform(700, 900)
                sound[a : a + n] += 0.2 * np.sin(2 * np.pi * hz * np.arange(n) / RATE)
                rows.append((name, at, at + length, 600.0, 1_000.0, label))
            else:
                sound[a : a + n] += np.diff(rng.normal(0, 0.1, n + 1))
                rows.append((name, at, at + length, 3_000.0, 7_500.0, label))
        sf.write(root / "audio" / name, sound, RATE)
    columns = ["file", "start_s", "end_s", "low_hz", "high_hz", "label"]
    pd.DataFrame(rows, columns=columns).to_csv(root / "boxes.csv", index=False)
    return root
