"""Pictures of a self-training run: metrics, counts, histograms and samples, as PNG for any page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from mast.arrays import FloatArray
from mast.data.recordings import Dataset
from mast.errors import AudioError
from mast.events import as_events
from mast.grid import FrontEnd
from mast.reports.fit_verdict import part_title
from mast.reports.round_numbers import SelfTrainingRun, read_rounds, round_summary
from mast.reports.spectrogram import (
    TRUTH_COLOUR,
    compute_spectrogram,
    escape_mathtext,
    figure_png,
    frequency_ticks,
    new_figure,
    plot_boxes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ROUND_COLOURS = ("#7fb2f0", "#1558d6", "#0a2a6b", "#000000")  # later is darker
# validation comes first; the rest by how far they are from the training data, then any others
_PART_COLOURS = {"test": "#5a5a5a", "temporal_ood": "#d97706", "site_ood": "#b91c1c"}
_MORE_COLOURS = ("#7c3aed", "#0e7490", "#be185d", "#4d7c0f")
_HISTOGRAM_BINS = 24  # our choice
_DPI = 110


@dataclass(frozen=True)
class Picture:
    """A picture for a page."""

    title: str
    png: bytes
    caption: str


def round_pictures(run: Path | SelfTrainingRun, *, n_samples: int = 3) -> list[Picture]:
    """All pictures of a run, in the order of a page: metrics, counts, histograms, samples."""
    read = read_rounds(run) if isinstance(run, Path) else run
    pictures = [_metrics_picture(read), _counts_picture(read), _histogram_picture(read)]
    return pictures + sample_pictures(read, n_samples=n_samples)


def sample_pictures(run: SelfTrainingRun, *, n_samples: int = 3) -> list[Picture]:
    """A few chunks in every round that labelled them, with their pseudo-boxes; drawn from those where any were found.

    A chunk whose recording is no longer there is left out.
    """
    if not run.pseudo:
        return []
    chunks = ["chunk", "chunk_start_s", "root", "recording", "site"]
    every = pd.concat(run.pseudo.values())[chunks].drop_duplicates("chunk").sort_values("chunk")
    order = np.random.default_rng([run.seed, 21]).permutation(len(every))
    pictures: list[Picture] = []
    drawn = 0
    for at in order:
        chunk, start_s = int(every["chunk"].iloc[at]), float(every["chunk_start_s"].iloc[at])
        root, recording, site = (str(every[name].iloc[at]) for name in ("root", "recording", "site"))
        path = Dataset(Path(root), pd.DataFrame()).path(recording)
        try:
            sound = compute_spectrogram(
                path, front_end=run.front_end, start_s=start_s, end_s=start_s + run.front_end.chunk_s
            )
        except AudioError:
            continue
        for number, events in run.pseudo.items():
            if run.labelled_chunks and chunk not in run.labelled_chunks[number]:
                continue
            own = as_events(events[events["chunk"] == chunk])
            figure = plot_boxes(sound, predictions=own, title=f"Round {number}")
            figure.set_size_inches(8.0, 3.2)
            pictures.append(
                Picture(
                    f"Round {number}: {recording} at {start_s:g} s",
                    figure_png(figure, dpi=90),
                    f"{f'Site {site}, ' if site else ''}{len(own)} pseudo-boxes.",
                )
            )
        drawn += 1
        if drawn == n_samples:
            break
    return pictures


def _tidy(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=9)


def _metrics_picture(run: SelfTrainingRun) -> Picture:
    rows = run.rows
    figure = new_figure(9.0, 3.6)
    axes = figure.add_subplot()
    x = np.arange(len(rows))
    more = iter(_MORE_COLOURS * (1 + len(run.parts)))
    lines = [("validation", "f1", "#1558d6")]
    lines += [
        (escape_mathtext(part_title(p)), f"{p}_f1", _PART_COLOURS.get(p) or next(more)) for p in run.parts
    ]
    for name, column, colour in lines:
        width = 2.4 if column == "f1" else 1.6
        axes.plot(x, rows[column], color=colour, marker="o", markersize=5, linewidth=width, label=name)
    kept = int(np.flatnonzero(rows["kept"])[0])
    axes.axvline(kept, color="0.92", linewidth=16, zorder=0)
    axes.annotate(
        "kept",
        (kept, 1.0),
        xycoords=("data", "axes fraction"),
        ha="center",
        va="bottom",
        fontsize=9,
        color="0.35",
    )
    labels = [
        "initial" if r == 0 else f"round {r}\n{s}" for r, s in zip(rows["round"], rows["stage"], strict=True)
    ]
    axes.set_xticks(x, labels)
    axes.set_xlim(-0.3, len(rows) - 0.7)
    axes.set_ylim(0, 1)
    axes.set_ylabel("F1")
    axes.grid(axis="y", color="0.9")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=9)
    _tidy(axes)
    other = "; the other lines played no part" if run.parts else ""
    return Picture(
        "F1 after each stage", figure_png(figure, dpi=_DPI), f"Choices are made on validation alone{other}."
    )


def _counts_picture(run: SelfTrainingRun) -> Picture:
    summary = round_summary(run)
    shared = summary[summary["in_previous"].notna() | summary["of_previous"].notna()]
    figure = new_figure(9.0, 2.9)
    panels = figure.subplots(1, 2 if len(shared) else 1, squeeze=False)[0]
    names = [f"round {n}" for n in summary["round"]]
    bars = panels[0].bar(names, summary["boxes"], color=[_colour(n) for n in summary["round"]], width=0.5)
    panels[0].bar_label(bars, fontsize=9)
    panels[0].set_ylabel("pseudo-boxes")
    panels[0].margins(x=0.4, y=0.15)
    _tidy(panels[0])
    helped = f", together with {', '.join(run.teachers)}," if run.teachers else ""
    caption = f"Boxes that the detector of the round before{helped} found in the unlabelled sound."
    if len(shared):
        x = np.arange(len(shared))
        for shift, column, colour, name in (
            (-0.17, "in_previous", "#1558d6", "of its boxes, also found the round before"),
            (0.17, "of_previous", "0.65", "of the round before's boxes, found again"),
        ):
            bars = panels[1].bar(x + shift, shared[column], width=0.3, color=colour, label=name)
            panels[1].bar_label(bars, fmt="{:.0%}", fontsize=9)
        panels[1].set_xticks(x, [f"round {n}" for n in shared["round"]])
        panels[1].set_xlim(-0.8, len(shared) - 0.2)
        panels[1].set_ylim(0, 1.08)
        panels[1].yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        panels[1].set_ylabel("share")
        panels[1].legend(
            loc="lower center",
            bbox_to_anchor=(0.5, 1.0),
            ncols=1,
            frameon=False,
            fontsize=9,
            borderaxespad=0.2,
        )
        _tidy(panels[1])
        caption += " Two rounds agree on a box where theirs overlap by an IoU of 0.5 or more."
    return Picture("Pseudo-boxes of each round", figure_png(figure, dpi=_DPI), caption)


def _histogram_picture(run: SelfTrainingRun) -> Picture:
    figure = new_figure(9.0, 5.4)
    panels = figure.subplots(2, 2).ravel()
    sets = {0: run.expert, **run.pseudo}
    length = {n: _extents(e, "start_s", "end_s") for n, e in sets.items()}
    _log_histogram(panels[0], length, "length (s)")

    front_end = run.front_end
    centre = {n: _centre_bins(e, front_end) for n, e in sets.items()}
    _histogram(
        panels[1], centre, np.linspace(-1, front_end.n_bins, _HISTOGRAM_BINS + 1), "centre (kHz, mel scale)"
    )
    ticks = frequency_ticks(front_end, max_ticks=9)
    panels[1].set_xticks(front_end.hz_to_bins(ticks), [f"{hz / 1_000:g}" for hz in ticks])

    band = {n: _extents(e, "low_hz", "high_hz") / 1_000 for n, e in sets.items()}
    _log_histogram(panels[2], band, "bandwidth (kHz)")

    score = {n: e["score"].to_numpy(dtype=np.float64) for n, e in run.pseudo.items()}
    _histogram(panels[3], score, np.linspace(0, 1, _HISTOGRAM_BINS + 1), "score")
    last = run.rows["pseudo_threshold"].iloc[-1]
    if np.isfinite(last):
        panels[3].axvline(last, color="0.4", linewidth=1, linestyle=":")
        panels[3].annotate(
            f" q = {last:.2g}", (last, 0.97), xycoords=("data", "axes fraction"), fontsize=9, va="top"
        )
    for axes in panels[::2]:
        axes.set_ylabel("share of boxes")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False, fontsize=9)
    return Picture(
        "Pseudo-boxes beside the expert's",
        figure_png(figure, dpi=_DPI),
        "Where the lines leave the green, pseudo-labels teach something that is not in the expert's boxes: new sounds, "
        "or mistakes. The samples show which.",
    )


def _histogram(axes: Axes, values: dict[int, FloatArray], edges: FloatArray, name: str) -> None:
    """Shares of boxes: the expert's (number 0) filled, rounds as lines."""
    for number, own in values.items():
        if not len(own):
            continue
        weights = np.full(len(own), 1 / len(own))
        clipped = np.clip(own, edges[0], edges[-1])
        bins = edges.tolist()
        if number == 0:
            axes.hist(
                clipped, bins, weights=weights, color=TRUTH_COLOUR, alpha=0.3, label=f"expert ({len(own)})"
            )
        else:
            axes.hist(
                clipped,
                bins,
                weights=weights,
                histtype="step",
                linewidth=1.8,
                color=_colour(number),
                label=f"round {number} ({len(own)})",
            )
    axes.set_xlabel(name, fontsize=10)
    _tidy(axes)


