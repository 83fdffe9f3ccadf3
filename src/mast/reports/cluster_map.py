"""The plane of all events, three times: by group, by label, by how new they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mast.reports.spectrogram import escape_mathtext, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MAX_POINTS = 30_000  # more cannot be told apart
_MAX_NAMED = 15  # entries in a legend
_NONE_COLOUR = "#d4d9de"


def draw_map(events: pd.DataFrame, *, seed: int = 0) -> Figure:
    """Three panels of the same points.

    Args:
        events: with ``x``, ``y``, ``cluster`` (−1 for none), ``label`` and ``novelty`` (NaN where not known).
        seed: of the sample that is drawn where there are very many.
    """
    if len(events) > _MAX_POINTS:
        events = events.sample(_MAX_POINTS, random_state=seed).sort_index()
    figure = new_figure(16.5, 5.8, dpi=110)
    left, middle, right = figure.subplots(1, 3)
    size = float(np.clip(6_000 / max(1, len(events)), 2.0, 22.0))
    groups = events["cluster"].map(lambda c: "" if c < 0 else f"{c}")
    _draw_names(left, events, groups, "group", "in no group", size)
    _draw_names(middle, events, events["label"].astype(str), "label", "not annotated", size)
    _draw_novelty(right, events, size)
    for axes in (left, middle, right):
        axes.set_xticks([])
        axes.set_yticks([])
    return figure


def _draw_names(
    axes: Axes, events: pd.DataFrame, names: pd.Series[Any], what: str, none: str, size: float
) -> None:
    """Points coloured by name, the commonest in the legend; those without one are grey and behind the rest."""
    from matplotlib import colormaps

    counts = names[names != ""].value_counts()
    shown = list(counts.index[:_MAX_NAMED])
    colours = colormaps["tab20"].colors  # type: ignore[attr-defined]
    bare, rest = (names == "").to_numpy(), (~names.isin(["", *shown])).to_numpy()
    _draw_points(axes, events[bare], _NONE_COLOUR, f"{none} ({int(bare.sum()):,})", size)
    if rest.any():
        _draw_points(
            axes, events[rest], "#8d98a2", f"{len(counts) - len(shown)} more ({int(rest.sum()):,})", size
        )
    for k, name in enumerate(shown):
        _draw_points(
            axes,
            events[(names == name).to_numpy()],
            colours[k % 20],
            escape_mathtext(f"{name} ({counts[name]:,})"),
            size,
        )
    axes.set_title(f"by {what}: {len(counts)}", loc="left", fontsize=12)
    if len(events):
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8.5, frameon=False, markerscale=2.0)


def _draw_points(axes: Axes, some: pd.DataFrame, colour: Any, name: str, size: float) -> None:
    if len(some):
        axes.scatter(some["x"], some["y"], s=size, color=[colour], linewidths=0, label=name, rasterized=True)


def _draw_novelty(axes: Axes, events: pd.DataFrame, size: float) -> None:
    known = events[events["novelty"].notna()].sort_values("novelty")
    if known.empty:
        axes.set_title("novelty: nothing is annotated", loc="left", fontsize=12)
        _draw_points(axes, events, _NONE_COLOUR, "", size)
        return
    drawn = axes.scatter(
        known["x"], known["y"], s=size, c=known["novelty"], cmap="viridis", linewidths=0, rasterized=True
    )
    bar = axes.figure.colorbar(drawn, ax=axes, shrink=0.8)
    bar.set_label("distance to the nearest annotated event (1 − cosine)", fontsize=10)
    axes.set_title("by novelty", loc="left", fontsize=12)
