"""Figures of studies: values with their intervals, one panel per dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from mast_studies.study_tables import PARTS, Row, Score

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# colours that colour-blind readers can tell apart, and different marks for print
PART_STYLE = {"test": ("#1b6ca8", "o"), "temporal_ood": ("#d98c21", "s"), "site_ood": ("#a83232", "D")}
_OTHER_STYLES = (("#5c6670", "^"), ("#2b7a78", "v"), ("#7a4fa3", "P"))
STRATEGY_STYLE = {
    "time-balanced": ("#1b6ca8", "o"),
    "random": ("#d98c21", "s"),
    "sequential": ("#a83232", "D"),
}
_SYSTEM_COLOURS = ("#b8c0c8", "#98a3ad", "#7b8791", "#5c6670", "#8fb3d9", "#3f7fbf", "#154a85")
_F1 = "F1 at IoU 0.5"


def part_name(part: str) -> str:
    """A part in words; a dataset elsewhere by its own name."""
    return PARTS.get(part, part.replace("_", " "))


def dot_plot(rows: Sequence[Row], *, title: str = "") -> Figure:
    """A line per system, a mark per part: value and interval. For tables of systems."""
    rows = _with_common_labels(rows)
    datasets, labels = _unique(r.dataset for r in rows), _labels(rows)
    parts = _parts(rows)
    figure = empty_figure(
        4.6 * len(datasets) + 2.4, 1.5 + 0.36 * len(labels) + 0.10 * len(labels) * len(parts)
    )
    axes = figure.subplots(1, len(datasets), sharey=True, squeeze=False)[0]
    for axis, dataset in zip(axes, datasets, strict=True):
        for number, part in enumerate(parts):
            own = [r for r in rows if r.dataset == dataset and r.part == part]
            colour, mark = _part_style(part, parts)
            shift = 0.2 * (number - (len(parts) - 1) / 2)
            places = [labels.index(r.label) + shift for r in own]
            plot_intervals(axis, places, [r.scores["f1"] for r in own], colour, mark, horizontal=True)
        for place in range(len(labels) - 1):
            axis.axhline(place + 0.5, color="0.92", linewidth=0.8, zorder=0)
        axis.set_yticks(range(len(labels)), labels)
        axis.set_ylim(len(labels) - 0.5, -0.5)  # the first on top, as in the table
        axis.set_xlim(-0.02, 1.02)
        axis.set_xlabel(_F1)
        axis.set_title(_dataset_title(rows, dataset), loc="left", fontsize=10)
        tidy(axis, grid="x")
    _legend(figure, {part_name(p): _part_style(p, parts) for p in parts}, title)
    return figure


def bar_chart(rows: Sequence[Row], *, title: str = "") -> Figure:
    """The overview: a group of bars per part, with a bar per system."""
    from matplotlib.patches import Patch

    rows = _with_common_labels(rows)
    datasets, labels, parts = (
        _unique(r.dataset for r in rows),
        _labels(rows),
        _parts(rows),
    )
    figure = empty_figure(max(7.0, 0.32 * len(labels) * len(parts) + 2.5), 3.1 * len(datasets) + 1.1)
    axes = figure.subplots(len(datasets), 1, sharex=True, squeeze=False)[:, 0]
    width = 0.84 / len(labels)
    colours = {
        label: _SYSTEM_COLOURS[i % len(_SYSTEM_COLOURS)]
        for i, label in enumerate(labels, start=max(0, len(_SYSTEM_COLOURS) - len(labels)))
    }
    for axis, dataset in zip(axes, datasets, strict=True):
        for number, label in enumerate(labels):
            own = [r for r in rows if r.dataset == dataset and r.label == label]
            places = [parts.index(r.part) + width * (number - (len(labels) - 1) / 2) for r in own]
            scores = [r.scores["f1"] for r in own]
            heights = [0.0 if np.isnan(s.value) else s.value for s in scores]
            axis.bar(places, heights, width * 0.92, color=colours[label])
            axis.errorbar(
                places,
                heights,
                yerr=_error_bars(scores),
                fmt="none",
                ecolor="0.25",
                elinewidth=1.0,
                capsize=2,
            )
            for place, score in zip(places, scores, strict=True):
                if np.isfinite(score.value):
                    top = score.high if np.isfinite(score.high) else score.value
                    axis.annotate(
                        f"{score.value:.2f}".lstrip("0"),
                        (place, max(top, score.value)),
                        xytext=(0, 2),
                        textcoords="offset points",
                        ha="center",
                        fontsize=7,
                    )
        axis.set_xticks(range(len(parts)), [part_name(p) for p in parts])
        axis.set_ylim(0, 1)
        axis.set_ylabel(_F1)
        axis.set_title(_dataset_title(rows, dataset), loc="left", fontsize=10)
        tidy(axis, grid="y")
        axis.tick_params(axis="x", length=0)
    handles = [Patch(color=colours[label], label=label) for label in labels]
    figure.legend(
        handles=handles, loc="outside lower center", ncols=min(4, len(labels)), frameon=False, fontsize=9
    )
    figure.suptitle(title, fontsize=11, x=0.01, ha="left")
    return figure


def _value_limits(scores: Sequence[Score]) -> tuple[float, float]:
    """From zero to the next fifth above every interval, so that differences are seen in proportion to the values."""
    ends = [end for score in scores for end in score if np.isfinite(end)]
    top = min(1.0, float(np.ceil(5 * max(ends, default=1.0) + 0.05)) / 5)
    return -0.02 * top, 1.02 * top


def line_plot(
    rows: Sequence[Row],
    places: Mapping[str, float],
    series: Mapping[str, str],
    styles: Mapping[str, tuple[str, str]],
    *,
    x_label: str,
    title: str = "",
    logarithmic: bool = False,
    ticks: Mapping[float, str] | None = None,
) -> Figure:
    """Curves over a number that belongs to a system, such as its round or budget.

    Args:
        rows: all rows.
        places: for each system, its position on the horizontal axis.
        series: for each system (or each part, for one curve per part), the curve it belongs to.
        styles: for each curve, colour and mark.
        x_label: label of the horizontal axis.
        title: above the panels.
        logarithmic: whether the horizontal axis is logarithmic.
        ticks: tick labels by position; the number by default.
    """
    datasets = _unique(r.dataset for r in rows)
    positions = [places[r.system] for r in rows]
    offset = 0.02 * ((max(positions) - min(positions)) or 1.0)
    figure = empty_figure((4.4 if ticks is None else 5.2) * len(datasets) + 1.0, 4.1)  # words need more room
    axes = figure.subplots(1, len(datasets), sharey=True, squeeze=False)[0]
    for axis, dataset in zip(axes, datasets, strict=True):
        for number, (curve, (colour, mark)) in enumerate(styles.items()):
            own = [
                r
                for r in rows
                if r.dataset == dataset and curve in (series.get(r.system), series.get(r.part))
            ]
            own = sorted(own, key=lambda r: places[r.system])
            step = number - (len(styles) - 1) / 2  # intervals side by side, not on top of each other
            x = [
                places[r.system] * (1 + 0.02 * step) if logarithmic else places[r.system] + offset * step
                for r in own
            ]
            scores = [r.scores["f1"] for r in own]
            axis.plot(x, [s.value for s in scores], color=colour, linewidth=1.4)
            plot_intervals(axis, x, scores, colour, mark)
        shown = sorted({places[r.system] for r in rows if r.dataset == dataset})
        if logarithmic:
            axis.set_xscale("log")
            axis.minorticks_off()
        if ticks is None:
            axis.set_xticks(shown, [f"{value:g}" for value in shown])
        else:
            axis.set_xticks(shown, [ticks[value] for value in shown], fontsize=8)
        axis.set_xlabel(x_label)
        axis.set_title(_dataset_title(rows, dataset), loc="left", fontsize=10)
        tidy(axis, grid="y")
    axes[0].set_ylim(*_value_limits([r.scores["f1"] for r in rows]))  # shared by all
    axes[0].set_ylabel(_F1)
    used = {curve for r in rows for curve in (series.get(r.system), series.get(r.part))}
    curve_labels = {
        curve: curve + _seed_note(rows, [name for name, own in series.items() if own == curve])
        for curve in styles
        if curve in used
    }
    _legend(figure, {name: styles[curve] for curve, name in curve_labels.items()}, title)
    return figure


def _dataset_title(rows: Sequence[Row], dataset: str) -> str:
    own = [r for r in rows if r.dataset == dataset]
    seeds = max(len(r.seeds) for r in own)
    return f"{dataset.replace('_', ' ')} ({seeds} seed{'s' if seeds > 1 else ''}), 95 % intervals"


def _with_common_labels(rows: Sequence[Row]) -> list[Row]:
    """A system has one name in a picture: where datasets differ, that of the dataset with the most systems."""
    names: dict[str, str] = {}
    for dataset in _datasets_by_size(rows):
        for row in rows:
            if row.dataset == dataset:
                names.setdefault(row.system, row.label)
    return [replace(row, label=names[row.system] + _seed_note(rows, [row.system])) for row in rows]


def _seed_note(rows: Sequence[Row], systems: Sequence[str]) -> str:
    """The note after the name of systems that have fewer seeds than others on their dataset."""
    for dataset in _unique(r.dataset for r in rows):
        seeds = [len(r.seeds) for r in rows if r.dataset == dataset]
        own = [len(r.seeds) for r in rows if r.dataset == dataset and r.system in systems]
        if own and max(own) < max(seeds):
            return f" ({max(own)} of {max(seeds)} seeds)"
    return ""


def _labels(rows: Sequence[Row]) -> list[str]:
    """In the order of the table of the dataset that has the most of them."""
    fullest = _datasets_by_size(rows)
    return _unique(row.label for dataset in fullest for row in rows if row.dataset == dataset)


def _datasets_by_size(rows: Sequence[Row]) -> list[str]:
    """The datasets, the one with the most systems first."""
    systems = {
        name: {row.system for row in rows if row.dataset == name} for name in _unique(r.dataset for r in rows)
    }
    return sorted(systems, key=lambda name: -len(systems[name]))


def _unique(values: Any) -> list[str]:
    return list(dict.fromkeys(values))


def _parts(rows: Sequence[Row]) -> list[str]:
    found = _unique(r.part for r in rows)
    return [*(p for p in PARTS if p in found), *(p for p in found if p not in PARTS)]


def _part_style(part: str, parts: Sequence[str]) -> tuple[str, str]:
    if part in PART_STYLE:
        return PART_STYLE[part]
    others = [p for p in parts if p not in PART_STYLE]
    return _OTHER_STYLES[others.index(part) % len(_OTHER_STYLES)]


def _error_bars(scores: Sequence[Score]) -> list[list[float]]:
    """Lengths of the interval below and above each value; zero where it is not known."""
    below = [max(0.0, s.value - s.low) if np.isfinite(s.low) else 0.0 for s in scores]
    above = [max(0.0, s.high - s.value) if np.isfinite(s.high) else 0.0 for s in scores]
    return [below, above]


def plot_intervals(
    axis: Axes,
    places: Sequence[float],
    scores: Sequence[Score],
    colour: str,
    mark: str,
    *,
    horizontal: bool = False,
) -> None:
    """Marks with intervals; ``horizontal`` puts values on the horizontal axis."""
    values, ends = [s.value for s in scores], _error_bars(scores)
    x, y = (values, places) if horizontal else (places, values)
    axis.errorbar(
        x,
        y,
        xerr=ends if horizontal else None,
        yerr=None if horizontal else ends,
        fmt=mark,
        color=colour,
        markersize=5.5,
        capsize=2.5,
        elinewidth=1.2,
    )


def _legend(figure: Figure, styles: Mapping[str, tuple[str, str]], title: str) -> None:
    """Legend above the panels, away from the data, with the title over it."""
    from matplotlib.lines import Line2D

    if title:
        figure.suptitle(title, fontsize=11, x=0.01, ha="left")
    if len(styles) > 1:
        handles = [
            Line2D([], [], color=colour, marker=mark, linestyle="none", markersize=6, label=name)
            for name, (colour, mark) in styles.items()
        ]
        figure.legend(
            handles=handles, loc="outside lower center", ncols=len(styles), frameon=False, fontsize=9
        )


def tidy(axis: Axes, *, grid: Literal["x", "y"]) -> None:
    """Remove the frame around the data, and add grid lines to read values by."""
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(axis=grid, alpha=0.3)
    axis.set_axisbelow(True)


def empty_figure(width: float, height: float) -> Figure:
    """A figure of this size in inches; needs no screen."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    return figure
