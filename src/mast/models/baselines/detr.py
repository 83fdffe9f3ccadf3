"""DETR (Carion et al. 2020) as a baseline: a convolutional network, a transformer, and a fixed set of box slots.

The network is transformers' ``DetrForObjectDetection`` built from a config, never downloaded. That class assumes
a backbone pretrained on photographs; to learn from scratch, on spectrograms, both variants differ from it:

- **One channel.** The picture is ``resnet.as_picture``'s, and the stem takes its one channel instead of three copies.
- **Live normalisation.** transformers freezes every BatchNorm at its pretrained statistics, and the first layers with
  it. Without pretrained statistics that means no normalisation at all; here BatchNorm is trained as usual.
- **The authors' start.** transformers draws all weights from N(0, 0.02²). Here the transformer is initialised by Xavier
  and the queries of the plain variant from N(0, 1), as in the paper.
- **Finer features.** Stride 16 by dilation (the paper's DC5) on a picture stretched twofold in frequency, so a token
  covers 16 frames × 8 bins; at stride 32 a chunk would be four tokens high.

``variant = "plain"`` is otherwise the paper's: a bipartite matching of slots and true boxes, cross-entropy with the
empty class at 0.1, ℓ1 and GIoU, after every decoder layer (auxiliary losses); only dropout is 0 (our choice). In 1,300
steps from scratch it learns next to nothing (F1 below 0.06 on soundscape-bench). A likely cause can be seen before the
first step. An untrained encoder averages: after six layers 1.5 % of the tokens' mean square is left between tokens.
What slots read from nearly equal tokens is nearly equal, and the queries themselves enter attention only, so that just
0.001 % of the slots' mean square is between slots (ResNet-50, four simulated chunks). They are copies of one another:
every true box pulls at all of them, and they settle on one box, or come to cover the chunk without looking at it. Then
classification stays at ln 2, which the share of full slots alone gives. A pretrained backbone and hundreds of epochs
are the paper's way out.

``variant = "guided"``, the default, is for short schedules. It is still DETR: a set of slots, matched one to one, which
read the picture by attention; there is no dense head, and a slot may end anywhere. It takes from others slots that are
boxes, the look at them, their refinement and the groups (``detr_guided.py`` says whose), focal loss in place of the
down-weighted cross-entropy, and normalised tokens (Deformable DETR). The start is ours: layers that mix tokens or slots
with each other (self-attention, and the feed-forward layer after it) and changes of boxes begin at zero, as residual
branches often do, so that tokens and slots stay apart until there is something to learn from mixing them. We suggest
AdamW with 3e-4, gradients clipped at 1, and 1,000 steps or more; the rate has not been tuned.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.ops import box_convert

from mast.device import to_device
from mast.errors import MastError, first_line
from mast.models.baselines.baseline import Baseline
from mast.models.baselines.config import BaselineConfig, DetrOptions, parse_options
from mast.models.baselines.detr_guided import Guide, SlotPredictions
from mast.models.baselines.resnet import as_picture
from mast.models.boxes import PaddedBoxes, pad_boxes
from mast.models.losses import focal_loss, giou_loss, mean_over_processes

_PRIOR = 0.01  # probability that a slot holds a box, before anything is learnt (Lin et al. 2017)


class DetrDetector(Baseline):
    """DETR from scratch on spectrograms, guided or plain. See the module docstring."""

    def __init__(self, config: BaselineConfig) -> None:
        super().__init__(config)
        self.options = parse_options(config, DetrOptions)
        self.nms = self.options.nms
        self.network = _build_network(self.options)
        self.guide = _add_guide(self.network, self.options) if self.options.variant == "guided" else None

    def forward(self, spectrograms: Tensor) -> SlotPredictions:
        """(B, 1, T, F) normalised spectrograms → float32 predictions of the last decoder layer (N = 1) or all.

        In training, there are guided slots of all groups, ``groups`` times as many.
        """
        auxiliary = self.options.auxiliary_loss and self.training
        decoder = self.network.model.decoder
        pictures = as_picture(spectrograms, self.options.frequency_stretch)  # (B, 1, H, W)
        if self.guide is not None:
            guided: SlotPredictions = self.guide(self.network, pictures, every_layer=auxiliary)
            return guided
        output = self.network.model(pictures, output_hidden_states=auxiliary)
        states = [output.last_hidden_state]  # (B, Q, D)
        if auxiliary:  # after layers 1 … N − 1; the first of the hidden states is the decoder's input
            states = [decoder.layernorm(state) for state in output.decoder_hidden_states[1:-1]] + states
        slots = torch.stack(states).float()  # (N, B, Q, D)
        # a share of the chunk in bfloat16 is off by frames
        with torch.autocast(slots.device.type, enabled=False):
            logits: Tensor = self.network.class_labels_classifier(slots)  # (N, B, Q, 2): a box, empty
            boxes: Tensor = self.network.bbox_predictor(slots).sigmoid()
        return SlotPredictions(logits[..., 0] - logits[..., 1], boxes)

    def terms(
        self,
        spectrograms: Tensor,
        boxes: Sequence[Tensor],
        doubtful: Sequence[Tensor] | None,
        weights: Tensor | None,
        generator: torch.Generator | None,
    ) -> dict[str, Tensor]:
        """The set loss of a batch (``BoxDetector.loss``); nothing in it is random.

        Returns:
            ``loss`` to minimise; the last layer's ``classification``, ``corners`` and ``giou``, before their weights;
            and ``auxiliary``, what the other layers add.
        """
        options, device = self.options, spectrograms.device
        predictions = self(spectrograms)
        with torch.autocast(device.type, enabled=False):  # losses in float32
            truths = pad_boxes(boxes, device)
            shares = box_convert(truths.boxes / _sides(self.chunk, device), "xyxy", "cxcywh")  # (B, M, 4)
            truths = PaddedBoxes(shares, truths.valid)
            owner = match_slots(predictions, truths, [len(some) for some in boxes], options=options)
            terms = set_loss(predictions, truths, owner, weights=weights, options=options)  # each (N,)
        per_layer = (
            class_weight(options) * terms["classification"]
            + options.corner_weight * terms["corners"]
            + options.giou_weight * terms["giou"]
        )
        last = {name: value[-1] for name, value in terms.items()}
        return {"loss": per_layer.sum(), **last, "auxiliary": per_layer[:-1].sum()}

    def scored_boxes(self, spectrograms: Tensor) -> tuple[Tensor, Tensor]:
        """A box for each slot; its score is the probability that the slot is not empty."""
        predictions = self(spectrograms)
        boxes = _corners(predictions.boxes[-1]) * _sides(self.chunk, spectrograms.device)
        return boxes, predictions.logits[-1].sigmoid()


def match_slots(
    predictions: SlotPredictions, truths: PaddedBoxes, lengths: Sequence[int], *, options: DetrOptions
) -> Tensor:
    """The cheapest one-to-one matching of true boxes to slots, for each layer and image (Hungarian algorithm).

    The cost of a pair is − p(box) + ℓ1 + (1 − GIoU), weighted as the loss. All costs leave the GPU at once.

    Args:
        predictions: of N layers.
        truths: (B, M, 4) as shares of the chunk, like the predictions.
        lengths: true boxes of each image. If there are more of them than slots, the costliest get none.
        options: the weights, and the slots of a group: each group is matched on its own.

    Returns:
        (N, B, Q) index of the slot's true box, −1 where it is to be empty.
    """
    with torch.no_grad():
        slots = predictions.boxes[:, :, :, None]  # (N, B, Q, 1, 4)
        true = truths.boxes[None, :, None]  # (1, B, 1, M, 4)
        cost = (
            -class_weight(options) * predictions.logits.sigmoid()[..., None]
            + options.corner_weight * (slots - true).abs().sum(dim=-1)
            + options.giou_weight * giou_loss(_corners(slots), _corners(true))
        )  # (N, B, Q, M)
    costs = cost.nan_to_num(nan=1e6).cpu().numpy()  # if the network diverged, the loss will show it
    owner = np.full(costs.shape[:3], -1, dtype=np.int64)
    for layer, image in np.ndindex(*costs.shape[:2]):
        for first in range(0, costs.shape[2], options.queries):  # each group on its own
            group = slice(first, first + options.queries)
            slot, truth = linear_sum_assignment(costs[layer, image, group, : lengths[image]])
            owner[layer, image, group][slot] = truth
    return to_device(torch.from_numpy(owner), predictions.boxes.device)


def set_loss(
    predictions: SlotPredictions,
    truths: PaddedBoxes,
    owner: Tensor,
    *,
    weights: Tensor | None,
    options: DetrOptions,
) -> dict[str, Tensor]:
    """The terms of the set loss for slots that know their true box: each (N,), before its weight.

    Cross-entropy is a weighted mean over all slots, ℓ1 and GIoU are sums divided by the number of matches, as in the
    paper; so is focal loss, which the guided variant uses instead of cross-entropy. With no true box ℓ1 and GIoU are
    zero, graph intact.

    Args:
        predictions: of N layers.
        truths: (B, M, 4) as shares of the chunk.
        owner: (N, B, Q) from :func:`match_slots`.
        weights: (B,) of the images; 1 by default.
        options: the variant, and the weight of the empty class.
    """
    matched = owner >= 0  # (N, B, Q)
    n_layers = len(owner)
    index = owner.clamp(min=0)[..., None].expand(-1, -1, -1, 4)
    true = truths.boxes[None].expand(n_layers, -1, -1, -1).gather(2, index)  # (N, B, Q, 4)
    slot_weight = 1.0 if weights is None else weights.float()[None, :, None]  # (1, B, 1)

    n_boxes = mean_over_processes(matched[-1].sum().float()).clamp(min=1)
    if options.variant == "guided":
        wrong = focal_loss(predictions.logits, matched)
        classification = (wrong * slot_weight).sum(dim=(1, 2)) / n_boxes
    else:
        share = torch.where(matched, 1.0, options.empty_weight)
        wrong = F.softplus(torch.where(matched, -predictions.logits, predictions.logits))
        classification = (wrong * share * slot_weight).sum(dim=(1, 2)) / share.sum(dim=(1, 2))
    ell1 = (predictions.boxes - true).abs().sum(dim=-1) * matched
    giou = giou_loss(_corners(predictions.boxes), _corners(true)) * matched
    return {
        "classification": classification,
        "corners": (ell1 * slot_weight).sum(dim=(1, 2)) / n_boxes,
        "giou": (giou * slot_weight).sum(dim=(1, 2)) / n_boxes,
    }


def class_weight(options: DetrOptions) -> float:
    """The weight of the classification: DETR's for cross-entropy, Deformable DETR's for focal loss."""
    if options.class_weight is not None:
        return options.class_weight
    return 2.0 if options.variant == "guided" else 1.0


def _corners(boxes: Tensor) -> Tensor:
    """(…, 4) centre and size → low and high corner."""
    corners: Tensor = box_convert(boxes, "cxcywh", "xyxy")
    return corners


def _sides(chunk: tuple[int, int], device: torch.device) -> Tensor:
    """(4,) frames, bins, frames, bins: from shares of a chunk to cells."""
    return to_device(torch.tensor([*chunk, *chunk], dtype=torch.float32), device)


def _build_network(options: DetrOptions) -> Any:
    """transformers' DETR with random weights, changed so that it can learn from them (see the module docstring)."""
    try:
        from transformers import DetrConfig, DetrForObjectDetection
    except ImportError as error:
        raise MastError(
            f"the DETR baseline needs the package transformers, which cannot be imported here ({first_line(error)}): "
            "install it with pip install 'mast-audio[baselines]'"
        ) from error
    config = DetrConfig(
        backbone_config={
            "model_type": "timm_backbone",
            "backbone": options.backbone,
            "num_channels": 1,
            "features_only": True,
            "use_pretrained_backbone": False,
            "out_indices": [4],
            "output_stride": options.output_stride,
        },
        num_labels=1,
        num_queries=options.queries,
        d_model=options.width,
        encoder_layers=options.encoder_layers,
        decoder_layers=options.decoder_layers,
        encoder_ffn_dim=options.feed_forward,
        decoder_ffn_dim=options.feed_forward,
        encoder_attention_heads=options.heads,
        decoder_attention_heads=options.heads,
        dropout=options.dropout,
    )
    network = DetrForObjectDetection(config)
    _thaw(network.model.backbone)
    _init_as_published(network)
    return network


