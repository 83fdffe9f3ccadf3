"""BIRDeep as it is published: 641 minutes from nine recorders in Doñana, boxed.

``Audios/AM1/2023_05_10/AM1_20230510_060000.WAV`` …, and three tables next to ``Audios``: ``train_file.csv``,
``validation_file.csv``, ``test_file.csv`` (:mod:`mast.annotations.birdeep_csv`). A few recordings have a space
before their suffix, or ``AM02`` instead of ``AM2`` in their name; they are found all the same.

As in the paper, the sites AM4 and AM15 (App. "Dataset Statistics") and some dates are held out. The paper holds out two
dates, at AM4 and AM8, and does not name them; ours are the last two on which AM8 recorded (our choice), at every
site. A recording of AM4 on such a date counts as another site, here as everywhere.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection
from pathlib import Path

import pandas as pd

from mast.annotations import AnnotationSet, read_annotations
from mast.audio import find_recordings
from mast.data.layouts.folder import LayoutDataset, probe_recordings
from mast.data.splits import SITE_OOD, TEMPORAL_OOD
from mast.errors import AnnotationError

TABLES = {"train": "train_file.csv", "val": "validation_file.csv", "test": "test_file.csv"}
OOD_SITES = ("AM4", "AM15")
OOD_DATES_OF = "AM8"
_N_OOD_DATES = 2


def read_birdeep(
    folder: Path, *, ood_dates: Collection[str] | None = None, published_split: bool = False
) -> LayoutDataset:
    """Read the folder.

    Args:
        folder: holds the tables, and the recordings at any depth; recordings that are not there are left out.
        ood_dates: dates (YYYY-MM-DD) to hold out; by default AM8's last two.
        published_split: keep the tables' own train, validation and test; by default what is not held out is
            divided by :mod:`mast.data.splits`, as any dataset.
    """
    tables = {part: folder / name for part, name in TABLES.items() if (folder / name).is_file()}
    if not tables:
        raise AnnotationError(
            f"{folder}: holds none of {', '.join(TABLES.values())}; expected the folder of BIRDeep_AudioAnnotations"
        )
    root = folder / "Audios" if (folder / "Audios").is_dir() else folder
    paths = {path.relative_to(root).as_posix(): path for path in find_recordings(root)}
    known = probe_recordings(root, paths.values())
    events, reviewed, recordings = [], [], []
    part_of: dict[str, str] = {}
    spelt = _spellings(known["recording"])
    for part, table in tables.items():
        found = read_annotations(table, "birdeep", recordings=known)
        events.append(_with_known_names(found.events, spelt))
        reviewed.append(_with_known_names(found.reviewed, spelt))
        said = _with_known_names(found.recordings, spelt)
        recordings.append(said[said["site"] != ""])
        part_of |= dict.fromkeys(reviewed[-1]["recording"], part)
    listed = pd.concat(recordings, ignore_index=True).drop_duplicates("recording")
    here = set(known["recording"])
    absent = sorted(set(listed["recording"]) - here)
    if absent:
        warnings.warn(
            f"{folder}: {len(absent)} of {len(listed)} recordings in the tables are not in {root} and are left "
            f"out; the first: {absent[0]}",
            stacklevel=2,
        )
    listed = listed[listed["recording"].isin(here)][["recording", "site", "datetime"]]
    if listed.empty:
        raise AnnotationError(f"{folder}: no recording in the tables is in {root}; are the recordings there?")
    listed["site"] = [_site(site) for site in listed["site"]]
    listed = listed.merge(known, on="recording", how="left").sort_values("recording", ignore_index=True)
    listed["split"] = birdeep_splits(listed, ood_dates=ood_dates)
    if published_split:
        own = listed["recording"].map(part_of)
        listed["split"] = listed["split"].where(listed["split"] != "", own)
    boxes = pd.concat(events, ignore_index=True)
    heard = pd.concat(reviewed, ignore_index=True)[["recording"]].drop_duplicates().assign(start_s=0.0)
    annotations = AnnotationSet(
        boxes[boxes["recording"].isin(here)], heard[heard["recording"].isin(here)], listed
    )
    return LayoutDataset(annotations, {name: paths[name] for name in listed["recording"]})


def birdeep_splits(recordings: pd.DataFrame, *, ood_dates: Collection[str] | None = None) -> list[str]:
    """``site_ood``, ``temporal_ood`` or nothing for each row of a table with ``site`` and ``datetime``."""
    days = recordings["datetime"].str.slice(0, 10)
    if ood_dates is None:
        dates = sorted(set(days[recordings["site"] == OOD_DATES_OF]) - {""})
        ood_dates = dates[1:][-_N_OOD_DATES:]  # one is kept to learn from
    return [
        SITE_OOD if site in OOD_SITES else TEMPORAL_OOD if day in ood_dates else ""
        for site, day in zip(recordings["site"], days, strict=True)
    ]


def _site(text: str) -> str:
    """``AM2`` of ``AM02``, ``am2`` or ``2``."""
    number = re.fullmatch(r"(?:AM)?0*(\d+)", text.strip(), re.IGNORECASE)
    return f"AM{number[1]}" if number else text.strip()


def _normalised(name: str) -> str:
    """A file name with the different spellings in the dataset made the same."""
    file = re.sub(r"\s+", "", name.replace("\\", "/").rsplit("/", 1)[-1]).casefold()
    return re.sub(r"^am0*(\d)", r"am\1", re.sub(r"\.[a-z0-9]+$", "", file))


def _spellings(names: pd.Series[str]) -> dict[str, str]:
    return {_normalised(name): name for name in names}


def _with_known_names(table: pd.DataFrame, spelt: dict[str, str]) -> pd.DataFrame:
    known = set(spelt.values())
    return table.assign(
        recording=[n if n in known else spelt.get(_normalised(n), n) for n in table["recording"]]
    )
