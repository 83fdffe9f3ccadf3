from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made_up_found import write_found

from mast.errors import MastError
from mast_studies.figures import dot_plot
from mast_studies.study_tables import Archive, Line, Score, as_cells, as_frame, as_json

TRUTHS = {"a.wav": 4, "b.wav": 6}
HITS = {"a.wav": 2, "b.wav": 3}
LINES = [Line("one", "One"), Line("two", "Two"), Line("never run", "Never")]


def test_one_seed_by_hand(tmp_path: Path) -> None:
    write_found(tmp_path, "one", hits=HITS, truths=TRUTHS, false_alarms={"a.wav": 1})
    (row,) = Archive(tmp_path, resamples=50).rows("made_up", "test", LINES)
    values = {name: score.value for name, score in row.scores.items()}
    assert values["precision"] == pytest.approx(5 / 6)
    assert values["recall"] == pytest.approx(5 / 10)
    assert values["f1"] == pytest.approx(2 * 5 / (6 + 10))
    assert values["miou"] == pytest.approx(1.0)
    # five right, one wrong, then, below the threshold, the other five: precision 1 up to recall 0.5, 10/11 beyond
    assert values["ap50_voc11"] == pytest.approx((6 + 5 * 10 / 11) / 11)
    assert values["ap50"] == pytest.approx((51 + 50 * 10 / 11) / 101)
    assert np.isnan(row.scores["recall"][1:]).all()  # a half of each recording was found, whichever are drawn
    assert (row.n_truth, row.n_recordings, row.seeds, row.seconds) == (10, 2, (0,), 60.0)
    assert row.differences == {}


def test_seeds_are_averaged_and_differences_are_paired(tmp_path: Path) -> None:
    for seed, found in ((0, 2), (1, 4)):
        names = [f"{seed}{letter}.wav" for letter in "abcd"]
        truths = dict.fromkeys(names, 10)
        write_found(tmp_path, "one", seed=seed, hits=dict.fromkeys(names, found), truths=truths)
        write_found(tmp_path, "two", seed=seed, hits=dict.fromkeys(names, found + 3), truths=truths)
    one, two = Archive(tmp_path, resamples=50).rows("made_up", "test", LINES, reference="one")
    assert one.by_seed["recall"] == pytest.approx((0.2, 0.4))
    assert one.scores["recall"].value == pytest.approx(0.3)
    assert two.scores["recall"].value == pytest.approx(0.6)
    # the same in every recording, so whichever are drawn: paired, there is no spread to tell
    assert tuple(two.differences["recall"]) == pytest.approx((0.3, np.nan, np.nan), nan_ok=True)
    assert one.differences == {}


def test_a_difference_needs_seeds_that_both_have(tmp_path: Path) -> None:
    write_found(tmp_path, "one", seed=0, hits=HITS, truths=TRUTHS)
    write_found(tmp_path, "one", seed=1, hits=TRUTHS, truths=TRUTHS)
    write_found(tmp_path, "two", seed=1, hits=HITS, truths=TRUTHS)
    one, two = Archive(tmp_path, resamples=20).rows("made_up", "test", LINES, reference="one")
    assert (one.seeds, two.seeds) == ((0, 1), (1,))
    assert two.differences["recall"].value == pytest.approx(-0.5)


