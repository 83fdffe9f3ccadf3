"""What can be set for a run. The defaults are the paper's tables; presets (TOML) list differences only."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from mast.data.augment import AugmentConfig
from mast.errors import ConfigError
from mast.grid import FrontEnd
from mast.models.architecture import DetectorConfig, MaeConfig, Masking, Size
from mast.models.baselines import BaselineConfig, BaselineName
from mast.runs import RECIPE, load_inputs, refuse_foreign_files, refuse_other_inputs, save_inputs
from mast.settings import parse_settings
from mast.training.loop import Optimisation
from mast.training.schedule import Unfreezing

PRESETS = ("tiny", "small", "base", "paper")
# settings that do not change what is learnt, in whatever section; the band is also in the front end
BOOKKEEPING = ("workers", "compile", "save_every_s", "log_every_steps", "band_hz")


class PretrainRecipe(Optimisation):
    """Masked-audio pretraining; defaults are Table "Masked Audio pretraining hyperparameters"."""

    batch_size: int = Field(64, gt=0)
    epochs: int = Field(400, gt=0)
    warmup_epochs: float = Field(20.0, ge=0)
    lr: float = Field(5e-5, gt=0)
    min_lr: float = Field(5e-7, ge=0)
    weight_decay: float = Field(0.05, ge=0)
    betas: tuple[float, float] = (0.9, 0.95)
    ema_decay: float = Field(0.0, ge=0, lt=1, description="the paper averages detectors only")
    masking: Masking = "uniform"
    mask_ratio: float = Field(0.75, gt=0, lt=1)
    time_mask_ratio: float = Field(0.6, ge=0, lt=1)
    frequency_mask_ratio: float = Field(0.3, ge=0, lt=1)
    normalise_targets: bool = False
    latent_weight: float = Field(
        0.0,
        ge=0,
        description="of also predicting what the averaged encoder makes of hidden patches, as EAT does; needs "
        "ema_decay, such as 0.999; beyond the paper",
    )
    held_out: float = Field(
        0.02, gt=0, lt=1, description="share of recordings kept to measure reconstruction; our choice"
    )
    max_chunks: int | None = Field(None, gt=0, description="a random sample of this many; all by default")

    @model_validator(mode="after")
    def _an_average_to_learn_from(self) -> PretrainRecipe:
        if self.latent_weight and not self.ema_decay:
            raise ConfigError(
                "pretrain: latent_weight needs an average of the encoder to learn from; set pretrain.ema_decay, for "
                "example to 0.999"
            )
        return self


class TrainRecipe(Optimisation):
    """Detector training; defaults are Table "Detector fine-tuning hyperparameters"."""

    warmup_epochs: float = Field(
        10.0, ge=0, description="the paper gives none for this stage; our choice: 5 %"
    )
    start_lr_multiplier: float = Field(
        0.05,
        gt=0,
        description="of all rates in mast train and mast fit if they start from all weights of a detector: larger "
        "steps on a few boxes undo what it knows; our choice",
    )
    start_share: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="of the start's weights in the detector that is kept, where training starts from all weights of a "
        "detector; 0.5 keeps the mean of both, which mast train and mast fit do with few boxes",
    )
    backbone_lr_multiplier: float = Field(0.1, ge=0)
    adapter_lr_multiplier: float = Field(1.0, ge=0)
    head_lr_multiplier: float = Field(1.0, ge=0)
    top_blocks: int | Literal["all"] = Field(
        "all",
        description="encoder blocks that train, from the top; the paper unfreezes 'the top blocks' without a number",
    )
    unfreezing: Unfreezing | None = Field(
        None, description="gradual unfreezing instead of top_blocks (self-training); none for none"
    )
    augmentation: AugmentConfig | None = AugmentConfig()
    detector: dict[str, Any] = Field(
        {}, description="fields of DetectorConfig that differ from the size's own; options of a baseline"
    )
    nms_iou: float = Field(0.5, gt=0, le=1)
    score_threshold: float = Field(
        0.05, ge=0, lt=1, description="minimum score of boxes kept when validating"
    )

    @field_validator("unfreezing", mode="before")
    @classmethod
    def _none_is_none(cls, given: object) -> object:
        """TOML has no word for nothing."""
        return None if given == "none" else given


class Stage1Recipe(TrainRecipe):
    """Pseudo pretraining; defaults are Table "Staged self-training hyperparameters", Stage 1."""

    epochs: int = Field(80, gt=0)
    lr: float = Field(1e-4, gt=0)
    warmup_epochs: float = Field(8.0, ge=0)
    unfreezing: Unfreezing | None = Unfreezing()
    detector: dict[str, Any] = Field({"contrastive_weight": 0.3})


class Stage2Recipe(TrainRecipe):
    """Expert refinement; defaults are Table "Staged self-training hyperparameters", Stage 2."""

    epochs: int = Field(40, gt=0)
    lr: float = Field(5e-5, gt=0)
    warmup_epochs: float = Field(4.0, ge=0)
    backbone_lr_multiplier: float = Field(0.02, ge=0)
    unfreezing: Unfreezing | None = Unfreezing(
        warmup_epochs=3, interval_epochs=6, blocks_per_stage=6, lr_multiplier=0.05
    )
    augmentation: AugmentConfig | None = AugmentConfig(probability=0.8)
    detector: dict[str, Any] = Field({"contrastive_weight": 0.2})


class SelfTrainRecipe(BaseModel):
    """Pseudo-labels, Stage 1, Stage 2, again (App. "Self-training Operator and Two-Stage Curriculum")."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    rounds: int = Field(2, ge=1, description="1–2 in the paper")
    curriculum: Literal["full", "stage1", "stage2", "union"] = Field(
        "full", description='the ablations of Table "Self-training curriculum"'
    )
    threshold: Annotated[float, Field(ge=0, le=1)] | Literal["validation"] = Field(
        0.10, description="q; validation: the model's own threshold"
    )
    adaptive: Literal["none", "recording"] = Field(
        "none",
        description="recording: q(S) rises where a recording's boxes are less trustworthy than validation's "
        "(mast.selftrain.policy); beyond the paper",
    )
    doubtful: float | None = Field(
        None,
        ge=0,
        le=1,
        description="boxes that score from this up to q, and those that are not valid, are neither calls nor "
        "background, and unlabelled chunks without even one of them are mixed in as backgrounds; beyond the paper, "
        "where what is not a pseudo-label is background",
    )
    expert_share: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="union: the expert's chunks are repeated until they are about this share of all; beyond the "
        "paper, where each chunk is there once",
    )
    nms_iou: float = Field(0.5, gt=0, le=1, description="η")
    min_frames: float | None = Field(
        None,
        ge=0,
        description="validity: minimum length of a pseudo-box; by default, that of 99 in 100 of the expert's boxes",
    )
    min_bins: float | None = Field(
        None,
        ge=0,
        description="validity: minimum height of a pseudo-box; by default, that of 99 in 100 of the expert's boxes",
    )
    most_in_a_row: int | None = Field(
        None,
        ge=1,
        description="with doubtful: where more boxes than this follow each other closely in one band, all of them are "
        "doubtful: they may be the notes of one song; as 98 in 100 of the expert's boxes, at least 3, by default",
    )
    border_frames: int = Field(
        16,
        ge=0,
        description="validity: a box wholly within this of the chunk's edge is a remnant; our choice",
    )
    confidence_weighting: bool = Field(True, description="weight ḡ(S) on the detection loss of Stage 1")
    empty_weight: float = Field(
        0.1, ge=0, description="of a chunk without pseudo-boxes, kept as background; our choice"
    )
    max_chunks: int | None = Field(
        None,
        gt=0,
        description="a random sample of the unlabelled chunks, a new one in each round; all by default",
    )
    average: bool = Field(
        False,
        description="the mean of the weights after all rounds so far is what labels the next round and what is kept; "
        "beyond the paper, where the last round's weights do",
    )
    thorough: bool = Field(
        False,
        description="every labeller searches each chunk at three playing speeds, and the boxes are merged "
        "(mast.selftrain.thorough); three times slower; beyond the paper",
    )
    stop_when_no_gain: bool = Field(
        False,
        description="a round whose F1 on in-domain validation is not above the best so far is the last, and the "
        "best model is kept; beyond the paper, which keeps the last round's",
    )
    measure_other_parts: bool = Field(
        True, description="measure test and out-of-domain parts after each stage, for the report alone"
    )
    stage1: Stage1Recipe = Stage1Recipe()
    stage2: Stage2Recipe = Stage2Recipe()

    @model_validator(mode="after")
    def _adaptive_has_room(self) -> SelfTrainRecipe:
        if self.adaptive != "none" and self.threshold == "validation":
            raise ConfigError(
                "selftrain: adaptive thresholds lie between selftrain.threshold and the model's own, so with "
                "threshold = validation there is nothing to adapt; give a number such as 0.1, or adaptive = none"
            )
        return self


