"""YOLO26 (Ultralytics) as a baseline: its network and its loss, in our loop, on our chunks.

**Licence.** ultralytics is AGPL-3.0 and mast is not, so it is an optional extra, imported in this file alone, only when
the detector is built, and nothing of it is copied here. Whoever installs and ships it must keep its terms.

**Picture.** Time to the right, frequency downwards, bilinearly stretched in frequency (``resnet.as_picture``) and
padded with zeros to a multiple of 32: the finest level sees every 8th pixel, which at 4 pixels per mel bin is 8 frames
× 2 bins. The network is built for one channel (``ch=1``) and one class from ``yolo26x.yaml``, with random weights.

**Loss.** YOLO26 has two heads: one-to-many, through which the network learns, and one-to-one, which is trained on
detached features and needs no NMS. Both get ultralytics' own loss with its own gains. ultralytics shifts weight from
the first to the second over the epochs; as no parameter learns from both, this only scales gradients, which AdamW
undoes, so here they count alike and the loss does not depend on the position in the schedule. Per-chunk weights
multiply what each chunk adds to the loss; the divisor stays that of the whole batch.

**Boxes.** From the one-to-many head with our NMS by default: ultralytics too predicts this way unless told otherwise.
``end_to_end`` takes the one-to-one head's boxes, with NMS on top unless ``nms`` is false.

**A limit.** A true box teaches only as much as the predictions overlap it; one of a cell or two overlaps none at first
and is passed over until the predictions shrink. Stretching the picture helps.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torchvision.ops import box_convert

from mast.device import to_device
from mast.errors import ConfigError, MastError, first_line
from mast.models.baselines.baseline import Baseline
from mast.models.baselines.config import BaselineConfig, YoloOptions, parse_options
from mast.models.baselines.resnet import as_picture

_MULTIPLE = 32  # stride of the coarsest level
_TERMS = ("boxes", "classification", "corners")  # CIoU, cross-entropy, ℓ1 of the sides: ultralytics' order
# read once, while it is imported
_QUIET = {"YOLO_OFFLINE": "1", "YOLO_VERBOSE": "0", "YOLO_AUTOINSTALL": "0"}


class YoloDetector(Baseline):
    """YOLO26 from scratch on spectrograms. See the module docstring."""

    def __init__(self, config: BaselineConfig) -> None:
        super().__init__(config)
        self.options = options = parse_options(config, YoloOptions)
        if not options.nms and not options.end_to_end:
            raise ConfigError(
                "yolo26: nms = false needs end_to_end = true, because the other head finds every sound several times"
            )
        self.nms = options.nms
        self.network = _build_network(options)

    def picture(self, spectrograms: Tensor) -> Tensor:
        """(B, 1, T, F) → (B, 1, H, W), both multiples of 32."""
        picture = as_picture(spectrograms, self.options.frequency_stretch)
        height, width = picture.shape[2:]
        return F.pad(picture, (0, -width % _MULTIPLE, 0, -height % _MULTIPLE))

    def forward(self, spectrograms: Tensor) -> dict[str, dict[str, Any]]:
        """(B, 1, T, F) → what both heads, ``one2many`` and ``one2one``, say at each of R points, in float32.

        ``boxes`` (B, 4, R) holds the distances from point to side in strides, ``scores`` (B, 1, R) logits, and
        ``feats`` a tensor for each level with only the shape of its features: points are made from it, and in its type;
        under autocast, the features' own type would be too coarse for them.
        """
        output = self.network(self.picture(spectrograms))
        heads = output if self.training else output[1]
        return {
            name: {
                "boxes": head["boxes"].float(),
                "scores": head["scores"].float(),
                "feats": [
                    head["boxes"].new_empty((), dtype=torch.float32).expand(x.shape) for x in head["feats"]
                ],
            }
            for name, head in heads.items()
        }

    def terms(
        self,
        spectrograms: Tensor,
        boxes: Sequence[Tensor],
        doubtful: Sequence[Tensor] | None,
        weights: Tensor | None,
        generator: torch.Generator | None,
    ) -> dict[str, Tensor]:
        """ultralytics' loss of both heads, per chunk (``BoxDetector.loss``); nothing in it is random.

        Returns:
            ``loss`` to minimise, and its terms, each the sum of both heads', gains included: ``boxes`` (CIoU),
            ``classification``, ``corners`` (ℓ1).
        """
        b, device = len(spectrograms), spectrograms.device
        heads = self(spectrograms)
        with torch.autocast(device.type, enabled=False):  # losses in float32
            targets = self._targets(boxes, device)
            # stateless: the assigners and gains, on the network's device
            criterion = self.network.init_criterion()
            terms = torch.zeros(len(_TERMS), device=device)
            for name, head in heads.items():
                one_head = getattr(criterion, name)
                if weights is not None:
                    _weigh(one_head, weights.float())
                summed, _ = one_head.loss(head, targets)  # (3,), multiplied by B
                terms = terms + summed / b
        return {"loss": terms.sum(), **dict(zip(_TERMS, terms.unbind(), strict=True))}

    def scored_boxes(self, spectrograms: Tensor) -> tuple[Tensor, Tensor]:
        """A box for each point of the chosen head."""
        head = self(spectrograms)["one2one" if self.options.end_to_end else "one2many"]
        # decoded here and not by the network, which under autocast would round pixels to bfloat16
        points, strides = self._points([feature.shape[2:] for feature in head["feats"]], spectrograms.device)
        low, high = head["boxes"].transpose(1, 2).split(2, dim=2)  # (B, R, 2) each
        pixels = torch.cat([points - low, points + high], dim=2) * strides[:, None]
        return pixels / self._pixels_per_cell(pixels.device), head["scores"][:, 0].sigmoid()

    def _pixels_per_cell(self, device: torch.device) -> Tensor:
        """(4,) for ``t1, f1, t2, f2``."""
        stretch = float(self.options.frequency_stretch)
        return to_device(torch.tensor([1.0, stretch, 1.0, stretch]), device)

    def _points(self, sizes: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
        """(R, 2) centres x, y in strides and (R,) strides of the points of levels of given height and width."""
        points, strides = [], []
        for (height, width), stride in zip(sizes, self.network.model[-1].stride, strict=True):
            x, y = (torch.arange(n, device=device) + 0.5 for n in (width, height))
            grid = torch.stack(torch.meshgrid(x, y, indexing="xy"), dim=-1).flatten(0, 1)
            points.append(grid)
            strides.append(stride.expand(len(grid)))
        return torch.cat(points), torch.cat(strides)

    def _targets(self, boxes: Sequence[Tensor], device: torch.device) -> dict[str, Tensor]:
        """A batch's boxes as ultralytics writes them: one row each, centre and size as shares of the picture."""
        cells = torch.cat([image_boxes.reshape(-1, 4) for image_boxes in boxes]).float().to(device)
        frames, bins = self.chunk
        width = frames + -frames % _MULTIPLE
        height = bins * self.options.frequency_stretch
        height += -height % _MULTIPLE
        picture = to_device(torch.tensor([width, height, width, height], dtype=torch.float32), device)
        rows = box_convert(cells * self._pixels_per_cell(device) / picture, "xyxy", "cxcywh")
        image = torch.arange(len(boxes)).repeat_interleave(torch.tensor([len(some) for some in boxes]))
        return {
            "batch_idx": to_device(image.float(), device),
            "cls": torch.zeros(len(cells), device=device),
            "bboxes": rows,
        }


