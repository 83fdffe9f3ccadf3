"""The files of a folder that `mast detect` fills; reading them needs neither a detector nor torch.

``run.json`` says how the detections were made: which model, which threshold, which band, from which recordings. Every
recording that is done has a *mark*, ``recordings/NAME.parquet``: its events, and facts about it in the header. A
recording that failed has ``recordings/NAME.failed.json`` instead. A name that no file can have, or that would get in
the way of another mark, is replaced by its hash; the mark itself says which recording it belongs to.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mast.detect_options import DEFAULT_OPTIONS, DetectOptions
from mast.errors import AnnotationError, ConfigError, first_line
from mast.files import write_json
from mast.version import __version__

RUN, MARKS, TABLE = "run.json", "recordings", "detections"
DETECTIONS, FAILURES, EMBEDDINGS = f"{TABLE}.parquet", "failures.csv", "embeddings.npy"
DONE, FAILED = ".parquet", ".failed.json"  # endings of marks
_BATCH = 65_536  # events in memory at a time
_HASH = re.compile("[0-9a-f]{64}")
FACTS = b"mast"  # key of a mark's facts in its Parquet header
# bytes; file systems allow 255, and a path of 4,096 with the folder's own
_LONGEST_NAME, _LONGEST_PATH = 200, 1_000


@dataclass(frozen=True)
class DetectionRun:
    """How the detections in a folder were made.

    Attributes:
        root: the folder, or URI, that recordings are named relative to.
        model: as it was given: ``default``, a folder, ``hf://owner/name``; empty where an older version wrote the file.
        weights_sha256: of the model; empty where unknown.
        threshold: minimum score of an event in the tables; ``None`` where unknown.
        band_hz: lower and upper edge of the band that was searched; ``None`` where an older version wrote the file.
        inputs: files, folders and URIs that were given, as full paths.
        options: those of the last command; for an older version's file, those that it holds.
        made_with: everything that affects what is found, as it was when the folder was started.
        operating_point: where the threshold was chosen for a precision: the target, and what validation reached.
    """

    root: str
    model: str = ""
    weights_sha256: str = ""
    threshold: float | None = None
    band_hz: tuple[float, float] | None = None
    inputs: tuple[str, ...] = ()
    options: DetectOptions = DEFAULT_OPTIONS
    made_with: Mapping[str, str | float] = field(default_factory=dict)
    operating_point: Mapping[str, object] | None = None

    @property
    def model_id(self) -> str:
        """The model as the column ``model`` of the tables names it."""
        return model_id(self.weights_sha256)


def model_id(weights_sha256: str) -> str:
    """What a model is called in tables and stores."""
    # with letters in front: spreadsheets take 522240498917 and 5e1240498917 for numbers
    return f"mast-{weights_sha256[:12]}"


def read_run(folder: str | Path) -> DetectionRun | None:
    """What ``run.json`` says; ``None`` where a folder has none, so that it is not from `mast detect`.

    Raises:
        ConfigError: the file is damaged, or somebody else's.
    """
    path = Path(folder) / RUN
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return _parse_run(content)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError):
        raise ConfigError(
            f"{path}: is damaged or not from mast detect; give a folder of its results, or choose another --out"
        ) from None


def find_run(predictions: str | Path) -> DetectionRun | None:
    """The run of detect that made a results folder, or the table in it; ``None`` where they come from elsewhere.

    Raises:
        ConfigError: what a folder says about its run is damaged, or somebody else's.
    """
    path = Path(predictions)
    if path.is_dir():
        return read_run(path)
    try:
        return read_run(path.parent) if path.stem == TABLE else None
    except ConfigError:  # a table of that name next to the file of another program
        return None


def _parse_run(content: dict[str, Any]) -> DetectionRun:
    """Older versions kept all facts in ``made_with``, and no band."""
    made_with: dict[str, str | float] = dict(content["made_with"])
    root, model = made_with["root"], content.get("model", "")
    weights = content.get("weights_sha256", made_with.get("model", ""))
    if not all(isinstance(text, str) for text in (root, model, weights)):
        raise TypeError
    threshold = content.get("threshold", made_with.get("threshold"))
    band = content.get("band_hz")
    low_high = None if band is None else (float(band[0]), float(band[1]))
    numbers = [float(number) for number in (threshold, *(low_high or ())) if number is not None]
    if not all(math.isfinite(number) for number in numbers):
        raise ValueError
    return DetectionRun(
        root=str(root),
        model=model,
        weights_sha256=str(weights),
        threshold=None if threshold is None else float(threshold),
        band_hz=low_high,
        inputs=tuple(str(given) for given in content.get("inputs", ())),
        options=_parse_options(content, made_with, threshold, low_high),
        made_with=made_with,
        operating_point=content.get("operating_point"),
    )


def _parse_options(
    content: Mapping[str, Any],
    made_with: Mapping[str, Any],
    threshold: float | None,
    band_hz: tuple[float, float] | None,
) -> DetectOptions:
    """The options of a run; older versions did not write them, but most can be inferred from the rest."""
    if "options" in content:
        return DetectOptions.model_validate(content["options"])
    point = content.get("operating_point")
    known = {
        "precision_target" if point else "threshold": point["target"] if point else threshold,
        "band_hz": None if band_hz is None else band_hz[1],
        "embed": bool(made_with.get("embeddings")),
        **({"hop": made_with["hop"]} if "hop" in made_with else {}),
    }
    return DetectOptions.model_validate(known)


def write_run(folder: Path, run: DetectionRun) -> None:
    """Write ``run.json``."""
    content: dict[str, object] = {
        "mast": __version__,
        "model": run.model,
        "weights_sha256": run.weights_sha256,
        "threshold": run.threshold,
        "band_hz": None if run.band_hz is None else list(run.band_hz),
        "inputs": list(run.inputs),
        "root": run.root,
        "options": run.options.model_dump(mode="json"),
        "made_with": dict(run.made_with),
    }
    if run.operating_point is not None:
        content["operating_point"] = dict(run.operating_point)
    write_json(folder / RUN, content)


def found_batches(folder: Path, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
    """The table of detections in batches; the events of one recording follow each other.

    Raises:
        AnnotationError: it cannot be read.
    """
    path = folder / DETECTIONS
    try:
        with pq.ParquetFile(path) as file:
            yield from file.iter_batches(batch_size=_BATCH, columns=columns)
    except (OSError, KeyError, ValueError, pa.ArrowException) as error:
        raise AnnotationError(
            f"{path}: not a table of detections ({first_line(error)}); run mast detect again"
        ) from None


def mark_path(folder: Path, recording: str, ending: str) -> Path:
    """Where a recording's mark lies: under its own name, unless no file can have it or another mark could need it."""
    raw = os.fsencode(recording)
    *above, last = recording.split("/")
    usual = (
        len(raw) <= _LONGEST_PATH
        and all(len(part) <= _LONGEST_NAME for part in raw.split(b"/"))
        # a folder where a file may have to be
        and not any(part.lower().endswith((DONE, FAILED)) for part in above)
        and not last.startswith(".")  # like files that are being written
    )
    name = recording if usual else hashlib.sha256(raw).hexdigest()
    return folder / MARKS / f"{name}{ending}"


