"""soundscape-bench: a fixed benchmark of label-efficient detection, made by the simulator.

The paper's question, with enough boxes to answer it: one day at one site is labelled; how well does what was
learnt there work on that day, on other days, at other sites? A seed gives a world of many species, eight sites
and six days; ``OUT/labelled`` and ``OUT/unlabelled`` are two datasets as a user would have them:

=============  ==========================  =========================  ====================================
part           sites                       days                       size
=============  ==========================  =========================  ====================================
train          home                        the first                  48 min
val            home                        the first                  12 min
test           home                        the first                  40 min or more, 2,000 boxes or more
temporal_ood   home                        the five others            the same
site_ood       the seven others            all six                    the same
unlabelled     home and five others        all, not home's first      100 h
=============  ==========================  =========================  ====================================

Home is the site with the most usual number of boxes a minute (50, our choice; about 8 a chunk, as in the paper's
rainforest), found by listening to a little of each site. Two of the other sites are in no unlabelled sound, so
that ``site_ood`` can be measured for sites that were heard without labels and for sites that were never heard.
Recordings last a minute, begin on the minute, and no minute of a site is used twice. Test parts grow by a fixed
number of recordings until they hold their boxes. Where calls and backgrounds are real, the test parts use half of them,
and validation an eighth: no call or background that was learnt from is used to validate or test.

All sizes are our choice; 100 hours is what a recorder collects in a week.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from mast.data.simulate.dataset import (
    FIRST_DAY,
    PlannedRecording,
    SeenAndHidden,
    Simulation,
    Task,
    recording_writer,
    simulate_recording,
    write_boxes,
    write_recordings,
)
from mast.data.simulate.material import Share
from mast.data.simulate.visible import Event
from mast.data.simulate.world import DAYS_APART
from mast.errors import ConfigError
from mast.files import holds_files, write_json
from mast.version import __version__

NAME = "soundscape-bench"
EDITION = (
    3  # the first had 3.5 hours without labels, the second the same real calls in training and validation
)
MARK = "benchmark.json"
SITES, DAYS = 8, 6
UNHEARD_SITES = 2  # in site_ood, and in no unlabelled sound
TEST_PARTS = ("test", "temporal_ood", "site_ood")
# what real sound each part is made of; the test parts first: they may turn out too poor
SHARES: Mapping[Share, tuple[str, ...]] = {
    "test": TEST_PARTS,
    "learning": ("train", "unlabelled"),
    "validation": ("val",),
}
# From a pool of clips (its clips.csv): clips of one animal as calls (four-letter codes are flight calls), rain, water
# and engines as backgrounds. They were chosen by looking at pictures: clips of many callers (frog choruses, insects)
# give boxes over the whole band, and clips made in forests or in wind hold birds that would carry no box.
CALL_LABELS = ("[A-Z][A-Z][A-Z][A-Z]", "crow", "frog", "hen", "rooster")
BACKGROUND_LABELS = ("rain", "thunderstorm", "sea_waves", "airplane", "helicopter", "engine", "train")
_SEEDS = 7_000  # training worlds have small seeds, so none of them is a world of the benchmark
_ORDER = 83  # first word of the seed of a site-day's order of minutes
_MINUTES = 1_440
_FIRST = {"train": 0, "val": 100_000, "test": 200_000, "temporal_ood": 300_000, "site_ood": 400_000}
_FIRST |= {"unlabelled": 500_000}  # recording numbers: what a part holds does not depend on the others
_FIRST_TRIAL = 600_000
_TRIALS = 6  # recordings of 20 s by which a site is judged, on its first day and on the others
_TYPICAL_RATE = 50.0  # boxes a minute


class SoundscapeBench(BaseModel):
    """One benchmark. The defaults *are* the benchmark; smaller sizes are for rehearsals and tests."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int = Field(0, ge=0, description="number of the benchmark world")
    calls: Path | None = Field(None, description="folder of real calls, used along with procedural species")
    backgrounds: Path | None = Field(
        None, description="folder of real backgrounds, instead of procedural ones"
    )
    train: int = Field(48, ge=1, description="recordings")
    val: int = Field(12, ge=1, description="recordings")
    unlabelled: int = Field(6_000, ge=1, description="recordings")
    test: int = Field(40, ge=1, description="minimum number of recordings in each test part")
    test_step: int = Field(
        10, ge=1, description="recordings added at a time while a test part has too few boxes"
    )
    most_test: int = Field(200, ge=1, description="maximum number of recordings in each test part")
    test_boxes: int = Field(2_000, ge=0, description="minimum number of boxes in each test part")
    duration_s: float = Field(60.0, gt=0, le=60.0, description="of a recording")
    density: float = Field(1.5, gt=0, description="factor on the number of animals")
    home: int | None = Field(
        None, ge=0, lt=SITES, description="number of the labelled site, from 0; found by listening by default"
    )

    @cached_property
    def simulation(self) -> Simulation:
        """The world that is learnt from."""
        return self.simulation_of("learning")

    def simulation_of(self, share: Share) -> Simulation:
        """The world with one share of the real sound."""
        return Simulation(
            share=share,
            duration_s=self.duration_s,
            sites=SITES,
            days=DAYS,
            seed=_SEEDS + self.seed,
            species=60 if self.calls is None else 30,
            density=self.density,
            calls=self.calls,
            call_labels=_label_patterns(self.calls, CALL_LABELS),
            backgrounds=self.backgrounds,
            background_labels=_label_patterns(self.backgrounds, BACKGROUND_LABELS),
        )

    @cached_property
    def places(self) -> tuple[int, ...]:
        """Numbers of the sites: home, those with unlabelled sound, those without."""
        home = _typical_site(self.simulation) if self.home is None else self.home
        return (home, *(site for site in range(SITES) if site != home))


