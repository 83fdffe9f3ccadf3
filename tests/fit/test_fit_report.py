"""The pieces of report.html, each against something counted by hand."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timedelta
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

from mast.annotations import AnnotationSet
from mast.data.recordings import Dataset
from mast.evaluation.metrics import metrics_of, precision_recall
from mast.evaluation.part_tables import PartTables
from mast.events import BOX_COLUMNS, as_events
from mast.grid import FrontEnd, grid_to_events
from mast.probability import Calibration
from mast.reports.fit_data import (
    boxes_by_hour,
    hours_figure,
    reviewed_by_hour,
    sites_header,
    sites_table,
    sound_by_hour,
)
from mast.reports.fit_examples import choose_examples
from mast.reports.fit_figures import (
    curves_figure,
    parts_figure,
    precision_recall_figure,
    read_curves,
    reliability_figure,
)
from mast.reports.fit_report import _lead, _use
from mast.reports.html_page import picture
from mast.training.part_list import UnusedBoxes

FRONT_END = FrontEnd(n_bins=64, chunk_frames=256)


def dataset() -> Dataset:
    """Two sites; the first recording runs over a full hour, the clock of the last is unknown."""
    recordings = pd.DataFrame(
        {
            "file": ["a.wav", "b.wav", "c.wav"],
            "site": ["oak", "elm", ""],
            "datetime": ["2024-05-01T05:30:00", "2024-05-02T23:50:00", ""],
            "split": "",
            "duration_s": [7_200.0, 1_200.0, 600.0],
            "sample_rate": 16_000.0,
        }
    )
    events = pd.DataFrame(
        {
            "recording": ["a.wav", "a.wav", "c.wav"],
            "start_s": [10.0, 4_000.0, 1.0],
            "end_s": [11.0, 4_001.0, 2.0],
            "low_hz": 1_000.0,
            "high_hz": 2_000.0,
            "datetime": ["2024-05-01T05:30:10", "2024-05-01T06:36:40", ""],
        }
    )
    reviewed = pd.DataFrame(
        {"recording": ["a.wav", "c.wav"], "start_s": [0.0, 0.0], "end_s": [5_400.0, 600.0]}
    )
    return Dataset(Path("nowhere"), recordings, AnnotationSet(as_events(events), reviewed))


def test_sound_is_counted_in_the_hour_it_was_heard() -> None:
    naive = np.zeros(24)
    for clock, seconds in (("2024-05-01T05:30:00", 7_200), ("2024-05-02T23:50:00", 1_200)):
        for second in range(seconds):
            naive[(datetime.fromisoformat(clock) + timedelta(seconds=second)).hour] += 1 / 3600
    found = sound_by_hour(dataset())
    np.testing.assert_allclose(found.by_hour, naive, atol=1e-9)
    assert found.unknown == pytest.approx(600 / 3600)
    heard = reviewed_by_hour(dataset())
    assert heard.by_hour[5] == pytest.approx(0.5)
    assert heard.by_hour[6] == pytest.approx(1.0)
    assert heard.by_hour.sum() == pytest.approx(1.5)
    boxes = boxes_by_hour(dataset())
    assert (boxes.by_hour[5], boxes.by_hour[6], boxes.unknown) == (1, 1, 1)


def test_sites_are_counted_apart_and_unlabelled_sound_has_no_boxes() -> None:
    rows = sites_table([("labelled", dataset()), ("unlabelled", dataset())])
    assert rows[1] == ["oak", "labelled", "1", "1", "2.0", "1.5", "2", "1.3"]
    assert rows[0] == ["elm", "labelled", "1", "1", "0.3", "0.0", "0", "–"]
    assert rows[4] == ["oak", "unlabelled", "1", "1", "2.0", "–", "–", "–"]
    header = sites_header([("labelled", dataset())])
    assert header[4] == "minutes of sound"  # two and a half hours: a little sound is counted in minutes
    assert sites_table([("labelled", dataset())])[1][4:6] == ["120.0", "90.0"]
    assert hours_figure([("labelled", dataset())]) is not None
    unknown = dataset()
    unknown.recordings["datetime"] = ""
    assert hours_figure([("labelled", unknown)]) is None


def measured(threshold: float = 0.4) -> PartTables:
    """In cells: a hit, a false alarm that scores higher, a miss; and a hit under the threshold of 0.4."""
    truth = [("r", 10, 5, 50, 20), ("r", 100, 5, 150, 20), ("s", 10, 30, 60, 40)]
    found = [("r", 11, 5, 50, 21, 0.6), ("s", 200, 5, 240, 9, 0.8), ("s", 10, 30.5, 60, 40, 0.2)]
    columns = ["recording", *BOX_COLUMNS]
    heard = pd.DataFrame({"recording": ["r", "s"], "start_s": 0.0, "end_s": np.inf})
    tables = (pd.DataFrame(truth, columns=columns), pd.DataFrame(found, columns=[*columns, "score"]))
    for own in tables:
        own[BOX_COLUMNS] = grid_to_events(own[BOX_COLUMNS], FRONT_END)
    platt = Calibration(method="platt", slope=2.0, intercept=-1.0)
    return PartTables(as_events(tables[0]), as_events(tables[1]), heard, FRONT_END, threshold, platt)


@pytest.mark.parametrize(("recordings", "warned"), [(9, True), (10, False)])
def test_every_headline_has_its_interval_and_few_recordings_a_warning(recordings: int, warned: bool) -> None:
    values = {"f1": 0.71, "precision": 0.82, "recall": 0.63}
    intervals = {"f1": [0.6, 0.8], "precision": [0.7, 0.9], "recall": [0.5, 0.75]}
    metrics = {
        "parts": {"test": {"recordings": recordings}},
        "detectors": {"trained": {"parts": {"test": {**values, "intervals": intervals}}}},
    }
    data = dataset()
    story = SimpleNamespace(
        metrics=metrics,
        chosen="trained",
        main_part="test",
        datasets=[("labelled", data)],
        labelled=data,
        unused=UnusedBoxes(0, ""),
        verdict="",
    )
    text = str(_lead(cast("Any", story)))
    shown = dict(re.findall(r"<b>(.*?)</b>(.*?)</div>", text))
    for name, value in values.items():
        low, high = intervals[name]
        assert f"95 % interval {low:.2f}–{high:.2f}" in shown[f"{value:.2f}"], name
    assert (f"These figures rest on {recordings} recordings." in text) == warned
    boxes = len(data.annotations.events)
    assert f"<b>{boxes}</b>boxes by experts" in text.replace("<span>", "").replace("</span>", "")
    story.unused = UnusedBoxes(1, "1 box is not used")
    assert f"<b>{boxes - 1}</b>of {boxes} expert’s box" in str(_lead(cast("Any", story))).replace(
        "<span>", ""
    )


def test_commands_on_the_page_can_be_typed() -> None:
    story = SimpleNamespace(
        run=Path("my runs/birds"),
        calibration=Calibration(),
        card=SimpleNamespace(thresholds={"score": 0.5}, habit=None),
        recipe=SimpleNamespace(front_end=FRONT_END),
    )
    text = unescape(str(_use(cast("Any", story))))
    assert "--model 'my runs/birds' --out detections" in text
    assert "--model 'my runs/birds' --out sure" in text
    assert "mast.load('my runs/birds')" in text


def test_examples_are_what_they_are_called() -> None:
    found = choose_examples(measured(), each=5, seed=0)
    seen = {(e.kind, e.recording, round(float(e.box[0]), 2)) for e in found}
    assert seen == {("hit", "r", 0.11), ("false alarm", "s", 2.0), ("miss", "r", 1.0), ("miss", "s", 0.1)}
    hit = next(e for e in found if e.kind == "hit")
    assert hit.score == pytest.approx(float(measured().calibration.apply(0.6)))  # as users see it
    lower = choose_examples(measured(0.1), each=5, seed=0)
    assert sorted(e.kind for e in lower) == ["false alarm", "hit", "hit", "miss"]
    few = choose_examples(measured(0.1), each=1, seed=0)
    assert sorted(e.kind for e in few) == ["false alarm", "hit", "miss"]


def test_precision_and_recall_prediction_by_prediction() -> None:
    recall, precision = precision_recall(measured().match())
    np.testing.assert_allclose(recall, [0, 1 / 3, 2 / 3])
    np.testing.assert_allclose(precision, [0, 1 / 2, 2 / 3])
    tied = replace(measured(), found=measured().found.assign(score=[0.6, 0.6, 0.2]))
    recall, precision = precision_recall(tied.match())
    np.testing.assert_allclose(recall, [1 / 3, 1 / 3, 2 / 3])  # equal scores come together
    np.testing.assert_allclose(precision, [1 / 2, 1 / 2, 2 / 3])


@pytest.mark.parametrize("scores", [(0.6, 0.8, 0.2), (0.6, 0.6, 0.2), (0.8, 0.4, 0.4), (0.7, 0.7, 0.7)])
def test_the_drawn_curve_is_that_of_average_precision(scores: tuple[float, float, float]) -> None:
    part = replace(measured(), found=measured().found.assign(score=scores))
    figure = precision_recall_figure({"d": part}, "test")
    [line] = [line for line in figure.axes[0].lines if line.get_label() == "d"]
    assert line.get_drawstyle() == "steps-pre"
    recall, precision = np.asarray(line.get_data())
    best = [precision[recall >= point].max(initial=0) for point in np.linspace(0, 1, 101)]
    assert np.mean(best) == pytest.approx(metrics_of(part.match(), None)["ap50"][0])


def test_figures_can_be_drawn_of_nothing() -> None:
    nothing = replace(measured(), found=measured().found.iloc[:0])
    for part in (nothing, measured()):
        assert "data:image/png" in picture(precision_recall_figure({"d": part}, "test"), dpi=30)
        platt = Calibration(method="platt", slope=2.0)
        assert "data:image/png" in picture(reliability_figure(part.match(), platt, "test"), dpi=30)
    result = {"f1": None, "intervals": {"f1": [None, None]}}
    metrics = {"parts": {"val": {}}, "detectors": {"trained": {"parts": {"val": result}}}}
    assert "data:image/png" in picture(
        parts_figure(metrics, {"trained": "the detector"}, {"val": "validation"}), dpi=30
    )
    assert curves_figure([]) is None


def test_curves_survive_a_line_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "curves.jsonl"
    assert read_curves(path, "none") is None
    path.write_text('{"step": 0, "train/loss": 2.0}\n{"step": 1, "train/loss": 1.0}\n{"step": 1, "valid')
    curves = read_curves(path, "Training")
    assert curves is not None
    steps, loss = curves.series["train/loss"]
    assert steps.tolist() == [1, 2]
    assert loss.tolist() == [2.0, 1.0]
