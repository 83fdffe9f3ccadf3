"""Who calls when."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mast.data.simulate.world import Caller, Day, Site

_BOUT_S = 45.0  # how long an animal keeps calling, on average (our choice)
_MAX_DISTANCE_M = 400.0


class Call(NamedTuple):
    """One phrase to come."""

    start_s: float
    species: Caller
    caller: int
    distance_m: float
    octaves: float
    level_db: float
    seed: int  # of this phrase's own draws, so that leaving one out changes no other


def schedule(
    rng: np.random.Generator, site: Site, day: Day, hour: float, duration_s: float, *, density: float = 1.0
) -> list[Call]:
    """Who calls when: animals come, call in their rhythm for a bout, and fall silent.

    Args:
        rng: draws the scene.
        site: where; its abundance says how many of each species.
        day: its activity scales them.
        hour: of the day, 0–24; species have their own hours.
        duration_s: length of the scene.
        density: factor on the number of animals; 0 gives an empty scene.

    Returns:
        Phrases in order of start; some begin before 0 and reach into the scene.
    """
    calls: list[Call] = []
    animals = 0
    density = density * float(np.exp(rng.normal(0.0, 0.5)))  # some minutes are livelier than others
    for index, species in enumerate(site.species):
        expected = density * site.abundance[index] * species.activity(hour) * day.activity[index]
        if expected <= 0:
            continue
        bouts = int(rng.poisson(expected * (duration_s + _BOUT_S) / _BOUT_S))
        if bouts and rng.random() < species.chorus:
            bouts += int(rng.poisson(5.0 * min(density, 1.0)))
        for _ in range(bouts):
            animals += 1
            bout_s = float(rng.exponential(_BOUT_S))
            begin_s = rng.uniform(-_BOUT_S, duration_s)
            distance = min(site.typical_distance_m * float(np.exp(rng.normal(0.0, 0.7))), _MAX_DISTANCE_M)
            octaves = float(rng.normal(0.0, 1.5 * species.variation))
            effort_db = float(rng.normal(0.0, 3.0))
            at = begin_s + rng.uniform(0.0, species.interval_s)
            while at < min(begin_s + bout_s, duration_s):
                if at > -species.longest_s:
                    calls.append(
                        Call(
                            at,
                            species,
                            animals,
                            distance,
                            octaves,
                            species.source_db + effort_db,
                            int(rng.integers(1 << 62)),
                        )
                    )
                at += 0.2 + species.interval_s * float(np.exp(rng.normal(0.0, 0.35)))
    calls.sort(key=lambda call: (call.start_s, call.caller))
    return calls
