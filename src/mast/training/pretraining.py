"""Masked-audio pretraining of the encoder (Sec. Methods, "Self-supervised pretraining")."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from mast.data.chunk_dataset import Batch
from mast.models.card import ModelCard
from mast.models.checkpoint import save_checkpoint
from mast.models.mae import MaskedAutoencoder, latent_targets, reconstruction_targets
from mast.models.masking import PatchMask
from mast.runs import Progress
from mast.training.batches import step_generator
from mast.training.chosen_chunks import (
    Chunks,
    batch_names,
    cached_normalisation,
    decode_once,
    hold_out,
    ordered_batches,
    shuffled_batches,
    unlabelled_chunks,
)
from mast.training.groups import parameter_groups
from mast.training.loop import Job, Result, train
from mast.training.machine import prepare_machine
from mast.training.origin import Origin
from mast.training.recipe import Recipe, check_and_save_recipe
from mast.training.spectrograms import FrontEndPipeline
from mast.training.start import Start
from mast.training.training_run import TrainingRun


class PretrainObjective(nn.Module):
    """The loss of one step; what is hidden depends on (seed, step) and the example's place in the global batch."""

    def __init__(
        self, model: MaskedAutoencoder, pipeline: FrontEndPipeline, *, seed: int, rank: int, world: int
    ) -> None:
        super().__init__()
        self.model, self.pipeline = model, pipeline
        self.seed, self.rank, self.world = seed, rank, world
        self._teacher: list[
            MaskedAutoencoder
        ] = []  # in a list: its weights are the loop's, not the objective's

    def follow(self, average: nn.Module) -> None:
        """Learn to predict what the average of the model makes of hidden patches, too."""
        assert isinstance(average, MaskedAutoencoder)
        self._teacher = [average]

    def forward(self, batch: Batch, step: int) -> dict[str, Tensor]:
        """A batch of chunks → the reconstruction error of what was hidden."""
        spectrograms = self.pipeline(batch).spectrograms
        local = len(spectrograms)
        generator = step_generator(self.seed, step, spectrograms.device)
        everyone = self.model.draw_mask(local * self.world, device=spectrograms.device, generator=generator)
        own = slice(self.rank * local, (self.rank + 1) * local)
        mask = PatchMask(*(part[own] for part in everyone))
        latent = latent_targets(self._teacher[0].encoder, spectrograms) if self._teacher else None
        return {"loss": self.model(spectrograms, mask, latent=latent).loss}


@dataclass(frozen=True)
class Reconstructions:
    """How well hidden sound is predicted on chunks never learnt from; all per cell, normalised units.

    Attributes:
        error: of the model.
        mean_patch_error: of always predicting the mean patch, as a model that learnt nothing could.
        mean_row_error: of predicting the mean patch of each frequency row, a better guess of that kind.
    """

    error: float
    mean_patch_error: float
    mean_row_error: float


@torch.no_grad()
def measure_reconstruction(
    model: MaskedAutoencoder,
    chunks: Chunks,
    pipeline: FrontEndPipeline,
    *,
    batch_size: int = 16,
    seed: int = 0,
) -> Reconstructions:
    """Reconstruct hidden patches of held-out chunks, with masks fixed by ``seed``."""
    config = model.config
    patch, (_, n_rows) = config.encoder.patch, config.encoder.token_grid
    device = next(model.parameters()).device
    error = total = 0.0
    hidden_sum = torch.zeros(n_rows, patch * patch, dtype=torch.float64, device=device)
    hidden_square = torch.zeros(n_rows, dtype=torch.float64, device=device)
    hidden_count = torch.zeros(n_rows, dtype=torch.float64, device=device)
    for number, batch in enumerate(ordered_batches(chunks, batch_size=batch_size)):
        spectrograms = pipeline(batch).spectrograms
        result = model(spectrograms, generator=step_generator(seed, number, device))
        n_hidden = float(result.mask.hidden.sum())
        error += float(result.loss) * n_hidden
        total += n_hidden
        targets = reconstruction_targets(spectrograms, patch, normalise=config.normalise_targets).double()
        targets = targets.reshape(len(targets), -1, n_rows, patch * patch)  # (B, T/16, F/16, patch²)
        hidden = result.mask.hidden.reshape(len(targets), -1, n_rows, 1)
        hidden_sum += (targets * hidden).sum(dim=(0, 1))
        hidden_square += (targets.square() * hidden).sum(dim=(0, 1, 3))
        hidden_count += hidden.sum(dim=(0, 1, 3))
    per_row = hidden_square.sum() - (hidden_sum.square().sum(dim=1) / hidden_count.clamp(min=1)).sum()
    overall = hidden_square.sum() - hidden_sum.sum(dim=0).square().sum() / hidden_count.sum()
    cells = total * patch * patch
    return Reconstructions(error / total, float(overall) / cells, float(per_row) / cells)


