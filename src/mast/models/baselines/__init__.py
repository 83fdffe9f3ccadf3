"""The paper's baselines behind the detector interface: same chunks, boxes, loop and evaluator as MAST.

| system | file | from |
|---|---|---|
| Faster R-CNN, FCOS | ``torchvision_detectors.py``, backbone in ``resnet.py`` | torchvision |
| DETR | ``detr.py`` | transformers |
| YOLO26 | ``yolo26.py`` | ultralytics |
| what they share | ``baseline.py`` | |

Each says in its module docstring how a spectrogram becomes the picture it expects. AudioMAE, the fifth, is MAST's own
detector with another start (``mast train --init pretrained.pth``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mast.models.baselines.config import BaselineConfig, BaselineName

if TYPE_CHECKING:
    from mast.models.interface import BoxDetector

__all__ = ["BaselineConfig", "BaselineName", "build_baseline"]


def build_baseline(config: BaselineConfig) -> BoxDetector:
    """The detector a config describes, freshly initialised. Libraries are imported when they are needed."""
    if config.name == "faster_rcnn":
        from mast.models.baselines.torchvision_detectors import FasterRcnnDetector

        return FasterRcnnDetector(config)
    if config.name == "fcos":
        from mast.models.baselines.torchvision_detectors import FcosDetector

        return FcosDetector(config)
    if config.name == "detr":
        from mast.models.baselines.detr import DetrDetector

        return DetrDetector(config)
    from mast.models.baselines.yolo26 import YoloDetector

    return YoloDetector(config)
