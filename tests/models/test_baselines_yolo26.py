import builtins
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mast.errors import ConfigError, MastError
from mast.models.baselines.config import BaselineConfig, YoloOptions
from mast.models.baselines.yolo26 import YoloDetector, _quiet_import
from mast.models.boxes import iou

CHUNK = (128, 32)
SMALL = {"scale": "n", "frequency_stretch": 2}
TRUTH = torch.tensor([[40.0, 10.0, 70.0, 20.0]])
TERMS = {"loss", "boxes", "classification", "corners"}


def config(*, chunk: tuple[int, int] = CHUNK, **options: object) -> BaselineConfig:
    return BaselineConfig(name="yolo26", chunk_frames=chunk[0], n_bins=chunk[1], options={**SMALL, **options})


def build(**options: object) -> YoloDetector:
    torch.manual_seed(0)
    return YoloDetector(config(**options))


@pytest.fixture(scope="module")
def untrained() -> YoloDetector:
    return build().eval()


@pytest.fixture(scope="module")
def learning() -> YoloDetector:
    return build()


@pytest.fixture(scope="module")
def chunk() -> Tensor:
    spectrogram = torch.randn(1, 1, *CHUNK, generator=torch.Generator().manual_seed(0)) * 0.3
    spectrogram[0, 0, 40:70, 10:20] += 2.0
    return spectrogram


@pytest.fixture(scope="module")
def overfitted(chunk: Tensor) -> tuple[YoloDetector, list[float]]:
    model, losses = build(), []
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = (
                0.3  # its statistics follow over ~30 steps at ultralytics' 0.03, as long as we train
            )
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
    for _ in range(40):
        terms = model.loss(chunk, [TRUTH])
        losses.append(terms["loss"].item())
        optimiser.zero_grad()
        terms["loss"].backward()
        optimiser.step()
    return model, losses


@pytest.mark.parametrize("end_to_end", [False, True])
def test_one_chunk_is_learnt(
    overfitted: tuple[YoloDetector, list[float]], chunk: Tensor, end_to_end: bool
) -> None:
    model, losses = overfitted
    assert losses[-1] < 0.5 * losses[0]
    other = build(end_to_end=end_to_end)
    other.load_state_dict(model.state_dict())
    (found,) = other.detect(chunk)
    assert other.training  # as it was before
    assert iou(found.boxes[0], TRUTH[0]) > 0.5
    assert found.scores[0] > 0.05  # other seeds end at 0.2–0.9, and begin at 0.01


@pytest.mark.parametrize("end_to_end", [False, True])
def test_boxes_lie_inside_the_chunk_best_first(end_to_end: bool) -> None:
    model = build(end_to_end=end_to_end)
    found = model.detect(torch.randn(2, 1, *CHUNK), score_threshold=0.0, max_boxes=50)
    assert len(found) == 2
    for some in found:
        assert len(some.boxes) == 50  # at the start every point says a box
        assert (some.boxes >= 0).all()
        assert (some.boxes <= torch.tensor([*CHUNK, *CHUNK])).all()
        assert (some.boxes[:, 2:] > some.boxes[:, :2]).all()
        assert (some.scores.diff() <= 0).all()
    assert all(len(some.boxes) == 0 for some in model.detect(torch.randn(2, 1, *CHUNK), score_threshold=0.9))


@pytest.mark.parametrize("end_to_end", [False, True])
def test_boxes_are_those_the_network_decodes(
    overfitted: tuple[YoloDetector, list[float]], chunk: Tensor, end_to_end: bool
) -> None:
    model = build(end_to_end=end_to_end)
    model.load_state_dict(overfitted[0].state_dict())
    (found,) = model.detect(chunk, score_threshold=0.01, nms_iou=1.0)
    head = model.eval().network.model[-1]
    head.xyxy, head.end2end = True, end_to_end
    with torch.no_grad():
        decoded = model.network(model.picture(chunk))[0][0]
    rows = decoded[:, :5] if end_to_end else decoded.T  # (300, 6) corners, score, class; or (5, R)
    rows = rows[rows[:, 4] >= 0.01]
    rows = rows[rows[:, 4].argsort(descending=True)]
    cells = rows[:, :4] / torch.tensor([1, 2, 1, 2])
    inside = cells.clamp(min=0).minimum(torch.tensor([*CHUNK, *CHUNK]))
    torch.testing.assert_close(found.boxes, inside)
    torch.testing.assert_close(found.scores, rows[:, 4])


def test_decoding_by_hand_in_a_chunk_that_needs_padding() -> None:
    """At the start every side is 2 strides from its point, and points lie half a stride into their cell."""
    model = YoloDetector(config(chunk=(100, 30)))  # a picture of 100 × 60, padded to 128 × 64
    for layers in model.network.model[-1].cv2:
        nn.init.zeros_(layers[-1].weight)
    assert model.picture(torch.zeros(1, 1, 100, 30)).shape == (1, 1, 64, 128)
    (found,) = model.detect(torch.zeros(1, 1, 100, 30), score_threshold=0.0, nms_iou=1.0)
    x, y = 8 * 5.5, 8 * 3.5  # the sixth point of the fourth row
    box = torch.tensor([x - 16, (y - 16) / 2, x + 16, (y + 16) / 2])
    assert (found.boxes - box).abs().amax(dim=1).min() < 1e-4


