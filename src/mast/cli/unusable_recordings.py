"""Recordings that annotations name but a folder cannot provide: not there, there more than once, or unreadable."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from mast.wording import counted, format_names

if TYPE_CHECKING:
    import pandas as pd

_NAMED = 2  # recordings that a sentence names; the others are counted
_BY_FOLDER = ("raven", "audacity", "yolo")  # formats whose files may be in a folder like their recording's


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
        AnnotationError: none can be used, for other reasons than being unreadable, so there is nothing to write.
    """
    from mast.annotations.recording_names import RecordingNames
    from mast.errors import AnnotationError

    wanted, present = sorted(set(named)), set(probed["recording"])
    names = RecordingNames(probed["recording"])
    ambiguous = {
        name: found for name in wanted if name not in present and len(found := names.all_of(name)) > 1
    }
    missing = [name for name in wanted if name not in present and name not in ambiguous]
    unreadable = sorted(set(probed["recording"][probed["duration_s"].isna()]).intersection(wanted))
    if missing and len(missing) == len(wanted):
        raise AnnotationError(
            f"{source}: none of its recordings ({format_names(named, _NAMED)}) is in {audio} (there "
            f"are {format_names(list(probed['recording']), _NAMED)}); give their folder with --audio, or correct their "
            "names"
        )
    reasons, of_total = [], f"of {counted(len(wanted), 'recording')}"
    if ambiguous:
        reasons.append(
            f"{_count_phrase(ambiguous, of_total)} in {audio} more than once: {_how_to_tell_apart(ambiguous, format)}"
        )
    if missing:
        which = format_names(missing, _NAMED)
        reasons.append(
            f"{_count_phrase(missing, of_total)} not in {audio} ({which}), {_unknown_properties(missing)}"
        )
    if reasons and len(ambiguous) + len(missing) == len(wanted):
        raise AnnotationError(f"{source}: {'; '.join(reasons)}")
    if unreadable:
        which = format_names(unreadable, _NAMED)
        reasons.append(
            f"{len(unreadable):,} {of_total} cannot be read ({which}), {_unknown_properties(unreadable)}"
        )
    return reasons


def _count_phrase(which: Collection[str], of_total: str) -> str:
    return f"{len(which):,} {of_total} {'is' if len(which) == 1 else 'are'}"


def _unknown_properties(which: Collection[str]) -> str:
    what = "its duration and sample rate" if len(which) == 1 else "their durations and sample rates"
    return f"so {what} are not known"


def _how_to_tell_apart(ambiguous: Mapping[str, Sequence[str]], format: str) -> str:
    """Where the first of the names is found, and how to say which recording it means."""
    name, found = next(iter(ambiguous.items()))
    folders = list(dict.fromkeys(PurePosixPath(one).parent.as_posix() for one in found))
    if len(folders) < len(found):  # a.wav and a.flac
        return f"{name} may be {_join_names(found)}; write in full which one it is"
    place = f"{name} is in {_join_names(folders)}"
    if format not in _BY_FOLDER:
        return f"{place}; write the folder, too, as in {found[0]}"
    or_column = ", or add a column Begin Path" if format == "raven" else ""
    return f"{place}; put its table into a folder {folders[0]} or {folders[1]}{or_column}"


def _join_names(names: Sequence[str]) -> str:
    return " and ".join(names) if len(names) == 2 else format_names(names, _NAMED)
