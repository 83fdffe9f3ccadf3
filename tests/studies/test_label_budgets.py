from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.errors import ConfigError
from mast_studies.label_budgets import STRATEGIES, Strategy, budget_order, check_budgets, sample_budget


def chunks_of_a_day(per_hour: int = 6) -> pd.DataFrame:
    rows = [
        {
            "recording": f"r{hour:02d}.wav",
            "start_s": 5.12 * k,
            "hour": hour,
            "datetime": f"2023-05-10T{hour:02d}:00:{5 * k:02d}.000",
        }
        for hour in range(24)
        for k in range(per_hour)
    ]
    return pd.DataFrame(rows)


def places(chunks: pd.DataFrame) -> set[tuple[str, float]]:
    return set(zip(chunks["recording"], chunks["start_s"], strict=True))


@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(max_examples=40)
@given(small=st.integers(1, 144), large=st.integers(1, 144), seed=st.integers(0, 5))
def test_larger_budgets_contain_smaller_ones(strategy: Strategy, small: int, large: int, seed: int) -> None:
    chunks = chunks_of_a_day()
    small, large = sorted((small, large))
    few, many = (sample_budget(chunks, n, strategy, seed=seed) for n in (small, large))
    assert (len(few), len(many)) == (small, large)
    assert places(few) <= places(many)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_order_of_rows_does_not_matter(strategy: Strategy) -> None:
    chunks = chunks_of_a_day()
    shuffled = chunks.sample(frac=1.0, random_state=0)
    assert places(sample_budget(chunks, 37, strategy)) == places(sample_budget(shuffled, 37, strategy))


@pytest.mark.parametrize("strategy", ["random", "time-balanced"])
def test_the_seed_matters(strategy: Strategy) -> None:
    chunks = chunks_of_a_day()
    assert places(sample_budget(chunks, 30, strategy, seed=0)) == places(
        sample_budget(chunks, 30, strategy, seed=0)
    )
    assert places(sample_budget(chunks, 30, strategy, seed=0)) != places(
        sample_budget(chunks, 30, strategy, seed=1)
    )


@pytest.mark.parametrize("n", [24, 48, 50, 71, 144])
def test_time_balanced_takes_n_over_24_of_each_hour(n: int) -> None:
    per_hour = Counter(sample_budget(chunks_of_a_day(), n, "time-balanced")["hour"])
    assert set(per_hour.values()) <= {n // 24, -(-n // 24)}
    assert sum(per_hour.values()) == n


def test_hours_that_run_out_leave_their_share_to_the_others() -> None:
    chunks = chunks_of_a_day(10)
    chunks = chunks[(chunks["hour"] > 2) | (chunks["start_s"] < 6)]  # hours 0, 1, 2 have two chunks each
    per_hour = Counter(sample_budget(chunks, 120, "time-balanced")["hour"])
    assert [per_hour[h] for h in range(3)] == [2, 2, 2]
    assert {per_hour[h] for h in range(3, 24)} == {5, 6}


def test_sequential_is_the_beginning_and_unknown_times_come_last() -> None:
    chunks = chunks_of_a_day()
    assert set(sample_budget(chunks, 12, "sequential")["hour"]) == {0, 1}
    unknown = pd.DataFrame({"recording": ["a.wav"], "start_s": [0.0], "hour": [pd.NA], "datetime": [""]})
    order = budget_order(pd.concat([unknown, chunks], ignore_index=True), "sequential")
    assert order[-1] == 0
    assert order[:-1].tolist() == list(range(1, 145))


def test_sequential_sorts_starts_as_numbers() -> None:
    chunks = pd.DataFrame({"recording": "a.wav", "start_s": [100.0, 9.0, 20.0]})
    assert budget_order(chunks, "sequential").tolist() == [1, 2, 0]


def test_rows_come_back_as_they_were() -> None:
    chunks = chunks_of_a_day().set_index(np.arange(144) + 1_000)
    chosen = sample_budget(chunks, 20, "random")
    assert chosen.index.is_monotonic_increasing
    pd.testing.assert_frame_equal(chosen, chunks.loc[chosen.index])


def test_mistakes() -> None:
    chunks = chunks_of_a_day()
    for n in (-1, 0, 145):
        told = rf"label budget: {n} chunks asked for \(--budgets\), but there are 144 to train on; ask for 1 to 144"
        with pytest.raises(ConfigError, match=told):
            sample_budget(chunks, n)
    check_budgets([1, 144], 144, where="here")
    with pytest.raises(ConfigError, match="here: -1, 0, 145 chunks asked for"):
        check_budgets([145, 10, 0, -1, 0], 144, where="here")
    with pytest.raises(ConfigError, match="no strategy 'clever'"):
        sample_budget(chunks, 1, "clever")  # type: ignore[arg-type]
    chunks["hour"] = chunks["hour"].astype("Int64").where(chunks["hour"] != 5)
    with pytest.raises(ConfigError, match=r"time of day of r05.wav is not known \(1 such recordings\)"):
        sample_budget(chunks, 1, "time-balanced")


def test_no_chunks() -> None:
    for strategy in STRATEGIES:
        assert len(budget_order(chunks_of_a_day().iloc[:0], strategy)) == 0
