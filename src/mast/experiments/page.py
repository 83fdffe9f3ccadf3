"""All studies on one page that needs nothing but itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mast.experiments.collect import Collected, groups, heading
from mast.experiments.paper import METRICS, paper_tables
from mast.experiments.tables import as_cells
from mast.files import write_whole
from mast.reports.html_page import Section, code, embedded_png, folded, page, paragraph, table

PAGE = "report.html"


def write_page(collected: Sequence[Collected], out: Path) -> Path:
    """Write ``out/report.html``."""
    shown = [one for one in collected if one.rows]
    datasets = list(dict.fromkeys(row.dataset for one in shown for row in one.rows))
    lead = paragraph(
        f"{len(shown)} studies on {', '.join(datasets)}. Values are means over seeds, at the threshold that in-domain "
        "validation chose; in brackets 95 % bootstrap intervals over recordings. AP50 (11-point) is what the paper "
        "calls mAP. The paper's numbers are on other data: compare the pattern, not the values."
    )
    absent = [one.study.name for one in collected if not one.rows]
    if absent:
        lead += paragraph(f"Not run yet: {', '.join(absent)}.", soft=True)
    sections = [Section(one.study.title, one.study.name, _body(one)) for one in shown]
    path = out / PAGE
    write_whole(path, page("The paper's tables and figures", lead, sections).encode())
    return path


def _body(one: Collected) -> str:
    study = one.study
    parts = [paragraph(f"{study.caption} ({study.paper})")]
    if one.missing:
        parts.append(paragraph(f"Not run yet: {', '.join(one.missing)}.", soft=True))
    for path in one.files:
        if path.suffix == ".png":
            parts.append(embedded_png(path.read_bytes(), study.title, small=study.name == "qualitative"))
    for (dataset, part), rows in groups(one.rows).items():
        parts.append(f"<h3>{heading(dataset, part, rows)}</h3>")
        parts.append(table(*as_cells(rows, reference=study.reference_label)))
    theirs = "".join(
        f"<h3>{where}</h3>" + table(["system", *METRICS], [[name, *numbers] for name, numbers in rows])
        for where, rows in paper_tables(study.name)
    )
    if theirs:
        parts.append(folded("The paper's own numbers", theirs))
    parts.append(
        folded(
            "Make it again",
            code(f"mast experiment {study.name} --data LABELLED --unlabeled SOUND --work WORK --out OUT"),
        )
    )
    return "".join(parts)