@pytest.mark.parametrize(
    "boxes",
    [
        torch.zeros(0, 4),
        torch.tensor([[50.0, 15.0, 51.0, 16.0]]),
        torch.tensor([[0.0, 0.0, 128.0, 32.0]]),
    ],
    ids=["none", "one cell", "everything"],
)
def test_loss_is_finite_and_teaches(learning: YoloDetector, boxes: Tensor) -> None:
    model = learning
    model.zero_grad()
    terms = model.loss(torch.randn(2, 1, *CHUNK), [torch.zeros(0, 4), boxes])
    assert set(terms) == TERMS
    assert all(torch.isfinite(value) for value in terms.values())
    assert len(boxes) > 0 or terms["boxes"] == 0
    torch.testing.assert_close(terms["loss"], terms["boxes"] + terms["classification"] + terms["corners"])
    terms["loss"].backward()
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in model.parameters())
    stem = model.network.model[0].conv.weight
    assert stem.shape[1] == 1  # one channel
    assert stem.grad is not None
    assert stem.grad.abs().max() > 0


def test_loss_is_ultralytics_own(untrained: YoloDetector) -> None:
    """With boxes as a YOLO text file holds them and the weights of its heads set to one half each, per image."""
    spectrograms = torch.randn(2, 1, *CHUNK)
    boxes = [torch.cat([TRUTH, TRUTH + 12]), torch.tensor([[0.0, 0.0, 128.0, 32.0]])]
    ours = untrained.loss(spectrograms, boxes)
    rows = torch.tensor(
        [
            [55 / 128, 15 / 32, 30 / 128, 10 / 32],
            [67 / 128, 27 / 32, 30 / 128, 10 / 32],
            [0.5, 0.5, 1, 1],
        ]
    )
    batch = {"batch_idx": torch.tensor([0.0, 0.0, 1.0]), "cls": torch.zeros(3), "bboxes": rows}
    criterion = untrained.network.init_criterion()
    criterion.o2m = criterion.o2o = 0.5
    theirs, _ = criterion(untrained.network(untrained.picture(spectrograms)), batch)
    torch.testing.assert_close(ours["loss"], theirs.sum() / 0.5 / 2)


def test_weights_scale_a_chunks_share(untrained: YoloDetector) -> None:
    spectrograms, boxes = torch.randn(2, 1, *CHUNK), [TRUTH, torch.zeros(0, 4)]
    plain = untrained.loss(spectrograms, boxes)
    same = untrained.loss(spectrograms, boxes, weights=torch.ones(2))
    first = untrained.loss(spectrograms, boxes, weights=torch.tensor([1.0, 0.0]))
    second = untrained.loss(spectrograms, boxes, weights=torch.tensor([0.0, 1.0]))
    for name in TERMS:
        torch.testing.assert_close(plain[name], same[name])
        torch.testing.assert_close(plain[name], first[name] + second[name])
    assert second["boxes"] == 0
    assert 0 < second["classification"] < plain["classification"]


def test_state_dict_holds_no_tensor_twice(untrained: YoloDetector) -> None:
    storages = [tensor.data_ptr() for tensor in untrained.state_dict().values()]
    assert len(storages) == len(set(storages))  # safetensors takes no tensor twice


def test_scale_chooses_the_network(untrained: YoloDetector) -> None:
    n, s = (sum(p.numel() for p in model.parameters()) for model in (untrained, build(scale="s")))
    assert 2.4e6 < n < 2.6e6  # 2.57 M and 10.0 M for 80 classes
    assert 9.3e6 < s < 10.1e6
    assert YoloOptions().scale == "x"  # the paper's


def test_mistakes_are_reported(monkeypatch: pytest.MonkeyPatch, untrained: YoloDetector) -> None:
    with pytest.raises(ConfigError, match="1 lists of boxes given for 2 chunks"):
        untrained.loss(torch.zeros(2, 1, *CHUNK), [TRUTH])
    with pytest.raises(ConfigError, match="did you mean 'scale'"):
        build(scales="n")
    with pytest.raises(ConfigError, match="needs end_to_end"):
        build(nms=False)
    there = builtins.__import__

    def missing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.split(".")[0] == "ultralytics":
            raise ModuleNotFoundError("No module named 'ultralytics'")
        return there(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(MastError, match=r"pip install 'mast-audio\[yolo\]'.*AGPL-3.0"):
        build()


def test_what_an_import_changes_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("YOLO_CONFIG_DIR", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    printing, save = np.get_printoptions(), torch.save
    with _quiet_import():
        assert os.path.isdir(os.environ["YOLO_CONFIG_DIR"])
        assert os.environ["YOLO_OFFLINE"] == "1"
        os.environ.update(OMP_NUM_THREADS="1", NEW_VARIABLE_OF_A_LIBRARY="1")
        np.set_printoptions(precision=1)
        torch.save = None
    assert "YOLO_CONFIG_DIR" not in os.environ
    assert "NEW_VARIABLE_OF_A_LIBRARY" not in os.environ
    assert os.environ["OMP_NUM_THREADS"] == "3"
    assert np.get_printoptions() == printing
    assert torch.save is save


@pytest.mark.parametrize("name", ["yolo26n.yaml", "yolo26.yaml"])
def test_the_current_folder_brings_no_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """ultralytics evaluates ``activation``, and asked by name it takes a file in the current folder first."""
    from ultralytics.utils import ROOT

    theirs = (ROOT / "cfg" / "models" / "26" / "yolo26.yaml").read_text(encoding="utf-8")
    code = "activation: \"[__import__('pathlib').Path('ran').touch(), torch.nn.SiLU()][1]\"\n"
    (tmp_path / name).write_text(code + theirs, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    build()
    assert [path.name for path in tmp_path.iterdir()] == [name]
