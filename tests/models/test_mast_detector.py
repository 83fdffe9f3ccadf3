import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from mast.errors import ConfigError
from mast.events import match_boxes, pairwise_iou
from mast.models.architecture import AdapterName, DetectorConfig, EncoderConfig, Size
from mast.models.assign import assign_atss
from mast.models.boxes import iou, pad_boxes
from mast.models.losses import (
    centreness_loss,
    centreness_target,
    corner_loss,
    focal_loss,
    giou_loss,
    quality_focal_loss,
)
from mast.models.mast_detector import MastDetector

ENCODER = EncoderConfig(chunk_frames=128, n_bins=64, width=48, depth=2, heads=2)
CONFIG = DetectorConfig(encoder=ENCODER, channels=32, levels=3, head_convs=1)
CHUNK = (128, 64)
TERMS = {"loss", "classification", "corners", "giou", "centreness", "contrastive", "positives_per_image"}


def detector(**fields: object) -> MastDetector:
    torch.manual_seed(0)
    return MastDetector(CONFIG.model_copy(update=fields))


def bright_boxes(n: int, seed: int) -> tuple[Tensor, list[Tensor]]:
    """Noise with bright rectangles, one to three a chunk, the second of each chunk only two bins high."""
    rng = np.random.default_rng(seed)
    spectrograms, boxes = rng.normal(0, 0.3, size=(n, 1, *CHUNK)), []
    for i in range(n):
        rows = []
        for k in range(1 + i % 3):  # each in its own third of the time axis
            start = 42 * k + int(rng.integers(0, 12))
            length, height = int(rng.integers(14, 28)), 2 if k == 1 else int(rng.integers(8, 30))
            low = int(rng.integers(0, CHUNK[1] - height))
            rows.append((start, low, start + length, low + height))
            spectrograms[i, 0, start : start + length, low : low + height] += 2.0
        boxes.append(torch.tensor(rows, dtype=torch.float32))
    return torch.tensor(spectrograms, dtype=torch.float32), boxes


@pytest.mark.parametrize("size", ["tiny", "small", "base"])
def test_shapes_at_every_size(size: Size) -> None:
    with torch.device("meta"):
        model = MastDetector(DetectorConfig.named(size))
        out = model(torch.zeros(2, 1, 1024, 128))
    channels = model.config.channels
    assert out.logits.shape == out.centreness.shape == (2, 5440)
    assert out.boxes.shape == (2, 5440, 4)
    assert out.levels[0].shape == (2, channels, 128, 32)


def test_base_is_the_paper_with_most_capacity_in_the_encoder() -> None:
    assert DetectorConfig.named("base") == DetectorConfig()
    with torch.device("meta"):
        model = MastDetector(DetectorConfig())
    n = {name: sum(p.numel() for p in child.parameters()) for name, child in model.named_children()}
    assert n["encoder"] / sum(n.values()) > 0.85  # App. "Adapter Designs"


@pytest.mark.parametrize("adapter", ["upsampling", "anisotropic", "conv", "none"])
@pytest.mark.parametrize("levels", [3, 4])
def test_points_match_the_maps(adapter: AdapterName, levels: int) -> None:
    model = detector(adapter=adapter, levels=levels)
    out = model(torch.randn(1, 1, *CHUNK))
    assert out.logits.shape[1] == len(model.points.centres) == sum(model.points.counts)
    (t, f), (s_t, s_f) = out.levels[0].shape[2:], model.config.strides
    assert (t * s_t, f * s_f) == CHUNK


@pytest.mark.parametrize("assigner", ["atss", "centre"])
@pytest.mark.parametrize("classification_loss", ["quality_focal", "focal"])
@pytest.mark.parametrize(
    "boxes",
    [
        [],
        [(10, 10, 40, 30)],
        [(0, 0, 128, 64)],
        [(50, 33, 51, 34)],
        [(50, 33, 51, 34), (0, 0, 128, 64), (9, 2, 80, 4)],
    ],
)
def test_loss_is_defined_for_any_boxes(
    assigner: str, classification_loss: str, boxes: list[tuple[int, ...]]
) -> None:
    model = detector(assigner=assigner, classification_loss=classification_loss)
    truth = torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4)
    terms = model.loss(torch.randn(2, 1, *CHUNK), [truth, torch.zeros(0, 4)])
    assert set(terms) == TERMS
    terms["loss"].backward()
    assert all(t.isfinite() for t in terms.values())
    # every parameter is part of the graph, boxes or not
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    if boxes:
        assert terms["positives_per_image"] >= len(boxes) / 2
        assert terms["giou"] > 0
    else:
        assert [terms[k].item() for k in ("corners", "giou", "centreness", "contrastive")] == [0, 0, 0, 0]


