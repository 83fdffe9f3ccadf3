"""The programs that mast is timed against, from files to a table. Runs in a separate Python; see ``bench_speed.py``.

    python benchmarks/speed_others.py birdnet MODEL.tflite OUT.csv FILE…
    python benchmarks/speed_others.py maad - OUT.csv FILE…

BirdNET: 3 s windows at 48 kHz without overlap, one thread, everything scored above 0.1, as its users run it.
scikit-maad: regions of interest as in the example "Find regions of interest (ROIs) in a spectrogram" of its
documentation.
"""

from __future__ import annotations

import csv
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import soundfile as sf

BIRDNET_RATE, BIRDNET_WINDOW_S, BIRDNET_MIN_SCORE = 48_000, 3, 0.1
Row = tuple[Any, ...]


def birdnet(model: str, paths: list[str]) -> Iterator[Row]:
    """Rows file, start_s, end_s, class, score."""
    import soxr
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=model, num_threads=1)
    interpreter.allocate_tensors()
    given, asked = interpreter.get_input_details()[0]["index"], interpreter.get_output_details()[0]["index"]
    size = BIRDNET_RATE * BIRDNET_WINDOW_S
    for path in paths:
        sound, rate = sf.read(path, dtype="float32", always_2d=True)
        sound = sound.mean(axis=1, dtype=np.float32)
        if rate != BIRDNET_RATE:
            sound = soxr.resample(sound, rate, BIRDNET_RATE)
        for start in range(0, len(sound), size):
            window = np.zeros((1, size), np.float32)
            piece = sound[start : start + size]
            window[0, : len(piece)] = piece
            interpreter.set_tensor(given, window)
            interpreter.invoke()
            scores = 1 / (1 + np.exp(-interpreter.get_tensor(asked)[0]))
            at = start / BIRDNET_RATE
            for label in np.flatnonzero(scores > BIRDNET_MIN_SCORE):
                yield path, at, at + BIRDNET_WINDOW_S, int(label), float(scores[label])


def maad(_: str, paths: list[str]) -> Iterator[Row]:
    """Rows file, start_s, end_s, low_hz, high_hz."""
    from maad import rois, util
    from maad import sound as maad_sound

    for path in paths:
        sound, rate = sf.read(path, dtype="float32", always_2d=True)
        if not np.any(sound):  # it cannot scale digital silence
            continue
        power, times, frequencies, _ = maad_sound.spectrogram(
            sound.mean(axis=1), rate, nperseg=1024, noverlap=512
        )
        clean = util.power2dB(maad_sound.median_equalizer(power))
        smooth = maad_sound.smooth(clean, std=0.5)
        mask = rois.create_mask(im=smooth, mode_bin="relative", bin_std=8, bin_per=0.5)
        if not mask.any():  # select_rois expects some
            continue
        _, found = rois.select_rois(mask, min_roi=25, max_roi=None)
        if len(found):
            found = util.format_features(found, times, frequencies)
            for row in found[["min_t", "max_t", "min_f", "max_f"]].itertuples(index=False):
                yield (path, *row)


def main() -> None:
    tool, model, out, *paths = sys.argv[1:]
    warnings.simplefilter("ignore")
    with open(out, "w", newline="") as file, np.errstate(all="ignore"):
        csv.writer(file).writerows({"birdnet": birdnet, "maad": maad}[tool](model, paths))


if __name__ == "__main__":
    main()
