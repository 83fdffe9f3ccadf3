"""Found tables as systems would have left them, with a known number of hits and false alarms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from mast.evaluation.part_tables import PartTables
from mast.events import as_events
from mast.grid import FrontEnd
from mast_studies.found import Trial, save_about

THRESHOLD = 0.5


def boxes(recording: str, count: int, *, shift: float = 0.0) -> pd.DataFrame:
    """Boxes of half a second × 200 Hz, one a second."""
    start = np.arange(count) + shift
    return pd.DataFrame(
        {"recording": recording, "start_s": start, "end_s": start + 0.5, "low_hz": 800.0, "high_hz": 1_000.0}
    )


def measured(hits: dict[str, int], truths: dict[str, int], false_alarms: dict[str, int]) -> PartTables:
    """By recording: how many truths, how many of them found exactly, how many boxes where nothing is."""
    truth = pd.concat([boxes(name, count) for name, count in truths.items()])
    found = [boxes(name, count).assign(score=0.9) for name, count in hits.items()]
    found += [boxes(name, n, shift=50.0).assign(score=0.7) for name, n in false_alarms.items()]
    # below the threshold: right, but not counted
    found += [boxes(name, truths[name]).iloc[hits.get(name, 0) :].assign(score=0.2) for name in truths]
    reviewed = pd.DataFrame({"recording": sorted(truths), "start_s": 0.0, "end_s": np.inf})
    return PartTables(as_events(truth), as_events(pd.concat(found)), reviewed, FrontEnd(), THRESHOLD)


def write_found(
    work: Path,
    system: str,
    *,
    dataset: str = "made_up",
    seed: int = 0,
    part: str = "test",
    hits: dict[str, int],
    truths: dict[str, int],
    false_alarms: dict[str, int] | None = None,
    **about: object,
) -> Path:
    """The tables of one system and part; returns their folder."""
    folder = Trial.at(work, dataset, seed).system(system)
    measured(hits, truths, false_alarms or {}).save(folder, part)
    facts = {"recipe": {"front_end": FrontEnd().model_dump()}, "seconds": {"own": 60.0}, **about}
    save_about(folder, {"system": system, "title": system, "parameters": 1_000, **facts})
    return folder


def write_many_found(
    work: Path, systems: dict[str, float], *, dataset: str, seeds: int, parts: dict[str, float]
) -> None:
    """Many systems on many parts; ``systems`` and ``parts`` say how much of the truth is found."""
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        for part, ease in parts.items():
            truths = {f"{seed}-{part}-{i}.wav": int(rng.integers(5, 20)) for i in range(12)}
            for system, skill in systems.items():
                hits = {name: int(rng.binomial(n, skill * ease)) for name, n in truths.items()}
                wrong = {name: int(rng.binomial(n, 0.3 * (1 - skill * ease))) for name, n in truths.items()}
                write_found(
                    work,
                    system,
                    dataset=dataset,
                    seed=seed,
                    part=part,
                    hits=hits,
                    truths=truths,
                    false_alarms=wrong,
                    train_chunks=512,
                )
