"""How much speech `mast clips --no-voices` finds, and how many birds it would leave out.

    python -m mast_studies.voices_study --pool data/pool --data data/birdeep_am1 data/nbm_xc --out results/voices.json

Clips of ``esc50`` and ``fsc22`` by what they hold, and the boxes of experts as ``mast clips`` would cut them. Of
several thresholds, the lowest that finds speech in at most one in fifty of the birds' clips is chosen on the first half
of the clips; results are from the second half, with 95 % intervals over clips. The datasets had no part in the choice.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mast.arrays import FloatArray
from mast.audio import read
from mast.classifiers.voices import RATE, THRESHOLD, VoiceFinder, speech_spans
from mast.data.recordings import load_dataset
from mast.evaluation.bootstrap import draw_weights, interval, round_interval
from mast_studies.record import write_result
from mast_studies.script import run_script
from mast_studies.zero_shot_sets import half_of

BIRDS, SPEECH = "birds", "speech"
GROUPS = {
    SPEECH: ("Speaking",),
    "laughing, crying": ("laughing", "crying_baby"),
    "coughing, sneezing": ("coughing", "sneezing"),
    BIRDS: ("chirping_birds", "crow", "rooster", "hen", "BirdChirping"),
    "frogs": ("frog", "Frog"),
    "insects": ("insects", "crickets", "Insect"),
    "mammals": ("dog", "cat", "sheep", "cow", "pig", "WolfHowl", "Lion", "Squirrel"),
    "rain, wind": ("rain", "wind", "Rain", "Wind"),
}
THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5)
MAX_BIRD_SHARE = 0.02
PAD_S = 0.5  # as mast clips
RESAMPLES = 2_000


def share(found: list[bool], seed: int) -> dict[str, Any]:
    """The share of clips in which speech was found, with its interval."""
    values = np.array(found, dtype=np.float64)
    drawn = draw_weights(len(values), RESAMPLES, seed) @ values / max(len(values), 1)
    return {
        "clips": len(values),
        "share": round(float(values.mean()), 4),
        "interval": round_interval(interval(drawn)),
    }


def clip_probabilities(pool: Path, finder: VoiceFinder) -> dict[str, tuple[str, FloatArray]]:
    """By file: the group, and the probability of speech in each frame."""
    clips = pd.read_csv(pool / "clips.csv")
    group_of = {label: group for group, labels in GROUPS.items() for label in labels}
    clips = clips[clips["source"].isin(["esc50", "fsc22"]) & clips["label"].isin(list(group_of))]
    found = {}
    for file, label in zip(clips["file"], clips["label"], strict=True):
        path = pool / file if (pool / file).is_file() else pool / "audio" / file
        found[str(file)] = (group_of[label], finder.probabilities(read(path, sample_rate=RATE)))
    return found


def measure_pool(pool: Path, finder: VoiceFinder, seed: int) -> dict[str, Any]:
    """The threshold that the first half chooses, and the results of the second half at every threshold."""
    heard = clip_probabilities(pool, finder)
    first = set(half_of(list(heard), "first"))

    def shares(files: set[str], threshold: float) -> dict[str, Any]:
        return {
            group: share(
                [bool(speech_spans(heard[f][1], threshold)) for f in sorted(files) if heard[f][0] == group],
                seed,
            )
            for group in GROUPS
        }

    chosen_on = {threshold: shares(first, threshold) for threshold in THRESHOLDS}
    good = [threshold for threshold, of in chosen_on.items() if of[BIRDS]["share"] <= MAX_BIRD_SHARE]
    return {
        "chosen_on_the_first_half": min(good, default=None),
        "second_half": {f"{threshold:g}": shares(set(heard) - first, threshold) for threshold in THRESHOLDS},
        "first_half": {f"{threshold:g}": of for threshold, of in chosen_on.items()},
    }


def measure_boxes(folder: Path, finder: VoiceFinder, seed: int) -> dict[str, Any]:
    """The share of experts' boxes that would be left out."""
    dataset = load_dataset(folder)
    found = [
        bool(finder(dataset.path(str(recording)), max(0.0, start_s - PAD_S), end_s + PAD_S))
        for recording, start_s, end_s in dataset.annotations.events[
            ["recording", "start_s", "end_s"]
        ].itertuples(index=False)
    ]
    return share(found, seed)


def main() -> None:
    """Read the options, measure, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pool", type=Path, required=True, help="a pool with esc50 and fsc22")
    parser.add_argument("--data", type=Path, nargs="*", default=[], help="datasets with boxes of birds")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    finder = VoiceFinder()
    figures: dict[str, Any] = {
        "threshold": THRESHOLD,
        "pool": measure_pool(options.pool, finder, options.seed),
    }
    figures["boxes_left_out"] = {
        folder.name: measure_boxes(folder, finder, options.seed) for folder in options.data
    }
    write_result(options.out, figures, seed=options.seed)
    print(figures["pool"]["chosen_on_the_first_half"], figures["boxes_left_out"])


if __name__ == "__main__":
    run_script(main)
