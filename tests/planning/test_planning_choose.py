"""Orders of clips: nested, balanced, and a cover that agrees with the obvious greedy one."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from mast.data.part_assignment import shuffle_key
from mast.errors import ConfigError
from mast.planning.choose import balanced_order, choose_clips, count_spread, thin_out
from mast.planning.cover import Survey, clip_weights, cover_order, coverage
from mast_studies.label_budgets import budget_order


def clips(hours: list[int], sites: list[str] | None = None) -> pd.DataFrame:
    n = len(hours)
    return pd.DataFrame(
        {
            "recording": [f"r{k % 7}.wav" for k in range(n)],
            "start_s": [float(k // 7) * 10 for k in range(n)],
            "end_s": [float(k // 7) * 10 + 10 for k in range(n)],
            "site": sites or ["S1"] * n,
            "datetime": [f"2024-05-12T{h:02d}:00:00" if h >= 0 else "" for h in hours],
            "hour": hours,
        }
    )


def test_with_one_site_it_is_the_papers_time_balanced_order() -> None:
    table = clips([5, 5, 5, 6, 6, 7, 5, 5, 6, 23] * 4)
    for seed in range(3):
        places = zip(table["recording"], table["start_s"], strict=True)
        keys = [shuffle_key(seed, name, f"{start:015.6f}") for name, start in places]
        turns = pd.Series(keys).groupby(table["hour"]).rank(method="first").astype(int)
        papers = [(t, shuffle_key(seed, "turn", t, h)) for t, h in zip(turns, table["hour"], strict=True)]
        order = sorted(range(len(table)), key=papers.__getitem__)
        assert balanced_order(table, seed=seed).tolist() == order
        assert budget_order(table, "time-balanced", seed=seed).tolist() == order


def test_hours_and_sites_take_turns() -> None:
    rng = np.random.default_rng(1)
    hours = rng.choice([4, 5, 6], 120, p=[0.7, 0.2, 0.1]).tolist()
    sites = rng.choice(["A", "B"], 120, p=[0.9, 0.1]).tolist()
    table = clips(hours, sites)
    chosen = choose_clips(table, 12, "time-balanced")
    assert chosen["hour"].value_counts().tolist() == [4, 4, 4]
    by_place = chosen.groupby(["hour", "site"]).size().unstack(fill_value=0)
    have = table.groupby(["hour", "site"]).size().unstack(fill_value=0)
    for hour in (4, 5, 6):
        assert by_place.loc[hour, "B"] == min(2, have.loc[hour, "B"])


def test_what_was_heard_counts_as_turns_taken() -> None:
    table = clips([4] * 20 + [5] * 20)
    heard = clips([4] * 3)
    chosen = choose_clips(table, 5, "time-balanced", heard=heard)
    assert chosen["hour"].value_counts().to_dict() == {5: 4, 4: 1}


def test_a_clock_that_is_not_known_is_an_hour_of_its_own() -> None:
    chosen = choose_clips(clips([-1] * 10 + [6] * 10), 4, "time-balanced")
    assert chosen["hour"].value_counts().to_dict() == {-1: 2, 6: 2}


@pytest.mark.parametrize("strategy", ["time-balanced", "random", "sequential", "diverse"])
def test_a_larger_plan_contains_the_smaller(strategy: str) -> None:
    table = clips([int(h) for h in np.random.default_rng(2).integers(0, 24, 60)])
    survey = random_survey(60, 2)
    small = choose_clips(table, 7, strategy, survey=survey)  # type: ignore[arg-type]
    large = choose_clips(table, 21, strategy, survey=survey)  # type: ignore[arg-type]
    assert small.index.tolist() == large.index.tolist()[:7]
    assert large["rank"].tolist() == list(range(1, 22))
    assert len(set(large.index)) == 21
    assert len(choose_clips(table, 99, strategy, survey=survey)) == 60  # type: ignore[arg-type]


def random_survey(n: int, a_clip: int, *, heard: int = 0, seed: int = 3, width: int = 6) -> Survey:
    rng = np.random.default_rng(seed)
    return Survey(
        rng.normal(size=(n * a_clip, width)).astype(np.float32),
        np.repeat(np.arange(n), a_clip),
        rng.uniform(0, 5, n),
        rng.normal(size=(heard, width)).astype(np.float32),
    )


def naive_cover(survey: Survey, n: int) -> list[int]:
    """All gains computed again in every step."""
    vectors = np.concatenate([survey.vectors, survey.heard]).astype(np.float64)
    vectors = vectors - vectors.mean(axis=0)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    own, heard = vectors[: len(survey.vectors)], vectors[len(survey.vectors) :]
    weight = clip_weights(survey.uncertainty)[survey.clip]
    covered = np.zeros(len(own))
    for known in heard:
        covered = np.maximum(covered, np.clip(own @ known, 0, 1))
    chosen: list[int] = []
    while len(chosen) < n:
        gains = {}
        for clip in set(survey.clip.tolist()) - set(chosen):
            best = np.clip(own @ own[survey.clip == clip].T, 0, 1).max(axis=1)
            gains[clip] = (weight * np.maximum(best - covered, 0)).sum()
        pick = max(sorted(gains), key=gains.__getitem__)
        chosen.append(pick)
        covered = np.maximum(covered, np.clip(own @ own[survey.clip == pick].T, 0, 1).max(axis=1))
    return chosen


@pytest.mark.parametrize("heard", [0, 4])
def test_the_cover_is_the_naive_greedy_one(heard: int) -> None:
    for seed in range(4):
        survey = random_survey(25, 3, heard=heard, seed=seed)
        assert cover_order(survey, 12).tolist() == naive_cover(survey, 12)


def grouped(
    sizes: list[int], uncertainty: list[float] | None = None, heard: list[int] = ()
) -> tuple[Survey, np.ndarray]:  # type: ignore[assignment]
    """Clips of one chunk around group centres, and the group of each."""
    rng = np.random.default_rng(5)
    centres = np.linalg.qr(rng.normal(size=(16, 16)))[0][: len(sizes)]
    group = np.repeat(np.arange(len(sizes)), sizes)
    vectors = (centres[group] + 0.02 * rng.normal(size=(len(group), 16))).astype(np.float32)
    doubt = np.zeros(len(group)) if uncertainty is None else np.array(uncertainty)[group]
    known = centres[list(heard)].astype(np.float32).reshape(-1, 16)
    return Survey(vectors, np.arange(len(group)), doubt, known), group


def test_every_group_is_covered_before_any_is_twice() -> None:
    survey, group = grouped([40, 20, 10, 5])
    assert group[cover_order(survey, 4)].tolist() == [0, 1, 2, 3]


def test_what_was_heard_needs_no_second_clip() -> None:
    survey, group = grouped([40, 20, 10, 5], heard=[0, 2])
    assert group[cover_order(survey, 2)].tolist() == [1, 3]


def test_doubt_moves_a_group_forward() -> None:
    calm, group = grouped([12, 10, 8])
    assert group[cover_order(calm, 1)].tolist() == [0]
    uncertainty, _ = grouped([12, 10, 8], uncertainty=[0.0, 0.0, 6.0])
    assert group[cover_order(uncertainty, 1)].tolist() == [2]


def test_weights_have_mean_one_and_survive_no_doubt_at_all() -> None:
    assert clip_weights(np.array([0.0, 3.0, 10.0])).mean() == pytest.approx(1.0)
    assert clip_weights(np.zeros(3)).tolist() == [1.0, 1.0, 1.0]
    assert clip_weights(np.zeros(0)).tolist() == []


def test_clips_that_could_not_be_heard_are_never_chosen() -> None:
    survey = random_survey(10, 2)
    keep = ~np.isin(survey.clip, [3, 4])
    partial = Survey(survey.vectors[keep], survey.clip[keep], survey.uncertainty, failures={3: "x", 4: "y"})
    assert set(cover_order(partial, 10).tolist()) == set(range(10)) - {3, 4}


def test_empty_and_equal_surveys() -> None:
    nothing = Survey(np.zeros((0, 4), np.float32), np.zeros(0, np.int64), np.zeros(0))
    assert cover_order(nothing, 3).tolist() == []
    same = Survey(np.ones((5, 4), np.float32), np.arange(5), np.zeros(5))
    assert cover_order(same, 3).tolist() == [0, 1, 2]


def test_a_large_archive_is_covered_by_a_part_of_its_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mast.planning.cover.GROUND", 32)
    survey, group = grouped([60, 30, 15])
    similarity, covered, weight = coverage(survey)
    assert similarity.shape == (105, 32)
    assert covered.shape == weight.shape == (32,)
    assert group[cover_order(survey, 3)].tolist() == [0, 1, 2]


def test_thinning_keeps_rare_hours() -> None:
    table = clips([5] * 500 + [6] * 3)
    thin = thin_out(table, 20)
    assert len(thin) == 20
    assert (thin["hour"] == 6).sum() == 3
    assert thin.index.is_monotonic_increasing
    assert thin_out(table, 1_000) is table


def test_spread_counts_only_what_is_known() -> None:
    table = clips([5, 5, 6, -1], ["A", "B", "B", ""])
    assert count_spread(table) == {"sites": 2, "days": 1, "hours": 2, "recordings": 4}


def test_senseless_wishes_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        choose_clips(clips([1]), 0)
    with pytest.raises(ConfigError, match="needs a model"):
        choose_clips(clips([1]), 1, "diverse")
    with pytest.raises(ConfigError, match="no strategy 'best'"):
        choose_clips(clips([1]), 1, "best")  # type: ignore[arg-type]
