"""How far boxes drawn by eye on pictures agree with an expert's: as those that the embedded model learnt from.

    python -m mast_studies.checked_agreement --data data/birdeep_am1 data/nbm_xc --out results/checked.json

``drawn_NAME.csv`` holds pieces of a dataset that were boxed as the pool was (``scripts/default_model_checked.csv``), by
the same vision-language model, which had not seen the expert's boxes: of ``birdeep_am1`` pieces of its training days,
of ``nbm_xc`` its first half. Nothing was trained on them. The expert's boxes are cut to the pieces and taken for the
truth; so this is also how well somebody does who is careful but does not know the expert's habits.
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
    """Boxes of pieces as events of their recordings."""
    drawn = drawn.dropna(subset="start_s")
    times = {name: drawn[name] + drawn["from_s"] for name in ("start_s", "end_s")}
    table = drawn.assign(**times, score=1.0, label="").rename(columns={"file": "recording"})
    return as_events(table.drop(columns=["from_s", "to_s"]))


def clip_to_pieces(truth: pd.DataFrame, pieces: pd.DataFrame) -> pd.DataFrame:
    """What of each box lies in a piece; a box that lies in two is two."""
    both = truth.merge(pieces, on="recording")
    both = both[(both["start_s"] < both["to_s"]) & (both["end_s"] > both["from_s"])]
    start_s, end_s = both["start_s"].clip(lower=both["from_s"]), both["end_s"].clip(upper=both["to_s"])
    return as_events(both.assign(start_s=start_s, end_s=end_s).drop(columns=["from_s", "to_s"]))


def measure_agreement(data: Path, table: pd.DataFrame, seed: int) -> dict[str, Any]:
    """What was drawn in pieces of a dataset against its own boxes, with intervals over recordings."""
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
    parser.add_argument("--drawn", type=Path, default=DRAWN, help="folder with drawn_NAME.csv of each")
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
