"""A spectrogram with boxes on it: truth solid green, predictions dashed blue.

The picture shows what the model sees: the front end's mel bins, with the axis in kilohertz. Sound is drawn where
it occurs: a frame stands at the middle of its window, a mel bin at its centre frequency, and a box at its own
seconds and hertz, unrounded. So a box that looks wrong is wrong.
"""

from __future__ import annotations

import io
import math
import warnings
import zlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mast.arrays import FloatArray
from mast.errors import AudioError, shorten
from mast.events import boxes_of
from mast.files import write_atomic
from mast.grid import FrontEnd

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from PIL.Image import Image

    from mast.features.array_logmel import ArrayLogMel

TRUTH_COLOUR = "#0b8a2a"
PREDICTION_COLOUR = "#1558d6"

# our choices, by looking at pictures of birds, fish and bats
_MAX_COLUMNS = 1_700  # one per pixel of the picture's width
_BACKGROUND_PERCENTILE = 20.0  # of each bin: what is there four fifths of the time is background
_CONTRAST_PERCENTILES = (30.0, 99.8)
_MIN_CONTRAST = 4.0  # natural logarithm of power (17 dB): noise alone should not look like sound
_MAX_SCORES = 60  # beyond this the numbers cover the sound
_BLOCK_S = 60.0  # of sound held in memory, at the paper's rate


@dataclass(frozen=True)
class Spectrogram:
    """Log-mel of a span.

    Attributes:
        values: (T, F) natural logarithm of power; long spans are thinned to the loudest of neighbouring columns.
        front_end: its bins.
        left_s: where the first column begins, seconds from the start of the recording.
        column_s: seconds per column.
        start_s: start of the requested span.
        end_s: its end.
    """

    values: NDArray[np.float32]
    front_end: FrontEnd
    left_s: float
    column_s: float
    start_s: float
    end_s: float

    @property
    def extent(self) -> tuple[float, float, float, float]:
        """Left, right (s), bottom, top (bins) of the image: bin k reaches from k − ½ to k + ½."""
        n_columns, n_bins = self.values.shape
        return self.left_s, self.left_s + n_columns * self.column_s, -0.5, n_bins - 0.5


