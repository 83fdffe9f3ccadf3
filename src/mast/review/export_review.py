"""The decisions of a review as annotations in any format, ready to train on.

* Boxes that were accepted, drawn or corrected are an expert's annotations. Rejected and deleted ones are left out,
  and so are open ones: nobody has said what they are.
* What was listened to is what reviewers marked, except where boxes are still open: there, nobody knows.
  A detector learns from marked sound only; only there a missing box means that nothing called.
* An accepted box outside the marked spans counts as listened to for its own extent only, so that it counts in
  evaluation, and its surroundings do not pass as silence.
* Boxes that only the learner accepted come with the source ``learner``, and are left out on request. Nobody has heard
  them, so they never count as listened to: a detector does not learn from them.
* On request, recordings in which every event is decided count as listened to from beginning to end.

A folder in our own CSV format is a dataset: a link ``audio`` to the recordings lies next to the tables.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from mast.annotations import FORMATS, AnnotationSet, write_annotations
from mast.events import as_events
from mast.files import atomic_folder
from mast.replaced import EarlierVersion, replacing
from mast.review.decisions import BOX, InvalidError
from mast.review.store import Store
from mast.review.workspace import Workspace
from mast.spans import TimeSpan, merge_spans, subtract_spans, total_s

EXPORTS = "review_export"
# sources of boxes accepted only by the learner, or by a person along with their group
LEARNER, GROUP = "learner", "group"
_NAME = re.compile(r"[\w][\w .()+-]{0,59}")


@dataclass(frozen=True)
class ExportSummary:
    """What was written.

    Attributes:
        path: the folder, or the zip file.
        events: boxes in it.
        recordings: recordings with a box or a reviewed span.
        reviewed_s: seconds that count as listened to.
        note: what the reviewer should know; empty where there is nothing.
    """

    path: Path
    events: int
    recordings: int
    reviewed_s: float
    note: str


def collect_annotations(
    db: sqlite3.Connection, *, complete: bool = False, learner: bool = True
) -> AnnotationSet:
    """The review as annotations, by the rules at the top of this file.

    Args:
        db: to read with.
        complete: recordings in which every event is decided count as listened to from beginning to end.
        learner: include boxes accepted only by the learner, or by a person along with their whole group.
    """
    known = db.execute("SELECT * FROM recordings WHERE error = '' ORDER BY name").fetchall()
    names = {row["id"]: row["name"] for row in known}
    spans: dict[int, list[TimeSpan]] = {row["id"]: [] for row in known}
    for recording, start, end in db.execute("SELECT recording_id, start_s, end_s FROM spans"):
        if recording in spans:
            spans[recording].append((start, end))
    if complete:
        for row in known:
            if row["open"] == 0 and row["events"] > 0 and row["duration_s"] is not None:
                spans[row["id"]].append((0.0, float(row["duration_s"])))
    open_spans: dict[int, list[TimeSpan]] = {}
    for recording, start, end in db.execute(
        "SELECT recording_id, start_s, end_s FROM events WHERE status = 'open' AND recording_id IN "
        "(SELECT recording_id FROM spans)"
    ):
        open_spans.setdefault(recording, []).append((start, end))
    accepted = db.execute(
        "SELECT recording_id, start_s, end_s, low_hz, high_hz, label, reviewer, source, seq FROM events "
        "WHERE status = 'accepted' UNION ALL "
        "SELECT e.recording_id, e.start_s, e.end_s, e.low_hz, e.high_hz, iif(l.label = '', e.label, l.label), '', "
        f"iif(l.action, '{GROUP}', '{LEARNER}'), e.seq FROM learned AS l JOIN events AS e ON e.id = l.event_id "
        "WHERE ? AND l.status = 'accepted' AND e.status = 'open' ORDER BY 1, 2, 9",
        (learner,),
    )
    rows: list[dict[str, Any]] = []
    accepted_spans: dict[int, list[TimeSpan]] = {}
    for recording, start, end, low, high, label, reviewer, source, _ in accepted:
        if recording not in names:
            continue
        if source not in (LEARNER, GROUP):
            accepted_spans.setdefault(recording, []).append((start, end))
        rows.append(
            {
                "recording": names[recording],
                "start_s": start,
                "end_s": end,
                "low_hz": low,
                "high_hz": high,
                "label": label,
                "source": "expert" if reviewer else source,
                "reviewer": reviewer,
            }
        )
    reviewed = [
        (names[recording], start, end)
        for recording, own in spans.items()
        # boxes first, then the holes: where an open box covers an accepted one, nobody knows the rest
        for start, end in merge_spans(
            [*subtract_spans(own, open_spans.get(recording, [])), *accepted_spans.get(recording, [])]
        )
    ]
    columns = ["recording", "start_s", "end_s", "low_hz", "high_hz", "label", "source", "reviewer"]
    events = pd.DataFrame(rows, columns=columns)
    if not events["reviewer"].any():
        events = events.drop(columns="reviewer")
    return AnnotationSet(
        events,
        pd.DataFrame(reviewed, columns=["recording", "start_s", "end_s"]),
        pd.DataFrame([_recording_row(row) for row in known], columns=_recording_columns(known)),
    )


def decided_boxes(path: Path) -> pd.DataFrame:
    """Detections that people decided about, in the event schema, with their names; rejected boxes have an empty one.

    Accepted boxes without a name are left out: nobody has said what they are.
    """
    store = Store(path)
    try:
        with store.reading() as db:
            rows = db.execute(
                "SELECT r.name AS recording, e.start_s, e.end_s, e.low_hz, e.high_hz, "
                "CASE WHEN e.status = 'accepted' THEN e.label ELSE '' END AS label "
                "FROM events AS e JOIN recordings AS r ON r.id = e.recording_id "
                "WHERE (e.status = 'accepted' AND e.label <> '') OR e.status = 'rejected'"
            ).fetchall()
    finally:
        store.close()
    return as_events(pd.DataFrame([dict(row) for row in rows], columns=["recording", *BOX, "label"]))


def export_folder(
    store: Store,
    workspace: Workspace,
    format: str,
    name: str,
    *,
    complete: bool = False,
    learner: bool = True,
) -> ExportSummary:
    """Write annotations to ``review_export/NAME`` in the folder under review.

    An earlier export of that name is replaced. If it is in another format, or somebody changed it, it is kept under
    another name.

    Raises:
        InvalidError: a name or a format that makes no sense.
    """
    _check_format(format)
    if not _NAME.fullmatch(name) or name.rstrip(". ") != name:
        raise InvalidError(
            f"folder {name[:60]!r}: expected a plain name of letters, digits, spaces, dots and dashes"
        )
    place = workspace.folder / EXPORTS / name
    place.parent.mkdir(exist_ok=True)
    if os.path.realpath(place.parent) != os.path.join(os.path.realpath(workspace.folder), EXPORTS):
        raise InvalidError(f"{EXPORTS} leads out of {workspace.title}; remove that link first")
    kept: list[EarlierVersion] = []
    with replacing(atomic_folder, place, kept, form=format) as part:
        annotations = _write(store, part, format, complete=complete, learner=learner)
        note = _export_note(annotations)
        if format == "csv" and not _link_audio(part, workspace, annotations):
            note = f"{note} Copy these tables next to the recordings to train on them.".strip()
    notes = [note, *(f"The earlier export is kept in {earlier.kept}." for earlier in kept)]
    return _summarise(place, annotations, " ".join(notes).strip())


def export_zip(
    store: Store, file: Path, format: str, *, complete: bool = False, learner: bool = True
) -> ExportSummary:
    """Write annotations as one zip file; unpacked next to the recordings, CSV makes them a dataset."""
    _check_format(format)
    with tempfile.TemporaryDirectory() as folder:
        annotations = _write(store, Path(folder), format, complete=complete, learner=learner)
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
            for path in sorted(Path(folder).rglob("*")):
                if path.is_file():
                    archive.write(path, path.relative_to(folder).as_posix())
    return _summarise(file, annotations, _export_note(annotations))


def _write(store: Store, folder: Path, format: str, *, complete: bool, learner: bool) -> AnnotationSet:
    with store.reading() as db:
        annotations = collect_annotations(db, complete=complete, learner=learner)
    chosen = FORMATS[format]
    write_annotations(
        annotations, folder if chosen.folder else folder / f"annotations{chosen.suffix}", format
    )
    return annotations


def _check_format(format: str) -> None:
    if format not in FORMATS:
        raise InvalidError(f"format {format[:40]!r}: expected one of {', '.join(FORMATS)}")


def _recording_columns(known: list[sqlite3.Row]) -> list[str]:
    further = dict.fromkeys(name for row in known for name in json.loads(row["further"]))
    return ["recording", "duration_s", "sample_rate", "site", "datetime", *further]


def _recording_row(row: sqlite3.Row) -> dict[str, Any]:
    return {
        "recording": row["name"],
        "duration_s": row["duration_s"],
        "sample_rate": row["sample_rate"],
        "site": row["site"],
        "datetime": row["datetime"],
        **json.loads(row["further"]),
    }


def _link_audio(folder: Path, workspace: Workspace, annotations: AnnotationSet) -> bool:
    """Put a link to the recordings next to the tables; False where that cannot be done."""
    names = list(annotations.recordings["recording"])
    for root in reversed(workspace.roots):
        if all((root / name).is_file() for name in names):
            try:
                (folder / "audio").symlink_to(root, target_is_directory=True)
            except OSError:
                return False
            return True
    return False


def _export_note(annotations: AnnotationSet) -> str:
    if not len(annotations.reviewed):
        return "Nothing has been accepted or marked as reviewed yet."
    boxes: dict[str, list[TimeSpan]] = {}
    for name, start, end in _spans_in(annotations.events):
        boxes.setdefault(name, []).append((start, end))
    own = {(name, *span) for name, spans in boxes.items() for span in merge_spans(spans)}
    if set(_spans_in(annotations.reviewed)) <= own:
        return (
            "No sound is marked as reviewed beyond the boxes themselves, and mast train learns only from marked sound: "
            "mark what you have listened to, or export with all decided recordings counted as listened to."
        )
    return ""


def _spans_in(table: pd.DataFrame) -> list[tuple[str, float, float]]:
    return list(zip(table["recording"], table["start_s"], table["end_s"], strict=True))


def _summarise(path: Path, annotations: AnnotationSet, note: str) -> ExportSummary:
    reviewed_s = total_s((start, end) for _, start, end in _spans_in(annotations.reviewed))
    return ExportSummary(path, len(annotations.events), len(annotations.annotated()), reviewed_s, note)