@pytest.mark.parametrize("classification_loss", ["quality_focal", "focal"])
def test_terms_against_a_loop_over_points(classification_loss: str) -> None:
    model = detector(classification_loss=classification_loss, contrastive_weight=0.0)
    spectrograms, boxes = bright_boxes(3, 0)
    weights = [0.5, 1.0, 2.0]
    terms = model.loss(spectrograms, boxes, weights=torch.tensor(weights))
    assert "contrastive" not in terms
    output = model(spectrograms)

    owner = assign_atss(model.points, pad_boxes(boxes))
    expected = dict.fromkeys(("classification", "corners", "giou", "centreness"), 0.0)
    qualities, positives = [], 0
    for image, weight in enumerate(weights):
        for r, m in enumerate(owner[image].tolist()):
            logit, found = output.logits[image, r], output.boxes[image, r]
            quality = torch.tensor(0.0)
            if m >= 0:
                true = boxes[image][m]
                quality = torch.tensor(pairwise_iou([found.tolist()], [true.tolist()])[0, 0]).float()
                centre = centreness_target(model.point_centres[r], model.point_strides[r], true)
                expected["corners"] += weight * corner_loss(found, true, model.point_anchors[r]).item()
                expected["giou"] += weight * giou_loss(found, true).item()
                expected["centreness"] += weight * centreness_loss(output.centreness[image, r], centre).item()
                qualities.append(float(quality))
                positives += 1
            one = (
                focal_loss(logit, torch.tensor(m >= 0))
                if classification_loss == "focal"
                else quality_focal_loss(logit, quality)
            )
            expected["classification"] += weight * one.item()
    assert positives not in (
        1,
        3,
        len(boxes[0]) + len(boxes[1]) + len(boxes[2]),
    )  # no other count passes for it
    assert 0 < np.mean(qualities) < 0.9  # a target of 1 would give another loss
    for name, value in expected.items():
        assert terms[name].item() == pytest.approx(value / positives, rel=1e-3), name
    assert terms["positives_per_image"].item() == pytest.approx(positives / 3)
    total = terms["classification"] + terms["corners"] + 2 * terms["giou"] + terms["centreness"]
    torch.testing.assert_close(terms["loss"], total)


def test_a_doubtful_box_is_neither_call_nor_background() -> None:
    model = detector(contrastive_weight=0.0)
    spectrograms, boxes = bright_boxes(3, 0)
    last = [own[-1:] for own in boxes]
    sure = [own[:-1] for own in boxes]
    output = model(spectrograms)
    owner = assign_atss(model.points, pad_boxes(boxes))
    lengths = torch.tensor([len(own) for own in sure])[:, None]
    positive, doubtful = (owner >= 0) & (owner < lengths), owner >= lengths
    assert positive.any()
    assert doubtful.any()
    true = torch.stack([own[of.clamp(min=0)] for own, of in zip(boxes, owner, strict=True)])
    quality = torch.stack([iou(found, of) for found, of in zip(output.boxes.detach(), true, strict=True)]) * (
        positive
    )
    each = quality_focal_loss(output.logits, quality)
    terms = model.loss(spectrograms, sure, doubtful=last)
    torch.testing.assert_close(terms["classification"], each[~doubtful].sum() / positive.sum())
    torch.testing.assert_close(terms["giou"], giou_loss(output.boxes, true)[positive].sum() / positive.sum())
    assert terms["positives_per_image"].item() == pytest.approx(positive.sum().item() / 3)
    left_out = model.loss(spectrograms, sure)
    assert terms["classification"] < left_out["classification"]  # there it is background


