from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor
from toy_recipe import FRONT_END

from mast.data import load_dataset
from mast.models.decode import Detections
from mast.selftrain.pseudo import (
    CELLS,
    boxes_in_a_row,
    is_valid,
    labels_by_chunk,
    max_row_length,
    pseudo_label,
    save_events,
    smallest_box,
    sure_pseudo_labels,
)
from mast.selftrain.rounds import _with_validity
from mast.training.chosen_chunks import labelled_chunks
from mast.training.recipe import Recipe, SelfTrainRecipe, load_recipe


def test_validity() -> None:
    boxes = torch.tensor(
        [
            [100.0, 10, 130, 20],  # fine
            [100.0, 10, 109, 20],  # too short
            [100.0, 10, 130, 11],  # too low
            [0.0, 10, 16, 20],  # a remnant at the start
            [240.0, 10, 256, 20],  # a remnant at the end
            [0.0, 10, 40, 20],  # cut by the edge, but most of it is here
        ]
    )
    found = is_valid(boxes, chunk_frames=256, min_frames=10, min_bins=2, border_frames=16)
    assert found.tolist() == [True, False, False, False, False, True]
    assert is_valid(torch.zeros(0, 4), chunk_frames=256, min_frames=1, min_bins=1, border_frames=0).shape == (
        0,
    )


def test_a_pseudo_box_may_be_as_small_as_the_experts() -> None:
    frames = torch.arange(1.0, 101.0)
    boxes = torch.stack([torch.zeros(100), torch.zeros(100), frames, 2 * frames], dim=1)
    assert smallest_box([boxes[:40], torch.zeros(0, 4), boxes[40:]]) == pytest.approx((1.99, 3.98))
    assert smallest_box([torch.zeros(0, 4)]) == (1.0, 1.0)


def test_the_experts_boxes_decide_what_the_recipe_leaves_open(tones: Path) -> None:
    learn = labelled_chunks(load_dataset(tones), FRONT_END)["train"]
    frames, bins = smallest_box(learn.boxes)
    open_ = _with_validity(Recipe(), learn).selftrain
    assert (open_.min_frames, open_.min_bins) == (frames, bins)
    assert open_.most_in_a_row == max_row_length(learn.boxes)
    given = Recipe(selftrain=SelfTrainRecipe(min_frames=7, min_bins=0, most_in_a_row=9))
    assert _with_validity(given, learn).selftrain == given.selftrain


class Finds:
    """A detector that finds the same boxes in every chunk, by default three, the first of them valid."""

    front_end = FRONT_END

    def __init__(self, boxes: Tensor | None = None) -> None:
        few = torch.tensor([[100.0, 10, 130, 20], [100.0, 10, 103, 20], [0.0, 10, 5, 20]])
        self.boxes = few if boxes is None else boxes
        self.asked: list[dict[str, float]] = []

    def detect(self, sound: torch.Tensor, **options: float) -> list[Detections]:
        self.asked.append(options)
        return [Detections(self.boxes, 0.9 - 0.1 * torch.arange(len(self.boxes)))] * len(sound)


def test_pseudo_labels_are_valid_boxes_in_the_seconds_of_their_recording(tones: Path) -> None:
    chunks = labelled_chunks(load_dataset(tones), FRONT_END)["val"]
    recipe = SelfTrainRecipe(min_frames=10, min_bins=2, border_frames=16, nms_iou=0.4)
    model = Finds()
    events = pseudo_label(model, chunks, recipe, threshold=0.3, source="pseudo-1")  # type: ignore[arg-type]
    assert {(some["score_threshold"], some["nms_iou"]) for some in model.asked} == {(0.3, 0.4)}
    assert events["chunk"].tolist() == list(
        range(len(chunks))
    )  # the first box of each, the others are not valid
    assert events["score"].tolist() == pytest.approx([0.9] * len(chunks))
    starts = chunks.table["start_s"].to_numpy(dtype=float)
    assert starts.max() > 0
    assert events["recording"].tolist() == chunks.table["recording"].tolist()
    assert events["start_s"].to_numpy() == pytest.approx(starts + 100 * FRONT_END.hop_s)
    assert events["end_s"].to_numpy() == pytest.approx(starts + 130 * FRONT_END.hop_s)
    assert events[CELLS].to_numpy().tolist() == [[100, 10, 130, 20]] * len(chunks)
    assert set(events["source"]) == {"pseudo-1"}
    assert set(events["threshold"]) == {0.3}


def table() -> pd.DataFrame:
    return pd.DataFrame(
        {"chunk": [2, 0, 2], "score": [0.2, 0.9, 0.6], "t1": [1.0, 2, 3], "f1": 0.0, "t2": 50.0, "f2": 9.0}
    ).assign(sure=True)


def test_weight_is_the_mean_confidence_of_the_chunk() -> None:
    boxes, sure, weights = labels_by_chunk(table(), 4, SelfTrainRecipe(empty_weight=0.05))
    assert [own.tolist() for own in sure] == [[True], [], [True, True], []]
    assert weights == pytest.approx([0.9, 0.05, 0.4, 0.05])
    assert [len(b) for b in boxes] == [1, 0, 2, 0]
    assert np.array_equal(boxes[2], [[1, 0, 50, 9], [3, 0, 50, 9]])
    assert labels_by_chunk(table().iloc[:0], 2, SelfTrainRecipe()).weights == [0.1, 0.1]
    plain = labels_by_chunk(table(), 3, SelfTrainRecipe(confidence_weighting=False, empty_weight=1.0))
    assert plain.weights == [1.0, 1.0, 1.0]


