"""In which order clips are worth a person's time.

Every strategy puts all candidates in one order, and a budget takes the first N: a larger plan contains the smaller, and
whoever stops early has annotated the best part. ``random`` and ``sequential`` are the paper's. ``time-balanced`` is the
paper's with sites taking turns within each hour, and counts what was heard before. ``diverse`` covers what the archive
sounds like, and weighs clips by how unsure the detector is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd

from mast.arrays import IntArray
from mast.data.part_assignment import shuffle_key
from mast.errors import ConfigError
from mast.planning.cover import Survey, cover_order

PlanStrategy = Literal["time-balanced", "random", "sequential", "diverse"]
PLAN_STRATEGIES: tuple[PlanStrategy, ...] = get_args(PlanStrategy)


def choose_clips(
    candidates: pd.DataFrame,
    n: int,
    strategy: PlanStrategy = "time-balanced",
    *,
    heard: pd.DataFrame | None = None,
    survey: Survey | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """Choose ``n`` clips, the most useful first.

    Args:
        candidates: as :func:`mast.planning.candidates.candidate_clips` gives.
        n: how many.
        strategy: see the module.
        heard: clips that were listened to before; ``time-balanced`` takes them into account.
        survey: what a model makes of each candidate; needed by ``diverse``.
        seed: of everything random.

    Returns:
        The chosen rows, best first, with ``rank`` from 1; the index is that of ``candidates``. Fewer than ``n`` where
        there are no more.
    """
    if n < 1:
        raise ConfigError(f"a plan of {n} clips: expected at least 1")
    if strategy == "diverse":
        if survey is None:
            raise ConfigError(
                "diverse: needs a model that says what each clip sounds like; give one with --model"
            )
        order = cover_order(survey, n)
    elif strategy == "time-balanced":
        order = balanced_order(candidates, heard, seed=seed)
    elif strategy == "random":
        order = random_order(candidates, seed=seed)
    elif strategy == "sequential":
        order = sequential_order(candidates)
    else:
        raise ConfigError(f"plan: no strategy '{strategy}'; expected one of {', '.join(PLAN_STRATEGIES)}")
    chosen = candidates.iloc[order[:n]]
    return chosen.assign(rank=np.arange(1, len(chosen) + 1))


def random_order(clips: pd.DataFrame, *, seed: int = 0) -> IntArray:
    """Row numbers of ``clips`` in an order that depends on the seed and on which clips there are."""
    return _sorted_rows([shuffle_key(seed, *place) for place in _clip_keys(clips)])


def sequential_order(clips: pd.DataFrame) -> IntArray:
    """Row numbers of ``clips`` in order of time; recordings whose time is not known come last, by name."""
    clock = clips["datetime"].fillna("").astype(str) if "datetime" in clips else [""] * len(clips)
    return _sorted_rows(
        [(when == "", when, *place) for when, place in zip(clock, _clip_keys(clips), strict=True)]
    )


def _clip_keys(clips: pd.DataFrame) -> list[tuple[str, str]]:
    """Recording and start of each clip; the start as text that sorts as the number does."""
    places = zip(clips["recording"].astype(str), clips["start_s"].astype(float), strict=True)
    return [(name, f"{start:015.6f}") for name, start in places]


def _sorted_rows(keys: Sequence[Any]) -> IntArray:
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.int64)


def balanced_order(clips: pd.DataFrame, heard: pd.DataFrame | None = None, *, seed: int = 0) -> IntArray:
    """Row numbers of ``clips``: one from each hour in turn, and within an hour one from each site in turn.

    With one site and nothing heard this is the paper's time-balanced order. What was heard counts as turns already
    taken, so that a second plan continues where the first ended. Clips without a clock are an hour of their own.
    """
    hours, sites = clips["hour"].tolist(), clips["site"].astype(str).tolist()
    keys = [shuffle_key(seed, *place) for place in _clip_keys(clips)]
    before_site: Counter[tuple[int, str]] = Counter()
    before_hour: Counter[int] = Counter()
    if heard is not None:
        before_site.update(zip(heard["hour"].tolist(), heard["site"].astype(str), strict=True))
        before_hour.update(heard["hour"].tolist())
    turn: list[tuple[int, str, str]] = [(0, "", "")] * len(clips)
    for row in sorted(range(len(clips)), key=keys.__getitem__):
        stratum = (hours[row], sites[row])
        turn[row] = (
            before_site[stratum],
            shuffle_key(seed, "site", *stratum, before_site[stratum]),
            keys[row],
        )
        before_site[stratum] += 1
    order: list[tuple[int, str]] = [(0, "")] * len(clips)
    for row in sorted(range(len(clips)), key=turn.__getitem__):
        hour = hours[row]
        position = before_hour[hour] + 1
        order[row] = (position, shuffle_key(seed, "turn", position, hour))
        before_hour[hour] = position
    return _sorted_rows(order)


def thin_out(clips: pd.DataFrame, n: int, *, seed: int = 0) -> pd.DataFrame:
    """At most ``n`` candidates, spread evenly over sites and hours, for a model to look at.

    A thousand hours need not be listened to by the model to find forty clips.
    """
    if len(clips) <= n:
        return clips
    chosen = np.sort(balanced_order(clips, seed=seed)[:n])
    return clips.iloc[chosen]


def count_spread(clips: pd.DataFrame) -> dict[str, int]:
    """How many sites, days, hours and recordings clips are spread over; unknown ones are not counted."""
    days = clips["datetime"].astype(str).str[:10]
    return {
        "sites": int(clips.loc[clips["site"] != "", "site"].nunique()),
        "days": int(days[days != ""].nunique()),
        "hours": int(clips.loc[clips["hour"] >= 0, "hour"].nunique()),
        "recordings": int(clips["recording"].nunique()),
    }
