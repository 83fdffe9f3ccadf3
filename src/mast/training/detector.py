"""Training of the box detector on expert labels (Sec. Methods, "Supervised detection on expert labels")."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from mast.data.chunk_dataset import Batch, ChunkDataset, collate
from mast.data.noise import NoiseBank
from mast.data.recordings import Dataset, load_dataset
from mast.data.splits import SplitConfig
from mast.errors import ConfigError
from mast.features import Normalisation
from mast.grid import FrontEnd
from mast.models.baselines import BaselineConfig, build_baseline
from mast.models.checkpoint import (
    ModelCard,
    load_audiomae,
    load_card,
    load_checkpoint,
    load_encoder,
    load_weights,
    save_checkpoint,
)
from mast.models.detector import DetectorConfig, MastDetector
from mast.models.find import find_model
from mast.models.interface import BoxDetector
from mast.runs import Progress
from mast.training.batches import Batches, step_generator, step_seed
from mast.training.calibrate import calibrate_checkpoint
from mast.training.groups import (
    baseline_multipliers,
    encoder_multipliers,
    parameter_groups,
    set_trainable,
)
from mast.training.loop import Job, Result, train
from mast.training.machine import Machine, prepare_machine
from mast.training.measure import chunk_metrics, detect_chunks
from mast.training.normalisation import normalisation_of_card
from mast.training.pretrain import batch_names, statistics_of
from mast.training.recipe import Recipe, TrainRecipe, remember_recipe
from mast.training.sources import Chunks, decode_once, labelled_chunks, normalisation_of
from mast.training.spectrograms import FrontEndPipeline
from mast.version import provenance_of_code

FEW_BOXES = 20  # on validation, below which a start's own threshold is kept; our choice
_AUGMENTATION = 1  # streams of random numbers, apart from each other
_CONTRASTIVE = 2
# fields that decide which weights there are
_SHAPE = ("encoder", "adapter", "detail", "channels", "levels", "head_convs")
_DETECTING = ("encoder", "adapter", "detail", "pyramid", "head")


class DetectorObjective(nn.Module):
    """The loss of one step on an augmented batch: L_det + λ_con L_con, or a baseline's own."""

    def __init__(self, model: BoxDetector, pipeline: FrontEndPipeline, *, seed: int, rank: int) -> None:
        super().__init__()
        self.model, self.pipeline, self.seed, self.rank = model, pipeline, seed, rank

    def forward(self, batch: Batch, step: int) -> dict[str, Tensor]:
        """A batch of chunks with boxes → every term of the loss."""
        choices = torch.Generator().manual_seed(step_seed(self.seed + self.rank, step, _AUGMENTATION))
        seen = self.pipeline(batch, choices)
        draws = step_generator(self.seed + self.rank, step, seen.spectrograms.device, _CONTRASTIVE)
        return self.model.loss(seen.spectrograms, seen.boxes, weights=seen.weights, generator=draws)


def train_detector(
    data: Path | Dataset,
    out: Path,
    recipe: Recipe,
    *,
    init: str | Path | None = None,
    split: SplitConfig | None = None,
    seed: int = 0,
    accelerator: Accelerator | None = None,
    progress: Progress | None = None,
    stop_after: int | None = None,
) -> Result:
    """Train a detector; ends in ``out/best`` and ``out/last``, model folders with threshold and statistics.

    A finished run calibrates ``out/best``: what its scores mean, and the threshold for a precision.

    Args:
        data: a labelled dataset, or its folder.
        out: the run's folder; a killed run there is continued.
        recipe: sizes and hyperparameters.
        init: where it starts, as :func:`mast.models.find.find_model` takes it: a detector, of which all weights are
            taken (see :func:`adopt`); a pretraining run or AudioMAE's file, of which the encoder is. A baseline starts
            from a model of its own kind, or its backbone from a file of weights that fits.
        split: how the dataset is divided; 70/15/15 by recording by default.
        seed: of split, order, augmentation and start.
        accelerator: device, precision and processes; made from the recipe by default.
        progress: called with steps done, steps in all, and a short text.
        stop_after: end after this many steps, as a kill would (for tests).
    """
    start = None if init is None else find_model(init, or_file=True)
    recipe = adopt(recipe, start)
    machine = prepare_machine(recipe, accelerator)
    dataset = data if isinstance(data, Dataset) else load_dataset(data)
    about = {
        "kind": "detector",
        "data": str(dataset.root),
        "seed": seed,
        "init": str(start or ""),
        "split": (split or SplitConfig()).model_dump(mode="json"),
    }
    if machine.main:
        remember_recipe(recipe, out, about=about)
    parts = labelled_chunks(dataset, recipe.front_end, split=split, seed=seed)
    plan, threshold = _gentle(recipe, start), kept_threshold(start, parts["val"])
    run = DetectorRun(recipe, plan, machine, out, about, start, seed, threshold)
    return fit_detector(parts["train"], parts["val"], run, progress=progress, stop_after=stop_after)


