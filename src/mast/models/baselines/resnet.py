"""ResNet with a feature pyramid on spectrograms, for the torchvision baselines.

A spectrogram (B, 1, T, F) becomes a picture (B, 1, F · stretch, T): time runs along x, so that boxes ``t1, f1, t2,
f2`` are ``x1, y1, x2, y2`` once frequencies are multiplied by the stretch, and the frequency axis is magnified
bilinearly, because a call is often a few bins high and the finest level of a pyramid sees every fourth or eighth pixel.
The first convolution takes one channel. Weights made on colour pictures are summed over their three channels, which
is the same as showing the spectrogram in all three.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.models import resnet
from torchvision.models.detection.backbone_utils import BackboneWithFPN
from torchvision.ops.feature_pyramid_network import ExtraFPNBlock

from mast.errors import MastError, first_line
from mast.models.baselines.config import ResNetOptions
from mast.models.damage import refuse_invalid
from mast.models.map_norm import MapNorm

_STAGES = (1, 2, 3, 4)  # layer1 … layer4, strides 4, 8, 16, 32
_BLOCKS: dict[str, tuple[Any, list[int]]] = {
    "resnet18": (resnet.BasicBlock, [2, 2, 2, 2]),
    "resnet34": (resnet.BasicBlock, [3, 4, 6, 3]),
    "resnet50": (resnet.Bottleneck, [3, 4, 6, 3]),
}


def as_picture(spectrograms: Tensor, stretch: int) -> Tensor:
    """(B, 1, T, F) → (B, 1, F · stretch, T)."""
    picture = spectrograms.transpose(2, 3)
    if stretch == 1:
        return picture.contiguous()
    size = (picture.shape[2] * stretch, picture.shape[3])
    return F.interpolate(picture, size=size, mode="bilinear", align_corners=False)


class _ResNet(resnet.ResNet):  # type: ignore[misc]
    """torchvision's ResNet with stages of ``width``, twice, four and eight times as many channels."""

    def __init__(self, block: Any, layers: list[int], *, width: int, **settings: Any) -> None:
        self._width = width
        super().__init__(block, layers, **settings)

    def _make_layer(self, block: Any, planes: int, *rest: Any, **settings: Any) -> nn.Sequential:
        stage: nn.Sequential = super()._make_layer(block, planes * self._width // 64, *rest, **settings)
        return stage


class GroupNorm(MapNorm):
    """32 groups, or pairs of channels where there are few."""

    def __init__(self, channels: int) -> None:
        super().__init__(min(32, channels // 2), channels)


def build_backbone(options: ResNetOptions, *, first_stage: int, extra: ExtraFPNBlock) -> nn.Module:
    """ResNet and pyramid from scratch: levels of ``options.channels``, the finest that of ``first_stage``.

    torchvision's detectors freeze their batch normalisation, which suits weights from ImageNet alone: untrained, it
    stays the identity, and nothing keeps the activations in range. Here every normalisation trains, and the pyramid
    is normalised too, as training from scratch needs it (He et al. 2019, "Rethinking ImageNet Pre-training").
    """
    norm = nn.BatchNorm2d if options.norm == "batch" else GroupNorm
    body = _ResNet(*_BLOCKS[options.backbone], width=options.width, norm_layer=norm)
    body.conv1 = nn.Conv2d(1, body.conv1.out_channels, kernel_size=7, stride=2, padding=3, bias=False)
    nn.init.kaiming_normal_(body.conv1.weight, mode="fan_out", nonlinearity="relu")
    stages = [stage for stage in _STAGES if stage >= first_stage]
    width = body.inplanes // 8  # of the first stage
    backbone: nn.Module = BackboneWithFPN(
        body,
        return_layers={f"layer{stage}": str(i) for i, stage in enumerate(stages)},
        in_channels_list=[width * 2 ** (stage - 1) for stage in stages],
        out_channels=options.channels,
        extra_blocks=extra,
        norm_layer=norm,
    )
    return backbone


def load_resnet(body: nn.Module, path: Path, options: ResNetOptions) -> str:
    """Load a torchvision ResNet's state dict into the backbone; returns a sentence about it.

    Args:
        body: ``backbone.body``.
        path: a file such as torchvision's ``resnet50-11ad3fa6.pth``, or ``torch.save(model.state_dict(), …)``.
        options: of the detector.
    """
    if options.norm != "batch":
        raise MastError(
            f"{path}: a ResNet's weights come with the statistics of batch normalisation, but this detector's norm is "
            f"'{options.norm}'; set train.detector.norm=batch, or leave --init out"
        )
    try:
        weights = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises several unrelated types here
        raise MastError(
            f"{path}: cannot be read as a plain PyTorch state dict ({first_line(error)})"
        ) from None
    expected = body.state_dict()
    if not isinstance(weights, dict) or not isinstance(weights.get("conv1.weight"), Tensor):
        raise MastError(
            f"{path}: holds no tensor conv1.weight; expected the state dict of torchvision's {options.backbone}"
        )
    refuse_invalid(weights, path)
    weights = {name: tensor for name, tensor in weights.items() if not name.startswith("fc.")}
    weights["conv1.weight"] = weights["conv1.weight"].sum(dim=1, keepdim=True)
    for name, tensor in expected.items():
        if name.endswith("num_batches_tracked"):
            weights.setdefault(name, tensor)  # the oldest files lack these counters, and nothing reads them
        found = tuple(weights[name].shape) if name in weights else "nothing"
        if found != tuple(tensor.shape):
            raise MastError(
                f"{path}: tensor {name}: found {found}, expected shape {tuple(tensor.shape)}; the weights are not "
                f"those of torchvision's {options.backbone}"
            )
    extra = [name for name in weights if name not in expected]
    if extra:
        raise MastError(
            f"{path}: tensor {extra[0]} is not part of torchvision's {options.backbone}; set train.detector.backbone"
        )
    body.load_state_dict(weights)
    return (
        f"{options.backbone} from {path.name}, {len(expected)} tensors; the first layer summed over colours"
    )
