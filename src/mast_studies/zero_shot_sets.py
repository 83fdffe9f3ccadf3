"""The labelled sets that models are measured on without having been trained there, and the model as used on each."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from mast.data.recordings import Dataset, load_dataset
from mast.data.simulate.dataset import Simulation, simulate_dataset
from mast.errors import ConfigError, MastError
from mast.grid import FrontEnd
from mast.models.card import CARD, WEIGHTS, load_card
from mast.models.checkpoint import update_card
from mast.version import __version__

# the animals in the sets that experts boxed
SET_ANIMALS = {
    "nbm_xc": "European birds",
    "birdeep_am1": "wetland birds",
    "tagus_fish": "fish",
    "cr_bats": "bats",
}
HALVES = ("first", "second", "both")
# the first half of these sets may be looked at while a model is made, the second half may not: --half has to name the
# one to read. Other scripts read these sets whole; docs/zero_shot.md says what came of that
HALVED = frozenset({"nbm_xc"})
# the parts to measure on, in sets whose other parts a shipped model may have learnt from
PARTS: dict[str, tuple[str, ...]] = {"birdeep_am1": ("temporal_ood",)}
PAPER_BAND_HZ = FrontEnd().high_hz
# a world that no model was trained in: its seed is used nowhere else, so neither are its species and sites
UNSEEN = Simulation(
    recordings=16, duration_s=30.0, sites=8, days=2, ood_sites=0, ood_days=0, seed=771_023, species=40
)


@dataclass(frozen=True, eq=False)
class LabelledSet:
    """Recordings that somebody boxed, as a model is measured on them.

    Attributes:
        name: of the dataset's folder.
        part: which part of it, in words.
        dataset: recordings, boxes, what was listened to.
        band_hz: upper edge of the band that is searched.
    """

    name: str
    part: str
    dataset: Dataset
    band_hz: float

    @property
    def front_end(self) -> FrontEnd:
        """The grid that boxes are compared on: the paper's, played at the set's band; the same for every system."""
        return FrontEnd.for_band(self.band_hz)

    @property
    def truth(self) -> pd.DataFrame:
        """The expert's boxes."""
        return self.dataset.annotations.events

    @property
    def reviewed(self) -> pd.DataFrame:
        """What was listened to."""
        return self.dataset.annotations.reviewed

    def about(self) -> dict[str, object]:
        """For the result file."""
        table = self.dataset.recordings
        return {
            "part": self.part,
            "recordings": len(table),
            "minutes": round(float(table["duration_s"].sum()) / 60, 2),
            "boxes": len(self.truth),
            "band_hz": self.band_hz,
        }


def parse_pairs(words: Iterable[str]) -> list[tuple[str, str]]:
    """Options of the form NAME=VALUE."""
    found = [word.partition("=") for word in words]
    for name, sign, value in found:
        if not (name and sign and value):
            raise ConfigError(f"{name}{sign}{value}: expected NAME=VALUE, such as tagus_fish=2000")
    return [(name, value) for name, _, value in found]


def half_of(names: Sequence[str], half: str) -> list[str]:
    """A fixed half of some recordings, decided by their names alone; an odd one is in the first half.

    >>> sorted(half_of(["a", "b", "c"], "first") + half_of(["c", "b", "a"], "second"))
    ['a', 'b', 'c']
    """
    if half not in HALVES:
        raise ConfigError(f"half '{half}': expected one of {', '.join(HALVES)}")
    order = sorted(set(names), key=lambda name: hashlib.sha256(f"half of {name}".encode()).hexdigest())
    middle = (len(order) + 1) // 2
    chosen = {"first": order[:middle], "second": order[middle:], "both": order}[half]
    return [name for name in names if name in set(chosen)]


def load_set(
    folder: Path,
    *,
    bands_hz: Mapping[str, float] | None = None,
    halves: Mapping[str, str] | None = None,
    max_recordings: int | None = None,
) -> LabelledSet:
    """Read a dataset, or the part of it that may be measured on.

    Args:
        folder: the dataset; its name decides what else applies.
        bands_hz: upper edge of the band by name; the paper's 8 kHz where there is none.
        halves: ``first``, ``second`` or ``both`` by name; needed for the sets in :data:`HALVED`.
        max_recordings: keep at most this many recordings, for a rehearsal.
    """
    name = folder.resolve().name
    half = (halves or {}).get(name)
    if name in HALVED and half is None:
        raise ConfigError(
            f"{folder}: this set is measured in halves; give --half {name}=first while a model is being made, and "
            f"--half {name}=second once the model is final"
        )
    dataset = load_dataset(folder)
    what = "all recordings"
    if name in PARTS:
        splits = dataset.recordings["split"]
        dataset = dataset.select(recordings=list(dataset.recordings.loc[splits.isin(PARTS[name]), "file"]))
        what = ", ".join(PARTS[name])
    if half is not None:
        dataset = dataset.select(recordings=half_of([str(n) for n in dataset.recordings["file"]], half))
        what += f", {half} half" if half != "both" else ", both halves"
    if max_recordings is not None:
        dataset = dataset.select(recordings=[str(n) for n in dataset.recordings["file"]][:max_recordings])
        what += f", {len(dataset)} recordings to rehearse with"
    if dataset.annotations.events.empty:
        raise MastError(f"{folder}: no box in {what}, so nothing can be measured there")
    return LabelledSet(name, what, dataset, (bands_hz or {}).get(name, PAPER_BAND_HZ))


def unseen_world(folder: Path) -> Path:
    """Simulated recordings of :data:`UNSEEN`, made unless they are there."""
    try:
        there = json.loads((folder / "simulation.json").read_text(encoding="utf-8"))
    except OSError:
        there = {}
    wanted = {"mast": __version__, **UNSEEN.model_dump(mode="json")}
    finished = (folder / "boxes.csv").is_file()  # written last
    if not finished or any(there.get(name) != value for name, value in wanted.items()):
        simulate_dataset(folder, UNSEEN)
    return folder


def write_variant(
    model: Path, out: Path, *, band_hz: float | None = None, threshold: float | None = None
) -> Path:
    """A copy of a model folder that looks at another band or has another threshold; its weights are the same.

    Args:
        model: a model folder.
        out: the copy, replaced if it is there.
        band_hz: upper edge of the band; the model's own by default.
        threshold: a raw score; the model's own by default.
    """
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    for name in (WEIGHTS, CARD):
        if (model / name).is_file():
            shutil.copy(model / name, out / name)
    card = load_card(out)
    changed = card if band_hz is None else card.at_band(band_hz)
    if threshold is not None:
        changed = changed.model_copy(update={"thresholds": {**card.thresholds, "score": threshold}})
    if changed != card:
        update_card(out, changed)
    return out