@dataclass(frozen=True)
class DetectorRun:
    """What decides a detector's training, next to the chunks it sees."""

    recipe: Recipe
    plan: TrainRecipe  # of this stage; the recipe's own or one of self-training's
    machine: Machine
    out: Path
    about: dict[str, Any]  # for the checkpoint: data, seed, where it came from
    init: Path | None
    seed: int
    threshold: float | None = None  # instead of that which validation would choose


def fit_detector(
    learn: Chunks,
    held: Chunks,
    run: DetectorRun,
    *,
    progress: Progress | None = None,
    stop_after: int | None = None,
) -> Result:
    """Train on some chunks, validate on others; expert labels and pseudo-labels alike.

    Args:
        learn: chunks with boxes and weights.
        held: labelled chunks that do not overlap, for the threshold, the choice of the best epoch and calibration.
        run: everything else.
        progress: as in :func:`train_detector`.
        stop_after: as in :func:`train_detector`.
    """
    recipe, plan, machine, out, seed = run.recipe, run.plan, run.machine, run.out, run.seed
    config = recipe.detector_for(plan)
    torch.manual_seed(seed)
    model: BoxDetector = (
        MastDetector(config) if isinstance(config, DetectorConfig) else build_baseline(config)
    )
    normalisation, note = _start_from(model, run.init, recipe)
    learn, held = (
        decode_once(c, machine.device, workers=machine.workers, progress=progress) for c in (learn, held)
    )
    if normalisation is None:
        normalisation = normalisation_of(
            [learn],
            recipe.front_end,
            out / "normalisation.json",
            seed=seed,
            device=machine.device,
            workers=machine.workers,
            levelled=recipe.levelled,
            progress=progress,
        )
    if progress:
        progress(0, 0, "reading chunks without boxes as backgrounds")
    noise = _noise_bank(learn, plan, seed)
    pipeline = FrontEndPipeline(
        recipe.front_end,
        normalisation,
        augmentation=plan.augmentation,
        noise=noise.to(machine.device) if noise else None,
    )
    rank, world = machine.accelerator.process_index, machine.accelerator.num_processes
    batches = Batches(
        learn.examples,
        collate,
        batch_size=plan.batch_size,
        seed=seed,
        workers=machine.workers,
        rank=rank,
        world=world,
        pin=machine.device.type == "cuda",
        take=learn.take if learn.sound is not None else None,
    )

    def validate(shown: nn.Module) -> dict[str, float]:
        with machine.accelerator.autocast():
            measured = detect_chunks(
                shown,
                held,
                pipeline,
                batch_size=machine.eval_batch(plan.batch_size),
                workers=machine.workers,
                score_threshold=plan.score_threshold,
                nms_iou=plan.nms_iou,
            )
        return chunk_metrics(measured)

    code = provenance_of_code()

    def save(shown: nn.Module, folder: Path, state: dict[str, Any]) -> None:
        card = ModelCard(
            kind="detector",
            architecture=config,
            front_end=recipe.front_end,
            normalisation=statistics_of(normalisation),
            thresholds={
                "score": state["metrics"]["threshold"] if run.threshold is None else run.threshold,
                "nms_iou": plan.nms_iou,
            },
            provenance={
                **run.about,
                **state,
                "notes": [note] if note else [],
                "chunks": len(learn),
                "recipe": recipe.model_dump(mode="json"),
                **code,
            },
        )
        save_checkpoint(folder, shown, card)

    multipliers, set_trainable_in = _trainable(model, plan, pretrained=run.init is not None)
    machine.compile(model)
    job = Job(
        objective=DetectorObjective(model, pipeline, seed=seed, rank=rank),
        model=model,
        batches=batches,
        optimisation=plan,
        groups=lambda: parameter_groups(
            model.named_parameters(), lr=plan.lr, weight_decay=plan.weight_decay, multipliers=multipliers
        ),
        set_trainable=set_trainable_in,
        validate=validate,
        save=save,
        better="f1",
        describe=batch_names(learn, plan.batch_size, seed),
    )
    result = train(job, machine.accelerator, out, progress=progress, stop_after=stop_after)
    if stop_after is None:  # the last epoch is done, now or in a run that was killed before it came to this
        if machine.main and not load_card(out / "best").calibration:
            calibrate_checkpoint(
                out / "best",
                held,
                machine,
                batch_size=machine.eval_batch(plan.batch_size),
                least_score=plan.score_threshold,
                seed=seed,
            )
        machine.accelerator.wait_for_everyone()  # the next stage of self-training reads what is written here
    return result


