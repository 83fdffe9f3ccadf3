"""A folder that can be pushed to a model hub as it is."""

from __future__ import annotations

from pathlib import Path

from mast.errors import ConfigError
from mast.export.readmes import hub_readme
from mast.export.strip_paths import strip_paths
from mast.files import write_atomic
from mast.models.card import ModelCard
from mast.models.checkpoint import StoredType, load_checkpoint, save_checkpoint

# large files go to the hub's file store; git has to be told so before pushing
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

    Paths of the machine it was trained on are cut down to their last part.

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
    card = strip_paths(card)
    if licence is not None:
        card = card.model_copy(update={"licence": licence})
    card = save_checkpoint(folder, model, card, dtype=dtype)
    write_atomic(folder / "README.md", hub_readme(card, name or folder.resolve().name).encode())
    write_atomic(folder / ".gitattributes", _ATTRIBUTES.encode())
    return card
