"""What every annotation format reads into and writes from: boxes *and* what was listened to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd

from mast.arrays import FloatArray
from mast.errors import AnnotationError
from mast.events import (
    EVENT_COLUMNS,
    MAX_DURATION_S,
    MAX_HZ,
    as_events,
    check_events,
    empty_events,
    with_columns,
)
from mast.wording import counted

REVIEWED_COLUMNS: dict[str, str] = {"recording": "str", "start_s": "float64", "end_s": "float64"}
RECORDING_COLUMNS: dict[str, str] = {
    "recording": "str",
    "duration_s": "float64",
    "sample_rate": "float64",
    "site": "str",
    "datetime": "str",
}


LATE_S = 3600.0  # our choice: an event may end a little after its recording, never an hour

_REMEDY = (
    "give a recordings table with duration_s and sample_rate, or --audio with the folder of the recordings"
)


def _empty_table(columns: dict[str, str]) -> pd.DataFrame:
    """A table of these columns, each of its type, with no rows."""
    return pd.DataFrame({column: pd.Series([], dtype=dtype) for column, dtype in columns.items()})


@dataclass(frozen=True)
class AnnotationSet:
    """Events, the spans somebody listened to, and what is known about the recordings.

    A recording with a reviewed span and no event was heard and holds nothing; a recording without a
    reviewed span is unlabelled. ``end_s`` is NaN where a span runs to the end of a recording whose
    duration is not known. ``file`` is accepted for ``recording`` in each table; other columns are kept.

    >>> import pandas as pd
    >>> from mast.annotations import AnnotationSet
    >>> box = {"recording": "a.wav", "start_s": 1.0, "end_s": 2.0, "low_hz": 2000.0, "high_hz": 9000.0}
    >>> heard = pd.DataFrame({"recording": ["a.wav", "b.wav"], "start_s": 0.0, "end_s": 60.0})
    >>> found = AnnotationSet(pd.DataFrame([box]), heard)
    >>> len(found.events), found.reviewed_empty()
    (1, ['b.wav'])
    """

    events: pd.DataFrame = field(default_factory=empty_events)
    reviewed: pd.DataFrame = field(default_factory=lambda: _empty_table(REVIEWED_COLUMNS))
    recordings: pd.DataFrame = field(default_factory=lambda: _empty_table(RECORDING_COLUMNS))

    def __post_init__(self) -> None:
        recordings = with_columns(self.recordings, RECORDING_COLUMNS, "recordings table")
        repeated = recordings["recording"].duplicated()
        if repeated.any():
            name = recordings["recording"][repeated].iloc[0]
            raise AnnotationError(f"recordings table: {name} is listed twice; keep one row per recording")
        reviewed = with_columns(self.reviewed, REVIEWED_COLUMNS, "reviewed table")
        reviewed["start_s"] = reviewed["start_s"].fillna(0.0)
        duration = dict(zip(recordings["recording"], recordings["duration_s"], strict=True))
        reviewed["end_s"] = reviewed["end_s"].fillna(reviewed["recording"].map(duration).astype("float64"))
        object.__setattr__(self, "events", as_events(self.events))
        object.__setattr__(self, "reviewed", reviewed.drop_duplicates(ignore_index=True))
        object.__setattr__(self, "recordings", recordings)

    def annotated(self) -> list[str]:
        """Recordings with an event or a reviewed span, in order of appearance.

        >>> import pandas as pd
        >>> from mast.annotations import AnnotationSet
        >>> heard = pd.DataFrame({"recording": ["a.wav", "b.wav"]})
        >>> AnnotationSet(reviewed=heard).annotated()
        ['a.wav', 'b.wav']
        """
        return list(dict.fromkeys([*self.events["recording"], *self.reviewed["recording"]]))

    def names(self) -> list[str]:
        """Every recording mentioned anywhere, in order of appearance.

        >>> import pandas as pd
        >>> from mast.annotations import AnnotationSet
        >>> known = pd.DataFrame({"recording": ["a.wav", "b.wav"]})
        >>> AnnotationSet(recordings=known).names()
        ['a.wav', 'b.wav']
        """
        return list(dict.fromkeys([*self.recordings["recording"], *self.annotated()]))

    def reviewed_empty(self) -> list[str]:
        """Recordings that were listened to and hold no event.

        >>> from mast.data import load_dataset
        >>> load_dataset("sim").annotations.reviewed_empty()
        ['S02_20240512_105600.flac']
        """
        boxed = set(self.events["recording"])
        return [name for name in dict.fromkeys(self.reviewed["recording"]) if name not in boxed]

    def durations(self) -> dict[str, float]:
        """Recording → duration in seconds, where known.

        >>> import pandas as pd
        >>> from mast.annotations import AnnotationSet
        >>> known = pd.DataFrame({"recording": ["a.wav", "b.wav"], "duration_s": [60.0, None]})
        >>> AnnotationSet(recordings=known).durations()
        {'a.wav': 60.0}
        """
        return _known_values(self.recordings, "duration_s")

    def nyquists(self) -> dict[str, float]:
        """Recording → half its sample rate in Hz, where known.

        >>> import pandas as pd
        >>> from mast.annotations import AnnotationSet
        >>> known = pd.DataFrame({"recording": ["a.wav"], "sample_rate": [48_000]})
        >>> AnnotationSet(recordings=known).nyquists()
        {'a.wav': 24000.0}
        """
        return {name: rate / 2 for name, rate in _known_values(self.recordings, "sample_rate").items()}

    def _nyquist_of_events(self) -> pd.Series[float]:
        """Half the sample rate of each event's recording, infinite where not known."""
        return self.events["recording"].map(self.nyquists()).astype("float64").fillna(np.inf)

    def clipped_to_nyquist(self) -> AnnotationSet:
        """A copy with boxes cut to half the sample rate, where that is known: there is no sound above it.

        Events that reach above it are cut to it; events that lie wholly above it are left out. A recording with nothing
        but such events does not count as empty: what was heard there cannot be seen, so its spans are left out, too.

        >>> import pandas as pd
        >>> from mast.annotations import AnnotationSet
        >>> box = {"recording": "a.wav", "start_s": 1.0, "end_s": 2.0, "low_hz": 2000.0, "high_hz": 9000.0}
        >>> boxes, known = pd.DataFrame([box]), pd.DataFrame([{"recording": "a.wav", "sample_rate": 16_000}])
        >>> AnnotationSet(boxes, recordings=known).clipped_to_nyquist().events[["low_hz", "high_hz"]]
           low_hz  high_hz
        0  2000.0   8000.0
        """
        top = self._nyquist_of_events()
        cut = self.events.assign(high_hz=np.minimum(self.events["high_hz"], top))
        heard = self.reviewed[~self.reviewed["recording"].isin(self._entirely_above_nyquist())]
        return replace(self, events=cut[cut["low_hz"] < top], reviewed=heard)

    def _entirely_above_nyquist(self) -> set[str]:
        """Recordings that have events, all of them wholly above half the sample rate."""
        seen = self.events["low_hz"] < self._nyquist_of_events()
        return set(self.events["recording"][~seen]) - set(self.events["recording"][seen])

    def nyquist_warning(self, what: str) -> str:
        """What :meth:`clipped_to_nyquist` does to these events, in words, and whether they seem to be in kHz.

        Empty where there is nothing to say.

        >>> import pandas as pd
        >>> from mast.annotations import AnnotationSet
        >>> box = {"recording": "a.wav", "start_s": 1.0, "end_s": 2.0, "low_hz": 2000.0, "high_hz": 9000.0}
        >>> boxes, known = pd.DataFrame([box]), pd.DataFrame([{"recording": "a.wav", "sample_rate": 16_000}])
        >>> AnnotationSet(boxes, recordings=known).nyquist_warning("boxes")
        '1 of 1 boxes reached above half the sample rate and were cut to it'
        """
        top, n = self._nyquist_of_events(), len(self.events)
        above = self.events["low_hz"] >= top
        cut, left_out = int((~above & (self.events["high_hz"] > top)).sum()), int(above.sum())
        sentences = []
        if cut:
            sentences.append(f"{cut:,} of {n:,} {what} reached above half the sample rate and were cut to it")
        if left_out:
            sentences.append(
                f"{left_out:,} of {n:,} {what} lie wholly above half the sample rate and are left out"
            )
        if unseen := len(self._entirely_above_nyquist() & set(self.reviewed["recording"])):
            sentences.append(
                f"{counted(unseen, 'recording')} with no other {what} {'counts' if unseen == 1 else 'count'} as not "
                "listened to, instead of empty"
            )
        if n and (self.events["high_hz"] <= top / 1000).all() and np.isfinite(top).all():
            sentences.append(
                f"all {what} lie below {top.max() / 1000:g} Hz, so their frequencies are probably in kHz; "
                "multiply them by 1000 and try again"
            )
        return "; ".join(sentences)

    def after_the_end(self) -> int:
        """How many events start after their recording has ended, where its duration is known.

        >>> import pandas as pd
        >>> from mast.annotations import AnnotationSet
        >>> box = {"recording": "a.wav", "start_s": 70.0, "end_s": 71.0, "low_hz": 2000.0, "high_hz": 9000.0}
        >>> boxes, known = pd.DataFrame([box]), pd.DataFrame([{"recording": "a.wav", "duration_s": 60.0}])
        >>> AnnotationSet(boxes, recordings=known).after_the_end()
        1
        """
        lasts = self.events["recording"].map(self.durations()).astype("float64")
        return int((self.events["start_s"] > lasts).sum())

    def with_recordings(self, recordings: pd.DataFrame) -> AnnotationSet:
        """A copy that knows more about its recordings; ``recordings`` wins where both say something.

        >>> import pandas as pd
        >>> from mast.annotations import AnnotationSet
        >>> known = pd.DataFrame({"recording": ["a.wav"], "site": ["oak"]})
        >>> more = pd.DataFrame({"recording": ["a.wav"], "duration_s": [60.0]})
        >>> AnnotationSet(recordings=known).with_recordings(more).recordings[["recording", "duration_s", "site"]]
          recording  duration_s site
        0     a.wav        60.0  oak
        """
        new = with_columns(recordings, RECORDING_COLUMNS, "recordings table").set_index("recording")
        old = self.recordings.set_index("recording")
        blank = [table.mask(table == "") for table in (new, old)]
        merged = blank[0].combine_first(blank[1])
        order = list(dict.fromkeys([*old.index, *new.index]))
        columns = list(dict.fromkeys([*old.columns, *new.columns]))
        return replace(self, recordings=merged.loc[order, columns].rename_axis("recording").reset_index())


