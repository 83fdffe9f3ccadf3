"""AOEF JSON through the `soundevent` library: clips of recordings, each with its sound events.

A clip annotation is a span somebody listened to; one without sound events holds nothing. Events outside
every reviewed span are in a clip annotation tagged ``reviewed: no``. The label is the tag ``label`` (from
elsewhere: the species, else the first tag), the score a feature; site, datetime, source, model and other columns are
tags (text) or features (numbers). Prediction sets are read as detections that nobody has reviewed.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mast.annotations.base import AnnotationSet, required_extents
from mast.annotations.recording_names import RecordingNames
from mast.annotations.tables import read_json, read_text, write_text
from mast.errors import AnnotationError
from mast.events import BOX_COLUMNS, check_events

if TYPE_CHECKING:
    from soundevent import data

_NAMESPACE = uuid.UUID("5d6c1fd3-6d0b-5a43-9c3f-8f3d1b6f7a10")  # the same content gets the same identifiers
_LABEL_KEYS = ("label", "dwc:scientificName", "scientific_name", "species", "common_name", "event")
_NOT_REVIEWED = ("reviewed", "no")
_TIME_ONLY = ("TimeStamp", "TimeInterval")


def read(path: Path, recordings: pd.DataFrame) -> AnnotationSet:
    """Read an annotation set, annotation project, evaluation set, prediction set or model run."""
    from pydantic import ValidationError
    from soundevent.io import aoef

    _check_geometries(read_json(path), path)
    try:
        document = aoef.AOEFObject.model_validate_json(read_text(path))
        content = aoef.to_soundevent(document)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise AnnotationError(f"{path}: not an AOEF document ({place}: {first['msg']})") from None
    except (ValueError, KeyError, TypeError, NotImplementedError) as error:
        raise AnnotationError(f"{path}: not an AOEF document ({error})") from None
    annotated = getattr(content, "clip_annotations", None)
    predicted = getattr(content, "clip_predictions", None)
    if annotated is None and predicted is None:
        raise AnnotationError(
            f"{path}: holds a {document.data.collection_type}, expected annotations or predictions"
        )
    reader = _Reader(RecordingNames(list(recordings["recording"])))
    try:
        for clip in annotated or []:
            reader.add_clip(clip, reviewed=not any((t.key, t.value) == _NOT_REVIEWED for t in clip.tags))
        for clip in predicted or []:
            reader.add_clip(clip, reviewed=False)
    except AnnotationError as error:
        raise AnnotationError(f"{path}: {error}") from None
    known = AnnotationSet(recordings=reader.recordings_table()).with_recordings(recordings)
    events = pd.DataFrame(reader.events) if reader.events else AnnotationSet().events
    check_events(events, lambda row: f"{path}, sound event {row + 1}", blank_scores=False)
    spans = pd.DataFrame(reader.reviewed) if reader.reviewed else AnnotationSet().reviewed
    return AnnotationSet(events, spans, known.recordings)


def _check_geometries(content: object, path: Path) -> None:
    """Refuse swapped limits, which the library would put in order silently."""
    found = content.get("data", {}) if isinstance(content, dict) else {}
    events = found.get("sound_events") if isinstance(found, dict) else None
    boxes, places = [], []
    for i, event in enumerate(events if isinstance(events, list) else []):
        geometry = event.get("geometry", {}) if isinstance(event, dict) else {}
        if isinstance(geometry, dict) and geometry.get("type") == "BoundingBox":
            boxes.append(geometry.get("coordinates"))
            places.append(f"{path}, sound_events[{i}]")
    try:
        box = np.array(boxes, dtype=np.float64).reshape(len(boxes), 4)
    except (TypeError, ValueError, OverflowError):
        raise AnnotationError(f"{path}: a BoundingBox needs four numbers: start, low, end, high") from None
    check_events(pd.DataFrame(box, columns=BOX_COLUMNS), lambda row: places[row])


class _Reader:
    """Collects rows while walking through the clips."""

    def __init__(self, names: RecordingNames) -> None:
        self._names = names
        self._recordings: dict[str, dict[str, object]] = {}
        self.events: list[dict[str, object]] = []
        self.reviewed: list[dict[str, object]] = []

    def recordings_table(self) -> pd.DataFrame:
        rows = list(self._recordings.values())
        return pd.DataFrame(rows) if rows else AnnotationSet().recordings

    def add_clip(self, clip: Any, *, reviewed: bool) -> None:
        name = self._name(clip.clip.recording)
        if reviewed:
            self.reviewed.append(
                {"recording": name, "start_s": clip.clip.start_time, "end_s": clip.clip.end_time}
            )
        for item in clip.sound_events:
            self.events.append(self._event(item, name, clip.clip.recording))

    def _name(self, recording: data.Recording) -> str:
        name = self._names.of_path(Path(recording.path).as_posix())
        if name not in self._recordings:
            clock = ""
            if recording.date is not None and recording.time is not None:
                clock = f"{recording.date.isoformat()}T{recording.time.isoformat()}"
            self._recordings[name] = {
                "recording": name,
                "duration_s": recording.duration,
                "sample_rate": recording.samplerate,
                "site": next((t.value for t in recording.tags if t.key == "site"), ""),
                "datetime": next((t.value for t in recording.tags if t.key == "datetime"), clock),
            }
        return name

    def _event(self, item: Any, name: str, recording: data.Recording) -> dict[str, object]:
        start, low, end, high = _bounds(item.sound_event.geometry, recording.samplerate / 2)
        tags = [getattr(t, "tag", t) for t in item.tags]  # predictions wrap their tags
        texts: dict[str, str] = {}
        for tag in tags:
            texts.setdefault(tag.key, tag.value)
        label_key = next((k for k in _LABEL_KEYS if k in texts), next(iter(texts), ""))
        if label_key in ("site", "datetime", "source", "model"):
            label_key = ""
        label = texts.pop(label_key, "")
        numbers = {f.term.name: f.value for f in item.sound_event.features}
        said = {"score": item.score, "source": "detector"} if hasattr(item, "score") else {"score": 1.0}
        texts.pop("score", None)
        # the box comes last, so that no tag or feature of the same name replaces it
        box = dict(zip(BOX_COLUMNS, (start, low, end, high), strict=True))
        return {**said, **numbers, **texts, "recording": name, **box, "label": label}


def _bounds(geometry: Any, top_hz: float) -> tuple[float, float, float, float]:
    """The box around any geometry; the whole band for one without frequencies."""
    if geometry is None:
        raise AnnotationError("a sound event has no geometry; expected a box")
    numbers = np.ravel(geometry.coordinates) if geometry.type in _TIME_ONLY else None
    if numbers is not None:
        return float(numbers.min()), 0.0, float(numbers.max()), top_hz
    if geometry.type == "BoundingBox":
        start, low, end, high = geometry.coordinates
        return start, low, end, high
    points = np.array(list(_points(geometry.coordinates)), dtype=np.float64)
    low_corner, high_corner = points.min(axis=0).tolist(), points.max(axis=0).tolist()
    return low_corner[0], low_corner[1], high_corner[0], high_corner[1]


def _points(nested: Any) -> Iterator[tuple[float, float]]:
    """(time, frequency) pairs of a point, line or polygon, however deep they are nested."""
    if not isinstance(nested[0], list | tuple):
        yield nested[0], nested[1]
        return
    for part in nested:
        yield from _points(part)


def write(annotations: AnnotationSet, path: Path) -> None:
    """Write an annotation set; duration and sample rate of every annotated recording must be known."""
    from soundevent import data
    from soundevent.io import aoef

    known = annotations.recordings.set_index("recording").to_dict("index")
    groups = {str(n): g.to_dict("records") for n, g in annotations.events.groupby("recording", sort=False)}
    spans = {str(n): g for n, g in annotations.reviewed.groupby("recording", sort=False)}
    clips: list[data.ClipAnnotation] = []
    for name, (duration, top) in required_extents(annotations, annotations.annotated(), "AOEF").items():
        recording = _recording(name, duration, top, known.get(name, {}))
        rows = spans.get(name)
        pairs = (
            [] if rows is None else list(zip(rows["start_s"].tolist(), rows["end_s"].tolist(), strict=True))
        )
        events = groups.get(name, [])
        for start, end in pairs:
            inside = [e for e in events if start <= e["start_s"] <= end]
            events = [e for e in events if not start <= e["start_s"] <= end]
            clips.append(_clip(recording, start, end, inside, len(clips)))
        if events:  # outside of what was listened to
            latest = max(duration, *(e["end_s"] for e in events))
            clips.append(_clip(recording, 0.0, latest, events, len(clips), tags=[_tag(*_NOT_REVIEWED)]))
    identity = uuid.uuid5(_NAMESPACE, "/".join(str(c.uuid) for c in clips))
    content = data.AnnotationSet(uuid=identity, clip_annotations=clips, name="mast")
    write_text(path, aoef.to_aeof(content).model_dump_json(exclude_none=True, indent=1) + "\n")


def _recording(name: str, duration: float, top: float, facts: dict[Any, Any]) -> data.Recording:
    from soundevent import data

    tags = [_tag(k, str(facts[k])) for k in ("site", "datetime") if facts.get(k)]
    clock = pd.to_datetime(str(facts.get("datetime") or ""), errors="coerce")
    when = {"date": clock.date(), "time": clock.time()} if isinstance(clock, pd.Timestamp) else {}
    identity = uuid.uuid5(_NAMESPACE, name)
    rate = round(2 * top)
    return data.Recording(
        uuid=identity, path=name, duration=duration, channels=1, samplerate=rate, tags=tags, **when
    )


def _clip(
    recording: data.Recording,
    start: float,
    end: float,
    events: list[dict[Any, Any]],
    number: int,
    tags: list[data.Tag] | None = None,
) -> data.ClipAnnotation:
    from soundevent import data

    identity = uuid.uuid5(recording.uuid, f"{number}/{start!r}/{end!r}")
    clip = data.Clip(uuid=identity, recording=recording, start_time=start, end_time=end)
    sound_events = [_sound_event(recording, e, uuid.uuid5(identity, str(i))) for i, e in enumerate(events)]
    return data.ClipAnnotation(
        uuid=uuid.uuid5(identity, "annotation"), clip=clip, sound_events=sound_events, tags=tags or []
    )


def _sound_event(
    recording: data.Recording, event: dict[Any, Any], identity: uuid.UUID
) -> data.SoundEventAnnotation:
    from soundevent import data

    tags = [_tag("label", event["label"])] if event["label"] else []
    features = []
    for key, value in event.items():
        if key in ("recording", "label", *BOX_COLUMNS) or value is None or value == "":
            continue
        if isinstance(value, str):
            tags.append(_tag(key, value))
        elif math.isfinite(value) and not (key == "score" and value == 1.0):
            features.append(data.Feature(term=data.term_from_key(key), value=float(value)))
    box = data.BoundingBox(coordinates=[event[c] for c in BOX_COLUMNS])
    sound = data.SoundEvent(uuid=identity, recording=recording, geometry=box, features=features)
    return data.SoundEventAnnotation(uuid=uuid.uuid5(identity, "annotation"), sound_event=sound, tags=tags)


def _tag(key: str, value: str) -> data.Tag:
    from soundevent import data

    return data.Tag(term=data.term_from_key(key), value=value)
