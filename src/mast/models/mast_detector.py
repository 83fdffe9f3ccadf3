"""MAST's detector: encoder E_φ → adapter A_ψ → pyramid N_γ → head D_θ (Sec. "Detector Design").

One forward pass always gives the same dense output; ``loss()`` = forward + assign + losses,
``detect()`` = forward + decode + NMS, ``embed()`` = the encoder's features inside boxes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from mast.errors import ConfigError
from mast.models.adapters import build_adapter
from mast.models.architecture import DetectorConfig
from mast.models.assign import assign_atss, assign_centre_sampling
from mast.models.box_vectors import box_vectors
from mast.models.boxes import Truths, clip_boxes, iou, pad_boxes, pad_truths, pool_boxes
from mast.models.contrastive import Projection, contrastive_loss, jitter_boxes, sample_negatives
from mast.models.decode import Detections, box_scores, decode_boxes, select_boxes
from mast.models.detail import DetailPath
from mast.models.encoder import Encoder
from mast.models.head import Head, HeadOutput
from mast.models.interface import BoxDetector
from mast.models.losses import (
    centreness_loss,
    centreness_target,
    corner_loss,
    focal_loss,
    giou_loss,
    mean_over_processes,
    over_positives,
    quality_focal_loss,
)
from mast.models.points import WithPoints, make_points
from mast.models.pyramid import Pyramid
from mast.models.second_look import (
    BACKGROUND_IOU,
    Regions,
    SecondLook,
    SecondLookOutput,
    choose_regions,
    second_look_losses,
)

_PROPOSALS = 300  # per image, for the second look
_PROPOSALS_IOU = 0.7  # of two proposals that overlap more, one is looked at; as in Faster R-CNN
_LEARNT = 128  # proposals per image that the second look learns from


class DenseOutput(NamedTuple):
    """Everything the detector says about a batch of chunks, one row per point."""

    logits: Tensor  # (B, R) classification
    centreness: Tensor  # (B, R) logits
    boxes: Tensor  # (B, R, 4) cells, not clipped
    levels: tuple[Tensor, ...]  # (B, C, T', F') the pyramid's, finest first
    tokens: Tensor  # (B, D, T/16, F/16) the encoder's map, without gradient: for embeddings


class MastDetector(WithPoints, BoxDetector):
    """The paper's detector. See the module docstring.

    >>> import torch
    >>> from mast.models.architecture import DetectorConfig
    >>> from mast.models.mast_detector import MastDetector
    >>> model = MastDetector(DetectorConfig.named("tiny"))
    >>> model.chunk, model.embedding_width
    ((1024, 128), 259)
    """

    backbone_prefixes = ("encoder.",)
    config: DetectorConfig

    def __init__(self, config: DetectorConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config.encoder)
        self.adapter = build_adapter(config.adapter, config.encoder.width, config.channels)
        if config.detail > 0:
            self.detail = DetailPath(config.detail, config.channels, config.strides)
        self.pyramid = Pyramid(config.channels, config.levels, config.pyramid_blocks)
        self.head = Head(config.channels, config.levels, config.head_convs)
        if config.second_look:
            (s_t, s_f), levels = config.strides, range(config.levels)
            self.second = SecondLook(config.channels, [(s_t * 2**i, s_f * 2**i) for i in levels])
        if config.contrastive_weight > 0:
            width = self.second.width if config.second_look else config.channels
            self.projection = Projection(width, config.contrastive_dimension)
        self.keep_points(make_points(config.finest_grid, config.strides, config.levels))

    @property
    def chunk(self) -> tuple[int, int]:
        """Frames and bins of a chunk."""
        return self.config.encoder.chunk_frames, self.config.encoder.n_bins

    @property
    def embedding_width(self) -> int:
        """Width of a box's vector: the encoder's features, and its look."""
        return self.config.embedding_width

    @property
    def projection_width(self) -> int:
        """Width of a box's contrastive projection; 0 where the model has none."""
        return self.config.contrastive_dimension if self.config.contrastive_weight > 0 else 0

    def forward(self, spectrograms: Tensor) -> DenseOutput:
        """(B, 1, T, F) normalised spectrograms → predictions at every point, float32.

        >>> model = MastDetector(DetectorConfig.named("tiny")).eval()
        >>> found = model(torch.zeros(2, 1, 1024, 128))
        >>> found.boxes.shape, found.logits.shape
        (torch.Size([2, 5440, 4]), torch.Size([2, 5440]))
        """
        tokens = self.encoder.feature_map(spectrograms)  # (B, D, T/16, F/16)
        levels: list[Tensor] = self.pyramid(self.adapt(tokens, spectrograms))  # finest (B, C, T/8, F/4)
        head: HeadOutput = self.head(levels)
        return DenseOutput(
            head.logits,
            head.centreness,
            decode_boxes(head.regression, self.points),
            tuple(levels),
            tokens.detach(),
        )

    def adapt(self, tokens: Tensor, spectrograms: Tensor) -> Tensor:
        """(B, D, T/16, F/16) and (B, 1, T, F) → (B, C, T/8, F/4): the map that the pyramid is built on."""
        finest: Tensor = self.adapter(tokens)
        return finest + self.detail(spectrograms) if self.config.detail > 0 else finest

    def loss(
        self,
        spectrograms: Tensor,
        boxes: Sequence[Tensor],
        *,
        doubtful: Sequence[Tensor] | None = None,
        weights: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> dict[str, Tensor]:
        """L_det + λ_con L_con of a batch.

        Args:
            spectrograms: (B, 1, T, F).
            boxes: for each chunk (M_i, 4) true boxes in cells; (0, 4) where there is none.
            doubtful: for each chunk (D_i, 4) boxes that are perhaps calls: points that would learn from them, as a
                call or as background, learn nothing; none by default.
            weights: (B,) confidence of each chunk's boxes, on L_det only (docs/paper_notes.md 11); 1 by default.
            generator: source of the contrastive term's draws, on the spectrograms' device.

        Returns:
            ``loss`` to minimise; each term before its λ: ``classification``, ``corners``, ``giou``,
            ``centreness``, ``contrastive``, with a second look ``verdict`` and ``correction``; and
            ``positives_per_image``.

        >>> model = MastDetector(DetectorConfig.named("tiny"))
        >>> boxes = [torch.tensor([[100.0, 40.0, 180.0, 60.0]]), torch.zeros(0, 4)]  # the second chunk holds nothing
        >>> terms = model.loss(torch.randn(2, 1, 1024, 128), boxes)
        >>> sorted(terms)
        ['centreness', 'classification', 'contrastive', 'corners', 'giou', 'loss', 'positives_per_image']
        >>> terms["loss"].backward()
        """
        if len(boxes) != len(spectrograms):
            raise ConfigError(f"{len(boxes)} lists of boxes given for {len(spectrograms)} chunks")
        device = spectrograms.device
        truths = pad_truths(boxes, doubtful, device)
        output = self(spectrograms)
        with torch.autocast(device.type, enabled=False):  # losses in float32
            terms = self._detection_terms(output, truths, weights)
            config = self.config
            terms["loss"] = (
                config.classification_weight * terms["classification"]
                + config.corner_weight * terms["corners"]
                + config.giou_weight * terms["giou"]
                + config.centreness_weight * terms["centreness"]
            )
        if config.second_look:
            regions = self._regions(output, truths, generator)
            looked: SecondLookOutput = self.second(output.levels, regions.boxes)
            with torch.autocast(device.type, enabled=False):
                terms |= self._second_terms(looked, regions, truths, weights)
            terms["loss"] = terms["loss"] + terms["verdict"] + terms["correction"]
        elif config.contrastive_weight > 0:
            with torch.autocast(device.type, enabled=False):
                terms["contrastive"] = self._contrastive_term(output, truths, generator)
        if config.contrastive_weight > 0:
            terms["loss"] = terms["loss"] + config.contrastive_weight * terms["contrastive"]
        return terms

    def scores(self, output: DenseOutput) -> Tensor:
        """(B, R) in (0, 1): what boxes are ranked and thresholded by."""
        if self.config.centreness_in_score:
            return box_scores(output.logits, output.centreness)
        return output.logits.sigmoid()

    @torch.no_grad()
    def detect(
        self,
        spectrograms: Tensor,
        *,
        score_threshold: float = 0.05,
        nms_iou: float = 0.5,
        max_boxes: int = 300,
    ) -> list[Detections]:
        """Boxes in each chunk, best first: (B, 1, T, F) → B times (K, 4) cells and (K,) scores.

        >>> model = MastDetector(DetectorConfig.named("tiny")).eval()
        >>> found = model.detect(torch.zeros(2, 1, 1024, 128), score_threshold=0.9)
        >>> [len(chunk.scores) for chunk in found]  # it has learnt nothing yet
        [0, 0]
        """
        return self.select(
            self(spectrograms), score_threshold=score_threshold, nms_iou=nms_iou, max_boxes=max_boxes
        )

    @torch.no_grad()
    def embed(self, spectrograms: Tensor, boxes: Sequence[Tensor]) -> list[Tensor]:
        """Box embeddings (App. "Box-Level Embeddings"): the encoder's map averaged inside each box, and its look.

        See :mod:`mast.models.box_vectors`.

        Args:
            spectrograms: (B, 1, T, F).
            boxes: for each chunk (M_i, 4) in cells.

        Returns:
            For each chunk (M_i, ``embedding_width``), float32.

        >>> model = MastDetector(DetectorConfig.named("tiny")).eval()
        >>> boxes = [torch.tensor([[100.0, 40.0, 180.0, 60.0]])]
        >>> [vectors.shape for vectors in model.embed(torch.zeros(1, 1, 1024, 128), boxes)]
        [torch.Size([1, 259])]
        """
        return self.vectors(self.encoder.feature_map(spectrograms), spectrograms, boxes)

    @torch.no_grad()
    def select(
        self,
        output: DenseOutput,
        *,
        score_threshold: float = 0.05,
        nms_iou: float = 0.5,
        max_boxes: int = 300,
    ) -> list[Detections]:
        """Boxes in each chunk, best first, from the output of the forward pass."""
        boxes, scores = output.boxes, self.scores(output)
        if self.config.second_look:
            boxes, scores = self._look_again(output.levels, boxes, scores, score_threshold)
        return select_boxes(
            boxes,
            scores,
            chunk=self.chunk,
            score_threshold=score_threshold,
            nms_iou=nms_iou,
            nested=self.config.nested,
            max_boxes=max_boxes,
        )

    @torch.no_grad()
    def vectors(self, tokens: Tensor, spectrograms: Tensor, boxes: Sequence[Tensor]) -> list[Tensor]:
        """The same as ``embed``, from an encoder's map that is there already (``DenseOutput.tokens``)."""
        padded = pad_boxes(boxes, tokens.device)
        vectors = box_vectors(tokens, spectrograms, padded.boxes, self.config.encoder.patch)
        return [row[: len(image_boxes)] for row, image_boxes in zip(vectors, boxes, strict=True)]

    def project(self, levels: Sequence[Tensor], boxes: Tensor) -> Tensor:
        """Pyramid levels, finest first, and (B, K, 4) boxes → (B, K, P), of length one: the contrastive projection."""
        if self.config.second_look:
            pooled = self.second.vectors(levels, boxes)
        else:
            pooled = pool_boxes(levels[0], boxes, self.config.strides)
        projected: Tensor = self.projection(pooled)
        return projected

    def _look_again(
        self, levels: Sequence[Tensor], boxes: Tensor, scores: Tensor, score_threshold: float
    ) -> tuple[Tensor, Tensor]:
        """The best proposals of each image, corrected, and their scores √(first · second): (B, K, 4), (B, K)."""
        found = select_boxes(
            boxes,
            scores,
            chunk=self.chunk,
            score_threshold=score_threshold**2,  # lower ones cannot reach the threshold
            nms_iou=_PROPOSALS_IOU,
            max_boxes=_PROPOSALS,
        )
        proposals = pad_boxes([one.boxes for one in found], boxes.device)
        first = torch.zeros(proposals.valid.shape, device=boxes.device)
        first[proposals.valid] = torch.cat([one.scores for one in found]).to(first)
        looked: SecondLookOutput = self.second(levels, proposals.boxes)
        return looked.boxes, (first * looked.logits.sigmoid()).sqrt()

    def _regions(self, output: DenseOutput, truths: Truths, generator: torch.Generator | None) -> Regions:
        """What the second look learns from."""
        return choose_regions(
            truths,
            self._jitter_truths(truths, generator),
            clip_boxes(output.boxes.detach(), self.chunk),
            output.logits.detach(),
            torch.rand(output.logits.shape, device=output.logits.device, generator=generator),
            count=_LEARNT,
        )

    def _second_terms(
        self, looked: SecondLookOutput, regions: Regions, truths: Truths, weights: Tensor | None
    ) -> dict[str, Tensor]:
        """The second look's own terms, and L_con on the same regions and vectors."""
        terms = second_look_losses(looked, regions, weights)
        if self.config.contrastive_weight > 0:
            proposals = regions.overlap[:, truths.valid.shape[1] * (1 + self.config.contrastive_positives) :]
            projected = self.projection(looked.vectors.float())
            terms["contrastive"] = self._contrast(projected, truths, proposals < BACKGROUND_IOU)
        return terms

    def _jitter_truths(self, truths: Truths, generator: torch.Generator | None) -> Tensor:
        """(B, M, P, 4) copies of the true boxes, moved and stretched a little."""
        shape = (*truths.valid.shape, self.config.contrastive_positives, 4)
        noise = torch.rand(shape, device=truths.boxes.device, generator=generator) * 2 - 1
        return jitter_boxes(truths.boxes, noise, amount=self.config.contrastive_jitter, chunk=self.chunk)

    def _detection_terms(
        self, output: DenseOutput, truths: Truths, weights: Tensor | None
    ) -> dict[str, Tensor]:
        """The terms of L_det, over all points of the batch."""
        points = self.points
        assign = assign_atss if self.config.assigner == "atss" else assign_centre_sampling
        owner = assign(points, truths.padded)  # (B, R)
        owned = owner >= 0
        owner = owner.clamp(min=0)
        positive = owned & truths.sure.gather(1, owner)
        true = truths.boxes.gather(1, owner[:, :, None].expand(-1, -1, 4))  # (B, R, 4)
        n_positives = mean_over_processes(positive.sum().float())

        if self.config.classification_loss == "quality_focal":
            quality = iou(output.boxes.detach(), true) * positive
            classification = quality_focal_loss(output.logits, quality)
        else:
            classification = focal_loss(output.logits, positive)
        counts = positive | ~owned  # a point of a doubtful box is neither call nor background
        centre = centreness_target(points.centres, points.strides, true)
        per_point = {
            "classification": classification * counts,
            "corners": corner_loss(output.boxes, true, points.anchors) * positive,
            "giou": giou_loss(output.boxes, true) * positive,
            "centreness": centreness_loss(output.centreness, centre) * positive,
        }
        terms = {name: over_positives(value, weights, n_positives) for name, value in per_point.items()}
        terms["positives_per_image"] = positive.sum() / len(positive)
        return terms

    def _contrastive_term(
        self, output: DenseOutput, truths: Truths, generator: torch.Generator | None
    ) -> Tensor:
        """L_con over all true boxes of the batch, against background that is drawn for it."""
        jittered = self._jitter_truths(truths, generator)
        negatives = sample_negatives(
            clip_boxes(output.boxes.detach(), self.chunk),
            output.logits.detach(),
            truths.padded,
            torch.rand(output.logits.shape, device=output.logits.device, generator=generator),
            count=self.config.contrastive_negatives,
            below_iou=BACKGROUND_IOU,
        )
        regions = torch.cat(
            [truths.boxes, jittered.flatten(1, 2), negatives.boxes], dim=1
        )  # (B, M + MP + K, 4)
        return self._contrast(self.project(output.levels, regions), truths, negatives.valid)

    def _contrast(self, projected: Tensor, truths: Truths, is_background: Tensor) -> Tensor:
        """L_con of the projections of M true boxes, M·P jittered copies and K others, (B, M + MP + K, P).

        ``is_background``: (B, K) which of the others are background.
        """
        m, p = truths.valid.shape[1], self.config.contrastive_positives
        anchors, positives, background = torch.split(projected, [m, m * p, is_background.shape[1]], dim=1)
        per_anchor = contrastive_loss(
            anchors.flatten(0, 1),
            positives.reshape(-1, p, positives.shape[-1]),
            background.flatten(0, 1),
            anchor_valid=truths.sure.flatten(),
            negative_valid=is_background.flatten(),
            temperature=self.config.contrastive_temperature,
        )
        n_anchors = mean_over_processes(truths.sure.sum().float())
        return per_anchor.sum() / n_anchors.clamp(min=1)
