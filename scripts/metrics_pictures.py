"""The pictures of docs/metrics.md: `python scripts/metrics_pictures.py docs/images`.

Sound and truth come from the simulator. The detector is made up: it finds loud calls more often than faint ones, draws
its boxes a little off, imagines some, and its scores are not probabilities. Every number in a picture is computed by
`mast.evaluation` or `mast.events`.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from mast.arrays import FloatArray
from mast.data import Dataset, load_dataset
from mast.data.simulate.dataset import Simulation, simulate_dataset
from mast.evaluation import best_threshold, compare, evaluate
from mast.evaluation.breakdown import reliability
from mast.evaluation.calibration import calibrated, fit_best
from mast.evaluation.metrics import precision_recall
from mast.evaluation.outcome import Outcome, match_scene
from mast.evaluation.scene import build_scene
from mast.events import match_boxes, pairwise_iou
from mast.files import atomic_file
from mast.grid import FrontEnd
from mast.reports.spectrogram import compute_spectrogram, frequency_ticks

GREEN, BLUE, RED, GREY = "#0b8a2a", "#1558d6", "#c22f1f", "#8a96a3"
BOX = ["start_s", "low_hz", "end_s", "high_hz"]


def main() -> None:
    """Simulate, make up detections, draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, help="folder of the pictures")
    out = parser.parse_args().out
    with tempfile.TemporaryDirectory() as folder:
        world = Simulation(
            recordings=150, duration_s=20.48, sites=1, days=1, hours=(5, 9), seed=3, species=30, density=0.7
        )
        simulate_dataset(Path(folder), world)
        dataset = load_dataset(folder)
        found = made_up_detections(dataset, skill=0.0, seed=1)
        better = made_up_detections(dataset, skill=0.3, seed=1)
        pictures = {
            "iou": iou_picture(),
            "matching": matching_picture(dataset, found),
            "threshold": threshold_picture(dataset, found),
            "average_precision": average_precision_picture(dataset, found),
            "calibration": calibration_picture(dataset, found),
            "interval": interval_picture(dataset, found, better),
            "space": space_picture(),
        }
    for name, figure in pictures.items():
        with atomic_file(out / f"metrics_{name}.png") as part:
            figure.savefig(part, format="png")


def made_up_detections(dataset: Dataset, *, skill: float, seed: int) -> pd.DataFrame:
    """What a middling detector might find; each recording has its own difficulty, the same for every ``skill``."""
    rng = np.random.default_rng(seed)
    rows: list[tuple[str, float, float, float, float, float]] = []
    events = dataset.annotations.events
    for name in dataset.recordings["file"]:
        own = events[events["recording"] == name]
        ease = rng.normal(0, 1.0)
        for box, snr in zip(own[BOX].to_numpy(), own["snr_db"].astype(float), strict=True):
            sure = 0.3 + 0.09 * (snr - 18) + ease + skill + rng.normal(0, 1.0)
            length, height = box[2] - box[0], box[3] - box[1]
            off = rng.normal(0, 0.16, 4) * [length, height, length, height]
            found = rng.random() < 1 / (1 + np.exp(-1.2 * sure - 2.0))
            if found:
                start, low, end, high = np.maximum(box + off, 0.0)
                end, high = max(end, start + 0.05), max(high, low + 60)
                rows.append((name, start, max(low, 30), end, min(high, 7_900), sigmoid(1.6 * sure + 0.3)))
        for _ in range(rng.poisson(max(6.0 - 3.0 * skill - ease, 0.5))):
            start, low = rng.uniform(0, 19), rng.uniform(300, 5_500)
            end, high = start + rng.uniform(0.2, 1.2), low * rng.uniform(1.1, 1.5)
            rows.append((name, start, low, end, high, sigmoid(rng.normal(-1.2, 1.7))))
    columns = ["recording", "start_s", "low_hz", "end_s", "high_hz", "score"]
    return pd.DataFrame(rows, columns=columns)


def sigmoid(value: float) -> float:
    """A score in (0, 1)."""
    return float(1 / (1 + np.exp(-value)))


def outcome_of(dataset: Dataset, found: pd.DataFrame) -> Outcome:
    """Matched at IoU 0.5 on the grid."""
    truth = dataset.annotations
    return match_scene(build_scene(truth.events, found, reviewed=truth.reviewed))


