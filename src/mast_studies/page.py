"""All studies on one self-contained page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from mast.evaluation.bootstrap import TRAINING_NOISE
from mast.files import write_atomic
from mast.reports.html_page import Section, code, embedded_png, folded, heading, page, paragraph, table
from mast_studies.collect import StudyOutput
from mast_studies.paper import paper_metrics, paper_tables

PAGE = "report.html"


def write_page(collected: Sequence[StudyOutput], out: Path) -> Path:
    """Write ``out/report.html``."""
    shown = [one for one in collected if one.files or one.notes]
    datasets = list(dict.fromkeys(name for one in shown for name in one.datasets))
    lead = paragraph(
        f"{len(shown)} studies on {', '.join(datasets)}. Values are means over seeds, at the threshold that in-domain "
        f"validation chose; in brackets 95 % bootstrap intervals over recordings. {TRAINING_NOISE} AP50 (11-point) is "
        "what the paper calls mAP. The paper's numbers are on other data: compare the pattern, not the values."
    )
    absent = [one.study.name for one in collected if one not in shown]
    if absent:
        lead += paragraph(f"Not run yet: {', '.join(absent)}.", soft=True)
    sections = [Section(one.study.title, one.study.name, _body(one)) for one in shown]
    path = out / PAGE
    write_atomic(path, page("The paper's tables and figures", lead, sections).encode())
    return path


def _body(one: StudyOutput) -> Markup:
    study = one.study
    parts = [paragraph(f"{study.caption} ({study.paper})")]
    if one.missing:
        parts.append(paragraph(f"Not run yet: {', '.join(one.missing)}.", soft=True))
    for path in one.files:
        if path.suffix == ".png":
            parts.append(embedded_png(path.read_bytes(), study.title, small=study.name == "qualitative"))
    for title, header, cells in one.tables:
        parts.append(heading(title))
        parts.append(table(header, cells, words=(0, 1) if study.name == "retrieval" else (0,)))
    parts += [paragraph(f"{note}.", soft=True) for note in one.notes]
    theirs = Markup().join(
        heading(where) + table(["", *paper_metrics(study.name)], [[name, *numbers] for name, numbers in rows])
        for where, rows in paper_tables(study.name)
    )
    if theirs:
        parts.append(folded("The paper's own numbers", theirs))
    parts.append(
        folded(
            "How to reproduce it",
            code(f"mast experiment {study.name} --data LABELLED --unlabelled SOUND --work WORK --out OUT"),
        )
    )
    return Markup().join(parts)
