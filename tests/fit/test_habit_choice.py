"""The habit that a few boxes show."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import soundfile as sf

from mast.annotations.redraw import redraw_events
from mast.evaluation.part_tables import PartTables
from mast.events import as_events
from mast.fit.habit_choice import MIN_BOXES, candidates, choose_habit
from mast.grid import FrontEnd
from mast.habit import Habit

RATE, CALLS = 16_000, 4
COLUMNS = ["start_s", "low_hz", "end_s", "high_hz"]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pd.DataFrame]:
    """Three recordings of four calls with a weaker harmonic, and whole boxes around them."""
    folder, rows = tmp_path_factory.mktemp("calls"), []
    for number in range(3):
        seconds = np.arange(10 * RATE) / RATE
        sound = np.random.default_rng(number).normal(0, 1e-4, len(seconds))
        for call in range(CALLS):
            at = 1 + 2 * call + 0.1 * number
            swell = np.clip(np.minimum(seconds - at, at + 0.3 - seconds) / 0.02, 0, 1)
            for hz, level in ((1_500, 0.1), (3_000, 0.02), (4_500, 0.01)):
                sound += level * swell * np.sin(2 * np.pi * hz * seconds)
            rows.append((f"{number}.wav", at - 0.1, 1_000.0, at + 0.5, 5_000.0))
        sf.write(folder / f"{number}.wav", sound, RATE)
    table = pd.DataFrame(rows, columns=["recording", *COLUMNS]).assign(score=0.9)
    return folder, as_events(table)


def part(found: pd.DataFrame, truth: pd.DataFrame) -> PartTables:
    names = sorted(truth["recording"].unique())
    heard = pd.DataFrame({"recording": names, "start_s": 0.0, "end_s": 10.0})
    return PartTables(truth, found[found["recording"].isin(names)].reset_index(drop=True), heard, FrontEnd())


def as_drawn(found: tuple[Path, pd.DataFrame], habit: Habit) -> pd.DataFrame:
    """What somebody with this habit would box."""
    return redraw_events(found[1], habit, FrontEnd(), found[0].joinpath)


def test_the_strongest_harmonic_is_learnt(found: tuple[Path, pd.DataFrame]) -> None:
    truth = as_drawn(found, Habit(box="strongest"))
    choice = choose_habit(part(found[1], truth), Habit(), found[0].joinpath)
    assert choice.habit.box == "strongest"
    assert (choice.start_tally.f1, choice.tally.f1) == (0.0, 1.0)
    assert "your boxes are drawn as the strongest harmonic" in choice.sentence


def test_four_boxes_are_too_few(found: tuple[Path, pd.DataFrame]) -> None:
    truth = as_drawn(found, Habit(box="strongest"))
    few = truth[truth["recording"] == "0.wav"]
    assert len(few) < MIN_BOXES
    choice = choose_habit(part(found[1], few), Habit(), found[0].joinpath)
    assert choice.habit == Habit()
    assert "4 boxes are too few to learn how you draw them" in choice.sentence


def test_boxes_of_one_recording_are_held_back_in_stretches(found: tuple[Path, pd.DataFrame]) -> None:
    truth = as_drawn(found, Habit(box="strongest")).query("recording == '0.wav'")
    drawn = found[1].query("recording == '0.wav'")
    # the same calls again, 40 Hz higher: more boxes in one recording
    twice = [pd.concat([t, t.assign(low_hz=t["low_hz"] + 40)], ignore_index=True) for t in (drawn, truth)]
    choice = choose_habit(part(*twice), Habit(), found[0].joinpath)
    assert len(choice.tally.counts) == 5
    assert choice.tally.size == "8 boxes in 1 recording"
    assert choice.habit.box == "strongest"


def test_whole_calls_stay_whole(found: tuple[Path, pd.DataFrame]) -> None:
    choice = choose_habit(part(found[1], found[1]), Habit(), found[0].joinpath)
    assert choice.habit == Habit()
    assert "no other way to draw boxes fits yours better" in choice.sentence
    # a start that is wrong is left
    choice = choose_habit(part(found[1], found[1]), Habit(box="strongest"), found[0].joinpath)
    assert choice.habit == Habit()


def test_what_one_recording_alone_shows_is_not_used(found: tuple[Path, pd.DataFrame]) -> None:
    strongest = as_drawn(found, Habit(box="strongest"))
    odd = strongest["recording"] == "0.wav"
    truth = pd.concat([strongest[odd], found[1][found[1]["recording"] != "0.wav"]], ignore_index=True)
    choice = choose_habit(part(found[1], truth), Habit(), found[0].joinpath)
    assert choice.habit == Habit()


def test_two_recordings_that_agree_may_be_luck(found: tuple[Path, pd.DataFrame]) -> None:
    strongest = as_drawn(found, Habit(box="strongest"))
    for names, learnt in ((["0.wav", "1.wav"], False), (["0.wav", "1.wav", "2.wav"], True)):
        truth = strongest[strongest["recording"].isin(names)]
        choice = choose_habit(part(found[1], truth), Habit(), found[0].joinpath)
        assert (choice.habit.box == "strongest") == learnt
        assert ("but on 8 boxes in 2 recordings that may be due to chance" in choice.sentence) != learnt


def test_what_most_boxes_show_is_not_used_where_it_fails_on_boxes_held_back(
    found: tuple[Path, pd.DataFrame],
) -> None:
    """Four of six boxes show the strongest harmonic, all in one recording: the other recording says otherwise."""
    strongest, whole = as_drawn(found, Habit(box="strongest")), found[1]
    two = whole[whole["recording"] == "1.wav"][:2]
    truth = pd.concat([strongest[strongest["recording"] == "0.wav"], two], ignore_index=True)
    detected = pd.concat([whole[whole["recording"] == "0.wav"], two], ignore_index=True)
    choice = choose_habit(part(detected, truth), Habit(), found[0].joinpath)
    assert choice.habit == Habit()
    assert (choice.start_tally.f1, choice.tally.f1) == (pytest.approx(2 / 6), 0.0)


def test_notes_are_joined_where_the_user_joins_them(found: tuple[Path, pd.DataFrame]) -> None:
    # each call was found in two parts, 0.2 s apart
    events = found[1]
    middle = (events["start_s"] + events["end_s"]) / 2
    halves = pd.concat(
        [events.assign(end_s=middle - 0.1), events.assign(start_s=middle + 0.1)], ignore_index=True
    )
    choice = choose_habit(part(halves, events), Habit(), found[0].joinpath)
    assert choice.habit == Habit(join_s=0.3)


def test_candidates_scale_with_the_band() -> None:
    birds, bats = (candidates(FrontEnd.for_band(hz)) for hz in (8_000, 128_000))
    assert birds[0] == bats[0] == Habit()
    assert Habit(box="strongest") in birds
    assert [habit.join_s for habit in birds[-3:]] == [0.1, 0.3, 0.8]
    assert [habit.join_s for habit in bats[-3:]] == pytest.approx([0.1 / 16, 0.3 / 16, 0.8 / 16])