def spans_as_boxes(spans: pd.DataFrame) -> pd.DataFrame:
    """Reviewed spans as boxes without height, for :func:`check_events`; an open end becomes the start."""
    return spans.assign(end_s=spans["end_s"].fillna(spans["start_s"]), low_hz=0.0, high_hz=0.0)


def check_set(annotations: AnnotationSet, source: Path) -> None:
    """Refuse what makes no sense in any format; readers that know the line refuse earlier."""
    _check_recordings(annotations.recordings, source)
    check_events(annotations.events, lambda row: f"{source}, event {row + 1}")
    check_events(spans_as_boxes(annotations.reviewed), lambda row: f"{source}, reviewed span {row + 1}")
    events, durations = annotations.events, annotations.durations()
    lasts = events["recording"].map(durations).astype("float64")
    late = np.flatnonzero(events["end_s"] > lasts + LATE_S)
    if late.size:
        event = events.iloc[int(late[0])]
        raise AnnotationError(
            f"{source}, event {late[0] + 1}: ends at {event['end_s']:.10g} s, but {event['recording']} lasts "
            f"{durations[event['recording']]:.10g} s; does it belong to another recording, or are its times not in "
            "seconds?"
        )


def _check_recordings(recordings: pd.DataFrame, source: Path) -> None:
    """Refuse a duration or a sample rate that no recording has; what the caller knows has already replaced it."""
    for column, low, high, expected in (
        ("duration_s", 0.0, MAX_DURATION_S, "seconds, less than a year"),
        ("sample_rate", 1.0, 2 * MAX_HZ, "samples a second"),
    ):
        wrong = recordings[recordings[column].notna() & ~recordings[column].between(low, high)]
        if len(wrong):
            name, value = wrong["recording"].iloc[0], wrong[column].iloc[0]
            raise AnnotationError(f"{source}, {column} of {name}: found {value:.10g}, expected {expected}")


