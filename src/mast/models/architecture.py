"""What models are made of, in numbers: the architectures that a model card or a recipe describes.

This file holds only the descriptions, which can be read without torch; the models are in ``encoder.py``, ``mae.py``,
``mast_detector.py`` and ``baselines``, which has descriptions of its own.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from mast.errors import ConfigError
from mast.grid import MAX_BINS, MAX_FRAMES

Size = Literal["tiny", "light", "small", "base"]
AdapterName = Literal["upsampling", "fine", "anisotropic", "conv", "none"]
Masking = Literal["uniform", "structured", "blocks"]

# how much finer than the tokens each adapter's map is, in time and in frequency
ADAPTER_UPSAMPLING: dict[AdapterName, tuple[int, int]] = {
    "upsampling": (2, 4),
    "fine": (4, 8),  # beyond the paper: cells of 4 × 2
    "anisotropic": (1, 4),
    "conv": (1, 1),
    "none": (1, 1),
}

NORM_EPSILON = 1e-6  # of layer norms, as in MAE; torch's own default is 1e-5
GROUP = 8  # channels that a group norm takes together, 32 groups at 256
FUSION_EPSILON = 1e-4  # keeps the sum of the pyramid's fusion weights away from zero
ANCHOR_STRIDES = 8.0  # side of the box that each point starts from, in strides; as in ATSS
LOG_SIZE = (-6.0, 4.0)  # of a box: 1/400 to 55 times the starting one, beyond any box a chunk can hold

LOOK_BANDS = 32  # bands that describe a box's look, see box_vectors.py
LOOK_WIDTH = 2 * LOOK_BANDS + 3

# base is the paper's mae_vit_base_patch16; the others are our choice: for a laptop, the embedded model, a desktop
ENCODER_SIZES: dict[Size, dict[str, int]] = {
    "tiny": {"width": 192, "depth": 4, "heads": 3},
    "light": {"width": 256, "depth": 6, "heads": 4},
    "small": {"width": 384, "depth": 12, "heads": 6},
    "base": {"width": 768, "depth": 12, "heads": 12},
}


# base is mae_vit_base_patch16's decoder; the others are our choice
DECODER_SIZES: dict[Size, dict[str, int]] = {
    "tiny": {"decoder_width": 128, "decoder_depth": 2, "decoder_heads": 4},
    "light": {"decoder_width": 128, "decoder_depth": 2, "decoder_heads": 4},
    "small": {"decoder_width": 256, "decoder_depth": 4, "decoder_heads": 8},
    "base": {"decoder_width": 512, "decoder_depth": 8, "decoder_heads": 16},
}
# base is the paper's; the others are our choice: the layers at 128 × 32 cost as much as the encoder
DETECTOR_SIZES: dict[Size, dict[str, int]] = {
    "tiny": {"channels": 32, "head_convs": 2},
    "light": {"channels": 64, "head_convs": 2},
    "small": {"channels": 128, "head_convs": 2},
    "base": {"channels": 256, "head_convs": 4},
}


class EncoderConfig(BaseModel):
    """Shape of the input and of the transformer; defaults are the paper's ViT-B/16 on 1024 × 128."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    chunk_frames: int = Field(default=1_024, gt=0, le=MAX_FRAMES, description="frames per chunk, T")
    n_bins: int = Field(default=128, gt=0, le=MAX_BINS, description="mel bins, F")
    patch: int = Field(default=16, gt=0, le=MAX_BINS, description="side of a patch, in frames and in bins")
    width: int = Field(default=768, gt=0, le=65_536, description="token width, D")
    depth: int = Field(default=12, gt=0, le=1_000, description="transformer blocks")
    heads: int = Field(default=12, gt=0, le=1_000, description="attention heads per block")

    @model_validator(mode="after")
    def _divides(self) -> EncoderConfig:
        if self.chunk_frames % self.patch or self.n_bins % self.patch:
            raise ConfigError(
                f"encoder: a chunk of {self.chunk_frames} × {self.n_bins} cells does not divide into patches "
                f"of {self.patch} × {self.patch}; choose multiples of {self.patch}"
            )
        if self.width % self.heads or self.width % 4:
            raise ConfigError(
                f"encoder: width {self.width} must be a multiple of 4 and of the heads, {self.heads}"
            )
        return self

    @classmethod
    def named(cls, size: Size, *, chunk_frames: int = 1_024, n_bins: int = 128) -> EncoderConfig:
        """One of the named sizes, on a chunk of the given shape."""
        return cls(chunk_frames=chunk_frames, n_bins=n_bins, **ENCODER_SIZES[size])

    @property
    def token_grid(self) -> tuple[int, int]:
        """Tokens in time and in frequency, 64 × 8 for the paper."""
        return self.chunk_frames // self.patch, self.n_bins // self.patch