@pytest.mark.parametrize("second_look", [False, True])
def test_nothing_is_learnt_from_doubtful_boxes_alone(second_look: bool) -> None:
    model = detector(second_look=second_look)
    spectrograms, boxes = bright_boxes(2, 0)
    nothing = [torch.zeros(0, 4)] * 2
    terms = model.loss(spectrograms, nothing, doubtful=boxes, generator=torch.Generator().manual_seed(0))
    empty = {"corners", "giou", "centreness", "contrastive"} | ({"correction"} if second_look else set())
    assert {name: terms[name].item() for name in empty} == dict.fromkeys(empty, 0.0)
    assert torch.isfinite(terms["loss"])


def test_classification_moves_no_box() -> None:
    """How well a box fits is what the score has to learn, not a reason to move the box."""
    model = detector()
    terms = model.loss(*bright_boxes(2, 0), generator=torch.Generator().manual_seed(0))
    terms["classification"].backward()
    assert model.head.classify.weight.grad is not None
    assert model.head.regress.weight.grad is None


def test_the_default_loss_is_all_terms_by_their_weights() -> None:
    assert CONFIG.classification_loss == "quality_focal"
    model = detector(
        classification_weight=1.5,
        corner_weight=0.7,
        giou_weight=2.3,
        centreness_weight=0.3,
        contrastive_weight=0.9,
    )
    terms = model.loss(*bright_boxes(3, 0), generator=torch.Generator().manual_seed(0))
    total = (
        1.5 * terms["classification"]
        + 0.7 * terms["corners"]
        + 2.3 * terms["giou"]
        + 0.3 * terms["centreness"]
        + 0.9 * terms["contrastive"]
    )
    assert terms["contrastive"] > 0
    torch.testing.assert_close(terms["loss"], total)


def test_weights_touch_the_detection_loss_only() -> None:
    model = detector()
    spectrograms, boxes = bright_boxes(2, 1)

    def loss(*weights: float) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(0)
        given = torch.tensor(weights) if weights else None
        return model.loss(spectrograms, boxes, weights=given, generator=generator)

    whole, ones, half, first, second = loss(), loss(1, 1), loss(0.5, 0.5), loss(1, 0), loss(0, 1)
    for name in ("classification", "corners", "giou", "centreness"):
        torch.testing.assert_close(ones[name], whole[name])
        torch.testing.assert_close(half[name], whole[name] / 2)
        torch.testing.assert_close(first[name] + second[name], whole[name])
    torch.testing.assert_close(half["contrastive"], whole["contrastive"])


