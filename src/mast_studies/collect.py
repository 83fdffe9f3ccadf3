"""A study's files: ``NAME.csv``, ``NAME.md``, ``NAME.json`` and ``NAME.png``, made from what systems found."""

from __future__ import annotations

import io
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from mast.evaluation.bootstrap import TRAINING_NOISE
from mast.files import write_atomic
from mast.wording import counted
from mast_studies import embedding_tables
from mast_studies.comparability import comparability_notes
from mast_studies.embedding_tables import ShownTable
from mast_studies.figures import part_name
from mast_studies.found import load_about
from mast_studies.record import TrainingRecord, describe_commits, write_result
from mast_studies.studies import FigureInputs, Study, missing_parts_message
from mast_studies.study_tables import Archive, Row, as_cells, as_frame, as_json, markdown_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class StudyOutput:
    """The results of a study.

    Attributes:
        study: the study.
        rows: the rows of its table; none if none of its systems was measured, or if it is about embeddings.
        missing: systems that were not measured on any dataset.
        files: the files written.
        datasets: the datasets shown.
        tables: tables to be read by people.
        notes: one sentence for each thing that could not be measured, such as a part that a dataset does not have.
    """

    study: Study
    rows: list[Row]
    missing: list[str]
    files: list[Path]
    datasets: list[str] = field(default_factory=list)
    tables: list[ShownTable] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class _OutputFiles:
    """Writes the results of a study."""

    def __init__(self, study: Study, out: Path) -> None:
        self.study, self.out = study, out
        self.written: list[Path] = []

    def write(self, suffix: str, content: bytes) -> None:
        path = self._path(suffix)
        write_atomic(path, content)

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
        data, trained = _data_provenance(archive, systems), training_records(archive, systems)
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
) -> StudyOutput:
    """Measure what was found and write the study's files; nothing is written where nothing was found.

    Args:
        study: the study.
        archive: what was found.
        out: folder for the files.
        data: the labelled folder of each dataset, for pictures of sound; by default, where it was when the systems ran.
    """
    if study.summarise is not None:
        return _collect_embeddings(study, archive, out)
    rows = study.rows(archive)
    lines = study.lines_in(archive)
    measured = {row.system for row in rows}
    missing = [line.system for line in lines if line.system not in measured]
    missing_parts = {dataset: study.missing_parts(archive, dataset) for dataset in archive.dataset_names()}
    notes = [missing_parts_message(dataset, parts) for dataset, parts in missing_parts.items() if parts]
    if not rows:
        return StudyOutput(study, [], missing, [], notes=notes)
    files = _OutputFiles(study, out)
    notes += (comparability := comparability_notes(archive, study.systems, measured))
    trained = describe_commits(one.commit for one in training_records(archive, measured))
    files.write_tables(as_frame(rows), study_markdown(study, rows, trained, comparability))
    seeds = sorted({seed for row in rows for seed in row.seeds})
    files.write_json(as_json(rows), seeds, archive, measured)
    files.write_figure(study.draw(FigureInputs(study, archive, rows, data or {})))
    tables = [
        ShownTable(heading(*of, own), *as_cells(own, reference=study.reference_label))
        for of, own in group_rows(rows).items()
    ]
    datasets = list(dict.fromkeys(row.dataset for row in rows))
    return StudyOutput(study, rows, missing, files.written, datasets, tables, notes)


def _collect_embeddings(study: Study, archive: Archive, out: Path) -> StudyOutput:
    """The files of a study of embeddings."""
    assert study.summarise is not None
    found = study.summarise(archive)
    systems = {system.name for system in study.systems}
    missing = [] if found.tables or found.notes or found.figure else sorted(systems)
    files = _OutputFiles(study, out)
    if found.cells or found.figure is not None:
        found.notes.extend(comparability_notes(archive, study.systems, systems))
    if found.cells:
        files.write_tables(embedding_tables.as_frame(found.cells), _embeddings_markdown(study, found))
        seeds = sorted({seed for cell in found.cells for seed in cell.seeds})
        files.write_json(embedding_tables.as_json(found.cells), seeds, archive, systems)
    if found.figure is not None:
        files.write_figure(found.figure())
    datasets = list(dict.fromkeys(cell.dataset for cell in found.cells))
    return StudyOutput(study, [], missing, files.written, datasets, found.tables, found.notes)


