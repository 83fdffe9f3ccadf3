"""Label budgets: which N chunks to pretend were annotated (App. "Label Budget").

Each strategy puts all chunks in one order and takes the first N. So a larger budget contains the smaller,
and nothing depends on the order in which the chunks were listed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

import numpy as np
import pandas as pd

from mast.arrays import IntArray
from mast.errors import ConfigError
from mast.planning.choose import balanced_order, random_order, sequential_order

Strategy = Literal["random", "time-balanced", "sequential"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)


def sample_budget(
    chunks: pd.DataFrame, n: int, strategy: Strategy = "time-balanced", *, seed: int = 0
) -> pd.DataFrame:
    """Choose ``n`` chunks.

    Args:
        chunks: as :func:`mast.data.chunk_table` gives: ``recording``, ``start_s``; ``hour`` (0–23) for
            ``time-balanced``; ``datetime`` (ISO 8601, empty where unknown) for ``sequential``.
        n: how many chunks.
        strategy: see :func:`budget_order`.
        seed: for the choice.

    Returns:
        The chosen rows, in the order of ``chunks`` and with its index.

    Raises:
        ConfigError: ``n`` is below 1 or more than there are, or the strategy cannot order these chunks.
    """
    check_budgets([n], len(chunks), where="label budget")
    chosen = np.sort(budget_order(chunks, strategy, seed=seed)[:n])
    return chunks.iloc[chosen]


def check_budgets(budgets: Iterable[int], there: int, *, where: str) -> None:
    """Refuse budgets that cannot be trained on, all in one message.

    Args:
        budgets: in chunks.
        there: how many chunks there are to train on.
        where: the beginning of the message.
    """
    wrong = sorted({n for n in budgets if not 1 <= n <= there})
    if wrong:
        raise ConfigError(
            f"{where}: {', '.join(map(str, wrong))} chunks asked for (--budgets), but there are {there} to train on; "
            f"ask for 1 to {there}"
        )


def budget_order(chunks: pd.DataFrame, strategy: Strategy, *, seed: int = 0) -> IntArray:
    """Row numbers of ``chunks`` in the order in which a growing budget takes them.

    - ``random``: uniformly.
    - ``time-balanced``: one chunk of each hour of the day in turn, a random one each time, so that N chunks
      hold about N/24 of each hour. An hour without chunks left drops out, and the others share the rest.
    - ``sequential``: in order of time, like an annotator who starts at the beginning. Recordings whose time is
      not known come last, by name.
    """
    if strategy == "random":
        return random_order(chunks, seed=seed)
    if strategy == "time-balanced":
        return balanced_order(chunks.assign(site="", hour=_hours(chunks)), seed=seed)
    if strategy == "sequential":
        return sequential_order(chunks)
    raise ConfigError(f"label budget: no strategy '{strategy}'; expected one of {', '.join(STRATEGIES)}")


def _hours(chunks: pd.DataFrame) -> list[int]:
    hours = chunks["hour"] if "hour" in chunks else pd.Series(np.nan, index=chunks.index)
    unknown = chunks.loc[hours.isna(), "recording"].unique()
    if len(unknown):
        raise ConfigError(
            f"label budget: the time of day of {unknown[0]} is not known ({len(unknown)} such recordings), "
            "so chunks cannot be balanced over the day; add a datetime column to recordings.csv, or choose "
            "random or sequential"
        )
    return [int(hour) for hour in hours]