def _weigh(criterion: Any, weights: Tensor) -> None:
    """Make one head's loss count each chunk by its weight: in the cross-entropy and in the box terms.

    Both are sums over points divided by the batch's sum of target scores, which is taken before and does not change.
    """
    per_point = weights[:, None, None]  # (B, 1, 1)
    entropy, box_loss = criterion.bce, criterion.bbox_loss

    def weighted_entropy(logits: Tensor, scores: Tensor) -> Any:
        return entropy(logits, scores) * per_point

    def weighted_box_loss(*args: Any) -> Any:
        values = list(args)
        values[4] = values[4] * per_point  # target scores (B, R, 1): what a point's box terms are weighted by
        return box_loss(*values)

    criterion.bce, criterion.bbox_loss = weighted_entropy, weighted_box_loss


def _build_network(options: YoloOptions) -> Any:
    """ultralytics' ``DetectionModel`` with random weights, one channel, one class."""
    try:
        with _quiet_import():
            from ultralytics.nn.tasks import DetectionModel
            from ultralytics.utils import DEFAULT_CFG, ROOT, YAML
    except ImportError as error:
        raise MastError(
            f"the YOLO26 baseline needs the package ultralytics, which cannot be imported here ({first_line(error)}): "
            "install it with pip install 'mast-audio[yolo]'; it is a separate step because its licence is AGPL-3.0"
        ) from error
    # the package's own file by its full path: given a name only, ultralytics would first take a file in the current
    # folder, and it evaluates text in it
    layers = {**YAML.load(ROOT / "cfg" / "models" / "26" / "yolo26.yaml"), "scale": options.scale, "nc": 1}
    network = DetectionModel(layers, ch=1, verbose=False)
    network.args = DEFAULT_CFG  # the loss reads its gains there
    return network


@contextmanager
def _quiet_import() -> Iterator[None]:
    """Let ultralytics be imported without reaching out or leaving traces.

    On import it looks for a network, writes a settings file, and changes what is not its own: environment variables
    (threads among them), warning filters, how numbers are printed, ``torch.save``.
    """
    environment, printing, save = dict(os.environ), np.get_printoptions(), torch.save
    with tempfile.TemporaryDirectory() as settings, warnings.catch_warnings():
        os.environ.update(_QUIET, YOLO_CONFIG_DIR=settings)
        try:
            yield
        finally:
            for name in os.environ.keys() - environment.keys():
                del os.environ[name]
            os.environ.update(environment)
            np.set_printoptions(**printing)
            torch.set_printoptions(profile="default")  # type: ignore[no-untyped-call]
            torch.save = save