def pretrain(
    data: Sequence[Path],
    out: Path,
    recipe: Recipe,
    *,
    init: str | Path | None = None,
    seed: int = 0,
    accelerator: Accelerator | None = None,
    progress: Progress | None = None,
    stop_after: int | None = None,
) -> Result:
    """Pretrain an encoder on unlabelled sound; ends in ``out/best`` and ``out/last``.

    Args:
        data: folders of recordings; any boxes there are ignored.
        out: the run's folder; a stopped run there is resumed.
        recipe: sizes and hyperparameters.
        init: weights to start from: a model as :func:`mast.models.find.find_model` takes it, or AudioMAE's
            ``pretrained.pth``.
        seed: of order, masks and start.
        accelerator: device, precision and processes; made from the recipe by default.
        progress: called with steps done, steps in all, and a short text.
        stop_after: end after this many steps, as a kill would (for tests).
    """
    start = Start.find(init)
    machine = prepare_machine(recipe, accelerator)
    about = about_pretraining(data, start, seed=seed)
    plan, front_end = recipe.pretrain, recipe.front_end
    sources = unlabelled_chunks(data, front_end)
    train_chunks, val_chunks = hold_out(
        sources, front_end, share=plan.held_out, seed=seed, max_chunks=plan.max_chunks
    )
    if machine.is_main:
        check_and_save_recipe(recipe, out, about=about)
    run = TrainingRun(recipe, machine, out, about, start, seed)
    return fit_encoder(train_chunks, val_chunks, run, progress=progress, stop_after=stop_after)


def about_pretraining(data: Sequence[Path], start: Start, *, seed: int) -> dict[str, Any]:
    """What a pretraining run records besides its recipe: everything else that decides its result."""
    return {"kind": "pretrain", "data": [str(p) for p in data], "seed": seed, "init": str(start.path or "")}


def fit_encoder(
    train_chunks: Chunks,
    val_chunks: Chunks,
    run: TrainingRun,
    *,
    progress: Progress | None = None,
    stop_after: int | None = None,
) -> Result:
    """Pretrain on some chunks, measure reconstruction on others.

    Args:
        train_chunks: chunks to learn from.
        val_chunks: chunks that are only measured.
        run: everything else.
        progress: as in :func:`pretrain`.
        stop_after: as in :func:`pretrain`.
    """
    recipe, machine, seed, plan = run.recipe, run.machine, run.seed, run.recipe.pretrain
    train_chunks, val_chunks = (
        decode_once(c, machine.device, workers=machine.workers, progress=progress)
        for c in (train_chunks, val_chunks)
    )
    normalisation = run.normalisation or cached_normalisation(
        [train_chunks, val_chunks], recipe, machine, run.out, seed=seed, progress=progress
    )
    torch.manual_seed(seed)
    model = MaskedAutoencoder(recipe.autoencoder)
    note = run.start.load_into_autoencoder(model)
    pipeline = FrontEndPipeline(recipe.front_end, normalisation)
    rank, world = machine.accelerator.process_index, machine.accelerator.num_processes
    trainer = _EncoderTrainer(run, pipeline, val_chunks, Origin(len(train_chunks), note))
    machine.compile(model, graphs=True)
    objective = PretrainObjective(model, pipeline, seed=seed, rank=rank, world=world)
    job = Job(
        objective=objective,
        model=model,
        batches=shuffled_batches(train_chunks, plan.batch_size, machine, seed=seed),
        optimisation=plan,
        groups=lambda: parameter_groups(
            model.named_parameters(), lr=plan.lr, weight_decay=plan.weight_decay, multipliers={"": 1.0}
        ),
        set_trainable=lambda epoch: False,
        validate=trainer.validate,
        save=trainer.save,
        best_metric="negative_error",
        describe=batch_names(train_chunks, plan.batch_size, seed),
        follow=objective.follow if plan.latent_weight else None,
    )
    return train(job, machine.accelerator, run.out, progress=progress, stop_after=stop_after)


@dataclass(frozen=True)
class _EncoderTrainer:
    """How the autoencoder of a run is validated and saved."""

    run: TrainingRun
    pipeline: FrontEndPipeline
    val_chunks: Chunks
    origin: Origin

    def validate(self, trained: nn.Module) -> dict[str, float]:
        """Errors on the held-out chunks."""
        assert isinstance(trained, MaskedAutoencoder)
        machine, batch_size = self.run.machine, self.run.recipe.pretrain.batch_size
        with machine.accelerator.autocast():
            found = measure_reconstruction(
                trained,
                self.val_chunks,
                self.pipeline,
                batch_size=machine.eval_batch(batch_size),
                seed=self.run.seed,
            )
        return {
            "negative_error": -found.error,
            "error": found.error,
            "mean_patch_error": found.mean_patch_error,
            "mean_row_error": found.mean_row_error,
        }

    def save(self, trained: nn.Module, folder: Path, state: dict[str, Any]) -> None:
        """Write a model folder."""
        recipe = self.run.recipe
        card = ModelCard(
            kind="mae",
            architecture=recipe.autoencoder,
            front_end=recipe.front_end,
            normalisation=self.pipeline.normalisation,
            provenance=self.origin.provenance(self.run.about, state, recipe),
        )
        save_checkpoint(folder, trained, card)