def test_two_processes_make_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses of halves, with counts averaged over processes, average to the loss of the whole."""
    model = detector(contrastive_weight=0.0)
    spectrograms, boxes = bright_boxes(4, 7)
    boxes[0] = torch.zeros(0, 4)
    whole = model.loss(spectrograms, boxes)
    mean = whole["positives_per_image"] * 2  # of the two halves
    monkeypatch.setattr("mast.models.mast_detector.mean_over_processes", lambda count: mean)
    halves = [model.loss(spectrograms[i : i + 2], boxes[i : i + 2]) for i in (0, 2)]
    for name in ("loss", "classification", "corners", "giou", "centreness", "positives_per_image"):
        torch.testing.assert_close((halves[0][name] + halves[1][name]) / 2, whole[name])


def test_ablations_are_one_field_each() -> None:
    without = detector(contrastive_weight=0.0)
    assert not any(name.startswith("projection") for name, _ in without.named_parameters())
    assert sum(p.numel() for p in detector(adapter="none").adapter.parameters()) == 48 * 32 + 32


def test_a_seed_gives_a_loss() -> None:
    model = detector()
    spectrograms, boxes = bright_boxes(2, 2)
    a, b, c = (
        model.loss(spectrograms, boxes, generator=torch.Generator().manual_seed(s))["loss"] for s in (0, 0, 1)
    )
    assert a == b != c


@pytest.mark.usefixtures("bfloat16_anywhere")
def test_losses_stay_in_float32_under_autocast() -> None:
    model = detector()
    spectrograms, boxes = bright_boxes(2, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        terms = model.loss(spectrograms, boxes)
        assert model(spectrograms).boxes.dtype == torch.float32
    assert all(t.dtype == torch.float32 for t in terms.values())
    terms["loss"].backward()
    assert terms["loss"].isfinite()


def test_centreness_lowers_the_score_or_not() -> None:
    spectrograms, _ = bright_boxes(1, 6)
    with_it, without = detector(), detector(centreness_in_score=False)
    output = with_it(spectrograms)
    torch.testing.assert_close(with_it.scores(output), output.logits.sigmoid() * output.centreness.sigmoid())
    torch.testing.assert_close(without.scores(output), output.logits.sigmoid())


def test_embed_pools_the_encoder() -> None:
    model = detector().eval()
    spectrograms, _ = bright_boxes(2, 4)
    boxes = [torch.tensor([[0.0, 0.0, 128.0, 64.0], [32.0, 16.0, 48.0, 32.0]]), torch.zeros(0, 4)]
    first, second = model.embed(spectrograms, boxes)
    width = model.embedding_width
    assert first.shape == (2, width)
    assert second.shape == (0, width)
    tokens = model.encoder.feature_map(spectrograms[:1])[0]
    # a box of exactly one patch: mostly that patch's token, blended with its neighbours by RoIAlign
    similarity = torch.cosine_similarity(first[1:, :48, None, None], tokens[None], dim=1)[0]  # (8, 4)
    assert divmod(int(similarity.argmax()), 4) == (2, 1)


def test_selecting_and_embedding_need_one_pass() -> None:
    model = detector().eval()
    spectrograms, _ = bright_boxes(3, seed=4)
    passes = 0

    def count(*_: object) -> None:
        nonlocal passes
        passes += 1

    hook = model.encoder.norm.register_forward_hook(count)
    with torch.inference_mode():
        output = model(spectrograms)
    found = model.select(output, score_threshold=0.0, max_boxes=20)
    embeddings = model.vectors(output.tokens, spectrograms, [some.boxes for some in found])
    hook.remove()
    assert passes == 1
    for some, expected in zip(
        found, model.detect(spectrograms, score_threshold=0.0, max_boxes=20), strict=True
    ):
        assert torch.equal(some.boxes, expected.boxes)
        assert torch.equal(some.scores, expected.scores)
    again = model.embed(spectrograms, [some.boxes for some in found])
    for rows, expected_rows in zip(embeddings, again, strict=True):
        assert rows.shape == (20, model.embedding_width)
        torch.testing.assert_close(rows, expected_rows)
    nothing = model.select(output, score_threshold=1.0)
    none = model.vectors(output.tokens, spectrograms, [some.boxes for some in nothing])
    assert [len(some.boxes) for some in nothing] == [0, 0, 0]
    assert [rows.shape for rows in none] == [(0, model.embedding_width)] * 3


def test_wrong_number_of_box_lists() -> None:
    with pytest.raises(ConfigError, match="1 lists of boxes given for 2 chunks"):
        detector().loss(torch.zeros(2, 1, *CHUNK), [torch.zeros(0, 4)])


@pytest.mark.parametrize(
    "fields", [{"adaptor": "conv"}, {"adapter": "bilinear"}, {"channels": 100}, {"levels": 1}]
)
def test_unknown_fields_and_values_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        DetectorConfig.model_validate(fields)


def average_precision(truths: list[Tensor], detections: list[tuple[Tensor, Tensor]]) -> float:
    """Area under the precision–recall curve at IoU 0.5, pooled over chunks."""
    rows = []
    for truth, (boxes, scores) in zip(truths, detections, strict=True):
        hits = set(match_boxes(truth.numpy(), boxes.numpy(), scores.numpy()).prediction.tolist())
        rows += [(float(score), r in hits) for r, score in enumerate(scores)]
    rows.sort(reverse=True)
    hits = np.cumsum([hit for _, hit in rows])
    precision = hits / np.arange(1, len(hits) + 1)
    return float(precision[[hit for _, hit in rows]].sum() / sum(len(t) for t in truths))


def test_learns_four_chunks_by_heart() -> None:
    model = detector()
    spectrograms, boxes = bright_boxes(4, 5)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, total_iters=130)
    generator = torch.Generator().manual_seed(0)
    for _ in range(130):
        loss = model.loss(spectrograms, boxes, generator=generator)["loss"]
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    detections = model.detect(spectrograms)
    assert average_precision(boxes, detections) >= 0.95  # 1 with other seeds from step 100 on
    for truth, (found, scores) in zip(boxes, detections, strict=True):
        assert (scores[: len(truth)] > 0.2).all()  # 0.35 with other seeds
        assert (found >= 0).all()
        assert (found <= torch.tensor([*CHUNK, *CHUNK])).all()
