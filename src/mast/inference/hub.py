"""Where models come from: a folder, the one that ships with mast, or a repository on a model hub."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

from mast.errors import MastError
from mast.models.checkpoint import CARD, WEIGHTS

DEFAULT = "default"
# one slash or two: a path on the command line loses the second
_HUB = re.compile(r"hf:/{1,2}(?P<repository>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?")


def find_model(name: str | Path) -> Path:
    """The folder of a model.

    Args:
        name: ``"default"`` for the model that ships with mast, ``"hf://owner/name"`` or ``"hf://owner/name@revision"``
            for one on the Hugging Face hub, anything else for a folder. A path ``default`` is the folder of that
            name where there is one.

    Raises:
        MastError: no model ships with this copy of mast, or the hub does not give the model.
    """
    text = str(name)
    if text == DEFAULT and (isinstance(name, str) or not name.exists()):
        return _shipped()
    if not text.startswith("hf:"):
        return Path(name)
    match = _HUB.fullmatch(text)
    if match is None:
        raise MastError(
            f"{text}: is no name of a model on the hub; expected hf://owner/name or hf://owner/name@revision"
        )
    return _downloaded(match["repository"], match["revision"])


def _pretrained() -> Path:
    return Path(str(files("mast") / "pretrained"))


def _shipped() -> Path:
    folder = _pretrained() / DEFAULT
    if not (folder / WEIGHTS).is_file():
        raise MastError(
            f"no model ships with this copy of mast ({folder / WEIGHTS} is missing); give the folder of a run of "
            "`mast fit` or `mast train`, or hf://owner/name for one on the hub"
        )
    return folder


def _downloaded(repository: str, revision: str | None) -> Path:
    """Weights and card of a repository, from the cache where the hub has nothing newer or cannot be reached."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    name = f"hf://{repository}" + (f"@{revision}" if revision else "")
    try:
        folder = Path(snapshot_download(repository, revision=revision, allow_patterns=[WEIGHTS, CARD]))
    except GatedRepoError:
        raise MastError(
            f"{name}: its owner wants to know who downloads it; ask on its page, then `hf auth login`"
        ) from None
    except RepositoryNotFoundError:
        raise MastError(f"{name}: no such model on the hub, or a private one; check the name") from None
    except RevisionNotFoundError:
        raise MastError(
            f"{name}: the model has no revision {revision}; leave it out for the newest"
        ) from None
    except LocalEntryNotFoundError:
        raise MastError(
            f"{name}: is not on this machine and the hub cannot be reached; connect once to download it, or copy the "
            "model folder here and give its path"
        ) from None
    except Exception as error:  # of whatever library the hub's own library uses for its transport
        raise MastError(f"{name}: cannot be downloaded ({_first_line(error)}); try again later") from None
    missing = [file for file in (WEIGHTS, CARD) if not (folder / file).is_file()]
    if missing:
        raise MastError(
            f"{name}: holds no {' and no '.join(missing)}; expected a model that `mast export --format hub` has written"
        )
    return folder


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
