"""Masked-audio pretraining of the encoder (Sec. Methods, "Self-supervised pretraining")."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from mast.data.chunk_dataset import Batch, collate
from mast.features import Normalisation
from mast.models.checkpoint import (
    ModelCard,
    NormalisationStatistics,
    load_audiomae,
    load_card,
    load_encoder,
    load_weights,
    save_checkpoint,
)
from mast.models.find import find_model
from mast.models.mae import MaskedAutoencoder, reconstruction_targets
from mast.models.masking import PatchMask
from mast.runs import Progress
from mast.training.batches import Batches, epoch_order, step_generator
from mast.training.groups import parameter_groups
from mast.training.loop import Job, Result, train
from mast.training.machine import prepare_machine
from mast.training.recipe import Recipe, remember_recipe
from mast.training.sources import Chunks, decode_once, hold_out, in_order, normalisation_of, unlabelled_chunks
from mast.training.spectrograms import FrontEndPipeline
from mast.version import provenance_of_code


class PretrainObjective(nn.Module):
    """The loss of one step; what is hidden depends on (seed, step) and the example's place in the global batch."""

    def __init__(
        self, model: MaskedAutoencoder, pipeline: FrontEndPipeline, *, seed: int, rank: int, world: int
    ) -> None:
        super().__init__()
        self.model, self.pipeline = model, pipeline
        self.seed, self.rank, self.world = seed, rank, world

    def forward(self, batch: Batch, step: int) -> dict[str, Tensor]:
        """A batch of chunks → the reconstruction error of what was hidden."""
        spectrograms = self.pipeline(batch).spectrograms
        local = len(spectrograms)
        generator = step_generator(self.seed, step, spectrograms.device)
        everyone = self.model.draw_mask(local * self.world, device=spectrograms.device, generator=generator)
        own = slice(self.rank * local, (self.rank + 1) * local)
        return {"loss": self.model(spectrograms, PatchMask(*(part[own] for part in everyone))).loss}


@dataclass(frozen=True)
class Reconstructions:
    """How well hidden sound is predicted on chunks never learnt from; all per cell, normalised units.

    Attributes:
        error: of the model.
        mean_patch_error: of always predicting the mean patch, what a model that learnt nothing could do.
        mean_row_error: of predicting the mean patch of each frequency row, a stronger such guess.
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
    for number, batch in enumerate(in_order(chunks, batch_size=batch_size)):
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
        data: folders of recordings; boxes, where there are any, are not looked at.
        out: the run's folder; a killed run there is continued.
        recipe: sizes and hyperparameters.
        init: weights to start from: a model as :func:`mast.models.find.find_model` takes it, or AudioMAE's
            ``pretrained.pth``.
        seed: of order, masks and start.
        accelerator: device, precision and processes; made from the recipe by default.
        progress: called with steps done, steps in all, and a short text.
        stop_after: end after this many steps, as a kill would (for tests).
    """
    start = None if init is None else find_model(init, or_file=True)
    machine = prepare_machine(recipe, accelerator)
    plan = recipe.pretrain
    about = {"kind": "pretrain", "data": [str(p) for p in data], "seed": seed, "init": str(start or "")}
    if machine.main:
        remember_recipe(recipe, out, about=about)
    sources = unlabelled_chunks(data, recipe.front_end)
    learn, held = (
        decode_once(chunks, machine.device, workers=machine.workers, progress=progress)
        for chunks in hold_out(
            sources, recipe.front_end, share=plan.held_out, seed=seed, most=plan.max_chunks
        )
    )
    normalisation = normalisation_of(
        [learn, held],
        recipe.front_end,
        out / "normalisation.json",
        seed=seed,
        device=machine.device,
        workers=machine.workers,
        levelled=recipe.levelled,
        progress=progress,
    )

    torch.manual_seed(seed)
    model = MaskedAutoencoder(recipe.autoencoder)
    notes = [_start_from(model, start)] if start else []
    pipeline = FrontEndPipeline(recipe.front_end, normalisation)
    rank, world = machine.accelerator.process_index, machine.accelerator.num_processes
    objective = PretrainObjective(model, pipeline, seed=seed, rank=rank, world=world)

    code = provenance_of_code()

    def save(shown: nn.Module, folder: Path, state: dict[str, Any]) -> None:
        provenance = {
            **about,
            **state,
            "notes": notes,
            "chunks": len(learn),
            "recipe": recipe.model_dump(mode="json"),
            **code,
        }
        save_checkpoint(folder, shown, _card(recipe, normalisation, provenance))

    def validate(shown: nn.Module) -> dict[str, float]:
        assert isinstance(shown, MaskedAutoencoder)
        with machine.accelerator.autocast():
            found = measure_reconstruction(
                shown, held, pipeline, batch_size=machine.eval_batch(plan.batch_size), seed=seed
            )
        return {
            "negative_error": -found.error,
            "error": found.error,
            "mean_patch_error": found.mean_patch_error,
            "mean_row_error": found.mean_row_error,
        }

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
    machine.compile(model, graphs=True)
    job = Job(
        objective=objective,
        model=model,
        batches=batches,
        optimisation=plan,
        groups=lambda: parameter_groups(
            model.named_parameters(), lr=plan.lr, weight_decay=plan.weight_decay, multipliers={"": 1.0}
        ),
        set_trainable=lambda epoch: False,
        validate=validate,
        save=save,
        better="negative_error",
        describe=batch_names(learn, plan.batch_size, seed),
    )
    return train(job, machine.accelerator, out, progress=progress, stop_after=stop_after)


def batch_names(chunks: Chunks, batch_size: int, seed: int) -> Any:
    """A function from a step to the recordings of its batch."""

    def names(step: int) -> str:
        epoch, row = divmod(step, max(1, len(chunks) // batch_size))
        return chunks.names(epoch_order(len(chunks), batch_size, seed=seed, epoch=epoch)[row].tolist())

    return names


def _start_from(model: MaskedAutoencoder, init: Path) -> str:
    """Load weights to continue from; says what was used."""
    if init.is_file():
        return load_audiomae(model, init).note
    if load_card(init).kind == "mae":
        load_weights(model, init)
        return f"continued from {init}"
    load_encoder(model, init)
    return f"encoder of the detector in {init}; a fresh decoder"


def _card(recipe: Recipe, normalisation: Normalisation, provenance: dict[str, Any]) -> ModelCard:
    return ModelCard(
        kind="mae",
        architecture=recipe.autoencoder,
        front_end=recipe.front_end,
        normalisation=statistics_of(normalisation),
        provenance=provenance,
    )


def statistics_of(normalisation: Normalisation) -> NormalisationStatistics:
    """The dataset's statistics as a checkpoint keeps them."""
    return NormalisationStatistics(
        mean=normalisation.mean,
        std=normalisation.std + normalisation.epsilon,
        levelled=normalisation.levelled,
    )
