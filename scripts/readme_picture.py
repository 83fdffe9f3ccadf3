"""Draw the pictures of real sound in README and docs from local copies of the recordings.

    python scripts/readme_picture.py --data FOLDER     # or with MAST_SHARED_DATA set

A recording is found by its name, anywhere below FOLDER and in any format. Missing ones are skipped with a message. Only
recordings whose licence allows pictures are listed; no sound is ever written. Bats and fish, for which there is no such
recording, are simulated.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle
from PIL import Image

import mast
from mast.annotations import read_annotations
from mast.audio import AUDIO_SUFFIXES
from mast.data.simulate.dataset import Simulation, simulate_dataset
from mast.files import write_atomic
from mast.grid import BANDS_HZ, FrontEnd
from mast.models.masking import uniform_mask
from mast.reports.spectrogram import (
    PREDICTION_COLOUR,
    TRUTH_COLOUR,
    compute_spectrogram,
    figure_png,
    plot_boxes,
)

IMAGES = Path(__file__).parents[1] / "docs" / "images"
WIDE, NARROW = 1_400, 900  # pixels: README, gallery
GREYS = {WIDE: 12, NARROW: 7}


class Sound(NamedTuple):
    """A recording, and the picture made from it."""

    picture: str
    recording: str  # its name, without ending
    start_s: float
    end_s: float
    author: str
    licence: str
    link: str
    boxed: bool = False  # an expert's boxes lie next to it, as in a dataset
    masked: bool = False  # as the encoder sees it in pretraining, without boxes
    width: int = NARROW  # pixels


_BIRDEEP = (
    "Alba Márquez-Rodríguez and others",
    "MIT",
    "https://huggingface.co/datasets/GrunCrow/BIRDeep_AudioAnnotations",
)
_CLINK = ("Dena J. Clink", "MIT", "https://github.com/DenaJGibbon/behaviouR")
_MAAD = ("the authors of scikit-maad", "BSD-3-Clause", "https://github.com/scikit-maad/scikit-maad")
SOUNDS = (
    Sound("detections", "AM1_20230514_103000", 0, 24, *_BIRDEEP, boxed=True, width=WIDE),
    Sound("expert_boxes", "AM1_20230511_060000", 0, 24, *_BIRDEEP, boxed=True),
    Sound("gallery_argus", "GreatArgus_3", 0, 20, *_CLINK),
    Sound("gallery_borneo", "Borneo_Morning_04", 0, 20, *_CLINK),
    Sound("gallery_jura", "S4A03895_20190522_050000", 0, 10, *_MAAD),
    Sound("gallery_gibbon_male", "MaleSolo_1", 0, 40, *_CLINK),
    Sound("gallery_gibbon_female", "FemaleGibbon_2", 0, 12.5, *_CLINK),
    Sound(
        "gallery_frogs",
        "5-187201-B-4",
        0,
        5,
        "Freesound clip 187201",
        "CC0",
        "https://freesound.org/s/187201/",
    ),
    Sound(
        "gallery_cricket",
        "3-162786-A-13",
        0,
        5,
        "Freesound clip 162786",
        "CC0",
        "https://freesound.org/s/162786/",
    ),
    Sound("gallery_night", "Sulawesi_Night_04", 0, 20, *_CLINK),
    Sound("masking", "GreatArgus_3", 0, 10.24, *_CLINK, masked=True),
)
SIMULATED = {  # picture: band, and what is simulated
    "gallery_fish": ("fish", {"sample_rate": 4_000, "tape": 0.25, "duration_s": 40.0, "seed": 3}),
    "gallery_bats": (
        "bats",
        {"sample_rate": 256_000, "tape": 16.0, "duration_s": 1.2, "seed": 6, "density": 3.0},
    ),
}


def main() -> None:
    """Read the options, draw what there is."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, default=os.environ.get("MAST_SHARED_DATA"), help="folder of recordings"
    )
    parser.add_argument("--only", nargs="*", default=[], help="names of pictures")
    options = parser.parse_args()
    if options.data is None:
        sys.exit("readme_picture: give the folder of recordings with --data, or set MAST_SHARED_DATA")
    for name, png in pictures(Path(options.data), options.only):
        write_atomic(IMAGES / f"{name}.png", png)
        print(f"{name}.png: {len(png) / 1000:.0f} kB")