def _thaw(backbone: nn.Module) -> None:
    """Replace transformers' frozen BatchNorm with a trainable one, and let every layer learn."""
    for parent in list(backbone.modules()):
        for name, child in list(parent.named_children()):
            if type(child).__name__ == "DetrFrozenBatchNorm2d":
                assert isinstance(child.weight, Tensor)
                setattr(parent, name, nn.BatchNorm2d(child.weight.numel()))
    for module in backbone.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    backbone.requires_grad_(True)


def _init_as_published(network: Any) -> None:
    """Xavier in the transformer, N(0, 1) for the queries, PyTorch's default in the projections around it."""
    for part in (network.model.encoder, network.model.decoder):
        for parameter in part.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
    nn.init.normal_(network.model.query_position_embeddings.weight)
    network.model.input_projection.reset_parameters()
    network.class_labels_classifier.reset_parameters()
    for layer in network.bbox_predictor.layers:
        layer.reset_parameters()


def _add_guide(network: Any, options: DetrOptions) -> Guide:
    """Make transformers' DETR take guided slots: one logit, normalised tokens, and a start that mixes nothing."""
    del network.model.query_position_embeddings  # a slot's place is made from its box
    # as Deformable DETR has it
    network.model.input_projection = nn.Sequential(
        network.model.input_projection, nn.GroupNorm(math.gcd(32, options.width), options.width)
    )
    network.class_labels_classifier = nn.Linear(options.width, 1)
    nn.init.constant_(network.class_labels_classifier.bias, math.log(_PRIOR / (1 - _PRIOR)))
    layers = (*network.model.encoder.layers, *network.model.decoder.layers)
    mixing = [linear for layer in layers for linear in (layer.self_attn.o_proj, layer.mlp.fc2)]
    for linear in (*mixing, network.bbox_predictor.layers[-1]):
        nn.init.zeros_(linear.weight)
        nn.init.zeros_(linear.bias)
    return Guide(queries=options.queries, groups=options.groups, width=options.width, heads=options.heads)
