"""Recordings that annotations name and that a folder does not give: not there, there more than once, or unreadable."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from mast.wording import counted, first_names

if TYPE_CHECKING:
    import pandas as pd

_NAMED = 2  # recordings that a sentence names; the others are counted
_BY_FOLDER = ("raven", "audacity", "yolo")  # formats of which a file may lie in a folder like its recording's


def unusable_recordings(
    named: Sequence[str], probed: pd.DataFrame, audio: Path, source: Path, format: str
) -> list[str]:
    """A sentence for each reason why some recordings cannot be used.

    Args:
        named: the recordings of the annotations.
        probed: those in the folder; ``duration_s`` is missing where one cannot be read.
        audio: the folder.
        source: the annotations.
        format: of the annotations, which decides what to do about a name that several recordings have.

    Raises:
        AnnotationError: none of them can be used, and not because they cannot be read: nothing is to be written.
    """
    from mast.annotations.recording_names import RecordingNames
    from mast.errors import AnnotationError

    wanted, there = sorted(set(named)), set(probed["recording"])
    names = RecordingNames(probed["recording"])
    several = {name: found for name in wanted if name not in there and len(found := names.all_of(name)) > 1}
    missing = [name for name in wanted if name not in there and name not in several]
    unreadable = sorted(set(probed["recording"][probed["duration_s"].isna()]).intersection(wanted))
    if missing and len(missing) == len(wanted):
        raise AnnotationError(
            f"{source}: none of its recordings ({first_names(named, _NAMED)}) is in {audio} (there are "
            f"{first_names(list(probed['recording']), _NAMED)}); give their folder with --audio, or correct their names"
        )
    told, of = [], f"of {counted(len(wanted), 'recording')}"
    if several:
        told.append(f"{_are(several, of)} in {audio} more than once: {_meant(several, format)}")
    if missing:
        told.append(
            f"{_are(missing, of)} not in {audio} ({first_names(missing, _NAMED)}), {_unknown(missing)}"
        )
    if told and len(several) + len(missing) == len(wanted):
        raise AnnotationError(f"{source}: {'; '.join(told)}")
    if unreadable:
        which = first_names(unreadable, _NAMED)
        told.append(f"{len(unreadable):,} {of} cannot be read ({which}), {_unknown(unreadable)}")
    return told


def _are(which: Collection[str], of: str) -> str:
    return f"{len(which):,} {of} {'is' if len(which) == 1 else 'are'}"


def _unknown(which: Collection[str]) -> str:
    what = "its duration and sample rate" if len(which) == 1 else "their durations and sample rates"
    return f"so {what} are not known"


def _meant(several: Mapping[str, Sequence[str]], format: str) -> str:
    """Where the first of the names is found, and how to say which recording it means."""
    name, found = next(iter(several.items()))
    folders = list(dict.fromkeys(PurePosixPath(one).parent.as_posix() for one in found))
    if len(folders) < len(found):  # a.wav and a.flac
        return f"{name} may be {_listed(found)}; write in full which one it is"
    place = f"{name} is in {_listed(folders)}"
    if format not in _BY_FOLDER:
        return f"{place}; write the folder, too, as in {found[0]}"
    or_column = ", or add a column Begin Path" if format == "raven" else ""
    return f"{place}; put its table into a folder {folders[0]} or {folders[1]}{or_column}"


def _listed(names: Sequence[str]) -> str:
    return " and ".join(names) if len(names) == 2 else first_names(names, _NAMED)
