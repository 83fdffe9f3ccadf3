"""Starting from a model: what training takes over from it. Decided here and nowhere else, in this order:

1. which model it is: as users name one, or a file of weights from elsewhere (:meth:`Start.find`);
2. its front end, played at the speed of the requested band, and its architecture (:meth:`Start.adapt_recipe`);
3. smaller steps, where all its weights are the start (:meth:`Start.gentle_plan`);
4. its threshold and what its scores mean, where validation has too few boxes to say (:meth:`Start.threshold`,
   :meth:`Start.calibration`);
5. the statistics of sound that it was trained with (:attr:`Start.normalisation`);
6. its weights: all, those that detect, or the encoder's (:meth:`Start.load_into`).

The recipe decides everything else. What was set by hand is kept: a front end must then fit the model's, and only the
encoder is taken from a model of another shape. The stages of self-training have their own rates and choose their
thresholds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from mast.errors import ConfigError
from mast.evaluation.evidence import FEW_BOXES, TrainingEvidence
from mast.grid import FrontEnd
from mast.models.architecture import DetectorConfig, MaeConfig
from mast.models.baselines import BaselineConfig
from mast.models.card import ModelCard, load_card
from mast.models.checkpoint import load_audiomae, load_checkpoint, load_encoder, load_weights
from mast.models.find import find_model
from mast.models.interface import BoxDetector
from mast.models.mae import MaskedAutoencoder
from mast.models.mast_detector import MastDetector
from mast.normalisation import Normalisation
from mast.probability import StoredCalibration
from mast.training.chosen_chunks import Chunks
from mast.training.recipe import Recipe, TrainRecipe

# fields that decide which weights there are
_SHAPE = ("encoder", "adapter", "detail", "channels", "levels", "pyramid_blocks", "head_convs", "second_look")
HALF = 0.5  # our choice, before other shares were measured: the middle between the start and what few boxes make of it
_BEFORE = " (before training)"  # of data that a start was calibrated on
_DETECTING = ("encoder", "adapter", "detail", "pyramid", "head", "second")


@dataclass(frozen=True)
class Start:
    """What a training starts from; nothing by default.

    Attributes:
        path: a model folder, or a file of weights from elsewhere.
        card: of the model folder.
    """

    path: Path | None = None
    card: ModelCard | None = None

    @classmethod
    def find(cls, name: str | Path | None) -> Start:
        """The start that a user names as :func:`mast.models.find.find_model` takes it, or by a file; None for none."""
        if name is None:
            return cls()
        path = find_model(name, or_file=True)
        return cls(path, load_card(path) if path.is_dir() else None)

    @property
    def folders(self) -> list[Path]:
        """The model folder, if it is one."""
        return [] if self.card is None or self.path is None else [self.path]

    @property
    def is_detector(self) -> bool:
        """Whether it finds boxes already: not if it is an encoder, a file or nothing."""
        return self.card is not None and self.card.kind == "detector"

    @property
    def detector(self) -> DetectorConfig | None:
        """The architecture of a detector of MAST; None for all else."""
        architecture = self.card.architecture if self.card is not None else None
        return architecture if isinstance(architecture, DetectorConfig) else None

    def adapt_recipe(self, recipe: Recipe) -> Recipe:
        """The recipe with the detector's front end, its architecture and whether its boxes may nest."""
        own = self.detector
        if own is None or recipe.model != "mast":
            return recipe
        recipe = recipe.model_copy(update={"front_end": self._front_end(recipe)})
        by_hand, wanted = recipe.train.detector, recipe.detector
        assert isinstance(wanted, DetectorConfig)
        taken = {}
        if not same_fields(own, wanted) and not set(_SHAPE) & set(by_hand):
            taken = own.model_dump(mode="json", include=set(_SHAPE))
        if "nested" not in by_hand and own.nested != wanted.nested:
            taken["nested"] = own.nested
        plan = recipe.train.model_copy(update={"detector": by_hand | taken})
        return recipe.model_copy(update={"train": plan})

    def _front_end(self, recipe: Recipe) -> FrontEnd:
        """The model's own, at the requested band: a detector for birds finds fish played four times faster."""
        assert self.card is not None
        own, band_hz = self.card.front_end, recipe.band_hz
        if recipe.front_end != (FrontEnd() if band_hz is None else FrontEnd.for_band(band_hz)):
            return recipe.front_end  # set by hand
        return own if band_hz is None else own.at_band(band_hz)

    def gentle_plan(self, recipe: Recipe) -> TrainRecipe:
        """The recipe's training, with smaller steps where all weights of a detector are the start."""
        plan, own, wanted = recipe.train, self.detector, recipe.detector
        if own is None or not isinstance(wanted, DetectorConfig) or not same_fields(own, wanted):
            # no mean where some of the weights are new
            return plan.model_copy(update={"start_share": 0.0})
        factor = plan.start_lr_multiplier
        return plan.model_copy(update={"lr": plan.lr * factor, "min_lr": plan.min_lr * factor})

    def share(self, learnt: TrainingEvidence, val_chunks: Chunks, front_end: FrontEnd) -> float:
        """The share of the detector's weights that is kept in what is trained from it: half, if boxes are few.

        From ten boxes of fish or birds the mean was never worse than the detector it started from, while training alone
        gains more on some recordings and loses on others (docs/zero_shot.md). Where boxes are cut down to the strongest
        harmonic afterwards (bats), nothing is averaged: the mean draws neither as before nor as the user does.

        Args:
            learnt: what is trained on.
            val_chunks: to validate on.
            front_end: of the run.
        """
        if self.threshold(val_chunks) is None or learnt.is_plenty:
            return 0.0
        assert self.card is not None
        habit = self.card.at_band(front_end.high_hz).habit
        return HALF if habit is None or habit.changes_nothing else 0.0

    def threshold(self, val_chunks: Chunks) -> float | None:
        """The detector's threshold, where validation has too few boxes to choose another.

        Eleven boxes of fish chose one at which F1 fell from 0.72 to 0.37, while the ranking of boxes had improved.
        """
        if self.card is None or not self.is_detector or val_chunks.n_boxes >= FEW_BOXES:
            return None
        return self.card.thresholds.get("score")

    def calibration(self, val_chunks: Chunks) -> StoredCalibration | None:
        """What the detector's scores mean, where validation has too few boxes to measure it again."""
        stored = self.card.calibration if self.card is not None else None
        if stored is None or self.threshold(val_chunks) is None:
            return None
        return before_training(stored)

    @property
    def normalisation(self) -> Normalisation | None:
        """The statistics that the model was trained with; a file of weights has none."""
        return None if self.card is None else self.card.normalisation

    def load_into(self, model: BoxDetector, recipe: Recipe) -> str:
        """Load the weights that fit into a detector; says which those are.

        Raises:
            ConfigError: the model was made for another front end, or is of another kind.
        """
        if self.path is None:
            return ""
        if self.card is None:
            if isinstance(model, MastDetector):
                return load_audiomae(model, self.path).note
            return model.load_backbone(self.path)
        self.check_front_end(recipe.front_end)
        if not isinstance(model, MastDetector) or isinstance(self.card.architecture, BaselineConfig):
            if self.card.architecture != model.config:
                raise ConfigError(
                    f"{self.path}: holds {_kind(self.card)}, which {recipe.model} with these settings cannot start "
                    "from; leave --init out, or give a model of the same kind"
                )
            load_weights(model, self.path)
            return f"all weights of the detector in {self.path}"
        own, wanted = self.detector, model.config
        if own is not None and same_shape(own, wanted):
            load_weights(model, self.path)
            return f"all weights of the detector in {self.path}"
        if own is not None and same_fields(own, wanted):
            _copy_parts(model, load_checkpoint(self.path).model)
            return f"all weights of the detector in {self.path} but those of the contrastive loss"
        if own is not None and _only_detail_is_new(own, wanted):
            _copy_parts(model, load_checkpoint(self.path).model)
            return f"all weights of the detector in {self.path}, with a new detail path beside them"
        load_encoder(model, self.path)
        return f"encoder of {self.path}"

    def load_into_autoencoder(self, model: MaskedAutoencoder) -> str:
        """The same for pretraining."""
        if self.path is None:
            return ""
        if self.card is None:
            return load_audiomae(model, self.path).note
        own = self.card.architecture
        if isinstance(own, MaeConfig) and bool(own.latent_weight) == bool(model.config.latent_weight):
            load_weights(model, self.path)
            return f"continued from {self.path}"
        load_encoder(model, self.path)
        return f"encoder of {self.path}; a fresh decoder"

    def check_front_end(self, front_end: FrontEnd) -> None:
        """Refuse a model that was made for another picture of sound than this run's.

        A detector may be used at another playing speed. A model pretrained on another band is refused all the same:
        there, a forgotten --band is more likely.
        """
        if self.card is None or self.card.front_end == front_end:
            return
        own = self.card.front_end
        if not self.is_detector or not _same_front_end(front_end, own.at_band(front_end.high_hz)):
            raise ConfigError(
                f"{self.path}: was trained on a front end for {own.low_hz:g}–{own.high_hz:g} Hz, but this run looks at "
                f"{front_end.low_hz:g}–{front_end.high_hz:g} Hz; use the same front end"
            )