def _known_values(table: pd.DataFrame, column: str) -> dict[str, float]:
    some = table[table[column].notna()]
    return {str(name): float(value) for name, value in zip(some["recording"], some[column], strict=True)}


def whole_spans(names: list[str], durations: dict[str, float]) -> pd.DataFrame:
    """Reviewed spans that cover each of ``names`` from start to end."""
    return pd.DataFrame(
        {
            "recording": pd.Series(names, dtype="object"),
            "start_s": np.zeros(len(names)),
            "end_s": [durations.get(name, float("nan")) for name in names],
        }
    )


def required_extents(
    annotations: AnnotationSet, names: list[str], format_name: str
) -> dict[str, tuple[float, float]]:
    """Recording → (duration in s, Nyquist frequency in Hz), for formats that need both."""
    durations, nyquists = annotations.durations(), annotations.nyquists()
    for name in names:
        missing = [w for w, d in (("duration", durations), ("sample rate", nyquists)) if name not in d]
        if missing:
            raise AnnotationError(
                f"{name}: {' and '.join(missing)} unknown, but needed to write {format_name}; {_REMEDY}"
            )
    return {name: (durations[name], nyquists[name]) for name in names}


def fill_upper_limits(
    highs: FloatArray, names: Sequence[str], nyquists: dict[str, float], where: Callable[[int], str]
) -> FloatArray:
    """Upper limits, with the Nyquist frequency where the file leaves one open (NaN); ``where`` names a row."""
    filled = highs.copy()
    for row in np.flatnonzero(np.isnan(highs)).tolist():
        if names[row] not in nyquists:
            raise AnnotationError(
                f"{where(row)}: no upper frequency, and the sample rate of {names[row]} is unknown; {_REMEDY}"
            )
        filled[row] = nyquists[names[row]]
    return filled


