"""Lists of speech: ``voices.csv`` has one row for each stretch in which somebody speaks.

A second list, ``voices_heard.csv``, names the recordings that were searched from beginning to end, with speech or
without. A stopped search resumes after them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pandas as pd

from mast.audio import probe
from mast.errors import AudioError, ConfigError
from mast.spans import TimeSpan, merge_spans
from mast.table_files import write_table

VOICES, HEARD = "voices.csv", "voices_heard.csv"
FindVoices = Callable[[Path, float, float], list[TimeSpan]]  # stretches of speech in a span of a recording

# searched at once: the detector normalises the level of each piece, and a crow must not hide a whisper
_PIECE_S = 30.0
_PAD_S = 1.0  # added before and after (our choice), as the detector often catches only part of what is said
_SAVE_S = 10.0  # a kill loses at most this much


def write_voices(path: Path, found: Mapping[str, Iterable[TimeSpan]]) -> None:
    """Write the stretches of each recording; those that overlap or touch become one."""
    rows = [(name, *span) for name in sorted(found) for span in merge_spans(found[name])]
    write_table(path, pd.DataFrame(rows, columns=["recording", "start_s", "end_s"]).round(3))


def read_voices(path: Path) -> dict[str, list[TimeSpan]]:
    """Stretches of each recording, in order; none where there is no list.

    Raises:
        ConfigError: it is not a list of speech.
    """
    if not path.exists():
        return {}
    found: dict[str, list[TimeSpan]] = {}
    for line, row in enumerate(_read(path, ["recording", "start_s", "end_s"]), start=2):
        try:
            start_s, end_s = float(row[1]), float(row[2])
        except ValueError:
            start_s = end_s = math.nan
        if not 0 <= start_s < end_s < math.inf:
            raise ConfigError(
                f"{path}: line {line} says {row[1]!r} to {row[2]!r} s; expected a start before an end, in seconds"
            )
        found.setdefault(row[0], []).append((start_s, end_s))
    return {name: merge_spans(spans) for name, spans in found.items()}


def update_voice_lists(
    recordings: Mapping[str, Path],
    finder: FindVoices,
    folder: Path,
    *,
    progress: Callable[[], None] = lambda: None,
) -> list[str]:
    """Add the speech of whole recordings to a folder's list, skipping those already searched.

    Each stretch is listed with a second before and after it.

    Args:
        recordings: name → path.
        finder: finds speech.
        folder: of the two lists.
        progress: called once per recording.

    Returns:
        The reason for each recording that could not be read; these are tried again next time.
    """
    voices, heard = read_voices(folder / VOICES), _read_heard(folder / HEARD)
    failures: list[str] = []
    saved_s = time.monotonic()
    for name, path in recordings.items():
        if name not in heard:
            try:
                spans = [*voices.get(name, []), *_search(path, finder)]
            except AudioError as error:
                failures.append(str(error))
            else:
                heard.add(name)
                if spans:
                    voices[name] = spans
            if time.monotonic() - saved_s > _SAVE_S:
                _save(folder, voices, heard)
                saved_s = time.monotonic()
        progress()
    _save(folder, voices, heard)
    return failures


def _search(path: Path, finder: FindVoices) -> list[TimeSpan]:
    duration_s = probe(path).duration_s
    starts = (k * _PIECE_S for k in range(math.ceil(duration_s / _PIECE_S)))
    found = [
        span for start_s in starts for span in finder(path, start_s, min(start_s + _PIECE_S, duration_s))
    ]
    return [(max(0.0, start_s - _PAD_S), min(end_s + _PAD_S, duration_s)) for start_s, end_s in found]


def _save(folder: Path, voices: Mapping[str, Iterable[TimeSpan]], heard: Iterable[str]) -> None:
    # in this order: a recording must not count as searched before its speech is listed
    write_voices(folder / VOICES, voices)
    write_table(folder / HEARD, pd.DataFrame({"recording": sorted(heard)}))


def _read_heard(path: Path) -> set[str]:
    return {row[0] for row in _read(path, ["recording"])} if path.is_file() else set()


def _read(path: Path, columns: list[str]) -> list[tuple[str, ...]]:
    try:
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
        return list(table[columns].itertuples(index=False, name=None))
    except (KeyError, ValueError) as error:  # pandas's own errors are ValueErrors
        raise ConfigError(
            f"{path}: not a list of speech; expected the columns {', '.join(columns)}"
        ) from error
