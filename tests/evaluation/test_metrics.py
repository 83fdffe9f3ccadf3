"""Each metric by hand, against a slow twin, and where there is nothing to measure."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from mast.evaluation import Scoring, evaluate
from mast.evaluation.bootstrap import draw_weights
from mast.evaluation.metrics import metrics_of
from mast.evaluation.outcome import match_scene
from mast.evaluation.scene import build_scene
from mast.events import match_boxes, pairwise_iom, pairwise_iou
from mast.grid import FrontEnd

HZ = Scoring(space="hz")


def plain(truth, predictions, **options):
    return evaluate(truth, predictions, resamples=0, **options)


@pytest.fixture
def two_recordings(make_table):
    """Two truths in a, one in b; three predictions: right, right but loose (IoU 0.5), and wrong."""
    truth = make_table([("a", 0, 1, 1000, 2000), ("a", 15, 16, 1000, 2000), ("b", 0, 1, 1000, 2000)])
    predictions = make_table(
        [
            ("a", 0, 1, 1000, 2000, 0.9),
            ("a", 15, 17, 1000, 2000, 0.6),
            ("b", 5, 6, 1000, 2000, 0.8),
        ]
    )
    return truth, predictions


def test_counts_by_hand(two_recordings):
    result = plain(*two_recordings, scoring=HZ)
    assert result.metrics["precision"] == pytest.approx(2 / 3)
    assert result.metrics["recall"] == pytest.approx(2 / 3)
    assert result.metrics["f1"] == pytest.approx(2 / 3)
    assert result.metrics["miou"] == pytest.approx((1 + 0.5) / 2)
    # chunks a·0 (F1 1), a·1 (F1 1), b·0 (one miss, one false alarm: F1 0)
    assert result.metrics["f1_macro"] == pytest.approx(2 / 3)
    # right, wrong, right: precision 1, 1/2, 2/3 at recall 1/3, 1/3, 2/3
    assert result.metrics["ap50"] == pytest.approx((34 * 1 + 33 * 2 / 3) / 101)
    assert result.metrics["ap50_voc11"] == pytest.approx((4 * 1 + 3 * 2 / 3) / 11)
    # at IoU 0.55 and above the loose one is wrong too
    assert result.metrics["ap50_95"] == pytest.approx(0.1 * result.metrics["ap50"] + 0.9 * 34 / 101)
    assert result.metrics["ece"] == pytest.approx((abs(0.9 - 1) + abs(0.6 - 1) + abs(0.8 - 0)) / 3)
    assert (result.n_truth, result.n_predictions, result.n_recordings) == (3, 3, 2)


def test_a_second_box_on_one_truth_is_a_false_alarm(make_table):
    truth = make_table([("a", 0, 1, 1000, 2000), ("a", 5, 6, 1000, 2000)])
    doubled = make_table([("a", 0, 1, 1000, 2000, 0.9), ("a", 0, 1, 1000, 1900, 0.8)])
    for scoring in (Scoring(), HZ):
        metrics = plain(truth, doubled, scoring=scoring).metrics
        assert (metrics["precision"], metrics["recall"], metrics["f1"]) == (0.5, 0.5, 0.5)
        assert (metrics["f1_time"], metrics["f1_iom"]) == (0.5, 0.5)
        assert metrics["ap50"] == pytest.approx(51 / 101)


def test_threshold_leaves_average_precision_alone(two_recordings):
    everything, some = plain(*two_recordings, scoring=HZ), plain(*two_recordings, scoring=HZ, threshold=0.8)
    assert some.n_predictions == 2
    assert some.metrics["precision"] == pytest.approx(1 / 2)
    assert some.metrics["recall"] == pytest.approx(1 / 3)
    assert some.metrics["miou"] == pytest.approx(1.0)
    for name in ("ap50", "ap50_voc11", "ap50_95", "ece"):
        assert some.metrics[name] == everything.metrics[name]


def test_the_lone_right_guess_among_many_gives_the_papers_one_eleventh(make_table):
    """0.0909 in the paper's tables: one sure hit, recall under 0.1, 11-point AP 1/11."""
    truth = make_table([("a", 10 * k, 10 * k + 1, 1000, 2000) for k in range(20)])
    predictions = make_table([("a", 0, 1, 1000, 2000, 0.9)])
    metrics = plain(truth, predictions).metrics
    assert metrics["ap50_voc11"] == pytest.approx(1 / 11)
    assert metrics["ap50"] == pytest.approx(6 / 101)


def test_recall_points_are_exact(make_table):
    """3 of 10 found is recall 0.3, not a hair under it."""
    truth = make_table([("a", 10 * k, 10 * k + 1, 1000, 2000) for k in range(10)])
    assert plain(truth, truth[:3]).metrics["ap50_voc11"] == pytest.approx(4 / 11)