class Recipe(BaseModel):
    """Everything that decides the result of a run, apart from the data and the seed.

    >>> from mast.training.recipe import load_recipe
    >>> recipe = load_recipe("tiny", {"train.epochs": 5})
    >>> recipe.size, recipe.train.epochs, recipe.front_end.chunk_s
    ('tiny', 5, 10.24)
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    model: Literal["mast", BaselineName] = Field("mast", description="which detector mast train trains")
    size: Size = Field("base", description="of MAST; a baseline has one size and its own options")
    band_hz: float | None = Field(
        None,
        gt=0,
        description="upper edge of the requested band; without it the start's own, or the front end's",
    )
    front_end: FrontEnd = Field(FrontEnd(), description="as it is used: played at the speed of the band")
    levelled: bool = Field(
        False,
        description="beyond the paper: subtract each bin's quiet level from every chunk before normalising, which "
        "removes a recorder's gain and steady noise",
    )
    precision: Literal["auto", "fp32", "bf16", "fp16"] = Field(
        "auto", description="auto: bf16 on a GPU that has it, else fp32"
    )
    compile: bool | None = Field(None, description="torch.compile; MAST on a GPU by default")
    workers: int | None = Field(
        None, ge=0, description="decoding processes; chosen by the machine by default"
    )
    pretrain: PretrainRecipe = PretrainRecipe()
    train: TrainRecipe = TrainRecipe()
    selftrain: SelfTrainRecipe = SelfTrainRecipe()

    @property
    def detector(self) -> DetectorConfig | BaselineConfig:
        """The detector of this size on this front end, or the baseline, with the recipe's changes."""
        return self.detector_for(self.train)

    def detector_for(self, plan: TrainRecipe) -> DetectorConfig | BaselineConfig:
        """The same for another stage, which may change the loss again."""
        shape = {"chunk_frames": self.front_end.chunk_frames, "n_bins": self.front_end.n_bins}
        if self.model != "mast":
            options = {"name": self.model, "options": self.train.detector, **shape}
            return parse_settings(BaselineConfig, options, where="train.detector")
        named = DetectorConfig.named(self.size, **shape)
        changes = self.train.detector | plan.detector
        if self.train.detector.get("contrastive_weight") == 0:
            changes["contrastive_weight"] = 0.0  # switched off is off in every stage
        return parse_settings(DetectorConfig, named.model_dump() | changes, where="train.detector")

    @property
    def autoencoder(self) -> MaeConfig:
        """The masked autoencoder of this size on this front end."""
        shape = {"chunk_frames": self.front_end.chunk_frames, "n_bins": self.front_end.n_bins}
        chosen = {
            name: getattr(self.pretrain, name)
            for name in MaeConfig.model_fields
            if name in PretrainRecipe.model_fields
        }
        return MaeConfig.named(self.size, **shape).model_copy(update=chosen)


