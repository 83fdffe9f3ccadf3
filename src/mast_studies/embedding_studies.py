"""The studies of embeddings: retrieval, chunks on a plane, boxes on a plane (App. "Representation Analysis", "Box-Level
Embeddings"). Each turns the contents of the work folder into a :class:`Summary`.

A plane shows but does not measure; so both pictures come with a table of measurements in the full embedding space.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from mast_studies.embedding_figures import draw_boxes, draw_chunks, draw_retrieval
from mast_studies.embedding_tables import (
    BASELINE,
    GOOD_IOU,
    NEIGHBOURS,
    SETTINGS,
    WAYS,
    EmbeddedTables,
    RecordingBootstrap,
    ShownTable,
    Summary,
    format_difference,
    format_score,
    load_embedded_seeds,
    parts_of,
    place_name,
    table_cell,
    ways_of,
)
from mast_studies.found import NOT_TESTS
from mast_studies.study_tables import Archive

_BOX_COLUMNS = ("start_s", "end_s", "low_hz", "high_hz")
_RETRIEVAL = {
    "top1": "Top-1",
    "top5": "Top-5",
    "mean_rank": "mean rank",
    "mean_label_rank": "mean label rank",
}
_CHUNKS = {"same_site": "at the same site", "hours_apart": "hours apart", "events_apart": "events apart"}
_KINDS = {
    "truth": "true boxes",
    "good": f"detections, IoU ≥ {GOOD_IOU:g}",
    "fair": f"detections, IoU 0.5–{GOOD_IOU:g}",
}


def summarise_retrieval(archive: Archive) -> Summary:
    """Top-1, Top-5, mean rank of true and detected boxes, against annotated training boxes."""
    summary = Summary()
    for dataset in archive.dataset_names():
        found = load_embedded_seeds(archive, dataset)
        if not found or _lacks_labels(dataset, found, summary):
            continue
        for part in parts_of(found):
            _summarise_part(dataset, part, found, summary, archive.resamples)
    cells = summary.cells
    return Summary(cells, summary.tables, summary.notes, (lambda: draw_retrieval(cells)) if cells else None)


def _summarise_part(
    dataset: str, part: str, found: Mapping[int, EmbeddedTables], summary: Summary, resamples: int
) -> None:
    """One table."""
    where = place_name(dataset, part)
    boxes = {seed: own.boxes[own.boxes["part"] == part] for seed, own in found.items()}
    bootstrap = RecordingBootstrap(
        {s: b[b["kind"] == "truth"] for s, b in boxes.items()}, _BOX_COLUMNS, resamples
    )
    queries = {seed: _add_measures(own[own["label"] != ""]) for seed, own in boxes.items()}
    n_labelled = sum(len(own) for own in queries.values())
    queries = {seed: own[own["answerable"]] for seed, own in queries.items()}
    n_unanswerable = n_labelled - sum(len(own) for own in queries.values())
    if not any(len(own) for own in queries.values()):
        summary.notes.append(
            f"{where}: no training box of another recording has the label of any box here, so none can be named; "
            "label more recordings of the training part"
        )
        return
    rows: list[list[str]] = []
    for setting, name in SETTINGS.items():
        own = {seed: _select_setting(table, setting) for seed, table in queries.items()}
        own = {seed: table for seed, table in own.items() if len(table)}
        if not own:
            if setting != "oracle_found":  # the next setting's note covers it
                summary.notes.append(
                    f"{where}: none of the {name} can be named; no detection at the validation threshold overlaps a "
                    "labelled box by half"
                )
            continue
        labels = len(set().union(*(table["label"] for table in own.values())))
        chance = table_cell(
            bootstrap, own, "chance", subtract=None, place=(dataset, part), measured=(name, "random", "top1")
        )
        summary.cells.append(chance)
        counted = [f"{chance.n:,}", str(labels)]
        rows.append([name, "random order", *counted, format_score(chance.score), "–", "–", "–", "–"])
        for way in ways_of(next(iter(own.values())), "rank"):
            cells = {
                measure: table_cell(
                    bootstrap,
                    own,
                    f"{measure}_{way}",
                    subtract=f"{measure}_{BASELINE}",
                    place=(dataset, part),
                    measured=(name, way, measure),
                )
                for measure in _RETRIEVAL
            }
            summary.cells.extend(cells.values())
            values = [format_score(cell.score, 3 if m.startswith("top") else 1) for m, cell in cells.items()]
            rows.append([name, WAYS[way], *counted, *values, format_difference(cells["top1"].difference)])
    recordings = sum(int(own["recording"].nunique()) for own in queries.values())
    heading = f"{where}: boxes of {recordings:,} recordings"
    if n_unanswerable:
        heading += f"; {n_unanswerable:,} more have a label that no training box of another recording has"
    header = ["boxes", "compared by", "queries", "labels", *_RETRIEVAL.values(), f"Top-1 − {WAYS[BASELINE]}"]
    summary.tables.append(ShownTable(heading, header, rows))


def _add_measures(boxes: pd.DataFrame) -> pd.DataFrame:
    """Add columns with the ranks' measures, ready to be averaged."""
    measures: dict[str, pd.Series[Any]] = {}
    for way in ways_of(boxes, "rank"):
        rank, label_rank = boxes[f"rank_{way}"].astype(float), boxes[f"label_rank_{way}"].astype(float)
        measures |= {f"top1_{way}": (rank <= 1).astype(float), f"top5_{way}": (rank <= 5).astype(float)}
        measures |= {f"mean_rank_{way}": rank, f"mean_label_rank_{way}": label_rank}
        measures["answerable"] = rank > 0
    return boxes.assign(**measures)