def _colour(number: int) -> str:
    return _ROUND_COLOURS[min(number, len(_ROUND_COLOURS)) - 1]


def _extents(events: pd.DataFrame, low: str, high: str) -> FloatArray:
    return (events[high] - events[low]).to_numpy(dtype=np.float64)


def _centre_bins(events: pd.DataFrame, front_end: FrontEnd) -> FloatArray:
    """Middle of each box on the mel axis; boxes that reach beyond the band are clipped to it."""
    edges = front_end.hz_to_bins(
        np.clip(events[["low_hz", "high_hz"]].to_numpy(dtype=np.float64), front_end.low_hz, front_end.high_hz)
    )
    return np.asarray(edges.mean(axis=1), dtype=np.float64)


def _log_histogram(axes: Axes, values: dict[int, FloatArray], name: str) -> None:
    """The same with bins of equal ratio that hold all values above 0."""
    every = np.concatenate(list(values.values()))
    every = every[every > 0]
    low, high = (float(every.min()), float(every.max())) if len(every) else (0.1, 1.0)
    edges = np.geomspace(low / 1.05, high * 1.05, _HISTOGRAM_BINS + 1)
    _histogram(axes, values, edges, name)
    axes.set_xscale("log")
    round_numbers = [k * 10.0**d for d in range(-6, 4) for k in (1, 2, 5)]
    ticks = [t for t in round_numbers if edges[0] <= t <= edges[-1]]
    axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axes.set_xticks([], minor=True)
