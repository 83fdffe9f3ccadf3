"""How far boxes drawn by eye on pictures, like those that the embedded model learnt from, agree with an expert's.

    python -m mast_studies.checked_agreement --data data/birdeep_am1 data/nbm_xc --out results/checked.json

``drawn_NAME.csv`` holds pieces of a dataset that were boxed as the pool was (``scripts/default_model_checked.csv``), by
the same vision-language model, which had not seen the expert's boxes. They are pieces of the training days of
``birdeep_am1``, and of the first half of ``nbm_xc``. Nothing was trained on them. The expert's boxes are cut to the
pieces and count as the truth; so this also shows how well a careful person does who does not know the expert's habits.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pandas as pd

from mast.data.recordings import load_dataset
from mast.evaluation import Scoring, evaluate
from mast.events import as_events
from mast_studies.record import write_result
from mast_studies.script import run_script
from mast_studies.zero_shot_measure import as_row

DRAWN = Path(__file__).resolve().parent


def to_recording_times(drawn: pd.DataFrame) -> pd.DataFrame:
    """Boxes in pieces, as events in the recordings that the pieces come from."""
    drawn = drawn.dropna(subset="start_s")
    times = {name: drawn[name] + drawn["from_s"] for name in ("start_s", "end_s")}
    table = drawn.assign(**times, score=1.0, label="").rename(columns={"file": "recording"})
    return as_events(table.drop(columns=["from_s", "to_s"]))


def clip_to_pieces(truth: pd.DataFrame, pieces: pd.DataFrame) -> pd.DataFrame:
    """The part of each box that lies in a piece; a box that reaches into two pieces becomes two."""
    both = truth.merge(pieces, on="recording")
    both = both[(both["start_s"] < both["to_s"]) & (both["end_s"] > both["from_s"])]
    start_s, end_s = both["start_s"].clip(lower=both["from_s"]), both["end_s"].clip(upper=both["to_s"])
    return as_events(both.assign(start_s=start_s, end_s=end_s).drop(columns=["from_s", "to_s"]))


def measure_agreement(data: Path, table: pd.DataFrame, seed: int) -> dict[str, Any]:
    """Compare what was drawn in pieces of a dataset with its own boxes, with intervals over recordings."""
    pieces = table[["file", "from_s", "to_s"]].drop_duplicates().rename(columns={"file": "recording"})
    truth = clip_to_pieces(load_dataset(data).annotations.events, pieces)
    reviewed = pieces.rename(columns={"from_s": "start_s", "to_s": "end_s"})
    found = evaluate(truth, to_recording_times(table), reviewed=reviewed, scoring=Scoring(), seed=seed)
    return as_row(found) | {
        "pieces": len(pieces),
        "boxes_of_the_expert": len(truth),
        "boxes_drawn": len(table.dropna()),
    }


def main() -> None:
    """Read the options, compare, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="the experts' datasets")
    parser.add_argument("--drawn", type=Path, default=DRAWN, help="folder with drawn_NAME.csv for each")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    figures = {
        data.name: measure_agreement(
            data, pd.read_csv(options.drawn / f"drawn_{data.name}.csv"), options.seed
        )
        for data in options.data
    }
    write_result(options.out, figures, seed=options.seed)
    for name, one in figures.items():
        print(name, "F1", one["f1"], one["f1_interval"])


if __name__ == "__main__":
    run_script(main)