def same_shape(a: DetectorConfig, b: DetectorConfig) -> bool:
    """Whether one detector's weights fit the other: the loss may differ, except for the projection's presence."""
    same_loss = (a.contrastive_weight > 0) == (b.contrastive_weight > 0)
    return same_loss and a.contrastive_dimension == b.contrastive_dimension and same_fields(a, b)


def before_training(stored: StoredCalibration) -> StoredCalibration:
    """A start's calibration for the detector that was trained from it, which says so.

    What the start found on recordings of experts is left out: that was the detector before training.
    """
    curve = tuple(point.model_copy(update={"found": {}}) for point in stored.curve)
    data = f"{stored.data.removesuffix(_BEFORE) or 'the starting model'}{_BEFORE}"
    return stored.model_copy(update={"curve": curve, "data": data})


def same_fields(a: DetectorConfig, b: DetectorConfig) -> bool:
    """Whether the parts that detect have the same weights; the contrastive loss has one of its own."""
    return all(getattr(a, name) == getattr(b, name) for name in _SHAPE)


def _only_detail_is_new(start: DetectorConfig, wanted: DetectorConfig) -> bool:
    """Whether all of a detector's weights fit another one, which has a detail path in addition."""
    return start.detail == 0 and same_fields(start.model_copy(update={"detail": wanted.detail}), wanted)


def _copy_parts(model: MastDetector, start: nn.Module) -> None:
    """Copy the weights of those parts that detect and that both have."""
    for part in (name for name in _DETECTING if hasattr(model, name) and hasattr(start, name)):
        getattr(model, part).load_state_dict(getattr(start, part).state_dict())


def _same_front_end(a: FrontEnd, b: FrontEnd) -> bool:
    """Whether they are the same apart from rounding: sample rates are whole numbers."""
    pairs = zip(a.model_dump().values(), b.model_dump().values(), strict=True)
    return all(math.isclose(x, y, rel_tol=1e-3) for x, y in pairs)


def _kind(card: ModelCard) -> str:
    """What a model folder holds, in words."""
    if isinstance(card.architecture, BaselineConfig):
        return f"the baseline {card.architecture.name}"
    return "a MAST detector" if isinstance(card.architecture, DetectorConfig) else "a pretrained encoder"
