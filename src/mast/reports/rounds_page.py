"""What self-training did, round by round: a page with numbers and pictures.

Everything is read from the run's folder (``rounds.csv``, ``round-N/pseudo.parquet``, ``expert.parquet``,
``recipe.json``); only the sample pictures need the unlabelled recordings to be where they were.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from markupsafe import Markup

from mast.files import write_atomic
from mast.reports.fit_verdict import part_title
from mast.reports.round_numbers import SelfTrainingRun, read_rounds, round_summary
from mast.reports.round_pictures import round_pictures
from mast.reports.templating import render

PAGE = "rounds.html"
_SUMMARY_NAMES = {
    "median_length_s": "median length (s)",
    "median_bandwidth_hz": "median bandwidth (Hz)",
    "median_score": "median score",
    "median_threshold": "median q(S)",
    "in_previous": "share also found the round before",
    "of_previous": "share of the round before's found again",
}


class TextTable(NamedTuple):
    """Texts to show."""

    header: list[str]
    rows: list[list[str]]


def rounds_html(run: Path, *, n_samples: int = 3) -> Markup:
    """The part of a page that is about self-training: a sentence, two tables and the pictures."""
    read = read_rounds(run)
    columns = ["round", "stage", "f1", "precision", "recall", "ap50", "miou"]
    columns += [f"{part}_f1" for part in read.parts]
    names = {
        "f1": "F1",
        "ap50": "AP50",
        "miou": "mIoU",
        **{f"{p}_f1": f"F1 {part_title(p)}" for p in read.parts},
    }
    metrics = read.rows[columns].rename(columns=names).assign(kept=np.where(read.rows["kept"], "kept", ""))
    summary = round_summary(read).rename(columns=lambda name: _SUMMARY_NAMES.get(name, name))
    return render(
        "rounds.html",
        verdict=_verdict(read),
        detectors=_text_table(metrics),
        pseudo=_text_table(summary),
        pictures=round_pictures(read, n_samples=n_samples),
    )


def write_rounds_page(run: Path, *, n_samples: int = 3) -> Path:
    """Write ``rounds.html`` into a run's folder, a self-contained page; returns its path."""
    page = render("rounds_page.html", name=run.name, part=rounds_html(run, n_samples=n_samples))
    write_atomic(run / PAGE, page.encode())
    return run / PAGE


def _verdict(run: SelfTrainingRun) -> str:
    """One sentence: which model was kept, and how F1 changed."""
    first, kept = run.rows.iloc[0], run.rows[run.rows["kept"]].iloc[0]
    if kept["round"] == 0:
        return f"No round raised F1 on validation above {first['f1']:.3f}: the initial model was kept."
    parts = [("validation", "f1"), *((part_title(part), f"{part}_f1") for part in run.parts)]
    changes = [f"{name} {first[c]:.3f} → {kept[c]:.3f}" for name, c in parts if np.isfinite(first[c])]
    return (
        f"The model of round {kept['round']} was kept. F1 from the initial model to it: {', '.join(changes)}."
    )


def _text_table(table: pd.DataFrame) -> TextTable:
    def cell(value: object) -> str:
        if isinstance(value, float):
            return "–" if np.isnan(value) else f"{value:.3f}" if abs(value) < 100 else f"{value:.0f}"
        return str(value)

    rows = [[cell(value) for value in row] for row in table.itertuples(index=False)]
    return TextTable([str(name) for name in table.columns], rows)
