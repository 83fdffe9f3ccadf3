"""Tasks for Whombat: an AOEF annotation project with a task per clip, and which of them came back completed."""

from __future__ import annotations

import tempfile
import uuid
from datetime import UTC, datetime
from pathlib import Path

from mast.annotations import AnnotationSet, write_annotations
from mast.annotations.recording_names import RecordingNames
from mast.annotations.tables import read_json, read_text, write_text

_NAMESPACE = uuid.UUID("0f3a2f0e-34a2-5f51-8a0d-3f0f6a1c9d52")  # the same tasks get the same identifiers
_CREATED_ON = datetime(2024, 1, 1, tzinfo=UTC)  # a fixed date: the same plan is the same file
_DONE = frozenset({"completed", "verified"})
INSTRUCTIONS = (
    "Listen to each clip from beginning to end and box every sound of interest, in time and frequency. "
    "Mark the task as completed when you have heard all of the clip, even where it holds nothing."
)


def write_project(annotations: AnnotationSet, path: Path, *, name: str) -> None:
    """Write clips, each of them one task, with the boxes they have so far."""
    from soundevent import data
    from soundevent.io import aoef

    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "set.json"
        write_annotations(annotations, written, "aoef")
        content = aoef.to_soundevent(aoef.AOEFObject.model_validate_json(read_text(written)))
    assert isinstance(content, data.AnnotationSet)
    tasks = [
        data.AnnotationTask(uuid=uuid.uuid5(own.clip.uuid, "task"), clip=own.clip, created_on=_CREATED_ON)
        for own in content.clip_annotations
    ]
    clips = [own.model_copy(update={"created_on": _CREATED_ON}) for own in content.clip_annotations]
    project = data.AnnotationProject(
        uuid=uuid.uuid5(_NAMESPACE, "/".join(str(task.uuid) for task in tasks)),
        name=name,
        description=f"{len(tasks)} clips to annotate",
        instructions=INSTRUCTIONS,
        clip_annotations=clips,
        tasks=tasks,
        created_on=_CREATED_ON,
    )
    document = aoef.to_aeof(project).model_copy(update={"created_on": _CREATED_ON})
    write_text(path, document.model_dump_json(exclude_none=True, indent=1) + "\n")


def completed_clips(path: Path, names: RecordingNames) -> set[str] | None:
    """The clips whose task was completed or verified and not rejected since; None where the file has no tasks."""
    content = read_json(path)
    found = content.get("data") if isinstance(content, dict) else None
    tasks = found.get("tasks") if isinstance(found, dict) else None
    if not isinstance(found, dict) or not isinstance(tasks, list):
        return None
    recordings = {r.get("uuid"): str(r.get("path", "")) for r in found.get("recordings") or []}
    clips = {c.get("uuid"): recordings.get(c.get("recording"), "") for c in found.get("clips") or []}
    done = set()
    for task in tasks:
        badges = sorted(task.get("status_badges") or [], key=lambda badge: str(badge.get("created_on", "")))
        states = [str(badge.get("state")) for badge in badges if badge.get("state") != "assigned"]
        if states and states[-1] in _DONE:
            done.add(names.of_path(Path(clips.get(task.get("clip"), "")).as_posix()))
    return done
