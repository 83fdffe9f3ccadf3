"""Training of the box detector on expert labels (Sec. Methods, "Supervised detection on expert labels")."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from mast.data.augment import AugmentConfig
from mast.data.band_filter import restrict_to_band
from mast.data.chunk_dataset import Batch, ChunkDataset
from mast.data.chunks import default_split_of
from mast.data.noise_bank import NoiseBank
from mast.data.recordings import Dataset, load_dataset
from mast.data.repeats import dividing_gap
from mast.data.splits import SplitConfig
from mast.errors import ConfigError
from mast.loaded_model import LoadedModel
from mast.models.architecture import DetectorConfig
from mast.models.baselines import BaselineConfig, build_baseline
from mast.models.card import ModelCard, load_card
from mast.models.checkpoint import save_checkpoint
from mast.models.interface import BoxDetector
from mast.models.mast_detector import MastDetector
from mast.runs import Progress
from mast.table_files import write_table
from mast.training.batches import step_generator, step_seed
from mast.training.calibrate import calibrate_checkpoint
from mast.training.chosen_chunks import (
    Chunks,
    batch_names,
    cached_normalisation,
    decode_once,
    labelled_chunks,
    shuffled_batches,
)
from mast.training.chunk_scores import chunk_metrics, detect_by_plan
from mast.training.ema import average_weights, clone_weights
from mast.training.groups import (
    baseline_multipliers,
    encoder_multipliers,
    parameter_groups,
    set_trainable,
)
from mast.training.leakage import avoid_leakage, training_sound
from mast.training.loop import Job, Result, train
from mast.training.machine import prepare_machine
from mast.training.origin import Origin
from mast.training.part_list import PART_LIST, list_parts
from mast.training.recipe import Recipe, TrainRecipe, check_and_save_recipe
from mast.training.spectrograms import FrontEndPipeline
from mast.training.start import Start
from mast.training.training_run import TrainingRun

_AUGMENTATION = 1  # independent streams of random numbers
_CONTRASTIVE = 2
_BACKGROUNDS = 500  # chunks kept to mix in


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
        return self.model.loss(
            seen.spectrograms, seen.boxes, doubtful=seen.doubtful, weights=seen.weights, generator=draws
        )


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

    ``out/split.csv`` says which recordings train, validate and are left for testing. A finished run calibrates
    ``out/best``: what its scores mean, and the threshold for a precision.

    Args:
        data: a labelled dataset, or its folder.
        out: the run's folder; a stopped run there is resumed.
        recipe: sizes and hyperparameters.
        init: the model to start from, as :func:`mast.models.find.find_model` takes it: all weights of a detector (see
            :mod:`mast.training.start`), or the encoder of a pretraining run or of AudioMAE's file. A baseline starts
            from a model of its own kind, or its backbone from a file of weights that fits.
        split: how the dataset is divided; by default as :func:`mast.data.chunks.default_split_of` says.
        seed: of split, order, augmentation and start.
        accelerator: device, precision and processes; made from the recipe by default.
        progress: called with steps done, steps in all, and a short text.
        stop_after: end after this many steps, as a kill would (for tests).
    """
    start = Start.find(init)
    recipe = start.adapt_recipe(recipe)
    machine = prepare_machine(recipe, accelerator)
    dataset = restrict_to_band(data if isinstance(data, Dataset) else load_dataset(data), recipe.front_end)
    dataset = avoid_leakage(dataset, start.folders, recipe.front_end, split=split, seed=seed)
    about = about_detector(dataset, start, split=split, seed=seed)
    parts = labelled_chunks(dataset, recipe.front_end, split=split, seed=seed)
    if machine.is_main:
        check_and_save_recipe(recipe, out, about=about)
        write_table(out / PART_LIST, list_parts(dataset, parts))
    plan, threshold = start.gentle_plan(recipe), start.threshold(parts["val"])
    run = DetectorRun(recipe, machine, out, about, start, seed, plan=plan, threshold=threshold)
    return fit_detector(parts["train"], parts["val"], run, progress=progress, stop_after=stop_after)