ALL = frozenset({*EVENT_COLUMNS, *RECORDING_COLUMNS, "*"})
BOX_AND_LABEL = frozenset({"recording", "start_s", "end_s", "low_hz", "high_hz", "label"})


@dataclass(frozen=True)
class Format:
    """One annotation format: how to read it, how to write it, what it can hold.

    ``read(path, recordings)`` gets what the caller knows about the recordings; ``write(annotations, path)``
    gets frequencies already clipped. ``event_columns`` and ``recording_columns`` are what survives besides the
    box in a single file; ``"*"`` stands for every other column.
    """

    read: Callable[[Path, pd.DataFrame], AnnotationSet]
    write: Callable[[AnnotationSet, Path], None]
    suffix: str  # of a single file; empty where the format is always a folder
    event_columns: frozenset[str] = ALL
    recording_columns: frozenset[str] = frozenset()
    # may be a folder, whose `recordings.csv` then holds all that is known about recordings
    folder: bool = False
    control_characters: bool = True  # labels may hold tabs and line breaks

    def is_folder(self, path: Path) -> bool:
        """Whether ``path`` is (to be) a folder in this format."""
        return self.folder and (path.is_dir() or not path.suffix or not self.suffix)

    def lost(self, annotations: AnnotationSet, path: Path) -> list[str]:
        """What this format at ``path`` cannot store of ``annotations``, in words."""
        held = ALL if self.is_folder(path) else self.recording_columns
        return [
            *_lost_columns(annotations.events, self.event_columns, "events' "),
            *_lost_columns(annotations.recordings, held, "recordings' "),
            *self._lost_characters(annotations.events["label"]),
        ]

    def _lost_characters(self, labels: pd.Series[str]) -> list[str]:
        if (
            self.control_characters
            or not labels.str.contains(r"[\x00-\x1f\x7f\x85\u2028\u2029]", regex=True).any()
        ):
            return []
        return ["tabs and line breaks in labels (now spaces)"]


def _lost_columns(table: pd.DataFrame, held: frozenset[str], whose: str) -> list[str]:
    if "*" in held:
        return []
    defaults = {"score": 1.0}
    lost = []
    for column in table.columns:
        if column in held or column == "recording":
            continue
        default = defaults.get(str(column), "")
        informative = table[column].notna() & table[column].ne(default)
        if informative.any():
            lost.append(f"{whose}{column}")
    return lost


def informative_columns(events: pd.DataFrame) -> list[str]:
    """Optional columns of an event table that are filled in at least one row, and all other columns."""
    return [
        c
        for c in events.columns
        if c not in BOX_AND_LABEL
        and (c not in EVENT_COLUMNS or (events[c] != (1.0 if c == "score" else "")).any())
    ]