def _embeddings_markdown(study: Study, found: embedding_tables.Summary) -> str:
    text = [f"# {study.title}", f"{study.caption} ({study.paper})"]
    text.append("Mean over seeds; in brackets 95 % bootstrap intervals over recordings.")
    for title, header, cells in found.tables:
        text += [f"## {title}", markdown_table(header, cells)]
    text += [f"{note}." for note in found.notes]
    return "\n\n".join(text) + "\n"


def group_rows(rows: list[Row]) -> dict[tuple[str, str], list[Row]]:
    """The rows of each dataset and part, in order."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row.dataset, row.part), []).append(row)
    return found


def heading(dataset: str, part: str, rows: list[Row]) -> str:
    """What a table was measured on."""
    n_boxes, n_recordings = counted(rows[0].n_truth, "box"), counted(rows[0].n_recordings, "recording")
    return f"{dataset}, {part_name(part)}: {n_boxes} in {n_recordings}"


def study_markdown(study: Study, rows: list[Row], trained: str, notes: Sequence[str]) -> str:
    """A study's tables as Markdown; ``trained`` names the commits, ``notes`` says how systems differ."""
    text = [f"# {study.title}", f"{study.caption} ({study.paper})"]
    text.append(
        "Mean over seeds; in brackets 95 % bootstrap intervals over recordings. Thresholds were chosen on validation. "
        f"Training time includes what a system builds on. {TRAINING_NOISE} {trained}"
    )
    text += [f"{sentence}." for sentence in notes]
    for (dataset, part), own in group_rows(rows).items():
        text.append(f"## {heading(dataset, part, own)}")
        text.append(markdown_table(*as_cells(own, reference=study.reference_label, bold=True)))
    return "\n\n".join(text) + "\n"


def training_records(archive: Archive, systems: Collection[str]) -> list[TrainingRecord]:
    """Where the systems measured in a work folder came from, as far as it was recorded."""
    known = [
        (f"{trial.dataset}, {system}", trial.seed, load_about(trial.system(system)))
        for trial in archive.trials
        for system in trial.systems()
        if system in systems
    ]
    return [
        TrainingRecord(name, seed, str(about.get("commit", "")), about.get("recipe"))
        for name, seed, about in known
    ]


def pseudo_label_quality(archive: Archive, systems: Collection[str]) -> list[dict[str, Any]]:
    """How good the pseudo-labels of every round were, where the truth about the unlabelled sound was known."""
    return [
        {"dataset": trial.dataset, "system": system, "seed": trial.seed, **rounded}
        for trial in archive.trials
        for system in trial.systems()
        if system in systems
        for quality in load_about(trial.system(system)).get("pseudo_labels", [])
        for rounded in [{name: round(value, 4) for name, value in quality.items()}]
    ]


def _data_provenance(archive: Archive, systems: set[str]) -> dict[str, object]:
    """By dataset: the folders of its sound, and on which machines its systems were trained."""
    found: dict[str, object] = {}
    for dataset in archive.dataset_names():
        abouts = [
            load_about(t.system(s)) for t in archive.trials_of(dataset) for s in t.systems() if s in systems
        ]
        known = [about for about in abouts if about]
        if known:
            found[dataset] = {
                "labelled": _folder_name(known[0].get("data", "")),
                "unlabelled": sorted(
                    {_folder_name(n) for about in known for n in about.get("unlabelled", [])}
                ),
                "trained_on": sorted({str(about.get("device", "")) for about in known}),
            }
    return found


def _folder_name(path: str) -> str:
    """The last two parts of a folder's path: the others only say where one machine keeps it."""
    return "/".join(re.split(r"[/\\]", path)[-2:])