def test_a_box_that_spans_a_chunk_border_counts_in_one_chunk(make_table):
    truth = make_table([("a", 9.0, 11.0, 1000, 2000)])  # centre 10.0: the first chunk of 10.24 s
    predictions = make_table([("a", 9.5, 11.5, 1000, 2000, 0.9)])  # centre 10.5: the second
    assert plain(truth, predictions, scoring=HZ).metrics["f1_macro"] == 1.0


def test_time_only_and_intersection_over_minimum(make_table):
    truth = make_table([("a", 0, 2, 1000, 2000), ("a", 5, 7, 1000, 2000), ("a", 8, 10, 1000, 2000)])
    predictions = make_table(
        [
            ("a", 0, 2, 5000, 6000, 0.9),  # right time, wrong band
            ("a", 5.5, 6, 1200, 1800, 0.8),  # inside its truth, much smaller
            ("a", 8, 10, 1000, 2000, 0.7),
        ]
    )
    metrics = plain(truth, predictions, scoring=HZ).metrics
    assert metrics["f1"] == pytest.approx(1 / 3)
    assert metrics["f1_time"] == pytest.approx(2 / 3)
    assert metrics["f1_iom"] == pytest.approx(2 / 3)


def slow_metrics(truth, predictions, reviewed, threshold, chunk_s=10.24):
    """Recording by recording, chunk by chunk, threshold by threshold, with the plain definitions."""
    box = ["start_s", "low_hz", "end_s", "high_hz"]
    flat = lambda boxes: boxes * [1, 0, 1, 0] + [0, 0, 0, 1]  # noqa: E731
    counts = dict.fromkeys(("truths", "predictions", "f1", "f1_time", "f1_iom"), 0)
    ious, chunk_f1 = [], []
    for recording in reviewed["recording"]:
        t = truth[truth["recording"] == recording]
        p = predictions[(predictions["recording"] == recording) & (predictions["score"] >= threshold)]
        tb, pb, scores = t[box].to_numpy(), p[box].to_numpy(), p["score"].to_numpy()
        matches = match_boxes(tb, pb, scores)
        counts["truths"] += len(t)
        counts["predictions"] += len(p)
        counts["f1"] += len(matches.truth)
        counts["f1_time"] += len(match_boxes(flat(tb), flat(pb), scores, overlap=pairwise_iou).truth)
        counts["f1_iom"] += len(match_boxes(tb, pb, scores, overlap=pairwise_iom).truth)
        ious += matches.overlap.tolist()
        t_chunk = (tb[:, [0, 2]].mean(axis=1) // chunk_s).astype(int)
        p_chunk = (pb[:, [0, 2]].mean(axis=1) // chunk_s).astype(int)
        p_chunk[matches.prediction] = t_chunk[matches.truth]
        for chunk in {*t_chunk, *p_chunk}:
            hits = (t_chunk[matches.truth] == chunk).sum()
            chunk_f1.append(2 * hits / ((t_chunk == chunk).sum() + (p_chunk == chunk).sum()))
    n = counts["truths"] + counts["predictions"]
    return {
        "precision": counts["f1"] / counts["predictions"],
        "recall": counts["f1"] / counts["truths"],
        **{name: 2 * counts[name] / n for name in ("f1", "f1_time", "f1_iom")},
        "f1_macro": np.mean(chunk_f1),
        "miou": np.mean(ious),
    }


def slow_ap(hits: np.ndarray, n_truth: int, points) -> float:
    """Mean over recall points of the best precision at that recall or beyond."""
    precision = np.cumsum(hits) / np.arange(1, len(hits) + 1)
    recall = np.cumsum(hits) / n_truth
    return float(np.mean([max(precision[recall >= r], default=0.0) for r in points]))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("threshold", [0.0, 0.4])
def test_counts_are_their_slow_twins(make_random, seed, threshold):
    truth, predictions, reviewed = make_random(seed)
    fast = plain(truth, predictions, reviewed=reviewed, scoring=HZ, threshold=threshold)
    slow = slow_metrics(truth, predictions, reviewed, threshold)
    assert {name: fast.metrics[name] for name in slow} == pytest.approx(slow)


@pytest.mark.parametrize("seed", range(5))
def test_average_precision_is_its_slow_twin(make_random, seed):
    truth, predictions, reviewed = make_random(seed)
    predictions["score"] = np.random.default_rng(seed).permutation(len(predictions)) / len(predictions)
    fast = plain(truth, predictions, reviewed=reviewed, scoring=HZ).metrics
    box = ["start_s", "low_hz", "end_s", "high_hz"]
    by_iou = []
    for iou in np.linspace(0.5, 0.95, 10):
        hit = pd.Series(False, index=predictions.index)
        for recording, p in predictions.groupby("recording"):
            t = truth[truth["recording"] == recording]
            matches = match_boxes(t[box].to_numpy(), p[box].to_numpy(), p["score"].to_numpy(), threshold=iou)
            hit[p.index[matches.prediction]] = True
        by_iou.append(hit[predictions["score"].sort_values(ascending=False).index].to_numpy())
    coco = [slow_ap(hits, len(truth), np.linspace(0, 1, 101)) for hits in by_iou]
    assert fast["ap50"] == pytest.approx(coco[0])
    assert fast["ap50_95"] == pytest.approx(np.mean(coco))
    assert fast["ap50_voc11"] == pytest.approx(slow_ap(by_iou[0], len(truth), [k / 10 for k in range(11)]))


def slow_tied_ap(truth, predictions, iou: float, points) -> float:
    """Every score as a threshold: match what scores as much from the start, and count."""
    box = ["start_s", "low_hz", "end_s", "high_hz"]
    curve = []
    for score in predictions["score"].unique():
        kept = predictions[predictions["score"] >= score]
        hits = 0
        for recording, p in kept.groupby("recording"):
            t = truth[truth["recording"] == recording]
            hits += len(match_boxes(t[box], p[box], p["score"], threshold=iou).prediction)
        curve.append((hits / len(truth), hits / len(kept)))
    best = [max((precision for recall, precision in curve if recall >= r), default=0.0) for r in points]
    return float(np.mean(best))


@pytest.mark.parametrize("decimals", [0, 1, 6])
@pytest.mark.parametrize("seed", range(3))
def test_average_precision_of_equal_scores_is_its_slow_twin(make_random, seed, decimals):
    truth, predictions, reviewed = make_random(seed)
    predictions["score"] = np.random.default_rng(seed).random(len(predictions)).round(decimals)
    fast = plain(truth, predictions, reviewed=reviewed, scoring=HZ).metrics
    coco = [
        slow_tied_ap(truth, predictions, iou, np.linspace(0, 1, 101)) for iou in np.linspace(0.5, 0.95, 10)
    ]
    assert fast["ap50"] == pytest.approx(coco[0])
    assert fast["ap50_95"] == pytest.approx(np.mean(coco))
    voc = slow_tied_ap(truth, predictions, 0.5, [k / 10 for k in range(11)])
    assert fast["ap50_voc11"] == pytest.approx(voc)


@pytest.mark.parametrize("decimals", [0, 1, 6])
def test_average_precision_of_resampled_recordings_is_that_of_their_copies(make_random, decimals):
    truth, predictions, reviewed = make_random(5)
    predictions["score"] = np.random.default_rng(5).random(len(predictions)).round(decimals)
    names = sorted(reviewed["recording"])
    weights = draw_weights(len(names), 12, seed=0)
    outcome = match_scene(build_scene(truth, predictions, reviewed=reviewed, scoring=HZ))
    fast = metrics_of(outcome, None, weights)

    def copied(table, times):
        own = {name: table[table["recording"] == name] for name in names}
        parts = [
            own[name].assign(recording=f"{copy}-{name}")
            for name, n in zip(names, times, strict=True)
            for copy in range(int(n))
        ]
        return pd.concat(parts, ignore_index=True)

    for b, times in enumerate(weights):
        tables = {"truth": truth, "predictions": predictions, "reviewed": reviewed}
        drawn = {name: copied(table, times) for name, table in tables.items()}
        slow = plain(**drawn, scoring=HZ).metrics
        for name in ("ap50", "ap50_voc11", "ap50_95"):
            assert fast[name][b] == pytest.approx(slow[name])


def test_the_order_of_rows_with_equal_scores_changes_nothing(make_random):
    truth, predictions, reviewed = make_random(1, 12, 20)
    predictions["score"] = 0.5
    given = evaluate(truth, predictions, reviewed=reviewed, scoring=HZ, resamples=100)
    for name in ("ap50", "ap50_voc11", "ap50_95"):
        low, high = given.intervals[name]
        assert low <= given.metrics[name] <= high
    # one point on the curve: all of the precision, up to the recall
    reached = (np.linspace(0, 1, 101) <= given.metrics["recall"]).mean()
    assert given.metrics["ap50"] == pytest.approx(given.metrics["precision"] * reached)
    for seed in range(3):
        shuffled = predictions.sample(frac=1, random_state=seed)
        again = evaluate(truth, shuffled, reviewed=reviewed, scoring=HZ, resamples=100)
        assert again.metrics == pytest.approx(given.metrics)
        for name, bounds in given.intervals.items():
            assert again.intervals[name] == pytest.approx(bounds)


def defined(result) -> set[str]:
    return {name for name, value in result.metrics.items() if np.isfinite(value)}


def test_truth_without_predictions(make_table):
    result = plain(make_table([("a", 0, 1, 1000, 2000)]), make_table([]))
    zero = {"recall", "f1", "f1_macro", "f1_time", "f1_iom", "ap50", "ap50_voc11", "ap50_95"}
    assert defined(result) == zero
    assert all(result.metrics[name] == 0 for name in zero)


def test_predictions_without_truth(make_table):
    reviewed = pd.DataFrame({"recording": ["a"], "start_s": [0.0], "end_s": [60.0]})
    result = plain(make_table([]), make_table([("a", 0, 1, 1000, 2000, 0.7)]), reviewed=reviewed)
    zero = {"precision", "f1", "f1_macro", "f1_time", "f1_iom"}
    assert defined(result) == {*zero, "ece"}
    assert all(result.metrics[name] == 0 for name in zero)
    assert result.metrics["ece"] == pytest.approx(0.7)


@pytest.mark.parametrize("recordings", [[], ["a", "b"]])
def test_neither(make_table, recordings):
    reviewed = pd.DataFrame({"recording": recordings, "start_s": 0.0, "end_s": 60.0})
    result = evaluate(make_table([]), make_table([]), reviewed=reviewed, resamples=20)
    assert defined(result) == set()
    assert (result.n_truth, result.n_predictions, result.n_recordings) == (0, 0, len(recordings))


def test_perfect_predictions_are_perfect_in_both_spaces(make_random):
    truth, _, reviewed = make_random(1)
    for space in ("grid", "hz"):
        metrics = plain(truth, truth, reviewed=reviewed, scoring=Scoring(space=space)).metrics
        assert {name: metrics[name] for name in metrics if name != "ece"} == pytest.approx(
            dict.fromkeys(set(metrics) - {"ece"}, 1.0)
        )


def test_scores_that_are_not_probabilities_have_no_calibration_error(make_table):
    result = plain(make_table([("a", 0, 1, 1000, 2000)]), make_table([("a", 0, 1, 1000, 2000, 3.5)]))
    assert np.isnan(result.metrics["ece"])
    assert result.metrics["ap50"] == 1.0
    assert result.reliability.empty


def test_reliability_by_hand(make_table):
    truth = make_table([("a", 10 * k, 10 * k + 1, 1000, 2000) for k in range(4)])
    predictions = pd.concat([truth, make_table([("a", 55, 56, 1000, 2000)])], ignore_index=True)
    predictions["score"] = [0.92, 0.98, 1.0, 0.31, 0.35]
    result = plain(truth, predictions)
    bins = result.reliability.set_index("n")
    assert result.reliability["n"].tolist() == [0, 0, 0, 2, 0, 0, 0, 0, 0, 3]
    assert bins.loc[3, ["mean_score", "share_matched"]].tolist() == pytest.approx(
        [(0.92 + 0.98 + 1.0) / 3, 1.0]
    )
    assert bins.loc[2, ["mean_score", "share_matched"]].tolist() == pytest.approx([0.33, 0.5])
    gaps = (result.reliability["mean_score"] - result.reliability["share_matched"]).abs().fillna(0)
    assert result.metrics["ece"] == pytest.approx((gaps * result.reliability["n"]).sum() / 5)


def test_recall_by_size_band_and_snr(make_table):
    front_end = FrontEnd()
    truth = make_table(
        [
            ("a", 0, 0.2, 1000, 1500),  # small
            ("a", 10, 15, 1000, 6000),  # large
            ("a", 20, 20.2, 7000, 7900),  # small, high
        ]
    )
    truth["snr_db"] = [-3.0, 25.0, float("nan")]
    result = plain(truth, truth[1:2].assign(score=0.9), threshold=0.5)
    by = result.recall_by.set_index(["by", "group"])
    assert by.loc[("size", "small"), ["n_truth", "n_found"]].tolist() == [2, 0]
    assert by.loc[("size", "large"), ["n_truth", "n_found"]].tolist() == [1, 1]
    assert np.isnan(by.loc[("size", "medium"), "recall"])
    assert by.loc[("snr_db", "under 0"), "recall"] == 0
    assert by.loc[("snr_db", "20 and over"), "recall"] == 1
    assert result.recall_by.groupby("by")["n_truth"].sum().to_dict() == {
        **{"size": 3, "length": 3, "band": 3},
        "snr_db": 2,
    }
    bands = result.recall_by[result.recall_by["by"] == "band"]
    assert bands["group"].iloc[0].startswith(f"{front_end.low_hz:.0f}–")
    assert bands["group"].iloc[-1].endswith(f"–{front_end.high_hz:.0f} Hz")
    assert bands["n_truth"].iloc[-1] == 1