def marks(folder: Path, ending: str) -> Iterator[tuple[str, Path]]:
    """Recordings that have a mark with this ending, and the marks.

    Raises:
        OSError: part of the folder cannot be listed, so a table would be incomplete.
    """

    def reraise(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):  # where nothing is done yet
            raise error

    root = folder / MARKS
    for where, _, files in os.walk(root, onerror=reraise):
        for file in files:
            if file.endswith(ending) and not file.startswith("."):
                path = Path(where, file)
                name = path.relative_to(root).as_posix().removesuffix(ending)
                if _HASH.fullmatch(name):
                    facts = mark_facts(path) if ending == DONE else failure_facts(path)
                    name = str(facts["recording"]) if facts else name
                yield name, path


def failure_facts(mark: Path) -> dict[str, Any] | None:
    """``recording`` and ``reason`` of a failure; ``None`` where another process has just searched it after all."""
    try:
        facts = json.loads(mark.read_text(encoding="utf-8"))
        return facts if {"recording", "reason"} <= set(facts) else None
    except (OSError, ValueError, TypeError):
        return None


def mark_facts(mark: Path) -> dict[str, Any] | None:
    """What a mark says about its recording; ``None`` where it is missing or incomplete."""
    try:
        facts = json.loads((pq.read_schema(mark).metadata or {})[FACTS])
        return facts if isinstance(facts, dict) and isinstance(facts.get("recording"), str) else None
    except (OSError, pa.ArrowInvalid, KeyError, ValueError, RecursionError):
        return None