def load_recipe(source: str | Path, overrides: Mapping[str, Any] | None = None) -> Recipe:
    """A preset by name or a TOML file, with overrides such as ``{"train.epochs": 5}`` on top.

    >>> load_recipe("tiny", {"train.epochs": 5}).train.epochs
    5
    """
    name = str(source)
    if name in PRESETS:
        text = (resources.files("mast") / "presets" / f"{name}.toml").read_bytes()
    elif Path(source).is_file():
        text = Path(source).read_bytes()
    else:
        raise ConfigError(f"{name}: no such recipe; expected a TOML file or one of {', '.join(PRESETS)}")
    try:
        values = tomllib.loads(text.decode())
    except (ValueError, RecursionError) as error:  # not TOML, not UTF-8, numbers of thousands of digits
        raise ConfigError(f"{name}: not valid TOML ({error})") from None
    for dotted, value in (overrides or {}).items():
        _set_nested(values, dotted.split("."), value)
    recipe = parse_settings(Recipe, values, where=name)
    if recipe.band_hz is not None:
        front_end = recipe.front_end.at_band(recipe.band_hz)
        recipe = recipe.model_copy(update={"front_end": front_end})
    _ = recipe.detector  # its fields are checked here, not an hour into the run
    return recipe


def parse_override(text: str) -> tuple[str, Any]:
    """``train.epochs=5`` → ("train.epochs", 5); values are TOML, bare words are text, null is None (recipe.json)."""
    name, sign, raw = text.partition("=")
    if not sign or not name.strip():
        raise ConfigError(f"setting '{text}' is not of the form name=value, such as train.epochs=5")
    if raw.strip() == "null":
        return name.strip(), None
    try:
        value = tomllib.loads(f"value = {raw.strip()}")["value"]
    except (ValueError, RecursionError):
        value = raw.strip()
    return name.strip(), value


def _set_nested(values: dict[str, Any], path: list[str], value: Any) -> None:
    for key in path[:-1]:
        values = values.setdefault(key, {})
    values[path[-1]] = value


def check_and_save_recipe(recipe: Recipe, out: Path, *, about: Mapping[str, Any]) -> None:
    """Write the resolved recipe into a run's folder; refuse to continue a run that was started with another one.

    Args:
        recipe: as resolved.
        out: the run's folder.
        about: what else decides the result (data, seed).
    """
    refuse_foreign_files(out, RECIPE)
    before = load_inputs(out / RECIPE, "recipe")
    if before is not None:
        instead = "choose another --out, or delete it to start again"
        now = {"recipe": recipe.model_dump(mode="json"), **about}
        refuse_other_inputs(out, before, now, instead=instead, ignore=BOOKKEEPING)
    save_recipe(recipe, out, about=about)


def save_recipe(recipe: Recipe, out: Path, *, about: Mapping[str, Any]) -> None:
    """:func:`check_and_save_recipe` without the check: the folder is known to be one that may be continued."""
    save_inputs(out / RECIPE, {"recipe": recipe.model_dump(mode="json"), **about})