def _select_setting(queries: pd.DataFrame, setting: str) -> pd.DataFrame:
    if setting == "detected":
        return queries[queries["kind"] == "detected"]
    truth = queries[queries["kind"] == "truth"]
    return truth if setting == "oracle" else truth[truth["matched"]]


def _lacks_labels(dataset: str, found: Mapping[int, EmbeddedTables], summary: Summary) -> bool:
    """Whether labels cannot be compared; adds a note that says why."""
    labels = {str(label) for own in found.values() for label in own.boxes["label"].unique()} - {""}
    if len(labels) > 1:
        return False
    summary.notes.append(
        f"{dataset}: all labelled boxes are called '{labels.pop()}', so there is nothing to tell apart; expected at "
        "least two labels"
        if labels
        else f"{dataset}: no box carries a label, so neighbours have nothing to name; fill the column label of its "
        "annotations"
    )
    return True


def summarise_chunks(archive: Archive) -> Summary:
    """Chunks on a plane, and how much a chunk's neighbours have in common with it."""
    summary = Summary()
    pictures: dict[str, pd.DataFrame] = {}
    for dataset in archive.dataset_names():
        found = load_embedded_seeds(archive, dataset)
        if not found:
            continue
        tables = {seed: own.chunks for seed, own in found.items()}
        first = next(iter(tables.values()))
        if len(first) < 3 or not _has_other_recordings(first):
            summary.notes.append(
                f"{dataset}: {len(first)} chunks of {first['recording'].nunique()} recordings say nothing about "
                "neighbours; expected at least three chunks, of several recordings"
            )
            continue
        pictures[dataset] = first
        measures = _known_measures(dataset, first, summary)
        bootstrap = RecordingBootstrap(tables, ("start_s", "events"), archive.resamples)
        rows = []
        for way in ("random", *ways_of(first, "events_apart")):
            cells = {
                measure: table_cell(
                    bootstrap,
                    tables,
                    f"{measure}_{way}",
                    subtract=None if way == "random" else f"{measure}_{BASELINE}",
                    place=(dataset, ""),
                    measured=("chunks", way, measure),
                )
                for measure in measures
            }
            summary.cells.extend(cells.values())
            values = [format_score(c.score, 3 if m == "same_site" else 2) for m, c in cells.items()]
            rows.append([WAYS.get(way, "any other chunk"), *values])
        count, recordings = (sum(f(own) for own in tables.values()) for f in (len, _count_recordings))
        heading = f"{dataset}: the {NEIGHBOURS} nearest of {count:,} chunks, {recordings:,} recordings"
        summary.tables.append(ShownTable(heading, ["nearest by", *(_CHUNKS[m] for m in measures)], rows))
    return Summary(
        summary.cells, summary.tables, summary.notes, (lambda: draw_chunks(pictures)) if pictures else None
    )


