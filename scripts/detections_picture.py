"""The README's picture: what the embedded model finds in simulated sound of a world it never heard.

python scripts/detections_picture.py docs/images/detections.png
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import mast
from mast.data import load_dataset
from mast.data.simulate import BoxStyle, Simulation, simulate_dataset
from mast.reports.spectrogram import draw_spectrogram

WORLD = Simulation(
    recordings=4,
    duration_s=30.0,
    sites=2,
    days=1,
    ood_sites=0,
    seed=880_015,
    hours=(5, 9),
    density=0.7,
    distance=0.5,
    style=BoxStyle(gap_s=0.12, song_gap_s=0.5, trains_are_songs=True, edge_db=5.0, tail_db=13.0),
)
SECONDS = 20.0


def main() -> None:
    """Simulate, detect, draw the liveliest recording."""
    with tempfile.TemporaryDirectory() as folder:
        simulate_dataset(Path(folder), WORLD)
        dataset = load_dataset(Path(folder))
        truth = dataset.annotations.events
        liveliest = str(truth["recording"].value_counts().index[0])
        recording = dataset.path(liveliest)
        draw_spectrogram(
            recording,
            Path(sys.argv[1]),
            truth=truth[truth["recording"] == liveliest],
            predictions=mast.load("default").detect(recording),
            end_s=SECONDS,
        )


if __name__ == "__main__":
    main()