def about_detector(
    dataset: Dataset, start: Start, *, split: SplitConfig | None = None, seed: int = 0
) -> dict[str, Any]:
    """What a training run records besides its recipe: everything else that decides its result."""
    return {
        "kind": "detector",
        "data": str(dataset.root),
        "seed": seed,
        "init": str(start.path or ""),
        "split": (split or default_split_of(dataset)).model_dump(mode="json"),
    }


@dataclass(frozen=True, kw_only=True)
class DetectorRun(TrainingRun):
    """What decides a detector's training, apart from the chunks it sees."""

    plan: TrainRecipe  # of this stage; the recipe's own or one of self-training's
    threshold: float | None = None  # instead of the one that validation would choose


def fit_detector(
    train_chunks: Chunks,
    val_chunks: Chunks,
    run: DetectorRun,
    *,
    progress: Progress | None = None,
    stop_after: int | None = None,
) -> Result:
    """Train on some chunks, validate on others; expert labels and pseudo-labels alike.

    Args:
        train_chunks: chunks with boxes and weights.
        val_chunks: labelled chunks that do not overlap, for the threshold, the best epoch and calibration.
        run: everything else.
        progress: as in :func:`train_detector`.
        stop_after: as in :func:`train_detector`.
    """
    plan, machine, seed = run.plan, run.machine, run.seed
    torch.manual_seed(seed)
    model = build_detector(run.recipe.detector_for(plan))
    note = run.start.load_into(model, run.recipe)
    learnt = training_sound(train_chunks, run.start.card)
    train_chunks, val_chunks = (
        decode_once(c, machine.device, workers=machine.workers, progress=progress)
        for c in (train_chunks, val_chunks)
    )
    pipeline = _pipeline(run, train_chunks, progress)
    before = clone_weights(model) if plan.start_share else {}
    trainer = _DetectorTrainer(run, pipeline, val_chunks, Origin(len(train_chunks), note, learnt), before)
    multipliers, set_trainable_in = _trainable(model, plan, pretrained=run.start.path is not None)
    machine.compile(model)
    job = Job(
        objective=DetectorObjective(model, pipeline, seed=seed, rank=machine.accelerator.process_index),
        model=model,
        batches=shuffled_batches(train_chunks, plan.batch_size, machine, seed=seed),
        optimisation=plan,
        groups=lambda: parameter_groups(
            model.named_parameters(), lr=plan.lr, weight_decay=plan.weight_decay, multipliers=multipliers
        ),
        set_trainable=set_trainable_in,
        validate=trainer.validate,
        save=trainer.save,
        best_metric="f1",
        describe=batch_names(train_chunks, plan.batch_size, seed),
    )
    result = train(job, machine.accelerator, run.out, progress=progress, stop_after=stop_after)
    if stop_after is None:  # the last epoch is done, now or in a run that was killed before calibration
        trainer.calibrate()
    return result


def build_detector(config: DetectorConfig | BaselineConfig) -> BoxDetector:
    """MAST or a baseline, untrained."""
    return MastDetector(config) if isinstance(config, DetectorConfig) else build_baseline(config)


def _pipeline(run: DetectorRun, train_chunks: Chunks, progress: Progress | None) -> FrontEndPipeline:
    """Spectrograms as this run's detector sees them, with its augmentations."""
    recipe, machine = run.recipe, run.machine
    normalisation = run.start.normalisation or run.normalisation
    if normalisation is None:
        normalisation = cached_normalisation(
            [train_chunks], recipe, machine, run.out, seed=run.seed, progress=progress
        )
    if progress:
        progress(0, 0, "reading chunks without boxes as backgrounds")
    noise = _noise_bank(train_chunks, run)
    return FrontEndPipeline(
        recipe.front_end,
        normalisation,
        augmentation=_with_song_gap(run.plan.augmentation, train_chunks),
        noise=noise.to(machine.device) if noise else None,
    )


