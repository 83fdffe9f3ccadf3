"""How far boxes drawn by eye on pictures agree with an expert's: those that the embedded model learnt from.

    python experiments/checked_agreement.py --data data/birdeep_am1 --out results/checked.json

``scripts/default_model_checked_birds.csv`` holds pieces of the expert's training days, boxed among the pool's by the
same eyes, which did not know whose they were. The expert's boxes are cut to the pieces, and taken for the truth.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from mast.data.recordings import load_dataset
from mast.evaluation import Scoring, evaluate
from mast.events import as_events
from mast.experiments.record import write_result

DRAWN = Path(__file__).resolve().parents[1] / "scripts" / "default_model_checked_birds.csv"


def from_the_start(drawn: pd.DataFrame) -> pd.DataFrame:
    """Boxes of pieces as events of their recordings."""
    drawn = drawn.dropna(subset="start_s")
    times = {name: drawn[name] + drawn["from_s"] for name in ("start_s", "end_s")}
    table = drawn.assign(**times, score=1.0, label="").rename(columns={"file": "recording"})
    return as_events(table.drop(columns=["from_s", "to_s"]))


def cut(truth: pd.DataFrame, pieces: pd.DataFrame) -> pd.DataFrame:
    """What of each box lies in a piece; a box that lies in two is two."""
    both = truth.merge(pieces, on="recording")
    both = both[(both["start_s"] < both["to_s"]) & (both["end_s"] > both["from_s"])]
    start_s, end_s = both["start_s"].clip(lower=both["from_s"]), both["end_s"].clip(upper=both["to_s"])
    return as_events(both.assign(start_s=start_s, end_s=end_s).drop(columns=["from_s", "to_s"]))


def main() -> None:
    """Read the options, compare, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="the expert's dataset")
    parser.add_argument("--drawn", type=Path, default=DRAWN, help="pieces and what was drawn in them")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    table = pd.read_csv(options.drawn)
    pieces = table[["file", "from_s", "to_s"]].drop_duplicates().rename(columns={"file": "recording"})
    truth = cut(load_dataset(options.data).annotations.events, pieces)
    reviewed = pieces.rename(columns={"from_s": "start_s", "to_s": "end_s"})
    found = evaluate(
        truth, from_the_start(table), reviewed=reviewed, scoring=Scoring(), resamples=2_000, seed=options.seed
    )
    names = ("precision", "recall", "f1", "miou")
    figures = {name: round(float(found.metrics[name]), 4) for name in names}
    intervals = {f"{name}_interval": [round(float(x), 4) for x in found.intervals[name]] for name in names}
    counts = {"pieces": len(pieces), "boxes_of_the_expert": len(truth), "boxes_drawn": len(table.dropna())}
    print(figures | counts)
    write_result(
        options.out, figures | intervals | counts, seed=options.seed, data={options.data.name: counts}
    )


if __name__ == "__main__":
    main()
