"""Faster R-CNN and FCOS from torchvision's parts, class-agnostic, ResNet-50 with a feature pyramid.

How a spectrogram becomes a picture is explained in ``resnet.py``; neither resizes nor normalises it further. Backbone,
heads, matching and box coding are torchvision's. These parts are ours, because from scratch on small boxes they decide
whether the baseline learns at all:

- FCOS: distances are exponentials with a learned scale per level, as in the first FCOS paper. torchvision passes them
  through ReLU, which died in a trial from scratch: boxes of size zero, for ever.
- FCOS: points belong to boxes by :func:`mast.models.assign.assign_centre_sampling`, the same rule as torchvision's, but
  exact (torchvision ranks boxes by ``1e8 − area`` in float32, where all small boxes tie), and a box that lies between
  points gets the nearest one instead of none.
- Faster R-CNN: anchors from tall clicks to long whistles, two sizes per octave; centred on their cells.
- Both: everything random comes from the given generator, ``weights`` multiply each chunk's share of every term, losses
  are computed in float32, and NMS is the one MAST uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from torchvision.models.detection._utils import BalancedPositiveNegativeSampler
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead
from torchvision.models.detection.fcos import FCOSClassificationHead, FCOSRegressionHead
from torchvision.models.detection.roi_heads import RoIHeads
from torchvision.models.detection.rpn import RPNHead, concat_box_prediction_layers
from torchvision.ops import MultiScaleRoIAlign
from torchvision.ops.feature_pyramid_network import LastLevelMaxPool, LastLevelP6P7

from mast.errors import ConfigError
from mast.models.assign import assign_centre_sampling
from mast.models.baselines.baseline import Baseline
from mast.models.baselines.config import BaselineConfig, ResNetOptions, parse_options
from mast.models.baselines.proposals import ProposalNetwork
from mast.models.baselines.resnet import GroupNorm, as_picture, build_backbone, load_resnet
from mast.models.boxes import pad_truths
from mast.models.losses import (
    centreness_loss,
    centreness_target,
    focal_loss,
    giou_loss,
    mean_over_processes,
    over_positives,
)
from mast.models.points import WithPoints, make_points

_LEVELS = 5
_MIN_CELLS = 0.25  # a truth thinner than this is widened: its logarithm is a target
# FCOS
_FCOS_STRIDE = 8  # pixels, of the finest level
_MAX_LOG_DISTANCE = 6.0  # 400 strides: beyond any box
# Faster R-CNN: sizes are 4 strides and 4√2; over boxes of 10–250 frames × 3–50 bins (log-uniform) the best anchor
# overlaps by 0.67 on average and by 0.43 at the 5th percentile; torchvision's three per level by 0.56 and 0.27
_RCNN_STRIDE = 4  # pixels, of the finest level
_ANCHOR_RATIOS = (0.125, 0.35, 1.0, 2.8)  # height : width in pixels
_ANCHOR_SIZES = (4.0, 4.0 * 2**0.5)  # √area in strides
_SMOOTH = 1 / 9  # beta of smooth ℓ1, as torchvision


class _ResNetDetector(Baseline):
    """What the two share: options, picture, backbone."""

    backbone_prefixes = ("backbone.body.",)
    backbone: nn.Module

    def __init__(self, config: BaselineConfig) -> None:
        super().__init__(config)
        self.options = parse_options(config, ResNetOptions)

    def load_backbone(self, path: Path) -> str:
        """Start the ResNet from a torchvision state dict, such as one trained on ImageNet."""
        return load_resnet(self.backbone.get_submodule("body"), path, self.options)

    def _levels(self, spectrograms: Tensor) -> dict[str, Tensor]:
        """(B, 1, T, F) → (B, C, F', T') by name, finest first."""
        if tuple(spectrograms.shape[2:]) != self.chunk:
            raise ConfigError(
                f"{self.config.name}: chunks of {tuple(spectrograms.shape[2:])} cells given, made for {self.chunk}"
            )
        found: dict[str, Tensor] = self.backbone(as_picture(spectrograms, self.options.frequency_stretch))
        return found

    def _finest(self, stride: int) -> tuple[tuple[int, int], tuple[float, float]]:
        """Grid (time, frequency) and strides in cells of a level that sees every ``stride``-th pixel."""
        frames, bins = self.chunk
        stretch = self.options.frequency_stretch
        return (-(-frames // stride), -(-bins * stretch // stride)), (float(stride), stride / stretch)


class FcosOutput(NamedTuple):
    """What FCOS says about a batch, one row per point, float32."""

    logits: Tensor  # (B, R)
    centreness: Tensor  # (B, R) logits
    boxes: Tensor  # (B, R, 4) cells, not clipped


class FcosDetector(WithPoints, _ResNetDetector):
    """FCOS (Tian et al. 2019) on P3–P7; see the module docstring."""

    def __init__(self, config: BaselineConfig) -> None:
        super().__init__(config)
        channels = self.options.channels
        self.backbone = build_backbone(self.options, first_stage=2, extra=LastLevelP6P7(channels, channels))
        self.classification = FCOSClassificationHead(
            channels, num_anchors=1, num_classes=1, norm_layer=GroupNorm
        )
        self.regression = FCOSRegressionHead(channels, num_anchors=1, norm_layer=GroupNorm)
        self.log_scales = nn.Parameter(torch.zeros(_LEVELS))
        self.keep_points(make_points(*self._finest(_FCOS_STRIDE), _LEVELS))

    def forward(self, spectrograms: Tensor) -> FcosOutput:
        """(B, 1, T, F) → predictions at every point."""
        logits, centreness, distances = [], [], []
        for level, features in enumerate(self._levels(spectrograms).values()):
            logits.append(_rows(self.classification.cls_logits(self.classification.conv(features))))
            features = self.regression.conv(features)
            centreness.append(_rows(self.regression.bbox_ctrness(features)))
            scaled = _rows(self.regression.bbox_reg(features)) * self.log_scales[level].exp()
            distances.append(scaled.clamp(max=_MAX_LOG_DISTANCE).exp())  # (B, R_l, 4) strides
        reach = torch.cat(distances, dim=1) * self.point_strides.repeat(
            1, 2
        )  # (B, R, 4) before, below, after, above
        low, high = self.point_centres - reach[..., :2], self.point_centres + reach[..., 2:]
        return FcosOutput(
            torch.cat(logits, dim=1).squeeze(2),
            torch.cat(centreness, dim=1).squeeze(2),
            torch.cat([low, high], dim=2),
        )

    def terms(
        self,
        spectrograms: Tensor,
        boxes: Sequence[Tensor],
        doubtful: Sequence[Tensor] | None,
        weights: Tensor | None,
        generator: torch.Generator | None,
    ) -> dict[str, Tensor]:
        """Focal loss, GIoU loss and centreness, each over the number of positive points; nothing is random."""
        truths = pad_truths(boxes, doubtful, spectrograms.device)
        output: FcosOutput = self(spectrograms)
        with torch.autocast(spectrograms.device.type, enabled=False):
            points = self.points
            owner = assign_centre_sampling(points, truths.padded)  # (B, R)
            owned, owner = owner >= 0, owner.clamp(min=0)
            positive = owned & truths.sure.gather(1, owner)
            true = truths.boxes.gather(1, owner[:, :, None].expand(-1, -1, 4))
            n_positives = mean_over_processes(positive.sum().float())
            centre = centreness_target(points.centres, points.strides, true)
            per_point = {
                "classification": focal_loss(output.logits, positive) * (positive | ~owned),
                "giou": giou_loss(output.boxes, true) * positive,
                "centreness": centreness_loss(output.centreness, centre) * positive,
            }
            terms = {name: over_positives(value, weights, n_positives) for name, value in per_point.items()}
            terms["loss"] = terms["classification"] + terms["giou"] + terms["centreness"]
        terms["positives_per_image"] = positive.sum() / len(positive)
        return terms

    def scored_boxes(self, spectrograms: Tensor) -> tuple[Tensor, Tensor]:
        """A box for each point; its score is √(class · centreness), as torchvision's."""
        output: FcosOutput = self(spectrograms)
        return output.boxes, (output.logits.sigmoid() * output.centreness.sigmoid()).sqrt()