def test_doubtful_boxes_have_no_say_in_the_weight() -> None:
    doubtful = table().assign(sure=[False, False, True])
    boxes, sure, weights = labels_by_chunk(doubtful, 3, SelfTrainRecipe(empty_weight=0.05))
    assert weights == pytest.approx([0.05, 0.05, 0.6])
    assert [len(own) for own in boxes] == [1, 0, 2]
    assert [own.tolist() for own in sure] == [[False], [], [False, True]]


def test_doubtful_boxes_are_kept_apart_from_pseudo_labels(tones: Path, tmp_path: Path) -> None:
    chunks = labelled_chunks(load_dataset(tones), FRONT_END)["val"]
    recipe = SelfTrainRecipe(min_frames=10, min_bins=2, border_frames=16, doubtful=0.25)
    model = Finds()
    events = pseudo_label(model, chunks, recipe, threshold=0.3, source="pseudo-1")  # type: ignore[arg-type]
    assert {some["score_threshold"] for some in model.asked} == {0.25}
    assert events["sure"].tolist() == [True, False, False] * len(chunks)  # the others are not valid
    higher = pseudo_label(model, chunks, recipe, threshold=0.95, source="pseudo-1")  # type: ignore[arg-type]
    assert not higher["sure"].any()
    save_events(events, tmp_path / "pseudo.parquet")
    found = sure_pseudo_labels(tmp_path / "pseudo.parquet")
    assert found["score"].tolist() == pytest.approx([0.9] * len(chunks))


def in_a_row(n: int, *, every: float, f1: float = 40.0) -> Tensor:
    """So many boxes of 10 frames and 20 bins."""
    start = torch.arange(n) * every
    return torch.stack([start, torch.full((n,), f1), start + 10, torch.full((n,), f1 + 20)], dim=1)


def test_boxes_in_a_row() -> None:
    close, apart = in_a_row(5, every=30), in_a_row(3, every=31, f1=80)  # 20 and 21 frames between them
    above = in_a_row(2, every=30, f1=46)  # shares 14 of 26 bins with the first, less than 0.6
    boxes = torch.cat([close, apart, above]).double().numpy()
    assert boxes_in_a_row(boxes).tolist() == [5] * 5 + [1] * 3 + [2] * 2
    assert boxes_in_a_row(boxes[:0]).tolist() == []


def test_the_expert_says_how_many_boxes_may_stand_in_a_row() -> None:
    alone = [in_a_row(1, every=0)] * 188
    assert max_row_length(alone) == max_row_length([torch.zeros(0, 4)]) == max_row_length([]) == 3
    assert max_row_length([*alone, in_a_row(6, every=30), in_a_row(6, every=30)]) == 6
    assert max_row_length([*alone, *alone, *alone, in_a_row(6, every=30)]) == 3  # 1 box in 100


@pytest.mark.parametrize(("doubtful", "sure"), [(0.25, [True] * 3 + [False] * 4), (None, [True] * 7)])
def test_notes_of_a_song_are_doubtful(tones: Path, doubtful: float | None, sure: list[bool]) -> None:
    chunks = labelled_chunks(load_dataset(tones), FRONT_END)["val"]
    boxes = torch.cat([in_a_row(3, every=30, f1=5), in_a_row(4, every=30)]) + torch.tensor([50, 0, 50, 0])
    recipe = SelfTrainRecipe(min_frames=5, min_bins=2, border_frames=0, doubtful=doubtful, most_in_a_row=3)
    events = pseudo_label(Finds(boxes), chunks, recipe, threshold=0.1, source="pseudo-1")  # type: ignore[arg-type]
    assert events["sure"].tolist() == sure * len(chunks)


def test_paper_is_the_table() -> None:
    s = load_recipe("paper").selftrain
    one, two = s.stage1, s.stage2
    assert (s.threshold, one.epochs, two.epochs, one.lr, two.lr) == (0.10, 80, 40, 1e-4, 5e-5)
    assert (one.warmup_epochs, two.warmup_epochs) == (8, 4)
    assert (one.backbone_lr_multiplier, two.backbone_lr_multiplier) == (0.1, 0.02)
    assert one.unfreezing is not None
    assert two.unfreezing is not None
    schedule = [
        (u.warmup_epochs, u.interval_epochs, u.blocks_per_stage, u.lr_multiplier)
        for u in (one.unfreezing, two.unfreezing)
    ]
    assert schedule == [(20, 10, 3, 0.005), (3, 6, 6, 0.05)]
    assert one.augmentation is not None
    assert two.augmentation is not None
    assert (one.augmentation.probability, two.augmentation.probability) == (0.9, 0.8)
    weights = [load_recipe("paper").detector_for(stage).contrastive_weight for stage in (one, two)]
    assert weights == [0.3, 0.2]


def test_switched_off_stays_off() -> None:
    recipe = load_recipe("tiny", {"train.detector.contrastive_weight": 0})
    assert recipe.detector_for(recipe.selftrain.stage1).contrastive_weight == 0
