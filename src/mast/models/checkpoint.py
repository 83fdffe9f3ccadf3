"""Models on disk: a folder with ``model.safetensors`` and ``model.json``. Users' files are never unpickled.

A write that is cut short loses nothing: each file is written next to its place and moved there at once, and
the weights carry a copy of their ``model.json``. If a process is killed between the two moves of
:func:`save_checkpoint`, the weights are new and the text is old; the fingerprints differ, and the copy inside
the weights is used. :func:`update_card` changes the text alone, the copy first: until ``model.json`` itself is
replaced, the old one counts.

What is read is checked (:mod:`mast.models.damage`): the weights against their fingerprint, every number for being
finite, and the sizes in ``model.json`` against those of the weights before memory is taken for them.

AudioMAE's public ``pretrained.pth`` (docs/paper_notes.md 12) is the one foreign file read here, by
``torch.load(weights_only=True)``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from mast.errors import MastError, first_line
from mast.files import atomic_file, remove_partial_files, write_atomic
from mast.models.architecture import DetectorConfig
from mast.models.baselines import BaselineConfig, build_baseline
from mast.models.card import CARD, WEIGHTS, ModelCard, load_card, open_weights, read_embedded_card
from mast.models.damage import SizeGuard, fingerprint, refuse_changed, refuse_invalid
from mast.models.interface import BoxDetector
from mast.models.mae import MaskedAutoencoder
from mast.models.mast_detector import MastDetector

StoredType = Literal["float32", "float16", "bfloat16"]
_STORED_TYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
AUDIOMAE_MEAN, AUDIOMAE_STD = -4.2677393, 4.5689974  # of AudioSet, from AudioMAE's own recipe


class Checkpoint(NamedTuple):
    """A model and what is known about it."""

    model: BoxDetector | MaskedAutoencoder
    card: ModelCard


class _SkipInit(TorchFunctionMode):
    """Build a model without initialising its weights, because stored ones will replace every one of them.

    Initialising the paper's ViT-B takes longer than reading its weights.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        # some functions of nn.init show up here themselves, others only through the functions that they call
        if func in (Tensor.uniform_, Tensor.normal_) or getattr(func, "__module__", "") == nn.init.__name__:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


class LoadReport(NamedTuple):
    """What became of the tensors of a foreign checkpoint."""

    loaded: tuple[str, ...]  # names in the file
    ignored: tuple[str, ...]
    note: str  # one sentence for the user


def save_checkpoint(
    folder: str | Path, model: nn.Module, card: ModelCard, *, dtype: StoredType | None = None
) -> ModelCard:
    """Write a model folder, replacing what is there; see the module docstring for what a kill leaves.

    Args:
        folder: made if it is not there.
        model: a :class:`BoxDetector` or :class:`MaskedAutoencoder` built from ``card.architecture``.
        card: what ``model.json`` will say.
        dtype: what numbers are stored as; as the model has them by default. ``"float16"`` halves the file and keeps
            three digits; loading gives a float32 model in any case.

    Returns:
        The card as written, with the fingerprint of the weights as stored.

    Raises:
        MastError: a weight is too large for ``dtype``.
    """
    weights = {
        name: _convert(tensor.detach().cpu(), dtype, f"{folder}: tensor {name}").contiguous()
        for name, tensor in model.state_dict().items()
    }
    card = card.model_copy(update={"weights_sha256": fingerprint(weights)})
    _write(Path(folder), weights, card)
    return card


def _convert(tensor: Tensor, dtype: StoredType | None, what: str) -> Tensor:
    if dtype is None or not tensor.is_floating_point():
        return tensor
    stored = tensor.to(_STORED_TYPES[dtype])
    if not torch.equal(stored.isfinite(), tensor.isfinite()):
        raise MastError(
            f"{what} holds {tensor.abs().max():.3g}, too large for {dtype}; store it as bfloat16 or float32"
        )
    return stored


def update_card(folder: str | Path, card: ModelCard) -> None:
    """Change what a model folder says about its weights, in ``model.json`` and in the copy inside the weights.

    A kill leaves the old card or the new one, and the same weights; see the module docstring.

    Args:
        folder: a model folder.
        card: a copy of :func:`load_card`'s with other text; it must name the weights that are there.
    """
    path = Path(folder)
    there = load_card(path).weights_sha256
    if card.weights_sha256 != there:
        raise MastError(
            f"{path}: holds weights {there[:12]}, but the card to write describes {card.weights_sha256[:12]}; "
            "the model was replaced in the meantime; try again"
        )
    _write(path, _read_weights(path), card)


def _write(folder: Path, weights: Mapping[str, Tensor], card: ModelCard) -> None:
    """Weights with the copy of the card, then the card: see the module docstring for why in this order."""
    text = card.model_dump_json(indent=2)
    for name in (WEIGHTS, CARD):
        remove_partial_files(folder / name)  # only one process writes a model
    with atomic_file(folder / WEIGHTS) as part:
        save_file(dict(weights), part, metadata={"model.json": text})
    write_atomic(folder / CARD, (text + "\n").encode())


def load_checkpoint(folder: str | Path) -> Checkpoint:
    """Read a model folder onto the CPU, in evaluation mode; refuse what does not fit."""
    path = Path(folder)
    card = load_card(path)
    shapes = _stored_shapes(path / WEIGHTS)
    model: BoxDetector | MaskedAutoencoder
    with SizeGuard(shapes.values(), path / WEIGHTS):
        if isinstance(card.architecture, BaselineConfig):
            model = build_baseline(card.architecture)
        else:
            with _SkipInit():
                if isinstance(card.architecture, DetectorConfig):
                    model = MastDetector(card.architecture)
                else:
                    model = MaskedAutoencoder(card.architecture)
    load_weights(model, path)
    seen, made_for = (card.front_end.chunk_frames, card.front_end.n_bins), _chunk_shape(model)
    if seen != made_for:
        raise MastError(
            f"{path}: its front end gives chunks of {seen[0]} × {seen[1]} cells, but the model is made for "
            f"{made_for[0]} × {made_for[1]}; the model is damaged, copy it again"
        )
    return Checkpoint(model.eval(), card)


