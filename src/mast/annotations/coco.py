"""COCO JSON: each recording a picture of its spectrogram, each event a box in pixels.

The picture we describe has 100 columns per second and 512 rows from 0 Hz (bottom) to the Nyquist frequency
(top), linear in both: our choice, so that pixel boxes mean something; nothing is drawn. Besides the standard
fields an image carries ``extent`` (``[seconds, low_hz, high_hz]`` of the picture), ``reviewed`` (list of
``[start_s, end_s]``, null for the end of the recording) and what is known about the recording; an annotation
carries ``box`` (``[start_s, low_hz, end_s, high_hz]``, exact) and all event columns. Where ``bbox`` was
changed by another tool so that it differs from ``box``, ``bbox`` counts.

In files from elsewhere, images without ``extent`` are taken to span their whole recording and 0 Hz to Nyquist, so
duration and sample rate must be known; images without ``reviewed`` were listened to.

"""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd

from mast.annotations.base import AnnotationSet, required_extents, whole_spans
from mast.annotations.recording_names import RecordingNames
from mast.annotations.tables import read_json, write_text
from mast.errors import AnnotationError
from mast.events import BOX_COLUMNS, check_events

PIXELS_PER_SECOND = 100  # our choice: the paper's 10 ms frames
ROWS = 512  # our choice
_IMAGE = {"id", "file_name", "width", "height", "extent", "reviewed"}
_ANNOTATION = {"id", "image_id", "category_id", "bbox", "area", "iscrowd", "segmentation", "box"}


def read(path: Path, recordings: pd.DataFrame) -> AnnotationSet:
    """Read a COCO file."""
    content = read_json(path)
    images, annotations, categories = (
        _list(content, key, path) for key in ("images", "annotations", "categories")
    )
    labels = {key: str(c.get("name", "")) for key, c in _by_id(categories, f"{path}, categories").items()}
    names = RecordingNames(list(recordings["recording"]))
    by_id = _by_id(images, f"{path}, images")
    for i, image in enumerate(images):
        image["recording"] = names.of_path(str(_field(image, "file_name", f"{path}, images[{i}]")))
    found = [
        {"recording": im["recording"], **{k: v for k, v in im.items() if k not in _IMAGE}} for im in images
    ]
    known = AnnotationSet(recordings=pd.DataFrame(found) if found else AnnotationSet().recordings)
    known = known.with_recordings(recordings)
    durations, nyquists = known.durations(), known.nyquists()
    sizes = {n: (durations[n], nyquists[n]) for n in durations if n in nyquists}
    pictures = {key: _Picture(image, sizes, path) for key, image in by_id.items()}
    rows = [_event(a, f"{path}, annotations[{i}]", pictures, labels) for i, a in enumerate(annotations)]
    events = pd.DataFrame(rows) if rows else AnnotationSet().events
    check_events(events, lambda row: f"{path}, annotations[{row}]", blank_scores=False)
    return AnnotationSet(events, _reviewed(images, known, path), known.recordings)


class _Picture:
    """The scale of one image; worked out only when a box needs it."""

    def __init__(self, image: dict[str, object], sizes: dict[str, tuple[float, float]], path: Path) -> None:
        self.recording = str(image["recording"])
        self._image, self._sizes, self._path = image, sizes, path

    def scale(self) -> tuple[float, float, float, float]:
        """(seconds per pixel, Hz per pixel, height in pixels, low_hz)."""
        where = f"{self._path}, image {self.recording}"
        width, height = _numbers([self._image.get(k) for k in ("width", "height")], 2, where, "width, height")
        if not (width > 0 and height > 0):
            raise AnnotationError(f"{where}: width and height must be above 0, found {width:g} × {height:g}")
        span = self._image.get("extent")
        if span is not None:
            seconds, low, high = _numbers(span, 3, where, "extent")
        elif self.recording in self._sizes:
            (seconds, high), low = self._sizes[self.recording], 0.0
        else:
            raise AnnotationError(
                f"{where}: duration and sample rate are unknown, so pixels cannot be turned into seconds and Hz; "
                "give a recordings table with both, or --audio with the folder of the recordings"
            )
        return seconds / width, (high - low) / height, height, low


def _event(
    annotation: dict[str, object], where: str, pictures: dict[object, _Picture], labels: dict[object, str]
) -> dict[str, object]:
    image = _field(annotation, "image_id", where)
    if not _is_id(image) or image not in pictures:
        raise AnnotationError(f"{where}: image_id {image} is not among the images")
    category = annotation.get("category_id")
    if category is not None and (not _is_id(category) or category not in labels):
        raise AnnotationError(f"{where}: category_id {category} is not among the categories")
    picture = pictures[image]
    bbox = _numbers(_field(annotation, "bbox", where), 4, where, "bbox")
    if bbox[2] < 0 or bbox[3] < 0:
        raise AnnotationError(f"{where}: bbox has a negative width or height, found {bbox}")
    per_x, per_y, height, low = picture.scale()
    x, y, w, h = bbox
    box = [x * per_x, low + (height - y - h) * per_y, (x + w) * per_x, low + (height - y) * per_y]
    if "box" in annotation:
        exact = _numbers(annotation["box"], 4, where, "box")
        # a millionth of a pixel: rounding of bbox, not somebody's edit
        scale = np.array([per_x, per_y, per_x, per_y])
        if np.all(
            np.abs(np.array(exact) - box) <= 1e-6 * scale * (1 + np.abs(np.array(exact)) / scale * 1e-6)
        ):
            box = exact
    else:
        box[1] = max(box[1], 0.0) if box[1] > -1e-6 * per_y else box[1]
    further = {k: v for k, v in annotation.items() if k not in _ANNOTATION}
    (score,) = [1.0] if further.get("score") is None else _numbers([further["score"]], 1, where, "score")
    # the box comes last, so that no other field of the same name replaces it
    row = {"recording": picture.recording, **dict(zip(BOX_COLUMNS, box, strict=True))}
    return {**further, "score": score, **row, "label": labels.get(category, "")}


