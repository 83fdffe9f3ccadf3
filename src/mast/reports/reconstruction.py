"""What the encoder learnt, as a picture: the original, what it was shown, and its reconstruction."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from mast.data.chunk_dataset import ChunkDataset, collate
from mast.data.chunks import chunk_table
from mast.data.recordings import load_dataset
from mast.errors import MastError
from mast.files import write_atomic
from mast.loaded_model import LoadedModel
from mast.models.mae import MaskedAutoencoder, unpatchify
from mast.reports.spectrogram import escape_mathtext, figure_png, frequency_ticks, new_figure

_CHUNKS = 3  # rows of the picture, drawn at random


@torch.no_grad()
def draw_reconstructions(model_folder: Path, data: Path, out: Path, *, seed: int = 0) -> Path:
    """Draw a few chunks of a dataset: the original, masked, and reconstructed where it was masked.

    Args:
        model_folder: a pretraining run's ``best`` or ``last``.
        data: folder of recordings to draw chunks from.
        out: the PNG to write.
        seed: of chunks and masks.
    """
    loaded = LoadedModel.load(model_folder, device="cpu")
    model, card = loaded.model, loaded.card
    if not isinstance(model, MaskedAutoencoder):
        raise MastError(f"{model_folder}: holds a detector; a reconstruction needs a pretraining run's model")
    dataset = load_dataset(data)
    table = chunk_table(dataset, card.front_end)
    rows = np.sort(np.random.default_rng(seed).permutation(len(table))[:_CHUNKS])
    table = table.iloc[rows].reset_index(drop=True)
    chunks = ChunkDataset(
        dataset, table, card.front_end, boxes=[np.empty((0, 4), dtype=np.int64)] * len(table)
    )
    batch = collate([chunks[i] for i in range(len(chunks))])
    shown = loaded.spectrograms(batch.waveforms)
    result = model(shown, generator=torch.Generator().manual_seed(seed))
    config = model.config.encoder
    patches = result.patches.float()
    if model.config.normalise_targets:  # predicted patches have no level of their own: borrow the true one
        cells = shown.unfold(2, config.patch, config.patch).unfold(3, config.patch, config.patch)
        true = cells.reshape(len(shown), -1, config.patch**2)
        patches = patches * true.std(2, keepdim=True) + true.mean(2, keepdim=True)
    guess = unpatchify(patches, config.patch, config.token_grid)
    hidden = unpatchify(
        result.mask.hidden[:, :, None].expand(-1, -1, config.patch**2).float(),
        config.patch,
        config.token_grid,
    ).bool()
    masked = shown.masked_fill(hidden, float("nan"))
    filled = torch.where(hidden, guess, shown)

    figure = new_figure(14, 2.3 * len(table) + 0.6)
    ticks = frequency_ticks(card.front_end, max_ticks=7)
    axes = figure.subplots(len(table), 3, squeeze=False, sharex=True, sharey=True)
    for i, (recording, start) in enumerate(zip(table["recording"], table["start_s"], strict=True)):
        low, high = (float(np.percentile(shown[i], p)) for p in (2, 99.7))
        for axis, (title, picture) in zip(
            axes[i], (("original", shown), ("shown", masked), ("reconstructed", filled)), strict=True
        ):
            axis.imshow(
                picture[i, 0].T.numpy(),
                origin="lower",
                aspect="auto",
                cmap="magma",
                vmin=low,
                vmax=high,
                extent=(0.0, card.front_end.chunk_s, -0.5, card.front_end.n_bins - 0.5),
                interpolation="nearest",
            )
            axis.set_facecolor("0.75")
            axis.set_yticks(card.front_end.hz_to_bins(ticks).tolist(), [f"{hz / 1000:g}" for hz in ticks])
            axis.set_title(
                escape_mathtext(f"{title}: {recording} at {start:g} s") if title == "original" else title,
                fontsize=9,
            )
        axes[i][0].set_ylabel("kHz")
    for axis in axes[-1]:
        axis.set_xlabel("s")
    write_atomic(out, figure_png(figure, dpi=110))
    return out
