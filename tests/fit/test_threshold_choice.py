"""The minimum score that a few boxes ask for."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from mast.evaluation.part_tables import PartTables
from mast.events import as_events
from mast.fit.threshold_choice import choose_threshold
from mast.grid import FrontEnd

START = 0.2


def part(calls: dict[str, list[float]], alarms: dict[str, list[float]]) -> PartTables:
    """Recordings with calls that are found at these scores, and with false alarms at others."""

    def events(scores: dict[str, list[float]], at_s: float) -> pd.DataFrame:
        rows = [
            (name, at_s + 2 * k, at_s + 2 * k + 0.5, 2_000.0, 3_000.0, score)
            for name, own in scores.items()
            for k, score in enumerate(own)
        ]
        columns = ["recording", "start_s", "end_s", "low_hz", "high_hz", "score"]
        return as_events(pd.DataFrame(rows, columns=columns))

    names = sorted({*calls, *alarms})
    heard = pd.DataFrame({"recording": names, "start_s": 0.0, "end_s": 60.0})
    found = pd.concat([events(calls, 0.5), events(alarms, 40.5)], ignore_index=True)
    return PartTables(events(calls, 0.5), found, heard, FrontEnd())


def test_false_alarms_everywhere_ask_for_a_higher_score() -> None:
    names = ["a.wav", "b.wav", "c.wav", "d.wav"]
    calls = {name: [0.9, 0.8, 0.7] for name in names}
    alarms = {name: [0.4, 0.3, 0.3, 0.25] for name in [*names, "empty.wav"]}
    choice = choose_threshold(part(calls, alarms), START)
    assert 0.4 < choice.value <= 0.7
    assert choice.tally.f1 == 1.0
    assert choice.start_tally.f1 == pytest.approx(2 * 12 / (12 + 12 + 20))
    assert choice.tally.size == "12 boxes in 4 recordings"
    sentence = choice.sentence(0.61, 0.27)
    assert sentence == (
        "threshold: a minimum score of 0.61 fits your boxes better (F1 1.00 on held-out boxes, 0.55 at 0.27)"
    )


def test_faint_calls_ask_for_a_lower_score() -> None:
    calls = {f"{k}.wav": [0.9, 0.15, 0.12, 0.11] for k in range(4)}
    choice = choose_threshold(part(calls, {}), START)
    assert choice.value <= 0.11


def test_what_one_recording_alone_asks_for_is_not_used() -> None:
    names = ["a.wav", "b.wav", "c.wav"]
    calls = {name: [0.9, 0.8, 0.3] for name in names}
    choice = choose_threshold(part(calls, {"a.wav": [0.25] * 8}), START)
    assert choice.value == START
    assert choice.sentence(0.3, 0.3) == (
        "threshold: another minimum score fits your boxes better (F1 1.00 on held-out boxes, 0.69 at 0.30), but on "
        "9 boxes in 3 recordings that may be due to chance, so it stays at 0.30"
    )
    nothing_false = choose_threshold(part(calls, {}), START)
    assert nothing_false.sentence(0.3, 0.3).startswith("threshold: a minimum score of 0.30 is kept")


def test_each_recording_is_judged_by_the_others() -> None:
    """Here every recording asks for another score: what is best on all of them would look better than it is."""
    rng = np.random.default_rng(0)
    calls = {f"{k}.wav": [0.25 + 0.1 * k, 0.27 + 0.1 * k, 0.26 + 0.1 * k] for k in range(6)}
    alarms = {f"{k}.wav": (0.21 + 0.1 * k + rng.uniform(0, 0.03, 3)).tolist() for k in range(6)}
    own = part(calls, alarms)
    choice = choose_threshold(own, START)
    together = own.match()
    best = max(
        2 * together.hit[: k + 1].sum() / (k + 1 + len(own.truth)) for k in range(len(together.scores))
    )
    assert choice.tally.f1 is not None
    assert choice.tally.f1 < best
    assert choice.value == START


def test_four_boxes_are_too_few() -> None:
    calls = {f"{k}.wav": [0.9] for k in range(4)}
    choice = choose_threshold(part(calls, {f"{k}.wav": [0.3, 0.3] for k in range(4)}), START)
    assert choice.value == START
    assert choice.sentence(0.3, 0.3) == ""


def test_nothing_found_changes_nothing() -> None:
    own = part({"a.wav": [0.9] * 8, "b.wav": [0.9] * 8}, {})
    nothing = PartTables(own.truth, own.found.head(0), own.heard, own.front_end)
    assert choose_threshold(nothing, START).value == START