def pictures(data: Path, only: list[str]) -> Iterator[tuple[str, bytes]]:
    """Name and content of each picture that can be made."""
    files = {path.stem: path for path in data.rglob("*") if path.suffix.lower() in AUDIO_SUFFIXES}
    for sound in SOUNDS:
        if only and sound.picture not in only:
            continue
        if sound.recording not in files:
            print(f"{sound.picture}.png: skipped, {sound.recording} ({sound.link}) is not in {data}")
            continue
        draw = masked_picture if sound.masked else real_picture
        yield sound.picture, draw(sound, files[sound.recording])
    for name in SIMULATED:
        if not only or name in only:
            yield name, simulated_picture(name)


def real_picture(sound: Sound, path: Path) -> bytes:
    """What the embedded model finds, and an expert's boxes where there are some."""
    truth = None
    if sound.boxed:
        events = read_annotations(path.parent.parent).events
        truth = events[events["recording"].map(lambda name: Path(name).stem) == sound.recording]
    found = mast.load("default", device="cpu").detect(path)
    span = compute_spectrogram(path, start_s=sound.start_s, end_s=sound.end_s)
    figure = plot_boxes(span, truth=truth, predictions=found, title=sound.recording)
    return reduce_png(figure_png(figure), sound.width)


def masked_picture(sound: Sound, path: Path) -> bytes:
    """One chunk with three quarters of its patches hidden."""
    span = compute_spectrogram(path, start_s=sound.start_s, end_s=sound.end_s)
    figure = plot_boxes(span, title=sound.recording)
    axes = figure.axes[0]
    noise = torch.rand(1, 64 * 8, generator=torch.Generator().manual_seed(0))
    for token in uniform_mask(noise).hidden[0].nonzero().flatten().tolist():
        column, row = divmod(token, 8)  # patches of 16 frames × 16 bins
        place = (column * 16 * span.column_s, row * 16 - 0.5)
        axes.add_patch(Rectangle(place, 16 * span.column_s, 16, facecolor="0.8", edgecolor="white"))
    return reduce_png(figure_png(figure), sound.width)


def simulated_picture(name: str) -> bytes:
    """A simulated recording with its true boxes, and what the embedded model finds in it."""
    band, settings = SIMULATED[name]
    with tempfile.TemporaryDirectory() as folder:
        simulate_dataset(
            Path(folder) / "made",
            Simulation.model_validate({"recordings": 1, "sites": 1, "days": 1, **settings}),
        )
        path = next((Path(folder) / "made" / "audio").iterdir())
        truth = read_annotations(Path(folder) / "made").events
        found = mast.load("default", device="cpu", band_hz=BANDS_HZ[band]).detect(path)
        span = compute_spectrogram(path, front_end=FrontEnd.for_band(BANDS_HZ[band]))
    return reduce_png(figure_png(plot_boxes(span, truth=truth, predictions=found, title="simulated")), NARROW)


def reduce_png(png: bytes, width: int) -> bytes:
    """A picture of this width, reduced to greys and the two colours of boxes so that a gallery of ten stays small."""
    image = Image.open(io.BytesIO(png)).convert("RGB")
    image = image.resize((width, round(image.height * width / image.width)), Image.Resampling.LANCZOS)
    colours = [(grey, grey, grey) for grey in np.linspace(255, 0, GREYS[width])]
    for name in (TRUTH_COLOUR, PREDICTION_COLOUR):
        colour = np.array(to_rgb(name)) * 255
        colours += [
            tuple(255 + share * (colour - 255)) for share in (1.0, 0.7, 0.4)
        ]  # thin lines are blended
    palette = Image.new("P", (1, 1))
    palette.putpalette([round(value) for colour in colours for value in colour])
    buffer = io.BytesIO()
    image.quantize(palette=palette, dither=Image.Dither.NONE).save(buffer, format="png", optimize=True)
    return buffer.getvalue()


if __name__ == "__main__":
    main()
