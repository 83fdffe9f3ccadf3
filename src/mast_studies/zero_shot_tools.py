"""What people without labels use today: signal processing that boxes whatever stands out of the background.

- scikit-maad's regions of interest, after two examples of its documentation;
- bambird's segmentation, with its published parameters;
- a plain threshold on the log-mel spectrogram with connected components.

Each is run with its published settings and over a grid around them. scikit-maad and bambird are needed only here, so
they are in a separate extra: ``pip install 'mast-audio[peers]'`` (or ``--target DIR`` and ``--packages DIR``).
"""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

import numpy as np

from mast.arrays import FloatArray, Samples
from mast.features.logmel import LogMel
from mast.grid import FrontEnd, grid_to_events

ToolSettings = Mapping[str, Any]
ToolFunction = Callable[[Samples, int, ToolSettings], FloatArray]
NO_BOXES: FloatArray = np.empty((0, 4))


@dataclass(frozen=True)
class Tool:
    """A tool that boxes sounds without labels.

    Attributes:
        name: its name in tables.
        published: the settings that its authors give; for the plain threshold, ours.
        grid: values to try, by setting; ``speed`` is understood by all (see :func:`find_boxes`).
        find: sound, its rate and settings → (N, 4) ``start_s, low_hz, end_s, high_hz``.
        package: the package that it needs, if any.
    """

    name: str
    published: dict[str, Any]
    grid: dict[str, list[Any]]
    find: ToolFunction
    package: str | None = None

    @property
    def missing(self) -> str:
        """A sentence if it cannot be run here; empty if it can."""
        if self.package is None or find_spec(self.module) is not None:
            return ""
        return f"{self.name}: left out, {self.package} is not installed (pip install {self.package})"

    @property
    def module(self) -> str:
        """The package's name in Python."""
        return {"scikit-maad": "maad"}.get(self.package or "", self.package or "")

    @property
    def version(self) -> str:
        """Version of the package; empty if there is none."""
        try:
            return version(self.package) if self.package else ""
        except PackageNotFoundError:
            return ""

    def settings(self, *, speeds: tuple[float, ...] = (1.0,)) -> list[dict[str, Any]]:
        """The published settings first, then every other combination of the grid."""
        first = {**self.published, "speed": 1.0}
        grid = {**self.grid, "speed": list(speeds)}
        tried = [
            {**first, **dict(zip(grid, values, strict=True))} for values in itertools.product(*grid.values())
        ]
        return [first, *(one for one in tried if one != first)]


def find_boxes(tool: Tool, sound: Samples, rate: int, settings: ToolSettings) -> FloatArray:
    """What a tool boxes in a recording, in the recording's own seconds and hertz.

    ``speed`` in the settings plays the recording that many times faster before the tool hears it.
    """
    if not np.any(sound):  # none of the tools can scale digital silence, and there is nothing to box
        return NO_BOXES
    speed = float(settings.get("speed", 1.0))
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # from the tools: divisions by silence, deprecated calls
        boxes = np.asarray(tool.find(sound, round(rate * speed), settings), dtype=np.float64).reshape(-1, 4)
    boxes = boxes[np.isfinite(boxes).all(axis=1)]
    boxes = boxes * np.array([speed, 1 / speed, speed, 1 / speed])
    whole: FloatArray = boxes[(boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1])]
    return whole


# scikit-maad


def _maad_equalised(sound: Samples, rate: int, settings: ToolSettings) -> FloatArray:
    """Example "Find regions of interest (ROIs) in a spectrogram": median equaliser, smoothing, double threshold."""
    from maad import rois, util
    from maad import sound as maad_sound

    if len(sound) < settings["nperseg"]:
        return NO_BOXES
    power, tn, fn, _ = maad_sound.spectrogram(
        sound, rate, nperseg=settings["nperseg"], noverlap=settings["nperseg"] // 2
    )
    clean = util.power2dB(maad_sound.median_equalizer(power))
    smooth = maad_sound.smooth(clean, std=settings["smooth_std"])
    return _maad_regions(rois, util, smooth, tn, fn, settings)


def _maad_subtracted(sound: Samples, rate: int, settings: ToolSettings) -> FloatArray:
    """Example "Classify soundtypes with unsupervised learning": high-pass, spectral subtraction, double threshold."""
    from maad import rois, util
    from maad import sound as maad_sound

    if len(sound) < settings["nperseg"]:
        return NO_BOXES
    filtered = maad_sound.select_bandwidth(sound, rate, fcut=100, forder=3, ftype="highpass")
    power, tn, fn, _ = maad_sound.spectrogram(
        filtered, rate, nperseg=settings["nperseg"], noverlap=settings["nperseg"] // 2
    )
    decibels = util.power2dB(power, db_range=70) + 70
    clean, _, _ = maad_sound.remove_background(decibels)
    smooth = maad_sound.smooth(clean, std=settings["smooth_std"])
    return _maad_regions(rois, util, smooth, tn, fn, settings)


def _maad_regions(
    rois: Any, util: Any, image: FloatArray, tn: FloatArray, fn: FloatArray, settings: ToolSettings
) -> FloatArray:
    mask = rois.create_mask(
        im=image, mode_bin="relative", bin_std=settings["bin_std"], bin_per=settings["bin_per"]
    )
    if not mask.any():  # select_rois expects some
        return NO_BOXES
    _, found = rois.select_rois(mask, min_roi=settings["min_roi"], max_roi=None)
    if not len(found):
        return NO_BOXES
    table = util.format_features(found, tn, fn)
    return np.asarray(table[["min_t", "min_f", "max_t", "max_f"]], dtype=np.float64)