def _trainable(
    model: BoxDetector, plan: TrainRecipe, *, pretrained: bool
) -> tuple[dict[str, float], Callable[[int], bool]]:
    """Multipliers of the learning rate by the names of parameters, and what freezes or thaws for an epoch.

    MAST's blocks follow the schedule of unfreezing or the fixed number of top blocks. A baseline trains as a whole, its
    backbone more slowly only where it starts from weights: from scratch, a tenth of the rate would only handicap it.
    """
    if isinstance(model, MastDetector):
        depth = model.config.encoder.depth
        multipliers = {
            "": plan.head_lr_multiplier,
            "adapter.": plan.adapter_lr_multiplier,
            "detail.": plan.adapter_lr_multiplier,
            **encoder_multipliers(depth, backbone=plan.backbone_lr_multiplier, unfreezing=plan.unfreezing),
        }
        return multipliers, lambda epoch: thaw(model, plan, depth, epoch)
    if plan.unfreezing is not None or plan.top_blocks != "all":
        raise ConfigError(
            f"{type(model).__name__}: has no encoder blocks to freeze; leave train.unfreezing and train.top_blocks out"
        )
    return baseline_multipliers(
        model.backbone_prefixes if pretrained else (),
        backbone=plan.backbone_lr_multiplier,
        head=plan.head_lr_multiplier,
    ), lambda epoch: False


def thaw(model: MastDetector, plan: TrainRecipe, depth: int, epoch: int) -> bool:
    """Freeze or unfreeze for an epoch, by schedule or by the fixed number of top blocks."""
    if plan.unfreezing is not None:
        blocks = plan.unfreezing.blocks_at(epoch, depth)
        return set_trainable(model, depth=depth, top_blocks=blocks, whole_encoder=False)
    everything = plan.top_blocks == "all"
    blocks = depth if plan.top_blocks == "all" else min(depth, plan.top_blocks)
    return set_trainable(model, depth=depth, top_blocks=blocks, whole_encoder=everything)


def _start_from(model: BoxDetector, init: Path | None, recipe: Recipe) -> tuple[Normalisation | None, str]:
    """Load the encoder (or a whole detector of the same architecture), with the statistics it was trained on."""
    if init is None:
        return None, ""
    if init.is_file():
        if isinstance(model, MastDetector):
            return None, load_audiomae(model, init).note
        return None, model.load_backbone(init)
    card = load_card(init)
    check_front_end(init, card, recipe.front_end)
    if not isinstance(model, MastDetector) or isinstance(card.architecture, BaselineConfig):
        if card.architecture != model.config:
            raise ConfigError(
                f"{init}: holds {_kind(card)}, which {recipe.model} with these settings cannot start from; leave "
                "--init out, or give a model of the same kind"
            )
        load_weights(model, init)
        note = f"all weights of the detector in {init}"
    elif isinstance(card.architecture, DetectorConfig) and same_shape(card.architecture, model.config):
        load_weights(model, init)
        note = f"all weights of the detector in {init}"
    elif isinstance(card.architecture, DetectorConfig) and same_fields(card.architecture, model.config):
        _take_parts(model, load_checkpoint(init).model)
        note = f"all weights of the detector in {init} but those of the contrastive loss"
    elif isinstance(card.architecture, DetectorConfig) and _only_detail_is_new(
        card.architecture, model.config
    ):
        _take_parts(model, load_checkpoint(init).model)
        note = f"all weights of the detector in {init}, with a new detail path beside them"
    else:
        load_encoder(model, init)
        note = f"encoder of {init}"
    return normalisation_of_card(card), note


def _take_parts(model: MastDetector, start: nn.Module) -> None:
    """The weights of the parts that detect, of those that both have."""
    for part in (name for name in _DETECTING if hasattr(model, name) and hasattr(start, name)):
        getattr(model, part).load_state_dict(getattr(start, part).state_dict())


def adopt(recipe: Recipe, init: Path | None) -> Recipe:
    """The recipe for a start from a detector: its architecture, its front end and whether it nests are taken over.

    The preset then decides how it is trained, and the recipe's band at which speed sound is played to it: a detector
    for 20–8000 Hz finds fish at up to 2 kHz when they are played four times faster. What was set field by field stays,
    and what then does not fit is told of or left behind in :func:`train_detector`.
    """
    if init is None or not init.is_dir() or recipe.model != "mast":
        return recipe
    card = load_card(init)
    if not isinstance(card.architecture, DetectorConfig):
        return recipe
    front_end = recipe.front_end
    if _alike(front_end, FrontEnd.for_band(front_end.high_hz)):
        front_end = card.front_end.at_band(front_end.high_hz)
    changes: dict[str, Any] = {} if front_end == recipe.front_end else {"front_end": front_end}
    adopted = recipe.model_copy(update=changes)
    wanted = adopted.detector
    assert isinstance(wanted, DetectorConfig)
    if not same_fields(card.architecture, wanted) and not set(_SHAPE) & set(recipe.train.detector):
        shape = card.architecture.model_dump(mode="json", include=set(_SHAPE))
        plan = recipe.train.model_copy(update={"detector": recipe.train.detector | shape})
        adopted = adopted.model_copy(update={"train": plan})
    if "nested" not in recipe.train.detector and card.architecture.nested != wanted.nested:
        decides = adopted.train.detector | {"nested": card.architecture.nested}
        adopted = adopted.model_copy(update={"train": adopted.train.model_copy(update={"detector": decides})})
    return adopted