def _chunk_shape(model: BoxDetector | MaskedAutoencoder) -> tuple[int, int]:
    """Frames and bins of the chunks that a model takes."""
    if isinstance(model, BoxDetector):
        return model.chunk
    return model.config.encoder.chunk_frames, model.config.encoder.n_bins


def load_weights(model: nn.Module, folder: str | Path) -> None:
    """Load a folder's weights into a model, all of them, into all of it."""
    path = Path(folder)
    _load_strictly(model, _read_weights(path), path / WEIGHTS)


def load_encoder(model: MastDetector | MaskedAutoencoder, folder: str | Path) -> None:
    """Load only the encoder of a folder's model (a masked autoencoder's or a detector's) into a model."""
    path = Path(folder)
    prefix = "encoder."
    weights = {n.removeprefix(prefix): t for n, t in _read_weights(path).items() if n.startswith(prefix)}
    _load_strictly(model.encoder, weights, path / WEIGHTS)


def load_audiomae(model: MastDetector | MaskedAutoencoder, path: str | Path) -> LoadReport:
    """Load AudioMAE's public ``pretrained.pth``: the whole encoder, and the decoder where it fits as a whole.

    The released checkpoint's decoder attends within windows and fits no plain one; a masked autoencoder then
    keeps its own fresh decoder, and the report says so.

    Args:
        model: a base-sized model on 1024 × 128 (the public weights are ViT-B).
        path: the file; users bring their own, because it is licensed CC BY-NC.

    Returns:
        Which tensors were loaded and which were not, and how AudioMAE normalised its input.
    """
    file = Path(path)
    if not file.is_file():
        raise MastError(f"{file}: no such file; expected AudioMAE's pretrained.pth")
    try:
        # the recipe's options are stored next to the weights
        with torch.serialization.safe_globals([argparse.Namespace]):
            content = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises several unrelated types here
        raise MastError(
            f"{file}: cannot be read as a plain PyTorch checkpoint ({first_line(error)})"
        ) from None
    weights = content.get("model") if isinstance(content, dict) else None
    if not isinstance(weights, dict):
        raise MastError(
            f'{file}: expected a dictionary with tensors under "model", as AudioMAE\'s pretrained.pth has'
        )
    refuse_invalid(weights, file)

    decoder = {n: ours for n in weights if (ours := _decoder_name(n)) is not None}  # their name → ours
    encoder = [n for n in weights if n in model.encoder.state_dict()]
    _load_strictly(model.encoder, {n: weights[n] for n in encoder}, file)
    loaded = list(encoder)
    if isinstance(model, MaskedAutoencoder):
        renamed = {ours: weights[theirs] for theirs, ours in decoder.items()}
        if _first_mismatch(model.decoder, renamed) is None:
            model.decoder.load_state_dict(renamed)
            loaded += decoder
    ignored = tuple(n for n in weights if n not in set(loaded))
    note = (
        f"{file.name}: {len(loaded)} tensors loaded, {len(ignored)} ignored"
        f"{f' (first: {ignored[0]})' if ignored else ''}; AudioMAE was trained on "
        f"(S − ({AUDIOMAE_MEAN:.3f})) / (2 × {AUDIOMAE_STD:.3f}), twice the divisor of MAST's normalisation"
    )
    return LoadReport(tuple(loaded), ignored, note)


def _decoder_name(name: str) -> str | None:
    """AudioMAE's name of a decoder tensor → ours; None for anything else."""
    if name == "mask_token":
        return name
    if not name.startswith("decoder_"):
        return None
    ours = name.removeprefix("decoder_")
    return "predict" + ours.removeprefix("pred") if ours.startswith("pred.") else ours


def _load_strictly(model: nn.Module, weights: Mapping[str, Tensor], source: Path) -> None:
    mismatch = _first_mismatch(model, weights)
    if mismatch is not None:
        raise MastError(f"{source}: {mismatch}; the weights do not belong to this architecture")
    model.load_state_dict(weights)


def _first_mismatch(model: nn.Module, weights: Mapping[str, Tensor]) -> str | None:
    expected = model.state_dict()
    for name, tensor in expected.items():
        if name not in weights:
            missing = sum(n not in weights for n in expected)
            return f"tensor {name} is missing ({missing} of {len(expected)} are)"
        if weights[name].shape != tensor.shape:
            return f"tensor {name} has shape {tuple(weights[name].shape)}, expected {tuple(tensor.shape)}"
        if weights[name].is_floating_point() != tensor.is_floating_point():
            return f"tensor {name} holds {weights[name].dtype}, expected {tensor.dtype}"
    extra = [n for n in weights if n not in expected]
    return f"tensor {extra[0]} is not part of the model ({len(extra)} are not)" if extra else None


def _read_weights(folder: Path) -> dict[str, Tensor]:
    """All tensors of a folder, as they were written."""
    path = folder / WEIGHTS
    with open_weights(path, "pt") as file:
        weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    refuse_changed(weights, read_embedded_card(path).weights_sha256, path)
    refuse_invalid(weights, path)
    return weights


def _stored_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor, from the header alone."""
    with open_weights(path, "pt") as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