def new_figure(width: float, height: float) -> Figure:
    """A figure for the page."""
    figure = Figure(figsize=(width, height), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def iou_picture() -> Figure:
    """The same call, boxed better and better."""
    truth = np.array([0.0, 0.0, 10.0, 6.0])
    predictions = [(7, 3.5, 15, 8.5), (3, 1.4, 13, 7.4), (1.6, 0.9, 11.6, 6.9), (0.4, 0.3, 10.5, 6.2)]
    figure = new_figure(10, 2.6)
    for axes, prediction in zip(figure.subplots(1, 4), predictions, strict=True):
        iou = float(pairwise_iou([truth], [prediction])[0, 0])
        add_box(axes, truth, GREEN, "solid")
        add_box(axes, np.array(prediction), BLUE, (0, (4, 2)))
        low, high = np.maximum(truth[:2], prediction[:2]), np.minimum(truth[2:], prediction[2:])
        axes.add_patch(Rectangle(tuple(low), *(high - low), fc=BLUE, alpha=0.18, lw=0))
        right = len(match_boxes([truth], [prediction], [1.0]).prediction) == 1
        axes.set_title(f"IoU {iou:.2f}: {'a match' if right else 'no match'}", fontsize=11)
        axes.set_xlim(-1, 16)
        axes.set_ylim(-1, 9.5)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_xlabel("time")
    figure.axes[0].set_ylabel("frequency")
    figure.legend(
        handles=[outline(GREEN, "truth"), outline(BLUE, "prediction", "--")],
        loc="outside lower center",
        ncols=2,
        frameon=False,
    )
    return figure


def matching_picture(dataset: Dataset, found: pd.DataFrame) -> Figure:
    """One chunk: hits, misses, false alarms."""
    threshold, span = 0.5, (0.0, 10.24)
    name = clearest_recording(dataset, found, threshold, span)
    events = dataset.annotations.events
    spectrogram = compute_spectrogram(dataset.path(name), start_s=span[0], end_s=span[1])
    truth = inside(events[events["recording"] == name], span)
    kept = inside(found[(found["recording"] == name) & (found["score"] >= threshold)], span)
    spans = pd.DataFrame({"recording": [name], "start_s": [span[0]], "end_s": [span[1]]})
    outcome = match_scene(build_scene(truth, kept, reviewed=spans))
    figure = new_figure(10, 4.2)
    axes = figure.add_subplot()
    draw_sound(axes, dataset.path(name), span)
    bins = spectrogram.front_end
    matched_truth = set(outcome.scene.truth.row[outcome.truth[outcome.truth >= 0]])
    for row, box in enumerate(truth[BOX].to_numpy()):
        add_box(axes, on_bins(box, bins), GREEN if row in matched_truth else RED, "solid")
    order = np.argsort(-outcome.scene.scores, kind="stable")
    for rank, scene_row in enumerate(order):
        box = kept[BOX].to_numpy()[outcome.scene.predictions.row[scene_row]]
        add_box(axes, on_bins(box, bins), BLUE if outcome.hit[rank] else RED, (0, (4, 2)))
    hits, n_truth, n_found = int(outcome.hit.sum()), len(outcome.scene.truth), len(outcome.scores)
    axes.set_title(
        f"{n_truth} calls, {n_found} predictions, {hits} matched:  precision {hits}/{n_found} = "
        f"{hits / n_found:.2f},  recall {hits}/{n_truth} = {hits / n_truth:.2f},  "
        f"F1 = {2 * hits / (n_truth + n_found):.2f}",
        loc="left",
        fontsize=11,
    )
    figure.legend(
        handles=[
            outline(GREEN, "call, found"),
            outline(RED, "call, missed"),
            outline(BLUE, "prediction, right", "--"),
            outline(RED, "prediction, false alarm", "--"),
        ],
        loc="outside lower center",
        ncols=4,
        frameon=False,
    )
    return figure


def clearest_recording(
    dataset: Dataset, found: pd.DataFrame, threshold: float, span: tuple[float, float]
) -> str:
    """The recording nearest to five calls found, two missed and two imagined, none of them cut by the end."""

    def distance(name: str) -> int:
        own = events[events["recording"] == name]
        truth = inside(own, span)
        kept = inside(found[(found["recording"] == name) & (found["score"] >= threshold)], span)
        hits = len(match_boxes(truth[BOX], kept[BOX], kept["score"]).prediction)
        cut = ((own["start_s"] < span[1]) & (own["end_s"] > span[1])).any()
        return 100 * int(cut) + abs(hits - 5) + abs(len(truth) - hits - 2) + abs(len(kept) - hits - 2)

    events = dataset.annotations.events
    return min((str(name) for name in dataset.recordings["file"]), key=distance)


def threshold_picture(dataset: Dataset, found: pd.DataFrame) -> Figure:
    """Precision, recall and F1 over the threshold."""
    outcome = outcome_of(dataset, found)
    truth = dataset.annotations
    best = best_threshold(truth.events, found, reviewed=truth.reviewed)
    hits, kept, n_truth = (
        outcome.hit.cumsum(),
        np.arange(1, len(outcome.scores) + 1),
        len(outcome.scene.truth),
    )
    figure = new_figure(10, 3.4)
    axes = figure.add_subplot()
    for values, colour, name in (
        (hits / kept, BLUE, "precision"),
        (hits / n_truth, GREEN, "recall"),
        (2 * hits / (kept + n_truth), "black", "F1"),
    ):
        enough = kept >= 10  # the values of the first few are luck
        axes.plot(outcome.scores[enough], values[enough], color=colour, label=name, lw=2)
    axes.axvline(best.value, color=GREY, ls=":", lw=1.5)
    axes.annotate(
        f"best F1 {best.f1:.2f}\nat {best.value:.2f}",
        (best.value, best.f1),
        xytext=(8, -36),
        textcoords="offset points",
        fontsize=10,
    )
    axes.set_xlabel("score threshold")
    axes.set_ylim(0, 1.02)
    axes.set_xlim(0, 1)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, loc="lower left")
    return figure


