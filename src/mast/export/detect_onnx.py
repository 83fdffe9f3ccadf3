"""Find animal sounds in a recording with model.onnx: numpy, soundfile and onnxruntime are all it needs.

    pip install numpy soundfile onnxruntime soxr
    python detect_onnx.py recording.wav > events.csv

soxr resamples; it is only needed for recordings at another rate than the model's. Windows overlap by a quarter; an
event that two windows report is kept from the one with the higher score. The pieces of an event that a window's edge
cuts are not joined; mast itself joins them. A habit in model.json (how mast draws the boxes) is not applied.
"""

from __future__ import annotations

import csv
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np


def nms(boxes: np.ndarray, scores: np.ndarray, max_overlap: float, *, of_smaller: bool = False) -> np.ndarray:
    """Rows of the boxes to keep, best first: of two that overlap more, the one scored lower is dropped.

    The overlap is measured as a share of the two together (IoU), or of the smaller one.
    """
    order = np.argsort(-scores, kind="stable")
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    kept = []
    while len(order):
        best, rest = order[0], order[1:]
        kept.append(best)
        size = np.minimum(boxes[best, 2:], boxes[rest, 2:]) - np.maximum(boxes[best, :2], boxes[rest, :2])
        shared = size.clip(0).prod(axis=1)
        whole = np.minimum(area[best], area[rest]) if of_smaller else area[best] + area[rest] - shared
        order = rest[shared <= max_overlap * whole]
    return np.array(kept, dtype=int)


def read_sound(path: str, rate: int) -> np.ndarray:
    """The recording as one channel at the model's rate, float32."""
    import soundfile

    sound, own_rate = soundfile.read(path, dtype="float32", always_2d=True)
    mixed: np.ndarray = sound.mean(axis=1, dtype=np.float32)
    if own_rate == rate:
        return mixed
    import soxr

    resampled: np.ndarray = soxr.resample(mixed, own_rate, rate, quality="HQ")
    return resampled


def detect(
    session: Any,
    card: dict[str, Any],
    sound: np.ndarray,
    threshold: float | None = None,
    hop: float = 0.75,
    batch: int = 4,
) -> np.ndarray:
    """Rows (start_s, end_s, low_hz, high_hz, score) of the events in a recording.

    Scores are the model's own, before any calibration that model.json holds.
    """
    front_end, thresholds = card["front_end"], card["thresholds"]
    nested = card["architecture"].get("nested", 1.0)
    threshold = thresholds["score"] if threshold is None else threshold
    rate, hop_samples = front_end["sample_rate"], front_end["hop_samples"]
    size = front_end["chunk_frames"] * hop_samples
    step = round(hop * size)
    starts = range(0, max(1, len(sound) - size + step), step)
    all_boxes, all_scores = [np.zeros((0, 4))], [np.zeros(0)]
    for first in range(0, len(starts), batch):
        some = starts[first : first + batch]
        chunks = np.zeros((len(some), size), dtype=np.float32)
        for chunk, start in zip(chunks, some, strict=True):
            piece = sound[start : start + size]
            chunk[: len(piece)] = piece - piece.mean(dtype=np.float64)
        for start, cells, values in zip(some, *session.run(None, {"sound": chunks}), strict=True):
            valid = min(len(sound) - start, size) / hop_samples  # what begins in the padding is not an event
            real = (values >= threshold) & (cells[:, 0] < valid) & (cells[:, 2:] > cells[:, :2]).all(axis=1)
            cells, values = cells[real].astype(float), values[real]
            rows = nms(cells, values, thresholds.get("nms_iou", 0.5))
            if nested < 1:
                rows = rows[nms(cells[rows], values[rows], nested, of_smaller=True)]
            rows = rows[:300]
            cells[:, 2] = np.minimum(cells[:, 2], valid)
            cells[:, 0::2] += start / hop_samples
            all_boxes.append(cells[rows])
            all_scores.append(values[rows])
    boxes, scores = np.concatenate(all_boxes), np.concatenate(all_scores)
    kept = nms(boxes, scores, 0.5)  # the same event in two windows
    if nested < 1:
        kept = kept[nms(boxes[kept], scores[kept], nested, of_smaller=True)]
    boxes, scores = boxes[kept], scores[kept]
    seconds = boxes[:, 0::2] * hop_samples / rate
    hertz = mel_bins_to_hz(boxes[:, 1::2], front_end)
    table = np.column_stack([seconds, hertz, scores])
    return table[np.lexsort((table[:, 2], table[:, 0]))]


def mel_bins_to_hz(bins: np.ndarray, front_end: dict[str, Any]) -> np.ndarray:
    """Fractional mel bins in hertz; whole numbers are the centres of bins."""
    corner = front_end["mel_corner_hz"]
    low, high = (math.log1p(front_end[name] / corner) for name in ("low_hz", "high_hz"))
    mel = low + (bins + 1.0) * (high - low) / (front_end["n_bins"] + 1)
    hertz: np.ndarray = np.clip(corner * np.expm1(mel), front_end["low_hz"], front_end["high_hz"])
    return hertz


def main(paths: list[str]) -> None:
    """Print a table of the events in some recordings."""
    import onnxruntime

    here = Path(__file__).resolve().parent
    card = json.loads((here / "model.json").read_text(encoding="utf-8"))
    session = onnxruntime.InferenceSession(str(here / "model.onnx"), providers=["CPUExecutionProvider"])
    table = csv.writer(sys.stdout)
    table.writerow(["recording", "start_s", "end_s", "low_hz", "high_hz", "score"])
    for path in paths:
        for row in detect(session, card, read_sound(path, card["front_end"]["sample_rate"])):
            table.writerow([path, *(f"{value:.6g}" for value in row)])


if __name__ == "__main__":
    main(sys.argv[1:])
