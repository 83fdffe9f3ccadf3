import pytest
import torch
from torch import Tensor

from mast.models.baselines.config import BaselineConfig
from mast.models.baselines.detr import DetrDetector
from mast.models.baselines.detr_guided import (
    attention_bias,
    box_features,
    change_boxes,
    sinusoids,
    spread_boxes,
    token_features,
)

CHUNK = (128, 32)
QUERIES, GROUPS = 6, 2
OPTIONS = {
    "backbone": "resnet18",
    "frequency_stretch": 1,
    "queries": QUERIES,
    "groups": GROUPS,
    "width": 64,
    "feed_forward": 128,
    "heads": 8,
    "encoder_layers": 2,
    "decoder_layers": 2,
}
TRUTH = torch.tensor([[40.0, 10.0, 70.0, 20.0]])


def build() -> DetrDetector:
    torch.manual_seed(0)
    return DetrDetector(BaselineConfig(name="detr", chunk_frames=CHUNK[0], n_bins=CHUNK[1], options=OPTIONS))


@pytest.fixture(scope="module")
def model() -> DetrDetector:
    return build()


@pytest.fixture
def chunks() -> Tensor:
    return torch.randn(2, 1, *CHUNK, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("queries", [1, 4, 100, 300])
def test_start_boxes_are_spread_in_every_group(queries: int) -> None:
    boxes = spread_boxes(queries, 3)
    assert boxes.shape == (3 * queries, 4)
    assert ((boxes > 0) & (boxes < 1)).all()
    for group in boxes.split(queries):
        for half in (group[:, 0] < 0.5, group[:, 1] < 0.5):
            assert abs(half.float().mean() - 0.5) <= max(0.05, 1 / queries)


def test_changes_are_shares_of_the_box() -> None:
    boxes = torch.tensor([0.5, 0.5, 0.2, 0.1])
    assert torch.equal(change_boxes(boxes, torch.zeros(4)), boxes)
    changed = change_boxes(boxes, torch.tensor([0.5, -1.0, 0.0, torch.tensor(2.0).log()]))
    torch.testing.assert_close(changed, torch.tensor([0.6, 0.4, 0.2, 0.2]))
    assert torch.isfinite(change_boxes(boxes, torch.full((4,), 1e3))).all()


def test_a_box_on_a_token_has_its_position() -> None:
    time, frequency, width = 5, 3, 16
    tokens = token_features((time, frequency), width, torch.device("cpu"))
    assert tokens.shape == (time * frequency, width)
    box = torch.tensor([[[2.5 / time, 1.5 / frequency, 0.1, 0.1]]])  # on the third of the second row
    features = box_features(box, (time, frequency), width)
    assert features.shape == (1, 1, 2 * width)
    torch.testing.assert_close(features[0, 0, :width], tokens[time + 2])
    torch.testing.assert_close(sinusoids(torch.tensor(0.0), 4), torch.tensor([0.0, 0.0, 1.0, 1.0]))


def test_heads_look_at_the_parts_of_a_box() -> None:
    time, frequency = 16, 12
    box = torch.tensor(
        [[[8.5 / time, 6.5 / frequency, 8 / time, 6 / frequency]]]
    )  # tokens 4.5–12.5 × 3.5–9.5
    look = attention_bias(box, (time, frequency), 8)
    assert look.shape == (1, 8, 1, time * frequency)
    assert (look <= 0).all()
    best = look[0, :7, 0].argmax(dim=1)
    assert [(int(i) % time, int(i) // time) for i in best] == [
        (8, 6),  # centre
        (4, 6),  # beginning
        (12, 6),  # end
        (8, 3),  # low
        (8, 9),  # high
        (8, 6),
        (8, 6),
    ]
    assert (look[0, 7] == 0).all()  # everywhere
    torch.testing.assert_close(
        look[0, 5, 0, 6 * time + 12], torch.tensor(-0.5)
    )  # one spread off: half a side


def test_a_tiny_box_outside_is_looked_at_all_the_same() -> None:
    weights = attention_bias(torch.tensor([[[0.0, 1.0, 1e-3, 1e-3]]]), (64, 16), 8).softmax(dim=-1)
    assert torch.isfinite(weights).all()


def test_slots_start_as_their_boxes_and_mix_nothing(model: DetrDetector, chunks: Tensor) -> None:
    assert model.guide is not None
    with torch.no_grad():
        found = model.train()(chunks)
        assert found.boxes.shape == (2, 2, GROUPS * QUERIES, 4)
        torch.testing.assert_close(found.boxes[-1, 0], model.guide.start.sigmoid())
        tokens = torch.nn.functional.layer_norm(torch.randn(1, 7, 64), (64,))
        for layer in model.network.model.encoder.layers:
            torch.testing.assert_close(
                layer(tokens, None, spatial_position_embeddings=torch.randn(1, 7, 64)),
                tokens,
                atol=1e-4,
                rtol=1e-4,
            )
        assert found.logits[-1].std(dim=1).min() > 0.01  # slots at different places say different things
        assert found.logits.sigmoid().max() < 0.2


def test_groups_do_not_see_each_other_and_detection_uses_the_first(chunks: Tensor) -> None:
    model = build()
    assert model.guide is not None
    with torch.no_grad():
        for parameter in model.parameters():  # so that slots do mix
            if parameter.dim() == 2:
                parameter.add_(torch.randn_like(parameter) * 0.05)
        before = model.train()(chunks)
        model.guide.start[QUERIES:] += 1
        after = model(chunks)
        assert torch.equal(before.logits[:, :, :QUERIES], after.logits[:, :, :QUERIES])
        assert not torch.equal(before.logits[:, :, QUERIES:], after.logits[:, :, QUERIES:])
        model.guide.start[QUERIES - 1] += 1
        assert not torch.equal(after.logits[:, :, 0], model(chunks).logits[:, :, 0])
        assert model.eval()(chunks).logits.shape == (1, 2, QUERIES)


@pytest.mark.usefixtures("bfloat16_anywhere")
def test_half_precision_keeps_boxes_whole(model: DetrDetector, chunks: Tensor) -> None:
    model.train()
    with torch.autocast("cpu", torch.bfloat16):
        assert model(chunks).boxes.dtype == torch.float32
        terms = model.loss(chunks, [TRUTH, torch.zeros(0, 4)])
    terms["loss"].backward()
    assert all(torch.isfinite(value) for value in terms.values())
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())