def _gentle(recipe: Recipe, init: Path | None) -> TrainRecipe:
    """The recipe's training, with smaller steps where all weights of a detector are the start."""
    plan, wanted = recipe.train, recipe.detector
    if init is None or not init.is_dir() or not isinstance(wanted, DetectorConfig):
        return plan
    start = load_card(init).architecture
    if not isinstance(start, DetectorConfig) or not same_fields(start, wanted):
        return plan
    factor = plan.start_lr_multiplier
    return plan.model_copy(update={"lr": plan.lr * factor, "min_lr": plan.min_lr * factor})


def kept_threshold(init: Path | None, held: Chunks) -> float | None:
    """The threshold of the detector that is the start, where validation has too few boxes to choose another.

    Eleven boxes of fish chose one at which F1 fell from 0.72 to 0.37, while the ranking of boxes had improved.
    """
    if init is None or not init.is_dir() or held.n_boxes >= FEW_BOXES:
        return None
    card = load_card(init)
    return card.thresholds.get("score") if card.kind == "detector" else None


def check_front_end(init: Path, card: ModelCard, front_end: FrontEnd) -> None:
    """Refuse a start that was made for another picture of sound than this run's."""
    if card.front_end != front_end and not _plays_faster(card, front_end):
        own = card.front_end
        raise ConfigError(
            f"{init}: was trained on a front end for {own.low_hz:g}–{own.high_hz:g} Hz, but this run looks at "
            f"{front_end.low_hz:g}–{front_end.high_hz:g} Hz; use the same front end"
        )


def _plays_faster(card: ModelCard, front_end: FrontEnd) -> bool:
    """Whether sound on this front end looks to a detector as on its own, played at another speed.

    What was pretrained in another band is refused all the same: there it is more likely a forgotten --band.
    """
    return card.kind == "detector" and _alike(front_end, card.front_end.at_band(front_end.high_hz))


def _alike(a: FrontEnd, b: FrontEnd) -> bool:
    """The same but for roundings: sample rates are whole numbers."""
    pairs = zip(a.model_dump().values(), b.model_dump().values(), strict=True)
    return all(math.isclose(x, y, rel_tol=1e-3) for x, y in pairs)


def _kind(card: ModelCard) -> str:
    """What a model folder holds, in words."""
    if isinstance(card.architecture, BaselineConfig):
        return f"the baseline {card.architecture.name}"
    return "a detector of MAST" if isinstance(card.architecture, DetectorConfig) else "a pretrained encoder"


def same_shape(a: DetectorConfig, b: DetectorConfig) -> bool:
    """Whether one detector's weights fit the other: the loss may differ, but for the projection's presence."""
    same_loss = (a.contrastive_weight > 0) == (b.contrastive_weight > 0)
    return same_loss and a.contrastive_dimension == b.contrastive_dimension and same_fields(a, b)


def same_fields(a: DetectorConfig, b: DetectorConfig) -> bool:
    """Whether the parts that detect have the same weights; the contrastive loss has one of its own."""
    return all(getattr(a, name) == getattr(b, name) for name in _SHAPE)


def _only_detail_is_new(start: DetectorConfig, wanted: DetectorConfig) -> bool:
    """Whether all that a detector has fits another, which has a detail path besides."""
    return start.detail == 0 and same_fields(start.model_copy(update={"detail": wanted.detail}), wanted)


def _noise_bank(chunks: Chunks, plan: TrainRecipe, seed: int) -> NoiseBank | None:
    """Backgrounds from labelled chunks without boxes, where augmentation asks for them and there are any."""
    if plan.augmentation is None or "background" not in plan.augmentation.operations:
        return None
    labelled = chunks.examples.datasets[0]
    assert isinstance(labelled, ChunkDataset)
    # an unlabelled chunk in which a detector found nothing is not known to be empty
    heard = bool(chunks.table["labelled"].astype(bool).all())
    if not heard or not any(len(boxes) == 0 for boxes in labelled.boxes):
        return None
    return NoiseBank.from_chunks(labelled, most=200, seed=seed)