def _typical_site(simulation: Simulation) -> int:
    """The site that comes nearest to the usual boxes a minute, on its first day and on its other days."""
    short = simulation.model_copy(update={"duration_s": 20.0})
    per_minute = 60.0 / (20.0 * _TRIALS)
    off = []
    for site in range(SITES):
        counts = [0, 0]
        for k in range(2 * _TRIALS):
            day = 0 if k < _TRIALS else 1 + k % (DAYS - 1)
            start = FIRST_DAY + timedelta(days=day * DAYS_APART, hours=(k % _TRIALS + 0.5) * 24 / _TRIALS)
            number = _FIRST_TRIAL + site * 2 * _TRIALS + k
            planned = PlannedRecording(number, site, day, start, "", "")
            counts[k >= _TRIALS] += len(simulate_recording(short, planned).events)
        off.append(abs(np.log((min(counts) * per_minute + 1.0) / (_TYPICAL_RATE + 1.0))))
    return int(np.argmin(off))


class PartSize(NamedTuple):
    """What a part holds."""

    recordings: int
    minutes: float
    boxes: int


def make_soundscape_bench(
    out: Path,
    bench: SoundscapeBench,
    *,
    workers: int = 1,
    on_recording: Callable[[], None] = lambda: None,
) -> dict[str, PartSize]:
    """Write the benchmark, or find it there already.

    Args:
        out: folder to write: new, empty, or an earlier benchmark. The same benchmark, finished, is left as it
            is; any other benchmark is replaced.
        bench: which.
        workers: processes; what is written does not depend on them. They are spawned: a script that uses
            several must keep its own work under ``if __name__ == "__main__":``.
        on_recording: called after each recording.

    Returns:
        The size of each part.

    Raises:
        ConfigError: the folder holds something else, or a test part does not reach its number of boxes.
    """
    species = [caller.label for caller in bench.simulation.world.species]  # a wrong folder is reported here
    about = {
        "benchmark": NAME,
        "edition": EDITION,
        "mast": __version__,
        **bench.model_dump(mode="json"),
        "species": species,
    }
    sizes = _find_finished(out, about)
    if sizes is not None:
        return sizes
    _prepare(out)
    sites = [f"S{site + 1:02d}" for site in bench.places]
    write_json(out / MARK, {**about, "found": None})
    tables: dict[str, list[_Recorded]] = {}
    for share, parts in SHARES.items():
        with recording_writer(bench.simulation_of(share), workers) as simulate:
            for part in parts:
                folder = out / ("unlabelled" if part == "unlabelled" else "labelled") / "audio"
                folder.mkdir(parents=True, exist_ok=True)
                tables[part] = list(_record_part(bench, part, folder, simulate, on_recording))
    labelled = [one for part in _FIRST if part != "unlabelled" for one in tables[part]]
    unlabelled = [p._replace(split="") for p, _ in tables["unlabelled"]]
    write_recordings(out / "labelled" / "recordings.csv", [p for p, _ in labelled], bench.simulation)
    write_boxes(out / "labelled" / "boxes.csv", labelled)
    write_recordings(out / "unlabelled" / "recordings.csv", unlabelled, bench.simulation)
    # next to the datasets, not in one: to judge pseudo-labels by, never to learn from
    write_boxes(out / "unlabelled_truth.csv", tables["unlabelled"])
    sizes = {
        part: PartSize(len(own), len(own) * bench.duration_s / 60, sum(len(one.events) for one in own))
        for part, own in ((part, tables[part]) for part in _FIRST)
    }
    found: dict[str, object] = {"home": sites[0], "never_heard": sites[-UNHEARD_SITES:]}
    found["parts"] = {k: v._asdict() for k, v in sizes.items()}
    write_json(out / MARK, {**about, "found": found})
    return sizes


