"""A study's files: ``NAME.csv``, ``NAME.md``, ``NAME.json`` and ``NAME.png``, made from what systems found."""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from mast.evaluation.bootstrap import TRAINING_NOISE
from mast.files import write_whole
from mast.wording import counted
from mast_studies import embedding_tables
from mast_studies.alike import run_differently
from mast_studies.embedding_tables import ShownTable
from mast_studies.figures import part_name
from mast_studies.found import load_about
from mast_studies.record import Training, trained_at, write_result
from mast_studies.studies import Request, Study, without_parts
from mast_studies.study_tables import Archive, Row, as_cells, as_frame, as_json, markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Collected:
    """What became of a study.

    Attributes:
        study: which.
        rows: of its table; none where no system of it was measured, or where it is of embeddings.
        missing: systems that were not, on any dataset.
        files: that were written.
        datasets: that it shows.
        tables: for people.
        notes: one sentence for each thing that could not be measured, such as a part that a dataset does not have.
    """

    study: Study
    rows: list[Row]
    missing: list[str]
    files: list[Path]
    datasets: list[str] = field(default_factory=list)
    tables: list[ShownTable] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class _Files:
    """Writes what a study ends in."""

    def __init__(self, study: Study, out: Path) -> None:
        self.study, self.out = study, out
        self.written: list[Path] = []

    def write(self, suffix: str, content: bytes) -> None:
        path = self._path(suffix)
        write_whole(path, content)

    def write_tables(self, frame: pd.DataFrame, text: str) -> None:
        self.write(".csv", frame.to_csv(index=False, float_format="%.6g").encode())
        self.write(".md", text.encode())

    def write_json(
        self, rows: list[dict[str, Any]], seeds: list[int], archive: Archive, systems: set[str]
    ) -> None:
        study = self.study
        figures: dict[str, Any] = {"study": study.name, "title": study.title, "paper": study.paper}
        if study.reference_label:
            figures["differences_to"] = study.reference_label
        figures["rows"] = rows
        if quality := pseudo_label_quality(archive, systems):
            figures["pseudo_labels"] = quality
        data, trained = _data(archive, systems), trainings(archive, systems)
        write_result(self._path(".json"), figures, seed=seeds, data=data, trainings=trained)

    def write_figure(self, figure: Figure | None) -> None:
        if figure is not None:
            buffer = io.BytesIO()
            figure.savefig(buffer, format="png")
            self.write(".png", buffer.getvalue())

    def _path(self, suffix: str) -> Path:
        self.written.append(self.out / f"{self.study.name}{suffix}")
        return self.written[-1]


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
    if study.summarise is not None:
        return _collect_embeddings(study, archive, out)
    rows = study.rows(archive)
    lines = study.lines_in(archive)
    measured = {row.system for row in rows}
    missing = [line.system for line in lines if line.system not in measured]
    lacking = {dataset: study.lacking_in(archive, dataset) for dataset in archive.names()}
    notes = [without_parts(dataset, parts) for dataset, parts in lacking.items() if parts]
    if not rows:
        return Collected(study, [], missing, [], notes=notes)
    files = _Files(study, out)
    notes += (unlike := run_differently(archive, study.systems, measured))
    trained = trained_at(one.commit for one in trainings(archive, measured))
    files.write_tables(as_frame(rows), markdown_of(study, rows, trained, unlike))
    seeds = sorted({seed for row in rows for seed in row.seeds})
    files.write_json(as_json(rows), seeds, archive, measured)
    files.write_figure(study.draw(Request(study, archive, rows, data or {})))
    tables = [
        ShownTable(heading(*of, own), *as_cells(own, reference=study.reference_label))
        for of, own in groups(rows).items()
    ]
    datasets = list(dict.fromkeys(row.dataset for row in rows))
    return Collected(study, rows, missing, files.written, datasets, tables, notes)


