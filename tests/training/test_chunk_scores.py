"""Detections of chunks as events of their recordings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset
from toy_recipe import FRONT_END

from mast.annotations.redraw import redraw_events
from mast.data.chunk_dataset import ChunkDataset
from mast.data.recordings import load_dataset
from mast.evaluation.calibration import _folds
from mast.evaluation.part_tables import PartTables
from mast.evaluation.threshold import best_threshold_of, steady_threshold_of
from mast.events import boxes_of
from mast.grid import events_to_grid
from mast.habit import Habit
from mast.loaded_model import LoadedModel
from mast.models.baselines import BaselineConfig
from mast.models.card import ModelCard
from mast.models.decode import Detections
from mast.models.interface import BoxDetector
from mast.normalisation import Normalisation
from mast.training.chosen_chunks import Chunks, labelled_chunks
from mast.training.chunk_scores import chunk_metrics, detect_chunks

BOXES = torch.tensor(
    [[10.0 * i, 5.5, 10.0 * i + 8, 21.25] for i in range(20)]
)  # in each chunk, 2 s apart in all


class TwentyBoxes(BoxDetector):
    """Says the same of every chunk."""

    chunk = (FRONT_END.chunk_frames, FRONT_END.n_bins)

    def loss(self, *_: object, **__: object) -> dict[str, Tensor]:
        raise NotImplementedError

    def detect(self, spectrograms: Tensor, **_: object) -> list[Detections]:
        return [Detections(BOXES, torch.linspace(0.95, 0.1, len(BOXES))) for _ in spectrograms]


@pytest.fixture(scope="module")
def chunks(tones: Path) -> Chunks:
    """The chunks of one recording, end to end."""
    dataset = load_dataset(tones)
    table = labelled_chunks(dataset, FRONT_END)["val"].table
    own = table[table["recording"] == table["recording"].iloc[0]].reset_index(drop=True)
    assert len(own) == 4
    return Chunks(ConcatDataset([ChunkDataset(dataset, own, FRONT_END)]), own)


@pytest.fixture(scope="module")
def found(chunks: Chunks) -> PartTables:
    card = ModelCard(
        kind="detector",
        architecture=BaselineConfig(name="fcos"),
        front_end=FRONT_END,
        normalisation=Normalisation(mean=-8.0, std=4.0),
    )
    model = LoadedModel(TwentyBoxes(), card, device=torch.device("cpu"))
    return detect_chunks(model, chunks, batch_size=3)


def test_a_chunk_lies_in_one_fold(chunks: Chunks, found: PartTables) -> None:
    outcome = found.match()
    assert len(outcome.scores) == 20 * len(chunks)
    assert np.bincount(outcome.chunk).tolist() == [20] * len(chunks)
    fold = _folds(outcome, 0)
    start_s = found.found["start_s"].to_numpy()[
        outcome.scene.predictions.row[np.argsort(-outcome.scene.scores, kind="stable")]
    ]
    for first in chunks.table["start_s"]:
        own = (start_s >= first - 1e-9) & (start_s < first + FRONT_END.chunk_s - 1e-9)
        assert own.sum() == 20
        assert len(set(fold[own].tolist())) == 1


def test_boxes_are_in_seconds_and_hertz(chunks: Chunks, found: PartTables) -> None:
    third = found.found[40:60]
    start_s = float(chunks.table["start_s"][2])
    np.testing.assert_allclose(third["start_s"], start_s + 0.1 * np.arange(20))
    np.testing.assert_allclose(third["end_s"], start_s + 0.1 * np.arange(20) + 0.08)
    np.testing.assert_allclose(third["low_hz"], FRONT_END.bins_to_hz(5.5))
    np.testing.assert_allclose(third["high_hz"], FRONT_END.bins_to_hz(21.25))
    # the expert's boxes as the detector is taught them, chunk by chunk
    for first in chunks.table["start_s"]:
        inside = found.truth["start_s"].between(first - 1e-9, first + FRONT_END.chunk_s - 1e-9)
        events = load_dataset(chunks.table["root"].iloc[0]).annotations.events
        own = events[events["recording"] == found.recordings[0]]
        taught = events_to_grid(boxes_of(own), FRONT_END, chunk_start_s=first).boxes
        again = events_to_grid(boxes_of(found.truth[inside]), FRONT_END, chunk_start_s=first).boxes
        np.testing.assert_array_equal(again, taught)
    assert found.heard.to_dict("records") == [
        {"recording": found.recordings[0], "start_s": 0.0, "end_s": pytest.approx(4 * FRONT_END.chunk_s)}
    ]


def test_overlap_is_that_of_the_cells(found: PartTables) -> None:
    scene = found.match().scene
    np.testing.assert_array_equal(scene.predictions.boxes[:20], BOXES.double().numpy())
    np.testing.assert_array_equal(scene.truth.boxes % 1, 0)  # whole cells, with no remnant of a rounding


def test_boxes_are_drawn_by_the_habit_of_the_card(chunks: Chunks, found: PartTables) -> None:
    habit = Habit(box="strongest", join_s=0.05)
    card = ModelCard(
        kind="detector",
        architecture=BaselineConfig(name="fcos"),
        front_end=FRONT_END,
        normalisation=Normalisation(mean=-8.0, std=4.0),
        thresholds={"score": 0.5},
        habit=habit,
    )
    model = LoadedModel(TwentyBoxes(), card, device=torch.device("cpu"))
    drawn = detect_chunks(model, chunks, batch_size=3).found
    expected = redraw_events(found.found, habit, FRONT_END, chunks.path_of, threshold=0.5)
    assert boxes_of(drawn).tolist() == boxes_of(expected).tolist()
    assert drawn["score"].tolist() == expected["score"].tolist()
    assert boxes_of(drawn).tolist() != boxes_of(found.found).tolist()


def test_the_threshold_is_a_steady_one_and_f1_is_what_it_gives(found: PartTables) -> None:
    """Eight calls are found with the highest scores; down to the first false alarm every threshold is as good."""
    truth = found.found[found.found["score"] > 0.6]
    part = replace(found, truth=truth)
    metrics = chunk_metrics(part)
    steady = steady_threshold_of(part.match())
    assert steady.value < best_threshold_of(part.match()).value
    assert (metrics["threshold"], metrics["f1"]) == pytest.approx((steady.value, steady.f1))
