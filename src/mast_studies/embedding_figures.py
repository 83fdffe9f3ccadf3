"""Pictures of embeddings: retrieval by setting, and planes of chunks and boxes. Legends stand outside the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mast.reports.spectrogram import escape_mathtext
from mast.retrieval.clusters import MIN_EVENTS
from mast_studies.embedding_tables import SETTINGS, WAYS, TableCell, place_name
from mast_studies.figures import empty_figure, plot_intervals, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# colour-blind readers can tell the first five apart; colours of similar hue differ in lightness
_COLOURS = (
    "#1b6ca8",
    "#d98c21",
    "#2b7a78",
    "#a83232",
    "#7a4fa3",
    "#8fb3d9",
    "#8a6d3b",
    "#d77fb3",
    "#6b8e23",
    "#222222",
)
_OTHER = "#c9ced3"
_SETTING_STYLE = {"oracle": ("#1b6ca8", "s"), "oracle_found": ("#8fb3d9", "D"), "detected": ("#d98c21", "o")}
_KIND_STYLE = {  # drawn in this order: what would hide most of the rest comes first
    "detection of nothing annotated": ("#aab2ba", "o"),
    "true box": ("#1b6ca8", "s"),
    "detection, IoU ≥ 0.5": ("#d98c21", "o"),
}
_NAMED = len(_COLOURS)


def draw_retrieval(cells: Sequence[TableCell]) -> Figure:
    """Top-1 with intervals: a row per dataset, a column per part, a line per way of comparing, a mark per setting."""
    top1 = [cell for cell in cells if cell.measure == "top1"]
    datasets, parts = _unique(c.dataset for c in top1), _unique(c.part for c in top1)
    ways = [way for way in WAYS if any(c.way == way for c in top1)]
    figure = empty_figure(3.3 * len(parts) + 2.6, (0.62 * len(ways) + 1.0) * len(datasets) + 0.8)
    axes = figure.subplots(len(datasets), len(parts), sharex=True, sharey=True, squeeze=False)
    for row, dataset in enumerate(datasets):
        for column, part in enumerate(parts):
            axis = axes[row, column]
            own = [c for c in top1 if (c.dataset, c.part) == (dataset, part)]
            for shift, (setting, name) in zip((-0.24, 0.0, 0.24), SETTINGS.items(), strict=True):
                colour, mark = _SETTING_STYLE[setting]
                here = [c for c in own if c.line == name]
                at = [ways.index(c.way) + shift for c in here if c.way in ways]
                plot_intervals(
                    axis, at, [c.score for c in here if c.way in ways], colour, mark, horizontal=True
                )
                chance = [c.score.value for c in here if c.way == "random"]
                if chance:
                    axis.axvline(chance[0], color=colour, linewidth=1.0, linestyle=(0, (2, 2)), zorder=0)
            for place in range(len(ways) - 1):
                axis.axhline(place + 0.5, color="0.92", linewidth=0.8, zorder=0)
            axis.set_yticks(range(len(ways)), [WAYS[way] for way in ways])
            axis.set_ylim(len(ways) - 0.5, -0.5)
            axis.set_xlim(-0.02, 1.02)
            axis.set_title(place_name(dataset.replace("_", " "), part), loc="left", fontsize=10)
            tidy(axis, grid="x")
            if row == len(datasets) - 1:
                axis.set_xlabel("Top-1 accuracy")
    handles = [_marker_handle(*_SETTING_STYLE[setting], name) for setting, name in SETTINGS.items()]
    handles.append(_line_handle("0.4", "random order"))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=9)
    figure.suptitle(
        "Retrieval: is the nearest training box of the same label?", fontsize=11, x=0.01, ha="left"
    )
    return figure


def draw_chunks(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """A row per dataset; chunks by site, by hour of the day, by number of annotated events."""
    figure = empty_figure(14.0, 4.3 * len(tables) + 0.4)
    rows = _subfigure_rows(figure, len(tables))
    for part, (dataset, table) in zip(rows, tables.items(), strict=True):
        points = table[table["x"].notna()]
        points = points.iloc[np.random.default_rng(0).permutation(len(points))]  # no group is always on top
        site, hour, events = part.subplots(1, 3)
        name = dataset.replace("_", " ")
        _scatter_by_name(site, points, "site", f"{name}: {len(points):,} chunks by site", "site not known")
        _scatter_by_number(
            part,
            hour,
            points["hour"],
            points,
            title="by hour of the day",
            colours="twilight_shifted",
            ends=(0, 24),
            label="hour of the day",
        )
        limit = max(1.0, float(np.percentile(points["events"], 98)))
        label = "annotated events in the chunk"
        if points["events"].max() > limit:
            label += f" ({limit:.0f} and more alike)"
        _scatter_by_number(
            part,
            events,
            points["events"],
            points,
            title="by number of annotated events",
            colours="viridis",
            ends=(0, limit),
            label=label,
        )
    return figure


def draw_boxes(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """A row per dataset; boxes by label, and by kind: true, detected, detected where nothing is annotated."""
    figure = empty_figure(13.5, 4.9 * len(tables) + 0.4)
    rows = _subfigure_rows(figure, len(tables))
    for part, (dataset, table) in zip(rows, tables.items(), strict=True):
        points = table[table["x"].notna()]
        points = points.iloc[np.random.default_rng(0).permutation(len(points))]
        label, kind = part.subplots(1, 2)
        name = dataset.replace("_", " ")
        title = f"{name}: {len(points):,} boxes by label (squares: true, circles: detected)"
        _scatter_by_name(label, points, "label", title, "without a label", marks=True)
        _scatter_by_kind(kind, points)
    return figure


def _scatter_by_name(
    axis: Axes, points: pd.DataFrame, column: str, title: str, unnamed_label: str, *, marks: bool = False
) -> None:
    """Colours for the commonest names; the rest is grey, and drawn underneath."""
    counts = points.loc[points[column] != "", column].value_counts()
    chosen = sorted(counts.index[:_NAMED])
    rest = len(counts) - len(chosen)
    groups: list[tuple[str, str, pd.DataFrame]] = []
    if len(without := points[points[column] == ""]):
        groups.append((unnamed_label, "#e6e9ec", without))
    if rest:
        others = points[(points[column] != "") & ~points[column].isin(chosen)]
        groups.append((f"{rest} other{'s' if rest > 1 else ''}", _OTHER, others))
    groups += [(str(n), c, points[points[column] == n]) for n, c in zip(chosen, _COLOURS, strict=False)]
    handles, size = [], _marker_size(len(points))
    for name, colour, own in groups:
        if marks:
            for kind, mark in (("truth", "s"), ("detected", "o")):
                _scatter(axis, own[own["kind"] == kind], colour, mark, size)
        else:
            _scatter(axis, own, colour, "o", size)
        handles.append(
            _marker_handle(colour, "s" if marks else "o", escape_mathtext(f"{_shorten(name)} ({len(own):,})"))
        )
    handles = [*handles[len(groups) - len(chosen) :], *handles[: len(groups) - len(chosen)]]  # grey ones last
    _add_legend(axis, handles)
    _label_plane(axis, title, len(points))


def _scatter_by_number(
    figure: Any,
    axis: Axes,
    values: pd.Series[float],
    points: pd.DataFrame,
    *,
    title: str,
    colours: str,
    ends: tuple[float, float],
    label: str,
) -> None:
    """Points on a colour scale, with a colour bar next to the axes."""
    known = values.notna()
    _scatter(axis, points[~known], _OTHER, "o", _marker_size(len(points)))
    shown = axis.scatter(
        points.loc[known, "x"],
        points.loc[known, "y"],
        c=values[known].to_numpy(dtype=np.float64),
        cmap=colours,
        vmin=ends[0],
        vmax=ends[1],
        s=_marker_size(len(points)),
        linewidths=0,
        alpha=0.85,
    )
    bar = figure.colorbar(shown, ax=axis, fraction=0.05, pad=0.02)
    bar.set_label(label if known.any() else f"{label}: not known", fontsize=9)
    bar.solids.set_alpha(1.0)
    if ends == (0, 24):
        bar.set_ticks([0, 6, 12, 18, 24])
    _label_plane(axis, title, len(points))


def _scatter_by_kind(axis: Axes, points: pd.DataFrame) -> None:
    detected = points["kind"] == "detected"
    groups = dict(
        zip(
            _KIND_STYLE,
            (
                points[detected & ~points["matched"]],
                points[~detected],
                points[detected & points["matched"]],
            ),
            strict=True,
        )
    )
    handles = []
    for name, own in groups.items():
        if len(own):
            _scatter(axis, own, *_KIND_STYLE[name], _marker_size(len(points)))
            handles.append(_marker_handle(*_KIND_STYLE[name], f"{name} ({len(own):,})"))
    _add_legend(axis, handles)
    _label_plane(axis, "the same boxes: true and detected", len(points))


def _scatter(axis: Axes, points: pd.DataFrame, colour: str, mark: str, size: float) -> None:
    axis.scatter(
        points["x"],
        points["y"],
        s=size,
        c=colour,
        marker=mark,
        linewidths=0.3,
        edgecolors="white",
        alpha=0.85,
    )


def _label_plane(axis: Axes, title: str, count: int) -> None:
    """Label the axes of a plane: it has no units, only which points are close together matters."""
    name = "UMAP" if count >= MIN_EVENTS else "direction"
    axis.set_xlabel(f"{name} 1", fontsize=9)
    axis.set_ylabel(f"{name} 2", fontsize=9)
    axis.set_xticks([])
    axis.set_yticks([])
    axis.set_title(title, loc="left", fontsize=10)
    axis.spines[["top", "right"]].set_visible(False)


def _add_legend(axis: Axes, handles: Sequence[Any]) -> None:
    axis.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
        frameon=False,
        fontsize=8,
        handletextpad=0.2,
    )


def _subfigure_rows(figure: Figure, count: int) -> list[Any]:
    found = figure.subfigures(count, 1, squeeze=False)
    return list(found[:, 0])


def _marker_size(count: int) -> float:
    return float(np.clip(16_000 / max(count, 1), 8.0, 26.0))


def _marker_handle(colour: str, mark: str, label: str) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], color=colour, marker=mark, linestyle="none", markersize=6, label=label)


def _line_handle(colour: str, label: str) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], color=colour, linestyle=(0, (2, 2)), label=label)


def _shorten(name: str) -> str:
    return name if len(name) <= 26 else f"{name[:25]}…"


def _unique(values: Any) -> list[str]:
    return list(dict.fromkeys(values))
