"""The table and the figure of ``domain_shift.py``, from what each system found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mast.experiments.figures import dots
from mast.experiments.found import load_about
from mast.experiments.record import write_result
from mast.experiments.tables import PARTS, Archive, Line, Row, as_cells, as_json, markdown

SYSTEMS = ("from scratch", "pretrained", "+ contrastive", "+ self-training 1", "+ self-training 2")
LINES = [Line(name, name) for name in SYSTEMS]
REFERENCES = ("from scratch", "+ contrastive")


def write_table(work: Path, out: Path, figure: Path | None) -> None:
    """Measure every system on every part of every dataset and write it down."""
    archive = Archive(work)
    figures: dict[str, Any] = {}
    everything: list[Row] = []
    for dataset in archive.names():
        runs = archive.of(dataset)
        # a run made before systems had their own account of themselves has one for all
        abouts = [
            load_about(run.system(s)) or load_about(run.folder / "found") for run in runs for s in SYSTEMS
        ]
        about = next((one for one in abouts if one), {})
        figures[dataset] = {
            "seeds": [run.seed for run in runs],
            "device": about.get("device"),
            "recipe": about.get("recipe"),
            "unlabelled": about.get("unlabelled"),
            "parts": {},
        }
        for part in archive.parts(dataset):
            rows = archive.rows(dataset, part, LINES, reference=REFERENCES[0])
            against = archive.rows(dataset, part, LINES, reference=REFERENCES[1])
            figures[dataset]["parts"][part] = {
                row["system"]: row | {f"against {REFERENCES[1]}": other["differences"]}
                for row, other in zip(as_json(rows), as_json(against), strict=True)
            }
            everything += rows
            print(
                f"\n{dataset}, {PARTS.get(part, part)}\n{markdown(*as_cells(rows, reference=REFERENCES[0]))}"
            )
    write_result(out, figures)
    if figure:
        figure.parent.mkdir(parents=True, exist_ok=True)
        dots(everything, title="What pretraining, contrast and self-training buy").savefig(figure)
