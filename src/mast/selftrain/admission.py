"""Which detectors may label, checked before a run of self-training writes or trains anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from mast.data.recordings import Dataset
from mast.data.splits import SplitConfig
from mast.errors import MastError
from mast.hearing import HearingModel
from mast.models.card import ModelCard, load_card
from mast.training.chosen_chunks import Chunks, labelled_chunks
from mast.training.recipe import Recipe

_KEPT = ("val", "test")  # parts that the detectors must not have learnt from


def admit(init: Path, teachers: Sequence[Path], recipe: Recipe) -> None:
    """Refuse what is not a detector, hears something else, stands twice among those that label, or finds nothing.

    Args:
        init: the detector to start from.
        teachers: the others.
        recipe: of self-training.
    """
    known: dict[str, Path] = {}
    for number, folder in enumerate((init, *teachers)):
        card = load_card(folder)
        if card.kind != "detector":
            _ = HearingModel.load(folder, device="cpu").box_detector  # raises, and says what to do
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
    """The upper edge of the band that a detector hears in this run; it may be played faster or slower than it learnt.

    Raises:
        MastError: its chunks or bins are others, so no speed makes them the recipe's.
    """
    high_hz = recipe.front_end.high_hz
    if card.front_end.at_band(high_hz) != recipe.front_end:
        raise MastError(
            f"{folder}: was trained on other spectrograms than this run's ({_in_words(card)}, not "
            f"{recipe.front_end.chunk_frames} frames of {recipe.front_end.n_bins} bins up to {high_hz:g} Hz); use a "
            "detector of the same preset"
        )
    return high_hz


def _in_words(card: ModelCard) -> str:
    front_end = card.front_end
    return f"{front_end.chunk_frames} frames of {front_end.n_bins} bins up to {front_end.high_hz:g} Hz"


def refuse_seen(
    folders: Sequence[Path], dataset: Dataset, parts: Mapping[str, Chunks], recipe: Recipe
) -> None:
    """Refuse detectors that learnt from this dataset under another division, so from what is held back here.

    Args:
        folders: of the detectors.
        dataset: the labelled one.
        parts: its chunks by part, as this run divides it.
        recipe: of self-training.
    """
    kept = {chunk for name in _KEPT if name in parts for chunk in _names(parts[name])}
    for folder in folders:
        told = load_card(folder).provenance
        if "seed" not in told or not _same_folder(told.get("data"), dataset.root):
            continue
        split = SplitConfig.model_validate(told["split"]) if told.get("split") else None
        learnt = labelled_chunks(dataset, recipe.front_end, split=split, seed=int(told["seed"]))["train"]
        if seen := len(kept & _names(learnt)):
            raise MastError(
                f"{folder}: was trained on {seen} of the {len(kept)} chunks that are held back here for validation and "
                f"test, which would flatter it; divide the dataset as then (--seed {told['seed']}), or give its "
                "recordings.csv a column split"
            )


def _names(chunks: Chunks) -> set[tuple[str, float]]:
    return set(zip(chunks.table["recording"].astype(str), chunks.table["start_s"].round(3), strict=True))


def _same_folder(told: object, root: Path) -> bool:
    return isinstance(told, str) and Path(told).resolve() == root.resolve()
