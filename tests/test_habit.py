from __future__ import annotations

import pytest

from mast.detect_options import DetectOptions
from mast.errors import ConfigError
from mast.grid import FrontEnd
from mast.habit import Habit
from mast.models.architecture import DetectorConfig
from mast.models.card import ModelCard
from mast.normalisation import Normalisation

LEARNT = Habit(box="strongest", band_db=20, time_db=10, join_s=0.2)


def test_who_decides_how_boxes_are_drawn() -> None:
    assert DetectOptions().resolve_habit(None).changes_nothing
    assert DetectOptions().resolve_habit(LEARNT) == LEARNT
    assert DetectOptions(box="strongest").resolve_habit(None) == Habit(box="strongest")
    assert DetectOptions(box="all").resolve_habit(LEARNT).changes_nothing  # as the model gives them
    told = DetectOptions(box="strongest").resolve_habit(LEARNT)
    assert (told.band_db, told.time_db, told.join_s) == (20, 10, None)
    assert DetectOptions(join_s=0.5).resolve_habit(LEARNT) == LEARNT.model_copy(update={"join_s": 0.5})
    assert DetectOptions(box="all", join_s=0.0).resolve_habit(LEARNT).join_s == 0.0
    with pytest.raises(ConfigError, match="join -1: expected seconds"):
        DetectOptions(join_s=-1.0)


def card(front_end: FrontEnd, habit: Habit | None = None) -> ModelCard:
    return ModelCard(
        kind="detector",
        architecture=DetectorConfig.named("tiny"),
        front_end=front_end,
        normalisation=Normalisation(mean=0, std=1),
        habit=habit,
    )


def test_a_model_of_birds_starts_with_the_strongest_harmonic_of_bats() -> None:
    birds = card(FrontEnd())
    assert birds.at_band(128_000).habit == Habit(box="strongest")
    assert birds.at_band(50_000).habit is None
    assert birds.at_band(2_000).habit is None
    # one that learnt from boxes of bats draws as it was taught
    bats = card(FrontEnd.for_band(96_000))
    assert bats.at_band(128_000).habit is None
    assert bats.at_band(96_000) == bats


def test_a_learnt_habit_is_played_at_another_speed_with_the_model() -> None:
    slow = card(FrontEnd(), LEARNT).at_band(2_000).habit
    assert slow == LEARNT.model_copy(update={"join_s": 0.8})
    fast = card(FrontEnd(), LEARNT).at_band(128_000).habit
    assert fast == LEARNT.model_copy(update={"join_s": 0.0125})


def test_in_words_and_for_the_record() -> None:
    assert str(Habit()) == "whole calls"
    assert "strongest harmonic (down to 20 dB)" in str(LEARNT)
    assert "gaps of up to 0.2 s" in str(LEARNT)
    assert Habit().settings == {"box": "all", "join": "none"}
    assert LEARNT.settings["join"] == 0.2
    assert LEARNT.settings["box"] != Habit(box="strongest").settings["box"]
