from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torchvision.ops import roi_align

from mast.events import match_boxes
from mast.models.architecture import DetectorConfig, EncoderConfig
from mast.models.boxes import iou, pad_truths
from mast.models.losses import giou_loss
from mast.models.mast_detector import MastDetector
from mast.models.second_look import Regions, SecondLook, SecondLookOutput, choose_regions, second_look_losses

CHUNK = (128, 64)
CONFIG = DetectorConfig(
    encoder=EncoderConfig(chunk_frames=128, n_bins=64, width=48, depth=2, heads=2),
    adapter="fine",
    detail=16,
    channels=32,
    levels=3,
    head_convs=1,
    pyramid_blocks=1,
    second_look=True,
)


def chunks(n: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Noise with one bright rectangle a chunk."""
    rng = np.random.default_rng(3)
    sound, boxes = rng.normal(0, 0.3, size=(n, 1, *CHUNK)), []
    for i in range(n):
        t, f = int(rng.integers(5, 80)), int(rng.integers(2, 40))
        sound[i, 0, t : t + 30, f : f + 12] += 2.0
        boxes.append(torch.tensor([[t, f, t + 30, f + 12]], dtype=torch.float32))
    return torch.tensor(sound, dtype=torch.float32), boxes


def test_a_region_sees_its_own_cells_of_every_level() -> None:
    torch.manual_seed(0)
    look = SecondLook(4, [(4.0, 2.0), (8.0, 4.0)])
    levels = [torch.randn(2, 4, 32, 32), torch.randn(2, 4, 16, 16)]
    boxes = torch.tensor([[[8.0, 4.0, 40.0, 24.0], [0.0, 0.0, 128.0, 64.0]]] * 2)
    expected = torch.zeros(2, 2, 4, 7, 7)
    for image in range(2):
        for k, (t1, f1, t2, f2) in enumerate(boxes[image].tolist()):
            for level, (s_t, s_f) in zip(levels, look.strides, strict=True):
                region = torch.tensor([[0.0, f1 / s_f, t1 / s_t, f2 / s_f, t2 / s_t]])
                one = roi_align(level[image : image + 1], region, (7, 7), sampling_ratio=2, aligned=True)
                expected[image, k] += one[0]
    hidden = F.relu(look.second(F.relu(look.first(expected.flatten(2)))))
    torch.testing.assert_close(look.vectors(levels, boxes), hidden)


def test_it_begins_undecided_and_with_the_boxes_as_they_are() -> None:
    look = SecondLook(4, [(4.0, 2.0)])
    boxes = torch.tensor([[[8.0, 4.0, 40.0, 24.0]]])
    looked = look([torch.randn(1, 4, 32, 32)], boxes)
    torch.testing.assert_close(looked.boxes, boxes)
    assert looked.logits.tolist() == [[0.0]]


def test_corrections_are_shares_of_the_region() -> None:
    look = SecondLook(4, [(4.0, 2.0)])
    with torch.no_grad():
        look.correction.bias.copy_(torch.tensor([1.0, -1.0, np.log(2) / 0.2, 0.0]))
    looked = look([torch.randn(1, 4, 32, 32)], torch.tensor([[[10.0, 20.0, 30.0, 30.0]]]))
    # moved by a tenth of 20 frames, and of 10 bins; twice as long
    torch.testing.assert_close(looked.boxes, torch.tensor([[[2.0, 19.0, 42.0, 29.0]]]))


def test_regions_are_truths_copies_and_proposals_with_the_box_they_fit_best() -> None:
    truths = pad_truths([torch.tensor([[0.0, 0, 10, 10], [50, 20, 70, 40]]), torch.zeros(0, 4)])
    jittered = truths.boxes[:, :, None] + torch.tensor([1.0, 0, 1, 0])
    proposals = torch.tensor([[[51.0, 20, 70, 40], [0, 0, 5, 10], [90, 50, 99, 60]]] * 2)
    logits = torch.tensor([[3.0, 0.0, -3.0]] * 2)
    found = choose_regions(truths, jittered, proposals, logits, torch.full((2, 3), 0.5), count=3)
    m = truths.valid.shape[1]
    assert found.boxes.shape == (2, 2 * m + 3, 4)
    assert found.valid.sum(dim=1).tolist() == [2 + 2 + 3, 3]  # nothing of the padding
    order = found.boxes[0, 2 * m :]
    torch.testing.assert_close(order, proposals[0])  # equal noise: best first
    torch.testing.assert_close(found.true[0, 2 * m :][:2], truths.boxes[0][[1, 0]])
    expected = [0.95, 0.5, 0.0]
    torch.testing.assert_close(found.overlap[0, 2 * m :], torch.tensor(expected))
    assert found.positive[0, 2 * m :].tolist() == [True, True, False]  # IoU of a half is a call
    assert not found.positive[1].any()


def test_regions_of_a_doubtful_box_count_for_nothing() -> None:
    calls = [torch.tensor([[0.0, 0, 10, 10]])]
    truths = pad_truths(calls, [torch.tensor([[50.0, 20, 70, 40]])])
    jittered = truths.boxes[:, :, None] + torch.tensor([1.0, 0, 1, 0])
    # the doubtful box, half of it, a corner of it, the call, neither
    proposals = torch.tensor(
        [[[51.0, 20, 70, 40], [50, 20, 60, 40], [65, 20, 90, 40], [0, 0, 9, 10], [90, 50, 99, 60]]]
    )
    logits = torch.tensor([[4.0, 3, 2, 1, 0]])
    found = choose_regions(truths, jittered, proposals, logits, torch.full((1, 5), 0.5), count=5)
    m = truths.valid.shape[1]
    assert found.valid[0].nonzero().flatten().tolist() == [0, m, 2 * m + 2, 2 * m + 3, 2 * m + 4]
    assert found.positive[0].nonzero().flatten().tolist() == [0, m, 2 * m + 3]


def test_terms_by_hand() -> None:
    boxes = torch.tensor([[[0.0, 0, 10, 10], [0, 0, 4, 4], [7, 7, 9, 9]]] * 2)
    overlap = torch.tensor([[0.8, 0.3, 0.9], [0.2, 0.6, 0.7]])
    valid = torch.tensor([[True, True, False], [True, True, True]])
    regions = Regions(boxes, valid, overlap, boxes + 1)
    looked = SecondLookOutput(torch.zeros(2, 3, 1), torch.tensor([[2.0, -1, 5], [0.5, 0.1, -2]]), boxes + 0.5)
    weights = torch.tensor([1.0, 0.25])
    terms = second_look_losses(looked, regions, weights)
    verdict = correction = 0.0
    for image in range(2):
        for k in range(3):
            if not valid[image, k]:
                continue
            is_call = bool(overlap[image, k] >= 0.5)
            p = torch.sigmoid(looked.logits[image, k])
            verdict -= float(weights[image] * torch.log(p if is_call else 1 - p)) / 5
            if is_call:
                place = giou_loss(looked.boxes[image, k], regions.true[image, k])
                correction += float(weights[image] * place) / 3
    assert abs(float(terms["verdict"]) - verdict) < 1e-5
    assert abs(float(terms["correction"]) - correction) < 1e-5


def test_the_score_is_the_geometric_mean_of_both_looks() -> None:
    torch.manual_seed(0)
    model = MastDetector(CONFIG).eval()
    with torch.no_grad():
        model.second.verdict.bias.fill_(-2.0)
        output = model(chunks(2)[0])
        scores = model.scores(output)
        found = model.select(output, score_threshold=0.0, nms_iou=1.0)
    best = (scores.amax(dim=1) * torch.sigmoid(torch.tensor(-2.0))).sqrt()
    torch.testing.assert_close(torch.stack([one.scores[0] for one in found]), best)


def test_a_threshold_drops_only_what_it_says() -> None:
    torch.manual_seed(0)
    model = MastDetector(CONFIG).eval()
    output = model(chunks(2)[0])
    everything = model.select(output, score_threshold=0.0)
    threshold = float(everything[0].scores.median())
    some = model.select(output, score_threshold=threshold)
    kept = everything[0].scores >= threshold
    torch.testing.assert_close(some[0].scores, everything[0].scores[kept])
    torch.testing.assert_close(some[0].boxes, everything[0].boxes[kept])


def test_contrast_and_verification_share_their_vectors() -> None:
    torch.manual_seed(0)
    model = MastDetector(CONFIG)
    terms = model.loss(*chunks(2), generator=torch.Generator().manual_seed(0))
    gradients = torch.autograd.grad(
        terms["contrastive"], [model.second.first.weight, model.second.second.weight]
    )
    assert all(float(gradient.abs().sum()) > 0 for gradient in gradients)
    assert terms["contrastive"] > 0
    assert set(terms) >= {"verdict", "correction"}


def test_no_box_anywhere_is_background_alone() -> None:
    torch.manual_seed(0)
    model = MastDetector(CONFIG)
    terms = model.loss(chunks(2)[0], [torch.zeros(0, 4)] * 2, generator=torch.Generator().manual_seed(0))
    assert terms["correction"].item() == terms["contrastive"].item() == 0.0
    assert terms["verdict"].item() > 0
    terms["loss"].backward()


def test_the_loss_reads_no_value() -> None:
    model = MastDetector(CONFIG).to("meta")
    truths = pad_truths([torch.tensor([[4.0, 4, 20, 12]]), torch.zeros(0, 4)], None, "meta")
    output = model(torch.empty(2, 1, *CHUNK, device="meta"))
    regions = model._regions(output, truths, None)
    looked = model.second(output.levels, regions.boxes)
    terms = model._second_terms(looked, regions, truths, torch.ones(2, device="meta"))
    torch.stack(list(terms.values())).sum().backward()


def test_two_looks_learn_a_few_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mast.models.mast_detector._LEARNT", 24)  # gradients of regions are slow on a CPU
    torch.manual_seed(0)
    model = MastDetector(CONFIG)
    sound, boxes = chunks(4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step in range(60):
        terms = model.loss(sound, boxes, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        terms["loss"].backward()
        optimizer.step()
    model.eval()
    found = model.detect(sound, score_threshold=0.3)
    hits = 0
    for one, true in zip(found, boxes, strict=True):
        hits += len(match_boxes(true.numpy(), one.boxes.numpy(), one.scores.numpy()).truth)
    assert hits >= 3  # of four
    # the correction moves boxes towards the truth
    with torch.no_grad():
        output = model(sound)
        moved = boxes[0][None, :, :] + torch.tensor([3.0, 1, 3, 1])
        looked = model.second(tuple(level[:1] for level in output.levels), moved)
    assert iou(looked.boxes, boxes[0][None]).mean() > iou(moved, boxes[0][None]).mean()
