import builtins
import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torchvision.ops import box_convert

from mast.errors import ConfigError, MastError
from mast.models.baselines.config import BaselineConfig, DetrOptions
from mast.models.baselines.detr import DetrDetector, match_slots, set_loss
from mast.models.baselines.detr_guided import SlotPredictions
from mast.models.baselines.resnet import as_picture
from mast.models.boxes import PaddedBoxes, iou
from mast.models.losses import giou_loss

CHUNK = (128, 32)
SMALL = {
    "backbone": "resnet18",
    "frequency_stretch": 1,
    "output_stride": 16,
    "queries": 6,
    "width": 64,
    "feed_forward": 128,
    "heads": 4,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "groups": 2,
}
VARIANTS = ("guided", "plain")
TRUTH = torch.tensor([[40.0, 10.0, 70.0, 20.0]])
TERMS = {"loss", "classification", "corners", "giou", "auxiliary"}


def config(**options: object) -> BaselineConfig:
    return BaselineConfig(name="detr", chunk_frames=CHUNK[0], n_bins=CHUNK[1], options={**SMALL, **options})


def build(**options: object) -> DetrDetector:
    torch.manual_seed(0)
    return DetrDetector(config(**options))


@pytest.fixture(scope="module", params=VARIANTS)
def untrained(request: pytest.FixtureRequest) -> DetrDetector:
    return build(variant=request.param).eval()


@pytest.fixture(scope="module")
def plain() -> DetrDetector:
    return build(variant="plain").eval()


@pytest.fixture(scope="module", params=VARIANTS)
def learning(request: pytest.FixtureRequest) -> DetrDetector:
    return build(variant=request.param)


@pytest.fixture(scope="module")
def chunk() -> Tensor:
    spectrogram = torch.randn(1, 1, *CHUNK, generator=torch.Generator().manual_seed(0)) * 0.3
    spectrogram[0, 0, 40:70, 10:20] += 2.0
    return spectrogram


@pytest.fixture(scope="module", params=VARIANTS)
def overfitted(request: pytest.FixtureRequest, chunk: Tensor) -> tuple[DetrDetector, list[float]]:
    model, losses = build(variant=request.param, groups=1), []
    optimiser = torch.optim.AdamW(model.parameters(), lr=5e-4, fused=True)
    for step in range(60):
        # slower towards the end, for the running statistics of BatchNorm to catch up
        optimiser.param_groups[0]["lr"] = 5e-4 * (1 - step / 60)
        terms = model.loss(chunk, [TRUTH])
        losses.append(terms["loss"].item())
        optimiser.zero_grad()
        terms["loss"].backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
    return model, losses


def test_one_chunk_is_learnt(overfitted: tuple[DetrDetector, list[float]], chunk: Tensor) -> None:
    model, losses = overfitted
    assert losses[-1] < 0.5 * losses[0]
    assert model.training
    (found,) = model.detect(chunk)
    assert model.training  # as it was before
    assert iou(found.boxes[0], TRUTH[0]) > 0.5
    # other seeds end at 0.97 and 0.31–0.39; guided slots begin at 0.01
    assert found.scores[0] > (0.7 if model.options.variant == "plain" else 0.1)


@pytest.mark.parametrize("threshold", [0.0, 0.3])
def test_boxes_lie_inside_the_chunk_best_first(untrained: DetrDetector, threshold: float) -> None:
    found = untrained.detect(torch.randn(2, 1, *CHUNK), score_threshold=threshold, nms_iou=1.0)
    assert len(found) == 2
    for some in found:
        assert (some.boxes >= 0).all()
        assert (some.boxes <= torch.tensor([*CHUNK, *CHUNK])).all()
        assert (some.boxes[:, 2:] > some.boxes[:, :2]).all()
        assert (some.scores.diff() <= 0).all()
        assert (some.scores >= threshold).all()
    assert threshold > 0 or all(len(some.boxes) == SMALL["queries"] for some in found)


