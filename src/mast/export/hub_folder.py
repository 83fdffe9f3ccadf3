"""A folder that can be pushed to a model hub as it is."""

from __future__ import annotations

from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from mast.errors import ConfigError
from mast.export.words import hub_readme
from mast.files import write_whole
from mast.models.checkpoint import ModelCard, StoredType, load_checkpoint, save_checkpoint

# large files go to the hub's file store; whoever pushes with git needs to say so
_ATTRIBUTES = "*.safetensors filter=lfs diff=lfs merge=lfs -text\n"


def write_hub_folder(
    model_folder: str | Path,
    out: str | Path,
    *,
    name: str | None = None,
    licence: str | None = None,
    dtype: StoredType | None = None,
) -> ModelCard:
    """Write weights, ``model.json`` and a model card that is made from it.

    Paths of the machine it was trained on are cut down to their last part: they say nothing to others, and at times
    more than their owner would like.

    Args:
        model_folder: a model folder.
        out: made if it is not there; other files in it are left alone.
        name: ``owner/name`` on the hub; the folder's name by default.
        licence: of the weights; what ``model.json`` says by default.
        dtype: what the weights are stored as; as they are by default, ``"float16"`` in half the space.

    Returns:
        The card as written.
    """
    source, folder = Path(model_folder), Path(out)
    if folder.resolve() == source.resolve():
        raise ConfigError(f"{folder}: is the model itself; choose another --out")
    model, card = load_checkpoint(source)
    update: dict[str, Any] = {"provenance": _without_places(card.provenance)}
    if licence is not None:
        update["licence"] = licence
    card = save_checkpoint(folder, model, card.model_copy(update=update), dtype=dtype)
    write_whole(folder / "README.md", hub_readme(card, name or folder.resolve().name).encode())
    write_whole(folder / ".gitattributes", _ATTRIBUTES.encode())
    return card


def _without_places(value: Any) -> Any:
    """The same, with every absolute path in it cut down to its last part."""
    if isinstance(value, dict):
        return {key: _without_places(inside) for key, inside in value.items()}
    if isinstance(value, list | tuple):
        return [_without_places(inside) for inside in value]
    if isinstance(value, str):
        for kind in (PurePosixPath, PureWindowsPath):
            if kind(value).is_absolute():
                return kind(value).name
    return value
