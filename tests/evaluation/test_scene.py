"""What is compared with what: names of recordings, reviewed spans, coordinates."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mast.errors import AnnotationError, ConfigError
from mast.evaluation import Scoring, evaluate
from mast.evaluation.outcome import match_scene
from mast.evaluation.scene import _is_reviewed, align_recordings, build_scene
from mast.grid import FrontEnd


def test_recordings_are_recognised_however_they_are_spelt():
    known = ["site1/a.wav", "site2/a.wav", "b.flac", "c.2023.wav"]
    names = ["site1/a.wav", "/data/set/site2/a.wav", "audio\\b.wav", "c.2023", "d.wav"]
    assert align_recordings(names, known) == {
        "site1/a.wav": "site1/a.wav",
        "/data/set/site2/a.wav": "site2/a.wav",
        "audio\\b.wav": "b.flac",
        "c.2023": "c.2023.wav",
    }


def test_a_name_that_could_mean_two_recordings_means_none():
    assert align_recordings(["a.wav"], ["site1/a.wav", "site2/a.wav"]) == {}
    assert align_recordings(["site1/a.wav", "site2/a.wav"], ["a.wav"]) == {}
    assert align_recordings(["site3/a.wav"], ["site1/a.wav"]) == {}
    assert align_recordings(["", "."], ["a.wav"]) == {}


@given(
    st.lists(st.sampled_from(["a", "a.wav", "x/a.wav", "y/a.wav", "b.wav", "x/b", "b.flac", "c"])), st.data()
)
def test_no_recording_is_claimed_twice(names, data):
    known = data.draw(st.lists(st.sampled_from(["a.wav", "x/a.wav", "a.flac", "b.wav", "x/b.flac", "c.wav"])))
    aligned = align_recordings(names, known)
    assert set(aligned) <= set(names)
    assert len(set(aligned.values())) == len(aligned)
    assert all(aligned[name] == name for name in names if name in known)


def spans(*rows: tuple) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["recording", "start_s", "end_s"])


def test_only_what_was_listened_to_is_judged(make_table):
    truth = make_table([("a", 1, 2, 1000, 2000), ("a", 31, 32, 1000, 2000)])
    predictions = make_table(
        [
            ("a", 1, 2, 1000, 2000, 0.9),
            ("a", 41, 42, 1000, 2000, 0.9),  # beyond the reviewed span
            ("b", 1, 2, 1000, 2000, 0.9),  # reviewed, nothing there: a false alarm
            ("c", 1, 2, 1000, 2000, 0.9),  # nobody listened
        ]
    )
    reviewed = spans(("a", 0, 20), ("a", 30, 40), ("b", float("nan"), float("nan")))
    with pytest.warns(UserWarning, match="2 of the predictions lie where nobody listened"):
        result = evaluate(truth, predictions, reviewed=reviewed, resamples=0)
    assert (result.n_ignored, result.n_predictions, result.n_truth, result.n_recordings) == (2, 2, 2, 2)
    assert result.metrics["precision"] == 0.5
    assert result.metrics["recall"] == 0.5


def test_truth_outside_the_reviewed_spans_is_counted_apart(make_table):
    truth = make_table([("a", 1, 2, 1000, 2000), ("a", 31, 32, 1000, 2000)])
    result = evaluate(truth, truth[:1], reviewed=spans(("a", 0, 20)), resamples=0)
    assert (result.n_truth, result.n_ignored_truth) == (1, 1)
    assert result.metrics["recall"] == 1.0


def test_a_boxed_recording_without_span_is_reviewed_from_end_to_end(make_table):
    truth = make_table([("a", 1, 2, 1000, 2000)])
    assert build_scene(truth, make_table([]), reviewed=spans(("b", 0, 60))).recordings == ["a", "b"]
    assert build_scene(truth, make_table([])).recordings == ["a"]


def test_reviewed_recordings_without_predictions_count_their_misses(make_table):
    truth = make_table([("a", 1, 2, 1000, 2000), ("b", 1, 2, 1000, 2000)])
    assert evaluate(truth, truth[:1], resamples=0).metrics["recall"] == 0.5


def test_grid_space_is_whole_cells_of_the_recording(make_table):
    front_end = FrontEnd()
    # far beyond one chunk; half-bin differences in frequency vanish on the grid, not in hertz
    centres = front_end.bins_to_hz(np.arange(front_end.n_bins))
    truth = make_table([("a", 100.0, 101.0, centres[10], centres[20])])
    nudged = front_end.bins_to_hz([10.4, 20.4])
    predictions = make_table([("a", 100.004, 101.004, *nudged, 0.9)])
    scene = build_scene(truth, predictions)
    assert scene.truth.boxes.tolist() == [[10_000, 10, 10_100, 20]]
    assert scene.predictions.boxes.tolist() == [[10_000, 10, 10_100, 20]]
    assert match_scene(scene).iou.tolist() == [1.0]
    assert match_scene(build_scene(truth, predictions, scoring=Scoring(space="hz"))).iou[0] < 0.95


def test_cells_are_fractions_of_the_grid(make_table):
    front_end = FrontEnd()
    truth = make_table([("a", 100.0, 101.0, *front_end.bins_to_hz([10.25, 20.5]))])
    scene = build_scene(truth, truth.assign(score=0.9), scoring=Scoring(space="cells", front_end=front_end))
    assert scene.truth.boxes.tolist() == [[10_000, 10.25, 10_100, 20.5]]
    assert scene.truth.chunk.tolist() == [9]  # of seconds: 100.5 / 10.24


def test_boxes_outside_the_band_are_left_out_of_grid_space_on_both_sides(make_table):
    truth = make_table([("a", 1, 2, 1000, 2000), ("a", 1, 2, 9000, 12000)])
    predictions = make_table([("a", 1, 2, 1000, 2000, 0.9), ("a", 5, 6, 8500, 9000, 0.8)])
    grid = evaluate(truth, predictions, resamples=0)
    assert (grid.n_outside, grid.n_truth, grid.n_predictions) == (2, 1, 1)
    hz = evaluate(truth, predictions, scoring=Scoring(space="hz"), resamples=0)
    assert (hz.n_outside, hz.n_truth, hz.n_predictions) == (0, 2, 2)
    bats = evaluate(truth, predictions, scoring=Scoring(front_end=FrontEnd.for_band(96_000)), resamples=0)
    assert (bats.n_outside, bats.n_truth) == (0, 2)


def test_short_boxes_stay(make_table):
    """The paper drops training events under 100 ms; a truth is a truth."""
    truth = make_table([("a", 1.0, 1.004, 1000, 2000)])
    assert evaluate(truth, truth, resamples=0).metrics["f1"] == 1.0


@pytest.mark.parametrize("space", ["grid", "hz"])
def test_boxes_begin_at_zero_hertz(make_table, space):
    """Half of this truth would lie below the axis, and the prediction would not match it."""
    truth, found = make_table([("a", 1, 2, -1100, 1000)]), make_table([("a", 1, 2, 0, 1000)])
    for pair in ((truth, found), (found, truth)):
        assert evaluate(*pair, scoring=Scoring(space=space), resamples=0).metrics["miou"] == 1.0


def test_rows_that_are_not_boxes_are_named(make_table):
    good = make_table([("a", 1, 2, 1000, 2000)])
    with pytest.raises(AnnotationError, match=r"truth: row 2 \(b\): starts at 3 s after it ends at 2 s"):
        evaluate(make_table([("a", 1, 2, 1000, 2000), ("b", 3, 2, 1000, 2000)]), good)
    with pytest.raises(AnnotationError, match=r"predictions: row 1 \(a\): score nan, expected a probability"):
        evaluate(good, good.assign(score=np.nan))
    with pytest.raises(AnnotationError, match=r"predictions: event table: columns? .*missing"):
        evaluate(good, good.drop(columns="low_hz"))
    assert (
        evaluate(good.assign(score=np.nan), good, resamples=0).metrics["f1"] == 1.0
    )  # a truth needs no score


def test_nonsense_settings_are_refused():
    with pytest.raises(ConfigError, match="space is 'mel'; expected one of grid, cells, hz"):
        Scoring(space="mel")
    with pytest.raises(ConfigError, match="IoU threshold is 0"):
        Scoring(iou_threshold=0.0)


def test_matching_in_a_scene_is_one_to_one_and_points_into_the_tables(make_random):
    truth, predictions, reviewed = make_random(2)
    scene = build_scene(truth, predictions, reviewed=reviewed)
    outcome = match_scene(scene)
    matched = outcome.truth[outcome.hit]
    assert len(matched) > 5
    assert len(set(matched)) == len(matched)
    assert (scene.truth.recording[matched] == outcome.recording[outcome.hit]).all()
    assert (np.diff(outcome.scores) <= 0).all()
    names = truth["recording"].to_numpy()[scene.truth.row]
    assert [scene.recordings[r] for r in scene.truth.recording] == names.tolist()


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.integers(0, 9)), max_size=6),
    st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 9)), max_size=6),
)
def test_what_was_heard_is_that_of_a_naive_twin(listened, moments):
    recordings = ["a", "b", "c"]
    table = pd.DataFrame(listened, columns=["recording", "start_s", "end_s"])
    rows = np.array([recordings.index(name) if name in recordings else -1 for name, _ in moments], np.int64)
    spoken = np.array([recordings.index(name) for name in table["recording"]], np.int64)
    heard = _is_reviewed(rows, np.array([time_s for _, time_s in moments], float), spoken, table)
    assert heard.tolist() == [
        any(name == where and start_s <= time_s <= end_s for where, start_s, end_s in listened)
        for name, time_s in moments
    ]
