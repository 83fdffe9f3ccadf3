"""Simulated recordings on disk: a dataset like any other, with its truth.

``OUT/audio/S01_20240512_060000.flac`` …, ``recordings.csv``, ``boxes.csv``, ``simulation.json`` (every
parameter) and, on request, ``hidden.csv`` (calls nobody could see). What a recording holds depends on the
seed and on its number alone: not on the number of processes, nor on their order.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cached_property
from multiprocessing import get_context
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import soundfile as sf
from pydantic import BaseModel, ConfigDict, Field, model_validator

from mast.data.simulate.material import Share, load_material
from mast.data.simulate.soundscape import Soundscape, render
from mast.data.simulate.species import Fauna
from mast.data.simulate.visible import BoxStyle, Event, merge_events
from mast.data.simulate.world import DAYS_APART, World
from mast.errors import ConfigError
from mast.files import atomic_file, holds_files, write_json
from mast.version import __version__

FIRST_DAY = datetime(2024, 5, 12)
MARK = "simulation.json"
RECORDING_COLUMNS = ("file", "site", "datetime", "split", "duration_s", "sample_rate")
BOX_COLUMNS = ("file", "start_s", "end_s", "low_hz", "high_hz", "label", "snr_db", "distance_m")
_OWN_NAME = re.compile(r"S\d{2,}_\d{8}_\d{6}\.(wav|flac)")
_RECORDING = 17  # first word of a recording's seed
_DAY_S = 86_400


class Simulation(BaseModel):
    """Everything that decides what a simulated dataset holds. Defaults are our choice."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    recordings: int = Field(12, ge=1, description="how many recordings")
    duration_s: float = Field(60.0, gt=0, description="length of each")
    sites: int = Field(4, ge=1)
    days: int = Field(6, ge=1)
    seed: int = Field(0, ge=0)
    species: int = Field(24, ge=0, description="procedural species in the world")
    density: float = Field(1.0, ge=0, description="factor on the number of animals; 0: none call")
    sample_rate: int = Field(16_000, ge=500, description="Hz, of the files")
    tape: float = Field(
        1.0,
        gt=0,
        description="speed of the tape: 24 turns birds into bats (times shrink, frequencies rise), 0.25 into fish",
    )
    hours: tuple[float, float] = Field((0.0, 24.0), description="recordings start between these hours")
    ood_sites: int | None = Field(
        None, ge=0, description="last sites held out as site_ood; a quarter of several by default"
    )
    ood_days: int | None = Field(
        None, ge=0, description="last days held out as temporal_ood; a third of several by default"
    )
    style: BoxStyle = Field(default_factory=BoxStyle, description="how boxes are drawn")
    distance: float = Field(
        1.0, gt=0, description="factor on the animals' distance: 0.3 is a microphone held towards them"
    )
    motifs: float = Field(
        0.0,
        ge=0,
        le=1,
        description="share of the species, real ones included, that sing: a few notes, each with its own pitch, again "
        "and again, boxed as one song or motif by motif",
    )
    fauna: Fauna | None = Field(
        None,
        description="only procedural species of this kind, at a bird's pace: a tape speed of 16 gives bats their own "
        "pace, 0.25 fish",
    )
    calls: Path | None = Field(None, description="folder of isolated calls")
    call_labels: tuple[str, ...] = ()
    call_speeds: tuple[float, float] = Field(
        (1.0, 1.0),
        description="real calls are played at a speed between these, different for each label and seed",
    )
    backgrounds: Path | None = Field(None, description="folder of real backgrounds")
    background_labels: tuple[str, ...] = ()
    quiet: float = Field(1.0, gt=0, le=1, description="share of each real background used, the calmest first")
    share: Share | None = Field(
        None, description="use only this share of the real calls of each label and of the real backgrounds"
    )
    format: Literal["flac", "wav"] = "flac"
    hidden: bool = Field(False, description="also write hidden.csv")

    @model_validator(mode="after")
    def _check_limits(self) -> Simulation:
        low, high = self.hours
        if not 0 <= low < high <= 24:
            raise ConfigError(
                f"simulate: hours {low:g}–{high:g}; expected two hours of one day, the earlier first"
            )
        if self.site_ood_sites >= self.sites or self.temporal_ood_days >= self.days:
            raise ConfigError(
                f"simulate: {self.site_ood_sites} of {self.sites} sites and {self.temporal_ood_days} of "
                f"{self.days} days are held out; at least one of each must remain to learn from"
            )
        if self.slots * 2 > (high - low) * 3_600:
            raise ConfigError(
                f"simulate: {self.slots} recordings per site and day do not fit into {high - low:g} hours; "
                "ask for more sites or days"
            )
        if self.duration_s * self.sample_rate < 0.05 * self.world_rate:
            raise ConfigError(
                f"simulate: recordings of {self.duration_s:g} s are too short; expected 0.05 s or more"
            )
        return self

    @property
    def site_ood_sites(self) -> int:
        """How many sites are held out."""
        return (
            self.ood_sites if self.ood_sites is not None else round(self.sites / 4 + 0.25) * (self.sites > 1)
        )

    @property
    def temporal_ood_days(self) -> int:
        """How many days are held out."""
        return self.ood_days if self.ood_days is not None else round(self.days / 3) * (self.days > 1)

    @property
    def slots(self) -> int:
        """Recordings per site and day, rounded up."""
        return -(-self.recordings // (self.sites * self.days))

    @property
    def world_rate(self) -> int:
        """Sample rate of the world before the tape is sped up."""
        return round(self.sample_rate / self.tape)

    @cached_property
    def world(self) -> World:
        """The world these recordings are made in."""
        material = load_material(
            self.calls,
            self.backgrounds,
            self.world_rate,
            call_labels=self.call_labels,
            background_labels=self.background_labels,
            quiet=self.quiet,
            speeds=self.call_speeds,
            motifs=self.motifs,
            seed=self.seed,
            share=self.share,
        )
        return World(
            self.seed,
            self.species,
            self.world_rate,
            material,
            distance=self.distance,
            motifs=self.motifs,
            fauna=self.fauna,
        )


class PlannedRecording(NamedTuple):
    """Where and when one recording is made."""

    number: int
    site: int
    day: int
    start: datetime
    split: str
    file: str

    @property
    def hour(self) -> float:
        """Hour of the day, 0–24."""
        return self.start.hour + self.start.minute / 60 + self.start.second / 3_600


Task = tuple[PlannedRecording, Path]  # and the folder of its sound
SeenAndHidden = tuple[list[Event], list[Event]]


class SimulatedCounts(NamedTuple):
    """What was written."""

    recordings: int
    boxes: int
    hidden: int
    empty: int  # recordings without a box


def plan_recordings(simulation: Simulation) -> list[PlannedRecording]:
    """Sites in turn, then days, then hours spread evenly (with a random part) over the day."""
    planned = []
    low, high = simulation.hours
    slot_s = (high - low) * 3_600 / simulation.slots
    for number in range(simulation.recordings):
        site, day = number % simulation.sites, number // simulation.sites % simulation.days
        slot = number // (simulation.sites * simulation.days)
        rng = np.random.default_rng([simulation.seed, _RECORDING, number, 0])
        second = low * 3_600 + slot_s * (slot + rng.uniform(0.0, 0.5 if simulation.slots > 1 else 1.0))
        if slot_s > 240:
            second = second // 60 * 60  # recorders start on the minute
        start = FIRST_DAY + timedelta(days=day * DAYS_APART, seconds=min(int(second), _DAY_S - 1))
        if site >= simulation.sites - simulation.site_ood_sites:
            split = "site_ood"
        elif day >= simulation.days - simulation.temporal_ood_days:
            split = "temporal_ood"
        else:
            split = "train"
        file = f"S{site + 1:02d}_{start:%Y%m%d_%H%M%S}.{simulation.format}"
        planned.append(PlannedRecording(number, site, day, start, split, file))
    return planned


def simulate_recording(simulation: Simulation, planned: PlannedRecording) -> Soundscape:
    """One recording in memory, with its boxes in the file's own seconds and hertz."""
    pieces = list(_pieces(simulation, planned))
    waveform = np.concatenate([piece.waveform for piece in pieces])
    return Soundscape(waveform, *_truth(simulation, pieces))


def simulate_dataset(
    out: Path,
    simulation: Simulation,
    *,
    workers: int = 1,
    on_recording: Callable[[], None] = lambda: None,
) -> SimulatedCounts:
    """Write a dataset.

    Args:
        out: its folder; must be new, empty, or an earlier simulation (which is replaced).
        simulation: what to write.
        workers: processes; the result does not depend on them. They are spawned: a script that uses
            several must keep its own work under ``if __name__ == "__main__":``.
        on_recording: called after each recording.
    """
    labels = [caller.label for caller in simulation.world.species]  # a wrong folder of calls is reported here
    prepare_folder(out)
    planned = plan_recordings(simulation)
    parameters = {"mast": __version__, **simulation.model_dump(mode="json"), "labels": labels}
    write_json(out / MARK, parameters)
    audio = out / "audio"
    audio.mkdir(exist_ok=True)
    found: dict[int, SeenAndHidden] = {}
    by_site = sorted(planned, key=lambda one: (one.site, one.number))  # a site's loops are made once
    with recording_writer(simulation, min(workers, len(planned))) as simulate:
        for one, boxes in zip(by_site, simulate((one, audio) for one in by_site), strict=True):
            found[one.number] = boxes
            on_recording()
    events = [found[one.number] for one in planned]
    write_recordings(out / "recordings.csv", planned, simulation)
    write_boxes(out / "boxes.csv", zip(planned, [seen for seen, _ in events], strict=True))
    if simulation.hidden:
        write_boxes(out / "hidden.csv", zip(planned, [unseen for _, unseen in events], strict=True))
    return SimulatedCounts(
        recordings=len(planned),
        boxes=sum(len(seen) for seen, _ in events),
        hidden=sum(len(unseen) for _, unseen in events),
        empty=sum(not seen for seen, _ in events),
    )


def prepare_folder(out: Path) -> None:
    """Make the folder, or empty it of an earlier simulation; refuse one that holds anything else."""
    if out.exists() and not out.is_dir():
        raise ConfigError(f"simulate: {out} is a file; expected a new folder")
    if holds_files(out):
        if not (out / MARK).is_file():
            raise ConfigError(
                f"simulate: {out} holds files that are not a simulation (no {MARK}); "
                "choose a new or empty folder"
            )
        for path in (out / "audio").glob("*"):
            if _OWN_NAME.fullmatch(path.name):
                path.unlink()
        for name in ("recordings.csv", "boxes.csv", "hidden.csv"):
            (out / name).unlink(missing_ok=True)
    out.mkdir(parents=True, exist_ok=True)


def _pieces(simulation: Simulation, planned: PlannedRecording) -> Iterable[Soundscape]:
    rng = np.random.default_rng([simulation.seed, _RECORDING, planned.number, 1])
    world = simulation.world
    return render(
        rng,
        world.site(planned.site),
        world.day(planned.day),
        planned.hour,
        duration_s=round(simulation.duration_s * simulation.sample_rate) / simulation.world_rate,
        style=simulation.style,
        density=simulation.density,
        hidden=simulation.hidden,
    )


def _truth(simulation: Simulation, pieces: list[Soundscape]) -> SeenAndHidden:
    tape = simulation.sample_rate / simulation.world_rate
    seen = merge_events([event for piece in pieces for event in piece.events], simulation.style)
    unseen = [event for piece in pieces for event in piece.hidden]
    return [play_at_speed(event, tape) for event in seen], [play_at_speed(event, tape) for event in unseen]


def play_at_speed(event: Event, tape: float) -> Event:
    """An event on a tape played ``tape`` times faster."""
    return replace(
        event,
        start_s=event.start_s / tape,
        end_s=event.end_s / tape,
        low_hz=event.low_hz * tape,
        high_hz=event.high_hz * tape,
    )


def _write_recording(simulation: Simulation, planned: PlannedRecording, audio: Path) -> SeenAndHidden:
    """Write one recording piece by piece; returns its boxes."""
    heard: list[Soundscape] = []
    # the format is given, because the temporary file's name does not show it
    with (
        atomic_file(audio / planned.file) as part,
        sf.SoundFile(
            part,
            "w",
            samplerate=simulation.sample_rate,
            channels=1,
            subtype="PCM_16",
            format=Path(planned.file).suffix[1:].upper(),
        ) as file,
    ):
        for piece in _pieces(simulation, planned):
            file.write(np.rint(piece.waveform * np.float32(32_767)).astype(np.int16))
            heard.append(piece._replace(waveform=np.zeros(0, np.float32)))
    return _truth(simulation, heard)


_simulation: Simulation | None = None  # of a worker process: its world is drawn once


def _start_worker(simulation: Simulation) -> None:
    global _simulation
    _simulation = simulation


def _write_in_worker(task: Task) -> SeenAndHidden:
    assert _simulation is not None
    return _write_recording(_simulation, *task)


@contextmanager
def recording_writer(
    simulation: Simulation, workers: int
) -> Iterator[Callable[[Iterable[Task]], Iterable[SeenAndHidden]]]:
    """A function that writes recordings and gives the boxes of each, in order; ``workers`` as for a dataset."""
    if workers <= 1:
        yield lambda tasks: (_write_recording(simulation, *task) for task in tasks)
        return
    with ProcessPoolExecutor(workers, get_context("spawn"), _start_worker, (simulation,)) as pool:
        yield lambda tasks: pool.map(_write_in_worker, list(tasks))


def write_recordings(path: Path, planned: Iterable[PlannedRecording], simulation: Simulation) -> None:
    """The table of recordings."""
    length, rate = f"{simulation.duration_s:g}", simulation.sample_rate
    rows = ((p.file, f"S{p.site + 1:02d}", p.start.isoformat(), p.split, length, rate) for p in planned)
    _write_rows(path, RECORDING_COLUMNS, rows)


def write_boxes(path: Path, recorded: Iterable[tuple[PlannedRecording, list[Event]]]) -> None:
    """The table of boxes of some recordings."""
    rows = (
        (
            p.file, f"{e.start_s:.5f}", f"{e.end_s:.5f}", f"{e.low_hz:.1f}", f"{e.high_hz:.1f}",
            e.label, f"{e.snr_db:.1f}", f"{e.distance_m:.1f}",
        )
        for p, events in recorded
        for e in events
    )  # fmt: skip
    _write_rows(path, BOX_COLUMNS, rows)


def _write_rows(path: Path, columns: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> None:
    with atomic_file(path) as part, part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
