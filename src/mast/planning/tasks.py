"""A folder that a person can open and work through: clips, tables to fill in, and what each clip is a part of.

    TASKS/README.txt            what to do, for the person who listens
    TASKS/plan.csv              which clip is which span of which recording; a column to tick off
    TASKS/clips/0001_….wav      the sound, and next to it (Raven, Audacity) its table, empty or filled by the detector
    TASKS/project.json          instead of tables, for Whombat: an annotation project (AOEF) with a task per clip

Clips come best first. ``plan.csv`` also holds the fingerprint of each table as handed out, so that a table nobody
touched is not mistaken for a clip that was heard and is empty.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
import soundfile as sf

from mast.annotations import AnnotationSet, write_annotations
from mast.annotations.tables import format_table, write_text
from mast.audio import probe, read
from mast.data.recordings import Dataset
from mast.errors import AudioError, ConfigError
from mast.events import BOX_COLUMNS, as_events, empty_events
from mast.files import atomic_file, holds_files
from mast.planning.tasks_readme import readme_text
from mast.planning.whombat import write_project

TaskFormat = Literal["raven", "audacity", "aoef"]
TASK_FORMATS: tuple[TaskFormat, ...] = get_args(TaskFormat)
PLAN, CLIPS, PROJECT, README = "plan.csv", "clips", "project.json", "README.txt"
TABLE_SUFFIX: dict[str, str] = {"raven": ".Table.1.selections.txt", "audacity": ".txt"}
PLAN_COLUMNS = (
    "clip",  # file in clips/
    "done",  # the person's tick
    "recording",
    "start_s",
    "end_s",
    "site",
    "datetime",
    "hour",
    "duration_s",  # of the recording
    "sample_rate",
    "strategy",
    "format",
    "prefilled",  # boxes handed out
    "handed_out",  # fingerprint of the table
)
# a clip's file and row of the plan → events in its time
Prefill = Callable[[Path, Mapping[str, Any]], pd.DataFrame]
_BLOCK_S = 10.0  # of sound held in memory
_KEPT_SUBTYPES = ("PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE")  # others are decoded; 16 bits hold them


def write_tasks(
    out: str | Path,
    chosen: pd.DataFrame,
    dataset: Dataset,
    *,
    format: TaskFormat = "raven",
    strategy: str = "",
    prefill: Prefill | None = None,
    progress: Callable[[], None] | None = None,
) -> pd.DataFrame:
    """Cut the clips, write their tables, the plan and the README.

    Args:
        out: a new or empty folder.
        chosen: clips, best first, as :func:`mast.planning.choose.choose_clips` gives.
        dataset: where the recordings lie.
        format: the tool whose tables are written.
        strategy: how they were chosen, for the record.
        prefill: gives the boxes that a clip's table starts with: a detector's, or known from elsewhere.
        progress: called after each clip.

    Returns:
        The plan as written. A recording that cannot be read has no clip and is not in it; ``attrs["failed"]`` of the
        table lists those, with reasons.
    """
    folder = _make_folder(Path(out))
    if format not in TASK_FORMATS:
        raise ConfigError(
            f"--format {format}: no such format of tasks; choose one of {', '.join(TASK_FORMATS)}"
        )
    names = clip_names(chosen)
    rows: list[dict[str, object]] = []
    failed: list[tuple[str, str]] = []
    for name, clip in zip(names, chosen.to_dict("records"), strict=True):
        try:
            start_s, end_s, rate, duration_s = cut_clip(
                dataset.path(str(clip["recording"])),
                folder / CLIPS / name,
                float(clip["start_s"]),
                float(clip["end_s"]),
            )
        except AudioError as error:
            failed.append((str(clip["recording"]), str(error)))
            continue
        finally:
            if progress is not None:
                progress()
        rows.append(
            {column: clip.get(column, "") for column in ("recording", "site", "datetime", "hour")}
            | {"clip": name, "done": "", "start_s": start_s, "end_s": end_s, "duration_s": duration_s}
            | {"sample_rate": rate, "strategy": strategy, "format": format}
        )
    if not rows:
        raise AudioError(f"no clip could be cut ({len(names):,} tried); the first: {failed[0][1]}")
    plan = pd.DataFrame(rows)
    prefilled = (
        None
        if prefill is None
        else [
            prefill(folder / CLIPS / str(row["clip"]), row).assign(recording=str(row["clip"])) for row in rows
        ]
    )
    annotations = clip_annotations(plan, prefilled)
    handed_out = _write_tables(annotations, plan, folder, format)
    counts = annotations.events["recording"].value_counts()
    plan["prefilled"] = plan["clip"].map(counts).fillna(0).astype(int)
    plan["handed_out"] = handed_out
    plan = plan[list(PLAN_COLUMNS)]
    plan.attrs["failed"] = failed
    write_text(folder / README, readme_text(plan, format, prefilled=prefill is not None))
    # last: a folder with a plan is complete
    write_text(folder / PLAN, format_table(PLAN_COLUMNS, [plan[c].tolist() for c in PLAN_COLUMNS]))
    return plan


def clip_names(clips: pd.DataFrame) -> list[str]:
    """``0001_S01_20240512_060000.wav``: rank, then site and wall clock where known, else the recording and second.

    Short, plain ASCII where the names are, and never two alike, since the rank is in front.
    """
    digits = max(4, len(str(len(clips))))
    names = []
    for rank, clip in enumerate(clips.to_dict("records"), start=1):
        clock = str(clip["datetime"])[:19]
        if clock:
            where = str(clip["site"])
            when = clock.replace("-", "").replace(":", "").replace("T", "_")
        else:
            where = Path(str(clip["recording"])).stem
            when = f"{float(clip['start_s']):g}s"
        plain = re.sub(r"[^\w.+-]+", "-", where).strip("-.")[:60]
        names.append("_".join([f"{rank:0{digits}d}", *([plain] if plain else []), when]) + ".wav")
    return names


def cut_clip(source: Path, target: Path, start_s: float, end_s: float) -> tuple[float, float, int, float]:
    """Copy a span of a recording into a WAV file at its own rate, all channels mixed, ten seconds in memory at a time.

    Returns:
        Where the clip really begins and ends (on the recording's samples), its rate, and the recording's duration.

    Raises:
        AudioError: the recording cannot be read, or holds no sound there.
    """
    info = probe(source)
    rate = info.sample_rate
    first, last = round(start_s * rate), min(round(end_s * rate), info.frames)
    subtype = info.subtype if info.subtype in _KEPT_SUBTYPES else "PCM_16"
    step = max(1, round(_BLOCK_S * rate))
    written = 0
    with (
        atomic_file(target) as part,
        sf.SoundFile(part, "w", samplerate=rate, channels=1, subtype=subtype, format="WAV") as clip,
    ):
        for begin in range(first, last, step):
            block = read(source, start_s=begin / rate, end_s=min(begin + step, last) / rate)
            if subtype.startswith("PCM"):
                block = np.clip(block, -1.0, 1.0)  # a decoded mp3 may go beyond ±1
            clip.write(block)
            written += len(block)
            if len(block) < min(step, last - begin):
                break  # the sound ends before the header says
        if not written:
            raise AudioError(
                f"{source}: holds no sound from {start_s:g} s to {end_s:g} s; copy the recording again or leave it out"
            )
    return first / rate, (first + written) / rate, rate, info.duration_s


def clip_annotations(plan: pd.DataFrame, filled: Sequence[pd.DataFrame] | None = None) -> AnnotationSet:
    """The clips as recordings of their own, listened to from end to end, with the boxes they are handed out with."""
    length = (plan["end_s"] - plan["start_s"]).to_numpy(dtype=np.float64)
    recordings = pd.DataFrame(
        {
            "recording": plan["clip"],
            "duration_s": length,
            "sample_rate": plan["sample_rate"].astype("float64"),
            "site": plan["site"],
            "datetime": plan["datetime"],
        }
    )
    reviewed = pd.DataFrame({"recording": plan["clip"], "start_s": 0.0, "end_s": length})
    parts = [part[["recording", *BOX_COLUMNS, "label", "score"]] for part in filled or () if len(part)]
    events = as_events(pd.concat(parts, ignore_index=True)) if parts else empty_events()
    return AnnotationSet(events, reviewed, recordings)


def prefill_from_events(events: pd.DataFrame) -> Prefill:
    """Boxes from a table over whole recordings, by the dataset's names: those that begin in a clip, cut to it."""
    own = {str(name): part for name, part in events.groupby("recording", sort=False)}

    def prefill(path: Path, row: Mapping[str, Any]) -> pd.DataFrame:
        found = own.get(str(row["recording"]))
        if found is None:
            return empty_events()
        inside = found[(found["start_s"] >= row["start_s"]) & (found["start_s"] < row["end_s"])]
        moved: pd.DataFrame = inside.assign(
            start_s=(inside["start_s"] - row["start_s"]).round(6),
            end_s=(np.minimum(inside["end_s"], row["end_s"]) - row["start_s"]).round(6),
        )
        return moved

    return prefill


def table_path(folder: Path, clip: str, format: str) -> Path:
    """Where the table of a clip lies; the project of all clips for Whombat."""
    if format == "aoef":
        return folder / PROJECT
    return folder / CLIPS / (Path(clip).stem + TABLE_SUFFIX[format])


def fingerprint(path: Path) -> str:
    """A hash of a table's content that ignores changed line ends; empty where there is no table."""
    if not path.is_file():
        return ""
    lines = path.read_bytes().replace(b"\r\n", b"\n").strip()
    return "sha256-" + hashlib.sha256(lines).hexdigest()[:16]


def _write_tables(annotations: AnnotationSet, plan: pd.DataFrame, folder: Path, format: str) -> list[str]:
    """Write the tables and return the fingerprint of each; a project itself says what was done, so it has none."""
    if format == "aoef":
        write_project(annotations, folder / PROJECT, name=folder.name)
        return [""] * len(plan)
    write_annotations(annotations, folder / CLIPS, format)
    (folder / CLIPS / "recordings.csv").unlink(missing_ok=True)  # plan.csv says all that and more
    return [fingerprint(table_path(folder, name, format)) for name in plan["clip"]]


def _make_folder(folder: Path) -> Path:
    if holds_files(folder):
        raise ConfigError(
            f"{folder}: exists already, and somebody's annotations may be in it; choose a new --out for this plan"
        )
    (folder / CLIPS).mkdir(parents=True, exist_ok=True)
    return folder