# bambird


def _bambird(sound: Samples, rate: int, settings: ToolSettings) -> FloatArray:
    """``extract_rois_full_sig`` on pieces, as ``single_file_extract_rois`` does it.

    That function itself loses all but the first piece with the current pandas, so the loop over pieces is ours; the
    last piece, which it drops for being short, is searched too.
    """
    import soxr
    from bambird.segmentation_extract_rois_full_sig import extract_rois_full_sig
    from maad import features, rois, util  # noqa: F401 (bambird takes them for loaded)
    from maad import sound as maad_sound

    params = {name: value for name, value in settings.items() if name.isupper()}
    params["HIGH_FREQ"] = min(params["HIGH_FREQ"], rate // 2 - 1)
    target = params["SAMPLE_RATE"]
    signal = soxr.resample(sound, rate, target) if rate != target else sound
    signal = maad_sound.select_bandwidth(
        signal - signal.mean(),
        target,
        fcut=[params["LOW_FREQ"], params["HIGH_FREQ"]],
        forder=params["BUTTER_ORDER"],
        fname="butter",
        ftype="bandpass",
    )
    size = int(params["CHUNK_DURATION"] * target)
    found = []
    for start in range(0, len(signal), size):
        piece = signal[start : start + size]
        if len(piece) < 0.5 * target:  # half a second, too short to estimate a background
            continue
        table = extract_rois_full_sig(sig=piece, params=params)
        if len(table):
            boxes = np.asarray(table[["min_t", "min_f", "max_t", "max_f"]], dtype=np.float64)
            found.append(boxes + np.array([start / target, 0, start / target, 0]))
    return np.concatenate(found) if found else NO_BOXES


# a plain threshold


@functools.lru_cache(maxsize=4)
def _log_mel(front_end: FrontEnd) -> LogMel:
    return LogMel(front_end)


def _percentile(sound: Samples, rate: int, settings: ToolSettings) -> FloatArray:
    """Cells above a percentile of the recording's log-mel, each bin's median taken off; touching cells are one box."""
    import torch
    from scipy import ndimage

    front_end = FrontEnd.for_band(rate / 2)
    if len(sound) < front_end.window_samples:
        return NO_BOXES
    with torch.inference_mode():
        image = _log_mel(front_end)(torch.from_numpy(np.ascontiguousarray(sound))[None])[0].numpy()  # (T, F)
    image = image - np.median(image, axis=0)
    if settings["smooth_cells"]:
        image = ndimage.gaussian_filter(image, settings["smooth_cells"])
    labels, n_found = ndimage.label(image > np.percentile(image, settings["percentile"]))
    slices = ndimage.find_objects(labels) if n_found else []
    cells = np.array([(t.start, f.start, t.stop, f.stop) for t, f in slices], dtype=np.float64).reshape(-1, 4)
    spans = cells[:, 2:] - cells[:, :2]
    cells = cells[(spans[:, 0] >= settings["min_frames"]) & (spans[:, 1] >= settings["min_bins"])]
    return grid_to_events(cells, front_end)


_BAMBIRD = {
    "SAMPLE_RATE": 48_000,
    "LOW_FREQ": 250,
    "HIGH_FREQ": 12_000,
    "BUTTER_ORDER": 1,
    "CHUNK_DURATION": 10,
    "MODE_RMBCKG": "median",
    "N_RUNNING_MEAN": 10,
    "NFFT": 1024,
    "MASK_PARAM1": 26,
    "MASK_PARAM2": 10,
    "MAX_RATIO_YX": 7,
    "MIN_DURATION": 0.1,
    "MARGIN_T_LEFT": 0.2,
    "MARGIN_T_RIGHT": 0.2,
    "MARGIN_F_TOP": 250,
    "MARGIN_F_BOTTOM": 250,
}
TOOLS = (
    Tool(
        "scikit-maad, median equaliser",
        {"nperseg": 1024, "smooth_std": 0.5, "bin_std": 8, "bin_per": 0.5, "min_roi": 25},
        {"nperseg": [512, 1024], "smooth_std": [0.5, 1.5], "bin_std": [8, 12]},
        _maad_equalised,
        "scikit-maad",
    ),
    Tool(
        "scikit-maad, spectral subtraction",
        {"nperseg": 1024, "smooth_std": 1.2, "bin_std": 2, "bin_per": 0.25, "min_roi": 50},
        {"nperseg": [512, 1024], "smooth_std": [1.2, 2.0], "bin_std": [1, 2, 4]},
        _maad_subtracted,
        "scikit-maad",
    ),
    Tool(
        "bambird",
        _BAMBIRD,
        {"MASK_PARAM1": [20, 26, 32], "MARGIN_T_LEFT": [0.05, 0.2]},
        _bambird,
        "bambird",
    ),
    Tool(
        "threshold on log-mel",
        {"percentile": 95.0, "smooth_cells": 0.0, "min_frames": 5, "min_bins": 3},
        {"percentile": [90.0, 95.0, 98.0, 99.0, 99.5], "smooth_cells": [0.0, 1.0, 2.0, 4.0]},
        _percentile,
    ),
)
