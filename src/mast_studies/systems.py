"""The systems that the paper compares: the start, detector and training data of each.

A system is trained once on a dataset and a seed, and every study that names it uses the same one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from mast.data.augment import AugmentConfig
from mast.models.architecture import DetectorConfig
from mast.models.baselines import BaselineName
from mast_studies.label_budgets import STRATEGIES, Strategy

Curriculum = Literal["full", "stage1", "stage2", "union"]
LAST_STAGE: Mapping[Curriculum, str] = {
    "full": "stage2",
    "stage1": "stage1",
    "stage2": "stage2",
    "union": "union",
}
NO_CONTRAST = MappingProxyType({"train.detector.contrastive_weight": 0.0})
NO_ADAPTER = MappingProxyType({"train.detector.adapter": "none"})


@dataclass(frozen=True)
class SelfTraining:
    """Rounds of self-training on the unlabelled sound.

    Attributes:
        start: name of the system whose detector is improved; the settings are that system's.
        curriculum: which stages a round has.
        rounds: how many are trained.
        use_round: the system is the model after this many rounds; all by default. So each round of a run can be a
            system.
        teachers: names of the systems that label together with the model (mast.selftrain.labelling).
    """

    start: str
    curriculum: Curriculum = "full"
    rounds: int = 2
    use_round: int | None = None
    teachers: tuple[str, ...] = ()

    @property
    def used_round(self) -> int:
        """The round whose model counts."""
        return self.rounds if self.use_round is None else self.use_round

    @property
    def run(self) -> str:
        """Name of the training run, which systems taken after different rounds share."""
        taught = f".{'+'.join(self.teachers)}" if self.teachers else ""
        return f"{self.start}.{self.curriculum}{self.rounds}{taught}"


@dataclass(frozen=True)
class Budget:
    """Only some of the training chunks have labels."""

    strategy: Strategy
    chunks: int


@dataclass(frozen=True)
class System:
    """One row of a table.

    Attributes:
        name: in commands and as a folder name; letters, digits, ``_``, ``-``, ``+`` and spaces.
        title: its name in tables.
        detector: ``mast`` or a baseline.
        init: where it starts: ``none`` (from scratch), an encoder ``pretrained`` on the dataset's own sound or, if
            ``generic``, on other sound, or the ``embedded`` detector, which `mast fit` then fits.
        settings: settings that differ from the preset's recipe, by dotted names.
        self_training: the self-training that follows, if any.
        budget: how much of the training part is labelled; all of it by default.
    """

    name: str
    title: str
    detector: Literal["mast"] | BaselineName = "mast"
    init: Literal["none", "pretrained", "generic", "embedded"] = "none"
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    self_training: SelfTraining | None = None
    budget: Budget | None = None


BASELINES = (
    System("faster_rcnn", "Faster R-CNN", detector="faster_rcnn"),
    System("fcos", "FCOS", detector="fcos"),
    System("yolo26", "YOLO26", detector="yolo26"),
    System("detr", "DETR", detector="detr"),
)
# Table "Pipeline ablation" removes one thing after another, and its AudioSet row is the AudioMAE of the main tables, so
# that has neither contrastive loss nor adapter.
GENERIC = System("audiomae", "AudioMAE", init="generic", settings=NO_CONTRAST | NO_ADAPTER)
MAST = System("mast", "MAST", init="pretrained")
SELF_TRAINED = System("mast_st", "MAST + ST", init="pretrained", self_training=SelfTraining("mast"))
MAIN = (*BASELINES, GENERIC, MAST, SELF_TRAINED)

NO_CONTRASTIVE = System("no_contrastive", "− contrastive loss", init="pretrained", settings=NO_CONTRAST)
PLAIN = System("no_adapter", "− adapter", init="pretrained", settings=NO_CONTRAST | NO_ADAPTER)
SCRATCH = System("scratch", "− all pretraining", settings=NO_CONTRAST | NO_ADAPTER)
# The first of steps that add one thing each: it has the adapter of those that follow, so that the next step is
# pretraining and nothing else.
SCRATCH_ADAPTER = System("scratch_adapter", "from scratch", settings=NO_CONTRAST)

ADAPTERS = tuple(
    System(
        f"adapter_{name}",
        f"{name} adapter".replace("none", "no"),
        init="pretrained",
        settings={"train.detector.adapter": name},
    )
    for name in ("none", "conv", "anisotropic")
)

# Beyond the paper: what convolutions next to the encoder gain (mast.models.detail), and what pretraining as long as the
# paper's gains, for which half-hour presets have no time.
DETAIL = MappingProxyType({"train.detector.detail": 32})
SCRATCH_DETAIL = System("scratch_detail", "from scratch, detail path", settings=NO_CONTRAST | DETAIL)
MAST_DETAIL = System("mast_detail", "MAST, detail path", init="pretrained", settings=DETAIL)
DETAIL_TRAINED = System(
    "mast_detail_st",
    "MAST + ST, detail path",
    init="pretrained",
    settings=DETAIL,
    self_training=SelfTraining("mast_detail"),
)
# Latent targets and masking by blocks instead of plain reconstruction, as EAT pretrains (mast.models.mae).
LATENT = MappingProxyType(
    {"pretrain.latent_weight": 1.0, "pretrain.ema_decay": 0.999, "pretrain.masking": "blocks"}
)
MAST_LATENT = System("mast_latent", "MAST, latent targets", init="pretrained", settings=LATENT)
MAST_LONG = System(
    "mast_long", "MAST, 400 epochs of pretraining", init="pretrained", settings={"pretrain.epochs": 400}
)
MAST_LONG_DETAIL = System(
    "mast_long_detail",
    "MAST, 400 epochs of pretraining, detail path",
    init="pretrained",
    settings=DETAIL | {"pretrain.epochs": 400},
)

# Beyond the paper: what the preset gives every system (levelling, strong augmentation; to MAST a finer map and a second
# look) against the method as published, and how much of its gain comes from unlabelled sound.
PUBLISHED = System(
    "mast_paper",
    "MAST, as published",
    init="pretrained",
    settings={
        "levelled": False,
        "train.augmentation": AugmentConfig().model_dump(mode="json"),
        **{
            f"train.detector.{name}": DetectorConfig.model_fields[name].default
            for name in ("adapter", "detail", "pyramid_blocks", "second_look", "centreness_in_score")
        },
    },
)
FROM_SCRATCH = System("from_scratch", "MAST, from scratch")
SCRATCH_ST, SCRATCH_ST_1 = (
    System(
        name,
        title,
        self_training=SelfTraining("from_scratch", curriculum="union", use_round=number),
    )
    for name, title, number in (
        ("from_scratch_st", "MAST + ST, from scratch", 2),
        ("from_scratch_st_1", "MAST + ST, from scratch, round 1", 1),
    )
)
# Detectors of two kinds label together, since they make different mistakes: in world 4 the fused boxes of MAST and
# Faster R-CNN are better than those of either by 0.04 F1 at other sites, the fused boxes of two MASTs by 0.01. A box
# that only one of them finds has at most half the score, so the range of doubtful scores starts lower.
TAUGHT_ST, TAUGHT_ST_1 = (
    System(
        name,
        title,
        settings={"selftrain.doubtful": 0.1},
        self_training=SelfTraining(
            "from_scratch",
            curriculum="union",
            use_round=number,
            teachers=("faster_rcnn",),
        ),
    )
    for name, title, number in (
        ("taught_st", "MAST + ST, taught with Faster R-CNN", 2),
        ("taught_st_1", "MAST + ST, taught with Faster R-CNN, round 1", 1),
    )
)
DOUBTFUL_ST = System(
    "st_full_doubt",
    "MAST + ST, one round, doubtful boxes left out",
    init="pretrained",
    settings={"selftrain.doubtful": 0.2},
    self_training=SelfTraining("mast", rounds=1),
)
BASELINE_ST = System(
    "faster_rcnn_st",
    "Faster R-CNN + ST",
    detector="faster_rcnn",
    self_training=SelfTraining("faster_rcnn", curriculum="union"),
)

# Beyond the paper: what somebody with a few boxes of their own would do.
FITTED = System("fitted", "MAST, fitted from the embedded model", init="embedded")

ROUND_1 = System(
    "mast_st_1", "MAST + ST, round 1", init="pretrained", self_training=SelfTraining("mast", use_round=1)
)
# The paper's table shows the full curriculum after one round (0.5442 is its round 1), so the others have one round,
# too.
_TITLES: dict[Curriculum, str] = {
    "stage1": "Stage 1 only",
    "stage2": "Stage 2 only",
    "union": "one-stage union",
}
CURRICULA = tuple(
    System(
        f"st_{curriculum}",
        title,
        init="pretrained",
        self_training=SelfTraining("mast", curriculum=curriculum, rounds=1),
    )
    for curriculum, title in _TITLES.items()
)


def budget_systems(budgets: tuple[int, ...]) -> list[System]:
    """FCOS from scratch on some of the labels, as in App. "Label Budget": every strategy at every budget."""
    return [
        System(
            f"fcos_{strategy}_{chunks}",
            f"FCOS, {chunks} chunks, {strategy}",
            detector="fcos",
            budget=Budget(strategy, chunks),
        )
        for strategy in STRATEGIES
        for chunks in budgets
    ]