def _known_measures(dataset: str, chunks: pd.DataFrame, summary: Summary) -> list[str]:
    """The measures that are known; adds a note for each that is not."""
    measures = ["events_apart"]
    if chunks["hour"].notna().any():
        measures.insert(0, "hours_apart")
    else:
        summary.notes.append(f"{dataset}: no recording says when it was made, so chunks have no hour")
    if len(set(chunks["site"]) - {""}) > 1:
        measures.insert(0, "same_site")
    else:
        summary.notes.append(
            f"{dataset}: there are not two known sites, so chunks cannot be told apart by site"
        )
    return measures


def summarise_boxes(archive: Archive) -> Summary:
    """Boxes on a plane, and how often a box's neighbours have its label."""
    summary = Summary()
    pictures: dict[str, pd.DataFrame] = {}
    for dataset in archive.dataset_names():
        found = load_embedded_seeds(archive, dataset)
        if not found:
            continue
        tests = {seed: own.boxes[~own.boxes["part"].isin(NOT_TESTS)] for seed, own in found.items()}
        first = next(iter(tests.values()))
        if len(first) < 3:
            summary.notes.append(f"{dataset}: there are {len(first)} boxes to show; expected at least three")
            continue
        pictures[dataset] = first
        if not (first["kind"] == "detected").any():
            summary.notes.append(f"{dataset}: nothing was detected at the validation threshold")
        if _lacks_labels(dataset, found, summary):
            continue
        bootstrap = RecordingBootstrap(
            {s: b[b["kind"] == "truth"] for s, b in tests.items()}, _BOX_COLUMNS, archive.resamples
        )
        ways = ["random", *ways_of(first, "share")]
        rows = []
        for kind, name in _KINDS.items():
            own = {seed: _select_kind(table, kind) for seed, table in tests.items()}
            own = {seed: table for seed, table in own.items() if len(table)}
            if not own:
                continue
            cells = [
                table_cell(
                    bootstrap,
                    own,
                    f"share_{way}",
                    subtract=None if way == "random" else f"share_{BASELINE}",
                    place=(dataset, ""),
                    measured=(name, way, "same_label"),
                )
                for way in ways
            ]
            summary.cells.extend(cells)
            rows.append([name, f"{cells[0].n:,}", *(format_score(cell.score) for cell in cells)])
        heading = f"{dataset}: share of the {NEIGHBOURS} nearest true boxes with the same label"
        header = ["boxes", "number", *(WAYS.get(way, "any other box") for way in ways)]
        summary.tables.append(ShownTable(heading, header, rows))
    return Summary(
        summary.cells, summary.tables, summary.notes, (lambda: draw_boxes(pictures)) if pictures else None
    )


def _select_kind(boxes: pd.DataFrame, kind: str) -> pd.DataFrame:
    named = boxes[boxes["label"] != ""]
    if kind == "truth":
        return named[named["kind"] == "truth"]
    detected = named[named["kind"] == "detected"]
    good = detected["iou"] >= GOOD_IOU
    return detected[good if kind == "good" else ~good]


def _count_recordings(table: pd.DataFrame) -> int:
    return int(table["recording"].nunique())


def _has_other_recordings(chunks: pd.DataFrame) -> bool:
    return bool(np.isfinite(chunks["events_apart_random"]).any())
