"""How long training takes on this machine, measured on a few chunks, and how long it should be.

Training that starts from a detector can be short: each labelled chunk is seen a dozen times, within an hour. With few
chunks, more is harmful: after seeing ten boxes 480 times, a model has forgotten much of what it knew of other calls.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import torch

from mast.data.chunk_dataset import Batch, collate
from mast.evaluation.evidence import FEW_BOXES
from mast.models.mae import MaskedAutoencoder, latent_targets
from mast.models.mast_detector import MastDetector
from mast.normalisation import Normalisation
from mast.training.chosen_chunks import Chunks
from mast.training.detector_training import build_detector, thaw
from mast.training.loop import Optimisation
from mast.training.machine import Machine
from mast.training.recipe import Recipe, TrainRecipe
from mast.training.spectrograms import FrontEndPipeline

LOOKS = 160  # minimum number of chunks seen in all epochs
EPOCHS = 12  # if that means more chunks; as in the preset tiny
MIN_EPOCHS = 3
MAX_TRAINING_S = 3600.0  # as long as MIN_EPOCHS fit into it
FEW_CHUNKS = 64  # below which batches are small
_TRIAL_CHUNKS = 2  # on a CPU; a GPU gets a whole batch


class Rates(NamedTuple):
    """Seconds per chunk on this machine."""

    train: float
    detect: float
    pretrain: float = 0.0


def adjust_recipe(
    recipe: Recipe,
    n_chunks: int,
    *,
    held_boxes: int,
    start_share: float = 0.0,
    fixed: Collection[str] = (),
    rates: Rates | None = None,
) -> Recipe:
    """The recipe for a start from a detector; epochs, batch and rates of self-training follow the amount of data.

    Args:
        recipe: from the default preset, not one that the user chose.
        n_chunks: labelled chunks to train on.
        held_boxes: boxes to validate on. A few cannot say which epoch is best: then the last is taken.
        start_share: share of the start's weights in the result (:meth:`mast.training.start.Start.share`).
        fixed: settings that the user did choose, by dotted names; these stay.
        rates: of this machine; without them the limit of an hour cannot be kept.
    """
    plan = recipe.train
    batch = plan.batch_size if "train.batch_size" in fixed or n_chunks >= FEW_CHUNKS else plan.batch_size // 2
    seen_per_epoch = max(1, n_chunks // batch) * batch  # chunks seen in an epoch
    epochs = max(EPOCHS, math.ceil(LOOKS / seen_per_epoch))
    if rates is not None:
        epochs = max(MIN_EPOCHS, min(epochs, int(MAX_TRAINING_S / (seen_per_epoch * rates.train))))
    wanted = {
        "batch_size": batch,
        "epochs": epochs,
        "warmup_epochs": epochs / 20,
        "validate_every_epochs": max(1, epochs // 6) if held_boxes >= FEW_BOXES else epochs,
        "start_share": start_share,
    }
    train = plan.model_copy(update=_without_fixed(wanted, "train", fixed))
    # larger steps than in training undo what the start knows
    rate = {"lr": plan.lr * plan.start_lr_multiplier}
    stages = {
        name: getattr(recipe.selftrain, name).model_copy(
            update=_without_fixed(rate, f"selftrain.{name}", fixed)
        )
        for name in ("stage1", "stage2")
    }
    selftrain = recipe.selftrain.model_copy(update=stages)
    return recipe.model_copy(update={"train": train, "selftrain": selftrain})


def _without_fixed(values: dict[str, Any], section: str, fixed: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if f"{section}.{name}" not in fixed}


def measure_rates(chunks: Chunks, recipe: Recipe, machine: Machine, *, pretrain: bool = False) -> Rates:
    """Seconds per chunk for reading and training (or searching) here, timed on one batch after a first one.

    Args:
        chunks: labelled ones; the first few are read.
        recipe: model, augmentation, batch size.
        machine: where.
        pretrain: whether the masked autoencoder is measured too.
    """
    with torch.random.fork_rng(devices=[]), machine.accelerator.autocast():
        detector = _detector_rates(chunks, recipe, machine)
        return detector._replace(pretrain=_pretrain_rate(chunks, recipe, machine) if pretrain else 0.0)


def _detector_rates(chunks: Chunks, recipe: Recipe, machine: Machine) -> Rates:
    plan, config = recipe.train, recipe.detector
    model = build_detector(config)
    model.to(machine.device)
    if isinstance(model, MastDetector):
        # as in the last epoch: frozen blocks are faster
        thaw(model, plan, model.config.encoder.depth, plan.epochs - 1)
    pipeline, read = _pipeline(recipe, machine), _reader(chunks, plan, machine)

    def train() -> None:
        seen = pipeline(read(), torch.Generator().manual_seed(0))
        terms = model.loss(seen.spectrograms, seen.boxes, weights=seen.weights)
        terms["loss"].backward()  # type: ignore[no-untyped-call]

    @torch.no_grad()
    def detect() -> None:
        seen = pipeline(read()).spectrograms
        model.detect(seen, score_threshold=plan.score_threshold, nms_iou=plan.nms_iou)

    n_chunks = len(read().weights)
    trained = _time_work(train, machine) / n_chunks
    model.eval()
    return Rates(trained, _time_work(detect, machine) / n_chunks)


def _pretrain_rate(chunks: Chunks, recipe: Recipe, machine: Machine) -> float:
    model = MaskedAutoencoder(recipe.autoencoder).to(machine.device)
    pipeline, read = _pipeline(recipe, machine), _reader(chunks, recipe.pretrain, machine)

    def listen() -> None:
        seen = pipeline(read()).spectrograms
        latent = latent_targets(model.encoder, seen) if recipe.pretrain.latent_weight else None
        model(seen, latent=latent).loss.backward()

    return _time_work(listen, machine) / len(read().weights)


def _pipeline(recipe: Recipe, machine: Machine) -> FrontEndPipeline:
    normalisation = Normalisation(mean=0.0, std=1.0, levelled=recipe.levelled)
    pipeline = FrontEndPipeline(recipe.front_end, normalisation, augmentation=recipe.train.augmentation)
    return pipeline.to(machine.device)


def _reader(chunks: Chunks, plan: Optimisation, machine: Machine) -> Callable[[], Batch]:
    """Reads the first few chunks as a batch, from their files."""
    on_gpu = machine.device.type == "cuda"
    size = plan.batch_size if on_gpu else min(_TRIAL_CHUNKS, plan.batch_size)
    return lambda: collate([chunks.examples[row] for row in range(min(len(chunks), size))])


def _time_work(work: Callable[[], None], machine: Machine) -> float:
    """Seconds of the second call; the first prepares memory and threads."""
    times = []
    for _ in range(2):
        work()
        if machine.device.type == "cuda":
            torch.cuda.synchronize(machine.device)
        times.append(time.perf_counter())
    return times[1] - times[0]


def training_seconds(plan: TrainRecipe, n_chunks: int, n_held: int, rates: Rates) -> float:
    """Seconds of one training run, with its validations."""
    validations = plan.epochs / plan.validate_every_epochs + 1  # and calibration
    return chunks_seen(plan, n_chunks) * rates.train + validations * n_held * rates.detect


def chunks_seen(plan: Optimisation, n_chunks: int) -> int:
    """How many chunks are seen in all epochs of a training run."""
    return plan.epochs * max(1, n_chunks // plan.batch_size) * plan.batch_size
