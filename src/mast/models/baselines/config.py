"""What a baseline is on disk and in a recipe: its name, the chunk it looks at, and what differs from its defaults."""

from __future__ import annotations

from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

from mast.grid import MAX_BINS, MAX_FRAMES
from mast.settings import SettingsT, parse_settings

BaselineName = Literal["faster_rcnn", "fcos", "detr", "yolo26"]
BASELINES: tuple[BaselineName, ...] = get_args(BaselineName)


class ResNetOptions(BaseModel):
    """Options of the two torchvision detectors, Faster R-CNN and FCOS."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    backbone: Literal["resnet18", "resnet34", "resnet50"] = Field(
        "resnet50", description="resnet50 is the paper's; the others are for a CPU"
    )
    width: int = Field(
        64,
        ge=16,
        le=65_536,
        multiple_of=16,
        description="channels of the backbone's first stage; less is for a CPU",
    )
    norm: Literal["batch", "group"] = Field(
        "batch",
        description="batch, because weights trained on photographs bring its statistics along; group for batches of "
        "a few chunks. It is always trained: frozen, with statistics that nobody measured, it would do nothing",
    )
    channels: int = Field(256, gt=0, le=65_536, multiple_of=32, description="of the feature pyramid")
    frequency_stretch: int = Field(
        4,
        ge=1,
        le=8,
        description="pixels per mel bin (one per frame): at 4, boxes of 10–200 frames × 4–40 bins are as high as "
        "wide and of the size these detectors were designed for; our choice",
    )


class DetrOptions(BaseModel):
    """Architecture and loss of DETR; defaults are the paper's for ResNet-50 unless they say otherwise."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    variant: Literal["guided", "plain"] = Field(
        default="guided", description="slots that start as boxes (detr_guided.py), or the DETR of 2020"
    )
    groups: int = Field(
        default=3, gt=0, le=1_000, description="sets of slots in training; only in the guided variant"
    )
    backbone: Literal["resnet18", "resnet34", "resnet50", "resnet101"] = "resnet50"
    output_stride: Literal[16, 32] = Field(default=16, description="pixels per token; 16 is the paper's DC5")
    frequency_stretch: int = Field(default=2, ge=1, le=8, description="pixels per mel bin, our choice")
    queries: int = Field(default=100, gt=0, le=65_536, description="slots: no chunk can have more boxes")
    width: int = Field(default=256, gt=0, le=65_536, multiple_of=8, description="of the transformer")
    feed_forward: int = Field(default=2_048, gt=0, le=65_536)
    heads: int = Field(default=8, gt=0, le=1_000)
    encoder_layers: int = Field(default=6, gt=0, le=1_000)
    decoder_layers: int = Field(default=6, gt=0, le=1_000)
    dropout: float = Field(default=0.0, ge=0, lt=1, description="0.1 in the paper; 0 is our choice")
    auxiliary_loss: bool = Field(
        default=True, description="a loss after each decoder layer, not only after the last"
    )
    empty_weight: float = Field(
        default=0.1, gt=0, description="of the empty class in the plain cross-entropy"
    )
    class_weight: float | None = Field(
        default=None,
        ge=0,
        description="in the loss and in the cost of a match, like the next two. By default 1, with focal loss 2",
    )
    corner_weight: float = Field(
        default=5.0, ge=0, description="of ℓ1 on centre and size, as shares of the chunk"
    )
    giou_weight: float = Field(default=2.0, ge=0)
    nms: bool = Field(
        default=True, description="suppress overlaps as for every detector; DETR itself does not"
    )


class YoloOptions(BaseModel):
    """Size of the network, shape of its picture, and which head answers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    scale: Literal["n", "s", "m", "l", "x"] = Field(
        default="x", description="x is the paper's: 59 M parameters"
    )
    frequency_stretch: int = Field(
        default=4, ge=1, le=8, description="pixels per mel bin, as for the other baselines; our choice"
    )
    end_to_end: bool = Field(
        default=False, description="boxes of the one-to-one head instead of the one-to-many"
    )
    nms: bool = Field(default=True, description="suppress overlaps; false only together with end_to_end")


_OPTIONS: dict[BaselineName, type[BaseModel]] = {
    "faster_rcnn": ResNetOptions,
    "fcos": ResNetOptions,
    "detr": DetrOptions,
    "yolo26": YoloOptions,
}


class BaselineConfig(BaseModel):
    """A baseline detector's architecture.

    ``options`` holds what differs from the defaults of its own options model, checked where the config is made.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: BaselineName
    chunk_frames: int = Field(1_024, gt=0, le=MAX_FRAMES)
    n_bins: int = Field(128, gt=0, le=MAX_BINS)
    options: dict[str, Any] = {}

    @model_validator(mode="after")
    def _options_are_known(self) -> BaselineConfig:
        parse_options(self, _OPTIONS[self.name])
        return self


def parse_options(config: BaselineConfig, model: type[SettingsT]) -> SettingsT:
    """A baseline's options by their own model; a mistake becomes one sentence that names the nearest option."""
    return parse_settings(model, config.options, where=config.name, what="option")