def test_systems_that_are_left_out_count_for_nothing(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_found(tmp_path, "one", seed=seed, hits=HITS, truths=TRUTHS)
        write_found(tmp_path, "two", seed=seed, hits=TRUTHS, truths=TRUTHS)
    write_found(tmp_path, "two", seed=1, part="site_ood", hits=HITS, truths=TRUTHS)
    archive = Archive(tmp_path, left_out={("one", 0), ("two", 1)}, resamples=20)
    one, two = archive.rows("made_up", "test", LINES, reference="one")
    assert (one.seeds, two.seeds) == ((1,), (0,))
    assert two.differences == {}  # no seed has both
    assert archive.parts("made_up") == ["test"]
    assert [(trial.has("one", "test"), trial.systems()) for trial in archive.trials] == [
        (False, ["two"]),
        (True, ["one"]),
    ]


def test_stepwise_differences_are_to_the_row_above(tmp_path: Path) -> None:
    names = [f"{letter}.wav" for letter in "abcd"]
    for system, found in (("first", 2), ("second", 3), ("last", 7)):
        write_found(tmp_path, system, hits=dict.fromkeys(names, found), truths=dict.fromkeys(names, 10))
    steps = [Line("first"), Line("second"), Line("never run"), Line("last")]
    first, second, last = Archive(tmp_path, resamples=50).rows("made_up", "test", steps, stepwise=True)
    assert first.differences == {}
    assert tuple(second.differences["recall"]) == pytest.approx((0.1, np.nan, np.nan), nan_ok=True)
    assert tuple(last.differences["recall"]) == pytest.approx(
        (0.4, np.nan, np.nan), nan_ok=True
    )  # to the row that is there


def test_a_recording_that_tests_in_both_seeds_is_drawn_once(tmp_path: Path) -> None:
    """Training twice on the same data does not narrow the interval: there are no more recordings than before."""
    truths = {f"{i}.wav": 10 for i in range(8)}
    hits = {name: i for i, name in enumerate(truths)}
    for work, seeds in (("once", 1), ("twice", 2)):
        for seed in range(seeds):
            write_found(tmp_path / work, "one", seed=seed, hits=hits, truths=truths)
    for seed in range(2):  # other sound under the same names
        other = dict.fromkeys(truths, 10 + seed)
        write_found(tmp_path / "other", "one", seed=seed, hits=hits, truths=other)
    once, twice, other_sound = (
        Archive(tmp_path / work, resamples=400).rows("made_up", "test", LINES)[0].scores["recall"]
        for work in ("once", "twice", "other")
    )
    assert tuple(once) == pytest.approx(tuple(twice))
    assert other_sound.high - other_sound.low < 0.85 * (once.high - once.low)


def test_one_recording_has_values_but_no_interval(tmp_path: Path) -> None:
    write_found(tmp_path, "one", hits={"a.wav": 1}, truths={"a.wav": 2})
    rows = Archive(tmp_path).rows("made_up", "test", LINES)
    _, cells = as_cells(rows, reference="One")
    assert cells[0][:4] == ["One", "1.000", "0.500", "0.667"]
    assert cells[0][7] == "–"


def test_tables_for_people_and_for_spreadsheets(tmp_path: Path) -> None:
    write_found(tmp_path, "one", hits=HITS, truths=TRUTHS, seconds={"pretrain": 100.0, "one": 80.0})
    write_found(tmp_path, "two", hits=TRUTHS, truths=TRUTHS)
    rows = Archive(tmp_path, resamples=20).rows("made_up", "test", LINES, reference="one")
    header, cells = as_cells(rows, reference="One", bold=True)
    assert header[0] == "system"
    assert "F1 − One" in header
    assert cells[1][3].startswith("**1.000**")
    assert cells[0][-1] == "3.0 min"
    frame = as_frame(rows)
    assert list(frame["system"]) == ["one", "two"]
    assert frame["f1_difference"].iloc[1] == pytest.approx(1 - 2 * 5 / 15)
    assert pd.isna(frame["f1_difference"].iloc[0])


def test_nothing_is_the_best_where_nothing_was_found(tmp_path: Path) -> None:
    write_found(tmp_path, "one", hits={}, truths=TRUTHS)
    write_found(tmp_path, "two", hits={}, truths=TRUTHS, false_alarms={"a.wav": 3})
    rows = Archive(tmp_path, resamples=20).rows("made_up", "test", LINES)
    assert [row.scores["precision"].value for row in rows] == pytest.approx([np.nan, 0.0], nan_ok=True)
    slight = {name: Score(0.0004, np.nan, np.nan) for name in ("ap50", "ap50_voc11")}  # 0.000 in the table
    nothing = {name: Score(0.0, np.nan, np.nan) for name in ("ap50", "ap50_voc11")}
    rows = [
        replace(row, scores={**row.scores, **own}) for row, own in zip(rows, (nothing, slight), strict=True)
    ]
    _, cells = as_cells(rows, bold=True)
    assert cells[1][4] == "0.000"
    assert "**" not in str(cells)


def test_systems_of_a_seed_that_saw_other_tests_are_refused(tmp_path: Path) -> None:
    write_found(tmp_path, "one", hits=HITS, truths=TRUTHS)
    folder = write_found(tmp_path, "two", hits={"c.wav": 1}, truths={"c.wav": 2})
    with pytest.raises(MastError, match=r"two: was measured on c\.wav") as told:
        Archive(tmp_path, resamples=20).rows("made_up", "test", LINES)
    assert str(folder) in str(told.value)


def test_a_picture_names_a_system_once_and_in_the_order_of_the_fullest_table(tmp_path: Path) -> None:
    truths = {"a.wav": 4}
    for system in ("fcos", "generic", "mast"):
        write_found(tmp_path, system, dataset="large", hits={"a.wav": 2}, truths=truths)
    write_found(tmp_path, "generic", dataset="a small one", hits={"a.wav": 2}, truths=truths)
    archive = Archive(tmp_path, resamples=20)
    lines = [Line("fcos", "FCOS"), Line("generic", "generic clips"), Line("mast", "MAST")]
    slow = [Line("generic", "generic clips, slowed")]
    rows = [*archive.rows("a small one", "test", slow), *archive.rows("large", "test", lines)]
    axis = dot_plot(rows).axes[0]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["FCOS", "generic clips", "MAST"]


def test_what_self_training_gained_is_paired_with_its_start(tmp_path: Path) -> None:
    names = [f"{letter}.wav" for letter in "abcd"]
    truths = dict.fromkeys(names, 10)
    for system, found in (("one", 2), ("start", 4), ("two", 7)):
        write_found(tmp_path, system, hits=dict.fromkeys(names, found), truths=truths)
    lines = [Line("one", "One"), Line("start", "Start"), Line("two", "Start + ST")]
    rows = Archive(tmp_path, resamples=50).rows(
        "made_up", "test", lines, reference="one", starts={"two": "start"}
    )
    assert [bool(row.gained) for row in rows] == [False, False, True]
    assert tuple(rows[2].gained["recall"]) == pytest.approx((0.3, np.nan, np.nan), nan_ok=True)
    assert tuple(rows[2].differences["recall"]) == pytest.approx((0.5, np.nan, np.nan), nan_ok=True)
    header, cells = as_cells(rows, reference="One")
    place = header.index("F1 gained by ST")
    assert [line[place][0] for line in cells] == ["–", "–", "+"]
    assert as_json(rows)[2]["gained"]["recall"] == [pytest.approx(0.3), None, None]
    assert as_frame(rows).loc[2, "recall_gained"] == pytest.approx(0.3)
