"""Labelling at several playing speeds: the sound itself, which boxes are judged, and what comes of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from untrained_detector import gain_recipe, save_untrained

from mast.inference.speed_passes import SPEEDS
from mast.loaded_model import LoadedModel
from mast.models.decode import Detections
from mast.models.find import find_model
from mast.selftrain.committee import Committee
from mast.selftrain.labelling import load_labeller
from mast.selftrain.thorough import ThoroughModel, best_boxes, resample, windows_of
from mast.training.machine import prepare_machine

FRONT_END = gain_recipe().front_end


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return LoadedModel.load(save_untrained(tmp_path_factory.mktemp("model") / "best"), device="cpu")


@pytest.mark.parametrize("share", [0.88, 1.0, 1.13])
def test_a_tone_played_at_another_rate_is_the_same_tone(share: float) -> None:
    rate, n = 1_000, 4_000
    others = round(n * share)
    tone = torch.sin(2 * torch.pi * 100 * torch.arange(n) / rate)[None]
    expected = torch.sin(2 * torch.pi * 100 * torch.arange(others) / (rate * share))[None]
    played = resample(tone, others)
    assert played.shape == (1, others)
    torch.testing.assert_close(played, expected, atol=1e-3, rtol=0)


@pytest.mark.parametrize("speed", SPEEDS)
def test_windows_reach_over_the_whole_chunk_and_every_middle_is_judged_once(speed: float) -> None:
    front_end = FRONT_END.at_band(FRONT_END.high_hz * speed)
    samples = round(FRONT_END.chunk_samples * front_end.sample_rate / FRONT_END.sample_rate)
    windows = windows_of(samples, front_end)
    reached = np.zeros(samples, dtype=bool)
    for window in windows:
        reached[window.start : window.start + front_end.chunk_samples] = True
    assert reached.all()
    for middle in np.linspace(0, samples / front_end.hop_samples - 1e-6, 50):
        assert sum(low <= middle < high for _, (low, high) in windows) == 1
    # what lies in the padding behind a short chunk is not judged
    if samples < front_end.chunk_samples:
        assert windows[0].judged[1] == samples / front_end.hop_samples


class Ear:
    """Stands for a detector: finds one box wherever sound begins in a window, with the score of its loudness."""

    def __init__(self, model: LoadedModel) -> None:
        self.card, self.front_end, self.device = model.card, model.front_end, model.device
        self.folder = Path("ear")
        self.heard: list[int] = []

    def detect(
        self, sound: torch.Tensor, *, score_threshold: float, nms_iou: float | None
    ) -> list[Detections]:
        self.heard.append(sound.shape[1])
        found = []
        for one in sound:
            loud = torch.nonzero(one.abs() > 0.1)[:, 0].double() / self.front_end.hop_samples
            boxes = torch.tensor([[loud.min(), 10.0, loud.max(), 20.0]]) if len(loud) else torch.zeros(0, 4)
            found.append(Detections(boxes, torch.full((len(boxes),), 0.6)))
        return found


def test_a_call_is_at_the_same_place_whatever_the_speed(model: LoadedModel) -> None:
    hop = FRONT_END.hop_samples
    sound = torch.zeros(3, FRONT_END.chunk_samples)
    places = [
        (5, 25),
        (FRONT_END.chunk_frames - 40, FRONT_END.chunk_frames - 10),
    ]  # the third chunk is silent
    for one, (first, last) in zip(sound, places, strict=False):
        n = (last - first) * hop
        one[first * hop : last * hop] = torch.sin(torch.arange(n) * 0.5)
    ear = Ear(model)
    found = ThoroughModel(ear).detect(sound, score_threshold=0.3, nms_iou=0.5)  # type: ignore[arg-type]
    assert set(ear.heard) == {FRONT_END.chunk_samples}  # always as long as the model's chunks
    assert [len(boxes) for boxes, _ in found] == [1, 1, 0]
    for (boxes, scores), (first, last) in zip(found, places, strict=False):
        np.testing.assert_allclose(boxes[0, [0, 2]], [first, last], atol=1.0)
        assert scores[0] > 0.6  # all speeds agree, and the mean is no longer too low


def test_boxes_are_in_the_chunk_best_first_and_apart(model: LoadedModel) -> None:
    sound = torch.randn(2, FRONT_END.chunk_samples, generator=torch.Generator().manual_seed(0))
    for boxes, scores in ThoroughModel(model).detect(sound, score_threshold=0.2, nms_iou=0.5):
        assert len(boxes) > 3
        assert (scores.diff() <= 0).all()
        assert scores.min() >= 0.2
        limits = torch.tensor([FRONT_END.chunk_frames, FRONT_END.n_bins] * 2)
        assert (boxes >= -1e-4).all()
        assert (boxes <= limits + 1e-4).all()


def test_fused_boxes_are_as_far_apart_as_a_detectors_own(model: LoadedModel) -> None:
    boxes = np.array([[0.0, 0, 10, 10], [0, 0, 10, 9], [20, 0, 30, 10], [21, 1, 24, 4]])
    scores = np.array([0.5, 0.7, 0.2, 0.4])

    def kept(nested: float = 1.0, min_score: float = 0.1, nms_iou: float | None = None) -> list[float]:
        architecture = model.card.architecture.model_copy(update={"nested": nested})
        card = model.card.model_copy(update={"architecture": architecture})
        return best_boxes(boxes, scores, card, min_score=min_score, nms_iou=nms_iou).scores.tolist()

    assert kept() == [0.7, 0.4, 0.2]
    assert kept(nested=0.8) == [0.7, 0.4]
    assert kept(min_score=0.3) == [0.7, 0.4]
    assert kept(nms_iou=0.95) == [0.7, 0.5, 0.4, 0.2]


def test_the_recipe_says_who_labels(tmp_path: Path) -> None:
    own, teacher = (save_untrained(tmp_path / name, seed=k) for k, name in enumerate(("own", "teacher")))
    plain, thorough = gain_recipe(), gain_recipe(selftrain__thorough=True)
    machine = prepare_machine(plain)
    assert isinstance(load_labeller(own, [], plain, machine), LoadedModel)
    assert isinstance(load_labeller(own, [], thorough, machine), ThoroughModel)
    both = load_labeller(own, [teacher], thorough, machine)
    assert isinstance(both, Committee)
    assert all(isinstance(member, ThoroughModel) for member in both.members)
    assert [member.folder for member in both.members] == [find_model(own), find_model(teacher)]
