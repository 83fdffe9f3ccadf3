"""A study's files: ``NAME.csv``, ``NAME.md``, ``NAME.json`` and ``NAME.png``, made from what systems found."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mast.experiments.figures import part_name
from mast.experiments.found import load_about
from mast.experiments.record import write_result
from mast.experiments.studies import Request, Study
from mast.experiments.tables import Archive, Row, as_cells, as_frame, as_json, markdown
from mast.files import write_whole


@dataclass(frozen=True)
class Collected:
    """What became of a study.

    Attributes:
        study: which.
        rows: of its table; none where no system of it was measured.
        missing: systems that were not, on any dataset.
        files: that were written.
    """

    study: Study
    rows: list[Row]
    missing: list[str]
    files: list[Path]


def collect(
    study: Study, archive: Archive, out: Path, *, data: Mapping[str, Path] | None = None
) -> Collected:
    """Measure what is there and write the study's files; nothing is written where nothing is there.

    Args:
        study: which.
        archive: what was found.
        out: folder for the files.
        data: by dataset, its labelled folder, for pictures of sound; where it was when the systems ran by default.
    """
    rows = study.rows(archive)
    lines = study.lines_in(archive)
    measured = {row.system for row in rows}
    missing = [line.system for line in lines if line.system not in measured]
    if not rows:
        return Collected(study, [], missing, [])
    files = [out / f"{study.name}{suffix}" for suffix in (".csv", ".md", ".json")]
    write_whole(files[0], as_frame(rows).to_csv(index=False, float_format="%.6g").encode())
    write_whole(files[1], markdown_of(study, rows).encode())
    figures = {"study": study.name, "title": study.title, "paper": study.paper, "rows": as_json(rows)}
    seeds = sorted({seed for row in rows for seed in row.seeds})
    write_result(files[2], figures, seed=seeds, data=_data(archive, measured))
    figure = study.draw(Request(study, archive, rows, data or {}))
    if figure is not None:
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png")
        files.append(out / f"{study.name}.png")
        write_whole(files[-1], buffer.getvalue())
    return Collected(study, rows, missing, files)


def groups(rows: list[Row]) -> dict[tuple[str, str], list[Row]]:
    """The rows of each dataset and part, in order."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row.dataset, row.part), []).append(row)
    return found


def heading(dataset: str, part: str, rows: list[Row]) -> str:
    """What a table was measured on."""
    return f"{dataset}, {part_name(part)}: {rows[0].n_truth:,} boxes in {rows[0].n_recordings:,} recordings"


def markdown_of(study: Study, rows: list[Row]) -> str:
    """A study's tables as Markdown."""
    text = [f"# {study.title}", f"{study.caption} ({study.paper})"]
    text.append(
        "Mean over seeds; in brackets 95 % bootstrap intervals over recordings. Thresholds were chosen on validation. "
        "Training time includes what a system builds on."
    )
    for (dataset, part), own in groups(rows).items():
        text.append(f"## {heading(dataset, part, own)}")
        text.append(markdown(*as_cells(own, reference=study.reference_label, bold=True)))
    return "\n\n".join(text) + "\n"


def _data(archive: Archive, systems: set[str]) -> dict[str, object]:
    """By dataset: where its sound was, and on which machines its systems were trained."""
    found: dict[str, object] = {}
    for dataset in archive.names():
        abouts = [load_about(t.system(s)) for t in archive.of(dataset) for s in t.systems() if s in systems]
        known = [about for about in abouts if about]
        if known:
            found[dataset] = {
                "labelled": known[0].get("data", ""),
                "unlabelled": known[0].get("unlabelled", []),
                "trained_on": sorted({str(about.get("device", "")) for about in known}),
            }
    return found
