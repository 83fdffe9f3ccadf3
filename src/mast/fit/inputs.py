"""What a run is made from: the labelled dataset, the unlabelled ones, and words and fingerprints for them."""

from __future__ import annotations

import hashlib
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from mast.data.band_filter import restrict_to_band
from mast.data.recordings import Dataset, load_dataset
from mast.errors import MastError
from mast.events import BOX_COLUMNS
from mast.grid import FrontEnd
from mast.runs import Say, digest
from mast.table_files import write_table
from mast.training.leakage import avoid_leakage
from mast.training.start import Start

# warnings of load_dataset
_KNOWN_WARNINGS = (
    ".*( left out|not count as heard and empty|after (its|their) recording has ended|above half the sample rate"
    "|below 0 Hz|probably in kHz)"
)


@dataclass(frozen=True)
class Sources:
    """The data of a run.

    Attributes:
        labelled: the dataset with boxes.
        unlabelled: folders of further sound, and what is in each.
        start: what training starts from instead of pretraining, if anything.
    """

    labelled: Dataset
    unlabelled: tuple[Dataset, ...]
    start: Start

    @property
    def folders(self) -> list[Path]:
        """Folders of all sound, the labelled one first."""
        return [self.labelled.root, *(d.root for d in self.unlabelled)]

    @property
    def everything(self) -> list[tuple[str, Dataset]]:
        """Every dataset with a name for it."""
        return [("labelled", self.labelled), *(("unlabelled", dataset) for dataset in self.unlabelled)]

    def within_band(self, front_end: FrontEnd, say: Say) -> Sources:
        """The same without boxes outside the band; says how many those are."""
        seen = restrict_to_band(self.labelled, front_end, tell=lambda text: say(f"note: {text}"))
        return replace(self, labelled=seen)

    def without_leakage(self, front_end: FrontEnd, seed: int, say: Say) -> Sources:
        """The same, divided so that the start has learnt from nothing that is held back; says what that changes."""
        divided = avoid_leakage(
            self.labelled, self.start.folders, front_end, seed=seed, say=lambda text: say(f"note: {text}")
        )
        return replace(self, labelled=divided)


def load_sources(
    data: Path, unlabelled: Sequence[Path], *, annotations: Path | None, init: str | Path | None, say: Say
) -> Sources:
    """Read what is there; report what cannot be read; refuse a dataset without boxes.

    Args:
        data: the labelled dataset.
        unlabelled: folders of further recordings.
        annotations: boxes, if not ``data/boxes.csv``.
        init: a model as :func:`mast.models.find.find_model` takes it, or AudioMAE's file.
        say: called with a sentence about recordings that cannot be read.
    """
    say(f"scan: reading {', '.join(map(str, (data, *unlabelled)))}")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # absolute, so that a run resumes from wherever the command is typed
        labelled = load_dataset(data.absolute(), annotations=annotations)
        others = tuple(load_dataset(folder.absolute()) for folder in unlabelled)
    for message in dict.fromkeys(str(warning.message) for warning in caught):
        say(f"note: {message}")
    if labelled.annotations.events.empty:
        raise MastError(
            f"{data}: holds no boxes to learn from; expected {data / 'boxes.csv'}, or boxes in any format with "
            "--annotations (for sound without any, use `mast pretrain`)"
        )
    start = Start.find(init)
    if start.path is not None:
        start = replace(start, path=start.path.absolute())
    return Sources(labelled, others, start)


def ignore_source_warnings() -> None:
    """Ignore warnings about the data that were shown once already (use within ``catch_warnings``)."""
    warnings.filterwarnings("ignore", message=_KNOWN_WARNINGS)


def describe_sound(dataset: Dataset) -> str:
    """Recordings, their sizes and times of change, as words and a fingerprint: what an encoder learns from."""
    rows = []
    for name, duration in zip(dataset.recordings["file"], dataset.recordings["duration_s"], strict=True):
        about = dataset.path(str(name)).stat()
        rows.append([str(name), round(float(duration), 6), about.st_size, about.st_mtime_ns])
    hours = float(dataset.recordings["duration_s"].sum()) / 3600
    return f"{len(rows):,} recordings, {hours:.2f} h ({digest(sorted(rows))[:12]})"


def describe_labels(dataset: Dataset) -> str:
    """Boxes, what was listened to and how it is divided, as words and a fingerprint: what a detector learns from.

    Names of species, sites and hours do not matter to a detector of boxes, so they are left out.
    """
    parts = (
        dataset.recordings[["file", "split"]],
        dataset.annotations.events[["recording", *BOX_COLUMNS]],
        dataset.annotations.reviewed[["recording", "start_s", "end_s"]],
    )
    return f"{len(parts[1]):,} boxes ({_table_digest(parts)})"


def dataset_fingerprint(dataset: Dataset) -> str:
    """All that a report says about a dataset, as a fingerprint."""
    return _table_digest((dataset.recordings, dataset.annotations.events, dataset.annotations.reviewed))


def describe_inputs(sources: Sources) -> dict[str, str]:
    """What users call the inputs of a stage, by their names in the ledger."""
    datasets = {f"dataset {i}": str(dataset.root) for i, (_, dataset) in enumerate(sources.everything)}
    return {"labels": "your boxes or what was listened to", **datasets}


def start_fingerprint(start: Start) -> str:
    """The fingerprint of weights to start from."""
    if start.card is not None:
        return start.card.weights_sha256[:16]
    assert start.path is not None
    with start.path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def write_listing(sources: Sources, folder: Path) -> None:
    """Write ``recordings.csv`` over all sound and ``failures.csv`` of what cannot be read."""
    tables, failures = [], []
    for kind, dataset in sources.everything:
        reviewed = set(dataset.reviewed_recordings) if kind == "labelled" else set()
        boxes = Counter(dataset.annotations.events["recording"] if kind == "labelled" else [])
        names = dataset.recordings["file"]
        tables.append(
            dataset.recordings.assign(
                kind=kind,
                folder=str(dataset.root),
                reviewed=names.isin(reviewed),
                boxes=[boxes[name] for name in names],
            )
        )
        failures.append(dataset.failures.assign(kind=kind, folder=str(dataset.root)))
    for name, parts in (("recordings.csv", tables), ("failures.csv", failures)):
        write_table(folder / name, pd.concat(parts, ignore_index=True))


def _table_digest(tables: Sequence[pd.DataFrame]) -> str:
    rows = "\n\n".join("\n".join(sorted(t.to_csv(index=False, header=False).splitlines())) for t in tables)
    return digest(rows)[:12]
