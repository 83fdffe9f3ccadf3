"""What self-training did, round by round: a page with numbers and pictures.

Everything is read from the run's folder (``rounds.csv``, ``round-N/pseudo.parquet``, ``expert.parquet``,
``recipe.json``); only the sample pictures need the unlabelled recordings to be where they were.
"""

from __future__ import annotations

import html
from pathlib import Path

import numpy as np
import pandas as pd

from mast.files import write_whole
from mast.reports.round_numbers import SelfTrainingRun, in_words, read_run, round_summary
from mast.reports.round_pictures import pictures_html, round_pictures

PAGE = "rounds.html"
_SUMMARY_NAMES = {
    "median_length_s": "median length (s)",
    "median_bandwidth_hz": "median bandwidth (Hz)",
    "median_score": "median score",
    "median_threshold": "median q(S)",
    "in_previous": "share found the round before too",
    "of_previous": "share of the round before's found again",
}


def rounds_html(run: Path, *, n_samples: int = 3) -> str:
    """The part of a page that is about self-training: a sentence, two tables and the pictures."""
    read = read_run(run)
    columns = ["round", "stage", "f1", "precision", "recall", "ap50", "miou"]
    columns += [f"{part}_f1" for part in read.parts]
    names = {
        "f1": "F1",
        "ap50": "AP50",
        "miou": "mIoU",
        **{f"{p}_f1": f"F1 {in_words(p)}" for p in read.parts},
    }
    metrics = read.rows[columns].rename(columns=names).assign(kept=np.where(read.rows["kept"], "kept", ""))
    summary = round_summary(read).rename(columns=lambda name: _SUMMARY_NAMES.get(name, name))
    return "\n".join(
        [
            f"<p>{html.escape(_verdict(read))}</p>",
            "<h3>Detectors</h3>",
            _table_html(metrics),
            "<p>F1, precision, recall, AP50 and mIoU are of in-domain validation, on which thresholds and stages are "
            "chosen. The other parts are measured at the same threshold and decided nothing.</p>",
            "<h3>Pseudo-labels</h3>",
            _table_html(summary) if len(summary) else "<p>None.</p>",
            pictures_html(round_pictures(read, n_samples=n_samples)),
        ]
    )


def write_rounds_page(run: Path, *, n_samples: int = 3) -> Path:
    """Write ``rounds.html`` into a run's folder, a page that needs no other file; returns its path."""
    page = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Self-training: {html.escape(run.name)}</title>
<style>{_STYLE}</style></head><body>
<h1>Self-training</h1>
{rounds_html(run, n_samples=n_samples)}
</body></html>
"""
    write_whole(run / PAGE, page.encode())
    return run / PAGE


_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; font-size: 14px; margin: 0 0 1rem; display: block; overflow-x: auto; }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid #ddd; white-space: nowrap; }
th { font-weight: 600; border-bottom: 2px solid #888; }
figure { margin: 1.5rem 0; } img { max-width: 100%; }
figcaption { font-size: 14px; color: #555; }
"""


def _verdict(run: SelfTrainingRun) -> str:
    """One sentence: from where to where, and which model was kept."""
    first, kept = run.rows.iloc[0], run.rows[run.rows["kept"]].iloc[0]
    if kept["round"] == 0:
        return f"No round raised F1 on validation above {first['f1']:.3f}: the initial model was kept."
    parts = [("validation", "f1"), *((in_words(part), f"{part}_f1") for part in run.parts)]
    changes = [f"{name} {first[c]:.3f} → {kept[c]:.3f}" for name, c in parts if np.isfinite(first[c])]
    return (
        f"The model of round {kept['round']} was kept. F1 from the initial model to it: {', '.join(changes)}."
    )


def _table_html(table: pd.DataFrame) -> str:
    def cell(value: object) -> str:
        if isinstance(value, float):
            return "–" if np.isnan(value) else f"{value:.3f}" if abs(value) < 100 else f"{value:.0f}"
        return html.escape(str(value))

    head = "".join(f"<th>{html.escape(str(c))}</th>" for c in table.columns)
    rows = ["".join(f"<td>{cell(v)}</td>" for v in row) for row in table.itertuples(index=False)]
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"
