"""What another N clips should buy, from the user's own label-budget curve.

F1 over the amount of labels n follows, where detectors learn, a power law that levels off: F1(n) = a − b · n^(−c). It
is fitted to the measured budgets, and fitted again many times to values drawn within their uncertainty. Four budgets
are the fewest that can contradict three parameters; with fewer no estimate is given.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from mast.annotations.tables import read_table
from mast.arrays import FloatArray
from mast.errors import AnnotationError, ConfigError
from mast.wording import counted

MIN_BUDGETS = 4
MAX_EXTRAPOLATION = 4.0  # beyond this many times the largest budget a fit is a guess
DRAWS = 1_000
UNITS = ("clips", "chunks", "boxes", "minutes")  # what a curve may count labels in
_EXPONENTS = np.geomspace(0.05, 3.0, 60)
# standard deviation of F1 over training runs with one recipe and seed (docs/results_first_edition.md)
_MIN_NOISE = 0.01
_BUDGET_NAME = re.compile(r".*_(random|time-balanced|sequential|diverse)_(\d+)$")


class Curve(NamedTuple):
    """Measured F1 by amount of labels."""

    amount: FloatArray  # (P,) of labels, in ``unit``; several points may share one
    f1: FloatArray  # (P,)
    noise: FloatArray  # (P,) standard error of each F1; NaN where not known
    unit: str
    about: str  # which strategy, dataset and part, for the sentence


class PowerLaw(NamedTuple):
    """F1(n) = ceiling − drop · n^(−exponent)."""

    ceiling: float
    drop: float
    exponent: float

    def at(self, amount: float | FloatArray) -> FloatArray:
        """F1 with this many labels, never below 0."""
        n = np.maximum(np.asarray(amount, dtype=np.float64), 1e-9)
        return np.maximum(self.ceiling - self.drop * n**-self.exponent, 0.0)


@dataclass(frozen=True)
class ExpectedGain:
    """What more labels should buy.

    Attributes:
        now: F1 with the existing labels, according to the fit.
        then: F1 with the new ones.
        gain: then − now.
        gain_low: lower end of its 95 % interval.
        gain_high: upper end.
        law: the fit.
        sentence: all of this in words, with its caveats.
    """

    now: float
    then: float
    gain: float
    gain_low: float
    gain_high: float
    law: PowerLaw
    sentence: str


def fit_power_law(amount: FloatArray, f1: FloatArray) -> PowerLaw:
    """Least squares: for each exponent the best ceiling (at most 1) and drop (not negative), then the best exponent."""
    n, y = np.asarray(amount, dtype=np.float64), np.asarray(f1, dtype=np.float64)
    x = n[:, None] ** -_EXPONENTS  # (P, E)
    mean_x, mean_y = x.mean(axis=0), float(y.mean())
    spread = ((x - mean_x) ** 2).sum(axis=0)
    shared = ((x - mean_x) * (y - mean_y)[:, None]).sum(axis=0)
    drop = np.where(spread > 1e-15, -shared / np.maximum(spread, 1e-15), 0.0)
    drop = np.maximum(drop, 0.0)
    ceiling = mean_y + drop * mean_x
    high = ceiling > 1.0  # F1 cannot exceed 1: fit again with the ceiling held there
    held = np.maximum(((1.0 - y) @ x) / np.maximum((x**2).sum(axis=0), 1e-300), 0.0)
    ceiling, drop = np.where(high, 1.0, ceiling), np.where(high, held, drop)
    error = ((ceiling - drop * x - y[:, None]) ** 2).sum(axis=0)  # (E,)
    best = int(np.argmin(error))
    return PowerLaw(float(ceiling[best]), float(drop[best]), float(_EXPONENTS[best]))


def estimate_gain(
    curve: Curve, now: float, more: float, *, seed: int = 0, draws: int = DRAWS
) -> ExpectedGain:
    """What ``more`` labels should buy on top of ``now``, both in the curve's unit.

    Each draw moves every point by its noise (its own where known, never less than the residual of the fit) and fits
    again.

    Raises:
        ConfigError: too few budgets, or amounts that make no sense.
    """
    budgets = np.unique(curve.amount)
    if len(budgets) < MIN_BUDGETS:
        raise ConfigError(
            f"the curve has {counted(len(budgets), 'budget')} ({_join_amounts(budgets)} {curve.unit}); fitting "
            f"three parameters needs at least {MIN_BUDGETS}, so measure more"
        )
    if now < 0 or not more > 0:
        raise ConfigError(f"{more:g} {curve.unit} more than {now:g}: expected amounts above 0")
    law = fit_power_law(curve.amount, curve.f1)
    residual = float(np.sqrt(((law.at(curve.amount) - curve.f1) ** 2).sum() / max(1, len(curve.f1) - 3)))
    noise = np.maximum(np.where(np.isfinite(curve.noise), curve.noise, 0.0), max(residual, _MIN_NOISE))
    rng = np.random.default_rng([seed, 41])
    gains = np.empty(draws)
    for k in range(draws):
        refitted = fit_power_law(
            curve.amount, np.clip(curve.f1 + noise * rng.standard_normal(len(noise)), 0.0, 1.0)
        )
        gains[k] = refitted.at(now + more) - refitted.at(now)
    low, high = np.quantile(gains, [0.025, 0.975]).tolist()
    before, after = float(law.at(now)), float(law.at(now + more))
    expected = ExpectedGain(before, after, after - before, low, high, law, "")
    return ExpectedGain(**{**vars(expected), "sentence": _sentence(expected, curve, now, more)})


def _sentence(expected: ExpectedGain, curve: Curve, now: float, more: float) -> str:
    text = (
        f"According to the curve of {len(np.unique(curve.amount))} budgets ({curve.about}), {more:,.0f} {curve.unit} "
        f"on top of {now:,.0f} should take F1 from {expected.now:.2f} to {expected.then:.2f}: {expected.gain:+.3f} "
        f"({expected.gain_low:+.3f} to {expected.gain_high:+.3f}); it levels off at {expected.law.ceiling:.2f}."
    )
    doubts = []
    low, high = float(curve.amount.min()), float(curve.amount.max())
    if now + more > MAX_EXTRAPOLATION * high:
        doubts.append(f"the largest budget measured was {high:,.0f} {curve.unit}, so this is a guess")
    elif now < low / MAX_EXTRAPOLATION:
        doubts.append(f"the smallest budget measured was {low:,.0f} {curve.unit}, so today's F1 is a guess")
    if expected.law.drop == 0:
        doubts.append("F1 does not rise with the budget in this curve, so it says nothing about more labels")
    elif expected.gain_low <= 0.002:
        doubts.append("the interval reaches zero: the curve cannot tell whether they help")
    return text + (f" Beware: {'; '.join(doubts)}." if doubts else "")


def read_curve(path: str | Path, *, strategy: str | None = None) -> Curve:
    """A label-budget curve from a CSV.

    Either ``label-budget.csv`` of ``mast experiment label-budget`` (budgets in training chunks, read from the
    system's name), or any table with ``f1`` and one of ``clips``, ``chunks``, ``boxes``, ``minutes``; ``f1_low`` and
    ``f1_high`` (95 %) and ``strategy`` are used where present. Of several strategies one is taken: the requested one,
    else time-balanced, else the first; of several datasets and test parts, the first.
    """
    file = Path(path)
    if not file.is_file():
        raise AnnotationError(f"{file}: no such file; expected a label-budget curve as CSV")
    table = read_table(file)
    f1_column = table.find("f1")
    if f1_column is None:
        raise AnnotationError(f"{file}: no column f1; found {', '.join(table.header)}")
    rows = pd.DataFrame({"f1": table.numbers(f1_column, blank_is_nan=True)})
    for name in ("f1_low", "f1_high"):
        column = table.find(name)
        rows[name] = np.nan if column is None else table.numbers(column, blank_is_nan=True)
    for name in ("dataset", "part", "strategy"):
        column = table.find(name)
        rows[name] = "" if column is None else table.texts(column)
    unit = next((name for name in UNITS if table.find(name)), None)
    system = table.find("system")
    if unit is not None:
        rows["amount"] = table.numbers(str(table.find(unit)), blank_is_nan=True)
    elif system is not None:
        unit = "chunks"
        named = [_BUDGET_NAME.match(text) for text in table.texts(system)]
        rows["amount"] = [float(match[2]) if match else np.nan for match in named]
        rows["strategy"] = [match[1] if match else "" for match in named]
    else:
        raise AnnotationError(
            f"{file}: no amount of labels; expected a column {', '.join(UNITS[:-1])} or {UNITS[-1]}, or the table of "
            "`mast experiment label-budget`"
        )
    rows = rows[rows["amount"].gt(0) & rows["f1"].notna()]
    if rows.empty:
        raise AnnotationError(f"{file}: no row has both an amount of labels above 0 and an f1")
    rows = _select_rows(rows, strategy, file)
    noise = ((rows["f1_high"] - rows["f1_low"]) / 3.92).to_numpy(dtype=np.float64)
    first = rows.iloc[0]
    about = ", ".join(str(first[c]) for c in ("strategy", "dataset", "part") if first[c]) or file.name
    return Curve(
        rows["amount"].to_numpy(dtype=np.float64), rows["f1"].to_numpy(dtype=np.float64), noise, unit, about
    )


def _select_rows(rows: pd.DataFrame, strategy: str | None, file: Path) -> pd.DataFrame:
    first = rows.iloc[0]
    rows = rows[(rows["dataset"] == first["dataset"]) & (rows["part"] == first["part"])]
    strategies = list(dict.fromkeys(rows["strategy"]))
    if strategy is not None and strategy in strategies:
        return rows[rows["strategy"] == strategy]
    if len(strategies) > 1 or strategies[0]:
        chosen = next(name for name in ("time-balanced", strategies[0]) if name in strategies)
        return rows[rows["strategy"] == chosen]
    return rows


def _join_amounts(amounts: FloatArray) -> str:
    return ", ".join(f"{value:g}" for value in amounts)
