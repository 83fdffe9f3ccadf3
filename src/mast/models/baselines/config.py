"""What a baseline is on disk and in a recipe: its name, the chunk it looks at, and what differs from its defaults."""

from __future__ import annotations

import difflib
from typing import Any, Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from mast.errors import ConfigError
from mast.grid import MOST_BINS, MOST_FRAMES

BaselineName = Literal["faster_rcnn", "fcos", "detr", "yolo26"]
BASELINES: tuple[BaselineName, ...] = get_args(BaselineName)

OptionsT = TypeVar("OptionsT", bound=BaseModel)


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
        description="trainable batch normalisation, for weights made on photographs bring its statistics along; "
        "group for batches of a few chunks. Never frozen: with statistics that nobody measured it does nothing",
    )
    channels: int = Field(256, gt=0, le=65_536, multiple_of=32, description="of the feature pyramid")
    frequency_stretch: int = Field(
        4,
        ge=1,
        le=8,
        description="pixels per mel bin (one per frame): at 4, boxes of 10–200 frames × 4–40 bins are as high as "
        "wide and of the size these detectors were designed for; our choice",
    )


class BaselineConfig(BaseModel):
    """A baseline detector's architecture.

    ``options`` holds what differs from the defaults of its own options model, checked where the config is made.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: BaselineName
    chunk_frames: int = Field(1_024, gt=0, le=MOST_FRAMES)
    n_bins: int = Field(128, gt=0, le=MOST_BINS)
    options: dict[str, Any] = {}

    @model_validator(mode="after")
    def _options_are_known(self) -> BaselineConfig:
        # the others' options stand beside their code, which imports this file
        if self.name == "detr":
            from mast.models.baselines.detr import DetrOptions

            parse_options(self, DetrOptions)
        elif self.name == "yolo26":
            from mast.models.baselines.yolo import YoloOptions

            parse_options(self, YoloOptions)
        else:
            parse_options(self, ResNetOptions)
        return self


def parse_options(config: BaselineConfig, model: type[OptionsT]) -> OptionsT:
    """A baseline's options by their own model; a mistake becomes one sentence that names the nearest option."""
    try:
        return model.model_validate(config.options)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            known = sorted(model.model_fields)
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(known)}"
            raise ConfigError(f"{config.name}: unknown option '{name}'; {hint}") from None
        raise ConfigError(
            f"{config.name}: option {name} is {first['input']!r}: {first['msg'].lower()}"
        ) from None