def plan_part(bench: SoundscapeBench, part: str, count: int) -> list[PlannedRecording]:
    """The first ``count`` recordings of a part: where and when. Longer plans begin with the shorter ones."""
    planned = []
    used: dict[tuple[int, int], int] = {}
    for k in range(count):
        place, day = _site_and_day(part, k)
        site = bench.places[place]
        turn = used.get((site, day), 0)
        used[site, day] = turn + 1
        # of a site-day, labelled parts take minutes from the front of its order, unlabelled sound from the end
        ahead = {"val": bench.train, "test": bench.train + bench.val}.get(part, 0)
        minute = _minutes(bench, site, day)[-1 - turn if part == "unlabelled" else ahead + turn]
        start = FIRST_DAY + timedelta(days=day * DAYS_APART, minutes=int(minute))
        file = f"S{site + 1:02d}_{start:%Y%m%d_%H%M%S}.flac"
        planned.append(PlannedRecording(_FIRST[part] + k, site, day, start, part, file))
    return planned


def _site_and_day(part: str, k: int) -> tuple[int, int]:
    """Place (0 is home) and day of the ``k``-th recording of a part."""
    if part == "temporal_ood":
        return 0, 1 + k % (DAYS - 1)
    if part == "site_ood":
        return 1 + k % (SITES - 1), k // (SITES - 1) % DAYS
    if part == "unlabelled":
        heard = SITES - UNHEARD_SITES
        place = 1 + k % (heard * DAYS - 1)  # all site-days but the first
        return place % heard, place // heard
    return 0, 0


def _minutes(bench: SoundscapeBench, site: int, day: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The minutes of a day in the order in which recordings at this site take them."""
    return np.random.default_rng([_SEEDS + bench.seed, _ORDER, site, day]).permutation(_MINUTES)


class _Recorded(NamedTuple):
    planned: PlannedRecording
    events: list[Event]


_Simulate = Callable[[Iterable[Task]], Iterable[SeenAndHidden]]


def _record_part(
    bench: SoundscapeBench, part: str, folder: Path, simulate: _Simulate, on_recording: Callable[[], None]
) -> Iterator[_Recorded]:
    """Record a part; a test part until it has its boxes."""
    n_first = {"train": bench.train, "val": bench.val, "unlabelled": bench.unlabelled}.get(part, bench.test)
    wanted = bench.test_boxes if part in TEST_PARTS else 0
    boxes = done = 0
    while done < n_first or boxes < wanted:
        count = done + bench.test_step if done else n_first
        if count > max(n_first, bench.most_test):
            raise ConfigError(
                f"{NAME}: {part} has only {boxes} boxes after {done} recordings, expected {wanted}; "
                "raise density or most_test"
            )
        fresh = plan_part(bench, part, count)[done:]
        for one, (events, _) in zip(fresh, simulate((one, folder) for one in fresh), strict=True):
            yield _Recorded(one, events)
            boxes += len(events)
            on_recording()
        done = count


def _label_patterns(folder: Path | None, labels: tuple[str, ...]) -> tuple[str, ...]:
    """The labels to use from a folder that says what its clips are; all clips of a folder that does not."""
    return labels if folder is not None and (folder / "clips.csv").is_file() else ()


def _find_finished(out: Path, about: dict[str, object]) -> dict[str, PartSize] | None:
    """Sizes of the same benchmark that was finished here before."""
    try:
        found = json.loads((out / MARK).read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        return None
    made = found.pop("found", None)
    if made is None or found != json.loads(json.dumps(about)):
        return None
    return {name: PartSize(**size) for name, size in made["parts"].items()}


def _prepare(out: Path) -> None:
    """Make the folder, or empty it of an earlier benchmark; refuse one that holds anything else."""
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{NAME}: {out} is a file; expected a new folder")
    if holds_files(out):
        if not (out / MARK).is_file():
            raise ConfigError(
                f"{NAME}: {out} holds files that are not this benchmark (no {MARK}); choose a new folder"
            )
        for name in ("labelled", "unlabelled"):
            shutil.rmtree(out / name, ignore_errors=True)
        (out / "unlabelled_truth.csv").unlink(missing_ok=True)
    out.mkdir(parents=True, exist_ok=True)