def _reviewed(images: list[dict[str, object]], known: AnnotationSet, path: Path) -> pd.DataFrame:
    silent = whole_spans([str(i["recording"]) for i in images if "reviewed" not in i], known.durations())
    rows = []
    for i, image in enumerate(images):
        where, spans = f"{path}, images[{i}]", image.get("reviewed") or []
        if not isinstance(spans, list) or not all(isinstance(s, list) and len(s) == 2 for s in spans):
            raise AnnotationError(f"{where}: reviewed must be pairs of start and end, found {spans!r}")
        for start, end in spans:
            times = _numbers([start, 0 if end is None else end], 2, where, "reviewed")
            span = {"start_s": times[0], "end_s": math.nan if end is None else times[1]}
            rows.append({"recording": image["recording"], **span})
    return pd.concat([silent, pd.DataFrame(rows)], ignore_index=True) if rows else silent


def _list(content: object, key: str, path: Path) -> list[dict[str, object]]:
    found = content.get(key) if isinstance(content, dict) else None
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise AnnotationError(f"{path}: no list {key!r}; a COCO file has images, annotations and categories")
    return found


def _field(item: dict[str, object], key: str, where: str) -> object:
    if item.get(key) is None:
        raise AnnotationError(f"{where}: {key} missing")
    return item[key]


def _is_id(value: object) -> bool:
    return isinstance(value, int | str)


def _by_id(items: list[dict[str, object]], where: str) -> dict[object, dict[str, object]]:
    found: dict[object, dict[str, object]] = {}
    for i, item in enumerate(items):
        key = _field(item, "id", f"{where}[{i}]")
        if not _is_id(key) or key in found:
            raise AnnotationError(f"{where}[{i}]: id {key!r} is not a valid id, or is used twice")
        found[key] = item
    return found


def _numbers(values: object, count: int, where: str, what: str) -> list[float]:
    """``count`` finite numbers from JSON."""
    try:
        if isinstance(values, list) and len(values) == count:
            numbers = [
                float(v) for v in values if isinstance(v, int | float | str) and not isinstance(v, bool)
            ]
            if len(numbers) == count and all(math.isfinite(v) for v in numbers):
                return numbers
    except (ValueError, OverflowError):
        pass
    words = {
        1: "a finite number",
        2: "two finite numbers",
        3: "three finite numbers",
        4: "four finite numbers",
    }
    found = values[0] if count == 1 and isinstance(values, list) and len(values) == 1 else values
    raise AnnotationError(f"{where}: {what} must be {words[count]}, found {found!r}")


def write(annotations: AnnotationSet, path: Path) -> None:
    """Write a COCO file; duration and sample rate of every recording must be known."""
    events = annotations.events
    known = annotations.recordings.set_index("recording").to_dict("index")
    spans = {str(name): group for name, group in annotations.reviewed.groupby("recording")}
    latest = events.groupby("recording")["end_s"].max().to_dict()
    images, scales, numbers = [], {}, {}
    sizes = required_extents(annotations, annotations.names(), "COCO")
    for i, (name, (duration, top)) in enumerate(sizes.items(), start=1):
        width = max(1, math.ceil(max(duration, latest.get(name, 0.0)) * PIXELS_PER_SECOND))
        scales[name], numbers[name] = ROWS / top if top else 1.0, i
        image = {"id": i, "file_name": name, "width": width, "height": ROWS}
        image["extent"] = [width / PIXELS_PER_SECOND, 0.0, top]
        group = spans.get(name)
        pairs = [] if group is None else zip(group["start_s"].tolist(), group["end_s"].tolist(), strict=True)
        image["reviewed"] = [[start, None if math.isnan(end) else end] for start, end in pairs]
        images.append({**image, **_informative(known.get(name, {}))})
    labels = {label: i for i, label in enumerate(sorted(set(events["label"])), start=1)}
    content = {
        "info": {"description": "boxes on spectrograms, 0 Hz at the bottom"},
        "images": images,
        "categories": [{"id": i, "name": label} for label, i in labels.items()],
        "annotations": [
            {
                "id": i,
                "image_id": numbers[row["recording"]],
                "category_id": labels[row["label"]],
                **_pixels([row[c] for c in BOX_COLUMNS], scales[row["recording"]]),
                "iscrowd": 0,
                **_informative(
                    {c: v for c, v in row.items() if c not in ("recording", "label", *BOX_COLUMNS)}
                ),
            }
            for i, row in enumerate(events.to_dict("records"), start=1)
        ],
    }
    write_text(path, json.dumps(content, ensure_ascii=False, indent=1, allow_nan=False) + "\n")


def _pixels(box: list[float], rows_per_hz: float) -> dict[str, object]:
    start, low, end, high = box
    width, height = (end - start) * PIXELS_PER_SECOND, (high - low) * rows_per_hz
    bbox = [start * PIXELS_PER_SECOND, max(0.0, ROWS - high * rows_per_hz), width, height]
    return {"bbox": bbox, "area": width * height, "box": box}


def _informative(facts: dict[object, object]) -> dict[str, object]:
    """Facts worth a field: no blanks, no NaN, no score of 1."""
    return {
        str(k): v
        for k, v in facts.items()
        if not (
            v == "" or v is None or (isinstance(v, float) and math.isnan(v)) or (k == "score" and v == 1.0)
        )
    }