def compute_spectrogram(
    recording: str | Path,
    *,
    front_end: FrontEnd | None = None,
    start_s: float = 0.0,
    end_s: float | None = None,
    max_columns: int = _MAX_COLUMNS,
) -> Spectrogram:
    """Log-mel of a span of a recording, a minute in memory at a time.

    Args:
        recording: the audio file.
        front_end: band and bins; the paper's by default.
        start_s: seconds from the start of the recording.
        end_s: the end of the span; at most, and by default, the end of the recording.
        max_columns: a longer span is thinned to at most this many columns by taking the loudest.
    """
    from mast.audio import probe, read

    grid = front_end or FrontEnd()
    info = probe(recording)
    end = info.duration_s if end_s is None else min(end_s, info.duration_s)
    if not 0 <= start_s < end:
        to = "the end" if end_s is None else f"{end_s:g} s"
        raise AudioError(
            f"{recording}: cannot draw a picture from {start_s:g} s to {to}, "
            f"as the recording lasts {info.duration_s:g} s; expected 0 ≤ start < end, inside the recording"
        )
    # a frame stands at the middle of its window, so begin early enough for the first to stand at the start
    lead = (grid.window_samples - grid.hop_samples) // 2
    first = max(0, round(start_s * grid.sample_rate) - lead)
    last = round(end * grid.sample_rate) + lead
    n_frames = max(0, (last - first - grid.window_samples) // grid.hop_samples + 1)
    thin = max(1, math.ceil(n_frames / max_columns))
    block_frames = thin * max(1, int(_BLOCK_S / FrontEnd().hop_s) // thin)

    log_mel = _log_mel(grid)
    columns = []
    for begin in range(0, n_frames, block_frames):
        count = min(block_frames, n_frames - begin)
        from_sample = first + begin * grid.hop_samples
        to_sample = from_sample + (count - 1) * grid.hop_samples + grid.window_samples
        samples = read(
            recording,
            start_s=from_sample / grid.sample_rate,
            end_s=to_sample / grid.sample_rate,
            sample_rate=grid.sample_rate,
        )
        frames = log_mel(samples)  # (T, F)
        if len(frames):
            columns.append(np.maximum.reduceat(frames, np.arange(0, len(frames), thin), axis=0))
    if not columns:
        raise AudioError(
            f"{recording}: {end - start_s:g} s of sound is less than one frame of "
            f"{grid.window_samples / grid.sample_rate:g} s; expected a longer span"
        )
    return Spectrogram(
        values=np.concatenate(columns),
        front_end=grid,
        left_s=(first + lead) / grid.sample_rate,
        column_s=thin * grid.hop_s,
        start_s=start_s,
        end_s=end,
    )


@lru_cache(maxsize=4)
def _log_mel(front_end: FrontEnd) -> ArrayLogMel:
    """Made once for all pictures of a page: making it takes as long as drawing a second of sound."""
    from mast.features.array_logmel import ArrayLogMel

    return ArrayLogMel(front_end)


def is_detected(events: pd.DataFrame) -> pd.Series[bool]:
    """Which events a program found and nobody has confirmed."""
    return events["source"].astype(str).str.match(r"detector|pseudo")


def boxes_in_view(events: pd.DataFrame, spectrogram: Spectrogram) -> pd.DataFrame:
    """The events that touch the span and the band."""
    band = spectrogram.front_end
    seen = (events["end_s"] >= spectrogram.start_s) & (events["start_s"] <= spectrogram.end_s)
    return events[seen & (events["high_hz"] >= band.low_hz) & (events["low_hz"] <= band.high_hz)]


def escape_mathtext(text: str) -> str:
    """Somebody's words (a file, a site, a label) for matplotlib: literally, not as TeX; one printable line.

    >>> print(escape_mathtext("a$x$.wav"))
    a\\$x\\$.wav
    """
    return shorten(text).replace("$", r"\$")


def new_figure(width: float, height: float, *, dpi: float | None = None) -> Figure:
    """An empty figure of this size in inches, whose parts do not overlap."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=dpi, layout="constrained")


def image_png(image: Image, *, few_colours: bool = False, of_sound: bool = False) -> bytes:
    """A picture as PNG; with few colours, it takes a fraction of the space.

    Where most of it is sound, no patch is like an earlier one: looking only for runs takes a tenth of the time.
    """
    from PIL.Image import Dither, Quantize

    if few_colours:  # the octree keeps thin coloured lines on grey, which the median cut turns grey too
        image = image.convert("RGB").quantize(64, method=Quantize.FASTOCTREE, dither=Dither.NONE)
    buffer = io.BytesIO()
    image.save(buffer, format="png", optimize=True, compress_type=zlib.Z_RLE if of_sound else -1)
    return buffer.getvalue()


def figure_png(figure: Figure, *, dpi: float | None = None) -> bytes:
    """A figure as PNG; letters that matplotlib's font lacks are boxes, without a warning for each."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(buffer, format="png", dpi=dpi or "figure")
    return buffer.getvalue()


def plot_boxes(
    spectrogram: Spectrogram,
    *,
    truth: pd.DataFrame | None = None,
    predictions: pd.DataFrame | None = None,
    title: str = "",
) -> Figure:
    """A figure of a spectrogram with the boxes in view.

    Args:
        spectrogram: the sound.
        truth: events of this recording, drawn solid green; the legend calls them detections where a detector made them.
        predictions: events of this recording, drawn dashed blue with their score.
        title: written above, on the left.
    """
    figure = new_figure(12.0, 4.6, dpi=150)
    axes = figure.add_subplot()
    draw_sound(axes, spectrogram)
    axes.set_xlabel("Time (s)", fontsize=11)
    axes.set_ylabel("Frequency (kHz)", fontsize=11)
    axes.tick_params(labelsize=10)
    legend: list[Any] = []
    if truth is not None:
        shown = boxes_in_view(truth, spectrogram)
        name = f"{'detection' if is_detected(truth).any() else 'truth'} ({len(shown)})"
        legend.append(draw_boxes(axes, shown, spectrogram, name, TRUTH_COLOUR, "solid"))
    if predictions is not None:
        shown = boxes_in_view(predictions, spectrogram)
        name = f"prediction ({len(shown)})"
        legend.append(draw_boxes(axes, shown, spectrogram, name, PREDICTION_COLOUR, (0, (4, 2))))
        if len(shown) <= _MAX_SCORES:
            _write_scores(axes, shown, spectrogram)
    axes.set_title(escape_mathtext(title), loc="left", fontsize=11)
    if legend:
        # outside the data, at the height of the title
        axes.legend(
            handles=legend,
            loc="lower right",
            bbox_to_anchor=(1.0, 1.0),
            ncols=len(legend),
            frameon=False,
            fontsize=10,
            borderaxespad=0.2,
        )
    return figure


def draw_spectrogram(
    recording: str | Path,
    out: str | Path,
    *,
    truth: pd.DataFrame | None = None,
    predictions: pd.DataFrame | None = None,
    start_s: float = 0.0,
    end_s: float | None = None,
    front_end: FrontEnd | None = None,
) -> Path:
    """Draw a recording, or a span of it, with boxes, to a PNG file.

    Args:
        recording: the audio file.
        out: the picture; its folder is made if need be.
        truth: events of this recording, drawn solid green.
        predictions: events of this recording, drawn dashed blue with their score.
        start_s: seconds from the start of the recording.
        end_s: end of the span; the end of the recording by default.
        front_end: band and bins; the paper's by default.

    Returns:
        The path written.
    """
    spectrogram = compute_spectrogram(recording, front_end=front_end, start_s=start_s, end_s=end_s)
    figure = plot_boxes(spectrogram, truth=truth, predictions=predictions, title=Path(recording).name)
    path = Path(out)
    write_atomic(path, figure_png(figure))
    return path


def frequency_ticks(front_end: FrontEnd, *, max_ticks: int) -> FloatArray:
    """Round frequencies in hertz that are spread over the mel axis without crowding."""
    apart = (front_end.n_bins + 1) / max_ticks
    decades = 10.0 ** np.arange(math.floor(math.log10(max(front_end.low_hz, 1.0))), 7)
    ticks: list[float] = []
    # the roundest first; the others only where there is room
    for leading in ((1.0,), (2.0, 5.0), (1.5, 3.0, 4.0, 6.0, 7.0, 8.0, 9.0)):
        for hz in sorted(float(d * k) for d in decades for k in leading)[::-1]:
            inside = front_end.low_hz <= hz <= front_end.high_hz
            gaps = (
                np.abs(front_end.hz_to_bins(ticks) - front_end.hz_to_bins(hz))
                if ticks
                else np.array([np.inf])
            )
            if inside and gaps.min() >= apart:
                ticks.append(hz)
    return np.sort(np.array(ticks))


def grey_levels(spectrogram: Spectrogram) -> tuple[FloatArray, float, float]:
    """Levels above the background, (T, F), and the levels that are drawn white and black."""
    # the background is subtracted bin by bin, or its slope over the band would hide faint sounds
    values = spectrogram.values - np.percentile(spectrogram.values, _BACKGROUND_PERCENTILE, axis=0)
    low, high = np.percentile(values, _CONTRAST_PERCENTILES).tolist()
    return values, low, max(high, low + _MIN_CONTRAST)


def draw_sound(axes: Axes, spectrogram: Spectrogram, *, max_ticks: int = 13) -> None:
    """A grey spectrogram with a frequency axis of at most this many ticks."""
    front_end = spectrogram.front_end
    values, low, high = grey_levels(spectrogram)
    axes.imshow(
        values.T,
        origin="lower",
        aspect="auto",
        extent=spectrogram.extent,
        cmap="gray_r",
        vmin=low,
        vmax=high,
        interpolation="antialiased",
    )
    axes.set_xlim(spectrogram.start_s, spectrogram.end_s)
    axes.set_ylim(-1.0, front_end.n_bins)  # the edges of the band lie a bin beyond the outer centres
    ticks = frequency_ticks(front_end, max_ticks=max_ticks)
    axes.set_yticks(front_end.hz_to_bins(ticks), [f"{hz / 1_000:g}" for hz in ticks])
    axes.ticklabel_format(axis="x", useOffset=False, style="plain")


def _corners(events: pd.DataFrame, spectrogram: Spectrogram) -> FloatArray:
    """(N, 4) left, bottom, right, top in seconds and bins; frequencies clipped to the band."""
    front_end = spectrogram.front_end
    boxes = boxes_of(events).copy()  # a table from a file may be read-only
    boxes[:, [1, 3]] = front_end.hz_to_bins(np.clip(boxes[:, [1, 3]], front_end.low_hz, front_end.high_hz))
    return boxes


def draw_boxes(
    axes: Axes, events: pd.DataFrame, spectrogram: Spectrogram, name: str, colour: str, line: object
) -> Any:
    """Outline each event; gives the handle for the legend."""
    from matplotlib.collections import PatchCollection
    from matplotlib.lines import Line2D
    from matplotlib.patches import Rectangle

    outlines = [Rectangle((x1, y1), x2 - x1, y2 - y1) for x1, y1, x2, y2 in _corners(events, spectrogram)]
    axes.add_collection(
        PatchCollection(
            outlines, facecolor="none", edgecolor=colour, linestyle=line, linewidth=1.5, label=name
        ),
        autolim=False,
    )
    return Line2D([], [], color=colour, linestyle=line, linewidth=1.5, label=name)


def _write_scores(axes: Axes, events: pd.DataFrame, spectrogram: Spectrogram) -> None:
    from matplotlib.patheffects import withStroke

    for (left, _, _, top), score in zip(_corners(events, spectrogram), events["score"], strict=True):
        room_above = top < 0.94 * spectrogram.front_end.n_bins
        axes.annotate(
            f"{score:.2f}",
            (max(left, spectrogram.start_s), top),
            xytext=(1, 1) if room_above else (2, -2),
            textcoords="offset points",
            color=PREDICTION_COLOUR,
            fontsize=8,
            va="bottom" if room_above else "top",
            path_effects=[withStroke(linewidth=2, foreground="white")],
        )