def average_precision_picture(dataset: Dataset, found: pd.DataFrame) -> Figure:
    """The precision-recall curve and its two averages."""
    outcome, truth = outcome_of(dataset, found), dataset.annotations
    metrics = evaluate(truth.events, found, reviewed=truth.reviewed, resamples=0).metrics
    recall, precision = precision_recall(outcome)
    best_beyond = np.maximum.accumulate(precision[::-1])[::-1]
    at = np.arange(11) / 10
    where = np.searchsorted(recall, at, side="left")
    points = np.array([best_beyond[i] if i < len(recall) else 0.0 for i in where])
    figure = new_figure(10, 3.7)
    left, right = figure.subplots(1, 2, sharey=True)
    for axes in (left, right):
        axes.plot(recall, precision, color=GREY, lw=1, label="precision at each recall")
        axes.set_xlabel("recall")
        axes.set_xlim(-0.02, 1.02)
        axes.set_ylim(0, 1.04)
        axes.grid(alpha=0.25)
    envelope = np.append(best_beyond, 0.0)
    reach = np.append(recall, recall[-1])
    left.fill_between(reach, 0, envelope, color=BLUE, alpha=0.15, lw=0)
    left.plot(reach, envelope, color=BLUE, lw=2, label="best precision at this recall or beyond")
    left.set_title(f"ap50 = {metrics['ap50']:.3f}: the area, read at 101 recalls", loc="left", fontsize=11)
    right.stem(at, points, linefmt=BLUE, markerfmt="o", basefmt=" ")
    right.set_title(
        f"ap50_voc11 = {metrics['ap50_voc11']:.3f}: the mean of 11 points", loc="left", fontsize=11
    )
    left.set_ylabel("precision")
    left.legend(loc="upper right", fontsize=9)
    return figure


def calibration_picture(dataset: Dataset, found: pd.DataFrame) -> Figure:
    """Reliability before and after, on recordings that the calibration was not fitted on."""
    names = list(dataset.recordings["file"])
    halves = [dataset.select(recordings=names[i::2]) for i in (0, 1)]
    tuning, test = (
        outcome_of(half, found[found["recording"].isin(half.recordings["file"])]) for half in halves
    )
    calibration = fit_best(tuning, seed=0).calibration
    after = calibrated(test, calibration)
    figure = new_figure(10, 3.9)
    for axes, outcome, title in zip(
        figure.subplots(1, 2, sharey=True),
        (test, after),
        ("as the detector gives them", "calibrated"),
        strict=True,
    ):
        table = reliability(outcome)
        some = table[table["n"] > 0]
        axes.plot([0, 1], [0, 1], color=GREY, ls=":", lw=1.5)
        axes.bar(
            (some["low"] + some["high"]) / 2, some["share_matched"], width=0.09, color=BLUE, alpha=0.3, lw=0
        )
        axes.plot(some["mean_score"], some["share_matched"], "o-", color=BLUE)
        for score, share, n in zip(some["mean_score"], some["share_matched"], some["n"], strict=True):
            axes.annotate(
                str(n), (score, share), xytext=(0, 7), textcoords="offset points", ha="center", fontsize=8
            )
        gap = float((some["n"] * (some["mean_score"] - some["share_matched"]).abs()).sum() / some["n"].sum())
        axes.set_title(f"{title}: ece = {gap:.3f}", loc="left", fontsize=11)
        axes.set_xlabel("score")
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1.08)
    figure.axes[0].set_ylabel("share that is right")
    return figure