def _rows(level: Tensor) -> Tensor:
    """(B, C, F', T') → (B, T'·F', C) float32, in the order of :func:`make_points`."""
    return level.permute(0, 3, 2, 1).flatten(1, 2).float()


class RcnnOutput(NamedTuple):
    """The first stage's answer: features, and at every anchor how likely a box is and how far off."""

    features: dict[str, Tensor]  # by level, finest first: (B, C, F', T')
    objectness: Tensor  # (B, R) logits
    deltas: Tensor  # (B, R, 4)


class _SeededSampler(BalancedPositiveNegativeSampler):  # type: ignore[misc]
    """torchvision's sampler, drawing from a generator: a step's draws depend on (seed, step) alone."""

    generator: torch.Generator | None = None

    def __call__(self, labels: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Labels (1 positive, 0 negative, −1 neither) of each picture → masks of the chosen ones."""
        chosen: tuple[list[Tensor], list[Tensor]] = ([], [])
        for of_picture in labels:
            positive, negative = torch.where(of_picture >= 1)[0], torch.where(of_picture == 0)[0]
            n_positive = min(len(positive), int(self.batch_size_per_image * self.positive_fraction))
            for masks, candidates, count in (
                (chosen[0], positive, n_positive),
                (chosen[1], negative, self.batch_size_per_image - n_positive),
            ):
                draw = torch.rand(len(candidates), device=candidates.device, generator=self.generator)
                mask = torch.zeros_like(of_picture, dtype=torch.uint8)
                mask[candidates[draw.argsort()[:count]]] = 1
                masks.append(mask)
        return chosen


class FasterRcnnDetector(_ResNetDetector):
    """Faster R-CNN (Ren et al. 2015) with a feature pyramid (Lin et al. 2017), P2–P6; see the module docstring.

    Its two stages work in pixels of the picture; boxes are cells before and after.
    """

    anchors: Tensor

    def __init__(self, config: BaselineConfig) -> None:
        super().__init__(config)
        channels = self.options.channels
        self.backbone = build_backbone(self.options, first_stage=1, extra=LastLevelMaxPool())
        # thresholds, counts and shares below are torchvision's
        self.rpn = ProposalNetwork(
            nn.Identity(),  # anchors are ours and do not change
            RPNHead(channels, len(_ANCHOR_RATIOS) * len(_ANCHOR_SIZES)),
            fg_iou_thresh=0.7,
            bg_iou_thresh=0.3,
            batch_size_per_image=256,
            positive_fraction=0.5,
            pre_nms_top_n={"training": 2_000, "testing": 1_000},
            post_nms_top_n={"training": 2_000, "testing": 1_000},
            nms_thresh=0.7,
        )
        self.roi = RoIHeads(
            MultiScaleRoIAlign(["0", "1", "2", "3"], output_size=7, sampling_ratio=2),
            TwoMLPHead(channels * 7 * 7, 4 * channels),
            FastRCNNPredictor(4 * channels, num_classes=2),
            fg_iou_thresh=0.5,
            bg_iou_thresh=0.5,
            batch_size_per_image=512,
            positive_fraction=0.25,
            bbox_reg_weights=None,
            score_thresh=0.0,
            nms_thresh=0.5,
            detections_per_img=300,
        )
        self.rpn.min_size = 1.0  # pixels: a sliver at the edge of the picture is nothing to look at
        self._samplers = (_SeededSampler(256, 0.5), _SeededSampler(512, 0.25))
        self.rpn.fg_bg_sampler, self.roi.fg_bg_sampler = self._samplers
        anchors, counts = self._make_anchors()
        self._counts = counts
        self.register_buffer("anchors", anchors, persistent=False)

    def _make_anchors(self) -> tuple[Tensor, list[int]]:
        """(R, 4) pixels, in the order of the head's output (rows, columns, shapes), and how many per level."""
        grid, _ = self._finest(_RCNN_STRIDE)
        n_time, n_frequency, stride = *grid, float(_RCNN_STRIDE)
        anchors = []
        for _ in range(_LEVELS):
            y = (torch.arange(n_frequency) + 0.5) * stride
            x = (torch.arange(n_time) + 0.5) * stride
            centres = torch.cartesian_prod(y, x).flip(1)  # (F'·T', 2) x, y
            half = torch.tensor([(s / r**0.5, s * r**0.5) for r in _ANCHOR_RATIOS for s in _ANCHOR_SIZES]) * (
                stride / 2
            )
            corners = torch.cat([centres[:, None] - half, centres[:, None] + half], 2)  # (F'·T', shapes, 4)
            anchors.append(corners.flatten(0, 1))
            n_time, n_frequency, stride = (n_time + 1) // 2, (n_frequency + 1) // 2, 2 * stride
        return torch.cat(anchors), [len(level) for level in anchors]

    def forward(self, spectrograms: Tensor) -> RcnnOutput:
        """(B, 1, T, F) → the dense part; choosing proposals and looking at them follow in ``loss`` and ``detect``."""
        features = self._levels(spectrograms)
        objectness, deltas = concat_box_prediction_layers(*self.rpn.head(list(features.values())))
        b = len(spectrograms)
        return RcnnOutput(features, objectness.reshape(b, -1).float(), deltas.reshape(b, -1, 4).float())

    def terms(
        self,
        spectrograms: Tensor,
        boxes: Sequence[Tensor],
        doubtful: Sequence[Tensor] | None,
        weights: Tensor | None,
        generator: torch.Generator | None,
    ) -> dict[str, Tensor]:
        """The four losses of Faster R-CNN: is there something, where, is it a call, where exactly."""
        device = spectrograms.device
        perhaps = [boxes[0][:0]] * len(boxes) if doubtful is None else doubtful
        targets = [
            self._targets(sure.to(device), rest.to(device)) for sure, rest in zip(boxes, perhaps, strict=True)
        ]
        weight = torch.ones(len(boxes), device=device) if weights is None else weights
        output: RcnnOutput = self(spectrograms)
        for sampler in self._samplers:
            sampler.generator = generator
        try:
            with torch.autocast(device.type, enabled=False):
                terms = self._proposal_terms(output, targets, weight)
                chosen, _, labels, wanted = self.roi.select_training_samples(self._proposals(output), targets)
            logits, deltas = self._second_stage(output, chosen)
            with torch.autocast(device.type, enabled=False):
                terms |= _box_terms(logits, deltas, labels, wanted, weight)
        finally:
            for sampler in self._samplers:
                sampler.generator = None  # a generator cannot be copied, but models are
        terms["loss"] = torch.stack(list(terms.values())).sum()
        return terms

    def scored_boxes(self, spectrograms: Tensor) -> tuple[Tensor, Tensor]:
        """A box for each proposal; its score is the second stage's probability of a call."""
        output: RcnnOutput = self(spectrograms)
        with torch.autocast(spectrograms.device.type, enabled=False):
            proposals = self._proposals(output)
        logits, deltas = self._second_stage(output, proposals)
        counts = [len(some) for some in proposals]
        boxes = self._to_cells(self.roi.box_coder.decode(deltas, proposals)[:, 1])  # of the one class
        scores = logits.softmax(dim=1)[:, 1]
        # empty boxes, of the padding, are never selected
        padded = [pad_sequence(list(torch.split(some, counts)), batch_first=True) for some in (boxes, scores)]
        return padded[0], padded[1]

    @property
    def _picture(self) -> tuple[int, int]:
        """Height and width in pixels."""
        frames, bins = self.chunk
        return bins * self.options.frequency_stretch, frames

    def _targets(self, boxes: Tensor, doubtful: Tensor) -> dict[str, Tensor]:
        """What torchvision's matchers take: boxes in pixels, labelled 1 (calls) or −1 (doubtful ones)."""
        both = torch.cat([boxes.reshape(-1, 4), doubtful.reshape(-1, 4)])
        labels = torch.ones(len(both), dtype=torch.int64, device=both.device)
        labels[len(boxes) :] = -1
        return {"boxes": self._to_pixels(_widen_thin_boxes(both)), "labels": labels}

    def _to_pixels(self, boxes: Tensor) -> Tensor:
        """(…, 4) cells → pixels."""
        stretch = self.options.frequency_stretch
        return torch.stack([boxes[..., 0::2], boxes[..., 1::2] * stretch], dim=-1).flatten(-2)

    def _to_cells(self, boxes: Tensor) -> Tensor:
        stretch = self.options.frequency_stretch
        return torch.stack([boxes[..., 0::2], boxes[..., 1::2] / stretch], dim=-1).flatten(-2)

    @torch.no_grad()
    def _proposals(self, output: RcnnOutput) -> list[Tensor]:
        """For each picture up to 2000 (in training) or 1000 boxes worth a look."""
        b = len(output.objectness)
        decoded = self.rpn.box_coder.decode(output.deltas.reshape(-1, 4), [self.anchors] * b)
        boxes: list[Tensor]
        boxes, _ = self.rpn.filter_proposals(
            decoded.reshape(b, -1, 4), output.objectness, [self._picture] * b, self._counts
        )
        return boxes

    def _second_stage(self, output: RcnnOutput, regions: list[Tensor]) -> tuple[Tensor, Tensor]:
        """The second stage: N regions of all pictures → (N, 2) logits and (N, 2 · 4) deltas, float32."""
        pooled = self.roi.box_roi_pool(output.features, regions, [self._picture] * len(regions))
        logits, deltas = self.roi.box_predictor(self.roi.box_head(pooled))
        return logits.float(), deltas.float()

    def _anchor_labels(self, targets: list[dict[str, Tensor]]) -> tuple[list[Tensor], list[Tensor]]:
        """For each picture (R,) labels (1 call, 0 background, −1 neither) and the (R, 4) boxes that anchors belong to.

        The second stage's matcher takes labels of −1 as they are; that of anchors knows only calls, so it runs twice.
        """
        anchors = [self.anchors] * len(targets)
        calls = [{"boxes": one["boxes"][one["labels"] > 0]} for one in targets]
        labels, matched = self.rpn.assign_targets_to_anchors(anchors, calls)
        if any(len(call["boxes"]) < len(one["boxes"]) for call, one in zip(calls, targets, strict=True)):
            touched, _ = self.rpn.assign_targets_to_anchors(anchors, targets)
            pairs = zip(labels, touched, strict=True)
            labels = [own.where((own != 0) | (all_boxes == 0), -1.0) for own, all_boxes in pairs]
        return labels, matched

    def _proposal_terms(
        self, output: RcnnOutput, targets: list[dict[str, Tensor]], weight: Tensor
    ) -> dict[str, Tensor]:
        """As ``RegionProposalNetwork.compute_loss``, with a weight per picture."""
        b = len(targets)
        labels, matched = self._anchor_labels(targets)
        positive, negative = (torch.stack(masks).bool() for masks in self.rpn.fg_bg_sampler(labels))  # (B, R)
        wanted = torch.stack(self.rpn.box_coder.encode(matched, [self.anchors] * b))  # (B, R, 4)
        picture = torch.arange(b, device=weight.device)[:, None].expand_as(positive)
        sampled = positive | negative
        objectness = F.binary_cross_entropy_with_logits(
            output.objectness[sampled], positive[sampled].float(), reduction="none"
        )
        place = F.smooth_l1_loss(output.deltas[positive], wanted[positive], beta=_SMOOTH, reduction="none")
        count = sampled.sum().clamp(min=1)
        return {
            "objectness": (objectness * weight[picture[sampled]]).sum() / count,
            "proposals": (place.sum(dim=1) * weight[picture[positive]]).sum() / count,
        }


def _box_terms(
    logits: Tensor, deltas: Tensor, labels: list[Tensor], wanted: Sequence[Tensor], weight: Tensor
) -> dict[str, Tensor]:
    """As torchvision's ``fastrcnn_loss`` with one class of calls, with a weight per picture."""
    of_picture = torch.cat([one.expand(len(some)) for one, some in zip(weight, labels, strict=True)])  # (N,)
    label = torch.cat(labels)
    positive = label > 0
    classification = F.cross_entropy(logits, label, reduction="none") * of_picture
    place = F.smooth_l1_loss(
        deltas[positive, 4:], torch.cat(list(wanted))[positive], beta=_SMOOTH, reduction="none"
    )
    count = max(1, len(label))
    return {
        "classification": classification.sum() / count,
        "corners": (place.sum(dim=1) * of_picture[positive]).sum() / count,
    }


def _widen_thin_boxes(boxes: Tensor) -> Tensor:
    """(M, 4) → the same, none thinner than a quarter of a cell."""
    boxes = boxes.reshape(-1, 4).float()
    centres, half = (boxes[:, :2] + boxes[:, 2:]) / 2, (boxes[:, 2:] - boxes[:, :2]) / 2
    half = half.clamp(min=_MIN_CELLS / 2)
    return torch.cat([centres - half, centres + half], dim=1)
