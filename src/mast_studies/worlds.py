"""Several worlds of soundscape-bench together: the results of each, and their mean.

    python -m mast_studies.worlds results/experiments/world_{3,4,6,7}/premise.json --out results/worlds.json
    python -m mast_studies.worlds results/experiments/world_{6,8,9}/premise.json --drawn taught_st taught_st_1

A picture next to the file shows how far MAST with self-training is ahead of the reference, world by world.

Each file is what `mast experiment premise` wrote for one world, trained once per system. Worlds share no recording, so
their differences are independent, and the interval of their mean needs only these files: it covers the draw of
recordings in each world, by the files' own intervals, and run-to-run variation (:data:`TRAINING_SD`).
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mast.errors import MastError
from mast_studies.figures import PART_STYLE, empty_figure, plot_intervals, tidy
from mast_studies.record import write_result
from mast_studies.script import run_script
from mast_studies.study_tables import METRICS, PARTS, Score

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Standard deviation of F1 and AP50 at other sites between trainings of one recipe in one world. Three trainings of MAST
# from scratch had F1 0.545, 0.522, 0.528 in world 0 and 0.559, 0.553, 0.559 in world 1; AP50 varied less.
TRAINING_SD = 0.01
POOLED_METRICS = ("f1", "ap50")
_NORMAL_95 = 1.96


class Pooled(NamedTuple):
    """A mean over worlds with its 95 % interval; None where a world's own interval is not known."""

    mean: float
    low: float | None
    high: float | None


def pool(differences: Sequence[Sequence[float | None]], *, training_sd: float = TRAINING_SD) -> Pooled:
    """The mean of one difference over worlds.

    Args:
        differences: (difference, low, high) of each world; the interval is over its recordings.
        training_sd: of one training; a difference has the variation of two.
    """
    mean = sum(value for value, _, _ in differences if value is not None) / len(differences)
    variance = 0.0
    for _, low, high in differences:
        if low is None or high is None:
            return Pooled(mean, None, None)
        variance += ((high - low) / (2 * _NORMAL_95)) ** 2 + 2 * training_sd**2
    half = _NORMAL_95 * math.sqrt(variance) / len(differences)
    return Pooled(mean, mean - half, mean + half)


def combine_worlds(worlds: Mapping[int, Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """For each part and system: its values in every world that has it, and the mean of its differences.

    Args:
        worlds: by seed, the rows of its table.
    """
    by_key = {
        seed: {(row["part"], row["system"]): row for row in rows if row["part"] in PARTS}
        for seed, rows in worlds.items()
    }
    keys = dict.fromkeys(key for rows in by_key.values() for key in rows)
    found = []
    for part, system in keys:
        own = {seed: rows[part, system] for seed, rows in by_key.items() if (part, system) in rows}
        found.append(
            {
                "part": part,
                "system": system,
                "label": next(iter(own.values()))["label"],
                "worlds": list(own),
                **{name: [row[name] for row in own.values()] for name in POOLED_METRICS},
                "differences": _pool_metrics([row["differences"] for row in own.values()]),
                "gained": _pool_metrics([row.get("gained", {}) for row in own.values()]),
            }
        )
    return found


def _pool_metrics(differences: Sequence[Mapping[str, Sequence[float | None]]]) -> dict[str, Any]:
    """For each metric, the worlds' differences and their mean; nothing unless every world has a difference."""
    return {
        name: {
            "by_world": [one[name] for one in differences],
            **pool([one[name] for one in differences])._asdict(),
        }
        for name in POOLED_METRICS
        if all(name in one for one in differences)
    }


def draw(rows: Sequence[Mapping[str, Any]], *, title: str) -> Figure:
    """How far a system is ahead: part by part, a coloured mark for each world and a black one for their mean.

    Args:
        rows: of one system, as :func:`combine_worlds` makes them.
        title: above the figure.
    """
    figure = empty_figure(7.6, 1.3 + 0.24 * sum(len(row["worlds"]) + 2 for row in rows))
    axes = figure.subplots(1, len(POOLED_METRICS), sharey=True, sharex=True)
    for axis, name in zip(axes, POOLED_METRICS, strict=True):
        place, ticks = 0, {}
        for row in rows:
            colour, mark = PART_STYLE[row["part"]]
            own = row["differences"][name]
            for world, values in zip(row["worlds"], own["by_world"], strict=True):
                plot_intervals(axis, [place], [Score(*values)], colour, mark, horizontal=True)
                ticks[place] = f"{PARTS[row['part']]}, world {world}"
                place += 1
            mean = Score(own["mean"], own["low"], own["high"])
            plot_intervals(axis, [place], [mean], "black", mark, horizontal=True)
            ticks[place] = f"{PARTS[row['part']]}, mean"
            place += 2
        axis.axvline(0.0, color="0.4", linewidth=0.8, zorder=0)
        axis.set_yticks(list(ticks), list(ticks.values()))
        axis.set_ylim(place - 1.4, -0.6)
        axis.margins(x=0.1)  # the last number below the axis stays inside the picture
        axis.locator_params(axis="x", nbins=5)  # more numbers would run into each other
        axis.set_xlabel(f"{METRICS[name]}, difference")
        tidy(axis, grid="x")
    figure.suptitle(title, fontsize=11, x=0.01, ha="left")
    return figure


def with_common_name(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """A world's rows; the first of these systems that it has gets the first name.

    Where self-training was cut short, its first round stands for it.
    """
    there = {row["system"] for row in rows}
    own = next((name for name in names if name in there), None)
    return [{**row, "system": names[0]} if row["system"] == own else dict(row) for row in rows]


def load_world(path: Path) -> tuple[int, dict[str, Any]]:
    """The seed and the whole content of one world's file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        seeds = sorted({seed for row in content["figures"]["rows"] for seed in row["seeds"]})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise MastError(f"{path}: not a table that `mast experiment` wrote ({error})") from None
    if len(seeds) != 1:
        raise MastError(f"{path}: holds {len(seeds)} seeds; expected the table of one world")
    return seeds[0], content


def main() -> None:
    """Read the worlds' tables and write them together."""
    parser = argparse.ArgumentParser(description="Several worlds of soundscape-bench together.")
    parser.add_argument("tables", nargs="+", type=Path, help="premise.json of each world")
    parser.add_argument(
        "--drawn",
        nargs="+",
        default=["from_scratch_st"],
        help="the system in the picture, and systems that replace it in worlds that lack it",
    )
    parser.add_argument("--out", type=Path, default=Path("results/worlds.json"))
    args = parser.parse_args()
    loaded = [load_world(path) for path in args.tables]
    worlds = {seed: with_common_name(content["figures"]["rows"], args.drawn) for seed, content in loaded}
    if len(worlds) < len(loaded):
        raise MastError("two tables are of the same world; give each world once")
    trainings = {str(seed): content.get("trainings", []) for seed, content in loaded}
    commits = {seed: sorted({one["commit"] for one in own}) for seed, own in trainings.items()}
    rows = combine_worlds(worlds)
    figures = {"training_sd": TRAINING_SD, "trained_at": commits, "rows": rows}
    write_result(args.out, figures, seed=sorted(worlds), data={"tables": [str(path) for path in args.tables]})
    print(args.out)
    drawn = [row for row in rows if row["system"] == args.drawn[0] and row["differences"]]
    if drawn:
        reference = loaded[0][1]["figures"]["differences_to"]
        picture = args.out.with_suffix(".png")
        draw(drawn, title=f"{drawn[0]['label']}, minus {reference}").savefig(picture)
        print(picture)


if __name__ == "__main__":
    run_script(main)