class MaeConfig(BaseModel):
    """Masked autoencoder; defaults are Table "Masked Audio pretraining hyperparameters"."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    encoder: EncoderConfig = EncoderConfig()
    decoder_width: int = Field(default=512, gt=0, le=65_536)
    decoder_depth: int = Field(default=8, gt=0, le=1_000)
    decoder_heads: int = Field(default=16, gt=0, le=1_000)
    # docs/paper_notes.md 7: to be settled by experiment
    masking: Masking = "uniform"
    mask_ratio: float = Field(
        default=0.75, gt=0, lt=1, description="share of patches hidden by uniform masking and by blocks"
    )
    time_mask_ratio: float = Field(
        default=0.6, ge=0, lt=1, description="share of time columns hidden, structured"
    )
    frequency_mask_ratio: float = Field(
        default=0.3, ge=0, lt=1, description="share of frequency rows hidden, structured"
    )
    normalise_targets: bool = Field(
        default=False, description="reconstruct each patch with its own mean and spread removed"
    )
    latent_weight: float = Field(
        default=0.0,
        ge=0,
        description="weight of predicting, too, what an averaged encoder makes of the hidden patches; not in the paper",
    )

    @classmethod
    def named(cls, size: Size, *, chunk_frames: int = 1_024, n_bins: int = 128) -> MaeConfig:
        """One of the named sizes, on a chunk of the given shape."""
        encoder = EncoderConfig.named(size, chunk_frames=chunk_frames, n_bins=n_bins)
        return cls.model_validate({"encoder": encoder, **DECODER_SIZES[size]})


class DetectorConfig(BaseModel):
    """Architecture and loss of a detector. Each ablation of the paper is one field.

    ``contrastive_weight = 0`` leaves the contrastive loss out, ``adapter = "none"`` the adapter.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    encoder: EncoderConfig = EncoderConfig()
    adapter: AdapterName = "upsampling"  # Table "Detector fine-tuning hyperparameters"
    channels: int = Field(
        default=256,
        gt=0,
        le=65_536,
        multiple_of=32,
        description='of adapter, pyramid and head, App. "Adapter Designs"',
    )
    detail: int = Field(
        default=0,
        ge=0,
        le=65_536,
        multiple_of=8,
        description="channels of a convolutional path from the spectrogram to the adapter's map, after its first step; "
        "0 for none, as in the paper",
    )
    levels: int = Field(
        default=4, ge=2, le=6, description="pyramid levels (P2–P5 in the tables; 3 for P3–P5)"
    )
    pyramid_blocks: int = Field(
        default=0,
        ge=0,
        le=100,
        description="residual blocks after each halving of the pyramid; none in the paper",
    )
    head_convs: int = Field(
        default=4, ge=1, le=1_000, description="layers of each head tower (4, as in FCOS)"
    )
    second_look: bool = Field(
        default=False,
        description="look at every proposed box again, and correct and score it by its own content; not in the paper",
    )
    assigner: Literal["atss", "centre"] = "atss"  # docs/paper_notes.md 9
    classification_loss: Literal["quality_focal", "focal"] = "quality_focal"  # docs/paper_notes.md 9
    # docs/paper_notes.md 9; without it, quality focal loss alone says how well a box fits
    centreness_in_score: bool = True
    nested: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="of two detections that share more than this of the smaller one, the lower-scored is dropped; "
        "1 keeps both, as in the paper",
    )
    # the paper names λ_cls, λ_box, λ_iou and gives no values: our choice, GIoU doubled as in ATSS
    classification_weight: float = Field(default=1.0, ge=0)
    corner_weight: float = Field(default=1.0, ge=0)
    giou_weight: float = Field(default=2.0, ge=0)
    centreness_weight: float = Field(default=1.0, ge=0)
    # Table "Detector fine-tuning hyperparameters"
    contrastive_weight: float = Field(
        default=0.5, ge=0, description="λ_con; 0.3 and 0.2 in the self-training stages"
    )
    contrastive_temperature: float = Field(default=0.1, gt=0)
    contrastive_dimension: int = Field(default=128, gt=0, le=65_536)
    contrastive_negatives: int = Field(default=32, gt=0, le=65_536, description="per image")
    contrastive_positives: int = Field(
        default=2, gt=0, le=1_000, description="jittered copies per box, our choice"
    )
    contrastive_jitter: float = Field(
        default=0.1, gt=0, lt=1, description="largest shift and stretch, our choice"
    )

    @classmethod
    def named(
        cls, size: Size, *, chunk_frames: int = 1_024, n_bins: int = 128, **fields: Any
    ) -> DetectorConfig:
        """One of the named sizes on a chunk of the given shape, with any other field changed.

        >>> from mast.models.architecture import DetectorConfig
        >>> config = DetectorConfig.named("tiny", detail=32)
        >>> config.encoder.width, config.channels, config.finest_grid
        (192, 32, (128, 32))
        """
        encoder = EncoderConfig.named(size, chunk_frames=chunk_frames, n_bins=n_bins)
        return cls.model_validate({"encoder": encoder, **DETECTOR_SIZES[size], **fields})

    @property
    def embedding_width(self) -> int:
        """Width of a box's vector: the encoder's features, and its look."""
        return self.encoder.width + LOOK_WIDTH

    @property
    def strides(self) -> tuple[float, float]:
        """Cells per cell of the finest level, time and frequency; 8 × 4 for the paper."""
        u_t, u_f = ADAPTER_UPSAMPLING[self.adapter]
        return self.encoder.patch / u_t, self.encoder.patch / u_f

    @property
    def finest_grid(self) -> tuple[int, int]:
        """Cells of the finest level, time and frequency; 128 × 32 for the paper."""
        (n_t, n_f), (u_t, u_f) = self.encoder.token_grid, ADAPTER_UPSAMPLING[self.adapter]
        return n_t * u_t, n_f * u_f