def _collect_embeddings(study: Study, archive: Archive, out: Path) -> Collected:
    """The files of a study of embeddings."""
    assert study.summarise is not None
    found = study.summarise(archive)
    systems = {system.name for system in study.systems}
    missing = [] if found.tables or found.notes or found.figure else sorted(systems)
    files = _Files(study, out)
    if found.cells or found.figure is not None:
        found.notes.extend(run_differently(archive, study.systems, systems))
    if found.cells:
        files.write_tables(embedding_tables.as_frame(found.cells), _embeddings_markdown(study, found))
        seeds = sorted({seed for cell in found.cells for seed in cell.seeds})
        files.write_json(embedding_tables.as_json(found.cells), seeds, archive, systems)
    if found.figure is not None:
        files.write_figure(found.figure())
    datasets = list(dict.fromkeys(cell.dataset for cell in found.cells))
    return Collected(study, [], missing, files.written, datasets, found.tables, found.notes)


def _embeddings_markdown(study: Study, found: embedding_tables.Summary) -> str:
    text = [f"# {study.title}", f"{study.caption} ({study.paper})"]
    text.append("Mean over seeds; in brackets 95 % bootstrap intervals over recordings.")
    for title, header, cells in found.tables:
        text += [f"## {title}", markdown(header, cells)]
    text += [f"{note}." for note in found.notes]
    return "\n\n".join(text) + "\n"


def groups(rows: list[Row]) -> dict[tuple[str, str], list[Row]]:
    """The rows of each dataset and part, in order."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row.dataset, row.part), []).append(row)
    return found


def heading(dataset: str, part: str, rows: list[Row]) -> str:
    """What a table was measured on."""
    n_boxes, n_recordings = counted(rows[0].n_truth, "box"), counted(rows[0].n_recordings, "recording")
    return f"{dataset}, {part_name(part)}: {n_boxes} in {n_recordings}"


def markdown_of(study: Study, rows: list[Row], trained: str, unlike: Sequence[str]) -> str:
    """A study's tables as Markdown; ``trained`` says at which commits, ``unlike`` what was not the same for all."""
    text = [f"# {study.title}", f"{study.caption} ({study.paper})"]
    text.append(
        "Mean over seeds; in brackets 95 % bootstrap intervals over recordings. Thresholds were chosen on validation. "
        f"Training time includes what a system builds on. {TRAINING_NOISE} {trained}"
    )
    text += [f"{sentence}." for sentence in unlike]
    for (dataset, part), own in groups(rows).items():
        text.append(f"## {heading(dataset, part, own)}")
        text.append(markdown(*as_cells(own, reference=study.reference_label, bold=True)))
    return "\n\n".join(text) + "\n"


def trainings(archive: Archive, systems: Collection[str]) -> list[Training]:
    """What the systems measured in a work folder came from, as far as they wrote it down."""
    known = [
        (f"{trial.dataset}, {system}", trial.seed, load_about(trial.system(system)))
        for trial in archive.trials
        for system in trial.systems()
        if system in systems
    ]
    return [
        Training(name, seed, str(about.get("commit", "")), about.get("recipe")) for name, seed, about in known
    ]


def pseudo_label_quality(archive: Archive, systems: Collection[str]) -> list[dict[str, Any]]:
    """How good the pseudo-labels of every round were, where the truth about the unlabelled sound was known."""
    return [
        {"dataset": trial.dataset, "system": system, "seed": trial.seed, **rounded}
        for trial in archive.trials
        for system in trial.systems()
        if system in systems
        for told in load_about(trial.system(system)).get("pseudo_labels", [])
        for rounded in [{name: round(value, 4) for name, value in told.items()}]
    ]


def _data(archive: Archive, systems: set[str]) -> dict[str, object]:
    """By dataset: where its sound was, and on which machines its systems were trained."""
    found: dict[str, object] = {}
    for dataset in archive.names():
        abouts = [load_about(t.system(s)) for t in archive.of(dataset) for s in t.systems() if s in systems]
        known = [about for about in abouts if about]
        if known:
            found[dataset] = {
                "labelled": known[0].get("data", ""),
                "unlabelled": sorted({name for about in known for name in about.get("unlabelled", [])}),
                "trained_on": sorted({str(about.get("device", "")) for about in known}),
            }
    return found
