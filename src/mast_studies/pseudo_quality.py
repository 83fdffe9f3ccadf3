"""How good pseudo-labels are, where the truth about unlabelled sound is known: π_q and ρ_q of every round.

π_q is the share of pseudo-boxes that are right, ρ_q the share of calls that have one (Prop. "Self-training
improvement"). soundscape-bench keeps the truth next to its unlabelled folder, only for judging, never for learning.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from mast.evaluation import Scoring, evaluate
from mast.selftrain.pseudo import UNLABELLED, sure_pseudo_labels

TRUTH = "unlabelled_truth.csv"
TABLE = "pseudo_quality.csv"
_INSIDE = 0.5  # share of a call that a chunk must hold for the call to count there


def load_truth(folders: tuple[Path, ...]) -> pd.DataFrame | None:
    """The true boxes of unlabelled folders, with ``root``; None where they are not known for all of them."""
    files = [(folder, folder.parent / TRUTH) for folder in folders]
    if not files or not all(path.is_file() for _, path in files):
        return None
    tables = [pd.read_csv(path).assign(root=str(folder)) for folder, path in files]
    return pd.concat(tables, ignore_index=True).rename(columns={"file": "recording"})


def measure_rounds(run: Path, truth: pd.DataFrame) -> pd.DataFrame:
    """One row for each round of a self-training run.

    Args:
        run: the run's folder.
        truth: as :func:`load_truth` returns it.

    Returns:
        ``round, boxes, precision, recall``, and ``recall of …`` by length of the call; also in ``run/TABLE``.
    """
    rows = []
    for path in sorted(run.glob("round-*/pseudo.parquet")):
        chunks = pd.read_parquet(path.with_name(UNLABELLED))
        chunks = chunks.assign(chunk=range(len(chunks)))
        expected = _truth_in_chunks(truth, chunks)
        heard = chunks.assign(
            recording=_recording_names(chunks["chunk"]), end_s=chunks["start_s"] + chunks["valid_s"]
        )
        found = sure_pseudo_labels(path)
        found = found.assign(recording=_recording_names(found["chunk"]))
        result = evaluate(
            expected,
            found,
            reviewed=heard[["recording", "start_s", "end_s"]],
            scoring=Scoring(space="hz"),
            resamples=0,
        )
        by = result.recall_by
        lengths = {
            f"recall of {row['group']}": row["recall"] for _, row in by[by["by"] == "length"].iterrows()
        }
        share = {name: result.metrics[name] for name in ("precision", "recall")}
        number = int(path.parent.name.removeprefix("round-"))
        rows.append({"round": number, "boxes": len(found), **share, **lengths})
    table = pd.DataFrame(rows)
    table.to_csv(run / TABLE, index=False)
    return table


def _recording_names(chunk: pd.Series[int]) -> pd.Series[str]:
    """Each chunk counts as a recording of its own: neighbours overlap, and a call may be labelled in both."""
    return "chunk " + chunk.astype(str)


def _truth_in_chunks(truth: pd.DataFrame, chunks: pd.DataFrame) -> pd.DataFrame:
    """The calls in each chunk, cut at its ends; calls of which less than half lies in it are left out."""
    window = chunks.rename(columns={"start_s": "chunk_s"})[
        ["root", "recording", "chunk", "chunk_s", "valid_s"]
    ]
    both = truth.merge(window, on=["root", "recording"])
    start = both[["start_s", "chunk_s"]].max(axis=1)
    end = pd.concat([both["end_s"], both["chunk_s"] + both["valid_s"]], axis=1).min(axis=1)
    inside = (end - start) >= _INSIDE * (both["end_s"] - both["start_s"])
    cut = both.assign(start_s=start, end_s=end, recording=_recording_names(both["chunk"]))
    return cut[inside].reset_index(drop=True)
