"""Seconds of sound with boxed tones at two sites, and settings that fit a detector to them in seconds."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import soundfile as sf

from mast.detect_options import DEFAULT_OPTIONS, DetectOptions
from mast.fit.pipeline import Fitted, fit
from mast.runs import Progress, Reporter
from mast.training.recipe import Recipe, load_recipe

# whole seconds of sound each; 1.28 s chunks of 128 frames × 32 bins
SETTINGS: dict[str, object] = {
    "front_end.n_bins": 32,
    "front_end.chunk_frames": 128,
    "pretrain.batch_size": 16,
    "pretrain.epochs": 1,
    "pretrain.held_out": 0.2,
    "pretrain.save_every_s": 0.01,
    "train.batch_size": 8,
    "train.epochs": 2,
    "train.validate_every_epochs": 1,
    "train.save_every_s": 0.01,
    "train.score_threshold": 0.001,
    "train.detector.channels": 32,
    "train.detector.levels": 3,
    "train.detector.head_convs": 1,
    "selftrain.rounds": 1,
    "selftrain.curriculum": "stage1",
    "selftrain.threshold": 0.001,
    **{
        f"selftrain.stage{n}.{key}": value
        for n in (1, 2)
        for key, value in {
            "epochs": 1,
            "validate_every_epochs": 1,
            "batch_size": 8,
            "save_every_s": 0.01,
            "score_threshold": 0.001,
        }.items()
    },
}


def toy_recipe(**overrides: object) -> Recipe:
    """The tiny preset, much smaller; overrides as in ``train__epochs``."""
    return load_recipe("tiny", SETTINGS | {k.replace("__", "."): v for k, v in overrides.items()})


def write_archive(root: Path, *, n: int = 9, site: str = "S1", seed: int = 0, boxed: bool = True) -> Path:
    """Recordings of three seconds; with boxes, a split with another site and a test, and one that holds nothing."""
    (root / "audio").mkdir(parents=True)
    rng = np.random.default_rng(seed)
    boxes: list[tuple[str, float, float, float, float, str]] = []
    files: list[tuple[str, str]] = []
    for i in range(n):
        other = boxed and i >= n - 2
        name = f"{'S9' if other else site}_20240501_{5 + i:02d}3000.wav"
        files.append((name, "site_ood" if other else "test" if i == n - 3 else ""))
        sound = rng.normal(0, 0.003, 16_000 * 3)
        for start in (0.2, 1.0, 1.8, 2.4) if i else ():
            length, hz = rng.uniform(0.25, 0.4), rng.uniform(600, 5_000)
            a, length_samples = int(start * 16_000), int(length * 16_000)
            sound[a : a + length_samples] += 0.2 * np.sin(2 * np.pi * hz * np.arange(length_samples) / 16_000)
            boxes.append((name, start, start + length, hz * 0.8, hz * 1.25, "tone"))
        sf.write(root / "audio" / name, sound, 16_000)
    if boxed:
        pd.DataFrame(files, columns=["file", "split"]).to_csv(root / "recordings.csv", index=False)
        columns = ["file", "start_s", "end_s", "low_hz", "high_hz", "label"]
        pd.DataFrame(boxes, columns=columns).to_csv(root / "boxes.csv", index=False)
    return root


def write_both(root: Path) -> tuple[Path, Path]:
    """``labelled/`` and ``archive/``, sound of another site without boxes."""
    return (
        write_archive(root / "labelled"),
        write_archive(root / "archive", n=4, site="S2", seed=1, boxed=False),
    )


@contextmanager
def no_bar(what: str) -> Iterator[Progress]:
    yield lambda done, total, text: None


def run_fit(
    data: Path,
    unlabelled: list[Path],
    out: Path,
    recipe: Recipe | None = None,
    *,
    messages: list[str] | None = None,
    init: Path | None = None,
    drawn: DetectOptions = DEFAULT_OPTIONS,
    fixed: Collection[str] | None = None,
    examples: int = 1,
) -> Fitted:
    """`mast fit` in this process; what it says goes to ``messages``."""
    say = (lambda text: None) if messages is None else messages.append
    return fit(
        data,
        unlabelled,
        out,
        recipe or toy_recipe(),
        reporter=Reporter(say=say, bar=no_bar),
        init=init,
        drawn=drawn,
        fixed=fixed,
        resamples=20,
        examples=examples,
    )