def test_nms_can_be_left_to_the_slots() -> None:
    model = build(variant="plain", nms=False).eval()
    for parameter in model.network.bbox_predictor.parameters():  # all slots say the same box
        nn.init.zeros_(parameter)
    spectrogram = torch.zeros(1, 1, *CHUNK)
    assert len(model.detect(spectrogram, score_threshold=0.0)[0].boxes) == SMALL["queries"]
    model.nms = True
    assert len(model.detect(spectrogram, score_threshold=0.0)[0].boxes) == 1


@pytest.mark.parametrize(
    "boxes",
    [
        torch.zeros(0, 4),
        torch.tensor([[50.0, 15.0, 51.0, 16.0]]),
        torch.tensor([[0.0, 0.0, 128.0, 32.0]]),
        TRUTH.repeat(9, 1),  # more than there are slots
    ],
    ids=["none", "one cell", "everything", "too many"],
)
def test_loss_is_finite_and_teaches_every_layer(learning: DetrDetector, boxes: Tensor) -> None:
    model = learning
    model.zero_grad()
    terms = model.loss(torch.randn(2, 1, *CHUNK), [boxes, torch.zeros(0, 4)])
    assert set(terms) == TERMS
    assert all(torch.isfinite(value) for value in terms.values())
    assert (terms["corners"] == 0) == (len(boxes) == 0)
    terms["loss"].backward()
    # without frozen layers: what transformers freezes is to learn here
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())


def test_weights_scale_a_chunks_share(untrained: DetrDetector) -> None:
    spectrograms, boxes = torch.randn(2, 1, *CHUNK), [TRUTH, torch.zeros(0, 4)]
    plain = untrained.loss(spectrograms, boxes)
    same = untrained.loss(spectrograms, boxes, weights=torch.ones(2))
    first = untrained.loss(spectrograms, boxes, weights=torch.tensor([1.0, 0.0]))
    second = untrained.loss(spectrograms, boxes, weights=torch.tensor([0.0, 1.0]))
    for name in TERMS:
        torch.testing.assert_close(plain[name], same[name])
        torch.testing.assert_close(plain[name], first[name] + second[name])
    assert second["giou"] == 0
    assert 0 < second["classification"] < plain["classification"]


def test_matching_is_the_cheapest_of_all() -> None:
    options = DetrOptions(variant="plain")
    torch.manual_seed(1)
    predictions = SlotPredictions(torch.randn(2, 1, 4), torch.rand(2, 1, 4, 4) * 0.4 + 0.2)
    true = torch.rand(1, 8, 4) * 0.4 + 0.2
    valid = torch.arange(8)[None] < 3
    owner = match_slots(predictions, PaddedBoxes(true, valid), [3], options=options)
    for layer in range(2):
        p, boxes = predictions.logits[layer, 0].sigmoid(), predictions.boxes[layer, 0]

        def cost(slot: int, truth: int, p: Tensor = p, boxes: Tensor = boxes) -> float:
            distance = (boxes[slot] - true[0, truth]).abs().sum()
            overlap = giou_loss(
                box_convert(boxes[slot], "cxcywh", "xyxy"), box_convert(true[0, truth], "cxcywh", "xyxy")
            )
            return float(-p[slot] + 5 * distance + 2 * overlap)

        best = min(itertools.permutations(range(4), 3), key=lambda slots: sum(map(cost, slots, range(3))))
        expected = [-1] * 4
        for truth, slot in enumerate(best):
            expected[slot] = truth
        assert owner[layer, 0].tolist() == expected


def test_set_loss_by_hand() -> None:
    logits = torch.tensor([[[0.0, 2.0]]])  # (1, 1, 2)
    boxes = torch.tensor([[[[0.5, 0.5, 0.2, 0.2], [0.1, 0.1, 0.2, 0.2]]]])
    true = torch.zeros(1, 8, 4)
    true[0, 0] = torch.tensor([0.5, 0.5, 0.2, 0.4])
    truths = PaddedBoxes(true, torch.arange(8)[None] < 1)
    half, full = torch.tensor(0.5), torch.tensor(2.0).sigmoid()  # what the two slots say; the second is wrong
    expected = {
        "plain": (-half.log() - 0.1 * (1 - full).log()) / 1.1,
        "guided": -0.25 * half**2 * half.log() - 0.75 * full**2 * (1 - full).log(),
    }
    for variant, classification in expected.items():
        terms = set_loss(
            SlotPredictions(logits, boxes),
            truths,
            torch.tensor([[[0, -1]]]),
            weights=None,
            options=DetrOptions.model_validate({"variant": variant}),
        )
        torch.testing.assert_close(terms["classification"], classification[None])
        torch.testing.assert_close(terms["corners"], torch.tensor([0.2]))
        torch.testing.assert_close(terms["giou"], torch.tensor([0.5]))  # half of the true box, no gap


