"""Finished tasks back as annotations of the original recordings, with the spans that were listened to.

A clip counts as listened to if its table was changed, if it is ticked off in ``plan.csv``, or if its task in Whombat is
completed. A table that is still as it was handed out says nothing: perhaps nobody has opened the clip yet.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from mast.annotations import AnnotationSet, read_annotations
from mast.annotations.recording_names import RecordingNames
from mast.annotations.sidecars import NO, YES
from mast.annotations.tables import Table, read_table
from mast.errors import AnnotationError
from mast.events import as_events, empty_events
from mast.planning.tasks import PLAN, PLAN_COLUMNS, PROJECT, TASK_FORMATS, fingerprint, table_path
from mast.planning.whombat import completed_clips

_YES = YES | {"x", "done", "ok", "✓", "ja", "oui", "si", "sí"}  # as people tick things off
_NO = NO | {"nein", "non", "-"}
_SLACK_S = 0.05  # a box drawn this far beyond a clip is a slip of the hand


@dataclass(frozen=True)
class ReturnedTasks:
    """What came back.

    Attributes:
        annotations: events and spans of the clips that were listened to, in the original recordings' time.
        clips: how many there are in the plan.
        done: how many of them were listened to.
        untouched: clips whose table is as handed out and that nobody ticked off.
    """

    annotations: AnnotationSet
    clips: int
    done: int
    untouched: list[str]


def is_tasks_folder(path: str | Path) -> bool:
    """Whether a folder holds tasks that ``mast plan`` wrote."""
    file = Path(path) / PLAN
    if not file.is_file():
        return False
    first = file.open(encoding="utf-8", errors="replace").readline()
    return {"clip", "recording", "handed_out"} <= set(
        first.strip().replace(";", ",").replace('"', "").split(",")
    )


def read_tasks(folder: str | Path, *, all_done: bool = False) -> ReturnedTasks:
    """Read a folder of tasks, finished or half finished.

    Args:
        folder: as :func:`mast.planning.tasks.write_tasks` made it.
        all_done: every clip was listened to, whether its table changed or not.

    Raises:
        AnnotationError: no plan there, a plan or a table that cannot be understood, or a box that no clip can hold.
    """
    root = Path(folder)
    plan = read_plan(root)
    format = str(plan["format"].iloc[0])
    tables = [table_path(root, str(clip), format) for clip in plan["clip"]]
    ticked = plan["ticked"].to_numpy(dtype=bool) | all_done
    if format == "aoef":
        found, changed = _read_project(root, plan)
    else:
        changed = np.array(
            [
                file.is_file() and fingerprint(file) != given
                for file, given in zip(tables, plan["handed_out"], strict=True)
            ]
        )
        found = _read_tables(plan, tables, format, ticked | changed)
    heard = ticked | changed
    own = plan[heard]
    return ReturnedTasks(
        AnnotationSet(_in_recording_time(found, own), _spans(own), _recordings(plan)),
        len(plan),
        int(heard.sum()),
        [str(clip) for clip in plan.loc[~heard, "clip"]],
    )


def read_plan(root: Path) -> pd.DataFrame:
    """``plan.csv`` with its types, and ``ticked``: whether the person says that the clip is done."""
    file = root / PLAN
    if not file.is_file():
        raise AnnotationError(f"{root}: holds no {PLAN}; expected the whole folder that `mast plan` wrote")
    table = read_table(file)
    columns = table.require({c: (c,) for c in PLAN_COLUMNS if c not in ("prefilled", "strategy", "hour")})
    plan = pd.DataFrame({name: pd.Series(table.texts(c), dtype="object") for name, c in columns.items()})
    for name in ("start_s", "end_s", "duration_s", "sample_rate"):
        plan[name] = table.numbers(columns[name])
    if plan.empty:
        raise AnnotationError(f"{file}: lists no clip")
    formats = sorted(set(plan["format"]))
    if len(formats) > 1 or formats[0] not in TASK_FORMATS:
        raise AnnotationError(
            f"{file}, format: found {', '.join(formats)}; expected one of {', '.join(TASK_FORMATS)}, the same in "
            "all rows"
        )
    repeated = plan["clip"].duplicated()
    if repeated.any():
        row = int(np.flatnonzero(repeated)[0])
        raise AnnotationError(f"{table.where(row)}: {plan['clip'][row]} is listed twice; keep one row")
    if (plan["end_s"] <= plan["start_s"]).any():
        row = int(np.flatnonzero(plan["end_s"] <= plan["start_s"])[0])
        raise AnnotationError(
            f"{table.where(row)}: the clip ends before it begins; restore start_s and end_s"
        )
    plan["ticked"] = _read_ticks(table, columns["done"])
    return plan


def _read_ticks(table: Table, column: str) -> list[bool]:
    answers = [text.strip().casefold() for text in table.texts(column)]
    for row, text in enumerate(answers):
        if text not in _YES | _NO:
            raise AnnotationError(f"{table.where(row)}, done: found '{text}', expected yes or nothing")
    return [text in _YES for text in answers]


def _known_clips(plan: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "recording": plan["clip"],
            "duration_s": plan["end_s"] - plan["start_s"],
            "sample_rate": plan["sample_rate"],
        }
    )


def _read_tables(plan: pd.DataFrame, tables: list[Path], format: str, heard: np.ndarray) -> pd.DataFrame:
    """The boxes of the clips that were listened to, by clip and in its time."""
    known = _known_clips(plan)
    parts = []
    for row in np.flatnonzero(heard).tolist():
        if tables[row].is_file():
            own = read_annotations(tables[row], format, recordings=known.iloc[[row]]).events
            # whatever the table calls its sound (a path on somebody's machine, say), it belongs to this clip
            parts.append(own.assign(recording=str(plan["clip"].iloc[row])))
    filled = [part for part in parts if len(part)]
    return pd.concat(filled, ignore_index=True) if filled else empty_events()


def _read_project(root: Path, plan: pd.DataFrame) -> tuple[pd.DataFrame, np.ndarray]:
    """The boxes in Whombat's export, and which clips it says are completed."""
    file = root / PROJECT
    if not file.is_file():
        raise AnnotationError(
            f"{file}: no such file; export the project from Whombat (AOEF) and save it there"
        )
    found = read_annotations(file, "aoef", recordings=_known_clips(plan))
    names = RecordingNames(list(plan["clip"]))
    done = completed_clips(file, names)
    if done is None:  # a plain annotation set: each clip in it was listened to
        done = set(found.reviewed["recording"])
    return found.events, plan["clip"].isin(done).to_numpy(dtype=bool)