def interval_picture(dataset: Dataset, found: pd.DataFrame, better: pd.DataFrame) -> Figure:
    """Two systems whose intervals overlap and whose difference is clear."""
    truth = dataset.annotations
    result = compare(truth.events, found, better, reviewed=truth.reviewed, thresholds=(0.5, 0.5))
    figure = new_figure(10, 2.3)
    left, right = figure.subplots(1, 2, width_ratios=(1, 1))
    for y, (system, name) in enumerate(((result.b, "B"), (result.a, "A"))):
        low, high = system.intervals["f1"]
        draw_interval(left, y, system.metrics["f1"], low, high, BLUE)
        left.annotate(
            f"{name}  {system.metrics['f1']:.2f} ({low:.2f}–{high:.2f})", (low, y + 0.16), fontsize=10
        )
    left.set_yticks([])
    left.set_ylim(-0.5, 1.7)
    left.set_xlabel("F1, each with its 95 % interval")
    change = result.differences["f1"]
    draw_interval(right, 0, change.difference, change.low, change.high, GREEN)
    right.annotate(
        f"B − A  {change.difference:+.2f} ({change.low:+.2f} to {change.high:+.2f})",
        (change.low, 0.1),
        fontsize=10,
    )
    right.axvline(0, color=GREY, ls=":")
    right.set_yticks([])
    right.set_ylim(-0.5, 0.7)
    right.set_xlim(left=-0.02)
    right.set_xlabel("difference of F1 on the same recordings")
    return figure


def space_picture() -> Figure:
    """The same two boxes in hertz and on the model's mel grid."""
    front_end = FrontEnd()
    truth, prediction = np.array([1.0, 400.0, 3.0, 6_000.0]), np.array([1.0, 1_300.0, 3.0, 6_000.0])
    figure = new_figure(10, 3.4)
    left, right = figure.subplots(1, 2)
    for axes, space in ((left, "hz"), (right, "grid")):
        boxes = [box if space == "hz" else on_bins(box, front_end) for box in (truth, prediction)]
        iou = float(pairwise_iou([boxes[0]], [boxes[1]])[0, 0])
        add_box(axes, boxes[0], GREEN, "solid")
        add_box(axes, boxes[1], BLUE, (0, (4, 2)))
        axes.set_xlim(0, 4)
        axes.set_xlabel("time (s)")
        axes.set_title(f"--space {space}: IoU {iou:.2f}", loc="left", fontsize=11)
    left.set_ylim(0, 8_000)
    left.set_yticks(range(0, 8_001, 2_000), [f"{k}" for k in range(0, 9, 2)])
    left.set_ylabel("frequency (kHz), even")
    mel_axis(right, front_end)
    right.set_ylabel("frequency (kHz), mel bins")
    figure.legend(
        handles=[outline(GREEN, "truth"), outline(BLUE, "prediction", "--")],
        loc="outside lower center",
        ncols=2,
        frameon=False,
    )
    return figure


def draw_interval(axes: Axes, y: float, value: float, low: float, high: float, colour: str) -> None:
    """A dot and its whiskers."""
    axes.errorbar([value], [y], xerr=[[value - low], [high - value]], fmt="o", color=colour, capsize=4, lw=2)


def draw_sound(axes: Axes, path: Path, span: tuple[float, float]) -> None:
    """A spectrogram on mel bins, background taken off."""
    spectrogram = compute_spectrogram(path, start_s=span[0], end_s=span[1])
    values = spectrogram.values - np.percentile(spectrogram.values, 20, axis=0)
    low, high = np.percentile(values, (30, 99.8))
    axes.imshow(
        values.T, origin="lower", aspect="auto", extent=spectrogram.extent, cmap="gray_r", vmin=low, vmax=high
    )
    axes.set_xlim(*span)
    mel_axis(axes, spectrogram.front_end)
    axes.set_xlabel("time (s)")
    axes.set_ylabel("frequency (kHz)")


def mel_axis(axes: Axes, front_end: FrontEnd) -> None:
    """Kilohertz where they lie on the mel bins."""
    ticks = frequency_ticks(front_end, max_ticks=8)
    axes.set_yticks(front_end.hz_to_bins(ticks), [f"{hz / 1_000:g}" for hz in ticks])
    axes.set_ylim(-1, front_end.n_bins)


def on_bins(box: FloatArray, front_end: FrontEnd) -> FloatArray:
    """Seconds × hertz → seconds × mel bins."""
    low, high = front_end.hz_to_bins(np.clip(box[[1, 3]], front_end.low_hz, front_end.high_hz))
    return np.array([box[0], low, box[2], high])


def inside(events: pd.DataFrame, span: tuple[float, float]) -> pd.DataFrame:
    """The events that lie wholly within a span."""
    return events[(events["start_s"] >= span[0]) & (events["end_s"] <= span[1])].reset_index(drop=True)


def add_box(axes: Axes, box: FloatArray, colour: str, line: object) -> None:
    """An outline."""
    corner, size = (box[0], box[1]), (box[2] - box[0], box[3] - box[1])
    axes.add_patch(Rectangle(corner, *size, fill=False, ec=colour, ls=line, lw=1.8))


def outline(colour: str, name: str, line: str = "-") -> Patch:
    """An entry of a legend."""
    return Patch(fc="none", ec=colour, ls=line, lw=1.8, label=name)


if __name__ == "__main__":
    main()