@dataclass(frozen=True)
class _DetectorTrainer:
    """How the detector of a run is validated, saved and calibrated."""

    run: DetectorRun
    pipeline: FrontEndPipeline
    val_chunks: Chunks
    origin: Origin
    before: dict[str, Tensor]  # weights of the start, where they are kept in part

    def validate(self, trained: nn.Module) -> dict[str, float]:
        """Metrics on the held-out chunks."""
        plan, machine = self.run.plan, self.run.machine
        model = LoadedModel(
            self._final_model(trained), self._card, device=machine.device, precision=machine.precision
        )
        return chunk_metrics(detect_by_plan(model, self.val_chunks, plan, machine, nms_iou=plan.nms_iou))

    @property
    def _card(self) -> ModelCard:
        """What is known about the model before anything is measured."""
        return ModelCard(
            kind="detector",
            architecture=self.run.recipe.detector_for(self.run.plan),
            front_end=self.run.recipe.front_end,
            normalisation=self.pipeline.normalisation,
        )

    def save(self, trained: nn.Module, folder: Path, state: dict[str, Any]) -> None:
        """Write a model folder, with the threshold that validation chose or the start's own."""
        run = self.run
        own = state["metrics"]["threshold"] if run.threshold is None else run.threshold
        known = {
            "thresholds": {"score": own, "nms_iou": run.plan.nms_iou},
            "provenance": self.origin.provenance(run.about, state, run.recipe),
        }
        save_checkpoint(folder, self._final_model(trained), self._card.model_copy(update=known))

    def _final_model(self, trained: nn.Module) -> nn.Module:
        """The detector that is measured and saved: the trained one, or its mean with the start."""
        return average_weights(trained, self.before, self.run.plan.start_share) if self.before else trained

    def calibrate(self) -> None:
        """Measure what the scores of the best model mean, unless a finished run has done so already."""
        run, best = self.run, self.run.out / "best"
        if run.machine.is_main and not load_card(best).calibration:
            calibrate_checkpoint(
                best,
                self.val_chunks,
                run.machine,
                batch_size=run.machine.eval_batch(run.plan.batch_size),
                min_score=run.plan.score_threshold,
                seed=run.seed,
                kept=None if run.threshold is None else run.start.calibration(self.val_chunks),
            )
        run.machine.accelerator.wait_for_everyone()  # the next stage of self-training reads what is written here


def _trainable(
    model: BoxDetector, plan: TrainRecipe, *, pretrained: bool
) -> tuple[dict[str, float], Callable[[int], bool]]:
    """Learning-rate multipliers by parameter name, and the function that freezes and unfreezes for an epoch.

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


def _with_song_gap(augmentation: AugmentConfig | None, chunks: Chunks) -> AugmentConfig | None:
    """The augmentation; a gap that it leaves open is taken from the expert's boxes."""
    if augmentation is None or "repeats" not in augmentation.operations or augmentation.song_gap is not None:
        return augmentation
    known = chunks.table["labelled"].to_numpy(dtype=bool)
    experts = [boxes for boxes, labelled in zip(chunks.boxes, known, strict=True) if labelled]
    return augmentation.model_copy(update={"song_gap": dividing_gap(experts)})


def _noise_bank(chunks: Chunks, run: DetectorRun) -> NoiseBank | None:
    """Backgrounds from chunks without boxes, where augmentation asks for them and there are any.

    An unlabelled chunk in which a detector found nothing is not known to be empty. But if doubtful boxes are kept and
    the chunk does not have even one, it is used: it brings the noise of sites that nobody labelled.
    """
    augmentation = run.plan.augmentation
    if augmentation is None or "background" not in augmentation.operations:
        return None
    known = chunks.table["labelled"].to_numpy(dtype=bool) | (run.recipe.selftrain.doubtful is not None)
    parts, begin = [], 0
    for part in chunks.examples.datasets:
        assert isinstance(part, ChunkDataset)
        if known[begin : begin + len(part)].all():
            parts.append(part)
        begin += len(part)
    if not any(len(boxes) == 0 for part in parts for boxes in part.boxes):
        return None
    return NoiseBank.from_chunks(parts, max_backgrounds=_BACKGROUNDS, seed=run.seed)
