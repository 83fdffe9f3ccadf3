"""Which detectors may label, checked before a run of self-training writes or trains anything."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mast.errors import MastError
from mast.loaded_model import LoadedModel
from mast.models.card import ModelCard, load_card
from mast.training.recipe import Recipe


def check_labellers(init: Path, teachers: Sequence[Path], recipe: Recipe) -> None:
    """Refuse whatever is not a detector, was trained on other spectrograms, is given twice, or finds nothing.

    Args:
        init: the detector to start from.
        teachers: the others.
        recipe: of self-training.
    """
    known: dict[str, Path] = {}
    for number, folder in enumerate((init, *teachers)):
        card = load_card(folder)
        if card.kind != "detector":
            _ = LoadedModel.load(folder, device="cpu").box_detector  # raises, and says what to do
        band_of(folder, card, recipe)
        if (twin := known.get(card.weights_sha256)) is not None:
            raise MastError(
                f"--teacher {folder}: holds the same detector as {twin}, so there is nothing for the two to agree on; "
                "give another one, or leave it out"
            )
        known[card.weights_sha256] = folder
        scale = card.probabilities
        if number and scale.n_predictions and not scale.n_hits:
            raise MastError(
                f"--teacher {folder}: found nothing right in the recordings that it was validated on, so it cannot "
                "teach; train it longer, or leave it out"
            )


def band_of(folder: Path, card: ModelCard, recipe: Recipe) -> float:
    """The upper edge of a detector's band in this run; sound may be played to it faster or slower than in its training.

    Raises:
        MastError: its chunks or bins differ, so no speed makes them the recipe's.
    """
    high_hz = recipe.front_end.high_hz
    if card.front_end.at_band(high_hz) != recipe.front_end:
        raise MastError(
            f"{folder}: was trained on other spectrograms than this run's ({_describe_front_end(card)}, not "
            f"{recipe.front_end.chunk_frames} frames of {recipe.front_end.n_bins} bins up to {high_hz:g} Hz); use a "
            "detector of the same preset"
        )
    return high_hz


def _describe_front_end(card: ModelCard) -> str:
    front_end = card.front_end
    return f"{front_end.chunk_frames} frames of {front_end.n_bins} bins up to {front_end.high_hz:g} Hz"