def test_each_group_is_matched_on_its_own() -> None:
    options = DetrOptions(queries=2)
    boxes = torch.tensor(
        [[0.2, 0.2, 0.1, 0.1], [0.8, 0.8, 0.1, 0.1], [0.5, 0.5, 0.1, 0.1], [0.7, 0.7, 0.1, 0.1]]
    )
    predictions = SlotPredictions(torch.zeros(1, 1, 4), boxes[None, None])
    truth = PaddedBoxes(boxes[1][None, None], torch.ones(1, 1, dtype=torch.bool))
    assert match_slots(predictions, truth, [1], options=options).tolist() == [[[-1, 0, -1, 0]]]


@pytest.mark.parametrize("variant", VARIANTS)
def test_auxiliary_losses_are_of_the_layers_before_the_last(variant: str) -> None:
    spectrograms, boxes = torch.randn(2, 1, *CHUNK), [TRUTH, TRUTH]
    with_others, alone = (
        build(variant=variant).loss(spectrograms, boxes),
        build(variant=variant, auxiliary_loss=False).loss(spectrograms, boxes),
    )
    assert with_others["auxiliary"] > 0
    assert alone["auxiliary"] == 0
    torch.testing.assert_close(with_others["loss"] - with_others["auxiliary"], alone["loss"])


def test_the_plain_answer_is_the_networks_own(plain: DetrDetector, chunk: Tensor) -> None:
    with torch.no_grad():
        ours = plain(chunk)
        theirs = plain.network(as_picture(chunk, 1))
    torch.testing.assert_close(ours.logits[-1].sigmoid(), theirs.logits.softmax(dim=-1)[..., 0])
    torch.testing.assert_close(ours.boxes[-1], theirs.pred_boxes)


def test_plain_queries_start_as_published(plain: DetrDetector) -> None:
    assert 0.8 < plain.network.model.query_position_embeddings.weight.std() < 1.2


def test_nothing_is_frozen(untrained: DetrDetector) -> None:
    assert not any("Frozen" in type(module).__name__ for module in untrained.modules())
    assert all(parameter.requires_grad for parameter in untrained.parameters())


def test_state_dict_round_trip(overfitted: tuple[DetrDetector, list[float]], chunk: Tensor) -> None:
    model, _ = overfitted
    copy = DetrDetector(model.config)
    copy.load_state_dict(model.state_dict())
    (found,), (again,) = model.detect(chunk), copy.detect(chunk)
    assert torch.equal(found.boxes, again.boxes)
    storages = [tensor.data_ptr() for tensor in model.state_dict().values()]
    assert len(storages) == len(set(storages))  # safetensors takes no tensor twice


@pytest.mark.parametrize("variant", VARIANTS)
def test_full_size_is_resnet50_with_six_layers(variant: str) -> None:
    with torch.device("meta"):
        model = DetrDetector(BaselineConfig(name="detr", options={"variant": variant}))
    n = sum(p.numel() for p in model.parameters())
    assert 40e6 < n < 43e6  # 41 M in the paper
    assert model.chunk == (1024, 128)


def test_mistakes_are_reported(monkeypatch: pytest.MonkeyPatch, plain: DetrDetector) -> None:
    with pytest.raises(ConfigError, match="1 lists of boxes given for 2 chunks"):
        plain.loss(torch.zeros(2, 1, *CHUNK), [TRUTH])
    with pytest.raises(ConfigError, match="did you mean 'queries'"):
        DetrDetector(config(querys=3))
    there = builtins.__import__

    def missing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.split(".")[0] == "transformers":
            raise ModuleNotFoundError("No module named 'transformers'")
        return there(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(MastError, match=r"pip install 'mast-audio\[baselines\]'"):
        build()
