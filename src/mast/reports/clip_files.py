"""Detections as files to send: a sound clip and a picture of each, a table, and a page that shows them all.

Only the sound around each event is read, so an archive of any length will do. Clips that exist are not cut again:
after an interruption, the same call does the rest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import soundfile as sf

from mast.audio import probe, read
from mast.classifiers.voice_lists import VOICES, FindVoices, write_voices
from mast.errors import AudioError
from mast.files import atomic_file, write_atomic
from mast.grid import FrontEnd
from mast.reports.contact_sheet import Locate, caption_of, make_tiles, recording_not_found
from mast.reports.html_page import Section, page, paragraph
from mast.reports.spectrogram import image_png
from mast.reports.templating import render_macro
from mast.spans import TimeSpan
from mast.table_files import write_table
from mast.wording import counted

Choice = Literal["best", "random"]
Per = Literal["label", "site", "day", "hour", "recording"]
ClipFormat = Literal["wav", "flac"]

TABLE, FAILURES, PAGE = "clips.csv", "failures.csv", "index.html"
_MAX_SHOWN = 2_000  # clips on the page; more would make the browser slow
_LONGEST_NAME = 80  # letters taken from a recording's name or a label


class CutClip(NamedTuple):
    """One event and the names of its files, relative to the folder."""

    group: str
    sound: str
    picture: str  # empty where none is wanted
    event: dict[str, Any]


@dataclass
class CutResult:
    """What :func:`cut_clips` did."""

    clips: list[CutClip] = field(default_factory=list)
    failures: list[tuple[str, str]] = field(default_factory=list)  # recording, why
    left_out: int = 0  # events in which somebody speaks
    voices: dict[str, list[TimeSpan]] = field(default_factory=dict)  # by recording


def choose_events(
    events: pd.DataFrame, n: int, *, choice: Choice = "best", per: Per | None = None, seed: int = 0
) -> pd.DataFrame:
    """The events to cut, the best or a random draw, with a column ``group`` in front.

    Args:
        events: in the event schema.
        n: how many; of each group where there are groups.
        choice: ``"best"`` by score, ``"random"`` each with the same chance.
        per: what to group by; by default everything is one group.
        seed: of the draw.

    Returns:
        Group by group; the best first, a random draw in the order it was drawn.
    """
    order = events.sample(frac=1.0, random_state=seed)
    if choice == "best":
        order = order.sort_values("score", ascending=False, kind="stable")
    grouped = order.assign(group=_group_names(order, per))
    chosen = grouped.groupby("group", sort=False).head(n)
    chosen = chosen.sort_values("group", kind="stable")
    return chosen[["group", *events.columns]].reset_index(drop=True)


def _group_names(events: pd.DataFrame, per: Per | None) -> pd.Series[str]:
    if per is None:
        return pd.Series("", index=events.index)
    if per in ("day", "hour"):
        when = events["datetime"].astype(str)
        part = when.str[:10] if per == "day" else when.str[11:13] + "h"
        return part.where(when.str.len() >= 13, "no time")
    names = events[per].astype(str)
    return names.where(names != "", f"no {per}")


def cut_clips(
    chosen: pd.DataFrame,
    locate: Locate,
    out: Path,
    *,
    pad_s: float = 0.5,
    format: ClipFormat = "wav",
    front_end: FrontEnd | None = None,
    pictures: bool = True,
    voices: FindVoices | None = None,
    progress: Callable[[], None] = lambda: None,
) -> CutResult:
    """Cut a clip for each event, and write the table and the page.

    Args:
        chosen: events from :func:`choose_events`.
        locate: where a recording lies; :func:`mast.reports.contact_sheet.make_locator` makes one.
        out: the folder, which may hold clips of an earlier call.
        pad_s: sound before and after each event.
        format: of the sound.
        front_end: band of the pictures; by default, one that each event fits in.
        pictures: also draw a spectrogram with the box for each clip.
        voices: finds speech; events with speech are left out, and the stretches are listed.
        progress: called once per event.

    Raises:
        OSError: the files cannot be written; every clip that exists is complete.
    """
    cut = CutResult()
    for clip in _name_clips(chosen, format, pictures):
        recording = str(clip.event["recording"])
        path = locate(recording)
        try:
            if path is None:
                raise recording_not_found(recording)
            spoken = voices(path, *_clip_span(clip.event, pad_s)) if voices is not None else []
            if spoken:
                cut.left_out += 1
                cut.voices.setdefault(recording, []).extend(spoken)
                progress()
                continue
            if not (out / clip.sound).is_file():
                _cut_clip(path, clip.event, out / clip.sound, pad_s, format)
            if clip.picture and not (out / clip.picture).is_file():
                _draw_clip(path, clip.event, out / clip.picture, front_end)
            cut.clips.append(clip)
        except AudioError as error:
            cut.failures.append((recording, str(error)))
        progress()
    _write_table(cut, out)
    if voices is not None:
        write_voices(out / VOICES, cut.voices)
    write_atomic(out / PAGE, clips_page(cut, out.name).encode())
    return cut


def _name_clips(chosen: pd.DataFrame, format: ClipFormat, pictures: bool) -> Iterator[CutClip]:
    """Names that sort as the events do: number, score, recording, second, label."""
    group, number = None, 0
    digits = max(3, len(str(len(chosen))))
    for event in chosen.to_dict("records"):
        own = str(event.pop("group"))
        number = number + 1 if own == group else 1
        group = own
        score = float(event["score"])
        parts = [
            f"{number:0{digits}}",
            *([f"{score:.2f}"] if np.isfinite(score) else []),
            _safe_name(Path(str(event["recording"])).stem),
            f"{float(event['start_s']):09.3f}s",
            *([_safe_name(str(event["label"]))] if event.get("label") else []),
        ]
        stem = f"{_safe_name(own)}/{'_'.join(parts)}" if own else "_".join(parts)
        yield CutClip(
            own, f"{stem}.{format}", f"{stem}.png" if pictures else "", {str(k): v for k, v in event.items()}
        )


def _safe_name(text: str) -> str:
    """A text as part of a file name that is valid on every system."""
    plain = re.sub(r"[^\w\-. ]+", "-", text).strip(" .-")
    return plain[:_LONGEST_NAME] or "unnamed"


def _clip_span(event: dict[str, Any], pad_s: float) -> tuple[float, float]:
    """The span that a clip covers, in seconds of the recording."""
    return max(0.0, float(event["start_s"]) - pad_s), float(event["end_s"]) + pad_s


def _cut_clip(path: Path, event: dict[str, Any], target: Path, pad_s: float, format: ClipFormat) -> None:
    info = probe(path)
    start_s, end_s = _clip_span(event, pad_s)
    if not start_s < info.duration_s:
        raise AudioError(
            f"{path}: the event begins at {start_s:.1f} s, the recording ends at {info.duration_s:.1f} s"
        )
    sound = read(path, start_s=start_s, end_s=min(info.duration_s, end_s))
    with atomic_file(target) as part:
        sf.write(part, sound, info.sample_rate, format=format.upper(), subtype="PCM_16")


def _draw_clip(path: Path, event: dict[str, Any], target: Path, front_end: FrontEnd | None) -> None:
    table = pd.DataFrame([event])
    (tile,) = make_tiles(table, lambda _: path, front_end=front_end, sound=False)
    if tile.problem:
        raise AudioError(f"{path}: {tile.problem}")
    write_atomic(target, image_png(tile.picture))


def _write_table(cut: CutResult, out: Path) -> None:
    rows = [{"clip": clip.sound, "picture": clip.picture, **clip.event} for clip in cut.clips]
    write_table(out / TABLE, pd.DataFrame(rows, columns=None if rows else ["clip", "picture"]))
    if cut.failures or (out / FAILURES).exists():
        write_table(out / FAILURES, pd.DataFrame(cut.failures, columns=["recording", "reason"]))


def clips_page(cut: CutResult, title: str) -> str:
    """All clips with their pictures; the browser loads those in view from the files next to the page."""
    shown: dict[str, list[CutClip]] = {}
    for clip in cut.clips[:_MAX_SHOWN]:
        shown.setdefault(clip.group, []).append(clip)
    lead = paragraph(f"{counted(len(cut.clips), 'clip')}; the table of them is {TABLE}.")
    if len(cut.clips) > _MAX_SHOWN:
        lead += paragraph(f"This page shows the first {_MAX_SHOWN:,}.", soft=True)
    if cut.left_out:
        note = f"{cut.left_out:,} left out because somebody speaks there; {VOICES} says where."
        lead += paragraph(note, soft=True)
    if cut.failures:
        lead += paragraph(f"{len(cut.failures):,} could not be cut; {FAILURES} says why.", soft=True)
    sections = [
        Section(
            group or "Clips",
            f"group-{number}",
            render_macro("clips.html", "cards", [(clip, caption_of(clip.event)) for clip in clips]),
        )
        for number, (group, clips) in enumerate(shown.items())
    ]
    return page(title, render_macro("clips.html", "style") + lead, sections)