def _in_recording_time(events: pd.DataFrame, plan: pd.DataFrame) -> pd.DataFrame:
    """Events of clips as events of the recordings, cut to the clip; a person has seen each, so all are an expert's."""
    table = plan.set_index("clip")
    own = as_events(events[events["recording"].isin(table.index)])
    if own.empty:
        return empty_events()
    start = own["recording"].map(table["start_s"]).astype("float64")
    length = own["recording"].map(table["end_s"]).astype("float64") - start
    late = own["start_s"] > length + _SLACK_S
    if late.any():
        row = int(np.flatnonzero(late)[0])
        raise AnnotationError(
            f"{own['recording'][row]}: a box begins at {own['start_s'][row]:g} s, but the clip lasts {length[row]:g} "
            "s; is it another clip's table?"
        )
    clock = own["recording"].map(table["datetime"]).astype(str)
    begins = np.minimum(own["start_s"], length)
    return own.assign(
        recording=own["recording"].map(table["recording"]).astype(str),
        start_s=(start + begins).round(6),
        end_s=(start + np.minimum(own["end_s"], length)).round(6),
        site=own["recording"].map(table["site"]).astype(str),
        datetime=[_clock_in_clip(text, float(s)) for text, s in zip(clock, begins, strict=True)],
        score=1.0,
        source="expert",
        model="",
    )


def _clock_in_clip(clip_begins: str, seconds: float) -> str:
    if not clip_begins:
        return ""
    began = pd.Timestamp(clip_begins)
    return (began + pd.Timedelta(seconds=seconds)).isoformat(timespec="milliseconds")


def _spans(plan: pd.DataFrame) -> pd.DataFrame:
    return plan[["recording", "start_s", "end_s"]].reset_index(drop=True)


def _recordings(plan: pd.DataFrame) -> pd.DataFrame:
    """What the plan knows about the original recordings; its datetime is the clip's, not theirs, and is left out."""
    columns = ["recording", "duration_s", "sample_rate", "site"]
    return plan[columns].drop_duplicates("recording").reset_index(drop=True)


def merge_returned(existing: AnnotationSet, returned: AnnotationSet) -> AnnotationSet:
    """Earlier annotations together with those that came back.

    Where both cover the same span, what came back wins: earlier events whose middle lies in a span that was
    listened to now are dropped, so a task that is corrected and read back again leaves no duplicate boxes.
    """
    old = existing.events
    middle = (old["start_s"] + old["end_s"]) / 2
    replaced = pd.Series(False, index=old.index)
    for name, start, end in returned.reviewed[["recording", "start_s", "end_s"]].itertuples(index=False):
        replaced |= (old["recording"] == name) & (middle >= start) & (middle < end)
    parts = [part for part in (old[~replaced], returned.events) if len(part)]
    spans = [part for part in (existing.reviewed, returned.reviewed) if len(part)]
    # what was known before wins: a plan knows a recording only by its clips
    both = replace(returned, events=empty_events(), reviewed=AnnotationSet().reviewed).with_recordings(
        existing.recordings
    )
    return AnnotationSet(
        pd.concat(parts, ignore_index=True) if parts else empty_events(),
        pd.concat(spans, ignore_index=True) if spans else existing.reviewed,
        both.recordings,
    )
